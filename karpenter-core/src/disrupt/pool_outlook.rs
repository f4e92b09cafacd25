//! What a pool can launch, and how many of its nodes may go.

use super::{BudgetLimit, NodeCounts, allowance};
use crate::{Catalogs, Snapshot, Timestamp, api::DisruptionReason, schedule::PoolTypes};

/// All that is to be known of one pool: what it can launch, and how many of its nodes may be disrupted now.
///
/// ```
/// use karpenter_core::{Catalogs, Snapshot, Timestamp, api::NodePool, disrupt::PoolOutlook};
///
/// let snapshot = Snapshot::builder().pool(NodePool::named("general")).build()?;
/// let (catalogs, now) = (Catalogs::new(), Timestamp::from_millis(0));
///
/// let outlook = PoolOutlook::of(&snapshot, &catalogs, "general", now).expect("it is in the snapshot");
/// let obstacle = outlook.types.obstacle.expect("nobody asked what can be bought");
/// assert_eq!(obstacle.to_string(), "not ready: the provider gave no catalog for it");
/// # Ok::<(), karpenter_core::SnapshotError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct PoolOutlook {
    /// The name of the pool.
    pub name: String,
    /// Its weight; heavier pools are used first.
    pub weight: u32,
    /// How many nodes it has whatever the pods need, if it is static.
    pub replicas: Option<u32>,
    /// What it can launch, and what rules out the other types.
    pub types: PoolTypes,
    /// Its nodes as its disruption budgets count them.
    pub nodes: NodeCounts,
    /// What the budgets allow now, in the order in which reasons are looked at: empty, drifted, underutilized.
    pub budgets: [PoolBudget; 3],
}

/// How many nodes of a pool may be disrupted for one reason.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolBudget {
    /// The reason.
    pub reason: DisruptionReason,
    /// What sets the limit.
    pub limit: BudgetLimit,
    /// How many nodes may go now: no more than the pool has that are not away already, and of a static pool none but drifted ones.
    pub nodes: u32,
}

impl PoolOutlook {
    /// Looks at a pool by its name, as of `now`; `None` if the snapshot has no such pool.
    pub fn of(snapshot: &Snapshot, catalogs: &Catalogs, pool: &str, now: Timestamp) -> Option<Self> {
        let types = PoolTypes::of(snapshot, catalogs, pool)?;
        let source = snapshot.pool(pool)?;
        let counts = NodeCounts::of(snapshot, pool);
        let here = counts.managed.saturating_sub(counts.not_ready_or_leaving);
        let budget = |reason| {
            let limit = allowance::limit(snapshot, source, reason, now);
            let is_meant = !source.is_static() || reason == DisruptionReason::Drifted;
            PoolBudget { reason, nodes: if is_meant { limit.allowed().min(here) } else { 0 }, limit }
        };
        let reasons = [DisruptionReason::Empty, DisruptionReason::Drifted, DisruptionReason::Underutilized];
        Some(Self {
            name: source.name().to_owned(),
            weight: source.weight(),
            replicas: source.spec.replicas,
            types,
            nodes: counts,
            budgets: reasons.map(budget),
        })
    }
}
