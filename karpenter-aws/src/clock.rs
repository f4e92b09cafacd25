//! What time it is, and waiting.

use std::{future::Future, pin::Pin, time::Duration};

use karpenter_core::Timestamp;

/// A future that borrows nothing.
pub type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// What the provider knows of time. It comes from whoever runs the provider.
pub trait Clock: Send + Sync {
    /// What time it is.
    fn now(&self) -> Timestamp;

    /// Is ready after this long.
    fn sleep(&self, duration: Duration) -> BoxFuture<()>;
}
