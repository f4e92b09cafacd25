use std::future::Future;

use karpenter_core::{
    Catalog, Requirements,
    api::{NodeClaim, NodeSelectorRequirement, Operator},
    labels,
    provider::{CreateError, Deletion, Instance, Launched, ProviderError, ProviderId},
};

use super::{Check, Run, ids};

/// A zone that no cloud has.
const NO_ZONE: &str = "conformance-nowhere";

impl Run<'_> {
    /// What there never was. The name is no prefix and no continuation of a real one.
    pub(super) async fn check_unknown(&mut self) {
        let id = ProviderId::new(format!("{}-unknown", self.kit.run_id));
        let problem = match self.provider.get(&id).await {
            Ok(None) => None,
            Ok(Some(found)) => Some(format!("{id} is said to be {}", found.id)),
            Err(error) => Some(error.to_string()),
        };
        self.judge(Check::UnknownMachineIsNone, "get", problem);
        let problem = expect_gone(&id, self.provider.delete(&id).await);
        self.judge(Check::UnknownMachineIsGone, "delete", problem);
    }

    /// A claim for a zone that does not exist.
    pub(super) async fn check_impossible(&mut self, types: &[String]) {
        let mut claim = self.kit.claim("impossible", types);
        claim.spec.requirements.push(NodeSelectorRequirement::new(labels::ZONE, Operator::In, [NO_ZONE]));
        let problem = match self.provider.create(&claim).await {
            Err(CreateError::NothingCompatible { .. } | CreateError::InsufficientCapacity { .. }) => None,
            Err(error) => Some(format!("zone {NO_ZONE} was refused with: {error}")),
            Ok(launched) => {
                let id = launched.instance.id;
                let given_back = self.provider.delete(&id).await;
                let aftermath = given_back.err().map(|error| format!(", and {error}")).unwrap_or_default();
                Some(format!("zone {NO_ZONE} was asked for, {id} was bought{aftermath}"))
            }
        };
        let was_refused = problem.is_none();
        self.judge(Check::ImpossibleClaimIsRefused, "create", problem);
        if was_refused {
            let uid = &claim.metadata.uid;
            let problem = match self.provider.list().await {
                Ok(all) => all.iter().find(|i| i.claim_uid == *uid).map(|i| format!("{} was made for {uid}", i.id)),
                Err(error) => Some(error.to_string()),
            };
            self.judge(Check::RefusedClaimLeavesNothing, "create", problem);
        }
    }

    /// What was bought is what the claim allows and the catalog promises.
    pub(super) fn check_bought(&mut self, catalog: &Catalog, claim: &NodeClaim, launched: &Launched) {
        let instance = &launched.instance;
        let id = &instance.id;
        let is_named = instance.claim_uid == claim.metadata.uid;
        let other = format!("{id} was made for uid {}, {:?} is said", claim.metadata.uid, instance.claim_uid);
        self.judge(Check::MachineNamesItsClaim, "create", (!is_named).then_some(other));
        let needed = [labels::INSTANCE_TYPE, labels::ZONE, labels::CAPACITY_TYPE];
        let missing = needed.iter().find(|k| catalog.is_well_known(k) && !instance.labels.contains_key(**k));
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
    }

    /// Whether `get` finds what was bought, so that it can be asked whether it is gone.
    pub(super) async fn check_found(&mut self, launched: &Launched) -> bool {
        let (id, uid) = (&launched.instance.id, &launched.instance.claim_uid);
        let problem = match self.provider.get(id).await {
            Ok(Some(found)) => wrong_uid(&found, id, uid),
            Ok(None) => Some(format!("{id} was bought and is not found")),
            Err(error) => Some(error.to_string()),
        };
        let is_found = problem.is_none();
        self.judge(Check::GetFinds, "get", problem);
        let problem = match self.provider.list().await {
            Ok(all) => match all.iter().find(|i| i.id == *id) {
                Some(found) => wrong_uid(found, id, uid),
                None => Some(format!("{id} was bought and is not among [{}]", ids(&all))),
            },
            Err(error) => Some(error.to_string()),
        };
        self.judge(Check::ListHas, "list", problem);
        is_found
    }

    /// Deletes a machine twice.
    pub(super) async fn check_delete(&mut self, id: &ProviderId) {
        let deleted = self.provider.delete(id).await;
        self.judge(Check::DeleteStarts, "delete", deleted.err().map(|error| error.to_string()));
        let again = self.provider.delete(id).await;
        self.judge(
            Check::DeleteIsRepeatable,
            "delete",
            again.err().map(|error| format!("{id} a second time: {error}")),
        );
    }

    /// Waits until a machine is gone, and looks for what is left.
    pub(super) async fn check_gone<F: Future<Output = ()>>(&mut self, id: &ProviderId, mut pause: impl FnMut() -> F) {
        let mut problem = Some(format!("{id} was deleted and is still there after {} polls", self.kit.polls));
        for _ in 0..self.kit.polls {
            match self.provider.get(id).await {
                Ok(None) => {
                    problem = None;
                    break;
                }
                Ok(Some(_)) => pause().await,
                Err(error) => {
                    problem = Some(error.to_string());
                    break;
                }
            }
        }
        let is_gone = problem.is_none();
        self.judge(Check::GetForgets, "get", problem);
        if !is_gone {
            return;
        }
        let problem = match self.provider.list().await {
            Ok(all) => all.iter().any(|i| i.id == *id).then(|| format!("{id} is gone and is among [{}]", ids(&all))),
            Err(error) => Some(error.to_string()),
        };
        self.judge(Check::ListForgets, "list", problem);
        let problem = expect_gone(id, self.provider.delete(id).await);
        self.judge(Check::DeletedMachineIsGone, "delete", problem);
    }
}

fn expect_gone(id: &ProviderId, deleted: Result<Deletion, ProviderError>) -> Option<String> {
    match deleted {
        Ok(Deletion::Gone) => None,
        Ok(Deletion::Started) => Some(format!("there is no {id}, and its deletion is said to have started")),
        Err(error) => Some(format!("there is no {id}: {error}")),
    }
}

fn wrong_uid(found: &Instance, id: &ProviderId, uid: &str) -> Option<String> {
    (found.claim_uid != uid).then(|| format!("{id} was made for uid {uid}, {:?} is said", found.claim_uid))
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
