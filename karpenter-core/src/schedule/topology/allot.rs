//! Divides the classes among domains, one class after the other.

use std::{
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
    sync::Arc,
};

use super::{
    Neighbourhood, Rules, Term,
    domains::{Cell, Counts, Domains},
    quota::{Counted, Open, divide},
    seek::{CountedRule, Place, Seek},
    selectors::{SelectedBy, SelectorId},
};
use crate::{
    NodeAlternatives, Requirement, Requirements,
    api::Toleration,
    reason::TopologyObstacle,
    schedule::{
        class::{Classes, Constraint},
        problem::Base,
    },
};

/// Pods that ask for the same node.
#[derive(Clone, Debug)]
pub(in crate::schedule) struct Portion {
    pub(in crate::schedule) key: PortionKey,
    /// The pods of a unit, which must be on one node.
    pub(in crate::schedule) members: Vec<Member>,
    pub(in crate::schedule) units: usize,
    pub(in crate::schedule) wanted: NodeAlternatives,
    /// Whether the pods may go elsewhere if the search finds no node, or others depend on them.
    pub(in crate::schedule) is_tentative: bool,
}

/// Tells a portion from others: a class, how many of its wishes are given up, and the domains that it is given.
pub(in crate::schedule) type PortionKey = (usize, usize, Requirements);

/// Pods of one class in a unit.
#[derive(Clone, Copy, Debug)]
pub(in crate::schedule) struct Member {
    pub(in crate::schedule) class: usize,
    /// How many wishes are given up.
    pub(in crate::schedule) level: usize,
    pub(in crate::schedule) count: usize,
}

/// Pods that no division gives a domain.
#[derive(Clone, Debug)]
pub(in crate::schedule) struct Blocked {
    pub(in crate::schedule) class: usize,
    pub(in crate::schedule) count: usize,
    /// The rule that is in the way; `None` if it is not a rule about neighbours.
    pub(in crate::schedule) obstacle: Option<TopologyObstacle>,
}

/// Who goes where.
#[derive(Clone, Debug, Default)]
pub(in crate::schedule) struct Allotment {
    pub(in crate::schedule) portions: Vec<Portion>,
    pub(in crate::schedule) blocked: Vec<Blocked>,
}

/// What earlier searches have taught.
#[derive(Clone, Debug, Default)]
pub(in crate::schedule) struct Lessons {
    /// How many units of a portion find nodes.
    pub(in crate::schedule) most: BTreeMap<PortionKey, usize>,
    /// Classes that are given up.
    pub(in crate::schedule) given_up: BTreeSet<usize>,
}

impl Portion {
    /// Single pods of a class, wherever they may go.
    pub(in crate::schedule) fn alone(classes: &Classes<'_>, class: usize) -> Self {
        let level = classes.neighbourhood(class).levels() - 1;
        Self {
            key: (class, level, Requirements::new()),
            members: vec![Member { class, level, count: 1 }],
            units: 0,
            wanted: classes.node_wanted(class),
            is_tentative: false,
        }
    }

    fn size(&self) -> usize {
        self.members.iter().map(|m| m.count).sum()
    }

    /// Whether a unit is several pods that must share a node.
    pub(super) fn is_bundle(&self) -> bool {
        self.size() > 1
    }

    /// The taints that all pods of a unit tolerate.
    pub(in crate::schedule) fn tolerations(&self, classes: &Classes<'_>) -> Vec<Toleration> {
        let of = |member: &Member| &classes.constraints[classes.list[member.class].constraint].tolerations;
        let mut members = self.members.iter();
        let mut all = members.next().map(of).cloned().unwrap_or_default();
        members.for_each(|member| all.retain(|toleration| of(member).contains(toleration)));
        all
    }

    /// What to do otherwise if only so many units find nodes: fewer units, or half as many pods in a bundle.
    pub(in crate::schedule) fn lesson(&self, placed: usize) -> (PortionKey, usize) {
        match self.members.last() {
            Some(last) if self.is_bundle() => ((last.class, last.level, Requirements::new()), last.count / 2),
            _ => (self.key.clone(), placed),
        }
    }
}

impl Lessons {
    /// Takes the smaller figure where there are two.
    pub(in crate::schedule) fn add(&mut self, found: BTreeMap<PortionKey, usize>) {
        for (key, most) in found {
            let known = self.most.entry(key).or_insert(most);
            *known = (*known).min(most);
        }
    }

