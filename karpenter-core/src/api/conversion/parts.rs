//! What older pools and claims share, and how their fields go where they belong.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, MapAccess, Visitor},
};

use super::{Change, Difference};
use crate::api::{ConsolidationPolicy, NodeClassRef, ObjectMeta, nullable};

/// Where v1.0 kept the kubelet's settings of an object that had been of `v1beta1`.
const KUBELET_ANNOTATION: &str = "compatibility.karpenter.sh/v1beta1-kubelet-conversion";

/// A map that nobody reads; an empty one says nothing.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Unread {
    says_something: bool,
}

impl<'de> Deserialize<'de> for Unread {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(UnreadVisitor)
    }
}

struct UnreadVisitor;

impl<'de> Visitor<'de> for UnreadVisitor {
    type Value = Unread;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Unread, A::Error> {
        let mut out = Unread::default();
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {
            out.says_something = true;
        }
        Ok(out)
    }
}

/// The versions that are read. An object that names none is taken for one of today.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub(super) enum ApiVersion {
    #[default]
    #[serde(rename = "karpenter.sh/v1", alias = "")]
    V1,
    #[serde(rename = "karpenter.sh/v1beta1")]
    V1Beta1,
}

/// [`NodeClassRef`] with the version that it once had.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ClassRefWire {
    #[serde(deserialize_with = "nullable")]
    api_version: String,
    #[serde(deserialize_with = "nullable")]
    group: String,
    #[serde(deserialize_with = "nullable")]
    kind: String,
    #[serde(deserialize_with = "nullable")]
    name: String,
}

/// [`ConsolidationPolicy`] with its old names.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub(super) enum PolicyWire {
    WhenEmpty,
    #[default]
    WhenEmptyOrUnderutilized,
    Balanced,
    WhenUnderutilized,
}

/// Collects what was changed.
#[derive(Debug, Default)]
pub(super) struct Changes(pub(super) Vec<Change>);

impl Changes {
    pub(super) fn add(&mut self, field: impl Into<String>, difference: Difference) {
        self.0.push(Change { field: field.into(), difference });
    }

    /// Notes the version of an object, and the settings of the kubelet that its annotations keep.
    pub(super) fn header(&mut self, version: ApiVersion, metadata: &ObjectMeta) {
        if version == ApiVersion::V1Beta1 {
            self.add("apiVersion", Difference::Version { version: super::READ_VERSIONS[1].to_owned() });
        }
        if metadata.annotations.contains_key(KUBELET_ANNOTATION) {
            self.add(format!("metadata.annotations.{KUBELET_ANNOTATION}"), Difference::OfNodeClass);
        }
    }

    /// Notes a field that nobody reads, if it says something.
    pub(super) fn unread(&mut self, map: Unread, path: impl Into<String>, difference: Difference) {
        if map.says_something {
            self.add(path, difference);
        }
    }

    /// The value of a field that has moved: of the new place, or else of the old one.
    pub(super) fn moved<T>(&mut self, (old, from): (Option<T>, &str), (new, to): (Option<T>, &str)) -> Option<T> {
        match (old.is_some(), new.is_some()) {
            (true, true) => self.add(from, Difference::Overridden { by: to.to_owned() }),
            (true, false) => self.add(from, Difference::Moved { to: to.to_owned() }),
            (false, _) => {}
        }
        new.or(old)
    }

    /// The reference to a node class at `path`.
    pub(super) fn class(&mut self, wire: ClassRefWire, path: &str) -> NodeClassRef {
        let ClassRefWire { api_version, mut group, kind, name } = wire;
        if !api_version.is_empty() {
            let (from, to) = (format!("{path}.apiVersion"), format!("{path}.group"));
            if group.is_empty() {
                api_version.split('/').next().unwrap_or_default().clone_into(&mut group);
                self.add(from, Difference::Group { to, group: group.clone() });
            } else {
                self.add(from, Difference::Overridden { by: to });
            }
        }
        NodeClassRef { group, kind, name }
    }

    pub(super) fn policy(&mut self, wire: PolicyWire, path: &str) -> ConsolidationPolicy {
        match wire {
            PolicyWire::WhenEmpty => ConsolidationPolicy::WhenEmpty,
            PolicyWire::WhenEmptyOrUnderutilized => ConsolidationPolicy::WhenEmptyOrUnderutilized,
            PolicyWire::Balanced => ConsolidationPolicy::Balanced,
            PolicyWire::WhenUnderutilized => {
                let (from, to) = ("WhenUnderutilized".to_owned(), "WhenEmptyOrUnderutilized".to_owned());
                self.add(path, Difference::Renamed { from, to });
                ConsolidationPolicy::WhenEmptyOrUnderutilized
            }
        }
    }
}
