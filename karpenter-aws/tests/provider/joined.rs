//! What is done once a machine has become a node.

use karpenter_aws::nodeclass::{HASH_VERSION, NODE_CLASS_HASH, NODE_CLASS_HASH_VERSION};
use karpenter_core::{
    CloudProvider, Quantity, ResourceName,
    api::{Condition, ConditionStatus, NodeClaim},
    labels,
};

use crate::world::{World, claim, label, pool};

/// A claim whose machine has become a node.
async fn joined(world: &World, uid: &str) -> NodeClaim {
    let mut claim = claim(uid, &[(labels::INSTANCE_TYPE, &["m5.large"])]);
    let launched = world.provider.create(&claim).await.expect("bought");
    assert_eq!(label(&launched, labels::INSTANCE_TYPE), "m5.large");
    launched.hydrate(&mut claim);
    claim.status.node_name = format!("ip-{uid}.internal");
    claim
}

async fn memory(world: &World) -> Quantity {
    let catalog = world.provider.catalog(&pool()).await.expect("known");
    catalog.get("m5.large").expect("there").capacity.get(ResourceName::Memory.as_str()).expect("memory")
}

fn tags(world: &World, claim: &NodeClaim) -> std::collections::BTreeMap<String, String> {
    let id = claim.status.provider_id.rsplit('/').next().expect("an id");
    world.aws.with(|state| state.instances[id].tags.clone())
}

#[tokio::test]
async fn what_nodes_have_of_memory_counts_in_the_place_of_the_formula() {
    let world = World::new();
    let claim = joined(&world, "u1").await;
    let mib = |n: i64| Quantity::from_bytes(n << 20);
    assert_eq!(memory(&world).await, mib(7577), "8192 MiB less 7.5 %");
    for (seen, counts) in [(7750, 7750), (7700, 7700), (7800, 7700)] {
        world.provider.learn_memory(&claim, mib(seen)).await.expect("known");
        assert_eq!(memory(&world).await, mib(counts));
    }
}

#[tokio::test]
async fn what_a_node_of_another_image_has_says_nothing() {
    let world = World::new();
    let mut claim = joined(&world, "u1").await;
    let before = memory(&world).await;
    "ami-old".clone_into(&mut claim.status.image_id);
    world.provider.learn_memory(&claim, Quantity::from_bytes(7000 << 20)).await.expect("known");
    assert_eq!(memory(&world).await, before);
}

#[tokio::test]
async fn a_machine_gets_the_name_of_its_node_once() {
    let world = World::new();
    let claim = joined(&world, "u1").await;
    for _ in 0..2 {
        world.provider.name_machine(&claim).await.expect("tagged");
    }
    let tags = tags(&world, &claim);
    assert_eq!((tags["Name"].as_str(), tags["karpenter.sh/nodeclaim"].as_str()), ("ip-u1.internal", "general-u1"));
    assert_eq!(world.aws.count("CreateTags"), 1);
}

/// As Karpenter's own controller does it when the version of its hash is another one.
#[tokio::test]
async fn a_claim_of_another_version_gets_the_hash_of_its_class() {
    let world = World::new();
    let mut claim = joined(&world, "u1").await;
    let renewed = async |claim: &NodeClaim| world.provider.renewed_hash(claim).await.expect("known");
    assert!(renewed(&claim).await.is_empty(), "its machine has it");
    let old = [(NODE_CLASS_HASH, "1"), (NODE_CLASS_HASH_VERSION, "v5")];
    claim.metadata.annotations.extend(old.map(|(key, value)| (key.to_owned(), value.to_owned())));
    let drift = async |claim: &NodeClaim| world.provider.drift(claim).await.expect("known");
    let mut drifted = claim.clone();
    for (claim, expected) in [(&mut claim, None), (&mut drifted, Some("NodeClassDrift".to_owned()))] {
        if expected.is_some() {
            let mut condition = Condition::default();
            (condition.r#type, condition.status) = ("Drifted".to_owned(), ConditionStatus::True);
            claim.status.conditions.push(condition);
        }
        claim.metadata.annotations.extend(renewed(claim).await);
        assert_eq!(claim.metadata.annotations[NODE_CLASS_HASH_VERSION], HASH_VERSION);
        assert_eq!(drift(claim).await, expected);
        assert!(renewed(claim).await.is_empty());
    }
    let mut class = crate::world::class();
    class.spec.detailed_monitoring = Some(true);
    world.provider.apply_class(class);
    assert_eq!(drift(&claim).await, Some("NodeClassDrift".to_owned()), "what changes later is seen");
}

#[tokio::test]
async fn a_name_that_the_user_gave_stays() {
    let mut class = crate::world::class();
    class.spec.tags.insert("Name".to_owned(), "mine".to_owned());
    let world = World::with(class);
    let claim = joined(&world, "u1").await;
    world.provider.name_machine(&claim).await.expect("nothing to do");
    assert_eq!((tags(&world, &claim)["Name"].as_str(), world.aws.count("CreateTags")), ("mine", 0));
}

#[tokio::test]
async fn a_machine_that_is_gone_needs_no_name() {
    let world = World::new();
    let mut claim = joined(&world, "u1").await;
    world.aws.refuse("CreateTags", "InvalidInstanceID.NotFound", "gone meanwhile");
    world.provider.name_machine(&claim).await.expect("gone");
    world.aws.refuse("CreateTags", "RequestLimitExceeded", "slow down");
    world.provider.name_machine(&claim).await.expect_err("not done");
    "kind://other".clone_into(&mut claim.status.provider_id);
    world.provider.name_machine(&claim).await.expect("not a machine of EC2");
}
