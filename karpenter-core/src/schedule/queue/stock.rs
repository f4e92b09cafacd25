//! What limits and reservations leave to nodes in the making.

use std::collections::BTreeSet;

use ordered_float::OrderedFloat;

use crate::schedule::{first_fit::LimitUse, limit::Limit, problem::Base};

/// What all drafts leave.
pub(super) struct Stock {
    limit_use: LimitUse,
    /// Of the limits of each pool.
    limits_left: Vec<Vec<i64>>,
    /// Of each reservation.
    reservations_left: Vec<i64>,
}

/// What one draft takes.
#[derive(Clone, Default)]
pub(super) struct Share {
    /// Of each limit of its pool; of none before it has a pod.
    limits: Vec<i64>,
    /// The reservations that it may draw on, each of which has one machine less for others.
    reservations: BTreeSet<usize>,
}

impl Stock {
    pub(super) fn new(base: &Base<'_>, limit_use: LimitUse) -> Self {
        Self {
            limit_use,
            limits_left: base.pools.iter().map(|pool| pool.limits.iter().map(Limit::left).collect()).collect(),
            reservations_left: base.reservations.left.values().copied().collect(),
        }
    }

    /// Whether a draft of a pool that takes a share may become the machine of an offering.
    pub(super) fn has(&self, base: &Base<'_>, (pool, row): (usize, usize), share: &Share) -> bool {
        let mut limits = capacity(base, pool, row).zip(&self.limits_left[pool]).enumerate();
        let is_left =
            |reservation| share.reservations.contains(&reservation) || self.reservations_left[reservation] > 0;
        limits.all(|(limit, (most, left))| most <= left + share.limit(limit))
            && reservation(base, pool, row).is_none_or(is_left)
    }

    /// Gives a draft of a pool, which may become the machines of these offerings, what it takes instead of what it took before.
    pub(super) fn draw(&mut self, base: &Base<'_>, (pool, rows): (usize, &[usize]), share: &mut Share) {
        let limits = match self.limit_use {
            LimitUse::Largest if !share.limits.is_empty() => share.limits.clone(),
            LimitUse::Largest => {
                let largest = |limit| rows.iter().filter_map(|&row| capacity(base, pool, row).nth(limit)).max();
                (0..base.pools[pool].limits.len()).map(|limit| largest(limit).unwrap_or(0)).collect()
            }
            LimitUse::AsMade => {
                let cheapest = rows.iter().min_by_key(|&&row| OrderedFloat(base.node_cost(pool, row)));
                cheapest.map(|&row| capacity(base, pool, row).collect()).unwrap_or_default()
            }
        };
        let reservations: BTreeSet<usize> = rows.iter().filter_map(|&row| reservation(base, pool, row)).collect();
        let before = std::mem::replace(share, Share { limits, reservations });
        for (limit, left) in self.limits_left[pool].iter_mut().enumerate() {
            *left += before.limit(limit) - share.limit(limit);
        }
        for given_back in before.reservations {
            self.reservations_left[given_back] += 1;
        }
        for &taken in &share.reservations {
            self.reservations_left[taken] -= 1;
        }
    }
}

impl Share {
    /// What it takes of a limit.
    fn limit(&self, limit: usize) -> i64 {
        self.limits.get(limit).copied().unwrap_or(0)
    }

    /// Whether none of these offerings of a pool is of a reservation, though some could be drawn on so far.
    pub(super) fn loses_reservations(
        &self,
        base: &Base<'_>,
        pool: usize,
        mut rows: impl Iterator<Item = usize>,
    ) -> bool {
        !self.reservations.is_empty() && rows.all(|row| reservation(base, pool, row).is_none())
    }
}

/// What a machine of an offering has of each limited resource.
fn capacity<'b>(base: &'b Base<'_>, pool: usize, row: usize) -> impl Iterator<Item = i64> + use<'b> {
    let pool = &base.pools[pool];
    let of_type = pool.table().rows()[row].type_index;
    pool.limits.iter().map(move |limit| limit.capacity_by_type[of_type])
}

fn reservation(base: &Base<'_>, pool: usize, row: usize) -> Option<usize> {
    base.reservations.of(base.pools[pool].catalog, row)
}
