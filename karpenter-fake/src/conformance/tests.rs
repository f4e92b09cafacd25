use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use karpenter_core::{
    Catalog, CloudProvider, InstanceType, Price, Quantity, ResourceName, Timestamp,
    api::{NodeClaim, NodePool},
    labels,
    provider::{CreateError, Deletion, Instance, Launched, ProviderError, ProviderErrorKind, ProviderId},
};

use super::{Check, Conformance, Report};
use crate::{FakeCloud, generated_catalog};

/// A way to break the contract.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fault {
    None,
    NotIdempotent,
    SharesMachines,
    LiesAboutAllocatable,
    LiesAboutUid,
    ForgetsLabels,
    BuysOtherTypes,
    BuysTheImpossible,
    FailsOnTheImpossible,
    ListsNothing,
    FindsNothing,
    NeverForgets,
    KeepsListing,
    DeletesOnce,
    StartsForGone,
    FailsOnUnknown,
    NoCatalog,
}

struct Broken {
    cloud: FakeCloud,
    fault: Fault,
    calls: std::sync::atomic::AtomicU64,
    seen: std::sync::Mutex<Vec<Instance>>,
}

impl Broken {
    fn new(fault: Fault) -> Self {
        let cloud = FakeCloud::new(generated_catalog()).termination_delay(Duration::from_secs(2));
        Self { cloud, fault, calls: std::sync::atomic::AtomicU64::new(0), seen: std::sync::Mutex::default() }
    }

    fn error(operation: &'static str) -> ProviderError {
        let (provider, message) = ("broken".to_owned(), "boom".to_owned());
        ProviderError::new(provider, operation, ProviderErrorKind::Other, message)
    }

    fn seen(&self) -> Vec<Instance> {
        self.seen.lock().expect("no panic").clone()
    }

    /// The claim as the broken provider takes it.
    fn mistaken(&self, claim: &NodeClaim) -> NodeClaim {
        let mut claim = claim.clone();
        let call = self.calls.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let is_impossible = claim.metadata.uid.ends_with("impossible");
        match self.fault {
            Fault::NotIdempotent => claim.metadata.uid += &call.to_string(),
            Fault::SharesMachines if !is_impossible => claim.metadata.uid = "conformance-first".to_owned(),
            Fault::BuysTheImpossible if is_impossible => {
                claim.spec.requirements.pop();
            }
            Fault::BuysOtherTypes => {
                for requirement in claim.spec.requirements.iter_mut().filter(|r| r.key == labels::INSTANCE_TYPE) {
                    requirement.values = vec!["m-96x-amd64-linux".to_owned()];
                }
            }
            _ => {}
        }
        claim
    }
}

#[async_trait]
impl CloudProvider for Broken {
    fn name(&self) -> &'static str {
        "broken"
    }

    async fn catalog(&self, pool: &NodePool) -> Result<Arc<Catalog>, ProviderError> {
        if self.fault == Fault::NoCatalog { Err(Self::error("catalog")) } else { self.cloud.catalog(pool).await }
    }

    async fn create(&self, claim: &NodeClaim) -> Result<Launched, CreateError> {
        let mut launched = match self.cloud.create(&self.mistaken(claim)).await {
            Err(CreateError::NothingCompatible { .. }) if self.fault == Fault::FailsOnTheImpossible => {
                return Err(Self::error("create").into());
            }
            other => other?,
        };
        launched.instance.claim_uid.clone_from(&claim.metadata.uid);
        match self.fault {
            Fault::LiesAboutAllocatable => {
                launched.allocatable.insert(ResourceName::Memory, Quantity::from_bytes(1));
            }
            Fault::LiesAboutUid => launched.instance.claim_uid = "other".to_owned(),
            Fault::ForgetsLabels => {
                Arc::make_mut(&mut launched.instance.labels).remove(labels::ZONE);
            }
            _ => {}
        }
        self.seen.lock().expect("no panic").push(launched.instance.clone());
        Ok(launched)
    }

    async fn delete(&self, id: &ProviderId) -> Result<Deletion, ProviderError> {
        let found = self.cloud.get(id).await?;
        match self.fault {
            Fault::DeletesOnce if found.as_ref().is_some_and(|i| i.is_terminating) => Err(Self::error("delete")),
            Fault::StartsForGone if found.is_none() && self.seen().iter().any(|i| i.id == *id) => Ok(Deletion::Started),
            Fault::FailsOnUnknown if !self.seen().iter().any(|i| i.id == *id) => Err(Self::error("delete")),
            _ => self.cloud.delete(id).await,
        }
    }

    async fn get(&self, id: &ProviderId) -> Result<Option<Instance>, ProviderError> {
        let found = self.named(self.cloud.get(id).await?);
        match self.fault {
            Fault::FindsNothing => Ok(None),
            Fault::NeverForgets => Ok(self.seen().into_iter().find(|i| i.id == *id)),
            _ => Ok(found),
        }
    }

    async fn list(&self) -> Result<Vec<Instance>, ProviderError> {
        match self.fault {
            Fault::ListsNothing => Ok(Vec::new()),
            Fault::KeepsListing => Ok(self.seen()),
            _ => Ok(self.cloud.list().await?.into_iter().filter_map(|i| self.named(Some(i))).collect()),
        }
    }
}

