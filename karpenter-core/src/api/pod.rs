use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Deserializer, Serialize};

use super::{
    Condition, ConditionStatus, LabelSelector, NodeSelector, NodeSelectorTerm, ObjectKey, ObjectMeta,
    PersistentVolumeClaim, PodBuilder, Toleration, Volume, VolumeClaimSource, conditions::READY, is_default, nullable,
};
use crate::{ResourceList, Timestamp};

/// How long a pod may stay after its deletion was due before nobody waits for it.
pub(crate) const STUCK_AFTER: Duration = Duration::from_mins(1);

/// A pod, as far as its placement goes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct Pod {
    /// Names and labels.
    pub metadata: ObjectMeta,
    /// What it asks for.
    #[serde(deserialize_with = "nullable")]
    pub spec: PodSpec,
    /// How it fares.
    #[serde(deserialize_with = "nullable")]
    pub status: PodStatus,
}

impl Pod {
    /// Starts a pending pod of this name in the namespace `default`; see [`PodBuilder`].
    pub fn named(name: impl Into<String>) -> PodBuilder {
        PodBuilder::new(name.into())
    }

    /// The namespace, `default` if none is written, and the name.
    pub fn key(&self) -> ObjectKey {
        ObjectKey::new(self.namespace(), &self.metadata.name)
    }

    /// The parts of the key.
    pub(crate) fn sort_key(&self) -> (&str, &str) {
        (self.namespace(), &self.metadata.name)
    }

    /// The namespace, `default` if none is written.
    pub fn namespace(&self) -> &str {
        self.metadata.namespace()
    }

    /// Whether it has run to its end.
    pub fn is_finished(&self) -> bool {
        matches!(self.status.phase.as_str(), "Succeeded" | "Failed")
    }

    /// Whether its deletion was asked for.
    pub fn is_terminating(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }

    /// Whether it is neither finished nor on its way out.
    pub fn is_active(&self) -> bool {
        !self.is_finished() && !self.is_terminating()
    }

    /// Whether it needs another place when its node goes. Daemons and mirrors of static pods go with their node, and
    /// so do pods that are finished or on their way out; only a StatefulSet waits for its pod to be gone before it makes
    /// the next one, of the same name.
    pub fn is_reschedulable(&self) -> bool {
        let is_wanted =
            !self.is_finished() && (self.is_active() || self.metadata.is_owned_by("apps/v1", "StatefulSet"));
        is_wanted && !self.is_daemon() && !self.is_mirror()
    }

    /// Whether it should have been gone for more than a minute, so that a drain waits for it no longer. The deletion
    /// timestamp has the pod's grace period in it.
    pub fn is_stuck_terminating(&self, now: Timestamp) -> bool {
        self.metadata.deletion_timestamp.is_some_and(|gone| now.since(gone) > STUCK_AFTER)
    }

    /// The names of the claims of its volumes, in its namespace.
    pub fn volume_claim_names(&self) -> impl Iterator<Item = String> {
        self.spec.volumes.iter().filter_map(|volume| self.claim_name_of(volume))
    }

    /// Lets it mount the claim that its StatefulSet makes for it by a template, in the place of a volume of that name.
    pub fn mount_claim_of(&mut self, template: &PersistentVolumeClaim) {
        let name = &template.metadata.name;
        let source =
            VolumeClaimSource { claim_name: template.of_pod(self).metadata.name, ..VolumeClaimSource::default() };
        self.spec.volumes.retain(|other| other.name != *name);
        let volume = Volume { name: name.clone(), persistent_volume_claim: Some(source), ..Volume::default() };
        self.spec.volumes.push(volume);
    }

    /// The name of the claim of one of its volumes, if it has one.
    pub(crate) fn claim_name_of(&self, volume: &Volume) -> Option<String> {
        match (&volume.persistent_volume_claim, &volume.ephemeral) {
            (Some(claim), _) => Some(claim.claim_name.clone()),
            (None, Some(_)) => Some(format!("{}-{}", self.metadata.name, volume.name)),
            (None, None) => None,
        }
    }

