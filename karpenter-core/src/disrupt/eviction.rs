//! Which pods the disruption budgets of pods let go, and how many at once.

use std::{collections::BTreeMap, fmt};

use super::roster::{Roster, Traits};
use crate::{
    Snapshot,
    api::{ObjectKey, PodDisruptionBudget, UnhealthyPodEvictionPolicy},
};

/// What a pod disruption budget allows now.
///
/// These are the counts of the disruption controller, as they stand in the budget's status. A budget that it never
/// counted for, as in dumps that were made by hand, is counted for as the controller would: with the pods of the
/// snapshot that the budget selects and that are neither finished nor on their way out as those that should be there,
/// and percentages rounded up. Healthy are those of them that run and do not say that they are not ready.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EvictionLimit {
    /// The budget.
    pub budget: ObjectKey,
    /// How many healthy pods may be evicted.
    pub allowed: u32,
    /// How many pods are healthy.
    pub healthy: u32,
    /// How many pods must be healthy.
    pub desired_healthy: u32,
    /// How many pods there should be.
    pub expected: u32,
    /// Whether the budget was changed since it was counted for. Nothing is allowed until it was counted for again.
    pub is_stale: bool,
    /// When pods that are not ready may be evicted.
    pub unhealthy_policy: UnhealthyPodEvictionPolicy,
}

impl EvictionLimit {
    fn counted(budget: &PodDisruptionBudget) -> Self {
        let count = |number: i32| u32::try_from(number).unwrap_or(0);
        let (status, is_stale) = (&budget.status, budget.is_stale());
        Self {
            budget: key_of(budget),
            allowed: if is_stale { 0 } else { count(status.disruptions_allowed.unwrap_or(0)) },
            healthy: count(status.current_healthy),
            desired_healthy: count(status.desired_healthy),
            expected: count(status.expected_pods),
            is_stale,
            unhealthy_policy: budget.spec.unhealthy_pod_eviction_policy.unwrap_or_default(),
        }
    }

    /// As the disruption controller counts. A budget that selects no pods, or has no rule, allows nothing.
    fn recounted(budget: &PodDisruptionBudget, expected: u32, healthy: u32) -> Self {
        let desired = match (budget.spec.max_unavailable, budget.spec.min_available) {
            (Some(away), _) => Some(expected.saturating_sub(away.of(expected))),
            (None, Some(there)) => Some(there.of(expected)),
            (None, None) => None,
        };
        let spare = desired.map_or(0, |desired| healthy.saturating_sub(desired));
        Self {
            allowed: if expected == 0 { 0 } else { spare },
            healthy,
            desired_healthy: desired.unwrap_or(0),
            expected,
            ..Self::counted(budget)
        }
    }

    /// Whether a pod that is not ready may be evicted without being counted
    /// (<https://kubernetes.io/docs/tasks/run-application/configure-pdb/#unhealthy-pod-eviction-policy>).
    fn lets_unready_go(&self) -> bool {
        match self.unhealthy_policy {
            UnhealthyPodEvictionPolicy::AlwaysAllow => true,
            UnhealthyPodEvictionPolicy::IfHealthyBudget => {
                self.desired_healthy > 0 && self.healthy >= self.desired_healthy
            }
        }
    }
}

impl fmt::Display for EvictionLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { budget, allowed, healthy, desired_healthy, expected, .. } = self;
        write!(f, "PodDisruptionBudget {budget} has disruptionsAllowed {allowed} (")?;
        if self.is_stale {
            return f.write_str("it was changed and has not been counted for again)");
        }
        write!(f, "{healthy} of {expected} pods are healthy, {desired_healthy} must be)")
    }
}

