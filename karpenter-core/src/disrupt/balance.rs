//! What pools with the policy `Balanced` ask of a consolidation.

use std::collections::BTreeMap;

use super::{Candidate, price_of, rescheduling_cost, scene::Scene};
use crate::{
    Price,
    api::{ConsolidationPolicy, NodePool},
};

/// What a consolidation must score for each pool with the policy `Balanced`, as in Karpenter: the share of the pool's bill that
/// it saves is at least half of the share of the pool's disruption that it takes.
pub const MIN_BALANCE: f64 = 0.5;

/// What all nodes of each pool with the policy come to, whether or not they may go.
pub(super) struct Balance(BTreeMap<String, Totals>);

#[derive(Default)]
struct Totals {
    dollars_per_hour: f64,
    /// What it would cost to move all pods; see [`rescheduling_cost`].
    disruption: f64,
}

impl Balance {
    pub(super) fn of(scene: &Scene<'_>) -> Self {
        let is_balanced = |pool: &&NodePool| pool.spec.disruption.consolidation_policy == ConsolidationPolicy::Balanced;
        let pools = scene.snapshot.pools().iter().filter(is_balanced);
        let mut out: BTreeMap<String, Totals> = pools.map(|pool| (pool.name().to_owned(), Totals::default())).collect();
        if out.is_empty() {
            return Self(out);
        }
        for place in scene.snapshot.places() {
            let Some(name) = place.pool.as_deref() else { continue };
            let Some(totals) = out.get_mut(name) else { continue };
            let price = scene.catalogs.get(name).and_then(|catalog| price_of(place, catalog));
            let pods = place.residents.iter().map(AsRef::as_ref).filter(|pod| pod.is_reschedulable());
            totals.dollars_per_hour += price.map_or(0.0, Price::dollars_per_hour);
            totals.disruption += rescheduling_cost(pods);
        }
        Self(out)
    }

    /// The pool with the policy for which a command scores least, and its score; `None` if none of its nodes is of such a pool.
    ///
    /// What is saved is shared by what the nodes cost. Nothing saved scores 0.
    pub(super) fn least<'c>(&self, candidates: &[&'c Candidate], savings_per_hour: f64) -> Option<(&'c str, f64)> {
        let mut moved: BTreeMap<&'c str, Totals> = BTreeMap::new();
        for candidate in candidates {
            let totals = moved.entry(&candidate.pool).or_default();
            totals.dollars_per_hour += candidate.dollars_per_hour();
            totals.disruption += candidate.rescheduling_cost;
        }
        let before: f64 = moved.values().map(|totals| totals.dollars_per_hour).sum();
        let scores = moved.into_iter().filter_map(|(pool, totals)| {
            let all = self.0.get(pool)?;
            let saved = savings_per_hour * totals.dollars_per_hour / before;
            Some((pool, score(saved, &totals, all)))
        });
        scores.min_by(|(_, a), (_, b)| a.total_cmp(b))
    }

    /// Whether all pools with the policy have the command worth its disruption.
    pub(super) fn approves(&self, candidates: &[&Candidate], savings_per_hour: f64) -> bool {
        self.0.is_empty() || self.least(candidates, savings_per_hour).is_none_or(|(_, score)| score >= MIN_BALANCE)
    }
}

fn score(saved: f64, moved: &Totals, all: &Totals) -> f64 {
    // What is not a number was divided by nothing: a pool of which nobody knows what it costs.
    if saved.is_nan() || saved <= 0.0 {
        return 0.0;
    }
    let saved = saved / all.dollars_per_hour;
    let disrupted = moved.disruption / all.disruption;
    if disrupted > 0.0 { saved / disrupted } else { f64::INFINITY }
}
