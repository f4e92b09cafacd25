//! The objects of the cluster as they were told last, and what is often asked about them.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use indexmap::IndexMap;

use super::{Object, ObjectRef, UnreadableClaim, UnreadablePod};
use crate::{
    FxBuild, ResourceList,
    api::{
        CsiNode, DaemonSet, Namespace, Node, NodeClaim, NodeOverlay, NodePool, ObjectKey, ObjectMeta, PersistentVolume,
        PersistentVolumeClaim, Pod, PodDisruptionBudget, StorageClass, VolumeAttachment,
    },
    cluster::{is_provisionable, pod_requests, tenancy},
    labels,
};

/// All objects, and indices over them.
#[derive(Clone, Debug, Default)]
pub(super) struct Store {
    pub(super) pools: BTreeMap<String, Arc<NodePool>>,
    pub(super) overlays: BTreeMap<String, Arc<NodeOverlay>>,
    pub(super) claims: BTreeMap<String, Arc<NodeClaim>>,
    /// Those that cannot be read, by name. What was known of them before still counts.
    pub(super) unreadable_claims: BTreeMap<String, UnreadableClaim>,
    pub(super) nodes: BTreeMap<String, Arc<Node>>,
    pub(super) pods: BTreeMap<ObjectKey, Arc<Pod>>,
    /// Those of them of which not all can be read.
    pub(super) unreadable: BTreeSet<ObjectKey>,
    pub(super) daemonsets: BTreeMap<ObjectKey, Arc<DaemonSet>>,
    pub(super) budgets: BTreeMap<ObjectKey, Arc<PodDisruptionBudget>>,
    pub(super) namespaces: BTreeMap<String, Arc<Namespace>>,
    pub(super) volume_claims: BTreeMap<ObjectKey, Arc<PersistentVolumeClaim>>,
    pub(super) volumes: BTreeMap<String, Arc<PersistentVolume>>,
    pub(super) storage_classes: BTreeMap<String, Arc<StorageClass>>,
    pub(super) csi_nodes: BTreeMap<String, Arc<CsiNode>>,
    pub(super) attachments: BTreeMap<String, Arc<VolumeAttachment>>,
    /// The nodes by the provider id of their machine.
    nodes_by_id: Index<BTreeMap<String, Arc<Node>>>,
    claims_by_id: Index<BTreeMap<String, Arc<NodeClaim>>>,
    pods_by_node: Index<BTreeMap<ObjectKey, Arc<Pod>>>,
    attachments_by_node: Index<BTreeMap<String, Arc<VolumeAttachment>>>,
    /// The names of the claims that have no machine yet.
    pub(super) unlaunched: BTreeSet<String>,
    /// The names of the claims and of the nodes that are being deleted.
    leaving_claims: BTreeSet<String>,
    pub(super) leaving_nodes: BTreeSet<String>,
    /// What was told since all objects are being told anew.
    listed: Option<BTreeSet<ObjectRef>>,
    /// Counts the changes that bear on where pods can go, save those of pods.
    pub(super) supply: u64,
    /// Counts all changes that bear on which nodes are needed.
    pub(super) changes: u64,
    /// Counts the changes of which nodes a pool has, what they have, and which hashes their claims have.
    pub(super) census: u64,
    /// The names of the nodes that such changes were about, until they are counted.
    pub(super) uncounted: BTreeSet<String>,
}

/// Objects by what they have in common, which is asked for one at a time.
type Index<T> = IndexMap<String, T, FxBuild>;

/// What an object is like and was like.
pub(super) enum Change {
    Pool {
        name: String,
        before: Option<Arc<NodePool>>,
    },
    Overlay {
        name: String,
        before: Option<Arc<NodeOverlay>>,
    },
    Claim {
        name: String,
        before: Option<Arc<NodeClaim>>,
    },
    Node {
        before: Option<Arc<Node>>,
        name: String,
    },
    Pod {
        key: ObjectKey,
        before: Option<Arc<Pod>>,
    },
    /// A volume is attached to a node, or is not any more.
    Attachment {
        node: String,
    },
    Other,
}

