//! A label that claims and nodes of earlier versions lack.

use std::collections::BTreeMap;

use crate::api::{Node, NodeClaim};

/// The claim with the label of its node class; `None` if it has it, or names no class.
pub(crate) fn hydrate_claim(claim: &NodeClaim) -> Option<NodeClaim> {
    let labels = hydrated(claim, &claim.metadata.labels)?;
    let mut out = claim.clone();
    out.metadata.labels = labels;
    Some(out)
}

/// The node of a claim with the label of its node class; `None` if it has it, or the claim names no class.
pub(crate) fn hydrate_node(claim: &NodeClaim, node: &Node) -> Option<Node> {
    let labels = hydrated(claim, &node.metadata.labels)?;
    let mut out = node.clone();
    out.metadata.labels = labels;
    Some(out)
}

fn hydrated(claim: &NodeClaim, labels: &BTreeMap<String, String>) -> Option<BTreeMap<String, String>> {
    let class = &claim.spec.node_class_ref;
    if class.kind.is_empty() || class.name.is_empty() || labels.keys().any(|key| class.is_label_key(key)) {
        return None;
    }
    let mut out = labels.clone();
    out.insert(class.label_key(), class.name.clone());
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::NodeClassRef;

    #[test]
    fn claims_and_nodes_get_the_label_once() {
        let mut claim = NodeClaim::named("c");
        assert_eq!(hydrate_claim(&claim), None, "it names no class");
        claim.spec.node_class_ref = NodeClassRef::new("karpenter.k8s.aws", "EC2NodeClass", "default");
        let hydrated = hydrate_claim(&claim).expect("it lacks the label");
        assert_eq!(hydrated.metadata.labels["karpenter.k8s.aws/ec2nodeclass"], "default");
        assert_eq!(hydrate_claim(&hydrated), None);
        let node = hydrate_node(&claim, &Node::default()).expect("it lacks the label");
        assert_eq!(node.metadata.labels, hydrated.metadata.labels);
        assert_eq!(hydrate_node(&claim, &node), None);
    }
}
