//! What results of actions mean.

use std::time::Duration;

use super::{
    ActionId, ActionResult, Engine, Refusal, Target, Work,
    lives::DriftAnswer,
    outbox::{LOST_AFTER, Purpose, SETTLE},
};
use crate::{
    Timestamp,
    provider::{CreateError, ProviderError, ProviderErrorKind},
};

/// An object that had to wait for the result of a write is looked at this much later: a write may be told in two parts.
const ECHO: Duration = Duration::from_millis(100);

impl Engine {
    /// Takes in what came of an action. A result that does not fit its action counts as none.
    pub(super) fn finish(&mut self, id: ActionId, result: ActionResult, now: Timestamp) {
        let (was_written, again) = (matches!(result, ActionResult::Written), now + rest(&result));
        let Some(purpose) = self.outbox.done(id, again) else { return };
        match (purpose, result) {
            (Purpose::Create { claim }, ActionResult::Refused(refusal)) => self.not_created(&claim, &refusal, now),
            (Purpose::Write(target), result @ (ActionResult::Written | ActionResult::Refused(_))) => {
                match &target {
                    Target::Claim(name) => self.heed_refusal(name, &result, now),
                    Target::Node(name) => self.heed_refusal_of_node(name, &result, now),
                    Target::Pool(_) | Target::Overlay(_) => {}
                }
                self.settle(target, was_written, again, now);
            }
            (Purpose::Delete(target), result @ (ActionResult::Written | ActionResult::Refused(_))) => {
                if let Target::Claim(name) = &target {
                    self.heed_refusal_of_deletion(name, &result, now);
                }
                self.settle(target, was_written, again, now);
            }
            (Purpose::Evict { pod, uid, is_forced }, ActionResult::Refused(refusal)) => {
                self.finish_eviction((&pod, &uid), is_forced, Some(&refusal), now);
            }
            (Purpose::Evict { pod, uid, is_forced }, _) => {
                self.finish_eviction((&pod, &uid), is_forced, None, now);
            }
            (Purpose::Launch { claim, uid }, ActionResult::Launched(result)) => {
                self.finish_launch(&claim, &uid, result, now);
            }
            (Purpose::Terminate(id), ActionResult::Terminated(result)) => self.finish_termination(&id, &result, now),
            (Purpose::Get(id), ActionResult::Found(result)) => self.finish_get(&id, &result, now),
            (Purpose::List, ActionResult::Listed(result)) => self.finish_list(result.ok(), now),
            (Purpose::Catalog { pool }, ActionResult::Catalog(result)) => {
                self.market.answer(&pool, result, self.options.catalog_period, now);
                self.agenda.add(Work::Pool(pool));
            }
            (Purpose::Drift { claim, uid }, ActionResult::Drift(result)) => {
                self.finish_drift(&claim, &uid, drift_answer(result));
            }
            (Purpose::Events, ActionResult::Events(result)) => self.finish_events(result.ok(), now),
            (Purpose::Create { claim }, ActionResult::Written) => {
                if self.provisioner.creating.contains_key(&claim) {
                    self.agenda.at(Work::Claim(claim), now + LOST_AFTER);
                }
            }
            (purpose, _) => self.lose(purpose, now),
        }
    }

    /// Looks at an object again after a write or a deletion was answered, unless it is known what became of it.
    fn settle(&mut self, target: Target, was_written: bool, again: Timestamp, now: Timestamp) {
        if self.outbox.is_missed(&target) {
            self.look_again(target, again.min(now + ECHO));
        } else if !was_written || !self.is_told(&target) {
            self.look_again(target, again);
        }
    }

    /// Whether it was told what an object is like that was written.
    fn is_told(&self, target: &Target) -> bool {
        let meta = match target {
            Target::Pool(name) => self.store.pools.get(name).map(|pool| &pool.metadata),
            Target::Overlay(name) => self.store.overlays.get(name).map(|overlay| &overlay.metadata),
            Target::Claim(name) => self.store.claims.get(name).map(|claim| &claim.metadata),
            Target::Node(name) => self.store.nodes.get(name).map(|node| &node.metadata),
        };
        meta.is_none_or(|meta| !self.outbox.was_written_from(target, &meta.resource_version))
    }

