//! What people are told is in the book.

use std::{fs, path::Path};

/// The reasons of events that are written where the engine tells of them, or where a claim says why it goes.
fn reasons(source: &str) -> impl Iterator<Item = &str> {
    let tells = [
        "self.note(",
        "self.delete_claim(",
        "delete: Some(",
        "overdue(",
        "const SHRUNK",
        "const SOLD_OUT",
        "const LAUNCH_TIMED_OUT",
    ];
    let lines = source.split("#[cfg(test)]").next().unwrap_or_default().lines();
    let lines = lines.filter(move |line| tells.iter().any(|tell| line.contains(tell)));
    let is_reason = |text: &&str| text.chars().all(char::is_alphabetic) && text.starts_with(char::is_uppercase);
    lines.flat_map(|line| line.split('"').skip(1).step_by(2)).filter(is_reason)
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the sources and the book are read, not the core")]
fn all_events_are_in_the_book() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    // The book is not in the package.
    let Ok(book) = fs::read_to_string(root.join("../docs/src/events.md")) else { return };
    let mut found = 0;
    for room in ["src/engine", "src/lifecycle"] {
        for entry in fs::read_dir(root.join(room)).expect("a room") {
            let source = fs::read_to_string(entry.expect("a file").path()).expect("a source");
            for reason in reasons(&source) {
                assert!(book.contains(&format!("`{reason}`")), "{reason} is not in docs/src/events.md");
                found += 1;
            }
        }
    }
    assert!(found > 20, "only {found} are found: they are written in another way");
}
