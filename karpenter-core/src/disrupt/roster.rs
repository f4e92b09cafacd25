//! What of pods bears on which nodes may go, worked out once for each pod for as long as it stays the same.

use std::{collections::BTreeMap, sync::Arc};

use indexmap::{IndexMap, IndexSet};

use super::cost::eviction_cost;
use crate::{
    FxBuild, Snapshot,
    api::{Pod, PodDisruptionBudget},
    labels,
};

/// The traits of all pods of a snapshot, in order, and which budgets select them.
#[derive(Clone, Debug)]
pub(crate) struct Roster {
    /// What it was made from.
    snapshot: Snapshot,
    traits: Vec<Traits>,
    /// The sets of budgets, by index, that select pods.
    sets: IndexSet<Vec<usize>, FxBuild>,
}

/// What of a pod bears on whether its node may go, whatever time it is and however budgets are counted.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "a pod is asked so many questions")]
pub(super) struct Traits {
    /// The index of the set of budgets that select it.
    selected_by: usize,
    pub(super) eviction_cost: f64,
    pub(super) is_active: bool,
    /// Whether it runs and does not say that it is not ready.
    pub(super) is_healthy: bool,
    pub(super) is_unready: bool,
    /// Whether budgets are asked before a drain evicts it.
    pub(super) is_guarded: bool,
    pub(super) is_bound: bool,
    pub(super) is_reschedulable: bool,
    /// Whether it says anything of how long it must be left where it is.
    pub(super) has_shield: bool,
}

impl Roster {
    /// The traits of the pods of a snapshot, each worked out anew.
    pub(crate) fn of(snapshot: &Snapshot) -> Self {
        Self { snapshot: snapshot.clone(), traits: Vec::new(), sets: IndexSet::default() }.filled(&[], &[])
    }

    /// The traits of the pods of a snapshot. Those of pods that are shared with an earlier one are taken over.
    pub(crate) fn after(earlier: &Self, snapshot: &Snapshot) -> Self {
        let (old, new) = (earlier.snapshot.budgets(), snapshot.budgets());
        if old.len() != new.len() || old.iter().zip(new).any(|(old, new)| !selects_the_same(old, new)) {
            return Self::of(snapshot);
        }
        let sets = earlier.sets.clone();
        Self { snapshot: snapshot.clone(), traits: Vec::new(), sets }.filled(earlier.snapshot.pods(), &earlier.traits)
    }

    /// Whether it is of the pods and the budgets of a snapshot.
    pub(super) fn is_of(&self, snapshot: &Snapshot) -> bool {
        self.snapshot.shares_pods_and_objects(snapshot)
    }

    /// By the indices of the pods.
    pub(super) fn traits(&self) -> &[Traits] {
        &self.traits
    }

    /// The budgets that select a pod, by index.
    pub(super) fn selecting(&self, pod: Traits) -> &[usize] {
        &self.sets[pod.selected_by]
    }

    /// Looks at all pods in order, save those with known traits.
    fn filled(mut self, known: &[Arc<Pod>], traits: &[Traits]) -> Self {
        let snapshot = self.snapshot.clone();
        let mut known = known.iter().zip(traits).peekable();
        let mut selected = Selected::new(snapshot.budgets());
        self.traits.reserve(snapshot.pods().len());
        for pod in snapshot.pods() {
            // Both are in order. What lies at one place in memory is found sooner than names are compared.
            if known.peek().is_some_and(|(other, _)| !Arc::ptr_eq(other, pod)) {
                while known.next_if(|(other, _)| other.sort_key() < pod.sort_key()).is_some() {}
            }
            let same = known.next_if(|(other, _)| Arc::ptr_eq(other, pod));
            let traits =
                same.map_or_else(|| Traits::of(pod, selected.set_of(pod, &mut self.sets)), |(_, &traits)| traits);
            self.traits.push(traits);
        }
        self
    }
}

impl Traits {
    fn of(pod: &Pod, selected_by: usize) -> Self {
        let is_unready = pod.is_unready();
        let is_bound = !pod.spec.node_name.is_empty();
        Self {
            selected_by,
            eviction_cost: eviction_cost(pod),
            is_active: pod.is_active(),
            is_healthy: is_bound && pod.status.phase != "Pending" && !is_unready,
            is_unready,
            is_guarded: pod.is_evictable() && pod.status.phase != "Pending",
            is_bound,
            is_reschedulable: pod.is_reschedulable(),
            has_shield: pod.metadata.annotations.contains_key(labels::DO_NOT_DISRUPT),
        }
    }
}

fn selects_the_same(old: &PodDisruptionBudget, new: &PodDisruptionBudget) -> bool {
    old.metadata.namespace() == new.metadata.namespace()
        && old.metadata.name == new.metadata.name
        && old.spec.selector == new.spec.selector
}

