//! What savings must be worth, before and after somebody knows what pods are worth.

use std::collections::BTreeMap;

use super::{
    Candidate,
    scene::{self, Scene, Trial},
};

/// What an eviction must save at most by default, in dollars an hour.
const MOST_PER_EVICTION: f64 = 0.0097;

/// How full nodes are on which pods cost what their eviction must save at most.
const FULL: f64 = 0.75;

/// What the last evictions of a command must save, as a share of the threshold for the whole command, is so many times the
/// share of the bill that the command saves: who saves most of the bill can do without the dearest part of it.
const LAST_PER_SHARE_SAVED: f64 = 1.6;
/// It is no less and no more than these.
const LEAST_SHARE: f64 = 0.77;
const MOST_SHARE: f64 = 1.14;

/// What savings must be worth.
#[derive(Clone, Copy, Debug)]
pub(super) struct Threshold {
    /// Dollars an hour for each unit of eviction cost.
    pub(super) per_eviction: f64,
    /// The share of what the nodes cost.
    pub(super) share: f64,
}

impl Threshold {
    /// What must be saved, in dollars an hour, for pods of so much eviction cost to leave nodes of such a price.
    pub(super) fn per_hour(self, evictions: f64, price: f64) -> f64 {
        evictions * self.per_eviction + price * self.share
    }

    /// What is saved beyond what it must be worth, in dollars an hour.
    pub(super) fn gain(self, candidates: &[&Candidate], trial: &Trial) -> f64 {
        let (evictions, price) = evictions_and_price(candidates);
        trial.savings_per_hour - self.per_hour(evictions, price)
    }

    /// The same times a factor.
    pub(super) fn times(self, factor: f64) -> Self {
        Self { per_eviction: self.per_eviction * factor, share: self.share * factor }
    }

    /// The lower of two that differ in what an eviction must be worth.
    pub(super) fn at_most(self, other: Self) -> Self {
        Self { per_eviction: self.per_eviction.min(other.per_eviction), ..self }
    }

    /// What the last evictions of a command must be worth at least, whatever it saves of the bill.
    pub(super) fn for_last_at_least(self) -> Self {
        self.times(LEAST_SHARE)
    }

    /// What the last evictions of a command must be worth that saves so much of what the nodes cost that may go.
    pub(super) fn for_last(self, share_saved: f64) -> Self {
        let factor = (share_saved * LAST_PER_SHARE_SAVED).clamp(LEAST_SHARE, MOST_SHARE);
        Self { per_eviction: self.per_eviction * factor, ..self }
    }
}

/// What moving the pods of nodes costs, and what the nodes cost in dollars an hour.
pub(super) fn evictions_and_price(candidates: &[&Candidate]) -> (f64, f64) {
    let evictions = candidates.iter().map(|candidate| scene::eviction_cost(candidate)).sum();
    let price = candidates.iter().map(|candidate| candidate.dollars_per_hour()).sum();
    (evictions, price)
}

/// What is asked for before somebody knows what pods are worth.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hurdle {
    /// Dollars an hour for each unit of eviction cost; `None` if that depends on what pods are worth.
    pub(super) per_eviction: Option<f64>,
    /// The share of what the nodes cost.
    pub(super) share: f64,
}

impl Hurdle {
    /// What savings must be worth, with what evictions must save if nothing else is asked for.
    pub(super) fn threshold(self, per_eviction: impl FnOnce() -> f64) -> Threshold {
        Threshold { per_eviction: self.per_eviction.unwrap_or_else(per_eviction), share: self.share }
    }
}

/// What the pods of nodes of pools are worth, in dollars an hour: what the cheapest nodes charge for their shares. It is the same
/// wherever they run and whatever keeps them there, so that what an eviction must save stays the same while a cluster is consolidated.
pub(super) struct Worth {
    /// By their indices.
    pub(super) of_pods: BTreeMap<usize, f64>,
    /// For each unit of eviction cost; no number if nothing moves.
    mean: f64,
}

impl Worth {
    pub(super) fn of(scene: &Scene<'_>) -> Self {
        let cleared = scene.cleared();
        let of_pods = scene.planner.prepare(&cleared, scene.catalogs).values_of_pods();
        let evictions: f64 = of_pods.keys().map(|&pod| super::eviction_cost(&cleared.pods()[pod]).max(0.0)).sum();
        let mean = of_pods.values().sum::<f64>() / evictions;
        Self { of_pods, mean }
    }

    /// What an eviction must save by default, in dollars an hour.
    pub(super) const fn per_eviction(&self) -> f64 {
        MOST_PER_EVICTION.min(self.mean / FULL)
    }
}
