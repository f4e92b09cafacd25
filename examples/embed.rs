//! A plan from code: what would it cost to run this shop, and why has one pod no place?
//!
//!     cargo run --example embed

use std::error::Error;

use karpenter::{
    Catalogs, InstanceType, Planner, Price, Quantity, Snapshot,
    api::{NodePool, NodeSelectorRequirement, Operator, Pod},
    labels,
};

fn main() -> Result<(), Box<dyn Error>> {
    // What the cluster has: one pool that takes any machine of either architecture, in two of the zones.
    let zones = NodeSelectorRequirement::new(labels::ZONE, Operator::In, ["zone-a", "zone-b"]);
    let pool = NodePool::named("general").require(zones).limit("cpu", Quantity::from_units(200));

    // What wants to run.
    let snapshot = Snapshot::builder()
        .pool(pool)
        .pods(Pod::named("web").cpu("500m").memory("1Gi").replicas(40))
        .pods(Pod::named("cache").cpu("250m").memory("6Gi").replicas(6))
        .pods(Pod::named("batch").cpu("3").memory("2Gi").node_selector(labels::CAPACITY_TYPE, labels::SPOT).replicas(5))
        .pods(Pod::named("trainer").cpu("4").memory("16Gi").request("nvidia.com/gpu", "1"))
        .build()?;

    // What can be bought.
    let catalogs = Catalogs::shared(machines()?, snapshot.pools())?;

    let plan = Planner::default().plan(&snapshot, &catalogs);
    for claim in plan.claims() {
        println!("{claim}");
    }
    println!("together {}", plan.hourly_cost());
    for pod in ["web-3", "batch-0", "trainer"] {
        println!("{pod} is {}", plan.why(pod));
    }
    Ok(())
}

/// Three sizes of machine, on demand and on the spot market of three zones.
fn machines() -> Result<Vec<InstanceType>, Box<dyn Error>> {
    let mut types = Vec::new();
    for (name, cpu, memory_gib, dollars) in [("small", 2, 8, 0.10), ("medium", 8, 32, 0.38), ("large", 32, 128, 1.49)] {
        let capacity = [("cpu", Quantity::from_units(cpu)), ("memory", Quantity::from_bytes(memory_gib << 30))];
        let mut machine = InstanceType::named(name, capacity);
        for zone in ["zone-a", "zone-b", "zone-c"] {
            for (capacity_type, factor) in [(labels::ON_DEMAND, 1.0), (labels::SPOT, 0.4)] {
                let price = Price::per_hour(dollars * factor).ok_or("a price is not below zero")?;
                machine = machine.offering(capacity_type, zone, price);
            }
        }
        types.push(machine);
    }
    Ok(types)
}
