//! Machines that have become nodes: the provider is told what they really have, they get their names, and claims of another
//! version of Karpenter the hash of their class.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    time::Duration,
};

use futures_util::{FutureExt as _, StreamExt as _};
use karpenter_core::{
    Quantity,
    api::{NodeClaim, conditions::REGISTERED},
    provider::ProviderId,
};
use kube::{
    Api, Client, ResourceExt as _,
    api::{ApiResource, DynamicObject, Patch, PatchParams},
    core::GroupVersionKind,
    runtime::{WatchStreamExt as _, watcher},
};
use serde_json::json;

use crate::{nodeclass::GROUP, provider::Ec2Provider};

/// How often what is left to do is tried.
const PERIOD: Duration = Duration::from_secs(10);
/// How many machines are looked after at a time.
const AT_A_TIME: usize = 20;

/// Watches claims for a provider until their machines are nodes.
pub struct JoinedMachines {
    client: Client,
    provider: Ec2Provider,
    /// By their names, claims whose machine is a node, until all is done for it.
    waiting: BTreeMap<String, NodeClaim>,
    /// The uids of claims for which all is done, by their names.
    done: BTreeMap<String, String>,
    /// The names of claims that were not told since the last list began.
    unlisted: BTreeSet<String>,
}

impl fmt::Debug for JoinedMachines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinedMachines")
            .field("waiting", &self.waiting.keys())
            .field("done", &self.done)
            .finish_non_exhaustive()
    }
}

impl JoinedMachines {
    /// For a provider and the cluster of a client.
    pub fn new(client: Client, provider: Ec2Provider) -> Self {
        Self { client, provider, waiting: BTreeMap::new(), done: BTreeMap::new(), unlisted: BTreeSet::new() }
    }

    /// Works until it is dropped. Machines are tagged only while `may_write` says so: of several replicas one does.
    pub async fn run(mut self, may_write: impl Fn() -> bool + Send) {
        let mut events = watcher(self.claims(), watcher::Config::default()).default_backoff().boxed();
        let mut period = tokio::time::interval(PERIOD);
        loop {
            tokio::select! {
                event = events.next() => match event {
                    None => return,
                    Some(Err(error)) => tracing::warn!(error = %error, "the watch of claims was lost"),
                    Some(Ok(event)) => self.hear(event),
                },
                _ = period.tick() => if may_write() { self.tend().await },
            }
        }
    }

    fn claims(&self) -> Api<DynamicObject> {
        self.api("karpenter.sh", "NodeClaim", "nodeclaims")
    }

    fn api(&self, group: &str, kind: &str, plural: &str) -> Api<DynamicObject> {
        let kind = GroupVersionKind::gvk(group, "v1", kind);
        Api::all_with(self.client.clone(), &ApiResource::from_gvk_with_plural(&kind, plural))
    }

    fn hear(&mut self, event: watcher::Event<DynamicObject>) {
        match event {
            watcher::Event::Init => self.unlisted = self.waiting.keys().chain(self.done.keys()).cloned().collect(),
            // What went while nobody watched is told by nobody else.
            watcher::Event::InitDone => {
                for name in std::mem::take(&mut self.unlisted) {
                    self.forget(&name);
                }
            }
            watcher::Event::InitApply(object) | watcher::Event::Apply(object) => {
                self.unlisted.remove(&object.name_any());
                let claim = serde_json::to_value(&object).and_then(serde_json::from_value::<NodeClaim>);
                // A claim that cannot be read is nobody's: the engine says so.
                let Ok(claim) = claim else { return };
                // Of machines whose tags do not tell it, who takes over learns only from claims whose they are.
                self.provider.adopt(&ProviderId::new(&claim.status.provider_id), &claim.metadata.uid);
                if has_joined(&claim) && self.done.get(claim.name()) != Some(&claim.metadata.uid) {
                    self.waiting.insert(claim.name().to_owned(), claim);
                }
            }
            watcher::Event::Delete(object) => self.forget(&object.name_any()),
        }
    }

    fn forget(&mut self, name: &str) {
        self.waiting.remove(name);
        self.done.remove(name);
    }

    /// Does what is left to do. What fails is tried again with the next period.
    async fn tend(&mut self) {
        let waiting: Vec<NodeClaim> = self.waiting.values().cloned().collect();
        let tended: Vec<bool> = {
            let all: Vec<_> = waiting.iter().map(|claim| self.tend_one(claim).boxed()).collect();
            futures_util::stream::iter(all).buffered(AT_A_TIME).collect().await
        };
        for (claim, _) in waiting.into_iter().zip(tended).filter(|(_, is_done)| *is_done) {
            self.waiting.remove(claim.name());
            self.done.insert(claim.name().to_owned(), claim.metadata.uid);
        }
    }

