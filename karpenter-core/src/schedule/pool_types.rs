//! Which instance types a pool can launch, and what rules out the others.

mod sieve;

use std::{cmp::Reverse, collections::BTreeSet};

use super::{
    amounts::Axes,
    pool::{Daemon, Pool, overdrawn},
    problem::daemons,
    reservation::Reservations,
};
use crate::{
    Catalog, Catalogs, InstanceType, Price, Quantity, ResourceList, ResourceName, Snapshot,
    api::NodePool,
    reason::{Obstacle, TypeObstacle, TypesRuledOut},
};
use sieve::Sieve;

/// Which instance types a pool can launch now for some pod, and what rules out the others.
///
/// Each type either remains or is ruled out, by the first step that it does not pass: the catalog of the pool, the labels that the
/// pool asks for, one offering that meets all of them, offerings that are available, reservations, room beside the system and the
/// daemons, and limits. Several requirements or limits may rule out one type. Which of the types that remain a pod can use is for the
/// plan to say.
///
/// ```
/// use karpenter_core::{
///     Catalogs, InstanceType, Price, Quantity, Snapshot,
///     api::{NodePool, NodeSelectorRequirement, Operator},
///     schedule::PoolTypes,
/// };
///
/// let machine = |name, zone| {
///     InstanceType::named(name, [("cpu", Quantity::from_units(4))]).offering("on-demand", zone, Price::ZERO)
/// };
/// let zone = NodeSelectorRequirement::new("topology.kubernetes.io/zone", Operator::In, ["a"]);
/// let snapshot = Snapshot::builder().pool(NodePool::named("general").require(zone)).build()?;
/// let catalogs = Catalogs::shared(vec![machine("here", "a"), machine("there", "b")], snapshot.pools())?;
///
/// let types = PoolTypes::of(&snapshot, &catalogs, "general").expect("there is such a pool");
/// assert_eq!(types.remaining[0].name, "here");
/// let there = "the pool wants topology.kubernetes.io/zone In [a], but they have b";
/// assert_eq!(types.ruled_out[0].obstacle.to_string(), there);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct PoolTypes {
    /// Why no node may be made of the pool now, whatever the types, or that no type meets its requirements.
    pub obstacle: Option<Obstacle>,
    /// How many types there are: those in the catalog of the pool, and those that only the catalogs of other pools have.
    pub type_count: usize,
    /// What rules types out, that which rules out most of them first.
    pub ruled_out: Vec<TypesRuledOut>,
    /// The types that some pod may be given, the cheapest first.
    pub remaining: Vec<RemainingType>,
    /// The limits of the pool and what its nodes have of them, by resource.
    pub limits: Vec<LimitUse>,
    /// The labels of which a claim must keep several values, and how many the remaining types name.
    pub min_values: Vec<ValueCount>,
}

/// An instance type that a pool can launch.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct RemainingType {
    /// The name.
    pub name: String,
    /// The price of the cheapest of its offerings that the pool can buy now.
    pub cheapest_price: Price,
    /// The zones of these offerings, in order.
    pub zones: Vec<String>,
    /// Their capacity types, in order.
    pub capacity_types: Vec<String>,
}

/// What the nodes of a pool have of a limited resource.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LimitUse {
    /// The resource, or `nodes` for their number.
    pub resource: ResourceName,
    /// The limit.
    pub limit: Quantity,
    /// What the nodes of the pool have. Those on their way out do not count, save where they stay if the nodes for which they make
    /// room do not come.
    pub used: Quantity,
}

/// How many values of a label a claim must keep, and how many there are.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ValueCount {
    /// The key of the label.
    pub key: String,
    /// How many values the pool asks for (`minValues`).
    pub min_values: u32,
    /// How many the remaining types name.
    pub available: usize,
}

impl PoolTypes {
    /// Looks at a pool by its name; `None` if the snapshot has no such pool.
    pub fn of(snapshot: &Snapshot, catalogs: &Catalogs, pool: &str) -> Option<Self> {
        snapshot.pool(pool).map(|source| types_of(source, snapshot, catalogs))
    }
}

fn types_of(source: &NodePool, snapshot: &Snapshot, catalogs: &Catalogs) -> PoolTypes {
    let daemons = daemons(snapshot);
    // What every pod takes; of any other resource a machine without daemons cannot have too little.
    let of_pods = [ResourceName::Cpu, ResourceName::Memory, ResourceName::Pods];
    let nothing = Catalog::new(Vec::new()).expect("there is no type that could break a rule");
    let catalog = catalogs.get(source.name()).map_or(&nothing, AsRef::as_ref);
    let allocatable: Vec<ResourceList> = catalog.types().iter().map(InstanceType::allocatable).collect();
    let of_types = allocatable.iter().flat_map(overdrawn).cloned();
    let of_all: ResourceList = of_pods.into_iter().chain(of_types).map(|name| (name, Quantity::ZERO)).collect();
    let axes = Axes::of(daemons.iter().map(|daemon| &daemon.requests).chain([&of_all]));
    let mut pools = others(source, snapshot, catalogs, &daemons, &axes);
    pools.push(Pool::compiled(source, catalog, snapshot, &daemons, &axes));
    let pool = pools.last().expect("one was added just now");
    let obstacle = match Pool::ready_catalog(source, catalogs) {
        Err(obstacle) => Some(*obstacle),
        Ok(_) if pool.rows.is_clear() => Some(Obstacle::NoInstanceTypes),
        Ok(_) => None,
    };
    let own = Sieve::new(pool, &axes, &Reservations::new(snapshot, &pools)).types(obstacle);
    match catalogs.get(source.name()) {
        Some(catalog) => own.with_those_of_others(catalog, catalogs),
        None => own,
    }
}

impl PoolTypes {
    /// Adds the types that only the catalogs of other pools have.
    fn with_those_of_others(mut self, own: &Catalog, catalogs: &Catalogs) -> Self {
        let own: BTreeSet<&str> = own.types().iter().map(|one| one.name.as_str()).collect();
        let all = catalogs.all().flat_map(Catalog::types).map(|one| one.name.as_str());
        let others: BTreeSet<&str> = all.filter(|name| !own.contains(name)).collect();
        if !others.is_empty() {
            self.type_count += others.len();
            let types = others.into_iter().map(str::to_owned).collect::<Vec<_>>();
            let alone_count = types.len();
            self.ruled_out.push(TypesRuledOut { obstacle: TypeObstacle::OtherPools, types, alone_count });
            self.ruled_out.sort_by_key(|group| Reverse(group.types.len()));
        }
        self
    }
}

/// The other pools of which nodes can be made; their nodes draw on the same reservations.
fn others<'a>(
    source: &NodePool,
    snapshot: &'a Snapshot,
    catalogs: &'a Catalogs,
    daemons: &[Daemon],
    axes: &Axes,
) -> Vec<Pool<'a>> {
    let others = snapshot.pools().iter().filter(|other| other.name() != source.name());
    others.filter_map(|other| Pool::new(other, snapshot, catalogs, daemons, axes, None).ok()).collect()
}
