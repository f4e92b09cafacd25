//! The life of one claim: launch, registration, initialization, and its end.
//!
//! Everything here is a function of objects as they are and of the time: it says what to write and what to do, and does
//! neither. Asked again with the same objects it says the same, so that a controller that was stopped at any point goes on
//! where it was. The order of events and the names of conditions are those of Karpenter
//! (<https://karpenter.sh/docs/concepts/nodeclaims/>).

mod collection;
mod condition;
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
pub use condition::{condition, set_condition};
pub use consistency::shortfall;
pub use demotion::demoted;
pub(crate) use demotion::may_be_demoted;
pub(crate) use drain::is_next;
pub use drain::{DEFAULT_GRACE_PERIOD, Drain, DrainStep, drain, is_waited_for};
pub use hydration::{hydrate_claim, hydrate_node};
pub use initialization::initialize;
pub(crate) use launch::backoff_after;
pub use launch::{LaunchReaction, launch_backoff, launched, react_to_launch_error};
pub(crate) use living::LAUNCH_TIMED_OUT;
pub use living::{LAUNCH_TIMEOUT, REGISTRATION_TIMEOUT, Step, expiry, launch_deadline, live};
pub use registration::register;
pub use repair::{Ailment, ailment, may_repair};
pub use termination::{
    MIN_DRAIN, Stage, deadline, mark_disrupted, prepare_to_end, prepare_to_leave, unmark_disrupted, without_finalizer,
};

/// The condition of a claim that has a machine.
pub const LAUNCHED: &str = "Launched";
/// The condition of a claim whose node has joined the cluster.
pub const REGISTERED: &str = "Registered";
/// The condition of a claim whose node is ready for pods.
pub const INITIALIZED: &str = "Initialized";
/// The condition of a claim of which all of the above holds.
pub const READY: &str = "Ready";
/// The condition of a claim of which the machine was told to go.
pub const INSTANCE_TERMINATING: &str = "InstanceTerminating";
/// The condition of a claim of which no pod is left that must leave first.
pub const DRAINED: &str = "Drained";
/// The condition of a claim whose node has no volumes attached any more that must be detached first.
pub const VOLUMES_DETACHED: &str = "VolumesDetached";
/// The condition of a claim whose node was chosen to go.
pub const DISRUPTION_REASON: &str = "DisruptionReason";
/// The condition of a claim whose node pods have left alone for as long as its pool asks for.
pub const CONSOLIDATABLE: &str = "Consolidatable";
/// The condition of a claim whose node has what was promised of it.
pub const CONSISTENT_STATE_FOUND: &str = "ConsistentStateFound";
