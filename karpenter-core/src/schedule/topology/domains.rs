//! Which domains there are, and which of them pods can reach.

use std::{
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
    sync::Arc,
};

use fixedbitset::FixedBitSet;
use indexmap::{Equivalent, IndexMap, IndexSet};
use ordered_float::OrderedFloat;
use smallvec::SmallVec;

use super::{Manners, Member, Spread};
use crate::{
    FxBuild, NodeAlternatives, Requirement, Requirements,
    api::tolerates_all,
    labels,
    schedule::{
        MinValuesPolicy,
        amounts::{Amounts, copies, dominant_share, fits},
        class::Constraint,
        pool::{Pool, heavier_weights},
        problem::{Base, OpenPlace, Tolerance},
    },
};

/// A value for each of some labels.
pub(super) type Cell = Vec<Arc<str>>;

/// The cells that a pod can reach, with what it costs there.
pub(super) type Reach = BTreeMap<Cell, Charge>;

/// What a pod costs: less if it is of a heavier pool, or else in dollars an hour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Cost {
    /// How many weights of pools are heavier.
    heavier: usize,
    per_hour: OrderedFloat<f64>,
}

impl Cost {
    pub(super) const NOTHING: Self = Self { heavier: 0, per_hour: OrderedFloat(0.0) };
    /// That of a new node where there can be none.
    const NEVER: Self = Self { heavier: usize::MAX, per_hour: OrderedFloat(f64::INFINITY) };
}

/// What pods cost in a cell.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Charge {
    /// What the cheapest new node there charges for one, of the heaviest pool that can make one.
    pub(super) new: Cost,
    /// How many have room on nodes that exist, which costs nothing, if no others take it.
    pub(super) free: usize,
}

impl Charge {
    const NONE: Self = Self { new: Cost::NEVER, free: 0 };

    /// What each of so many pods costs on average.
    pub(super) fn mean(self, pods: usize) -> Cost {
        if self.free >= pods {
            return Cost::NOTHING;
        }
        let share = (pods - self.free) as f64 / pods as f64;
        Cost { per_hour: self.new.per_hour * share, ..self.new }
    }
}

/// How many pods of a spread run in each domain; a domain without any counts too.
pub(super) type Counts = BTreeMap<Arc<str>, i64>;

/// Answers about domains, each worked out once.
pub(super) struct Domains<'b, 'a> {
    base: &'b Base<'a>,
    /// Of those who ask for nothing.
    sites: IndexMap<Question, Rc<Sites>, FxBuild>,
    reaches: IndexMap<Question, Rc<Reach>, FxBuild>,
    /// Whether some node takes pods, whatever its labels.
    taken: IndexMap<Question, bool, FxBuild>,
    /// Those of single pods of a class at a step of their wishes, by both.
    reaches_alone: IndexMap<(usize, usize, Question), Rc<Reach>, FxBuild>,
    counts: IndexMap<(Constraint, Spread, Keys), Rc<Counts>, FxBuild>,
    /// Whether all nodes have a label.
    everywhere: IndexMap<Arc<str>, bool, FxBuild>,
    /// Whether all nodes of a domain are counted on which some pods may be.
    counted: IndexMap<Sight, bool, FxBuild>,
    /// What there may be of each pool, by a label.
    demands: IndexMap<Arc<str>, Rc<Vec<Demand>>, FxBuild>,
    offers: Offers,
}

