//! Reads clusters and catalogs from text.
//!
//! Everything here takes text and gives values, so that it can be fed with anything:
//!
//! ```
//! let pod = r#"{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}}"#;
//! let cluster = karpenter_cli::load::cluster(pod, "pods.json")?;
//! assert_eq!(cluster.pods[0].key().to_string(), "default/web");
//!
//! let error = karpenter_cli::load::catalog(r#"[{"name": "m", "capacity": {"cpu": "1x"}}]"#, "types.json").unwrap_err();
//! assert!(error.to_string().starts_with("types.json: instance type m: capacity.cpu: invalid quantity \"1x\""));
//! # Ok::<(), karpenter_cli::Error>(())
//! ```

mod catalog;
mod changes;
mod documents;
mod facts;
mod idle;
mod manifests;
mod objects;
mod older;
mod overflow;
mod pages;
mod unread;
mod warnings;
mod workload;

use karpenter_core::api::FieldError;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

pub use catalog::{TypeList, catalog};
pub use changes::FurtherObjects;
pub(crate) use changes::{Accepted, ChangeReader};
pub use facts::{facts, prices};
pub use manifests::manifests;
pub(crate) use objects::is_gated;
pub use objects::{BadPod, Cluster, ClusterReader};
pub use warnings::LoadWarning;
pub use workload::Workload;

use crate::Error;

/// Reads one dump of a cluster; [`ClusterReader`] reads several into one.
///
/// # Errors
/// The text is not JSON or YAML, holds nothing, or has an object that cannot be used or left out; see
/// [`ClusterReader::read`].
pub fn cluster(text: &str, file: &str) -> Result<Cluster, Error> {
    let mut reader = ClusterReader::default();
    reader.read(text, file)?;
    reader.finish()
}

/// The objects of a text as they are, with the version of the list that they lie in if they have none themselves.
///
/// # Errors
/// The text is not JSON or YAML or holds nothing, or something in it is no object.
pub fn values(text: &str, file: &str) -> Result<Vec<serde_json::Value>, Error> {
    let mut out = Vec::new();
    documents::for_each_object(text, file, &mut |object, position| {
        let wrong = |error| Error::Object { file: file.to_owned(), error: named(error, position.to_string()) };
        let mut value: serde_json::Value = parse(object.raw).map_err(wrong)?;
        value["apiVersion"] = object.api_version.clone().into();
        value["kind"] = object.kind.clone().into();
        out.push(value);
        Ok(())
    })?
    .check()?;
    Ok(out)
}

/// Parses a value; an error names the path of the field.
fn parse<T: DeserializeOwned>(raw: &RawValue) -> Result<T, FieldError> {
    // Paths cost time, and nearly all objects are good.
    serde_json::from_str(raw.get()).or_else(|_| {
        let mut deserializer = serde_json::Deserializer::from_str(raw.get());
        serde_path_to_error::deserialize(&mut deserializer)
            .map_err(|error| FieldError::new(error.path().to_string(), message_of(error.inner())))
    })
}

/// Parses a value, and names the fields of it that no part of the value has.
fn parse_noting<T: DeserializeOwned>(raw: &RawValue) -> Result<(T, Vec<String>), FieldError> {
    let mut unknown = Vec::new();
    let mut deserializer = serde_json::Deserializer::from_str(raw.get());
    match serde_ignored::deserialize(&mut deserializer, |path| unknown.push(field_at(&path))) {
        Ok(value) => Ok((value, unknown)),
        Err(_) => parse(raw).map(|value| (value, unknown)),
    }
}

/// The field at a path, written as in errors: `offerings[0].price`.
fn field_at(path: &serde_ignored::Path<'_>) -> String {
    use serde_ignored::Path;
    match path {
        Path::Root => String::new(),
        Path::Seq { parent, index } => format!("{}[{index}]", field_at(parent)),
        Path::Map { parent: Path::Root, key } => key.clone(),
        Path::Map { parent, key } => format!("{}.{key}", field_at(parent)),
        Path::Some { parent } | Path::NewtypeStruct { parent } | Path::NewtypeVariant { parent } => field_at(parent),
    }
}

/// The error with the object named, which may itself be what is wrong.
fn named(error: FieldError, object: impl Into<String>) -> FieldError {
    if error.field == "." { FieldError::new(object, error.message) } else { error.of(object) }
}

/// What is wrong, without the line and column, which count from the start of the object and not of the file.
fn message_of(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    in_words(text.strip_suffix(&place).unwrap_or(&text))
}

/// The message with words in the place of the name of a type of Rust for what is expected.
fn in_words(message: &str) -> String {
    let Some((found, expected)) = message.rsplit_once("expected ") else { return message.to_owned() };
    let words = match expected {
        "u8" => "a whole number from 0 to 255",
        "u16" => "a whole number from 0 to 65535",
        "u32" => "a whole number from 0 to 4294967295",
        "u64" | "u128" | "usize" => "a whole number of at least 0",
        "i8" | "i16" | "i32" | "i64" | "i128" | "isize" => "a whole number",
        "f32" | "f64" => "a number",
        _ => expected,
    };
    format!("{found}expected {words}")
}
