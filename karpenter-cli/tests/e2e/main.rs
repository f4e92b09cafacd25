//! The controller on a real control plane: an API server, a kube-scheduler and kwok.
//!
//! `KARPENTER_CONTROLPLANE` names the binary of the control plane. Without it these tests say so and do nothing.

mod definitions;
mod life;
mod live;
mod overlays;
mod plane;
mod size;
mod trouble;
mod wire;
