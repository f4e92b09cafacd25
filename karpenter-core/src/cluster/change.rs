//! The cluster as it would be.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{Place, Snapshot, SnapshotError, builder::name_namespaces, census::is_provisionable};
use crate::api::{NodeClaim, NodePool, ObjectKey, Pod, Workload};

impl Snapshot {
    /// The cluster with further pods that want a place. What both have in common is shared, not copied.
    ///
    /// ```
    /// use karpenter_core::{Snapshot, api::Pod};
    ///
    /// let snapshot = Snapshot::builder().pods(Pod::named("web").cpu("500m").replicas(40)).build()?;
    /// let later = snapshot.with_pending(Pod::named("batch").cpu("2"))?;
    /// assert_eq!((snapshot.pending().len(), later.pending().len()), (40, 41));
    /// # Ok::<(), karpenter_core::SnapshotError>(())
    /// ```
    ///
    /// # Errors
    /// A pod that does not wait for the engine, one without a name or with the name of another, or a mistake in a pod that
    /// was written in code.
    pub fn with_pending(&self, pods: impl Into<Workload>) -> Result<Self, SnapshotError> {
        let Workload { mut pods, error } = pods.into();
        if let Some(error) = error {
            return Err(error.into());
        }
        pods.sort_by(|a, b| a.sort_key().cmp(&b.sort_key()));
        if pods.iter().any(|pod| pod.metadata.name.is_empty()) {
            return Err(SnapshotError::Unnamed { kind: "Pod" });
        }
        let is_known = |pod: &Pod| self.pod_index_of(pod.sort_key()).is_ok();
        let twice = pods.windows(2).find(|pair| pair[0].sort_key() == pair[1].sort_key()).map(|pair| &pair[0]);
        if let Some(pod) = twice.or_else(|| pods.iter().find(|pod| is_known(pod))) {
            return Err(SnapshotError::Duplicate { kind: "Pod", name: pod.key().to_string() });
        }
        if let Some(pod) = pods.iter().find(|pod| !pod.spec.node_name.is_empty() || !is_provisionable(pod)) {
            return Err(SnapshotError::NotPending { pod: pod.key() });
        }
        Ok(self.joined_by(&pods))
    }

    /// The cluster with further pods, in order, which want a place.
    pub(crate) fn joined_by(&self, further: &[Arc<Pod>]) -> Self {
        let mut pods = Vec::with_capacity(self.pods.len() + further.len());
        // Where they are among all pods, and how many pods of before come before them.
        let (mut joined, mut before) = (Vec::with_capacity(further.len()), Vec::with_capacity(further.len()));
        let mut from = 0;
        for pod in further {
            let (Ok(to) | Err(to)) = self.pod_index_of(pod.sort_key());
            pods.extend_from_slice(&self.pods[from..to]);
            joined.push(pods.len());
            before.push(to);
            pods.push(pod.clone());
            from = to;
        }
        pods.extend_from_slice(&self.pods[from..]);
        let mut passed = 0;
        let moved = self.pending.iter().map(|&index| {
            passed += before[passed..].iter().take_while(|&&at| at <= index).count();
            index + passed
        });
        let mut pending: Vec<usize> = moved.chain(joined).collect();
        pending.sort_unstable();
        let mut objects = self.objects.clone();
        if further.iter().any(|pod| !objects.namespaces.contains_key(pod.namespace())) {
            name_namespaces(&mut Arc::make_mut(&mut objects).namespaces, further);
        }
        Self { objects, pods: pods.into(), pending, stands: Arc::default(), ..self.clone() }
    }

    /// The cluster without some of the pods that want a place, by index, in order.
    pub(crate) fn without_pending(&self, gone: &[usize]) -> Self {
        if gone.is_empty() {
            return self.clone();
        }
        let mut pods = Vec::with_capacity(self.pods.len() - gone.len());
        let mut from = 0;
        for &index in gone {
            pods.extend_from_slice(&self.pods[from..index]);
            from = index + 1;
        }
        pods.extend_from_slice(&self.pods[from..]);
        let mut passed = 0;
        let left = self.pending.iter().filter_map(|index| {
            passed += usize::from(gone.get(passed) == Some(index));
            let is_gone = passed > 0 && gone[passed - 1] == *index;
            (!is_gone).then(|| index - passed)
        });
        Self { pending: left.collect(), pods: pods.into(), stands: Arc::default(), ..self.clone() }
    }

