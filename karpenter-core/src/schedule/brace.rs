//! Nodes beyond those that would do if pods went where they are planned.

use std::collections::BTreeMap;

use super::{
    landing::Landing,
    problem::{Aim, Tolerance},
    search::Search,
};
use crate::{labels, schedule::pool::Pool};

/// In so many orders in a row must all pods find nodes.
const CALM_TURNS: usize = 10;
/// How many orders are tried at most.
const MAX_TURNS: usize = 40;
/// The most pairs of pods and nodes that are looked at in all orders together: some hundredths of a second.
const MAX_PAIRS: usize = 8_000_000;

impl<'p> Search<'p, '_> {
    /// Adds nodes until the kube-scheduler is likely to find one for each pod, unless they cost too much: a further plan
    /// knows better which pods are left.
    pub(super) fn brace(&mut self) {
        if self.problem.course.aim != Aim::Bill || self.batches.is_empty() {
            return;
        }
        let max_turns = MAX_TURNS.min(MAX_PAIRS / self.landing_pairs().max(1));
        if max_turns < CALM_TURNS {
            return;
        }
        let (mut most, mut calm) = (None, 0);
        for turn in 0..max_turns {
            let landing = self.land(turn as u64);
            if landing.left.is_empty() {
                calm += 1;
                if calm == CALM_TURNS {
                    break;
                }
                continue;
            }
            calm = 0;
            let most = *most.get_or_insert_with(|| self.most_to_spend());
            let before = self.clone();
            let worth: f64 = landing.left.iter().map(|(&lot, &count)| self.problem.value(lot) * count as f64).sum();
            if self.bill() + worth > most || !self.make_nodes_for(landing) || self.bill() > most {
                *self = before;
                break;
            }
        }
    }

    /// Plans pods where they land and makes nodes for those that find none. Says whether all have one now.
    fn make_nodes_for(&mut self, landing: Landing<'p>) -> bool {
        let before = self.planned();
        self.adopt(landing);
        for tier in self.tiers() {
            self.make_nodes(&tier, Tolerance::Full);
        }
        self.planned().iter().zip(&before).all(|(now, before)| now >= before)
    }

    /// What the planned nodes may cost at most, further ones included.
    fn most_to_spend(&self) -> f64 {
        let slack = self.problem.base.options.slack.max(0.0);
        self.bill() + slack * (self.bill() + self.bill_of_places())
    }

    /// What the planned nodes cost, in dollars an hour.
    fn bill(&self) -> f64 {
        self.batches.iter().map(|batch| batch.candidate.price * batch.count as f64).sum()
    }

    /// What the nodes that there are cost, as far as catalogs tell, in dollars an hour.
    fn bill_of_places(&self) -> f64 {
        let base = &self.problem.base;
        let types: Vec<BTreeMap<&str, usize>> = base.pools.iter().map(Pool::types_by_name).collect();
        let price = |labels: &BTreeMap<String, String>| {
            let index = base.pools.iter().position(|pool| pool.is_of(labels))?;
            let type_index = *types[index].get(labels.get(labels::INSTANCE_TYPE)?.as_str())?;
            base.pools[index].price_of(type_index, labels)
        };
        base.snapshot.places().iter().filter_map(|place| price(&place.labels)).sum()
    }
}
