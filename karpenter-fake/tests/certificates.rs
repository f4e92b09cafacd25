//! Lower bounds of random problems are proven, are never above what plans cost, and cannot be raised.

use std::collections::BTreeMap;

use karpenter_core::{
    Catalogs, InstanceType, Offering, Plan, Planner, Price, Quantity, Requirement, Snapshot, SnapshotBuilder,
    api::{
        DaemonSet, Node, NodePool, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Operator, PersistentVolume,
        PersistentVolumeClaim, Pod, PodBuilder, Toleration, Workload,
    },
    labels,
    schedule::{Certificate, Worth},
    strategies,
};
use karpenter_fake::{CertificateError, check_certificate};
use proptest::prelude::*;
use serde_json::json;

/// A plan of a problem with its certificate, and what that proves.
fn prove(snapshot: &Snapshot, catalogs: &Catalogs) -> (Plan, Certificate, Result<Price, CertificateError>) {
    let planner = Planner::default();
    let problem = planner.prepare(snapshot, catalogs);
    let plan = problem.solve();
    let certificate = problem.certify(&plan);
    let proven = check_certificate(snapshot, catalogs, &plan, &certificate);
    (plan, certificate, proven)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn every_bound_is_proven_and_below_the_plan(problem in strategies::problem(12)) {
        let (snapshot, catalogs) = (problem.snapshot(), problem.catalogs().expect("a valid catalog"));
        let (plan, certificate, proven) = prove(&snapshot, &catalogs);
        let proven = proven.map_err(|error| TestCaseError::fail(error.to_string()))?;
        prop_assert!(certificate.lower_bound <= proven);
        prop_assert!(
            proven.dollars_per_hour() <= plan.hourly_cost().dollars_per_hour() + 1e-9,
            "{proven} is above {}", plan.hourly_cost()
        );
    }

    #[test]
    fn a_bound_that_is_raised_is_refused(problem in strategies::problem(12)) {
        let (snapshot, catalogs) = (problem.snapshot(), problem.catalogs().expect("a valid catalog"));
        let (plan, mut certificate, proven) = prove(&snapshot, &catalogs);
        let proven = proven.expect("it is proven");
        let claimed = Price::per_hour(proven.dollars_per_hour() * 1.01 + 1e-6).expect("a price");
        certificate.lower_bound = claimed;
        let refused = check_certificate(&snapshot, &catalogs, &plan, &certificate);
        prop_assert_eq!(refused, Err(CertificateError::ClaimsTooMuch { claimed, proven }));
    }
}

proptest! {
    #[test]
    fn no_set_of_nodes_is_cheaper_than_the_bound(
        pods in proptest::collection::vec((1..9_i64, 1..9_i64), 1..7),
        types in proptest::collection::vec((4..17_i64, 4..17_i64, 1..20_u32), 1..4),
    ) {
        let named = |(i, &(cpus, gibibytes, cents)): (usize, &(i64, i64, u32))| {
            machine(&format!("m{i}"), cpus, gibibytes).offering("on-demand", "a", dollars(f64::from(cents) / 100.0))
        };
        let builder = pods.iter().enumerate().fold(general(), |builder, (i, (cpus, gibibytes))| {
            builder.pods(Pod::named(format!("p{i}")).cpu(cpus.to_string().as_str()).memory(format!("{gibibytes}Gi").as_str()))
        });
        let (snapshot, catalogs) = problem(builder, types.iter().enumerate().map(named).collect());
        let (plan, _, proven) = prove(&snapshot, &catalogs);
        prop_assume!(plan.unplaced().is_empty());
        let least = cheapest(&pods, &types).expect("the plan has places for all");
        prop_assert!(proven.expect("it is proven").dollars_per_hour() <= f64::from(least) / 100.0 + 1e-9);
    }
}

