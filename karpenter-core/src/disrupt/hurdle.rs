//! What savings must be worth, before and after somebody knows what pods are worth.

use std::collections::BTreeMap;

use super::{Candidates, consolidate::Threshold, eviction_cost, scene::Scene};
use crate::Snapshot;

/// What an eviction must save at most by default, in dollars an hour.
const MOST_PER_EVICTION: f64 = 0.01;

/// How full nodes are on which pods cost what their eviction must save at most.
const FULL: f64 = 0.75;

/// What savings must be worth.
#[derive(Clone, Copy, Debug)]
pub(super) enum Hurdle {
    /// The same, whatever moves.
    Fixed(Threshold),
    /// A cent for each eviction, or less for small pods.
    ByWorth {
        /// The share of what the nodes cost.
        share: f64,
    },
}

/// What the pods of nodes that may go are worth, in dollars an hour: what the cheapest nodes charge for their shares. It is the same
/// wherever they run.
pub(super) struct Worth {
    /// By their indices.
    pub(super) of_pods: BTreeMap<usize, f64>,
    /// For each unit of eviction cost.
    mean: f64,
}

impl Worth {
    /// What they are worth in a cluster without the nodes that may go.
    pub(super) fn of(scene: &Scene<'_>, cleared: &Snapshot) -> Self {
        let of_pods = scene.planner.prepare(cleared, scene.catalogs).values_of_pods();
        let evictions: f64 = of_pods.keys().map(|&pod| eviction_cost(&cleared.pods()[pod]).max(0.0)).sum();
        let mean = of_pods.values().sum::<f64>() / evictions;
        Self { of_pods, mean }
    }
}

impl Hurdle {
    /// What savings must be worth at least, whatever pods are worth.
    pub(super) const fn least(self) -> Threshold {
        match self {
            Self::Fixed(threshold) => threshold,
            Self::ByWorth { share } => Threshold { per_eviction: 0.0, share },
        }
    }

    pub(super) fn threshold(self, worth: &Worth) -> Threshold {
        match self {
            Self::Fixed(threshold) => threshold,
            // No number if nothing moves, which counts as none.
            Self::ByWorth { share } => Threshold { per_eviction: MOST_PER_EVICTION.min(worth.mean / FULL), share },
        }
    }

    /// What savings must be worth in a cluster of which these nodes may go.
    pub(super) fn threshold_in(self, scene: &Scene<'_>, candidates: &Candidates) -> Threshold {
        match self {
            Self::Fixed(threshold) => threshold,
            Self::ByWorth { .. } => self.threshold(&Worth::of(scene, &scene.cleared(candidates))),
        }
    }
}
