//! The cluster as planning sees it.

use std::{collections::BTreeSet, sync::Arc};

use super::{Engine, ObjectRef, disruption::Active};
use crate::{
    Snapshot, SnapshotError, Timestamp,
    api::{Node, NodeClaim, NodePool, ObjectKey, Pod, Shield},
};

impl Engine {
    /// The cluster with what was promised: claims that were asked for are there, nodes that are being replaced are on their way
    /// out, and their pods are where they will be. `None` if the objects are no cluster. An API server lets no such objects in, so
    /// that people must hear of it: nothing is decided until they are gone.
    pub(super) fn snapshot(&mut self, now: Timestamp) -> Option<Snapshot> {
        match self.built_snapshot(now) {
            Ok(snapshot) => {
                self.snapshot_error = None;
                self.last_snapshot = Some(snapshot.clone());
                Some(snapshot)
            }
            Err(error) => {
                self.tell_of_no_snapshot(error, now);
                None
            }
        }
    }

    /// Says why nothing is decided: to each pool, for all of them stand still, and once for as long as the reason is the same.
    fn tell_of_no_snapshot(&mut self, error: SnapshotError, now: Timestamp) {
        self.counters.not_seen();
        if self.snapshot_error.as_ref() == Some(&error) {
            return;
        }
        let pools: Vec<String> = self.store.pools.keys().cloned().collect();
        for pool in pools {
            let message = format!("No node is made or taken away: {error}");
            self.note(ObjectRef::NodePool(pool), true, "ClusterNotUnderstood", message, now);
        }
        self.snapshot_error = Some(error);
    }

    fn built_snapshot(&mut self, now: Timestamp) -> Result<Snapshot, SnapshotError> {
        let leaving = self.disruption.leaving();
        let claims = self.claims(&leaving, now);
        let store = &self.store;
        let mut builder = Snapshot::builder()
            .at(now)
            .pools(store.pools.values().map(|pool| (**pool).clone()))
            .nodes(store.nodes.values().cloned())
            .claims(claims)
            .claims(self.provisioner.creating.values().cloned())
            .ordered_pods(self.pods())
            .namespaces(store.namespaces.values().map(|namespace| (**namespace).clone()))
            .volume_claims(store.volume_claims.values().map(|claim| (**claim).clone()))
            .volumes(store.volumes.values().map(|volume| (**volume).clone()))
            .storage_classes(store.storage_classes.values().map(|class| (**class).clone()))
            .csi_nodes(store.csi_nodes.values().map(|node| (**node).clone()));
        for set in store.daemonsets.values() {
            builder = builder.daemonset((**set).clone());
        }
        for budget in store.budgets.values() {
            builder = builder.budget((**budget).clone());
        }
        for node in store.closed_nodes() {
            builder = builder.close_node(node.clone());
        }
        for active in &self.disruption.active {
            builder = builder.exchange(self.may_stay(active), active.replacements.iter().cloned());
        }
        for (pod, promise) in &self.provisioner.promises {
            builder = builder.nominate(pod.clone(), promise.place.clone());
        }
        if let Some(last) = &self.last_snapshot {
            builder = builder.sharing_with(last);
        }
        builder.build()
    }

    /// The claims of a command's nodes that would stay if it were given up.
    fn may_stay(&self, command: &Active) -> impl Iterator<Item = String> {
        let stays = |name: &&String| {
            self.store.claims.get(*name).is_some_and(|claim| claim.metadata.deletion_timestamp.is_none())
        };
        command.candidates.iter().map(|outgoing| &outgoing.claim).filter(stays).cloned()
    }

    /// The claims with what is known of them and not written yet; those that commands take away are on their way out.
    fn claims(&mut self, leaving: &BTreeSet<String>, now: Timestamp) -> Vec<Arc<NodeClaim>> {
        let (store, lives) = (&self.store, &mut self.lives);
        let seen = |claim: &Arc<NodeClaim>| {
            let consolidate_after = |pool: &Arc<NodePool>| pool.spec.disruption.consolidate_after.duration();
            let pool = store.pool_of(claim);
            let waits = || pool.and_then(consolidate_after).is_some_and(|wait| !wait.is_zero());
            let mut claim = lives.freshened(claim, waits);
            if claim.metadata.deletion_timestamp.is_none() && leaving.contains(claim.name()) {
                Arc::make_mut(&mut claim).metadata.deletion_timestamp = Some(now);
            }
            claim
        };
        store.claims.values().map(seen).collect()
    }

    /// The pods that can be read; those that are [taken to wait](super::siblings) do.
    fn pods(&self) -> Vec<Arc<Pod>> {
        let store = &self.store;
        let is_paused = |pod: &Pod| pod.spec.node_name.is_empty() && self.provisioner.is_paused(pod);
        let mut all: Vec<Arc<Pod>> = if self.provisioner.has_pauses() || !store.unreadable.is_empty() {
            store.pods.values().filter(|pod| !is_paused(pod) && !store.is_unreadable(pod)).cloned().collect()
        } else {
            store.pods.values().cloned().collect()
        };
        for pod in self.siblings.taken_to_wait(store) {
            if let Ok(index) = all.binary_search_by(|other| other.sort_key().cmp(&pod.sort_key())) {
                all[index] = pod;
            }
        }
        all
    }

    /// When the first pod wants another place that asks to be left where it is for a while, on a node that goes.
    pub(super) fn next_to_move(&self, now: Timestamp) -> Option<Timestamp> {
        let leaving = self.disruption.leaving();
        let nodes = self.store.all_leaving_nodes(&leaving);
        let shields =
            nodes.flat_map(|node| self.store.pods_on(&node.metadata.name)).map(|pod| Shield::of_pod(pod, now));
        shields.filter_map(|shield| if let Some(Shield::Until(until)) = shield { Some(until) } else { None }).min()
    }

    /// Whether a pod may want a place: one that waits for which no room is kept, or one that must leave its node. If not, no pod of
    /// the [snapshot](Self::snapshot) is pending.
    pub(super) fn may_want_places(&self) -> bool {
        let (store, leaving) = (&self.store, self.disruption.leaving());
        let goes = |claim: &NodeClaim| claim.metadata.deletion_timestamp.is_some() || leaving.contains(claim.name());
        let node_goes = |node: &Node| {
            node.metadata.deletion_timestamp.is_some() || store.claim_of(node).is_some_and(|claim| goes(claim))
        };
        let keeps = |place: &str| {
            let node = store.nodes.get(place).map(|node| !node_goes(node));
            let claim = node.or_else(|| store.claims.get(place).map(|claim| !goes(claim)));
            claim.unwrap_or_else(|| self.provisioner.creating.contains_key(place))
        };
        let has_place = |pod: &ObjectKey, node: &str| {
            let promise = self.provisioner.promises.get(pod);
            promise.is_some_and(|promise| promise.place != node && keeps(&promise.place))
        };
        let must_move = |node: &Node| {
            let name = &node.metadata.name;
            let needs_place = |pod: &Arc<Pod>| pod.is_reschedulable() && !store.is_unreadable(pod);
            store.pods_on(name).any(|pod| needs_place(pod) && !has_place(&pod.key(), name))
        };
        self.provisioner.waiting.iter().any(|pod| !has_place(pod, ""))
            || store.all_leaving_nodes(&leaving).any(|node| node_goes(node) && must_move(node))
    }
}
