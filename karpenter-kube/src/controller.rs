//! The loop: what the cluster tells goes into the engine, and what the engine asks for goes out.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    panic::AssertUnwindSafe,
    sync::Arc,
    time::Duration,
};

use futures_util::FutureExt as _;
use k8s_openapi::api::core::v1::ObjectReference;
use karpenter_core::{
    CloudProvider, Timestamp,
    api::{
        CsiNode, DaemonSet, Namespace, Node, NodeClaim, NodeOverlay, NodePool, ObjectKey, PersistentVolume,
        PersistentVolumeClaim, Pod, PodDisruptionBudget, StorageClass, VolumeAttachment,
    },
    engine::{Engine, EngineOptions, Event, Note, ObjectRef},
    schedule::StopFlag,
};
use kube::Client;
use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
    time::Instant,
};

use crate::{
    carry::{CallLimits, Carrier, Outcome},
    clock,
    kinds::Watched,
    lease::{Election, LeaseOptions, Term},
    metrics::{Metrics, Probes},
    mirror::Mirror,
    watch::{News, watch as watch_kind},
};

/// How much of what is told is taken in at a time.
const BATCH: usize = 1024;

/// The engine is asked at most once in this time: in busy clusters much is told at a time.
const MIN_STEP: Duration = Duration::from_millis(20);

/// How long calls that were begun may take when the controller stops.
const PATIENCE: Duration = Duration::from_secs(20);

/// A clock that is set back by less than this makes things a little late. Clocks that are kept right are moved by less.
const MAX_SET_BACK: Duration = Duration::from_secs(30);

/// How long the engine may decide before it is told to end with what it has: pods wait meanwhile.
const MAX_DECISION: Duration = Duration::from_mins(1);

/// A decision that takes longer than this hangs: the controller no longer says that it lives. Not all of one can be cut short.
const HANGS_AFTER: Duration = Duration::from_mins(5);

/// How often it says so while the engine decides.
const BEAT: Duration = Duration::from_secs(5);

/// The most pods that cannot be read of which a replica remembers to tell people once it leads. The log tells of all.
const MAX_UNREADABLE: usize = 1000;

/// How often the gauges are brought up to date.
const GAUGES: Duration = Duration::from_secs(5);

/// How a [`Controller`] works.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ControllerOptions {
    /// How the engine decides.
    pub engine: EngineOptions,
    /// The lease that a replica must hold to act; `None` acts at once, so that there must be no other.
    pub lease: Option<LeaseOptions>,
    /// How many calls are made.
    pub limits: CallLimits,
    /// Whether node overlays count. Their definition must be installed then. By default it need not be, and they do not.
    pub node_overlays: bool,
}

/// Why a controller stopped that was not asked to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Stopped {
    /// Another replica may act now. Start anew, to stand for election again with nothing in mind.
    #[error("the lease was lost")]
    LeaseLost,
    /// The clock of this machine was set back, and what was to be done at a time would wait for it once more. Start anew.
    #[error("the clock was set back")]
    ClockSetBack,
    /// What becomes of the objects of a kind is not told any more, by a mistake of ours. Start anew, to be told all of them.
    #[error("the watch of every {0} has ended")]
    WatchEnded(&'static str),
}

/// Keeps a cluster in the nodes that its pods need, with the machines of any [`CloudProvider`].
///
/// All that matters is in the cluster. A controller may be killed at any time; the next one goes on where it was.
pub struct Controller {
    client: Client,
    provider: Arc<dyn CloudProvider>,
    options: ControllerOptions,
    metrics: Arc<Metrics>,
    probes: Arc<Probes>,
}

impl fmt::Debug for Controller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Controller")
            .field("provider", &self.provider.name())
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

impl Controller {
    /// A controller of the cluster of this client.
    ///
    /// # Panics
    /// The times of the lease let two replicas act at a time ([`LeaseOptions::duration`]).
    pub fn new(client: Client, provider: Arc<dyn CloudProvider>, mut options: ControllerOptions) -> Self {
        if options.engine.node_class_kinds.is_empty() {
            options.engine.node_class_kinds = provider.node_class_kinds();
        }
        let is_safe = options.lease.as_ref().is_none_or(LeaseOptions::is_safe);
        assert!(is_safe, "a lease must hold for longer than it takes to give it up: {:?}", options.lease);
        let metrics = Arc::new(Metrics::of_provider(Arc::clone(&provider)));
        Self { client, provider, options, metrics, probes: Arc::default() }
    }

