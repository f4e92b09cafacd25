//! A trace of pods replayed second by second: what its machines cost if nodes are consolidated, if only empty ones go, and if none
//! ever goes, beside what any machines for the pods that run cost at least.
//!
//!     cargo run --release -p karpenter-fake --features sim --example trace TRACE.csv CATALOG.json
//!
//! The trace is a CSV file with the columns of Alibaba's `openb_pods.csv`: `name`, `cpu_milli`, `memory_mib`, `num_gpu`,
//! `creation_time`, `deletion_time` and `scheduled_time`, in seconds. A pod comes when it was created and stays for as long as it
//! ran, from when it was scheduled until it was deleted; one that never was scheduled stays until it was deleted. The catalog is a
//! JSON list of instance types, as `karpenter plan --catalog` reads it.

#![expect(clippy::print_stdout, reason = "an example talks to people")]

use std::{collections::BTreeMap, env, error::Error, fs, sync::Arc, time::Duration};

use karpenter_core::{
    Catalog, Catalogs, InstanceType, Plan, Planner, Snapshot, Timestamp,
    api::{
        ConsolidationPolicy, NillableDuration, NodePool, NodeSelectorRequirement, ObjectKey, Operator, Pod, PodBuilder,
    },
    engine::{EngineOptions, Event, Object, ObjectRef},
    labels,
};
use karpenter_fake::sim::{Account, Exchange, Live, Workload};

/// How often nodes that should go are looked for, and how much is tried for one command, as a share of the usual.
const DISRUPTION_PERIOD: Duration = Duration::from_hours(1);
const EFFORT: f64 = 0.01;
/// How long a span of time is for which the bound is worked out.
const SPAN: Duration = Duration::from_hours(1);

/// What a pod asks for: thousandths of a CPU, mebibytes, GPUs.
type Shape = (u64, u64, u64);

/// A line of the trace.
struct Arrival {
    name: String,
    shape: Shape,
    at: Timestamp,
    until: Timestamp,
}

/// What becomes of nodes that are not needed.
#[derive(Clone, Copy)]
enum Upkeep {
    Consolidated,
    EmptyOnly,
    Never,
}

/// Thousands of objects are copied and changed each minute.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> Result<(), Box<dyn Error>> {
    let [trace, catalog] = &env::args().skip(1).collect::<Vec<_>>()[..] else {
        return Err("usage: trace TRACE.csv CATALOG.json".into());
    };
    let arrivals = read(&fs::read_to_string(trace)?)?;
    let types: Vec<InstanceType> = serde_json::from_str(&fs::read_to_string(catalog)?)?;
    let catalog = Arc::new(Catalog::new(types)?);
    println!("{} pods; dollars", arrivals.len());
    println!("{:<28}{:>14}{:>14}{:>10}{:>12}", "nodes go", "bill", "bound", "ratio", "evictions");
    let mut known = Known::new();
    for (name, upkeep) in [
        ("if others can do their work", Upkeep::Consolidated),
        ("if they are empty", Upkeep::EmptyOnly),
        ("when they expire", Upkeep::Never),
    ] {
        let Outcome { account, bound, evictions } = replay(&arrivals, &catalog, upkeep, &mut known)?;
        let bill = account.bill.micro_dollars() as f64 / 1e6;
        let ratio = bill / bound.dollars;
        println!("{name:<28}{bill:>14.2}{:>14.2}{ratio:>10.3}{evictions:>12}", bound.dollars);
    }
    Ok(())
}

/// Reads the trace, in the order in which pods come.
fn read(text: &str) -> Result<Vec<Arrival>, Box<dyn Error>> {
    let mut lines = text.lines();
    let columns: Vec<&str> = lines.next().ok_or("the trace is empty")?.split(',').collect();
    let index_of = |name: &str| index_of(&columns, name);
    let (name, created, scheduled, deleted) =
        (index_of("name")?, index_of("creation_time")?, index_of("scheduled_time")?, index_of("deletion_time")?);
    let shape = [index_of("cpu_milli")?, index_of("memory_mib")?, index_of("num_gpu")?];
    let mut out = Vec::new();
    for line in lines {
        let fields: Vec<&str> = line.split(',').collect();
        if fields.len() != columns.len() {
            return Err(format!("{line}: it has other columns than the first line").into());
        }
        let number = |index: usize| fields[index].parse::<u64>().map_err(|error| format!("{line}: {error}"));
        let created = number(created)?;
        let since = if fields[scheduled].is_empty() { created } else { number(scheduled)? };
        let at = Timestamp::default() + Duration::from_secs(created);
        let until = at + Duration::from_secs(number(deleted)?.saturating_sub(since));
        let shape = (number(shape[0])?, number(shape[1])?, number(shape[2])?);
        out.push(Arrival { name: fields[name].to_owned(), shape, at, until });
    }
    out.sort_by(|a, b| (a.at, &a.name).cmp(&(b.at, &b.name)));
    Ok(out)
}

