//! What the scheduler is told.

use std::sync::Arc;

use karpenter_core::{
    Snapshot, Timestamp,
    api::{LabelSelector, Namespace, Node, ObjectKey, Pod},
    engine::Object,
};

use super::{Known, Scheduler, selector::Kin, topology::has_hard_rules};
use crate::sim::api_server::{ApiServer, Change};

const OWN_NAME: &str = "default-scheduler";

impl Scheduler {
    /// Takes in a change of an object.
    pub(crate) fn observe(&mut self, change: &Change, api: &ApiServer, now: Timestamp) {
        match (&change.before, &change.after) {
            (_, Some(Object::Pod(pod))) => self.observe_pod(pod, now),
            (Some(Object::Pod(pod)), None) => self.forget_pod(&pod.key(), now),
            (_, Some(Object::Node(node))) => self.observe_node(node, now),
            (Some(Object::Node(node)), None) => self.forget_node(&node.metadata.name, now),
            (_, Some(Object::Namespace(namespace))) => self.observe_namespace(namespace, now),
            (
                _,
                Some(
                    Object::PersistentVolumeClaim(_)
                    | Object::PersistentVolume(_)
                    | Object::StorageClass(_)
                    | Object::CsiNode(_),
                ),
            ) => self.observe_storage(api, now),
            _ => {}
        }
    }

    /// Says which pods a workload owns, so that they are spread by the rule of the system.
    pub(crate) fn know_workload(&mut self, uid: &str, selector: LabelSelector) {
        self.workloads.insert(uid.to_owned(), selector);
    }

    pub(crate) fn forget_workload(&mut self, uid: &str) {
        self.workloads.remove(uid);
    }

    /// The node that was chosen for a pod will not do after all: another one is sought.
    pub(crate) fn retry(&mut self, pod: &Arc<Pod>, now: Timestamp) {
        let key = pod.key();
        self.forget_pod(&key, now);
        self.admit(key, pod, now);
    }

    fn observe_pod(&mut self, pod: &Arc<Pod>, now: Timestamp) {
        let key = pod.key();
        if pod.is_finished() {
            return self.forget_pod(&key, now);
        }
        match self.pods.get_mut(&key) {
            Some(known) if known.pod.metadata.uid == pod.metadata.uid => {
                let is_leaving = pod.is_terminating() && !known.is_faded;
                let is_other = known.pod.metadata.labels != pod.metadata.labels;
                known.pod = pod.clone();
                let on = known.slot;
                if let Some(slot) = on.filter(|_| is_leaving) {
                    known.is_faded = true;
                    self.census.fade(&known.kin.clone(), slot);
                    self.stir_rules(now);
                }
                if is_other {
                    self.forget_pod(&key, now);
                    self.admit(key, pod, now);
                } else if on.is_none() && !pod.spec.node_name.is_empty() {
                    // Somebody else has bound it.
                    self.queue.remove(&key);
                    self.place_on(&key, &pod.spec.node_name);
                    self.stir_rules(now);
                }
            }
            Some(_) => {
                self.forget_pod(&key, now);
                self.admit(key, pod, now);
            }
            None => self.admit(key, pod, now),
        }
    }

    /// Takes in a pod that was not known.
    fn admit(&mut self, key: ObjectKey, pod: &Arc<Pod>, now: Timestamp) {
        let is_bound = !pod.spec.node_name.is_empty();
        let is_mine = matches!(pod.spec.scheduler_name.as_str(), "" | OWN_NAME);
        if !is_bound && (!is_mine || !pod.spec.scheduling_gates.is_empty() || pod.is_terminating()) {
            return;
        }
        let shape = self.shapes.hold(pod, &mut self.resources, &self.storage);
        let kin = Arc::new(Kin::of(pod));
        let known = Known { pod: pod.clone(), shape, kin: kin.clone(), slot: None, is_faded: false };
        self.pods.insert(key.clone(), known);
        if is_bound {
            self.place_on(&key, &pod.spec.node_name);
            if let Some(known) = self.pods.get_mut(&key)
                && let Some(slot) = known.slot
                && pod.is_terminating()
            {
                known.is_faded = true;
                self.census.fade(&kin, slot);
            }
            self.stir_rules(now);
        } else {
            self.queue.add(key, shape, pod.spec.priority.unwrap_or(0), now);
        }
    }

    fn place_on(&mut self, key: &ObjectKey, node: &str) {
        if let Some(slot) = self.nodes.slot(node) {
            self.place(key, slot);
        }
    }

    /// Counts a pod as on a node.
    pub(super) fn place(&mut self, key: &ObjectKey, slot: usize) {
        let (Some(known), Some(info)) = (self.pods.get_mut(key), self.nodes.get_mut(slot)) else { return };
        known.slot = Some(slot);
        info.add(self.shapes.get(known.shape));
        self.census.add(&known.kin, &known.pod, slot);
        self.on_node.entry(slot).or_default().insert(key.clone());
        self.mix += 1;
    }

