//! The cluster as it was told last, to know what a write changes and which object a note is about.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ObjectReference;
use karpenter_core::{
    api::{Node, NodeClaim, NodeOverlay, NodePool, ObjectMeta},
    engine::{Event, Object, ObjectRef},
};

/// All objects, which the engine shares.
#[derive(Debug, Default)]
pub(crate) struct Mirror(BTreeMap<ObjectRef, Object>);

impl Mirror {
    pub(crate) fn observe(&mut self, event: &Event) {
        match event {
            Event::Applied(object) => {
                self.0.insert(object.reference(), object.clone());
            }
            Event::Deleted(reference) => {
                self.0.remove(reference);
            }
            _ => {}
        }
    }

    /// All of them.
    pub(crate) fn objects(&self) -> impl Iterator<Item = &Object> {
        self.0.values()
    }

    /// The node that a new version of it was made from, unless there is another version by now.
    pub(crate) fn node(&self, after: &Node) -> Option<Node> {
        match self.0.get(&ObjectRef::Node(after.metadata.name.clone()))? {
            Object::Node(node) if is_same(&node.metadata, &after.metadata) => Some((**node).clone()),
            _ => None,
        }
    }

    /// The same for a claim.
    pub(crate) fn claim(&self, after: &NodeClaim) -> Option<NodeClaim> {
        match self.0.get(&ObjectRef::NodeClaim(after.metadata.name.clone()))? {
            Object::NodeClaim(claim) if is_same(&claim.metadata, &after.metadata) => Some((**claim).clone()),
            _ => None,
        }
    }

    /// The same for a pool.
    pub(crate) fn pool(&self, after: &NodePool) -> Option<NodePool> {
        match self.0.get(&ObjectRef::NodePool(after.metadata.name.clone()))? {
            Object::NodePool(pool) if is_same(&pool.metadata, &after.metadata) => Some((**pool).clone()),
            _ => None,
        }
    }

    /// The same for an overlay.
    pub(crate) fn overlay(&self, after: &NodeOverlay) -> Option<NodeOverlay> {
        match self.0.get(&ObjectRef::NodeOverlay(after.metadata.name.clone()))? {
            Object::NodeOverlay(overlay) if is_same(&overlay.metadata, &after.metadata) => Some((**overlay).clone()),
            _ => None,
        }
    }

    /// How events of the cluster name an object.
    pub(crate) fn reference(&self, of: &ObjectRef) -> ObjectReference {
        let (api_version, kind, namespace, name) = match of {
            ObjectRef::NodePool(name) => ("karpenter.sh/v1", "NodePool", None, name),
            ObjectRef::NodeClaim(name) => ("karpenter.sh/v1", "NodeClaim", None, name),
            ObjectRef::Node(name) => ("v1", "Node", None, name),
            ObjectRef::Pod(key) => ("v1", "Pod", Some(&key.namespace), &key.name),
            ObjectRef::DaemonSet(key) => ("apps/v1", "DaemonSet", Some(&key.namespace), &key.name),
            ObjectRef::PodDisruptionBudget(key) => {
                ("policy/v1", "PodDisruptionBudget", Some(&key.namespace), &key.name)
            }
            other => panic!("nothing is said of {other:?}"),
        };
        let uid = match self.0.get(of) {
            Some(Object::NodePool(pool)) => Some(&pool.metadata.uid),
            Some(Object::NodeClaim(claim)) => Some(&claim.metadata.uid),
            Some(Object::Node(node)) => Some(&node.metadata.uid),
            Some(Object::Pod(pod)) => Some(&pod.metadata.uid),
            _ => None,
        };
        ObjectReference {
            api_version: Some(api_version.to_owned()),
            kind: Some(kind.to_owned()),
            namespace: namespace.cloned(),
            name: Some(name.clone()),
            uid: uid.filter(|uid| !uid.is_empty()).cloned(),
            ..ObjectReference::default()
        }
    }
}

fn is_same(known: &ObjectMeta, other: &ObjectMeta) -> bool {
    known.resource_version == other.resource_version && known.uid == other.uid
}
