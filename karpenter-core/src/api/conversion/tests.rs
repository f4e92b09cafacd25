use proptest::prelude::*;
use serde::de::DeserializeOwned;
use serde_json::json;

use super::*;
use crate::{api::NodeClassRef, strategies};

fn read<T>(json: &serde_json::Value) -> Converted<T>
where
    Converted<T>: DeserializeOwned,
{
    serde_json::from_str(&json.to_string()).unwrap()
}

fn lines(changes: &[Change]) -> Vec<String> {
    changes.iter().map(ToString::to_string).collect()
}

/// A pool of `version` with these parts of its template's specification and of its disruption.
fn pool(version: &str, template: &serde_json::Value, disruption: &serde_json::Value) -> Converted<NodePool> {
    read(&json!({
        "apiVersion": version, "kind": "NodePool", "metadata": {"name": "p"},
        "spec": {"template": {"spec": template}, "disruption": disruption},
    }))
}

#[test]
fn a_pool_of_v1beta1_becomes_one_of_v1() {
    let old = json!({
        "apiVersion": "karpenter.sh/v1beta1", "kind": "NodePool", "metadata": {"name": "p", "labels": {"a": "b"}},
        "spec": {
            "template": {
                "metadata": {"labels": {"team": "x"}, "annotations": {"note": "y"}},
                "spec": {
                    "nodeClassRef": {"apiVersion": "karpenter.k8s.aws/v1beta1", "kind": "EC2NodeClass", "name": "default"},
                    "requirements": [{"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"], "minValues": 1}],
                    "taints": [{"key": "a", "effect": "NoSchedule"}],
                    "startupTaints": [{"key": "b", "effect": "NoExecute"}],
                    "kubelet": {"maxPods": 20},
                    "resources": {"requests": {"cpu": "1"}},
                },
            },
            "disruption": {
                "consolidationPolicy": "WhenUnderutilized", "expireAfter": "24h",
                "budgets": [{"nodes": "20%", "schedule": "@daily", "duration": "1h"}],
            },
            "limits": {"cpu": "1k"}, "weight": 5,
        },
        "status": {"resources": {"cpu": "8"}},
    });
    let today: NodePool = serde_json::from_value(json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "p", "labels": {"a": "b"}},
        "spec": {
            "template": {
                "metadata": {"labels": {"team": "x"}, "annotations": {"note": "y"}},
                "spec": {
                    "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
                    "requirements": [{"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"], "minValues": 1}],
                    "taints": [{"key": "a", "effect": "NoSchedule"}],
                    "startupTaints": [{"key": "b", "effect": "NoExecute"}],
                    "expireAfter": "24h",
                },
            },
            "disruption": {
                "consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": "0s",
                "budgets": [{"nodes": "20%", "schedule": "@daily", "duration": "1h"}],
            },
            "limits": {"cpu": "1k"}, "weight": 5,
        },
        "status": {"resources": {"cpu": "8"}},
    }))
    .unwrap();
    let converted: Converted<NodePool> = read(&old);
    assert_eq!(converted.object, today);
    assert_eq!(converted.object.validate(), Ok(()));
    assert_eq!(
        lines(&converted.changes),
        [
            "apiVersion: karpenter.sh/v1beta1 is served no more; it is read as karpenter.sh/v1: convert it to that",
            "spec.template.spec.kubelet: is not read, so nodes are planned without it; it belongs to the node class: move it there",
            "spec.template.spec.resources: is not read, because pools have no such field any more: delete it",
            "spec.template.spec.nodeClassRef.apiVersion: is read as the group karpenter.k8s.aws: write that as spec.template.spec.nodeClassRef.group instead",
            "spec.disruption.expireAfter: is read, but its place is spec.template.spec.expireAfter now: move it there",
            "spec.disruption.consolidationPolicy: WhenUnderutilized is called WhenEmptyOrUnderutilized now: write that",
        ]
    );
}

