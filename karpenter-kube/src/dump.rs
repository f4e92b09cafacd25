//! What a cluster holds now, as the API server writes it.

use karpenter_core::{
    api::{
        CsiNode, DaemonSet, Namespace, Node, NodeClaim, NodeOverlay, NodePool, PersistentVolume, PersistentVolumeClaim,
        Pod, PodDisruptionBudget, StorageClass,
    },
    provider::ProviderId,
};
use kube::{Client, Error, api::ListParams, core::Request};
use serde::Deserialize;

use crate::kinds::Watched;

/// How many objects are asked for at a time.
const PAGE: u32 = 500;

/// Some objects of a kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// Such as `Pod`.
    pub kind: &'static str,
    /// A list of objects, in JSON, as `kubectl get --raw` prints it.
    pub text: String,
}

/// A kind of object that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("{kind}: {source}")]
pub struct DumpError {
    /// Such as `Pod`.
    pub kind: &'static str,
    /// Why.
    #[source]
    pub source: Box<Error>,
}

/// All objects that plans depend on. Kinds that the API server does not know are left out: before Karpenter is installed
/// there are no node pools.
///
/// # Errors
/// [`DumpError`] for the first kind that cannot be read.
pub async fn dump(client: &Client) -> Result<Vec<Page>, DumpError> {
    let mut pages = list::<NodePool>(client).await?;
    pages.extend(list::<NodeClaim>(client).await?);
    pages.extend(list::<NodeOverlay>(client).await?);
    pages.extend(list::<Node>(client).await?);
    pages.extend(list::<Pod>(client).await?);
    pages.extend(list::<DaemonSet>(client).await?);
    pages.extend(list::<PodDisruptionBudget>(client).await?);
    pages.extend(list::<Namespace>(client).await?);
    pages.extend(list::<PersistentVolumeClaim>(client).await?);
    pages.extend(list::<PersistentVolume>(client).await?);
    pages.extend(list::<StorageClass>(client).await?);
    pages.extend(list::<CsiNode>(client).await?);
    Ok(pages)
}

/// All node pools, as they are now.
///
/// # Errors
/// [`DumpError`] if they cannot be read.
pub async fn node_pools(client: &Client) -> Result<Vec<Page>, DumpError> {
    list::<NodePool>(client).await
}

/// The machines that claims have, as they are now, with the uids of these. Claims count that cannot be read otherwise, such as those
/// that a later version has written.
///
/// # Errors
/// [`DumpError`] if they cannot be listed.
pub async fn machines(client: &Client) -> Result<Vec<(ProviderId, String)>, DumpError> {
    let mut all = Vec::new();
    for page in list::<NodeClaim>(client).await? {
        let source = |error| DumpError { kind: page.kind, source: Box::new(Error::SerdeError(error)) };
        all.extend(machines_of(&page.text).map_err(source)?);
    }
    Ok(all)
}

fn machines_of(text: &str) -> Result<Vec<(ProviderId, String)>, serde_json::Error> {
    #[derive(Deserialize)]
    struct Claims {
        items: Vec<serde_json::Value>,
    }

    let claims: Claims = serde_json::from_str(text)?;
    let machine = |claim: &serde_json::Value| {
        let text = |path| claim.pointer(path)?.as_str().filter(|text| !text.is_empty());
        Some((ProviderId::new(text("/status/providerID")?), text("/metadata/uid")?.to_owned()))
    };
    Ok(claims.items.iter().filter_map(machine).collect())
}

async fn list<T: Watched>(client: &Client) -> Result<Vec<Page>, DumpError> {
    let failed = |source| DumpError { kind: T::KIND, source: Box::new(source) };
    let (mut pages, mut params) = (Vec::new(), ListParams::default().limit(PAGE));
    loop {
        let request = Request::new(path::<T>()).list(&params).map_err(|error| failed(Error::BuildRequest(error)))?;
        let text = match client.request_text(request).await {
            Err(Error::Api(status)) if status.is_not_found() => return Ok(pages),
            other => other.map_err(failed)?,
        };
        let head: Head = serde_json::from_str(&text).map_err(|error| failed(Error::SerdeError(error)))?;
        pages.push(Page { kind: T::KIND, text });
        if head.metadata.r#continue.is_empty() {
            return Ok(pages);
        }
        params.continue_token = Some(head.metadata.r#continue);
    }
}

/// Where the objects of a kind are.
fn path<T: Watched>() -> String {
    let root = if T::GROUP.is_empty() { "/api".to_owned() } else { format!("/apis/{}", T::GROUP) };
    format!("{root}/{}/{}", T::VERSION, T::PLURAL)
}

/// What a list says of itself.
#[derive(Deserialize)]
struct Head {
    #[serde(default)]
    metadata: ListMeta,
}

#[derive(Default, Deserialize)]
struct ListMeta {
    /// Where the next objects begin; empty after the last ones.
    #[serde(default)]
    r#continue: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_core_group_has_a_path_of_its_own() {
        assert_eq!(path::<Pod>(), "/api/v1/pods");
        assert_eq!(path::<NodePool>(), "/apis/karpenter.sh/v1/nodepools");
    }

    #[test]
    fn machines_are_known_of_claims_that_cannot_be_read() {
        let text = r#"{"items":[
            {"metadata":{"name":"a","uid":"u1"},"spec":{"expireAfter":"a fortnight"},"status":{"providerID":"m-1"}},
            {"metadata":{"name":"b","uid":"u2"},"status":{"providerID":""}},
            {"metadata":{"name":"c","uid":"u3"}},
            {"metadata":{"name":"d","uid":7},"status":{"providerID":"m-4"}}]}"#;
        assert_eq!(machines_of(text).expect("a list"), [(ProviderId::new("m-1"), "u1".to_owned())]);
        assert!(machines_of("{}").is_err());
    }

    #[test]
    fn the_last_page_says_so() {
        let head = |text: &str| serde_json::from_str::<Head>(text).expect("a list").metadata.r#continue;
        assert_eq!(
            head(r#"{"kind":"PodList","metadata":{"continue":"abc","remainingItemCount":7},"items":[]}"#),
            "abc"
        );
        assert_eq!(head(r#"{"kind":"PodList","metadata":{"resourceVersion":"9"},"items":[]}"#), "");
        assert_eq!(head(r#"{"kind":"PodList","items":[]}"#), "");
    }
}
