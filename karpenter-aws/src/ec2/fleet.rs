//! Buying machines.

use karpenter_core::Price;
use serde::{Deserialize, Serialize};

use super::Tags;

/// What machines are bought as.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TargetKind {
    /// At the list price; a targeted reservation is bought so too.
    #[default]
    OnDemand,
    /// Spare capacity.
    Spot,
    /// Out of a block that was reserved for some days.
    CapacityBlock,
    /// Out of a reservation that EC2 may take back.
    ReservedCapacity,
}

/// By what EC2 chooses among overrides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Allocation {
    /// The lowest list price.
    #[default]
    LowestPrice,
    /// The lowest price among pools that are likely to last.
    PriceCapacityOptimized,
    /// The priority, on-demand.
    Prioritized,
    /// The priority, as far as pools are likely to last.
    CapacityOptimizedPrioritized,
}

/// Machines to buy at once, as many as can be had.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FleetRequest {
    /// Calls of one token buy once. At most 64 characters.
    pub client_token: String,
    /// How many.
    pub count: u32,
    /// As what.
    pub target: TargetKind,
    /// By what EC2 chooses; not said for capacity that was paid for.
    pub allocation: Option<Allocation>,
    /// What may be bought.
    pub configs: Vec<FleetConfig>,
    /// The tags of the machines, their volumes and the fleet.
    pub tags: Tags,
    /// Passed on to EC2 as it is.
    pub context: Option<String>,
    /// Whether nothing is bought: it is only said whether the credentials allow it.
    pub is_dry_run: bool,
}

/// What may be bought with one launch template.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FleetConfig {
    /// The name of the template, of which the newest version counts.
    pub template: String,
    /// The choices.
    pub overrides: Vec<FleetOverride>,
}

/// A type in a subnet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FleetOverride {
    /// The instance type.
    pub instance_type: String,
    /// The subnet.
    pub subnet_id: String,
    /// Its zone.
    pub zone: String,
    /// The image.
    pub image_id: String,
    /// Lower is bought first, where the allocation looks at it.
    pub priority: Price,
}

/// What was bought, and what could not be.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FleetReply {
    /// Such as `fleet-0123`.
    pub fleet_id: String,
    /// What was bought.
    pub launched: Vec<FleetLaunch>,
    /// What could not be.
    pub errors: Vec<FleetError>,
    /// The name of the request, for support.
    pub request_id: String,
}

/// Machines of one override.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FleetLaunch {
    /// Their ids.
    pub instance_ids: Vec<String>,
    /// What they are; EC2 may leave the subnet out.
    pub choice: FleetOverride,
}

/// Why an override was not bought.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FleetError {
    /// Such as `InsufficientInstanceCapacity`.
    pub code: String,
    /// In words.
    pub message: String,
    /// The override.
    pub choice: FleetOverride,
}
