use std::collections::BTreeMap;

use karpenter_core::{
    Catalogs, InstanceType, Offering, Plan, PlannedClaim, Planner, PlannerOptions, Price, Quantity, Reason,
    Requirement, Requirements, Snapshot, SnapshotBuilder,
    api::{ConditionStatus, DaemonSet, Node, NodeClaim, NodeClassRef, NodePool, ObjectKey, Pod},
    labels,
    schedule::MinValuesPolicy,
};

use super::{Violation, check, check_with_options, filters};

mod helpers;
mod reservations;
mod topology;
mod volumes;

fn read<T: serde::de::DeserializeOwned>(json: &str) -> T {
    serde_json::from_str(json).expect(json)
}

fn dollars(dollars: f64) -> Price {
    Price::per_hour(dollars).expect("a price")
}

/// `small` has 4 CPUs in zones a and b, `large` has 8 in zone a.
fn types() -> Vec<InstanceType> {
    let resources = |cpus| [("cpu", Quantity::from_units(cpus)), ("memory", Quantity::from_bytes(cpus << 32))];
    vec![
        InstanceType::named("small", resources(4)).offering("on-demand", "a", dollars(0.10)).offering(
            "spot",
            "b",
            dollars(0.05),
        ),
        InstanceType::named("large", resources(8)).offering("on-demand", "a", dollars(0.20)),
    ]
}

