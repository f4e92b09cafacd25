//! Launch templates.

use serde::{Deserialize, Serialize};

use super::Tags;

/// A launch template that is there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaunchTemplate {
    /// Such as `lt-0123`.
    pub id: String,
    /// Its name, unique in the region.
    pub name: String,
    /// Its tags.
    pub tags: Tags,
}

/// What a launch template says of the machines that are bought with it. Type, subnet and zone are said when they are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaunchTemplateData {
    /// The image.
    pub image_id: String,
    /// What the machine runs first, in base64.
    pub user_data: String,
    /// The name of the instance profile.
    pub instance_profile: String,
    /// The disks.
    pub block_devices: Vec<BlockDevice>,
    /// The network interfaces; there is one at least.
    pub interfaces: Vec<NetworkInterface>,
    /// How the machine asks who it is.
    pub metadata_options: MetadataSettings,
    /// Whether its figures are told each minute.
    pub detailed_monitoring: bool,
    /// Whether it has room for enclaves.
    pub enclaves: bool,
    /// `enabled` or `disabled`, if it is said whether it may run virtual machines.
    pub nested_virtualization: Option<String>,
    /// What it draws on.
    pub reservation: ReservationTarget,
    /// `spot`, `capacity-block` or `interruptible-capacity-reservation`; on-demand if there is none.
    pub market: Option<String>,
    /// `default` or `dedicated`.
    pub tenancy: String,
    /// The placement group.
    pub placement_group_id: Option<String>,
    /// The partition of the placement group.
    pub partition: Option<u32>,
    /// The tags of what is made along with the machine: its interfaces, and the request if it is a spot machine.
    pub tags: Tags,
}

/// What a machine draws on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReservationTarget {
    /// Any reservation that is open to it, if there is one.
    #[default]
    Open,
    /// No reservation.
    None,
    /// This reservation and no other capacity.
    Only(String),
}

/// A disk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockDevice {
    /// Such as `/dev/xvda`.
    pub name: String,
    /// Whether it goes with the machine.
    pub delete_on_termination: Option<bool>,
    /// Whether it is encrypted.
    pub encrypted: Option<bool>,
    /// Operations a second; not said if zero.
    pub iops: Option<i32>,
    /// The key that it is encrypted with.
    pub kms_key_id: Option<String>,
    /// What it is a copy of.
    pub snapshot_id: Option<String>,
    /// MiB a second; not said if zero.
    pub throughput: Option<i32>,
    /// MiB a second at which the snapshot is copied.
    pub initialization_rate: Option<i32>,
    /// GiB, rounded up.
    pub size_gib: Option<i32>,
    /// Such as `gp3`.
    pub volume_type: Option<String>,
}

/// What a network interface is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum InterfaceKind {
    /// IP.
    #[default]
    Interface,
    /// IP, and EFA beside it.
    Efa,
    /// EFA alone: it has no address.
    EfaOnly,
}

/// A network interface.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkInterface {
    /// The place of its card.
    pub card: u32,
    /// Its place on the card.
    pub device: u32,
    /// What it is for.
    pub kind: InterfaceKind,
    /// Its security groups.
    pub security_group_ids: Vec<String>,
    /// Whether it has a public address; the subnet says so otherwise.
    pub public_address: Option<bool>,
    /// How many IPv4 prefixes it has.
    pub ipv4_prefix_count: Option<u32>,
    /// How many IPv6 prefixes it has.
    pub ipv6_prefix_count: Option<u32>,
    /// How many IPv6 addresses it has, the first of which stays its own.
    pub ipv6_address_count: Option<u32>,
    /// How long idle connections are remembered.
    pub connection_tracking: Option<ConnectionTracking>,
}

/// For how many seconds idle connections are remembered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnectionTracking {
    /// Of TCP.
    pub tcp_established_seconds: Option<i32>,
    /// Of UDP with answers.
    pub udp_stream_seconds: Option<i32>,
    /// Of UDP without answers.
    pub udp_seconds: Option<i32>,
}

/// How a machine asks who it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MetadataSettings {
    /// `enabled` or `disabled`.
    pub endpoint: String,
    /// `enabled` or `disabled`, over IPv6; `None` where EC2 does not know the setting.
    pub ipv6: Option<String>,
    /// How many hops away it is answered.
    pub hop_limit: i32,
    /// `required` or `optional`.
    pub tokens: String,
}

impl Default for MetadataSettings {
    fn default() -> Self {
        let text = str::to_owned;
        Self { endpoint: text("enabled"), ipv6: Some(text("disabled")), hop_limit: 1, tokens: text("required") }
    }
}
