//! The nodes that could be made: one for each kind of offering that some pod can tell from another.

use std::{collections::BTreeMap, sync::Arc};

use fixedbitset::FixedBitSet;
use indexmap::{IndexMap, map::Entry};
use ordered_float::OrderedFloat;

use super::{
    ReservationPolicy,
    amounts::{Amounts, dominant_share, fits},
    ceilings::ceilings,
    eligible::too_few_values,
    lot::{Lots, Shape},
    pool::{AlternativeRows, Pool, Selection, Variant},
    problem::{Meeting, Problem, Tolerance},
    search::Seats,
};
use crate::{FxBuild, cluster::HostPort};

/// A node that could be made.
#[derive(Debug)]
pub(super) struct Candidate {
    /// The index of the pool.
    pub(super) pool: usize,
    /// The cheapest of the offerings that it stands for.
    pub(super) row: usize,
    /// What a node takes of each limit of its pool at most, whichever type of its claim it becomes.
    pub(super) ceiling: Box<[i64]>,
    /// The number of the reservation that it draws on.
    pub(super) reservation: Option<usize>,
    /// What a node costs the search, in dollars an hour.
    pub(super) price: f64,
    /// The shapes that fit, the most valuable for the room that they take first.
    pub(super) guests: Vec<Guest>,
    /// The place of each shape in the order of the guests, once they are ranked; before, shapes are in order.
    places: Option<Arc<[u32]>>,
    /// The least of each resource that a unit of any of them asks for.
    pub(super) least: Amounts,
}

/// A shape of which a candidate can take units.
///
/// Large catalogs have some hundred thousand of these, which every search goes through again and again.
#[derive(Clone, Copy, Debug)]
pub(super) struct Guest {
    shape: u32,
    alternative: u32,
    pub(super) tolerance: Tolerance,
    /// The largest share of a resource of the node that one unit takes.
    pub(super) share: f64,
}

impl Guest {
    /// A guest of the shape with this index, and how the candidate meets its constraint.
    fn new(index: usize, (tolerance, alternative): (Tolerance, usize), share: f64) -> Self {
        Self { shape: narrow(index), alternative: narrow(alternative), tolerance, share }
    }

    pub(super) const fn shape(&self) -> usize {
        self.shape as usize
    }

    /// The index of the alternative of its constraint that the candidate meets.
    pub(super) const fn alternative(&self) -> usize {
        self.alternative as usize
    }

    /// So many units of a lot of the shape.
    pub(super) const fn seats(&self, lot: usize, count: i64) -> Seats {
        Seats { lot, alternative: self.alternative(), count }
    }
}

fn narrow(index: usize) -> u32 {
    u32::try_from(index).expect("a cluster has fewer pods and terms")
}

impl Candidate {
    /// All candidates of a problem that are worth looking at.
    pub(super) fn all(problem: &Problem<'_>) -> Vec<Self> {
        let mut all: Vec<Self> = (0..problem.base.pools.len()).flat_map(|pool| of_pool(problem, pool)).collect();
        if problem.base.options.reservations == ReservationPolicy::Strict {
            keep_waiting(problem, &mut all);
        }
        all
    }

    /// Whether it draws on a reservation.
    pub(super) fn is_reserved(&self) -> bool {
        self.reservation.is_some()
    }

    /// Whether a node takes no more than this of the limits of its pool.
    pub(super) fn is_within(&self, left: &[i64]) -> bool {
        self.ceiling.iter().zip(left).all(|(most, left)| most <= left)
    }

    /// Whether the limits of its pool, as they are before planning, leave room for it.
    pub(super) fn is_within_limits(&self, problem: &Problem<'_>) -> bool {
        self.ceiling.iter().zip(&problem.base.pools[self.pool].limits).all(|(&most, limit)| most <= limit.left())
    }

    /// The guest that is of a shape.
    pub(super) fn guest(&self, shape: usize) -> Option<&Guest> {
        let place = |shape: usize| self.places.as_ref().map_or(narrow(shape), |places| places[shape]);
        let index = self.guests.binary_search_by_key(&place(shape), |guest| place(guest.shape())).ok()?;
        // Shapes that nodes of this size cannot take have no place of their own.
        Some(&self.guests[index]).filter(|guest| guest.shape() == shape)
    }

