//! Node classes of which a launch told that they cannot be used.

use std::{collections::BTreeMap, time::Duration};

use crate::{Backoff, Timestamp, api::NodeClassRef};

/// No claim of a node class that was not ready is made for this long; it is looked at again by trying. A class that still is not
/// ready is left alone for twice as long, and so on: a claim each five minutes costs nobody anything.
const BLOCK: Backoff = Backoff { shortest: Duration::from_secs(30), longest: Duration::from_mins(5) };

/// The node classes that are left alone, or were until it was tried again. At most one entry for each class of a pool.
#[derive(Clone, Debug, Default)]
pub(super) struct Classes(BTreeMap<NodeClassRef, Block>);

#[derive(Clone, Debug)]
struct Block {
    /// Until when nobody tries; `None` once that is over, and nothing was bought since.
    until: Option<Timestamp>,
    /// How often it was tried in vain, one time after the other.
    failed_attempts: u32,
    why: String,
}

impl Classes {
    /// Leaves a class alone for a while. Claims that were made at the same time as one that told are one attempt.
    pub(super) fn block(&mut self, class: NodeClassRef, why: String, now: Timestamp) {
        let fresh = || Block { until: None, failed_attempts: 0, why: String::new() };
        let block = self.0.entry(class).or_insert_with(fresh);
        if block.until.is_none() {
            block.failed_attempts = block.failed_attempts.saturating_add(1);
            block.until = Some(now + BLOCK.after(block.failed_attempts));
            block.why = why;
        }
    }

    /// A machine of a class was bought. Says whether the class was left alone until now.
    pub(super) fn serve(&mut self, class: &NodeClassRef) -> bool {
        self.0.remove(class).is_some_and(|block| block.until.is_some())
    }

    /// Why a class is left alone, and until when.
    pub(super) fn block_of(&self, class: &NodeClassRef, now: Timestamp) -> Option<(&str, Timestamp)> {
        let block = self.0.get(class)?;
        Some((block.why.as_str(), block.until.filter(|until| now < *until)?))
    }

    /// Tries classes again of which it is time, and says whether there is one.
    pub(super) fn lapse(&mut self, now: Timestamp) -> bool {
        let mut is_any = false;
        for block in self.0.values_mut().filter(|block| block.until.is_some_and(|until| until <= now)) {
            block.until = None;
            is_any = true;
        }
        is_any
    }

    /// When a class is tried again.
    pub(super) fn wake(&self) -> Option<Timestamp> {
        self.0.values().filter_map(|block| block.until).min()
    }

    /// Forgets the classes that no pool uses any more, and says whether one of them was left alone until now.
    pub(super) fn retain(&mut self, is_used: impl Fn(&NodeClassRef) -> bool) -> bool {
        self.0.extract_if(.., |class, _| !is_used(class)).filter(|(_, block)| block.until.is_some()).count() > 0
    }
}
