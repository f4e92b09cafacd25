//! Pods that may not share a node with their like leave room for others, who use it before more is bought.

use karpenter_core::{
    Catalogs, InstanceType, Plan, Planner, Price, Quantity, Snapshot, SnapshotBuilder,
    api::{NodePool, Pod, Taint, TaintEffect, Toleration},
    labels,
};
use serde_json::json;

fn machine(name: &str, cores: i64, dollars: f64) -> InstanceType {
    let capacity = [("cpu", Quantity::from_units(cores)), ("pods", Quantity::from_units(110))];
    InstanceType::named(name, capacity).offering("on-demand", "a", Price::per_hour(dollars).expect("a price"))
}

/// A pod that no other of its app may share a node with, and that tolerates all taints.
fn loner(number: u32) -> Pod {
    let term = json!({"labelSelector": {"matchLabels": {"app": "loner"}}, "topologyKey": "kubernetes.io/hostname"});
    let pod = json!({
        "metadata": {"name": format!("loner-{number}"), "namespace": "default", "labels": {"app": "loner"}},
        "spec": {
            "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}},
            "containers": [{"name": "main", "resources": {"requests": {"cpu": "100m"}}}],
            "tolerations": [{"operator": "Exists"}],
        },
        "status": {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]},
    });
    serde_json::from_value(pod).expect("as the API has it")
}

/// A pool of one instance type.
fn pool_of(machine: &str, name: &str, weight: u32) -> NodePool {
    let requirement = json!({"key": "node.kubernetes.io/instance-type", "operator": "In", "values": [machine]});
    let class = json!({"group": "g", "kind": "K", "name": "n"});
    let template = json!({"spec": {"nodeClassRef": class, "requirements": [requirement]}});
    let pool = json!({"metadata": {"name": name}, "spec": {"weight": weight, "template": template}});
    serde_json::from_value(pool).expect("as the API has it")
}

fn plan(loners: u32, others: u32) -> Plan {
    plan_in(vec![NodePool::named("general")], loners, others)
}

fn plan_in(pools: Vec<NodePool>, loners: u32, others: u32) -> Plan {
    let mut builder = Snapshot::builder().pools(pools);
    builder = builder.pods((0..loners).map(loner).collect::<Vec<_>>());
    builder = builder.pods(Pod::named("other").cpu("1").replicas(others));
    plan_for(builder, vec![machine("host", 2, 0.1), machine("farm", 40, 1.2)])
}

fn plan_for(builder: SnapshotBuilder, types: Vec<InstanceType>) -> Plan {
    let snapshot = builder.build().expect("a cluster");
    let catalogs = Catalogs::shared(types, snapshot.pools()).expect("a catalog");
    Planner::default().plan(&snapshot, &catalogs)
}

/// A pool, and a heavier one with a taint.
fn light_and_heavy() -> SnapshotBuilder {
    let mut heavy = NodePool::named("heavy");
    heavy.spec.weight = Some(10);
    heavy.spec.template.spec.taints = vec![Taint::new("dedicated", "", TaintEffect::NoSchedule)];
    Snapshot::builder().pools(vec![NodePool::named("light"), heavy])
}

fn dollars(plan: &Plan) -> f64 {
    assert!(plan.unplaced().is_empty());
    plan.hourly_cost().dollars_per_hour()
}

/// A core costs less on the large machine, but on the nodes that are needed anyway it costs nothing.
#[test]
fn others_go_to_the_nodes_of_loners() {
    let plan = plan(20, 20);
    assert_eq!(plan.claims().len(), 20);
    assert!((dollars(&plan) - 2.0).abs() < 1e-9);
}

#[test]
fn without_loners_the_cheapest_core_counts() {
    assert!((dollars(&plan(0, 39)) - 1.2).abs() < 1e-9);
}

/// Plans are compared with some of more and smaller nodes, but not with nodes of a pool that has smaller ones and less weight.
#[test]
fn a_heavier_pool_has_them_however_large_its_nodes() {
    let plan = plan_in(vec![pool_of("host", "light", 1), pool_of("farm", "heavy", 10)], 3, 30);
    assert!(plan.claims().iter().all(|claim| claim.node_pool == "heavy"), "{:?}", plan.claims());
}

/// Loners could have nodes of the heavier pool, but there is room for them on those that others need in the lighter one.
#[test]
fn loners_of_a_heavier_pool_use_the_nodes_that_only_others_need() {
    let mut heavy = pool_of("host", "heavy", 10);
    heavy.spec.template.spec.taints = vec![Taint::new("dedicated", "", TaintEffect::NoSchedule)];
    let plan = plan_in(vec![pool_of("host", "light", 1), heavy], 20, 20);
    assert!(plan.claims().iter().all(|claim| claim.node_pool == "light"), "{:?}", plan.claims());
    assert!((dollars(&plan) - 2.0).abs() < 1e-9);
}

/// Two of the large pods leave no room for the small one, without which no node of the lighter pool may be made.
#[test]
fn who_needs_the_lighter_pool_has_room_on_its_node_before_others() {
    let mut heavy = pool_of("host", "heavy", 10);
    heavy.spec.template.spec.taints = vec![Taint::new("dedicated", "", TaintEffect::NoSchedule)];
    let builder = Snapshot::builder().pools(vec![pool_of("host", "light", 1), heavy]);
    let large = Pod::named("large").cpu("900m").toleration(Toleration::everything()).replicas(3);
    let builder = builder.pods(large).pods(Pod::named("small").cpu("300m"));
    let plan = plan_for(builder, vec![machine("host", 2, 0.1)]);
    assert!((dollars(&plan) - 0.2).abs() < 1e-9, "{:?}", plan.claims());
}

#[test]
fn pods_for_a_dear_zone_share_the_node_that_karpenter_would_give_them() {
    let builder = light_and_heavy();
    let builder = builder.pods(Pod::named("large").cpu("600m").replicas(14));
    let builder = builder.pods(Pod::named("in-dear").cpu("100m").node_selector(labels::ZONE, "dear").replicas(2));
    let builder = builder.pods(Pod::named("tolerant").cpu("50m").toleration(Toleration::everything()));
    let price = |dollars| Price::per_hour(dollars).expect("a price");
    let host = machine("host", 2, 0.1).offering("on-demand", "dear", price(0.16));
    let plan = plan_for(builder, vec![host]);
    assert!((dollars(&plan) - 0.56).abs() < 1e-9, "{:?}", plan.claims());
}

/// A larger node of the pool that some of the pods need has room for all of them, and costs less than one of each pool.
#[test]
fn a_pod_of_a_heavier_pool_joins_a_larger_node_that_a_lighter_pool_needs_anyway() {
    let builder = light_and_heavy();
    let small = ["200m", "400m", "700m"].map(|cpu| Pod::named(format!("of-{cpu}")).cpu(cpu));
    let builder = small.into_iter().fold(builder, SnapshotBuilder::pods);
    let builder = builder.pods(Pod::named("tolerant").cpu("2800m").toleration(Toleration::everything()));
    let plan = plan_for(builder, vec![machine("four", 4, 0.09), machine("eight", 8, 0.11)]);
    assert!((dollars(&plan) - 0.11).abs() < 1e-9, "{:?}", plan.claims());
}
