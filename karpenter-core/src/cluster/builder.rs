use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use indexmap::{IndexMap, IndexSet};

use super::{Exchange, Objects, Place, Snapshot, Storage, daemons::foresee_daemons, place::is_going, tenancy};
use crate::{
    FxBuild,
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
        let by_name = index_of(&sites);
        let launching: IndexSet<&str, FxBuild> = self.claims.iter().map(|claim| claim.name()).collect();
        let mut pods_at: Vec<Vec<usize>> = vec![Vec::new(); sites.len()];
        let (mut pending, mut stands) = (Vec::new(), Vec::with_capacity(self.pods.len()));
        let mut known = Stands::new(self.earlier.as_ref(), &sites, &by_name);
        for (index, pod) in self.pods.iter().enumerate() {
            if let Some(site) = known.site_of(pod) {
                pods_at[site as usize].push(index);
                stands.push(Some(site));
                continue;
            }
            let is_known = |name: &&String| by_name.contains_key(name.as_str()) || launching.contains(name.as_str());
            let goes = |name: &str| by_name.get(name).is_some_and(|&site| sites[site].is_deleting());
            let bound = Some(&pod.spec.node_name).filter(|name| !name.is_empty());
            // What was promised to a pod that ends is for whoever comes in its stead.
            let planned = match bound {
                Some(node) if !goes(node) || !pod.is_reschedulable() => bound,
                _ => self.promised(pod).filter(is_known).or(bound),
            };
            let there = planned.or_else(|| nominated_node(pod));
            let number = there.and_then(|name| by_name.get(name.as_str())).copied();
            let site = number.map(|site| &sites[site]);
            let wants_place = match site {
                Some(site) if planned.is_some() && site.is_deleting() => must_move(pod, &self.budgets),
                _ => there.is_none() && is_provisionable(pod),
            };
            let mut stand = None;
            if wants_place {
                pending.push(index);
            } else if let Some(number) = number.filter(|_| !pod.is_finished()) {
                pods_at[number].push(index);
                let is_own = pod.spec.node_name == sites[number].name();
                stand = u32::try_from(number).ok().filter(|_| is_own);
            }
            stands.push(stand);
        }
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

    /// The place that was promised to a pod.
    fn promised(&self, pod: &Pod) -> Option<&String> {
        if self.nominations.is_empty() { None } else { self.nominations.get(&pod.key()) }
    }
}

/// What a place is made from: a node, a claim or both, and the indices of the pods that are there or promised to it.
struct Site {
    node: Option<Arc<Node>>,
    claim: Option<Arc<NodeClaim>>,
    pods: Vec<usize>,
}

impl Site {
    fn name(&self) -> &str {
        let of_claim = || self.claim.as_ref().map_or("", |claim| claim.name());
        self.node.as_ref().map_or_else(of_claim, |node| &node.metadata.name)
    }

    fn is_deleting(&self) -> bool {
        is_going(self.node.as_deref(), self.claim.as_deref())
    }

    /// Whether a place is made from the same node and claim.
    fn is_of(&self, place: &Place) -> bool {
        fn are_same<T: PartialEq>(one: Option<&Arc<T>>, other: Option<&Arc<T>>) -> bool {
            one.zip(other).map_or(one.is_none() && other.is_none(), |(a, b)| Arc::ptr_eq(a, b) || a == b)
        }
        are_same(self.node.as_ref(), place.node.as_ref()) && are_same(self.claim.as_ref(), place.node_claim.as_ref())
    }
}

/// Where the pods of an earlier snapshot are bound. To look at a pod that is still the same takes no more time than to compare
/// where it lies in memory.
struct Stands<'e> {
    pods: &'e [Arc<Pod>],
    places: &'e [Option<u32>],
    /// For each place of the earlier snapshot the site of the same node, if pods can stay there.
    sites: Vec<Option<u32>>,
    /// The pod that comes next.
    next: usize,
}

impl<'e> Stands<'e> {
    fn new(earlier: Option<&'e Snapshot>, sites: &[Site], by_name: &IndexMap<&str, usize, FxBuild>) -> Self {
        let earlier = earlier.filter(|earlier| earlier.stands.len() == earlier.pods.len());
        let Some(earlier) = earlier else { return Self { pods: &[], places: &[], sites: Vec::new(), next: 0 } };
        let site_of = |place: &Arc<Place>| {
            let &index = by_name.get(place.name.as_str())?;
            let site = Some(&sites[index]).filter(|site| site.name() == place.name && !site.is_deleting());
            site.and_then(|_| u32::try_from(index).ok())
        };
        let sites = earlier.places.iter().map(site_of).collect();
        Self { pods: &earlier.pods, places: &earlier.stands, sites, next: 0 }
    }

