use std::{borrow::Cow, collections::BTreeMap, fmt, time::Duration};

use crate::{
    Catalog, Requirement, Requirements, Timestamp,
    api::{
        Condition, ConditionStatus, NodeClaim, NodePool, STATIC_HASH_VERSION,
        conditions::{DRIFTED, LAUNCHED, condition},
    },
    cluster::Place,
    labels,
};

const NODE_POOL_DRIFTED: &str = "NodePoolDrifted";
const REQUIREMENTS_DRIFTED: &str = "RequirementsDrifted";
const INSTANCE_TYPE_NOT_FOUND: &str = "InstanceTypeNotFound";
/// The reason where the provider's words are not one word.
const PROVIDER_DRIFTED: &str = "ProviderDrifted";
/// The most characters in the reason of a condition.
const MAX_REASON: usize = 1024;
/// How old a claim must be for its instance type to be missed: catalogs may be incomplete for a while.
const MIN_AGE_OF_MISSED_TYPES: Duration = Duration::from_hours(1);
/// A label with this word in its name says which reservation a node draws on.
const RESERVATION: &str = "reservation";

/// How a node is not what its pool or its node class asks for any more.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Drift {
    /// The template of the pool has been changed since the claim was made.
    NodePoolDrifted {
        /// The static hash of the pool when the claim was made.
        claim_hash: String,
        /// The static hash of the pool.
        pool_hash: String,
    },
    /// The pool requires something else of a label.
    RequirementsDrifted {
        /// The key of the label.
        label: String,
        /// What the claim has; `None` if it lacks the label.
        value: Option<String>,
        /// What the pool requires.
        requirement: Requirement,
    },
    /// The instance type is not offered any more in the way in which it was bought.
    InstanceTypeNotFound {
        /// The name of the type; `None` if the claim names none.
        instance_type: Option<String>,
    },
    /// The machine is not what the node class asks for, in the provider's words.
    Provider(String),
}

/// What the provider says about a machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProviderDrift<'p> {
    /// It was not asked: the claim's condition `Drifted` holds what it said last.
    #[default]
    NotAsked,
    /// Its answer, as [`CloudProvider::drift`](crate::CloudProvider::drift) gives it.
    Answered(Option<&'p str>),
}

impl Drift {
    /// How the node of a place has drifted, as [`Drift::of_claim`]; `None` for nodes that were not made by the engine.
    pub fn of_place(
        place: &Place,
        pool: &NodePool,
        catalog: Option<&Catalog>,
        provider: ProviderDrift<'_>,
        now: Timestamp,
    ) -> Option<Self> {
        Self::of_claim(place.node_claim.as_deref()?, pool, catalog, provider, now)
    }

    /// How a claim has drifted from `pool`, which is its own: the first that holds of the variants, in their order. A
    /// claim that is not launched has not drifted.
    ///
    /// - The static hashes in the annotations of claim and pool differ, and are of one version. For a pool without the
    ///   annotation its hash is computed.
    /// - The claim's labels do not meet the pool's requirements; a label that it lacks meets only those that admit its
    ///   absence.
    /// - The claim is more than an hour old, and no offering in `catalog` of its type, for sale now or not, has what
    ///   its labels say. A reserved machine may also become an on-demand one, and labels that name its reservation do
    ///   not count.
    /// - The provider says so.
    ///
    /// `catalog` is `None` if it is not known now. What is not known is as the claim's condition `Drifted` has it.
    ///
    /// ```
    /// use karpenter_core::{
    ///     Timestamp,
    ///     api::{NodeClaim, NodePool, NodeSelectorRequirement, Operator},
    ///     disrupt::{Drift, ProviderDrift},
    /// };
    ///
    /// let mut claim = NodeClaim::named("general-1");
    /// claim.status.provider_id = "machine-1".to_owned();
    /// claim.metadata.labels.insert("kubernetes.io/arch".to_owned(), "amd64".to_owned());
    ///
    /// let arm = NodeSelectorRequirement::new("kubernetes.io/arch", Operator::In, ["arm64"]);
    /// let pool = NodePool::named("general").require(arm);
    /// let drift = Drift::of_claim(&claim, &pool, None, ProviderDrift::NotAsked, Timestamp::from_millis(0)).unwrap();
    /// assert_eq!(drift.to_string(), "label kubernetes.io/arch must be In [arm64], but the node has amd64");
    /// ```
    pub fn of_claim(
        claim: &NodeClaim,
        pool: &NodePool,
        catalog: Option<&Catalog>,
        provider: ProviderDrift<'_>,
        now: Timestamp,
    ) -> Option<Self> {
        if !is_launched(claim) {
            return None;
        }
        static_drift(claim, pool)
            .or_else(|| requirement_drift(claim, pool))
            .or_else(|| type_drift(claim, catalog, now))
            .or_else(|| provider_drift(claim, provider))
    }

