//! How many pods of which kind are on which node, counted as pods come and go.

use std::collections::BTreeMap;

use indexmap::IndexMap;
use karpenter_core::api::{Pod, PodAffinityTerm};

use super::selector::{Kin, Namespaces, Selector};
use crate::sim::FxBuild;

/// The most counts that are kept, beyond which they are made anew where they are needed.
const MAX_TALLIES: usize = 1024;
/// What a required affinity term of a running pod counts as when nodes are scored (`HardPodAffinityWeight`).
const HARD_WEIGHT: i64 = 1;

/// How many pods of a node are meant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Count {
    pub(super) all: u32,
    /// Those that are not on their way out.
    pub(super) live: u32,
}

/// The pods that all of some selectors select, on each node.
type Tally = Vec<Count>;

/// Pods that are alike to the rules of others, on each node.
#[derive(Clone, Debug, Default)]
struct Crowd {
    on: BTreeMap<usize, Count>,
    /// The tallies that count them, by number.
    counted_in: Vec<usize>,
    pods: usize,
}

/// What a running pod says about others: how near, and about whom.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Term {
    pub(super) key: String,
    pub(super) selector: Selector,
    /// `None` keeps them away; else what it adds to the score of a node near the pod.
    pub(super) weight: Option<i64>,
}

/// All pods that are on nodes.
#[derive(Clone, Debug, Default)]
pub(super) struct Census {
    crowds: IndexMap<Kin, Crowd, FxBuild>,
    tallies: IndexMap<Vec<Selector>, Tally, FxBuild>,
    /// How many pods with each term run on each node.
    terms: IndexMap<Term, BTreeMap<usize, u32>, FxBuild>,
    pub(super) namespaces: Namespaces,
}

impl Census {
    /// Counts a pod in on a node.
    pub(super) fn add(&mut self, kin: &Kin, pod: &Pod, slot: usize) {
        let crowd = self.crowd(kin);
        let crowd = &mut self.crowds[crowd];
        crowd.pods += 1;
        let count = crowd.on.entry(slot).or_default();
        count.all += 1;
        count.live += 1;
        for &tally in &crowd.counted_in {
            let count = at(&mut self.tallies[tally], slot);
            count.all += 1;
            count.live += 1;
        }
        for term in terms_of(pod) {
            *self.terms.entry(term).or_default().entry(slot).or_default() += 1;
        }
    }

    /// Counts a pod as on its way out.
    pub(super) fn fade(&mut self, kin: &Kin, slot: usize) {
        let Some(crowd) = self.crowds.get_mut(kin) else { return };
        if let Some(count) = crowd.on.get_mut(&slot) {
            count.live -= 1;
        }
        for &tally in &crowd.counted_in {
            at(&mut self.tallies[tally], slot).live -= 1;
        }
    }

    /// Counts a pod out.
    pub(super) fn remove(&mut self, kin: &Kin, pod: &Pod, slot: usize, is_faded: bool) {
        if !is_faded {
            self.fade(kin, slot);
        }
        for term in terms_of(pod) {
            let Some(on) = self.terms.get_mut(&term) else { continue };
            if let Some(count) = on.get_mut(&slot) {
                *count -= 1;
                if *count == 0 {
                    on.remove(&slot);
                }
            }
            if on.is_empty() {
                self.terms.swap_remove(&term);
            }
        }
        let Some(crowd) = self.crowds.get_mut(kin) else { return };
        if let Some(count) = crowd.on.get_mut(&slot) {
            count.all -= 1;
            if count.all == 0 {
                crowd.on.remove(&slot);
            }
        }
        for &tally in &crowd.counted_in {
            at(&mut self.tallies[tally], slot).all -= 1;
        }
        crowd.pods -= 1;
        if crowd.pods == 0 {
            self.crowds.swap_remove(kin);
        }
    }

    /// Forgets which pods are meant by which rule, because namespaces have changed.
    pub(super) fn forget(&mut self) {
        self.tallies.clear();
        for crowd in self.crowds.values_mut() {
            crowd.counted_in.clear();
        }
    }

    /// How many of the pods that all of these selectors select are on each node; nodes at the end may be left out.
    pub(super) fn tally(&mut self, selectors: &[Selector]) -> &[Count] {
        let known = self.tallies.get_index_of(selectors);
        let index = known.unwrap_or_else(|| self.count(selectors));
        &self.tallies[index]
    }

    fn count(&mut self, selectors: &[Selector]) -> usize {
        if self.tallies.len() >= MAX_TALLIES {
            self.forget();
        }
        let (mut tally, index) = (Tally::new(), self.tallies.len());
        for (kin, crowd) in &mut self.crowds {
            if selectors.iter().all(|s| s.selects(kin, &self.namespaces)) {
                crowd.counted_in.push(index);
                for (slot, count) in &crowd.on {
                    let total = at(&mut tally, *slot);
                    total.all += count.all;
                    total.live += count.live;
                }
            }
        }
        self.tallies.insert(selectors.to_vec(), tally);
        index
    }

    /// The terms of running pods that are about such a pod, with the nodes that those pods are on.
    pub(super) fn terms_about<'c>(
        &'c self,
        kin: &'c Kin,
    ) -> impl Iterator<Item = (&'c Term, &'c BTreeMap<usize, u32>)> {
        self.terms.iter().filter(|(term, _)| term.selector.selects(kin, &self.namespaces))
    }

    /// Whether a pod that is on a node says anything about others.
    pub(super) fn has_terms(&self) -> bool {
        !self.terms.is_empty()
    }

    fn crowd(&mut self, kin: &Kin) -> usize {
        if let Some(index) = self.crowds.get_index_of(kin) {
            return index;
        }
        let counts = |selectors: &[Selector]| selectors.iter().all(|s| s.selects(kin, &self.namespaces));
        let counted_in = self.tallies.keys().enumerate().filter(|(_, s)| counts(s)).map(|(i, _)| i).collect();
        self.crowds.insert_full(kin.clone(), Crowd { counted_in, ..Crowd::default() }).0
    }
}

/// What a pod says about others, as far as it bears on them.
fn terms_of(pod: &Pod) -> Vec<Term> {
    let affinity = &pod.spec.affinity;
    let (near, apart) = (&affinity.pod_affinity, &affinity.pod_anti_affinity);
    let term = |term: &PodAffinityTerm, weight| Term {
        key: term.topology_key.clone(),
        selector: Selector::of_term(pod, term),
        weight,
    };
    let mut out: Vec<Term> = apart.required.iter().map(|t| term(t, None)).collect();
    out.extend(near.required.iter().map(|t| term(t, Some(HARD_WEIGHT))));
    out.extend(near.preferred.iter().map(|t| term(&t.pod_affinity_term, Some(i64::from(t.weight)))));
    out.extend(apart.preferred.iter().map(|t| term(&t.pod_affinity_term, Some(-i64::from(t.weight)))));
    out
}

fn at(tally: &mut Tally, slot: usize) -> &mut Count {
    if tally.len() <= slot {
        tally.resize(slot + 1, Count::default());
    }
    &mut tally[slot]
}
