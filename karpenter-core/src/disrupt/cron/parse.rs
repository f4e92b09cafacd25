use std::{fmt, iter, str::FromStr};

use super::Schedule;

/// Why a text is not a [`Schedule`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ScheduleError {
    /// It does not have five fields.
    #[error("expected 5 fields, found {found} in {text:?}")]
    FieldCount {
        /// The text as it was given.
        text: String,
        /// How many fields it has.
        found: usize,
    },
    /// It begins with `@` and is none of the known words.
    #[error("expected @yearly, @annually, @monthly, @weekly, @daily, @midnight or @hourly, not {text:?}")]
    Descriptor {
        /// The text as it was given.
        text: String,
    },
    /// It begins with a time zone.
    #[error("schedules are in UTC and take no time zone: {text:?}")]
    TimeZone {
        /// The text as it was given.
        text: String,
    },
    /// A field cannot be read.
    #[error("{field} {text:?}: {fault}")]
    Field {
        /// Which.
        field: ScheduleField,
        /// The part of its list that is at fault, as it was given.
        text: String,
        /// What is wrong with it.
        fault: ScheduleFault,
    },
}

/// A field of a [`Schedule`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ScheduleField {
    /// 0 to 59.
    Minute,
    /// 0 to 23.
    Hour,
    /// 1 to 31.
    DayOfMonth,
    /// 1 to 12, or `jan` to `dec`.
    Month,
    /// 0 to 6, or `sun` to `sat`.
    DayOfWeek,
}

impl ScheduleField {
    /// The smallest and the largest value.
    pub const fn bounds(self) -> (u32, u32) {
        match self {
            Self::Minute => (0, 59),
            Self::Hour => (0, 23),
            Self::DayOfMonth => (1, 31),
            Self::Month => (1, 12),
            Self::DayOfWeek => (0, 6),
        }
    }

    /// The names of its values, from the smallest on.
    const fn names(self) -> &'static [&'static str] {
        match self {
            Self::Minute | Self::Hour | Self::DayOfMonth => &[],
            Self::Month => &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"],
            Self::DayOfWeek => &["sun", "mon", "tue", "wed", "thu", "fri", "sat"],
        }
    }
}

impl fmt::Display for ScheduleField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Minute => "minute",
            Self::Hour => "hour",
            Self::DayOfMonth => "day of month",
            Self::Month => "month",
            Self::DayOfWeek => "day of week",
        })
    }
}

/// What is wrong with a part of a field of a [`Schedule`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ScheduleFault {
    /// A text that is no whole number and no name of the field.
    #[error("{text:?} is not a whole number or a name of this field")]
    NotANumber {
        /// The text.
        text: String,
    },
    /// A range with more than two ends.
    #[error("more than one hyphen")]
    Hyphens,
    /// More than one step.
    #[error("more than one slash")]
    Slashes,
    /// A step of zero.
    #[error("the step is zero")]
    ZeroStep,
    /// A range that ends before it begins.
    #[error("{first} comes after {last}")]
    Backwards {
        /// Where it begins.
        first: u64,
        /// Where it ends.
        last: u64,
    },
    /// A value that the field does not have.
    #[error("{value} is not from {min} to {max}")]
    OutOfBounds {
        /// The value.
        value: u64,
        /// The smallest value of the field.
        min: u32,
        /// The largest value of the field.
        max: u32,
    },
}

impl FromStr for Schedule {
    type Err = ScheduleError;