/// The namespace and the labels of a pod.
type Likeness<'s> = (&'s str, &'s BTreeMap<String, String>);

/// Which budgets select each pod, worked out once for pods that share a namespace and labels.
struct Selected<'s> {
    budgets: &'s [PodDisruptionBudget],
    /// Nothing before the first pod.
    index: Option<Index<'s>>,
    known: IndexMap<Likeness<'s>, usize, FxBuild>,
    /// Pods of one workload mostly come one after the other, and comparing takes less time than hashing.
    last: Option<(Likeness<'s>, usize)>,
}

impl<'s> Selected<'s> {
    fn new(budgets: &'s [PodDisruptionBudget]) -> Self {
        Self { budgets, index: None, known: IndexMap::default(), last: None }
    }

    /// The index of the set of budgets that select a pod.
    fn set_of(&mut self, pod: &'s Pod, sets: &mut IndexSet<Vec<usize>, FxBuild>) -> usize {
        let likeness = (pod.namespace(), &pod.metadata.labels);
        if let Some((_, set)) = self.last.filter(|(known, _)| *known == likeness) {
            return set;
        }
        let Self { budgets, index, known, .. } = self;
        let set = *known.entry(likeness).or_insert_with(|| {
            let index = index.get_or_insert_with(|| Index::new(budgets));
            sets.insert_full(index.selecting(pod, budgets)).0
        });
        self.last = Some((likeness, set));
        set
    }
}

/// Budgets by a label that their pods must have.
#[derive(Default)]
struct Index<'s> {
    /// Those that name labels, by namespace and the first of them.
    by_label: BTreeMap<(&'s str, &'s str, &'s str), Vec<usize>>,
    /// The others, by namespace.
    others: BTreeMap<&'s str, Vec<usize>>,
}

impl<'s> Index<'s> {
    fn new(budgets: &'s [PodDisruptionBudget]) -> Self {
        let mut out = Self::default();
        for (i, budget) in budgets.iter().enumerate() {
            let namespace = budget.metadata.namespace();
            let label = budget.spec.selector.as_ref().and_then(|selector| selector.match_labels.iter().next());
            match label {
                Some((key, value)) => out.by_label.entry((namespace, key, value)).or_default().push(i),
                None => out.others.entry(namespace).or_default().push(i),
            }
        }
        out
    }

    /// The budgets that select a pod, in order.
    fn selecting(&self, pod: &Pod, budgets: &[PodDisruptionBudget]) -> Vec<usize> {
        let labels = &pod.metadata.labels;
        let by_label = labels.iter().filter_map(|(k, v)| self.by_label.get(&(pod.namespace(), k, v)));
        let near = by_label.chain(self.others.get(pod.namespace())).flatten().copied();
        let selects = |&budget: &usize| budgets[budget].spec.selector.as_ref().is_some_and(|s| s.matches(labels));
        let mut out: Vec<usize> = near.filter(selects).collect();
        out.sort_unstable();
        out
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(name: &str, phase: &str) -> Arc<Pod> {
        let meta = json!({"name": name, "namespace": "default", "labels": {"app": &name[..1]}});
        let pod = json!({"metadata": meta, "spec": {"nodeName": "n"}, "status": {"phase": phase}});
        Arc::new(serde_json::from_value(pod).expect("a pod"))
    }

    fn cluster(pods: &[&Arc<Pod>], app: &str) -> Snapshot {
        let selector = json!({"matchLabels": {"app": app}});
        let budget = json!({"metadata": {"name": "b"}, "spec": {"maxUnavailable": 1, "selector": selector}});
        let budget = serde_json::from_value(budget).expect("a budget");
        let pods: Vec<Arc<Pod>> = pods.iter().map(|pod| (*pod).clone()).collect();
        Snapshot::builder().pods(pods).budget(budget).build().expect("a cluster")
    }

    fn traits(roster: &Roster) -> Vec<(String, Vec<usize>)> {
        let of = |pod: &Traits| (format!("{:?}", Traits { selected_by: 0, ..*pod }), roster.selecting(*pod).to_vec());
        roster.traits().iter().map(of).collect()
    }

    #[test]
    fn what_is_taken_over_is_what_would_be_found_anew() {
        let (a, b, c, d) = (pod("a", "Running"), pod("b", "Running"), pod("c", "Running"), pod("d", "Running"));
        let ended = pod("c", "Succeeded");
        let before = Roster::of(&cluster(&[&a, &c, &d], "c"));
        for (pods, app) in [(vec![&a, &b, &ended], "c"), (vec![&c, &d], "c"), (vec![], "c"), (vec![&a, &c], "a")] {
            let now = cluster(&pods, app);
            assert_eq!(traits(&Roster::after(&before, &now)), traits(&Roster::of(&now)), "{app}");
        }
    }
}
