use std::sync::Arc;

use super::{ActionId, ActionResult};
use crate::api::{
    CsiNode, DaemonSet, Namespace, Node, NodeClaim, NodePool, ObjectKey, PersistentVolume, PersistentVolumeClaim, Pod,
    PodDisruptionBudget, StorageClass,
};

/// Something that became known.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event {
    /// An object is there, or is like this now.
    Applied(Object),
    /// An object is gone.
    Deleted(ObjectRef),
    /// All objects that are there have been told: what was not is gone, or never was.
    Synced,
    /// What came of an action.
    Done {
        /// The action.
        id: ActionId,
        /// What came of it.
        result: ActionResult,
    },
}

/// An object of the cluster that decisions depend on.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the variants are named after what they hold")]
pub enum Object {
    NodePool(Arc<NodePool>),
    NodeClaim(Arc<NodeClaim>),
    Node(Arc<Node>),
    Pod(Arc<Pod>),
    DaemonSet(Arc<DaemonSet>),
    PodDisruptionBudget(Arc<PodDisruptionBudget>),
    Namespace(Arc<Namespace>),
    PersistentVolumeClaim(Arc<PersistentVolumeClaim>),
    PersistentVolume(Arc<PersistentVolume>),
    StorageClass(Arc<StorageClass>),
    CsiNode(Arc<CsiNode>),
}

/// Names an object of the cluster; those without a namespace have only a name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the variants are named after the kinds of objects")]
pub enum ObjectRef {
    NodePool(String),
    NodeClaim(String),
    Node(String),
    Pod(ObjectKey),
    DaemonSet(ObjectKey),
    PodDisruptionBudget(ObjectKey),
    Namespace(String),
    PersistentVolumeClaim(ObjectKey),
    PersistentVolume(String),
    StorageClass(String),
    CsiNode(String),
}
