//! Amounts of resources as people read them.

use crate::{Quantity, ResourceName};

/// The suffixes of powers of 1024.
const SUFFIXES: [&str; 6] = ["", "Ki", "Mi", "Gi", "Ti", "Pi"];
/// What is printed as it is: up to three digits, as in `500m` or `384Gi`, and whole numbers of cores.
const MAX_EXACT: usize = 6;

/// An amount with one decimal if it is in bytes and would have many digits, rounded down.
pub(super) fn at_most(resource: &ResourceName, amount: Quantity) -> String {
    rounded(resource, amount, f64::floor)
}

/// The same, rounded up.
pub(super) fn at_least(resource: &ResourceName, amount: Quantity) -> String {
    rounded(resource, amount, f64::ceil)
}

fn rounded(resource: &ResourceName, amount: Quantity, round: fn(f64) -> f64) -> String {
    let exact = amount.to_string();
    if !matches!(resource, ResourceName::Memory | ResourceName::EphemeralStorage) || exact.len() <= MAX_EXACT {
        return exact;
    }
    let (mut value, mut suffix) = (amount.as_f64(), 0);
    while value >= 1024.0 && suffix + 1 < SUFFIXES.len() {
        value /= 1024.0;
        suffix += 1;
    }
    format!("{}{}", round(value * 10.0) / 10.0, SUFFIXES[suffix])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_with_many_digits_are_rounded() {
        let bytes = |n| Quantity::from_bytes(n);
        assert_eq!(at_least(&ResourceName::Memory, bytes(3_250_585 << 10)), "3.1Gi");
        assert_eq!(at_most(&ResourceName::Memory, bytes(3_250_585 << 10)), "3Gi");
        assert_eq!(at_most(&ResourceName::Memory, bytes(384 << 30)), "384Gi");
        assert_eq!(at_least(&ResourceName::Memory, bytes(1)), "1");
        assert_eq!(at_least(&ResourceName::Memory, bytes(1_234_567)), "1.2Mi");
        assert_eq!(at_least(&ResourceName::Cpu, Quantity::from_milli(123_456_789)), "123456789m");
    }
}
