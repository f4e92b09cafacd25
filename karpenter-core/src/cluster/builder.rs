use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{Objects, Place, Snapshot, Storage};
use crate::{
    api::{
        CsiNode, DaemonSet, FieldError, Namespace, Node, NodeClaim, NodePool, ObjectKey, ObjectMeta, PersistentVolume,
        PersistentVolumeClaim, Pod, PodDisruptionBudget, StorageClass, Workload,
    },
    labels,
};

/// Collects the objects of a cluster, in any order.
///
/// ```
/// use karpenter_core::{api::{NodePool, Pod}, Snapshot};
///
/// let snapshot = Snapshot::builder()
///     .pool(NodePool::named("general"))
///     .pods(Pod::named("web").cpu("500m").replicas(3))
///     .build()?;
/// assert_eq!(snapshot.pods()[0].key().to_string(), "default/web-0");
/// # Ok::<(), karpenter_core::SnapshotError>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct SnapshotBuilder {
    pools: Vec<NodePool>,
    daemonsets: Vec<DaemonSet>,
    pods: Vec<Arc<Pod>>,
    nodes: Vec<Node>,
    claims: Vec<NodeClaim>,
    budgets: Vec<PodDisruptionBudget>,
    namespaces: Vec<Namespace>,
    volume_claims: Vec<PersistentVolumeClaim>,
    volumes: Vec<PersistentVolume>,
    storage_classes: Vec<StorageClass>,
    csi_nodes: Vec<CsiNode>,
    nominations: BTreeMap<ObjectKey, String>,
    closed_nodes: BTreeSet<String>,
    error: Option<FieldError>,
}

/// Why objects are not a [`Snapshot`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SnapshotError {
    /// Two objects of a kind have one name.
    #[error("{kind} {name}: metadata.name: there is another {kind} of this name")]
    Duplicate {
        /// The kind.
        kind: &'static str,
        /// The name, with the namespace where the kind has one.
        name: String,
    },
    /// An object has no name.
    #[error("{kind}: metadata.name: must not be empty")]
    Unnamed {
        /// The kind.
        kind: &'static str,
    },
    /// A pod among those that want a place has a node, or is none that the engine makes nodes for.
    #[error("Pod {pod}: does not wait for a node")]
    NotPending {
        /// The pod.
        pod: ObjectKey,
    },
    /// An object that was written in code breaks a rule.
    #[error(transparent)]
    Invalid(#[from] FieldError),
}

impl SnapshotBuilder {
    /// Adds a node pool.
    pub fn pool(mut self, pool: NodePool) -> Self {
        self.pools.push(pool);
        self
    }

    /// Adds node pools.
    pub fn pools(mut self, pools: impl IntoIterator<Item = NodePool>) -> Self {
        self.pools.extend(pools);
        self
    }

    /// Adds a daemonset.
    pub fn daemonset(mut self, daemonset: DaemonSet) -> Self {
        self.daemonsets.push(daemonset);
        self
    }

    /// Adds pods: a [`Pod`], a list of them, or what [`Pod::named`] starts.
    pub fn pods(mut self, pods: impl Into<Workload>) -> Self {
        let Workload { mut pods, error } = pods.into();
        // The first of several lists, which may be large, is kept as it is.
        if self.pods.is_empty() {
            self.pods = pods;
        } else {
            self.pods.append(&mut pods);
        }
        self.error = self.error.or(error);
        self
    }

    /// Adds a node.
    pub fn node(mut self, node: Node) -> Self {
        self.nodes.push(node);
        self
    }

    /// Adds nodes.
    pub fn nodes(mut self, nodes: impl IntoIterator<Item = Node>) -> Self {
        self.nodes.extend(nodes);
        self
    }

    /// Adds a node claim.
    pub fn claim(mut self, claim: NodeClaim) -> Self {
        self.claims.push(claim);
        self
    }

    /// Adds node claims.
    pub fn claims(mut self, claims: impl IntoIterator<Item = NodeClaim>) -> Self {
        self.claims.extend(claims);
        self
    }

    /// Adds a pod disruption budget.
    pub fn budget(mut self, budget: PodDisruptionBudget) -> Self {
        self.budgets.push(budget);
        self
    }

