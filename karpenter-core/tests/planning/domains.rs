//! Which zones and other domains pods are given.

mod reasons;

use karpenter_core::{
    Catalogs, InstanceType, Plan, Planner, Price, Quantity, Reason, Snapshot, SnapshotBuilder,
    api::{Node, NodePool, NodeSelectorRequirement, Operator, Pod, Taint, TaintEffect, Workload},
    labels,
};
use serde_json::{Value, json};

const RACK: &str = "example.com/rack";

fn read<T: serde::de::DeserializeOwned>(json: Value) -> T {
    serde_json::from_value(json).expect("a Kubernetes object")
}

/// Pods of one application, each of so much CPU; `spec` is added to what they ask for.
fn pods(app: &str, count: u32, cpu: &str, spec: &Value) -> Vec<Pod> {
    let pod = Pod::named(app).label("app", app).cpu(cpu).replicas(count);
    let mut out = Workload::from(pod).into_pods().expect("valid");
    for pod in &mut out {
        pod.spec.affinity = read(spec.get("affinity").cloned().unwrap_or_else(|| json!({})));
        pod.spec.topology_spread_constraints = read(spec.get("spreads").cloned().unwrap_or_else(|| json!([])));
        pod.spec.node_selector = read(spec.get("zone").map_or_else(|| json!({}), |zone| json!({labels::ZONE: zone})));
    }
    out
}

fn spread(app: &str, key: &str, action: &str) -> Value {
    let selector = json!({"matchLabels": {"app": app}});
    json!({"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": action, "labelSelector": selector})
}

/// That no two pods of an application share a domain with these.
pub(super) fn away_from(app: &str, key: &str) -> Value {
    let term = json!({"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}});
    json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}})
}

