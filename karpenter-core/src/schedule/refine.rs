//! Cheaper nodes for the same pods, or nodes for more pods where limits leave some, found by taking some nodes out and making
//! others in their place.
//!
//! To make the best node time after time, and to make whole nodes of a mixture, both end with nodes that little is left to fill.
//! Each try takes a few nodes out, gives their pods to those that stay, and makes nodes for the rest, by worths a little beside
//! the usual ones (Schrimpf, Schneider, Stamm-Wilbrandt and Dueck, "Record Breaking Optimization Results Using the Ruin and
//! Recreate Principle", Journal of Computational Physics 159, 2000).

use std::cmp::Reverse;

use ordered_float::OrderedFloat;

use super::{
    candidate::Candidate,
    landing::{is_of_others, scattered},
    problem::{Problem, Tolerance, Trials},
    rework::{pick, tries},
    search::{Batch, Search},
};

/// How many rounds of tries there are at most, and how many in a row that find nothing: for a lower bill, and for more pods.
const MAX_ROUNDS: usize = 40;
const MAX_IDLE_ROUNDS: usize = 3;
const MAX_IDLE_ROUNDS_FOR_PODS: usize = 12;
/// The most pairs of units and candidates in all rounds together, and where very many plans are compared. There is one round
/// at least.
const MAX_PAIRS: usize = 4_000_000;
const FEW_PAIRS: usize = 30_000;
/// The most nodes that a try takes out.
const MOST_TAKEN_OUT: u64 = 4;
/// By how much worths are changed at most, as a share.
const UNSTEADINESS: f64 = 0.3;
/// One in so many lots fills nodes before the others where some do.
const LOTS_FOR_EACH_AHEAD: u64 = 4;
/// What is less is no saving, in dollars an hour.
pub(super) const LEAST_SAVED: f64 = 1e-9;

/// What chance is asked for.
const COUNT: usize = 1;
const NODES: usize = 2;
const WORTHS: usize = 3;
const AHEAD: usize = 4;