    /// Adds namespaces.
    pub fn namespaces(mut self, namespaces: impl IntoIterator<Item = Namespace>) -> Self {
        self.namespaces.extend(namespaces);
        self
    }

    /// Adds claims on volumes.
    pub fn volume_claims(mut self, claims: impl IntoIterator<Item = PersistentVolumeClaim>) -> Self {
        self.volume_claims.extend(claims);
        self
    }

    /// Adds volumes.
    pub fn volumes(mut self, volumes: impl IntoIterator<Item = PersistentVolume>) -> Self {
        self.volumes.extend(volumes);
        self
    }

    /// Adds storage classes.
    pub fn storage_classes(mut self, classes: impl IntoIterator<Item = StorageClass>) -> Self {
        self.storage_classes.extend(classes);
        self
    }

    /// Adds what the storage drivers of nodes report.
    pub fn csi_nodes(mut self, nodes: impl IntoIterator<Item = CsiNode>) -> Self {
        self.csi_nodes.extend(nodes);
        self
    }

    /// Promises a pod the room of a node or claim: it counts as there, and is not planned again.
    ///
    /// A promise of a place that does not exist is void.
    pub fn nominate(mut self, pod: ObjectKey, place: impl Into<String>) -> Self {
        self.nominations.insert(pod, place.into());
        self
    }

    /// Says that it is not known what runs on a node, so that nothing may be placed there.
    pub fn close_node(mut self, name: impl Into<String>) -> Self {
        self.closed_nodes.insert(name.into());
        self
    }

    /// Sorts everything into a snapshot.
    ///
    /// # Errors
    /// Two objects of one kind and name, an object without a name, or a mistake in a pod that was written in code.
    pub fn build(mut self) -> Result<Snapshot, SnapshotError> {
        if let Some(error) = self.error.take() {
            return Err(error.into());
        }
        sort_unique("NodePool", &mut self.pools, |p| p.metadata.sort_key())?;
        sort_unique("DaemonSet", &mut self.daemonsets, |d| d.metadata.sort_key())?;
        sort_unique("Node", &mut self.nodes, |n| n.metadata.sort_key())?;
        sort_unique("NodeClaim", &mut self.claims, |c| c.metadata.sort_key())?;
        sort_unique("Pod", &mut self.pods, |pod| pod.sort_key())?;
        sort_unique("PodDisruptionBudget", &mut self.budgets, |b| b.metadata.sort_key())?;
        let namespaces = by_name("Namespace", std::mem::take(&mut self.namespaces), |n| &n.metadata)?;
        let storage = self.take_storage()?;
        let namespaces = namespaces.into_iter().map(|(name, n)| (name.clone(), labels_of(name, n))).collect();
        Ok(self.assemble(namespaces, storage))
    }

    fn take_storage(&mut self) -> Result<Storage, SnapshotError> {
        let claims = std::mem::take(&mut self.volume_claims);
        Ok(Storage {
            claims: by_key("PersistentVolumeClaim", claims, PersistentVolumeClaim::key)?,
            volumes: by_name("PersistentVolume", std::mem::take(&mut self.volumes), |v| &v.metadata)?,
            classes: by_name("StorageClass", std::mem::take(&mut self.storage_classes), |c| &c.metadata)?,
            csi_nodes: by_name("CSINode", std::mem::take(&mut self.csi_nodes), |n| &n.metadata)?,
        })
    }

