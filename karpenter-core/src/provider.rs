//! The seam between the engine and a cloud.

mod meter;

use std::{borrow::Cow, collections::BTreeMap, sync::Arc, time::Duration};

use async_trait::async_trait;
pub use meter::{Histogram, Measured, Measurement, Meter};
use serde::{Deserialize, Serialize};

use crate::{
    Catalog, ResourceList, Timestamp,
    api::{ConditionStatus, NodeClaim, NodeClassKind, NodePool},
    catalog::OfferingKey,
};

/// A cloud, or anything else that can turn a [`NodeClaim`] into a machine.
///
/// Implementations are shared between tasks and must be cheap to call often: cache what is slow to fetch. The
/// conformance kit of `karpenter-fake` checks what these docs promise, as far as that can be seen from outside while two
/// machines come and go, and says what it cannot see.
///
/// A claim says what is acceptable: its requirements list instance types, zones and capacity types. Which of those to
/// buy is the provider's choice, normally the cheapest that can be had; every one of them is fit for the pods. The requirements
/// are about the labels of the node: those of the type and of the offering, and of all others those in the claim's metadata.
/// `minValues` is kept by the plan and not counted again: of the types of a claim for a reservation only some may have it.
#[async_trait]
pub trait CloudProvider: Send + Sync {
    /// A short name for logs and metrics.
    fn name(&self) -> &str;

    /// The instance types that nodes of `pool` may have, those that cannot be bought now included.
    ///
    /// # Errors
    /// [`ProviderError`] if the catalog cannot be known now, or with [`ProviderErrorKind::NodeClassNotReady`] if the node class of
    /// the pool cannot be used. An empty catalog means that there are no types.
    async fn catalog(&self, pool: &NodePool) -> Result<Arc<Catalog>, ProviderError>;

    /// Buys a machine for `claim`.
    ///
    /// Idempotent by `claim.metadata.uid`: a second call gives back the same machine, also one that comes before the first has
    /// its answer.
    ///
    /// Tries every offering that the claim allows, save those that it knows to be sold out, before it gives up. One
    /// that stops earlier must remember what it tried: the same claim may come again and again.
    ///
    /// # Errors
    /// [`CreateError`]; afterwards there is no machine for the claim, or the next call gives back the one there is.
    async fn create(&self, claim: &NodeClaim) -> Result<Launched, CreateError>;

    /// Starts to terminate a machine.
    ///
    /// # Errors
    /// [`ProviderError`] if it is not known whether the machine will go. One that is gone already is
    /// [`Deletion::Gone`], not an error.
    async fn delete(&self, id: &ProviderId) -> Result<Deletion, ProviderError>;

    /// The machine of this name, `None` once it is gone.
    ///
    /// # Errors
    /// [`ProviderError`] if it is not known whether there is such a machine.
    async fn get(&self, id: &ProviderId) -> Result<Option<Instance>, ProviderError>;

    /// All machines that were made for claims and are not gone, each once. Those on their way out are among them.
    ///
    /// # Errors
    /// [`ProviderError`] if the list may be incomplete.
    async fn list(&self) -> Result<Vec<Instance>, ProviderError>;

    /// Why a machine is not what its claim's node class asks for any more, if so. Never, unless implemented.
    ///
    /// One word, such as `ImageDrift`, becomes the reason of the claim's condition `Drifted`; more than that only its message.
    ///
    /// # Errors
    /// [`ProviderError`] if that cannot be known now.
    async fn drift(&self, _claim: &NodeClaim) -> Result<Option<String>, ProviderError> {
        Ok(None)
    }

    /// The kinds of node classes that are its own: a controller leaves pools, claims and nodes of others alone, which are another
    /// controller's in the same cluster. Empty, which means any kind, unless implemented.
    fn node_class_kinds(&self) -> Vec<NodeClassKind> {
        Vec::new()
    }

    /// Which node conditions mean that a machine must be replaced, and after how long. None, unless implemented.
    fn repair_policies(&self) -> Vec<RepairPolicy> {
        Vec::new()
    }

    /// What happened to machines since `cursor`. Nothing, unless implemented. Asked with the cursor of the answer, it tells
    /// nothing again, and at last nothing at all.
    ///
    /// # Errors
    /// [`ProviderError`] if that cannot be known now; the same cursor is asked again.
    async fn next_events(&self, cursor: EventCursor) -> Result<ProviderEvents, ProviderError> {
        Ok(ProviderEvents { events: Vec::new(), cursor })
    }

