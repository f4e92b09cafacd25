//! How far the pods of a plan are from the heaviest pools.

use std::sync::Arc;

use super::{
    amounts::fits,
    pool::{Pool, heavier_weights},
    problem::{Base, Tolerance, meet},
    search::{Batch, Search, Seats, number},
};

impl Search<'_, '_> {
    /// For all pods on new nodes together, how many weights of pools are heavier than that of their own. A node of a lighter pool
    /// that some of its pods need does not count: the room that it has is for all. Where nodes are to go, all count: to fill those of
    /// lighter pools is cheaper at once, and dearer in the end.
    pub(super) fn lightness(&self) -> usize {
        let problem = self.problem;
        let heavier: Vec<usize> = heavier_weights(&problem.base.pools).collect();
        let mut light = self.batches.iter().filter(|batch| heavier[batch.candidate.pool] > 0).peekable();
        if light.peek().is_none() {
            return 0;
        }
        let of_classes = (!problem.course.is_step()).then(|| problem.base.heavier_of_classes());
        let is_needed = |batch: &Batch<'_>| {
            let needs_it =
                |class: &usize| of_classes.as_ref().is_some_and(|all| all[*class] >= heavier[batch.candidate.pool]);
            batch.guests.iter().any(|seats| problem.lot(seats.lot).classes.iter().all(needs_it))
        };
        let pods = |batch: &Batch<'_>| {
            let units = |seats: &Seats| number(seats.count * batch.count) * problem.lot(seats.lot).unit_size;
            batch.guests.iter().map(units).sum::<usize>()
        };
        light.filter(|batch| !is_needed(batch)).map(|batch| heavier[batch.candidate.pool] * pods(batch)).sum()
    }
}

impl Base<'_> {
    /// For each class how many weights of pools are heavier than that of the heaviest pool that has a node for one of its pods
    /// alone, whatever domain it might be given; as many as there are pools if none has.
    fn heavier_of_classes(&self) -> Arc<Vec<usize>> {
        let find = || {
            let heavier: Vec<usize> = heavier_weights(&self.pools).collect();
            let of_class = |class: usize| {
                let first = self.pools.iter().position(|pool| self.takes(pool, class));
                first.map_or(self.pools.len(), |pool| heavier[pool])
            };
            Arc::new((0..self.classes.list.len()).map(of_class).collect())
        };
        self.heavier_of_classes.get(&(), |()| (), find)
    }

    /// Whether a pool can make a node for a pod of a class, to which the pod goes willingly.
    fn takes(&self, pool: &Pool<'_>, class: usize) -> bool {
        let Some((Tolerance::Full, alternatives)) = meet(pool, &self.classes.node_constraint(class)) else {
            return false;
        };
        let has_room = |row: usize| fits(&self.classes.list[class].requests, &pool.variant(row).room);
        alternatives.iter().any(|alternative| alternative.rows.intersection(&pool.open_rows).any(has_room))
    }
}
