use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{
    AwsElasticBlockStoreSource, AzureDiskSource, AzureFileSource, CinderSource, GcePersistentDiskSource, LabelSelector,
    NodeSelector, ObjectKey, ObjectMeta, Pod, PortworxVolumeSource, Resources, VsphereVolumeSource, is_default,
    nullable, volume_source::attached,
};
use crate::{Quantity, ResourceList};

/// On a claim: its binding to its volume is complete.
const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
/// On a claim without a volume: the node for which one is being made.
const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
/// On a claim or a volume: its class, from before there was a field for it. The control plane reads it before the field.
const BETA_CLASS: &str = "volume.beta.kubernetes.io/storage-class";
/// On a claim: one pod at a time mounts its volume.
const READ_WRITE_ONCE_POD: &str = "ReadWriteOncePod";
/// The provisioner of classes whose volumes are made by hand.
const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";
/// On a class: claims that name no class are of this one.
const IS_DEFAULT_CLASS: [&str; 2] =
    ["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"];

/// A request for a volume, as far as the placement of pods that mount it goes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct PersistentVolumeClaim {
    /// Names and annotations.
    pub metadata: ObjectMeta,
    /// What it asks for.
    #[serde(deserialize_with = "nullable")]
    pub spec: PersistentVolumeClaimSpec,
    /// How it fares.
    #[serde(deserialize_with = "nullable")]
    pub status: PersistentVolumeClaimStatus,
}

impl PersistentVolumeClaim {
    /// The namespace, `default` if none is written, and the name.
    pub fn key(&self) -> ObjectKey {
        let namespace = self.metadata.namespace();
        ObjectKey::new(namespace, &self.metadata.name)
    }

    /// The claim that a StatefulSet makes for a pod by this template where there is none of the name: that of the template, a
    /// hyphen and that of the pod.
    pub fn of_pod(&self, pod: &Pod) -> Self {
        let mut out = Self { metadata: self.metadata.clone(), spec: self.spec.clone(), ..Self::default() };
        out.metadata.name = format!("{}-{}", self.metadata.name, pod.metadata.name);
        out.metadata.namespace.clone_from(&pod.metadata.namespace);
        out
    }

    /// The class that it names; an empty name asks for no class, `None` for the default one.
    pub fn class_name(&self) -> Option<&str> {
        self.metadata.annotations.get(BETA_CLASS).or(self.spec.storage_class_name.as_ref()).map(String::as_str)
    }

    /// The node for which a volume is being made, while it has none: the kube-scheduler takes no other for its pod.
    pub fn selected_node(&self) -> Option<&str> {
        let selected = self.metadata.annotations.get(SELECTED_NODE).map(String::as_str);
        selected.filter(|_| self.spec.volume_name.is_empty())
    }

    /// Whether its deletion was asked for.
    pub fn is_terminating(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }

    /// Whether the volume that it was bound to is gone.
    pub fn is_lost(&self) -> bool {
        self.status.phase == "Lost"
    }

    /// Whether one pod at a time mounts its volume, as the kube-scheduler sees to (KEP-2485).
    pub fn is_for_one_pod(&self) -> bool {
        self.spec.access_modes.iter().any(|mode| mode == READ_WRITE_ONCE_POD)
    }

    /// Whether its binding to the volume that it names is complete.
    pub fn is_fully_bound(&self) -> bool {
        self.metadata.annotations.contains_key(BIND_COMPLETED)
    }
}

/// What a [`PersistentVolumeClaim`] asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct PersistentVolumeClaimSpec {
    /// The volume that it is bound to, or wants to be; empty while it has none.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "nullable")]
    pub volume_name: String,
    /// The class; see [`PersistentVolumeClaim::class_name`].
    #[serde(skip_serializing_if = "is_default")]
    pub storage_class_name: Option<String>,
    /// Who may mount it and how, as `ReadWriteOnce`; see [`PersistentVolumeClaim::is_for_one_pod`].
    #[serde(skip_serializing_if = "is_default", deserialize_with = "nullable")]
    pub access_modes: Vec<String>,
    /// How large it must be at least: the request of `storage`.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "nullable")]
    pub resources: Resources,
    /// The labels of the volumes that will do, if it is not to be made.
    #[serde(skip_serializing_if = "is_default")]
    pub selector: Option<LabelSelector>,
    /// `Block`, or `Filesystem` where none is written.
    #[serde(skip_serializing_if = "is_default")]
    pub volume_mode: Option<String>,
}

