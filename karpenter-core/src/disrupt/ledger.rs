//! What commands take of the disruption budgets of pods, all together.

use std::collections::BTreeMap;

use super::{EvictionLimits, eviction::Taken};
use crate::api::ObjectKey;

/// What the evictions of some pods take of each budget together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Demand {
    /// Budgets by index with how many evictions of each, in order.
    counts: Vec<(usize, u32)>,
    /// The first of the pods that cannot be evicted at all.
    refused: Option<usize>,
}

impl Demand {
    /// What evicting these pods takes, by their indices among [`Snapshot::pods`](crate::Snapshot::pods). Each pod is
    /// named once.
    ///
    /// # Panics
    /// If the snapshot that the limits are of has no pod of some index.
    pub fn of_pods(limits: &EvictionLimits, pods: impl IntoIterator<Item = usize>) -> Self {
        let mut counts = BTreeMap::new();
        let mut refused = None;
        for pod in pods {
            match limits.taken(pod) {
                Taken::Free => {}
                Taken::One(budget) => *counts.entry(budget).or_default() += 1,
                Taken::Refused => refused = refused.or(Some(pod)),
            }
        }
        Self { counts: counts.into_iter().collect(), refused }
    }

    /// Whether it takes nothing of any budget.
    pub fn is_free(&self) -> bool {
        self.counts.is_empty() && self.refused.is_none()
    }
}

/// Why pods cannot be evicted together.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EvictionError {
    /// A budget does not allow so many evictions.
    #[error("PodDisruptionBudget {budget} has disruptionsAllowed {allowed}, and {wanted} would be needed")]
    Exceeded {
        /// The budget.
        budget: ObjectKey,
        /// How many it allows.
        allowed: u32,
        /// How many are wanted, those that were counted before among them.
        wanted: u32,
    },
    /// A pod is selected by several budgets, so that the API server refuses to evict it.
    #[error("pod {pod} is selected by several disruption budgets: {}", join(budgets))]
    Refused {
        /// The pod.
        pod: ObjectKey,
        /// The budgets.
        budgets: Vec<ObjectKey>,
    },
}

pub(crate) fn join(keys: &[ObjectKey]) -> String {
    keys.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// Counts evictions against the budgets, so that a set of nodes is drained only if each budget allows all of its
/// evictions at once.
///
/// A node of which a budget lets the pods go in turns only, because it allows fewer evictions now than the node has pods of
/// it, may be drained if no other node takes of that budget: each pod leaves once the one before it runs elsewhere. Only a
/// budget that allows nothing keeps a node.
///
/// Adding and removing take time by the number of budgets that a demand touches, however many pods it is of, so that a
/// search can try many sets.
///
/// ```
/// use karpenter_core::{Snapshot, disrupt::{Demand, EvictionLimits, Evictions}};
/// # use karpenter_core::api::{Pod, PodDisruptionBudget};
/// # let budget: PodDisruptionBudget = serde_json::from_str(
/// #     r#"{"metadata":{"name":"web"},"spec":{"maxUnavailable":1,"selector":{"matchLabels":{"app":"web"}}}}"#)?;
/// # let pod = |name: &str| serde_json::from_str::<Pod>(&format!(
/// #     r#"{{"metadata":{{"name":"{name}","labels":{{"app":"web"}}}},"spec":{{"nodeName":"n"}},"status":{{"phase":"Running"}}}}"#));
/// // Three pods of the app `web`, of which one may be away.
/// let snapshot = Snapshot::builder().pods(vec![pod("a")?, pod("b")?, pod("c")?]).budget(budget).build()?;
/// let limits = EvictionLimits::of(&snapshot);
/// let (first, second) = (Demand::of_pods(&limits, [0]), Demand::of_pods(&limits, [1]));
///
/// let mut evictions = Evictions::new(&limits);
/// evictions.add(&first)?;
/// assert_eq!(
///     evictions.add(&second).unwrap_err().to_string(),
///     "PodDisruptionBudget default/web has disruptionsAllowed 1, and 2 would be needed"
/// );
/// evictions.remove(&first);
/// evictions.add(&second)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Evictions<'l> {
    limits: &'l EvictionLimits,
    /// How many evictions of each budget were counted.
    taken: Vec<u32>,
}

impl<'l> Evictions<'l> {
    /// Nothing is evicted yet.
    pub fn new(limits: &'l EvictionLimits) -> Self {
        Self { limits, taken: vec![0; limits.all().len()] }
    }

    /// Whether a demand can be added.
    ///
    /// # Errors
    /// A budget that does not allow it, or a pod that cannot be evicted.
    pub fn check(&self, demand: &Demand) -> Result<(), EvictionError> {
        if let Some(pod) = demand.refused {
            let refused = self.limits.refused(pod);
            return Err(EvictionError::Refused { pod: refused.pod.clone(), budgets: refused.budgets.clone() });
        }
        for &(budget, count) in &demand.counts {
            let (limit, taken) = (&self.limits.all()[budget], self.taken[budget]);
            let wanted = taken.saturating_add(count);
            let may_take_turns = taken == 0 && limit.allowed > 0;
            if wanted > limit.allowed && !may_take_turns {
                return Err(EvictionError::Exceeded { budget: limit.budget.clone(), allowed: limit.allowed, wanted });
            }
        }
        Ok(())
    }

    /// Counts a demand.
    ///
    /// # Errors
    /// A budget that does not allow it, or a pod that cannot be evicted; then nothing is counted.
    pub fn add(&mut self, demand: &Demand) -> Result<(), EvictionError> {
        self.check(demand)?;
        self.force(demand);
        Ok(())
    }

    /// Counts a demand whatever the budgets allow, because its pods go anyway. A pod that cannot be evicted takes nothing.
    pub fn force(&mut self, demand: &Demand) {
        for &(budget, count) in &demand.counts {
            self.taken[budget] = self.taken[budget].saturating_add(count);
        }
    }

    /// Takes back a demand that was counted.
    ///
    /// # Panics
    /// If it was not counted.
    pub fn remove(&mut self, demand: &Demand) {
        for &(budget, count) in &demand.counts {
            self.taken[budget] = self.taken[budget].checked_sub(count).expect("what is removed was counted before");
        }
    }

    /// How many evictions were counted against each budget, in the order of
    /// [`Snapshot::budgets`](crate::Snapshot::budgets).
    pub fn taken(&self) -> &[u32] {
        &self.taken
    }
}
