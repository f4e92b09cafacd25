//! From a problem to a plan: searches, until nothing more is to be learned, and the best of what they find.

use std::{collections::BTreeSet, iter};

use super::{
    Plan, StopFlag,
    brace::Braced,
    candidate::Candidate,
    first_fit::LimitUse,
    parallel,
    problem::{Aim, Course, Order, Problem, SpotTypes, Trials},
    search::{Search, Stranding},
    topology::Lessons,
    weigh::Unmet,
};
use crate::{Reason, reason::Obstacle};

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

/// What else is tried than the usual share of stranded room, where the model of binding can tell plans apart. Which of these
/// is best differs with the sizes of pods and the prices of large nodes.
const LARGER_NODES: [Stranding; 2] = [Stranding { share: 0.5, forced: 1.0 }, Stranding { share: 0.7, forced: 0.7 }];
/// What a mixture is made with: the lowest bill.
const TIGHT: Stranding = Stranding { share: 0.0, forced: 0.0 };

/// What the best mixture may cost of a plan that is hardly cheaper than the plain order, to be taken instead.
const MOST_OF_MIXED: f64 = 0.98;

/// How often those come first that limits leave without a node.
const MOST_TURNS: usize = 2;

/// How much of the bill of the plain order a plan may spend; less than all of it, because what Karpenter chooses costs a little
/// less than what this order does.
const MOST_OF_PLAIN: f64 = 0.9;

/// A plan, and what tells whether it is better than another.
pub(super) struct Found {
    pub(super) plan: Plan,
    /// How many wishes of the pods that it places are given up; none if they are weighed.
    given_up: usize,
    /// How many units go where a taint asks to be avoided by them.
    reluctant: i64,
    /// What it costs that wishes of these pods are not met.
    pub(super) unmet: Unmet,
}

impl Found {
    /// The lower the better: pods are worth more than wishes, and wishes more than money unless they have a price.
    fn rank(&self) -> impl Ord {
        (self.plan.unplaced.len(), self.given_up, self.total(), self.plan.claims.len())
    }

