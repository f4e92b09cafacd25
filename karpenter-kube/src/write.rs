//! Actions on the cluster as calls of the API server.

use std::time::Duration;

use k8s_openapi::api::core::v1 as core;
use karpenter_core::{
    api::{Node, NodeClaim, NodeOverlay, NodePool, ObjectKey},
    engine::{ActionResult, Refusal},
};
use kube::{
    Api, Client, Error, Resource,
    api::{DeleteParams, EvictParams, Patch, PatchParams, PostParams, Preconditions},
    core::Status,
};
use serde::Serialize;
use serde_json::{Value, json};

use crate::{
    kinds::{Seen, Watched},
    patch::Patches,
};

/// Writes to a cluster. Each call is made once: the engine decides again from what the cluster is like then.
#[derive(Clone)]
pub(crate) struct Writer {
    client: Client,
}

impl Writer {
    pub(crate) fn new(client: Client) -> Self {
        Self { client }
    }

    pub(crate) async fn create_claim(&self, claim: &NodeClaim) -> ActionResult {
        outcome(create::<NodeClaim>(&self.client, claim).await)
    }

    pub(crate) async fn update_claim(&self, before: &NodeClaim, after: &NodeClaim) -> ActionResult {
        outcome(self.patch::<NodeClaim>(Patches::of_claim(before, after), after).await)
    }

    pub(crate) async fn update_node(&self, before: &Node, after: &Node) -> ActionResult {
        outcome(self.patch::<Node>(Patches::of_node(before, after), after).await)
    }

    pub(crate) async fn update_pool(&self, before: &NodePool, after: &NodePool) -> ActionResult {
        outcome(self.patch::<NodePool>(Patches::of_pool(before, after), after).await)
    }

    pub(crate) async fn update_overlay(&self, before: &NodeOverlay, after: &NodeOverlay) -> ActionResult {
        outcome(self.patch::<NodeOverlay>(Patches::of_overlay(before, after), after).await)
    }

    /// Writes the status last: a claim that names its machine has the labels that came with it. The last finalizer of an object goes
    /// in a write of its own, as there is no status to write after that.
    async fn patch<T: Watched>(&self, patches: Patches, object: &T) -> Result<(), Error> {
        let api = Api::<Seen<T>>::all(self.client.clone());
        let (meta, params) = (object.meta(), PatchParams::default());
        let mut version = meta.resource_version.clone();
        if let Some(mut patch) = patches.object {
            patch["metadata"]["resourceVersion"] = version.into();
            patch["metadata"]["uid"] = meta.uid.clone().into();
            let written = api.patch(&meta.name, &params, &Patch::Merge(patch)).await?;
            version = written.meta.resource_version.unwrap_or_default();
        }
        if let Some(mut patch) = patches.status {
            patch["metadata"] = json!({"resourceVersion": version, "uid": meta.uid});
            api.patch_status(&meta.name, &params, &Patch::Merge(patch)).await?;
        }
        Ok(())
    }

    pub(crate) async fn delete<T: Watched>(&self, name: &str, uid: &str) -> ActionResult {
        let api = Api::<Seen<T>>::all(self.client.clone());
        outcome(api.delete(name, &only(uid)).await)
    }

    pub(crate) async fn evict(&self, pod: &ObjectKey, uid: &str) -> ActionResult {
        let params = EvictParams { delete_options: Some(only(uid)), post_options: PostParams::default() };
        outcome(self.pods(pod).evict(&pod.name, &params).await)
    }

    pub(crate) async fn delete_pod(&self, pod: &ObjectKey, uid: &str, grace_period: Duration) -> ActionResult {
        let seconds = u32::try_from(grace_period.as_secs()).unwrap_or(u32::MAX);
        let params = DeleteParams { grace_period_seconds: Some(seconds), ..only(uid) };
        outcome(self.pods(pod).delete(&pod.name, &params).await)
    }

    fn pods(&self, pod: &ObjectKey) -> Api<core::Pod> {
        Api::namespaced(self.client.clone(), &pod.namespace)
    }
}

/// Creates an object of a kind that belongs to no namespace.
pub(crate) async fn create<T: Watched>(client: &Client, object: &impl Serialize) -> Result<(), Error> {
    let body = serde_json::to_vec(object).expect("objects of the API are JSON");
    let request = kube::core::Request::new(Seen::<T>::url_path(&(), None)).create(&PostParams::default(), body);
    client.request::<Value>(request.map_err(Error::BuildRequest)?).await?;
    Ok(())
}

/// For the object of this uid, and no other of its name.
fn only(uid: &str) -> DeleteParams {
    let uid = Some(uid.to_owned()).filter(|uid| !uid.is_empty());
    DeleteParams { preconditions: Some(Preconditions { uid, resource_version: None }), ..DeleteParams::default() }
}