    /// Takes a pod off its node, and tells the node.
    fn unplace(&mut self, key: &ObjectKey) -> Option<usize> {
        let known = self.pods.get_mut(key)?;
        let slot = known.slot.take()?;
        if let Some(info) = self.nodes.get_mut(slot) {
            info.remove(self.shapes.get(known.shape));
        }
        self.census.remove(&known.kin, &known.pod, slot, known.is_faded);
        if let Some(pods) = self.on_node.get_mut(&slot) {
            pods.remove(key);
        }
        self.room += 1;
        self.mix += 1;
        Some(slot)
    }

    fn forget_pod(&mut self, key: &ObjectKey, now: Timestamp) {
        let slot = self.unplace(key);
        let Some(known) = self.pods.swap_remove(key) else { return };
        self.queue.remove(key);
        if let Some(slot) = slot {
            self.stir_node(slot, now);
            self.stir_rules(now);
        }
        self.shapes.release(known.shape);
    }

    fn observe_node(&mut self, node: &Arc<Node>, now: Timestamp) {
        let limits = self.storage.limits_of(&node.metadata.name);
        if let Some(slot) = self.nodes.apply(node, &mut self.resources, limits) {
            self.room += 1;
            self.mix += 1;
            self.stir_node(slot, now);
            self.stir_rules(now);
        }
    }

    /// What runs on a node that is gone takes no part in anything, and its zone may be none any more in which pods are missed.
    fn forget_node(&mut self, name: &str, now: Timestamp) {
        let Some(slot) = self.nodes.slot(name) else { return };
        for pod in self.on_node.remove(&slot).unwrap_or_default() {
            self.unplace(&pod);
        }
        self.nodes.remove(name);
        self.stir_rules(now);
    }

    fn observe_namespace(&mut self, namespace: &Namespace, now: Timestamp) {
        let labels = namespace.metadata.labels.clone();
        let before = self.census.namespaces.insert(namespace.metadata.name.clone(), labels.clone());
        if before.as_ref() != Some(&labels) {
            self.census.forget();
            self.mix += 1;
            self.stir_rules(now);
        }
    }

    /// Volumes are read anew, and so is what every pod asks of a node for its own.
    fn observe_storage(&mut self, api: &ApiServer, now: Timestamp) {
        let all = Snapshot::builder()
            .volume_claims(api.list().map(|o| karpenter_core::api::PersistentVolumeClaim::clone(o)))
            .volumes(api.list().map(|o| karpenter_core::api::PersistentVolume::clone(o)))
            .storage_classes(api.list().map(|o| karpenter_core::api::StorageClass::clone(o)))
            .csi_nodes(api.list().map(|o| karpenter_core::api::CsiNode::clone(o)))
            .build();
        let all = all.expect("the API server keeps one object of a name, and gives none without");
        self.storage = all.storage().clone();
        let waiting: Vec<(ObjectKey, Arc<Pod>)> = self.waiting_with_volumes();
        for (key, pod) in waiting {
            self.forget_pod(&key, now);
            self.admit(key, &pod, now);
        }
        let nodes: Vec<Arc<Node>> = self.nodes.used().map(|(_, info)| info.node.clone()).collect();
        for node in nodes {
            self.observe_node(&node, now);
        }
    }

    fn waiting_with_volumes(&mut self) -> Vec<(ObjectKey, Arc<Pod>)> {
        self.shapes.forget_volumes();
        let mounts = |known: &Known| known.slot.is_none() && !known.pod.spec.volumes.is_empty();
        let waiting = self.pods.iter().filter(|(_, known)| mounts(known));
        let mut waiting: Vec<_> = waiting.map(|(key, known)| (key.clone(), known.pod.clone())).collect();
        waiting.sort_by(|(one, _), (other, _)| one.cmp(other));
        waiting
    }

    /// There may be more room on a node: those are tried again for whom that is enough.
    fn stir_node(&mut self, slot: usize, now: Timestamp) {
        let Some(info) = self.nodes.get(slot) else { return };
        let stuck: Vec<usize> = self.queue.stuck_shapes().collect();
        for number in stuck {
            let shape = self.shapes.get_mut(number);
            if shape.verdict(slot, info) == super::Verdict::Fits && info.crowded(shape).is_none() {
                self.queue.stir(number, now);
            }
        }
    }

    /// Pods have come or gone: those are tried again that have rules about others.
    fn stir_rules(&mut self, now: Timestamp) {
        self.mix += 1;
        let stuck: Vec<usize> = self.queue.stuck_shapes().collect();
        for number in stuck {
            if has_hard_rules(&self.shapes.get(number).spec) {
                self.queue.stir(number, now);
            }
        }
    }
}
