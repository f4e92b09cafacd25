//! Clusters with pending pods, made in place: the same call gives the same cluster everywhere and for ever.

pub(crate) mod diverse;
pub(crate) mod dump;
pub(crate) mod gpu_batch;
pub(crate) mod plain;
pub(crate) mod preferences;
pub(crate) mod web_shop;

use karpenter::{
    Catalogs, InstanceType, Snapshot, SnapshotBuilder,
    api::{DaemonSet, NodePool, Pod},
    fake::generated_types,
};
use serde_json::{Value, json};

/// The label by which pods select each other.
const APP: &str = "app";

/// A cluster and what can be bought for it.
pub(crate) struct Problem {
    pub(crate) snapshot: Snapshot,
    pub(crate) catalogs: Catalogs,
}

impl Problem {
    /// One pool that takes every type of the generated catalog, and these pods.
    pub(crate) fn of_pods(pods: impl Iterator<Item = Value>) -> Self {
        Self::new(pods, Vec::new())
    }

    /// The same with daemonsets on each node.
    pub(crate) fn new(pods: impl Iterator<Item = Value>, daemonsets: Vec<DaemonSet>) -> Self {
        let read = |pod| serde_json::from_value(pod).expect("the pod is written rightly");
        let pods: Vec<Pod> = pods.map(read).collect();
        let builder = Snapshot::builder().pool(NodePool::named("general")).pods(pods);
        let builder = daemonsets.into_iter().fold(builder, SnapshotBuilder::daemonset);
        let snapshot = builder.build().expect("the cluster is written rightly");
        let catalogs = Catalogs::shared(machines(), snapshot.pools()).expect("the catalog is written rightly");
        Self { snapshot, catalogs }
    }
}

/// 74 types, eight of them with GPUs, in four zones, on demand and spot: 592 offerings.
pub(crate) fn machines() -> Vec<InstanceType> {
    generated_types()
}

/// A pod that the kube-scheduler has refused.
pub(crate) fn pod(name: &str, labels: &Value, requests: &Value, mut spec: Value) -> Value {
    spec["containers"] = json!([{"name": "main", "resources": {"requests": requests}}]);
    let condition = json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable"});
    json!({
        "metadata": {"name": name, "namespace": "default", "labels": labels},
        "spec": spec,
        "status": {"phase": "Pending", "conditions": [condition]},
    })
}

fn requests(cpu_milli: u64, memory_mib: u64) -> Value {
    json!({"cpu": format!("{cpu_milli}m"), "memory": format!("{memory_mib}Mi")})
}

/// A spread over the domains of a label, of pods whose label has this value.
fn spread(topology_key: &str, when_unsatisfiable: &str, label: &str, value: &str) -> Value {
    json!({"maxSkew": 1, "topologyKey": topology_key, "whenUnsatisfiable": when_unsatisfiable,
        "labelSelector": {"matchLabels": {label: value}}})
}

/// A term of an affinity or anti-affinity to pods whose label has this value.
fn neighbours(topology_key: &str, label: &str, value: &str) -> Value {
    json!({"topologyKey": topology_key, "labelSelector": {"matchLabels": {label: value}}})
}

/// Numbers that look random and come from a seed (SplitMix64; Steele, Lea and Flood, *Fast Splittable Pseudorandom Number
/// Generators*, 2014).
struct Numbers(u64);

impl Numbers {
    /// The next number below `end`.
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end
    }

    /// One of several, each as likely as the others.
    fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        let index = self.below(items.len() as u64);
        items[usize::try_from(index).expect("an index of a list")]
    }

    fn percent(&mut self, chance: u64) -> bool {
        self.below(100) < chance
    }
}
