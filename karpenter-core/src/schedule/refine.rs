//! Cheaper nodes for the same pods, found by taking some nodes out and making others in their place.
//!
//! To make the best node time after time, and to make whole nodes of a mixture, both end with nodes that little is left to fill.
//! Each try takes a few nodes out, gives their pods to those that stay, and makes nodes for the rest, by worths a little beside
//! the usual ones (Schrimpf, Schneider, Stamm-Wilbrandt and Dueck, "Record Breaking Optimization Results Using the Ruin and
//! Recreate Principle", Journal of Computational Physics 159, 2000).

use std::cmp::Reverse;

use ordered_float::OrderedFloat;

use super::{
    landing::scattered,
    problem::{Tolerance, Trials},
    rework::{pick, tries},
    search::{Batch, Search},
};

/// How many rounds of tries there are at most, and how many in a row that find nothing.
const MAX_ROUNDS: usize = 40;
const MAX_IDLE_ROUNDS: usize = 3;
/// The most pairs of units and candidates in all rounds together, and where very many plans are compared. There is one round
/// at least.
const MAX_PAIRS: usize = 4_000_000;
const FEW_PAIRS: usize = 30_000;
/// The most nodes that a try takes out.
const MOST_TAKEN_OUT: u64 = 4;
/// By how much worths are changed at most, as a share.
const UNSTEADINESS: f64 = 0.3;
/// What is less is no saving, in dollars an hour.
pub(super) const LEAST_SAVED: f64 = 1e-9;

/// What chance is asked for.
const COUNT: usize = 1;
const NODES: usize = 2;
const WORTHS: usize = 3;

impl<'p> Search<'p, '_> {
    /// The same pods on cheaper nodes, as far as tries find any.
    pub(super) fn refined(mut self) -> Self {
        let weights = self.problem.weights_of_lots();
        let mut idle = 0;
        for round in 0..self.rounds() {
            if idle == MAX_IDLE_ROUNDS || self.problem.is_stopped() {
                break;
            }
            let tries = tries(round, |number| self.recreated(&weights, number));
            let best = tries.into_iter().flatten().min_by(|a, b| a.bill().total_cmp(&b.bill()));
            idle = if best.is_some() { 0 } else { idle + 1 };
            self = best.unwrap_or(self);
        }
        self
    }

    fn rounds(&self) -> usize {
        let problem = self.problem;
        if self.batches.iter().map(Batch::node_count).sum::<usize>() < 2 {
            return 0;
        }
        let pairs = problem.pairs().max(1);
        let most = if problem.course.trials == Trials::All { MAX_PAIRS } else { FEW_PAIRS };
        (most / pairs).clamp(1, MAX_ROUNDS)
    }

    /// One try; each number stands for another one. `None` if it finds nothing cheaper.
    fn recreated(&self, weights: &[u32], number: u64) -> Option<Self> {
        let problem = self.problem;
        let mut other = self.clone();
        // Nodes of lighter pools have room for all, but to fill them is no step to other plans.
        let is_step = problem.course.is_step();
        for lot in other.take_out(weights, number) {
            let is_wanted = |batch: &Batch<'p>| {
                let weight = problem.weight(batch.candidate);
                weight == weights[lot] || !is_step && weight < weights[lot]
            };
            while other.remaining(lot) > self.remaining(lot) && other.squeeze_in_where(lot, is_wanted) {}
        }
        for (shape, worth) in other.worths.to_mut().iter_mut().enumerate() {
            *worth *= 1.0 + UNSTEADINESS * (2.0 * share(scattered(shape, WORTHS, number)) - 1.0);
        }
        other.make_all_nodes(Tolerance::Full);
        other.worths.clone_from(&self.worths);
        let is_cheaper = other.bill() < self.bill() - LEAST_SAVED;
        (is_cheaper && other.planned() == self.planned()).then_some(other)
    }

    /// Takes a few nodes out, and says which lots had units there, the most valuable first. What a node of a lighter pool holds
    /// of the pods of a heavier one stays.
    fn take_out(&mut self, weights: &[u32], number: u64) -> Vec<usize> {
        let problem = self.problem;
        let mut lots: Vec<usize> = Vec::new();
        for (turn, _) in (0..=scattered(0, COUNT, number) % MOST_TAKEN_OUT).enumerate() {
            let open: Vec<usize> = self.open_batches(weights).collect();
            let Some(&index) = pick(&open, scattered(turn, NODES, number)) else { break };
            lots.extend(self.unmake(index).guests.iter().map(|seats| seats.lot));
        }
        lots.sort_by_cached_key(|&lot| (Reverse(OrderedFloat(problem.value(lot))), lot));
        lots.dedup();
        lots
    }
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
