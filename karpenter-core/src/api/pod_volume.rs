use serde::{Deserialize, Serialize};

use super::{
    AwsElasticBlockStoreSource, AzureDiskSource, AzureFileSource, CinderSource, GcePersistentDiskSource,
    IscsiVolumeSource, PersistentVolumeClaimTemplate, PortworxVolumeSource, RbdVolumeSource, VsphereVolumeSource,
    is_default, nullable, volume_source::attached,
};

/// A volume of a pod, as far as its placement goes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct Volume {
    /// The name.
    pub name: String,
    /// A claim made beforehand.
    #[serde(skip_serializing_if = "is_default")]
    pub persistent_volume_claim: Option<VolumeClaimSource>,
    /// A claim made for this pod.
    #[serde(skip_serializing_if = "is_default")]
    pub ephemeral: Option<EphemeralVolume>,
    /// An EBS volume.
    #[serde(skip_serializing_if = "is_default")]
    pub aws_elastic_block_store: Option<Box<AwsElasticBlockStoreSource>>,
    /// A disk of Google's cloud.
    #[serde(skip_serializing_if = "is_default")]
    pub gce_persistent_disk: Option<Box<GcePersistentDiskSource>>,
    /// A disk of Azure.
    #[serde(skip_serializing_if = "is_default")]
    pub azure_disk: Option<Box<AzureDiskSource>>,
    /// A shared folder of Azure.
    #[serde(skip_serializing_if = "is_default")]
    pub azure_file: Option<Box<AzureFileSource>>,
    /// A volume of OpenStack.
    #[serde(skip_serializing_if = "is_default")]
    pub cinder: Option<Box<CinderSource>>,
    /// A disk of vSphere.
    #[serde(skip_serializing_if = "is_default")]
    pub vsphere_volume: Option<Box<VsphereVolumeSource>>,
    /// A volume of Portworx.
    #[serde(skip_serializing_if = "is_default")]
    pub portworx_volume: Option<Box<PortworxVolumeSource>>,
    /// A disk that a server lends over the network.
    #[serde(skip_serializing_if = "is_default")]
    pub iscsi: Option<Box<IscsiVolumeSource>>,
    /// A disk of Ceph.
    #[serde(skip_serializing_if = "is_default")]
    pub rbd: Option<Box<RbdVolumeSource>>,
}

/// A disk that a pod names itself, of such a kind that two pods of a node do not both mount it unless both only read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NamedDisk<'v> {
    /// The name of the field, and of the disk.
    pub(crate) name: (&'static str, &'v str, &'v str),
    pub(crate) is_read_only: bool,
}

impl Volume {
    /// The driver that attaches the disk that the pod names, and what the driver calls it.
    pub(crate) fn attached(&self) -> Option<(&'static str, String)> {
        attached(self.aws_elastic_block_store.as_deref())
            .or_else(|| attached(self.gce_persistent_disk.as_deref()))
            .or_else(|| attached(self.azure_disk.as_deref()))
            .or_else(|| attached(self.azure_file.as_deref()))
            .or_else(|| attached(self.cinder.as_deref()))
            .or_else(|| attached(self.vsphere_volume.as_deref()))
            .or_else(|| attached(self.portworx_volume.as_deref()))
    }

    /// The disk, if it is one of those that the filter `VolumeRestrictions` of the kube-scheduler looks at.
    pub(crate) fn named_disk(&self) -> Option<NamedDisk<'_>> {
        if let Some(ebs) = &self.aws_elastic_block_store {
            return Some(NamedDisk { name: ("awsElasticBlockStore", &ebs.volume_id, ""), is_read_only: false });
        }
        if let Some(disk) = &self.gce_persistent_disk {
            return Some(NamedDisk { name: ("gcePersistentDisk", &disk.pd_name, ""), is_read_only: disk.read_only });
        }
        if let Some(disk) = &self.iscsi {
            return Some(NamedDisk { name: ("iscsi", &disk.iqn, ""), is_read_only: disk.read_only });
        }
        let disk = self.rbd.as_ref()?;
        let pool = if disk.pool.is_empty() { "rbd" } else { &disk.pool };
        Some(NamedDisk { name: ("rbd", pool, &disk.image), is_read_only: disk.read_only })
    }
}

/// The claim behind a [`Volume`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct VolumeClaimSource {
    /// The name of the claim, in the pod's namespace.
    pub claim_name: String,
}

/// A [`Volume`] whose claim is made for the pod and named `<pod>-<volume>`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct EphemeralVolume {
    /// What the claim will be like.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "nullable")]
    pub volume_claim_template: PersistentVolumeClaimTemplate,
}
