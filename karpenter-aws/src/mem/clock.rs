use std::{
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use karpenter_core::Timestamp;

use crate::clock::{BoxFuture, Clock};

/// How often all others are let go first where a real clock would wait.
const YIELDS: u32 = 8;

/// A clock that stands still unless it is set. It does not wait: it only lets all others go first.
#[derive(Clone, Debug, Default)]
pub struct ManualClock(Arc<AtomicI64>);

impl ManualClock {
    /// A clock that is at this time.
    pub fn at(now: Timestamp) -> Self {
        let clock = Self::default();
        clock.set(now);
        clock
    }

    /// Sets the time.
    pub fn set(&self, now: Timestamp) {
        self.0.store(now.as_millis(), Ordering::SeqCst);
    }

    /// Lets time pass.
    pub fn advance(&self, duration: Duration) {
        self.set(self.now() + duration);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.0.load(Ordering::SeqCst))
    }

    fn sleep(&self, _duration: Duration) -> BoxFuture<()> {
        Box::pin(Yield(YIELDS))
    }
}

/// Lets all others go first once, as they may while a network answers.
pub(super) fn others_first() -> impl Future<Output = ()> {
    Yield(1)
}

struct Yield(u32);

impl Future for Yield {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.0 == 0 {
            return Poll::Ready(());
        }
        self.0 -= 1;
        context.waker().wake_by_ref();
        Poll::Pending
    }
}
