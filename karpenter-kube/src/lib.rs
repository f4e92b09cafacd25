//! The node-provisioning engine as a controller on a real Kubernetes cluster.
//!
//! A [`Controller`] watches a cluster, tells the engine of `karpenter-core` what it sees, and carries out what the engine asks
//! for: with the API server, and with any [`CloudProvider`](karpenter_core::CloudProvider).
//!
//! ```no_run
//! use std::sync::Arc;
//!
//! use karpenter_core::CloudProvider;
//! use karpenter_kube::{Client, Controller, ControllerOptions};
//!
//! # async fn run(cloud: Arc<dyn CloudProvider>) -> Result<(), Box<dyn std::error::Error>> {
//! let client = Client::try_from(karpenter_kube::config(None, None).await?)?;
//! let controller = Controller::new(client, cloud, ControllerOptions::default());
//! controller.run(async { tokio::signal::ctrl_c().await.unwrap_or_default() }).await?;
//! # Ok(())
//! # }
//! ```

mod carry;
mod census;
mod clock;
mod connect;
mod controller;
mod crds;
mod dump;
mod kinds;
#[cfg(feature = "kwok")]
mod kwok;
mod lease;
mod metrics;
mod mirror;
mod patch;
#[cfg(feature = "server")]
mod server;
mod watch;
mod write;

pub use carry::CallLimits;
pub use connect::{ConnectError, config};
pub use controller::{Controller, ControllerOptions, Stopped};
pub use crds::CUSTOM_RESOURCE_DEFINITIONS;
pub use dump::{DumpError, Page, dump, machines, node_pools};
#[cfg(feature = "kwok")]
pub use kwok::KwokCloud;
pub use lease::LeaseOptions;
pub use metrics::{Metrics, Probes};
#[cfg(feature = "server")]
pub use server::{serve_metrics, serve_probes};

pub use kube::{Client, Config};
