//! What keeps instance types from a pool, and that it is all that does.

use std::collections::BTreeSet;

use karpenter_core::{
    Catalogs, InstanceType, Offering, Planner, Price, Quantity, Requirement, Requirements, ResourceList, ResourceName,
    Snapshot, Timestamp,
    api::{Budget, DaemonSet, DisruptionReason, NodeClaim, NodePool, NodeSelectorRequirement, Operator, Pod},
    disrupt::PoolOutlook,
    labels,
    reason::{Obstacle, TypeObstacle},
    schedule::PoolTypes,
};
use proptest::prelude::*;
use serde_json::{Value, json};

const NOW: &str = "2026-01-01T12:00:00Z";

fn read<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("as the API has it")
}

/// A machine of so many CPUs, on demand in one zone.
fn machine(name: &str, zone: &str, cpu: i64) -> InstanceType {
    let capacity = [("cpu", Quantity::from_units(cpu)), ("memory", Quantity::from_bytes(8 << 30))];
    InstanceType::named(name, capacity).offering("on-demand", zone, dollars(cpu as f64 / 10.0))
}

fn dollars(amount: f64) -> Price {
    Price::per_hour(amount).expect("valid")
}

fn require(key: &str, values: &[&str]) -> NodeSelectorRequirement {
    NodeSelectorRequirement::new(key, Operator::In, values.iter().copied())
}

fn daemon(cpu: &str) -> DaemonSet {
    let container = json!({"name": "c", "resources": {"requests": {"cpu": cpu}}});
    read(json!({"metadata": {"name": "agent", "namespace": "kube-system", "uid": "agent"},
        "spec": {"template": {"spec": {"containers": [container]}}}}))
}

/// A pool and what is around it.
#[derive(Clone, Debug)]
struct World {
    pool: NodePool,
    types: Vec<InstanceType>,
    daemon: Option<DaemonSet>,
    claims: Vec<NodeClaim>,
    pods: Vec<Pod>,
}

impl World {
    /// A pool that accepts all of these.
    fn new(types: Vec<InstanceType>) -> Self {
        Self { pool: NodePool::named("p"), types, daemon: None, claims: Vec::new(), pods: Vec::new() }
    }

    fn parts(&self) -> (Snapshot, Catalogs) {
        let mut builder =
            Snapshot::builder().pool(self.pool.clone()).claims(self.claims.clone()).pods(self.pods.clone());
        if let Some(daemon) = &self.daemon {
            builder = builder.daemonset(daemon.clone());
        }
        let snapshot = builder.build().expect("valid");
        let catalogs = Catalogs::shared(self.types.clone(), snapshot.pools()).expect("valid");
        (snapshot, catalogs)
    }

    fn look(&self) -> PoolTypes {
        let (snapshot, catalogs) = self.parts();
        PoolTypes::of(&snapshot, &catalogs, "p").expect("there is such a pool")
    }

    /// The names of the types that remain.
    fn remaining(&self) -> Vec<String> {
        self.look().remaining.into_iter().map(|left| left.name).collect()
    }

    /// What rules types out, with how many they are.
    fn ruled_out(&self) -> Vec<(usize, String)> {
        self.look().ruled_out.iter().map(|group| (group.types.len(), group.obstacle.to_string())).collect()
    }

    /// That this is all that rules types out, and that nothing does once it is taken away.
    fn is_all(&self, expected: &[(usize, &str)], take_away: impl FnOnce(&mut Self)) {
        let expected: Vec<(usize, String)> = expected.iter().map(|&(n, text)| (n, text.to_owned())).collect();
        assert_eq!(self.ruled_out(), expected);
        let mut without = self.clone();
        take_away(&mut without);
        let look = without.look();
        assert_eq!((look.obstacle, look.ruled_out), (None, Vec::new()));
        assert_eq!(look.remaining.len(), without.types.len());
    }
}

fn three() -> World {
    World::new(vec![machine("small", "a", 2), machine("medium", "b", 8), machine("large", "b", 32)])
}

#[test]
fn nothing_is_ruled_out_by_a_pool_that_asks_nothing() {
    let look = three().look();
    assert_eq!((&look.obstacle, look.ruled_out.len()), (&None, 0));
    let left: Vec<_> = look.remaining.iter().map(|left| (left.name.as_str(), left.cheapest_price)).collect();
    assert_eq!(left, [("small", dollars(0.2)), ("medium", dollars(0.8)), ("large", dollars(3.2))]);
    assert_eq!(
        (look.remaining[0].zones.as_slice(), look.remaining[0].capacity_types.as_slice()),
        (&["a".to_owned()][..], &["on-demand".to_owned()][..])
    );
}