/// What the cheapest set of nodes costs, in cents an hour: tries every division of the pods among nodes.
fn cheapest(pods: &[(i64, i64)], types: &[(i64, i64, u32)]) -> Option<u32> {
    let one_node = |set: usize| {
        let chosen = || (0..pods.len()).filter(|i| set >> i & 1 == 1).map(|i| pods[i]);
        let (cpus, gibibytes): (i64, i64) = (chosen().map(|p| p.0).sum(), chosen().map(|p| p.1).sum());
        types.iter().filter(|t| t.0 >= cpus && t.1 >= gibibytes).map(|t| t.2).min()
    };
    let mut least = vec![Some(0); 1 << pods.len()];
    for set in 1..least.len() {
        let parts = (1..=set).filter(|part| part & set == *part);
        least[set] = parts.filter_map(|part| Some(one_node(part)? + least[set ^ part]?)).min();
    }
    least[least.len() - 1]
}

fn dollars(dollars_per_hour: f64) -> Price {
    Price::per_hour(dollars_per_hour).expect("a price")
}

fn machine(name: &str, cpus: i64, gibibytes: i64) -> InstanceType {
    InstanceType::named(name, [("cpu", Quantity::from_units(cpus)), ("memory", Quantity::from_bytes(gibibytes << 30))])
}

fn general() -> SnapshotBuilder {
    Snapshot::builder().pool(NodePool::named("general"))
}

/// So many pods of 1 CPU.
fn small(count: u32) -> PodBuilder {
    Pod::named("p").cpu("1").memory("1Gi").replicas(count)
}

fn problem(builder: SnapshotBuilder, types: Vec<InstanceType>) -> (Snapshot, Catalogs) {
    let snapshot = builder.build().expect("valid");
    let catalogs = Catalogs::shared(types, snapshot.pools()).expect("valid");
    (snapshot, catalogs)
}

/// What is proven of the plan of a problem, in dollars an hour.
fn proven(builder: SnapshotBuilder, types: Vec<InstanceType>) -> f64 {
    let (snapshot, catalogs) = problem(builder, types);
    prove(&snapshot, &catalogs).2.expect("it is proven").dollars_per_hour()
}

fn four_cpus() -> InstanceType {
    machine("four", 4, 16).offering("on-demand", "a", dollars(0.40))
}

#[track_caller]
fn assert_near(bound: f64, expected: f64) {
    assert!(bound <= expected + 1e-9 && bound > expected * 0.99 - 1e-9, "{bound} is not near {expected}");
}

#[test]
fn the_bound_of_full_nodes_is_exact() {
    let (snapshot, catalogs) = problem(general().pods(small(12)), vec![four_cpus()]);
    let (plan, certificate, proven) = prove(&snapshot, &catalogs);
    assert_eq!(plan.hourly_cost().to_string(), "$1.2000/h");
    assert_near(certificate.lower_bound.dollars_per_hour(), 1.2);
    // CPU bears the whole price, but for what the least shares of other resources come to.
    assert!(proven.expect("it is proven").dollars_per_hour() > 1.1999);
}

#[test]
fn room_that_exists_costs_nothing() {
    let node: Node = serde_json::from_str(
        r#"{"metadata":{"name":"n"},"spec":{"providerID":"id"},"status":{"allocatable":{"cpu":"6","memory":"64Gi","pods":"99"}}}"#,
    )
    .expect("a node");
    assert_near(proven(general().node(node.clone()).pods(small(12)), vec![four_cpus()]), 0.6);
    assert_near(proven(general().node(node).pods(small(5)), vec![four_cpus()]), 0.0);
}

