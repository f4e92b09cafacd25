//! How far each instance type of a pool gets on the way to a node for a pod.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use fixedbitset::FixedBitSet;

use super::labels::Asked;
use crate::{
    cluster::HostPort,
    reason::{Obstacle, PoolObstacle, Shortage, TypesShutOut},
    schedule::{
        MinValuesPolicy, ReservationPolicy,
        amounts::fits,
        candidate::Candidate,
        limit::Limit,
        lot::Lot,
        occupancy::Occupancy,
        pool::{Pool, Variant},
        search::Search,
    },
};

/// Where an offering fails; the later ones are nearer to a place.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    /// No alternative of the pod can be met.
    Contradiction,
    /// The number of the label.
    Label(usize),
    Daemons,
    Size,
    HostPort,
    Unavailable,
    ReservationUsedUp,
    Neighbours,
    MinValues,
    /// The index of the limit.
    Limit(usize),
    AwaitsReservation,
    Combination,
}

/// A lot that has no place, held against a pool.
pub(super) struct Survey<'l, 's, 'a> {
    search: &'s Search<'s, 'a>,
    lot: &'s Lot,
    pool: &'s Pool<'a>,
    asked: &'l [Asked<'s>],
    /// Where all offerings of a variant fail for what it has, if they do.
    by_variant: Vec<Option<Step>>,
    /// The rows that meet an alternative.
    met: FixedBitSet,
    /// The indices of the limits, first those that shut out most types.
    limits: Vec<usize>,
    limits_left: &'s [i64],
    too_few_values: Option<&'s Obstacle>,
    /// The reservations that the pods wait for.
    awaited: BTreeSet<usize>,
    is_at_odds: bool,
}

