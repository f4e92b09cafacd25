use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use crate::{
    NodeAlternatives, Quantity, Requirements, ResourceList, ResourceName, Timestamp,
    api::{
        DaemonSet, Node, NodeClaim, ObjectKey, Pod, Taint, TaintEffect, conditions::INSTANCE_TERMINATING, tolerates_all,
    },
    cluster::{Attachment, HostPort, Storage, daemon_requests, pod_requests},
    labels,
};

/// Taints that a new node carries until it is ready; somebody takes them away.
const EPHEMERAL_TAINTS: [(&str, TaintEffect); 5] = [
    ("node.kubernetes.io/not-ready", TaintEffect::NoSchedule),
    ("node.kubernetes.io/not-ready", TaintEffect::NoExecute),
    ("node.kubernetes.io/unreachable", TaintEffect::NoSchedule),
    ("node.cloudprovider.kubernetes.io/uninitialized", TaintEffect::NoSchedule),
    (labels::UNREGISTERED, TaintEffect::NoExecute),
];
/// Taints whose keys begin so say which parts of a node are not ready yet.
const READINESS_PREFIX: &str = "readiness.k8s.io/";
/// The taint of a cordoned node.
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";

/// Whether a new node carries this taint until it is ready.
pub(crate) fn is_ephemeral_taint(taint: &Taint) -> bool {
    EPHEMERAL_TAINTS.contains(&(taint.key.as_str(), taint.effect)) || taint.key.starts_with(READINESS_PREFIX)
}

/// A node, or a claim whose node has not come yet, as it will be when pods can bind to it.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Place {
    /// The name of the node, or of the claim while it has none.
    pub name: String,
    /// The name of the claim; `None` for nodes that were not made by the engine.
    pub claim: Option<String>,
    /// The pool that it belongs to.
    pub pool: Option<String>,
    /// When its node was made, or its claim while it has none.
    pub created: Option<Timestamp>,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// The taints that pods must tolerate.
    pub taints: Vec<Taint>,
    /// All that it has.
    pub capacity: ResourceList,
    /// What pods may have of it.
    pub allocatable: ResourceList,
    /// What is left of that beside the pods that are there or promised to it, and the daemons that will come.
    pub free: ResourceList,
    /// The same rounded down, in the order of the names: planning asks for it again and again.
    pub(crate) room: Vec<(ResourceName, i64)>,
    /// The host ports that the pods that are there or promised to it take, and the daemons that will come.
    pub host_ports: Vec<HostPort>,
    /// The most volumes that each storage driver can attach to its node; a driver that is not named has no limit.
    pub volume_limits: BTreeMap<String, u32>,
    /// The volumes that drivers attach to it for the pods that are there or promised to it.
    pub attached: BTreeSet<Attachment>,
    /// The pods that are there or promised to it.
    pub pods: Vec<ObjectKey>,
    /// The same pods themselves.
    pub(crate) residents: Residents,
    /// Pods that go to nodes like this one in a plan: of those that are alike one, and how many. They may bind in any order.
    pub(crate) coming: Vec<(ObjectKey, usize)>,
    /// Whether it is ready for pods, as opposed to on its way.
    pub is_initialized: bool,
    /// Whether it is on its way out.
    pub is_deleting: bool,
    /// Whether it must take no pods, because nobody knows what runs there.
    pub is_closed: bool,
    /// The node itself, once there is one.
    pub node: Option<Arc<Node>>,
    /// The claim itself; `None` for nodes that were not made by the engine.
    pub node_claim: Option<Arc<NodeClaim>>,
}

/// The pods of a place, in the order of [`Place::pods`].
#[derive(Clone, Debug, Default)]
pub(crate) struct Residents {
    pods: Vec<Arc<Pod>>,
    /// Whether one of them must not have some pods near.
    are_repelling: bool,
}

impl Residents {
    fn push(&mut self, pod: &Arc<Pod>) {
        self.are_repelling |= !pod.spec.affinity.pod_anti_affinity.required.is_empty();
        self.pods.push(pod.clone());
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Pod>> {
        self.pods.iter()
    }

    /// Whether one of them must not have some pods near.
    pub(crate) const fn are_repelling(&self) -> bool {
        self.are_repelling
    }

    /// Whether they are these, and are shared.
    pub(super) fn are_shared_with<'p>(&self, pods: impl ExactSizeIterator<Item = &'p Arc<Pod>>) -> bool {
        self.pods.len() == pods.len() && self.pods.iter().zip(pods).all(|(a, b)| Arc::ptr_eq(a, b))
    }
}

