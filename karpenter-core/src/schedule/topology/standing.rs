//! What the pods that run already mean for those to come.

use std::sync::Arc;

use indexmap::IndexMap;

use super::{
    Term,
    selectors::{Namespaces, SelectedBy, SelectorId, Selectors},
};
use crate::{FxBuild, Snapshot, cluster::Place, labels};

/// The pods of each place that exists, as far as rules about neighbours go.
#[derive(Clone, Debug, Default)]
pub(in crate::schedule) struct Standing {
    places: Vec<Standers>,
}

/// The pods of one place.
#[derive(Clone, Debug, Default)]
struct Standers {
    /// How many pods there are of each set of selectors that select them.
    selected: IndexMap<SelectedBy, i64, FxBuild>,
    /// Pods of which none may come near.
    away: Vec<Term>,
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
            for pod in staying(snapshot, place) {
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
        Self { places }
    }

    /// Counts the running pods by who selects them.
    pub(in crate::schedule) fn count<'s>(&mut self, snapshot: &'s Snapshot, selectors: &mut Selectors<'s>) {
        for (standers, place) in self.places.iter_mut().zip(snapshot.places()) {
            for pod in staying(snapshot, place) {
                *standers.selected.entry(selectors.selecting(pod)).or_default() += 1;
            }
        }
    }

    /// How many pods of a place a selector selects.
    pub(in crate::schedule) fn selected(&self, selectors: &Selectors<'_>, place: usize, selector: SelectorId) -> i64 {
        let of_selector = self.places[place].selected.iter().filter(|(set, _)| selectors.selects(selector, **set));
        of_selector.map(|(_, count)| count).sum()
    }

    /// Whether a place has a pod that all terms select.
    pub(in crate::schedule) fn has_company(&self, selectors: &Selectors<'_>, place: usize, terms: &[Term]) -> bool {
        self.places[place].selected.keys().any(|set| selectors.all_select(terms, *set))
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

/// The pods of a place that nobody has asked to go.
fn staying<'s>(snapshot: &'s Snapshot, place: &'s Place) -> impl Iterator<Item = &'s crate::api::Pod> {
    place.pods.iter().filter_map(|key| snapshot.pod(key)).filter(|pod| !pod.is_terminating())
}
