//! Pods that must or want to be near others which are to come as well.

use karpenter_core::{
    Catalogs, InstanceType, Plan, Planner, Price, Quantity, Snapshot, SnapshotBuilder,
    api::{Node, NodePool, Pod},
    labels,
};
use karpenter_fake::check;
use serde_json::{Value, json};

/// A pending pod of an app with these fields in its `spec`.
fn pod(app: &str, name: &str, cpu: &str, spec: Value) -> Pod {
    let mut pod = json!({
        "metadata": {"name": name, "labels": {"app": app}},
        "status": {"phase": "Pending", "conditions": [
            {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
        ]},
    });
    pod["spec"] = spec;
    pod["spec"]["containers"] = json!([{"name": "c", "resources": {"requests": {"cpu": cpu}}}]);
    serde_json::from_value(pod).expect("a pod")
}

/// The pods of an app, within a domain of a label.
fn term(app: &str, key: &str) -> Value {
    json!({"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": key})
}

fn required(term: &Value) -> Value {
    json!({"requiredDuringSchedulingIgnoredDuringExecution": [term]})
}

fn wished(term: &Value) -> Value {
    json!({"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": term}]})
}

fn near(app: &str, key: &str) -> Value {
    json!({"affinity": {"podAffinity": required(&term(app, key))}})
}

fn away(app: &str, key: &str) -> Value {
    json!({"affinity": {"podAntiAffinity": required(&term(app, key))}})
}

fn machine(name: &str, cpus: i64) -> InstanceType {
    InstanceType::named(name, [("cpu", Quantity::from_units(cpus)), ("pods", Quantity::from_units(10))])
}

fn price(dollars: f64) -> Price {
    Price::per_hour(dollars).expect("a price")
}

/// A small machine in one zone, a large one in another, and one that costs more than both in a third. Whoever keeps away
/// from all others by capacity type has spot.
fn zonal_machines() -> Vec<InstanceType> {
    vec![
        machine("large", 4).offering("on-demand", "zone-a", price(0.5)),
        machine("small", 1).offering("on-demand", "zone-b", price(0.1)).offering("spot", "zone-b", price(0.05)),
        machine("dear", 4).offering("on-demand", "zone-c", price(0.6)),
    ]
}

/// Machines of two sizes in one zone.
fn two_sizes() -> Vec<InstanceType> {
    let machine = |name, cpus, dollars| machine(name, cpus).offering("on-demand", "zone-a", price(dollars));
    vec![machine("four", 4, 0.4), machine("eight", 8, 0.8)]
}

fn general() -> SnapshotBuilder {
    Snapshot::builder().pool(NodePool::named("general"))
}

/// A plan that breaks no rule.
fn plan(cluster: SnapshotBuilder, types: Vec<InstanceType>) -> Plan {
    let snapshot = cluster.build().expect("a cluster");
    let catalogs = Catalogs::shared(types, snapshot.pools()).expect("a catalog");
    let plan = Planner::default().plan(&snapshot, &catalogs);
    assert_eq!(check(&snapshot, &catalogs, &plan), []);
    plan
}

/// Why pods have no node.
fn reasons(plan: &Plan) -> Vec<String> {
    plan.unplaced().iter().map(|(pod, reason)| format!("{}: {reason}", pod.name)).collect()
}

/// How many pods each new node has.
fn sizes(plan: &Plan) -> Vec<usize> {
    plan.claims().iter().map(|claim| claim.pods.len()).collect()
}

/// The kube-scheduler lets one pod begin where none is that its affinity selects. All others come to it, whatever label
/// they must share with it.
#[test]
fn one_pod_begins_for_all_that_its_like_select() {
    let of_node = |n| pod("web", &format!("node-{n}"), "1", near("web", labels::HOSTNAME));
    let of_zone = |n| pod("web", &format!("zone-{n}"), "100m", near("web", labels::ZONE));
    let pods: Vec<Pod> = (0..3).map(of_node).chain((0..3).map(of_zone)).collect();
    assert_eq!(reasons(&plan(general().pods(pods), zonal_machines())), [""; 0]);
}

