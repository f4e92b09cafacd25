//! Spread constraints, affinity and anti-affinity.

use karpenter_core::{
    Quantity, Snapshot, SnapshotBuilder,
    api::{Node, NodeClaim, NodePool, Pod},
    labels,
};

use super::{
    helpers::{APP_A, breaks, claim, node, of_claims, onto, passes, pod, pod_on, two_nodes, violations, with_pool},
    read,
};

/// Pending pods of the app `a` with the same rules.
fn series(names: &[&str], rules: &str) -> Vec<Pod> {
    names.iter().map(|name| pod(name, APP_A, rules)).collect()
}

/// Running pods of the app `a` on the node `n1`.
fn running(count: usize) -> Vec<Pod> {
    (0..count).map(|i| pod_on("n1", &format!("r{i}"), r#""app":"a","h":"0""#, "")).collect()
}

/// A hard constraint on pods of the app `a`, with more of it.
fn spread_by(topology_key: &str, more: &str) -> String {
    spreads(&[constraint(topology_key, more)])
}

fn constraint(topology_key: &str, more: &str) -> String {
    format!(
        r#"{{"maxSkew":1,"topologyKey":"{topology_key}","whenUnsatisfiable":"DoNotSchedule",
            "labelSelector":{{"matchLabels":{{"app":"a"}}}}{more}}}"#
    )
}

