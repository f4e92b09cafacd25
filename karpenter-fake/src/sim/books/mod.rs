//! What a cluster came to, over time.

mod floor;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use karpenter_core::{
    Timestamp,
    api::{Node, ObjectKey, Pod},
    cluster::pod_requests,
    engine::{Action, ActionId, ActionResult, Event, Note, Object, ObjectRef, Request},
    labels,
    provider::CreateError,
};

use super::{Account, Exchange, Live, World};
use floor::Floor;

/// Keeps count of a [`Live`] cluster: what was done, how things stood over time, and the least that nodes for the pods could
/// have cost.
///
/// ```
/// use std::time::Duration;
/// use karpenter_core::{Timestamp, api::{NodePool, Pod}, engine::EngineOptions};
/// use karpenter_fake::{generated_catalog, sim::{Books, Live, Workload}};
///
/// let mut live = Live::new(1, generated_catalog(), EngineOptions::default());
/// live.world_mut().api_mut().create(NodePool::named("general"))?;
/// live.world_mut().apply(Workload::deployment("web", 3, Pod::named("web").label("app", "web").cpu("100m"))?);
///
/// let mut books = Books::new(Duration::from_secs(60));
/// books.run_until(&mut live, Timestamp::from_millis(3_600_000), &mut |_, _| {});
/// assert_eq!((books.counts().launched, books.samples().len()), (1, 61));
/// let (bill, floor) = (live.world().bill().micro_dollars(), books.lower_bound_micro_dollars());
/// assert!(0 < floor && floor < bill);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Books {
    period: Duration,
    samples: Vec<Sample>,
    counts: Counts,
    floor: Floor,
    /// What was asked for and must be known once it is done.
    asked: BTreeSet<ActionId>,
    /// The nodes whose disruption was told.
    disrupted: BTreeSet<(String, String)>,
}

/// How things stood at some time.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Sample {
    /// The time.
    pub at: Timestamp,
    /// How many nodes there were.
    pub nodes: usize,
    /// How many pods ran, those of daemonsets left out.
    pub pods_running: usize,
    /// How many pods waited for a node.
    pub pods_waiting: usize,
    /// What all machines cost then.
    pub dollars_per_hour: f64,
    /// What all machines had come to.
    pub bill_micro_dollars: i64,
    /// The least that nodes for the pods that ran could have come to.
    pub lower_bound_micro_dollars: i64,
    /// The share of the nodes' CPU that pods had asked for, from 0 to 1.
    pub cpu_share: f64,
    /// The share of the nodes' memory that pods had asked for, from 0 to 1.
    pub memory_share: f64,
}

/// What was done so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// How many machines were bought.
    pub launched: u64,
    /// How many claims were refused for lack of capacity.
    pub refused: u64,
    /// How many pods were evicted.
    pub evicted: u64,
    /// How many nodes were disrupted, by reason.
    pub disrupted: BTreeMap<String, u64>,
}

impl Books {
    /// Empty books, with a sample each `period`.
    pub fn new(period: Duration) -> Self {
        Self {
            period: period.max(Duration::from_secs(1)),
            samples: Vec::new(),
            counts: Counts::default(),
            floor: Floor::default(),
            asked: BTreeSet::new(),
            disrupted: BTreeSet::new(),
        }
    }

