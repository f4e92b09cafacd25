use std::fmt;

use karpenter_core::api::FieldError;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use serde_saphyr::{Budget, UserMessageFormatter, budget, options};

use super::{message_of, named, objects::group_of, overflow, pages::Pages};
use crate::Error;

/// How deep lists may lie in lists. `kubectl` prints one level; each level costs another pass over the text.
const MAX_LIST_DEPTH: usize = 4;
/// How deep YAML may nest, as deep as JSON may.
const MAX_YAML_DEPTH: usize = 128;

/// An object of which only the kind has been read.
pub(super) struct Object<'t> {
    /// The group and version; empty if none is written.
    pub(super) api_version: String,
    /// Whether the group and version are written only at the list that the object lies in.
    pub(super) is_version_of_list: bool,
    pub(super) kind: String,
    pub(super) metadata: Option<&'t RawValue>,
    /// All of it.
    pub(super) raw: &'t RawValue,
}

/// Takes objects, with the position of each.
pub(super) type Visit<'v> = dyn FnMut(&Object<'_>, &Position<'_>) -> Result<(), Error> + 'v;

/// What a file with objects is.
pub(super) const OBJECTS: &str = "what `kubectl get -o json` prints";

/// Hands every object of a text to `visit`: documents one after the other, the elements of arrays, the items of lists. The lists
/// are given back: pages of them may be missing.
pub(super) fn for_each_object(text: &str, file: &str, visit: &mut Visit<'_>) -> Result<Pages, Error> {
    let mut pages = Pages::default();
    for_each_document(text, file, OBJECTS, &mut |document, index| {
        let position = Position { index, kind: PositionKind::Document };
        Walk { file, visit: &mut *visit, pages: &mut pages }.value(document, &position, Defaults::default())
    })?;
    Ok(pages)
}

/// Hands every document of a text to `visit`, as JSON, with its number from 1. `expected` says what should be there if nothing is.
pub(super) fn for_each_document(
    text: &str,
    file: &str,
    expected: &'static str,
    visit: &mut dyn FnMut(&RawValue, usize) -> Result<(), Error>,
) -> Result<(), Error> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let count = if is_json(text) { json_documents(text, file, visit)? } else { yaml_documents(text, file, visit)? };
    if count == 0 { Err(Error::Empty { file: file.to_owned(), expected }) } else { Ok(()) }
}

/// Whether a text starts as JSON does and has no line that starts as YAML separates documents, which JSON cannot have.
fn is_json(text: &str) -> bool {
    text.trim_start().starts_with(['{', '[']) && !text.contains("\n---")
}

fn json_documents(
    text: &str,
    file: &str,
    visit: &mut dyn FnMut(&RawValue, usize) -> Result<(), Error>,
) -> Result<usize, Error> {
    let mut count = 0;
    for document in serde_json::Deserializer::from_str(text).into_iter::<&RawValue>() {
        let document = document.map_err(|error| Error::Syntax {
            file: file.to_owned(),
            line: error.line() as u64,
            column: error.column() as u64,
            format: "JSON",
            message: message_of(&error),
        })?;
        count += 1;
        visit(document, count)?;
    }
    Ok(count)
}

fn yaml_documents(
    text: &str,
    file: &str,
    visit: &mut dyn FnMut(&RawValue, usize) -> Result<(), Error>,
) -> Result<usize, Error> {
    let syntax = |message: String, at: Option<serde_saphyr::Location>| Error::Syntax {
        file: file.to_owned(),
        line: at.map_or(1, |at| at.line()),
        column: at.map_or(1, |at| at.column()),
        format: "YAML",
        message,
    };
    let text = overflow::quoted(text);
    let options = options! { budget: yaml_budget(&text), with_snippet: false, strict_booleans: true };
    let mut bytes = text.as_bytes();
    let mut count = 0;
    for document in serde_saphyr::read_with_options::<_, serde_json::Value>(&mut bytes, options) {
        let document = document.map_err(|error| syntax(yaml_message(&error), error.location()))?;
        let raw = serde_json::value::to_raw_value(&document).map_err(|error| syntax(message_of(&error), None))?;
        drop(document);
        count += 1;
        visit(&raw, count)?;
    }
    Ok(count)
}

/// A text has no more nodes than characters, save by aliases, which may add as much as the library allows in all.
fn yaml_budget(text: &str) -> Option<Budget> {
    let of_aliases = Budget::default();
    let with_text = |most: usize| most.saturating_add(text.len());
    budget! {
        max_reader_input_bytes: None,
        max_events: with_text(with_text(of_aliases.max_events)),
        max_nodes: with_text(of_aliases.max_nodes),
        max_documents: with_text(0),
        max_total_scalar_bytes: with_text(of_aliases.max_total_scalar_bytes),
        max_depth: MAX_YAML_DEPTH,
    }
}

