//! One node for all the pods that are left.
//!
//! Taking the best node time after time ends with a few pods that no good node is left for. At some moment before that,
//! a single larger node may have been the better end.

use super::{
    amounts::{Amounts, fits, raise, take},
    candidate::Candidate,
    occupancy::Occupancy,
    problem::Tolerance,
    search::{Fill, Search},
};

/// A way to end a search, and the state of the search from which it goes on.
pub(super) struct Finish {
    /// What all nodes cost together, this one included.
    pub(super) cost: f64,
    pub(super) candidate: usize,
    pub(super) fill: Fill,
    pub(super) state: State,
}

/// What a search has to go back to.
#[derive(Clone)]
pub(super) struct State {
    pub(super) left: Vec<i64>,
    pub(super) limits_left: Vec<Vec<i64>>,
    pub(super) reservations_left: Vec<i64>,
    pub(super) batch_count: usize,
}

/// Nodes that may be the last.
pub(super) struct Ends<'t, 'p> {
    tier: &'t [&'p Candidate],
    /// The candidates by price, by index.
    by_price: Vec<usize>,
    /// The lots that some of them take, and how many units of each may share a node, room apart.
    lots: Vec<(usize, i64)>,
    /// The most of each resource that any of them leaves to pods.
    most_room: Amounts,
}

impl<'t, 'p> Ends<'t, 'p> {
    pub(super) fn new(search: &Search<'p, '_>, tier: &'t [&'p Candidate], lots: &[usize]) -> Self {
        let problem = search.problem;
        let mut by_price: Vec<usize> = (0..tier.len()).collect();
        by_price.sort_by(|&a, &b| tier[a].price.total_cmp(&tier[b].price));
        let empty = Occupancy::default();
        let mut most_room = problem.base.classes.axes.zero();
        for candidate in tier {
            let room = problem.room_of(candidate);
            raise(&mut most_room, room);
        }
        let lots = lots.iter().map(|&lot| (lot, empty.most(problem.lot(lot)))).collect();
        Self { tier, by_price, lots, most_room }
    }
}

impl<'p> Search<'p, '_> {
    /// The cheapest candidate that takes all units that are left of some lots, if they fit on one node.
    pub(super) fn finish(&self, ends: &Ends<'_, 'p>, tolerance: Tolerance, spent: f64) -> Option<Finish> {
        let Ends { tier, by_price, lots, most_room } = ends;
        if lots.iter().any(|&(lot, most)| self.remaining(lot) > most) {
            return None;
        }
        let mut total = self.problem.base.classes.axes.zero();
        for &(lot, _) in lots {
            take(&mut total, &self.problem.lot(lot).requests, -self.remaining(lot));
            if !fits(&total, most_room) {
                return None;
            }
        }
        let left: i64 = lots.iter().map(|&(lot, _)| self.remaining(lot)).sum();
        let holds_all = |index: usize| {
            let candidate = tier[index];
            let room = self.problem.room_of(candidate);
            let is_open = fits(&total, room) && self.is_to_be_had(candidate);
            let fill = if is_open { self.fill(candidate, tolerance) } else { return None };
            (fill.count() == left).then_some((index, fill))
        };
        let (candidate, fill) = by_price.iter().copied().find_map(holds_all).filter(|_| left > 0)?;
        Some(Finish { cost: spent + tier[candidate].price, candidate, fill, state: self.state() })
    }
}
