//! Rules of pods about each other that must hold (the filters `PodTopologySpread` and `InterPodAffinity`).

use karpenter_core::api::{InclusionPolicy, Pod, PodSpec, TopologySpreadConstraint, UnsatisfiableAction};

use super::{
    census::Census,
    nodes::{NodeInfo, Nodes},
    selector::{Kin, Selector},
};
use crate::checker::filters::{misfit, untolerated};

/// What keeps a pod off a node because of other pods near it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Neighbours {
    Spread,
    Lonely,
    Disliked,
    DislikedByRunning,
}

/// What the rules come to for one pod as things stand.
#[derive(Clone, Debug, Default)]
pub(super) struct Standing {
    spreads: Vec<Spread>,
    near: Option<Near>,
    /// For each key, whether each domain is closed: by the pod's own terms, and by those of running pods.
    apart: Vec<(String, Vec<bool>)>,
    apart_of_running: Vec<(String, Vec<bool>)>,
}

#[derive(Clone, Debug)]
struct Spread {
    key: String,
    max_skew: i64,
    /// Whether the pod counts itself.
    own: i64,
    counts: Vec<i64>,
    minimum: i64,
}

#[derive(Clone, Debug)]
struct Near {
    keys: Vec<String>,
    /// For each key, whether each domain has company.
    company: Vec<Vec<bool>>,
    /// Whether the pod is the first of a series that selects itself.
    may_be_first: bool,
}

/// Whether a pod has rules about its neighbours that must hold.
pub(super) fn has_hard_rules(spec: &PodSpec) -> bool {
    let affinity = &spec.affinity;
    !affinity.pod_affinity.required.is_empty()
        || !affinity.pod_anti_affinity.required.is_empty()
        || spec.topology_spread_constraints.iter().any(is_hard)
}

pub(super) fn is_hard(constraint: &TopologySpreadConstraint) -> bool {
    constraint.when_unsatisfiable == UnsatisfiableAction::DoNotSchedule
}

/// Whether a node counts for a constraint of a pod, as far as its labels and taints go.
pub(super) fn is_counted(pod: &Pod, constraint: &TopologySpreadConstraint, info: &NodeInfo) -> bool {
    let honours_affinity = constraint.node_affinity_policy != Some(InclusionPolicy::Ignore);
    let honours_taints = constraint.node_taints_policy == Some(InclusionPolicy::Honor);
    let name = &info.node.metadata.name;
    (!honours_affinity || misfit(&pod.spec, name, &info.labels).is_none())
        && (!honours_taints || untolerated(&pod.spec, &info.node.spec.taints, false).is_none())
}

impl Standing {
    pub(super) fn of(pod: &Pod, kin: &Kin, nodes: &mut Nodes, census: &mut Census) -> Self {
        let hard: Vec<_> = pod.spec.topology_spread_constraints.iter().filter(|c| is_hard(c)).collect();
        let keys: Vec<&str> = hard.iter().map(|c| c.topology_key.as_str()).collect();
        let spreads = hard.iter().map(|c| Spread::of(pod, kin, c, &keys, nodes, census)).collect();
        let near = Near::of(pod, kin, nodes, census);
        let mut apart = Vec::new();
        for term in &pod.spec.affinity.pod_anti_affinity.required {
            let tally = census.tally(&[Selector::of_term(pod, term)]);
            apart.push((term.topology_key.clone(), present(tally.iter().map(|c| c.all), nodes, &term.topology_key)));
        }
        let mut apart_of_running = Vec::new();
        if census.has_terms() {
            for (term, on) in census.terms_about(kin).filter(|(term, _)| term.weight.is_none()) {
                let domains = nodes.domains(&term.key);
                let mut closed = vec![false; domains.bound()];
                on.keys().filter_map(|slot| domains.of(*slot)).for_each(|domain| closed[domain] = true);
                apart_of_running.push((term.key.clone(), closed));
            }
        }
        Self { spreads, near, apart, apart_of_running }
    }