impl Store {
    /// All objects will be told anew.
    pub(super) fn begin_list(&mut self) {
        self.listed = Some(BTreeSet::new());
    }

    /// All objects were told: names those that were not, which are gone.
    pub(super) fn end_list(&mut self) -> Vec<ObjectRef> {
        let Some(listed) = self.listed.take() else { return Vec::new() };
        self.references().filter(|object| !listed.contains(object)).collect()
    }

    fn references(&self) -> impl Iterator<Item = ObjectRef> {
        let all = self.pools.keys().cloned().map(ObjectRef::NodePool);
        let all = all.chain(self.overlays.keys().cloned().map(ObjectRef::NodeOverlay));
        let all = all.chain(self.claims.keys().cloned().map(ObjectRef::NodeClaim));
        let all = all.chain(self.unreadable_claims.keys().cloned().map(ObjectRef::NodeClaim));
        let all = all.chain(self.nodes.keys().cloned().map(ObjectRef::Node));
        let all = all.chain(self.pods.keys().cloned().map(ObjectRef::Pod));
        let all = all.chain(self.daemonsets.keys().cloned().map(ObjectRef::DaemonSet));
        let all = all.chain(self.budgets.keys().cloned().map(ObjectRef::PodDisruptionBudget));
        let all = all.chain(self.namespaces.keys().cloned().map(ObjectRef::Namespace));
        let all = all.chain(self.volume_claims.keys().cloned().map(ObjectRef::PersistentVolumeClaim));
        let all = all.chain(self.volumes.keys().cloned().map(ObjectRef::PersistentVolume));
        let all = all.chain(self.storage_classes.keys().cloned().map(ObjectRef::StorageClass));
        let all = all.chain(self.csi_nodes.keys().cloned().map(ObjectRef::CsiNode));
        all.chain(self.attachments.keys().cloned().map(ObjectRef::VolumeAttachment))
    }

    /// Whether a pool or a claim of this name is known.
    pub(super) fn has(&self, object: &Object) -> bool {
        match object {
            Object::NodePool(pool) => self.pools.contains_key(pool.name()),
            Object::NodeClaim(claim) => self.claims.contains_key(claim.name()),
            _ => false,
        }
    }

    /// Takes in what an object is like.
    pub(super) fn apply(&mut self, object: Object) -> Change {
        if let Some(listed) = &mut self.listed {
            listed.insert(object.reference());
        }
        self.changes += 1;
        self.supply += u64::from(!matches!(object, Object::Pod(_)));
        match object {
            Object::NodePool(pool) => {
                let name = pool.name().to_owned();
                let before = self.pools.insert(name.clone(), pool);
                return Change::Pool { name, before };
            }
            Object::NodeOverlay(overlay) => {
                let name = overlay.name().to_owned();
                let before = self.overlays.insert(name.clone(), overlay);
                return Change::Overlay { name, before };
            }
            Object::NodeClaim(claim) => return self.put_claim(claim.name().to_owned(), Some(&claim)),
            Object::UnreadableClaim(claim) => drop(self.unreadable_claims.insert(claim.name.clone(), claim)),
            Object::Node(node) => return self.put_node(node.metadata.name.clone(), Some(node)),
            Object::Pod(pod) => return self.put_pod(pod.key(), Some(pod)),
            Object::UnreadablePod(pod) => return self.put_unreadable(pod),
            Object::DaemonSet(set) => drop(self.daemonsets.insert(key_of(&set.metadata), set)),
            Object::PodDisruptionBudget(budget) => drop(self.budgets.insert(key_of(&budget.metadata), budget)),
            Object::Namespace(namespace) => {
                drop(self.namespaces.insert(namespace.metadata.name.clone(), namespace));
            }
            Object::PersistentVolumeClaim(claim) => drop(self.volume_claims.insert(claim.key(), claim)),
            Object::PersistentVolume(volume) => drop(self.volumes.insert(volume.metadata.name.clone(), volume)),
            Object::StorageClass(class) => {
                drop(self.storage_classes.insert(class.metadata.name.clone(), class));
            }
            Object::CsiNode(node) => drop(self.csi_nodes.insert(node.metadata.name.clone(), node)),
            Object::VolumeAttachment(attachment) => {
                return self.put_attachment(attachment.metadata.name.clone(), Some(attachment));
            }
        }
        Change::Other
    }

