//! Pods that the kube-scheduler spreads over domains as it binds them, whichever a plan gives them.

use std::{collections::BTreeMap, sync::Arc};

use fixedbitset::FixedBitSet;

use super::numbered;
use crate::schedule::{
    problem::{Problem, Tolerance, meet},
    search::Batch,
    topology::Latitude,
};

/// The pods of a class that one spread divides.
#[derive(Clone)]
pub(super) struct Family<'p> {
    latitude: &'p Latitude,
    /// The nodes that its pods may use, in any domain.
    admits: FixedBitSet,
    /// The domain of each node.
    domains: Arc<Domains>,
    /// How many pods each domain has.
    counts: Vec<i64>,
    /// How many domains the spread counts.
    counted: usize,
}

/// The values of a label of all nodes.
pub(super) struct Domains {
    names: Vec<Arc<str>>,
    of_nodes: Vec<Option<usize>>,
}

impl Domains {
    /// Those of the places that there are, then of new nodes.
    pub(super) fn new(problem: &Problem<'_>, batches: &[&Batch<'_>], key: &str) -> Self {
        let mut out = Self { names: Vec::new(), of_nodes: Vec::new() };
        for place in &problem.base.places {
            let domain = place.source.labels.get(key).map(|value| out.index(value));
            out.of_nodes.push(domain);
        }
        for batch in batches {
            let pool = &problem.base.pools[batch.candidate.pool];
            let values = pool.values(batch.candidate.row, key, None);
            let domain = if let [value] = values.as_slice() { Some(out.index(value)) } else { None };
            out.of_nodes.extend(std::iter::repeat_n(domain, batch.node_count()));
        }
        out
    }

    fn index(&mut self, value: &str) -> usize {
        self.names.iter().position(|name| **name == *value).unwrap_or_else(|| {
            self.names.push(Arc::from(value));
            self.names.len() - 1
        })
    }
}

impl<'p> Family<'p> {
    /// A family before any of its pods lands.
    pub(super) fn new(latitude: &'p Latitude, admits: FixedBitSet, domains: Arc<Domains>) -> Self {
        let mut counts: Vec<i64> =
            domains.names.iter().map(|name| latitude.counts.get(name).copied().unwrap_or(0)).collect();
        // Domains without a node stay as they are.
        let is_bare = |name: &&Arc<str>| !domains.names.contains(name);
        counts.extend(latitude.counts.iter().filter(|(name, _)| is_bare(name)).map(|(_, count)| *count));
        Self { latitude, admits, domains, counts, counted: latitude.counts.len() }
    }

    /// Whether a pod may go to a node now.
    pub(super) fn goes_to(&self, node: usize, most: i64) -> bool {
        self.admits.contains(node) && self.domains.of_nodes[node].is_some_and(|domain| self.counts[domain] < most)
    }

    /// How many pods a domain may have, this pod included.
    pub(super) fn most(&self) -> i64 {
        let Some((max_skew, min_domains)) = self.latitude.limit else { return i64::MAX };
        let floor = if self.counted < min_domains { 0 } else { self.counts.iter().copied().min().unwrap_or(0) };
        floor + max_skew
    }

    /// Counts a pod that is bound to a node.
    pub(super) fn land(&mut self, node: usize) {
        if let Some(domain) = self.domains.of_nodes[node] {
            self.counts[domain] += 1;
        }
    }

    /// Counts a pod that stays in the domain that the plan gives it.
    pub(super) fn stay(&mut self, domain: &str) {
        if let Some(domain) = self.domains.names.iter().position(|name| **name == *domain) {
            self.counts[domain] += 1;
        }
    }
}

/// The nodes that pods may use wherever a spread puts them: the places that there are, and new nodes of pools of a weight.
pub(super) fn admitted(problem: &Problem<'_>, batches: &[&Batch<'_>], latitude: &Latitude, weight: u32) -> FixedBitSet {
    let constraint = &latitude.constraint;
    let count = batches.iter().map(|batch| batch.node_count()).sum::<usize>();
    let mut out = FixedBitSet::with_capacity(problem.base.places.len() + count);
    for (index, place) in problem.base.places.iter().enumerate() {
        out.set(index, constraint.tolerance_of(place.source) == Some(Tolerance::Full));
    }
    let mut meetings = BTreeMap::new();
    for (candidate, nodes) in numbered(problem, batches) {
        if problem.weight(candidate) != weight {
            continue;
        }
        let meeting =
            meetings.entry(candidate.pool).or_insert_with(|| meet(&problem.base.pools[candidate.pool], constraint));
        let takes = meeting.as_ref().is_some_and(|(tolerance, alternatives)| {
            *tolerance == Tolerance::Full && alternatives.iter().any(|a| a.rows.contains(candidate.row))
        });
        out.set_range(nodes, takes);
    }
    out
}
