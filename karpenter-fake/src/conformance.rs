//! A conformance kit for providers: checks what the docs of [`CloudProvider`] promise, as far as that can be seen from outside.
//!
//! It buys two machines, by claims such as the engine makes for one small pod of the pool, looks at them from all sides, and gives
//! them back. It reads the provider's events from the beginning. Only the catalog is looked at as a whole. A provider that
//! passes can be driven by the engine. [`Check`] lists what is checked.
//!
//! It cannot see what shows only over time, under load or to somebody who knows the cloud better than its provider does:
//!
//! - whether the cheapest offering is bought: which one, of those that a claim allows, is the provider's choice;
//! - whether an offering is sold out that a refusal names, and what a refusal says that does not happen during the run;
//! - whether `list` leaves out machines of others, and whether errors are errors: it knows its own machines only;
//! - whether ids are ever given to other machines later, and how long `create` takes: it has no clock;
//! - whether drift and events come when they should, and repair policies are wise: nothing happens to its machines;
//! - whether the nodes come up, with the labels and the room that the provider tells of.

mod buyer;
mod catalog;
mod ending;
mod events;
mod machine;
mod refusal;
mod report;
mod together;

use std::{
    fmt,
    future::Future,
    hash::{BuildHasher, Hasher, RandomState},
    sync::Arc,
};

use karpenter_core::{
    Catalog, CloudProvider,
    api::{NodeClaim, NodePool},
    provider::{CreateError, Instance, Launched, ProviderId},
};

use buyer::Buyer;
pub use report::{Check, Report, Verdict};

/// How often a machine that was deleted is asked for, unless said otherwise.
const DEFAULT_POLLS: usize = 60;

/// Checks a provider; see the [module](self).
///
/// ```
/// use std::sync::Arc;
/// use karpenter_core::api::NodePool;
/// use karpenter_fake::{Conformance, FakeCloud, generated_catalog};
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
/// let provider = Arc::new(FakeCloud::new(generated_catalog()));
/// let pause = || tokio::time::sleep(std::time::Duration::from_millis(1));
/// let report = Conformance::new(provider, NodePool::named("general")).run(pause).await;
/// assert!(report.is_passed(), "{report}");
/// # });
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct Conformance {
    provider: Arc<dyn CloudProvider>,
    pool: NodePool,
    polls: usize,
    run_id: Option<String>,
}

impl fmt::Debug for Conformance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Conformance")
            .field("provider", &self.provider.name())
            .field("pool", &self.pool.name())
            .field("polls", &self.polls)
            .field("run_id", &self.run_id)
            .finish_non_exhaustive()
    }
}

/// A run in progress.
struct Run<'k> {
    polls: usize,
    provider: &'k dyn CloudProvider,
    catalog: Arc<Catalog>,
    buyer: Buyer,
    report: Report,
}

impl Conformance {
    /// Checks this provider with claims of this pool.
    pub fn new(provider: Arc<dyn CloudProvider>, pool: NodePool) -> Self {
        Self { provider, pool, polls: DEFAULT_POLLS, run_id: None }
    }

    /// Asks so often whether a deleted machine is gone before that is a failure, instead of 60 times.
    pub fn polls(self, polls: usize) -> Self {
        Self { polls, ..self }
    }

    /// Begins the names and uids of all claims so. Without it each run has an id of its own, because the uid of a claim is used
    /// once: a cloud may know it, as that of a machine which is gone, for days. Who sets it sees to it that it is new.
    pub fn run_id(self, run_id: impl Into<String>) -> Self {
        Self { run_id: Some(run_id.into()), ..self }
    }

