use std::sync::Arc;

use futures_util::future::join_all;
use karpenter_aws::{
    Clock,
    interruption::{InterruptionQueue, message::Kind},
    provider::Scope,
};
use karpenter_core::{
    CloudProvider, OfferingKey, labels,
    provider::{EventCursor, Launched, ProviderEvent},
};

use crate::world::{World, claim, label};

const URL: &str = "https://sqs.example/1/events";

fn queue(world: &World) -> InterruptionQueue {
    world.aws.with(|state| state.queues.entry(URL.to_owned()).or_default().clear());
    InterruptionQueue::new(Arc::new(world.aws.clone()), world.provider.clone(), "events")
}

fn warning(instance: &str, detail_type: &str) -> String {
    format!(
        r#"{{"version":"0","source":"aws.ec2","detail-type":"{detail_type}","time":"2026-01-01T00:00:00Z",
            "detail":{{"instance-id":"{instance}"}}}}"#
    )
}

async fn bought(world: &World) -> (Launched, String) {
    let launched = world.provider.create(&claim("u1", &[])).await.expect("bought");
    let id = launched.instance.id.as_str().rsplit('/').next().expect("an id").to_owned();
    (launched, id)
}

fn left(world: &World) -> usize {
    world.aws.with(|state| state.queues[URL].len())
}

#[tokio::test]
async fn a_warning_is_told_and_deleted_once_the_engine_has_read_it() {
    let world = World::new();
    let mut queue = queue(&world);
    let (launched, id) = bought(&world).await;
    world.aws.send(URL, warning(&id, "EC2 Spot Instance Interruption Warning"));
    let messages = queue.poll().await.expect("answers");
    assert_eq!(messages.iter().map(|message| message.kind).collect::<Vec<_>>(), [Kind::SpotInterrupted]);
    assert!(queue.poll().await.expect("answers").is_empty(), "it is known already");
    assert_eq!(left(&world), 1);
    let read = world.provider.next_events(EventCursor::default()).await.expect("known");
    let at = "2026-01-01T00:02:00Z".parse().expect("a time");
    let [ProviderEvent::Notice { reason, is_warning: true, .. }, told] = read.events.as_slice() else {
        panic!("{read:?}")
    };
    assert_eq!(reason, "SpotInterrupted");
    assert_eq!(*told, ProviderEvent::Interruption { id: launched.instance.id.clone(), at });
    queue.poll().await.expect("answers");
    assert_eq!(left(&world), 1, "it may not have been taken in");
    assert!(world.provider.next_events(read.cursor).await.expect("known").events.is_empty());
    queue.poll().await.expect("answers");
    assert_eq!(left(&world), 0);
    let key = OfferingKey {
        instance_type: label(&launched, labels::INSTANCE_TYPE).to_owned(),
        zone: label(&launched, labels::ZONE).to_owned(),
        capacity_type: labels::SPOT.to_owned(),
    };
    let marks = world.provider.unavailable();
    let now = world.aws.clock().now();
    assert!(marks.is_unavailable(&key, &Scope::default(), [], now));
}

#[tokio::test]
async fn what_says_nothing_of_machines_of_the_cluster_is_deleted_at_once() {
    let world = World::new();
    let mut queue = queue(&world);
    let (_, id) = bought(&world).await;
    world.aws.send(URL, warning("i-0other", "EC2 Spot Instance Interruption Warning"));
    world.aws.send(URL, warning(&id, "EC2 Instance Rebalance Recommendation"));
    world.aws.send(URL, "no JSON");
    world.aws.send(URL, "");
    let kinds: Vec<Kind> = queue.poll().await.expect("answers").iter().map(|message| message.kind).collect();
    assert_eq!(kinds, [Kind::SpotInterrupted, Kind::RebalanceRecommendation, Kind::NoOp]);
    assert_eq!(left(&world), 0);
    let told = world.provider.next_events(EventCursor::default()).await.expect("known").events;
    let [ProviderEvent::Notice { reason, is_warning: false, .. }] = told.as_slice() else { panic!("{told:?}") };
    assert_eq!(reason, "SpotRebalanceRecommendation");
}

