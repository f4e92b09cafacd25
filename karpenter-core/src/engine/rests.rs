//! Pools of which a command was given up: for a while no other one is begun that has something come in the place of their nodes.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use crate::{Backoff, Timestamp, api::NodePool};

/// See the [module](self).
#[derive(Clone, Debug, Default)]
pub(super) struct Rests(BTreeMap<String, Rest>);

#[derive(Clone, Debug, Default)]
struct Rest {
    /// How many commands were given up since the last one that was carried out.
    failures: u32,
    /// Until when the pool is left alone; `None` once that is over.
    until: Option<Timestamp>,
}

impl Rests {
    /// A command for nodes of a pool was given up that was under way for so long. The pool is left alone for as long at least: its
    /// nodes were closed for nothing, and may be so for half of the time at most.
    pub(super) fn begin(&mut self, pool: &str, took: Duration, wait: Backoff, now: Timestamp) {
        let rest = self.0.entry(pool.to_owned()).or_default();
        rest.failures = rest.failures.saturating_add(1);
        let wait = Backoff { shortest: wait.shortest.max(took), longest: wait.longest.max(took) };
        rest.until = Some(now + wait.after(rest.failures));
    }

    /// A command for nodes of a pool was carried out. Says whether the pool was left alone until now.
    pub(super) fn forget(&mut self, pool: &str) -> bool {
        self.0.remove(pool).is_some_and(|rest| rest.until.is_some())
    }

    /// Says whether the time of a pool is over that was left alone until now.
    pub(super) fn end(&mut self, pools: &BTreeMap<String, Arc<NodePool>>, now: Timestamp) -> bool {
        self.0.retain(|pool, _| pools.contains_key(pool));
        let over = self.0.values_mut().filter_map(|rest| rest.until.take_if(|until| *until <= now));
        over.count() > 0
    }

    /// The pools that are left alone.
    pub(super) fn pools(&self) -> BTreeSet<String> {
        self.0.iter().filter(|(_, rest)| rest.until.is_some()).map(|(pool, _)| pool.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_is_left_alone_for_as_long_as_its_command_took_and_longer_each_time() {
        let wait = Backoff { shortest: Duration::from_secs(10), longest: Duration::from_mins(5) };
        let pools = BTreeMap::from([("a".to_owned(), Arc::new(NodePool::named("a")))]);
        let mut rests = Rests::default();
        let mut now = Timestamp::from_millis(0);
        let mut rest = |took: u64| {
            rests.begin("a", Duration::from_secs(took), wait, now);
            let began = now;
            while !rests.end(&pools, now) {
                assert_eq!(rests.pools(), BTreeSet::from(["a".to_owned()]));
                now = now + Duration::from_secs(1);
            }
            assert_eq!(rests.pools(), BTreeSet::new());
            now.since(began).as_secs()
        };
        assert_eq!([3, 3, 60, 600, 3].map(&mut rest), [10, 20, 240, 600, 160]);
    }
}