/// Whoever may not be near to those that it must be near to, as they to it, keeps them off or stays behind.
#[test]
fn nobody_begins_beside_one_that_keeps_the_others_off() {
    let alone = json!({"affinity": {
        "podAffinity": required(&term("web", labels::HOSTNAME)),
        "podAntiAffinity": required(&term("web", labels::CAPACITY_TYPE)),
    }});
    let of_zone = pod("web", "of-zone", "2", near("web", labels::ZONE));
    let of_node = pod("web", "of-node", "1", near("web", labels::HOSTNAME));
    let pods = vec![of_zone, of_node, pod("web", "alone", "100m", alone)];
    let expected = [
        "of-node: affinity over kubernetes.io/hostname: no node takes all that must share it",
        "of-zone: affinity over topology.kubernetes.io/zone: it cannot go where such pods are, in zone-b",
    ];
    assert_eq!(reasons(&plan(general().pods(pods), zonal_machines())), expected);
}

/// What pods wish for takes no others out of the heaviest pool that can have them.
#[test]
fn a_wish_draws_nobody_to_a_lighter_pool() {
    let heavy = json!({
        "metadata": {"name": "heavy"},
        "spec": {
            "template": {"spec": {
                "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
                "requirements": [{"key": labels::ZONE, "operator": "In", "values": ["zone-c"]}],
            }},
            "weight": 10,
        },
    });
    let heavy: NodePool = serde_json::from_value(heavy).expect("a pool");
    let wishes = json!({"affinity": {"podAffinity": wished(&term("api", labels::ZONE))}});
    let wishing = (0..2).map(|n| pod("web", &format!("wishing-{n}"), "900m", wishes.clone()));
    let alone = pod("web", "alone", "900m", away("web", labels::ZONE));
    let pods: Vec<Pod> = wishing.chain([alone, pod("api", "api", "3500m", json!({}))]).collect();
    assert_eq!(reasons(&plan(general().pool(heavy).pods(pods), zonal_machines())), [""; 0]);
}

/// A pod that wants to share a node with another, and must share its zone, does not join it on a node without a zone.
#[test]
fn nobody_is_near_on_a_node_without_the_label() {
    let mut affinity = required(&term("api", labels::ZONE));
    affinity
        .as_object_mut()
        .expect("terms")
        .append(wished(&term("api", labels::HOSTNAME)).as_object_mut().expect("terms"));
    let pods = vec![
        pod("web", "web", "200m", json!({"affinity": {"podAffinity": affinity}})),
        pod("api", "api", "200m", json!({})),
    ];
    assert_eq!(reasons(&plan(general().node(node("node-0", "4", None)).pods(pods), zonal_machines())), [""; 0]);
}

/// Nobody is near by a label that the node does not have, so that any number of pods that keep away from each other share it.
#[test]
fn pods_that_keep_apart_share_nodes_without_the_label() {
    let mut racked = node("node-0", "1", Some("zone-a"));
    racked.metadata.labels.insert("rack".to_owned(), "r1".to_owned());
    let pods = (0..4).map(|n| pod("web", &format!("web-{n}"), "900m", away("web", "rack")));
    let plan = plan(general().node(racked).pods(pods.collect::<Vec<_>>()), two_sizes());
    assert_eq!(reasons(&plan), [""; 0]);
    assert_eq!(sizes(&plan), [3]);
}

/// Pods to come are as near as pods that run.
#[test]
fn pods_join_others_to_come_where_those_that_run_are_out_of_reach() {
    let full = node("node-0", "1", Some("zone-x"));
    let mut running = pod("db", "running", "1", json!({}));
    "node-0".clone_into(&mut running.spec.node_name);
    "Running".clone_into(&mut running.status.phase);
    let pods = vec![running, pod("db", "db", "1", json!({})), pod("web", "web", "1", near("db", labels::ZONE))];
    assert_eq!(reasons(&plan(general().node(full).pods(pods), two_sizes())), [""; 0]);
}

fn node(name: &str, cpu: &str, zone: Option<&str>) -> Node {
    let mut node = json!({
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "status": {"capacity": {"cpu": cpu, "pods": "10"}, "allocatable": {"cpu": cpu, "pods": "10"}},
    });
    if let Some(zone) = zone {
        node["metadata"]["labels"][labels::ZONE] = json!(zone);
    }
    serde_json::from_value(node).expect("a node")
}

