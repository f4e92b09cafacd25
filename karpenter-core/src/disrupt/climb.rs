//! The search for the nodes that should go together.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use ordered_float::OrderedFloat;

use super::{
    Candidate,
    consolidate::Consolidation,
    hurdle::{Threshold, evictions_and_price},
    scene::{Care, Trial},
};
use crate::schedule::{Answers, parallel};

/// How many times the gaps below and above the best size of a set are halved.
const REFINEMENTS: usize = 4;

/// How often nodes are left out whose pods find no place, before a set is given up.
const MAX_LEFT_OUT: usize = 8;

/// The most work in sketches each time that a set is improved, and in whole plans, for one command: a second or two each. A
/// unit is a place that is looked at or a pod that is placed.
const MAX_SKETCHED: usize = 120_000;
const MAX_PLANNED: usize = 250_000;

/// In a cluster in which it takes no more work to leave out or add each node in turn, more is tried: more starts, of which more
/// are followed to the end.
const SMALL: usize = 30_000;

/// Of so few nodes all sets are planned as well as can be, if that is no more work than this: some tenths of a second.
const FEW: usize = 6;
const MAX_OF_FEW: usize = 3_000;

/// How many of the sets that are found from the starts are followed to the end in a small cluster.
const FOLLOWED: usize = 3;

/// By what the threshold is multiplied in searches that are begun. Which nodes should go is seen better from both sides.
const FACTORS: [f64; 3] = [1.0, 0.4, 2.0];

/// Into how many parts a set is divided at first to see which parts are better left out or added.
const PARTS: usize = 8;

/// How many of the changes of a set that look best in sketches are planned: in a small cluster, where more sets are followed to
/// the end, and in others.
const PLANNED_IN_SMALL: usize = 6;
const PLANNED: usize = 32;

/// A set is improved by whole plans if it gains less than the best by no more than this share: others do not catch up.
const MOST_BEHIND: f64 = 0.02;

/// Of how many changes that lose least each two are tried together, and how often.
const SWAPPED: usize = 12;
const MAX_SWAPS: usize = 6;

/// Of so many sets it is remembered what comes of them. Searches from several starts come by the same sets again and again.
const MAX_REMEMBERED: usize = 10_000;

/// Nodes that go together.
#[derive(Clone)]
pub(super) struct Found {
    pub(super) outcome: Outcome,
    /// How sketches of it are made.
    pub(super) sketch: Care,
    /// What is saved beyond what it must be worth, in dollars an hour.
    gain: f64,
    /// What moving the pods costs, and what the nodes cost in dollars an hour.
    evictions: f64,
    price: f64,
    /// Whether the command may be carried out.
    is_allowed: bool,
}

impl Found {
    /// The higher the better.
    fn rank(&self) -> (bool, OrderedFloat<f64>) {
        (self.is_allowed, OrderedFloat(self.gain))
    }

    /// The first of the best.
    pub(super) fn best(all: impl IntoIterator<Item = Self>) -> Option<Self> {
        all.into_iter().reduce(|best, other| if other.rank() > best.rank() { other } else { best })
    }

    pub(super) fn is_worth_it(&self, threshold: Threshold) -> bool {
        self.is_allowed && self.outcome.savings_per_hour > threshold.per_hour(self.evictions, self.price)
    }

    /// How much less the cluster costs, in dollars an hour.
    pub(super) const fn savings_per_hour(&self) -> f64 {
        self.outcome.savings_per_hour
    }
}

/// What comes of taking nodes away, without those of which a pod would have no place.
struct Tried {
    /// The nodes that can go, and what comes of it; `None` if there are none.
    outcome: Option<Outcome>,
    /// How much was done, in units of work.
    work: usize,
}

#[derive(Clone)]
pub(super) struct Outcome {
    /// Their positions in the order of nodes.
    pub(super) nodes: BTreeSet<usize>,
    /// How it was planned.
    pub(super) care: Care,
    /// How much less the cluster costs, in dollars an hour.
    savings_per_hour: f64,
    /// Whether it keeps the terms of pools and of the nodes that come.
    is_fit: bool,
}

/// The nodes that may go together, and what is known of taking some of them away.
pub(super) struct Field<'k, 'c, 's> {
    consolidation: &'k Consolidation<'c, 's>,
    order: &'k [&'k Candidate],
    /// How many pods they have.
    pods: usize,
    known: Answers<(BTreeSet<usize>, Care), Tried>,
}

