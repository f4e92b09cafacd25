//! The nodes that pods land on, with what is looked at for each pod and each node close together.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::{
    ResourceName,
    schedule::{
        amounts::{Axes, fits, take},
        lot::Lot,
        occupancy::Occupancy,
    },
};

/// Nodes that there are or will be, by their numbers.
#[derive(Clone)]
pub(in crate::schedule) struct Fleet {
    /// How many resources there are.
    width: usize,
    /// The indices of CPU and memory.
    scored_axes: SmallVec<[usize; 2]>,
    /// What is left of each resource, node by node.
    rooms: Vec<i64>,
    /// How many percents of what pods and daemons may have each unit of CPU and memory is, node by node.
    percents: Vec<f64>,
    occupancies: Vec<Arc<Occupancy>>,
}

impl Fleet {
    pub(super) fn new(axes: &Axes) -> Self {
        let is_scored = |name: &ResourceName| matches!(name, ResourceName::Cpu | ResourceName::Memory);
        Self {
            width: axes.names().len(),
            scored_axes: (0..axes.names().len()).filter(|&axis| is_scored(&axes.names()[axis])).collect(),
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
            self.percents.extend(self.scored_axes.iter().map(|&axis| 100.0 / all[axis].max(1) as f64));
            self.occupancies.push(occupancy.clone());
        }
    }

    pub(super) fn room(&self, node: usize) -> &[i64] {
        &self.rooms[node * self.width..][..self.width]
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
    pub(super) fn score(&self, node: usize, requests: &[i64]) -> Option<i64> {
        let room = self.room(node);
        if !fits(requests, room) {
            return None;
        }
        let (mut free, mut least, mut most) = (0, 100, 0);
        let count = self.scored_axes.len();
        for (&axis, percents) in self.scored_axes.iter().zip(&self.percents[node * count..]) {
            let share = whole((room[axis] - requests[axis]).max(0) as f64 * percents);
            free += share;
            least = share.min(least);
            most = share.max(most);
        }
        let balance = 100 - (most - least).max(0) / 2;
        Some(balance + if count == 2 { free / 2 } else { free })
    }
}

/// Rounded down, but for the last billionth: to divide whole numbers would take much of the time of the model.
#[expect(clippy::cast_possible_truncation, reason = "rounding down is what is wanted")]
pub(super) fn whole(percents: f64) -> i64 {
    (percents + 1e-9) as i64
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
        for (cpu, memory) in [(1930, 3_416_784_896), (7910, 30_000_000_007), (63_770, 257_698_037_760), (3, 100)] {
            for parts in 0..=300 {
                let room = [cpu * parts / 300, memory - memory * parts / 300];
                let mut fleet = Fleet::new(&axes);
                fleet.push(&room, &[cpu, memory], Occupancy::with_ports(Vec::new()), 1);
                let shares = [room[0] * 100 / cpu, room[1] * 100 / memory];
                let expected = i64::midpoint(shares[0], shares[1]) + 100 - (shares[0] - shares[1]).abs() / 2;
                assert_eq!(fleet.score(0, &[0, 0]), Some(expected), "{room:?} of {cpu} and {memory}");
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
