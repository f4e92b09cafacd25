//! Pools that keep a number of nodes.

use std::{sync::Arc, time::Duration};

use karpenter_core::{
    api::{Node, NodePool, ObjectKey, PodStatus},
    engine::{Action, EngineOptions, Event, Object, Request},
    labels,
    provider::CreateError,
};

use crate::{
    ending::delete_first_claim,
    world::{World, static_pool, still},
};

#[test]
fn static_pools_keep_their_replicas() {
    let mut world = World::new(EngineOptions::default());
    world.put_pool(static_pool(3));
    world.run(120);
    assert_eq!((world.nodes.len(), world.machines.len()), (3, 3), "{:#?}", world.log);
    assert!(world.nodes.values().all(|node| node.metadata.labels[labels::NODE_POOL] == "fixed"));
    // They never go to save money, and their claims do not say that they could.
    assert!(!world.claims.values().any(|claim| claim.status.is_true("Consolidatable")), "{:#?}", world.claims);
    let mut pool = world.pools["fixed"].clone();
    pool.spec.replicas = Some(1);
    world.put_pool(pool);
    world.run(60);
    assert_eq!((world.nodes.len(), world.machines.len()), (1, 1), "{:#?}", world.log);
    delete_first_claim(&mut world);
    world.run(90);
    assert_eq!((world.nodes.len(), world.machines.len()), (1, 1), "{:#?}", world.log);
}

#[test]
fn without_static_capacity_static_pools_are_left_as_they_are() {
    let mut options = EngineOptions::default();
    options.static_capacity = false;
    let mut world = World::new(options);
    world.put_pool(static_pool(2));
    world.run(120);
    assert_eq!(world.bought, 0, "{:#?}", world.log);
    // As another controller has left them.
    world.options.static_capacity = true;
    world.crash();
    world.run(120);
    assert_eq!((world.nodes.len(), world.bought), (2, 2), "{:#?}", world.log);
    world.options.static_capacity = false;
    world.crash();
    let mut pool = world.pools["fixed"].clone();
    pool.metadata.generation = Some(2);
    pool.spec.template.metadata.labels.insert("version".to_owned(), "2".to_owned());
    world.put_pool(pool.clone());
    world.run(600);
    assert!(world.claims.values().all(|claim| claim.status.is_true("Drifted")), "{:#?}", world.claims);
    pool.spec.replicas = Some(1);
    world.put_pool(pool);
    world.run(300);
    assert_eq!((world.nodes.len(), world.bought), (2, 2), "{:#?}", world.log);
}

#[test]
fn the_name_of_a_claim_fits_into_a_label_however_long_that_of_its_pool_is() {
    let mut world = World::new(EngineOptions::default());
    let mut pool = static_pool(1);
    pool.metadata.name = format!("{}.{}", "a".repeat(53), "b".repeat(9));
    world.put_pool(pool);
    world.run(120);
    let names: Vec<_> = world.claims.keys().collect();
    assert!(matches!(names.as_slice(), [name] if name.len() <= 63 && name.starts_with("aaa")), "{names:?}");
    assert!(!names[0].contains('.'), "no part of a name begins with a hyphen: {names:?}");
}

