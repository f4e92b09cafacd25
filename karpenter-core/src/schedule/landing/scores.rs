//! Scores that are remembered until something lands on a node: pods that ask for the same are many.

use indexmap::{IndexMap, map::Entry};

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
    /// `None` for nodes without room; empty if it was never asked for.
    scores: Vec<Option<u8>>,
    /// How much of what landed is counted.
    counted: usize,
}

impl<'p> Scores<'p> {
    /// The number of some requests.
    pub(super) fn number(&mut self, requests: &'p Amounts) -> usize {
        let entry = self.asked.entry(requests);
        let number = entry.index();
        if let Entry::Vacant(entry) = entry {
            entry.insert(Row::default());
        }
        number
    }

    /// Notes that something landed on a node.
    pub(super) fn land(&mut self, node: usize) {
        self.landed.push(node);
    }

    /// What nodes are worth for requests of a number, as it was when that was brought up to date.
    pub(super) fn of(&self, number: usize) -> &[Option<u8>] {
        &self.asked[number].scores
    }

    /// Brings up to date what nodes are worth for requests of a number.
    pub(super) fn update(&mut self, number: usize, fleet: &Fleet) {
        let (requests, row) =
            self.asked.get_index_mut(number).expect("requests are numbered before they are asked for");
        let landed = &self.landed[row.counted..];
        if row.scores.is_empty() || landed.len() >= fleet.len() {
            row.scores.clear();
            row.scores.extend((0..fleet.len()).map(|node| fleet.score(node, requests)));
        } else {
            for again in landed.chunk_by(|a, b| a == b) {
                row.scores[again[0]] = fleet.score(again[0], requests);
            }
        }
        row.counted = self.landed.len();
    }
}
