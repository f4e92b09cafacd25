//! Pools and claims of older versions: what is said of them, and what a claim has from its pool.

use std::collections::BTreeMap;

use karpenter_core::api::{Change, Converted, Difference, NodeClaim, NodePool};
use serde_json::value::RawValue;

use super::{LoadWarning, documents::Object};

/// What was written in an older way.
///
/// Users write pools, each with its own mistakes. Claims are written by the hundred by whatever made them, all in the same
/// way, so that they are counted.
#[derive(Debug, Default)]
pub(super) struct Older {
    of_pools: Vec<LoadWarning>,
    /// The first claim by name and how many there are, by file and change.
    of_claims: BTreeMap<(String, Change), (String, usize)>,
    /// The places, among all claims, of those that expire as their pools say.
    expire_with_pool: Vec<usize>,
}

impl Older {
    /// The pool, with what is to be said of it noted; `name` is its kind and name.
    pub(super) fn pool(&mut self, converted: Converted<NodePool>, name: &str, file: &str) -> NodePool {
        let warning = |change| LoadWarning::Older { file: file.to_owned(), object: name.to_owned(), others: 0, change };
        self.of_pools.extend(converted.changes.into_iter().map(warning));
        converted.object
    }

    /// The claim, which goes to the place `index` among all claims, with what is to be said of it noted.
    pub(super) fn claim(&mut self, converted: Converted<NodeClaim>, index: usize, name: &str, file: &str) -> NodeClaim {
        for change in converted.changes {
            if change.difference == Difference::ExpiryOfPool {
                self.expire_with_pool.push(index);
            }
            let (first, count) =
                self.of_claims.entry((file.to_owned(), change)).or_insert_with(|| (name.to_owned(), 0));
            *count += 1;
            if name < first.as_str() {
                name.clone_into(first);
            }
        }
        converted.object
    }

    /// Gives claims what their pools say, once all pools are known, and tells what is to be said.
    pub(super) fn finish(self, pools: &[NodePool], claims: &mut [NodeClaim]) -> Vec<LoadWarning> {
        for index in self.expire_with_pool {
            let claim = &mut claims[index];
            let Some(name) = claim.pool_name() else { continue };
            if let Some(pool) = pools.iter().find(|pool| pool.name() == name) {
                claim.spec.expire_after = pool.spec.template.spec.expire_after.clone();
            }
        }
        let of_claims = self.of_claims.into_iter().map(|((file, change), (object, count))| LoadWarning::Older {
            file,
            object,
            others: count - 1,
            change,
        });
        self.of_pools.into_iter().chain(of_claims).collect()
    }
}

/// The object with the group and version written into it that only the list around it names.
pub(super) fn with_version(object: &Object<'_>) -> Box<RawValue> {
    let fields = object.raw.get().trim_start_matches('{');
    let version = serde_json::Value::from(object.api_version.as_str());
    RawValue::from_string(format!(r#"{{"apiVersion":{version},{fields}"#))
        .expect("an object that has metadata stays one with a further field")
}

/// The kind that took the place of one of `karpenter.sh/v1alpha5`.
pub(super) fn successor(kind: &str) -> Option<&'static str> {
    match kind {
        "Provisioner" => Some("NodePool"),
        "Machine" => Some("NodeClaim"),
        _ => None,
    }
}