impl<'l, 's, 'a> Survey<'l, 's, 'a> {
    pub(super) fn new(search: &'s Search<'s, 'a>, asked: &'l [Asked<'s>], lot_index: usize, pool_index: usize) -> Self {
        let problem = search.problem;
        let (lot, pool) = (problem.lot(lot_index), &problem.base.pools[pool_index]);
        let mut met = FixedBitSet::with_capacity(pool.table().rows().len());
        let alternatives = problem.meets[pool_index][lot.constraint].as_ref().map_or(&[][..], |(_, all)| all);
        for alternative in alternatives {
            met.union_with(&alternative.rows);
        }
        let limits_left = &search.limits_left[pool_index][..];
        let shut_out = |index: &usize| {
            let too_large = pool.limits[*index].capacity_by_type.iter().filter(|size| **size > limits_left[*index]);
            Reverse(too_large.count())
        };
        let mut limits: Vec<usize> = (0..pool.limits.len()).collect();
        limits.sort_by_key(shut_out);
        Self {
            search,
            lot,
            pool,
            asked,
            by_variant: pool.variants.iter().map(|variant| step_of(lot, variant)).collect(),
            met,
            limits,
            limits_left,
            too_few_values: problem.too_few_values.get(&(pool_index, problem.lot(lot_index).shape)),
            awaited: awaited(search, lot_index, pool),
            is_at_odds: Occupancy::default().conflict(lot).is_some(),
        }
    }

    /// What shuts out how many types.
    pub(super) fn obstacle(&self) -> PoolObstacle {
        let rows = self.pool.table().rows();
        let steps: Vec<(usize, Step)> = self.pool.rows.ones().map(|row| (row, self.step(row))).collect();
        let mut by_step: BTreeMap<Step, (usize, Vec<usize>)> = BTreeMap::new();
        let mut type_count = 0;
        for of_type in steps.chunk_by(|(a, _), (b, _)| rows[*a].type_index == rows[*b].type_index) {
            let furthest = of_type.iter().map(|(_, step)| *step).max().unwrap_or(Step::Contradiction);
            let (types, shut_out) = by_step.entry(furthest).or_default();
            *types += 1;
            type_count += 1;
            shut_out.extend(of_type.iter().filter(|(_, step)| *step == furthest).map(|(row, _)| *row));
        }
        let shut_out = |(step, (type_count, rows)): (Step, (usize, Vec<usize>))| TypesShutOut {
            type_count,
            obstacle: self.at_step(step, &rows),
        };
        let shut_out = by_step.into_iter().rev().map(shut_out).collect();
        PoolObstacle { pool: self.pool.source.name().to_owned(), type_count, shut_out }
    }

    fn step(&self, row: usize) -> Step {
        let pool = self.pool;
        if !self.met.contains(row) {
            let unmet = self.asked.iter().position(|asked| !asked.is_met_by(row));
            return unmet.map_or(Step::Contradiction, Step::Label);
        }
        if let Some(step) = self.by_variant[pool.variant_of_row[row] as usize] {
            return step;
        }
        if !pool.catalog.available().contains(row) {
            return Step::Unavailable;
        }
        self.step_to_buy(row)
    }

    /// Where an offering fails that is large enough.
    fn step_to_buy(&self, row: usize) -> Step {
        let reservation = self.reservation(row);
        if reservation.is_some_and(|index| self.search.reservations_left[index] <= 0) {
            return Step::ReservationUsedUp;
        }
        if self.is_at_odds {
            return Step::Neighbours;
        }
        if self.too_few_values.is_some() {
            return Step::MinValues;
        }
        let type_index = self.pool.table().rows()[row].type_index;
        let is_over =
            |index: &&usize| self.pool.limits[**index].capacity_by_type[type_index] > self.limits_left[**index];
        if let Some(&limit) = self.limits.iter().find(is_over) {
            return Step::Limit(limit);
        }
        let is_awaited = reservation.is_some_and(|index| self.awaited.contains(&index));
        if self.awaited.is_empty() || is_awaited { Step::Combination } else { Step::AwaitsReservation }
    }

    fn reservation(&self, row: usize) -> Option<usize> {
        self.search.problem.base.reservations.of(self.pool.catalog, row)
    }

    /// What the rows that fail at a step fail for.
    fn at_step(&self, step: Step, rows: &[usize]) -> Obstacle {
        match step {
            Step::Label(index) => self.asked[index].obstacle(self.search.problem, self.lot, self.pool, rows),
            Step::Daemons => Obstacle::Daemons,
            Step::Size => self.too_small(rows),
            Step::HostPort => self.taken_port(rows),
            Step::Unavailable => Obstacle::Unavailable,
            Step::ReservationUsedUp => {
                let used_up = rows.iter().filter_map(|row| self.reservation(*row)).collect();
                Obstacle::ReservationUsedUp { reservations: self.names(&used_up) }
            }
            Step::Neighbours => Obstacle::Neighbours,
            Step::MinValues => self.too_few_values.cloned().unwrap_or(Obstacle::Combination),
            Step::Limit(index) => limit(&self.pool.limits[index], self.limits_left[index]),
            Step::AwaitsReservation => Obstacle::AwaitsReservation { reservations: self.names(&self.awaited) },
            Step::Combination => self.lacking_values(rows).unwrap_or(Obstacle::Combination),
            Step::Contradiction => Obstacle::Combination,
        }
    }

    /// The label of which the types that limits and all else let through have too few values: a claim keeps as many.
    fn lacking_values(&self, rows: &[usize]) -> Option<Obstacle> {
        if self.search.problem.base.options.min_values == MinValuesPolicy::BestEffort {
            return None;
        }
        self.pool.varieties.iter().find_map(|variety| {
            let enough = variety.min_values as usize;
            let available = variety.count(rows.iter().map(|row| self.type_of(*row)), enough);
            let obstacle =
                || Obstacle::MinValues { key: variety.key.clone(), min_values: variety.min_values, available };
            (available < enough).then(obstacle)
        })
    }

    fn names(&self, reservations: &BTreeSet<usize>) -> Vec<String> {
        let left = &self.search.problem.base.reservations.left;
        reservations.iter().filter_map(|&index| left.get_index(index)).map(|(name, _)| name.clone()).collect()
    }

    /// What is missing on types of which all these offerings are too small.
    fn too_small(&self, rows: &[usize]) -> Obstacle {
        let axes = &self.search.problem.base.classes.axes;
        let requests = &self.lot.requests;
        // How many types are short of each resource, and the most that one of them has.
        let mut short: BTreeMap<usize, (usize, i64)> = BTreeMap::new();
        let mut nearest: Option<(f64, usize)> = None;
        for of_type in rows.chunk_by(|a, b| self.type_of(*a) == self.type_of(*b)) {
            let worst = |row: &usize| worst_shortage(requests, &self.pool.variant(*row).room);
            let Some(&row) = of_type.iter().min_by(|a, b| worst(a).total_cmp(&worst(b))) else { continue };
            if nearest.is_none_or(|(least, _)| worst(&row) < least) {
                nearest = Some((worst(&row), row));
            }
            let room = &self.pool.variant(row).room;
            for axis in (0..requests.len()).filter(|&axis| requests[axis] > room[axis].max(0)) {
                let (types, most) = short.entry(axis).or_default();
                (*types, *most) = (*types + 1, room[axis].max(*most));
            }
        }
        let shortage = |(axis, (type_count, most)): (usize, (usize, i64))| Shortage {
            resource: axes.names()[axis].clone(),
            type_count,
            requested: axes.quantity(axis, requests[axis]),
            available: axes.quantity(axis, most),
        };
        let mut shortages: Vec<_> = short.into_iter().map(shortage).collect();
        shortages.sort_by_key(|shortage| Reverse(shortage.type_count));
        let name = nearest.map(|(_, row)| self.pool.catalog.types()[self.type_of(row)].name.clone());
        Obstacle::TooSmall { shortages, nearest_type: name.unwrap_or_default() }
    }

    fn type_of(&self, row: usize) -> usize {
        self.pool.table().rows()[row].type_index
    }

    /// A port that daemons take on the first of these offerings.
    fn taken_port(&self, rows: &[usize]) -> Obstacle {
        let taken = rows.first().map_or(&[][..], |row| &self.pool.variant(*row).host_ports);
        let port = self.lot.host_ports.iter().find(|port| taken.iter().any(|t| t.clashes_with(port)));
        port.map_or(Obstacle::Combination, |port| Obstacle::HostPort { port: port.clone() })
    }
}

/// Where a lot fails on a machine for what the machine has.
fn step_of(lot: &Lot, variant: &Variant) -> Option<Step> {
    if variant.is_overdrawn {
        Some(Step::Daemons)
    } else if !fits(&lot.requests, &variant.room) {
        Some(Step::Size)
    } else {
        HostPort::any_clash(&variant.host_ports, &lot.host_ports).then_some(Step::HostPort)
    }
}

/// The largest part of a request that is missing.
fn worst_shortage(requests: &[i64], room: &[i64]) -> f64 {
    let asked = requests.iter().zip(room).filter(|(request, _)| **request > 0);
    asked.map(|(&request, &room)| 1.0 - room as f64 / request as f64).fold(0.0, f64::max)
}

/// The reservations that a lot waits for under the strict policy instead of coming to a pool.
fn awaited(search: &Search<'_, '_>, lot: usize, pool: &Pool<'_>) -> BTreeSet<usize> {
    let problem = search.problem;
    if problem.base.options.reservations != ReservationPolicy::Strict {
        return BTreeSet::new();
    }
    let shape = problem.lot(lot).shape;
    let is_no_lighter = |c: &&Candidate| problem.base.pools[c.pool].source.weight() >= pool.source.weight();
    let takes_lot = |c: &&Candidate| c.guest(shape).is_some() && c.is_within_limits(problem);
    problem.candidates.iter().filter(is_no_lighter).filter(takes_lot).filter_map(|c| c.reservation).collect()
}

fn limit(limit: &Limit, left: i64) -> Obstacle {
    Obstacle::Limit {
        resource: limit.resource.clone(),
        limit: limit.quantity(limit.most),
        used: limit.quantity(limit.most - left),
    }
}
