//! A small catalog, two nodes, and pods in JSON.

use std::collections::BTreeMap;

use karpenter_core::{
    InstanceType, Plan, PlannedClaim, Quantity, Requirement, Requirements, Snapshot, SnapshotBuilder,
    api::{Namespace, Node, NodePool, ObjectKey, Pod},
    labels,
};

use super::{dollars, read, violations_with};

/// `m` has 8 CPUs in zones a and b, at one price.
pub(super) fn types() -> Vec<InstanceType> {
    let resources = [("cpu", Quantity::from_units(8)), ("memory", Quantity::from_bytes(32 << 30))];
    let m = InstanceType::named("m", resources);
    vec![m.offering("spot", "a", dollars(1.0)).offering("spot", "b", dollars(1.0))]
}

pub(super) fn key(name: &str) -> ObjectKey {
    name.parse().expect("a key")
}

/// A pod that asks for a CPU, on a node unless that is empty. Labels and rules are written as in JSON.
pub(super) fn pod_on(node: &str, name: &str, pod_labels: &str, rules: &str) -> Pod {
    let (ObjectKey { namespace, name }, comma) = (key(name), if rules.is_empty() { "" } else { "," });
    read(&format!(
        r#"{{"metadata":{{"name":"{name}","namespace":"{namespace}","labels":{{{pod_labels}}}}},
            "spec":{{"nodeName":"{node}","containers":[{{"resources":{{"requests":{{"cpu":"1"}}}}}}]{comma}{rules}}},
            "status":{{"conditions":[{{"type":"PodScheduled","status":"False","reason":"Unschedulable"}}]}}}}"#
    ))
}

pub(super) fn pod(name: &str, pod_labels: &str, rules: &str) -> Pod {
    pod_on("", name, pod_labels, rules)
}

pub(super) const APP_A: &str = r#""app":"a","h":"1""#;

pub(super) fn node(name: &str, zone: &str) -> Node {
    read(&format!(
        r#"{{"metadata":{{"name":"{name}","labels":{{"topology.kubernetes.io/zone":"{zone}"}}}},
            "spec":{{"providerID":"{name}"}},"status":{{"allocatable":{{"cpu":"8","pods":"50"}}}}}}"#
    ))
}

/// Nodes `n1` in zone a and `n2` in zone b, and no pool.
pub(super) fn two_nodes() -> SnapshotBuilder {
    let namespace = |name: &str, x: &str| -> Namespace {
        read(&format!(r#"{{"metadata":{{"name":"{name}","labels":{{"x":"{x}"}}}}}}"#))
    };
    let namespaces = [namespace("default", "1"), namespace("o", "2")];
    Snapshot::builder().nodes([node("n1", "a"), node("n2", "b")]).namespaces(namespaces)
}

pub(super) fn onto<const N: usize>(places: [(&str, &[&str]); N]) -> Plan {
    let keys = |names: &[&str]| names.iter().map(|name| key(name)).collect();
    let existing = places.map(|(place, names)| (place.to_owned(), keys(names)));
    Plan::from_parts(Vec::new(), BTreeMap::from(existing), BTreeMap::new())
}

/// A claim for these pods, in one zone unless that is empty.
pub(super) fn claim(names: &[&str], zone: &str) -> PlannedClaim {
    let mut requirements = Requirements::new();
    if !zone.is_empty() {
        requirements.add(labels::ZONE, Requirement::one_of([zone]));
    }
    PlannedClaim::new("pool", names.iter().map(|n| key(n)).collect(), ["m"], dollars(1.0), requirements)
}

pub(super) fn of_claims<const N: usize>(claims: [PlannedClaim; N]) -> Plan {
    Plan::from_parts(claims.into(), BTreeMap::new(), BTreeMap::new())
}

pub(super) fn violations(builder: SnapshotBuilder, plan: &Plan) -> Vec<String> {
    violations_with(types(), builder, plan)
}

#[track_caller]
pub(super) fn passes(builder: SnapshotBuilder, plan: &Plan) {
    assert_eq!(violations(builder, plan), [""; 0]);
}

#[track_caller]
pub(super) fn breaks(builder: SnapshotBuilder, plan: &Plan, expected: &str) {
    assert_eq!(violations(builder, plan), [expected]);
}

pub(super) fn with_pool(builder: SnapshotBuilder) -> SnapshotBuilder {
    builder.pool(NodePool::named("pool"))
}
