//! Which wishes of pods are kept, and in which order they are given up.

use karpenter_core::{
    Catalogs, InstanceType, Plan, Planner, PlannerOptions, Price, Quantity, Snapshot, SnapshotBuilder,
    api::{
        InclusionPolicy, Node, NodePool, NodeSelectorRequirement, Operator, Pod, PodBuilder, Taint, TaintEffect,
        Toleration, Workload,
    },
    labels,
    schedule::PreferencePolicy,
};
use serde_json::{Value, json};

/// The labels that the wishes are about, one each, in the order in which the wishes must be given up.
const ORDER: [&str; 9] = [
    "near-heavy",
    "near-light",
    "away-heavy",
    "away-light",
    "node-heavy",
    "node-light",
    "spread-first",
    "spread-last",
    "spread-middle",
];

fn read<T: serde::de::DeserializeOwned>(json: Value) -> T {
    serde_json::from_value(json).expect("a Kubernetes object")
}

fn machine(price: f64) -> InstanceType {
    let capacity = [("cpu", Quantity::from_units(8)), ("memory", Quantity::from_bytes(32 << 30))];
    let price = Price::per_hour(price).expect("not below zero");
    InstanceType::named("machine", capacity).offering("on-demand", "a", price).offering("on-demand", "b", price)
}

fn plan(builder: SnapshotBuilder, preferences: PreferencePolicy) -> Plan {
    let snapshot = builder.build().expect("valid");
    let catalogs = Catalogs::shared(vec![machine(0.4)], snapshot.pools()).expect("valid");
    let mut options = PlannerOptions::default();
    options.preferences = preferences;
    Planner::new(options).plan(&snapshot, &catalogs)
}

/// A pod that wishes every label of [`ORDER`] to be `yes`, each in the way that its name says. The terms of each kind
/// are written lightest first, and a hard spread stands between the others.
fn pod_of_wishes() -> Pod {
    let term = |app: &str, key: &str| json!({"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": key});
    let weighted = |weight: i32, app: &str, key: &str| json!({"weight": weight, "podAffinityTerm": term(app, key)});
    let node = |weight: i32, key: &str| {
        let expression = json!({"key": key, "operator": "In", "values": ["yes"]});
        json!({"weight": weight, "preference": {"matchExpressions": [expression]}})
    };
    let spread = |key: &str, action: &str| {
        let selector = json!({"matchLabels": {"app": "foe"}});
        json!({"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": action, "labelSelector": selector})
    };
    let affinity = json!({
        "podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution":
            [weighted(1, "friend", "near-light"), weighted(100, "friend", "near-heavy")]},
        "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution":
            [weighted(1, "foe", "away-light"), weighted(100, "foe", "away-heavy")]},
        "nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution":
            [node(1, "node-light"), node(100, "node-heavy")]},
    });
    let spreads = json!([
        spread("spread-first", "ScheduleAnyway"),
        spread(labels::ZONE, "DoNotSchedule"),
        spread("spread-middle", "ScheduleAnyway"),
        spread("spread-last", "ScheduleAnyway"),
    ]);
    let mut pod =
        Workload::from(Pod::named("wisher").label("app", "foe").cpu("1")).into_pods().expect("valid").remove(0);
    pod.spec.affinity = read(affinity);
    pod.spec.topology_spread_constraints = read(spreads);
    pod
}

/// A pool whose nodes have all labels of [`ORDER`], with either value unless they are among `denied`.
fn pool_without(name: &str, denied: &[&str]) -> NodePool {
    ORDER.iter().fold(NodePool::named(name), |pool, key| {
        let values = if denied.contains(key) { vec!["no"] } else { vec!["no", "yes"] };
        pool.require(NodeSelectorRequirement::new(*key, Operator::In, values))
    })
}

