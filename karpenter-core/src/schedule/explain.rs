//! Why a pod has no place.

mod labels;
mod nodes;
mod types;

use std::collections::BTreeMap;

use super::search::Search;
use crate::{
    Reason,
    api::tolerates_all,
    reason::{Asker, Obstacle, PoolObstacle, TypesShutOut},
};
use labels::Asked;
use nodes::Kind;
use types::Survey;

/// Says why pods have no place, once a search is over.
pub(super) struct Explainer<'s, 'a> {
    search: &'s Search<'s, 'a>,
    /// For each place what bars it to pods of a constraint whatever room it has, by the index of the constraint.
    barred: BTreeMap<usize, Vec<Option<Kind<'s>>>>,
    /// What pods of a constraint ask of a pool, by the indices of both.
    asked: BTreeMap<(usize, usize), Vec<Asked<'s>>>,
    /// Why pools of which no offering meets a constraint take none of its pods, by the indices of both, and by those on whose account
    /// labels are asked for.
    unmet: BTreeMap<(usize, usize, Vec<Asker>), PoolObstacle>,
}

impl<'s, 'a> Explainer<'s, 'a> {
    pub(super) const fn new(search: &'s Search<'s, 'a>) -> Self {
        Self { search, barred: BTreeMap::new(), asked: BTreeMap::new(), unmet: BTreeMap::new() }
    }

    /// Why the pods of a lot that are left have no place, pool by pool, and on the nodes that there are.
    pub(super) fn no_place(&mut self, lot_index: usize) -> Reason {
        let base = &self.search.problem.base;
        if base.pool_order.is_empty() && base.places.is_empty() {
            return Reason::NoNodePools;
        }
        let lot = self.search.problem.lot(lot_index);
        if let Some(&class) = lot.classes.iter().find(|&&class| base.classes.node_wanted(class).is_unmeetable()) {
            return Reason::Unmeetable { for_volumes: !base.classes.own_wanted(class).is_unmeetable() };
        }
        let of_pool = |name: &&str| -> Option<PoolObstacle> {
            if let Some(known) = base.obstacles.iter().find(|o| o.is_of(name)) {
                return Some(known.clone());
            }
            let index = base.pools.iter().position(|p| p.source.name() == *name)?;
            Some(self.in_pool(lot_index, index))
        };
        let pools = base.pool_order.iter().filter_map(of_pool).collect();
        Reason::NoPlace { pools, node_count: base.places.len(), nodes: self.nodes(lot_index) }
    }

    fn in_pool(&mut self, lot_index: usize, pool_index: usize) -> PoolObstacle {
        let problem = self.search.problem;
        let pool = &problem.base.pools[pool_index];
        let lot = problem.lot(lot_index);
        let tolerations = &problem.lots.constraints[lot.constraint].tolerations;
        let Err(taint) = tolerates_all(tolerations, pool.taints(), false) else {
            let asked = || Asked::all(problem, lot, pool_index);
            let asked = self.asked.entry((lot.constraint, pool_index)).or_insert_with(asked);
            let survey = || Survey::new(self.search, asked, lot_index, pool_index).obstacle();
            let meeting = problem.meets[pool_index][lot.constraint].as_ref();
            if meeting.is_some_and(|(_, all)| all.iter().any(|alternative| !alternative.rows.is_clear())) {
                return survey();
            }
            let askers = asked.iter().map(|asked| asked.asker(problem, lot)).collect();
            return self.unmet.entry((lot.constraint, pool_index, askers)).or_insert_with(survey).clone();
        };
        let mut types: Vec<usize> = pool.rows.ones().map(|row| pool.table().rows()[row].type_index).collect();
        types.dedup();
        let shut_out = TypesShutOut { type_count: types.len(), obstacle: Obstacle::Taint(taint.clone()) };
        PoolObstacle { pool: pool.source.name().to_owned(), type_count: types.len(), shut_out: vec![shut_out] }
    }
}
