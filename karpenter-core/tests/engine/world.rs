//! A cluster of a few lines: it does what the engine asks for, its machines join after a while, and its pods are bound where
//! they fit.

mod acts;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use karpenter_core::{
    InstanceType, OfferingKey, Price, Quantity, Timestamp,
    api::{
        Condition, ConditionStatus, Node, NodeClaim, NodeOverlay, NodePool, ObjectKey, Pod, Taint, TaintEffect,
        tolerates_all,
    },
    cluster::pod_requests,
    engine::{Action, Engine, EngineOptions, Event, Object, ObjectRef, Refusal, Request, UnreadablePod},
    labels,
    provider::{CreateError, Instance, ProviderErrorKind, ProviderEvent},
};

/// More rounds of question and answer than this at one moment are a loop.
const MAX_ROUNDS: usize = 100;

/// A pool that keeps so many nodes.
pub(crate) fn static_pool(replicas: u32) -> NodePool {
    let mut pool = NodePool::named("fixed");
    pool.spec.replicas = Some(replicas);
    pool
}

/// No node goes by itself.
pub(crate) fn still() -> EngineOptions {
    let mut options = EngineOptions::default();
    options.disruption_period = None;
    options
}

pub(crate) struct Machine {
    pub(crate) instance: Instance,
    pub(crate) instance_type: InstanceType,
    pub(crate) launched: Timestamp,
}

#[expect(clippy::struct_excessive_bools, reason = "each is something that may go wrong")]
pub(crate) struct World {
    pub(crate) engine: Engine,
    pub(crate) options: EngineOptions,
    pub(crate) now: Timestamp,
    pub(crate) pools: BTreeMap<String, NodePool>,
    pub(crate) overlays: BTreeMap<String, NodeOverlay>,
    pub(crate) claims: BTreeMap<String, NodeClaim>,
    pub(crate) nodes: BTreeMap<String, Node>,
    pub(crate) pods: BTreeMap<ObjectKey, Pod>,
    pub(crate) machines: BTreeMap<String, Machine>,
    pub(crate) types: Vec<InstanceType>,
    pub(crate) exhausted: BTreeSet<OfferingKey>,
    /// Answers to the next launches, instead of machines.
    pub(crate) launch_errors: Vec<CreateError>,
    /// Why the node class cannot be used, if it cannot.
    pub(crate) class_fault: Option<String>,
    /// How each question for a catalog fails, if so.
    pub(crate) catalog_error: Option<ProviderErrorKind>,
    pub(crate) join_after: Duration,
    pub(crate) never_joins: bool,
    /// Whether machines have the names of slots, of which the first free one is taken.
    pub(crate) reuses_ids: bool,
    /// Pods that a disruption budget holds.
    pub(crate) held: BTreeSet<ObjectKey>,
    /// Whether evicted pods are gone before the eviction is answered.
    pub(crate) ends_pods_at_once: bool,
    /// So many writes of nodes come second: somebody else has written the node, and the engine hears of that first.
    pub(crate) contested_node_writes: usize,
    /// So many writes of claims that say why they go come second.
    pub(crate) contested_reasons: usize,
    /// Why the API server deletes no claims, if so.
    pub(crate) deletion_refusal: Option<Refusal>,
    /// The API server takes no claims.
    pub(crate) cannot_create_claims: bool,
    /// Why the API server takes no claim that says which machine it has, if so.
    pub(crate) machine_refusal: Option<Refusal>,
    /// Why the API server takes no node as the engine writes it, if so.
    pub(crate) node_refusal: Option<Refusal>,
    /// So many claims are made late: when they are taken from `kept_claims`.
    pub(crate) late_claims: usize,
    pub(crate) kept_claims: Vec<Request>,
    /// Names of pods that the kube-scheduler never binds.
    pub(crate) unbindable: BTreeSet<String>,
    /// Whether the kube-scheduler binds each pod to the node that has most CPU left, instead of the first one.
    pub(crate) spreads: bool,
    pub(crate) provider_events: Vec<ProviderEvent>,
    /// The answers to so many lists of machines come late: when they are taken from `kept_lists`.
    pub(crate) late_lists: usize,
    pub(crate) kept_lists: Vec<Event>,
    /// Whether the provider is silent when it is asked for drift.
    pub(crate) is_silent_on_drift: bool,
    /// What the nodes of a type have less than their type says.
    pub(crate) memory_lie: Quantity,
    /// After how many requests the engine is stopped.
    pub(crate) requests_until_crash: Option<usize>,
    pub(crate) log: Vec<String>,
    /// How many machines there ever were.
    pub(crate) bought: usize,
    version: u64,
    uids: u64,
}

