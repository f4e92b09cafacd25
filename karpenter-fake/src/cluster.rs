//! A cluster in memory, for examples and tests.

use std::collections::{BTreeMap, BTreeSet};

use karpenter_core::{
    Snapshot, SnapshotError, Timestamp,
    api::{
        Condition, ConditionStatus, DaemonSet, FieldError, Node, NodeClaim, NodePool, ObjectKey, OwnerReference, Pod,
        Workload,
        conditions::{INITIALIZED, LAUNCHED, REGISTERED},
    },
    driver::{Launch, Outcome},
    labels,
};

use crate::{
    FakeCloud,
    checker::{
        filters::{Amounts, add, amounts_of, fits, misfit, requests, untolerated},
        ports::{is_same, ports},
    },
};

/// Pools, daemonsets, pods, claims and nodes, and as much of a scheduler as is needed to bind one to the other.
///
/// The pods of a node that goes are pending again, as if their controller had made them anew.
///
/// ```
/// use karpenter_core::{Planner, driver::{Action, Driver}, api::{NodePool, Pod}};
/// use karpenter_fake::{FakeCloud, FakeCluster, generated_catalog};
/// use std::sync::Arc;
///
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let cloud = Arc::new(FakeCloud::new(generated_catalog()));
/// let mut driver = Driver::new(cloud.clone());
/// let mut cluster = FakeCluster::new([NodePool::named("general")]);
/// cluster.add_pods(Pod::named("web").cpu("500m").memory("1Gi").replicas(10))?;
///
/// let snapshot = cluster.snapshot()?;
/// let catalogs = driver.catalogs(snapshot.pools(), cloud.now()).await.catalogs;
/// let plan = Planner::default().plan(&snapshot, &catalogs);
/// for launch in Driver::launches(&plan, &snapshot, |pool| cluster.identify(pool)) {
///     cluster.launch(&launch);
///     let outcome = driver.execute(Action::Launch(Box::new(launch.claim))).await;
///     driver.observe(&outcome, cloud.now());
///     cluster.observe(&outcome);
/// }
/// cluster.sync(&cloud);
/// assert_eq!(cluster.schedule().len(), 10);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct FakeCluster {
    pools: Vec<NodePool>,
    daemonsets: Vec<DaemonSet>,
    pods: BTreeMap<ObjectKey, Pod>,
    nodes: BTreeMap<String, Node>,
    claims: BTreeMap<String, NodeClaim>,
    /// Pods that have no node yet, and the claim that was made for them.
    nominations: BTreeMap<ObjectKey, String>,
    identified: u64,
}

/// What [`FakeCluster::sync`] found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sync {
    /// The names of nodes that joined.
    pub joined: Vec<String>,
    /// The names of nodes that went.
    pub left: Vec<String>,
}

/// A pod that was bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binding {
    /// The pod.
    pub pod: ObjectKey,
    /// The name of its node.
    pub node: String,
}

impl FakeCluster {
    /// A cluster with these pools and nothing else.
    pub fn new(pools: impl IntoIterator<Item = NodePool>) -> Self {
        Self { pools: pools.into_iter().collect(), ..Self::default() }
    }

    /// Adds pods; one that is there already is replaced.
    ///
    /// # Errors
    /// A mistake in how the pods were written.
    pub fn add_pods(&mut self, pods: impl Into<Workload>) -> Result<(), FieldError> {
        self.pods.extend(pods.into().into_pods()?.into_iter().map(|pod| (pod.key(), pod)));
        Ok(())
    }

    /// Takes a pod away, wherever it is.
    pub fn remove_pod(&mut self, pod: &ObjectKey) -> Option<Pod> {
        self.nominations.remove(pod);
        self.pods.remove(pod)
    }

    /// Adds a daemonset. One without a uid is known by its name.
    pub fn add_daemonset(&mut self, mut daemonset: DaemonSet) {
        let meta = &mut daemonset.metadata;
        if meta.uid.is_empty() {
            meta.uid.clone_from(&meta.name);
        }
        self.daemonsets.push(daemonset);
    }