/// A search among nodes.
pub(super) struct Climb<'k, 'c, 's> {
    field: &'k Field<'k, 'c, 's>,
    threshold: Threshold,
    /// What all nodes of a set must be worth together.
    bound: Option<Threshold>,
    /// How sketches are made.
    sketch: Care,
    /// How much was done, in units of work.
    work: AtomicUsize,
}

/// From where a search begins.
#[derive(Clone, Copy)]
enum Start {
    /// From the nodes that waste most, with the threshold times a factor.
    Wasteful(f64),
    /// From all nodes.
    All,
}

impl<'k, 'c, 's> Field<'k, 'c, 's> {
    pub(super) fn new(consolidation: &'k Consolidation<'c, 's>, order: &'k [&'k Candidate]) -> Self {
        let pods = order.iter().map(|candidate| candidate.pods.len()).sum();
        Self { consolidation, order, pods, known: Answers::up_to(MAX_REMEMBERED) }
    }

    /// What is found from several starts, by sketches, and by plans where there are few sets.
    pub(super) fn starts(&'k self) -> Vec<Found> {
        let consolidation = self.consolidation;
        let climb = |factor, sketch| Climb::new(self, consolidation.threshold.times(factor), sketch);
        let factors = FACTORS.iter().take(consolidation.share_of(FACTORS.len()).max(1));
        let mut starts: Vec<(Start, Care)> = factors.map(|&factor| (Start::Wasteful(factor), Care::Sketch)).collect();
        if self.is_small() {
            let (plain, low) = (Start::Wasteful(FACTORS[0]), Start::Wasteful(FACTORS[1]));
            starts.extend([plain, low, Start::All].map(|start| (start, Care::WeighedSketch)));
            starts.push((Start::All, Care::Sketch));
        }
        // All searches begin with these sets.
        parallel::map(&self.prefix_sizes(), |&size| drop(self.tried((0..size).collect(), Care::Sketch)));
        let found = parallel::map(&starts, |&(start, sketch)| {
            let factor = if let Start::Wasteful(factor) = start { factor } else { 1.0 };
            Some(climb(1.0, sketch).resumed(&climb(factor, sketch).from(start)?))
        });
        let planned = parallel::map(&self.all_sets(), |set| climb(1.0, Care::Sketch).try_all(set.clone(), Care::Best));
        found.into_iter().chain(planned).flatten().collect()
    }

    /// All sets of nodes; none where that is too much to plan.
    fn all_sets(&self) -> Vec<BTreeSet<usize>> {
        let all = self.order.len();
        let count = 1_usize << all.min(FEW);
        if all > FEW || count.saturating_mul(self.work_for(all)) > self.consolidation.share_of(MAX_OF_FEW) {
            return Vec::new();
        }
        (1..count).map(|set| (0..all).filter(|node| set >> node & 1 == 1).collect()).collect()
    }

    pub(super) fn candidates(&self, nodes: &BTreeSet<usize>) -> Vec<&'k Candidate> {
        nodes.iter().map(|&node| self.order[node]).collect()
    }

    /// The nodes that are not among some.
    pub(super) fn others(&self, nodes: &BTreeSet<usize>) -> Vec<usize> {
        (0..self.order.len()).filter(|node| !nodes.contains(node)).collect()
    }

    /// Whether there is time for more starts, and for two changes at a time.
    fn is_small(&self) -> bool {
        self.order.len().saturating_mul(self.work_for(self.order.len() / 2)) <= self.consolidation.share_of(SMALL)
    }

    /// How many of the first nodes are tried at first.
    fn prefix_sizes(&self) -> Vec<usize> {
        let all = self.order.len();
        let doubled = std::iter::successors(Some(1), |size| Some(size * 2)).take_while(|&size| size < all);
        doubled.chain((all > 0).then_some(all)).collect()
    }

    /// What it takes to try so many nodes with as many pods as the nodes have on average.
    pub(super) fn work_for(&self, nodes: usize) -> usize {
        self.consolidation.scene.snapshot.places().len() + self.pods * nodes / self.order.len().max(1)
    }

    fn tried(&self, nodes: BTreeSet<usize>, care: Care) -> Arc<Tried> {
        let question = (nodes, care);
        self.known.get(&question, Clone::clone, || Arc::new(self.try_all(question.0.clone(), care)))
    }

