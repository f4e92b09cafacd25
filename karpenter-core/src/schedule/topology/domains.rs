//! Which domains there are, and which of them pods can reach.

use std::{
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
    sync::Arc,
};

use fixedbitset::FixedBitSet;
use indexmap::IndexMap;

use super::Spread;
use crate::{
    FxBuild, NodeAlternatives, Requirement, Requirements,
    api::tolerates_all,
    schedule::{
        amounts::{Amounts, dominant_share, fits},
        class::Constraint,
        pool::Pool,
        problem::Base,
    },
};

/// A value for each of some labels.
pub(super) type Cell = Vec<Arc<str>>;

/// The cells that a pod can reach, with what the cheapest new node there charges for it; infinite if only nodes that
/// exist are there.
pub(super) type Reach = BTreeMap<Cell, f64>;

/// How many pods of a spread run in each domain; a domain without any counts too.
pub(super) type Counts = BTreeMap<Arc<str>, i64>;

/// Answers about domains, each worked out once.
pub(super) struct Domains<'b, 'a> {
    base: &'b Base<'a>,
    reaches: IndexMap<(Constraint, Amounts, Keys), Rc<Reach>, FxBuild>,
    counts: IndexMap<(Constraint, Spread, Keys), Rc<Counts>, FxBuild>,
    likenesses: Likenesses,
}

/// For the pools by index and some labels: a number for each offering, the same for those that agree in all of the labels.
type Likenesses = IndexMap<(usize, Keys), Rc<Vec<usize>>, FxBuild>;

/// The labels whose values make a cell.
type Keys = Vec<Arc<str>>;

impl<'b, 'a> Domains<'b, 'a> {
    pub(super) fn new(base: &'b Base<'a>) -> Self {
        Self { base, reaches: IndexMap::default(), counts: IndexMap::default(), likenesses: IndexMap::default() }
    }

    /// The cells of `keys` that pods can reach which together ask for `requests`.
    pub(super) fn reach(&mut self, constraint: &Constraint, requests: &Amounts, keys: &[Arc<str>]) -> Rc<Reach> {
        let (base, likenesses) = (self.base, &mut self.likenesses);
        let entry = self.reaches.entry((constraint.clone(), requests.clone(), keys.to_vec()));
        entry.or_insert_with(|| Rc::new(reach(base, likenesses, constraint, requests, keys))).clone()
    }

    /// The domains of a spread with the pods that run there, for pods with this constraint and these spread keys.
    ///
    /// A domain counts if a node of it exists, or if some pool could make one: it may have one by the time that the
    /// kube-scheduler counts.
    pub(super) fn counts(&mut self, constraint: &Constraint, spread: &Spread, keys: &[Arc<str>]) -> Rc<Counts> {
        let (base, likenesses) = (self.base, &mut self.likenesses);
        let entry = self.counts.entry((constraint.clone(), spread.clone(), keys.to_vec()));
        entry.or_insert_with(|| Rc::new(counts(base, likenesses, constraint, spread, keys))).clone()
    }
}

fn reach(
    base: &Base<'_>,
    likenesses: &mut Likenesses,
    constraint: &Constraint,
    requests: &Amounts,
    keys: &[Arc<str>],
) -> Reach {
    let mut out = Reach::new();
    for (index, pool) in base.pools.iter().enumerate() {
        if tolerates_all(&constraint.tolerations, pool.taints(), false).is_err() {
            continue;
        }
        let likeness = likeness(likenesses, index, pool, keys);
        let shares: Vec<Option<f64>> = pool
            .variants
            .iter()
            .map(|variant| fits(requests, &variant.room).then(|| dominant_share(requests, &variant.room)))
            .collect();
        let cost = |row: usize| {
            let share = shares[pool.variant_of_row[row] as usize]?;
            Some(pool.table().rows()[row].price.dollars_per_hour() * share)
        };
        for (wanted, rows) in open_rows(pool, &constraint.wanted) {
            for (cell, cost) in cells(pool, wanted, &rows, keys, &likeness, cost) {
                let known = out.entry(cell).or_insert(f64::INFINITY);
                *known = known.min(cost);
            }
        }
    }
    for place in &base.places {
        let source = place.source;
        let takes = fits(requests, &place.room)
            && constraint.wanted.admit_node(&source.name, &source.labels)
            && tolerates_all(&constraint.tolerations, &source.taints, false).is_ok();
        let cell: Option<Cell> = keys.iter().map(|key| Some(Arc::from(source.labels.get(&**key)?.as_str()))).collect();
        if let Some(cell) = cell.filter(|_| takes) {
            out.entry(cell).or_insert(f64::INFINITY);
        }
    }
    out
}

