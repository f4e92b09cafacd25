//! The disruption controller, which counts the pods of disruption budgets.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use indexmap::IndexMap;
use karpenter_core::{
    api::{IntOrPercent, ObjectKey, Pod, PodDisruptionBudget},
    engine::Object,
};

use super::Workloads;
use crate::sim::{
    ApiServer, FxBuild,
    api_server::{ApiObject, Change, is_ready, selects},
};

/// Keeps the status of disruption budgets.
#[derive(Clone, Debug, Default)]
pub(crate) struct Budgets {
    tallies: BTreeMap<ObjectKey, Tally>,
    /// The budgets by what their pods have: see [`mark_of`].
    by_mark: BTreeMap<String, BTreeSet<ObjectKey>>,
    /// The budgets that count a pod, by pod.
    of_pods: IndexMap<ObjectKey, BTreeSet<ObjectKey>, FxBuild>,
    dirty: BTreeSet<ObjectKey>,
}

/// The pods that a budget selects, and which of them are healthy.
#[derive(Clone, Debug, Default)]
struct Tally {
    budget: Arc<PodDisruptionBudget>,
    pods: BTreeMap<ObjectKey, Counted>,
    healthy: usize,
    /// How many of the pods each controller has, by its uid; pods without one are left out.
    owners: BTreeMap<String, usize>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Counted {
    is_healthy: bool,
    /// The uid of its controller; empty if it has none.
    owner: String,
}

impl Budgets {
    /// Takes in a change of an object.
    pub(crate) fn observe(&mut self, change: &Change, api: &ApiServer) {
        match (&change.before, &change.after) {
            (Some(Object::Pod(old)), Some(Object::Pod(pod))) if counts_the_same(old, pod) => {}
            (_, Some(Object::Pod(pod))) if pod.is_finished() => self.observe_pod(pod, BTreeSet::new()),
            (Some(Object::Pod(old)), Some(Object::Pod(pod))) if old.metadata.labels == pod.metadata.labels => {
                let selecting = self.of_pods.get(&pod.key()).cloned().unwrap_or_default();
                self.observe_pod(pod, selecting);
            }
            (_, Some(Object::Pod(pod))) => self.observe_pod(pod, self.selecting(pod)),
            (Some(Object::Pod(pod)), None) => self.observe_pod(pod, BTreeSet::new()),
            (before, Some(Object::PodDisruptionBudget(budget))) => {
                let is_same = matches!(before, Some(Object::PodDisruptionBudget(old)) if old.spec == budget.spec);
                self.dirty.insert(budget.key());
                let tally = self.tallies.entry(budget.key()).or_default();
                if !is_same {
                    if let Some(budgets) = self.by_mark.get_mut(&mark_of(&tally.budget)) {
                        budgets.remove(&budget.key());
                    }
                    self.by_mark.entry(mark_of(budget)).or_default().insert(budget.key());
                }
                tally.budget = budget.clone();
                if !is_same {
                    let near = api.list::<Pod>().filter(|pod| pod.namespace() == budget.metadata.namespace);
                    let selected = near.filter(|pod| !pod.is_finished() && selects(budget, pod));
                    let mut anew = Tally { budget: budget.clone(), ..Tally::default() };
                    selected.for_each(|pod| anew.put(pod.key(), Some(Counted::of(pod))));
                    let counted: Vec<ObjectKey> = anew.pods.keys().cloned().collect();
                    let before = std::mem::replace(tally, anew);
                    self.unlink(before.pods.keys(), &budget.key());
                    for pod in counted {
                        self.of_pods.entry(pod).or_default().insert(budget.key());
                    }
                }
            }
            (Some(Object::PodDisruptionBudget(budget)), None) => {
                let tally = self.tallies.remove(&budget.key()).unwrap_or_default();
                if let Some(budgets) = self.by_mark.get_mut(&mark_of(&tally.budget)) {
                    budgets.remove(&budget.key());
                }
                self.unlink(tally.pods.keys(), &budget.key());
            }
            _ => {}
        }
    }

    /// A budget does not count some pods any more.
    fn unlink<'k>(&mut self, pods: impl Iterator<Item = &'k ObjectKey>, budget: &ObjectKey) {
        for pod in pods {
            let Some(budgets) = self.of_pods.get_mut(pod) else { continue };
            budgets.remove(budget);
            if budgets.is_empty() {
                self.of_pods.swap_remove(pod);
            }
        }
    }

    /// The budgets that select a pod.
    fn selecting(&self, pod: &Pod) -> BTreeSet<ObjectKey> {
        let namespace = pod.namespace();
        let marks = pod.metadata.labels.iter().map(|label| mark(namespace, Some(label)));
        let near = marks.chain([mark(namespace, None)]).filter_map(|mark| self.by_mark.get(&mark)).flatten();
        let near = near.filter_map(|key| Some((key, self.tallies.get(key)?)));
        near.filter(|(_, tally)| selects(&tally.budget, pod)).map(|(key, _)| key.clone()).collect()
    }

