use std::{collections::BTreeMap, sync::Arc};

use karpenter_core::api::{
    Condition, CsiNode, DaemonSet, FieldError, Namespace, Node, NodeClaim, NodeOverlay, NodePool, ObjectKey,
    PersistentVolume, PersistentVolumeClaim, Pod, PodDisruptionBudget, READ_VERSIONS, StorageClass,
};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::value::RawValue;

use super::{
    documents::{Object, Position, for_each_object},
    older::{self, Older},
    pages::Pages,
    parse, parse_noting,
    warnings::{LoadWarning, unknown_fields},
};
use crate::Error;

/// The group of node pools and claims.
pub(super) const KARPENTER_GROUP: &str = "karpenter.sh";

/// The objects of a cluster that bear on a plan, in the order in which they were read.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Cluster {
    /// Node pools.
    pub pools: Vec<NodePool>,
    /// Node overlays.
    pub overlays: Vec<NodeOverlay>,
    /// Node claims.
    pub claims: Vec<NodeClaim>,
    /// Nodes.
    pub nodes: Vec<Node>,
    /// Daemonsets.
    pub daemonsets: Vec<DaemonSet>,
    /// Pod disruption budgets.
    pub budgets: Vec<PodDisruptionBudget>,
    /// Namespaces.
    pub namespaces: Vec<Namespace>,
    /// Claims on volumes.
    pub volume_claims: Vec<PersistentVolumeClaim>,
    /// Volumes.
    pub volumes: Vec<PersistentVolume>,
    /// Storage classes.
    pub storage_classes: Vec<StorageClass>,
    /// What the storage drivers of nodes report.
    pub csi_nodes: Vec<CsiNode>,
    /// Pods.
    pub pods: Vec<Arc<Pod>>,
    /// Pods that cannot be read.
    pub bad_pods: BTreeMap<ObjectKey, BadPod>,
    /// What was left out or has to be guessed.
    pub warnings: Vec<LoadWarning>,
}

/// A pod that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BadPod {
    /// The field and what is wrong with it.
    pub error: FieldError,
    /// The node on which it takes nobody knows how much; `None` if it is bound to none or has run to its end.
    pub node: Option<String>,
}

/// A kind of object that is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    NodePool,
    NodeOverlay,
    NodeClaim,
    Node,
    DaemonSet,
    PodDisruptionBudget,
    Namespace,
    PersistentVolumeClaim,
    PersistentVolume,
    StorageClass,
    CsiNode,
    Pod,
}

impl Kind {
    /// The kind of an object, if it is read. A group that is not written is taken for the right one.
    pub(super) fn of(api_version: &str, kind: &str) -> Option<Self> {
        let (kind, group) = match kind {
            "NodePool" => (Self::NodePool, KARPENTER_GROUP),
            "NodeOverlay" => (Self::NodeOverlay, KARPENTER_GROUP),
            "NodeClaim" => (Self::NodeClaim, KARPENTER_GROUP),
            "Node" => (Self::Node, ""),
            "DaemonSet" => (Self::DaemonSet, "apps"),
            "PodDisruptionBudget" => (Self::PodDisruptionBudget, "policy"),
            "Namespace" => (Self::Namespace, ""),
            "PersistentVolumeClaim" => (Self::PersistentVolumeClaim, ""),
            "PersistentVolume" => (Self::PersistentVolume, ""),
            "StorageClass" => (Self::StorageClass, "storage.k8s.io"),
            "CSINode" => (Self::CsiNode, "storage.k8s.io"),
            "Pod" => (Self::Pod, ""),
            _ => return None,
        };
        (api_version.is_empty() || group_of(api_version) == group).then_some(kind)
    }

    const fn has_namespace(self) -> bool {
        matches!(self, Self::DaemonSet | Self::PodDisruptionBudget | Self::PersistentVolumeClaim | Self::Pod)
    }
}

/// The group of an API version; that of `v1` is empty.
pub(super) fn group_of(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}

#[derive(Deserialize)]
struct Meta {
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    namespace: Option<String>,
}

/// Reads dumps into one [`Cluster`].
#[derive(Debug, Default)]
pub struct ClusterReader {
    cluster: Cluster,
    older: Older,
    files: Vec<String>,
    /// The file, by number, in which an object was.
    seen: BTreeMap<(Kind, ObjectKey), usize>,
    pages: Pages,
}

