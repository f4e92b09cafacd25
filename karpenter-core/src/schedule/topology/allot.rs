//! Divides the classes among domains, one class after the other.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{
    Allotment, Blocked, Ladders, Lessons, Neighbourhood, Portion, PortionKey, Rules, Subject, Term,
    domains::Domains,
    near::Company,
    seek::Seek,
    settle::{Step, pins},
    spreading::Spreading,
    whereabouts::{Relations, Whereabouts},
};
use crate::{
    NodeAlternatives, Requirements,
    reason::TopologyObstacle,
    schedule::{
        class::Constraint,
        problem::{Base, Course},
    },
};

/// Divides all classes but those that are set aside.
pub(in crate::schedule) fn allot(base: &Base<'_>, lessons: &Lessons, course: &Course) -> Allotment {
    let mut allotter = Allotter::new(base, lessons, course);
    for &class in &course.aside {
        allotter.block(class, None);
    }
    let (mut waiting, mut first): (Vec<usize>, Vec<usize>) =
        allotter.order().into_iter().partition(|&class| !base.classes.neighbourhood(class).hard().near.is_empty());
    allotter.set_aside(&mut first, &waiting);
    allotter.allot_all(&first);
    // Those that must be near others come once the others have a place.
    loop {
        let before = waiting.len();
        waiting.retain(|&class| !allotter.allot(class, true));
        if waiting.len() == before {
            break;
        }
    }
    for class in waiting {
        allotter.allot(class, false);
    }
    allotter.out.portions.retain(|portion| portion.units > 0);
    allotter.out
}

pub(super) struct Allotter<'b, 'a> {
    pub(super) base: &'b Base<'a>,
    pub(super) lessons: &'b Lessons,
    ladders: &'b Ladders,
    pub(super) spreads_evenly: bool,
    pub(super) domains: Domains<'b, 'a>,
    pub(super) out: Allotment,
    /// Which pods are known to be where, and whom they keep away.
    pub(super) whereabouts: Whereabouts,
    /// The pods with a spread that are allotted to domains.
    pub(super) spreading: Spreading,
    pub(super) relations: Relations,
    /// How many pods were given domains that rules count.
    pub(super) given: usize,
    /// How many pods of each class have no domain yet.
    pub(super) left: Vec<usize>,
    /// The places of portions of single pods, by their keys.
    by_key: BTreeMap<PortionKey, usize>,
}

impl<'b, 'a> Allotter<'b, 'a> {
    fn new(base: &'b Base<'a>, lessons: &'b Lessons, course: &'b Course) -> Self {
        Self {
            base,
            lessons,
            ladders: &course.ladders,
            spreads_evenly: course.spreads_as_evenly_as_can_be(),
            domains: Domains::new(base),
            out: Allotment::default(),
            whereabouts: Whereabouts::new(base),
            spreading: Spreading::default(),
            relations: Relations::new(&base.classes),
            given: 0,
            left: base.classes.list.iter().map(|class| class.pods.len()).collect(),
            by_key: BTreeMap::new(),
        }
    }

    /// The classes in the order in which they are divided: those that keep others out of domains first, those that wish
    /// to be near others last; of the rest those with the least choice first. Pods that ask for certain nodes do not
    /// count all others, but are counted by them, so that they come before pods that do not.
    fn order(&mut self) -> Vec<usize> {
        let is_shared = |term: &Term| !term.is_by_host();
        let mut keyed: Vec<_> = (0..self.base.classes.list.len())
            .map(|class| {
                let rules = self.neighbourhood(class).rules_at(self.ladders.first(class));
                let keys: BTreeSet<_> =
                    rules.spreads.iter().map(|s| &s.term).filter(|t| is_shared(t)).map(|t| t.key.clone()).collect();
                let keys: Vec<_> = keys.into_iter().collect();
                let choice = if keys.is_empty() { usize::MAX } else { self.reach_alone(class, &keys) };
                let phase = match () {
                    () if rules.away.iter().any(is_shared) => 0,
                    () if rules.near.is_empty() => 1,
                    () => 2,
                };
                let is_anywhere = self.constraint(class).wanted == NodeAlternatives::any();
                (phase, choice, is_anywhere, class)
            })
            .collect();
        keyed.sort_unstable();
        keyed.into_iter().map(|(.., class)| class).collect()
    }

