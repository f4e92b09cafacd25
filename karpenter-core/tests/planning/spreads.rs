//! What a spread counts.

use std::collections::BTreeMap;

use karpenter_core::{
    Catalogs, InstanceType, Plan, PlannedClaim, Planner, Price, Quantity, Snapshot,
    api::{Node, NodePool, NodeSelectorRequirement, Operator, Pod, Taint, TaintEffect, Workload},
    labels,
};
use serde_json::{Value, json};

fn read<T: serde::de::DeserializeOwned>(json: Value) -> T {
    serde_json::from_value(json).expect("a Kubernetes object")
}

/// Pods of one application; `spec` is added to what they ask for.
fn pods(name: &str, count: u32, spec: &Value) -> Vec<Pod> {
    let pod = Pod::named(name).label("app", "web").cpu("100m").replicas(count);
    let mut out = Workload::from(pod).into_pods().expect("valid");
    for pod in &mut out {
        pod.spec.affinity = read(spec.get("affinity").cloned().unwrap_or_else(|| json!({})));
        pod.spec.topology_spread_constraints = read(spec.get("spreads").cloned().unwrap_or_else(|| json!([])));
    }
    out
}

fn spread(key: &str, action: &str) -> Value {
    let selector = json!({"matchLabels": {"app": "web"}});
    json!({"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": action, "labelSelector": selector})
}

/// A spread over zones that may differ by so many pods.
fn with_max_skew(max_skew: u32) -> Value {
    let mut out = spread(labels::ZONE, "DoNotSchedule");
    out["maxSkew"] = json!(max_skew);
    out
}

fn solve(pools: Vec<NodePool>, zones: &[&str], nodes: Vec<Node>, pods: Vec<Pod>) -> Plan {
    let capacity = [("cpu", Quantity::from_units(2)), ("memory", Quantity::from_bytes(8 << 30))];
    let mut machine = InstanceType::named("machine", capacity);
    for (index, zone) in zones.iter().enumerate() {
        for (capacity_type, price) in [("spot", 0.1), ("on-demand", 0.2)] {
            let price = Price::per_hour(price + index as f64 / 100.0).expect("not below zero");
            machine = machine.offering(capacity_type, zone, price);
        }
    }
    let builder = pools.into_iter().fold(Snapshot::builder(), karpenter_core::SnapshotBuilder::pool);
    let snapshot = builder.nodes(nodes).pods(pods).build().expect("valid");
    let catalogs = Catalogs::shared(vec![machine], snapshot.pools()).expect("valid");
    Planner::default().plan(&snapshot, &catalogs)
}

/// Where each pod of a name goes, as values of a label of its claim.
fn values_of(plan: &Plan, key: &str, name: &str) -> BTreeMap<String, Vec<String>> {
    let claims = plan.claims().iter().flat_map(|claim| claim.pods.iter().map(move |pod| (claim, pod)));
    let of_name = claims.filter(|(_, pod)| pod.name.starts_with(name));
    let values = of_name.map(|(claim, pod)| {
        let values = claim.requirements.get(key).into_iter().flat_map(karpenter_core::Requirement::values);
        (pod.name.clone(), values.map(str::to_owned).collect())
    });
    values.collect()
}

#[test]
fn pods_on_nodes_that_the_spread_does_not_count_raise_no_domain() {
    let mut labelled = NodePool::named("labelled");
    labelled.spec.template.metadata.labels.insert("team".to_owned(), "y".to_owned());
    let by_type = spread("karpenter.sh/capacity-type", "DoNotSchedule");
    let of_team = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms":
        [{"matchExpressions": [{"key": "team", "operator": "In", "values": ["y"]}]}]}}});
    let anywhere = pods("anywhere", 1, &json!({"spreads": [by_type]}));
    let bound = pods("bound", 2, &json!({"spreads": [by_type], "affinity": of_team}));
    let plan = solve(vec![NodePool::named("general"), labelled], &["a"], Vec::new(), [anywhere, bound].concat());
    assert!(plan.unplaced().is_empty());
    let types = values_of(&plan, "karpenter.sh/capacity-type", "bound");
    assert_ne!(types["bound-0"], types["bound-1"]);
}

