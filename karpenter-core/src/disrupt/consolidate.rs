//! Fewer and cheaper nodes for the same pods.
//!
//! A node wastes what it costs beyond what its pods are worth, which is what the cheapest nodes charge for their shares. The
//! nodes that waste most for what it costs to move their pods go together, as many of them as save most; their pods fill the
//! room that there is, and the planner makes new nodes for the rest. Then nodes are taken from the set and added to it for as
//! long as that gains something.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::atomic::{AtomicUsize, Ordering},
};

use ordered_float::OrderedFloat;

use super::{
    Candidate, Candidates, Command, Method,
    allowance::Allowance,
    scene::{Care, Scene, Trial, eviction_cost},
    terms::Terms,
};
use crate::{Timestamp, api::DisruptionReason, schedule::parallel};

/// How many sets of nodes are tried between two of which one is the best so far.
const REFINEMENTS: usize = 4;

/// How often nodes are left out whose pods find no place, before a set is given up.
const MAX_LEFT_OUT: usize = 8;

/// The most work in sketches from one start and in whole plans, for one command: a second or two each. A unit is a place that
/// is looked at or a pod that is placed.
const MAX_SKETCHED: usize = 120_000;
const MAX_PLANNED: usize = 250_000;

/// By what the threshold is multiplied in searches that are begun. Which nodes should go is seen better from both sides.
const FACTORS: [f64; 3] = [1.0, 0.4, 2.0];

/// Among how many sets of nodes that may go together a command is sought: all nodes, if a budget lets a twentieth go.
const MAX_WINDOWS: usize = 20;

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

impl Threshold {
    /// What must be saved, in dollars an hour, for pods of so much eviction cost to leave nodes of such a price.
    pub(super) fn per_hour(self, evictions: f64, price: f64) -> f64 {
        evictions * self.per_eviction + price * self.share
    }
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
    pub(super) now: Timestamp,
    pub(super) threshold: Threshold,
    pub(super) terms: Terms<'c, 's>,
    /// What each pod is worth, in dollars an hour, by its index.
    pub(super) values: &'c BTreeMap<usize, f64>,
}

/// The nodes that may go together, and what was tried.
struct Climb<'k, 'c, 's> {
    consolidation: &'k Consolidation<'c, 's>,
    order: &'k [&'k Candidate],
    /// How many pods they have.
    pods: usize,
    /// By what the threshold is multiplied.
    factor: f64,
    /// How much was done, in units of work.
    work: AtomicUsize,
}

impl Consolidation<'_, '_> {
    /// The command that saves most, if any saves enough. It is sought among the nodes that waste most, as many of them as may
    /// go together; if there is none, among the next.
    pub(super) fn best(&self) -> Option<Command> {
        let mut order = self.by_waste();
        for _ in 0..MAX_WINDOWS {
            let (window, later) = self.window(order);
            if window.is_empty() {
                break;
            }
            if let Some(command) = self.best_among(&window) {
                return Some(command);
            }
            order = later;
        }
        None
    }

    fn best_among(&self, order: &[&Candidate]) -> Option<Command> {
        let pods = order.iter().map(|candidate| candidate.pods.len()).sum();
        let climb = |factor| Climb { consolidation: self, order, pods, factor, work: AtomicUsize::new(0) };
        let starts = parallel::map(&FACTORS, |&factor| climb(factor).sketched());
        let climb = climb(1.0);
        let starts =
            starts.into_iter().flatten().filter_map(|Found { nodes, trial, .. }| climb.worthwhile(nodes, trial));
        let found = starts.reduce(|a, b| if b.gain > a.gain { b } else { a })?;
        let found = climb.improved(found, 1, Care::Sketch);
        let Found { nodes, trial, .. } = climb.improved(climb.planned(found), 1, Care::Plan);
        let candidates = climb.candidates(&nodes);
        let trial = self.terms.settle(&candidates, trial).filter(|trial| climb.gain(&candidates, trial) > 0.0)?;
        Some(Scene::command(Method::Consolidation, &candidates, trial))
    }

