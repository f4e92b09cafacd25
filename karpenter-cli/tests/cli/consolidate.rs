//! Commands for whole clusters.

use serde_json::{Value, json};

use crate::common::{CATALOG, Files, POOL, list, node, pod};

/// A pool whose nodes may go at any time, all at once.
pub(crate) fn pool(name: &str, budget: &str) -> String {
    let rules =
        format!(r#""spec":{{"disruption":{{"consolidateAfter":"0s","budgets":[{{"nodes":"{budget}"}}]}},"template""#);
    POOL.replace(r#""name":"general""#, &format!(r#""name":"{name}""#)).replace(r#""spec":{"template""#, &rules)
}

/// A node of the usual type that a pool made in January, and its claim; `conditions` are those of the claim.
pub(crate) fn managed(name: &str, pool: &str, conditions: &str) -> [String; 2] {
    let claim = format!(
        r#"{{"apiVersion":"karpenter.sh/v1","kind":"NodeClaim","metadata":{{"name":"{name}","uid":"{name}",
        "creationTimestamp":"2026-01-01T00:00:00Z","labels":{{"karpenter.sh/nodepool":"{pool}"}}}},
        "spec":{{"nodeClassRef":{{"group":"karpenter.kwok.sh","kind":"KWOKNodeClass","name":"default"}},"requirements":[]}},
        "status":{{"providerID":"id://{name}","nodeName":"{name}","conditions":[{conditions}]}}}}"#
    );
    let labels = format!(
        r#""labels":{{"karpenter.sh/nodepool":"{pool}","karpenter.sh/registered":"true","karpenter.sh/initialized":"true",
        "node.kubernetes.io/instance-type":"m-4x","karpenter.sh/capacity-type":"on-demand",
        "topology.kubernetes.io/zone":"zone-a","#
    );
    let node = node(name)
        .replace(r#""labels":{"#, &labels)
        .replace(r#""cpu":"2","memory":"8Gi""#, r#""cpu":"4","memory":"16Gi""#);
    [claim, node]
}

/// A pod that runs on a node, of a workload that makes it anew.
pub(crate) fn running(name: &str, cpu: &str, node: &str) -> String {
    let owner = r#""namespace":"default","ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"web","uid":"web","controller":true}]"#;
    let pod = pod(name, cpu).replace(r#""namespace":"default""#, owner);
    pod.replace(r#""spec":{"#, &format!(r#""spec":{{"nodeName":"{node}","#))
        .replace("Pending", "Running")
        .replace("False", "True")
}

/// The usual type, and one that is half as large.
pub(crate) fn catalog() -> String {
    let small = CATALOG.replace("m-4x", "m-2x").replace(r#""cpu":"4""#, r#""cpu":"2""#).replace("0.2", "0.11");
    let inner = |text: &str| text.trim_start_matches('[').trim_end_matches(']').to_owned();
    format!("[{},{}]", inner(CATALOG), inner(&small))
}

const DRIFTED: &str = r#"{"type":"Drifted","status":"True","reason":"RequirementsDrifted"}"#;

/// An empty node, one that has drifted, two that are half full, and some that stay: one by hand, one whose pod must not be
/// disturbed, and two of a pool that lets no node go.
pub(crate) fn objects() -> Vec<String> {
    let do_not = r#""metadata":{"annotations":{"karpenter.sh/do-not-disrupt":"true"},"#;
    let nodes = [
        managed("empty", "general", ""),
        managed("old", "general", DRIFTED),
        managed("half-a", "general", ""),
        managed("half-b", "general", ""),
        managed("shy", "general", ""),
        managed("frozen-a", "frozen", ""),
        managed("frozen-b", "frozen", ""),
    ];
    let pods = [
        running("drifts", "2500m", "old"),
        running("a", "1500m", "half-a"),
        running("b", "1500m", "half-b"),
        running("shy", "3900m", "shy").replace(r#""metadata":{"#, do_not),
        running("f-a", "3900m", "frozen-a"),
        running("f-b", "3900m", "frozen-b"),
        running("by-hand", "1900m", "by-hand"),
    ];
    let mut out = vec![pool("general", "100%"), pool("frozen", "0"), node("by-hand")];
    out.extend(nodes.into_iter().flatten().chain(pods));
    out
}

pub(crate) fn files(test: &str, objects: &[String]) -> Files {
    let files = Files::new(test);
    files.write("types.json", &catalog());
    files.write("cluster.json", &list(&objects.iter().map(String::as_str).collect::<Vec<_>>()));
    files
}

const ASK: &str = "consolidate --cluster cluster.json --catalog types.json --now 2026-02-01T00:00:00Z";

/// The document with all times set to 0.
fn timeless(mut document: Value) -> Value {
    document["seconds"] = json!(0);
    for command in document["commands"].as_array_mut().unwrap() {
        assert!(command["seconds"].as_f64().unwrap() >= 0.0);
        command["seconds"] = json!(0);
    }
    document
}

#[test]
fn commands_are_paragraphs() {
    let files = files("consolidate", &objects());
    let ran = files.run(ASK);
    assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""));
    assert_eq!(ran.out, include_str!("consolidate.txt"));
    assert!(ran.out.lines().all(|line| line.chars().count() <= 100), "{}", ran.out);
}

#[test]
fn commands_are_one_json_document() {
    let files = files("consolidate-json", &objects());
    let document = timeless(files.json(&format!("{ASK} -o json")));
    let text = serde_json::to_string_pretty(&document).unwrap() + "\n";
    assert_eq!(text, include_str!("consolidate.json"));
    let yaml = files.run(&format!("{ASK} -o yaml")).out;
    assert_eq!(timeless(serde_saphyr::from_str(&yaml).unwrap()), document);
}

#[test]
fn the_bills_differ_by_what_is_saved() {
    let document = files("consolidate-bill", &objects()).json(&format!("{ASK} -o json"));
    let saved: f64 = document["commands"].as_array().unwrap().iter().map(|one| one["savings"].as_f64().unwrap()).sum();
    let bill = |name: &str| document[name].as_f64().unwrap();
    assert!((bill("hourlyCostBefore") - bill("hourlyCostAfter") - saved).abs() < 1e-9, "{document}");
    assert!(saved > 0.0);
}

#[test]
fn once_is_the_first_command_only() {
    let files = files("consolidate-once", &objects());
    let all = timeless(files.json(&format!("{ASK} -o json")));
    let once = timeless(files.json(&format!("{ASK} -o json --once")));
    assert_eq!(once["commands"].as_array().unwrap().len(), 1);
    assert_eq!(once["commands"][0], all["commands"][0]);
    assert!(all["commands"].as_array().unwrap().len() > 1);
}

#[test]
fn a_search_can_be_cut_short() {
    let files = files("consolidate-limit", &objects());
    let all = timeless(files.json(&format!("{ASK} -o json")));
    assert_eq!(all["complete"], true);
    assert_eq!(timeless(files.json(&format!("{ASK} -o json --time-limit 3600"))), all);
    let none = files.json(&format!("{ASK} -o json --time-limit 0"));
    let methods: Vec<&Value> = none["commands"].as_array().unwrap().iter().map(|one| &one["method"]).collect();
    assert_eq!((&none["complete"], methods), (&json!(false), vec![&json!("emptiness")]), "empty nodes need no search");
    let text = files.run(&format!("{ASK} --time-limit 0")).out;
    assert!(text.contains("The search was stopped before its end: more nodes may go.\n"), "{text}");
}

#[test]
fn a_dump_is_judged_as_of_a_time() {
    let nightly = r#"{"nodes":"0","schedule":"0 22 * * *","duration":"8h"}"#;
    let pool = pool("general", "100%").replace(r#"{"nodes":"100%"}"#, nightly);
    let objects: Vec<String> = [pool].into_iter().chain(managed("empty", "general", "")).collect();
    let files = files("consolidate-now", &objects);
    let commands = |now: &str| {
        let ask = format!("consolidate --cluster cluster.json --catalog types.json --now {now} -o json");
        files.json(&ask)["commands"].as_array().unwrap().len()
    };
    assert_eq!(commands("2026-02-01T12:00:00Z"), 1);
    assert_eq!(commands("2026-02-01T23:00:00Z"), 0);
    assert_eq!(commands("2026-02-02T00:30:00+02:00"), 0, "half past ten in the evening");
    let ran = files.run("consolidate --cluster cluster.json --now yesterday");
    assert_eq!(ran.code, Some(2), "{}", ran.err);
}

#[test]
fn a_threshold_that_is_too_high_keeps_the_nodes() {
    let files = files("consolidate-threshold", &objects());
    let methods = |options: &str| -> Vec<Value> {
        let document = files.json(&format!("{ASK} -o json {options}"));
        document["commands"].as_array().unwrap().iter().map(|one| one["method"].clone()).collect()
    };
    assert!(methods("").contains(&json!("consolidation")));
    assert!(!methods("--min-savings-per-eviction 1").contains(&json!("consolidation")));
    assert!(!methods("--min-savings 1").contains(&json!("consolidation")));
}

#[test]
fn room_that_is_promised_to_waiting_pods_stays() {
    let mut objects = vec![pool("general", "100%")];
    objects.extend(managed("empty", "general", ""));
    let all = |files: &Files| files.json(&format!("{ASK} -o json"))["commands"].as_array().unwrap().len();
    assert_eq!(all(&files("consolidate-unpromised", &objects)), 1);
    objects.extend([pod("waits", "3"), pod("waits-too", "3")]);
    let files = files("consolidate-promised", &objects);
    assert_eq!(all(&files), 0);
    assert_eq!(
        files.run(ASK).out,
        "1 node: $0.2000 an hour, $146.00 a month (730 hours).\nNo node should go.\n2 pods that want a place come first: \
         they are where `karpenter plan` puts them, and what it buys for\n    them is not in the bill.\n\n\
         1 of 1 node cannot go to save money\n \
         1 node: its room was promised to pods: default/waits: empty\n"
    );
}

#[test]
fn what_comes_in_the_stead_of_a_chosen_node_is_for_its_pods() {
    let chosen = r#"{"type":"DisruptionReason","status":"True","reason":"Underutilized"}"#;
    let mut objects = vec![pool("general", "100%"), running("works", "3", "old")];
    objects.extend(managed("new", "general", ""));
    let as_chosen = |is_chosen: bool| {
        let conditions = if is_chosen { chosen } else { "" };
        [&objects[..], &managed("old", "general", conditions)].concat()
    };
    for (is_chosen, goes) in [(false, json!(["new"])), (true, json!([]))] {
        let files = files("consolidate-chosen", &as_chosen(is_chosen));
        let document = files.json(&format!("{ASK} -o json"));
        let commands = document["commands"].as_array().unwrap().iter();
        let nodes: Vec<Value> =
            commands.flat_map(|command| command["candidates"].as_array().unwrap().clone()).collect();
        assert_eq!(json!(nodes), goes, "{document:#}");
    }
    let plan = files("plan-chosen", &as_chosen(true)).json("plan --cluster cluster.json --catalog types.json -o json");
    assert_eq!(plan["existingNodes"], json!({"new": ["default/works"]}), "{plan:#}");
}

#[test]
fn a_cluster_without_nodes_needs_no_command() {
    let head = "0 nodes: $0.0000 an hour, $0.00 a month (730 hours).\nNo node should go.\n";
    let without_nodes = files("consolidate-none", &[pool("general", "100%")]);
    assert_eq!(without_nodes.run(ASK).out, head);
    let waits = files("consolidate-waits", &[pool("general", "100%"), pod("waits", "3")]);
    let one = "1 pod that wants a place comes first: it is where `karpenter plan` puts it, and what it buys for it\n    is \
               not in the bill.\n";
    assert_eq!(waits.run(ASK).out, format!("{head}{one}"));
}

#[test]
fn a_spot_node_becomes_another_only_where_that_is_allowed() {
    let files = Files::new("spot-to-spot");
    let spot = |text: &str| text.replace("on-demand", "spot");
    files.write("types.json", &spot(&catalog()));
    let [claim, node] = managed("large", "general", "").map(|object| spot(&object));
    files
        .write("cluster.json", &list(&[&spot(&pool("general", "100%")), &claim, &node, &running("web", "1", "large")]));
    let run =
        |rule: &str| files.run(&format!("consolidate --cluster cluster.json --catalog types.json -o json {rule}"));
    let count = |rule: &str| {
        let document: Value = serde_json::from_str(&run(rule).out).unwrap();
        document["commands"].as_array().unwrap().len()
    };
    let rules = ["", "--spot-to-spot never", "--spot-to-spot 2", "--spot-to-spot 1", "--spot-to-spot always"];
    assert_eq!(rules.map(count), [0, 0, 0, 1, 1], "one type is cheaper");
    let wrong = run("--spot-to-spot 0");
    assert_eq!(wrong.code, Some(2));
    assert!(wrong.err.contains("a number of types such as 15"), "{}", wrong.err);
}

#[test]
fn a_pool_that_is_left_out_is_named() {
    let mut objects = vec![
        pool("general", "100%").replace(r#""spec":{"disruption""#, r#""spec":{"weight":101,"disruption""#),
        static_pool("fixed"),
    ];
    objects.extend(managed("full", "general", ""));
    objects.push(running("web", "3900m", "full"));
    let files = files("consolidate-left-out", &objects);
    let said = "NodePool general: left out: not ready: spec.weight: 101 is not from 1 to 100";
    assert_eq!(files.json(&format!("{ASK} -o json"))["warnings"], json!([said]), "a static pool is no pool for pods");
    let table = files.run(ASK).out;
    assert!(table.ends_with(&format!("\nWarnings\n {said}\n")), "{table}");
    let changed = files.json(&format!("{ASK} -o json --without-type m-2x"));
    assert_eq!(changed["warnings"], json!([said]));
    let node = files.run(&ASK.replace("consolidate", "explain --node full"));
    assert_eq!(node.err, format!("karpenter: {said}\n"));
}

/// A pool with two nodes, whatever the pods need.
pub(crate) fn static_pool(name: &str) -> String {
    pool(name, "100%").replace(r#""spec":{"disruption""#, r#""spec":{"replicas":2,"disruption""#)
}

/// Two nodes of a static pool, one of which has drifted, and its pods.
pub(crate) fn drifted_static() -> Vec<String> {
    let mut out = vec![static_pool("fixed")];
    out.extend([managed("old", "fixed", DRIFTED), managed("new", "fixed", "")].into_iter().flatten());
    out.extend([running("a", "1", "old"), running("b", "1", "old"), running("c", "1", "new")]);
    out
}

#[test]
fn pods_of_static_pools_are_evicted_too() {
    let files = files("consolidate-static", &drifted_static());
    let document = files.json(&format!("{ASK} -o json"));
    let command = &document["commands"][0];
    assert_eq!((&command["method"], &command["candidates"]), (&json!("staticDrift"), &json!(["old"])), "{document:#}");
    assert_eq!((&command["evictions"], document["commands"].as_array().unwrap().len()), (&json!(2), 1));
    let table = files.run(ASK).out;
    for line in [
        "1. 1 node goes, 1 comes, 2 pods move: $0.0900 an hour and $65.70 a month less",
        "   It is not what its pool asks for any more: RequirementsDrifted. The pool is static: it is not",
        "       planned where the pods go.",
        " goes       1  fixed  m-4x       zone-a  on-demand    0.2000   0.2000     2  old",
        " comes      1  fixed  m-2x (+1)  any     on-demand    0.1100   0.1100     -",
    ] {
        assert!(table.lines().any(|one| one.trim_end() == line), "{line}: {table}");
    }
}
