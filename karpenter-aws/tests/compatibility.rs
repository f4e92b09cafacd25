//! The tests that the book names for what Karpenter does are there.

use std::{fs, path::Path};

fn read(path: &Path) -> Option<String> {
    fs::read_to_string(path).ok()
}

/// The text of a file that a page names: of this crate, or of the repository.
fn source(file: &str) -> Option<String> {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    let places = [own.join("src"), own.to_path_buf(), own.join("..")];
    places.iter().find_map(|place| read(&place.join(file)))
}

#[test]
fn tests_that_the_book_names_are_there() {
    let mut count = 0;
    for page in ["compatibility-aws.md", "compatibility-aws-named.md"] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/src").join(page);
        let text = read(&path).unwrap_or_else(|| panic!("{}", path.display()));
        for named in text.split('`').filter(|part| part.contains("::") && !part.contains(char::is_whitespace)) {
            let Some((file, function)) = named.split_once(".rs::") else { continue };
            let file = format!("{file}.rs");
            let found = source(&file).unwrap_or_else(|| panic!("{page}: there is no {file}"));
            let is_test =
                found.split(&format!("fn {function}(")).next().is_some_and(|before| before.len() < found.len());
            assert!(is_test, "{page}: {file} has no {function}");
            count += 1;
        }
    }
    assert!(count > 500, "{count} tests are named");
}

#[test]
fn each_row_has_one_line() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/src/compatibility-aws.md");
    let text = read(&path).expect("the page");
    let mut rows: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("| ")?.split(' ').next()).collect();
    rows.retain(|row| row.contains('-') && row.ends_with(|c: char| c.is_ascii_digit()));
    let all = rows.len();
    rows.sort_unstable();
    rows.dedup();
    assert_eq!((rows.len(), all), (550, 550));
}