    async fn tend_one(&self, claim: &NodeClaim) -> bool {
        let done = async {
            let nodes = self.api("", "Node", "nodes");
            let node = nodes.get_opt(&claim.status.node_name).await.map_err(|error| error.to_string())?;
            if let Some(memory) = node.as_ref().and_then(memory_of) {
                self.provider.learn_memory(claim, memory).await.map_err(|error| error.to_string())?;
            }
            self.renew_hash(claim).await?;
            self.provider.name_machine(claim).await.map_err(|error| error.to_string())
        };
        match done.await {
            Ok(()) => true,
            Err(error) => {
                tracing::warn!(claim = claim.name(), error, "what comes after joining could not be done");
                false
            }
        }
    }

    async fn renew_hash(&self, claim: &NodeClaim) -> Result<(), String> {
        let renewed = self.provider.renewed_hash(claim).await.map_err(|error| error.to_string())?;
        if renewed.is_empty() {
            return Ok(());
        }
        let patch = json!({"metadata": {"uid": claim.metadata.uid, "annotations": renewed}});
        match self.claims().patch(claim.name(), &PatchParams::default(), &Patch::Merge(&patch)).await {
            // It is gone, or there is another one of its name.
            Err(kube::Error::Api(refusal)) if matches!(refusal.code, 404 | 409) => Ok(()),
            answer => answer.map(drop).map_err(|error| error.to_string()),
        }
    }
}

/// Whether the machine of a claim of this provider is a node, and stays.
fn has_joined(claim: &NodeClaim) -> bool {
    claim.spec.node_class_ref.group == GROUP
        && claim.metadata.deletion_timestamp.is_none()
        && !claim.status.node_name.is_empty()
        && claim.status.is_true(REGISTERED)
}

/// All memory that a node has.
fn memory_of(node: &DynamicObject) -> Option<Quantity> {
    node.data["status"]["capacity"]["memory"].as_str()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use std::sync::Arc;

    use super::*;
    use crate::{
        NodeClasses,
        mem::MemoryAws,
        provider::{ClusterAccess, ProviderOptions},
    };

    /// A runtime may move them between threads.
    const _: fn(JoinedMachines, NodeClasses) = |joined, classes| {
        const fn is_send(_: &impl Send) {}
        is_send(&joined.run(|| true));
        is_send(&classes.run(|| true));
    };

    fn claim(change: impl FnOnce(&mut serde_json::Value)) -> NodeClaim {
        let mut value = json!({
            "metadata": {"name": "general-1", "uid": "u1"},
            "spec": {"nodeClassRef": {"group": GROUP, "kind": "EC2NodeClass", "name": "default"}, "requirements": []},
            "status": {"nodeName": "ip-1", "conditions": [{"type": "Registered", "status": "True"}]},
        });
        change(&mut value);
        serde_json::from_value(value).expect("a claim")
    }

    #[test]
    fn only_registered_nodes_of_this_provider_have_joined() {
        assert!(has_joined(&claim(|_| {})));
        let ways: [fn(&mut serde_json::Value); 4] = [
            |claim| claim["spec"]["nodeClassRef"]["group"] = json!("karpenter.kwok.sh"),
            |claim| claim["status"]["nodeName"] = json!(""),
            |claim| claim["status"]["conditions"][0]["status"] = json!("Unknown"),
            |claim| claim["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z"),
        ];
        for (index, way) in ways.into_iter().enumerate() {
            assert!(!has_joined(&claim(way)), "{index}");
        }
    }

    #[tokio::test]
    async fn who_does_not_act_yet_hears_from_claims_whose_machines_are() {
        let client = kube::Config::new("http://127.0.0.1:1".parse().expect("a URL"));
        let client = Client::try_from(client).expect("a client");
        let aws = MemoryAws::small();
        let options = ProviderOptions::new("test", "us-west-2", ClusterAccess::default());
        let provider = Ec2Provider::new(Arc::new(aws.clone()), Arc::new(aws.clock().clone()), options);
        let mut joined = JoinedMachines::new(client, provider.clone());
        let named = claim(|claim| claim["status"]["providerID"] = json!("aws:///us-west-2a/i-1"));
        let named = serde_json::to_value(&named).and_then(serde_json::from_value).expect("an object");
        joined.hear(watcher::Event::InitApply(named));
        assert_eq!(provider.zone_of("i-1").as_deref(), Some("us-west-2a"));
    }

    #[test]
    fn the_memory_of_a_node_is_its_capacity() {
        let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "Node"));
        let mut node = DynamicObject::new("ip-1", &kind);
        assert_eq!(memory_of(&node), None);
        node.data = json!({"status": {"capacity": {"memory": "7832648Ki"}, "allocatable": {"memory": "1Ki"}}});
        assert_eq!(memory_of(&node), Some(Quantity::from_bytes(7_832_648 << 10)));
    }
}