/// Two full nodes: one with a friend and `yes` for all labels, one with foes and `no`.
fn neighbours() -> (Vec<Node>, Vec<Pod>) {
    let node = |name: &str, value: &str, zone: &str| -> Node {
        let mut labels: serde_json::Map<String, Value> =
            ORDER.iter().map(|key| ((*key).to_owned(), json!(value))).collect();
        labels.insert(labels::ZONE.to_owned(), json!(zone));
        read(
            json!({"metadata": {"name": name, "labels": labels}, "status": {"allocatable": {"cpu": "0", "pods": "9"}}}),
        )
    };
    let running = |name: &str, app: &str, node: &str| -> Pod {
        let metadata = json!({"name": name, "namespace": "default", "labels": {"app": app}});
        let spec = json!({"nodeName": node, "containers": [{"name": "main"}]});
        read(json!({"metadata": metadata, "spec": spec, "status": {"phase": "Running"}}))
    };
    let nodes = vec![node("liked", "yes", "a"), node("disliked", "no", "b")];
    let pods = vec![
        running("friend", "friend", "liked"),
        running("foe-0", "foe", "disliked"),
        running("foe-1", "foe", "disliked"),
    ];
    (nodes, pods)
}

/// The labels that the only claim of a plan fixes to `yes`, in the order of [`ORDER`].
fn kept(plan: &Plan) -> Vec<&'static str> {
    let [claim] = plan.claims() else { panic!("{plan:?}") };
    let is_kept = |key: &&str| claim.requirements.get(key).is_some_and(|r| r.values().eq(["yes"]));
    ORDER.into_iter().filter(is_kept).collect()
}

fn kept_without(denied: &[&str], preferences: PreferencePolicy) -> Vec<&'static str> {
    let (nodes, pods) = neighbours();
    let builder = Snapshot::builder().pool(pool_without("general", denied)).nodes(nodes).pods(pods);
    kept(&plan(builder.pods(pod_of_wishes()), preferences))
}

#[test]
fn wishes_are_given_up_in_a_fixed_order() {
    // A wish that cannot be met costs those before it too. Of the nodes wished for only the heaviest that is left counts.
    let table: [(&[&str], &str); 12] = [
        (&[], "near-heavy near-light away-heavy away-light node-heavy spread-first spread-last spread-middle"),
        (&["near-heavy"], "near-light away-heavy away-light node-heavy spread-first spread-last spread-middle"),
        (&["near-light"], "away-heavy away-light node-heavy spread-first spread-last spread-middle"),
        (&["away-heavy"], "away-light node-heavy spread-first spread-last spread-middle"),
        (&["away-light"], "node-heavy spread-first spread-last spread-middle"),
        (&["node-heavy"], "node-light spread-first spread-last spread-middle"),
        (&["node-heavy", "node-light"], "spread-first spread-last spread-middle"),
        (&["spread-first"], "spread-last spread-middle"),
        (&["spread-last"], "spread-middle"),
        (&["spread-middle"], ""),
        // The lighter wish for a node is not looked at while the heavier one is met.
        (
            &["node-light"],
            "near-heavy near-light away-heavy away-light node-heavy spread-first spread-last spread-middle",
        ),
        (&["near-heavy", "spread-last"], "spread-middle"),
    ];
    for (denied, expected) in table {
        assert_eq!(kept_without(denied, PreferencePolicy::Respect).join(" "), expected, "without {denied:?}");
    }
}

#[test]
fn wishes_that_are_ignored_narrow_nothing() {
    assert_eq!(kept_without(&[], PreferencePolicy::Ignore), [""; 0]);
}

/// A pool whose taint asks pods to keep off, lighter than others.
fn pool_to_avoid(denied: &[&str]) -> NodePool {
    let mut pool = pool_without("avoided", denied);
    pool.spec.template.spec.taints.push(Taint::new("avoid", "", TaintEffect::PreferNoSchedule));
    pool
}

