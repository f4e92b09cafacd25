use std::{
    cmp::{Ordering, Reverse},
    collections::BinaryHeap,
};

use karpenter_core::Timestamp;

/// What will happen and when; things of one time happen in the order in which they were planned.
#[derive(Clone, Debug)]
pub(crate) struct Timeline<T> {
    entries: BinaryHeap<Reverse<Entry<T>>>,
    planned: u64,
}

#[derive(Clone, Debug)]
struct Entry<T> {
    at: Timestamp,
    number: u64,
    what: T,
}

impl<T> Timeline<T> {
    pub(crate) fn new() -> Self {
        Self { entries: BinaryHeap::new(), planned: 0 }
    }

    pub(crate) fn plan(&mut self, at: Timestamp, what: T) {
        self.planned += 1;
        self.entries.push(Reverse(Entry { at, number: self.planned, what }));
    }

    /// When the next thing happens.
    pub(crate) fn next_at(&self) -> Option<Timestamp> {
        self.entries.peek().map(|Reverse(entry)| entry.at)
    }

    /// The next thing, if its time has come.
    pub(crate) fn pop_until(&mut self, now: Timestamp) -> Option<(Timestamp, T)> {
        self.next_at().filter(|at| *at <= now)?;
        self.entries.pop().map(|Reverse(entry)| (entry.at, entry.what))
    }
}

impl<T> Entry<T> {
    fn rank(&self) -> (Timestamp, u64) {
        (self.at, self.number)
    }
}

impl<T> PartialEq for Entry<T> {
    fn eq(&self, other: &Self) -> bool {
        self.rank() == other.rank()
    }
}

impl<T> Eq for Entry<T> {}

impl<T> PartialOrd for Entry<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Entry<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.rank().cmp(&other.rank())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn things_happen_in_the_order_of_time_and_then_of_planning() {
        let mut timeline = Timeline::new();
        for (at, what) in [(5, "c"), (1, "a"), (5, "d"), (2, "b")] {
            timeline.plan(Timestamp::from_millis(at), what);
        }
        assert_eq!(timeline.pop_until(Timestamp::from_millis(0)), None);
        let happened = std::iter::from_fn(|| timeline.pop_until(Timestamp::from_millis(5)));
        assert_eq!(happened.map(|(_, what)| what).collect::<String>(), "abcd");
    }
}
