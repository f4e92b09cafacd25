//! A cloud in memory.

mod machine;
mod market;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use karpenter_core::{
    Catalog, CloudProvider, OfferingKey, Price, Timestamp,
    api::{Node, NodeClaim, NodePool},
    labels,
    provider::{CreateError, Deletion, Instance, Launched, ProviderError, ProviderErrorKind, ProviderId},
};

use machine::Machine;

const NAME: &str = "fake";

/// A [`CloudProvider`] that sells the machines of a catalog, in memory and at the time that the caller says it is.
///
/// It buys the cheapest offering that a claim allows and that is not sold out. As in a real cloud the catalog does not
/// tell what is sold out: if all that a claim allows is, [`CreateError::InsufficientCapacity`] names it.
///
/// ```
/// use std::time::Duration;
/// use karpenter_core::{CloudProvider, Timestamp, api::{NodeClaim, NodeSelectorRequirement, Operator}, labels};
/// use karpenter_fake::{FakeCloud, generated_catalog};
///
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let cloud = FakeCloud::new(generated_catalog()).launch_delay(Duration::from_secs(30));
/// let mut claim = NodeClaim::named("one");
/// claim.metadata.uid = "1".into();
/// claim.spec.requirements.push(NodeSelectorRequirement::new(labels::ARCH, Operator::In, ["arm64"]));
///
/// let machine = cloud.create(&claim).await?;
/// assert_eq!(machine.instance.labels[labels::INSTANCE_TYPE], "c-1x-arm64-linux");
/// assert!(cloud.ready_nodes().is_empty());
/// cloud.set_now(Timestamp::from_millis(30_000));
/// assert_eq!(cloud.ready_nodes().len(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct FakeCloud {
    catalog: Arc<Catalog>,
    launch_delay: Duration,
    termination_delay: Duration,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    now: Timestamp,
    /// The machines that are not gone, by their ids.
    machines: BTreeMap<ProviderId, Machine>,
    /// How many machines there ever were.
    made: u64,
    /// How many of an offering there are, where that is limited. At most one entry for each offering there is.
    limits: BTreeMap<OfferingKey, usize>,
    outage: Option<ProviderErrorKind>,
    capacity_errors: u64,
}

impl FakeCloud {
    /// A cloud that sells what is in the catalog, at once and without end.
    pub fn new(catalog: Arc<Catalog>) -> Self {
        let (launch_delay, termination_delay) = (Duration::ZERO, Duration::ZERO);
        Self { catalog, launch_delay, termination_delay, state: Mutex::default() }
    }

    /// Machines become nodes this long after they are bought.
    pub fn launch_delay(self, launch_delay: Duration) -> Self {
        Self { launch_delay, ..self }
    }

    /// Machines are gone this long after their deletion.
    pub fn termination_delay(self, termination_delay: Duration) -> Self {
        Self { termination_delay, ..self }
    }

    /// Sets the time; it starts at the beginning of 1970 and never goes back.
    pub fn set_now(&self, now: Timestamp) {
        let mut state = self.lock();
        state.now = state.now.max(now);
        state.forget_gone();
    }

    /// The time that was set last.
    pub fn now(&self) -> Timestamp {
        self.lock().now
    }

    /// Sells no more of this offering, until [`FakeCloud::restore`].
    pub fn exhaust(&self, offering: OfferingKey) {
        self.limit(offering, 0);
    }

    /// Has at most `count` machines of this offering at a time.
    pub fn limit(&self, offering: OfferingKey, count: usize) {
        self.lock().limits.insert(offering, count);
    }

    /// Sells this offering without end again.
    pub fn restore(&self, offering: &OfferingKey) {
        self.lock().limits.remove(offering);
    }

    /// Fails every call like this from now on; `None` ends the outage.
    pub fn set_outage(&self, outage: Option<ProviderErrorKind>) {
        self.lock().outage = outage;
    }

    /// The nodes of all machines that are up, in the order of their names.
    ///
    /// They carry the labels, taints and startup taints of their claims and are ready, but nobody has marked them as
    /// registered or initialized yet.
    pub fn ready_nodes(&self) -> Vec<Node> {
        let state = self.lock();
        let up = |m: &&Machine| m.ready_at <= state.now && m.gone_at.is_none();
        state.machines.values().filter(up).map(Machine::node).collect()
    }

    /// What all machines cost that are not gone.
    pub fn hourly_cost(&self) -> Price {
        self.lock().machines.values().map(|m| m.price).sum()
    }

