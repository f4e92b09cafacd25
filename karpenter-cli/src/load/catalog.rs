use std::collections::{BTreeMap, BTreeSet};

use karpenter_core::{Catalogs, InstanceType, api::FieldError};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{LoadWarning, documents::for_each_document, message_of, named, parse_noting};
use crate::Error;

/// What a catalog is.
const CATALOG: &str = "one list of instance types, as `karpenter catalog` prints it";

/// What a file sells.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct TypeList {
    /// The instance types, in the order of the file.
    pub types: Vec<InstanceType>,
    /// Fields that no instance type has, each named once.
    pub warnings: Vec<LoadWarning>,
}

/// Reads a list of instance types, in the format of this project or of the kwok provider's `instance_types.json`.
///
/// # Errors
/// The text is not JSON or YAML or not one list; an entry cannot be read or breaks a rule of [`Catalogs::shared`]. The
/// message names the instance type by its name, or by its place in the list if it has none.
pub fn catalog(text: &str, file: &str) -> Result<TypeList, Error> {
    let wrong = |error: FieldError| Error::Object { file: file.to_owned(), error };
    let mut types = Vec::new();
    let mut unknown = Unknown::new();
    for_each_document(text, file, CATALOG, &mut |document, number| {
        if number > 1 {
            return Err(wrong(FieldError::new(format!("document {number}"), format!("a catalog is {CATALOG}"))));
        }
        let entries: Vec<&RawValue> = serde_json::from_str(document.get()).map_err(|error| {
            wrong(FieldError::new("document 1", format!("a catalog is {CATALOG}: {}", message_of(&error))))
        })?;
        for (index, entry) in entries.into_iter().enumerate() {
            let (parsed, fields): (InstanceType, _) =
                parse_noting(entry).map_err(|error| wrong(named(error, name_of(entry, index))))?;
            if parsed.name.is_empty() {
                let error = FieldError::new("name", "is missing");
                return Err(wrong(error.of(name_of(entry, index))));
            }
            note(&mut unknown, &parsed.name, fields);
            types.push(parsed);
        }
        Ok(())
    })?;
    Catalogs::shared(types.clone(), []).map_err(|source| Error::Catalog { file: file.to_owned(), source })?;
    let warning =
        |(_, (object, field, others))| LoadWarning::UnknownField { file: file.to_owned(), object, field, others };
    Ok(TypeList { types, warnings: unknown.into_iter().map(warning).collect() })
}

/// The first instance type with an unknown field, the field, and how many others have it too; by the field without its places in
/// lists.
type Unknown = BTreeMap<String, (String, String, usize)>;

fn note(unknown: &mut Unknown, instance_type: &str, fields: Vec<String>) {
    let mut seen = BTreeSet::new();
    for field in fields {
        let kind: String = field.split(['[', ']']).step_by(2).collect();
        if seen.insert(kind.clone()) {
            let first = || (format!("instance type {instance_type}"), field, 0);
            unknown.entry(kind).and_modify(|(_, _, others)| *others += 1).or_insert_with(first);
        }
    }
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
