//! The clock, and all that it drives.

mod carry;

use std::{sync::Arc, time::Duration};

use karpenter_core::{
    Catalog, Snapshot, SnapshotError, Timestamp,
    api::{ConditionStatus, ObjectKey, Pod},
    engine::{ActionId, ActionResult, Event, Request},
    provider::ProviderId,
};

use super::{
    ApiServer, Breach, Rng, Workload, WorldOptions,
    controllers::{Attacher, Budgets, Daemons, Disks, Kubelets, Lifecycle, Workloads},
    invariants::{Inspection, Invariants},
    scheduler::{Decision, Scheduler},
    timeline::Timeline,
};
use crate::{FakeCloud, cloud::Bill};

/// A cluster with its cloud and its clock.
///
/// It starts with nothing in it. What [`World::execute`] is given is carried out with the latency of the real thing, and
/// what comes of it is told by [`World::take_events`], among all the rest that an engine must know.
///
/// ```
/// use std::time::Duration;
/// use karpenter_core::{Timestamp, api::{NodeClaim, Pod}, engine::{Action, ActionId, ActionResult, Event, Request}};
/// use karpenter_fake::{generated_catalog, sim::{Workload, World}};
///
/// let mut world = World::new(1, generated_catalog());
/// world.apply(Workload::deployment("web", 3, Pod::named("web").label("app", "web").cpu("100m"))?);
/// world.advance(Timestamp::from_millis(1_000));
/// assert_eq!(world.pods_without_node(), 3);
///
/// // An engine would see the pods, and ask for a node; here the machine is asked for at once.
/// let claim = world.api_mut().create(NodeClaim::named("first"))?;
/// world.execute(Request { id: ActionId(1), action: Action::Launch(Box::new(NodeClaim::clone(&claim))) });
/// world.advance(Timestamp::from_millis(60_000));
/// let launched = world.take_events().into_iter().any(|event| {
///     matches!(event, Event::Done { id: ActionId(1), result: ActionResult::Launched(Ok(_)) })
/// });
/// assert!(launched);
/// assert!(world.bill().micro_dollars() > 0);
/// assert_eq!(world.take_breaches(), []);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct World {
    now: Timestamp,
    options: WorldOptions,
    rng: Rng,
    api: ApiServer,
    cloud: Arc<FakeCloud>,
    timeline: Timeline<Happening>,
    scheduler: Scheduler,
    workloads: Workloads,
    daemons: Daemons,
    budgets: Budgets,
    kubelets: Kubelets,
    lifecycle: Lifecycle,
    attacher: Attacher,
    disks: Disks,
    invariants: Invariants,
    /// Who listens now.
    caller: Caller,
    /// What was not taken yet.
    events: Vec<Event>,
}

/// The engine that asks for something, by how many there were before: answers to one that was stopped reach nobody.
type Caller = u32;

/// Names one very pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PodRef {
    pub(crate) key: ObjectKey,
    pub(crate) uid: String,
}

impl PodRef {
    pub(crate) fn of(pod: &Pod) -> Self {
        Self { key: pod.key(), uid: pod.metadata.uid.clone() }
    }
}

/// What happens at some time.
#[derive(Clone, Debug)]
pub(crate) enum Happening {
    PodStarts(PodRef),
    PodEnds(PodRef),
    PodStops(PodRef),
    PodForgotten(PodRef),
    NodeJoins(ProviderId),
    NodeReady(String),
    DevicesReady(String),
    StartupDone(String),
    LeaseLost(String),
    MachineMissed(String),
    NodeForgotten(String),
    TaintEvicts(String),
    OwnerGone(String),
    VolumesMade { pod: PodRef, node: String },
    VolumeFree { volume: String, node: String },
    Execute(Caller, Box<Request>),
    Answer(Caller, ActionId, Box<ActionResult>),
    WatchReturns,
    Audit,
}

/// How often is looked for what is true for too long.
const AUDIT_EVERY: Duration = Duration::from_mins(1);

impl World {
    /// An empty cluster at the beginning of 1970, beside a cloud that sells this.
    pub fn new(seed: u64, catalog: Arc<Catalog>) -> Self {
        let cloud =
            FakeCloud::new(catalog).launch_delay(Duration::from_secs(40)).termination_delay(Duration::from_secs(30));
        Self::with(seed, Arc::new(cloud), WorldOptions::default())
    }

