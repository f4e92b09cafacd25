//! The options that say what becomes of wishes, reservations and `minValues`, what counts as a cost and what is guarded against.

use serde_json::{Value, json};

use crate::common::{CATALOG, Files, POOL, list, pod};

/// How many of the pods have no place and how many new nodes there are.
fn counts(document: &Value) -> (usize, usize) {
    (document["errors"].as_object().unwrap().len(), document["newNodeClaims"].as_array().unwrap().len())
}

#[test]
fn preferences_can_be_ignored_or_have_a_price() {
    let files = Files::new("preferences");
    let alone = r#""spec":{"affinity":{"podAntiAffinity":{"preferredDuringSchedulingIgnoredDuringExecution":[{"weight":1,
        "podAffinityTerm":{"topologyKey":"kubernetes.io/hostname","labelSelector":{"matchLabels":{"app":"web"}}}}]}},"#;
    let web = |name: &str| {
        pod(name, "1")
            .replace(r#""spec":{"#, alone)
            .replace(r#""metadata":{"#, r#""metadata":{"labels":{"app":"web"},"#)
    };
    files.write("cluster.json", &list(&[POOL, &web("a"), &web("b")]));
    let plan = |options| files.json(&format!("plan --cluster cluster.json --catalog types.json -o json {options}"));
    assert_eq!(counts(&plan("")), (0, 2));
    assert_eq!(counts(&plan("--preferences respect")), (0, 2));
    assert_eq!(counts(&plan("--preferences ignore")), (0, 1));
    // A second machine costs 0.2, and the two pods share the price of being together, a hundredth for each.
    assert_eq!(counts(&plan("--preferences weigh")), (0, 1));
    assert_eq!(counts(&plan("--preferences weigh --preference-price 9")), (0, 1));
    assert_eq!(counts(&plan("--preferences weigh --preference-price 11")), (0, 2));
}

#[test]
fn pods_may_have_to_wait_for_reservations() {
    let files = Files::new("reservations");
    let reserved = r#""offerings":[{"price":0.01,"reservationCapacity":1,"requirements":[
        {"key":"karpenter.sh/capacity-type","operator":"In","values":["reserved"]},
        {"key":"example.com/reservation-id","operator":"In","values":["r-1"]},
        {"key":"topology.kubernetes.io/zone","operator":"In","values":["zone-a"]}]},"#;
    files.write("types.json", &CATALOG.replace(r#""offerings":["#, reserved));
    let pool = POOL.replace(r#"["on-demand"]"#, r#"["on-demand","reserved"]"#);
    files.write("cluster.json", &list(&[&pool, &pod("a", "3"), &pod("b", "3")]));
    let plan = |options| files.json(&format!("plan --cluster cluster.json --catalog types.json -o json {options}"));
    assert_eq!(counts(&plan("")), (0, 2));
    let strict = plan("--reservations strict");
    assert_eq!(counts(&strict), (1, 1));
    assert_eq!(strict["errors"], json!({"default/b": "pool general: it waits for reservation r-1, which it may use"}));
    let answer = files.json("explain b --cluster cluster.json --catalog types.json -o json --reservations strict");
    assert_eq!(answer[0]["pools"][0]["obstacles"][0]["kind"], "awaitsReservation");
    assert_eq!(answer[0]["pools"][0]["obstacles"][0]["reservations"], json!(["r-1"]));
}

#[test]
fn min_values_may_be_kept_as_well_as_can_be() {
    let files = Files::new("min-values");
    let pool = POOL.replace(
        r#""requirements":["#,
        r#""requirements":[{"key":"node.kubernetes.io/instance-type","operator":"Exists","minValues":2},"#,
    );
    files.write("cluster.json", &list(&[&pool, &pod("a", "3")]));
    let plan = |options| files.json(&format!("plan --cluster cluster.json --catalog types.json -o json {options}"));
    assert_eq!(counts(&plan("")), (1, 0));
    assert_eq!(counts(&plan("--min-values strict")), (1, 0));
    assert_eq!(counts(&plan("--min-values best-effort")), (0, 1));
}

#[test]
fn costs_and_risks_can_be_weighed() {
    let files = Files::new("risks");
    // Two small machines cost a little more than a large one, of which the cloud takes back one in ten within an hour.
    let small = CATALOG.replace("on-demand", "spot");
    let large = small.replace("m-4x", "m-8x").replace(r#""cpu":"4""#, r#""cpu":"8""#).replace("16Gi", "32Gi");
    let large = large.replace(r#""price":0.2"#, r#""price":0.38,"interruption":0.1"#);
    let dear = small.replace("m-4x", "m-2x").replace(r#""cpu":"4""#, r#""cpu":"2""#).replace("0.2", "1");
    let types = [&small, &large, &dear].map(|list| &list[1..list.len() - 1]);
    files.write("types.json", &format!("[{}]", types.join(",")));
    let pods = ["a", "b", "c", "d", "e", "f", "g", "h"].map(|name| pod(name, "1"));
    let pool = POOL.replace("on-demand", "spot");
    let items: Vec<&str> = [pool.as_str()].into_iter().chain(pods.iter().map(String::as_str)).collect();
    files.write("cluster.json", &list(&items));
    for (options, claims) in [
        ("--min-spot-types 0", 1),
        ("--min-spot-types 2", 2),
        ("--min-spot-types 0 --interruption-cost 1", 2),
        ("--min-spot-types 0 --interruption-cost 1 --node-cost 1", 1),
        ("--max-workload-share 0.25", 4),
    ] {
        let plan = files.json(&format!("plan --cluster cluster.json --catalog types.json -o json {options}"));
        assert_eq!(counts(&plan), (0, claims), "{options}");
    }
    let answer = files.json("explain a --cluster cluster.json --catalog types.json -o json --max-workload-share 0.125");
    assert_eq!(answer[0]["otherPods"], json!([]));
}

#[test]
fn the_search_can_be_cut_short() {
    let files = Files::new("time-limit");
    files.write("cluster.json", &list(&[POOL, &pod("a", "1")]));
    let plan = |options| files.json(&format!("plan --cluster cluster.json --catalog types.json -o json {options}"));
    let all = plan("--time-limit 3600");
    assert_eq!((&all["complete"], counts(&all)), (&json!(true), (0, 1)));
    let none = plan("--time-limit 0");
    assert_eq!((&none["complete"], counts(&none)), (&json!(false), (1, 0)));
    assert_eq!(none["errors"], json!({"default/a": "planning was stopped before a place was found"}));
}
