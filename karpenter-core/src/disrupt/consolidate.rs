//! Fewer and cheaper nodes for the same pods.
//!
//! A node wastes what it costs beyond what its pods are worth, which is what the cheapest nodes charge for their shares. The
//! nodes that waste most for what it costs to move their pods go together, as many of them as save most; their pods fill the
//! room that there is, and the planner makes new nodes for the rest. Then nodes are taken from the set and added to it for as
//! long as that gains something.

use std::{
    cell::Cell,
    collections::{BTreeMap, BTreeSet},
};

use ordered_float::OrderedFloat;

use super::{
    Candidate, Candidates, Command, Evictions, Method,
    scene::{Scene, Trial, eviction_cost},
};
use crate::{Price, api::DisruptionReason};

/// How many sets of nodes are tried between two of which one is the best so far.
const REFINEMENTS: usize = 4;

/// How often nodes are left out whose pods find no place, before a set is given up.
const MAX_LEFT_OUT: usize = 8;

/// The most pods that are placed in all trials for one command: some seconds.
const MAX_WORK: usize = 1_000_000;

/// Into how many parts a set is divided at first to see which parts are better left out or added.
const PARTS: usize = 8;

/// What savings must be worth.
#[derive(Clone, Copy, Debug)]
pub(super) struct Threshold {
    /// Dollars an hour for each unit of eviction cost.
    pub(super) per_eviction: f64,
    /// The share of what the nodes cost.
    pub(super) share: f64,
}

/// Nodes that go together.
struct Found {
    /// Their positions in the order of nodes.
    nodes: BTreeSet<usize>,
    /// What is saved beyond what it must be worth, in dollars an hour.
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

/// The nodes that may go together, and what was tried.
struct Climb<'k, 'c, 's> {
    consolidation: &'k Consolidation<'c, 's>,
    order: Vec<&'k Candidate>,
    work: Cell<usize>,
}

impl Consolidation<'_, '_> {
    /// The command that saves most, if any saves enough.
    pub(super) fn best(&self) -> Option<Command> {
        let climb = Climb { consolidation: self, order: self.by_waste(), work: Cell::new(0) };
        let found = climb.best_prefix().or_else(|| climb.first_single())?;
        let Found { nodes, trial, .. } = climb.improved(found);
        let candidates: Vec<&Candidate> = nodes.iter().map(|&node| climb.order[node]).collect();
        Some(Scene::command(Method::Consolidation, &candidates, trial))
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
}

impl Climb<'_, '_, '_> {
    /// The best of the sets of the first nodes.
    fn best_prefix(&self) -> Option<Found> {
        let mut known: BTreeMap<usize, Option<Found>> = BTreeMap::new();
        let mut size = 1;
        while size < self.order.len() {
            known.insert(size, self.try_all((0..size).collect()));
            size *= 2;
        }
        known.insert(self.order.len(), self.try_all((0..self.order.len()).collect()));
        for _ in 0..REFINEMENTS {
            let Some(best) = best_of(&known) else { break };
            let below = known.range(..best).next_back().map(|(&size, _)| size);
            let above = known.range(best + 1..).next().map(|(&size, _)| size);
            let middles = [below.map(|size| size.midpoint(best)), above.map(|size| size.midpoint(best))];
            for middle in middles.into_iter().flatten() {
                known.entry(middle).or_insert_with(|| self.try_all((0..middle).collect()));
            }
        }
        let best = best_of(&known)?;
        known.remove(&best).flatten()
    }

    /// The first node that may go alone.
    fn first_single(&self) -> Option<Found> {
        (0..self.order.len()).find_map(|node| self.try_all(BTreeSet::from([node])))
    }

    /// A set that gains more, as far as one is found by leaving out or adding parts, the larger ones first.
    fn improved(&self, mut found: Found) -> Found {
        let mut size = (self.order.len() / PARTS).max(1);
        loop {
            let mut is_better = false;
            for part in (0..self.order.len()).collect::<Vec<_>>().chunks(size).rev() {
                let inside: BTreeSet<usize> = part.iter().copied().filter(|node| found.nodes.contains(node)).collect();
                let without = (!inside.is_empty()).then(|| &found.nodes - &inside);
                let with = (inside.len() < part.len()).then(|| found.nodes.iter().chain(part).copied().collect());
                for nodes in without.into_iter().chain(with).filter(|nodes| !nodes.is_empty()) {
                    if self.work.get() >= MAX_WORK {
                        return found;
                    }
                    if let Some(other) = self.try_all(nodes).filter(|other| other.gain > found.gain) {
                        (found, is_better) = (other, true);
                        break;
                    }
                }
            }
            if size == 1 && !is_better {
                return found;
            }
            size = (size / 2).max(1);
        }
    }

    /// What is gained if all of these go, without those of which a pod would have no place; `None` if it is not enough.
    fn try_all(&self, mut nodes: BTreeSet<usize>) -> Option<Found> {
        for _ in 0..MAX_LEFT_OUT {
            let candidates: Vec<&Candidate> = nodes.iter().map(|&node| self.order[node]).collect();
            let moving: usize = candidates.iter().map(|candidate| candidate.pods.len()).sum();
            self.work.set(self.work.get() + moving);
            match self.consolidation.scene.try_without(&candidates) {
                Ok(trial) => return self.worthwhile(nodes, trial),
                Err(left) => {
                    let stays = |node: &usize| self.order[*node].pods.iter().any(|pod| left.contains(pod));
                    let before = nodes.len();
                    nodes.retain(|node| !stays(node));
                    if nodes.is_empty() || nodes.len() == before {
                        return None;
                    }
                }
            }
        }
        None
    }

    fn worthwhile(&self, nodes: BTreeSet<usize>, trial: Trial) -> Option<Found> {
        let Threshold { per_eviction, share } = self.consolidation.threshold;
        let candidates = || nodes.iter().map(|&node| self.order[node]);
        let evictions: f64 = candidates().map(eviction_cost).sum();
        let before: f64 = candidates().map(price).sum();
        let gain = trial.savings_per_hour - evictions * per_eviction - before * share;
        (gain > 0.0).then_some(Found { nodes, gain, trial })
    }
}

/// The size of the set that gains most; of several the smallest.
fn best_of(known: &BTreeMap<usize, Option<Found>>) -> Option<usize> {
    let gains = known.iter().filter_map(|(&size, found)| Some((found.as_ref()?.gain, size)));
    gains.reduce(|a, b| if b.0 > a.0 { b } else { a }).map(|(_, size)| size)
}

fn price(candidate: &Candidate) -> f64 {
    candidate.price_per_hour.map_or(0.0, Price::dollars_per_hour)
}
