use std::{collections::BTreeMap, time::Duration};

use karpenter_core::Timestamp;

/// Values that are good for a while. What is over goes when something is added.
#[derive(Clone, Debug)]
pub(crate) struct Cache<K, V> {
    ttl: Duration,
    entries: BTreeMap<K, (Timestamp, V)>,
}

impl<K: Ord, V> Cache<K, V> {
    pub(crate) const fn new(ttl: Duration) -> Self {
        Self { ttl, entries: BTreeMap::new() }
    }

    /// The value, unless it is over.
    pub(crate) fn get(&self, key: &K, now: Timestamp) -> Option<&V> {
        self.entries.get(key).filter(|(until, _)| now < *until).map(|(_, value)| value)
    }

    pub(crate) fn insert(&mut self, key: K, value: V, now: Timestamp) {
        self.entries.insert(key, (now + self.ttl, value));
    }

    pub(crate) fn remove(&mut self, key: &K) -> Option<V> {
        self.entries.remove(key).map(|(_, value)| value)
    }

    /// Makes an entry good for as long as a new one.
    pub(crate) fn renew(&mut self, key: &K, now: Timestamp) {
        if let Some((until, _)) = self.entries.get_mut(key) {
            *until = now + self.ttl;
        }
    }

    /// Takes out what is over.
    pub(crate) fn expire(&mut self, now: Timestamp) -> Vec<(K, V)>
    where
        K: Clone,
    {
        let over: Vec<K> =
            self.entries.iter().filter(|(_, (until, _))| *until <= now).map(|(k, _)| k.clone()).collect();
        over.into_iter().filter_map(|key| self.remove(&key).map(|value| (key, value))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(seconds: i64) -> Timestamp {
        Timestamp::from_millis(seconds * 1000)
    }

    #[test]
    fn a_value_is_good_for_its_time_and_longer_if_renewed() {
        let mut cache = Cache::new(Duration::from_mins(1));
        cache.insert("a", 1, at(0));
        cache.insert("b", 2, at(0));
        assert_eq!((cache.get(&"a", at(59)), cache.get(&"a", at(60))), (Some(&1), None));
        cache.renew(&"a", at(30));
        assert_eq!(cache.expire(at(60)), [("b", 2)]);
        assert_eq!((cache.get(&"a", at(89)), cache.get(&"b", at(0))), (Some(&1), None));
    }
}
