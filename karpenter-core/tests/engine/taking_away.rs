//! Nodes that should go, from the search to the end.

use karpenter_core::{
    Quantity,
    api::{NillableDuration, ObjectKey},
    engine::{EngineOptions, Metric, MetricLabels},
    labels,
    lifecycle::{DISRUPTION_REASON, mark_disrupted, set_condition},
    provider::CreateError,
};

use crate::world::World;

/// A large node of which most pods have gone since.
fn half_empty() -> World {
    let mut world = World::with_pool(EngineOptions::default());
    world.add_pods("web", 8, "900m");
    world.run(45);
    assert_eq!((world.unbound(), world.nodes.len()), (0, 1), "{:#?}", world.log);
    let gone: Vec<ObjectKey> = world.pods.keys().skip(1).cloned().collect();
    for key in &gone {
        world.remove_pod(key);
    }
    world.log.clear();
    world
}

/// The same once all pods have gone.
fn empty() -> World {
    let mut world = half_empty();
    let keys: Vec<ObjectKey> = world.pods.keys().cloned().collect();
    for key in &keys {
        world.remove_pod(key);
    }
    world
}

fn is_marked(world: &World) -> bool {
    world.nodes.values().any(|node| node.spec.taints.iter().any(|taint| taint.key == labels::DISRUPTED))
}

#[test]
fn an_empty_node_goes_after_it_was_looked_at_twice() {
    let mut world = empty();
    world.run(14);
    assert!(!is_marked(&world), "{:#?}", world.log);
    world.run(60);
    assert_eq!((world.nodes.len(), world.claims.len(), world.machines.len()), (0, 0, 0), "{:#?}", world.log);
}

#[test]
fn a_node_stays_for_as_long_as_there_is_a_pod_that_cannot_be_read() {
    let mut world = half_empty();
    let pod = world.pods.keys().next().expect("a pod").clone();
    world.garble_pod(&pod);
    world.run(120);
    assert!(!is_marked(&world) && world.claims.len() == 1, "{:#?}", world.log);
    world.remove_pod(&pod);
    world.run_until(120, |world| world.claims.is_empty());
}

#[test]
fn what_the_api_server_does_not_answer_is_asked_again_every_two_seconds() {
    let mut world = empty();
    world.cannot_delete_claims = true;
    world.run_until(60, |world| world.count("DeleteClaim") > 0);
    world.log.clear();
    world.run(20);
    assert_eq!((world.count("DeleteClaim"), world.count("note")), (10, 10), "{:#?}", world.log);
    world.cannot_delete_claims = false;
    world.run(40);
    assert_eq!((world.nodes.len(), world.claims.len(), world.machines.len()), (0, 0, 0), "{:#?}", world.log);
}

#[test]
fn a_node_that_others_write_when_it_is_chosen_to_go_is_marked_all_the_same() {
    let mut world = half_empty();
    world.contested_node_writes = 1;
    world.run_until(60, |world| world.contested_node_writes == 0);
    world.run(2);
    assert!(is_marked(&world), "{:#?}", world.log);
}

#[test]
fn a_claim_that_others_write_when_it_is_chosen_to_go_says_why_all_the_same() {
    let mut world = half_empty();
    world.contested_reasons = 1;
    world.run_until(60, |world| world.contested_reasons == 0);
    world.run(2);
    assert!(world.claims.values().any(|claim| claim.status.is_true(DISRUPTION_REASON)), "{:#?}", world.log);
}

#[test]
fn drift_from_a_pool_is_seen_as_soon_as_the_pool_has_changed() {
    let mut options = EngineOptions::default();
    options.disruption_period = None;
    let mut world = World::with_pool(options);
    world.add_pods("web", 1, "900m");
    world.run(45);
    let mut pool = world.pools["general"].clone();
    pool.spec.template.metadata.labels.insert("team".to_owned(), "shop".to_owned());
    world.put_pool(pool);
    let has_drifted = |world: &World| world.claims.values().any(|claim| claim.status.is_true("Drifted"));
    assert!(!has_drifted(&world));
    world.run(15);
    assert!(has_drifted(&world), "{:#?}", world.log);
}

#[test]
fn a_node_that_is_too_large_is_replaced_before_it_goes() {
    let mut world = half_empty();
    let old = world.nodes.keys().next().expect("a node").clone();
    world.run_until(60, is_marked);
    assert_eq!(world.count("create"), 1, "{:#?}", world.log);
    world.run(20);
    assert!(world.nodes[&old].metadata.deletion_timestamp.is_none(), "the replacement is not there yet");
    world.run(60);
    assert!(!world.nodes.contains_key(&old), "{:#?}", world.log);
    assert_eq!((world.unbound(), world.nodes.len(), world.machines.len()), (0, 1, 1), "{:#?}", world.log);
    assert_eq!(world.nodes.values().next().expect("a node").metadata.labels[labels::INSTANCE_TYPE], "small");
    let counters = world.engine.counters();
    assert_eq!((counters.total(Metric::Decisions), counters.total(Metric::ClaimsDisrupted)), (1, 1));
    let reasons = ["drifted", "empty", "underutilized"].map(|reason| {
        let is_of = |labels: &MetricLabels| labels.contains(&("reason", reason.to_owned()));
        counters.counts().filter(|(metric, labels, _)| *metric == Metric::ClaimsDisrupted && is_of(labels)).count()
    });
    assert_eq!(reasons, [0, 0, 1]);
}

