//! Pods whose room was taken by pods that nobody had planned for.

use super::Engine;
use crate::{
    Timestamp,
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
        let mut room = self.store.room_left(node);
        let mut displaced = Vec::new();
        for (key, pod) in promised {
            let requests = pod_requests(pod);
            if requests.fits(&room) {
                room.subtract(&requests);
            } else {
                displaced.push(key.clone());
            }
        }
        displaced
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{
        api::Pod,
        engine::{EngineOptions, Event, Object},
    };

    fn read<T: serde::de::DeserializeOwned>(json: &str) -> T {
        serde_json::from_str(json).expect(json)
    }

    /// How many pods are displaced from a node for two, with a pod that is as this says, one that came, and a promise to a third.
    fn displaced_beside(meta: &str, status: &str) -> usize {
        let (mut engine, now) = (Engine::new(EngineOptions::default()), Timestamp::default());
        let pod = |name: &str, meta: &str, spec: &str, status: &str| -> Pod {
            let containers = r#"[{"name":"c","resources":{"requests":{"cpu":"1"}}}]"#;
            read(&format!(
                r#"{{"metadata":{{"name":"{name}"{meta}}},"spec":{{{spec}"containers":{containers}}},"status":{{{status}}}}}"#
            ))
        };
        let node: Node = read(r#"{"metadata":{"name":"n"},"status":{"allocatable":{"cpu":"2","pods":"9"}}}"#);
        engine.observe(Event::Applied(Object::Node(Arc::new(node.clone()))), now);
        let bound = r#""nodeName":"n","#;
        for pod in [pod("there", meta, bound, status), pod("came", "", bound, ""), pod("waits", "", "", "")] {
            engine.observe(Event::Applied(Object::Pod(Arc::new(pod))), now);
        }
        engine.provisioner.promise(&ObjectKey::new("default", "waits"), "n", None);
        engine.displaced(&node).len()
    }

    #[test]
    fn pods_that_end_keep_their_room_until_they_are_gone() {
        let ending = r#","deletionTimestamp":"2026-01-01T00:00:00Z""#;
        assert_eq!(displaced_beside("", r#""phase":"Running""#), 1);
        assert_eq!(displaced_beside(ending, r#""phase":"Running""#), 1);
        assert_eq!(displaced_beside(ending, r#""phase":"Succeeded""#), 0);
    }
}
