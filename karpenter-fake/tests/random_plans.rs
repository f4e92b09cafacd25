//! The checker finds nothing wrong with the plans of random problems, and finds every pod that is taken out of them.

use karpenter_core::{
    Catalogs, InstanceType, Plan, Planner, PlannerOptions, Price, Quantity, Snapshot,
    api::{Node, NodePool, Pod},
    labels,
    schedule::PreferencePolicy,
    strategies,
};
use karpenter_fake::{Violation, check};
use proptest::prelude::*;
use serde_json::json;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn the_planner_breaks_no_rule(problem in strategies::problem(12)) {
        let (snapshot, catalogs) = (problem.snapshot(), problem.catalogs().expect("a valid catalog"));
        let plan = Planner::default().plan(&snapshot, &catalogs);
        prop_assert_eq!(check(&snapshot, &catalogs, &plan), []);
    }

    #[test]
    fn a_plan_with_room_for_all_orders_breaks_no_rule(problem in strategies::problem(12)) {
        let (snapshot, catalogs) = (problem.snapshot(), problem.catalogs().expect("a valid catalog"));
        let mut options = PlannerOptions::default();
        options.slack = 100.0;
        let plan = Planner::new(options).plan(&snapshot, &catalogs);
        prop_assert_eq!(check(&snapshot, &catalogs, &plan), []);
    }

    #[test]
    fn a_plan_in_which_preferences_have_a_price_breaks_no_rule(problem in strategies::problem(12), price in 0.0..0.5_f64) {
        let (snapshot, catalogs) = (problem.snapshot(), problem.catalogs().expect("a valid catalog"));
        let mut options = PlannerOptions::default();
        options.preferences = PreferencePolicy::Weigh;
        options.preference_price_per_hour = price;
        let plan = Planner::new(options).plan(&snapshot, &catalogs);
        prop_assert_eq!(check(&snapshot, &catalogs, &plan), []);
    }

    #[test]
    fn a_pod_that_a_claim_forgets_is_missed(problem in strategies::problem(12)) {
        let (snapshot, catalogs) = (problem.snapshot(), problem.catalogs().expect("a valid catalog"));
        let plan = Planner::default().plan(&snapshot, &catalogs);
        let mut claims = plan.claims().to_vec();
        let Some(pod) = claims.iter_mut().find_map(|claim| claim.pods.pop()) else { return Ok(()) };
        let less = Plan::from_parts(claims, plan.existing().clone(), plan.unplaced().clone());
        let lost = Violation::Lost { pod };
        prop_assert!(check(&snapshot, &catalogs, &less).contains(&lost));
    }
}

/// A pending pod that all selectors of these tests select, with this affinity.
fn web(name: &str, cpu: &str, affinity: &serde_json::Value) -> Pod {
    pod_of("web", name, cpu, affinity)
}