#[test]
fn requirements_are_named_by_key() {
    let mut world = three();
    world.pool = world.pool.require(require(labels::ZONE, &["a"]));
    let zone = "the pool wants topology.kubernetes.io/zone In [a], but they have b";
    world.is_all(&[(2, zone)], |world| world.pool.spec.template.spec.requirements.clear());

    world.pool = world.pool.require(require(labels::ARCH, &["arm64"]));
    let arch = "the pool wants kubernetes.io/arch In [arm64], but they have amd64";
    world.is_all(&[(3, arch), (2, zone)], |world| world.pool.spec.template.spec.requirements.clear());
    let alone: Vec<_> = world.look().ruled_out.iter().map(|group| group.alone_count).collect();
    assert_eq!(alone, [1, 0], "the zone of two of them is wrong too");
    assert_eq!(world.look().obstacle, Some(Obstacle::NoInstanceTypes));
}

#[test]
fn labels_of_the_template_are_requirements() {
    let mut world = three();
    world.pool.spec.template.metadata.labels.insert(labels::ZONE.to_owned(), "a".to_owned());
    world.is_all(&[(2, "the pool wants topology.kubernetes.io/zone In [a], but they have b")], |world| {
        world.pool.spec.template.metadata.labels.clear();
    });
}

#[test]
fn what_contradicts_itself_is_named() {
    let mut world = three();
    world.pool = world.pool.require(require("team", &["red"])).require(require("team", &["blue"]));
    world.is_all(&[(3, "what the pool says of team contradicts itself")], |world| {
        world.pool.spec.template.spec.requirements.pop();
    });
}

#[test]
fn offerings_must_meet_all_requirements_at_once() {
    let mut world = World::new(vec![machine("m", "a", 4).offering("spot", "b", dollars(0.1))]);
    world.pool = world.pool.require(require(labels::ZONE, &["a"])).require(require(labels::CAPACITY_TYPE, &["spot"]));
    let together =
        "no offering is as the pool wants it in all of karpenter.sh/capacity-type, topology.kubernetes.io/zone";
    world.is_all(&[(1, together)], |world| {
        world.pool.spec.template.spec.requirements.pop();
    });
}

#[test]
fn offerings_that_cannot_be_bought_now() {
    let mut world = three();
    world.types[1].offerings[0].available = false;
    world.is_all(&[(1, "no offering that the pool accepts is available now")], |world| {
        world.types[1].offerings[0].available = true;
    });
    world.types[1].offerings.clear();
    world.is_all(&[(1, "no offering is named")], |world| {
        world.types.remove(1);
    });
}

#[test]
fn types_that_are_for_other_pools() {
    let mut world = three();
    world.types[1].node_pools = Some(vec!["q".to_owned()]);
    world.types[2].node_pools = Some(vec!["p".to_owned()]);
    let look = |world: &World| {
        let pools = [world.pool.clone(), NodePool::named("q")];
        let snapshot = Snapshot::builder().pools(pools).build().expect("valid");
        let catalogs = Catalogs::shared(world.types.clone(), snapshot.pools()).expect("valid");
        PoolTypes::of(&snapshot, &catalogs, "p").expect("there is such a pool")
    };
    let there = look(&world);
    assert_eq!((there.type_count, there.remaining.len(), there.ruled_out.len()), (3, 2, 1));
    let group = &there.ruled_out[0];
    assert_eq!(group.types, ["medium"]);
    assert_eq!(group.obstacle.to_string(), "offered to other pools alone");
    world.types[1].node_pools = None;
    assert_eq!((look(&world).remaining.len(), look(&world).ruled_out), (3, Vec::new()));
}

#[test]
fn the_price_is_that_of_the_cheapest_offering_that_can_be_bought() {
    let mut gone = Offering::new("spot", "a", dollars(0.1));
    gone.available = false;
    let mut world = World::new(vec![machine("m", "a", 4).offering("spot", "b", dollars(0.2))]);
    world.types[0].offerings.push(gone);
    assert_eq!(world.look().remaining[0].cheapest_price, dollars(0.2));
    world.pool = world.pool.require(require(labels::CAPACITY_TYPE, &["on-demand"]));
    assert_eq!(world.look().remaining[0].cheapest_price, dollars(0.4));
}

