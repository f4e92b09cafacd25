//! How pods share the room that there is.

use karpenter_core::{
    Catalogs, InstanceType, Plan, Planner, Price, Quantity, Requirement, Snapshot, SnapshotBuilder,
    api::{Node, NodePool, Pod, PodBuilder, TaintEffect, Workload},
    labels,
};
use serde_json::{Value, json};

/// A node with so many CPUs.
fn node(name: &str, cpu: &str) -> Node {
    let node = json!({"metadata": {"name": name}, "status": {"allocatable": {"cpu": cpu, "pods": "110"}}});
    serde_json::from_value(node).expect("a node")
}

fn pods(name: &str, count: u32, cpu: &str) -> PodBuilder {
    Pod::named(name).cpu(cpu).replicas(count)
}

fn plan(cluster: SnapshotBuilder) -> Plan {
    let capacity = [("cpu", Quantity::from_units(4)), ("pods", Quantity::from_units(110))];
    plan_with(cluster, [(InstanceType::named("m", capacity), 0.2)])
}

/// A plan with these machines, which cost so much, in zone a.
fn plan_with<const N: usize>(cluster: SnapshotBuilder, machines: [(InstanceType, f64); N]) -> Plan {
    let price = |dollars| Price::per_hour(dollars).expect("not below zero");
    let machines = machines.map(|(machine, dollars)| machine.offering("on-demand", "a", price(dollars)));
    let snapshot = cluster.build().expect("valid");
    let catalogs = Catalogs::shared(machines.into(), snapshot.pools()).expect("valid");
    Planner::default().plan(&snapshot, &catalogs)
}

fn nodes(sizes: &[&str]) -> SnapshotBuilder {
    let names = ["n1", "n2", "n3", "n4"];
    Snapshot::builder().nodes(names.into_iter().zip(sizes).map(|(name, cpu)| node(name, cpu)))
}

/// Sizes of nodes, and of pods with how many there are of each, of which all have room.
type Case = (&'static [&'static str], &'static [(&'static str, u32, &'static str)]);

const FULL: [Case; 4] = [
    // One of those that fill the first node goes to the second, and two of those that fill the second to the first.
    (&["4", "4"], &[("a", 2, "1500m"), ("b", 4, "1200m")]),
    // The only pod that needs more than half a node finds the small node as good as the large one.
    (&["4", "2"], &[("a", 1, "2"), ("b", 2, "1900m")]),
    // Two make way for one.
    (&["4", "4", "2"], &[("a", 1, "3500m"), ("b", 1, "2500m"), ("c", 2, "1500m")]),
    (&["6", "5"], &[("a", 2, "3"), ("b", 1, "5")]),
];

#[test]
fn pods_make_way_for_others_that_have_no_room_elsewhere() {
    for (sizes, all) in FULL {
        let with = |cluster: SnapshotBuilder| {
            all.iter().fold(cluster, |cluster, &(name, count, cpu)| cluster.pods(pods(name, count, cpu)))
        };
        let without_pools = plan(with(nodes(sizes)));
        assert!(without_pools.unplaced().is_empty(), "{all:?}: {:?}", without_pools.unplaced());
        let plan = plan(with(nodes(sizes).pool(NodePool::named("general"))));
        assert!(plan.unplaced().is_empty() && plan.claims().is_empty(), "{all:?}: {:?}", plan.claims());
    }
}

#[test]
fn room_goes_to_those_that_would_need_a_further_node() {
    let room = json!({"cpu": "1900m", "memory": "7836Mi", "pods": "110"});
    let node: Node =
        serde_json::from_value(json!({"metadata": {"name": "n"}, "status": {"allocatable": room}})).expect("a node");
    let capacity = [("cpu", Quantity::from_units(8)), ("memory", Quantity::from_bytes(16 << 30))];
    let general = Snapshot::builder().pool(NodePool::named("general")).node(node);
    // The large one leaves memory that nobody else needs; two of the others take all of it.
    let large = pods("large", 1, "1500m").memory("512Mi");
    let plan = plan_with(
        general.pods(large).pods(pods("small", 6, "800m").memory("3000Mi")),
        [(InstanceType::named("m", capacity), 0.3)],
    );
    assert!(plan.unplaced().is_empty(), "{:?}", plan.unplaced());
    assert_eq!((plan.claims().len(), plan.existing()["n"].len()), (1, 2));
}

