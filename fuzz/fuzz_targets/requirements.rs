//! The algebra of requirements keeps its laws, whatever expressions it is made from.
#![no_main]

use karpenter_core::{Requirement, Requirements, api::NodeSelectorRequirement};
use libfuzzer_sys::fuzz_target;

/// The most expressions of one input; pairs of them are tried, so that an input costs at most its square.
const MAX_EXPRESSIONS: usize = 12;

/// Values on which requirements are compared: words, numbers at the bounds of an integer, odd spellings of numbers.
const PROBES: [&str; 22] = [
    "",
    "a",
    "b",
    "zone-a",
    "0",
    "00",
    "1",
    "01",
    "2",
    "3",
    "7",
    "8",
    "9",
    "10",
    "100",
    "+1",
    "-1",
    "1.5",
    "1e3",
    "9223372036854775806",
    "9223372036854775807",
    "9223372036854775808",
];

fuzz_target!(|data: &[u8]| {
    let Ok(expressions) = serde_json::from_slice::<Vec<NodeSelectorRequirement>>(data) else { return };
    let expressions = &expressions[..expressions.len().min(MAX_EXPRESSIONS)];
    let probes = probes(expressions);
    let all: Vec<Requirement> = expressions.iter().map(Requirement::from).collect();
    for a in &all {
        check_one(a, &probes);
        for b in &all {
            check_two(a, b, &probes);
        }
    }
    check_together(expressions, &probes);
});

/// No label, the fixed probes, and every value that the input names.
fn probes(expressions: &[NodeSelectorRequirement]) -> Vec<Option<&str>> {
    let named = expressions.iter().flat_map(|e| &e.values).map(String::as_str);
    [None].into_iter().chain(PROBES.into_iter().chain(named).map(Some)).collect()
}

/// What holds of one requirement.
fn check_one(a: &Requirement, probes: &[Option<&str>]) {
    assert_eq!(a.intersection(a), *a, "{a:?} is not itself when intersected with itself");
    assert_eq!(a.intersection(&Requirement::ANY), *a);
    assert!(!a.intersects(&Requirement::NONE));
    assert_eq!(a.any_value().is_some(), a.admits_some_value(), "{a:?}");
    if let Some(value) = a.any_value() {
        assert!(a.admits(Some(&value)), "{a:?} does not admit {value:?}, its own example");
    }
    for value in a.values() {
        assert!(a.admits(Some(value)), "{a:?} does not admit {value:?}, which it names");
    }
    let written = a.to_expressions("key");
    let read = written.iter().map(Requirement::from).fold(Requirement::ANY, |all, r| all.intersection(&r));
    for probe in probes {
        assert_eq!(read.admits(*probe), a.admits(*probe), "{a:?} was written as {written:?}: {probe:?}");
    }
    assert_eq!(read, *a, "written as {written:?}");
}

/// What holds of two requirements.
fn check_two(a: &Requirement, b: &Requirement, probes: &[Option<&str>]) {
    let both = a.intersection(b);
    assert_eq!(both, b.intersection(a), "the order of {a:?} and {b:?} matters");
    assert_eq!(a.intersects(b), !both.is_none(), "{a:?} and {b:?}");
    for probe in probes {
        assert_eq!(both.admits(*probe), a.admits(*probe) && b.admits(*probe), "{a:?} and {b:?}: {probe:?}");
    }
}

/// What holds of requirements on several keys.
fn check_together(expressions: &[NodeSelectorRequirement], probes: &[Option<&str>]) {
    let all: Requirements = expressions.iter().collect();
    let again: Requirements = all.to_expressions().iter().collect();
    for (key, requirement) in all.iter() {
        let conjunction =
            |probe| expressions.iter().filter(|e| is_about(e, key)).all(|e| Requirement::from(e).admits(probe));
        let read = again.get(key);
        for probe in probes {
            assert_eq!(requirement.admits(*probe), conjunction(*probe), "{key}: {probe:?}");
            assert_eq!(read.is_none_or(|r| r.admits(*probe)), requirement.admits(*probe), "{key}: {probe:?}");
        }
    }
    assert_eq!(all.conflict(&all).is_some(), all.contradiction().is_some());
}

/// Whether an expression is about `key`, by its stable name.
fn is_about(expression: &NodeSelectorRequirement, key: &str) -> bool {
    karpenter_core::labels::normalized(&expression.key) == key
}
