use std::{fmt, iter::Sum};

use ordered_float::OrderedFloat;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Dollars an hour: finite, not below zero, totally ordered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Price(OrderedFloat<f64>);

impl Price {
    /// Nothing.
    pub const ZERO: Self = Self(OrderedFloat(0.0));

    /// A price; `None` if it is negative or not a number.
    pub fn per_hour(dollars: f64) -> Option<Self> {
        (dollars.is_finite() && dollars >= 0.0).then_some(Self(OrderedFloat(dollars + 0.0)))
    }

    /// Dollars an hour.
    pub const fn dollars_per_hour(self) -> f64 {
        self.0.0
    }
}

impl Sum for Price {
    fn sum<I: Iterator<Item = Self>>(prices: I) -> Self {
        Self(prices.map(|p| p.0).sum())
    }
}

impl fmt::Display for Price {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "${:.4}/h", self.0)
    }
}

impl Serialize for Price {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.0.0)
    }
}

impl<'de> Deserialize<'de> for Price {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let dollars = f64::deserialize(deserializer)?;
        Self::per_hour(dollars)
            .ok_or_else(|| de::Error::custom(format!("invalid price {dollars}: below zero or not finite")))
    }
}