    /// Runs pods like these on every node that will have them, each as a daemonset of its own.
    ///
    /// # Errors
    /// A mistake in how the pods were written.
    pub fn add_daemons(&mut self, pods: impl Into<Workload>) -> Result<(), FieldError> {
        for pod in pods.into().into_pods()? {
            let mut daemonset = DaemonSet::default();
            daemonset.metadata = pod.metadata;
            daemonset.spec.template.metadata.labels.clone_from(&daemonset.metadata.labels);
            daemonset.spec.template.spec = pod.spec;
            self.add_daemonset(daemonset);
        }
        Ok(())
    }

    /// The pods, by namespace and name; those of daemonsets included.
    pub const fn pods(&self) -> &BTreeMap<ObjectKey, Pod> {
        &self.pods
    }

    /// The nodes, by name.
    pub const fn nodes(&self) -> &BTreeMap<String, Node> {
        &self.nodes
    }

    /// The claims, by name.
    pub const fn claims(&self) -> &BTreeMap<String, NodeClaim> {
        &self.claims
    }

    /// How many pods have no node.
    pub fn unbound_count(&self) -> usize {
        self.pods.values().filter(|pod| pod.spec.node_name.is_empty()).count()
    }

    /// What a planner needs to know.
    ///
    /// # Errors
    /// Objects without a name, and two pools or daemonsets of one name.
    pub fn snapshot(&self) -> Result<Snapshot, SnapshotError> {
        let mut builder = Snapshot::builder()
            .pools(self.pools.iter().cloned())
            .pods(self.pods.values().cloned().collect::<Vec<_>>())
            .nodes(self.nodes.values().cloned())
            .claims(self.claims.values().cloned());
        for daemonset in &self.daemonsets {
            builder = builder.daemonset(daemonset.clone());
        }
        for (pod, claim) in &self.nominations {
            builder = builder.nominate(pod.clone(), claim);
        }
        builder.build()
    }

    /// A name and a uid that no claim of this cluster had before, as
    /// [`Driver::launches`](karpenter_core::driver::Driver::launches) wants them.
    pub fn identify(&mut self, pool: &str) -> (String, String) {
        self.identified += 1;
        (format!("{pool}-{:04}", self.identified), format!("uid-{:04}", self.identified))
    }

    /// Takes in a claim that is about to be launched, and promises it its pods.
    pub fn launch(&mut self, launch: &Launch) {
        let name = launch.claim.name().to_owned();
        self.nominations.extend(launch.pods.iter().map(|pod| (pod.clone(), name.clone())));
        self.claims.insert(name, launch.claim.clone());
    }

    /// Takes in what came of an action: a claim that was not launched is gone, and its pods are free.
    pub fn observe(&mut self, outcome: &Outcome) {
        match outcome {
            Outcome::Launched(claim) => {
                let mut claim = NodeClaim::clone(claim);
                mark(&mut claim.status.conditions, LAUNCHED, None);
                self.claims.insert(claim.name().to_owned(), claim);
            }
            Outcome::LaunchFailed { claim, .. } => {
                self.claims.remove(claim);
                self.nominations.retain(|_, name| name != claim);
            }
            // A machine stays until the cloud says that it is gone.
            _ => {}
        }
    }

    /// Lets the machines of the cloud join that are up, and those leave that are not. Nodes are registered and
    /// initialized as they join: their labels say so, and their startup taints are gone.
    pub fn sync(&mut self, cloud: &FakeCloud) -> Sync {
        self.sync_with(cloud.ready_nodes(), cloud.now())
    }

