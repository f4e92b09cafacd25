//! Which pods a constraint or a term is about.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

use karpenter_core::{
    Snapshot,
    api::{LabelSelector, Pod, PodAffinityTerm, SelectorExpression, SelectorOperator, TopologySpreadConstraint},
    labels::NAMESPACE_NAME,
};

type Labels = BTreeMap<String, String>;

/// The pods that a constraint or term of some pod selects. Two that select the same in other words are mostly equal.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::checker) struct PodSelector<'a> {
    namespaces: BTreeSet<&'a str>,
    /// All must hold; `None` selects no pod.
    clauses: Option<BTreeSet<Clause<'a>>>,
}

/// What a label must be like.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Clause<'a> {
    In(&'a str, BTreeSet<&'a str>),
    NotIn(&'a str, BTreeSet<&'a str>),
    Exists(&'a str),
    Absent(&'a str),
    Never,
}

impl<'a> PodSelector<'a> {
    /// The pods that a spread constraint counts: those of the owner's namespace that the selector selects and that
    /// equal the owner in the labels of `matchLabelKeys` (KEP-3243).
    pub(in crate::checker) fn of_constraint(owner: &'a Pod, constraint: &'a TopologySpreadConstraint) -> Self {
        let mut clauses = constraint.label_selector.as_ref().map(clauses);
        if let Some(clauses) = &mut clauses {
            clauses.extend(own_values(owner, &constraint.match_label_keys).map(|(k, v)| Clause::In(k, v)));
        }
        Self { namespaces: BTreeSet::from([owner.namespace()]), clauses }
    }

    /// The pods that an affinity term of `owner` is about. Neither names nor a selector of namespaces mean the owner's
    /// namespace; both mean those of either (KEP-2249). Label keys are as in KEP-3633.
    pub(in crate::checker) fn of_term(owner: &'a Pod, term: &'a PodAffinityTerm, namespaces: &Namespaces<'a>) -> Self {
        let mut names: BTreeSet<&str> = term.namespaces.iter().map(String::as_str).collect();
        match &term.namespace_selector {
            Some(selector) => names.extend(namespaces.selected_by(selector)),
            None if names.is_empty() => names.extend([owner.namespace()]),
            None => {}
        }
        let mut clauses = term.label_selector.as_ref().map(clauses);
        if let Some(clauses) = &mut clauses {
            clauses.extend(own_values(owner, &term.match_label_keys).map(|(k, v)| Clause::In(k, v)));
            clauses.extend(own_values(owner, &term.mismatch_label_keys).map(|(k, v)| Clause::NotIn(k, v)));
        }
        Self { namespaces: names, clauses }
    }

    fn selects(&self, namespace: &str, labels: &Labels) -> bool {
        let holds = |clauses: &BTreeSet<Clause<'_>>| clauses.iter().all(|clause| clause.holds(labels));
        self.namespaces.contains(namespace) && self.clauses.as_ref().is_some_and(holds)
    }
}

impl Clause<'_> {
    fn holds(&self, labels: &Labels) -> bool {
        let value = |key: &str| labels.get(key).map(String::as_str);
        match self {
            Self::In(key, values) => value(key).is_some_and(|v| values.contains(v)),
            Self::NotIn(key, values) => !value(key).is_some_and(|v| values.contains(v)),
            Self::Exists(key) => value(key).is_some(),
            Self::Absent(key) => value(key).is_none(),
            Self::Never => false,
        }
    }
}

fn clauses(selector: &LabelSelector) -> BTreeSet<Clause<'_>> {
    let of_labels = selector.match_labels.iter().map(|(k, v)| Clause::In(k, BTreeSet::from([v.as_str()])));
    of_labels.chain(selector.match_expressions.iter().map(clause)).collect()
}

fn clause(expression: &SelectorExpression) -> Clause<'_> {
    let (key, values) = (expression.key.as_str(), expression.values.iter().map(String::as_str).collect());
    match expression.operator {
        SelectorOperator::In => Clause::In(key, values),
        SelectorOperator::NotIn => Clause::NotIn(key, values),
        SelectorOperator::Exists => Clause::Exists(key),
        SelectorOperator::DoesNotExist => Clause::Absent(key),
        // Not an operator of Kubernetes 1.35.
        _ => Clause::Never,
    }
}

