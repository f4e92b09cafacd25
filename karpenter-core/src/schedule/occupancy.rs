//! What the pods of one node take of it for themselves, its resources apart.

use super::{
    class::Classes,
    lot::Lot,
    topology::{Manners, Neighbours},
    volumes::{Attached, Volumes},
};
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
        self.most_of(&lot.host_ports, &lot.manners, &lot.volumes)
    }

    /// How many units the node may take of which each takes these ports and volumes and bears with others like this.
    pub(super) fn most_of(&self, host_ports: &[HostPort], manners: &Manners, volumes: &Volumes) -> i64 {
        self.most_bound_of(host_ports, manners, volumes).min(self.neighbours.most_of_workloads(manners))
    }

    /// How many units of a lot the kube-scheduler would bind to the node. It knows nothing of shares of workloads.
    pub(super) fn most_bound(&self, lot: &Lot) -> i64 {
        self.most_bound_of(&lot.host_ports, &lot.manners, &lot.volumes)
    }

    fn most_bound_of(&self, host_ports: &[HostPort], manners: &Manners, volumes: &Volumes) -> i64 {
        let is_taken = HostPort::any_clash(host_ports, &self.host_ports);
        let by_ports = if host_ports.is_empty() { i64::MAX } else { i64::from(!is_taken) };
        by_ports.min(self.neighbours.most(manners)).min(self.attached.most(volumes))
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
        self.add_of(&lot.host_ports, &lot.manners, (&lot.volumes, count));
    }

    /// Adds units of which each takes these ports and volumes and bears with others like this.
    pub(super) fn add_of(&mut self, host_ports: &[HostPort], manners: &Manners, (volumes, count): (&Volumes, i64)) {
        self.host_ports.extend_from_slice(host_ports);
        self.neighbours.add(manners, count);
        self.attached.add(volumes, count);
    }
}