#[test]
fn a_plan_for_the_nodes_of_a_plan_makes_no_more() {
    let waiting = |cluster: SnapshotBuilder| cluster.pods(pods("a", 2, "1500m")).pods(pods("b", 4, "1200m"));
    let first = plan(waiting(Snapshot::builder().pool(NodePool::named("general"))));
    assert_eq!(first.claims().len(), 2);
    let second = plan(waiting(nodes(&["4", "4"]).pool(NodePool::named("general"))));
    assert!(second.claims().is_empty(), "{:?}", second.claims());
}

#[test]
fn pods_make_way_for_a_pod_that_a_rule_binds_to_their_node_while_wishes_are_met() {
    let node = |name: &str, cpu: &str, memory: &str, labels: Value| {
        let allocatable = json!({"cpu": cpu, "memory": memory, "pods": "110"});
        let node = json!({"metadata": {"name": name, "labels": labels}, "status": {"allocatable": allocatable}});
        serde_json::from_value::<Node>(node).expect("a node")
    };
    let small = node("n1", "7900m", "14Gi", json!({"size": "small"}));
    let large = node("n2", "15800m", "30Gi", json!({labels::ZONE: "c"}));
    let apart = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"labelSelector": {}, "topologyKey": labels::ZONE}]}});
    let wish = json!({"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
        {"weight": 90, "preference": {"matchExpressions": [{"key": "size", "operator": "In", "values": ["small"]}]}}]}});
    let asking = |pods: PodBuilder, affinity: &Value| {
        let mut pods = Workload::from(pods).into_pods().expect("valid");
        for pod in &mut pods {
            pod.spec.affinity = serde_json::from_value(affinity.clone()).expect("affinity");
        }
        pods
    };
    let cluster = Snapshot::builder()
        .nodes([small, large])
        .pool(NodePool::named("general"))
        .pods(pods("a", 1, "700m").memory("9000Mi"))
        .pods(pods("b", 1, "1800m"))
        .pods(asking(pods("apart", 1, "500m"), &apart))
        .pods(asking(pods("wishes", 2, "3500m"), &wish));
    let machine = |name: &str, cpu: i64| {
        let memory = Quantity::from_bytes(cpu << 31);
        let amounts = [("cpu", Quantity::from_units(cpu)), ("memory", memory), ("pods", Quantity::from_units(110))];
        let mut machine = InstanceType::named(name, amounts);
        machine.requirements.add("size", Requirement::one_of(["small"]));
        machine
    };
    let (tiny, wished) = (machine("tiny", 2), machine("wished", 8));
    let plan = plan_with(cluster, [(tiny, 0.0144), (wished, 0.21)]);
    assert!(plan.unplaced().is_empty() && plan.claims().is_empty(), "{:?}", plan.claims());
}

#[test]
fn nobody_makes_way_to_where_rules_or_taints_keep_them_out() {
    // Only if `b` shared a node with its like would there be room for all.
    let cluster = || nodes(&["4", "4"]).pods(pods("a", 2, "1500m"));
    let ports = plan(cluster().pods(pods("b", 4, "1200m").host_port(80)));
    assert_eq!(ports.unplaced().len(), 2);
    let mut tainted = node("n5", "4");
    tainted.spec.taints = vec![karpenter_core::api::Taint::new("k", "", TaintEffect::NoSchedule)];
    let taints = plan(nodes(&["2"]).nodes([tainted]).pods(pods("a", 1, "1")).pods(pods("b", 1, "1500m")));
    assert_eq!(taints.unplaced().len(), 1);
}
