//! How claims, nodes and machines end.

use std::time::Duration;

use karpenter_core::{
    Quantity,
    api::{ConditionStatus, NillableDuration, NodePool, ObjectKey},
    engine::EngineOptions,
    labels,
    lifecycle::{DRAINED, INSTANCE_TERMINATING},
    provider::{Instance, ProviderEvent, ProviderId, RepairPolicy},
};

use crate::world::{Machine, World};

/// No node goes by itself.
fn still() -> EngineOptions {
    let mut options = EngineOptions::default();
    options.disruption_period = None;
    options
}

fn running(options: EngineOptions, pods: usize) -> World {
    let mut world = World::with_pool(options);
    world.add_pods("web", pods, "900m");
    world.run(60);
    assert_eq!(world.unbound(), 0, "{:#?}", world.log);
    world.log.clear();
    world
}

fn delete_first_claim(world: &mut World) -> String {
    let mut claim = world.claims.values().next().expect("a claim").clone();
    claim.metadata.deletion_timestamp = Some(world.now);
    world.put_claim(claim.clone());
    world.settle();
    claim.metadata.name
}

#[test]
fn a_deleted_claim_is_drained_and_its_pods_run_elsewhere() {
    let mut world = running(still(), 8);
    let name = delete_first_claim(&mut world);
    world.run_until(120, |world| !world.claims.contains_key(&name));
    world.run_until(120, |world| world.unbound() == 0);
    assert_eq!((world.claims.len(), world.nodes.len(), world.machines.len()), (1, 1, 1), "{:#?}", world.log);
    assert_eq!((world.count("create"), world.count(" Evict {")), (1, 8), "{:#?}", world.log);
}

#[test]
fn a_pod_that_cannot_be_read_is_evicted_when_its_node_goes_and_is_planned_for_nowhere() {
    let mut world = running(still(), 1);
    let pod = world.pods.keys().next().expect("a pod").clone();
    world.garble_pod(&pod);
    let name = delete_first_claim(&mut world);
    world.run_until(5, |world| world.count(" Evict {") == 1);
    assert_eq!(world.count("create"), 0, "{:#?}", world.log);
    world.run_until(120, |world| !world.claims.contains_key(&name));
}

#[test]
fn a_drain_takes_five_seconds_at_least() {
    let mut world = running(still(), 1);
    let keys: Vec<ObjectKey> = world.pods.keys().cloned().collect();
    for key in &keys {
        world.remove_pod(key);
    }
    let name = delete_first_claim(&mut world);
    world.run(4);
    assert_eq!(world.count("Terminate"), 0, "{:#?}", world.log);
    world.run(1);
    assert_eq!(world.count("Terminate"), 1, "{:#?}", world.log);
    assert!(world.claims[&name].status.is_true(INSTANCE_TERMINATING) && world.claims[&name].status.is_true(DRAINED));
    world.run(10);
    assert_eq!((world.claims.len(), world.nodes.len(), world.machines.len()), (0, 0, 0), "{:#?}", world.log);
}

#[test]
fn a_budget_holds_a_pod_until_the_deadline() {
    let mut pool = NodePool::named("general");
    pool.spec.template.spec.termination_grace_period = Some(NillableDuration::from_secs(300));
    let mut world = World::new(still());
    world.put_pool(pool);
    world.add_pods("web", 1, "900m");
    world.run(60);
    let pod = world.pods.keys().next().expect("a pod").clone();
    world.held.insert(pod.clone());
    let name = delete_first_claim(&mut world);
    world.run(265);
    assert!(world.pods.contains_key(&pod) && world.count("DeletePod") == 0, "{:#?}", world.log);
    assert!((10..60).contains(&world.count("Evict")), "attempts are ten seconds apart at most: {:#?}", world.log);
    assert_eq!(world.count("FailedDraining"), 1);
    world.run(60);
    assert!(!world.pods.contains_key(&pod) && !world.claims.contains_key(&name), "{:#?}", world.log);
}

#[test]
fn a_deleted_node_takes_its_claim_with_it() {
    let mut world = running(still(), 2);
    let mut node = world.nodes.values().next().expect("a node").clone();
    node.metadata.deletion_timestamp = Some(world.now);
    let name = node.metadata.name.clone();
    world.put_node(node);
    world.run(90);
    assert!(!world.nodes.contains_key(&name), "{:#?}", world.log);
    assert_eq!((world.unbound(), world.claims.len(), world.machines.len()), (0, 1, 1), "{:#?}", world.log);
}

#[test]
fn a_claim_whose_machine_is_gone_is_not_drained() {
    let mut world = running(still(), 2);
    let name = world.claims.keys().next().expect("a claim").clone();
    world.machines.clear();
    world.run(200);
    assert!(!world.claims.contains_key(&name), "{:#?}", world.log);
    assert_eq!((world.unbound(), world.claims.len(), world.machines.len()), (0, 1, 1), "{:#?}", world.log);
}

