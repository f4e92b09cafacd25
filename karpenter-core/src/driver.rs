//! Carries decisions out on a [`CloudProvider`] and remembers what the cloud refused.
//!
//! The driver has no runtime, no clock and no task of its own. [`Driver::execute`] gives back a future that the shell
//! runs wherever it likes, and [`Driver::observe`] takes in what came of it; the shell says what time it is.
//!
//! The round of a controller: [`Driver::catalogs`], then [`Planner::plan`](crate::Planner::plan), then
//! [`Driver::launches`], each executed, each outcome observed.

use std::{collections::BTreeMap, fmt, future::Future, sync::Arc, time::Duration};

use crate::{
    Catalogs, CloudProvider, Plan, Snapshot, Timestamp,
    api::{NodeClaim, NodePool, ObjectKey},
    catalog::OfferingKey,
    provider::{CreateError, Deletion, ProviderError, ProviderId},
};

/// For how long an offering without capacity is avoided, unless the options say otherwise. Karpenter's EC2 provider
/// uses the same three minutes.
const DEFAULT_AVOID_FOR: Duration = Duration::from_mins(3);

/// Carries decisions out; see the [module](self).
#[derive(Clone)]
pub struct Driver {
    provider: Arc<dyn CloudProvider>,
    avoid_for: Duration,
    /// Offerings without capacity, and until when they are avoided. At most one entry for each offering there is.
    avoided: BTreeMap<OfferingKey, Timestamp>,
}

/// Something to do on the provider.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Action {
    /// Buy a machine for this claim.
    Launch(Box<NodeClaim>),
    /// Terminate this machine.
    Terminate(ProviderId),
}

/// What came of an [`Action`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// A machine was bought; the claim says which.
    Launched(Box<NodeClaim>),
    /// No machine was bought.
    LaunchFailed {
        /// The name of the claim.
        claim: String,
        /// Why.
        error: CreateError,
    },
    /// A machine is on its way out, or gone.
    Terminating {
        /// The machine.
        id: ProviderId,
        /// How far it got.
        deletion: Deletion,
    },
    /// It is not known whether a machine will go.
    TerminationFailed {
        /// The machine.
        id: ProviderId,
        /// Why.
        error: ProviderError,
    },
}

/// A claim to create, and the pods that it was planned for.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Launch {
    /// The claim.
    pub claim: NodeClaim,
    /// Its pods; [`SnapshotBuilder::nominate`](crate::SnapshotBuilder::nominate) them to it until they are bound.
    pub pods: Vec<ObjectKey>,
}

/// The catalogs of all pools, and the pools whose catalog could not be had.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct CatalogReport {
    /// What can be bought, without the offerings that are avoided.
    pub catalogs: Catalogs,
    /// The pools that have no catalog now, by name.
    pub failures: BTreeMap<String, ProviderError>,
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { provider, avoid_for, avoided } = self;
        let mut out = f.debug_struct("Driver");
        out.field("provider", &provider.name()).field("avoid_for", avoid_for).field("avoided", avoided).finish()
    }
}

impl Driver {
    /// Drives this provider.
    pub fn new(provider: Arc<dyn CloudProvider>) -> Self {
        Self { provider, avoid_for: DEFAULT_AVOID_FOR, avoided: BTreeMap::new() }
    }

    /// Avoids offerings without capacity for this long, instead of three minutes.
    pub fn avoid_for(mut self, duration: Duration) -> Self {
        self.avoid_for = duration;
        self
    }

    /// The offerings that are avoided now.
    pub fn avoided(&self, now: Timestamp) -> Vec<OfferingKey> {
        self.avoided.iter().filter(|(_, until)| now < **until).map(|(key, _)| key.clone()).collect()
    }

    /// Asks the provider what can be bought for each pool.
    pub async fn catalogs(&self, pools: &[NodePool], now: Timestamp) -> CatalogReport {
        let mut report = CatalogReport::default();
        for pool in pools {
            match self.provider.catalog(pool).await {
                Ok(catalog) => report.catalogs.insert(pool.name(), catalog),
                Err(error) => {
                    report.catalogs.insert_missing(pool.name(), error.as_missing_catalog());
                    report.failures.insert(pool.name().to_owned(), error);
                }
            }
        }
        report.catalogs = report.catalogs.without(&self.avoided(now));
        report
    }

    /// The claims of a plan. `identify` gives each a name and a uid, both new, from the name of its pool.
    ///
    /// # Panics
    /// If the plan was made from another snapshot, so that it names a pool that this one lacks.
    pub fn launches(
        plan: &Plan,
        snapshot: &Snapshot,
        mut identify: impl FnMut(&str) -> (String, String),
    ) -> Vec<Launch> {
        let launch = |planned: &crate::PlannedClaim| {
            let pool = snapshot.pool(&planned.node_pool);
            let pool = pool.unwrap_or_else(|| {
                panic!("the plan names the pool {}, which is not in the snapshot", planned.node_pool)
            });
            let (name, uid) = identify(pool.name());
            Launch { claim: planned.to_node_claim(pool, name, uid), pods: planned.pods.clone() }
        };
        plan.claims().iter().map(launch).collect()
    }

    /// Carries out one action. The future borrows nothing, so the shell may spawn it.
    pub fn execute(&self, action: Action) -> impl Future<Output = Outcome> + Send + use<> {
        let provider = self.provider.clone();
        async move {
            match action {
                Action::Launch(mut claim) => match provider.create(&claim).await {
                    Ok(launched) => {
                        launched.hydrate(&mut claim);
                        Outcome::Launched(claim)
                    }
                    Err(error) => Outcome::LaunchFailed { claim: claim.metadata.name, error },
                },
                Action::Terminate(id) => match provider.delete(&id).await {
                    Ok(deletion) => Outcome::Terminating { id, deletion },
                    Err(error) => Outcome::TerminationFailed { id, error },
                },
            }
        }
    }

    /// Takes in what came of an action: offerings without capacity are avoided from now on.
    pub fn observe(&mut self, outcome: &Outcome, now: Timestamp) {
        self.avoided.retain(|_, until| now < *until);
        if let Outcome::LaunchFailed { error: CreateError::InsufficientCapacity { offerings }, .. } = outcome {
            self.avoided.extend(offerings.iter().map(|key| (key.clone(), now + self.avoid_for)));
        }
    }
}
