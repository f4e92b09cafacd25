//! Manifests of older versions, and what else users write that was right once or is nearly right.

use crate::common::{CATALOG, Files, POOL, list, pod};
use karpenter_cli::load;
use serde_json::json;

const MANIFESTS: &str = include_str!("older.yaml");

/// The usual catalog and a type with a GPU.
fn catalog_with_gpu() -> String {
    let gpu = CATALOG.replace("m-4x", "g-4x").replace(r#""pods":"110""#, r#""pods":"110","nvidia.com/gpu":"1""#);
    let gpu = gpu.replace(r#""price":0.2"#, r#""price":0.9"#);
    format!("{},{}", CATALOG.trim_end_matches(']'), gpu.trim_start_matches('['))
}

#[test]
fn a_report_on_older_manifests_says_what_to_do() {
    let files = Files::new("older");
    files.write("types.json", &catalog_with_gpu());
    files.write("older.yaml", MANIFESTS);
    let ran = files.run("plan --cluster older.yaml --catalog types.json");
    assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""));
    assert_eq!(ran.out, include_str!("older.txt"));
}

#[test]
fn older_pools_are_planned_with_and_named_in_the_warnings() {
    let files = Files::new("older-json");
    let old = POOL.replace("karpenter.sh/v1", "karpenter.sh/v1beta1").replace("\"group\":\"", "\"apiVersion\":\"");
    let document = files.plan(&list(&[&old, &pod("a", "1")]));
    assert_eq!(document["newNodeClaims"][0]["nodePool"], "general");
    assert_eq!(
        document["warnings"],
        json!([
            "cluster.json: NodePool general: apiVersion: karpenter.sh/v1beta1 is served no more; it is read as karpenter.sh/v1: convert it to that",
            "cluster.json: NodePool general: spec.template.spec.nodeClassRef.apiVersion: is read as the group karpenter.kwok.sh: write that as spec.template.spec.nodeClassRef.group instead",
        ])
    );
}

#[test]
fn an_older_pool_that_lacks_what_it_needs_is_left_out() {
    let files = Files::new("older-lacking");
    let old = POOL
        .replace("karpenter.sh/v1", "karpenter.sh/v1beta1")
        .replace(r#""group":"karpenter.kwok.sh","kind":"KWOKNodeClass","#, "");
    let document = files.plan(&list(&[&old, &pod("a", "1")]));
    assert_eq!(document["newNodeClaims"], json!([]));
    let warnings = document["warnings"].to_string();
    assert!(warnings.contains("spec.template.spec.nodeClassRef.group: must not be empty"), "{warnings}");
}

#[test]
fn older_claims_expire_as_their_pools_say() {
    for file in [MANIFESTS.to_owned(), reversed(MANIFESTS)] {
        let cluster = load::cluster(&file, "older.yaml").unwrap();
        let mut expiries: Vec<_> = cluster.claims.iter().map(|c| (c.name(), c.spec.expire_after.to_string())).collect();
        expiries.sort_unstable();
        let day = || "24h".to_owned();
        assert_eq!(expiries, [("old-a", day()), ("old-b", day()), ("old-c", "720h".to_owned())]);
    }
}

#[test]
fn warnings_do_not_depend_on_the_order_of_objects() {
    let warnings = |text: &str| load::cluster(text, "older.yaml").unwrap().warnings;
    assert_eq!(warnings(MANIFESTS), warnings(&reversed(MANIFESTS)));
}

fn reversed(documents: &str) -> String {
    documents.rsplit("---\n").collect::<Vec<_>>().join("\n---\n")
}

#[test]
fn kinds_that_others_took_the_place_of_are_named() {
    let files = Files::new("successors");
    let object = |version: &str, kind: &str| {
        format!(r#"{{"apiVersion":"karpenter.sh/{version}","kind":"{kind}","metadata":{{"name":"x"}}}}"#)
    };
    for (version, kind, expected) in [
        (
            "v1alpha5",
            "Provisioner",
            "karpenter.sh/v1alpha5 is not read: write a NodePool of karpenter.sh/v1 instead (it is left out)",
        ),
        (
            "v1alpha5",
            "Machine",
            "karpenter.sh/v1alpha5 is not read: write a NodeClaim of karpenter.sh/v1 instead (it is left out)",
        ),
        (
            "v2",
            "NodePool",
            "karpenter.sh/v2: only NodePool and NodeClaim of karpenter.sh/v1 and karpenter.sh/v1beta1, and NodeOverlay of karpenter.sh/v1alpha1, are read (it is left out)",
        ),
    ] {
        let document = files.plan(&list(&[POOL, &object(version, kind)]));
        assert_eq!(document["warnings"], json!([format!("cluster.json: {kind} x: apiVersion: {expected}")]));
    }
}
