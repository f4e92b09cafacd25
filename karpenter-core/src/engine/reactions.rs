//! What follows from what became known of an object.

use std::sync::Arc;

use super::{
    Engine,
    agenda::Work,
    outbox::Target,
    store::{Change, waits},
};
use crate::{
    Timestamp,
    api::{Node, NodeClaim, NodeOverlay, NodePool, ObjectKey, Pod},
};

/// What became of a pod: what it was and what it is, or nothing where it is not there.
struct PodChange<'p> {
    key: &'p ObjectKey,
    before: Option<&'p Pod>,
    after: Option<&'p Pod>,
}

impl<'p> PodChange<'p> {
    fn old_node(&self) -> Option<&'p str> {
        self.before.and_then(node_of)
    }

    fn new_node(&self) -> Option<&'p str> {
        self.after.and_then(node_of)
    }

    fn has_moved(&self) -> bool {
        self.old_node() != self.new_node()
    }

    fn is_of_daemon(&self) -> bool {
        self.after.or(self.before).is_some_and(Pod::is_daemon)
    }

    /// Whether it disturbs a node: a pod does so when it comes and when it ends, and not once more when what is left of it is
    /// cleaned up.
    fn is_event(&self) -> bool {
        let (was_ending, is_ending) = (is_ending(self.before), is_ending(self.after));
        self.has_moved() && !was_ending || is_ending != was_ending && self.after.is_some()
    }

    fn is_of_one_pod(&self) -> bool {
        self.after.zip(self.before).is_some_and(|(after, before)| after.metadata.uid == before.metadata.uid)
    }

    /// Whether there is a pod on a node now that was not on any.
    fn is_bound_anew(&self) -> bool {
        self.new_node().is_some() && (self.old_node().is_none() || !self.is_of_one_pod())
    }

    /// Whether what was promised to the pod is needed no more.
    fn ends_promise(&self) -> bool {
        !self.is_of_one_pod() || self.is_bound_anew() || self.after.is_some_and(Pod::is_finished)
    }
}

fn node_of(pod: &Pod) -> Option<&str> {
    Some(pod.spec.node_name.as_str()).filter(|node| !node.is_empty())
}

/// Whether a pod has ended or is about to.
fn is_ending(pod: Option<&Pod>) -> bool {
    pod.is_some_and(|pod| !pod.is_active())
}

impl Engine {
    pub(super) fn react(&mut self, change: Change, now: Timestamp) {
        match change {
            Change::Pool { name, before } => self.react_to_pool(name, before.as_deref()),
            Change::Overlay { name, before } => self.react_to_overlay(name, before.as_deref(), now),
            Change::Claim { name, before } => self.react_to_claim(name, before.as_deref(), now),
            Change::Node { before, name } => self.react_to_node(&name, before.as_deref(), now),
            Change::Attachment { node } => {
                if self.store.nodes.get(&node).is_some_and(|node| node.metadata.deletion_timestamp.is_some()) {
                    self.agenda.add(Work::Node(node));
                }
            }
            Change::Pod { key, before } => self.react_to_pod(&key, before.as_deref(), now),
            Change::Other => {}
        }
    }

    /// What a pool asks for, and the hash that says so, bear on all its claims.
    fn react_to_pool(&mut self, name: String, before: Option<&NodePool>) {
        let pool = self.store.pools.get(&name);
        // The engine itself writes the status, as often as nodes come and go: no catalog depends on it.
        if before.map(|pool| (&pool.spec, &pool.metadata.annotations))
            != pool.map(|pool| (&pool.spec, &pool.metadata.annotations))
        {
            let is_of = |claim: &&Arc<NodeClaim>| claim.pool_name() == Some(&name);
            let claims: Vec<String> =
                self.store.claims.values().filter(is_of).map(|claim| claim.name().to_owned()).collect();
            for claim in claims {
                self.agenda.add(Work::Claim(claim));
            }
            if !self.store.overlays.is_empty() {
                self.market.forget_overlays();
            }
            self.market.renew(&name);
        }
        if pool.is_none() {
            self.outbox.forget(&Target::Pool(name.clone()));
        }
        self.agenda.add(Work::Pool(name));
    }

    /// Pods without a place may have one now.
    fn react_to_overlay(&mut self, name: String, before: Option<&NodeOverlay>, now: Timestamp) {
        let overlay = self.store.overlays.get(&name);
        if before.map(|overlay| &overlay.spec) != overlay.map(|overlay| &overlay.spec) {
            self.market.forget_overlays();
            if self.provisioner.left_over.take().is_some() {
                self.provisioner.hurry(now);
            }
        }
        if overlay.is_none() {
            self.outbox.forget(&Target::Overlay(name.clone()));
        }
        self.agenda.add(Work::Overlay(name));
    }

