//! Answers about node pools.

use serde_json::{Value, json};

use crate::{
    common::{CATALOG, Files, POOL, list, pod},
    consolidate::{files, managed, objects, pool},
};

const ASK: &str = "--cluster cluster.json --catalog types.json --now 2026-02-01T00:00:00Z";

/// A machine of so many cores with one offering.
fn machine(name: &str, cpu: &str, price: &str, capacity_type: &str) -> String {
    let cpu = format!(r#""cpu":"{cpu}""#);
    let text = CATALOG.replace("m-4x", name).replace(r#""cpu":"4""#, &cpu).replace("0.2", price);
    text.replace("on-demand", capacity_type).trim_start_matches('[').trim_end_matches(']').to_owned()
}

const DAEMON: &str = r#"{"apiVersion":"apps/v1","kind":"DaemonSet","metadata":{"name":"agent","namespace":"kube-system","uid":"agent"},
  "spec":{"template":{"spec":{"containers":[{"name":"c","resources":{"requests":{"cpu":"1500m"}}}]}}}}"#;

/// The usual cluster with a daemon, a limit and a pool that is static, and machines of which some will not do.
fn world(test: &str) -> Files {
    let limits = r#""spec":{"weight":10,"limits":{"cpu":"36"},"disruption""#;
    let mut objects: Vec<String> =
        objects().into_iter().map(|text| text.replacen(r#""spec":{"disruption""#, limits, 1)).collect();
    objects.push(pool("fixed", "100%").replace(r#""spec":{"disruption""#, r#""spec":{"replicas":2,"disruption""#));
    objects.push(DAEMON.to_owned());
    let files = files(test, &objects);
    let gone = machine("gone", "4", "0.1", "on-demand").replace(r#""price""#, r#""available":false,"price""#);
    let all = [
        machine("m-4x", "4", "0.2", "on-demand"),
        machine("m-8x", "8", "0.4", "on-demand"),
        machine("m-64x", "64", "3.2", "on-demand"),
        machine("spare-4x", "4", "0.06", "spot"),
        machine("spare-8x", "8", "0.12", "spot"),
        machine("tiny", "1", "0.05", "on-demand"),
        gone,
    ];
    files.write("types.json", &format!("[{}]", all.join(",")));
    files
}

#[test]
fn answers_are_paragraphs() {
    let files = world("pools");
    let ran = files.run(&format!("explain --node-pool general fixed {ASK}"));
    assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""));
    assert_eq!(ran.out, include_str!("pools.txt"));
    assert!(ran.out.lines().all(|line| line.chars().count() <= 100), "{}", ran.out);
}

#[test]
fn answers_are_one_json_object_a_pool() {
    let files = world("pools-json");
    let answers = files.json(&format!("explain --node-pool general fixed general {ASK} -o json"));
    assert_eq!(serde_json::to_string_pretty(&answers).unwrap() + "\n", include_str!("pools.json"));
    let yaml = files.run(&format!("explain --node-pool general fixed {ASK} -o yaml")).out;
    assert_eq!(serde_saphyr::from_str::<Value>(&yaml).unwrap(), answers);
}

#[test]
fn nothing_in_the_way_means_nothing_named() {
    let files = files("pools-open", &[pool("general", "100%")]);
    let answer = files.json(&format!("explain --node-pool general {ASK} -o json"))[0].clone();
    assert_eq!((&answer["obstacle"], &answer["ruledOut"], &answer["types"]), (&Value::Null, &json!([]), &json!(2)));
    assert_eq!(answer["remaining"].as_array().unwrap().len(), 2);
}

#[test]
fn what_remains_is_what_pods_may_ask_for() {
    let files = world("pools-plan");
    let limited =
        pool("general", "100%").replace(r#""spec":{"disruption""#, r#""spec":{"limits":{"cpu":"36"},"disruption""#);
    let types = ["m-4x", "m-8x", "m-64x", "spare-4x", "spare-8x", "tiny", "gone"];
    let asks = |name: &&str| {
        let selector = format!(r#""spec":{{"nodeSelector":{{"node.kubernetes.io/instance-type":"{name}"}},"#);
        pod(name, "100m").replace(r#""spec":{"#, &selector)
    };
    let pods: Vec<String> = types.iter().map(asks).collect();
    let all: Vec<&str> = [limited.as_str(), DAEMON].into_iter().chain(pods.iter().map(String::as_str)).collect();
    files.write("cluster.json", &list(&all));
    let answer = files.json(&format!("explain --node-pool general {ASK} -o json"))[0].clone();
    let remaining = answer["remaining"].as_array().unwrap();
    let plan = files.json("plan --cluster cluster.json --catalog types.json -o json");
    for name in types {
        let is_left = remaining.iter().any(|one| one["instanceType"] == json!(name));
        let error = &plan["errors"][format!("default/{name}")];
        assert_eq!(is_left, error.is_null(), "{name}: {error}");
    }
    assert_eq!(remaining.len(), 2);
}

#[test]
fn a_pool_that_cannot_keep_its_min_values_says_so_first() {
    let names = r#"{"key":"node.kubernetes.io/instance-type","operator":"Exists","minValues":2}"#;
    let asking = POOL.replace(r#""requirements":["#, &format!(r#""requirements":[{names},"#));
    let files = Files::new("pools-min-values");
    files.write("cluster.json", &list(&[&asking, &pod("a", "1")]));
    let first_line = |types: &[String]| {
        // The name of a type is among its labels, whether or not it is written there.
        let types = types.iter().map(|text| text.replace("node.kubernetes.io/instance-type", "example.com/name"));
        files.write("types.json", &format!("[{}]", types.collect::<Vec<_>>().join(",")));
        files.run(&format!("explain --node-pool general {ASK}")).out.lines().next().unwrap().to_owned()
    };
    let [one, other] = ["a", "b"].map(|name| machine(name, "4", "0.2", "on-demand"));
    assert_eq!(
        first_line(std::slice::from_ref(&one)),
        "general: 1 of 1 type can be launched, from $0.2000 an hour, but only without minValues"
    );
    assert_eq!(first_line(&[one, other]), "general: 2 of 2 types can be launched, from $0.2000 an hour");
    let plan = files.json("plan --check --cluster cluster.json --catalog types.json -o json");
    assert_eq!(plan["errors"], json!({}));
}

#[test]
fn budgets_depend_on_the_time() {
    let nightly = r#"{"nodes":"0","schedule":"0 22 * * *","duration":"8h"}"#;
    let pool = pool("general", "100%").replace(r#"{"nodes":"100%"}"#, nightly);
    let objects: Vec<String> = [pool].into_iter().chain(managed("empty", "general", "")).collect();
    let files = files("pools-now", &objects);
    let may_go = |now: &str| {
        let ask =
            format!("explain --node-pool general --cluster cluster.json --catalog types.json --now {now} -o json");
        files.json(&ask)[0]["budgets"][0]["nodes"].clone()
    };
    assert_eq!((may_go("2026-02-01T12:00:00Z"), may_go("2026-02-01T23:00:00Z")), (json!(1), json!(0)));
}

#[test]
fn pools_that_are_not_there_or_cannot_be_read() {
    let bad = POOL.replace(r#""requirements":["#, r#""taints":7,"requirements":["#);
    let files = files("pools-unknown", &[bad]);
    let line = |pool: &str| {
        let ran = files.run(&format!("explain --node-pool {pool} {ASK}"));
        assert_eq!((ran.code, ran.out.as_str(), ran.err.lines().count()), (Some(1), "", 1), "{}", ran.err);
        ran.err
    };
    assert_eq!(line("nope"), "karpenter: NodePool nope: is not in the cluster\n");
    assert!(line("general").starts_with("karpenter: cluster.json: NodePool general: spec.template.spec.taints: "));
    let ran = files.run(&format!("explain --node-pool general --node x {ASK}"));
    assert_eq!(ran.code, Some(2), "{}", ran.err);
}