/// What the eviction of a pod takes of a budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Toll<'l> {
    /// Nothing: no budget selects the pod, or it does not count, or no drain evicts it.
    Free,
    /// One eviction of this limit.
    One(&'l EvictionLimit),
    /// The API server refuses to evict it, because several budgets select it.
    Refused(&'l [ObjectKey]),
}

/// What all pod disruption budgets of a snapshot allow, and which pods they guard.
///
/// A pod that is finished, pending or on its way out may always be evicted, and so may one that is not ready if the
/// budget's policy says so. A pod that several budgets select cannot be evicted
/// (<https://kubernetes.io/docs/concepts/scheduling-eviction/api-eviction/>).
///
/// ```
/// use karpenter_core::{Snapshot, disrupt::{EvictionLimits, Toll}};
/// # use karpenter_core::api::{Pod, PodDisruptionBudget};
/// # let budget: PodDisruptionBudget = serde_json::from_str(
/// #     r#"{"metadata":{"name":"web"},"spec":{"maxUnavailable":1,"selector":{"matchLabels":{"app":"web"}}}}"#)?;
/// # let pod = |name: &str| serde_json::from_str::<Pod>(&format!(
/// #     r#"{{"metadata":{{"name":"{name}","labels":{{"app":"web"}}}},"spec":{{"nodeName":"n"}},"status":{{"phase":"Running"}}}}"#));
/// // Three pods of the app `web`, of which one may be away.
/// let snapshot = Snapshot::builder().pods(vec![pod("a")?, pod("b")?, pod("c")?]).budget(budget).build()?;
///
/// let limits = EvictionLimits::of(&snapshot);
/// assert_eq!(limits.all()[0].allowed, 1);
/// assert_eq!(limits.toll(0), Toll::One(&limits.all()[0]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct EvictionLimits {
    limits: Vec<EvictionLimit>,
    /// By the indices of the pods.
    tolls: Vec<Taken>,
    /// The budgets of pods that several budgets select.
    refused: BTreeMap<usize, Vec<ObjectKey>>,
}

/// A [`Toll`] by index.
#[derive(Clone, Copy, Debug)]
enum Taken {
    Free,
    One(usize),
    Refused,
}

impl EvictionLimits {
    /// Works out what the budgets of a snapshot allow.
    pub fn of(snapshot: &Snapshot) -> Self {
        Self::by(&Roster::of(snapshot), snapshot)
    }

    /// The same, where the traits of the pods of the snapshot are known.
    pub(super) fn by(roster: &Roster, snapshot: &Snapshot) -> Self {
        let budgets = snapshot.budgets();
        let mut counts = vec![(0_u32, 0_u32); budgets.len()];
        if !budgets.iter().all(PodDisruptionBudget::is_counted) {
            for pod in roster.traits().iter().filter(|pod| pod.is_active) {
                for &budget in roster.selecting(*pod) {
                    counts[budget].0 += 1;
                    counts[budget].1 += u32::from(pod.is_healthy);
                }
            }
        }
        let limit = |(budget, (expected, healthy)): (&PodDisruptionBudget, (u32, u32))| {
            if budget.is_counted() {
                EvictionLimit::counted(budget)
            } else {
                EvictionLimit::recounted(budget, expected, healthy)
            }
        };
        let mut out = Self { limits: budgets.iter().zip(counts).map(limit).collect(), ..Self::default() };
        out.tolls = roster.traits().iter().map(|pod| out.taken_by(*pod, roster.selecting(*pod))).collect();
        for (index, pod) in roster.traits().iter().enumerate() {
            if matches!(out.tolls[index], Taken::Refused) {
                let budgets = roster.selecting(*pod).iter().map(|&b| out.limits[b].budget.clone()).collect();
                out.refused.insert(index, budgets);
            }
        }
        out
    }

    fn taken_by(&self, pod: Traits, budgets: &[usize]) -> Taken {
        match budgets {
            _ if !pod.is_guarded => Taken::Free,
            [] => Taken::Free,
            &[budget] if pod.is_unready && self.limits[budget].lets_unready_go() => Taken::Free,
            &[budget] => Taken::One(budget),
            _ => Taken::Refused,
        }
    }

    /// What each budget allows, in the order of [`Snapshot::budgets`].
    pub fn all(&self) -> &[EvictionLimit] {
        &self.limits
    }

    /// What the eviction of a pod takes, by its index among [`Snapshot::pods`].
    ///
    /// # Panics
    /// If the snapshot has no pod of this index.
    pub fn toll(&self, pod: usize) -> Toll<'_> {
        match self.tolls[pod] {
            Taken::Free => Toll::Free,
            Taken::One(budget) => Toll::One(&self.limits[budget]),
            Taken::Refused => Toll::Refused(&self.refused[&pod]),
        }
    }
}

fn key_of(budget: &PodDisruptionBudget) -> ObjectKey {
    ObjectKey::new(budget.metadata.namespace(), &budget.metadata.name)
}
