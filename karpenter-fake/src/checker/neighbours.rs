use std::collections::BTreeMap;

use karpenter_core::{
    Snapshot,
    api::{LabelSelector, ObjectKey, Pod, PodAffinityTerm, SelectorOperator},
};

/// The pods that are there or promised and keep others away (the filter `InterPodAffinity`).
pub(super) struct Neighbours<'a>(Vec<KeepsAway<'a>>);

struct KeepsAway<'a> {
    key: &'a ObjectKey,
    pod: &'a Pod,
    term: &'a PodAffinityTerm,
    /// The value of the topology key where it runs.
    domain: &'a str,
}

impl<'a> Neighbours<'a> {
    pub(super) fn of(snapshot: &'a Snapshot) -> Self {
        let mut out = Vec::new();
        for place in snapshot.places().iter().filter(|place| !place.is_deleting) {
            let pods = place.pods.iter().filter_map(|key| snapshot.pods().get_key_value(key));
            for (key, pod) in pods.filter(|(_, pod)| pod.metadata.deletion_timestamp.is_none()) {
                for term in &pod.spec.affinity.pod_anti_affinity.required {
                    let domain = place.labels.get(&term.topology_key);
                    out.extend(domain.map(|domain| KeepsAway { key, pod, term, domain }));
                }
            }
        }
        Self(out)
    }

    /// Who keeps the pod off a node with these labels, and by which topology key.
    pub(super) fn objection(&self, pod: &Pod, labels: &BTreeMap<String, String>) -> Option<(&'a ObjectKey, &'a str)> {
        let near = |k: &&KeepsAway<'_>| labels.get(&k.term.topology_key).is_some_and(|d| d == k.domain);
        let found = self.0.iter().filter(near).find(|k| k.term_selects(pod))?;
        Some((found.key, &found.term.topology_key))
    }
}

impl KeepsAway<'_> {
    fn term_selects(&self, pod: &Pod) -> bool {
        let Some(selector) = &self.term.label_selector else { return false };
        let value = |key: &str| pod.metadata.labels.get(key);
        let own = |key: &String| self.pod.metadata.labels.get(key).map(|own| (value(key), own));
        self.is_about_namespace(pod.namespace())
            && selects(selector, &pod.metadata.labels)
            && self.term.match_label_keys.iter().filter_map(own).all(|(other, own)| other == Some(own))
            && self.term.mismatch_label_keys.iter().filter_map(own).all(|(other, own)| other != Some(own))
    }

    /// A snapshot has no labels of namespaces, so a namespace selector is taken to select all of them.
    fn is_about_namespace(&self, namespace: &str) -> bool {
        let term = self.term;
        let is_own = term.namespaces.is_empty() && self.pod.namespace() == namespace;
        is_own || term.namespace_selector.is_some() || term.namespaces.iter().any(|n| n == namespace)
    }
}

fn selects(selector: &LabelSelector, labels: &BTreeMap<String, String>) -> bool {
    let by_expressions = selector.match_expressions.iter().all(|e| {
        let value = labels.get(&e.key);
        match e.operator {
            SelectorOperator::In => value.is_some_and(|v| e.values.contains(v)),
            SelectorOperator::NotIn => !value.is_some_and(|v| e.values.contains(v)),
            SelectorOperator::Exists => value.is_some(),
            SelectorOperator::DoesNotExist => value.is_none(),
            // Not an operator of Kubernetes 1.35.
            _ => false,
        }
    });
    by_expressions && selector.match_labels.iter().all(|(key, value)| labels.get(key) == Some(value))
}
