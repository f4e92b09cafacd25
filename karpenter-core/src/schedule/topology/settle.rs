//! Gives the pods of a class domains, as its rules mean them now.

use std::{cmp::Reverse, collections::BTreeSet, sync::Arc};

use super::{
    Latitude, Portion, Rules, Subject, Term,
    allot::Allotter,
    domains::Counts,
    offers::{Cell, Charge, Cost, Reach},
    quota::{Counted, Open, divide},
    seek::{CountedRule, Place, Seek, left_by},
};
use crate::{Requirement, Requirements, reason::TopologyObstacle};

/// A class at one step of its wishes.
pub(super) struct Step<'s> {
    pub(super) class: usize,
    /// Which of the steps it is.
    pub(super) level: usize,
    pub(super) rules: &'s Rules,
    pub(super) seek: &'s Seek,
    /// What a pod costs less than in each domain, if it matters.
    pub(super) below: Option<Cost>,
}

/// A turn to give pods domains.
struct Turn<'s> {
    seek: &'s Seek,
    below: Option<Cost>,
    /// How many pods at most.
    most: usize,
}

impl Step<'_> {
    /// Whether pods go where they cost so much.
    fn pays(&self, cost: Cost) -> bool {
        self.below.is_none_or(|below| cost < below)
    }
}

impl Allotter<'_, '_> {
    /// Gives domains to as many pods as the rules allow, and gives back how many are left.
    pub(super) fn settle(&mut self, step: &Step<'_>, count: usize) -> usize {
        let unlabelled: Vec<Seek> = step.seek.without_labels().collect();
        let mut left = count;
        for Turn { seek, below, most } in self.turns(step, &unlabelled, count) {
            if left == 0 || left < count && seek.needs_one_domain {
                break;
            }
            let now = left.min(most);
            left -= now - self.settle_where(&Step { seek, below, ..*step }, now);
        }
        left
    }

    /// In which turns pods get domains, or nodes that lack a label of domains. On these nobody is near by the label, so that
    /// they are as good as any domain: first comes the room that they have, then only cheaper domains come before new ones.
    fn turns<'s>(&mut self, step: &Step<'s>, unlabelled: &'s [Seek], count: usize) -> Vec<Turn<'s>> {
        let turn = |seek, below, most| Turn { seek, below, most };
        let mut turns = Vec::new();
        let mut open: Vec<(Cost, usize, &Seek)> = Vec::new();
        for seek in unlabelled {
            let constraint = self.seeker(step.class, seek.wanted.clone());
            let reach = self.domains.reach_alone((step.class, step.level), &constraint, &[]);
            let Some(charge) = reach.values().next() else { continue };
            let is_divided = !seek.needs_one_domain && matches!(seek.place, Place::Shared);
            let (cost, free) = if is_divided { (charge.new, charge.free) } else { (charge.mean(count), 0) };
            open.push((cost, free, seek));
        }
        turns.extend(open.iter().filter(|(_, free, _)| *free > 0).map(|&(_, free, seek)| turn(seek, None, free)));
        open.sort_by_key(|(cost, ..)| *cost);
        for (cost, _, seek) in open {
            turns.extend([turn(step.seek, Some(cost), usize::MAX), turn(seek, None, usize::MAX)]);
        }
        turns.extend([step.seek].into_iter().chain(unlabelled).map(|seek| turn(seek, None, usize::MAX)));
        turns
    }

    fn settle_where(&mut self, step: &Step<'_>, count: usize) -> usize {
        match &step.seek.place {
            Place::Shared => self.settle_shared(step, count),
            Place::NodeOf { terms, starts_alone } => self.settle_together(step, terms, *starts_alone, count),
        }
    }

    fn settle_shared(&mut self, step: &Step<'_>, mut left: usize) -> usize {
        let &Step { class, level, rules, seek, .. } = step;
        let is_last = level + 1 == self.neighbourhood(class).levels();
        let has_choice = !seek.one_of.is_empty() || !seek.counted.is_empty();
        let is_tentative = !is_last || !seek.causes.is_empty() || has_choice || !seek.pins.is_empty();
        if !is_tentative {
            let key = (class, level, Requirements::new());
            self.push(Portion::of_pods(key, left, seek.wanted.clone(), false));
            return 0;
        }
        let latitude = self.latitude(step);
        let mut has_some = false;
        for chosen in self.choices(step, left) {
            let shares = self.shares(step, &chosen, left);
            let total: usize = shares.iter().map(|(_, count)| count).sum();
            for (pins, count) in shares {
                let wanted = seek.wanted.narrowed(&pins);
                self.note(class, &pins, count, rules);
                let portion = Portion::of_pods((class, level, pins), count, wanted, is_tentative);
                let followers = if seek.is_spread() { (total - count) / count } else { 0 };
                self.push(Portion { followers, latitude: latitude.clone(), ..portion });
                left -= count;
                has_some = true;
            }
            if left == 0 || has_some && seek.needs_one_domain {
                break;
            }
        }
        left
    }

