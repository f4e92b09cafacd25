//! What holds of every plan, on random problems: the same input in any order gives the same plan, every pod comes out
//! exactly once, and a pod is refused only if trying everything finds no place for it either.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use karpenter::{
    Catalogs, InstanceType, Plan, Planner, Price, Quantity, Reason, Requirement, ResourceList, Snapshot,
    api::{
        NodeClaim, NodePool, NodeSelectorRequirement, ObjectKey, Operator, Pod, PodSpec, Taint, TaintEffect, Toleration,
    },
    cluster::Place,
    fake::check,
    schedule::StopFlag,
    strategies::{self, RandomProblem},
};
use proptest::prelude::*;

#[test]
fn a_plan_that_is_stopped_at_once_places_nothing() {
    let snapshot = Snapshot::builder().pool(NodePool::named("p")).pods(Pod::named("a").replicas(3)).build().unwrap();
    let types = vec![InstanceType::named("t", [("cpu", Quantity::from_units(4))]).offering(
        "on-demand",
        "zone-a",
        Price::per_hour(0.1).unwrap(),
    )];
    let catalogs = Catalogs::shared(types, snapshot.pools()).unwrap();
    let stop = StopFlag::default();
    stop.stop();
    let plan = Planner::default().stopped_by(&stop).plan(&snapshot, &catalogs);
    assert!(!plan.is_complete() && plan.claims().is_empty());
    assert_eq!(plan.unplaced().values().collect::<Vec<_>>(), [&Reason::Stopped; 3]);
}

fn plan(problem: &RandomProblem) -> Plan {
    Planner::default().plan(&problem.snapshot(), &problem.catalogs().expect("a valid catalog"))
}

fn on_threads<T: Send>(count: usize, run: impl FnOnce() -> T + Send) -> T {
    rayon::ThreadPoolBuilder::new().num_threads(count).build().expect("threads can be started").install(run)
}

proptest! {
    #[test]
    fn the_order_of_the_input_changes_nothing(mut problem in strategies::problem(12), seed in any::<u64>()) {
        let first = plan(&problem);
        prop_assert_eq!(&first, &plan(&problem));
        shuffle(&mut problem.pods, seed);
        shuffle(&mut problem.pools, seed);
        shuffle(&mut problem.types, seed);
        shuffle(&mut problem.nodes, seed);
        shuffle(&mut problem.daemonsets, seed);
        shuffle(&mut problem.claims, seed);
        shuffle(&mut problem.volume_claims, seed);
        shuffle(&mut problem.volumes, seed);
        shuffle(&mut problem.storage_classes, seed);
        shuffle(&mut problem.csi_nodes, seed);
        prop_assert_eq!(first, plan(&problem));
    }

    #[test]
    fn a_pod_that_has_ended_changes_nothing(mut problem in strategies::problem(12)) {
        let before = plan(&problem);
        let mut ended = Pod::default();
        (ended.metadata.name, ended.metadata.namespace) = ("ended".to_owned(), "elsewhere".to_owned());
        ended.status.phase = "Succeeded".to_owned();
        problem.pods.push(ended);
        prop_assert_eq!(before, plan(&problem));
    }

    #[test]
    fn the_number_of_threads_changes_nothing(problem in strategies::problem(12)) {
        prop_assert_eq!(on_threads(1, || plan(&problem)), on_threads(4, || plan(&problem)));
    }

    #[test]
    fn a_plan_that_is_stopped_is_valid(problem in strategies::problem(12), looks in 0_usize..500) {
        let (snapshot, catalogs) = (problem.snapshot(), problem.catalogs().expect("a valid catalog"));
        let stop = StopFlag::after_looks(looks);
        // On one thread it is stopped at the same point each time.
        let stopped = on_threads(1, || Planner::default().stopped_by(&stop).plan(&snapshot, &catalogs));
        prop_assert_eq!(check(&snapshot, &catalogs, &stopped), []);
        if stopped.is_complete() {
            prop_assert_eq!(stopped, Planner::default().plan(&snapshot, &catalogs));
        }
    }

    #[test]
    fn every_pod_comes_out_once(problem in strategies::problem(12)) {
        let plan = plan(&problem);
        let mut out: Vec<ObjectKey> = plan.claims().iter().flat_map(|c| &c.pods).cloned().collect();
        out.extend(plan.existing().values().flatten().cloned());
        out.extend(plan.unplaced().keys().cloned());
        out.sort();
        let snapshot = problem.snapshot();
        prop_assert_eq!(out, snapshot.pending().map(Pod::key).collect::<Vec<_>>());
    }

    #[test]
    fn a_pod_is_refused_only_if_nothing_would_take_it(problem in strategies::plain_problem(10)) {
        let plan = plan(&problem);
        let snapshot = problem.snapshot();
        for pod in snapshot.pending() {
            let key = pod.key();
            let is_placed = !plan.unplaced().contains_key(&key);
            // A placed pod has taken its room already; only for one that is refused must there be none left.
            let room = if is_placed { Room::before(&snapshot, &problem) } else { Room::after(&snapshot, &plan, &problem) };
            // This oracle looks at one type at a time, so it cannot say that a pool has too few of them.
            let asks_for_several = |p: &NodePool| p.spec.template.spec.requirements.iter().any(|r| r.min_values.is_some());
            if !is_placed && problem.pools.iter().any(asks_for_several) {
                continue;
            }
            prop_assert_eq!(is_placed, is_placeable(&problem, snapshot.places(), pod, &room), "{}: {}", key, plan.why(&key.to_string()));
        }
    }

    #[test]
    fn a_further_instance_type_never_costs_a_place(mut problem in strategies::plain_problem(8), more in strategies::instance_type()) {
        // Under limits a larger machine may take what several smaller ones would have shared.
        problem.pools.iter_mut().for_each(|p| p.spec.limits = ResourceList::new());
        // A label that becomes well known would narrow who can have it.
        problem.types.push(type_that_names_every_label());
        let before: BTreeSet<_> = plan(&problem).unplaced().keys().cloned().collect();
        let mut richer = problem.clone();
        richer.types.push(more);
        let after: BTreeSet<_> = plan(&richer).unplaced().keys().cloned().collect();
        prop_assert!(after.is_subset(&before), "{after:?} is not within {before:?}");
    }
}

