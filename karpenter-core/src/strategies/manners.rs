//! What pods ask of their neighbours.

use proptest::{collection::vec, option, prelude::*, sample::select};

use super::{TEAM, ZONES, node_expression};
use crate::{
    api::{
        InclusionPolicy, LabelSelector, NodeSelectorTerm, Pod, PodAffinityTerm, PreferredSchedulingTerm,
        TopologySpreadConstraint, UnsatisfiableAction, WeightedPodAffinityTerm,
    },
    labels,
};

/// The label that tells which pods belong together.
pub const APP: &str = "app";
const APPS: [&str; 3] = ["web", "api", "db"];

/// An app, and what its pods ask of their neighbours.
#[derive(Clone, Debug)]
pub(super) struct Manners {
    app: &'static str,
    spreads: Vec<TopologySpreadConstraint>,
    near: Option<PodAffinityTerm>,
    away: Option<PodAffinityTerm>,
    wishes: Wishes,
}

/// What they prefer.
#[derive(Clone, Debug)]
struct Wishes {
    nodes: Vec<PreferredSchedulingTerm>,
    near: Option<WeightedPodAffinityTerm>,
    away: Option<WeightedPodAffinityTerm>,
}

impl Manners {
    pub(super) fn apply(self, pod: &mut Pod) {
        pod.metadata.labels.insert(APP.to_owned(), self.app.to_owned());
        let spec = &mut pod.spec;
        spec.topology_spread_constraints = self.spreads;
        spec.affinity.node_affinity.preferred = self.wishes.nodes;
        spec.affinity.pod_affinity.required.extend(self.near);
        spec.affinity.pod_affinity.preferred.extend(self.wishes.near);
        spec.affinity.pod_anti_affinity.required.extend(self.away);
        spec.affinity.pod_anti_affinity.preferred.extend(self.wishes.away);
    }
}

pub(super) fn manners() -> impl Strategy<Value = Manners> {
    select(APPS.to_vec()).prop_flat_map(|app| {
        let spreads = prop_oneof![3 => Just(Vec::new()), 2 => vec(spread(app), 1..3)];
        let near = option::weighted(0.15, term(app));
        let away = option::weighted(0.15, term(app));
        (spreads, near, away, wishes(app)).prop_map(move |(mut spreads, near, away, wishes)| {
            spreads.sort_by_key(|s| (s.topology_key.clone(), s.when_unsatisfiable as u8));
            spreads.dedup_by_key(|s| (s.topology_key.clone(), s.when_unsatisfiable));
            Manners { app, spreads, near, away, wishes }
        })
    })
}

/// Pods of these very apps, which in half of all cases are those of `own`.
fn selector(own: &'static str) -> impl Strategy<Value = LabelSelector> {
    prop_oneof![2 => Just(own), 1 => select(APPS.to_vec())].prop_map(|app| LabelSelector::of_labels([(APP, app)]))
}

fn topology_key() -> impl Strategy<Value = String> {
    prop_oneof![4 => Just(labels::ZONE), 3 => Just(labels::HOSTNAME), 1 => Just(labels::CAPACITY_TYPE), 1 => Just(TEAM)]
        .prop_map(str::to_owned)
}

fn spread(own: &'static str) -> impl Strategy<Value = TopologySpreadConstraint> {
    let action = prop_oneof![
        2 => Just(UnsatisfiableAction::DoNotSchedule),
        1 => Just(UnsatisfiableAction::ScheduleAnyway),
    ];
    let policy = || option::weighted(0.15, select(vec![InclusionPolicy::Honor, InclusionPolicy::Ignore]));
    let min_domains = option::weighted(0.15, 1..4_i32);
    (topology_key(), action, 1..4_i32, min_domains, (policy(), policy()), selector(own)).prop_map(
        |(topology_key, when_unsatisfiable, max_skew, min_domains, (affinity, taints), selector)| {
            TopologySpreadConstraint {
                max_skew,
                topology_key,
                when_unsatisfiable,
                label_selector: Some(selector),
                // Only what must hold may ask for a number of domains.
                min_domains: min_domains.filter(|_| when_unsatisfiable == UnsatisfiableAction::DoNotSchedule),
                node_affinity_policy: affinity,
                node_taints_policy: taints,
                match_label_keys: Vec::new(),
            }
        },
    )
}

fn term(own: &'static str) -> impl Strategy<Value = PodAffinityTerm> {
    (topology_key(), selector(own)).prop_map(|(topology_key, selector)| PodAffinityTerm {
        label_selector: Some(selector),
        topology_key,
        ..PodAffinityTerm::default()
    })
}

fn wishes(own: &'static str) -> impl Strategy<Value = Wishes> {
    let preferred = |(weight, match_expressions)| PreferredSchedulingTerm {
        weight,
        preference: NodeSelectorTerm { match_expressions, match_fields: Vec::new() },
    };
    let node = (1..=100_i32, vec(node_expression(), 1..3)).prop_map(preferred);
    let nodes = prop_oneof![5 => Just(Vec::new()), 1 => vec(node, 1..3)];
    let neighbour = || {
        let weighted = |(weight, pod_affinity_term)| WeightedPodAffinityTerm { weight, pod_affinity_term };
        option::weighted(0.1, (1..=100_i32, term(own)).prop_map(weighted))
    };
    (nodes, neighbour(), neighbour()).prop_map(|(nodes, near, away)| Wishes { nodes, near, away })
}

/// Labels of nodes over which pods are spread; a few nodes lack one.
pub(super) fn node_domains() -> impl Strategy<Value = Vec<(&'static str, &'static str)>> {
    let zone = option::weighted(0.95, select(ZONES.to_vec()).prop_map(|zone| (labels::ZONE, zone)));
    let capacity_type = select(vec!["spot", "on-demand"]).prop_map(|kind| (labels::CAPACITY_TYPE, kind));
    (zone, option::weighted(0.8, capacity_type)).prop_map(|(zone, kind)| zone.into_iter().chain(kind).collect())
}