    /// Takes in that an object is gone.
    pub(super) fn remove(&mut self, object: ObjectRef) -> Change {
        self.changes += 1;
        self.supply += u64::from(!matches!(object, ObjectRef::Pod(_)));
        match object {
            ObjectRef::NodePool(name) => {
                let before = self.pools.remove(&name);
                return Change::Pool { name, before };
            }
            ObjectRef::NodeOverlay(name) => {
                let before = self.overlays.remove(&name);
                return Change::Overlay { name, before };
            }
            ObjectRef::NodeClaim(name) => return self.put_claim(name, None),
            ObjectRef::Node(name) => return self.put_node(name, None),
            ObjectRef::Pod(key) => return self.put_pod(key, None),
            ObjectRef::DaemonSet(key) => drop(self.daemonsets.remove(&key)),
            ObjectRef::PodDisruptionBudget(key) => drop(self.budgets.remove(&key)),
            ObjectRef::Namespace(name) => drop(self.namespaces.remove(&name)),
            ObjectRef::PersistentVolumeClaim(key) => drop(self.volume_claims.remove(&key)),
            ObjectRef::PersistentVolume(name) => drop(self.volumes.remove(&name)),
            ObjectRef::StorageClass(name) => drop(self.storage_classes.remove(&name)),
            ObjectRef::CsiNode(name) => drop(self.csi_nodes.remove(&name)),
            ObjectRef::VolumeAttachment(name) => return self.put_attachment(name, None),
        }
        Change::Other
    }

    fn put_claim(&mut self, name: String, after: Option<&Arc<NodeClaim>>) -> Change {
        self.unreadable_claims.remove(&name);
        let before = replace(&mut self.claims, name.clone(), after.cloned());
        let id = |claim: &NodeClaim| claim.status.provider_id.clone();
        let linked = after.map(|claim| (id(claim), claim.clone()));
        relink(&mut self.claims_by_id, before.as_deref().map(id), linked, &name);
        let is_leaving = after.is_some_and(|claim| claim.metadata.deletion_timestamp.is_some());
        mark(&mut self.leaving_claims, &name, is_leaving);
        mark(&mut self.unlaunched, &name, after.is_some_and(|claim| claim.status.provider_id.is_empty()));
        if before.as_deref().map(counted_of_claim) != after.map(|claim| counted_of_claim(claim)) {
            self.census += 1;
            for claim in [before.as_ref(), after].into_iter().flatten() {
                let nodes = self.nodes_by_id.get(&claim.status.provider_id);
                self.uncounted.extend(nodes.into_iter().flat_map(BTreeMap::keys).cloned());
            }
        }
        Change::Claim { name, before }
    }

    fn put_node(&mut self, name: String, node: Option<Arc<Node>>) -> Change {
        let before = replace(&mut self.nodes, name.clone(), node.clone());
        let id = |node: &Node| node.spec.provider_id.clone();
        relink(&mut self.nodes_by_id, before.as_deref().map(id), node.map(|node| (id(&node), node)), &name);
        let after = self.nodes.get(&name);
        let is_leaving = after.is_some_and(|node| node.metadata.deletion_timestamp.is_some());
        mark(&mut self.leaving_nodes, &name, is_leaving);
        if before.as_deref().map(counted_of_node) != after.map(|node| counted_of_node(node)) {
            self.census += 1;
            self.uncounted.insert(name.clone());
        }
        Change::Node { before, name }
    }

    fn put_pod(&mut self, key: ObjectKey, pod: Option<Arc<Pod>>) -> Change {
        self.supply += u64::from(self.unreadable.remove(&key));
        let before = replace(&mut self.pods, key.clone(), pod.clone());
        let node = |pod: &Pod| pod.spec.node_name.clone();
        relink(&mut self.pods_by_node, before.as_deref().map(node), pod.map(|pod| (node(&pod), pod)), &key);
        Change::Pod { key, before }
    }

