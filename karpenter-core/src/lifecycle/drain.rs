//! Which pods must leave a node now.

use std::time::Duration;

use crate::{
    Timestamp,
    api::{ObjectKey, Pod, STUCK_AFTER, Shield},
};

/// How long a pod may take to end if it does not say (`terminationGracePeriodSeconds`).
pub const DEFAULT_GRACE_PERIOD: Duration = Duration::from_secs(30);
/// The least time that a pod is given to end.
const MIN_GRACE_PERIOD: Duration = Duration::from_secs(1);
/// The priority of `system-cluster-critical`; no priority class of users is as high as that.
const CRITICAL_PRIORITY: i32 = 2_000_000_000;

/// How far the drain of a node is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Drain {
    /// What to do now.
    pub steps: Vec<DrainStep>,
    /// How many pods the drain waits for.
    pub waiting: usize,
    /// The pods that would have to leave now, but for their annotation `karpenter.sh/do-not-disrupt`, with their uids.
    pub shielded: Vec<(ObjectKey, String)>,
    /// When more is to be done, if nothing happens before.
    pub wake: Option<Timestamp>,
}

/// What to do to a pod that must leave.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DrainStep {
    /// Evict it.
    Evict {
        /// The pod.
        pod: ObjectKey,
        /// Its uid.
        uid: String,
    },
    /// Delete it, because its node's time is up.
    Delete {
        /// The pod.
        pod: ObjectKey,
        /// Its uid.
        uid: String,
        /// How long it may take to end.
        grace_period: Duration,
    },
}

/// What to do to the pods of a node that is on its way out. By `deadline` the last of them is gone.
///
/// The groups of pods leave one after the other: first those that are not critical, then critical ones, in both daemons last
/// (<https://kubernetes.io/docs/concepts/cluster-administration/node-shutdown/#pod-priority-graceful-node-shutdown>). A pod
/// that would not end before the deadline otherwise is deleted, whatever its group, its disruption budgets and its annotation
/// `karpenter.sh/do-not-disrupt` say.
///
/// Mirrors of static pods, pods that tolerate the taint of nodes that were chosen to go, pods that are finished and those that
/// should have been gone for a minute keep no drain from its end.
pub fn drain<'p>(pods: impl IntoIterator<Item = &'p Pod>, deadline: Option<Timestamp>, now: Timestamp) -> Drain {
    let waiting: Vec<&Pod> = pods.into_iter().filter(|pod| is_waited_for(pod, now)).collect();
    let mut out = Drain { waiting: waiting.len(), ..Drain::default() };
    let first = waiting.iter().map(|pod| group(pod)).min();
    let mut wakes = Vec::new();
    for pod in waiting {
        let (key, uid) = (pod.key(), pod.metadata.uid.clone());
        if let Some(gone) = pod.metadata.deletion_timestamp {
            wakes.push(gone + STUCK_AFTER + Duration::from_millis(1));
        }
        let cut = deadline.map(|deadline| (deadline, deadline - grace_period(pod)));
        if let Some((deadline, _)) = cut.filter(|(_, due)| *due < now) {
            let ends_late = pod.metadata.deletion_timestamp.is_none_or(|gone| gone > deadline.max(now));
            if ends_late {
                let grace_period = deadline.since(now).max(MIN_GRACE_PERIOD);
                out.steps.push(DrainStep::Delete { pod: key, uid, grace_period });
            }
            continue;
        }
        wakes.extend(cut.map(|(_, due)| due + Duration::from_millis(1)));
        if Some(group(pod)) == first && pod.is_active() {
            match Shield::of_pod(pod, now) {
                None => out.steps.push(DrainStep::Evict { pod: key, uid }),
                Some(shield) => {
                    if let Shield::Until(until) = shield {
                        wakes.push(until);
                    }
                    out.shielded.push((key, uid));
                }
            }
        }
    }
    out.wake = wakes.into_iter().filter(|wake| now < *wake).min();
    out
}

