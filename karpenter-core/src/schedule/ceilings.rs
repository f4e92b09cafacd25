//! How much a node of an offering may take of the limits of its pool.

use std::collections::BTreeSet;

use super::pool::Pool;

/// What a node may take of each limit of its pool at most, whichever type of its claim it becomes: all that are worth trying, those
/// that take least first.
///
/// As much as its type takes, so that limits leave room for most nodes. Where several limits hold, a type of other proportions is
/// above one of them, and `minValues` may need it: so nodes may be up to twice as large in each respect, too, or four times, and
/// so on.
pub(super) fn ceilings(pool: &Pool<'_>, row: usize) -> Vec<Box<[i64]>> {
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

fn type_of(pool: &Pool<'_>, row: usize) -> usize {
    pool.table().rows()[row].type_index
}
