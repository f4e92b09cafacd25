//! From a problem to a plan: searches, until nothing more is to be learned, and the best of what they find.

use std::{cmp::Reverse, collections::BTreeSet};

use super::{
    Plan, StopFlag,
    candidate::Candidate,
    first_fit::LimitUse,
    lot::Lot,
    parallel,
    problem::{Aim, Course, Order, Problem, SpotTypes, Trials},
    search::{Batch, Search, Stranding},
    topology::Lessons,
    weigh::Unmet,
};
use crate::{Reason, api::ObjectKey, reason::Obstacle};

/// The most searches in which the pods of a class may be divided anew. After these, classes whose pods do not all find
/// nodes are given up one search at a time.
const MAX_DIVISIONS: usize = 12;
/// The same where little is planned.
const MAX_DIVISIONS_OF_FEW: usize = 60;

/// A plan is sought in a second order if a search looks at no more than so many pairs of lots and candidates, or if
/// pods are left.
const SMALL: usize = 100_000;

/// Nodes for pods that may not share one with their like come first in a search if there are no more than so many units
/// for each of them.
const UNITS_FOR_EACH_LONER: usize = 8;

/// Sums of the same prices in another order are no cheaper.
const LESS: f64 = 1.0 - 1e-9;

/// How often those come first that limits leave without a node.
const MOST_TURNS: usize = 2;

/// A plan, and what tells whether it is better than another.
pub(super) struct Found {
    pub(super) plan: Plan,
    /// The priorities of the pods that it leaves, the highest first. The lower the better: no number of pods outweighs one of a
    /// higher priority.
    pub(super) left: Vec<i32>,
    /// How many wishes of the pods that it places are given up; none if they are weighed.
    given_up: usize,
    /// How many units go where a taint asks to be avoided by them.
    reluctant: i64,
    /// What it costs that wishes of these pods are not met.
    pub(super) unmet: Unmet,
    /// What interruptions of its nodes are likely to cost, in dollars an hour.
    interruptions: f64,
}

impl Found {
    /// The lower the better: pods are worth more than wishes, and wishes more than money unless they have a price.
    fn rank(&self) -> impl Ord {
        (&self.left, self.given_up, self.total(), self.plan.claims.len())
    }

    pub(super) fn of(search: Search<'_, '_>) -> Self {
        let (problem, planned) = (search.problem, search.planned());
        let (given_up, unmet) = (problem.given_up(&planned), problem.unmet(&planned));
        let reluctant = search.reluctant_units();
        let interruption = |batch: &Batch<'_>| problem.base.interruption(batch.candidate.pool, batch.candidate.row);
        let interruptions = search.batches.iter().map(|batch| interruption(batch) * batch.count as f64).sum();
        let plan = search.into_plan();
        let priority = |pod: &ObjectKey| problem.base.snapshot.pod(pod)?.spec.priority;
        let mut left: Vec<i32> = plan.unplaced.keys().map(|pod| priority(pod).unwrap_or_default()).collect();
        left.sort_unstable_by_key(|&priority| Reverse(priority));
        Self { plan, left, given_up, reluctant, unmet, interruptions }
    }

    /// The bill and what interruptions are likely to cost, in dollars an hour.
    pub(super) fn expected_cost(&self) -> f64 {
        self.plan.hourly_cost().dollars_per_hour() + self.interruptions
    }

    /// The same, which says of pools, and of pods without a place, what another plan says where that leaves them too.
    pub(super) fn told_as(mut self, other: &Plan) -> Self {
        self.plan.warnings.clone_from(&other.warnings);
        for (pod, reason) in &mut self.plan.unplaced {
            if let Some(known) = other.unplaced.get(pod) {
                reason.clone_from(known);
            }
        }
        self
    }

    /// What is valid of a search that ends although other divisions of the pods were to be tried.
    fn cut_short(mut search: Search<'_, '_>) -> Self {
        search.drop_tentative();
        Self::of(search)
    }

    /// The better of two; the first of equals.
    fn better(self, other: Self) -> Self {
        if other.rank() < self.rank() { other } else { self }
    }
}

