//! What becomes of a class.

use std::{sync::Arc, time::Duration};

use karpenter_aws::{
    nodeclass::{AmiFamily, AmiSelectorTerm, Ec2NodeClass, PlacementGroupSelector, SubnetSelectorTerm, conditions},
    provider::{Ec2Provider, Preparation},
    version::VersionError,
};
use karpenter_core::{CloudProvider, api::ConditionStatus, labels};

use crate::world::{World, claim, class};

async fn resolved(world: &World) -> Ec2NodeClass {
    world.provider.resolve("default").await.expect("answers").class.clone()
}

#[tokio::test]
async fn images_follow_the_version_of_the_control_plane() {
    let mut options = crate::world::options();
    options.images_period = Duration::from_hours(1);
    let world = World::of(options, class());
    assert_eq!(resolved(&world).await.status.amis.len(), 2);
    world.aws.with(|state| {
        let newer = state.parameters.iter().filter(|(name, _)| name.contains("x86_64"));
        let newer: Vec<_> = newer.map(|(name, _)| (name.replace("/1.31/", "/1.32/"), "ami-arm".to_owned())).collect();
        state.parameters.extend(newer);
    });
    world.provider.set_kubernetes_version("1.32+").expect("known");
    world.aws.clock().advance(Duration::from_mins(1));
    let images: Vec<_> = resolved(&world).await.status.amis.into_iter().map(|image| image.id).collect();
    assert_eq!(images, ["ami-arm"]);
    let unknown = world.provider.set_kubernetes_version("1.99").expect_err("far off");
    assert!(matches!(unknown, VersionError::Unsupported { .. }), "{unknown}");
    world.provider.set_kubernetes_version("one").expect_err("no version");
    world.aws.clock().advance(Duration::from_mins(1));
    assert_eq!(resolved(&world).await.status.amis.len(), 1, "the version of before counts");
}

