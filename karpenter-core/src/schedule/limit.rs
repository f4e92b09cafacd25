//! The limits of a pool, and what its nodes use of them.

use std::collections::BTreeMap;

use super::amounts::{amount_ceil, amount_floor, amount_quantity};
use crate::{
    Catalog, InstanceType, Quantity, Requirements, ResourceList, ResourceName, Snapshot,
    api::{NodeClaim, NodePool},
    labels,
};

/// A limit of a pool on one resource.
#[derive(Clone, Debug)]
pub(super) struct Limit {
    pub(super) resource: ResourceName,
    pub(super) most: i64,
    /// What the pool's nodes have already.
    pub(super) used: i64,
    /// What a node of each instance type has, by the index of the type.
    pub(super) capacity_by_type: Vec<i64>,
    /// What the largest type takes of it.
    pub(super) largest: i64,
}

impl Limit {
    /// What new nodes may have; below nothing if there is more already.
    pub(super) const fn left(&self) -> i64 {
        self.most.saturating_sub(self.used)
    }

    /// The quantity of an amount of the limited resource.
    pub(super) fn quantity(&self, amount: i64) -> Quantity {
        amount_quantity(&self.resource, amount)
    }
}

/// The limits of a pool, and what its nodes use of them.
pub(super) fn limits_of(pool: &NodePool, snapshot: &Snapshot, catalog: &Catalog) -> Vec<Limit> {
    let limit = |(resource, quantity): (&ResourceName, Quantity)| {
        let capacity_by_type: Vec<i64> = catalog.types().iter().map(|t| size(resource, &t.capacity)).collect();
        Limit {
            resource: resource.clone(),
            most: amount_floor(resource, quantity),
            used: used(resource, pool, snapshot, catalog),
            largest: capacity_by_type.iter().copied().max().unwrap_or(0),
            capacity_by_type,
        }
    };
    pool.spec.limits.iter().map(limit).collect()
}

/// What the nodes of a pool have of a resource, or the most that can be counted. Those on their way out do not count, save where they
/// stay if others do not come.
fn used(resource: &ResourceName, pool: &NodePool, snapshot: &Snapshot, catalog: &Catalog) -> i64 {
    let mut used = 0;
    let mut exchanges: BTreeMap<usize, Sides> = BTreeMap::new();
    let mut count = |claim: Option<&str>, is_going: bool, size: i64| {
        let exchange = claim.and_then(|claim| snapshot.exchange_of(claim));
        match exchange.map(|exchange| (exchange.is_outgoing, exchanges.entry(exchange.number).or_default())) {
            Some((true, sides)) => sides.outgoing = sides.outgoing.saturating_add(size),
            _ if is_going => {}
            Some((false, sides)) => sides.incoming = sides.incoming.saturating_add(size),
            None => used = i64::saturating_add(used, size),
        }
    };
    for place in snapshot.places().iter().filter(|place| place.pool.as_deref() == Some(pool.name())) {
        count(place.claim.as_deref(), place.is_deleting, size(resource, &place.capacity));
    }
    let is_own = |c: &&NodeClaim| c.metadata.labels.get(labels::NODE_POOL).is_some_and(|own| own == pool.name());
    for claim in snapshot.unlaunched().iter().filter(is_own) {
        count(Some(claim.name()), claim.metadata.deletion_timestamp.is_some(), largest(resource, claim, catalog));
    }
    exchanges.values().map(|sides| sides.outgoing.max(sides.incoming)).fold(used, i64::saturating_add)
}

/// What the nodes have that go once others are there, and what those others have.
#[derive(Default)]
struct Sides {
    outgoing: i64,
    incoming: i64,
}

/// A claim that is not a machine yet may become the largest type that it names.
fn largest(resource: &ResourceName, claim: &NodeClaim, catalog: &Catalog) -> i64 {
    let requirements: Requirements = claim.spec.requirements.iter().collect();
    let named = |t: &&InstanceType| requirements.get(labels::INSTANCE_TYPE).is_none_or(|r| r.admits(Some(&t.name)));
    let sizes = catalog.types().iter().filter(named).map(|t| size(resource, &t.capacity));
    sizes.max().unwrap_or(0).max(size(resource, &claim.spec.resources.requests))
}

fn size(resource: &ResourceName, capacity: &ResourceList) -> i64 {
    match resource.as_str() {
        "nodes" => 1,
        name => capacity.get(name).map_or(0, |quantity| amount_ceil(resource, quantity)),
    }
}