#[test]
fn a_machine_without_a_claim_is_terminated_after_a_while() {
    let mut world = running(still(), 1);
    let machine = world.machines.values().next().expect("a machine");
    let instance = Instance::new(ProviderId::new("leaked"), "nobody", machine.instance.labels.clone());
    let leaked = Machine {
        instance,
        instance_type: machine.instance_type.clone(),
        launched: world.now + Duration::from_hours(9),
    };
    world.machines.insert("leaked".to_owned(), leaked);
    world.run(30);
    assert!(world.machines.contains_key("leaked"));
    world.run(300);
    assert_eq!(world.machines.len(), 1, "{:#?}", world.log);
}

#[test]
fn claims_go_when_they_are_old_enough() {
    let mut pool = NodePool::named("general");
    pool.spec.template.spec.expire_after = NillableDuration::from_secs(600);
    let mut world = World::new(still());
    world.put_pool(pool);
    world.add_pods("web", 2, "900m");
    world.run(60);
    let first = world.claims.keys().next().expect("a claim").clone();
    world.run(530);
    assert!(world.claims.contains_key(&first));
    world.run(120);
    assert!(!world.claims.contains_key(&first), "{:#?}", world.log);
    assert_eq!((world.unbound(), world.machines.len()), (0, 1));
}

#[test]
fn an_interrupted_machine_is_replaced() {
    let mut world = running(still(), 2);
    let id = world.machines.values().next().expect("a machine").instance.id.clone();
    world.provider_events.push(ProviderEvent::Interruption { id: id.clone(), at: world.now + Duration::from_mins(2) });
    world.run(90);
    assert!(!world.machines.contains_key(id.as_str()), "{:#?}", world.log);
    assert_eq!((world.unbound(), world.machines.len()), (0, 1), "{:#?}", world.log);
}

#[test]
fn what_people_should_know_is_said_of_claim_and_node_and_nothing_else_is_done() {
    let mut world = running(still(), 2);
    let id = world.machines.values().next().expect("a machine").instance.id.clone();
    let (reason, message) = ("SpotRebalanceRecommendation".into(), "it may go".to_owned());
    world.provider_events.push(ProviderEvent::Notice { id, is_warning: false, reason, message });
    world.run(90);
    assert_eq!(world.count("note SpotRebalanceRecommendation it may go"), 2, "{:#?}", world.log);
    assert_eq!((world.claims.len(), world.machines.len()), (1, 1), "{:#?}", world.log);
}

#[test]
fn a_sick_node_is_replaced_unless_too_many_are() {
    for (sick, expected) in [(1, 1), (3, 0)] {
        let mut options = still();
        options.repair_policies.push(RepairPolicy::new("Ready", ConditionStatus::False, Duration::from_mins(10)));
        let mut world = World::new(options);
        let mut pool = NodePool::named("general");
        pool.spec.replicas = Some(6);
        world.put_pool(pool);
        world.run(60);
        assert_eq!(world.nodes.len(), 6, "{:#?}", world.log);
        world.log.clear();
        let nodes: Vec<_> = world.nodes.values().take(sick).cloned().collect();
        for mut node in nodes {
            node.status.conditions[0].status = ConditionStatus::False;
            node.status.conditions[0].last_transition_time = Some(world.now);
            world.put_node(node);
        }
        world.run(590);
        assert_eq!(world.count("NodeRepair "), 0);
        world.run(120);
        assert_eq!(world.count("NodeRepair "), expected, "{:#?}", world.log);
    }
}

#[test]
fn static_pools_keep_their_replicas() {
    let mut world = World::new(EngineOptions::default());
    let mut pool = NodePool::named("fixed");
    pool.spec.replicas = Some(3);
    world.put_pool(pool);
    world.run(120);
    assert_eq!((world.nodes.len(), world.machines.len()), (3, 3), "{:#?}", world.log);
    assert!(world.nodes.values().all(|node| node.metadata.labels[labels::NODE_POOL] == "fixed"));
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
fn pools_say_what_they_have() {
    let mut world = running(still(), 8);
    world.run(10);
    let pool = &world.pools["general"];
    assert_eq!(pool.status.nodes, Some(1), "{:#?}", world.log);
    assert_eq!(pool.status.resources.get("cpu").map(Quantity::units_ceil), Some(8));
    for condition in ["Ready", "ValidationSucceeded", "NodeRegistrationHealthy"] {
        assert!(
            pool.status.conditions.iter().any(|c| c.r#type == condition && c.status == ConditionStatus::True),
            "{condition}"
        );
    }
    assert!(pool.metadata.annotations.contains_key(labels::NODE_POOL_HASH));
}

#[test]
fn an_engine_that_was_stopped_while_a_node_ends_goes_on() {
    for crash_after in 0..20 {
        let mut world = running(still(), 8);
        let name = delete_first_claim(&mut world);
        world.run(crash_after);
        world.crash();
        world.run(150);
        assert!(!world.claims.contains_key(&name), "crash after {crash_after} s: {:#?}", world.log);
        let found = (world.unbound(), world.claims.len(), world.nodes.len(), world.machines.len());
        assert_eq!(found, (0, 1, 1, 1), "crash after {crash_after} s: {:#?}", world.log);
    }
}
