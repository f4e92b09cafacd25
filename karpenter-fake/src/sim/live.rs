use std::{fmt, sync::Arc, time::Duration};

use karpenter_core::{
    Catalog, Timestamp,
    api::{Node, Pod},
    engine::{Engine, EngineOptions, Event, Request},
    schedule::StopFlag,
};

use super::{Breach, World};
use crate::cloud::Bill;

/// No engine is asked again sooner than this without news: one that asks to be woken at once would stop the clock.
const MIN_STEP: Duration = Duration::from_millis(1);

/// A [`World`] and an [`Engine`] that keeps it in nodes, on one clock.
///
/// Time goes from one moment at which something is due to the next. The engine is told all that became known at that
/// moment, says what it wants done, and the world carries it out. The same calls give the same life, to the byte.
///
/// ```
/// use karpenter_core::{Timestamp, api::{NodePool, Pod}, engine::EngineOptions};
/// use karpenter_fake::{generated_catalog, sim::{Live, Workload}};
///
/// let mut live = Live::new(1, generated_catalog(), EngineOptions::default());
/// live.world_mut().api_mut().create(NodePool::named("general"))?;
/// live.world_mut().apply(Workload::deployment("web", 3, Pod::named("web").label("app", "web").cpu("100m"))?);
/// live.run_until(Timestamp::from_millis(5 * 60_000));
/// let account = live.account();
/// assert_eq!((account.pods_running, account.pods_waiting, account.nodes), (3, 0, 1));
/// assert!(account.bill.micro_dollars() > 0);
/// assert_eq!(live.world_mut().inspection().breaches(), []);
/// assert_eq!(live.take_breaches(), []);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Live {
    world: World,
    engine: Engine,
    options: EngineOptions,
    /// How many of the next decisions are stopped, and after how many looks at their flags.
    haste: (usize, usize),
}

/// What passes between an engine and its world.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Exchange<'a> {
    /// The engine is told this.
    Told(&'a Event),
    /// Once it was told all, the engine asks for this, which may be nothing.
    Asked(&'a [Request]),
    /// From here on it is another engine, which knows nothing yet. [`Live::crash`] makes one and shows nothing: whoever calls
    /// it tells those who watch.
    Restarted,
}

/// How things stand at some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Account {
    /// The time.
    pub at: Timestamp,
    /// How many pods run, those of daemonsets left out.
    pub pods_running: usize,
    /// How many pods wait for a node.
    pub pods_waiting: usize,
    /// How many nodes there are.
    pub nodes: usize,
    /// How many machines there are, be they nodes or not.
    pub machines: usize,
    /// What all machines came to so far, by the cloud's own meter.
    pub bill: Bill,
}

impl Live {
    /// An empty cluster beside a cloud that sells this, with an engine that knows nothing yet.
    pub fn new(seed: u64, catalog: Arc<Catalog>, options: EngineOptions) -> Self {
        Self::with(World::new(seed, catalog), options)
    }

    /// A new engine for this world.
    pub fn with(mut world: World, options: EngineOptions) -> Self {
        world.restart_watch();
        Self { world, engine: Engine::new(options.clone()), options, haste: (0, 0) }
    }

    /// The cluster and its cloud.
    pub fn world(&self) -> &World {
        &self.world
    }

    /// The cluster and its cloud, to change them. What follows happens in the next [`Live::run_until`].
    pub fn world_mut(&mut self) -> &mut World {
        &mut self.world
    }

    /// The engine.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// What time it is.
    pub fn now(&self) -> Timestamp {
        self.world.now()
    }

    /// Lets time pass until then.
    pub fn run_until(&mut self, until: Timestamp) {
        self.watch_until(until, &mut |_, _| {});
    }

    /// Lets time pass until then and shows all that passes between the engine and the world, in order and with its time:
    /// what a transcript or a record is made of.
    pub fn watch_until(&mut self, until: Timestamp, watch: &mut dyn FnMut(Timestamp, Exchange<'_>)) {
        while self.step(until, watch) {}
    }

    /// One moment, the next at which something is due; whether there was one up to then.
    fn step(&mut self, until: Timestamp, watch: &mut dyn FnMut(Timestamp, Exchange<'_>)) -> bool {
        let earliest = self.world.now() + MIN_STEP;
        let wake = self.engine.next_wake().map(|wake| wake.max(earliest));
        let now = self.world.advance_to_news(wake.map_or(until, |wake| wake.min(until)));
        let events = self.world.take_events();
        if events.is_empty() && wake.is_none_or(|wake| wake > now) {
            return false;
        }
        for event in events {
            watch(now, Exchange::Told(&event));
            self.engine.observe(event, now);
        }
        let stop = self.next_flag();
        self.engine.stopped_by(&stop);
        let requests = self.engine.tick(now);
        watch(now, Exchange::Asked(&requests));
        for request in requests {
            self.world.execute(request);
        }
        true
    }

    /// The engine is stopped, and another one starts that knows nothing yet and is told everything anew. What the first
    /// one had asked for is still carried out, but nobody hears what came of it.
    pub fn crash(&mut self) {
        self.engine = Engine::new(self.options.clone());
        self.world.restart_watch();
    }

    /// So many of the next decisions are each stopped after so many looks at its [`StopFlag`], as where time is short. On several
    /// threads, where the core has its feature `rayon`, they are not stopped at the same points each time.
    pub fn hurry(&mut self, decisions: usize, looks: usize) {
        self.haste = (decisions, looks);
    }

    fn next_flag(&mut self) -> StopFlag {
        let (decisions, looks) = &mut self.haste;
        let is_short = *decisions > 0;
        *decisions = decisions.saturating_sub(1);
        if is_short { StopFlag::after_looks(*looks) } else { StopFlag::default() }
    }

    /// How things stand.
    pub fn account(&self) -> Account {
        Account::of(&self.world)
    }

    /// The rules that were broken since the last call.
    pub fn take_breaches(&mut self) -> Vec<Breach> {
        self.world.take_breaches()
    }
}

impl Account {
    /// How things stand in a world.
    pub fn of(world: &World) -> Self {
        let runs = |pod: &&Arc<Pod>| pod.status.phase == "Running" && pod.is_active() && !pod.is_daemon();
        Self {
            at: world.now(),
            pods_running: world.api().list::<Pod>().filter(runs).count(),
            pods_waiting: world.pods_without_node(),
            nodes: world.api().list::<Node>().len(),
            machines: world.cloud().machines().len(),
            bill: world.bill(),
        }
    }
}

impl fmt::Display for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { at, pods_running, pods_waiting, nodes, bill, .. } = self;
        write!(f, "{at}: {pods_running} pods run and {pods_waiting} wait on {nodes} nodes, {bill} so far")
    }
}