    /// Puts what is known of a pod in its place, which is enough to evict it.
    fn put_unreadable(&mut self, pod: UnreadablePod) -> Change {
        let mut known = Pod::clone(&pod.rest);
        (known.metadata.namespace, known.metadata.name) = (pod.key.namespace.clone(), pod.key.name.clone());
        (known.metadata.uid, known.spec.node_name) = (pod.uid, pod.node_name);
        let change = self.put_pod(pod.key.clone(), Some(Arc::new(known)));
        self.unreadable.insert(pod.key);
        change
    }

    fn put_attachment(&mut self, name: String, attachment: Option<Arc<VolumeAttachment>>) -> Change {
        let node = |attachment: &VolumeAttachment| attachment.spec.node_name.clone();
        let old = self.attachments.get(&name).map(|attachment| node(attachment));
        let new = attachment.clone().map(|attachment| (node(&attachment), attachment));
        let told = new.as_ref().map(|(node, _)| node).or(old.as_ref()).cloned();
        relink(&mut self.attachments_by_node, old, new, &name);
        replace(&mut self.attachments, name, attachment);
        Change::Attachment { node: told.unwrap_or_default() }
    }

    /// The names of the volumes that are attached to a node. Those that are written down in a pod have none, so that nobody can say
    /// whether their pod stays.
    pub(super) fn volumes_at(&self, node: &str) -> impl Iterator<Item = &str> {
        let all = self.attachments_by_node.get(node).into_iter().flat_map(BTreeMap::values);
        let names = all.map(|attachment| attachment.spec.source.persistent_volume_name.as_str());
        names.filter(|name| !name.is_empty())
    }

    /// The names of the volumes that a pod mounts, as far as its claims are bound.
    pub(super) fn volumes_of(&self, pod: &Pod) -> impl Iterator<Item = &str> {
        let claims = pod.volume_claim_names().map(|name| ObjectKey::new(pod.namespace(), &name)).collect::<Vec<_>>();
        let bound = claims.into_iter().filter_map(|key| self.volume_claims.get(&key));
        bound.map(|claim| claim.spec.volume_name.as_str()).filter(|volume| !volume.is_empty())
    }

    /// What is left of a node. Pods that end still take room: the kube-scheduler gives it to nobody before they are gone.
    pub(super) fn room_left(&self, node: &Node) -> ResourceList {
        let mut room = node.status.allocatable.clone();
        for pod in self.pods_on(&node.metadata.name).filter(|pod| !pod.is_finished()) {
            room.subtract(&pod_requests(pod));
        }
        room
    }

    /// The pool that a claim was made from.
    pub(super) fn pool_of(&self, claim: &NodeClaim) -> Option<&Arc<NodePool>> {
        self.pools.get(claim.pool_name()?)
    }

    /// The claim of a node.
    pub(super) fn claim_of(&self, node: &Node) -> Option<&Arc<NodeClaim>> {
        tenancy::claim_of(node, self.claims_by_id.get(&node.spec.provider_id)?.values())
    }

    /// The claim of a machine.
    pub(super) fn claim_of_machine(&self, id: &str) -> Option<&Arc<NodeClaim>> {
        tenancy::tenant(self.claims_by_id.get(id)?.values())
    }

    /// The claims that name a machine: that of the machine, and others that come to their end.
    pub(super) fn claims_naming(&self, id: &str) -> impl Iterator<Item = &Arc<NodeClaim>> {
        self.claims_by_id.get(id).into_iter().flat_map(BTreeMap::values)
    }

    /// The nodes of a claim, which run on its machine.
    pub(super) fn nodes_of(&self, claim: &NodeClaim) -> impl Iterator<Item = &Arc<Node>> {
        let is_own = |node: &&Arc<Node>| {
            if tenancy::is_claimed(node) {
                return tenancy::is_named_by(node, claim);
            }
            let tenant = self.claim_of_machine(&node.spec.provider_id);
            tenant.is_none_or(|tenant| tenant.metadata.uid == claim.metadata.uid)
        };
        self.nodes_on(&claim.status.provider_id).filter(is_own)
    }

