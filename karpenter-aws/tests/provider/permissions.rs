//! Dry runs tell of missing permissions before a machine is needed.

use std::time::Duration;

use karpenter_aws::nodeclass::conditions;
use karpenter_core::{
    CloudProvider,
    api::{Condition, ConditionStatus},
};

use crate::world::{World, claim, class};

const DENIED: &str = "You are not authorized to perform this operation: no identity-based policy allows the action";
const PROBES: [&str; 2] = ["CreateFleet (dry run)", "RunInstances"];

async fn validation(world: &World) -> Condition {
    let resolved = world.provider.resolve("default").await.expect("answers");
    let all = &resolved.class.status.conditions;
    all.iter().find(|condition| condition.r#type == conditions::VALIDATION_SUCCEEDED).expect("there").clone()
}

#[tokio::test]
async fn what_is_allowed_is_asked_once_in_half_an_hour_and_buys_nothing() {
    let world = World::new();
    for minute in 0..10 {
        assert_eq!(validation(&world).await.status, ConditionStatus::True);
        // Subnets become fuller and emptier, which changes nothing.
        world.aws.with(|state| state.subnets[minute % 3].free_addresses -= 60);
        world.aws.clock().advance(Duration::from_mins(2));
    }
    assert_eq!(PROBES.map(|probe| world.aws.count(probe)), [1, 1]);
    assert_eq!(world.machines(), 0);
    world.aws.clock().advance(Duration::from_mins(30));
    assert_eq!(validation(&world).await.status, ConditionStatus::True);
    assert_eq!(PROBES.map(|probe| world.aws.count(probe)), [2, 2]);
}

#[tokio::test]
async fn what_is_forbidden_is_a_condition_and_nothing_is_bought() {
    for (call, reason) in [
        ("CreateLaunchTemplate", "CreateLaunchTemplateAuthCheckFailed"),
        ("CreateFleet (dry run)", "CreateFleetAuthCheckFailed"),
    ] {
        let world = World::new();
        world.aws.refuse(call, "UnauthorizedOperation", DENIED);
        let found = validation(&world).await;
        assert_eq!((found.status, found.reason.as_str()), (ConditionStatus::False, reason));
        assert!(found.message.contains(DENIED), "{}", found.message);
        let error = world.provider.create(&claim("u1", &[])).await.expect_err("not ready").to_string();
        assert!(error.contains("ValidationSucceeded"), "{error}");
        assert_eq!((world.machines(), world.aws.count("CreateFleet")), (0, 0));
        // It stays so for a while, until the class is another one.
        world.aws.clock().advance(Duration::from_mins(5));
        assert_eq!(validation(&world).await.status, ConditionStatus::False);
        let mut other = class();
        other.spec.tags.insert("team".to_owned(), "a".to_owned());
        world.provider.apply_class(other);
        assert_eq!(validation(&world).await.status, ConditionStatus::True);
    }
}

#[tokio::test]
async fn one_subnet_in_which_machines_may_be_is_enough() {
    let world = World::new();
    world.aws.refuse("RunInstances", "UnauthorizedOperation", DENIED);
    assert_eq!(validation(&world).await.status, ConditionStatus::True);
    assert_eq!(world.aws.count("RunInstances"), 2);
    let world = World::new();
    let subnets = world.aws.with(|state| state.subnets.len());
    for _ in 0..subnets {
        world.aws.refuse("RunInstances", "UnauthorizedOperation", DENIED);
    }
    assert_eq!(validation(&world).await.reason, "RunInstancesAuthCheckFailed");
}

#[tokio::test]
async fn what_says_nothing_about_permissions_is_no_verdict() {
    let world = World::new();
    world.aws.refuse("CreateFleet (dry run)", "RequestLimitExceeded", "slow down");
    world.provider.resolve("default").await.expect_err("nobody knows yet");
    assert_eq!(validation(&world).await.status, ConditionStatus::True);
    let world = World::new();
    world.aws.refuse("RunInstances", "InvalidParameterCombination", "not with this type");
    assert_eq!(validation(&world).await.status, ConditionStatus::True);
}

#[tokio::test]
async fn a_class_that_lacks_something_is_not_tried_out() {
    let world = World::new();
    world.aws.with(|state| state.security_groups.clear());
    let found = validation(&world).await;
    assert_eq!((found.status, found.reason.as_str()), (ConditionStatus::False, "DependenciesNotReady"));
    assert_eq!(PROBES.map(|probe| world.aws.count(probe)), [0, 0]);
}
