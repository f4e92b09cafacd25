//! From pods that wait to pods that run.

use std::{collections::BTreeSet, time::Duration};

use karpenter_core::{
    InstanceType, OfferingKey, Price, Quantity,
    api::{
        NodePool, NodeSelectorRequirement, ObjectKey, Operator, OwnerReference, PodStatus, Taint, TaintEffect,
        conditions::{INITIALIZED, READY},
    },
    engine::{Action, ActionResult, EngineOptions, Event, Metric, Refusal},
    labels,
    provider::{CreateError, ProviderError, ProviderErrorKind},
    schedule::StopFlag,
};

use crate::world::{World, still};

fn key(name: &str) -> OfferingKey {
    OfferingKey { instance_type: name.to_owned(), zone: "zone-a".to_owned(), capacity_type: "on-demand".to_owned() }
}

#[test]
fn a_node_that_others_write_at_the_same_time_is_registered_all_the_same() {
    let mut world = World::with_pool(EngineOptions::default());
    world.contested_node_writes = 3;
    world.add_pods("web", 1, "900m");
    world.run(60);
    assert_eq!((world.contested_node_writes, world.unbound(), world.nodes.len()), (0, 0, 1), "{:#?}", world.log);
}

#[test]
fn pods_get_nodes_and_run() {
    let mut world = World::with_pool(EngineOptions::default());
    world.add_pods("web", 10, "500m");
    world.run(60);
    assert_eq!(world.unbound(), 0, "{:#?}", world.log);
    let claims: Vec<_> = world.claims.values().collect();
    assert!(claims.iter().all(|claim| claim.status.is_true(INITIALIZED) && claim.status.is_true(READY)));
    for node in world.nodes.values() {
        assert_eq!(node.metadata.labels.get(labels::INITIALIZED).map(String::as_str), Some("true"));
        assert_eq!(
            (node.spec.taints.len(), node.metadata.finalizers.as_slice()),
            (0, &[labels::TERMINATION.to_owned()][..])
        );
        assert_eq!(node.metadata.owner_references[0].kind, "NodeClaim");
    }
    let created = world.count("create");
    world.run(600);
    assert_eq!((world.count("create"), world.claims.len()), (created, created), "it is done: {:#?}", world.log);
}

#[test]
fn pods_that_come_together_are_planned_together() {
    let mut world = World::with_pool(EngineOptions::default());
    for index in 0..8 {
        world.add_pods(&format!("web{index}"), 1, "900m");
        world.settle();
        world.now = world.now + Duration::from_millis(500);
    }
    assert_eq!(world.count("create"), 0, "the last pod came less than a second ago");
    world.run(1);
    assert_eq!(world.count("create"), 1, "eight pods of 0.9 fit on one large node: {:#?}", world.log);
}

#[test]
fn plans_are_held_against_the_bound_if_that_is_asked_for() {
    let mut options = EngineOptions::default();
    for asks in [false, true] {
        options.measures_gap = asks;
        let mut world = World::with_pool(options.clone());
        world.add_pods("web", 9, "900m");
        world.run(60);
        assert_eq!(world.unbound(), 0, "{:#?}", world.log);
        let gaps = world.engine.levels().into_iter().filter(|(metric, ..)| *metric == Metric::Gap);
        let gaps: Vec<f64> = gaps.map(|(.., percent)| percent).collect();
        assert_eq!(gaps.len(), usize::from(asks));
        // Nine pods take a large node and a small one, of which they leave room.
        assert!(gaps.iter().all(|percent| (0.1..100.0).contains(percent)), "{gaps:?}");
    }
}

#[test]
fn a_steady_stream_of_pods_is_planned_every_ten_seconds() {
    let mut world = World::with_pool(EngineOptions::default());
    for index in 0..24 {
        world.add_pods(&format!("web{index}"), 1, "100m");
        world.settle();
        world.now = world.now + Duration::from_millis(500);
    }
    let created: BTreeSet<&str> =
        world.log.iter().filter(|l| l.contains(" create ")).filter_map(|l| l.split(' ').next()).collect();
    assert_eq!(created.into_iter().collect::<Vec<_>>(), ["10"], "one plan so far: {:#?}", world.log);
}

