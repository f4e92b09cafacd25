//! The [`CloudProvider`] that buys instances of EC2.

mod buy;
mod cache;
mod class;
mod class_measures;
mod drift;
mod error;
mod filters;
mod fleets;
mod hash;
mod hold;
mod images;
mod joined;
mod launch;
mod machines;
mod market;
mod measure;
mod network;
mod options;
mod permissions;
mod profiles;
mod reservations;
mod shifts;
mod tags;
mod template_data;
mod templates;
mod turns;
mod unavailable;
mod upkeep;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
pub use class::Resolved;
pub use error::LaunchFailure;
use karpenter_core::{
    Catalog, CloudProvider, OfferingKey, Timestamp,
    api::{ConditionStatus, NodeClaim, NodeClassKind, NodePool},
    provider::{
        CreateError, Deletion, EventCursor, Instance, Launched, Measurement, Meter, ProviderError, ProviderErrorKind,
        ProviderEvent, ProviderEvents, ProviderId, RepairPolicy,
    },
};
pub(crate) use machines::{MachineKind, provider_id};
pub use options::{ClusterAccess, Preparation, ProviderOptions};
pub use shifts::ShiftNews;
pub use unavailable::{Scope, UNAVAILABLE_FOR, Unavailable};

use self::turns::Turns;
use crate::{
    api::{ApiError, AwsApi},
    batch::{Batcher, Window},
    clock::Clock,
    ec2::instance::{Ec2Instance, InstanceState},
    instance_type::DiscoveredMemory,
    nodeclass::{Ec2NodeClass, GROUP, KIND},
    price::Prices,
    version::{KubernetesVersion, VersionError},
};

/// How long requests for fleets wait for others that are alike.
const FLEET_WINDOW: Window =
    Window { idle: Duration::from_millis(35), longest: Duration::from_secs(1), items: launch::MAX_CLAIMS };
/// How long questions about machines, and their deletions, wait for others.
const MACHINE_WINDOW: Window = Window { idle: Duration::from_millis(100), longest: Duration::from_secs(1), items: 500 };
/// The most events that nobody has read yet; older ones are dropped, because machines tell the same by being gone.
const MAX_EVENTS: usize = 10_000;

/// Buys instances of EC2 for claims whose class is an `EC2NodeClass`. Cheap to clone.
///
/// It is told of node classes by [`Ec2Provider::apply_class`], finds out by itself what their selectors select, and asks
/// AWS again when that is old. What it was told by AWS it remembers for as long as its options say.
#[derive(Clone)]
pub struct Ec2Provider(Arc<Inner>);

impl fmt::Debug for Ec2Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ec2Provider").field("options", &self.0.options).finish_non_exhaustive()
    }
}

struct Inner {
    api: Arc<dyn AwsApi>,
    clock: Arc<dyn Clock>,
    options: ProviderOptions,
    state: Arc<Mutex<State>>,
    fleets: Batcher<String, launch::Order, fleets::Bought>,
    looks: Batcher<(), String, Result<Option<Ec2Instance>, ApiError>>,
    deletions: Batcher<(), String, Result<InstanceState, ApiError>>,
    asking: Asking,
}

/// What is not asked twice at a time.
#[derive(Default)]
struct Asking {
    /// What the selectors of node classes find.
    classes: Turns<String, Result<Arc<Resolved>, class::ClassError>>,
    types: Turns<(), Result<Arc<market::Types>, ApiError>>,
    prices: Turns<(), Result<(), ProviderError>>,
    machines: Turns<(), Result<(), ProviderError>>,
    /// Whether launch templates are there.
    templates: Turns<String, Result<(), ApiError>>,
}

#[derive(Default)]
struct State {
    /// The node classes that there are.
    classes: BTreeMap<String, Arc<Ec2NodeClass>>,
    /// Whether those are all.
    knows_all_classes: bool,
    /// What their selectors found, by their names.
    resolved: BTreeMap<String, Arc<Resolved>>,
    /// When AWS was asked last what a class finds and did not say, by the name of the class.
    asked_in_vain: BTreeMap<String, Timestamp>,
    market: market::Market,
    prices: Prices,
    unavailable: Unavailable,
    shifts: shifts::Shifts,
    free: network::FreeAddresses,
    remaining: reservations::Remaining,
    templates: templates::Templates,
    checked: permissions::Checked,
    /// What nodes of instance types really had.
    memory: DiscoveredMemory,
    meter: Meter,
    owners: machines::Owners,
    /// Machines of whose block the engine knows that it ends; all are there.
    told_of_end: BTreeSet<String>,
    /// The version of Kubernetes, if it is another than at the start.
    kubernetes_version: Option<KubernetesVersion>,
    /// What happened to machines that nobody has read yet, and how many events there were before.
    events: (u64, Vec<ProviderEvent>),
}

