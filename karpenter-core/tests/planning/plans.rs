//! What plans look like, one behaviour a test.

mod labels_of_nodes;

use karpenter_core::{
    Catalogs, InstanceType, Offering, Plan, Planner, PlannerOptions, Price, Quantity, Requirement, ResourceName,
    Snapshot, SnapshotBuilder,
    api::{
        DaemonSet, Node, NodePool, NodeSelectorRequirement, Operator, Pod, PodBuilder, Taint, TaintEffect, Toleration,
        Workload,
    },
    labels,
};

/// A machine of so many CPUs with 4 GiB each, at 10 cents a CPU on demand and 4 on the spot market, in two zones.
fn machine(name: &str, cpu: i64) -> InstanceType {
    let capacity = [("cpu", Quantity::from_units(cpu)), ("memory", Quantity::from_bytes(cpu << 32))];
    let mut out = InstanceType::named(name, capacity);
    for zone in ["a", "b"] {
        for (capacity_type, cents) in [("on-demand", 10), ("spot", 4)] {
            out = out.offering(capacity_type, zone, dollars((cents * cpu) as f64 / 100.0));
        }
    }
    out
}

fn dollars(dollars: f64) -> Price {
    Price::per_hour(dollars).expect("not below zero")
}

fn machines() -> Vec<InstanceType> {
    vec![machine("small", 2), machine("medium", 8), machine("large", 32)]
}

fn solve(builder: SnapshotBuilder, types: Vec<InstanceType>) -> Plan {
    let snapshot = builder.build().expect("valid");
    let catalogs = Catalogs::shared(types, snapshot.pools()).expect("valid");
    Planner::default().plan(&snapshot, &catalogs)
}

fn with_pool(pool: NodePool) -> SnapshotBuilder {
    Snapshot::builder().pool(pool)
}

fn pool() -> NodePool {
    NodePool::named("general")
}

fn expression(key: &str, operator: Operator, values: &[&str]) -> NodeSelectorRequirement {
    NodeSelectorRequirement::new(key, operator, values.iter().copied())
}

fn read<T: serde::de::DeserializeOwned>(json: &str) -> T {
    serde_json::from_str(json).expect(json)
}

/// Pool, cheapest type, price and number of pods of each claim.
fn outline(plan: &Plan) -> Vec<String> {
    let line = |c: &karpenter_core::PlannedClaim| {
        format!("{} {} {} {}", c.node_pool, c.instance_types[0], c.cheapest_price.dollars_per_hour(), c.pods.len())
    };
    plan.claims().iter().map(line).collect()
}

/// Why the pod of this description has no place in the pool.
fn why_not(pool: NodePool, pod: PodBuilder) -> String {
    let plan = solve(with_pool(pool).pods(pod), machines());
    assert!(plan.claims().is_empty());
    plan.unplaced().values().next().expect("one pod").to_string()
}

#[test]
fn pods_share_the_node_that_is_cheapest_for_them() {
    let plan = solve(with_pool(pool()).pods(Pod::named("web").cpu("1").memory("3Gi").replicas(8)), machines());
    assert_eq!(outline(&plan), ["general medium 0.32 8"]);
    let claim = &plan.claims()[0];
    assert_eq!(*claim.instance_types, ["medium", "large"]);
    assert_eq!(claim.requests.to_string(), "cpu 8, memory 24Gi, pods 8");
    assert_eq!(plan.hourly_cost(), dollars(0.32));
    assert!(plan.is_complete());
    assert_eq!(
        plan.why("web-3").to_string(),
        "on a new node: medium or one other type of pool general at $0.3200/h for 8 pods"
    );
    assert_eq!(plan.why("nobody").to_string(), "not a pending pod");
}

#[test]
fn what_fits_no_further_type_is_kept_from_it() {
    let plan = solve(with_pool(pool()).pods(Pod::named("big").cpu("20")), machines());
    assert_eq!(*plan.claims()[0].instance_types, ["large"]);
}

#[test]
fn a_claim_is_narrowed_as_far_as_its_pods_need() {
    let pods =
        Pod::named("web").cpu("1").node_selector(labels::ZONE, "b").node_selector(labels::CAPACITY_TYPE, "on-demand");
    let plan = solve(with_pool(pool()).pods(pods), machines());
    let claim = &plan.claims()[0];
    assert_eq!(claim.cheapest_price, dollars(0.2));
    assert_eq!(
        claim.requirements.to_string(),
        "karpenter.sh/capacity-type In [on-demand], topology.kubernetes.io/zone In [b]"
    );
}

