//! How claims, nodes and machines end.

use std::{sync::Arc, time::Duration};

use karpenter_core::{
    InstanceType, Price, Quantity,
    api::{
        ConditionStatus, NillableDuration, Node, NodeClaim, NodePool, ObjectKey,
        conditions::{DRAINED, INSTANCE_TERMINATING},
    },
    engine::{EngineOptions, Event, Object, Refusal, UnreadableClaim},
    labels,
    provider::{Instance, ProviderEvent, ProviderId, RepairPolicy},
};

use crate::world::{Machine, World, static_pool, still};

fn running(options: EngineOptions, pods: usize) -> World {
    let mut world = World::with_pool(options);
    world.add_pods("web", pods, "900m");
    world.run(60);
    assert_eq!(world.unbound(), 0, "{:#?}", world.log);
    world.log.clear();
    world
}

pub(crate) fn delete_first_claim(world: &mut World) -> String {
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
fn a_pod_that_cannot_be_read_is_left_alone_if_its_annotations_ask_for_it() {
    let mut world = running(still(), 1);
    let key = world.pods.keys().next().expect("a pod").clone();
    let annotations = &mut world.pods.get_mut(&key).expect("a pod").metadata.annotations;
    annotations.insert(labels::DO_NOT_DISRUPT.to_owned(), "true".to_owned());
    world.garble_pod(&key);
    let name = delete_first_claim(&mut world);
    world.run(120);
    assert_eq!((world.count(" Evict {"), world.claims.contains_key(&name)), (0, true), "{:#?}", world.log);
    assert_eq!(world.count("note FailedDraining its annotation karpenter.sh/do-not-disrupt"), 1, "{:#?}", world.log);
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
fn only_capacity_that_was_taken_back_is_avoided() {
    let of = |name: &str, capacity_type: &str, dollars: f64| {
        let capacity = [("cpu", Quantity::from_units(2)), ("memory", Quantity::from_bytes(2 << 32))];
        InstanceType::named(name, capacity).offering(
            capacity_type,
            "zone-a",
            Price::per_hour(dollars).expect("a price"),
        )
    };
    for (is_taken_back, expected) in [(true, labels::ON_DEMAND), (false, labels::SPOT)] {
        let mut world = World::with_pool(still());
        world.types = vec![of("volatile", labels::SPOT, 0.03), of("steady", labels::ON_DEMAND, 0.1)];
        world.add_pods("web", 2, "900m");
        world.run(60);
        let machine = world.machines.values().next().expect("a machine").instance.clone();
        assert_eq!(machine.labels[labels::CAPACITY_TYPE], labels::SPOT);
        let (id, at) = (machine.id.clone(), world.now);
        let event =
            if is_taken_back { ProviderEvent::Interruption { id, at } } else { ProviderEvent::Ending { id, at } };
        world.provider_events.push(event);
        world.run(90);
        let machines: Vec<_> = world.machines.values().map(|machine| &machine.instance).collect();
        let [replacement] = machines[..] else { panic!("{:#?}", world.log) };
        assert_ne!(replacement.id, machine.id);
        assert_eq!(replacement.labels[labels::CAPACITY_TYPE], expected, "{:#?}", world.log);
    }
}

#[test]
fn a_machine_that_a_late_list_cannot_know_is_not_missed() {
    let mut world = World::with_pool(still());
    world.join_after = Duration::from_mins(5);
    world.run(100);
    world.late_lists = 1;
    world.run_until(120, |world| !world.kept_lists.is_empty());
    world.add_pods("web", 1, "900m");
    world.run(90);
    assert_eq!(world.machines.len(), 1, "{:#?}", world.log);
    let list = world.kept_lists.pop().expect("a list");
    world.engine.observe(list, world.now);
    world.run(5);
    assert_eq!((world.claims.len(), world.machines.len()), (1, 1), "{:#?}", world.log);
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
fn claims_without_a_pool_are_repaired_by_the_health_of_the_cluster() {
    for (sick, pooled, sick_pooled, expected) in [(2, 7, 0, 2), (1, 4, 2, 0)] {
        let mut options = still();
        options.repair_policies.push(RepairPolicy::new("Ready", ConditionStatus::False, Duration::from_mins(10)));
        let mut world = World::new(options);
        world.put_pool(static_pool(pooled));
        for index in 0..sick {
            let mut claim = NodeClaim::named(format!("own-{index}"));
            claim.metadata.uid = claim.name().to_owned();
            claim.metadata.creation_timestamp = Some(world.now);
            let types = r#"[{"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["small"]}]"#;
            claim.spec.requirements = serde_json::from_str(types).expect("valid");
            world.put_claim(claim);
        }
        world.run(120);
        let (of_pool, own): (Vec<Node>, Vec<Node>) =
            world.nodes.values().cloned().partition(|node| node.metadata.labels.contains_key(labels::NODE_POOL));
        assert_eq!((of_pool.len(), own.len()), (usize::try_from(pooled).expect("few"), sick), "{:#?}", world.log);
        for mut node in of_pool.into_iter().take(sick_pooled).chain(own) {
            node.status.conditions[0].status = ConditionStatus::False;
            node.status.conditions[0].last_transition_time = Some(world.now);
            world.put_node(node);
        }
        world.run(660);
        let repaired = world.log.iter().filter(|line| line.contains("DeleteClaim") && line.contains("own-")).count();
        assert_eq!(repaired, expected, "{:#?}", world.log);
    }
}

fn set_ready(world: &mut World, status: ConditionStatus) {
    let mut node = world.nodes.values().next().expect("a node").clone();
    node.status.conditions[0].status = status;
    node.status.conditions[0].last_transition_time = Some(world.now);
    world.put_node(node);
}

#[test]
fn a_node_that_recovers_before_it_is_repaired_keeps_no_deadline() {
    let mut options = still();
    options.repair_policies.push(RepairPolicy::new("Ready", ConditionStatus::False, Duration::from_mins(10)));
    let mut world = running(options, 8);
    let has_deadline = |world: &World| {
        world.claims.values().any(|claim| claim.metadata.annotations.contains_key(labels::TERMINATION_TIMESTAMP))
    };
    set_ready(&mut world, ConditionStatus::False);
    world.deletion_refusal = Some(Refusal::Unavailable("no answer".to_owned()));
    world.run_until(700, has_deadline);
    set_ready(&mut world, ConditionStatus::True);
    world.run(5);
    assert!(!has_deadline(&world), "{:#?}", world.log);
    world.deletion_refusal = None;
    world.run(60);
    assert_eq!(world.claims.len(), 1, "{:#?}", world.log);
}

#[test]
fn a_node_that_is_not_ready_gives_its_machine_back_once_it_is_drained() {
    let mut world = running(still(), 8);
    set_ready(&mut world, ConditionStatus::False);
    let name = delete_first_claim(&mut world);
    world.run_until(120, |world| !world.claims.contains_key(&name) && world.unbound() == 0);
    assert_eq!((world.nodes.len(), world.machines.len()), (1, 1), "{:#?}", world.log);
}

#[test]
fn evictions_count_though_the_pod_is_gone_before_they_are_answered() {
    let mut world = running(still(), 8);
    world.ends_pods_at_once = true;
    delete_first_claim(&mut world);
    world.run_until(120, |world| world.unbound() == 0);
    assert_eq!((world.count(" Evict {"), world.count("note Evicted")), (8, 8), "{:#?}", world.log);
}

#[test]
fn a_deadline_that_somebody_else_wrote_is_kept() {
    let deadline = "2030-01-01T00:00:00Z";
    let mut options = still();
    options.repair_policies.push(RepairPolicy::new("Ready", ConditionStatus::False, Duration::from_mins(10)));
    let mut world = running(options, 8);
    let mut claim = world.claims.values().next().expect("a claim").clone();
    claim.metadata.annotations.insert(labels::TERMINATION_TIMESTAMP.to_owned(), deadline.to_owned());
    world.put_claim(claim);
    world.run(5);
    let written = |world: &World| {
        let claim = world.claims.values().next().expect("a claim");
        claim.metadata.annotations.get(labels::TERMINATION_TIMESTAMP).cloned()
    };
    assert_eq!(written(&world).as_deref(), Some(deadline), "{:#?}", world.log);
    set_ready(&mut world, ConditionStatus::False);
    world.deletion_refusal = Some(Refusal::Unavailable("no answer".to_owned()));
    world.run_until(700, |world| written(world).is_some_and(|text| text != deadline));
    set_ready(&mut world, ConditionStatus::True);
    world.run(5);
    assert_eq!(written(&world).as_deref(), Some(deadline), "{:#?}", world.log);
}

#[test]
fn a_node_that_its_kubelet_makes_anew_becomes_ready_for_pods_again() {
    let mut world = running(still(), 8);
    let mut node = world.nodes.values().next().expect("a node").clone();
    for label in [labels::REGISTERED, labels::INITIALIZED] {
        node.metadata.labels.remove(label);
    }
    node.metadata.finalizers.clear();
    world.put_node(node);
    world.run(60);
    let node = world.nodes.values().next().expect("a node");
    assert_eq!(
        [labels::REGISTERED, labels::INITIALIZED].map(|label| node.metadata.labels.contains_key(label)),
        [true; 2]
    );
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

#[test]
fn the_machine_of_a_claim_that_cannot_be_read_is_left_alone() {
    for with_id in [false, true] {
        let mut world = World::with_pool(still());
        world.add_pods("web", 1, "900m");
        world.run(60);
        let claim = world.claims.values().next().expect("a claim").clone();
        // A later version wrote it, and another engine starts.
        let id = if with_id { claim.status.provider_id.as_str() } else { "" };
        let (claims, uid) = (std::mem::take(&mut world.claims), if with_id { "other" } else { &claim.metadata.uid });
        world.crash();
        let unread = UnreadableClaim::new(claim.name(), uid, id);
        world.engine.observe(Event::Applied(Object::UnreadableClaim(unread)), world.now);
        world.run(600);
        assert_eq!(world.machines.len(), 1, "{:#?}", world.log);
        // It can be read again, and goes.
        for mut claim in claims.into_values() {
            claim.metadata.deletion_timestamp = Some(world.now);
            world.put_claim(claim);
        }
        world.run_until(60, |world| !world.machines.contains_key(&claim.status.provider_id));
    }
}

#[test]
fn people_are_told_now_and_then_that_too_many_nodes_are_sick() {
    let mut options = still();
    let policy = RepairPolicy::new("Ready", ConditionStatus::False, Duration::from_mins(10));
    options.repair_policies.push(policy);
    let mut world = World::new(options);
    let mut pool = NodePool::named("general");
    pool.spec.replicas = Some(6);
    world.put_pool(pool);
    world.run(60);
    let sick: Vec<String> = world.nodes.keys().take(3).cloned().collect();
    for name in &sick {
        let mut node = world.nodes[name].clone();
        node.status.conditions[0].status = ConditionStatus::False;
        node.status.conditions[0].last_transition_time = Some(world.now);
        world.put_node(node);
    }
    world.run(600);
    world.log.clear();
    for _ in 0..120 {
        // They are alive enough to say how they are.
        for name in &sick {
            let node = world.nodes[name].clone();
            world.put_node(node);
        }
        world.run(10);
    }
    let told = world.count("NodeRepairBlocked");
    assert!(told <= 3 * 3, "{told}");
}

#[test]
fn a_machine_that_goes_while_its_node_is_drained_is_looked_for_again() {
    let mut world = World::with_pool(still());
    world.add_pods("web", 1, "900m");
    world.run(60);
    let mut pod = world.pods.values().next().expect("a pod").clone();
    pod.metadata.annotations.insert(labels::DO_NOT_DISRUPT.to_owned(), "true".to_owned());
    world.put_pod(pod);
    let mut claim = world.claims.values().next().expect("a claim").clone();
    claim.metadata.deletion_timestamp = Some(world.now);
    world.put_claim(claim.clone());
    world.run(10);
    // It stops: its node is not ready some time before the cloud knows it no more.
    let mut node = world.nodes.values().next().expect("a node").clone();
    node.status.conditions[0].status = ConditionStatus::Unknown;
    world.put_node(node);
    world.run(20);
    world.machines.clear();
    world.run(10);
    assert!(!world.claims.contains_key(claim.name()) && world.nodes.is_empty(), "{:#?}", world.log);
}

#[test]
fn a_volume_that_is_written_down_in_a_pod_is_not_waited_for() {
    let mut world = running(still(), 1);
    let node = world.nodes.keys().next().expect("a node").clone();
    let attachment = serde_json::from_value(serde_json::json!({
        "metadata": {"name": "a"},
        "spec": {"attacher": "csi", "nodeName": node, "source": {"inlineVolumeSpec": {"csi": {"driver": "csi"}}}},
        "status": {"attached": true},
    }));
    let attachment = Object::VolumeAttachment(Arc::new(attachment.expect("as the API has it")));
    world.engine.observe(Event::Applied(attachment), world.now);
    let name = delete_first_claim(&mut world);
    world.run_until(120, |world| !world.claims.contains_key(&name));
}
