//! Which wishes seem worth their price, before any plan is made.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use ordered_float::OrderedFloat;

use super::{
    amounts::fit_count,
    candidate::Candidate,
    lot::Lot,
    problem::{Base, Course, Problem},
    topology::{Ladders, Lessons},
};

/// The most steps that the pods of a class try, so that pods which find no node do not use up the divisions.
const MAX_RUNGS: usize = 6;

/// What each step of wishes is likely to cost the classes that have some.
pub(super) struct Judged {
    /// By class.
    classes: BTreeMap<usize, Judgement>,
}

/// What each step of wishes is likely to cost a class.
struct Judgement {
    /// By step; `None` where the wishes of a step cannot be met.
    steps: Vec<Option<Charge>>,
    /// How much weight the wishes of all its pods have.
    stake: u64,
    neighbourhood: usize,
}

/// What a pod costs, in dollars an hour, with the price of what is not met.
#[derive(Clone, Copy, Debug, Default)]
struct Charge {
    /// If other pods share its nodes with it.
    shared: f64,
    /// If its nodes take nothing else than pods of its kind.
    apart: f64,
}

impl Judged {
    pub(super) fn new(problem: &Problem<'_>) -> Self {
        let base = &problem.base;
        let has_wishes = |class: &usize| base.classes.neighbourhood(*class).levels() > 1;
        let wishful: Vec<usize> = (0..base.classes.list.len()).filter(has_wishes).collect();
        let mut classes: BTreeMap<usize, Judgement> =
            wishful.into_iter().map(|class| (class, Judgement::new(base, class))).collect();
        let levels = classes.values().map(|class| class.steps.len()).max().unwrap_or(0);
        for level in 0..levels {
            let only = classes.iter().map(|(&class, judgement)| (class, vec![level.min(judgement.last())])).collect();
            let course = Course { ladders: Arc::new(Ladders(only)), ..Course::default() };
            let charges = Problem::new(base.clone(), &Lessons::default(), course).charges();
            for (class, judgement) in classes.iter_mut().filter(|(_, judgement)| level <= judgement.last()) {
                judgement.steps[level] = charges.get(class).map(|charge| charge.with_price(base, *class, level));
            }
        }
        Self { classes }
    }

    /// Where to begin: each class by the likely cost of its steps, all wishes kept, and none.
    pub(super) fn starts(&self) -> Vec<Ladders> {
        let all = |ladder: fn(&Judgement) -> Vec<usize>| {
            Ladders(self.classes.iter().map(|(&class, judgement)| (class, ladder(judgement))).collect())
        };
        let starts = [
            all(|judgement| judgement.cheapest_first(|charge| charge.shared)),
            all(|judgement| judgement.cheapest_first(|charge| charge.apart)),
            all(Judgement::most_kept_first),
            all(|judgement| vec![judgement.last()]),
        ];
        let mut known = BTreeSet::new();
        starts.into_iter().filter(|start| known.insert(start.clone())).collect()
    }

    /// The classes of each neighbourhood, then each class; of both those with most at stake first.
    pub(super) fn groups(&self) -> Vec<Vec<usize>> {
        let mut alike: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (&class, judgement) in &self.classes {
            alike.entry(judgement.neighbourhood).or_default().push(class);
        }
        let mut groups: Vec<Vec<usize>> = alike.into_values().filter(|group| group.len() > 1).collect();
        let mut single: Vec<Vec<usize>> = self.classes.keys().map(|&class| vec![class]).collect();
        let stake = |group: &Vec<usize>| Reverse(group.iter().map(|class| self.classes[class].stake).sum::<u64>());
        groups.sort_by_key(stake);
        single.sort_by_key(stake);
        groups.append(&mut single);
        groups
    }

    /// Each step of a class that can be met, with nothing kept where that fails, in the order of what they are likely to cost.
    pub(super) fn ladders(&self, class: usize) -> Vec<Vec<usize>> {
        let judgement = &self.classes[&class];
        let mut levels = judgement.costs(|charge| charge.apart);
        levels.sort_unstable();
        levels.into_iter().map(|(_, level)| judgement.ladder([level])).collect()
    }
}

