//! A whole cluster that lives by a clock of its own.
//!
//! A [`World`] has an [`ApiServer`], the controllers of Kubernetes that bear on where pods run (kube-scheduler, kubelets,
//! workloads, daemonsets, disruption budgets, node lifecycle, garbage collection), a [`FakeCloud`](crate::FakeCloud), and
//! a clock. An engine is given what [`World::take_events`] tells and gives back what [`World::execute`] carries out;
//! [`Live`] does both for [`Engine`](karpenter_core::engine::Engine), on one clock. Days pass in seconds, and every fault can be staged.
//!
//! Everything is decided by a seed and by what is asked of it: the same calls give the same events, to the byte. At each
//! step the rules of a cluster's life are looked at, and what breaks one is kept as a [`Breach`].
//!
//! What is left out: preemption, rolling updates of Deployments, dynamic resource allocation, and volumes that are made
//! before a pod mounts them.

mod api_server;
mod books;
mod controllers;
mod invariants;
mod live;
mod options;
mod rng;
pub mod scenario;
mod scheduler;
mod timeline;
mod workload;
mod world;

pub use api_server::{ApiObject, ApiServer};
pub use books::{Books, Counts, Sample};
pub use invariants::{Breach, Inspection};
pub use live::{Account, Exchange, Live};
pub use options::WorldOptions;
pub use rng::Rng;
pub use workload::{Workload, WorkloadKind};
pub use world::World;

/// Hashes quickly and alike in every run.
type FxBuild = std::hash::BuildHasherDefault<rustc_hash::FxHasher>;
