//! Pods of fifty shapes that ask for nothing but a node.

use karpenter::{fake::catalog::ZONES, labels};
use serde_json::{Value, json};

use super::{APP, Problem, pod, requests};

/// Kinds of pods.
const SHAPES: usize = 50;

/// `count` pods; every fifth shape wants a zone, every seventh machines on demand.
pub(crate) fn problem(count: usize) -> Problem {
    Problem::of_pods((0..count).map(member))
}

fn member(number: usize) -> Value {
    let shape = number % SHAPES;
    let mut selector = json!({});
    if shape.is_multiple_of(5) {
        selector[labels::ZONE] = ZONES[shape / 5 % ZONES.len()].into();
    }
    if shape.is_multiple_of(7) {
        selector[labels::CAPACITY_TYPE] = labels::ON_DEMAND.into();
    }
    let requests = requests(100 + 150 * (shape as u64 % 13), 128 << (shape % 6));
    let labels = json!({APP: format!("shape-{shape}")});
    pod(&format!("pod-{number}"), &labels, &requests, json!({"nodeSelector": selector}))
}
