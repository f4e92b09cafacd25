//! Which pools the rule of weights keeps closed.
//!
//! No claim is opened in a pool if a heavier one could take its pods. So where one heavier pool takes, alone and without
//! limits, each pod that a pool admits, no node of the lighter one is ever made. Nothing finer is read from weights: a
//! single pod that the heavier pool does not take may open the lighter one, and others may join it there.

use fixedbitset::FixedBitSet;
use indexmap::IndexSet;

use super::program::Group;
use crate::{
    FxBuild,
    api::{LabelSelector, PodSpec},
    cluster::HostPort,
    schedule::{
        ReservationPolicy,
        amounts::{Amounts, fits},
        pool::Pool,
        problem::{Base, Meeting, Tolerance},
    },
};

/// The selectors of rules between pods, which may be a reason to pass a heavier pool over.
pub(super) struct Ties<'b> {
    /// `None` if all pools weigh the same, so that nobody asks.
    selectors: Option<IndexSet<&'b LabelSelector, FxBuild>>,
}

impl<'b> Ties<'b> {
    pub(super) fn new(base: &Base<'b>) -> Self {
        let first = base.pools.first().map(|pool| pool.source.weight());
        let has_weights = base.pools.iter().any(|pool| Some(pool.source.weight()) != first);
        // Pods that wait for a reservation keep away from heavier pools without one.
        if !has_weights || base.options.reservations == ReservationPolicy::Strict {
            return Self { selectors: None };
        }
        let selectors = |spec: &'b PodSpec| {
            let terms = [&spec.affinity.pod_affinity.required, &spec.affinity.pod_anti_affinity.required];
            let of_terms = terms.into_iter().flatten().filter_map(|term| term.label_selector.as_ref());
            of_terms.chain(spec.topology_spread_constraints.iter().filter_map(|spread| spread.label_selector.as_ref()))
        };
        Self { selectors: Some(base.snapshot.pods().iter().flat_map(|pod| selectors(&pod.spec)).collect()) }
    }

    /// Whether nothing but the node itself decides where any of these pods may or likes to be.
    pub(super) fn is_free(&self, base: &Base<'_>, pods: &[usize]) -> bool {
        let Some(selectors) = &self.selectors else { return false };
        pods.iter().map(|&pod| &base.snapshot.pods()[pod]).all(|pod| {
            let is_selected = || selectors.iter().any(|selector| selector.matches(&pod.metadata.labels));
            asks_only_for_a_node(&pod.spec) && !is_selected()
        })
    }
}

fn asks_only_for_a_node(spec: &PodSpec) -> bool {
    let affinity = &spec.affinity;
    let (near, away) = (&affinity.pod_affinity, &affinity.pod_anti_affinity);
    let has_neighbours = [near, away].iter().any(|terms| !terms.required.is_empty() || !terms.preferred.is_empty());
    !has_neighbours
        && affinity.node_affinity.preferred.is_empty()
        && spec.topology_spread_constraints.is_empty()
        && spec.volumes.is_empty()
        && HostPort::of_pod(spec).is_empty()
}

/// The pools that were looked at, heaviest first, with the groups that each takes without fail.
#[derive(Default)]
pub(super) struct Heavier(Vec<(u32, Vec<bool>)>);

impl Heavier {
    /// Whether no node of the next pool can be made, because a heavier one takes all that it admits: those that meet it.
    pub(super) fn closes(
        &mut self,
        pool: &Pool<'_>,
        meetings: &[Option<Meeting>],
        requests: &[Amounts],
        groups: &[Group],
    ) -> bool {
        if groups.iter().all(|group| !group.is_free) {
            return false;
        }
        let admits = |group: &Group| meetings[group.constraint].is_some();
        let weight = pool.source.weight();
        let is_closed = self.0.iter().any(|(heavier, takes)| {
            *heavier > weight && groups.iter().zip(takes).all(|(group, takes)| *takes || !admits(group))
        });
        if pool.limits.is_empty() && !pool.has_min_values() {
            let takes = |group: &Group| {
                group.is_free && takes(pool, meetings[group.constraint].as_ref(), &requests[group.request])
            };
            self.0.push((weight, groups.iter().map(takes).collect()));
        }
        is_closed
    }
}

/// Whether a pool has a node for a pod whatever happens: one that is not reserved, and that the pod likes.
fn takes(pool: &Pool<'_>, meeting: Option<&Meeting>, request: &[i64]) -> bool {
    let Some((Tolerance::Full, alternatives)) = meeting else { return false };
    let takes = |row: usize| !pool.table().rows()[row].is_reserved && fits(request, &pool.variant(row).room);
    let has_one = |rows: &FixedBitSet| rows.intersection(&pool.open_rows).any(takes);
    alternatives.iter().any(|alternative| !alternative.is_open_ended && has_one(&alternative.rows))
}
