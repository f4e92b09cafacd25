//! The plan that Karpenter's own order leads to: pod by pod, the largest first, each on the first node that takes it.
//!
//! It is mostly dearer than what the search finds. Where it is not, it is the better plan, and where it is, a plan need
//! not be dearer than it only because of slack.

use std::{cmp::Reverse, collections::BTreeSet};

use fixedbitset::FixedBitSet;

use super::{
    amounts::{Amounts, fits, take},
    candidate::Candidate,
    eligible::too_few_values,
    flexibility::SpotChoice,
    lot::Lot,
    occupancy::Occupancy,
    problem::{Problem, Tolerance},
    search::{Search, Seats, add_units},
};
use crate::Requirements;

/// The most pairs of units and candidates for which this plan is made, and all else that is tried where little is planned: mostly
/// some hundredths of a second each.
const MAX_PAIRS: usize = 200_000;
/// The same of units and places: lots fill a place at once.
const MAX_PAIRS_OF_PLACES: usize = 1_000_000;

/// What a node in the making takes of the limits of its pool until it is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LimitUse {
    /// Nothing: what is made counts.
    AsMade,
    /// As much as the largest machine that it may become: that is how Karpenter counts. It takes limits for used up that are not,
    /// and goes on with lighter pools, which may be cheaper.
    Largest,
}

/// Nodes in the making.
struct Drafts<'p, 'a> {
    list: Vec<Draft<'p, 'a>>,
    /// The drafts, by index, in the order in which Karpenter asks them: those with the fewest units first, and of equals the one
    /// that came first when the unit before was looked at.
    order: Vec<usize>,
    limit_use: LimitUse,
    /// What they leave of the limits of each pool.
    limits_left: Vec<Vec<i64>>,
    /// Which candidates take each shape, the more willingly taken first.
    admits: Vec<Vec<FixedBitSet>>,
}

/// The units of a lot, while they come.
#[derive(Default)]
struct Waiting {
    lot: usize,
    /// How many are in drafts.
    drafted: i64,
    /// Which of the candidates are asked: of the more willingly taken first.
    willingness: usize,
    /// The drafts, by index, that have refused one: they take no other.
    refused: BTreeSet<usize>,
}

/// A node in the making: all candidates on which its units fit.
struct Draft<'p, 'a> {
    pool: usize,
    /// The candidates, by index.
    candidates: FixedBitSet,
    used: Amounts,
    occupancy: Occupancy,
    /// What the claim leaves to choose from if it is launched as spot.
    choice: SpotChoice<'p, 'a>,
    /// How many units of which lots.
    units: Vec<(usize, i64)>,
    unit_count: usize,
    /// What its labels must be like, if some of its units ask for labels that no offering settles.
    settled: Option<Requirements>,
}

impl Problem<'_> {
    /// Whether there is time to look, many times, at each pair of units and candidates and at each of units and places.
    pub(super) fn is_small(&self) -> bool {
        let with_places = self.lots.units().saturating_mul(self.base.places.len());
        self.pairs() <= MAX_PAIRS && with_places <= MAX_PAIRS_OF_PLACES
    }

    /// How many pairs of units and candidates there are.
    pub(super) fn pairs(&self) -> usize {
        self.lots.units().saturating_mul(self.candidates.len())
    }
}

impl<'p, 'a> Search<'p, 'a> {
    /// Plans what can be planned, in Karpenter's order. That a taint asks to be avoided is the last wish that a pod gives up, but
    /// it does so before the next pod comes.
    pub(super) fn run_first_fit(mut self, limit_use: LimitUse) -> Self {
        let problem = self.problem;
        let mut order: Vec<usize> = (0..problem.lots.list.len()).collect();
        order.sort_by_key(|&lot| (Reverse(&problem.lot(lot).requests), lot));
        self.use_places(Tolerance::Full);
        let admits = self.tolerances().map(|tolerance| admits(problem, tolerance)).collect();
        let limits_left = self.limits_left.clone();
        let mut drafts = Drafts { list: Vec::new(), order: Vec::new(), limit_use, limits_left, admits };
        // Of pods that ask for the same, one of each lot comes after the other: a spread has them alternate between domains.
        for alike in order.chunk_by(|&a, &b| problem.lot(a).requests == problem.lot(b).requests) {
            let mut waiting: Vec<Waiting> = alike.iter().map(|&lot| Waiting { lot, ..Waiting::default() }).collect();
            while !waiting.is_empty() {
                waiting.retain_mut(|waiting| self.draft_next(&mut drafts, waiting));
            }
        }
        for draft in drafts.list {
            self.buy(&draft);
        }
        if limit_use == LimitUse::Largest {
            self.limits_as_counted = Some(drafts.limits_left);
        }
        self
    }