    /// Whether it says itself that it is not ready. A pod that says nothing, as in dumps that were made by hand, counts
    /// as ready.
    pub fn is_unready(&self) -> bool {
        self.status.conditions.iter().any(|c| c.r#type == READY && c.status != ConditionStatus::True)
    }

    /// Whether a DaemonSet made it.
    pub fn is_daemon(&self) -> bool {
        self.metadata.is_owned_by("apps/v1", "DaemonSet")
    }

    /// Whether it mirrors a static pod of its node.
    pub fn is_mirror(&self) -> bool {
        self.metadata.is_owned_by("v1", "Node")
    }

    /// Whether the kube-scheduler found no node for it.
    pub fn is_unschedulable(&self) -> bool {
        let refused = |c: &Condition| {
            c.r#type == "PodScheduled" && c.status == ConditionStatus::False && c.reason == "Unschedulable"
        };
        self.status.conditions.iter().any(refused)
    }

    /// Whether its node can never give it what it was resized to, so that it goes on with what it has.
    pub fn is_resize_infeasible(&self) -> bool {
        let pending = self.status.conditions.iter().find(|c| c.r#type == "PodResizePending");
        pending.is_some_and(|c| c.reason == "Infeasible")
    }

    /// When it was bound to its node, if its status says so.
    pub fn bound_at(&self) -> Option<Timestamp> {
        let is_bound = |c: &&Condition| c.r#type == "PodScheduled" && c.status == ConditionStatus::True;
        self.status.conditions.iter().find(is_bound)?.last_transition_time
    }
}

/// What a pod asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct PodSpec {
    /// The node that it is bound to; empty while it has none.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "nullable")]
    pub node_name: String,
    /// The containers that run side by side.
    #[serde(deserialize_with = "nullable")]
    pub containers: Vec<Container>,
    /// The containers that run before them, one after the other, and sidecars.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "nullable")]
    pub init_containers: Vec<Container>,
    /// Whether it has the network of its node, so that its ports are ports of the node.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "nullable")]
    pub host_network: bool,
    /// Resources of the pod as a whole, which stand for the sum of its containers.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "nullable")]
    pub resources: Resources,
    /// What the runtime class takes on top.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "nullable")]
    pub overhead: ResourceList,
    /// Labels that its node must have.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "nullable")]
    pub node_selector: BTreeMap<String, String>,
    /// Rules about its node and its neighbours.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "nullable")]
    pub affinity: Affinity,
    /// Taints that it does not mind.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "nullable")]
    pub tolerations: Vec<Toleration>,
    /// Rules about how it and its like are spread.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "nullable")]
    pub topology_spread_constraints: Vec<TopologySpreadConstraint>,
    /// The volumes that it mounts.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "nullable")]
    pub volumes: Vec<Volume>,
    /// Devices that it claims.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "nullable")]
    pub resource_claims: Vec<PodResourceClaim>,
    /// What keeps it from being scheduled at all.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "nullable")]
    pub scheduling_gates: Vec<PodSchedulingGate>,
    /// The scheduler that binds it.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "nullable")]
    pub scheduler_name: String,
    /// The value of its priority class; the higher, the more it matters.
    #[serde(skip_serializing_if = "is_default")]
    pub priority: Option<i32>,
    /// How many seconds it may take to end once it is asked to; 30 where none is written. A number below zero is read as 1,
    /// which is what the API server makes of it.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "grace_period")]
    pub termination_grace_period_seconds: Option<u64>,
}

fn grace_period<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    let seconds = Option::<i64>::deserialize(deserializer)?;
    Ok(seconds.map(|seconds| u64::try_from(seconds).unwrap_or(1)))
}

/// A container, as far as the placement of its pod goes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct Container {
    /// The name.
    #[serde(deserialize_with = "nullable")]
    pub name: String,
    /// What it asks for.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "nullable")]
    pub resources: Resources,
    /// Ports; those with a host port are taken on the node.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "nullable")]
    pub ports: Vec<ContainerPort>,
    /// `Always` makes an init container a sidecar.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "nullable")]
    pub restart_policy: String,
}