/// The nodes of a pool that could be made for some of the pods.
struct Demand {
    /// Their offerings.
    rows: FixedBitSet,
    /// The domains of a label that they may be in.
    domains: BTreeSet<Arc<str>>,
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

/// What is known of the offerings of the pools, which go by their indices.
#[derive(Default)]
struct Offers {
    /// By labels.
    likenesses: IndexMap<(usize, Keys), Rc<Likeness>, FxBuild>,
    /// The offerings that can be bought now and meet each alternative.
    open: IndexMap<(usize, NodeAlternatives), Rc<Vec<FixedBitSet>>, FxBuild>,
    /// The domains of one label in which a node can be made that meets some alternative.
    creatable: IndexMap<(usize, NodeAlternatives, Vec<Arc<str>>), Values, FxBuild>,
    /// By what is asked for, the share of each variant that it takes, if it fits.
    shares: IndexMap<(usize, Amounts), Rc<Vec<Option<f64>>>, FxBuild>,
}

/// Which offerings agree in all of some labels.
struct Likeness {
    /// A number for each offering, the same for those that agree.
    of_row: Vec<usize>,
    /// How many numbers there are.
    count: usize,
}

/// Some values of a label.
type Values = Rc<[Arc<str>]>;

/// The labels whose values make a cell.
type Keys = Vec<Arc<str>>;

impl<'b, 'a> Domains<'b, 'a> {
    pub(super) fn new(base: &'b Base<'a>) -> Self {
        Self {
            base,
            sites: IndexMap::default(),
            reaches: IndexMap::default(),
            taken: IndexMap::default(),
            reaches_alone: IndexMap::default(),
            counts: IndexMap::default(),
            everywhere: IndexMap::default(),
            counted: IndexMap::default(),
            demands: IndexMap::default(),
            offers: Offers::default(),
        }
    }

    /// The cells of `keys` that pods can reach which together ask for `requests`.
    pub(super) fn reach(&mut self, constraint: &Constraint, requests: &Amounts, keys: &[Arc<str>]) -> Rc<Reach> {
        if let Some(known) = self.reaches.get(&Asked { constraint, requests, keys }) {
            return known.clone();
        }
        let reach = Rc::new(self.found(constraint, requests, keys, |_| usize::MAX));
        self.reaches.insert(Question::new(constraint, requests, keys), reach.clone());
        reach
    }

    /// Whether some node takes pods which together ask for `requests`: one that exists, or one that a pool can make as far as
    /// its limits go, with as many values as its `minValues` ask for among the types that are large enough.
    pub(super) fn takes(&mut self, constraint: &Constraint, requests: &Amounts) -> bool {
        if let Some(&known) = self.taken.get(&Asked { constraint, requests, keys: &[] }) {
            return known;
        }
        let (base, sites) = (self.base, self.sites(constraint, &[]));
        let is_taken = sites.places.iter().any(|&(index, ..)| fits(requests, &base.places[index].room))
            || base.pools.iter().enumerate().any(|(index, pool)| {
                tolerates_all(&constraint.tolerations, pool.taints(), false).is_ok()
                    && self.offers.can_make(index, pool, (&constraint.wanted, requests), base.options.min_values)
            });
        self.taken.insert(Question::new(constraint, requests, &[]), is_taken);
        is_taken
    }

    /// The cells of `keys` that single pods of a class can reach at a step of their wishes. Nodes that exist have room for no
    /// more of them than rules about single nodes allow.
    pub(super) fn reach_alone(
        &mut self,
        (class, level): (usize, usize),
        constraint: &Constraint,
        keys: &[Arc<str>],
    ) -> Rc<Reach> {
        let classes = &self.base.classes;
        let (volumes, class_index) = (classes.volumes(class), class);
        let class = &classes.list[class];
        let manners = Manners::of(classes, &[Member { class: class_index, level, count: 1 }]);
        if manners.are_free() && class.host_ports.is_empty() && volumes.is_empty() {
            return self.reach(constraint, &class.requests, keys);
        }
        let question = (class_index, level, Question::new(constraint, &class.requests, keys));
        if let Some(known) = self.reaches_alone.get(&question) {
            return known.clone();
        }
        let most = |place: &OpenPlace<'_>| {
            let most = place.occupancy.most_of(&class.host_ports, &manners, volumes);
            usize::try_from(most).unwrap_or(0)
        };
        let reach = Rc::new(self.found(constraint, &class.requests, keys, most));
        self.reaches_alone.insert(question, reach.clone());
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
        let mut reach = reach_of(&self.base.pools, 0, &mut self.offers, constraint, requests, keys);
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
    fn sites(&mut self, constraint: &Constraint, keys: &[Arc<str>]) -> Rc<Sites> {
        let requests = Amounts::new();
        if let Some(known) = self.sites.get(&Asked { constraint, requests: &requests, keys }) {
            return known.clone();
        }
        let sites = Rc::new(Sites::find(&self.base.places, constraint, keys));
        self.sites.insert(Question::new(constraint, &requests, keys), sites.clone());
        sites
    }

