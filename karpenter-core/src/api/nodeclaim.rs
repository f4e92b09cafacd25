use serde::{Deserialize, Serialize};

use super::{
    Condition, ConditionStatus, NillableDuration, NodeSelectorRequirement, ObjectMeta, Resources, Taint,
    conditions::{LAUNCHED, condition},
    is_default,
    nodepool::default_expire_after,
    nullable,
};
use crate::{ResourceList, Timestamp, labels};

/// One node, wanted or there (`karpenter.sh/v1`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct NodeClaim {
    /// `karpenter.sh/v1`.
    pub api_version: String,
    /// `NodeClaim`.
    pub kind: String,
    /// Names and labels; the labels become the node's.
    pub metadata: ObjectMeta,
    /// What is wanted.
    #[serde(deserialize_with = "nullable")]
    pub spec: NodeClaimSpec,
    /// What is.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "nullable")]
    pub status: NodeClaimStatus,
}

impl Default for NodeClaim {
    fn default() -> Self {
        Self {
            api_version: "karpenter.sh/v1".to_owned(),
            kind: "NodeClaim".to_owned(),
            metadata: ObjectMeta::default(),
            spec: NodeClaimSpec::default(),
            status: NodeClaimStatus::default(),
        }
    }
}

impl NodeClaim {
    /// A claim of this name.
    pub fn named(name: impl Into<String>) -> Self {
        Self { metadata: ObjectMeta::named(name), ..Self::default() }
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.metadata.name
    }

    /// The name of the pool that it was made from, as its label says.
    pub fn pool_name(&self) -> Option<&str> {
        self.metadata.labels.get(labels::NODE_POOL).map(String::as_str)
    }

    /// When its machine was launched, if it was.
    pub(crate) fn launched_at(&self) -> Option<Timestamp> {
        condition(&self.status.conditions, LAUNCHED).filter(|c| c.status == ConditionStatus::True)?.last_transition_time
    }
}

/// What is wanted of a [`NodeClaim`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct NodeClaimSpec {
    /// The provider's settings.
    #[serde(deserialize_with = "nullable")]
    pub node_class_ref: NodeClassRef,
    /// What its labels must be like.
    #[serde(deserialize_with = "nullable")]
    pub requirements: Vec<NodeSelectorRequirement>,
    /// What its pods need together.
    #[serde(deserialize_with = "nullable")]
    pub resources: Resources,
    /// Taints that stay.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "nullable")]
    pub taints: Vec<Taint>,
    /// Taints that somebody else takes away once the node is ready.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "nullable")]
    pub startup_taints: Vec<Taint>,
    /// How long the node lives.
    pub expire_after: NillableDuration,
    /// How long its pods may take to leave it.
    #[serde(skip_serializing_if = "is_default")]
    pub termination_grace_period: Option<NillableDuration>,
}

impl Default for NodeClaimSpec {
    fn default() -> Self {
        Self {
            node_class_ref: NodeClassRef::default(),
            requirements: Vec::new(),
            resources: Resources::default(),
            taints: Vec::new(),
            startup_taints: Vec::new(),
            expire_after: default_expire_after(),
            termination_grace_period: None,
        }
    }
}

/// How a [`NodeClaim`] fares.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct NodeClaimStatus {
    /// The node that it became.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "nullable")]
    pub node_name: String,
    /// The provider's name for the machine; empty until it is launched.
    #[serde(rename = "providerID", skip_serializing_if = "is_default", deserialize_with = "nullable")]
    pub provider_id: String,
    /// The image that the machine was started from.
    #[serde(rename = "imageID", skip_serializing_if = "is_default", deserialize_with = "nullable")]
    pub image_id: String,
    /// All that the machine has.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "nullable")]
    pub capacity: ResourceList,
    /// What pods may have of it.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "nullable")]
    pub allocatable: ResourceList,
    /// Observed aspects.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "nullable")]
    pub conditions: Vec<Condition>,
    /// When a pod last came or went.
    #[serde(skip_serializing_if = "is_default")]
    pub last_pod_event_time: Option<Timestamp>,
}

impl NodeClaimStatus {
    /// Whether a condition of this type is there and holds.
    pub fn is_true(&self, condition: &str) -> bool {
        self.conditions.iter().any(|c| c.r#type == condition && c.status == ConditionStatus::True)
    }
}

/// Names the provider's settings for nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct NodeClassRef {
    /// The API group, without a version.
    pub group: String,
    /// The kind.
    pub kind: String,
    /// The name.
    pub name: String,
}

/// A kind of node classes: each is some provider's.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NodeClassKind {
    /// The API group, without a version.
    pub group: String,
    /// The kind.
    pub kind: String,
}

impl NodeClassKind {
    /// A kind of these two parts.
    pub fn new(group: impl Into<String>, kind: impl Into<String>) -> Self {
        Self { group: group.into(), kind: kind.into() }
    }

    /// Whether a class is of this kind.
    pub fn is_of(&self, class: &NodeClassRef) -> bool {
        self.group == class.group && self.kind == class.kind
    }

    /// The key of the label that names the class on its nodes, such as `karpenter.k8s.aws/ec2nodeclass`.
    pub fn label_key(&self) -> String {
        label_key(&self.group, &self.kind)
    }
}

fn label_key(group: &str, kind: &str) -> String {
    format!("{group}/{}", kind.to_lowercase())
}

impl NodeClassRef {
    /// A reference of these three parts.
    pub fn new(group: impl Into<String>, kind: impl Into<String>, name: impl Into<String>) -> Self {
        Self { group: group.into(), kind: kind.into(), name: name.into() }
    }

    /// The key of the label that names the class on its nodes, such as `karpenter.k8s.aws/ec2nodeclass`.
    pub fn label_key(&self) -> String {
        label_key(&self.group, &self.kind)
    }

    /// Whether a label has this key. Kinds are ASCII; of another the key is built.
    pub(crate) fn is_label_key(&self, key: &str) -> bool {
        let Some(kind) = key.strip_prefix(&self.group).and_then(|rest| rest.strip_prefix('/')) else { return false };
        if self.kind.is_ascii() {
            kind.bytes().eq(self.kind.bytes().map(|byte| byte.to_ascii_lowercase()))
        } else {
            kind == self.kind.to_lowercase()
        }
    }
}
