//! The nodes that could be made: one for each kind of offering that some pod can tell from another.

use std::{cmp::Reverse, collections::BTreeSet};

use fixedbitset::FixedBitSet;
use indexmap::{IndexMap, map::Entry};
use ordered_float::OrderedFloat;

use super::{
    ReservationPolicy,
    amounts::{Amounts, dominant_share, fits},
    lot::Shape,
    problem::{Problem, Tolerance},
    search::Seats,
};
use crate::FxBuild;

/// What a node costs beyond its price, in dollars an hour: each one is watched, patched and drained. It settles ties in
/// favour of fewer nodes, and gives machines that cost nothing a price to compare. A tenth of a cent is a twentieth of
/// what the smallest machines of the large clouds cost.
const NODE_COST: f64 = 1e-3;

/// A node that could be made.
#[derive(Debug)]
pub(super) struct Candidate {
    /// The index of the pool.
    pub(super) pool: usize,
    /// The cheapest of the offerings that it stands for.
    pub(super) row: usize,
    /// The number of the reservation that it draws on.
    pub(super) reservation: Option<usize>,
    /// Dollars an hour.
    pub(super) price: f64,
    /// The shapes that fit, the most valuable for the room that they take first.
    pub(super) guests: Vec<Guest>,
    /// The least of each resource that a unit of any of them asks for.
    pub(super) least: Amounts,
}

/// A shape of which a candidate can take units.
#[derive(Debug)]
pub(super) struct Guest {
    pub(super) shape: usize,
    /// The index of the alternative of its constraint that the candidate meets.
    pub(super) alternative: usize,
    pub(super) tolerance: Tolerance,
    /// The largest share of a resource of the node that one unit takes.
    pub(super) share: f64,
}

impl Guest {
    /// So many units of a lot of the shape.
    pub(super) const fn seats(&self, lot: usize, count: i64) -> Seats {
        Seats { lot, alternative: self.alternative, count }
    }
}

impl Candidate {
    /// All candidates of a problem that are worth looking at.
    pub(super) fn all(problem: &Problem<'_>) -> Vec<Self> {
        let mut all: Vec<Self> = (0..problem.base.pools.len()).flat_map(|pool| of_pool(problem, pool)).collect();
        if problem.base.options.reservations == ReservationPolicy::Strict {
            let reserved = all.iter().filter(|candidate| candidate.reservation.is_some());
            let waiting: BTreeSet<usize> = reserved.flat_map(|c| &c.guests).map(|guest| guest.shape).collect();
            for candidate in all.iter_mut().filter(|candidate| candidate.reservation.is_none()) {
                candidate.guests.retain(|guest| !waiting.contains(&guest.shape));
            }
        }
        all
    }

    /// The guest that is of a shape.
    pub(super) fn guest(&self, shape: usize) -> Option<&Guest> {
        self.guests.iter().find(|guest| guest.shape == shape)
    }

    /// Orders the guests: first those of which a node takes only a few, the more nodes they need the earlier, then by what
    /// they are worth for the room that they take.
    pub(super) fn rank(&mut self, values: &[f64], shapes: &[Shape]) {
        let density = |guest: &Guest| OrderedFloat(values[guest.shape] / guest.share);
        self.guests.sort_by_cached_key(|guest| {
            let needed = shapes[guest.shape].spread_class;
            (Reverse(needed), Reverse(density(guest)), Reverse(OrderedFloat(guest.share)), guest.shape)
        });
    }
}

/// The rows of a pool that can be told apart by room or by pods, each as the cheapest that there is, without those than
/// which another is in no way worse.
fn of_pool(problem: &Problem<'_>, pool_index: usize) -> Vec<Candidate> {
    let pool = &problem.base.pools[pool_index];
    let rows = pool.table().rows();
    let met = met_by_row(problem, pool_index);
    let mut kinds: IndexMap<(u32, &FixedBitSet, Option<usize>), usize, FxBuild> = IndexMap::default();
    let reservation = |row: usize| problem.base.reservations.of(pool.catalog, row);
    for row in pool.open_rows.ones() {
        match kinds.entry((pool.variant_of_row[row], &met[row], reservation(row))) {
            Entry::Vacant(entry) => {
                entry.insert(row);
            }
            Entry::Occupied(mut entry) => {
                if rows[row].price < rows[*entry.get()].price {
                    entry.insert(row);
                }
            }
        }
    }
    let mut kept: Vec<usize> = kinds.into_values().collect();
    kept.sort_by(|&a, &b| rows[a].price.cmp(&rows[b].price).then(a.cmp(&b)));
    // A smaller machine may be all that a limit leaves room for.
    if pool.limits.is_empty() {
        let mut best: Vec<usize> = Vec::new();
        for row in kept {
            let beats = |other: &usize| {
                let (own, larger) = (&pool.variant(row), &pool.variant(*other));
                let has_no_further_ports = larger.host_ports.iter().all(|port| own.host_ports.contains(port));
                let is_larger = own.room.iter().zip(&larger.room).all(|(a, b)| a <= b);
                // Of a reservation there may be too little to stand for others.
                let is_unlimited = reservation(*other).is_none();
                is_unlimited && is_larger && has_no_further_ports && met[row].is_subset(&met[*other])
            };
            if !best.iter().any(beats) {
                best.push(row);
            }
        }
        kept = best;
    }
    kept.into_iter().map(|row| candidate(problem, pool_index, row)).filter(|c| !c.guests.is_empty()).collect()
}

/// For each row the alternatives of constraints that it meets, numbered through all constraints.
fn met_by_row(problem: &Problem<'_>, pool_index: usize) -> Vec<FixedBitSet> {
    let pool = &problem.base.pools[pool_index];
    let meets = &problem.meets[pool_index];
    let count = meets.iter().flatten().map(|(_, alternatives)| alternatives.len()).sum();
    let mut met = vec![FixedBitSet::with_capacity(count); pool.table().rows().len()];
    for (number, alternative) in meets.iter().flatten().flat_map(|(_, alternatives)| alternatives).enumerate() {
        alternative.rows.intersection(&pool.open_rows).for_each(|row| met[row].insert(number));
    }
    met
}

fn candidate(problem: &Problem<'_>, pool_index: usize, row: usize) -> Candidate {
    let pool = &problem.base.pools[pool_index];
    let room = &pool.variant(row).room;
    let guest = |(index, shape): (usize, &Shape)| {
        let (tolerance, alternatives) = problem.meets[pool_index][shape.constraint].as_ref()?;
        let met =
            |is_open_ended| alternatives.iter().position(|a| a.is_open_ended == is_open_ended && a.rows.contains(row));
        let alternative = met(false).or_else(|| met(true))?;
        let share = dominant_share(&shape.requests, room);
        let goes =
            shape.bears(*tolerance) && fits(&shape.requests, room) && pool.has_free_ports(row, &shape.host_ports);
        goes.then_some(Guest { shape: index, alternative, tolerance: *tolerance, share })
    };
    let guests: Vec<Guest> = problem.lots.shapes.iter().enumerate().filter_map(guest).collect();
    let mut least: Amounts = room.iter().map(|_| i64::MAX).collect();
    for guest in &guests {
        least
            .iter_mut()
            .zip(&problem.lots.shapes[guest.shape].requests)
            .for_each(|(least, &request)| *least = request.min(*least));
    }
    let price = pool.table().rows()[row].price.dollars_per_hour() + NODE_COST;
    let reservation = problem.base.reservations.of(pool.catalog, row);
    Candidate { pool: pool_index, row, reservation, price, guests, least }
}