#[test]
fn reservations_of_which_nothing_is_left() {
    let mut world = World::new(vec![machine("m", "a", 4)]);
    let offering = &mut world.types[0].offerings[0];
    *offering = Offering::new(labels::RESERVED, "a", Price::ZERO);
    offering.requirements.add("fake/reservation-id", Requirement::one_of(["r-1"]));
    offering.reservation_capacity = Some(1);
    assert_eq!(world.remaining(), ["m"]);
    world.types[0].offerings[0].reservation_capacity = Some(0);
    world.is_all(&[(1, "nothing is left of reservation r-1")], |world| {
        world.types[0].offerings[0].reservation_capacity = Some(1);
    });
    // A claim that is bound to the reservation and is no machine yet takes what there is.
    world.types[0].offerings[0].reservation_capacity = Some(1);
    let mut claim = NodeClaim::named("coming");
    claim.metadata.labels.insert(labels::NODE_POOL.to_owned(), "p".to_owned());
    claim.spec.requirements.push(require("fake/reservation-id", &["r-1"]));
    world.claims.push(claim);
    world.is_all(&[(1, "nothing is left of reservation r-1")], |world| world.claims.clear());
}

#[test]
fn daemons_and_the_system_leave_no_room() {
    let mut world = three();
    world.daemon = Some(daemon("2500m"));
    let text = "the daemons leave no room for a pod: cpu short by at least 500m";
    world.is_all(&[(1, text)], |world| world.daemon = None);

    // Each pod takes one of the pods that a machine may have.
    world.types[0].capacity = ResourceList::from_iter(
        [("cpu", 2), ("memory", 8 << 30), ("pods", 1)]
            .map(|(name, units)| (ResourceName::from(name), Quantity::from_units(units))),
    );
    world.daemon = Some(daemon("1"));
    let text = "the daemons leave no room for a pod: pods short by at least 1";
    world.is_all(&[(1, text)], |world| world.daemon = None);
    world.daemon = None;
    world.types[0].overhead.kube_reserved = ResourceList::from_iter([(ResourceName::Cpu, Quantity::from_units(3))]);
    let text = "the system leaves no room for a pod: cpu short by at least 1";
    world.is_all(&[(1, text)], |world| world.types[0].overhead.kube_reserved = ResourceList::new());
}

#[test]
fn limits_that_leave_no_room() {
    let mut world = three();
    world.pool = world.pool.limit("cpu", Quantity::from_units(10));
    world.is_all(&[(1, "limit of cpu: 0 of 10 used, the rest is too small")], |world| {
        world.pool.spec.limits = ResourceList::new();
    });
    let mut claim = NodeClaim::named("coming");
    claim.metadata.labels.insert(labels::NODE_POOL.to_owned(), "p".to_owned());
    claim.spec.requirements.push(require(labels::INSTANCE_TYPE, &["medium"]));
    world.claims.push(claim);
    assert_eq!(world.remaining(), ["small"]);
    let limit = &world.look().limits[0];
    assert_eq!((limit.used, limit.limit), (Quantity::from_units(8), Quantity::from_units(10)));
    assert!(matches!(world.look().ruled_out[0].obstacle, TypeObstacle::Limit { .. }));
}

#[test]
fn a_pool_of_which_no_node_is_made_still_says_what_it_could_launch() {
    let mut world = three();
    world.pool.spec.replicas = Some(2);
    let look = world.look();
    assert_eq!(look.remaining.len(), 3);
    assert_eq!(look.obstacle, Some(Obstacle::Static));
    let (snapshot, catalogs) = world.parts();
    let now: Timestamp = NOW.parse().expect("a time");
    let outlook = PoolOutlook::of(&snapshot, &catalogs, "p", now).expect("there is such a pool");
    assert_eq!((outlook.replicas, outlook.weight), (Some(2), 0));
    assert_eq!(PoolOutlook::of(&snapshot, &catalogs, "q", now), None);
}

#[test]
fn values_that_claims_must_keep_are_counted() {
    let mut world = three();
    let mut types = NodeSelectorRequirement::new(labels::INSTANCE_TYPE, Operator::Exists, Vec::<String>::new());
    types.min_values = Some(3);
    world.pool = world.pool.require(types);
    let count = |world: &World| world.look().min_values[0].clone();
    assert_eq!((count(&world).min_values, count(&world).available), (3, 3));
    world.pool = world.pool.require(require(labels::ZONE, &["b"]));
    assert_eq!((count(&world).min_values, count(&world).available), (3, 2));
}

/// A node of the pool that is up, with its claim.
fn managed(name: &str) -> (NodeClaim, karpenter_core::api::Node) {
    let labels =
        json!({"karpenter.sh/nodepool": "p", "karpenter.sh/registered": "true", "karpenter.sh/initialized": "true"});
    let claim = json!({"metadata": {"name": name, "labels": labels}, "status": {"providerID": name}});
    let node = json!({"metadata": {"name": name, "labels": labels}, "spec": {"providerID": name}});
    (read(claim), read(node))
}