    /// Takes out classes that no node has room for, so that none of those that wait for company waits for them.
    fn set_aside(&mut self, first: &mut Vec<usize>, waiting: &[usize]) {
        first.retain(|&class| {
            let is_wanted = |&other: &usize| self.is_company(class, &self.neighbourhood(other).hard().near);
            let is_hopeless = waiting.iter().any(is_wanted) && !self.has_node(class);
            if is_hopeless {
                self.block(class, None);
            }
            !is_hopeless
        });
    }

    /// Whether some node has room for a pod of a class, whatever its neighbours.
    pub(super) fn has_node(&mut self, class: usize) -> bool {
        let constraint = self.seeker(class, self.base.classes.node_wanted(class));
        self.domains.takes(&constraint, &self.base.classes.list[class].requests)
    }

    /// How many domains a class can reach, without those that were learned to be full.
    fn reach_alone(&mut self, class: usize, keys: &[Arc<str>]) -> usize {
        let constraint = self.seeker(class, self.base.classes.node_wanted(class));
        let reach = self.domains.reach(&constraint, &self.base.classes.list[class].requests, keys);
        let first = self.ladders.first(class);
        reach.keys().filter(|cell| self.most(class, first, &pins(keys, cell)) > 0).count()
    }

    pub(super) fn constraint(&self, class: usize) -> &'b Constraint {
        &self.base.classes.constraints[self.base.classes.list[class].constraint]
    }

    pub(super) fn neighbourhood(&self, class: usize) -> &'b Neighbourhood {
        self.base.classes.neighbourhood(class)
    }

    /// The labels over which the pods of a class must be spread, in order.
    pub(super) fn spread_keys(&self, class: usize) -> Vec<Arc<str>> {
        self.neighbourhood(class).hard().spread_keys()
    }

    /// Divides classes that need no others, in this order.
    ///
    /// A class that can reach few domains may have to wait until others have raised the emptiest domain of a spread that
    /// they share. The others then come one pod at a time, so that they raise it no further than they must.
    fn allot_all(&mut self, order: &[usize]) {
        let mut waiting: Vec<usize> = Vec::new();
        for (position, &class) in order.iter().enumerate() {
            let others = &order[position + 1..];
            while self.left[class] > 0 && waiting.iter().any(|&other| self.shares_spread(class, other)) {
                let before = self.left[class];
                self.divide(class, 1);
                for &other in &waiting {
                    self.divide(other, usize::MAX);
                }
                waiting.retain(|&other| self.left[other] > 0);
                if self.left[class] == before {
                    break;
                }
            }
            let obstacle = self.divide(class, usize::MAX);
            if self.left[class] == 0 {
                continue;
            }
            if others.iter().any(|&other| self.shares_spread(class, other)) {
                waiting.push(class);
            } else {
                self.block(class, obstacle);
            }
        }
        for class in waiting {
            let obstacle = self.divide(class, usize::MAX);
            self.block(class, obstacle);
        }
    }

    /// Whether two classes are counted by one spread over domains that both have.
    fn shares_spread(&self, class: usize, other: usize) -> bool {
        let own = &self.neighbourhood(class).hard().spreads;
        let theirs = &self.neighbourhood(other).hard().spreads;
        own.iter().any(|own| !own.term.is_by_host() && theirs.iter().any(|other| other.term == own.term))
    }

    /// Divides a class and says whether that is done. One that `may_wait` is left alone if it needs others that have no
    /// place yet where it can go.
    fn allot(&mut self, class: usize, may_wait: bool) -> bool {
        let obstacle = self.divide(class, usize::MAX);
        let lacks_company = matches!(&obstacle, Some(TopologyObstacle::Affinity { .. } | TopologyObstacle::OneNode));
        if self.left[class] > 0 && may_wait && lacks_company {
            return false;
        }
        self.block(class, obstacle);
        true
    }

    /// Leaves what is left of a class without a place. No rule about neighbours is to blame where none would have one alone.
    fn block(&mut self, class: usize, obstacle: Option<TopologyObstacle>) {
        let count = std::mem::take(&mut self.left[class]);
        if count > 0 {
            let obstacle = obstacle.filter(|_| self.has_node(class));
            self.out.blocked.push(Blocked { class, count, obstacle });
        }
    }

    /// Gives domains to pods of a class, at most so many at each step of wishes, and gives back the rule that is in the
    /// way of the others.
    fn divide(&mut self, class: usize, most: usize) -> Option<TopologyObstacle> {
        if self.lessons.given_up.contains(&class) {
            return None;
        }
        let (mut obstacle, is_partial) = (None, most < usize::MAX);
        for level in self.ladders.of(class, self.neighbourhood(class).levels()) {
            let rules = self.neighbourhood(class).rules_at(level);
            let most = if rules.wishes_for_nodes { most.min(self.base.sure_nodes) } else { most };
            let count = self.left[class].min(most);
            let (seek, mut left) = self.settle_near((class, level), &rules, count);
            if left > 0 && self.may_share_nodes_to_come(&rules) {
                let beside = self.seek((class, level), &rules, Company::Planned);
                left = beside.map_or(left, |seek| {
                    self.settle(&Step { class, level, rules: &rules, seek: &seek, below: None }, left)
                });
            }
            self.left[class] -= count - left;
            if left < count && is_partial {
                return None;
            }
            if left > 0 {
                obstacle = match &seek {
                    Ok(seek) => self.why_left(&Step { class, level, rules: &rules, seek, below: None }),
                    Err(missing) => Some(missing.clone()),
                };
            }
            if self.left[class] == 0 {
                return None;
            }
        }
        obstacle
    }

    /// Gives domains to pods where those are that they must be near to, and has these go to further domains as long as pods are
    /// left. Gives back what was sought last, and how many are left.
    fn settle_near(
        &mut self,
        (class, level): (usize, usize),
        rules: &Rules,
        mut left: usize,
    ) -> (Result<Seek, TopologyObstacle>, usize) {
        // What is only wished for is no reason to send others anywhere.
        let is_required = self.neighbourhood(class).hard().near == rules.near;
        let mut company = Company::Standing;
        loop {
            let seek = self.seek((class, level), rules, company);
            let Ok(found) = &seek else { return (seek, left) };
            let before = left;
            left = self.settle(&Step { class, level, rules, seek: found, below: None }, left);
            let may_go_further = is_required && !rules.near.is_empty() && found.is_spread();
            if left == 0 || left < before && found.pins.is_empty() && !may_go_further {
                return (seek, left);
            }
            company = match company {
                _ if left < before => Company::Standing,
                Company::Standing if may_go_further => Company::Further,
                _ => return (seek, left),
            };
        }
    }

    /// Adds a portion, to one of the same key if there is one that no others have joined.
    pub(super) fn push(&mut self, portion: Portion) {
        let is_like = |known: &Portion| known.wanted == portion.wanted && !known.is_bundle();
        match self.by_key.get(&portion.key) {
            Some(&index) if is_like(&self.out.portions[index]) => {
                self.out.portions[index].units += portion.units;
            }
            _ => {
                self.by_key.insert(portion.key.clone(), self.out.portions.len());
                self.out.portions.push(portion);
            }
        }
    }

    /// How many more pods of a class may go where these requirements pin them, as far as was learned.
    pub(super) fn most(&self, class: usize, level: usize, pins: &Requirements) -> usize {
        let key = (class, level, pins.clone());
        let units = self.by_key.get(&key).map_or(0, |&index| self.out.portions[index].units);
        self.learned(&Subject::Units(key)).map_or(usize::MAX, |most| most.saturating_sub(units))
    }

    /// The most that searches have found of something.
    pub(super) fn learned(&self, subject: &Subject) -> Option<usize> {
        self.lessons.most.get(subject).copied()
    }

    pub(super) fn seeker(&self, class: usize, wanted: NodeAlternatives) -> Constraint {
        Constraint { wanted, tolerations: self.constraint(class).tolerations.clone() }
    }
}
