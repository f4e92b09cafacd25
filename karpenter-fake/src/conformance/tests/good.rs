//! Providers that do what they must, in ways of their own.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard},
};

use async_trait::async_trait;
use karpenter_core::{
    Catalog, CloudProvider, InstanceType, Offering, Price, Quantity, Requirement, Requirements,
    api::{NodeClaim, NodePool, NodeSelectorRequirement, Operator, Taint, TaintEffect},
    labels,
    provider::{CreateError, Deletion, Instance, Launched, ProviderError, ProviderErrorKind, ProviderId},
};

use super::super::{Conformance, Report};

/// The label of machines with a card.
const CARD: &str = "shop.example/card";

/// Sells what meets a claim by all labels that the node will have, those of the claim included, and knows each uid for ever.
struct Shop {
    catalog: Arc<Catalog>,
    machines: Mutex<BTreeMap<ProviderId, Instance>>,
    used: Mutex<BTreeSet<String>>,
    sells_the_dearest: bool,
    stock: usize,
}

fn types(dollars: f64) -> Vec<InstanceType> {
    let machine = |size: i64| {
        let capacity = [("cpu", Quantity::from_units(size)), ("memory", Quantity::from_bytes(size << 32))];
        let mut machine = InstanceType::named(format!("size-{size}"), capacity);
        if size == 8 {
            machine.requirements.add(CARD, Requirement::one_of(["a100"]));
        }
        let price = || Price::per_hour(dollars * size as f64).expect("a price");
        machine.offering(labels::ON_DEMAND, "north", price()).offering(labels::ON_DEMAND, "south", price())
    };
    (1..=8).map(machine).collect()
}

impl Shop {
    fn new(dollars: f64) -> Self {
        let catalog = Arc::new(Catalog::new(types(dollars)).expect("a catalog"));
        let (machines, used) = (Mutex::default(), Mutex::default());
        Self { catalog, machines, used, sells_the_dearest: false, stock: usize::MAX }
    }

    fn machines(&self) -> MutexGuard<'_, BTreeMap<ProviderId, Instance>> {
        self.machines.lock().expect("no panic")
    }

    fn launched(&self, instance: Instance) -> Launched {
        let sold = self.catalog.get(&instance.labels[labels::INSTANCE_TYPE]).expect("it was sold");
        Launched::new(instance, sold.capacity.clone(), sold.allocatable())
    }

    /// What meets a claim, with the labels of the node, cheapest first.
    fn choices(&self, claim: &NodeClaim) -> Vec<(&InstanceType, &Offering, BTreeMap<String, String>)> {
        let wanted: Requirements = claim.spec.requirements.iter().collect();
        let all = self.catalog.types().iter().flat_map(|t| t.offerings.iter().map(move |o| (t, o)));
        let mut choices: Vec<_> = all.map(|(t, o)| (t, o, node_labels(t, o, claim))).collect();
        choices.retain(|(_, _, labels)| wanted.refuses(labels).is_none());
        choices.sort_by_key(|(_, offering, _)| offering.price);
        if self.sells_the_dearest {
            choices.reverse();
        }
        choices
    }
}

fn node_labels(sold: &InstanceType, offering: &Offering, claim: &NodeClaim) -> BTreeMap<String, String> {
    let mut labels = claim.metadata.labels.clone();
    labels.extend(sold.node_labels(offering, &Requirements::new()));
    labels
}

