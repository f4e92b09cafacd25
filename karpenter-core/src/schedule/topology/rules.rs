//! What pods say about their neighbours.

use std::{cmp::Reverse, collections::BTreeSet, sync::Arc};

use super::{
    selectors::{Namespaces, SelectedBy, SelectorId, Selectors},
    wishes::{FULL_WEIGHT, Wish, Wishes},
};
use crate::{
    NodeAlternatives, Requirements,
    api::{
        Affinity, InclusionPolicy, Pod, PodAffinityTerm, PreferredSchedulingTerm, TopologySpreadConstraint,
        UnsatisfiableAction, WeightedPodAffinityTerm, tolerates_all,
    },
    cluster::Place,
    labels,
    schedule::{PreferencePolicy, class::Constraint},
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

/// The rules and wishes of a pod, and the rules of others that are about it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(in crate::schedule) struct Neighbourhood {
    pub(in crate::schedule) selected_by: SelectedBy,
    hard: Rules,
    wishes: Wishes,
}

impl Neighbourhood {
    /// Reads the rules of a pod, and its wishes as far as they are looked at.
    pub(in crate::schedule) fn of_pod<'s>(
        pod: &'s Pod,
        selectors: &mut Selectors<'s>,
        namespaces: &Namespaces,
        preferences: PreferencePolicy,
    ) -> Self {
        let affinity = &pod.spec.affinity;
        let has_wishes = preferences != PreferencePolicy::Ignore;
        let mut read = |term: &PodAffinityTerm| Term {
            selector: selectors.of_term(pod, term, namespaces),
            key: Arc::from(labels::normalized(&term.topology_key)),
        };
        let near = in_any_order(&affinity.pod_affinity.required, &mut read);
        let away = in_any_order(&affinity.pod_anti_affinity.required, &mut read);
        let mut wishes = if has_wishes { wishes_of_affinity(affinity, read) } else { Vec::new() };
        let mut spread = |constraint| Spread::new(pod, constraint, selectors);
        let all = &pod.spec.topology_spread_constraints;
        let hard = in_any_order(all.iter().filter(|constraint| constraint.is_hard()), &mut spread);
        let hard = Rules { spreads: hard, near, away, ..Rules::default() };
        if has_wishes {
            let spreads = order_of_giving_up(all).into_iter().map(spread);
            wishes.extend(spreads.map(|spread| (Wish::Spread(spread), FULL_WEIGHT)));
        }
        let is_weighed = preferences == PreferencePolicy::Weigh;
        let wishes = if is_weighed { Wishes::weighed(wishes) } else { Wishes::in_order(wishes) };
        Self { selected_by: SelectedBy::default(), hard, wishes }
    }

    /// The same, of pods that these selectors select.
    pub(in crate::schedule) fn selected_by(self, selected_by: SelectedBy) -> Self {
        Self { selected_by, ..self }
    }

    /// How many steps there are: all wishes kept at the first, none at the last.
    pub(in crate::schedule) const fn levels(&self) -> usize {
        self.wishes.levels()
    }

    /// The rules that hold at a step.
    ///
    /// Karpenter gives up one wish at each, in this order: pods to be near to, pods to keep away from, nodes, spreads; in
    /// each the heaviest first. Of the nodes wished for only the heaviest wish counts. Weighed wishes are kept in any
    /// combination, and all wishes for nodes that are kept count.
    pub(in crate::schedule) fn rules_at(&self, level: usize) -> Rules {
        let mut rules = self.hard.clone();
        self.wishes.add_to(&mut rules, level);
        rules
    }

    /// The weight of the weighed wishes that are given up at each step.
    pub(in crate::schedule) fn unmet_weights(&self) -> Vec<u64> {
        self.wishes.unmet_weights()
    }

    /// The same at the steps of pods that give up these wishes in Karpenter's order.
    pub(in crate::schedule) fn unmet_weights_in_order(&self) -> Vec<u64> {
        self.wishes.unmet_weights_in_order()
    }

    /// The rules that hold whatever is given up.
    pub(in crate::schedule) const fn hard(&self) -> &Rules {
        &self.hard
    }
}

impl Rules {
    /// The labels over which pods are to be spread, in order.
    pub(super) fn spread_keys(&self) -> Vec<Arc<str>> {
        let keys: BTreeSet<&Arc<str>> = self.spreads.iter().map(|spread| &spread.term.key).collect();
        keys.into_iter().cloned().collect()
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

    /// Whether pods on a place count that has the labels, if the spread is of pods with this constraint.
    pub(super) fn counts_on(&self, own: &Constraint, place: &Place) -> bool {
        (!self.honors_affinity || own.wanted.admit_node(&place.name, &place.labels))
            && (!self.honors_taints || tolerates_all(&own.tolerations, &place.taints, false).is_ok())
    }
}

/// What is read of all of some rules that hold together: the same whatever the order in which they are written.
fn in_any_order<'r, T: Ord + 'r, R: PartialEq>(
    all: impl IntoIterator<Item = &'r T>,
    read: impl FnMut(&'r T) -> R,
) -> Vec<R> {
    let mut all: Vec<&T> = all.into_iter().collect();
    all.sort_unstable();
    let mut out = Vec::with_capacity(all.len());
    for rule in all.into_iter().map(read) {
        if !out.contains(&rule) {
            out.push(rule);
        }
    }
    out
}

/// What a pod prefers of nodes and neighbours, with the weights, in the order in which Karpenter gives it up.
fn wishes_of_affinity(affinity: &Affinity, mut read: impl FnMut(&PodAffinityTerm) -> Term) -> Vec<(Wish, i32)> {
    let Affinity { node_affinity, pod_affinity, pod_anti_affinity } = affinity;
    let mut heaviest_first = |terms: &[WeightedPodAffinityTerm], wish: fn(Term) -> Wish| -> Vec<(Wish, i32)> {
        let mut terms: Vec<_> = terms.iter().collect();
        terms.sort_by_key(|t| Reverse(t.weight));
        terms.into_iter().map(|t| (wish(read(&t.pod_affinity_term)), t.weight)).collect()
    };
    let mut out = heaviest_first(&pod_affinity.preferred, Wish::Near);
    out.extend(heaviest_first(&pod_anti_affinity.preferred, Wish::Away));
    let mut nodes: Vec<_> = node_affinity.preferred.iter().collect();
    nodes.sort_by_key(|t| Reverse(t.weight));
    let node = |t: &PreferredSchedulingTerm| {
        NodeAlternatives::of_term(&t.preference).map(|wanted| (Wish::Node(wanted), t.weight))
    };
    out.extend(nodes.into_iter().filter_map(node));
    out
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