    /// Runs all checks. `pause` is awaited between two questions whether a machine is gone; it comes from the runtime
    /// of the caller.
    ///
    /// Machines are given back whatever fails. A check that could not be made, because an earlier one failed or there was
    /// nothing to look at, is not in the report.
    pub async fn run<F: Future<Output = ()>>(&self, pause: impl FnMut() -> F) -> Report {
        let mut report = Report::new(self.provider.name());
        let catalog = match self.provider.catalog(&self.pool).await {
            Ok(catalog) => catalog,
            Err(error) => {
                report.judge(Check::Catalog, "catalog", Some(error.to_string()));
                return report;
            }
        };
        report.judge(Check::Catalog, "catalog", None);
        catalog::check(&mut report, &catalog);
        let bought = Buyer::new(&self.pool, &catalog, self.run_id.clone().unwrap_or_else(new_run_id));
        report.judge(Check::CatalogHasOfferings, "catalog", bought.as_ref().err().cloned());
        let Ok(buyer) = bought else { return report };
        let mut run = Run { polls: self.polls, provider: &*self.provider, catalog, buyer, report };
        run.check(pause).await;
        run.report
    }
}

/// A name that no other run has.
#[expect(
    clippy::disallowed_methods,
    reason = "nothing is decided by it, and whoever wants a seed sets the id of the run"
)]
fn new_run_id() -> String {
    format!("conformance-{:016x}", RandomState::new().build_hasher().finish())
}

impl Run<'_> {
    async fn check<F: Future<Output = ()>>(&mut self, pause: impl FnMut() -> F) {
        self.check_repairs();
        self.check_unknown().await;
        self.check_impossible().await;
        let first = self.buyer.claim("first");
        let Some(launched) = self.check_create(&first).await else { return };
        self.check_bought(&first, &launched);
        let mut bought = self.check_identity(&first, &launched).await;
        bought.extend(self.check_together(&launched).await);
        let is_found = self.check_found(&launched).await;
        self.check_drift(&first, &launched).await;
        self.check_events().await;
        self.check_delete(&launched.instance.id).await;
        if is_found {
            self.check_gone(&launched.instance.id, pause).await;
        }
        self.check_events().await;
        bought.retain(|id| *id != launched.instance.id);
        for id in bought {
            // The checks on deletion are made with the first machine; these are only given back.
            if let Err(error) = self.provider.delete(&id).await {
                self.fail(Check::DeleteStarts, "delete", error.to_string());
            }
        }
    }

    async fn check_create(&mut self, claim: &NodeClaim) -> Option<Launched> {
        let created = self.create(claim).await;
        self.judge(Check::CreateBuys, "create", created.as_ref().err().map(ToString::to_string));
        created.ok()
    }

    /// One machine for a claim however often it asks. Gives back all that were bought.
    async fn check_identity(&mut self, first: &NodeClaim, launched: &Launched) -> Vec<ProviderId> {
        let id = &launched.instance.id;
        let mut bought = vec![id.clone()];
        let uid = &first.metadata.uid;
        let problem = match self.create(first).await {
            Ok(again) if again.instance.id == *id => None,
            Ok(again) => {
                let problem = format!("uid {uid} got {id} first and {} then", again.instance.id);
                bought.push(again.instance.id);
                Some(problem)
            }
            Err(error) => Some(format!("uid {uid} got {id} first, and then: {error}")),
        };
        self.judge(Check::CreateIsIdempotent, "create", problem);
        bought
    }

    /// Asks for a machine, and looks at what a refusal names.
    async fn create(&mut self, claim: &NodeClaim) -> Result<Launched, CreateError> {
        let created = self.provider.create(claim).await;
        if let Err(error) = &created {
            self.check_refusal(claim, error);
        }
        created
    }

    fn fail(&mut self, check: Check, method: &str, message: String) {
        self.judge(check, method, Some(message));
    }

    /// Notes a check; without a problem it is passed.
    fn judge(&mut self, check: Check, method: &str, problem: Option<String>) {
        self.report.judge(check, method, problem);
    }
}

fn ids(instances: &[Instance]) -> String {
    instances.iter().map(|i| i.id.as_str()).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests;
