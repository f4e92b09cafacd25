//! What a tier of candidates offers to what is left, with equals counted as one.
//!
//! Zones with the same machines at the same prices make the same nodes for pods that differ in nothing but their zone. The
//! program has one row for such pods and one kind for such nodes: symmetry that would make it many times larger and tells
//! nothing (Grohe, Kersting, Mladenov and Selman, "Dimension Reduction via Colour Refinement", ESA 2014).

use std::{cmp::Reverse, collections::BTreeMap, hash::Hash};

use indexmap::{IndexMap, IndexSet, map::Entry};

use crate::{
    FxBuild,
    schedule::{
        amounts::Amounts,
        candidate::{Candidate, Guest},
        lot::Shape,
        occupancy::Occupancy,
        problem::Tolerance,
        search::Search,
    },
};

/// Units of equal worth for their share come in the order of their size with any exponent below one.
const BULK: f64 = 0.95;

/// Candidates of one price and room are taken for equal if no more than this share of the units that one of them takes
/// is not for the other.
const UNLIKE: f64 = 0.1;

/// Candidates that differ in nothing that matters to the shapes that are left.
pub(super) struct Kind<'p> {
    pub(super) members: Vec<Member<'p>>,
    pub(super) room: &'p Amounts,
    /// What a node costs with what it strands, in dollars an hour: without pods of which it takes only a few, and with them.
    pub(super) costs: [f64; 2],
    pub(super) guests: Vec<KindGuest<'p>>,
    /// For each resource the guests that ask for some of it, by index, those that ask for most first.
    pub(super) largest: Vec<Vec<usize>>,
}

/// A candidate, and for each row the guests of it.
pub(super) struct Member<'p> {
    pub(super) candidate: &'p Candidate,
    pub(super) guests: BTreeMap<usize, Vec<&'p Guest>>,
}

/// Units that a kind of node can take.
pub(super) struct KindGuest<'p> {
    pub(super) row: usize,
    pub(super) requests: &'p Amounts,
    /// How many a node takes at most, whatever its room.
    pub(super) most: i64,
    /// What one takes of the node, for the order in which they come: the largest share of a resource, and a little less for large
    /// units, which are harder to place.
    pub(super) bulk: f64,
    /// Whether a node takes only a few of them.
    pub(super) is_limited: bool,
}

/// Rows of equal units, and kinds of nodes for them.
pub(super) struct Program<'p> {
    /// How many units there are of each row.
    pub(super) demands: Vec<i64>,
    /// Whether a node takes only a few of each row, whatever room it has.
    pub(super) is_limited: Vec<bool>,
    pub(super) kinds: Vec<Kind<'p>>,
}

impl<'p> Program<'p> {
    pub(super) fn new(search: &Search<'p, '_>, tier: &[&'p Candidate], tolerance: Tolerance) -> Self {
        let problem = search.problem;
        let edges = Edges::new(search, tier, tolerance);
        let machines = numbered(tier.iter().map(|candidate| {
            let room = problem.room_of(candidate);
            (candidate.pool, candidate.price.to_bits(), room)
        }));
        let of_shapes = edges.number_shapes(search, &machines);
        let of_candidates = edges.number_candidates(search, &machines, &of_shapes);
        let mut rows: IndexMap<usize, i64, FxBuild> = IndexMap::default();
        let mut row_of_shape = vec![usize::MAX; of_shapes.len()];
        for (shape, &number) in of_shapes.iter().enumerate().filter(|(shape, _)| edges.is_used[*shape]) {
            let entry = rows.entry(number);
            row_of_shape[shape] = entry.index();
            *entry.or_default() += unit_count(search, shape);
        }
        let mut kinds: IndexMap<usize, Kind<'p>, FxBuild> = IndexMap::default();
        for ((candidate, guests), &number) in tier.iter().zip(&edges.guests).zip(&of_candidates) {
            let mut by_row: BTreeMap<usize, Vec<&'p Guest>> = BTreeMap::new();
            for &guest in guests {
                by_row.entry(row_of_shape[guest.shape()]).or_default().push(guest);
            }
            let member = Member { candidate, guests: by_row };
            match kinds.entry(number) {
                Entry::Occupied(mut entry) => entry.get_mut().members.push(member),
                Entry::Vacant(entry) => drop(entry.insert(Kind::new(search, member))),
            }
        }
        let kinds: Vec<Kind<'p>> = kinds.into_values().filter(|kind| !kind.guests.is_empty()).collect();
        let mut is_limited = vec![false; rows.len()];
        for guest in kinds.iter().flat_map(|kind| &kind.guests) {
            is_limited[guest.row] = guest.is_limited;
        }
        Self { demands: rows.into_values().collect(), is_limited, kinds }
    }
}

impl<'p> Kind<'p> {
    fn new(search: &Search<'p, '_>, member: Member<'p>) -> Self {
        let problem = search.problem;
        let candidate = member.candidate;
        let room = problem.room_of(candidate);
        let guests = member.guests.iter().map(|(&row, guests)| {
            let shape = &problem.lots.shapes[guests[0].shape()];
            let lots = guests.iter().flat_map(|guest| &search.open[guest.shape()]);
            let most = |&lot: &usize| Occupancy::default().most(problem.lot(lot)).min(search.remaining(lot));
            KindGuest {
                row,
                requests: &shape.requests,
                most: lots.map(most).fold(0, i64::saturating_add),
                bulk: guests[0].share.powf(BULK),
                is_limited: shape.spread_class > 0,
            }
        });
        let guests: Vec<KindGuest<'p>> = guests.filter(|guest| guest.most > 0).collect();
        Self {
            largest: largest(&guests, room.len()),
            guests,
            room,
            costs: [false, true].map(|is_limited| search.stranded_cost(candidate, is_limited)),
            members: vec![member],
        }
    }