#[test]
fn a_resource_that_only_pods_without_a_place_ask_for_bears_no_price() {
    let node = |name: &str, cpu: &str, storage: &str| -> Node {
        let room = json!({"cpu": cpu, "memory": "64Gi", "pods": "199", "ephemeral-storage": storage});
        let node = json!({"metadata": {"name": name}, "spec": {"providerID": name}, "status": {"allocatable": room}});
        serde_json::from_value(node).expect("a node")
    };
    let nodes = [node("much-cpu", "1", "1Gi"), node("much-storage", "10m", "1000Gi")];
    let left = Pod::named("left").cpu("1").request("ephemeral-storage", "2Gi").node_selector(labels::ZONE, "nowhere");
    let builder = general().nodes(nodes).pods(Pod::named("p").cpu("10m").replicas(130)).pods(left);
    // The 29 that find no room take as much of the 110 pods of a machine.
    assert_near(proven(builder, vec![four_cpus()]), 0.4 * 29.0 / 110.0);
}

#[test]
fn room_in_another_zone_than_a_volume_is_none() {
    let node: Node = serde_json::from_str(
        r#"{"metadata":{"name":"n","labels":{"topology.kubernetes.io/zone":"b"}},"spec":{"providerID":"id"},
            "status":{"allocatable":{"cpu":"6","memory":"64Gi","pods":"99"}}}"#,
    )
    .expect("a node");
    let claim: PersistentVolumeClaim = serde_json::from_str(
        r#"{"metadata":{"name":"c","annotations":{"pv.kubernetes.io/bind-completed":"yes"}},"spec":{"volumeName":"v"}}"#,
    )
    .expect("a claim");
    let volume: PersistentVolume = serde_json::from_str(
        r#"{"metadata":{"name":"v","labels":{"topology.kubernetes.io/zone":"a"}},"spec":{"csi":{"driver":"d"}}}"#,
    )
    .expect("a volume");
    let pod: Pod = serde_json::from_str(
        r#"{"metadata":{"name":"p"},"spec":{"containers":[{"resources":{"requests":{"cpu":"4"}}}],
            "volumes":[{"name":"v","persistentVolumeClaim":{"claimName":"c"}}]},
            "status":{"conditions":[{"type":"PodScheduled","status":"False","reason":"Unschedulable"}]}}"#,
    )
    .expect("a pod");
    let builder = general().node(node).volume_claims([claim]).volumes([volume]).pods(vec![pod]);
    assert_near(proven(builder, vec![four_cpus()]), 0.4);
}

#[test]
fn reservations_end_at_their_capacity() {
    let mut reserved = Offering::new("reserved", "a", dollars(0.01));
    reserved.requirements.add("example.com/reservation-id", Requirement::one_of(["r"]));
    reserved.reservation_capacity = Some(2);
    let mut four = four_cpus();
    four.requirements.add("example.com/reservation-id", Requirement::one_of(["r"]));
    four.offerings.push(reserved);
    assert_near(proven(general().pods(small(12)), vec![four.clone()]), 0.42);
    // A pod for which no pool makes nodes changes nothing about that.
    let node: Node = serde_json::from_value(json!({
        "metadata": {"name": "n", "labels": {"team": "x"}},
        "spec": {"providerID": "id", "taints": [{"key": "team", "effect": "NoSchedule"}]},
        "status": {"allocatable": {"cpu": "6", "memory": "64Gi", "pods": "99"}},
    }))
    .expect("a node");
    let visitor = Pod::named("visitor").cpu("50m").node_selector("team", "x").toleration(Toleration::of_key("team"));
    assert_near(proven(general().node(node).pods(small(12)).pods(visitor), vec![four]), 0.42);
}