fn type_that_names_every_label() -> InstanceType {
    let mut out = InstanceType::named("names-all", [("cpu", Quantity::ZERO)]);
    for key in [strategies::SIZE, "topology.kubernetes.io/zone", "karpenter.sh/capacity-type"] {
        out.requirements.add(key, Requirement::one_of(["1"]));
    }
    out
}

/// The same disorder for the same seed.
fn shuffle<T>(items: &mut [T], seed: u64) {
    let mut state = seed | 1;
    for i in (1..items.len()).rev() {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        items.swap(i, usize::try_from(state >> 33).expect("31 bits") % (i + 1));
    }
}

/// What existing nodes and limits leave: cpu in thousandths, memory in bytes and pods by node; amounts by pool and
/// resource.
struct Room {
    places: BTreeMap<String, BTreeMap<String, Quantity>>,
    limits: BTreeMap<(String, String), Quantity>,
    /// The host ports that are taken, by place.
    ports: BTreeMap<String, Vec<u16>>,
}

impl Room {
    fn before(snapshot: &Snapshot, problem: &RandomProblem) -> Self {
        let free = |p: &Place| p.free.iter().map(|(n, q)| (n.to_string(), q)).collect();
        let places = snapshot.places().iter().map(|p| (p.name.clone(), free(p))).collect();
        let mut limits = BTreeMap::new();
        for (pool, (name, limit)) in snapshot.pools().iter().flat_map(|p| p.spec.limits.iter().map(move |l| (p, l))) {
            let of_pool = |c: &&NodeClaim| c.metadata.labels["karpenter.sh/nodepool"] == pool.name();
            let mut left = limit;
            for claim in problem.claims.iter().filter(of_pool) {
                let name_of_type = match claim.spec.requirements.first() {
                    Some(requirement) => &requirement.values[0],
                    None => &claim.metadata.labels["node.kubernetes.io/instance-type"],
                };
                let instance_type = problem.types.iter().find(|t| t.name == *name_of_type).expect("a known type");
                left = left.saturating_sub(size(instance_type, name.as_str()));
            }
            limits.insert((pool.name().to_owned(), name.to_string()), left);
        }
        let taken = |p: &Place| p.host_ports.iter().map(|port| port.port).collect();
        let ports = snapshot.places().iter().map(|p| (p.name.clone(), taken(p))).collect();
        Self { places, limits, ports }
    }

