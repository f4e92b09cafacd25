//! Searches for commands, step by step.

use karpenter_core::{
    Catalogs, InstanceType, Price, Quantity, Snapshot, Timestamp,
    api::{DisruptionReason, Node, NodeClaim, NodePool, NodeSelectorRequirement, Operator, Pod, PodDisruptionBudget},
    disrupt::{Disruptor, Method},
    labels,
};
use serde_json::{Value, json};

fn read<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("as the API has it")
}

fn now() -> Timestamp {
    "2026-02-01T00:00:00Z".parse().expect("a time")
}

fn pool(name: &str) -> NodePool {
    let mut pool = NodePool::named(name);
    pool.spec.disruption = read(json!({"consolidateAfter": "0s", "budgets": [{"nodes": "100%"}]}));
    pool
}

fn node(name: &str) -> (NodeClaim, Node) {
    node_of(name, ["p", "large", "on-demand"])
}

/// A node of a pool, of a type, and of a capacity type.
fn node_of(name: &str, [pool, instance_type, capacity_type]: [&str; 3]) -> (NodeClaim, Node) {
    let labels = json!({
        "karpenter.sh/nodepool": pool, "karpenter.sh/registered": "true", "karpenter.sh/initialized": "true",
        "node.kubernetes.io/instance-type": instance_type, "topology.kubernetes.io/zone": "a",
        "karpenter.sh/capacity-type": capacity_type,
    });
    let (id, room) = (format!("id://{name}"), json!({"cpu": "4", "pods": "10"}));
    let claim = json!({
        "metadata": {"name": name, "labels": labels}, "spec": {"nodeClassRef": {}, "requirements": []},
        "status": {"providerID": id, "nodeName": name},
    });
    let node = json!({
        "metadata": {"name": name, "labels": labels}, "spec": {"providerID": id},
        "status": {"capacity": room, "allocatable": room},
    });
    (read(claim), read(node))
}

fn pod(name: &str, cpu: &str, node: &str) -> Pod {
    let owner = json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "o", "uid": "u"}]);
    read(json!({
        "metadata": {"name": name, "namespace": "default", "ownerReferences": owner},
        "spec": {"nodeName": node, "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]},
        "status": {"phase": "Running"},
    }))
}

/// An empty node, one that is nearly full, and one whose only pod would fit on a small node.
fn cluster() -> (Snapshot, Catalogs) {
    let offered = |name: &str, cpu: i64, price: f64| {
        let capacity = [("cpu", Quantity::from_units(cpu)), ("pods", Quantity::from_units(10))];
        InstanceType::named(name, capacity).offering("on-demand", "a", Price::per_hour(price).expect("a price"))
    };
    let (claims, nodes): (Vec<_>, Vec<_>) = ["empty", "full", "waste"].map(node).into_iter().unzip();
    let builder = Snapshot::builder().pools(vec![pool("p")]).claims(claims).nodes(nodes);
    let pods = vec![pod("big", "3900m", "full"), pod("small", "500m", "waste")];
    let snapshot = builder.pods(pods).build().expect("a cluster");
    let types = vec![offered("large", 4, 0.4), offered("small", 1, 0.1)];
    let catalogs = Catalogs::shared(types, snapshot.pools()).expect("a catalog");
    (snapshot, catalogs)
}

#[test]
fn a_search_that_is_resumed_finds_what_one_in_one_go_finds() {
    let (snapshot, catalogs) = cluster();
    let all = Disruptor::default().commands(&snapshot, &catalogs, now());
    let methods: Vec<Method> = all.iter().map(|command| command.method).collect();
    assert_eq!(methods, [Method::Emptiness, Method::Consolidation]);

    let mut search = Disruptor::default().start(&snapshot, &catalogs, now());
    for command in &all {
        assert_eq!(search.next().as_ref(), Some(command));
    }
    assert!(search.next().is_none());
    assert!(search.next().is_none(), "an end stays an end");
}

#[test]
fn an_outlook_is_of_the_cluster_as_the_commands_so_far_leave_it() {
    let (snapshot, catalogs) = cluster();
    let mut search = Disruptor::default().start(&snapshot, &catalogs, now());
    let room = |search: &karpenter_core::disrupt::Commands<'_>| {
        let alone = search.outlook("waste")?.alone?;
        Some((alone.existing.into_keys().collect::<Vec<_>>(), alone.replacements.len()))
    };
    assert_eq!(search.outlook("empty").and_then(|outlook| outlook.goes_for()), Some(DisruptionReason::Empty));
    assert_eq!(room(&search), Some((vec!["empty".to_owned()], 0)));

    assert_eq!(search.next().expect("a command").candidates, ["empty"]);
    assert_eq!(search.outlook("empty"), None);
    assert_eq!(room(&search), Some((Vec::new(), 1)), "a node is made now that there is no room");
}