    /// Puts pods on the nodes of others, in the domains where the rules leave most room for them first.
    fn settle_together(&mut self, step: &Step<'_>, terms: &[Term], starts_alone: bool, mut left: usize) -> usize {
        let &Step { class, level, rules, seek, .. } = step;
        let mut tried: BTreeSet<Cell> = BTreeSet::new();
        while left > 0 {
            let Some((cell, pins, most)) = self.roomiest(step, starts_alone, &tried, left) else { break };
            let wanted = seek.wanted.narrowed(&pins);
            let who = (class, level, pins);
            let placed = most - self.bundle(&who, &wanted, terms, starts_alone, most);
            if placed > 0 {
                self.note(class, &who.2, placed, rules);
                left -= placed;
                if seek.needs_one_domain {
                    break;
                }
            } else {
                tried.insert(cell);
            }
        }
        left
    }

    /// Of the domains that were not tried the one where the rules leave most room for pods that share nodes, what its nodes are like,
    /// and how many of so many pods the rules let in.
    fn roomiest(
        &mut self,
        step: &Step<'_>,
        starts_alone: bool,
        tried: &BTreeSet<Cell>,
        left: usize,
    ) -> Option<(Cell, Requirements, usize)> {
        let &Step { class, level, seek, .. } = step;
        let (counted_keys, counted) = self.counted(step);
        let keys: Vec<Arc<str>> = counted_keys.iter().chain(&seek.one_of).cloned().collect();
        let constraint = self.seeker(class, seek.wanted.clone());
        let reach = self.domains.reach_alone((class, level), &constraint, &keys);
        let room = |cell: &Cell| counted.iter().map(|rule| rule.room(&cell[rule.key_index])).min().unwrap_or(i64::MAX);
        let most = |cell: &Cell| left.min(usize::try_from(room(cell)).unwrap_or(0));
        let all_pins = |cell: &Cell| pins_and(&keys, cell, &seek.pins);
        let is_left = |cell: &Cell| self.learned(&Subject::UnitsJoined((class, level, all_pins(cell)))) == Some(0);
        let untried = reach.iter().filter(|(cell, charge)| !tried.contains(*cell) && step.pays(charge.mean(left)));
        let open: Vec<(&Cell, &Charge)> = untried.filter(|(cell, _)| !is_left(cell)).collect();
        // Where all must share one node it matters how large the nodes of a domain are.
        let is_for_all = starts_alone && seek.needs_one_domain;
        let rank = |(cell, charge): &(&Cell, &Charge)| {
            let wanted = || seek.wanted.narrowed(&pins(&keys, cell));
            let fitting = if is_for_all { self.most_together((class, level), &wanted(), most(cell)) } else { 0 };
            (room(cell), fitting, Reverse(charge.mean(left)), charge.free)
        };
        let (cell, _) = open.into_iter().max_by_key(rank)?;
        Some((cell.clone(), all_pins(cell), most(cell)))
    }

    /// The domains to try for labels of which the pods must all have one value: the cheapest first, but if all pods must
    /// be in one, first that which takes most of them.
    fn choices(&mut self, step: &Step<'_>, left: usize) -> Vec<Requirements> {
        let &Step { class, level, seek, .. } = step;
        let constraint = self.seeker(class, seek.wanted.clone());
        let reach = self.domains.reach_alone((class, level), &constraint, &seek.one_of);
        let mut cells: Vec<(&Cell, Cost)> = reach.iter().map(|(cell, charge)| (cell, charge.mean(left))).collect();
        cells.retain(|(_, cost)| step.pays(*cost));
        cells.sort_by_key(|(_, cost)| *cost);
        let chosen = |(cell, _): (&Cell, Cost)| pins_and(&seek.one_of, cell, &seek.pins);
        let mut choices: Vec<Requirements> = cells.into_iter().map(chosen).collect();
        if seek.needs_one_domain {
            choices.sort_by_key(|chosen| Reverse(self.most(class, level, chosen).min(left)));
        }
        choices
    }