    /// What it counts, for `/metrics`.
    pub fn metrics(&self) -> Arc<Metrics> {
        Arc::clone(&self.metrics)
    }

    /// Whether it lives and is ready, for `/healthz` and `/readyz`.
    pub fn probes(&self) -> Arc<Probes> {
        Arc::clone(&self.probes)
    }

    /// Works until `stop` is done. Then calls that were begun are finished and the lease is given back.
    ///
    /// Dropped before it is done, it ends at once: what was begun is given up, and the lease runs out.
    ///
    /// # Errors
    /// [`Stopped`] if it must not go on.
    pub async fn run(self, stop: impl Future<Output = ()> + Send) -> Result<(), Stopped> {
        let (stopping, stopped) = watch::channel(false);
        let (leading, mut leads) =
            watch::channel(if self.options.lease.is_some() { Term::Never } else { Term::Always });
        self.probes.follow(&leads);
        // Ends with this, however that ends.
        let mut election = JoinSet::new();
        if let Some(lease) = self.options.lease.clone() {
            let candidate = Election::new(self.client.clone(), lease);
            election.spawn(async move { candidate.run(&leading, stopped).await });
        }
        let mut work = Work::new(&self, &leads);
        let ended = work.run(stop, &mut leads).await;
        // Without the lease another replica acts already: what was not begun must not be.
        if !matches!(ended, Err(Stopped::LeaseLost)) {
            tokio::select! {
                () = work.carrier.finish(PATIENCE) => {}
                () = lost(&mut leads) => {}
            }
        }
        // Calls that are under way still are given up before another replica may act.
        drop(work);
        stopping.send_replace(true);
        // What went wrong with it was logged, and the lease ends by itself.
        let _ = election.join_next().await;
        ended
    }
}

/// A controller at work.
struct Work {
    /// Away while it decides.
    engine: Option<Box<Engine>>,
    mirror: Mirror,
    carrier: Carrier,
    metrics: Arc<Metrics>,
    probes: Arc<Probes>,
    news: mpsc::Receiver<News>,
    outcomes: mpsc::Receiver<Outcome>,
    /// The kinds of which all objects have been told.
    listed: BTreeSet<&'static str>,
    /// How many kinds there are.
    kinds: usize,
    /// Pods that wait and cannot be read, with their uids and what is wrong with them, of which people are to be told.
    unreadable: BTreeMap<ObjectKey, (String, String)>,
    /// Whether anything became known since the engine was asked last.
    has_news: bool,
    /// One for each kind, which it gives back when it ends; they end with this, and not before unless one panics.
    watches: JoinSet<&'static str>,
}

impl Work {
    fn new(controller: &Controller, leads: &watch::Receiver<Term>) -> Self {
        let Controller { client, provider, options, metrics, probes } = controller;
        let (sender, news) = mpsc::channel(BATCH);
        let (outcome_sender, outcomes) = mpsc::channel(BATCH);
        let watches = watch_all(client, &sender, options.node_overlays);
        let identity = options.lease.as_ref().map_or("karpenter", |lease| &lease.identity);
        let provider = Arc::clone(provider);
        let (limits, counts) = (&options.limits, Arc::clone(metrics));
        let carrier = Carrier::new(client, identity, provider, counts, limits, leads, outcome_sender);
        Self {
            engine: Some(Box::new(Engine::new(options.engine.clone()))),
            mirror: Mirror::default(),
            carrier,
            metrics: Arc::clone(metrics),
            probes: Arc::clone(probes),
            news,
            outcomes,
            listed: BTreeSet::new(),
            kinds: watches.len(),
            unreadable: BTreeMap::new(),
            has_news: false,
            watches,
        }
    }

