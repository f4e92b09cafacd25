//! Random inputs for property tests (feature `proptest`).
//!
//! The vocabulary is small on purpose: few keys and values, so that requirements meet and clash, and few machine sizes,
//! so that pods sometimes fit and sometimes do not.

#![expect(clippy::missing_panics_doc, reason = "what the strategies expect of their own inputs always holds")]

mod manners;
mod storage;

use std::collections::BTreeMap;

pub use manners::APP;
use manners::manners;
use proptest::{collection::vec, option, prelude::*, sample::select};
use storage::{Disks, Mounted, mounted};

use crate::{
    CatalogError, Catalogs, InstanceType, Offering, Price, Quantity, Requirement, Requirements, ResourceList, Snapshot,
    Timestamp,
    api::{
        CsiNode, DaemonSet, Node, NodeClaim, NodePool, NodeSelectorRequirement, ObjectMeta, Operator, PersistentVolume,
        PersistentVolumeClaim, Pod, PodTemplate, StorageClass, Taint, TaintEffect, Toleration, Workload,
    },
    labels,
};

/// A label whose values only a few types know, as numbers.
pub const SIZE: &str = "example.com/size";
/// A label that only pools set.
pub const TEAM: &str = "team";
const ZONES: [&str; 3] = ["zone-a", "zone-b", "zone-c"];
const TAINT: &str = "dedicated";
const RESERVATION: &str = "example.com/reservation-id";
/// Reservations and how many machines are left of them.
const RESERVATIONS: [(&str, u32); 3] = [("r-none", 0), ("r-one", 1), ("r-two", 2)];

/// A planning problem, as the objects that it is made from.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct RandomProblem {
    /// The pools.
    pub pools: Vec<NodePool>,
    /// The instance types.
    pub types: Vec<InstanceType>,
    /// The daemonsets.
    pub daemonsets: Vec<DaemonSet>,
    /// The nodes, which no claim stands behind.
    pub nodes: Vec<Node>,
    /// Claims on their way: machines without nodes, and claims that are not machines yet.
    pub claims: Vec<NodeClaim>,
    /// The pods, pending and bound.
    pub pods: Vec<Pod>,
    /// The claims on volumes.
    pub volume_claims: Vec<PersistentVolumeClaim>,
    /// The volumes.
    pub volumes: Vec<PersistentVolume>,
    /// The storage classes.
    pub storage_classes: Vec<StorageClass>,
    /// What the storage drivers of nodes report.
    pub csi_nodes: Vec<CsiNode>,
}

impl RandomProblem {
    /// The snapshot of these objects.
    pub fn snapshot(&self) -> Snapshot {
        let mut builder =
            Snapshot::builder().pools(self.pools.clone()).nodes(self.nodes.clone()).claims(self.claims.clone());
        for daemonset in &self.daemonsets {
            builder = builder.daemonset(daemonset.clone());
        }
        builder
            .pods(self.pods.clone())
            .volume_claims(self.volume_claims.clone())
            .volumes(self.volumes.clone())
            .storage_classes(self.storage_classes.clone())
            .csi_nodes(self.csi_nodes.clone())
            .build()
            .expect("generated objects have names of their own")
    }

    /// The catalogs of its pools.
    ///
    /// # Errors
    /// If types were added that make no catalog.
    pub fn catalogs(&self) -> Result<Catalogs, CatalogError> {
        Catalogs::shared(self.types.clone(), &self.pools)
    }
}

/// Quantities of every notation.
pub fn quantity() -> impl Strategy<Value = Quantity> {
    let suffix = select(vec!["", "m", "u", "n", "k", "M", "G", "T", "Ki", "Mi", "Gi", "Ti", "e3", "e-3"]);
    (0..1_000_000_u32, 0..1000_u32, suffix)
        .prop_map(|(whole, fraction, suffix)| format!("{whole}.{fraction:03}{suffix}").parse().expect("a quantity"))
}

/// Values of labels: words, numbers, and numbers with zeros before them.
pub fn label_value() -> impl Strategy<Value = String> {
    prop_oneof![
        select(vec!["a", "b", "c", "x1"]).prop_map(str::to_owned),
        (0..12_i64).prop_map(|n| n.to_string()),
        Just("07".to_owned()),
        Just(i64::MAX.to_string()),
    ]
}

/// Requirements of every operator.
pub fn requirement() -> impl Strategy<Value = Requirement> {
    expression("k").prop_map(|e| Requirement::from(&e))
}

