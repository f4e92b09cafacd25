//! Further nodes for a command whose pods find room on the nodes that it makes.
//!
//! A plan for more pods is another plan, which may be dearer than what is there and a little more. So that nothing is left for
//! a later command, nodes are added on top of the plan that is there.

use std::{cmp::Reverse, collections::BTreeSet};

use ordered_float::OrderedFloat;

use super::{
    climb::Field,
    consolidate::Consolidation,
    hurdle::Threshold,
    scene::{Care, Trial},
};
use crate::schedule::parallel;

/// The most work for all nodes that are tried at a time: about a second. A unit is a place that is looked at or a pod that is
/// placed.
const MAX_WORK: usize = 250_000;

/// How often all nodes are tried at most.
const MAX_ROUNDS: usize = 8;

/// Of how many nodes each two are tried together, if none gains anything alone.
const PAIRED: usize = 12;

/// Nodes that go, by their positions in the order of nodes, and what comes of it.
#[derive(Clone)]
pub(super) struct Extended {
    pub(super) nodes: BTreeSet<usize>,
    pub(super) trial: Trial,
}

/// Nodes that may join, and what is gained with them, in dollars an hour.
type Joining = (BTreeSet<usize>, f64);

/// What is asked of nodes that join.
#[derive(Clone, Copy)]
struct Extension<'e, 'c, 's> {
    consolidation: &'e Consolidation<'c, 's>,
    field: &'e Field<'e, 'c, 's>,
    /// What their evictions must save.
    threshold: Threshold,
}

impl<'c, 's> Consolidation<'c, 's> {
    /// More nodes than these, as long as they gain something; with a plan for all of them at once if that is cheaper.
    pub(super) fn extended<'e>(&'e self, field: &'e Field<'e, 'c, 's>, last: Threshold, first: &Extended) -> Extended {
        let extension = |threshold| Extension { consolidation: self, field, threshold };
        // A node that is worth a command of its own is not left for the next.
        let (alone, together) = (extension(last.at_most(self.threshold)), extension(last));
        let mut best = first.clone();
        for _ in 0..MAX_ROUNDS {
            let singles = field.others(&best.nodes).into_iter().map(|node| BTreeSet::from([node])).collect();
            let singles = alone.by_gain(&best, singles);
            let count = best.nodes.len();
            best = alone.with_all(best, &singles);
            if best.nodes.len() == count {
                let pairs = together.by_gain(&best, pairs(&singles));
                best = together.with_all(best, &pairs);
            }
            if best.nodes.len() == count {
                break;
            }
        }
        if best.nodes != first.nodes {
            let anew = self.cheapest(&field.candidates(&best.nodes), &[Care::Best]);
            let is_cheaper = |anew: &Trial| anew.savings_per_hour > best.trial.savings_per_hour;
            best.trial = anew.filter(is_cheaper).unwrap_or(best.trial);
        }
        best
    }
}

impl Extension<'_, '_, '_> {
    /// Those with which the pods have a place, those that gain most first. None if it takes too long to try them.
    fn by_gain(&self, before: &Extended, joining: Vec<BTreeSet<usize>>) -> Vec<Joining> {
        let work = joining.len().saturating_mul(self.field.work_for(before.nodes.len()));
        if work > self.consolidation.share_of(MAX_WORK) {
            return Vec::new();
        }
        let gains = parallel::map(&joining, |more| Some(self.gain(&self.with(before, more)?)));
        let mut out: Vec<Joining> =
            joining.into_iter().zip(gains).filter_map(|(more, gain)| Some((more, gain?))).collect();
        out.sort_by_key(|(_, gain)| Reverse(OrderedFloat(*gain)));
        out
    }

    /// The same with those that gain something, one after the other.
    fn with_all(&self, mut best: Extended, joining: &[Joining]) -> Extended {
        let before = self.gain(&best);
        for (more, _) in joining.iter().take_while(|(_, gain)| *gain > before) {
            if more.is_disjoint(&best.nodes) {
                best = self.with(&best, more).and_then(|other| self.settled(&best, other)).unwrap_or(best);
            }
        }
        best
    }

    /// The same with more nodes; `None` if a pod would have no place.
    fn with(&self, before: &Extended, more: &BTreeSet<usize>) -> Option<Extended> {
        let nodes = &before.nodes | more;
        let candidates = self.field.candidates(&nodes);
        let trial = self.consolidation.scene.try_on_top_of(&before.trial.plan, &candidates)?;
        Some(Extended { nodes, trial })
    }

    /// The other with the terms of its nodes, if it gains more.
    fn settled(&self, before: &Extended, other: Extended) -> Option<Extended> {
        let is_better = |other: &Extended| self.gain(other) > self.gain(before) && self.is_worth_it(other);
        let other = Some(other).filter(is_better)?;
        let trial = self.consolidation.terms.settle(&self.field.candidates(&other.nodes), other.trial)?;
        Some(Extended { trial, ..other }).filter(is_better)
    }

    /// What is saved beyond what the evictions must save.
    fn gain(&self, found: &Extended) -> f64 {
        self.threshold.gain(&self.field.candidates(&found.nodes), &found.trial)
    }

    /// Whether the command as a whole is.
    fn is_worth_it(&self, found: &Extended) -> bool {
        self.consolidation.threshold.gain(&self.field.candidates(&found.nodes), &found.trial) > 0.0
    }
}