/// What is wrong, without the line and column, which are told apart from it.
fn yaml_message(error: &serde_saphyr::Error) -> String {
    let text = error.without_snippet().render_with_formatter(&UserMessageFormatter);
    let Some(at) = error.location() else { return text };
    let place = format!(" at line {}, column {}", at.line(), at.column());
    text.strip_suffix(&place).unwrap_or(&text).to_owned()
}

/// What every object starts with, as far as it must be known to tell what it is.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", expecting = "an object")]
struct Header<'t> {
    #[serde(default)]
    api_version: Option<String>,
    #[serde(default)]
    kind: Option<String>,
    #[serde(borrow, default)]
    metadata: Option<&'t RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    items: Option<&'t RawValue>,
}

/// What the items of a list are if they do not say so themselves, as those of a `PodList`.
#[derive(Clone, Copy, Default)]
struct Defaults<'d> {
    api_version: &'d str,
    kind: &'d str,
}

/// Walks over a document and what lies in it.
struct Walk<'w, 'v> {
    file: &'w str,
    visit: &'w mut Visit<'v>,
    pages: &'w mut Pages,
}

impl Walk<'_, '_> {
    fn value(&mut self, raw: &RawValue, position: &Position<'_>, defaults: Defaults<'_>) -> Result<(), Error> {
        if position.depth() > MAX_LIST_DEPTH {
            let message = format!("more than {MAX_LIST_DEPTH} lists lie in each other");
            return Err(self.wrong(position, FieldError::new("items", message)));
        }
        if raw.get().starts_with('[') {
            return self.elements(raw, position, PositionKind::Element(position), defaults);
        }
        let header = header(raw).map_err(|error| self.wrong(position, error))?;
        let is_version_of_list = header.api_version.is_none() && !defaults.api_version.is_empty();
        let api_version = header.api_version.unwrap_or_else(|| defaults.api_version.to_owned());
        let kind = header.kind.unwrap_or_else(|| defaults.kind.to_owned());
        let name = || format!("{kind} ({position})");
        if let Some(error) = no_object(&api_version, &kind, raw) {
            return Err(Error::Object { file: self.file.to_owned(), error: error.of(name()) });
        }
        if kind.ends_with("List") && header.items.is_some() {
            self.pages.add_list([&api_version, &kind], header.metadata, self.file, &name());
        }
        match (kind.strip_suffix("List"), header.items) {
            (Some(""), Some(items)) => {
                self.elements(items, position, PositionKind::Item(position), Defaults::default())
            }
            (Some(kind), Some(items)) => {
                let defaults = Defaults { api_version: &api_version, kind };
                self.elements(items, position, PositionKind::Item(position), defaults)
            }
            (Some(""), None) => Err(self.wrong(position, FieldError::new("items", "is missing"))),
            _ if kind.is_empty() => Err(self.wrong(position, FieldError::new("kind", "is missing"))),
            _ => {
                let metadata = header.metadata;
                (self.visit)(&Object { api_version, is_version_of_list, kind, metadata, raw }, position)
            }
        }
    }

    fn elements(
        &mut self,
        array: &RawValue,
        outer: &Position<'_>,
        kind: PositionKind<'_>,
        defaults: Defaults<'_>,
    ) -> Result<(), Error> {
        let elements: Option<Vec<&RawValue>> = serde_json::from_str(array.get())
            .map_err(|error| self.wrong(outer, FieldError::new("items", message_of(&error))))?;
        for (index, element) in elements.unwrap_or_default().into_iter().enumerate() {
            self.value(element, &Position { index, kind }, defaults)?;
        }
        Ok(())
    }

    fn wrong(&self, position: &Position<'_>, error: FieldError) -> Error {
        Error::Object { file: self.file.to_owned(), error: named(error, position.to_string()) }
    }
}

/// Why what an API server answers is no object of a cluster: it failed, or wrote it for people.
fn no_object(api_version: &str, kind: &str, raw: &RawValue) -> Option<FieldError> {
    #[derive(Deserialize)]
    struct Status {
        #[serde(default)]
        message: String,
    }

    match (group_of(api_version), kind.strip_suffix("List").unwrap_or(kind)) {
        ("", "Status") if !api_version.is_empty() => {
            let status: Result<Status, _> = serde_json::from_str(raw.get());
            let why = status.map(|status| status.message).unwrap_or_default();
            Some(FieldError::new("kind", format!("the API server gave no objects: {why}")))
        }
        ("" | "meta.k8s.io", "Table" | "PartialObjectMetadata") => {
            Some(FieldError::new("kind", format!("it does not have the objects: expected {OBJECTS}")))
        }
        _ => None,
    }
}

fn header(raw: &RawValue) -> Result<Header<'_>, FieldError> {
    let mut deserializer = serde_json::Deserializer::from_str(raw.get());
    serde_path_to_error::deserialize(&mut deserializer)
        .map_err(|error| FieldError::new(error.path().to_string(), message_of(error.inner())))
}

/// Tells an explicit `null` from a field that is not there.
fn present<'t, D: Deserializer<'t>>(deserializer: D) -> Result<Option<&'t RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

