//! Where the pending pods go.

mod plan;

pub use plan::{Answer, Plan, PlannedClaim, Warning};

use crate::{Catalogs, Snapshot};

/// How to plan.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct PlannerOptions {}

/// Plans.
#[derive(Clone, Debug, Default)]
pub struct Planner {
    options: PlannerOptions,
}

impl Planner {
    /// A planner with these options.
    pub const fn new(options: PlannerOptions) -> Self {
        Self { options }
    }

    /// Plans.
    pub fn plan(&self, snapshot: &Snapshot, catalogs: &Catalogs) -> Plan {
        let _ = (&self.options, snapshot, catalogs);
        Plan::default()
    }
}
