//! Second thoughts about the domains that pods are given.
//!
//! Classes are divided among domains before the search, by what the cheapest nodes there charge for a share of them. Only the search
//! knows who takes which room, and what the last node of a domain costs. Each try lets a class have fewer pods in one of its
//! domains, so that they go to others, and is kept if more pods find nodes, or the same for less. Where pods are left, it was
//! perhaps others that took what a limit leaves, and the domain was not full: then a try lets it have one pod more.
//!
//! A node is not saved for as long as one class stays on it. So all classes that are in a domain and can be elsewhere leave it
//! together, too.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{
    lot::{Lots, settled},
    parallel,
    problem::{Aim, Course, Order, Problem, SpotTypes, Trials},
    refine::LEAST_SAVED,
    search::Search,
    shelf::Answers,
    topology::{Allotment, Domain, Lessons, Subject, allot, domains_of_classes},
};

/// The most tries, the most pairs of units and candidates in all of them, and the most domains that classes are divided among.
const MAX_TRIES: usize = 60;
const MAX_PAIRS: usize = 2_000_000;
const MAX_DOMAINS_OF_CLASSES: usize = 60_000;
/// With so few pairs of units and candidates each outcome is refined before it is compared.
const FEW_PAIRS: usize = 10_000;
/// How many tries begin with the same outcome, on as many threads as there are.
const TRIES_AT_ONCE: usize = 4;
/// The most outcomes that are remembered.
const MOST_KNOWN: usize = 200;
/// For how many tries of one class there is one more in which all leave a domain.
const CLASSES_PER_DOMAIN: usize = 3;
/// How often pods of a try are divided at most: limits and full domains are known from before.
const MAX_DIVISIONS: usize = 4;
/// How many domains pods leave at most in a try, one after the other.
const MAX_DOMAINS: usize = 6;

/// What came of a division.
#[derive(Clone)]
struct Outcome {
    lessons: Lessons,
    /// How many pods of each class find no node.
    left: Vec<usize>,
    /// How many wishes are given up.
    given_up: usize,
    /// How far the pods are from the heaviest pools.
    lightness: usize,
    /// What the nodes cost, in dollars an hour.
    bill: f64,
    /// How many pods are where, and how many might be left there if others went to another domain.
    domains: Vec<(usize, Subject, usize)>,
    /// What the division comes to, whatever the search finds.
    settled: Settled,
}

/// Who could be in another domain, and how many would be in this one.
type Choice = (Subject, usize);
/// By class, how many pods have a domain, and how many wishes are given up for it.
pub(super) type Settled = BTreeMap<usize, (usize, usize)>;

/// What a try begins with, and what is known by then.
type Start<'o> = (&'o Outcome, &'o Known);

/// Looks for something better than an outcome.
type Attempt<'a> = fn(&Problem<'a>, &Outcome, &mut Tries) -> Option<Arc<Outcome>>;

/// What was tried, and how many tries are left: those of one class, and those in which all leave a domain.
struct Tries {
    choices: BTreeSet<Choice>,
    choices_left: usize,
    domains: BTreeSet<Domain>,
    domains_left: usize,
    known: Known,
}

/// What came of what was tried.
struct Known {
    /// What comes of lessons.
    of_lessons: Answers<Lessons, Option<Arc<Outcome>>>,
    /// What comes of divisions that teach nothing more, to which different lessons often lead.
    of_divisions: Answers<Allotment, Outcome>,
}

impl Tries {
    fn new(most: usize) -> Self {
        Self {
            choices: BTreeSet::new(),
            choices_left: most,
            domains: BTreeSet::new(),
            domains_left: most / CLASSES_PER_DOMAIN,
            known: Known { of_lessons: Answers::up_to(MOST_KNOWN), of_divisions: Answers::up_to(MOST_KNOWN) },
        }
    }
}

