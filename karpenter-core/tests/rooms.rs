//! How pods share the room that there is.

use karpenter_core::{
    Catalogs, InstanceType, Plan, Planner, Price, Quantity, Snapshot, SnapshotBuilder,
    api::{Node, NodePool, Pod, PodBuilder, TaintEffect},
};
use serde_json::json;

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
    let machine = InstanceType::named("m", capacity);
    let machine = machine.offering("on-demand", "a", Price::per_hour(0.2).expect("not below zero"));
    let snapshot = cluster.build().expect("valid");
    let catalogs = Catalogs::shared(vec![machine], snapshot.pools()).expect("valid");
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
fn a_plan_for_the_nodes_of_a_plan_makes_no_more() {
    let waiting = |cluster: SnapshotBuilder| cluster.pods(pods("a", 2, "1500m")).pods(pods("b", 4, "1200m"));
    let first = plan(waiting(Snapshot::builder().pool(NodePool::named("general"))));
    assert_eq!(first.claims().len(), 2);
    let second = plan(waiting(nodes(&["4", "4"]).pool(NodePool::named("general"))));
    assert!(second.claims().is_empty(), "{:?}", second.claims());
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