/// Where in a file an object is.
pub(super) struct Position<'p> {
    index: usize,
    kind: PositionKind<'p>,
}

#[derive(Clone, Copy)]
enum PositionKind<'p> {
    /// A document by itself.
    Document,
    /// An element of an array.
    Element(&'p Position<'p>),
    /// An item of a list.
    Item(&'p Position<'p>),
}

impl Position<'_> {
    /// How many lists and arrays are around it.
    fn depth(&self) -> usize {
        match self.kind {
            PositionKind::Document => 0,
            PositionKind::Element(outer) | PositionKind::Item(outer) => 1 + outer.depth(),
        }
    }
}

impl fmt::Display for Position<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            PositionKind::Document => write!(f, "document {}", self.index),
            PositionKind::Element(outer) => write!(f, "{outer} element [{}]", self.index),
            PositionKind::Item(outer) => write!(f, "{outer} items[{}]", self.index),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(text: &str) -> Result<Vec<String>, String> {
        let mut seen = Vec::new();
        let mut visit = |object: &Object<'_>, position: &Position<'_>| {
            seen.push(format!("{} {} at {position}", object.api_version, object.kind));
            Ok(())
        };
        for_each_object(text, "f", &mut visit).map_err(|error| error.to_string())?;
        Ok(seen)
    }

    #[test]
    fn every_way_to_write_several_objects() {
        let (pod, node) = (r#"{"apiVersion":"v1","kind":"Pod"}"#, r#"{"apiVersion":"v1","kind":"Node"}"#);
        for text in [
            format!("{pod}\n{node}"),
            format!("[{pod},{node}]"),
            format!(r#"{{"kind":"List","items":[{pod},{node}]}}"#),
            format!("{pod}\n---\n{node}\n"),
            "\u{feff}kind: Pod\napiVersion: v1\n---\n# nothing\n---\nkind: Node\napiVersion: v1\n".to_owned(),
            "- {kind: Pod, apiVersion: v1}\n- {kind: Node, apiVersion: v1}".to_owned(),
        ] {
            let seen = kinds(&text).expect(&text);
            assert!(seen.len() == 2 && seen[0].starts_with("v1 Pod") && seen[1].starts_with("v1 Node"), "{seen:?}");
        }
    }

    #[test]
    fn items_of_a_typed_list_are_of_its_kind() {
        let text = r#"{"apiVersion":"apps/v1","kind":"DaemonSetList","items":[{"metadata":{}},{"kind":"Pod","apiVersion":"v1"}]}"#;
        let expected = ["apps/v1 DaemonSet at document 1 items[0]", "v1 Pod at document 1 items[1]"];
        assert_eq!(kinds(text).expect(text), expected);
        assert_eq!(kinds(r#"{"kind":"PodList","items":null}"#), Ok(vec![]));
    }

    #[test]
    fn mistakes_are_named() {
        for (text, message) in [
            ("", "f: is empty"),
            ("# a comment\n---\n", "f: is empty"),
            ("{\"kind\":\n  \"Pod\",}", "f: line 2 column 9: JSON syntax: "),
            ("kind: Pod\nmetadata: {name: a", "f: line 2 column "),
            ("kind: Pod\nkind: Pod\n", "f: line 2 column 1: YAML syntax: "),
            ("hello", "f: document 1: "),
            ("[3]", "f: document 1 element [0]: "),
            ("{}", "f: document 1: kind: is missing"),
            (r#"{"kind":3}"#, "f: document 1: kind: invalid type"),
            (r#"{"kind":"List"}"#, "f: document 1: items: is missing"),
            (r#"{"kind":"List","items":{}}"#, "f: document 1: items: invalid type"),
            (r#"{"kind":"List","items":[{"metadata":{}}]}"#, "f: document 1 items[0]: kind: is missing"),
            ("[[[[[[[[[]]]]]]]]]", "f: document 1 element [0] element [0]"),
        ] {
            let error = kinds(text).expect_err(text);
            assert!(error.starts_with(message) && !error.contains('\n'), "{text}: {error}");
        }
    }

    #[test]
    fn bombs_are_refused() {
        let level = |i: i32| format!("a{i}: &a{i} [{}]\n", vec![format!("*a{}", i - 1); 10].join(", "));
        let bomb = "a0: &a0 [x]\n".to_owned() + &(1..10).map(level).collect::<String>();
        assert!(kinds(&bomb).expect_err("a bomb").starts_with("f: line "));
        let deep = format!("kind: {}{}", "[".repeat(100_000), "]".repeat(100_000));
        assert!(kinds(&deep).expect_err("too deep").starts_with("f: line "));
        let deep = format!(r#"{{"kind":"Pod","metadata":{}{}}}"#, "[".repeat(1_000_000), "]".repeat(1_000_000));
        assert_eq!(kinds(&deep).map(|seen| seen.len()), Ok(1));
    }
}
