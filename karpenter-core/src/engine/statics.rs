//! Pools that have so many nodes, whatever the pods need.

use std::sync::Arc;

use super::{Engine, Work};
use crate::{
    Timestamp,
    api::{NodeClaim, NodePool, Pod, Shield},
    disrupt::{disruption_cost, static_claim},
};

/// The most claims of a pool that are made at once; others follow when these are there.
const MAX_NEW_CLAIMS: usize = 100;
/// Why claims go of which their pool has too many.
const SHRUNK: &str = "StaticScaleDown";

impl Engine {
    /// Makes the claims that a static pool lacks, or deletes those that it has too many of.
    pub(super) fn keep_replicas(&mut self, pool: &Arc<NodePool>, now: Timestamp) {
        let is_kept = self.options.static_capacity && pool.metadata.deletion_timestamp.is_none();
        let Some(replicas) = pool.spec.replicas.filter(|_| is_kept) else { return };
        let replicas = usize::try_from(replicas).unwrap_or(usize::MAX);
        let is_of = |claim: &&NodeClaim| claim.pool_name() == Some(pool.name());
        let all: Vec<Arc<NodeClaim>> = self.store.claims.values().filter(|c| is_of(&c.as_ref())).cloned().collect();
        let creating = self.provisioner.creating.values().filter(is_of).count();
        let active: Vec<Arc<NodeClaim>> = all.iter().filter(|claim| self.stays(claim)).cloned().collect();
        let has = active.len() + creating;
        if has < replicas && pool.not_ready().is_none() {
            let limit = pool.spec.limits.get("nodes").map(|limit| usize::try_from(limit.units_floor()).unwrap_or(0));
            let room = limit.map_or(usize::MAX, |limit| limit.saturating_sub(all.len() + creating));
            let catalogs = self.market.catalogs(&self.store.pools, now);
            let Some(planned) = catalogs.get(pool.name()).and_then(|catalog| static_claim(pool, catalog)) else {
                if let Some(next) = self.market.next_return() {
                    self.agenda.at(Work::Pool(pool.name().to_owned()), next);
                }
                return;
            };
            for _ in 0..(replicas - has).min(room).min(MAX_NEW_CLAIMS) {
                self.create_claim(&planned, pool, None, now);
            }
        } else if replicas < has {
            // Those that are on their way run nothing, and can go when they are there.
            let surplus = (has - replicas).saturating_sub(creating);
            for claim in self.least_missed(active, now).into_iter().take(surplus) {
                // It counts no more from now on: until its deletion is told, another one might be missed less.
                self.lives.of(&claim).doom = Some(SHRUNK);
                self.delete_claim(&claim, SHRUNK, format!("NodePool {} has too many nodes", pool.name()), now);
            }
        }
    }

    /// Claims in the order in which they go: those without a machine, those without pods, and then those of which it costs
    /// least to disturb the pods; those with a pod that asks to be left where it is come last.
    fn least_missed(&self, claims: Vec<Arc<NodeClaim>>, now: Timestamp) -> Vec<Arc<NodeClaim>> {
        let mut keyed: Vec<_> = claims
            .into_iter()
            .map(|claim| {
                let nodes = self.store.nodes_of(&claim);
                let pods = nodes.flat_map(|node| self.store.pods_on(&node.metadata.name));
                let pods: Vec<&Pod> = pods.map(AsRef::as_ref).collect();
                let is_used = pods.iter().any(|pod| pod.is_reschedulable());
                let is_held = pods.iter().any(|pod| Shield::of_pod(pod, now).is_some());
                let cost = disruption_cost(pods.iter().copied(), &claim, now);
                ((!claim.status.provider_id.is_empty(), is_used, is_held, cost), claim)
            })
            .collect();
        keyed.sort_by(|(a, x), (b, y)| {
            let by_state = (a.0, a.1, a.2).cmp(&(b.0, b.1, b.2));
            by_state.then(a.3.total_cmp(&b.3)).then_with(|| x.name().cmp(y.name()))
        });
        keyed.into_iter().map(|(_, claim)| claim).collect()
    }
}
