//! Schedules of disruption budgets: what is accepted, and when it is.

use std::collections::BTreeSet;

use karpenter_core::{
    Timestamp,
    disrupt::{Schedule, ScheduleError, ScheduleFault, ScheduleField},
};
use proptest::{collection::vec, prelude::*};

const MINUTE_MILLIS: i64 = 60_000;
/// How many minutes the oracle looks ahead: two days.
const HORIZON_MINUTES: i64 = 2 * 24 * 60;

#[test]
fn schedules_mean_what_robfig_makes_of_them() {
    let lines = include_str!("data/cron.txt").lines().filter(|line| !line.starts_with("# "));
    let mut count = 0;
    for line in lines {
        let [text, time, expected] = line.split('\t').collect::<Vec<_>>()[..] else { panic!("{line:?}") };
        let next = match text.parse::<Schedule>() {
            Ok(schedule) => schedule
                .next_after(time.parse().expect(line))
                .map_or_else(|| "never".to_owned(), |next| next.to_string()),
            Err(_) => "error".to_owned(),
        };
        assert_eq!(next, expected, "{line:?}");
        count += 1;
    }
    assert!(count >= 500, "only {count} lines were read");
}

#[test]
fn errors_name_the_field_and_the_text() {
    let at = |field, text: &str, fault| ScheduleError::Field { field, text: text.to_owned(), fault };
    let not_a_number = |text: &str| ScheduleFault::NotANumber { text: text.to_owned() };
    for (text, error, message) in [
        (
            "0 0 * * 1,7",
            at(ScheduleField::DayOfWeek, "7", ScheduleFault::OutOfBounds { value: 7, min: 0, max: 6 }),
            r#"day of week "7": 7 is not from 0 to 6"#,
        ),
        (
            "0 0 * * tue-mon",
            at(ScheduleField::DayOfWeek, "tue-mon", ScheduleFault::Backwards { first: 2, last: 1 }),
            r#"day of week "tue-mon": 2 comes after 1"#,
        ),
        (
            "0 0 * mon *",
            at(ScheduleField::Month, "mon", not_a_number("mon")),
            r#"month "mon": "mon" is not a whole number or a name of this field"#,
        ),
        (
            "0 1-2-3 * * *",
            at(ScheduleField::Hour, "1-2-3", ScheduleFault::Hyphens),
            r#"hour "1-2-3": more than one hyphen"#,
        ),
        (
            "*/5/2 0 * * *",
            at(ScheduleField::Minute, "*/5/2", ScheduleFault::Slashes),
            r#"minute "*/5/2": more than one slash"#,
        ),
        (
            "0 0 */0 * *",
            at(ScheduleField::DayOfMonth, "*/0", ScheduleFault::ZeroStep),
            r#"day of month "*/0": the step is zero"#,
        ),
    ] {
        let found = text.parse::<Schedule>().expect_err(text);
        assert_eq!(found.to_string(), message);
        assert_eq!(found, error, "{text}");
    }
}

#[test]
fn what_budgets_have_not_is_refused_by_name() {
    for text in ["@every 1h", "@reboot", "@Daily", "@"] {
        assert_eq!(text.parse::<Schedule>(), Err(ScheduleError::Descriptor { text: text.to_owned() }), "{text}");
    }
    for text in ["TZ=UTC 0 0 * * *", " CRON_TZ=Asia/Tokyo @daily", "TZ="] {
        assert_eq!(text.parse::<Schedule>(), Err(ScheduleError::TimeZone { text: text.to_owned() }), "{text}");
    }
    for (text, found) in [("", 0), ("* * * *", 4), ("0 * * * * *", 6)] {
        assert_eq!(text.parse::<Schedule>(), Err(ScheduleError::FieldCount { text: text.to_owned(), found }), "{text}");
    }
}

#[test]
fn times_that_cannot_be_written_have_no_next() {
    let schedule: Schedule = "* * * * *".parse().expect("valid");
    for millis in [i64::MIN, i64::MIN + MINUTE_MILLIS, -400_000_000_000_000, 400_000_000_000_000, i64::MAX] {
        assert_eq!(schedule.next_after(Timestamp::from_millis(millis)), None, "{millis}");
    }
    let last: Timestamp = "9999-12-30T21:59:00Z".parse().expect("valid");
    assert_eq!(schedule.next_after(last), Some("9999-12-30T22:00:00Z".parse().expect("valid")));
}

/// The text of a field, the values that it means, and whether it restricts nothing.
#[derive(Clone, Debug)]
struct Field {
    text: String,
    values: BTreeSet<u32>,
    has_star: bool,
}