    /// The nodes that may go, those that waste most for what it costs to move their pods first.
    fn by_waste(&self) -> Vec<&Candidate> {
        let all = self.candidates.for_reason(DisruptionReason::Underutilized);
        let mut order: Vec<&Candidate> = all.filter(|candidate| !candidate.pods.is_empty()).collect();
        order.sort_by_cached_key(|candidate| {
            let waste = self.waste(candidate);
            (OrderedFloat(-waste / (1.0 + eviction_cost(candidate))), candidate.name.clone())
        });
        order
    }

    /// As many of the first nodes as may go together, and the others.
    fn window<'k>(&self, order: Vec<&'k Candidate>) -> (Vec<&'k Candidate>, Vec<&'k Candidate>) {
        let mut allowance = Allowance::new(&self.scene.snapshot, DisruptionReason::Underutilized, self.now);
        let mut evictions = self.candidates.ledger();
        order.into_iter().partition(|candidate| {
            // What the pods of a node refuse must not be taken off what is left for its pool.
            evictions.check(&candidate.demand).is_ok()
                && allowance.take(candidate)
                && evictions.add(&candidate.demand).is_ok()
        })
    }

    /// What a node costs beyond what its pods are worth, in dollars an hour.
    fn waste(&self, candidate: &Candidate) -> f64 {
        let worth: f64 = candidate.pods.iter().filter_map(|pod| self.values.get(pod)).sum();
        candidate.dollars_per_hour() - worth
    }
}

