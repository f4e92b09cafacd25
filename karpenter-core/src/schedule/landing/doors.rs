//! Which nodes are open to some pods, resources and spreads apart.

use fixedbitset::FixedBitSet;
use indexmap::IndexSet;

use super::fleet::Fleet;
use crate::{FxBuild, schedule::problem::Problem};

/// The nodes that are open to units as far as labels and taints go, and pods that were there before.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct Door {
    admits: FixedBitSet,
    /// The lot of the units, if pods that land may shut nodes for them.
    lot: Option<usize>,
}

/// Doors by their numbers. Most lots share one.
#[derive(Clone, Default)]
pub(super) struct Doors(IndexSet<Door, FxBuild>);

impl Doors {
    /// The number of the door of a lot that may use these nodes.
    pub(super) fn number(
        &mut self,
        lot: usize,
        mut admits: FixedBitSet,
        problem: &Problem<'_>,
        fleet: &Fleet,
    ) -> usize {
        let of_lot = problem.lot(lot);
        let may_shut = !of_lot.needs_only_room();
        if may_shut {
            let mut last: Option<(usize, bool)> = None;
            for node in 0..fleet.len() {
                let known = last.filter(|(other, _)| fleet.are_alike(*other, node));
                let is_open = known.map_or_else(|| fleet.admits(node, of_lot), |(_, is_open)| is_open);
                last = Some((node, is_open));
                if !is_open {
                    admits.set(node, false);
                }
            }
        }
        self.0.insert_full(Door { admits, lot: may_shut.then_some(lot) }).0
    }

    /// All doors, by the positions of nodes in an order.
    pub(super) fn in_order(&self, order: &[usize]) -> Vec<Doorway> {
        let doorway = |door: &Door| Doorway {
            open: order.iter().map(|&node| if door.admits.contains(node) { u8::MAX } else { 0 }).collect(),
            lot: door.lot,
            counted: 0,
        };
        self.0.iter().map(doorway).collect()
    }
}

/// A door while pods land. Nodes that are shut stay shut: what keeps pods away only gets more.
pub(super) struct Doorway {
    /// All bits for nodes that are open, none for others.
    open: Vec<u8>,
    lot: Option<usize>,
    /// How many of the nodes that got such pods are counted.
    counted: usize,
}

impl Doorway {
    /// Which nodes are open now: all bits for each that is, none for others. These got pods that may keep others away.
    pub(super) fn open(&mut self, settled: &[usize], problem: &Problem<'_>, fleet: &Fleet) -> &[u8] {
        if let Some(lot) = self.lot {
            for &node in &settled[self.counted..] {
                if self.open[node] > 0 && !fleet.admits(node, problem.lot(lot)) {
                    self.open[node] = 0;
                }
            }
            self.counted = settled.len();
        }
        &self.open
    }
}
