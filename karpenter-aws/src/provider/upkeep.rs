//! What is done now and then, and what is left of a class that goes.

use std::collections::BTreeSet;

use karpenter_core::provider::ProviderError;

use super::{Ec2Provider, Inner, profiles, templates};
use crate::{
    api::ApiError,
    ec2::{Filter, instance::InstanceQuery},
};

impl Ec2Provider {
    /// Deletes launch templates that were not used for a minute, those of earlier processes among them, and instance
    /// profiles that no class and no machine has, once [all classes are known](Self::know_all_classes). To be called every
    /// minute or so; nothing depends on when.
    ///
    /// # Errors
    /// The first that AWS gave. The rest was done all the same.
    pub async fn upkeep(&self) -> Result<(), ProviderError> {
        let templates = self.0.delete_unused_templates().await;
        let is_known = self.0.lock().knows_all_classes && !self.0.options.is_isolated;
        let profiles = if is_known { self.0.delete_unused_profiles().await } else { Ok(()) };
        templates.and(profiles).map_err(|error| error.to_error("upkeep"))
    }

    /// Deletes what was made for a class: its instance profiles and its launch templates. To be called before its
    /// finalizer is taken away, when it has no claims any more.
    ///
    /// # Errors
    /// The first that AWS gave: it must be called again.
    pub async fn finalize_class(&self, name: &str, uid: &str) -> Result<(), ProviderError> {
        self.0.delete_all_of(name, uid).await.map_err(|error| error.to_error("finalize"))
    }
}

impl Inner {
    async fn delete_unused_templates(&self) -> Result<(), ApiError> {
        let now = self.clock.now();
        if !self.lock().templates.is_complete {
            let found = templates::find(&*self.api, &self.options.cluster_name, None).await?;
            let mut state = self.lock();
            for name in found {
                if !state.templates.is_there(&name, now) {
                    state.templates.add(&name, now);
                }
            }
            state.templates.is_complete = true;
        }
        let unused = self.lock().templates.expire(now);
        let mut answer = Ok(());
        for name in unused {
            let deleted = templates::delete(&*self.api, &name).await;
            if deleted.is_err() {
                // It is tried again when it is old once more.
                self.lock().templates.add(&name, now);
            }
            answer = answer.and(deleted);
        }
        answer
    }

    async fn delete_unused_profiles(&self) -> Result<(), ApiError> {
        let (region, cluster) = (self.options.region(), &self.options.cluster_name);
        let profiles = self.api.list_instance_profiles(&profiles::cluster_path(region, cluster)).await?;
        if profiles.is_empty() {
            return Ok(());
        }
        let owned = Filter::tag(&super::tags::owned_by(cluster), "*");
        let machines = self.api.describe_instances(&InstanceQuery { ids: Vec::new(), filters: vec![owned] }).await?;
        let mut used: BTreeSet<String> = machines.into_iter().map(|machine| machine.instance_profile).collect();
        {
            let state = self.lock();
            used.extend(state.resolved.values().map(|resolved| resolved.class.status.instance_profile.clone()));
            used.extend(state.classes.values().map(|class| class.status.instance_profile.clone()));
        }
        let now = self.clock.now();
        let mut answer = Ok(());
        for profile in profiles.iter().filter(|p| !used.contains(&p.name) && !profiles::is_young(p, now)) {
            answer = answer.and(profiles::delete(&*self.api, profile).await);
        }
        answer
    }

    async fn delete_all_of(&self, name: &str, uid: &str) -> Result<(), ApiError> {
        let (region, cluster) = (self.options.region(), &self.options.cluster_name);
        if !self.options.is_isolated {
            let path = profiles::class_path(region, cluster, uid);
            for profile in self.api.list_instance_profiles(&path).await? {
                profiles::delete(&*self.api, &profile).await?;
            }
        }
        for template in templates::find(&*self.api, cluster, Some(name)).await? {
            templates::delete(&*self.api, &template).await?;
            self.lock().templates.forget(&template);
        }
        Ok(())
    }
}
