//! A controller as a state machine: what became known goes in, what is to be done comes out.
//!
//! The shell tells the engine what changed in the cluster and what came of earlier actions, each as an [`Event`], says what
//! time it is, and carries out the [`Action`]s that it is given, in any order and as many at a time as it likes.
//!
//! Nothing that matters is in the engine alone: claims, their conditions, finalizers, taints and annotations are in the cluster.
//! An engine that starts anew and is told all objects goes on where the last one was stopped. What it forgets then makes it
//! careful, not wrong: which pods were promised which claim (it waits until claims have machines), and which offerings had no
//! capacity (it asks again). Which nodes it had begun to replace is written on the claims that come instead: it goes on with these
//! commands, and takes the taint away from all other nodes.

mod action;
mod agenda;
mod claims;
mod classes;
mod displaced;
mod disruption;
mod ends;
mod event;
mod fresh;
mod lives;
mod market;
mod metrics;
mod moves;
mod options;
mod outbox;
mod overlays;
mod provision;
mod provisioner;
mod recall;
mod results;
mod siblings;
mod statics;
mod store;
mod tenants;
mod turns;
mod upkeep;
mod view;

use std::{borrow::Cow, sync::Arc};

pub use action::{Action, ActionId, ActionResult, Note, Refusal, Request};
pub use event::{Event, Object, ObjectRef, UnreadableClaim, UnreadablePod};
pub use metrics::{Counters, Durations, Metric, MetricLabels, resource_label};
pub use options::EngineOptions;

use agenda::{Agenda, Work};
use disruption::Disruption;
use ends::Ends;
use lives::Lives;
use market::Market;
use moves::Moves;
use outbox::{Outbox, Target};
use provisioner::Provisioner;
use siblings::Siblings;
use store::{Change, Store, waits};
use upkeep::Upkeep;

use crate::{
    Snapshot, SnapshotError, Timestamp,
    api::{Node, NodeClaim, NodeOverlay, NodePool, ObjectKey, Pod},
    schedule::Shelf,
};

/// Keeps a cluster in the nodes that its pods need.
///
/// ```
/// use std::sync::Arc;
///
/// use karpenter_core::{
///     Timestamp,
///     api::NodePool,
///     engine::{Action, Engine, EngineOptions, Event, Object},
/// };
///
/// let mut engine = Engine::new(EngineOptions::default());
/// let now = Timestamp::from_millis(0);
/// engine.observe(Event::Applied(Object::NodePool(Arc::new(NodePool::named("general")))), now);
/// assert!(engine.tick(now).is_empty(), "nothing is done before all objects were told");
/// engine.observe(Event::Synced, now);
/// let asks = engine.tick(now);
/// assert!(asks.iter().any(|request| matches!(request.action, Action::Catalog(_))));
/// ```
#[derive(Clone, Debug)]
pub struct Engine {
    options: EngineOptions,
    store: Store,
    outbox: Outbox,
    agenda: Agenda,
    market: Market,
    lives: Lives,
    ends: Ends,
    provisioner: Provisioner,
    siblings: Siblings,
    disruption: Disruption,
    moves: Moves,
    upkeep: Upkeep,
    counters: Counters,
    is_synced: bool,
    /// Whether something was asked of it yet. One that only listens, as a replica that waits for its turn, takes no part.
    has_acted: bool,
    /// What the next one shares as far as nothing has changed.
    last_snapshot: Option<Snapshot>,
    /// Why there was none when one was made last, if so.
    snapshot_error: Option<SnapshotError>,
    /// What planning keeps from one plan to the next.
    shelf: Shelf,
    /// The last time that was told.
    now: Timestamp,
}

impl Engine {
    /// An engine that knows nothing yet.
    pub fn new(options: EngineOptions) -> Self {
        let options = options.kept();
        let shelf = Shelf::default();
        let provisioner = Provisioner::new(options.planner.clone(), &shelf);
        Self {
            options,
            store: Store::default(),
            outbox: Outbox::default(),
            agenda: Agenda::default(),
            market: Market::default(),
            lives: Lives::default(),
            ends: Ends::default(),
            provisioner,
            siblings: Siblings::default(),
            disruption: Disruption::default(),
            moves: Moves::default(),
            upkeep: Upkeep::default(),
            counters: Counters::default(),
            is_synced: false,
            has_acted: false,
            last_snapshot: None,
            snapshot_error: None,
            shelf,
            now: Timestamp::default(),
        }
    }

    /// Takes in what became known. Nothing is decided before the next [`tick`](Self::tick).
    pub fn observe(&mut self, event: Event, now: Timestamp) {
        self.now = now;
        let is_of_pod = matches!(event, Event::Applied(Object::Pod(_)) | Event::Deleted(ObjectRef::Pod(_)));
        self.disruption.is_stirred |= !is_of_pod;
        match event {
            Event::Applied(object) => {
                let change = self.store.apply(object);
                self.react(change, now);
            }
            Event::Deleted(object) => {
                let change = self.store.remove(object);
                self.react(change, now);
            }
            Event::Relist => self.store.begin_list(),
            Event::Synced => self.sync(now),
            Event::Done { id, result } => self.finish(id, result, now),
        }
    }

