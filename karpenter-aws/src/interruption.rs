//! What EC2 says will happen to instances.

pub mod message;
mod queue;

pub use queue::InterruptionQueue;
