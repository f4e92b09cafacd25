//! What EC2 and its neighbours say and are told, as plain types of our own.
//!
//! A field is here because the provider reads or writes it; all else is left out. Lists come whole: whoever implements
//! [`AwsApi`](crate::AwsApi) turns the pages.

mod filter;
pub mod fleet;
mod image;
pub mod instance;
mod instance_type;
pub mod network;
pub mod price;
pub mod profile;
pub mod queue;
pub mod reservation;
pub mod shift;
pub mod template;

use std::collections::BTreeMap;

pub use filter::Filter;
pub use image::Image;
pub use instance_type::{
    EbsInfo, EbsOptimizedInfo, EfaInfo, GpuDevice, GpuInfo, InferenceAcceleratorInfo, InferenceDevice,
    InstanceStorageInfo, InstanceTypeInfo, MemoryInfo, NetworkCard, NetworkInfo, NeuronCoreInfo, NeuronDevice,
    NeuronInfo, PlacementGroupInfo, ProcessorInfo, VcpuInfo, thousandths_of,
};

/// Tags by their keys.
pub type Tags = BTreeMap<String, String>;
