use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{
    Exchange, Objects, Place, Snapshot, Storage,
    census::{Census, Registry},
    daemons::foresee_daemons,
    sites::{Site, is_unlaunched, join},
    unique::{by_key, by_name, sort_unique},
};
use crate::{
    Timestamp,
    api::{
        CsiNode, DaemonSet, FieldError, Namespace, Node, NodeClaim, NodePool, ObjectKey, PersistentVolume,
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
    nodes: Vec<Arc<Node>>,
    claims: Vec<Arc<NodeClaim>>,
    budgets: Vec<PodDisruptionBudget>,
    namespaces: Vec<Namespace>,
    volume_claims: Vec<PersistentVolumeClaim>,
    volumes: Vec<PersistentVolume>,
    storage_classes: Vec<StorageClass>,
    csi_nodes: Vec<CsiNode>,
    nominations: BTreeMap<ObjectKey, String>,
    closed_nodes: BTreeSet<String>,
    exchanges: BTreeMap<String, Exchange>,
    exchange_count: usize,
    now: Timestamp,
    earlier: Option<Snapshot>,
    /// Whether the pods are known to be in order.
    has_ordered_pods: bool,
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
        self.has_ordered_pods = false;
        // The first of several lists, which may be large, is kept as it is.
        if self.pods.is_empty() {
            self.pods = pods;
        } else {
            self.pods.append(&mut pods);
        }
        self.error = self.error.or(error);
        self
    }

    /// All pods, in the order of namespace and name, each with a name of its own.
    pub(crate) fn ordered_pods(mut self, pods: Vec<Arc<Pod>>) -> Self {
        debug_assert!(pods.is_sorted_by(|a, b| a.sort_key() < b.sort_key()), "pods in order");
        (self.pods, self.has_ordered_pods) = (pods, true);
        self
    }

    /// Adds a node.
    pub fn node(mut self, node: Node) -> Self {
        self.nodes.push(Arc::new(node));
        self
    }

    /// Adds nodes, shared or not.
    pub fn nodes<N: Into<Arc<Node>>>(mut self, nodes: impl IntoIterator<Item = N>) -> Self {
        self.nodes.extend(nodes.into_iter().map(Into::into));
        self
    }

    /// Adds a node claim.
    pub fn claim(mut self, claim: NodeClaim) -> Self {
        self.claims.push(Arc::new(claim));
        self
    }

    /// Adds node claims, shared or not.
    pub fn claims<C: Into<Arc<NodeClaim>>>(mut self, claims: impl IntoIterator<Item = C>) -> Self {
        self.claims.extend(claims.into_iter().map(Into::into));
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
    /// A promise of a place that does not exist is void, and so is one to a pod on a node that is not on its way out. A claim
    /// that is no machine yet becomes a place that takes no other pods.
    pub fn nominate(mut self, pod: ObjectKey, place: impl Into<String>) -> Self {
        self.nominations.insert(pod, place.into());
        self
    }

    /// Says that it is not known what runs on a node, so that nothing may be placed there.
    pub fn close_node(mut self, name: impl Into<String>) -> Self {
        self.closed_nodes.insert(name.into());
        self
    }

    /// Says that some claims go once others are there in their stead, and stay if these do not come. What counts for the limits of
    /// a pool is whichever of both is more, also where those that go are marked as deleted already.
    pub fn exchange(
        mut self,
        outgoing: impl IntoIterator<Item = String>,
        incoming: impl IntoIterator<Item = String>,
    ) -> Self {
        let number = self.exchange_count;
        let outgoing = outgoing.into_iter().map(|claim| (claim, Exchange { number, is_outgoing: true }));
        let incoming = incoming.into_iter().map(|claim| (claim, Exchange { number, is_outgoing: false }));
        self.exchanges.extend(incoming.chain(outgoing));
        self.exchange_count += 1;
        self
    }

    /// Says what time it is. A pod that asks to be left where it is for a while wants no other place before that time is over. If
    /// nobody says, no such time is over.
    pub const fn at(mut self, now: Timestamp) -> Self {
        self.now = now;
        self
    }

    /// Shares with an earlier snapshot of the same cluster what has not changed since, which saves the time to work it out. It
    /// has no bearing on what the snapshot is.
    pub fn sharing_with(mut self, earlier: &Snapshot) -> Self {
        self.earlier = Some(earlier.clone());
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
        if !self.has_ordered_pods {
            sort_unique("Pod", &mut self.pods, |pod| pod.sort_key())?;
        }
        foresee_daemons(&mut self.daemonsets, &self.pods);
        sort_unique("PodDisruptionBudget", &mut self.budgets, |b| b.metadata.sort_key())?;
        let namespaces = by_name("Namespace", std::mem::take(&mut self.namespaces), |n| &n.metadata)?;
        let storage = self.take_storage()?;
        let mut labels = namespaces.into_iter().map(|(name, n)| (name.clone(), labels_of(name, n))).collect();
        name_namespaces(&mut labels, &self.pods);
        Ok(self.assemble(labels, storage))
    }

    fn take_storage(&mut self) -> Result<Storage, SnapshotError> {
        let claims = std::mem::take(&mut self.volume_claims);
        let stays = |name: &&str| {
            let found = self.nodes.binary_search_by(|node| node.metadata.name.as_str().cmp(name));
            found.is_ok_and(|at| self.nodes[at].metadata.deletion_timestamp.is_none())
        };
        let selected = |claim: &PersistentVolumeClaim| {
            claim.selected_node().filter(stays).map(|node| (claim.key(), node.to_owned()))
        };
        Ok(Storage {
            selected_nodes: claims.iter().filter_map(selected).collect(),
            claims: by_key("PersistentVolumeClaim", claims, PersistentVolumeClaim::key)?,
            volumes: by_name("PersistentVolume", std::mem::take(&mut self.volumes), |v| &v.metadata)?,
            classes: by_name("StorageClass", std::mem::take(&mut self.storage_classes), |c| &c.metadata)?,
            csi_nodes: by_name("CSINode", std::mem::take(&mut self.csi_nodes), |n| &n.metadata)?,
        })
    }

    fn assemble(mut self, namespaces: BTreeMap<String, BTreeMap<String, String>>, storage: Storage) -> Snapshot {
        let promised: BTreeSet<&str> = self.nominations.values().map(String::as_str).collect();
        let mut sites = join(std::mem::take(&mut self.nodes), &self.claims, &promised);
        sites.sort_by(|a, b| a.name().cmp(b.name()));
        let registry = Registry::new(&sites, &self.claims, &self.nominations, &self.budgets, self.now);
        let Census { pods_at, pending, stands } = registry.census(&self.pods, self.earlier.as_ref());
        for (site, pods) in sites.iter_mut().zip(pods_at) {
            site.pods = pods;
        }
        let places = self.places(sites, &storage);
        let unlaunched =
            self.claims.iter().filter(|claim| is_unlaunched(claim)).map(|claim| NodeClaim::clone(claim)).collect();
        let Self { pools, daemonsets, budgets, pods, exchanges, .. } = self;
        let objects = Objects { pools, daemonsets, unlaunched, exchanges, budgets, namespaces, storage };
        Snapshot { objects: Arc::new(objects), pods: pods.into(), pending, places, stands: stands.into() }
    }

    /// The place of each site, which is that of the earlier snapshot if all that it is made from is the same.
    fn places(&self, sites: Vec<Site>, storage: &Storage) -> Vec<Arc<Place>> {
        let are_same =
            |earlier: &&Snapshot| earlier.objects.daemonsets == self.daemonsets && earlier.objects.storage == *storage;
        let earlier = self.earlier.as_ref().filter(are_same).map_or(&[][..], |earlier| &earlier.places);
        let known = |site: &Site| {
            let index = earlier.binary_search_by(|place| place.name.as_str().cmp(site.name())).ok()?;
            let is_closed = self.closed_nodes.contains(site.name());
            let pods = site.pods.iter().map(|&index| &self.pods[index]);
            let place = &earlier[index];
            (place.is_closed == is_closed && site.is_of(place) && place.residents.are_shared_with(pods))
                .then_some(place)
        };
        let place = |site: Site| known(&site).cloned().unwrap_or_else(|| Arc::new(self.place(&site, storage)));
        sites.into_iter().map(place).collect()
    }

    fn place(&self, site: &Site, storage: &Storage) -> Place {
        if let (None, Some(claim)) = (&site.node, site.claim.as_ref().filter(|claim| is_unlaunched(claim))) {
            let mut place = Place::unlaunched(claim);
            site.pods.iter().for_each(|&index| place.house(&self.pods[index]));
            return place;
        }
        let mut place = Place::new(site.node.as_ref(), site.claim.as_ref());
        if place.node.is_some() {
            place.volume_limits = storage.limits_of(&place.name);
        }
        let mut running_daemons = BTreeSet::new();
        for &index in &site.pods {
            let pod = &self.pods[index];
            place.add_pod(pod, storage);
            let owners = pod.metadata.owner_references.iter().filter(|o| o.kind == "DaemonSet");
            running_daemons.extend(owners.map(|o| o.uid.clone()));
        }
        place.expect_daemons(&self.daemonsets, &running_daemons);
        place.round();
        place.is_closed = self.closed_nodes.contains(&place.name);
        place
    }
}

/// The labels of a namespace, with the one that the API server gives to every namespace.
fn labels_of(name: String, namespace: Namespace) -> BTreeMap<String, String> {
    let mut labels = namespace.metadata.labels;
    labels.entry(labels::NAMESPACE_NAME.to_owned()).or_insert(name);
    labels
}

/// Gives the namespaces of pods, in order, that nothing is known of the label that the API server gives to every namespace.
pub(super) fn name_namespaces(labels: &mut BTreeMap<String, BTreeMap<String, String>>, pods: &[Arc<Pod>]) {
    let mut rest = pods;
    while let Some(namespace) = rest.first().map(|pod| pod.namespace()) {
        if !labels.contains_key(namespace) {
            labels.insert(namespace.to_owned(), labels_of(namespace.to_owned(), Namespace::default()));
        }
        rest = &rest[rest.partition_point(|pod| pod.namespace() <= namespace)..];
    }
}

#[cfg(test)]
mod tests;