#[tokio::test]
async fn a_placement_group_that_is_not_there_is_a_condition() {
    let mut class = class();
    class.spec.placement_group_selector = Some(PlacementGroupSelector { name: Some("near".to_owned()), id: None });
    let world = World::with(class);
    let found = resolved(&world).await;
    let all = &found.status.conditions;
    let said = all.iter().find(|own| own.r#type == conditions::PLACEMENT_GROUP_READY).expect("there");
    assert_eq!((said.status, said.reason.as_str()), (ConditionStatus::False, "PlacementGroupNotFound"));
    assert!(found.not_ready().is_some());
}

#[tokio::test]
async fn an_expression_without_a_value_for_a_type_is_a_condition() {
    let mut options = crate::world::options();
    options.types.evaluates_expressions = true;
    for (expression, reason) in [
        ("max_pods - 1", "ValidationSucceeded"),
        ("max_pods -", "KubeletExpressionInvalid"),
        ("1 / (vcpus - 4) + 5", "KubeletExpressionEvaluationFailed"),
    ] {
        let mut class = class();
        class.spec.kubelet.0.insert("maxPods".to_owned(), expression.into());
        let world = World::of(options.clone(), class);
        let found = resolved(&world).await;
        let all = &found.status.conditions;
        let said = all.iter().find(|own| own.r#type == conditions::VALIDATION_SUCCEEDED).expect("there");
        assert_eq!(said.reason, reason, "{}", said.message);
        let is_ready = reason == "ValidationSucceeded";
        assert_eq!(said.status == ConditionStatus::True, is_ready);
        assert_eq!(world.provider.create(&claim("u1", &[])).await.is_ok(), is_ready);
        if reason == "KubeletExpressionEvaluationFailed" {
            assert!(said.message.contains("c5.xlarge"), "the type with four processors: {}", said.message);
        }
    }
}

#[tokio::test]
async fn settings_that_bottlerocket_does_not_know_are_named_in_a_condition() {
    let mut class = class();
    class.spec.ami_family = Some(AmiFamily::Bottlerocket);
    class.spec.ami_selector_terms = vec![AmiSelectorTerm::of_id("ami-x86")];
    class.spec.user_data = Some("[settings.kubernetes]\ncolour = 1".to_owned());
    let found = resolved(&World::with(class)).await;
    let all = &found.status.conditions;
    let said = all.iter().find(|own| own.r#type == conditions::VALIDATION_SUCCEEDED).expect("there");
    assert_eq!(said.status, ConditionStatus::True, "{}", said.message);
    assert!(said.message.contains("settings.kubernetes.colour"), "{}", said.message);
}

#[tokio::test]
async fn a_profile_that_is_named_is_used_as_it_is() {
    let mut class = class();
    class.spec.role.clear();
    class.spec.instance_profile = Some("mine".to_owned());
    let world = World::with(class);
    assert_eq!(resolved(&world).await.status.instance_profile, "mine");
    world.provider.create(&claim("u1", &[])).await.expect("bought");
    let calls = world.aws.with(|state| state.calls.clone());
    assert!(calls.iter().all(|call| !call.contains("InstanceProfile")), "{calls:?}");
}

#[tokio::test]
async fn who_only_asks_what_can_be_bought_changes_nothing() {
    let mut options = crate::world::options();
    options.preparation = Preparation::Nothing;
    let world = World::of(options, class());
    let asked = world.provider.catalog(&crate::world::pool()).await.expect("the class can be used");
    assert!(!asked.types().is_empty());
    let calls = world.aws.with(|state| state.calls.clone());
    let only_asks = |call: &&&str| ["Describe", "Get", "List"].iter().any(|start| call.starts_with(start));
    assert_eq!(calls.iter().find(|call| !only_asks(call)), None);
}

#[tokio::test]
async fn profiles_that_nobody_has_go_once_they_are_not_young() {
    let world = World::new();
    world.provider.know_all_classes();
    let first = resolved(&world).await.status.instance_profile;
    world.aws.with(|state| state.roles.push("other".to_owned()));
    let mut changed = class();
    "other".clone_into(&mut changed.spec.role);
    world.provider.apply_class(changed);
    let second = resolved(&world).await.status.instance_profile;
    assert_ne!(first, second);
    let names = || world.aws.with(|state| state.profiles.iter().map(|own| own.name.clone()).collect::<Vec<_>>());
    world.provider.upkeep().await.expect("done");
    assert_eq!(names().len(), 2, "the first may be in a status that is on its way");
    world.aws.clock().advance(Duration::from_hours(1));
    world.provider.upkeep().await.expect("done");
    assert_eq!(names(), [second]);
}

#[tokio::test]
async fn profiles_stay_until_all_classes_are_known() {
    let mut world = World::new();
    resolved(&world).await;
    world.aws.clock().advance(Duration::from_hours(2));
    let (aws, clock) = (Arc::new(world.aws.clone()), Arc::new(world.aws.clock().clone()));
    world.provider = Ec2Provider::new(aws, clock, crate::world::options());
    world.provider.upkeep().await.expect("done");
    assert_eq!(world.aws.with(|state| state.profiles.len()), 1, "a class without machines may have it");
    world.provider.know_all_classes();
    world.provider.upkeep().await.expect("done");
    assert_eq!(world.aws.with(|state| state.profiles.len()), 0);
}

#[tokio::test]
async fn machines_in_a_subnet_that_is_left_have_drifted_though_there_are_none_of_their_type_elsewhere() {
    let world = World::new();
    world.aws.with(|state| {
        let zones = ["us-west-2a", "us-west-2b", "us-west-2c"];
        let types = state.instance_types.iter().map(|info| info.instance_type.clone());
        let everywhere = types.flat_map(|own| zones.map(move |zone| (own.clone(), zone.to_owned())));
        state.zone_offerings = Some(everywhere.filter(|(own, zone)| own != "m5.2xlarge" || zone == zones[0]).collect());
    });
    let only = claim("u1", &[(labels::INSTANCE_TYPE, &["m5.2xlarge"])]);
    let launched = world.provider.create(&only).await.expect("bought");
    let mut bought = only;
    launched.instance.id.as_str().clone_into(&mut bought.status.provider_id);
    bought.status.image_id = launched.image_id;
    assert_eq!(world.provider.drift(&bought).await, Ok(None));
    let mut moved = class();
    moved.spec.subnet_selector_terms =
        vec![SubnetSelectorTerm { id: "subnet-2".to_owned(), ..SubnetSelectorTerm::default() }];
    world.provider.apply_class(moved);
    world.aws.clock().advance(Duration::from_secs(1));
    assert_eq!(world.provider.drift(&bought).await, Ok(Some("SubnetDrift".to_owned())));
}

#[tokio::test]
async fn images_and_subnets_are_good_for_their_own_time() {
    let mut options = crate::world::options();
    (options.images_period, options.subnets_period) = (Duration::from_mins(5), Duration::from_mins(3));
    let world = World::of(options, class());
    let mut asked = Vec::new();
    for _ in 0..6 {
        let found = resolved(&world).await;
        assert_eq!((found.status.amis.len(), found.status.subnets.len()), (2, 3));
        assert!(found.not_ready().is_none());
        asked.push((world.aws.count("DescribeImages"), world.aws.count("DescribeSubnets")));
        world.aws.clock().advance(Duration::from_mins(1));
    }
    let first = asked[0].0;
    let images: Vec<usize> = asked.iter().map(|(images, _)| images / first).collect();
    let subnets: Vec<usize> = asked.iter().map(|(_, subnets)| *subnets).collect();
    assert_eq!((images, subnets), (vec![1, 1, 1, 1, 1, 2], vec![1, 1, 1, 2, 2, 2]));
    assert_eq!(world.aws.count("DescribeSecurityGroups"), 6, "the rest is asked for each minute");
}

#[tokio::test]
async fn images_that_were_not_there_are_looked_for_again_soon() {
    let mut options = crate::world::options();
    (options.images_period, options.subnets_period) = (Duration::from_hours(1), Duration::from_hours(1));
    let world = World::of(options, class());
    let (images, subnets) =
        world.aws.with(|state| (std::mem::take(&mut state.images), std::mem::take(&mut state.subnets)));
    assert!(resolved(&world).await.not_ready().is_some());
    world.aws.with(|state| (state.images, state.subnets) = (images, subnets));
    world.aws.clock().advance(Duration::from_mins(1));
    let found = resolved(&world).await;
    assert!(found.not_ready().is_none());
    let asked = world.aws.count("DescribeImages");
    world.aws.clock().advance(Duration::from_mins(59));
    assert_eq!(resolved(&world).await.status.amis, found.status.amis);
    assert_eq!(world.aws.count("DescribeImages"), asked);
}

#[tokio::test]
async fn a_pool_of_another_kind_of_class_is_not_taken_for_one_of_its_own() {
    let world = World::new();
    let mut pool = crate::world::pool();
    world.provider.catalog(&pool).await.expect("its own");
    "AKSNodeClass".clone_into(&mut pool.spec.template.spec.node_class_ref.kind);
    let error = world.provider.catalog(&pool).await.expect_err("another's");
    assert!(error.kind == karpenter_core::provider::ProviderErrorKind::NodeClassNotReady, "{error}");
    assert!(world.provider.node_class_kinds()[0].is_of(&class().reference()));
}