    /// Orders the guests of all candidates: first those that only reservations take, then those of which a node takes only a few,
    /// the more nodes they need the earlier, then by what they are worth for the room that they take; of equals first those that
    /// others are to be near to.
    pub(super) fn rank_all(
        candidates: &mut [Self],
        pools: &[Pool<'_>],
        (values, has_other): (&[f64], &[bool]),
        lots: &Lots,
    ) {
        let shapes = &lots.shapes;
        let key = |candidate: &Self| (candidate.pool, pools[candidate.pool].variant_of_row[candidate.row]);
        // Nodes that leave the same room may differ in whom they take, but not in the order.
        let mut taken: IndexMap<(usize, u32), Vec<Option<f64>>, FxBuild> = IndexMap::default();
        for candidate in &*candidates {
            let taken = taken.entry(key(candidate)).or_insert_with(|| vec![None; shapes.len()]);
            candidate.guests.iter().for_each(|guest| taken[guest.shape()] = Some(guest.share));
        }
        let is_awaited = |of_shape: &Vec<usize>| of_shape.iter().any(|&lot| lots.list[lot].is_awaited);
        let awaited = lots.of_shapes.iter().map(is_awaited);
        let urgency: Vec<(bool, bool)> =
            has_other.iter().zip(awaited).map(|(&other, awaited)| (other, !awaited)).collect();
        let places: Vec<Arc<[u32]>> = taken.values().map(|taken| places(taken, values, shapes, &urgency)).collect();
        let mut ordered: Vec<Option<Guest>> = vec![None; shapes.len()];
        for candidate in candidates {
            let places = &places[taken.get_index_of(&key(candidate)).expect("each has been looked at")];
            for guest in candidate.guests.drain(..) {
                ordered[places[guest.shape()] as usize] = Some(guest);
            }
            candidate.guests.extend(ordered.iter_mut().filter_map(Option::take));
            candidate.places = Some(places.clone());
        }
    }
}

/// Takes those that wait for a reservation out of all candidates by which they would not come to it: other pools of no greater
/// weight, and what is not reserved. A reservation that cannot be had even by a single unit is not waited for.
fn keep_waiting(problem: &Problem<'_>, all: &mut [Candidate]) {
    let weight = |candidate: &Candidate| problem.base.pools[candidate.pool].source.weight();
    let mut waiting: BTreeMap<usize, u32> = BTreeMap::new();
    for candidate in all.iter_mut().filter(|candidate| candidate.is_reserved()) {
        let of_shape = |guest: &Guest| guest.seats(problem.lots.of_shapes[guest.shape()][0], 1);
        let mut guests = std::mem::take(&mut candidate.guests);
        guests.retain(|guest| too_few_values(problem, candidate, &[of_shape(guest)]).is_none());
        candidate.guests = guests;
        for guest in candidate.guests.iter().filter(|_| candidate.is_within_limits(problem)) {
            let heaviest = waiting.entry(guest.shape()).or_default();
            *heaviest = weight(candidate).max(*heaviest);
        }
    }
    for candidate in all {
        let (own, is_reserved) = (weight(candidate), candidate.is_reserved());
        let comes_to_it = |heaviest: &u32| own > *heaviest || own == *heaviest && is_reserved;
        candidate.guests.retain(|guest| waiting.get(&guest.shape()).is_none_or(comes_to_it));
    }
}

/// The place of each shape in the order of guests, by the share of a node that it takes; of no meaning if it takes none. Of each
/// shape it is known whether it has other nodes than reserved ones, and whether nobody is to be near to it.
fn places(taken: &[Option<f64>], values: &[f64], shapes: &[Shape], urgency: &[(bool, bool)]) -> Arc<[u32]> {
    // What comes first is one number, because there are very many nodes: what tells shapes apart in its uppermost bits.
    let rank = |(shape, share): (usize, &Option<f64>)| {
        let share = (*share)?;
        let (has_other, is_not_awaited) = urgency[shape];
        let (needed, density) = (!shapes[shape].spread_class, !sort_bits(values[shape] / share));
        let first = u128::from(has_other) << 97 | u128::from(needed) << 65;
        let first = first | u128::from(density) << 1 | u128::from(is_not_awaited);
        Some((first, !sort_bits(share), shape))
    };
    let mut ranks: Vec<(u128, u64, usize)> = taken.iter().enumerate().filter_map(rank).collect();
    ranks.sort_unstable();
    let mut places = vec![0; shapes.len()];
    for (place, (.., shape)) in ranks.into_iter().enumerate() {
        places[shape] = narrow(place);
    }
    places.into()
}

/// An integer that orders floats as they are, and what is not a number after all of them: it is quicker to compare.
fn sort_bits(float: f64) -> u64 {
    // Both zeros are one.
    let bits = (float + 0.0).to_bits();
    match () {
        () if float.is_nan() => u64::MAX,
        () if float < 0.0 => !bits,
        () => bits | 1 << 63,
    }
}

/// The candidates of a pool.
fn of_pool(problem: &Problem<'_>, pool_index: usize) -> Vec<Candidate> {
    let pool = &problem.base.pools[pool_index];
    let mut shares: Vec<Option<Vec<Option<f64>>>> = vec![None; pool.variants.len()];
    let candidates = |&row: &usize| {
        let of_variant = || shares_of(problem, pool.variant(row));
        let shares = shares[pool.variant_of_row[row] as usize].get_or_insert_with(of_variant);
        let of_ceiling = |ceiling| candidate(problem, pool_index, (row, ceiling), shares);
        ceilings(pool, row).into_iter().map(of_ceiling).collect::<Vec<_>>()
    };
    selected(problem, pool_index).iter().flat_map(candidates).filter(|c| !c.guests.is_empty()).collect()
}

/// The rows of a pool that can be told apart by room or by pods, each as the cheapest that there is, without those than
/// which another is in no way worse.
fn selected(problem: &Problem<'_>, pool_index: usize) -> Arc<[usize]> {
    let pool = &problem.base.pools[pool_index];
    if !problem.base.reservations.left.is_empty() {
        // What is left of reservations is another each time.
        return select(problem, pool_index);
    }
    let meets = problem.meets[pool_index].iter().flatten();
    let open = |alternative: &AlternativeRows| &alternative.rows & &pool.open_rows;
    let mut met: Vec<FixedBitSet> = meets.flat_map(|(_, alternatives)| alternatives.iter().map(open)).collect();
    met.sort_unstable();
    met.dedup();
    let interruption_cost = problem.base.options.interruption_cost.to_bits();
    let key = Selection { met, interruption_cost, is_limited: !pool.limits.is_empty() };
    pool.selections.take(key, || select(problem, pool_index))
}

fn select(problem: &Problem<'_>, pool_index: usize) -> Arc<[usize]> {
    let pool = &problem.base.pools[pool_index];
    let price = |row: usize| OrderedFloat(problem.base.expected_price(pool_index, row));
    let met = met_by_row(problem, pool_index);
    let mut kinds: IndexMap<(u32, &FixedBitSet, Option<usize>), usize, FxBuild> = IndexMap::default();
    let reservation = |row: usize| problem.base.reservations.of(pool.catalog, row);
    for row in pool.open_rows.ones() {
        match kinds.entry((pool.variant_of_row[row], &met[row], reservation(row))) {
            Entry::Vacant(entry) => {
                entry.insert(row);
            }
            Entry::Occupied(mut entry) => {
                if price(row) < price(*entry.get()) {
                    entry.insert(row);
                }
            }
        }
    }
    let mut kept: Vec<usize> = kinds.into_values().collect();
    kept.sort_by_key(|&row| (price(row), row));
    // A smaller machine may be all that a limit leaves room for.
    if pool.limits.is_empty() {
        let mut unlimited: Vec<(usize, &Variant)> = Vec::new();
        kept.retain(|&row| {
            let own = pool.variant(row);
            let beats = |(other, larger): &(usize, &Variant)| {
                let has_no_further_ports = || larger.host_ports.iter().all(|port| own.host_ports.contains(port));
                let is_larger = own.room.iter().zip(&larger.room).all(|(a, b)| a <= b);
                is_larger && has_no_further_ports() && met[row].is_subset(&met[*other])
            };
            let is_kept = !unlimited.iter().any(beats);
            // Of a reservation there may be too little to stand for others.
            if is_kept && reservation(row).is_none() {
                unlimited.push((row, own));
            }
            is_kept
        });
    }
    kept.into()
}

/// For each shape the largest share of a resource that a unit takes of a node; `None` if it does not fit.
fn shares_of(problem: &Problem<'_>, variant: &Variant) -> Vec<Option<f64>> {
    let (room, taken) = (&variant.room, &variant.host_ports);
    let goes = |shape: &Shape| fits(&shape.requests, room) && !HostPort::any_clash(&shape.host_ports, taken);
    let share = |shape: &Shape| goes(shape).then(|| dominant_share(&shape.requests, room));
    problem.lots.shapes.iter().map(share).collect()
}

/// For each row the alternatives of constraints that it meets, numbered through all constraints.
fn met_by_row(problem: &Problem<'_>, pool_index: usize) -> Vec<FixedBitSet> {
    let pool = &problem.base.pools[pool_index];
    let meets = &problem.meets[pool_index];
    let count = meets.iter().flatten().map(|(_, alternatives)| alternatives.len()).sum();
    let mut met = vec![FixedBitSet::with_capacity(count); pool.table().rows().len()];
    for (number, alternative) in meets.iter().flatten().flat_map(|(_, alternatives)| alternatives.iter()).enumerate() {
        alternative.rows.intersection(&pool.open_rows).for_each(|row| met[row].insert(number));
    }
    met
}

fn candidate(
    problem: &Problem<'_>,
    pool_index: usize,
    (row, ceiling): (usize, Box<[i64]>),
    shares: &[Option<f64>],
) -> Candidate {
    let pool = &problem.base.pools[pool_index];
    // How willingly pods with each constraint go there, and by which alternative.
    let met = |meeting: &Option<Meeting>| {
        let (tolerance, alternatives) = meeting.as_ref()?;
        let met =
            |is_open_ended| alternatives.iter().position(|a| a.is_open_ended == is_open_ended && a.rows.contains(row));
        Some((*tolerance, met(false).or_else(|| met(true))?))
    };
    let met: Vec<Option<(Tolerance, usize)>> = problem.meets[pool_index].iter().map(met).collect();
    let guest = |(index, (shape, share)): (usize, (&Shape, &Option<f64>))| {
        let (share, met) = ((*share)?, met[shape.constraint]?);
        shape.bears(met.0).then(|| Guest::new(index, met, share))
    };
    let mut guests: Vec<Guest> = Vec::with_capacity(shares.len());
    guests.extend(problem.lots.shapes.iter().zip(shares).enumerate().filter_map(guest));
    guests.shrink_to_fit();
    let mut least: Amounts = pool.variant(row).room.iter().map(|_| i64::MAX).collect();
    for guest in &guests {
        least
            .iter_mut()
            .zip(&problem.lots.shapes[guest.shape()].requests)
            .for_each(|(least, &request)| *least = request.min(*least));
    }
    let price = problem.base.node_cost(pool_index, row);
    let reservation = problem.base.reservations.of(pool.catalog, row);
    Candidate { pool: pool_index, row, ceiling, reservation, price, guests, places: None, least }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Catalogs, InstanceType, Planner, Price, Quantity, Snapshot,
        api::{NodePool, Pod},
        labels,
    };

