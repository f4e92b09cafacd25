//! Why a pod has no place.

use std::collections::BTreeSet;

use fixedbitset::FixedBitSet;

use super::{
    amounts::fits,
    lot::Lot,
    pool::{Limit, Pool},
    problem::Problem,
};
use crate::{
    Reason, Requirement, Requirements,
    api::tolerates_all,
    cluster::HostPort,
    reason::{Obstacle, PoolObstacle},
};

/// Why the pods of a lot that are left have no place, pool by pool.
pub(super) fn no_place(problem: &Problem<'_>, lot_index: usize, limits_left: &[Vec<i64>]) -> Reason {
    if problem.base.pool_order.is_empty() && problem.base.places.is_empty() {
        return Reason::NoNodePools;
    }
    let of_pool = |name: &&str| -> Option<PoolObstacle> {
        if let Some(known) = problem.base.obstacles.iter().find(|o| o.is_of(name)) {
            return Some(known.clone());
        }
        let index = problem.base.pools.iter().position(|p| p.source.name() == *name)?;
        Some(obstacle(problem, lot_index, index, &limits_left[index]).of(name))
    };
    let pools = problem.base.pool_order.iter().filter_map(of_pool).collect();
    Reason::NoPlace { pools, node_count: problem.base.places.len() }
}

fn obstacle(problem: &Problem<'_>, lot_index: usize, pool_index: usize, limits_left: &[i64]) -> Obstacle {
    let lot = problem.lot(lot_index);
    let pool = &problem.base.pools[pool_index];
    let constraint = &problem.lots.constraints[lot.constraint];
    if let Err(taint) = tolerates_all(&constraint.tolerations, pool.taints(), false) {
        return Obstacle::Taint(taint.clone());
    }
    let mut rows = FixedBitSet::with_capacity(pool.table().rows().len());
    let alternatives = problem.meets[pool_index][lot.constraint].as_ref().map_or(&[][..], |(_, all)| all);
    for alternative in alternatives {
        rows.union_with(&alternative.rows);
    }
    rows.intersect_with(&pool.open_rows);
    if rows.is_clear() {
        let first = constraint.wanted.alternatives().iter().find_map(|wanted| refused_label(problem, pool, wanted));
        return first.unwrap_or(Obstacle::Combination);
    }
    if let Some(obstacle) = too_small(problem, lot, pool, &rows) {
        return obstacle;
    }
    let fitting = || rows.ones().filter(|&row| fits(&lot.requests, &pool.variant(row).room));
    if fitting().next().is_none() {
        return Obstacle::NoSuchShape;
    }
    if let Some(port) = taken_port(lot, pool, fitting()) {
        return Obstacle::HostPort { port };
    }
    if let Some(obstacle) = problem.too_few_values.get(&(pool_index, lot_index)) {
        return obstacle.clone();
    }
    // A limit that alone shuts out every type that fits, or else the one that shuts out most of them.
    let shut_out = |(limit, left): &(&Limit, &i64)| {
        fitting().filter(|&row| limit.capacity_by_type[pool.table().rows()[row].type_index] > **left).count()
    };
    let strictest = pool.limits.iter().zip(limits_left).max_by_key(shut_out);
    strictest.map_or(Obstacle::Combination, |(limit, left)| Obstacle::Limit {
        resource: limit.resource.clone(),
        limit: limit.quantity(limit.most),
        used: limit.quantity(limit.most - left),
    })
}

/// The first label that the pool's nodes cannot have as the pod wants it.
fn refused_label(problem: &Problem<'_>, pool: &Pool<'_>, wanted: &Requirements) -> Option<Obstacle> {
    let is_refused = |key: &str, requirement: &Requirement| {
        let offered = pool.offered(key);
        !pool.admits_known(key, requirement) || !offered.iter().any(|state| state.intersects(requirement))
    };
    let (key, requirement) = wanted.iter().find(|(key, requirement)| is_refused(key, requirement))?;
    let offered = pool.offered(key);
    let is_unknown = offered.iter().all(|state| *state == Requirement::ABSENT);
    let is_resource = is_unknown && problem.base.pools.iter().any(|p| has_resource(p, key));
    let similar_key = if is_unknown && !is_resource { similar_key(key, pool.known_keys()) } else { None };
    Some(Obstacle::Label { key: key.to_owned(), wanted: requirement.clone(), offered, similar_key, is_resource })
}

/// Whether some instance type of the pool's catalog has a resource of this name.
fn has_resource(pool: &Pool<'_>, name: &str) -> bool {
    pool.catalog.types().iter().any(|t| t.capacity.get(name).is_some_and(|quantity| !quantity.is_zero()))
}

/// The first known key that has the same last part, or that contains `key` or is contained in it.
fn similar_key<'k>(key: &str, known: impl Iterator<Item = &'k str>) -> Option<String> {
    let known: BTreeSet<&str> = known.collect();
    let last_part = |key: &str| key.rsplit('/').next().unwrap_or(key).to_lowercase();
    let same_end = known.iter().find(|k| last_part(k) == last_part(key));
    let overlapping =
        || known.iter().find(|k| k.contains(last_part(key).as_str()) || key.contains(last_part(k).as_str()));
    same_end.or_else(overlapping).map(|k| (*k).to_owned())
}

/// A port that daemons take on all of these offerings, if they leave none of them to the pod.
fn taken_port(lot: &Lot, pool: &Pool<'_>, mut rows: impl Iterator<Item = usize>) -> Option<HostPort> {
    let first = rows.next()?;
    if pool.has_free_ports(first, &lot.host_ports) || rows.any(|row| pool.has_free_ports(row, &lot.host_ports)) {
        return None;
    }
    let taken = &pool.variant(first).host_ports;
    lot.host_ports.iter().find(|port| taken.iter().any(|t| t.clashes_with(port))).cloned()
}

/// The resource of which even the type with most of it has too little; the scarcest if there are several.
fn too_small(problem: &Problem<'_>, lot: &Lot, pool: &Pool<'_>, rows: &FixedBitSet) -> Option<Obstacle> {
    let axes = &problem.base.classes.axes;
    let most = |axis: usize| rows.ones().map(|row| pool.variant(row).room[axis]).max().unwrap_or(0).max(0);
    let short = (0..axes.names().len()).filter(|&axis| lot.requests[axis] > most(axis));
    let scarcity = |axis: usize| most(axis) as f64 / lot.requests[axis] as f64;
    let scarcest = short.min_by(|&a, &b| scarcity(a).total_cmp(&scarcity(b)))?;
    Some(Obstacle::TooSmall {
        resource: axes.names()[scarcest].clone(),
        requested: axes.quantity(scarcest, lot.requests[scarcest]),
        available: axes.quantity(scarcest, most(scarcest)),
    })
}
