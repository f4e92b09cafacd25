//! Which pods the rules of other pods are about.

use std::collections::{BTreeMap, BTreeSet};

use indexmap::{IndexMap, IndexSet};

use crate::{
    FxBuild,
    api::{LabelSelector, Pod, PodAffinityTerm, SelectorExpression, SelectorOperator, TopologySpreadConstraint},
};

/// The number of a selector of pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(in crate::schedule) struct SelectorId(u32);

/// The number of a set of selectors: those that select some pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(in crate::schedule) struct SelectedBy(u32);

/// Selects pods by namespace and labels.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct PodSelector {
    /// `None` means all of them.
    namespaces: Option<BTreeSet<String>>,
    /// `None` selects nothing.
    labels: Option<LabelSelector>,
}

impl PodSelector {
    fn of_spread(pod: &Pod, spread: &TopologySpreadConstraint) -> Self {
        let keys = [(&spread.match_label_keys, SelectorOperator::In)];
        Self {
            namespaces: Some(BTreeSet::from([pod.namespace().to_owned()])),
            labels: with_keys(spread.label_selector.as_ref(), pod, keys),
        }
    }
}

impl SelectorId {
    fn new(index: usize) -> Self {
        Self(u32::try_from(index).expect("fewer than 2^32 selectors"))
    }
}

/// The labels of namespaces, by name.
pub(in crate::schedule) type Namespaces = BTreeMap<String, BTreeMap<String, String>>;

/// All selectors that the rules of pods name, each once.
#[derive(Clone, Debug, Default)]
pub(in crate::schedule) struct Selectors<'s> {
    all: IndexSet<PodSelector, FxBuild>,
    /// Those that ask for a label with a value, by the first such label: a pod is shown to few of them.
    by_label: IndexMap<String, IndexMap<String, Vec<SelectorId>, FxBuild>, FxBuild>,
    /// Those that may select pods whatever single labels they have.
    others: Vec<SelectorId>,
    sets: IndexSet<Vec<SelectorId>, FxBuild>,
    known: IndexMap<(&'s str, &'s BTreeMap<String, String>), SelectedBy, FxBuild>,
}

impl<'s> Selectors<'s> {
    /// Whether no rule is about pods.
    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// The pods that a term of a pod's affinity is about.
    ///
    /// Without namespaces these are in the pod's own; a namespace selector adds to those that are named.
    pub(in crate::schedule) fn of_term(
        &mut self,
        pod: &Pod,
        term: &PodAffinityTerm,
        namespaces: &Namespaces,
    ) -> SelectorId {
        let selected = match &term.namespace_selector {
            Some(selector) if *selector == LabelSelector::default() => None,
            Some(selector) => {
                let chosen = namespaces.iter().filter(|(_, labels)| selector.matches(labels));
                Some(term.namespaces.iter().cloned().chain(chosen.map(|(name, _)| name.clone())).collect())
            }
            None if term.namespaces.is_empty() => Some(BTreeSet::from([pod.namespace().to_owned()])),
            None => Some(term.namespaces.iter().cloned().collect()),
        };
        let keys =
            [(&term.match_label_keys, SelectorOperator::In), (&term.mismatch_label_keys, SelectorOperator::NotIn)];
        let labels = with_keys(term.label_selector.as_ref(), pod, keys);
        self.add(PodSelector { namespaces: selected, labels })
    }

    /// The pods that a spread constraint of a pod is about.
    pub(super) fn of_spread(&mut self, pod: &Pod, spread: &TopologySpreadConstraint) -> SelectorId {
        self.add(PodSelector::of_spread(pod, spread))
    }

    fn add(&mut self, selector: PodSelector) -> SelectorId {
        let (index, is_new) = self.all.insert_full(selector);
        let id = SelectorId::new(index);
        if let Some(labels) = self.all[index].labels.as_ref().filter(|_| is_new) {
            match labels.match_labels.first_key_value() {
                Some((key, value)) => {
                    let by_value = self.by_label.entry(key.clone()).or_default();
                    by_value.entry(value.clone()).or_default().push(id);
                }
                None => self.others.push(id),
            }
        }
        id
    }

    /// What [`Selectors::of_spread`] gives if the selector is known.
    pub(super) fn of_known_spread(&self, pod: &Pod, spread: &TopologySpreadConstraint) -> Option<SelectorId> {
        self.all.get_index_of(&PodSelector::of_spread(pod, spread)).map(SelectorId::new)
    }