#[test]
fn pods_count_for_spreads_of_others_that_count_all_nodes_on_which_they_may_be() {
    let tolerations = json!([{"key": "team", "operator": "Equal", "value": "y", "effect": "NoSchedule"}]);
    let unplaced = |taints: Value| {
        let mut general = NodePool::named("general");
        general.spec.template.spec.taints = read(taints);
        let mut lenient = with_max_skew(2);
        lenient["nodeTaintsPolicy"] = json!("Honor");
        let mut lenient = pods("lenient", 3, &json!({"spreads": [lenient]}));
        let mut strict = pods("strict", 4, &json!({"spreads": [with_max_skew(1)]}));
        for pod in &mut strict {
            pod.spec.node_selector.insert(labels::NODE_POOL.to_owned(), "general".to_owned());
            pod.spec.tolerations = read(json!([{"operator": "Exists"}]));
        }
        for pod in &mut lenient {
            pod.spec.tolerations = read(tolerations.clone());
        }
        let plan = solve(vec![general], &["a", "b", "c"], Vec::new(), [lenient, strict].concat());
        plan.unplaced().len()
    };
    assert_eq!(unplaced(json!([])), 0);
    assert_eq!(unplaced(json!([{"key": "team", "value": "y", "effect": "NoSchedule"}])), 0);
}

#[test]
fn pods_that_may_come_to_nodes_without_another_label_of_the_spreads_raise_no_domain() {
    let unplaced = |labels_of_node: Value| {
        let node = |name: &str, labels: &Value, pods: &str| -> Node {
            read(json!({
                "metadata": {"name": name, "labels": labels},
                "status": {"allocatable": {"cpu": "1", "memory": "2Gi", "pods": pods}},
            }))
        };
        let in_zone_b = json!({labels::ZONE: "b", labels::CAPACITY_TYPE: "spot"});
        let nodes = vec![node("full", &in_zone_b, "0"), node("n", &labels_of_node, "1")];
        let zonal = pods("zonal", 1, &json!({"spreads": [spread(labels::ZONE, "DoNotSchedule")]}));
        // Both of these are to run in zone a, where the second is one too many unless a pod counts in zone b.
        let mut zones = spread(labels::ZONE, "DoNotSchedule");
        zones["nodeAffinityPolicy"] = json!("Ignore");
        let in_zone_a = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms":
            [{"matchExpressions": [{"key": labels::ZONE, "operator": "In", "values": ["a"]}]}]}}});
        let both = json!({"spreads": [zones, spread(labels::CAPACITY_TYPE, "DoNotSchedule")], "affinity": in_zone_a});
        let new = [zonal, pods("bound", 2, &both)].concat();
        let plan = solve(vec![NodePool::named("general")], &["a", "b"], nodes, new);
        plan.unplaced().len()
    };
    assert_eq!(unplaced(json!({labels::ZONE: "b", labels::CAPACITY_TYPE: "spot"})), 0);
    assert_eq!(unplaced(json!({labels::ZONE: "b"})), 1);
}

#[test]
fn a_label_that_no_node_has_is_named() {
    let web = pods("web", 1, &json!({"spreads": [spread("example.com/rack", "DoNotSchedule")]}));
    let plan = solve(vec![NodePool::named("general")], &["a"], Vec::new(), web);
    let reasons: Vec<String> = plan.unplaced().values().map(ToString::to_string).collect();
    assert_eq!(reasons, ["spread or affinity over example.com/rack: no node that it can have has this label"]);
}

#[test]
fn a_domain_in_which_no_waiting_pod_can_have_a_node_does_not_count() {
    let mut tainted = NodePool::named("tainted");
    let in_zone = |zone: &str| read(json!([{"key": labels::ZONE, "operator": "In", "values": [zone]}]));
    tainted.spec.template.spec.requirements = in_zone("b");
    tainted.spec.template.spec.taints = read(json!([{"key": "gpu", "effect": "NoSchedule"}]));
    let mut general = NodePool::named("general");
    general.spec.template.spec.requirements = in_zone("a");
    let pools = vec![general, tainted];
    let spread = json!({"spreads": [spread(labels::ZONE, "DoNotSchedule")]});
    let unplaced = |further: Vec<Pod>| {
        let all = [pods("web", 2, &spread), further].concat();
        solve(pools.clone(), &["a", "b"], Vec::new(), all).unplaced().len()
    };
    assert_eq!(unplaced(Vec::new()), 0);
    // A node that this one gets in zone b is an empty domain of the spread.
    let mut tolerant =
        Workload::from(Pod::named("gpu").cpu("1").node_selector(labels::ZONE, "b")).into_pods().expect("valid");
    tolerant[0].spec.tolerations = read(json!([{"operator": "Exists"}]));
    assert_eq!(unplaced(tolerant), 1);
}