    #[test]
    fn guests_are_found_by_their_shapes() {
        let price = |dollars| Price::per_hour(dollars).expect("not below zero");
        let machine = |name: &str, cpus: i64, memory: i64| {
            let capacity = [("cpu", cpus), ("memory", memory), ("pods", 110)];
            InstanceType::named(name, capacity.map(|(name, units)| (name, Quantity::from_units(units))))
        };
        let small = machine("small", 2, 64).offering("spot", "a", price(0.1)).offering("on-demand", "b", price(0.2));
        let large = machine("large", 8, 16).offering("spot", "a", price(0.3)).offering("on-demand", "b", price(0.5));
        let sizes = [("1", 1), ("1", 32), ("1500m", 8), ("3", 2), ("500m", 16), ("7", 12)];
        let mut builder = Snapshot::builder().pool(NodePool::named("general"));
        for (number, (cpu, memory)) in sizes.into_iter().enumerate() {
            let pod = Pod::named(format!("pod-{number}")).cpu(cpu).memory(&memory.to_string());
            builder = builder.pods(if number % 2 == 0 { pod.node_selector(labels::ZONE, "a") } else { pod });
        }
        let snapshot = builder.build().expect("valid");
        let catalogs = Catalogs::shared(vec![small, large], snapshot.pools()).expect("valid");
        let planner = Planner::default();
        let problem = planner.prepare(&snapshot, &catalogs);
        let (all, count) = (&problem.candidates, problem.lots.shapes.len());
        assert!(all.iter().any(|c| !c.guests.is_sorted_by_key(Guest::shape) && c.guests.len() < count));
        for candidate in all {
            let found: Vec<usize> = (0..count).filter_map(|shape| candidate.guest(shape)).map(Guest::shape).collect();
            let mut known: Vec<usize> = candidate.guests.iter().map(Guest::shape).collect();
            known.sort_unstable();
            assert_eq!(found, known);
        }
    }

    #[test]
    fn bits_are_ordered_as_floats() {
        let ordered = [f64::NEG_INFINITY, -2.0, -1e-300, 0.0, 1e-300, 1.0, 2.0, f64::INFINITY, f64::NAN];
        assert!(ordered.is_sorted_by(|a, b| sort_bits(*a) < sort_bits(*b)));
        assert_eq!((sort_bits(-0.0), sort_bits(-f64::NAN)), (sort_bits(0.0), sort_bits(f64::NAN)));
    }
}