    fn after(snapshot: &Snapshot, plan: &Plan, problem: &RandomProblem) -> Self {
        let mut room = Self::before(snapshot, problem);
        let pod_of = |key| snapshot.pod(key).expect("a known pod");
        for (node, pods) in plan.existing() {
            for (name, quantity) in pods.iter().flat_map(|key| requests(&pod_of(key).spec)) {
                let free = room.places.get_mut(node).expect("a known node").entry(name).or_default();
                *free = free.saturating_sub(quantity);
            }
        }
        for (node, pods) in plan.existing() {
            let wanted = pods.iter().flat_map(|key| ports(&pod_of(key).spec));
            room.ports.entry(node.clone()).or_default().extend(wanted);
        }
        for ((pool, resource), left) in &mut room.limits {
            for claim in plan.claims().iter().filter(|c| c.node_pool == *pool) {
                let named = problem.types.iter().filter(|t| claim.instance_types.contains(&t.name));
                *left = left.saturating_sub(named.map(|t| size(t, resource)).max().expect("a claim names types"));
            }
        }
        room
    }
}

/// What a node of this type counts for a limit.
fn size(instance_type: &InstanceType, resource: &str) -> Quantity {
    if resource == "nodes" { Quantity::from_units(1) } else { instance_type.capacity.get(resource).unwrap_or_default() }
}

fn is_placeable(problem: &RandomProblem, places: &[Arc<Place>], pod: &Pod, room: &Room) -> bool {
    let on_place = |place: &Arc<Place>| {
        !place.is_deleting
            && accepts(&pod.spec, &place.labels)
            && tolerates(&pod.spec, &place.taints)
            && fits(&requests(&pod.spec), &room.places[&place.name])
            && !ports(&pod.spec).iter().any(|port| room.ports[&place.name].contains(port))
    };
    places.iter().any(on_place) || problem.pools.iter().any(|pool| is_placeable_in(problem, pod, pool, room))
}

/// Tries every type, offering and value of the labels that are left open.
fn is_placeable_in(problem: &RandomProblem, pod: &Pod, pool: &NodePool, room: &Room) -> bool {
    let taints = &pool.spec.template.spec.taints;
    if !tolerates(&pod.spec, taints) {
        return false;
    }
    let is_within_limits = |t: &InstanceType| {
        pool.spec.limits.iter().all(|(name, _)| {
            let left = room.limits[&(pool.name().to_owned(), name.to_string())];
            size(t, name.as_str()) <= left
        })
    };
    problem.types.iter().filter(|t| is_within_limits(t)).any(|t| {
        (0..t.offerings.len()).filter(|&i| t.offerings[i].available).any(|i| {
            let nodes = possible_labels(problem, pool, t, i);
            let (mut needed, mut taken) = (requests(&pod.spec), Vec::new());
            // A daemon that may come is reckoned with.
            for daemon in &problem.daemonsets {
                let spec = &daemon.spec.template.spec;
                if tolerates(spec, taints) && nodes.iter().any(|labels| accepts(spec, labels)) {
                    taken.extend(ports(spec));
                    for (name, quantity) in requests(spec) {
                        let sum = needed.entry(name).or_default();
                        *sum = sum.saturating_add(quantity);
                    }
                }
            }
            let allocatable = allocatable(t);
            let is_free = !ports(&pod.spec).iter().any(|port| taken.contains(port));
            is_free && fits(&needed, &allocatable) && nodes.iter().any(|labels| accepts(&pod.spec, labels))
        })
    })
}

