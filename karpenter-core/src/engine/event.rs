use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{ActionId, ActionResult};
use crate::{
    api::{
        CsiNode, DaemonSet, Namespace, Node, NodeClaim, NodeOverlay, NodePool, ObjectKey, ObjectMeta, PersistentVolume,
        PersistentVolumeClaim, Pod, PodDisruptionBudget, StorageClass, VolumeAttachment,
    },
    provider::Instance,
};

/// Something that became known.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Event {
    /// An object is there, or is like this now.
    Applied(Object),
    /// An object is gone.
    Deleted(ObjectRef),
    /// All objects that are there will be told anew, as after a watch that was lost. Until [`Event::Synced`] nothing is known
    /// to be gone that is not told to be.
    Relist,
    /// All objects that are there have been told: what was not, since the last [`Event::Relist`], is gone or never was.
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
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the variants are named after what they hold")]
pub enum Object {
    NodePool(Arc<NodePool>),
    NodeOverlay(Arc<NodeOverlay>),
    NodeClaim(Arc<NodeClaim>),
    UnreadableClaim(UnreadableClaim),
    Node(Arc<Node>),
    Pod(Arc<Pod>),
    UnreadablePod(UnreadablePod),
    DaemonSet(Arc<DaemonSet>),
    PodDisruptionBudget(Arc<PodDisruptionBudget>),
    Namespace(Arc<Namespace>),
    PersistentVolumeClaim(Arc<PersistentVolumeClaim>),
    PersistentVolume(Arc<PersistentVolume>),
    StorageClass(Arc<StorageClass>),
    CsiNode(Arc<CsiNode>),
    VolumeAttachment(Arc<VolumeAttachment>),
}

/// A claim that cannot be read, say because it was written by a later version: its machine is left alone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct UnreadableClaim {
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// The provider's name for its machine, if it says so.
    pub provider_id: String,
}

impl UnreadableClaim {
    /// The claim of this name and uid.
    pub fn new(name: impl Into<String>, uid: impl Into<String>, provider_id: impl Into<String>) -> Self {
        Self { name: name.into(), uid: uid.into(), provider_id: provider_id.into() }
    }

    /// Whether a machine was made for it.
    pub(super) fn has(&self, machine: &Instance) -> bool {
        self.uid == machine.claim_uid || self.provider_id == machine.id.as_str()
    }
}

/// A pod of which not all can be read, say because it uses what a later version of Kubernetes knows: how much room it takes is
/// not known.
///
/// Its node takes no further pods and does not count as empty; if the node is drained all the same, the pod leaves as what can
/// be read of it says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct UnreadablePod {
    /// Its name.
    pub key: ObjectKey,
    /// Its uid.
    pub uid: String,
    /// The node that it is bound to.
    pub node_name: String,
    /// What else can be read and bears on when it leaves, such as annotations, owners, tolerations and priority.
    #[serde(default)]
    pub rest: Arc<Pod>,
}

impl UnreadablePod {
    /// The pod of this name and uid on a node, of which nothing else can be read.
    pub fn new(key: ObjectKey, uid: impl Into<String>, node_name: impl Into<String>) -> Self {
        Self { key, uid: uid.into(), node_name: node_name.into(), rest: Arc::default() }
    }

    /// The same, of which this can be read too.
    pub fn with_rest(self, rest: Pod) -> Self {
        Self { rest: Arc::new(rest), ..self }
    }
}

/// Names an object of the cluster; those without a namespace have only a name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the variants are named after the kinds of objects")]
pub enum ObjectRef {
    NodePool(String),
    NodeOverlay(String),
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
    VolumeAttachment(String),
}

impl Object {
    /// Names it.
    pub fn reference(&self) -> ObjectRef {
        let key = |meta: &ObjectMeta| {
            let namespace = meta.namespace();
            ObjectKey::new(namespace, &meta.name)
        };
        match self {
            Self::NodePool(pool) => ObjectRef::NodePool(pool.metadata.name.clone()),
            Self::NodeOverlay(overlay) => ObjectRef::NodeOverlay(overlay.metadata.name.clone()),
            Self::NodeClaim(claim) => ObjectRef::NodeClaim(claim.metadata.name.clone()),
            Self::UnreadableClaim(claim) => ObjectRef::NodeClaim(claim.name.clone()),
            Self::Node(node) => ObjectRef::Node(node.metadata.name.clone()),
            Self::Pod(pod) => ObjectRef::Pod(pod.key()),
            Self::UnreadablePod(pod) => ObjectRef::Pod(pod.key.clone()),
            Self::DaemonSet(set) => ObjectRef::DaemonSet(key(&set.metadata)),
            Self::PodDisruptionBudget(budget) => ObjectRef::PodDisruptionBudget(key(&budget.metadata)),
            Self::Namespace(namespace) => ObjectRef::Namespace(namespace.metadata.name.clone()),
            Self::PersistentVolumeClaim(claim) => ObjectRef::PersistentVolumeClaim(claim.key()),
            Self::PersistentVolume(volume) => ObjectRef::PersistentVolume(volume.metadata.name.clone()),
            Self::StorageClass(class) => ObjectRef::StorageClass(class.metadata.name.clone()),
            Self::CsiNode(node) => ObjectRef::CsiNode(node.metadata.name.clone()),
            Self::VolumeAttachment(attachment) => ObjectRef::VolumeAttachment(attachment.metadata.name.clone()),
        }
    }
}
