//! What stands in the way is told, and nobody asks without end.

use std::time::Duration;

use futures_util::future::join_all;
use karpenter_aws::{ApiError, instance_type::labels as own, mem::Fault};
use karpenter_core::{
    CloudProvider,
    api::{ConditionStatus, NodeSelectorRequirement, Operator},
    labels,
    provider::CreateError,
};

use crate::{
    cluster::Cluster,
    world::{World, claim, class, pool},
};

/// Calls without which nothing is bought.
const CALLS: [&str; 9] = [
    "DescribeImages",
    "GetParameter",
    "DescribeSubnets",
    "DescribeSecurityGroups",
    "GetInstanceProfile",
    "DescribeInstanceTypes",
    "DescribeInstances",
    "CreateLaunchTemplate",
    "CreateFleet",
];

fn fail(world: &karpenter_aws::mem::MemoryAws, calls: &[&'static str], error: impl Fn(&str) -> ApiError) {
    world.with(|state| {
        let all =
            calls.iter().map(|call| Fault { operation: call, times: 100_000, error: error(call), is_done: false });
        state.faults.extend(all);
    });
}

fn denied(call: &str) -> ApiError {
    ApiError::refused(call, "UnauthorizedOperation", "You are not authorized to perform this operation.")
}

type Answer = fn(&str) -> ApiError;

/// Wrong credentials; none of the calls allowed; no network, or a region that is none.
fn troubles() -> [(&'static str, Answer); 3] {
    [
        ("AuthFailure", |call| ApiError::refused(call, "AuthFailure", "AWS was not able to validate the credentials")),
        ("UnauthorizedOperation", denied),
        ("dispatch failure", |call| {
            ApiError::no_answer(call, "dispatch failure: failed to lookup address information")
        }),
    ]
}

#[tokio::test]
async fn who_reaches_no_aws_is_told_why_and_asks_less_and_less_often() {
    for (words, error) in troubles() {
        let mut cluster = Cluster::new();
        fail(&cluster.aws, &CALLS, error);
        let said = cluster.provider.catalog(&pool()).await.expect_err("nothing is known").to_string();
        assert!(said.contains(words) && said.lines().count() == 1, "{said}");
        cluster.add_pods(10, "900m");
        cluster.run(600).await;
        assert_eq!((cluster.machines().len(), cluster.nodes.len()), (0, 0), "{words}");
        let calls = cluster.aws.with(|state| state.calls.len());
        assert!(calls < 600, "{words}: {calls} calls in ten minutes");
        cluster.aws.with(|state| state.faults.clear());
        cluster.run(600).await;
        assert_eq!(cluster.unbound(), 0, "{words}: it goes on once nothing stands in the way");
    }
}

#[tokio::test]
async fn who_may_not_buy_is_told_so_by_the_launch_where_nothing_was_tried_before() {
    let mut cluster = Cluster::new();
    fail(&cluster.aws, &["CreateFleet"], denied);
    cluster.add_pods(10, "900m");
    cluster.run(600).await;
    assert_eq!(cluster.machines().len(), 0);
    let asked = cluster.aws.count("CreateFleet");
    assert!((1..200).contains(&asked), "{asked} fleets in ten minutes");
}

#[tokio::test]
async fn what_a_class_does_not_find_is_a_condition() {
    type Take = fn(&mut karpenter_aws::mem::State);
    let ways: [(&str, &str, Take); 4] = [
        ("SubnetsReady", "SubnetsNotFound", |state| state.subnets.clear()),
        ("SecurityGroupsReady", "SecurityGroupsNotFound", |state| state.security_groups.clear()),
        ("AMIsReady", "AMINotFound", |state| state.images.clear()),
        ("InstanceProfileReady", "RoleNotFound", |state| state.roles.clear()),
    ];
    for (condition, reason, take) in ways {
        let world = World::new();
        world.aws.with(take);
        let found = world.provider.resolve("default").await.expect("answers");
        let all = &found.class.status.conditions;
        let said = all.iter().find(|own| own.r#type == condition).expect("there");
        assert_eq!((said.status, said.reason.as_str()), (ConditionStatus::False, reason));
        let error = world.provider.create(&claim("u1", &[])).await.expect_err("not ready");
        let CreateError::NodeClassNotReady { message, .. } = error else { panic!("{error}") };
        assert!(message.contains(condition), "{message}");
        assert_eq!(world.aws.count("CreateFleet"), 0);
    }
}

#[tokio::test]
async fn a_class_without_selectors_is_no_class() {
    for change in [
        (|class| class.spec.subnet_selector_terms.clear()) as fn(&mut karpenter_aws::nodeclass::Ec2NodeClass),
        |class| class.spec.ami_selector_terms.clear(),
    ] {
        let mut class = class();
        change(&mut class);
        let world = World::with(class);
        let found = world.provider.resolve("default").await.expect("answers");
        let said = found.problem().expect("not ready");
        assert!(said.contains("ValidationSucceeded"), "{said}");
        world.provider.create(&claim("u1", &[])).await.expect_err("not ready");
    }
}

#[tokio::test]
async fn pods_of_a_pool_that_wants_what_no_machine_can_be_say_so() {
    let no_type = "no instance type meets the requirements of the pool";
    let no_capacity = r#"not ready: spec.template.spec.requirements[0].values: only 0 of ["cheap"] are capacity types; there are on-demand, reserved, spot"#;
    for (key, value, why) in [(own::TENANCY, "host", no_type), (labels::CAPACITY_TYPE, "cheap", no_capacity)] {
        let mut cluster = Cluster::new();
        cluster.put_pool(pool().require(NodeSelectorRequirement::new(key, Operator::In, [value])));
        cluster.add_pods(1, "900m");
        cluster.run(90).await;
        let said: Vec<&str> = cluster.notes.iter().map(|note| note.message.as_str()).collect();
        assert_eq!(said, [format!("pool general: {why}")]);
        assert_eq!(cluster.aws.count("CreateFleet"), 0);
    }
}

#[tokio::test]
async fn who_asks_too_often_does_not_ask_for_each_machine_by_itself() {
    let world = World::new();
    let mut ids = Vec::new();
    for uid in ["u1", "u2", "u3"] {
        ids.push(world.provider.create(&claim(uid, &[])).await.expect("bought").instance.id);
    }
    let before = world.aws.count("DescribeInstances");
    world.aws.refuse("DescribeInstances", "RequestLimitExceeded", "slow down");
    let found = join_all(ids.iter().map(|id| world.provider.get(id))).await;
    assert!(found.iter().all(Result::is_err), "{found:?}");
    assert_eq!(world.aws.count("DescribeInstances") - before, 1);
    assert!(join_all(ids.iter().map(|id| world.provider.get(id))).await.iter().all(Result::is_ok));
}

#[tokio::test]
async fn what_is_known_serves_while_aws_refuses_and_is_not_asked_for_with_every_call() {
    for (call, after) in [
        ("DescribeInstanceTypeOfferings", Duration::from_hours(12)),
        ("DescribeSecurityGroups", Duration::from_mins(1)),
    ] {
        let world = World::new();
        world.provider.catalog(&pool()).await.expect("known");
        world.aws.clock().advance(after);
        fail(&world.aws, &[call], |call| ApiError::refused(call, "RequestLimitExceeded", "Request limit exceeded."));
        let before = world.aws.count(call);
        for _ in 0..10 {
            world.provider.catalog(&pool()).await.expect("known");
        }
        assert_eq!(world.aws.count(call), before + 1, "{call}");
        world.aws.with(|state| state.faults.clear());
        world.aws.clock().advance(Duration::from_mins(1));
        world.provider.catalog(&pool()).await.expect("known");
        assert_eq!(world.aws.count(call), before + 2, "{call}");
    }
}
