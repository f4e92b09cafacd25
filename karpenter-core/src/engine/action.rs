use std::{borrow::Cow, sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{
    Catalog, CloudProvider,
    api::{Node, NodeClaim, NodeOverlay, NodePool, ObjectKey},
    provider::{CreateError, Deletion, EventCursor, Instance, Launched, ProviderError, ProviderEvents, ProviderId},
};

/// The number of an action, unique in the life of an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ActionId(pub u64);

/// An action to carry out, after which an [`Event::Done`](super::Event::Done) tells what came of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Request {
    /// Its number.
    pub id: ActionId,
    /// What to do.
    pub action: Action,
}

/// Something to do. Writes to the cluster name the version of the object that they were made from in
/// `metadata.resourceVersion` and must fail with [`Refusal::Conflict`] if it is another by now.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all_fields = "camelCase")]
#[non_exhaustive]
pub enum Action {
    /// Create this claim in the cluster. The API server gives it a uid.
    CreateClaim(Box<NodeClaim>),
    /// Write the metadata and the status of this claim.
    UpdateClaim(Box<NodeClaim>),
    /// Delete this claim; it is there until its finalizers are gone.
    DeleteClaim {
        /// Its name.
        name: String,
        /// Its uid; another claim of the name is left alone.
        uid: String,
    },
    /// Write the metadata and the taints of this node.
    UpdateNode(Box<Node>),
    /// Delete this node; it is there until its finalizers are gone.
    DeleteNode {
        /// Its name.
        name: String,
        /// Its uid; another node of the name is left alone.
        uid: String,
    },
    /// Write the annotations and the status of this pool.
    UpdatePool(Box<NodePool>),
    /// Write the status of this overlay.
    UpdateOverlay(Box<NodeOverlay>),
    /// Ask the API server to evict a pod, which it refuses while a disruption budget does not allow it.
    Evict {
        /// The pod.
        pod: ObjectKey,
        /// Its uid; another pod of the name is left alone.
        uid: String,
    },
    /// Delete a pod, whatever its disruption budgets say.
    DeletePod {
        /// The pod.
        pod: ObjectKey,
        /// Its uid; another pod of the name is left alone.
        uid: String,
        /// How long it may take to end.
        grace_period: Duration,
    },
    /// Tell people.
    Note(Note),
    /// Buy a machine for this claim, which may ask for less than the claim in the cluster does: providers know nothing of overlays.
    Launch(Box<NodeClaim>),
    /// Terminate this machine.
    Terminate(ProviderId),
    /// Look whether this machine is there.
    Get(ProviderId),
    /// List all machines.
    List,
    /// Ask what can be bought for this pool.
    Catalog(Box<NodePool>),
    /// Ask whether the machine of this claim is still what its node class asks for.
    Drift(Arc<NodeClaim>),
    /// Ask what happened to machines since then.
    NextEvents(EventCursor),
}

impl Action {
    /// The method of a [`CloudProvider`] that carries it out, as Karpenter's metrics name it; none if the API server does.
    pub fn provider_method(&self) -> Option<&'static str> {
        match self {
            Self::Launch(_) => Some("Create"),
            Self::Terminate(_) => Some("Delete"),
            Self::Get(_) => Some("Get"),
            Self::List => Some("List"),
            Self::Catalog(_) => Some("GetInstanceTypes"),
            Self::Drift(_) => Some("IsDrifted"),
            Self::NextEvents(_) => Some("NextEvents"),
            _ => None,
        }
    }

    /// Carries it out on a provider. An action for the API server is given back.
    pub async fn call(self, provider: &dyn CloudProvider) -> Result<ActionResult, Self> {
        Ok(match self {
            Self::Launch(claim) => ActionResult::Launched(provider.create(&claim).await),
            Self::Terminate(machine) => ActionResult::Terminated(provider.delete(&machine).await),
            Self::Get(machine) => ActionResult::Found(provider.get(&machine).await),
            Self::List => ActionResult::Listed(provider.list().await),
            Self::Catalog(pool) => ActionResult::Catalog(provider.catalog(&pool).await),
            Self::Drift(claim) => ActionResult::Drift(provider.drift(&claim).await),
            Self::NextEvents(cursor) => ActionResult::Events(provider.next_events(cursor).await),
            other => return Err(other),
        })
    }
}

/// What came of an [`Action`].
#[derive(Clone, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub enum ActionResult {
    /// The API server did it. What the object is like then comes as an event of its own.
    Written,
    /// The API server did not do it.
    Refused(Refusal),
    /// A machine was bought, or was not.
    Launched(Result<Launched, CreateError>),
    /// A machine is on its way out or gone, or it is not known whether it will go.
    Terminated(Result<Deletion, ProviderError>),
    /// The machine, `None` if it is gone.
    Found(Result<Option<Instance>, ProviderError>),
    /// All machines.
    Listed(Result<Vec<Instance>, ProviderError>),
    /// What can be bought.
    Catalog(Result<Arc<Catalog>, ProviderError>),
    /// Why a machine is not what its node class asks for, if so.
    Drift(Result<Option<String>, ProviderError>),
    /// What happened to machines.
    Events(Result<ProviderEvents, ProviderError>),
}

/// Why the API server did not do something.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Refusal {
    /// There is no such object, or another of its name (404, or 409 for a uid).
    #[error("there is no such object")]
    NotFound,
    /// There is an object of this name already (409).
    #[error("there is an object of this name already")]
    AlreadyExists,
    /// The object is not what the action was made from (409).
    #[error("the object has changed meanwhile")]
    Conflict,
    /// A disruption budget does not allow it now (429).
    #[error("a disruption budget does not allow it: {0}")]
    TooManyRequests(String),
    /// The object breaks a rule (422, or 403).
    #[error("{0}")]
    Invalid(String),
    /// The API server did not answer, or not in time; it is not known whether it was done.
    #[error("the API server did not answer: {0}")]
    Unavailable(String),
}

/// Something that people should know of an object, as an event of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Note {
    /// The object.
    pub object: super::ObjectRef,
    /// Whether it is a warning.
    pub is_warning: bool,
    /// One word, such as `Launched`; Karpenter's own where there is one.
    pub reason: Cow<'static, str>,
    /// A sentence.
    pub message: String,
}
