use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{
    Budget, Condition, ConditionStatus, NillableDuration, NodeClassRef, NodeSelectorRequirement, ObjectMeta, Taint,
    conditions::{NODE_CLASS_READY, READY, VALIDATION_SUCCEEDED},
    is_default, nullable,
};
use crate::{Quantity, ResourceList, ResourceName};

/// What nodes may be made, and how they are kept (`karpenter.sh/v1`).
///
/// ```
/// use karpenter_core::api::{NodePool, NodeSelectorRequirement, Operator};
///
/// let mut pool = NodePool::named("general");
/// pool.spec.weight = Some(10);
/// pool.spec.template.spec.requirements.push(NodeSelectorRequirement::new("kubernetes.io/arch", Operator::In, ["arm64"]));
/// assert!(pool.validate().is_ok());
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct NodePool {
    /// `karpenter.sh/v1`.
    pub api_version: String,
    /// `NodePool`.
    pub kind: String,
    /// Names and labels.
    pub metadata: ObjectMeta,
    /// What is wanted.
    #[serde(deserialize_with = "nullable")]
    pub spec: NodePoolSpec,
    /// What is.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "nullable")]
    pub status: NodePoolStatus,
}

impl Default for NodePool {
    fn default() -> Self {
        Self {
            api_version: "karpenter.sh/v1".to_owned(),
            kind: "NodePool".to_owned(),
            metadata: ObjectMeta::default(),
            spec: NodePoolSpec::default(),
            status: NodePoolStatus::default(),
        }
    }
}

/// What is said of a pool because of one of its conditions.
pub(crate) fn because_of(of_type: &str, status: ConditionStatus, message: &str) -> String {
    let because = if message.is_empty() { String::new() } else { format!(": {message}") };
    format!("its condition {of_type} is {status:?}{because}")
}

impl NodePool {
    /// A pool of this name that takes every instance type, of the node class `default` of the fake provider.
    pub fn named(name: impl Into<String>) -> Self {
        let mut pool = Self { metadata: ObjectMeta::named(name), ..Self::default() };
        pool.spec.template.spec.node_class_ref = NodeClassRef::new("karpenter.kwok.sh", "KWOKNodeClass", "default");
        pool
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.metadata.name
    }

    /// The weight, 0 where none is written; heavier pools are used first.
    pub fn weight(&self) -> u32 {
        self.spec.weight.unwrap_or(0)
    }

    /// Sets the limit of a resource, or of `nodes`.
    pub fn limit(mut self, resource: &str, quantity: Quantity) -> Self {
        self.spec.limits.insert(ResourceName::from(resource), quantity);
        self
    }

    /// Adds a requirement to the template.
    pub fn require(mut self, requirement: NodeSelectorRequirement) -> Self {
        self.spec.template.spec.requirements.push(requirement);
        self
    }

    /// Whether it is kept at a number of nodes, whatever pods need.
    pub fn is_static(&self) -> bool {
        self.spec.replicas.is_some()
    }

