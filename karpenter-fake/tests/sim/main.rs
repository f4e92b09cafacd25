//! Clusters that live for hours and days, with a small engine that is no better than it must be.
#![cfg(feature = "sim")]

mod faults;
mod life;
mod naive;
