//! The built command, as a user runs it.
#![expect(clippy::unwrap_used, reason = "the helpers of tests fail as tests do")]

mod bad_input;
mod common;
mod formats;
mod older;
mod tables;