#[test]
fn a_lighter_pool_counts_only_if_it_can_be_opened() {
    let pool = |name: &str, weight: u32, zone: &str| -> NodePool {
        let zone = format!(r#"[{{"key":"topology.kubernetes.io/zone","operator":"In","values":["{zone}"]}}]"#);
        let class = r#"{"group":"g","kind":"K","name":"n"}"#;
        let spec =
            format!(r#"{{"weight":{weight},"template":{{"spec":{{"requirements":{zone},"nodeClassRef":{class}}}}}}}"#);
        serde_json::from_str(&format!(r#"{{"metadata":{{"name":"{name}"}},"spec":{spec}}}"#)).expect("a pool")
    };
    let pools = || Snapshot::builder().pool(pool("heavy", 10, "a")).pool(pool("light", 1, "b"));
    let four = || four_cpus().offering("on-demand", "b", dollars(0.04));
    assert_near(proven(pools().pods(small(8)), vec![four()]), 0.8);
    // A pod that only the lighter pool takes opens it for others too.
    let picky = Pod::named("picky").cpu("1").memory("1Gi").node_selector("topology.kubernetes.io/zone", "b");
    assert_near(proven(pools().pods(small(7)).pods(picky), vec![four()]), 0.08);
}

/// A change to a certificate.
type Change = fn(&mut Certificate);

#[test]
fn what_does_not_exist_proves_nothing() {
    let (snapshot, catalogs) = problem(general().pods(small(12)), vec![four_cpus()]);
    let (plan, certificate, _) = prove(&snapshot, &catalogs);
    let cases: [(Change, &str); 10] = [
        (|c| c.node_pools[0].node_pool = "x".to_owned(), "node pool x: there is none"),
        (|c| c.node_pools[0].instance_types = vec!["x".to_owned()], "instance type x: the catalog has none"),
        (|c| c.node_pools.push(c.node_pools[0].clone()), "node pool general: instance type four: it is named twice"),
        (|c| c.node_pools[0].shares_ppm = shares("x", 1), "node pool general: resource x: no pod asks for it"),
        (|c| c.node_pools[0].shares_ppm = shares("cpu", 1_000_001), "the shares add up to 1000001 of 1000000"),
        (|c| c.places = BTreeMap::from([("x".to_owned(), Worth::default())]), "place x: there is none"),
        (|c| c.reservations = BTreeMap::from([("x".to_owned(), Worth::default())]), "reservation x: no offering"),
        (|c| c.lower_bound = dollars(3.0), "it claims 3 dollars an hour and proves 1."),
        (|c| c.node_pools[0].shares_ppm = shares("cpu", 500_000), "dollars an hour and proves 0.6"),
        (|c| c.node_pools.clear(), "dollars an hour and proves 0"),
    ];
    for (change, expected) in cases {
        let mut changed = certificate.clone();
        change(&mut changed);
        let error = check_certificate(&snapshot, &catalogs, &plan, &changed).expect_err("it is wrong").to_string();
        assert!(error.contains(expected), "{error} is not {expected}");
    }
}

fn shares(resource: &str, share_ppm: u32) -> BTreeMap<String, u32> {
    BTreeMap::from([(resource.to_owned(), share_ppm)])
}

#[test]
fn a_daemon_that_runs_whatever_an_open_label_becomes_takes_its_room() {
    let expression = |key: &str, operator, value: &str| NodeSelectorRequirement::new(key, operator, [value]);
    let term = |expressions: Vec<NodeSelectorRequirement>| {
        let mut term = NodeSelectorTerm::default();
        term.match_expressions = expressions;
        term
    };
    let (size, zone) = ("example.com/size", labels::ZONE);
    let mut terms = NodeSelector::default();
    terms.node_selector_terms = vec![
        term(vec![expression(zone, Operator::NotIn, "c")]),
        term(vec![expression(size, Operator::Lt, "1"), expression(size, Operator::Gt, "1")]),
    ];
    let mut daemons = DaemonSet::default();
    daemons.metadata.name = "daemons".to_owned();
    daemons.spec.template.spec =
        Workload::from(Pod::named("daemon").cpu("1").memory("1Gi")).into_pods().expect("a pod")[0].spec.clone();
    daemons.spec.template.spec.affinity.node_affinity.required = Some(terms);
    let mut pool = NodePool::named("general");
    pool.spec.template.spec.requirements.push(expression(size, Operator::Gt, "1"));
    let builder = Snapshot::builder().pool(pool).daemonset(daemons).pods(Pod::named("p").cpu("1").memory("1Gi"));
    // A third of the cores that the daemon leaves.
    assert_near(proven(builder, vec![four_cpus()]), 0.40 / 3.0);
}