#[test]
fn terms_of_node_affinity_are_alternatives() {
    let pods =
        Pod::named("web").cpu("1").node_label_in(labels::ZONE, ["nowhere"]).node_label_in(labels::ARCH, ["amd64"]);
    assert_eq!(outline(&solve(with_pool(pool()).pods(pods), machines())), ["general small 0.08 1"]);
}

#[test]
fn heavier_pools_come_first_and_equal_ones_compete() {
    let named = |name: &str, weight, capacity_type| {
        let mut pool = NodePool::named(name).require(expression(labels::CAPACITY_TYPE, Operator::In, &[capacity_type]));
        pool.spec.weight = weight;
        pool
    };
    let pods = || Pod::named("web").cpu("1");
    let heavy = with_pool(named("cheap", None, "spot")).pool(named("heavy", Some(1), "on-demand")).pods(pods());
    assert_eq!(outline(&solve(heavy, machines())), ["heavy small 0.2 1"]);
    let equal = with_pool(named("cheap", Some(1), "spot")).pool(named("dear", Some(1), "on-demand")).pods(pods());
    assert_eq!(outline(&solve(equal, machines())), ["cheap small 0.08 1"]);
}

#[test]
fn limits_hold_for_whichever_type_is_bought_and_the_next_pool_takes_over() {
    let mut limited = pool().limit("cpu", Quantity::from_units(10));
    limited.spec.weight = Some(10);
    let pods = Pod::named("web").cpu("2").replicas(8);
    let plan = solve(with_pool(limited).pool(NodePool::named("rest")).pods(pods), machines());
    let in_limited = plan.claims().iter().filter(|c| c.node_pool == "general");
    let most = in_limited.map(|c| {
        c.instance_types
            .iter()
            .map(|t| match t.as_str() {
                "small" => 2,
                "medium" => 8,
                _ => 32,
            })
            .max()
            .expect("a type")
    });
    assert_eq!(most.sum::<i32>(), 10);
    assert!(plan.unplaced().is_empty());
}

/// Karpenter takes as much of a limit for each node as the largest type that the node may become, and goes on with the next pool.
#[test]
fn a_limit_keeps_no_plan_dearer_than_that_of_karpenter() {
    let named = |name: &str, capacity_type| {
        NodePool::named(name).require(expression(labels::CAPACITY_TYPE, Operator::In, &[capacity_type]))
    };
    let mut heavy = named("heavy", "on-demand").limit("cpu", Quantity::from_units(64));
    heavy.spec.weight = Some(10);
    let pods = || Pod::named("web").cpu("1").host_port(80).replicas(8);
    let alone = solve(with_pool(heavy.clone()).pods(pods()), machines());
    assert_eq!(outline(&alone), ["heavy small 0.2 1"; 8]);
    let mut plan = outline(&solve(with_pool(heavy).pool(named("light", "spot")).pods(pods()), machines()));
    plan.sort();
    let expected = [&["heavy small 0.2 1"; 2][..], &["light small 0.08 1"; 6]].concat();
    assert_eq!(plan, expected);
}

#[test]
fn limits_count_nodes_that_are_there() {
    let node: Node = read(
        r#"{"metadata":{"name":"n","labels":{"karpenter.sh/nodepool":"general"}},"status":{"capacity":{"cpu":"2"}}}"#,
    );
    let limited = pool().limit("nodes", Quantity::from_units(2));
    let plan = solve(with_pool(limited).node(node).pods(Pod::named("web").cpu("30").replicas(2)), machines());
    assert_eq!(plan.claims().len(), 1);
    assert_eq!(
        plan.why("web-1").to_string(),
        "without a place: pool general: 1 of 3 types: limit of nodes: 2 of 2 used, the rest is too small for any type \
         that fits; 2 of 3 types: cpu short by 22: 30 requested, 8 at most beside the daemons; \
         the one node there is cannot take it: short of cpu (by at least 30)"
    );
}

