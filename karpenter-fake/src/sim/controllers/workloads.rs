//! The controllers of Deployments, StatefulSets and Jobs.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use karpenter_core::{
    Timestamp,
    api::{Condition, ObjectKey, Pod},
    engine::Object,
};

use crate::sim::{
    ApiServer, Rng,
    api_server::{Change, is_ready},
    workload::{Workload, WorkloadKind, deletion_cost},
};

/// The letters of generated names.
const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
/// How many letters end the name of a pod.
const SUFFIX: usize = 5;

/// Makes and deletes pods until there are as many as there should be.
#[derive(Clone, Debug)]
pub(crate) struct Workloads {
    by_uid: BTreeMap<String, Running>,
    uids: BTreeMap<ObjectKey, String>,
    made: u64,
    dirty: BTreeSet<String>,
    rng: Rng,
}

/// A workload with its pods.
#[derive(Clone, Debug)]
struct Running {
    workload: Workload,
    /// The pods that are not done, by name.
    pods: BTreeMap<String, Arc<Pod>>,
    /// How many of them are neither finished nor on their way out.
    active: usize,
    succeeded: u32,
    is_deleted: bool,
}

impl Workloads {
    pub(crate) fn new(rng: Rng) -> Self {
        Self { by_uid: BTreeMap::new(), uids: BTreeMap::new(), made: 0, dirty: BTreeSet::new(), rng }
    }

    /// Takes in a workload, or another number of pods and another template for one there is. Gives back its uid.
    pub(crate) fn apply(&mut self, workload: Workload) -> String {
        let uid = self.uids.get(&workload.key).cloned().unwrap_or_else(|| {
            self.made += 1;
            format!("{:08x}-0000-4000-9000-{:012x}", self.made, self.made)
        });
        self.uids.insert(workload.key.clone(), uid.clone());
        self.dirty.insert(uid.clone());
        if let Some(running) = self.by_uid.get_mut(&uid) {
            running.workload = workload;
        } else {
            let running = Running { workload, pods: BTreeMap::new(), active: 0, succeeded: 0, is_deleted: false };
            self.by_uid.insert(uid.clone(), running);
        }
        uid
    }

    /// Says how many pods there should be; whether there is such a workload.
    pub(crate) fn scale(&mut self, key: &ObjectKey, replicas: u32) -> bool {
        let Some(running) = self.uids.get(key).and_then(|uid| self.by_uid.get_mut(uid)) else { return false };
        if running.workload.replicas != replicas {
            running.workload.replicas = replicas;
            self.dirty.extend(self.uids.get(key).cloned());
        }
        true
    }

    /// The workload of this name, if it is not deleted.
    pub(crate) fn get(&self, key: &ObjectKey) -> Option<&Workload> {
        self.uids.get(key).and_then(|uid| self.by_uid.get(uid)).map(|running| &running.workload)
    }

    /// Deletes a workload and with it its pods. Gives back its uid.
    pub(crate) fn delete(&mut self, key: &ObjectKey) -> Option<String> {
        let uid = self.uids.remove(key)?;
        self.by_uid.get_mut(&uid)?.is_deleted = true;
        self.dirty.insert(uid.clone());
        Some(uid)
    }

    /// How many pods the owner of a pod is to have.
    pub(crate) fn scale_of(&self, uid: &str) -> Option<u32> {
        self.by_uid.get(uid).map(|running| running.workload.replicas)
    }

    /// How long a pod runs until it is done, if it is ever done.
    pub(crate) fn duration_of(&self, pod: &Pod) -> Option<Duration> {
        let owner = pod.metadata.owner_references.iter().find(|o| o.kind == "Job")?;
        match self.by_uid.get(&owner.uid)?.workload.kind {
            WorkloadKind::Job(duration) => Some(duration),
            _ => None,
        }
    }

    /// Takes in a change of an object.
    pub(crate) fn observe(&mut self, change: &Change) {
        let ((_, Some(Object::Pod(pod))) | (Some(Object::Pod(pod)), None)) = (&change.before, &change.after) else {
            return;
        };
        let Some(owner) = pod.metadata.owner_references.first() else { return };
        let Some(running) = self.by_uid.get_mut(&owner.uid) else { return };
        let before = if change.after.is_none() || pod.is_finished() {
            let before = running.pods.remove(&pod.metadata.name);
            running.succeeded += u32::from(before.is_some() && pod.status.phase == "Succeeded");
            before
        } else {
            running.active += usize::from(pod.is_active());
            running.pods.insert(pod.metadata.name.clone(), pod.clone())
        };
        running.active -= usize::from(before.is_some_and(|pod| pod.is_active()));
        self.dirty.insert(owner.uid.clone());
    }

