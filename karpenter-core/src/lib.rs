#![doc = include_str!("../README.md")]

pub mod api;
pub mod catalog;
pub mod cluster;
pub mod disrupt;
pub mod driver;
pub mod engine;
pub mod hashstructure;
pub mod labels;
pub mod lifecycle;
mod price;
pub mod provider;
mod quantity;
pub mod reason;
mod requirements;
mod resources;
pub mod schedule;
#[cfg(feature = "proptest")]
pub mod strategies;
mod time;

pub use catalog::{Catalog, CatalogError, Catalogs, InstanceType, Offering, OfferingKey, Overhead};
pub use cluster::{Snapshot, SnapshotBuilder, SnapshotError};
pub use price::Price;
pub use provider::CloudProvider;
pub use quantity::{Quantity, QuantityError};
pub use reason::Reason;
pub use requirements::{NodeAlternatives, Requirement, Requirements};
pub use resources::{ResourceList, ResourceName};
pub use schedule::{Plan, PlannedClaim, Planner, PlannerOptions};
pub(crate) use time::Backoff;
pub use time::{Timestamp, TimestampError};

/// Hashes quickly and alike in every run.
pub(crate) type FxBuild = std::hash::BuildHasherDefault<rustc_hash::FxHasher>;
