//! Workloads with spreads that count the pods of all of them.

use std::collections::BTreeSet;

use karpenter_core::{
    Catalogs, InstanceType, Planner, Price, Quantity, Snapshot,
    api::{NodePool, Pod, Workload},
    labels,
};
use proptest::{collection::vec, prelude::*};
use serde_json::{Value, json};

const ZONES: [&str; 3] = ["a", "b", "c"];

/// Equal pods. Nodes have no taint and are of one pool, so that all spreads count the same, whatever else they say.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is what a pod says or does not say")]
struct Group {
    pods: u32,
    max_skew: u32,
    honors_taints: bool,
    ignores_affinity: bool,
    tolerates: bool,
    names_pool: bool,
}

fn group() -> impl Strategy<Value = Group> {
    (1..=5_u32, 1..=3_u32, any::<[bool; 4]>()).prop_map(
        |(pods, max_skew, [honors_taints, ignores_affinity, tolerates, names_pool])| Group {
            pods,
            max_skew,
            honors_taints,
            ignores_affinity,
            tolerates,
            names_pool,
        },
    )
}

fn read<T: serde::de::DeserializeOwned>(json: Value) -> T {
    serde_json::from_value(json).expect("a Kubernetes object")
}

impl Group {
    fn pods(&self, name: &str) -> Vec<Pod> {
        let mut spread = json!({
            "maxSkew": self.max_skew, "topologyKey": labels::ZONE, "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"tier": "front"}},
        });
        if self.honors_taints {
            spread["nodeTaintsPolicy"] = json!("Honor");
        }
        if self.ignores_affinity {
            spread["nodeAffinityPolicy"] = json!("Ignore");
        }
        let pod = Pod::named(name).label("tier", "front").cpu("100m").replicas(self.pods);
        let mut out = Workload::from(pod).into_pods().expect("valid");
        for pod in &mut out {
            pod.spec.topology_spread_constraints = read(json!([spread]));
            if self.tolerates {
                pod.spec.tolerations = read(json!([{"key": "team", "operator": "Exists"}]));
            }
            if self.names_pool {
                pod.spec.node_selector.insert(labels::NODE_POOL.to_owned(), "general".to_owned());
            }
        }
        out
    }
}

/// Whether all pods find a zone in some order in which they are bound one at a time, each where its spread lets it. All zones
/// are alike, so that only their counts matter.
fn can_bind(groups: &[Group], mut counts: [u32; 3], left: &[u32], tried: &mut BTreeSet<([u32; 3], Vec<u32>)>) -> bool {
    counts.sort_unstable();
    if left.iter().all(|&left| left == 0) {
        return true;
    }
    if !tried.insert((counts, left.to_vec())) {
        return false;
    }
    let next =
        (0..groups.len()).filter(|&group| left[group] > 0).flat_map(|group| (0..3).map(move |zone| (group, zone)));
    let allowed = next.filter(|&(group, zone)| counts[zone] < counts[0] + groups[group].max_skew);
    let mut bound = allowed.map(|(group, zone)| {
        let (mut counts, mut left) = (counts, left.to_vec());
        counts[zone] += 1;
        left[group] -= 1;
        (counts, left)
    });
    bound.any(|(counts, left)| can_bind(groups, counts, &left, tried))
}

fn unplaced(groups: &[Group]) -> Vec<String> {
    let mut machine = InstanceType::named("machine", [("cpu", Quantity::from_units(2))]);
    for zone in ZONES {
        machine = machine.offering("on-demand", zone, Price::per_hour(0.1).expect("not below zero"));
    }
    let pods = groups.iter().enumerate().flat_map(|(index, group)| group.pods(&format!("group-{index}")));
    let builder = Snapshot::builder().pool(NodePool::named("general")).pods(pods.collect::<Vec<_>>());
    let snapshot = builder.build().expect("valid");
    let catalogs = Catalogs::shared(vec![machine], snapshot.pools()).expect("valid");
    let plan = Planner::default().plan(&snapshot, &catalogs);
    plan.unplaced().iter().map(|(pod, reason)| format!("{}: {reason}", pod.name)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn no_pod_is_left_if_all_can_be_bound_one_at_a_time(groups in vec(group(), 2..=3)) {
        let left: Vec<u32> = groups.iter().map(|group| group.pods).collect();
        if can_bind(&groups, [0; 3], &left, &mut BTreeSet::new()) {
            prop_assert_eq!(unplaced(&groups), [""; 0]);
        }
    }
}
