//! How many nodes of each pool may go now.

use std::collections::BTreeMap;

use super::{BudgetLimit, Candidate, NodeCounts, PoolBudgets, survey::is_leaving};
use crate::{
    Snapshot, Timestamp,
    api::{
        Condition, ConditionStatus, DisruptionReason, NodeClaim, NodePool,
        conditions::{INSTANCE_TERMINATING, READY},
    },
    cluster::Place,
};

/// What the disruption budgets of pools leave for one reason.
pub(super) struct Allowance<'s>(BTreeMap<&'s str, u32>);

impl<'s> Allowance<'s> {
    pub(super) fn new(snapshot: &'s Snapshot, reason: DisruptionReason, now: Timestamp) -> Self {
        let left = |pool: &'s NodePool| (pool.name(), limit(snapshot, pool, reason, now).allowed());
        Self(snapshot.pools().iter().map(left).collect())
    }

    /// Whether anything is left for the pool of a node.
    pub(super) fn admits(&self, candidate: &Candidate) -> bool {
        self.0.get(candidate.pool.as_str()).is_some_and(|left| *left > 0)
    }

    /// Takes a node off what is left for its pool, if there is anything left.
    pub(super) fn take(&mut self, candidate: &Candidate) -> bool {
        let Some(left) = self.0.get_mut(candidate.pool.as_str()).filter(|left| **left > 0) else { return false };
        *left -= 1;
        true
    }
}

/// What limits how many nodes of a pool may go for a reason.
pub(super) fn limit(snapshot: &Snapshot, pool: &NodePool, reason: DisruptionReason, now: Timestamp) -> BudgetLimit {
    PoolBudgets::of(pool).limit(reason, NodeCounts::of(snapshot, pool.name()), now)
}

impl NodeCounts {
    /// Counts the nodes of a pool.
    pub fn of(snapshot: &Snapshot, pool: &str) -> Self {
        let mut counts = Self::default();
        let of_pool = |place: &&Place| place.pool.as_deref() == Some(pool) && place.is_initialized;
        for place in snapshot.places().iter().map(AsRef::as_ref).filter(of_pool) {
            let is_terminating = |claim: &NodeClaim| claim.status.is_true(INSTANCE_TERMINATING);
            if !place.is_promised() && place.node_claim.as_deref().is_none_or(is_terminating) {
                continue;
            }
            counts.managed += 1;
            counts.not_ready_or_leaving += u32::from(is_leaving(place) || !is_ready(place));
        }
        counts
    }
}

/// Whether the node says that it is ready; one that says nothing, as in dumps made by hand, counts as ready.
fn is_ready(place: &Place) -> bool {
    let is_not_ready = |c: &Condition| c.r#type == READY && c.status != ConditionStatus::True;
    !place.node.iter().flat_map(|node| &node.status.conditions).any(is_not_ready)
}
