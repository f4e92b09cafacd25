//! What pods that were promised a machine mean for those that are planned before it is bought.

use karpenter_core::{
    Catalogs, InstanceType, Planner, Price, Quantity, Snapshot,
    api::{NodePool, Pod, Workload},
    labels,
};
use serde_json::{Value, json};

/// A pod of the application `web` with such rules.
fn pod(name: &str, rules: &Value) -> Pod {
    let mut pods = Workload::from(Pod::named(name).label("app", "web").cpu("100m")).into_pods().expect("valid");
    let mut pod = pods.remove(0);
    let read = |field: &str, default: Value| rules.get(field).cloned().unwrap_or(default);
    pod.spec.affinity = serde_json::from_value(read("affinity", json!({}))).expect("an affinity");
    pod.spec.topology_spread_constraints =
        serde_json::from_value(read("topologySpreadConstraints", json!([]))).expect("spreads");
    pod
}

/// The zones of the claims that are planned for one pod after another, each before the machines of those before it are bought.
fn zones(rules: &Value) -> Vec<Option<String>> {
    let capacity = [("cpu", Quantity::from_units(2)), ("pods", Quantity::from_units(10))];
    let machine = ["a", "b", "c"]
        .into_iter()
        .zip([0.3, 0.2, 0.1])
        .fold(InstanceType::named("machine", capacity), |machine, (zone, price)| {
            machine.offering("spot", zone, Price::per_hour(price).expect("a price"))
        });
    let pool = NodePool::named("general");
    let catalogs = Catalogs::shared(vec![machine], [&pool]).expect("valid");
    let mut builder = Snapshot::builder().pool(pool.clone());
    let mut zones = Vec::new();
    for number in 0..3 {
        builder = builder.pods(vec![pod(&format!("web-{number}"), rules)]);
        let snapshot = builder.clone().build().expect("valid");
        let plan = Planner::default().plan(&snapshot, &catalogs);
        for claim in plan.claims() {
            let zone = claim.requirements.get(labels::ZONE).and_then(|zone| zone.values().next());
            zones.push(zone.map(str::to_owned));
            let name = format!("claim-{number}");
            builder = builder.claim(claim.to_node_claim(&pool, name.clone(), ""));
            builder = claim.pods.iter().fold(builder, |builder, pod| builder.nominate(pod.clone(), name.clone()));
        }
    }
    zones
}

fn named(zones: &[&str]) -> Vec<Option<String>> {
    zones.iter().map(|zone| Some((*zone).to_owned())).collect()
}

#[test]
fn rules_by_zone_see_the_pods_of_machines_that_are_not_bought() {
    let selector = json!({"matchLabels": {"app": "web"}});
    let term = json!([{"labelSelector": selector, "topologyKey": labels::ZONE}]);
    let required = "requiredDuringSchedulingIgnoredDuringExecution";
    let apart = json!({"affinity": {"podAntiAffinity": {required: term}}});
    assert_eq!(zones(&apart), named(&["c", "b", "a"]));
    let together = json!({"affinity": {"podAffinity": {required: term}}});
    assert_eq!(zones(&together), named(&["c", "c", "c"]));
    let spread = json!({"topologySpreadConstraints": [
        {"maxSkew": 1, "topologyKey": labels::ZONE, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector}]});
    assert_eq!(zones(&spread), named(&["c", "b", "a"]));
}

#[test]
fn who_must_share_a_node_with_such_pods_waits_for_it() {
    let selector = json!({"matchLabels": {"app": "web"}});
    let term = json!([{"labelSelector": selector, "topologyKey": labels::HOSTNAME}]);
    let together = json!({"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": term}}});
    assert_eq!(zones(&together).len(), 1, "the others have no place until the first machine is a node");
}