pub(crate) fn at(seconds: i64) -> Timestamp {
    Timestamp::from_millis(seconds * 1000)
}

pub(crate) fn small_and_large() -> Vec<InstanceType> {
    let of = |name: &str, cpu: i64, dollars: f64| {
        InstanceType::named(name, [("cpu", Quantity::from_units(cpu)), ("memory", Quantity::from_bytes(cpu << 32))])
            .offering("on-demand", "zone-a", Price::per_hour(dollars).expect("a price"))
    };
    vec![of("small", 2, 0.1), of("large", 8, 0.4)]
}

impl World {
    pub(crate) fn new(options: EngineOptions) -> Self {
        let mut world = Self {
            engine: Engine::new(options.clone()),
            options,
            now: at(1_000_000),
            pools: BTreeMap::new(),
            overlays: BTreeMap::new(),
            claims: BTreeMap::new(),
            nodes: BTreeMap::new(),
            pods: BTreeMap::new(),
            machines: BTreeMap::new(),
            types: small_and_large(),
            exhausted: BTreeSet::new(),
            launch_errors: Vec::new(),
            class_fault: None,
            catalog_error: None,
            join_after: Duration::from_secs(30),
            never_joins: false,
            reuses_ids: false,
            held: BTreeSet::new(),
            ends_pods_at_once: false,
            contested_node_writes: 0,
            contested_reasons: 0,
            deletion_refusal: None,
            cannot_create_claims: false,
            machine_refusal: None,
            node_refusal: None,
            late_claims: 0,
            kept_claims: Vec::new(),
            unbindable: BTreeSet::new(),
            spreads: false,
            provider_events: Vec::new(),
            late_lists: 0,
            kept_lists: Vec::new(),
            is_silent_on_drift: false,
            memory_lie: Quantity::ZERO,
            requests_until_crash: None,
            log: Vec::new(),
            bought: 0,
            version: 0,
            uids: 0,
        };
        world.engine.observe(Event::Synced, world.now);
        world
    }

    /// A world with a pool whose nodes go as soon as they may.
    pub(crate) fn with_pool(options: EngineOptions) -> Self {
        let mut world = Self::new(options);
        world.put_pool(NodePool::named("general"));
        world
    }

    /// The engine is stopped, and another one is told all objects.
    pub(crate) fn crash(&mut self) {
        self.engine = Engine::new(self.options.clone());
        let pools = self.pools.values().cloned().map(|pool| Object::NodePool(Arc::new(pool)));
        let overlays = self.overlays.values().cloned().map(|overlay| Object::NodeOverlay(Arc::new(overlay)));
        let claims = self.claims.values().cloned().map(|claim| Object::NodeClaim(Arc::new(claim)));
        let nodes = self.nodes.values().cloned().map(|node| Object::Node(Arc::new(node)));
        let pods = self.pods.values().cloned().map(|pod| Object::Pod(Arc::new(pod)));
        for object in pods.chain(nodes).chain(claims).chain(pools).chain(overlays) {
            self.engine.observe(Event::Applied(object), self.now);
        }
        self.engine.observe(Event::Synced, self.now);
    }