    /// All objects were told: what was not is gone.
    fn sync(&mut self, now: Timestamp) {
        for object in self.store.end_list() {
            let change = self.store.remove(object);
            self.react(change, now);
        }
        // Claims that were made and went while nobody told of it.
        let is_lost = |name: &&String| !self.outbox.is_creating(name);
        let lost: Vec<String> = self.provisioner.creating.keys().filter(is_lost).cloned().collect();
        for name in lost {
            self.drop_claim(&name, now);
        }
        self.is_synced = true;
    }

    /// What is to be done now. Each request is given once; until its result is told the engine waits for it.
    ///
    /// Before [`Event::Synced`] there is nothing to do.
    pub fn tick(&mut self, now: Timestamp) -> Vec<Request> {
        self.now = now;
        if !self.is_synced {
            return Vec::new();
        }
        if !std::mem::replace(&mut self.has_acted, true) {
            self.recall(now);
        }
        for purpose in self.outbox.lost(now) {
            self.lose(purpose, now);
        }
        self.ask_for_catalogs(now);
        self.overlay_catalogs();
        for work in self.agenda.take(now) {
            match work {
                Work::Claim(name) => self.reconcile_claim(&name, now),
                Work::Node(name) => self.reconcile_node(&name, now),
                Work::Pool(name) => self.reconcile_pool(&name, now),
                Work::Overlay(name) => self.reconcile_overlay(&name, now),
            }
        }
        // Before anything is planned: a command that is given up leaves its nodes where they are.
        self.carry_commands_on(now);
        self.provision(now);
        self.disrupt(now);
        self.keep_up(now);
        self.outbox.take()
    }

    /// When there will be something to do even if nothing becomes known before: never if that is `None`, and at once if it has
    /// passed.
    pub fn next_wake(&self) -> Option<Timestamp> {
        if !self.is_synced {
            return None;
        }
        let at_once = self.agenda.is_due().then_some(self.now);
        let parts = [
            at_once,
            self.outbox.next_loss(),
            self.agenda.wake(),
            self.market.wake(),
            self.provisioner.wake(&self.options),
            self.disruption.wake(),
            self.upkeep.wake(),
        ];
        parts.into_iter().flatten().min()
    }

    fn react(&mut self, change: Change, now: Timestamp) {
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
            let is_of = |claim: &&Arc<NodeClaim>| {
                claim.metadata.labels.get(crate::labels::NODE_POOL).is_some_and(|pool| *pool == name)
            };
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
        let pool_of = |claim: &NodeClaim| claim.metadata.labels.get(crate::labels::NODE_POOL).cloned();
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
        let node_of = |pod: &Pod| Some(pod.spec.node_name.clone()).filter(|node| !node.is_empty());
        let (old, new) = (before.and_then(node_of), pod.as_deref().and_then(node_of));
        let has_moved = old != new;
        // A pod disturbs its node when it comes and when it ends, and not once more when what is left of it is cleaned up.
        let is_event =
            has_moved && !is_ending(before) || is_ending(pod.as_deref()) != is_ending(before) && pod.is_some();
        let is_daemon = pod.as_deref().or(before).is_some_and(Pod::is_daemon);
        let new_node = new.clone();
        // Pods that are cleaned up after their node would leave its name behind.
        let gone_node = old.clone().filter(|node| has_moved && !self.store.nodes.contains_key(node));
        // An engine that starts is told of pods that were bound long before.
        let bound = pod.as_deref().filter(|_| before.is_none()).and_then(Pod::bound_at);
        let event = bound.map_or(now, |bound| bound.min(now));
        for node in [old, new].into_iter().flatten() {
            if is_event && !is_daemon {
                self.lives.note_pod_event(&node, event);
            }
            if self.store.nodes.get(&node).is_some_and(|node| node.metadata.deletion_timestamp.is_some()) {
                self.agenda.add(Work::Node(node));
            } else if is_event && let Some(node) = self.store.nodes.get(&node) {
                let claim = self.store.claim_of(node).map(|claim| claim.name().to_owned());
                if let Some(claim) = claim {
                    self.agenda.add(Work::Claim(claim));
                }
            }
        }
        if let Some(node) = gone_node {
            self.lives.forget_node(&node);
        }
        let is_same = pod.as_ref().zip(before).is_some_and(|(pod, before)| pod.metadata.uid == before.metadata.uid);
        self.ends.turns.observe(key, before, pod.as_deref(), now);
        self.note_move(before, pod.as_deref(), now);
        if pod.is_none() {
            self.ends.forget_pod(key);
        }
        let was_bound = before.is_some_and(|pod| !pod.spec.node_name.is_empty());
        let is_bound = pod.as_ref().is_some_and(|pod| !pod.spec.node_name.is_empty());
        if !is_same || is_bound && !was_bound || pod.as_ref().is_some_and(|pod| pod.is_finished()) {
            if let Some(pod) = pod.as_deref().filter(|_| is_bound) {
                self.provisioner.settled(pod);
                if !was_bound || !is_same {
                    self.moves.settled(pod, now);
                }
            }
            let was_promised = self.provisioner.promises.contains_key(key);
            self.provisioner.unpromise(key);
            if let Some(node) = new_node.filter(|_| has_moved && !was_promised && !is_daemon) {
                self.displace(&node, now);
            }
        }
        let waits_now = pod.as_deref().is_some_and(waits);
        self.provisioner.set_waiting(key, waits_now, now);
        let is_taken_to_wait = self.siblings.observe(key, before, pod.as_deref());
        if is_taken_to_wait && !self.provisioner.promises.contains_key(key) {
            self.provisioner.trigger(now);
        }
    }

