//! Which pods are known to be where, and whom pods keep away from where they are.
//!
//! Most rules are about the pods of one workload. All is found by the selectors that ask for it, so that it takes no longer to
//! divide a class because there are many others.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{
    Term,
    portion::Domain,
    selectors::{SelectedBy, SelectorId, Selectors},
};
use crate::schedule::{class::Classes, problem::Base};

/// Pods, and the domain that they are in.
type Resident = (SelectedBy, Arc<str>);

/// What is known of domains so far.
pub(super) struct Whereabouts {
    /// The domains that pods are in, by a selector that selects these pods and by the label.
    settled: BTreeMap<(SelectorId, Arc<str>), BTreeSet<Resident>>,
    /// The domains that pods are kept out of, by the selector of these pods.
    barred: BTreeMap<SelectorId, BTreeSet<Domain>>,
}

impl Whereabouts {
    /// Whom the pods that run keep away.
    pub(super) fn new(base: &Base<'_>) -> Self {
        let mut out = Self { settled: BTreeMap::new(), barred: BTreeMap::new() };
        for (index, place) in base.snapshot.places().iter().enumerate() {
            for term in base.classes.standing.away(index).iter().filter(|term| !term.is_by_host()) {
                if let Some(domain) = place.labels.get(&*term.key) {
                    out.bar(term, Arc::from(domain.as_str()));
                }
            }
        }
        out
    }

    /// Some pods that these selectors select are in a domain.
    pub(super) fn settle(&mut self, selectors: &Selectors<'_>, pods: SelectedBy, key: &str, domain: &Arc<str>) {
        let key: Arc<str> = Arc::from(key);
        for &selector in selectors.ids(pods) {
            self.settled.entry((selector, key.clone())).or_default().insert((pods, domain.clone()));
        }
    }

    /// Pods keep others out of a domain.
    pub(super) fn bar(&mut self, others: &Term, domain: Arc<str>) {
        self.barred.entry(others.selector).or_default().insert((others.key.clone(), domain));
    }

    /// The domains of a label that are known to have pods which all terms select.
    pub(super) fn with_company<'w>(
        &'w self,
        selectors: &'w Selectors<'_>,
        terms: &'w [Term],
        key: &Arc<str>,
    ) -> impl Iterator<Item = &'w Arc<str>> {
        let of_first = terms.first().and_then(|first| self.settled.get(&(first.selector, key.clone())));
        let is_company = move |(pods, _): &&Resident| selectors.all_select(terms, *pods);
        of_first.into_iter().flatten().filter(is_company).map(|(_, domain)| domain)
    }

    /// The domains that pods are kept out of which these selectors select, in order.
    pub(super) fn barred_to(&self, selectors: &Selectors<'_>, pods: SelectedBy) -> BTreeSet<&Domain> {
        selectors.ids(pods).iter().filter_map(|selector| self.barred.get(selector)).flatten().collect()
    }
}

/// Which classes are about which others.
pub(super) struct Relations {
    /// The classes that must keep away from pods in whole domains, each with the index of its rule, by the selector of these pods.
    keepers: BTreeMap<SelectorId, Vec<(usize, usize)>>,
    /// How many classes each selector selects.
    selected: BTreeMap<SelectorId, usize>,
}

impl Relations {
    pub(super) fn new(classes: &Classes<'_>) -> Self {
        let mut out = Self { keepers: BTreeMap::new(), selected: BTreeMap::new() };
        for class in 0..classes.list.len() {
            let neighbourhood = classes.neighbourhood(class);
            for &selector in classes.selectors.ids(neighbourhood.selected_by) {
                *out.selected.entry(selector).or_default() += 1;
            }
            for (index, term) in neighbourhood.hard().away.iter().enumerate().filter(|(_, term)| !term.is_by_host()) {
                out.keepers.entry(term.selector).or_default().push((class, index));
            }
        }
        out
    }

    /// The classes that must keep away from pods which these selectors select, each with the index of its rule, in order.
    pub(super) fn keepers_from(&self, selectors: &Selectors<'_>, pods: SelectedBy) -> BTreeSet<(usize, usize)> {
        selectors.ids(pods).iter().filter_map(|selector| self.keepers.get(selector)).flatten().copied().collect()
    }

    /// How many classes a selector selects.
    pub(super) fn selected(&self, selector: SelectorId) -> usize {
        self.selected.get(&selector).copied().unwrap_or(0)
    }
}
