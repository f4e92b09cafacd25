//! A cluster of a few lines around the engine and the provider: machines join after half a minute, and pods are bound
//! where they fit. The AWS may be one in memory or a server.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures_util::future::join_all;
use karpenter_aws::{
    Clock,
    ec2::instance::Ec2Instance,
    mem::{ManualClock, MemoryAws},
    provider::Ec2Provider,
};
use karpenter_core::{
    ResourceList, Snapshot, Timestamp,
    api::{
        Condition, ConditionStatus, Node, NodeClaim, NodePool, ObjectKey, Pod, PodStatus, Taint, TaintEffect, Workload,
        tolerates_all,
    },
    cluster::pod_requests,
    engine::{Action, ActionResult, Engine, EngineOptions, Event, Note, Object, ObjectRef, Refusal, Request},
    labels,
    provider::ProviderId,
};

/// More rounds of question and answer than this at one moment are a loop.
const MAX_ROUNDS: usize = 100;
/// So long after it was bought a machine is a node.
const JOINS_AFTER: Duration = Duration::from_secs(30);

/// An AWS that tells which machines there are.
pub(crate) trait Machines {
    /// Those that are not on their way out.
    async fn there(&self) -> Vec<Ec2Instance>;
}

pub(crate) struct Cluster<A = MemoryAws> {
    pub(crate) aws: A,
    clock: ManualClock,
    pub(crate) provider: Ec2Provider,
    engine: Engine,
    /// When each machine was first there.
    since: BTreeMap<String, Timestamp>,
    pub(crate) claims: BTreeMap<String, NodeClaim>,
    pub(crate) nodes: BTreeMap<String, Node>,
    pub(crate) pods: BTreeMap<ObjectKey, Pod>,
    /// What people were told.
    pub(crate) notes: Vec<Note>,
    /// How many objects were written.
    version: u64,
}

impl<A: Machines> Cluster<A> {
    /// A cluster with a pool and nothing else. The provider has the same clock.
    pub(crate) fn with(aws: A, clock: ManualClock, provider: Ec2Provider, pool: NodePool) -> Self {
        let mut cluster = Self {
            aws,
            clock,
            provider,
            engine: Engine::new(EngineOptions::default()),
            since: BTreeMap::new(),
            claims: BTreeMap::new(),
            nodes: BTreeMap::new(),
            pods: BTreeMap::new(),
            notes: Vec::new(),
            version: 0,
        };
        cluster.put_pool(pool);
        cluster.observe(Event::Synced);
        cluster
    }