impl Search<'_, '_> {
    /// What is to be learned of what is planned so far about the division of pods; nothing if no other would help.
    pub(super) fn lessons(&self, so_far: &Lessons) -> Option<Lessons> {
        let limits_left = self.limits_as_counted.as_ref().unwrap_or(&self.limits_left);
        let is_shut_out = |candidate: &Candidate| !candidate.is_within(&limits_left[candidate.pool]);
        let is_limited = |lot: &Lot| {
            let mut candidates = self.problem.candidates.iter().filter(|candidate| is_shut_out(candidate));
            self.problem.has_limits() && candidates.any(|candidate| candidate.guest(lot.shape).is_some())
        };
        self.problem.lots.lessons(&self.planned(), so_far, is_limited)
    }
}

impl<'a> Problem<'a> {
    /// Searches for the cheapest set of nodes; where room or limits leave pods without one, for the set that leaves the
    /// fewest, in which no class of pods fares worse than in the plain order of size.
    pub fn solve(&self) -> Plan {
        let found = parallel::among_threads(|| match &self.base.weighing {
            Some(weighing) => self.weigh(weighing),
            None => self.find_in_any_domains(),
        });
        Plan { is_complete: !self.is_stopped(), ..found.plan }
    }

    /// Does so with the wishes that the pods are to have.
    pub(super) fn find(&self) -> Found {
        let found = self.find_dividing();
        match self.queued(&found) {
            Some(queued) => queued.told_as(&found.plan),
            None => found,
        }
    }

    /// Whether a plan of the queue leaves fewer pods than another or costs less. Whoever has no place in it has none in Karpenter's plan
    /// either. Pods that were left by an earlier plan are not to wait once more, whatever it costs.
    pub(super) fn prefers_queued(&self, queued: &Found, found: &Found) -> bool {
        let is_cheaper = || queued.left == found.left && queued.total().0 < found.total().0 * LESS;
        queued.left < found.left || !self.base.has_leftovers && is_cheaper()
    }

    /// Searches for nodes of pods that are divided among domains before.
    fn find_dividing(&self) -> Found {
        let found = self.find_keeping_choice();
        if self.course.trials == Trials::First || self.is_stopped() || self.base.options.min_spot_types.is_some() {
            return found;
        }
        let keeps_choice = self.spot_rows.iter().any(|rows| !rows.is_empty()) && self.is_small();
        if !keeps_choice || !self.with_any_spot_type(Order::Plain(LimitUse::AsMade)).is_cheaper(&found) {
            return found;
        }
        found.better(self.with_any_spot_type(self.course.order).find_keeping_choice())
    }

    /// The same problem in which claims may name few types for the spot market.
    fn with_any_spot_type(&self, order: Order) -> Self {
        let course = Course { spot_types: SpotTypes::Any, order, ..self.course.clone() };
        Problem::new(self.base.clone(), &Lessons::default(), course)
    }

    /// Whether Karpenter's order places as many pods as a plan for less.
    fn is_cheaper(&self, found: &Found) -> bool {
        let search = Search::new(self, Stranding::USUAL).run_first_fit(LimitUse::AsMade);
        let price = |candidate: &Candidate| self.base.expected_price(candidate.pool, candidate.row);
        let cost: f64 = search.batches.iter().map(|batch| price(batch.candidate) * batch.count as f64).sum();
        let placed_by_plan = self.base.snapshot.pending().len() - found.plan.unplaced.len();
        self.lots.pod_count(&search.planned()) >= placed_by_plan && cost < found.expected_cost()
    }

    /// The same, with as many types for the spot market as are to be kept, whatever it costs.
    fn find_keeping_choice(&self) -> Found {
        let best = self.search_and_spill();
        if self.course.trials == Trials::First || self.is_stopped() {
            return best;
        }
        let is_limited = self.is_limited(&best.plan);
        let has_two_orders = self.has_two_orders(&best.plan);
        let by_size = has_two_orders.then(|| self.in_order(Order::Size));
        if let Some(fair) = by_size.as_ref().filter(|_| !is_limited).and_then(|by_size| self.fair(&best, by_size)) {
            return fair;
        }
        let mut others = Vec::new();
        if is_limited {
            others.push(self.with(Course { aim: Aim::Pods, ..self.course.clone() }));
            others.extend(self.with_left_first(&best.plan));
            others.extend(self.with_highest_first(&best.plan));
        }
        others.extend(by_size);
        if has_two_orders && self.is_small() && !best.plan.claims.is_empty() {
            others.push(self.in_order(Order::Tightest));
        }
        let buys_little = !self.course.is_step() && self.is_small() && !best.plan.claims.is_empty();
        if has_two_orders && (self.course.weighs_room || buys_little) {
            others.push(self.in_order(Order::Worth));
        }
        if is_limited && self.is_small() {
            others.push(self.in_order(Order::Plain(LimitUse::AsMade)));
        }
        if self.may_spread_otherwise() {
            others.push(self.with(Course { spreads_evenly: true, ..self.course.clone() }));
        }
        let best = others.into_iter().fold(best, Found::better);
        match self.without_spoilers(&best.plan) {
            Some(without) => best.better(without.find_keeping_choice()),
            None => best,
        }
    }

