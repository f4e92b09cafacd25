//! Points in time, as values. The core never asks what time it is; whoever calls it says so.

use std::{fmt, str::FromStr, time::Duration};

use jiff::fmt::temporal::Pieces;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A point in time, in milliseconds since 1970-01-01T00:00:00Z; RFC 3339 on the wire.
///
/// ```
/// use karpenter_core::Timestamp;
/// use std::time::Duration;
///
/// let created: Timestamp = "2026-01-01T00:00:00Z".parse()?;
/// assert_eq!((created + Duration::from_secs(90)).to_string(), "2026-01-01T00:01:30Z");
/// # Ok::<(), karpenter_core::TimestampError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

/// Why a text is not a [`Timestamp`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid time {text:?}: expected RFC 3339 such as 2026-01-01T00:00:00Z")]
pub struct TimestampError {
    /// The text as it was given.
    pub text: String,
}

impl Timestamp {
    /// `millis` milliseconds after the start of 1970 in UTC.
    pub const fn from_millis(millis: i64) -> Self {
        Self(millis)
    }

    /// Milliseconds since the start of 1970 in UTC.
    pub const fn as_millis(self) -> i64 {
        self.0
    }

    /// The time from `earlier` until this, zero if this comes first.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

/// Waits that double with each failure.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Backoff {
    /// The wait after the first failure.
    pub(crate) shortest: Duration,
    pub(crate) longest: Duration,
}

impl Backoff {
    /// How long to wait after so many failures in a row.
    pub(crate) fn after(self, failures: u32) -> Duration {
        let times = 1_u32.checked_shl(failures.saturating_sub(1)).unwrap_or(u32::MAX);
        self.shortest.saturating_mul(times).min(self.longest)
    }
}

impl std::ops::Add<Duration> for Timestamp {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)))
    }
}

impl std::ops::Sub<Duration> for Timestamp {
    type Output = Self;

    fn sub(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)))
    }
}

impl FromStr for Timestamp {
    type Err = TimestampError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let time = text.parse().ok().or_else(|| last_instant(text));
        time.map(|time| Self(time.as_millisecond())).ok_or_else(|| TimestampError { text: text.to_owned() })
    }
}

/// The latest time that there is, for those of the year 9999 that are later: they stand for times without end.
fn last_instant(text: &str) -> Option<jiff::Timestamp> {
    let pieces = Pieces::parse(text).ok().filter(|pieces| pieces.time().is_some() && pieces.offset().is_some());
    pieces.filter(|pieces| pieces.date().year() == 9999).map(|_| jiff::Timestamp::MAX)
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_millisecond(self.0) {
            Ok(time) => write!(f, "{time}"),
            Err(_) => write!(f, "{} ms after 1970", self.0),
        }
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = Timestamp;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a time in RFC 3339")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Timestamp, E> {
                text.parse().map_err(E::custom)
            }
        }
        deserializer.deserialize_str(Visitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_longest() {
        let backoff = Backoff { shortest: Duration::from_secs(3), longest: Duration::from_secs(20) };
        let waits = [0, 1, 2, 3, 4, 31, 32, 33, 34, u32::MAX].map(|failures| backoff.after(failures).as_secs());
        assert_eq!(waits, [3, 3, 6, 12, 20, 20, 20, 20, 20, 20]);
        assert_eq!(
            Backoff { longest: Duration::MAX, ..backoff }.after(99),
            Duration::from_secs(3 * u64::from(u32::MAX))
        );
    }

    #[test]
    fn the_end_of_all_time_is_a_time() {
        let last = Timestamp::from_millis(jiff::Timestamp::MAX.as_millisecond());
        for text in ["9999-12-31T23:59:59Z", "9999-12-31T00:00:00Z", "9999-12-31T23:59:59.999999-08:00"] {
            assert_eq!(text.parse(), Ok(last), "{text}");
        }
        for text in ["9999-12-31", "9999-13-31T00:00:00Z", "9999-12-31T00:00:00", "2026-02-30T00:00:00Z"] {
            assert!(text.parse::<Timestamp>().is_err(), "{text}");
        }
    }
}