#[test]
fn budgets_say_how_many_nodes_may_go_for_which_reason() {
    use DisruptionReason::{Drifted, Empty, Underutilized};
    let mut pool = NodePool::named("p");
    let mut drift_only = Budget::default();
    drift_only.nodes = "1".to_owned();
    drift_only.reasons = Some(vec![Drifted]);
    pool.spec.disruption.budgets = vec![drift_only];
    let (claims, nodes): (Vec<_>, Vec<_>) = ["x", "y", "z"].into_iter().map(managed).unzip();
    let snapshot = Snapshot::builder().pool(pool).claims(claims).nodes(nodes).build().expect("valid");
    let outlook =
        PoolOutlook::of(&snapshot, &Catalogs::new(), "p", NOW.parse().expect("a time")).expect("there is such a pool");
    let allowed: Vec<_> = outlook.budgets.iter().map(|budget| (budget.reason, budget.nodes)).collect();
    assert_eq!(allowed, [(Empty, 3), (Drifted, 1), (Underutilized, 3)]);
    assert_eq!(outlook.nodes.managed, 3);
}

/// Types of two zones, capacity types and architectures, some of which cannot be bought.
fn any_type(index: usize) -> impl Strategy<Value = InstanceType> {
    let offering = (any::<bool>(), any::<bool>(), prop::bool::weighted(0.7));
    (1_i64..5, any::<bool>(), prop::collection::vec(offering, 0..4)).prop_map(move |(cpu, is_arm, offerings)| {
        let mut out = InstanceType::named(format!("t{index}"), [("cpu", Quantity::from_units(cpu))]);
        out.requirements = Requirements::new();
        out.requirements.add(labels::INSTANCE_TYPE, Requirement::one_of([out.name.as_str()]));
        out.requirements.add(labels::ARCH, Requirement::one_of([if is_arm { "arm64" } else { "amd64" }]));
        for (is_spot, is_in_b, available) in offerings {
            let capacity_type = if is_spot { "spot" } else { "on-demand" };
            let mut offering = Offering::new(capacity_type, if is_in_b { "b" } else { "a" }, dollars(cpu as f64));
            offering.available = available;
            out.offerings.push(offering);
        }
        out
    })
}

fn any_world() -> impl Strategy<Value = World> {
    let types =
        prop::collection::vec(Just(()), 1..5).prop_flat_map(|units| (0..units.len()).map(any_type).collect::<Vec<_>>());
    let asks = (any::<bool>(), any::<bool>(), any::<bool>());
    (types, asks, prop::option::of(1_u32..5), prop::option::of(1_i64..5)).prop_map(
        |(types, asks, daemon_cpu, limit)| {
            let mut world = World::new(types);
            for (asks, key, value) in
                [(asks.0, labels::ZONE, "a"), (asks.1, labels::ARCH, "amd64"), (asks.2, labels::CAPACITY_TYPE, "spot")]
            {
                if asks {
                    world.pool = world.pool.require(require(key, &[value]));
                }
            }
            world.daemon = daemon_cpu.map(|cpu| daemon(&cpu.to_string()));
            if let Some(limit) = limit {
                world.pool = world.pool.limit("cpu", Quantity::from_units(limit));
            }
            world
        },
    )
}

proptest! {
    /// A type remains if and only if the planner makes a node of it for a pod that asks for it and needs next to nothing.
    #[test]
    fn what_remains_is_what_can_be_launched(world in any_world()) {
        let look = world.look();
        let named: BTreeSet<&String> = look.ruled_out.iter().flat_map(|group| &group.types).collect();
        prop_assert_eq!(named.len() + look.remaining.len(), world.types.len());
        prop_assert_eq!(look.type_count, world.types.len());
        for instance_type in &world.types {
            let mut world = world.clone();
            let pod = json!({"metadata": {"name": "p"},
                "spec": {"containers": [], "nodeSelector": {labels::INSTANCE_TYPE: instance_type.name}},
                "status": {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]}});
            world.pods.push(read(pod));
            let (snapshot, catalogs) = world.parts();
            let plan = Planner::default().plan(&snapshot, &catalogs);
            let is_left = look.remaining.iter().any(|left| left.name == instance_type.name);
            prop_assert_eq!(plan.unplaced().is_empty(), is_left, "{} {:?}", instance_type.name, plan.unplaced());
        }
    }
}
