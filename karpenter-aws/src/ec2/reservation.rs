//! Capacity that was paid for in advance.

use karpenter_core::Timestamp;
use serde::{Deserialize, Serialize};

use super::Tags;

/// A capacity reservation, as EC2 tells of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CapacityReservation {
    /// Such as `cr-0123`.
    pub id: String,
    /// The account that pays for it.
    pub owner_id: String,
    /// The instance type that it is for.
    pub instance_type: String,
    /// The zone that it is for.
    pub zone: String,
    /// How many machines are not in use.
    pub available_count: u32,
    /// How many machines it is for.
    pub total_count: u32,
    /// `open` or `targeted`.
    pub match_criteria: String,
    /// `default` or `capacity-block`; some have none.
    pub reservation_type: Option<String>,
    /// Whether EC2 may take it back.
    pub interruptible: Option<bool>,
    /// `active`, or on the way there or back.
    pub state: String,
    /// When it ends, if it does.
    pub end: Option<Timestamp>,
    /// Its tags.
    pub tags: Tags,
}
