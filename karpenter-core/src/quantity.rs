//! Exact Kubernetes quantities.
//!
//! A quantity is a decimal number with a suffix: `250m`, `1.5`, `2Gi`, `1e3`. Arithmetic on it must never round a node
//! into a fit that the kubelet would refuse, so the value is an integer count of billionths, the finest unit that
//! Kubernetes knows. See the [API reference](https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/).

use std::{cmp::Ordering, fmt, hash, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

const NANOS: i128 = 1_000_000_000;
/// Kubernetes caps every quantity at the largest 64-bit integer.
const CAP: i128 = i64::MAX as i128 * NANOS;

/// A resource quantity in the Kubernetes notation, exact to one billionth.
///
/// Equality and order look at the value only: `1Gi == 1024Mi`. The suffix family is kept for printing.
///
/// ```
/// use karpenter_core::Quantity;
///
/// let memory: Quantity = "1.5Gi".parse()?;
/// assert_eq!(memory.units_ceil(), 1_610_612_736);
/// assert_eq!(memory.to_string(), "1536Mi");
/// # Ok::<(), karpenter_core::QuantityError>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Quantity {
    nanos: i128,
    family: Family,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Family {
    #[default]
    Decimal,
    Binary,
    Exponent,
}

/// Why a text is not a [`Quantity`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid quantity {text:?}: expected a number with an optional suffix such as 250m, 1.5 or 2Gi")]
pub struct QuantityError {
    /// The text as it was given.
    pub text: String,
}

impl Quantity {
    /// Zero.
    pub const ZERO: Self = Self { nanos: 0, family: Family::Decimal };

    /// `units` whole units: cores, bytes or pieces.
    pub const fn from_units(units: i64) -> Self {
        Self { nanos: units as i128 * NANOS, family: Family::Decimal }
    }

    /// `milli_units` thousandths, the unit in which CPU is counted.
    pub const fn from_milli(milli_units: i64) -> Self {
        Self { nanos: milli_units as i128 * (NANOS / 1000), family: Family::Decimal }
    }

    /// `bytes`, printed with binary suffixes.
    pub const fn from_bytes(bytes: i64) -> Self {
        Self { nanos: bytes as i128 * NANOS, family: Family::Binary }
    }

    /// The value in whole units, rounded up as the kube-scheduler rounds what a pod asks for.
    pub fn units_ceil(self) -> i64 {
        saturate(ceil_div(self.nanos, NANOS))
    }

    /// The value in thousandths, rounded up.
    pub fn milli_ceil(self) -> i64 {
        saturate(ceil_div(self.nanos, NANOS / 1000))
    }

    /// The value in whole units, rounded down: what a node surely has.
    pub fn units_floor(self) -> i64 {
        saturate(self.nanos.div_euclid(NANOS))
    }

    /// The value in thousandths, rounded down.
    pub fn milli_floor(self) -> i64 {
        saturate(self.nanos.div_euclid(NANOS / 1000))
    }

    /// The value as a float, for reports only.
    pub fn as_f64(self) -> f64 {
        self.nanos as f64 / NANOS as f64
    }

    /// Whether the value is zero.
    pub const fn is_zero(self) -> bool {
        self.nanos == 0
    }

    /// Whether the value is below zero.
    pub const fn is_negative(self) -> bool {
        self.nanos < 0
    }

    /// The sum, at most the cap of Kubernetes.
    pub fn saturating_add(self, other: Self) -> Self {
        let family = if self.is_zero() { other.family } else { self.family };
        Self { nanos: (self.nanos + other.nanos).clamp(-CAP, CAP), family }
    }

    /// The product, at most the cap of Kubernetes.
    pub fn saturating_mul(self, factor: i64) -> Self {
        Self { nanos: self.nanos.saturating_mul(i128::from(factor)).clamp(-CAP, CAP), ..self }
    }

    /// The difference, which may be negative.
    pub fn saturating_sub(self, other: Self) -> Self {
        Self { nanos: (self.nanos - other.nanos).clamp(-CAP, CAP), ..self }
    }
}

fn ceil_div(a: i128, b: i128) -> i128 {
    -((-a).div_euclid(b))
}

fn saturate(value: i128) -> i64 {
    i64::try_from(value).unwrap_or(if value < 0 { i64::MIN } else { i64::MAX })
}

impl FromStr for Quantity {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse(text).ok_or_else(|| QuantityError { text: text.to_owned() })
    }
}

