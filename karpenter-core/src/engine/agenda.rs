//! Which objects to look at, and when.

use std::collections::BTreeSet;

use indexmap::IndexMap;

use crate::{FxBuild, Timestamp};

/// An object to look at.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Work {
    Claim(String),
    Node(String),
    Pool(String),
    Overlay(String),
}

/// The objects to look at now, and those to look at later. At most one entry of each kind for each object.
#[derive(Clone, Debug, Default)]
pub(super) struct Agenda {
    due: BTreeSet<Work>,
    later: IndexMap<Work, Timestamp, FxBuild>,
    queue: BTreeSet<(Timestamp, Work)>,
}

impl Agenda {
    /// Looks at an object in the next tick.
    pub(super) fn add(&mut self, work: Work) {
        self.due.insert(work);
    }

    /// Looks at an object then at the latest.
    pub(super) fn at(&mut self, work: Work, time: Timestamp) {
        if self.later.get(&work).is_some_and(|known| *known <= time) {
            return;
        }
        if let Some(known) = self.later.insert(work.clone(), time) {
            self.queue.remove(&(known, work.clone()));
        }
        self.queue.insert((time, work));
    }

    /// When an object is looked at at the latest.
    pub(super) fn time_of(&self, work: &Work) -> Option<Timestamp> {
        self.later.get(work).copied()
    }

    /// The objects to look at now. They are forgotten.
    pub(super) fn take(&mut self, now: Timestamp) -> BTreeSet<Work> {
        let mut out = std::mem::take(&mut self.due);
        while let Some((time, _)) = self.queue.first()
            && *time <= now
        {
            out.extend(self.queue.pop_first().map(|(_, work)| work));
        }
        for work in &out {
            if let Some(time) = self.later.swap_remove(work) {
                self.queue.remove(&(time, work.clone()));
            }
        }
        out
    }

    /// Whether there is something to look at in the next tick, whenever that is.
    pub(super) fn is_due(&self) -> bool {
        !self.due.is_empty()
    }

    /// When there is something to look at next.
    pub(super) fn wake(&self) -> Option<Timestamp> {
        self.queue.first().map(|(time, _)| *time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earlier_time_counts_and_is_forgotten_once_it_has_come() {
        let at = Timestamp::from_millis;
        let work = || Work::Claim("c".to_owned());
        let mut agenda = Agenda::default();
        agenda.at(work(), at(5));
        agenda.at(work(), at(9));
        agenda.at(work(), at(3));
        assert_eq!(agenda.wake(), Some(at(3)));
        assert!(agenda.take(at(2)).is_empty());
        assert_eq!(agenda.take(at(3)).into_iter().collect::<Vec<_>>(), [work()]);
        assert_eq!((agenda.wake(), agenda.is_due()), (None, false));
    }
}