/// How a [`PersistentVolumeClaim`] fares.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct PersistentVolumeClaimStatus {
    /// `Pending`, `Bound` or `Lost`.
    #[serde(deserialize_with = "nullable")]
    pub phase: String,
}

/// The claim that is made for a pod with an ephemeral volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct PersistentVolumeClaimTemplate {
    /// Labels and annotations.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "nullable")]
    pub metadata: ObjectMeta,
    /// What it asks for.
    #[serde(deserialize_with = "nullable")]
    pub spec: PersistentVolumeClaimSpec,
}

/// A volume that outlives the pods that mount it, as far as their placement goes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct PersistentVolume {
    /// Names.
    pub metadata: ObjectMeta,
    /// What it is.
    #[serde(deserialize_with = "nullable")]
    pub spec: PersistentVolumeSpec,
    /// How it fares.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "nullable")]
    pub status: PersistentVolumeStatus,
}

impl PersistentVolume {
    /// Whether its deletion was asked for.
    pub fn is_terminating(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }

    /// Whether a claim may be bound to it that it is not kept for. Dumps that were made by hand need not say that it is
    /// available.
    pub fn is_available(&self) -> bool {
        self.spec.claim_ref.is_none() && matches!(self.status.phase.as_str(), "" | "Available")
    }

    /// Whether it is kept for this claim, or bound to it.
    pub fn is_kept_for(&self, claim: &PersistentVolumeClaim) -> bool {
        self.spec.claim_ref.as_ref().is_some_and(|kept| {
            let is_it = kept.uid.is_empty() || kept.uid == claim.metadata.uid;
            is_it && ObjectKey::new(&kept.namespace, &kept.name) == claim.key()
        })
    }

    /// The class; empty for none.
    pub fn class_name(&self) -> &str {
        self.metadata.annotations.get(BETA_CLASS).unwrap_or(&self.spec.storage_class_name)
    }

    /// How large it is.
    pub fn storage(&self) -> Quantity {
        self.spec.capacity.get("storage").unwrap_or_default()
    }

    /// Whether it is a part of the file system of one node.
    pub fn is_on_node(&self) -> bool {
        self.spec.local.is_some() || self.spec.host_path.is_some()
    }
}