fn parse(text: &str) -> Option<Quantity> {
    let (negative, unsigned) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let end = unsigned.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(unsigned.len());
    let (number, suffix) = unsigned.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() || fraction.contains('.') {
        return None;
    }
    let (scale, family) = scale_of(suffix)?;
    let nanos = scaled(whole, fraction, &scale);
    Some(Quantity { nanos: if negative { -nanos } else { nanos }, family })
}

/// What one unit of the written number is worth.
enum Scale {
    Binary(u32),
    Decimal(i32),
}

fn scale_of(suffix: &str) -> Option<(Scale, Family)> {
    const DECIMAL: [(&str, i32); 10] =
        [("n", -9), ("u", -6), ("m", -3), ("", 0), ("k", 3), ("M", 6), ("G", 9), ("T", 12), ("P", 15), ("E", 18)];
    const BINARY: [(&str, u32); 6] = [("Ki", 10), ("Mi", 20), ("Gi", 30), ("Ti", 40), ("Pi", 50), ("Ei", 60)];
    if let Some((_, power)) = DECIMAL.iter().find(|(s, _)| *s == suffix) {
        return Some((Scale::Decimal(*power), Family::Decimal));
    }
    if let Some((_, shift)) = BINARY.iter().find(|(s, _)| *s == suffix) {
        return Some((Scale::Binary(*shift), Family::Binary));
    }
    let exponent = suffix.strip_prefix(['e', 'E'])?;
    Some((Scale::Decimal(exponent.parse().ok()?), Family::Exponent))
}

/// `whole.fraction` times the scale, in billionths: rounded away from zero, at most the cap.
fn scaled(whole: &str, fraction: &str, scale: &Scale) -> i128 {
    // The number is `digits` times ten to the `power`; trailing zeros are dropped so that it stays small.
    let digits: String = [whole, fraction].concat();
    let trimmed = digits.trim_end_matches('0');
    let mut power = int(digits.len() - trimmed.len()) - int(fraction.len()) + 9;
    let significant = trimmed.trim_start_matches('0');
    if significant.is_empty() {
        return 0;
    }
    let shift = match scale {
        Scale::Decimal(exponent) => {
            power += i64::from(*exponent);
            0
        }
        Scale::Binary(shift) => *shift,
    };
    // 10^30 is above the cap, and what is below a billionth even after the largest shift, 2^60, rounds up to one.
    let length = int(significant.len());
    if length + power > 30 {
        return CAP;
    }
    if length + power < -19 {
        return 1;
    }
    // An i128 holds 38 digits, of which the binary shift takes a third of its bits; what is beyond only says whether to
    // round up.
    let kept = significant.len().min(37 - shift as usize / 3);
    let rest = significant.len() - kept;
    let mantissa: i128 = significant[..kept].parse().unwrap_or(i128::MAX);
    round_up(mantissa + i128::from(rest > 0), power + int(rest), shift)
}

/// A length as a signed number; no text is longer than an `i64` can say.
fn int(length: usize) -> i64 {
    i64::try_from(length).unwrap_or(i64::MAX)
}

/// `mantissa * 2^shift * 10^power`, rounded up, at most the cap.
fn round_up(mantissa: i128, power: i64, shift: u32) -> i128 {
    let Some(shifted) = mantissa.checked_mul(1 << shift) else { return CAP };
    let Some(factor) = u32::try_from(power.unsigned_abs()).ok().and_then(|p| 10_i128.checked_pow(p)) else {
        return if power < 0 { 1 } else { CAP };
    };
    let value = if power < 0 { ceil_div(shifted, factor) } else { shifted.saturating_mul(factor) };
    value.min(CAP)
}

impl fmt::Display for Quantity {
    /// The canonical form: no fraction, the largest suffix of the family that keeps it whole.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.family == Family::Binary && self.nanos % NANOS == 0 && self.nanos.abs() >= 1024 * NANOS {
            let mut value = self.nanos / NANOS;
            let mut suffix = "";
            for next in ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"] {
                if value % 1024 != 0 {
                    break;
                }
                value /= 1024;
                suffix = next;
            }
            return write!(f, "{value}{suffix}");
        }
        let (mut value, mut power) = (self.nanos, -9_i32);
        while value != 0 && value % 1000 == 0 && power < 18 {
            value /= 1000;
            power += 3;
        }
        if value == 0 {
            return f.write_str("0");
        }
        if self.family == Family::Exponent && power != 0 {
            return write!(f, "{value}e{power}");
        }
        let suffix = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"][usize::try_from(power / 3 + 3).unwrap_or(3)];
        write!(f, "{value}{suffix}")
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nanos == other.nanos
    }
}

