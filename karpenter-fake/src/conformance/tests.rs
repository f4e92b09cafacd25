use std::{collections::BTreeMap, sync::Arc, time::Duration};

use async_trait::async_trait;
use karpenter_core::{
    Catalog, CloudProvider, InstanceType, OfferingKey, Quantity, ResourceList, ResourceName, Timestamp,
    api::{ConditionStatus, NodeClaim, NodePool},
    labels,
    provider::{
        CreateError, Deletion, EventCursor, Instance, Launched, ProviderError, ProviderErrorKind, ProviderEvent,
        ProviderEvents, ProviderId, RepairPolicy,
    },
};

use super::{Check, Conformance, Report};
use crate::{FakeCloud, generated_catalog};

mod good;

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
    DropsALabel,
    HasALabelWithASpace,
    HasALabelWithoutAName,
    SaysAnotherArchitecture,
    SaysAZoneThatIsNotSold,
    SaysACapacityTypeThatIsNotSold,
    ListsTwice,
    ListsNothingThatEnds,
    NeverSaysThatItEnds,
    RefusesWithoutNames,
    RefusesWithAlienNames,
    RefusesWithWhatWasNotAsked,
    HasNoCapacity,
    DriftsAtOnce,
    RepeatsEvents,
    NeverEndsEvents,
    FindsOtherLabels,
    BuysTwiceAtATime,
    HasNoId,
    ReplacesWhatIsReady,
}

struct Broken {
    cloud: FakeCloud,
    fault: Fault,
    calls: std::sync::atomic::AtomicU64,
    seen: std::sync::Mutex<Vec<Instance>>,
    launched: std::sync::Mutex<BTreeMap<ProviderId, Launched>>,
    are_events_told: std::sync::atomic::AtomicBool,
}

impl Broken {
    fn new(fault: Fault) -> Self {
        let cloud = FakeCloud::new(generated_catalog()).termination_delay(Duration::from_secs(2));
        let calls = std::sync::atomic::AtomicU64::new(0);
        let are_events_told = std::sync::atomic::AtomicBool::new(false);
        let (seen, launched) = (std::sync::Mutex::default(), std::sync::Mutex::default());
        Self { cloud, fault, calls, seen, launched, are_events_told }
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
            Fault::NotIdempotent | Fault::BuysTwiceAtATime => claim.metadata.uid += &call.to_string(),
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
        if self.fault == Fault::BuysTwiceAtATime {
            if let Some(known) = self.seen().into_iter().find(|i| i.claim_uid == claim.metadata.uid) {
                return Ok(self.launched.lock().expect("no panic")[&known.id].clone());
            }
            tokio::task::yield_now().await;
        }
        let bought = self.cloud.create(&self.mistaken(claim)).await;
        let mut launched = bought.map_err(|error| self.other_error(error))?;
        launched.instance.claim_uid.clone_from(&claim.metadata.uid);
        match self.fault {
            Fault::LiesAboutAllocatable => {
                launched.allocatable.insert(ResourceName::Memory, Quantity::from_bytes(1));
            }
            Fault::LiesAboutUid => launched.instance.claim_uid = "other".to_owned(),
            Fault::ForgetsLabels => {
                Arc::make_mut(&mut launched.instance.labels).remove(labels::ZONE);
            }
            Fault::HasNoCapacity => launched.capacity = ResourceList::new(),
            Fault::HasNoId => launched.instance.id = ProviderId::new(""),
            _ => self.mislabel(&mut launched.instance),
        }
        self.launched.lock().expect("no panic").insert(launched.instance.id.clone(), launched.clone());
        let mut seen = self.seen.lock().expect("no panic");
        if !seen.contains(&launched.instance) {
            seen.push(launched.instance.clone());
        }
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
            Fault::NeverSaysThatItEnds => Ok(found.map(|i| Instance::new(i.id, i.claim_uid, i.labels))),
            Fault::FindsOtherLabels => Ok(found.map(|mut i| {
                i.labels = Arc::default();
                i
            })),
            _ => Ok(found),
        }
    }

    async fn drift(&self, _claim: &NodeClaim) -> Result<Option<String>, ProviderError> {
        Ok((self.fault == Fault::DriftsAtOnce).then(|| "ImageDrift".to_owned()))
    }

    fn repair_policies(&self) -> Vec<RepairPolicy> {
        let status =
            if self.fault == Fault::ReplacesWhatIsReady { ConditionStatus::True } else { ConditionStatus::False };
        vec![RepairPolicy::new("Ready", status, Duration::from_mins(1))]
    }

    /// Without a fault what there was is told once, whatever the cursor is.
    async fn next_events(&self, cursor: EventCursor) -> Result<ProviderEvents, ProviderError> {
        let was_told = self.are_events_told.swap(true, std::sync::atomic::Ordering::Relaxed);
        let is_repeated = matches!(self.fault, Fault::RepeatsEvents | Fault::NeverEndsEvents);
        let ended = |i: Instance| ProviderEvent::Terminated { id: i.id };
        let events = if was_told && !is_repeated { Vec::new() } else { self.seen().into_iter().map(ended).collect() };
        let moved = u64::from(self.fault == Fault::NeverEndsEvents);
        Ok(ProviderEvents::new(events, EventCursor(cursor.0 + moved)))
    }

    async fn list(&self) -> Result<Vec<Instance>, ProviderError> {
        match self.fault {
            Fault::ListsNothing => Ok(Vec::new()),
            Fault::KeepsListing => Ok(self.seen()),
            _ => {
                let mut all: Vec<_> =
                    self.cloud.list().await?.into_iter().filter_map(|i| self.named(Some(i))).collect();
                match self.fault {
                    Fault::ListsTwice => all.extend(all.clone()),
                    Fault::ListsNothingThatEnds => all.retain(|i| !i.is_terminating),
                    _ => {}
                }
                Ok(all)
            }
        }
    }
}

