//! The kinds of nodes that pods could be on: those that pools could make, machines of reservations, and existing places.

use std::collections::{BTreeMap, BTreeSet};

use fixedbitset::FixedBitSet;
use indexmap::IndexMap;

use super::{
    program::{Group, fitting},
    weights::Heavier,
    whole,
};
use crate::{
    FxBuild,
    api::Taint,
    requirements::node_value,
    schedule::{
        amounts::{Amounts, raise},
        class::Constraint,
        pool::Pool,
        problem::{Base, Meeting, OpenPlace, meet},
    },
};

/// A kind of node.
pub(super) struct Kind {
    pub(super) origin: Origin,
    /// What it leaves to pods beside daemons; for several places, all of them together.
    pub(super) room: Amounts,
    /// For each request whether a pod that asks for it fits.
    pub(super) fits: Vec<bool>,
    /// For each constraint what a node costs that takes such pods, in billionths of a dollar an hour; infinite if none
    /// does.
    pub(super) prices: Vec<f64>,
    /// How many there are; `None` if that has no end.
    pub(super) capacity: Option<f64>,
    /// The kind that is in no way worse for any pod, if there is one.
    pub(super) beaten_by: Option<usize>,
}

impl Kind {
    /// All that tells one constraint from another.
    pub(super) fn column(&self, constraint: usize) -> impl Iterator<Item = u64> {
        let rows = self.origin.reserved_rows().iter().map(move |row| u64::from(row.admits[constraint]));
        [self.prices[constraint].to_bits()].into_iter().chain(rows)
    }

    /// Keeps only some constraints, and numbers them anew.
    pub(super) fn keep_constraints(&mut self, kept: &(impl Iterator<Item = usize> + Clone)) {
        self.prices = kept.clone().map(|constraint| self.prices[constraint]).collect();
        if let Origin::Reservation { rows, .. } = &mut self.origin {
            for row in rows {
                row.admits = kept.clone().map(|constraint| row.admits[constraint]).collect();
            }
        }
    }

    /// What a node costs at least, in billionths of a dollar an hour.
    pub(super) fn least_price(&self) -> f64 {
        self.prices.iter().copied().fold(f64::INFINITY, f64::min)
    }

    /// Whether every pod that another kind takes may be here too, and pays no more for any resource, if both have the
    /// same shares.
    pub(super) fn beats(&self, other: &Self) -> bool {
        // What the room of this kind makes up for, and what it costs.
        let mut gain = f64::INFINITY;
        for (&own, &theirs) in self.room.iter().zip(&other.room).filter(|(_, theirs)| **theirs > 0) {
            gain = gain.min(own as f64 / theirs as f64);
        }
        let is_dearer = |(own, theirs): (&f64, &f64)| theirs.is_finite() && *own > theirs * gain * (1.0 + 1e-12);
        if self.prices.iter().zip(&other.prices).any(is_dearer) {
            return false;
        }
        other.fits.iter().zip(&self.fits).all(|(theirs, own)| *own || !theirs) && self.is_no_dearer(other)
    }

    /// The same of prices for room, in whole numbers.
    fn is_no_dearer(&self, other: &Self) -> bool {
        let rooms = || self.room.iter().zip(&other.room).filter(|(_, theirs)| **theirs > 0);
        self.prices.iter().zip(&other.prices).filter(|(_, theirs)| theirs.is_finite()).all(|(&price, &theirs)| {
            let (price, theirs) = (i128::from(whole(price)), i128::from(whole(theirs)));
            rooms().all(|(&room, &their_room)| price * i128::from(their_room) <= theirs * i128::from(room))
        })
    }
}

/// Where nodes of a kind come from.
pub(super) enum Origin {
    /// A pool makes them of a type with a set of daemons.
    Pool { pool: usize, variant: usize },
    /// A reservation holds them: its number, and its offerings.
    Reservation { reservation: usize, rows: Vec<ReservedRow> },
    /// They exist: the indices of the places.
    Places(Vec<usize>),
}

