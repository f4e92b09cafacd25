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

    /// Writes the status first: an object of which the last finalizer goes has none any more.
    async fn patch<T: Watched>(&self, patches: Patches, object: &T) -> Result<(), Error> {
        let api = Api::<Seen<T>>::all(self.client.clone());
        let (meta, params) = (object.meta(), PatchParams::default());
        let mut version = meta.resource_version.clone();
        if let Some(mut patch) = patches.status {
            patch["metadata"] = json!({"resourceVersion": version, "uid": meta.uid});
            let written = api.patch_status(&meta.name, &params, &Patch::Merge(patch)).await?;
            version = written.meta.resource_version.unwrap_or_default();
        }
        if let Some(mut patch) = patches.object {
            patch["metadata"]["resourceVersion"] = version.into();
            patch["metadata"]["uid"] = meta.uid.clone().into();
            api.patch(&meta.name, &params, &Patch::Merge(patch)).await?;
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
    use super::*;

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