#[test]
fn a_domain_counts_only_if_a_node_that_the_spread_counts_is_there_for_a_waiting_pod() {
    let with = |name: &str, capacity_type: &str| {
        let mut pool = NodePool::named(name);
        let in_type = json!([{"key": labels::CAPACITY_TYPE, "operator": "In", "values": [capacity_type]}]);
        pool.spec.template.spec.requirements = read(in_type);
        pool
    };
    let mut tainted = with("tainted", "spot");
    tainted.spec.template.spec.taints = read(json!([{"key": "spot", "effect": "NoSchedule"}]));
    // In zone a it would have to be spot, which none of the pods tolerates.
    let terms = json!([
        {"matchExpressions": [{"key": labels::ZONE, "operator": "In", "values": ["b"]}]},
        {"matchExpressions": [{"key": labels::CAPACITY_TYPE, "operator": "In", "values": ["spot"]}]},
    ]);
    let affinity =
        json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}});
    let spread = json!({"spreads": [spread(labels::ZONE, "DoNotSchedule")], "affinity": affinity});
    // Another pod may have a node in zone a, which does not count.
    let all = [pods("web", 5, &spread), pods("other", 1, &json!({}))].concat();
    let plan = solve(vec![with("general", "on-demand"), tainted], &["a", "b"], Vec::new(), all);
    assert_eq!(plan.unplaced().len(), 0, "{plan:?}");
}

#[test]
fn a_pool_that_leaves_a_label_open_adds_a_domain_without_a_name() {
    let rack = |operator, values: &[&str]| {
        NodePool::named("general").require(NodeSelectorRequirement::new("rack", operator, values.iter().copied()))
    };
    let mut open = rack(Operator::Exists, &[]);
    open.metadata.name = "open".to_owned();
    let named = rack(Operator::In, &["r1", "r2"]);
    for (pools, left) in [(vec![named.clone()], 0), (vec![named, open], 1)] {
        let plan =
            solve(pools, &["a"], Vec::new(), pods("web", 3, &json!({"spreads": [spread("rack", "DoNotSchedule")]})));
        assert_eq!(plan.unplaced().len(), left, "{:?}", plan.unplaced());
        // A node without any of the pods may have any value.
        assert!(
            plan.unplaced().values().all(|reason| reason.to_string().contains("(any other): 0")),
            "{:?}",
            plan.unplaced()
        );
    }
}

#[test]
fn nodes_without_the_label_of_a_wish_are_counted_by_the_other_spreads() {
    let node: Node = read(json!({
        "metadata": {"name": "n", "labels": {labels::ZONE: "a"}},
        "status": {"allocatable": {"cpu": "1", "memory": "2Gi", "pods": "2"}},
    }));
    let mut running = pods("running", 1, &json!({}));
    running[0].spec.node_name = "n".to_owned();
    let spreads = [spread("karpenter.sh/capacity-type", "ScheduleAnyway"), spread(labels::ZONE, "DoNotSchedule")];
    let new = pods("new", 1, &json!({"spreads": spreads}));
    let plan = solve(vec![NodePool::named("general")], &["a", "b"], vec![node], [running, new].concat());
    assert_eq!(values_of(&plan, labels::ZONE, "new")["new-0"], ["b"]);
}

fn node(name: &str, zone: &str, is_going: bool) -> Node {
    let mut node: Node = read(json!({
        "metadata": {"name": name, "labels": {labels::ZONE: zone, labels::NODE_POOL: "general"}},
        "status": {"allocatable": {"cpu": "2", "memory": "8Gi", "pods": "9"}},
    }));
    node.metadata.deletion_timestamp = is_going.then(karpenter_core::Timestamp::default);
    node
}

/// A running pod.
fn on(node: &str, mut pod: Pod) -> Pod {
    node.clone_into(&mut pod.spec.node_name);
    pod
}

