//! What rules about neighbours grant to a pod that comes now, where pods come one by one.
//!
//! Pods that came before are known by their class and their node. A node that is still to be made may be in several domains of a label:
//! whoever keeps away from its pods keeps away from all of these, and whoever wants to be near to them is only if there is one.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{
    Rules, Spread, Term,
    domains::{Counts, Domains, Named},
    selectors::SelectedBy,
    spreading::Spreading,
};
use crate::{Requirement, Requirements, labels, reason::TopologyObstacle, schedule::problem::Base};

/// Pods that came one by one, and what is known of domains.
pub(in crate::schedule) struct Ledger<'b, 'a> {
    base: &'b Base<'a>,
    domains: Domains<'b, 'a>,
    spreading: Spreading,
    /// The classes that have pods on a node, and its index.
    residents: BTreeSet<(usize, usize)>,
    /// The nodes of places, by the indices of these in the snapshot.
    node_of: BTreeMap<usize, usize>,
}

/// What the rules of a pod say of a node, as things stand.
#[derive(Default)]
pub(in crate::schedule) struct Grants {
    /// The domains of labels that may have another pod of a spread, with the pods that each has.
    spreads: Vec<(Arc<str>, Counts)>,
    /// The domains of labels in which others are near.
    near: Vec<(Arc<str>, Named)>,
    /// Labels of which the node needs a value, whichever it is, so that others know where the pod is.
    founded: Vec<Arc<str>>,
    /// The domains of labels that are closed.
    barred: BTreeMap<Arc<str>, Named>,
    /// The nodes, by index, on which others are near that must be on the same; `None` if any node will do.
    pub(in crate::schedule) nodes: Option<BTreeSet<usize>>,
}

/// The nodes of a ledger: first the open places, in their order, then those that are still to be made.
pub(in crate::schedule) trait Nodes {
    /// The domains of a label in which a node may be.
    fn domains(&self, node: usize, key: &str) -> Named;
}

impl<'b, 'a> Ledger<'b, 'a> {
    pub(in crate::schedule) fn new(base: &'b Base<'a>) -> Self {
        Self {
            base,
            domains: Domains::new(base),
            spreading: Spreading::default(),
            residents: BTreeSet::new(),
            node_of: base.places.iter().enumerate().map(|(node, place)| (place.index, node)).collect(),
        }
    }

    /// Takes down that a pod of a class came to a node, by these rules and into these domains.
    pub(in crate::schedule) fn add(&mut self, (class, node): (usize, usize), rules: &Rules, nodes: &impl Nodes) {
        self.residents.insert((class, node));
        self.spreading.add(&self.base.classes, class, (rules, 1), |key| single(nodes.domains(node, key)));
    }

    /// What the rules of a pod grant, or `None` if no node will do.
    pub(in crate::schedule) fn grants(&mut self, class: usize, rules: &Rules, nodes: &impl Nodes) -> Option<Grants> {
        let mut out = Grants { barred: self.barred(class, rules, nodes), ..Grants::default() };
        let keys = self.base.classes.neighbourhood(class).hard().spread_keys();
        for spread in rules.spreads.iter().filter(|spread| !spread.term.is_by_host()) {
            out.spreads.push((spread.term.key.clone(), self.open(class, spread, &keys)));
        }
        let hard = &self.base.classes.neighbourhood(class).hard().near;
        let (required, wished): (Vec<&Term>, Vec<&Term>) = rules.near.iter().partition(|term| hard.contains(term));
        let required: Vec<Term> = required.into_iter().cloned().collect();
        let wished = wished.into_iter().map(std::slice::from_ref);
        for terms in std::iter::once(required.as_slice()).chain(wished).filter(|terms| !terms.is_empty()) {
            self.stay_near(class, terms, nodes, &mut out)?;
        }
        Some(out)
    }

    /// The rule that leaves pods of a class nobody to be near to, or no domain that they can reach, if one does.
    pub(in crate::schedule) fn obstacle(&mut self, class: usize, nodes: &impl Nodes) -> Option<TopologyObstacle> {
        let hard = self.base.classes.neighbourhood(class).hard();
        if self.grants(class, hard, nodes).is_none() {
            let key = hard.near.first()?.key.to_string();
            return Some(TopologyObstacle::Affinity { key, domains: Vec::new() });
        }
        let by_others = self.barred(class, &Rules::default(), nodes);
        for (key, barred) in self.barred(class, hard, nodes) {
            let reach = self.domains.reached_by(class, &key);
            let closes_all = |domains: &Named| reach.keys().all(|cell| domains.contains(&cell[0]));
            if !reach.is_empty() && closes_all(&barred) {
                let domains = barred.iter().map(ToString::to_string).collect();
                let is_by_others = by_others.get(&key).is_some_and(closes_all);
                let key = key.to_string();
                return Some(if is_by_others {
                    TopologyObstacle::Repelled { key, domains }
                } else {
                    TopologyObstacle::AntiAffinity { key, domains }
                });
            }
        }
        None
    }