    /// What the provider counted and measured, for metrics: all series of a name one after the other. Nothing, unless
    /// implemented.
    fn measurements(&self) -> Vec<Measurement> {
        Vec::new()
    }
}

/// The provider's name for a machine.
///
/// No two machines have one name at the same time, and while a machine has a name it keeps it. A name may be given again, as that
/// of a slot in a rack, to a machine that is bought after the last one of the name was gone: [`CloudProvider::delete`] said
/// [`Deletion::Gone`] of that, or it broke down and [`CloudProvider::get`] and [`CloudProvider::list`] tell of it no more. A
/// deletion that only [started](Deletion::Started) frees no name: it is asked for again, and the next machine would be meant. What
/// is told of a name by [`CloudProvider::next_events`] is taken for news of the machine that has it by then.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ProviderId(String);

impl ProviderId {
    /// The name as it is written in `spec.providerID` of a node.
    pub fn new(id: impl Into<String>) -> Self {
        Self(id.into())
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Display for ProviderId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// A machine as it was bought.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Launched {
    /// The machine.
    pub instance: Instance,
    /// All that it has, no less than what pods will have.
    pub capacity: ResourceList,
    /// What pods will have of it.
    pub allocatable: ResourceList,
    /// The image that it was started from; empty if there is no such thing.
    pub image_id: String,
}

/// A machine that was made for a claim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Instance {
    /// The provider's name for it.
    pub id: ProviderId,
    /// The uid of the claim that it was made for.
    pub claim_uid: String,
    /// The labels that its node has: as it is bought, all that the catalog promises of its type and of one of its offerings;
    /// later at least instance type, zone and capacity type, where the catalog names them.
    pub labels: Arc<BTreeMap<String, String>>,
    /// Whether it is on its way out.
    pub is_terminating: bool,
}

impl Launched {
    /// A machine that has this, of which pods will have that.
    pub fn new(instance: Instance, capacity: ResourceList, allocatable: ResourceList) -> Self {
        Self { instance, capacity, allocatable, image_id: String::new() }
    }

    /// Writes what was bought into the claim: labels, which keep values that the claim already has, and status.
    pub fn hydrate(&self, claim: &mut NodeClaim) {
        for (key, value) in &*self.instance.labels {
            claim.metadata.labels.entry(key.clone()).or_insert_with(|| value.clone());
        }
        claim.status.provider_id.clone_from(&self.instance.id.0);
        claim.status.image_id.clone_from(&self.image_id);
        claim.status.capacity = self.capacity.clone();
        claim.status.allocatable = self.allocatable.clone();
    }
}

impl Instance {
    /// A machine with these labels that was made for the claim of this uid, and is not on its way out.
    pub fn new(id: ProviderId, claim_uid: impl Into<String>, labels: impl Into<Arc<BTreeMap<String, String>>>) -> Self {
        Self { id, claim_uid: claim_uid.into(), labels: labels.into(), is_terminating: false }
    }
}

/// How far a deletion got.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Deletion {
    /// The machine is on its way out; ask again.
    Started,
    /// There is no such machine any more.
    Gone,
}

/// When to give up on a machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct RepairPolicy {
    /// The type of the node's condition.
    pub condition: String,
    /// The status that means trouble.
    pub status: ConditionStatus,
    /// For how long that is tolerated.
    pub toleration: Duration,
}

impl RepairPolicy {
    /// Gives up on a machine whose node has had this condition in this status for so long.
    pub fn new(condition: impl Into<String>, status: ConditionStatus, toleration: Duration) -> Self {
        Self { condition: condition.into(), status, toleration }
    }
}

/// How far a stream of events was read; starts at its default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct EventCursor(pub u64);

/// What happened, and where to read on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ProviderEvents {
    /// The events in their order.
    pub events: Vec<ProviderEvent>,
    /// The cursor for the next call.
    pub cursor: EventCursor,
}

impl ProviderEvents {
    /// These events, after which `cursor` reads on.
    pub fn new(events: Vec<ProviderEvent>, cursor: EventCursor) -> Self {
        Self { events, cursor }
    }
}

