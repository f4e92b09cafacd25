//! Which domains there are, and which of them pods can reach.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use fixedbitset::FixedBitSet;
use indexmap::{Equivalent, IndexMap, IndexSet};
use smallvec::SmallVec;

use super::{
    Manners, Member, Spread,
    offers::{Cell, Charge, Demand, Keys, Offers, Reach, reach_of},
};
use crate::{
    FxBuild, NodeAlternatives, Requirement, Requirements,
    api::tolerates_all,
    cluster::Place,
    labels,
    schedule::{
        amounts::{Amounts, copies, fits},
        class::Constraint,
        pool::{Pool, UNNAMED},
        problem::{Base, OpenPlace, Tolerance},
    },
};

/// How many pods of a spread run in each domain; a domain without any counts too.
pub(super) type Counts = BTreeMap<Arc<str>, i64>;

/// Some values of a label.
pub(in crate::schedule) type Named = BTreeSet<Arc<str>>;

/// What is asked about domains, each worked out once.
pub(super) struct Domains<'b, 'a> {
    base: &'b Base<'a>,
    /// What is known already, from whoever asked before.
    known: Answered,
}

/// Answers about domains.
#[derive(Default)]
pub(in crate::schedule) struct Answered {
    /// Of those who ask for nothing.
    sites: IndexMap<Question, Arc<Sites>, FxBuild>,
    reaches: IndexMap<Question, Arc<Reach>, FxBuild>,
    /// Whether some node takes pods, whatever its labels.
    taken: IndexMap<Question, bool, FxBuild>,
    /// Those of single pods of a class at a step of their wishes, by both.
    reaches_alone: IndexMap<(usize, usize, Question), Arc<Reach>, FxBuild>,
    columns: IndexMap<Arc<str>, Arc<Column>, FxBuild>,
    counts: IndexMap<(Constraint, Spread, Keys), Arc<Counts>, FxBuild>,
    /// Whether all nodes have a label.
    everywhere: IndexMap<Arc<str>, bool, FxBuild>,
    /// Whether all nodes of a domain are counted on which some pods may be.
    counted: IndexMap<Sight, bool, FxBuild>,
    /// Which values of a label each pool names.
    named: IndexMap<Arc<str>, Arc<Vec<Named>>, FxBuild>,
    /// What there may be of each pool, by a label.
    demands: IndexMap<Arc<str>, Arc<Vec<Demand>>, FxBuild>,
    offers: Offers,
}

impl Drop for Domains<'_, '_> {
    fn drop(&mut self) {
        self.base.answered.give_back(std::mem::take(&mut self.known));
    }
}

/// Whose reach over which labels is asked for.
#[derive(PartialEq, Eq, Hash)]
struct Question {
    constraint: Constraint,
    requests: Amounts,
    keys: Keys,
}

impl Question {
    fn new(constraint: &Constraint, requests: &Amounts, keys: &[Arc<str>]) -> Self {
        Self { constraint: constraint.clone(), requests: requests.clone(), keys: keys.to_vec() }
    }
}

/// A [`Question`] that is only looked up.
#[derive(Hash)]
struct Asked<'q> {
    constraint: &'q Constraint,
    requests: &'q Amounts,
    keys: &'q [Arc<str>],
}

impl Equivalent<Question> for Asked<'_> {
    fn equivalent(&self, other: &Question) -> bool {
        *self.constraint == other.constraint && *self.requests == other.requests && *self.keys == other.keys
    }
}

/// Whose nodes in which domain, and by which spread of whom they are counted; pods go by the indices of their constraints.
type Sight = (usize, Arc<str>, usize, Spread);

/// In which domain of a label each place is.
struct Column {
    domains: IndexSet<Arc<str>, FxBuild>,
    /// None without the label, and for nodes that go and take all their pods with them.
    of_place: Vec<Option<usize>>,
}