    /// An empty cluster beside this cloud, at the cloud's time.
    pub fn with(seed: u64, cloud: Arc<FakeCloud>, options: WorldOptions) -> Self {
        let rng = Rng::new(seed);
        let now = cloud.now();
        let mut api = ApiServer::default();
        api.set_now(now);
        api.follow();
        api.connect();
        let mut timeline = Timeline::new();
        timeline.plan(now + AUDIT_EVERY, Happening::Audit);
        Self {
            now,
            options,
            api,
            cloud,
            timeline,
            scheduler: Scheduler::new(rng.fork(1)),
            workloads: Workloads::new(rng.fork(2)),
            daemons: Daemons::default(),
            budgets: Budgets::default(),
            kubelets: Kubelets::new(rng.fork(3)),
            lifecycle: Lifecycle::new(rng.fork(4)),
            attacher: Attacher::new(rng.fork(6)),
            disks: Disks::default(),
            invariants: Invariants::default(),
            caller: 0,
            events: Vec::new(),
            rng: rng.fork(5),
        }
    }

    /// What time it is.
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// The cloud, to be looked at and to be troubled.
    pub fn cloud(&self) -> &Arc<FakeCloud> {
        &self.cloud
    }

    /// The API server.
    pub fn api(&self) -> &ApiServer {
        &self.api
    }

    /// The API server, to put objects into the cluster. What follows from a change happens in the next
    /// [`World::advance`].
    pub fn api_mut(&mut self) -> &mut ApiServer {
        &mut self.api
    }

    /// Runs a workload, or changes the one of its name.
    pub fn apply(&mut self, workload: Workload) {
        let selector = workload.clone();
        let uid = self.workloads.apply(workload);
        if let Some(selector) = selector.selector(&uid) {
            self.scheduler.know_workload(&uid, selector);
        }
    }

    /// Says how many pods a workload has; whether there is one of this name.
    pub fn scale(&mut self, workload: &ObjectKey, replicas: u32) -> bool {
        self.workloads.scale(workload, replicas)
    }

    /// The workload of this name, if it is not deleted.
    pub fn workload(&self, workload: &ObjectKey) -> Option<&Workload> {
        self.workloads.get(workload)
    }

    /// Deletes a workload with its pods; whether there was one of this name.
    pub fn delete_workload(&mut self, workload: &ObjectKey) -> bool {
        let uid = self.workloads.delete(workload);
        if let Some(uid) = &uid {
            self.scheduler.forget_workload(uid);
        }
        uid.is_some()
    }

    /// How many pods wait for a node.
    pub fn pods_without_node(&self) -> usize {
        self.scheduler.waiting()
    }

    /// Everything that is in the cluster now, as one value.
    ///
    /// # Errors
    /// Never for objects that came in through [`ApiServer::create`].
    pub fn snapshot(&self) -> Result<Snapshot, SnapshotError> {
        self.api.snapshot()
    }

    /// What all machines came to so far.
    pub fn bill(&self) -> Bill {
        self.cloud.bill()
    }

    /// What became known since the last call, in order.
    pub fn take_events(&mut self) -> Vec<Event> {
        self.gather();
        std::mem::take(&mut self.events)
    }

    /// The whole cluster to be looked at anew for broken rules, where each step looks at what it changes alone. That may
    /// be done on another thread while the world goes on.
    pub fn inspection(&mut self) -> Inspection {
        self.settle();
        self.invariants.inspection(&self.api)
    }

    /// The rules that were broken since the last call.
    pub fn take_breaches(&mut self) -> Vec<Breach> {
        self.invariants.take()
    }

    /// Loses the watch for so long. Changes in between are not told; afterwards all objects are told anew.
    pub fn lose_watch(&mut self, duration: Duration) {
        self.gather();
        self.api.disconnect();
        self.timeline.plan(self.now + duration, Happening::WatchReturns);
    }

    /// Forgets what was not taken and starts the watch anew, as for an engine that has crashed and starts again. Actions
    /// of before are still carried out, but what comes of them is not told.
    pub fn restart_watch(&mut self) {
        self.caller += 1;
        self.events.clear();
        self.api.connect();
    }

