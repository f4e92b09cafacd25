use std::{fmt, iter::Sum};

use ordered_float::OrderedFloat;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Billionths in a dollar.
const NANO: f64 = 1e9;

/// Dollars an hour: not below zero, at most [`Price::MAX`], totally ordered. Sums may be more, and are finite.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Price(OrderedFloat<f64>);

impl Price {
    /// Nothing.
    pub const ZERO: Self = Self(OrderedFloat(0.0));

    /// The highest price, a little more than nine billion dollars an hour: what 64 bits hold of billionths, in which lower
    /// bounds are proven. It is for what must not be bought if there is any other way.
    pub const MAX: Self = Self(OrderedFloat(i64::MAX as f64 / NANO));

    /// A price; `None` if it is negative, not a number, or above [`Price::MAX`].
    pub fn per_hour(dollars: f64) -> Option<Self> {
        (0.0..=Self::MAX.dollars_per_hour()).contains(&dollars).then_some(Self(OrderedFloat(dollars + 0.0)))
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
            .ok_or_else(|| de::Error::custom(format!("invalid price {dollars}: not from 0 to {}", Self::MAX.0)))
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

    #[test]
    fn prices_are_numbers_that_can_be_added_up() {
        let most = Price::MAX.dollars_per_hour();
        assert_eq!(Price::per_hour(most), Some(Price::MAX));
        assert_eq!(Price::of_nano_dollars(i64::MAX), Price::MAX);
        for dollars in [-1.0, most * 1.001, 1e308, f64::MAX, f64::INFINITY, f64::NAN] {
            assert_eq!(Price::per_hour(dollars), None, "{dollars}");
        }
        let error = serde_json::from_str::<Price>("1e308").expect_err("too much").to_string();
        assert!(error.starts_with("invalid price 1") && error.contains("not from 0 to 9223372036.85"), "{error}");
        let sum: Price = std::iter::repeat_n(Price::MAX, 1_000_000).sum();
        assert!(sum.dollars_per_hour().is_finite());
    }
}
