//! Where the pending pods of a snapshot go.
//!
//! The way through: [`Planner::prepare`] sorts pods into classes of equal pods and compiles pools against their
//! catalogs; [`Problem::solve`] searches and gives back a [`Plan`].

mod amounts;
mod brace;
mod candidate;
mod claim;
mod class;
mod explain;
mod finish;
mod first_fit;
mod landing;
mod lot;
mod occupancy;
mod plan;
mod pool;
mod problem;
mod reservation;
mod screen;
mod search;
mod solve;
mod topology;
mod volumes;

pub use plan::{Answer, Plan, PlannedClaim, Warning};
pub use problem::Problem;

use std::sync::Arc;

use problem::{Base, Course};
use topology::Lessons;

use crate::{Catalogs, Snapshot};

/// The most instance types in a claim: Karpenter's own limit.
const MAX_INSTANCE_TYPES: usize = 600;

/// What nodes beyond the tightest plan may cost beside all others.
const SLACK: f64 = 0.06;

/// How to plan.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PlannerOptions {
    /// The most instance types that a claim names; the cheapest are kept. 600 by default.
    pub max_instance_types: usize,
    /// What becomes of preferences. They are respected by default.
    pub preferences: PreferencePolicy,
    /// What becomes of pods that could use a reservation of which nothing is left. They fall back by default.
    pub reservations: ReservationPolicy,
    /// What becomes of pods for which a pool cannot keep its `minValues`. They find no place by default.
    pub min_values: MinValuesPolicy,
    /// The most that further nodes may cost which let pods find a node in whichever order the kube-scheduler takes them,
    /// as a share of what all nodes of the cluster cost. 0.06 by default; without such nodes a few pods may have to wait
    /// for a further plan. Where no pod is left from an earlier plan, they do not make a plan dearer than Karpenter's.
    pub slack: f64,
}

/// What becomes of pods that could use a reservation of which nothing is left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReservationPolicy {
    /// They may use other capacity.
    #[default]
    Fallback,
    /// They wait: the machines of the reservation are launched first, and what the provider says then counts.
    Strict,
}

/// What becomes of pods for which a pool cannot keep as many values of a label as its `minValues` asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum MinValuesPolicy {
    /// They find no place in the pool.
    #[default]
    Strict,
    /// The claim keeps as many values as it can, and asks for no more.
    BestEffort,
}

/// What becomes of what pods only prefer: nodes, neighbours, and spreads that may be broken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum PreferencePolicy {
    /// A preference is a requirement as long as some node meets it; then it is given up, one at a time.
    #[default]
    Respect,
    /// Preferences are not looked at.
    Ignore,
}

impl Default for PlannerOptions {
    fn default() -> Self {
        Self {
            max_instance_types: MAX_INSTANCE_TYPES,
            preferences: PreferencePolicy::Respect,
            reservations: ReservationPolicy::Fallback,
            min_values: MinValuesPolicy::Strict,
            slack: SLACK,
        }
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
        let base = Base::new(&self.options, snapshot, catalogs);
        Problem::new(Arc::new(base), &Lessons::default(), Course::default())
    }
}