#[test]
fn that_a_taint_asks_to_keep_off_is_the_last_wish_to_be_given_up() {
    let outline = |general: NodePool, denied: &[&str]| {
        let (nodes, pods) = neighbours();
        let builder = Snapshot::builder().pool(general).pool(pool_to_avoid(denied)).nodes(nodes).pods(pods);
        let plan = plan(builder.pods(pod_of_wishes()), PreferencePolicy::Respect);
        format!("{}: {}", plan.claims()[0].node_pool, kept(&plan).join(" "))
    };
    let general = |denied: &[&str]| pool_without("general", denied);
    assert_eq!(outline(general(&ORDER[..8]), &ORDER[..8]), "general: spread-middle");
    assert_eq!(outline(general(&ORDER), &ORDER), "general: ");
    // All other wishes go before this one.
    assert_eq!(outline(general(&ORDER), &[]), "general: ");
    assert_eq!(outline(general(&[]).limit("cpu", Quantity::ZERO), &ORDER), "avoided: ");
}

#[test]
fn pods_keep_off_a_pool_that_is_heavier_and_cheaper() {
    let of_zone = |name: &str, zone: &str| {
        NodePool::named(name).require(NodeSelectorRequirement::new(labels::ZONE, Operator::In, vec![zone]))
    };
    let mut avoided = of_zone("avoided", "a");
    avoided.spec.weight = Some(10);
    avoided.spec.template.spec.taints.push(Taint::new("avoid", "", TaintEffect::PreferNoSchedule));
    let builder = Snapshot::builder().pool(avoided).pool(of_zone("general", "b")).pods(Pod::named("pod").cpu("1"));
    let snapshot = builder.build().expect("valid");
    let price = |dollars| Price::per_hour(dollars).expect("not below zero");
    let capacity = [("cpu", Quantity::from_units(8)), ("memory", Quantity::from_bytes(32 << 30))];
    let machine = InstanceType::named("machine", capacity);
    let machine = machine.offering("on-demand", "a", price(0.1)).offering("on-demand", "b", price(0.4));
    let catalogs = Catalogs::shared(vec![machine], snapshot.pools()).expect("valid");
    let plan = Planner::default().plan(&snapshot, &catalogs);
    assert_eq!(plan.claims()[0].node_pool, "general");
}

#[test]
fn where_limits_send_some_pods_to_what_they_avoid_those_go_for_whom_there_is_room() {
    let general = NodePool::named("general").limit("cpu", Quantity::from_units(4));
    let mut avoided = NodePool::named("avoided");
    avoided.spec.template.spec.taints.push(Taint::new("avoid", "", TaintEffect::PreferNoSchedule));
    let roomy: Node = read(json!({
        "metadata": {"name": "roomy", "labels": {}},
        "spec": {"taints": [{"key": "avoid", "effect": "PreferNoSchedule"}]},
        "status": {"allocatable": {"cpu": "2", "memory": "32Gi", "pods": "9"}},
    }));
    let builder = Snapshot::builder().pool(general).pool(avoided).nodes([roomy]);
    let builder = builder.pods(Pod::named("cpu").cpu("400m").memory("100Mi").replicas(10));
    let snapshot = builder.pods(Pod::named("memory").cpu("500m").memory("6Gi").replicas(4)).build().expect("valid");
    let capacity = [("cpu", Quantity::from_units(4)), ("memory", Quantity::from_bytes(8 << 30))];
    let machine = InstanceType::named("machine", capacity);
    let machine = machine.offering("on-demand", "a", Price::per_hour(0.1).expect("not below zero"));
    let catalogs = Catalogs::shared(vec![machine], snapshot.pools()).expect("valid");
    let plan = Planner::default().plan(&snapshot, &catalogs);
    let pools: Vec<&str> = plan.claims().iter().map(|claim| claim.node_pool.as_str()).collect();
    assert_eq!((pools, plan.existing()["roomy"].len()), (vec!["general"], 4), "{plan:?}");
}

