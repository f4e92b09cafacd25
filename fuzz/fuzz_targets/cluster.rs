//! Whatever dump of a cluster can be read is planned: each pending pod comes out exactly once, twice the same.
#![no_main]

use std::{collections::BTreeMap, sync::LazyLock};

use karpenter_core::{
    Catalogs, InstanceType, Planner, Price, Quantity, Snapshot,
    api::{DaemonSet, Node, NodeClaim, NodePool, ObjectKey, Pod},
};
use libfuzzer_sys::fuzz_target;
use serde::Deserialize;

/// The objects of a cluster by their kinds.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Dump {
    pools: Vec<NodePool>,
    daemonsets: Vec<DaemonSet>,
    nodes: Vec<Node>,
    claims: Vec<NodeClaim>,
    pods: Vec<Pod>,
}

static TYPES: LazyLock<Vec<InstanceType>> = LazyLock::new(|| vec![machine("small", 2), machine("large", 32)]);

fn machine(name: &str, cpu: i64) -> InstanceType {
    let price = Price::per_hour(cpu as f64 / 20.0).expect("a price above zero");
    let capacity = [("cpu", Quantity::from_units(cpu)), ("memory", Quantity::from_bytes(cpu << 32))];
    InstanceType::named(name, capacity).offering("on-demand", "zone-a", price).offering("spot", "zone-b", price)
}

fuzz_target!(|data: &[u8]| {
    let Ok(dump) = serde_json::from_slice::<Dump>(data) else { return };
    let mut builder = Snapshot::builder().pools(dump.pools).nodes(dump.nodes).claims(dump.claims).pods(dump.pods);
    for daemonset in dump.daemonsets {
        builder = builder.daemonset(daemonset);
    }
    let Ok(snapshot) = builder.build() else { return };
    let catalogs = Catalogs::shared(TYPES.clone(), snapshot.pools()).expect("a valid catalog");
    check(&snapshot, &catalogs);
});

fn check(snapshot: &Snapshot, catalogs: &Catalogs) {
    let plan = Planner::default().plan(snapshot, catalogs);
    let mut seen: BTreeMap<&ObjectKey, usize> = snapshot.pending().iter().map(|key| (key, 0)).collect();
    let placed = plan.claims().iter().flat_map(|c| &c.pods).chain(plan.existing().values().flatten());
    for key in placed.chain(plan.unplaced().keys()) {
        *seen.get_mut(key).unwrap_or_else(|| panic!("{key} is in the plan, but not pending")) += 1;
    }
    let wrong = seen.iter().find(|(_, count)| **count != 1);
    assert!(wrong.is_none(), "each pod exactly once: {wrong:?}");
    assert_eq!(plan, Planner::default().plan(snapshot, catalogs), "the same input, another plan");
    for reason in plan.unplaced().values() {
        assert!(!reason.to_string().is_empty());
    }
}
