//! Mixtures of nodes: how near a plan comes to the bound that is proved with it.

use karpenter_core::{
    Catalogs, InstanceType, Planner, PlannerOptions, Price, Quantity, Snapshot,
    api::{NodePool, Pod},
};

const ZONES: [&str; 3] = ["zone-a", "zone-b", "zone-c"];

/// Three families with 2, 4 and 8 GiB for a core, in four sizes, at one price in all zones.
fn machines() -> Vec<InstanceType> {
    let mut out = Vec::new();
    for (family, gib_per_core, dollars_per_core) in [("c", 2, 0.042), ("m", 4, 0.048), ("r", 8, 0.063)] {
        for size in 1..5_u8 {
            let cores = 1_i64 << size;
            let memory = Quantity::from_bytes((cores * gib_per_core) << 30);
            let mut machine = InstanceType::named(
                format!("{family}-{cores}"),
                [("cpu", Quantity::from_milli(cores * 1000 - 100)), ("memory", memory), ("pods", Quantity::from_units(110))],
            );
            for zone in ZONES {
                let price = Price::per_hour(dollars_per_core * f64::from(1_u32 << size)).expect("a price");
                machine = machine.offering("on-demand", zone, price);
            }
            out.push(machine);
        }
    }
    out
}

/// Pods of which hardly any number fits a machine evenly.
fn workload() -> Snapshot {
    let mut builder = Snapshot::builder().pool(NodePool::named("general"));
    for (number, (cpu_millis, memory_mib)) in
        [(1300, 1700), (700, 5200), (2600, 9100), (450, 800), (3700, 6100), (900, 900)].into_iter().enumerate()
    {
        for (index, zone) in ZONES.into_iter().enumerate() {
            let pods = Pod::named(format!("app-{number}-{zone}"))
                .cpu(&format!("{cpu_millis}m"))
                .memory(&format!("{memory_mib}Mi"))
                .node_selector("topology.kubernetes.io/zone", zone)
                .replicas(40 + u32::try_from(index + number).expect("small"));
            builder = builder.pods(pods);
        }
    }
    builder.build().expect("the workload is written rightly")
}

#[test]
fn a_tight_plan_comes_near_the_bound() {
    let snapshot = workload();
    let catalogs = Catalogs::shared(machines(), snapshot.pools()).expect("the catalog is written rightly");
    let mut options = PlannerOptions::default();
    options.slack = 0.0;
    let planner = Planner::new(options);
    let problem = planner.prepare(&snapshot, &catalogs);
    let plan = problem.solve();
    assert!(plan.unplaced().is_empty());
    let bound = problem.certify(&plan).lower_bound.dollars_per_hour();
    let bill = plan.hourly_cost().dollars_per_hour();
    assert!(bound <= bill && bill <= MOST * bound, "{bill} beside {bound}: {}", bill / bound);
    assert_eq!(planner.plan(&snapshot, &catalogs), plan);
}

/// Making the best single node time after time ends above this share of the bound.
const MOST: f64 = 1.0;
