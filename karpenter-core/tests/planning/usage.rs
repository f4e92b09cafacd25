//! What the pods of a cluster take of its nodes.

use karpenter_core::{
    Catalogs, InstanceType, Plan, Planner, Price, Quantity, Snapshot, SnapshotBuilder,
    api::{NodePool, Pod},
};
use serde_json::{Value, json};

fn read<T: serde::de::DeserializeOwned>(json: Value) -> T {
    serde_json::from_value(json).expect("an object")
}

/// A machine of so many CPUs at 10 cents each.
fn machine(name: &str, cpu: i64) -> InstanceType {
    let price = Price::per_hour(cpu as f64 / 10.0).expect("not below zero");
    InstanceType::named(name, [("cpu", Quantity::from_units(cpu))]).offering("on-demand", "a", price)
}

/// The plan for a cluster, with a pool of small and large nodes.
fn solve(builder: SnapshotBuilder) -> Plan {
    let snapshot = builder.pool(NodePool::named("general")).build().expect("valid");
    let catalogs = Catalogs::shared(vec![machine("small", 2), machine("large", 8)], snapshot.pools()).expect("valid");
    Planner::default().plan(&snapshot, &catalogs)
}

#[test]
fn pods_of_one_specification_of_which_one_is_resized_are_not_the_same() {
    let node =
        json!({"metadata": {"name": "n", "deletionTimestamp": "2026-01-01T00:00:00Z"}, "spec": {"providerID": "id"}});
    let pod = |name: &str, status: Value| -> Pod {
        let resources = json!({"requests": {"cpu": "1"}});
        let sidecar = json!({"name": "s", "restartPolicy": "Always", "resources": resources});
        let spec = json!({"nodeName": "n", "containers": [{"name": "c"}], "initContainers": [sidecar]});
        read(json!({"metadata": {"name": name}, "spec": spec, "status": status}))
    };
    let resized = json!({"initContainerStatuses": [{"name": "s", "allocatedResources": {"cpu": "4"}}]});
    for (status, expected) in [(json!({}), "small"), (resized, "large")] {
        let pods = vec![pod("a", json!({})), pod("b", status)];
        let plan = solve(Snapshot::builder().node(read(node.clone())).pods(pods));
        assert_eq!(plan.claims().iter().map(|c| c.instance_types[0].as_ref()).collect::<Vec<&str>>(), [expected]);
    }
}

#[test]
fn pods_that_would_share_a_disk_are_left_alone() {
    let pod = |name: &str, source: &Value| -> Pod {
        let mut volume = source.clone();
        volume["name"] = json!("v");
        let status = json!({"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]});
        read(
            json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "c"}], "volumes": [volume]}, "status": status}),
        )
    };
    let read_only = |disk: &str| json!({"gcePersistentDisk": {"pdName": disk, "readOnly": true}});
    for (one, other, field) in [
        (
            json!({"awsElasticBlockStore": {"volumeID": "v"}}),
            json!({"awsElasticBlockStore": {"volumeID": "v"}}),
            "awsElasticBlockStore",
        ),
        (json!({"awsElasticBlockStore": {"volumeID": "v"}}), json!({"awsElasticBlockStore": {"volumeID": "w"}}), ""),
        (json!({"awsElasticBlockStore": {"volumeID": "v"}}), json!({"iscsi": {"iqn": "v"}}), ""),
        (json!({"iscsi": {"iqn": "v"}}), json!({"iscsi": {"iqn": "v", "readOnly": true}}), "iscsi"),
        (json!({"rbd": {"image": "v"}}), json!({"rbd": {"image": "v", "pool": "rbd"}}), "rbd"),
        (json!({"rbd": {"image": "v"}}), json!({"rbd": {"image": "v", "pool": "other"}}), ""),
        (read_only("v"), read_only("v"), ""),
        (read_only("v"), json!({"gcePersistentDisk": {"pdName": "v"}}), "gcePersistentDisk"),
        (json!({"azureDisk": {"diskURI": "v"}}), json!({"azureDisk": {"diskURI": "v"}}), ""),
    ] {
        let plan = solve(Snapshot::builder().pods(vec![pod("a", &one), pod("b", &other)]));
        let reasons: Vec<_> = plan.unplaced().values().map(ToString::to_string).collect();
        let expected = format!("unsupported: spec.volumes[0].{field}");
        assert_eq!(reasons, vec![expected; if field.is_empty() { 0 } else { 2 }], "{one} {other}");
    }
}

#[test]
fn a_port_of_a_daemon_with_the_network_of_its_node_is_taken() {
    let template = json!({"hostNetwork": true, "containers": [{"name": "d", "ports": [{"containerPort": 80}]}]});
    let daemonset = json!({"metadata": {"name": "d"}, "spec": {"template": {"spec": template}}});
    let plan = |port| {
        solve(Snapshot::builder().daemonset(read(daemonset.clone())).pods(Pod::named("web").cpu("1").host_port(port)))
    };
    assert_eq!((plan(80).claims().len(), plan(81).claims().len()), (0, 1));
}

#[test]
fn host_networks_make_a_difference_between_pods() {
    let pod = |name: &str, host_network: bool| -> Pod {
        let container = json!({"name": "c", "ports": [{"containerPort": 80}]});
        let status = json!({"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]});
        read(
            json!({"metadata": {"name": name}, "spec": {"hostNetwork": host_network, "containers": [container]}, "status": status}),
        )
    };
    for (has_network, nodes) in [([false, false], 1), ([true, false], 1), ([true, true], 2)] {
        let [a, b] = has_network;
        let plan = solve(Snapshot::builder().pods(vec![pod("a", a), pod("b", b)]));
        assert_eq!(plan.claims().len(), nodes, "{has_network:?}");
    }
}
