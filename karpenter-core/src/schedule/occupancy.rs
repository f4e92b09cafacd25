//! What the pods of one node take of it for themselves, its resources apart.

use super::{class::Classes, lot::Lot, topology::Neighbours, volumes::Attached};
use crate::{Snapshot, cluster::HostPort};

/// The ports and volumes of a node that are taken, and the pods whose neighbours others would be.
#[derive(Clone, Debug, Default)]
pub(super) struct Occupancy {
    host_ports: Vec<HostPort>,
    neighbours: Neighbours,
    attached: Attached,
}

/// What keeps all units of a lot from a node, resources, labels and taints apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Conflict {
    /// A port is taken.
    HostPort,
    /// Pods that are there, or that belong to the same unit.
    Neighbours,
    /// As much of the workload as a node may have.
    Workload,
    /// No more volumes can be attached.
    Volumes,
}

impl Occupancy {
    pub(super) fn with_ports(host_ports: Vec<HostPort>) -> Self {
        Self { host_ports, ..Self::default() }
    }

    /// That of a place that exists, by its index.
    pub(super) fn of_place(snapshot: &Snapshot, index: usize, classes: &Classes<'_>) -> Self {
        let place = &snapshot.places()[index];
        Self {
            host_ports: place.host_ports.clone(),
            neighbours: Neighbours::at_place(classes, index),
            attached: Attached::at_place(place),
        }
    }

    /// How many units of a lot the node may take.
    pub(super) fn most(&self, lot: &Lot) -> i64 {
        self.most_bound(lot).min(self.neighbours.most_of_workloads(&lot.manners))
    }

    /// How many units of a lot the kube-scheduler would bind to the node. It knows nothing of shares of workloads.
    pub(super) fn most_bound(&self, lot: &Lot) -> i64 {
        let by_ports = match lot.host_ports.as_slice() {
            [] => i64::MAX,
            wanted => i64::from(!HostPort::any_clash(wanted, &self.host_ports)),
        };
        by_ports.min(self.neighbours.most(&lot.manners)).min(self.attached.most(&lot.volumes))
    }

    /// Why the node can take no unit of a lot, if it cannot.
    pub(super) fn conflict(&self, lot: &Lot) -> Option<Conflict> {
        if HostPort::any_clash(&lot.host_ports, &self.host_ports) {
            Some(Conflict::HostPort)
        } else if self.neighbours.most(&lot.manners) == 0 {
            Some(Conflict::Neighbours)
        } else if self.neighbours.most_of_workloads(&lot.manners) == 0 {
            Some(Conflict::Workload)
        } else {
            (self.attached.most(&lot.volumes) == 0).then_some(Conflict::Volumes)
        }
    }

    /// Adds units of a lot.
    pub(super) fn add(&mut self, lot: &Lot, count: i64) {
        self.host_ports.extend_from_slice(&lot.host_ports);
        self.neighbours.add(&lot.manners, count);
        self.attached.add(&lot.volumes, count);
    }
}