    /// The pool, as it is now.
    pub(crate) fn put_pool(&mut self, mut pool: NodePool) {
        pool.metadata.resource_version = self.next_version();
        self.observe(Event::Applied(Object::NodePool(Arc::new(pool))));
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    fn observe(&mut self, event: Event) {
        let now = self.now();
        self.engine.observe(event, now);
    }

    pub(crate) async fn run(&mut self, seconds: u64) {
        for _ in 0..seconds {
            self.clock.advance(Duration::from_secs(1));
            self.settle().await;
        }
    }

    /// What happens at this moment, until nothing more does.
    async fn settle(&mut self) {
        self.join_nodes().await;
        for _ in 0..MAX_ROUNDS {
            self.collect_pods();
            self.bind();
            let now = self.now();
            let requests = self.engine.tick(now);
            if requests.is_empty() && self.engine.next_wake().is_none_or(|wake| now < wake) {
                return;
            }
            // What is asked of the cloud is asked at once, as by a controller.
            let (cloud, cluster): (Vec<Request>, Vec<Request>) =
                requests.into_iter().partition(|request| request.action.provider_method().is_some());
            for request in cluster {
                if let Action::Note(note) = &request.action {
                    self.notes.push(note.clone());
                }
                let result = self.write(request.action);
                self.observe(Event::Done { id: request.id, result });
            }
            let provider = self.provider.clone();
            let ids: Vec<_> = cloud.iter().map(|request| request.id).collect();
            let results = join_all(cloud.into_iter().map(|request| request.action.call(&provider))).await;
            for (id, result) in ids.into_iter().zip(results) {
                self.observe(Event::Done { id, result: result.expect("a call of the provider") });
            }
        }
        panic!("the engine asks without end");
    }

    fn write(&mut self, action: Action) -> ActionResult {
        match action {
            Action::CreateClaim(mut claim) => {
                claim.metadata.uid = format!("uid-{}", self.version);
                claim.metadata.creation_timestamp = Some(self.now());
                self.put_claim(*claim);
            }
            Action::UpdateClaim(claim) => {
                let known = self.claims.get(claim.name()).map(|known| &known.metadata.resource_version);
                if known != Some(&claim.metadata.resource_version) {
                    return ActionResult::Refused(Refusal::Conflict);
                }
                self.put_claim(*claim);
            }
            Action::DeleteClaim { name, .. } => {
                let Some(mut claim) = self.claims.get(&name).cloned() else {
                    return ActionResult::Refused(Refusal::NotFound);
                };
                claim.metadata.deletion_timestamp = claim.metadata.deletion_timestamp.or(Some(self.now()));
                self.put_claim(claim);
            }
            Action::UpdateNode(node) => {
                let known = self.nodes.get(&node.metadata.name).map(|known| &known.metadata.resource_version);
                if known != Some(&node.metadata.resource_version) {
                    return ActionResult::Refused(Refusal::Conflict);
                }
                self.put_node(*node);
            }
            Action::DeleteNode { name, .. } => {
                let Some(mut node) = self.nodes.get(&name).cloned() else {
                    return ActionResult::Refused(Refusal::NotFound);
                };
                node.metadata.deletion_timestamp = node.metadata.deletion_timestamp.or(Some(self.now()));
                self.put_node(node);
            }
            Action::Evict { pod, .. } | Action::DeletePod { pod, .. } => {
                let end = self.now() + Duration::from_secs(2);
                if let Some(mut pod) = self.pods.get(&pod).cloned() {
                    pod.metadata.deletion_timestamp = Some(end);
                    self.put_pod(pod);
                }
            }
            _ => {}
        }
        ActionResult::Written
    }

    /// Machines that are up become nodes, and nodes whose machine is gone are not ready.
    async fn join_nodes(&mut self) {
        let now = self.now();
        let there = self.aws.there().await;
        self.since.retain(|id, _| there.iter().any(|machine| machine.id == *id));
        let mut up: Vec<(String, ProviderId)> = Vec::new();
        for machine in there {
            if *self.since.entry(machine.id.clone()).or_insert(now) + JOINS_AFTER <= now {
                let id = ProviderId::new(format!("aws:///{}/{}", machine.zone, machine.id));
                up.push((machine.id, id));
            }
        }
        for (name, id) in &up {
            let claim = self.claims.values().find(|claim| claim.status.provider_id == id.as_str()).cloned();
            if let Some(claim) = claim.filter(|_| !self.nodes.contains_key(name)) {
                self.put_node(node_of(name, &claim, now));
            }
        }
        let is_lost = |node: &&Node| {
            let is_ready = node.status.conditions[0].status == ConditionStatus::True;
            is_ready && !up.iter().any(|(name, _)| *name == node.metadata.name)
        };
        let lost: Vec<Node> = self.nodes.values().filter(is_lost).cloned().collect();
        for mut node in lost {
            node.status.conditions[0].status = ConditionStatus::Unknown;
            self.put_node(node);
        }
    }

    /// Pods that ended, or whose node is gone, are made anew.
    fn collect_pods(&mut self) {
        let now = self.now();
        let is_over = |pod: &&Pod| {
            let node = &pod.spec.node_name;
            pod.metadata.deletion_timestamp.is_some_and(|end| end <= now)
                || !node.is_empty() && !self.nodes.contains_key(node)
        };
        let over: Vec<Pod> = self.pods.values().filter(is_over).cloned().collect();
        for pod in over {
            self.remove_pod(&pod.key());
            let mut next = pod;
            next.metadata.name = format!("again-{}", self.version);
            next.metadata.uid.clone_from(&next.metadata.name);
            next.metadata.deletion_timestamp = None;
            next.spec.node_name = String::new();
            next.status = PodStatus::unschedulable();
            self.put_pod(next);
        }
    }

    /// Binds each pod to the first node on which it fits.
    fn bind(&mut self) {
        let is_waiting = |pod: &&Pod| pod.spec.node_name.is_empty() && !pod.is_terminating();
        let waiting: Vec<Pod> = self.pods.values().filter(is_waiting).cloned().collect();
        for mut pod in waiting {
            let fits = |node: &&Node| {
                let mut free: ResourceList = node.status.allocatable.clone();
                for other in self.pods.values().filter(|other| other.spec.node_name == node.metadata.name) {
                    free.subtract(&pod_requests(other));
                }
                free.subtract(&pod_requests(&pod));
                let is_tolerated = tolerates_all(&pod.spec.tolerations, &node.spec.taints, false).is_ok();
                is_tolerated && free.iter().all(|(_, quantity)| !quantity.is_negative())
            };
            if let Some(node) = self.nodes.values().find(fits).map(|node| node.metadata.name.clone()) {
                pod.spec.node_name = node;
                pod.status = PodStatus::default();
                "Running".clone_into(&mut pod.status.phase);
                self.put_pod(pod);
            }
        }
    }

    fn next_version(&mut self) -> String {
        self.version += 1;
        self.version.to_string()
    }

    fn put_claim(&mut self, mut claim: NodeClaim) {
        claim.metadata.resource_version = self.next_version();
        if claim.metadata.deletion_timestamp.is_some() && claim.metadata.finalizers.is_empty() {
            self.claims.remove(claim.name());
            self.observe(Event::Deleted(ObjectRef::NodeClaim(claim.name().to_owned())));
            return;
        }
        self.claims.insert(claim.name().to_owned(), claim.clone());
        self.observe(Event::Applied(Object::NodeClaim(Arc::new(claim))));
    }

    fn put_node(&mut self, mut node: Node) {
        node.metadata.resource_version = self.next_version();
        let name = node.metadata.name.clone();
        if node.metadata.deletion_timestamp.is_some() && node.metadata.finalizers.is_empty() {
            self.nodes.remove(&name);
            self.observe(Event::Deleted(ObjectRef::Node(name)));
            return;
        }
        self.nodes.insert(name, node.clone());
        self.observe(Event::Applied(Object::Node(Arc::new(node))));
    }

    fn put_pod(&mut self, pod: Pod) {
        self.version += 1;
        self.pods.insert(pod.key(), pod.clone());
        self.observe(Event::Applied(Object::Pod(Arc::new(pod))));
    }

    fn remove_pod(&mut self, key: &ObjectKey) {
        self.pods.remove(key);
        self.observe(Event::Deleted(ObjectRef::Pod(key.clone())));
    }

    /// Pending pods of so much CPU.
    pub(crate) fn add_pods(&mut self, count: usize, cpu: &str) {
        for index in 0..count {
            let workload: Workload = Pod::named(format!("web-{index}")).cpu(cpu).memory("1Gi").into();
            let snapshot = Snapshot::builder().pods(workload).build().expect("a pod");
            let mut pod = snapshot.pods()[0].as_ref().clone();
            pod.metadata.uid.clone_from(&pod.metadata.name);
            self.put_pod(pod);
        }
    }

    pub(crate) fn remove_all_pods(&mut self) {
        for key in self.pods.keys().cloned().collect::<Vec<_>>() {
            self.remove_pod(&key);
        }
    }

    pub(crate) fn unbound(&self) -> usize {
        self.pods.values().filter(|pod| pod.spec.node_name.is_empty()).count()
    }
}

fn node_of(name: &str, claim: &NodeClaim, now: Timestamp) -> Node {
    let mut node = Node::default();
    name.clone_into(&mut node.metadata.name);
    name.clone_into(&mut node.metadata.uid);
    node.metadata.creation_timestamp = Some(now);
    node.metadata.labels.clone_from(&claim.metadata.labels);
    node.spec.provider_id.clone_from(&claim.status.provider_id);
    node.spec.taints.push(Taint::new(labels::UNREGISTERED, "", TaintEffect::NoExecute));
    node.status.capacity = claim.status.capacity.clone();
    node.status.allocatable = claim.status.allocatable.clone();
    let mut ready = Condition::default();
    "Ready".clone_into(&mut ready.r#type);
    ready.status = ConditionStatus::True;
    ready.last_transition_time = Some(now);
    node.status.conditions.push(ready);
    node
}