    fn react_to_claim(&mut self, name: String, before: Option<&NodeClaim>, now: Timestamp) {
        let claim = self.store.claims.get(&name).cloned();
        let pool_of = |claim: &NodeClaim| claim.pool_name().map(str::to_owned);
        let pool = claim.as_deref().or(before).and_then(pool_of);
        if let Some(pool) = pool {
            self.agenda.add(Work::Pool(pool));
        }
        self.provisioner.created(&name);
        let is_leaving = |claim: &NodeClaim| claim.metadata.deletion_timestamp.is_some();
        let was_leaving = before.is_some_and(is_leaving);
        if !was_leaving && let Some(gone) = before.filter(|_| claim.as_deref().is_none_or(is_leaving)) {
            self.say_farewell(gone, now);
        }
        match &claim {
            None => {
                self.outbox.forget(&Target::Claim(name.clone()));
                self.lives.forget(&name);
                self.release(&name, now);
                if let Some(claim) = before {
                    self.counters.claim_gone(claim, now);
                }
            }
            Some(claim) if is_leaving(claim) && !was_leaving => self.release(&name, now),
            Some(_) => {}
        }
        for node in claim.iter().flat_map(|claim| self.store.nodes_of(claim)) {
            self.agenda.add(Work::Node(node.metadata.name.clone()));
        }
        for other in claim.iter().flat_map(|claim| self.store.claims_naming(&claim.status.provider_id)) {
            self.agenda.add(Work::Claim(other.name().to_owned()));
        }
        self.agenda.add(Work::Claim(name));
    }

    fn react_to_node(&mut self, name: &str, before: Option<&Node>, now: Timestamp) {
        let node = self.store.nodes.get(name).cloned();
        let ids = [before, node.as_deref()].into_iter().flatten().map(|node| &node.spec.provider_id);
        let claims: Vec<String> =
            ids.filter_map(|id| Some(self.store.claim_of_machine(id)?.name().to_owned())).collect();
        for claim in claims {
            self.agenda.add(Work::Claim(claim));
        }
        if node.is_none() {
            self.outbox.forget(&Target::Node(name.to_owned()));
            if let Some(node) = before {
                self.counters.node_gone(node, now);
            }
        }
        self.agenda.add(Work::Node(name.to_owned()));
    }

    fn react_to_pod(&mut self, key: &ObjectKey, before: Option<&Pod>, now: Timestamp) {
        let pod = self.store.pods.get(key).cloned();
        let change = PodChange { key, before, after: pod.as_deref() };
        self.react_at_nodes(&change, now);
        self.ends.turns.observe(key, before, change.after, now);
        self.note_move(before, change.after, now);
        if change.after.is_none() {
            self.ends.forget_pod(key);
        }
        if change.ends_promise() {
            self.end_promise(&change, now);
        }
        self.provisioner.set_waiting(key, change.after.is_some_and(waits), now);
        let is_taken_to_wait = self.siblings.observe(key, before, change.after);
        if is_taken_to_wait && !self.provisioner.promises.contains_key(key) {
            self.provisioner.trigger(now);
        }
    }

    /// What a pod that comes, goes or ends means for its nodes.
    fn react_at_nodes(&mut self, change: &PodChange<'_>, now: Timestamp) {
        let is_event = change.is_event();
        // An engine that starts is told of pods that were bound long before.
        let bound = change.after.filter(|_| change.before.is_none()).and_then(Pod::bound_at);
        let event = bound.map_or(now, |bound| bound.min(now));
        for name in [change.old_node(), change.new_node()].into_iter().flatten() {
            if is_event && !change.is_of_daemon() {
                self.lives.note_pod_event(name, event);
            }
            let Some(node) = self.store.nodes.get(name) else { continue };
            if node.metadata.deletion_timestamp.is_some() {
                self.agenda.add(Work::Node(name.to_owned()));
            } else if is_event && let Some(claim) = self.store.claim_of(node) {
                self.agenda.add(Work::Claim(claim.name().to_owned()));
            }
        }
        // Pods that are cleaned up after their node would leave its name behind.
        if let Some(old) = change.old_node().filter(|node| change.has_moved() && !self.store.nodes.contains_key(*node))
        {
            self.lives.forget_node(old);
        }
    }

    /// A pod needs no more what was promised to it; if it has taken the room of others, these need another.
    fn end_promise(&mut self, change: &PodChange<'_>, now: Timestamp) {
        if let Some(pod) = change.after.filter(|_| change.new_node().is_some()) {
            self.provisioner.settled(pod);
            if change.is_bound_anew() {
                self.moves.settled(pod, now);
            }
        }
        let was_promised = self.provisioner.promises.contains_key(change.key);
        self.provisioner.unpromise(change.key);
        let is_unforeseen = change.has_moved() && !was_promised && !change.is_of_daemon();
        if let Some(node) = change.new_node().filter(|_| is_unforeseen) {
            self.displace(node, now);
        }
    }
}
