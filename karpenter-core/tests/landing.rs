//! Nodes beyond the tightest plan, for pods that the kube-scheduler would leave without one.

use karpenter_core::{
    Catalogs, InstanceType, Plan, Planner, Price, Quantity, Snapshot,
    api::{Node, NodePool, Pod},
    labels,
};
use serde_json::json;

/// A node that runs already and has no room.
fn full_node(index: usize) -> Node {
    let labels = json!({
        labels::NODE_POOL: "general", labels::INSTANCE_TYPE: "machine", labels::ZONE: "a",
        "karpenter.sh/capacity-type": "on-demand",
    });
    let status = json!({"allocatable": {"cpu": "0", "memory": "0", "pods": "0"}});
    serde_json::from_value(json!({"metadata": {"name": format!("full-{index}"), "labels": labels}, "status": status}))
        .expect("a node")
}

/// Plans for a pod that takes a whole machine and for two that take half of one, in a cluster of so many full nodes.
fn plan(full_nodes: usize) -> Plan {
    let capacity = [("cpu", Quantity::from_units(8)), ("memory", Quantity::from_bytes(32 << 30))];
    let price = Price::per_hour(0.4).expect("not below zero");
    let machine = InstanceType::named("machine", capacity).offering("on-demand", "a", price);
    let snapshot = Snapshot::builder()
        .pool(NodePool::named("general"))
        .nodes((0..full_nodes).map(full_node))
        .pods(Pod::named("whole").cpu("8"))
        .pods(Pod::named("half").cpu("4").replicas(2))
        .build()
        .expect("valid");
    let catalogs = Catalogs::shared(vec![machine], snapshot.pools()).expect("valid");
    Planner::default().plan(&snapshot, &catalogs)
}

#[test]
fn a_large_cluster_affords_a_node_for_pods_that_may_land_badly() {
    // The halves may come first and take half of each node.
    let plan = plan(100);
    assert!(plan.unplaced().is_empty());
    assert_eq!(plan.claims().len(), 3);
    assert!(plan.claims().iter().all(|claim| !claim.pods.is_empty()));
}

#[test]
fn where_it_would_cost_much_a_further_plan_is_cheaper() {
    assert_eq!(plan(0).claims().len(), 2);
}
