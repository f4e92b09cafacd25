//! Pods with the rules of Karpenter's own scheduling benchmark.

use karpenter::{api::Pod, labels};
use serde_json::{Value, json};

use super::{APP, Problem, neighbours, pod, requests, spread};

/// The labels that pods of the kinds select each other by.
const KIND: &str = "kind";
const GROUP: &str = "group";

/// What the pods are, one after the other.
pub(crate) const KINDS: [&str; 5] = ["plain", "spread over zones", "spread over nodes", "near each other", "alone"];

/// `count` pods: a fifth each plain, spread over zones, spread over nodes, drawn to their own kind, and at most one to a
/// node. Seven values of a label make them many classes.
pub(crate) fn problem(count: usize) -> Problem {
    Problem::of_pods(pods(count))
}

pub(crate) fn pods(count: usize) -> impl Iterator<Item = Value> {
    (0..count).map(member)
}

/// The pod that comes after so many, and is made later.
pub(crate) fn pod_after(number: usize) -> Pod {
    let mut pod = member(number);
    pod["metadata"]["creationTimestamp"] = json!("2026-01-01T00:00:00Z");
    serde_json::from_value(pod).expect("the pod is written rightly")
}

fn member(number: usize) -> Value {
    // Steps that have no divisor in common with the numbers of values reach all combinations.
    let requests = requests([100, 250, 500, 1000, 1500][number * 7 % 5], 128 << (number * 5 % 6));
    let (own, other) = ((number * 3 % 7).to_string(), (number * 11 / 5 % 7).to_string());
    let required = "requiredDuringSchedulingIgnoredDuringExecution";
    let spread_by = |key: &str| json!({"topologySpreadConstraints": [spread(key, "DoNotSchedule", KIND, &other)]});
    let (labels, spec) = match number % 5 {
        0 => (json!({KIND: own}), json!({})),
        1 => (json!({KIND: own}), spread_by(labels::ZONE)),
        2 => (json!({KIND: own}), spread_by(labels::HOSTNAME)),
        3 => {
            let near = neighbours(labels::ZONE, GROUP, &own);
            (json!({GROUP: own}), json!({"affinity": {"podAffinity": {required: [near]}}}))
        }
        _ => {
            let away = neighbours(labels::HOSTNAME, APP, "alone");
            (json!({APP: "alone"}), json!({"affinity": {"podAntiAffinity": {required: [away]}}}))
        }
    };
    pod(&format!("pod-{number}"), &labels, &requests, spec)
}