    /// Lets time pass, second by second.
    pub(crate) fn run(&mut self, seconds: u64) {
        for _ in 0..seconds {
            self.now = self.now + Duration::from_secs(1);
            self.settle();
        }
    }

    pub(crate) fn run_until(&mut self, seconds: u64, mut is_reached: impl FnMut(&Self) -> bool) {
        for _ in 0..seconds {
            if is_reached(self) {
                return;
            }
            self.run(1);
        }
        assert!(is_reached(self), "not within {seconds} s: {:#?}", self.log);
    }

    /// What happens at this moment, until nothing more does.
    pub(crate) fn settle(&mut self) {
        self.kubelet();
        for _ in 0..MAX_ROUNDS {
            self.collect_pods();
            self.schedule();
            let requests = self.engine.tick(self.now);
            if requests.is_empty() && self.engine.next_wake().is_none_or(|wake| self.now < wake) {
                return;
            }
            for request in requests {
                if self.requests_until_crash == Some(0) {
                    // What else was asked for is never done.
                    self.requests_until_crash = None;
                    self.crash();
                    break;
                }
                self.requests_until_crash = self.requests_until_crash.map(|count| count - 1);
                self.carry_out(request);
            }
        }
        panic!("the engine asks without end at {}: {:#?}", self.now, self.log);
    }

    pub(crate) fn carry_out(&mut self, request: Request) {
        if !matches!(request.action, Action::Catalog(_) | Action::List | Action::NextEvents(_) | Action::Drift(_)) {
            self.log.push(format!("{} {}", self.now.as_millis() / 1000 - 1_000_000, named(&request.action)));
        }
        if self.is_silent_on_drift && matches!(request.action, Action::Drift(_)) {
            return;
        }
        if matches!(request.action, Action::CreateClaim(_)) && self.late_claims > 0 {
            self.late_claims -= 1;
            self.kept_claims.push(request);
            return;
        }
        let is_late = matches!(request.action, Action::List) && self.late_lists > 0;
        let done = Event::Done { id: request.id, result: self.act(request.action) };
        if is_late {
            self.late_lists -= 1;
            self.kept_lists.push(done);
        } else {
            self.engine.observe(done, self.now);
        }
    }

    /// Machines join after a while, nodes of machines that are gone are not ready, and pods end.
    fn kubelet(&mut self) {
        let joined: Vec<Node> = self
            .machines
            .values()
            .filter(|m| !self.never_joins && m.launched + self.join_after <= self.now)
            .filter(|m| !self.nodes.contains_key(&self.node_name(m)))
            .map(|machine| self.node_of(machine))
            .collect();
        for node in joined {
            self.put_node(node);
        }
        let alive: BTreeSet<String> = self.machines.values().map(|machine| self.node_name(machine)).collect();
        let dead: Vec<Node> = self.nodes.values().filter(|n| !alive.contains(&n.metadata.name)).cloned().collect();
        for mut node in dead {
            if node.status.conditions[0].status == ConditionStatus::True {
                node.status.conditions[0].status = ConditionStatus::Unknown;
                self.put_node(node);
            }
        }
    }

    fn collect_pods(&mut self) {
        let is_over = |pod: &Pod| {
            let is_due = pod.metadata.deletion_timestamp.is_some_and(|gone| gone <= self.now);
            let node = &pod.spec.node_name;
            is_due || !node.is_empty() && !self.nodes.contains_key(node)
        };
        let over: Vec<Pod> = self.pods.values().filter(|pod| is_over(pod)).cloned().collect();
        for pod in over {
            self.pods.remove(&pod.key());
            self.engine.observe(Event::Deleted(ObjectRef::Pod(pod.key())), self.now);
            self.uids += 1;
            let mut next = pod;
            next.metadata.name = format!("again-{}", self.uids);
            next.metadata.uid.clone_from(&next.metadata.name);
            next.metadata.deletion_timestamp = None;
            next.spec.node_name = String::new();
            next.status = karpenter_core::api::PodStatus::unschedulable();
            self.put_pod(next);
        }
    }