    fn try_all(&self, mut nodes: BTreeSet<usize>, care: Care) -> Tried {
        let mut work = 0;
        for _ in 0..MAX_LEFT_OUT {
            if nodes.is_empty() {
                break;
            }
            let candidates = self.candidates(&nodes);
            work += self.work_for(nodes.len());
            match self.consolidation.scene.try_without(&candidates, care) {
                Ok(trial) => {
                    let (outcome, more_work) = self.outcome_of(&trial, &candidates, nodes, care);
                    return Tried { outcome: Some(outcome), work: work + more_work };
                }
                Err(left) => {
                    let before = nodes.len();
                    nodes.retain(|&node| !self.order[node].pods.iter().any(|pod| left.contains(pod)));
                    if nodes.len() == before {
                        break;
                    }
                }
            }
        }
        Tried { outcome: None, work }
    }

    /// What comes of a trial, or of one with as few new nodes as are found where that helps, and the work that this took.
    fn outcome_of(
        &self,
        trial: &Trial,
        candidates: &[&Candidate],
        nodes: BTreeSet<usize>,
        care: Care,
    ) -> (Outcome, usize) {
        let is_fit = self.consolidation.terms.allow(candidates, trial);
        let needs_few = !is_fit && self.could_gain_with_few(candidates, trial);
        let work = if needs_few { self.work_for(nodes.len()) } else { 0 };
        let few = if matches!(care, Care::Plan | Care::Best) { Care::Few } else { Care::FewSketch };
        let saved = needs_few.then(|| self.saved_with_few(candidates, few)).flatten();
        let outcome = match saved {
            Some(savings_per_hour) => Outcome { nodes, care: few, savings_per_hour, is_fit: true },
            None => Outcome { nodes, care, savings_per_hour: trial.savings_per_hour, is_fit },
        };
        (outcome, work)
    }

    /// Whether fewer new nodes than in a trial, which cost no less, may be allowed and save enough.
    fn could_gain_with_few(&self, candidates: &[&Candidate], trial: &Trial) -> bool {
        let Consolidation { terms, .. } = self.consolidation;
        terms.favour_fewer(candidates) && self.consolidation.threshold.for_last_at_least().gain(candidates, trial) > 0.0
    }

    /// What is saved with as few new nodes as are found, where that keeps the terms.
    fn saved_with_few(&self, candidates: &[&Candidate], few: Care) -> Option<f64> {
        let trial = self.consolidation.scene.try_without(candidates, few).ok()?;
        self.consolidation.terms.allow(candidates, &trial).then_some(trial.savings_per_hour)
    }
}

impl<'k, 'c, 's> Climb<'k, 'c, 's> {
    pub(super) fn new(field: &'k Field<'k, 'c, 's>, threshold: Threshold, sketch: Care) -> Self {
        Self { field, threshold, bound: None, sketch, work: AtomicUsize::new(0) }
    }

    /// The same with something that all nodes of a set must be worth together.
    pub(super) fn bound_by(self, threshold: Threshold) -> Self {
        Self { bound: Some(threshold), ..self }
    }

    /// The set that a search from there ends with.
    fn from(&self, start: Start) -> Option<Found> {
        let found = match start {
            Start::Wasteful(_) => self.best_prefix().or_else(|| self.best_single())?,
            Start::All => self.try_all((0..self.field.order.len()).collect(), self.sketch)?,
        };
        Some(self.improved(found, (self.field.order.len() / PARTS).max(1), self.sketch))
    }

    /// A set that another search found, as this one sees it; improved in a small cluster.
    fn resumed(&self, found: &Found) -> Found {
        let found = self.appraised(found.outcome.clone());
        if self.field.is_small() { self.improved(found, 1, self.sketch) } else { found }
    }

    /// The best sets that come of those from all starts, with the same threshold or a lower one; none of them twice.
    pub(super) fn followed(starts: &[Found], climb: impl Fn(&Found) -> Self + Send + Sync) -> Vec<Found> {
        let mut all = parallel::map(starts, |found| climb(found).resumed(found));
        all.sort_by_key(|found| Reverse(found.rank()));
        all.dedup_by(|other, found| other.outcome.nodes == found.outcome.nodes && other.sketch == found.sketch);
        all.truncate(if starts.first().is_some_and(|first| climb(first).field.is_small()) { FOLLOWED } else { 1 });
        let mut ends = parallel::map(&all, |found| climb(found).swapped(found.clone()));
        ends.sort_by_key(|found| Reverse(found.rank()));
        ends.dedup_by(|other, found| other.outcome.nodes == found.outcome.nodes);
        ends
    }