impl Broken {
    /// The machine with the uid under which it was handed out.
    fn named(&self, found: Option<Instance>) -> Option<Instance> {
        let mut found = found?;
        let seen = self.seen().into_iter().find(|i| i.id == found.id);
        found.claim_uid = seen.map_or(found.claim_uid, |i| i.claim_uid);
        Some(found)
    }
}

/// Every pause is a second.
fn run(provider: Arc<dyn CloudProvider>, pass_time: impl Fn(Timestamp)) -> Report {
    let mut seconds = 0;
    let pause = || {
        seconds += 1;
        pass_time(Timestamp::from_millis(seconds * 1000));
        std::future::ready(())
    };
    let kit = Conformance::new(provider, NodePool::named("general")).polls(5);
    tokio::runtime::Builder::new_current_thread().build().expect("a runtime").block_on(kit.run(pause))
}

fn failures(fault: Fault) -> Vec<Check> {
    let broken = Arc::new(Broken::new(fault));
    let report = run(broken.clone(), |now| broken.cloud.set_now(now));
    for verdict in report.failures() {
        let message = verdict.failure.as_deref().expect("a failure");
        assert!(message.starts_with("broken: "), "{message}");
    }
    report.failures().map(|v| v.check).collect()
}

#[test]
fn the_fake_cloud_conforms_and_is_empty_afterwards() {
    let cloud = Arc::new(FakeCloud::new(generated_catalog()).termination_delay(Duration::from_secs(3)));
    let report = run(cloud.clone(), |now| cloud.set_now(now));
    assert!(report.is_passed(), "{report}");
    assert_eq!(report.verdicts().len(), 24, "{report:?}");
    cloud.set_now(Timestamp::from_millis(60_000));
    assert!(cloud.machine_counts().is_empty());
    assert_eq!(report.to_string(), "fake: 24 of 24 checks passed");
}

#[test]
fn each_breach_fails_the_check_that_is_meant_for_it() {
    for (fault, checks) in [
        (Fault::None, &[][..]),
        (Fault::NoCatalog, &[Check::Catalog]),
        (Fault::NotIdempotent, &[Check::CreateIsIdempotent]),
        (Fault::SharesMachines, &[Check::ClaimsGetMachinesOfTheirOwn]),
        (Fault::LiesAboutAllocatable, &[Check::MachineHasWhatWasPromised]),
        (Fault::LiesAboutUid, &[Check::MachineNamesItsClaim]),
        (Fault::ForgetsLabels, &[Check::MachineIsLabelled]),
        (Fault::BuysOtherTypes, &[Check::MachineMeetsItsClaim]),
        (Fault::BuysTheImpossible, &[Check::ImpossibleClaimIsRefused]),
        (Fault::FailsOnTheImpossible, &[Check::ImpossibleClaimIsRefused]),
        (Fault::ListsNothing, &[Check::ListHas]),
        (Fault::FindsNothing, &[Check::GetFinds]),
        (Fault::NeverForgets, &[Check::GetForgets]),
        (Fault::KeepsListing, &[Check::ListForgets]),
        (Fault::DeletesOnce, &[Check::DeleteIsRepeatable]),
        (Fault::StartsForGone, &[Check::DeletedMachineIsGone]),
        (Fault::FailsOnUnknown, &[Check::UnknownMachineIsGone]),
    ] {
        assert_eq!(failures(fault), checks, "{fault:?}");
    }
}

fn catalog_failures(change: impl Fn(&mut InstanceType)) -> Vec<Check> {
    let mut types = crate::generated_types();
    types.iter_mut().for_each(change);
    let cloud = Arc::new(FakeCloud::new(Catalog::new(types).expect("valid").into()));
    run(cloud.clone(), |now| cloud.set_now(now)).failures().map(|v| v.check).collect()
}

#[test]
fn catalogs_are_looked_at() {
    assert_eq!(catalog_failures(|_| ()), []);
    assert_eq!(catalog_failures(|t| t.offerings[0].price = Price::ZERO), [Check::OfferingsHavePrices]);
    let podless = |t: &mut InstanceType| {
        t.capacity.insert(ResourceName::Pods, Quantity::ZERO);
    };
    assert_eq!(catalog_failures(podless), [Check::TypesHaveResources]);
    let sold = |t: &mut InstanceType| t.offerings.iter_mut().for_each(|o| o.available = false);
    assert_eq!(catalog_failures(sold), [Check::CatalogHasOfferings]);
    let unnamed = |t: &mut InstanceType| {
        let dearest = t.offerings.iter_mut().max_by_key(|o| o.price).expect("generated");
        dearest.requirements = karpenter_core::Requirements::new();
    };
    assert_eq!(catalog_failures(unnamed), [Check::OfferingsAreNamed]);
    let none = Arc::new(FakeCloud::new(Catalog::new(Vec::new()).expect("valid").into()));
    let report = run(none.clone(), |now| none.set_now(now));
    let failed: Vec<_> = report.failures().map(|v| v.check).collect();
    assert_eq!(failed, [Check::CatalogIsNotEmpty, Check::CatalogHasOfferings]);
}