#[test]
fn what_is_promised_is_not_bought_twice() {
    let mut world = World::with_pool(EngineOptions::default());
    world.add_pods("web", 8, "900m");
    world.run(5);
    world.add_pods("late", 1, "900m");
    world.run(10);
    assert_eq!(world.claims.len(), 2, "{:#?}", world.log);
    world.run(60);
    assert_eq!((world.unbound(), world.claims.len()), (0, 2), "{:#?}", world.log);
}

#[test]
fn pods_that_the_scheduler_has_not_looked_at_fare_as_others_of_their_controller() {
    let mut world = World::with_pool(EngineOptions::default());
    let mut owner = OwnerReference::default();
    (owner.api_version, owner.kind) = ("apps/v1".to_owned(), "ReplicaSet".to_owned());
    (owner.name, owner.uid, owner.controller) = ("web".to_owned(), "web".to_owned(), Some(true));
    world.add_pods("web", 8, "900m");
    world.add_pods("other", 8, "900m");
    world.add_pods("larger", 8, "1900m");
    for mut pod in world.pods.values().cloned().collect::<Vec<_>>() {
        // Of the pods of the workload the kube-scheduler has looked at one.
        if !pod.metadata.name.starts_with("other") {
            pod.metadata.owner_references.push(owner.clone());
        }
        if pod.metadata.name != "web-0" {
            pod.status = PodStatus::default();
        }
        world.put_pod(pod);
    }
    world.run(20);
    let types: Vec<_> =
        world.claims.values().map(|claim| claim.metadata.labels[labels::INSTANCE_TYPE].as_str()).collect();
    assert_eq!(types, ["large"], "for eight pods, not for one, and not for those that ask for something else");
}

#[test]
fn who_finds_promised_room_taken_by_a_newcomer_is_planned_anew_at_once() {
    for cpu in ["900m", "10m"] {
        let mut world = World::with_pool(EngineOptions::default());
        world.add_pods("web", 8, "900m");
        world.unbindable = world.pods.keys().map(|pod| pod.name.clone()).collect();
        world.run_until(60, |world| !world.nodes.is_empty());
        world.unbindable.clear();
        let node = world.nodes.keys().next().expect("a node").clone();
        world.add_pods("newcomer", 1, cpu);
        let mut newcomer = world.pods.values().find(|pod| pod.metadata.name == "newcomer-0").expect("a pod").clone();
        newcomer.spec.node_name = node;
        world.put_pod(newcomer);
        world.run(10);
        assert_eq!(world.claims.len(), if cpu == "900m" { 2 } else { 1 }, "{:#?}", world.log);
        world.run(60);
        assert_eq!(world.unbound(), 0, "{:#?}", world.log);
    }
}

#[test]
fn an_offering_without_capacity_is_avoided_and_its_pods_are_planned_at_once() {
    let mut options = EngineOptions::default();
    // A claim that names all types is hardly ever refused.
    options.planner.max_instance_types = 1;
    let mut world = World::with_pool(options);
    world.exhausted.insert(key("small"));
    world.add_pods("web", 3, "1500m");
    world.run(2);
    assert!(world.count("InsufficientCapacityError") > 0, "{:#?}", world.log);
    assert!(world.claims.values().all(|claim| claim.metadata.labels[labels::INSTANCE_TYPE] == "large"));
    world.run(60);
    assert_eq!((world.unbound(), world.machines.len()), (0, 1), "{:#?}", world.log);
}

#[test]
fn claims_that_could_only_be_what_has_no_capacity_are_not_sent() {
    let mut options = EngineOptions::default();
    options.planner.max_instance_types = 1;
    let mut world = World::with_pool(options);
    world.exhausted.insert(key("small"));
    let kind = ProviderErrorKind::Throttled;
    world.launch_errors = vec![CreateError::Provider(ProviderError::new("fake", "create", kind, "slow down"))];
    world.add_pods("web", 2, "1500m");
    world.run(90);
    assert_eq!((world.unbound(), world.count(" create ")), (0, 3), "two small ones and a large one: {:#?}", world.log);
    let counters = world.engine.counters();
    assert_eq!(counters.total(Metric::LaunchErrors), 2, "one was throttled, one had no capacity: {:#?}", world.log);
}

