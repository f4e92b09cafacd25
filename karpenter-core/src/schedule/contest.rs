//! Node after node, the one with the most value for its price.

use std::{cmp::Reverse, collections::BinaryHeap};

use ordered_float::OrderedFloat;

use super::{
    appraise::Appraiser,
    candidate::Candidate,
    finish::{Ends, Finish},
    parallel,
    problem::Tolerance,
    search::{Fill, Search},
};

/// All fills that may be the best are made anew whenever the best has become worse by this factor. A fill that has to do without
/// some pods is sometimes a better one, because it has room for others.
const FRESHNESS: f64 = 0.95;

/// So many candidates are filled at first before it is known which others may be better, and then twice as many each time.
const FIRST_FILLS: usize = 8;

/// The candidates of a tier, and how each would be filled.
struct Contest<'t, 'p> {
    tier: &'t [&'p Candidate],
    tolerance: Tolerance,
    /// The lots that some of them take.
    lots: Vec<usize>,
    /// `None` as long as nobody has asked.
    fills: Vec<Option<Fill>>,
    /// What the pods of each fill are worth for what their node costs; without a fill what they may be worth at most.
    scores: Vec<f64>,
    /// The best score that each may have, and by which appraisal.
    most: Vec<(f64, usize)>,
    appraiser: Appraiser,
    /// How often it was looked at what is left.
    appraisals: usize,
    /// Those that can be had and take any pods, by score and index, of equals the first; and with other scores than they have
    /// now, which count no more.
    open: BinaryHeap<(OrderedFloat<f64>, Reverse<usize>)>,
}

