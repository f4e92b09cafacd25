//! Pods that the kube-scheduler spreads over domains as it binds them, whichever a plan gives them.

use std::{collections::BTreeMap, sync::Arc};

use fixedbitset::FixedBitSet;
use smallvec::SmallVec;

use super::{fleet::whole, numbered};
use crate::schedule::{
    problem::{Problem, Tolerance, meet},
    search::Batch,
    topology::Latitude,
};

/// The pods of a class that one spread divides.
#[derive(Clone)]
pub(super) struct Family<'p> {
    latitude: &'p Latitude,
    /// The number of the label by whose values nodes are divided.
    pub(super) key: usize,
    domains: Arc<Domains>,
    /// How many pods each domain has.
    counts: Vec<i64>,
    /// How many domains the spread counts.
    counted: usize,
}

/// The values of a label of all nodes.
pub(super) struct Domains {
    names: Vec<Arc<str>>,
    of_nodes: Vec<Option<u32>>,
    /// How much a pod counts for `PodTopologySpread` if it compares so many domains.
    weights: Vec<f64>,
}

impl Domains {
    /// Those of the places that there are, then of new nodes.
    pub(super) fn new(problem: &Problem<'_>, batches: &[&Batch<'_>], key: &str) -> Self {
        let mut out = Self { names: Vec::new(), of_nodes: Vec::new(), weights: Vec::new() };
        for place in &problem.base.places {
            let domain = place.source.labels.get(key).map(|value| out.number(value));
            out.of_nodes.push(domain);
        }
        for batch in batches {
            let pool = &problem.base.pools[batch.candidate.pool];
            let values = pool.values(batch.candidate.row, key, None);
            let domain = if let [value] = values.as_slice() { Some(out.number(value)) } else { None };
            out.of_nodes.extend(std::iter::repeat_n(domain, batch.node_count()));
        }
        out.weights = Self::weights(out.names.len());
        out
    }

    /// The numbers of the domains of nodes in an order; 0 for nodes that have none, to which no pods of a spread go.
    pub(super) fn in_order(&self, order: &[usize]) -> Vec<u32> {
        order.iter().map(|&node| self.of_nodes[node].unwrap_or(0)).collect()
    }

    fn weights(most_domains: usize) -> Vec<f64> {
        (0..=most_domains).map(|count| ((count + 2) as f64).ln()).collect()
    }

    fn number(&mut self, value: &str) -> u32 {
        let number = self.names.iter().position(|name| **name == *value).unwrap_or_else(|| {
            self.names.push(Arc::from(value));
            self.names.len() - 1
        });
        u32::try_from(number).expect("there are fewer domains than that")
    }
}

impl<'p> Family<'p> {
    /// A family before any of its pods lands.
    pub(super) fn new(latitude: &'p Latitude, key: usize, domains: Arc<Domains>) -> Self {
        let mut counts: Vec<i64> =
            domains.names.iter().map(|name| latitude.counts.get(name).copied().unwrap_or(0)).collect();
        // Domains without a node stay as they are.
        let is_bare = |name: &&Arc<str>| !domains.names.contains(name);
        counts.extend(latitude.counts.iter().filter(|(name, _)| is_bare(name)).map(|(_, count)| *count));
        Self { latitude, key, domains, counts, counted: latitude.counts.len() }
    }

    /// Whether a pod may go to each domain now: all bits or none. There is one more, lest there be none.
    pub(super) fn open_domains(&self) -> SmallVec<[u8; 8]> {
        let most = self.most();
        self.counts.iter().map(|&count| if count < most { u8::MAX } else { 0 }).chain([0]).collect()
    }

    /// How many pods a domain may have, this pod included.
    fn most(&self) -> i64 {
        let Some((max_skew, min_domains)) = self.latitude.limit else { return i64::MAX };
        let floor = if self.counted < min_domains { 0 } else { self.counts.iter().copied().min().unwrap_or(0) };
        floor + max_skew
    }

    /// Whether the kube-scheduler only prefers some domains to others.
    pub(super) fn is_wish(&self) -> bool {
        self.latitude.limit.is_none()
    }

    /// What `PodTopologySpread` adds to the score of a node in each of some domains, by its weight of 2: the fewer pods one has
    /// beside the others, the more.
    pub(super) fn bonuses(&self, domains: impl ExactSizeIterator<Item = u32>) -> SmallVec<[i64; 4]> {
        let weight = self.domains.weights[domains.len()];
        let load = |domain: u32| (self.counts[domain as usize] as f64 * weight).round();
        let loads: SmallVec<[f64; 4]> = domains.map(load).collect();
        let (least, most) =
            loads.iter().fold((f64::INFINITY, 0.0), |(least, most), &load| (load.min(least), load.max(most)));
        let share = |&load: &f64| if most > 0.0 { whole(100.0 * (most + least - load) / most) } else { 100 };
        loads.iter().map(|load| 2 * i64::from(share(load))).collect()
    }

    /// Counts a pod that is bound to a node of a domain.
    pub(super) fn land(&mut self, domain: u32) {
        self.counts[domain as usize] += 1;
    }

    /// Counts a pod that stays in the domain that the plan gives it.
    pub(super) fn stay(&mut self, domain: &str) {
        if let Some(domain) = self.domains.names.iter().position(|name| **name == *domain) {
            self.counts[domain] += 1;
        }
    }
}

/// The nodes that pods may use in whichever domain a spread puts them: places that have room, and new nodes of pools of a
/// weight.
pub(super) fn admitted(
    problem: &Problem<'_>,
    (roomy, batches): (&[usize], &[&Batch<'_>]),
    latitude: &Latitude,
    domains: &Domains,
    weight: u32,
) -> FixedBitSet {
    let constraint = &latitude.constraint;
    let count = batches.iter().map(|batch| batch.node_count()).sum::<usize>();
    let mut out = FixedBitSet::with_capacity(problem.base.places.len() + count);
    for &index in roomy {
        let place = &problem.base.places[index];
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
    for (node, _) in domains.of_nodes.iter().enumerate().filter(|(_, domain)| domain.is_none()) {
        out.set(node, false);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{api::PodSpec, schedule::class::Constraint};

    #[test]
    fn domains_with_fewer_pods_have_higher_scores() {
        let counts = [("a", 1), ("b", 1), ("c", 2)].map(|(name, count)| (Arc::from(name), count));
        let latitude = Latitude {
            key: Arc::from("zone"),
            constraint: Constraint::of_pod(&PodSpec::default()),
            counts: counts.into_iter().collect(),
            limit: None,
        };
        let names = ["a", "b", "c"].map(Arc::from).to_vec();
        let domains = Domains { names, of_nodes: Vec::new(), weights: Domains::weights(3) };
        let family = Family::new(&latitude, 0, Arc::new(domains));
        // By the formula of the kube-scheduler the loads are 2, 2 and 3: a pod counts for ln(3 + 2).
        assert_eq!(family.bonuses([0, 1, 2].into_iter()).as_slice(), [200, 200, 132]);
        // Two domains that are alike, with ln(2 + 2) for each pod: 1.
        assert_eq!(family.bonuses([0, 1].into_iter()).as_slice(), [200, 200]);
    }
}
