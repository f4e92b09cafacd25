//! Whether it is known already what pods and nodes that are still to come mean for further pods.

use std::sync::Arc;

use crate::{
    Catalogs, NodeAlternatives, Requirements, Snapshot,
    api::{NodeAffinity, ObjectKey, Pod, PodSpec},
    cluster::{Place, pod_requests},
    labels,
    schedule::{
        problem::Base,
        topology::{Neighbourhood, Rules, Selectors, Spread, Term, count_all_named},
    },
};

/// Whether pods without a place may find one near to further pods.
pub(super) fn is_waited_for<'k>(
    snapshot: &Snapshot,
    unplaced: impl Iterator<Item = &'k ObjectKey>,
    further: &[Arc<Pod>],
) -> bool {
    let mut selectors = Selectors::default();
    for pod in unplaced.filter_map(|key| snapshot.pod(key)) {
        for term in &pod.spec.affinity.pod_affinity.required {
            selectors.of_term(pod, term, snapshot.namespaces());
        }
    }
    further.iter().any(|pod| {
        let set = selectors.selecting(pod);
        !selectors.ids(set).is_empty()
    })
}

/// Whether other domains may count for spreads in a plan in two parts than in a plan for all pods: those count in which a node may
/// come for some pod that waits. There may be none for the first part, or none any more once that has used up a reservation.
pub(super) fn may_differ_in_domains(before: &Snapshot, further: &[Arc<Pod>], catalogs: &Catalogs) -> bool {
    let is_spread = |pod: &Pod| {
        let mut spreads = pod.spec.topology_spread_constraints.iter();
        spreads.any(|spread| spread.is_hard() && spread.topology_key != labels::HOSTNAME)
    };
    let is_spread_before = before.pending().any(is_spread);
    if !is_spread_before && !further.iter().any(|pod| is_spread(pod)) {
        return false;
    }
    let mut of_pools = before.pools().iter().filter_map(|pool| catalogs.get(pool.name()));
    let has_no_like = |pod: &Arc<Pod>| {
        let requests = pod_requests(pod);
        let goes_wherever = |other: &Pod| is_as_free(&other.spec, &pod.spec) && pod_requests(other).fits(&requests);
        !before.pending().any(goes_wherever)
    };
    of_pools.any(|catalog| catalog.reservation_label().is_some()) || is_spread_before && further.iter().any(has_no_like)
}

/// Whether a pod can go to all nodes to which another can, as far as it is no larger.
fn is_as_free(own: &PodSpec, other: &PodSpec) -> bool {
    let affinity = &own.affinity.node_affinity;
    own.volumes.is_empty()
        && own.resource_claims.is_empty()
        && (own.node_selector.is_empty() || own.node_selector == other.node_selector)
        && (*affinity == NodeAffinity::default() || *affinity == other.affinity.node_affinity)
        && other.tolerations.iter().all(|toleration| own.tolerations.contains(toleration))
}

/// Whether pods that are still to come bear on the pending pods only in ways that are known: their nodes will have the labels
/// by which rules look at them, and they will be in no domain that spreads do not count yet.
pub(super) fn is_clear(base: &Base<'_>) -> bool {
    let places = base.snapshot.places().iter().enumerate().filter(|(_, place)| !place.coming.is_empty());
    let classes = || 0..base.classes.list.len();
    let draws_clearly = |class| draws_clearly(base, base.classes.neighbourhood(class).hard());
    classes().all(draws_clearly)
        && count_all_named(base)
        && places.into_iter().all(|(index, place)| {
            let keeps_clear = |class| keeps_clear(base, (index, place), base.classes.neighbourhood(class));
            let counts_clearly = |class| {
                let rules = base.classes.neighbourhood(class).hard();
                counts_clearly(base, (index, place), rules, &base.classes.node_wanted(class))
            };
            classes().all(keeps_clear) && classes().all(counts_clearly)
        })
}

/// Whether the place has the labels by which pods and those that come to it must not meet.
fn keeps_clear(base: &Base<'_>, (index, place): (usize, &Place), neighbourhood: &Neighbourhood) -> bool {
    let (standing, selectors) = (&base.classes.standing, &base.classes.selectors);
    let is_kept_away = |term: &&Term| standing.is_coming(selectors, index, term.selector);
    let keeps_away = |term: &&Term| selectors.selects(term.selector, neighbourhood.selected_by);
    let kept_away = neighbourhood.hard().away.iter().filter(is_kept_away);
    let mut terms = kept_away.chain(standing.away(index).iter().filter(keeps_away));
    terms.all(|term| term.is_by_host() || place.labels.contains_key(&*term.key))
}

/// Whether, for each rule by which pods must be near to others, it is known of one of these where it is, unless there are none.
/// Pods may begin in a domain of their own only if there are none.
fn draws_clearly(base: &Base<'_>, rules: &Rules) -> bool {
    let (standing, selectors) = (&base.classes.standing, &base.classes.selectors);
    rules.near.iter().filter(|term| !term.is_by_host()).all(|term| {
        let has_company = |place: usize| standing.has_company(selectors, place, std::slice::from_ref(term));
        let places = base.snapshot.places().iter().enumerate();
        let mut with_company = places.filter(|(index, _)| has_company(*index)).map(|(_, place)| place).peekable();
        with_company.peek().is_none() || with_company.any(|place| place.labels.contains_key(&*term.key))
    })
}

/// Whether the place has the labels that tell whether pods that come to it count for spreads.
fn counts_clearly(base: &Base<'_>, (index, place): (usize, &Place), rules: &Rules, wanted: &NodeAlternatives) -> bool {
    let shared = || rules.spreads.iter().filter(|spread| !spread.term.is_by_host());
    let counts = |spread: &&Spread| base.classes.standing.coming_of_spread(index, &spread.term) > 0;
    if !shared().any(|spread| counts(&spread)) {
        return true;
    }
    let has_keys = shared().all(|spread| place.labels.contains_key(&*spread.term.key));
    let has_wanted = |wanted: &Requirements| wanted.iter().all(|(key, _)| place.labels.contains_key(key));
    has_keys && (wanted.alternatives().iter().all(has_wanted) || shared().all(|spread| !spread.honors_affinity))
}