    async fn run(
        &mut self,
        stop: impl Future<Output = ()> + Send,
        leads: &mut watch::Receiver<Term>,
    ) -> Result<(), Stopped> {
        let mut stop = Box::pin(stop);
        let mut gauges = tokio::time::interval(GAUGES);
        let (mut news, mut has_led, mut next_tick) = (Vec::new(), false, Instant::now());
        let mut latest = clock::now();
        loop {
            let now = clock::now();
            if is_set_back(latest, now) {
                return Err(Stopped::ClockSetBack);
            }
            latest = latest.max(now);
            let is_leader = leads.borrow_and_update().is_on();
            if has_led && !is_leader {
                return Err(Stopped::LeaseLost);
            }
            has_led |= is_leader;
            self.probes.beat(self.is_synced());
            let wake = self.wake().filter(|_| is_leader).map(|wake| wake.max(next_tick));
            if wake.is_some_and(|wake| wake <= Instant::now()) {
                if let Some(ended) = unless_over(&mut stop, leads, self.tick()).await {
                    return ended;
                }
                next_tick = Instant::now() + MIN_STEP;
                continue;
            }
            tokio::select! {
                () = &mut stop => return Ok(()),
                _ = self.news.recv_many(&mut news, BATCH) => news.drain(..).for_each(|news| self.hear(news)),
                Some((id, result)) = self.outcomes.recv() => self.observe(Event::Done { id, result }),
                () = sleep_until(wake) => {}
                () = turn(leads) => {}
                Some(Ok(kind)) = self.watches.join_next() => return Err(Stopped::WatchEnded(kind)),
                _ = gauges.tick() => {
                    // What all replicas told would be counted once for each.
                    if let Some(engine) = self.engine.as_ref().filter(|_| is_leader) {
                        self.metrics.survey(engine, &self.mirror);
                    }
                }
            }
        }
    }

    /// Whether all objects of all kinds have been told.
    fn is_synced(&self) -> bool {
        self.listed.len() == self.kinds
    }

    /// When the engine has something to do.
    fn wake(&self) -> Option<Instant> {
        if self.has_news && self.is_synced() {
            return Some(Instant::now());
        }
        let wake = self.engine.as_ref()?.next_wake()?;
        Some(Instant::now() + clock::until(wake))
    }

    fn hear(&mut self, news: News) {
        match news {
            News::Event(event) => {
                self.mirror.observe(&event);
                self.observe(event);
            }
            News::Listed(kind) => {
                let was_synced = self.is_synced();
                self.listed.insert(kind);
                if self.is_synced() && !was_synced {
                    tracing::info!("all objects are known");
                    self.observe(Event::Synced);
                }
            }
            News::Lost { kind, error } => {
                self.metrics.watch_lost(kind);
                tracing::warn!(kind, error, "a watch was lost and begins anew");
            }
            News::Unreadable { object, error, waiting } => {
                tracing::error!(object, error, "an object cannot be read");
                if let Some((pod, uid)) = waiting.filter(|_| self.unreadable.len() < MAX_UNREADABLE) {
                    self.unreadable.insert(pod, (uid, error));
                }
            }
        }
    }

    fn observe(&mut self, event: Event) {
        self.has_news = true;
        if let Some(engine) = &mut self.engine {
            engine.observe(event, clock::now());
        }
    }

    /// Asks the engine what is to be done, on a thread where that may take a while, and begins it.
    async fn tick(&mut self) {
        let Some(mut engine) = self.engine.take() else { return };
        self.has_news = false;
        let (start, stop) = (Instant::now(), StopFlag::default());
        engine.stopped_by(&stop);
        let deciding = tokio::task::spawn_blocking(move || {
            let requests = engine.tick(clock::now());
            (engine, requests)
        });
        let decided = attended(deciding, &stop, || self.probes.beat_on()).await;
        let (engine, requests) = decided.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()));
        self.engine = Some(engine);
        self.metrics.decided(start.elapsed());
        self.carrier.begin(requests, &self.mirror);
        self.tell_of_unreadable_pods();
    }

    /// Tells people of pods for which nothing is planned, as of those without a place.
    fn tell_of_unreadable_pods(&mut self) {
        for (pod, (uid, error)) in std::mem::take(&mut self.unreadable) {
            let object = ObjectRef::Pod(pod);
            let reference = ObjectReference { uid: Some(uid), ..self.mirror.reference(&object) };
            let message = format!("invalid: {error}");
            let note = Note { object, is_warning: true, reason: "FailedScheduling".into(), message };
            self.carrier.note_on(reference, note);
        }
    }
}

