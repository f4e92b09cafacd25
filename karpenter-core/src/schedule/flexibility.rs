//! How many instance types a spot claim leaves to choose from.
//!
//! Spot capacity of one type runs dry, and the cloud takes what it has most of. The more pods a node takes, the fewer types
//! are large enough for it: a fill ends before too few are left.

use std::{borrow::Cow, cmp::Reverse, sync::Arc};

use fixedbitset::FixedBitSet;
use indexmap::IndexMap;
use ordered_float::OrderedFloat;
use smallvec::SmallVec;

use super::{
    amounts::{Amounts, fit_count, raise, take},
    candidate::Candidate,
    pool::{Pool, Variant},
    problem::{Aim, Base, Course, Problem, SpotTypes},
};
use crate::{FxBuild, labels};

/// For each pool the offerings that the spot market has now, as rows, the roomiest first; none if any number will do.
pub(super) fn spot_rows(base: &Base<'_>, course: &Course) -> Vec<Arc<[usize]>> {
    // Where limits leave pods without a node, a node for them is worth more than a choice of nodes.
    let is_free =
        base.options.spot_types_to_keep() <= 1 || course.aim == Aim::Pods || course.spot_types == SpotTypes::Any;
    // Reservations, which may be used up, are no spot capacity.
    let spot = |pool: &Pool<'_>| pool.open_rows.ones().filter(|&row| is_spot(pool, row)).collect();
    let of_pool = |pool: &Pool<'_>| pool.spot_rows.take((), || by_room(pool, spot(pool)).into());
    base.pools.iter().map(|pool| if is_free { Arc::default() } else { of_pool(pool) }).collect()
}

/// Offerings of a pool, as rows, the roomiest first.
pub(super) fn by_room(pool: &Pool<'_>, mut rows: Vec<usize>) -> Vec<usize> {
    let Some(&first) = rows.first() else { return rows };
    let mut largest: Amounts = pool.variant(first).room.iter().map(|_| 1).collect();
    for &row in &rows {
        raise(&mut largest, &pool.variant(row).room);
    }
    let size = |row: usize| {
        let shares = pool.variant(row).room.iter().zip(&largest).map(|(&room, &largest)| room as f64 / largest as f64);
        OrderedFloat(shares.sum::<f64>())
    };
    rows.sort_by_cached_key(|&row| (Reverse(size(row)), row));
    rows
}

/// Whether what a row offers is spot capacity and nothing else.
fn is_spot(pool: &Pool<'_>, row: usize) -> bool {
    let capacity_type = pool.table().cell(row, labels::CAPACITY_TYPE);
    capacity_type.is_some_and(|state| state.value_count() == Some(1) && state.admits(Some(labels::SPOT)))
}

impl Candidate {
    pub(super) fn is_spot(&self, problem: &Problem<'_>) -> bool {
        is_spot(&problem.base.pools[self.pool], self.row)
    }
}

/// The spot types of which the claim for a node in the making leaves the choice.
#[derive(Clone)]
pub(super) struct SpotChoice<'p, 'a> {
    problem: &'p Problem<'a>,
    pool: usize,
    /// The rows that may be large enough, the roomiest first; none if any number of types will do.
    rows: Cow<'p, [usize]>,
    asked: SmallVec<[Asked; 4]>,
    /// The rows that meet all that was asked; `None` while nothing was.
    met: Option<FixedBitSet>,
    /// How many types must be left.
    least: usize,
    /// The same if those units come of which was asked last.
    next_least: usize,
}

/// What pods ask of a node: their constraint, by index, and the alternative of it that counts. Without one any counts.
pub(super) type Asked = (usize, Option<usize>);

impl<'p, 'a> SpotChoice<'p, 'a> {
    /// That of an empty node of a candidate.
    pub(super) fn of_candidate(problem: &'p Problem<'a>, candidate: &Candidate) -> Self {
        let mut out = Self::of_pool(problem, candidate.pool);
        if !out.rows.is_empty() && !candidate.is_spot(problem) {
            out.rows = Cow::Borrowed(&[]);
        }
        out
    }

    /// That of an empty spot node of a pool.
    pub(super) fn of_pool(problem: &'p Problem<'a>, pool: usize) -> Self {
        let least = problem.base.options.spot_types_to_keep();
        let rows = Cow::Borrowed(&*problem.spot_rows[pool]);
        Self { problem, pool, rows, asked: SmallVec::new(), met: None, least, next_least: least }
    }

