//! The ways to ask for a node of an offering: what it may take of the limits of its pool, and on which reservations it may draw.

use std::collections::BTreeSet;

use smallvec::{SmallVec, smallvec};

use super::pool::Pool;
use crate::labels;

/// How a claim asks for a node of an offering.
#[derive(Clone, Debug)]
pub(super) struct Way {
    /// What the node takes of each limit of its pool at most, whichever type of its claim it becomes.
    pub(super) ceiling: Box<[i64]>,
    /// The offerings of reservations that it may be bought by, if it is to be one of these.
    pub(super) reserved_rows: SmallVec<[usize; 1]>,
}

/// All ways that are worth trying, those that take least first.
pub(super) fn ways(pool: &Pool<'_>, row: usize) -> Vec<Way> {
    let draws: Vec<SmallVec<[usize; 1]>> = if pool.table().rows()[row].is_reserved {
        [smallvec![row]].into_iter().chain(with_others(pool, row)).collect()
    } else {
        vec![SmallVec::new()]
    };
    let of_ceiling = |ceiling: Box<[i64]>| {
        let way = move |reserved_rows| Way { ceiling: ceiling.clone(), reserved_rows };
        draws.iter().cloned().map(way)
    };
    ceilings(pool, row).into_iter().flat_map(of_ceiling).collect()
}

/// As much as its type takes, so that limits leave room for most nodes. Where several limits hold, a type of other proportions is
/// above one of them, and `minValues` may need it: so nodes may be up to twice as large in each respect, too, or four times, and
/// so on.
fn ceilings(pool: &Pool<'_>, row: usize) -> Vec<Box<[i64]>> {
    let sizes = |type_index: usize| pool.limits.iter().map(move |limit| limit.capacity_by_type[type_index]);
    let own: Box<[i64]> = sizes(type_of(pool, row)).collect();
    if pool.limits.len() < 2 || !pool.has_min_values() {
        return vec![own];
    }
    let open = pool.open_rows.ones().filter(|&row| pool.has_limits_left(row));
    let types: BTreeSet<usize> = open.map(|row| type_of(pool, row)).collect();
    let mut out = vec![own];
    for factor in (0..i64::BITS - 1).map(|power| 1_i64 << power) {
        let is_within = |&&type_index: &&usize| {
            sizes(type_index).zip(&out[0]).all(|(size, &own)| size <= own.max(1).saturating_mul(factor))
        };
        let within: Vec<usize> = types.iter().filter(is_within).copied().collect();
        let mut ceiling = out[0].clone();
        for &type_index in &within {
            ceiling.iter_mut().zip(sizes(type_index)).for_each(|(most, size)| *most = size.max(*most));
        }
        if out.last() != Some(&ceiling) {
            out.push(ceiling);
        }
        if within.len() == types.len() {
            break;
        }
    }
    out
}

/// The offering of a reservation and a few others that bring the values that `minValues` asks for: those of its zone first, and of
/// these the next dearer ones, so that all reservations are drawn on. None if it needs no others, if there are too few, or if it
/// is not the cheapest of them.
fn with_others(pool: &Pool<'_>, row: usize) -> Option<SmallVec<[usize; 1]>> {
    let table = pool.table();
    let key = |row: usize| (table.rows()[row].price, row);
    let is_elsewhere = |other: usize| table.cell(other, labels::ZONE) != table.cell(row, labels::ZONE);
    let is_cheaper = |other: usize| key(other) < key(row);
    let mut rows: Vec<usize> = pool.reserved_rows.iter().copied().filter(|&row| pool.open_rows.contains(row)).collect();
    rows.sort_by_key(|&other| (other != row, is_elsewhere(other), is_cheaper(other), key(other)));
    let types = || rows.iter().map(|&row| type_of(pool, row));
    let mut kept = BTreeSet::from([row]);
    for variety in &pool.varieties {
        let needed = variety.first_with_each(types());
        if variety.count(needed.iter().copied(), variety.min_values as usize) < variety.min_values as usize {
            return None;
        }
        let first_of = |type_index| rows.iter().copied().find(|&row| type_of(pool, row) == type_index);
        kept.extend(needed.into_iter().filter_map(first_of));
    }
    (kept.len() > 1 && !kept.iter().any(|&other| is_cheaper(other))).then(|| kept.into_iter().collect())
}

fn type_of(pool: &Pool<'_>, row: usize) -> usize {
    pool.table().rows()[row].type_index
}
