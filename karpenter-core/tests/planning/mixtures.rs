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

/// Of a mixture for so few pods nothing is whole: node after node is made of what there is most of.
#[test]
fn pods_of_which_no_two_are_alike_fill_three_nodes_to_the_last_core() {
    let asked =
        [(4, 2), (2, 1), (1, 4), (3, 2), (3, 2), (1, 2), (2, 12), (1, 1), (1, 12), (6, 6)].into_iter().enumerate();
    let pods = asked.map(|(index, (cpu, memory_gib))| {
        Pod::named(format!("p-{index}")).cpu(&cpu.to_string()).memory(&format!("{memory_gib}Gi"))
    });
    let capacity = [
        ("cpu", Quantity::from_units(8)),
        ("memory", Quantity::from_bytes(16 << 30)),
        ("pods", Quantity::from_units(110)),
    ];
    let price = Price::per_hour(0.4).expect("a price");
    let machine = InstanceType::named("eight", capacity).offering("on-demand", "zone-a", price);
    let builder =
        pods.fold(Snapshot::builder().pool(NodePool::named("general")), karpenter_core::SnapshotBuilder::pods);
    let snapshot = builder.build().expect("the pods are written rightly");
    let catalogs = Catalogs::shared(vec![machine], snapshot.pools()).expect("the catalog is written rightly");
    let plan = Planner::default().plan(&snapshot, &catalogs);
    assert!(plan.unplaced().is_empty());
    assert_eq!(plan.claims().len(), 3);
}