/// That pods are in the domains of one of an application.
pub(super) fn near(app: &str, keys: &[&str]) -> Value {
    let term = |key: &&str| json!({"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}});
    let terms: Vec<Value> = keys.iter().map(term).collect();
    json!({"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}})
}

/// A machine of so many CPUs that costs so much an hour in each of these zones.
fn machine(name: &str, cpus: i64, offerings: &[(&str, &str, f64)]) -> InstanceType {
    let capacity = [("cpu", Quantity::from_units(cpus)), ("pods", Quantity::from_units(110))];
    let price = |dollars| Price::per_hour(dollars).expect("not below zero");
    let machine = InstanceType::named(name, capacity);
    let add = |machine: InstanceType, &(zone, capacity_type, dollars): &(&str, &str, f64)| {
        machine.offering(capacity_type, zone, price(dollars))
    };
    offerings.iter().fold(machine, add)
}

/// A node of four CPUs in a zone.
fn node(name: &str, zone: &str) -> Node {
    read(json!({
        "metadata": {"name": name, "labels": {labels::ZONE: zone, labels::HOSTNAME: name}},
        "status": {"allocatable": {"cpu": "4", "pods": "110"}},
    }))
}

fn plan(cluster: SnapshotBuilder, types: Vec<InstanceType>) -> Plan {
    let snapshot = cluster.build().expect("valid");
    let catalogs = Catalogs::shared(types, snapshot.pools()).expect("valid");
    Planner::default().plan(&snapshot, &catalogs)
}

fn general() -> SnapshotBuilder {
    Snapshot::builder().pool(NodePool::named("general"))
}

fn dollars(plan: &Plan) -> f64 {
    plan.hourly_cost().dollars_per_hour()
}

#[test]
fn pods_that_keep_apart_do_not_share_a_claim_that_leaves_the_value_of_the_label_open() {
    for operator in ["Exists", "NotIn"] {
        let values = if operator == "NotIn" { vec!["r1"] } else { Vec::new() };
        let mut open = NodePool::named("open");
        open.spec.template.spec.requirements = read(json!([{"key": RACK, "operator": operator, "values": values}]));
        let apart = pods("x", 2, "1", &json!({"affinity": away_from("x", RACK)}));
        let cluster = Snapshot::builder().pool(open).pods(apart);
        let plan = plan(cluster, vec![machine("m", 4, &[("a", "on-demand", 0.1)])]);
        let may_have_the_label = |claim: &&karpenter_core::PlannedClaim| {
            claim.requirements.get(RACK).is_some_and(karpenter_core::Requirement::admits_some_value)
        };
        let together = plan.claims().iter().filter(may_have_the_label).map(|claim| claim.pods.len());
        assert!(together.max().unwrap_or(0) <= 1, "{operator}: {:?}", plan.claims());
    }
}

/// The pools of claims, and what they cost together.
fn outline(plan: &Plan) -> (Vec<&str>, f64) {
    assert!(plan.unplaced().is_empty(), "{:?}", plan.unplaced());
    let pools = plan.claims().iter().map(|claim| claim.node_pool.as_str()).collect();
    (pools, (dollars(plan) * 1e6).round() / 1e6)
}

/// A pool, and a lighter one of which the nodes have a label.
fn heavy_and_labelled() -> SnapshotBuilder {
    let (mut heavy, mut labelled) = (NodePool::named("heavy"), NodePool::named("labelled"));
    heavy.spec.weight = Some(50);
    labelled.spec.template.metadata.labels.insert(RACK.to_owned(), "r1".to_owned());
    Snapshot::builder().pool(heavy).pool(labelled)
}

#[test]
fn rules_that_keep_pods_apart_draw_none_to_lighter_pools_that_have_their_label() {
    let types = || vec![machine("m", 4, &[("a", "on-demand", 0.2)])];
    let alone = away_from("x", RACK);
    let mut together = near("x", &[labels::HOSTNAME]);
    together["podAntiAffinity"] = alone["podAntiAffinity"].clone();
    for (count, affinity) in [(1, alone.clone()), (3, alone), (1, together)] {
        let plan = plan(heavy_and_labelled().pods(pods("x", count, "1", &json!({"affinity": affinity}))), types());
        assert_eq!(outline(&plan), (vec!["heavy"], 0.2), "{count} of {affinity}");
    }
}

#[test]
fn domains_that_cost_less_than_nodes_without_their_label_come_first() {
    let (mut bare, mut labelled) = (NodePool::named("bare"), NodePool::named("labelled"));
    labelled.spec.template.metadata.labels.insert(RACK.to_owned(), "r1".to_owned());
    bare.spec.template.spec.requirements = read(json!([{"key": labels::ZONE, "operator": "In", "values": ["dear"]}]));
    let cluster = |count| {
        let apart = pods("x", count, "1", &json!({"affinity": away_from("x", RACK)}));
        Snapshot::builder().pool(bare.clone()).pool(labelled.clone()).pods(apart)
    };
    let types = || vec![machine("m", 4, &[("cheap", "on-demand", 0.1), ("dear", "on-demand", 0.2)])];
    for (count, pools, bill) in [(1, vec!["labelled"], 0.1), (3, vec!["bare"], 0.2), (5, vec!["bare", "labelled"], 0.3)]
    {
        let plan = plan(cluster(count), types());
        let (mut found, dollars) = outline(&plan);
        found.sort_unstable();
        assert_eq!((found, dollars), (pools, bill), "{count}");
    }
}

#[test]
fn room_on_nodes_without_the_label_of_a_domain_is_used_by_those_who_keep_apart() {
    let apart = |count| pods("x", count, "1", &json!({"affinity": away_from("x", "karpenter.sh/capacity-type")}));
    let types = || vec![machine("m", 4, &[("a", "on-demand", 0.8)])];
    for (count, bill) in [(1, 0.0), (4, 0.0), (5, 0.8)] {
        let plan = plan(general().nodes([node("n", "a")]).pods(apart(count)), types());
        assert_eq!(outline(&plan).1.to_bits(), f64::to_bits(bill), "{count}: {:?}", plan.claims());
    }
    let mut from_all = away_from("all", "karpenter.sh/capacity-type");
    from_all["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][0]["labelSelector"] = json!({});
    let both = general().pods(apart(1)).pods(pods("y", 1, "1", &json!({"affinity": from_all})));
    let plan = plan(both.nodes([node("n", "a")]), types());
    assert!(outline(&plan).0.is_empty(), "{:?}", plan.claims());
}

#[test]
fn one_pod_with_many_wishes_goes_where_a_taint_asks_to_be_avoided() {
    let mut avoided = NodePool::named("avoided");
    avoided.spec.template.spec.taints = vec![Taint::new("slow", "", TaintEffect::PreferNoSchedule)];
    let spreads = json!([
        spread("x", labels::ZONE, "DoNotSchedule"),
        spread("x", labels::HOSTNAME, "ScheduleAnyway"),
        spread("x", "karpenter.sh/capacity-type", "ScheduleAnyway"),
    ]);
    let cluster = Snapshot::builder().pool(avoided).pods(pods("x", 1, "1", &json!({"spreads": spreads})));
    let offerings: Vec<_> =
        ["a", "b", "c"].into_iter().flat_map(|z| [(z, "spot", 0.08), (z, "on-demand", 0.2)]).collect();
    let plan = plan(cluster, vec![machine("m", 4, &offerings)]);
    assert!(plan.unplaced().is_empty(), "{:?}", plan.unplaced());
}

#[test]
fn pods_join_a_node_that_a_taint_asks_them_to_avoid_if_limits_leave_no_other() {
    let mut avoided = NodePool::named("avoided");
    avoided.spec.template.spec.taints = vec![Taint::new("slow", "", TaintEffect::PreferNoSchedule)];
    avoided.spec.limits = read(json!({"nodes": "1"}));
    let mut willing = pods("willing", 1, "1", &json!({}));
    willing[0].spec.tolerations = read(json!([{"operator": "Exists"}]));
    let cluster = Snapshot::builder().pool(avoided).pods(willing).pods(pods("reluctant", 1, "1", &json!({})));
    let plan = plan(cluster, vec![machine("m", 4, &[("a", "on-demand", 0.25)])]);
    assert!(plan.unplaced().is_empty(), "{:?}", plan.unplaced());
    assert_eq!(plan.claims().len(), 1);
}

#[test]
fn a_single_pod_goes_where_the_machine_is_cheap_and_not_its_share() {
    let types = || {
        let large = machine("large", 32, &[("b", "on-demand", 0.8), ("c", "on-demand", 0.8)]);
        vec![machine("small", 4, &[("a", "on-demand", 0.12)]), large]
    };
    let by_spread = json!({"spreads": [spread("x", labels::ZONE, "DoNotSchedule")]});
    for spec in [by_spread, json!({"affinity": away_from("x", labels::ZONE)})] {
        let plan = plan(general().pods(pods("x", 1, "3", &spec)), types());
        assert!((dollars(&plan) - 0.12).abs() < 1e-9, "{spec}: {}", dollars(&plan));
    }
}

const ZONES: [(&str, &str, f64); 3] = [("a", "on-demand", 0.4), ("b", "on-demand", 0.4), ("c", "on-demand", 0.4)];

#[test]
fn pods_that_share_a_node_go_where_it_is_cheap_and_not_their_share() {
    let near_to_it =
        json!({"affinity": near("x", &[labels::HOSTNAME]), "spreads": [spread("y", labels::ZONE, "DoNotSchedule")]});
    let small = machine("small", 8, &[("b", "on-demand", 0.23), ("c", "on-demand", 0.29)]);
    let large = machine("large", 32, &[("a", "on-demand", 0.38), ("b", "on-demand", 0.44)]);
    let cluster = general().pods(pods("x", 1, "50m", &json!({}))).pods(pods("y", 1, "7", &near_to_it));
    assert_eq!(outline(&plan(cluster, vec![small, large])), (vec!["general"], 0.23));
}

#[test]
fn the_last_pod_of_a_spread_goes_to_the_zone_in_which_one_more_node_costs_least() {
    let spreads = json!({"spreads": [spread("x", labels::ZONE, "DoNotSchedule"), spread("x", labels::HOSTNAME, "DoNotSchedule")]});
    let small = machine("small", 2, &[("a", "on-demand", 0.03), ("b", "on-demand", 0.05), ("c", "on-demand", 0.04)]);
    let large = machine("large", 64, &[("b", "on-demand", 0.43), ("c", "on-demand", 0.47)]);
    let plan = plan(general().pods(pods("x", 4, "1", &spreads)), vec![small, large]);
    assert_eq!(outline(&plan), (vec!["general"; 4], 0.15));
}

#[test]
fn pods_of_a_heavier_pool_use_the_room_of_a_node_that_a_lighter_one_needs_in_a_zone_of_its_own() {
    let mut heavy = NodePool::named("heavy").require(NodeSelectorRequirement::new(labels::ZONE, Operator::In, ["a"]));
    heavy.spec.weight = Some(1);
    let types = || vec![machine("m", 16, &[("a", "on-demand", 0.78), ("b", "on-demand", 0.23)])];
    let rules = [
        json!({"spreads": [spread("x", labels::ZONE, "DoNotSchedule")]}),
        json!({"affinity": near("x", &[labels::ZONE])}),
    ];
    for rule in rules {
        let cluster = || Snapshot::builder().pool(heavy.clone()).pool(NodePool::named("light"));
        let pods_of_both = pods("pinned", 1, "1", &json!({"zone": "b"}));
        let both = plan(cluster().pods(pods("x", 1, "1", &rule)).pods(pods_of_both), types());
        assert_eq!(outline(&both), (vec!["light"], 0.23), "{rule}");
        let alone = plan(cluster().pods(pods("x", 1, "1", &rule)), types());
        assert_eq!(outline(&alone), (vec!["heavy"], 0.78), "no node of the lighter pool is needed: {rule}");
    }
}

#[test]
fn classes_go_together_to_the_zone_where_a_node_must_be_anyway() {
    let alone = |app: &str| pods(app, 1, "500m", &json!({"spreads": [spread(app, labels::ZONE, "DoNotSchedule")]}));
    let together = |app: &str| pods(app, 2, "500m", &json!({"affinity": near(app, &[labels::ZONE])}));
    for (first, second) in [(alone("s"), alone("t")), (alone("s"), together("t")), (together("s"), together("t"))] {
        let others = pods("pinned", 1, "500m", &json!({"zone": "c"}));
        let plan = plan(general().pods(first).pods(second).pods(others), vec![machine("m", 8, &ZONES)]);
        assert_eq!(outline(&plan), (vec!["general"], 0.4));
    }
}

#[test]
fn those_leave_a_zone_together_that_can_though_others_stay() {
    let in_zones = |app: &str| json!({"spreads": [spread(app, labels::ZONE, "DoNotSchedule")]});
    let cluster = general().pods(pods("web", 3, "500m", &in_zones("web")));
    let cluster = cluster.pods(pods("s", 1, "1500m", &in_zones("s"))).pods(pods("t", 1, "1500m", &in_zones("t")));
    let cluster = cluster.pods(pods("pinned", 1, "4", &json!({"zone": "c"})));
    let small = machine("small", 1, &ZONES.map(|(zone, capacity_type, _)| (zone, capacity_type, 0.1)));
    let plan = plan(cluster, vec![machine("large", 8, &ZONES), small]);
    assert_eq!(outline(&plan), (vec!["general"; 3], 0.6), "a large machine in c, and a small one each in a and b");
}

#[test]
fn all_pods_of_a_class_leave_a_zone_if_others_may_have_as_many_more() {
    for (max_skew, count) in [(2, 3), (2, 4), (3, 5)] {
        let mut rule = spread("web", labels::ZONE, "DoNotSchedule");
        rule["maxSkew"] = max_skew.into();
        let cluster = general().pods(pods("web", count, "250m", &json!({"spreads": [rule]})));
        let cluster =
            cluster.pods(pods("p", 1, "1", &json!({"zone": "b"}))).pods(pods("q", 1, "1", &json!({"zone": "c"})));
        let plan = plan(cluster, vec![machine("m", 8, &ZONES)]);
        assert_eq!(outline(&plan), (vec!["general"; 2], 0.8), "maxSkew {max_skew}");
    }
}

#[test]
fn a_pod_that_keeps_others_away_leaves_them_the_only_zone_they_have() {
    let lone = pods("lone", 1, "3", &json!({"affinity": away_from("bound", labels::ZONE)}));
    let bound = pods("bound", 3, "1", &json!({"zone": "b"}));
    let types = vec![machine("m", 4, &[("a", "on-demand", 0.3), ("b", "on-demand", 0.1)])];
    let plan = plan(general().pods(lone).pods(bound), types);
    assert!(plan.unplaced().is_empty(), "{:?}", plan.unplaced());
}

#[test]
fn pods_leave_the_room_of_a_zone_to_those_that_can_be_nowhere_else() {
    let free = pods("free", 1, "1", &json!({"spreads": [spread("free", labels::ZONE, "DoNotSchedule")]}));
    let bound = pods("bound", 4, "1", &json!({"zone": "a"}));
    let cluster = general().nodes([node("na", "a"), node("nb", "b")]).pods(free).pods(bound);
    let plan = plan(cluster, vec![machine("m", 4, &[("a", "on-demand", 1.4), ("b", "on-demand", 1.4)])]);
    assert!(plan.unplaced().is_empty() && plan.claims().is_empty(), "{:?}", plan.claims());
}

#[test]
fn pods_of_two_spreads_share_the_nodes_of_few_pairs_of_domains() {
    let spreads =
        json!([spread("x", labels::ZONE, "DoNotSchedule"), spread("x", "karpenter.sh/capacity-type", "DoNotSchedule")]);
    let zones = ["a", "b", "c"];
    let offerings: Vec<_> = zones.into_iter().flat_map(|z| [(z, "spot", 0.14), (z, "on-demand", 0.14)]).collect();
    let cluster = general().pods(pods("x", 6, "100m", &json!({"spreads": spreads})));
    let plan = plan(cluster, vec![machine("m", 4, &offerings)]);
    assert!(plan.unplaced().is_empty());
    assert_eq!(plan.claims().len(), 4, "{:?}", plan.claims());
}

#[test]
fn domains_that_lack_the_label_of_another_spread_do_not_count() {
    let zones = |name: &str, zone: &str| {
        NodePool::named(name).require(NodeSelectorRequirement::new(labels::ZONE, Operator::In, [zone]))
    };
    let mut racked = zones("racked", "a");
    racked.spec.template.metadata.labels.insert(RACK.to_owned(), "r1".to_owned());
    let hard = "DoNotSchedule";
    let both = json!({"spreads": [spread("x", labels::ZONE, hard), spread("x", RACK, hard)]});
    let cluster = Snapshot::builder().pools([racked, zones("plain", "b")]).pods(pods("x", 4, "1", &both));
    let offerings = [("a", "on-demand", 0.2), ("b", "on-demand", 0.2)];
    let plan = plan(cluster, vec![machine("m", 8, &offerings)]);
    assert!(plan.unplaced().is_empty(), "{:?}", plan.unplaced());
    assert!(plan.claims().iter().all(|claim| claim.node_pool == "racked"));
}

#[test]
fn pods_that_fit_nowhere_keep_no_others_waiting() {
    let mut huge = pods("huge", 1, "100", &json!({}));
    huge[0].metadata.labels.insert("app".to_owned(), "x".to_owned());
    let small = pods("x", 1, "1", &json!({"affinity": near("x", &[labels::HOSTNAME])}));
    let plan = plan(general().pods(huge).pods(small), vec![machine("m", 4, &[("a", "on-demand", 0.1)])]);
    assert_eq!(plan.unplaced().len(), 1);
    assert_eq!(plan.claims().len(), 1);
}

/// A pod of the application that can go to no other pool than one of which nothing is left.
fn stranded() -> Pod {
    let mut pod = pods("stranded", 1, "1", &json!({})).remove(0);
    pod.metadata.labels.insert("app".to_owned(), "x".to_owned());
    pod.spec.node_selector = read(json!({labels::NODE_POOL: "used-up"}));
    pod
}

#[test]
fn pods_for_which_limits_leave_no_node_keep_no_others_waiting() {
    let used_up = NodePool::named("used-up").limit("cpu", Quantity::from_units(2));
    let small = pods("x", 2, "1", &json!({"affinity": near("x", &[labels::HOSTNAME])}));
    let cluster = || general().pool(used_up.clone()).pods(vec![stranded()]).pods(small.clone());
    let types = || vec![machine("m", 4, &[("a", "on-demand", 0.1)])];
    let alone = plan(cluster(), types());
    assert_eq!((alone.unplaced().len(), alone.claims().len()), (1, 1), "{:?}", alone.unplaced());
    assert!(
        alone.why("default/stranded-0").to_string().contains("limit of cpu: 0 of 2 used"),
        "{:?}",
        alone.unplaced()
    );
    // Nor do those wait that are near to others which have a place.
    let ok = pods("ok", 1, "1", &json!({})).into_iter().map(|mut pod| {
        pod.metadata.labels.insert("app".to_owned(), "x".to_owned());
        pod
    });
    let client = pods("client", 1, "1", &json!({"affinity": near("x", &[labels::HOSTNAME])}));
    let beside = plan(cluster().pods(ok.collect::<Vec<_>>()).pods(client), types());
    assert_eq!(beside.unplaced().len(), 1, "{:?}", beside.unplaced());
}

#[test]
fn pods_are_near_to_those_that_have_room() {
    let near_them = pods("near", 1, "10m", &json!({"affinity": near("x", &[labels::ZONE])}));
    // One of the two has room.
    let cluster = general().nodes([node("na", "a")]).pods(pods("x", 2, "3", &json!({"zone": "a"}))).pods(near_them);
    let plan = plan(cluster, vec![machine("m", 4, &[("b", "on-demand", 0.1)])]);
    assert_eq!(plan.unplaced().len(), 1, "{:?}", plan.unplaced());
}

#[test]
fn pods_are_near_to_others_in_each_zone_that_has_such() {
    let in_zone = |name: &str, zone: &str| {
        let mut out = pods(name, 1, "3", &json!({"zone": zone}));
        out[0].metadata.labels.insert("app".into(), "x".into());
        out
    };
    let near_them = pods("near", 4, "800m", &json!({"affinity": near("x", &[labels::ZONE])}));
    let cluster = general().nodes([node("na", "a")]).pods(near_them).pods(in_zone("xa", "a")).pods(in_zone("xb", "b"));
    let plan = plan(cluster, vec![machine("m", 8, &[("b", "on-demand", 0.2)])]);
    assert!(plan.unplaced().is_empty(), "{:?}", plan.unplaced());
}

#[test]
fn the_one_that_others_are_near_to_takes_the_room_in_their_zone() {
    let mut near_them = pods("near", 1, "100m", &json!({"affinity": near("x", &[labels::ZONE])}));
    near_them[0].spec.node_selector = read(json!({labels::ZONE: "a"}));
    let full: Node = read(json!({
        "metadata": {"name": "na", "labels": {labels::ZONE: "a", labels::HOSTNAME: "na"}},
        "status": {"allocatable": {"cpu": "1500m", "pods": "110"}},
    }));
    let cluster = general().nodes([full, node("nb", "b")]).pods(pods("x", 4, "1", &json!({}))).pods(near_them);
    let plan = plan(cluster, vec![machine("m", 4, &[("a", "on-demand", 0.2), ("b", "on-demand", 0.2)])]);
    assert!(plan.unplaced().is_empty() && plan.claims().is_empty(), "{:?}", plan.claims());
}

#[test]
fn pods_that_share_a_node_go_where_one_is_large_enough() {
    let together = json!({"affinity": near("x", &[labels::ZONE, labels::HOSTNAME])});
    let types = vec![machine("small", 8, &[("b", "on-demand", 0.2)]), machine("large", 16, &[("c", "on-demand", 1.0)])];
    let plan = plan(general().pods(pods("x", 3, "3", &together)), types);
    assert!(plan.unplaced().is_empty(), "{:?}", plan.unplaced());
    assert_eq!(plan.claims().len(), 1);
}

#[test]
fn pods_take_the_room_of_a_zone_in_which_no_taint_asks_to_be_avoided() {
    let avoided = |name: &str, zone: &str| -> Node {
        let mut out = node(name, zone);
        out.spec.taints = vec![Taint::new("slow", "", TaintEffect::PreferNoSchedule)];
        out
    };
    let spec = json!({"spreads": [spread("x", labels::ZONE, "DoNotSchedule")]});
    let nodes = [avoided("na", "a"), avoided("nb", "b"), node("nc", "c")];
    let cluster = general().nodes(nodes).pods(pods("x", 1, "1", &spec));
    let plan = plan(cluster, vec![machine("m", 4, &[("a", "on-demand", 0.1), ("b", "on-demand", 0.2)])]);
    assert!(plan.unplaced().is_empty() && plan.claims().is_empty(), "{:?}", plan.claims());
}

#[test]
fn pods_with_rules_over_zones_go_to_the_heaviest_pool_all_the_same() {
    let mut heavy = NodePool::named("heavy");
    heavy.spec.weight = Some(10);
    let types = || vec![machine("m", 4, &[("a", "on-demand", 0.2), ("b", "on-demand", 0.1)])];
    heavy.spec.template.spec.requirements = read(json!([{"key": labels::ZONE, "operator": "In", "values": ["a"]}]));
    for spec in [
        json!({"spreads": [spread("x", labels::ZONE, "DoNotSchedule")]}),
        json!({"affinity": away_from("x", labels::ZONE)}),
        json!({"affinity": near("x", &[labels::ZONE])}),
    ] {
        let plan = plan(general().pool(heavy.clone()).pods(pods("x", 1, "1", &spec)), types());
        assert_eq!(plan.claims()[0].node_pool, "heavy", "{spec}");
    }
}

#[test]
fn a_pod_leaves_others_their_only_zone_though_a_limit_lets_it_have_no_cheap_node_elsewhere() {
    let types = vec![
        machine("small", 2, &[("a", "on-demand", 0.01)]),
        machine("medium", 8, &[("a", "on-demand", 0.22), ("b", "on-demand", 0.22)]),
        machine("large", 16, &[("b", "on-demand", 0.02)]),
    ];
    let limited = NodePool::named("limited").limit("cpu", Quantity::from_units(16));
    let cluster = Snapshot::builder().pool(limited).pods(pods(
        "x",
        1,
        "400m",
        &json!({"affinity": away_from("y", labels::ZONE)}),
    ));
    let plan = plan(cluster.pods(pods("y", 1, "200m", &json!({"zone": "a"}))), types);
    assert_eq!(outline(&plan), (vec!["limited"; 2], 0.23));
}

#[test]
fn where_a_limit_leaves_few_nodes_pods_of_a_spread_use_all_of_them() {
    let mut pool = NodePool::named("general");
    pool.spec.limits = read(json!({"nodes": "3"}));
    let mut two_more = spread("x", labels::ZONE, "DoNotSchedule");
    two_more["maxSkew"] = 2.into();
    let cluster = Snapshot::builder().pool(pool).pods(pods("x", 4, "3", &json!({"spreads": [two_more]})));
    let plan = plan(cluster, vec![machine("m", 4, &[("a", "on-demand", 0.2), ("b", "on-demand", 0.1)])]);
    assert_eq!((plan.claims().len(), plan.unplaced().len()), (3, 1), "{:?}", plan.unplaced());
}

#[test]
fn zones_share_the_nodes_that_a_limit_leaves_however_many_pods_wait() {
    let spec = json!({"spreads": [spread("x", labels::ZONE, "DoNotSchedule")]});
    for count in [12, 13, 20, 100] {
        let mut pool = NodePool::named("general");
        pool.spec.limits = read(json!({"nodes": "6"}));
        let cluster = Snapshot::builder().pool(pool).pods(pods("x", count, "2", &spec));
        let plan = plan(cluster, vec![machine("m", 4, &[("a", "on-demand", 0.2), ("b", "on-demand", 0.1)])]);
        assert_eq!((plan.claims().len(), plan.unplaced().len()), (6, count as usize - 12), "{:?}", plan.unplaced());
        let has_limit = |reason: &Reason| reason.to_string().contains("limit of nodes: 6 of 6 used");
        assert!(plan.unplaced().values().all(has_limit), "{:?}", plan.unplaced());
    }
}

#[test]
fn pods_are_spread_evenly_where_that_costs_less_than_what_the_spread_allows() {
    let zones = |price| [("a", "on-demand", price), ("b", "on-demand", price), ("c", "on-demand", price)];
    for max_skew in 1..4 {
        let mut spread = spread("x", labels::ZONE, "DoNotSchedule");
        spread["maxSkew"] = max_skew.into();
        let cluster = general().pods(pods("x", 6, "900m", &json!({"spreads": [spread]})));
        let plan = plan(cluster, vec![machine("s", 2, &zones(0.1)), machine("m", 4, &zones(0.2))]);
        assert_eq!(plan.hourly_cost().to_string(), "$0.3000/h", "maxSkew {max_skew}");
    }
}

#[test]
fn who_is_near_to_pods_that_a_limit_cuts_has_a_place_beside_them() {
    let mut pool = NodePool::named("general");
    pool.spec.limits = read(json!({"nodes": "1"}));
    let near_them = pods("near", 1, "100m", &json!({"affinity": near("x", &[labels::ZONE])}));
    let cluster = Snapshot::builder().pool(pool).pods(pods("x", 5, "1900m", &json!({}))).pods(near_them);
    let plan = plan(cluster, vec![machine("m", 8, &[("a", "on-demand", 0.2)])]);
    let left: Vec<String> = plan.unplaced().keys().map(ToString::to_string).collect();
    assert_eq!(left.len(), 1, "{left:?}");
    assert!(left[0].starts_with("default/x"), "{left:?}");
}

#[test]
fn room_that_a_rule_over_nodes_closes_draws_no_pods_to_its_zone() {
    let mut two_more = spread("x", labels::ZONE, "DoNotSchedule");
    two_more["maxSkew"] = 2.into();
    let spec = json!({"spreads": [two_more, spread("x", labels::HOSTNAME, "DoNotSchedule")]});
    let cluster = general().nodes([node("na", "a")]).pods(pods("x", 2, "1", &spec));
    let plan = plan(cluster, vec![machine("m", 4, &[("a", "on-demand", 0.2), ("b", "on-demand", 0.1)])]);
    assert!((dollars(&plan) - 0.1).abs() < 1e-9, "{:?}", plan.claims());
}

#[test]
fn the_order_of_rules_that_hold_together_makes_no_difference() {
    let both = |first: &str, second: &str| {
        let terms = [away_from("x", first), away_from("y", second)];
        let terms =
            terms.map(|term| term["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][0].clone());
        json!({"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}})
    };
    let (spec, mut turned) = (both(labels::HOSTNAME, labels::ZONE), both(labels::HOSTNAME, labels::ZONE));
    let all = &mut turned["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    all.as_array_mut().expect("two terms").reverse();
    let types = || vec![machine("m", 4, &[("a", "on-demand", 0.2), ("b", "on-demand", 0.1)])];
    let plans = [spec, turned].map(|spec| {
        let mut all = pods("x", 3, "1", &spec);
        // One pod is written in the other order than its like.
        all[1].spec.affinity.pod_anti_affinity.required.reverse();
        plan(general().pods(all).pods(pods("y", 1, "1", &json!({}))), types())
    });
    assert_eq!(plans[0], plans[1]);
}

#[test]
fn pods_that_keep_apart_stay_in_the_heaviest_pool_for_as_long_as_its_limits_allow() {
    let mut preferred = NodePool::named("preferred").limit("cpu", Quantity::from_units(12));
    preferred.spec.weight = Some(50);
    let apart = pods("web", 3, "1", &json!({"affinity": away_from("web", labels::HOSTNAME)}));
    let cluster = general().pool(preferred).pods(apart);
    let types = vec![machine("large", 8, &[("a", "on-demand", 0.15)]), machine("small", 4, &[("a", "on-demand", 0.2)])];
    let plan = plan(cluster, types);
    let in_preferred = plan.claims().iter().filter(|claim| claim.node_pool == "preferred").count();
    assert!(plan.unplaced().is_empty() && in_preferred >= 2, "{:?}", plan.claims());
}
