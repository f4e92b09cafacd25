//! Lists that an API server hands out in pages.

use std::collections::BTreeMap;

use karpenter_core::api::FieldError;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::Error;

/// What the meta data of a list say of further pages.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListMeta {
    #[serde(default)]
    r#continue: Option<String>,
    #[serde(default)]
    remaining_item_count: Option<i64>,
}

/// The lists that were read, by version and kind, and what is missing after the last page of each.
#[derive(Debug, Default)]
pub(super) struct Pages {
    last: BTreeMap<String, Option<Missing>>,
}

/// The file of a page that others should follow, and what is to be said of it.
#[derive(Debug)]
struct Missing {
    file: String,
    error: FieldError,
}

impl Pages {
    /// Takes in a list of a kind; `name` says which it is and where. The next list of the same kind is the next page, but those of
    /// mixed kinds, which no API server hands out, are each by itself.
    pub(super) fn add_list(
        &mut self,
        [api_version, kind]: [&str; 2],
        metadata: Option<&RawValue>,
        file: &str,
        name: &str,
    ) {
        let missing = missing(metadata).map(|error| Missing { file: file.to_owned(), error: error.of(name) });
        let key = if kind == "List" { format!("{file} {name}") } else { format!("{api_version} {kind}") };
        self.last.insert(key, missing);
    }

    /// Takes in the lists of a file that was read later.
    pub(super) fn add_all(&mut self, later: Self) {
        self.last.extend(later.last);
    }

    /// Whether no list goes on after its last page.
    ///
    /// # Errors
    /// A list of which pages are missing.
    pub(super) fn check(self) -> Result<(), Error> {
        let missing = self.last.into_values().flatten().next();
        missing.map_or(Ok(()), |Missing { file, error }| Err(Error::Object { file, error }))
    }
}

/// What is wrong with a list that is not the end.
fn missing(metadata: Option<&RawValue>) -> Option<FieldError> {
    let ListMeta { r#continue, remaining_item_count } = serde_json::from_str(metadata?.get()).unwrap_or_default();
    let remaining = remaining_item_count.filter(|count| *count > 0);
    let goes_on = r#continue.is_some_and(|token| !token.is_empty());
    let field = if goes_on { "metadata.continue" } else { "metadata.remainingItemCount" };
    let objects = remaining.map(|count| format!(", with {count} more objects")).unwrap_or_default();
    (goes_on || remaining.is_some())
        .then(|| FieldError::new(field, format!("the list goes on in further pages{objects}, and they are not here")))
}
