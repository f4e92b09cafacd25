//! `karpenter convert`: manifests of older versions, as they are written today.

use std::collections::BTreeMap;

use karpenter_aws::convert::{Conversion, ConvertError, Converter};
use serde::Serialize;
use serde_json::Value;

use crate::{
    Error,
    args::{ConvertArgs, ManifestFormat},
    load, output,
    plan::{name_of, read_text},
};

/// Reads all files and converts what is in them; objects of other kinds are skipped.
///
/// # Errors
/// A file cannot be read, a manifest cannot be converted, or there is none.
pub fn run(args: &ConvertArgs) -> Result<Conversion, Error> {
    let mut converter = if args.ignore_defaults { Converter::without_defaults() } else { Converter::default() };
    let mut files = BTreeMap::new();
    for path in &args.files {
        let file = name_of(path);
        for manifest in load::values(&read_text(path)?, &file)? {
            converter.add(&manifest).map_err(|error| located(error, &file, &files))?;
            files.entry(object_of(&manifest)).or_insert_with(|| file.clone());
        }
    }
    converter.finish().map_err(Error::NothingToConvert)
}

/// The error with its file, and of an object that is given twice the file with the first one, by object.
fn located(error: ConvertError, file: &str, files: &BTreeMap<String, String>) -> Error {
    let file = file.to_owned();
    match error {
        ConvertError::Duplicate { object } if files.contains_key(&object) => {
            Error::Duplicate { file, other_file: files[&object].clone(), object }
        }
        error => Error::Convert { file, error },
    }
}

/// The kind and the name, as errors have them.
fn object_of(manifest: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    format!("{} {}", text(&manifest["kind"]), text(&manifest["metadata"]["name"]))
}

/// The manifests as a text, with a line break at the end: first the classes, which the pools name.
///
/// # Errors
/// The serializer refuses them.
pub fn text(conversion: &Conversion, format: ManifestFormat) -> Result<String, Error> {
    match format {
        ManifestFormat::Yaml => {
            let classes = conversion.classes.iter().map(output::to_yaml);
            let documents: Result<Vec<String>, Error> =
                classes.chain(conversion.pools.iter().map(output::to_yaml)).collect();
            Ok(documents?.join("---\n"))
        }
        ManifestFormat::Json => {
            let classes = conversion.classes.iter().map(Manifest::Class);
            let items = classes.chain(conversion.pools.iter().map(Manifest::Pool)).collect();
            output::to_json(&List { api_version: "v1", kind: "List", items })
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct List<'c> {
    api_version: &'static str,
    kind: &'static str,
    items: Vec<Manifest<'c>>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Manifest<'c> {
    Class(&'c karpenter_aws::nodeclass::Ec2NodeClass),
    Pool(&'c karpenter_core::api::NodePool),
}
