//! Plans that pods lead to which come one by one, where these cost less or leave fewer pods.

use karpenter_core::{
    Catalogs, InstanceType, Offering, Plan, Planner, Price, Quantity, Reason, Requirement, Snapshot, SnapshotBuilder,
    api::{Node, NodePool, Pod},
    reason::TopologyObstacle,
};
use serde_json::{Value, json};

const HOST: &str = "kubernetes.io/hostname";
const ZONE: &str = "topology.kubernetes.io/zone";

fn read<T: serde::de::DeserializeOwned>(json: Value) -> T {
    serde_json::from_value(json).expect("a Kubernetes object")
}

fn machine(name: &str, cpu: i64, memory_gib: i64, offers: &[(&str, f64)]) -> InstanceType {
    let capacity = [("cpu", cpu), ("memory", memory_gib << 30), ("pods", 110)];
    let machine = InstanceType::named(name, capacity.map(|(name, units)| (name, Quantity::from_units(units))));
    let price = |price| Price::per_hour(price).expect("not below zero");
    offers.iter().fold(machine, |machine, &(zone, dollars)| machine.offering("on-demand", zone, price(dollars)))
}

/// A pool of this weight, with what else the specification of its nodes says.
fn pool(name: &str, weight: u32, nodes: &Value) -> NodePool {
    let mut pool: Value = serde_json::to_value(NodePool::named(name)).expect("JSON");
    pool["spec"]["weight"] = json!(weight);
    for (key, value) in nodes.as_object().expect("an object") {
        pool["spec"]["template"]["spec"][key] = value.clone();
    }
    read(pool)
}

/// A pod of an app, with what else its specification says.
fn pod(name: &str, (cpu, memory): (&str, &str), rest: &Value) -> Pod {
    let app = name.split('-').next().expect("a name");
    let containers = json!([{"name": "c", "resources": {"requests": {"cpu": cpu, "memory": memory}}}]);
    let condition = json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable"});
    let mut pod = json!({"metadata": {"name": name, "namespace": "default", "labels": {"app": app}},
                         "spec": {"containers": containers},
                         "status": {"phase": "Pending", "conditions": [condition]}});
    for (key, value) in rest.as_object().expect("an object") {
        pod["spec"][key] = value.clone();
    }
    read(pod)
}

fn plan(types: Vec<InstanceType>, pools: Vec<NodePool>, nodes: Vec<Node>, pods: Vec<Pod>) -> Plan {
    let builder = pools.into_iter().fold(Snapshot::builder(), SnapshotBuilder::pool);
    let builder = builder.nodes(nodes);
    let snapshot = builder.pods(pods).build().expect("valid");
    let catalogs = Catalogs::shared(types, snapshot.pools()).expect("valid");
    Planner::default().plan(&snapshot, &catalogs)
}

fn left(plan: &Plan) -> Vec<&str> {
    plan.unplaced().keys().map(|pod| &*pod.name).collect()
}

fn term(app: &str, key: &str) -> Value {
    json!({"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": key})
}

