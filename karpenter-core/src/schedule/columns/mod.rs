//! The cheapest mixture of nodes, as a linear program over ways to fill them.
//!
//! There are too many ways to list, so they are made as they are needed: the program tells what each unit is worth, and
//! a node that holds more than it costs joins it (Gilmore and Gomory, "A Linear Programming Approach to the
//! Cutting-Stock Problem", Operations Research 9, 1961). Of the mixture the whole nodes are made; what is left over is for
//! further mixtures, or for the search that makes the best node time after time.

mod fill;
mod generate;
mod prices;
mod program;
mod simplex;

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use ordered_float::OrderedFloat;

use self::{
    fill::Pattern,
    program::{Kind, Member, Program},
};
use super::{
    amounts::{Amounts, take},
    candidate::{Candidate, Guest},
    flexibility::SpotChoice,
    occupancy::Occupancy,
    problem::Problem,
    search::{Batch, Search, Seats, Stage},
};

/// The most rows: the work grows with the square of their number.
const MAX_ROWS: usize = 400;
/// The most lots for each list of requests. A mixture knows nothing of rules between lots, and where many lots ask for the
/// same, it is rules that tell them apart.
const MAX_LOTS: usize = 8;
/// What may be done for the mixtures of a stage, in multiplications or so: some hundredths of a second.
pub(super) const MAX_WORK: usize = 40_000_000;
/// Arithmetic of floats may leave a little too little of a node.
const EPSILON: f64 = 1e-6;

/// What is done for mixtures.
pub(super) struct Effort {
    /// How much may still be done, in multiplications or so.
    pub(super) work: usize,
    /// Whether, where no node of a mixture is whole, one is made of those that there is most of.
    pub(super) makes_parts: bool,
}

impl Problem<'_> {
    /// Whether mixtures are worth their time: of pods of which each node takes only a few anyway there is little to mix.
    pub(super) fn has_mixtures(&self) -> bool {
        let shapes = &self.lots.shapes;
        let requests: BTreeSet<&Amounts> = shapes.iter().map(|shape| &shape.requests).collect();
        let has_choice = shapes.iter().any(|shape| shape.spread_class == 0);
        has_choice && self.lots.list.len() <= MAX_LOTS * requests.len()
    }
}

impl<'p> Search<'p, '_> {
    /// Makes the whole nodes of the best mixture for a stage, and says whether there are any. `start` are nodes that the mixture
    /// begins with, and `effort` is what may be done.
    pub(super) fn make_mixture(&mut self, stage: &Stage<'p>, start: &[Batch<'p>], effort: &mut Effort) -> bool {
        let program = Program::new(self, &stage.tier, stage.tolerance);
        let rows = program.demands.len();
        if rows > MAX_ROWS || program.kinds.is_empty() {
            return false;
        }
        let start = program.patterns(self, start);
        let mut mixture = program.cheapest_mixture(start, &mut effort.work, || self.problem.is_stopped());
        mixture.sort_by_key(|(_, amount)| OrderedFloat(-amount));
        let before = self.batches.len();
        for (pattern, amount) in &mixture {
            self.make_like(&program.kinds[pattern.kind], &pattern.counts, whole(amount + EPSILON));
        }
        let mut parts = mixture.iter().filter(|_| effort.makes_parts);
        while self.batches.len() == before {
            let Some((pattern, _)) = parts.next() else { return false };
            self.make_like(&program.kinds[pattern.kind], &pattern.counts, 1);
        }
        true
    }

    /// Makes up to so many nodes of a kind with so many units of each row, as long as there are enough of each. Each member
    /// has its part, and what one cannot make the others may.
    fn make_like(&mut self, kind: &Kind<'p>, counts: &[(usize, i64)], most: i64) {
        let mut left = most;
        let numbered: Vec<(i64, &Member<'p>)> = (1..).zip(kind.members.iter().rev()).collect();
        for (members_left, member) in numbered.into_iter().rev() {
            left -= self.make_of(member, counts, left.div_euclid(members_left));
        }
        for member in &kind.members {
            left -= self.make_of(member, counts, left);
        }
    }

    /// Makes up to so many nodes of a candidate, and says how many.
    fn make_of(&mut self, member: &Member<'p>, counts: &[(usize, i64)], most: i64) -> i64 {
        let mut left = most;
        while left > 0 && self.is_to_be_had(member.candidate) {
            let Some(seats) = self.seats(member, counts) else { break };
            let made = self.make(member.candidate, &seats, left);
            if made == 0 {
                break;
            }
            left -= made;
        }
        most - left
    }

    /// Units for a node with so many of each row, if there are enough.
    fn seats(&self, member: &Member<'p>, counts: &[(usize, i64)]) -> Option<Vec<Seats>> {
        let mut node = Node::new(self, member.candidate);
        counts.iter().all(|&(row, count)| node.adds(member.guests.get(&row), count)).then_some(node.seats)
    }
}

