//! Cheaper nodes for pods that an earlier plan left, found by taking nodes out and making others in their place.
//!
//! Such pods are few and differ much, and where one node cannot be spared several often can: a node that is empty draws pods
//! away from where they leave the most room for others. Each try takes a few nodes out, gives their pods to those that
//! stay, and makes nodes for whichever find none in some order (Schrimpf, Schneider, Stamm-Wilbrandt and Dueck, "Record Breaking
//! Optimization Results Using the Ruin and Recreate Principle", Journal of Computational Physics 159, 2000).

use std::{cmp::Reverse, ops::Range};

use ordered_float::OrderedFloat;

use super::{
    landing::{Ground, is_settled, scattered},
    parallel,
    problem::Tolerance,
    search::{Batch, Search},
};

/// How many tries begin with the same search. The cheapest of what they find is where the next ones begin.
const TRIES_AT_ONCE: usize = 8;
/// How often so many are made at most: with more the nodes hardly get cheaper.
const MAX_ROUNDS: usize = 120;
/// The most pairs of pods and nodes that are looked at in all tries together, but for those of the last round: mostly less than a
/// second.
const MAX_PAIRS: usize = 60_000_000;
/// The most nodes that a try takes out.
const MOST_TAKEN_OUT: u64 = 3;
/// In so many times the orders that are known at first must the pods find nodes besides.
const UNKNOWN_ORDERS: u64 = 2;
/// So many orders that no other try sees belong to each try.
const ORDERS_OF_TRY: u64 = 1024;

/// What became of a try.
struct Try<'p, 'a> {
    /// A cheaper search all of whose pods find nodes in all orders.
    found: Option<Search<'p, 'a>>,
    /// The first order in which some of the pods found none.
    restless: Option<u64>,
    /// In how many orders pods were bound.
    landings: usize,
}

impl<'p, 'a> Search<'p, 'a> {
    /// The same pods on cheaper nodes, as long as all of them find nodes in so many known orders, in those in which a try
    /// failed, and in others that no try has seen: of many tries some will do for any orders that are known.
    pub(super) fn reworked(mut self, calm_turns: usize) -> Self {
        let most_landings = MAX_PAIRS / self.landing_pairs().max(1);
        let (mut landings, mut known): (usize, Vec<u64>) = (0, (0..calm_turns as u64).collect());
        for round in 0..MAX_ROUNDS {
            if landings + calm_turns > most_landings || self.problem.is_stopped() {
                break;
            }
            let tries = tries(round, |number| self.rework(number, &known, calm_turns as u64));
            // The order in which one try failed is the one in which the next is likely to.
            for turn in tries.iter().filter_map(|attempt| attempt.restless) {
                known.retain(|other| *other != turn);
                known.insert(0, turn);
            }
            landings += tries.iter().map(|attempt| attempt.landings).sum::<usize>();
            let found = tries.into_iter().filter_map(|attempt| attempt.found);
            self = found.min_by(|a, b| a.bill().total_cmp(&b.bill())).unwrap_or(self);
        }
        self
    }

    /// One try; each number stands for another one.
    fn rework(&self, number: u64, known: &[u64], calm_turns: u64) -> Try<'p, 'a> {
        match self.without_some(number).filter(|other| other.bill() < self.bill()) {
            Some(other) if other.planned() == self.planned() => {
                let first_unknown = (number + 1) * ORDERS_OF_TRY;
                other.calmed(known, first_unknown..first_unknown + UNKNOWN_ORDERS * calm_turns, self.bill())
            }
            _ => Try { found: None, restless: None, landings: 0 },
        }
    }

    /// The same pods with some nodes taken out. Their pods are given to those that stay, or to new ones if these are full.
    fn without_some(&self, number: u64) -> Option<Self> {
        let chance = |what: usize| scattered(what, 0, number);
        let mut other = self.clone();
        let mut units: Vec<usize> = Vec::new();
        for _ in 0..=chance(0) % MOST_TAKEN_OUT {
            let index = other.any_open_batch(chance(units.len() + 1))?;
            units.extend(other.unmake(index).units());
        }
        let is_by_size = chance(units.len() + 1).is_multiple_of(2);
        let mut units: Vec<(usize, usize)> = units.into_iter().enumerate().collect();
        units.sort_by_cached_key(|&(index, lot)| {
            let size = if is_by_size { self.problem.value(lot) } else { 0.0 };
            (Reverse(OrderedFloat(size)), scattered(lot, index, number))
        });
        let mut is_full = false;
        for (_, lot) in units {
            is_full |= !other.squeeze_in(lot);
        }
        if is_full {
            other.make_all_nodes(Tolerance::Full);
        }
        Some(other)
    }