impl Outcome {
    /// What came of a search, with cheaper nodes where finding them takes no time.
    fn of(search: &Search<'_, '_>, lessons: Lessons) -> Self {
        let refined = (search.problem.pairs() <= FEW_PAIRS).then(|| search.clone().refined());
        let search = refined.as_ref().unwrap_or(search);
        let (problem, planned) = (search.problem, search.planned());
        let mut left: Vec<usize> = problem.base.classes.list.iter().map(|class| class.pods.len()).collect();
        for (class, count) in problem.lots.planned_of_classes(&planned) {
            left[class] -= count;
        }
        Self {
            lessons,
            left,
            given_up: problem.given_up(&planned),
            lightness: search.lightness(),
            bill: search.bill(),
            domains: problem.lots.choices(&planned),
            settled: problem.lots.settled(),
        }
    }

    fn left_count(&self) -> usize {
        self.left.iter().sum()
    }

    /// The pods that are where they are given domains.
    fn subjects(&self) -> impl Iterator<Item = &Subject> {
        self.domains.iter().map(|(_, subject, _)| subject)
    }

    /// Whether fewer pods of a class have a domain in a division than in this, or give up more for it.
    fn is_better_for(&self, class: usize, other: &Settled) -> bool {
        let of = |settled: &Settled| settled.get(&class).copied().unwrap_or_default();
        let ((pods, wishes), (other_pods, other_wishes)) = (of(&self.settled), of(other));
        other_pods < pods || other_wishes > wishes
    }

    /// How many pods are in a domain.
    fn count(&self, subject: &Subject) -> usize {
        self.domains.iter().find(|(_, other, _)| other == subject).map_or(0, |(here, ..)| *here)
    }

    /// Domains that could have fewer pods.
    fn fewer(&self) -> impl Iterator<Item = Choice> {
        self.domains.iter().map(|(_, subject, most)| (subject.clone(), *most))
    }

    /// Domains that could have one pod more than was learned, as far as pods are left.
    fn more(&self) -> impl Iterator<Item = Choice> {
        let known = self.lessons.most.iter().filter(|_| self.left_count() > 0);
        known.map(|(subject, most)| (subject.clone(), *most + 1))
    }

    fn is_better_than(&self, other: &Self) -> bool {
        let rank = |outcome: &Self| (outcome.left_count(), outcome.given_up, outcome.lightness);
        let (own, others) = (rank(self), rank(other));
        own < others || own == others && self.bill < other.bill - LEAST_SAVED
    }
}