    fn assemble(mut self, namespaces: BTreeMap<String, BTreeMap<String, String>>, storage: Storage) -> Snapshot {
        let mut places = join(std::mem::take(&mut self.nodes), &self.claims, &storage);
        places.sort_by(|a, b| a.name.cmp(&b.name));
        let by_name = index_of(&places);
        let launching: BTreeSet<&str> = self.claims.iter().map(NodeClaim::name).collect();
        let mut running_daemons = vec![BTreeSet::new(); places.len()];
        let mut pending = Vec::new();
        for (index, pod) in self.pods.iter().enumerate() {
            let is_bound = !pod.spec.node_name.is_empty();
            let is_known = |name: &&String| by_name.contains_key(*name) || launching.contains(name.as_str());
            let planned = if is_bound { Some(&pod.spec.node_name) } else { self.promised(pod).filter(is_known) };
            let there = planned.or_else(|| nominated_node(pod));
            let place = there.and_then(|name| by_name.get(name)).map(|&i| (i, &mut places[i]));
            let wants_place = match &place {
                Some((_, place)) if place.is_deleting && planned.is_some() => must_move(pod, &self.budgets),
                _ => there.is_none() && is_provisionable(pod),
            };
            if wants_place {
                pending.push(index);
            } else if let Some((i, place)) = place.filter(|_| !pod.is_finished()) {
                place.add_pod(pod, &storage);
                let owners = pod.metadata.owner_references.iter().filter(|o| o.kind == "DaemonSet");
                running_daemons[i].extend(owners.map(|o| o.uid.clone()));
            }
        }
        for (place, running) in places.iter_mut().zip(&running_daemons) {
            place.expect_daemons(&self.daemonsets, running);
            place.is_closed = self.closed_nodes.contains(&place.name);
        }
        let unlaunched = self.claims.iter().filter(|c| c.status.provider_id.is_empty()).cloned().collect();
        let objects = Objects {
            pools: self.pools,
            daemonsets: self.daemonsets,
            unlaunched,
            budgets: self.budgets,
            namespaces,
            storage,
        };
        Snapshot {
            objects: Arc::new(objects),
            pods: self.pods.into(),
            pending,
            places: places.into_iter().map(Arc::new).collect(),
        }
    }

    /// The place that was promised to a pod.
    fn promised(&self, pod: &Pod) -> Option<&String> {
        if self.nominations.is_empty() { None } else { self.nominations.get(&pod.key()) }
    }
}

/// Nodes with their claims, and claims that have no node yet.
///
/// A claim without a provider id may become anything that it allows, so it is no place for further pods.
fn join(nodes: Vec<Node>, claims: &[NodeClaim], storage: &Storage) -> Vec<Place> {
    let launched = claims.iter().filter(|c| !c.status.provider_id.is_empty());
    let mut by_id: BTreeMap<&str, Arc<NodeClaim>> =
        launched.map(|c| (c.status.provider_id.as_str(), Arc::new(c.clone()))).collect();
    let mut places = Vec::with_capacity(nodes.len());
    for node in nodes {
        let claim = by_id.remove(node.spec.provider_id.as_str());
        let mut place = Place::new(Some(&Arc::new(node)), claim.as_ref());
        place.volume_limits = storage.limits_of(&place.name);
        places.push(place);
    }
    places.extend(by_id.into_values().map(|claim| Place::new(None, Some(&claim))));
    places
}

/// The position of each place, by the name of its node and by that of its claim.
fn index_of(places: &[Place]) -> BTreeMap<String, usize> {
    let mut out = BTreeMap::new();
    for (i, place) in places.iter().enumerate() {
        out.insert(place.name.clone(), i);
        out.extend(place.claim.clone().map(|claim| (claim, i)));
    }
    out
}

/// Whether a pod waits for a node and it is the engine's business to make one.
pub(crate) fn is_provisionable(pod: &Pod) -> bool {
    pod.is_unschedulable()
        && pod.status.nominated_node_name.is_empty()
        && !pod.is_daemon()
        && !pod.is_mirror()
        && !pod.is_finished()
        && !pod.is_terminating()
}

/// The node that the kube-scheduler keeps for a pod until its volume is bound or what it preempts is gone.
///
/// The kube-scheduler counts such a pod as there whenever it looks at another one.
fn nominated_node(pod: &Pod) -> Option<&String> {
    Some(&pod.status.nominated_node_name).filter(|name| !name.is_empty() && !pod.is_terminating())
}

/// Whether a pod on a node that is being deleted will need another place.
fn must_move(pod: &Pod, budgets: &[PodDisruptionBudget]) -> bool {
    if !pod.is_reschedulable() {
        return false;
    }
    if pod.is_terminating() {
        return true;
    }
    if pod.metadata.annotations.get(labels::DO_NOT_DISRUPT).is_some_and(|v| v == "true") {
        return false;
    }
    let holds = |budget: &PodDisruptionBudget| {
        let namespace = if budget.metadata.namespace.is_empty() { "default" } else { &budget.metadata.namespace };
        let selects = budget.spec.selector.as_ref().is_some_and(|s| s.matches(&pod.metadata.labels));
        budget.blocks_fully() && namespace == pod.namespace() && selects
    };
    !budgets.iter().any(holds)
}