impl Column {
    fn find(places: &[Arc<Place>], key: &str) -> Self {
        let mut domains: IndexSet<Arc<str>, FxBuild> = IndexSet::default();
        let of_place = places.iter().map(|place| {
            let is_staying = !place.is_deleting || place.residents.iter().any(|pod| pod.is_reschedulable());
            let domain = place.labels.get(key).filter(|_| is_staying)?.as_str();
            Some(domains.get_index_of(domain).unwrap_or_else(|| domains.insert_full(Arc::from(domain)).0))
        });
        let of_place = of_place.collect();
        Self { domains, of_place }
    }
}

/// Which places take pods with a constraint, whatever room they have.
struct Sites {
    /// The cells that they are in.
    cells: Vec<Cell>,
    /// The index of each place and of its cell, and how willingly pods go there.
    places: Vec<(usize, usize, Tolerance)>,
}

impl Sites {
    fn find(places: &[OpenPlace<'_>], constraint: &Constraint, keys: &[Arc<str>]) -> Self {
        let mut cells: IndexSet<SmallVec<[&str; 2]>, FxBuild> = IndexSet::default();
        let mut found = Vec::new();
        for (index, place) in places.iter().enumerate() {
            let values = keys.iter().map(|key| place.source.labels.get(&**key).map(String::as_str));
            let Some(values) = values.collect::<Option<_>>() else { continue };
            let Some(tolerance) = constraint.tolerance_of(place.source) else { continue };
            found.push((index, cells.insert_full(values).0, tolerance));
        }
        let cells = cells.into_iter().map(|values| values.into_iter().map(Arc::from).collect()).collect();
        Self { cells, places: found }
    }
}

impl<'b, 'a> Domains<'b, 'a> {
    pub(super) fn new(base: &'b Base<'a>) -> Self {
        Self { base, known: base.answered.take() }
    }

    /// The cells of `keys` that pods can reach which together ask for `requests`.
    pub(super) fn reach(&mut self, constraint: &Constraint, requests: &Amounts, keys: &[Arc<str>]) -> Arc<Reach> {
        if let Some(known) = self.known.reaches.get(&Asked { constraint, requests, keys }) {
            return known.clone();
        }
        let reach = Arc::new(self.found(constraint, requests, keys, |_| usize::MAX));
        self.known.reaches.insert(Question::new(constraint, requests, keys), reach.clone());
        reach
    }

    /// Whether some node takes pods which together ask for `requests`: one that exists, or one that a pool can make as far as
    /// its limits go, with as many values as its `minValues` ask for among the types that are large enough.
    pub(super) fn takes(&mut self, constraint: &Constraint, requests: &Amounts) -> bool {
        if let Some(&known) = self.known.taken.get(&Asked { constraint, requests, keys: &[] }) {
            return known;
        }
        let (base, sites) = (self.base, self.sites(constraint, &[]));
        let is_taken = sites.places.iter().any(|&(index, ..)| fits(requests, &base.places[index].room))
            || base.pools.iter().enumerate().any(|(index, pool)| {
                tolerates_all(&constraint.tolerations, pool.taints(), false).is_ok()
                    && self.known.offers.can_make(index, pool, (&constraint.wanted, requests), base.options.min_values)
            });
        self.known.taken.insert(Question::new(constraint, requests, &[]), is_taken);
        is_taken
    }

    /// The cells of `keys` that single pods of a class can reach at a step of their wishes. Nodes that exist have room for no
    /// more of them than rules about single nodes allow.
    pub(super) fn reach_alone(
        &mut self,
        (class, level): (usize, usize),
        constraint: &Constraint,
        keys: &[Arc<str>],
    ) -> Arc<Reach> {
        let classes = &self.base.classes;
        let (volumes, class_index) = (classes.volumes(class), class);
        let class = &classes.list[class];
        let manners = Manners::of(classes, &[Member { class: class_index, level, count: 1 }]);
        if manners.are_free() && class.host_ports.is_empty() && volumes.is_empty() {
            return self.reach(constraint, &class.requests, keys);
        }
        let question = (class_index, level, Question::new(constraint, &class.requests, keys));
        if let Some(known) = self.known.reaches_alone.get(&question) {
            return known.clone();
        }
        let most = |place: &OpenPlace<'_>| {
            let most = place.occupancy.most_of(&class.host_ports, &manners, volumes);
            usize::try_from(most).unwrap_or(0)
        };
        let reach = Arc::new(self.found(constraint, &class.requests, keys, most));
        self.known.reaches_alone.insert(question, reach.clone());
        reach
    }