#[test]
fn limits_count_nodes_that_have_more_than_can_be_counted() {
    let node = |name: &str| -> Node {
        let labels = r#"{"karpenter.sh/nodepool":"general"}"#;
        let capacity = r#"{"cpu":"9223372036854775"}"#;
        read(&format!(r#"{{"metadata":{{"name":"{name}","labels":{labels}}},"status":{{"capacity":{capacity}}}}}"#))
    };
    let limited = pool().limit("cpu", Quantity::from_units(100));
    for count in 1..=3 {
        let nodes = ["a", "b", "c"].into_iter().take(count).map(node);
        let plan = solve(with_pool(limited.clone()).nodes(nodes).pods(Pod::named("web").cpu("1")), machines());
        assert_eq!(outline(&plan), [""; 0], "{count}");
    }
}

#[test]
fn room_that_there_is_comes_first() {
    let node: Node =
        read(r#"{"metadata":{"name":"n"},"status":{"allocatable":{"cpu":"3","memory":"8Gi","pods":"9"}}}"#);
    let plan = solve(with_pool(pool()).node(node).pods(Pod::named("web").cpu("1").replicas(4)), machines());
    assert_eq!(plan.existing()["n"].len(), 3);
    assert_eq!(plan.why("web-0").to_string(), "on n, which has room");
    assert_eq!(outline(&plan), ["general small 0.08 1"]);
}

#[test]
fn a_pod_that_only_a_node_can_take_is_not_crowded_out() {
    let node: Node = read(
        r#"{"metadata":{"name":"n","labels":{"disk":"fast"}},"status":{"allocatable":{"cpu":"2","memory":"8Gi","pods":"9"}}}"#,
    );
    let bound_to_it = Pod::named("z").cpu("2").node_selector("disk", "fast");
    let plan = solve(with_pool(pool()).node(node).pods(Pod::named("a").cpu("2")).pods(bound_to_it), machines());
    assert_eq!(plan.existing()["n"][0].name, "z");
    assert!(plan.unplaced().is_empty());
}

#[test]
fn daemons_take_room_where_they_run() {
    let daemonset: DaemonSet = read(
        r#"{"metadata":{"name":"d"},"spec":{"template":{"spec":{"nodeSelector":{"topology.kubernetes.io/zone":"a"},"containers":[{"resources":{"requests":{"cpu":"1"}}}]}}}}"#,
    );
    let plan =
        solve(with_pool(pool()).daemonset(daemonset).pods(Pod::named("web").cpu("2")), vec![machine("small", 2)]);
    let claim = &plan.claims()[0];
    assert_eq!(claim.requirements.get(labels::ZONE), Some(&Requirement::one_of(["b"])));
    assert_eq!(claim.requests.to_string(), "cpu 2, pods 1");
}

#[test]
fn a_machine_with_less_than_nothing_of_something_takes_no_pod() {
    let mut hollow = machine("hollow", 2);
    hollow.overhead.kube_reserved = [(ResourceName::Memory, Quantity::from_bytes(100 << 30))].into_iter().collect();
    let pods = Pod::named("p").cpu("1");
    let plan = solve(with_pool(pool()).pods(pods.clone()), vec![hollow.clone()]);
    let reason = plan.unplaced().values().next().expect("it is left").to_string();
    assert!(reason.contains("the system and the daemons alone need more than there is"), "{reason}");
    let plan = solve(with_pool(pool()).pods(pods), vec![hollow, machine("sound", 8)]);
    assert_eq!(*plan.claims()[0].instance_types, ["sound"]);
}

#[test]
fn taints_that_ask_to_be_avoided_are_avoided_while_there_is_another_way() {
    let mut avoided = pool();
    avoided.spec.weight = Some(10);
    avoided.spec.template.spec.taints = vec![Taint::new("slow", "", TaintEffect::PreferNoSchedule)];
    let pods = || Pod::named("web").cpu("1");
    let plan = solve(with_pool(avoided.clone()).pool(NodePool::named("rest")).pods(pods()), machines());
    assert_eq!(plan.claims()[0].node_pool, "rest");
    let tolerant =
        with_pool(avoided.clone()).pool(NodePool::named("rest")).pods(pods().toleration(Toleration::everything()));
    assert_eq!(solve(tolerant, machines()).claims()[0].node_pool, "general");
    assert_eq!(solve(with_pool(avoided).pods(pods()), machines()).claims()[0].node_pool, "general");
}

#[test]
fn offerings_that_cannot_be_bought_are_not_planned() {
    let snapshot = with_pool(pool()).pods(Pod::named("web").cpu("2")).build().expect("valid");
    let catalogs = Catalogs::shared(vec![machine("small", 2)], snapshot.pools()).expect("valid");
    let spot = |zone: &str| Offering::new("spot", zone, Price::ZERO).key("small");
    let plan = Planner::default().plan(&snapshot, &catalogs.without(&[spot("a"), spot("b")]));
    assert_eq!(plan.claims()[0].cheapest_price, dollars(0.2));
    let none = catalogs.without(&[spot("a"), spot("b"), Offering::new("on-demand", "a", Price::ZERO).key("small")]);
    let none = none.without(&[Offering::new("on-demand", "b", Price::ZERO).key("small")]);
    let plan = Planner::default().plan(&snapshot, &none);
    assert_eq!(
        plan.why("web").to_string(),
        "without a place: pool general: no offering that meets the requirements is available now"
    );
}

#[test]
fn a_claim_names_no_more_types_than_it_may() {
    let mut options = PlannerOptions::default();
    let snapshot = with_pool(pool()).pods(Pod::named("web").cpu("1")).build().expect("valid");
    let catalogs = Catalogs::shared(machines(), snapshot.pools()).expect("valid");
    for (most, expected) in [(0, &["small"][..]), (1, &["small"]), (2, &["small", "medium"])] {
        options.max_instance_types = most;
        assert_eq!(*Planner::new(options.clone()).plan(&snapshot, &catalogs).claims()[0].instance_types, *expected);
    }
}

#[test]
fn values_are_found_among_types_that_each_are_larger_in_another_way() {
    let of_family = |name: &str, cpu, memory_gib: i64, dollars_per_hour| {
        let capacity = [("cpu", Quantity::from_units(cpu)), ("memory", Quantity::from_bytes(memory_gib << 30))];
        let mut out = InstanceType::named(name, capacity).offering("on-demand", "a", dollars(dollars_per_hour));
        out.requirements.add("family", Requirement::one_of([&name[..1]]));
        out
    };
    let types = || vec![of_family("c-8", 8, 16, 0.3), of_family("r-4", 4, 32, 0.25)];
    let mut families = expression("family", Operator::Exists, &[]);
    families.min_values = Some(2);
    let limited = |cpu, memory_gib: i64| {
        let limited = pool().require(families.clone()).limit("cpu", Quantity::from_units(cpu));
        limited.limit("memory", Quantity::from_bytes(memory_gib << 30))
    };
    let web = || Pod::named("web").cpu("3").memory("10Gi").host_port(80).replicas(3);
    let plan = solve(with_pool(limited(1000, 1000)).pods(web()), types());
    assert_eq!(plan.claims().len(), 3);
    assert!(plan.claims().iter().all(|claim| *claim.instance_types == ["r-4", "c-8"]), "{:?}", outline(&plan));
    // Each may become one with 8 CPUs, or one with 32 GiB.
    assert_eq!(solve(with_pool(limited(23, 1000)).pods(web()), types()).claims().len(), 2);
    assert_eq!(solve(with_pool(limited(1000, 95)).pods(web()), types()).claims().len(), 2);
}

/// A pool that wants claims to name at least so many instance types.
fn several_types(min_values: u32) -> NodePool {
    let mut requirement = expression(labels::INSTANCE_TYPE, Operator::Exists, &[]);
    requirement.min_values = Some(min_values);
    pool().require(requirement)
}

#[test]
fn a_claim_names_as_many_values_as_its_pool_asks_for() {
    // Twelve pods would share a large machine, which is the only one that is large enough for all of them.
    let pods = || Pod::named("web").cpu("1").replicas(12);
    let plan = solve(with_pool(several_types(2)).pods(pods()), machines());
    assert!(plan.claims().iter().all(|c| c.instance_types.len() >= 2), "{:?}", outline(&plan));
    assert_eq!(plan.claims().iter().map(|c| c.pods.len()).sum::<usize>(), 12);
    let plan = solve(with_pool(several_types(3)).pods(pods()), machines());
    assert!(plan.claims().iter().all(|c| c.pods.len() == 2 && c.instance_types.len() == 3), "{:?}", outline(&plan));

    let plan = solve(with_pool(several_types(3)).pods(Pod::named("big").cpu("4")), machines());
    assert_eq!(
        plan.why("big").to_string(),
        "without a place: pool general: 2 of 3 types: minValues of node.kubernetes.io/instance-type: 3 asked for, \
         the types that fit have 2; 1 of 3 types: cpu short by 2: 4 requested, 2 at most beside the daemons"
    );
}

#[test]
fn a_node_that_is_made_anyway_takes_pods_of_a_heavier_pool_whatever_its_min_values() {
    let mut heavy = NodePool::named("heavy").require(expression(labels::INSTANCE_TYPE, Operator::In, &["small"]));
    heavy.spec.weight = Some(10);
    let pods = || vec![Pod::named("big").cpu("4"), Pod::named("little").cpu("1")];
    let with = |light| pods().into_iter().fold(with_pool(heavy.clone()).pool(light), SnapshotBuilder::pods);
    for light in [pool(), several_types(2)] {
        assert_eq!(outline(&solve(with(light), machines())), ["general medium 0.32 2"]);
    }
    // With the pod beside it fewer types would be large enough.
    assert_eq!(outline(&solve(with(several_types(3)), machines())), ["heavy small 0.08 1"]);
    let narrow = Pod::named("big").cpu("8");
    let builder = [narrow, Pod::named("little").cpu("1")];
    let builder = builder.into_iter().fold(with_pool(heavy).pool(several_types(2)), SnapshotBuilder::pods);
    assert_eq!(outline(&solve(builder, machines())), ["heavy small 0.08 1", "general medium 0.32 1"]);
}

#[test]
fn what_is_cut_from_a_claim_leaves_enough_values() {
    let mut requirement = expression("size", Operator::Exists, &[]);
    requirement.min_values = Some(2);
    let mut types: Vec<_> = (0..5).map(|i| machine(&format!("small-{i}"), 2)).chain([machine("large", 32)]).collect();
    for (i, instance_type) in types.iter_mut().enumerate() {
        instance_type.requirements.add("size", Requirement::one_of([if i < 5 { "small" } else { "large" }]));
    }
    let mut options = PlannerOptions::default();
    options.max_instance_types = 3;
    let snapshot = with_pool(pool().require(requirement)).pods(Pod::named("web").cpu("1")).build().expect("valid");
    let catalogs = Catalogs::shared(types, snapshot.pools()).expect("valid");
    let plan = Planner::new(options).plan(&snapshot, &catalogs);
    assert_eq!(*plan.claims()[0].instance_types, ["small-0", "small-1", "large"]);
}

#[test]
fn every_reason_names_what_is_in_the_way() {
    let mut tainted = pool();
    tainted.spec.template.spec.taints = vec![Taint::new("dedicated", "gpu", TaintEffect::NoSchedule)];
    let mut unready = pool();
    unready.status = read(r#"{"conditions":[{"type":"NodeClassReady","status":"False","reason":"NotFound"}]}"#);
    let mut unsure = pool();
    unsure.status = read(r#"{"conditions":[{"type":"Ready","status":"Unknown","reason":"Checking"}]}"#);
    let mut silent = pool();
    silent.status = read(r#"{"conditions":[{"type":"Ready","status":"Unknown"}]}"#);
    let mut invalid = pool();
    invalid.spec.weight = Some(1000);
    let zone = |zone: &str| expression(labels::ZONE, Operator::In, &[zone]);
    for (pool, pod, expected) in vec![
        (
            pool(),
            Pod::named("p").cpu("64"),
            "pool general: cpu short by 32: 64 requested, 32 at most beside the daemons",
        ),
        (
            pool(),
            Pod::named("p").request("example.com/gpu", "1"),
            "pool general: example.com/gpu short by 1: 1 requested, 0 at most beside the daemons",
        ),
        (tainted, Pod::named("p").cpu("1"), "pool general: taint dedicated=gpu:NoSchedule is not tolerated"),
        (
            pool().require(zone("a")),
            Pod::named("p").cpu("1").node_selector(labels::ZONE, "b"),
            "pool general: label topology.kubernetes.io/zone must be In [b], but nodes have a",
        ),
        (
            pool(),
            Pod::named("p").cpu("1").node_selector("team", "blue"),
            "pool general: label team must be In [blue], but nodes do not have it",
        ),
        (
            pool().require(zone("c")),
            Pod::named("p").cpu("1"),
            "pool general: no instance type meets the requirements of the pool",
        ),
        (
            pool(),
            Pod::named("p").cpu("1").node_selector("kubernetes.io/zone", "a"),
            "pool general: label kubernetes.io/zone must be In [a], but nodes do not have it \
             (they have topology.kubernetes.io/zone)",
        ),
        (unready, Pod::named("p").cpu("1"), "pool general: not ready: its condition NodeClassReady is False: NotFound"),
        (unsure, Pod::named("p").cpu("1"), "pool general: not ready: its condition Ready is Unknown: Checking"),
        (silent, Pod::named("p").cpu("1"), "pool general: not ready: its condition Ready is Unknown"),
        (invalid, Pod::named("p").cpu("1"), "pool general: not ready: spec.weight: 1000 is not from 1 to 100"),
        (
            pool().limit("cpu", Quantity::from_units(1)),
            Pod::named("p").cpu("1"),
            "pool general: limit of cpu: 0 of 1 used, the rest is too small for any type that fits",
        ),
    ] {
        assert_eq!(why_not(pool, pod), expected);
    }
}

#[test]
fn a_resource_that_is_taken_for_a_label_is_named() {
    let mut gpu = machine("gpu", 8);
    gpu.capacity.insert("example.com/gpu".into(), Quantity::from_units(1));
    let mut first_pool = pool();
    first_pool.metadata.name = "first".to_owned();
    first_pool.spec.weight = Some(2);
    gpu.node_pools = Some(vec!["general".to_owned()]);
    let why_not = |pod: PodBuilder| {
        let plan =
            solve(with_pool(pool()).pool(first_pool.clone()).pods(pod), [machines(), vec![gpu.clone()]].concat());
        plan.unplaced().values().next().map(ToString::to_string)
    };
    let hint = "label example.com/gpu must be In [1], but nodes do not have it \
                (example.com/gpu is a resource, not a label: ask for it under resources.limits)";
    let expected = format!("pool first: {hint}; pool general: {hint}");
    assert_eq!(why_not(Pod::named("p").cpu("1").node_selector("example.com/gpu", "1")), Some(expected));
    let other = why_not(Pod::named("p").cpu("1").node_selector("example.com/tpu", "1")).expect("no node has the label");
    assert!(!other.contains("resource"), "{other}");
    assert_eq!(why_not(Pod::named("p").cpu("1").request("example.com/gpu", "1")), None);
    // Where nodes do have the label, its value is what is wrong.
    gpu.requirements.add("example.com/gpu", Requirement::one_of(["yes"]));
    let plan = solve(
        with_pool(pool()).pods(Pod::named("p").cpu("1").node_selector("example.com/gpu", "1")),
        vec![gpu.clone()],
    );
    let reason = plan.unplaced().values().next().map(ToString::to_string);
    assert_eq!(reason.as_deref(), Some("pool general: label example.com/gpu must be In [1], but nodes have yes"));
}

#[test]
fn a_million_cores_may_be_a_slip_of_the_shift_key() {
    let hint = "(M is a million cores, m a thousandth of one)";
    for (cpu, is_hinted) in [("1M", true), ("500M", true), ("1000000", true), ("999999", false), ("64", false)] {
        let reason = why_not(pool(), Pod::named("p").cpu(cpu));
        assert_eq!(reason.ends_with(hint), is_hinted, "{reason}");
    }
    let memory = why_not(pool(), Pod::named("p").memory("100Ti"));
    assert!(memory.starts_with("pool general: memory short by ") && !memory.contains(hint), "{memory}");
}

#[test]
fn what_is_not_handled_is_said_to_be_unsupported() {
    let pod: Pod = read(
        r#"{"metadata":{"name":"p"},"spec":{"resourceClaims":[{"name":"c"}]},"status":{"conditions":[{"type":"PodScheduled","status":"False","reason":"Unschedulable"}]}}"#,
    );
    let plan = solve(with_pool(pool()).pods(pod), machines());
    assert_eq!(plan.why("p").to_string(), "without a place: unsupported: spec.resourceClaims");
}

#[test]
fn a_running_pod_keeps_others_away() {
    let running = || -> Pod {
        read(
            r#"{"metadata":{"name":"alone"},"spec":{"nodeName":"n","affinity":{"podAntiAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":[{"topologyKey":"kubernetes.io/hostname","labelSelector":{"matchLabels":{"app":"web"}}}]}}}}"#,
        )
    };
    let node = || -> Node {
        read(r#"{"metadata":{"name":"n"},"status":{"allocatable":{"cpu":"3","memory":"8Gi","pods":"9"}}}"#)
    };
    let plan =
        |app| solve(with_pool(pool()).node(node()).pods(running()).pods(Pod::named("p").label("app", app)), machines());
    assert!(plan("web").existing().is_empty() && plan("web").claims().len() == 1);
    assert!(plan("api").claims().is_empty());
}

#[test]
fn a_host_port_is_one_pods_alone() {
    let pods = || Pod::named("web").cpu("100m").host_port(80).replicas(3);
    let plan = solve(with_pool(pool()).pods(pods()).pods(Pod::named("other").cpu("100m").host_port(81)), machines());
    let counts: Vec<_> = plan.claims().iter().map(|c| c.pods.len()).collect();
    assert_eq!(counts, [2, 1, 1]);

    let node: Node =
        read(r#"{"metadata":{"name":"n"},"status":{"allocatable":{"cpu":"3","memory":"8Gi","pods":"9"}}}"#);
    let plan = solve(with_pool(pool()).node(node).pods(pods()), machines());
    assert_eq!((plan.existing()["n"].len(), plan.claims().len()), (1, 2));
}

#[test]
fn pods_that_must_share_a_node_take_no_port_twice() {
    let mut pods: Vec<Pod> = ["host", "guest"]
        .into_iter()
        .flat_map(|name| {
            let pod = Pod::named(name).label("app", name).cpu("100m").host_port(80);
            Workload::from(pod).into_pods().expect("valid")
        })
        .collect();
    pods[1].spec.affinity.pod_affinity.required =
        read(r#"[{"labelSelector":{"matchLabels":{"app":"host"}},"topologyKey":"kubernetes.io/hostname"}]"#);
    let plan = solve(with_pool(pool()).pods(pods), machines());
    assert_eq!((plan.claims().len(), plan.unplaced().len()), (1, 1));
}

#[test]
fn a_port_that_a_daemon_takes_is_taken_where_it_runs() {
    let daemonset = |selector: &str| -> DaemonSet {
        read(&format!(
            r#"{{"metadata":{{"name":"d"}},"spec":{{"template":{{"spec":{{{selector}"containers":[{{"ports":[{{"hostPort":80}}]}}]}}}}}}}}"#
        ))
    };
    let pods = || Pod::named("web").cpu("100m").host_port(80);
    let everywhere = with_pool(pool()).daemonset(daemonset("")).pods(pods());
    assert_eq!(
        solve(everywhere, machines()).why("web").to_string(),
        "without a place: pool general: host port 0.0.0.0:80/TCP is taken by a daemon"
    );
    let in_a = daemonset(r#""nodeSelector":{"topology.kubernetes.io/zone":"a"},"#);
    let plan = solve(with_pool(pool()).daemonset(in_a).pods(pods()), machines());
    assert_eq!(plan.claims()[0].requirements.get(labels::ZONE), Some(&Requirement::one_of(["b"])));
}

#[test]
fn an_invalid_pod_does_not_stop_the_others() {
    let bad = Pod::named("bad").node_affinity([expression("a", Operator::Gt, &["many"])]);
    let plan = solve(with_pool(pool()).pods(bad).pods(Pod::named("good").cpu("1")), machines());
    assert_eq!(plan.claims().len(), 1);
    assert_eq!(
        plan.why("bad").to_string(),
        "without a place: invalid: spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution\
         .nodeSelectorTerms[0].matchExpressions[0].values: Gt takes one whole number, not [\"many\"]"
    );
}

#[test]
fn without_pools_there_is_one_reason() {
    let plan = solve(Snapshot::builder().pods(Pod::named("p")), machines());
    assert_eq!(plan.why("p").to_string(), "without a place: there is no node pool");
}
