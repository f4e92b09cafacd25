use std::{fmt, time::Duration};

use serde::{Deserialize, Deserializer, Serialize, de};

use super::{IntOrPercent, is_default};

/// How many nodes of a pool may be disturbed at once.
///
/// The texts are kept as they were written and are read when they are used, so that a budget which cannot be read keeps
/// the nodes of its pool from being disturbed, and the pool can still be read and nodes be made of it.
///
/// ```
/// use karpenter_core::api::{Budget, IntOrPercent};
///
/// let mut budget = Budget::default();
/// assert_eq!(budget.node_limit(), Ok(IntOrPercent::Percent(10)));
/// budget.nodes = "few".to_owned();
/// assert!(budget.node_limit().is_err());
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct Budget {
    /// So many, or so many of a hundred, rounded up; see [`Budget::node_limit`].
    #[serde(deserialize_with = "text_or_number")]
    pub nodes: String,
    /// The reasons that this budget is for; none written means every reason, an empty list means none.
    #[serde(skip_serializing_if = "is_default")]
    pub reasons: Option<Vec<DisruptionReason>>,
    /// When the budget begins to count: five cron fields, in UTC.
    #[serde(skip_serializing_if = "is_default")]
    pub schedule: Option<String>,
    /// For how long it then counts, in hours and minutes; see [`Budget::window`].
    #[serde(skip_serializing_if = "is_default")]
    pub duration: Option<String>,
}

impl Default for Budget {
    /// A tenth of the nodes, for every reason, always.
    fn default() -> Self {
        Self { nodes: "10%".to_owned(), reasons: None, schedule: None, duration: None }
    }
}

/// Why a node is disturbed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum DisruptionReason {
    /// Its pods have a cheaper place.
    Underutilized,
    /// It has no pods.
    Empty,
    /// It is not what its pool asks for any more.
    Drifted,
}

impl DisruptionReason {
    /// The word that budgets, conditions and metrics have for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Underutilized => "Underutilized",
            Self::Empty => "Empty",
            Self::Drifted => "Drifted",
        }
    }
}

/// Why a field of a [`Budget`] cannot be honoured.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BudgetError {
    /// `nodes` is no number of nodes.
    #[error("expected a whole number or a percentage up to 100%, not {text:?}")]
    Nodes {
        /// The text as it was given.
        text: String,
    },
    /// `duration` is no duration.
    #[error("expected hours and minutes such as 1h30m, not {text:?}")]
    Duration {
        /// The text as it was given.
        text: String,
    },
    /// There is a `schedule` without a `duration`.
    #[error("missing beside the schedule {schedule:?}")]
    NoDuration {
        /// The schedule as it was given.
        schedule: String,
    },
    /// There is a `duration` without a `schedule`.
    #[error("missing beside the duration {duration:?}")]
    NoSchedule {
        /// The duration as it was given.
        duration: String,
    },
}

impl BudgetError {
    /// The name of the field on the wire.
    pub const fn field(&self) -> &'static str {
        match self {
            Self::Nodes { .. } => "nodes",
            Self::Duration { .. } | Self::NoDuration { .. } => "duration",
            Self::NoSchedule { .. } => "schedule",
        }
    }
}

impl Budget {
    /// How many nodes [`nodes`](Self::nodes) says.
    ///
    /// # Errors
    /// [`BudgetError::Nodes`] if it is neither a whole number nor a percentage from `0%` to `100%`.
    pub fn node_limit(&self) -> Result<IntOrPercent, BudgetError> {
        let is_sane = |limit: &IntOrPercent| !matches!(limit, IntOrPercent::Percent(percent) if *percent > 100);
        let limit = self.nodes.parse().ok().filter(is_sane);
        limit.ok_or_else(|| BudgetError::Nodes { text: self.nodes.clone() })
    }

    /// The schedule as it is written, and for how long the budget counts each time; none if it always counts.
    ///
    /// Durations are those of Karpenter's API: hours, minutes or both, and `0s` may follow.
    ///
    /// # Errors
    /// [`BudgetError`] if there is one without the other, or the duration is none. The schedule is not read here.
    pub fn window(&self) -> Result<Option<(&str, Duration)>, BudgetError> {
        match (&self.schedule, &self.duration) {
            (None, None) => Ok(None),
            (Some(schedule), None) => Err(BudgetError::NoDuration { schedule: schedule.clone() }),
            (None, Some(duration)) => Err(BudgetError::NoSchedule { duration: duration.clone() }),
            (Some(schedule), Some(text)) => {
                let duration = hours_and_minutes(text).ok_or_else(|| BudgetError::Duration { text: text.clone() })?;
                Ok(Some((schedule, duration)))
            }
        }
    }
}

