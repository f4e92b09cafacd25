//! Nodes and pods as they are, by Karpenter's names and labels.

use std::collections::BTreeMap;

use karpenter_core::{
    ResourceList, Timestamp,
    api::{ConditionStatus, Node, Pod},
    cluster::pod_requests,
    engine::{Object, resource_label},
    labels,
};

/// The name of a gauge, its labels and its value.
pub(crate) type Gauge = (&'static str, Vec<(&'static str, String)>, f64);

/// The labels of nodes that are exported, by their names there.
const NODE_LABELS: [(&str, &str); 7] = [
    ("arch", labels::ARCH),
    ("capacity_type", labels::CAPACITY_TYPE),
    ("instance_type", labels::INSTANCE_TYPE),
    ("nodepool", labels::NODE_POOL),
    ("os", labels::OS),
    ("region", labels::REGION),
    ("zone", labels::ZONE),
];

/// What the pods of a node ask for.
#[derive(Default)]
struct Asked {
    pods: ResourceList,
    daemons: ResourceList,
}

/// All gauges of single nodes and pods, and how much of all nodes is asked for; those of one name together.
pub(crate) fn census<'o>(objects: impl Iterator<Item = &'o Object>, now: Timestamp) -> Vec<Gauge> {
    let (mut nodes, mut pods) = (BTreeMap::<&str, &Node>::new(), Vec::new());
    for object in objects {
        match object {
            Object::Node(node) => drop(nodes.insert(&node.metadata.name, node)),
            Object::Pod(pod) => pods.push(pod.as_ref()),
            _ => {}
        }
    }
    let mut asked: BTreeMap<&str, Asked> = BTreeMap::new();
    for pod in pods.iter().filter(|pod| !pod.spec.node_name.is_empty() && !pod.is_finished()) {
        let of_node = asked.entry(&pod.spec.node_name).or_default();
        let list = if pod.is_daemon() { &mut of_node.daemons } else { &mut of_node.pods };
        list.add(&pod_requests(pod));
    }
    let mut out = Vec::new();
    for (&name, node) in &nodes {
        of_node(node, asked.get(name).unwrap_or(&Asked::default()), now, &mut out);
    }
    out.extend(utilization(nodes.values().copied(), &asked));
    for pod in pods {
        of_pod(pod, nodes.get(pod.spec.node_name.as_str()).copied(), now, &mut out);
    }
    out.sort_by_key(|(name, ..)| *name);
    out
}

fn of_node(node: &Node, asked: &Asked, now: Timestamp, out: &mut Vec<Gauge>) {
    let mut own = labels_of(Some(node), &NODE_LABELS);
    own.push(("managed", node.metadata.labels.contains_key(labels::NODE_POOL).to_string()));
    own.push(("node_name", node.metadata.name.clone()));
    let mut overhead = node.status.capacity.clone();
    overhead.subtract(&node.status.allocatable);
    let lists = [
        ("karpenter_nodes_allocatable", &node.status.allocatable),
        ("karpenter_nodes_system_overhead", &overhead),
        ("karpenter_nodes_total_daemon_requests", &asked.daemons),
        ("karpenter_nodes_total_pod_requests", &asked.pods),
    ];
    for (name, list) in lists {
        for (resource, quantity) in list.iter() {
            let resource = ("resource_type", resource_label(resource));
            out.push((name, own.iter().cloned().chain([resource]).collect(), quantity.as_f64()));
        }
    }
    if let Some(created) = node.metadata.creation_timestamp {
        out.push(("karpenter_nodes_current_lifetime_seconds", own, now.since(created).as_secs_f64()));
    }
}

/// How much of what all nodes have is asked for, in percent, by resource.
fn utilization<'n>(nodes: impl Iterator<Item = &'n Node>, asked: &BTreeMap<&str, Asked>) -> Vec<Gauge> {
    let (mut all, mut used) = (ResourceList::default(), ResourceList::default());
    nodes.for_each(|node| all.add(&node.status.allocatable));
    for asked in asked.values() {
        used.add(&asked.pods);
        used.add(&asked.daemons);
    }
    let share = |resource: &str, of: f64| used.get(resource).map_or(0.0, |used| 100.0 * used.as_f64() / of);
    let known = all.iter().filter(|(_, quantity)| quantity.as_f64() > 0.0);
    let series = known.map(|(resource, quantity)| {
        let labels = vec![("resource_type", resource_label(resource))];
        ("karpenter_cluster_utilization_percent", labels, share(resource.as_str(), quantity.as_f64()))
    });
    series.collect()
}

