//! A controller as a state machine: what became known goes in, what is to be done comes out.
//!
//! The shell tells the engine what changed in the cluster and what came of earlier actions, each as an [`Event`], says what
//! time it is, and carries out the [`Action`]s that it is given, in any order and as many at a time as it likes: those that are
//! calls of a provider with [`Action::call`], all others with the API server.
//!
//! Nothing that matters is in the engine alone: claims, their conditions, finalizers, taints and annotations are in the cluster.
//! An engine that starts anew and is told all objects goes on where the last one was stopped. What it forgets then makes it
//! careful, not wrong: which pods were promised which claim (it waits until claims have machines), and which offerings had no
//! capacity (it asks again). Which nodes it had begun to replace is written on the claims that come instead: it goes on with these
//! commands, and takes the taint away from all other nodes.

mod action;
mod agenda;
mod blocked;
mod claims;
mod classes;
mod displaced;
mod disruption;
mod ends;
mod event;
mod fresh;
mod lacks;
mod lives;
mod market;
mod metrics;
mod moves;
mod options;
mod outbox;
mod overlays;
mod provision;
mod provisioner;
mod reactions;
mod recall;
mod rests;
mod results;
mod siblings;
mod statics;
mod stillborn;
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
use store::Store;
use upkeep::Upkeep;

use crate::{
    Snapshot, SnapshotError, Timestamp,
    api::{Node, NodeClaim, NodeOverlay, NodePool},
    schedule::{Shelf, StopFlag},
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
    /// Ends what is decided before it is done.
    stop: Option<StopFlag>,
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
            stop: None,
            now: Timestamp::default(),
        }
    }

    /// From now on a [`tick`](Self::tick) ends soon once this flag is set: what was planned by then is carried out and the rest
    /// planned in the next tick. The best consolidation that is found by then is on probation as usual, and only drift begins in the same
    /// tick. The flag stays set, so that a shell gives another one for each tick. To prepare a plan is not cut
    /// short.
    pub fn stopped_by(&mut self, stop: &StopFlag) {
        self.provisioner.replanner.stopped_by(stop);
        self.stop = Some(stop.clone());
    }

    fn is_stopped(&self) -> bool {
        self.stop.as_ref().is_some_and(StopFlag::is_stopped)
    }

    /// Takes in what became known. Nothing is decided before the next [`tick`](Self::tick).
    pub fn observe(&mut self, event: Event, now: Timestamp) {
        self.now = now;
        let is_of_pod = matches!(event, Event::Applied(Object::Pod(_)) | Event::Deleted(ObjectRef::Pod(_)));
        self.disruption.is_stirred |= !is_of_pod;
        match event {
            Event::Applied(object) if self.is_foreign(&object) => {
                // It may have had a class of this provider before.
                if self.store.has(&object) {
                    self.remove(object.reference(), now);
                }
            }
            Event::Applied(object) => {
                let change = self.store.apply(object);
                self.react(change, now);
            }
            Event::Deleted(object) => self.remove(object, now),
            Event::Relist => self.store.begin_list(),
            Event::Synced => self.sync(now),
            Event::Done { id, result } => self.finish(id, result, now),
        }
    }

    /// Takes in that an object is gone.
    fn remove(&mut self, object: ObjectRef, now: Timestamp) {
        let change = self.store.remove(object);
        self.react(change, now);
    }

    /// Whether it is another controller's.
    fn is_foreign(&self, object: &Object) -> bool {
        match object {
            Object::NodePool(pool) => self.options.is_foreign(&pool.spec.template.spec.node_class_ref),
            Object::NodeClaim(claim) => self.options.is_foreign(&claim.spec.node_class_ref),
            _ => false,
        }
    }

    /// All objects were told: what was not is gone.
    fn sync(&mut self, now: Timestamp) {
        for object in self.store.end_list() {
            self.remove(object, now);
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
        for (pool, told) in self.market.take_news() {
            self.note(ObjectRef::NodePool(pool), false, "NodesHaveLess", told, now);
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

    /// Writes a claim, unless it is busy. Says whether it did.
    fn write_claim(&mut self, claim: NodeClaim, now: Timestamp) -> bool {
        let (target, version) = (Target::Claim(claim.name().to_owned()), claim.metadata.resource_version.clone());
        self.write(Action::UpdateClaim(Box::new(claim)), target, &version, now)
    }

    /// The same for a node.
    fn write_node(&mut self, node: Node, now: Timestamp) -> bool {
        let (target, version) = (Target::Node(node.metadata.name.clone()), node.metadata.resource_version.clone());
        self.write(Action::UpdateNode(Box::new(node)), target, &version, now)
    }

    fn write_pool(&mut self, pool: NodePool, now: Timestamp) {
        let (target, version) = (Target::Pool(pool.name().to_owned()), pool.metadata.resource_version.clone());
        self.write(Action::UpdatePool(Box::new(pool)), target, &version, now);
    }

    fn write_overlay(&mut self, overlay: NodeOverlay, now: Timestamp) {
        let (target, version) = (Target::Overlay(overlay.name().to_owned()), overlay.metadata.resource_version.clone());
        self.write(Action::UpdateOverlay(Box::new(overlay)), target, &version, now);
    }

    /// Writes or deletes an object of this version, unless it is busy. Says whether it did.
    fn write(&mut self, action: Action, target: Target, version: &str, now: Timestamp) -> bool {
        if self.must_wait(&target, version, now) {
            return false;
        }
        self.outbox.write(action, target, version, now);
        true
    }

    /// Deletes a claim, unless it is busy or on its way out. People are told why once it is.
    fn delete_claim(&mut self, claim: &Arc<NodeClaim>, reason: &'static str, message: String, now: Timestamp) {
        let (name, meta) = (claim.name().to_owned(), &claim.metadata);
        if meta.deletion_timestamp.is_some() {
            return;
        }
        let target = Target::Claim(name.clone());
        let action = Action::DeleteClaim { name, uid: meta.uid.clone() };
        if self.write(action, target, &meta.resource_version, now) {
            self.lives.of(claim).farewell = Some((reason, message));
        } else {
            self.lives.of(claim).doom = Some(reason);
        }
    }

    /// Whether nobody has asked for the deletion of a claim, and it is not meant to go either.
    fn stays(&self, claim: &NodeClaim) -> bool {
        let life = self.lives.get(claim.name(), &claim.metadata.uid);
        claim.metadata.deletion_timestamp.is_none()
            && !self.disruption.leaving().contains(claim.name())
            && life.is_none_or(|life| life.doom.is_none())
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
