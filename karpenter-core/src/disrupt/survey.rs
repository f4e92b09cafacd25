//! Looks at one place after the other, and names all that keeps it.

use std::{collections::BTreeSet, sync::Arc};

use indexmap::IndexMap;

use super::{
    Candidate, EvictionLimits, Guard, Toll,
    cost::{disruption_cost_by, rescheduling_cost_by},
    price_of,
    roster::Traits,
};
use crate::{
    Catalog, Catalogs, FxBuild, Snapshot, Timestamp,
    api::{
        Condition, ConditionStatus, ConsolidationPolicy, DisruptionReason, NodeClaim, NodePool, ObjectKey, Pod, Shield,
        conditions::{CONSOLIDATABLE, INITIALIZED, condition},
    },
    cluster::Place,
    labels,
};

/// What places are judged by.
pub(super) struct Survey<'s> {
    pub(super) snapshot: &'s Snapshot,
    pub(super) catalogs: &'s Catalogs,
    /// By the indices of the pods.
    traits: &'s [Traits],
    pub(super) limits: &'s EvictionLimits,
    /// The names of the places that are on their way out.
    leaving: &'s BTreeSet<&'s str>,
    pub(super) now: Timestamp,
    /// The indices of the pods by where they lie in memory, which is found sooner than their names are compared.
    indices: IndexMap<*const Pod, usize, FxBuild>,
}

/// What a node was made from.
struct Origin<'s> {
    claim: &'s NodeClaim,
    pool: &'s NodePool,
    catalog: &'s Catalog,
}

impl<'s> Survey<'s> {
    pub(super) fn new(
        snapshot: &'s Snapshot,
        catalogs: &'s Catalogs,
        traits: &'s [Traits],
        limits: &'s EvictionLimits,
        leaving: &'s BTreeSet<&'s str>,
        now: Timestamp,
    ) -> Self {
        let indices = snapshot.pods().iter().map(Arc::as_ptr).zip(0..).collect();
        Self { snapshot, catalogs, traits, limits, leaving, now, indices }
    }

    /// The place as a candidate, or what keeps it from going for any reason.
    pub(super) fn look_at(&self, index: usize, place: &'s Place) -> Result<Candidate, Vec<Guard>> {
        let Some(claim) = place.node_claim.as_deref() else { return Err(vec![Guard::NotManaged]) };
        let (pods, promised) = self.pods_of(place);
        let mut guards = guards_of_node(place);
        if !promised.is_empty() {
            guards.push(Guard::Nominated { pods: promised });
        }
        guards.extend(pods.iter().flat_map(|&pod| self.guards_of_pod(pod)));
        let origin = match self.origin(place, claim) {
            Ok(origin) => origin,
            Err(guard) => {
                guards.push(guard);
                return Err(guards);
            }
        };
        let mut candidate = self.candidate(index, place, &origin, &pods);
        guards.extend(self.guards_of_pool(&origin, &candidate));
        guards.extend(guards_of_price(&origin, &candidate));
        candidate.guards = guards;
        // What lets a node go for any reason lets it go for drift.
        if candidate.allows(DisruptionReason::Drifted) { Ok(candidate) } else { Err(candidate.guards) }
    }

    /// The place as a candidate, whatever keeps it; `None` if it is not known what it was made from.
    pub(super) fn regardless(&self, index: usize, place: &'s Place) -> Option<Candidate> {
        let origin = self.origin(place, place.node_claim.as_deref()?).ok()?;
        Some(self.candidate(index, place, &origin, &self.pods_of(place).0))
    }

    /// The pods that are bound to a place, by index, and those that its room was promised to, because they wait for a node or
    /// must leave theirs.
    fn pods_of(&self, place: &Place) -> (Vec<usize>, Vec<ObjectKey>) {
        let all = place.residents.iter().filter_map(|pod| self.indices.get(&Arc::as_ptr(pod)).copied());
        let comes = |pod: usize| {
            let node = self.snapshot.pods()[pod].spec.node_name.as_str();
            node != place.name && self.leaving.contains(node)
        };
        let (bound, promised): (Vec<usize>, Vec<usize>) =
            all.partition(|&pod| self.traits[pod].is_bound && !comes(pod));
        (bound, promised.into_iter().map(|pod| self.snapshot.pods()[pod].key()).collect())
    }