    /// Which rule keeps the pod off a node, if any does.
    pub(super) fn obstacle(&self, slot: usize, nodes: &Nodes) -> Option<Neighbours> {
        let domain = |key: &str| nodes.known_domains(key).and_then(|domains| domains.of(slot));
        let is_uneven = |spread: &Spread| domain(&spread.key).is_none_or(|d| spread.is_full(d));
        if self.spreads.iter().any(is_uneven) {
            return Some(Neighbours::Spread);
        }
        if self.near.as_ref().is_some_and(|near| near.is_lonely(domain)) {
            return Some(Neighbours::Lonely);
        }
        let is_closed =
            |(key, closed): &(String, Vec<bool>)| domain(key).is_some_and(|d| closed.get(d).copied().unwrap_or(false));
        if self.apart.iter().any(is_closed) {
            return Some(Neighbours::Disliked);
        }
        self.apart_of_running.iter().any(is_closed).then_some(Neighbours::DislikedByRunning)
    }
}

impl Spread {
    fn of(
        pod: &Pod,
        kin: &Kin,
        constraint: &TopologySpreadConstraint,
        keys: &[&str],
        nodes: &mut Nodes,
        census: &mut Census,
    ) -> Self {
        let selector = Selector::of_constraint(pod, constraint);
        let own = i64::from(selector.selects(kin, &census.namespaces));
        let tally = census.tally(std::slice::from_ref(&selector));
        nodes.domains(&constraint.topology_key);
        let domains = nodes.known_domains(&constraint.topology_key).expect("it was asked about in the line above");
        let mut counts: Vec<Option<i64>> = vec![None; domains.bound()];
        for (slot, info) in nodes.used() {
            let has_keys = keys.iter().all(|key| info.labels.contains_key(*key));
            let domain = domains.of(slot).filter(|_| has_keys && is_counted(pod, constraint, info));
            if let Some(domain) = domain {
                let there = tally.get(slot).map_or(0, |count| i64::from(count.live));
                *counts[domain].get_or_insert(0) += there;
            }
        }
        let present = counts.iter().filter(|count| count.is_some()).count();
        let least = usize::try_from(constraint.min_domains.unwrap_or(1)).unwrap_or(1);
        let lowest = counts.iter().flatten().copied().min().unwrap_or(0);
        Self {
            key: constraint.topology_key.clone(),
            max_skew: i64::from(constraint.max_skew),
            own,
            minimum: if present < least { 0 } else { lowest },
            counts: counts.into_iter().map(Option::unwrap_or_default).collect(),
        }
    }

    fn is_full(&self, domain: usize) -> bool {
        self.counts.get(domain).copied().unwrap_or(0) + self.own - self.minimum > self.max_skew
    }
}

impl Near {
    fn of(pod: &Pod, kin: &Kin, nodes: &mut Nodes, census: &mut Census) -> Option<Self> {
        let terms = &pod.spec.affinity.pod_affinity.required;
        if terms.is_empty() {
            return None;
        }
        let selectors: Vec<Selector> = terms.iter().map(|term| Selector::of_term(pod, term)).collect();
        let selects_itself = selectors.iter().all(|s| s.selects(kin, &census.namespaces));
        let keys: Vec<String> = terms.iter().map(|term| term.topology_key.clone()).collect();
        let tally = census.tally(&selectors);
        let company: Vec<Vec<bool>> = keys.iter().map(|key| present(tally.iter().map(|c| c.all), nodes, key)).collect();
        let may_be_first = selects_itself && !company.iter().flatten().any(|there| *there);
        Some(Self { keys, company, may_be_first })
    }

    fn is_lonely(&self, domain: impl Fn(&str) -> Option<usize>) -> bool {
        let has_company = |(key, company): (&String, &Vec<bool>)| {
            domain(key).map(|d| company.get(d).copied().unwrap_or(false) || self.may_be_first)
        };
        self.keys.iter().zip(&self.company).any(|pair| has_company(pair) != Some(true))
    }
}

/// In which domains of a key there are pods, whose numbers are given for each node.
fn present(counts: impl Iterator<Item = u32>, nodes: &mut Nodes, key: &str) -> Vec<bool> {
    let domains = nodes.domains(key);
    let mut out = vec![false; domains.bound()];
    for (slot, _) in counts.enumerate().filter(|(_, count)| *count > 0) {
        if let Some(domain) = domains.of(slot) {
            out[domain] = true;
        }
    }
    out
}
