//! Whatever dump of a cluster can be read is planned: each pod comes out exactly once, twice the same, and is reported.
#![no_main]

use std::{collections::BTreeSet, sync::LazyLock};

use karpenter_cli::{
    args::OutputFormat,
    load::{self, Cluster},
    output,
    plan::{self, Effort, Outcome},
};
use karpenter_core::{InstanceType, PlannerOptions, Price, Quantity};
use libfuzzer_sys::fuzz_target;

static TYPES: LazyLock<Vec<InstanceType>> = LazyLock::new(|| vec![machine("small", 2), machine("large", 32)]);

fn machine(name: &str, cpu: i64) -> InstanceType {
    let price = Price::per_hour(cpu as f64 / 20.0).expect("a price above zero");
    let capacity = [("cpu", Quantity::from_units(cpu)), ("memory", Quantity::from_bytes(cpu << 32))];
    InstanceType::named(name, capacity).offering("on-demand", "zone-a", price).offering("spot", "zone-b", price)
}

fuzz_target!(|text: &str| {
    let Ok(cluster) = load::cluster(text, "fuzz") else { return };
    let bad_pods = cluster.bad_pods.len();
    let Some(outcome) = plan_once(cluster.clone()) else { return };
    check(&outcome, bad_pods);
    let again = plan_once(cluster).expect("it was planned once");
    assert_eq!(outcome.plan, again.plan, "the same input, another plan");
});

/// A plan, or nothing for objects that do not go together, such as two pods of one name.
fn plan_once(cluster: Cluster) -> Option<Outcome> {
    plan::plan(cluster, TYPES.clone(), "types", &PlannerOptions::default(), Effort::default()).ok()
}

fn check(outcome: &Outcome, bad_pods: usize) {
    let plan = &outcome.plan;
    let placed = plan.claims().iter().flat_map(|c| &c.pods).chain(plan.existing().values().flatten());
    let listed: Vec<_> = placed.chain(plan.unplaced().keys()).collect();
    let distinct: BTreeSet<_> = listed.iter().collect();
    assert_eq!(distinct.len(), listed.len(), "a pod is listed twice");
    assert_eq!(listed.len() + bad_pods, outcome.pod_count, "not each pod came out");
    assert!(outcome.errors.values().all(|reason| !reason.is_empty()));
    for format in [OutputFormat::Json, OutputFormat::Yaml, OutputFormat::Table] {
        let report = output::render(outcome, format, true).expect("every plan can be printed");
        assert!(report.ends_with('\n'), "a report without an end: {report:?}");
    }
}