    /// Takes in what a pod is like now, and by which budgets it is counted.
    fn observe_pod(&mut self, pod: &Pod, after: BTreeSet<ObjectKey>) {
        let (key, counted) = (pod.key(), Counted::of(pod));
        let before = self.of_pods.swap_remove(&key).unwrap_or_default();
        for budget in before.difference(&after) {
            if let Some(tally) = self.tallies.get_mut(budget) {
                tally.put(key.clone(), None);
                self.dirty.insert(budget.clone());
            }
        }
        for budget in &after {
            if let Some(tally) = self.tallies.get_mut(budget)
                && tally.pods.get(&key) != Some(&counted)
            {
                tally.put(key.clone(), Some(counted.clone()));
                self.dirty.insert(budget.clone());
            }
        }
        if !after.is_empty() {
            self.of_pods.insert(key, after);
        }
    }

    /// Writes what was counted.
    pub(crate) fn reconcile(&mut self, api: &mut ApiServer, workloads: &Workloads) {
        for key in std::mem::take(&mut self.dirty) {
            let Some(tally) = self.tallies.get(&key) else { continue };
            let (expected, desired) = tally.wanted(workloads);
            let healthy = tally.healthy;
            let spare = if expected == 0 { 0 } else { healthy.saturating_sub(desired) };
            let number = |count: usize| i32::try_from(count).unwrap_or(i32::MAX);
            api.modify::<PodDisruptionBudget>(&key, |budget| {
                let status = &mut budget.status;
                status.disruptions_allowed = Some(number(spare));
                status.current_healthy = number(healthy);
                status.desired_healthy = number(desired);
                status.expected_pods = number(expected);
                status.observed_generation = budget.metadata.generation;
            });
        }
    }
}

/// Whether no budget sees a difference between a pod as it was and as it is.
fn counts_the_same(old: &Pod, pod: &Pod) -> bool {
    old.is_finished() == pod.is_finished()
        && Counted::is_healthy(old) == Counted::is_healthy(pod)
        && controller_of(old) == controller_of(pod)
        && old.metadata.labels == pod.metadata.labels
}

/// The uid of the controller of a pod; empty if it has none.
fn controller_of(pod: &Pod) -> &str {
    pod.metadata.controller().map_or("", |owner| &owner.uid)
}

/// What all pods have that a budget selects: their namespace, and the first label that it names, if it names one.
fn mark_of(budget: &PodDisruptionBudget) -> String {
    let selector = budget.spec.selector.as_ref();
    mark(&budget.metadata.namespace, selector.and_then(|selector| selector.match_labels.iter().next()))
}

fn mark(namespace: &str, label: Option<(&String, &String)>) -> String {
    label.map_or_else(|| format!("{namespace}/"), |(key, value)| format!("{namespace}/{key}={value}"))
}

impl Counted {
    fn of(pod: &Pod) -> Self {
        Self { is_healthy: Self::is_healthy(pod), owner: controller_of(pod).to_owned() }
    }

    fn is_healthy(pod: &Pod) -> bool {
        is_ready(pod) && !pod.is_terminating()
    }
}

impl Tally {
    /// Counts a pod as it is now; `None` if it is not to be counted any more.
    fn put(&mut self, key: ObjectKey, counted: Option<Counted>) {
        if let Some(Counted { is_healthy, owner }) = &counted {
            self.healthy += usize::from(*is_healthy);
            if !owner.is_empty() {
                *self.owners.entry(owner.clone()).or_default() += 1;
            }
        }
        let before = match counted {
            Some(counted) => self.pods.insert(key, counted),
            None => self.pods.remove(&key),
        };
        let Some(Counted { is_healthy, owner }) = before else { return };
        self.healthy -= usize::from(is_healthy);
        if let Some(count) = self.owners.get_mut(&owner) {
            *count -= 1;
            if *count == 0 {
                self.owners.remove(&owner);
            }
        }
    }

    /// How many pods there should be, and how many of them must be healthy (`getExpectedPodCount`).
    fn wanted(&self, workloads: &Workloads) -> (usize, usize) {
        let scale = || {
            let known = self.owners.keys().filter_map(|uid| workloads.scale_of(uid));
            known.map(|replicas| replicas as usize).sum::<usize>()
        };
        let part = |amount: IntOrPercent, of: usize| amount.of(u32::try_from(of).unwrap_or(u32::MAX)) as usize;
        let spec = &self.budget.spec;
        match (spec.max_unavailable, spec.min_available) {
            (Some(away), _) => {
                let expected = scale();
                (expected, expected.saturating_sub(part(away, expected)))
            }
            (None, Some(IntOrPercent::Int(there))) => (self.pods.len(), there as usize),
            (None, Some(share)) => {
                let expected = scale();
                (expected, part(share, expected))
            }
            (None, None) => (0, 0),
        }
    }
}
