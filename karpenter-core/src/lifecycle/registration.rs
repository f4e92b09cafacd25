//! A node that has joined gets what its claim promises.

use crate::{
    Timestamp,
    api::{
        ConditionStatus, Node, NodeClaim, OwnerReference, Taint,
        conditions::{REGISTERED, set_condition},
    },
    labels,
};

/// What registration has to write: the node as it must become, or the claim, of which the node already is what it must be.
///
/// The node of a claim is the one with the provider id of its machine. It gets the claim's finalizer, owner reference,
/// labels and annotations, its taints and startup taints unless the claim or the node says that somebody else keeps its
/// taints, and loses the taint of nodes that have not joined. Once it is so, the claim says that it is registered.
pub fn register(claim: &NodeClaim, nodes: &[&Node], now: Timestamp) -> (Option<NodeClaim>, Option<Node>) {
    let (status, reason, message) = match nodes {
        [] => (ConditionStatus::Unknown, "NodeNotFound", "Node not registered with cluster".to_owned()),
        [node] => {
            let wanted = registered(claim, node);
            if wanted != **node {
                return (None, Some(wanted));
            }
            (ConditionStatus::True, REGISTERED, String::new())
        }
        several => {
            (ConditionStatus::False, "MultipleNodesFound", format!("{} nodes have its provider id", several.len()))
        }
    };
    let mut out = claim.clone();
    let (conditions, generation) = (&mut out.status.conditions, claim.metadata.generation);
    set_condition(conditions, generation, REGISTERED, status, reason, &message, now);
    if let (ConditionStatus::True, [node]) = (status, nodes) {
        out.status.node_name.clone_from(&node.metadata.name);
    }
    ((out != *claim).then_some(out), None)
}

/// The node as its claim wants it.
fn registered(claim: &NodeClaim, node: &Node) -> Node {
    let mut out = node.clone();
    let meta = &mut out.metadata;
    if !meta.finalizers.iter().any(|finalizer| finalizer == labels::TERMINATION) {
        meta.finalizers.push(labels::TERMINATION.to_owned());
    }
    if !meta.owner_references.iter().any(|owner| owner.uid == claim.metadata.uid) {
        meta.owner_references.push(OwnerReference {
            api_version: claim.api_version.clone(),
            kind: claim.kind.clone(),
            name: claim.metadata.name.clone(),
            uid: claim.metadata.uid.clone(),
            controller: None,
            block_owner_deletion: Some(true),
        });
    }
    meta.annotations.extend(claim.metadata.annotations.clone());
    meta.labels.extend(claim.metadata.labels.clone());
    let is_first_time = meta.labels.insert(labels::REGISTERED.to_owned(), "true".to_owned()).is_none();
    if is_first_time && !keeps_own_taints(claim, node) {
        for taint in claim.spec.taints.iter().chain(&claim.spec.startup_taints) {
            add_taint(&mut out.spec.taints, taint);
        }
    }
    out.spec.taints.retain(|taint| taint.key != labels::UNREGISTERED);
    out
}

fn keeps_own_taints(claim: &NodeClaim, node: &Node) -> bool {
    let says_so = |labels: &std::collections::BTreeMap<String, String>| {
        labels.get(labels::DO_NOT_SYNC_TAINTS).is_some_and(|value| value == "true")
    };
    says_so(&claim.metadata.labels) || says_so(&node.metadata.labels)
}

fn add_taint(taints: &mut Vec<Taint>, taint: &Taint) {
    if !taints.iter().any(|own| own.key == taint.key && own.effect == taint.effect) {
        taints.push(taint.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::TaintEffect;

    fn claim() -> NodeClaim {
        let mut claim = NodeClaim::named("c");
        claim.metadata.labels.insert("team".to_owned(), "a".to_owned());
        claim.spec.taints.push(Taint::new("dedicated", "a", TaintEffect::NoSchedule));
        claim.spec.startup_taints.push(Taint::new("booting", "", TaintEffect::NoSchedule));
        claim
    }

    fn node() -> Node {
        let mut node = Node::default();
        node.metadata.name = "n".to_owned();
        node.spec.taints.push(Taint::new(labels::UNREGISTERED, "", TaintEffect::NoExecute));
        node
    }

    #[test]
    fn the_node_comes_first_and_then_the_claim() {
        let (claim, now) = (claim(), Timestamp::from_millis(1));
        let (written, synced) = register(&claim, &[&node()], now);
        let synced = synced.expect("the node lacks everything");
        assert_eq!(written, None);
        assert_eq!(synced.spec.taints.iter().map(|t| t.key.as_str()).collect::<Vec<_>>(), ["dedicated", "booting"]);
        assert_eq!(synced.metadata.labels.get("team").map(String::as_str), Some("a"));
        assert_eq!(synced.metadata.finalizers, [labels::TERMINATION]);
        let (written, again) = register(&claim, &[&synced], now);
        let written = written.expect("the claim does not say so yet");
        assert_eq!((again, written.status.node_name.as_str()), (None, "n"));
        assert!(written.status.is_true(REGISTERED));
        assert_eq!(register(&written, &[&synced], now), (None, None));
    }

    #[test]
    fn startup_taints_that_were_taken_away_do_not_come_back() {
        let (_, synced) = register(&claim(), &[&node()], Timestamp::default());
        let mut synced = synced.expect("the node lacks everything");
        synced.spec.taints.retain(|taint| taint.key != "booting");
        assert_eq!(register(&claim(), &[&synced], Timestamp::default()).1, None);
    }

    #[test]
    fn taints_may_be_somebody_elses_business() {
        let mut claim = claim();
        claim.metadata.labels.insert(labels::DO_NOT_SYNC_TAINTS.to_owned(), "true".to_owned());
        let (_, synced) = register(&claim, &[&node()], Timestamp::default());
        assert_eq!(synced.expect("labels differ").spec.taints, []);
    }

    #[test]
    fn no_node_and_several_are_told_apart() {
        for (nodes, reason) in [(Vec::new(), "NodeNotFound"), (vec![node(), node()], "MultipleNodesFound")] {
            let nodes: Vec<&Node> = nodes.iter().collect();
            let (written, _) = register(&claim(), &nodes, Timestamp::default());
            assert_eq!(written.expect("a new condition").status.conditions[0].reason, reason);
        }
    }
}
