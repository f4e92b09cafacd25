//! What runs pods in the simulated cluster.

use std::{collections::BTreeMap, time::Duration};

use karpenter_core::{
    api::{
        FieldError, LabelSelector, ObjectKey, OwnerReference, PersistentVolumeClaim, Pod, PodBuilder, PodTemplate,
        Workload as Pods,
    },
    labels::POD_DELETION_COST,
};

/// Keeps pods running: a Deployment, a StatefulSet or a Job, with what becomes of its pods.
///
/// ```
/// use std::time::Duration;
/// use karpenter_core::api::Pod;
/// use karpenter_fake::sim::Workload;
///
/// let web = Workload::deployment("web", 40, Pod::named("web").label("app", "web").cpu("500m"))?;
/// let batch = Workload::job("batch", 10, Duration::from_secs(600), Pod::named("batch").cpu("2"))?;
/// assert_eq!((web.replicas, batch.replicas), (40, 10));
/// # Ok::<(), karpenter_core::api::FieldError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Workload {
    /// The namespace and the name.
    pub key: ObjectKey,
    /// What it is.
    pub kind: WorkloadKind,
    /// How many pods run at a time; of a Job, how many must have succeeded.
    pub replicas: u32,
    /// What each of its pods is like.
    pub template: PodTemplate,
    /// What the claims are like that a StatefulSet makes for each of its pods, by the names of the volumes that they are for. They
    /// stay when a pod goes, and the next one of its name mounts them.
    pub claim_templates: Vec<PersistentVolumeClaim>,
}

/// The kinds of [`Workload`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WorkloadKind {
    /// Pods that are all alike, through a ReplicaSet.
    Deployment,
    /// Pods with names that stay, each made once the one before it is ready.
    StatefulSet,
    /// Pods that run for this long and are done then.
    Job(Duration),
}

impl Workload {
    /// A Deployment of so many pods.
    ///
    /// # Errors
    /// A mistake in how the pod was written.
    pub fn deployment(name: &str, replicas: u32, pod: PodBuilder) -> Result<Self, FieldError> {
        Self::of_pod(name, WorkloadKind::Deployment, replicas, pod)
    }

    /// A StatefulSet of so many pods.
    ///
    /// # Errors
    /// A mistake in how the pod was written.
    pub fn stateful_set(name: &str, replicas: u32, pod: PodBuilder) -> Result<Self, FieldError> {
        Self::of_pod(name, WorkloadKind::StatefulSet, replicas, pod)
    }

    /// A Job that so many pods do at the same time, each in `duration`.
    ///
    /// # Errors
    /// A mistake in how the pod was written.
    pub fn job(name: &str, pods: u32, duration: Duration, pod: PodBuilder) -> Result<Self, FieldError> {
        Self::of_pod(name, WorkloadKind::Job(duration), pods, pod)
    }

    /// A workload of any kind, in the namespace of its pod.
    ///
    /// # Errors
    /// A mistake in how the pod was written.
    pub fn of_pod(name: &str, kind: WorkloadKind, replicas: u32, pod: PodBuilder) -> Result<Self, FieldError> {
        let mut pods = Pods::from(pod).into_pods()?;
        let first = if pods.is_empty() { Pod::default() } else { pods.swap_remove(0) };
        let key = ObjectKey::new(first.namespace(), name);
        let mut template = PodTemplate::default();
        template.metadata.labels = first.metadata.labels;
        template.metadata.annotations = first.metadata.annotations;
        template.spec = first.spec;
        Ok(Self::new(key, kind, replicas, template))
    }

    /// A workload whose pods are like a template.
    pub const fn new(key: ObjectKey, kind: WorkloadKind, replicas: u32, template: PodTemplate) -> Self {
        Self { key, kind, replicas, template, claim_templates: Vec::new() }
    }

    /// Lets a pod mount its claims, each in the place of a volume of that name in the template, and gives them back as they are
    /// made where there are none.
    pub(super) fn mount_claims(&self, pod: &mut Pod) -> Vec<PersistentVolumeClaim> {
        self.claim_templates.iter().for_each(|template| pod.mount_claim_of(template));
        self.claim_templates.iter().map(|template| template.of_pod(pod)).collect()
    }

    /// Who owns its pods.
    pub(super) fn owner(&self, uid: &str) -> OwnerReference {
        let (api_version, kind) = match self.kind {
            WorkloadKind::Deployment => ("apps/v1", "ReplicaSet"),
            WorkloadKind::StatefulSet => ("apps/v1", "StatefulSet"),
            WorkloadKind::Job(_) => ("batch/v1", "Job"),
        };
        let mut owner = OwnerReference::default();
        api_version.clone_into(&mut owner.api_version);
        kind.clone_into(&mut owner.kind);
        owner.name.clone_from(&self.key.name);
        uid.clone_into(&mut owner.uid);
        owner.controller = Some(true);
        owner
    }

    /// Labels that only its own pods have, and what selects them, if others look at that.
    pub(super) fn own_labels(&self, uid: &str) -> BTreeMap<String, String> {
        match self.kind {
            WorkloadKind::Job(_) => BTreeMap::from([
                ("batch.kubernetes.io/job-name".to_owned(), self.key.name.clone()),
                ("batch.kubernetes.io/controller-uid".to_owned(), uid.to_owned()),
            ]),
            _ => BTreeMap::from([("pod-template-hash".to_owned(), uid.chars().take(8).collect())]),
        }
    }

    /// What selects its pods, for kinds whose pods the kube-scheduler spreads by itself.
    pub(super) fn selector(&self, uid: &str) -> Option<LabelSelector> {
        let all = self.template.metadata.labels.clone().into_iter().chain(self.own_labels(uid));
        (!matches!(self.kind, WorkloadKind::Job(_))).then(|| LabelSelector::of_labels(all))
    }
}

/// What it costs to delete a pod, compared with its like.
pub(super) fn deletion_cost(annotations: &BTreeMap<String, String>) -> i32 {
    annotations.get(POD_DELETION_COST).and_then(|cost| cost.parse().ok()).unwrap_or(0)
}
