//! Answers about single nodes.

use serde_json::{Value, json};

use crate::{
    common::Files,
    consolidate::{drifted_static, files, managed, objects, pool, running},
};

const ALL: &str = "empty old half-a shy frozen-a by-hand";

fn ask(files: &Files, nodes: &str, options: &str) -> Value {
    files.json(&format!(
        "explain --node {nodes} --cluster cluster.json --catalog types.json --now 2026-02-01T00:00:00Z -o json {options}"
    ))
}

/// One node of a pool with one pod that a cheaper node would take.
fn lonely() -> Vec<String> {
    let [claim, node] = managed("lonely", "general", "");
    vec![pool("general", "100%"), claim, node, running("web", "500m", "lonely")]
}

#[test]
fn answers_are_paragraphs() {
    let files = files("outlook", &objects());
    let ran = files
        .run(&format!("explain --node {ALL} --cluster cluster.json --catalog types.json --now 2026-02-01T00:00:00Z"));
    assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""));
    assert_eq!(ran.out, include_str!("outlook.txt"));
}

#[test]
fn answers_are_one_json_object_a_node() {
    let files = files("outlook-json", &objects());
    let answers = ask(&files, ALL, "");
    let text = serde_json::to_string_pretty(&answers).unwrap() + "\n";
    assert_eq!(text, include_str!("outlook.json"));
    assert_eq!(answers, ask(&files, &format!("{ALL} empty"), ""), "a node that is named twice is answered once");
}

#[test]
fn what_is_said_to_go_goes_and_nothing_is_named() {
    let files = files("outlook-goes", &lonely());
    let answer = &ask(&files, "lonely", "")[0];
    assert_eq!((&answer["goesFor"], &answer["guards"]), (&json!("Underutilized"), &json!([])), "{answer}");
    let alone = &answer["alone"];
    assert_eq!((&alone["worthIt"], &alone["errors"]), (&json!(true), &json!({})), "{answer}");
    let commands =
        files.json("consolidate --cluster cluster.json --catalog types.json --now 2026-02-01T00:00:00Z -o json");
    assert_eq!(commands["commands"][0]["candidates"], json!(["lonely"]));
    assert_eq!(commands["commands"][0]["savings"], alone["savings"]);
    assert_eq!(commands["commands"][0]["replacements"], alone["replacements"]);
}

