//! The objects that are watched, in the shape that `kube` reads.

use std::{borrow::Cow, fmt::Debug, sync::Arc};

use karpenter_core::{
    api::{
        CsiNode, DaemonSet, Namespace, Node, NodeClaim, NodeOverlay, NodePool, ObjectKey, ObjectMeta, PersistentVolume,
        PersistentVolumeClaim, Pod, PodDisruptionBudget, StorageClass, Volume, VolumeAttachment,
    },
    engine::{Object, UnreadableClaim, UnreadablePod},
};
use kube::{
    Resource,
    core::{DynamicResourceScope, ObjectMeta as KubeMeta},
};
use serde::{
    Deserialize, Deserializer,
    de::{DeserializeOwned, Error as _},
};

/// A kind of object that decisions depend on.
pub(crate) trait Watched: DeserializeOwned + Clone + Debug + Send + Sync + 'static {
    const KIND: &'static str;
    const GROUP: &'static str;
    const VERSION: &'static str;
    const PLURAL: &'static str;

    fn meta(&self) -> &ObjectMeta;
    fn into_object(self: Arc<Self>) -> Object;

    /// What is kept of an object that cannot be read.
    fn remains(_meta: &KubeMeta, _value: &serde_json::Value) -> Option<Object> {
        None
    }

    /// Whether an object that cannot be read waits for a node, so that people must hear of it.
    fn is_waiting(_value: &serde_json::Value) -> bool {
        false
    }

    /// The same in less memory, without what no decision depends on.
    fn slimmed(self) -> Self {
        self
    }
}

macro_rules! watched {
    ($($type:ident, $group:literal, $version:literal, $plural:literal;)*) => {$(
        impl Watched for $type {
            const KIND: &'static str = stringify!($type);
            const GROUP: &'static str = $group;
            const VERSION: &'static str = $version;
            const PLURAL: &'static str = $plural;

            fn meta(&self) -> &ObjectMeta {
                &self.metadata
            }

            fn into_object(self: Arc<Self>) -> Object {
                Object::$type(self)
            }
        }
    )*};
}

watched! {
    NodePool, "karpenter.sh", "v1", "nodepools";
    NodeOverlay, "karpenter.sh", "v1alpha1", "nodeoverlays";
    Node, "", "v1", "nodes";
    Namespace, "", "v1", "namespaces";
    PersistentVolume, "", "v1", "persistentvolumes";
    PersistentVolumeClaim, "", "v1", "persistentvolumeclaims";
    DaemonSet, "apps", "v1", "daemonsets";
    PodDisruptionBudget, "policy", "v1", "poddisruptionbudgets";
    StorageClass, "storage.k8s.io", "v1", "storageclasses";
    VolumeAttachment, "storage.k8s.io", "v1", "volumeattachments";
}

impl Watched for NodeClaim {
    const KIND: &'static str = "NodeClaim";
    const GROUP: &'static str = "karpenter.sh";
    const VERSION: &'static str = "v1";
    const PLURAL: &'static str = "nodeclaims";

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn into_object(self: Arc<Self>) -> Object {
        Object::NodeClaim(self)
    }

    /// A claim has its machine, which would be taken for an orphan otherwise.
    fn remains(meta: &KubeMeta, value: &serde_json::Value) -> Option<Object> {
        let id = value["status"]["providerID"].as_str().unwrap_or_default();
        Some(Object::UnreadableClaim(UnreadableClaim::new(meta.name.clone()?, meta.uid.clone()?, id)))
    }
}

/// There are more pods than anything else, and each has a volume for the token of its service account.
impl Watched for Pod {
    const KIND: &'static str = "Pod";
    const GROUP: &'static str = "";
    const VERSION: &'static str = "v1";
    const PLURAL: &'static str = "pods";

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn into_object(self: Arc<Self>) -> Object {
        Object::Pod(self)
    }

    /// A pod takes room on its node, how much is not known, and leaves it in a way of its own.
    fn remains(meta: &KubeMeta, value: &serde_json::Value) -> Option<Object> {
        let node = node_of(value).filter(|_| !is_finished(value))?;
        let key = ObjectKey::new(meta.namespace.as_deref()?, meta.name.as_deref()?);
        let pod = UnreadablePod::new(key, meta.uid.clone()?, node).with_rest(readable(value));
        Some(Object::UnreadablePod(pod))
    }

    fn is_waiting(value: &serde_json::Value) -> bool {
        node_of(value).is_none() && !is_finished(value) && value["metadata"]["deletionTimestamp"].is_null()
    }

