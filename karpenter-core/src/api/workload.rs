use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::{
    Condition, ConditionStatus, LabelSelector, ObjectMeta, PodSpec, Taint, TaintEffect, Toleration, conditions::READY,
    is_default, nullable,
};
use crate::{ResourceList, labels};

/// A node, as far as placement goes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Node {
    /// Names and labels.
    pub metadata: ObjectMeta,
    /// What was asked of it.
    #[serde(deserialize_with = "nullable")]
    pub spec: NodeSpec,
    /// What it has.
    #[serde(deserialize_with = "nullable")]
    pub status: NodeStatus,
}

impl Node {
    /// Whether it says that it is ready.
    pub fn is_ready(&self) -> bool {
        self.status.conditions.iter().any(|c| c.r#type == READY && c.status == ConditionStatus::True)
    }

    /// Whether it was chosen to go: it has the taint `karpenter.sh/disrupted`.
    pub fn is_disrupted(&self) -> bool {
        self.spec.taints.iter().any(|taint| taint.key == labels::DISRUPTED)
    }
}

/// What was asked of a [`Node`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct NodeSpec {
    /// The provider's name for the machine.
    #[serde(rename = "providerID", skip_serializing_if = "is_default", deserialize_with = "nullable")]
    pub provider_id: String,
    /// What keeps pods away.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "nullable")]
    pub taints: Vec<Taint>,
    /// Whether it is cordoned.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "nullable")]
    pub unschedulable: bool,
}

/// What a [`Node`] has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct NodeStatus {
    /// All of it.
    #[serde(deserialize_with = "nullable")]
    pub capacity: ResourceList,
    /// What pods may have.
    #[serde(deserialize_with = "nullable")]
    pub allocatable: ResourceList,
    /// Observed aspects.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "nullable")]
    pub conditions: Vec<Condition>,
}

/// Runs one pod on every node that will have it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct DaemonSet {
    /// Names and labels.
    pub metadata: ObjectMeta,
    /// What it runs.
    #[serde(deserialize_with = "nullable")]
    pub spec: DaemonSetSpec,
}

/// The taints past which the controller of daemonsets lets all their pods, and one past which it lets those on the network of
/// their host (<https://kubernetes.io/docs/concepts/workloads/controllers/daemonset/#taints-and-tolerations>).
const TOLERATED: [(&str, TaintEffect); 6] = [
    ("node.kubernetes.io/not-ready", TaintEffect::NoExecute),
    ("node.kubernetes.io/unreachable", TaintEffect::NoExecute),
    ("node.kubernetes.io/disk-pressure", TaintEffect::NoSchedule),
    ("node.kubernetes.io/memory-pressure", TaintEffect::NoSchedule),
    ("node.kubernetes.io/pid-pressure", TaintEffect::NoSchedule),
    ("node.kubernetes.io/unschedulable", TaintEffect::NoSchedule),
];
const TOLERATED_ON_HOST_NETWORK: (&str, TaintEffect) =
    ("node.kubernetes.io/network-unavailable", TaintEffect::NoSchedule);

impl PodSpec {
    /// Adds the tolerations that the controller of daemonsets gives to its pods, as far as they are not there.
    pub fn tolerate_as_daemon(&mut self) {
        let on_host_network = self.host_network.then_some(TOLERATED_ON_HOST_NETWORK);
        for (key, effect) in TOLERATED.into_iter().chain(on_host_network) {
            let added = Toleration { effect: Some(effect), ..Toleration::of_key(key) };
            if !self.tolerations.contains(&added) {
                self.tolerations.push(added);
            }
        }
    }
}

/// What a [`DaemonSet`] runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct DaemonSetSpec {
    /// The pod.
    #[serde(deserialize_with = "nullable")]
    pub template: PodTemplate,
}

/// The pod that a workload makes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct PodTemplate {
    /// Labels and annotations.
    #[serde(deserialize_with = "nullable")]
    pub metadata: ObjectMeta,
    /// What it asks for.
    #[serde(deserialize_with = "nullable")]
    pub spec: PodSpec,
}

/// How many pods of a group may be disturbed at once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct PodDisruptionBudget {
    /// Names.
    pub metadata: ObjectMeta,
    /// The rule.
    #[serde(deserialize_with = "nullable")]
    pub spec: PodDisruptionBudgetSpec,
    /// What the disruption controller counted.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "nullable")]
    pub status: PodDisruptionBudgetStatus,
}

