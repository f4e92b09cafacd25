//! Objects of a kind, of which each has a name of its own.

use std::collections::BTreeMap;

use super::SnapshotError;
use crate::api::{ObjectKey, ObjectMeta};

/// Objects of no namespace by their names.
pub(super) fn by_name<T>(
    kind: &'static str,
    items: Vec<T>,
    meta: fn(&T) -> &ObjectMeta,
) -> Result<BTreeMap<String, T>, SnapshotError> {
    // An object of no namespace has a key of its name alone.
    let items = by_key(kind, items, |item| ObjectKey::new("", &meta(item).name))?;
    Ok(items.into_iter().map(|(key, item)| (key.name, item)).collect())
}

/// Objects by their keys.
pub(super) fn by_key<T>(
    kind: &'static str,
    items: Vec<T>,
    key: impl Fn(&T) -> ObjectKey,
) -> Result<BTreeMap<ObjectKey, T>, SnapshotError> {
    let mut out = BTreeMap::new();
    for item in items {
        let key = key(&item);
        if key.name.is_empty() {
            return Err(SnapshotError::Unnamed { kind });
        }
        if out.contains_key(&key) {
            return Err(duplicate(kind, (&key.namespace, &key.name)));
        }
        out.insert(key, item);
    }
    Ok(out)
}

/// Sorts objects by namespace and name, which must not be empty and of which there must be one each.
pub(super) fn sort_unique<T>(
    kind: &'static str,
    items: &mut [T],
    key: impl for<'t> Fn(&'t T) -> (&'t str, &'t str),
) -> Result<(), SnapshotError> {
    if items.is_sorted_by(|a, b| key(a) < key(b)) && items.iter().all(|item| !key(item).1.is_empty()) {
        return Ok(());
    }
    let mut keyed: Vec<_> = items.iter().map(&key).zip(0..).collect();
    if keyed.iter().any(|((_, name), _)| name.is_empty()) {
        return Err(SnapshotError::Unnamed { kind });
    }
    // Lists often come in a few runs that are sorted already, of which a stable sort makes use.
    keyed.sort_by_key(|(key, _)| *key);
    if let Some(pair) = keyed.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        return Err(duplicate(kind, pair[0].0));
    }
    let order = keyed.into_iter().map(|(_, index)| index).collect();
    permute(items, order);
    Ok(())
}

fn duplicate(kind: &'static str, (namespace, name): (&str, &str)) -> SnapshotError {
    let name = if namespace.is_empty() { name.to_owned() } else { format!("{namespace}/{name}") };
    SnapshotError::Duplicate { kind, name }
}

/// Puts the item of index `order[i]` at `i`, for all `i`. Objects are large, so that each is moved only a few times.
fn permute<T>(items: &mut [T], mut order: Vec<usize>) {
    for at in 0..order.len() {
        let mut from = order[at];
        // What was before `at` has made room already, and went where the order says.
        while from < at {
            from = order[from];
        }
        order[at] = from;
        items.swap(at, from);
    }
}