    fn of(search: Search<'_, '_>) -> Self {
        let (problem, planned) = (search.problem, search.planned());
        let (given_up, unmet) = (problem.given_up(&planned), problem.unmet(&planned));
        let reluctant = search.reluctant_units();
        Self { plan: search.into_plan(), given_up, reluctant, unmet }
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

impl<'a> Problem<'a> {
    /// Searches for the cheapest set of nodes; where room or limits leave pods without one, for the set that leaves the
    /// fewest, in which no class of pods fares worse than in the plain order of size.
    pub fn solve(&self) -> Plan {
        let plan = match &self.base.weighing {
            Some(weighing) => self.weigh(weighing).plan,
            None => self.find().plan,
        };
        Plan { is_complete: !self.is_stopped(), ..plan }
    }

    /// Does so with the wishes that the pods are to have.
    pub(super) fn find(&self) -> Found {
        let found = self.find_keeping_choice();
        if self.course.trials == Trials::First || self.is_stopped() || self.base.options.min_spot_types.is_some() {
            return found;
        }
        match self.with_any_spot_type().filter(|free| free.plain_bill() < found.plan.hourly_cost().dollars_per_hour()) {
            Some(free) => found.better(free.find_keeping_choice()),
            None => found,
        }
    }

    /// The same problem in which claims may name few types for the spot market, if there is such a market and little to plan.
    fn with_any_spot_type(&self) -> Option<Self> {
        let keeps_choice =
            self.spot_rows.iter().any(|rows| !rows.is_empty()) && !self.base.has_min_values() && self.is_small();
        let course = || Course { spot_types: SpotTypes::Any, ..self.course.clone() };
        keeps_choice.then(|| Problem::new(self.base.clone(), &Lessons::default(), course()))
    }

    /// What is paid for the nodes of the plain order, in dollars an hour.
    fn plain_bill(&self) -> f64 {
        let search = Search::new(self, Stranding::USUAL).run_first_fit(LimitUse::AsMade);
        let price = |candidate: &Candidate| self.base.price(candidate.pool, candidate.row);
        search.batches.iter().map(|batch| price(batch.candidate) * batch.count as f64).sum()
    }

    /// The same, with as many types for the spot market as are to be kept, whatever it costs.
    fn find_keeping_choice(&self) -> Found {
        let course = || self.course.clone();
        let best = self.search_and_spill();
        if self.course.trials == Trials::First || self.is_stopped() {
            return best;
        }
        // Where a spread finds a domain without nodes, limits may have left none for it.
        let may_be =
            |reason: &Reason| reason.is_of_limits() || matches!(reason, Reason::Topology(_)) && self.has_limits();
        let is_limited = best.plan.unplaced.values().any(may_be);
        let for_pods = is_limited.then(|| self.with(Course { aim: Aim::Pods, ..course() }));
        let for_left = if is_limited { self.with_left_first(&best.plan) } else { Vec::new() };
        let by_size = self.has_two_orders(&best.plan).then(|| self.with(Course { order: Order::Size, ..course() }));
        if let Some(by_size) = by_size.as_ref().filter(|_| !is_limited) {
            let first = self.faring_worse(&best.plan, &by_size.plan);
            let fair = (!first.is_empty()).then(|| self.with(Course { first, ..course() }));
            if let Some(fair) = fair.filter(|fair| self.faring_worse(&fair.plan, &by_size.plan).is_empty()) {
                return fair;
            }
        }
        let by_worth = self.course.weighs_room && self.has_two_orders(&best.plan);
        let by_worth = by_worth.then(|| self.with(Course { order: Order::Worth, ..course() }));
        let plain = (is_limited && self.is_small()).then(|| self.with(Course { order: Order::Plain, ..course() }));
        let others = for_pods.into_iter().chain(for_left).chain(by_size).chain(by_worth).chain(plain);
        let best = others.fold(best, Found::better);
        match self.without_spoilers(&best.plan) {
            Some(without) => best.better(without.find_keeping_choice()),
            None => best,
        }
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
            Order::Plain => Search::new(self, Stranding::USUAL).run_first_fit(LimitUse::AsMade),
            _ => self.usual(self.is_for_loners()).run(),
        }
    }

    fn usual(&self, is_for_loners: bool) -> Search<'_, 'a> {
        let search = Search::new(self, Stranding::USUAL);
        let search = if is_for_loners { search.for_loners() } else { search };
        if self.has_limits() { search.for_first() } else { search }
    }

    fn with_larger_nodes(&self) -> Vec<Search<'_, 'a>> {
        let most_price = self.price_among_equals();
        parallel::map(&LARGER_NODES, |&stranding| Search::new(self, stranding).up_to(most_price).run())
    }

    /// Whether so many nodes are needed for pods that may not share one with their like that there are few others for each.
    fn is_for_loners(&self) -> bool {
        let most = self.lots.nodes_for_loners.iter().max().copied().unwrap_or(0);
        most.saturating_mul(UNITS_FOR_EACH_LONER) >= self.lots.units()
    }

    /// Whether the search has to end with what there is.
    pub(super) fn is_stopped(&self) -> bool {
        self.course.stop.as_ref().is_some_and(StopFlag::is_stopped)
    }

    fn with(&self, course: Course) -> Found {
        Problem::new(self.base.clone(), &Lessons::default(), course).search_and_spill()
    }

    fn has_limits(&self) -> bool {
        self.base.pools.iter().any(|pool| !pool.limits.is_empty())
    }

    /// Plans in which those come first that a plan leaves, then those too that the first of these leaves.
    fn with_left_first(&self, plan: &Plan) -> Vec<Found> {
        let (mut first, mut out) = (self.left(plan), Vec::new());
        for _ in 0..MOST_TURNS {
            let found = self.with(Course { first: first.clone(), ..self.course.clone() });
            let known = first.len();
            first.extend(self.left(&found.plan));
            out.push(found);
            if first.len() == known {
                break;
            }
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
        let pods = self.base.snapshot.pods();
        let is_left = |pod: &&usize| plan.unplaced.contains_key(&pods[**pod].key());
        self.base.classes.list.iter().map(|class| class.pods.iter().filter(is_left).count()).collect()
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

    /// The classes of which a plan leaves more pods than another.
    fn faring_worse(&self, plan: &Plan, other: &Plan) -> BTreeSet<usize> {
        let (left, by_other) = (self.left_by_class(plan), self.left_by_class(other));
        (0..left.len()).filter(|&class| left[class] > by_other[class]).collect()
    }

    /// Searches, and divides classes among domains anew for as long as searches find domains to be full.
    fn divide_and_search(&self) -> Found {
        let search = self.first_search();
        let mut lessons = Lessons::default();
        let Some(mut learned) = self.lots.lessons(&search.planned(), &lessons) else {
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
            let Some(next) = divided.lots.lessons(&search.planned(), &lessons) else {
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

    /// The best of a search by these lessons, or of one by better ones. Pods that leave a domain together make a search cheaper, but
    /// perhaps not what becomes of its plan.
    fn best(&self, search: Search<'_, 'a>, lessons: &Lessons) -> Found {
        let [by_class, by_domain] = self.reconsidered(&search, lessons);
        let by = |lessons: Lessons| Found::best(self.divided(&lessons).first_search());
        let first = by_class.map_or_else(|| Found::best(search), by);
        by_domain.map(by).into_iter().fold(first, Found::better)
    }
}

impl Found {
    /// The best of a search, of those that make larger nodes, of a mixture, and of the plain order, as far as the bill goes once the
    /// pods are bound.
    fn best<'p, 'a>(search: Search<'p, 'a>) -> Self {
        let (problem, planned, lightness) = (search.problem, search.planned(), search.lightness());
        if problem.course.trials == Trials::First || problem.is_stopped() {
            return Self::of(search);
        }
        let has_model = search.can_land();
        let is_equal = |other: &Search<'_, '_>| other.planned() == planned;
        let is_known = |other: &Search<'_, '_>| !has_model || other.can_land();
        let is_small = problem.is_small();
        let larger = || if has_model { problem.with_larger_nodes() } else { Vec::new() };
        let mixture = || (!has_model || is_small).then(|| Search::new(problem, TIGHT).run_mixture()).flatten();
        let turned = || is_small.then(|| problem.usual(!problem.is_for_loners()).run());
        let plain = || {
            let orders = [(is_small, LimitUse::AsMade), (is_small && problem.has_limits(), LimitUse::Largest)];
            let run = |(_, limit_use)| Search::new(problem, Stranding::USUAL).run_first_fit(limit_use);
            let plans = orders.into_iter().filter(|(is_made, _)| *is_made).map(run).filter(is_equal);
            plans.min_by(|a, b| a.bill().total_cmp(&b.bill()))
        };
        let ((larger, mixture), (turned, plain)) =
            parallel::both(|| parallel::both(larger, mixture), || (turned(), plain()));
        let mixture = mixture.filter(is_equal);
        let ceiling = search.ceiling(plain.as_ref());
        let is_fit = |other: &Search<'_, '_>| is_known(other) && ceiling.is_none_or(|ceiling| other.bill() <= ceiling);
        let brace = |other: &Search<'p, 'a>| other.clone().brace(ceiling);
        let others = larger.into_iter().chain(mixture.clone()).chain(turned).filter(is_equal);
        // Weights come before the bill. Karpenter's order alone may go by them in another way.
        let others: Vec<_> = others.filter(|other| other.lightness() <= lightness && is_fit(other)).collect();
        let refined = is_small.then(|| refined(&search, &others)).filter(is_fit);
        let others = distinct(others.into_iter().chain(refined), &search);
        let (best, others) = parallel::both(|| search.brace(ceiling), || parallel::map(&others, brace));
        let best = others.into_iter().fold(best, Braced::better);
        let is_checked = has_model && ceiling.is_some();
        let tighter = mixture.filter(|_| is_checked).and_then(|mixture| tighter(mixture, &best.search, plain.as_ref()));
        let best = tighter.unwrap_or(best);
        // What is added makes no plan cheaper.
        let plain = plain.filter(|plain| plain.bill() < best.bill && is_fit(plain)).map(|plain| plain.brace(ceiling));
        let best = plain.into_iter().fold(best, Braced::better);
        Self::of(best.search)
    }
}

/// Those of some searches that make other nodes than the first and than those before them.
fn distinct<'p, 'a>(others: impl Iterator<Item = Search<'p, 'a>>, first: &Search<'p, 'a>) -> Vec<Search<'p, 'a>> {
    let mut out: Vec<Search<'p, 'a>> = Vec::new();
    for other in others {
        if !iter::once(first).chain(&out).any(|known| known.is_like(&other)) {
            out.push(other);
        }
    }
    out
}

/// The cheapest of some searches, with cheaper nodes if there are any.
fn refined<'p, 'a>(first: &Search<'p, 'a>, others: &[Search<'p, 'a>]) -> Search<'p, 'a> {
    let best = others.iter().fold(first, |best, other| if other.bill() < best.bill() { other } else { best });
    best.clone().refined()
}

/// A mixture for the pods of a plan that costs more than slack allows beyond it, or almost as much as the plain order, if it is
/// cheaper. Karpenter's own plan may be a little cheaper than the plain order, so that one that is hardly cheaper than this may
/// be dearer than that.
fn tighter<'p, 'a>(
    mixture: Search<'p, 'a>,
    plan: &Search<'p, 'a>,
    by_size: Option<&Search<'_, '_>>,
) -> Option<Braced<'p, 'a>> {
    let most = by_size.map_or(f64::INFINITY, |plain| plain.bill() * MOST_OF_PLAIN).min(mixture.most_to_spend());
    let is_cheaper = mixture.bill() < plan.bill() * MOST_OF_MIXED;
    (plan.bill() > most && is_cheaper).then(|| mixture.brace(Some(most)))
}

impl Search<'_, '_> {
    /// What a plan may cost for the sake of what happens when its pods are bound, so that it is not dearer than the plain
    /// order. Where there is none of these beside pools with `minValues`, nothing is spent. Pods that were left by
    /// an earlier plan are not to wait once more, whatever it costs.
    fn ceiling(&self, plain: Option<&Self>) -> Option<f64> {
        let base = &self.problem.base;
        let most = match plain {
            Some(plain) => plain.bill() * MOST_OF_PLAIN,
            None if base.has_min_values() => 0.0,
            None => f64::INFINITY,
        };
        (!base.has_leftovers).then(|| most.max(self.bill()))
    }
}

impl Reason {
    /// Whether limits of a pool are in the way.
    fn is_of_limits(&self) -> bool {
        let Self::NoPlace { pools, .. } = self else { return false };
        pools.iter().flat_map(|pool| &pool.shut_out).any(|types| matches!(types.obstacle, Obstacle::Limit { .. }))
    }
}
