//! From a problem to a plan: searches, until nothing more is to be learned, and the best of what they find.

use std::collections::BTreeSet;

use super::{
    Plan, StopFlag, parallel,
    problem::{Aim, Course, Order, Problem},
    search::{Search, Stranding},
    topology::Lessons,
    weigh::Unmet,
};
use crate::{Reason, reason::Obstacle};

/// The most searches in which the pods of a class may be divided anew. After these, classes whose pods do not all find
/// nodes are given up one search at a time.
const MAX_DIVISIONS: usize = 12;

/// A plan is sought in a second order if a search looks at no more than so many pairs of lots and candidates, or if
/// pods are left.
const SMALL: usize = 100_000;

/// What else is tried than the usual share of stranded room, where the model of binding can tell plans apart.
const LARGER_NODES: Stranding = Stranding { share: 0.6, forced: 1.0 };
/// What a mixture is made with where it cannot: the lowest bill.
const TIGHT: Stranding = Stranding { share: 0.0, forced: 0.0 };

/// A plan, and what tells whether it is better than another.
pub(super) struct Found {
    pub(super) plan: Plan,
    /// How many wishes of the pods that it places are given up; none if they are weighed.
    given_up: usize,
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
        Self { plan: search.into_plan(), given_up, unmet }
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

impl Problem<'_> {
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
        let course = || self.course.clone();
        let best = self.divide_and_search();
        if self.course.is_sketch || self.is_stopped() {
            return best;
        }
        let is_limited = best.plan.unplaced.values().any(Reason::is_of_limits);
        let for_pods = is_limited.then(|| self.with(Course { aim: Aim::Pods, ..course() }));
        let by_size = self.has_two_orders(&best.plan).then(|| self.with(Course { order: Order::Size, ..course() }));
        if let Some(by_size) = by_size.as_ref().filter(|_| !is_limited) {
            let first = self.faring_worse(&best.plan, &by_size.plan);
            let fair = (!first.is_empty()).then(|| self.with(Course { first, ..course() }));
            if let Some(fair) = fair.filter(|fair| self.faring_worse(&fair.plan, &by_size.plan).is_empty()) {
                return fair;
            }
        }
        let others = for_pods.into_iter().chain(by_size);
        others.fold(best, Found::better)
    }

    /// Whether it makes a difference, and is worth the time, to fill the room that there is in another order.
    fn has_two_orders(&self, plan: &Plan) -> bool {
        let is_small = self.lots.list.len() * self.candidates.len() <= SMALL;
        !self.base.places.is_empty() && (is_small || !plan.unplaced.is_empty())
    }

    /// Whether the search has to end with what there is.
    pub(super) fn is_stopped(&self) -> bool {
        self.course.stop.as_ref().is_some_and(StopFlag::is_stopped)
    }

    fn with(&self, course: Course) -> Found {
        Problem::new(self.base.clone(), &Lessons::default(), course).divide_and_search()
    }

    /// The classes of which a plan leaves more pods than another.
    fn faring_worse(&self, plan: &Plan, other: &Plan) -> BTreeSet<usize> {
        let classes = self.base.classes.list.iter().enumerate();
        let pods = self.base.snapshot.pods();
        let is_left = |plan: &Plan, pod: usize| plan.unplaced.contains_key(&pods[pod].key());
        let left = |plan: &Plan, pods: &[usize]| pods.iter().filter(|&&pod| is_left(plan, pod)).count();
        classes
            .filter(|(_, class)| left(plan, &class.pods) > left(other, &class.pods))
            .map(|(index, _)| index)
            .collect()
    }

    /// Searches, and divides classes among domains anew for as long as searches find domains to be full.
    fn divide_and_search(&self) -> Found {
        let search = Search::new(self, Stranding::USUAL).run();
        let mut lessons = Lessons::default();
        let Some(mut learned) = self.lots.lessons(&search.planned(), &lessons) else { return Found::best(search) };
        if self.is_stopped() {
            return Found::cut_short(search);
        }
        // What there is if a later search is stopped.
        let mut so_far = self.course.stop.is_some().then(|| Found::cut_short(search));
        let mut divisions = 1;
        loop {
            if divisions >= MAX_DIVISIONS {
                learned.give_up(&lessons);
            }
            lessons = learned;
            let divided = Problem::new(self.base.clone(), &lessons, self.course.clone());
            let search = Search::new(&divided, Stranding::USUAL).run();
            let Some(next) = divided.lots.lessons(&search.planned(), &lessons) else { return Found::best(search) };
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
}

impl Found {
    /// The best of a search, of one that makes larger nodes or of a mixture, and of the plain order, as far as the bill goes
    /// once the pods are bound.
    fn best(search: Search<'_, '_>) -> Self {
        let (problem, planned) = (search.problem, search.planned());
        if problem.course.is_sketch || problem.is_stopped() {
            return Self::of(search);
        }
        let has_model = search.can_land();
        let is_equal = |other: &Search<'_, '_>| other.planned() == planned;
        let is_known = |other: &Search<'_, '_>| !has_model || other.can_land();
        let other = || match () {
            () if has_model => Some(Search::new(problem, LARGER_NODES).run()),
            () => Search::new(problem, TIGHT).run_mixture(),
        };
        let plain = || problem.has_first_fit().then(|| Search::new(problem, Stranding::USUAL).run_first_fit());
        let (other, plain) = parallel::both(|| other().filter(is_equal).filter(is_known), || plain().filter(is_equal));
        // Pods that were left by an earlier plan are not to wait once more.
        let ceiling = plain.as_ref().filter(|_| !problem.base.has_leftovers).map(Search::bill);
        let (mut best, other) = parallel::both(|| search.brace(ceiling), || other.map(|other| other.brace(ceiling)));
        if let Some(other) = other.filter(|other| other.bill < best.bill) {
            best = other;
        }
        // What is added makes no plan cheaper.
        if let Some(plain) =
            plain.filter(is_known).filter(|plain| plain.bill() < best.bill).map(|plain| plain.brace(ceiling))
            && plain.bill < best.bill
        {
            best = plain;
        }
        Self::of(best.search)
    }
}

impl Reason {
    /// Whether limits of a pool are in the way.
    fn is_of_limits(&self) -> bool {
        let Self::NoPlace { pools, .. } = self else { return false };
        pools.iter().flat_map(|pool| &pool.shut_out).any(|types| matches!(types.obstacle, Obstacle::Limit { .. }))
    }
}