    /// What one of each guest takes of each resource, as a share of the room.
    pub(super) fn shares(&self) -> Vec<f64> {
        let share = |(&request, &room): (&i64, &i64)| if request > 0 { request as f64 / room as f64 } else { 0.0 };
        self.guests.iter().flat_map(|guest| guest.requests.iter().zip(self.room).map(share)).collect()
    }

    pub(super) fn cost(&self, is_limited: bool) -> f64 {
        self.costs[usize::from(is_limited)]
    }
}

/// For each resource the guests that ask for some of it, by index, those that ask for most first.
pub(super) fn largest(guests: &[KindGuest<'_>], axes: usize) -> Vec<Vec<usize>> {
    let of_axis = |axis: usize| {
        let mut out: Vec<usize> = (0..guests.len()).filter(|&guest| guests[guest].requests[axis] > 0).collect();
        out.sort_unstable_by_key(|&guest| Reverse(guests[guest].requests[axis]));
        out
    };
    (0..axes).map(of_axis).collect()
}

/// Which candidates take which shapes.
struct Edges<'p> {
    /// By candidate.
    guests: Vec<Vec<&'p Guest>>,
    /// The shapes that some candidate takes.
    is_used: Vec<bool>,
}

impl<'p> Edges<'p> {
    fn new(search: &Search<'p, '_>, tier: &[&'p Candidate], tolerance: Tolerance) -> Self {
        let problem = search.problem;
        let mut is_used = vec![false; problem.lots.shapes.len()];
        let mut guests_of = |candidate: &&'p Candidate| -> Vec<&'p Guest> {
            let is_wanted = |guest: &&Guest| {
                let constraint = problem.lots.shapes[guest.shape()].constraint;
                guest.tolerance <= tolerance
                    && !search.open[guest.shape()].is_empty()
                    && !problem.alternative(candidate.pool, constraint, guest.alternative()).is_open_ended
            };
            let mut out: Vec<&Guest> = candidate.guests.iter().filter(is_wanted).collect();
            // Of a reservation there may be too little, and a claim may need more types than a pattern leaves.
            if candidate.is_reserved() || problem.base.pools[candidate.pool].has_min_values() {
                out.clear();
            }
            for guest in &out {
                is_used[guest.shape()] = true;
            }
            out
        };
        Self { guests: tier.iter().map(&mut guests_of).collect(), is_used }
    }

    /// Numbers for shapes: those of one number ask the same of a node, and the same machines take them.
    fn number_shapes(&self, search: &Search<'_, '_>, machines: &[usize]) -> Vec<usize> {
        let shapes = &search.problem.lots.shapes;
        let mut takers: Vec<Vec<usize>> = vec![Vec::new(); shapes.len()];
        let mut by_machine: Vec<usize> = (0..machines.len()).collect();
        by_machine.sort_unstable_by_key(|&index| machines[index]);
        for index in by_machine {
            for guest in &self.guests[index] {
                if takers[guest.shape()].last() != Some(&machines[index]) {
                    takers[guest.shape()].push(machines[index]);
                }
            }
        }
        let asked = shapes.iter().zip(&takers).map(|(shape, takers)| {
            let Shape { requests, spread_class, host_ports, .. } = shape;
            (requests, *spread_class > 0, host_ports, takers)
        });
        numbered(asked)
    }

    /// Numbers for candidates: those of one number are equal machines for nearly the same units.
    fn number_candidates(&self, search: &Search<'_, '_>, machines: &[usize], of_shapes: &[usize]) -> Vec<usize> {
        let count = of_shapes.iter().max().map_or(0, |most| most + 1);
        let mut units: Vec<Vec<i64>> = Vec::with_capacity(machines.len());
        let mut out: Vec<usize> = Vec::with_capacity(machines.len());
        for (index, guests) in self.guests.iter().enumerate() {
            let mut here = vec![0; count];
            for guest in guests {
                here[of_shapes[guest.shape()]] += unit_count(search, guest.shape());
            }
            let is_like = |&other: &usize| machines[other] == machines[index] && are_alike(&units[other], &here);
            let like = (0..index).filter(|&other| out[other] == other).find(is_like);
            out.push(like.unwrap_or(index));
            units.push(here);
        }
        out
    }
}

/// Whether two nodes are for nearly the same units, given how many of each number they take.
fn are_alike(a: &[i64], b: &[i64]) -> bool {
    let (mut only, mut all) = (0, 0);
    for (&a, &b) in a.iter().zip(b) {
        all += a.max(b);
        if (a > 0) != (b > 0) {
            only += a.max(b);
        }
    }
    only as f64 <= UNLIKE * all as f64
}

/// How many units of a shape are left.
fn unit_count(search: &Search<'_, '_>, shape: usize) -> i64 {
    search.open[shape].iter().map(|&lot| search.remaining(lot)).sum()
}

/// Numbers for values, the same for equal ones.
fn numbered<T: Hash + Eq>(values: impl Iterator<Item = T>) -> Vec<usize> {
    let mut seen: IndexSet<T, FxBuild> = IndexSet::default();
    values.map(|value| seen.insert_full(value).0).collect()
}
