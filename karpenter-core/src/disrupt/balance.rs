//! What pools with the policy `Balanced` ask of a consolidation.

use std::collections::BTreeMap;

use super::{Candidate, NODE_COST, price_of, rescheduling_cost, scene::Scene, survey::is_leaving};
use crate::{
    Price,
    api::{ConsolidationPolicy, NodePool, Pod},
    cluster::Place,
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
        let places = scene.snapshot.places();
        let leaving = places.iter().filter(|place| is_leaving(place)).map(|place| (place.name.as_str(), &**place));
        let leaving: BTreeMap<&str, &Place> = leaving.collect();
        for place in places.iter().filter(|place| !is_wanted(place)) {
            let Some(totals) = totals_of(&mut out, place) else { continue };
            let catalog = place.pool.as_deref().and_then(|pool| scene.catalogs.get(pool));
            let price = catalog.and_then(|catalog| price_of(place, catalog));
            let is_here = |pod: &&Pod| is_bound(pod) && !leaving.contains_key(pod.spec.node_name.as_str());
            totals.dollars_per_hour += price.map_or(0.0, Price::dollars_per_hour);
            totals.disruption += rescheduling_cost(place.residents.iter().map(AsRef::as_ref).filter(is_here));
        }
        // The pods of a node that leaves are its pods for as long as it is there, wherever they have room already.
        for pod in scene.snapshot.pods().iter().filter(|pod| !leaving.is_empty() && is_bound(pod)) {
            let place = leaving.get(pod.spec.node_name.as_str());
            if let Some(totals) = place.and_then(|place| totals_of(&mut out, place)) {
                totals.disruption += rescheduling_cost([&**pod]) - NODE_COST;
            }
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

/// The totals of the pool of a place, if it has the policy.
fn totals_of<'t>(all: &'t mut BTreeMap<String, Totals>, place: &Place) -> Option<&'t mut Totals> {
    all.get_mut(place.pool.as_deref()?)
}

/// Whether a node is still to be bought, for pods that wait.
const fn is_wanted(place: &Place) -> bool {
    place.is_promised() && !place.is_initialized
}

/// Whether a pod has a node, and would need another one if that went.
fn is_bound(pod: &Pod) -> bool {
    !pod.spec.node_name.is_empty() && pod.is_reschedulable()
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