#[test]
fn a_pod_that_tolerates_the_taint_minds_it_not() {
    let mut pod = pod_of_wishes();
    pod.spec.tolerations.push(Toleration::of_key("avoid"));
    let (nodes, pods) = neighbours();
    let builder = Snapshot::builder().pool(pool_to_avoid(&ORDER[..7])).nodes(nodes).pods(pods).pods(pod);
    assert_eq!(kept(&plan(builder, PreferencePolicy::Respect)), ["spread-last", "spread-middle"]);
}

/// So many pods of so much CPU, each of which wishes to be in another domain of a label than the others.
fn apart(key: &str, count: u32, cpu: &str) -> Vec<Pod> {
    let pods = Pod::named("web").label("app", "web").cpu(cpu).replicas(count);
    let mut pods = Workload::from(pods).into_pods().expect("valid");
    let term = json!({"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": key});
    for pod in &mut pods {
        pod.spec.affinity.pod_anti_affinity.preferred = read(json!([{"weight": 1, "podAffinityTerm": term}]));
    }
    pods
}

/// Eight pods, each of which wishes to be alone on its node.
fn loners() -> Vec<Pod> {
    apart(labels::HOSTNAME, 8, "1")
}

/// A node that no pool made, with eight CPUs and room for so many pods.
fn free_node(labels: &Value, pods: u32) -> Node {
    read(json!({
        "metadata": {"name": "free", "labels": labels},
        "status": {"allocatable": {"cpu": "8", "memory": "32Gi", "pods": pods.to_string()}},
    }))
}

#[test]
fn pods_that_wish_to_be_alone_share_a_node_if_wishes_are_ignored() {
    let sizes = |pool: NodePool, preferences| {
        let plan = plan(Snapshot::builder().pool(pool).pods(loners()), preferences);
        plan.claims().iter().map(|c| c.pods.len()).collect::<Vec<_>>()
    };
    let pool = || NodePool::named("general");
    assert_eq!(sizes(pool(), PreferencePolicy::Respect), [1; 8]);
    assert_eq!(sizes(pool(), PreferencePolicy::Ignore), [8]);
    // A wish uses up no more nodes than limits allow, and costs no pod its place.
    let two = || pool().limit("cpu", Quantity::from_units(16));
    let respected = sizes(two(), PreferencePolicy::Respect);
    assert_eq!((respected.len(), respected.iter().sum::<usize>()), (2, 8));
    assert_eq!(sizes(two(), PreferencePolicy::Ignore), [8]);
}

#[test]
fn wishes_of_any_weight_are_planned_for() {
    let term = json!({"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": labels::HOSTNAME});
    let expression = json!({"key": labels::ZONE, "operator": "In", "values": ["b"]});
    for weight in [i32::MIN, -1, 0, i32::MAX] {
        let of_pods = json!({"preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": weight, "podAffinityTerm": term}, {"weight": 1, "podAffinityTerm": term},
        ]});
        let of_nodes = json!({"preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": weight, "preference": {"matchExpressions": [expression]}},
            {"weight": 1, "preference": {"matchExpressions": [expression]}},
        ]});
        let affinity = json!({"podAffinity": of_pods, "podAntiAffinity": of_pods, "nodeAffinity": of_nodes});
        let pod = Pod::named("web").label("app", "web").cpu("1");
        let mut pods = Workload::from(pod).into_pods().expect("valid");
        pods[0].spec.affinity = read(affinity);
        for policy in [PreferencePolicy::Respect, PreferencePolicy::Ignore, PreferencePolicy::Weigh] {
            let builder = Snapshot::builder().pool(NodePool::named("p")).pods(pods.clone());
            assert!(plan(builder, policy).unplaced().is_empty(), "{weight} {policy:?}");
        }
    }
}

