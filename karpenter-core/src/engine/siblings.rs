//! Pods at which the kube-scheduler has not looked yet, and which will fare as others of their controller do.
//!
//! The kube-scheduler writes down for fifty pods a second or so that it found no node for them. Of a workload with a thousand
//! pods the last would be planned for long after the first; but where it found none for one of them, it will find none for
//! another that asks for the same.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::store::{Store, waits};
use crate::api::{Condition, ObjectKey, Pod, PodStatus};

/// By the uid of their controller.
type ByController = BTreeMap<String, BTreeSet<ObjectKey>>;

/// See the [module](self).
#[derive(Clone, Debug, Default)]
pub(super) struct Siblings {
    /// Pods that wait for a node that the engine has to make.
    waiting: ByController,
    /// Pods that nothing is known of yet.
    unseen: ByController,
}

impl Siblings {
    /// Takes in what a pod was and is. Whether it is now taken to wait because others of its controller do.
    pub(super) fn observe(&mut self, key: &ObjectKey, before: Option<&Pod>, pod: Option<&Pod>) -> bool {
        if let Some((before, controller)) = before.and_then(|before| Some((before, controller_of(before)?))) {
            remove(&mut self.waiting, controller, key, waits(before));
            remove(&mut self.unseen, controller, key, is_unseen(before));
        }
        let Some((pod, controller)) = pod.and_then(|pod| Some((pod, controller_of(pod)?))) else { return false };
        if waits(pod) {
            self.waiting.entry(controller.to_owned()).or_default().insert(key.clone());
        }
        let is_unseen = is_unseen(pod);
        if is_unseen {
            self.unseen.entry(controller.to_owned()).or_default().insert(key.clone());
        }
        is_unseen && self.waiting.contains_key(controller)
    }

    /// The pods that are taken to wait, each as it would be if the kube-scheduler had said so.
    pub(super) fn taken_to_wait(&self, store: &Store) -> Vec<Arc<Pod>> {
        let mut all = Vec::new();
        for (controller, unseen) in &self.unseen {
            let known = self.waiting.get(controller).and_then(|waiting| waiting.first());
            let Some(known) = known.and_then(|key| store.pods.get(key)) else { continue };
            let alike = unseen.iter().filter_map(|key| store.pods.get(key)).filter(|pod| pod.spec == known.spec);
            all.extend(alike.map(|pod| {
                let mut pod = Pod::clone(pod);
                pod.status.conditions.extend(PodStatus::unschedulable().conditions);
                Arc::new(pod)
            }));
        }
        all
    }
}

/// Whether the kube-scheduler has not looked at a pod.
fn is_unseen(pod: &Pod) -> bool {
    let is_of_scheduler = |condition: &Condition| condition.r#type == "PodScheduled";
    pod.spec.node_name.is_empty() && !pod.status.conditions.iter().any(is_of_scheduler)
}

fn controller_of(pod: &Pod) -> Option<&str> {
    let controller = pod.metadata.controller()?;
    Some(controller.uid.as_str()).filter(|uid| !uid.is_empty())
}

fn remove(pods: &mut ByController, controller: &str, key: &ObjectKey, is_there: bool) {
    let Some(of_controller) = pods.get_mut(controller).filter(|_| is_there) else { return };
    of_controller.remove(key);
    if of_controller.is_empty() {
        pods.remove(controller);
    }
}
