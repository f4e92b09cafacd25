//! Why a pod has no place.

mod labels;
mod nodes;
mod types;

use std::collections::BTreeMap;

use super::search::Search;
use crate::{
    Reason,
    api::tolerates_all,
    reason::{Obstacle, PoolObstacle},
};
use nodes::Kind;
use types::Survey;

/// Says why pods have no place, once a search is over.
pub(super) struct Explainer<'s, 'a> {
    search: &'s Search<'s, 'a>,
    /// For each place what bars it to pods of a constraint whatever room it has, by the index of the constraint.
    barred: BTreeMap<usize, Vec<Option<Kind<'s>>>>,
}

impl<'s, 'a> Explainer<'s, 'a> {
    pub(super) const fn new(search: &'s Search<'s, 'a>) -> Self {
        Self { search, barred: BTreeMap::new() }
    }

    /// Why the pods of a lot that are left have no place, pool by pool, and on the nodes that there are.
    pub(super) fn no_place(&mut self, lot_index: usize) -> Reason {
        let base = &self.search.problem.base;
        if base.pool_order.is_empty() && base.places.is_empty() {
            return Reason::NoNodePools;
        }
        let of_pool = |name: &&str| -> Option<PoolObstacle> {
            if let Some(known) = base.obstacles.iter().find(|o| o.is_of(name)) {
                return Some(known.clone());
            }
            let index = base.pools.iter().position(|p| p.source.name() == *name)?;
            Some(in_pool(self.search, lot_index, index))
        };
        let pools = base.pool_order.iter().filter_map(of_pool).collect();
        Reason::NoPlace { pools, node_count: base.places.len(), nodes: self.nodes(lot_index) }
    }
}

fn in_pool(search: &Search<'_, '_>, lot_index: usize, pool_index: usize) -> PoolObstacle {
    let problem = search.problem;
    let pool = &problem.base.pools[pool_index];
    let constraint = &problem.lots.constraints[problem.lot(lot_index).constraint];
    match tolerates_all(&constraint.tolerations, pool.taints(), false) {
        Err(taint) => PoolObstacle::whole(pool.source.name(), Obstacle::Taint(taint.clone())),
        Ok(()) => Survey::new(search, lot_index, pool_index).obstacle(),
    }
}
