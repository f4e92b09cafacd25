use karpenter_core::{
    Timestamp,
    api::{Condition, NodeSelectorRequirement},
};
use serde::{Deserialize, Serialize};

use super::InstanceMatchCriteria;
use crate::wire::{is_default, nullable};

/// What the selectors of a class found, and whether nodes can be made of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Ec2NodeClassStatus {
    /// The subnets, those with most free addresses first.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "nullable")]
    pub subnets: Vec<Subnet>,
    /// The security groups by their ids.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "nullable")]
    pub security_groups: Vec<SecurityGroup>,
    /// The capacity reservations by their ids.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "nullable")]
    pub capacity_reservations: Vec<CapacityReservation>,
    /// The images, the newest first.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "nullable")]
    pub amis: Vec<Ami>,
    /// The name of the instance profile; empty until it is known.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "nullable")]
    pub instance_profile: String,
    /// Observed aspects.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "nullable")]
    pub conditions: Vec<Condition>,
}

/// A subnet that instances may be launched into.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Subnet {
    /// The id.
    pub id: String,
    /// The name of its zone, such as `us-east-1a`.
    pub zone: String,
    /// The id of its zone, such as `use1-az1`; empty if it is not known.
    #[serde(rename = "zoneID", skip_serializing_if = "is_default", deserialize_with = "nullable")]
    pub zone_id: String,
}

/// A security group of the instances.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SecurityGroup {
    /// The id.
    pub id: String,
    /// The name.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "nullable")]
    pub name: String,
}

/// An image, and which instance types can start from it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Ami {
    /// The id.
    pub id: String,
    /// Whether its time is over.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "nullable")]
    pub deprecated: bool,
    /// The name.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "nullable")]
    pub name: String,
    /// What the labels of a type must be.
    #[serde(deserialize_with = "nullable")]
    pub requirements: Vec<NodeSelectorRequirement>,
}

/// A capacity reservation that instances may draw on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CapacityReservation {
    /// The zone that it is in.
    pub availability_zone: String,
    /// When it ends; `None` for never.
    #[serde(default, skip_serializing_if = "is_default")]
    pub end_time: Option<Timestamp>,
    /// The id.
    pub id: String,
    /// Which instances may use it.
    pub instance_match_criteria: InstanceMatchCriteria,
    /// The instance type that it is for.
    pub instance_type: String,
    /// The account that owns it.
    #[serde(rename = "ownerID")]
    pub owner_id: String,
    /// Of which type it is.
    #[serde(default)]
    pub reservation_type: ReservationType,
    /// Whether EC2 may take its instances back.
    #[serde(default)]
    pub interruptible: bool,
    /// Whether it is about to end.
    #[serde(default)]
    pub state: ReservationState,
}

/// The types of capacity reservations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReservationType {
    /// On-demand capacity, reserved until somebody gives it back.
    #[default]
    Default,
    /// Capacity of a time that was settled in advance.
    CapacityBlock,
}

impl ReservationType {
    /// The name, as it is in labels.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::CapacityBlock => "capacity-block",
        }
    }
}

/// Whether a capacity reservation is about to end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ReservationState {
    /// It goes on.
    #[default]
    Active,
    /// EC2 is about to end its instances.
    Expiring,
}
