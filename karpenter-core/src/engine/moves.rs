//! Pods that commands moved to save money, and whether they found the room that was meant for them.
//!
//! Where a further node is made for a pod that was moved, something else had taken its room, and the next command would be likely to
//! fare no better: a cluster could go round in circles. So the nodes of its workload are left alone for a while, longer each
//! time. An engine that starts anew begins with the shortest time again.

use std::{collections::BTreeMap, time::Duration};

use super::{Engine, Work, provisioner::workload_of};
use crate::{
    Backoff, PlannedClaim, Timestamp,
    api::{
        DisruptionReason, Pod,
        conditions::{DISRUPTION_REASON, condition},
    },
};

/// A node that is made for a pod so long after it left is made for other reasons: pods end within half a minute if they do not ask
/// for more time.
const WINDOW: Duration = Duration::from_mins(2);
/// How long the nodes of a workload are left alone.
const REST: Backoff = Backoff { shortest: Duration::from_mins(5), longest: Duration::from_hours(8) };
/// The most workloads that are remembered. Another one takes the place of any of them, which costs a move more.
const MAX_WORKLOADS: usize = 10_000;

/// See the [module](self).
#[derive(Clone, Debug, Default)]
pub(super) struct Moves {
    by_workload: BTreeMap<String, Move>,
}

/// What is remembered of the pods of one workload.
#[derive(Clone, Debug)]
struct Move {
    /// How many have left whose next ones have no node yet.
    open: usize,
    last_left: Timestamp,
    /// How often in a row they moved in vain.
    failures: u32,
    /// Until when its nodes are left alone.
    rests_until: Option<Timestamp>,
}

impl Move {
    /// How long its nodes are left alone after its last failure.
    fn rest(&self) -> Duration {
        REST.after(self.failures)
    }

    /// Whether the workload is forgotten: once as much time has passed after its rest as the rest took, or after the last move where
    /// none is open.
    fn is_over(&self, now: Timestamp) -> bool {
        let rests = self.rests_until.is_some_and(|until| now < until + self.rest());
        !rests && (self.open == 0 || self.last_left + WINDOW <= now)
    }
}

impl Moves {
    fn left(&mut self, pod: &Pod, has_left: bool, now: Timestamp) {
        let workload = workload_of(pod);
        if self.by_workload.len() >= MAX_WORKLOADS && !self.by_workload.contains_key(&workload) {
            self.by_workload.retain(|_, known| !known.is_over(now));
            if self.by_workload.len() >= MAX_WORKLOADS {
                self.by_workload.pop_first();
            }
        }
        let fresh = || Move { open: 0, last_left: now, failures: 0, rests_until: None };
        let known = self.by_workload.entry(workload).or_insert_with(fresh);
        if known.is_over(now) {
            *known = fresh();
        }
        (known.open, known.last_left) = (known.open + usize::from(has_left), now);
    }

    /// A pod has a node.
    pub(super) fn settled(&mut self, pod: &Pod, now: Timestamp) {
        if self.by_workload.is_empty() {
            return;
        }
        let workload = workload_of(pod);
        if let Some(known) = self.by_workload.get_mut(&workload) {
            known.open = known.open.saturating_sub(1);
            if known.is_over(now) {
                self.by_workload.remove(&workload);
            }
        }
    }

    /// A node is made for a pod. Whether its workload was moved in vain, and its nodes are left alone from now on.
    fn fail(&mut self, workload: &str, now: Timestamp) -> bool {
        let Some(known) = self.by_workload.get_mut(workload) else { return false };
        let rests = known.rests_until.is_some_and(|until| now < until);
        if rests || known.open == 0 || known.last_left + WINDOW <= now {
            return false;
        }
        known.failures = known.failures.saturating_add(1);
        known.rests_until = Some(now + known.rest());
        true
    }

    fn rests_until(&self, pod: &Pod) -> Option<Timestamp> {
        self.by_workload.get(&workload_of(pod))?.rests_until
    }
}

impl Engine {
    /// Takes in that a pod may have left a node which goes to save money.
    pub(super) fn note_move(&mut self, before: Option<&Pod>, pod: Option<&Pod>, now: Timestamp) {
        let Some(before) = before.filter(|pod| !pod.spec.node_name.is_empty() && !pod.is_daemon()) else { return };
        let has_left = before.is_active() && pod.is_none_or(Pod::is_terminating);
        if (has_left || pod.is_none()) && self.goes_to_save_money(&before.spec.node_name) {
            self.moves.left(before, has_left, now);
        }
    }

    fn goes_to_save_money(&self, node: &str) -> bool {
        let node = self.store.nodes.get(node).filter(|node| node.metadata.deletion_timestamp.is_some());
        let claim = node.and_then(|node| self.store.claim_of(node));
        let why = claim.and_then(|claim| condition(&claim.status.conditions, DISRUPTION_REASON));
        why.is_some_and(|why| why.reason == DisruptionReason::Underutilized.name())
    }

    /// Takes in that a claim is made for pods that wait.
    pub(super) fn note_purchase(&mut self, planned: &PlannedClaim, now: Timestamp) {
        for pod in &planned.pods {
            let Some(workload) = self.store.pods.get(pod).map(|pod| workload_of(pod)) else { continue };
            if self.moves.fail(&workload, now) {
                self.look_at_nodes_of(&workload);
            }
        }
    }

    fn look_at_nodes_of(&mut self, workload: &str) {
        let pods =
            self.store.pods.values().filter(|pod| !pod.spec.node_name.is_empty() && workload_of(pod) == workload);
        let nodes = pods.filter_map(|pod| self.store.nodes.get(&pod.spec.node_name));
        let claims: Vec<_> = nodes.filter_map(|node| self.store.claim_of(node)).cloned().collect();
        for claim in claims {
            self.lives.of(&claim).content = None;
            self.agenda.add(Work::Claim(claim.name().to_owned()));
        }
    }

    /// Until when a node is left alone because a workload of one of its pods was moved in vain.
    pub(super) fn rests_until(&self, node: &str, now: Timestamp) -> Option<Timestamp> {
        if self.moves.by_workload.is_empty() {
            return None;
        }
        let pods = self.store.pods_on(node).filter(|pod| pod.is_reschedulable());
        pods.filter_map(|pod| self.moves.rests_until(pod)).filter(|until| now < *until).max()
    }
}