    /// Gives a node a condition, such as those that node repair looks for. One that is not `Ready` takes no more pods, and loses
    /// those that it has after five minutes.
    pub fn set_node_condition(&mut self, node: &str, condition: &str, status: ConditionStatus) {
        let now = self.now;
        if condition == "Ready" {
            Lifecycle::set_ready(node, status, now, &mut self.api, &self.kubelets);
            return;
        }
        let key = super::api_server::cluster_key(node);
        self.api.modify::<karpenter_core::api::Node>(&key, |node| {
            let conditions = &mut node.status.conditions;
            super::controllers::set_condition(conditions, condition, status, "Injected", now);
        });
    }

    /// When the next thing happens, as far as is known.
    pub fn next_at(&self) -> Option<Timestamp> {
        let all = [self.timeline.next_at(), self.scheduler.next_at(), self.cloud.next_departure()];
        all.into_iter().flatten().min().map(|at| at.max(self.now))
    }

    /// Lets time pass until then.
    pub fn advance(&mut self, to: Timestamp) {
        self.settle();
        while let Some(at) = self.next_at().filter(|at| *at <= to) {
            self.step(at);
        }
        self.set_now(to);
    }

    /// Lets time pass until there is something to tell, but not beyond then; tells the time it is.
    pub fn advance_to_news(&mut self, to: Timestamp) -> Timestamp {
        self.settle();
        self.gather();
        while self.events.is_empty() {
            let Some(at) = self.next_at().filter(|at| *at <= to) else {
                self.set_now(to);
                break;
            };
            self.step(at);
            self.gather();
        }
        self.now
    }

    /// What happens at one time.
    fn step(&mut self, at: Timestamp) {
        self.set_now(at);
        while let Some((_, happening)) = self.timeline.pop_until(at) {
            self.happen(happening);
            self.settle();
        }
        self.settle();
    }

    fn set_now(&mut self, now: Timestamp) {
        self.now = self.now.max(now);
        self.api.set_now(self.now);
        self.cloud.set_now(self.now);
    }

    fn gather(&mut self) {
        let told = self.api.take_events();
        self.events.extend(told);
    }

    /// Lets all controllers see all changes, and act, until nothing changes any more.
    fn settle(&mut self) {
        for machine in self.cloud.take_departed() {
            let (kubelets, timeline) = (&mut self.kubelets, &mut self.timeline);
            self.lifecycle.die(&machine, self.now, kubelets, timeline, &self.options);
        }
        loop {
            self.workloads.reconcile(&mut self.api);
            self.daemons.reconcile(&mut self.api);
            self.budgets.reconcile(&mut self.api, &self.workloads);
            let changes = self.api.take_changes();
            for change in &changes {
                self.scheduler.observe(change, &self.api, self.now);
                self.workloads.observe(change);
                self.daemons.observe(change, &self.api);
                self.budgets.observe(change, &self.api);
                self.kubelets.observe(change, self.now, &mut self.timeline, &self.options);
                Lifecycle::observe(change, self.now, &mut self.timeline, &self.options);
                self.attacher.observe(change, self.now, &mut self.api, &mut self.timeline, &self.options);
                Disks::observe(change, &mut self.api);
                self.invariants.observe(change);
            }
            if changes.is_empty() && !self.bind_next() {
                return;
            }
        }
    }

