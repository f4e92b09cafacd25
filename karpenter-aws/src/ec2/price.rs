//! What EC2 says about prices.

use karpenter_core::Timestamp;
use serde::{Deserialize, Serialize};

/// What a spot machine costs in a zone from some time on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpotPriceRecord {
    /// The instance type.
    pub instance_type: String,
    /// The zone.
    pub zone: String,
    /// Dollars an hour, as a text.
    pub price: String,
    /// Since when; some records lack it.
    pub since: Option<Timestamp>,
}

/// An attribute that the products of the price list are narrowed by.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ProductFilter {
    /// The attribute, such as `regionCode`.
    pub field: String,
    /// Its value.
    pub value: String,
}

impl ProductFilter {
    /// An attribute of this value.
    pub fn new(field: impl Into<String>, value: impl Into<String>) -> Self {
        Self { field: field.into(), value: value.into() }
    }
}