    /// Gives up the classes of which something was learned in the last search: they take no lesson.
    pub(in crate::schedule) fn give_up(&mut self, last: &Self) {
        let is_new = |(key, most): &(&PortionKey, &usize)| last.most.get(*key) != Some(*most);
        let classes: Vec<usize> = self.most.iter().filter(is_new).map(|((class, ..), _)| *class).collect();
        self.given_up.extend(classes);
    }
}

/// Divides all classes.
pub(in crate::schedule) fn allot(base: &Base<'_>, lessons: &Lessons) -> Allotment {
    let mut allotter = Allotter::new(base, lessons);
    let (mut waiting, first): (Vec<usize>, Vec<usize>) =
        allotter.order().into_iter().partition(|&class| !base.classes.neighbourhood(class).hard().near.is_empty());
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
    pub(super) domains: Domains<'b, 'a>,
    pub(super) out: Allotment,
    /// Which pods are known to be in which domain, by key and domain.
    pub(super) settled: BTreeSet<(Arc<str>, Arc<str>, SelectedBy)>,
    /// Whom pods keep away from which domain, by key and domain.
    pub(super) barred: BTreeSet<(Arc<str>, Arc<str>, SelectorId)>,
    /// How many pods with a spread over a label are allotted to its domains.
    planned: BTreeMap<Term, Counts>,
    /// How many pods of each class have no domain yet.
    left: Vec<usize>,
    /// The places of portions of single pods, by their keys.
    by_key: BTreeMap<PortionKey, usize>,
}

impl<'b, 'a> Allotter<'b, 'a> {
    fn new(base: &'b Base<'a>, lessons: &'b Lessons) -> Self {
        let mut barred = BTreeSet::new();
        for (index, place) in base.snapshot.places().iter().enumerate().filter(|(_, place)| !place.is_deleting) {
            for term in base.classes.standing.away(index).iter().filter(|term| !term.is_by_host()) {
                if let Some(domain) = place.labels.get(&*term.key) {
                    barred.insert((term.key.clone(), Arc::from(domain.as_str()), term.selector));
                }
            }
        }
        Self {
            base,
            lessons,
            domains: Domains::new(base),
            out: Allotment::default(),
            settled: BTreeSet::new(),
            barred,
            planned: BTreeMap::new(),
            left: base.classes.list.iter().map(|class| class.pods.len()).collect(),
            by_key: BTreeMap::new(),
        }
    }

    /// The classes in the order in which they are divided: those that keep others out of domains first, those that wish
    /// to be near others last; of the rest those with the least choice first.
    fn order(&mut self) -> Vec<usize> {
        let is_shared = |term: &Term| !term.is_by_host();
        let mut keyed: Vec<_> = (0..self.base.classes.list.len())
            .map(|class| {
                let rules = self.base.classes.neighbourhood(class).rules_at(0);
                let keys: BTreeSet<_> =
                    rules.spreads.iter().map(|s| &s.term).filter(|t| is_shared(t)).map(|t| t.key.clone()).collect();
                let keys: Vec<_> = keys.into_iter().collect();
                let choice = if keys.is_empty() { usize::MAX } else { self.reach_alone(class, &keys) };
                let phase = match () {
                    () if rules.away.iter().any(is_shared) => 0,
                    () if rules.near.is_empty() => 1,
                    () => 2,
                };
                (phase, choice, class)
            })
            .collect();
        keyed.sort_unstable();
        keyed.into_iter().map(|(.., class)| class).collect()
    }

    fn reach_alone(&mut self, class: usize, keys: &[Arc<str>]) -> usize {
        let constraint = Constraint { wanted: self.base.classes.node_wanted(class), ..self.constraint(class).clone() };
        self.domains.reach(&constraint, &self.base.classes.list[class].requests, keys).len()
    }