/// The rule of a [`PodDisruptionBudget`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct PodDisruptionBudgetSpec {
    /// Selects the pods; none selects no pod.
    #[serde(skip_serializing_if = "is_default")]
    pub selector: Option<LabelSelector>,
    /// The most that may be away.
    #[serde(skip_serializing_if = "is_default")]
    pub max_unavailable: Option<IntOrPercent>,
    /// The least that must be there.
    #[serde(skip_serializing_if = "is_default")]
    pub min_available: Option<IntOrPercent>,
    /// When pods that are not ready may be evicted; `IfHealthyBudget` where none is written.
    #[serde(skip_serializing_if = "is_default")]
    pub unhealthy_pod_eviction_policy: Option<UnhealthyPodEvictionPolicy>,
}

/// When pods that are not ready may be evicted
/// (<https://kubernetes.io/docs/tasks/run-application/configure-pdb/#unhealthy-pod-eviction-policy>).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum UnhealthyPodEvictionPolicy {
    /// While as many pods are healthy as must be.
    #[default]
    IfHealthyBudget,
    /// Always.
    AlwaysAllow,
}

/// What the disruption controller counted for a [`PodDisruptionBudget`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct PodDisruptionBudgetStatus {
    /// How many pods may be evicted now; none until the controller has counted.
    #[serde(skip_serializing_if = "is_default")]
    pub disruptions_allowed: Option<i32>,
    /// How many pods are healthy.
    pub current_healthy: i32,
    /// How many pods must be healthy.
    pub desired_healthy: i32,
    /// How many pods there should be.
    pub expected_pods: i32,
    /// The generation of the budget that was looked at.
    #[serde(skip_serializing_if = "is_default")]
    pub observed_generation: Option<i64>,
}

impl PodDisruptionBudget {
    /// Whether the disruption controller has counted for this budget, ever.
    pub fn is_counted(&self) -> bool {
        self.status.disruptions_allowed.is_some()
    }

    /// Whether the budget was changed since it was counted for. The API server refuses evictions until that is done.
    pub fn is_stale(&self) -> bool {
        self.status.observed_generation.is_some_and(|seen| self.metadata.generation.is_some_and(|now| seen < now))
    }

    /// Whether no pod of the group may ever be evicted, whatever its size.
    pub fn blocks_fully(&self) -> bool {
        matches!(self.spec.max_unavailable, Some(IntOrPercent::Int(0) | IntOrPercent::Percent(0)))
            || self.spec.min_available == Some(IntOrPercent::Percent(100))
    }
}

/// A whole number, or a percentage such as `10%`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IntOrPercent {
    /// So many.
    Int(u32),
    /// So many of a hundred.
    Percent(u32),
}

impl IntOrPercent {
    /// How many of so many these are; a part of one counts as one.
    ///
    /// ```
    /// use karpenter_core::api::IntOrPercent;
    ///
    /// assert_eq!([IntOrPercent::Percent(10).of(25), IntOrPercent::Int(4).of(25)], [3, 4]);
    /// ```
    pub fn of(self, total: u32) -> u32 {
        match self {
            Self::Int(count) => count,
            Self::Percent(percent) => {
                let count = (u64::from(total) * u64::from(percent)).div_ceil(100);
                u32::try_from(count).unwrap_or(u32::MAX)
            }
        }
    }
}

/// Why a text is not an [`IntOrPercent`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid value {text:?}: expected a whole number or a percentage such as 10%")]
pub struct IntOrPercentError {
    /// The text as it was given.
    pub text: String,
}

impl FromStr for IntOrPercent {
    type Err = IntOrPercentError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let number = |digits: &str| digits.parse().ok().filter(|_| digits.bytes().all(|byte| byte.is_ascii_digit()));
        let parsed = match text.strip_suffix('%') {
            Some(percent) => number(percent).map(Self::Percent),
            None => number(text).map(Self::Int),
        };
        parsed.ok_or_else(|| IntOrPercentError { text: text.to_owned() })
    }
}

impl Serialize for IntOrPercent {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Int(count) => serializer.serialize_u32(*count),
            Self::Percent(percent) => serializer.collect_str(&format_args!("{percent}%")),
        }
    }
}

impl<'de> Deserialize<'de> for IntOrPercent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = IntOrPercent;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a whole number or a percentage such as 10%")
            }
            fn visit_u64<E: de::Error>(self, value: u64) -> Result<IntOrPercent, E> {
                u32::try_from(value).map(IntOrPercent::Int).map_err(E::custom)
            }
            fn visit_i64<E: de::Error>(self, value: i64) -> Result<IntOrPercent, E> {
                u32::try_from(value).map(IntOrPercent::Int).map_err(E::custom)
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<IntOrPercent, E> {
                text.parse().map_err(E::custom)
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}