    fn node_name(&self, machine: &Machine) -> String {
        let Instance { id, claim_uid, .. } = &machine.instance;
        if self.reuses_ids { format!("node-of-{id}-{claim_uid}") } else { format!("node-of-{id}") }
    }

    fn node_of(&self, machine: &Machine) -> Node {
        let mut node = Node::default();
        node.metadata.name = self.node_name(machine);
        node.metadata.uid.clone_from(&node.metadata.name);
        node.metadata.creation_timestamp = Some(self.now);
        node.metadata.labels.clone_from(&machine.instance.labels);
        node.spec.provider_id = machine.instance.id.to_string();
        node.spec.taints.push(Taint::new(labels::UNREGISTERED, "", TaintEffect::NoExecute));
        node.status.capacity = machine.instance_type.capacity.clone();
        node.status.allocatable = machine.instance_type.allocatable();
        let memory = node.status.allocatable.get("memory").expect("memory").saturating_sub(self.memory_lie);
        node.status.allocatable.insert("memory".into(), memory);
        let mut ready = Condition::default();
        "Ready".clone_into(&mut ready.r#type);
        ready.status = ConditionStatus::True;
        ready.last_transition_time = Some(self.now);
        node.status.conditions.push(ready);
        node
    }

    /// Binds each pod to a node on which it fits.
    fn schedule(&mut self) {
        let waiting: Vec<Pod> =
            self.pods.values().filter(|p| p.spec.node_name.is_empty() && !p.is_terminating()).cloned().collect();
        for mut pod in waiting {
            if self.unbindable.contains(&pod.metadata.name) {
                continue;
            }
            let left = |node: &Node| {
                let mut free = node.status.allocatable.clone();
                for other in self.pods.values().filter(|p| p.spec.node_name == node.metadata.name) {
                    free.subtract(&pod_requests(other));
                }
                free.subtract(&pod_requests(&pod));
                free
            };
            let fits = |node: &&Node| {
                let is_tolerated = tolerates_all(&pod.spec.tolerations, &node.spec.taints, false).is_ok();
                let selects = pod.spec.node_selector.iter().all(|(k, v)| node.metadata.labels.get(k) == Some(v));
                is_tolerated && selects && left(node).iter().all(|(_, quantity)| !quantity.is_negative())
            };
            let mut fitting = self.nodes.values().filter(fits);
            let chosen = if self.spreads { fitting.max_by_key(|node| left(node).get("cpu")) } else { fitting.next() };
            if let Some(node) = chosen.map(|node| node.metadata.name.clone()) {
                pod.spec.node_name = node;
                pod.status = karpenter_core::api::PodStatus::default();
                let mut bound = Condition::default();
                "PodScheduled".clone_into(&mut bound.r#type);
                (bound.status, bound.last_transition_time) = (ConditionStatus::True, Some(self.now));
                pod.status.conditions.push(bound);
                "Running".clone_into(&mut pod.status.phase);
                self.put_pod(pod);
            }
        }
    }

    fn end_pod(&mut self, key: &ObjectKey, grace: Duration) {
        if let Some(mut pod) = self.pods.get(key).cloned() {
            pod.metadata.deletion_timestamp = Some(self.now + grace);
            self.put_pod(pod);
        }
    }

    fn next_version(&mut self) -> String {
        self.version += 1;
        self.version.to_string()
    }

    pub(crate) fn put_pool(&mut self, mut pool: NodePool) {
        pool.metadata.resource_version = self.next_version();
        self.pools.insert(pool.name().to_owned(), pool.clone());
        self.engine.observe(Event::Applied(Object::NodePool(Arc::new(pool))), self.now);
    }

    pub(crate) fn put_overlay(&mut self, mut overlay: NodeOverlay) {
        overlay.metadata.resource_version = self.next_version();
        self.overlays.insert(overlay.name().to_owned(), overlay.clone());
        self.engine.observe(Event::Applied(Object::NodeOverlay(Arc::new(overlay))), self.now);
    }

    pub(crate) fn put_claim(&mut self, mut claim: NodeClaim) {
        claim.metadata.resource_version = self.next_version();
        if claim.metadata.deletion_timestamp.is_some() && claim.metadata.finalizers.is_empty() {
            self.claims.remove(claim.name());
            self.engine.observe(Event::Deleted(ObjectRef::NodeClaim(claim.name().to_owned())), self.now);
            return;
        }
        self.claims.insert(claim.name().to_owned(), claim.clone());
        self.engine.observe(Event::Applied(Object::NodeClaim(Arc::new(claim))), self.now);
    }

    pub(crate) fn put_node(&mut self, mut node: Node) {
        node.metadata.resource_version = self.next_version();
        let name = node.metadata.name.clone();
        if node.metadata.deletion_timestamp.is_some() && node.metadata.finalizers.is_empty() {
            self.nodes.remove(&name);
            self.engine.observe(Event::Deleted(ObjectRef::Node(name)), self.now);
            return;
        }
        self.nodes.insert(name, node.clone());
        self.engine.observe(Event::Applied(Object::Node(Arc::new(node))), self.now);
    }

    pub(crate) fn put_pod(&mut self, pod: Pod) {
        self.pods.insert(pod.key(), pod.clone());
        self.engine.observe(Event::Applied(Object::Pod(Arc::new(pod))), self.now);
    }

    /// The engine is told of a pod that it cannot be read any more, save its annotations.
    pub(crate) fn garble_pod(&mut self, key: &ObjectKey) {
        let pod = &self.pods[key];
        let mut rest = Pod::default();
        rest.metadata.annotations.clone_from(&pod.metadata.annotations);
        let pod = UnreadablePod::new(key.clone(), &pod.metadata.uid, &pod.spec.node_name).with_rest(rest);
        self.engine.observe(Event::Applied(Object::UnreadablePod(pod)), self.now);
    }

    pub(crate) fn remove_pod(&mut self, key: &ObjectKey) {
        self.pods.remove(key);
        self.engine.observe(Event::Deleted(ObjectRef::Pod(key.clone())), self.now);
    }

    /// Pending pods of so much CPU, named `<name>-<index>`.
    pub(crate) fn add_pods(&mut self, name: &str, count: usize, cpu: &str) {
        for index in 0..count {
            let workload: karpenter_core::api::Workload =
                Pod::named(format!("{name}-{index}")).cpu(cpu).memory("1Gi").into();
            let snapshot = karpenter_core::Snapshot::builder().pods(workload).build().expect("a pod");
            let mut pod = snapshot.pods()[0].as_ref().clone();
            pod.metadata.uid.clone_from(&pod.metadata.name);
            self.put_pod(pod);
        }
    }

    pub(crate) fn unbound(&self) -> usize {
        self.pods.values().filter(|pod| pod.spec.node_name.is_empty()).count()
    }

    pub(crate) fn count(&self, what: &str) -> usize {
        self.log.iter().filter(|line| line.contains(what)).count()
    }
}

fn named(action: &Action) -> String {
    match action {
        Action::CreateClaim(claim) => format!("create {}", claim.name()),
        Action::UpdateClaim(claim) => format!("update claim {}", claim.name()),
        Action::UpdateNode(node) => format!("update node {}", node.metadata.name),
        Action::UpdatePool(pool) => format!("update pool {}", pool.name()),
        Action::UpdateOverlay(overlay) => format!("update overlay {}", overlay.name()),
        Action::Launch(claim) => format!("launch {}", claim.name()),
        Action::Note(note) => format!("note {} {}", note.reason, note.message),
        other => format!("{other:?}"),
    }
}
