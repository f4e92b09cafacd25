//! What pods say about their neighbours, and in which order their wishes are given up.

use std::sync::Arc;

use super::selectors::{Namespaces, SelectedBy, SelectorId, Selectors};
use crate::{
    NodeAlternatives, Requirements,
    api::{InclusionPolicy, Pod, PodAffinityTerm, TopologySpreadConstraint, UnsatisfiableAction},
    labels,
};

/// Pods, and how near is near.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(in crate::schedule) struct Term {
    pub(in crate::schedule) selector: SelectorId,
    /// The label that near nodes share.
    pub(in crate::schedule) key: Arc<str>,
}

/// How evenly pods are spread.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(in crate::schedule) struct Spread {
    pub(in crate::schedule) term: Term,
    pub(in crate::schedule) max_skew: i64,
    /// With fewer domains than this, the emptiest one counts as empty.
    pub(in crate::schedule) min_domains: usize,
    /// Whether only nodes that the pod's node affinity admits are counted.
    pub(in crate::schedule) honors_affinity: bool,
    /// Whether only nodes whose taints the pod tolerates are counted.
    pub(in crate::schedule) honors_taints: bool,
}

/// The rules of a pod about its neighbours that hold at once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(in crate::schedule) struct Rules {
    pub(in crate::schedule) spreads: Vec<Spread>,
    /// Pods of which one must be near.
    pub(in crate::schedule) near: Vec<Term>,
    /// Pods of which none may be near.
    pub(in crate::schedule) away: Vec<Term>,
    /// Pods of which none may be near when the pod comes; they may come later.
    pub(in crate::schedule) shuns: Vec<Term>,
    /// What the node should be like.
    pub(in crate::schedule) node: Option<Requirements>,
    /// Whether a wish among these makes each node take only a few of the pods.
    pub(in crate::schedule) wishes_for_nodes: bool,
}

/// What a pod wishes, heaviest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Wishes {
    near: Vec<Term>,
    away: Vec<Term>,
    nodes: Vec<Requirements>,
    /// In the order in which they are given up.
    spreads: Vec<Spread>,
}

/// The rules and wishes of a pod, and the rules of others that are about it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(in crate::schedule) struct Neighbourhood {
    pub(in crate::schedule) selected_by: SelectedBy,
    hard: Rules,
    wishes: Wishes,
}