/// The labels of these keys that the pod has.
fn own_values<'a>(owner: &'a Pod, keys: &'a [String]) -> impl Iterator<Item = (&'a str, BTreeSet<&'a str>)> + use<'a> {
    let value = |key: &'a String| {
        let value = owner.metadata.labels.get(key)?;
        Some((key.as_str(), BTreeSet::from([value.as_str()])))
    };
    keys.iter().filter_map(value)
}

/// The namespaces of a cluster with their labels.
#[derive(Debug, Default)]
pub(in crate::checker) struct Namespaces<'a>(BTreeMap<&'a str, Cow<'a, Labels>>);

impl<'a> Namespaces<'a> {
    /// Those that are not in the snapshot, though it has pods in them, have the label that all namespaces have.
    pub(in crate::checker) fn new(snapshot: &'a Snapshot) -> Self {
        let known = snapshot.namespaces().iter().map(|(name, labels)| (name.as_str(), Cow::Borrowed(labels)));
        let mut all: BTreeMap<&str, Cow<'_, Labels>> = known.collect();
        for name in snapshot.pods().iter().map(|pod| pod.namespace()) {
            let labels = || Cow::Owned(Labels::from([(NAMESPACE_NAME.to_owned(), name.to_owned())]));
            all.entry(name).or_insert_with(labels);
        }
        Self(all)
    }

    fn selected_by(&self, selector: &LabelSelector) -> Vec<&'a str> {
        let clauses = clauses(selector);
        let is_selected = |labels: &Labels| clauses.iter().all(|clause| clause.holds(labels));
        self.0.iter().filter(|(_, labels)| is_selected(labels)).map(|(name, _)| *name).collect()
    }
}

/// Pods by namespace and labels, so that a selector looks at each kind of pod once.
pub(in crate::checker) struct Census<'a> {
    kinds: Vec<Kind<'a>>,
    /// The kinds that have a label.
    with_label: BTreeMap<(&'a str, &'a str), Vec<usize>>,
}

struct Kind<'a> {
    namespace: &'a str,
    labels: &'a Labels,
    pods: Vec<usize>,
}

impl<'a> Census<'a> {
    /// Pods are known by their place in this order.
    pub(in crate::checker) fn new(pods: impl IntoIterator<Item = &'a Pod>) -> Self {
        let mut by_kind: BTreeMap<(&str, &Labels), Vec<usize>> = BTreeMap::new();
        for (i, pod) in pods.into_iter().enumerate() {
            by_kind.entry((pod.namespace(), &pod.metadata.labels)).or_default().push(i);
        }
        let mut with_label: BTreeMap<(&str, &str), Vec<usize>> = BTreeMap::new();
        let mut kinds = Vec::with_capacity(by_kind.len());
        for ((namespace, labels), pods) in by_kind {
            for (key, value) in labels {
                with_label.entry((key, value)).or_default().push(kinds.len());
            }
            kinds.push(Kind { namespace, labels, pods });
        }
        Self { kinds, with_label }
    }

    /// The pods that are selected, in their order.
    pub(in crate::checker) fn selected_by(&self, selector: &PodSelector<'_>) -> Vec<usize> {
        let kinds = self.likely_kinds(selector).into_iter().map(|i| &self.kinds[i]);
        let selected = kinds.filter(|kind| selector.selects(kind.namespace, kind.labels));
        let mut pods: Vec<usize> = selected.flat_map(|kind| kind.pods.iter().copied()).collect();
        pods.sort_unstable();
        pods
    }

    /// All kinds that may be selected: those that meet the rarest clause that names values.
    fn likely_kinds(&self, selector: &PodSelector<'_>) -> Vec<usize> {
        let meeting = |clause: &Clause<'_>| match clause {
            Clause::In(key, values) => {
                let kinds = values.iter().filter_map(|value| self.with_label.get(&(*key, *value))).flatten();
                Some(kinds.copied().collect::<Vec<usize>>())
            }
            _ => None,
        };
        let Some(clauses) = &selector.clauses else { return Vec::new() };
        clauses.iter().filter_map(meeting).min_by_key(Vec::len).unwrap_or_else(|| (0..self.kinds.len()).collect())
    }
}
