//! The nodes that pods land on, with what is looked at for each pod and each node close together.

use std::sync::Arc;

use crate::{
    ResourceName,
    schedule::{
        amounts::{Axes, fits, take},
        lot::Lot,
        occupancy::Occupancy,
    },
};

/// What each of the two scores is at most.
const MOST: f64 = 100.0;

/// Nodes that there are or will be, by their numbers.
#[derive(Clone)]
pub(in crate::schedule) struct Fleet {
    /// How many resources there are.
    width: usize,
    /// The indices of CPU and memory; twice the same if pods ask for one of them only, `None` if they ask for neither.
    scored_axes: Option<[usize; 2]>,
    /// What is left of each resource, node by node.
    rooms: Vec<i64>,
    /// How many percents of what pods and daemons may have each unit of CPU and memory is, node by node.
    percents: Vec<[f64; 2]>,
    occupancies: Vec<Arc<Occupancy>>,
}

impl Fleet {
    pub(super) fn new(axes: &Axes) -> Self {
        let is_scored = |name: &ResourceName| matches!(name, ResourceName::Cpu | ResourceName::Memory);
        let mut scored = (0..axes.names().len()).filter(|&axis| is_scored(&axes.names()[axis]));
        let first = scored.next();
        Self {
            width: axes.names().len(),
            scored_axes: first.map(|first| [first, scored.next().unwrap_or(first)]),
            rooms: Vec::new(),
            percents: Vec::new(),
            occupancies: Vec::new(),
        }
    }

    /// How many nodes there are.
    pub(super) fn len(&self) -> usize {
        self.occupancies.len()
    }

    /// Adds so many nodes with this room of all that pods and daemons may have.
    pub(super) fn push(&mut self, room: &[i64], all: &[i64], occupancy: Occupancy, count: usize) {
        let occupancy = Arc::new(occupancy);
        for _ in 0..count {
            self.rooms.extend_from_slice(room);
            let percents = |axes: [usize; 2]| axes.map(|axis| 100.0 / all[axis].max(1) as f64);
            self.percents.push(self.scored_axes.map_or([0.0; 2], percents));
            self.occupancies.push(occupancy.clone());
        }
    }

    pub(super) fn room(&self, node: usize) -> &[i64] {
        &self.rooms[node * self.width..][..self.width]
    }

    /// The same nodes in another order.
    pub(super) fn in_order(&self, order: &[usize]) -> Self {
        Self {
            width: self.width,
            scored_axes: self.scored_axes,
            rooms: order.iter().flat_map(|&node| self.room(node)).copied().collect(),
            percents: order.iter().map(|&node| self.percents[node]).collect(),
            occupancies: order.iter().map(|&node| self.occupancies[node].clone()).collect(),
        }
    }

    /// Whether it is known without a look that nothing sets the pods of two nodes apart.
    pub(super) fn are_alike(&self, a: usize, b: usize) -> bool {
        Arc::ptr_eq(&self.occupancies[a], &self.occupancies[b])
    }

    /// Whether a unit of a lot may be bound to a node that has room for it.
    pub(super) fn admits(&self, node: usize, lot: &Lot) -> bool {
        self.occupancies[node].most_bound(lot) > 0
    }

    pub(super) fn add(&mut self, node: usize, lot: &Lot, count: i64) {
        take(&mut self.rooms[node * self.width..][..self.width], &lot.requests, count);
        if !lot.needs_only_room() {
            Arc::make_mut(&mut self.occupancies[node]).add(lot, count);
        }
    }

    /// What a node is worth to the kube-scheduler for a pod; `None` if it has no room. The sum of `NodeResourcesFit` (least
    /// allocated) and `NodeResourcesBalancedAllocation`, each up to 100.
    pub(super) fn score(&self, node: usize, requests: &[i64]) -> Option<u8> {
        let room = self.room(node);
        if !fits(requests, room) {
            return None;
        }
        let Some(axes) = self.scored_axes else { return Some(whole(MOST)) };
        let [a, b] = self.percents[node];
        let share = |axis: usize, percents: f64| (room[axis] - requests[axis]).max(0) as f64 * percents;
        let (a, b) = (share(axes[0], a), share(axes[1], b));
        Some(whole(MOST - (a - b).abs() / 2.0) + u8::midpoint(whole(a), whole(b)))
    }
}

/// Rounded down, but for the last billionth: to divide whole numbers would take much of the time of the model.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "rounding down is what is wanted, and no share is below 0 or above 100"
)]
pub(super) fn whole(percents: f64) -> u8 {
    (percents + 1e-9) as u8
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Quantity, ResourceList};

    fn axes(resources: &[ResourceName]) -> Axes {
        let list: ResourceList = resources.iter().map(|name| (name.clone(), Quantity::from_units(1))).collect();
        Axes::of([&list])
    }

    #[test]
    fn scores_are_those_of_whole_numbers() {
        let axes = axes(&[ResourceName::Cpu, ResourceName::Memory]);
        for (cpu, memory) in [(1930, 3_416_784_896), (7910, 30_000_000_000), (63_770, 257_698_037_760), (3, 100)] {
            for parts in 0..=300 {
                let room = [cpu * parts / 300, memory - memory * parts / 300];
                let mut fleet = Fleet::new(&axes);
                fleet.push(&room, &[cpu, memory], Occupancy::with_ports(Vec::new()), 1);
                let free = i64::midpoint(room[0] * 100 / cpu, room[1] * 100 / memory);
                let [a, b, all] =
                    [(room[0], memory), (room[1], cpu), (cpu, memory)].map(|(a, b)| i128::from(a) * i128::from(b));
                let balance = 100 - (50 * (a - b).abs() + all - 1) / all;
                let score = fleet.score(0, &[0, 0]).map(i128::from);
                assert_eq!(score, Some(i128::from(free) + balance), "{room:?} of {cpu} and {memory}");
            }
        }
    }

    #[test]
    fn a_node_without_room_has_no_score() {
        let mut fleet = Fleet::new(&axes(&[ResourceName::Cpu]));
        fleet.push(&[1000], &[2000], Occupancy::with_ports(Vec::new()), 1);
        assert_eq!([fleet.score(0, &[1000]), fleet.score(0, &[1001])], [Some(100), None]);
    }
}
