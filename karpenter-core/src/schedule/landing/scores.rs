//! Scores that are remembered until something lands on a node: pods that ask for the same are many.

use indexmap::IndexMap;

use super::fleet::Fleet;
use crate::{FxBuild, schedule::amounts::Amounts};

/// What each node is worth for pods, by what they ask for.
#[derive(Clone, Default)]
pub(super) struct Scores<'p> {
    asked: IndexMap<&'p Amounts, Row, FxBuild>,
    /// The nodes on which something landed, in the order of time.
    landed: Vec<usize>,
}

/// The scores of all nodes for the same requests.
#[derive(Clone, Default)]
struct Row {
    /// One more than the score, 0 for nodes without room; empty if it was never asked for.
    scores: Vec<u8>,
    /// How much of what landed is counted.
    counted: usize,
}

impl<'p> Scores<'p> {
    /// The number of some requests.
    pub(super) fn number(&mut self, requests: &'p Amounts) -> usize {
        let entry = self.asked.entry(requests);
        let number = entry.index();
        entry.or_default();
        number
    }

    /// Notes that something landed on a node.
    pub(super) fn land(&mut self, node: usize) {
        self.landed.push(node);
    }

    /// What nodes are worth for requests of a number, one more than the score of each; 0 for nodes without room.
    pub(super) fn of(&mut self, number: usize, fleet: &Fleet) -> &[u8] {
        let (requests, row) =
            self.asked.get_index_mut(number).expect("requests are numbered before they are asked for");
        let mark = |node: usize| fleet.score(node, requests).map_or(0, |score| score + 1);
        let landed = &self.landed[row.counted..];
        if row.scores.is_empty() || landed.len() >= fleet.len() {
            row.scores.clear();
            row.scores.extend((0..fleet.len()).map(mark));
        } else {
            for again in landed.chunk_by(|a, b| a == b) {
                row.scores[again[0]] = mark(again[0]);
            }
        }
        row.counted = self.landed.len();
        &row.scores
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Quantity, ResourceList, ResourceName,
        schedule::{amounts::Axes, occupancy::Occupancy},
    };

    /// Nodes of four CPUs of which so much is left, in thousandths.
    fn nodes(rooms: &[i64]) -> Fleet {
        let list: ResourceList = [(ResourceName::Cpu, Quantity::from_units(1))].into_iter().collect();
        let mut out = Fleet::new(&Axes::of([&list]));
        for &room in rooms {
            out.push(&[room], &[4000], Occupancy::with_ports(Vec::new()), 1);
        }
        out
    }

    #[test]
    fn scores_are_those_of_the_nodes_as_they_are_now() {
        let asked = [500, 1000, 3000].map(|cpu| Amounts::from_slice(&[cpu]));
        let mut scores = Scores::default();
        let numbers = asked.each_ref().map(|asked| scores.number(asked));
        let mut rooms = [4000; 5];
        for (step, (node, taken)) in [(0, 3000), (1, 1000), (0, 500), (4, 4000), (1, 2500)].into_iter().enumerate() {
            // Some are asked for more often than others.
            for (number, asked) in numbers.into_iter().zip(&asked).take(1 + step % 3) {
                let fleet = nodes(&rooms);
                let mark = |node: usize| fleet.score(node, asked).map_or(0, |score| score + 1);
                let now: Vec<_> = (0..rooms.len()).map(mark).collect();
                assert_eq!(scores.of(number, &fleet), now, "after {step} landings");
            }
            rooms[node] -= taken;
            scores.land(node);
        }
    }
}