    /// Requires some others to be near: those that all terms select. Where there are none of them, a pod that is selected itself may
    /// be anywhere.
    fn stay_near(&self, class: usize, terms: &[Term], nodes: &impl Nodes, out: &mut Grants) -> Option<()> {
        let classes = &self.base.classes;
        let company = self.company(terms);
        if company.is_empty() {
            if !classes.selectors.all_select(terms, classes.neighbourhood(class).selected_by) {
                return None;
            }
            out.founded.extend(terms.iter().filter(|term| !term.is_by_host()).map(|term| term.key.clone()));
            return Some(());
        }
        for term in terms {
            if term.is_by_host() {
                let own: BTreeSet<usize> = company.iter().filter_map(Resident::node).collect();
                out.nodes = Some(out.nodes.take().map_or(own.clone(), |others| &others & &own));
            } else {
                let of = |resident: &Resident| single(resident.domains(self.base, &term.key, nodes));
                out.near.push((term.key.clone(), company.iter().filter_map(of).collect()));
            }
        }
        Some(())
    }

    /// Where pods are that all terms select.
    fn company(&self, terms: &[Term]) -> BTreeSet<Resident> {
        let classes = &self.base.classes;
        let came = self
            .residents
            .iter()
            .filter(|(class, _)| classes.selectors.all_select(terms, classes.neighbourhood(*class).selected_by));
        let running = self.running(|place| classes.standing.has_company(&classes.selectors, place, terms));
        came.map(|&(_, node)| Resident::At(node)).chain(running).collect()
    }

    /// The places of which this is true, as nodes where they are nodes.
    fn running(&self, is_meant: impl Fn(usize) -> bool) -> impl Iterator<Item = Resident> {
        let places = (0..self.base.snapshot.places().len()).filter(move |&place| is_meant(place));
        places.map(move |place| self.node_of.get(&place).map_or(Resident::On(place), |&node| Resident::At(node)))
    }

    /// The domains in which a pod must not be: those of pods from which it keeps away, and of pods that keep away from it.
    fn barred(&self, class: usize, rules: &Rules, nodes: &impl Nodes) -> BTreeMap<Arc<str>, Named> {
        let classes = &self.base.classes;
        let own = classes.neighbourhood(class).selected_by;
        let mut out: BTreeMap<Arc<str>, Named> = BTreeMap::new();
        let mut bar = |term: &Term, resident: &Resident| {
            let domains = resident.domains(self.base, &term.key, nodes);
            out.entry(term.key.clone()).or_default().extend(domains);
        };
        for term in rules.away.iter().chain(&rules.shuns).filter(|term| !term.is_by_host()) {
            for resident in self.company(std::slice::from_ref(term)) {
                bar(term, &resident);
            }
        }
        let repels =
            |term: &&Term, set: SelectedBy| !term.is_by_host() && classes.selectors.selects(term.selector, set);
        for &(other, node) in &self.residents {
            let away = &classes.neighbourhood(other).hard().away;
            away.iter().filter(|term| repels(term, own)).for_each(|term| bar(term, &Resident::At(node)));
        }
        for place in 0..self.base.snapshot.places().len() {
            let away = classes.standing.away(place).iter().filter(|term| repels(term, own));
            away.for_each(|term| bar(term, &Resident::On(place)));
        }
        out
    }

    /// The domains that may have another pod of a spread, with the pods that each has.
    fn open(&mut self, class: usize, spread: &Spread, keys: &[Arc<str>]) -> Counts {
        let classes = &self.base.classes;
        let own = classes.list[class].constraint;
        let running = self.domains.counts(&classes.constraints[own], spread, keys);
        let mut sure = self.domains.with_all_named(&running, &classes.constraints[own], spread);
        let [planned, unsure] = self.spreading.counted_by(&mut self.domains, (own, spread), keys);
        let has_enough = sure.len() >= spread.min_domains;
        for (domain, count) in planned {
            *sure.entry(domain).or_default() += count;
        }
        let floor = if has_enough { sure.values().min().copied().unwrap_or(0) } else { 0 };
        let one = i64::from(classes.selectors.selects(spread.term.selector, classes.neighbourhood(class).selected_by));
        let all = sure.into_iter().map(|(domain, count)| {
            let unsure = unsure.get(&domain).copied().unwrap_or(0);
            (domain, count + unsure)
        });
        all.filter(|(_, count)| count + one - floor <= spread.max_skew).collect()
    }
}

/// Where some pod is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Resident {
    /// On a node of the ledger.
    At(usize),
    /// On another place of the snapshot.
    On(usize),
}

impl Resident {
    const fn node(&self) -> Option<usize> {
        match self {
            Self::At(node) => Some(*node),
            Self::On(_) => None,
        }
    }