/// All sets of labels that a node of the pool may have when it is bought by this offering.
fn possible_labels(
    problem: &RandomProblem,
    pool: &NodePool,
    t: &InstanceType,
    offering: usize,
) -> Vec<BTreeMap<String, String>> {
    let template = &pool.spec.template;
    let mut labels = BTreeMap::new();
    for (key, requirement) in t.requirements.iter().chain(t.offerings[offering].requirements.iter()) {
        labels.insert(key.to_owned(), requirement.values().next().expect("one value").to_owned());
    }
    let named = |t: &InstanceType| {
        t.requirements
            .iter()
            .chain(t.offerings.iter().flat_map(|o| o.requirements.iter()))
            .map(|(k, _)| k.to_owned())
            .collect::<Vec<_>>()
    };
    let well_known: BTreeSet<String> = problem.types.iter().flat_map(named).collect();
    let own = |key: &str| template.spec.requirements.iter().filter(move |e| e.key == key).collect::<Vec<_>>();
    for (key, value) in &template.metadata.labels {
        if labels.get(key).is_some_and(|v| v != value) {
            return Vec::new();
        }
        labels.insert(key.clone(), value.clone());
    }
    let mut out = vec![labels];
    for key in template.spec.requirements.iter().map(|e| e.key.as_str()).collect::<BTreeSet<_>>() {
        let is_settled = well_known.contains(key) || template.metadata.labels.contains_key(key);
        let choices: Vec<Option<&str>> = if is_settled {
            vec![None]
        } else {
            let words = ["x", "y", "z", "zone-a", "zone-b", "q"];
            // Every number between two bounds that the strategies make, and one below and above all of them.
            let numbers = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "100"];
            [None].into_iter().chain(words.into_iter().chain(numbers).map(Some)).collect()
        };
        let with = |labels: &BTreeMap<String, String>, choice: Option<&str>| {
            let mut labels = labels.clone();
            labels.extend(choice.map(|v| (key.to_owned(), v.to_owned())));
            own(key).iter().all(|e| holds(e, labels.get(key).map(String::as_str))).then_some(labels)
        };
        out = out.iter().flat_map(|labels| choices.iter().filter_map(|c| with(labels, *c))).collect();
    }
    out
}

fn allocatable(t: &InstanceType) -> BTreeMap<String, Quantity> {
    let mut out: BTreeMap<String, Quantity> = t.capacity.iter().map(|(n, q)| (n.to_string(), q)).collect();
    for (name, quantity) in t.overhead.kube_reserved.iter() {
        let left = out.entry(name.to_string()).or_default();
        *left = left.saturating_sub(quantity);
    }
    out
}

fn requests(spec: &PodSpec) -> BTreeMap<String, Quantity> {
    let mut out: BTreeMap<String, Quantity> =
        spec.containers[0].resources.requests.iter().map(|(n, q)| (n.to_string(), q)).collect();
    out.insert("pods".to_owned(), Quantity::from_units(1));
    out
}

/// The strategies make TCP ports on all addresses only.
fn ports(spec: &PodSpec) -> Vec<u16> {
    spec.containers.iter().flat_map(|c| &c.ports).map(|p| p.host_port).collect()
}

fn fits(needed: &BTreeMap<String, Quantity>, free: &BTreeMap<String, Quantity>) -> bool {
    needed.iter().all(|(name, quantity)| *quantity <= free.get(name).copied().unwrap_or_default())
}

fn accepts(spec: &PodSpec, labels: &BTreeMap<String, String>) -> bool {
    let terms = spec.affinity.node_affinity.required.as_ref().map(|r| &r.node_selector_terms);
    let holds_here = |e: &NodeSelectorRequirement| holds(e, labels.get(&e.key).map(String::as_str));
    spec.node_selector.iter().all(|(k, v)| labels.get(k) == Some(v))
        && terms.is_none_or(|terms| {
            terms.iter().any(|t| !t.match_expressions.is_empty() && t.match_expressions.iter().all(holds_here))
        })
}

fn holds(expression: &NodeSelectorRequirement, value: Option<&str>) -> bool {
    let number = |text: &str| text.parse::<i64>().ok();
    let bound = || number(&expression.values[0]).expect("a bound");
    match expression.operator {
        Operator::In => value.is_some_and(|v| expression.values.iter().any(|x| x == v)),
        Operator::NotIn => value.is_none_or(|v| !expression.values.iter().any(|x| x == v)),
        Operator::Exists => value.is_some(),
        Operator::DoesNotExist => value.is_none(),
        Operator::Gt => value.and_then(number).is_some_and(|n| n > bound()),
        Operator::Lt => value.and_then(number).is_some_and(|n| n < bound()),
        _ => panic!("an operator that the strategies do not make"),
    }
}

fn tolerates(spec: &PodSpec, taints: &[Taint]) -> bool {
    let lets_pass = |t: &Toleration, taint: &Taint| t.key == taint.key;
    let hard = taints.iter().filter(|t| t.effect != TaintEffect::PreferNoSchedule);
    hard.into_iter().all(|taint| spec.tolerations.iter().any(|t| lets_pass(t, taint)))
}
