//! The life of one claim: launch, registration, initialization, and its end.
//!
//! Everything here is a function of objects as they are and of the time: it says what to write and what to do, and does
//! neither. Asked again with the same objects it says the same, so that a controller that was stopped at any point goes on
//! where it was. The order of events and the names of conditions are those of Karpenter
//! (<https://karpenter.sh/docs/concepts/nodeclaims/>).

mod collection;
mod consistency;
mod demotion;
mod drain;
mod hydration;
mod initialization;
mod launch;
mod living;
mod registration;
mod repair;
mod termination;

pub use collection::{Census, Lost};
pub use consistency::shortfall;
pub use demotion::demoted;
pub(crate) use demotion::may_be_demoted;
pub(crate) use drain::is_next;
pub use drain::{DEFAULT_GRACE_PERIOD, Drain, DrainStep, drain, is_waited_for};
pub use hydration::{hydrate_claim, hydrate_node};
pub use initialization::initialize;
pub use launch::{LaunchReaction, launch_backoff, launched, react_to_launch_error};
pub(crate) use living::LAUNCH_TIMED_OUT;
pub use living::{LAUNCH_TIMEOUT, REGISTRATION_TIMEOUT, Step, expiry, launch_deadline, live};
pub use registration::register;
pub use repair::{Ailment, ailment, may_repair};
pub use termination::{
    MIN_DRAIN, Stage, deadline, mark_disrupted, prepare_to_end, prepare_to_leave, unmark_disrupted, without_finalizer,
};