#[test]
fn nodes_of_static_pools_have_the_labels_that_their_pool_asks_for() {
    let mut world = World::new(EngineOptions::default());
    let mut pool = static_pool(1);
    pool.spec.template.spec.requirements =
        serde_json::from_str(r#"[{"key": "example.com/team", "operator": "In", "values": ["a"]}]"#).expect("valid");
    world.put_pool(pool);
    world.run(300);
    let team = |node: &Node| node.metadata.labels.get("example.com/team").cloned();
    assert_eq!(world.nodes.values().filter_map(team).collect::<Vec<_>>(), ["a"], "{:#?}", world.log);
    assert_eq!(world.bought, 1, "it has not drifted: {:#?}", world.log);
}

#[test]
fn a_static_pool_asks_for_the_same_claim_again_where_nothing_is_compatible() {
    let mut world = World::new(EngineOptions::default());
    world.put_pool(static_pool(1));
    let error = || CreateError::NothingCompatible { message: "no subnet".to_owned() };
    world.launch_errors = std::iter::repeat_with(error).take(5).collect();
    world.run(120);
    assert_eq!((world.count("create"), world.bought, world.nodes.len()), (1, 1, 1), "{:#?}", world.log);
}

#[test]
fn a_static_pool_that_shrinks_waits_for_claims_that_are_on_their_way() {
    let mut world = World::new(still());
    world.put_pool(static_pool(2));
    world.run(120);
    assert_eq!(world.nodes.len(), 2, "{:#?}", world.log);
    let pool_of = |replicas| {
        let mut pool = world.pools["fixed"].clone();
        pool.spec.replicas = Some(replicas);
        Event::Applied(Object::NodePool(Arc::new(pool)))
    };
    let (more, fewer) = (pool_of(5), pool_of(2));
    world.engine.observe(more, world.now);
    let creates = world.engine.tick(world.now);
    world.engine.observe(fewer, world.now);
    let after = world.engine.tick(world.now);
    let count = |requests: &[Request], what: &str| {
        requests.iter().filter(|request| format!("{request:?}").contains(what)).count()
    };
    assert_eq!(count(&creates, "CreateClaim"), 3, "{creates:#?}");
    assert_eq!(count(&after, "DeleteClaim"), 0, "{after:#?}");
}

#[test]
fn a_static_pool_that_shrinks_takes_away_no_more_than_it_should() {
    let mut world = World::new(still());
    let mut pool = NodePool::named("general");
    pool.spec.replicas = Some(3);
    world.put_pool(pool.clone());
    world.run(60);
    assert_eq!(world.nodes.len(), 3);
    let mut pool = world.pools["general"].clone();
    pool.spec.replicas = Some(2);
    world.put_pool(pool);
    // The deletion is on its way for a second; a pod comes to the node meanwhile.
    let mut kept = Vec::new();
    for request in world.engine.tick(world.now) {
        if matches!(request.action, Action::DeleteClaim { .. }) { kept.push(request) } else { world.carry_out(request) }
    }
    assert_eq!(kept.len(), 1);
    let Action::DeleteClaim { name, .. } = &kept[0].action else { panic!("no deletion") };
    let node = world.claims[name].status.node_name.clone();
    world.add_pods("web", 1, "900m");
    let mut pod = world.pods.values().next().expect("a pod").clone();
    pod.spec.node_name = node;
    pod.status = PodStatus::default();
    world.put_pod(pod);
    let pool = world.pools["general"].clone();
    world.put_pool(pool);
    world.now = world.now + Duration::from_millis(500);
    for request in world.engine.tick(world.now) {
        if matches!(request.action, Action::DeleteClaim { .. }) { kept.push(request) } else { world.carry_out(request) }
    }
    for request in kept {
        world.carry_out(request);
    }
    world.run(30);
    assert_eq!(world.count("DeleteClaim"), 1, "{:#?}", world.log);
}

#[test]
fn a_static_pool_that_shrinks_counts_the_pods_of_daemonsets() {
    let mut world = World::new(still());
    world.put_pool(static_pool(2));
    world.run(60);
    let nodes: Vec<String> = world.nodes.keys().cloned().collect();
    let put = |world: &mut World, name: &str, node: &str, owner: &str| {
        world.add_pods(name, 1, "100m");
        let mut pod = world.pods[&ObjectKey::new("default", format!("{name}-0"))].clone();
        pod.spec.node_name = node.to_owned();
        pod.metadata.owner_references = vec![
            serde_json::from_value(serde_json::json!(
                {"apiVersion": "apps/v1", "kind": owner, "name": "o", "uid": "u", "controller": true}
            ))
            .expect("an owner"),
        ];
        world.put_pod(pod);
    };
    for (name, node, owner) in [
        ("app", 0, "ReplicaSet"),
        ("x", 0, "DaemonSet"),
        ("y", 0, "DaemonSet"),
        ("z", 0, "DaemonSet"),
        ("one", 1, "ReplicaSet"),
        ("two", 1, "ReplicaSet"),
    ] {
        put(&mut world, name, &nodes[node], owner);
    }
    world.put_pool(static_pool(1));
    world.run_until(120, |world| world.nodes.len() == 1);
    assert!(world.nodes.contains_key(&nodes[0]), "four pods cost more than two: {:#?}", world.log);
}