    /// Tries one pod; whether there was one to try.
    fn bind_next(&mut self) -> bool {
        let Some(Decision { pod, node }) = self.scheduler.decide(self.now) else { return false };
        let now = self.now;
        if let Ok(node) = &node
            && let Some(waits) = self.api.get::<Pod>(&pod).filter(|pod| Disks::are_to_be_made(pod, &self.api))
        {
            // Until then the node is kept for the pod, and says so (`NominatedNodeNameForExpectation`).
            let at = now + self.rng.duration(&self.options.volume_make_delay);
            self.timeline.plan(at, Happening::VolumesMade { pod: PodRef::of(waits), node: node.clone() });
            self.api.modify::<Pod>(&pod, |pod| pod.status.nominated_node_name.clone_from(node));
            return true;
        }
        self.api.modify::<Pod>(&pod, |pod| {
            let conditions = &mut pod.status.conditions;
            match node {
                Ok(node) => {
                    pod.status.nominated_node_name.clear();
                    pod.spec.node_name = node;
                    super::controllers::set_condition(conditions, "PodScheduled", ConditionStatus::True, "", now);
                }
                Err(message) => {
                    let (kind, reason) = ("PodScheduled", "Unschedulable");
                    super::controllers::set_condition(conditions, kind, ConditionStatus::False, reason, now);
                    // Only the first message is told: a later one changes no decision.
                    let refused = conditions.iter_mut().find(|c| c.r#type == kind && c.message.is_empty());
                    if let Some(condition) = refused {
                        condition.message = message;
                    }
                }
            }
        });
        true
    }

    /// The volumes of a pod can be made now, and the pod bound. If its node is gone, or its volumes were made elsewhere for
    /// another pod, it needs another node.
    fn bind_with_volumes(&mut self, pod: &PodRef, node: &str) {
        let is_meant = |found: &&Arc<Pod>| {
            found.metadata.uid == pod.uid && found.spec.node_name.is_empty() && found.status.nominated_node_name == node
        };
        let Some(found) = self.api.get::<Pod>(&pod.key).filter(is_meant).cloned() else { return };
        let is_bound = self.api.node(node).is_some() && Disks::are_to_be_made(&found, &self.api);
        if is_bound {
            self.disks.make(&found, node, &mut self.api);
        }
        let now = self.now;
        let pod = self.api.modify::<Pod>(&pod.key, |pod| {
            pod.status.nominated_node_name.clear();
            if is_bound {
                node.clone_into(&mut pod.spec.node_name);
                super::controllers::set_condition(
                    &mut pod.status.conditions,
                    "PodScheduled",
                    ConditionStatus::True,
                    "",
                    now,
                );
            }
        });
        if let Some(pod) = pod.filter(|_| !is_bound) {
            self.scheduler.retry(&pod, now);
        }
    }

    fn happen(&mut self, happening: Happening) {
        let (now, api, timeline, options) = (self.now, &mut self.api, &mut self.timeline, &self.options);
        match happening {
            Happening::PodStarts(pod) => self.kubelets.start(&pod, now, api, &self.workloads, timeline),
            Happening::PodEnds(pod) => self.kubelets.end(&pod, now, api, timeline, options),
            Happening::PodStops(pod) => self.kubelets.stop(&pod, api),
            Happening::PodForgotten(pod) => api.confirm_end(&pod.key, &pod.uid),
            Happening::NodeJoins(id) => self.lifecycle.join(&id, now, (&self.cloud, api), timeline, options),
            Happening::NodeReady(node) => self.lifecycle.ready(&node, now, api, timeline, options),
            Happening::DevicesReady(node) => self.lifecycle.show_devices(&node, api),
            Happening::StartupDone(node) => self.lifecycle.finish_startup(&node, now, api, timeline),
            Happening::LeaseLost(node) => Lifecycle::lose(&node, now, api, &self.kubelets, timeline),
            Happening::MachineMissed(node) => {
                // The node may be gone already, which is as well.
                let _ = api.delete::<karpenter_core::api::Node>(&super::api_server::cluster_key(&node), "");
            }
            Happening::NodeForgotten(node) => Lifecycle::forget_pods(&node, api, &self.kubelets),
            Happening::TaintEvicts(node) => Lifecycle::evict_untolerant(&node, api, &self.kubelets),
            Happening::VolumesMade { pod, node } => self.bind_with_volumes(&pod, &node),
            Happening::VolumeFree { volume, node } => Attacher::detach(&volume, &node, api, &self.kubelets),
            Happening::OwnerGone(uid) => Lifecycle::delete_owned(&uid, api),
            Happening::Execute(caller, request) => self.carry_out(caller, *request),
            Happening::Answer(caller, id, result) => self.tell(caller, id, *result),
            Happening::WatchReturns => api.connect(),
            Happening::Audit => {
                self.invariants.audit(now, &self.cloud);
                timeline.plan(now + AUDIT_EVERY, Happening::Audit);
            }
        }
    }

    fn tell(&mut self, caller: Caller, id: ActionId, result: ActionResult) {
        if caller != self.caller {
            return;
        }
        self.gather();
        self.events.push(Event::Done { id, result });
    }
}