#[async_trait]
impl CloudProvider for Shop {
    fn name(&self) -> &'static str {
        "shop"
    }

    async fn catalog(&self, _pool: &NodePool) -> Result<Arc<Catalog>, ProviderError> {
        Ok(self.catalog.clone())
    }

    async fn create(&self, claim: &NodeClaim) -> Result<Launched, CreateError> {
        let uid = &claim.metadata.uid;
        let mut machines = self.machines();
        if let Some(known) = machines.values().find(|i| i.claim_uid == *uid) {
            return Ok(self.launched(known.clone()));
        }
        if self.used.lock().expect("no panic").contains(uid) {
            let message = format!("the token {uid} was used for a machine that is gone");
            return Err(ProviderError::new("shop", "create", ProviderErrorKind::Other, message).into());
        }
        let choices = self.choices(claim);
        let Some((_, _, labels)) = choices.first() else {
            return Err(CreateError::NothingCompatible { message: "nothing is like that".to_owned() });
        };
        if machines.len() == self.stock {
            let offerings = choices.iter().map(|(sold, offering, _)| offering.key(&sold.name)).collect();
            return Err(CreateError::InsufficientCapacity { offerings });
        }
        let instance = Instance::new(ProviderId::new(format!("shop://{uid}")), uid, labels.clone());
        machines.insert(instance.id.clone(), instance.clone());
        Ok(self.launched(instance))
    }

    async fn delete(&self, id: &ProviderId) -> Result<Deletion, ProviderError> {
        let Some(gone) = self.machines().remove(id) else { return Ok(Deletion::Gone) };
        self.used.lock().expect("no panic").insert(gone.claim_uid);
        Ok(Deletion::Started)
    }

    async fn get(&self, id: &ProviderId) -> Result<Option<Instance>, ProviderError> {
        Ok(self.machines().get(id).cloned())
    }

    async fn list(&self) -> Result<Vec<Instance>, ProviderError> {
        Ok(self.machines().values().cloned().collect())
    }
}

fn run(shop: &Arc<Shop>, pool: NodePool) -> Report {
    let kit = Conformance::new(shop.clone(), pool);
    tokio::runtime::Builder::new_current_thread().build().expect("a runtime").block_on(kit.run(tokio::task::yield_now))
}

fn pool() -> NodePool {
    NodePool::named("shop")
}

#[track_caller]
fn assert_passes(shop: Shop, pool: NodePool) {
    let shop = Arc::new(shop);
    let report = run(&shop, pool);
    assert!(report.is_passed(), "{report}");
    assert!(shop.machines().is_empty());
}

#[test]
fn machines_may_cost_nothing() {
    assert_passes(Shop::new(0.0), pool());
}

#[test]
fn which_of_the_allowed_offerings_is_bought_is_up_to_the_provider() {
    assert_passes(Shop { sells_the_dearest: true, ..Shop::new(0.1) }, pool());
}

#[test]
fn there_may_be_a_single_machine() {
    assert_passes(Shop { stock: 1, ..Shop::new(0.1) }, pool());
}

#[test]
fn claims_have_the_labels_and_requirements_that_the_engine_gives_them() {
    let with = |key: &str, operator, values: &[&str]| {
        pool().require(NodeSelectorRequirement::new(key, operator, values.iter().copied()))
    };
    assert_passes(Shop::new(0.1), with("team", Operator::In, &["a"]));
    assert_passes(Shop::new(0.1), with("team", Operator::In, &["a", "b"]));
    assert_passes(Shop::new(0.1), with(labels::ZONE, Operator::In, &["south"]));
    // Only the dearest type has the label, and seven do not.
    assert_passes(Shop::new(0.1), with(CARD, Operator::Exists, &[]));
    assert_passes(Shop::new(0.1), with(CARD, Operator::DoesNotExist, &[]));
}

#[test]
fn what_a_pool_is_at_does_not_keep_the_kit_from_buying() {
    let mut full = pool();
    full.spec.template.spec.taints = vec![Taint::new("only", "this", TaintEffect::NoSchedule)];
    full.spec.limits = [("cpu", Quantity::ZERO)].into_iter().collect();
    assert_passes(Shop::new(0.1), full);
}

#[test]
fn each_run_has_claims_of_its_own() {
    let shop = Arc::new(Shop::new(0.1));
    for _ in 0..3 {
        let report = run(&shop, pool());
        assert!(report.is_passed(), "{report}");
    }
    assert_eq!(shop.used.lock().expect("no panic").len(), 6);
}
