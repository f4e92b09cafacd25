//! The pods that wait for a node: those to be tried now, and those that found none.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use karpenter_core::{Timestamp, api::ObjectKey};

use crate::sim::timeline::Timeline;

/// How long a pod waits after its first failure, twice as long after each further one (`podInitialBackoffSeconds`).
const FIRST_BACKOFF: Duration = Duration::from_secs(1);
/// The longest of these waits (`podMaxBackoffSeconds`).
const MAX_BACKOFF: Duration = Duration::from_secs(10);
/// When a pod is tried again though nothing seems to have changed for it (`podMaxInUnschedulablePodsDuration`).
const PATIENCE: Duration = Duration::from_mins(5);

/// In which order pods are tried: priority, then since when they wait, then who came first.
type Rank = (Reverse<i32>, Timestamp, u64);

#[derive(Clone, Debug)]
struct Waiting {
    rank: Rank,
    shape: usize,
    attempts: u32,
    failed_at: Timestamp,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// To be tried.
    Active,
    /// Something has changed for it, and it waits for its time.
    BackingOff,
    /// Nothing has changed for it since it found no node.
    Unschedulable,
}

/// The queue of the kube-scheduler.
#[derive(Clone, Debug)]
pub(super) struct Queue {
    pods: BTreeMap<ObjectKey, Waiting>,
    active: BTreeMap<Rank, ObjectKey>,
    /// The pods for which nothing has changed, by shape.
    stuck: BTreeMap<usize, BTreeSet<ObjectKey>>,
    /// Who is tried again when, with how often it had failed when that was planned.
    retries: Timeline<(ObjectKey, u32)>,
    arrivals: u64,
}

impl Queue {
    pub(super) fn new() -> Self {
        let (pods, active, stuck) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self { pods, active, stuck, retries: Timeline::new(), arrivals: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.pods.len()
    }

    pub(super) fn add(&mut self, pod: ObjectKey, shape: usize, priority: i32, now: Timestamp) {
        self.arrivals += 1;
        let rank = (Reverse(priority), now, self.arrivals);
        self.active.insert(rank, pod.clone());
        self.pods.insert(pod, Waiting { rank, shape, attempts: 0, failed_at: now, state: State::Active });
    }

    pub(super) fn remove(&mut self, pod: &ObjectKey) {
        let Some(waiting) = self.pods.remove(pod) else { return };
        self.active.remove(&waiting.rank);
        self.unstick(waiting.shape, pod);
    }

    /// The pod that is tried next.
    pub(super) fn next(&self) -> Option<&ObjectKey> {
        self.active.first_key_value().map(|(_, pod)| pod)
    }

    /// A pod found no node.
    pub(super) fn fail(&mut self, pod: &ObjectKey, now: Timestamp) {
        let Some(waiting) = self.pods.get_mut(pod) else { return };
        self.active.remove(&waiting.rank);
        waiting.attempts = waiting.attempts.saturating_add(1);
        waiting.failed_at = now;
        waiting.state = State::Unschedulable;
        self.retries.plan(now + PATIENCE, (pod.clone(), waiting.attempts));
        self.stuck.entry(waiting.shape).or_default().insert(pod.clone());
    }

    /// The shapes of pods for which nothing has changed since they found no node.
    pub(super) fn stuck_shapes(&self) -> impl Iterator<Item = usize> {
        self.stuck.keys().copied()
    }

    /// Something has changed for the pods of a shape.
    pub(super) fn stir(&mut self, shape: usize, now: Timestamp) {
        for pod in self.stuck.remove(&shape).unwrap_or_default() {
            let Some(waiting) = self.pods.get_mut(&pod) else { continue };
            let ready_at = waiting.failed_at + backoff(waiting.attempts);
            if ready_at <= now {
                waiting.state = State::Active;
                self.active.insert(waiting.rank, pod);
            } else {
                waiting.state = State::BackingOff;
                self.retries.plan(ready_at, (pod, waiting.attempts));
            }
        }
    }

    /// When somebody is to be tried next whose time has not come.
    pub(super) fn next_at(&self) -> Option<Timestamp> {
        self.retries.next_at()
    }

    /// Lets those be tried whose time has come.
    pub(super) fn advance(&mut self, now: Timestamp) {
        while let Some((_, (pod, attempts))) = self.retries.pop_until(now) {
            let Some(waiting) = self.pods.get_mut(&pod) else { continue };
            if waiting.attempts != attempts || waiting.state == State::Active {
                continue;
            }
            waiting.state = State::Active;
            let (rank, shape) = (waiting.rank, waiting.shape);
            self.unstick(shape, &pod);
            self.active.insert(rank, pod);
        }
    }

    fn unstick(&mut self, shape: usize, pod: &ObjectKey) {
        if let Some(pods) = self.stuck.get_mut(&shape) {
            pods.remove(pod);
            if pods.is_empty() {
                self.stuck.remove(&shape);
            }
        }
    }
}

/// How long a pod waits that failed so often.
fn backoff(attempts: u32) -> Duration {
    let doublings = attempts.saturating_sub(1).min(16);
    (FIRST_BACKOFF * (1 << doublings)).min(MAX_BACKOFF)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    fn key(name: &str) -> ObjectKey {
        ObjectKey::new("default", name)
    }

    #[test]
    fn priority_comes_first_and_then_age() {
        let mut queue = Queue::new();
        for (name, priority, now) in [("late", 0, 2), ("early", 0, 1), ("urgent", 9, 3), ("same", 0, 1)] {
            queue.add(key(name), 0, priority, at(now));
        }
        let mut order = Vec::new();
        while let Some(pod) = queue.next().cloned() {
            queue.remove(&pod);
            order.push(pod.name);
        }
        assert_eq!(order, ["urgent", "early", "same", "late"]);
    }

    #[test]
    fn who_failed_waits_for_a_change_and_for_a_while() {
        let mut queue = Queue::new();
        queue.add(key("a"), 7, 0, at(0));
        queue.fail(&key("a"), at(0));
        queue.advance(at(60_000));
        assert_eq!(queue.next(), None, "nothing has changed");
        queue.stir(7, at(60_000));
        assert_eq!(queue.next(), Some(&key("a")));
        queue.fail(&key("a"), at(60_000));
        queue.stir(7, at(60_500));
        assert_eq!((queue.next(), queue.next_at()), (None, Some(at(62_000))), "two seconds after the second time");
        queue.advance(at(62_000));
        assert_eq!(queue.next(), Some(&key("a")));
        queue.fail(&key("a"), at(62_000));
        queue.advance(at(362_000));
        assert_eq!(queue.next(), Some(&key("a")), "tried again after five minutes");
    }

    #[test]
    fn waits_double_up_to_ten_seconds() {
        let waits: Vec<u64> = (1..=6).map(|n| backoff(n).as_secs()).collect();
        assert_eq!(waits, [1, 2, 4, 8, 10, 10]);
    }
}
