use std::collections::BTreeMap;

use karpenter_core::Quantity;
use serde::{Deserialize, Serialize};

use super::{
    AmiFamily, AmiSelectorTerm, CapacityReservationSelectorTerm, KubeletConfiguration, PlacementGroupSelector,
    SecurityGroupSelectorTerm, SubnetSelectorTerm,
};
use crate::wire::{is_default, nullable};

/// What is wanted of the instances of a class.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Ec2NodeClassSpec {
    /// The subnets: all that a term selects.
    #[serde(deserialize_with = "nullable")]
    pub subnet_selector_terms: Vec<SubnetSelectorTerm>,
    /// The security groups: all that a term selects.
    #[serde(deserialize_with = "nullable")]
    pub security_group_selector_terms: Vec<SecurityGroupSelectorTerm>,
    /// The capacity reservations: all that a term selects.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "nullable")]
    pub capacity_reservation_selector_terms: Vec<CapacityReservationSelectorTerm>,
    /// The placement group.
    #[serde(skip_serializing_if = "is_default")]
    pub placement_group_selector: Option<PlacementGroupSelector>,
    /// Whether instances get public addresses; as the subnet says if it is not written.
    #[serde(rename = "associatePublicIPAddress", skip_serializing_if = "is_default")]
    pub associate_public_ip_address: Option<bool>,
    /// How many prefixes of addresses an interface gets.
    #[serde(rename = "ipPrefixCount", skip_serializing_if = "is_default")]
    pub ip_prefix_count: Option<u32>,
    /// The images: all that a term selects.
    #[serde(deserialize_with = "nullable")]
    pub ami_selector_terms: Vec<AmiSelectorTerm>,
    /// The family of the images; that of the alias if it is not written.
    #[serde(skip_serializing_if = "is_default")]
    pub ami_family: Option<AmiFamily>,
    /// What nodes are told beside what they must be told, in the format of the family.
    #[serde(skip_serializing_if = "is_default")]
    pub user_data: Option<String>,
    /// The IAM role of the instances; empty if `instanceProfile` is written.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "nullable")]
    pub role: String,
    /// The instance profile of the instances.
    #[serde(skip_serializing_if = "is_default")]
    pub instance_profile: Option<String>,
    /// Tags of all that is made in EC2.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "nullable")]
    pub tags: BTreeMap<String, String>,
    /// Settings of the kubelet.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "nullable")]
    pub kubelet: KubeletConfiguration,
    /// The disks; those of the family if there are none.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "nullable")]
    pub block_device_mappings: Vec<BlockDeviceMapping>,
    /// What becomes of the disks of the host.
    #[serde(skip_serializing_if = "is_default")]
    pub instance_store_policy: Option<InstanceStorePolicy>,
    /// The network interfaces; one that is chosen for the instance type if it is not written.
    #[serde(skip_serializing_if = "is_default")]
    pub network_interfaces: Option<Vec<NetworkInterface>>,
    /// Whether instances are watched each minute.
    #[serde(skip_serializing_if = "is_default")]
    pub detailed_monitoring: Option<bool>,
    /// The instance metadata service. An API server writes the default of all fields if it is not written.
    #[serde(skip_serializing_if = "is_default")]
    pub metadata_options: Option<MetadataOptions>,
    /// When interfaces forget connections.
    #[serde(skip_serializing_if = "is_default")]
    pub connection_tracking: Option<ConnectionTracking>,
    /// A field that EC2 keeps for itself.
    #[serde(skip_serializing_if = "is_default")]
    pub context: Option<String>,
    /// Options of the processor.
    #[serde(skip_serializing_if = "is_default")]
    pub cpu_options: Option<CpuOptions>,
}

/// A disk of an instance.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BlockDeviceMapping {
    /// The name of the device, such as `/dev/xvda`.
    #[serde(skip_serializing_if = "is_default")]
    pub device_name: Option<String>,
    /// The volume.
    #[serde(skip_serializing_if = "is_default")]
    pub ebs: Option<BlockDevice>,
    /// Whether pods keep their files on it.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "nullable")]
    pub root_volume: bool,
}