/// The labels of a namespace, with the one that the API server gives to every namespace.
fn labels_of(name: String, namespace: Namespace) -> BTreeMap<String, String> {
    let mut labels = namespace.metadata.labels;
    labels.entry(labels::NAMESPACE_NAME.to_owned()).or_insert(name);
    labels
}

fn by_name<T>(
    kind: &'static str,
    items: Vec<T>,
    meta: fn(&T) -> &ObjectMeta,
) -> Result<BTreeMap<String, T>, SnapshotError> {
    // An object of no namespace has a key of its name alone.
    let items = by_key(kind, items, |item| ObjectKey::new("", &meta(item).name))?;
    Ok(items.into_iter().map(|(key, item)| (key.name, item)).collect())
}

fn by_key<T>(
    kind: &'static str,
    items: Vec<T>,
    key: impl Fn(&T) -> ObjectKey,
) -> Result<BTreeMap<ObjectKey, T>, SnapshotError> {
    let mut out = BTreeMap::new();
    for item in items {
        let key = key(&item);
        if key.name.is_empty() {
            return Err(SnapshotError::Unnamed { kind });
        }
        if out.contains_key(&key) {
            let name = if key.namespace.is_empty() { key.name } else { key.to_string() };
            return Err(SnapshotError::Duplicate { kind, name });
        }
        out.insert(key, item);
    }
    Ok(out)
}

/// Sorts objects by namespace and name, which must not be empty and of which there must be one each.
fn sort_unique<T>(
    kind: &'static str,
    items: &mut [T],
    key: impl for<'t> Fn(&'t T) -> (&'t str, &'t str),
) -> Result<(), SnapshotError> {
    let mut keyed: Vec<_> = items.iter().map(&key).zip(0..).collect();
    if keyed.iter().any(|((_, name), _)| name.is_empty()) {
        return Err(SnapshotError::Unnamed { kind });
    }
    // Lists often come in a few runs that are sorted already, of which a stable sort makes use.
    keyed.sort_by_key(|(key, _)| *key);
    if let Some(pair) = keyed.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        let (namespace, name) = pair[0].0;
        let name = if namespace.is_empty() { name.to_owned() } else { format!("{namespace}/{name}") };
        return Err(SnapshotError::Duplicate { kind, name });
    }
    let order = keyed.into_iter().map(|(_, index)| index).collect();
    permute(items, order);
    Ok(())
}

