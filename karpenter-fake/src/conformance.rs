//! A conformance kit for providers: checks what the docs of [`CloudProvider`] promise.
//!
//! It buys two of the cheapest machines that the pool allows, looks at them from all sides and gives them back. Only the
//! catalog is looked at as a whole. A provider that passes can be driven by the engine.

mod catalog;
mod machine;
mod report;

use std::{future::Future, sync::Arc};

use karpenter_core::{
    Catalog, CloudProvider, Price, Requirements,
    api::{NodeClaim, NodePool, NodeSelectorRequirement, Operator},
    labels,
    provider::{CreateError, Instance, Launched, ProviderId},
};

pub use report::{Check, Report, Verdict};

/// How often a machine that was deleted is asked for, unless said otherwise.
const DEFAULT_POLLS: usize = 60;
/// The most types that a claim of the kit names; the cheapest are taken.
const MAX_TYPES: usize = 5;

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
    run_id: String,
}

/// A run in progress.
struct Run<'k> {
    kit: &'k Conformance,
    provider: &'k dyn CloudProvider,
    report: Report,
}

impl Conformance {
    /// Checks this provider with claims of this pool.
    pub fn new(provider: Arc<dyn CloudProvider>, pool: NodePool) -> Self {
        Self { provider, pool, polls: DEFAULT_POLLS, run_id: "conformance".to_owned() }
    }

    /// Asks so often whether a deleted machine is gone before that is a failure, instead of 60 times.
    pub fn polls(self, polls: usize) -> Self {
        Self { polls, ..self }
    }

    /// Begins the names and uids of all claims so, instead of with `conformance`. Runs against one account at the same
    /// time need different ones.
    pub fn run_id(self, run_id: impl Into<String>) -> Self {
        Self { run_id: run_id.into(), ..self }
    }

    /// Runs all checks. `pause` is awaited between two questions whether a machine is gone; it comes from the runtime
    /// of the caller.
    ///
    /// Machines are given back whatever fails. A check that could not be made because an earlier one failed is not in
    /// the report.
    pub async fn run<F: Future<Output = ()>>(&self, pause: impl FnMut() -> F) -> Report {
        let mut run = Run { kit: self, provider: &*self.provider, report: Report::new(self.provider.name()) };
        run.check(pause).await;
        run.report
    }

    /// A claim of the pool for these types.
    fn claim(&self, name: &str, types: &[String]) -> NodeClaim {
        let template = &self.pool.spec.template;
        let mut claim = NodeClaim::named(format!("{}-{name}", self.run_id));
        claim.metadata.uid = format!("{}-{name}", self.run_id);
        claim.metadata.labels.clone_from(&template.metadata.labels);
        claim.metadata.labels.insert(labels::NODE_POOL.to_owned(), self.pool.name().to_owned());
        claim.spec.node_class_ref = template.spec.node_class_ref.clone();
        claim.spec.requirements.clone_from(&template.spec.requirements);
        claim.spec.taints.clone_from(&template.spec.taints);
        let named = NodeSelectorRequirement::new(labels::INSTANCE_TYPE, Operator::In, types);
        claim.spec.requirements.push(named);
        claim
    }

    /// The cheapest types that the pool allows.
    fn cheapest_types(&self, catalog: &Catalog) -> Vec<String> {
        let wanted: Requirements = self.pool.spec.template.spec.requirements.iter().collect();
        let mut found: Vec<(Price, String)> = Vec::new();
        for instance_type in catalog.types() {
            let buyable = instance_type.offerings.iter().enumerate().filter(|(i, offering)| {
                let mut has = instance_type.requirements.clone();
                offering.requirements.iter().for_each(|(key, r)| has.add(key, r.clone()));
                catalog.is_available(&instance_type.name, *i) && wanted.conflict(&has).is_none()
            });
            found.extend(buyable.map(|(_, o)| o.price).min().map(|price| (price, instance_type.name.clone())));
        }
        found.sort();
        found.into_iter().map(|(_, name)| name).take(MAX_TYPES).collect()
    }
}

impl Run<'_> {
    async fn check<F: Future<Output = ()>>(&mut self, pause: impl FnMut() -> F) {
        let catalog = match self.provider.catalog(&self.kit.pool).await {
            Ok(catalog) => catalog,
            Err(error) => return self.fail(Check::Catalog, "catalog", error.to_string()),
        };
        self.pass(Check::Catalog);
        self.check_catalog(&catalog);
        let types = self.kit.cheapest_types(&catalog);
        if types.is_empty() {
            let message = format!("no available offering meets the requirements of pool {}", self.kit.pool.name());
            return self.fail(Check::CatalogHasOfferings, "catalog", message);
        }
        self.pass(Check::CatalogHasOfferings);
        self.check_unknown().await;
        self.check_impossible(&types).await;
        let first = self.kit.claim("first", &types);
        let Some(launched) = self.check_create(&first).await else { return };
        self.check_bought(&catalog, &first, &launched);
        let mut bought = self.check_identity(&first, &launched, &types).await;
        let is_found = self.check_found(&launched).await;
        self.check_delete(&launched.instance.id).await;
        if is_found {
            self.check_gone(&launched.instance.id, pause).await;
        }
        bought.retain(|id| *id != launched.instance.id);
        for id in bought {
            // The checks on deletion are made with the first machine; these are only given back.
            if let Err(error) = self.provider.delete(&id).await {
                self.fail(Check::DeleteStarts, "delete", error.to_string());
            }
        }
    }

    async fn check_create(&mut self, claim: &NodeClaim) -> Option<Launched> {
        let created = self.provider.create(claim).await;
        self.judge(Check::CreateBuys, "create", created.as_ref().err().map(ToString::to_string));
        created.ok()
    }

    /// One machine for a claim however often it asks, another for another claim. Gives back all that were bought.
    async fn check_identity(&mut self, first: &NodeClaim, launched: &Launched, types: &[String]) -> Vec<ProviderId> {
        let id = &launched.instance.id;
        let mut bought = vec![id.clone()];
        let uid = &first.metadata.uid;
        let problem = match self.provider.create(first).await {
            Ok(again) if again.instance.id == *id => None,
            Ok(again) => {
                let problem = format!("uid {uid} got {id} first and {} then", again.instance.id);
                bought.push(again.instance.id);
                Some(problem)
            }
            Err(error) => Some(format!("uid {uid} got {id} first, and then: {error}")),
        };
        self.judge(Check::CreateIsIdempotent, "create", problem);
        let second = self.kit.claim("second", types);
        let problem = match self.provider.create(&second).await {
            Ok(other) if other.instance.id == *id => {
                Some(format!("uids {uid} and {} both got {id}", second.metadata.uid))
            }
            Ok(other) => {
                bought.push(other.instance.id);
                None
            }
            // There may be one such machine only; that is no breach.
            Err(CreateError::InsufficientCapacity { .. }) => None,
            Err(error) => Some(error.to_string()),
        };
        self.judge(Check::ClaimsGetMachinesOfTheirOwn, "create", problem);
        bought
    }

    fn pass(&mut self, check: Check) {
        self.report.add(check, None);
    }

    fn fail(&mut self, check: Check, method: &str, message: String) {
        self.judge(check, method, Some(message));
    }

    /// Notes a check; without a problem it is passed.
    fn judge(&mut self, check: Check, method: &str, problem: Option<String>) {
        let provider = self.provider.name();
        let message = problem.map(|problem| format!("{provider}: {method}: {problem}"));
        self.report.add(check, message);
    }
}

fn ids(instances: &[Instance]) -> String {
    instances.iter().map(|i| i.id.as_str()).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests;