impl ClusterReader {
    /// Reads a dump: JSON or YAML, lists, arrays, single objects, several documents.
    ///
    /// Node pools and claims of `karpenter.sh/v1beta1`, and those with fields in their old places, are read as
    /// `karpenter.sh/v1`. A pod that cannot be read goes to [`Cluster::bad_pods`], a node pool that cannot be read to
    /// [`Cluster::warnings`]. Kinds that bear on no plan are passed over.
    ///
    /// # Errors
    /// The text is not JSON or YAML or holds nothing; an object lacks its kind or name or was there before; an object
    /// that is neither a pod nor a node pool cannot be read.
    pub fn read(&mut self, text: &str, file: &str) -> Result<(), Error> {
        self.start_file(file);
        let pages = for_each_object(text, file, &mut |object, position| self.take(object, position, file))?;
        self.add_pages(pages);
        Ok(())
    }

    /// Notes which lists were read.
    pub(super) fn add_pages(&mut self, pages: Pages) {
        self.pages.add_all(pages);
    }

    /// All objects from here on are of this file.
    pub(super) fn start_file(&mut self, file: &str) {
        self.files.push(file.to_owned());
    }

    /// What was read, with the warnings that concern all of it.
    ///
    /// # Errors
    /// A list goes on in pages that were not read.
    pub fn finish(self) -> Result<Cluster, Error> {
        self.pages.check()?;
        let mut cluster = self.cluster;
        let older = self.older.finish(&cluster.pools, &mut cluster.claims);
        cluster.warnings.extend(older);
        cluster.look_over();
        Ok(cluster)
    }

    /// Adds a pod that was made from something else.
    ///
    /// # Errors
    /// There is one of this name.
    pub(super) fn add_pod(&mut self, pod: Pod, file: &str) -> Result<(), Error> {
        let key = pod.key();
        let name = format!("Pod {key}");
        self.see(Kind::Pod, key, &name, file)?;
        self.cluster.pods.push(Arc::new(pod));
        Ok(())
    }

    pub(super) fn cluster_mut(&mut self) -> &mut Cluster {
        &mut self.cluster
    }

    /// Notes in which file an object is.
    fn see(&mut self, kind: Kind, key: ObjectKey, name: &str, file: &str) -> Result<(), Error> {
        let Some(first) = self.seen.insert((kind, key), self.files.len() - 1) else { return Ok(()) };
        let other_file = self.files[first].clone();
        Err(Error::Duplicate { file: file.to_owned(), object: name.to_owned(), other_file })
    }

    pub(super) fn take(&mut self, object: &Object<'_>, position: &Position<'_>, file: &str) -> Result<(), Error> {
        let kind = Kind::of(&object.api_version, &object.kind);
        if kind.is_none() && group_of(&object.api_version) != KARPENTER_GROUP {
            return Ok(());
        }
        let located = |error: FieldError| Error::Object {
            file: file.to_owned(),
            error: error.of(format!("{} ({position})", object.kind)),
        };
        let key = key_of(object, kind).map_err(located)?;
        let name = if key.namespace.is_empty() { key.name.clone() } else { key.to_string() };
        let name = format!("{} {name}", object.kind);
        let karpenters = kind.is_none() || matches!(kind, Some(Kind::NodePool | Kind::NodeClaim | Kind::NodeOverlay));
        let versions =
            if kind == Some(Kind::NodeOverlay) { &[NodeOverlay::API_VERSION][..] } else { &READ_VERSIONS[..] };
        let other_version = !object.api_version.is_empty() && !versions.contains(&object.api_version.as_str());
        let Some(kind) = kind.filter(|_| !(karpenters && other_version)) else {
            let (api_version, successor) = (object.api_version.clone(), older::successor(&object.kind));
            let file = file.to_owned();
            self.cluster.warnings.push(LoadWarning::NotRead { file, object: name, api_version, successor });
            return Ok(());
        };
        self.see(kind, key.clone(), &name, file)?;
        let with_version = (karpenters && object.is_version_of_list).then(|| older::with_version(object));
        self.add(kind, key, with_version.as_deref().unwrap_or(object.raw), &name, file)
    }

