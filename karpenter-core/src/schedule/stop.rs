//! Ending a search before it is done.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
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
#[derive(Clone, Debug, Default)]
pub struct StopFlag(Arc<AtomicBool>);

impl StopFlag {
    /// Tells all that look at the flag to end.
    pub fn stop(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether it is time to end.
    pub fn is_stopped(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