    /// The best of the sets of the first nodes, if any gains something.
    fn best_prefix(&self) -> Option<Found> {
        let mut sizes = self.field.prefix_sizes();
        let mut known: BTreeMap<usize, Option<Found>> = BTreeMap::new();
        for _ in 0..=self.field.consolidation.share_of(REFINEMENTS).min(REFINEMENTS) {
            sizes.retain(|size| !known.contains_key(size));
            let found = parallel::map(&sizes, |&size| self.try_all((0..size).collect(), self.sketch));
            let found = found.into_iter().map(|found| found.filter(|found| found.is_allowed && found.gain > 0.0));
            known.extend(sizes.drain(..).zip(found));
            let Some(best) = best_of(&known) else { break };
            let below = known.range(..best).next_back().map(|(&size, _)| size.midpoint(best));
            let above = known.range(best + 1..).next().map(|(&size, _)| size.midpoint(best));
            sizes.extend(below.into_iter().chain(above));
        }
        let best = best_of(&known)?;
        known.remove(&best).flatten()
    }

    /// The best of the nodes that may go alone.
    fn best_single(&self) -> Option<Found> {
        let field = self.field;
        let most = field.consolidation.share_of(MAX_SKETCHED) / field.work_for(1).max(1);
        let first: Vec<usize> = (0..field.order.len().min(most)).collect();
        let found = parallel::map(&first, |&node| self.try_all(BTreeSet::from([node]), self.sketch));
        Found::best(found.into_iter().flatten())
    }

    /// A set that gains more, as far as one is found by leaving out or adding parts, from parts of this size to single nodes.
    fn improved(&self, mut found: Found, mut size: usize, care: Care) -> Found {
        let start = self.work.load(Ordering::Relaxed);
        let most = self.field.consolidation.share_of(if care == Care::Plan { MAX_PLANNED } else { MAX_SKETCHED });
        loop {
            let mut changes = self.changes(&found, size);
            let done = self.work.load(Ordering::Relaxed) - start;
            if done + changes.len().saturating_mul(self.field.work_for(found.outcome.nodes.len())) > most {
                return found;
            }
            if care == Care::Plan {
                changes = self.promising(&found, changes);
            }
            let (best, others) = self.changed(found, changes, care);
            found = best;
            if size == 1 && others.is_some() {
                return found;
            }
            size = (size / 2).max(1);
        }
    }

    /// What can be left out of a set, or added to it, in parts of this size.
    fn changes(&self, found: &Found, size: usize) -> Vec<Change> {
        let all: Vec<usize> = (0..self.field.order.len()).collect();
        all.chunks(size).flat_map(|part| Change::all(part, &found.outcome.nodes)).collect()
    }

    /// Of some changes those that look best in sketches, as many as are planned. A plan takes the time of a dozen sketches.
    fn promising(&self, found: &Found, changes: Vec<Change>) -> Vec<Change> {
        let tried = parallel::map(&changes, |change| self.try_all(change.apply(&found.outcome.nodes), self.sketch));
        let mut tried: Vec<(Change, Option<Found>)> = changes.into_iter().zip(tried).collect();
        tried.sort_by_key(|(_, other)| Reverse(other.as_ref().map(Found::rank)));
        tried.truncate(if self.field.is_small() { PLANNED_IN_SMALL } else { PLANNED });
        tried.into_iter().map(|(change, _)| change).collect()
    }

    /// The set with those changes that gain something. If there are none, the changes too, those that lose least first.
    fn changed(&self, mut found: Found, changes: Vec<Change>, care: Care) -> (Found, Option<Vec<Change>>) {
        let tried = parallel::map(&changes, |change| self.try_all(change.apply(&found.outcome.nodes), care));
        let tried = changes.into_iter().zip(tried).filter_map(|(change, other)| Some((change, other?)));
        let mut tried: Vec<(Change, Found)> = tried.collect();
        tried.sort_by_key(|(_, other)| Reverse(other.rank()));
        if tried.first().is_none_or(|(_, other)| other.rank() <= found.rank()) {
            return (found, Some(tried.into_iter().map(|(change, _)| change).collect()));
        }
        let before = found.rank();
        for (index, (change, alone)) in tried.into_iter().take_while(|(_, other)| other.rank() > before).enumerate() {
            let other = if index == 0 { Some(alone) } else { self.try_all(change.apply(&found.outcome.nodes), care) };
            found = other.filter(|other| other.rank() > found.rank()).unwrap_or(found);
        }
        (found, None)
    }

