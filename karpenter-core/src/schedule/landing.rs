//! Where the kube-scheduler is likely to bind the pods of a plan.
//!
//! A plan shows that there is a place for each pod; the kube-scheduler knows nothing of it. It takes pods as they come and
//! prefers the emptiest of the nodes that it looks at, so that large pods may find all nodes partly filled. This is a model
//! of its filters and of the scores that it gives by default, with one order of pods of many: see
//! <https://kubernetes.io/docs/concepts/scheduling-eviction/kube-scheduler/>.

mod family;
mod fleet;
mod scores;

use std::{collections::BTreeMap, ops::Range, sync::Arc};

use fixedbitset::FixedBitSet;
use smallvec::SmallVec;

pub(super) use self::fleet::Fleet;
use self::{
    family::{Domains, Family},
    scores::Scores,
};
use super::{
    amounts::{fits, least, take},
    candidate::Candidate,
    occupancy::Occupancy,
    problem::{Base, Problem, Tolerance},
    search::{Batch, Search, Seats, number},
};
use crate::Requirement;

/// In how many waves nodes come that are not ready all at once.
const WAVES: usize = 6;
/// Before the last of these, one in so many of the pods that have no node is tried again: the others wait, because they were
/// tried shortly before.
const ONE_TRIED_OF: u64 = 2;
/// With fewer nodes the kube-scheduler looks at all; with more at a share of them, the smaller the more there are.
const FEW_NODES: usize = 100;

/// Units of some lots.
pub(super) type Units = BTreeMap<usize, i64>;

/// The nodes on which pods land, before any of them does.
#[derive(Clone)]
pub(super) struct Ground<'p, 'a> {
    problem: &'p Problem<'a>,
    /// The places, then the nodes to make.
    fleet: Fleet,
    /// The units to land.
    units: Vec<Unit>,
    /// By lot, the nodes that its units may use; empty for lots that have no unit to land.
    admits: Vec<FixedBitSet>,
    /// Pods that may land in other domains than the plan gives them.
    families: Vec<Family<'p>>,
    scores: Scores<'p>,
}

