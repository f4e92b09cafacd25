//! Machines that are there.

use std::collections::BTreeSet;

use karpenter_core::{
    Catalog, InstanceType, Offering, Requirement, Requirements,
    api::NodeClaim,
    labels,
    provider::{Instance, Launched, ProviderId},
};

use super::{Check, Run, ending::expect_gone, ids};

/// What names the offering that a machine was bought by.
const NAMING: [&str; 3] = [labels::INSTANCE_TYPE, labels::ZONE, labels::CAPACITY_TYPE];

impl Run<'_> {
    /// What there never was. The name is no prefix and no continuation of a real one.
    pub(super) async fn check_unknown(&mut self) {
        let id = ProviderId::new(format!("{}-unknown", self.buyer.run_id));
        let problem = match self.provider.get(&id).await {
            Ok(None) => None,
            Ok(Some(found)) => Some(format!("{id} is said to be {}", found.id)),
            Err(error) => Some(error.to_string()),
        };
        self.judge(Check::UnknownMachineIsNone, "get", problem);
        let problem = expect_gone(&id, self.provider.delete(&id).await);
        self.judge(Check::UnknownMachineIsGone, "delete", problem);
    }

    /// What was bought is what the claim allows and the catalog promises.
    pub(super) fn check_bought(&mut self, claim: &NodeClaim, launched: &Launched) {
        let catalog = &self.catalog.clone();
        let instance = &launched.instance;
        let id = &instance.id;
        let nameless = id.as_str().is_empty().then(|| "what was bought has no name".to_owned());
        self.judge(Check::MachineHasId, "create", nameless);
        let is_named = instance.claim_uid == claim.metadata.uid;
        let other = format!("{id} was made for uid {}, {:?} is said", claim.metadata.uid, instance.claim_uid);
        self.judge(Check::MachineNamesItsClaim, "create", (!is_named).then_some(other));
        self.judge(Check::MachineHasValidLabels, "create", invalid_label(instance));
        let missing = NAMING.iter().find(|k| catalog.is_well_known(k) && !instance.labels.contains_key(**k));
        let missing = missing.map(|key| format!("{id} has no label {key}"));
        let is_labelled = missing.is_none();
        self.judge(Check::MachineIsLabelled, "create", missing);
        if !is_labelled {
            return;
        }
        let requirements: Requirements = claim.spec.requirements.iter().collect();
        // Labels that the catalog does not name are the engine's to set.
        let settled = requirements.iter().filter(|(key, _)| catalog.is_well_known(key));
        let value = |key: &str| instance.labels.get(key).map(String::as_str);
        let refused = settled.into_iter().find(|(key, requirement)| !requirement.admits(value(key)));
        let refused = refused.map(|(key, r)| format!("{id} has {key} {:?}, {r} was asked for", value(key)));
        self.judge(Check::MachineMeetsItsClaim, "create", refused);
        self.judge(Check::MachineHasWhatWasPromised, "create", broken_promise(catalog, launched));
        self.judge(Check::MachineHasPromisedLabels, "create", broken_label(catalog, instance));
        self.judge(Check::CapacityCoversAllocatable, "create", overdrawn(launched));
    }

    /// Whether `get` finds what was bought, so that it can be asked whether it is gone.
    pub(super) async fn check_found(&mut self, launched: &Launched) -> bool {
        let (id, uid) = (&launched.instance.id, &launched.instance.claim_uid);
        let problem = match self.provider.get(id).await {
            Ok(Some(found)) => {
                self.judge(Check::FoundMachineIsLabelled, "get", other_label(launched, &found));
                wrong_uid(&found, id, uid)
            }
            Ok(None) => Some(format!("{id} was bought and is not found")),
            Err(error) => Some(error.to_string()),
        };
        let is_found = problem.is_none();
        self.judge(Check::GetFinds, "get", problem);
        let problem = match self.provider.list().await {
            Ok(all) => {
                let mut seen = BTreeSet::new();
                let twice = all.iter().find(|i| !seen.insert(&i.id));
                let twice = twice.map(|i| format!("{} is more than once among [{}]", i.id, ids(&all)));
                self.judge(Check::ListHasEachOnce, "list", twice);
                match all.iter().find(|i| i.id == *id) {
                    Some(found) => {
                        self.judge(Check::FoundMachineIsLabelled, "list", other_label(launched, found));
                        wrong_uid(found, id, uid)
                    }
                    None => Some(format!("{id} was bought and is not among [{}]", ids(&all))),
                }
            }
            Err(error) => Some(error.to_string()),
        };
        self.judge(Check::ListHas, "list", problem);
        is_found
    }
}

