//! Volumes in the notation from before there were drivers of the container storage interface. Kubernetes reads each as a volume of
//! the driver that took over.

use serde::{Deserialize, Serialize};

use super::{is_default, nullable};

/// The drivers that took over, by what classes called their provisioners before.
const DRIVERS: [(&str, &str); 7] = [
    ("kubernetes.io/aws-ebs", AwsElasticBlockStoreSource::DRIVER),
    ("kubernetes.io/azure-disk", AzureDiskSource::DRIVER),
    ("kubernetes.io/azure-file", AzureFileSource::DRIVER),
    ("kubernetes.io/cinder", CinderSource::DRIVER),
    ("kubernetes.io/gce-pd", GcePersistentDiskSource::DRIVER),
    ("kubernetes.io/portworx-volume", PortworxVolumeSource::DRIVER),
    ("kubernetes.io/vsphere-volume", VsphereVolumeSource::DRIVER),
];

/// The driver that makes volumes for a provisioner, which may be an old name of it.
pub(crate) fn driver_of(provisioner: &str) -> &str {
    DRIVERS.iter().find(|(old, _)| *old == provisioner).map_or(provisioner, |(_, driver)| driver)
}

/// A volume that a driver took over.
pub(super) trait Migrated {
    /// The name of the driver.
    const DRIVER: &'static str;

    /// What the volume is called, as it differs from others of the driver.
    fn handle(&self) -> String;
}

/// The driver of a volume, and what the volume is called.
pub(super) fn attached<S: Migrated>(source: Option<&S>) -> Option<(&'static str, String)> {
    source.map(|source| (S::DRIVER, source.handle()))
}

/// An EBS volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct AwsElasticBlockStoreSource {
    /// The name of the volume, such as `vol-1` or `aws://us-east-1a/vol-1`.
    #[serde(rename = "volumeID", deserialize_with = "nullable")]
    pub volume_id: String,
}

impl Migrated for AwsElasticBlockStoreSource {
    const DRIVER: &'static str = "ebs.csi.aws.com";

    fn handle(&self) -> String {
        self.volume_id.rsplit('/').next().unwrap_or_default().to_owned()
    }
}

/// A persistent disk of Google's cloud.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct GcePersistentDiskSource {
    /// The name of the disk.
    #[serde(deserialize_with = "nullable")]
    pub pd_name: String,
    /// Whether it is only read.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "nullable")]
    pub read_only: bool,
}

impl Migrated for GcePersistentDiskSource {
    const DRIVER: &'static str = "pd.csi.storage.gke.io";

    fn handle(&self) -> String {
        self.pd_name.clone()
    }
}

/// A disk of Azure.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct AzureDiskSource {
    /// The address of the disk.
    #[serde(rename = "diskURI", deserialize_with = "nullable")]
    pub disk_uri: String,
}

impl Migrated for AzureDiskSource {
    const DRIVER: &'static str = "disk.csi.azure.com";

    /// Azure does not distinguish upper case.
    fn handle(&self) -> String {
        self.disk_uri.to_lowercase()
    }
}

/// A shared folder of Azure.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct AzureFileSource {
    /// The secret that names the account.
    #[serde(deserialize_with = "nullable")]
    pub secret_name: String,
    /// The name of the folder in it.
    #[serde(deserialize_with = "nullable")]
    pub share_name: String,
}

impl Migrated for AzureFileSource {
    const DRIVER: &'static str = "file.csi.azure.com";

    fn handle(&self) -> String {
        format!("{}#{}", self.secret_name, self.share_name)
    }
}

/// A volume of OpenStack.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct CinderSource {
    /// The name of the volume.
    #[serde(rename = "volumeID", deserialize_with = "nullable")]
    pub volume_id: String,
}

impl Migrated for CinderSource {
    const DRIVER: &'static str = "cinder.csi.openstack.org";

    fn handle(&self) -> String {
        self.volume_id.clone()
    }
}

/// A disk of vSphere.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct VsphereVolumeSource {
    /// The path of the disk.
    #[serde(deserialize_with = "nullable")]
    pub volume_path: String,
}

impl Migrated for VsphereVolumeSource {
    const DRIVER: &'static str = "csi.vsphere.vmware.com";

    fn handle(&self) -> String {
        self.volume_path.clone()
    }
}

/// A volume of Portworx.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct PortworxVolumeSource {
    /// The name of the volume.
    #[serde(rename = "volumeID", deserialize_with = "nullable")]
    pub volume_id: String,
}

impl Migrated for PortworxVolumeSource {
    const DRIVER: &'static str = "pxd.portworx.com";

    fn handle(&self) -> String {
        self.volume_id.clone()
    }
}

/// A disk that a server lends over the network (iSCSI).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct IscsiVolumeSource {
    /// The name of the disk among all in the world.
    #[serde(deserialize_with = "nullable")]
    pub iqn: String,
    /// Whether it is only read.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "nullable")]
    pub read_only: bool,
}

/// A disk of Ceph.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct RbdVolumeSource {
    /// The pool of Ceph; `rbd` where none is written.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "nullable")]
    pub pool: String,
    /// The name of the disk in it.
    #[serde(deserialize_with = "nullable")]
    pub image: String,
    /// Whether it is only read.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "nullable")]
    pub read_only: bool,
}
