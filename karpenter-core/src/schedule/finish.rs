//! One node for all the pods that are left.
//!
//! Taking the best node time after time ends with a few pods that no good node is left for. At some moment before that,
//! a single larger node may have been the better end.

use super::{
    amounts::{Amounts, fits, take},
    candidate::Candidate,
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

impl<'p> Search<'p, '_> {
    /// The cheapest candidate that takes all units that are left of these lots, if they fit on one node.
    pub(super) fn finish(
        &self,
        tier: &[&'p Candidate],
        lots: &[usize],
        tolerance: Tolerance,
        spent: f64,
        most_room: &Amounts,
    ) -> Option<Finish> {
        let mut total = self.problem.base.classes.axes.zero();
        for &lot in lots {
            take(&mut total, &self.problem.lot(lot).requests, -self.remaining(lot));
            if !fits(&total, most_room) {
                return None;
            }
        }
        let left: i64 = lots.iter().map(|&lot| self.remaining(lot)).sum();
        let holds_all = |index: usize| {
            let candidate = tier[index];
            let room = &self.problem.base.pools[candidate.pool].variant(candidate.row).room;
            let is_open = fits(&total, room) && self.is_to_be_had(candidate);
            let fill = if is_open { self.fill(candidate, tolerance) } else { return None };
            (fill.count() == left).then_some((index, fill))
        };
        let found = (0..tier.len()).filter_map(holds_all).min_by(|a, b| tier[a.0].price.total_cmp(&tier[b.0].price));
        let (candidate, fill) = found.filter(|_| left > 0)?;
        Some(Finish { cost: spent + tier[candidate].price, candidate, fill, state: self.state() })
    }
}