    /// How many machines there are that are not gone, by instance type.
    pub fn machine_counts(&self) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for machine in self.lock().machines.values() {
            *counts.entry(machine.offering.instance_type.clone()).or_default() += 1;
        }
        counts
    }

    /// How many claims were refused for lack of capacity so far.
    pub fn capacity_errors(&self) -> u64 {
        self.lock().capacity_errors
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state, unless there is an outage.
    fn call(&self, operation: &'static str) -> Result<MutexGuard<'_, State>, ProviderError> {
        let state = self.lock();
        let Some(kind) = state.outage else { return Ok(state) };
        let message = format!("injected outage ({kind:?})");
        Err(ProviderError::new(NAME, operation, kind, message))
    }

    fn buy(&self, state: &mut State, claim: &NodeClaim) -> Result<Launched, CreateError> {
        let wanted = market::Wanted::of_claim(claim);
        let choices = wanted.choices(&self.catalog);
        if choices.is_empty() {
            return Err(CreateError::NothingCompatible { message: wanted.explain(&self.catalog) });
        }
        let mut refused = Vec::new();
        for choice in choices {
            let offering = choice.offering.key(&choice.instance_type.name);
            if state.is_sold_out(&offering, choice.offering.reservation_capacity) {
                refused.push(offering);
                continue;
            }
            state.made += 1;
            let machine = Machine {
                id: ProviderId::new(format!("fake:///{}/i-{:08}", offering.zone, state.made)),
                node_name: format!("node-{:08}", state.made),
                claim_uid: claim.metadata.uid.clone(),
                labels: wanted.node_labels(&choice, claim),
                taints: [claim.spec.taints.as_slice(), &claim.spec.startup_taints].concat(),
                price: choice.offering.price,
                capacity: choice.instance_type.capacity.clone(),
                allocatable: choice.instance_type.allocatable(),
                offering,
                ready_at: state.now + self.launch_delay,
                gone_at: None,
            };
            let launched = machine.launched();
            state.machines.insert(machine.id.clone(), machine);
            return Ok(launched);
        }
        state.capacity_errors += 1;
        Err(CreateError::InsufficientCapacity { offerings: refused })
    }
}

impl State {
    fn forget_gone(&mut self) {
        let now = self.now;
        self.machines.retain(|_, m| m.gone_at.is_none_or(|at| now < at));
    }

    fn is_sold_out(&self, offering: &OfferingKey, reserved: Option<u32>) -> bool {
        let reserved = reserved.and_then(|count| usize::try_from(count).ok());
        let limit = self.limits.get(offering).copied().into_iter().chain(reserved).min();
        limit.is_some_and(|limit| self.machines.values().filter(|m| m.offering == *offering).count() >= limit)
    }
}

#[async_trait]
impl CloudProvider for FakeCloud {
    fn name(&self) -> &str {
        NAME
    }

    async fn catalog(&self, pool: &NodePool) -> Result<Arc<Catalog>, ProviderError> {
        drop(self.call("catalog")?);
        let is_for = |names: &Vec<String>| names.iter().any(|name| name == pool.name());
        let types = self.catalog.types();
        if types.iter().all(|t| t.node_pools.as_ref().is_none_or(is_for)) {
            return Ok(self.catalog.clone());
        }
        let types = types.iter().filter(|t| t.node_pools.as_ref().is_none_or(is_for)).cloned().collect();
        Ok(Arc::new(Catalog::new(types).expect("a part of a catalog is a catalog")))
    }

    async fn create(&self, claim: &NodeClaim) -> Result<Launched, CreateError> {
        let mut state = self.call("create")?;
        if let Some(machine) = state.machines.values().find(|m| m.claim_uid == claim.metadata.uid) {
            return Ok(machine.launched());
        }
        self.buy(&mut state, claim)
    }

    async fn delete(&self, id: &ProviderId) -> Result<Deletion, ProviderError> {
        let mut state = self.call("delete")?;
        let gone_at = state.now + self.termination_delay;
        let Some(machine) = state.machines.get_mut(id) else { return Ok(Deletion::Gone) };
        machine.gone_at.get_or_insert(gone_at);
        state.forget_gone();
        Ok(Deletion::Started)
    }

    async fn get(&self, id: &ProviderId) -> Result<Option<Instance>, ProviderError> {
        Ok(self.call("get")?.machines.get(id).map(Machine::instance))
    }

    async fn list(&self) -> Result<Vec<Instance>, ProviderError> {
        Ok(self.call("list")?.machines.values().map(Machine::instance).collect())
    }
}

/// The offerings of the catalog in the order of their names, of those that have this capacity type.
///
/// ```
/// use karpenter_core::labels;
/// use karpenter_fake::{FakeCloud, cloud::offerings_of, generated_catalog};
///
/// let catalog = generated_catalog();
/// let cloud = FakeCloud::new(catalog.clone());
/// offerings_of(&catalog, labels::SPOT).into_iter().for_each(|offering| cloud.exhaust(offering));
/// ```
pub fn offerings_of(catalog: &Catalog, capacity_type: &str) -> Vec<OfferingKey> {
    let mut keys = Vec::new();
    for instance_type in catalog.types() {
        let of_kind = instance_type.offerings.iter().filter(|o| o.label(labels::CAPACITY_TYPE) == capacity_type);
        keys.extend(of_kind.map(|o| o.key(&instance_type.name)));
    }
    keys.sort();
    keys
}

#[cfg(test)]
mod tests;