fn outcome<T>(result: Result<T, Error>) -> ActionResult {
    match result {
        Ok(_) => ActionResult::Written,
        Err(Error::Api(status)) => ActionResult::Refused(refusal(&status)),
        Err(error) => ActionResult::Refused(Refusal::Unavailable(error.to_string())),
    }
}

fn refusal(status: &Status) -> Refusal {
    let message = status.message.clone();
    match (status.code, status.reason.as_str()) {
        (404, _) => Refusal::NotFound,
        (409, "AlreadyExists") => Refusal::AlreadyExists,
        // Another object has the name by now.
        (409, _) if message.contains("Precondition failed: UID") => Refusal::NotFound,
        (409, _) => Refusal::Conflict,
        (429, _) => Refusal::TooManyRequests(message),
        (400 | 403 | 422, _) => Refusal::Invalid(message),
        _ => Refusal::Unavailable(message),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use axum::{
        Router,
        http::{StatusCode, Uri},
        routing::any,
    };

    use super::*;

    /// An API server that answers so to patches of the object itself, and takes those of its status. What it was sent is kept.
    async fn api_server(answer: StatusCode) -> (Client, Arc<Mutex<Vec<(String, Value)>>>) {
        let sent = Arc::<Mutex<Vec<(String, Value)>>>::default();
        let kept = Arc::clone(&sent);
        let handler = async move |uri: Uri, body: String| {
            let body = serde_json::from_str(&body).expect("JSON");
            let path = uri.path().to_owned();
            let status = if path.ends_with("/status") { StatusCode::OK } else { answer };
            kept.lock().expect("no panic").push((path, body));
            let meta = json!({"name": "c", "uid": "u", "resourceVersion": "8"});
            let fault =
                json!({"status": "Failure", "code": status.as_u16(), "reason": "Conflict", "message": "changed"});
            let answer = if status.is_success() { json!({"metadata": meta}) } else { fault };
            (status, answer.to_string())
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        tokio::spawn(async move { axum::serve(listener, Router::new().fallback(any(handler))).await });
        let uri = format!("http://{address}").parse().expect("a URL");
        (Client::try_from(kube::Config::new(uri)).expect("a client"), sent)
    }

    /// A controller that is stopped between the two asks for the machine again and is given the same; one that found the machine
    /// named would take the labels for written.
    #[tokio::test]
    async fn a_claim_has_its_labels_before_it_names_its_machine() {
        let mut before = NodeClaim::named("c");
        (before.metadata.uid, before.metadata.resource_version) = ("u".to_owned(), "7".to_owned());
        let mut after = before.clone();
        after.metadata.labels.insert("karpenter.sh/capacity-type".to_owned(), "spot".to_owned());
        after.status.provider_id = "machine".to_owned();
        let own = "/apis/karpenter.sh/v1/nodeclaims/c";

        let (client, sent) = api_server(StatusCode::OK).await;
        assert!(matches!(Writer::new(client).update_claim(&before, &after).await, ActionResult::Written));
        let sent = sent.lock().expect("no panic").clone();
        let paths: Vec<&str> = sent.iter().map(|(path, _)| path.as_str()).collect();
        let versions: Vec<&Value> = sent.iter().map(|(_, body)| &body["metadata"]["resourceVersion"]).collect();
        assert_eq!((paths, versions), (vec![own, &format!("{own}/status")], vec![&json!("7"), &json!("8")]));

        let (client, sent) = api_server(StatusCode::CONFLICT).await;
        let result = Writer::new(client).update_claim(&before, &after).await;
        assert!(matches!(result, ActionResult::Refused(Refusal::Conflict)), "{result:?}");
        assert_eq!(sent.lock().expect("no panic").len(), 1, "the status must not be written then");
    }

    #[test]
    fn what_the_api_server_refuses_is_told_apart() {
        let status = |code, reason: &str, message: &str| {
            let status = json!({"status": "Failure", "code": code, "reason": reason, "message": message});
            refusal(&serde_json::from_value(status).expect("a status"))
        };
        assert_eq!(status(404, "NotFound", "no"), Refusal::NotFound);
        assert_eq!(status(409, "AlreadyExists", "it is there"), Refusal::AlreadyExists);
        assert_eq!(status(409, "Conflict", "the object has been modified"), Refusal::Conflict);
        let other = "Operation cannot be fulfilled on pods \"a\": Precondition failed: UID in precondition: 1, UID in object meta: 2";
        assert_eq!(status(409, "Conflict", other), Refusal::NotFound);
        assert_eq!(status(429, "TooManyRequests", "budget"), Refusal::TooManyRequests("budget".to_owned()));
        assert_eq!(status(422, "Invalid", "spec"), Refusal::Invalid("spec".to_owned()));
        assert_eq!(status(403, "Forbidden", "rbac"), Refusal::Invalid("rbac".to_owned()));
        assert_eq!(status(500, "InternalError", "etcd"), Refusal::Unavailable("etcd".to_owned()));
    }
}