impl<'p> Search<'p, '_> {
    /// Makes nodes of some candidates until no node helps.
    pub(super) fn make_nodes(&mut self, tier: &[&'p Candidate], tolerance: Tolerance) {
        let mut contest = Contest::new(self, tier, tolerance);
        let ends = Ends::new(self, tier, &contest.lots);
        let (mut spent, mut finish) = (0.0, None::<Finish>);
        let mut fresh_until = contest.best_filled(self).map_or(0.0, |best| contest.scores[best] * FRESHNESS);
        while let Some(best) = contest.best_filled(self).filter(|_| !self.problem.is_stopped())
            && let Some(fill) = &contest.fills[best]
        {
            if contest.scores[best] < fresh_until {
                fresh_until = contest.scores[best] * FRESHNESS;
                contest.refresh(self);
            } else if self.has_pods_for(fill) {
                let end = if self.hosts.is_none() { self.finish(&ends, tolerance, spent) } else { None };
                finish = end.into_iter().chain(finish).min_by(|a, b| a.cost.total_cmp(&b.cost));
                spent += tier[best].price * self.make(tier[best], &fill.guests, i64::MAX) as f64;
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
        let has_left = contest.lots.iter().any(|&lot| self.remaining(lot) > 0);
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

    /// The best score of a candidate whose pods are worth no more than this.
    fn most_score(&self, candidate: &Candidate, value: f64) -> f64 {
        let cost = self.stranded_cost(candidate, true).min(self.stranded_cost(candidate, false));
        value / cost
    }

    /// Whether there are pods for another node with a fill; then a new fill would be no other.
    fn has_pods_for(&self, fill: &Fill) -> bool {
        fill.guests.iter().all(|seats| seats.count <= self.remaining(seats.lot))
    }
}

impl<'t, 'p> Contest<'t, 'p> {
    fn new(search: &Search<'p, '_>, tier: &'t [&'p Candidate], tolerance: Tolerance) -> Self {
        let lots = search.lots_of(tier, tolerance);
        let appraiser = Appraiser::new(search, tier);
        let most = |candidate: &&Candidate| {
            let most = || search.most_score(candidate, appraiser.most(search, candidate, tolerance));
            if search.is_to_be_had(candidate) { most() } else { 0.0 }
        };
        let scores = parallel::map_quickly(tier, most);
        let most = scores.iter().map(|&score| (score, 0)).collect();
        let (fills, open) = (vec![None; tier.len()], BinaryHeap::new());
        let mut contest = Self { tier, tolerance, lots, fills, scores, most, appraiser, appraisals: 0, open };
        contest.reopen();
        contest
    }

    /// Puts all in order.
    fn reopen(&mut self) {
        let open = self.scores.iter().enumerate().filter(|(_, score)| **score > 0.0);
        self.open = open.map(|(index, &score)| (OrderedFloat(score), Reverse(index))).collect();
    }

    /// Whose fill is the best. Those that may be better are filled first.
    fn best_filled(&mut self, search: &Search<'p, '_>) -> Option<usize> {
        let mut most_fills = FIRST_FILLS;
        loop {
            let best = self.best()?;
            if self.fills[best].is_some() {
                return Some(best);
            }
            let mut meant = Vec::new();
            while meant.len() < most_fills
                && let Some(next) = self.best().filter(|&next| self.fills[next].is_none())
            {
                self.open.pop();
                if self.most[next].1 < self.appraisals {
                    self.appraise(search, next);
                } else {
                    meant.push(next);
                }
            }
            self.fill_all(search, &meant);
            most_fills *= 2;
        }
    }

    /// Says how good a candidate may be.
    fn appraise(&mut self, search: &Search<'p, '_>, index: usize) {
        let most = self.appraiser.most(search, self.tier[index], self.tolerance);
        let most = search.most_score(self.tier[index], most).min(self.most[index].0);
        self.most[index] = (most, self.appraisals);
        self.enter(index, most);
    }

    fn fill_all(&mut self, search: &Search<'p, '_>, some: &[usize]) {
        let fills = parallel::map_quickly(some, |&index| search.fill(self.tier[index], self.tolerance));
        for (&index, fill) in some.iter().zip(fills) {
            self.set(search, index, fill);
        }
    }

    /// The first of those with the best score.
    fn best(&mut self) -> Option<usize> {
        while let Some(&(score, Reverse(index))) = self.open.peek() {
            if OrderedFloat(self.scores[index]) == score {
                return Some(index);
            }
            self.open.pop();
        }
        None
    }

    /// Makes those fills anew for which there are not enough pods any more, if they may be the best.
    fn refresh(&mut self, search: &Search<'p, '_>) {
        for index in 0..self.tier.len() {
            let is_stale = self.fills[index].as_ref().is_some_and(|fill| !search.has_pods_for(fill));
            if is_stale && self.scores[index] > 0.0 {
                (self.fills[index], self.scores[index]) = (None, self.most[index].0);
            }
        }
        self.appraiser.update(search);
        self.appraisals += 1;
        self.reopen();
    }

    fn set(&mut self, search: &Search<'p, '_>, index: usize, fill: Fill) {
        let score = score(search, self.tier[index], &fill);
        self.fills[index] = Some(fill);
        self.enter(index, score);
    }

    fn enter(&mut self, index: usize, score: f64) {
        self.scores[index] = score;
        if score > 0.0 {
            self.open.push((OrderedFloat(score), Reverse(index)));
        }
    }

    /// Leaves out what cannot be had after a node was made of a candidate.
    fn close(&mut self, search: &Search<'p, '_>, made: usize) {
        let made = self.tier[made];
        if made.is_reserved() || search.is_near_limits(made.pool) {
            for (candidate, score) in self.tier.iter().zip(&mut self.scores) {
                if !search.is_to_be_had(candidate) {
                    *score = 0.0;
                }
            }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Catalogs, InstanceType, Planner, Price, Quantity, Snapshot,
        api::{NodePool, Pod},
        schedule::search::Stranding,
    };

    /// The larger the machine the cheaper its room, so that all of them are candidates.
    fn machine(cpus: u32) -> InstanceType {
        let capacity = [("cpu", Quantity::from_units(i64::from(cpus))), ("pods", Quantity::from_units(110))];
        let price = Price::per_hour(0.1 * f64::from(cpus).powf(0.9)).expect("not below zero");
        InstanceType::named(format!("machine-{cpus}"), capacity).offering("on-demand", "a", price)
    }

    #[test]
    fn whoever_is_not_looked_at_is_no_better() {
        let (small, large) = (Pod::named("small").cpu("1").replicas(3), Pod::named("large").cpu("3").replicas(2));
        let builder = Snapshot::builder().pool(NodePool::named("general")).pods(small).pods(large);
        let snapshot = builder.build().expect("valid");
        let catalogs = Catalogs::shared((1..=80).map(machine).collect(), snapshot.pools()).expect("valid");
        let planner = Planner::default();
        let problem = planner.prepare(&snapshot, &catalogs);
        let search = Search::new(&problem, Stranding::USUAL);
        let tier: Vec<&Candidate> = problem.candidates.iter().collect();

        let mut contest = Contest::new(&search, &tier, Tolerance::Full);

        let best = contest.best_filled(&search).expect("some take pods");
        assert!(contest.fills[best].is_some());
        assert!(contest.fills.iter().any(Option::is_none), "few pods are worth little for what a large machine costs");
        for (candidate, most) in tier.iter().zip(&contest.scores) {
            let found = score(&search, candidate, &search.fill(candidate, Tolerance::Full));
            assert!(found <= *most && found <= contest.scores[best]);
        }
    }
}