    /// The cluster with claims that are not machines yet.
    pub(crate) fn with_unlaunched(&self, claims: impl IntoIterator<Item = NodeClaim>) -> Self {
        let mut out = self.clone();
        Arc::make_mut(&mut out.objects).unlaunched.extend(claims);
        out
    }

    /// The cluster in which each pool, which keeps its name, is another.
    pub(crate) fn with_pools(&self, change: impl Fn(&mut NodePool)) -> Self {
        let mut out = self.clone();
        Arc::make_mut(&mut out.objects).pools.iter_mut().for_each(change);
        out
    }

    /// Whether it shares its pods, and the objects that stay the same wherever pods go, with another.
    pub(crate) fn shares_pods_and_objects(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.pods, &other.pods) && Arc::ptr_eq(&self.objects, &other.objects)
    }

    /// Whether all its places are those of another, shared.
    pub(crate) fn shares_places(&self, other: &Self) -> bool {
        self.places.len() == other.places.len() && self.places.iter().zip(&other.places).all(|(a, b)| Arc::ptr_eq(a, b))
    }

    /// Whether it is the same cluster. What is shared is not compared.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        fn are_same<T: PartialEq>(some: &[Arc<T>], others: &[Arc<T>]) -> bool {
            some.len() == others.len() && some.iter().zip(others).all(|(a, b)| Arc::ptr_eq(a, b) || a == b)
        }
        self.pending == other.pending
            && (Arc::ptr_eq(&self.objects, &other.objects) || self.objects == other.objects)
            && (Arc::ptr_eq(&self.pods, &other.pods) || are_same(&self.pods, &other.pods))
            && are_same(&self.places, &other.places)
    }

    /// The cluster without some places, by index, of whose pods these, by index, want other places.
    pub(crate) fn without_places(&self, gone: &BTreeSet<usize>, moving: impl IntoIterator<Item = usize>) -> Self {
        let stays = |(index, _): &(usize, &Arc<Place>)| !gone.contains(index);
        let places = self.places.iter().enumerate().filter(stays).map(|(_, place)| place.clone()).collect();
        let mut pending: Vec<usize> = self.pending.iter().copied().chain(moving).collect();
        pending.sort_unstable();
        Self { objects: self.objects.clone(), pods: self.pods.clone(), pending, places, stands: Arc::default() }
    }

    /// The cluster in which places that are not ready for pods take none.
    pub(crate) fn with_ready_places(&self) -> Self {
        let places = self.places.iter().enumerate();
        let unready = places.filter(|(_, place)| !place.is_initialized).map(|(index, _)| index).collect();
        self.with_closed_places(&unready)
    }

    /// The cluster in which these places, by index, take no pods.
    pub(crate) fn with_closed_places(&self, closed: &BTreeSet<usize>) -> Self {
        let mut places = self.places.clone();
        for &index in closed {
            Arc::make_mut(&mut places[index]).is_closed = true;
        }
        Self { places, ..self.clone() }
    }

    /// The cluster once pods are at the places, by name, that were found for them, with further places, and with none of its
    /// pods waiting.
    pub(crate) fn settled(&self, found: &BTreeMap<String, Vec<ObjectKey>>, further: Vec<Place>) -> Self {
        let mut places = self.places.clone();
        for place in &mut places {
            if let Some(pods) = found.get(&place.name) {
                let place = Arc::make_mut(place);
                for pod in pods.iter().filter_map(|key| self.shared_pod(key)) {
                    place.add_pod(pod, &self.objects.storage);
                }
                place.round();
            }
        }
        places.extend(further.into_iter().map(Arc::new));
        places.sort_by(|a, b| a.name.cmp(&b.name));
        Self { places, pending: Vec::new(), stands: Arc::default(), ..self.clone() }
    }
}
