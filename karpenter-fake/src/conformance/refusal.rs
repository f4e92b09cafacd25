//! What a provider says that sells nothing.

use karpenter_core::{
    Catalog, OfferingKey, Requirements,
    api::{NodeClaim, NodeSelectorRequirement, Operator},
    labels,
    provider::CreateError,
};

use super::{Check, Run};

/// A zone that no cloud has.
const NO_ZONE: &str = "conformance-nowhere";

impl Run<'_> {
    /// A claim for a zone that does not exist.
    pub(super) async fn check_impossible(&mut self) {
        let mut claim = self.buyer.claim("impossible");
        claim.spec.requirements.push(NodeSelectorRequirement::new(labels::ZONE, Operator::In, [NO_ZONE]));
        let problem = match self.create(&claim).await {
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

    /// What had no capacity is named as the catalog names it, and was asked for: it is avoided from then on.
    pub(super) fn check_refusal(&mut self, claim: &NodeClaim, error: &CreateError) {
        let CreateError::InsufficientCapacity { offerings } = error else { return };
        let wanted: Requirements = claim.spec.requirements.iter().collect();
        let wrong = offerings.iter().find_map(|key| {
            if !is_sold(&self.catalog, key) {
                return Some(format!("no capacity is said of \"{key}\", which is not in the catalog"));
            }
            let refused = refused(&wanted, key)?;
            Some(format!("no capacity is said of \"{key}\", which the claim does not allow by its {refused}"))
        });
        let none = || offerings.is_empty().then(|| "no capacity is said of no offering at all".to_owned());
        self.judge(Check::RefusalNamesOfferings, "create", wrong.or_else(none));
    }
}

fn is_sold(catalog: &Catalog, key: &OfferingKey) -> bool {
    let known = catalog.get(&key.instance_type);
    known.is_some_and(|sold| sold.offerings.iter().any(|offering| offering.key(&sold.name) == *key))
}

/// The label for which a claim does not allow an offering.
fn refused(wanted: &Requirements, key: &OfferingKey) -> Option<&'static str> {
    let named = [
        (labels::INSTANCE_TYPE, &key.instance_type),
        (labels::ZONE, &key.zone),
        (labels::CAPACITY_TYPE, &key.capacity_type),
    ];
    let is_refused = |(label, value): &(&'static str, &String)| {
        !value.is_empty() && wanted.get(label).is_some_and(|requirement| !requirement.admits(Some(value)))
    };
    named.into_iter().find(is_refused).map(|(label, _)| label)
}