/// Expressions of every operator on one key.
pub fn expression(key: &'static str) -> impl Strategy<Value = NodeSelectorRequirement> {
    let bound = prop_oneof![0..12_i64, Just(i64::MAX), Just(i64::MAX - 1)].prop_map(|n| n.to_string());
    prop_oneof![
        vec(label_value(), 1..4).prop_map(move |v| NodeSelectorRequirement::new(key, Operator::In, v)),
        vec(label_value(), 1..4).prop_map(move |v| NodeSelectorRequirement::new(key, Operator::NotIn, v)),
        select(vec![Operator::Exists, Operator::DoesNotExist])
            .prop_map(move |o| NodeSelectorRequirement::new(key, o, [""; 0])),
        (select(vec![Operator::Gt, Operator::Lt, Operator::Gte, Operator::Lte]), bound)
            .prop_map(move |(o, bound)| NodeSelectorRequirement::new(key, o, [bound])),
    ]
}

/// Expressions that nodes of a [`problem`] may meet.
fn node_expression() -> impl Strategy<Value = NodeSelectorRequirement> {
    let set = select(vec![Operator::In, Operator::NotIn]);
    let presence = select(vec![Operator::Exists, Operator::DoesNotExist]);
    let keys = select(vec![labels::ZONE, labels::ARCH, labels::CAPACITY_TYPE, SIZE, TEAM, "nobody.example.com/has"]);
    prop_oneof![
        4 => (set.clone(), proptest::sample::subsequence(ZONES.to_vec(), 1..3))
            .prop_map(|(o, v)| NodeSelectorRequirement::new(labels::ZONE, o, v)),
        2 => (set.clone(), select(vec!["amd64", "arm64"])).prop_map(|(o, v)| NodeSelectorRequirement::new(labels::ARCH, o, [v])),
        2 => (set.clone(), select(vec!["spot", "on-demand"]))
            .prop_map(|(o, v)| NodeSelectorRequirement::new(labels::CAPACITY_TYPE, o, [v])),
        2 => (set, proptest::sample::subsequence(vec!["x", "y", "z"], 1..3)).prop_map(|(o, v)| NodeSelectorRequirement::new(TEAM, o, v)),
        2 => (select(vec![Operator::Gt, Operator::Lt]), 1..9_i64)
            .prop_map(|(o, n)| NodeSelectorRequirement::new(SIZE, o, [n.to_string()])),
        1 => Just(NodeSelectorRequirement::new(TEAM, Operator::Exists, [""; 0])),
        1 => (presence, keys).prop_map(|(o, key)| NodeSelectorRequirement::new(key, o, [""; 0])),
    ]
}

/// Pending pods that ask for a node in every way that planning handles. The names are all `pod`.
pub fn pod() -> impl Strategy<Value = Pod> {
    let selector =
        option::weighted(0.2, (select(vec![labels::ZONE, TEAM]), select(vec!["zone-a", "zone-b", "x", "y"])));
    let terms = prop_oneof![3 => Just(Vec::new()), 1 => vec(vec(node_expression(), 1..3), 1..3)];
    let requests =
        (select(vec![50, 300, 1000, 2500, 9000]), select(vec![64, 1000, 3000, 20_000]), prop::bool::weighted(0.1));
    let flags = (prop::bool::weighted(0.4), option::weighted(0.15, 80..82_u16));
    (requests, selector, terms, flags).prop_map(|((cpu, memory, gpu), selector, terms, (tolerant, port))| {
        let mut builder = Pod::named("pod").cpu(&format!("{cpu}m")).memory(&format!("{memory}Mi"));
        if gpu {
            builder = builder.request("example.com/gpu", "1");
        }
        if let Some(port) = port {
            builder = builder.host_port(port);
        }
        if let Some((key, value)) = selector {
            builder = builder.node_selector(key, value);
        }
        for term in terms {
            builder = builder.node_affinity(term);
        }
        if tolerant {
            builder = builder.toleration(Toleration::of_key(TAINT));
        }
        Workload::from(builder).into_pods().expect("valid quantities").remove(0)
    })
}