    /// Why no node may be made of this pool now, be it to keep the number of a static one, if so: it is being deleted, or said to be
    /// not ready.
    pub fn not_ready(&self) -> Option<String> {
        if self.metadata.deletion_timestamp.is_some() {
            return Some("it is being deleted".to_owned());
        }
        // `Ready` says no, until all that it depends on is known to be well; what it depends on may be written before it, and says
        // more.
        let is_cause = |c: &&Condition| {
            c.status == ConditionStatus::False && matches!(c.r#type.as_str(), VALIDATION_SUCCEEDED | NODE_CLASS_READY)
        };
        let is_unready = |c: &&Condition| c.r#type == READY && c.status != ConditionStatus::True;
        let conditions = &self.status.conditions;
        let condition = conditions.iter().find(is_cause).or_else(|| conditions.iter().find(is_unready))?;
        let message = if condition.message.is_empty() { &condition.reason } else { &condition.message };
        Some(because_of(&condition.r#type, condition.status, message))
    }
}

/// What is wanted of a [`NodePool`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct NodePoolSpec {
    /// What its claims are made from.
    #[serde(deserialize_with = "nullable")]
    pub template: NodeClaimTemplate,
    /// When its nodes may be disturbed.
    #[serde(deserialize_with = "nullable")]
    pub disruption: Disruption,
    /// The most that all its nodes may have together; `nodes` limits their number.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "nullable")]
    pub limits: ResourceList,
    /// From 1 to 100; heavier pools are used first, and none is lighter than all.
    #[serde(skip_serializing_if = "is_default")]
    pub weight: Option<u32>,
    /// Makes the pool static: so many nodes, whatever the pods need.
    #[serde(skip_serializing_if = "is_default")]
    pub replicas: Option<u32>,
}

/// What the claims of a pool are made from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct NodeClaimTemplate {
    /// Labels and annotations of its nodes.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "nullable")]
    pub metadata: TemplateMeta,
    /// What its nodes are like.
    #[serde(deserialize_with = "nullable")]
    pub spec: TemplateSpec,
}

/// Labels and annotations of a pool's nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct TemplateMeta {
    /// Labels.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "nullable")]
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "nullable")]
    pub annotations: BTreeMap<String, String>,
}

/// What a pool's nodes are like.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct TemplateSpec {
    /// The provider's settings.
    #[serde(deserialize_with = "nullable")]
    pub node_class_ref: NodeClassRef,
    /// What their labels must be like.
    #[serde(deserialize_with = "nullable")]
    pub requirements: Vec<NodeSelectorRequirement>,
    /// Taints that stay.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "nullable")]
    pub taints: Vec<Taint>,
    /// Taints that somebody else takes away once the node is ready.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "nullable")]
    pub startup_taints: Vec<Taint>,
    /// How long a node lives.
    pub expire_after: NillableDuration,
    /// How long the pods of a node may take to leave it.
    #[serde(skip_serializing_if = "is_default")]
    pub termination_grace_period: Option<NillableDuration>,
}

impl Default for TemplateSpec {
    fn default() -> Self {
        Self {
            node_class_ref: NodeClassRef::default(),
            requirements: Vec::new(),
            taints: Vec::new(),
            startup_taints: Vec::new(),
            expire_after: default_expire_after(),
            termination_grace_period: None,
        }
    }
}

/// Thirty days.
pub(super) fn default_expire_after() -> NillableDuration {
    "720h".parse().expect("a valid duration")
}

/// When the nodes of a pool may be disturbed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct Disruption {
    /// How long a node must have been left alone by pods.
    pub consolidate_after: NillableDuration,
    /// Which nodes may go.
    pub consolidation_policy: ConsolidationPolicy,
    /// How many at once.
    pub budgets: Vec<Budget>,
}

impl Default for Disruption {
    fn default() -> Self {
        Self {
            consolidate_after: NillableDuration::from_secs(0),
            consolidation_policy: ConsolidationPolicy::default(),
            budgets: vec![Budget::default()],
        }
    }
}

/// Which nodes of a pool may go to save money.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum ConsolidationPolicy {
    /// Those without pods.
    WhenEmpty,
    /// Those whose pods have a cheaper place.
    #[default]
    WhenEmptyOrUnderutilized,
    /// Those of which the share of the pool's bill that is saved is worth the share of its disruption that it takes; see
    /// [`MIN_BALANCE`](crate::disrupt::MIN_BALANCE).
    Balanced,
}

/// How a [`NodePool`] fares.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct NodePoolStatus {
    /// What its nodes have together.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "nullable")]
    pub resources: ResourceList,
    /// How many they are.
    #[serde(skip_serializing_if = "is_default")]
    pub nodes: Option<u32>,
    /// The generation of the node class that was looked at.
    #[serde(skip_serializing_if = "is_default")]
    pub node_class_observed_generation: Option<i64>,
    /// Observed aspects.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "nullable")]
    pub conditions: Vec<Condition>,
}