impl Ec2Provider {
    /// Buys in the account that `api` speaks to, at the times that `clock` says.
    pub fn new(api: Arc<dyn AwsApi>, clock: Arc<dyn Clock>, options: ProviderOptions) -> Self {
        let state = State { prices: options.prices.clone(), ..State::default() };
        let state = Arc::new(Mutex::new(state));
        let context = fleets::Context { api: api.clone(), clock: clock.clone(), state: state.clone() };
        let fleets = {
            let context = context.clone();
            Batcher::new(clock.clone(), FLEET_WINDOW, move |_, batch| {
                let context = context.clone();
                context.lock().note_batch("create_fleet", &batch);
                Box::pin(async move { context.buy_together(batch.items).await })
            })
        };
        let looks = {
            let context = context.clone();
            Batcher::new(clock.clone(), MACHINE_WINDOW, move |(), batch| {
                context.lock().note_batch("describe_instances", &batch);
                Box::pin(hold::look(context.api.clone(), batch.items))
            })
        };
        let deletions = Batcher::new(clock.clone(), MACHINE_WINDOW, move |(), batch| {
            context.lock().note_batch("terminate_instances", &batch);
            Box::pin(hold::terminate(context.api.clone(), batch.items))
        });
        Self(Arc::new(Inner { api, clock, options, state, fleets, looks, deletions, asking: Asking::default() }))
    }

    /// Takes in a node class, as it is now.
    pub fn apply_class(&self, class: Ec2NodeClass) {
        let class = Arc::new(class);
        let mut state = self.0.lock();
        let old = state.classes.insert(class.name().to_owned(), class.clone());
        if let Some(old) = old.filter(|old| old.metadata.uid == class.metadata.uid) {
            state.note_transitions(&old, &class);
        }
    }

    /// All node classes that there are at the start were told: what none of them has may go.
    pub fn know_all_classes(&self) {
        self.0.lock().knows_all_classes = true;
    }

    /// There is no such node class any more.
    pub fn remove_class(&self, name: &str) {
        let now = self.0.clock.now();
        let mut state = self.0.lock();
        if let Some(class) = state.classes.remove(name) {
            state.note_end(&class, now);
        }
        state.resolved.remove(name);
        state.asked_in_vain.remove(name);
        state.market.forget(name);
        state.checked.forget(name);
        state.forget_user_data(name);
    }

    /// A machine is that of a claim, whatever its tags say. Who takes over from another controller says so of every claim
    /// that has a machine before anything else: machines that nobody is known to own are not in the list.
    pub fn adopt(&self, id: &ProviderId, claim_uid: &str) {
        if let Some((zone, machine)) = machines::parts(id) {
            self.0.lock().owners.set(machine, claim_uid, zone);
        }
    }

    /// The control plane has this version of Kubernetes, such as `1.33` or `1.33+`: aliases of images mean those for it from
    /// the next time on that they are asked for.
    ///
    /// # Errors
    /// The text is no version, or one that the provider does not know: the version that was known stays.
    pub fn set_kubernetes_version(&self, version: &str) -> Result<(), VersionError> {
        let version: KubernetesVersion = version.parse()?;
        if !version.is_supported() {
            return Err(VersionError::Unsupported { version });
        }
        self.0.lock().kubernetes_version = Some(version);
        Ok(())
    }

    /// What had no capacity when it was last asked for.
    pub fn unavailable(&self) -> Unavailable {
        self.0.lock().unavailable.clone()
    }

    /// Why AWS did not say the prices on demand or on the spot market when it was asked last, if so: offerings without a price
    /// cannot be bought, and the spot market costs what there is on demand.
    pub fn price_fault(&self) -> Option<String> {
        self.0.lock().market.price_fault().map(str::to_owned)
    }

    /// An offering is not bought for three minutes, as after an interruption.
    pub fn avoid(&self, offering: OfferingKey) {
        let now = self.0.clock.now();
        self.0.lock().unavailable.mark(offering, Scope::default(), now);
    }