fn is_set_back(latest: Timestamp, now: Timestamp) -> bool {
    now + MAX_SET_BACK <= latest
}

/// Waits until it may be another replica's turn. That is never so once nobody can say so any more: without a lease, or after the
/// election. To return at once then would spin the loop and starve all else that it waits for.
async fn turn(leads: &mut watch::Receiver<Term>) {
    if leads.changed().await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// Waits until another replica may act: never without a lease.
async fn lost(leads: &mut watch::Receiver<Term>) {
    if leads.wait_for(|term| !term.is_on()).await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// Decides, unless the controller must end before that is done, and says how it ends. What would have been decided is not begun
/// then; the cluster is as it was.
async fn unless_over(
    stop: &mut (impl Future<Output = ()> + Unpin),
    leads: &mut watch::Receiver<Term>,
    decide: impl Future<Output = ()>,
) -> Option<Result<(), Stopped>> {
    tokio::select! {
        biased;
        () = lost(leads) => Some(Err(Stopped::LeaseLost)),
        () = stop => Some(Ok(())),
        () = decide => None,
    }
}

/// Waits for a decision, and has it end after a while with what it has. Meanwhile the controller lives, unless that hangs.
async fn attended<T>(deciding: impl Future<Output = T>, stop: &StopFlag, beat: impl Fn()) -> T {
    let mut deciding = std::pin::pin!(deciding);
    let (start, mut beats) = (Instant::now(), tokio::time::interval(BEAT));
    loop {
        tokio::select! {
            biased;
            decided = &mut deciding => return decided,
            _ = beats.tick() => {}
        }
        if start.elapsed() < HANGS_AFTER {
            beat();
        }
        if start.elapsed() >= MAX_DECISION && !stop.is_stopped() {
            tracing::warn!("a decision takes too long and ends with what there is");
            stop.stop();
        }
    }
}

/// Never, if there is no such time.
async fn sleep_until(then: Option<Instant>) {
    match then {
        Some(then) => tokio::time::sleep_until(then).await,
        None => std::future::pending().await,
    }
}

fn watch_all(client: &Client, listener: &mpsc::Sender<News>, node_overlays: bool) -> JoinSet<&'static str> {
    let mut watches = JoinSet::new();
    let mut add = Adder { watches: &mut watches, client, listener };
    add.kind::<NodePool>();
    add.kind::<NodeClaim>();
    add.kind::<Node>();
    add.kind::<Pod>();
    add.kind::<DaemonSet>();
    add.kind::<PodDisruptionBudget>();
    add.kind::<Namespace>();
    add.kind::<PersistentVolumeClaim>();
    add.kind::<PersistentVolume>();
    add.kind::<StorageClass>();
    add.kind::<CsiNode>();
    add.kind::<VolumeAttachment>();
    if node_overlays {
        add.kind::<NodeOverlay>();
    }
    watches
}

struct Adder<'a> {
    watches: &'a mut JoinSet<&'static str>,
    client: &'a Client,
    listener: &'a mpsc::Sender<News>,
}

impl Adder<'_> {
    fn kind<T: Watched>(&mut self) {
        self.watches.spawn(until_ended(T::KIND, watch_kind::<T>(self.client.clone(), self.listener.clone())));
    }
}

