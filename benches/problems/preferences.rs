//! Pods that prefer much and require nothing.

use karpenter::{
    fake::catalog::{INSTANCE_FAMILY, ZONES},
    labels,
};
use serde_json::{Value, json};

use super::{APP, Problem, pod, requests, spread};

/// Workloads that are alike but for what they prefer.
const WORKLOADS: usize = 40;

/// `count` pods of forty workloads. Each prefers a family of machines, which a tenth cannot have, and then a zone; all
/// are spread over zones and over nodes as far as that can be.
pub(crate) fn problem(count: usize) -> Problem {
    Problem::of_pods((0..count).map(member))
}

fn member(number: usize) -> Value {
    let workload = number % WORKLOADS;
    let app = format!("app-{workload}");
    let prefers = |weight: u32, key: &str, value: &str| json!({"weight": weight, "preference": {"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]}});
    let zone = ZONES[workload % ZONES.len()];
    let family = ["absent", "c", "s", "m"][workload / ZONES.len() % 4];
    let preferred = json!([prefers(50, INSTANCE_FAMILY, family), prefers(10, labels::ZONE, zone)]);
    let spread_by = |key| spread(key, "ScheduleAnyway", APP, &app);
    let spec = json!({
        "affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}},
        "topologySpreadConstraints": [spread_by(labels::ZONE), spread_by(labels::HOSTNAME)],
    });
    let requests = requests([250, 500, 1000][workload % 3], 512 << (workload % 4));
    pod(&format!("pod-{number}"), &json!({APP: app}), &requests, spec)
}
