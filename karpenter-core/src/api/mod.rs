//! The objects that users write and clusters hold, in the Kubernetes wire format.
//!
//! [`NodePool`], [`NodeClaim`] and [`NodeOverlay`] are complete. Kubernetes' own objects are slim views: the fields that bear on where
//! a pod may run and on what a node has. Fields that are not read are skipped when an object is deserialized.
//! [`Converted`] reads pools and claims of older versions.

mod budget;
pub mod conditions;
mod conversion;
mod duration;
mod hash;
mod meta;
mod nodeclaim;
mod nodeoverlay;
mod nodepool;
mod pod;
mod pod_builder;
mod pod_volume;
mod selector;
mod shield;
mod storage;
mod taint;
mod validate;
mod volume_source;
mod workload;

pub use budget::{Budget, BudgetError, DisruptionReason};
pub use conversion::{Change, Converted, Difference, READ_VERSIONS};
pub use duration::{DurationError, NillableDuration, go_duration};
pub use hash::STATIC_HASH_VERSION;
pub use meta::{Condition, ConditionStatus, ObjectKey, ObjectMeta, OwnerReference};
pub use nodeclaim::{NodeClaim, NodeClaimSpec, NodeClaimStatus, NodeClassKind, NodeClassRef};
pub(crate) use nodeoverlay::PriceChange;
pub use nodeoverlay::{NodeOverlay, NodeOverlaySpec, NodeOverlayStatus};
pub(crate) use nodepool::because_of;
pub use nodepool::{
    ConsolidationPolicy, Disruption, NodeClaimTemplate, NodePool, NodePoolSpec, NodePoolStatus, TemplateMeta,
    TemplateSpec,
};
pub(crate) use pod::STUCK_AFTER;
pub use pod::{
    Affinity, Container, ContainerPort, ContainerStatus, InclusionPolicy, NodeAffinity, Pod, PodAffinity,
    PodAffinityTerm, PodResourceClaim, PodSchedulingGate, PodSpec, PodStatus, PreferredSchedulingTerm, Resources,
    TopologySpreadConstraint, UnsatisfiableAction, WeightedPodAffinityTerm,
};
pub use pod_builder::{PodBuilder, Workload};
pub(crate) use pod_volume::NamedDisk;
pub use pod_volume::{EphemeralVolume, Volume, VolumeClaimSource};
pub use selector::{
    LabelSelector, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Operator, SelectorExpression,
    SelectorOperator,
};
pub use shield::Shield;
pub use storage::{
    ClaimReference, CsiNode, CsiNodeDriver, CsiNodeSpec, CsiVolumeSource, Namespace, NodePathSource, PersistentVolume,
    PersistentVolumeClaim, PersistentVolumeClaimSpec, PersistentVolumeClaimStatus, PersistentVolumeClaimTemplate,
    PersistentVolumeSpec, PersistentVolumeStatus, StorageClass, TopologySelectorLabelRequirement, TopologySelectorTerm,
    VolumeAttachment, VolumeAttachmentSource, VolumeAttachmentSpec, VolumeBindingMode, VolumeNodeAffinity,
    VolumeNodeResources,
};
pub(crate) use taint::tolerated_by_both;
pub use taint::{Taint, TaintEffect, Toleration, TolerationOperator, tolerates_all};
pub use validate::FieldError;
pub(crate) use volume_source::driver_of;
pub use volume_source::{
    AwsElasticBlockStoreSource, AzureDiskSource, AzureFileSource, CinderSource, GcePersistentDiskSource,
    IscsiVolumeSource, PortworxVolumeSource, RbdVolumeSource, VsphereVolumeSource,
};
pub use workload::{
    DaemonSet, DaemonSetSpec, IntOrPercent, IntOrPercentError, Node, NodeSpec, NodeStatus, PodDisruptionBudget,
    PodDisruptionBudgetSpec, PodDisruptionBudgetStatus, PodTemplate, UnhealthyPodEvictionPolicy,
};

/// Reads an explicit `null`, which dumps of clusters are full of, as the default.
pub(crate) fn nullable<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Default + serde::Deserialize<'de>,
{
    Ok(<Option<T> as serde::Deserialize>::deserialize(deserializer)?.unwrap_or_default())
}

/// Whether a field is as it would be if it were not written.
pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
