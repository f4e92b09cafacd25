//! Ending a search before it is done.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

/// Tells planning to end with what it has found so far. Clones are one flag.
///
/// The core has no clock: whoever has a deadline sets the flag from another thread when it has passed. A flag that was set
/// stays set.
///
/// ```
/// use std::{thread, time::Duration};
///
/// use karpenter_core::{Catalogs, Planner, Snapshot, schedule::StopFlag};
///
/// let stop = StopFlag::default();
/// let deadline = stop.clone();
/// thread::spawn(move || {
///     thread::sleep(Duration::from_secs(5));
///     deadline.stop();
/// });
/// let snapshot = Snapshot::builder().build()?;
/// let plan = Planner::default().stopped_by(&stop).plan(&snapshot, &Catalogs::default());
/// assert!(plan.is_complete());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct StopFlag {
    /// How often the flag is still found not set; without end if [`ENDLESS`].
    looks_left: Arc<AtomicUsize>,
}

const ENDLESS: usize = usize::MAX;

impl StopFlag {
    /// A flag that sets itself once it has been looked at so many times. It ends a plan at the same point whenever it is made on one
    /// thread, which a clock does not: for tests of what is stopped.
    pub fn after_looks(looks: usize) -> Self {
        Self { looks_left: Arc::new(AtomicUsize::new(looks)) }
    }

    /// Tells all that look at the flag to end.
    pub fn stop(&self) {
        self.looks_left.store(0, Ordering::Relaxed);
    }

    /// Whether it is time to end.
    pub fn is_stopped(&self) -> bool {
        match self.looks_left.load(Ordering::Relaxed) {
            ENDLESS => false,
            0 => true,
            // Two threads may look at once, and the flag may be set meanwhile: it is never unset.
            _ => {
                self.looks_left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_err()
            }
        }
    }
}

impl Default for StopFlag {
    fn default() -> Self {
        Self::after_looks(ENDLESS)
    }
}

#[cfg(test)]
mod tests {
    use super::StopFlag;

    #[test]
    fn a_flag_stays_set() {
        let flag = StopFlag::default();
        assert!(!flag.is_stopped());
        flag.clone().stop();
        assert!(flag.is_stopped() && flag.is_stopped());
    }

    #[test]
    fn a_flag_sets_itself_after_some_looks() {
        let flag = StopFlag::after_looks(2);
        assert_eq!([(); 4].map(|()| flag.is_stopped()), [false, false, true, true]);
    }
}
