//! Pods that are thought of at other places than those where they run.

use karpenter_core::{
    Catalogs, InstanceType, Plan, Planner, Price, Quantity, Snapshot, SnapshotBuilder, Timestamp,
    api::{ConsolidationPolicy, Node, NodeClaim, NodePool, ObjectKey, PersistentVolumeClaim, Pod},
    disrupt::{Command, Disruptor, DisruptorOptions},
    labels,
};
use serde_json::{Value, json};

const NOW: &str = "2028-02-29T12:00:00Z";

fn now() -> Timestamp {
    NOW.parse().expect("a time")
}

fn read<T: serde::de::DeserializeOwned>(json: Value) -> T {
    serde_json::from_value(json).expect("a Kubernetes object")
}

/// A pod on a node, or one that waits if that is empty.
fn pod(name: &str, kind: &str, node: &str, rules: Value) -> Pod {
    let owner = json!([{"apiVersion": "apps/v1", "kind": kind, "name": "o", "uid": "o", "controller": true}]);
    let mut spec = rules;
    spec["nodeName"] = node.into();
    spec["containers"] = json!([{"resources": {"requests": {"cpu": "1"}}}]);
    let waits = json!([{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]);
    let status = if node.is_empty() { json!({"conditions": waits}) } else { json!({"phase": "Running"}) };
    let meta = json!({"name": name, "labels": {"app": "db"}, "ownerReferences": owner});
    read(json!({"metadata": meta, "spec": spec, "status": status}))
}

/// The same once its deletion was asked for.
fn terminating(mut pod: Pod) -> Pod {
    pod.metadata.deletion_timestamp = Some(now());
    pod
}

/// A node of the pool `p` with its claim, which is being deleted if it `goes`.
fn with_node(builder: SnapshotBuilder, name: &str, instance_type: &str, zone: &str, goes: bool) -> SnapshotBuilder {
    let labels = json!({
        "karpenter.sh/nodepool": "p", "karpenter.sh/registered": "true", "karpenter.sh/initialized": "true",
        "node.kubernetes.io/instance-type": instance_type, "karpenter.sh/capacity-type": "on-demand",
        labels::ZONE: zone,
    });
    let room = json!({"cpu": "8", "memory": "32Gi", "pods": "99"});
    let node: Node = read(json!({
        "metadata": {"name": name, "labels": labels}, "spec": {"providerID": name},
        "status": {"capacity": room, "allocatable": room},
    }));
    let mut claim: NodeClaim = read(json!({
        "metadata": {"name": format!("c-{name}"), "labels": labels, "creationTimestamp": "2028-02-28T00:00:00Z"},
        "spec": {"nodeClassRef": {}, "requirements": []},
        "status": {"providerID": name, "nodeName": name, "conditions": [{"type": "Consolidatable", "status": "True"}]},
    }));
    claim.metadata.deletion_timestamp = goes.then(now);
    builder.node(node).claim(claim)
}

fn cluster(policy: ConsolidationPolicy) -> SnapshotBuilder {
    let mut pool = NodePool::named("p");
    pool.spec.disruption = read(json!({"consolidateAfter": "0s", "budgets": [{"nodes": "100%"}]}));
    pool.spec.disruption.consolidation_policy = policy;
    Snapshot::builder().pool(pool)
}

fn catalogs(snapshot: &Snapshot) -> Catalogs {
    let machine = |name: &str, dollars: f64| {
        let price = || Price::per_hour(dollars).expect("a price");
        let resources = [("cpu", Quantity::from_units(8)), ("memory", Quantity::from_bytes(32 << 30))];
        InstanceType::named(name, resources).offering("on-demand", "a", price()).offering("on-demand", "b", price())
    };
    Catalogs::shared(vec![machine("small", 0.2), machine("big", 0.8)], snapshot.pools()).expect("valid")
}

fn plan(builder: SnapshotBuilder) -> Plan {
    let snapshot = builder.build().expect("valid");
    Planner::default().plan(&snapshot, &catalogs(&snapshot))
}

fn commands(builder: SnapshotBuilder) -> Vec<Command> {
    let snapshot = builder.build().expect("valid");
    let mut options = DisruptorOptions::default();
    (options.min_savings_per_eviction, options.min_savings_share) = (Some(0.0), 0.0);
    Disruptor::new(options).commands(&snapshot, &catalogs(&snapshot), now())
}

fn apart() -> Value {
    let term = json!({"topologyKey": labels::HOSTNAME, "labelSelector": {"matchLabels": {"app": "db"}}});
    json!({"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}})
}

/// The pods of the plan that have the room of a node.
fn pods_on(plan: &Plan, node: &str) -> Vec<String> {
    plan.existing().get(node).into_iter().flatten().map(|key| key.name.clone()).collect()
}

/// A node that goes with the pod `db-0`, which terminates, and a node whose room was promised to its successor.
fn succeeded(kind: &str, rules: &Value) -> SnapshotBuilder {
    let builder = cluster(ConsolidationPolicy::default());
    let builder = with_node(builder, "goes", "small", "a", true);
    let builder = with_node(builder, "room", "small", "a", false);
    let successor = terminating(pod("db-0", kind, "goes", rules.clone()));
    builder.pods(vec![successor]).nominate(ObjectKey::new("default", "db-0"), "room")
}

#[test]
fn a_pod_that_terminates_keeps_others_away_from_where_its_successor_comes() {
    let waits = pod("db-1", "StatefulSet", "", apart());
    let beside = plan(succeeded("StatefulSet", &apart()).pods(vec![waits.clone()]));
    assert_eq!((pods_on(&beside, "room"), beside.claims().len()), (vec![], 1));
    // Who was selected and says nothing itself is kept away just so.
    let silent = pod("db-1", "StatefulSet", "", json!({}));
    assert_eq!(pods_on(&plan(succeeded("StatefulSet", &apart()).pods(vec![silent])), "room"), [""; 0]);
    // Where nothing comes in its place the pod is gone soon.
    assert_eq!(pods_on(&plan(succeeded("ReplicaSet", &apart()).pods(vec![waits.clone()])), "room"), ["db-1"]);
    let builder = with_node(cluster(ConsolidationPolicy::default()), "stays", "small", "a", false);
    let builder = builder.pods(vec![terminating(pod("db-0", "StatefulSet", "stays", apart())), waits]);
    assert_eq!(pods_on(&plan(builder), "stays"), ["db-1"]);
}

#[test]
fn a_spread_counts_the_successor_of_a_pod_that_terminates_where_it_comes() {
    let spread = json!({"topologySpreadConstraints": [{
        "maxSkew": 1, "topologyKey": labels::ZONE, "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "db"}},
    }]});
    let waits = pod("db-1", "StatefulSet", "", spread.clone());
    let beside = plan(succeeded("StatefulSet", &spread).pods(vec![waits]));
    assert_eq!((pods_on(&beside, "room"), beside.claims().len()), (vec![], 1), "zone b has none");
}

#[test]
fn a_claim_for_one_pod_is_kept_for_the_successor_of_a_pod_that_terminates() {
    let claim: PersistentVolumeClaim = read(json!({
        "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOncePod"], "storageClassName": "w"},
    }));
    let class = read(json!({
        "metadata": {"name": "w"}, "provisioner": "d", "volumeBindingMode": "WaitForFirstConsumer",
    }));
    let mounts = json!({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]});
    let other = pod("other", "ReplicaSet", "", mounts.clone());
    let builder = succeeded("StatefulSet", &mounts).pods(vec![other]).volume_claims([claim]).storage_classes([class]);
    let plan = plan(builder);
    let reason = plan.unplaced().values().next().expect("it waits").to_string();
    assert!(reason.contains("default/db-0"), "{reason}");
}

