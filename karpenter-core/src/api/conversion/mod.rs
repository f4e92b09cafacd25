//! Manifests of older versions, and those with fields in their old places, read as `karpenter.sh/v1`.
//!
//! The rules are those of upstream's [migration to v1](https://karpenter.sh/docs/upgrading/v1-migration/). What upstream
//! cannot know without a cluster is not guessed: a reference to a node class that names no group stays without one.

mod parts;
mod wire;

use std::fmt;

use serde::{Deserialize, Deserializer};

use super::{NodeClaim, NodePool};

/// The versions of node pools and claims that [`Converted`] reads, the one that it gives first.
pub const READ_VERSIONS: [&str; 2] = ["karpenter.sh/v1", "karpenter.sh/v1beta1"];

/// An object as `karpenter.sh/v1` has it, read from what somebody wrote for that version or for `v1beta1`.
///
/// It reads all that the object itself reads, and the fields that were elsewhere once. A field that is written in its
/// old place and in its new one counts in the new one.
///
/// ```
/// use karpenter_core::api::{Converted, NodePool};
///
/// let old = r#"{"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "general"},
///     "spec": {"disruption": {"expireAfter": "24h"}}}"#;
/// let converted: Converted<NodePool> = serde_json::from_str(old)?;
/// assert_eq!(converted.object.spec.template.spec.expire_after.to_string(), "24h");
/// assert_eq!(converted.changes[0].field, "spec.disruption.expireAfter");
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Converted<T> {
    /// The object, as `karpenter.sh/v1` has it.
    pub object: T,
    /// How it differs from what was written; empty for a manifest of today.
    pub changes: Vec<Change>,
}

impl<'de> Deserialize<'de> for Converted<NodePool> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        wire::PoolWire::deserialize(deserializer).map(wire::PoolWire::convert)
    }
}

impl<'de> Deserialize<'de> for Converted<NodeClaim> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        wire::ClaimWire::deserialize(deserializer).map(wire::ClaimWire::convert)
    }
}

/// A field that `karpenter.sh/v1` writes in another way. Its text says what became of it and what to do.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub struct Change {
    /// The path of the field as it was written, such as `spec.disruption.expireAfter`.
    pub field: String,
    /// How it differs.
    pub difference: Difference,
}

/// How a field differs from what `karpenter.sh/v1` writes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Difference {
    /// The object is of an older version.
    Version {
        /// The version.
        version: String,
    },
    /// The field is read, but has another place now.
    Moved {
        /// The path of that place.
        to: String,
    },
    /// The field is not read, because it is written in its new place too.
    Overridden {
        /// The path of that place.
        by: String,
    },
    /// The value is read, but has another name now.
    Renamed {
        /// The value as it was written.
        from: String,
        /// Its name now.
        to: String,
    },
    /// A group and a version are read, where the group alone is written now.
    Group {
        /// The path where it is written.
        to: String,
        /// The group.
        group: String,
    },
    /// The field is not read: it belongs to the node class now.
    OfNodeClass,
    /// The field is not read: pools have no such thing any more.
    Dropped,
    /// A claim does not say when it expires. In older versions that is for its pool to say, so that whoever knows the
    /// pool should set it; until then it is the default.
    ExpiryOfPool,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.difference)
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version { version } => {
                let [now, _] = READ_VERSIONS;
                write!(f, "{version} is served no more; it is read as {now}: convert it to that")
            }
            Self::Moved { to } => write!(f, "is read, but its place is {to} now: move it there"),
            Self::Overridden { by } => write!(f, "is not read, because {by} is written too: delete it"),
            Self::Renamed { from, to } => write!(f, "{from} is called {to} now: write that"),
            Self::Group { to, group } => write!(f, "is read as the group {group}: write that as {to} instead"),
            Self::OfNodeClass => {
                f.write_str("is not read, so nodes are planned without it; it belongs to the node class: move it there")
            }
            Self::Dropped => f.write_str("is not read, because pools have no such field any more: delete it"),
            Self::ExpiryOfPool => f.write_str("is missing; it is that of the pool if there is one: convert the claim"),
        }
    }
}

#[cfg(test)]
mod tests;
