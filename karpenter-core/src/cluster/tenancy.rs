//! Whose a machine is, and whose the nodes are that carry its name.
//!
//! Providers may use the name of a machine again once that machine is gone. While the last claim and node of such a name come to
//! their end, a later claim has it already.

use std::sync::Arc;

use crate::{
    Timestamp,
    api::{Node, NodeClaim},
};

/// Whose the machine is, of all claims that name it: that of the claim that was launched last.
pub(crate) fn tenant<'c>(claims: impl IntoIterator<Item = &'c Arc<NodeClaim>>) -> Option<&'c Arc<NodeClaim>> {
    claims.into_iter().max_by_key(|claim| order(claim))
}

/// The claim of a node, of all claims that name its machine.
pub(crate) fn claim_of<'c>(
    node: &Node,
    claims: impl IntoIterator<Item = &'c Arc<NodeClaim>> + Clone,
) -> Option<&'c Arc<NodeClaim>> {
    if claimants(node).next().is_none() {
        return tenant(claims);
    }
    claims.into_iter().filter(|claim| is_named_by(node, claim)).max_by_key(|claim| order(claim))
}

/// Whether a node says that it belongs to some claim.
pub(crate) fn is_claimed(node: &Node) -> bool {
    claimants(node).next().is_some()
}

/// Whether a node says that it belongs to this claim. Nothing is known of a claim without a uid.
pub(crate) fn is_named_by(node: &Node, claim: &NodeClaim) -> bool {
    claim.metadata.uid.is_empty() || claimants(node).any(|uid| uid == claim.metadata.uid)
}

/// The uids of the claims that a node says it belongs to.
fn claimants(node: &Node) -> impl Iterator<Item = &str> {
    let owners = node.metadata.owner_references.iter().filter(|owner| owner.kind == "NodeClaim");
    owners.map(|owner| owner.uid.as_str())
}

fn order(claim: &NodeClaim) -> (Option<Timestamp>, Option<Timestamp>, &str) {
    (claim.launched_at(), claim.metadata.creation_timestamp, claim.name())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{
        OwnerReference,
        conditions::{LAUNCHED, set_condition},
    };

    fn claim(name: &str, launched: i64) -> Arc<NodeClaim> {
        let mut claim = NodeClaim::named(name);
        name.clone_into(&mut claim.metadata.uid);
        let status = crate::api::ConditionStatus::True;
        let at = Timestamp::from_millis(launched);
        set_condition(&mut claim.status.conditions, None, LAUNCHED, status, LAUNCHED, "", at);
        Arc::new(claim)
    }

    fn node(owner: Option<&str>) -> Node {
        let mut node = Node::default();
        node.metadata.owner_references.extend(owner.map(|uid| OwnerReference {
            kind: "NodeClaim".to_owned(),
            uid: uid.to_owned(),
            ..OwnerReference::default()
        }));
        node
    }

    #[test]
    fn a_node_belongs_to_whom_it_names_else_to_whoever_was_launched_last() {
        let claims = [claim("b-first", 1), claim("a-second", 2)];
        let found = |owner| claim_of(&node(owner), &claims).map(|claim| claim.name());
        assert_eq!(tenant(&claims).map(|claim| claim.name()), Some("a-second"));
        for (owner, expected) in
            [(None, Some("a-second")), (Some("b-first"), Some("b-first")), (Some("a-second"), Some("a-second"))]
        {
            assert_eq!(found(owner), expected, "{owner:?}");
        }
        assert_eq!(found(Some("somebody")), None);
        assert_eq!(
            claim_of(&node(Some("gone")), &[Arc::new(NodeClaim::named("dumped"))]).map(|c| c.name()),
            Some("dumped")
        );
    }
}
