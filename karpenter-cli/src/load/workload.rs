//! Workloads, and the pods that they make.

use karpenter_core::api::{
    Condition, ConditionStatus, FieldError, ObjectKey, ObjectMeta, OwnerReference, PersistentVolumeClaim, Pod,
    PodTemplate,
};
use serde::Deserialize;

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
    volume_claim_templates: Option<Vec<PersistentVolumeClaim>>,
    #[serde(default)]
    ordinals: Option<Ordinals>,
    template: PodTemplate,
}

/// How the pods of a stateful set are numbered.
#[derive(Deserialize)]
struct Ordinals {
    /// The number of the first.
    #[serde(default)]
    start: Option<u32>,
}

/// What a job says of itself.
#[derive(Default, Deserialize)]
struct Status {
    #[serde(default)]
    conditions: Option<Vec<Condition>>,
    /// How many pods run.
    #[serde(default)]
    active: Option<u32>,
    /// How many pods ended well.
    #[serde(default)]
    succeeded: Option<u32>,
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
    /// How many pods a job has at a time: no more than have to end well yet, and none while it is suspended or once it is over.
    /// One that does not say how many have to end well makes no further ones once one has.
    fn pods_of_job(&self, status: &Status) -> u32 {
        let succeeded = status.succeeded.unwrap_or(0);
        let left = match self.completions {
            Some(completions) => completions.saturating_sub(succeeded),
            None if succeeded > 0 => status.active.unwrap_or(0),
            None => u32::MAX,
        };
        if self.suspend == Some(true) || status.is_over() { 0 } else { self.parallelism.unwrap_or(1).min(left) }
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

/// What the pods of a workload are like.
pub(super) struct Template {
    pub(super) pods: PodTemplate,
    /// What the claims are like that each of them has, by the names of its volumes.
    pub(super) claims: Vec<PersistentVolumeClaim>,
    /// The number of the first.
    first: u32,
}

/// A workload with its pods, which nobody has looked at yet, and the claims that it makes for them where there are none.
pub(super) struct Made {
    pub(super) workload: Workload,
    pub(super) pods: Vec<Pod>,
    pub(super) claims: Vec<PersistentVolumeClaim>,
}

/// A workload of this key with its pods.
///
/// # Errors
/// A field that cannot be read, or that no such workload has.
pub(super) fn read(object: &Object<'_>, key: ObjectKey) -> Result<Made, FieldError> {
    let (workload, template) = read_template(object, key)?;
    let pods: Vec<Pod> = (0..workload.replicas).map(|index| workload.pod(&template, index)).collect();
    let claims = pods.iter().flat_map(|pod| template.claims.iter().map(|claim| claim.of_pod(pod))).collect();
    Ok(Made { workload, pods, claims })
}

/// A workload of this key with what its pods are like.
///
/// # Errors
/// As [`read`].
pub(super) fn read_template(object: &Object<'_>, key: ObjectKey) -> Result<(Workload, Template), FieldError> {
    let kind = kind_of(object).ok_or_else(|| FieldError::new("kind", "it makes no pods"))?;
    let Manifest { metadata, spec, status } = parse(object.raw)?;
    let (field, replicas) = match kind {
        "Job" => ("parallelism", spec.pods_of_job(&status.unwrap_or_default())),
        _ => ("replicas", spec.replicas.unwrap_or(1)),
    };
    if replicas > MAX_REPLICAS {
        return Err(FieldError::new(format!("spec.{field}"), format!("{replicas} is more than {MAX_REPLICAS}")));
    }
    let claims = spec.volume_claim_templates.unwrap_or_default();
    if kind != "StatefulSet" && !claims.is_empty() {
        return Err(FieldError::new("spec.volumeClaimTemplates", "only a StatefulSet makes claims for its pods"));
    }
    if let Some(index) = claims.iter().position(|claim| claim.metadata.name.is_empty()) {
        return Err(FieldError::new(format!("spec.volumeClaimTemplates[{index}].metadata.name"), "is missing"));
    }
    let first = spec.ordinals.and_then(|ordinals| ordinals.start).unwrap_or(0);
    let workload = Workload { kind, key, replicas, controller: metadata.controller().cloned() };
    Ok((workload, Template { pods: spec.template, claims, first }))
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
    fn pod(&self, template: &Template, index: u32) -> Pod {
        let mut pod = Pod::default();
        pod.metadata = template.pods.metadata.clone();
        pod.metadata.name = format!("{}-{}", self.key.name, template.first.saturating_add(index));
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
        pod.spec = template.pods.spec.clone();
        template.claims.iter().for_each(|claim| pod.mount_claim_of(claim));
        pod
    }
}