impl PartialEq for Residents {
    /// What is shared is not compared.
    fn eq(&self, other: &Self) -> bool {
        let are_same = |(a, b): (&Arc<Pod>, &Arc<Pod>)| Arc::ptr_eq(a, b) || a == b;
        self.pods.len() == other.pods.len() && self.pods.iter().zip(&other.pods).all(are_same)
    }
}

impl Place {
    pub(super) fn new(source: Option<&Arc<Node>>, source_claim: Option<&Arc<NodeClaim>>) -> Self {
        let (node, claim) = (source.map(AsRef::as_ref), source_claim.map(AsRef::as_ref));
        let has_label = |key| node.is_some_and(|n| n.metadata.labels.get(key).is_some_and(|v| v == "true"));
        let is_registered = node.is_some() && (claim.is_none() || has_label(labels::REGISTERED));
        let is_initialized = node.is_some() && (claim.is_none() || has_label(labels::INITIALIZED));
        let name = match (node, claim) {
            (Some(node), _) => &node.metadata.name,
            (None, Some(claim)) => &claim.metadata.name,
            (None, None) => unreachable!("a place has a node or a claim"),
        };
        let mut labels = node.map(|n| n.metadata.labels.clone()).unwrap_or_default();
        if let Some(claim) = claim.filter(|_| !is_registered) {
            labels.extend(claim.metadata.labels.clone());
        }
        labels.entry(labels::HOSTNAME.to_owned()).or_insert_with(|| name.clone());
        let mut place = Self {
            name: name.clone(),
            claim: claim.map(|c| c.metadata.name.clone()),
            pool: labels.get(labels::NODE_POOL).cloned(),
            created: node
                .map_or_else(|| claim.and_then(|c| c.metadata.creation_timestamp), |n| n.metadata.creation_timestamp),
            labels,
            taints: Vec::new(),
            capacity: claim.map(|c| c.status.capacity.clone()).unwrap_or_default(),
            allocatable: node.map(|n| n.status.allocatable.clone()).unwrap_or_default(),
            free: ResourceList::new(),
            room: Vec::new(),
            host_ports: Vec::new(),
            volume_limits: BTreeMap::new(),
            attached: BTreeSet::new(),
            pods: Vec::new(),
            residents: Residents::default(),
            coming: Vec::new(),
            is_initialized,
            is_deleting: is_going(node, claim),
            is_closed: false,
            node: source.cloned(),
            node_claim: source_claim.cloned(),
        };
        place.fill_resources(node, claim);
        place.taints = place.effective_taints(node, claim, is_registered);
        place.free = place.allocatable.clone();
        place
    }

    /// A node that is to be made, with the labels that are known of it. It takes no further pods.
    pub(crate) fn promised(name: String, mut labels: BTreeMap<String, String>) -> Self {
        labels.insert(labels::HOSTNAME.to_owned(), name.clone());
        Self { labels, is_closed: true, name, ..Self::default() }
    }

    /// What a claim without a machine will become, as far as that is known. It takes no further pods.
    pub(crate) fn unlaunched(claim: &NodeClaim) -> Self {
        let mut labels = claim.metadata.labels.clone();
        claim.spec.requirements.iter().collect::<Requirements>().settle(&mut labels);
        let (name, taints) = (claim.name().to_owned(), claim.spec.taints.clone());
        Self { claim: Some(name.clone()), taints, ..Self::promised(name, labels) }
    }

    /// Whether it was chosen to go: its node has the taint `karpenter.sh/disrupted`. It takes no further pods.
    pub fn is_disrupted(&self) -> bool {
        self.node.as_ref().is_some_and(|node| node.is_disrupted())
    }

    /// Whether it may take further pods: it is not on its way out, was not chosen to go, and it is known what runs there.
    pub fn is_open(&self) -> bool {
        !self.is_deleting && !self.is_disrupted() && !self.is_closed
    }

    /// Whether it is a node that is only thought of.
    pub(crate) const fn is_promised(&self) -> bool {
        self.node.is_none() && self.node_claim.is_none()
    }

