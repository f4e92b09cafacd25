//! What the provider counts and measures.

use std::{sync::Arc, time::Duration};

use futures_util::future::join_all;
use karpenter_aws::{
    ec2::instance::InstanceHealth,
    interruption::{HealthCheck, InterruptionQueue},
    mem::Exhausted,
};
use karpenter_core::{CloudProvider, api::ConditionStatus, labels, provider::Measured};

use crate::world::{World, claim, class, pool};

const URL: &str = "https://sqs.example/1/events";

/// The series of this name with these values of labels.
fn of(world: &World, name: &str, values: &[&str]) -> Option<Measured> {
    let all = world.provider.measurements();
    let is_meant =
        |labels: &[(&str, String)]| labels.iter().map(|(_, value)| value.as_str()).eq(values.iter().copied());
    all.into_iter().find(|one| one.name == name && is_meant(&one.labels)).map(|one| one.value)
}

#[tokio::test]
async fn messages_are_counted_by_what_they_say_and_deletions_too() {
    let world = World::new();
    world.aws.with(|state| state.queues.entry(URL.to_owned()).or_default().clear());
    let mut queue = InterruptionQueue::new(Arc::new(world.aws.clone()), world.provider.clone(), "events");
    let time = "1970-01-01T00:00:10Z";
    world.aws.clock().set(karpenter_core::Timestamp::from_millis(15_000));
    for instance in ["i-01", "i-02"] {
        world.aws.send(
            URL,
            format!(
                r#"{{"version":"0","source":"aws.ec2","detail-type":"EC2 Spot Instance Interruption Warning",
                "time":"{time}","detail":{{"instance-id":"{instance}"}}}}"#
            ),
        );
    }
    world.aws.send(URL, "no JSON");
    world.aws.send(URL, "");
    queue.poll().await.expect("answers");
    let received = |kind: &str| of(&world, "karpenter_interruption_received_messages_total", &[kind]);
    assert_eq!(received("spot_interrupted"), Some(Measured::Count(2)));
    assert_eq!(received("no_op"), Some(Measured::Count(1)));
    let deleted = of(&world, "karpenter_interruption_deleted_messages_total", &[]);
    assert_eq!(deleted, Some(Measured::Count(4)), "the one that cannot be read is deleted and not received");
    let Some(Measured::Histogram(waited)) = of(&world, "karpenter_interruption_message_queue_duration_seconds", &[])
    else {
        panic!("{:?}", world.provider.measurements())
    };
    assert_eq!((waited.count, waited.sum.round()), (2, 10.0));
}

#[tokio::test]
async fn a_machine_that_is_not_well_is_counted_once() {
    let world = World::new();
    let id = world.provider.create(&claim("u1", &[])).await.expect("bought").instance.id;
    let id = id.as_str().rsplit('/').next().expect("an id").to_owned();
    let events = vec!["instance-retirement".to_owned()];
    let other = InstanceHealth { id: "i-0other".to_owned(), events: events.clone(), ..InstanceHealth::default() };
    world.aws.with(|state| state.health = vec![InstanceHealth { id, events, ..InstanceHealth::default() }, other]);
    let clock = Arc::new(world.aws.clock().clone());
    let mut check = HealthCheck::new(Arc::new(world.aws.clone()), clock, world.provider.clone());
    for _ in 0..2 {
        check.poll().await.expect("answers");
    }
    let counted = of(&world, "karpenter_interruption_instance_status_unhealthy_total", &["event_status"]);
    assert_eq!(counted, Some(Measured::Count(1)));
}

#[tokio::test]
async fn what_fleets_could_not_have_is_counted_once_for_all_their_claims() {
    let world = World::new();
    world.aws.with(|state| state.exhausted.push(Exhausted::new("m5.large", "us-west-2a", "on-demand")));
    let only: [(&str, &[&str]); 3] = [
        (labels::INSTANCE_TYPE, &["m5.large"]),
        (labels::ZONE, &["us-west-2a"]),
        (labels::CAPACITY_TYPE, &["on-demand"]),
    ];
    let claims: Vec<_> = (0..3).map(|i| claim(&format!("u{i}"), &only)).collect();
    let results = join_all(claims.iter().map(|claim| world.provider.create(claim))).await;
    assert!(results.iter().all(Result::is_err));
    let failures = of(
        &world,
        "karpenter_cloudprovider_instance_launch_failures_total",
        &["us-west-2a", "usw2-az1", "on-demand", "LaunchFailed"],
    );
    assert_eq!(failures, Some(Measured::Count(1)), "{:?}", world.provider.measurements());
    let Some(Measured::Histogram(sizes)) = of(&world, "karpenter_cloudprovider_batcher_batch_size", &["create_fleet"])
    else {
        panic!("nothing was measured")
    };
    assert_eq!((sizes.count, sizes.sum), (1, 3.0));
}

