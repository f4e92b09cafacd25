use std::{fmt, iter::Sum};

use ordered_float::OrderedFloat;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Billionths in a dollar.
const NANO: f64 = 1e9;

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

    /// So many billionths of a dollar an hour; zero if the number is negative.
    pub fn of_nano_dollars(nano_dollars_per_hour: i64) -> Self {
        Self(OrderedFloat(nano_dollars_per_hour.max(0) as f64 / NANO))
    }

    /// Whole billionths of a dollar an hour, rounded down.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "it is rounded down, and what is too large becomes the largest"
    )]
    pub const fn nano_dollars_per_hour(self) -> i64 {
        (self.0.0 * NANO) as i64
    }

    /// Dollars an hour.
    pub const fn dollars_per_hour(self) -> f64 {
        self.0.0
    }
}

impl Sum for Price {
    fn sum<I: Iterator<Item = Self>>(prices: I) -> Self {
        // A sum of floats starts at -0, which would be printed.
        prices.fold(Self::ZERO, |sum, price| Self(sum.0 + price.0))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_costs_zero_without_a_sign() {
        let nothing: Price = std::iter::empty().sum();
        assert!(nothing.dollars_per_hour().is_sign_positive());
    }
}