impl<'p> Search<'p, '_> {
    /// The same pods on cheaper nodes, as far as tries find any.
    pub(super) fn refined(self) -> Self {
        if self.batches.iter().map(Batch::node_count).sum::<usize>() < 2 {
            return self;
        }
        self.improved(MAX_IDLE_ROUNDS, |other, than| {
            other.bill() < than.bill() - LEAST_SAVED && other.planned() == than.planned()
        })
    }

    /// Nodes for more pods within limits, the most important first, or for as many that take less of the limits, as far as tries find
    /// any. Pods on which others may depend, or which may depend on others, stay as they are.
    pub(super) fn fuller(self) -> Self {
        let lots = &self.problem.lots;
        let may_change: Vec<bool> = lots.list.iter().map(|lot| !lots.is_tentative(lot)).collect();
        self.improved(MAX_IDLE_ROUNDS_FOR_PODS, |other, than| {
            let (now, before) = (other.planned(), than.planned());
            let is_valid = (0..may_change.len()).all(|lot| may_change[lot] || now[lot] == before[lot]);
            let takes_less = other.bill() < than.bill() - LEAST_SAVED;
            is_valid && (other.left_by_priority(), !takes_less) < (than.left_by_priority(), true)
        })
    }

    /// What tries make of a search, each of which is better than the one before, until so many rounds in a row find nothing.
    fn improved(mut self, max_idle: usize, is_better: impl Fn(&Self, &Self) -> bool + Sync) -> Self {
        let weights = self.problem.weights_of_lots();
        let mut idle = 0;
        for round in 0..self.rounds() {
            if idle == max_idle || self.problem.is_stopped() {
                break;
            }
            let attempt = |number| Some(self.recreated(&weights, number)).filter(|other| is_better(other, &self));
            let tries = tries(round, attempt).into_iter().flatten();
            let best = tries.reduce(|best, other| if is_better(&other, &best) { other } else { best });
            idle = if best.is_some() { 0 } else { idle + 1 };
            self = best.unwrap_or(self);
        }
        self
    }

    fn rounds(&self) -> usize {
        let problem = self.problem;
        let pairs = problem.pairs().max(1);
        let most = if problem.course.trials == Trials::All { MAX_PAIRS } else { FEW_PAIRS };
        (most / pairs).clamp(1, MAX_ROUNDS)
    }

    /// One try; each number stands for another one.
    fn recreated(&self, weights: &[u32], number: u64) -> Self {
        let problem = self.problem;
        let mut other = self.clone();
        // Nodes of lighter pools have room for all, but to fill them is no step to other plans.
        let is_step = problem.course.is_step();
        let taken_out = other.take_out(weights, number);
        for lot in lots_of(problem, &taken_out) {
            let is_wanted = |batch: &Batch<'p>| {
                let weight = problem.weight(batch.candidate);
                weight == weights[lot] || !is_step && weight < weights[lot]
            };
            while other.remaining(lot) > self.remaining(lot) && other.squeeze_in_where(lot, is_wanted) {}
        }
        for (shape, worth) in other.worths.to_mut().iter_mut().enumerate() {
            *worth *= 1.0 + UNSTEADINESS * (2.0 * share(scattered(shape, WORTHS, number)) - 1.0);
        }
        other.make_others(&taken_out, number);
        other.worths.clone_from(&self.worths);
        other
    }

    /// The priority of each pod that is left, the highest first.
    fn left_by_priority(&self) -> Vec<i32> {
        let all = self.problem.base.snapshot.pods();
        let lots = self.problem.lots.list.iter().zip(self.planned());
        let left = lots.flat_map(|(lot, planned)| &lot.pods[planned * lot.unit_size..]);
        let mut out: Vec<i32> = left.map(|&pod| all[pod].spec.priority.unwrap_or_default()).collect();
        out.sort_unstable_by_key(|&priority| Reverse(priority));
        out
    }

    /// Takes a few nodes out. What a node of a lighter pool holds of the pods of a heavier one stays.
    fn take_out(&mut self, weights: &[u32], number: u64) -> Vec<Batch<'p>> {
        let mut taken_out = Vec::new();
        for (turn, _) in (0..=scattered(0, COUNT, number) % MOST_TAKEN_OUT).enumerate() {
            let is_own = |&index: &usize| !is_of_others(self.problem, weights, &self.batches[index]);
            let open: Vec<usize> = (0..self.batches.len()).filter(is_own).collect();
            let Some(&index) = pick(&open, scattered(turn, NODES, number)) else { break };
            taken_out.push(self.unmake(index));
        }
        taken_out
    }

    /// Makes nodes for what is left. In turn these are the best, the best of those that are dearer than all that were taken out, those
    /// of lighter pools first for pods that no heavier one takes, the best of those that are cheaper, and the best of those in which
    /// some pods come before the others. Where nodes are to go, the order of pods and of pools leads to cheaper ends that move more
    /// pods than they are worth.
    fn make_others(&mut self, taken_out: &[Batch<'p>], number: u64) {
        let prices = || taken_out.iter().map(|batch| batch.candidate.price);
        let (least, most) = (prices().fold(f64::INFINITY, f64::min), prices().fold(0.0, f64::max));
        let is_step = self.problem.course.is_step();
        match number % 4 {
            1 => {
                let is_dearer = |candidate: &Candidate| candidate.price > most;
                if !is_step {
                    let mut tiers = self.tiers_with_hosts();
                    for (tier, _) in &mut tiers {
                        tier.retain(|candidate| is_dearer(candidate));
                    }
                    self.make_nodes_for_hosts(tiers);
                }
                self.make_all_nodes_first(is_dearer);
            }
            2 => self.make_all_nodes_first(|candidate| candidate.price < least),
            3 if !is_step => {
                let is_ahead = |lot: &usize| scattered(*lot, AHEAD, number).is_multiple_of(LOTS_FOR_EACH_AHEAD);
                self.ahead = Some((0..self.problem.lots.list.len()).filter(is_ahead).collect());
                self.make_all_nodes(Tolerance::Full);
                self.ahead = None;
            }
            _ => self.make_all_nodes(Tolerance::Full),
        }
    }

    /// Makes nodes for what is left, those of the heaviest pools first, and of each weight those first that are so.
    fn make_all_nodes_first(&mut self, is_so: impl Fn(&Candidate) -> bool) {
        for tier in self.tiers() {
            let some: Vec<&'p Candidate> = tier.iter().filter(|candidate| is_so(candidate)).copied().collect();
            self.make_nodes(&some, Tolerance::Full);
            self.make_nodes(&tier, Tolerance::Full);
        }
    }
}

/// The lots of some nodes, the most valuable first.
fn lots_of(problem: &Problem<'_>, nodes: &[Batch<'_>]) -> Vec<usize> {
    let mut lots: Vec<usize> = nodes.iter().flat_map(|node| &node.guests).map(|seats| seats.lot).collect();
    lots.sort_by_cached_key(|&lot| (Reverse(OrderedFloat(problem.value(lot))), lot));
    lots.dedup();
    lots
}

/// Chance as a share.
fn share(chance: u64) -> f64 {
    (chance % 1024) as f64 / 1024.0
}

#[cfg(test)]
#[expect(clippy::redundant_closure_for_method_calls, reason = "only closures are general enough")]
mod tests {
    use crate::schedule::trim::tests::changed;

    #[test]
    fn one_node_takes_the_place_of_three() {
        let types = [("half", 4, 0.18), ("double", 16, 0.85)];
        assert_eq!(changed(&types, &["7", "7", "2"], |search| search.refined()), [16]);
    }

    #[test]
    fn pods_that_need_nodes_of_their_own_keep_them() {
        assert_eq!(changed(&[("double", 16, 0.85)], &["7", "7"], |search| search.refined()), [8, 8]);
    }
}