/// Whether the drain of its node is not over while this pod is there.
pub(crate) fn is_waited_for(pod: &Pod, now: Timestamp) -> bool {
    !pod.is_finished() && !pod.is_mirror() && !pod.is_stuck_terminating(now) && !pod.tolerates_disruption()
}

/// Whether it is the turn of a pod to leave, of all pods of its node.
pub(crate) fn is_next<'p>(pod: &Pod, all: impl IntoIterator<Item = &'p Pod>, now: Timestamp) -> bool {
    all.into_iter().filter(|other| is_waited_for(other, now)).all(|other| group(pod) <= group(other))
}

fn group(pod: &Pod) -> (bool, bool) {
    (pod.spec.priority.unwrap_or(0) >= CRITICAL_PRIORITY, pod.is_daemon())
}

fn grace_period(pod: &Pod) -> Duration {
    pod.spec.termination_grace_period_seconds.map_or(DEFAULT_GRACE_PERIOD, Duration::from_secs)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_millis(seconds * 1000)
    }

    fn pod(name: &str, priority: i32, is_daemon: bool, more: &serde_json::Value) -> Pod {
        let kind = if is_daemon { "DaemonSet" } else { "ReplicaSet" };
        let mut meta = json!({"name": name, "uid": name,
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": kind, "name": "o", "uid": "o"}]});
        meta.as_object_mut().expect("a map").extend(more.as_object().expect("a map").clone());
        serde_json::from_value(json!({"metadata": meta, "spec": {"containers": [], "priority": priority}}))
            .expect("a pod")
    }

    fn names(drain: &Drain) -> Vec<String> {
        let name = |step: &DrainStep| match step {
            DrainStep::Evict { pod, .. } => format!("evict {}", pod.name),
            DrainStep::Delete { pod, grace_period, .. } => format!("delete {} {}", pod.name, grace_period.as_secs()),
        };
        drain.steps.iter().map(name).collect()
    }

    #[test]
    fn groups_leave_one_after_the_other() {
        let plain = json!({});
        let mut pods = vec![
            pod("critical-daemon", CRITICAL_PRIORITY, true, &plain),
            pod("critical", CRITICAL_PRIORITY, false, &plain),
            pod("daemon", 0, true, &plain),
            pod("web", 0, false, &plain),
        ];
        for expected in ["evict web", "evict daemon", "evict critical", "evict critical-daemon"] {
            let found = drain(&pods, None, at(0));
            assert_eq!((names(&found), found.waiting), (vec![expected.to_owned()], pods.len()));
            pods.pop();
        }
        assert_eq!(drain(&pods, None, at(0)), Drain::default());
    }

    #[test]
    fn a_pod_that_is_leaving_holds_the_next_group_until_it_is_stuck() {
        let leaving = json!({"deletionTimestamp": "1970-01-01T00:00:30Z"});
        let pods = [pod("web", 0, false, &leaving), pod("daemon", 0, true, &json!({}))];
        let found = drain(&pods, None, at(0));
        assert_eq!(
            (names(&found), found.waiting, found.wake),
            (Vec::new(), 2, Some(at(90) + Duration::from_millis(1)))
        );
        let found = drain(&pods, None, at(91));
        assert_eq!((names(&found), found.waiting), (vec!["evict daemon".to_owned()], 1));
    }

    #[test]
    fn before_the_deadline_pods_are_deleted_whatever_holds_them() {
        let held = json!({"annotations": {"karpenter.sh/do-not-disrupt": "true"}});
        let pods = [pod("held", 0, false, &held), pod("daemon", 0, true, &json!({}))];
        for (now, expected) in [
            (60, vec![]),
            (70, vec![]),
            (71, vec!["delete held 29", "delete daemon 29"]),
            (200, vec!["delete held 1", "delete daemon 1"]),
        ] {
            assert_eq!(names(&drain(&pods, Some(at(100)), at(now))), expected, "{now}");
        }
        let leaving = json!({"deletionTimestamp": "1970-01-01T00:01:39Z"});
        assert_eq!(drain(&[pod("web", 0, false, &leaving)], Some(at(100)), at(80)).steps, []);
    }
}
