//! Where the kube-scheduler is likely to bind the pods of a plan.
//!
//! A plan shows that there is a place for each pod; the kube-scheduler knows nothing of it. It takes pods as they come and
//! prefers the emptiest of the nodes that it looks at, so that large pods may find all nodes partly filled. This is a model
//! of its filters and of the scores that it gives by default, with one order of pods of many: see
//! <https://kubernetes.io/docs/concepts/scheduling-eviction/kube-scheduler/>.

mod doors;
mod family;
mod fleet;
mod scores;
mod turn;

use std::{collections::BTreeMap, ops::Range, sync::Arc};

use fixedbitset::FixedBitSet;
use indexmap::IndexMap;

pub(super) use self::fleet::Fleet;
use self::{
    doors::Doors,
    family::{Domains, Family},
    scores::Scores,
};
use super::{
    amounts::{fits, least, take},
    candidate::Candidate,
    occupancy::Occupancy,
    problem::{Base, Problem, Tolerance},
    search::{Batch, Search, Seats, number},
    topology::Latitude,
};
use crate::{FxBuild, Requirement};

/// Units of some lots.
pub(super) type Units = BTreeMap<usize, i64>;

/// The nodes on which pods land, before any of them does.
pub(super) struct Ground<'p, 'a> {
    problem: &'p Problem<'a>,
    /// The places, then the nodes to make.
    fleet: Fleet,
    /// The units to land.
    units: Vec<Unit>,
    doors: Doors,
    /// Pods that may land in other domains than the plan gives them.
    families: Vec<Family<'p>>,
    /// The labels by whose values families are divided.
    domains: IndexMap<&'p str, Arc<Domains>, FxBuild>,
    scores: Scores<'p>,
}

#[derive(Clone, Copy)]
struct Unit {
    lot: usize,
    number: usize,
    /// The number of what it asks for.
    asked: usize,
    /// The number of the door to the nodes that it may use.
    door: usize,
    /// The index of its family.
    family: Option<usize>,
}

impl Base<'_> {
    /// The places as they are before anything lands.
    fn places_to_land_on(&self) -> Arc<Fleet> {
        self.places_to_land_on.get(&(), |()| (), || Arc::new(self.fleet_of_places()))
    }

    fn fleet_of_places(&self) -> Fleet {
        let axes = &self.classes.axes;
        let mut fleet = Fleet::new(axes);
        for place in &self.places {
            fleet.push(&place.room, &axes.room(&place.source.allocatable), place.occupancy.clone(), 1);
        }
        fleet
    }
}

impl Search<'_, '_> {
    /// How many pairs of units and nodes are looked at in each turn, at most.
    pub(super) fn landing_pairs(&self) -> usize {
        let units: usize = self.planned().iter().sum();
        let new_nodes: usize = self.batches.iter().map(Batch::node_count).sum();
        units.saturating_mul(self.on_places.len() + new_nodes)
    }
}

