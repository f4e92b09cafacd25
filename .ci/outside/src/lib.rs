//! A provider as somebody else would write it: a broker that leases machines of two sizes from a small stock. A lease that
//! is given up takes a moment to end.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use karpenter::{
    Catalog, CatalogError, CloudProvider, InstanceType, Offering, Price, Quantity, Requirements,
    api::{NodeClaim, NodePool},
    async_trait, labels,
    provider::{CreateError, Deletion, Instance, Launched, ProviderError, ProviderId},
};
use tokio::{sync::Mutex, time::Instant};

/// How long a lease lasts after it was given up.
const NOTICE: Duration = Duration::from_millis(5);

/// Leases machines.
pub struct Broker {
    catalog: Arc<Catalog>,
    /// How many machines of one kind in one hall may be leased at once.
    stock: usize,
    leases: Mutex<Vec<Lease>>,
}

struct Lease {
    instance: Instance,
    ends: Option<Instant>,
}

impl Broker {
    /// A broker with so many machines of each kind in each hall.
    pub fn new(stock: usize) -> Result<Self, CatalogError> {
        let catalog = Arc::new(Catalog::new(vec![machine("lease-4", 4, 0.15), machine("lease-16", 16, 0.55)])?);
        Ok(Self { catalog, stock, leases: Mutex::default() })
    }

    /// The leases, without those that have ended.
    async fn leases(&self) -> tokio::sync::MutexGuard<'_, Vec<Lease>> {
        let mut leases = self.leases.lock().await;
        let now = Instant::now();
        leases.retain(|lease| lease.ends.is_none_or(|ends| now < ends));
        leases
    }

    /// What can be leased for a claim, cheapest first.
    fn choices(&self, claim: &NodeClaim) -> Vec<(&InstanceType, &Offering)> {
        let wanted: Requirements = claim.spec.requirements.iter().collect();
        let all = self.catalog.types().iter().flat_map(|t| t.offerings.iter().map(move |o| (t, o)));
        let mut choices: Vec<_> = all.filter(|(t, o)| wanted.refuses(&node_labels(t, o, claim)).is_none()).collect();
        choices.sort_by_key(|(_, offering)| offering.price);
        choices
    }

    fn launched(&self, instance: Instance) -> Launched {
        let leased = self.catalog.get(&instance.labels[labels::INSTANCE_TYPE]).expect("leases are of the catalog");
        let (capacity, allocatable) = (leased.capacity.clone(), leased.allocatable());
        let mut launched = Launched::new(instance, capacity, allocatable);
        launched.image_id = "broker/1".to_owned();
        launched
    }
}

/// A kind of machine of the arm64 architecture, in two halls.
fn machine(name: &str, cores: i64, dollars_per_hour: f64) -> InstanceType {
    let capacity = [("cpu", Quantity::from_units(cores)), ("memory", Quantity::from_bytes(cores << 32))];
    let machine = InstanceType::named(name, capacity).label(labels::ARCH, "arm64");
    let price = Price::per_hour(dollars_per_hour).expect("a price above zero");
    machine.offering("leased", "hall-1", price).offering("leased", "hall-2", price)
}

/// The labels of the node: those of the claim, of the type and of the offering.
fn node_labels(machine: &InstanceType, offering: &Offering, claim: &NodeClaim) -> BTreeMap<String, String> {
    let mut labels = claim.metadata.labels.clone();
    labels.extend(machine.node_labels(offering, &claim.spec.requirements.iter().collect()));
    labels
}

#[async_trait]
impl CloudProvider for Broker {
    fn name(&self) -> &str {
        "broker"
    }

    async fn catalog(&self, _pool: &NodePool) -> Result<Arc<Catalog>, ProviderError> {
        Ok(self.catalog.clone())
    }

    async fn create(&self, claim: &NodeClaim) -> Result<Launched, CreateError> {
        let mut leases = self.leases().await;
        if let Some(lease) = leases.iter().find(|lease| lease.instance.claim_uid == claim.metadata.uid) {
            return Ok(self.launched(lease.instance.clone()));
        }
        let mut offerings = Vec::new();
        for (machine, offering) in self.choices(claim) {
            let labels = node_labels(machine, offering, claim);
            let is_alike = |lease: &&Lease| {
                [labels::INSTANCE_TYPE, labels::ZONE].iter().all(|key| lease.instance.labels[*key] == labels[*key])
            };
            if leases.iter().filter(is_alike).count() < self.stock {
                // The uid of a claim is used once, so a name made from it is new for all time.
                let id = ProviderId::new(format!("broker://{}", claim.metadata.uid));
                let claim_uid = claim.metadata.uid.clone();
                let instance = Instance::new(id, claim_uid, labels);
                leases.push(Lease { instance: instance.clone(), ends: None });
                return Ok(self.launched(instance));
            }
            offerings.push(offering.key(&machine.name));
        }
        if offerings.is_empty() {
            let wanted: Requirements = claim.spec.requirements.iter().collect();
            return Err(CreateError::NothingCompatible { message: wanted.to_string() });
        }
        Err(CreateError::InsufficientCapacity { offerings })
    }

    async fn delete(&self, id: &ProviderId) -> Result<Deletion, ProviderError> {
        let mut leases = self.leases().await;
        let Some(lease) = leases.iter_mut().find(|lease| lease.instance.id == *id) else { return Ok(Deletion::Gone) };
        lease.instance.is_terminating = true;
        lease.ends.get_or_insert_with(|| Instant::now() + NOTICE);
        Ok(Deletion::Started)
    }

    async fn get(&self, id: &ProviderId) -> Result<Option<Instance>, ProviderError> {
        Ok(self.leases().await.iter().map(|lease| &lease.instance).find(|i| i.id == *id).cloned())
    }

    async fn list(&self) -> Result<Vec<Instance>, ProviderError> {
        Ok(self.leases().await.iter().map(|lease| lease.instance.clone()).collect())
    }
}