    /// Takes an action for lost. Nobody knows whether it was done, so that it is asked for again where that does no harm.
    pub(super) fn lose(&mut self, purpose: Purpose, now: Timestamp) {
        let error = |operation| {
            ProviderError::new("provider", operation, ProviderErrorKind::Unavailable, "nothing was heard of the call")
        };
        self.disruption.is_stirred = true;
        match purpose {
            Purpose::Create { claim } => self.drop_claim(&claim, now),
            Purpose::Write(target) | Purpose::Delete(target) => self.look_again(target, now),
            Purpose::Evict { pod, uid, is_forced } => {
                let refusal = Refusal::Unavailable("nothing was heard of the call".to_owned());
                self.finish_eviction((&pod, &uid), is_forced, Some(&refusal), now);
            }
            Purpose::Launch { claim, uid } => {
                self.finish_launch(&claim, &uid, Err(CreateError::Provider(error("create"))), now);
            }
            Purpose::Terminate(id) => self.finish_termination(&id, &Err(error("delete")), now),
            Purpose::Get(id) => self.finish_get(&id, &Err(error("get")), now),
            Purpose::List => self.finish_list(None, now),
            Purpose::Catalog { pool } => {
                self.market.answer(&pool, Err(error("catalog")), self.options.catalog_period, now);
                self.agenda.add(Work::Pool(pool));
            }
            Purpose::Drift { claim, uid } => self.finish_drift(&claim, &uid, DriftAnswer::None),
            Purpose::Events => self.finish_events(None, now),
        }
    }

    /// Whether an object of this version settles. If so, it is looked at again then, or when it is known what came of the write that
    /// is under way.
    pub(super) fn must_wait(&mut self, target: &Target, version: &str, now: Timestamp) -> bool {
        let Some(until) = self.outbox.settles(target, version, now) else { return false };
        self.outbox.miss(target);
        self.look_again(target.clone(), until);
        true
    }

    /// Looks at an object then, and at the claim of a node: either may have wanted to write it.
    fn look_again(&mut self, target: Target, then: Timestamp) {
        match target {
            Target::Pool(name) => self.agenda.at(Work::Pool(name), then),
            Target::Overlay(name) => self.agenda.at(Work::Overlay(name), then),
            Target::Claim(name) => self.agenda.at(Work::Claim(name), then),
            Target::Node(name) => {
                if let Some(claim) = self.store.nodes.get(&name).and_then(|node| self.store.claim_of(node)) {
                    self.agenda.at(Work::Claim(claim.name().to_owned()), then);
                }
                self.agenda.at(Work::Node(name), then);
            }
        }
    }

    /// A claim that nobody knows whether it was made is waited for; it is told if it is there.
    fn not_created(&mut self, claim: &str, refusal: &Refusal, now: Timestamp) {
        if !self.store.claims.contains_key(claim) {
            if matches!(refusal, Refusal::Unavailable(_)) {
                // The watch of an API server that does not answer is late too. To ask for another one would buy it twice.
                self.agenda.at(Work::Claim(claim.to_owned()), now + SETTLE);
            } else {
                self.drop_claim(claim, now);
                self.provisioner.refused(now);
            }
            let message = format!("NodeClaim {claim} was not created: {refusal}");
            self.note(super::ObjectRef::NodeClaim(claim.to_owned()), true, "FailedCreate", message, now);
        }
    }

    pub(super) fn learn_all(&mut self) {
        let is_ready = |node: &crate::api::Node| node.metadata.labels.contains_key(crate::labels::INITIALIZED);
        for node in self.store.nodes.values().filter(|node| is_ready(node)) {
            if let Some(claim) = self.store.claim_of(node) {
                self.market.learn(node, claim);
            }
        }
    }
}

fn drift_answer(result: Result<Option<String>, ProviderError>) -> DriftAnswer {
    match result {
        Ok(Some(reason)) => DriftAnswer::Drifted(reason),
        Ok(None) => DriftAnswer::Sound,
        Err(_) => DriftAnswer::None,
    }
}

/// How long an object is left alone after a write to it, unless it changes.
fn rest(result: &ActionResult) -> Duration {
    match result {
        ActionResult::Written => SETTLE,
        // What changed will be told.
        ActionResult::Refused(Refusal::Conflict | Refusal::NotFound | Refusal::AlreadyExists) => Duration::from_secs(1),
        ActionResult::Refused(Refusal::TooManyRequests(_) | Refusal::Unavailable(_)) => Duration::from_secs(2),
        // Asking again is no use until somebody changes something.
        ActionResult::Refused(Refusal::Invalid(_)) => Duration::from_mins(1),
        _ => Duration::ZERO,
    }
}