    /// Lets time pass until then, and shows what [`Live::watch_until`] shows.
    pub fn run_until(&mut self, live: &mut Live, until: Timestamp, watch: &mut dyn FnMut(Timestamp, Exchange<'_>)) {
        self.settle(live.world());
        while live.now() < until {
            let now = live.now();
            let into_period = now.as_millis().rem_euclid(millis(self.period));
            let next = Timestamp::from_millis(now.as_millis() - into_period) + self.period;
            live.watch_until(next.min(until), &mut |at, exchange| {
                self.observe(exchange);
                watch(at, exchange);
            });
            self.settle(live.world());
        }
    }

    /// Takes in what passed between the engine and the world, for those who drive both themselves.
    pub fn observe(&mut self, exchange: Exchange<'_>) {
        match exchange {
            Exchange::Told(event) => {
                self.floor.observe(event);
                self.count(event);
            }
            Exchange::Asked(requests) => requests.iter().for_each(|request| self.count_request(request)),
            Exchange::Restarted => self.asked.clear(),
        }
    }

    /// Closes the time since the last call and takes a sample. The lower bound is the better the shorter that time is.
    pub fn settle(&mut self, world: &World) {
        self.floor.settle(world);
        if self.samples.last().is_some_and(|last| last.at == world.now()) {
            self.samples.pop();
        }
        let account = Account::of(world);
        let (cpu_share, memory_share) = shares(world);
        self.samples.push(Sample {
            at: account.at,
            nodes: account.nodes,
            pods_running: account.pods_running,
            pods_waiting: account.pods_waiting,
            dollars_per_hour: world.cloud().hourly_cost().dollars_per_hour(),
            bill_micro_dollars: account.bill.micro_dollars(),
            lower_bound_micro_dollars: self.lower_bound_micro_dollars(),
            cpu_share,
            memory_share,
        });
    }

    /// How things stood, from the first sample to the last.
    pub fn samples(&self) -> &[Sample] {
        &self.samples
    }

    /// What was done so far.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// The least that nodes for the pods could have come to, in millionths of a dollar.
    ///
    /// It is the proven bound of a plan for the pods that were bound throughout each period, times the time: at every
    /// moment there were nodes for them. It counts no time to start or to stop a machine and no pod that waited.
    pub fn lower_bound_micro_dollars(&self) -> i64 {
        self.floor.micro_dollars()
    }

    fn count(&mut self, event: &Event) {
        let Event::Done { id, result } = event else { return };
        match result {
            ActionResult::Launched(Ok(_)) => self.counts.launched += 1,
            ActionResult::Launched(Err(CreateError::InsufficientCapacity { .. })) => self.counts.refused += 1,
            result if self.asked.remove(id) => {
                self.counts.evicted += u64::from(matches!(result, ActionResult::Written));
            }
            _ => {}
        }
    }

    fn count_request(&mut self, request: &Request) {
        match &request.action {
            Action::Evict { .. } => {
                self.asked.insert(request.id);
            }
            Action::Note(note) => {
                let ObjectRef::NodeClaim(claim) = &note.object else { return };
                let Some((_, reason)) = disruption(note) else { return };
                if self.disrupted.insert((claim.clone(), reason.to_owned())) {
                    *self.counts.disrupted.entry(reason.to_owned()).or_default() += 1;
                }
            }
            _ => {}
        }
    }
}

/// Which node is disrupted and why, if a note says that one is.
pub(super) fn disruption(note: &Note) -> Option<(&str, &str)> {
    let message = note.message.strip_prefix("Disrupting node ").filter(|_| note.reason == "DisruptionLaunching")?;
    message.split_once(": ")
}

/// What pods ask for of CPU and memory, as shares of what nodes have.
fn shares(world: &World) -> (f64, f64) {
    let amount =
        |list: &karpenter_core::ResourceList, name| list.get(name).map_or(0.0, karpenter_core::Quantity::as_f64);
    let (mut has, mut asked) = ([0.0; 2], [0.0; 2]);
    for node in world.api().list::<Node>() {
        has[0] += amount(&node.status.allocatable, "cpu");
        has[1] += amount(&node.status.allocatable, "memory");
    }
    let is_placed = |pod: &&std::sync::Arc<Pod>| !pod.spec.node_name.is_empty() && !pod.is_finished();
    for pod in world.api().list::<Pod>().filter(is_placed) {
        let requests = pod_requests(pod);
        asked[0] += amount(&requests, "cpu");
        asked[1] += amount(&requests, "memory");
    }
    let share = |i: usize| if has[i] > 0.0 { asked[i] / has[i] } else { 0.0 };
    (share(0), share(1))
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX).max(1)
}

/// The key of a pod and whether it has a node that it keeps, from an event about it.
fn placement(event: &Event) -> Option<(ObjectKey, Option<&std::sync::Arc<Pod>>)> {
    match event {
        Event::Applied(Object::Pod(pod)) => Some((pod.key(), is_placed(pod).then_some(pod))),
        Event::Deleted(ObjectRef::Pod(key)) => Some((key.clone(), None)),
        _ => None,
    }
}

/// Whether a pod has a node that it keeps, and did not come with it.
fn is_placed(pod: &Pod) -> bool {
    !pod.spec.node_name.is_empty() && pod.is_active() && !pod.is_daemon()
}

/// What a machine is, from its labels, in a few words.
pub(super) fn words_for(labels: &BTreeMap<String, String>) -> String {
    let label = |key: &str| labels.get(key).map_or("?", String::as_str);
    let (capacity, kind, zone) = (label(labels::CAPACITY_TYPE), label(labels::INSTANCE_TYPE), label(labels::ZONE));
    format!("{capacity} {kind} in {zone}")
}
