//! Whatever catalog can be read can be written and read again, and planned with.
#![no_main]

use std::sync::Arc;

use karpenter_core::{
    Catalog, Catalogs, InstanceType, Planner, Snapshot,
    api::{NodePool, Pod},
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let Ok(list) = karpenter_cli::load::catalog(text, "fuzz") else { return };
    let Ok(catalog) = Catalog::new(list.types) else { return };
    check_wire(&catalog);
    check_plan(catalog);
});

/// The wire form is stable: what was written is read as something that is written alike.
fn check_wire(catalog: &Catalog) {
    let written = serde_json::to_string(catalog.types()).expect("a list of types is JSON");
    let again: Vec<InstanceType> = serde_json::from_str(&written).expect("its own output");
    assert_eq!(serde_json::to_string(&again).expect("a list of types is JSON"), written);
    assert!(again.iter().zip(catalog.types()).all(|(a, b)| a.allocatable() == b.allocatable()));
}

/// Pods of three kinds get a place or a reason, and only offerings that can be bought are planned with.
fn check_plan(catalog: Catalog) {
    let snapshot = Snapshot::builder()
        .pool(NodePool::named("general"))
        .pods(Pod::named("web").cpu("500m").memory("1Gi").replicas(20))
        .pods(Pod::named("spot").cpu("3").node_selector("karpenter.sh/capacity-type", "spot").replicas(3))
        .pods(Pod::named("gpu").request("nvidia.com/gpu", "1"))
        .build()
        .expect("valid pods");
    let mut catalogs = Catalogs::new();
    catalogs.insert("general", Arc::new(catalog.clone()));
    let plan = Planner::default().plan(&snapshot, &catalogs);
    let placed: usize = plan.claims().iter().map(|c| c.pods.len()).sum();
    assert_eq!(placed + plan.unplaced().len(), snapshot.pending().len());
    for name in plan.claims().iter().flat_map(|c| c.instance_types.iter()) {
        let instance_type = catalog.get(name).unwrap_or_else(|| panic!("{name} is not in the catalog"));
        assert!(instance_type.offerings.iter().any(|o| o.available), "{name} cannot be bought");
    }
}