    /// The same for a cloud of one's own: `up` are the nodes of all its machines that are up, as their kubelets make them, with
    /// the provider's names for the machines in `spec.providerID`.
    pub fn sync_with(&mut self, up: impl IntoIterator<Item = Node>, now: Timestamp) -> Sync {
        let up: BTreeMap<String, Node> = up.into_iter().map(|node| (node.metadata.name.clone(), node)).collect();
        let left: Vec<String> = self.nodes.keys().filter(|name| !up.contains_key(*name)).cloned().collect();
        for name in &left {
            self.remove_node(name);
        }
        let mut joined = Vec::new();
        for (name, node) in up {
            if !self.nodes.contains_key(&name) {
                self.join(node, now);
                joined.push(name);
            }
        }
        Sync { joined, left }
    }

    fn join(&mut self, mut node: Node, now: Timestamp) {
        let name = node.metadata.name.clone();
        for key in [labels::REGISTERED, labels::INITIALIZED] {
            node.metadata.labels.insert(key.to_owned(), "true".to_owned());
        }
        let id = node.spec.provider_id.clone();
        if let Some(claim) = self.claims.values_mut().find(|claim| claim.status.provider_id == id) {
            claim.status.node_name.clone_from(&name);
            mark(&mut claim.status.conditions, REGISTERED, Some(now));
            mark(&mut claim.status.conditions, INITIALIZED, Some(now));
            node.spec.taints.clone_from(&claim.spec.taints);
        }
        self.nodes.insert(name, node);
    }

    fn remove_node(&mut self, name: &str) {
        let Some(node) = self.nodes.remove(name) else { return };
        let of_node = |claim: &NodeClaim| claim.status.provider_id == node.spec.provider_id;
        let gone: BTreeSet<String> = self.claims.values().filter(|c| of_node(c)).map(|c| c.name().to_owned()).collect();
        self.claims.retain(|name, _| !gone.contains(name));
        self.nominations.retain(|_, claim| !gone.contains(claim));
        self.pods.retain(|_, pod| pod.spec.node_name != name || !pod.is_daemon());
        for pod in self.pods.values_mut().filter(|pod| pod.spec.node_name == name) {
            pod.spec.node_name.clear();
            "Pending".clone_into(&mut pod.status.phase);
        }
    }

    /// Starts the daemons of all nodes, then binds every pod that a node passes the filters for: first those whose own
    /// node has come, then the others, each to the first node by name.
    ///
    /// Pods that use more than node selectors, node affinity, taints and resources are not bound. Daemons are bound
    /// too, but not listed.
    pub fn schedule(&mut self) -> Vec<Binding> {
        self.start_daemons();
        let mut rooms: BTreeMap<String, Amounts> =
            self.nodes.iter().map(|(name, node)| (name.clone(), self.room(name, node))).collect();
        let unbound = self.pods.iter().filter(|(_, pod)| pod.spec.node_name.is_empty() && is_simple(pod));
        let (mut promised, mut others) = (Vec::new(), Vec::new());
        for (key, _) in unbound {
            let claim = self.nominations.get(key).and_then(|claim| self.claims.get(claim));
            match claim.map(|claim| claim.status.node_name.clone()).filter(|node| !node.is_empty()) {
                Some(node) => promised.push((key.clone(), Some(node))),
                None => others.push((key.clone(), None)),
            }
        }
        let mut bindings = Vec::new();
        for (key, node) in promised.into_iter().chain(others) {
            let own = node.filter(|node| self.admits(node, &key, &rooms));
            let node = own.or_else(|| self.nodes.keys().find(|node| self.admits(node, &key, &rooms)).cloned());
            if let Some(node) = node {
                self.bind(&key, &node, &mut rooms);
                bindings.push(Binding { pod: key, node });
            }
        }
        bindings
    }

    fn start_daemons(&mut self) {
        for daemonset in &self.daemonsets {
            let spec = &daemonset.spec.template.spec;
            for (name, node) in &self.nodes {
                let comes = misfit(spec, name, &node.metadata.labels).is_none()
                    && untolerated(spec, &node.spec.taints, false).is_none();
                let pod = daemon_pod(daemonset, name);
                if comes && !self.pods.contains_key(&pod.key()) {
                    self.pods.insert(pod.key(), pod);
                }
            }
        }
    }