fn spreads(constraints: &[String]) -> String {
    format!(r#""topologySpreadConstraints":[{}]"#, constraints.join(","))
}

fn spread() -> String {
    spread_by(labels::ZONE, "")
}

/// A term about pods of an app, with more of it.
fn term(app: &str, topology_key: &str, more: &str) -> String {
    format!(r#"{{"labelSelector":{{"matchLabels":{{"app":"{app}"}}}},"topologyKey":"{topology_key}"{more}}}"#)
}

fn near(terms: &str) -> String {
    format!(r#""affinity":{{"podAffinity":{{"requiredDuringSchedulingIgnoredDuringExecution":[{terms}]}}}}"#)
}

fn away(terms: &str) -> String {
    format!(r#""affinity":{{"podAntiAffinity":{{"requiredDuringSchedulingIgnoredDuringExecution":[{terms}]}}}}"#)
}

#[test]
fn a_skew_that_was_there_is_filled_up_and_not_made_worse() {
    let low = two_nodes().pods(running(5)).pods(series(&["a", "b"], &spread()));
    passes(low, &onto([("n2", &["a", "b"])]));
    let high = || two_nodes().pods(running(5)).pods(series(&["a"], &spread()));
    let expected = "default/a on n1: 6 in a, 0 in the emptiest domain of topology.kubernetes.io/zone, maxSkew 1";
    breaks(high(), &onto([("n1", &["a"])]), expected);
    let wider = spread().replace(r#""maxSkew":1"#, r#""maxSkew":6"#);
    passes(two_nodes().pods(running(5)).pods(series(&["a"], &wider)), &onto([("n1", &["a"])]));
    let soft = spread().replace("DoNotSchedule", "ScheduleAnyway");
    passes(two_nodes().pods(running(5)).pods(series(&["a"], &soft)), &onto([("n1", &["a"])]));
}

#[test]
fn pods_that_differ_in_match_label_keys_are_not_counted() {
    let by_hash = spread_by(labels::ZONE, r#","matchLabelKeys":["h","absent"]"#);
    passes(two_nodes().pods(running(5)).pods(series(&["a"], &by_hash)), &onto([("n1", &["a"])]));
}

#[test]
fn hosts_are_domains() {
    let by_host = spread_by(labels::HOSTNAME, "");
    let names = ["a", "b", "c", "d"];
    passes(two_nodes().pods(series(&names, &by_host)), &onto([("n1", &["a", "b"]), ("n2", &["c", "d"])]));
    let expected = "default/b on n1: 2 in n1, 0 in the emptiest domain of kubernetes.io/hostname, maxSkew 1";
    breaks(two_nodes().pods(series(&["a", "b"], &by_host)), &onto([("n1", &["a", "b"])]), expected);
    // A pool that could add hosts does not make the hosts that there are uneven.
    let even = of_claims([claim(&["a", "b"], ""), claim(&["c", "d"], "")]);
    passes(with_pool(Snapshot::builder()).pods(series(&names, &by_host)), &even);
}

#[test]
fn with_fewer_domains_than_the_minimum_none_is_full() {
    let names = ["a", "b", "c", "d"];
    let plan = || onto([("n1", &["a", "b"]), ("n2", &["c", "d"])]);
    let at_least = |count: u32| {
        let rules = spread_by(labels::ZONE, &format!(r#","minDomains":{count}"#));
        two_nodes().pods(series(&names, &rules))
    };
    passes(at_least(2), &plan());
    let expected = "default/b on n1: 2 in a, 0 in the emptiest domain of topology.kubernetes.io/zone, maxSkew 1";
    breaks(at_least(3), &plan(), expected);
}

#[test]
fn policies_say_which_nodes_are_domains() {
    let tainted = || -> SnapshotBuilder {
        let mut n2 = node("n2", "b");
        n2.spec.taints = read(r#"[{"key":"k","effect":"NoSchedule"}]"#);
        Snapshot::builder().nodes([node("n1", "a"), n2])
    };
    let plan = || onto([("n1", &["a", "b"])]);
    let uneven = "default/b on n1: 2 in a, 0 in the emptiest domain of topology.kubernetes.io/zone, maxSkew 1";
    let honours_taints = spread_by(labels::ZONE, r#","nodeTaintsPolicy":"Honor""#);
    breaks(tainted().pods(series(&["a", "b"], &spread())), &plan(), uneven);
    passes(tainted().pods(series(&["a", "b"], &honours_taints)), &plan());
    // A pool could make a node in the other zone.
    breaks(with_pool(tainted()).pods(series(&["a", "b"], &honours_taints)), &plan(), uneven);
    let in_a = r#""nodeSelector":{"topology.kubernetes.io/zone":"a"},"#;
    let ignores_affinity = spread_by(labels::ZONE, r#","nodeAffinityPolicy":"Ignore""#);
    let honours = series(&["a", "b"], &format!("{in_a}{}", spread()));
    passes(with_pool(two_nodes()).pods(honours), &plan());
    let ignores = series(&["a", "b"], &format!("{in_a}{ignores_affinity}"));
    breaks(two_nodes().pods(ignores), &plan(), uneven);
}

#[test]
fn domains_are_what_a_ready_pool_without_limits_could_make() {
    let one_node = || Snapshot::builder().node(node("n1", "a")).pods(series(&["a", "b"], &spread()));
    let plan = || onto([("n1", &["a", "b"])]);
    let uneven = "default/b on n1: 2 in a, 0 in the emptiest domain of topology.kubernetes.io/zone, maxSkew 1";
    passes(one_node(), &plan());
    breaks(with_pool(one_node()), &plan(), uneven);
    passes(one_node().pool(NodePool::named("pool").limit("cpu", Quantity::from_units(1000))), &plan());
    let mut closed = NodePool::named("pool");
    closed.spec.replicas = Some(1);
    passes(one_node().pool(closed), &plan());
    let mut tainted = NodePool::named("pool");
    tainted.spec.template.spec.taints = read(r#"[{"key":"k","effect":"NoSchedule"}]"#);
    passes(one_node().pool(tainted), &plan());
    let big = spread() + r#","overhead":{"cpu":"8"}"#;
    let mut roomy = node("n1", "a");
    roomy.status.allocatable.insert("cpu".into(), Quantity::from_units(64));
    let too_big = with_pool(Snapshot::builder()).node(roomy).pods(series(&["a", "b"], &big));
    passes(too_big, &plan());
}

#[test]
fn nodes_without_the_label_of_another_spread_are_no_domains() {
    let mut racked = node("n1", "a");
    racked.metadata.labels.insert("rack".to_owned(), "r1".to_owned());
    let spreads = spreads(&[constraint(labels::ZONE, ""), constraint("rack", "")]);
    let with = |pool| Snapshot::builder().node(racked.clone()).pool(pool).pods(series(&["a", "b"], &spreads));
    passes(with(NodePool::named("pool")), &onto([("n1", &["a", "b"])]));
    let mut labelled = NodePool::named("pool");
    labelled.spec.template.metadata.labels.insert("rack".to_owned(), "r1".to_owned());
    let uneven = "default/b on n1: 2 in a, 0 in the emptiest domain of topology.kubernetes.io/zone, maxSkew 1";
    breaks(with(labelled), &onto([("n1", &["a", "b"])]), uneven);
}

#[test]
fn the_domains_of_claims_hold_whatever_is_bought() {
    let problem = || with_pool(Snapshot::builder()).pods(series(&["a", "b"], &spread()));
    passes(problem(), &of_claims([claim(&["a"], "a"), claim(&["b"], "b")]));
    let expected = "default/b on claim 1 as spot m in a: 2 in a, 0 in the emptiest domain of topology.kubernetes.io/zone, maxSkew 1";
    breaks(problem(), &of_claims([claim(&["a"], "a"), claim(&["b"], "a")]), expected);
    breaks(problem(), &of_claims([claim(&["a"], ""), claim(&["b"], "")]), expected);
}

#[test]
fn nodes_need_the_label_by_which_pods_are_spread() {
    let by_rack = two_nodes().pods(series(&["a"], &spread_by("rack", "")));
    breaks(by_rack, &onto([("n1", &["a"])]), "default/a on n1: the node has no label rack");
    let near_rack = two_nodes().pods(series(&["a"], &near(&term("a", "rack", ""))));
    breaks(near_rack, &onto([("n1", &["a"])]), "default/a on n1: the node has no label rack");
    // Whoever keeps away by a label is not near anyone without it.
    let away_rack = two_nodes().pods(series(&["a", "b"], &away(&term("a", "rack", ""))));
    passes(away_rack, &onto([("n1", &["a", "b"])]));
}

#[test]
fn nodes_that_may_not_be_there_count_if_that_is_kinder() {
    let mut going = node("n2", "b");
    going.metadata.deletion_timestamp = Some(karpenter_core::Timestamp::default());
    let problem = |second: Node| {
        let nodes = [node("n1", "a"), second];
        Snapshot::builder().nodes(nodes).pods(series(&["a", "b"], &spread()))
    };
    passes(problem(going), &onto([("n1", &["a", "b"])]));
    assert_eq!(violations(problem(node("n2", "b")), &onto([("n1", &["a", "b"])])).len(), 1);
    let launched: NodeClaim = read(
        r#"{"metadata":{"name":"c","labels":{"topology.kubernetes.io/zone":"b"}},"status":{"providerID":"c","allocatable":{"cpu":"8","pods":"9"}}}"#,
    );
    let coming = Snapshot::builder().node(node("n1", "a")).claim(launched).pods(series(&["a", "b"], &spread()));
    passes(coming.clone(), &onto([("n1", &["a", "b"])]));
    passes(coming, &onto([("n1", &["a"]), ("c", &["b"])]));
}

#[test]
fn pods_without_the_constraint_come_when_it_suits() {
    let others = ["x", "y"].map(|name| pod(name, APP_A, ""));
    let problem = || two_nodes().pods(series(&["a"], &spread())).pods(others.to_vec());
    // `a` comes first, `x` and `y` after it.
    passes(problem(), &onto([("n1", &["a", "x", "y"])]));
    let outsider = pod("o", r#""app":"o""#, &spread());
    passes(two_nodes().pods(running(1)).pods(outsider.clone()), &onto([("n1", &["o"])]));
    let expected = "default/o on n1: 2 in a, 0 in the emptiest domain of topology.kubernetes.io/zone, maxSkew 1";
    breaks(two_nodes().pods(running(2)).pods(outsider), &onto([("n1", &["o"])]), expected);
}

#[test]
fn owners_that_do_not_count_themselves_excuse_nobody() {
    let problem = |extra: usize| {
        let outsider = pod("o", r#""app":"o""#, &spread());
        two_nodes().pods(running(extra)).pods(outsider).pods(series(&["p"], &spread()))
    };
    passes(problem(0), &onto([("n1", &["o", "p"])]));
    let expected = "default/p on n1: 2 in a, 0 in the emptiest domain of topology.kubernetes.io/zone, maxSkew 1";
    breaks(problem(1), &onto([("n1", &["o", "p"])]), expected);
}

#[test]
fn the_last_to_come_may_be_whoever_has_the_fewest_empty_domains() {
    let mut roomy = node("n1", "a");
    roomy.status.allocatable.insert("cpu".into(), Quantity::from_units(64));
    // No node of the pool takes the big one, so zone b is no domain for it.
    let big = pod("big", APP_A, &format!(r#"{},"overhead":{{"cpu":"8"}}"#, spread()));
    let problem = |pods: Vec<Pod>| with_pool(Snapshot::builder()).node(roomy.clone()).pods(pods);
    let small = |name: &str| pod(name, APP_A, &spread());
    passes(problem(vec![small("a"), big]), &onto([("n1", &["a", "big"])]));
    assert_eq!(violations(problem(vec![small("a"), small("b")]), &onto([("n1", &["a", "b"])])).len(), 1);
}

#[test]
fn selectors_that_say_the_same_are_one_constraint() {
    let in_other_words = spread().replace(
        r#""matchLabels":{"app":"a"}"#,
        r#""matchExpressions":[{"key":"app","operator":"In","values":["a"]}]"#,
    );
    let pods = vec![pod("a", APP_A, &spread()), pod("b", APP_A, &in_other_words)];
    let expected = "default/b on n1: 2 in a, 0 in the emptiest domain of topology.kubernetes.io/zone, maxSkew 1";
    breaks(two_nodes().pods(pods), &onto([("n1", &["a", "b"])]), expected);
}

#[test]
fn a_series_starts_where_nobody_else_is_company() {
    let rules = near(&term("a", labels::ZONE, ""));
    let loner = vec![pod("x", APP_A, "")];
    // `a` comes first of all; then `x` without rules, which is company for `b`.
    let problem = two_nodes().pods(loner).pods(series(&["a", "b"], &rules));
    passes(problem, &onto([("n1", &["x", "b"]), ("n2", &["a"])]));
}

#[test]
fn a_series_starts_in_one_domain() {
    let rules = near(&term("a", labels::ZONE, ""));
    passes(two_nodes().pods(series(&["a", "b"], &rules)), &onto([("n1", &["a", "b"])]));
    let pairs = onto([("n1", &["a", "b", "c"]), ("n2", &["d"])]);
    let expected = "default/d on n2: it finds no company by topology.kubernetes.io/zone";
    breaks(two_nodes().pods(series(&["a", "b", "c", "d"], &rules)), &pairs, expected);
    let elsewhere = || two_nodes().pods(running(1)).pods(series(&["d"], &rules));
    breaks(elsewhere(), &onto([("n2", &["d"])]), expected);
    passes(elsewhere(), &onto([("n1", &["d"])]));
    let in_any_zone = of_claims([claim(&["a"], ""), claim(&["b"], "")]);
    let apart = violations(with_pool(Snapshot::builder()).pods(series(&["a", "b"], &rules)), &in_any_zone);
    assert!(apart[0].ends_with("it finds no company by topology.kubernetes.io/zone"), "{apart:?}");
}

#[test]
fn a_pod_that_is_no_company_for_itself_waits_for_others() {
    let rules = near(&term("b", labels::HOSTNAME, ""));
    let expected = "default/a on n1: it finds no company by kubernetes.io/hostname";
    breaks(two_nodes().pods(series(&["a"], &rules)), &onto([("n1", &["a"])]), expected);
    let with_friend = two_nodes().pods(series(&["a"], &rules)).pods(pod("b", r#""app":"b""#, ""));
    passes(with_friend.clone(), &onto([("n1", &["a", "b"])]));
    breaks(with_friend, &onto([("n1", &["a"]), ("n2", &["b"])]), expected);
}

#[test]
fn company_comes_in_a_chain() {
    let middle = pod("b", r#""app":"b""#, &near(&term("c", labels::ZONE, "")));
    let problem = || {
        let last = pod("a", r#""app":"a""#, &near(&term("b", labels::ZONE, "")));
        two_nodes().pods(vec![pod_on("n1", "r", r#""app":"c""#, ""), middle.clone(), last])
    };
    passes(problem(), &onto([("n1", &["a", "b"])]));
    let expected = [
        "default/a on n2: it finds no company by topology.kubernetes.io/zone",
        "default/b on n2: it finds no company by topology.kubernetes.io/zone",
    ];
    assert_eq!(violations(problem(), &onto([("n2", &["a", "b"])])), expected);
}

#[test]
fn all_terms_must_be_about_the_same_company() {
    let rules = near(&format!("{},{}", term("a", labels::ZONE, ""), term("b", labels::HOSTNAME, "")));
    let strangers = vec![pod_on("n1", "x", r#""app":"a""#, ""), pod_on("n1", "y", r#""app":"b""#, "")];
    // Neither of the two is of both apps.
    let expected = "default/p on n1: it finds no company by kubernetes.io/hostname";
    let problem = two_nodes().pods(strangers).pods(pod("p", r#""app":"p""#, &rules));
    breaks(problem, &onto([("n1", &["p"])]), expected);
}

#[test]
fn terms_are_about_namespaces() {
    let expected = "default/a on n1: it finds no company by topology.kubernetes.io/zone";
    for (namespaces, is_near) in [
        ("", false),
        (r#","namespaces":["o"]"#, true),
        (r#","namespaces":["default"]"#, false),
        (r#","namespaceSelector":{}"#, true),
        (r#","namespaceSelector":{"matchLabels":{"x":"2"}}"#, true),
        (r#","namespaceSelector":{"matchLabels":{"x":"1"}}"#, false),
        (r#","namespaceSelector":{"matchLabels":{"x":"1"}},"namespaces":["o"]"#, true),
        (r#","namespaceSelector":{"matchExpressions":[{"key":"x","operator":"NotIn","values":["1","3"]}]}"#, true),
        (r#","namespaceSelector":{"matchLabels":{"kubernetes.io/metadata.name":"o"}}"#, true),
    ] {
        let rules = near(&term("b", labels::ZONE, namespaces));
        let problem = two_nodes().pods(pod_on("n1", "o/r", r#""app":"b""#, "")).pods(series(&["a"], &rules));
        let found = violations(problem.clone(), &onto([("n1", &["a"])]));
        assert_eq!(found, if is_near { vec![] } else { vec![expected.to_owned()] }, "{namespaces}");
        assert_eq!(violations(problem, &onto([("n2", &["a"])])).len(), 1, "{namespaces}");
    }
}

#[test]
fn running_pods_keep_new_ones_away() {
    let guard = pod_on("n1", "g", r#""app":"g""#, &away(&term("a", labels::HOSTNAME, "")));
    // A pod that was there already is no matter.
    let problem = || two_nodes().pods(vec![guard.clone(), running(1).remove(0)]).pods(series(&["a"], ""));
    breaks(problem(), &onto([("n1", &["a"])]), "default/a on n1: default/g keeps it away by kubernetes.io/hostname");
    passes(problem(), &onto([("n2", &["a"])]));
    let mut going = guard.clone();
    going.metadata.deletion_timestamp = Some(karpenter_core::Timestamp::default());
    passes(two_nodes().pods(vec![going]).pods(series(&["a"], "")), &onto([("n1", &["a"])]));
}

#[test]
fn new_pods_keep_away_from_others() {
    let rules = away(&term("a", labels::ZONE, ""));
    let problem = || two_nodes().pods(series(&["a", "b"], &rules));
    passes(problem(), &onto([("n1", &["a"]), ("n2", &["b"])]));
    let expected = "default/a on n1: it keeps away from default/b by topology.kubernetes.io/zone";
    breaks(problem(), &onto([("n1", &["a", "b"])]), expected);
    let beside_running = two_nodes().pods(running(1)).pods(series(&["a"], &rules));
    let expected = "default/a on n1: it keeps away from default/r0 by topology.kubernetes.io/zone";
    breaks(beside_running, &onto([("n1", &["a"])]), expected);
    // Only one of the two minds.
    let one_sided = two_nodes().pods(series(&["a"], &rules)).pods(pod("x", APP_A, ""));
    let expected = "default/a on n1: it keeps away from default/x by topology.kubernetes.io/zone";
    breaks(one_sided, &onto([("n1", &["a", "x"])]), expected);
    let claims = |first: &str, second: &str| of_claims([claim(&["a"], first), claim(&["b"], second)]);
    let problem = || with_pool(Snapshot::builder()).pods(series(&["a", "b"], &rules));
    passes(problem(), &claims("a", "b"));
    let expected = "default/a on claim 0 as spot m in a: it keeps away from default/b by topology.kubernetes.io/zone";
    breaks(problem(), &claims("", ""), expected);
    let by_host = series(&["a", "b"], &away(&term("a", labels::HOSTNAME, "")));
    passes(with_pool(Snapshot::builder()).pods(by_host), &claims("", ""));
}

#[test]
fn label_keys_narrow_terms() {
    let with = |keys: &str, other: &str| {
        let rules = away(&term("a", labels::ZONE, keys));
        let other = pod_on("n1", "r", &format!(r#""app":"a",{other}"#), "");
        violations(two_nodes().pods(other).pods(series(&["a"], &rules)), &onto([("n1", &["a"])])).is_empty()
    };
    let (same, different) = (r#""h":"1""#, r#""h":"2""#);
    assert!(!with(r#","matchLabelKeys":["h"]"#, same) && with(r#","matchLabelKeys":["h"]"#, different));
    assert!(with(r#","mismatchLabelKeys":["h"]"#, same) && !with(r#","mismatchLabelKeys":["h"]"#, different));
    // The pod does not have this label, so it says nothing.
    assert!(!with(r#","matchLabelKeys":["absent"]"#, same) && !with(r#","mismatchLabelKeys":["absent"]"#, same));
}

#[test]
fn a_term_without_a_selector_is_about_nobody() {
    let nobody = format!(r#"{{"topologyKey":"{}"}}"#, labels::ZONE);
    passes(two_nodes().pods(series(&["a", "b"], &away(&nobody))), &onto([("n1", &["a", "b"])]));
    let expected = "default/a on n1: it finds no company by topology.kubernetes.io/zone";
    breaks(two_nodes().pods(series(&["a", "b"], &near(&nobody))), &onto([("n1", &["a", "b"])]), expected);
}

#[test]
fn preferences_are_no_rules() {
    let weighted = format!(r#"[{{"weight":1,"podAffinityTerm":{}}}]"#, term("a", labels::ZONE, ""));
    for kind in ["podAffinity", "podAntiAffinity"] {
        let rules =
            format!(r#""affinity":{{"{kind}":{{"preferredDuringSchedulingIgnoredDuringExecution":{weighted}}}}}"#);
        let problem = two_nodes().pods(series(&["a", "b"], &rules));
        passes(problem.clone(), &onto([("n1", &["a"]), ("n2", &["b"])]));
        passes(problem, &onto([("n1", &["a", "b"])]));
    }
}