impl Climb<'_, '_, '_> {
    /// A set that was looked for by sketches.
    fn sketched(&self) -> Option<Found> {
        let found = self.best_prefix().or_else(|| self.best_single())?;
        Some(self.improved(found, (self.order.len() / PARTS).max(1), Care::Sketch))
    }

    /// The best of the sets of the first nodes.
    fn best_prefix(&self) -> Option<Found> {
        let all = self.order.len();
        let mut sizes: Vec<usize> =
            std::iter::successors(Some(1), |size| Some(size * 2)).take_while(|&size| size < all).collect();
        sizes.extend((all > 0).then_some(all));
        let mut known: BTreeMap<usize, Option<Found>> = BTreeMap::new();
        for _ in 0..=REFINEMENTS {
            sizes.retain(|size| !known.contains_key(size));
            let found = parallel::map(&sizes, |&size| self.try_all((0..size).collect(), Care::Sketch));
            known.extend(sizes.drain(..).zip(found));
            let Some(best) = best_of(&known) else { break };
            let below = known.range(..best).next_back().map(|(&size, _)| size.midpoint(best));
            let above = known.range(best + 1..).next().map(|(&size, _)| size.midpoint(best));
            sizes.extend(below.into_iter().chain(above));
        }
        let best = best_of(&known)?;
        known.remove(&best).flatten()
    }

    /// The best of the nodes that may go alone.
    fn best_single(&self) -> Option<Found> {
        let most = MAX_SKETCHED / self.work_for(1).max(1);
        let first: Vec<usize> = (0..self.order.len().min(most)).collect();
        let found = parallel::map(&first, |&node| self.try_all(BTreeSet::from([node]), Care::Sketch));
        found.into_iter().flatten().reduce(|a, b| if b.gain > a.gain { b } else { a })
    }

    /// A set that gains more, as far as one is found by leaving out or adding parts, from parts of this size to single nodes.
    fn improved(&self, mut found: Found, mut size: usize, care: Care) -> Found {
        let start = self.work.load(Ordering::Relaxed);
        let most = if care == Care::Plan { MAX_PLANNED } else { MAX_SKETCHED };
        loop {
            let all: Vec<usize> = (0..self.order.len()).collect();
            let changes: Vec<Change> = all.chunks(size).flat_map(|part| Change::all(part, &found.nodes)).collect();
            let done = self.work.load(Ordering::Relaxed) - start;
            if done + changes.len().saturating_mul(self.work_for(found.nodes.len())) > most {
                return found;
            }
            let tried = parallel::map(&changes, |change| self.try_all(change.apply(&found.nodes), care));
            let tried = changes.into_iter().zip(tried).filter_map(|(change, other)| Some((change, other?)));
            let mut better: Vec<(Change, Found)> = tried.filter(|(_, other)| other.gain > found.gain).collect();
            better.sort_by_key(|(_, other)| OrderedFloat(-other.gain));
            let is_better = !better.is_empty();
            for (index, (change, alone)) in better.into_iter().enumerate() {
                let other = if index == 0 { Some(alone) } else { self.try_all(change.apply(&found.nodes), care) };
                found = other.filter(|other| other.gain > found.gain).unwrap_or(found);
            }
            if size == 1 && !is_better {
                return found;
            }
            size = (size / 2).max(1);
        }
    }

    /// The same nodes with a better plan, if there is one.
    fn planned(&self, found: Found) -> Found {
        let better = self.try_all(found.nodes.clone(), Care::Plan);
        better.filter(|better| better.gain > found.gain).unwrap_or(found)
    }

    /// What is gained if all of these go, without those of which a pod would have no place; `None` if it is not enough.
    fn try_all(&self, mut nodes: BTreeSet<usize>, care: Care) -> Option<Found> {
        for _ in 0..MAX_LEFT_OUT {
            if nodes.is_empty() {
                return None;
            }
            let candidates = self.candidates(&nodes);
            self.work.fetch_add(self.work_for(nodes.len()), Ordering::Relaxed);
            match self.consolidation.scene.try_without(&candidates, care) {
                Ok(trial) => return self.worthwhile(nodes, trial),
                Err(left) => {
                    let before = nodes.len();
                    nodes.retain(|&node| !self.order[node].pods.iter().any(|pod| left.contains(pod)));
                    if nodes.len() == before {
                        return None;
                    }
                }
            }
        }
        None
    }

    /// What it takes to try so many nodes with as many pods as the nodes have on average.
    fn work_for(&self, nodes: usize) -> usize {
        self.consolidation.scene.snapshot.places().len() + self.pods * nodes / self.order.len().max(1)
    }

    fn worthwhile(&self, nodes: BTreeSet<usize>, trial: Trial) -> Option<Found> {
        let candidates = self.candidates(&nodes);
        let gain = self.gain(&candidates, &trial);
        let is_worth_it = gain > 0.0 && self.consolidation.terms.allow(&candidates, &trial);
        is_worth_it.then_some(Found { nodes, gain, trial })
    }

    /// What is saved beyond what it must be worth, in dollars an hour.
    fn gain(&self, candidates: &[&Candidate], trial: &Trial) -> f64 {
        let evictions: f64 = candidates.iter().map(|candidate| eviction_cost(candidate)).sum();
        let before: f64 = candidates.iter().map(|candidate| candidate.dollars_per_hour()).sum();
        trial.savings_per_hour - self.factor * self.consolidation.threshold.per_hour(evictions, before)
    }

    fn candidates(&self, nodes: &BTreeSet<usize>) -> Vec<&Candidate> {
        nodes.iter().map(|&node| self.order[node]).collect()
    }
}

/// Nodes that are left out of a set, or added to it.
struct Change {
    nodes: BTreeSet<usize>,
    is_out: bool,
}

impl Change {
    /// What can be done with a part of all nodes: leave out those that are in the set, or add the others.
    fn all(part: &[usize], set: &BTreeSet<usize>) -> impl Iterator<Item = Self> {
        let (inside, outside): (BTreeSet<usize>, BTreeSet<usize>) = part.iter().partition(|node| set.contains(node));
        let changes = [Self { nodes: inside, is_out: true }, Self { nodes: outside, is_out: false }];
        changes.into_iter().filter(|change| !change.nodes.is_empty())
    }

    fn apply(&self, set: &BTreeSet<usize>) -> BTreeSet<usize> {
        if self.is_out { set - &self.nodes } else { set | &self.nodes }
    }
}

/// The size of the set that gains most; of several the smallest.
fn best_of(known: &BTreeMap<usize, Option<Found>>) -> Option<usize> {
    let gains = known.iter().filter_map(|(&size, found)| Some((found.as_ref()?.gain, size)));
    gains.reduce(|a, b| if b.0 > a.0 { b } else { a }).map(|(_, size)| size)
}
