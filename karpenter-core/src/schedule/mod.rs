//! Where the pending pods of a snapshot go.
//!
//! The way through: [`Planner::prepare`] sorts pods into classes of equal pods and compiles pools against their
//! catalogs; [`Problem::solve`] searches and gives back a [`Plan`].

mod amounts;
mod candidate;
mod claim;
mod class;
mod explain;
mod finish;
mod lot;
mod occupancy;
mod plan;
mod pool;
mod problem;
mod reservation;
mod screen;
mod search;
mod topology;
mod volumes;

pub use plan::{Answer, Plan, PlannedClaim, Warning};
pub use problem::Problem;

use std::sync::Arc;

use problem::{Aim, Base};
use search::Search;
use topology::Lessons;

use crate::{Catalogs, Reason, Snapshot, reason::Obstacle};

/// The most instance types in a claim: Karpenter's own limit.
const MAX_INSTANCE_TYPES: usize = 600;

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
        Problem::new(Arc::new(base), &Lessons::default(), Aim::Bill)
    }
}

/// The most searches in which the pods of a class may be divided anew. After these, classes whose pods do not all find
/// nodes are given up one search at a time.
const MAX_DIVISIONS: usize = 12;

impl Problem<'_> {
    /// Searches for the cheapest set of nodes; where limits leave pods without one, for the set that leaves the fewest.
    pub fn solve(&self) -> Plan {
        let plan = self.divide_and_search();
        if !plan.unplaced.values().any(Reason::is_of_limits) {
            return plan;
        }
        let for_pods = Problem::new(self.base.clone(), &Lessons::default(), Aim::Pods).divide_and_search();
        if for_pods.unplaced.len() < plan.unplaced.len() { for_pods } else { plan }
    }

    /// Searches, and divides classes among domains anew for as long as searches find domains to be full.
    fn divide_and_search(&self) -> Plan {
        let search = Search::new(self).run();
        let mut lessons = Lessons::default();
        let Some(mut learned) = self.lots.lessons(search.planned(), &lessons) else { return search.into_plan() };
        let mut divisions = 1;
        loop {
            if divisions >= MAX_DIVISIONS {
                learned.give_up(&lessons);
            }
            lessons = learned;
            let divided = Problem::new(self.base.clone(), &lessons, self.aim);
            let search = Search::new(&divided).run();
            match divided.lots.lessons(search.planned(), &lessons) {
                Some(next) => learned = next,
                None => return search.into_plan(),
            }
            divisions += 1;
        }
    }
}

impl Reason {
    /// Whether limits of a pool are in the way.
    fn is_of_limits(&self) -> bool {
        let Self::NoPlace { pools, .. } = self else { return false };
        pools.iter().flat_map(|pool| &pool.shut_out).any(|types| matches!(types.obstacle, Obstacle::Limit { .. }))
    }
}