fn index_of(columns: &[&str], name: &str) -> Result<usize, String> {
    columns.iter().position(|column| *column == name).ok_or_else(|| format!("the trace has no column {name}"))
}

struct Outcome<'k> {
    account: Account,
    bound: Bound<'k>,
    evictions: usize,
}

/// Lives through the whole trace.
fn replay<'k>(
    arrivals: &[Arrival],
    catalog: &Arc<Catalog>,
    upkeep: Upkeep,
    known: &'k mut Known,
) -> Result<Outcome<'k>, Box<dyn Error>> {
    let pool = pool(upkeep);
    let mut options = EngineOptions::default();
    options.disruption_period = Some(DISRUPTION_PERIOD);
    options.disruptor.effort = EFFORT;
    let mut live = Live::new(1, catalog.clone(), options);
    live.world_mut().api_mut().create(pool.clone())?;
    let mut bound = Bound::new(&pool, catalog, known);
    let mut evictions = 0;
    // At one time pods go before others come.
    let departures = arrivals.iter().map(|arrival| (arrival.until, false, arrival));
    let mut changes: Vec<_> = arrivals.iter().map(|arrival| (arrival.at, true, arrival)).chain(departures).collect();
    changes.sort_by_key(|(at, comes, arrival)| (*at, *comes, &arrival.name));
    for (at, comes, arrival) in changes {
        live.watch_until(at, &mut |now, exchange| match exchange {
            Exchange::Told(event) => bound.observe(event, now),
            Exchange::Asked(requests) => evictions += requests.iter().filter(|r| is_eviction(&r.action)).count(),
            _ => {}
        });
        if comes {
            live.world_mut().apply(Workload::deployment(&arrival.name, 1, pod(&arrival.name, arrival.shape))?);
        } else {
            live.world_mut().delete_workload(&ObjectKey::new("default", &arrival.name));
        }
    }
    // The last machines go.
    let end = live.now() + Duration::from_hours(1);
    live.watch_until(end, &mut |now, exchange| {
        if let Exchange::Told(event) = exchange {
            bound.observe(event, now);
        }
    });
    bound.settle(end);
    for breach in live.take_breaches() {
        println!("broken: {breach}");
    }
    Ok(Outcome { account: live.account(), bound, evictions })
}

fn is_eviction(action: &karpenter_core::engine::Action) -> bool {
    matches!(action, karpenter_core::engine::Action::Evict { .. })
}

/// Machines on demand of all types.
fn pool(upkeep: Upkeep) -> NodePool {
    let mut pool = NodePool::named("general");
    let on_demand = NodeSelectorRequirement::new(labels::CAPACITY_TYPE, Operator::In, [labels::ON_DEMAND]);
    let amd64 = NodeSelectorRequirement::new(labels::ARCH, Operator::In, ["amd64"]);
    pool.spec.template.spec.requirements = vec![on_demand, amd64];
    let disruption = &mut pool.spec.disruption;
    disruption.budgets[0].nodes = "100%".into();
    (disruption.consolidation_policy, disruption.consolidate_after) = match upkeep {
        Upkeep::Consolidated => (ConsolidationPolicy::WhenEmptyOrUnderutilized, NillableDuration::from_secs(60)),
        Upkeep::EmptyOnly => (ConsolidationPolicy::WhenEmpty, NillableDuration::from_secs(60)),
        Upkeep::Never => (ConsolidationPolicy::WhenEmpty, NillableDuration::never()),
    };
    pool
}

fn pod(name: &str, (cpu, memory, gpus): Shape) -> PodBuilder {
    let pod = Pod::named(name).cpu(&format!("{cpu}m")).memory(&format!("{memory}Mi"));
    if gpus > 0 { pod.request("nvidia.com/gpu", &gpus.to_string()) } else { pod }
}

/// What nodes for pods of these shapes, so many of each, cost at least, in dollars an hour.
type Known = BTreeMap<BTreeMap<Shape, u32>, f64>;

