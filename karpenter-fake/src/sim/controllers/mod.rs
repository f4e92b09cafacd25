//! The controllers of Kubernetes that bear on where pods are and on what becomes of nodes.
//!
//! Each is told of every change, in order, and then does what is called for. None looks at a clock.

mod budgets;
mod daemons;
mod disks;
mod kubelet;
mod lifecycle;
mod volumes;
mod workloads;

pub(super) use budgets::Budgets;
pub(super) use daemons::Daemons;
pub(super) use disks::Disks;
pub(super) use kubelet::{Kubelets, set_condition};
pub(super) use lifecycle::Lifecycle;
pub(super) use volumes::Attacher;
pub(super) use workloads::Workloads;
