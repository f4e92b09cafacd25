//! The node classes of a cluster: the provider is told of them, and they are told what it found.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures_util::{FutureExt as _, StreamExt as _};
use karpenter_core::api::Condition;
use kube::{
    Api, Client, ResourceExt as _,
    api::{ApiResource, DynamicObject, ListParams, Patch, PatchParams},
    core::GroupVersionKind,
    runtime::{WatchStreamExt as _, watcher},
};
use serde_json::{Value, json};

use crate::{
    nodeclass::{Ec2NodeClass, Ec2NodeClassStatus, GROUP, KIND},
    provider::Ec2Provider,
};

/// Keeps a class until nothing is left of what was made for it.
const FINALIZER: &str = "karpenter.k8s.aws/termination";
/// How often it is looked at what selectors select; the provider asks AWS less often.
const PERIOD: Duration = Duration::from_secs(10);
/// How often what nobody needs is deleted.
const UPKEEP: Duration = Duration::from_mins(1);
/// How often the control plane is asked for its version.
const VERSION: Duration = Duration::from_mins(5);

/// Watches node classes for a provider.
pub struct NodeClasses {
    client: Client,
    provider: Ec2Provider,
    known: BTreeMap<String, Arc<Ec2NodeClass>>,
}

impl NodeClasses {
    /// For a provider and the cluster of a client.
    pub fn new(client: Client, provider: Ec2Provider) -> Self {
        Self { client, provider, known: BTreeMap::new() }
    }

    /// Works until it is dropped. Statuses and finalizers are written, and things of AWS deleted, only while `may_write`
    /// says so: of several replicas one does.
    pub async fn run(mut self, may_write: impl Fn() -> bool + Send) {
        let config = watcher::Config::default();
        let mut events = watcher(self.classes(), config).default_backoff().boxed();
        let mut period = tokio::time::interval(PERIOD);
        let mut upkeep = tokio::time::interval(UPKEEP);
        let mut version = tokio::time::interval(VERSION);
        loop {
            tokio::select! {
                event = events.next() => match event {
                    None => return,
                    Some(Err(error)) => tracing::warn!(error = %error, "the watch of node classes was lost"),
                    Some(Ok(event)) => if let Some(name) = self.hear(event) && may_write() {
                        self.tend(&name).await;
                    },
                },
                _ = period.tick() => if may_write() {
                    for name in self.known.keys().cloned().collect::<Vec<_>>() {
                        self.tend(&name).await;
                    }
                },
                _ = version.tick() => self.ask_version().await,
                _ = upkeep.tick() => if may_write() && let Err(error) = self.provider.upkeep().await {
                    tracing::warn!(error = %error, "what nobody needs could not be deleted");
                },
            }
        }
    }

    /// The provider finds images for the version that the control plane has by now. If that is not known it stays.
    async fn ask_version(&self) {
        match self.client.apiserver_version().await {
            Ok(info) => {
                let minor = info.minor.trim_end_matches(|c: char| !c.is_ascii_digit());
                if let Err(error) = self.provider.set_kubernetes_version(&format!("{}.{minor}", info.major)) {
                    tracing::error!(error = %error, "images are looked for as for the version of before");
                }
            }
            Err(error) => tracing::warn!(error = %error, "the control plane did not say its version"),
        }
    }

    fn classes(&self) -> Api<DynamicObject> {
        let kind = GroupVersionKind::gvk(GROUP, "v1", KIND);
        Api::all_with(self.client.clone(), &ApiResource::from_gvk_with_plural(&kind, "ec2nodeclasses"))
    }

    /// Takes in what happened. Gives back the name of the class that is to be looked at.
    fn hear(&mut self, event: watcher::Event<DynamicObject>) -> Option<String> {
        match event {
            watcher::Event::Init | watcher::Event::InitDone => None,
            watcher::Event::InitApply(object) | watcher::Event::Apply(object) => {
                let name = object.name_any();
                match read(&object) {
                    Ok(class) => {
                        self.provider.apply_class(class.clone());
                        self.known.insert(name.clone(), Arc::new(class));
                        Some(name)
                    }
                    Err(error) => {
                        tracing::error!(class = name, error = %error, "a node class cannot be read: it stays what it was");
                        None
                    }
                }
            }
            watcher::Event::Delete(object) => {
                let name = object.name_any();
                self.provider.remove_class(&name);
                self.known.remove(&name);
                None
            }
        }
    }

