//! Pods whose room was taken by pods that nobody had planned for.

use super::Engine;
use crate::{
    ResourceList, Timestamp,
    api::{Node, ObjectKey},
    cluster::pod_requests,
};

impl Engine {
    /// A pod that was promised no place came to a node: the pods for which the room there does not do any more are planned
    /// anew soon, instead of when their promises lapse.
    ///
    /// A pod that was promised another place displaces nobody: the room that it would have had is free, and the kube-scheduler
    /// may be about to give it to the others. Nor is a pod displaced that has a node still, which it must leave: its successor
    /// takes its room.
    pub(super) fn displace(&mut self, node: &str, now: Timestamp) {
        let Some(node) = self.store.nodes.get(node) else { return };
        for pod in self.displaced(node) {
            self.provisioner.put_off(&pod, now);
        }
    }

    /// The waiting pods with a promise of a node that do not fit there with those that are on it and those before them.
    fn displaced(&self, node: &Node) -> Vec<ObjectKey> {
        let name = &node.metadata.name;
        let claim = self.store.claim_of(node).map(|claim| claim.name());
        let promised = [Some(name.as_str()), claim].into_iter().flatten();
        let promised = promised.filter_map(|place| self.provisioner.by_place.get(place)).flatten();
        let waiting = |key| Some((key, self.store.pods.get(key).filter(|pod| pod.spec.node_name.is_empty())?));
        let mut promised = promised.filter_map(waiting).peekable();
        if promised.peek().is_none() {
            return Vec::new();
        }
        let mut room = node.status.allocatable.clone();
        for pod in self.store.pods_on(name).filter(|pod| pod.is_active()) {
            room.subtract(&pod_requests(pod));
        }
        let mut displaced = Vec::new();
        for (key, pod) in promised {
            let requests = pod_requests(pod);
            if fits(&requests, &room) {
                room.subtract(&requests);
            } else {
                displaced.push(key.clone());
            }
        }
        displaced
    }
}

fn fits(requests: &ResourceList, room: &ResourceList) -> bool {
    requests.iter().all(|(name, quantity)| room.get(name.as_str()).is_some_and(|room| room >= quantity))
}
