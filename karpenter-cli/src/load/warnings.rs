//! What somebody should look at in what was read.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
};

use karpenter_core::api::{Change, FieldError, NodeClaim, NodeOverlay, ObjectKey, Pod, READ_VERSIONS};

use super::objects::{Cluster, is_gated};

/// Something about the input that somebody should look at.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LoadWarning {
    /// A node pool cannot be read, so there is no pool of this name in the plan.
    BadPool {
        /// The file.
        file: String,
        /// The pool, the field and what is wrong with it.
        error: FieldError,
    },
    /// An object of the group `karpenter.sh` is of a version or kind that is not read.
    NotRead {
        /// The file.
        file: String,
        /// The kind and the name.
        object: String,
        /// The group and version.
        api_version: String,
        /// The kind that has taken the place of the object's kind, if one has.
        successor: Option<&'static str>,
    },
    /// A node pool or claim, or several claims, is not written as `karpenter.sh/v1` has it.
    Older {
        /// The file.
        file: String,
        /// The kind and the name; the first by name if there are others.
        object: String,
        /// How many other claims are written in the same way.
        others: usize,
        /// The field, what became of it, and what to do.
        change: Change,
    },
    /// There is no such field in an instance type, a node pool or an overlay, where a misspelt one would change plans.
    UnknownField {
        /// The file.
        file: String,
        /// The kind and the name; of instance types the first in the list.
        object: String,
        /// The field.
        field: String,
        /// How many other instance types of the file have it too.
        others: usize,
    },
    /// Claims of which no machine is bought yet, so that nobody knows which pods they are for.
    NotLaunched {
        /// How many.
        count: usize,
        /// The first by name.
        first: String,
    },
    /// A node takes no further pods, because nobody knows what a pod on it takes.
    ClosedNode {
        /// The name of the node.
        node: String,
        /// The pod that cannot be read.
        pod: ObjectKey,
    },
    /// Pods without a node that the kube-scheduler has not refused, so that they may yet get one.
    NotRefused {
        /// How many.
        count: usize,
        /// The first by namespace and name.
        first: ObjectKey,
    },
}

impl fmt::Display for LoadWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BadPool { file, error } => write!(f, "{file}: {error} (the pool is left out)"),
            Self::NotRead { file, object, api_version, successor: Some(kind) } => {
                let remedy = format_args!("write a {kind} of {} instead", READ_VERSIONS[0]);
                write!(f, "{file}: {object}: apiVersion: {api_version} is not read: {remedy} (it is left out)")
            }
            Self::NotRead { file, object, api_version, successor: None } => {
                let read = format_args!(
                    "only NodePool and NodeClaim of {}, and NodeOverlay of {}, are read",
                    READ_VERSIONS.join(" and "),
                    NodeOverlay::API_VERSION
                );
                write!(f, "{file}: {object}: apiVersion: {api_version}: {read} (it is left out)")
            }
            Self::Older { file, object, others, change } => {
                write!(f, "{file}: {object}: {change}")?;
                match others {
                    0 => Ok(()),
                    1 => f.write_str(" (and so in another NodeClaim)"),
                    n => write!(f, " (and so in {n} other NodeClaims)"),
                }
            }
            Self::UnknownField { file, object, field, others } => {
                write!(f, "{file}: {object}: {field}: there is no such field (it is left out)")?;
                match others {
                    0 => Ok(()),
                    1 => f.write_str(" (and so in another instance type)"),
                    n => write!(f, " (and so in {n} other instance types)"),
                }
            }
            Self::NotLaunched { count: 1, first } => {
                write!(f, "NodeClaim {first}: no machine is bought yet: the pods that it is for may get another node")
            }
            Self::NotLaunched { count, first } => {
                write!(
                    f,
                    "{count} NodeClaims without a machine: the pods that they are for may get other nodes; the first is {first}"
                )
            }
            Self::ClosedNode { node, pod } => {
                write!(f, "Node {node}: takes no further pods, because what Pod {pod} takes of it is unknown")
            }
            Self::NotRefused { count: 1, first } => {
                write!(f, "Pod {first}: left alone, because the kube-scheduler has not refused it")
            }
            Self::NotRefused { count, first } => {
                write!(
                    f,
                    "{count} pods left alone, because the kube-scheduler has not refused them; the first is {first}"
                )
            }
        }
    }
}

impl LoadWarning {
    /// Whether it concerns all objects together.
    pub(super) const fn is_of_all(&self) -> bool {
        matches!(self, Self::ClosedNode { .. } | Self::NotRefused { .. } | Self::NotLaunched { .. })
    }

    /// What concerns all objects together.
    pub(super) fn of_all(cluster: &Cluster) -> Vec<Self> {
        let closed = closed_nodes(cluster).into_iter();
        closed.chain(not_refused(&cluster.pods)).chain(not_launched(&cluster.claims)).collect()
    }
}

/// The fields of what is wanted that are unknown. Others, of metadata and status, are there in every cluster.
pub(super) fn unknown_fields(fields: Vec<String>, object: &str, file: &str) -> impl Iterator<Item = LoadWarning> {
    // Of the settings of the kubelet it is said that they are not read.
    let is_asked = |field: &String| field.starts_with("spec.") && !field.starts_with("spec.template.spec.kubelet.");
    let fields = fields.into_iter().filter(is_asked);
    fields.map(move |field| LoadWarning::UnknownField {
        file: file.to_owned(),
        object: object.to_owned(),
        field,
        others: 0,
    })
}

/// Nodes of the cluster with a pod that cannot be read, and the first such pod of each.
fn closed_nodes(cluster: &Cluster) -> Vec<LoadWarning> {
    let mut first = BTreeMap::new();
    for (pod, bad) in &cluster.bad_pods {
        if let Some(node) = cluster.nodes.iter().find(|n| Some(&n.metadata.name) == bad.node.as_ref()) {
            first.entry(node.metadata.name.clone()).or_insert_with(|| pod.clone());
        }
    }
    first.into_iter().map(|(node, pod)| LoadWarning::ClosedNode { node, pod }).collect()
}

fn not_refused(pods: &[Arc<Pod>]) -> Option<LoadWarning> {
    let is_left_alone = |pod: &&Arc<Pod>| {
        let waits = pod.spec.node_name.is_empty() && !pod.is_finished() && !pod.is_terminating();
        waits && !pod.is_unschedulable() && !is_gated(pod) && !pod.is_daemon() && !pod.is_mirror()
    };
    let waiting = pods.iter().filter(is_left_alone);
    let (count, first) = waiting.fold((0, None), |(count, first): (usize, Option<ObjectKey>), pod| {
        let key = pod.key();
        (count + 1, Some(first.map_or(key.clone(), |first| first.min(key))))
    });
    first.map(|first| LoadWarning::NotRefused { count, first })
}

fn not_launched(claims: &[NodeClaim]) -> Option<LoadWarning> {
    let waits = |claim: &&NodeClaim| claim.status.provider_id.is_empty() && claim.metadata.deletion_timestamp.is_none();
    let waiting: BTreeSet<&str> = claims.iter().filter(waits).map(|claim| claim.metadata.name.as_str()).collect();
    let first = (*waiting.first()?).to_owned();
    Some(LoadWarning::NotLaunched { count: waiting.len(), first })
}
