//! Whatever schedule can be read comes at whole minutes, after the time that it is asked for and not before the next.
#![no_main]

use karpenter_core::{
    Timestamp,
    disrupt::{Schedule, ScheduleError},
};
use libfuzzer_sys::fuzz_target;

const MINUTE_MILLIS: i64 = 60_000;
/// Long before and at the start of 1970, in 2026, before a year that is no leap year, and beyond all years.
const MILLIS: [i64; 5] = [-30_610_224_000_001, 0, 1_767_268_799_999, 4_070_908_799_000, i64::MAX];

fuzz_target!(|text: &str| {
    match text.parse::<Schedule>() {
        Ok(schedule) => MILLIS.into_iter().for_each(|millis| check_times(&schedule, millis)),
        Err(error) => check_error(text, &error),
    }
});

/// The next time is later and at a whole minute, and is still the next when asked later.
fn check_times(schedule: &Schedule, millis: i64) {
    let Some(next) = schedule.next_after(Timestamp::from_millis(millis)) else { return };
    assert!(next.as_millis() > millis && next.as_millis() % MINUTE_MILLIS == 0);
    for later in [millis + (next.as_millis() - millis) / 2, next.as_millis() - 1] {
        assert_eq!(schedule.next_after(Timestamp::from_millis(later)), Some(next));
    }
}

/// What an error quotes was in the text.
fn check_error(text: &str, error: &ScheduleError) {
    if let ScheduleError::Field { text: part, .. } = error {
        assert!(text.contains(part.as_str()), "{part:?} is not of {text:?}");
    }
    assert!(!error.to_string().is_empty());
}