    /// The site that a pod is bound to, if it is as it was. Pods are asked for in order.
    fn site_of(&mut self, pod: &Arc<Pod>) -> Option<u32> {
        let is_it = |known: Option<&Arc<Pod>>| known.is_some_and(|known| Arc::ptr_eq(known, pod));
        if !is_it(self.pods.get(self.next)) {
            let rest = &self.pods[self.next..];
            self.next += rest.iter().take_while(|known| known.sort_key() < pod.sort_key()).count();
            if !is_it(self.pods.get(self.next)) {
                return None;
            }
        }
        let place = self.places[self.next];
        self.next += 1;
        self.sites[place? as usize]
    }
}

/// Nodes with their claims, and claims that have no node yet.
///
/// A claim without a provider id may become anything that it allows, so it is no place for further pods. It is a place for
/// those to whom it was promised.
fn join(nodes: Vec<Arc<Node>>, claims: &[Arc<NodeClaim>], promised: &BTreeSet<&str>) -> Vec<Site> {
    let launched = claims.iter().filter(|claim| !is_unlaunched(claim));
    // Few names of machines are those of several claims, and most often none is.
    let (mut by_id, mut further) = (IndexMap::<&str, &Arc<NodeClaim>, FxBuild>::default(), Vec::new());
    for claim in launched {
        further.extend(by_id.insert(claim.status.provider_id.as_str(), claim));
    }
    let site = |node, claim: Option<&Arc<NodeClaim>>| Site { node, claim: claim.cloned(), pods: Vec::new() };
    let mut sites = Vec::with_capacity(nodes.len());
    // A node may be there, under the name of its claim, before it is known whose it is.
    let is_node = |name: &str| nodes.binary_search_by(|node| node.metadata.name.as_str().cmp(name)).is_ok();
    let is_expected = |claim: &&Arc<NodeClaim>| {
        is_unlaunched(claim) && claim.metadata.deletion_timestamp.is_none() && promised.contains(claim.name())
    };
    let expected = claims.iter().filter(is_expected).filter(|claim| !is_node(claim.name()));
    sites.extend(expected.map(|claim| site(None, Some(claim))));
    for node in nodes {
        let claim = take_claim_of(&node, &mut by_id, &mut further);
        sites.push(site(Some(node), claim));
    }
    by_id.sort_unstable_keys();
    sites.extend(by_id.into_values().chain(further).map(|claim| site(None, Some(claim))));
    sites
}

/// Takes the claim of a node from those that no node was found for yet.
fn take_claim_of<'c>(
    node: &Node,
    by_id: &mut IndexMap<&str, &'c Arc<NodeClaim>, FxBuild>,
    further: &mut Vec<&'c Arc<NodeClaim>>,
) -> Option<&'c Arc<NodeClaim>> {
    let id = node.spec.provider_id.as_str();
    let rest = further.iter().filter(|claim| claim.status.provider_id == id);
    let claim = tenancy::claim_of(node, by_id.get(id).into_iter().chain(rest).copied())?;
    match further.iter().position(|other| Arc::ptr_eq(other, claim)) {
        Some(index) => drop(further.remove(index)),
        None => drop(by_id.swap_remove(id)),
    }
    Some(claim)
}

fn is_unlaunched(claim: &NodeClaim) -> bool {
    claim.status.provider_id.is_empty()
}

/// The position of each site, by the name of its node and by that of its claim.
fn index_of(sites: &[Site]) -> IndexMap<&str, usize, FxBuild> {
    let mut out = IndexMap::with_capacity_and_hasher(sites.len() * 2, FxBuild::default());
    for (i, site) in sites.iter().enumerate() {
        out.insert(site.name(), i);
        out.extend(site.claim.as_ref().map(|claim| (claim.name(), i)));
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
        let namespace = budget.metadata.namespace();
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
    if items.is_sorted_by(|a, b| key(a) < key(b)) && items.iter().all(|item| !key(item).1.is_empty()) {
        return Ok(());
    }
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
mod tests;
