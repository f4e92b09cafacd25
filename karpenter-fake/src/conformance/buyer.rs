//! The claims that the kit makes.

use std::sync::Arc;

use karpenter_core::{
    Catalog, Catalogs, PlannedClaim, Planner, PlannerOptions, ResourceList, Snapshot,
    api::{NodeClaim, NodePool, NodePoolStatus, Pod, Toleration},
    schedule::MinValuesPolicy,
};

/// The most types that a claim of the kit names; the cheapest are taken.
const MAX_TYPES: usize = 5;

/// Makes claims as the engine does, for one small pod that bears all taints.
pub(super) struct Buyer {
    pool: NodePool,
    planned: PlannedClaim,
    pub(super) run_id: String,
}

impl Buyer {
    /// A buyer for this pool, or why nothing can be bought for it.
    pub(super) fn new(pool: &NodePool, catalog: &Arc<Catalog>, run_id: String) -> Result<Self, String> {
        let planned = planned(pool, catalog)?;
        Ok(Self { pool: pool.clone(), planned, run_id })
    }

    /// A claim for the cheapest types that the pool allows.
    pub(super) fn claim(&self, name: &str) -> NodeClaim {
        let name = format!("{}-{name}", self.run_id);
        self.planned.to_node_claim(&self.pool, name.clone(), name)
    }
}

fn planned(pool: &NodePool, catalog: &Arc<Catalog>) -> Result<PlannedClaim, String> {
    let mut open = pool.clone();
    // What the pool is at now, and what it may have at most, is nothing to the provider.
    (open.status, open.spec.limits, open.spec.replicas) = (NodePoolStatus::default(), ResourceList::new(), None);
    let pod = Pod::named("conformance").toleration(Toleration::everything());
    let snapshot = Snapshot::builder().pool(open).pods(pod).build().map_err(|error| error.to_string())?;
    let mut catalogs = Catalogs::new();
    catalogs.insert(pool.name(), catalog.clone());
    let mut options = PlannerOptions::default();
    (options.max_instance_types, options.min_values) = (MAX_TYPES, MinValuesPolicy::BestEffort);
    let plan = Planner::new(options).plan(&snapshot, &catalogs);
    let why = || {
        let reason = plan.unplaced().values().next().map(ToString::to_string).unwrap_or_default();
        format!("nothing can be bought for pool {}: {reason}", pool.name())
    };
    plan.claims().first().cloned().ok_or_else(why)
}