    /// Drafts a node for the next unit of a lot, or adds it to one. Says whether it did; afterwards there is no place for others.
    fn draft_next(&mut self, drafts: &mut Drafts<'p, 'a>, waiting: &mut Waiting) -> bool {
        while waiting.drafted < self.remaining(waiting.lot) {
            if self.add(drafts, waiting) {
                waiting.drafted += 1;
                return true;
            }
            waiting.willingness += 1;
            waiting.refused.clear();
            if waiting.willingness == drafts.admits.len() {
                return false;
            }
            self.use_places_for(waiting.lot, self.remaining(waiting.lot) - waiting.drafted);
        }
        false
    }

    /// Adds a unit to the draft that has the fewest, of those that take it, or to a new one in the heaviest pool.
    fn add(&self, drafts: &mut Drafts<'p, 'a>, waiting: &mut Waiting) -> bool {
        let (problem, lot) = (self.problem, waiting.lot);
        let (list, admits) = (&mut drafts.list, &drafts.admits[waiting.willingness]);
        drafts.order.sort_by_key(|&index| list[index].unit_count);
        for &index in &drafts.order {
            if waiting.refused.contains(&index) {
                continue;
            }
            if list[index].takes(problem, lot, admits) {
                return true;
            }
            waiting.refused.insert(index);
        }
        self.start(drafts, lot, waiting.willingness)
    }

    /// Adds a unit to a new draft, in the heaviest pool that it can be in.
    fn start(&self, drafts: &mut Drafts<'p, 'a>, lot: usize, willingness: usize) -> bool {
        let problem = self.problem;
        let admits = &drafts.admits[willingness];
        let is_open = |&index: &usize| {
            let candidate = &problem.candidates[index];
            self.is_to_be_had(candidate) && candidate.is_within(&drafts.limits_left[candidate.pool])
        };
        let open: Vec<usize> = admits[problem.lot(lot).shape].ones().filter(is_open).collect();
        let of_pool = |open: &[usize]| {
            let mut draft = Draft::of(problem, open);
            draft.takes(problem, lot, admits).then_some(draft)
        };
        // The candidates of a pool follow each other. Of pools of equal weight Karpenter asks the last by name first.
        let pool = |index: usize| problem.candidates[index].pool;
        let mut by_pool: Vec<&[usize]> = open.chunk_by(|&a, &b| pool(a) == pool(b)).collect();
        by_pool.sort_by_key(|open| {
            let source = problem.base.pools[pool(open[0])].source;
            Reverse((source.weight(), source.name()))
        });
        let Some(draft) = by_pool.into_iter().find_map(of_pool) else { return false };
        if drafts.limit_use == LimitUse::Largest {
            let ceilings = || draft.candidates.ones().map(|index| &problem.candidates[index].ceiling);
            for (limit, left) in drafts.limits_left[draft.pool].iter_mut().enumerate() {
                *left -= ceilings().map(|ceiling| ceiling[limit]).max().unwrap_or(0);
            }
        }
        drafts.order.push(drafts.list.len());
        drafts.list.push(draft);
        true
    }

    /// Makes the cheapest node on which all units of a draft fit.
    fn buy(&mut self, draft: &Draft<'p, 'a>) {
        let problem = self.problem;
        self.buy_one(draft.candidates.ones().map(|index| &problem.candidates[index]), &draft.units);
    }

    /// Makes one node with these units, the cheapest of candidates that have room for them, and says whether one can be had.
    pub(super) fn buy_one(&mut self, roomy: impl Iterator<Item = &'p Candidate>, units: &[(usize, i64)]) -> bool {
        let problem = self.problem;
        let mut open: Vec<&Candidate> = roomy.filter(|candidate| self.is_to_be_had(candidate)).collect();
        open.sort_by(|a, b| a.price.total_cmp(&b.price));
        let with_seats = |candidate| Some((candidate, seats_with_enough(problem, candidate, units)?));
        let found = open.into_iter().find_map(with_seats);
        found.is_some_and(|(candidate, guests)| self.make(candidate, &guests, 1) == 1)
    }
}

impl<'p, 'a> Draft<'p, 'a> {
    /// A node that may become any of some candidates of one pool.
    fn of(problem: &'p Problem<'a>, open: &[usize]) -> Self {
        let pool = problem.candidates[open[0]].pool;
        let mut candidates = FixedBitSet::with_capacity(problem.candidates.len());
        candidates.extend(open.iter().copied());
        Self {
            pool,
            candidates,
            used: problem.base.classes.axes.zero(),
            occupancy: Occupancy::default(),
            choice: SpotChoice::of_pool(problem, pool),
            units: Vec::new(),
            unit_count: 0,
            settled: None,
        }
    }