/// An EBS volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BlockDevice {
    /// Whether it goes with the instance.
    #[serde(skip_serializing_if = "is_default")]
    pub delete_on_termination: Option<bool>,
    /// Whether it is encrypted.
    #[serde(skip_serializing_if = "is_default")]
    pub encrypted: Option<bool>,
    /// Operations a second.
    #[serde(skip_serializing_if = "is_default")]
    pub iops: Option<i64>,
    /// The key that it is encrypted with.
    #[serde(rename = "kmsKeyID", skip_serializing_if = "is_default")]
    pub kms_key_id: Option<String>,
    /// The snapshot that it is made from.
    #[serde(rename = "snapshotID", skip_serializing_if = "is_default")]
    pub snapshot_id: Option<String>,
    /// MiB a second.
    #[serde(skip_serializing_if = "is_default")]
    pub throughput: Option<i64>,
    /// How fast it is filled from its snapshot, in MiB a second.
    #[serde(skip_serializing_if = "is_default")]
    pub volume_initialization_rate: Option<i32>,
    /// The size.
    #[serde(skip_serializing_if = "is_default")]
    pub volume_size: Option<Quantity>,
    /// The type.
    #[serde(skip_serializing_if = "is_default")]
    pub volume_type: Option<VolumeType>,
}

/// The types of EBS volumes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum VolumeType {
    /// Magnetic disks of an older kind.
    Standard,
    /// Provisioned operations.
    Io1,
    /// Provisioned operations, durable.
    Io2,
    /// General purpose of an older kind.
    Gp2,
    /// Cold magnetic disks.
    Sc1,
    /// Magnetic disks for throughput.
    St1,
    /// General purpose.
    Gp3,
}

impl VolumeType {
    /// The name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Standard => "standard",
            Self::Io1 => "io1",
            Self::Io2 => "io2",
            Self::Gp2 => "gp2",
            Self::Sc1 => "sc1",
            Self::St1 => "st1",
            Self::Gp3 => "gp3",
        }
    }
}

/// What becomes of the disks of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum InstanceStorePolicy {
    /// They become one, on which pods keep their files.
    #[serde(rename = "RAID0")]
    Raid0,
}

/// A network interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NetworkInterface {
    /// The number of the card.
    pub network_card_index: u32,
    /// The number of the device on the card.
    pub device_index: u32,
    /// The type.
    pub interface_type: InterfaceType,
}

/// The types of network interfaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum InterfaceType {
    /// With addresses.
    Interface,
    /// An elastic fabric adapter without addresses.
    EfaOnly,
}

impl InterfaceType {
    /// The name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Interface => "interface",
            Self::EfaOnly => "efa-only",
        }
    }
}

/// The instance metadata service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MetadataOptions {
    /// Whether it is there.
    pub http_endpoint: Switch,
    /// Whether it has an address of IPv6.
    #[serde(rename = "httpProtocolIPv6")]
    pub http_protocol_ipv6: Switch,
    /// How many hops its answers may go, from 1 to 64.
    pub http_put_response_hop_limit: u32,
    /// Whether it asks for tokens.
    pub http_tokens: HttpTokens,
}

impl Default for MetadataOptions {
    /// What the definition of the kind fills in.
    fn default() -> Self {
        Self {
            http_endpoint: Switch::Enabled,
            http_protocol_ipv6: Switch::Disabled,
            http_put_response_hop_limit: 1,
            http_tokens: HttpTokens::Required,
        }
    }
}

/// On or off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Switch {
    /// On.
    Enabled,
    /// Off.
    Disabled,
}

impl Switch {
    /// The name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Enabled => "enabled",
            Self::Disabled => "disabled",
        }
    }
}

/// Whether the instance metadata service asks for tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HttpTokens {
    /// It does.
    Required,
    /// It answers without, too.
    Optional,
}

impl HttpTokens {
    /// The name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Required => "required",
            Self::Optional => "optional",
        }
    }
}

/// When interfaces forget connections that nothing was sent on, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ConnectionTracking {
    /// Established TCP connections.
    #[serde(rename = "tcpEstablishedTimeout", skip_serializing_if = "is_default")]
    pub tcp_established_timeout_secs: Option<i32>,
    /// UDP flows that look like streams.
    #[serde(rename = "udpStreamTimeout", skip_serializing_if = "is_default")]
    pub udp_stream_timeout_secs: Option<i32>,
    /// Other UDP flows.
    #[serde(rename = "udpTimeout", skip_serializing_if = "is_default")]
    pub udp_timeout_secs: Option<i32>,
}

/// Options of the processor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CpuOptions {
    /// Whether instances can hold virtual machines of their own.
    #[serde(skip_serializing_if = "is_default")]
    pub nested_virtualization: Option<Switch>,
}