impl Broken {
    /// What it says in the place of an error.
    fn other_error(&self, error: CreateError) -> CreateError {
        let key = |instance_type: &str, zone: &str| OfferingKey {
            instance_type: instance_type.to_owned(),
            zone: zone.to_owned(),
            capacity_type: labels::SPOT.to_owned(),
        };
        match self.fault {
            Fault::FailsOnTheImpossible => Self::error("create").into(),
            Fault::RefusesWithoutNames => CreateError::InsufficientCapacity { offerings: Vec::new() },
            Fault::RefusesWithAlienNames => {
                CreateError::InsufficientCapacity { offerings: vec![key("Standard-4", "west")] }
            }
            Fault::RefusesWithWhatWasNotAsked => {
                CreateError::InsufficientCapacity { offerings: vec![key("c-1x-amd64-linux", "zone-a")] }
            }
            _ => error,
        }
    }

    fn mislabel(&self, instance: &mut Instance) {
        let labels = Arc::make_mut(&mut instance.labels);
        let (key, value) = match self.fault {
            Fault::DropsALabel => {
                labels.remove(labels::OS);
                return;
            }
            Fault::HasALabelWithASpace => ("example.com/rack", "row 7"),
            Fault::HasALabelWithoutAName => ("example.com/", "r7"),
            Fault::SaysAnotherArchitecture => (labels::ARCH, "s390x"),
            Fault::SaysAZoneThatIsNotSold => (labels::ZONE, "zone-z"),
            Fault::SaysACapacityTypeThatIsNotSold => (labels::CAPACITY_TYPE, "borrowed"),
            _ => return,
        };
        labels.insert(key.to_owned(), value.to_owned());
    }

    /// The machine with the uid and the labels with which it was handed out.
    fn named(&self, found: Option<Instance>) -> Option<Instance> {
        let mut found = found?;
        let seen = self.seen().into_iter().find(|i| i.id == found.id);
        if let Some(seen) = seen {
            (found.claim_uid, found.labels) = (seen.claim_uid, seen.labels);
        }
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
    let kit = Conformance::new(provider, NodePool::named("general")).polls(5).run_id("conformance");
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
    assert_eq!(report.verdicts().len(), 35, "{report:?}");
    cloud.set_now(Timestamp::from_millis(60_000));
    assert!(cloud.machine_counts().is_empty());
    assert_eq!(report.to_string(), "fake: 35 of 35 checks passed");
}

#[test]
fn each_breach_fails_the_check_that_is_meant_for_it() {
    for (fault, checks) in [
        (Fault::None, &[][..]),
        (Fault::NoCatalog, &[Check::Catalog]),
        (Fault::NotIdempotent, &[Check::CreateIsIdempotent, Check::SimultaneousCreatesBuyOnce]),
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
        (Fault::DropsALabel, &[Check::MachineHasPromisedLabels]),
        (Fault::HasALabelWithASpace, &[Check::MachineHasValidLabels]),
        (Fault::HasALabelWithoutAName, &[Check::MachineHasValidLabels]),
        (Fault::SaysAnotherArchitecture, &[Check::MachineHasPromisedLabels]),
        (Fault::SaysAZoneThatIsNotSold, &[Check::MachineHasPromisedLabels]),
        (Fault::SaysACapacityTypeThatIsNotSold, &[Check::MachineHasPromisedLabels]),
        (Fault::ListsTwice, &[Check::ListHasEachOnce]),
        (Fault::ListsNothingThatEnds, &[Check::ListHasEndingMachines]),
        (Fault::NeverSaysThatItEnds, &[Check::DeletedMachineIsTerminating]),
        (Fault::RefusesWithoutNames, &[Check::RefusalNamesOfferings]),
        (Fault::RefusesWithAlienNames, &[Check::RefusalNamesOfferings]),
        (Fault::RefusesWithWhatWasNotAsked, &[Check::RefusalNamesOfferings]),
        (Fault::HasNoCapacity, &[Check::CapacityCoversAllocatable]),
        (Fault::DriftsAtOnce, &[Check::NewMachineIsNotDrifted]),
        (Fault::RepeatsEvents, &[Check::EventsAreToldOnce]),
        (Fault::NeverEndsEvents, &[Check::EventsAreToldOnce]),
        (Fault::FindsOtherLabels, &[Check::FoundMachineIsLabelled]),
        (Fault::BuysTwiceAtATime, &[Check::SimultaneousCreatesBuyOnce]),
        (Fault::ReplacesWhatIsReady, &[Check::ReadyNodesStay]),
    ] {
        assert_eq!(failures(fault), checks, "{fault:?}");
    }
}

#[test]
fn a_machine_without_an_id_is_none() {
    assert!(failures(Fault::HasNoId).contains(&Check::MachineHasId));
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
    let podless = |t: &mut InstanceType| {
        t.capacity.insert(ResourceName::Pods, Quantity::ZERO);
    };
    assert_eq!(catalog_failures(podless), [Check::TypesHaveResources, Check::CatalogHasOfferings]);
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