    /// The one word for this that Karpenter writes as the reason of the condition `Drifted`. What the provider says is that if it
    /// is one word, and `ProviderDrifted` if not: the API server would refuse all of the status with it.
    pub fn condition_reason(&self) -> &str {
        match self {
            Self::NodePoolDrifted { .. } => NODE_POOL_DRIFTED,
            Self::RequirementsDrifted { .. } => REQUIREMENTS_DRIFTED,
            Self::InstanceTypeNotFound { .. } => INSTANCE_TYPE_NOT_FOUND,
            Self::Provider(reason) if is_word(reason) => reason,
            Self::Provider(_) => PROVIDER_DRIFTED,
        }
    }
}

/// Whether a text may be the reason of a condition.
fn is_word(text: &str) -> bool {
    let is_of_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | ',' | ':');
    text.len() <= MAX_REASON
        && text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.chars().all(is_of_word)
        && !text.ends_with([',', ':'])
}

/// Since when a claim is said to have drifted; `None` if nobody says so, or not since when.
pub fn drifted_since(claim: &NodeClaim) -> Option<Timestamp> {
    drifted(claim)?.last_transition_time
}

/// The order in which drifted nodes are replaced: those without pods that must move first, then the oldest drift, then
/// by name. A drift that nobody has noted yet, so that `since` is `None`, is the youngest.
///
/// ```
/// use karpenter_core::{Timestamp, disrupt::drift_order};
///
/// let (early, late) = (Timestamp::from_millis(1), Timestamp::from_millis(2));
/// let mut nodes = [(true, Some(early), "a"), (false, None, "b"), (false, Some(late), "c"), (false, Some(early), "d")];
/// nodes.sort_by_key(|&(has_pods, since, name)| drift_order(has_pods, since, name));
/// assert_eq!(nodes.map(|(.., name)| name), ["d", "c", "b", "a"]);
/// ```
pub fn drift_order(has_pods: bool, since: Option<Timestamp>, name: &str) -> (bool, Timestamp, &str) {
    (has_pods, since.unwrap_or(Timestamp::from_millis(i64::MAX)), name)
}

/// The condition `Drifted`, if it holds.
fn drifted(claim: &NodeClaim) -> Option<&Condition> {
    condition(&claim.status.conditions, DRIFTED).filter(|condition| condition.status == ConditionStatus::True)
}

/// Shells that keep no conditions still write the name of the machine.
fn is_launched(claim: &NodeClaim) -> bool {
    condition(&claim.status.conditions, LAUNCHED)
        .map_or_else(|| !claim.status.provider_id.is_empty(), |condition| condition.status == ConditionStatus::True)
}

fn static_drift(claim: &NodeClaim, pool: &NodePool) -> Option<Drift> {
    let (own, wanted) = (&claim.metadata.annotations, &pool.metadata.annotations);
    let (hash, version) = (own.get(labels::NODE_POOL_HASH)?, own.get(labels::NODE_POOL_HASH_VERSION)?);
    let (pool_hash, pool_version, is_same) = match wanted.get(labels::NODE_POOL_HASH) {
        Some(noted) => (Cow::Borrowed(noted), wanted.get(labels::NODE_POOL_HASH_VERSION)?.as_str(), noted == hash),
        None => (Cow::Owned(pool.static_hash()), STATIC_HASH_VERSION, pool.has_static_hash(hash)),
    };
    let has_drifted = version == pool_version && !is_same;
    has_drifted.then(|| Drift::NodePoolDrifted { claim_hash: hash.clone(), pool_hash: pool_hash.into_owned() })
}