#[test]
fn two_pods_cannot_have_one_port_of_a_node() {
    let port =
        |more: &str| format!(r#""initContainers":[{{"restartPolicy":"Always","ports":[{{"hostPort":80{more}}}]}}]"#);
    let daemon = |more: &str| -> DaemonSet {
        read(&format!(r#"{{"metadata":{{"name":"d"}},"spec":{{"template":{{"spec":{{{}}}}}}}}}"#, port(more)))
    };
    let with =
        |more: &str| Snapshot::builder().pool(NodePool::named("pool")).daemonset(daemon(more)).pods(pod(&port("")));
    let plan = of_claims(vec![small()]);
    for more in ["", r#","hostIP":"10.0.0.1""#] {
        let expected = "claim 0 as on-demand small in a: host port 0.0.0.0:80/TCP is wanted twice";
        assert_eq!(violations(with(more), &plan), [expected], "{more}");
    }
    assert_eq!(violations(with(r#","protocol":"UDP""#), &plan), [""; 0]);

    let of_host: DaemonSet = read(
        r#"{"metadata":{"name":"d"},"spec":{"template":{"spec":{"hostNetwork":true,"containers":[{"ports":[{"containerPort":80}]}]}}}}"#,
    );
    let beside_host = Snapshot::builder().pool(NodePool::named("pool")).daemonset(of_host).pods(pod(&port("")));
    assert_eq!(violations(beside_host, &plan).len(), 1);

    let running: Pod = read(&format!(r#"{{"metadata":{{"name":"r"}},"spec":{{"nodeName":"n",{}}}}}"#, port("")));
    let on_node = Snapshot::builder().node(node("")).pods(pod(&port("")));
    assert_eq!(violations(on_node.clone(), &onto("n")), [""; 0]);
    assert_eq!(violations(on_node.pods(running), &onto("n")), ["n: host port 0.0.0.0:80/TCP is wanted twice"]);
}

/// A pending pod `p` that asks for 3 CPUs, with more of a specification.
fn pod(spec: &str) -> Pod {
    let comma = if spec.is_empty() { "" } else { "," };
    read(&format!(
        r#"{{"metadata":{{"name":"p","namespace":"default","labels":{{"app":"web"}}}},
            "spec":{{"containers":[{{"resources":{{"requests":{{"cpu":"3"}}}}}}]{comma}{spec}}},
            "status":{{"conditions":[{{"type":"PodScheduled","status":"False","reason":"Unschedulable"}}]}}}}"#
    ))
}

fn key(name: &str) -> ObjectKey {
    ObjectKey::new("default", name)
}

fn claim(types: &[&str], price: f64, requirements: &str) -> PlannedClaim {
    let requirements: Requirements = read(requirements);
    PlannedClaim::new("pool", vec![key("p")], types.iter().copied(), dollars(price), requirements)
}

fn small() -> PlannedClaim {
    claim(&["small"], 0.05, "[]")
}

fn of_claims(claims: Vec<PlannedClaim>) -> Plan {
    Plan::from_parts(claims, BTreeMap::new(), BTreeMap::new())
}

fn onto(place: &str) -> Plan {
    Plan::from_parts(Vec::new(), BTreeMap::from([(place.to_owned(), vec![key("p")])]), BTreeMap::new())
}

fn violations(builder: SnapshotBuilder, plan: &Plan) -> Vec<String> {
    violations_with(types(), builder, plan)
}

fn violations_with(types: Vec<InstanceType>, builder: SnapshotBuilder, plan: &Plan) -> Vec<String> {
    let snapshot = builder.build().expect("valid");
    let catalogs = Catalogs::shared(types, snapshot.pools()).expect("valid");
    check(&snapshot, &catalogs, plan).iter().map(ToString::to_string).collect()
}

/// A pool and the pod `p`.
fn problem(spec: &str) -> SnapshotBuilder {
    Snapshot::builder().pool(NodePool::named("pool")).pods(pod(spec))
}

/// A pool of this specification and the pod `p`.
fn pool(spec: &str) -> NodePool {
    let class = r#""nodeClassRef":{"group":"g","kind":"K","name":"n"}"#;
    let text = spec.replace("CLASS", class);
    let mut pool: NodePool = read(&format!(r#"{{"metadata":{{"name":"pool"}},"spec":{text}}}"#));
    let class = &mut pool.spec.template.spec.node_class_ref;
    if class.name.is_empty() {
        *class = NodeClassRef::new("g", "K", "n");
    }
    pool
}

fn in_pool(spec: &str, of_pod: &str) -> SnapshotBuilder {
    Snapshot::builder().pool(pool(spec)).pods(pod(of_pod))
}

fn node(more: &str) -> Node {
    read(&format!(
        r#"{{"metadata":{{"name":"n","labels":{{"topology.kubernetes.io/zone":"a"}}}},"spec":{{"providerID":"id"{more}}},"status":{{"allocatable":{{"cpu":"4","pods":"9"}}}}}}"#
    ))
}

#[test]
fn a_good_plan_breaks_no_rule() {
    assert_eq!(violations(problem(""), &of_claims(vec![small()])), [""; 0]);
    let both = claim(&["small", "large"], 0.05, "[]");
    assert_eq!(violations(problem(""), &of_claims(vec![both])), [""; 0]);
    assert_eq!(violations(problem("").node(node("")), &onto("n")), [""; 0]);
}

#[test]
fn every_pending_pod_is_in_the_plan_once() {
    let none = of_claims(Vec::new());
    assert_eq!(violations(problem(""), &none), ["default/p is neither placed nor refused"]);
    let refused = BTreeMap::from([(key("p"), Reason::NoNodePools)]);
    assert_eq!(violations(problem(""), &Plan::from_parts(Vec::new(), BTreeMap::new(), refused.clone())), [""; 0]);
    let both = Plan::from_parts(vec![small()], BTreeMap::new(), refused);
    assert_eq!(violations(problem(""), &both), ["default/p is in the plan 2 times"]);
    let mut more = small();
    more.pods.push(key("stranger"));
    assert_eq!(violations(problem(""), &of_claims(vec![more])), ["default/stranger is not pending"]);
}

#[test]
fn what_the_engine_does_not_handle_is_not_placed() {
    let devices = r#""resourceClaims":[{"name":"c"}]"#;
    let expected = "default/p is placed although it uses spec.resourceClaims";
    assert_eq!(violations(problem(devices), &of_claims(vec![small()])), [expected]);
    let scratch = r#""volumes":[{"name":"scratch"}]"#;
    assert_eq!(violations(problem(scratch), &of_claims(vec![small()])), [""; 0]);
}

#[test]
fn claims_are_of_what_there_is() {
    let with = |claim: PlannedClaim| violations(problem(""), &of_claims(vec![claim]));
    let mut elsewhere = small();
    elsewhere.node_pool = "lost".to_owned();
    assert_eq!(with(elsewhere), ["claim 0: there is no pool lost"]);
    let mut empty = small();
    empty.pods.clear();
    assert_eq!(with(empty), ["default/p is neither placed nor refused", "claim 0 is for no pod"]);
    assert_eq!(with(claim(&["tiny"], 0.05, "[]")), ["claim 0: there is no instance type tiny"]);
    assert_eq!(with(claim(&[], 0.05, "[]")), ["claim 0: no offering meets its requirements"]);
    let nowhere = r#"[{"key":"topology.kubernetes.io/zone","operator":"In","values":["moon"]}]"#;
    assert_eq!(with(claim(&["small"], 0.05, nowhere)), ["claim 0: no offering meets its requirements"]);
    let many: Vec<InstanceType> = (0..601)
        .map(|i| InstanceType::named(format!("t{i:03}"), types()[0].capacity.iter().map(|(n, q)| (n.clone(), q))))
        .map(|t| t.offering("spot", "a", dollars(0.05)))
        .collect();
    let names: Vec<_> = many.iter().map(|t| t.name.as_str()).collect();
    let too_many = of_claims(vec![claim(&names, 0.05, "[]")]);
    assert_eq!(violations_with(many.clone(), problem(""), &too_many), ["claim 0 names 601 instance types"]);
    let enough = of_claims(vec![claim(&names[1..], 0.05, "[]")]);
    assert_eq!(violations_with(many.clone(), problem(""), &enough), [""; 0]);
}

#[test]
fn pools_that_are_not_ready_make_no_nodes() {
    for (spec, why) in [
        (r#"{"replicas":1}"#, "it is static"),
        (
            r#"{"template":{"spec":{CLASS,"taints":[{"key":"a","effect":"NoSchedule"}],"startupTaints":[{"key":"a","effect":"NoSchedule"}]}}}"#,
            "spec.template.spec.startupTaints[0]: a second taint a:NoSchedule",
        ),
    ] {
        let expected = format!("claim 0: pool pool is not ready: {why}");
        assert_eq!(violations(in_pool(spec, ""), &of_claims(vec![small()])), [expected]);
    }
    let mut leaving = NodePool::named("pool");
    leaving.metadata.deletion_timestamp = Some(karpenter_core::Timestamp::default());
    let mut unwell = NodePool::named("pool");
    unwell.status.conditions = read(r#"[{"type":"Ready","status":"False"}]"#);
    let mut unsure = unwell.clone();
    unsure.status.conditions[0].status = ConditionStatus::Unknown;
    for (pool, why) in [(leaving, "it is being deleted"), (unwell, "Ready is False"), (unsure, "Ready is Unknown")] {
        let expected = format!("claim 0: pool pool is not ready: {why}");
        let builder = Snapshot::builder().pool(pool).pods(pod(""));
        assert_eq!(violations(builder, &of_claims(vec![small()])), [expected]);
    }
}

#[test]
fn a_claim_costs_what_its_cheapest_offering_costs() {
    let with = |claim| violations(problem(""), &of_claims(vec![claim]));
    let wrong = "claim 0 is said to cost $0.1000/h, its cheapest offering costs $0.0500/h";
    assert_eq!(with(claim(&["small"], 0.10, "[]")), [wrong]);
    let on_demand = r#"[{"key":"karpenter.sh/capacity-type","operator":"In","values":["on-demand"]}]"#;
    assert_eq!(with(claim(&["small"], 0.10, on_demand)), [""; 0]);
    let order = "claim 0 names large before small, which costs less";
    assert_eq!(with(claim(&["large", "small"], 0.05, "[]")), [order]);
    let snapshot = problem("").build().expect("valid");
    let sold_out = Offering::new("spot", "b", dollars(0.05)).key("small");
    let catalogs = Catalogs::shared(types(), snapshot.pools()).expect("valid").without(&[sold_out]);
    assert_eq!(check(&snapshot, &catalogs, &of_claims(vec![claim(&["small"], 0.10, "[]")])), []);
}

#[test]
fn min_values_are_kept() {
    let minimum = r#"{"template":{"spec":{CLASS,"requirements":[{"key":"node.kubernetes.io/instance-type","operator":"Exists","minValues":2}]}}}"#;
    let expected = "claim 0: 1 values of node.kubernetes.io/instance-type, 2 at least";
    assert_eq!(violations(in_pool(minimum, ""), &of_claims(vec![small()])), [expected]);
    let both = claim(&["small", "large"], 0.05, "[]");
    assert_eq!(violations(in_pool(minimum, ""), &of_claims(vec![both])), [""; 0]);
}

#[test]
fn a_plan_is_held_to_the_options_that_it_was_made_with() {
    let minimum = r#"{"template":{"spec":{CLASS,"requirements":[{"key":"node.kubernetes.io/instance-type","operator":"Exists","minValues":3}]}}}"#;
    let snapshot = in_pool(minimum, "").build().expect("valid");
    let catalogs = Catalogs::shared(types(), snapshot.pools()).expect("valid");
    let mut options = PlannerOptions::default();
    options.min_values = MinValuesPolicy::BestEffort;
    let plan = Planner::new(options.clone()).plan(&snapshot, &catalogs);
    assert_eq!(plan.claims().len(), 1);
    assert_eq!(check_with_options(&snapshot, &catalogs, &plan, &options), []);
    assert!(matches!(check(&snapshot, &catalogs, &plan)[..], [Violation::MinValues { claim: 0, .. }]));
    // All other rules hold whatever the policy is.
    let wrong = of_claims(vec![claim(&["small"], 0.01, "[]")]);
    assert!(matches!(check_with_options(&snapshot, &catalogs, &wrong, &options)[..], [Violation::Price { .. }]));
    options.max_instance_types = 1;
    let both = of_claims(vec![claim(&["small", "large"], 0.05, "[]")]);
    let found = check_with_options(&snapshot, &catalogs, &both, &options);
    assert_eq!(found, [Violation::TooManyTypes { claim: 0, count: 2 }]);
}

#[test]
fn every_offering_of_a_claim_passes_the_node_filters() {
    let zone_a = r#"[{"key":"topology.kubernetes.io/zone","operator":"In","values":["a"]}]"#;
    let selector = r#""nodeSelector":{"topology.kubernetes.io/zone":"a"}"#;
    let old_name = r#""nodeSelector":{"failure-domain.beta.kubernetes.io/zone":"a"}"#;
    let term = r#"{"matchExpressions":[{"key":"topology.kubernetes.io/zone","operator":"NotIn","values":["b"]}]}"#;
    let affinity = format!(
        r#""affinity":{{"nodeAffinity":{{"requiredDuringSchedulingIgnoredDuringExecution":{{"nodeSelectorTerms":[{{}},{term}]}}}}}}"#
    );
    let node = "default/p on claim 0 as spot small in b";
    for (spec, violation) in [
        (selector, format!("{node}: nodeSelector topology.kubernetes.io/zone")),
        (old_name, format!("{node}: nodeSelector failure-domain.beta.kubernetes.io/zone")),
        (&affinity, format!("{node}: no term of its node affinity is met")),
    ] {
        assert_eq!(violations(problem(spec), &of_claims(vec![small()])), [violation]);
        assert_eq!(violations(problem(spec), &of_claims(vec![claim(&["small"], 0.10, zone_a)])), [""; 0]);
    }
    let named = r#""affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[{"matchFields":[{"key":"metadata.name","operator":"In","values":["n"]}]}]}}}"#;
    assert!(violations(problem(named), &of_claims(vec![small()]))[0].contains("node affinity"));
    assert_eq!(violations(problem(named).node(self::node("")), &onto("n")), [""; 0]);
}

#[test]
fn labels_that_nobody_defines_come_from_requirements() {
    let pool = r#"{"template":{"spec":{CLASS,"requirements":[{"key":"team","operator":"In","values":["x","y"]}]}}}"#;
    let team_x = r#""nodeSelector":{"team":"x"}"#;
    let open = violations(in_pool(pool, team_x), &of_claims(vec![small()]));
    assert_eq!(open, ["default/p on claim 0 as on-demand small in a: nodeSelector team"]);
    let narrowed = claim(&["small"], 0.05, r#"[{"key":"team","operator":"In","values":["x"]}]"#);
    assert_eq!(violations(in_pool(pool, team_x), &of_claims(vec![narrowed])), [""; 0]);
    let mut settled = small();
    settled.labels.insert("team".to_owned(), "x".to_owned());
    assert_eq!(violations(in_pool(pool, team_x), &of_claims(vec![settled])), [""; 0]);
    let pooled = r#""nodeSelector":{"karpenter.sh/nodepool":"pool","g/k":"n","karpenter.sh/initialized":"true"}"#;
    assert_eq!(violations(in_pool(pool, pooled), &of_claims(vec![small()])), [""; 0]);
}

#[test]
fn taints_are_tolerated() {
    let pool = r#"{"template":{"spec":{CLASS,"taints":[{"key":"t","value":"v","effect":"NoExecute"},{"key":"soft","effect":"PreferNoSchedule"}]}}}"#;
    let refused = violations(in_pool(pool, ""), &of_claims(vec![small()]));
    assert_eq!(refused, ["default/p on claim 0 as on-demand small in a: taint t=v:NoExecute"]);
    for (toleration, passes) in [
        (r#"{"key":"t","value":"v"}"#, true),
        (r#"{"operator":"Exists"}"#, true),
        (r#"{"key":"t","operator":"Exists","effect":"NoExecute"}"#, true),
        (r#"{"key":"t","operator":"Exists","effect":"NoSchedule"}"#, false),
        (r#"{"key":"t","value":"w"}"#, false),
        (r#"{"value":"v"}"#, false),
    ] {
        let spec = format!(r#""tolerations":[{toleration}]"#);
        let found = violations(in_pool(pool, &spec), &of_claims(vec![small()]));
        assert_eq!(found.is_empty(), passes, "{toleration}: {found:?}");
    }
}

#[test]
fn pods_and_daemons_fit_onto_every_type() {
    let daemonset = |spec: &str| -> DaemonSet {
        let container = r#"{"resources":{"requests":{"cpu":"1500m"}}}"#;
        read(&format!(
            r#"{{"metadata":{{"name":"d","uid":"d"}},"spec":{{"template":{{"spec":{{"containers":[{container}]{spec}}}}}}}}}"#
        ))
    };
    let crowded = violations(problem("").daemonset(daemonset("")), &of_claims(vec![small()]));
    assert_eq!(crowded, ["claim 0 as on-demand small in a: cpu: 4500m requested of 4"]);
    let large = of_claims(vec![claim(&["large"], 0.20, "[]")]);
    assert_eq!(violations(problem("").daemonset(daemonset("")), &large), [""; 0]);
    let elsewhere = daemonset(r#","nodeSelector":{"gpu":"yes"}"#);
    assert_eq!(violations(problem("").daemonset(elsewhere), &of_claims(vec![small()])), [""; 0]);
    let mut reserved = types();
    reserved[0].overhead.kube_reserved.insert("cpu".into(), Quantity::from_milli(1001));
    let too_small = violations_with(reserved, problem(""), &of_claims(vec![small()]));
    assert_eq!(too_small, ["claim 0 as on-demand small in a: cpu: 3 requested of 2999m"]);
}

#[test]
fn room_that_there_is_is_enough() {
    let bound = |name: &str, cpu: &str, owner: &str| -> Pod {
        read(&format!(
            r#"{{"metadata":{{"name":"{name}","ownerReferences":[{owner}]}},"spec":{{"nodeName":"n","containers":[{{"resources":{{"requests":{{"cpu":"{cpu}"}}}}}}]}}}}"#
        ))
    };
    let with = |pod: Pod| problem("").node(node("")).pods(pod);
    assert_eq!(violations(with(bound("b", "1", "")), &onto("n")), [""; 0]);
    assert_eq!(violations(with(bound("b", "1001m", "")), &onto("n")), ["n: cpu: 4001m requested of 4"]);
    let daemonset: DaemonSet = read(
        r#"{"metadata":{"name":"d","uid":"d"},"spec":{"template":{"spec":{"containers":[{"resources":{"requests":{"cpu":"600m"}}}]}}}}"#,
    );
    let owner = r#"{"apiVersion":"apps/v1","kind":"DaemonSet","name":"d","uid":"d"}"#;
    let coming = with(bound("b", "500m", "")).daemonset(daemonset.clone());
    assert_eq!(violations(coming, &onto("n")), ["n: cpu: 4100m requested of 4"]);
    let running = with(bound("b", "600m", owner)).daemonset(daemonset);
    assert_eq!(violations(running, &onto("n")), [""; 0]);
    let promised: NodeClaim =
        read(r#"{"metadata":{"name":"c"},"status":{"providerID":"c","allocatable":{"cpu":"4","pods":"9"}}}"#);
    let mut other = pod("");
    other.metadata.name = "other".to_owned();
    let promised = problem("").pods(other).claim(promised).nominate(key("other"), "c");
    assert_eq!(violations(promised, &onto("c")), ["c: cpu: 6 requested of 4"]);
}

#[test]
fn places_are_there_and_stay() {
    assert_eq!(violations(problem(""), &onto("n")), ["there is no node n"]);
    let mut leaving = node("");
    leaving.metadata.deletion_timestamp = Some(karpenter_core::Timestamp::default());
    assert_eq!(violations(problem("").node(leaving), &onto("n")), ["n is being deleted"]);
    let full = problem("").node(node("")).close_node("n");
    assert_eq!(violations(full, &onto("n")), ["it is not known what runs on n"]);
    let tainted = node(r#","taints":[{"key":"t","effect":"NoSchedule"}]"#);
    assert_eq!(violations(problem("").node(tainted), &onto("n")), ["default/p on n: taint t:NoSchedule"]);
    let selector = r#""nodeSelector":{"topology.kubernetes.io/zone":"b"}"#;
    let wrong = violations(problem(selector).node(node("")), &onto("n"));
    assert_eq!(wrong, ["default/p on n: nodeSelector topology.kubernetes.io/zone"]);
}

#[test]
fn running_pods_keep_others_away() {
    let guard = |topology: &str, namespaces: &str, app: &str| -> Pod {
        read(&format!(
            r#"{{"metadata":{{"name":"guard","namespace":"default"}},"spec":{{"nodeName":"n","affinity":{{"podAntiAffinity":{{"requiredDuringSchedulingIgnoredDuringExecution":[{{"topologyKey":"{topology}","labelSelector":{{"matchLabels":{{"app":"{app}"}}}}{namespaces}}}]}}}}}}}}"#
        ))
    };
    let with = |pod: Pod| problem("").node(node("")).pods(pod);
    let host = "default/p on n: default/guard keeps it away by kubernetes.io/hostname";
    assert_eq!(violations(with(guard(labels::HOSTNAME, "", "web")), &onto("n")), [host]);
    assert_eq!(violations(with(guard(labels::HOSTNAME, "", "api")), &onto("n")), [""; 0]);
    assert_eq!(violations(with(guard(labels::HOSTNAME, r#","namespaces":["x"]"#, "web")), &onto("n")), [""; 0]);
    assert_eq!(violations(with(guard(labels::HOSTNAME, r#","namespaceSelector":{}"#, "web")), &onto("n")), [host]);
    assert_eq!(violations(with(guard(labels::HOSTNAME, "", "web")), &of_claims(vec![small()])), [""; 0]);
    let zone =
        "default/p on claim 0 as on-demand small in a: default/guard keeps it away by topology.kubernetes.io/zone";
    assert_eq!(violations(with(guard(labels::ZONE, "", "web")), &of_claims(vec![small()])), [zone]);
}

#[test]
fn limits_hold_whatever_is_bought() {
    let both = || of_claims(vec![claim(&["small", "large"], 0.05, "[]")]);
    let with = |spec: &str, plan: &Plan| violations(in_pool(spec, ""), plan);
    assert_eq!(with(r#"{"limits":{"cpu":"7"}}"#, &both()), ["pool pool: cpu: 0 and up to 8 more, limit 7"]);
    assert_eq!(with(r#"{"limits":{"cpu":"8"}}"#, &both()), [""; 0]);
    let existing = |labels: &str| -> Node {
        read(&format!(r#"{{"metadata":{{"name":"n","labels":{labels}}},"status":{{"capacity":{{"cpu":"4"}}}}}}"#))
    };
    let limited = || in_pool(r#"{"limits":{"nodes":"1"}}"#, "");
    let of_pool = existing(r#"{"karpenter.sh/nodepool":"pool"}"#);
    let small = of_claims(vec![small()]);
    assert_eq!(violations(limited().node(of_pool), &small), ["pool pool: nodes: 1 and up to 1 more, limit 1"]);
    assert_eq!(violations(limited().node(existing("{}")), &small), [""; 0]);
    let coming: NodeClaim = read(r#"{"metadata":{"name":"c","labels":{"karpenter.sh/nodepool":"pool"}}}"#);
    assert_eq!(violations(limited().claim(coming), &small), ["pool pool: nodes: 1 and up to 1 more, limit 1"]);
}

#[test]
fn heavier_pools_come_first() {
    let heavy = |spec: &str| {
        let mut heavy = pool(spec);
        heavy.metadata.name = "heavy".to_owned();
        heavy.spec.weight = Some(10);
        heavy
    };
    let with = |spec: &str| violations(problem("").pool(heavy(spec)), &of_claims(vec![small()]));
    assert_eq!(with("{}"), ["claim 0 is of pool although heavy is heavier and would take its pods"]);
    for closed in [
        r#"{"limits":{"cpu":"1k"}}"#,
        r#"{"replicas":1}"#,
        r#"{"template":{"spec":{CLASS,"taints":[{"key":"soft","effect":"PreferNoSchedule"}]}}}"#,
        r#"{"template":{"spec":{CLASS,"requirements":[{"key":"kubernetes.io/arch","operator":"In","values":["arm64"]}]}}}"#,
    ] {
        assert_eq!(with(closed), [""; 0], "{closed}");
    }
    let wide = r#""nodeSelector":{"team":"x"}"#;
    let narrowed = claim(&["small"], 0.05, r#"[{"key":"team","operator":"In","values":["x"]}]"#);
    let builder = in_pool(r#"{"template":{"metadata":{"labels":{"team":"x"}}}}"#, wide).pool(heavy("{}"));
    assert_eq!(violations(builder, &of_claims(vec![narrowed])), [""; 0]);
    // The planner reckons with the daemon, which fills the node.
    let open = r#"{"template":{"spec":{CLASS,"requirements":[{"key":"team","operator":"NotIn","values":["z"]}]}}}"#;
    assert_eq!(with(open).len(), 1);
    let daemonset: DaemonSet = read(
        r#"{"metadata":{"name":"d"},"spec":{"template":{"spec":{"nodeSelector":{"team":"a"},"containers":[
            {"name":"c","resources":{"requests":{"cpu":"4"}}}]}}}}"#,
    );
    let doubtful = problem("").pool(heavy(open)).daemonset(daemonset);
    assert_eq!(violations(doubtful, &of_claims(vec![small()])), [""; 0]);
}

#[test]
fn requests_are_added_up_as_the_scheduler_does() {
    let c = |cpu: &str, more: &str| format!(r#"{{"name":"c","resources":{{"requests":{{"cpu":"{cpu}"}}}}{more}}}"#);
    let sidecar = r#","restartPolicy":"Always""#;
    let spec = |containers: &[String], init: &[String], more: &str| {
        format!(r#"{{"spec":{{"containers":[{}],"initContainers":[{}]{more}}}}}"#, containers.join(","), init.join(","))
    };
    for (text, milli) in [
        (spec(&[c("1", ""), c("500m", "")], &[], ""), 1500),
        (spec(&[c("1", "")], &[c("2", ""), c("3", "")], ""), 3000),
        (spec(&[c("1", "")], &[c("1", sidecar), c("2", "")], ""), 3000),
        (spec(&[c("1", "")], &[c("2", ""), c("1", sidecar)], ""), 2000),
        (spec(&[c("3", "")], &[c("1", sidecar), c("2", "")], ""), 4000),
        (spec(&[c("1", "")], &[], r#","resources":{"requests":{"cpu":"3"}},"overhead":{"cpu":"1m"}"#), 3001),
        (r#"{"spec":{"containers":[{"resources":{"limits":{"cpu":"0.0001"}}}]}}"#.to_owned(), 1),
        (spec(&[c("1", ""), c("-8", "")], &[], r#","overhead":{"cpu":"-8"}"#), 1000),
        (
            r#"{"spec":{"containers":[{"name":"a"}]},"status":{"containerStatuses":[{"name":"a","allocatedResources":{"cpu":"2"}}]}}"#.to_owned(),
            2000,
        ),
        (
            r#"{"spec":{"initContainers":[{"name":"s","restartPolicy":"Always"}]},"status":{"initContainerStatuses":[{"name":"s","allocatedResources":{"cpu":"3"}}]}}"#.to_owned(),
            3000,
        ),
        (
            r#"{"spec":{"containers":[{"name":"a","resources":{"requests":{"cpu":"9"}}}]},"status":{"conditions":[{"type":"PodResizePending","status":"True","reason":"Infeasible"}],"containerStatuses":[{"name":"a","resources":{"requests":{"cpu":"2"}}}]}}"#.to_owned(),
            2000,
        ),
    ] {
        let requests = filters::requests(&read(&text));
        assert_eq!((requests[&"cpu".into()], requests[&"pods".into()]), (milli, 1), "{text}");
    }
}

#[test]
fn operators_compare_as_kubernetes_compares() {
    let holds = |json: &str, value| filters::holds(&read(json), value);
    for (json, two, none) in [
        (r#"{"key":"k","operator":"In","values":["2"]}"#, true, false),
        (r#"{"key":"k","operator":"NotIn","values":["2"]}"#, false, true),
        (r#"{"key":"k","operator":"Exists"}"#, true, false),
        (r#"{"key":"k","operator":"DoesNotExist"}"#, false, true),
        (r#"{"key":"k","operator":"Gt","values":["1"]}"#, true, false),
        (r#"{"key":"k","operator":"Lt","values":["2"]}"#, false, false),
        (r#"{"key":"k","operator":"Gte","values":["2"]}"#, true, false),
        (r#"{"key":"k","operator":"Lte","values":["1"]}"#, false, false),
    ] {
        assert_eq!((holds(json, Some("2")), holds(json, None)), (two, none), "{json}");
    }
}

#[test]
fn the_planner_passes() {
    let pools = [NodePool::named("a"), {
        let mut arm = NodePool::named("b").limit("cpu", Quantity::from_units(64));
        arm.spec.weight = Some(5);
        arm
    }];
    let snapshot = Snapshot::builder()
        .pools(pools)
        .pods(Pod::named("web").cpu("500m").memory("1Gi").replicas(60))
        .pods(Pod::named("db").cpu("3").memory("30Gi").node_selector(labels::ARCH, "arm64").replicas(20))
        .pods(Pod::named("zonal").cpu("1").node_label_in(labels::ZONE, ["test-zone-a", "test-zone-c"]).replicas(9))
        .pods(Pod::named("gpu").cpu("1").request("nvidia.com/gpu", "1").replicas(3))
        .build()
        .expect("valid");
    let catalogs = Catalogs::shared(crate::generated_types(), snapshot.pools()).expect("valid");
    let plan = Planner::default().plan(&snapshot, &catalogs);
    assert_eq!(check(&snapshot, &catalogs, &plan), []);
    assert!(plan.unplaced().is_empty());
    let mut cheaper = plan.claims().to_vec();
    cheaper[0].requirements.add(labels::CAPACITY_TYPE, Requirement::one_of(["on-demand"]));
    let changed = Plan::from_parts(cheaper, plan.existing().clone(), BTreeMap::new());
    assert!(matches!(check(&snapshot, &catalogs, &changed)[..], [Violation::Price { claim: 0, .. }, ..]));
}