/// Reads one thing of an answer.
type Read = fn(&Value) -> &Value;
/// The name of a case, with what is read of its answer and what that is.
type Finding = (&'static str, Read, Value);

/// An object of the lonely cluster is changed, which puts one thing in the way. It is what the answer names, and no command
/// takes the node; the test above is the same cluster without it.
#[test]
fn what_is_in_the_way_is_named() {
    let budget = r#"{"apiVersion":"policy/v1","kind":"PodDisruptionBudget","metadata":{"name":"b","namespace":"default"},
        "spec":{"selector":{}},"status":{"disruptionsAllowed":0}}"#;
    let shy = r#""metadata":{"annotations":{"karpenter.sh/do-not-disrupt":"true"},"#;
    let fixed = r#""spec":{"nodeSelector":{"example.com/rack":"7"},"#;
    let changes: [(usize, &str, &str, Finding); 6] = [
        (0, r#""nodes":"100%""#, r#""nodes":"0""#, ("budget", |a| &a["reasons"][2]["budget"]["allowed"], json!(0))),
        (
            0,
            r#""consolidateAfter":"0s""#,
            r#""consolidateAfter":"Never""#,
            ("never", first_guard, json!("neverConsolidated")),
        ),
        (2, r#""metadata":{"#, shy, ("node", first_guard, json!("doNotDisrupt"))),
        (2, "m-4x", "m-5x", ("type", first_guard, json!("unknownInstanceType"))),
        (3, r#""metadata":{"#, shy, ("pod", first_guard, json!("podDoNotDisrupt"))),
        (3, r#""spec":{"#, fixed, ("place", |a| &a["alone"]["worthIt"], json!(false))),
    ];
    for (index, from, to, (name, read, expected)) in changes {
        let mut objects = lonely();
        objects[index] = objects[index].replacen(from, to, 1);
        let files = files(&format!("outlook-{name}"), &objects);
        stays(&files, name, read, &expected);
    }
    let mut objects = lonely();
    objects.push(budget.to_owned());
    stays(&files("outlook-pod-budget", &objects), "pod budget", first_guard, &json!("podBudget"));
}

fn first_guard(answer: &Value) -> &Value {
    &answer["guards"][0]["kind"]
}

fn stays(files: &Files, name: &str, read: Read, expected: &Value) {
    let answer = &ask(files, "lonely", "")[0];
    assert_eq!((&answer["goesFor"], read(answer)), (&json!(null), expected), "{name}: {answer}");
    let commands =
        files.json("consolidate --cluster cluster.json --catalog types.json --now 2026-02-01T00:00:00Z -o json");
    assert_eq!(commands["commands"], json!([]), "{name}");
}

#[test]
fn pods_that_may_leave_in_turns_keep_no_node() {
    let budget = |allowed: u32| {
        format!(
            r#"{{"apiVersion":"policy/v1","kind":"PodDisruptionBudget","metadata":{{"name":"b","namespace":"default"}},
            "spec":{{"selector":{{}}}},"status":{{"disruptionsAllowed":{allowed}}}}}"#
        )
    };
    let answer = |allowed| {
        let mut objects = lonely();
        objects.extend([running("web-2", "500m", "lonely"), budget(allowed)]);
        ask(&files(&format!("outlook-evictions-{allowed}"), &objects), "lonely", "")[0].clone()
    };
    assert_eq!((&answer(0)["goesFor"], first_guard(&answer(0))), (&json!(null), &json!("podBudget")));
    assert_eq!(answer(1)["goesFor"], json!("Underutilized"));
}

#[test]
fn a_pod_without_another_place_is_named_with_what_keeps_it() {
    let mut objects = lonely();
    objects[3] = objects[3].replacen(r#""spec":{"#, r#""spec":{"nodeSelector":{"example.com/rack":"7"},"#, 1);
    let errors = ask(&files("outlook-place", &objects), "lonely", "")[0]["alone"]["errors"].clone();
    assert!(errors["default/web"].as_str().unwrap().contains("example.com/rack"), "{errors}");
}

#[test]
fn savings_are_held_against_the_thresholds() {
    let files = files("outlook-threshold", &lonely());
    let goes = |options: &str| ask(&files, "lonely", options)[0]["goesFor"].clone();
    assert_eq!(goes("--min-savings-per-eviction 0.08 --min-savings 0"), "Underutilized", "it saves 0.09");
    assert_eq!(goes("--min-savings-per-eviction 0.1 --min-savings 0"), json!(null));
    assert_eq!(goes("--min-savings-per-eviction 0 --min-savings 0.5"), json!(null));
}

#[test]
fn nodes_and_pods_are_asked_about_apart() {
    let files = files("outlook-usage", &lonely());
    let run = |ask: &str| files.run(&format!("explain {ask} --cluster cluster.json --catalog types.json"));
    let ran = run("--node nobody");
    assert_eq!((ran.code, ran.err.as_str()), (Some(1), "karpenter: Node nobody: is not in the cluster\n"));
    assert_eq!(run("web --node lonely").code, Some(2));
    assert_eq!(run("").code, Some(2));
    assert_eq!(run("web").code, Some(0));
}

#[test]
fn what_goes_for_its_drift_need_save_nothing() {
    let drifted = r#"{"type":"Drifted","status":"True","reason":"RequirementsDrifted"}"#;
    let mut objects = vec![pool("general", "100%")];
    objects.extend(managed("old", "general", drifted));
    objects.push(running("web", "3900m", "old"));
    let ask = "explain --node old --cluster cluster.json --catalog types.json --now 2026-02-01T00:00:00Z";
    let of_pods = files("outlook-drift", &objects).run(ask).out;
    let end = "  if it went alone:\n    1 pod to a new node of pool general: m-4x, $0.2000 an hour\n    \
        $0.0000 an hour and $0.00 a month less\n";
    assert!(of_pods.starts_with("old: may go: it is not what") && of_pods.ends_with(end), "{of_pods}");
    objects[0] = pool("general", "0");
    let kept = files("outlook-drift-kept", &objects).run(ask).out;
    let end = "$0.0000 an hour and $0.00 a month less: not enough, it must save more than $0.0117 an hour\n";
    assert!(kept.starts_with("old: stays\n") && kept.ends_with(end), "it might still go to save money: {kept}");
    let of_static = files("outlook-static", &drifted_static()).run(ask).out;
    let end = "  if it went alone:\n    a new node of pool fixed: m-2x (+1), $0.1100 an hour\n    \
        2 pods to wherever there is room: in a static pool that is not planned\n    \
        $0.0900 an hour and $65.70 a month less\n";
    assert!(of_static.starts_with("old: may go: it is not what") && of_static.ends_with(end), "{of_static}");
    let mut too_many = drifted_static();
    too_many[0] = too_many[0].replace(r#""replicas":2"#, r#""replicas":1"#);
    let waits = files("outlook-static-waits", &too_many).run(ask).out;
    let words = waits.split_whitespace().collect::<Vec<_>>().join(" ");
    let end =
        "no node can come in its place now: its pool has more nodes than replicas, or as many as its limit allows";
    assert!(waits.starts_with("old: stays\n") && words.ends_with(end), "{waits}");
}

#[test]
fn a_node_that_is_on_its_way_out_does_not_stay() {
    let mut objects = vec![pool("general", "100%")];
    let leaving = r#""name":"a","deletionTimestamp":"2026-01-31T00:00:00Z","#;
    objects.extend(managed("a", "general", "").iter().map(|object| object.replacen(r#""name":"a","#, leaving, 1)));
    objects.push(running("web", "500m", "a"));
    let files = files("outlook-leaving", &objects);
    let out = files.run("explain --node a --cluster cluster.json --catalog types.json --now 2026-02-01T00:00:00Z").out;
    assert!(out.starts_with("a: is on its way out\n"), "{out}");
}