    /// The cells to which others may draw pods without taking them out of the heaviest pools that they can reach.
    pub(super) fn reach_of_heaviest(
        &mut self,
        constraint: &Constraint,
        requests: &Amounts,
        keys: &[Arc<str>],
    ) -> Rc<Reach> {
        let pools = &self.base.pools;
        let of_weight = pools.chunk_by(|a, b| a.source.weight() == b.source.weight());
        if of_weight.clone().count() == 1 {
            return self.reach(constraint, requests, keys);
        }
        let mut first = 0;
        for alike in of_weight {
            let reach = reach_of(alike, first, &mut self.offers, constraint, requests, keys);
            if !reach.is_empty() {
                return Rc::new(reach);
            }
            first += alike.len();
        }
        Rc::default()
    }

    /// Whether all nodes have a label: those that exist, and those that pools can make.
    pub(super) fn is_everywhere(&mut self, key: &Arc<str>) -> bool {
        let base = self.base;
        let is_on_all = || {
            let is_made = |pool: &Pool<'_>| pool.open_rows.ones().all(|row| !pool.values(row, key, None).is_empty());
            base.snapshot.places().iter().all(|place| place.labels.contains_key(&**key))
                && (**key == *labels::HOSTNAME || base.pools.iter().all(is_made))
        };
        *self.everywhere.entry(key.clone()).or_insert_with(is_on_all)
    }

    /// The domains of a spread with the pods that run there, for pods with this constraint and these spread keys.
    ///
    /// A domain counts if a node of it exists that counts, or if some pool could make one for any of the pods: it may have one by
    /// the time that the kube-scheduler counts.
    pub(super) fn counts(&mut self, constraint: &Constraint, spread: &Spread, keys: &[Arc<str>]) -> Rc<Counts> {
        let question = (constraint.clone(), spread.clone(), keys.to_vec());
        if let Some(known) = self.counts.get(&question) {
            return known.clone();
        }
        let mut counts = running(self.base, constraint, spread, keys);
        if !spread.term.is_by_host() {
            let demands = self.demands(&spread.term.key);
            for domain in creatable(self.base, &mut self.offers, (constraint, spread), keys, &demands) {
                counts.entry(domain).or_default();
            }
        }
        self.counts.entry(question).or_insert(Rc::new(counts)).clone()
    }

    /// Whether a spread of pods counts every node of a domain on which others may be.
    pub(super) fn is_counted_at(&mut self, others: usize, domain: &Arc<str>, own: usize, spread: &Spread) -> bool {
        let (base, offers) = (self.base, &mut self.offers);
        let constraints = &base.classes.constraints;
        let find = || counts_all(base, offers, (&constraints[own], spread), &constraints[others], domain);
        others == own || *self.counted.entry((others, domain.clone(), own, spread.clone())).or_insert_with(find)
    }

