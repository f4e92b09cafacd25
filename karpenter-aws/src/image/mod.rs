//! Which images nodes start from.

mod choice;
mod parameters;
mod query;

pub use choice::{Candidate, chosen, image_of};
use karpenter_core::{Requirement, Requirements, labels as core_labels};
pub use parameters::{ImageParameter, UnsupportedAlias, parameters};
pub use query::{ImageQuery, queries};

use crate::{instance_type::labels, nodeclass::AmiFamily};

/// What an image that AWS publishes is made for. An image of a user's own has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Variant {
    /// Machines without accelerators.
    Standard,
    /// Machines with graphics processors.
    Nvidia,
    /// Machines with AWS Neuron devices.
    Neuron,
    /// Windows of one build.
    Windows(AmiFamily),
}

impl Variant {
    /// What the labels of an instance type must be.
    pub fn requirements(self) -> Requirements {
        let mut out = Requirements::new();
        match self {
            Self::Standard => {
                out.add(labels::ACCELERATOR_COUNT, Requirement::ABSENT);
                out.add(labels::GPU_COUNT, Requirement::ABSENT);
            }
            Self::Nvidia => out.add(labels::GPU_COUNT, Requirement::EXISTS),
            Self::Neuron => out.add(labels::ACCELERATOR_COUNT, Requirement::EXISTS),
            Self::Windows(family) => {
                out.add(core_labels::OS, Requirement::one_of(["windows"]));
                if let Some(build) = family.windows_build() {
                    out.add(labels::WINDOWS_BUILD, Requirement::one_of([build]));
                }
            }
        }
        out
    }
}

#[cfg(test)]
mod tests;
