use std::{fmt, str::FromStr, time::Duration};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A duration in hours, minutes and seconds, or `Never`.
///
/// The text is kept as the user wrote it, so that an object is written back as it was read. Its spelling has no bearing on
/// the static hash of a pool.
///
/// ```
/// use karpenter_core::api::NillableDuration;
/// use std::time::Duration;
///
/// let expire_after: NillableDuration = "1h30m".parse()?;
/// assert_eq!(expire_after.duration(), Some(Duration::from_secs(5400)));
/// assert_eq!("Never".parse::<NillableDuration>()?.duration(), None);
/// # Ok::<(), karpenter_core::api::DurationError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NillableDuration {
    text: String,
    duration: Option<Duration>,
}

/// Why a text is not a [`NillableDuration`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid duration {text:?}: expected hours, minutes and seconds such as 1h30m, or Never")]
pub struct DurationError {
    /// The text as it was given.
    pub text: String,
}

impl NillableDuration {
    /// The duration that never ends.
    pub fn never() -> Self {
        Self { text: "Never".to_owned(), duration: None }
    }

    /// A duration of whole seconds.
    pub fn from_secs(seconds: u64) -> Self {
        Self { text: format!("{seconds}s"), duration: Some(Duration::from_secs(seconds)) }
    }

    /// The duration, or `None` for `Never`.
    pub const fn duration(&self) -> Option<Duration> {
        self.duration
    }
}

impl FromStr for NillableDuration {
    type Err = DurationError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let duration = if text == "Never" {
            None
        } else {
            Some(parse(text).ok_or_else(|| DurationError { text: text.to_owned() })?)
        };
        Ok(Self { text: text.to_owned(), duration })
    }
}

fn parse(text: &str) -> Option<Duration> {
    /// Karpenter counts nanoseconds in 64 bits.
    const MAX_SECONDS: u64 = i64::MAX as u64 / 1_000_000_000;
    let mut seconds = 0_u64;
    let mut rest = text;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit())?;
        let number: u64 = rest[..end].parse().ok()?;
        let unit = match rest.as_bytes()[end] {
            b'h' => 3600,
            b'm' => 60,
            b's' => 1,
            _ => return None,
        };
        seconds = seconds.checked_add(number.checked_mul(unit)?)?;
        rest = &rest[end + 1..];
    }
    (!text.is_empty() && seconds <= MAX_SECONDS).then(|| Duration::from_secs(seconds))
}

impl fmt::Display for NillableDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Serialize for NillableDuration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

impl<'de> Deserialize<'de> for NillableDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

/// A duration in the notation of Go's `time.ParseDuration`, which has fractions and units down to nanoseconds; `None`
/// if it is not one, or below zero. Annotations and options are written so; fields of objects are [`NillableDuration`]s.
///
/// ```
/// use karpenter_core::api::go_duration;
/// use std::time::Duration;
///
/// assert_eq!(go_duration("1m1.5s"), Some(Duration::from_millis(61_500)));
/// assert_eq!(go_duration("10"), None);
/// ```
pub fn go_duration(text: &str) -> Option<Duration> {
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    if rest == "0" {
        return Some(Duration::ZERO);
    }
    let mut nanos = 0_u128;
    loop {
        let number = &rest[..rest.find(|c: char| !c.is_ascii_digit() && c != '.')?];
        rest = &rest[number.len()..];
        let unit = &rest[..rest.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(rest.len())];
        rest = &rest[unit.len()..];
        nanos = nanos.checked_add(scaled(number, unit_nanos(unit)?)?)?;
        if rest.is_empty() {
            // Go counts nanoseconds in 63 bits.
            return i64::try_from(nanos).ok().map(|n| Duration::from_nanos(n.unsigned_abs()));
        }
    }
}

fn unit_nanos(unit: &str) -> Option<u128> {
    Some(match unit {
        "ns" => 1,
        "us" | "\u{b5}s" | "\u{3bc}s" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        _ => return None,
    })
}

/// A decimal number times `scale`, rounded down.
fn scaled(number: &str, scale: u128) -> Option<u128> {
    /// What comes after so many digits is less than a nanosecond, whatever the unit.
    const DIGITS: usize = 18;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let is_number = |part: &str| part.bytes().all(|b| b.is_ascii_digit());
    if whole.len() + fraction.len() == 0 || !is_number(fraction) {
        return None;
    }
    let read = |digits: &str| if digits.is_empty() { Some(0) } else { digits.parse::<u128>().ok() };
    let fraction = &fraction[..fraction.len().min(DIGITS)];
    let part = read(fraction)? * scale / 10_u128.pow(u32::try_from(fraction.len()).ok()?);
    read(whole)?.checked_mul(scale)?.checked_add(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_hours_minutes_and_seconds() {
        for (text, seconds) in [("720h", 2_592_000), ("0s", 0), ("1h0m", 3600), ("90m1s", 5401)] {
            let duration: NillableDuration = text.parse().expect(text);
            assert_eq!(duration.duration(), Some(Duration::from_secs(seconds)), "{text}");
            assert_eq!(duration.to_string(), text);
        }
        for text in
            ["", "1", "h", "1d", "1.5h", "-1h", "never", "1h 2m", "1é", "99999999999999999999h", "9999999999999999h"]
        {
            assert!(text.parse::<NillableDuration>().is_err(), "{text}");
        }
    }

    #[test]
    fn durations_are_read_as_go_reads_them() {
        for (text, nanos) in [
            ("5m", 300_000_000_000),
            ("1h30m", 5_400_000_000_000),
            ("1.5h", 5_400_000_000_000),
            ("+.5s", 500_000_000),
            ("1.s", 1_000_000_000),
            ("100ms", 100_000_000),
            ("3us2ns", 3_002),
            ("1\u{b5}s", 1_000),
            ("0.1234567890123456789s", 123_456_789),
            ("0", 0),
            ("0s", 0),
        ] {
            assert_eq!(go_duration(text), Some(Duration::from_nanos(nanos)), "{text}");
        }
        for text in ["", "true", "5", "-5m", ".s", "1..5s", "1.5.s", "m", "1d", "1 h", "h1", "9999999h", "5m1", "é"] {
            assert_eq!(go_duration(text), None, "{text}");
        }
    }
}
