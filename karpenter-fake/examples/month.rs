//! A month of a cluster of 490 to 600 nodes and 10,000 pods, second by second: 150,000 pods come and 150,000 go, one node in a
//! hundred is interrupted each day, the engine decides as it would anywhere, with consolidation, and every step is checked.
//!
//! These pods are what services and jobs ask for. Those that come again because their node went are counted too, and told
//! as evictions. Of the pods that run the two daemonsets have one on each node.
//!
//!     cargo run --release -p karpenter-fake --features sim --example month [DAYS]
//!
//! Each simulated hour the whole cluster is checked anew, on a second thread. Prints a line for each day: the same call prints
//! the same bytes. A broken rule ends it with an error that names the seed.

#![expect(clippy::print_stdout, reason = "an example talks to people")]

use std::{env, error::Error, f64::consts::TAU, mem, thread, time::Duration};

use indexmap::IndexSet;
use karpenter_core::{
    Timestamp,
    api::{
        Budget, DaemonSet, DisruptionReason, FieldError, IntOrPercent, LabelSelector, Node, NodePool,
        NodeSelectorRequirement, ObjectKey, ObjectMeta, Operator, Pod, PodDisruptionBudget,
    },
    engine::{EngineOptions, Event, Metric, Object},
    labels,
    provider::ProviderId,
};
use karpenter_fake::{
    catalog::INSTANCE_CPU,
    generated_catalog,
    sim::{Breach, Exchange, Live, Rng, Workload},
};
use rustc_hash::FxBuildHasher;
use serde_json::json;

const DAYS: u32 = 30;
const SEED: u64 = 1;
/// How often services are scaled and a job starts.
const PERIOD: Duration = Duration::from_mins(5);
const PERIODS_A_DAY: u32 = 288;
const PERIODS_AN_HOUR: u32 = 12;
const SERVICES: u32 = 150;
/// How many pods a service has on average.
const REPLICAS: f64 = 62.0;
/// By which share services are larger in the afternoon and smaller at night: 2,120 pods come and go each day.
const SWING: f64 = 0.114;
/// Every so many periods a job starts: 2,880 pods each day.
const PERIODS_A_JOB: u32 = 2;
const JOB_PODS: u32 = 20;
/// How many nodes in a million are interrupted in a period: one in a hundred each day.
const INTERRUPTED_PPM: u32 = 10_000 / PERIODS_A_DAY;
/// How long before it goes an interrupted machine says so.
const NOTICE: Duration = Duration::from_mins(2);
/// How often it is looked for nodes that should go.
const DISRUPTION_PERIOD: Duration = Duration::from_hours(2);
/// When the day begins and how long it is: then nodes go if they are empty, but no pod has to move to save money. Services are
/// smallest at its beginning, and what their nodes are too many of went in the night.
const DAY: (&str, &str) = ("0 4 * * *", "20h");
/// How much is tried for one command, as a share of the usual.
const EFFORT: f64 = 0.03;
/// How often it is asked whether each machine still is what its node class asks for, which changes when somebody makes a new
/// image. What the pool itself asks for is looked at when it changes.
const DRIFT_PERIOD: Duration = Duration::from_hours(6);
/// How often all machines are listed. One without a claim goes once two lists have shown it.
const LIST_PERIOD: Duration = Duration::from_mins(30);
/// How often it is asked what happened to machines, of which they say two minutes before they go.
const EVENTS_PERIOD: Duration = Duration::from_secs(30);

/// Thousands of objects are copied and changed each minute.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> Result<(), Box<dyn Error>> {
    let days = env::args().nth(1).map_or(Ok(DAYS), |days| days.parse())?;
    let mut month = Month::new()?;
    for period in 0..days * PERIODS_A_DAY {
        month.live_until(Timestamp::default() + PERIOD * period)?;
        if period % PERIODS_AN_HOUR == 0 {
            month.inspect()?;
        }
        if period % PERIODS_A_DAY == 0 {
            month.say();
        }
        month.change_load(period)?;
    }
    month.live_until(Timestamp::default() + PERIOD * (days * PERIODS_A_DAY))?;
    month.inspect()?;
    month.hear()?;
    month.say();
    Ok(())
}