    fn domains(&self, base: &Base<'_>, key: &str, nodes: &impl Nodes) -> Named {
        match self {
            Self::At(node) => nodes.domains(*node, key),
            Self::On(place) => {
                let domain = base.snapshot.places()[*place].labels.get(key);
                domain.map(|domain| Arc::from(domain.as_str())).into_iter().collect()
            }
        }
    }
}

/// The only one of some domains.
fn single(domains: Named) -> Option<Arc<str>> {
    if domains.len() == 1 { domains.into_iter().next() } else { None }
}

impl Grants {
    /// What a node must be like that may be in these domains of each label, or `None` if it will not do. Of domains that are as good,
    /// the first is chosen that is told.
    pub(in crate::schedule) fn pins(&self, domains: impl Fn(&str) -> Vec<Arc<str>>) -> Option<Requirements> {
        let mut out = Requirements::new();
        for (key, barred) in &self.barred {
            let own = domains(key);
            let left: Vec<_> = own.iter().filter(|domain| !barred.contains(*domain)).cloned().collect();
            if left.len() < own.len() {
                add_some(&mut out, key, left)?;
            }
        }
        let left = |pins: &Requirements, key: &str| {
            let mut own = domains(key);
            own.retain(|domain| pins.get(key).is_none_or(|pin| pin.admits(Some(domain))));
            own
        };
        for (key, near) in &self.near {
            let there = left(&out, key).into_iter().filter(|domain| near.contains(domain)).collect();
            add_some(&mut out, key, there)?;
        }
        for key in &self.founded {
            let first = left(&out, key).into_iter().take(1).collect();
            add_some(&mut out, key, first)?;
        }
        for (key, counts) in &self.spreads {
            let open = left(&out, key).into_iter().filter(|domain| counts.contains_key(domain));
            let emptiest = open.min_by_key(|domain| counts[domain]);
            add_some(&mut out, key, emptiest.into_iter().collect())?;
        }
        Some(out)
    }
}

/// Requires one of these domains, of which there must be some.
fn add_some(pins: &mut Requirements, key: &Arc<str>, domains: Vec<Arc<str>>) -> Option<()> {
    if domains.is_empty() {
        return None;
    }
    pins.add(key, Requirement::one_of(domains));
    Some(())
}

/// Whether a rule is about the domains of a label of which a pool leaves endlessly many values.
pub(in crate::schedule) fn has_endless_domains(base: &Base<'_>) -> bool {
    keys_of_rules(base).iter().any(|key| base.pools.iter().any(|pool| pool.is_endless(key)))
}

/// How many values pools name of the label of a rule about neighbours that has most; one if there is none.
pub(in crate::schedule) fn most_domains(base: &Base<'_>) -> usize {
    let mut domains = Domains::new(base);
    let count = |key: &Arc<str>| domains.named(key).iter().flatten().collect::<BTreeSet<_>>().len();
    keys_of_rules(base).iter().map(count).max().unwrap_or(0).max(1)
}

/// The labels that nodes share of the rules about neighbours.
fn keys_of_rules(base: &Base<'_>) -> BTreeSet<Arc<str>> {
    let places = 0..base.snapshot.places().len();
    let running = places.flat_map(|place| base.classes.standing.away(place)).map(|term| term.key.clone());
    let coming = base.classes.neighbourhoods.iter().flat_map(|neighbourhood| {
        let rules = neighbourhood.rules_at(0);
        rules.terms().map(|term| term.key.clone()).collect::<Vec<_>>()
    });
    running.chain(coming).filter(|key| **key != *labels::HOSTNAME).collect()
}

/// For each class the labels that nodes share by which its pods are to be near to others or away from them, or others to them.
pub(in crate::schedule) fn labels_of_rules(base: &Base<'_>) -> Vec<BTreeSet<Arc<str>>> {
    let classes = &base.classes;
    let about = |rules: &Rules| -> Vec<Term> {
        rules.near.iter().chain(&rules.away).chain(&rules.shuns).filter(|term| !term.is_by_host()).cloned().collect()
    };
    let running = (0..base.snapshot.places().len()).flat_map(|place| classes.standing.away(place));
    let running = running.filter(|term| !term.is_by_host()).cloned();
    let coming = classes.neighbourhoods.iter().flat_map(|neighbourhood| about(&neighbourhood.rules_at(0)));
    let all: BTreeSet<Term> = coming.chain(running).collect();
    let of_class = |class: usize| {
        let neighbourhood = classes.neighbourhood(class);
        let is_meant = |term: &&Term| classes.selectors.selects(term.selector, neighbourhood.selected_by);
        let own = about(&neighbourhood.rules_at(0)).into_iter().map(|term| term.key);
        own.chain(all.iter().filter(is_meant).map(|term| term.key.clone())).collect()
    };
    (0..classes.list.len()).map(of_class).collect()
}