    pub(super) fn constraint(&self, class: usize) -> &'b Constraint {
        &self.base.classes.constraints[self.base.classes.list[class].constraint]
    }

    pub(super) fn neighbourhood(&self, class: usize) -> &'b Neighbourhood {
        self.base.classes.neighbourhood(class)
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
    /// place yet.
    fn allot(&mut self, class: usize, may_wait: bool) -> bool {
        let obstacle = self.divide(class, usize::MAX);
        let is_missing = matches!(&obstacle, Some(TopologyObstacle::Affinity { domains, .. }) if domains.is_empty());
        if self.left[class] > 0 && may_wait && is_missing {
            return false;
        }
        self.block(class, obstacle);
        true
    }

    fn block(&mut self, class: usize, obstacle: Option<TopologyObstacle>) {
        let count = std::mem::take(&mut self.left[class]);
        if count > 0 {
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
        for level in 0..self.neighbourhood(class).levels() {
            let rules = self.neighbourhood(class).rules_at(level);
            let most = if rules.wishes_for_nodes { most.min(self.base.sure_nodes) } else { most };
            let count = self.left[class].min(most);
            match self.seek(class, &rules) {
                Ok(seek) => {
                    let left = self.settle(class, level, &rules, &seek, count, &mut obstacle);
                    self.left[class] -= count - left;
                    if left < count && is_partial {
                        return None;
                    }
                }
                Err(missing) => obstacle = Some(missing),
            }
            if self.left[class] == 0 {
                return None;
            }
        }
        obstacle
    }

    /// Gives domains to as many pods as a step of wishes allows, and gives back how many are left.
    fn settle(
        &mut self,
        class: usize,
        level: usize,
        rules: &Rules,
        seek: &Seek,
        left: usize,
        obstacle: &mut Option<TopologyObstacle>,
    ) -> usize {
        let left = match &seek.place {
            Place::Shared => return self.settle_shared(class, level, rules, seek, left, obstacle),
            Place::NodeOf { terms, starts_alone } => self.bundle(class, level, seek, terms, *starts_alone, left),
        };
        if left > 0 {
            *obstacle = Some(TopologyObstacle::OneNode);
        }
        left
    }

    fn settle_shared(
        &mut self,
        class: usize,
        level: usize,
        rules: &Rules,
        seek: &Seek,
        mut left: usize,
        obstacle: &mut Option<TopologyObstacle>,
    ) -> usize {
        let is_last = level + 1 == self.neighbourhood(class).levels();
        let can_fail = !is_last || !seek.causes.is_empty();
        let mut has_some = false;
        if seek.one_of.is_empty() && seek.counted.is_empty() && is_last && seek.causes.is_empty() {
            let portion = self.portion(class, level, Requirements::new(), seek.wanted.clone(), left, false);
            self.push(portion);
            return 0;
        }
        for pins in self.choices(class, seek) {
            let wanted = seek.wanted.narrowed(&pins);
            let shares = self.shares(class, level, seek, &wanted, &pins, left);
            for (pins, count) in shares {
                let wanted = seek.wanted.narrowed(&pins);
                let portion = self.portion(class, level, pins, wanted, count, can_fail || !seek.counted.is_empty());
                self.note(&portion, rules);
                self.push(portion);
                left -= count;
                has_some = true;
            }
            if left == 0 || has_some && seek.needs_one_domain {
                break;
            }
        }
        if left > 0 {
            *obstacle = self.why_left(class, level, seek).or(obstacle.take());
        }
        left
    }

    /// Adds a portion, to one of the same key if there is one.
    fn push(&mut self, portion: Portion) {
        match self.by_key.get(&portion.key) {
            Some(&index) if self.out.portions[index].wanted == portion.wanted => {
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
        let Some(most) = self.lessons.most.get(&key) else { return usize::MAX };
        most.saturating_sub(self.by_key.get(&key).map_or(0, |&index| self.out.portions[index].units))
    }

    /// The domains to try for labels of which the pods must all have one value, the cheapest first.
    fn choices(&mut self, class: usize, seek: &Seek) -> Vec<Requirements> {
        let constraint = self.seeker(class, &seek.wanted);
        let reach = self.domains.reach(&constraint, &self.base.classes.list[class].requests, &seek.one_of);
        let mut cells: Vec<(&Cell, f64)> = reach.iter().map(|(cell, cost)| (cell, *cost)).collect();
        cells.sort_by(|a, b| a.1.total_cmp(&b.1));
        cells.into_iter().map(|(cell, _)| pins(&seek.one_of, cell)).collect()
    }

    /// How many pods go to each domain, within what was learned.
    fn shares(
        &mut self,
        class: usize,
        level: usize,
        seek: &Seek,
        wanted: &NodeAlternatives,
        chosen: &Requirements,
        left: usize,
    ) -> Vec<(Requirements, usize)> {
        if seek.counted.is_empty() {
            let count = left.min(self.most(class, level, chosen));
            return if count == 0 { Vec::new() } else { vec![(chosen.clone(), count)] };
        }
        let (keys, mut rules) = self.counted(class, seek);
        let constraint = self.seeker(class, wanted);
        let reach = self.domains.reach(&constraint, &self.base.classes.list[class].requests, &keys);
        let with_chosen = |cell: &Cell| {
            let mut all = pins(&keys, cell);
            all.add_all(chosen);
            all
        };
        let open = reach.iter().map(|(cell, cost)| {
            let most = self.most(class, level, &with_chosen(cell));
            Open { cell: cell.clone(), cost: *cost, most }
        });
        let shares = divide(left, open.collect(), &mut rules);
        shares.into_iter().map(|(cell, count)| (with_chosen(&cell), count)).collect()
    }

    /// The labels whose domains are counted, and the rules with what is there and allotted.
    fn counted(&mut self, class: usize, seek: &Seek) -> (Vec<Arc<str>>, Vec<Counted>) {
        let keys: BTreeSet<Arc<str>> = seek.counted.iter().map(|(term, _)| term.key.clone()).collect();
        let keys: Vec<Arc<str>> = keys.into_iter().collect();
        let constraint = self.constraint(class);
        let spread_keys = &seek.spread_keys;
        let rules = seek.counted.iter().map(|(term, rule)| Counted {
            key_index: keys.iter().position(|key| *key == term.key).expect("the keys are those of the rules"),
            counts: match rule {
                CountedRule::Spread(spread) => self.domains.counts(constraint, spread, spread_keys),
                CountedRule::Alone => Rc::default(),
            },
            planned: match rule {
                CountedRule::Spread(_) => self.planned.get(term).cloned().unwrap_or_default(),
                CountedRule::Alone => Counts::new(),
            },
            rule: rule.limit(),
        });
        let rules = rules.collect();
        (keys, rules)
    }

    pub(super) fn seeker(&self, class: usize, wanted: &NodeAlternatives) -> Constraint {
        Constraint { wanted: wanted.clone(), tolerations: self.constraint(class).tolerations.clone() }
    }

    pub(super) fn portion(
        &self,
        class: usize,
        level: usize,
        pins: Requirements,
        wanted: NodeAlternatives,
        units: usize,
        is_tentative: bool,
    ) -> Portion {
        let members = vec![Member { class, level, count: 1 }];
        Portion { key: (class, level, pins), members, units, wanted, is_tentative }
    }

    /// Takes down what is known of the pods of a portion: which domains they are in, and whom they keep out of them.
    pub(super) fn note(&mut self, portion: &Portion, rules: &Rules) {
        let (class, _, pins) = &portion.key;
        let selected_by = self.neighbourhood(*class).selected_by;
        let domain_of = |key: &str| pins.get(key).and_then(Requirement::any_value);
        for (key, requirement) in pins.iter() {
            if let Some(domain) = requirement.any_value() {
                self.settled.insert((Arc::from(key), domain, selected_by));
            }
        }
        for term in &rules.away {
            if let Some(domain) = domain_of(&term.key) {
                self.barred.insert((term.key.clone(), domain, term.selector));
            }
        }
        for spread in &rules.spreads {
            let is_own = self.base.classes.selectors.selects(spread.term.selector, selected_by);
            if let Some(domain) = domain_of(&spread.term.key).filter(|_| is_own) {
                let counts = self.planned.entry(spread.term.clone()).or_default();
                *counts.entry(domain).or_default() += i64::try_from(portion.units).unwrap_or(i64::MAX);
            }
        }
    }

    /// The rule that leaves pods of a class without a domain, if one does.
    fn why_left(&mut self, class: usize, level: usize, seek: &Seek) -> Option<TopologyObstacle> {
        let (keys, rules) = self.counted(class, seek);
        let constraint = self.seeker(class, &seek.wanted);
        let reach = self.domains.reach(&constraint, &self.base.classes.list[class].requests, &keys);
        let is_full = |cell: &Cell| self.most(class, level, &pins(&keys, cell)) == 0;
        if reach.is_empty() || reach.keys().all(is_full) {
            return if reach.is_empty() { seek.causes.first().cloned() } else { None };
        }
        let obstacle = |((term, rule), counted): (&(Term, CountedRule), &Counted)| {
            let totals = counted.totals();
            match rule {
                CountedRule::Spread(spread) => TopologyObstacle::Spread {
                    key: term.key.to_string(),
                    max_skew: spread.max_skew,
                    counts: totals.into_iter().map(|(domain, count)| (domain.to_string(), count)).collect(),
                },
                CountedRule::Alone => TopologyObstacle::AntiAffinity { key: term.key.to_string(), domains: Vec::new() },
            }
        };
        seek.counted.iter().zip(&rules).map(obstacle).next().or_else(|| seek.causes.first().cloned())
    }
}

/// The requirements that a node in a cell meets.
fn pins(keys: &[Arc<str>], cell: &Cell) -> Requirements {
    let mut out = Requirements::new();
    for (key, value) in keys.iter().zip(cell) {
        out.add(key, Requirement::one_of([value.clone()]));
    }
    out
}