/// What a [`PersistentVolume`] is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct PersistentVolumeSpec {
    /// The class; see [`PersistentVolume::class_name`].
    #[serde(skip_serializing_if = "is_default", deserialize_with = "nullable")]
    pub storage_class_name: String,
    /// How large it is: `storage`.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "nullable")]
    pub capacity: ResourceList,
    /// Who can mount it and how, as `ReadWriteOnce`.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "nullable")]
    pub access_modes: Vec<String>,
    /// `Block`, or `Filesystem` where none is written.
    #[serde(skip_serializing_if = "is_default")]
    pub volume_mode: Option<String>,
    /// The claim that it is bound to, or kept for.
    #[serde(skip_serializing_if = "is_default")]
    pub claim_ref: Option<ClaimReference>,
    /// The nodes that can mount it.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "nullable")]
    pub node_affinity: VolumeNodeAffinity,
    /// Set if a driver of the container storage interface attaches it.
    #[serde(skip_serializing_if = "is_default")]
    pub csi: Option<CsiVolumeSource>,
    /// Set if it is a device or folder of one node.
    #[serde(skip_serializing_if = "is_default")]
    pub local: Option<NodePathSource>,
    /// Set if it is a folder of whichever node mounts it.
    #[serde(skip_serializing_if = "is_default")]
    pub host_path: Option<NodePathSource>,
    /// Set if it is an EBS volume in the notation from before there was a driver for them.
    #[serde(skip_serializing_if = "is_default")]
    pub aws_elastic_block_store: Option<AwsElasticBlockStoreSource>,
    /// The same for a disk of Google's cloud.
    #[serde(skip_serializing_if = "is_default")]
    pub gce_persistent_disk: Option<GcePersistentDiskSource>,
    /// The same for a disk of Azure.
    #[serde(skip_serializing_if = "is_default")]
    pub azure_disk: Option<AzureDiskSource>,
    /// The same for a shared folder of Azure.
    #[serde(skip_serializing_if = "is_default")]
    pub azure_file: Option<AzureFileSource>,
    /// The same for a volume of OpenStack.
    #[serde(skip_serializing_if = "is_default")]
    pub cinder: Option<CinderSource>,
    /// The same for a disk of vSphere.
    #[serde(skip_serializing_if = "is_default")]
    pub vsphere_volume: Option<VsphereVolumeSource>,
    /// The same for a volume of Portworx.
    #[serde(skip_serializing_if = "is_default")]
    pub portworx_volume: Option<PortworxVolumeSource>,
}

impl PersistentVolumeSpec {
    /// The driver that attaches it, and the driver's name for it, which may be empty; `None` if no driver does.
    pub(crate) fn attached(&self) -> Option<(&str, String)> {
        let csi = self.csi.as_ref().map(|csi| (csi.driver.as_str(), csi.volume_handle.clone()));
        csi.or_else(|| attached(self.aws_elastic_block_store.as_ref()))
            .or_else(|| attached(self.gce_persistent_disk.as_ref()))
            .or_else(|| attached(self.azure_disk.as_ref()))
            .or_else(|| attached(self.azure_file.as_ref()))
            .or_else(|| attached(self.cinder.as_ref()))
            .or_else(|| attached(self.vsphere_volume.as_ref()))
            .or_else(|| attached(self.portworx_volume.as_ref()))
    }
}

/// How a [`PersistentVolume`] fares.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct PersistentVolumeStatus {
    /// `Available`, `Bound`, `Released` or another.
    #[serde(deserialize_with = "nullable")]
    pub phase: String,
}

/// The claim that a [`PersistentVolume`] is bound to, or kept for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct ClaimReference {
    /// The namespace.
    #[serde(deserialize_with = "nullable")]
    pub namespace: String,
    /// The name.
    #[serde(deserialize_with = "nullable")]
    pub name: String,
    /// The identity; empty where the volume is kept for a claim that was not there yet.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "nullable")]
    pub uid: String,
}

/// A volume that is attached to a node, or is about to be.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct VolumeAttachment {
    /// Names.
    pub metadata: ObjectMeta,
    /// What is attached where.
    #[serde(deserialize_with = "nullable")]
    pub spec: VolumeAttachmentSpec,
}

impl VolumeAttachment {
    /// A volume that is attached to a node.
    pub fn of(volume: &str, node: &str) -> Self {
        let metadata = ObjectMeta { name: format!("csi-{volume}-{node}"), ..ObjectMeta::default() };
        let source = VolumeAttachmentSource { persistent_volume_name: volume.to_owned() };
        Self { metadata, spec: VolumeAttachmentSpec { node_name: node.to_owned(), source } }
    }
}

/// What a [`VolumeAttachment`] attaches, and where.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct VolumeAttachmentSpec {
    /// The name of the node.
    pub node_name: String,
    /// The volume.
    #[serde(deserialize_with = "nullable")]
    pub source: VolumeAttachmentSource,
}

/// The volume of a [`VolumeAttachment`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct VolumeAttachmentSource {
    /// The name of the [`PersistentVolume`]; empty for one that is written down in a pod.
    #[serde(deserialize_with = "nullable")]
    pub persistent_volume_name: String,
}