/// A number that looks like chance: the finalizer of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
pub(super) fn scattered(lot: usize, number: usize, turn: u64) -> u64 {
    let mut z = (lot as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (number as u64).wrapping_add(turn << 32);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Problem<'_> {
    /// The weight of the heaviest pool that takes units of each lot.
    pub(super) fn weights_of_lots(&self) -> Arc<Vec<u32>> {
        self.weights_of_lots.get(&(), |()| (), || Arc::new(self.find_weights_of_lots()))
    }

    fn find_weights_of_lots(&self) -> Vec<u32> {
        let mut out = vec![0; self.lots.list.len()];
        for candidate in &self.candidates {
            let weight = self.weight(candidate);
            for guest in candidate.guests.iter().filter(|guest| guest.tolerance == Tolerance::Full) {
                for &lot in &self.lots.of_shapes[guest.shape()] {
                    out[lot] = weight.max(out[lot]);
                }
            }
        }
        out
    }
}

/// Whether pods of a batch are known to stay where they are planned: the model does not choose the label values, types
/// and reservations of such nodes, and leaves alone what shares the nodes of a lighter pool than its own.
pub(super) fn is_settled(problem: &Problem<'_>, weights: &[u32], batch: &Batch<'_>) -> bool {
    let pool = batch.candidate.pool;
    let is_open_ended =
        |seats: &Seats| problem.alternative(pool, problem.lot(seats.lot).constraint, seats.alternative).is_open_ended;
    problem.base.pools[pool].has_min_values()
        || batch.candidate.is_reserved()
        || batch.guests.iter().any(is_open_ended)
        || is_of_others(problem, weights, batch)
}

/// Whether some pods of a batch have a heavier pool than that of its nodes.
pub(super) fn is_of_others(problem: &Problem<'_>, weights: &[u32], batch: &Batch<'_>) -> bool {
    let weight = problem.weight(batch.candidate);
    batch.guests.iter().any(|seats| weights[seats.lot] != weight)
}

impl<'p, 'a> Ground<'p, 'a> {
    /// The nodes of a search, and the units that are to land on them.
    pub(super) fn new(search: &Search<'p, 'a>) -> Self {
        let problem = search.problem;
        let weights = problem.weights_of_lots();
        let mut ground = Self {
            problem,
            fleet: (*problem.base.places_to_land_on()).clone(),
            units: Vec::new(),
            doors: Doors::default(),
            families: Vec::new(),
            domains: IndexMap::default(),
            scores: Scores::default(),
        };
        let landing: Vec<&Batch<'p>> =
            search.batches.iter().filter(|batch| !is_settled(problem, &weights, batch)).collect();
        let mut counts = vec![0; problem.lots.list.len()];
        ground.add_places(&search.on_places, &mut counts);
        for batch in &landing {
            ground.add_nodes(batch);
            batch.guests.iter().for_each(|seats| counts[seats.lot] += seats.count * batch.count);
        }
        let roomy = ground.roomy_places(&counts);
        let admits = ground.admits((&roomy, &landing), &counts, &weights);
        ground.add_units((&roomy, &landing), &admits, &counts, &search.planned(), &weights);
        ground
    }

    /// Adds the places; their pods are to land again, unless they were reluctant to come.
    fn add_places(&mut self, on_places: &[Vec<(usize, i64)>], counts: &mut [i64]) {
        let problem = self.problem;
        for (node, (place, lots)) in problem.base.places.iter().zip(on_places).enumerate() {
            for &(index, count) in lots {
                let lot = problem.lot(index);
                if problem.place_tolerance(lot.constraint, place.source) == Some(Tolerance::Full) {
                    counts[index] += count;
                } else {
                    self.fleet.add(node, lot, count);
                }
            }
        }
    }

    /// Adds the nodes of a batch, empty but for daemons.
    fn add_nodes(&mut self, batch: &Batch<'p>) {
        let base = &self.problem.base;
        let variant = base.pools[batch.candidate.pool].variant(batch.candidate.row);
        let mut size = variant.room.clone();
        take(&mut size, &base.classes.axes.requests(&variant.daemon_requests), -1);
        let occupancy = Occupancy::with_ports(variant.host_ports.clone());
        self.fleet.push(&variant.room, &size, occupancy, batch.node_count());
    }

    /// The places that have room for the least that any of the units asks for which are to land.
    fn roomy_places(&self, counts: &[i64]) -> Vec<usize> {
        let landing = (0..counts.len()).filter(|&lot| counts[lot] > 0);
        let least = least(landing.map(|lot| &self.problem.lot(lot).requests));
        (0..self.problem.base.places.len()).filter(|&place| fits(&least, self.fleet.room(place))).collect()
    }

    /// By lot, the nodes that its units may use; none for lots that have no unit to land. A lot lands only on new nodes of
    /// pools of its own weight: it may use free room of others, but a claim is not made for it.
    fn admits(&self, (roomy, batches): (&[usize], &[&Batch<'p>]), counts: &[i64], weights: &[u32]) -> Vec<FixedBitSet> {
        let problem = self.problem;
        let mut admits = vec![FixedBitSet::new(); counts.len()];
        for lot in (0..counts.len()).filter(|&lot| counts[lot] > 0) {
            admits[lot].grow(self.fleet.len());
            let constraint = problem.lot(lot).constraint;
            for &index in roomy {
                let tolerance = problem.place_tolerance(constraint, problem.base.places[index].source);
                admits[lot].set(index, tolerance == Some(Tolerance::Full));
            }
        }
        for (candidate, nodes) in numbered(problem, batches) {
            for guest in &candidate.guests {
                let constraint = problem.lots.shapes[guest.shape()].constraint;
                let is_plain = !problem.alternative(candidate.pool, constraint, guest.alternative()).is_open_ended;
                if !is_plain || guest.tolerance != Tolerance::Full {
                    continue;
                }
                for &lot in &problem.lots.of_shapes[guest.shape()] {
                    if counts[lot] > 0 && problem.weight(candidate) == weights[lot] {
                        admits[lot].insert_range(nodes.clone());
                    }
                }
            }
        }
        admits
    }

    /// Adds the units that are to land, so many of each lot. Those that are planned besides stay in their domains.
    fn add_units(
        &mut self,
        nodes: (&[usize], &[&Batch<'p>]),
        admits: &[FixedBitSet],
        counts: &[i64],
        planned: &[usize],
        weights: &[u32],
    ) {
        let problem = self.problem;
        let mut by_class: BTreeMap<(usize, usize), usize> = BTreeMap::new();
        let mut admits_of_families: Vec<FixedBitSet> = Vec::new();
        for (index, lot) in problem.lots.list.iter().enumerate() {
            let landing = number(counts[index]);
            let asked = self.scores.number(&lot.requests);
            let mut last_door = None;
            for (number, portion) in problem.lots.portions_of(lot).take(planned[index]).enumerate() {
                let family = portion.latitude.as_deref().map(|latitude| {
                    let (class, level, pins) = &portion.key;
                    let family = *by_class.entry((*class, *level)).or_insert_with(|| {
                        admits_of_families.push(self.add_family(nodes, latitude, weights[index]));
                        self.families.len() - 1
                    });
                    let domain = pins.get(&latitude.key).and_then(Requirement::any_value);
                    if let Some(domain) = domain.filter(|_| number >= landing) {
                        self.families[family].stay(&domain);
                    }
                    family
                });
                if number < landing {
                    let known = last_door.filter(|(other, _)| *other == family);
                    let (_, door) = *last_door.insert(known.unwrap_or_else(|| {
                        let admits = family.map_or(&admits[index], |family| &admits_of_families[family]);
                        (family, self.doors.number(index, admits.clone(), problem, &self.fleet))
                    }));
                    self.units.push(Unit { lot: index, number, asked, door, family });
                }
            }
        }
    }

    /// Adds a family, and gives back the nodes that it may use.
    fn add_family(&mut self, nodes: (&[usize], &[&Batch<'p>]), latitude: &'p Latitude, weight: u32) -> FixedBitSet {
        let entry = self.domains.entry(&*latitude.key);
        let key = entry.index();
        let domains = entry.or_insert_with(|| Arc::new(Domains::new(self.problem, nodes.1, &latitude.key)));
        self.families.push(Family::new(latitude, key, domains.clone()));
        family::admitted(self.problem, nodes, latitude, domains, weight)
    }
}

/// The candidates of batches, with the numbers of their nodes: those of the places come before.
fn numbered<'b, 'p>(
    problem: &Problem<'_>,
    batches: &'b [&Batch<'p>],
) -> impl Iterator<Item = (&'p Candidate, Range<usize>)> + use<'b, 'p> {
    let mut next = problem.base.places.len();
    batches.iter().map(move |batch| {
        let nodes = next..next + batch.node_count();
        next = nodes.end;
        (batch.candidate, nodes)
    })
}
