//! What has to be written to make one object of another: JSON merge patches (RFC 7396), so that fields that nobody here knows
//! of stay what they are.

use karpenter_core::api::{Node, NodeClaim, NodeOverlay, NodePool};
use serde::Serialize;
use serde_json::{Map, Value, json};

/// Patches of an object and of its status, either of which may have nothing to say.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Patches {
    pub(crate) object: Option<Value>,
    pub(crate) status: Option<Value>,
}

impl Patches {
    /// The metadata and the status of a claim.
    pub(crate) fn of_claim(before: &NodeClaim, after: &NodeClaim) -> Self {
        let metadata = difference(&before.metadata, &after.metadata);
        Self {
            object: metadata.map(|metadata| json!({"metadata": metadata})),
            status: difference(&before.status, &after.status).map(|status| json!({"status": status})),
        }
    }

    /// The annotations and the status of a pool.
    pub(crate) fn of_pool(before: &NodePool, after: &NodePool) -> Self {
        let annotations = difference(&before.metadata.annotations, &after.metadata.annotations);
        Self {
            object: annotations.map(|annotations| json!({"metadata": {"annotations": annotations}})),
            status: difference(&before.status, &after.status).map(|status| json!({"status": status})),
        }
    }

    /// The status of an overlay.
    pub(crate) fn of_overlay(before: &NodeOverlay, after: &NodeOverlay) -> Self {
        let status = difference(&before.status, &after.status);
        Self { object: None, status: status.map(|status| json!({"status": status})) }
    }

    /// The metadata and the taints of a node.
    pub(crate) fn of_node(before: &Node, after: &Node) -> Self {
        let metadata = difference(&before.metadata, &after.metadata);
        let taints = (before.spec.taints != after.spec.taints).then(|| json!({"taints": after.spec.taints}));
        let parts = [("metadata", metadata), ("spec", taints)];
        let parts: Map<String, Value> =
            parts.into_iter().filter_map(|(key, part)| Some((key.to_owned(), part?))).collect();
        Self { object: (!parts.is_empty()).then_some(Value::Object(parts)), status: None }
    }
}

/// What makes `after` of `before`, if they are not the same.
fn difference<T: Serialize>(before: &T, after: &T) -> Option<Value> {
    let wire = |value: &T| serde_json::to_value(value).expect("objects of the API are JSON");
    merge_patch(&wire(before), &wire(after))
}

fn merge_patch(before: &Value, after: &Value) -> Option<Value> {
    let (Value::Object(before), Value::Object(after)) = (before, after) else {
        return (before != after).then(|| after.clone());
    };
    let gone = before.keys().filter(|key| !after.contains_key(*key)).map(|key| (key.clone(), Value::Null));
    let changed = after.iter().filter_map(|(key, value)| {
        let patch = match before.get(key) {
            Some(old) => merge_patch(old, value)?,
            None => value.clone(),
        };
        Some((key.clone(), patch))
    });
    let patch: Map<String, Value> = gone.chain(changed).collect();
    (!patch.is_empty()).then_some(Value::Object(patch))
}

#[cfg(test)]
mod tests {
    use karpenter_core::api::{Taint, TaintEffect};

    use super::*;

    #[test]
    fn only_what_differs_is_written() {
        let mut before = NodeClaim::named("c");
        before.metadata.resource_version = "7".to_owned();
        before.metadata.labels.insert("gone".to_owned(), "1".to_owned());
        before.metadata.labels.insert("kept".to_owned(), "1".to_owned());
        before.metadata.finalizers = vec!["a".to_owned(), "b".to_owned()];
        assert_eq!(Patches::of_claim(&before, &before), Patches::default());

        let mut after = before.clone();
        after.metadata.labels.remove("gone");
        after.metadata.labels.insert("new".to_owned(), "2".to_owned());
        after.metadata.finalizers.remove(0);
        after.status.node_name = "n".to_owned();
        let patches = Patches::of_claim(&before, &after);
        let object = json!({"metadata": {"labels": {"gone": null, "new": "2"}, "finalizers": ["b"]}});
        assert_eq!(patches, Patches { object: Some(object), status: Some(json!({"status": {"nodeName": "n"}})) });
    }

    #[test]
    fn taints_of_others_keep_when_they_were_added() {
        let lost = json!({"key": "lost", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"});
        let before: Node = serde_json::from_value(json!({"spec": {"taints": [lost]}})).expect("a node");
        let mut after = before.clone();
        after.spec.taints.push(Taint::new("ours", "", TaintEffect::NoSchedule));
        let ours = json!({"key": "ours", "effect": "NoSchedule"});
        assert_eq!(Patches::of_node(&before, &after).object, Some(json!({"spec": {"taints": [lost, ours]}})));
    }

    #[test]
    fn the_last_of_a_list_is_taken_away_too() {
        let mut before = Node::default();
        before.metadata.finalizers = vec!["karpenter.sh/termination".to_owned()];
        before.spec.taints = vec![Taint::new("a", "", TaintEffect::NoSchedule)];
        let patches = Patches::of_node(&before, &Node::default());
        assert_eq!(patches.object, Some(json!({"metadata": {"finalizers": null}, "spec": {"taints": []}})));
    }
}