/// The nodes that can mount a [`PersistentVolume`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct VolumeNodeAffinity {
    /// What must hold; none means all nodes.
    #[serde(skip_serializing_if = "is_default")]
    pub required: Option<NodeSelector>,
}

/// A volume that a driver of the container storage interface attaches.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct CsiVolumeSource {
    /// The name of the driver.
    pub driver: String,
    /// The driver's name for the volume.
    #[serde(deserialize_with = "nullable")]
    pub volume_handle: String,
}

/// A volume in the file system of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct NodePathSource {
    /// The path on the node.
    #[serde(deserialize_with = "nullable")]
    pub path: String,
}

/// How the volumes of a class are made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct StorageClass {
    /// Names and annotations.
    pub metadata: ObjectMeta,
    /// Who makes them.
    #[serde(deserialize_with = "nullable")]
    pub provisioner: String,
    /// When they are made.
    #[serde(deserialize_with = "nullable")]
    pub volume_binding_mode: VolumeBindingMode,
    /// Where they may be made: alternatives; none of them means everywhere.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "nullable")]
    pub allowed_topologies: Vec<TopologySelectorTerm>,
}

impl StorageClass {
    /// Whether volumes are made for its claims, as opposed to by hand.
    pub fn makes_volumes(&self) -> bool {
        !self.provisioner.is_empty() && self.provisioner != NO_PROVISIONER
    }

    /// Whether it is marked as the class of the claims that name none.
    pub fn is_default(&self) -> bool {
        IS_DEFAULT_CLASS.iter().any(|key| self.metadata.annotations.get(*key).is_some_and(|v| v == "true"))
    }
}

/// When the volume of a claim is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum VolumeBindingMode {
    /// At once, wherever that may be.
    #[default]
    Immediate,
    /// Where the first pod that mounts it goes.
    WaitForFirstConsumer,
}

/// Requirements that a node must meet together; a term without any is met by no node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct TopologySelectorTerm {
    /// On labels.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "nullable")]
    pub match_label_expressions: Vec<TopologySelectorLabelRequirement>,
}

/// A label of a node that must have one of some values.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TopologySelectorLabelRequirement {
    /// The key of the label.
    pub key: String,
    /// The values.
    pub values: Vec<String>,
}

/// What the storage drivers of a node report. It has the name of the node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct CsiNode {
    /// Names.
    pub metadata: ObjectMeta,
    /// The drivers.
    #[serde(deserialize_with = "nullable")]
    pub spec: CsiNodeSpec,
}

impl CsiNode {
    /// The most volumes that each driver can attach to the node; drivers without a limit are left out.
    pub fn volume_limits(&self) -> BTreeMap<String, u32> {
        let limit = |d: &CsiNodeDriver| d.allocatable.count.map(|count| (d.name.clone(), count));
        self.spec.drivers.iter().filter_map(limit).collect()
    }
}

/// The drivers of a [`CsiNode`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct CsiNodeSpec {
    /// The drivers.
    #[serde(deserialize_with = "nullable")]
    pub drivers: Vec<CsiNodeDriver>,
}

/// A storage driver on a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct CsiNodeDriver {
    /// The name of the driver.
    pub name: String,
    /// What it can do.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "nullable")]
    pub allocatable: VolumeNodeResources,
}

/// What a storage driver can do on a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct VolumeNodeResources {
    /// The most volumes that it can attach; `None` means that it says no limit.
    #[serde(skip_serializing_if = "is_default")]
    pub count: Option<u32>,
}