    fn from_str(text: &str) -> Result<Self, ScheduleError> {
        let spec = text.trim();
        if spec.starts_with("TZ=") || spec.starts_with("CRON_TZ=") {
            return Err(ScheduleError::TimeZone { text: text.to_owned() });
        }
        let spec = if spec.starts_with('@') {
            described(spec).ok_or_else(|| ScheduleError::Descriptor { text: text.to_owned() })?
        } else {
            spec
        };
        let fields: Vec<&str> = spec.split_whitespace().collect();
        let &[minute, hour, day, month, weekday] = fields.as_slice() else {
            return Err(ScheduleError::FieldCount { text: text.to_owned(), found: fields.len() });
        };
        let minutes = Values::read(minute, ScheduleField::Minute)?;
        let hours = Values::read(hour, ScheduleField::Hour)?;
        let days = Values::read(day, ScheduleField::DayOfMonth)?;
        let months = Values::read(month, ScheduleField::Month)?;
        let weekdays = Values::read(weekday, ScheduleField::DayOfWeek)?;
        Ok(Self {
            minutes: minutes.bits,
            hours: hours.bits,
            days_of_month: days.bits,
            months: months.bits,
            days_of_week: weekdays.bits,
            is_either_day_enough: !days.has_star && !weekdays.has_star,
        })
    }
}

/// The five fields that a word stands for.
fn described(word: &str) -> Option<&'static str> {
    Some(match word {
        "@yearly" | "@annually" => "0 0 1 1 *",
        "@monthly" => "0 0 1 * *",
        "@weekly" => "0 0 * * 0",
        "@daily" | "@midnight" => "0 0 * * *",
        "@hourly" => "0 * * * *",
        _ => return None,
    })
}

/// What a field allows.
struct Values {
    /// One bit for each value.
    bits: u64,
    /// Whether `*` or `?` is in it without a step above 1, so that it restricts nothing.
    has_star: bool,
}

impl Values {
    /// Empty parts of the list are skipped; a list of them alone has no value.
    fn read(text: &str, field: ScheduleField) -> Result<Self, ScheduleError> {
        let mut values = Self { bits: 0, has_star: false };
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let fault = |fault| ScheduleError::Field { field, text: part.to_owned(), fault };
            let Self { bits, has_star } = Self::read_part(part, field).map_err(fault)?;
            values.bits |= bits;
            values.has_star |= has_star;
        }
        Ok(values)
    }

    fn read_part(part: &str, field: ScheduleField) -> Result<Self, ScheduleFault> {
        let (range, step) = match part.split_once('/') {
            Some((_, step)) if step.contains('/') => return Err(ScheduleFault::Slashes),
            Some((range, step)) => (range, Some(number(step)?)),
            None => (part, None),
        };
        let (min, max) = field.bounds();
        let (start, end) = range.split_once('-').map_or((range, None), |(start, end)| (start, Some(end)));
        let is_star = matches!(start, "*" | "?");
        // What a hyphen after a star leads to is not looked at.
        let (first, last) = match end {
            _ if is_star => (u64::from(min), u64::from(max)),
            Some(end) if end.contains('-') => return Err(ScheduleFault::Hyphens),
            Some(end) => (value(start, field)?, value(end, field)?),
            None if step.is_some() => (value(start, field)?, u64::from(max)),
            None => value(start, field).map(|only| (only, only))?,
        };
        let step = step.unwrap_or(1);
        if step == 0 {
            return Err(ScheduleFault::ZeroStep);
        }
        for value in [first, last] {
            if !(u64::from(min)..=u64::from(max)).contains(&value) {
                return Err(ScheduleFault::OutOfBounds { value, min, max });
            }
        }
        if first > last {
            return Err(ScheduleFault::Backwards { first, last });
        }
        let steps = iter::successors(Some(first), |value| value.checked_add(step));
        let bits = steps.take_while(|value| *value <= last).fold(0, |bits, value| bits | 1 << value);
        Ok(Self { bits, has_star: is_star && step == 1 })
    }
}

fn value(text: &str, field: ScheduleField) -> Result<u64, ScheduleFault> {
    match (0_u32..).zip(field.names()).find(|(_, name)| name.eq_ignore_ascii_case(text)) {
        Some((index, _)) => Ok(u64::from(field.bounds().0 + index)),
        None => number(text),
    }
}

fn number(text: &str) -> Result<u64, ScheduleFault> {
    // Signed, as in robfig/cron: larger numbers are errors even as steps.
    let number = text.parse::<i64>().ok().and_then(|number| u64::try_from(number).ok());
    number.ok_or_else(|| ScheduleFault::NotANumber { text: text.to_owned() })
}
