//! Manifests read field by field.

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{ConvertError, Converter, invalid};

/// What every manifest may have at its top.
const TOP: [&str; 5] = ["apiVersion", "kind", "metadata", "spec", "status"];

impl Converter {
    /// Reads what is at a path of an object; the path is empty for all of it. Fields that there are not are noted.
    pub(super) fn read<T: DeserializeOwned>(
        &mut self,
        object: &str,
        path: &str,
        value: &Value,
    ) -> Result<T, ConvertError> {
        let (value, unknown) = read_noting(object, path, value)?;
        for field in &unknown {
            self.note_unknown(object, field);
        }
        Ok(value)
    }

    /// An object without the fields that its kind does not have, which are noted. What is no object stays, for its reader
    /// to say so.
    pub(super) fn known(&mut self, object: &str, path: &str, value: &Value, fields: &[&str]) -> Value {
        let Value::Object(all) = value else { return or_empty(value) };
        let (known, unknown): (serde_json::Map<_, _>, serde_json::Map<_, _>) =
            all.clone().into_iter().partition(|(key, _)| fields.contains(&key.as_str()));
        for key in unknown.keys() {
            self.note_unknown(object, &joined(path, key));
        }
        Value::Object(known)
    }

    /// Notes what is at the top of a manifest and has no place there.
    pub(super) fn note_top(&mut self, object: &str, manifest: &Value) {
        self.known(object, "", manifest, &TOP);
    }

    pub(super) fn note_unknown(&mut self, object: &str, field: &str) {
        let kind = object.split(' ').next().unwrap_or_default();
        self.note(object, format!("{field} is not a field of {kind}, and is left out"));
    }
}

/// Reads what is at a path of an object; the path is empty for all of it.
pub(super) fn read<T: DeserializeOwned>(object: &str, path: &str, value: &Value) -> Result<T, ConvertError> {
    serde_path_to_error::deserialize(value).map_err(|error| {
        let inner = error.path().to_string();
        let field = if inner == "." { path.to_owned() } else { joined(path, &inner) };
        invalid(object, field, error.inner().to_string())
    })
}

/// The same, with the paths of the fields that nothing was read from.
pub(super) fn read_noting<T: DeserializeOwned>(
    object: &str,
    path: &str,
    value: &Value,
) -> Result<(T, Vec<String>), ConvertError> {
    let mut unknown = Vec::new();
    match serde_ignored::deserialize(value, |field| unknown.push(joined(path, &field_at(&field)))) {
        Ok(read) => Ok((read, unknown)),
        // Of an error the reader of paths says where it is.
        Err(_) => read(object, path, value).map(|value| (value, unknown)),
    }
}

/// The field at a path, written as in errors: `blockDeviceMappings[0].ebs`.
fn field_at(path: &serde_ignored::Path<'_>) -> String {
    use serde_ignored::Path;
    match path {
        Path::Root => String::new(),
        Path::Seq { parent, index } => format!("{}[{index}]", field_at(parent)),
        Path::Map { parent, key } => joined(&field_at(parent), key),
        Path::Some { parent } | Path::NewtypeStruct { parent } | Path::NewtypeVariant { parent } => field_at(parent),
    }
}

fn joined(path: &str, field: &str) -> String {
    if path.is_empty() { field.to_owned() } else { format!("{path}.{field}") }
}

/// A value, or an empty object if there is none.
pub(super) fn or_empty(value: &Value) -> Value {
    if value.is_null() { Value::Object(serde_json::Map::new()) } else { value.clone() }
}

pub(super) fn list_or_empty(value: &Value) -> Value {
    if value.is_null() { Value::Array(Vec::new()) } else { value.clone() }
}
