//! The time of this machine.

use std::time::{Duration, SystemTime};

use karpenter_core::Timestamp;

/// Now, to the millisecond.
pub(crate) fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_millis(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

/// How long it is from now until then; nothing if it has passed.
pub(crate) fn until(then: Timestamp) -> Duration {
    then.since(now())
}