impl<'a> Problem<'a> {
    /// Lessons by which a search finds a better plan than by those of another search, if tries find any: first those of single
    /// classes, then those of whole domains too.
    pub(super) fn reconsidered(&self, search: &Search<'_, '_>, lessons: &Lessons) -> [Option<Lessons>; 2] {
        if !search.problem.is_small() || !self.is_open_to_doubt() {
            return [None, None];
        }
        let pairs = search.problem.pairs().max(1);
        let domains = domains_of_classes(&self.base).max(1);
        let mut tries = Tries::new(MAX_TRIES.min(MAX_PAIRS / pairs).min(MAX_DOMAINS_OF_CLASSES / domains));
        let mut best = Arc::new(Outcome::of(search, lessons.clone()));
        tries.known.of_lessons.keep(lessons.clone(), Arc::new(Some(best.clone())));
        let attempts: [Attempt<'a>; 2] = [Self::better_for_one, Self::better];
        attempts.map(|attempt| {
            let mut is_better = false;
            while let Some(found) = attempt(self, &best, &mut tries) {
                (best, is_better) = (found, true);
            }
            is_better.then(|| best.lessons.clone())
        })
    }

    /// Something better than this.
    fn better(&self, best: &Outcome, tries: &mut Tries) -> Option<Arc<Outcome>> {
        self.better_for_one(best, tries).or_else(|| self.better_for_all(best, tries))
    }

    /// Something better than this, in which pods of one class are elsewhere.
    fn better_for_one(&self, best: &Outcome, tries: &mut Tries) -> Option<Arc<Outcome>> {
        while tries.choices_left > 0 && self.can_better(best) {
            let (fewer, more) = (best.fewer().map(|choice| (choice, false)), best.more().map(|choice| (choice, true)));
            let new = fewer.chain(more).filter(|(choice, _)| !tries.choices.contains(choice));
            let next: Vec<(Choice, bool)> = new.take(TRIES_AT_ONCE).collect();
            if next.is_empty() {
                break;
            }
            let attempt = |(choice, is_more): &(Choice, bool)| {
                let mut left = tries.choices_left;
                let found = self.with_other(choice, *is_more, (best, &tries.known), &mut left);
                (found, tries.choices_left - left)
            };
            for ((choice, _), (found, spent)) in next.iter().zip(parallel::map(&next, attempt)) {
                tries.choices.insert(choice.clone());
                tries.choices_left = tries.choices_left.saturating_sub(spent);
                if found.is_some() {
                    return found;
                }
            }
        }
        None
    }

    /// Something better than this, in which a domain has fewer pods, or one more.
    fn with_other(&self, choice: &Choice, is_more: bool, from: Start<'_>, left: &mut usize) -> Option<Arc<Outcome>> {
        if is_more {
            return self.with_more(choice.clone(), from, left);
        }
        self.without(choice.clone(), from, left).or_else(|| self.without_afresh(choice.clone(), from, left))
    }

    /// Something better than this, in which all leave a domain that can.
    fn better_for_all(&self, best: &Outcome, tries: &mut Tries) -> Option<Arc<Outcome>> {
        while tries.domains_left > 0 && self.can_better(best) {
            let domain = best.subjects().flat_map(Subject::domains).find(|domain| !tries.domains.contains(domain))?;
            tries.domains.insert(domain.clone());
            let found = self.without_domain(domain, best, tries);
            if found.is_some() {
                return found;
            }
        }
        None
    }

    /// Whether an outcome is better than another. What the order of size leaves is the measure of who may be left: in it, pods of
    /// no class may be left for the sake of others, and never those that are sure of room.
    fn prefers(&self, found: &Outcome, best: &Outcome) -> bool {
        let Course { order, sure, .. } = &self.course;
        let may_lose = |class: &usize| !matches!(order, Order::Size | Order::Tightest) && !sure.contains_key(class);
        let mut more = (0..best.left.len()).filter(|&class| found.left[class] > best.left[class]);
        found.is_better_than(best) && more.all(|class| may_lose(&class))
    }

    fn can_better(&self, best: &Outcome) -> bool {
        !self.is_stopped() && (best.bill > 0.0 || best.left_count() > 0)
    }

    /// Something better than this, in which pods leave a domain, and then those to which they go instead.
    fn without(&self, mut choice: Choice, (best, known): Start<'_>, left: &mut usize) -> Option<Arc<Outcome>> {
        let class = choice.0.class();
        let mut lessons = best.lessons.clone();
        for _ in 0..MAX_DOMAINS {
            *left = left.checked_sub(1)?;
            lessons.most.insert(choice.0, choice.1);
            let found = self.outcome(&lessons, known)?;
            if self.prefers(&found, best) {
                return Some(found);
            }
            let has_come =
                |(here, subject, _): &&(usize, Subject, usize)| subject.class() == class && *here > best.count(subject);
            choice = found.domains.iter().find(has_come).map(|(_, subject, most)| (subject.clone(), *most))?;
            lessons = found.lessons.clone();
        }
        None
    }

    /// Something better than this, in which pods leave a domain and others learn anew what they find there, if pods are left: what
    /// they learned was perhaps that these were there.
    fn without_afresh(
        &self,
        (subject, most): Choice,
        (best, known): Start<'_>,
        left: &mut usize,
    ) -> Option<Arc<Outcome>> {
        let mut lessons = best.lessons.clone();
        lessons.most.retain(|other, _| other.class() == subject.class());
        if best.left_count() == 0 || lessons.most.len() == best.lessons.most.len() {
            return None;
        }
        *left = left.checked_sub(1)?;
        lessons.given_up.retain(|class| *class == subject.class());
        lessons.most.insert(subject, most);
        self.outcome(&lessons, known).filter(|found| self.prefers(found, best))
    }

    /// Something better than this, in which all leave a domain that can, and then those to which they go instead.
    fn without_domain(&self, mut domain: Domain, best: &Outcome, tries: &mut Tries) -> Option<Arc<Outcome>> {
        let mut lessons = best.lessons.clone();
        let mut leaving: BTreeSet<Subject> =
            best.subjects().filter(|subject| subject.is_in(&domain)).cloned().collect();
        for _ in 0..MAX_DOMAINS {
            tries.domains_left = tries.domains_left.checked_sub(1)?;
            lessons = self.left_by(leaving, &lessons, best, &tries.choices)?;
            let found = self.outcome(&lessons, &tries.known)?;
            if self.prefers(&found, best) {
                return Some(found);
            }
            // Those that stayed in a domain before all this are not those that came to it.
            leaving = found.subjects().filter(|subject| best.count(subject) == 0).cloned().collect();
            domain = leaving
                .iter()
                .flat_map(Subject::domains)
                .find(|(key, value)| *key == domain.0 && *value != domain.1)?;
            leaving.retain(|subject| subject.is_in(&domain));
            lessons = found.lessons.clone();
        }
        None
    }

    /// Lessons by which pods are in their domains no more, but for classes that fare worse elsewhere; `None` if nobody leaves,
    /// or one class alone that did already.
    fn left_by(
        &self,
        mut leaving: BTreeSet<Subject>,
        so_far: &Lessons,
        best: &Outcome,
        tried: &BTreeSet<Choice>,
    ) -> Option<Lessons> {
        for _ in 0..MAX_DIVISIONS {
            let is_known = leaving.len() == 1 && leaving.iter().all(|subject| tried.contains(&(subject.clone(), 0)));
            if leaving.is_empty() || is_known {
                return None;
            }
            let mut lessons = so_far.clone();
            lessons.most.extend(leaving.iter().map(|subject| (subject.clone(), 0)));
            let settled = settled(&allot(&self.base, &lessons, &self.course).portions);
            let before = leaving.len();
            leaving.retain(|subject| !best.is_better_for(subject.class(), &settled));
            if leaving.len() == before {
                return Some(lessons);
            }
        }
        None
    }

    /// Something better than this, in which one pod more goes to a domain, and to others no more than are there.
    fn with_more(&self, (subject, most): Choice, (best, known): Start<'_>, left: &mut usize) -> Option<Arc<Outcome>> {
        *left = left.checked_sub(1)?;
        let mut lessons = best.lessons.clone();
        let others = best.domains.iter().filter(|(_, other, _)| other.class() == subject.class());
        lessons.most.extend(others.map(|(here, other, _)| (other.clone(), *here)));
        lessons.given_up.remove(&subject.class());
        lessons.most.insert(subject, most);
        self.outcome(&lessons, known).filter(|found| self.prefers(found, best))
    }

    /// Whether the division of pods among domains may be looked at again: once for each plan, and not for each of those that are
    /// made to weigh wishes.
    fn is_open_to_doubt(&self) -> bool {
        let course = &self.course;
        course.trials == Trials::All
            && (course.aim == Aim::Pods || course.spot_types == SpotTypes::Enough)
            && matches!(course.order, Order::Need | Order::Size | Order::Tightest)
            && !course.spills
            && course.first.is_empty()
            && self.base.weighing.is_none()
    }

    /// What comes of a division by these lessons, and those that it teaches; `None` if it teaches ever more.
    fn outcome(&self, lessons: &Lessons, known: &Known) -> Option<Arc<Outcome>> {
        let found = known.of_lessons.get(lessons, Lessons::clone, || Arc::new(self.worked_out(lessons, known)));
        Option::clone(&found)
    }

    /// The same, where it is not known of the lessons themselves.
    fn worked_out(&self, lessons: &Lessons, known: &Known) -> Option<Arc<Outcome>> {
        let mut lessons = lessons.clone();
        for _ in 0..MAX_DIVISIONS {
            if self.is_stopped() {
                return None;
            }
            let allotment = allot(&self.base, &lessons, &self.course);
            if let Some(known) = known.of_divisions.known(&allotment) {
                return Some(Arc::new(Outcome { lessons, ..Outcome::clone(&known) }));
            }
            let lots = Lots::new(&self.base, allotment.clone());
            let divided = Problem::of_lots(self.base.clone(), lots, self.course.clone());
            let search = divided.first_search();
            let Some(learned) = search.lessons(&lessons) else {
                let found = Arc::new(Outcome::of(&search, lessons));
                known.of_divisions.keep(allotment, found.clone());
                return Some(found);
            };
            lessons = learned;
        }
        None
    }
}