    fn slimmed(mut self) -> Self {
        let (spec, status) = (&mut self.spec, &mut self.status);
        spec.volumes.retain(|volume| {
            // Of a volume that is neither a claim nor a disk nothing is read but its name.
            let mut bare = Volume::default();
            bare.name.clone_from(&volume.name);
            *volume != bare
        });
        spec.volumes.shrink_to_fit();
        let is_read = |name: &str| matches!(name, "PodScheduled" | "Ready" | "PodResizePending");
        status.conditions.retain(|condition| is_read(&condition.r#type));
        spec.containers.shrink_to_fit();
        spec.init_containers.shrink_to_fit();
        spec.tolerations.shrink_to_fit();
        spec.topology_spread_constraints.shrink_to_fit();
        status.conditions.shrink_to_fit();
        status.container_statuses.shrink_to_fit();
        status.init_container_statuses.shrink_to_fit();
        self.metadata.owner_references.shrink_to_fit();
        self
    }
}

/// The node that a pod is bound to.
fn node_of(pod: &serde_json::Value) -> Option<&str> {
    pod["spec"]["nodeName"].as_str().filter(|node| !node.is_empty())
}

fn is_finished(pod: &serde_json::Value) -> bool {
    matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"))
}

/// What bears on how a pod leaves its node, each by itself.
const OF_LEAVING: [(&str, &str); 8] = [
    ("metadata", "annotations"),
    ("metadata", "ownerReferences"),
    ("metadata", "creationTimestamp"),
    ("metadata", "deletionTimestamp"),
    ("spec", "priority"),
    ("spec", "terminationGracePeriodSeconds"),
    ("spec", "tolerations"),
    ("status", "startTime"),
];

/// A pod with what can be read of these.
fn readable(value: &serde_json::Value) -> Pod {
    let mut known = serde_json::json!({"metadata": {"name": ""}, "spec": {"containers": []}, "status": {}});
    let mut pod = Pod::default();
    for (part, field) in OF_LEAVING {
        let Some(found) = value[part].get(field) else { continue };
        let mut more = known.clone();
        more[part][field] = found.clone();
        if let Ok(read) = Pod::deserialize(&more) {
            (known, pod) = (more, read);
        }
    }
    pod
}

// The API calls it `CSINode`.
impl Watched for CsiNode {
    const KIND: &'static str = "CSINode";
    const GROUP: &'static str = "storage.k8s.io";
    const VERSION: &'static str = "v1";
    const PLURAL: &'static str = "csinodes";

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn into_object(self: Arc<Self>) -> Object {
        Object::CsiNode(self)
    }
}

/// An object of a kind as the API server sent it. One that cannot be read does not stop the watch of the others.
#[derive(Clone, Debug)]
pub(crate) struct Seen<T> {
    pub(crate) meta: KubeMeta,
    pub(crate) object: Result<Arc<T>, Unread>,
}

/// Why an object cannot be read.
#[derive(Clone, Debug)]
pub(crate) struct Unread {
    /// The field and what is wrong with it.
    pub(crate) error: String,
    /// What counts of it all the same.
    pub(crate) remains: Option<Object>,
    /// Whether it is a pod that waits for a node.
    pub(crate) is_waiting: bool,
}

impl<'de, T: Watched> Deserialize<'de> for Seen<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = serde_json::Value::deserialize(deserializer)?;
        let text = |key: &str| value["metadata"][key].as_str().map(str::to_owned);
        let meta = KubeMeta {
            name: text("name"),
            namespace: text("namespace"),
            uid: text("uid"),
            resource_version: text("resourceVersion"),
            ..KubeMeta::default()
        };
        if meta.resource_version.is_none() {
            return Err(D::Error::custom("an object without metadata.resourceVersion"));
        }
        let (remains, is_waiting) = (T::remains(&meta, &value), T::is_waiting(&value));
        let object: Result<T, _> = serde_path_to_error::deserialize(value);
        let unread = |error: serde_path_to_error::Error<_>| Unread { error: error.to_string(), remains, is_waiting };
        let object = object.map(|object| Arc::new(object.slimmed())).map_err(unread);
        Ok(Self { meta, object })
    }
}