#[test]
fn other_errors_are_tried_again_with_longer_and_longer_waits() {
    let mut world = World::with_pool(EngineOptions::default());
    let error =
        || CreateError::Provider(ProviderError::new("fake", "create", ProviderErrorKind::Throttled, "slow down"));
    world.launch_errors = vec![error(), error(), error()];
    world.add_pods("web", 1, "1");
    world.run(20);
    let launches: Vec<&str> =
        world.log.iter().filter(|l| l.contains(" launch ")).filter_map(|l| l.split(' ').next()).collect();
    let seconds: Vec<i64> = launches.iter().map(|s| s.parse().expect("a number")).collect();
    let waits: Vec<i64> = seconds.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert_eq!(waits, [1, 2, 4], "{:#?}", world.log);
    assert_eq!(world.claims.len(), 1);
}

/// A provider that writes zones in another way than its catalog does.
#[test]
fn offerings_without_capacity_that_nobody_sells_are_no_reason_for_another_claim_at_once() {
    for offering in [("small", "ZONE-A"), ("nothing", "zone-a"), ("large", "zone-a")] {
        let mut world = World::with_pool(EngineOptions::default());
        let key = OfferingKey {
            instance_type: offering.0.to_owned(),
            zone: offering.1.to_owned(),
            capacity_type: "on-demand".to_owned(),
        };
        let error = || CreateError::InsufficientCapacity { offerings: vec![key.clone()] };
        world.launch_errors = std::iter::repeat_with(error).take(1000).collect();
        // The claim allows the small type alone.
        world.types.retain(|own| own.name == "small" || offering.0 == "large");
        let small = NodeSelectorRequirement::new(labels::INSTANCE_TYPE, Operator::In, ["small"]);
        world.put_pool(NodePool::named("general").require(small));
        world.add_pods("web", 1, "1");
        world.run(60);
        assert!(world.count(" launch ") <= 8, "{offering:?}: {:#?}", world.log);
        world.launch_errors.clear();
        world.run(120);
        assert_eq!(world.unbound(), 0, "{offering:?}: {:#?}", world.log);
    }
}

#[test]
fn the_shortest_and_the_longest_periods_can_be_kept() {
    for period in [Duration::ZERO, Duration::MAX] {
        let mut options = EngineOptions::default();
        (options.catalog_period, options.list_period, options.drift_period) = (period, period, period);
        (options.disruption_period, options.events_period) = (Some(period), Some(period));
        (options.batch_max, options.validation_wait, options.avoid_for) = (period, period, period);
        let mut world = World::with_pool(options);
        world.add_pods("web", 3, "900m");
        world.run(60);
        // Onto the node that is there.
        world.add_pods("late", 3, "900m");
        world.run(60);
        assert_eq!(world.unbound(), 0, "{period:?}: {:#?}", world.log);
    }
}

#[test]
fn a_machine_that_never_joins_is_replaced_after_a_quarter_of_an_hour() {
    let mut world = World::with_pool(EngineOptions::default());
    world.never_joins = true;
    world.add_pods("web", 1, "1");
    world.run(10);
    let first = world.claims.keys().next().expect("a claim").clone();
    world.run(880);
    assert!(world.claims.contains_key(&first));
    world.never_joins = false;
    world.machines.values_mut().for_each(|machine| machine.launched = machine.launched + Duration::from_hours(1));
    world.run(120);
    assert!(!world.claims.contains_key(&first), "{:#?}", world.log);
    assert_eq!((world.unbound(), world.machines.len()), (0, 1), "{:#?}", world.log);
}

#[test]
fn pods_that_go_to_no_node_do_not_cost_more_and_more_nodes() {
    let mut world = World::with_pool(still());
    world.add_pods("odd", 1, "1");
    world.unbindable.insert("odd-0".to_owned());
    world.run(3600);
    assert!(world.count("create") <= 5, "{} claims: {:#?}", world.count("create"), world.log);
}

