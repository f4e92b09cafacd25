//! What pools have on sale, by the domains that their nodes may be in.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use fixedbitset::FixedBitSet;
use indexmap::{IndexMap, IndexSet};
use ordered_float::OrderedFloat;
use smallvec::SmallVec;

use crate::{
    FxBuild, NodeAlternatives, Requirement, Requirements,
    api::tolerates_all,
    schedule::{
        MinValuesPolicy,
        amounts::{Amounts, dominant_share, fits},
        class::Constraint,
        pool::{Pool, heavier_weights},
    },
};

/// The labels whose values make a cell.
pub(super) type Keys = Vec<Arc<str>>;

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

/// What pods cost in a cell.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Charge {
    /// What the cheapest new node there charges for one, of the heaviest pool that can make one.
    pub(super) new: Cost,
    /// How many have room on nodes that exist, which costs nothing, if no others take it.
    pub(super) free: usize,
}

/// What is known of the offerings of the pools, which go by their indices.
#[derive(Default)]
pub(super) struct Offers {
    /// By labels.
    likenesses: IndexMap<(usize, Keys), Arc<Likeness>, FxBuild>,
    /// The offerings that can be bought now and meet each alternative.
    open: IndexMap<(usize, NodeAlternatives), Arc<Vec<FixedBitSet>>, FxBuild>,
    /// The domains of one label in which a node can be made that meets some alternative.
    creatable: IndexMap<(usize, NodeAlternatives, Vec<Arc<str>>), Values, FxBuild>,
    /// By what is asked for, the share of each variant that it takes, if it fits.
    shares: IndexMap<(usize, Amounts), Arc<Vec<Option<f64>>>, FxBuild>,
}

/// Which offerings agree in all of some labels.
struct Likeness {
    /// A number for each offering, the same for those that agree.
    of_row: Vec<usize>,
    /// How many numbers there are.
    count: usize,
}

/// Some values of a label.
type Values = Arc<[Arc<str>]>;

/// The nodes of a pool that could be made for some of the pods.
pub(super) struct Demand {
    /// Their offerings.
    rows: FixedBitSet,
    /// The domains of a label that they may be in.
    domains: BTreeSet<Arc<str>>,
}

impl Offers {
    /// The offerings that can be bought now and meet each alternative.
    pub(super) fn open(&mut self, index: usize, pool: &Pool<'_>, wanted: &NodeAlternatives) -> Arc<Vec<FixedBitSet>> {
        let open = || {
            let met = pool.alternatives(wanted);
            Arc::new(met.iter().map(|alternative| &alternative.rows & &pool.open_rows).collect())
        };
        self.open.entry((index, wanted.clone())).or_insert_with(open).clone()
    }

    /// The domains of the last of some labels in which a pool can make a node for some of the pods that has all of these labels and
    /// meets one of these, as far as its limits go.
    pub(super) fn creatable(
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
        let of_alternative =
            |(wanted, rows)| cells(Pool::domains, pool, wanted, rows, keys, &likeness, is_open).into_keys();
        let all = wanted.alternatives().iter().zip(open.iter()).flat_map(of_alternative);
        let domains = all.filter_map(|mut cell| cell.pop());
        let found: BTreeSet<Arc<str>> = domains.filter(|domain| demand.domains.contains(domain)).collect();
        self.creatable.entry(question).or_insert(found.into_iter().collect()).clone()
    }

    /// Whether a pool can make a node with so much room that meets some alternative, as far as its limits and `minValues` go.
    pub(super) fn can_make(
        &mut self,
        index: usize,
        pool: &Pool<'_>,
        (wanted, requests): (&NodeAlternatives, &Amounts),
        policy: MinValuesPolicy,
    ) -> bool {
        let (shares, open) = (self.shares(index, pool, requests), self.open(index, pool, wanted));
        let is_large = |row: usize| shares[pool.variant_of_row[row] as usize].is_some() && pool.has_limits_left(row);
        open.iter().any(|rows| {
            let is_meant =
                |type_index: usize| pool.table().rows_of(type_index).any(|row| rows.contains(row) && is_large(row));
            let has_enough = || policy == MinValuesPolicy::BestEffort || pool.lack(is_meant).is_none();
            rows.ones().any(is_large) && has_enough()
        })
    }

    /// The share that requests take of each variant of a pool, if they fit.
    fn shares(&mut self, index: usize, pool: &Pool<'_>, requests: &Amounts) -> Arc<Vec<Option<f64>>> {
        let share = |room: &Amounts| fits(requests, room).then(|| dominant_share(requests, room));
        let shares = || Arc::new(pool.variants.iter().map(|variant| share(&variant.room)).collect());
        self.shares.entry((index, requests.clone())).or_insert_with(shares).clone()
    }

    /// The numbers that tell offerings of a pool apart by some labels.
    fn likeness(&mut self, index: usize, pool: &Pool<'_>, keys: &[Arc<str>]) -> Arc<Likeness> {
        let number = || {
            // Offerings have the same of all other labels.
            let told: Vec<&[u32]> = keys.iter().filter_map(|key| pool.cells(key)).collect();
            let mut numbers: IndexSet<SmallVec<[u32; 4]>, FxBuild> = IndexSet::default();
            let labels = |row: usize| told.iter().map(|cells| cells[row]).collect();
            let of_row = (0..pool.table().rows().len()).map(|row| numbers.insert_full(labels(row)).0).collect();
            Arc::new(Likeness { of_row, count: numbers.len() })
        };
        self.likenesses.entry((index, keys.to_vec())).or_insert_with(number).clone()
    }
}

/// The cells of nodes that pools can make, of which the first has this index.
pub(super) fn reach_of(
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
            for (cell, cost) in cells(Pool::values, pool, wanted, rows, keys, &likeness, cost) {
                let known = &mut out.entry(cell).or_insert(Charge::NONE).new;
                *known = cost.min(*known);
            }
        }
    }
    out
}

impl Demand {
    /// What there may be of a pool for pods that ask for at least so much.
    pub(super) fn of(
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
                let large: FixedBitSet = rows.ones().filter(is_large_enough).collect();
                let found = cells(Pool::domains, pool, wanted, &large, keys, &likeness, |_| Some(Cost::NOTHING));
                out.domains.extend(found.into_keys().flatten());
                out.rows.union_with(&large);
            }
        }
        out
    }
}

impl Cost {
    pub(super) const NOTHING: Self = Self { heavier: 0, per_hour: OrderedFloat(0.0) };
    /// That of a new node where there can be none.
    const NEVER: Self = Self { heavier: usize::MAX, per_hour: OrderedFloat(f64::INFINITY) };
}

impl Charge {
    pub(super) const NONE: Self = Self { new: Cost::NEVER, free: 0 };

    /// What each of so many pods costs on average.
    pub(super) fn mean(self, pods: usize) -> Cost {
        if self.free >= pods {
            return Cost::NOTHING;
        }
        let share = (pods - self.free) as f64 / pods as f64;
        Cost { per_hour: self.new.per_hour * share, ..self.new }
    }
}

/// The cells of some offerings by the `values` of labels, each with the least that one of them costs; those without a cost are left out.
fn cells<'a>(
    values: impl Fn(&Pool<'a>, usize, &str, Option<&Requirement>) -> Vec<Arc<str>>,
    pool: &Pool<'a>,
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
            let values = values(pool, row, key, wanted.get(key));
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
