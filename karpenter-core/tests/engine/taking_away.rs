//! Nodes that should go, from the search to the end.

use std::{sync::Arc, time::Duration};

use karpenter_core::{
    Quantity, Timestamp,
    api::{
        NillableDuration, NodeClaim, NodePool, NodeSelectorRequirement, ObjectKey, Operator, Pod, Taint, TaintEffect,
        Toleration,
        conditions::{DISRUPTION_REASON, set_condition},
    },
    engine::{Engine, EngineOptions, Event, Metric, MetricLabels, Object, ObjectRef, Refusal},
    labels,
    lifecycle::mark_disrupted,
    provider::CreateError,
    schedule::StopFlag,
};

use crate::world::{World, at, static_pool, still};

/// A static pool of two nodes that drift.
fn drifting_static_pool() -> World {
    let mut world = World::new(EngineOptions::default());
    let mut pool = NodePool::named("general");
    pool.spec.replicas = Some(2);
    world.put_pool(pool.clone());
    world.run(60);
    pool.metadata.generation = Some(2);
    pool.spec.template.metadata.labels.insert("version".to_owned(), "2".to_owned());
    world.put_pool(pool);
    world
}

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
fn no_node_goes_by_a_decision_that_is_stopped() {
    let mut world = empty();
    let stop = StopFlag::default();
    stop.stop();
    world.engine.stopped_by(&stop);
    for _ in 0..60 {
        world.now = world.now + Duration::from_secs(1);
        for request in world.engine.tick(world.now) {
            world.carry_out(request);
        }
    }
    assert_eq!(world.count("DeleteClaim"), 0, "{:#?}", world.log);
    world.engine.stopped_by(&StopFlag::default());
    world.run(60);
    assert_eq!(world.nodes.len(), 0, "{:#?}", world.log);
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
    world.deletion_refusal = Some(Refusal::Unavailable("no answer".to_owned()));
    world.run_until(60, |world| world.count("DeleteClaim") > 0);
    world.log.clear();
    world.run(20);
    assert_eq!((world.count("DeleteClaim"), world.count("note")), (10, 0), "{:#?}", world.log);
    world.deletion_refusal = None;
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
fn a_replacement_that_is_made_when_its_command_was_given_up_goes_before_a_machine_is_bought() {
    let of_type = |name| NodeSelectorRequirement::new(labels::INSTANCE_TYPE, Operator::In, [name]);
    let mut world = World::new(EngineOptions::default());
    world.put_pool(NodePool::named("general").require(of_type("large")));
    world.add_pods("web", 3, "1900m");
    world.run(45);
    assert_eq!((world.unbound(), world.nodes.len()), (0, 1), "{:#?}", world.log);
    // It drifts, and three small nodes must come in its place, of which the API server takes one, and late.
    let mut pool = NodePool::named("general").require(of_type("small"));
    pool.spec.disruption.consolidate_after = NillableDuration::never();
    pool.metadata.generation = Some(2);
    world.put_pool(pool.clone());
    (world.late_claims, world.cannot_create_claims) = (1, true);
    world.run_until(120, |world| world.count("DisruptionFailed") == 1);
    assert_eq!((world.kept_claims.len(), world.claims.len()), (1, 1), "{:#?}", world.log);
    // Nothing else begins.
    pool.spec.disruption.budgets = vec![serde_json::from_str(r#"{"nodes": "0"}"#).expect("a budget")];
    world.put_pool(pool);
    world.cannot_create_claims = false;
    for request in std::mem::take(&mut world.kept_claims) {
        world.carry_out(request);
    }
    world.run(120);
    assert_eq!((world.bought, world.claims.len(), is_marked(&world)), (1, 1, false), "{:#?}", world.log);
}

#[test]
fn a_pool_waits_after_a_command_that_was_given_up_and_others_do_not() {
    let mut world = drifting_static_pool();
    let put = |world: &mut World, version: &str| {
        let mut pool = static_pool(1);
        pool.metadata.generation = Some(version.parse().expect("a number"));
        pool.spec.template.metadata.labels.insert("version".to_owned(), version.to_owned());
        world.put_pool(pool);
    };
    put(&mut world, "1");
    world.run_until(60, is_marked);
    world.never_joins = true;
    world.run_until(700, |world| world.count("DisruptionFailed") > 0);
    let given_up = world.count("DisruptionFailed");
    world.never_joins = false;
    world.run(30);
    world.log.clear();
    put(&mut world, "2");
    world.run_until(30, |world| world.count("note DisruptionLaunching") == 1);
    world.run(500);
    assert_eq!((given_up, world.count("note DisruptionLaunching")), (1, 1), "{:#?}", world.log);
    world.run_until(120, |world| world.count("note DisruptionLaunching") == 2);
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
    let staying: Vec<&str> = staying.map(NodeClaim::name).collect();
    assert_eq!((staying, is_marked(&world)), (vec![first.as_str()], false), "{:#?}", world.log);
}

#[test]
fn a_node_that_may_stay_counts_for_the_limit_until_it_goes() {
    let mut world = half_empty();
    let mut pool = world.pools["general"].clone();
    pool.spec.limits.insert("cpu".into(), Quantity::from_units(10));
    world.put_pool(pool);
    world.run_until(60, is_marked);
    world.add_pods("late", 1, "3");
    world.run(5);
    assert_eq!((world.claims.len(), is_marked(&world)), (2, true), "{:#?}", world.log);
    // Once the replacement is there and the node on its way out, there is room for another one.
    world.run_until(120, |world| world.unbound() == 0);
}

#[test]
fn a_command_is_dropped_if_limits_leave_no_replacement_when_it_is_looked_at_again() {
    let mut world = half_empty();
    // It was found, and is looked at again in fifteen seconds.
    world.run(12);
    let mut pool = world.pools["general"].clone();
    pool.spec.limits.insert("cpu".into(), Quantity::ZERO);
    world.put_pool(pool);
    world.run(60);
    assert_eq!((world.claims.len(), is_marked(&world)), (1, false), "{:#?}", world.log);
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
    set_condition(&mut claim.status.conditions, None, "DisruptionReason", status, "Empty", "", world.now);
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
        let mut world = drifting_static_pool();
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
    let mut pool = NodePool::named("general");
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

/// What the standby is told of a change from one state of the world to the next.
fn tell(engine: &mut Engine, world: &World, known: &mut Vec<ObjectRef>) {
    let claims = world.claims.values().cloned().map(|claim| Object::NodeClaim(Arc::new(claim)));
    let nodes = world.nodes.values().cloned().map(|node| Object::Node(Arc::new(node)));
    let pools = world.pools.values().cloned().map(|pool| Object::NodePool(Arc::new(pool)));
    let pods = world.pods.values().cloned().map(|pod| Object::Pod(Arc::new(pod)));
    let objects: Vec<Object> = pools.chain(nodes).chain(claims).chain(pods).collect();
    let there: Vec<ObjectRef> = objects.iter().map(Object::reference).collect();
    for gone in known.iter().filter(|known| !there.contains(known)) {
        engine.observe(Event::Deleted(gone.clone()), world.now);
    }
    for object in objects {
        engine.observe(Event::Applied(object), world.now);
    }
    *known = there;
}

#[test]
fn a_standby_takes_over_no_command_that_is_long_over() {
    let mut world = drifting_static_pool();
    let is_chosen = |world: &World| world.claims.values().any(|claim| claim.status.is_true(DISRUPTION_REASON));
    world.run_until(60, is_chosen);
    world.run(5);
    assert_eq!(world.claims.len(), 3, "{:#?}", world.log);
    // Another replica starts and waits for the lease.
    let (mut standby, mut known) = (Engine::new(EngineOptions::default()), Vec::new());
    tell(&mut standby, &world, &mut known);
    standby.observe(Event::Synced, world.now);
    world.run(1200);
    assert_eq!((world.claims.len(), world.nodes.len()), (2, 2), "{:#?}", world.log);
    tell(&mut standby, &world, &mut known);
    // It is its turn.
    world.engine = standby;
    world.log.clear();
    world.run(30);
    assert_eq!(world.count("DeleteClaim"), 0, "{:#?}", world.log);
    assert_eq!(world.count("note Disruption"), 0, "{:#?}", world.log);
}

#[test]
fn a_finished_pod_that_is_cleaned_up_does_not_disturb_its_node() {
    let mut world = World::new(EngineOptions::default());
    let mut pool = NodePool::named("general");
    pool.spec.disruption.consolidate_after = NillableDuration::from_secs(300);
    world.put_pool(pool);
    world.add_pods("job", 1, "900m");
    world.run(60);
    let mut pod = world.pods.values().next().expect("a pod").clone();
    "Succeeded".clone_into(&mut pod.status.phase);
    world.put_pod(pod.clone());
    world.run(250);
    // Its time to live after it finished is over.
    world.remove_pod(&pod.key());
    world.run(120);
    assert_eq!(world.nodes.len(), 0, "{:#?}", world.log);
}

#[test]
fn a_refused_deletion_counts_once() {
    let mut world = World::new(EngineOptions::default());
    world.put_pool(NodePool::named("general"));
    world.add_pods("web", 1, "900m");
    world.run(60);
    let key = world.pods.keys().next().expect("a pod").clone();
    world.remove_pod(&key);
    world.deletion_refusal = Some(Refusal::Unavailable("no answer".to_owned()));
    world.run(120);
    world.deletion_refusal = None;
    world.run(60);
    let total = world.engine.counters().total(Metric::ClaimsDisrupted);
    assert_eq!((total, world.count("note Disrupted"), world.claims.len()), (1, 1, 0), "{:#?}", world.log);
}

/// How long the pod with a place elsewhere stays on a drifted node beside one that does not leave before the deadline.
fn wait_beside(change: impl Fn(&mut Pod)) -> Option<i64> {
    let mut world = World::new(EngineOptions::default());
    let mut pool = NodePool::named("drifting");
    pool.spec.template.spec.termination_grace_period = Some(NillableDuration::from_secs(7200));
    pool.spec.disruption.consolidate_after = NillableDuration::never();
    world.put_pool(pool);
    world.add_pods("stays", 1, "1500m");
    let mut stays = world.pods.values().next().expect("a pod").clone();
    change(&mut stays);
    world.put_pod(stays);
    world.add_pods("leaves", 1, "600m");
    world.add_pods("fill", 5, "1100m");
    world.run(60);
    assert_eq!((world.unbound(), world.nodes.len()), (0, 1), "{:#?}", world.log);
    // Another pool has a node with room for the smaller pod.
    let mut other = NodePool::named("other");
    other.spec.disruption.consolidate_after = NillableDuration::never();
    other.spec.weight = Some(100);
    world.put_pool(other);
    world.run(5);
    world.add_pods("other", 1, "1300m");
    world.run(60);
    assert_eq!((world.unbound(), world.nodes.len()), (0, 2), "{:#?}", world.log);
    let fill: Vec<ObjectKey> = world.pods.keys().filter(|key| key.name.starts_with("fill")).cloned().collect();
    for key in &fill {
        world.remove_pod(key);
    }
    world.run(5);
    let mut pool = world.pools["drifting"].clone();
    pool.metadata.generation = Some(2);
    pool.spec.template.metadata.labels.insert("version".to_owned(), "2".to_owned());
    world.put_pool(pool);
    let start = world.now;
    // In a busy cluster pods come all the time.
    let mut end: Option<Timestamp> = None;
    for round in 0..120 {
        world.add_pods(&format!("more-{round}"), 1, "1900m");
        world.run(10);
        let line = world.log.iter().find(|line| line.contains("Evict {") && line.contains("\"leaves-0\""));
        if let Some(line) = line {
            end = line.split(' ').next().and_then(|text| text.parse().ok()).map(|seconds: i64| at(1_000_000 + seconds));
            break;
        }
    }
    end.map(|end| (end.as_millis() - start.as_millis()) / 1000)
}

#[test]
fn pods_do_not_wait_for_one_that_is_to_be_left_where_it_is() {
    let plain = wait_beside(|_| {}).expect("it leaves");
    assert!(plain < 120, "{plain}");
    let held = wait_beside(|pod| {
        pod.metadata.annotations.insert(labels::DO_NOT_DISRUPT.to_owned(), "true".to_owned());
    });
    assert!(held.is_some_and(|held| held <= plain + 3), "{held:?} {plain}");
}

#[test]
fn pods_do_not_wait_for_one_that_no_drain_evicts() {
    let plain = wait_beside(|_| {}).expect("it leaves");
    let held = wait_beside(|pod| {
        let mut all = Toleration::default();
        all.operator = serde_json::from_str("\"Exists\"").expect("an operator");
        pod.spec.tolerations.push(all);
    });
    assert!(held.is_some_and(|held| held <= plain + 3), "{held:?} {plain}");
}

#[test]
fn a_provider_that_is_silent_about_drift_keeps_nobody_awake() {
    let mut world = World::with_pool(EngineOptions::default());
    world.add_pods("web", 8, "900m");
    world.run(45);
    world.is_silent_on_drift = true;
    // Longer than the period, and than it takes until the question is taken for lost.
    world.run(1200);
    assert_eq!((world.unbound(), world.nodes.len()), (0, 1), "{:#?}", world.log);
}

#[test]
fn a_node_that_drains_stays_marked_when_its_command_is_given_up() {
    let mut world = half_empty();
    world.never_joins = true;
    world.run_until(60, is_marked);
    let node = world.nodes.values().find(|node| node.is_disrupted()).expect("it is marked").clone();
    let id = &node.spec.provider_id;
    let mut claim = world.claims.values().find(|claim| claim.status.provider_id == *id).expect("its claim").clone();
    world.held.extend(world.pods.keys().cloned());
    claim.metadata.deletion_timestamp = Some(world.now);
    world.put_claim(claim);
    for _ in 0..700 {
        world.run(1);
        assert!(world.nodes[&node.metadata.name].is_disrupted(), "{:#?}", world.log);
    }
    assert_eq!(world.count("DisruptionFailed"), 0, "{:#?}", world.log);
}

#[test]
fn marks_that_others_left_are_taken_away_where_no_command_is_looked_for() {
    let mut world = World::with_pool(still());
    world.add_pods("web", 1, "900m");
    world.run(60);
    let mut node = world.nodes.values().next().expect("a node").clone();
    node.spec.taints.push(Taint::new(labels::DISRUPTED, "", TaintEffect::NoSchedule));
    world.put_node(node);
    world.crash();
    world.run(60);
    assert!(!is_marked(&world), "{:#?}", world.log);
    assert_eq!((world.unbound(), world.nodes.len()), (0, 1), "{:#?}", world.log);
}