    /// Brings a class to what it should be. What fails is tried again with the next period.
    async fn tend(&self, name: &str) {
        let Some(class) = self.known.get(name) else { return };
        let has_finalizer = class.metadata.finalizers.iter().any(|own| own == FINALIZER);
        let done = match (class.metadata.deletion_timestamp, has_finalizer) {
            (Some(_), false) => return,
            (Some(_), true) => self.let_go(class).boxed().await,
            (None, false) => self.write_finalizers(class, |all| all.push(FINALIZER.to_owned())).boxed().await,
            (None, true) => self.tell_found(class).boxed().await,
        };
        if let Err(error) = done {
            tracing::warn!(class = name, error, "a node class could not be brought up to date");
        }
    }

    /// Deletes what was made for a class that goes, once it has no claims any more.
    async fn let_go(&self, class: &Ec2NodeClass) -> Result<(), String> {
        if self.has_claims(class.name()).await.map_err(|error| error.to_string())? {
            return Ok(());
        }
        let done = self.provider.finalize_class(class.name(), &class.metadata.uid).await;
        done.map_err(|error| error.to_string())?;
        self.write_finalizers(class, |all| all.retain(|own| own != FINALIZER)).await
    }

    async fn has_claims(&self, class: &str) -> Result<bool, kube::Error> {
        let kind = GroupVersionKind::gvk("karpenter.sh", "v1", "NodeClaim");
        let claims: Api<DynamicObject> =
            Api::all_with(self.client.clone(), &ApiResource::from_gvk_with_plural(&kind, "nodeclaims"));
        let all = claims.list(&ListParams::default()).await?;
        let is_of_class = |claim: &DynamicObject| {
            let reference = &claim.data["spec"]["nodeClassRef"];
            reference["group"] == GROUP && reference["name"] == class
        };
        Ok(all.items.iter().any(is_of_class))
    }

    /// Names the version of the class that was looked at: another one is looked at again.
    async fn write_finalizers(
        &self,
        class: &Ec2NodeClass,
        change: impl FnOnce(&mut Vec<String>),
    ) -> Result<(), String> {
        let mut finalizers = class.metadata.finalizers.clone();
        change(&mut finalizers);
        let version = &class.metadata.resource_version;
        let patch = json!({"metadata": {"finalizers": finalizers, "resourceVersion": version}});
        let written = self.classes().patch(class.name(), &PatchParams::default(), &Patch::Merge(patch)).await;
        written.map(drop).map_err(|error| error.to_string())
    }

    /// Writes what selectors found, if that is something else than what is written.
    async fn tell_found(&self, class: &Ec2NodeClass) -> Result<(), String> {
        let found = self.provider.resolve(class.name()).await.map_err(|error| error.to_string())?;
        let status = &found.class.status;
        if is_same(status, &class.status) {
            return Ok(());
        }
        let patch = json!({"metadata": {"resourceVersion": class.metadata.resource_version}, "status": whole(status)});
        let written = self.classes().patch_status(class.name(), &PatchParams::default(), &Patch::Merge(patch)).await;
        written.map(drop).map_err(|error| error.to_string())
    }
}

fn read(object: &DynamicObject) -> Result<Ec2NodeClass, String> {
    let value = serde_json::to_value(object).map_err(|error| error.to_string())?;
    serde_json::from_value(value).map_err(|error| error.to_string())
}

/// A status as it is written: what is not there any more is taken away.
fn whole(status: &Ec2NodeClassStatus) -> Value {
    let mut value = serde_json::to_value(status).unwrap_or_default();
    if let Some(fields) = value.as_object_mut() {
        for field in ["subnets", "securityGroups", "amis", "capacityReservations", "instanceProfile"] {
            fields.entry(field).or_insert(Value::Null);
        }
    }
    value
}

/// Whether two statuses say the same; since when conditions hold counts only where they changed.
fn is_same(one: &Ec2NodeClassStatus, other: &Ec2NodeClassStatus) -> bool {
    let without_times = |status: &Ec2NodeClassStatus| {
        let mut status = status.clone();
        status.conditions.iter_mut().for_each(|condition: &mut Condition| condition.last_transition_time = None);
        status
    };
    without_times(one) == without_times(other)
}