#[test]
fn a_claim_of_v1beta1_becomes_one_of_v1() {
    let old = json!({
        "apiVersion": "karpenter.sh/v1beta1", "kind": "NodeClaim", "metadata": {"name": "c"},
        "spec": {
            "nodeClassRef": {"apiVersion": "karpenter.k8s.aws/v1beta1", "kind": "EC2NodeClass", "name": "default"},
            "requirements": [{"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]}],
            "resources": {"requests": {"cpu": "1"}}, "kubelet": {"maxPods": 20},
            "taints": [{"key": "a", "effect": "NoSchedule"}], "startupTaints": [{"key": "b", "effect": "NoExecute"}],
        },
        "status": {
            "providerID": "id", "capacity": {"cpu": "2"},
            "conditions": [{"type": "Launched", "status": "True", "severity": "Info"}],
        },
    });
    let today: NodeClaim = serde_json::from_value(json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "metadata": {"name": "c"},
        "spec": {
            "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
            "requirements": [{"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]}],
            "resources": {"requests": {"cpu": "1"}}, "expireAfter": "720h",
            "taints": [{"key": "a", "effect": "NoSchedule"}], "startupTaints": [{"key": "b", "effect": "NoExecute"}],
        },
        "status": {
            "providerID": "id", "capacity": {"cpu": "2"}, "conditions": [{"type": "Launched", "status": "True"}],
        },
    }))
    .unwrap();
    let converted: Converted<NodeClaim> = read(&old);
    assert_eq!(converted.object, today);
    let fields: Vec<&str> = converted.changes.iter().map(|change| change.field.as_str()).collect();
    assert_eq!(fields, ["apiVersion", "spec.kubelet", "spec.expireAfter", "spec.nodeClassRef.apiVersion"]);
    assert_eq!(converted.changes[2].difference, Difference::ExpiryOfPool);
}

#[test]
fn a_claim_that_says_when_it_expires_asks_no_pool() {
    for version in READ_VERSIONS {
        let claim = json!({"apiVersion": version, "metadata": {"name": "c"}, "spec": {"expireAfter": "Never"}});
        let converted: Converted<NodeClaim> = read(&claim);
        assert_eq!(converted.object.spec.expire_after.duration(), None);
        assert!(converted.changes.iter().all(|c| c.difference != Difference::ExpiryOfPool), "{version}");
    }
    let converted: Converted<NodeClaim> = read(&json!({"apiVersion": "karpenter.sh/v1", "metadata": {"name": "c"}}));
    assert_eq!(converted.changes, []);
}

#[test]
fn the_new_place_of_a_field_counts() {
    let template = json!({
        "expireAfter": "1h", "terminationGracePeriod": "2h",
        "nodeClassRef": {"apiVersion": "old.example/v1", "group": "new.example", "kind": "K", "name": "n"},
    });
    let disruption = json!({"expireAfter": "3h", "terminationGracePeriod": "4h"});
    let converted = pool("karpenter.sh/v1", &template, &disruption);
    let spec = &converted.object.spec.template.spec;
    assert_eq!(spec.expire_after.to_string(), "1h");
    assert_eq!(spec.termination_grace_period.as_ref().map(ToString::to_string).as_deref(), Some("2h"));
    assert_eq!(spec.node_class_ref, NodeClassRef::new("new.example", "K", "n"));
    assert_eq!(
        lines(&converted.changes),
        [
            "spec.template.spec.nodeClassRef.apiVersion: is not read, because spec.template.spec.nodeClassRef.group is written too: delete it",
            "spec.disruption.expireAfter: is not read, because spec.template.spec.expireAfter is written too: delete it",
            "spec.disruption.terminationGracePeriod: is not read, because spec.template.spec.terminationGracePeriod is written too: delete it",
        ]
    );
}

#[test]
fn old_places_are_read_in_v1_too() {
    let disruption =
        json!({"terminationGracePeriod": "4h", "consolidationPolicy": "WhenUnderutilized", "consolidateAfter": "30s"});
    let converted = pool("karpenter.sh/v1", &json!({"nodeClassRef": {"apiVersion": "a.example"}}), &disruption);
    let spec = &converted.object.spec;
    assert_eq!(spec.template.spec.termination_grace_period.as_ref().map(ToString::to_string).as_deref(), Some("4h"));
    assert_eq!(spec.template.spec.node_class_ref.group, "a.example");
    assert_eq!(spec.disruption.consolidate_after.to_string(), "30s");
    assert_eq!(converted.changes.len(), 3, "{:?}", converted.changes);
}

#[test]
fn what_is_empty_says_nothing() {
    for (template, disruption) in [
        (json!({"kubelet": {}, "resources": {}, "nodeClassRef": {"apiVersion": ""}}), json!({})),
        (json!({"kubelet": null, "resources": null, "nodeClassRef": null}), json!(null)),
        (
            json!(null),
            json!({"expireAfter": null, "terminationGracePeriod": null, "consolidationPolicy": null, "budgets": null}),
        ),
    ] {
        let converted = pool("karpenter.sh/v1", &template, &disruption);
        let plain = NodePool { metadata: converted.object.metadata.clone(), ..NodePool::default() };
        assert_eq!(converted, Converted { object: plain, changes: vec![] }, "{template} {disruption}");
    }
}

#[test]
fn settings_of_the_kubelet_in_an_annotation_are_noticed() {
    let annotation = "compatibility.karpenter.sh/v1beta1-kubelet-conversion";
    let pool = json!({"metadata": {"name": "p", "annotations": {annotation: "{\"maxPods\":20}"}}});
    let changes = read::<NodePool>(&pool).changes;
    let expected = Change { field: format!("metadata.annotations.{annotation}"), difference: Difference::OfNodeClass };
    assert_eq!(changes, [expected]);
}

#[test]
fn other_versions_and_values_are_refused() {
    for (json, message) in [
        (json!({"apiVersion": "karpenter.sh/v1alpha5"}), "unknown variant `karpenter.sh/v1alpha5`"),
        (json!({"spec": {"disruption": {"consolidationPolicy": "Always"}}}), "unknown variant `Always`"),
        (json!({"spec": {"disruption": {"expireAfter": "30d"}}}), "invalid duration \"30d\""),
    ] {
        let error = serde_json::from_value::<Converted<NodePool>>(json).unwrap_err();
        assert!(error.to_string().starts_with(message), "{error}");
    }
    for version in READ_VERSIONS {
        assert!(serde_json::from_value::<Converted<NodePool>>(json!({"apiVersion": version})).is_ok(), "{version}");
    }
}

proptest! {
    #[test]
    fn objects_of_today_stay_as_they_are(problem in strategies::problem(4)) {
        for pool in problem.pools {
            let json = serde_json::to_value(&pool).unwrap();
            prop_assert_eq!(read::<NodePool>(&json), Converted { object: pool, changes: vec![] });
        }
        for claim in problem.claims {
            let json = serde_json::to_value(&claim).unwrap();
            prop_assert_eq!(read::<NodeClaim>(&json), Converted { object: claim, changes: vec![] });
        }
    }
}