impl Container {
    /// Whether this init container keeps running beside the containers (KEP-753).
    pub fn is_sidecar(&self) -> bool {
        self.restart_policy == "Always"
    }
}

/// Requests and limits of a container or pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct Resources {
    /// What must be free on a node.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "nullable")]
    pub requests: ResourceList,
    /// What it may use at most; the request where none is written.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "nullable")]
    pub limits: ResourceList,
}

/// A port of a container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct ContainerPort {
    /// The port inside the pod.
    pub container_port: u16,
    /// The port on the node; 0 means none, or the port inside the pod if the pod has the network of its node.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "nullable")]
    pub host_port: u16,
    /// The address on the node; empty means all of them.
    #[serde(rename = "hostIP", skip_serializing_if = "is_default", deserialize_with = "nullable")]
    pub host_ip: String,
    /// `TCP`, `UDP` or `SCTP`; empty means `TCP`.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "nullable")]
    pub protocol: String,
}

/// Rules about a pod's node and its neighbours.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct Affinity {
    /// About the node.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "nullable")]
    pub node_affinity: NodeAffinity,
    /// Pods to be near to.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "nullable")]
    pub pod_affinity: PodAffinity,
    /// Pods to keep away from.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "nullable")]
    pub pod_anti_affinity: PodAffinity,
}

/// Rules about a pod's node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct NodeAffinity {
    /// What must hold.
    #[serde(rename = "requiredDuringSchedulingIgnoredDuringExecution", skip_serializing_if = "is_default")]
    pub required: Option<NodeSelector>,
    /// What should hold.
    #[serde(
        rename = "preferredDuringSchedulingIgnoredDuringExecution",
        skip_serializing_if = "is_default",
        deserialize_with = "nullable"
    )]
    pub preferred: Vec<PreferredSchedulingTerm>,
}

/// A node selector term with a weight.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PreferredSchedulingTerm {
    /// From 1 to 100.
    pub weight: i32,
    /// What should hold.
    pub preference: NodeSelectorTerm,
}

/// Rules about a pod's neighbours.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct PodAffinity {
    /// What must hold.
    #[serde(
        rename = "requiredDuringSchedulingIgnoredDuringExecution",
        skip_serializing_if = "is_default",
        deserialize_with = "nullable"
    )]
    pub required: Vec<PodAffinityTerm>,
    /// What should hold.
    #[serde(
        rename = "preferredDuringSchedulingIgnoredDuringExecution",
        skip_serializing_if = "is_default",
        deserialize_with = "nullable"
    )]
    pub preferred: Vec<WeightedPodAffinityTerm>,
}

/// The pods that a rule is about, and how near is near.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct PodAffinityTerm {
    /// Selects the pods; none selects no pod.
    #[serde(skip_serializing_if = "is_default")]
    pub label_selector: Option<LabelSelector>,
    /// The label that near nodes share.
    pub topology_key: String,
    /// Their namespaces.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "nullable")]
    pub namespaces: Vec<String>,
    /// Selects further namespaces; an empty selector selects all.
    #[serde(skip_serializing_if = "is_default")]
    pub namespace_selector: Option<LabelSelector>,
    /// Labels in which the pods must equal this one.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "nullable")]
    pub match_label_keys: Vec<String>,
    /// Labels in which the pods must differ from this one.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "nullable")]
    pub mismatch_label_keys: Vec<String>,
}

/// A pod affinity term with a weight.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct WeightedPodAffinityTerm {
    /// From 1 to 100.
    pub weight: i32,
    /// What should hold.
    pub pod_affinity_term: PodAffinityTerm,
}

