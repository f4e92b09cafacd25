//! Whatever scenario can be read has its lines in their order, and an error names a line and a word that are there.
#![no_main]

use karpenter_fake::sim::scenario::{Command, Scenario, ScenarioError};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    match Scenario::parse(text, "fuzz") {
        Ok(scenario) => check(text, &scenario),
        Err(error) => check_error(text, &error),
    }
});

/// Each statement begins with its line, and settings come before all else.
fn check(text: &str, scenario: &Scenario) {
    let lines: Vec<&str> = text.strip_prefix('\u{feff}').unwrap_or(text).lines().collect();
    let mut last = 0;
    let mut has_begun = false;
    for statement in &scenario.statements {
        assert!(statement.line > last, "line {} comes after line {last}", statement.line);
        last = statement.line;
        assert!(statement.text.starts_with(lines[last - 1].trim_end()));
        match statement.command {
            Command::Remark => assert!(statement.text.starts_with('#')),
            Command::Setting => assert!(!has_begun),
            _ => has_begun = true,
        }
    }
    let _ = scenario.duration();
    let again = Scenario::parse(text, "fuzz").expect("it was read once");
    assert_eq!(scenario.statements, again.statements, "the same text, another scenario");
}

fn check_error(text: &str, error: &ScenarioError) {
    assert!(error.line >= 1 && error.line <= text.lines().count());
    assert!(text.contains(&error.word), "{:?} is not in the text", error.word);
    assert!(!error.to_string().contains('\n'));
}
