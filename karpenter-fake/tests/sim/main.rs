//! Clusters that live for hours and days: with a small engine that is no better than it must be, and with the real one.
#![cfg(feature = "sim")]

mod changes;
mod faults;
mod life;
mod live;
mod naive;
