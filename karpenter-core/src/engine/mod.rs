//! A controller as a state machine: what became known goes in, what is to be done comes out.
//!
//! The shell tells the engine what changed in the cluster and what came of earlier actions, each as an [`Event`], says what
//! time it is, and carries out the [`Action`]s that it is given, in any order and as many at a time as it likes.

mod action;
mod event;

pub use action::{Action, ActionId, ActionResult, Note, Refusal, Request};
pub use event::{Event, Object, ObjectRef};