#[test]
fn a_node_that_goes_is_a_domain_for_as_long_as_something_holds_it() {
    let is_placed = |held: Option<&str>| {
        let mut running = vec![on("stays", pods("running", 1, &json!({})).remove(0))];
        running.extend(held.map(|name| {
            let mut pod = on("goes", Workload::from(Pod::named(name)).into_pods().expect("valid").remove(0));
            pod.metadata.annotations.insert(labels::DO_NOT_DISRUPT.to_owned(), "true".to_owned());
            pod
        }));
        let next = pods("next", 1, &json!({"spreads": [spread(labels::ZONE, "DoNotSchedule")]}));
        let nodes = vec![node("stays", "b", false), node("goes", "a", true)];
        solve(vec![NodePool::named("general")], &["b"], nodes, [running, next].concat()).unplaced().is_empty()
    };
    assert!(is_placed(None));
    assert!(!is_placed(Some("other")), "zone a has no pod, and nothing can be bought there");
}

#[test]
fn pods_that_are_held_on_a_node_that_goes_count_where_they_are() {
    let fits_in_the_room = |one_is_held: bool| {
        let mut running = pods("running", 2, &json!({}));
        running[0].spec.node_name = "stays".to_owned();
        running[1].spec.node_name = "goes".to_owned();
        running[1].metadata.annotations.insert(labels::DO_NOT_DISRUPT.to_owned(), "true".to_owned());
        running.truncate(if one_is_held { 2 } else { 1 });
        let next = pods("next", 1, &json!({"spreads": [spread(labels::ZONE, "DoNotSchedule")]}));
        // There is room beside the pod that runs in the zone of the node that goes, but it is one too many there.
        let nodes = vec![node("stays", "b", false), node("goes", "a", true), node("room", "a", false)];
        let plan = solve(vec![NodePool::named("general")], &["a", "b", "c"], nodes, [running, next].concat());
        assert!(plan.unplaced().is_empty());
        plan.existing().values().flatten().any(|pod| pod.name == "next-0")
    };
    assert!(!fits_in_the_room(true), "a new node of zone c is needed");
    assert!(fits_in_the_room(false), "a node that goes is no domain of its own");
}

#[test]
fn pods_with_rules_over_zones_take_the_room_that_is_free_in_any_of_them() {
    let away = |term: &str| {
        let terms = json!([{"topologyKey": labels::ZONE, "labelSelector": {"matchLabels": {"app": "web"}}}]);
        json!({"affinity": {term: {"requiredDuringSchedulingIgnoredDuringExecution": terms}}})
    };
    let zones = ["a", "b", "c", "d"];
    for (rule, count, with_node) in [
        (away("podAntiAffinity"), 1, &["d"][..]),
        (away("podAntiAffinity"), 2, &["d", "b"]),
        (away("podAffinity"), 9, &["d"]),
        (json!({"spreads": [spread(labels::ZONE, "DoNotSchedule")]}), 2, &["d", "b"]),
        (json!({"spreads": [spread(labels::ZONE, "ScheduleAnyway")]}), 1, &["d"]),
        (json!({"spreads": [with_max_skew(2)]}), 4, &["d", "b"]),
    ] {
        let nodes = with_node.iter().map(|zone| node(&format!("in-{zone}"), zone, false)).collect();
        let plan = solve(vec![NodePool::named("general")], &zones, nodes, pods("new", count, &rule));
        assert!(plan.claims().is_empty() && plan.unplaced().is_empty(), "{rule}: {:?}", plan.claims());
    }
}

#[test]
fn a_spread_that_lets_zones_differ_makes_no_more_nodes_than_it_must() {
    for (max_skew, count, nodes) in [(1, 3, 3), (2, 2, 1), (2, 3, 2), (3, 6, 2), (4, 4, 1), (2, 7, 3)] {
        let rule = json!({"spreads": [with_max_skew(max_skew)]});
        let plan = solve(vec![NodePool::named("general")], &["a", "b", "c"], Vec::new(), pods("new", count, &rule));
        assert_eq!((plan.claims().len(), plan.unplaced().len()), (nodes, 0), "maxSkew {max_skew}, {count} pods");
    }
}