/// Pools with requirements, labels, taints, weights and limits. The names are all `pool`.
pub fn node_pool() -> impl Strategy<Value = NodePool> {
    let effect = select(vec![TaintEffect::NoSchedule, TaintEffect::PreferNoSchedule, TaintEffect::NoExecute]);
    let limit = option::weighted(0.2, (select(vec!["cpu", "memory", "nodes"]), 0..5_i64));
    let flexible = select(vec![SIZE, labels::INSTANCE_TYPE, labels::ARCH]);
    let min_values = option::weighted(0.15, (flexible, 1..4_u32));
    let label = option::weighted(0.3, select(vec![(TEAM, "x"), (TEAM, "y"), (labels::ARCH, "arm64")]));
    let requirements = (vec(node_expression(), 0..3), min_values);
    (requirements, label, option::weighted(0.3, effect), option::of(1..4_u32), limit).prop_map(
        |((requirements, min_values), label, taint, weight, limit)| {
            let mut pool = NodePool::named("pool");
            pool.spec.weight = weight;
            let template = &mut pool.spec.template;
            template.spec.requirements = requirements;
            if let Some((key, count)) = min_values {
                let mut several = NodeSelectorRequirement::new(key, Operator::Exists, [""; 0]);
                several.min_values = Some(count);
                template.spec.requirements.push(several);
            }
            template.spec.taints.extend(taint.map(|effect| Taint::new(TAINT, "", effect)));
            template.metadata.labels.extend(label.map(|(k, v)| (k.to_owned(), v.to_owned())));
            match limit {
                Some(("memory", n)) => pool.limit("memory", Quantity::from_bytes(n * (16 << 30))),
                Some(("cpu", n)) => pool.limit("cpu", Quantity::from_units(n * 8)),
                Some((resource, n)) => pool.limit(resource, Quantity::from_units(n)),
                None => pool,
            }
        },
    )
}

/// Instance types with up to four offerings. The names are all `type`.
pub fn instance_type() -> impl Strategy<Value = InstanceType> {
    let size = select(vec![1_u32, 2, 4, 8, 16]);
    let offering = (select(ZONES.to_vec()), select(vec!["spot", "on-demand"]), 1..40_u32, prop::bool::weighted(0.9));
    let details = (select(vec!["amd64", "arm64"]), prop::bool::ANY, prop::bool::weighted(0.2), 1..5_i64);
    (size, details, vec(offering, 0..5)).prop_map(|(size, (arch, is_labelled, has_gpu, ratio), offerings)| {
        let cpu = i64::from(size);
        let mut out = InstanceType {
            name: "type".to_owned(),
            capacity: ResourceList::from_iter([
                ("cpu", Quantity::from_units(cpu)),
                ("memory", Quantity::from_bytes((cpu * ratio) << 30)),
                ("pods", Quantity::from_units(4 + cpu)),
            ]),
            ..InstanceType::default()
        };
        out.requirements.add(labels::ARCH, Requirement::one_of([arch]));
        if is_labelled {
            out.requirements.add(SIZE, Requirement::one_of([size.to_string()]));
        }
        if has_gpu {
            out.capacity.insert("example.com/gpu".into(), Quantity::from_units(1));
        }
        out.overhead.kube_reserved.insert("cpu".into(), Quantity::from_milli(100));
        let offering = |(zone, capacity_type, cents, available)| {
            let price = Price::per_hour(f64::from(size) * f64::from(cents) / 100.0).expect("not below zero");
            Offering { available, ..Offering::new(capacity_type, zone, price) }
        };
        out.offerings = offerings.into_iter().map(offering).collect();
        out
    })
}

fn node() -> impl Strategy<Value = Node> {
    let team = option::weighted(0.3, select(vec!["x", "y"]));
    let flags = (prop::bool::weighted(0.2), prop::bool::weighted(0.1), prop::bool::weighted(0.1));
    (select(ZONES.to_vec()), select(vec!["amd64", "arm64"]), team, flags, 1..9_i64).prop_map(
        |(zone, arch, team, (is_tainted, is_cordoned, is_deleting), cpu)| {
            let mut node = Node::default();
            let mut set = |key: &str, value: &str| node.metadata.labels.insert(key.to_owned(), value.to_owned());
            set(labels::ZONE, zone);
            set(labels::ARCH, arch);
            if let Some(team) = team {
                set(TEAM, team);
            }
            if is_tainted {
                node.spec.taints.push(Taint::new(TAINT, "", TaintEffect::NoSchedule));
            }
            node.spec.unschedulable = is_cordoned;
            node.metadata.deletion_timestamp = is_deleting.then_some(Timestamp::from_millis(0));
            node.status.allocatable = ResourceList::from_iter([
                ("cpu", Quantity::from_units(cpu)),
                ("memory", Quantity::from_bytes(cpu << 31)),
                ("pods", Quantity::from_units(3)),
            ]);
            node.status.capacity = node.status.allocatable.clone();
            node
        },
    )
}