    /// How many units, up to `count`, may join pods that use so much of a node: as many as leave enough types. Half as many
    /// as the first unit leaves are always enough.
    pub(super) fn most(&mut self, used: &[i64], requests: &[i64], asked: Asked, count: i64) -> i64 {
        if self.rows.is_empty() {
            return count;
        }
        let with = |count: i64| {
            let mut total = Amounts::from_slice(used);
            take(&mut total, requests, -count);
            total
        };
        self.next_least = self.least;
        if self.asked.is_empty() {
            let left = self.type_count(&with(1), asked, self.least.saturating_mul(2));
            self.next_least = left.div_ceil(2).clamp(1, self.least);
        }
        if self.type_count(&with(count), asked, self.next_least) >= self.next_least {
            return count;
        }
        let counts = self.counts(used, requests, asked);
        counts.get(self.next_least - 1).map_or(0, |&most| most.min(count))
    }

    /// The units come of which was asked last.
    pub(super) fn add(&mut self, asked: Asked) {
        self.least = self.next_least;
        if self.rows.is_empty() || self.asked.contains(&asked) {
            return;
        }
        self.asked.push(asked);
        let (constraint, alternative) = asked;
        let all = self.problem.alternatives(self.pool, constraint);
        let rows = match alternative {
            Some(index) => Cow::Borrowed(&all[index].rows),
            None => Cow::Owned(all.iter().flat_map(|alternative| alternative.rows.ones()).collect()),
        };
        match &mut self.met {
            Some(met) => met.intersect_with(&rows),
            None => self.met = Some(rows.into_owned()),
        }
    }

    /// How many types hold so much, counted no further than to `most`.
    fn type_count(&self, total: &[i64], asked: Asked, most: usize) -> usize {
        let pool = &self.problem.base.pools[self.pool];
        let mut types: SmallVec<[usize; 16]> = SmallVec::new();
        for row in self.rows_for(asked) {
            let node = pool.variant(row);
            if holds(node, total) && !types.contains(&node.type_index) {
                types.push(node.type_index);
                if types.len() >= most {
                    break;
                }
            }
        }
        types.len()
    }

    /// How many units each type takes beside what is used already, of those that take any, the most first.
    fn counts(&mut self, used: &[i64], requests: &[i64], asked: Asked) -> Vec<i64> {
        let pool = &self.problem.base.pools[self.pool];
        if self.rows.iter().any(|&row| !holds(pool.variant(row), used)) {
            self.rows.to_mut().retain(|&row| holds(pool.variant(row), used));
        }
        let of_row = |row: usize| {
            let mut room = pool.variant(row).room.clone();
            take(&mut room, used, 1);
            (pool.variant(row).type_index, Reverse(fit_count(requests, &room)))
        };
        let mut by_type: Vec<_> = self.rows_for(asked).map(of_row).collect();
        by_type.sort_unstable();
        by_type.dedup_by_key(|(type_index, _)| *type_index);
        let mut counts: Vec<i64> = by_type.into_iter().map(|(_, Reverse(count))| count).filter(|&n| n > 0).collect();
        counts.sort_unstable_by_key(|&count| Reverse(count));
        counts
    }

    /// Takes from what is left of a node what no unit may use any more, because too few types have it beside what is used.
    /// Without it every fill would go on to the last pod.
    pub(super) fn tighten(&self, used: &[i64], left: &mut [i64]) {
        if self.rows.is_empty() || self.asked.is_empty() {
            return;
        }
        let pool = &self.problem.base.pools[self.pool];
        let mut by_type: IndexMap<usize, Amounts, FxBuild> = IndexMap::default();
        for row in self.rows_so_far() {
            let room = &pool.variant(row).room;
            let most = by_type.entry(pool.variant(row).type_index).or_insert_with(|| room.clone());
            raise(most, room);
        }
        for (axis, left) in left.iter_mut().enumerate() {
            let mut rooms: Vec<i64> = by_type.values().map(|room| room[axis]).collect();
            rooms.sort_unstable_by_key(|&room| Reverse(room));
            let most = rooms.get(self.least - 1).map_or(0, |room| room - used[axis]);
            *left = most.min(*left);
        }
    }

    /// The rows by which a claim may be launched with the pods that are there and with some that ask this.
    fn rows_for(&self, (constraint, alternative): Asked) -> impl Iterator<Item = usize> {
        let all = self.problem.alternatives(self.pool, constraint);
        let meant = match alternative {
            Some(index) => &all[index..=index],
            None => all,
        };
        let is_met = |&row: &usize| meant.iter().any(|alternative| alternative.rows.contains(row));
        self.rows_so_far().filter(is_met)
    }

    /// The rows by which a claim may be launched with the pods that are there.
    fn rows_so_far(&self) -> impl Iterator<Item = usize> {
        self.rows.iter().copied().filter(|&row| self.met.as_ref().is_none_or(|met| met.contains(row)))
    }
}

fn holds(node: &Variant, total: &[i64]) -> bool {
    node.room.iter().zip(total).all(|(room, total)| total <= room)
}
