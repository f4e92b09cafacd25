#![doc = include_str!("../README.md")]

pub mod api;
mod batch;
pub mod clock;
pub mod convert;
pub mod ec2;
pub mod image;
pub mod instance_type;
pub mod interruption;
#[cfg(feature = "kube")]
mod joined;
pub mod mem;
pub mod nodeclass;
#[cfg(feature = "kube")]
mod nodeclasses;
pub mod price;
pub mod provider;
#[cfg(feature = "sdk")]
pub mod sdk;
pub mod userdata;
pub mod version;
mod wire;
#[cfg(feature = "kube")]
mod zonal_shifts;

pub use api::{ApiError, AwsApi};
pub use clock::Clock;
#[cfg(feature = "kube")]
pub use joined::JoinedMachines;
#[cfg(feature = "kube")]
pub use nodeclasses::{NodeClasses, node_classes};
#[cfg(feature = "kube")]
pub use zonal_shifts::ZonalShifts;