fn wrong_uid(found: &Instance, id: &ProviderId, uid: &str) -> Option<String> {
    (found.claim_uid != uid).then(|| format!("{id} was made for uid {uid}, {:?} is said", found.claim_uid))
}

/// The first label that no API server takes.
fn invalid_label(instance: &Instance) -> Option<String> {
    let is_valid = |(key, value): (&String, &String)| labels::is_qualified_name(key) && labels::is_value(value);
    let (key, value) = instance.labels.iter().find(|&label| !is_valid(label))?;
    Some(format!("{} has the label {key:?} {value:?}, which Kubernetes does not take", instance.id))
}

/// The first resource of which a machine has less than the catalog says of its type.
fn broken_promise(catalog: &Catalog, launched: &Launched) -> Option<String> {
    let id = &launched.instance.id;
    let name = launched.instance.labels.get(labels::INSTANCE_TYPE)?;
    let Some(instance_type) = catalog.get(name) else {
        return Some(format!("{id} is of instance type {name}, which is not in the catalog"));
    };
    for (resource, promised) in instance_type.allocatable().iter() {
        let has = launched.allocatable.get(resource.as_str()).unwrap_or_default();
        if has < promised {
            return Some(format!("{id} has {resource} {has} allocatable, the catalog promises {promised} of {name}"));
        }
    }
    None
}

/// The first label of a machine that is not what the catalog says of its type, bought by one of its offerings.
fn broken_label(catalog: &Catalog, instance: &Instance) -> Option<String> {
    let (id, labels) = (&instance.id, &instance.labels);
    let instance_type = catalog.get(labels.get(labels::INSTANCE_TYPE)?)?;
    let value = |key: &str| labels.get(key).map(String::as_str);
    let is_kept = |(key, requirement): &(&str, &Requirement)| requirement.admits(value(key));
    let is_of = |offering: &&Offering| offering.requirements.iter().all(|(key, r)| is_kept(&(key, r)));
    let bought: Vec<&Offering> = instance_type.offerings.iter().filter(is_of).collect();
    if bought.is_empty() {
        let keys: BTreeSet<&str> =
            instance_type.offerings.iter().flat_map(|o| o.requirements.iter()).map(|(key, _)| key).collect();
        let has: Vec<_> = keys.into_iter().map(|key| format!("{key} {:?}", value(key))).collect();
        return Some(format!("{id} has {}, as no offering of {} has", has.join(", "), instance_type.name));
    }
    let broken = |offering| promised_by_type(catalog, instance_type, offering).find(|promise| !is_kept(promise));
    let mut broken: Vec<Option<_>> = bought.into_iter().map(broken).collect();
    let first = if broken.contains(&None) { None } else { broken.swap_remove(0) };
    first.map(|(key, r)| format!("{id} has {key} {:?}, the catalog promises {r} of {}", value(key), instance_type.name))
}

/// The labels of a type that an offering leaves as they are. A type names the reservations of all its offerings.
fn promised_by_type<'c>(
    catalog: &'c Catalog,
    instance_type: &'c InstanceType,
    offering: &'c Offering,
) -> impl Iterator<Item = (&'c str, &'c Requirement)> {
    let is_open = |key: &str| offering.requirements.get(key).is_none() && catalog.reservation_label() != Some(key);
    instance_type.requirements.iter().filter(move |(key, _)| is_open(key))
}

/// The first resource of which pods are said to have more than there is.
fn overdrawn(launched: &Launched) -> Option<String> {
    let id = &launched.instance.id;
    launched.allocatable.iter().find_map(|(resource, allocatable)| {
        let capacity = launched.capacity.get(resource.as_str()).unwrap_or_default();
        let is_overdrawn = capacity < allocatable;
        is_overdrawn.then(|| format!("{id} has {resource} {allocatable} allocatable and a capacity of {capacity}"))
    })
}

/// The first label that names the offering of a machine and is not what was said when it was bought.
fn other_label(launched: &Launched, found: &Instance) -> Option<String> {
    let id = &found.id;
    let (before, after) = (&launched.instance.labels, &found.labels);
    let other = NAMING.into_iter().find(|key| before.contains_key(*key) && before.get(*key) != after.get(*key))?;
    Some(format!("{id} was bought with {other} {:?}, {:?} is said", before.get(other), after.get(other)))
}
