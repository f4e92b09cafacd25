//! A node that has joined becomes ready for pods.

use crate::{
    Quantity, Timestamp,
    api::{
        ConditionStatus, Node, NodeClaim,
        conditions::{INITIALIZED, READY, set_condition},
    },
    cluster::is_ephemeral_taint,
    labels,
};

/// What initialization has to write: the node with the label that says so, or the claim, whose node has it already.
///
/// A node is initialized once it is ready, its startup taints and those that every new node carries are gone, and it has some
/// of each resource that its claim asks for. What it still waits for is the reason of the claim's condition.
pub(crate) fn initialize(claim: &NodeClaim, node: &Node, now: Timestamp) -> (Option<NodeClaim>, Option<Node>) {
    let waits_for = missing(claim, node);
    let is_labelled = node.metadata.labels.get(labels::INITIALIZED).is_some_and(|value| value == "true");
    if waits_for.is_none() && !is_labelled {
        let mut out = node.clone();
        out.metadata.labels.insert(labels::INITIALIZED.to_owned(), "true".to_owned());
        return (None, Some(out));
    }
    let mut out = claim.clone();
    let (conditions, generation, yes) = (&mut out.status.conditions, claim.metadata.generation, ConditionStatus::True);
    match waits_for.filter(|_| !is_labelled) {
        None => {
            set_condition(conditions, generation, INITIALIZED, yes, INITIALIZED, "", now);
            set_condition(conditions, generation, READY, yes, READY, "", now);
        }
        Some((reason, message)) => {
            let status = ConditionStatus::Unknown;
            set_condition(conditions, generation, INITIALIZED, status, reason, &message, now);
        }
    }
    ((out != *claim).then_some(out), None)
}

/// What a node lacks to be initialized: one word, and a sentence.
fn missing(claim: &NodeClaim, node: &Node) -> Option<(&'static str, String)> {
    if !node.is_ready() {
        return Some(("NodeNotReady", "Node status is NotReady".to_owned()));
    }
    let startup = |taint: &&crate::api::Taint| {
        claim.spec.startup_taints.iter().any(|own| own.key == taint.key && own.effect == taint.effect)
    };
    if let Some(taint) = node.spec.taints.iter().find(startup) {
        return Some(("StartupTaintsExist", format!("StartupTaint {taint} still exists")));
    }
    if let Some(taint) = node.spec.taints.iter().find(|taint| is_ephemeral_taint(taint)) {
        return Some(("KnownEphemeralTaintsExist", format!("KnownEphemeralTaint {taint} still exists")));
    }
    let is_missing =
        |name: &crate::ResourceName| node.status.allocatable.get(name.as_str()).is_none_or(Quantity::is_zero);
    let mut requested = claim.spec.resources.requests.iter().filter(|(_, quantity)| !quantity.is_zero());
    let (name, _) = requested.find(|(name, _)| is_missing(name))?;
    Some(("ResourceNotRegistered", format!("Resource {name} was requested but not registered")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_node_waits_for_one_thing_after_the_other() {
        let claim: NodeClaim = serde_json::from_value(json!({"metadata": {"name": "c"}, "spec": {
            "startupTaints": [{"key": "booting", "effect": "NoSchedule"}],
            "resources": {"requests": {"cpu": "1", "example.com/gpu": "1", "example.com/none": "0"}}}}))
        .expect("a claim");
        let node = |ready: &str, taints: serde_json::Value, gpus: &str| -> Node {
            serde_json::from_value(json!({"metadata": {"name": "n"}, "spec": {"taints": taints},
                "status": {"conditions": [{"type": "Ready", "status": ready}],
                    "allocatable": {"cpu": "4", "example.com/gpu": gpus}}}))
            .expect("a node")
        };
        let booting = json!({"key": "booting", "effect": "NoSchedule"});
        let not_ready = json!({"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"});
        for (node, reason) in [
            (node("False", json!([]), "1"), "NodeNotReady"),
            (node("True", json!([not_ready, booting]), "1"), "StartupTaintsExist"),
            (node("True", json!([not_ready]), "1"), "KnownEphemeralTaintsExist"),
            (node("True", json!([]), "0"), "ResourceNotRegistered"),
        ] {
            let (written, labelled) = initialize(&claim, &node, Timestamp::default());
            let written = written.expect("a new condition");
            assert_eq!((labelled, written.status.conditions[0].reason.as_str()), (None, reason));
        }
        let (_, labelled) = initialize(&claim, &node("True", json!([]), "1"), Timestamp::default());
        let labelled = labelled.expect("nothing is missing");
        let (written, _) = initialize(&claim, &labelled, Timestamp::default());
        assert!(written.expect("a new condition").status.is_true(READY));
    }
}
