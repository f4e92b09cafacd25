//! Workloads, and the pods that they make.

use karpenter_core::api::{
    Condition, ConditionStatus, FieldError, ObjectKey, ObjectMeta, OwnerReference, Pod, PodTemplate,
};
use serde::Deserialize;
use serde_json::Value;

use super::{documents::Object, objects::group_of, parse, unread};

/// The most pods of one workload: more than any cluster runs.
const MAX_REPLICAS: u32 = 200_000;

/// What makes pods, and how many.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Workload {
    /// `Deployment`, `ReplicaSet`, `StatefulSet` or `Job`.
    pub kind: &'static str,
    /// Namespace and name.
    pub key: ObjectKey,
    /// How many pods it makes.
    pub replicas: u32,
    /// What made it, if anything did.
    pub controller: Option<OwnerReference>,
}

#[derive(Deserialize)]
struct Manifest {
    #[serde(default)]
    metadata: ObjectMeta,
    spec: Spec,
    #[serde(default)]
    status: Option<Status>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    #[serde(default)]
    replicas: Option<u32>,
    #[serde(default)]
    parallelism: Option<u32>,
    #[serde(default)]
    completions: Option<u32>,
    #[serde(default)]
    suspend: Option<bool>,
    #[serde(default)]
    volume_claim_templates: Option<Vec<Value>>,
    template: PodTemplate,
}

/// What a job says of itself.
#[derive(Deserialize)]
struct Status {
    #[serde(default)]
    conditions: Option<Vec<Condition>>,
}

impl Status {
    /// Whether a job has run to its end, well or not (<https://kubernetes.io/docs/concepts/workloads/controllers/job/#job-termination-and-cleanup>).
    fn is_over(&self) -> bool {
        let mut all = self.conditions.iter().flatten();
        all.any(|condition| {
            condition.status == ConditionStatus::True && matches!(condition.r#type.as_str(), "Complete" | "Failed")
        })
    }
}

impl Spec {
    /// How many pods a job that begins has at a time: no more than have to end well, and none while it is suspended.
    fn pods_of_job(&self) -> u32 {
        let most = self.completions.unwrap_or(u32::MAX);
        if self.suspend == Some(true) { 0 } else { self.parallelism.unwrap_or(1).min(most) }
    }
}

/// Whether an object makes pods that any node may run.
pub(super) fn is_workload(object: &Object<'_>) -> bool {
    kind_of(object).is_some()
}

fn kind_of(object: &Object<'_>) -> Option<&'static str> {
    let (kind, group) = match object.kind.as_str() {
        "Deployment" => ("Deployment", "apps"),
        "ReplicaSet" => ("ReplicaSet", "apps"),
        "StatefulSet" => ("StatefulSet", "apps"),
        "Job" => ("Job", "batch"),
        _ => return None,
    };
    (object.api_version.is_empty() || group_of(&object.api_version) == group).then_some(kind)
}

/// The fields that there are not, but for those of its status.
pub(super) fn unknown_fields(object: &Object<'_>) -> Vec<String> {
    unread::unknown::<Manifest>(object)
}

/// A workload of this key with its pods, which nobody has looked at yet.
///
/// # Errors
/// A field that cannot be read, or that asks for more than its pods tell.
pub(super) fn read(object: &Object<'_>, key: ObjectKey) -> Result<(Workload, Vec<Pod>), FieldError> {
    let (workload, template) = read_template(object, key)?;
    let pods = (0..workload.replicas).map(|index| workload.pod(&template, index)).collect();
    Ok((workload, pods))
}

/// A workload of this key with what its pods are like.
///
/// # Errors
/// As [`read`].
pub(super) fn read_template(object: &Object<'_>, key: ObjectKey) -> Result<(Workload, PodTemplate), FieldError> {
    let kind = kind_of(object).ok_or_else(|| FieldError::new("kind", "it makes no pods"))?;
    let Manifest { metadata, spec, status } = parse(object.raw)?;
    if spec.volume_claim_templates.as_ref().is_some_and(|templates| !templates.is_empty()) {
        let message = "which volumes its pods get is not in it: give the pods and their claims instead";
        return Err(FieldError::new("spec.volumeClaimTemplates", message));
    }
    let (field, replicas) =
        if kind == "Job" { ("parallelism", spec.pods_of_job()) } else { ("replicas", spec.replicas.unwrap_or(1)) };
    if replicas > MAX_REPLICAS {
        return Err(FieldError::new(format!("spec.{field}"), format!("{replicas} is more than {MAX_REPLICAS}")));
    }
    let is_over = kind == "Job" && status.is_some_and(|status| status.is_over());
    let replicas = if is_over { 0 } else { replicas };
    Ok((Workload { kind, key, replicas, controller: metadata.controller().cloned() }, spec.template))
}

impl Workload {
    /// Whether it made a pod.
    pub(super) fn owns(&self, pod: &Pod) -> bool {
        pod.namespace() == self.key.namespace
            && pod.metadata.owner_references.iter().any(|owner| self.is_named_by(owner))
    }

    /// Whether an owner is this workload, or the replica set that a deployment has made.
    fn is_named_by(&self, owner: &OwnerReference) -> bool {
        if self.kind == "Deployment" {
            let of_replicas = owner.name.rsplit_once('-').filter(|_| owner.kind == "ReplicaSet");
            return of_replicas.is_some_and(|(deployment, _)| deployment == self.key.name);
        }
        owner.kind == self.kind && owner.name == self.key.name
    }

    /// Whether a pod stands for one that it makes.
    pub(super) fn has_made(&self, pod: &Pod) -> bool {
        pod.metadata.controller().is_some_and(|owner| owner.uid == self.uid())
    }

    /// Whether it made another workload.
    pub(super) fn controls(&self, other: &Self) -> bool {
        let controller = other.controller.as_ref();
        self.key.namespace == other.key.namespace
            && controller.is_some_and(|owner| owner.kind == self.kind && owner.name == self.key.name)
    }

    /// What stands for a uid in the pods that it makes.
    fn uid(&self) -> String {
        format!("{} {}", self.kind, self.key)
    }

    /// The pod of this number.
    fn pod(&self, template: &PodTemplate, index: u32) -> Pod {
        let mut pod = Pod::default();
        pod.metadata = template.metadata.clone();
        pod.metadata.name = format!("{}-{index}", self.key.name);
        pod.metadata.namespace.clone_from(&self.key.namespace);
        let mut owner = OwnerReference::default();
        let (api_version, kind, name) = match self.kind {
            "Job" => ("batch/v1", "Job", self.key.name.clone()),
            "Deployment" => ("apps/v1", "ReplicaSet", format!("{}-new", self.key.name)),
            kind => ("apps/v1", kind, self.key.name.clone()),
        };
        (owner.api_version, owner.kind, owner.name) = (api_version.to_owned(), kind.to_owned(), name);
        owner.uid = self.uid();
        owner.controller = Some(true);
        pod.metadata.owner_references = vec![owner];
        pod.spec = template.spec.clone();
        pod
    }
}