/// A node to be filled as a pattern says.
struct Node<'s, 'p, 'a> {
    search: &'s Search<'p, 'a>,
    occupancy: Occupancy,
    used: Amounts,
    choice: SpotChoice<'p, 'a>,
    seats: Vec<Seats>,
}

impl<'s, 'p, 'a> Node<'s, 'p, 'a> {
    fn new(search: &'s Search<'p, 'a>, candidate: &Candidate) -> Self {
        let problem = search.problem;
        let variant = problem.base.pools[candidate.pool].variant(candidate.row);
        Self {
            search,
            occupancy: Occupancy::with_ports(variant.host_ports.clone()),
            used: problem.base.classes.axes.zero(),
            choice: SpotChoice::of_candidate(problem, candidate),
            seats: Vec::new(),
        }
    }

    /// Adds so many units of some guests, those first of which most are left. Says whether there are enough.
    fn adds(&mut self, guests: Option<&Vec<&Guest>>, count: i64) -> bool {
        let (search, problem) = (self.search, self.search.problem);
        let mut lots: Vec<(Reverse<i64>, usize, &Guest)> = Vec::new();
        for guest in guests.into_iter().flatten() {
            lots.extend(search.open[guest.shape()].iter().map(|&lot| (Reverse(search.remaining(lot)), lot, *guest)));
        }
        lots.sort_unstable_by_key(|&(remaining, lot, _)| (remaining, lot));
        let mut wanted = count;
        for (Reverse(remaining), lot, guest) in lots {
            let shape = &problem.lots.shapes[guest.shape()];
            let asked = (shape.constraint, Some(guest.alternative()));
            let mut here = wanted.min(remaining).min(self.occupancy.most(problem.lot(lot)));
            if here > 0 {
                here = self.choice.most(&self.used, &shape.requests, asked, here);
            }
            if here > 0 {
                take(&mut self.used, &shape.requests, -here);
                self.choice.add(asked);
                self.occupancy.add(problem.lot(lot), here);
                self.seats.push(guest.seats(lot, here));
                wanted -= here;
            }
            if wanted == 0 {
                break;
            }
        }
        wanted == 0
    }
}

/// The whole part of an amount.
#[expect(clippy::cast_possible_truncation, reason = "no problem has so many pods")]
const fn whole(amount: f64) -> i64 {
    amount as i64
}

impl<'p> Program<'p> {
    /// The patterns of nodes that were made.
    fn patterns(&self, search: &Search<'p, '_>, batches: &[Batch<'p>]) -> Vec<Pattern> {
        let mut row_of_shape: BTreeMap<usize, usize> = BTreeMap::new();
        let mut kind_of: BTreeMap<*const Candidate, usize> = BTreeMap::new();
        for (index, kind) in self.kinds.iter().enumerate() {
            for member in &kind.members {
                kind_of.insert(std::ptr::from_ref(member.candidate), index);
                for (&row, guests) in &member.guests {
                    row_of_shape.extend(guests.iter().map(|guest| (guest.shape(), row)));
                }
            }
        }
        let pattern = |batch: &Batch<'p>| {
            let kind = *kind_of.get(&std::ptr::from_ref(batch.candidate))?;
            let mut counts: BTreeMap<usize, i64> = BTreeMap::new();
            for seats in &batch.guests {
                let row = *row_of_shape.get(&search.problem.lot(seats.lot).shape)?;
                *counts.entry(row).or_default() += seats.count;
            }
            Some(Pattern { kind, counts: counts.into_iter().collect() })
        };
        batches.iter().filter_map(pattern).collect()
    }
}
