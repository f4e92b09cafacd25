//! What pods are told for which no domain is left.

use karpenter_core::{
    Plan, Snapshot,
    api::{NodePool, Pod},
    labels,
};
use serde_json::{Value, json};

use super::{away_from, general, machine, near, node, plan, pods, read, spread};

#[test]
fn the_reason_of_a_spread_names_domains_that_are_full_and_domains_that_are_missing() {
    let mut pool = NodePool::named("general");
    pool.spec.limits = read(json!({"nodes": "1"}));
    let cluster = |pool: NodePool, spec: Value| Snapshot::builder().pool(pool).pods(pods("x", 2, "3", &spec));
    let types = || vec![machine("m", 4, &[("a", "on-demand", 0.1), ("b", "on-demand", 0.2)])];
    let reason = |plan: &Plan| plan.unplaced().values().next().expect("one is left").to_string();
    let full = plan(cluster(pool, json!({"spreads": [spread("x", labels::ZONE, "DoNotSchedule")]})), types());
    assert!(reason(&full).contains("lets another pod go where no node takes it, to b"), "{}", reason(&full));
    let mut of_three = spread("x", labels::ZONE, "DoNotSchedule");
    of_three["minDomains"] = 3.into();
    let three = |count| general().pods(pods("x", count, "3", &json!({"spreads": [of_three]})));
    let missing = plan(three(3), types());
    assert!(reason(&missing).contains("maxSkew 1 with minDomains 3 lets no domain"), "{}", reason(&missing));
}

#[test]
fn of_several_spreads_the_one_that_is_in_the_way_is_named() {
    let capacity_type = "karpenter.sh/capacity-type";
    let spreads = [spread("x", labels::ZONE, "DoNotSchedule"), spread("x", capacity_type, "DoNotSchedule")];
    let reason = |offerings: &[(&str, &str, f64)], zone: &str, of_type: &str| {
        // A domain in which no pod has a place.
        let mut full = node("full", zone);
        full.metadata.labels.insert(capacity_type.to_owned(), of_type.to_owned());
        full.status.allocatable = read(json!({"cpu": "0"}));
        let waiting = pods("x", 2, "1", &json!({"spreads": spreads}));
        let plan = plan(general().node(full).pods(waiting), vec![machine("m", 4, offerings)]);
        plan.unplaced().values().next().expect("one is left").to_string()
    };
    let by_zone = reason(&[("a", "spot", 0.1), ("a", "on-demand", 0.2)], "b", "spot");
    assert_eq!(
        by_zone,
        "topology spread over topology.kubernetes.io/zone: maxSkew 1 lets another pod go where no node takes it, to b (a: 1, b: 0)"
    );
    let by_type = reason(&[("a", "spot", 0.1), ("b", "spot", 0.2)], "a", "on-demand");
    assert_eq!(
        by_type,
        "topology spread over karpenter.sh/capacity-type: maxSkew 1 lets another pod go where no node takes it, to on-demand (on-demand: 0, spot: 1)"
    );
}

#[test]
fn a_domain_that_several_rules_close_is_named_once() {
    let term = |selector: Value| {
        let term = json!({"topologyKey": labels::ZONE, "labelSelector": selector});
        json!({"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}})
    };
    let running = |app: &str, selector: Value| {
        let mut pod = pods(app, 1, "1", &term(selector)).remove(0);
        pod.spec.node_name = "n".to_owned();
        pod
    };
    let there = vec![
        running("r", json!({"matchLabels": {"app": "x"}})),
        running("s", json!({"matchExpressions": [{"key": "app", "operator": "In", "values": ["x", "y"]}]})),
    ];
    let waiting = pods("x", 1, "1", &json!({}));
    let plan =
        plan(general().node(node("n", "a")).pods(there).pods(waiting), vec![machine("m", 4, &[("a", "spot", 0.1)])]);
    let reason = plan.unplaced().values().next().expect("it is left").to_string();
    assert!(reason.ends_with("there are such pods in a"), "{reason}");
}

#[test]
fn of_several_rules_about_pods_that_are_there_the_one_that_is_in_the_way_is_named() {
    let on = |zone: &str, app: &str, spec: Value| {
        let mut pod = pods(app, 1, "1", &spec).remove(0);
        pod.spec.node_name = zone.to_owned();
        pod.metadata.name = format!("{app}-{zone}");
        pod
    };
    let reason = |there: Vec<Pod>, spec: Value| {
        let nodes = ["a", "b", "c"].map(|zone| {
            let mut node = node(zone, zone);
            node.status.allocatable = read(json!({"cpu": "0"}));
            node
        });
        let offerings = [("a", "spot", 0.1), ("b", "spot", 0.1)];
        let plan =
            plan(general().nodes(nodes).pods(there).pods(pods("x", 1, "1", &spec)), vec![machine("m", 4, &offerings)]);
        plan.unplaced().values().next().expect("it is left").to_string()
    };
    // Nothing can be bought in the zone from which a pod keeps it away.
    let shy = on("c", "shy", json!({"affinity": away_from("x", labels::ZONE)}));
    let (in_a, in_b) = (on("a", "y", json!({})), on("b", "y", json!({})));
    let apart =
        reason(vec![shy.clone(), in_a.clone(), in_b.clone()], json!({"affinity": away_from("y", labels::ZONE)}));
    assert_eq!(apart, "anti-affinity over topology.kubernetes.io/zone: there are such pods in a, b");
    let spread = spread("y", labels::ZONE, "DoNotSchedule");
    let two = |pod: &Pod| {
        let mut other = pod.clone();
        other.metadata.name.push_str("-2");
        vec![pod.clone(), other]
    };
    let crowded = reason([vec![shy], two(&in_a), two(&in_b)].concat(), json!({"spreads": [spread]}));
    assert_eq!(
        crowded,
        "topology spread over topology.kubernetes.io/zone: maxSkew 1 lets another pod go where no node takes it, to c (a: 2, b: 2, c: 0)"
    );
}

#[test]
fn a_pod_to_be_near_to_that_is_nowhere_is_no_matter_of_how_much_a_node_takes() {
    let beside_y = json!({"affinity": near("y", &[labels::HOSTNAME])});
    let types = || vec![machine("m", 4, &[("a", "on-demand", 0.1)])];
    let reasons = |waiting: Vec<Pod>| {
        let plan = plan(general().pods(waiting), types());
        plan.unplaced().iter().map(|(pod, reason)| format!("{}: {reason}", pod.name)).collect::<Vec<_>>()
    };
    let missing =
        "affinity over kubernetes.io/hostname: no domain has the pods that it must be near to, running or planned";
    assert_eq!(reasons(pods("x", 1, "1", &beside_y)), [format!("x-0: {missing}")]);
    // There are such pods, and they have no place themselves.
    let mut waiting = pods("x", 1, "1", &beside_y);
    waiting.extend(pods("y", 1, "9", &json!({})));
    assert!(reasons(waiting)[0].ends_with(missing));
    // They have, and there is no room beside them.
    let mut waiting = pods("x", 1, "2", &beside_y);
    waiting.extend(pods("y", 1, "3", &json!({})));
    assert_eq!(reasons(waiting), ["x-0: affinity over kubernetes.io/hostname: no node takes all that must share it"]);
}
