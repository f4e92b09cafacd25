//! The words of one line, taken one after the other.

use std::{str::FromStr, time::Duration};

use karpenter_core::{Timestamp, api::ObjectKey};

use super::{Moment, ScenarioError, ScenarioErrorKind};

/// The longest time that a command may name: a year. More is a slip of the pen.
const MAX_DURATION: Duration = Duration::from_hours(24 * 366);
const MINUTES_PER_DAY: u64 = 24 * 60;

/// What was written wrong, and which word it was; empty if there was none.
#[derive(Debug)]
pub(super) struct Wrong {
    word: String,
    kind: ScenarioErrorKind,
}

impl Wrong {
    pub(super) fn new(word: impl Into<String>, kind: ScenarioErrorKind) -> Self {
        Self { word: word.into(), kind }
    }

    pub(super) fn expected(word: impl Into<String>, expected: &'static str) -> Self {
        Self::new(word, ScenarioErrorKind::Expected(expected))
    }

    pub(super) fn at(self, file: &str, line: usize) -> ScenarioError {
        ScenarioError { file: file.to_owned(), line, word: self.word, kind: self.kind }
    }
}

/// The words of a line that were not taken yet.
#[derive(Clone, Debug)]
pub(super) struct Words<'t> {
    rest: std::iter::Peekable<std::str::SplitWhitespace<'t>>,
}

impl<'t> Words<'t> {
    /// The words up to a comment: a word that begins with `#`.
    pub(super) fn of(line: &'t str) -> Self {
        let end = line
            .char_indices()
            .find(|&(at, c)| c == '#' && line[..at].chars().next_back().is_none_or(char::is_whitespace));
        let text = end.map_or(line, |(at, _)| &line[..at]);
        Self { rest: text.split_whitespace().peekable() }
    }

    pub(super) fn next(&mut self) -> Option<&'t str> {
        self.rest.next()
    }

    pub(super) fn peek(&mut self) -> Option<&'t str> {
        self.rest.peek().copied()
    }

    /// Takes the next word if it is this one.
    pub(super) fn skip(&mut self, word: &str) -> bool {
        self.rest.next_if(|next| *next == word).is_some()
    }

    /// The next word, which must be there.
    pub(super) fn word(&mut self, expected: &'static str) -> Result<&'t str, Wrong> {
        self.next().ok_or_else(|| Wrong::expected("", expected))
    }

    /// The next word must be this one.
    pub(super) fn keyword(&mut self, word: &'static str) -> Result<(), Wrong> {
        match self.next() {
            Some(next) if next == word => Ok(()),
            other => Err(Wrong::new(other.unwrap_or(""), ScenarioErrorKind::ExpectedWord(word))),
        }
    }

    /// The next word as a value.
    pub(super) fn parse<T: FromStr>(&mut self, expected: &'static str) -> Result<T, Wrong> {
        let word = self.word(expected)?;
        word.parse().map_err(|_| Wrong::expected(word, expected))
    }

    /// A whole number of up to `max`.
    pub(super) fn count(&mut self, max: u32) -> Result<u32, Wrong> {
        let word = self.word("a number")?;
        let number: u32 = word.parse().map_err(|_| Wrong::expected(word, "a number"))?;
        if number > max {
            return Err(Wrong::new(word, ScenarioErrorKind::TooMuch { most: u64::from(max) }));
        }
        Ok(number)
    }

    pub(super) fn duration(&mut self) -> Result<Duration, Wrong> {
        duration(self.word(DURATION)?)
    }

    pub(super) fn moment(&mut self) -> Result<Moment, Wrong> {
        const EXPECTED: &str = "a time such as 22:00 or 2026-03-02T22:00:00Z";
        let word = self.word(EXPECTED)?;
        if let Some(time) = time_of_day(word) {
            return Ok(Moment::OfDay(time));
        }
        word.parse().map(Moment::At).map_err(|_| Wrong::expected(word, EXPECTED))
    }

    pub(super) fn timestamp(&mut self) -> Result<Timestamp, Wrong> {
        self.parse("a time such as 2026-03-02T06:00:00Z")
    }

    /// A name such as `web` or `shop/web`.
    pub(super) fn key(&mut self) -> Result<ObjectKey, Wrong> {
        key(self.word("a name such as web or shop/web")?)
    }

    pub(super) fn end(&mut self) -> Result<(), Wrong> {
        self.next().map_or(Ok(()), |word| Err(Wrong::new(word, ScenarioErrorKind::Superfluous)))
    }
}