    /// The nodes that are being deleted, and those of claims that are being deleted or are among these. Some are named twice.
    pub(super) fn all_leaving_nodes<'s>(
        &'s self,
        further: &'s BTreeSet<String>,
    ) -> impl Iterator<Item = &'s Arc<Node>> {
        let claims = self.leaving_claims.iter().chain(further).filter_map(|name| self.claims.get(name));
        let of_claims = claims.flat_map(|claim| self.nodes_of(claim));
        self.leaving_nodes.iter().filter_map(|name| self.nodes.get(name)).chain(of_claims)
    }

    /// The nodes that carry the name of a machine.
    pub(super) fn nodes_on(&self, id: &str) -> impl Iterator<Item = &Arc<Node>> {
        self.nodes_by_id.get(id).into_iter().flat_map(BTreeMap::values)
    }

    /// The pods that are bound to a node.
    pub(super) fn pods_on(&self, node: &str) -> impl Iterator<Item = &Arc<Pod>> {
        self.pods_by_node.get(node).into_iter().flat_map(BTreeMap::values)
    }

    /// Whether not all can be read of a pod.
    pub(super) fn is_unreadable(&self, pod: &Pod) -> bool {
        !self.unreadable.is_empty() && self.unreadable.contains(&pod.key())
    }

    /// The names of the nodes of which it is not known what they have room for.
    pub(super) fn closed_nodes(&self) -> impl Iterator<Item = &String> {
        self.unreadable.iter().filter_map(|key| self.pods.get(key)).map(|pod| &pod.spec.node_name)
    }

    /// Whether this pod waits for a node that the engine has to make.
    pub(super) fn is_waiting(&self, key: &ObjectKey) -> bool {
        self.pods.get(key).is_some_and(|pod| waits(pod))
    }
}

/// What of a claim bears on what is counted of its pool.
fn counted_of_claim(claim: &NodeClaim) -> impl PartialEq {
    let meta = &claim.metadata;
    (meta.deletion_timestamp, &claim.status.provider_id, claim.pool_name(), &meta.annotations)
}

/// What of a node bears on what is counted of its pool.
fn counted_of_node(node: &Node) -> impl PartialEq {
    let meta = &node.metadata;
    (meta.deletion_timestamp, &node.spec.provider_id, meta.labels.get(labels::NODE_POOL), &node.status.capacity)
}

/// Whether a pod waits for a node that the engine has to make.
pub(super) fn waits(pod: &Pod) -> bool {
    pod.spec.node_name.is_empty() && is_provisionable(pod)
}

/// A pool that names no namespace has none; other objects that name none are in the default one.
fn key_of(meta: &ObjectMeta) -> ObjectKey {
    let namespace = meta.namespace();
    ObjectKey::new(namespace, &meta.name)
}

fn replace<K: Ord, V>(map: &mut BTreeMap<K, V>, key: K, value: Option<V>) -> Option<V> {
    match value {
        Some(value) => map.insert(key, value),
        None => map.remove(&key),
    }
}

/// Puts a name into a set, or takes it out.
fn mark(set: &mut BTreeSet<String>, name: &String, is_in: bool) {
    if !is_in {
        set.remove(name);
    } else if !set.contains(name) {
        set.insert(name.clone());
    }
}

/// Moves an object from what it had in common with others to what it has now, which is nothing if that is empty.
fn relink<K: Ord + Clone, V>(
    index: &mut Index<BTreeMap<K, V>>,
    from: Option<String>,
    to: Option<(String, V)>,
    name: &K,
) {
    if let Some(from) = from.filter(|from| to.as_ref().is_none_or(|(to, _)| to != from))
        && let Some(all) = index.get_mut(&from)
    {
        all.remove(name);
        if all.is_empty() {
            index.swap_remove(&from);
        }
    }
    if let Some((to, value)) = to.filter(|(to, _)| !to.is_empty()) {
        index.entry(to).or_default().insert(name.clone(), value);
    }
}
