//! What EC2 says will happen to instances.

mod health;
pub mod message;
mod queue;

pub use health::{Ailment, HealthCheck};
pub use queue::InterruptionQueue;