impl<T: Watched> Resource for Seen<T> {
    type DynamicType = ();
    type Scope = DynamicResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        T::KIND.into()
    }

    fn group((): &()) -> Cow<'_, str> {
        T::GROUP.into()
    }

    fn version((): &()) -> Cow<'_, str> {
        T::VERSION.into()
    }

    fn plural((): &()) -> Cow<'_, str> {
        T::PLURAL.into()
    }

    fn meta(&self) -> &KubeMeta {
        &self.meta
    }

    fn meta_mut(&mut self) -> &mut KubeMeta {
        &mut self.meta
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_that_cannot_be_read_says_which_field() {
        let text = r#"{"metadata": {"name": "p", "resourceVersion": "7"}, "spec": {"weight": "heavy"}}"#;
        let seen: Seen<NodePool> = serde_json::from_str(text).expect("an object");
        assert_eq!(seen.meta.name.as_deref(), Some("p"));
        let unread = seen.object.expect_err("no weight");
        assert!(unread.error.starts_with("spec.weight: ") && unread.remains.is_none(), "{unread:?}");
    }

    #[test]
    fn of_a_pod_that_is_kept_which_bears_on_where_it_runs() {
        let text = r#"{"metadata": {"name": "p", "resourceVersion": "7"}, "spec": {"containers": [], "volumes": [
            {"name": "token", "projected": {}},
            {"name": "data", "persistentVolumeClaim": {"claimName": "d"}},
            {"name": "disk", "awsElasticBlockStore": {"volumeID": "vol-1"}},
            {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}
        ]}, "status": {"conditions": [
            {"type": "Initialized", "status": "True"}, {"type": "Ready", "status": "False"}, {"type": "PodScheduled", "status": "True"},
            {"type": "PodResizePending", "status": "True", "reason": "Infeasible"}
        ]}}"#;
        let seen: Seen<Pod> = serde_json::from_str(text).expect("an object");
        let pod = seen.object.expect("a pod");
        assert_eq!(pod.volume_claim_names().collect::<Vec<_>>(), ["d", "p-scratch"]);
        assert_eq!((pod.spec.volumes.len(), pod.status.conditions.len(), pod.is_unready()), (3, 3, true));
        assert!(pod.is_resize_infeasible());
    }

    #[test]
    fn a_claim_that_cannot_be_read_keeps_its_machine() {
        let text = r#"{"metadata": {"name": "c", "uid": "u", "resourceVersion": "7"},
            "spec": {"requirements": [{"key": "k", "operator": "Almost", "values": ["1"]}]}, "status": {"providerID": "m"}}"#;
        let seen: Seen<NodeClaim> = serde_json::from_str(text).expect("an object");
        let there = Object::UnreadableClaim(UnreadableClaim::new("c", "u", "m"));
        assert_eq!(seen.object.expect_err("no operator").remains, Some(there));
    }

    #[test]
    fn a_pod_that_cannot_be_read_keeps_its_node() {
        let remains = |node: &str, phase: &str| {
            let text = format!(
                r#"{{"metadata": {{"namespace": "a", "name": "p", "uid": "u", "resourceVersion": "7"}},
                "spec": {{"nodeName": "{node}", "tolerations": 1}}, "status": {{"phase": "{phase}"}}}}"#
            );
            let seen: Seen<Pod> = serde_json::from_str(&text).expect("an object");
            let Unread { remains, is_waiting, .. } = seen.object.expect_err("no tolerations");
            (remains, is_waiting)
        };
        let there = Object::UnreadablePod(UnreadablePod::new(ObjectKey::new("a", "p"), "u", "n"));
        assert_eq!(remains("n", "Running"), (Some(there), false));
        assert_eq!(remains("", "Pending"), (None, true));
        assert_eq!([remains("n", "Succeeded"), remains("", "Failed")], [(None, false), (None, false)]);
    }

    #[test]
    fn a_pod_that_cannot_be_read_keeps_what_it_says_of_leaving() {
        let text = r#"{"metadata": {"namespace": "a", "name": "p", "uid": "u", "resourceVersion": "7",
            "annotations": {"karpenter.sh/do-not-disrupt": "true"},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "d"}]},
            "spec": {"nodeName": "n", "priority": "high", "terminationGracePeriodSeconds": 90, "containers": 1}}"#;
        let seen: Seen<Pod> = serde_json::from_str(text).expect("an object");
        let Some(Object::UnreadablePod(pod)) = seen.object.expect_err("no containers").remains else { panic!("gone") };
        assert!(pod.rest.is_daemon() && pod.rest.metadata.annotations.contains_key("karpenter.sh/do-not-disrupt"));
        assert_eq!((pod.rest.spec.priority, pod.rest.spec.termination_grace_period_seconds), (None, Some(90)));
    }

    #[test]
    fn an_object_keeps_its_version() {
        let text = r#"{"metadata": {"name": "n", "resourceVersion": "7"}, "spec": {"providerID": "kwok://n"}}"#;
        let seen: Seen<Node> = serde_json::from_str(text).expect("an object");
        let node = seen.object.expect("a node");
        assert_eq!((node.metadata.resource_version.as_str(), node.spec.provider_id.as_str()), ("7", "kwok://n"));
    }
}
