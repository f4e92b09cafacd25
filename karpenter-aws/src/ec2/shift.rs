//! Zonal shifts of ARC, the Application Recovery Controller.

use karpenter_core::Timestamp;
use serde::{Deserialize, Serialize};

/// Traffic that is taken away from a zone, by somebody or by AWS.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ZonalShift {
    /// The id of the zone, such as `usw2-az1`: it is the same for all accounts, unlike the name.
    pub zone_id: String,
    /// When it ends; one of AWS itself has no such time.
    pub expiry: Option<Timestamp>,
    /// Whether it has an effect: of several shifts of one resource one may prevail.
    pub is_applied: bool,
}

impl ZonalShift {
    /// Whether the zone is to be left alone.
    pub fn is_active(&self, now: Timestamp) -> bool {
        self.is_applied && self.expiry.is_none_or(|expiry| now < expiry)
    }
}