#[test]
fn no_node_is_made_for_company_whose_own_is_full() {
    let wish = json!([{"weight": 100, "podAffinityTerm": term("near", HOST)}]);
    let wishes = json!({"affinity": {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": wish}}});
    let pods = vec![
        pod("plain-0", ("1900m", "7Gi"), &json!({})),
        pod("plain-1", ("1900m", "7Gi"), &json!({})),
        pod("near-0", ("1", "4Gi"), &json!({})),
        pod("near-1", ("1", "4Gi"), &wishes),
    ];
    let plan = plan(vec![machine("m", 7, 12, &[("a", 0.5)])], vec![NodePool::named("general")], Vec::new(), pods);
    assert_eq!((plan.claims().len(), left(&plan)), (2, Vec::new()));
}

#[test]
fn pods_of_a_spread_join_nodes_that_lighter_pools_must_make() {
    let heavy = pool("heavy", 60, &json!({"requirements": [{"key": ZONE, "operator": "In", "values": ["a"]}]}));
    let spread = json!([{"maxSkew": 2, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule", "minDomains": 3,
                         "labelSelector": {"matchLabels": {"app": "spread"}}}]);
    let pods = vec![
        pod("spread-0", ("2500m", "1Gi"), &json!({"topologySpreadConstraints": spread})),
        pod("bound-0", ("7", "1Gi"), &json!({"nodeSelector": {ZONE: "b"}})),
    ];
    let plan = plan(
        vec![machine("m", 16, 64, &[("a", 0.5), ("b", 0.6), ("c", 0.6)])],
        vec![heavy, NodePool::named("general")],
        Vec::new(),
        pods,
    );
    assert_eq!((plan.claims().len(), left(&plan)), (1, Vec::new()));
}

#[test]
fn those_who_tolerate_a_taint_that_asks_to_be_avoided_leave_room_to_the_largest() {
    let taints = json!([{"key": "only", "value": "blue", "effect": "PreferNoSchedule"}]);
    let general = pool("general", 1, &json!({"taints": taints}));
    let node = read(json!({"metadata": {"name": "n", "labels": {ZONE: "a"}}, "spec": {"taints": taints},
                           "status": {"allocatable": {"cpu": "16", "memory": "64Gi", "pods": "4"}}}));
    let small =
        |name: String| pod(&name, ("500m", "512Mi"), &json!({"tolerations": [{"key": "only", "operator": "Exists"}]}));
    let mut pods: Vec<Pod> = (0..4).map(|number| small(format!("small-{number}"))).collect();
    pods.push(pod("large-0", ("3", "3Gi"), &json!({})));
    let types = vec![machine("large", 4, 16, &[("a", 0.4)]), machine("small", 1, 4, &[("a", 0.1)])];
    let plan = plan(types, vec![general], vec![node], pods);
    let claims: Vec<&str> = plan.claims().iter().map(|claim| &*claim.instance_types[0]).collect();
    assert_eq!((claims, left(&plan)), (vec!["small"], Vec::new()));
}

#[test]
fn few_pods_that_keep_away_from_many_wait() {
    let keeps_away = json!({"affinity": {"podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [term("web", ZONE)]}}});
    let mut pods: Vec<Pod> = (0..5).map(|number| pod(&format!("web-{number}"), ("1", "1Gi"), &json!({}))).collect();
    pods.push(pod("lonely-0", ("500m", "1Gi"), &keeps_away));
    pods.push(pod("alone-0", ("250m", "1Gi"), &keeps_away));
    let plan = plan(vec![machine("m", 4, 16, &[("a", 0.4)])], vec![NodePool::named("general")], Vec::new(), pods);
    assert_eq!(left(&plan), ["alone-0", "lonely-0"]);
    for reason in plan.unplaced().values() {
        assert!(matches!(reason, Reason::Topology(TopologyObstacle::AntiAffinity { .. })), "{reason}");
    }
}

#[test]
fn what_is_reserved_is_not_given_up_for_a_pod_that_could_join() {
    let wish = json!([{"weight": 100, "podAffinityTerm": term("near", HOST)}]);
    let wishes = json!({"affinity": {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": wish}}});
    let pods = (0..3).map(|number| pod(&format!("near-{number}"), ("3600m", "1Gi"), &wishes)).collect();
    let mut offering = Offering::new("reserved", "a", Price::ZERO);
    offering.requirements.add("example.com/reservation-id", Requirement::one_of(["r"]));
    offering.reservation_capacity = Some(2);
    let mut reserved = machine("small", 8, 32, &[("a", 0.5)]);
    reserved.offerings.push(offering);
    let types = vec![reserved, machine("large", 13, 64, &[("a", 0.8)])];
    let plan = plan(types, vec![NodePool::named("general")], Vec::new(), pods);
    assert_eq!((plan.claims().len(), left(&plan)), (2, Vec::new()));
}

#[test]
fn a_pod_that_keeps_away_by_a_label_is_not_moved_to_a_node_that_has_it() {
    let rack = "example.com/rack";
    let keeps_away = json!({"affinity": {"podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [term("web", rack)]}}});
    let wish = json!([{"weight": 100, "podAffinityTerm": term("near", HOST)}]);
    let wishes = json!({"affinity": {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": wish}}});
    let node = read(json!({"metadata": {"name": "n", "labels": {ZONE: "a", rack: "r1"}},
                           "status": {"allocatable": {"cpu": "4", "memory": "64Gi", "pods": "110"}}}));
    let pods = vec![
        pod("web-0", ("2", "1Gi"), &json!({"nodeSelector": {rack: "r1"}})),
        pod("lonely-0", ("2", "1Gi"), &keeps_away),
        pod("plain-0", ("1900m", "7Gi"), &json!({})),
        pod("plain-1", ("1900m", "7Gi"), &json!({})),
        pod("near-0", ("1", "4Gi"), &json!({})),
        pod("near-1", ("1", "4Gi"), &wishes),
    ];
    let plan = plan(vec![machine("m", 7, 12, &[("a", 0.5)])], vec![NodePool::named("general")], vec![node], pods);
    assert_eq!(left(&plan), Vec::<&str>::new());
    assert!(plan.existing()["n"].iter().all(|pod| pod.name != "lonely-0"), "{:?}", plan.existing());
}

#[test]
fn a_pod_that_must_be_near_another_changes_places_with_nobody() {
    let wish = json!([{"weight": 100, "podAffinityTerm": term("near", HOST)}]);
    let wishes = json!({"affinity": {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": wish}}});
    let near_web = json!({"affinity": {"podAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [term("web", HOST)]}}});
    let node = read(json!({"metadata": {"name": "n", "labels": {ZONE: "a"}},
                           "status": {"allocatable": {"cpu": "4", "memory": "3Gi", "pods": "110"}}}));
    let pods = vec![
        pod("plain-0", ("1900m", "7Gi"), &json!({})),
        pod("plain-1", ("1900m", "7Gi"), &json!({})),
        pod("near-0", ("1", "4Gi"), &json!({})),
        pod("near-1", ("1", "4Gi"), &wishes),
        pod("web-0", ("2", "1Gi"), &json!({})),
        pod("api-0", ("1", "512Mi"), &json!({})),
        pod("api-1", ("1", "512Mi"), &near_web),
        pod("api-2", ("1", "512Mi"), &json!({})),
    ];
    let plan = plan(vec![machine("m", 7, 12, &[("a", 0.5)])], vec![NodePool::named("general")], vec![node], pods);
    assert_eq!((plan.claims().len(), left(&plan)), (2, Vec::new()));
    let on_node: Vec<&str> = plan.existing()["n"].iter().map(|pod| &*pod.name).collect();
    assert_eq!(on_node, ["api-0", "api-1", "web-0"]);
}