fn of_pod(pod: &Pod, node: Option<&Node>, now: Timestamp, out: &mut Vec<Gauge>) {
    let key = || vec![("name", pod.metadata.name.clone()), ("namespace", pod.namespace().to_owned())];
    let (is_bound, is_started) = (!pod.spec.node_name.is_empty(), pod.status.phase != "Pending");
    let owner = pod.metadata.owner_references.first().map_or_else(String::new, |owner| {
        format!(
            "/apis/{}/namespaces/{}/{}s/{}",
            owner.api_version,
            pod.namespace(),
            owner.kind.to_lowercase(),
            owner.name
        )
    });
    let is_ready = pod.status.conditions.iter().any(|c| c.r#type == "Ready" && c.status == ConditionStatus::True);
    let is_managed = node.is_some_and(|node| node.metadata.labels.contains_key(labels::NODE_POOL));
    let mut state = key();
    state.extend([
        ("owner", owner),
        ("node", pod.spec.node_name.clone()),
        ("scheduled", is_bound.to_string()),
        ("phase", pod.status.phase.clone()),
        ("ready", is_ready.to_string()),
        ("managed", is_managed.to_string()),
    ]);
    state.extend(labels_of(node, &NODE_LABELS).into_iter().filter(|(name, _)| !matches!(*name, "os" | "region")));
    out.push(("karpenter_pods_state", state, 1.0));
    let Some(created) = pod.metadata.creation_timestamp else { return };
    let age = now.since(created).as_secs_f64();
    if !is_bound {
        out.push(("karpenter_pods_unbound_time_seconds", key(), age));
    }
    if !is_started {
        out.push(("karpenter_pods_unstarted_time_seconds", key(), age));
    }
}

fn labels_of(node: Option<&Node>, wanted: &[(&'static str, &str)]) -> Vec<(&'static str, String)> {
    let value = |key: &str| node.and_then(|node| node.metadata.labels.get(key)).cloned().unwrap_or_default();
    wanted.iter().map(|&(name, key)| (name, value(key))).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde::de::DeserializeOwned;
    use serde_json::{Value, json};

    use super::*;

    fn read<T: DeserializeOwned>(value: Value) -> Arc<T> {
        Arc::new(serde_json::from_value(value).expect("an object"))
    }

    fn pod(name: &str, node: &str, cpu: &str, owner: &str) -> Object {
        Object::Pod(read(json!({
            "metadata": {"name": name, "namespace": "shop", "creationTimestamp": "2026-01-01T00:00:00Z",
                "ownerReferences": [{"apiVersion": "apps/v1", "kind": owner, "name": "o", "uid": "u"}]},
            "spec": {"nodeName": node, "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]},
            "status": {"phase": if node.is_empty() { "Pending" } else { "Running" }},
        })))
    }

    #[test]
    fn nodes_and_pods_are_counted_as_they_are() {
        let node = Object::Node(read(json!({
            "metadata": {"name": "n", "creationTimestamp": "2026-01-01T00:00:00Z",
                "labels": {"karpenter.sh/nodepool": "general", "topology.kubernetes.io/zone": "a"}},
            "status": {"capacity": {"cpu": "4", "ephemeral-storage": "10"}, "allocatable": {"cpu": "3", "ephemeral-storage": "10"}},
        })));
        let pods = [
            pod("web", "n", "1", "ReplicaSet"),
            pod("agent", "n", "500m", "DaemonSet"),
            pod("late", "", "2", "ReplicaSet"),
        ];
        let now = "2026-01-01T00:01:00Z".parse().expect("a time");
        let all = census(pods.iter().chain([&node]), now);
        let of = |name: &str, key: &str, value: &str| {
            let fits = |labels: &[(&str, String)]| labels.iter().any(|(label, is)| *label == key && is == value);
            let found: Vec<f64> =
                all.iter().filter(|(of, labels, _)| *of == name && fits(labels)).map(|(.., value)| *value).collect();
            found
        };
        assert_eq!(of("karpenter_nodes_allocatable", "resource_type", "cpu"), [3.0]);
        assert_eq!(of("karpenter_nodes_allocatable", "resource_type", "ephemeral_storage"), [10.0]);
        assert_eq!(of("karpenter_nodes_system_overhead", "resource_type", "cpu"), [1.0]);
        assert_eq!(of("karpenter_nodes_total_pod_requests", "resource_type", "cpu"), [1.0]);
        assert_eq!(of("karpenter_nodes_total_daemon_requests", "resource_type", "cpu"), [0.5]);
        assert_eq!(of("karpenter_cluster_utilization_percent", "resource_type", "cpu"), [50.0]);
        assert_eq!(of("karpenter_nodes_current_lifetime_seconds", "nodepool", "general"), [60.0]);
        assert_eq!(of("karpenter_pods_state", "scheduled", "true"), [1.0, 1.0]);
        assert_eq!(of("karpenter_pods_state", "phase", "Pending"), [1.0]);
        assert_eq!(of("karpenter_pods_unbound_time_seconds", "name", "late"), [60.0]);
        assert!(of("karpenter_pods_unbound_time_seconds", "name", "web").is_empty());
        assert!(all.is_sorted_by_key(|(name, ..)| name), "those of one name are together");
    }
}