/// Every two of the first, which gain most or lose least alone.
fn pairs(singles: &[Joining]) -> Vec<BTreeSet<usize>> {
    let first = &singles[..singles.len().min(PAIRED)];
    let with_earlier =
        |(index, (a, _)): (usize, &Joining)| first[..index].iter().map(|(b, _)| a | b).collect::<Vec<_>>();
    first.iter().enumerate().flat_map(with_earlier).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::{
        Catalogs, Planner, Snapshot, Timestamp,
        disrupt::{
            Candidate, Roster, SpotToSpot,
            balance::Balance,
            consolidate::tests::{cluster, cluster_of},
            scene::Scene,
            terms::Terms,
        },
    };

    /// The nodes that go, and how many come, if that at this position goes and the last evictions must save so much.
    fn joined((snapshot, catalogs): &(Snapshot, Catalogs), first: usize, per_eviction: f64) -> (Vec<usize>, usize) {
        let now = Timestamp::from_millis(0);
        let scene = Scene::new(snapshot, catalogs, Planner::default(), Roster::of(snapshot).into());
        let (candidates, balance, values) = (scene.candidates(now), Balance::of(&scene), BTreeMap::new());
        let order: Vec<&Candidate> = candidates.all().iter().collect();
        let threshold = Threshold { per_eviction, share: 0.0 };
        let terms = Terms { scene: &scene, spot_to_spot: SpotToSpot::default(), balance: &balance };
        let (scene, candidates, values) = (&scene, &candidates, &values);
        let consolidation = Consolidation { scene, candidates, now, threshold, effort: 1.0, terms, values };
        let field = Field::new(&consolidation, &order);
        let nodes = BTreeSet::from([first]);
        let trial = consolidation.cheapest(&field.candidates(&nodes), &[Care::Best]).expect("it has a place");
        assert_eq!(trial.plan.claims.len(), 0, "the pods of one node have room on others");
        let Extended { nodes, trial } = consolidation.extended(&field, threshold, &Extended { nodes, trial });
        (nodes.into_iter().collect(), trial.plan.claims.len())
    }

    #[test]
    fn nodes_join_whose_pods_find_room_as_long_as_that_is_worth_it() {
        // Of eight nodes with 20 pods the two cheapest stay, and three like them come.
        assert_eq!(joined(&cluster(), 3, 0.001), (vec![1, 2, 3, 5, 6, 7], 3));
        // Of the others only that at 40 cents saves so much with its four pods.
        assert_eq!(joined(&cluster(), 3, 0.05), (vec![3, 7], 0));
    }

    #[test]
    fn two_nodes_join_that_only_together_become_a_larger_one() {
        let full = || ("1", vec!["1900m", "1900m"]);
        let world = cluster_of(&[("1", 4), ("1.5", 8)], [full(), full(), ("1", vec!["100m"])].into_iter());
        assert_eq!(joined(&world, 2, 0.01), (vec![0, 1, 2], 1));
        // Five pods move to save 50 cents.
        assert_eq!(joined(&world, 2, 0.2), (vec![2], 0));
    }
}