    /// What there may be of each pool.
    fn demands(&mut self, key: &Arc<str>) -> Rc<Vec<Demand>> {
        let (base, offers) = (self.base, &mut self.offers);
        let find = || {
            let mut least: IndexMap<Constraint, Amounts, FxBuild> = IndexMap::default();
            for (index, class) in base.classes.list.iter().enumerate() {
                let tolerations = base.classes.constraints[class.constraint].tolerations.clone();
                let constraint = Constraint { wanted: base.classes.node_wanted(index), tolerations };
                let known = least.entry(constraint).or_insert_with(|| class.requests.clone());
                known.iter_mut().zip(&class.requests).for_each(|(known, own)| *known = (*known).min(*own));
            }
            let pools = base.pools.iter().enumerate();
            Rc::new(pools.map(|(index, pool)| Demand::of(index, pool, offers, &least, key)).collect())
        };
        self.demands.entry(key.clone()).or_insert_with(find).clone()
    }
}

impl Demand {
    /// What there may be of a pool for pods that ask for at least so much.
    fn of(
        index: usize,
        pool: &Pool<'_>,
        offers: &mut Offers,
        least: &IndexMap<Constraint, Amounts, FxBuild>,
        key: &Arc<str>,
    ) -> Self {
        let keys = std::slice::from_ref(key);
        let mut out = Self { rows: FixedBitSet::with_capacity(pool.table().rows().len()), domains: BTreeSet::new() };
        for (constraint, requests) in least {
            if tolerates_all(&constraint.tolerations, pool.taints(), false).is_err() {
                continue;
            }
            let (likeness, shares) = (offers.likeness(index, pool, keys), offers.shares(index, pool, requests));
            let is_large_enough = |row: &usize| shares[pool.variant_of_row[*row] as usize].is_some();
            let open = offers.open(index, pool, &constraint.wanted);
            for (wanted, rows) in constraint.wanted.alternatives().iter().zip(open.iter()) {
                out.rows.extend(rows.ones().filter(is_large_enough));
                let found =
                    cells(pool, wanted, rows, keys, &likeness, |row| is_large_enough(&row).then_some(Cost::NOTHING));
                out.domains.extend(found.into_keys().flatten());
            }
        }
        out
    }
}

/// The cells of nodes that pools can make, of which the first has this index.
fn reach_of(
    pools: &[Pool<'_>],
    first: usize,
    offers: &mut Offers,
    constraint: &Constraint,
    requests: &Amounts,
    keys: &[Arc<str>],
) -> Reach {
    let mut out = Reach::new();
    for ((index, pool), heavier) in (first..).zip(pools).zip(heavier_weights(pools)) {
        if tolerates_all(&constraint.tolerations, pool.taints(), false).is_err() {
            continue;
        }
        let likeness = offers.likeness(index, pool, keys);
        let shares = offers.shares(index, pool, requests);
        let cost = |row: usize| {
            let share = shares[pool.variant_of_row[row] as usize]?;
            let per_hour = pool.table().rows()[row].price.dollars_per_hour() * share;
            // A pool that can make no more nodes draws no pods.
            let heavier = if pool.has_limits_left(row) { heavier } else { usize::MAX };
            Some(Cost { heavier, per_hour: OrderedFloat(per_hour) })
        };
        let open = offers.open(index, pool, &constraint.wanted);
        for (wanted, rows) in constraint.wanted.alternatives().iter().zip(open.iter()) {
            for (cell, cost) in cells(pool, wanted, rows, keys, &likeness, cost) {
                let known = &mut out.entry(cell).or_insert(Charge::NONE).new;
                *known = cost.min(*known);
            }
        }
    }
    out
}

impl Offers {
    /// The offerings that can be bought now and meet each alternative.
    fn open(&mut self, index: usize, pool: &Pool<'_>, wanted: &NodeAlternatives) -> Rc<Vec<FixedBitSet>> {
        let open = || {
            let met = pool.alternatives(wanted);
            Rc::new(met.iter().map(|alternative| &alternative.rows & &pool.open_rows).collect())
        };
        self.open.entry((index, wanted.clone())).or_insert_with(open).clone()
    }

    /// The domains of the last of some labels in which a pool can make a node for some of the pods that has all of these labels and
    /// meets one of these, as far as its limits go.
    fn creatable(
        &mut self,
        (index, pool): (usize, &Pool<'_>),
        wanted: &NodeAlternatives,
        keys: &[Arc<str>],
        demand: &Demand,
    ) -> Values {
        let question = (index, wanted.clone(), keys.to_vec());
        if let Some(known) = self.creatable.get(&question) {
            return known.clone();
        }
        let (likeness, open) = (self.likeness(index, pool, keys), self.open(index, pool, wanted));
        let is_open = |row: usize| (demand.rows[row] && pool.has_limits_left(row)).then_some(Cost::NOTHING);
        let of_alternative = |(wanted, rows)| cells(pool, wanted, rows, keys, &likeness, is_open).into_keys();
        let all = wanted.alternatives().iter().zip(open.iter()).flat_map(of_alternative);
        let domains = all.filter_map(|mut cell| cell.pop());
        let found: BTreeSet<Arc<str>> = domains.filter(|domain| demand.domains.contains(domain)).collect();
        self.creatable.entry(question).or_insert(found.into_iter().collect()).clone()
    }

    /// Whether a pool can make a node with so much room that meets some alternative, as far as its limits and `minValues` go.
    fn can_make(
        &mut self,
        index: usize,
        pool: &Pool<'_>,
        (wanted, requests): (&NodeAlternatives, &Amounts),
        policy: MinValuesPolicy,
    ) -> bool {
        let (shares, open) = (self.shares(index, pool, requests), self.open(index, pool, wanted));
        let is_large = |row: &usize| shares[pool.variant_of_row[*row] as usize].is_some() && pool.has_limits_left(*row);
        open.iter().any(|rows| {
            let types = || rows.ones().filter(is_large).map(|row| pool.table().rows()[row].type_index);
            types().next().is_some() && (policy == MinValuesPolicy::BestEffort || pool.has_enough_values(types))
        })
    }

    /// The share that requests take of each variant of a pool, if they fit.
    fn shares(&mut self, index: usize, pool: &Pool<'_>, requests: &Amounts) -> Rc<Vec<Option<f64>>> {
        let share = |room: &Amounts| fits(requests, room).then(|| dominant_share(requests, room));
        let shares = || Rc::new(pool.variants.iter().map(|variant| share(&variant.room)).collect());
        self.shares.entry((index, requests.clone())).or_insert_with(shares).clone()
    }

    /// The numbers that tell offerings of a pool apart by some labels.
    fn likeness(&mut self, index: usize, pool: &Pool<'_>, keys: &[Arc<str>]) -> Rc<Likeness> {
        let number = || {
            // Offerings have the same of all other labels.
            let told: Vec<&[u32]> = keys.iter().filter_map(|key| pool.cells(key)).collect();
            let mut numbers: IndexSet<SmallVec<[u32; 4]>, FxBuild> = IndexSet::default();
            let labels = |row: usize| told.iter().map(|cells| cells[row]).collect();
            let of_row = (0..pool.table().rows().len()).map(|row| numbers.insert_full(labels(row)).0).collect();
            Rc::new(Likeness { of_row, count: numbers.len() })
        };
        self.likenesses.entry((index, keys.to_vec())).or_insert_with(number).clone()
    }
}

/// The cells of some offerings, each with the least that one of them costs; those without a cost are left out.
fn cells(
    pool: &Pool<'_>,
    wanted: &Requirements,
    rows: &FixedBitSet,
    keys: &[Arc<str>],
    likeness: &Likeness,
    cost: impl Fn(usize) -> Option<Cost>,
) -> BTreeMap<Cell, Cost> {
    // Offerings that agree in the labels need be looked at once.
    let mut best: Vec<Option<(Cost, usize)>> = vec![None; likeness.count];
    for row in rows.ones() {
        let Some(cost) = cost(row) else { continue };
        let best = &mut best[likeness.of_row[row]];
        if best.is_none_or(|(least, _)| cost < least) {
            *best = Some((cost, row));
        }
    }
    let mut out = BTreeMap::new();
    for (cost, row) in best.into_iter().flatten() {
        let mut products: Vec<Cell> = vec![Vec::new()];
        for key in keys {
            let values = pool.values(row, key, wanted.get(key));
            let extended = |cell: &Cell| {
                let cell = cell.clone();
                values.iter().map(move |value| cell.iter().chain([value]).cloned().collect())
            };
            products = products.iter().flat_map(|cell| extended(cell).collect::<Vec<Cell>>()).collect();
        }
        for cell in products {
            let least = out.entry(cell).or_insert(cost);
            *least = cost.min(*least);
        }
    }
    out
}

/// How many pods that run count in each domain that exists.
///
/// Of a node that goes only the pods count that something holds there: for the kube-scheduler they stay where they are. For as
/// long as something holds any pod the node is there.
fn running(base: &Base<'_>, constraint: &Constraint, spread: &Spread, keys: &[Arc<str>]) -> Counts {
    let key = &spread.term.key;
    let mut out = Counts::new();
    for (index, place) in base.snapshot.places().iter().enumerate() {
        let is_staying = !place.is_deleting || place.residents.iter().any(|pod| pod.is_reschedulable());
        let is_counted = is_staying
            && keys.iter().all(|key| place.labels.contains_key(&**key))
            && spread.counts_on(constraint, place);
        if let Some(domain) = place.labels.get(&**key).filter(|_| is_counted) {
            let counted = base.classes.standing.counted(&base.classes.selectors, index, &spread.term);
            *out.entry(Arc::from(domain.as_str())).or_default() += counted;
        }
    }
    out
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