#[derive(Clone, Copy)]
struct Unit {
    lot: usize,
    /// The number of what it asks for.
    asked: usize,
    number: usize,
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
    let weight = problem.weight(batch.candidate);
    let is_open_ended =
        |seats: &Seats| problem.alternative(pool, problem.lot(seats.lot).constraint, seats.alternative).is_open_ended;
    let base = &problem.base;
    let is_bound = |seats: &Seats| weights[seats.lot] != weight || is_open_ended(seats);
    base.pools[pool].has_min_values() || batch.candidate.reservation.is_some() || batch.guests.iter().any(is_bound)
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
            admits: Vec::new(),
            families: Vec::new(),
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
        ground.admit((&roomy, &landing), &counts, &weights);
        ground.add_units((&roomy, &landing), &counts, &search.planned(), &weights);
        ground
    }

    /// Lets all units come in one order and gives back those that find no node; each turn has another order. In every second
    /// turn nodes are ready all at once, in the others in waves.
    pub(super) fn land(mut self, turn: u64) -> Units {
        let mut units = std::mem::take(&mut self.units);
        units.sort_by_cached_key(|unit| (scattered(unit.lot, unit.number, turn), unit.lot, unit.number));
        let waves = if turn.is_multiple_of(2) { 1 } else { WAVES };
        self.land_all(units, turn, waves)
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

    /// Notes which nodes the lots may use of which there are units to land. A lot lands only on new nodes of pools of its own
    /// weight: it may use free room of others, but a claim is not made for it.
    fn admit(&mut self, (roomy, batches): (&[usize], &[&Batch<'p>]), counts: &[i64], weights: &[u32]) {
        let problem = self.problem;
        self.admits = vec![FixedBitSet::new(); counts.len()];
        for lot in (0..counts.len()).filter(|&lot| counts[lot] > 0) {
            self.admits[lot].grow(self.fleet.len());
            let constraint = problem.lot(lot).constraint;
            for &index in roomy {
                let tolerance = problem.place_tolerance(constraint, problem.base.places[index].source);
                self.admits[lot].set(index, tolerance == Some(Tolerance::Full));
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
                        self.admits[lot].insert_range(nodes.clone());
                    }
                }
            }
        }
    }

    /// Adds the units that are to land, so many of each lot. Those that are planned besides stay in their domains.
    fn add_units(
        &mut self,
        (roomy, batches): (&[usize], &[&Batch<'p>]),
        counts: &[i64],
        planned: &[usize],
        weights: &[u32],
    ) {
        let problem = self.problem;
        let mut by_class: BTreeMap<(usize, usize), usize> = BTreeMap::new();
        let mut domains: BTreeMap<&str, Arc<Domains>> = BTreeMap::new();
        for (index, lot) in problem.lots.list.iter().enumerate() {
            let landing = number(counts[index]);
            let asked = self.scores.number(&lot.requests);
            for (number, portion) in problem.lots.portions_of(lot).take(planned[index]).enumerate() {
                let family = portion.latitude.as_deref().map(|latitude| {
                    let (class, level, pins) = &portion.key;
                    let family = *by_class.entry((*class, *level)).or_insert_with(|| {
                        let domains = domains
                            .entry(&latitude.key)
                            .or_insert_with(|| Arc::new(Domains::new(problem, batches, &latitude.key)));
                        let admits = family::admitted(problem, (roomy, batches), latitude, weights[index]);
                        self.families.push(Family::new(latitude, admits, domains.clone()));
                        self.families.len() - 1
                    });
                    if let Some(domain) =
                        pins.get(&latitude.key).and_then(Requirement::any_value).filter(|_| number >= landing)
                    {
                        self.families[family].stay(&domain);
                    }
                    family
                });
                if number < landing {
                    self.units.push(Unit { lot: index, asked, number, family });
                }
            }
        }
    }

    /// Binds units as nodes come: first to the places that there are, then to the new nodes in so many waves. In the end they
    /// look at all again, because a spread may allow domains that it did not allow before.
    fn land_all(&mut self, mut units: Vec<Unit>, turn: u64, waves: usize) -> Units {
        let place_count = self.problem.base.places.len();
        let all: Vec<usize> = (0..self.fleet.len()).collect();
        let mut new_nodes = all[place_count..].to_vec();
        new_nodes.sort_by_cached_key(|&node| scattered(usize::MAX, node, turn));
        let size = new_nodes.len().div_ceil(waves).max(1);
        self.bind(&mut units, &all[..place_count]);
        for (wave, come) in (1..).zip((size..new_nodes.len()).step_by(size)) {
            let chance = |unit: &Unit| scattered(unit.lot, unit.number, turn.wrapping_add(wave << 16));
            let (mut tried, waiting) = units.into_iter().partition(|unit| chance(unit).is_multiple_of(ONE_TRIED_OF));
            self.bind(&mut tried, &new_nodes[..come]);
            units = waiting;
            units.append(&mut tried);
        }
        self.bind(&mut units, &new_nodes);
        loop {
            let before = units.len();
            if units.iter().any(|unit| unit.family.is_some()) {
                self.bind(&mut units, &all);
            }
            if units.len() == before {
                break;
            }
        }
        let mut left = Units::new();
        for unit in units {
            *left.entry(unit.lot).or_default() += 1;
        }
        left
    }

    /// Binds units one after the other, each to the best of the first nodes that will do, beginning where the last search
    /// ended. Those that find none remain.
    fn bind(&mut self, units: &mut Vec<Unit>, nodes: &[usize]) {
        let least = least(units.iter().map(|unit| &self.problem.lot(unit.lot).requests));
        let open = self.open(&least, nodes);
        // Of a single node it is seen when none of the units fits any more.
        let (mut start, mut favourites, mut is_full) = (0, Favourites::default(), open.is_empty());
        units.retain(|unit| {
            if is_full {
                return true;
            }
            self.scores.update(unit.asked, &self.fleet);
            let (best, looked_at) = self.best(unit, &Round { nodes, open: &open, start }, &mut favourites);
            start = (start + looked_at) % nodes.len().max(1);
            if let Some(node) = best {
                self.fleet.add(node, self.problem.lot(unit.lot), 1);
                self.scores.land(node);
                is_full = open.len() == 1 && !fits(&least, self.fleet.room(node));
                if let Some(family) = unit.family {
                    self.families[family].land(node);
                }
            }
            best.is_none()
        });
    }

    /// The best node for a unit, and how many nodes were looked at.
    fn best(&self, unit: &Unit, round: &Round<'_>, favourites: &mut Favourites) -> (Option<usize>, usize) {
        let family = unit.family.map(|family| &self.families[family]);
        if let Some(family) = family.filter(|family| family.is_wish()) {
            let keep = |score, node| favourites.add(family.domain_of(node), score, node);
            let looked_at = self.look_at(unit, round, keep);
            return (favourites.take_best(family), looked_at);
        }
        let mut best = None;
        let looked_at = self.look_at(unit, round, |score, node| {
            if best.is_none_or(|(most, _)| score > most) {
                best = Some((score, node));
            }
        });
        (best.map(|(_, node)| node), looked_at)
    }

    /// Tells of the first nodes that will do for a unit, with their scores, and says how many nodes it looked at.
    fn look_at(&self, unit: &Unit, round: &Round<'_>, keep: impl FnMut(u8, usize)) -> usize {
        let Some(family) = unit.family.map(|family| &self.families[family]) else {
            let admits = &self.admits[unit.lot];
            return self.look_at_those(|node| admits.contains(node), unit, round, keep);
        };
        let most = family.most();
        self.look_at_those(|node| family.goes_to(node, most), unit, round, keep)
    }

    /// The same, of the nodes to which the unit may go.
    fn look_at_those(
        &self,
        goes_to: impl Fn(usize) -> bool,
        unit: &Unit,
        round: &Round<'_>,
        mut keep: impl FnMut(u8, usize),
    ) -> usize {
        let &Round { nodes, open, start } = round;
        let (scores, lot) = (self.scores.of(unit.asked), self.problem.lot(unit.lot));
        let needs_only_room = lot.needs_only_room();
        let (mut seen, sample) = (0, sample_size(nodes.len()));
        let (before, after) = open.split_at(open.partition_point(|&position| position < start));
        for &position in after.iter().chain(before) {
            let here = nodes[position];
            let Some(score) = scores[here].filter(|_| goes_to(here)) else { continue };
            if !(needs_only_room || self.fleet.admits(here, lot)) {
                continue;
            }
            keep(score, here);
            seen += 1;
            if seen == sample {
                return (position + nodes.len() - start) % nodes.len() + 1;
            }
        }
        nodes.len()
    }

    /// The positions of the nodes that have room for the least that any unit asks for. No node gets emptier.
    fn open(&self, least: &[i64], nodes: &[usize]) -> Vec<usize> {
        (0..nodes.len()).filter(|&position| fits(least, self.fleet.room(nodes[position]))).collect()
    }
}

/// Nodes in the order in which they are looked at.
struct Round<'n> {
    nodes: &'n [usize],
    /// The positions of those that may have room.
    open: &'n [usize],
    /// The position of the first.
    start: usize,
}

/// The best node of each domain, for a pod that prefers some domains to others.
#[derive(Default)]
struct Favourites(SmallVec<[(usize, u8, usize); 4]>);

impl Favourites {
    /// Keeps a node if it has the best score in its domain; of equals the first.
    fn add(&mut self, domain: usize, score: u8, node: usize) {
        match self.0.iter_mut().find(|(other, ..)| *other == domain) {
            Some(best) if best.1 < score => *best = (domain, score, node),
            Some(_) => {}
            None => self.0.push((domain, score, node)),
        }
    }

    /// The best of all, with what the preference of a family adds to the scores. None is left.
    fn take_best(&mut self, family: &Family<'_>) -> Option<usize> {
        let bonuses = family.bonuses(self.0.iter().map(|(domain, ..)| *domain));
        let scored = self.0.drain(..).zip(bonuses).map(|((_, score, node), bonus)| (i64::from(score) + bonus, node));
        scored.reduce(|best, next| if next.0 > best.0 { next } else { best }).map(|(_, node)| node)
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

/// How many nodes that will do the kube-scheduler compares, of so many that there are.
const fn sample_size(nodes: usize) -> usize {
    if nodes <= FEW_NODES {
        return nodes;
    }
    let percent = 50_usize.saturating_sub(nodes / 125);
    let percent = if percent < 5 { 5 } else { percent };
    let size = nodes * percent / 100;
    if size < FEW_NODES { FEW_NODES } else { size }
}