#[tokio::test]
async fn only_a_spot_warning_says_that_capacity_is_taken_back() {
    let world = World::new();
    let mut queue = queue(&world);
    let (_, id) = bought(&world).await;
    let state = warning(&id, "EC2 Instance State-change Notification");
    world.aws.send(URL, state.replace(r#""instance-id""#, r#""state":"shutting-down","instance-id""#));
    world.aws.send(URL, warning(&id, "EC2 Capacity Reservation Instance Interruption Warning"));
    world.aws.send(URL, warning(&id, "EC2 Spot Instance Interruption Warning"));
    queue.poll().await.expect("answers");
    let told = world.provider.next_events(EventCursor::default()).await.expect("known").events;
    let is_taken_back = |event: &ProviderEvent| match event {
        ProviderEvent::Interruption { .. } => Some(true),
        ProviderEvent::Ending { .. } => Some(false),
        _ => None,
    };
    assert_eq!(told.iter().filter_map(is_taken_back).collect::<Vec<_>>(), [false, false, true]);
}

#[tokio::test]
async fn a_warning_is_told_though_ec2_does_not_answer() {
    let world = World::new();
    let mut queue = queue(&world);
    let (_, id) = bought(&world).await;
    world.aws.send(URL, warning(&id, "EC2 Spot Instance Interruption Warning"));
    for _ in 0..10 {
        world.aws.refuse("DescribeInstances", "RequestLimitExceeded", "slow down");
    }
    assert_eq!(queue.poll().await.expect("answers").len(), 1);
    assert_eq!(world.provider.unavailable().offerings(world.aws.clock().now()).count(), 1, "it is avoided too");
    let told = world.provider.next_events(EventCursor::default()).await.expect("known").events;
    assert_eq!(told.iter().filter(|event| matches!(event, ProviderEvent::Interruption { .. })).count(), 1);
}

#[tokio::test]
async fn a_stranger_that_cannot_be_deleted_keeps_no_other_from_being_heard() {
    let world = World::new();
    let mut queue = queue(&world);
    let (_, id) = bought(&world).await;
    world.aws.send(URL, "no JSON");
    world.aws.send(URL, warning("i-0other", "EC2 Spot Instance Interruption Warning"));
    world.aws.send(URL, warning(&id, "EC2 Spot Instance Interruption Warning"));
    for _ in 0..2 {
        world.aws.refuse("DeleteMessage", "AccessDenied", "not allowed");
    }
    queue.poll().await.expect_err("two messages are not deleted");
    let told = world.provider.next_events(EventCursor::default()).await.expect("known").events;
    assert_eq!(told.iter().filter(|event| matches!(event, ProviderEvent::Interruption { .. })).count(), 1);
}

#[tokio::test]
async fn who_takes_over_hears_of_machines_that_another_process_bought() {
    let mut world = World::new();
    let (_, id) = bought(&world).await;
    world.restart();
    let mut queue = queue(&world);
    world.aws.send(URL, warning(&id, "EC2 Spot Instance Interruption Warning"));
    queue.poll().await.expect("answers");
    assert_eq!(world.provider.unavailable().offerings(world.aws.clock().now()).count(), 1, "what they are is known");
    let told = world.provider.next_events(EventCursor::default()).await.expect("known").events;
    assert_eq!(told.iter().filter(|event| matches!(event, ProviderEvent::Interruption { .. })).count(), 1);
}

#[tokio::test]
async fn who_takes_over_hears_of_machines_of_which_nobody_knows_whose_they_are() {
    let mut world = World::new();
    world.aws.refuse("CreateTags", "UnauthorizedOperation", "not allowed");
    let claims: Vec<_> = (0..6).map(|i| claim(&format!("{i:036}"), &[])).collect();
    let launched = join_all(claims.iter().map(|claim| world.provider.create(claim))).await;
    let ids: Vec<_> = launched.into_iter().map(|launched| launched.expect("bought").instance.id).collect();
    let name = |index: usize| ids[index].as_str().rsplit('/').next().expect("an id").to_owned();
    world.aws.with(|state| state.instances.remove(&name(0)));
    world.restart();
    let mut queue = queue(&world);
    world.aws.send(URL, warning(&name(1), "EC2 Spot Instance Interruption Warning"));
    queue.poll().await.expect("answers");
    assert_eq!(world.provider.unavailable().offerings(world.aws.clock().now()).count(), 1, "what it is is known");
    let told = world.provider.next_events(EventCursor::default()).await.expect("known").events;
    let is_told = |event: &ProviderEvent| matches!(event, ProviderEvent::Interruption { id, .. } if *id == ids[1]);
    assert!(told.iter().any(is_told), "{told:?}");
}

#[tokio::test]
async fn a_message_that_cannot_be_deleted_keeps_no_other_from_being_heard() {
    let world = World::new();
    let mut queue = queue(&world);
    let (_, id) = bought(&world).await;
    world.aws.send(URL, warning(&id, "EC2 Spot Instance Interruption Warning"));
    queue.poll().await.expect("answers");
    let read = world.provider.next_events(EventCursor::default()).await.expect("known");
    world.provider.next_events(read.cursor).await.expect("known");
    world.aws.refuse("DeleteMessage", "AccessDenied", "not allowed");
    world.aws.send(URL, warning("i-0other", "EC2 Spot Instance Interruption Warning"));
    queue.poll().await.expect_err("a message is not deleted");
    assert_eq!(left(&world), 1, "the other one was heard");
    queue.poll().await.expect("answers");
    assert_eq!(left(&world), 0, "the first was tried again");
}