/// When a large and a small pod of a node were evicted for which a smaller one comes. The small pod goes beside another one. It
/// would fit on the replacement too, where the large one has to go.
fn evictions_of(large_priority: i32) -> [i64; 2] {
    let mut world = World::with_pool(EngineOptions::default());
    world.add_pods("large", 1, "1500m");
    let mut large = world.pods.values().next().expect("a pod").clone();
    large.spec.priority = Some(large_priority);
    world.put_pod(large);
    world.add_pods("a-small", 1, "600m");
    world.add_pods("fill", 6, "900m");
    world.run(45);
    world.add_pods("other", 1, "1300m");
    world.run(45);
    assert_eq!((world.unbound(), world.nodes.len()), (0, 2), "{:#?}", world.log);
    let gone: Vec<ObjectKey> = world.pods.keys().filter(|key| key.name.starts_with("fill")).cloned().collect();
    for key in &gone {
        world.remove_pod(key);
    }
    world.log.clear();
    world.run(120);
    assert_eq!(world.bought, 3, "{:#?}", world.log);
    ["large-0", "a-small-0"].map(|name| {
        let line = world.log.iter().find(|line| line.contains("Evict {") && line.contains(name));
        let second = line.and_then(|line| line.split(' ').next()?.parse().ok());
        second.unwrap_or_else(|| panic!("{name} was not evicted: {:#?}", world.log))
    })
}

#[test]
fn pods_that_need_the_replacement_leave_first() {
    let [large, small] = evictions_of(0);
    assert!(large < small, "{large} {small}");
}

#[test]
fn pods_that_leave_before_critical_ones_do_not_wait_for_them() {
    let ([first, _], [large, small]) = (evictions_of(0), evictions_of(2_000_000_000));
    assert!(small < large && small <= first + 2, "{first}: {large} {small}");
}

#[test]
fn people_are_not_told_why_nodes_may_not_go_that_are_going() {
    let mut world = half_empty();
    world.held.extend(world.pods.keys().cloned());
    world.run(900);
    let told = world.log.iter().filter(|line| line.contains("DisruptionBlocked"));
    let of_going = told.filter(|line| line.contains("deletion was asked for") || line.contains("chosen to go"));
    assert_eq!(of_going.count(), 0, "{:#?}", world.log);
}

#[test]
fn a_command_whose_replacement_does_not_come_leaves_everything_as_it_was() {
    let mut world = half_empty();
    world.launch_errors.push(CreateError::NothingCompatible { message: "no".to_owned() });
    world.run_until(60, |world| world.count("DisruptionFailed") == 1);
    world.run(9);
    assert!(!is_marked(&world), "{:#?}", world.log);
    assert_eq!((world.unbound(), world.claims.len(), world.machines.len()), (0, 1, 1), "{:#?}", world.log);
}

#[test]
fn a_replacement_that_never_joins_goes_again() {
    let mut world = half_empty();
    world.never_joins = true;
    world.run_until(60, is_marked);
    world.run(590);
    assert_eq!(world.claims.len(), 2, "{:#?}", world.log);
    // Ten minutes are over; no further command begins, so that the cluster can be looked at.
    let mut pool = world.pools["general"].clone();
    pool.spec.disruption.consolidate_after = NillableDuration::never();
    world.put_pool(pool);
    world.run(60);
    assert!(!is_marked(&world), "{:#?}", world.log);
    assert_eq!((world.unbound(), world.claims.len(), world.machines.len()), (0, 1, 1), "{:#?}", world.log);
}

#[test]
fn a_limit_holds_when_a_replacement_is_deleted() {
    let mut world = half_empty();
    world.never_joins = true;
    let mut pool = world.pools["general"].clone();
    pool.spec.limits.insert("cpu".into(), Quantity::from_units(8));
    world.put_pool(pool);
    let first = world.claims.keys().next().expect("a claim").clone();
    world.run_until(60, is_marked);
    // Neither the node that is to go nor the one that was to come counts now; but the first one stays.
    world.add_pods("late", 1, "7500m");
    world.run(5);
    let mut replacement = world.claims.values().find(|claim| *claim.name() != first).expect("a replacement").clone();
    replacement.metadata.deletion_timestamp = Some(world.now);
    world.put_claim(replacement);
    world.run(5);
    let staying = world.claims.values().filter(|claim| claim.metadata.deletion_timestamp.is_none());
    let staying: Vec<&str> = staying.map(karpenter_core::api::NodeClaim::name).collect();
    assert_eq!((staying, is_marked(&world)), (vec![first.as_str()], false), "{:#?}", world.log);
}