    /// What can be reached, if places take no more than so many pods.
    fn found(
        &mut self,
        constraint: &Constraint,
        requests: &Amounts,
        keys: &[Arc<str>],
        most: impl Fn(&OpenPlace<'_>) -> usize,
    ) -> Reach {
        let mut reach = reach_of(&self.base.pools, 0, &mut self.known.offers, constraint, requests, keys);
        let (places, sites) = (&self.base.places, self.sites(constraint, keys));
        let mut free: Vec<Option<usize>> = vec![None; sites.cells.len()];
        for &(index, cell, tolerance) in &sites.places {
            let place = &places[index];
            if fits(requests, &place.room) {
                let free = free[cell].get_or_insert(0);
                // Where a taint asks to be avoided there is room only for those who have no other.
                if tolerance == Tolerance::Full {
                    *free = free.saturating_add(copies(requests, &place.room).min(most(place)));
                }
            }
        }
        for (cell, free) in sites.cells.iter().zip(free) {
            if let Some(free) = free {
                reach.entry(cell.clone()).or_insert(Charge::NONE).free = free;
            }
        }
        reach
    }

    /// The places that take pods with a constraint and have all of these labels.
    fn sites(&mut self, constraint: &Constraint, keys: &[Arc<str>]) -> Arc<Sites> {
        let requests = Amounts::new();
        if let Some(known) = self.known.sites.get(&Asked { constraint, requests: &requests, keys }) {
            return known.clone();
        }
        let sites = Arc::new(Sites::find(&self.base.places, constraint, keys));
        self.known.sites.insert(Question::new(constraint, &requests, keys), sites.clone());
        sites
    }

    /// The cells to which others may draw pods without taking them out of the heaviest pools that they can reach.
    pub(super) fn reach_of_heaviest(
        &mut self,
        constraint: &Constraint,
        requests: &Amounts,
        keys: &[Arc<str>],
    ) -> Arc<Reach> {
        let pools = &self.base.pools;
        let of_weight = pools.chunk_by(|a, b| a.source.weight() == b.source.weight());
        if of_weight.clone().count() == 1 {
            return self.reach(constraint, requests, keys);
        }
        let mut first = 0;
        for alike in of_weight {
            let reach = reach_of(alike, first, &mut self.known.offers, constraint, requests, keys);
            if !reach.is_empty() {
                return Arc::new(reach);
            }
            first += alike.len();
        }
        Arc::default()
    }

    /// Whether all nodes have a label: those that exist, and those that pools can make.
    pub(super) fn is_everywhere(&mut self, key: &Arc<str>) -> bool {
        let base = self.base;
        let is_on_all = || {
            let is_made = |pool: &Pool<'_>| pool.open_rows.ones().all(|row| !pool.values(row, key, None).is_empty());
            base.snapshot.places().iter().all(|place| place.labels.contains_key(&**key))
                && (**key == *labels::HOSTNAME || base.pools.iter().all(is_made))
        };
        *self.known.everywhere.entry(key.clone()).or_insert_with(is_on_all)
    }

    /// The domains of a spread with the pods that run there, for pods with this constraint and these spread keys.
    ///
    /// A domain counts if a node of it exists that counts, or if some pool could make one for any of the pods: it may have one by
    /// the time that the kube-scheduler counts. A pool that leaves the label open makes nodes in one more.
    pub(super) fn counts(&mut self, constraint: &Constraint, spread: &Spread, keys: &[Arc<str>]) -> Arc<Counts> {
        let question = (constraint.clone(), spread.clone(), keys.to_vec());
        if let Some(known) = self.known.counts.get(&question) {
            return known.clone();
        }
        let mut counts = self.running(constraint, spread, keys);
        if !spread.term.is_by_host() {
            let demands = self.demands(&spread.term.key);
            for domain in creatable(self.base, &mut self.known.offers, (constraint, spread), keys, &demands) {
                counts.entry(domain).or_default();
            }
        }
        self.known.counts.entry(question).or_insert(Arc::new(counts)).clone()
    }

    /// How many pods that run count in each domain that exists.
    ///
    /// Of a node that goes only the pods count that something holds there: for the kube-scheduler they stay where they are. For as
    /// long as something holds any pod the node is there.
    fn running(&mut self, constraint: &Constraint, spread: &Spread, keys: &[Arc<str>]) -> Counts {
        let (places, standing) = (self.base.snapshot.places(), &self.base.classes.standing);
        let own = self.column(&spread.term.key);
        let all: SmallVec<[_; 2]> = keys.iter().map(|key| self.column(key)).collect();
        let mut counts = vec![None; own.domains.len()];
        let mut counted = vec![None; places.len()];
        for (index, place) in places.iter().enumerate() {
            let has_all = all.iter().all(|column| column.of_place[index].is_some());
            if let Some(domain) = own.of_place[index].filter(|_| has_all && spread.counts_on(constraint, place)) {
                counted[index] = Some(domain);
                *counts[domain].get_or_insert(0) += standing.coming_of_spread(index, &spread.term);
            }
        }
        for &(index, count) in standing.selected(spread.term.selector) {
            if let Some(domain) = counted[index] {
                *counts[domain].get_or_insert(0) += count;
            }
        }
        own.domains.iter().zip(counts).filter_map(|(domain, count)| Some((domain.clone(), count?))).collect()
    }

    fn column(&mut self, key: &Arc<str>) -> Arc<Column> {
        let places = self.base.snapshot.places();
        self.known.columns.entry(key.clone()).or_insert_with(|| Arc::new(Column::find(places, key))).clone()
    }

    /// The domains with a name that a spread of a class counts although they have no node.
    fn without_nodes(&mut self, class: usize, spread: &Spread) -> Named {
        let (constraint, keys) = onlooker(self.base, class);
        let there = self.running(constraint, spread, &keys);
        let counts = self.counts(constraint, spread, &keys);
        counts.keys().filter(|domain| ***domain != *UNNAMED && !there.contains_key(*domain)).cloned().collect()
    }

    /// The domains of a label that pods of a class can reach.
    pub(super) fn reached_by(&mut self, class: usize, key: &Arc<str>) -> Arc<Reach> {
        let classes = &self.base.classes;
        self.reach(&classes.node_constraint(class), &classes.list[class].requests, std::slice::from_ref(key))
    }

    /// Which values of a label each pool names.
    pub(super) fn named(&mut self, key: &Arc<str>) -> Arc<Vec<Named>> {
        let base = self.base;
        let find = || {
            let of_pool = |pool: &Pool<'_>| pool.open_rows.ones().flat_map(|row| pool.values(row, key, None)).collect();
            Arc::new(base.pools.iter().map(of_pool).collect::<Vec<Named>>())
        };
        self.known.named.entry(key.clone()).or_insert_with(find).clone()
    }

    /// The same with all domains that pools name and that pods with this constraint may be in as far as the label itself goes, as
    /// Karpenter counts them: some may be out of reach for another reason, and stay empty.
    pub(super) fn with_all_named(&mut self, counts: &Counts, constraint: &Constraint, spread: &Spread) -> Counts {
        let (base, key) = (self.base, &spread.term.key);
        let named = self.named(key);
        let mut out = counts.clone();
        for (pool, domains) in base.pools.iter().zip(named.iter()) {
            if spread.honors_taints && tolerates_all(&constraint.tolerations, pool.taints(), false).is_err() {
                continue;
            }
            let is_wanted = |domain: &&Arc<str>| {
                let wants = |all: &Requirements| all.get(key).is_none_or(|wanted| wanted.admits(Some(domain)));
                constraint.wanted.alternatives().iter().any(wants)
            };
            for domain in domains.iter().filter(is_wanted) {
                out.entry(domain.clone()).or_default();
            }
        }
        out
    }

    /// Whether a spread of pods counts every node of a domain on which others may be.
    pub(super) fn is_counted_at(&mut self, others: usize, domain: &Arc<str>, own: usize, spread: &Spread) -> bool {
        let (base, offers) = (self.base, &mut self.known.offers);
        let constraints = &base.classes.constraints;
        let find = || counts_all(base, offers, (&constraints[own], spread), &constraints[others], domain);
        others == own || *self.known.counted.entry((others, domain.clone(), own, spread.clone())).or_insert_with(find)
    }

    /// What there may be of each pool.
    fn demands(&mut self, key: &Arc<str>) -> Arc<Vec<Demand>> {
        let (base, offers) = (self.base, &mut self.known.offers);
        let find = || {
            let mut least: IndexMap<Constraint, Amounts, FxBuild> = IndexMap::default();
            for (index, class) in base.classes.list.iter().enumerate() {
                let known = least.entry(base.classes.node_constraint(index)).or_insert_with(|| class.requests.clone());
                known.iter_mut().zip(&class.requests).for_each(|(known, own)| *known = (*known).min(*own));
            }
            let pools = base.pools.iter().enumerate();
            Arc::new(pools.map(|(index, pool)| Demand::of(index, pool, offers, &least, key)).collect())
        };
        self.known.demands.entry(key.clone()).or_insert_with(find).clone()
    }
}

/// The domains, by label, that spreads of some classes count although they have no node and no pods that are spread over the label can
/// be there: others may have nodes there.
pub(in crate::schedule) fn out_of_reach(base: &Base<'_>, some: &BTreeSet<usize>) -> BTreeMap<Arc<str>, Named> {
    let mut domains = Domains::new(base);
    let mut out: BTreeMap<Arc<str>, Named> = BTreeMap::new();
    for &class in some {
        for spread in shared_spreads(base, class) {
            out.entry(spread.term.key.clone()).or_default().extend(domains.without_nodes(class, spread));
        }
    }
    for class in 0..base.classes.list.len() {
        for key in shared_spreads(base, class).map(|spread| &spread.term.key) {
            if let Some(found) = out.get_mut(key).filter(|found| !found.is_empty()) {
                let reach = domains.reached_by(class, key);
                found.retain(|domain| !reach.contains_key(std::slice::from_ref(domain)));
            }
        }
    }
    out.retain(|_, found| !found.is_empty());
    out
}

/// The domains that pods of each class can reach of the labels over which they are spread.
pub(in crate::schedule) fn within_reach(base: &Base<'_>) -> Vec<BTreeMap<Arc<str>, Named>> {
    let mut domains = Domains::new(base);
    let of_class = |class: usize| {
        let keys = shared_spreads(base, class).map(|spread| &spread.term.key);
        keys.map(|key| (key.clone(), domains.reached_by(class, key).keys().map(|cell| cell[0].clone()).collect()))
            .collect()
    };
    (0..base.classes.list.len()).map(of_class).collect()
}

/// How many domains all classes together can be divided among; one for a class that no spread divides.
pub(in crate::schedule) fn domains_of_classes(base: &Base<'_>) -> usize {
    let mut domains = Domains::new(base);
    let of_class = |class: usize| -> usize {
        let keys: BTreeSet<&Arc<str>> = shared_spreads(base, class).map(|spread| &spread.term.key).collect();
        keys.into_iter().map(|key| domains.reached_by(class, key).len().max(1)).product()
    };
    (0..base.classes.list.len()).map(of_class).sum()
}

/// Whether spreads count all domains that pools name: then none can come that they do not count yet.
pub(in crate::schedule) fn count_all_named(base: &Base<'_>) -> bool {
    let mut domains = Domains::new(base);
    (0..base.classes.list.len()).all(|class| {
        let (constraint, keys) = onlooker(base, class);
        shared_spreads(base, class).all(|spread| {
            let counts = domains.counts(constraint, spread, &keys);
            domains.with_all_named(&counts, constraint, spread).len() == counts.len()
        })
    })
}

/// What tells which nodes the spreads of a class count: what its pods ask for, and the labels of all its spreads.
fn onlooker<'b>(base: &'b Base<'_>, class: usize) -> (&'b Constraint, Keys) {
    let classes = &base.classes;
    let keys = classes.neighbourhood(class).hard().spread_keys();
    (&classes.constraints[classes.list[class].constraint], keys)
}

