//! Texts of YAML that look like numbers that are too large.

use std::borrow::Cow;

use granit_parser::{Event, Parser, ScalarStyle};

/// The text of YAML with quotes around all that looks like a number too large for a double, such as the abbreviated hash of a
/// commit `12e4567`. The library of `kubectl` takes that for a text, and so writes it without quotes.
pub(super) fn quoted(text: &str) -> Cow<'_, str> {
    let ends = |c: char| c.is_whitespace() || "[]{},\"'".contains(c);
    if !text.split(ends).any(is_too_large) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut done = 0;
    // What is no YAML is told of by who reads it.
    for (event, span) in Parser::new_from_str(text).map_while(Result::ok) {
        let Event::Scalar(value, ScalarStyle::Plain, _, None) = event else { continue };
        if let Some(range) = span.byte_range().filter(|range| done <= range.start && is_too_large(&value)) {
            out.push_str(&text[done..range.start]);
            out.extend(["'", &value, "'"]);
            done = range.end;
        }
    }
    out.push_str(&text[done..]);
    Cow::Owned(out)
}

/// Whether a text is a number, but one that no double can be.
fn is_too_large(text: &str) -> bool {
    let is_of_number = |c: char| c.is_ascii_digit() || "+-.eE".contains(c);
    text.chars().all(is_of_number) && text.parse().is_ok_and(f64::is_infinite)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_are_too_large_are_texts() {
        let text =
            "a: 12e4567 # 1e999\nb: [+1E999, -1e400, 1e5]\nc: |\n  1e999\nd: '1e999'\n1e999: !!float 1e999\ne: .inf\n";
        let expected = "a: '12e4567' # 1e999\nb: ['+1E999', '-1e400', 1e5]\nc: |\n  1e999\nd: '1e999'\n'1e999': !!float 1e999\ne: .inf\n";
        assert_eq!(quoted(text), expected);
        let many = format!("{}: {}", "ü", "9".repeat(400));
        assert_eq!(quoted(&many), format!("ü: '{}'", "9".repeat(400)));
    }

    #[test]
    fn other_texts_stay_as_they_are() {
        for text in ["a: 1e5", "a: 12e45x7", "a: inf", "a: \"1e999\""] {
            assert_eq!(quoted(text), text);
        }
    }
}
