//! A cloud whose machines are nodes that [kwok](https://kwok.sigs.k8s.io) plays: for trying things out on a real control plane.

use std::{fmt, sync::Arc};

use async_trait::async_trait;
use karpenter_core::{
    Catalog, CloudProvider,
    api::{Node, NodeClaim, NodeClassKind, NodePool, Taint, TaintEffect},
    labels,
    provider::{CreateError, Deletion, Instance, Launched, ProviderError, ProviderErrorKind, ProviderId},
};
use karpenter_fake::FakeCloud;
use kube::{
    Api, Client, Error, ResourceExt as _,
    api::{DeleteParams, ListParams, PartialObjectMeta, Patch, PatchParams},
};
use serde_json::json;

use crate::{
    kinds::{Seen, Unread},
    write::create,
};

/// What is written on a node, without what it is like.
type Tag = PartialObjectMeta<Seen<Node>>;

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
/// It buys the cheapest offering that a claim allows, of a type with room for its requests, as [`FakeCloud`] does.
pub struct KwokCloud {
    client: Client,
    catalog: Arc<Catalog>,
}

impl fmt::Debug for KwokCloud {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KwokCloud").field("types", &self.catalog.types().len()).finish_non_exhaustive()
    }
}

impl KwokCloud {
    /// A cloud that sells what is in the catalog.
    pub fn new(client: Client, catalog: Arc<Catalog>) -> Self {
        Self { client, catalog }
    }

    fn nodes(&self) -> Api<Seen<Node>> {
        Api::all(self.client.clone())
    }

    /// What is written on the node of a machine, unless the machine is gone. It can be read whatever the rest of the node is like.
    async fn find(&self, name: &str) -> Result<Option<Tag>, Error> {
        Ok(self.nodes().get_metadata_opt(name).await?.filter(is_machine))
    }

    /// The node of a machine.
    async fn node(&self, name: &str) -> Result<Arc<Node>, ProviderError> {
        let seen = self.nodes().get(name).await.map_err(|error| failed("create", &error))?;
        let unread = |unread: Unread| {
            let message = format!("node {name} cannot be read: {}", unread.error);
            ProviderError::new(NAME, "create", ProviderErrorKind::Other, message)
        };
        seen.object.map_err(unread)
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

    async fn catalog(&self, pool: &NodePool) -> Result<Arc<Catalog>, ProviderError> {
        Ok(self.catalog.of_pool(pool.name()))
    }

    fn node_class_kinds(&self) -> Vec<NodeClassKind> {
        vec![NodeClassKind::new("karpenter.kwok.sh", "KWOKNodeClass")]
    }

    async fn create(&self, claim: &NodeClaim) -> Result<Launched, CreateError> {
        let found = self.find(claim.name()).await.map_err(|error| failed("create", &error))?;
        match found {
            Some(tag) if claim_uid(&tag) == claim.metadata.uid => {
                let node = self.node(claim.name()).await?;
                let (capacity, allocatable) = (node.status.capacity.clone(), node.status.allocatable.clone());
                Ok(Launched::new(instance(&tag), capacity, allocatable))
            }
            Some(_) => {
                let message = format!("node {} belongs to another claim", claim.name());
                Err(ProviderError::new(NAME, "create", ProviderErrorKind::Other, message).into())
            }
            None => {
                // A cloud of one machine chooses as any other and says what its node is like.
                let shop = FakeCloud::new(Arc::clone(&self.catalog));
                let mut launched = shop.create(claim).await?;
                for node in shop.ready_nodes() {
                    self.make(claim, node).await?;
                }
                launched.instance.id = id_of(claim.name());
                Ok(launched)
            }
        }
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
        Ok(node.as_ref().map(instance))
    }

    async fn list(&self) -> Result<Vec<Instance>, ProviderError> {
        let all = self.nodes().list_metadata(&ListParams::default()).await.map_err(|error| failed("list", &error))?;
        Ok(all.items.iter().filter(|tag| is_machine(tag)).map(instance).collect())
    }
}

fn id_of(node: &str) -> ProviderId {
    ProviderId::new(format!("{PREFIX}{node}"))
}

fn name_of(id: &ProviderId) -> Option<&str> {
    id.as_str().strip_prefix(PREFIX)
}

fn claim_uid(tag: &Tag) -> &str {
    tag.annotations().get(CLAIM_UID).map_or("", String::as_str)
}

fn is_machine(tag: &Tag) -> bool {
    tag.annotations().contains_key(CLAIM_UID) && !tag.annotations().contains_key(TERMINATED)
}

fn instance(tag: &Tag) -> Instance {
    let mut instance = Instance::new(id_of(&tag.name_any()), claim_uid(tag), tag.labels().clone());
    instance.is_terminating = tag.metadata.deletion_timestamp.is_some();
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use axum::{Router, routing::get};

    use super::*;

    /// A cloud whose API server has one machine, of which the node cannot be read.
    async fn cloud() -> KwokCloud {
        let node = json!({
            "metadata": {"name": "n", "resourceVersion": "1", "labels": {"a": "b"}, "annotations": {CLAIM_UID: "u"}},
            "spec": {"taints": 7},
        });
        let all = json!({"metadata": {"resourceVersion": "1"}, "items": [&node]}).to_string();
        let node = node.to_string();
        let routes = Router::new()
            .route("/api/v1/nodes", get(|| async { all }))
            .route("/api/v1/nodes/n", get(|| async { node }));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        tokio::spawn(async { axum::serve(listener, routes).await });
        let client = Client::try_from(kube::Config::new(url.parse().expect("a URL"))).expect("a client");
        KwokCloud::new(client, karpenter_fake::generated_catalog())
    }

    #[tokio::test]
    async fn a_machine_whose_node_cannot_be_read_is_not_gone() {
        let cloud = cloud().await;
        let machine = Instance::new(id_of("n"), "u", BTreeMap::from([("a".to_owned(), "b".to_owned())]));
        assert_eq!(cloud.get(&id_of("n")).await.expect("an answer"), Some(machine.clone()));
        assert_eq!(cloud.list().await.expect("an answer"), [machine]);
    }
}