    /// A batch of which the model of binding tells where its pods land, if there is any. Each kind of node is as likely as the
    /// others, however many there are of it.
    fn any_open_batch(&self, chance: u64) -> Option<usize> {
        let weights = self.problem.weights_of_lots();
        let is_open = |&index: &usize| !is_settled(self.problem, &weights, &self.batches[index]);
        let is_alike = |a: &Batch<'_>, b: &Batch<'_>| std::ptr::eq(a.candidate, b.candidate);
        let mut kinds: Vec<Vec<usize>> = Vec::new();
        for index in (0..self.batches.len()).filter(is_open) {
            match kinds.iter_mut().find(|kind| is_alike(&self.batches[kind[0]], &self.batches[index])) {
                Some(kind) => kind.push(index),
                None => kinds.push(vec![index]),
            }
        }
        let kind = pick(&kinds, chance)?;
        pick(kind, chance / kinds.len() as u64).copied()
    }

    /// Makes nodes for what is left in any of these orders until nothing is, as long as all cost less than so much.
    fn calmed(mut self, known: &[u64], mut unknown: Range<u64>, most: f64) -> Try<'p, 'a> {
        let (mut restless, mut landings) = (None, 0);
        loop {
            let ground = Ground::new(&self);
            let mut turns = known.iter().copied().chain(unknown.clone());
            let left = turns.find_map(|turn| {
                landings += 1;
                Some((turn, ground.land(turn))).filter(|(_, left)| !left.is_empty())
            });
            let Some((turn, left)) = left else { return Try { found: Some(self), restless, landings } };
            restless.get_or_insert(turn);
            if self.bill() + self.worth(&left) >= most || !self.make_nodes_for(&left) || self.bill() >= most {
                return Try { found: None, restless, landings };
            }
            unknown = unknown.end..unknown.end + (unknown.end - unknown.start);
        }
    }
}

/// What the tries of a round find. Each has a number of its own.
pub(super) fn tries<R: Send>(round: usize, attempt: impl Fn(u64) -> R + Send + Sync) -> Vec<R> {
    let numbers: Vec<usize> = (round * TRIES_AT_ONCE..(round + 1) * TRIES_AT_ONCE).collect();
    parallel::map(&numbers, |&number| attempt(number as u64))
}

/// One of some items.
pub(super) fn pick<T>(items: &[T], chance: u64) -> Option<&T> {
    let count = items.len() as u64;
    items.get(usize::try_from(chance.checked_rem(count)?).ok()?)
}

#[cfg(test)]
mod tests {
    use crate::schedule::trim::tests::changed;

    const TYPES: [(&str, i64, f64); 2] = [("half", 4, 0.18), ("double", 16, 0.85)];

    #[test]
    fn one_node_takes_the_place_of_three_although_it_costs_more_than_two() {
        let pods = ["7", "7", "2"];
        assert_eq!(changed(&TYPES, &pods, |search| search.trimmed(10)), [8, 8, 8]);
        assert_eq!(changed(&TYPES, &pods, |search| search.trimmed(10).reworked(10)), [16]);
    }

    #[test]
    fn two_nodes_take_the_place_of_one() {
        let pods = ["1", "2", "3"];
        assert_eq!(changed(&TYPES, &pods, |search| search.trimmed(10)), [8]);
        assert_eq!(changed(&TYPES, &pods, |search| search.trimmed(10).reworked(10)), [4, 4]);
    }

    #[test]
    fn no_node_goes_that_is_needed_in_some_order() {
        assert_eq!(changed(&[], &["8", "4", "4"], |search| search.reworked(10)), [8, 8, 8]);
    }
}
