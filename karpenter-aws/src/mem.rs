//! AWS in memory: it sells machines, loses answers and runs out of capacity as it is told.

mod calls;
mod clock;
mod fleet;
mod world;

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

pub use clock::ManualClock;
use karpenter_core::Timestamp;
pub use world::DISCOVERY;

use self::clock::others_first;
use crate::{
    api::ApiError,
    clock::Clock as _,
    ec2::{
        Image, InstanceTypeInfo,
        fleet::{FleetReply, FleetRequest},
        instance::{Ec2Instance, InstanceHealth},
        network::{PlacementGroup, SecurityGroup, Subnet},
        price::SpotPriceRecord,
        profile::{ClusterInfo, InstanceProfile},
        queue::QueueMessage,
        reservation::CapacityReservation,
        shift::ZonalShift,
        template::{LaunchTemplate, LaunchTemplateData},
    },
};

/// AWS in memory. Cheap to clone: clones are the same account.
#[derive(Clone, Debug)]
pub struct MemoryAws {
    clock: ManualClock,
    state: Arc<Mutex<State>>,
}

/// All that is in the account. Tests change it as they like.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct State {
    /// The subnets.
    pub subnets: Vec<Subnet>,
    /// The security groups.
    pub security_groups: Vec<SecurityGroup>,
    /// The images, each with its owner.
    pub images: Vec<(String, Image)>,
    /// The instance types.
    pub instance_types: Vec<InstanceTypeInfo>,
    /// Pairs of an instance type and a zone where there is not each type in each zone of a subnet.
    pub zone_offerings: Option<Vec<(String, String)>>,
    /// The capacity reservations.
    pub reservations: Vec<CapacityReservation>,
    /// The placement groups.
    pub placement_groups: Vec<PlacementGroup>,
    /// What spot machines cost.
    pub spot_prices: Vec<SpotPriceRecord>,
    /// What on-demand machines cost, by instance type.
    pub on_demand_prices: BTreeMap<String, f64>,
    /// The parameters of SSM.
    pub parameters: BTreeMap<String, String>,
    /// The cluster.
    pub cluster: ClusterInfo,
    /// The names of the roles of IAM.
    pub roles: Vec<String>,
    /// The instance profiles.
    pub profiles: Vec<InstanceProfile>,
    /// The messages of all queues, by URL.
    pub queues: BTreeMap<String, VecDeque<QueueMessage>>,
    /// The zonal shifts of the cluster.
    pub shifts: Vec<ZonalShift>,
    /// How machines fare that are not well.
    pub health: Vec<InstanceHealth>,
    /// The machines that ever were, by id.
    pub instances: BTreeMap<String, Ec2Instance>,
    /// The launch templates by name.
    pub templates: BTreeMap<String, (LaunchTemplate, LaunchTemplateData)>,
    /// What is out of capacity.
    pub exhausted: Vec<Exhausted>,
    /// What happens to the next calls.
    pub faults: Vec<Fault>,
    /// The names of all calls so far.
    pub calls: Vec<&'static str>,
    /// The fleets that were asked for, in their order.
    pub fleets: Vec<FleetRequest>,
    replies: BTreeMap<String, (FleetRequest, FleetReply)>,
    made: u64,
}

/// Capacity that there is none of; `*` is any.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exhausted {
    /// The instance type.
    pub instance_type: String,
    /// The zone.
    pub zone: String,
    /// `spot` or `on-demand`.
    pub target: String,
    /// What is said about it.
    pub code: String,
}

impl Exhausted {
    /// There is none of this in this zone.
    pub fn new(instance_type: &str, zone: &str, target: &str) -> Self {
        let text = str::to_owned;
        let code = text("InsufficientInstanceCapacity");
        Self { instance_type: text(instance_type), zone: text(zone), target: text(target), code }
    }
}

/// What happens to calls of one kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The call, such as `CreateFleet`.
    pub operation: &'static str,
    /// How often it happens.
    pub times: usize,
    /// What is answered instead.
    pub error: ApiError,
    /// Whether the call is carried out all the same, and only its answer is lost.
    pub is_done: bool,
}

impl MemoryAws {
    /// An account with nothing in it.
    pub fn new(clock: ManualClock) -> Self {
        Self { clock, state: Arc::default() }
    }

    /// Changes the account, or looks at it.
    pub fn with<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        act(&mut self.lock())
    }

    /// Refuses the next call of this kind with a code.
    pub fn refuse(&self, operation: &'static str, code: &str, message: &str) {
        let error = ApiError::refused(operation, code, message);
        self.lock().faults.push(Fault { operation, times: 1, error, is_done: false });
    }

    /// Carries out the next call of this kind and loses the answer.
    pub fn lose_answer(&self, operation: &'static str) {
        let error = ApiError::no_answer(operation, "timed out");
        self.lock().faults.push(Fault { operation, times: 1, error, is_done: true });
    }

    /// How often a call was made.
    pub fn count(&self, operation: &str) -> usize {
        self.lock().calls.iter().filter(|name| **name == operation).count()
    }

    /// The clock.
    pub fn clock(&self) -> &ManualClock {
        &self.clock
    }

    /// Puts a message into a queue.
    pub fn send(&self, queue_url: &str, body: impl Into<String>) {
        let mut state = self.lock();
        let id = state.next_id("msg");
        let message = QueueMessage { receipt: format!("{id}-receipt"), id, body: Some(body.into()) };
        state.queues.entry(queue_url.to_owned()).or_default().push_back(message);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Makes a call: notes it, and does what its fault says if it has one.
    async fn call<T>(
        &self,
        operation: &'static str,
        act: impl FnOnce(&mut State) -> Result<T, ApiError>,
    ) -> Result<T, ApiError> {
        others_first().await;
        let mut state = self.lock();
        state.calls.push(operation);
        let at = state.faults.iter().position(|fault| fault.operation == operation && fault.times > 0);
        let fault = at.map(|at| {
            state.faults[at].times -= 1;
            state.faults[at].clone()
        });
        state.faults.retain(|fault| fault.times > 0);
        match fault {
            Some(fault) if fault.is_done => act(&mut state).and(Err(fault.error)),
            Some(fault) => Err(fault.error),
            None => act(&mut state),
        }
    }
}

impl State {
    /// A new id.
    fn next_id(&mut self, prefix: &str) -> String {
        self.made += 1;
        format!("{prefix}-{:017x}", self.made)
    }
}
