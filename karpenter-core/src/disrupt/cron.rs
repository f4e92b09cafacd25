//! Schedules as crontabs write them, in UTC.
//!
//! What is accepted and what it means is as in `ParseStandard` of [robfig/cron] version 3, which Karpenter reads the
//! schedules of budgets with, but for `@every` and time zones, which budgets do not have.
//!
//! [robfig/cron]: https://pkg.go.dev/github.com/robfig/cron/v3

mod parse;

use jiff::{
    civil::{Date, DateTime},
    tz::Offset,
};

pub use self::parse::{ScheduleError, ScheduleFault, ScheduleField};
use crate::Timestamp;

/// How many years ahead a schedule is followed: to the end of the fifth year after that of the question.
const MAX_YEARS_AHEAD: i16 = 5;
const MILLIS_PER_SECOND: i64 = 1000;
const MILLIS_PER_MINUTE: i64 = 60 * MILLIS_PER_SECOND;

/// Minutes at which something begins, in UTC.
///
/// It is written as minute, hour, day of month, month and day of week, or as `@yearly`, `@annually`, `@monthly`,
/// `@weekly`, `@daily`, `@midnight` or `@hourly`. A field is a list of `*`, `5`, `1-5`, `*/10`, `1-5/2` or `5/10` (from
/// 5 on), and `?` is `*`. Months and days of the week have names; a week begins with Sunday, which is 0. If both the day
/// of month and the day of week are restricted, one of them is enough.
///
/// ```
/// use karpenter_core::disrupt::Schedule;
///
/// let schedule: Schedule = "30 8 * * mon-fri".parse()?;
/// let friday = "2026-01-02T08:30:00Z".parse()?;
/// assert_eq!(schedule.next_after(friday), Some("2026-01-05T08:30:00Z".parse()?));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    minutes: u64,
    hours: u64,
    days_of_month: u64,
    months: u64,
    days_of_week: u64,
    /// Whether both kinds of days are restricted, so that either is enough.
    is_either_day_enough: bool,
}

impl Schedule {
    /// The first time of the schedule that is later than `time`.
    ///
    /// `None` if there is none before the end of the fifth year after that of `time`, as for 30 February, or if it is
    /// outside the years -9999 to 9999.
    pub fn next_after(&self, time: Timestamp) -> Option<Timestamp> {
        // The year counts from the next whole second, as in robfig/cron.
        let last_year = next_whole(MILLIS_PER_SECOND, time)?.year().saturating_add(MAX_YEARS_AHEAD);
        let start = next_whole(MILLIS_PER_MINUTE, time)?;
        let (mut date, mut hour, mut minute) = (start.date(), bit(start.hour()), bit(start.minute()));
        while date.year() <= last_year {
            if self.has_day(date)
                && let Some((hour, minute)) = self.time_of_day(hour, minute)
            {
                let midnight = Offset::UTC.to_timestamp(date.at(0, 0, 0, 0)).ok()?.as_millisecond();
                return Some(Timestamp::from_millis(midnight + i64::from(hour * 60 + minute) * MILLIS_PER_MINUTE));
            }
            let is_in_month = has(self.months, bit(date.month()));
            date = if is_in_month { date } else { date.last_of_month() }.tomorrow().ok()?;
            (hour, minute) = (0, 0);
        }
        None
    }

    fn has_day(&self, date: Date) -> bool {
        let of_month = has(self.days_of_month, bit(date.day()));
        let of_week = has(self.days_of_week, bit(date.weekday().to_sunday_zero_offset()));
        let is_day = if self.is_either_day_enough { of_month || of_week } else { of_month && of_week };
        is_day && has(self.months, bit(date.month()))
    }

    /// The first hour and minute of a day that are not before these.
    fn time_of_day(&self, hour: u32, minute: u32) -> Option<(u32, u32)> {
        if has(self.hours, hour)
            && let Some(minute) = next_bit(self.minutes, minute)
        {
            return Some((hour, minute));
        }
        Some((next_bit(self.hours, hour + 1)?, next_bit(self.minutes, 0)?))
    }
}

/// The first whole second, minute or the like after a time.
fn next_whole(unit_millis: i64, time: Timestamp) -> Option<DateTime> {
    let millis = time.as_millis().div_euclid(unit_millis).checked_add(1)?.checked_mul(unit_millis)?;
    jiff::Timestamp::from_millisecond(millis).ok().map(|time| Offset::UTC.to_datetime(time))
}

/// The number of a bit from a part of a civil time, none of which are below zero.
fn bit(part: i8) -> u32 {
    u32::from(part.unsigned_abs())
}

const fn has(bits: u64, bit: u32) -> bool {
    bits & (1 << bit) != 0
}

/// The first bit that is set from `from` on, which is below 64.
fn next_bit(bits: u64, from: u32) -> Option<u32> {
    let rest = bits & (u64::MAX << from);
    (rest != 0).then(|| rest.trailing_zeros())
}
