//! Machines, as EC2 tells of them.

use karpenter_core::Timestamp;
use serde::{Deserialize, Serialize};

use super::Tags;

/// How far a machine's life is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum InstanceState {
    /// It is being started.
    #[default]
    Pending,
    /// It is up.
    Running,
    /// It is on its way to a halt.
    Stopping,
    /// It has halted and may be started again.
    Stopped,
    /// It is on its way out.
    ShuttingDown,
    /// It is gone.
    Terminated,
}

impl InstanceState {
    /// The state of this name, if there is one.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == name)
    }

    /// All states, in the order of a life.
    pub const ALL: [Self; 6] =
        [Self::Pending, Self::Running, Self::Stopping, Self::Stopped, Self::ShuttingDown, Self::Terminated];

    /// The name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Running => "running",
            Self::Stopping => "stopping",
            Self::Stopped => "stopped",
            Self::ShuttingDown => "shutting-down",
            Self::Terminated => "terminated",
        }
    }

    /// Whether it is on its way out, or gone.
    pub const fn is_ending(self) -> bool {
        matches!(self, Self::ShuttingDown | Self::Terminated)
    }
}

/// A machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ec2Instance {
    /// Such as `i-0123`.
    pub id: String,
    /// How far its life is.
    pub state: InstanceState,
    /// Its instance type.
    pub instance_type: String,
    /// Its zone.
    pub zone: String,
    /// Its image.
    pub image_id: String,
    /// The subnet of its first interface.
    pub subnet_id: String,
    /// The security groups of its first interface.
    pub security_group_ids: Vec<String>,
    /// The name of its instance profile; empty if it has none.
    pub instance_profile: String,
    /// When it was bought.
    pub launched: Option<Timestamp>,
    /// The request that it was bought by as a spot machine.
    pub spot_request_id: Option<String>,
    /// The reservation that it draws on.
    pub reservation_id: Option<String>,
    /// Which reservations it may draw on, such as `capacity-reservations-only`.
    pub reservation_preference: Option<String>,
    /// `default` or `dedicated`.
    pub tenancy: String,
    /// The placement group that it is in.
    pub placement_group_id: Option<String>,
    /// The partition of the placement group that it is in.
    pub partition: Option<u32>,
    /// Whether it has an interface for EFA.
    pub has_efa: bool,
    /// Its tags.
    pub tags: Tags,
}

/// Which machines are asked for: those of these ids, or those that meet all filters.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct InstanceQuery {
    /// Their ids; all machines if it is empty.
    pub ids: Vec<String>,
    /// What else they must be.
    pub filters: Vec<super::Filter>,
}

/// What the deletion of a machine has done to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateChange {
    /// The machine.
    pub id: String,
    /// Its state now.
    pub state: InstanceState,
}

/// How a machine fares, as far as EC2 can see from outside.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstanceHealth {
    /// The machine.
    pub id: String,
    /// Since when the checks of the machine itself fail.
    pub instance_impaired_since: Option<Timestamp>,
    /// Since when the checks of what it runs on fail.
    pub system_impaired_since: Option<Timestamp>,
    /// The codes of what is planned for it, such as `instance-retirement`.
    pub events: Vec<String>,
}