    /// Whether some spread lets domains differ by more than one pod, so that pods may be spread more evenly, and little is planned.
    fn may_spread_otherwise(&self) -> bool {
        let is_loose = |class: usize| {
            let rules = self.base.classes.neighbourhood(class).rules_at(0);
            rules.spreads.iter().any(|spread| spread.max_skew > 1 && !spread.term.is_by_host())
        };
        let is_open =
            !self.course.spreads_as_evenly_as_can_be() && self.course.trials == Trials::All && self.is_small();
        is_open && (0..self.base.classes.list.len()).any(is_loose)
    }

    /// Whether limits may be why a plan leaves pods: where a spread finds a domain without nodes, they may have left none for it, and
    /// none any more for the others that it keeps level.
    fn is_limited(&self, plan: &Plan) -> bool {
        let may_be = |reason: &Reason| match reason {
            Reason::Topology(_) => self.has_limits(),
            Reason::NoPlace { pools, .. } => {
                pools.iter().flat_map(|pool| &pool.shut_out).any(|types| match types.obstacle {
                    Obstacle::Limit { .. } => true,
                    Obstacle::Combination => self.has_limits(),
                    _ => false,
                })
            }
            _ => false,
        };
        plan.unplaced.values().any(may_be)
    }

    fn in_order(&self, order: Order) -> Found {
        self.with(Course { order, ..self.course.clone() })
    }

    /// Whether it makes a difference, and is worth the time, to fill the room that there is in another order. It makes none
    /// where the plan finds no room.
    fn has_two_orders(&self, plan: &Plan) -> bool {
        let is_small = self.lots.list.len() * self.candidates.len() <= SMALL;
        !plan.existing.is_empty() && (is_small || !plan.unplaced.is_empty())
    }

    /// The same problem, in which classes are divided among domains by lessons.
    pub(super) fn divided(&self, lessons: &Lessons) -> Self {
        Self::new(self.base.clone(), lessons, self.course.clone())
    }

    /// The search that comes before all others.
    pub(super) fn first_search(&self) -> Search<'_, 'a> {
        match self.course.order {
            Order::Plain(limit_use) => Search::new(self, Stranding::USUAL).run_first_fit(limit_use),
            _ => self.usual(self.is_for_loners()).run(),
        }
    }

    /// A search in which loners come first, if so asked and if it is the bill that counts, and where pools have limits those who are
    /// to come first in any case.
    pub(super) fn usual(&self, is_for_loners: bool) -> Search<'_, 'a> {
        let search = Search::new(self, Stranding::USUAL);
        let search = if is_for_loners && self.course.aim == Aim::Bill { search.for_loners() } else { search };
        if self.has_limits() { search.for_first() } else { search }
    }

    /// Whether so many nodes are needed for pods that may not share one with their like that there are few others for each.
    pub(super) fn is_for_loners(&self) -> bool {
        let most = self.lots.nodes_for_loners.iter().max().copied().unwrap_or(0);
        most.saturating_mul(UNITS_FOR_EACH_LONER) >= self.lots.units()
    }

    /// Whether the search has to end with what there is.
    pub(super) fn is_stopped(&self) -> bool {
        self.course.stop.as_ref().is_some_and(StopFlag::is_stopped)
    }

    pub(super) fn with(&self, course: Course) -> Found {
        Problem::new(self.base.clone(), &Lessons::default(), course).search_and_spill()
    }

    pub(super) fn has_limits(&self) -> bool {
        self.base.pools.iter().any(|pool| !pool.limits.is_empty())
    }

    /// Plans in which those come first that a plan leaves, then those too that the first of these leaves.
    fn with_left_first(&self, plan: &Plan) -> Vec<Found> {
        self.in_turns(plan, |first, left| first | left)
    }

