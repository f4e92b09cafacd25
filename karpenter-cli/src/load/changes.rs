//! Objects that somebody wrote to change a cluster: nothing of them is passed over.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
    sync::Arc,
};

use karpenter_core::{
    api::{
        DaemonSet, FieldError, NodeClaim, NodePool, ObjectKey, ObjectMeta, PersistentVolumeClaim, Pod,
        PodDisruptionBudget,
    },
    disrupt::{PoolBudgets, UnreadableBudget},
};

use super::{
    LoadWarning,
    documents::{OBJECTS, Object, Position, for_each_object},
    idle,
    objects::{Cluster, ClusterReader, KARPENTER_GROUP, Kind, group_of, key_of},
    unread,
    warnings::unknown_fields,
    workload::{self, Made, Workload},
};
use crate::Error;

/// Which objects a file with changes may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Accepted {
    /// All that bear on a plan, and workloads.
    Everything,
    /// Node pools only.
    NodePools,
}

/// Objects that are added to a cluster, or take the place of those of the same kind and name.
#[derive(Clone, Debug, Default)]
pub struct FurtherObjects {
    /// The objects, the pods of the workloads among them.
    pub(crate) cluster: Cluster,
    /// The workloads, whose pods in the cluster go.
    pub(crate) workloads: Vec<Workload>,
    /// The claims that stateful sets make for their pods where there are none.
    claims: Vec<PersistentVolumeClaim>,
    /// The file of each pod that is bound to a node.
    bound: BTreeMap<ObjectKey, String>,
}

impl FurtherObjects {
    /// Checks that the nodes to which pods are bound are there or among these objects: a pod on a node that is not would have a
    /// place that there is not.
    ///
    /// # Errors
    /// The first pod whose node is nowhere.
    pub(crate) fn check_nodes(&self, cluster: &Cluster) -> Result<(), Error> {
        let is_there = |node: &str| [cluster, &self.cluster].iter().any(|all| all.has_node(node));
        let is_lost = |pod: &Pod| !pod.is_finished() && !is_there(&pod.spec.node_name);
        let mut bound = self.cluster.pods.iter().filter_map(|pod| Some((pod, self.bound.get(&pod.key())?)));
        let Some((pod, file)) = bound.find(|(pod, _)| is_lost(pod)) else { return Ok(()) };
        let message = format!("there is no node {}, neither in the cluster nor among the changes", pod.spec.node_name);
        let error = FieldError::new("spec.nodeName", message).of(format!("Pod {}", pod.key()));
        Err(Error::Object { file: file.clone(), error })
    }

    /// The objects by kind and key; a workload stands for its pods.
    pub(crate) fn names(&self) -> Vec<Named> {
        let all = &self.cluster;
        let is_single = |pod: &&Arc<Pod>| !self.workloads.iter().any(|workload| workload.owns(pod));
        let mut out: Vec<Named> = self.workloads.iter().map(|one| (one.kind, one.key.clone())).collect();
        out.extend(all.pools.iter().map(|one| ("NodePool", named(&one.metadata))));
        out.extend(all.overlays.iter().map(|one| ("NodeOverlay", named(&one.metadata))));
        out.extend(all.claims.iter().map(|one| ("NodeClaim", named(&one.metadata))));
        out.extend(all.nodes.iter().map(|one| ("Node", named(&one.metadata))));
        out.extend(all.daemonsets.iter().map(|one| ("DaemonSet", in_namespace(&one.metadata))));
        out.extend(all.budgets.iter().map(|one| ("PodDisruptionBudget", in_namespace(&one.metadata))));
        out.extend(all.namespaces.iter().map(|one| ("Namespace", named(&one.metadata))));
        out.extend(all.volume_claims.iter().map(|one| ("PersistentVolumeClaim", one.key())));
        out.extend(all.volumes.iter().map(|one| ("PersistentVolume", named(&one.metadata))));
        out.extend(all.storage_classes.iter().map(|one| ("StorageClass", named(&one.metadata))));
        out.extend(all.csi_nodes.iter().map(|one| ("CSINode", named(&one.metadata))));
        out.extend(all.pods.iter().filter(is_single).map(|one| ("Pod", one.key())));
        out
    }

    /// Gives pods of workloads other names where pods that stay have theirs: only a StatefulSet says what its pods are called.
    pub(crate) fn give_free_names(&mut self, cluster: &Cluster) {
        let workloads = &self.workloads;
        let stays = |pod: &&Arc<Pod>| !workloads.iter().any(|workload| workload.owns(pod));
        let taken: BTreeSet<ObjectKey> = cluster.pods.iter().filter(stays).map(|pod| pod.key()).collect();
        let is_free_to_choose = |pod: &Pod| workloads.iter().any(|one| one.kind != "StatefulSet" && one.owns(pod));
        for pod in self.cluster.pods.iter_mut().filter(|pod| is_free_to_choose(pod)) {
            while taken.contains(&pod.key()) {
                Arc::make_mut(pod).metadata.name.push_str("-new");
            }
        }
    }
}

