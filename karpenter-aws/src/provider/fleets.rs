//! Asking for fleets, one for all claims that are alike, and taking in what they bring.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use karpenter_core::provider::ProviderErrorKind;

use super::{
    State,
    launch::{self, Order},
    machines::{Attempt, ClaimName, MachineKind},
    tags,
};
use crate::{
    api::{ApiError, AwsApi},
    clock::Clock,
    ec2::fleet::{FleetError, FleetOverride, FleetReply, FleetRequest},
};

/// What a fleet brought one claim.
#[derive(Clone, Debug)]
pub(crate) struct Bought {
    pub(super) machine: Result<Option<(String, FleetOverride)>, ApiError>,
    pub(super) errors: Arc<Vec<FleetError>>,
    pub(super) request: Arc<FleetRequest>,
    pub(super) request_id: String,
}

/// Whether a fleet is asked for the first time, or again because the answer was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tries {
    First,
    Further,
}

impl Tries {
    /// Whether an error leaves it open what came of the fleet: of one that was asked for before, that this call may not be made now
    /// says nothing.
    pub(crate) fn leaves_open(self, error: &ApiError) -> bool {
        error.is_ambiguous() || self == Self::Further && error.kind() != ProviderErrorKind::Other
    }
}

/// What buying needs beside the request.
#[derive(Clone)]
pub(crate) struct Context {
    pub(crate) api: Arc<dyn AwsApi>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) state: Arc<Mutex<State>>,
}

impl Context {
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks for one fleet for all orders, which are alike but for their claims. The answers are in their order.
    pub(crate) async fn buy_together(&self, orders: Vec<Order>) -> Vec<Bought> {
        let Some(first) = orders.first() else { return Vec::new() };
        let claims: BTreeSet<ClaimName> = orders.iter().map(|order| order.claim.clone()).collect();
        let claims: Vec<ClaimName> = claims.into_iter().collect();
        let begun = self.clock.now();
        let request = launch::request(FleetRequest::clone(&first.body), &claims, begun);
        let attempt = Arc::new(Attempt { begun, request, claims, terms: first.terms.clone() });
        let results = self.try_once(&attempt, Tries::First).await;
        orders.iter().filter_map(|order| results.get(&order.claim.uid).cloned()).collect()
    }

    /// Asks for a fleet. Until it is known what came of it, the attempt is remembered for each of its claims.
    pub(crate) async fn try_once(&self, attempt: &Arc<Attempt>, tries: Tries) -> BTreeMap<String, Bought> {
        self.lock().owners.attempted(attempt, self.clock.now());
        let answer = self.api.create_fleet(&attempt.request).await;
        let dealt = {
            let mut state = self.lock();
            if !answer.as_ref().is_err_and(|error| tries.leaves_open(error)) {
                state.owners.answered(attempt);
            }
            answer
                .as_ref()
                .map_or_else(|_| vec![None; attempt.claims.len()], |reply| self.take_in(&mut state, attempt, reply))
        };
        self.tell_apart(attempt, &dealt).await;
        let request = Arc::new(attempt.request.clone());
        let (errors, request_id) = match &answer {
            Ok(reply) => (Arc::new(reply.errors.clone()), reply.request_id.clone()),
            Err(_) => (Arc::default(), String::new()),
        };
        let bought = |machine: Option<(String, FleetOverride)>| Bought {
            machine: answer.as_ref().map(|_| machine).map_err(Clone::clone),
            errors: errors.clone(),
            request: request.clone(),
            request_id: request_id.clone(),
        };
        attempt.claims.iter().zip(dealt).map(|(claim, machine)| (claim.uid.clone(), bought(machine))).collect()
    }

    /// Remembers what a reply tells: once for all claims of the fleet.
    fn take_in(
        &self,
        state: &mut State,
        attempt: &Attempt,
        reply: &FleetReply,
    ) -> Vec<Option<(String, FleetOverride)>> {
        let now = self.clock.now();
        let exhausted = launch::mark(&reply.errors, &attempt.terms, &attempt.request, &mut state.unavailable, now);
        for id in &exhausted {
            state.remaining.exhaust(id);
        }
        for error in &reply.errors {
            state.note_launch_failure(error, &attempt.terms.capacity_type);
        }
        for error in reply.errors.iter().filter(|error| error.is_full_subnet()) {
            state.free.exhaust(&error.choice.subnet_id, now);
        }
        let mut dealt = launch::deal(reply, &attempt.claims);
        for (claim, machine) in attempt.claims.iter().zip(&mut dealt) {
            let Some((id, choice)) = machine else { continue };
            *choice = launch::completed(&attempt.request, choice);
            let reservation = attempt.terms.reservation_of(choice).map(str::to_owned);
            if let Some(reservation) = &reservation {
                state.remaining.launched(reservation, now);
            }
            let kind = MachineKind { instance_type: choice.instance_type.clone(), reservation };
            state.owners.bought(id, &claim.uid, &choice.zone, kind, now);
        }
        dealt
    }

    /// Writes on machines that were bought together whose they are. It may not be allowed, or be too much while many are
    /// bought: then the order tells, and nobody waits.
    async fn tell_apart(&self, attempt: &Attempt, dealt: &[Option<(String, FleetOverride)>]) {
        if attempt.claims.len() < 2 {
            return;
        }
        for (claim, machine) in attempt.claims.iter().zip(dealt) {
            let Some((id, _)) = machine else { continue };
            let tags = [(tags::CLAIM_UID, &claim.uid), (tags::NODE_CLAIM, &claim.name)];
            let tags = tags.into_iter().map(|(key, value)| (key.to_owned(), value.clone())).collect();
            match self.api.create_tags(std::slice::from_ref(id), &tags).await {
                Err(error)
                    if matches!(error.kind(), ProviderErrorKind::Unauthorized | ProviderErrorKind::Throttled) =>
                {
                    return;
                }
                // Of one that stays without the others tell whose it is.
                Ok(()) | Err(_) => {}
            }
        }
    }
}
