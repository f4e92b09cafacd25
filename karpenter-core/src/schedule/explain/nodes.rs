//! Why no node that exists takes a pod.

use std::{cmp::Reverse, collections::BTreeMap};

use super::{Explainer, labels::asker};
use crate::{
    api::{Taint, tolerates_all},
    cluster::Place,
    reason::{NodeObstacle, NodesShutOut},
    schedule::{class::Constraint, lot::Lot, occupancy::Conflict},
};

/// What is in the way on a node; nodes for which it is the same are counted together.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind<'s> {
    Taint(&'s Taint),
    /// The key of a label.
    Label(&'s str),
    /// No node meets what the pod asks for.
    Combination,
    /// The index of the axis.
    Resource(usize),
    Conflict(Conflict),
}

impl<'s> Explainer<'s, '_> {
    /// What keeps the pods of a lot from the nodes, the most frequent first.
    pub(super) fn nodes(&mut self, lot_index: usize) -> Vec<NodesShutOut> {
        let search = self.search;
        let lot = search.problem.lot(lot_index);
        let constraint = &search.problem.lots.constraints[lot.constraint];
        let places = &search.problem.base.places;
        let barred = || places.iter().map(|place| barred(constraint, place.source)).collect();
        let barred: &Vec<_> = self.barred.entry(lot.constraint).or_insert_with(barred);
        let mut counts: BTreeMap<Kind<'s>, (usize, i64)> = BTreeMap::new();
        for (index, barred) in barred.iter().enumerate() {
            let scarce = || scarcest(lot, &search.place_room[index]);
            // Whoever is left out of a node that has room for it is left out because of its neighbours.
            let conflict = || search.occupancies[index].conflict(lot).unwrap_or(Conflict::Neighbours);
            let (kind, missing) = match (*barred, scarce()) {
                (Some(kind), _) => (kind, 0),
                (None, Some((axis, missing))) => (Kind::Resource(axis), missing),
                (None, None) => (Kind::Conflict(conflict()), 0),
            };
            let (count, least) = counts.entry(kind).or_insert((0, missing));
            (*count, *least) = (*count + 1, missing.min(*least));
        }
        let shut_out =
            |(kind, (node_count, missing))| NodesShutOut { node_count, obstacle: self.obstacle(lot, kind, missing) };
        let mut all: Vec<_> = counts.into_iter().map(shut_out).collect();
        all.sort_by_key(|shut_out| Reverse(shut_out.node_count));
        all
    }

    fn obstacle(&self, lot: &Lot, kind: Kind<'s>, missing: i64) -> NodeObstacle {
        let problem = self.search.problem;
        match kind {
            Kind::Taint(taint) => NodeObstacle::Taint(taint.clone()),
            Kind::Label(key) => {
                let first = problem.lots.constraints[lot.constraint].wanted.alternatives().first();
                let wanted = first.and_then(|wanted| wanted.get(key)).cloned();
                wanted.map_or(NodeObstacle::Combination, |wanted| {
                    let asker = asker(problem, lot, key, &wanted);
                    NodeObstacle::Label { key: key.to_owned(), wanted, asker }
                })
            }
            Kind::Combination => NodeObstacle::Combination,
            Kind::Resource(scarce) => {
                let axes = &problem.base.classes.axes;
                let resource = axes.names()[scarce].clone();
                NodeObstacle::Resource { resource, missing: axes.quantity(scarce, missing) }
            }
            Kind::Conflict(Conflict::HostPort) => NodeObstacle::HostPort,
            Kind::Conflict(Conflict::Neighbours) => NodeObstacle::Neighbours,
            Kind::Conflict(Conflict::Workload) => NodeObstacle::WorkloadShare,
            Kind::Conflict(Conflict::Volumes) => NodeObstacle::Volumes,
        }
    }
}

/// What keeps pods of a constraint from a place, whatever room there is.
fn barred<'s>(constraint: &'s Constraint, place: &'s Place) -> Option<Kind<'s>> {
    if let Err(taint) = tolerates_all(&constraint.tolerations, &place.taints, false) {
        return Some(Kind::Taint(taint));
    }
    if constraint.wanted.admit_node(&place.name, &place.labels) {
        return None;
    }
    let refusal = constraint.wanted.first_refusal(&place.name, &place.labels);
    Some(refusal.map_or(Kind::Combination, |(key, _)| Kind::Label(key)))
}

/// The resource of which a unit of a lot lacks the largest part, and how much is missing.
fn scarcest(lot: &Lot, room: &[i64]) -> Option<(usize, i64)> {
    let short =
        lot.requests.iter().zip(room).enumerate().filter(|(_, (request, room))| **request > 0 && request > room);
    let part = |request: i64, room: i64| room as f64 / request as f64;
    let (axis, (request, room)) = short.min_by(|(_, (a, x)), (_, (b, y))| part(**a, **x).total_cmp(&part(**b, **y)))?;
    Some((axis, request.saturating_sub(*room)))
}