fn pod_of(app: &str, name: &str, cpu: &str, affinity: &serde_json::Value) -> Pod {
    let pod = json!({
        "metadata": {"name": name, "labels": {"app": app}},
        "spec": {
            "affinity": affinity,
            "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}],
        },
        "status": {"phase": "Pending", "conditions": [
            {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
        ]},
    });
    serde_json::from_value(pod).expect("a pod")
}

fn to_web(key: &str) -> serde_json::Value {
    let term = json!({"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": key});
    json!({"requiredDuringSchedulingIgnoredDuringExecution": [term]})
}

/// A small machine in one zone, a large one in another, and one that costs more than both in a third. Whoever keeps away
/// from all others by capacity type has spot.
fn zonal_machines() -> Vec<InstanceType> {
    let machine = |name, cpus| {
        InstanceType::named(name, [("cpu", Quantity::from_units(cpus)), ("pods", Quantity::from_units(10))])
    };
    let price = |price| Price::per_hour(price).expect("a price");
    vec![
        machine("large", 4).offering("on-demand", "zone-a", price(0.5)),
        machine("small", 1).offering("on-demand", "zone-b", price(0.1)).offering("spot", "zone-b", price(0.05)),
        machine("dear", 4).offering("on-demand", "zone-c", price(0.6)),
    ]
}

/// Why a plan that breaks no rule leaves pods without a node.
fn unplaced_on_empty_cluster(pods: Vec<Pod>) -> Vec<String> {
    let snapshot = Snapshot::builder().pool(NodePool::named("general")).pods(pods).build().expect("a cluster");
    let catalogs = Catalogs::shared(zonal_machines(), snapshot.pools()).expect("a catalog");
    let plan = Planner::default().plan(&snapshot, &catalogs);
    assert_eq!(check(&snapshot, &catalogs, &plan), []);
    plan.unplaced().values().map(ToString::to_string).collect()
}

/// The kube-scheduler lets one pod begin where none is that its affinity selects. All others come to it, whatever label
/// they must share with it.
#[test]
fn one_pod_begins_for_all_that_its_like_select() {
    let of_node = |n| web(&format!("node-{n}"), "1", &json!({"podAffinity": to_web(labels::HOSTNAME)}));
    let of_zone = |n| web(&format!("zone-{n}"), "100m", &json!({"podAffinity": to_web(labels::ZONE)}));
    assert_eq!(unplaced_on_empty_cluster((0..3).map(of_node).chain((0..3).map(of_zone)).collect()), [""; 0]);
}

/// Whoever may not be near to those that it must be near to, as they to it, keeps them off or stays behind.
#[test]
fn nobody_begins_beside_one_that_keeps_the_others_off() {
    let near = |key: &str| json!({"podAffinity": to_web(key)});
    let alone = json!({"podAffinity": to_web(labels::HOSTNAME), "podAntiAffinity": to_web(labels::CAPACITY_TYPE)});
    let of_zone = (0..4).map(|n| web(&format!("zone-{n}"), "2", &near(labels::ZONE)));
    let of_node = (0..3).map(|n| web(&format!("node-{n}"), "1", &near(labels::HOSTNAME)));
    let pods: Vec<Pod> = of_zone.chain(of_node).chain([web("alone", "100m", &alone)]).collect();
    let reasons = unplaced_on_empty_cluster(pods);
    let of_zone = "affinity over topology.kubernetes.io/zone: it cannot go where such pods are, in zone-b";
    let of_node = "affinity over kubernetes.io/hostname: no node takes all that must share it";
    assert_eq!(reasons, [of_node; 3].into_iter().chain([of_zone; 4]).collect::<Vec<_>>());
}

/// What pods wish for takes no others out of the heaviest pool that can have them.
#[test]
fn a_wish_draws_nobody_to_a_lighter_pool() {
    let heavy: NodePool = serde_json::from_value(json!({
        "metadata": {"name": "heavy"},
        "spec": {
            "template": {"spec": {
                "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
                "requirements": [{"key": labels::ZONE, "operator": "In", "values": ["zone-c"]}],
            }},
            "weight": 10,
        },
    }))
    .expect("a pool");
    let to_api = json!({"labelSelector": {"matchLabels": {"app": "api"}}, "topologyKey": labels::ZONE});
    let wish = json!([{"weight": 1, "podAffinityTerm": to_api}]);
    let wishes = json!({"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": wish}});
    let alone = web("alone", "900m", &json!({"podAntiAffinity": to_web(labels::ZONE)}));
    let wishing = (0..2).map(|n| web(&format!("wishing-{n}"), "900m", &wishes));
    let pods: Vec<Pod> = wishing.chain([alone, pod_of("api", "api", "3500m", &json!({}))]).collect();
    let snapshot =
        Snapshot::builder().pool(heavy).pool(NodePool::named("light")).pods(pods).build().expect("a cluster");
    let catalogs = Catalogs::shared(zonal_machines(), snapshot.pools()).expect("a catalog");
    let plan = Planner::default().plan(&snapshot, &catalogs);
    assert_eq!(check(&snapshot, &catalogs, &plan), []);
    assert!(plan.unplaced().is_empty(), "{:?}", plan.unplaced());
}

/// A pod that wants to share a node with another, and must share its zone, does not join it on a node without a zone.
#[test]
fn nobody_is_near_on_a_node_without_the_label() {
    let read = |value: serde_json::Value| -> Pod { serde_json::from_value(value).expect("a pod") };
    let term = |key: &str| json!({"labelSelector": {"matchLabels": {"app": "api"}}, "topologyKey": key});
    let pod = |name: &str, affinity: serde_json::Value| {
        read(json!({
            "metadata": {"name": name, "labels": {"app": name}},
            "spec": {
                "affinity": {"podAffinity": affinity},
                "containers": [{"name": "c", "resources": {"requests": {"cpu": "200m"}}}],
            },
            "status": {"phase": "Pending", "conditions": [
                {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
            ]},
        }))
    };
    let near = json!({
        "requiredDuringSchedulingIgnoredDuringExecution": [term(labels::ZONE)],
        "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": term(labels::HOSTNAME)}],
    });
    let node: Node = serde_json::from_value(json!({
        "metadata": {"name": "node-0", "labels": {"kubernetes.io/hostname": "node-0"}},
        "status": {"capacity": {"cpu": "4", "pods": "10"}, "allocatable": {"cpu": "4", "pods": "10"}},
    }))
    .expect("a node");
    let price = Price::per_hour(0.1).expect("a price");
    let machine = InstanceType::named("m", [("cpu", Quantity::from_units(4)), ("pods", Quantity::from_units(10))])
        .offering("on-demand", "zone-a", price);
    let snapshot = Snapshot::builder()
        .pool(NodePool::named("general"))
        .node(node)
        .pods(vec![pod("web", near), pod("api", json!({}))])
        .build()
        .expect("a cluster");
    let catalogs = Catalogs::shared(vec![machine], snapshot.pools()).expect("a catalog");
    let plan = Planner::default().plan(&snapshot, &catalogs);
    assert_eq!(check(&snapshot, &catalogs, &plan), []);
    assert!(plan.unplaced().is_empty(), "{:?}", plan.unplaced());
}
