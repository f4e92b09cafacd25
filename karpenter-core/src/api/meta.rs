use std::{collections::BTreeMap, fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use super::{is_default, nullable};
use crate::Timestamp;

/// What every object carries: names, labels and where it comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct ObjectMeta {
    /// The name, unique among the objects of a kind in a namespace.
    pub name: String,
    /// The namespace; empty for objects that belong to none.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "nullable")]
    pub namespace: String,
    /// The identity of this very object, which a successor of the same name does not share.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "nullable")]
    pub uid: String,
    /// Labels, by which others select the object.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "nullable")]
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "nullable")]
    pub annotations: BTreeMap<String, String>,
    /// Names of those who must agree before the object is gone.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "nullable")]
    pub finalizers: Vec<String>,
    /// When the object was created.
    #[serde(skip_serializing_if = "is_default")]
    pub creation_timestamp: Option<Timestamp>,
    /// When its deletion was asked for; an object that has this is on its way out.
    #[serde(skip_serializing_if = "is_default")]
    pub deletion_timestamp: Option<Timestamp>,
    /// The objects that this one belongs to.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "nullable")]
    pub owner_references: Vec<OwnerReference>,
    /// Counts the changes of the specification.
    #[serde(skip_serializing_if = "is_default")]
    pub generation: Option<i64>,
    /// The server's version of the object, for optimistic concurrency.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "nullable")]
    pub resource_version: String,
}

impl ObjectMeta {
    /// Meta data with a name and nothing else.
    pub fn named(name: impl Into<String>) -> Self {
        Self { name: name.into(), ..Self::default() }
    }

    /// The namespace and the name, by which objects of a kind are sorted.
    pub(crate) fn sort_key(&self) -> (&str, &str) {
        (&self.namespace, &self.name)
    }

    /// The namespace, `default` if none is written.
    pub fn namespace(&self) -> &str {
        if self.namespace.is_empty() { "default" } else { &self.namespace }
    }

    /// The owner that keeps as many of the object as there should be, and would make the next one like it.
    pub fn controller(&self) -> Option<&OwnerReference> {
        self.owner_references.iter().find(|owner| owner.controller == Some(true))
    }

    /// Whether an owner of this kind is among the owners.
    pub fn is_owned_by(&self, api_version: &str, kind: &str) -> bool {
        self.owner_references.iter().any(|o| o.api_version == api_version && o.kind == kind)
    }
}

/// The object that another one belongs to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct OwnerReference {
    /// The group and version, such as `apps/v1`.
    pub api_version: String,
    /// The kind, such as `DaemonSet`.
    pub kind: String,
    /// The name.
    pub name: String,
    /// The identity.
    pub uid: String,
    /// Whether this owner manages the object.
    #[serde(skip_serializing_if = "is_default")]
    pub controller: Option<bool>,
    /// Whether the owner's deletion waits for this object.
    #[serde(skip_serializing_if = "is_default")]
    pub block_owner_deletion: Option<bool>,
}

/// One observed aspect of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct Condition {
    /// The aspect, such as `Ready`.
    pub r#type: String,
    /// Whether it holds.
    pub status: ConditionStatus,
    /// Why, as one word for machines.
    #[serde(deserialize_with = "nullable")]
    pub reason: String,
    /// Why, for people.
    #[serde(deserialize_with = "nullable")]
    pub message: String,
    /// When the status changed last.
    #[serde(skip_serializing_if = "is_default")]
    pub last_transition_time: Option<Timestamp>,
    /// The generation of the object that was looked at.
    #[serde(skip_serializing_if = "is_default")]
    pub observed_generation: Option<i64>,
}

/// Whether a [`Condition`] holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ConditionStatus {
    /// It does.
    True,
    /// It does not.
    False,
    /// Nobody can tell.
    #[default]
    Unknown,
}

/// A namespace and a name, written `namespace/name`.
///
/// ```
/// use karpenter_core::api::ObjectKey;
///
/// let key: ObjectKey = "kube-system/coredns-0".parse().unwrap();
/// assert_eq!((key.namespace.as_str(), key.name.as_str()), ("kube-system", "coredns-0"));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
}

impl ObjectKey {
    /// A key of these two parts.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }
}

impl Serialize for ObjectKey {
    /// As `namespace/name`.
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ObjectKey {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let Ok(key) = text.parse();
        Ok(key)
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

impl FromStr for ObjectKey {
    type Err = std::convert::Infallible;

    /// A text without a slash is a name in the namespace `default`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (namespace, name) = text.split_once('/').unwrap_or(("default", text));
        Ok(Self::new(namespace, name))
    }
}
