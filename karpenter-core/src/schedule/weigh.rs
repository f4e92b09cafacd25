//! Plans in which preferences have a price.
//!
//! Whether a wish is worth its price shows in the bill of a whole plan. So plans are made with all wishes, with none, with
//! those that seem worth it by the share of a node that a pod is charged for, and with others for one class after the other;
//! and the one is taken that costs least together with what is not met.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use ordered_float::OrderedFloat;

use super::{
    PreferencePolicy,
    cost::amount,
    judge::Judged,
    problem::{Base, Course, Problem},
    solve::Found,
    topology::{Ladders, Lessons, Neighbourhood},
};

/// The most plans with weighed wishes that are made for one problem.
const MAX_PLANS: usize = 24;

/// The weight of a wish whose price is that of the options.
const FULL_WEIGHT: f64 = 100.0;

/// What plans with weighed wishes are compared with: the problem under the other policies.
pub(super) struct Weighing<'a> {
    respecting: Arc<Base<'a>>,
    ignoring: Arc<Base<'a>>,
}

/// What wishes cost that are not met.
#[derive(Clone)]
pub(super) struct Tariff {
    /// In dollars an hour, for a weight of 1.
    price: f64,
    /// What each pod goes by, by its index in the snapshot.
    of_pod: Vec<usize>,
    /// The weight of what is not met at each step.
    weights: Vec<Vec<u64>>,
}

/// What is not met in a plan.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Unmet {
    weight: u64,
    /// In dollars an hour.
    pub(super) price: f64,
}

impl Problem<'_> {
    /// The plan that costs least together with what is not met, of those that place the most pods.
    pub(super) fn weigh(&self, weighing: &Weighing<'_>) -> Found {
        let mut climb = Climb { problem: self, known: BTreeSet::new(), best: None };
        let judged = Judged::new(self);
        let starts = judged.starts();
        for start in &starts {
            climb.try_all(start.clone());
        }
        while climb.go_on(&judged, &starts) {}
        let course = || Course { stop: self.course.stop.clone(), ..Course::default() };
        let of_policy = |base: &Arc<_>| {
            let problem = Problem::new(Arc::clone(base), &Lessons::default(), course());
            problem.find_in_any_domains()
        };
        let others = [of_policy(&weighing.respecting), of_policy(&weighing.ignoring)];
        let best = climb.best.map(|(found, _)| found);
        let all = best.into_iter().chain(others);
        let better = |best: Found, other: Found| if other.worth() < best.worth() { other } else { best };
        all.reduce(better).expect("there are plans of two policies")
    }

    /// How many wishes of planned pods are given up; weighed ones go by their price.
    pub(super) fn given_up(&self, planned: &[usize]) -> usize {
        if self.base.preferences == PreferencePolicy::Weigh { 0 } else { self.lots.given_up(planned) }
    }

    /// What it costs that planned pods have given up wishes; nothing if wishes have no price.
    pub(super) fn unmet(&self, planned: &[usize]) -> Unmet {
        let Some(tariff) = &self.base.tariff else { return Unmet::default() };
        let weight = self.lots.levels(planned).map(|(pod, level)| tariff.weights[tariff.of_pod[pod]][level]).sum();
        Unmet { weight, price: tariff.price_of(weight) }
    }
}

impl Found {
    /// The bill, what interruptions are likely to cost and the price of what is not met, in dollars an hour.
    pub(super) fn total(&self) -> OrderedFloat<f64> {
        OrderedFloat(self.expected_cost() + self.unmet.price)
    }

    /// The lower the better. What costs nothing is met.
    fn worth(&self) -> impl Ord {
        let Self { plan, unmet, .. } = self;
        (&self.left, self.total(), unmet.weight, plan.hourly_cost(), plan.claims.len())
    }
}

impl Base<'_> {
    /// What plans with weighed wishes are made from.
    pub(super) fn weighed(of_policy: impl Fn(PreferencePolicy) -> Self) -> Self {
        let mut base = of_policy(PreferencePolicy::Weigh);
        if !base.classes.have_wishes() {
            // Without wishes all policies mean the same.
            return base;
        }
        let mut respecting = of_policy(PreferencePolicy::Respect);
        let mut ignoring = of_policy(PreferencePolicy::Ignore);
        let neighbourhoods = || base.classes.neighbourhoods.iter();
        let weighed = Tariff::new(&base, neighbourhoods().map(Neighbourhood::unmet_weights).collect());
        let in_order: Vec<_> = neighbourhoods().map(Neighbourhood::unmet_weights_in_order).collect();
        let at_all = in_order.iter().map(|weights| weights.last().copied().into_iter().collect()).collect();
        ignoring.tariff = Some(Tariff::new(&base, at_all));
        respecting.tariff = Some(Tariff::new(&base, in_order));
        base.tariff = Some(weighed);
        base.weighing = Some(Weighing { respecting: Arc::new(respecting), ignoring: Arc::new(ignoring) });
        base
    }
}

impl Tariff {
    /// Of weights by neighbourhood and step.
    fn new(base: &Base<'_>, weights: Vec<Vec<u64>>) -> Self {
        let mut of_pod = vec![0; base.snapshot.pods().len()];
        for class in &base.classes.list {
            class.pods.iter().for_each(|&pod| of_pod[pod] = class.neighbourhood);
        }
        let price = amount(base.options.preference_price_per_hour) / FULL_WEIGHT;
        Self { price, of_pod, weights }
    }

    /// What wishes of a weight cost that are not met, in dollars an hour.
    pub(super) fn price_of(&self, weight: u64) -> f64 {
        self.price * weight as f64
    }
}