#[test]
fn a_pod_in_the_emptiest_zone_lets_others_take_the_room_that_there_is() {
    let rule = json!({"spreads": [with_max_skew(2)]});
    let nodes = ["a", "b"].map(|zone| node(&format!("in-{zone}"), zone, false));
    let plan = solve(vec![NodePool::named("general")], &["a", "b", "c"], nodes.to_vec(), pods("new", 6, &rule));
    let new: Vec<usize> = plan.claims().iter().map(|claim| claim.pods.len()).collect();
    assert_eq!((new, plan.unplaced().len()), (vec![1], 0));
}

#[test]
fn pods_of_a_spread_leave_the_room_of_a_zone_to_larger_ones() {
    let with_room = |name: &str, zone: &str, cpu: &str| {
        let mut node = node(name, zone, false);
        node.status.allocatable.insert("cpu".into(), cpu.parse().expect("a quantity"));
        node
    };
    let nodes =
        [("a1", "a", "200m"), ("a2", "a", "100m"), ("b1", "b", "100m"), ("b2", "b", "100m"), ("a3", "a", "50m")];
    let nodes = nodes.map(|(name, zone, cpu)| with_room(name, zone, cpu)).to_vec();
    let hosts = spread(labels::HOSTNAME, "DoNotSchedule");
    let mut all = pods("web", 3, &json!({"spreads": [with_max_skew(1), hosts]}));
    all[0] = on("b2", all[0].clone());
    let large = Pod::named("large").cpu("200m");
    let small = Pod::named("small").cpu("50m").host_port(80);
    for others in [large, small] {
        all.extend(Workload::from(others).into_pods().expect("valid"));
    }
    let plan = solve(vec![NodePool::named("general")], &["a", "b"], nodes, all);
    assert!(plan.claims().is_empty() && plan.unplaced().is_empty(), "{:?}", plan.claims());
}