#[test]
fn nodes_that_have_less_than_promised_teach_the_planner() {
    let mut world = World::with_pool(still());
    world.types.truncate(1);
    world.memory_lie = Quantity::from_bytes(1 << 30);
    // Eight pods of a gibibyte fit by the catalog; by the nodes, seven do.
    world.add_pods("web", 8, "100m");
    world.run(120);
    assert_eq!((world.unbound(), world.nodes.len()), (0, 2), "{:#?}", world.log);
    world.add_pods("more", 16, "100m");
    world.run(60);
    // Six fit beside the eighth; ten need two more nodes, not one and a half.
    assert_eq!((world.unbound(), world.count("create")), (0, 4), "{:#?}", world.log);
}

#[test]
fn what_nodes_lacked_is_told_once_and_forgotten_once_a_later_one_has_all() {
    let mut world = World::with_pool(still());
    world.types.truncate(1);
    world.memory_lie = Quantity::from_bytes(1 << 30);
    world.add_pods("web", 8, "100m");
    world.run(120);
    assert_eq!((world.unbound(), world.nodes.len(), world.count("note NodesHaveLess")), (0, 2, 1), "{:#?}", world.log);
    // Six fit beside the eighth; one needs another node, on which there is room for seven then.
    world.memory_lie = Quantity::ZERO;
    world.add_pods("more", 7, "100m");
    world.run(60);
    assert_eq!((world.unbound(), world.nodes.len()), (0, 3), "{:#?}", world.log);
    world.add_pods("rest", 15, "100m");
    world.run(60);
    assert_eq!((world.unbound(), world.nodes.len(), world.count("note NodesHaveLess")), (0, 4, 1), "{:#?}", world.log);
}

#[test]
fn what_a_stopped_decision_leaves_is_planned_in_the_next() {
    let mut world = World::with_pool(EngineOptions::default());
    world.run(5);
    world.add_pods("web", 8, "900m");
    world.now = world.now + Duration::from_secs(2);
    let stop = StopFlag::default();
    stop.stop();
    world.engine.stopped_by(&stop);
    let requests = world.engine.tick(world.now);
    assert!(!requests.iter().any(|request| matches!(request.action, Action::CreateClaim(_))), "{requests:#?}");
    assert!(world.engine.next_wake().is_some_and(|wake| wake <= world.now));
    for request in requests {
        world.carry_out(request);
    }
    world.engine.stopped_by(&StopFlag::default());
    world.run(60);
    assert_eq!((world.unbound(), world.nodes.len()), (0, 1), "{:#?}", world.log);
}

#[test]
fn an_engine_that_was_stopped_at_any_second_goes_on() {
    for crash_after in 0..45 {
        let mut world = World::with_pool(EngineOptions::default());
        world.add_pods("web", 10, "700m");
        world.run(crash_after);
        world.crash();
        world.run(120);
        assert_eq!(world.unbound(), 0, "crash after {crash_after} s: {:#?}", world.log);
        assert_eq!(world.claims.len(), world.machines.len(), "crash after {crash_after} s");
        assert_eq!(world.count("create"), 1, "crash after {crash_after} s: {:#?}", world.log);
    }
}

#[test]
fn claims_that_the_api_server_refuses_are_asked_for_ever_less_often() {
    let mut world = World::with_pool(EngineOptions::default());
    world.cannot_create_claims = true;
    world.add_pods("web", 10, "700m");
    world.run(120);
    let asked = world.count("create general");
    assert!((6..=12).contains(&asked), "{asked} claims: {:#?}", world.log);
    world.cannot_create_claims = false;
    world.run(60);
    assert_eq!(world.unbound(), 0, "{:#?}", world.log);
}

/// A pod that asks for a device.
fn add_device_pod(world: &mut World, name: &str) {
    let key = ObjectKey::new("default", format!("{name}-0"));
    let cpu = "900m";
    world.add_pods(name, 1, cpu);
    let mut pod = world.pods[&key].clone();
    pod.spec.containers[0].resources.requests.insert("example.com/gpu".into(), Quantity::from_units(1));
    world.put_pod(pod);
}

