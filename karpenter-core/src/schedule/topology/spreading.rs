//! How many pods with a spread are given to each domain, and which of them another spread counts.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    Rules, Spread, Term,
    domains::{Counts, Domains},
    selectors::SelectorId,
};
use crate::schedule::class::Classes;

/// On which nodes pods may be: the index of their [`Constraint`](crate::schedule::class::Constraint), and the labels over which they
/// must be spread, in order.
type NodesOf = (usize, Vec<Arc<str>>);

/// The pods with a spread that have a domain, by the nodes on which they may be.
#[derive(Default)]
pub(super) struct Spreading(BTreeMap<Term, BTreeMap<NodesOf, Counts>>);

impl Spreading {
    /// Counts pods of a class by the spreads among their rules that count them, in the domains that they have.
    pub(super) fn add(
        &mut self,
        classes: &Classes<'_>,
        class: usize,
        (rules, count): (&Rules, usize),
        domain_of: impl Fn(&str) -> Option<Arc<str>>,
    ) {
        let neighbourhood = classes.neighbourhood(class);
        let is_own = |selector: SelectorId| classes.selectors.selects(selector, neighbourhood.selected_by);
        // Two constraints may count the same pods over the same label.
        let mut terms: Vec<&Term> = rules.spreads.iter().map(|spread| &spread.term).collect();
        terms.sort_unstable();
        terms.dedup();
        for term in terms.into_iter().filter(|term| is_own(term.selector)) {
            if let Some(domain) = domain_of(&term.key) {
                let nodes = (classes.list[class].constraint, neighbourhood.hard().spread_keys());
                let counts = self.0.entry(term.clone()).or_default().entry(nodes).or_default();
                *counts.entry(domain).or_default() += i64::try_from(count).unwrap_or(i64::MAX);
            }
        }
    }

    /// How many pods a spread of pods with a constraint will count in each domain for sure, and how many it may or may not count: pods
    /// may come to nodes on which it does not count, or that lack some of the labels that its nodes must have.
    pub(super) fn counted_by(
        &self,
        domains: &mut Domains<'_, '_>,
        (own, spread): (usize, &Spread),
        spread_keys: &[Arc<str>],
    ) -> [Counts; 2] {
        let mut out = [Counts::new(), Counts::new()];
        for ((other, other_keys), counts) in self.0.get(&spread.term).into_iter().flatten() {
            let has_labels = spread_keys.iter().all(|key| other_keys.contains(key) || domains.is_everywhere(key));
            for (domain, count) in counts {
                let is_sure = has_labels && domains.is_counted_at(*other, domain, own, spread);
                *out[usize::from(!is_sure)].entry(domain.clone()).or_default() += count;
            }
        }
        out
    }
}