/// The least that machines for the pods that run cost, added up over time.
///
/// Whatever machines there are, those of one moment have room for the pods that are bound then, so that they cost no less than the
/// proved bound on the price of any nodes for these pods. Of each span of time those pods count that were bound throughout: of each
/// shape the smallest number.
struct Bound<'k> {
    snapshot: Snapshot,
    catalogs: Catalogs,
    planner: Planner,
    /// The shapes of the bound pods.
    pods: BTreeMap<ObjectKey, Shape>,
    counts: BTreeMap<Shape, u32>,
    /// The smallest counts of this span.
    lows: BTreeMap<Shape, u32>,
    known: &'k mut Known,
    since: Timestamp,
    dollars: f64,
}

impl<'k> Bound<'k> {
    fn new(pool: &NodePool, catalog: &Arc<Catalog>, known: &'k mut Known) -> Self {
        let mut catalogs = Catalogs::new();
        catalogs.insert(pool.name(), catalog.clone());
        let snapshot = Snapshot::builder().pool(pool.clone()).build().expect("one pool is a cluster");
        Self {
            snapshot,
            catalogs,
            planner: Planner::default(),
            pods: BTreeMap::new(),
            counts: BTreeMap::new(),
            lows: BTreeMap::new(),
            known,
            since: Timestamp::default(),
            dollars: 0.0,
        }
    }

    fn observe(&mut self, event: &Event, now: Timestamp) {
        let (key, shape) = match event {
            Event::Applied(Object::Pod(pod)) => {
                let is_bound = !pod.spec.node_name.is_empty() && !pod.is_finished();
                (pod.key(), is_bound.then(|| shape_of(pod)))
            }
            Event::Deleted(ObjectRef::Pod(key)) => (key.clone(), None),
            _ => return,
        };
        if self.pods.get(&key).copied() == shape {
            return;
        }
        // Up to now nothing has changed for the whole of some spans.
        let spans = now.since(self.since).as_secs() / SPAN.as_secs();
        self.settle(self.since + Duration::from_secs(spans * SPAN.as_secs()));
        if let Some(old) = self.pods.remove(&key) {
            let count = self.counts.entry(old).or_default();
            *count -= 1;
            let low = self.lows.entry(old).or_default();
            *low = (*low).min(*count);
            self.counts.retain(|_, count| *count > 0);
        }
        if let Some(shape) = shape {
            *self.counts.entry(shape).or_default() += 1;
            self.pods.insert(key, shape);
        }
    }

    /// Adds what the time up to then must have cost.
    fn settle(&mut self, until: Timestamp) {
        let hours = until.since(self.since).as_secs_f64() / 3600.0;
        if hours <= 0.0 {
            return;
        }
        let first = hours.min(SPAN.as_secs_f64() / 3600.0);
        let lows = std::mem::take(&mut self.lows).into_iter().filter(|(_, count)| *count > 0).collect();
        self.dollars += self.least(lows) * first;
        if hours > first {
            self.dollars += self.least(self.counts.clone()) * (hours - first);
        }
        self.since = until;
        self.lows = self.counts.clone();
    }

    /// The least that nodes for so many pods of each shape cost, in dollars an hour.
    fn least(&mut self, counts: BTreeMap<Shape, u32>) -> f64 {
        if let Some(known) = self.known.get(&counts) {
            return *known;
        }
        let mut snapshot = self.snapshot.clone();
        for (number, (shape, count)) in counts.iter().enumerate() {
            let pods = pod(&format!("shape-{number}"), *shape).replicas(*count);
            snapshot = snapshot.with_pending(pods).expect("pods of a shape have names of their own");
        }
        let problem = self.planner.prepare(&snapshot, &self.catalogs);
        // All of them have a place: they are bound.
        let all = Plan::from_parts(Vec::new(), BTreeMap::new(), BTreeMap::new());
        let least = problem.certify(&all).lower_bound.dollars_per_hour();
        self.known.insert(counts, least);
        least
    }
}

fn shape_of(pod: &Pod) -> Shape {
    let asked = |name: &str| {
        let all = pod.spec.containers.iter().filter_map(|container| container.resources.requests.get(name));
        all.fold(karpenter_core::Quantity::ZERO, karpenter_core::Quantity::saturating_add)
    };
    let whole = |number: i64| u64::try_from(number).unwrap_or(0);
    (
        whole(asked("cpu").milli_ceil()),
        whole(asked("memory").units_floor() >> 20),
        whole(asked("nvidia.com/gpu").units_floor()),
    )
}
