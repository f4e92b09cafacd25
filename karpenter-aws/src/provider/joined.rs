//! What is done once a machine has become a node.

use std::collections::BTreeMap;

use karpenter_core::{
    Quantity,
    api::{NodeClaim, conditions::DRIFTED},
    labels,
    provider::{ProviderError, ProviderId},
};

use super::{Ec2Provider, Inner, Resolved, class::ClassError, machines, tags, template_data::image_for};
use crate::{
    api::ApiError,
    ec2::Tags,
    nodeclass::{HASH_VERSION, NODE_CLASS_HASH, NODE_CLASS_HASH_VERSION},
};

/// The tag that the console of EC2 shows.
const NAME: &str = "Name";

impl Ec2Provider {
    /// The node of a claim has this much memory. Of all nodes of its instance type that start from the images that the
    /// class has now, the least counts, for sixty days, in the place of what the formula says.
    ///
    /// # Errors
    /// AWS did not say what the class finds. It may be told again.
    pub async fn learn_memory(&self, claim: &NodeClaim, memory: Quantity) -> Result<(), ProviderError> {
        let resolved = match self.0.resolve(&claim.spec.node_class_ref.name).await {
            Ok(resolved) => resolved,
            Err(ClassError::Missing { .. }) => return Ok(()),
            Err(ClassError::Provider(error)) => return Err(error),
        };
        let catalog = self.0.catalog(&resolved).await?;
        let name = claim.metadata.labels.get(labels::INSTANCE_TYPE).map_or("", String::as_str);
        let image = catalog.get(name).and_then(|own| image_for(&resolved.class, own));
        if image == Some(claim.status.image_id.as_str()) && memory > Quantity::ZERO {
            self.0.learn_memory(name, &resolved, memory);
        }
        Ok(())
    }

    /// The annotations with which a claim of another version of Karpenter says of its class what this one compares: the class is
    /// taken for unchanged since then, unless the claim has drifted already. Without them no later change of the class
    /// would reach the machine. Empty if the claim needs none.
    ///
    /// # Errors
    /// AWS did not say what the class finds. It may be asked again.
    pub async fn renewed_hash(&self, claim: &NodeClaim) -> Result<BTreeMap<String, String>, ProviderError> {
        let version = claim.metadata.annotations.get(NODE_CLASS_HASH_VERSION);
        if version.is_none_or(|version| version == HASH_VERSION) {
            return Ok(BTreeMap::new());
        }
        let resolved = match self.0.resolve(&claim.spec.node_class_ref.name).await {
            Ok(resolved) => resolved,
            Err(ClassError::Missing { .. }) => return Ok(BTreeMap::new()),
            Err(ClassError::Provider(error)) => return Err(error),
        };
        let mut out = resolved.class.metadata.annotations.clone();
        let keeps_hash = claim.status.is_true(DRIFTED);
        out.retain(|key, _| key == NODE_CLASS_HASH_VERSION || key == NODE_CLASS_HASH && !keeps_hash);
        Ok(out)
    }

    /// Tags the machine of a claim with the names of its node, its claim and its cluster. Tags that it has already stay as
    /// they are. A machine that is gone needs none.
    ///
    /// # Errors
    /// AWS did not do it. It may be asked again.
    pub async fn name_machine(&self, claim: &NodeClaim) -> Result<(), ProviderError> {
        let id = ProviderId::new(&claim.status.provider_id);
        let Some(machine) = machines::instance_id(&id).filter(|_| !claim.status.node_name.is_empty()) else {
            return Ok(());
        };
        self.0.name_machine(machine, claim).await.map_err(|error| error.to_error("tag"))
    }
}

impl Inner {
    fn learn_memory(&self, instance_type: &str, resolved: &Resolved, memory: Quantity) {
        let images: Vec<String> = resolved.class.status.amis.iter().map(|image| image.id.clone()).collect();
        let now = self.clock.now();
        self.lock().memory.learn(instance_type, &images, memory, now);
    }

    async fn name_machine(&self, machine: &str, claim: &NodeClaim) -> Result<(), ApiError> {
        let Some(found) = self.look_at(machine).await?.filter(|machine| !machine.state.is_ending()) else {
            return Ok(());
        };
        let wanted = [
            (NAME, claim.status.node_name.as_str()),
            (tags::NODE_CLAIM, claim.name()),
            (tags::CLUSTER_NAME, self.options.cluster_name.as_str()),
        ];
        let missing: Tags = wanted
            .into_iter()
            .filter(|(key, _)| !found.tags.contains_key(*key))
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .collect();
        if missing.is_empty() {
            return Ok(());
        }
        self.not_in_shift(&found.zone, "CreateTags", machine)?;
        match self.api.create_tags(&[machine.to_owned()], &missing).await {
            Err(error) if error.is_not_found() => Ok(()),
            answer => answer,
        }
    }
}
