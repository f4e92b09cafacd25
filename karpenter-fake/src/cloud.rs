//! A cloud in memory.

mod faults;
mod machine;
mod market;
mod meter;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use karpenter_core::{
    Catalog, CloudProvider, OfferingKey, Price, Timestamp,
    api::{Node, NodeClaim, NodePool},
    labels,
    provider::{
        CreateError, Deletion, EventCursor, Instance, Launched, ProviderError, ProviderErrorKind, ProviderEvents,
        ProviderId,
    },
};

use faults::Faults;
use machine::Machine;
pub use meter::Bill;
use meter::Meter;

const NAME: &str = "fake";

/// A [`CloudProvider`] that sells the machines of a catalog, in memory and at the time that the caller says it is.
///
/// It buys the cheapest offering that a claim allows, of a type with room for its requests, and that is not sold out. As in a real
/// cloud the catalog does not tell what is sold out: if all that a claim allows is, [`CreateError::InsufficientCapacity`] names it.
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
    launch_delay: Duration,
    termination_delay: Duration,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    now: Timestamp,
    /// With the prices of now.
    catalog: Arc<Catalog>,
    /// The machines that are not gone, by their ids.
    machines: BTreeMap<ProviderId, Machine>,
    /// How many machines there ever were.
    made: u64,
    /// How many of an offering there are, where that is limited. At most one entry for each offering there is.
    limits: BTreeMap<OfferingKey, usize>,
    outage: Option<ProviderErrorKind>,
    capacity_errors: u64,
    faults: Faults,
    meter: Meter,
    /// What was charged for machines of each offering so far. At most one entry for each offering there is.
    charged: BTreeMap<OfferingKey, Bill>,
    /// When machines will be gone, and those that are gone and were not asked about since.
    departures: BTreeSet<(Timestamp, ProviderId)>,
    departed: Vec<ProviderId>,
}

impl FakeCloud {
    /// A cloud that sells what is in the catalog, at once and without end.
    pub fn new(catalog: Arc<Catalog>) -> Self {
        let (launch_delay, termination_delay) = (Duration::ZERO, Duration::ZERO);
        Self { launch_delay, termination_delay, state: Mutex::new(State::new(catalog)) }
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
        let up = |m: &&Machine| m.ready_at <= state.now && !m.is_terminating;
        state.machines.values().filter(up).map(Machine::node).collect()
    }

