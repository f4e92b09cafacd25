//! The least that nodes for the pods of a cluster can have cost.

use std::{
    collections::BTreeMap,
    hash::{Hash as _, Hasher as _},
    sync::Arc,
};

use karpenter_core::{
    Catalogs, Planner, PlannerOptions, Snapshot, Timestamp,
    api::{
        DaemonSet, Namespace, NodePool, ObjectKey, PersistentVolume, PersistentVolumeClaim, Pod, PodStatus,
        StorageClass,
    },
    engine::Event,
};

use super::{is_placed, placement};
use crate::sim::World;

/// Billionths of a dollar an hour times milliseconds, in a millionth of a dollar.
const EXACT_PER_MICRO: i128 = 3_600_000 * 1_000;

/// Adds up lower bounds over time.
///
/// What counts in a span of time are the pods that had a node throughout: of each class of equal pods, the smallest number.
#[derive(Clone, Debug, Default)]
pub(super) struct Floor {
    classes: BTreeMap<u64, Class>,
    placed: BTreeMap<ObjectKey, u64>,
    since: Timestamp,
    /// Billionths of a dollar an hour times milliseconds.
    exact: i128,
    /// The bounds of clusters that were seen before, by their pods, pools and prices.
    known: BTreeMap<Vec<(u64, u32)>, i64>,
    /// What the known bounds were for.
    market: u64,
}

/// Pods that are alike.
#[derive(Clone, Debug)]
struct Class {
    pod: Arc<Pod>,
    count: u32,
    /// The smallest count since the last settlement.
    low: u32,
}

impl Floor {
    pub(super) fn micro_dollars(&self) -> i64 {
        i64::try_from(self.exact / EXACT_PER_MICRO).unwrap_or(i64::MAX)
    }

    pub(super) fn observe(&mut self, event: &Event) {
        let Some((key, placed)) = placement(event) else { return };
        let class = placed.map(class_of);
        if self.placed.get(&key).copied() == class {
            return;
        }
        self.remove(&key);
        if let Some((id, pod)) = class.zip(placed) {
            let class = self.classes.entry(id).or_insert_with(|| Class { pod: pod.clone(), count: 0, low: 0 });
            class.count += 1;
            self.placed.insert(key, id);
        }
    }

    fn remove(&mut self, pod: &ObjectKey) {
        if let Some(class) = self.placed.remove(pod).and_then(|class| self.classes.get_mut(&class)) {
            class.count -= 1;
            class.low = class.low.min(class.count);
        }
    }

    /// Adds what the time since the last call must have cost.
    pub(super) fn settle(&mut self, world: &World) {
        // Of pods that ended while nobody watched there is no event.
        let is_gone = |key: &&ObjectKey| world.api().get::<Pod>(key).is_none_or(|pod| !is_placed(pod));
        let gone: Vec<ObjectKey> = self.placed.keys().filter(is_gone).cloned().collect();
        for key in &gone {
            self.remove(key);
        }
        let now = world.now();
        let elapsed = i128::try_from(now.since(self.since).as_millis()).unwrap_or(i128::MAX);
        self.since = now;
        let steady: Vec<(u64, u32)> =
            self.classes.iter().filter(|(_, class)| class.low > 0).map(|(id, class)| (*id, class.low)).collect();
        if !steady.is_empty() {
            self.exact += i128::from(self.bound(steady, world)) * elapsed;
        }
        self.classes.retain(|_, class| class.count > 0);
        self.classes.values_mut().for_each(|class| class.low = class.count);
    }

    /// In billionths of a dollar an hour.
    fn bound(&mut self, pods: Vec<(u64, u32)>, world: &World) -> i64 {
        let market = market_of(world);
        if market != self.market {
            self.market = market;
            self.known.clear();
        }
        if let Some(bound) = self.known.get(&pods) {
            return *bound;
        }
        let copies = pods.iter().flat_map(|(id, count)| {
            let class = &self.classes[id];
            (0..*count).map(move |number| waiting(&class.pod, *id, number))
        });
        let bound = bound(copies.collect(), world);
        self.known.insert(pods, bound);
        bound
    }
}

/// What cannot be planned costs nothing.
fn bound(pods: Vec<Arc<Pod>>, world: &World) -> i64 {
    let api = world.api();
    let mut builder = Snapshot::builder()
        .pools(api.list::<NodePool>().map(|pool| NodePool::clone(pool)))
        .namespaces(api.list::<Namespace>().map(|one| Namespace::clone(one)))
        .volume_claims(api.list::<PersistentVolumeClaim>().map(|one| PersistentVolumeClaim::clone(one)))
        .volumes(api.list::<PersistentVolume>().map(|one| PersistentVolume::clone(one)))
        .storage_classes(api.list::<StorageClass>().map(|one| StorageClass::clone(one)))
        .pods(pods);
    for daemons in api.list::<DaemonSet>() {
        builder = builder.daemonset(DaemonSet::clone(daemons));
    }
    let Ok(snapshot) = builder.build() else { return 0 };
    let mut catalogs = Catalogs::new();
    for pool in snapshot.pools() {
        catalogs.insert(pool.name(), world.cloud().catalog_for(pool));
    }
    let planner = Planner::new(PlannerOptions::default());
    let problem = planner.prepare(&snapshot, &catalogs);
    problem.certify(&problem.solve()).lower_bound.nano_dollars_per_hour()
}

/// Which pools there are and what the cloud sells.
fn market_of(world: &World) -> u64 {
    let mut hasher = rustc_hash::FxHasher::default();
    for pool in world.api().list::<NodePool>() {
        pool.name().hash(&mut hasher);
        pool.metadata.generation.hash(&mut hasher);
    }
    for daemons in world.api().list::<DaemonSet>() {
        daemons.metadata.name.hash(&mut hasher);
        daemons.metadata.generation.hash(&mut hasher);
    }
    for instance_type in world.cloud().catalog_now().types() {
        let prices = instance_type.offerings.iter().map(|offering| offering.price);
        prices.for_each(|price| price.hash(&mut hasher));
    }
    hasher.finish()
}

/// Pods of one class ask for the same and belong to the same owner.
fn class_of(pod: &Arc<Pod>) -> u64 {
    let mut hasher = rustc_hash::FxHasher::default();
    let mut spec = pod.spec.clone();
    spec.node_name.clear();
    spec.hash(&mut hasher);
    pod.namespace().hash(&mut hasher);
    pod.metadata.labels.iter().filter(|(key, _)| !is_of_one_pod(key)).for_each(|label| label.hash(&mut hasher));
    pod.metadata.owner_references.iter().for_each(|owner| owner.uid.hash(&mut hasher));
    hasher.finish()
}

/// Whether a label names one pod of a StatefulSet or a Job.
fn is_of_one_pod(key: &str) -> bool {
    matches!(key, "statefulset.kubernetes.io/pod-name" | "apps.kubernetes.io/pod-index")
}

/// A pod of a class, as it was before it had a node.
fn waiting(pod: &Arc<Pod>, class: u64, number: u32) -> Arc<Pod> {
    let mut pod = Pod::clone(pod);
    pod.metadata.name = format!("{class:016x}-{number}");
    pod.metadata.uid.clone_from(&pod.metadata.name);
    pod.spec.node_name.clear();
    pod.status = PodStatus::unschedulable();
    Arc::new(pod)
}