/// One part of the list of a field with values from `min` to `max`.
fn part(min: u32, max: u32) -> impl Strategy<Value = Field> {
    let steps = (0..=9_u32, min..=max, min..=max, 1..=20_u32);
    steps.prop_map(move |(kind, a, b, step)| {
        let (low, high) = (a.min(b), a.max(b));
        let (text, values): (_, Vec<u32>) = match kind {
            0..=2 => ("*".to_owned(), (min..=max).collect()),
            3 => (format!("*/{step}"), (min..=max).step_by(step as usize).collect()),
            4 => (format!("{low}/{step}"), (low..=max).step_by(step as usize).collect()),
            5 | 6 => (format!("{low}-{high}"), (low..=high).collect()),
            7 => (format!("{low}-{high}/{step}"), (low..=high).step_by(step as usize).collect()),
            _ => (a.to_string(), vec![a]),
        };
        let has_star = kind <= 2 || kind == 3 && step == 1;
        Field { text, values: values.into_iter().collect(), has_star }
    })
}

fn field(min: u32, max: u32) -> impl Strategy<Value = Field> {
    vec(part(min, max), 1..=3).prop_map(|parts| Field {
        text: parts.iter().map(|part| part.text.as_str()).collect::<Vec<_>>().join(","),
        values: parts.iter().flat_map(|part| &part.values).copied().collect(),
        has_star: parts.iter().any(|part| part.has_star),
    })
}

#[derive(Clone, Debug)]
struct Fields {
    minute: Field,
    hour: Field,
    day_of_month: Field,
    month: Field,
    day_of_week: Field,
}

impl Fields {
    fn schedule(&self) -> Schedule {
        let fields = [&self.minute, &self.hour, &self.day_of_month, &self.month, &self.day_of_week];
        let text = fields.map(|field| field.text.as_str()).join(" ");
        text.parse().unwrap_or_else(|error| panic!("{text:?}: {error}"))
    }

    /// Whether a whole minute since 1970 is one of the schedule.
    fn have(&self, minute: i64) -> bool {
        let days = minute.div_euclid(24 * 60);
        let of_day = u32::try_from(minute.rem_euclid(24 * 60)).expect("below 1440");
        let (month, day) = month_and_day(days);
        // 1970 began with a Thursday.
        let weekday = u32::try_from((days + 4).rem_euclid(7)).expect("below 7");
        let of_month = self.day_of_month.values.contains(&day);
        let of_week = self.day_of_week.values.contains(&weekday);
        let restricts_both = !self.day_of_month.has_star && !self.day_of_week.has_star;
        let is_day = if restricts_both { of_month || of_week } else { of_month && of_week };
        let is_time = self.hour.values.contains(&(of_day / 60)) && self.minute.values.contains(&(of_day % 60));
        is_day && is_time && self.month.values.contains(&month)
    }
}

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

/// The month and the day of month of a day since 1970, by counting.
fn month_and_day(mut days: i64) -> (u32, u32) {
    let mut year = 1970;
    while days >= 365 + i64::from(is_leap(year)) {
        days -= 365 + i64::from(is_leap(year));
        year += 1;
    }
    let lengths = [31, 28 + i64::from(is_leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    for (month, length) in (1..).zip(lengths) {
        if days < length {
            return (month, u32::try_from(days).expect("below 31") + 1);
        }
        days -= length;
    }
    unreachable!("a year has twelve months")
}

fn fields() -> impl Strategy<Value = Fields> {
    (field(0, 59), field(0, 23), field(1, 31), field(1, 12), field(0, 6)).prop_map(
        |(minute, hour, day_of_month, month, day_of_week)| Fields { minute, hour, day_of_month, month, day_of_week },
    )
}

proptest! {
    #[test]
    fn the_next_time_is_the_first_that_the_fields_have(
        fields in fields(),
        // From 1970 to 2109, not only at whole minutes.
        millis in 0..4_400_000_000_000_i64,
    ) {
        let next = fields.schedule().next_after(Timestamp::from_millis(millis));
        let start = millis / MINUTE_MILLIS + 1;
        let oracle = (start..start + HORIZON_MINUTES).find(|minute| fields.have(*minute));
        match (next, oracle) {
            (Some(next), Some(minute)) => prop_assert_eq!(next.as_millis(), minute * MINUTE_MILLIS),
            (Some(next), None) => {
                prop_assert!(next.as_millis() >= (start + HORIZON_MINUTES) * MINUTE_MILLIS);
                prop_assert_eq!(next.as_millis() % MINUTE_MILLIS, 0);
                prop_assert!(fields.have(next.as_millis() / MINUTE_MILLIS));
            }
            (None, oracle) => prop_assert_eq!(oracle, None),
        }
    }

    #[test]
    fn no_text_makes_the_parser_panic(
        text in prop_oneof!["[-0-9*/,?@# a-zA-Z=]{0,24}", "([-0-9*/,?]{1,3} ){4}[-0-9*/,?]{1,3}"],
        millis in any::<i64>(),
    ) {
        if let Ok(schedule) = text.parse::<Schedule>()
            && let Some(next) = schedule.next_after(Timestamp::from_millis(millis))
        {
            prop_assert!(next > Timestamp::from_millis(millis));
        }
    }
}
