//! Where the kube-scheduler is likely to bind the pods of a plan.
//!
//! A plan shows that there is a place for each pod; the kube-scheduler knows nothing of it. It takes pods as they come and
//! prefers the emptiest of the nodes that it looks at, so that large pods may find all nodes partly filled. This is a model
//! of its filters and of the scores that it gives by default, with one order of pods of many: see
//! <https://kubernetes.io/docs/concepts/scheduling-eviction/kube-scheduler/>.

use std::collections::BTreeMap;

use fixedbitset::FixedBitSet;

use super::{
    amounts::{Amounts, Axes, fits, take},
    candidate::Candidate,
    lot::Lot,
    occupancy::Occupancy,
    pool::Pool,
    problem::{Problem, Tolerance},
    search::{Batch, Search, Seats, number},
};
use crate::ResourceName;

/// In how many waves nodes come that are not ready all at once.
const WAVES: usize = 1000;
/// With fewer nodes the kube-scheduler looks at all; with more at a share of them, the smaller the more there are.
const FEW_NODES: usize = 100;

/// How units land.
pub(super) struct Landing<'p> {
    /// The places that there are, with all units that they get.
    places: Vec<Node>,
    /// The nodes to make that get units, and those whose pods are known to stay.
    batches: Vec<Batch<'p>>,
    /// Units that find no node, by lot.
    pub(super) left: Units,
}

/// Units of some lots.
type Units = BTreeMap<usize, i64>;

/// The nodes on which pods land.
struct Ground<'p, 'a> {
    problem: &'p Problem<'a>,
    /// The places, then the nodes to make.
    nodes: Vec<Node>,
    /// What the nodes to make are, and the room that they must have.
    new_nodes: Vec<(&'p Candidate, Amounts)>,
    /// Nodes to make whose pods are known to stay.
    settled: Vec<Batch<'p>>,
    /// By lot, the nodes that its units may use; empty for lots that have no unit to land.
    admits: Vec<FixedBitSet>,
    /// The indices of CPU and memory.
    scored_axes: Vec<usize>,
}

struct Node {
    room: Amounts,
    /// All that pods and daemons may have.
    size: Amounts,
    occupancy: Occupancy,
    units: Units,
}

impl<'p> Search<'p, '_> {
    /// How many pairs of units and nodes are looked at in each turn, at most.
    pub(super) fn landing_pairs(&self) -> usize {
        let units: usize = self.planned().iter().sum();
        let new_nodes: usize = self.batches.iter().map(Batch::node_count).sum();
        units.saturating_mul(self.on_places.len() + new_nodes)
    }

    /// Lets all units that are planned come in one order; each turn has another. In every second turn nodes are ready all
    /// at once, in the others one after the other.
    pub(super) fn land(&self, turn: u64) -> Landing<'p> {
        let (mut ground, mut units) = Ground::new(self);
        units.sort_by_cached_key(|&(lot, number)| (scattered(lot, number, turn), lot, number));
        let waves = if turn.is_multiple_of(2) { 1 } else { WAVES };
        let left = ground.land(units, turn, waves);
        ground.into_landing(left)
    }

    /// Plans pods where they land, and makes those that find no node units that are left.
    pub(super) fn adopt(&mut self, landing: Landing<'p>) {
        for (index, node) in landing.places.into_iter().enumerate() {
            self.on_places[index] = node.units.into_iter().collect();
            self.place_room[index] = node.room;
            self.occupancies[index] = node.occupancy;
        }
        self.batches = landing.batches;
        for (lot, count) in landing.left {
            self.take_back(lot, count);
        }
    }
}

