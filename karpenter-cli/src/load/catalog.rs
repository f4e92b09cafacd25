use karpenter_core::{Catalog, InstanceType, api::FieldError};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{documents::for_each_document, message_of, named, parse};
use crate::Error;

/// Reads a list of instance types, in the format of this project or of the kwok provider's `instance_types.json`.
///
/// # Errors
/// The text is not JSON or YAML or not one list; an entry cannot be read or breaks a rule of [`Catalog::new`]. The
/// message names the instance type by its name, or by its place in the list if it has none.
pub fn catalog(text: &str, file: &str) -> Result<Vec<InstanceType>, Error> {
    let wrong = |error: FieldError| Error::Object { file: file.to_owned(), error };
    let mut types = Vec::new();
    for_each_document(text, file, &mut |document, number| {
        if number > 1 {
            return Err(wrong(FieldError::new(format!("document {number}"), "a catalog is one list")));
        }
        let entries: Vec<&RawValue> = serde_json::from_str(document.get())
            .map_err(|error| wrong(FieldError::new("document 1", message_of(&error))))?;
        for (index, entry) in entries.into_iter().enumerate() {
            let parsed: InstanceType = parse(entry).map_err(|error| wrong(named(error, name_of(entry, index))))?;
            if parsed.name.is_empty() {
                let error = FieldError::new("name", "is missing");
                return Err(wrong(error.of(name_of(entry, index))));
            }
            types.push(parsed);
        }
        Ok(())
    })?;
    Catalog::new(types.clone()).map_err(|source| Error::Catalog { file: file.to_owned(), source })?;
    Ok(types)
}

fn name_of(entry: &RawValue, index: usize) -> String {
    #[derive(Deserialize)]
    struct Named {
        name: String,
    }
    match serde_json::from_str::<Named>(entry.get()) {
        Ok(named) if !named.name.is_empty() => format!("instance type {}", named.name),
        _ => format!("instance type [{index}]"),
    }
}