impl Origin {
    fn reserved_rows(&self) -> &[ReservedRow] {
        if let Self::Reservation { rows, .. } = self { rows } else { &[] }
    }
}

/// An offering that draws on a reservation, as nodes of one pool.
pub(super) struct ReservedRow {
    pub(super) room: Amounts,
    pub(super) price: i64,
    /// Whether pods of each constraint may be there.
    pub(super) admits: Vec<bool>,
}

/// Where nodes for pods of some constraints may come from.
pub(super) struct Supply<'b, 'a> {
    base: &'b Base<'a>,
    constraint_count: usize,
    /// The pools that the rule of weights does not keep closed, with how each constraint meets them, if they offer anything
    /// to its pods.
    pools: Vec<(usize, Vec<Option<Meeting>>)>,
    /// For each place which of `admissions` is its own.
    places: Vec<usize>,
    /// Whether pods of each constraint may be on places that are alike.
    admissions: Vec<Vec<bool>>,
}

impl<'b, 'a> Supply<'b, 'a> {
    pub(super) fn new(base: &'b Base<'a>, constraints: &[Constraint], requests: &[Amounts], groups: &[Group]) -> Self {
        let mut heavier = Heavier::default();
        let mut pools = Vec::new();
        for (index, pool) in base.pools.iter().enumerate() {
            // Pods to which a pool offers nothing have no part in its reservations.
            let offers = |(_, alternatives): &Meeting| alternatives.iter().any(|a| !a.rows.is_clear());
            let meetings: Vec<Option<Meeting>> = constraints.iter().map(|c| meet(pool, c).filter(offers)).collect();
            if !heavier.closes(pool, &meetings, requests, groups) {
                pools.push((index, meetings));
            }
        }
        let (places, admissions) = admissions(base, constraints);
        Self { base, constraint_count: constraints.len(), pools, places, admissions }
    }

    /// The numbers of the constraints, those together that some kind of node has in common.
    pub(super) fn parts(&self) -> Vec<Vec<usize>> {
        let mut parts = Parts::new(self.constraint_count);
        let mut of_reservations: BTreeMap<usize, usize> = BTreeMap::new();
        for (index, meetings) in &self.pools {
            let pool = &self.base.pools[*index];
            let met = (0..meetings.len()).filter(|&constraint| meetings[constraint].is_some());
            let Some(first) = parts.unite(met) else { continue };
            for &row in &pool.reserved_rows {
                if let Some(reservation) = self.base.reservations.of(pool.catalog, row) {
                    let other = *of_reservations.entry(reservation).or_insert(first);
                    parts.unite([first, other].into_iter());
                }
            }
        }
        for admits in &self.admissions {
            parts.unite(admits.iter().enumerate().filter(|(_, admits)| **admits).map(|(constraint, _)| constraint));
        }
        parts.finish()
    }

    /// All kinds of nodes for pods of these constraints that ask for these.
    pub(super) fn kinds(&self, constraints: &[usize], requests: &[Amounts]) -> Vec<Kind> {
        let mut reserved: BTreeMap<usize, Vec<ReservedRow>> = BTreeMap::new();
        let mut out: Vec<Kind> = Vec::new();
        for (index, all) in &self.pools {
            let pool = &self.base.pools[*index];
            let meetings: Vec<Option<&Meeting>> =
                constraints.iter().map(|&constraint| all[constraint].as_ref()).collect();
            if meetings.iter().all(Option::is_none) {
                continue;
            }
            let rows = Rows::new(self.base, pool);
            for (reservation, row) in rows.reserved {
                let admits = meetings.iter().map(|meeting| admits(*meeting, row)).collect();
                let (room, price) = (pool.variant(row).most_room.clone(), price(pool, row));
                reserved.entry(reservation).or_default().push(ReservedRow { room, price, admits });
            }
            out.extend(of_pool(*index, pool, &rows.plain, &meetings, requests));
        }
        let of_reservations =
            reserved.into_iter().map(|(reservation, rows)| of_reservation(self.base, reservation, rows, requests));
        out.extend(of_reservations);
        out.extend(self.of_places(constraints, requests));
        out
    }

