//! Nodes that are sick for too long.

use crate::{Timestamp, api::Node, provider::RepairPolicy};

/// The most hundredths of the nodes of a pool that may be sick while any of them is replaced: if there are more, the sickness
/// is hardly theirs.
const MAX_SICK_PERCENT: usize = 20;

/// What a node suffers from.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Ailment {
    /// The type of the node's condition.
    pub condition: String,
    /// When the node is given up.
    pub due: Timestamp,
}

/// What a node suffers from by the policies of its provider; of several ailments the one that is due first.
pub fn ailment(node: &Node, policies: &[RepairPolicy]) -> Option<Ailment> {
    let of_policy = |policy: &RepairPolicy| {
        let mut conditions = node.status.conditions.iter();
        let found = conditions.find(|c| c.r#type == policy.condition && c.status == policy.status)?;
        let since = found.last_transition_time?;
        Some(Ailment { condition: policy.condition.clone(), due: since + policy.toleration })
    };
    policies.iter().filter_map(of_policy).min_by_key(|ailment| ailment.due)
}

/// Whether a node may be replaced while so many of so many are sick: not if they are more than a fifth, rounded up.
///
/// ```
/// use karpenter_core::lifecycle::may_repair;
///
/// assert!(may_repair(1, 1) && may_repair(2, 6));
/// assert!(!may_repair(2, 5) && !may_repair(3, 10));
/// ```
pub const fn may_repair(sick: usize, all: usize) -> bool {
    sick <= (all * MAX_SICK_PERCENT).div_ceil(100)
}
