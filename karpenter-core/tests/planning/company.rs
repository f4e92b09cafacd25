//! With whom pods share a node that must be on one with others.

use karpenter_core::{
    Catalogs, InstanceType, Plan, Planner, Price, Quantity, Snapshot,
    api::{NodePool, NodeSelectorRequirement, Operator, Pod, PodBuilder, Taint, TaintEffect, Toleration, Workload},
    labels,
};
use serde_json::json;

/// A machine of so many CPUs, at 10 cents each.
fn machine(name: &str, cpus: i64) -> InstanceType {
    let capacity = [("cpu", Quantity::from_units(cpus)), ("pods", Quantity::from_units(110))];
    let price = Price::per_hour(cpus as f64 / 10.0).expect("not below zero");
    InstanceType::named(name, capacity).offering("on-demand", "a", price)
}

/// The one pod of a builder.
fn one(pod: PodBuilder) -> Pod {
    Workload::from(pod).into_pods().expect("valid").remove(0)
}

/// A pod of data with so much CPU, which tolerates the taint of a pool or does not.
fn data(name: &str, cpu: &str, is_tolerant: bool) -> Pod {
    let pod = Pod::named(name).label("tier", "data").cpu(cpu);
    one(if is_tolerant { pod.toleration(Toleration::of_key("dedicated")) } else { pod })
}

/// A pod that must be on a node with data.
fn client() -> Pod {
    let mut pod = one(Pod::named("client").cpu("1"));
    let term = json!({"topologyKey": labels::HOSTNAME, "labelSelector": {"matchLabels": {"tier": "data"}}});
    let affinity = json!({"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}});
    pod.spec.affinity = serde_json::from_value(affinity).expect("an affinity");
    pod
}

/// Plans for large and small data and a client, with a pool that has a taint and one that has none.
fn plan(general: NodePool, is_large_data_tolerant: bool) -> Plan {
    let mut dedicated = NodePool::named("dedicated");
    dedicated.spec.template.spec.taints = vec![Taint::new("dedicated", "data", TaintEffect::NoSchedule)];
    let pods = [data("a-large", "4", is_large_data_tolerant), data("b-small", "500m", false), client()];
    let snapshot = Snapshot::builder().pool(general).pool(dedicated).pods(pods.to_vec()).build().expect("valid");
    let types = vec![machine("small", 2), machine("medium", 8), machine("large", 32)];
    let catalogs = Catalogs::shared(types, snapshot.pools()).expect("valid");
    Planner::default().plan(&snapshot, &catalogs)
}

fn left(plan: &Plan) -> Vec<String> {
    plan.unplaced().keys().map(|key| key.name.clone()).collect()
}

/// Pools without a taint that make no node for large data: too few types are large enough, or the limit is too low for one.
fn pools_for_small_pods() -> [NodePool; 2] {
    let mut types = NodeSelectorRequirement::new(labels::INSTANCE_TYPE, Operator::Exists, [] as [&str; 0]);
    types.min_values = Some(3);
    [NodePool::named("general").require(types), NodePool::named("general").limit("cpu", Quantity::from_units(4))]
}

#[test]
fn pods_do_not_join_those_that_are_on_nodes_that_do_not_take_them() {
    for general in pools_for_small_pods() {
        let plan = plan(general, true);
        assert_eq!(left(&plan), [] as [&str; 0]);
        assert_eq!(plan.claims().len(), 2);
    }
}

#[test]
fn pods_do_not_wait_for_company_that_no_pool_can_make_a_node_for() {
    for general in pools_for_small_pods() {
        assert_eq!(left(&plan(general, false)), ["a-large"]);
    }
}

#[test]
fn pods_to_be_near_to_are_in_as_many_zones_as_those_must_be_that_are_near_to_them() {
    let mut web =
        Workload::from(Pod::named("web").label("app", "web").cpu("1").replicas(4)).into_pods().expect("valid");
    let selector = |app: &str| json!({"matchLabels": {"app": app}});
    for pod in &mut web {
        let term = json!({"topologyKey": labels::ZONE, "labelSelector": selector("cache")});
        let affinity = json!({"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}});
        pod.spec.affinity = serde_json::from_value(affinity).expect("an affinity");
        let spread = json!([{"maxSkew": 1, "topologyKey": labels::ZONE, "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": selector("web")}]);
        pod.spec.topology_spread_constraints = serde_json::from_value(spread).expect("a spread");
    }
    let left_with = |caches: u32| {
        let price = Price::per_hour(0.4).expect("not below zero");
        let types =
            ["a", "b", "c"].into_iter().fold(machine("medium", 8), |own, zone| own.offering("spot", zone, price));
        let cache = Pod::named("cache").label("app", "cache").cpu("100m").replicas(caches);
        let builder = Snapshot::builder().pool(NodePool::named("general")).pods(cache).pods(web.clone());
        let snapshot = builder.build().expect("valid");
        let catalogs = Catalogs::shared(vec![types], snapshot.pools()).expect("valid");
        Planner::default().plan(&snapshot, &catalogs).unplaced().len()
    };
    assert_eq!(left_with(3), 0);
    assert_eq!(left_with(2), 2, "one in each of two zones");
}
