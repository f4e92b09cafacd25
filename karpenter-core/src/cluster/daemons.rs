//! What the daemons that will come are like.

use std::{collections::BTreeMap, sync::Arc};

use crate::api::{DaemonSet, Pod, PodSpec};

/// Gives each daemonset the specification of the next pod that its controller makes. Both lists are in the order of namespaces.
pub(super) fn foresee_daemons(daemonsets: &mut [DaemonSet], pods: &[Arc<Pod>]) {
    take_after_newest(daemonsets, pods);
    for daemonset in daemonsets {
        daemonset.spec.template.spec.tolerate_as_daemon();
    }
}

/// Gives each daemonset the specification of its newest pod. Admission changes pods and not templates, so that the next pod is
/// more like the last one than like its template.
///
/// What its controller adds for one node, which is in the affinity, and the names of volumes stay those of the template.
fn take_after_newest(daemonsets: &mut [DaemonSet], pods: &[Arc<Pod>]) {
    for of_namespace in daemonsets.chunk_by_mut(|a, b| a.metadata.namespace() == b.metadata.namespace()) {
        let name = of_namespace.first().map(|daemonset| daemonset.metadata.namespace().to_owned()).unwrap_or_default();
        let from = pods.partition_point(|pod| pod.namespace() < name.as_str());
        let to = pods.partition_point(|pod| pod.namespace() <= name.as_str());
        let newest = newest_pods(&pods[from..to]);
        for daemonset in of_namespace {
            let id = (daemonset.metadata.name.as_str(), daemonset.metadata.uid.as_str());
            let Some(pod) = newest.get(&id) else { continue };
            let template = std::mem::take(&mut daemonset.spec.template.spec);
            daemonset.spec.template.spec = PodSpec {
                node_name: String::new(),
                affinity: template.affinity,
                volumes: template.volumes,
                ..pod.spec.clone()
            };
        }
    }
}

/// The newest pod of each daemonset by its name and uid; of equals the last by name.
fn newest_pods(pods: &[Arc<Pod>]) -> BTreeMap<(&str, &str), &Pod> {
    let mut out: BTreeMap<(&str, &str), &Pod> = BTreeMap::new();
    for pod in pods {
        let Some(owner) = pod.metadata.controller().filter(|owner| owner.kind == "DaemonSet") else { continue };
        let newest = out.entry((&owner.name, &owner.uid)).or_insert(pod);
        if newest.metadata.creation_timestamp <= pod.metadata.creation_timestamp {
            *newest = pod;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::Snapshot;

    fn read<T: serde::de::DeserializeOwned>(json: Value) -> T {
        serde_json::from_value(json).expect("an object")
    }

    fn spec(cpu: &str, node: &str, more: &Value) -> Value {
        let mut spec =
            json!({"containers": [{"name": "d", "resources": {"requests": {"cpu": cpu}}}], "nodeName": node});
        spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] = more.clone();
        spec
    }

    fn on_node(name: &str) -> Value {
        let field = json!({"key": "metadata.name", "operator": "In", "values": [name]});
        json!({"nodeSelectorTerms": [{"matchFields": [field]}]})
    }

    fn daemon(name: &str, uid: &str, cpu: &str, created: &str) -> Pod {
        let owner = json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": uid, "controller": true});
        let meta = json!({"name": name, "namespace": "sys", "creationTimestamp": created, "ownerReferences": [owner]});
        read(json!({"metadata": meta, "spec": spec(cpu, "n", &on_node("n"))}))
    }

    #[test]
    fn daemons_are_like_the_newest_one() {
        let daemonset = |namespace: &str| -> DaemonSet {
            let meta = json!({"name": "d", "uid": "1", "namespace": namespace});
            read(json!({"metadata": meta, "spec": {"template": {"spec": spec("1", "", &Value::Null)}}}))
        };
        let (old, new) = ("2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z");
        let stranger: Pod =
            read(json!({"metadata": {"name": "z", "namespace": "sys"}, "spec": spec("9", "n", &Value::Null)}));
        for (pods, expected) in [
            (vec![], "1"),
            (vec![stranger], "1"),
            (vec![daemon("a", "2", "3", new)], "1"),
            (vec![daemon("a", "1", "3", new), daemon("b", "1", "2", old)], "3"),
            (vec![daemon("a", "1", "3", old), daemon("b", "1", "2", new)], "2"),
            (vec![daemon("a", "1", "3", old), daemon("b", "1", "2", old)], "2"),
        ] {
            let builder =
                Snapshot::builder().daemonset(daemonset("sys")).daemonset(daemonset("zoo")).daemonset(daemonset(""));
            let snapshot = builder.pods(pods).build().expect("valid");
            for found in snapshot.daemonsets() {
                let cpu = if found.metadata.namespace == "sys" { expected } else { "1" };
                let mut like: PodSpec = read(spec(cpu, "", &Value::Null));
                like.tolerations.clone_from(&found.spec.template.spec.tolerations);
                assert_eq!(found.spec.template.spec, like);
            }
        }
    }

    #[test]
    fn room_is_kept_for_daemons_where_their_controller_lets_them_past() {
        let free = |taint: Value, host_network: bool, is_cordoned: bool| {
            let mut daemon = spec("1", "", &Value::Null);
            daemon["hostNetwork"] = host_network.into();
            let daemonset = json!({"metadata": {"name": "d", "uid": "1"}, "spec": {"template": {"spec": daemon}}});
            let node = json!({
                "metadata": {"name": "n"}, "spec": {"unschedulable": is_cordoned, "taints": taint},
                "status": {"allocatable": {"cpu": "4", "pods": "9"}},
            });
            let snapshot = Snapshot::builder().daemonset(read(daemonset)).node(read(node)).build().expect("valid");
            snapshot.places()[0].free.get("cpu").expect("what is left").to_string()
        };
        let of = |key: &str, effect: &str| json!([{"key": format!("node.kubernetes.io/{key}"), "effect": effect}]);
        assert_eq!(free(json!([]), false, true), "3");
        for key in ["disk-pressure", "memory-pressure", "pid-pressure", "unschedulable"] {
            assert_eq!(free(of(key, "NoSchedule"), false, false), "3", "{key}");
            assert_eq!(free(of(key, "NoExecute"), false, false), "4", "{key}");
        }
        for key in ["not-ready", "unreachable"] {
            assert_eq!(free(of(key, "NoExecute"), false, false), "3", "{key}");
        }
        assert_eq!(free(of("network-unavailable", "NoSchedule"), false, false), "4");
        assert_eq!(free(of("network-unavailable", "NoSchedule"), true, false), "3");
        assert_eq!(free(of("other", "NoSchedule"), true, false), "4");
    }
}