/// A namespace, whose labels select it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Namespace {
    /// The name and the labels.
    pub metadata: ObjectMeta,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read<T: serde::de::DeserializeOwned>(json: &str) -> T {
        serde_json::from_str(json).expect(json)
    }

    #[test]
    fn the_beta_annotation_names_the_class_before_the_field() {
        let claim = |annotations: &str, spec: &str| -> PersistentVolumeClaim {
            read(&format!(r#"{{"metadata":{{"name":"c","annotations":{annotations}}},"spec":{spec}}}"#))
        };
        let beta = r#"{"volume.beta.kubernetes.io/storage-class":"old"}"#;
        for (annotations, spec, expected) in [
            ("null", "null", None),
            ("null", r#"{"storageClassName":null}"#, None),
            ("null", r#"{"storageClassName":""}"#, Some("")),
            ("null", r#"{"storageClassName":"new"}"#, Some("new")),
            (beta, "{}", Some("old")),
            (beta, r#"{"storageClassName":"new"}"#, Some("old")),
        ] {
            assert_eq!(claim(annotations, spec).class_name(), expected, "{annotations} {spec}");
        }
    }

    #[test]
    fn classes_bind_at_once_unless_they_say_otherwise() {
        let class: StorageClass = read(r#"{"metadata":{"name":"c"},"provisioner":"p","allowedTopologies":null}"#);
        assert_eq!((class.volume_binding_mode, class.is_default()), (VolumeBindingMode::Immediate, false));
        for (annotation, expected) in [
            (r#""storageclass.kubernetes.io/is-default-class":"true""#, true),
            (r#""storageclass.beta.kubernetes.io/is-default-class":"true""#, true),
            (r#""storageclass.kubernetes.io/is-default-class":"false""#, false),
        ] {
            let json = format!(
                r#"{{"metadata":{{"name":"c","annotations":{{{annotation}}}}},"volumeBindingMode":"WaitForFirstConsumer"}}"#
            );
            let class: StorageClass = read(&json);
            assert_eq!(
                (class.volume_binding_mode, class.is_default()),
                (VolumeBindingMode::WaitForFirstConsumer, expected)
            );
        }
        assert!(serde_json::from_str::<StorageClass>(r#"{"volumeBindingMode":"Later"}"#).is_err());
    }

    #[test]
    fn drivers_without_a_count_have_no_limit() {
        let node: CsiNode = read(
            r#"{"metadata":{"name":"n"},"spec":{"drivers":[{"name":"a","nodeID":"i","allocatable":{"count":0}},
                {"name":"b","allocatable":null},{"name":"c","allocatable":{}},{"name":"d","allocatable":{"count":25}}]}}"#,
        );
        assert_eq!(node.volume_limits(), BTreeMap::from([("a".to_owned(), 0), ("d".to_owned(), 25)]));
    }

    #[test]
    fn volumes_survive_the_wire() {
        for (spec, is_on_node) in [
            (r#"{"csi":{"driver":"ebs.csi.aws.com","volumeHandle":"vol-1"}}"#, false),
            (r#"{"storageClassName":"gp2","awsElasticBlockStore":{"volumeID":"vol-1"}}"#, false),
            (r#"{"gcePersistentDisk":{"pdName":"d","readOnly":true}}"#, false),
            (r#"{"azureDisk":{"diskURI":"u"},"azureFile":{"secretName":"s","shareName":"f"}}"#, false),
            (
                r#"{"cinder":{"volumeID":"c"},"vsphereVolume":{"volumePath":"p"},"portworxVolume":{"volumeID":"x"}}"#,
                false,
            ),
            (r#"{"hostPath":{"path":"/data"}}"#, true),
            (
                r#"{"capacity":{"storage":"1Gi"},"accessModes":["ReadWriteOnce"],"volumeMode":"Block","claimRef":{"namespace":"n","name":"c","uid":"1"}}"#,
                false,
            ),
            (
                r#"{"nodeAffinity":{"required":{"nodeSelectorTerms":[{"matchExpressions":[{"key":"a","operator":"Exists"}]}]}},"local":{"path":"/data"}}"#,
                true,
            ),
        ] {
            let json = format!(r#"{{"metadata":{{"name":"v"}},"spec":{spec}}}"#);
            let volume: PersistentVolume = read(&json);
            assert_eq!(serde_json::to_string(&volume).expect("valid"), json);
            assert_eq!(volume.is_on_node(), is_on_node, "{spec}");
        }
    }
}
