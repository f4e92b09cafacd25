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
    (!text.is_empty()).then(|| Duration::from_secs(seconds))
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
}