/// Reads files with changes.
#[derive(Default)]
pub(crate) struct ChangeReader {
    objects: ClusterReader,
    workloads: Vec<Workload>,
    claims: Vec<PersistentVolumeClaim>,
    bound: BTreeMap<ObjectKey, String>,
    /// How many objects of each kind bear on nothing.
    idle: BTreeMap<String, usize>,
}

impl ChangeReader {
    /// Reads a file as [`ClusterReader::read`] does.
    ///
    /// # Errors
    /// All that is wrong with an object, also with a pod or a node pool, and an object that is not known to bear on no plan or is
    /// not accepted; a node pool or an overlay that breaks a rule, so that planning would leave it out.
    pub(crate) fn read(&mut self, text: &str, file: &str, accepted: Accepted) -> Result<(), Error> {
        self.start(file);
        let mut is_empty = true;
        let pages = for_each_object(text, file, &mut |object, position| {
            is_empty = false;
            self.take(object, position, file, accepted)?;
            let broken = self.objects.cluster_mut().broken_rule(Kind::of(&object.api_version, &object.kind));
            broken.map_or(Ok(()), |error| Err(Error::Object { file: file.to_owned(), error }))
        })?;
        self.objects.add_pages(pages);
        if is_empty { Err(Error::Empty { file: file.to_owned(), expected: OBJECTS }) } else { Ok(()) }
    }

    /// All objects from here on are of this file.
    pub(super) fn start(&mut self, file: &str) {
        self.objects.start_file(file);
    }

    /// A workload that another one has made is left to that one: the replica set of a deployment has no pods of its own.
    ///
    /// # Errors
    /// A list goes on in pages that were not read.
    pub(crate) fn finish(self) -> Result<FurtherObjects, Error> {
        let mut cluster = self.objects.finish()?;
        cluster.warn((!self.idle.is_empty()).then_some(LoadWarning::PassedOver { kinds: self.idle }));
        let is_made = |one: &Workload| self.workloads.iter().any(|other| other.controls(one));
        let (made, workloads): (Vec<Workload>, Vec<Workload>) = self.workloads.iter().cloned().partition(is_made);
        cluster.pods.retain(|pod| !made.iter().any(|one| one.has_made(pod)));
        Ok(FurtherObjects { cluster, workloads, claims: self.claims, bound: self.bound })
    }

    pub(super) fn take(
        &mut self,
        object: &Object<'_>,
        position: &Position<'_>,
        file: &str,
        accepted: Accepted,
    ) -> Result<(), Error> {
        let wrong = |error: FieldError| Error::Object {
            file: file.to_owned(),
            error: error.of(format!("{} ({position})", object.kind)),
        };
        let kind = Kind::of(&object.api_version, &object.kind);
        let is_karpenters = group_of(&object.api_version) == KARPENTER_GROUP;
        if accepted == Accepted::NodePools && object.kind != "NodePool" {
            return Err(wrong(FieldError::new("kind", "only a NodePool takes the place of a pool")));
        }
        if workload::is_workload(object) {
            let key = key_of(object, Some(Kind::Pod)).map_err(wrong)?;
            let name = format!("{} {key}", object.kind);
            let Made { workload, pods, claims } = workload::read(object, key)
                .map_err(|error| Error::Object { file: file.to_owned(), error: error.of(name) })?;
            let name = format!("{} {}", workload.kind, workload.key);
            self.note(workload::unknown_fields(object), &name, file);
            self.note_classes(object, &name, file);
            self.workloads.push(workload);
            self.claims.extend(claims);
            return pods.into_iter().try_for_each(|pod| self.objects.add_pod(pod, file));
        }
        if idle::is_idle(object) {
            *self.idle.entry(object.kind.clone()).or_default() += 1;
            return Ok(());
        }
        if kind.is_none() && !is_karpenters {
            let message = "objects of this kind are not read: leave it out if nothing that is planned depends on it";
            return Err(wrong(FieldError::new("kind", message)));
        }
        self.objects.take(object, position, file)?;
        if let Some(fault) = self.objects.first_fault(file) {
            return Err(fault);
        }
        let unknown = match kind {
            Some(Kind::Pod) => unread::unknown::<Pod>(object),
            Some(Kind::DaemonSet) => unread::unknown::<DaemonSet>(object),
            Some(Kind::PodDisruptionBudget) => unread::unknown::<PodDisruptionBudget>(object),
            _ => return Ok(()),
        };
        let name = format!("{} {}", object.kind, key_of(object, kind).map_err(wrong)?);
        self.note(unknown, &name, file);
        if kind == Some(Kind::Pod) {
            self.note_classes(object, &name, file);
            let pod = self.objects.cluster_mut().pods.last().filter(|pod| !pod.spec.node_name.is_empty());
            self.bound.extend(pod.map(|pod| (pod.key(), file.to_owned())));
        }
        Ok(())
    }

