//! Where the pending pods of a snapshot go.
//!
//! The way through: [`Planner::prepare`] sorts pods into classes of equal pods and compiles pools against their
//! catalogs; [`Problem::solve`] searches and gives back a [`Plan`].

mod amounts;
mod candidate;
mod claim;
mod class;
mod explain;
mod plan;
mod pool;
mod problem;
mod screen;
mod search;

pub use plan::{Answer, Plan, PlannedClaim, Warning};
pub use problem::Problem;

use crate::{Catalogs, Snapshot};

/// The most instance types in a claim: Karpenter's own limit.
const MAX_INSTANCE_TYPES: usize = 600;

/// How to plan.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PlannerOptions {
    /// The most instance types that a claim names; the cheapest are kept. 600 by default.
    pub max_instance_types: usize,
}

impl Default for PlannerOptions {
    fn default() -> Self {
        Self { max_instance_types: MAX_INSTANCE_TYPES }
    }
}

/// Finds places for pods.
///
/// ```
/// use karpenter_core::{
///     Catalogs, InstanceType, Planner, Price, Quantity, Snapshot,
///     api::{NodePool, Pod},
/// };
///
/// let large = InstanceType::named("large", [("cpu", Quantity::from_units(8)), ("memory", Quantity::from_bytes(32 << 30))])
///     .offering("on-demand", "zone-a", Price::per_hour(0.40).unwrap());
/// let snapshot = Snapshot::builder()
///     .pool(NodePool::named("general"))
///     .pods(Pod::named("web").cpu("500m").memory("1Gi").replicas(40))
///     .build()?;
/// let catalogs = Catalogs::shared(vec![large], snapshot.pools())?;
///
/// let plan = Planner::default().plan(&snapshot, &catalogs);
/// assert_eq!(plan.claims().len(), 3);
/// println!("{}", plan.why("default/web-3"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Planner {
    options: PlannerOptions,
}

impl Planner {
    /// A planner with these options.
    pub const fn new(options: PlannerOptions) -> Self {
        Self { options }
    }

    /// Finds places for the pending pods of a snapshot. The order of the input does not matter.
    pub fn plan(&self, snapshot: &Snapshot, catalogs: &Catalogs) -> Plan {
        self.prepare(snapshot, catalogs).solve()
    }

    /// The first half of [`Planner::plan`], for those who solve a problem more than once or time the halves.
    pub fn prepare<'a>(&'a self, snapshot: &'a Snapshot, catalogs: &'a Catalogs) -> Problem<'a> {
        Problem::new(&self.options, snapshot, catalogs)
    }
}

impl Problem<'_> {
    /// Searches for the cheapest set of nodes.
    pub fn solve(&self) -> Plan {
        search::Search::new(self).run()
    }
}