#[test]
fn pods_that_share_a_host_are_spread_over_zones_only_as_far_as_that_lets_them() {
    let terms = json!([{"topologyKey": labels::HOSTNAME, "labelSelector": {"matchLabels": {"app": "web"}}}]);
    let near = json!({"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}});
    for (zones, action, count) in
        [(&["a"][..], "DoNotSchedule", 5), (&["a", "b"], "ScheduleAnyway", 5), (&["a"], "ScheduleAnyway", 20)]
    {
        let spec = json!({"affinity": near, "spreads": [spread(labels::ZONE, action)]});
        let plan = solve(vec![NodePool::named("general")], zones, Vec::new(), pods("new", count, &spec));
        assert_eq!((plan.claims().len(), plan.unplaced().len()), (1, 0), "{action}: {:?}", plan.unplaced());
    }
}

#[test]
fn a_wish_costs_no_other_pod_its_place() {
    let term = |app: &str| json!({"topologyKey": labels::HOSTNAME, "labelSelector": {"matchLabels": {"app": app}}});
    let apart = json!([{"weight": 1, "podAffinityTerm": term("needy")}]);
    let wishing = pods(
        "wishing",
        1,
        &json!({"affinity": {
        "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": apart}}}),
    );
    let mut needy = pods(
        "needy",
        1,
        &json!({"affinity": {
        "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term("web")]}}}),
    );
    needy[0].metadata.labels.insert("app".to_owned(), "needy".to_owned());
    let plan = solve(vec![NodePool::named("general")], &["a"], Vec::new(), [wishing, needy].concat());
    assert_eq!((plan.claims().len(), plan.unplaced().len()), (1, 0), "{:?}", plan.unplaced());
}

/// Five pods that are spread over zones a and b, and one that may also be on the tainted nodes of a pool of its own in zone c, which
/// has this weight.
fn beside_a_special_pool(weight: Option<u32>, wanted: Value) -> Plan {
    let in_zones = |zones: &[&str]| NodeSelectorRequirement::new(labels::ZONE, Operator::In, zones.iter().copied());
    let mut special_pool = NodePool::named("special").require(in_zones(&["c"]));
    special_pool.spec.weight = weight;
    special_pool.spec.template.spec.taints = vec![Taint::new("special", "", TaintEffect::NoSchedule)];
    let general = NodePool::named("general").require(in_zones(&["a", "b"]));
    // It takes a whole machine.
    let mut tool = Workload::from(Pod::named("tool").label("app", "tool").cpu("2")).into_pods().expect("valid");
    tool[0].spec.tolerations = read(json!([{"operator": "Exists"}]));
    tool[0].spec.node_selector = read(wanted);
    let web = pods("web", 5, &json!({"spreads": [with_max_skew(1)]}));
    solve(vec![general, special_pool], &["a", "b", "c"], Vec::new(), [tool, web].concat())
}

#[test]
fn no_node_is_made_in_a_domain_that_would_only_keep_pods_out_of_others() {
    let plan = beside_a_special_pool(None, json!({}));
    assert!(plan.unplaced().is_empty(), "{:?}", plan.unplaced());
    assert!(values_of(&plan, labels::ZONE, "").values().flatten().all(|zone| zone != "c"));
}

#[test]
fn neither_does_a_pod_wait_nor_come_to_a_lighter_pool_so_that_others_can_go_to_other_domains() {
    for (weight, wanted) in [(None, json!({labels::ZONE: "c"})), (Some(10), json!({}))] {
        let plan = beside_a_special_pool(weight, wanted);
        let left: Vec<_> = plan.unplaced().keys().map(ToString::to_string).collect();
        assert_eq!(left, ["default/web-2", "default/web-3", "default/web-4"], "{weight:?}");
        assert!(plan.claims().iter().any(|claim| claim.node_pool == "special"), "{weight:?}");
    }
}

#[test]
fn no_domain_of_another_label_is_given_up_so_that_others_can_go_to_other_domains() {
    let pool = |name: &str, zones: &[&str]| {
        let zones = NodeSelectorRequirement::new(labels::ZONE, Operator::In, zones.iter().copied());
        let mut pool = NodePool::named(name).require(zones);
        pool.spec.template.metadata.labels.insert("team".to_owned(), name.to_owned());
        pool
    };
    let mut special = pool("special", &["c"]);
    special.spec.template.spec.taints = vec![Taint::new("special", "", TaintEffect::NoSchedule)];
    let by_team = json!({"maxSkew": 1, "topologyKey": "team", "whenUnsatisfiable": "DoNotSchedule",
                         "labelSelector": {"matchLabels": {"app": "tool"}}});
    let mut tools =
        Workload::from(Pod::named("tool").label("app", "tool").cpu("100m").replicas(2)).into_pods().expect("valid");
    for tool in &mut tools {
        tool.spec.tolerations = read(json!([{"operator": "Exists"}]));
        tool.spec.topology_spread_constraints = read(json!([by_team]));
    }
    let web = pods("web", 5, &json!({"spreads": [with_max_skew(1)]}));
    let plan = solve(vec![pool("general", &["a", "b"]), special], &["a", "b", "c"], Vec::new(), [tools, web].concat());
    let has_tool = |claim: &&PlannedClaim| claim.pods.iter().any(|pod| pod.name.starts_with("tool"));
    let pools: Vec<&str> = plan.claims().iter().filter(has_tool).map(|claim| &*claim.node_pool).collect();
    assert_eq!(pools, ["general", "special"]);
    assert_eq!(plan.unplaced().len(), 3, "{:?}", plan.unplaced());
}

/// Each rack has room for as many pods as there are nodes; every pod has a spread of its own, so that it may be in any.
#[test]
fn many_workloads_fill_the_room_of_very_many_domains() {
    const RACK: &str = "example.com/rack";
    let of_rack = |index: usize| -> Node {
        read(json!({
            "metadata": {"name": format!("n{index}"), "labels": {RACK: format!("r{:02}", index % 40)}},
            "status": {"allocatable": {"cpu": "100m", "pods": "1"}},
        }))
    };
    let alone = |index: usize| {
        let name = format!("web{index}");
        let mut spread = spread(RACK, "DoNotSchedule");
        spread["labelSelector"] = json!({"matchLabels": {"name": name}});
        let mut own = pods(&name, 1, &json!({"spreads": [spread]}));
        own[0].metadata.labels.insert("name".to_owned(), name);
        own
    };
    let nodes = (0..1200).map(of_rack).collect();
    let plan = solve(Vec::new(), &[], nodes, (0..1200).flat_map(alone).collect());
    assert_eq!((plan.unplaced().len(), plan.existing().len()), (0, 1200));
}
