//! What is known of claims and not written yet.

use std::sync::Arc;

use super::lives::Lives;
use crate::{
    Timestamp,
    api::{Condition, ConditionStatus, NodeClaim, conditions::CONSOLIDATABLE},
};

/// A claim with a pod event that it does not say yet.
#[derive(Clone, Debug)]
pub(super) struct Fresh {
    of: Arc<NodeClaim>,
    event: Timestamp,
    /// Whether its pool waits for pods to leave a node alone.
    waits: bool,
    claim: Arc<NodeClaim>,
}

impl Fresh {
    fn new(of: &Arc<NodeClaim>, event: Timestamp, waits: bool) -> Self {
        let mut claim = NodeClaim::clone(of);
        claim.status.last_pod_event_time = Some(event);
        if waits {
            // One that does not hold says more than that.
            let holds = |condition: &Condition| condition.status == ConditionStatus::True;
            claim.status.conditions.retain(|condition| condition.r#type != CONSOLIDATABLE || !holds(condition));
        }
        Self { of: of.clone(), event, waits, claim: Arc::new(claim) }
    }
}

impl Lives {
    /// A claim with its machine and with the last pod event of its node. While nothing else becomes known it is the very same
    /// claim each time, so that snapshots can share its place.
    pub(super) fn freshened(&mut self, claim: &Arc<NodeClaim>, waits: impl FnOnce() -> bool) -> Arc<NodeClaim> {
        let event = self.last_pod_event(&claim.status.node_name);
        let event = event.filter(|event| claim.status.last_pod_event_time.is_none_or(|written| written < *event));
        let mut out = claim.clone();
        if event.is_none() && !claim.status.provider_id.is_empty() {
            return out;
        }
        let life = self.get_mut(claim.name(), &claim.metadata.uid);
        if claim.status.provider_id.is_empty()
            && let Some(machine) = life.as_ref().and_then(|life| life.machine())
        {
            machine.hydrate(Arc::make_mut(&mut out));
        }
        let Some(event) = event else { return out };
        let waits = waits();
        let is_known = |known: &&Fresh| Arc::ptr_eq(&known.of, &out) && (known.event, known.waits) == (event, waits);
        if let Some(known) = life.as_ref().and_then(|life| life.fresh.as_ref()).filter(is_known) {
            return known.claim.clone();
        }
        let fresh = Fresh::new(&out, event, waits);
        let freshened = fresh.claim.clone();
        if let Some(life) = life {
            life.fresh = Some(fresh);
        }
        freshened
    }
}
