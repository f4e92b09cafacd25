//! The DaemonSet controller.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use karpenter_core::{
    api::{
        DaemonSet, Node, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, ObjectKey, Operator, OwnerReference,
        Pod, PodSpec, Taint, TaintEffect,
    },
    engine::Object,
};

use crate::{
    checker::filters::{misfit, untolerated},
    sim::{ApiServer, api_server::Change},
};

/// Makes a pod of every daemonset on every node that will have it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Daemons {
    /// With the tolerations that every daemon has.
    sets: BTreeMap<ObjectKey, (Arc<DaemonSet>, PodSpec)>,
    /// The daemons that there are, by the node that they are for and the uid of their daemonset.
    pods: BTreeMap<(String, String), ObjectKey>,
    dirty_nodes: BTreeSet<String>,
}

impl Daemons {
    /// Takes in a change of an object.
    pub(crate) fn observe(&mut self, change: &Change, api: &ApiServer) {
        match (&change.before, &change.after) {
            (_, Some(Object::DaemonSet(set))) => {
                let key = ObjectKey::new(&set.metadata.namespace, &set.metadata.name);
                self.sets.insert(key, (set.clone(), daemon_spec(set)));
                self.dirty_nodes.extend(api.list::<Node>().map(|node| node.metadata.name.clone()));
            }
            (Some(Object::DaemonSet(set)), None) => {
                self.sets.remove(&ObjectKey::new(&set.metadata.namespace, &set.metadata.name));
                self.dirty_nodes.extend(api.list::<Node>().map(|node| node.metadata.name.clone()));
            }
            (before, Some(Object::Node(node))) => {
                let is_same = matches!(before, Some(Object::Node(old)) if old.spec == node.spec && old.metadata.labels == node.metadata.labels);
                if !is_same {
                    self.dirty_nodes.insert(node.metadata.name.clone());
                }
            }
            (_, Some(Object::Pod(pod))) if pod.is_daemon() => self.observe_daemon(pod, !pod.is_finished()),
            (Some(Object::Pod(pod)), None) if pod.is_daemon() => self.observe_daemon(pod, false),
            _ => {}
        }
    }

    fn observe_daemon(&mut self, pod: &Pod, is_there: bool) {
        let Some((node, owner)) = node_of(pod).zip(pod.metadata.owner_references.first()) else { return };
        if is_there {
            self.pods.insert((node, owner.uid.clone()), pod.key());
        } else if self.pods.remove(&(node.clone(), owner.uid.clone())).is_some() {
            self.dirty_nodes.insert(node);
        }
    }

    /// Makes and deletes daemons where that is called for.
    pub(crate) fn reconcile(&mut self, api: &mut ApiServer) {
        for name in std::mem::take(&mut self.dirty_nodes) {
            let Some(node) = api.node(&name).cloned() else { continue };
            for (set, spec) in self.sets.values() {
                let place = (name.clone(), set.metadata.uid.clone());
                let there = self.pods.get(&place);
                let stays = |effects: &[TaintEffect]| comes(spec, &node, effects);
                match there {
                    None if stays(&[TaintEffect::NoSchedule, TaintEffect::NoExecute]) => {
                        if let Ok(pod) = api.create(daemon(set, spec, &name)) {
                            self.pods.insert(place, pod.key());
                        }
                    }
                    Some(pod) if !stays(&[TaintEffect::NoExecute]) => {
                        let _ = api.delete_pod(pod, "", None);
                    }
                    _ => {}
                }
            }
            let known: BTreeSet<&str> = self.sets.values().map(|(set, _)| set.metadata.uid.as_str()).collect();
            let of_node = self.pods.range((name.clone(), String::new())..).take_while(|((n, _), _)| *n == name);
            for (_, pod) in of_node.filter(|((_, uid), _)| !known.contains(uid.as_str())) {
                let _ = api.delete_pod(pod, "", None);
            }
        }
    }
}

/// Whether a daemon like this belongs on a node, as far as taints of these effects go.
fn comes(spec: &PodSpec, node: &Node, effects: &[TaintEffect]) -> bool {
    let taints: Vec<Taint> = node.spec.taints.iter().filter(|t| effects.contains(&t.effect)).cloned().collect();
    misfit(spec, &node.metadata.name, &node.metadata.labels).is_none() && untolerated(spec, &taints, false).is_none()
}

fn daemon_spec(set: &DaemonSet) -> PodSpec {
    let mut spec = set.spec.template.spec.clone();
    spec.tolerate_as_daemon();
    spec
}

/// The daemon for a node, which the kube-scheduler binds there once there is room.
fn daemon(set: &DaemonSet, spec: &PodSpec, node: &str) -> Pod {
    let mut pod = Pod::default();
    pod.metadata = set.spec.template.metadata.clone();
    pod.metadata.name = format!("{}-{node}", set.metadata.name);
    pod.metadata.namespace.clone_from(&set.metadata.namespace);
    let mut owner = OwnerReference::default();
    "apps/v1".clone_into(&mut owner.api_version);
    "DaemonSet".clone_into(&mut owner.kind);
    owner.name.clone_from(&set.metadata.name);
    owner.uid.clone_from(&set.metadata.uid);
    owner.controller = Some(true);
    pod.metadata.owner_references = vec![owner];
    pod.spec = spec.clone();
    let by_name = NodeSelectorRequirement::new("metadata.name", Operator::In, [node]);
    let required = pod.spec.affinity.node_affinity.required.get_or_insert_with(NodeSelector::default);
    if required.node_selector_terms.is_empty() {
        required.node_selector_terms.push(NodeSelectorTerm::default());
    }
    // It takes the place of whatever the template says about the node's name.
    required.node_selector_terms.iter_mut().for_each(|term| term.match_fields = vec![by_name.clone()]);
    "Pending".clone_into(&mut pod.status.phase);
    pod
}

/// The node that a daemon is for.
fn node_of(pod: &Pod) -> Option<String> {
    if !pod.spec.node_name.is_empty() {
        return Some(pod.spec.node_name.clone());
    }
    let terms = &pod.spec.affinity.node_affinity.required.as_ref()?.node_selector_terms;
    terms.first()?.match_fields.first()?.values.first().cloned()
}