/// How evenly a pod and its like are spread.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct TopologySpreadConstraint {
    /// How many more of them a domain may hold than the emptiest one.
    pub max_skew: i32,
    /// The label whose values are the domains.
    pub topology_key: String,
    /// Whether this must or should hold.
    pub when_unsatisfiable: UnsatisfiableAction,
    /// Selects its like; none selects no pod.
    #[serde(default, skip_serializing_if = "is_default")]
    pub label_selector: Option<LabelSelector>,
    /// With fewer domains than this, the emptiest one counts as empty.
    #[serde(default, skip_serializing_if = "is_default")]
    pub min_domains: Option<i32>,
    /// Whether nodes that the pod's node affinity rules out count.
    #[serde(default, skip_serializing_if = "is_default")]
    pub node_affinity_policy: Option<InclusionPolicy>,
    /// Whether nodes whose taints the pod does not tolerate count.
    #[serde(default, skip_serializing_if = "is_default")]
    pub node_taints_policy: Option<InclusionPolicy>,
    /// Labels in which its like must equal it.
    #[serde(default, skip_serializing_if = "is_default", deserialize_with = "nullable")]
    pub match_label_keys: Vec<String>,
}

impl TopologySpreadConstraint {
    /// Whether it must hold.
    pub(crate) fn is_hard(&self) -> bool {
        self.when_unsatisfiable == UnsatisfiableAction::DoNotSchedule
    }
}

/// Whether a spread constraint must or should hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum UnsatisfiableAction {
    /// It must.
    DoNotSchedule,
    /// It should.
    ScheduleAnyway,
}

/// Whether a spread constraint looks at some rule when it counts nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum InclusionPolicy {
    /// It does.
    Honor,
    /// It does not.
    Ignore,
}

/// A device that a pod claims (dynamic resource allocation).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct PodResourceClaim {
    /// The name inside the pod.
    pub name: String,
}

/// What keeps a pod from being scheduled.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct PodSchedulingGate {
    /// The name of the gate.
    pub name: String,
}

/// How a pod fares.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct PodStatus {
    /// `Pending`, `Running`, `Succeeded` or `Failed`.
    #[serde(deserialize_with = "nullable")]
    pub phase: String,
    /// When its node took it on.
    #[serde(skip_serializing_if = "is_default")]
    pub start_time: Option<Timestamp>,
    /// Observed aspects.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "nullable")]
    pub conditions: Vec<Condition>,
    /// The node on which the kube-scheduler makes room for it.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "nullable")]
    pub nominated_node_name: String,
    /// What its containers really have, which differs from the specification while they are resized.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "nullable")]
    pub container_statuses: Vec<ContainerStatus>,
    /// What its init containers really have, its sidecars among them.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "nullable")]
    pub init_container_statuses: Vec<ContainerStatus>,
}

impl PodStatus {
    /// What the status of a pod is that has no node, because the kube-scheduler found none.
    pub fn unschedulable() -> Self {
        let refused = Condition {
            r#type: "PodScheduled".to_owned(),
            status: ConditionStatus::False,
            reason: "Unschedulable".to_owned(),
            ..Condition::default()
        };
        Self { phase: "Pending".to_owned(), conditions: vec![refused], ..Self::default() }
    }

    /// The statuses of all containers, sidecars among them.
    pub(crate) fn all_container_statuses(&self) -> impl Iterator<Item = &ContainerStatus> {
        self.container_statuses.iter().chain(&self.init_container_statuses)
    }
}

/// What a running container has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct ContainerStatus {
    /// The name of the container.
    pub name: String,
    /// What the node set aside for it.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "nullable")]
    pub allocated_resources: ResourceList,
    /// What is in force.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "nullable")]
    pub resources: Resources,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grace_periods_below_zero_are_a_second() {
        for (seconds, expected) in [("null", None), ("0", Some(0)), ("30", Some(30)), ("-1", Some(1))] {
            let pod: Pod =
                serde_json::from_str(&format!(r#"{{"spec":{{"terminationGracePeriodSeconds":{seconds}}}}}"#))
                    .expect(seconds);
            assert_eq!(pod.spec.termination_grace_period_seconds, expected, "{seconds}");
        }
    }
}
