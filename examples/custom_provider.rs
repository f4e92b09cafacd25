//! A provider of one's own: machines that stand in racks. It passes the conformance kit, and the driver buys from it.
//!
//!     cargo run --example custom_provider

#![expect(clippy::print_stdout, reason = "an example talks to people")]

use std::{
    collections::BTreeMap,
    error::Error,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use karpenter::{
    Catalog, CloudProvider, InstanceType, Planner, Price, Quantity, Requirements, Snapshot,
    api::{NodeClaim, NodePool, Pod},
    async_trait,
    catalog::OfferingKey,
    driver::{Action, Driver, Outcome},
    fake::{Conformance, check},
    labels,
    provider::{CreateError, Deletion, Instance, Launched, ProviderError, ProviderId},
};

/// Some racks. What is in use is known by the machine's name, such as `rack-1/blade/0`. That is the name of a slot: the next machine
/// there has it too, once the last one is gone.
struct Racks {
    catalog: Arc<Catalog>,
    /// How many machines of each model a rack has.
    stock: BTreeMap<OfferingKey, usize>,
    in_use: Mutex<BTreeMap<ProviderId, Instance>>,
}

impl Racks {
    fn new() -> Result<Self, Box<dyn Error>> {
        let (mut types, mut stock) = (Vec::new(), BTreeMap::new());
        // What a machine costs is what it was bought for, spread over its life.
        for (model, cpu, memory_gib, dollars) in [("blade", 16, 64, 0.21), ("tower", 64, 512, 1.10)] {
            let capacity = [("cpu", Quantity::from_units(cpu)), ("memory", Quantity::from_bytes(memory_gib << 30))];
            let mut machine = InstanceType::named(model, capacity);
            for rack in ["rack-1", "rack-2"] {
                let price = Price::per_hour(dollars).ok_or("a price is not below zero")?;
                machine = machine.offering(labels::ON_DEMAND, rack, price);
            }
            stock.extend(machine.offerings.iter().map(|o| (o.key(model), 2)));
            types.push(machine);
        }
        Ok(Self { catalog: Arc::new(Catalog::new(types)?), stock, in_use: Mutex::default() })
    }

    fn in_use(&self) -> MutexGuard<'_, BTreeMap<ProviderId, Instance>> {
        self.in_use.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The machine as the engine wants to know it.
    fn launched(&self, instance: Instance) -> Launched {
        let model = self.catalog.get(&instance.labels[labels::INSTANCE_TYPE]).expect("every machine is of a model");
        let (capacity, allocatable) = (model.capacity.clone(), model.allocatable());
        Launched::new(instance, capacity, allocatable)
    }
}

/// The labels that the node of a machine will have.
fn labels_of(slot: &OfferingKey, claim: &NodeClaim) -> BTreeMap<String, String> {
    let mut labels = claim.metadata.labels.clone();
    for (key, value) in [
        (labels::INSTANCE_TYPE, slot.instance_type.as_str()),
        (labels::ZONE, &slot.zone),
        (labels::CAPACITY_TYPE, &slot.capacity_type),
        (labels::ARCH, "amd64"),
        (labels::OS, "linux"),
    ] {
        labels.insert(key.to_owned(), value.to_owned());
    }
    labels
}

#[async_trait]
impl CloudProvider for Racks {
    fn name(&self) -> &'static str {
        "racks"
    }

    async fn catalog(&self, _pool: &NodePool) -> Result<Arc<Catalog>, ProviderError> {
        Ok(self.catalog.clone())
    }

    async fn create(&self, claim: &NodeClaim) -> Result<Launched, CreateError> {
        let mut in_use = self.in_use();
        if let Some(known) = in_use.values().find(|i| i.claim_uid == claim.metadata.uid) {
            return Ok(self.launched(known.clone()));
        }
        let wanted: Requirements = claim.spec.requirements.iter().collect();
        let mut offerings = Vec::new();
        for (slot, &count) in self.stock.iter().filter(|(s, _)| wanted.refuses(&labels_of(s, claim)).is_none()) {
            let id = |i: usize| ProviderId::new(format!("{}/{}/{i}", slot.zone, slot.instance_type));
            if let Some(id) = (0..count).map(id).find(|id| !in_use.contains_key(id)) {
                let (claim_uid, labels) = (claim.metadata.uid.clone(), labels_of(slot, claim));
                let instance = Instance::new(id.clone(), claim_uid, labels);
                in_use.insert(id, instance.clone());
                return Ok(self.launched(instance));
            }
            offerings.push(slot.clone());
        }
        if offerings.is_empty() {
            return Err(CreateError::NothingCompatible { message: wanted.to_string() });
        }
        Err(CreateError::InsufficientCapacity { offerings })
    }

    async fn delete(&self, id: &ProviderId) -> Result<Deletion, ProviderError> {
        // It is switched off at once. If that took its time, the slot would have to stay in use until then, and only then be told
        // to be gone.
        self.in_use().remove(id);
        Ok(Deletion::Gone)
    }

    async fn get(&self, id: &ProviderId) -> Result<Option<Instance>, ProviderError> {
        Ok(self.in_use().get(id).cloned())
    }

    async fn list(&self) -> Result<Vec<Instance>, ProviderError> {
        Ok(self.in_use().values().cloned().collect())
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let racks = Arc::new(Racks::new()?);
    let pool = NodePool::named("metal");
    let report = Conformance::new(racks.clone(), pool.clone()).run(tokio::task::yield_now).await;
    println!("{report}");

    let web = Pod::named("web").cpu("2").memory("6Gi").replicas(30);
    let snapshot = Snapshot::builder().pool(pool).pods(web).build()?;
    let mut driver = Driver::new(racks.clone());
    let now = karpenter::Timestamp::default();
    let catalogs = driver.catalogs(snapshot.pools(), now).await.catalogs;
    let plan = Planner::default().plan(&snapshot, &catalogs);
    assert_eq!(check(&snapshot, &catalogs, &plan), [], "a plan is valid");

    let mut names = (1..).map(|i| (format!("metal-{i}"), format!("uid-{i}")));
    for launch in Driver::launches(&plan, &snapshot, |_| names.next().expect("there is no last number")) {
        let pods = launch.pods.len();
        let outcome = driver.execute(Action::Launch(Box::new(launch.claim))).await;
        driver.observe(&outcome, now);
        match outcome {
            Outcome::Launched(claim) => println!("{} is {} for {pods} pods", claim.name(), claim.status.provider_id),
            other => println!("{pods} pods must wait: {other:?}"),
        }
    }
    println!("{} of 8 machines in use", racks.list().await?.len());
    Ok(())
}
