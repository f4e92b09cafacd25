//! Fewer and cheaper nodes for the same pods.
//!
//! A node wastes what it costs beyond what its pods are worth, which is what the cheapest nodes charge for their shares. The
//! nodes that waste most for what it costs to move their pods go together, as many of them as save most; their pods fill the
//! room that there is, and the planner makes new nodes for the rest.

use std::collections::BTreeMap;

use ordered_float::OrderedFloat;

use super::{
    Candidate, Candidates, Command, Evictions, Method,
    scene::{Scene, Trial, eviction_cost},
};
use crate::{Price, api::DisruptionReason};

/// How many sets of nodes are tried between two of which one is the best so far.
const REFINEMENTS: usize = 4;

/// What savings must be worth.
#[derive(Clone, Copy, Debug)]
pub(super) struct Threshold {
    /// Dollars an hour for each unit of eviction cost.
    pub(super) per_eviction: f64,
    /// The share of what the nodes cost.
    pub(super) share: f64,
}

/// What a trial gains beyond what it costs.
struct Gain {
    gain: f64,
    trial: Trial,
}

/// A search for the next command.
pub(super) struct Consolidation<'c, 's> {
    pub(super) scene: &'c Scene<'s>,
    pub(super) candidates: &'c Candidates,
    /// How many nodes of each pool may go.
    pub(super) allowed: &'c BTreeMap<String, usize>,
    pub(super) threshold: Threshold,
    /// What each pod is worth, in dollars an hour, by its index.
    pub(super) values: &'c BTreeMap<usize, f64>,
}

impl Consolidation<'_, '_> {
    /// The command that saves most, if any saves enough.
    pub(super) fn best(&self) -> Option<Command> {
        let order = self.by_waste();
        self.best_prefix(&order).or_else(|| self.first_single(&order))
    }

    /// The nodes that may go together, those that waste most for what it costs to move their pods first.
    fn by_waste(&self) -> Vec<&Candidate> {
        let all = self.candidates.for_reason(DisruptionReason::Underutilized);
        let mut order: Vec<&Candidate> = all.filter(|candidate| !candidate.pods.is_empty()).collect();
        order.sort_by_cached_key(|candidate| {
            let waste = self.waste(candidate);
            (OrderedFloat(-waste / (1.0 + eviction_cost(candidate))), candidate.name.clone())
        });
        let mut left = self.allowed.clone();
        let mut evictions = Evictions::new(self.candidates.limits());
        order.retain(|candidate| {
            let left = left.entry(candidate.pool.clone()).or_default();
            let goes = *left > 0 && evictions.add(&candidate.demand).is_ok();
            *left -= usize::from(goes);
            goes
        });
        order
    }

    /// What a node costs beyond what its pods are worth, in dollars an hour.
    fn waste(&self, candidate: &Candidate) -> f64 {
        let worth: f64 = candidate.pods.iter().filter_map(|pod| self.values.get(pod)).sum();
        price(candidate) - worth
    }

    /// The best of the sets of the first nodes.
    fn best_prefix(&self, order: &[&Candidate]) -> Option<Command> {
        let mut known: BTreeMap<usize, Option<Gain>> = BTreeMap::new();
        let mut size = 1;
        while size < order.len() {
            known.insert(size, self.try_all(&order[..size]));
            size *= 2;
        }
        known.insert(order.len(), self.try_all(order));
        for _ in 0..REFINEMENTS {
            let Some(best) = best_of(&known) else { break };
            let below = known.range(..best).next_back().map(|(&size, _)| size);
            let above = known.range(best + 1..).next().map(|(&size, _)| size);
            let middles = [below.map(|size| size.midpoint(best)), above.map(|size| size.midpoint(best))];
            for middle in middles.into_iter().flatten() {
                known.entry(middle).or_insert_with(|| self.try_all(&order[..middle]));
            }
        }
        let best = best_of(&known)?;
        let gain = known.remove(&best).flatten()?;
        Some(Scene::command(Method::Consolidation, &order[..best], gain.trial))
    }

    /// The first node that may go alone.
    fn first_single(&self, order: &[&Candidate]) -> Option<Command> {
        order.iter().find_map(|&candidate| {
            let gain = self.try_all(&[candidate])?;
            Some(Scene::command(Method::Consolidation, &[candidate], gain.trial))
        })
    }

    /// What is gained if all of these go; `None` if it is not enough.
    fn try_all(&self, candidates: &[&Candidate]) -> Option<Gain> {
        let trial = self.scene.try_without(candidates)?;
        let evictions: f64 = candidates.iter().map(|candidate| eviction_cost(candidate)).sum();
        let before: f64 = candidates.iter().map(|candidate| price(candidate)).sum();
        let gain = trial.savings_per_hour - evictions * self.threshold.per_eviction - before * self.threshold.share;
        (gain > 0.0).then_some(Gain { gain, trial })
    }
}

/// The size of the set that gains most; of several the smallest.
fn best_of(known: &BTreeMap<usize, Option<Gain>>) -> Option<usize> {
    let gains = known.iter().filter_map(|(&size, gain)| Some((gain.as_ref()?.gain, size)));
    gains.reduce(|a, b| if b.0 > a.0 { b } else { a }).map(|(_, size)| size)
}

fn price(candidate: &Candidate) -> f64 {
    candidate.price_per_hour.map_or(0.0, Price::dollars_per_hour)
}