    /// A set that gains more, in a small cluster by two changes at a time too, of which each alone loses little.
    fn swapped(&self, mut found: Found) -> Found {
        if !self.field.is_small() {
            return self.improved(found, 1, self.sketch);
        }
        for _ in 0..MAX_SWAPS {
            let changes = self.changes(&found, 1);
            let (best, near) = self.changed(found, changes, self.sketch);
            found = best;
            let Some(mut near) = near else { continue };
            near.truncate(SWAPPED);
            let pairs: Vec<(&Change, &Change)> =
                near.iter().enumerate().flat_map(|(index, a)| near[..index].iter().map(move |b| (a, b))).collect();
            let both =
                |&(a, b): &(&Change, &Change)| self.try_all(a.apply(&b.apply(&found.outcome.nodes)), self.sketch);
            let best = Found::best(parallel::map(&pairs, both).into_iter().flatten());
            let Some(best) = best.filter(|best| best.rank() > found.rank()) else { break };
            found = self.improved(best, 1, self.sketch);
        }
        found
    }

    /// The best of sets that are planned, and improved as far as they are nearly as good as the best of them.
    pub(super) fn best_planned(sets: &[Found], climb: impl Fn(&Found) -> Self + Send + Sync) -> Option<Found> {
        let mut planned = parallel::map(sets, |found| climb(found).planned(found.clone()));
        let best = Found::best(planned.iter().cloned())?;
        let least = best.gain - best.gain.abs() * MOST_BEHIND;
        planned.retain(|found| found.is_allowed == best.is_allowed && found.gain >= least);
        Found::best(parallel::map(&planned, |found| climb(found).improved(found.clone(), 1, Care::Plan)))
    }

    /// The same nodes with a better plan, if there is one.
    fn planned(&self, found: Found) -> Found {
        let better = self.try_all(found.outcome.nodes.clone(), Care::Plan);
        better.filter(|better| better.rank() > found.rank()).unwrap_or(found)
    }

    /// What is gained if all of these go, without those of which a pod would have no place; `None` if none is left.
    fn try_all(&self, nodes: BTreeSet<usize>, care: Care) -> Option<Found> {
        let tried = self.field.tried(nodes, care);
        self.work.fetch_add(tried.work, Ordering::Relaxed);
        Some(self.appraised(tried.outcome.clone()?))
    }

    fn appraised(&self, outcome: Outcome) -> Found {
        let (evictions, price) = evictions_and_price(&self.field.candidates(&outcome.nodes));
        let saved = outcome.savings_per_hour;
        let gain = saved - self.threshold.per_hour(evictions, price);
        let is_allowed = self.bound.is_none_or(|bound| saved > bound.per_hour(evictions, price)) && outcome.is_fit;
        Found { outcome, sketch: self.sketch, gain, evictions, price, is_allowed }
    }
}

/// Nodes that are left out of a set, or added to it.
struct Change {
    nodes: BTreeSet<usize>,
    is_out: bool,
}

impl Change {
    /// What can be done with a part of all nodes: leave out those that are in the set, or add the others.
    fn all(part: &[usize], set: &BTreeSet<usize>) -> impl Iterator<Item = Self> {
        let (inside, outside): (BTreeSet<usize>, BTreeSet<usize>) = part.iter().partition(|node| set.contains(node));
        let changes = [Self { nodes: inside, is_out: true }, Self { nodes: outside, is_out: false }];
        changes.into_iter().filter(|change| !change.nodes.is_empty())
    }

    fn apply(&self, set: &BTreeSet<usize>) -> BTreeSet<usize> {
        if self.is_out { set - &self.nodes } else { set | &self.nodes }
    }
}

/// The size of the set that gains most; of several the smallest.
fn best_of(known: &BTreeMap<usize, Option<Found>>) -> Option<usize> {
    let gains = known.iter().filter_map(|(&size, found)| Some((found.as_ref()?.gain, size)));
    gains.reduce(|a, b| if b.0 > a.0 { b } else { a }).map(|(_, size)| size)
}