    /// The selectors that select a pod. All selectors must be known before the first pod is asked for.
    pub(in crate::schedule) fn selecting(&mut self, pod: &'s Pod) -> SelectedBy {
        if self.all.is_empty() {
            self.sets.insert(Vec::new());
            return SelectedBy::default();
        }
        let key = (pod.namespace(), &pod.metadata.labels);
        if let Some(known) = self.known.get(&key) {
            return *known;
        }
        let ids = self.selecting_anew(pod);
        let (index, _) = self.sets.insert_full(ids);
        let set = SelectedBy(u32::try_from(index).expect("fewer than 2^32 sets of selectors"));
        self.known.insert(key, set);
        set
    }

    /// The selectors that select a pod, in order.
    fn selecting_anew(&self, pod: &Pod) -> Vec<SelectorId> {
        let labels = &pod.metadata.labels;
        let selects = |id: &SelectorId| {
            let selector = &self.all[id.0 as usize];
            selector.namespaces.as_ref().is_none_or(|names| names.contains(pod.namespace()))
                && selector.labels.as_ref().is_some_and(|selector| selector.matches(labels))
        };
        let by_label = self.by_label.iter().filter_map(|(key, by_value)| by_value.get(labels.get(key)?));
        let mut ids: Vec<_> = by_label.flatten().chain(&self.others).copied().filter(selects).collect();
        ids.sort_unstable();
        ids
    }

    /// The selectors of a set, in order.
    pub(in crate::schedule) fn ids(&self, set: SelectedBy) -> &[SelectorId] {
        &self.sets[set.0 as usize]
    }

    /// Whether pods of a set are selected by a selector.
    pub(in crate::schedule) fn selects(&self, selector: SelectorId, set: SelectedBy) -> bool {
        self.ids(set).binary_search(&selector).is_ok()
    }

    /// Whether pods of a set are selected by each of several terms.
    pub(in crate::schedule) fn all_select<'t>(
        &self,
        terms: impl IntoIterator<Item = &'t super::Term>,
        set: SelectedBy,
    ) -> bool {
        terms.into_iter().all(|term| self.selects(term.selector, set))
    }
}

/// A selector with the labels of the pod that its rule says must be shared or not shared.
fn with_keys<'k>(
    selector: Option<&LabelSelector>,
    pod: &Pod,
    keys: impl IntoIterator<Item = (&'k Vec<String>, SelectorOperator)>,
) -> Option<LabelSelector> {
    let mut out = selector?.clone();
    for (keys, operator) in keys {
        for key in keys {
            // A label that the pod lacks is passed over (KEP-3243).
            if let Some(value) = pod.metadata.labels.get(key) {
                let values = vec![value.clone()];
                out.match_expressions.push(SelectorExpression { key: key.clone(), operator, values });
            }
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::api::Workload;

    #[test]
    fn pods_are_selected_by_all_selectors_that_match_and_by_no_others() {
        let mut selectors = Selectors::default();
        let pod = |app: &str, tier: &str| {
            let pod = Pod::named("p").label("app", app).label("tier", tier);
            Workload::from(pod).into_pods().expect("valid").remove(0)
        };
        let asking = pod("a", "x");
        let mut spread = |selector: Value| {
            let spread = json!({"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule",
                                "labelSelector": selector, "matchLabelKeys": []});
            selectors.of_spread(&asking, &serde_json::from_value(spread).expect("a spread"))
        };
        let in_a_or_b = json!({"matchExpressions": [{"key": "app", "operator": "In", "values": ["a", "b"]}]});
        let (expression, all, nothing) = (spread(in_a_or_b), spread(json!({})), spread(Value::Null));
        let both = spread(json!({"matchLabels": {"app": "a", "tier": "y"}}));
        let (app_a, app_b) =
            (spread(json!({"matchLabels": {"app": "a"}})), spread(json!({"matchLabels": {"app": "b"}})));
        assert_eq!(spread(json!({"matchLabels": {"app": "a"}})), app_a);
        let pods = [pod("a", "x"), pod("a", "y"), pod("b", "y"), pod("c", "y")];
        let of = pods.each_ref().map(|pod| selectors.selecting(pod));
        let sets = of.map(|set| selectors.ids(set).to_vec());
        assert_eq!(sets[0], [expression, all, app_a]);
        assert_eq!(sets[1], [expression, all, both, app_a]);
        assert_eq!(sets[2], [expression, all, app_b]);
        assert_eq!(sets[3], [all]);
        assert!(!sets.concat().contains(&nothing));
    }
}