fn hours_and_minutes(text: &str) -> Option<Duration> {
    let text = text.strip_suffix("0s").unwrap_or(text);
    let (hours, minutes) = match text.split_once('h') {
        Some((hours, "")) => (hours, "0"),
        Some((hours, minutes)) => (hours, minutes.strip_suffix('m')?),
        None => ("0", text.strip_suffix('m')?),
    };
    let seconds = whole(hours)?.checked_mul(60)?.checked_add(whole(minutes)?)?.checked_mul(60)?;
    Some(Duration::from_secs(seconds))
}

fn whole(digits: &str) -> Option<u64> {
    if digits.bytes().all(|b| b.is_ascii_digit()) { digits.parse().ok() } else { None }
}

/// The API has a text here; people write numbers too.
fn text_or_number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    struct Visitor;
    impl de::Visitor<'_> for Visitor {
        type Value = String;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a whole number or a percentage such as 10%")
        }
        fn visit_u64<E: de::Error>(self, value: u64) -> Result<String, E> {
            Ok(value.to_string())
        }
        fn visit_i64<E: de::Error>(self, value: i64) -> Result<String, E> {
            Ok(value.to_string())
        }
        fn visit_str<E: de::Error>(self, text: &str) -> Result<String, E> {
            Ok(text.to_owned())
        }
        fn visit_unit<E: de::Error>(self) -> Result<String, E> {
            Ok(Budget::default().nodes)
        }
    }
    deserializer.deserialize_any(Visitor)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scheduled(duration: &str) -> Budget {
        let schedule = Some("@daily".to_owned());
        Budget { schedule, duration: Some(duration.to_owned()), ..Budget::default() }
    }

    #[test]
    fn durations_are_hours_and_minutes() {
        for (text, minutes) in [
            ("1h", 60),
            ("90m", 90),
            ("1h30m", 90),
            ("1h0m0s", 60),
            ("10m0s", 10),
            ("2h0s", 120),
            ("0m", 0),
            ("0h100m", 100),
            ("720h", 43_200),
        ] {
            let window = Some(("@daily", Duration::from_secs(minutes * 60)));
            assert_eq!(scheduled(text).window(), Ok(window), "{text}");
        }
        for text in [
            "",
            "0s",
            "10s",
            "90m1s",
            "1h30m10s",
            "1m1h",
            "1h1h",
            "h",
            "m",
            "1",
            "1d",
            "1.5h",
            "-1h",
            "+1h",
            "1h m",
            " 1h",
            "1H",
            "Never",
            "1h5",
            "1é",
            "99999999999999999999h",
            "999999999999999999h",
        ] {
            assert_eq!(scheduled(text).window(), Err(BudgetError::Duration { text: text.to_owned() }), "{text}");
        }
    }

    #[test]
    fn numbers_and_percentages_are_read_as_they_are_written() {
        for (json, text, limit) in [
            (r#"{"nodes":"7"}"#, "7", Some(IntOrPercent::Int(7))),
            (r#"{"nodes":7}"#, "7", Some(IntOrPercent::Int(7))),
            (r#"{"nodes":"100%"}"#, "100%", Some(IntOrPercent::Percent(100))),
            (r#"{"nodes":"0%"}"#, "0%", Some(IntOrPercent::Percent(0))),
            (r#"{"nodes":null}"#, "10%", Some(IntOrPercent::Percent(10))),
            ("{}", "10%", Some(IntOrPercent::Percent(10))),
            (r#"{"nodes":"101%"}"#, "101%", None),
            (r#"{"nodes":-1}"#, "-1", None),
            (r#"{"nodes":""}"#, "", None),
            (r#"{"nodes":"1.5"}"#, "1.5", None),
            (r#"{"nodes":"%"}"#, "%", None),
        ] {
            let budget: Budget = serde_json::from_str(json).expect(json);
            let expected = limit.ok_or_else(|| BudgetError::Nodes { text: text.to_owned() });
            assert_eq!((budget.nodes.as_str(), budget.node_limit()), (text, expected), "{json}");
            let written = serde_json::to_string(&budget).expect(json);
            assert_eq!(written, format!(r#"{{"nodes":"{text}"}}"#));
        }
    }
}
