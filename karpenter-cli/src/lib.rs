#![doc = include_str!("../README.md")]

pub mod args;
#[cfg(feature = "kube")]
mod aside;
#[cfg(feature = "aws")]
pub mod aws;
pub mod catalog;
pub mod check;
pub mod consolidate;
pub mod convert;
pub mod error;
pub mod explain;
#[cfg(feature = "kube")]
pub mod live;
pub mod load;
pub mod outlook;
pub mod output;
pub mod plan;
pub mod pool_outlook;
pub mod recording;
pub mod replay;
pub mod report;
#[cfg(feature = "kube")]
pub mod run;
pub mod simulate;
pub mod whatif;

pub use error::Error;
