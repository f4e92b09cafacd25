//! What is remembered of claims from one look at them to the next.

use std::sync::Arc;

use indexmap::IndexMap;

use super::fresh::Fresh;
use crate::{
    Catalog, FxBuild, Timestamp,
    api::{
        Node, NodeClaim, NodePool,
        conditions::{DRIFTED, LAUNCHED, condition},
    },
    provider::{Launched, ProviderId},
};

/// What is remembered of claims. At most one entry for each claim, and one for each node.
#[derive(Clone, Debug, Default)]
pub(super) struct Lives {
    by_claim: IndexMap<String, Life, FxBuild>,
    /// When a pod last came to a node or left it.
    pod_events: IndexMap<String, Timestamp, FxBuild>,
}

/// What is remembered of one claim.
#[derive(Clone, Debug, Default)]
pub(super) struct Life {
    /// Its uid; a claim of the same name with another one starts anew.
    pub(super) uid: String,
    pub(super) is_launching: bool,
    /// When a machine was asked for last.
    pub(super) asked_at: Option<Timestamp>,
    pub(super) failed_attempts: u32,
    pub(super) next_attempt: Option<Timestamp>,
    /// What was bought, until the claim says so.
    pub(super) machine: Option<Box<Launched>>,
    /// Whether its machine is gone, because another claim has one of the same name.
    pub(super) is_succeeded: bool,
    pub(super) next_drift: Option<Timestamp>,
    pub(super) drift: DriftAnswer,
    pub(super) is_asking_drift: bool,
    /// What it was last seen to need nothing with.
    pub(super) content: Option<Content>,
    /// What it was last found not to have drifted with.
    pub(super) sound: Option<Sound>,
    /// The node from which it was learned what such nodes have.
    pub(super) learned: Option<Arc<Node>>,
    /// Why the API server did not take it when it was written last, if it breaks a rule.
    pub(super) refusal: Option<String>,
    /// Why the API server did not delete it when that was asked for last, if that breaks a rule.
    pub(super) deletion_refusal: Option<String>,
    /// Why the API server does not take its node as it must be to register, and since when, if that breaks a rule.
    pub(super) node_refusal: Option<(String, Timestamp)>,
    /// What was counted of its launch last: whether a node came of it.
    pub(super) counted: Option<bool>,
    /// Why it is to be deleted, if it was busy when that was decided.
    pub(super) doom: Option<&'static str>,
    /// Why its deletion was asked for last, and what people are told once it goes.
    pub(super) farewell: Option<(&'static str, String)>,
    /// When people were told last that too many other nodes are sick for it to be repaired.
    pub(super) blocked_at: Option<Timestamp>,
    /// The end that repair gave it, until that is taken back.
    pub(super) repair_end: Option<RepairEnd>,
    /// The claim with the last pod event of its node, until that is written.
    pub(super) fresh: Option<Fresh>,
}

/// The time at which the pods of a claim must be gone, as it was written because its node is sick.
#[derive(Clone, Debug)]
pub(super) struct RepairEnd {
    pub(super) written: String,
    /// What somebody else had written there.
    pub(super) before: Option<String>,
}

/// What a claim needs nothing with until some time.
#[derive(Clone, Debug)]
pub(super) struct Content {
    pub(super) claim: Arc<NodeClaim>,
    pub(super) node: Arc<Node>,
    pub(super) pool: Option<Arc<NodePool>>,
    pub(super) catalog: Option<Arc<Catalog>>,
    pub(super) last_pod_event: Option<Timestamp>,
    pub(super) until: Option<Timestamp>,
}

impl Content {
    /// Whether it still is so.
    pub(super) fn holds(&self, seen: &Self, now: Timestamp) -> bool {
        Arc::ptr_eq(&self.claim, &seen.claim)
            && Arc::ptr_eq(&self.node, &seen.node)
            && are_alike(self.pool.as_deref(), seen.pool.as_deref())
            && self.catalog.as_ref().map(Arc::as_ptr) == seen.catalog.as_ref().map(Arc::as_ptr)
            && self.last_pod_event == seen.last_pod_event
            && self.until.is_none_or(|until| now < until)
    }
}

/// Whether claims of a pool need the same whichever of these it is: its status changes all the time.
fn are_alike(pool: Option<&NodePool>, other: Option<&NodePool>) -> bool {
    match (pool, other) {
        (Some(a), Some(b)) => {
            std::ptr::eq(a, b) || a.metadata.annotations == b.metadata.annotations && a.spec == b.spec
        }
        (a, b) => a.is_none() && b.is_none(),
    }
}

/// What a claim has not drifted with. It is of an age at which it does not drift for time alone.
#[derive(Clone, Debug)]
pub(super) struct Sound {
    pub(super) claim: Arc<NodeClaim>,
    pub(super) pool: Arc<NodePool>,
    pub(super) catalog: Option<Arc<Catalog>>,
    pub(super) answer: DriftAnswer,
}

impl Sound {
    /// Whether nothing has changed that drift is told by.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        let facts = |claim: &NodeClaim| {
            (claim.status.is_true(LAUNCHED), condition(&claim.status.conditions, DRIFTED).is_some())
        };
        let (claim, other_claim) = (&*self.claim, &*other.claim);
        let is_alike = || {
            claim.metadata.labels == other_claim.metadata.labels
                && claim.metadata.annotations == other_claim.metadata.annotations
                && claim.status.provider_id == other_claim.status.provider_id
                && facts(claim) == facts(other_claim)
        };
        (Arc::ptr_eq(&self.claim, &other.claim) || is_alike())
            && are_alike(Some(&self.pool), Some(&other.pool))
            && self.catalog.as_ref().map(Arc::as_ptr) == other.catalog.as_ref().map(Arc::as_ptr)
            && self.answer == other.answer
    }
}