    /// Adds a unit, if it may be there.
    fn takes(&mut self, problem: &'p Problem<'a>, index: usize, admits: &[FixedBitSet]) -> bool {
        let lot = problem.lot(index);
        if self.occupancy.most(lot) == 0 {
            return false;
        }
        let mut used = self.used.clone();
        take(&mut used, &lot.requests, -1);
        let Some(mut candidates) = self.candidates_with(problem, (index, &used), admits) else { return false };
        let settled = self.settled_with(problem, lot, &mut candidates);
        if candidates.is_clear() {
            return false;
        }
        (self.candidates, self.used) = (candidates, used);
        self.settled = settled.or(self.settled.take());
        self.choice.add((lot.constraint, None));
        self.occupancy.add(lot, 1);
        self.unit_count += 1;
        add_units(&mut self.units, index, 1);
        true
    }

    /// The candidates that are left with a unit more, by which so much is used; `None` if there are none.
    fn candidates_with(
        &mut self,
        problem: &'p Problem<'a>,
        (index, used): (usize, &Amounts),
        admits: &[FixedBitSet],
    ) -> Option<FixedBitSet> {
        let lot = problem.lot(index);
        let goes = |candidate: &Candidate| fits(used, &problem.base.pools[self.pool].variant(candidate.row).room);
        let mut candidates = self.candidates.clone();
        candidates.intersect_with(&admits[lot.shape]);
        keep(&mut candidates, |index| goes(&problem.candidates[index]));
        if !candidates.is_clear() && self.choice.most(&self.used, &lot.requests, (lot.constraint, None), 1) == 0 {
            keep(&mut candidates, |index| !problem.candidates[index].is_spot(problem));
        }
        if problem.base.pools[self.pool].has_min_values() {
            self.drop_poor(problem, index, &mut candidates);
        }
        // Karpenter lets no pod join that would take from a node all reservations that it may use.
        let has_reserved = |candidates: &FixedBitSet| candidates.ones().any(|it| problem.candidates[it].is_reserved());
        let loses_reserved = self.unit_count > 0
            && !problem.base.reservations.left.is_empty()
            && has_reserved(&self.candidates)
            && !has_reserved(&candidates);
        (!candidates.is_clear() && !loses_reserved).then_some(candidates)
    }

    /// What the labels must be like with a unit more, if that asks for labels that no offering settles. Candidates that cannot be
    /// like it, or could only be by another of its alternatives, are dropped.
    fn settled_with(&self, problem: &Problem<'_>, lot: &Lot, candidates: &mut FixedBitSet) -> Option<Requirements> {
        let pool = &problem.base.pools[self.pool];
        let open_ended = |index: usize| {
            let guest = problem.candidates[index].guest(lot.shape).expect("the candidate admits the shape");
            let alternative = problem.alternative(self.pool, lot.constraint, guest.alternative());
            alternative.is_open_ended.then_some((guest.alternative(), alternative))
        };
        let (chosen, alternative) = candidates.ones().find_map(open_ended)?;
        let settled = pool.settled(self.settled.as_ref(), alternative);
        let is_kept = |index: usize| {
            open_ended(index).is_none_or(|(other, _)| other == chosen)
                && pool.can_settle(problem.candidates[index].row, &settled)
        };
        keep(candidates, is_kept);
        Some(settled)
    }

    /// Drops candidates whose claims would have too few values of a label with a unit more, up to the first that has enough.
    fn drop_poor(&self, problem: &Problem<'a>, index: usize, candidates: &mut FixedBitSet) {
        let mut units = self.units.clone();
        add_units(&mut units, index, 1);
        let has_enough =
            |candidate: usize| seats_with_enough(problem, &problem.candidates[candidate], &units).is_some();
        while let Some(first) = candidates.minimum().filter(|&first| !has_enough(first)) {
            candidates.remove(first);
        }
    }
}

/// The units as a node of a candidate seats them, if it does and its claim has enough values of each label then.
fn seats_with_enough(problem: &Problem<'_>, candidate: &Candidate, units: &[(usize, i64)]) -> Option<Vec<Seats>> {
    let seats = |&(lot, count): &(usize, i64)| Some(candidate.guest(problem.lot(lot).shape)?.seats(lot, count));
    let guests: Vec<Seats> = units.iter().map(seats).collect::<Option<_>>()?;
    too_few_values(problem, candidate, &guests).is_none().then_some(guests)
}

/// Drops what is not kept of a set.
pub(super) fn keep(some: &mut FixedBitSet, is_kept: impl Fn(usize) -> bool) {
    let dropped: Vec<usize> = some.ones().filter(|&index| !is_kept(index)).collect();
    for index in dropped {
        some.set(index, false);
    }
}

/// The candidates that take each shape so willingly.
fn admits(problem: &Problem<'_>, tolerance: Tolerance) -> Vec<FixedBitSet> {
    let mut out = vec![FixedBitSet::with_capacity(problem.candidates.len()); problem.lots.shapes.len()];
    for (index, candidate) in problem.candidates.iter().enumerate() {
        for guest in candidate.guests.iter().filter(|guest| guest.tolerance <= tolerance) {
            out[guest.shape()].insert(index);
        }
    }
    out
}
