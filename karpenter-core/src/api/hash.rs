//! The hash by which a claim shows that its pool was changed since.
//!
//! Karpenter hashes the template with version 2 of the Go library hashstructure, over FNV-1, lists taken for sets and
//! what is empty left out. The same hash here lets a cluster change engines without replacing its nodes.

use std::collections::BTreeMap;

use super::{
    NillableDuration, NodeClaim, NodeClaimTemplate, NodeClassRef, NodePool, Taint, TaintEffect, TemplateMeta,
    conditions::{DRIFTED, condition},
};
use crate::{
    hashstructure::{self, Struct},
    labels,
};

/// The version of [`NodePool::static_hash`]. Hashes of different versions say nothing about each other.
pub const STATIC_HASH_VERSION: &str = "v3";

impl NodePool {
    /// The hash of what the template settles for a node once and for all: its labels, annotations, taints, node class
    /// and durations, but not its requirements.
    ///
    /// It is the text that Karpenter writes into the annotation `karpenter.sh/nodepool-hash`. The order of taints and
    /// the spelling of durations do not matter; two equal taints cancel each other.
    ///
    /// Karpenter tells an empty list or map that is written from one that is not, and pools do not keep which it was.
    /// If the pool's own annotation is the hash of one of these spellings, it is that; otherwise what is empty is taken
    /// as not written.
    ///
    /// ```
    /// use karpenter_core::api::{NodePool, NodeSelectorRequirement, Operator};
    ///
    /// let pool = NodePool::named("general");
    /// assert_eq!(pool.static_hash(), "12745407319442031341");
    /// let arm = NodeSelectorRequirement::new("kubernetes.io/arch", Operator::In, ["arm64"]);
    /// assert_eq!(pool.clone().require(arm).static_hash(), pool.static_hash());
    /// ```
    pub fn static_hash(&self) -> String {
        let annotations = &self.metadata.annotations;
        let own = annotations.get(labels::NODE_POOL_HASH).filter(|_| is_current(annotations));
        match own.filter(|hash| self.has_static_hash(hash)) {
            Some(hash) => hash.clone(),
            None => hash_of(&self.spec.template, 0).to_string(),
        }
    }

    /// Whether this is the hash of the template in one of the ways in which what is empty may be written.
    pub(crate) fn has_static_hash(&self, hash: &str) -> bool {
        let template = &self.spec.template;
        let empty = empty_parts(template);
        (0..=ALL_PARTS).filter(|written| written & !empty == 0).any(|w| hash_of(template, w).to_string() == hash)
    }

    /// The annotations that a shell must write on this pool whenever its template changes: the hash and its version.
    /// Claims that are made from it carry the same.
    pub fn hash_annotations(&self) -> BTreeMap<String, String> {
        BTreeMap::from([
            (labels::NODE_POOL_HASH.to_owned(), self.static_hash()),
            (labels::NODE_POOL_HASH_VERSION.to_owned(), STATIC_HASH_VERSION.to_owned()),
        ])
    }

    /// The annotations that a shell must write on a claim of this pool before it writes those of the pool, if the
    /// pool's annotations are of another version than [`STATIC_HASH_VERSION`], or missing. None if there is nothing to
    /// do.
    ///
    /// A claim that has drifted by the old hash keeps it, so that it stays drifted.
    pub fn renewed_hash_annotations(&self, claim: &NodeClaim) -> BTreeMap<String, String> {
        if self.has_current_hash() || is_current(&claim.metadata.annotations) {
            return BTreeMap::new();
        }
        let mut out = self.hash_annotations();
        if condition(&claim.status.conditions, DRIFTED).is_some() {
            out.remove(labels::NODE_POOL_HASH);
        }
        out
    }

    /// Whether its annotations are of the version [`STATIC_HASH_VERSION`].
    pub(crate) fn has_current_hash(&self) -> bool {
        is_current(&self.metadata.annotations)
    }
}

fn is_current(annotations: &BTreeMap<String, String>) -> bool {
    annotations.get(labels::NODE_POOL_HASH_VERSION).is_some_and(|version| version == STATIC_HASH_VERSION)
}