const DURATION: &str = "a duration such as 90s, 10m or 1h30m";

/// Reads days, hours, minutes and seconds, each at most once and the longest first.
pub(super) fn duration(word: &str) -> Result<Duration, Wrong> {
    let wrong = || Wrong::expected(word, DURATION);
    let (mut seconds, mut rest) = (0_u64, word);
    for (unit, of_unit) in [('d', 86_400), ('h', 3600), ('m', 60), ('s', 1)] {
        let Some(end) = rest.find(|c: char| !c.is_ascii_digit()).filter(|&end| rest[end..].starts_with(unit)) else {
            continue;
        };
        let number: u64 = rest[..end].parse().map_err(|_| wrong())?;
        let part = number.checked_mul(of_unit).ok_or_else(wrong)?;
        seconds = seconds.checked_add(part).ok_or_else(wrong)?;
        rest = &rest[end + unit.len_utf8()..];
    }
    if word.is_empty() || !rest.is_empty() {
        return Err(wrong());
    }
    let duration = Duration::from_secs(seconds);
    if duration > MAX_DURATION {
        return Err(Wrong::new(word, ScenarioErrorKind::TooLong { most: MAX_DURATION }));
    }
    Ok(duration)
}

pub(super) fn key(word: &str) -> Result<ObjectKey, Wrong> {
    let Ok(key) = word.parse::<ObjectKey>();
    if key.name.is_empty() || key.namespace.is_empty() || key.name.contains('/') {
        return Err(Wrong::expected(word, "a name such as web or shop/web"));
    }
    Ok(key)
}

/// Reads hours and minutes.
fn time_of_day(word: &str) -> Option<Duration> {
    let (hours, minutes) = word.split_once(':')?;
    let number = |text: &str| text.parse::<u64>().ok().filter(|_| text.len() == 2 && !text.starts_with('+'));
    let (hours, minutes) = (number(hours)?, number(minutes)?);
    let total = hours * 60 + minutes;
    (minutes < 60 && total < MINUTES_PER_DAY).then(|| Duration::from_mins(total))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        for (text, seconds) in [("90s", 90), ("10m", 600), ("1h30m", 5400), ("1d2h3m4s", 93_784), ("0s", 0)] {
            assert_eq!(duration(text).unwrap().as_secs(), seconds, "{text}");
        }
        for text in ["", "10", "m", "1m1h", "1m1m", "-1s", "1.5h", "99999999999999999999s", "400d", "1 m"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn times_of_day() {
        assert_eq!(time_of_day("22:00"), Some(Duration::from_hours(22)));
        assert_eq!(time_of_day("00:05"), Some(Duration::from_mins(5)));
        for text in ["24:00", "12:60", "1:00", "12", "12:0", "+1:00", "aa:bb"] {
            assert_eq!(time_of_day(text), None, "{text}");
        }
    }

    #[test]
    fn words_end_at_a_comment() {
        let words = |line| {
            std::iter::from_fn({
                let mut words = Words::of(line);
                move || words.next()
            })
            .collect::<Vec<_>>()
        };
        assert_eq!(words("scale web 4 # for the night"), ["scale", "web", "4"]);
        assert_eq!(words("a#b c"), ["a#b", "c"]);
        assert_eq!(words("# all"), [""; 0]);
    }
}