    /// What it sells, at the prices of now. What is sold out is among it.
    pub fn offers(&self) -> Arc<Catalog> {
        self.lock().catalog.clone()
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

    /// What all machines came to so far.
    pub fn bill(&self) -> Bill {
        let state = self.lock();
        state.meter.read(state.now)
    }

    /// What the machines of each offering came to so far, reckoned machine by machine. All of it is [`FakeCloud::bill`],
    /// which counts in another way.
    pub fn invoice(&self) -> BTreeMap<OfferingKey, Bill> {
        let state = self.lock();
        let mut invoice = state.charged.clone();
        for machine in state.machines.values() {
            let bill = Bill::of(machine.price, state.now.since(machine.priced_since));
            *invoice.entry(machine.offering.clone()).or_default() += bill;
        }
        invoice
    }

    /// What is sold to this pool, at the prices of now.
    pub fn catalog_for(&self, pool: &NodePool) -> Arc<Catalog> {
        self.lock().catalog.of_pool(pool.name())
    }

    /// Everything that is sold, at the prices of now.
    pub fn catalog_now(&self) -> Arc<Catalog> {
        self.lock().catalog.clone()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something and tells what came of it, unless there is an outage or the answer is lost.
    fn answer<T>(&self, operation: &'static str, act: impl FnOnce(&mut State) -> T) -> Result<T, ProviderError> {
        let mut state = self.call(operation)?;
        let answer = act(&mut state);
        if state.faults.loses_answer() {
            let message = "the answer was lost (injected)";
            return Err(ProviderError::new(NAME, operation, ProviderErrorKind::Unavailable, message));
        }
        Ok(answer)
    }

    /// The state, unless there is an outage.
    fn call(&self, operation: &'static str) -> Result<MutexGuard<'_, State>, ProviderError> {
        let mut state = self.lock();
        let now = state.now;
        let Some(kind) = state.faults.refusal(now).or(state.outage) else { return Ok(state) };
        let message = format!("injected outage ({kind:?})");
        Err(ProviderError::new(NAME, operation, kind, message))
    }

    fn buy(&self, state: &mut State, claim: &NodeClaim) -> Result<Launched, CreateError> {
        let wanted = market::Wanted::of_claim(claim);
        let catalog = state.catalog.clone();
        let choices = wanted.choices(&catalog);
        if choices.is_empty() {
            return Err(CreateError::NothingCompatible { message: wanted.explain(&catalog) });
        }
        let mut refused = Vec::new();
        for choice in choices {
            let offering = choice.offering.key(&choice.instance_type.name);
            if state.is_sold_out(&offering, choice.offering.reservation_capacity) {
                refused.push(offering);
                continue;
            }
            state.made += 1;
            let allocatable = choice.instance_type.allocatable();
            let machine = Machine {
                id: ProviderId::new(format!("fake:///{}/i-{:08}", offering.zone, state.made)),
                node_name: format!("node-{:08}", state.made),
                claim_uid: claim.metadata.uid.clone(),
                labels: Arc::new(wanted.node_labels(&choice, claim)),
                taints: [claim.spec.taints.as_slice(), &claim.spec.startup_taints].concat(),
                price: choice.offering.price,
                priced_since: state.now,
                capacity: choice.instance_type.capacity.clone(),
                withheld_bytes: state.faults.withheld_bytes(&choice.instance_type.name),
                allocatable,
                offering,
                launched_at: state.now,
                ready_at: state.now + self.launch_delay,
                startup_taints: claim.spec.startup_taints.clone(),
                is_terminating: false,
                gone_at: None,
            };
            let launched = machine.launched();
            state.meter.start(state.now, machine.price);
            state.machines.insert(machine.id.clone(), machine);
            return Ok(launched);
        }
        state.capacity_errors += 1;
        Err(CreateError::InsufficientCapacity { offerings: refused })
    }
}

impl State {
    fn new(catalog: Arc<Catalog>) -> Self {
        Self {
            now: Timestamp::default(),
            catalog,
            machines: BTreeMap::new(),
            made: 0,
            limits: BTreeMap::new(),
            outage: None,
            capacity_errors: 0,
            faults: Faults::default(),
            meter: Meter::default(),
            charged: BTreeMap::new(),
            departures: BTreeSet::new(),
            departed: Vec::new(),
        }
    }

    /// Machines are billed until the moment in which they are gone, whenever that is noticed.
    fn forget_gone(&mut self) {
        while let Some((at, _)) = self.departures.first().filter(|(at, _)| *at <= self.now) {
            let at = *at;
            let Some((_, id)) = self.departures.pop_first() else { return };
            if self.machines.get(&id).is_some_and(|m| m.gone_at == Some(at))
                && let Some(machine) = self.machines.remove(&id)
            {
                self.meter.stop(at, machine.price);
                self.charge(&machine, at);
                self.faults.tell_gone(&machine);
                self.departed.push(id);
            }
        }
    }

    /// Writes down what a machine came to since it costs what it does.
    fn charge(&mut self, machine: &Machine, until: Timestamp) {
        let bill = Bill::of(machine.price, until.since(machine.priced_since));
        *self.charged.entry(machine.offering.clone()).or_default() += bill;
    }

    /// Plans that a machine is gone at that time, unless it is gone sooner.
    fn depart(&mut self, id: &ProviderId, at: Timestamp) -> bool {
        let Some(machine) = self.machines.get_mut(id) else { return false };
        if machine.gone_at.is_none_or(|earlier| at < earlier) {
            machine.gone_at = Some(at);
            self.departures.insert((at, id.clone()));
        }
        true
    }

    fn is_sold_out(&self, offering: &OfferingKey, reserved: Option<u32>) -> bool {
        let reserved = reserved.and_then(|count| usize::try_from(count).ok());
        if self.faults.is_sold_out(offering, self.now) {
            return true;
        }
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
        self.answer("catalog", |state| state.catalog.of_pool(pool.name()))
    }

    async fn create(&self, claim: &NodeClaim) -> Result<Launched, CreateError> {
        self.answer("create", |state| {
            if let Some(machine) = state.machines.values().find(|m| m.claim_uid == claim.metadata.uid) {
                return Ok(machine.launched());
            }
            self.buy(state, claim)
        })?
    }

    async fn delete(&self, id: &ProviderId) -> Result<Deletion, ProviderError> {
        self.answer("delete", |state| {
            let gone_at = state.now + self.termination_delay;
            let Some(machine) = state.machines.get_mut(id) else { return Deletion::Gone };
            machine.is_terminating = true;
            state.depart(id, gone_at);
            state.forget_gone();
            Deletion::Started
        })
    }

    async fn get(&self, id: &ProviderId) -> Result<Option<Instance>, ProviderError> {
        self.answer("get", |state| state.machines.get(id).map(Machine::instance))
    }

    async fn list(&self) -> Result<Vec<Instance>, ProviderError> {
        self.answer("list", |state| state.machines.values().map(Machine::instance).collect())
    }

    async fn next_events(&self, cursor: EventCursor) -> Result<ProviderEvents, ProviderError> {
        self.answer("next_events", |state| state.faults.events_since(cursor))
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