impl Judgement {
    fn new(base: &Base<'_>, class: usize) -> Self {
        let neighbourhood = base.classes.neighbourhood(class);
        let pods = base.classes.list[class].pods.len() as u64;
        let stake = pods.saturating_mul(neighbourhood.unmet_weights().last().copied().unwrap_or(0));
        Self { steps: vec![None; neighbourhood.levels()], stake, neighbourhood: base.classes.list[class].neighbourhood }
    }

    /// The step at which nothing is kept.
    const fn last(&self) -> usize {
        self.steps.len() - 1
    }

    /// The steps that cost no more than giving up everything.
    fn cheapest_first(&self, cost: fn(&Charge) -> f64) -> Vec<usize> {
        let mut levels = self.costs(cost);
        levels.sort_unstable();
        let is_last = |(_, level): &(OrderedFloat<f64>, usize)| *level == self.last();
        let worthwhile = levels.split(is_last).next().unwrap_or_default();
        self.ladder(worthwhile.iter().map(|(_, level)| *level))
    }

    /// What the steps that can be met are likely to cost.
    fn costs(&self, cost: fn(&Charge) -> f64) -> Vec<(OrderedFloat<f64>, usize)> {
        let known = self.steps.iter().enumerate();
        known.filter_map(|(level, charge)| Some((OrderedFloat(charge.as_ref().map(cost)?), level))).collect()
    }

    /// All steps that can be met, in order.
    fn most_kept_first(&self) -> Vec<usize> {
        self.ladder((0..self.last()).filter(|&level| self.steps[level].is_some()))
    }

    /// The first of these steps, and the last of all.
    fn ladder(&self, levels: impl IntoIterator<Item = usize>) -> Vec<usize> {
        let kept = levels.into_iter().filter(|&level| level < self.last());
        kept.take(MAX_RUNGS - 1).chain([self.last()]).collect()
    }
}

impl Charge {
    fn with_price(self, base: &Base<'_>, class: usize, level: usize) -> Self {
        let weight = base.classes.neighbourhood(class).unmet_weights()[level];
        let price = base.tariff.as_ref().map_or(0.0, |tariff| tariff.price_of(weight));
        Self { shared: self.shared + price, apart: self.apart + price }
    }
}

impl Problem<'_> {
    /// What a pod of each class is charged on average, if a domain was found for any.
    fn charges(&self) -> BTreeMap<usize, Charge> {
        let mut sums: BTreeMap<usize, (Charge, f64)> = BTreeMap::new();
        for (index, lot) in self.lots.list.iter().enumerate() {
            let (shared, apart) = (free_if_infinite(self.value(index)), free_if_infinite(self.value_apart(lot)));
            for (portion, units) in self.lots.origins_of(lot) {
                for member in &portion.members {
                    let pods = (units * member.count) as f64;
                    let each = pods / lot.unit_size as f64;
                    let (sum, count) = sums.entry(member.class).or_default();
                    sum.shared += shared * each;
                    sum.apart += apart * each;
                    *count += pods;
                }
            }
        }
        let average = |(sum, count): (Charge, f64)| Charge { shared: sum.shared / count, apart: sum.apart / count };
        sums.into_iter().map(|(class, sum)| (class, average(sum))).collect()
    }

    /// What the cheapest nodes charge for a unit of a lot if they take nothing else.
    fn value_apart(&self, lot: &Lot) -> f64 {
        let units = i64::try_from(lot.units()).unwrap_or(i64::MAX);
        let by_rules = lot.manners.own_limits().map(|(_, own, most)| most / own).fold(units, i64::min);
        let charge = |candidate: &Candidate| {
            candidate.guest(lot.shape)?;
            let room = self.room_of(candidate);
            let most = fit_count(&lot.requests, room).min(by_rules).max(1);
            Some(candidate.price * (units as f64 / most as f64).ceil() / units as f64)
        };
        let unlimited = self.candidates.iter().filter(|candidate| !candidate.is_reserved());
        unlimited.filter_map(charge).fold(f64::INFINITY, f64::min)
    }
}

/// Pods that no new node takes may go into room that there is, which costs nothing.
fn free_if_infinite(value: f64) -> f64 {
    if value.is_finite() { value } else { 0.0 }
}
