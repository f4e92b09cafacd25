//! The built command, as a user runs it.
#![expect(clippy::unwrap_used, reason = "the helpers of tests fail as tests do")]

mod bad_input;
mod check;
mod common;
mod consolidate;
mod convert;
mod explain;
mod formats;
mod older;
mod outlook;
mod overlays;
mod policies;
mod pools;
mod simulate;
mod tables;
mod whatif;