#[test]
fn a_device_plugin_that_starts_anew_takes_no_device_from_the_nodes_to_come() {
    let mut world = World::with_pool(still());
    let capacity = [
        ("cpu", Quantity::from_units(2)),
        ("memory", Quantity::from_bytes(8 << 30)),
        ("example.com/gpu", Quantity::from_units(1)),
    ];
    let own = InstanceType::named("gpu", capacity);
    world.types = vec![own.offering("on-demand", "zone-a", Price::per_hour(1.0).expect("a price"))];
    add_device_pod(&mut world, "first");
    world.run(60);
    assert_eq!((world.unbound(), world.nodes.len()), (0, 1), "{:#?}", world.log);
    // A kubelet whose device plugin is away says that the node has no healthy device.
    let before = world.nodes.values().next().expect("a node").clone();
    let mut without = before.clone();
    without.status.allocatable.insert("example.com/gpu".into(), Quantity::ZERO);
    world.put_node(without);
    world.run(5);
    let mut back = world.nodes.values().next().expect("a node").clone();
    back.status.allocatable = before.status.allocatable;
    world.put_node(back);
    world.run(5);
    add_device_pod(&mut world, "second");
    world.run(120);
    assert_eq!((world.unbound(), world.nodes.len()), (0, 2), "{:#?}", world.log);
}

#[test]
fn old_nodes_that_have_what_they_were_promised_say_nothing_of_new_ones() {
    let with_pods = |pods: i64| {
        let capacity = [
            ("cpu", Quantity::from_units(8)),
            ("memory", Quantity::from_bytes(64 << 30)),
            ("pods", Quantity::from_units(pods)),
        ];
        let own = InstanceType::named("large", capacity);
        vec![own.offering("on-demand", "zone-a", Price::per_hour(1.0).expect("a price"))]
    };
    let mut world = World::with_pool(still());
    world.types = with_pods(4);
    world.add_pods("web", 4, "100m");
    world.run(60);
    assert_eq!((world.unbound(), world.nodes.len()), (0, 1), "{:#?}", world.log);
    // Somebody raises `maxPods` of the node class. The nodes that are there are told once more.
    world.types = with_pods(40);
    world.run(70);
    let node = world.nodes.values().next().expect("a node").clone();
    world.put_node(node);
    world.run(10);
    world.add_pods("more", 20, "100m");
    world.run(60);
    assert_eq!((world.unbound(), world.nodes.len()), (0, 2), "{:#?}", world.log);
}

#[test]
fn a_claim_gets_the_labels_of_its_machine_though_only_its_status_was_written() {
    let mut world = World::with_pool(still());
    world.add_pods("web", 1, "900m");
    let mut is_halved = false;
    while !is_halved {
        world.now = world.now + Duration::from_secs(1);
        for request in world.engine.tick(world.now) {
            match &request.action {
                Action::UpdateClaim(claim) if !claim.status.provider_id.is_empty() && !is_halved => {
                    is_halved = true;
                    let mut half = world.claims[claim.name()].clone();
                    half.status = claim.status.clone();
                    world.put_claim(half);
                    let refusal = Refusal::Conflict;
                    let done = Event::Done { id: request.id, result: ActionResult::Refused(refusal) };
                    world.engine.observe(done, world.now);
                }
                _ => world.carry_out(request),
            }
        }
    }
    world.run(200);
    let claim = world.claims.values().next().expect("a claim");
    assert_eq!(
        claim.metadata.labels.get(labels::CAPACITY_TYPE).map(String::as_str),
        Some("on-demand"),
        "{:#?}",
        world.log
    );
}

#[test]
fn a_claim_that_was_made_and_never_told_is_given_up() {
    let mut world = World::with_pool(still());
    world.add_pods("web", 1, "900m");
    // The first claim is made, and somebody takes it away before anybody tells of it.
    'made: for _ in 0..10 {
        world.now = world.now + Duration::from_secs(1);
        for request in world.engine.tick(world.now) {
            if matches!(request.action, Action::CreateClaim(_)) {
                world.engine.observe(Event::Done { id: request.id, result: ActionResult::Written }, world.now);
                break 'made;
            }
            world.carry_out(request);
        }
    }
    world.run(1800);
    assert_eq!((world.unbound(), world.nodes.len()), (0, 1), "{:#?}", world.log);
}