/// The spreads of a class over labels that nodes share.
fn shared_spreads<'b>(base: &'b Base<'_>, class: usize) -> impl Iterator<Item = &'b Spread> {
    base.classes.neighbourhood(class).hard().spreads.iter().filter(|spread| !spread.term.is_by_host())
}

/// Whether a spread of pods with a constraint counts every node of a domain on which others may be.
fn counts_all(
    base: &Base<'_>,
    offers: &mut Offers,
    (own, spread): (&Constraint, &Spread),
    others: &Constraint,
    domain: &Arc<str>,
) -> bool {
    let mut there = Requirements::new();
    there.add(&spread.term.key, Requirement::one_of([domain.clone()]));
    let others = Constraint { wanted: others.wanted.narrowed(&there), tolerations: others.tolerations.clone() };
    let mut places = base.places.iter().map(|place| place.source);
    if !places.all(|place| others.tolerance_of(place).is_none() || spread.counts_on(own, place)) {
        return false;
    }
    let admits_all = !spread.honors_affinity || own.wanted.include(&others.wanted);
    base.pools.iter().enumerate().all(|(index, pool)| {
        if tolerates_all(&others.tolerations, pool.taints(), false).is_err() {
            return true;
        }
        let rows = union(pool, offers.open(index, pool, &others.wanted).iter());
        let is_tolerated = !spread.honors_taints || tolerates_all(&own.tolerations, pool.taints(), false).is_ok();
        let is_admitted = || {
            let met = pool.alternatives(&own.wanted);
            // Where a label has no value yet, only the claim tells what its node is like.
            let settled = met.iter().filter(|alternative| !alternative.is_open_ended);
            rows.is_subset(&union(pool, settled.map(|alternative| &alternative.rows)))
        };
        rows.is_clear() || is_tolerated && (admits_all || is_admitted())
    })
}