    /// How many pods go to each domain, within what was learned.
    fn shares(&mut self, step: &Step<'_>, chosen: &Requirements, left: usize) -> Vec<(Requirements, usize)> {
        let &Step { class, level, seek, .. } = step;
        if seek.counted.is_empty() {
            let count = left.min(self.most(class, level, chosen));
            return if count == 0 { Vec::new() } else { vec![(chosen.clone(), count)] };
        }
        let (keys, rules) = self.counted(step);
        let constraint = self.seeker(class, seek.wanted.narrowed(chosen));
        let reach = self.domains.reach_alone((class, level), &constraint, &keys);
        let with_chosen = |cell: &Cell| pins_and(&keys, cell, chosen);
        let open = reach.iter().flat_map(|(cell, charge)| {
            let most = self.most(class, level, &with_chosen(cell));
            Open::all(cell, *charge, most).filter(|open| step.pays(open.cost))
        });
        let shares = divide(left, open.collect(), rules, self.spreads_evenly, self.given);
        self.given += shares.values().sum::<usize>();
        shares.into_iter().map(|(cell, count)| (with_chosen(&cell), count)).collect()
    }

    /// The labels whose domains are counted, and the rules with what is there and allotted.
    fn counted(&mut self, step: &Step<'_>) -> (Vec<Arc<str>>, Vec<Counted>) {
        let &Step { class, seek, .. } = step;
        let keys: BTreeSet<Arc<str>> = seek.counted.iter().map(|(term, _)| term.key.clone()).collect();
        let keys: Vec<Arc<str>> = keys.into_iter().collect();
        let constraint = self.constraint(class);
        let spread_keys = &seek.spread_keys;
        let rules = seek.counted.iter().map(|(term, rule)| {
            let (running, planned) = match rule {
                CountedRule::Spread(spread) => {
                    let running = self.domains.counts(constraint, spread, spread_keys);
                    let own = (self.base.classes.list[class].constraint, spread);
                    (running, self.spreading.counted_by(&mut self.domains, own, spread_keys))
                }
                CountedRule::Alone => {
                    let taken = self.domains_with(std::slice::from_ref(term), &term.key);
                    (Arc::default(), [taken.into_iter().map(|domain| (domain, 1)).collect(), Counts::new()])
                }
            };
            let key_index = keys.iter().position(|key| *key == term.key).expect("the keys are those of the rules");
            Counted::new(key_index, rule.limit(), &running, &planned)
        });
        let rules = rules.collect();
        (keys, rules)
    }

    /// Where the kube-scheduler may bind the pods, if one spread divides them.
    fn latitude(&mut self, step: &Step<'_>) -> Option<Arc<Latitude>> {
        let &Step { class, seek, .. } = step;
        let [(term, CountedRule::Spread(spread))] = seek.counted.as_slice() else { return None };
        if !seek.one_of.is_empty() {
            return None;
        }
        let is_hard = self.neighbourhood(class).hard().spreads.contains(spread);
        Some(Arc::new(Latitude {
            key: term.key.clone(),
            constraint: self.seeker(class, seek.wanted.clone()),
            counts: (*self.domains.counts(self.constraint(class), spread, &seek.spread_keys)).clone(),
            limit: is_hard.then_some((spread.max_skew, spread.min_domains)),
        }))
    }

    /// Takes down what is known of pods that are pinned: which domains they are in, and whom they keep out of them.
    pub(super) fn note(&mut self, class: usize, pins: &Requirements, count: usize, rules: &Rules) {
        let (selectors, selected_by) = (&self.base.classes.selectors, self.neighbourhood(class).selected_by);
        let domain_of = |key: &str| pins.get(key).and_then(Requirement::any_value);
        for (key, requirement) in pins.iter() {
            if let Some(domain) = requirement.any_value() {
                self.whereabouts.settle(selectors, selected_by, key, &domain);
            }
        }
        for term in &rules.away {
            if let Some(domain) = domain_of(&term.key) {
                self.whereabouts.bar(term, domain);
            }
        }
        self.spreading.add(&self.base.classes, class, (rules, count), domain_of);
    }

    /// The label of a rule that no node has of those that pods of a class could have without it.
    fn missing_label(&mut self, step: &Step<'_>) -> Option<TopologyObstacle> {
        let &Step { class, rules, .. } = step;
        if !self.has_node(class) {
            return None;
        }
        let keys = rules.spreads.iter().map(|spread| &spread.term).chain(&rules.near).filter(|term| !term.is_by_host());
        let mut keys = keys.map(|term| &term.key);
        keys.find(|key| !self.reaches(class, key)).map(|key| TopologyObstacle::NoLabel { key: key.to_string() })
    }

