//! What people are told of nodes that stay though they should go.

use karpenter_core::{
    Quantity,
    api::{Budget, NodePool},
    engine::EngineOptions,
};

use crate::world::{World, static_pool};

/// The nodes of a pool drift, and half an hour passes.
fn drift(world: &mut World, mut pool: NodePool) {
    pool.metadata.generation = Some(2);
    pool.spec.template.metadata.labels.insert("version".to_owned(), "2".to_owned());
    world.put_pool(pool);
    world.run(1800);
}

/// The messages that say what holds up nodes.
fn told(world: &World) -> Vec<&str> {
    world.log.iter().filter_map(|line| Some(line.split_once("note DisruptionBlocked ")?.1)).collect()
}

fn no_node() -> Budget {
    let mut budget = Budget::default();
    "0".clone_into(&mut budget.nodes);
    budget
}

#[test]
fn a_budget_that_holds_up_drift_is_told_once() {
    let mut world = World::new(EngineOptions::default());
    let mut pool = static_pool(2);
    pool.spec.disruption.budgets = vec![no_node()];
    world.put_pool(pool.clone());
    world.run(600);
    assert_eq!(told(&world), Vec::<&str>::new(), "no node should go");
    drift(&mut world, pool);
    assert_eq!(told(&world), ["no node may go for the reason Drifted: spec.disruption.budgets[0] allows 0, 0 taken"]);
}

#[test]
fn a_budget_that_holds_up_empty_nodes_is_told() {
    let mut world = World::new(EngineOptions::default());
    let mut pool = NodePool::named("general");
    pool.spec.disruption.budgets = vec![no_node()];
    world.put_pool(pool);
    world.add_pods("web", 1, "900m");
    world.run(400);
    let pod = world.pods.keys().next().expect("a pod").clone();
    world.log.clear();
    world.remove_pod(&pod);
    world.run(600);
    assert_eq!(told(&world), ["no node may go for the reason Empty: spec.disruption.budgets[0] allows 0, 0 taken"]);
}

#[test]
fn a_limit_of_nodes_that_holds_up_drift_is_told() {
    let mut world = World::new(EngineOptions::default());
    let mut pool = static_pool(2);
    pool.spec.limits.insert("nodes".into(), Quantity::from_units(2));
    world.put_pool(pool.clone());
    world.run(60);
    drift(&mut world, pool.clone());
    assert_eq!(told(&world), ["drifted nodes are not replaced: spec.limits.nodes leaves no room for a node more"]);
    world.log.clear();
    pool.spec.limits.insert("nodes".into(), Quantity::from_units(3));
    drift(&mut world, pool);
    let is_new = |node: &karpenter_core::api::Node| node.metadata.labels.contains_key("version");
    assert!(world.nodes.len() == 2 && world.nodes.values().all(is_new), "{:#?}", world.log);
    assert_eq!(told(&world), Vec::<&str>::new());
}

#[test]
fn pods_of_a_drifted_node_without_another_place_are_told_of() {
    let mut world = World::new(EngineOptions::default());
    let mut pool = NodePool::named("general");
    pool.spec.template.metadata.labels.insert("version".to_owned(), "1".to_owned());
    world.put_pool(pool.clone());
    world.add_pods("web", 1, "900m");
    let mut pod = world.pods.values().next().expect("a pod").clone();
    pod.spec.node_selector.insert("version".to_owned(), "1".to_owned());
    world.put_pod(pod);
    world.run(400);
    world.log.clear();
    drift(&mut world, pool);
    assert_eq!(told(&world), ["it has drifted, and these pods have no other place: default/web-0"], "{:#?}", world.log);
}