fn requirement_drift(claim: &NodeClaim, pool: &NodePool) -> Option<Drift> {
    let wanted: Requirements = pool.spec.template.spec.requirements.iter().collect();
    wanted.iter().find_map(|(key, requirement)| {
        let value = label(&claim.metadata.labels, key);
        (!requirement.admits(value)).then(|| Drift::RequirementsDrifted {
            label: key.to_owned(),
            value: value.map(str::to_owned),
            requirement: requirement.clone(),
        })
    })
}

/// The value of a label, be it under the beta name of the key.
fn label<'l>(labels: &'l BTreeMap<String, String>, key: &str) -> Option<&'l str> {
    let is_alias = |own: &str| labels::normalized(own) == key;
    labels.get(key).or_else(|| labels.iter().find(|(own, _)| is_alias(own)).map(|(_, v)| v)).map(String::as_str)
}

fn type_drift(claim: &NodeClaim, catalog: Option<&Catalog>, now: Timestamp) -> Option<Drift> {
    let name = label(&claim.metadata.labels, labels::INSTANCE_TYPE);
    let is_missing = match catalog {
        Some(catalog) => is_old(claim, now) && !name.is_some_and(|name| is_offered(claim, name, catalog)),
        None => drifted(claim).is_some_and(|condition| condition.reason == INSTANCE_TYPE_NOT_FOUND),
    };
    is_missing.then(|| Drift::InstanceTypeNotFound { instance_type: name.map(str::to_owned) })
}

fn is_old(claim: &NodeClaim, now: Timestamp) -> bool {
    claim.metadata.creation_timestamp.is_some_and(|created| now.since(created) > MIN_AGE_OF_MISSED_TYPES)
}

fn is_offered(claim: &NodeClaim, instance_type: &str, catalog: &Catalog) -> bool {
    let own = &claim.metadata.labels;
    let is_reserved = label(own, labels::CAPACITY_TYPE) == Some(labels::RESERVED);
    let mut wanted = Requirements::of_labels(own.iter().filter(|(key, _)| !is_reserved || !is_of_reservation(key)));
    if is_reserved {
        wanted.add(labels::CAPACITY_TYPE, Requirement::one_of([labels::RESERVED, labels::ON_DEMAND]));
    }
    let offerings = catalog.get(instance_type).map_or(&[][..], |t| &t.offerings);
    offerings.iter().any(|offering| wanted.conflict(&offering.requirements).is_none())
}

/// Whether a label of a reserved machine may change, because the reservation ends: which one it is, and that it is one.
fn is_of_reservation(key: &str) -> bool {
    let name = key.split_once('/').map_or(key, |(_, name)| name);
    key == labels::CAPACITY_TYPE || name.contains(RESERVATION)
}

fn provider_drift(claim: &NodeClaim, provider: ProviderDrift<'_>) -> Option<Drift> {
    let reason = match provider {
        ProviderDrift::Answered(answer) => answer?,
        ProviderDrift::NotAsked => noted_by_provider(claim)?,
    };
    Some(Drift::Provider(reason.to_owned()))
}

/// Why the claim's condition says that it has drifted, unless that is for the engine to say. Old objects give no reason.
fn noted_by_provider(claim: &NodeClaim) -> Option<&str> {
    match drifted(claim)?.reason.as_str() {
        NODE_POOL_DRIFTED | REQUIREMENTS_DRIFTED | INSTANCE_TYPE_NOT_FOUND => None,
        "" => Some(DRIFTED),
        reason => Some(reason),
    }
}

impl fmt::Display for Drift {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NodePoolDrifted { claim_hash, pool_hash } => {
                write!(f, "the template of the pool has changed: its hash was {claim_hash} and is {pool_hash}")
            }
            Self::RequirementsDrifted { label, value: Some(value), requirement } => {
                write!(f, "label {label} must be {requirement}, but the node has {value}")
            }
            Self::RequirementsDrifted { label, value: None, requirement } => {
                write!(f, "label {label} must be {requirement}, but the node lacks it")
            }
            Self::InstanceTypeNotFound { instance_type: Some(name) } => {
                write!(f, "instance type {name} is not offered any more as it was bought")
            }
            Self::InstanceTypeNotFound { instance_type: None } => f.write_str("its claim names no instance type"),
            Self::Provider(reason) => write!(f, "the provider says {reason}"),
        }
    }
}