    fn origin(&self, place: &Place, claim: &'s NodeClaim) -> Result<Origin<'s>, Guard> {
        let name = place.pool.as_deref().ok_or(Guard::NoPool)?;
        let pool = self.snapshot.pool(name).ok_or_else(|| Guard::UnknownPool { pool: name.to_owned() })?;
        let catalog = self.catalogs.get(name).filter(|catalog| !catalog.types().is_empty());
        let catalog = catalog.ok_or_else(|| Guard::NoInstanceTypes { pool: name.to_owned() })?;
        Ok(Origin { claim, pool, catalog })
    }

    fn candidate(&self, index: usize, place: &Place, origin: &Origin<'_>, pods: &[usize]) -> Candidate {
        let label = |key: &str| place.labels.get(key).cloned();
        let eviction_cost = |pod: usize| self.traits[pod].eviction_cost;
        let pods_to_move = || pods.iter().copied().filter(|&pod| self.traits[pod].is_reschedulable);
        let rescheduling_cost = rescheduling_cost_by(pods_to_move().map(eviction_cost));
        let disruption_cost = disruption_cost_by(pods.iter().copied().map(eviction_cost), origin.claim, self.now);
        Candidate {
            place: index,
            name: place.name.clone(),
            claim: origin.claim.name().to_owned(),
            pool: origin.pool.name().to_owned(),
            instance_type: label(labels::INSTANCE_TYPE),
            zone: label(labels::ZONE),
            capacity_type: label(labels::CAPACITY_TYPE),
            pods: pods_to_move().collect(),
            price_per_hour: price_of(place, origin.catalog),
            rescheduling_cost,
            disruption_cost,
            has_termination_grace_period: origin.claim.spec.termination_grace_period.is_some(),
            guards: Vec::new(),
        }
    }

    fn guards_of_pod(&self, index: usize) -> impl Iterator<Item = Guard> + use<> {
        let pod = &self.snapshot.pods()[index];
        let shield = Some(pod).filter(|_| self.traits[index].has_shield).and_then(|pod| Shield::of_pod(pod, self.now));
        let shield = shield.map(|shield| Guard::PodDoNotDisrupt { pod: pod.key(), shield });
        let budget = match self.limits.toll(index) {
            Toll::One(limit) if limit.allowed == 0 => Some(Guard::PodBudget { pod: pod.key(), limit: limit.clone() }),
            Toll::Refused(budgets) => Some(Guard::SeveralPodBudgets { pod: pod.key(), budgets: budgets.to_vec() }),
            Toll::Free | Toll::One(_) => None,
        };
        shield.into_iter().chain(budget)
    }

    /// What the pool keeps from consolidation.
    fn guards_of_pool(&self, origin: &Origin<'_>, candidate: &Candidate) -> Vec<Guard> {
        let (rules, pool) = (&origin.pool.spec.disruption, || origin.pool.name().to_owned());
        let mut out = Vec::new();
        if origin.pool.is_static() {
            out.push(Guard::StaticPool { pool: pool() });
        }
        if rules.consolidate_after.duration().is_none() {
            out.push(Guard::NeverConsolidated { pool: pool() });
        }
        if let Err(until) = quiet(origin.claim, origin.pool, self.now) {
            let consolidate_after = rules.consolidate_after.clone();
            out.push(Guard::NotQuiet { pool: pool(), consolidate_after, until });
        }
        if rules.consolidation_policy == ConsolidationPolicy::WhenEmpty && !candidate.pods.is_empty() {
            out.push(Guard::NotEmpty { pool: pool(), pod_count: candidate.pods.len() });
        }
        out
    }
}

/// What the node says itself.
fn guards_of_node(place: &Place) -> Vec<Guard> {
    let Some(node) = place.node.as_deref() else { return vec![Guard::NoNode] };
    let annotation = node.metadata.annotations.get(labels::DO_NOT_DISRUPT);
    let all = [
        (!place.is_initialized, Guard::NotInitialized),
        (place.is_deleting, Guard::Leaving),
        (place.is_disrupted(), Guard::Disrupted),
        (place.is_closed, Guard::Closed),
        (annotation.is_some_and(|value| value == "true"), Guard::DoNotDisrupt),
    ];
    all.into_iter().filter_map(|(holds, guard)| holds.then_some(guard)).collect()
}

/// Whether a place is on its way out, or was chosen to be.
pub(super) fn is_leaving(place: &Place) -> bool {
    place.is_deleting || place.is_disrupted()
}

/// What is not known of what the node costs.
fn guards_of_price(origin: &Origin<'_>, candidate: &Candidate) -> Vec<Guard> {
    let Candidate { instance_type, zone, capacity_type, .. } = candidate;
    let labels = [(instance_type, labels::INSTANCE_TYPE), (zone, labels::ZONE), (capacity_type, labels::CAPACITY_TYPE)];
    let mut out: Vec<_> =
        labels.iter().filter(|(value, _)| value.is_none()).map(|&(_, key)| Guard::NoLabel { key }).collect();
    let Some(instance_type) = instance_type.clone() else { return out };
    if origin.catalog.get(&instance_type).is_none() {
        out.push(Guard::UnknownInstanceType { pool: origin.pool.name().to_owned(), instance_type });
    } else if let (Some(zone), Some(capacity_type), None) = (zone, capacity_type, candidate.price_per_hour) {
        let (zone, capacity_type) = (zone.clone(), capacity_type.clone());
        out.push(Guard::PriceUnknown { instance_type, zone, capacity_type });
    }
    out
}

/// Whether the wait of a node's pool after pods came or went is not over.
pub(super) fn is_disturbed(place: &Place, pool: Option<&NodePool>, now: Timestamp) -> bool {
    place.node_claim.as_deref().zip(pool).is_some_and(|(claim, pool)| matches!(quiet(claim, pool, now), Err(Some(_))))
}

/// Whether pods have left a node alone for long enough; if not, when they will have, if that can be told.
///
/// The claim's condition `Consolidatable` says so. A claim that has none is judged as the one who writes that condition
/// would: by the last time that a pod came or went, else by when the node was initialized, else by when the claim was
/// made. If all of that is unknown, nothing is known to have disturbed the node.
fn quiet(claim: &NodeClaim, pool: &NodePool, now: Timestamp) -> Result<(), Option<Timestamp>> {
    let Some(wait) = pool.spec.disruption.consolidate_after.duration() else { return Ok(()) };
    let condition = |of_type: &str| condition(&claim.status.conditions, of_type);
    let is_true = |c: &&Condition| c.status == ConditionStatus::True;
    let written = condition(CONSOLIDATABLE);
    if written.as_ref().is_some_and(is_true) {
        return Ok(());
    }
    let initialized = condition(INITIALIZED).filter(is_true).and_then(|c| c.last_transition_time);
    let disturbed = claim.status.last_pod_event_time.or(initialized).or(claim.metadata.creation_timestamp);
    let until = disturbed.map(|time| time + wait).filter(|&until| !wait.is_zero() && now < until);
    match (written, until) {
        (None, None) => Ok(()),
        (_, until) => Err(until),
    }
}