fn daemonset() -> impl Strategy<Value = DaemonSet> {
    pod().prop_map(|pod| {
        let mut spec = pod.spec;
        spec.containers[0].ports.retain(|port| port.host_port == 80);
        spec.containers[0].resources.requests =
            ResourceList::from_iter([("cpu", Quantity::from_milli(100)), ("memory", Quantity::from_bytes(64 << 20))]);
        let mut daemonset = DaemonSet::default();
        daemonset.spec.template = PodTemplate { metadata: ObjectMeta::default(), spec };
        daemonset
    })
}

/// Problems of up to `pods` pods, some of which run on nodes already, with everything that planning handles: rules
/// about neighbours, wishes, volumes and reservations. Mostly there are machines for the pods.
pub fn problem(pods: usize) -> impl Strategy<Value = RandomProblem> {
    let small = select(vec![200, 700])
        .prop_map(|cpu| Pod::named("pod").cpu(&format!("{cpu}m")).memory("256Mi"))
        .prop_map(|builder| Workload::from(builder).into_pods().expect("valid quantities").remove(0));
    let pod = (prop_oneof![3 => small.boxed(), 1 => pod().boxed()], manners()).prop_map(|(mut pod, manners)| {
        manners.apply(&mut pod);
        pod
    });
    let pool = prop_oneof![2 => Just(NodePool::named("pool")).boxed(), 1 => node_pool().boxed()];
    let machines = prop_oneof![1 => machine_everywhere().boxed(), 1 => instance_type().boxed()];
    let parts = problem_of(pods, (vec(pool, 1..4), vec(machines, 1..6)), pod.boxed());
    let limits = vec(option::weighted(0.4, 0..3_u32), 3);
    let domains = vec(manners::node_domains(), 3);
    let reservations = vec((any::<prop::sample::Index>(), select(ZONES.to_vec()), select(RESERVATIONS.to_vec())), 0..3);
    (parts, vec(mounted(), pods), limits, domains, reservations).prop_map(
        |(mut problem, mut mounted, limits, domains, reservations)| {
            problem.place(&domains);
            problem.mount(&mut mounted, &limits);
            for (instance_type, zone, (id, count)) in reservations {
                reserve(&mut problem.types, instance_type, zone, id, count);
            }
            problem
        },
    )
}

/// Problems of up to `pods` pods, some of which run on nodes already, of pods that look at nothing but their nodes.
pub fn plain_problem(pods: usize) -> impl Strategy<Value = RandomProblem> {
    problem_of(pods, (vec(node_pool(), 0..4), vec(instance_type(), 0..7)), pod().boxed())
}

/// Problems of these pools, types and pods.
fn problem_of(
    pods: usize,
    supply: impl Strategy<Value = (Vec<NodePool>, Vec<InstanceType>)>,
    pod: BoxedStrategy<Pod>,
) -> impl Strategy<Value = RandomProblem> {
    let copies = (pod, 1..4_usize, option::weighted(0.2, 0..3_usize)).prop_map(|(mut pod, copies, node)| {
        if let Some(node) = node {
            pod.spec.node_name = format!("node-{node}");
            pod.status.conditions.clear();
        }
        vec![pod; copies]
    });
    let pods = vec(copies, 1..=pods.div_ceil(2))
        .prop_map(move |groups| groups.into_iter().flatten().take(pods).collect::<Vec<_>>());
    let claims = vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), any::<bool>()), 0..3);
    let nodes = (vec(node(), 0..3), claims);
    (supply, vec(daemonset(), 0..3), nodes, pods).prop_map(
        |((mut pools, mut types), mut daemonsets, (mut nodes, claims), mut pods)| {
            number(&mut pools, |p| &mut p.metadata.name, "pool");
            number(&mut nodes, |n| &mut n.metadata.name, "node");
            number(&mut pods, |p| &mut p.metadata.name, "pod");
            number(&mut daemonsets, |d| &mut d.metadata.name, "daemonset");
            number(&mut daemonsets, |d| &mut d.metadata.uid, "daemonset");
            number(&mut types, |t| &mut t.name, "type");
            for instance_type in &mut types {
                let name = instance_type.name.clone();
                instance_type.requirements.add(labels::INSTANCE_TYPE, Requirement::one_of([name]));
            }
            let is_possible = |_: &_| !pools.is_empty() && !types.is_empty();
            let claims = claims.into_iter().enumerate().filter(is_possible);
            let claims = claims.map(|(i, (pool, instance_type, is_launched))| {
                claim(i, pool.get(&pools), instance_type.get(&types), is_launched)
            });
            let claims = claims.collect();
            RandomProblem { pools, types, daemonsets, nodes, claims, pods, ..RandomProblem::default() }
        },
    )
}