struct Month {
    live: Live,
    rng: Rng,
    tally: Tally,
    /// The last look at the whole cluster, which may still go on.
    inspection: Option<thread::JoinHandle<Vec<Breach>>>,
}

/// What happened so far.
#[derive(Default)]
struct Tally {
    /// The uids of the pods that are there, those of daemonsets left out.
    pods: IndexSet<ObjectKey, FxBuildHasher>,
    arrivals: u64,
    departures: u64,
    interruptions: u64,
    inspections: u64,
}

impl Month {
    fn new() -> Result<Self, Box<dyn Error>> {
        let mut options = EngineOptions::default();
        options.disruption_period = Some(DISRUPTION_PERIOD);
        options.disruptor.effort = EFFORT;
        (options.drift_period, options.list_period) = (DRIFT_PERIOD, LIST_PERIOD);
        options.events_period = Some(EVENTS_PERIOD);
        let mut live = Live::new(SEED, generated_catalog(), options);
        let api = live.world_mut().api_mut();
        api.create(pool())?;
        api.create(daemonset("logs", "100m")?)?;
        api.create(daemonset("metrics", "50m")?)?;
        for number in 0..SERVICES {
            live.world_mut().api_mut().create(budget(number))?;
            live.world_mut().apply(service(number)?);
        }
        Ok(Self { live, rng: Rng::new(SEED + 1), tally: Tally::default(), inspection: None })
    }

    /// Scales the services, starts a job, and interrupts some nodes.
    fn change_load(&mut self, period: u32) -> Result<(), Box<dyn Error>> {
        let world = self.live.world_mut();
        for number in 0..SERVICES {
            world.scale(&ObjectKey::new("default", service_name(number)), replicas(number, period));
        }
        if period.is_multiple_of(PERIODS_A_JOB) {
            let name = format!("job-{}", period / PERIODS_A_JOB);
            let duration = Duration::from_mins(60 + self.rng.below(600));
            let cpu = ["500m", "1", "2"][self.rng.index(3)];
            let pod = Pod::named(&name).label("job", &name).cpu(cpu).memory("2Gi");
            world.apply(Workload::job(&name, JOB_PODS, duration, pod)?);
        }
        for node in world.api().list::<Node>().filter(|_| self.rng.chance(INTERRUPTED_PPM)) {
            self.tally.interruptions += 1;
            world.cloud().interrupt(&ProviderId::new(&node.spec.provider_id), NOTICE);
        }
        Ok(())
    }

    fn live_until(&mut self, until: Timestamp) -> Result<(), Box<dyn Error>> {
        let tally = &mut self.tally;
        self.live.watch_until(until, &mut |_, exchange| {
            if let Exchange::Told(event) = exchange {
                tally.observe(event);
            }
        });
        let breaches = self.live.take_breaches();
        self.judge(&breaches)
    }

    /// Begins to look at the whole cluster anew, once the last look is over.
    #[expect(clippy::disallowed_methods, reason = "a program may start threads")]
    fn inspect(&mut self) -> Result<(), Box<dyn Error>> {
        self.hear()?;
        let inspection = self.live.world_mut().inspection();
        self.inspection = Some(thread::spawn(|| inspection.breaches()));
        Ok(())
    }

    /// Waits for what the last look found.
    fn hear(&mut self) -> Result<(), Box<dyn Error>> {
        let Some(inspection) = mem::take(&mut self.inspection) else { return Ok(()) };
        self.tally.inspections += 1;
        let breaches = inspection.join().map_err(|_| format!("seed {SEED}: an inspection panicked"))?;
        self.judge(&breaches)
    }

    fn judge(&self, breaches: &[Breach]) -> Result<(), Box<dyn Error>> {
        let Some(first) = breaches.first() else { return Ok(()) };
        let count = breaches.len();
        Err(format!("seed {SEED}, before {}: {count} rules were broken, first: {first}", self.live.now()).into())
    }