/// The offerings that can be bought now and meet each alternative.
fn open_rows<'w>(pool: &Pool<'_>, wanted: &'w NodeAlternatives) -> Vec<(&'w Requirements, FixedBitSet)> {
    let rows = pool.alternatives(wanted).into_iter().map(|mut alternative| {
        alternative.rows.intersect_with(&pool.open_rows);
        alternative.rows
    });
    wanted.alternatives().iter().zip(rows).collect()
}

/// The numbers that tell offerings of a pool apart by some labels.
fn likeness(likenesses: &mut Likenesses, index: usize, pool: &Pool<'_>, keys: &[Arc<str>]) -> Rc<Vec<usize>> {
    let entry = likenesses.entry((index, keys.to_vec()));
    let number = || {
        let mut numbers: IndexMap<Vec<Option<&Requirement>>, (), FxBuild> = IndexMap::default();
        let labels = |row: usize| keys.iter().map(|key| pool.label(row, key)).collect();
        Rc::new((0..pool.table().rows().len()).map(|row| numbers.insert_full(labels(row), ()).0).collect())
    };
    entry.or_insert_with(number).clone()
}

/// The cells of some offerings, each with the least that one of them costs; those without a cost are left out.
fn cells(
    pool: &Pool<'_>,
    wanted: &Requirements,
    rows: &FixedBitSet,
    keys: &[Arc<str>],
    likeness: &[usize],
    cost: impl Fn(usize) -> Option<f64>,
) -> BTreeMap<Cell, f64> {
    // Offerings that agree in the labels need be looked at once.
    let mut best: IndexMap<usize, (f64, usize), FxBuild> = IndexMap::default();
    for row in rows.ones() {
        let Some(cost) = cost(row) else { continue };
        let least = best.entry(likeness[row]).or_insert((cost, row));
        if cost < least.0 {
            *least = (cost, row);
        }
    }
    let mut out = BTreeMap::new();
    for (_, (cost, row)) in best {
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

fn counts(
    base: &Base<'_>,
    likenesses: &mut Likenesses,
    constraint: &Constraint,
    spread: &Spread,
    keys: &[Arc<str>],
) -> Counts {
    let key = &spread.term.key;
    let mut out = Counts::new();
    for (index, place) in base.snapshot.places().iter().enumerate().filter(|(_, place)| !place.is_deleting) {
        let is_counted = keys.iter().all(|key| place.labels.contains_key(&**key))
            && (!spread.honors_affinity || constraint.wanted.admit_node(&place.name, &place.labels))
            && (!spread.honors_taints || tolerates_all(&constraint.tolerations, &place.taints, false).is_ok());
        if let Some(domain) = place.labels.get(&**key).filter(|_| is_counted) {
            let selected = base.classes.standing.selected(&base.classes.selectors, index, spread.term.selector);
            *out.entry(Arc::from(domain.as_str())).or_default() += selected;
        }
    }
    if !spread.term.is_by_host() {
        for domain in creatable(base, likenesses, constraint, spread) {
            out.entry(domain).or_default();
        }
    }
    out
}

/// The domains in which some pool could make a node that counts.
fn creatable(
    base: &Base<'_>,
    likenesses: &mut Likenesses,
    constraint: &Constraint,
    spread: &Spread,
) -> BTreeSet<Arc<str>> {
    let anything = NodeAlternatives::any();
    let wanted = if spread.honors_affinity { &constraint.wanted } else { &anything };
    let mut out = BTreeSet::new();
    let keys = std::slice::from_ref(&spread.term.key);
    for (index, pool) in base.pools.iter().enumerate() {
        if spread.honors_taints && tolerates_all(&constraint.tolerations, pool.taints(), false).is_err() {
            continue;
        }
        let likeness = likeness(likenesses, index, pool, keys);
        for (wanted, rows) in open_rows(pool, wanted) {
            let is_open = |row: usize| pool.has_limits_left(row).then_some(0.0);
            out.extend(cells(pool, wanted, &rows, keys, &likeness, is_open).into_keys().flatten());
        }
    }
    out
}