/// A search for the steps at which the pods of each class begin.
struct Climb<'p, 'a> {
    problem: &'p Problem<'a>,
    /// What was tried.
    known: BTreeSet<Ladders>,
    best: Option<(Found, Ladders)>,
}

impl Climb<'_, '_> {
    /// Makes a plan unless it was made already or there are enough, and says whether it is the best so far.
    fn try_all(&mut self, ladders: Ladders) -> bool {
        if self.known.len() >= MAX_PLANS
            || self.best.is_some() && self.problem.is_stopped()
            || !self.known.insert(ladders.clone())
        {
            return false;
        }
        let course = Course { ladders: Arc::new(ladders.clone()), ..self.problem.course.clone() };
        let found = Problem::new(self.problem.base.clone(), &Lessons::default(), course).find();
        let is_better = self.best.as_ref().is_none_or(|(best, _)| found.worth() < best.worth());
        if is_better {
            self.best = Some((found, ladders));
        }
        is_better
    }

    /// Tries other steps for classes that agree in their wishes, then for one class after the other, those with most at stake
    /// first. Says whether something better was found.
    fn go_on(&mut self, judged: &Judged, starts: &[Ladders]) -> bool {
        let mut is_better = false;
        for group in judged.groups() {
            let of_starts = starts.iter().map(|start| start.of_group(&group));
            let of_class = if let [class] = *group { judged.ladders(class) } else { Vec::new() };
            let alone = of_class.into_iter().map(|ladder| group.iter().map(|&class| (class, ladder.clone())).collect());
            for change in of_starts.chain(alone) {
                let change: BTreeMap<usize, Vec<usize>> = change;
                let Some((_, current)) = &self.best else { return false };
                let mut ladders = current.clone();
                ladders.0.extend(change);
                is_better |= self.try_all(ladders);
            }
        }
        is_better
    }
}

impl Ladders {
    fn of_group(&self, group: &[usize]) -> BTreeMap<usize, Vec<usize>> {
        group.iter().filter_map(|&class| Some((class, self.0.get(&class)?.clone()))).collect()
    }
}

#[cfg(all(test, feature = "proptest"))]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{Plan, Planner, PlannerOptions, strategies};

    fn options(preferences: PreferencePolicy, price: f64) -> PlannerOptions {
        PlannerOptions { preferences, preference_price_per_hour: price, ..PlannerOptions::default() }
    }

    /// The unmet weight that a plan may have at most: that of all wishes of the pods that it places.
    fn weight_of_all(base: &Base<'_>, plan: &Plan) -> u64 {
        let classes = base.classes.list.iter().enumerate();
        let pods = classes.flat_map(|(index, class)| class.pods.iter().map(move |&pod| (index, pod)));
        let placed = pods.filter(|(_, pod)| !plan.unplaced().contains_key(&base.snapshot.pods()[*pod].key()));
        placed.filter_map(|(class, _)| base.classes.neighbourhood(class).unmet_weights().last().copied()).sum()
    }

    proptest! {
        #[test]
        fn no_other_policy_has_a_cheaper_plan(problem in strategies::problem(12), price in 0.0..0.5_f64) {
            let (snapshot, catalogs) = (problem.snapshot(), problem.catalogs().expect("a valid catalog"));
            let weigh = Planner::new(options(PreferencePolicy::Weigh, price));
            let weighed = weigh.prepare(&snapshot, &catalogs);
            let Some(weighing) = &weighed.base.weighing else { return Ok(()) };
            let found = weighed.weigh(weighing);
            let ignored = Planner::new(options(PreferencePolicy::Ignore, 0.0)).plan(&snapshot, &catalogs);
            let unmet = weight_of_all(&weighed.base, &ignored) as f64 * price / FULL_WEIGHT;
            let by_ignoring = ignored.hourly_cost().dollars_per_hour() + unmet;
            prop_assert!(found.plan.unplaced.len() <= ignored.unplaced.len());
            prop_assert!(found.plan.unplaced.len() < ignored.unplaced.len() || found.total().0 <= by_ignoring + 1e-9);
            let respected = Planner::new(options(PreferencePolicy::Respect, 0.0)).plan(&snapshot, &catalogs);
            let same = Problem::new(weighing.respecting.clone(), &Lessons::default(), Course::default());
            let same = same.find_in_any_domains();
            prop_assert!(found.plan.unplaced.len() <= respected.unplaced.len());
            prop_assert_eq!(same.plan.unplaced.len(), respected.unplaced.len());
            prop_assert!(found.plan.unplaced.len() < respected.unplaced.len() || found.total() <= same.total());
        }

        #[test]
        fn at_a_huge_price_no_more_is_unmet_than_in_karpenters_order(problem in strategies::problem(12)) {
            let (snapshot, catalogs) = (problem.snapshot(), problem.catalogs().expect("a valid catalog"));
            let weigh = Planner::new(options(PreferencePolicy::Weigh, f64::MAX));
            let weighed = weigh.prepare(&snapshot, &catalogs);
            let Some(weighing) = &weighed.base.weighing else { return Ok(()) };
            let found = weighed.weigh(weighing);
            let same = Problem::new(weighing.respecting.clone(), &Lessons::default(), Course::default()).find();
            let left = [&found, &same].map(|found| found.plan.unplaced.len());
            prop_assert!(left[0] < left[1] || found.unmet.weight <= same.unmet.weight);
            prop_assert!(found.unmet.weight <= weight_of_all(&weighed.base, &found.plan));
        }
    }
}