/// A store, of which a node takes one, and a web server beside each: the example of the documentation of Kubernetes.
fn stores_with_web_servers(count: usize) -> Vec<Pod> {
    let beside = json!({"affinity": {
        "podAffinity": required(&term("store", labels::HOSTNAME)),
        "podAntiAffinity": required(&term("web", labels::HOSTNAME)),
    }});
    let stores = (0..count).map(|n| pod("store", &format!("store-{n}"), "3500m", away("store", labels::HOSTNAME)));
    let web = (0..count).map(|n| pod("web", &format!("web-{n}"), "1", beside.clone()));
    stores.chain(web).collect()
}

/// <https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/#more-practical-use-cases>
#[test]
fn each_node_gets_one_of_those_that_must_be_beside_another() {
    let plan = plan(general().pods(stores_with_web_servers(3)), two_sizes());
    assert_eq!(reasons(&plan), [""; 0]);
    assert_eq!(sizes(&plan), [2; 3]);
}

/// Where room is for two nodes only, two of the pairs have one.
#[test]
fn pairs_that_find_no_node_keep_no_others_from_theirs() {
    let mut limited = NodePool::named("limited");
    limited.spec.limits = [("cpu", Quantity::from_units(16))].into_iter().collect();
    let plan = plan(Snapshot::builder().pool(limited).pods(stores_with_web_servers(3)), two_sizes());
    assert_eq!(sizes(&plan), [2; 2], "{:?}", reasons(&plan));
}

/// A node with a store and no room for more.
fn full_store() -> (Node, Pod) {
    let mut running = pod("store", "running", "3500m", away("store", labels::HOSTNAME));
    "node-0".clone_into(&mut running.spec.node_name);
    "Running".clone_into(&mut running.status.phase);
    running.status.conditions.clear();
    (node("node-0", "4", Some("zone-a")), running)
}

/// That a store runs keeps no web server from another that comes.
#[test]
fn pods_share_the_node_of_others_to_come_where_those_that_run_have_no_room() {
    let (node, running) = full_store();
    let pods = stores_with_web_servers(2);
    let plan = plan(general().node(node).pods([vec![running], pods].concat()), two_sizes());
    assert_eq!(reasons(&plan), [""; 0]);
    assert_eq!(sizes(&plan), [2; 2]);
}

/// What two pods tolerate both, they tolerate together, however each says it.
#[test]
fn pods_that_share_a_node_tolerate_its_taints_each_in_its_way() {
    let mut dedicated = NodePool::named("dedicated");
    dedicated.spec.template.spec.taints = vec![
        serde_json::from_value(json!({"key": "dedicated", "value": "gpu", "effect": "NoSchedule"})).expect("a taint"),
    ];
    let exactly = json!([{"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}]);
    let mut agent = near("main", labels::HOSTNAME);
    agent["tolerations"] = json!([{"operator": "Exists"}]);
    let pods = vec![pod("main", "main", "1", json!({"tolerations": exactly})), pod("agent", "agent", "1", agent)];
    let plan = plan(Snapshot::builder().pool(dedicated).pods(pods), two_sizes());
    assert_eq!(reasons(&plan), [""; 0]);
    assert_eq!(sizes(&plan), [2]);
}

/// A spread that must hold and one that is wished for count the same pod once.
#[test]
fn a_pod_counts_once_for_two_spreads_over_nodes() {
    let spread = |max_skew: i32, action: &str| {
        let mut spread = term("web", labels::HOSTNAME);
        spread["maxSkew"] = json!(max_skew);
        spread["whenUnsatisfiable"] = json!(action);
        spread
    };
    let spec = json!({"topologySpreadConstraints": [spread(4, "DoNotSchedule"), spread(2, "ScheduleAnyway")]});
    let pods: Vec<Pod> = (0..4).map(|n| pod("web", &format!("web-{n}"), "1", spec.clone())).collect();
    let plan = plan(general().pods(pods), two_sizes());
    assert_eq!(sizes(&plan), [2; 2]);
}
