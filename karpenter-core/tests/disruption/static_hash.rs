//! The static hash of a pool is Karpenter's.

use std::collections::BTreeMap;

use karpenter_core::{
    api::{NodeClaim, NodeClaimTemplate, NodePool, STATIC_HASH_VERSION},
    labels::{NODE_POOL_HASH, NODE_POOL_HASH_VERSION},
};
use serde_json::Value;

/// Each template with its name, as it is written and as it is read, and the hash that Karpenter gives it.
fn known() -> Vec<(String, Value, NodePool, String)> {
    let file: Value = serde_json::from_str(include_str!("static_hashes.json")).expect("the data is JSON");
    let read = |entry: &Value| {
        let template: NodeClaimTemplate = serde_json::from_value(entry["template"].clone()).expect("a template");
        let mut pool = NodePool::named("p");
        pool.spec.template = template;
        let text = |key: &str| entry[key].as_str().expect("a text").to_owned();
        (text("name"), entry["template"].clone(), pool, text("hash"))
    };
    file["templates"].as_array().expect("a list").iter().map(read).collect()
}

fn writes_something_empty(template: &Value) -> bool {
    ["/metadata/labels", "/metadata/annotations", "/spec/taints", "/spec/startupTaints"].iter().any(|path| {
        template.pointer(path).is_some_and(|value| match value {
            Value::Object(map) => map.is_empty(),
            Value::Array(list) => list.is_empty(),
            _ => false,
        })
    })
}

fn annotated(mut pool: NodePool, hash: &str, version: &str) -> NodePool {
    let annotations = [(NODE_POOL_HASH, hash), (NODE_POOL_HASH_VERSION, version)];
    pool.metadata.annotations.extend(annotations.map(|(k, v)| (k.to_owned(), v.to_owned())));
    pool
}

#[test]
fn templates_have_the_hashes_that_karpenter_gives_them() {
    let (mut plain, mut with_empty_parts) = (0, 0);
    for (name, written, pool, hash) in known() {
        if writes_something_empty(&written) {
            with_empty_parts += 1;
            assert_ne!(pool.static_hash(), hash, "{name}");
        } else {
            plain += 1;
            assert_eq!(pool.static_hash(), hash, "{name}");
        }
        let pool = annotated(pool, &hash, STATIC_HASH_VERSION);
        assert_eq!(pool.static_hash(), hash, "{name}");
    }
    assert!(plain > 40 && with_empty_parts > 5, "{plain} {with_empty_parts}");
}

#[test]
fn an_annotation_counts_only_if_it_is_a_hash_of_the_template() {
    let all = known();
    let of = |name: &str| all.iter().find(|(n, ..)| n == name).unwrap_or_else(|| panic!("{name}"));
    let (_, _, bare, plain) = of("nothing but a class");
    let with_empty_labels = &of("empty labels").3;
    for (hash, version, expected) in [
        ("1", STATIC_HASH_VERSION, plain),
        (with_empty_labels, "v2", plain),
        (with_empty_labels, STATIC_HASH_VERSION, with_empty_labels),
        (&of("one label").3, STATIC_HASH_VERSION, plain),
    ] {
        assert_eq!(&annotated(bare.clone(), hash, version).static_hash(), expected, "{hash} {version}");
    }
    let (_, _, labelled, hash) = of("one label");
    let stale = annotated(labelled.clone(), with_empty_labels, STATIC_HASH_VERSION);
    assert_eq!(&stale.static_hash(), hash);
}

#[test]
fn hashes_of_another_version_are_renewed_unless_the_claim_has_drifted() {
    let pool = NodePool::named("p");
    let hash = pool.static_hash();
    let both = BTreeMap::from([
        (NODE_POOL_HASH.to_owned(), hash.clone()),
        (NODE_POOL_HASH_VERSION.to_owned(), STATIC_HASH_VERSION.to_owned()),
    ]);
    assert_eq!(pool.hash_annotations(), both);
    let version_only = BTreeMap::from([(NODE_POOL_HASH_VERSION.to_owned(), STATIC_HASH_VERSION.to_owned())]);
    let drifted = r#"[{"type":"Drifted","status":"True"}]"#;
    for (pool_version, claim_version, conditions, expected) in [
        (None, None, "[]", &both),
        (Some("v2"), Some("v2"), "[]", &both),
        (Some("v2"), Some("v2"), drifted, &version_only),
        (Some("v2"), Some("v3"), "[]", &BTreeMap::new()),
        (Some("v3"), Some("v2"), "[]", &BTreeMap::new()),
        (Some("v3"), None, "[]", &BTreeMap::new()),
    ] {
        let pool = pool_version.map_or_else(|| pool.clone(), |version| annotated(pool.clone(), "1", version));
        let mut claim = NodeClaim::named("c");
        claim.metadata.annotations =
            claim_version.map(|v| (NODE_POOL_HASH_VERSION.to_owned(), v.to_owned())).into_iter().collect();
        claim.status.conditions = serde_json::from_str(conditions).unwrap();
        assert_eq!(&pool.renewed_hash_annotations(&claim), expected, "{pool_version:?} {claim_version:?} {conditions}");
    }
}
