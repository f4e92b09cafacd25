//! Further nodes for a command whose pods find room on the nodes that it makes.
//!
//! A plan for more pods is another plan, which may be dearer than what is there and a little more. So that nothing is left for
//! a later command, nodes are added on top of the plan that is there.

use std::{cmp::Reverse, collections::BTreeSet};

use ordered_float::OrderedFloat;

use super::{
    climb::Field,
    consolidate::{Consolidation, Threshold},
    scene::{Care, Trial},
};
use crate::schedule::parallel;

/// The most work for all nodes that are tried at a time: about a second. A unit is a place that is looked at or a pod that is
/// placed.
const MAX_WORK: usize = 250_000;

/// How often all nodes are tried at most.
const MAX_ROUNDS: usize = 8;

/// Nodes that go, by their positions in the order of nodes, and what comes of it.
pub(super) struct Extended {
    pub(super) nodes: BTreeSet<usize>,
    pub(super) trial: Trial,
    /// What is saved beyond what the last evictions must save, in dollars an hour.
    gain: f64,
}

impl Consolidation<'_, '_> {
    /// More nodes than these, as long as each gains something; with a plan for all of them at once if that is cheaper.
    pub(super) fn extended(
        &self,
        field: &Field<'_, '_, '_>,
        last: Threshold,
        nodes: BTreeSet<usize>,
        trial: Trial,
    ) -> Extended {
        let (before, gain) = (nodes.len(), last.gain(&field.candidates(&nodes), &trial));
        let mut best = Extended { nodes, trial, gain };
        for _ in 0..MAX_ROUNDS {
            let others = field.others(&best.nodes);
            if others.len().saturating_mul(field.work_for(best.nodes.len())) > self.share_of(MAX_WORK) {
                break;
            }
            let tried = parallel::map(&others, |&node| self.with(field, last, &best, node));
            let better = others.into_iter().zip(tried).filter_map(|(node, other)| Some((other?.gain, node)));
            let mut better: Vec<(f64, usize)> = better.collect();
            if better.is_empty() {
                break;
            }
            better.sort_by_key(|&(gain, node)| (Reverse(OrderedFloat(gain)), node));
            for (_, node) in better {
                best = self.with(field, last, &best, node).unwrap_or(best);
            }
        }
        if best.nodes.len() > before {
            let anew = self.cheapest(&field.candidates(&best.nodes), &[Care::Best]);
            let is_cheaper = |anew: &Trial| anew.savings_per_hour > best.trial.savings_per_hour;
            best.trial = anew.filter(is_cheaper).unwrap_or(best.trial);
        }
        best
    }

    /// The same with one node more, if that gains more.
    fn with(&self, field: &Field<'_, '_, '_>, last: Threshold, before: &Extended, node: usize) -> Option<Extended> {
        let mut nodes = before.nodes.clone();
        nodes.insert(node);
        let candidates = field.candidates(&nodes);
        let trial = self.scene.try_on_top_of(&before.trial.plan, &candidates)?;
        let is_better = |trial: &Trial| {
            last.gain(&candidates, trial) > before.gain && self.threshold.gain(&candidates, trial) > 0.0
        };
        let trial = Some(trial).filter(is_better)?;
        let trial = self.terms.settle(&candidates, trial).filter(is_better)?;
        Some(Extended { gain: last.gain(&candidates, &trial), nodes, trial })
    }
}
