//! Dumps of clusters as texts, with the many fields that no plan looks at.

use karpenter::{
    fake::catalog::{INSTANCE_FAMILY, ZONES},
    labels,
};
use serde_json::{Value, json};

use super::{diverse, machines};

const CREATED: &str = "2026-01-01T00:00:00Z";

/// What `kubectl get pods -o json` prints for `count` pending pods.
pub(crate) fn pods(count: usize) -> String {
    list(diverse::pods(count).map(complete))
}

/// What `kubectl get nodes -o json` prints for `count` nodes.
pub(crate) fn nodes(count: usize) -> String {
    list((0..count).map(node))
}

/// A catalog of instance types in this project's format.
pub(crate) fn catalog() -> String {
    serde_json::to_string(&machines()).expect("a catalog is JSON")
}

fn list(items: impl Iterator<Item = Value>) -> String {
    json!({"apiVersion": "v1", "kind": "List", "items": items.collect::<Vec<_>>()}).to_string()
}

/// The pod with what the API server and controllers add to it.
fn complete(mut pod: Value) -> Value {
    let name = pod["metadata"]["name"].as_str().expect("a pod has a name").to_owned();
    pod["apiVersion"] = "v1".into();
    pod["kind"] = "Pod".into();
    pod["metadata"]["uid"] = name.as_str().into();
    pod["metadata"]["creationTimestamp"] = CREATED.into();
    pod["metadata"]["annotations"] = json!({"kubernetes.io/config.seen": CREATED, "prometheus.io/scrape": "true"});
    let owner = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "web", "controller": true});
    pod["metadata"]["ownerReferences"] = json!([owner]);
    let container = &mut pod["spec"]["containers"][0];
    container["image"] = "registry.example.com/web@sha256:0123456789abcdef0123456789abcdef".into();
    container["env"] = (0..10).map(|n| json!({"name": format!("SETTING_{n}"), "value": "a value"})).collect();
    container["ports"] = json!([{"containerPort": 8080, "protocol": "TCP"}]);
    container["livenessProbe"] = json!({"httpGet": {"path": "/live", "port": 8080}, "periodSeconds": 10});
    container["volumeMounts"] = json!([{"name": "token", "mountPath": "/var/run/secrets", "readOnly": true}]);
    let spec = &mut pod["spec"];
    spec["volumes"] =
        json!([{"name": "token", "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}}]);
    spec["serviceAccountName"] = "web".into();
    spec["tolerations"] = ["not-ready", "unreachable"]
        .map(|state| format!("node.kubernetes.io/{state}"))
        .map(|key| json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}))
        .into_iter()
        .collect();
    pod
}

fn node(number: usize) -> Value {
    let name = format!("node-{number}");
    let resources = json!({"cpu": "8", "memory": "32Gi", "ephemeral-storage": "100Gi", "pods": "110"});
    let condition = |kind: &str, status: &str| json!({"type": kind, "status": status, "lastHeartbeatTime": CREATED});
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "uid": name, "creationTimestamp": CREATED, "labels": {
            labels::HOSTNAME: name, labels::ZONE: ZONES[number % ZONES.len()], labels::ARCH: "amd64", labels::OS: "linux",
            labels::INSTANCE_TYPE: "s-8x-amd64-linux", labels::CAPACITY_TYPE: labels::SPOT, INSTANCE_FAMILY: "s",
        }},
        "spec": {"providerID": format!("fake:///{name}"), "podCIDR": "10.0.0.0/24"},
        "status": {
            "capacity": resources,
            "allocatable": resources,
            "conditions": [condition("MemoryPressure", "False"), condition("DiskPressure", "False"), condition("Ready", "True")],
            "images": (0..20).map(|n| json!({"names": [format!("registry.example.com/{n}")], "sizeBytes": 50_000_000})).collect::<Vec<_>>(),
            "nodeInfo": {"kubeletVersion": "v1.35.0", "osImage": "Linux", "kernelVersion": "6.12"},
        },
    })
}