/// Puts the item of index `order[i]` at `i`, for all `i`. Objects are large, so that each is moved only a few times.
fn permute<T>(items: &mut [T], mut order: Vec<usize>) {
    for at in 0..order.len() {
        let mut from = order[at];
        // What was before `at` has made room already, and went where the order says.
        while from < at {
            from = order[from];
        }
        order[at] = from;
        items.swap(at, from);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read<T: serde::de::DeserializeOwned>(json: &str) -> T {
        serde_json::from_str(json).expect(json)
    }

    fn bound(name: &str, more: &str) -> Pod {
        read(&format!(
            r#"{{"metadata":{{"name":"{name}"{more}}},"spec":{{"nodeName":"n","containers":[{{"resources":{{"requests":{{"cpu":"1"}}}}}}]}}}}"#
        ))
    }

    fn node(more: &str) -> Node {
        read(&format!(
            r#"{{"metadata":{{"name":"n"{more}}},"spec":{{"providerID":"id"}},"status":{{"allocatable":{{"cpu":"8","pods":"10"}}}}}}"#
        ))
    }

    #[test]
    fn pods_in_any_order_are_found_by_their_keys() {
        let keys = ["b/x", "a/y", "a/x", "default/z", "b/a"].map(|key| key.parse::<ObjectKey>().expect("a key"));
        let pod = |key: &ObjectKey| {
            // The default namespace need not be written.
            let namespace = if key.namespace == "default" { "" } else { &key.namespace };
            read::<Pod>(&format!(r#"{{"metadata":{{"name":"{}","namespace":"{namespace}"}}}}"#, key.name))
        };
        let pods: Vec<Pod> = keys.iter().map(pod).collect();
        let snapshot = Snapshot::builder().pods(pods[..3].to_vec()).pods(pods[3..].to_vec()).build().expect("valid");
        let names: Vec<_> = snapshot.pods().iter().map(|pod| pod.key().to_string()).collect();
        assert_eq!(names, ["a/x", "a/y", "b/a", "b/x", "default/z"]);
        for key in &keys {
            assert_eq!(snapshot.pod(key).map(Pod::key).as_ref(), Some(key));
        }
        assert_eq!(snapshot.pod(&ObjectKey::new("c", "x")), None);
    }

    #[test]
    fn bound_pods_and_expected_daemons_take_room() {
        let daemonset = |name: &str| {
            read::<DaemonSet>(&format!(
                r#"{{"metadata":{{"name":"{name}","uid":"{name}"}},"spec":{{"template":{{"spec":{{"containers":[{{"resources":{{"requests":{{"cpu":"100m"}}}}}}]}}}}}}}}"#
            ))
        };
        let daemon = r#","ownerReferences":[{"apiVersion":"apps/v1","kind":"DaemonSet","name":"here","uid":"here"}]"#;
        let snapshot = Snapshot::builder()
            .node(node(""))
            .daemonset(daemonset("here"))
            .daemonset(daemonset("coming"))
            .pods(vec![bound("a", ""), bound("d", daemon)])
            .build()
            .expect("valid");
        assert_eq!(snapshot.places()[0].free.to_string(), "cpu 5900m, pods 7");
        assert_eq!(snapshot.pending().len(), 0);
    }

    #[test]
    fn pods_of_a_node_that_goes_move_unless_something_holds_them() {
        let gone = r#","deletionTimestamp":"2026-01-01T00:00:00Z""#;
        let budget: PodDisruptionBudget = read(
            r#"{"metadata":{"name":"b","namespace":"default"},"spec":{"maxUnavailable":"0%","selector":{"matchLabels":{"app":"held"}}}}"#,
        );
        let owner = r#""ownerReferences":[{"apiVersion":"apps/v1","kind":"StatefulSet"}]"#;
        let snapshot = Snapshot::builder()
            .node(node(gone))
            .budget(budget)
            .pods(vec![
                bound("free", ""),
                bound("held", r#","labels":{"app":"held"}"#),
                bound("stays", r#","annotations":{"karpenter.sh/do-not-disrupt":"true"}"#),
                bound("leaving", gone),
                bound("set", &format!("{gone},{owner}")),
            ])
            .build()
            .expect("valid");
        let pending: Vec<_> = snapshot.pending().map(|p| p.metadata.name.as_str()).collect();
        assert_eq!(pending, ["free", "set"]);
    }

    #[test]
    fn a_launched_claim_is_a_place_and_an_unlaunched_one_keeps_its_promises() {
        let claim: NodeClaim = read(
            r#"{"metadata":{"name":"c","labels":{"karpenter.sh/nodepool":"p"}},"spec":{"startupTaints":[{"key":"s","effect":"NoSchedule"}],"taints":[{"key":"s","effect":"NoSchedule"},{"key":"t","effect":"NoSchedule"}]},"status":{"providerID":"id","allocatable":{"cpu":"4","pods":"10"}}}"#,
        );
        let mut unlaunched = claim.clone();
        unlaunched.metadata.name = "u".to_owned();
        unlaunched.status = crate::api::NodeClaimStatus::default();
        let snapshot = Snapshot::builder()
            .claims([claim, unlaunched])
            .pods(Pod::named("a").cpu("1"))
            .pods(Pod::named("b").cpu("1"))
            .pods(Pod::named("c").cpu("1"))
            .nominate(ObjectKey::new("default", "a"), "c")
            .nominate(ObjectKey::new("default", "b"), "u")
            .nominate(ObjectKey::new("default", "c"), "nowhere")
            .build()
            .expect("valid");
        let place = &snapshot.places()[0];
        assert_eq!(
            (place.name.as_str(), place.pool.as_deref(), place.free.to_string().as_str()),
            ("c", Some("p"), "cpu 3, pods 9")
        );
        assert_eq!(place.taints.iter().map(ToString::to_string).collect::<Vec<_>>(), ["t:NoSchedule"]);
        assert_eq!(snapshot.places().len(), 1);
        assert_eq!(snapshot.pending().map(Pod::key).collect::<Vec<_>>(), [ObjectKey::new("default", "c")]);
    }

    #[test]
    fn what_the_scheduler_nominates_takes_room_and_is_not_planned() {
        let nominated = |name: &str, node: &str, more: &str| {
            read::<Pod>(&format!(
                r#"{{"metadata":{{"name":"{name}"{more}}},"spec":{{"containers":[{{"resources":{{"requests":{{"cpu":"1"}}}},"ports":[{{"hostPort":80}}]}}]}},"status":{{"nominatedNodeName":"{node}","conditions":[{{"type":"PodScheduled","status":"False","reason":"Unschedulable"}}]}}}}"#
            ))
        };
        let gone = r#","deletionTimestamp":"2026-01-01T00:00:00Z""#;
        for (of_node, of_pod, on, free, pending) in [
            ("", "", "n", "cpu 7, pods 9", 0),
            ("", gone, "n", "cpu 8, pods 10", 0),
            ("", "", "elsewhere", "cpu 8, pods 10", 0),
            ("", "", "", "cpu 8, pods 10", 1),
            (gone, "", "n", "cpu 7, pods 9", 0),
        ] {
            let pods = vec![nominated("a", on, of_pod)];
            let snapshot = Snapshot::builder().node(node(of_node)).pods(pods).build().expect("valid");
            let place = &snapshot.places()[0];
            let found = (place.free.to_string(), place.host_ports.len() == place.pods.len(), snapshot.pending().len());
            assert_eq!(found, (free.to_owned(), true, pending), "{of_node} {of_pod} {on}");
        }
    }

    #[test]
    fn a_namespace_has_a_label_of_its_name() {
        let namespace =
            |labels: &str| read::<Namespace>(&format!(r#"{{"metadata":{{"name":"n","labels":{labels}}}}}"#));
        for (labels, expected) in [
            ("null", r#"{"n": {"kubernetes.io/metadata.name": "n"}}"#),
            (r#"{"a":"b"}"#, r#"{"n": {"a": "b", "kubernetes.io/metadata.name": "n"}}"#),
            (r#"{"kubernetes.io/metadata.name":"n"}"#, r#"{"n": {"kubernetes.io/metadata.name": "n"}}"#),
        ] {
            let snapshot = Snapshot::builder().namespaces([namespace(labels)]).build().expect("valid");
            assert_eq!(format!("{:?}", snapshot.namespaces()), expected);
        }
    }

    #[test]
    fn mistakes_are_named() {
        let build = |builder: SnapshotBuilder| builder.build().map(|_| ()).map_err(|e| e.to_string());
        let twice = Snapshot::builder().pods(Pod::named("a")).pods(Pod::named("a"));
        assert_eq!(build(twice), Err("Pod default/a: metadata.name: there is another Pod of this name".to_owned()));
        assert_eq!(
            build(Snapshot::builder().pods(Pod::named("a").cpu("1x"))).map_err(|e| e[..60].to_owned()),
            Err("Pod default/a: spec.containers[0].resources.requests.cpu: in".to_owned())
        );
        let claim = |json: &str| read::<PersistentVolumeClaim>(json);
        let claims =
            [claim(r#"{"metadata":{"name":"c"}}"#), claim(r#"{"metadata":{"name":"c","namespace":"default"}}"#)];
        assert_eq!(
            build(Snapshot::builder().volume_claims(claims)),
            Err("PersistentVolumeClaim default/c: metadata.name: there is another PersistentVolumeClaim of this name"
                .to_owned())
        );
        let node = || CsiNode { metadata: ObjectMeta::named("n"), ..CsiNode::default() };
        assert_eq!(
            build(Snapshot::builder().csi_nodes([node(), node()])),
            Err("CSINode n: metadata.name: there is another CSINode of this name".to_owned())
        );
        assert_eq!(
            build(Snapshot::builder().namespaces([Namespace::default()])),
            Err("Namespace: metadata.name: must not be empty".to_owned())
        );
        assert_eq!(
            build(Snapshot::builder().pool(NodePool::named(""))),
            Err("NodePool: metadata.name: must not be empty".to_owned())
        );
    }
}