/// The kind, once its watch has ended, be it by a panic.
async fn until_ended(kind: &'static str, watch: impl Future<Output = ()>) -> &'static str {
    let _ = AssertUnwindSafe(watch).catch_unwind().await;
    kind
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_is_set_back_is_told_from_one_that_is_kept_right() {
        let at = Timestamp::from_millis;
        let found = [70_000, 70_001, 99_999, 100_000, 200_000].map(|now| is_set_back(at(100_000), at(now)));
        assert_eq!(found, [true, false, false, false, false]);
    }

    fn controller(url: &str, lease: Option<LeaseOptions>) -> Controller {
        let client = Client::try_from(kube::Config::new(url.parse().expect("a URL"))).expect("a client");
        let cloud = karpenter_fake::FakeCloud::new(karpenter_fake::generated_catalog());
        Controller::new(client, Arc::new(cloud), ControllerOptions { lease, ..ControllerOptions::default() })
    }

    #[tokio::test(start_paused = true)]
    async fn a_long_decision_ends_and_one_that_hangs_is_not_alive() {
        for (seconds, is_stopped, last_beat) in [(4, false, 0), (59, false, 55), (61, true, 60), (3600, true, 295)] {
            let (stop, start, beaten) = (StopFlag::default(), Instant::now(), std::cell::Cell::new(Duration::MAX));
            let deciding = tokio::time::sleep(Duration::from_secs(seconds));
            attended(deciding, &stop, || beaten.set(start.elapsed())).await;
            assert_eq!((stop.is_stopped(), beaten.get().as_secs()), (is_stopped, last_beat), "{seconds} s");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_waits_for_a_decision_once_it_is_over() {
        let (leading, mut leads) = watch::channel(Term::Always);
        let soon = || Box::pin(tokio::time::sleep(Duration::from_secs(1)));
        let never = || std::future::pending::<()>();
        assert_eq!(unless_over(&mut never(), &mut leads, soon()).await, None);
        assert_eq!(unless_over(&mut soon(), &mut leads, never()).await, Some(Ok(())));
        leading.send_replace(Term::Never);
        assert_eq!(unless_over(&mut never(), &mut leads, never()).await, Some(Err(Stopped::LeaseLost)));
    }

    #[tokio::test]
    #[should_panic(expected = "longer than it takes to give it up")]
    async fn a_lease_that_ends_before_its_holder_gives_up_is_a_mistake() {
        let lease = LeaseOptions { duration: Duration::from_secs(10), ..LeaseOptions::new("default", "me") };
        controller("http://127.0.0.1:1", Some(lease));
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_that_there_is_not_cannot_be_lost() {
        let (leading, mut leads) = watch::channel(Term::Always);
        drop(leading);
        assert!(tokio::time::timeout(Duration::from_hours(1), lost(&mut leads)).await.is_err());
    }

    #[tokio::test]
    async fn a_controller_that_is_not_told_of_a_kind_any_more_stops() {
        let (_leading, mut leads) = watch::channel(Term::Never);
        let mut work = Work::new(&controller("http://127.0.0.1:1", None), &leads);
        work.watches.spawn(until_ended("Pod", async { panic!("of a mistake") }));
        let ended = tokio::time::timeout(Duration::from_secs(9), work.run(std::future::pending(), &mut leads)).await;
        assert_eq!(ended, Ok(Err(Stopped::WatchEnded("Pod"))));
    }

    #[tokio::test]
    async fn nothing_goes_on_once_a_controller_is_dropped() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let lease = LeaseOptions { retry_period: Duration::from_millis(10), ..LeaseOptions::new("default", "me") };
        let hang_up = async || loop {
            drop(listener.accept().await);
        };
        tokio::select! {
            _ = controller(&url, Some(lease)).run(std::future::pending()) => panic!("nobody stopped it"),
            () = hang_up() => {}
            () = tokio::time::sleep(Duration::from_millis(200)) => {}
        }
        // What was begun before may be under way.
        let _ = tokio::time::timeout(Duration::from_millis(100), hang_up()).await;
        let calls = tokio::time::timeout(Duration::from_millis(300), listener.accept()).await;
        assert!(calls.is_err(), "the API server is still asked");
    }

    #[tokio::test]
    async fn only_the_replica_that_acts_tells_how_things_stand() {
        for (lease, expected) in [(Some(LeaseOptions::new("default", "me")), false), (None, true)] {
            // Nobody listens there, so that no lease is taken.
            let controller = controller("http://127.0.0.1:1", lease);
            let metrics = controller.metrics();
            controller.run(tokio::time::sleep(Duration::from_millis(200))).await.expect("it was asked to stop");
            assert_eq!(metrics.encode().contains("karpenter_cluster_state_node_count"), expected);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_is_woken_by_an_election_that_is_over() {
        let (leading, mut leads) = watch::channel(Term::Always);
        leading.send_replace(Term::Never);
        turn(&mut leads).await;
        drop(leading);
        assert!(tokio::time::timeout(Duration::from_hours(1), turn(&mut leads)).await.is_err());
    }
}
