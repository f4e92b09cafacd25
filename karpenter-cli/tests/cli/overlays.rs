//! Node overlays in dumps.

use serde_json::{Value, json};

use crate::{
    common::{CATALOG, Files, POOL, list, pod},
    consolidate::{managed, pool, running},
};

const OVERLAY: &str = r#"{"apiVersion":"karpenter.sh/v1alpha1","kind":"NodeOverlay","metadata":{"name":"plan"},"spec":{"requirements":[
  {"key":"node.kubernetes.io/instance-type","operator":"In","values":["m-8x"]}],SPEC}}"#;

fn overlay(name: &str, spec: &str) -> String {
    OVERLAY.replace("plan", name).replace("SPEC", spec)
}

fn listed(objects: &[String]) -> String {
    list(&objects.iter().map(String::as_str).collect::<Vec<_>>())
}

/// Two machines, of which the larger one costs twice as much.
fn files(test: &str, objects: &[String]) -> Files {
    let files = Files::new(test);
    let large = CATALOG.replace("m-4x", "m-8x").replace(r#""cpu":"4""#, r#""cpu":"8""#).replace("0.2", "0.4");
    let types = [CATALOG, large.as_str()].map(|text| text.trim_start_matches('[').trim_end_matches(']'));
    files.write("types.json", &format!("[{}]", types.join(",")));
    files.write("cluster.json", &listed(objects));
    files
}

const ASK: &str = "--cluster cluster.json --catalog types.json";

#[test]
fn an_overlay_makes_another_machine_the_cheapest() {
    for (spec, types, price) in
        [(r#""weight":1"#, json!(["m-4x", "m-8x"]), 0.2), (r#""priceAdjustment":"-75%""#, json!(["m-8x", "m-4x"]), 0.1)]
    {
        let files = files("overlay-price", &[POOL.to_owned(), pod("web", "1"), overlay("plan", spec)]);
        let plan = files.json(&format!("plan {ASK} --check -o json"));
        assert_eq!(plan["warnings"], json!([]), "{plan:#}");
        let claim = &plan["newNodeClaims"][0];
        assert_eq!((&claim["instanceTypes"], &claim["cheapestPrice"]), (&types, &json!(price)), "{plan:#}");
    }
}

#[test]
fn a_pod_may_ask_for_what_only_an_overlay_promises() {
    let wants = pod("web", "1").replace(r#""cpu":"1""#, r#""cpu":"1","example.com/fuse":"2""#);
    let spec = r#""capacity":{"example.com/fuse":2}"#;
    let files = files("overlay-capacity", &[POOL.to_owned(), wants.clone()]);
    assert_eq!(files.json(&format!("plan {ASK} -o json"))["newNodeClaims"], json!([]));
    files.write("more.json", &overlay("fuses", spec));
    let plan = files.json(&format!("plan {ASK} --with more.json -o json"));
    assert_eq!(plan["newNodeClaims"][0]["instanceTypes"], json!(["m-8x"]), "{plan:#}");
}

#[test]
fn consolidation_goes_by_the_prices_of_overlays() {
    let mut objects = vec![pool("general", "100%"), overlay("plan", r#""price":"0.01""#), running("web", "3", "node")];
    objects.extend(managed("node", "general", ""));
    let files = files("overlay-consolidate", &objects);
    let answer = files.json(&format!("consolidate {ASK} --now 2026-02-01T00:00:00Z -o json"));
    assert_eq!(answer["commands"][0]["replacements"][0]["instanceTypes"][0], json!("m-8x"), "{answer:#}");
}

#[test]
fn an_overlay_that_is_left_out_is_named() {
    let same = r#""price":"0.1""#;
    let objects =
        [POOL.to_owned(), pod("web", "1"), overlay("a", same), overlay("b", same), overlay("c", r#""price":"free""#)];
    let files = files("overlay-faults", &objects);
    let plan = files.json(&format!("plan {ASK} -o json"));
    let conflict =
        "NodeOverlay b of the same weight sets the price of on-demand m-8x in zone-a in NodePool general too";
    let expected: Value = json!([
        format!("NodeOverlay a: {conflict} (it is left out)"),
        r#"NodeOverlay c: spec.price: "free" is not a number such as 0.05 (it is left out)"#,
    ]);
    assert_eq!(plan["warnings"], expected);
    files.write("cluster.json", &list(&[&overlay("a", r#""weight":-1"#)]));
    let ran = files.run(&format!("plan {ASK}"));
    assert_eq!(ran.code, Some(1));
    assert!(ran.err.contains("cluster.json: NodeOverlay a: spec.weight: "), "{}", ran.err);
}

#[test]
fn an_added_overlay_that_conflicts_with_another_is_named() {
    let same = r#""price":"0.1""#;
    let files = files("overlay-conflict", &[pool("general", "100%"), overlay("b", same)]);
    files.write("more.json", &overlay("a", same));
    for ask in ["plan", "consolidate"] {
        let warnings = files.json(&format!("{ask} {ASK} --with more.json -o json"))["warnings"].clone();
        let first = warnings[0].as_str().unwrap_or_default();
        assert!(first.starts_with("NodeOverlay a: NodeOverlay b of the same weight sets"), "{warnings}");
        let table = files.run(&format!("{ask} {ASK} --with more.json")).out;
        assert!(table.contains("\nWarnings\n NodeOverlay a: NodeOverlay b of the same weight"), "{table}");
    }
}
