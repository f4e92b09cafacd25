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

pub(crate) use collection::Census;
pub(crate) use consistency::shortfall;
pub(crate) use demotion::{demoted, may_be_demoted};
pub use drain::{DEFAULT_GRACE_PERIOD, Drain, DrainStep, drain};
pub(crate) use drain::{is_next, is_waited_for};
pub(crate) use hydration::{hydrate_claim, hydrate_node};
pub(crate) use initialization::initialize;
pub(crate) use launch::{LaunchReaction, react_to_launch_error};
pub use launch::{launch_backoff, launched};
pub(crate) use living::{EXPIRED, LAUNCH_TIMED_OUT, REGISTRATION_TIMED_OUT, registration_deadline};
pub use living::{LAUNCH_TIMEOUT, REGISTRATION_TIMEOUT, Step, launch_deadline, live};
pub use registration::register;
pub use repair::{Ailment, ailment, may_repair};
pub use termination::{MIN_DRAIN, deadline, mark_disrupted};
pub(crate) use termination::{Stage, prepare_to_end, prepare_to_leave, unmark_disrupted, without_finalizer};
