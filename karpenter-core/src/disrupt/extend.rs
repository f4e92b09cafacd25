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
            let better = others.into_iter().zip(tried).filter_map(|(node, other)| Some((node, other?)));
            let mut better: Vec<(usize, Extended)> = better.collect();
            better.sort_by_key(|(node, other)| (Reverse(OrderedFloat(other.gain)), *node));
            let mut better = better.into_iter();
            let Some((_, first)) = better.next() else { break };
            best = first;
            for (node, _) in better {
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::{
        Planner, Timestamp,
        disrupt::{
            Candidate, Roster, SpotToSpot, balance::Balance, consolidate::tests::cluster, scene::Scene, terms::Terms,
        },
    };

    #[test]
    fn nodes_join_whose_pods_find_room_as_long_as_that_is_worth_it() {
        let (snapshot, catalogs) = cluster();
        let now = Timestamp::from_millis(0);
        let scene = Scene::new(&snapshot, &catalogs, Planner::default(), Roster::of(&snapshot).into());
        let (candidates, balance, values) = (scene.candidates(now), Balance::of(&scene), BTreeMap::new());
        let order: Vec<&Candidate> = candidates.all().iter().collect();
        let joined = |per_eviction| {
            let threshold = Threshold { per_eviction, share: 0.0 };
            let terms = Terms { scene: &scene, spot_to_spot: SpotToSpot::default(), balance: &balance };
            let (scene, candidates, values) = (&scene, &candidates, &values);
            let consolidation = Consolidation { scene, candidates, now, threshold, effort: 1.0, terms, values };
            let field = Field::new(&consolidation, &order);
            let alone = BTreeSet::from([3]);
            let trial = consolidation.cheapest(&field.candidates(&alone), &[Care::Best]).expect("it has a place");
            assert_eq!(trial.plan.claims.len(), 0, "the pods of one node have room on others");
            let Extended { nodes, trial, .. } = consolidation.extended(&field, threshold, alone, trial);
            (nodes.into_iter().collect::<Vec<_>>(), trial.plan.claims.len())
        };
        // Of eight nodes with 20 pods the two cheapest stay, and three like them come.
        assert_eq!(joined(0.001), (vec![1, 2, 3, 5, 6, 7], 3));
        // Of the others only that at 40 cents saves so much with its four pods.
        assert_eq!(joined(0.05), (vec![3, 7], 0));
    }
}
