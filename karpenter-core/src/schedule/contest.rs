//! Node after node, the one with the most value for its price.

use std::{cmp::Reverse, collections::BTreeSet};

use ordered_float::OrderedFloat;

use super::{
    candidate::Candidate,
    finish::{Ends, Finish},
    parallel,
    problem::Tolerance,
    search::{Fill, Search},
};

/// All fills are made anew whenever the best has become worse by this factor. A fill that has to do without some pods
/// is sometimes a better one, because it has room for others.
const FRESHNESS: f64 = 0.95;

/// The candidates of a tier, and how each would be filled.
struct Contest<'t, 'p> {
    tier: &'t [&'p Candidate],
    tolerance: Tolerance,
    fills: Vec<Fill>,
    /// What the pods of each fill are worth for what their node costs.
    scores: Vec<f64>,
    /// Those that can be had and take any pods, by score and index; of equals the first comes last.
    open: BTreeSet<(OrderedFloat<f64>, Reverse<usize>)>,
}

impl<'p> Search<'p, '_> {
    /// Makes nodes of some candidates until no node helps.
    pub(super) fn make_nodes(&mut self, tier: &[&'p Candidate], tolerance: Tolerance) {
        let mut contest = Contest::new(self, tier, tolerance);
        let lots = self.lots_of(tier, tolerance);
        let ends = Ends::new(self, tier, &lots);
        let (mut fresh_until, mut spent, mut finish) = (f64::INFINITY, 0.0, None::<Finish>);
        while let Some(best) = contest.best().filter(|_| !self.problem.is_stopped()) {
            if contest.scores[best] < fresh_until {
                fresh_until = contest.scores[best] * FRESHNESS;
                contest.refresh(self);
            } else if self.has_pods_for(&contest.fills[best]) {
                let end = if self.hosts.is_none() { self.finish(&ends, tolerance, spent) } else { None };
                finish = end.into_iter().chain(finish).min_by(|a, b| a.cost.total_cmp(&b.cost));
                spent += tier[best].price * self.make(tier[best], &contest.fills[best].guests, i64::MAX) as f64;
                contest.close(self, best);
            } else {
                // A fill stays what it is for as long as there are enough pods for it. Pods only get fewer, so that an old
                // score is seldom lower than a new one would be, and mostly only the best needs to be brought up to date.
                contest.set(self, best, self.fill(tier[best], tolerance));
            }
        }
        if self.problem.is_stopped() {
            return;
        }
        let has_left = lots.iter().any(|&lot| self.remaining(lot) > 0);
        if let Some(finish) = finish.filter(|finish| has_left || finish.cost < spent) {
            self.go_back(finish.state);
            self.make(tier[finish.candidate], &finish.fill.guests, i64::MAX);
        }
    }

    /// The lots that some of the candidates take.
    fn lots_of(&self, tier: &[&'p Candidate], tolerance: Tolerance) -> Vec<usize> {
        let of_shapes = &self.problem.lots.of_shapes;
        let mut is_taken = vec![false; of_shapes.len()];
        let guests = tier.iter().flat_map(|candidate| &candidate.guests).filter(|guest| guest.tolerance <= tolerance);
        guests.for_each(|guest| is_taken[guest.shape()] = true);
        of_shapes.iter().zip(is_taken).filter(|(_, is_taken)| *is_taken).flat_map(|(lots, _)| lots).copied().collect()
    }

    /// Whether there are pods for another node with a fill; then a new fill would be no other.
    fn has_pods_for(&self, fill: &Fill) -> bool {
        fill.guests.iter().all(|seats| seats.count <= self.remaining(seats.lot))
    }
}

impl<'t, 'p> Contest<'t, 'p> {
    fn new(search: &Search<'p, '_>, tier: &'t [&'p Candidate], tolerance: Tolerance) -> Self {
        let fills = parallel::map(tier, |candidate| search.fill(candidate, tolerance));
        let scores: Vec<f64> =
            tier.iter().zip(&fills).map(|(candidate, fill)| score(search, candidate, fill)).collect();
        let open = (0..tier.len()).filter(|&index| scores[index] > 0.0 && search.is_to_be_had(tier[index]));
        let open = open.map(|index| (OrderedFloat(scores[index]), Reverse(index))).collect();
        Self { tier, tolerance, fills, scores, open }
    }

    /// The first of those with the best score.
    fn best(&self) -> Option<usize> {
        self.open.last().map(|(_, Reverse(index))| *index)
    }

    /// Makes those fills anew for which there are not enough pods any more.
    fn refresh(&mut self, search: &Search<'p, '_>) {
        let is_stale = |index: &usize| !search.has_pods_for(&self.fills[*index]);
        let stale: Vec<usize> = self.open.iter().map(|(_, Reverse(index))| *index).filter(is_stale).collect();
        let fills = parallel::map(&stale, |&index| search.fill(self.tier[index], self.tolerance));
        for (index, fill) in stale.into_iter().zip(fills) {
            self.set(search, index, fill);
        }
    }

    fn set(&mut self, search: &Search<'p, '_>, index: usize, fill: Fill) {
        self.open.remove(&(OrderedFloat(self.scores[index]), Reverse(index)));
        self.scores[index] = score(search, self.tier[index], &fill);
        self.fills[index] = fill;
        if self.scores[index] > 0.0 {
            self.open.insert((OrderedFloat(self.scores[index]), Reverse(index)));
        }
    }

    /// Leaves out what cannot be had after a node was made of a candidate.
    fn close(&mut self, search: &Search<'p, '_>, made: usize) {
        let made = self.tier[made];
        if made.is_reserved() || search.is_near_limits(made.pool) {
            self.open.retain(|(_, Reverse(index))| search.is_to_be_had(self.tier[*index]));
        }
    }
}

fn score(search: &Search<'_, '_>, candidate: &Candidate, fill: &Fill) -> f64 {
    if !search.has_host(fill) {
        return 0.0;
    }
    let is_limited = fill.guests.iter().any(|seats| search.problem.lot(seats.lot).manners.is_limited());
    fill.value / search.stranded_cost(candidate, is_limited)
}