#[test]
fn a_wish_takes_no_room_for_which_another_node_must_be_bought() {
    let free = free_node(&json!({labels::ZONE: "c"}), 1);
    let large = Workload::from(Pod::named("large").cpu("7")).into_pods().expect("valid");
    let mut small = Workload::from(Pod::named("small").cpu("1").replicas(8)).into_pods().expect("valid");
    let expression = json!({"key": labels::ZONE, "operator": "In", "values": ["c"]});
    for pod in &mut small {
        let wish = json!([{"weight": 1, "preference": {"matchExpressions": [expression]}}]);
        pod.spec.affinity.node_affinity.preferred = read(wish);
    }
    for policy in [PreferencePolicy::Respect, PreferencePolicy::Ignore] {
        let builder = Snapshot::builder().pool(NodePool::named("general")).nodes([free.clone()]);
        let plan = plan(builder.pods(large.clone()).pods(small.clone()), policy);
        assert_eq!((plan.unplaced().len(), plan.claims().len()), (0, 1), "{policy:?}");
    }
}

/// A machine of so many CPUs, on demand at these prices in the zones a, b and so on.
fn sold(name: &str, cpu: i64, prices: &[f64]) -> InstanceType {
    let capacity = [("cpu", Quantity::from_units(cpu)), ("memory", Quantity::from_bytes(cpu << 32))];
    let zones = ["a", "b", "c"].into_iter().zip(prices);
    zones.fold(InstanceType::named(name, capacity), |own, (zone, &price)| {
        own.offering("on-demand", zone, Price::per_hour(price).expect("not below zero"))
    })
}

fn plan_with(types: Vec<InstanceType>, builder: SnapshotBuilder) -> Plan {
    let snapshot = builder.build().expect("valid");
    let catalogs = Catalogs::shared(types, snapshot.pools()).expect("valid");
    let plan = Planner::default().plan(&snapshot, &catalogs);
    assert!(plan.unplaced().is_empty(), "{:?}", plan.unplaced());
    plan
}

/// Each node in the making takes as much of a limit as the largest machine that it may become.
#[test]
fn a_wish_is_worth_no_node_for_which_karpenter_takes_the_limit_for_used_up() {
    let nodes = |pool: NodePool| {
        let mut avoided = NodePool::named("avoided");
        avoided.spec.template.spec.taints.push(Taint::new("avoid", "", TaintEffect::PreferNoSchedule));
        let types = vec![sold("small", 8, &[0.4]), sold("large", 96, &[4.8])];
        plan_with(types, Snapshot::builder().pools([pool, avoided]).pods(loners())).claims().len()
    };
    assert_eq!(nodes(NodePool::named("general")), 8);
    assert!(nodes(NodePool::named("general").limit("cpu", Quantity::from_units(200))) <= 3);
}

/// The first pod may still be in any zone when the second comes.
#[test]
fn a_wish_to_be_in_another_zone_than_all_others_is_worth_no_dearer_zone() {
    let builder = Snapshot::builder().pool(NodePool::named("p")).pods(apart(labels::ZONE, 4, "1500m"));
    let plan = plan_with(vec![sold("m", 2, &[0.1, 0.2])], builder);
    assert!((plan.hourly_cost().dollars_per_hour() - 0.4).abs() < 1e-9, "{:?}", plan.claims());
}

/// Of a node that exists it is known where it is.
#[test]
fn a_wish_to_be_in_another_zone_is_kept_where_the_first_pod_has_a_node() {
    let free = free_node(&json!({labels::ZONE: "a"}), 10);
    let builder = Snapshot::builder().pool(NodePool::named("p")).nodes([free]).pods(apart(labels::ZONE, 4, "1500m"));
    let plan = plan_with(vec![sold("m", 2, &[0.1, 0.2])], builder);
    assert_eq!((plan.claims().len(), plan.existing()["free"].len()), (1, 3), "{:?}", plan.claims());
}

