//! A cloud whose machines are nodes that [kwok](https://kwok.sigs.k8s.io) plays: for trying things out on a real control plane.

use std::sync::Arc;

use async_trait::async_trait;
use karpenter_core::{
    Catalog, CloudProvider,
    api::{Node, NodeClaim, NodePool, Taint, TaintEffect},
    labels,
    provider::{CreateError, Deletion, Instance, Launched, ProviderError, ProviderErrorKind, ProviderId},
};
use karpenter_fake::FakeCloud;
use kube::{
    Api, Client, Error,
    api::{DeleteParams, ListParams, Patch, PatchParams},
};
use serde_json::json;

use crate::{
    kinds::{Seen, Watched as _},
    write::create,
};

const NAME: &str = "kwok";
const PREFIX: &str = "kwok://";

/// Nodes with this annotation are played by kwok.
const PLAYED: &str = "kwok.x-k8s.io/node";
/// The uid of the claim that a machine was made for.
const CLAIM_UID: &str = "karpenter.kwok.sh/claim-uid";
/// The machine is gone: its node may be, once all who hold it have agreed.
const TERMINATED: &str = "karpenter.kwok.sh/terminated";

/// Sells the machines of a catalog as nodes that kwok plays. What it sold is in the cluster, so that it forgets nothing.
///
/// It buys the cheapest offering that a claim allows, as [`FakeCloud`] does.
pub struct KwokCloud {
    client: Client,
    catalog: Arc<Catalog>,
}

impl KwokCloud {
    /// A cloud that sells what is in the catalog.
    pub fn new(client: Client, catalog: Arc<Catalog>) -> Self {
        Self { client, catalog }
    }

    fn nodes(&self) -> Api<Seen<Node>> {
        Api::all(self.client.clone())
    }

    /// The node of a machine, unless the machine is gone.
    async fn find(&self, name: &str) -> Result<Option<Arc<Node>>, Error> {
        let seen = self.nodes().get_opt(name).await?;
        Ok(seen.and_then(|seen| seen.object.ok()).filter(|node| is_machine(node)))
    }

    async fn make(&self, claim: &NodeClaim, mut node: Node) -> Result<(), CreateError> {
        node.metadata.name = claim.metadata.name.clone();
        node.metadata.labels.insert(labels::HOSTNAME.to_owned(), node.metadata.name.clone());
        node.metadata.creation_timestamp = None;
        id_of(&node.metadata.name).as_str().clone_into(&mut node.spec.provider_id);
        // No pod runs on it before its claim has made it its own.
        node.spec.taints.push(Taint::new(labels::UNREGISTERED, "", TaintEffect::NoExecute));
        let mut wire = serde_json::to_value(&node).expect("objects of the API are JSON");
        wire["metadata"]["annotations"] = json!({PLAYED: "fake", CLAIM_UID: claim.metadata.uid});
        create::<Node>(&self.client, &wire).await.map_err(|error| failed("create", &error).into())
    }
}

#[async_trait]
impl CloudProvider for KwokCloud {
    fn name(&self) -> &str {
        NAME
    }

    async fn catalog(&self, _pool: &NodePool) -> Result<Arc<Catalog>, ProviderError> {
        Ok(Arc::clone(&self.catalog))
    }

    async fn create(&self, claim: &NodeClaim) -> Result<Launched, CreateError> {
        // A cloud of one machine chooses as any other and says what its node is like.
        let shop = FakeCloud::new(Arc::clone(&self.catalog));
        let mut launched = shop.create(claim).await?;
        let found = self.find(claim.name()).await.map_err(|error| failed("create", &error))?;
        match found {
            Some(node) if claim_uid(&node) == claim.metadata.uid => {
                launched.instance.labels = Arc::new(node.metadata.labels.clone());
                launched.capacity = node.status.capacity.clone();
                launched.allocatable = node.status.allocatable.clone();
            }
            Some(_) => {
                let message = format!("node {} belongs to another claim", claim.name());
                return Err(ProviderError::new(NAME, "create", ProviderErrorKind::Other, message).into());
            }
            None => {
                for node in shop.ready_nodes() {
                    self.make(claim, node).await?;
                }
            }
        }
        launched.instance.id = id_of(claim.name());
        Ok(launched)
    }

    async fn delete(&self, id: &ProviderId) -> Result<Deletion, ProviderError> {
        let Some(name) = name_of(id) else { return Ok(Deletion::Gone) };
        let gone = json!({"metadata": {"annotations": {TERMINATED: "true"}}});
        let nodes = self.nodes();
        match nodes.patch(name, &PatchParams::default(), &Patch::Merge(gone)).await {
            Ok(_) => {}
            Err(Error::Api(status)) if status.code == 404 => return Ok(Deletion::Gone),
            Err(error) => return Err(failed("delete", &error)),
        }
        match nodes.delete(name, &DeleteParams::default()).await {
            // The node goes once all who hold it have agreed; the machine has gone by now.
            Ok(_) => Ok(Deletion::Gone),
            Err(Error::Api(status)) if status.code == 404 => Ok(Deletion::Gone),
            Err(error) => Err(failed("delete", &error)),
        }
    }

    async fn get(&self, id: &ProviderId) -> Result<Option<Instance>, ProviderError> {
        let Some(name) = name_of(id) else { return Ok(None) };
        let node = self.find(name).await.map_err(|error| failed("get", &error))?;
        Ok(node.as_deref().map(instance))
    }

    async fn list(&self) -> Result<Vec<Instance>, ProviderError> {
        let all = self.nodes().list(&ListParams::default()).await.map_err(|error| failed("list", &error))?;
        let nodes = all.items.into_iter().filter_map(|seen| seen.object.ok());
        Ok(nodes.filter(|node| is_machine(node)).map(|node| instance(&node)).collect())
    }
}

fn id_of(node: &str) -> ProviderId {
    ProviderId::new(format!("{PREFIX}{node}"))
}

fn name_of(id: &ProviderId) -> Option<&str> {
    id.as_str().strip_prefix(PREFIX)
}

fn claim_uid(node: &Node) -> &str {
    node.metadata.annotations.get(CLAIM_UID).map_or("", String::as_str)
}

fn is_machine(node: &Node) -> bool {
    let annotations = &node.metadata.annotations;
    annotations.contains_key(CLAIM_UID) && !annotations.contains_key(TERMINATED)
}

fn instance(node: &Node) -> Instance {
    let mut instance = Instance::new(id_of(&node.meta().name), claim_uid(node), node.metadata.labels.clone());
    instance.is_terminating = node.metadata.deletion_timestamp.is_some();
    instance
}

fn failed(operation: &'static str, error: &Error) -> ProviderError {
    let kind = match error {
        Error::Api(status) if status.code == 403 || status.code == 401 => ProviderErrorKind::Unauthorized,
        Error::Api(status) if status.code == 429 => ProviderErrorKind::Throttled,
        Error::Api(_) => ProviderErrorKind::Other,
        _ => ProviderErrorKind::Unavailable,
    };
    ProviderError::new(NAME, operation, kind, error.to_string())
}