    /// The existing places: those that take the same pods are one kind.
    fn of_places(&self, constraints: &[usize], requests: &[Amounts]) -> Vec<Kind> {
        let own = |all: &Vec<bool>| -> Vec<bool> { constraints.iter().map(|&constraint| all[constraint]).collect() };
        let admissions: Vec<Vec<bool>> = self.admissions.iter().map(own).collect();
        let mut kinds: IndexMap<(&[bool], Vec<bool>), Vec<usize>, FxBuild> = IndexMap::default();
        for (place, &admission) in self.places.iter().enumerate() {
            let admits = &*admissions[admission];
            if admits.contains(&true) {
                let fits = fitting(requests, &room_of(self.base, place));
                kinds.entry((admits, fits)).or_default().push(place);
            }
        }
        let kind = |((admits, fits), places): ((&[bool], Vec<bool>), Vec<usize>)| {
            let mut room = self.base.classes.axes.zero();
            for &place in &places {
                let of_place = room_of(self.base, place);
                room.iter_mut().zip(of_place).for_each(|(sum, amount)| *sum = sum.saturating_add(amount.max(0)));
            }
            let prices = admits.iter().map(|&admits| if admits { 0.0 } else { f64::INFINITY }).collect();
            Kind { origin: Origin::Places(places), room, fits, prices, capacity: Some(1.0), beaten_by: None }
        };
        kinds.into_iter().map(kind).filter(|kind| kind.fits.contains(&true)).collect()
    }
}

/// Numbers that belong together, in parts that become fewer.
struct Parts(Vec<usize>);

impl Parts {
    /// Each number by itself.
    fn new(count: usize) -> Self {
        Self((0..count).collect())
    }

    /// Makes one part of all that these are in. Gives back one of these.
    fn unite(&mut self, mut numbers: impl Iterator<Item = usize>) -> Option<usize> {
        let first = numbers.next()?;
        for number in numbers {
            let (kept, gone) = (self.0[first], self.0[number]);
            if kept != gone {
                self.0.iter_mut().filter(|part| **part == gone).for_each(|part| *part = kept);
            }
        }
        Some(first)
    }

    fn finish(self) -> Vec<Vec<usize>> {
        let mut out: IndexMap<usize, Vec<usize>, FxBuild> = IndexMap::default();
        for (number, part) in self.0.into_iter().enumerate() {
            out.entry(part).or_default().push(number);
        }
        out.into_values().collect()
    }
}

/// The offerings by which a pool could make nodes now.
struct Rows {
    /// Those that draw on no reservation that has a name.
    plain: FixedBitSet,
    /// The others, with the number of the reservation.
    reserved: Vec<(usize, usize)>,
}

impl Rows {
    fn new(base: &Base<'_>, pool: &Pool<'_>) -> Self {
        let mut plain = pool.rows.clone();
        plain.intersect_with(pool.catalog.available());
        let mut reserved = Vec::new();
        for row in plain.ones().collect::<Vec<_>>() {
            let is_overdrawn = pool.variant(row).most_room.iter().any(|&amount| amount < 0);
            let reservation = base.reservations.of(pool.catalog, row);
            let is_used_up = reservation.is_some_and(|r| base.reservations.said[r].capacity <= 0);
            let shared = reservation.filter(|&r| base.reservations.said[r].has_name);
            plain.set(row, !is_overdrawn && !is_used_up && shared.is_none());
            reserved.extend(shared.filter(|_| !is_overdrawn && !is_used_up).map(|r| (r, row)));
        }
        Self { plain, reserved }
    }
}

