use std::collections::BTreeMap;

use crate::api::{CsiNode, ObjectKey, PersistentVolume, PersistentVolumeClaim, StorageClass};

/// The volumes of a cluster, the claims on them, and the classes of which further ones can be made.
#[derive(Clone, Debug, Default)]
pub struct Storage {
    pub(super) claims: BTreeMap<ObjectKey, PersistentVolumeClaim>,
    pub(super) volumes: BTreeMap<String, PersistentVolume>,
    pub(super) classes: BTreeMap<String, StorageClass>,
    pub(super) csi_nodes: BTreeMap<String, CsiNode>,
}

impl Storage {
    /// The claim of this namespace and name.
    pub fn claim(&self, key: &ObjectKey) -> Option<&PersistentVolumeClaim> {
        self.claims.get(key)
    }

    /// The volume of this name.
    pub fn volume(&self, name: &str) -> Option<&PersistentVolume> {
        self.volumes.get(name)
    }

    /// The class of this name.
    pub fn class(&self, name: &str) -> Option<&StorageClass> {
        self.classes.get(name)
    }

    /// The most volumes that each driver can attach to the node of this name; drivers without a limit are left out.
    pub fn limits_of(&self, node: &str) -> BTreeMap<String, u32> {
        self.csi_nodes.get(node).map(CsiNode::volume_limits).unwrap_or_default()
    }
}
