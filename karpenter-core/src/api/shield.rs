//! Pods that say themselves that they must be left where they are, and pods that no drain evicts.

use std::{fmt, time::Duration};

use super::{Pod, Taint, TaintEffect, go_duration, tolerates_all};
use crate::{Timestamp, labels};

/// How long a pod must be left where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Shield {
    /// For as long as it runs.
    Always,
    /// Until this time.
    Until(Timestamp),
    /// So long after it started; it does not say yet that it did.
    OnceStarted(Duration),
}

impl Shield {
    /// What the annotation `karpenter.sh/do-not-disrupt` of a pod means `now`; `None` if the pod may be disturbed.
    ///
    /// The value `true` holds for ever, and a positive duration as Go writes it, such as `1h30m`, from when the pod
    /// started. Another value means nothing, and neither does the annotation of a pod that is finished or on its way
    /// out.
    pub fn of_pod(pod: &Pod, now: Timestamp) -> Option<Self> {
        let value = pod.metadata.annotations.get(labels::DO_NOT_DISRUPT).filter(|_| pod.is_active())?;
        if value == "true" {
            return Some(Self::Always);
        }
        let duration = go_duration(value).filter(|d| !d.is_zero())?;
        let Some(started) = pod.status.start_time else { return Some(Self::OnceStarted(duration)) };
        let until = started + duration;
        (now < until).then_some(Self::Until(until))
    }
}

impl fmt::Display for Shield {
    /// What follows the name of the annotation.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Always => Ok(()),
            Self::Until(time) => write!(f, ", which holds until {time}"),
            Self::OnceStarted(duration) => {
                write!(f, ", which holds until {} s after it started", duration.as_secs_f64())
            }
        }
    }
}

impl Pod {
    /// Whether it stays on nodes that were chosen to go, because it tolerates their taint.
    pub(crate) fn tolerates_disruption(&self) -> bool {
        let disrupted = [Taint::new(labels::DISRUPTED, "", TaintEffect::NoSchedule)];
        tolerates_all(&self.spec.tolerations, &disrupted, false).is_ok()
    }

    /// Whether a drain evicts it: not if it is finished or on its way out, not if it mirrors a static pod, and not if it tolerates
    /// the taint of nodes that were chosen to go.
    pub(crate) fn is_evictable(&self) -> bool {
        self.is_active() && !self.is_mirror() && !self.tolerates_disruption()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(json: &str) -> Pod {
        serde_json::from_str(json).expect(json)
    }

    #[test]
    fn the_annotation_shields_for_ever_or_for_a_while_after_the_start() {
        let now: Timestamp = "2026-01-01T01:00:00Z".parse().expect("a time");
        let started = r#","status":{"startTime":"2026-01-01T00:00:00Z"}"#;
        for (value, more, expected) in [
            ("true", "", Some(Shield::Always)),
            ("false", "", None),
            ("True", "", None),
            ("1h", started, None),
            ("61m", started, Some(Shield::Until(now + Duration::from_mins(1)))),
            ("61m", "", Some(Shield::OnceStarted(Duration::from_mins(61)))),
            ("0s", "", None),
            ("-5m", started, None),
            ("soon", started, None),
            ("true", r#","status":{"phase":"Succeeded"}"#, None),
            ("2h", r#","status":{"phase":"Failed","startTime":"2026-01-01T00:00:00Z"}"#, None),
        ] {
            let json = format!(
                r#"{{"metadata":{{"name":"p","annotations":{{"karpenter.sh/do-not-disrupt":"{value}"}}}}{more}}}"#
            );
            assert_eq!(Shield::of_pod(&pod(&json), now), expected, "{json}");
        }
        let leaving = r#"{"metadata":{"name":"p","deletionTimestamp":"2026-01-01T00:00:00Z","annotations":{"karpenter.sh/do-not-disrupt":"true"}}}"#;
        assert_eq!(Shield::of_pod(&pod(leaving), now), None);
        assert_eq!(Shield::of_pod(&pod(r#"{"metadata":{"name":"p"}}"#), now), None);
    }

    #[test]
    fn a_drain_evicts_pods_that_run_and_do_not_stay_on_purpose() {
        let owned = |kind: &str, version: &str| {
            format!(
                r#"{{"metadata":{{"name":"p","ownerReferences":[{{"apiVersion":"{version}","kind":"{kind}","name":"o","uid":"u"}}]}}}}"#
            )
        };
        let tolerant = |toleration: &str| {
            format!(r#"{{"metadata":{{"name":"p"}},"spec":{{"containers":[],"tolerations":[{toleration}]}}}}"#)
        };
        for (json, evictable, reschedulable) in [
            (r#"{"metadata":{"name":"p"}}"#.to_owned(), true, true),
            (owned("ReplicaSet", "apps/v1"), true, true),
            (owned("DaemonSet", "apps/v1"), true, false),
            (owned("DaemonSet", "apps.kruise.io/v1"), true, true),
            (owned("Node", "v1"), false, false),
            (tolerant(r#"{"operator":"Exists"}"#), false, true),
            (tolerant(r#"{"key":"karpenter.sh/disrupted","operator":"Exists","effect":"NoSchedule"}"#), false, true),
            (tolerant(r#"{"key":"karpenter.sh/disrupted","operator":"Exists","effect":"NoExecute"}"#), true, true),
            (tolerant(r#"{"key":"dedicated","operator":"Exists"}"#), true, true),
            (r#"{"metadata":{"name":"p"},"status":{"phase":"Failed"}}"#.to_owned(), false, false),
            (r#"{"metadata":{"name":"p","deletionTimestamp":"2026-01-01T00:00:00Z"}}"#.to_owned(), false, false),
            (
                owned("StatefulSet", "apps/v1")
                    .replace(r#""name":"p""#, r#""name":"p","deletionTimestamp":"2026-01-01T00:00:00Z""#),
                false,
                true,
            ),
        ] {
            let pod = pod(&json);
            assert_eq!((pod.is_evictable(), pod.is_reschedulable()), (evictable, reschedulable), "{json}");
        }
    }

    #[test]
    fn pods_are_stuck_a_minute_after_they_should_be_gone() {
        let leaving = pod(r#"{"metadata":{"name":"p","deletionTimestamp":"2026-01-01T00:00:00Z"}}"#);
        for (now, expected) in
            [("2025-12-31T23:00:00Z", false), ("2026-01-01T00:01:00Z", false), ("2026-01-01T00:01:01Z", true)]
        {
            assert_eq!(leaving.is_stuck_terminating(now.parse().expect("a time")), expected, "{now}");
        }
        let running = pod(r#"{"metadata":{"name":"p"}}"#);
        assert!(!running.is_stuck_terminating("2026-01-01T00:00:00Z".parse().expect("a time")));
    }
}