/// What the provider said last about drift.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum DriftAnswer {
    /// Nothing yet, or that it does not know.
    #[default]
    None,
    /// That the machine is what it should be.
    Sound,
    /// Why it is not.
    Drifted(String),
}

impl Lives {
    pub(super) fn of(&mut self, claim: &NodeClaim) -> &mut Life {
        let index = self.by_claim.get_index_of(claim.name());
        let index = index.unwrap_or_else(|| self.by_claim.insert_full(claim.name().to_owned(), Life::default()).0);
        let life = &mut self.by_claim[index];
        if life.uid != claim.metadata.uid {
            *life = Life { uid: claim.metadata.uid.clone(), ..Life::default() };
        }
        life
    }

    pub(super) fn get(&self, claim: &str, uid: &str) -> Option<&Life> {
        self.by_claim.get(claim).filter(|life| life.uid == uid)
    }

    pub(super) fn get_mut(&mut self, claim: &str, uid: &str) -> Option<&mut Life> {
        self.by_claim.get_mut(claim).filter(|life| life.uid == uid)
    }

    /// What is remembered of the claim of a name, whichever it is.
    pub(super) fn named(&mut self, claim: &str) -> Option<&mut Life> {
        self.by_claim.get_mut(claim)
    }

    /// The uid of a claim that a machine was bought for and that does not say so yet.
    pub(super) fn buyer_of(&self, id: &str) -> Option<&str> {
        let is_of = |life: &&Life| life.machine().is_some_and(|machine| machine.instance.id.as_str() == id);
        self.by_claim.values().find(is_of).map(|life| life.uid.as_str())
    }

    /// The claims that a machine was bought for and that do not say so yet.
    pub(super) fn claims_of(&self, id: &ProviderId) -> Vec<String> {
        let is_of = |life: &Life| life.machine().is_some_and(|machine| machine.instance.id == *id);
        let mut names: Vec<String> =
            self.by_claim.iter().filter(|(_, life)| is_of(life)).map(|(name, _)| name.clone()).collect();
        names.sort();
        names
    }

    /// Whether a machine is being bought.
    pub(super) fn is_any_launching(&self) -> bool {
        self.by_claim.values().any(|life| life.is_launching)
    }

    pub(super) fn forget(&mut self, claim: &str) {
        self.by_claim.swap_remove(claim);
    }

    /// Notes when a pod came to a node or left it.
    pub(super) fn note_pod_event(&mut self, node: &str, event: Timestamp) {
        match self.pod_events.get_mut(node) {
            Some(last) => *last = event.max(*last),
            None => drop(self.pod_events.insert(node.to_owned(), event)),
        }
    }

    pub(super) fn forget_node(&mut self, node: &str) {
        self.pod_events.swap_remove(node);
    }

    pub(super) fn last_pod_event(&self, node: &str) -> Option<Timestamp> {
        self.pod_events.get(node).copied()
    }
}

impl Life {
    /// The machine that was bought for the claim, before the claim says so.
    pub(super) fn machine(&self) -> Option<&Launched> {
        self.machine.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        api::Pod,
        engine::{Engine, EngineOptions, Event, Object, ObjectRef},
    };

    /// As the garbage collector of pods does it, minutes after the node has gone.
    #[test]
    fn pods_that_are_cleaned_up_after_their_node_leave_nothing_behind() {
        let now = Timestamp::from_millis(1_000_000);
        let mut engine = Engine::new(EngineOptions::default());
        engine.observe(Event::Synced, now);
        for number in 0..3 {
            let mut node = Node::default();
            node.metadata.name = format!("node-{number}");
            let mut pod = Pod::default();
            pod.metadata.name = format!("pod-{number}");
            pod.spec.node_name.clone_from(&node.metadata.name);
            let (name, key) = (node.metadata.name.clone(), pod.key());
            engine.observe(Event::Applied(Object::Node(Arc::new(node))), now);
            engine.observe(Event::Applied(Object::Pod(Arc::new(pod))), now);
            engine.tick(now);
            assert_eq!(engine.lives.last_pod_event(&name), Some(now));
            engine.observe(Event::Deleted(ObjectRef::Node(name)), now);
            engine.tick(now);
            engine.observe(Event::Deleted(ObjectRef::Pod(key)), now);
            engine.tick(now);
        }
        assert!(engine.lives.pod_events.is_empty(), "{:?}", engine.lives.pod_events);
    }
}