/// The rows of a pool that are in any of some sets.
fn union<'r>(pool: &Pool<'_>, sets: impl Iterator<Item = &'r FixedBitSet>) -> FixedBitSet {
    let mut out = FixedBitSet::with_capacity(pool.table().rows().len());
    sets.for_each(|rows| out.union_with(rows));
    out
}

/// The domains in which some pool could make a node for some of the pods that counts: one with the labels of all spreads of the pods
/// that are spread.
fn creatable(
    base: &Base<'_>,
    offers: &mut Offers,
    (constraint, spread): (&Constraint, &Spread),
    keys: &[Arc<str>],
    demands: &[Demand],
) -> BTreeSet<Arc<str>> {
    let anything = NodeAlternatives::any();
    let wanted = if spread.honors_affinity { &constraint.wanted } else { &anything };
    let key = &spread.term.key;
    // Every node has a name of its own.
    let others = keys.iter().filter(|other| *other != key && ***other != *labels::HOSTNAME);
    let keys: Vec<Arc<str>> = others.chain([key]).cloned().collect();
    let mut out = BTreeSet::new();
    for ((index, pool), demand) in base.pools.iter().enumerate().zip(demands) {
        if !spread.honors_taints || tolerates_all(&constraint.tolerations, pool.taints(), false).is_ok() {
            out.extend(offers.creatable((index, pool), wanted, &keys, demand).iter().cloned());
        }
    }
    out
}
