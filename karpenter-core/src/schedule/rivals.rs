//! What else could be made for the pods of a search, and which of all these plans costs least once the pods are bound.

use std::iter;

use super::{
    brace::Braced,
    first_fit::LimitUse,
    parallel,
    problem::{Aim, Problem, Trials},
    search::{Search, Stranding},
};

/// What else is tried than the usual share of stranded room, where the model of binding can tell plans apart. Which of these
/// is best differs with the sizes of pods and the prices of large nodes.
const LARGER_NODES: [Stranding; 2] = [Stranding { share: 0.5, forced: 1.0 }, Stranding { share: 0.7, forced: 0.7 }];
/// What a mixture is made with: the lowest bill.
const TIGHT: Stranding = Stranding { share: 0.0, forced: 0.0 };

/// What the best mixture may cost of a plan that is hardly cheaper than the plain order, to be taken instead.
const MOST_OF_MIXED: f64 = 0.98;

/// How much of the bill of the plain order a plan may spend; less than all of it, because what Karpenter chooses costs a little
/// less than what this order does.
const MOST_OF_PLAIN: f64 = 0.9;

/// Other searches for the pods of a first one, as far as they place as many.
struct Rivals<'p, 'a> {
    /// Those that make larger nodes, a mixture, and one in which loners come first if they come last in the first search, or the
    /// other way round.
    others: Vec<Search<'p, 'a>>,
    mixture: Option<Search<'p, 'a>>,
    /// Karpenter's order.
    plain: Option<Search<'p, 'a>>,
}

impl<'p, 'a> Rivals<'p, 'a> {
    fn of(first: &Search<'p, 'a>) -> Self {
        let (problem, planned) = (first.problem, first.planned());
        let (has_model, is_small) = (first.can_land(), problem.is_small());
        let larger = || if has_model { problem.with_larger_nodes() } else { Vec::new() };
        let mixture = || (!has_model || is_small).then(|| Search::new(problem, TIGHT).run_mixture()).flatten();
        let turned = || is_small.then(|| problem.usual(!problem.is_for_loners()).run());
        let plain = || if is_small { problem.plain_orders() } else { Vec::new() };
        let ((larger, mixture), (turned, plain)) =
            parallel::both(|| parallel::both(larger, mixture), || (turned(), plain()));
        let is_equal = |other: &Search<'_, '_>| other.planned() == planned;
        let mixture = mixture.filter(is_equal);
        let others = larger.into_iter().chain(mixture.clone()).chain(turned).filter(is_equal).collect();
        let plain = plain.into_iter().filter(is_equal).min_by(|a, b| a.bill().total_cmp(&b.bill()));
        Self { others, mixture, plain }
    }
}

impl Search<'_, '_> {
    /// The best of a search and its rivals, as far as the bill goes once the pods are bound, or of a search that places more and
    /// its rivals.
    pub(super) fn or_better(self) -> Self {
        let problem = self.problem;
        if problem.course.trials == Trials::First || problem.is_stopped() {
            return self;
        }
        let best = match problem.usual(problem.is_for_loners()).run_from_lightest() {
            Some(other) if other.places_more_than(&self) => other.best_of(None),
            Some(other) if other.planned() == self.planned() => self.best_of(Some(other)),
            _ => self.best_of(None),
        };
        if problem.course.aim == Aim::Pods && problem.is_small() { best.fuller() } else { best }
    }

    /// Whether all that another search places has a place, and more.
    fn places_more_than(&self, other: &Self) -> bool {
        let (own, others) = (self.planned(), other.planned());
        own != others && own.iter().zip(&others).all(|(own, other)| own >= other)
    }

    /// The best of a search, another one for the same pods in which those come first that only lighter pools take, and the rivals of
    /// both.
    fn best_of(self, from_lightest: Option<Self>) -> Self {
        let problem = self.problem;
        let Rivals { others, mixture, plain } = Rivals::of(&self);
        let (has_model, lightness) = (self.can_land(), self.lightness());
        let ceiling = self.ceiling(plain.as_ref());
        let is_known = |other: &Self| !has_model || other.can_land();
        let is_fit = |other: &Self| is_known(other) && ceiling.is_none_or(|ceiling| other.bill() <= ceiling);
        // Weights come before the bill. They say where claims are opened, and not whose free room is used.
        let others = others.into_iter().filter(|other| other.lightness() <= lightness);
        let others: Vec<_> = others.chain(from_lightest).filter(is_fit).collect();
        let refined = problem.is_small().then(|| refined(&self, &others)).filter(is_fit);
        let others = distinct(others.into_iter().chain(refined), &self);
        let tightest = others.iter().map(Self::bill).fold(self.bill(), f64::min);
        let most = ceiling.map_or(f64::INFINITY, |_| self.with_slack(tightest));
        let brace = |other: &Self| other.clone().brace(ceiling);
        let (best, others) = parallel::both(|| self.brace(ceiling), || parallel::map(&others, brace));
        let best = others.into_iter().fold(best, Braced::better);
        let is_checked = has_model && ceiling.is_some();
        let tighter = mixture.filter(|_| is_checked).and_then(|mixture| tighter(mixture, &best.search, plain.as_ref()));
        let best = tighter.unwrap_or(best);
        // What is added makes no plan cheaper.
        let plain = plain.filter(|plain| plain.bill() < best.bill && is_fit(plain)).map(|plain| plain.brace(ceiling));
        match plain {
            Some(plain) if ceiling.is_some() && plain.search.bill() < best.search.bill() => plain.search,
            Some(plain) if plain.search.bill() <= most => best.better(plain).search,
            _ => best.search,
        }
    }

    /// What a plan may cost for the sake of what happens when its pods are bound, so that it is not dearer than the plain
    /// order. Where there is none of these beside pools with `minValues`, nothing is spent. Pods that were left by
    /// an earlier plan are not to wait once more, whatever it costs.
    fn ceiling(&self, plain: Option<&Self>) -> Option<f64> {
        let base = &self.problem.base;
        let most = match plain {
            Some(plain) => (plain.bill() * MOST_OF_PLAIN).max(self.bill()).min(plain.bill()),
            None if base.has_min_values() => self.bill(),
            None => f64::INFINITY,
        };
        (!base.has_leftovers).then_some(most)
    }
}

impl<'a> Problem<'a> {
    fn with_larger_nodes(&self) -> Vec<Search<'_, 'a>> {
        let most_price = self.price_among_equals();
        parallel::map(&LARGER_NODES, |&stranding| Search::new(self, stranding).up_to(most_price).run())
    }

    /// Searches in Karpenter's order.
    fn plain_orders(&self) -> Vec<Search<'_, 'a>> {
        self.limit_uses().map(|limit_use| Search::new(self, Stranding::USUAL).run_first_fit(limit_use)).collect()
    }

    /// The ways of counting limits that make a difference.
    pub(super) fn limit_uses(&self) -> impl Iterator<Item = LimitUse> + use<> {
        iter::once(LimitUse::AsMade).chain(self.has_limits().then_some(LimitUse::Largest))
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
    best: &Search<'p, 'a>,
    plain: Option<&Search<'_, '_>>,
) -> Option<Braced<'p, 'a>> {
    let most = plain.map_or(f64::INFINITY, |plain| plain.bill() * MOST_OF_PLAIN).min(mixture.most_to_spend());
    let is_cheaper = mixture.bill() < best.bill() * MOST_OF_MIXED;
    (best.bill() > most && is_cheaper).then(|| mixture.brace(Some(most)))
}
