//! Lists of resources as the Kubernetes API writes them: a name and a quantity each.

use std::fmt;

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{MapAccess, Visitor},
};

use crate::Quantity;

/// The name of a resource.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum ResourceName {
    /// `cpu`, counted in thousandths of a core.
    Cpu,
    /// `memory`, in bytes.
    Memory,
    /// `ephemeral-storage`, in bytes.
    EphemeralStorage,
    /// `pods`, the number of pods that a node may run.
    Pods,
    /// Any other: an extended resource such as `nvidia.com/gpu`, huge pages, or `nodes` in the limits of a pool.
    Other(Box<str>),
}

impl ResourceName {
    /// The name on the wire.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Cpu => "cpu",
            Self::Memory => "memory",
            Self::EphemeralStorage => "ephemeral-storage",
            Self::Pods => "pods",
            Self::Other(name) => name,
        }
    }

    /// What there is of it in whole numbers, rounded down: thousandths of a core for CPU, units for all others.
    pub(crate) fn floor(&self, quantity: Quantity) -> i64 {
        if *self == Self::Cpu { quantity.milli_floor() } else { quantity.units_floor() }
    }

    /// Whether this is a size of huge pages, such as `hugepages-2Mi`.
    pub fn is_huge_pages(&self) -> bool {
        self.as_str().starts_with("hugepages-")
    }
}

impl From<&str> for ResourceName {
    fn from(name: &str) -> Self {
        match name {
            "cpu" => Self::Cpu,
            "memory" => Self::Memory,
            "ephemeral-storage" => Self::EphemeralStorage,
            "pods" => Self::Pods,
            other => Self::Other(other.into()),
        }
    }
}

impl fmt::Display for ResourceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Quantities by resource name, in the order of the names.
///
/// ```
/// use karpenter_core::{Quantity, ResourceList};
///
/// let list = ResourceList::from_iter([("memory", Quantity::from_bytes(1 << 30)), ("cpu", Quantity::from_milli(500))]);
/// assert_eq!(list.to_string(), "cpu 500m, memory 1Gi");
/// assert_eq!(list.get("nvidia.com/gpu"), None);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ResourceList(Vec<(ResourceName, Quantity)>);

impl ResourceList {
    /// An empty list.
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// The quantity of a resource, if the list names it.
    pub fn get(&self, name: &str) -> Option<Quantity> {
        self.0.iter().find(|(n, _)| n.as_str() == name).map(|(_, q)| *q)
    }

    /// Sets a quantity and gives back the one before it.
    pub fn insert(&mut self, name: ResourceName, quantity: Quantity) -> Option<Quantity> {
        match self.0.binary_search_by(|(n, _)| n.cmp(&name)) {
            Ok(at) => Some(std::mem::replace(&mut self.0[at].1, quantity)),
            Err(at) => {
                self.0.insert(at, (name, quantity));
                None
            }
        }
    }

    /// Names and quantities in the order of the names.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&ResourceName, Quantity)> + Clone {
        self.0.iter().map(|(n, q)| (n, *q))
    }

    /// Whether the list names nothing.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds another list, resource by resource.
    pub fn add(&mut self, other: &Self) {
        self.merge(other, Quantity::saturating_add);
    }

    /// Takes another list away, resource by resource; the result may be negative.
    pub fn subtract(&mut self, other: &Self) {
        self.merge(other, Quantity::saturating_sub);
    }

    /// The larger of the two quantities of every resource.
    pub fn maximum(&mut self, other: &Self) {
        self.merge(other, Ord::max);
    }

    /// Every quantity `count` times.
    pub fn times(&self, count: i64) -> Self {
        Self(self.0.iter().map(|(name, quantity)| (name.clone(), quantity.saturating_mul(count))).collect())
    }

    /// Whether there is enough room for all of this. What a room does not name it has nothing of.
    pub fn fits(&self, room: &Self) -> bool {
        self.iter().all(|(name, wanted)| room.get(name.as_str()).unwrap_or_default() >= wanted)
    }

    fn merge(&mut self, other: &Self, combine: impl Fn(Quantity, Quantity) -> Quantity) {
        for (name, quantity) in &other.0 {
            match self.0.binary_search_by(|(n, _)| n.cmp(name)) {
                Ok(at) => self.0[at].1 = combine(self.0[at].1, *quantity),
                Err(at) => self.0.insert(at, (name.clone(), combine(Quantity::ZERO, *quantity))),
            }
        }
    }
}

impl<N: Into<ResourceName>> FromIterator<(N, Quantity)> for ResourceList {
    /// The last of several quantities of one name counts.
    fn from_iter<I: IntoIterator<Item = (N, Quantity)>>(items: I) -> Self {
        let mut list = Self::new();
        for (name, quantity) in items {
            list.insert(name.into(), quantity);
        }
        list
    }
}

impl fmt::Display for ResourceList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (name, quantity)) in self.0.iter().enumerate() {
            write!(f, "{}{name} {quantity}", if i > 0 { ", " } else { "" })?;
        }
        Ok(())
    }
}

impl Serialize for ResourceList {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, quantity)| (name.as_str(), quantity)))
    }
}

impl<'de> Deserialize<'de> for ResourceList {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ListVisitor;
        impl<'de> Visitor<'de> for ListVisitor {
            type Value = ResourceList;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map of resource names to quantities")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<ResourceList, A::Error> {
                let mut list = ResourceList::new();
                while let Some(name) = map.next_key::<Name>()? {
                    list.insert(name.0, map.next_value()?);
                }
                Ok(list)
            }
        }
        deserializer.deserialize_map(ListVisitor)
    }
}

/// A key read without an allocation where it is one of the common names.
struct Name(ResourceName);

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct NameVisitor;
        impl Visitor<'_> for NameVisitor {
            type Value = Name;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a resource name")
            }
            fn visit_str<E>(self, name: &str) -> Result<Name, E> {
                Ok(Name(name.into()))
            }
        }
        deserializer.deserialize_str(NameVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_add_and_subtract_by_name() {
        let mut a = ResourceList::from_iter([("cpu", Quantity::from_units(1))]);
        let b = ResourceList::from_iter([("memory", Quantity::from_bytes(1024)), ("cpu", Quantity::from_milli(500))]);
        a.add(&b);
        assert_eq!(a.to_string(), "cpu 1500m, memory 1Ki");
        a.subtract(&b);
        assert_eq!(a.to_string(), "cpu 1, memory 0");
        a.maximum(&b);
        assert_eq!(a.to_string(), "cpu 1, memory 1Ki");
    }

    #[test]
    fn the_wire_keeps_every_name() {
        let json = r#"{"nvidia.com/gpu":"1","cpu":2,"hugepages-2Mi":"4Mi"}"#;
        let list: ResourceList = serde_json::from_str(json).expect("valid");
        assert_eq!(
            serde_json::to_string(&list).expect("valid"),
            r#"{"cpu":"2","hugepages-2Mi":"4Mi","nvidia.com/gpu":"1"}"#
        );
        assert!(list.iter().any(|(name, _)| name.is_huge_pages()));
    }
}