/// Whether pods that meet a pool so may be on nodes bought by `row`.
fn admits(meeting: Option<&Meeting>, row: usize) -> bool {
    meeting.is_some_and(|(_, alternatives)| alternatives.iter().any(|alternative| alternative.rows.contains(row)))
}

fn price(pool: &Pool<'_>, row: usize) -> i64 {
    pool.table().rows()[row].price.nano_dollars_per_hour()
}

/// One kind for each variant, at the price of the cheapest offering that will do.
fn of_pool(
    index: usize,
    pool: &Pool<'_>,
    rows: &FixedBitSet,
    meetings: &[Option<&Meeting>],
    requests: &[Amounts],
) -> Vec<Kind> {
    let mut prices = vec![vec![f64::INFINITY; meetings.len()]; pool.variants.len()];
    for (constraint, meeting) in meetings.iter().enumerate() {
        for alternative in meeting.iter().flat_map(|(_, alternatives)| alternatives.iter()) {
            for row in alternative.rows.intersection(rows) {
                let least = &mut prices[pool.variant_of_row[row] as usize][constraint];
                *least = least.min(price(pool, row) as f64);
            }
        }
    }
    let kind = |(variant, prices): (usize, Vec<f64>)| {
        let room = pool.variants[variant].most_room.clone();
        let origin = Origin::Pool { pool: index, variant };
        let fits = fitting(requests, &room);
        Kind { origin, room, fits, prices, capacity: None, beaten_by: None }
    };
    let is_of_use = |(_, prices): &(usize, Vec<f64>)| prices.iter().any(|price| price.is_finite());
    prices.into_iter().enumerate().filter(is_of_use).map(kind).collect()
}

/// The machines of a reservation, as the best of its offerings.
fn of_reservation(base: &Base<'_>, reservation: usize, rows: Vec<ReservedRow>, requests: &[Amounts]) -> Kind {
    let mut room = base.classes.axes.zero();
    let mut fits = vec![false; requests.len()];
    let mut prices = vec![f64::INFINITY; rows.first().map_or(0, |row| row.admits.len())];
    for row in &rows {
        raise(&mut room, &row.room);
        fits.iter_mut().zip(fitting(requests, &row.room)).for_each(|(fits, here)| *fits |= here);
        for (least, _) in prices.iter_mut().zip(&row.admits).filter(|(_, admits)| **admits) {
            *least = least.min(row.price as f64);
        }
    }
    let capacity = Some(base.reservations.said[reservation].capacity as f64);
    Kind { origin: Origin::Reservation { reservation, rows }, room, fits, prices, capacity, beaten_by: None }
}

/// What a node has for each key that pods name.
type Labels<'n> = Vec<Option<&'n str>>;

/// For each place the number of its kind, and for each kind whether pods of each constraint may be there.
fn admissions(base: &Base<'_>, constraints: &[Constraint]) -> (Vec<usize>, Vec<Vec<bool>>) {
    let alternatives = constraints.iter().flat_map(|constraint| constraint.wanted.alternatives());
    let keys: BTreeSet<&str> = alternatives.flat_map(|all| all.iter().map(|(key, _)| key)).collect();
    let mut known: IndexMap<(Labels<'_>, &[Taint]), Vec<bool>, FxBuild> = IndexMap::default();
    let mut places = Vec::with_capacity(base.places.len());
    for OpenPlace { source, .. } in &base.places {
        let labels = keys.iter().map(|&key| node_value(key, &source.name, &source.labels));
        let entry = known.entry((labels.collect(), &source.taints));
        places.push(entry.index());
        entry.or_insert_with(|| constraints.iter().map(|c| c.tolerance_of(source).is_some()).collect());
    }
    (places, known.into_values().collect())
}

/// What a place leaves to new pods, rounded up.
pub(super) fn room_of(base: &Base<'_>, place: usize) -> Amounts {
    base.classes.axes.requests(&base.places[place].source.free)
}