    /// Writes a claim, unless it is busy. Says whether it did.
    fn write_claim(&mut self, claim: NodeClaim, now: Timestamp) -> bool {
        let target = Target::Claim(claim.name().to_owned());
        let version = claim.metadata.resource_version.clone();
        if let Some(until) = self.outbox.settles(&target, &version, now) {
            self.wait_for(target, until);
            return false;
        }
        self.outbox.write(Action::UpdateClaim(Box::new(claim)), target, &version, now);
        true
    }

    /// Writes a node, unless it is busy. Says whether it did.
    fn write_node(&mut self, node: Node, now: Timestamp) -> bool {
        let target = Target::Node(node.metadata.name.clone());
        let version = node.metadata.resource_version.clone();
        if let Some(until) = self.outbox.settles(&target, &version, now) {
            self.wait_for(target, until);
            return false;
        }
        self.outbox.write(Action::UpdateNode(Box::new(node)), target, &version, now);
        true
    }

    fn write_pool(&mut self, pool: NodePool, now: Timestamp) {
        let target = Target::Pool(pool.name().to_owned());
        let version = pool.metadata.resource_version.clone();
        if let Some(until) = self.outbox.settles(&target, &version, now) {
            self.wait_for(target, until);
            return;
        }
        self.outbox.write(Action::UpdatePool(Box::new(pool)), target, &version, now);
    }

    fn write_overlay(&mut self, overlay: NodeOverlay, now: Timestamp) {
        let target = Target::Overlay(overlay.name().to_owned());
        let version = overlay.metadata.resource_version.clone();
        if let Some(until) = self.outbox.settles(&target, &version, now) {
            self.wait_for(target, until);
            return;
        }
        self.outbox.write(Action::UpdateOverlay(Box::new(overlay)), target, &version, now);
    }

    /// Deletes a claim, unless it is busy or on its way out. People are told why once it is.
    fn delete_claim(&mut self, claim: &Arc<NodeClaim>, reason: &'static str, message: String, now: Timestamp) {
        let (name, meta) = (claim.name().to_owned(), &claim.metadata);
        if meta.deletion_timestamp.is_some() {
            return;
        }
        let target = Target::Claim(name.clone());
        if let Some(until) = self.outbox.settles(&target, &meta.resource_version, now) {
            self.lives.of(claim).doom = Some(reason);
            self.wait_for(target, until);
            return;
        }
        self.lives.of(claim).farewell = Some((reason, message));
        let action = Action::DeleteClaim { name, uid: meta.uid.clone() };
        self.outbox.write(action, target, &meta.resource_version, now);
    }

    /// Counts a claim that goes because the engine has asked for it, and tells people why. The deletion may have been refused many
    /// times before.
    fn say_farewell(&mut self, claim: &NodeClaim, now: Timestamp) {
        let life = self.lives.get_mut(claim.name(), &claim.metadata.uid);
        let Some((reason, message)) = life.and_then(|life| life.farewell.take()) else { return };
        let pods = self.store.nodes_of(claim).flat_map(|node| self.store.pods_on(&node.metadata.name));
        self.counters.disrupted(claim, reason, pods.filter(|pod| pod.is_reschedulable()).count());
        self.note(ObjectRef::NodeClaim(claim.name().to_owned()), false, reason, message, now);
    }

    fn note(
        &mut self,
        object: ObjectRef,
        is_warning: bool,
        reason: impl Into<Cow<'static, str>>,
        message: String,
        now: Timestamp,
    ) {
        self.outbox.send(Action::Note(Note { object, is_warning, reason: reason.into(), message }), None, now);
    }
}

/// Whether a pod has ended or is about to.
fn is_ending(pod: Option<&Pod>) -> bool {
    pod.is_some_and(|pod| !pod.is_active())
}
