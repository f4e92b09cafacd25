//! Machines of which no nodes come: the API server does not take what it must be told of them, or they end before they join.

use std::{sync::Arc, time::Duration};

use super::{ActionResult, Engine, ObjectRef, Refusal, Work};
use crate::{
    Timestamp,
    api::{NodeClaim, conditions::REGISTERED},
    lifecycle::{self, LAUNCH_TIMED_OUT, REGISTRATION_TIMED_OUT},
};

/// For how long the API server must refuse a node before the machine is given up.
const MIN_REFUSED: Duration = Duration::from_mins(5);

impl Engine {
    /// A claim goes before its node has registered, though nobody asked for it. The next one for the same pods would most likely fare
    /// the same.
    pub(super) fn note_stillborn(&mut self, claim: &NodeClaim, now: Timestamp) {
        let is_wanted = claim.metadata.deletion_timestamp.is_none();
        if is_wanted && !claim.status.is_true(REGISTERED) && self.count_launch(claim, false) {
            self.provisioner.strike(claim.name(), &self.store, now);
        }
    }

    /// Counts what came of the launch of a claim, once however often it is found, and says whether it is news: what is found is written
    /// or deleted, which may be refused many times.
    pub(super) fn count_launch(&mut self, claim: &NodeClaim, is_success: bool) -> bool {
        let is_news = self.lives.of(claim).counted.replace(is_success) != Some(is_success);
        if is_news {
            self.upkeep.record_launch(claim, is_success);
            self.agenda_pool_of(claim);
        }
        is_news
    }

    /// Writes which machine a claim has, which is given up if the API server takes it in no form until it is time.
    pub(super) fn write_machine(&mut self, claim: &Arc<NodeClaim>, written: NodeClaim, now: Timestamp) {
        let name = claim.name();
        let deadline = lifecycle::launch_deadline(claim);
        let refusal = self.lives.of(claim).refusal.clone();
        let Some(why) = refusal.filter(|_| deadline.is_some_and(|deadline| deadline <= now)) else {
            if let Some(deadline) = deadline.filter(|deadline| now < *deadline) {
                self.agenda.at(Work::Claim(name.to_owned()), deadline);
            }
            self.write_claim(written, now);
            return;
        };
        self.note_stillborn(claim, now);
        let message = format!("Deleting NodeClaim {name}, which cannot say which machine it has: {why}");
        self.delete_claim(claim, LAUNCH_TIMED_OUT, message, now);
    }

    /// Takes in whether the API server takes a claim as it was written. People are told once why it does not.
    pub(super) fn heed_refusal(&mut self, name: &str, result: &ActionResult, now: Timestamp) {
        let refusal = match result {
            ActionResult::Written => None,
            ActionResult::Refused(Refusal::Invalid(why)) => Some(why.clone()),
            _ => return,
        };
        let Some(life) = self.lives.named(name) else { return };
        let is_news = refusal.is_some() && life.refusal != refusal;
        let has_machine = life.machine().is_some();
        life.refusal.clone_from(&refusal);
        let Some(why) = refusal.filter(|_| is_news) else { return };
        let message = format!("NodeClaim {name} cannot be written: {why}");
        let pool = self.store.claims.get(name).and_then(|claim| claim.pool_name()).map(str::to_owned);
        self.note(ObjectRef::NodeClaim(name.to_owned()), true, "FailedUpdate", message.clone(), now);
        // Until somebody mends it, no node comes of what is bought for the pool.
        if let Some(pool) = pool.filter(|_| has_machine) {
            self.note(ObjectRef::NodePool(pool), true, "FailedUpdate", message, now);
        }
    }

    /// Takes in whether the API server lets a claim go. People are told once why it does not.
    pub(super) fn heed_refusal_of_deletion(&mut self, name: &str, result: &ActionResult, now: Timestamp) {
        let (ActionResult::Refused(Refusal::Invalid(why)), Some(life)) = (result, self.lives.named(name)) else {
            return;
        };
        if life.deletion_refusal.replace(why.clone()).as_ref() != Some(why) {
            let message = format!("NodeClaim {name} cannot be deleted: {why}");
            self.note(ObjectRef::NodeClaim(name.to_owned()), true, "FailedDelete", message, now);
        }
    }

    /// Takes in whether the API server takes a node as it was written that is not registered yet. People are told once why it does not.
    pub(super) fn heed_refusal_of_node(&mut self, name: &str, result: &ActionResult, now: Timestamp) {
        let Some(claim) = self.store.nodes.get(name).and_then(|node| self.store.claim_of(node)).cloned() else {
            return;
        };
        let life = self.lives.of(&claim);
        match result {
            ActionResult::Written => life.node_refusal = None,
            ActionResult::Refused(Refusal::Invalid(why)) if !claim.status.is_true(REGISTERED) => {
                let is_news = life.node_refusal.as_ref().is_none_or(|(known, _)| known != why);
                let since = life.node_refusal.as_ref().map_or(now, |(_, since)| *since);
                life.node_refusal = Some((why.clone(), since));
                if is_news {
                    let message = format!("Node {name} cannot be written: {why}");
                    let objects = [ObjectRef::Node(name.to_owned()), ObjectRef::NodeClaim(claim.name().to_owned())];
                    for object in objects {
                        self.note(object, true, "FailedUpdate", message.clone(), now);
                    }
                }
            }
            _ => {}
        }
    }

    /// Whether a claim is given up because the API server does not let its node register, and it should have by now.
    pub(super) fn is_kept_out(&mut self, claim: &Arc<NodeClaim>, now: Timestamp) -> bool {
        if claim.status.is_true(REGISTERED) {
            return false;
        }
        let Some((why, since)) = self.lives.of(claim).node_refusal.clone() else { return false };
        let deadline = (since + MIN_REFUSED).max(lifecycle::registration_deadline(claim).unwrap_or(since));
        if now < deadline {
            self.agenda.at(Work::Claim(claim.name().to_owned()), deadline);
            return false;
        }
        self.note_stillborn(claim, now);
        let message = format!("Deleting NodeClaim {}, whose node cannot register: {why}", claim.name());
        self.delete_claim(claim, REGISTRATION_TIMED_OUT, message, now);
        true
    }
}
