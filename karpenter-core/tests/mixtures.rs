//! Mixtures of nodes: how near a plan comes to the bound that is proved with it.

use karpenter_core::{
    Catalogs, InstanceType, Plan, Planner, PlannerOptions, Price, Quantity, Snapshot,
    api::{NodePool, Pod},
};

const ZONES: [&str; 3] = ["zone-a", "zone-b", "zone-c"];

/// A machine of twelve cores, at one price in all zones.
fn machine() -> InstanceType {
    let capacity = [("cpu", Quantity::from_units(12)), ("pods", Quantity::from_units(110))];
    let price = Price::per_hour(1.0).expect("a price");
    ZONES
        .into_iter()
        .fold(InstanceType::named("twelve", capacity), |machine, zone| machine.offering("on-demand", zone, price))
}

/// The plan for so many pods of five, four and three cores in each zone, and the bound on its price.
fn plan(replicas: u32) -> (Plan, f64) {
    let mut builder = Snapshot::builder().pool(NodePool::named("general"));
    for cores in [5, 4, 3] {
        for zone in ZONES {
            let pods = Pod::named(format!("app-{cores}-{zone}")).cpu(&cores.to_string()).replicas(replicas);
            builder = builder.pods(pods.node_selector("topology.kubernetes.io/zone", zone));
        }
    }
    let snapshot = builder.build().expect("the workload is written rightly");
    let catalogs = Catalogs::shared(vec![machine()], snapshot.pools()).expect("the catalog is written rightly");
    let mut options = PlannerOptions::default();
    options.slack = 0.0;
    let planner = Planner::new(options);
    let problem = planner.prepare(&snapshot, &catalogs);
    let plan = problem.solve();
    assert_eq!(planner.plan(&snapshot, &catalogs), plan);
    let bound = problem.certify(&plan).lower_bound.dollars_per_hour();
    (plan, bound)
}

/// Two pods of five cores make the most of a node that may have no more of the same, but leave two cores to nobody.
#[test]
fn pods_that_fill_nodes_together_come_together() {
    let (plan, bound) = plan(40);
    assert!(plan.unplaced().is_empty());
    assert_eq!(plan.claims().len(), 120);
    assert!((bound - 120.0).abs() < 0.1, "{bound}");
}