    /// Plans in which those come first that matter as much as the most important pod that a plan leaves, then those too that matter as
    /// much as the most important of the others that the first of these leaves.
    fn with_highest_first(&self, plan: &Plan) -> Vec<Found> {
        let priority = |class: &usize| self.base.classes.list[*class].priority;
        let all = || 0..self.base.classes.list.len();
        self.in_turns(plan, |first, left| {
            let least = left.difference(first).map(priority).max();
            let further: BTreeSet<usize> = all().filter(|class| least.is_some_and(|p| priority(class) >= p)).collect();
            if further.len() < all().len() { first | &further } else { first.clone() }
        })
    }

    /// Plans in which some classes come first, to which others are added by what the plan before leaves, until none are.
    fn in_turns(&self, plan: &Plan, add: impl Fn(&BTreeSet<usize>, &BTreeSet<usize>) -> BTreeSet<usize>) -> Vec<Found> {
        let (mut first, mut left, mut out) = (BTreeSet::new(), self.left(plan), Vec::new());
        while out.len() < MOST_TURNS {
            let known = first.len();
            first = add(&first, &left);
            if first.len() == known {
                break;
            }
            let found = self.with(Course { first: first.clone(), ..self.course.clone() });
            left = self.left(&found.plan);
            out.push(found);
        }
        out
    }

    /// The classes of which a plan leaves pods.
    fn left(&self, plan: &Plan) -> BTreeSet<usize> {
        let left = self.left_by_class(plan);
        (0..left.len()).filter(|&class| left[class] > 0).collect()
    }

    /// How many pods of each class a plan leaves.
    pub(super) fn left_by_class(&self, plan: &Plan) -> Vec<usize> {
        self.count_by_class(|pod| plan.unplaced.contains_key(pod))
    }

    /// How many pods of each class are so.
    pub(super) fn count_by_class(&self, is_so: impl Fn(&ObjectKey) -> bool) -> Vec<usize> {
        let pods = self.base.snapshot.pods();
        let is_one = |pod: &&usize| is_so(&pods[**pod].key());
        self.base.classes.list.iter().map(|class| class.pods.iter().filter(is_one).count()).collect()
    }

    /// The better of a plan and, where limits send pods to what a taint asks them to avoid, of one in which no more of them go
    /// there, but others.
    fn search_and_spill(&self) -> Found {
        let found = self.divide_and_search();
        if found.reluctant == 0 || self.is_stopped() || !self.has_limits() {
            return found;
        }
        let course = Course { spills: true, ..self.course.clone() };
        let spilled = Problem::new(self.base.clone(), &Lessons::default(), course).divide_and_search();
        if spilled.reluctant > found.reluctant { found } else { found.better(spilled) }
    }

    /// Searches, and divides classes among domains anew for as long as searches find domains to be full.
    fn divide_and_search(&self) -> Found {
        let search = self.first_search();
        let mut lessons = Lessons::default();
        let Some(mut learned) = search.lessons(&lessons) else {
            return self.best(search, &lessons);
        };
        if self.is_stopped() {
            return Found::cut_short(search);
        }
        // What there is if a later search is stopped.
        let mut so_far = self.course.stop.is_some().then(|| Found::cut_short(search));
        let most = if self.is_small() { MAX_DIVISIONS_OF_FEW } else { MAX_DIVISIONS };
        let mut divisions = 1;
        loop {
            if divisions >= most {
                learned.give_up(&lessons);
            }
            lessons = learned;
            let divided = self.divided(&lessons);
            let search = divided.first_search();
            let Some(next) = search.lessons(&lessons) else {
                return self.best(search, &lessons);
            };
            learned = next;
            let is_stopped = self.is_stopped();
            let cut_short = self.course.stop.is_some().then(|| Found::cut_short(search));
            so_far = so_far.into_iter().chain(cut_short).reduce(Found::better);
            if let Some(so_far) = so_far.take_if(|_| is_stopped) {
                return so_far;
            }
            divisions += 1;
        }
    }

    /// The best of a search by these lessons, or of those by better ones. These make a search cheaper, but perhaps not what becomes of
    /// its plan.
    fn best(&self, search: Search<'_, 'a>, lessons: &Lessons) -> Found {
        let [by_class, by_domain] = self.reconsidered(&search, lessons);
        let by = |lessons: Lessons| {
            let divided = self.divided(&lessons);
            let search = divided.first_search();
            // Once stopped, it may lack pods on which others depend.
            (!self.is_stopped()).then(|| Found::of(search.or_better()))
        };
        let others = [by_class.and_then(by), by_domain.and_then(by)];
        others.into_iter().flatten().fold(Found::of(search.or_better()), Found::better)
    }
}