#[test]
fn a_claim_of_which_it_is_not_known_whether_it_was_made_is_waited_for() {
    let mut world = World::with_pool(still());
    world.add_pods("web", 1, "900m");
    // The API server takes the claim and fails to say so; its watch is late too.
    let mut late = Vec::new();
    for _ in 0..10 {
        world.now = world.now + Duration::from_secs(1);
        for request in world.engine.tick(world.now) {
            if let Action::CreateClaim(claim) = &request.action {
                let refusal = Refusal::Unavailable("timeout".to_owned());
                late.push((claim.clone(), world.now));
                world.engine.observe(Event::Done { id: request.id, result: ActionResult::Refused(refusal) }, world.now);
            } else {
                world.carry_out(request);
            }
        }
        if late.first().is_some_and(|(_, at)| *at + Duration::from_secs(4) <= world.now) {
            break;
        }
    }
    assert_eq!(late.len(), 1);
    for (number, (claim, _)) in late.into_iter().enumerate() {
        let mut claim = *claim;
        claim.metadata.uid = format!("late-{number}");
        claim.metadata.creation_timestamp = Some(world.now);
        world.put_claim(claim);
    }
    world.run(120);
    assert_eq!((world.unbound(), world.nodes.len()), (0, 1), "{:#?}", world.log);
}

#[test]
fn a_pool_of_which_nothing_is_heard_does_not_stop_the_others() {
    let mut world = World::with_pool(still());
    world.run(10);
    world.put_pool(NodePool::named("slow"));
    world.add_pods("web", 1, "900m");
    for _ in 0..120 {
        world.now = world.now + Duration::from_secs(1);
        for request in world.engine.tick(world.now) {
            let is_slow = matches!(&request.action, Action::Catalog(pool) if pool.name() == "slow");
            if !is_slow {
                world.carry_out(request);
            }
        }
    }
    assert_eq!(world.machines.len(), 1, "{:#?}", world.log);
}

#[test]
fn a_pod_that_stays_for_a_while_on_a_node_that_goes_gets_another_one_when_that_is_over() {
    let mut world = World::with_pool(still());
    world.add_pods("web", 1, "900m");
    world.run(60);
    let mut pod = world.pods.values().next().expect("a pod").clone();
    pod.metadata.annotations.insert(labels::DO_NOT_DISRUPT.to_owned(), "10m".to_owned());
    pod.status.start_time = Some(world.now);
    // Nothing else happens when the time is over.
    world.held.insert(pod.key());
    world.put_pod(pod);
    let mut claim = world.claims.values().next().expect("a claim").clone();
    claim.metadata.deletion_timestamp = Some(world.now);
    world.put_claim(claim);
    world.run(590);
    assert_eq!(world.count(" launch "), 1, "{:#?}", world.log);
    world.run(20);
    assert_eq!(world.count(" launch "), 2, "{:#?}", world.log);
}

#[test]
fn a_pod_is_not_told_again_for_each_node_that_comes() {
    let mut world = World::with_pool(still());
    let mut pool = NodePool::named("general");
    world.put_pool(pool.clone());
    for first in ["a", "b"] {
        world.add_pods(first, 1, "7");
        world.run(60);
    }
    world.add_pods("huge", 1, "1000");
    let told = |world: &World| world.log.iter().filter(|line| line.contains("FailedScheduling")).count();
    for round in 0..6 {
        world.add_pods(&format!("web{round}"), 1, "3");
        world.run(20);
    }
    assert!(world.nodes.len() > 3, "{:#?}", world.log);
    assert_eq!(told(&world), 1, "{:#?}", world.log);
    world.run(300);
    world.add_pods("late", 1, "3");
    world.run(20);
    assert_eq!(told(&world), 2, "the numbers are others by now: {:#?}", world.log);
    // Something else is in the way.
    pool.spec.template.spec.taints.push(Taint::new("mine", "", TaintEffect::NoSchedule));
    world.put_pool(pool);
    world.run(20);
    assert_eq!(told(&world), 3, "{:#?}", world.log);
}