impl Eq for Quantity {}

impl hash::Hash for Quantity {
    fn hash<H: hash::Hasher>(&self, state: &mut H) {
        self.nanos.hash(state);
    }
}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nanos.cmp(&other.nanos)
    }
}

impl Serialize for Quantity {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Quantity {
    /// Kubernetes accepts quantities as strings and as bare numbers.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = Quantity;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a quantity such as 250m, 1.5 or 2Gi")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Quantity, E> {
                text.parse().map_err(E::custom)
            }
            fn visit_i64<E: de::Error>(self, value: i64) -> Result<Quantity, E> {
                Ok(Quantity::from_units(value))
            }
            fn visit_u64<E: de::Error>(self, value: u64) -> Result<Quantity, E> {
                Ok(Quantity::from_units(i64::try_from(value).unwrap_or(i64::MAX)))
            }
            fn visit_f64<E: de::Error>(self, value: f64) -> Result<Quantity, E> {
                value.to_string().parse().map_err(E::custom)
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn q(text: &str) -> Quantity {
        text.parse().expect(text)
    }

    #[test]
    fn reads_what_kubernetes_reads() {
        for (text, nanos) in [
            ("0", 0),
            ("1", NANOS),
            ("+1", NANOS),
            ("-1", -NANOS),
            ("250m", NANOS / 4),
            (".5", NANOS / 2),
            ("5.", 5 * NANOS),
            ("0.5Gi", 536_870_912 * NANOS),
            ("1Ki", 1024 * NANOS),
            ("1k", 1000 * NANOS),
            ("1e3", 1000 * NANOS),
            ("1E3", 1000 * NANOS),
            ("1E", 1_000_000_000_000_000_000 * NANOS),
            ("12e-3", NANOS / 1000 * 12),
            ("1n", 1),
            ("0.1n", 1),
            ("-0.1n", -1),
            ("1.0000000001", NANOS + 1),
            ("9Ei", CAP),
            ("99999999999999999999999999999999999999999999", CAP),
            ("1e-99", 1),
            ("1e9999", CAP),
            ("0e9999", 0),
            ("1000000000000000000000000000000000000000e-39", NANOS),
        ] {
            assert_eq!(q(text).nanos, nanos, "{text}");
        }
    }

    #[test]
    fn refuses_the_rest() {
        for text in
            ["", "-", ".", "m", "1.2.3", "1ki", "1KI", "1 ", " 1", "1Gib", "1e", "1e1.5", "abc", "1mm", "0x1", "١"]
        {
            assert!(text.parse::<Quantity>().is_err(), "{text}");
        }
    }

    #[test]
    fn prints_the_canonical_form() {
        for (text, canonical) in [
            ("1024Mi", "1Gi"),
            ("1.5Gi", "1536Mi"),
            ("1000m", "1"),
            ("1500m", "1500m"),
            ("0.5", "500m"),
            ("100Ki", "100Ki"),
            ("1023Ki", "1023Ki"),
            ("1000000", "1M"),
            ("1e3", "1e3"),
            ("5e6", "5e6"),
            ("0Gi", "0"),
            ("100", "100"),
            ("1000", "1k"),
        ] {
            assert_eq!(q(text).to_string(), canonical, "{text}");
        }
    }

    #[test]
    fn rounds_requests_up_and_room_down() {
        assert_eq!(q("100u").milli_ceil(), 1);
        assert_eq!(q("100u").milli_floor(), 0);
        assert_eq!(q("1500m").units_ceil(), 2);
        assert_eq!(q("1500m").units_floor(), 1);
        assert_eq!(q("-1500m").units_floor(), -2);
    }

    #[test]
    fn reads_bare_numbers() {
        let read = |json: &str| serde_json::from_str::<Quantity>(json).map_err(|e| e.to_string());
        assert_eq!(read("2"), Ok(q("2")));
        assert_eq!(read("0.5"), Ok(q("500m")));
        assert_eq!(read("-1"), Ok(q("-1")));
        assert!(read("true").is_err());
        assert!(read("\"1x\"").is_err());
    }
}
