//! Which labels of a pool's nodes are not as a pod wants them.

use std::collections::BTreeSet;

use fixedbitset::FixedBitSet;

use crate::{
    NodeAlternatives, Requirement, Requirements,
    reason::{Asker, Obstacle},
    schedule::{lot::Lot, pool::Pool, problem::Problem},
};

/// A label that a pod asks for, and the offerings of a pool that have it so.
pub(super) struct Asked<'p> {
    key: &'p str,
    wanted: &'p Requirement,
    rows: FixedBitSet,
}

impl<'p> Asked<'p> {
    /// What a lot asks of a pool by the alternative that most offerings meet; what most of them lack comes first.
    pub(super) fn all(problem: &'p Problem<'_>, lot: &Lot, pool_index: usize) -> Vec<Self> {
        let pool = &problem.base.pools[pool_index];
        let met = problem.meets[pool_index][lot.constraint].as_ref().map_or(&[][..], |(_, all)| all);
        let count = |index: usize| met.get(index).map_or(0, |alternative| alternative.rows.count_ones(..));
        let alternatives = problem.lots.constraints[lot.constraint].wanted.alternatives().iter().enumerate();
        // Of equals the first.
        let Some((_, wanted)) = alternatives.rev().max_by_key(|&(index, _)| count(index)) else { return Vec::new() };
        let asked = |(key, wanted)| Self { key, wanted, rows: rows_with(pool, key, wanted) };
        let mut all: Vec<Self> = wanted.iter().map(asked).collect();
        all.sort_by_key(|asked| asked.rows.count_ones(..));
        all
    }

    /// On whose account the pods of a lot ask for the label.
    pub(super) fn asker(&self, problem: &Problem<'_>, lot: &Lot) -> Asker {
        asker(problem, lot, self.key, self.wanted)
    }

    pub(super) fn is_met_by(&self, row: usize) -> bool {
        self.rows.contains(row)
    }

    /// What is wrong with the label on nodes bought for a lot by these rows.
    pub(super) fn obstacle(&self, problem: &Problem<'_>, lot: &Lot, pool: &Pool<'_>, rows: &[usize]) -> Obstacle {
        let key = self.key;
        let offered = if pool.table().is_well_known(key) && !pool.is_fixed(key) {
            pool.table().states(&rows.iter().copied().collect(), key).into_iter().cloned().collect()
        } else {
            pool.offered(key)
        };
        let is_unknown = !can_have(pool, key);
        let is_resource = is_unknown && problem.base.pools.iter().any(|p| has_resource(p, key));
        let similar_key = if is_unknown && !is_resource { similar_key(pool, key) } else { None };
        let types: BTreeSet<usize> = rows.iter().map(|&row| pool.table().rows()[row].type_index).collect();
        let mut alone = types.into_iter().flat_map(|index| pool.table().rows_of(index));
        let is_had_alone = alone.any(|row| pool.rows.contains(row) && self.rows.contains(row));
        let (wanted, asker) = (self.wanted.clone(), self.asker(problem, lot));
        Obstacle::Label { key: key.to_owned(), wanted, asker, offered, is_had_alone, similar_key, is_resource }
    }
}

/// On whose account the pods of a lot ask for a label.
pub(super) fn asker(problem: &Problem<'_>, lot: &Lot, key: &str, wanted: &Requirement) -> Asker {
    let classes = &problem.base.classes;
    let asks = |all: &NodeAlternatives| all.alternatives().iter().any(|one| one.get(key) == Some(wanted));
    let is_of_rule = |class: &usize| {
        let rules = classes.neighbourhood(*class).hard();
        let terms = rules.spreads.iter().map(|spread| &spread.term).chain(&rules.near);
        terms.into_iter().any(|term| *term.key == *key)
    };
    let of_lot = || lot.classes.iter();
    match () {
        () if of_lot().any(|&class| asks(classes.own_wanted(class))) => Asker::Pod,
        () if of_lot().any(|&class| asks(&classes.node_wanted(class))) => Asker::Volumes,
        () if of_lot().any(is_of_rule) => Asker::Neighbours,
        () => Asker::Pod,
    }
}

/// The rows of a pool that meet one requirement.
fn rows_with(pool: &Pool<'_>, key: &str, wanted: &Requirement) -> FixedBitSet {
    let mut alone = Requirements::new();
    alone.add(key, wanted.clone());
    pool.alternatives(&NodeAlternatives::any().narrowed(&alone)).last().map(|met| met.rows.clone()).unwrap_or_default()
}

/// Whether some instance type of the pool's catalog has a resource of this name.
fn has_resource(pool: &Pool<'_>, name: &str) -> bool {
    pool.catalog.types().iter().any(|t| t.capacity.get(name).is_some_and(|quantity| !quantity.is_zero()))
}

/// Whether some node of the pool can have the label. The catalog may name it for offerings that the pool does not take.
fn can_have(pool: &Pool<'_>, key: &str) -> bool {
    pool.offered(key).iter().any(|state| *state != Requirement::ABSENT)
}

/// The first label of nodes of the pool that has the same last part, or that contains `key` or is contained in it.
fn similar_key(pool: &Pool<'_>, key: &str) -> Option<String> {
    let known: BTreeSet<&str> = pool.known_keys().collect();
    let last_part = |key: &str| key.rsplit('/').next().unwrap_or(key).to_lowercase();
    let has_same_end = |k: &str| last_part(k) == last_part(key);
    let overlaps = |k: &str| k.contains(last_part(key).as_str()) || key.contains(last_part(k).as_str());
    let first = |is_similar: &dyn Fn(&str) -> bool| known.iter().find(|k| is_similar(k) && can_have(pool, k));
    first(&has_same_end).or_else(|| first(&overlaps)).map(|k| (*k).to_owned())
}