impl Neighbourhood {
    /// Reads the rules of a pod, and its wishes if they are to be respected.
    pub(in crate::schedule) fn of_pod<'s>(
        pod: &'s Pod,
        selectors: &mut Selectors<'s>,
        namespaces: &Namespaces,
        has_wishes: bool,
    ) -> Self {
        let affinity = &pod.spec.affinity;
        let mut read = |term: &PodAffinityTerm| Term {
            selector: selectors.of_term(pod, term, namespaces),
            key: Arc::from(labels::normalized(&term.topology_key)),
        };
        let near = affinity.pod_affinity.required.iter().map(&mut read).collect();
        let away = affinity.pod_anti_affinity.required.iter().map(&mut read).collect();
        let mut wishes = Wishes::default();
        if has_wishes {
            let mut heaviest_first = |terms: &[crate::api::WeightedPodAffinityTerm]| {
                let mut terms: Vec<_> = terms.iter().collect();
                terms.sort_by_key(|t| -t.weight);
                terms.into_iter().map(|t| read(&t.pod_affinity_term)).collect()
            };
            wishes.near = heaviest_first(&affinity.pod_affinity.preferred);
            wishes.away = heaviest_first(&affinity.pod_anti_affinity.preferred);
            let mut nodes: Vec<_> = affinity.node_affinity.preferred.iter().collect();
            nodes.sort_by_key(|t| -t.weight);
            wishes.nodes = nodes.into_iter().filter_map(|t| NodeAlternatives::of_term(&t.preference)).collect();
        }
        let mut spread = |constraint| Spread::new(pod, constraint, selectors);
        let all = &pod.spec.topology_spread_constraints;
        let is_hard = |c: &&TopologySpreadConstraint| c.when_unsatisfiable == UnsatisfiableAction::DoNotSchedule;
        let hard =
            Rules { spreads: all.iter().filter(is_hard).map(&mut spread).collect(), near, away, ..Rules::default() };
        if has_wishes {
            wishes.spreads = order_of_giving_up(all).into_iter().map(&mut spread).collect();
        }
        Self { selected_by: SelectedBy::default(), hard, wishes }
    }

    /// The same, of pods that these selectors select.
    pub(in crate::schedule) fn selected_by(self, selected_by: SelectedBy) -> Self {
        Self { selected_by, ..self }
    }

    /// How many steps there are: all wishes kept, one less at each step, none at the last.
    pub(in crate::schedule) const fn levels(&self) -> usize {
        let Wishes { near, away, nodes, spreads } = &self.wishes;
        1 + near.len() + away.len() + nodes.len() + spreads.len()
    }

    /// The rules that hold at a step. Karpenter gives up wishes in this order: pods to be near to, pods to keep away
    /// from, nodes, spreads; in each the heaviest first. Of the nodes wished for only the heaviest wish counts.
    pub(in crate::schedule) fn rules_at(&self, level: usize) -> Rules {
        let mut given_up = level;
        let mut drop = |count: usize| {
            let here = given_up.min(count);
            given_up -= here;
            here
        };
        let Wishes { near, away, nodes, spreads } = &self.wishes;
        let (near, away) = (&near[drop(near.len())..], &away[drop(away.len())..]);
        let (nodes, spreads) = (&nodes[drop(nodes.len())..], &spreads[drop(spreads.len())..]);
        let mut rules = self.hard.clone();
        rules.near.extend_from_slice(near);
        rules.shuns.extend_from_slice(away);
        rules.spreads.extend_from_slice(spreads);
        rules.node = nodes.first().cloned();
        let wishes = away.iter().chain(spreads.iter().map(|spread| &spread.term));
        rules.wishes_for_nodes = wishes.into_iter().any(Term::is_by_host);
        rules
    }

    /// The rules that hold whatever is given up.
    pub(in crate::schedule) const fn hard(&self) -> &Rules {
        &self.hard
    }
}

impl Spread {
    fn new<'s>(pod: &'s Pod, source: &TopologySpreadConstraint, selectors: &mut Selectors<'s>) -> Self {
        Self {
            term: Term {
                selector: selectors.of_spread(pod, source),
                key: Arc::from(labels::normalized(&source.topology_key)),
            },
            max_skew: i64::from(source.max_skew),
            min_domains: source.min_domains.map_or(1, |n| usize::try_from(n).unwrap_or(1)),
            honors_affinity: source.node_affinity_policy != Some(InclusionPolicy::Ignore),
            honors_taints: source.node_taints_policy == Some(InclusionPolicy::Honor),
        }
    }
}

/// The spreads that are only wishes, in the order in which Karpenter gives them up: the first goes, and the last of the
/// whole list, hard ones too, takes its place.
fn order_of_giving_up(all: &[TopologySpreadConstraint]) -> Vec<&TopologySpreadConstraint> {
    let mut left: Vec<_> = all.iter().collect();
    let mut order = Vec::new();
    while let Some(index) = left.iter().position(|c| c.when_unsatisfiable == UnsatisfiableAction::ScheduleAnyway) {
        order.push(left.swap_remove(index));
    }
    order
}

impl Rules {
    /// All pods that the rules are about.
    pub(in crate::schedule) fn terms(&self) -> impl Iterator<Item = &Term> {
        let spreads = self.spreads.iter().map(|spread| &spread.term);
        spreads.chain(&self.near).chain(&self.away).chain(&self.shuns)
    }
}

impl Term {
    /// Whether each node is a domain of its own.
    pub(in crate::schedule) fn is_by_host(&self) -> bool {
        &*self.key == labels::HOSTNAME
    }
}
