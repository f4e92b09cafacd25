//! Whether machines are what their class asks for.

use std::collections::BTreeSet;

use karpenter_core::{
    api::NodeClaim,
    provider::{ProviderError, ProviderErrorKind, ProviderId},
};

use super::{Inner, class::ClassError, error::NAME, machines};
use crate::{
    ec2::instance::Ec2Instance,
    nodeclass::{NODE_CLASS_HASH, NODE_CLASS_HASH_VERSION, Observed},
};

impl Inner {
    /// The first way in which the machine of a claim is not what its class asks for. A claim without a class, or without
    /// a machine, is not drifted.
    pub(crate) async fn drift(&self, claim: &NodeClaim) -> Result<Option<String>, ProviderError> {
        let id = ProviderId::new(claim.status.provider_id.clone());
        let Some(machine) = machines::instance_id(&id) else { return Ok(None) };
        let resolved = match self.resolve(&claim.spec.node_class_ref.name).await {
            Ok(resolved) => resolved,
            Err(ClassError::Missing { .. }) => return Ok(None),
            Err(ClassError::Provider(error)) => return Err(error),
        };
        let found = self.look_at(machine).await.map_err(|error| error.to_error("drift"))?;
        let Some(machine) = found.filter(|machine| !machine.state.is_ending()) else { return Ok(None) };
        let unknown = |message: String| ProviderError::new(NAME, "drift", ProviderErrorKind::Other, message);
        let catalog = self.catalog(&resolved).await?;
        let instance_type = catalog.get(&machine.instance_type);
        if instance_type.is_none() && self.types().await?.get(&machine.instance_type).is_none() {
            return Err(unknown(format!("instance type {} is not known", machine.instance_type)));
        }
        let security_groups: BTreeSet<String> = machine.security_group_ids.iter().cloned().collect();
        let observed = Observed {
            security_groups: &security_groups,
            subnet_id: &machine.subnet_id,
            reservation_id: machine.reservation_id.as_deref(),
            wanted_placement_group: resolved.placement_group.as_ref().map(|group| group.id.as_str()),
        };
        let claim = as_bought(claim, &machine);
        let drift = resolved.class.drift(&claim, instance_type.map(|own| &own.requirements), &observed);
        let drift = drift.map_err(|error| unknown(error.to_string()))?;
        Ok(drift.map(|drift| drift.as_str().to_owned()))
    }
}

/// The claim with what its machine says of the time when it was bought, where the claim itself does not.
fn as_bought(claim: &NodeClaim, machine: &Ec2Instance) -> NodeClaim {
    let mut claim = claim.clone();
    for key in [NODE_CLASS_HASH, NODE_CLASS_HASH_VERSION] {
        if let Some(value) = machine.tags.get(key) {
            claim.metadata.annotations.entry(key.to_owned()).or_insert_with(|| value.clone());
        }
    }
    if claim.status.image_id.is_empty() {
        claim.status.image_id.clone_from(&machine.image_id);
    }
    claim
}
