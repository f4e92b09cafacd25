//! What a provider tells unasked: drift, repairs and events.

use karpenter_core::{
    api::{ConditionStatus, NodeClaim},
    provider::{EventCursor, Launched},
};

use super::{Check, Run};

/// The most answers that are read of one stream of events: more than a provider keeps.
const MAX_ANSWERS: usize = 1000;

impl Run<'_> {
    /// A machine that was bought just now is what its class asks for.
    pub(super) async fn check_drift(&mut self, claim: &NodeClaim, launched: &Launched) {
        let mut claim = claim.clone();
        launched.hydrate(&mut claim);
        let id = &launched.instance.id;
        let problem = match self.provider.drift(&claim).await {
            Ok(None) => None,
            Ok(Some(reason)) => Some(format!("{id} was bought just now and has drifted: {reason}")),
            Err(error) => Some(error.to_string()),
        };
        self.judge(Check::NewMachineIsNotDrifted, "drift", problem);
    }

    /// No policy gives up nodes for being ready.
    pub(super) fn check_repairs(&mut self) {
        let policies = self.provider.repair_policies().into_iter();
        let mut wrong = policies.filter(|p| p.condition == "Ready" && p.status == ConditionStatus::True);
        let problem = wrong.next().map(|_| "nodes whose condition Ready is True would be replaced".to_owned());
        self.judge(Check::ReadyNodesStay, "repair_policies", problem);
    }

    /// Reads on until there is nothing more.
    pub(super) async fn check_events(&mut self) {
        let problem = self.read_events().await.err();
        self.judge(Check::EventsAreToldOnce, "next_events", problem);
    }

    async fn read_events(&self) -> Result<(), String> {
        let mut cursor = EventCursor::default();
        let mut before = Vec::new();
        for _ in 0..MAX_ANSWERS {
            let answer = self.provider.next_events(cursor).await.map_err(|error| error.to_string())?;
            if answer.events.is_empty() {
                return Ok(());
            }
            // Who takes events out of a queue tells them once, whatever the cursor is.
            if let Some(again) = answer.events.iter().find(|event| answer.cursor == cursor && before.contains(*event)) {
                return Err(format!("{again:?} is told again, and the cursor stays at {}", cursor.0));
            }
            (before, cursor) = (answer.events, answer.cursor);
        }
        Err(format!("there are still events after {MAX_ANSWERS} answers"))
    }
}
