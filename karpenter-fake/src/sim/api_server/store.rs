use std::{collections::BTreeMap, sync::Arc};

use indexmap::IndexMap;
use karpenter_core::api::ObjectKey;

use crate::sim::FxBuild;

/// Objects of one kind, by namespace and name; the namespace is empty for kinds that have none. One is found by hashing, all
/// are listed in order.
#[derive(Clone, Debug)]
pub struct Store<T> {
    slots: Vec<Option<Arc<T>>>,
    free: Vec<usize>,
    by_key: IndexMap<ObjectKey, usize, FxBuild>,
    in_order: BTreeMap<ObjectKey, usize>,
}

impl<T> Default for Store<T> {
    fn default() -> Self {
        Self { slots: Vec::new(), free: Vec::new(), by_key: IndexMap::default(), in_order: BTreeMap::new() }
    }
}

impl<T> Store<T> {
    pub(super) fn get(&self, key: &ObjectKey) -> Option<&Arc<T>> {
        self.slots[*self.by_key.get(key)?].as_ref()
    }

    pub(super) fn values(&self) -> impl ExactSizeIterator<Item = &Arc<T>> {
        self.in_order.values().map(|slot| self.at(*slot))
    }

    /// The objects of a namespace, in the order of their names.
    pub(super) fn of_namespace<'s>(&'s self, namespace: &'s str) -> impl Iterator<Item = &'s Arc<T>> {
        let near = self.in_order.range(ObjectKey::new(namespace, "")..);
        near.take_while(move |(key, _)| key.namespace == namespace).map(|(_, slot)| self.at(*slot))
    }

    pub(super) fn insert(&mut self, key: ObjectKey, object: Arc<T>) {
        if let Some(slot) = self.by_key.get(&key) {
            self.slots[*slot] = Some(object);
            return;
        }
        let slot = self.free.pop().unwrap_or(self.slots.len());
        if slot == self.slots.len() {
            self.slots.push(None);
        }
        self.slots[slot] = Some(object);
        self.by_key.insert(key.clone(), slot);
        self.in_order.insert(key, slot);
    }

    pub(super) fn remove(&mut self, key: &ObjectKey) {
        let Some(slot) = self.by_key.swap_remove(key) else { return };
        self.in_order.remove(key);
        self.slots[slot] = None;
        self.free.push(slot);
    }

    fn at(&self, slot: usize) -> &Arc<T> {
        self.slots[slot].as_ref().expect("a slot with a key has an object")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_put_is_found_and_listed_in_order_until_it_is_removed() {
        let key = |namespace: &str, name: &str| ObjectKey::new(namespace, name);
        let mut store = Store::default();
        for (number, (namespace, name)) in [("b", "x"), ("a", "z"), ("b", "a"), ("a", "z")].into_iter().enumerate() {
            store.insert(key(namespace, name), Arc::new(number));
        }
        let all = |store: &Store<usize>| store.values().map(|number| **number).collect::<Vec<_>>();
        assert_eq!(all(&store), [3, 2, 0]);
        assert_eq!(store.of_namespace("b").map(|number| **number).collect::<Vec<_>>(), [2, 0]);
        store.remove(&key("b", "a"));
        store.remove(&key("b", "a"));
        store.insert(key("c", "new"), Arc::new(4));
        assert_eq!((all(&store), store.get(&key("b", "a"))), (vec![3, 0, 4], None));
    }
}
