//! Nodes that have less than was promised.

use crate::{
    ResourceName,
    api::{Node, NodeClaim},
};

/// A node has what was promised if it has at least so many hundredths of it: virtual machines keep some of their memory, for
/// which clouds publish no number.
const ENOUGH_PERCENT: i64 = 90;

/// The first resource that the claim asks for and of which its node has less than nine tenths of what was promised.
pub(crate) fn shortfall<'c>(claim: &'c NodeClaim, node: &Node) -> Option<&'c ResourceName> {
    let requests = &claim.spec.resources.requests;
    let promised = claim.status.capacity.iter();
    let mut asked = promised.filter(|(name, _)| requests.get(name.as_str()).is_some_and(|q| !q.is_zero()));
    let is_short = |name: &ResourceName, promised: crate::Quantity| {
        let has = node.status.capacity.get(name.as_str()).unwrap_or(crate::Quantity::ZERO);
        has.saturating_mul(100) < promised.saturating_mul(ENOUGH_PERCENT)
    };
    asked.find(|(name, promised)| is_short(name, *promised)).map(|(name, _)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nine_tenths_are_enough() {
        let claim: NodeClaim = serde_json::from_str(
            r#"{"metadata":{"name":"c"},"spec":{"resources":{"requests":{"cpu":"1","memory":"1Gi"}}},"status":{"capacity":{"cpu":"10","memory":"100Gi","pods":"10"}}}"#,
        )
        .expect("a claim");
        for (cpu, memory, expected) in
            [("10", "90Gi", None), ("10", "89Gi", Some("memory")), ("8", "100Gi", Some("cpu"))]
        {
            let node: Node = serde_json::from_str(&format!(
                r#"{{"metadata":{{"name":"n"}},"status":{{"capacity":{{"cpu":"{cpu}","memory":"{memory}"}}}}}}"#
            ))
            .expect("a node");
            assert_eq!(shortfall(&claim, &node).map(ResourceName::as_str), expected, "{cpu} {memory}");
        }
    }
}