    /// What is left of a node.
    fn room(&self, name: &str, node: &Node) -> Amounts {
        let mut room = amounts_of(&node.status.allocatable);
        for pod in self.pods.values().filter(|pod| pod.spec.node_name == name && !pod.is_finished()) {
            take(&mut room, pod);
        }
        room
    }

    fn admits(&self, node: &str, pod: &ObjectKey, rooms: &BTreeMap<String, Amounts>) -> bool {
        let found = self.nodes.get(node).zip(self.pods.get(pod)).zip(rooms.get(node));
        let Some(((node, pod), room)) = found else { return false };
        misfit(&pod.spec, &node.metadata.name, &node.metadata.labels).is_none()
            && untolerated(&pod.spec, &node.spec.taints, false).is_none()
            && fits(&requests(pod), room)
            && self.has_free_ports(node.metadata.name.as_str(), pod)
    }

    fn has_free_ports(&self, node: &str, pod: &Pod) -> bool {
        let wanted = ports(&pod.spec);
        let running = self.pods.values().filter(|p| p.spec.node_name == node && !p.is_finished());
        wanted.is_empty() || !running.flat_map(|p| ports(&p.spec)).any(|port| wanted.iter().any(|w| is_same(w, &port)))
    }

    fn bind(&mut self, key: &ObjectKey, node: &str, rooms: &mut BTreeMap<String, Amounts>) {
        self.nominations.remove(key);
        let (Some(pod), Some(room)) = (self.pods.get_mut(key), rooms.get_mut(node)) else { return };
        node.clone_into(&mut pod.spec.node_name);
        "Running".clone_into(&mut pod.status.phase);
        take(room, pod);
    }
}

/// Whether the filters that are written here decide alone where the pod may run.
fn is_simple(pod: &Pod) -> bool {
    let (spec, affinity) = (&pod.spec, &pod.spec.affinity);
    let (near, away) = (&affinity.pod_affinity, &affinity.pod_anti_affinity);
    let has_neighbours = [near, away].iter().any(|terms| !terms.required.is_empty() || !terms.preferred.is_empty());
    let has_preferences = !affinity.node_affinity.preferred.is_empty();
    let has_devices = !spec.resource_claims.is_empty();
    let waits = !spec.scheduling_gates.is_empty() || pod.is_terminating();
    let is_spread = !spec.topology_spread_constraints.is_empty();
    let has_claims = spec.volumes.iter().any(|v| v.persistent_volume_claim.is_some() || v.ephemeral.is_some());
    !(has_neighbours || has_preferences || is_spread || has_claims || has_devices || waits)
}

fn take(room: &mut Amounts, pod: &Pod) {
    let taken = requests(pod).into_iter().map(|(name, amount)| (name, -amount)).collect();
    add(room, &taken);
}

fn daemon_pod(daemonset: &DaemonSet, node: &str) -> Pod {
    let mut owner = OwnerReference::default();
    "apps/v1".clone_into(&mut owner.api_version);
    "DaemonSet".clone_into(&mut owner.kind);
    owner.name.clone_from(&daemonset.metadata.name);
    owner.uid.clone_from(&daemonset.metadata.uid);
    let mut pod = Pod::default();
    pod.metadata.name = format!("{}-{node}", daemonset.metadata.name);
    pod.metadata.namespace.clone_from(&daemonset.metadata.namespace);
    pod.metadata.labels.clone_from(&daemonset.spec.template.metadata.labels);
    pod.metadata.owner_references.push(owner);
    pod.spec = daemonset.spec.template.spec.clone();
    node.clone_into(&mut pod.spec.node_name);
    "Running".clone_into(&mut pod.status.phase);
    pod
}

fn mark(conditions: &mut Vec<Condition>, kind: &str, since: Option<Timestamp>) {
    let mut condition = Condition::default();
    kind.clone_into(&mut condition.r#type);
    kind.clone_into(&mut condition.reason);
    condition.status = ConditionStatus::True;
    condition.last_transition_time = since;
    conditions.push(condition);
}

#[cfg(test)]
mod tests;
