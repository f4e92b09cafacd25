#![doc = include_str!("../README.md")]

pub mod catalog;
pub mod checker;
pub mod cloud;
pub mod cluster;
pub mod conformance;
#[cfg(feature = "sim")]
pub mod sim;

pub use catalog::{generated_catalog, generated_types};
pub use checker::{CertificateError, Violation, check, check_certificate, check_with_options};
pub use cloud::FakeCloud;
pub use cluster::FakeCluster;
pub use conformance::Conformance;