    /// A capacity reservation has nothing left.
    pub fn exhaust_reservation(&self, id: &str) {
        self.0.lock().remaining.exhaust(id);
    }

    /// Tells the engine of something with the next events. Returns how many events there are by then: it is read once
    /// [`Ec2Provider::events_read`] is as large.
    pub fn tell(&self, event: ProviderEvent) -> u64 {
        self.0.lock().tell(event)
    }

    /// How many events the engine has read.
    pub fn events_read(&self) -> u64 {
        self.0.lock().events.0
    }

    /// The zone of a machine of this cluster; `None` if it is none.
    pub(crate) fn zone_of(&self, instance: &str) -> Option<String> {
        self.0.lock().owners.zone_of(instance).map(str::to_owned)
    }

    /// Sees to it that the machines are known that were there before this process.
    pub(crate) async fn learn_machines(&self) -> Result<(), ProviderError> {
        self.0.learn_machines().await
    }

    /// What a machine of this cluster is; `None` if that is not known.
    pub(crate) fn kind_of(&self, instance: &str) -> Option<MachineKind> {
        self.0.lock().owners.kind_of(instance).cloned()
    }
}

impl State {
    fn tell(&mut self, event: ProviderEvent) -> u64 {
        let (first, events) = &mut self.events;
        events.push(event);
        if events.len() > MAX_EVENTS {
            events.remove(0);
            *first += 1;
        }
        *first + events.len() as u64
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The kind of the classes of this provider.
fn own_kind() -> NodeClassKind {
    NodeClassKind::new(GROUP, KIND)
}

#[async_trait]
impl CloudProvider for Ec2Provider {
    fn name(&self) -> &str {
        error::NAME
    }

    async fn catalog(&self, pool: &NodePool) -> Result<Arc<Catalog>, ProviderError> {
        let class = &pool.spec.template.spec.node_class_ref;
        if !own_kind().is_of(class) {
            let message = format!("its node class is a {} of {}", class.kind, class.group);
            return Err(ProviderError::new(error::NAME, "catalog", ProviderErrorKind::NodeClassNotReady, message));
        }
        self.0.catalog_of(&class.name).await
    }

    fn node_class_kinds(&self) -> Vec<NodeClassKind> {
        vec![own_kind()]
    }

    async fn create(&self, claim: &NodeClaim) -> Result<Launched, CreateError> {
        self.0.create(claim).await
    }

    async fn delete(&self, id: &ProviderId) -> Result<Deletion, ProviderError> {
        self.0.delete(id).await
    }

    async fn get(&self, id: &ProviderId) -> Result<Option<Instance>, ProviderError> {
        self.0.get(id).await
    }

    async fn list(&self) -> Result<Vec<Instance>, ProviderError> {
        self.0.list().await
    }

    async fn drift(&self, claim: &NodeClaim) -> Result<Option<String>, ProviderError> {
        self.0.drift(claim).await
    }

    fn repair_policies(&self) -> Vec<RepairPolicy> {
        let (ten, thirty) = (Duration::from_mins(10), Duration::from_mins(30));
        let policies = [
            ("Ready", ConditionStatus::False, thirty),
            ("Ready", ConditionStatus::Unknown, thirty),
            ("AcceleratedHardwareReady", ConditionStatus::False, ten),
            ("StorageReady", ConditionStatus::False, thirty),
            ("NetworkingReady", ConditionStatus::False, thirty),
            ("KernelReady", ConditionStatus::False, thirty),
            ("ContainerRuntimeReady", ConditionStatus::False, thirty),
        ];
        policies.into_iter().map(|(kind, status, after)| RepairPolicy::new(kind, status, after)).collect()
    }

    async fn next_events(&self, cursor: EventCursor) -> Result<ProviderEvents, ProviderError> {
        let mut state = self.0.lock();
        let (first, events) = &mut state.events;
        // What was read is told no more; a cursor of an earlier process is older than all there is.
        let read = usize::try_from(cursor.0.saturating_sub(*first)).unwrap_or(usize::MAX).min(events.len());
        events.drain(..read);
        *first += read as u64;
        let next = EventCursor(*first + events.len() as u64);
        Ok(ProviderEvents::new(events.clone(), next))
    }

    fn measurements(&self) -> Vec<Measurement> {
        self.0.measurements()
    }
}