#[test]
fn pods_move_to_no_node_to_which_the_successor_of_an_unfriendly_pod_comes() {
    let of = |first: Pod| {
        let builder = with_node(cluster(ConsolidationPolicy::default()), "goes", "small", "a", true);
        let builder = with_node(builder, "moves", "small", "a", false);
        let room = json!({"cpu": "8", "memory": "32Gi", "pods": "99"});
        let free: Node = read(json!({
            "metadata": {"name": "room", "labels": {labels::ZONE: "a"}}, "status": {"allocatable": room},
        }));
        commands(builder.node(free).pods(vec![first, pod("db-1", "StatefulSet", "moves", apart())]))
    };
    let running = pod("db-0", "StatefulSet", "goes", apart());
    assert_eq!(of(running.clone()), []);
    assert_eq!(of(terminating(running)), []);
}

#[test]
fn pods_that_wait_are_no_part_of_what_a_balanced_pool_disturbs() {
    let builder = |more: Vec<Pod>| {
        let builder = with_node(cluster(ConsolidationPolicy::Balanced), "small", "small", "a", false);
        let builder = with_node(builder, "big", "big", "a", false);
        let mut held = pod("held", "ReplicaSet", "big", json!({}));
        held.metadata.annotations.insert(labels::DO_NOT_DISRUPT.to_owned(), "true".to_owned());
        let moving = ["a", "b"].map(|name| pod(name, "ReplicaSet", "small", json!({})));
        builder.pods(vec![held]).pods(moving.to_vec()).pods(more)
    };
    // A fifth of the bill is saved for three fifths of the disruption.
    assert_eq!(commands(builder(Vec::new())), []);
    let waiting = ["w", "x", "y", "z"].map(|name| pod(name, "ReplicaSet", "", json!({})));
    assert_eq!(commands(builder(waiting.to_vec())), []);
    // Pods that run are what it takes: a fifth of the bill for a third of the disruption.
    let running = ["w", "x", "y", "z"].map(|name| pod(name, "ReplicaSet", "big", json!({})));
    assert_eq!(commands(builder(running.to_vec())).len(), 1);
    // Neither are nodes that are not bought yet.
    let large = ["k", "l", "m", "n"].map(|name| {
        let mut pod = pod(name, "ReplicaSet", "", json!({}));
        pod.spec.containers[0].resources = read(json!({"requests": {"cpu": "8"}}));
        pod
    });
    assert_eq!(commands(builder([running.to_vec(), large.to_vec()].concat())).len(), 1);
}

