//! Label names that every Kubernetes cluster shares, the rules for label texts, and the table that gives keys and
//! values small numbers.
//!
//! Labels that only one provider knows are not here: they come with its [`Catalog`](crate::Catalog). The one exception is a name
//! of the zone that volumes carry, which [`normalized`] knows.

use std::sync::Arc;

use indexmap::IndexSet;

use crate::FxBuild;

/// The zone of a node.
pub const ZONE: &str = "topology.kubernetes.io/zone";
/// The region of a node.
pub const REGION: &str = "topology.kubernetes.io/region";
/// The name of a node's host, which no two nodes share.
pub const HOSTNAME: &str = "kubernetes.io/hostname";
/// The instance type of a node.
pub const INSTANCE_TYPE: &str = "node.kubernetes.io/instance-type";
/// The processor architecture of a node.
pub const ARCH: &str = "kubernetes.io/arch";
/// The operating system of a node.
pub const OS: &str = "kubernetes.io/os";
/// The pool that a node belongs to.
pub const NODE_POOL: &str = "karpenter.sh/nodepool";
/// `spot`, `on-demand` or `reserved`.
pub const CAPACITY_TYPE: &str = "karpenter.sh/capacity-type";
/// `true` once a node has joined the cluster.
pub const REGISTERED: &str = "karpenter.sh/registered";
/// `true` once a node is ready for pods.
pub const INITIALIZED: &str = "karpenter.sh/initialized";
/// The name of a namespace, on itself.
pub const NAMESPACE_NAME: &str = "kubernetes.io/metadata.name";
/// On a pod or node: leave it where it is.
pub const DO_NOT_DISRUPT: &str = "karpenter.sh/do-not-disrupt";
/// The key of the taint of nodes that were chosen to go.
pub const DISRUPTED: &str = "karpenter.sh/disrupted";
/// On a pod: how much it costs to delete it, compared with its like; a 32-bit integer.
pub const POD_DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";
/// On a pool or claim, as an annotation: the hash of the pool's template, as it is or as it was when the claim was made.
pub const NODE_POOL_HASH: &str = "karpenter.sh/nodepool-hash";
/// On a pool or claim, as an annotation: the version of the hash in [`NODE_POOL_HASH`].
pub const NODE_POOL_HASH_VERSION: &str = "karpenter.sh/nodepool-hash-version";

/// The finalizer of claims and nodes, which go only once the machine is gone.
pub const TERMINATION: &str = "karpenter.sh/termination";
/// On a claim, as an annotation: when the last of its pods must be gone, in RFC 3339.
pub const TERMINATION_TIMESTAMP: &str = "karpenter.sh/nodeclaim-termination-timestamp";
/// On a claim, as an annotation: the claims that it comes instead of, and what command that is a part of.
pub const REPLACES: &str = "karpenter.sh/replaces";
/// The key of the taint of nodes that have not joined the cluster yet.
pub const UNREGISTERED: &str = "karpenter.sh/unregistered";
/// On a claim or node: whoever made the node keeps its taints.
pub const DO_NOT_SYNC_TAINTS: &str = "karpenter.sh/do-not-sync-taints";
/// On a node: load balancers send nothing to it any more.
pub const EXCLUDE_FROM_BALANCERS: &str = "node.kubernetes.io/exclude-from-external-load-balancers";

/// The value of [`CAPACITY_TYPE`] for capacity at the list price.
pub const ON_DEMAND: &str = "on-demand";
/// The value of [`CAPACITY_TYPE`] for spare capacity that the cloud may take back.
pub const SPOT: &str = "spot";
/// The value of [`CAPACITY_TYPE`] for capacity that was paid for in advance.
pub const RESERVED: &str = "reserved";

/// The stable name of a key: for the beta names that old manifests still carry, and for the name that the driver of EBS has for
/// the zone, which volumes carry.
pub fn normalized(key: &str) -> &str {
    match key {
        "failure-domain.beta.kubernetes.io/zone" | "topology.ebs.csi.aws.com/zone" => ZONE,
        "failure-domain.beta.kubernetes.io/region" => REGION,
        "beta.kubernetes.io/arch" => ARCH,
        "beta.kubernetes.io/os" => OS,
        "beta.kubernetes.io/instance-type" => INSTANCE_TYPE,
        other => other,
    }
}

