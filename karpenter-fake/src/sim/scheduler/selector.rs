//! Which pods a rule of a pod is about.

use std::collections::{BTreeMap, BTreeSet};

use karpenter_core::{
    api::{LabelSelector, Pod, PodAffinityTerm, TopologySpreadConstraint},
    labels::NAMESPACE_NAME,
};

type Labels = BTreeMap<String, String>;

/// The labels of namespaces, by name.
pub(super) type Namespaces = BTreeMap<String, Labels>;

/// What pods are to the rules of others: their namespace and their labels.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Kin {
    pub(super) namespace: String,
    pub(super) labels: Labels,
}

impl Kin {
    pub(super) fn of(pod: &Pod) -> Self {
        Self { namespace: pod.namespace().to_owned(), labels: pod.metadata.labels.clone() }
    }
}

/// Selects pods as one rule of one pod does.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Selector {
    names: BTreeSet<String>,
    /// Selects further namespaces by their labels.
    namespaces: Option<LabelSelector>,
    /// `None` selects no pod.
    pods: Option<LabelSelector>,
    /// Labels that must be as they are here (`matchLabelKeys`, KEP-3243 and KEP-3633).
    same: BTreeMap<String, String>,
    /// Labels that must not be as they are here (`mismatchLabelKeys`).
    different: BTreeMap<String, String>,
}

impl Selector {
    /// The pods that a spread constraint counts: those of the owner's namespace.
    pub(super) fn of_constraint(owner: &Pod, constraint: &TopologySpreadConstraint) -> Self {
        Self {
            names: BTreeSet::from([owner.namespace().to_owned()]),
            namespaces: None,
            pods: constraint.label_selector.clone(),
            same: own_values(owner, &constraint.match_label_keys),
            different: BTreeMap::new(),
        }
    }

    /// The pods that an affinity term is about. Neither names nor a selector of namespaces mean the owner's namespace.
    pub(super) fn of_term(owner: &Pod, term: &PodAffinityTerm) -> Self {
        let mut names: BTreeSet<String> = term.namespaces.iter().cloned().collect();
        if names.is_empty() && term.namespace_selector.is_none() {
            names.insert(owner.namespace().to_owned());
        }
        Self {
            names,
            namespaces: term.namespace_selector.clone(),
            pods: term.label_selector.clone(),
            same: own_values(owner, &term.match_label_keys),
            different: own_values(owner, &term.mismatch_label_keys),
        }
    }

    /// The pods of a namespace that a workload owns.
    pub(super) fn of_workload(namespace: &str, selector: &LabelSelector) -> Self {
        Self {
            names: BTreeSet::from([namespace.to_owned()]),
            namespaces: None,
            pods: Some(selector.clone()),
            same: BTreeMap::new(),
            different: BTreeMap::new(),
        }
    }

    pub(super) fn selects(&self, kin: &Kin, namespaces: &Namespaces) -> bool {
        let labels = &kin.labels;
        self.pods.as_ref().is_some_and(|selector| selector.matches(labels))
            && self.same.iter().all(|(key, value)| labels.get(key) == Some(value))
            && self.different.iter().all(|(key, value)| labels.get(key) != Some(value))
            && self.reaches(&kin.namespace, namespaces)
    }

    fn reaches(&self, namespace: &str, namespaces: &Namespaces) -> bool {
        if self.names.contains(namespace) {
            return true;
        }
        let Some(selector) = &self.namespaces else { return false };
        let mut labels = namespaces.get(namespace).cloned().unwrap_or_default();
        labels.entry(NAMESPACE_NAME.to_owned()).or_insert_with(|| namespace.to_owned());
        selector.matches(&labels)
    }
}

/// The labels of these keys that the pod has.
fn own_values(owner: &Pod, keys: &[String]) -> Labels {
    let own = keys.iter().filter_map(|key| owner.metadata.labels.get_key_value(key));
    own.map(|(key, value)| (key.clone(), value.clone())).collect()
}
