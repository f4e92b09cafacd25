#![doc = include_str!("../README.md")]

pub use async_trait::async_trait;
/// Machines of EC2.
#[cfg(feature = "aws")]
pub use karpenter_aws as aws;
pub use karpenter_core::*;
/// The cloud and the cluster in memory, the checker of plans and the conformance kit for providers.
#[cfg(feature = "fake")]
pub use karpenter_fake as fake;
/// The controller of a real cluster.
#[cfg(feature = "kube")]
pub use karpenter_kube as kube;