#[test]
fn pods_of_a_node_that_leaves_are_disturbed_where_they_are() {
    // A node of another pool leaves, and its pods come to the large node of this one.
    let builder = |moved: &str| {
        let mut other = NodePool::named("other");
        other.spec.disruption.consolidation_policy = ConsolidationPolicy::WhenEmpty;
        let builder = with_node(cluster(ConsolidationPolicy::Balanced).pool(other), "small", "small", "a", false);
        let builder = with_node(builder, "big", "big", "a", false);
        let node: Node = read(json!({
            "metadata": {"name": "leaves", "labels": {"karpenter.sh/nodepool": "other"}, "deletionTimestamp": NOW},
        }));
        let mut held = pod("held", "ReplicaSet", "big", json!({}));
        held.metadata.annotations.insert(labels::DO_NOT_DISRUPT.to_owned(), "true".to_owned());
        let moving = ["a", "b"].map(|name| pod(name, "ReplicaSet", "small", json!({})));
        let coming = ["w", "x", "y", "z"].map(|name| pod(name, "ReplicaSet", moved, json!({})));
        builder.node(node).pods(vec![held]).pods(moving.to_vec()).pods(coming.to_vec())
    };
    assert_eq!(commands(builder("leaves")), []);
    assert_eq!(commands(builder("big")).len(), 1);
}
