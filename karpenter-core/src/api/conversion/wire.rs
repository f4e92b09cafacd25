//! Pools and claims with the fields of today and those of older versions.

use serde::Deserialize;

use super::{
    Converted, Difference,
    parts::{ApiVersion, Changes, ClassRefWire, PolicyWire, Unread},
};
use crate::{
    ResourceList,
    api::{
        Budget, Disruption, NillableDuration, NodeClaim, NodeClaimSpec, NodeClaimStatus, NodeClaimTemplate, NodePool,
        NodePoolSpec, NodePoolStatus, NodeSelectorRequirement, ObjectMeta, Resources, Taint, TemplateMeta,
        TemplateSpec, nullable,
    },
};

/// [`NodePool`], in any version.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct PoolWire {
    #[serde(deserialize_with = "nullable")]
    api_version: ApiVersion,
    metadata: ObjectMeta,
    #[serde(deserialize_with = "nullable")]
    spec: PoolSpecWire,
    #[serde(deserialize_with = "nullable")]
    status: NodePoolStatus,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PoolSpecWire {
    #[serde(deserialize_with = "nullable")]
    template: TemplateWire,
    #[serde(deserialize_with = "nullable")]
    disruption: DisruptionWire,
    #[serde(deserialize_with = "nullable")]
    limits: ResourceList,
    weight: Option<u32>,
    replicas: Option<u32>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct TemplateWire {
    #[serde(deserialize_with = "nullable")]
    metadata: TemplateMeta,
    #[serde(deserialize_with = "nullable")]
    spec: TemplateSpecWire,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct TemplateSpecWire {
    #[serde(deserialize_with = "nullable")]
    node_class_ref: ClassRefWire,
    #[serde(deserialize_with = "nullable")]
    requirements: Vec<NodeSelectorRequirement>,
    #[serde(deserialize_with = "nullable")]
    taints: Vec<Taint>,
    #[serde(deserialize_with = "nullable")]
    startup_taints: Vec<Taint>,
    expire_after: Option<NillableDuration>,
    termination_grace_period: Option<NillableDuration>,
    #[serde(deserialize_with = "nullable")]
    kubelet: Unread,
    #[serde(deserialize_with = "nullable")]
    resources: Unread,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct DisruptionWire {
    consolidate_after: Option<NillableDuration>,
    #[serde(deserialize_with = "nullable")]
    consolidation_policy: PolicyWire,
    budgets: Option<Vec<Budget>>,
    expire_after: Option<NillableDuration>,
    termination_grace_period: Option<NillableDuration>,
}

impl PoolWire {
    pub(super) fn convert(self) -> Converted<NodePool> {
        let mut changes = Changes::default();
        changes.header(self.api_version, &self.metadata);
        let PoolSpecWire { template, disruption, limits, weight, replicas } = self.spec;
        let default = Disruption::default();
        let template = NodeClaimTemplate {
            metadata: template.metadata,
            spec: template.spec.convert(disruption.expire_after, disruption.termination_grace_period, &mut changes),
        };
        let disruption = Disruption {
            consolidate_after: disruption.consolidate_after.unwrap_or(default.consolidate_after),
            consolidation_policy: changes
                .policy(disruption.consolidation_policy, "spec.disruption.consolidationPolicy"),
            budgets: disruption.budgets.unwrap_or(default.budgets),
        };
        let spec = NodePoolSpec { template, disruption, limits, weight, replicas };
        let object = NodePool { metadata: self.metadata, spec, status: self.status, ..NodePool::default() };
        Converted { object, changes: changes.0 }
    }
}

impl TemplateSpecWire {
    /// The template, with what older pools keep under `spec.disruption`.
    fn convert(
        self,
        old_expire_after: Option<NillableDuration>,
        old_termination_grace_period: Option<NillableDuration>,
        changes: &mut Changes,
    ) -> TemplateSpec {
        changes.unread(self.kubelet, "spec.template.spec.kubelet", Difference::OfNodeClass);
        changes.unread(self.resources, "spec.template.spec.resources", Difference::Dropped);
        let node_class_ref = changes.class(self.node_class_ref, "spec.template.spec.nodeClassRef");
        let expire_after = changes.moved(
            (old_expire_after, "spec.disruption.expireAfter"),
            (self.expire_after, "spec.template.spec.expireAfter"),
        );
        let termination_grace_period = changes.moved(
            (old_termination_grace_period, "spec.disruption.terminationGracePeriod"),
            (self.termination_grace_period, "spec.template.spec.terminationGracePeriod"),
        );
        TemplateSpec {
            node_class_ref,
            requirements: self.requirements,
            taints: self.taints,
            startup_taints: self.startup_taints,
            expire_after: expire_after.unwrap_or_else(|| TemplateSpec::default().expire_after),
            termination_grace_period,
        }
    }
}

/// [`NodeClaim`], in any version.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ClaimWire {
    #[serde(deserialize_with = "nullable")]
    api_version: ApiVersion,
    metadata: ObjectMeta,
    #[serde(deserialize_with = "nullable")]
    spec: ClaimSpecWire,
    #[serde(deserialize_with = "nullable")]
    status: NodeClaimStatus,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ClaimSpecWire {
    #[serde(deserialize_with = "nullable")]
    node_class_ref: ClassRefWire,
    #[serde(deserialize_with = "nullable")]
    requirements: Vec<NodeSelectorRequirement>,
    #[serde(deserialize_with = "nullable")]
    resources: Resources,
    #[serde(deserialize_with = "nullable")]
    taints: Vec<Taint>,
    #[serde(deserialize_with = "nullable")]
    startup_taints: Vec<Taint>,
    expire_after: Option<NillableDuration>,
    termination_grace_period: Option<NillableDuration>,
    #[serde(deserialize_with = "nullable")]
    kubelet: Unread,
}

impl ClaimWire {
    pub(super) fn convert(self) -> Converted<NodeClaim> {
        let mut changes = Changes::default();
        changes.header(self.api_version, &self.metadata);
        let wire = self.spec;
        changes.unread(wire.kubelet, "spec.kubelet", Difference::OfNodeClass);
        if self.api_version == ApiVersion::V1Beta1 && wire.expire_after.is_none() {
            changes.add("spec.expireAfter", Difference::ExpiryOfPool);
        }
        let spec = NodeClaimSpec {
            node_class_ref: changes.class(wire.node_class_ref, "spec.nodeClassRef"),
            requirements: wire.requirements,
            resources: wire.resources,
            taints: wire.taints,
            startup_taints: wire.startup_taints,
            expire_after: wire.expire_after.unwrap_or_else(|| NodeClaimSpec::default().expire_after),
            termination_grace_period: wire.termination_grace_period,
        };
        let object = NodeClaim { metadata: self.metadata, spec, status: self.status, ..NodeClaim::default() };
        Converted { object, changes: changes.0 }
    }
}
