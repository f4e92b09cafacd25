//! What an engine asks for is carried out.

use std::{
    pin::pin,
    task::{Context, Poll, Waker},
};

use karpenter_core::{
    api::{Node, NodeClaim, NodeOverlay, NodePool},
    engine::{Action, ActionResult, Refusal, Request},
};

use super::{Caller, Happening, World};
use crate::sim::api_server::{ApiObject, cluster_key};

impl World {
    /// Takes in something to do. It is done after the latency of a call to the API server or to the cloud, and then
    /// [`World::take_events`] tells what came of it.
    ///
    /// An action that the simulation does not know is [`Refusal::Invalid`].
    pub fn execute(&mut self, request: Request) {
        let is_cloud_call = request.action.provider_method().is_some();
        let is_slow = is_cloud_call && self.rng.chance(self.options.slow_calls_ppm);
        let latency = if is_slow {
            self.options.slow_latency
        } else if is_cloud_call {
            self.rng.duration(&self.options.cloud_latency)
        } else {
            self.rng.duration(&self.options.api_latency)
        };
        self.timeline.plan(self.now + latency, Happening::Execute(self.caller, Box::new(request)));
    }

    pub(super) fn carry_out(&mut self, caller: Caller, request: Request) {
        let Request { id, action } = request;
        let is_lost = action.provider_method().is_some() && self.rng.chance(self.options.lost_calls_ppm);
        self.cloud.lose_answers(u32::from(is_lost));
        let result = self.result_of(action);
        if is_lost {
            let at = self.now + self.options.slow_latency;
            self.timeline.plan(at, Happening::Answer(caller, id, Box::new(result)));
        } else {
            self.tell(caller, id, result);
        }
    }

    fn result_of(&mut self, action: Action) -> ActionResult {
        let launched = if let Action::Launch(claim) = &action { Some(claim.metadata.uid.clone()) } else { None };
        if let Action::Terminate(machine) = &action {
            self.invariants.termination(machine, &self.api, self.now);
        }
        let result = at_once(action.call(&*self.cloud));
        if let Some(claim_uid) = launched {
            self.plan_joining(&claim_uid);
        }
        let written = |other| self.write(other).map_or_else(ActionResult::Refused, |()| ActionResult::Written);
        result.unwrap_or_else(written)
    }

    /// The nodes of machines that were bought for a claim join, though the answer may be lost.
    fn plan_joining(&mut self, claim_uid: &str) {
        for machine in self.cloud.launched_now(claim_uid) {
            if let Some((at, ..)) = self.cloud.joining(&machine) {
                self.timeline.plan(at, Happening::NodeJoins(machine));
            }
        }
    }

    fn write(&mut self, action: Action) -> Result<(), Refusal> {
        let api = &mut self.api;
        match action {
            Action::CreateClaim(claim) => api.create(*claim).map(drop),
            Action::UpdateClaim(claim) => {
                let stored = found::<NodeClaim>(api.claim(claim.name()), &claim)?;
                let mut written = *claim;
                if written.spec != stored.spec {
                    written.spec = stored.spec.clone();
                }
                api.update(written).map(drop)
            }
            Action::DeleteClaim { name, uid } => api.delete::<NodeClaim>(&cluster_key(&name), &uid),
            Action::UpdateNode(node) => {
                let mut written = Node::clone(found::<Node>(api.node(&node.metadata.name), &node)?);
                written.metadata = node.metadata;
                written.spec.taints = node.spec.taints;
                api.update(written).map(drop)
            }
            Action::DeleteNode { name, uid } => api.delete::<Node>(&cluster_key(&name), &uid),
            Action::UpdatePool(pool) => {
                let mut written = NodePool::clone(found::<NodePool>(api.get(&cluster_key(pool.name())), &pool)?);
                written.metadata.annotations = pool.metadata.annotations;
                written.metadata.resource_version = pool.metadata.resource_version;
                written.status = pool.status;
                api.update(written).map(drop)
            }
            Action::UpdateOverlay(overlay) => {
                let stored = found::<NodeOverlay>(api.get(&cluster_key(overlay.name())), &overlay)?;
                let mut written = NodeOverlay::clone(stored);
                written.metadata.resource_version = overlay.metadata.resource_version;
                written.status = overlay.status;
                api.update(written).map(drop)
            }
            Action::Evict { pod, uid } => {
                let before = self.invariants.before_eviction(&pod, api, self.now);
                let outcome = api.evict(&pod, &uid);
                if outcome.is_ok() {
                    self.invariants.after_eviction(before);
                }
                outcome
            }
            Action::DeletePod { pod, uid, grace_period } => {
                self.invariants.deletion((&pod, &uid), api, self.now, grace_period);
                api.delete_pod(&pod, &uid, Some(grace_period))
            }
            Action::Note(_) => Ok(()),
            other => Err(Refusal::Invalid(format!("the simulation does not know {other:?}"))),
        }
    }
}

/// The object as the server has it, if it is the very one that is meant and nobody has changed it.
fn found<'s, T: ApiObject>(stored: Option<&'s std::sync::Arc<T>>, written: &T) -> Result<&'s T, Refusal> {
    let stored = stored.ok_or(Refusal::NotFound)?;
    let (uid, version) = (&written.metadata().uid, &written.metadata().resource_version);
    if !uid.is_empty() && *uid != stored.metadata().uid {
        return Err(Refusal::NotFound);
    }
    if !version.is_empty() && *version != stored.metadata().resource_version {
        return Err(Refusal::Conflict);
    }
    Ok(stored)
}

/// What a call to the cloud in memory gives, which waits for nothing.
fn at_once<T>(call: impl Future<Output = T>) -> T {
    match pin!(call).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => answer,
        Poll::Pending => panic!("the cloud in memory waits for nothing"),
    }
}