    fn say(&self) {
        let Tally { arrivals, departures, interruptions, inspections, .. } = self.tally;
        let evictions =
            self.live.engine().counters().counts().filter(|(metric, labels, _)| {
                *metric == Metric::Evictions && labels.contains(&("code", "200".to_owned()))
            });
        let evictions: u64 = evictions.map(|(_, _, count)| count).sum();
        println!(
            "{}; {arrivals} pods came and {departures} went, {evictions} evictions, {interruptions} interruptions, \
             no rule broken in {inspections} inspections",
            self.live.account()
        );
    }
}

impl Tally {
    fn observe(&mut self, event: &Event) {
        match event {
            Event::Applied(Object::Pod(pod)) if !pod.is_daemon() => {
                self.arrivals += u64::from(self.pods.insert(pod.key()));
            }
            Event::Deleted(karpenter_core::engine::ObjectRef::Pod(key)) => {
                self.departures += u64::from(self.pods.swap_remove(key));
            }
            _ => {}
        }
    }
}

/// Machines of 8 to 24 CPUs, spot and on demand.
fn pool() -> NodePool {
    let mut pool = NodePool::named("general");
    let cpus = NodeSelectorRequirement::new(INSTANCE_CPU, Operator::In, ["8", "12", "16", "24"]);
    let amd64 = NodeSelectorRequirement::new(labels::ARCH, Operator::In, ["amd64"]);
    pool.spec.template.spec.requirements = vec![cpus, amd64];
    pool.spec.disruption.budgets.push(by_day());
    pool
}

/// No node goes by day whose pods would have to move.
fn by_day() -> Budget {
    let mut budget = Budget::default();
    "0".clone_into(&mut budget.nodes);
    budget.reasons = Some(vec![DisruptionReason::Underutilized]);
    (budget.schedule, budget.duration) = (Some(DAY.0.to_owned()), Some(DAY.1.to_owned()));
    budget
}

fn daemonset(name: &str, cpu: &str) -> Result<DaemonSet, serde_json::Error> {
    let container = json!({"name": "main", "resources": {"requests": {"cpu": cpu, "memory": "100Mi"}}});
    serde_json::from_value(json!({
        "metadata": {"name": name, "namespace": "kube-system"},
        "spec": {"template": {"metadata": {"labels": {"app": name}}, "spec": {"containers": [container]}}},
    }))
}

fn service_name(number: u32) -> String {
    format!("service-{number}")
}

fn service(number: u32) -> Result<Workload, FieldError> {
    let name = service_name(number);
    let cpu = ["250m", "500m", "750m", "1", "1500m"][number as usize % 5];
    let memory = ["512Mi", "1Gi", "2Gi", "4Gi"][number as usize % 4];
    Workload::deployment(&name, replicas(number, 0), Pod::named(&name).label("app", &name).cpu(cpu).memory(memory))
}

/// Four fifths of a service must be there.
fn budget(number: u32) -> PodDisruptionBudget {
    let mut budget = PodDisruptionBudget::default();
    budget.metadata = ObjectMeta::named(service_name(number));
    "default".clone_into(&mut budget.metadata.namespace);
    budget.spec.max_unavailable = Some(IntOrPercent::Percent(20));
    budget.spec.selector = Some(LabelSelector::of_labels([("app".to_owned(), service_name(number))]));
    budget
}

/// How many pods a service has: more in the afternoon, fewer at night, each at its own hour.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is between 10 and 150")]
fn replicas(number: u32, period: u32) -> u32 {
    let hour = f64::from(period % PERIODS_A_DAY) / 12.0 + f64::from(number % 12) * 0.25;
    let size = REPLICAS * (0.5 + f64::from(number % 11) / 10.0);
    (size * (1.0 + SWING * ((hour - 9.0) / 24.0 * TAU).sin())).round() as u32
}