impl RandomProblem {
    /// Gives the nodes other domains.
    fn place(&mut self, domains: &[Vec<(&'static str, &'static str)>]) {
        for (node, domains) in self.nodes.iter_mut().zip(domains) {
            node.metadata.labels.remove(labels::ZONE);
            node.metadata.labels.extend(domains.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())));
        }
    }

    /// Gives the pods volumes: pods that are alike have like ones.
    fn mount(&mut self, mounted: &mut [Option<Mounted>], limits: &[Option<u32>]) {
        for i in 1..self.pods.len() {
            if self.pods[i].spec == self.pods[i - 1].spec {
                mounted[i] = mounted[i - 1];
            }
        }
        let limits = &limits[..self.nodes.len().min(limits.len())];
        let disks = Disks::new(&mut self.pods, mounted, limits);
        (self.volume_claims, self.volumes) = (disks.volume_claims, disks.volumes);
        (self.storage_classes, self.csi_nodes) = (disks.storage_classes, disks.csi_nodes);
    }
}

/// Types that are sold in all zones, on the spot market and on demand. The names are all `type`.
fn machine_everywhere() -> impl Strategy<Value = InstanceType> {
    (select(vec![2_u32, 4, 8]), 1..40_u32).prop_map(|(size, cents)| {
        let cpu = i64::from(size);
        let capacity = [("cpu", Quantity::from_units(cpu)), ("memory", Quantity::from_bytes(cpu << 31))];
        let mut out = InstanceType::named("type", capacity);
        for (i, zone) in (0_u32..).zip(ZONES) {
            for (j, capacity_type) in (0_u32..).zip(["spot", "on-demand"]) {
                let price = f64::from(size) * f64::from(cents + i + 5 * j) / 100.0;
                out = out.offering(capacity_type, zone, Price::per_hour(price).expect("not below zero"));
            }
        }
        out.requirements = Requirements::new();
        out.requirements.add(labels::ARCH, Requirement::one_of(["amd64"]));
        out
    })
}

/// Reserves machines of a type.
fn reserve(types: &mut [InstanceType], index: prop::sample::Index, zone: &str, id: &str, count: u32) {
    let instance_type = index.get_mut(types);
    let mut offering = Offering::new(labels::RESERVED, zone, Price::per_hour(0.001).expect("not below zero"));
    offering.requirements.add(RESERVATION, Requirement::one_of([id]));
    offering.reservation_capacity = Some(count);
    let is_same = |o: &Offering| o.label(RESERVATION) == id && o.label(labels::ZONE) == zone;
    if !instance_type.offerings.iter().any(is_same) {
        instance_type.offerings.push(offering);
    }
}

/// A claim that is a machine of this type without a node yet, or that will become one.
fn claim(number: usize, pool: &NodePool, instance_type: &InstanceType, is_launched: bool) -> NodeClaim {
    let mut claim = NodeClaim::named(format!("claim-{number}"));
    claim.metadata.labels.clone_from(&pool.spec.template.metadata.labels);
    claim.metadata.labels.insert(labels::NODE_POOL.to_owned(), pool.name().to_owned());
    claim.spec.taints.clone_from(&pool.spec.template.spec.taints);
    if !is_launched {
        let name = instance_type.name.clone();
        claim.spec.requirements.push(NodeSelectorRequirement::new(labels::INSTANCE_TYPE, Operator::In, [name]));
        return claim;
    }
    let offering = instance_type.offerings.iter().flat_map(|o| o.requirements.iter()).take(2);
    for (key, requirement) in instance_type.requirements.iter().chain(offering) {
        let value = requirement.any_value().map(|v| v.to_string()).unwrap_or_default();
        claim.metadata.labels.entry(key.to_owned()).or_insert(value);
    }
    claim.status.provider_id = format!("id-{number}");
    claim.status.capacity = instance_type.capacity.clone();
    claim.status.allocatable = instance_type.allocatable();
    claim
}

fn number<T>(items: &mut [T], name: fn(&mut T) -> &mut String, prefix: &str) {
    for (i, item) in items.iter_mut().enumerate() {
        *name(item) = format!("{prefix}-{i}");
    }
}

/// The labels of nodes, for those who check requirements against them.
pub fn node_labels() -> impl Strategy<Value = BTreeMap<String, String>> {
    let key = select(vec!["k", "l"]).prop_map(str::to_owned);
    proptest::collection::btree_map(key, label_value(), 0..3)
}