    /// The rule that leaves a class no node with these labels, if one does: of several the first that does so by itself.
    fn why_out_of_reach(&mut self, step: &Step<'_>, keys: &[Arc<str>]) -> Option<TopologyObstacle> {
        let &Step { class, seek, .. } = step;
        if let Some(missing) = self.missing_label(step) {
            return Some(missing);
        }
        let wanted = self.base.classes.node_wanted(class);
        let mut closes_all = |cause: &&TopologyObstacle| {
            let constraint = self.seeker(class, wanted.narrowed(&left_by(cause)));
            self.domains.reach(&constraint, &self.base.classes.list[class].requests, keys).is_empty()
        };
        seek.causes.iter().find(&mut closes_all).or_else(|| seek.causes.first()).cloned()
    }

    /// The rule that leaves pods of a class without a domain, if one does.
    pub(super) fn why_left(&mut self, step: &Step<'_>) -> Option<TopologyObstacle> {
        let &Step { class, level, seek, .. } = step;
        let (keys, rules) = self.counted(step);
        let constraint = self.seeker(class, seek.wanted.clone());
        let reach = self.domains.reach(&constraint, &self.base.classes.list[class].requests, &keys);
        let is_full = |cell: &Cell| self.most(class, level, &pins(&keys, cell)) == 0;
        if reach.is_empty() || reach.keys().all(is_full) {
            return if reach.is_empty() { self.why_out_of_reach(step, &keys) } else { None };
        }
        if let Place::NodeOf { terms, starts_alone } = &seek.place {
            let is_missing = !starts_alone && !self.out.portions.iter().any(|portion| self.has_company(portion, terms));
            let term = terms.iter().find(|term| is_missing && term.is_by_host());
            let missing = |term: &Term| TopologyObstacle::Affinity { key: term.key.to_string(), domains: Vec::new() };
            return Some(term.map_or(TopologyObstacle::OneNode, missing));
        }
        // Of several rules that one is named which closes most of the domains where nodes would take the pods.
        let taking: Vec<&Cell> = reach.keys().filter(|cell| !is_full(cell)).collect();
        let closed =
            |counted: &Counted| taking.iter().filter(|cell| !counted.is_open(&cell[counted.key_index])).count();
        let blamed = seek.counted.iter().zip(&rules).min_by_key(|(_, counted)| Reverse(closed(counted)));
        blamed.map(|(rule, counted)| obstacle(rule, counted, &reach)).or_else(|| seek.causes.first().cloned())
    }
}

/// A rule that closes domains to pods that can reach these.
fn obstacle((term, rule): &(Term, CountedRule), counted: &Counted, reach: &Reach) -> TopologyObstacle {
    let totals = counted.totals();
    let all: BTreeSet<&Arc<str>> = totals.keys().chain(reach.keys().map(|cell| &cell[counted.key_index])).collect();
    let (open, closed): (Vec<_>, Vec<_>) = all.into_iter().partition(|domain| counted.is_open(domain));
    let names = |domains: Vec<&Arc<str>>| domains.into_iter().map(ToString::to_string).collect();
    let key = term.key.to_string();
    match rule {
        CountedRule::Spread(spread) => TopologyObstacle::Spread {
            key,
            max_skew: spread.max_skew,
            counts: totals.iter().map(|(domain, count)| (domain.to_string(), *count)).collect(),
            full: names(open),
            min_domains: Some(spread.min_domains).filter(|_| counted.lacks_domains()),
        },
        CountedRule::Alone if open.is_empty() => TopologyObstacle::AntiAffinity { key, domains: Vec::new() },
        CountedRule::Alone => TopologyObstacle::AntiAffinity { key, domains: names(closed) },
    }
}

/// The requirements that a node in a cell meets, with others.
fn pins_and(keys: &[Arc<str>], cell: &[Arc<str>], others: &Requirements) -> Requirements {
    let mut out = pins(keys, cell);
    out.add_all(others);
    out
}

/// The requirements that a node in a cell meets.
pub(super) fn pins(keys: &[Arc<str>], cell: &[Arc<str>]) -> Requirements {
    let mut out = Requirements::new();
    for (key, value) in keys.iter().zip(cell) {
        out.add(key, Requirement::one_of([value.clone()]));
    }
    out
}
