//! Version 2 of the Go library [hashstructure](https://github.com/mitchellh/hashstructure) over FNV-1, by which Karpenter and its
//! providers hash what they settle for a node. The same hash lets a cluster change engines without replacing its nodes.
//!
//! ```
//! use karpenter_core::hashstructure::{Struct, text};
//!
//! let class = Struct::named("Class").field("Role", Some(text("node"))).field("Image", None);
//! assert_eq!(class.hash(), Struct::named("Class").field("Role", Some(text("node"))).hash());
//! let other_order = |class: Struct| class.field("Image", Some(text("image"))).field("Role", Some(text("node")));
//! assert_ne!(class.field("Image", Some(text("image"))).hash(), other_order(Struct::named("Class")).hash());
//! ```

use std::{collections::BTreeMap, ops::BitXor};

/// The hash of a Go struct, as far as its fields were added. A field that is `None` has the zero value and is left out.
#[derive(Clone, Copy, Debug)]
pub struct Struct(u64);

impl Struct {
    /// A struct of this type without fields.
    pub fn named(name: &str) -> Self {
        Self(text(name))
    }

    /// The same with a field. The hash depends on the order of the fields: they are added in that of the Go struct, and each is
    /// mixed in at once, as the library does.
    pub fn field(self, name: &str, value: Option<u64>) -> Self {
        let Some(value) = value else { return self };
        Self(finished(self.0 ^ ordered(text(name), value)))
    }

    /// The hash.
    pub const fn hash(self) -> u64 {
        self.0
    }
}

/// The hash of a text.
pub fn text(text: &str) -> u64 {
    bytes(text.as_bytes())
}

/// The hash of a list that counts as a set, by the hashes of its elements: two equal ones cancel each other.
pub fn set(elements: impl IntoIterator<Item = u64>) -> u64 {
    elements.into_iter().fold(0, BitXor::bitxor)
}

/// The hash of a map.
pub fn map(entries: &BTreeMap<String, String>) -> u64 {
    finished(set(entries.iter().map(|(key, value)| ordered(text(key), text(value)))))
}

/// FNV-1 with 64 bits (draft-eastlake-fnv): the hash of a number by its bytes, the lowest first.
pub fn bytes(bytes: &[u8]) -> u64 {
    const OFFSET_BASIS: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0100_0000_01b3;
    bytes.iter().fold(OFFSET_BASIS, |hash, byte| hash.wrapping_mul(PRIME) ^ u64::from(*byte))
}

/// The hash of two hashes whose order counts.
fn ordered(first: u64, second: u64) -> u64 {
    let mut both = [0; 16];
    both[..8].copy_from_slice(&first.to_le_bytes());
    both[8..].copy_from_slice(&second.to_le_bytes());
    bytes(&both)
}

/// Hashes once more what was put together without an order, so that parts of it cannot cancel parts of something else.
fn finished(hash: u64) -> u64 {
    bytes(&hash.to_le_bytes())
}