/// The first pod that has no room there may still be in any other zone when the next comes.
#[test]
fn a_wish_to_be_in_another_zone_than_all_others_is_worth_one_new_node_beside_those_that_exist() {
    let free = free_node(&json!({labels::ZONE: "a"}), 10);
    let builder = Snapshot::builder().pool(NodePool::named("p")).nodes([free]).pods(apart(labels::ZONE, 3, "1500m"));
    let plan = plan_with(vec![sold("m", 2, &[0.1, 0.2, 0.9])], builder);
    assert_eq!((plan.claims().len(), plan.existing()["free"].len()), (1, 2), "{:?}", plan.claims());
}

/// The largest pods come first, when there is nobody yet to be near to, and once there is, the node may be full.
#[test]
fn a_wish_to_be_near_to_others_is_worth_no_node() {
    let pods = |pod: PodBuilder, affinity: Value| {
        let mut pods = Workload::from(pod).into_pods().expect("valid");
        for pod in &mut pods {
            pod.spec.affinity = read(affinity.clone());
        }
        pods
    };
    let term = |app: &str| json!({"topologyKey": labels::HOSTNAME, "labelSelector": {"matchLabels": {"app": app}}});
    let wish = json!([{"weight": 1, "podAffinityTerm": term("cache")}]);
    let near = json!({"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": wish}});
    let apart = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term("batch")]}});
    let claims = |cache: &str| {
        let all = [
            pods(Pod::named("cache").label("app", "cache").cpu(cache), json!({})),
            pods(Pod::named("web").cpu("900m").replicas(4), near.clone()),
            pods(Pod::named("batch").label("app", "batch").cpu("1").replicas(2), apart.clone()),
        ];
        let builder = Snapshot::builder().pool(NodePool::named("p")).pods(all.concat());
        plan_with(vec![sold("m", 4, &[0.2]), sold("l", 5, &[0.25])], builder).claims().len()
    };
    assert_eq!(["20m", "900m", "950m"].map(claims), [2, 2, 2]);
}

/// A zone that only other pools have counts as empty for a spread, and stays so.
#[test]
fn a_wish_for_a_spread_is_worth_no_node_once_karpenter_gives_it_up() {
    let zones = |name: &str, zones: &[&str]| {
        let zones = NodeSelectorRequirement::new(labels::ZONE, Operator::In, zones.iter().copied());
        let mut pool = NodePool::named(name).require(zones);
        pool.spec.template.metadata.labels.insert("team".to_owned(), name.to_owned());
        pool
    };
    let free = free_node(&json!({labels::ZONE: "a", "team": "ours"}), 10);
    let pod = Pod::named("web").label("app", "web").cpu("1500m").node_selector("team", "ours");
    let mut pods = Workload::from(pod.replicas(4)).into_pods().expect("valid");
    for pod in &mut pods {
        pod.spec.topology_spread_constraints = read(json!([{
            "maxSkew": 1, "topologyKey": labels::ZONE, "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": {"app": "web"}},
        }]));
    }
    let nodes = |pools: Vec<NodePool>, pods: &[Pod]| {
        let builder = Snapshot::builder().pools(pools).nodes([free.clone()]).pods(pods.to_vec());
        plan_with(vec![sold("m", 2, &[0.1; 3])], builder).claims().len()
    };
    let (ours, mut theirs) = (zones("ours", &["a", "b"]), zones("theirs", &["c"]));
    assert_eq!(nodes(vec![ours.clone()], &pods), 2);
    assert_eq!(nodes(vec![ours.clone(), theirs.clone()], &pods), 1);
    theirs.spec.template.spec.taints.push(Taint::new("theirs", "", TaintEffect::NoSchedule));
    assert_eq!(
        nodes(vec![ours.clone(), theirs.clone()], &pods),
        1,
        "taints make no difference unless they are honoured"
    );
    for pod in &mut pods {
        pod.spec.topology_spread_constraints[0].node_taints_policy = Some(InclusionPolicy::Honor);
    }
    assert_eq!(nodes(vec![ours, theirs], &pods), 2);
}