/// A number that looks like chance: the finalizer of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
fn scattered(lot: usize, number: usize, turn: u64) -> u64 {
    let mut z = (lot as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (number as u64).wrapping_add(turn << 32);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The weight of the heaviest pool that takes units of each lot.
fn weights(problem: &Problem<'_>) -> Vec<u32> {
    let mut out = vec![0; problem.lots.list.len()];
    for candidate in &problem.candidates {
        let weight = problem.weight(candidate);
        for guest in candidate.guests.iter().filter(|guest| guest.tolerance == Tolerance::Full) {
            for &lot in &problem.lots.of_shapes[guest.shape] {
                out[lot] = weight.max(out[lot]);
            }
        }
    }
    out
}

/// Whether pods of a batch are known to stay where they are planned: the model does not choose the label values, types
/// and reservations of such nodes, and leaves alone what shares the nodes of a lighter pool than its own.
fn is_settled(problem: &Problem<'_>, weights: &[u32], batch: &Batch<'_>) -> bool {
    let pool = batch.candidate.pool;
    let weight = problem.weight(batch.candidate);
    let is_open_ended =
        |seats: &Seats| problem.alternative(pool, problem.lot(seats.lot).constraint, seats.alternative).is_open_ended;
    let base = &problem.base;
    let is_bound = |seats: &Seats| weights[seats.lot] != weight || is_open_ended(seats);
    base.pools[pool].has_min_values() || batch.candidate.reservation.is_some() || batch.guests.iter().any(is_bound)
}

impl<'p, 'a> Ground<'p, 'a> {
    /// The nodes, and the units that are to land on them with their numbers.
    fn new(search: &Search<'p, 'a>) -> (Self, Vec<(usize, usize)>) {
        let problem = search.problem;
        let names = problem.base.classes.axes.names();
        let is_scored = |name: &ResourceName| matches!(name, ResourceName::Cpu | ResourceName::Memory);
        let weights = weights(problem);
        let scored_axes = (0..names.len()).filter(|&axis| is_scored(&names[axis])).collect();
        let (settled, landing): (Vec<_>, Vec<_>) =
            search.batches.iter().partition(|batch| is_settled(problem, &weights, batch));
        let settled = settled.into_iter().cloned().collect();
        let mut ground =
            Self { problem, nodes: Vec::new(), new_nodes: Vec::new(), settled, admits: Vec::new(), scored_axes };
        let mut counts = vec![0; problem.lots.list.len()];
        ground.add_places(&search.on_places, &mut counts);
        for batch in &landing {
            let base = &problem.base;
            let node = new_node(&base.pools[batch.candidate.pool], batch.candidate, &base.classes.axes);
            ground.nodes.extend((0..batch.node_count()).map(|_| node()));
            ground.new_nodes.extend((0..batch.count).map(|_| (batch.candidate, batch.floor.clone())));
            batch.guests.iter().for_each(|seats| counts[seats.lot] += seats.count * batch.count);
        }
        ground.admit(&counts, &weights);
        let units =
            counts.iter().enumerate().flat_map(|(lot, &count)| (0..number(count)).map(move |number| (lot, number)));
        (ground, units.collect())
    }

    /// Adds the places; their pods are to land again, unless they were reluctant to come.
    fn add_places(&mut self, on_places: &[Vec<(usize, i64)>], counts: &mut [i64]) {
        let problem = self.problem;
        for (place, lots) in problem.base.places.iter().zip(on_places) {
            let mut node = Node {
                room: place.room.clone(),
                size: problem.base.classes.axes.room(&place.source.allocatable),
                occupancy: place.occupancy.clone(),
                units: Units::new(),
            };
            for &(index, count) in lots {
                let lot = problem.lot(index);
                if problem.place_tolerance(lot.constraint, place.source) == Some(Tolerance::Full) {
                    counts[index] += count;
                } else {
                    node.add(index, lot, count);
                }
            }
            self.nodes.push(node);
        }
    }

    /// Notes which nodes the lots may use of which there are units to land. A lot lands only on new nodes of pools of its own
    /// weight: it may use free room of others, but a claim is not made for it.
    fn admit(&mut self, counts: &[i64], weights: &[u32]) {
        let problem = self.problem;
        let place_count = problem.base.places.len();
        self.admits = vec![FixedBitSet::new(); counts.len()];
        for lot in (0..counts.len()).filter(|&lot| counts[lot] > 0) {
            self.admits[lot].grow(self.nodes.len());
            let constraint = problem.lot(lot).constraint;
            for (index, place) in problem.base.places.iter().enumerate() {
                let tolerance = problem.place_tolerance(constraint, place.source);
                self.admits[lot].set(index, tolerance == Some(Tolerance::Full));
            }
        }
        for (index, (candidate, _)) in self.new_nodes.iter().enumerate() {
            for guest in &candidate.guests {
                let constraint = problem.lots.shapes[guest.shape].constraint;
                let is_plain = !problem.alternative(candidate.pool, constraint, guest.alternative).is_open_ended;
                if !is_plain || guest.tolerance != Tolerance::Full {
                    continue;
                }
                for &lot in &problem.lots.of_shapes[guest.shape] {
                    if counts[lot] > 0 && problem.weight(candidate) == weights[lot] {
                        self.admits[lot].insert(place_count + index);
                    }
                }
            }
        }
    }

    /// Binds units as nodes come: first to the places that there are, then to the new nodes in so many waves. What finds no
    /// node in one wave looks only at the nodes of the next, because the others do not get emptier.
    fn land(&mut self, mut units: Vec<(usize, usize)>, turn: u64, waves: usize) -> Units {
        let place_count = self.problem.base.places.len();
        let mut new_nodes: Vec<usize> = (place_count..self.nodes.len()).collect();
        new_nodes.sort_by_cached_key(|&node| scattered(usize::MAX, node, turn));
        let places: Vec<usize> = (0..place_count).collect();
        let size = new_nodes.len().div_ceil(waves).max(1);
        for nodes in std::iter::once(&*places).chain(new_nodes.chunks(size)) {
            self.bind(&mut units, nodes);
        }
        let mut left = Units::new();
        for (lot, _) in units {
            *left.entry(lot).or_default() += 1;
        }
        left
    }

    /// Binds units one after the other, each to the best of the first nodes that will do, beginning where the last search
    /// ended. Those that find none remain.
    fn bind(&mut self, units: &mut Vec<(usize, usize)>, nodes: &[usize]) {
        let sample = sample_size(nodes.len());
        let mut start = 0;
        units.retain(|&(index, _)| {
            let lot = self.problem.lot(index);
            let (mut best, mut seen, mut looked_at) = (None, 0, 0);
            while looked_at < nodes.len() && seen < sample {
                let here = nodes[(start + looked_at) % nodes.len()];
                looked_at += 1;
                let node = &self.nodes[here];
                if !self.admits[index].contains(here) || !node.takes(lot) {
                    continue;
                }
                seen += 1;
                let score = node.score(&lot.requests, &self.scored_axes);
                if best.is_none_or(|(most, _)| score > most) {
                    best = Some((score, here));
                }
            }
            start = (start + looked_at) % nodes.len().max(1);
            if let Some((_, node)) = best {
                self.nodes[node].add(index, lot, 1);
            }
            best.is_none()
        });
    }

    /// Gives each new node without pods one of another that has several: a claim without pods would not be made, and in
    /// another order the node may be needed.
    fn fill_empty_nodes(&mut self) {
        let new_nodes = self.problem.base.places.len()..self.nodes.len();
        for empty in new_nodes.clone() {
            if !self.nodes[empty].units.is_empty() {
                continue;
            }
            let goes = |index: &usize| {
                self.admits[*index].contains(empty) && self.nodes[empty].takes(self.problem.lot(*index))
            };
            let gift = |node: usize| {
                let units = &self.nodes[node].units;
                let has_several = units.values().sum::<i64>() > 1;
                units.keys().find(|index| has_several && goes(index)).map(|index| (node, *index))
            };
            if let Some((node, index)) = new_nodes.clone().find_map(gift) {
                self.nodes[node].give_up(index);
                self.nodes[empty].add(index, self.problem.lot(index), 1);
            }
        }
    }

    fn into_landing(mut self, left: Units) -> Landing<'p> {
        self.fill_empty_nodes();
        let mut batches = self.settled;
        let new_nodes = self.nodes.split_off(self.problem.base.places.len());
        for ((candidate, floor), node) in self.new_nodes.into_iter().zip(new_nodes) {
            let seats = |(lot, count)| {
                candidate.guest(self.problem.lot(lot).shape).expect("the node admits the lot").seats(lot, count)
            };
            let guests: Vec<Seats> = node.units.into_iter().map(seats).collect();
            if !guests.is_empty() {
                batches.push(Batch { candidate, guests, floor, count: 1 });
            }
        }
        Landing { places: self.nodes, batches, left }
    }
}

fn new_node<'n>(pool: &'n Pool<'_>, candidate: &Candidate, axes: &Axes) -> impl Fn() -> Node + use<'n> {
    let variant = pool.variant(candidate.row);
    let mut size = variant.room.clone();
    let daemons = axes.requests(&variant.daemon_requests);
    take(&mut size, &daemons, -1);
    move || Node {
        room: variant.room.clone(),
        size: size.clone(),
        occupancy: Occupancy::with_ports(variant.host_ports.clone()),
        units: Units::new(),
    }
}

impl Node {
    fn takes(&self, lot: &Lot) -> bool {
        fits(&lot.requests, &self.room) && self.occupancy.most(lot) > 0
    }

    fn add(&mut self, index: usize, lot: &Lot, count: i64) {
        *self.units.entry(index).or_default() += count;
        take(&mut self.room, &lot.requests, count);
        self.occupancy.add(lot, count);
    }

    /// Takes a unit from a node whose room matters no more.
    fn give_up(&mut self, index: usize) {
        let count = self.units.get_mut(&index).expect("the node has units of the lot");
        *count -= 1;
        self.units.retain(|_, count| *count > 0);
    }

    /// The sum of `NodeResourcesFit` (least allocated) and `NodeResourcesBalancedAllocation`, each up to 100.
    fn score(&self, requests: &[i64], axes: &[usize]) -> i64 {
        let (mut free, mut count, mut least, mut most) = (0, 0, 100, 0);
        for &axis in axes {
            let size = self.size[axis].max(1);
            let share = (self.room[axis] - requests[axis]).max(0).saturating_mul(100) / size;
            free += share;
            count += 1;
            least = share.min(least);
            most = share.max(most);
        }
        let balance = 100 - (most - least).max(0) / 2;
        free / count.max(1) + balance
    }
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
