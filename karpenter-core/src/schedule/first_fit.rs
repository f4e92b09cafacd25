//! The plan that Karpenter's own order leads to: pod by pod, the largest first, each on the first node that takes it.
//!
//! It is mostly dearer than what the search finds. Where it is not, it is the better plan, and where it is, a plan need
//! not be dearer than it only because of slack.

use std::cmp::Reverse;

use fixedbitset::FixedBitSet;

use super::{
    amounts::{Amounts, fits, take},
    candidate::Candidate,
    flexibility::SpotChoice,
    occupancy::Occupancy,
    problem::{Problem, Tolerance},
    search::{Search, Seats},
};

/// The most pairs of units and candidates for which this plan is made: some hundredths of a second.
const MAX_PAIRS: usize = 200_000;

/// What a node in the making takes of the limits of its pool until it is made.
#[derive(Clone, Copy, PartialEq, Eq)]
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
    limit_use: LimitUse,
    /// What they leave of the limits of each pool.
    limits_left: Vec<Vec<i64>>,
    /// Which candidates take each shape, the more willingly taken first.
    admits: Vec<Vec<FixedBitSet>>,
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
    /// Whether nothing may be added, because the value of a label is still to be found.
    is_closed: bool,
}

impl Problem<'_> {
    /// Whether there is time to look at each pair of units and candidates.
    pub(super) fn is_small(&self) -> bool {
        self.lots.units().saturating_mul(self.candidates.len()) <= MAX_PAIRS
    }
}

impl<'p, 'a> Search<'p, 'a> {
    /// Plans what can be planned, in Karpenter's order. That a taint asks to be avoided is the last wish that a pod gives up, but
    /// it does so before the next pod comes. What would come to a pool with `minValues` is left.
    pub(super) fn run_first_fit(mut self, limit_use: LimitUse) -> Self {
        let problem = self.problem;
        let mut order: Vec<usize> = (0..problem.lots.list.len()).collect();
        order.sort_by_key(|&lot| (Reverse(&problem.lot(lot).requests), lot));
        self.use_places(Tolerance::Full);
        let admits = self.tolerances().map(|tolerance| admits(problem, tolerance)).collect();
        let mut drafts = Drafts { list: Vec::new(), limit_use, limits_left: self.limits_left.clone(), admits };
        for &lot in &order {
            let mut drafted = 0;
            for willingness in 0..drafts.admits.len() {
                if willingness > 0 {
                    self.use_places_for(lot, self.remaining(lot) - drafted);
                }
                while drafted < self.remaining(lot) && self.add(&mut drafts, lot, willingness) {
                    drafted += 1;
                }
            }
        }
        for draft in drafts.list {
            self.buy(&draft);
        }
        self
    }

    /// Adds a unit to the draft that has the fewest, of those that take it, or to a new one in the heaviest pool.
    fn add(&self, drafts: &mut Drafts<'p, 'a>, lot: usize, willingness: usize) -> bool {
        let problem = self.problem;
        let admits = &drafts.admits[willingness];
        let list = &mut drafts.list;
        let mut by_count: Vec<usize> = (0..list.len()).collect();
        by_count.sort_by_key(|&index| (list[index].unit_count, index));
        if by_count.into_iter().any(|index| list[index].takes(problem, lot, admits)) {
            return true;
        }
        let shape = problem.lot(lot).shape;
        let is_open = |&index: &usize| {
            let candidate = &problem.candidates[index];
            self.is_to_be_had(candidate) && candidate.is_within(&drafts.limits_left[candidate.pool])
        };
        let mut open = admits[shape].ones().filter(is_open).peekable();
        let Some(&first) = open.peek() else { return false };
        let pool = problem.candidates[first].pool;
        if problem.base.pools[pool].has_min_values() {
            return false;
        }
        let mut candidates = FixedBitSet::with_capacity(problem.candidates.len());
        open.filter(|&index| problem.candidates[index].pool == pool).for_each(|index| candidates.insert(index));
        let mut draft = Draft {
            pool,
            candidates,
            used: problem.base.classes.axes.zero(),
            occupancy: Occupancy::default(),
            choice: SpotChoice::of_pool(problem, pool),
            units: Vec::new(),
            unit_count: 0,
            is_closed: false,
        };
        let is_taken = draft.takes(problem, lot, admits);
        if drafts.limit_use == LimitUse::Largest {
            let ceilings = || draft.candidates.ones().map(|index| &problem.candidates[index].way.ceiling);
            for (limit, left) in drafts.limits_left[pool].iter_mut().enumerate() {
                *left -= ceilings().map(|ceiling| ceiling[limit]).max().unwrap_or(0);
            }
        }
        drafts.list.push(draft);
        is_taken
    }

    /// Makes the cheapest node on which all units of a draft fit.
    fn buy(&mut self, draft: &Draft<'p, 'a>) {
        let problem = self.problem;
        let open = draft.candidates.ones().map(|index| &problem.candidates[index]).filter(|c| self.is_to_be_had(c));
        let Some(candidate) = open.min_by(|a, b| a.price.total_cmp(&b.price)) else { return };
        let seats = |&(lot, count): &(usize, i64)| candidate.guest(problem.lot(lot).shape).map(|g| g.seats(lot, count));
        let guests: Option<Vec<Seats>> = draft.units.iter().map(seats).collect();
        if let Some(guests) = guests {
            self.make(candidate, &guests, 1);
        }
    }
}

impl<'p, 'a> Draft<'p, 'a> {
    /// Adds a unit, if it may be there.
    fn takes(&mut self, problem: &'p Problem<'a>, index: usize, admits: &[FixedBitSet]) -> bool {
        let lot = problem.lot(index);
        if self.is_closed || self.occupancy.most(lot) == 0 {
            return false;
        }
        let mut used = self.used.clone();
        take(&mut used, &lot.requests, -1);
        let goes = |candidate: &Candidate| fits(&used, &problem.base.pools[self.pool].variant(candidate.row).room);
        let mut candidates = self.candidates.clone();
        candidates.intersect_with(&admits[lot.shape]);
        let too_small: Vec<usize> = candidates.ones().filter(|&index| !goes(&problem.candidates[index])).collect();
        for index in too_small {
            candidates.set(index, false);
        }
        let is_open_ended = |index: usize| {
            let guest = problem.candidates[index].guest(lot.shape).expect("the candidate admits the shape");
            problem.alternative(self.pool, lot.constraint, guest.alternative()).is_open_ended
        };
        let asked = (lot.constraint, None);
        let is_spot = |&index: &usize| problem.candidates[index].is_spot(problem);
        if !candidates.is_clear() && self.choice.most(&self.used, &lot.requests, asked, 1) == 0 {
            let spot: Vec<usize> = candidates.ones().filter(is_spot).collect();
            for index in spot {
                candidates.set(index, false);
            }
        }
        let closes = candidates.ones().any(is_open_ended);
        if candidates.is_clear() || closes && self.unit_count > 0 {
            return false;
        }
        (self.candidates, self.used, self.is_closed) = (candidates, used, closes);
        self.choice.add(asked);
        self.occupancy.add(lot, 1);
        self.unit_count += 1;
        match self.units.iter_mut().find(|(there, _)| *there == index) {
            Some((_, count)) => *count += 1,
            None => self.units.push((index, 1)),
        }
        true
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