/// Something that happened to a machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all_fields = "camelCase")]
#[non_exhaustive]
pub enum ProviderEvent {
    /// The cloud takes the machine back because it needs its capacity. If it is a spot machine, its offering is avoided for a
    /// while.
    Interruption {
        /// The machine.
        id: ProviderId,
        /// When it ends, as far as the provider knows. The engine drains the node at once.
        at: Timestamp,
    },
    /// The machine ends for another reason, such as maintenance or because somebody stops it: others of its kind can be had.
    Ending {
        /// The machine.
        id: ProviderId,
        /// When it ends, as far as the provider knows. The engine drains the node at once.
        at: Timestamp,
    },
    /// The machine is gone, whether or not it was asked for.
    Terminated {
        /// The machine.
        id: ProviderId,
    },
    /// Something that people should know, and the engine does nothing about: it becomes an event of the claim and of its
    /// node.
    Notice {
        /// The machine.
        id: ProviderId,
        /// Whether it is a warning.
        is_warning: bool,
        /// One word, such as `SpotInterrupted`.
        reason: Cow<'static, str>,
        /// A sentence.
        message: String,
    },
}

/// Why a machine was not bought. Each kind has a reaction of its own.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[serde(rename_all_fields = "camelCase")]
#[non_exhaustive]
pub enum CreateError {
    /// None of these offerings has capacity now; they are avoided for a while and the pods planned anew.
    #[error("no capacity for {}", offerings.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))]
    InsufficientCapacity {
        /// The offerings that were tried in vain: at least one, by the names of the catalog, and none that the claim does not
        /// allow. All offerings that share a key are avoided.
        offerings: Vec<OfferingKey>,
    },
    /// The node class of the claim cannot be used: the claim is deleted, its pools are not ready, and no other claim of the class is
    /// made for half a minute. Then it is tried again; each time that it still cannot be used it is left alone for twice as long as
    /// before, up to five minutes. [`CloudProvider::catalog`] can say the same without claims that come to nothing.
    #[error("node class {class} is not ready: {message}")]
    NodeClassNotReady {
        /// The name of the node class.
        class: String,
        /// Why.
        message: String,
    },
    /// No offering of the catalog meets the requirements of the claim; trying again is no use.
    #[error("no offering meets the requirements: {message}")]
    NothingCompatible {
        /// Which requirement nothing meets.
        message: String,
    },
    /// Anything else; the call may be repeated.
    #[error(transparent)]
    Provider(#[from] ProviderError),
}

/// A call to the provider that failed for reasons outside the engine.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[error("{provider}: {operation}: {message}")]
#[non_exhaustive]
pub struct ProviderError {
    /// The provider's name.
    pub provider: String,
    /// The call, such as `create`.
    pub operation: Cow<'static, str>,
    /// How it failed.
    pub kind: ProviderErrorKind,
    /// What the provider said.
    pub message: String,
}

/// What is said of a pool without a catalog, if it is not known why.
pub(crate) const NO_CATALOG: &str = "the provider gave no catalog for it";

impl ProviderError {
    /// What is said of a pool whose catalog cannot be had because of this.
    pub(crate) fn as_missing_catalog(&self) -> String {
        format!("{NO_CATALOG}: {}", self.with_kind())
    }

    /// The error with its kind, for people who have to do something about it.
    pub(crate) fn with_kind(&self) -> String {
        match self.kind {
            ProviderErrorKind::Other => self.to_string(),
            kind => format!("{self} ({})", kind.name()),
        }
    }

    /// `operation` of `provider` failed so.
    pub fn new(
        provider: impl Into<String>,
        operation: impl Into<Cow<'static, str>>,
        kind: ProviderErrorKind,
        message: impl Into<String>,
    ) -> Self {
        Self { provider: provider.into(), operation: operation.into(), kind, message: message.into() }
    }
}

/// How a call to the provider failed, as far as the engine's reaction goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum ProviderErrorKind {
    /// Too many calls; later ones will do.
    Throttled,
    /// The credentials do not allow it; people must act. Of a catalog: a pool of which none is known is not ready, and says why.
    Unauthorized,
    /// The cloud did not answer, or not in time.
    Unavailable,
    /// Of a catalog: the node class of the pool cannot be used now. No claim of the pool is created until it can, and the
    /// message becomes that of the condition `NodeClassReady`.
    NodeClassNotReady,
    /// Anything else.
    Other,
}

impl ProviderErrorKind {
    /// The word for it in metrics and messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Throttled => "Throttled",
            Self::Unauthorized => "Unauthorized",
            Self::Unavailable => "Unavailable",
            Self::NodeClassNotReady => "NodeClassNotReady",
            Self::Other => "Other",
        }
    }
}