/// Parts of a template that Karpenter hashes when they are written, even if they are empty.
const LABELS: u8 = 1;
const ANNOTATIONS: u8 = 2;
const TAINTS: u8 = 4;
const STARTUP_TAINTS: u8 = 8;
const ALL_PARTS: u8 = LABELS | ANNOTATIONS | TAINTS | STARTUP_TAINTS;

fn empty_parts(template: &NodeClaimTemplate) -> u8 {
    let (meta, spec) = (&template.metadata, &template.spec);
    let part = |bit: u8, is_empty: bool| if is_empty { bit } else { 0 };
    part(LABELS, meta.labels.is_empty())
        | part(ANNOTATIONS, meta.annotations.is_empty())
        | part(TAINTS, spec.taints.is_empty())
        | part(STARTUP_TAINTS, spec.startup_taints.is_empty())
}

/// The names are those of Karpenter's Go types and fields, in their order.
fn hash_of(template: &NodeClaimTemplate, written: u8) -> u64 {
    let spec = &template.spec;
    let spec_hash = Struct::named("NodeClaimTemplateSpec")
        .field("Taints", of_taints(&spec.taints, written & TAINTS != 0))
        .field("StartupTaints", of_taints(&spec.startup_taints, written & STARTUP_TAINTS != 0))
        .field("NodeClassRef", of_class(&spec.node_class_ref))
        .field("TerminationGracePeriod", spec.termination_grace_period.as_ref().and_then(of_grace_period))
        .field("ExpireAfter", of_expire_after(&spec.expire_after));
    Struct::named("NodeClaimTemplate")
        .field("ObjectMeta", of_meta(&template.metadata, written))
        .field("Spec", Some(spec_hash.hash()))
        .hash()
}

fn of_meta(meta: &TemplateMeta, written: u8) -> Option<u64> {
    let labels = of_map(&meta.labels, written & LABELS != 0);
    let annotations = of_map(&meta.annotations, written & ANNOTATIONS != 0);
    let is_there = labels.is_some() || annotations.is_some();
    is_there.then(|| Struct::named("ObjectMeta").field("Labels", labels).field("Annotations", annotations).hash())
}

fn of_class(class: &NodeClassRef) -> Option<u64> {
    let hash = Struct::named("NodeClassReference")
        .field("Kind", of_text(&class.kind))
        .field("Name", of_text(&class.name))
        .field("Group", of_text(&class.group));
    (*class != NodeClassRef::default()).then_some(hash.hash())
}

fn of_taints(taints: &[Taint], is_written: bool) -> Option<u64> {
    let is_there = is_written || !taints.is_empty();
    is_there.then(|| hashstructure::set(taints.iter().map(of_taint)))
}

fn of_taint(taint: &Taint) -> u64 {
    let effect = match taint.effect {
        TaintEffect::NoSchedule => "NoSchedule",
        TaintEffect::PreferNoSchedule => "PreferNoSchedule",
        TaintEffect::NoExecute => "NoExecute",
    };
    let hash = Struct::named("Taint").field("Key", of_text(&taint.key)).field("Value", of_text(&taint.value));
    hash.field("Effect", of_text(effect)).hash()
}

/// A duration that never ends is as good as none. One of zero seconds is there, but its only field is not.
fn of_grace_period(duration: &NillableDuration) -> Option<u64> {
    let nanos = nanos(duration)?;
    Some(
        Struct::named("Duration")
            .field("Duration", (nanos != 0).then(|| hashstructure::bytes(&nanos.to_le_bytes())))
            .hash(),
    )
}

fn of_expire_after(duration: &NillableDuration) -> Option<u64> {
    let nanos = nanos(duration)?;
    Some(Struct::named("NillableDuration").field("Duration", Some(hashstructure::bytes(&nanos.to_le_bytes()))).hash())
}

/// The duration in nanoseconds; `None` for `Never`. What Go cannot hold, some three hundred years, is cut.
fn nanos(duration: &NillableDuration) -> Option<i64> {
    duration.duration().map(|d| i64::try_from(d.as_nanos()).unwrap_or(i64::MAX))
}

fn of_map(map: &BTreeMap<String, String>, is_written: bool) -> Option<u64> {
    let is_there = is_written || !map.is_empty();
    is_there.then(|| hashstructure::map(map))
}

fn of_text(text: &str) -> Option<u64> {
    (!text.is_empty()).then(|| hashstructure::text(text))
}