    /// A node reports what it has bit by bit; until it is initialized the claim's promise stands in for what is missing or
    /// zero.
    fn fill_resources(&mut self, node: Option<&Node>, claim: Option<&NodeClaim>) {
        let is_told = |quantity: &Quantity| self.is_initialized || !quantity.is_zero();
        let told = node.into_iter().flat_map(|node| node.status.capacity.iter());
        for (name, quantity) in told.filter(|(_, quantity)| is_told(quantity)) {
            self.capacity.insert(name.clone(), quantity);
        }
        let promised = claim.filter(|_| !self.is_initialized).map(|c| &c.status.allocatable);
        for (name, quantity) in promised.into_iter().flat_map(ResourceList::iter) {
            if self.allocatable.get(name.as_str()).is_none_or(Quantity::is_zero) {
                self.allocatable.insert(name.clone(), quantity);
            }
        }
    }

    fn effective_taints(&self, node: Option<&Node>, claim: Option<&NodeClaim>, is_registered: bool) -> Vec<Taint> {
        let source = match (node, claim) {
            (Some(node), _) if is_registered => &node.spec.taints,
            (_, Some(claim)) => &claim.spec.taints,
            (Some(node), None) => &node.spec.taints,
            (None, None) => return Vec::new(),
        };
        let startup = claim.map_or(&[][..], |c| &c.spec.startup_taints);
        let passes = |taint: &Taint| {
            is_ephemeral_taint(taint) || startup.iter().any(|s| s.key == taint.key && s.effect == taint.effect)
        };
        let mut taints: Vec<_> = source.iter().filter(|t| self.is_initialized || !passes(t)).cloned().collect();
        let cordoned = node.is_some_and(|n| n.spec.unschedulable);
        if cordoned && !taints.iter().any(|t| t.key == UNSCHEDULABLE) {
            taints.push(Taint::new(UNSCHEDULABLE, "", TaintEffect::NoSchedule));
        }
        taints
    }

    /// The pods that it will have. One that terminates is soon gone from where it runs; anywhere else it stands for its successor
    /// of the same name.
    pub(crate) fn staying(&self) -> impl Iterator<Item = &Pod> {
        let succeeds = |pod: &Pod| pod.is_reschedulable() && pod.spec.node_name != self.name;
        self.residents.iter().map(AsRef::as_ref).filter(move |pod| !pod.is_terminating() || succeeds(pod))
    }

    pub(super) fn add_pod(&mut self, pod: &Arc<Pod>, storage: &Storage) {
        self.free.subtract(&pod_requests(pod));
        self.host_ports.extend(HostPort::of_pod(&pod.spec));
        self.attached.extend(storage.attachments_of(pod));
        self.house(pod);
    }

    /// Rounds down what is left, which does not change any more.
    pub(super) fn round(&mut self) {
        self.room = self.free.iter().map(|(name, quantity)| (name.clone(), name.floor(quantity))).collect();
    }

    /// Has a pod, without taking room for it.
    pub(crate) fn house(&mut self, pod: &Arc<Pod>) {
        self.pods.push(pod.key());
        self.residents.push(pod);
    }

    /// Keeps room for the daemons that this place will run and does not run yet.
    pub(super) fn expect_daemons(&mut self, daemonsets: &[DaemonSet], running: &BTreeSet<String>) {
        for daemonset in daemonsets.iter().filter(|d| !running.contains(&d.metadata.uid)) {
            let spec = &daemonset.spec.template.spec;
            let fits = NodeAlternatives::of_pod(spec).admit_node(&self.name, &self.labels);
            if fits && tolerates_all(&spec.tolerations, &self.taints, false).is_ok() {
                self.free.subtract(&daemon_requests(spec));
                self.host_ports.extend(HostPort::of_pod(spec));
            }
        }
    }
}

/// Whether a node is on its way out: it or its claim is being deleted, or the claim says that the instance is terminating.
pub(super) fn is_going(node: Option<&Node>, claim: Option<&NodeClaim>) -> bool {
    let is_deleted = node.is_some_and(|node| node.metadata.deletion_timestamp.is_some());
    is_deleted
        || claim.is_some_and(|claim| {
            claim.metadata.deletion_timestamp.is_some() || claim.status.is_true(INSTANCE_TERMINATING)
        })
}