#[test]
fn an_empty_node_goes_whose_daemons_leave_after_those_of_another() {
    let (claims, mut nodes): (Vec<_>, Vec<_>) = ["first", "second"].map(node).into_iter().unzip();
    nodes[0].spec.taints = read(json!([{"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}]));
    let daemon = |node: &str| {
        let mut daemon = pod(&format!("daemon-{node}"), "100m", node);
        daemon.metadata.owner_references[0].kind = "DaemonSet".to_owned();
        daemon.metadata.labels.insert("app".to_owned(), "daemon".to_owned());
        daemon
    };
    let budget: PodDisruptionBudget = read(json!({
        "metadata": {"name": "daemons", "namespace": "default"},
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "daemon"}}},
        "status": {"disruptionsAllowed": 1, "currentHealthy": 2, "desiredHealthy": 1, "expectedPods": 2},
    }));
    let builder = Snapshot::builder().pools(vec![pool("p")]).claims(claims).nodes(nodes);
    let snapshot = builder.pods(vec![daemon("first"), daemon("second")]).budget(budget).build().expect("a cluster");
    let capacity = [("cpu", Quantity::from_units(4)), ("pods", Quantity::from_units(10))];
    let large =
        InstanceType::named("large", capacity).offering("on-demand", "a", Price::per_hour(0.4).expect("a price"));
    let catalogs = Catalogs::shared(vec![large], snapshot.pools()).expect("a catalog");
    let mut search = Disruptor::default().start(&snapshot, &catalogs, now());
    assert_eq!(search.outlook("second").expect("it is there").goes_for(), Some(DisruptionReason::Empty));
    assert_eq!(search.next().expect("a command").candidates, ["second"]);
    assert_eq!(search.next(), None);
}

/// In the other zone there are larger machines, cheaper by the CPU.
#[test]
fn a_pod_of_a_spread_moves_to_a_cheaper_machine_in_its_zone() {
    let offered = |name: &str, cpu: i64, zone: &str, price: f64| {
        let capacity = [("cpu", Quantity::from_units(cpu)), ("pods", Quantity::from_units(10))];
        InstanceType::named(name, capacity).offering("on-demand", zone, Price::per_hour(price).expect("a price"))
    };
    let mut spread = pod("spread", "3900m", "n");
    spread.spec.topology_spread_constraints = read(json!([
        {"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule",
         "labelSelector": {"matchLabels": {"app": "spread"}}},
    ]));
    spread.metadata.labels.insert("app".to_owned(), "spread".to_owned());
    let (claim, own) = node("n");
    let builder = Snapshot::builder().pools(vec![pool("p")]).claims([claim]).nodes([own]).pods(vec![spread]);
    let snapshot = builder.build().expect("a cluster");
    let types = vec![offered("large", 4, "a", 0.4), offered("cheap", 4, "a", 0.2), offered("huge", 32, "b", 1.4)];
    let catalogs = Catalogs::shared(types, snapshot.pools()).expect("a catalog");
    let commands = Disruptor::default().commands(&snapshot, &catalogs, now());
    let [command] = commands.as_slice() else { panic!("{commands:?}") };
    assert_eq!(&*command.replacements[0].instance_types, ["cheap"]);
}

/// Each pod alone would get a node like its own: one prefers another pool to that of the node that has room for it, the other finds
/// no cheaper machine.
#[test]
fn of_few_nodes_those_go_together_that_gain_nothing_alone() {
    let spot = NodeSelectorRequirement::new(labels::CAPACITY_TYPE, Operator::In, ["spot"]);
    let (mut heavy, mut wary) = (pool("heavy").require(spot), pool("wary"));
    heavy.spec.weight = Some(1);
    let (first, mut second) = (node_of("a", ["heavy", "large", "spot"]), node_of("b", ["wary", "small", "on-demand"]));
    for taints in [&mut wary.spec.template.spec.taints, &mut second.1.spec.taints] {
        *taints = read(json!([{"key": "wary", "effect": "PreferNoSchedule"}]));
    }
    let (free, mut bound) = (pod("free", "2", "a"), pod("bound", "1", "b"));
    bound.spec.node_selector.insert(labels::CAPACITY_TYPE.to_owned(), "on-demand".to_owned());
    let builder = Snapshot::builder().pools([heavy, pool("light"), wary]).claims([first.0, second.0]);
    let snapshot = builder.nodes([first.1, second.1]).pods(vec![free, bound]).build().expect("a cluster");
    let offered = |name: &str, cpu: i64, capacity_type: &str, price: f64| {
        let capacity = [("cpu", Quantity::from_units(cpu)), ("pods", Quantity::from_units(10))];
        InstanceType::named(name, capacity).offering(capacity_type, "a", Price::per_hour(price).expect("a price"))
    };
    let types = vec![offered("large", 8, "spot", 0.28), offered("small", 4, "on-demand", 0.25)];
    let catalogs = Catalogs::shared(types, snapshot.pools()).expect("a catalog");
    let commands = Disruptor::default().commands(&snapshot, &catalogs, now());
    let [command] = commands.as_slice() else { panic!("{commands:?}") };
    assert_eq!(command.candidates, ["a", "b"]);
    let pools: Vec<&str> = command.replacements.iter().map(|claim| claim.node_pool.as_str()).collect();
    assert_eq!(pools, ["light"]);
}