#[tokio::test]
async fn a_machine_that_could_not_be_given_back_is_counted() {
    let world = World::new();
    let id = world.provider.create(&claim("u1", &[])).await.expect("bought").instance.id;
    world.aws.with(|state| {
        let error = karpenter_aws::ApiError::refused("TerminateInstances", "OperationNotPermitted", "protected");
        state.faults.push(karpenter_aws::mem::Fault {
            operation: "TerminateInstances",
            times: 2,
            error,
            is_done: false,
        });
    });
    world.provider.delete(&id).await.expect_err("protected");
    let failures = of(&world, "karpenter_cloudprovider_instance_termination_failures_total", &[]);
    assert_eq!(failures, Some(Measured::Count(1)));
}

#[tokio::test]
async fn types_offerings_and_user_data_are_measured() {
    let world = World::new();
    world.provider.catalog(&pool()).await.expect("known");
    let level = |name: &str, values: &[&str]| match of(&world, name, values) {
        Some(Measured::Level(level)) => level,
        other => panic!("{name}: {other:?}"),
    };
    let cpu = level("karpenter_cloudprovider_instance_type_cpu_cores", &["m5.large"]);
    let memory = level("karpenter_cloudprovider_instance_type_memory_bytes", &["m5.large"]);
    assert_eq!((cpu.round(), (memory / f64::from(1 << 30)).round()), (2.0, 8.0));
    let spot = ["m5.large", "spot", "us-west-2a"];
    let price = level("karpenter_cloudprovider_instance_type_offering_price_estimate", &spot);
    assert!(price > 0.0);
    let is_available = || level("karpenter_cloudprovider_instance_type_offering_available", &spot) > 0.5;
    assert!(is_available());
    world.provider.avoid(karpenter_core::OfferingKey {
        instance_type: spot[0].to_owned(),
        zone: spot[2].to_owned(),
        capacity_type: spot[1].to_owned(),
    });
    world.provider.catalog(&pool()).await.expect("known");
    assert!(!is_available());
    assert!(level("karpenter_ec2nodeclasses_userdata_bytes", &["default"]) > 100.0);
    world.provider.remove_class("default");
    assert_eq!(of(&world, "karpenter_ec2nodeclasses_userdata_bytes", &["default"]), None);
}

#[tokio::test]
async fn conditions_of_classes_and_their_ends_are_measured() {
    let (world, clock) = (World::new(), karpenter_aws::Clock::now);
    let name = |end: &str| format!("operator_ec2nodeclass_{end}");
    let apply = |status: ConditionStatus, reason: &str| {
        let mut class = class();
        class.set_condition("SubnetsReady", status, reason, "", clock(world.aws.clock()));
        world.provider.apply_class(class);
    };
    let wait = || world.aws.clock().advance(Duration::from_secs(30));
    apply(ConditionStatus::False, "SubnetsNotFound");
    wait();
    let (bad, good) =
        (["", "default", "SubnetsReady", "False", "SubnetsNotFound"], ["SubnetsReady", "True", "SubnetsReady"]);
    assert_eq!(of(&world, &name("status_condition_count"), &bad), Some(Measured::Level(1.0)));
    assert_eq!(of(&world, &name("status_condition_current_status_seconds"), &bad), Some(Measured::Level(30.0)));
    apply(ConditionStatus::True, "");
    world.provider.apply_class(world.provider.resolve("default").await.expect("answers").class.clone());
    assert_eq!(of(&world, &name("status_condition_transitions_total"), &good), Some(Measured::Count(1)), "once");
    assert_eq!(of(&world, &name("status_condition_count"), &bad), None);
    let sum = |end: &str, labels: &[&str]| match of(&world, &name(end), labels) {
        Some(Measured::Histogram(times)) => (times.count, times.sum),
        other => panic!("{end}: {other:?}"),
    };
    assert_eq!(sum("status_condition_transition_seconds", &["SubnetsReady", "False"]), (1, 30.0));
    let mut going = class();
    going.metadata.deletion_timestamp = Some(clock(world.aws.clock()));
    world.provider.apply_class(going);
    wait();
    let named = ["", "default"];
    assert_eq!(of(&world, &name("termination_current_time_seconds"), &named), Some(Measured::Level(30.0)));
    world.provider.remove_class("default");
    assert_eq!(of(&world, &name("termination_current_time_seconds"), &named), None);
    assert_eq!(sum("termination_duration_seconds", &[]), (1, 30.0));
}