/// Whether a key may not be set or asked for by a pool: the host name, and all of `karpenter.sh` but the capacity type.
pub fn is_restricted(key: &str) -> bool {
    let domain = domain(key);
    key == HOSTNAME || key != CAPACITY_TYPE && (domain == "karpenter.sh" || domain.ends_with(".karpenter.sh"))
}

/// Whether a label is one of those that a provider gives, such as `karpenter.k8s.aws/instance-category`.
pub fn is_of_provider(key: &str) -> bool {
    domain(key).starts_with("karpenter.") && domain(key) != "karpenter.sh"
}

/// What stands before the slash of a key; empty if there is none.
pub fn domain(key: &str) -> &str {
    key.split_once('/').map_or("", |(domain, _)| domain)
}

/// Whether a text is a qualified name: an optional DNS subdomain and a slash, then at most 63 characters of name.
pub fn is_qualified_name(text: &str) -> bool {
    let (domain, name) = match text.split_once('/') {
        Some((domain, name)) => (Some(domain), name),
        None => (None, text),
    };
    domain.is_none_or(is_subdomain) && !name.is_empty() && is_value(name)
}

/// Whether a text may be the value of a label: at most 63 characters, alphanumeric at both ends, or empty.
pub fn is_value(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let ends = |byte: Option<&u8>| byte.is_none_or(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    text.len() <= 63 && text.bytes().all(inner) && ends(bytes.first()) && ends(bytes.last())
}

/// Whether a text is a DNS subdomain, as the names of most objects must be (RFC 1123), however long.
pub(crate) fn is_subdomain(text: &str) -> bool {
    let is_part = |part: &str| {
        let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        !part.is_empty() && part.chars().all(inner) && !part.starts_with('-') && !part.ends_with('-')
    };
    text.len() <= 253 && text.split('.').all(is_part)
}

/// The number of an interned text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Symbol(pub(crate) u32);

/// Texts numbered in the order in which they came.
#[derive(Clone, Debug, Default)]
pub(crate) struct Interner(IndexSet<Arc<str>, FxBuild>);

impl Interner {
    /// The number of a text, new if it was not seen before.
    pub(crate) fn intern(&mut self, text: &str) -> Symbol {
        let index = self.0.get_index_of(text).unwrap_or_else(|| self.0.insert_full(text.into()).0);
        Symbol(u32::try_from(index).expect("fewer than 2^32 distinct labels"))
    }

    /// The number of a text that was seen before.
    pub(crate) fn get(&self, text: &str) -> Option<Symbol> {
        self.0.get_index_of(text).and_then(|i| u32::try_from(i).ok()).map(Symbol)
    }

    /// All texts in the order of their numbers.
    pub(crate) fn texts(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|text| &**text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn restricted_keys() {
        for key in ["kubernetes.io/hostname", "karpenter.sh/nodepool", "sub.karpenter.sh/x"] {
            assert!(is_restricted(key), "{key}");
        }
        for key in ["karpenter.sh/capacity-type", "foo-karpenter.sh/x", "node.kubernetes.io/x", "team"] {
            assert!(!is_restricted(key), "{key}");
        }
    }

    #[test]
    fn names_and_values() {
        for name in ["a", "A-b_c.9", "example.com/a", &"a".repeat(63)] {
            assert!(is_qualified_name(name), "{name}");
        }
        for name in ["", "/a", "a/", "-a", "a-", "Example.com/a", "a/b/c", "a b", &"a".repeat(64)] {
            assert!(!is_qualified_name(name), "{name}");
        }
        assert!(is_value("") && is_value("a.b") && !is_value("a.") && !is_value("é"));
    }

    #[test]
    fn a_text_keeps_its_number() {
        let mut interner = Interner::default();
        let (a, b) = (interner.intern("a"), interner.intern("b"));
        assert_eq!((interner.intern("a"), interner.get("b"), interner.get("c")), (a, Some(b), None));
    }
}