    /// Keeps what is to be said of classes of which admission has not written what they stand for.
    fn note_classes(&mut self, object: &Object<'_>, name: &str, file: &str) {
        let at = if object.kind == "Pod" { "spec" } else { "spec.template.spec" };
        let value: serde_json::Value = serde_json::from_str(object.raw.get()).unwrap_or_default();
        let spec = at.split('.').fold(&value, |value, field| &value[field]);
        for (class, written) in [("priorityClassName", "priority"), ("runtimeClassName", "overhead")] {
            if spec[class].as_str().is_some_and(|class| !class.is_empty()) && spec[written].is_null() {
                let (file, object, field) = (file.to_owned(), name.to_owned(), format!("{at}.{class}"));
                let warning = LoadWarning::NotAdmitted { file, object, field, written };
                self.objects.cluster_mut().warnings.push(warning);
            }
        }
    }

    /// Keeps what is to be said of fields that there are not.
    fn note(&mut self, fields: Vec<String>, object: &str, file: &str) {
        self.objects.cluster_mut().warnings.extend(unknown_fields(fields, object, file));
    }
}

impl ClusterReader {
    /// What a dump may have and a change may not: an object that was left out.
    fn first_fault(&mut self, file: &str) -> Option<Error> {
        let cluster = self.cluster_mut();
        if let Some((pod, bad)) = cluster.bad_pods.pop_first() {
            return Some(Error::Object { file: file.to_owned(), error: bad.error.of(format!("Pod {pod}")) });
        }
        match cluster.warnings.pop()? {
            LoadWarning::BadPool { file, error } => Some(Error::Object { file, error }),
            LoadWarning::NotRead { file, object, api_version, .. } => {
                let error = FieldError::new("apiVersion", format!("{api_version} is not read")).of(object);
                Some(Error::Object { file, error })
            }
            other => {
                cluster.warnings.push(other);
                None
            }
        }
    }
}

/// A budget that cannot be read, for which nothing would be allowed.
fn unreadable_budget(pool: &NodePool) -> Option<FieldError> {
    let budgets = PoolBudgets::of(pool);
    let UnreadableBudget { index, fault, .. } = budgets.unreadable()?;
    Some(FieldError::new(format!("spec.disruption.budgets[{index}].{}", fault.field()), fault.to_string()))
}

