//! What a cluster holds, as one immutable value.
//!
//! A [`Snapshot`] sorts a cluster's objects into what planning needs: the pods that want a place, and the [`Place`]s
//! that exist. A place is a node, a claim whose node has not come yet, or both, as it will be when pods can bind to it.

mod builder;
mod census;
mod change;
mod daemons;
mod place;
mod ports;
mod requests;
mod sites;
mod storage;
pub(crate) mod tenancy;
mod unique;

use std::{collections::BTreeMap, sync::Arc};

pub use builder::{SnapshotBuilder, SnapshotError};
pub(crate) use census::{is_provisionable, must_move};
pub use place::Place;
pub(crate) use place::is_ephemeral_taint;
pub use ports::HostPort;
pub use requests::{daemon_requests, pod_requests};
pub use storage::{Attachment, Storage, VolumeNeeds, VolumeProblem};

use crate::api::{DaemonSet, NodeClaim, NodePool, ObjectKey, Pod, PodDisruptionBudget};

/// A cluster at one moment. Clones share what they have in common.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    objects: Arc<Objects>,
    /// By namespace and name.
    pods: Arc<[Arc<Pod>]>,
    /// The indices of the pods that want a place, in order.
    pending: Vec<usize>,
    places: Vec<Arc<Place>>,
    /// For each pod the place of the node that it is bound to, by index, as far as that was noted: nothing for clusters that were
    /// only thought of.
    stands: Arc<[Option<u32>]>,
}

/// The objects that stay the same wherever pods go.
#[derive(Clone, Debug, Default, PartialEq)]
struct Objects {
    pools: Vec<NodePool>,
    daemonsets: Vec<DaemonSet>,
    unlaunched: Vec<NodeClaim>,
    exchanges: BTreeMap<String, Exchange>,
    budgets: Vec<PodDisruptionBudget>,
    namespaces: BTreeMap<String, BTreeMap<String, String>>,
    storage: Storage,
}

/// A claim that goes once others are there in its stead, or one of those others.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Exchange {
    /// The same for all that are exchanged for one another.
    pub(crate) number: usize,
    pub(crate) is_outgoing: bool,
}

impl Snapshot {
    /// Starts an empty snapshot.
    pub fn builder() -> SnapshotBuilder {
        SnapshotBuilder::default()
    }

    /// The node pools in the order of their names.
    pub fn pools(&self) -> &[NodePool] {
        &self.objects.pools
    }

    /// The node pool of this name.
    pub fn pool(&self, name: &str) -> Option<&NodePool> {
        self.objects.pools.binary_search_by(|p| p.name().cmp(name)).ok().map(|i| &self.objects.pools[i])
    }

    /// The daemonsets in the order of namespace and name, each with the specification of its newest pod if it has one, but with
    /// the affinity of its template, and with the tolerations that the controller of daemonsets adds.
    pub fn daemonsets(&self) -> &[DaemonSet] {
        &self.objects.daemonsets
    }

    /// All pods, in the order of namespace and name.
    pub fn pods(&self) -> &[Arc<Pod>] {
        &self.pods
    }

    /// The pod of this namespace and name.
    pub fn pod(&self, key: &ObjectKey) -> Option<&Pod> {
        self.pod_index(key).map(|i| self.pods[i].as_ref())
    }

    /// The pod of this namespace and name, shared.
    pub(crate) fn shared_pod(&self, key: &ObjectKey) -> Option<&Arc<Pod>> {
        self.pod_index(key).map(|i| &self.pods[i])
    }

    /// The index among all pods of the pod of this namespace and name.
    pub(crate) fn pod_index(&self, key: &ObjectKey) -> Option<usize> {
        self.pod_index_of((key.namespace.as_str(), key.name.as_str())).ok()
    }

    /// The index of the pod of this namespace and name, or the index that it would have.
    fn pod_index_of(&self, key: (&str, &str)) -> Result<usize, usize> {
        self.pods.binary_search_by(|pod| pod.sort_key().cmp(&key))
    }

    /// The pods that want a place, in the order of namespace and name: those that the kube-scheduler refused, and those
    /// on nodes that are being deleted.
    pub fn pending(&self) -> impl ExactSizeIterator<Item = &Pod> + Clone {
        self.pending.iter().map(|&index| self.pods[index].as_ref())
    }

    /// The indices of the pending pods among all pods.
    pub(crate) fn pending_indices(&self) -> &[usize] {
        &self.pending
    }

    /// The places that exist, in the order of their names.
    pub fn places(&self) -> &[Arc<Place>] {
        &self.places
    }

    /// The claims that are not machines yet, in the order of their names.
    pub fn unlaunched(&self) -> &[NodeClaim] {
        &self.objects.unlaunched
    }

    /// Whether a claim is exchanged for others.
    pub(crate) fn exchange_of(&self, claim: &str) -> Option<Exchange> {
        self.objects.exchanges.get(claim).copied()
    }

    /// The pod disruption budgets in the order of namespace and name.
    pub fn budgets(&self) -> &[PodDisruptionBudget] {
        &self.objects.budgets
    }

    /// The labels of each namespace, by name. The label `kubernetes.io/metadata.name` is there even if it was not
    /// written, because the API server gives it to every namespace; a namespace of which only pods are known has this one.
    pub fn namespaces(&self) -> &BTreeMap<String, BTreeMap<String, String>> {
        &self.objects.namespaces
    }

    /// The volumes, and the claims on them.
    pub fn storage(&self) -> &Storage {
        &self.objects.storage
    }
}
