//! What the pods that run already mean for those to come.

use std::sync::Arc;

use indexmap::{IndexMap, IndexSet};

use super::{
    Term,
    selectors::{Namespaces, SelectedBy, SelectorId, Selectors},
};
use crate::{FxBuild, Snapshot, api::Pod, cluster::Place, labels};

/// The pods of each place that exists, as far as rules about neighbours go.
#[derive(Clone, Debug, Default)]
pub(in crate::schedule) struct Standing {
    places: Vec<Standers>,
    /// The places with pods that a selector selects, and how many these are.
    selected: IndexMap<SelectorId, Vec<(usize, i64)>, FxBuild>,
}

/// The pods of one place.
#[derive(Clone, Debug, Default)]
struct Standers {
    /// How many pods there are of each set of selectors that select them.
    selected: IndexMap<SelectedBy, i64, FxBuild>,
    /// Pods of which none may come near.
    away: Vec<Term>,
    /// The sets of selectors that select pods which are still to come.
    coming: IndexSet<SelectedBy, FxBuild>,
    /// How many pods are still to come that have a spread and are counted by it. Others may come later than all who have it.
    coming_spread: IndexMap<Term, i64, FxBuild>,
}

impl Standing {
    /// Takes down whom the running pods keep away. It must come before any pod is asked by whom it is selected.
    pub(in crate::schedule) fn new<'s>(
        snapshot: &'s Snapshot,
        selectors: &mut Selectors<'s>,
        namespaces: &Namespaces,
    ) -> Self {
        let mut places = Vec::with_capacity(snapshot.places().len());
        for place in snapshot.places() {
            let mut standers = Standers::default();
            let repelling = place.residents.are_repelling().then(|| place.staying()).into_iter().flatten();
            for pod in repelling.chain(coming(snapshot, place).map(|(pod, _)| pod)) {
                for term in &pod.spec.affinity.pod_anti_affinity.required {
                    let selector = selectors.of_term(pod, term, namespaces);
                    let term = Term { selector, key: Arc::from(labels::normalized(&term.topology_key)) };
                    if !standers.away.contains(&term) {
                        standers.away.push(term);
                    }
                }
            }
            places.push(standers);
        }
        Self { places, ..Self::default() }
    }

    /// Counts the running pods by who selects them.
    pub(in crate::schedule) fn count<'s>(&mut self, snapshot: &'s Snapshot, selectors: &mut Selectors<'s>) {
        if selectors.is_empty() {
            return;
        }
        for (index, (standers, place)) in self.places.iter_mut().zip(snapshot.places()).enumerate() {
            for pod in place.staying() {
                *standers.selected.entry(selectors.selecting(pod)).or_default() += 1;
            }
            for (set, count) in &standers.selected {
                for selector in selectors.ids(*set) {
                    self.selected.entry(*selector).or_default().push((index, *count));
                }
            }
            for (pod, count) in coming(snapshot, place) {
                let selected_by = selectors.selecting(pod);
                standers.coming.insert(selected_by);
                let all = &pod.spec.topology_spread_constraints;
                for spread in all.iter().filter(|spread| spread.is_hard()) {
                    let selector = selectors.of_known_spread(pod, spread);
                    if let Some(selector) = selector.filter(|selector| selectors.selects(*selector, selected_by)) {
                        let term = Term { selector, key: Arc::from(labels::normalized(&spread.topology_key)) };
                        *standers.coming_spread.entry(term).or_default() += count;
                    }
                }
            }
        }
    }

    /// The places with pods that a selector selects, and how many these are; a place may be there several times.
    pub(in crate::schedule) fn selected(&self, selector: SelectorId) -> &[(usize, i64)] {
        self.selected.get(&selector).map_or(&[], Vec::as_slice)
    }

    /// How many pods are still to come to a place that have a spread and are counted by it.
    pub(in crate::schedule) fn coming_of_spread(&self, place: usize, term: &Term) -> i64 {
        self.places[place].coming_spread.get(term).copied().unwrap_or(0)
    }

    /// Whether pods are still to come to a place that a selector selects.
    pub(in crate::schedule) fn is_coming(&self, selectors: &Selectors<'_>, place: usize, selector: SelectorId) -> bool {
        self.places[place].coming.iter().any(|set| selectors.selects(selector, *set))
    }

    /// Whether a place has a pod that all terms select.
    pub(in crate::schedule) fn has_company(&self, selectors: &Selectors<'_>, place: usize, terms: &[Term]) -> bool {
        let Standers { selected, coming, .. } = &self.places[place];
        selected.keys().chain(coming).any(|set| selectors.all_select(terms, *set))
    }

    /// Whom the pods of a place keep away.
    pub(in crate::schedule) fn away(&self, place: usize) -> &[Term] {
        &self.places[place].away
    }

    /// The sets of selectors that select pods of a place, with the number of these pods.
    pub(in crate::schedule) fn sets(&self, place: usize) -> impl Iterator<Item = (SelectedBy, i64)> {
        self.places[place].selected.iter().map(|(set, count)| (*set, *count))
    }
}

/// The pods that are still to come to a place: of those that are alike one, and how many.
fn coming<'s>(snapshot: &'s Snapshot, place: &'s Place) -> impl Iterator<Item = (&'s Pod, i64)> {
    let count = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
    place.coming.iter().filter_map(move |(key, alike)| Some((snapshot.pod(key)?, count(*alike))))
}