/// The kind and the key of an object.
pub(crate) type Named = (&'static str, ObjectKey);

impl Cluster {
    /// What is wrong with the last object of a kind that planning would leave out for it.
    fn broken_rule(&self, kind: Option<Kind>) -> Option<FieldError> {
        match kind? {
            Kind::NodePool => {
                let pool = self.pools.last()?;
                let wrong = pool.validate().err().or_else(|| unreadable_budget(pool));
                wrong.map(|error| error.of(format!("NodePool {}", pool.name())))
            }
            Kind::NodeOverlay => {
                let overlay = self.overlays.last()?;
                overlay.validate().err().map(|error| error.of(format!("NodeOverlay {}", overlay.name())))
            }
            _ => None,
        }
    }

    /// Puts further objects into the cluster, and gives back those of them that took the place of others.
    pub(crate) fn put(&mut self, further: &FurtherObjects) -> BTreeSet<Named> {
        let mut out = self.take_pods_of(&further.workloads);
        let new = &further.cluster;
        out.extend(put("NodePool", &mut self.pools, &new.pools, |one| named(&one.metadata)));
        out.extend(put("NodeOverlay", &mut self.overlays, &new.overlays, |one| named(&one.metadata)));
        out.extend(put("NodeClaim", &mut self.claims, &new.claims, |one| named(&one.metadata)));
        out.extend(put("Node", &mut self.nodes, &new.nodes, |one| named(&one.metadata)));
        self.roll_out(&new.daemonsets);
        out.extend(put("DaemonSet", &mut self.daemonsets, &new.daemonsets, |one| in_namespace(&one.metadata)));
        out.extend(put("PodDisruptionBudget", &mut self.budgets, &new.budgets, |one| in_namespace(&one.metadata)));
        out.extend(put("Namespace", &mut self.namespaces, &new.namespaces, |one| named(&one.metadata)));
        let claims = &mut self.volume_claims;
        out.extend(put("PersistentVolumeClaim", claims, &new.volume_claims, PersistentVolumeClaim::key));
        let known: BTreeSet<ObjectKey> = claims.iter().map(PersistentVolumeClaim::key).collect();
        claims.extend(further.claims.iter().filter(|claim| !known.contains(&claim.key())).cloned());
        out.extend(put("PersistentVolume", &mut self.volumes, &new.volumes, |one| named(&one.metadata)));
        out.extend(put("StorageClass", &mut self.storage_classes, &new.storage_classes, |one| named(&one.metadata)));
        out.extend(put("CSINode", &mut self.csi_nodes, &new.csi_nodes, |one| named(&one.metadata)));
        out.extend(put("Pod", &mut self.pods, &new.pods, |one| one.key()));
        let bad = new.pods.iter().map(|one| one.key()).filter(|key| self.bad_pods.remove(key).is_some());
        out.extend(bad.map(|key| ("Pod", key)));
        self.warnings.retain(|warning| !warning.is_about_any(&new.pools));
        self.warnings.extend(new.warnings.iter().cloned());
        out
    }

    /// Whether there is a node of this name, or a claim for it.
    fn has_node(&self, name: &str) -> bool {
        let is_claim_for_it = |claim: &NodeClaim| claim.status.node_name == name || claim.name() == name;
        self.nodes.iter().any(|node| node.metadata.name == name) || self.claims.iter().any(is_claim_for_it)
    }

    /// Makes the pods of daemonsets that get another template such as it makes them.
    fn roll_out(&mut self, daemonsets: &[DaemonSet]) {
        let key = |one: &DaemonSet| in_namespace(&one.metadata);
        let is_other = |one: &&DaemonSet| {
            let known = self.daemonsets.iter().find(|known| key(known) == key(one));
            known.is_some_and(|known| known.spec.template != one.spec.template)
        };
        for daemonset in daemonsets.iter().filter(is_other) {
            let is_its = |pod: &&mut Arc<Pod>| {
                let owner = pod.metadata.controller().filter(|owner| owner.kind == "DaemonSet");
                owner.is_some_and(|owner| ObjectKey::new(pod.namespace(), &owner.name) == key(daemonset))
            };
            for pod in self.pods.iter_mut().filter(is_its) {
                let pod = Arc::make_mut(pod);
                let template = daemonset.spec.template.clone();
                let before = mem::replace(&mut pod.spec, template.spec);
                // Where it is stays as it is, and so does what its controller wrote for that.
                (pod.spec.node_name, pod.spec.affinity) = (before.node_name, before.affinity);
                // Admission writes it, of a class that the template names.
                pod.spec.priority = pod.spec.priority.or(before.priority);
                pod.spec.tolerate_as_daemon();
                pod.metadata.labels = template.metadata.labels;
                pod.status.container_statuses.clear();
            }
        }
    }

    /// Takes the pods of workloads out, and gives back the workloads that had some.
    fn take_pods_of(&mut self, workloads: &[Workload]) -> BTreeSet<Named> {
        let mut out = BTreeSet::new();
        for workload in workloads {
            let before = self.pods.len();
            self.pods.retain(|pod| !workload.owns(pod));
            if self.pods.len() < before {
                out.insert((workload.kind, workload.key.clone()));
            }
        }
        out
    }
}

/// Adds objects of one kind, in the place of those with the same key, and gives back those that took the place of others.
fn put<T: Clone>(kind: &'static str, all: &mut Vec<T>, new: &[T], key: impl Fn(&T) -> ObjectKey) -> Vec<Named> {
    let keys: BTreeSet<ObjectKey> = new.iter().map(&key).collect();
    let (gone, stays): (Vec<T>, Vec<T>) = mem::take(all).into_iter().partition(|one| keys.contains(&key(one)));
    *all = stays;
    all.extend(new.iter().cloned());
    gone.iter().map(|one| (kind, key(one))).collect()
}

fn named(meta: &ObjectMeta) -> ObjectKey {
    ObjectKey::new("", &meta.name)
}

/// The key of an object that has a namespace, `default` if none is written.
fn in_namespace(meta: &ObjectMeta) -> ObjectKey {
    ObjectKey::new(meta.namespace(), &meta.name)
}

impl LoadWarning {
    /// Whether it is about a pool of the name of one of these.
    fn is_about_any(&self, pools: &[NodePool]) -> bool {
        let object = match self {
            Self::BadPool { error, .. } => &error.object,
            Self::Older { object, .. } => object,
            _ => return false,
        };
        object.strip_prefix("NodePool ").is_some_and(|name| pools.iter().any(|pool| pool.name() == name))
    }
}
