//! Machines of which EC2 says that they are not well.

use std::{sync::Arc, time::Duration};

use karpenter_aws::{
    Clock as _,
    ec2::instance::InstanceHealth,
    interruption::{Ailment, HealthCheck},
};
use karpenter_core::{
    CloudProvider,
    provider::{EventCursor, ProviderEvent, ProviderId},
};

use crate::{
    cluster::Cluster,
    world::{World, claim},
};

fn check(world: &World) -> HealthCheck {
    let clock = Arc::new(world.aws.clock().clone());
    HealthCheck::new(Arc::new(world.aws.clone()), clock, world.provider.clone())
}

async fn bought(world: &World) -> (ProviderId, String) {
    let launched = world.provider.create(&claim("u1", &[])).await.expect("bought");
    let machine = launched.instance.id.as_str().rsplit('/').next().expect("an id").to_owned();
    (launched.instance.id, machine)
}

fn set(world: &World, health: InstanceHealth) {
    world.aws.with(|state| state.health = vec![health]);
}

async fn told(world: &World) -> usize {
    let events = world.provider.next_events(EventCursor::default()).await.expect("known").events;
    events.iter().filter(|event| matches!(event, ProviderEvent::Ending { .. })).count()
}

#[tokio::test]
async fn a_machine_is_told_of_when_its_checks_fail_for_two_minutes() {
    let world = World::new();
    let ((id, machine), mut check) = (bought(&world).await, check(&world));
    let since = Some(world.aws.clock().now());
    set(&world, InstanceHealth { id: machine.clone(), system_impaired_since: since, ..InstanceHealth::default() });
    assert!(check.poll().await.expect("answers").is_empty(), "it may start yet");
    world.aws.clock().advance(Duration::from_mins(2));
    let found = check.poll().await.expect("answers");
    assert_eq!(found.into_iter().collect::<Vec<_>>(), [(machine.clone(), Ailment::SystemStatus)]);
    let at = world.aws.clock().now();
    let events = world.provider.next_events(EventCursor::default()).await.expect("known").events;
    let [ProviderEvent::Notice { reason, .. }, interruption] = events.as_slice() else { panic!("{events:?}") };
    assert_eq!(reason, "InstanceUnhealthy");
    assert_eq!(*interruption, ProviderEvent::Ending { id, at });
    assert!(check.poll().await.expect("answers").is_empty(), "it is known");
    // It gets well and falls ill again.
    let health = world.aws.with(|state| std::mem::take(&mut state.health));
    assert!(check.poll().await.expect("answers").is_empty());
    world.aws.with(|state| state.health = health);
    assert_eq!(check.poll().await.expect("answers").len(), 1);
}

#[tokio::test]
async fn what_aws_plans_is_told_at_once_and_other_machines_and_plans_are_not() {
    let world = World::new();
    let ((_, machine), mut check) = (bought(&world).await, check(&world));
    let planned = |id: &str, code: &str| InstanceHealth {
        id: id.to_owned(),
        events: vec![code.to_owned()],
        ..InstanceHealth::default()
    };
    for health in [planned("i-0other", "instance-retirement"), planned(&machine, "something-new")] {
        set(&world, health);
        assert!(check.poll().await.expect("answers").is_empty());
    }
    assert_eq!(told(&world).await, 0);
    set(&world, planned(&machine, "instance-retirement"));
    assert_eq!(check.poll().await.expect("answers")[&machine], Ailment::ScheduledEvent);
    assert_eq!(told(&world).await, 1);
}

#[tokio::test]
async fn who_may_not_ask_asks_no_more() {
    let world = World::new();
    let mut check = check(&world);
    world.aws.refuse("DescribeInstanceStatus", "RequestLimitExceeded", "slow down");
    check.poll().await.expect_err("throttled");
    world.aws.refuse("DescribeInstanceStatus", "UnauthorizedOperation", "no");
    check.poll().await.expect_err("forbidden");
    let asked = world.aws.count("DescribeInstanceStatus");
    assert!(check.poll().await.expect("nothing is asked").is_empty());
    assert_eq!(world.aws.count("DescribeInstanceStatus"), asked);
}

#[tokio::test]
async fn a_machine_that_is_to_retire_is_replaced() {
    let mut cluster = Cluster::new();
    cluster.add_pods(4, "900m");
    cluster.run(90).await;
    let old = cluster.machines();
    let health = InstanceHealth {
        id: old[0].clone(),
        events: vec!["instance-retirement".to_owned()],
        ..InstanceHealth::default()
    };
    cluster.aws.with(|state| state.health = vec![health]);
    let clock = Arc::new(cluster.aws.clock().clone());
    let mut check = HealthCheck::new(Arc::new(cluster.aws.clone()), clock, cluster.provider.clone());
    assert_eq!(check.poll().await.expect("answers").len(), 1);
    cluster.run(240).await;
    assert!(!cluster.machines().contains(&old[0]));
    assert_eq!(cluster.unbound(), 0);
}