#[test]
fn a_taint_that_an_engine_left_behind_is_taken_away() {
    let mut world = half_empty();
    let mut pool = world.pools["general"].clone();
    pool.spec.disruption.consolidate_after = NillableDuration::never();
    world.put_pool(pool);
    let node = world.nodes.values().next().expect("a node").clone();
    world.put_node(mark_disrupted(&node).expect("it has no such taint"));
    let mut claim = world.claims.values().next().expect("a claim").clone();
    let status = karpenter_core::api::ConditionStatus::True;
    set_condition(&mut claim.status.conditions, "DisruptionReason", status, "Empty", "", world.now);
    world.put_claim(claim);
    world.crash();
    world.run(15);
    assert!(!is_marked(&world), "{:#?}", world.log);
    assert!(!world.claims.values().next().expect("a claim").status.is_true("DisruptionReason"));
}

#[test]
fn a_stopped_engine_leaves_no_more_nodes_than_are_needed() {
    for crash_after in 0..90 {
        let mut world = half_empty();
        world.run(crash_after);
        world.crash();
        world.run(400);
        assert!(!is_marked(&world), "crash after {crash_after} s: {:#?}", world.log);
        let found = (world.unbound(), world.claims.len(), world.nodes.len(), world.machines.len());
        assert_eq!(found, (0, 1, 1, 1), "crash after {crash_after} s: {:#?}", world.log);
        assert_eq!(world.bought, 2, "crash after {crash_after} s: {:#?}", world.log);
    }
}

#[test]
fn an_engine_that_is_stopped_between_two_requests_buys_nothing_twice() {
    for requests in 0..40 {
        let mut world = half_empty();
        world.requests_until_crash = Some(requests);
        world.run(500);
        let found = (world.unbound(), world.nodes.len(), world.bought);
        assert_eq!(found, (0, 1, 2), "crash after {requests} requests: {:#?}", world.log);
    }
}

#[test]
fn a_stopped_engine_goes_on_with_the_replacement_of_static_nodes() {
    for crash_after in (0..120).step_by(5) {
        let mut world = World::new(EngineOptions::default());
        let mut pool = karpenter_core::api::NodePool::named("general");
        pool.spec.replicas = Some(2);
        world.put_pool(pool.clone());
        world.run(60);
        pool.metadata.generation = Some(2);
        pool.spec.template.metadata.labels.insert("version".to_owned(), "2".to_owned());
        world.put_pool(pool);
        world.run(crash_after);
        world.crash();
        world.run(600);
        let is_new = |node: &karpenter_core::api::Node| node.metadata.labels.contains_key("version");
        assert!(world.nodes.values().all(is_new), "crash after {crash_after} s: {:#?}", world.log);
        assert_eq!((world.nodes.len(), world.bought), (2, 4), "crash after {crash_after} s: {:#?}", world.log);
    }
}

/// Pods on a node that is left alone until they have been quiet for five minutes.
fn a_node_with_time_to_be_quiet() -> World {
    let mut world = World::new(EngineOptions::default());
    let mut pool = karpenter_core::api::NodePool::named("general");
    pool.spec.disruption.consolidate_after = NillableDuration::from_secs(300);
    world.put_pool(pool);
    world.add_pods("web", 8, "900m");
    world.run(60);
    world
}

#[test]
fn a_node_is_left_alone_until_pods_have_been_quiet() {
    let mut world = a_node_with_time_to_be_quiet();
    let keys: Vec<ObjectKey> = world.pods.keys().cloned().collect();
    for key in &keys {
        world.remove_pod(key);
    }
    world.run(290);
    assert!(!is_marked(&world) && world.nodes.len() == 1, "{:#?}", world.log);
    assert!(!world.claims.values().any(|claim| claim.status.is_true("Consolidatable")));
    world.run(12);
    assert!(world.claims.values().all(|claim| claim.status.is_true("Consolidatable")), "{:#?}", world.log);
    world.run(60);
    assert_eq!(world.nodes.len(), 0, "{:#?}", world.log);
}

#[test]
fn an_engine_that_starts_anew_knows_since_when_pods_have_been_quiet() {
    let mut world = a_node_with_time_to_be_quiet();
    assert_eq!(world.unbound(), 0, "{:#?}", world.log);
    world.run(200);
    world.crash();
    world.run(120);
    assert!(world.claims.values().all(|claim| claim.status.is_true("Consolidatable")), "{:#?}", world.log);
}