    /// Makes and deletes pods where that is called for.
    pub(crate) fn reconcile(&mut self, api: &mut ApiServer) {
        for uid in std::mem::take(&mut self.dirty) {
            let Some(running) = self.by_uid.get(&uid) else { continue };
            if running.is_deleted {
                for pod in running.pods.values().filter(|pod| !pod.is_terminating()) {
                    let _ = api.delete_pod(&pod.key(), &pod.metadata.uid, None);
                }
                if running.pods.is_empty() {
                    self.by_uid.remove(&uid);
                }
            } else if running.is_done() {
                self.uids.remove(&running.workload.key);
                self.by_uid.remove(&uid);
            } else if running.workload.kind == WorkloadKind::StatefulSet {
                running.reconcile_ordered(&uid, api);
            } else {
                running.reconcile_alike(&uid, api, &mut self.rng);
            }
        }
    }
}

impl Running {
    /// Whether it is a Job of which all pods have succeeded.
    fn is_done(&self) -> bool {
        let is_job = matches!(self.workload.kind, WorkloadKind::Job(_));
        is_job && self.succeeded >= self.workload.replicas && self.pods.is_empty()
    }

    /// Pods on their way out count for nothing; the least valuable go first if there are too many.
    fn reconcile_alike(&self, uid: &str, api: &mut ApiServer, rng: &mut Rng) {
        let wanted = self.workload.replicas.saturating_sub(self.succeeded) as usize;
        for _ in self.active..wanted {
            let suffix: Vec<u8> = (0..SUFFIX).map(|_| LETTERS[rng.index(LETTERS.len())]).collect();
            let name = format!("{}-{}", self.workload.key.name, String::from_utf8_lossy(&suffix));
            let _ = api.create(self.pod(uid, name));
        }
        if self.active > wanted {
            let active = self.pods.values().filter(|pod| pod.is_active());
            let mut active: Vec<_> = active.map(|pod| (worth(pod), pod)).collect();
            active.sort_unstable_by_key(|(worth, _)| *worth);
            for (_, pod) in active.iter().take(active.len() - wanted) {
                let _ = api.delete_pod(&pod.key(), &pod.metadata.uid, None);
            }
        }
    }

    /// One pod after the other, each once those before it are ready; the last goes first.
    fn reconcile_ordered(&self, uid: &str, api: &mut ApiServer) {
        let name = |ordinal: u32| format!("{}-{ordinal}", self.workload.key.name);
        for ordinal in 0..self.workload.replicas {
            match self.pods.get(&name(ordinal)) {
                Some(pod) if pod.is_active() && is_ready(pod) => {}
                Some(_) => return,
                None => {
                    let mut pod = self.pod(uid, name(ordinal));
                    for claim in self.workload.mount_claims(&mut pod) {
                        // One that is there stays as it is.
                        let _ = api.create(claim);
                    }
                    let _ = api.create(pod);
                    return;
                }
            }
        }
        let ordinal = |pod: &Pod| pod.metadata.name.rsplit('-').next().and_then(|n| n.parse::<u32>().ok());
        let last = self.pods.values().filter_map(|pod| Some((ordinal(pod)?, pod))).max_by_key(|(n, _)| *n);
        if let Some((n, pod)) = last
            && n >= self.workload.replicas
            && !pod.is_terminating()
        {
            let _ = api.delete_pod(&pod.key(), &pod.metadata.uid, None);
        }
    }

    fn pod(&self, uid: &str, name: String) -> Pod {
        let mut pod = Pod::default();
        pod.metadata = self.workload.template.metadata.clone();
        pod.metadata.labels.extend(self.workload.own_labels(uid));
        if self.workload.kind == WorkloadKind::StatefulSet {
            pod.metadata.labels.insert("statefulset.kubernetes.io/pod-name".to_owned(), name.clone());
        }
        pod.metadata.name = name;
        pod.metadata.namespace.clone_from(&self.workload.key.namespace);
        pod.metadata.owner_references = vec![self.workload.owner(uid)];
        pod.spec = self.workload.template.spec.clone();
        pod.spec.node_name.clear();
        "Pending".clone_into(&mut pod.status.phase);
        pod
    }
}

/// Who stays, from least to most: pods with a node before those without, running and ready ones before others, those
/// that cost more to delete, those that are ready for longer, and older ones
/// (<https://kubernetes.io/docs/concepts/workloads/controllers/replicaset/#scaling-a-replicaset>).
fn worth(pod: &Pod) -> (bool, bool, bool, i32, std::cmp::Reverse<Option<Timestamp>>, &str) {
    let ready = pod.status.conditions.iter().find(|c: &&Condition| c.r#type == "Ready");
    let since = ready.and_then(|c| c.last_transition_time).or(pod.metadata.creation_timestamp);
    (
        !pod.spec.node_name.is_empty(),
        pod.status.phase == "Running",
        is_ready(pod),
        deletion_cost(&pod.metadata.annotations),
        std::cmp::Reverse(since),
        &pod.metadata.name,
    )
}
