//! Pools that have so many nodes, whatever the pods need.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{Engine, Work, market::choices};
use crate::{
    Catalog, PlannedClaim, Price, Requirements, Timestamp,
    api::{NodeClaim, NodePool, Pod},
    disrupt::disruption_cost,
    labels,
};

/// The most instance types in a claim: Karpenter's own limit.
const MAX_INSTANCE_TYPES: usize = 600;
/// The most claims of a pool that are made at once; others follow when these are there.
const MAX_NEW_CLAIMS: usize = 100;

impl Engine {
    /// Makes the claims that a static pool lacks, or deletes those that it has too many of.
    pub(super) fn keep_replicas(&mut self, pool: &Arc<NodePool>, now: Timestamp) {
        let Some(replicas) = pool.spec.replicas.filter(|_| pool.metadata.deletion_timestamp.is_none()) else { return };
        let replicas = usize::try_from(replicas).unwrap_or(usize::MAX);
        let is_of = |claim: &&NodeClaim| claim.metadata.labels.get(labels::NODE_POOL).is_some_and(|p| p == pool.name());
        let all: Vec<Arc<NodeClaim>> = self.store.claims.values().filter(|c| is_of(&c.as_ref())).cloned().collect();
        let creating = self.provisioner.creating.values().filter(is_of).count();
        let leaving = self.disruption.leaving();
        let stays = |claim: &Arc<NodeClaim>| {
            let is_doomed = self.lives.get(claim.name(), &claim.metadata.uid).is_some_and(|life| life.doom.is_some());
            claim.metadata.deletion_timestamp.is_none() && !leaving.contains(claim.name()) && !is_doomed
        };
        let active: Vec<Arc<NodeClaim>> = all.iter().filter(|claim| stays(claim)).cloned().collect();
        let has = active.len() + creating;
        if has < replicas && is_ready(pool) {
            let limit = pool.spec.limits.get("nodes").and_then(|limit| usize::try_from(limit.units_floor()).ok());
            let room = limit.map_or(usize::MAX, |limit| limit.saturating_sub(all.len() + creating));
            let catalogs = self.market.catalogs(&self.store.pools, now);
            let Some(planned) = catalogs.get(pool.name()).and_then(|catalog| bare_claim(pool, catalog)) else {
                if let Some(next) = self.market.next_return() {
                    self.agenda.at(Work::Pool(pool.name().to_owned()), next);
                }
                return;
            };
            for _ in 0..(replicas - has).min(room).min(MAX_NEW_CLAIMS) {
                self.create_claim(&planned, pool, None, now);
            }
        } else if replicas < has {
            for claim in self.least_missed(active, now).into_iter().take(has - replicas) {
                self.delete_claim(
                    &claim,
                    "StaticScaleDown",
                    format!("NodePool {} has too many nodes", pool.name()),
                    now,
                );
            }
        }
    }

    /// Claims in the order in which they go: those without a machine, those without pods, and then those of which it costs
    /// least to disturb the pods; those with a pod that asks to be left where it is come last.
    fn least_missed(&self, claims: Vec<Arc<NodeClaim>>, now: Timestamp) -> Vec<Arc<NodeClaim>> {
        let mut keyed: Vec<_> = claims
            .into_iter()
            .map(|claim| {
                let pods: Vec<&Pod> = self
                    .store
                    .nodes_of(&claim)
                    .flat_map(|node| self.store.pods_on(&node.metadata.name))
                    .map(AsRef::as_ref)
                    .filter(|pod| pod.is_reschedulable())
                    .collect();
                let is_held = pods.iter().any(|pod| crate::disrupt::Shield::of_pod(pod, now).is_some());
                let cost = disruption_cost(pods.iter().copied(), &claim, now);
                ((!claim.status.provider_id.is_empty(), !pods.is_empty(), is_held, cost), claim)
            })
            .collect();
        keyed.sort_by(|(a, x), (b, y)| {
            let by_state = (a.0, a.1, a.2).cmp(&(b.0, b.1, b.2));
            by_state.then(a.3.total_cmp(&b.3)).then_with(|| x.name().cmp(y.name()))
        });
        keyed.into_iter().map(|(_, claim)| claim).collect()
    }
}

/// Static pools are not ready for pods, which is another question.
fn is_ready(pool: &NodePool) -> bool {
    let mut dynamic = pool.clone();
    dynamic.spec.replicas = None;
    dynamic.unready().is_none()
}

/// A claim that asks for nothing but what its pool does; `None` if nothing can be bought for it.
fn bare_claim(pool: &NodePool, catalog: &Catalog) -> Option<PlannedClaim> {
    let template = &pool.spec.template;
    let mut requirements: Requirements = template.spec.requirements.iter().collect();
    requirements.add_all(&Requirements::of_labels(&template.metadata.labels));
    let mut prices: BTreeMap<&str, Price> = BTreeMap::new();
    for (own, offering) in choices(&requirements, catalog) {
        let price = prices.entry(&own.name).or_insert(offering.price);
        *price = offering.price.min(*price);
    }
    let types: BTreeSet<(Price, &str)> = prices.into_iter().map(|(name, price)| (price, name)).collect();
    let cheapest = types.first()?.0;
    let names = types.iter().take(MAX_INSTANCE_TYPES).map(|(_, name)| *name);
    Some(PlannedClaim::new(pool.name(), Vec::new(), names, cheapest, requirements))
}