    fn add(&mut self, kind: Kind, key: ObjectKey, raw: &RawValue, name: &str, file: &str) -> Result<(), Error> {
        let cluster = &mut self.cluster;
        match kind {
            Kind::Pod => match parse(raw) {
                Ok(pod) => cluster.pods.push(Arc::new(pod)),
                Err(error) => {
                    cluster.bad_pods.insert(key, BadPod { error, node: node_of(raw) });
                }
            },
            Kind::NodePool => match parse_noting(raw) {
                Ok((pool, unknown)) => {
                    cluster.warnings.extend(unknown_fields(unknown, name, file));
                    cluster.pools.push(self.older.pool(pool, name, file));
                }
                Err(error) => {
                    let error = error.of(name);
                    cluster.warnings.push(LoadWarning::BadPool { file: file.to_owned(), error });
                }
            },
            Kind::NodeOverlay => {
                let (overlay, unknown) = parse_noting(raw).map_err(|error| located(error, name, file))?;
                cluster.warnings.extend(unknown_fields(unknown, name, file));
                cluster.overlays.push(overlay);
            }
            Kind::NodeClaim => {
                let claim = needed(raw, name, file)?;
                cluster.claims.push(self.older.claim(claim, cluster.claims.len(), name, file));
            }
            Kind::Node => cluster.nodes.push(needed(raw, name, file)?),
            Kind::DaemonSet => cluster.daemonsets.push(needed(raw, name, file)?),
            Kind::PodDisruptionBudget => cluster.budgets.push(needed(raw, name, file)?),
            Kind::Namespace => cluster.namespaces.push(needed(raw, name, file)?),
            Kind::PersistentVolumeClaim => cluster.volume_claims.push(needed(raw, name, file)?),
            Kind::PersistentVolume => cluster.volumes.push(needed(raw, name, file)?),
            Kind::StorageClass => cluster.storage_classes.push(needed(raw, name, file)?),
            Kind::CsiNode => cluster.csi_nodes.push(needed(raw, name, file)?),
        }
        Ok(())
    }
}

impl Cluster {
    /// Says anew what concerns all objects together.
    pub(crate) fn look_over(&mut self) {
        self.warnings.retain(|warning| !warning.is_of_all());
        let warnings = LoadWarning::of_all(self);
        self.warn(warnings);
    }

    /// Adds warnings. The order of files and objects does not show.
    pub(crate) fn warn(&mut self, warnings: impl IntoIterator<Item = LoadWarning>) {
        self.warnings.extend(warnings);
        self.warnings.sort_by_cached_key(ToString::to_string);
    }
}

/// Parses an object without which a plan may be wrong.
fn needed<T: DeserializeOwned>(raw: &RawValue, name: &str, file: &str) -> Result<T, Error> {
    parse(raw).map_err(|error| located(error, name, file))
}

fn located(error: FieldError, name: &str, file: &str) -> Error {
    Error::Object { file: file.to_owned(), error: error.of(name) }
}

/// Namespace and name, as the API server would complete them.
pub(super) fn key_of(object: &Object<'_>, kind: Option<Kind>) -> Result<ObjectKey, FieldError> {
    let missing = || FieldError::new("metadata.name", "is missing");
    let raw = object.metadata.ok_or_else(missing)?;
    let in_metadata = |error: FieldError| match error.field.as_str() {
        "." => FieldError::new("metadata", error.message),
        field => FieldError::new(format!("metadata.{field}"), error.message.clone()),
    };
    let meta: Meta = parse(raw).map_err(in_metadata)?;
    let name = meta.name.filter(|name| !name.is_empty()).ok_or_else(missing)?;
    let namespace = meta.namespace.filter(|namespace| !namespace.is_empty());
    let has_namespace = kind.is_some_and(Kind::has_namespace);
    let namespace = if has_namespace { namespace.unwrap_or_else(|| "default".to_owned()) } else { String::new() };
    Ok(ObjectKey::new(namespace, name))
}

/// The node on which a pod that cannot be read takes room.
fn node_of(raw: &RawValue) -> Option<String> {
    /// Each part by itself, since any of them may be what cannot be read.
    #[derive(Deserialize)]
    struct Parts<'t> {
        #[serde(borrow)]
        spec: Option<&'t RawValue>,
        #[serde(borrow)]
        status: Option<&'t RawValue>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Bound {
        node_name: Option<String>,
    }
    #[derive(Deserialize)]
    struct Phase {
        phase: String,
    }
    let parts: Parts<'_> = serde_json::from_str(raw.get()).ok()?;
    let phase = parts.status.and_then(|status| serde_json::from_str::<Phase>(status.get()).ok());
    if phase.is_some_and(|status| matches!(status.phase.as_str(), "Succeeded" | "Failed")) {
        return None;
    }
    let bound: Bound = serde_json::from_str(parts.spec?.get()).ok()?;
    bound.node_name.filter(|name| !name.is_empty())
}

/// Whether something keeps the kube-scheduler from looking at the pod at all.
pub(crate) fn is_gated(pod: &Pod) -> bool {
    let says_so = |c: &Condition| c.r#type == "PodScheduled" && c.reason == "SchedulingGated";
    !pod.spec.scheduling_gates.is_empty() || pod.status.conditions.iter().any(says_so)
}
