//! Pools of which no node can be made: what is said of them, and how it is tried again.

use std::{collections::BTreeSet, sync::Arc};

use karpenter_core::{
    Requirement,
    api::{Condition, ConditionStatus, NodeClassRef, NodePool},
    engine::{EngineOptions, Event, Metric, Object, ObjectRef},
    labels,
    provider::{CreateError, ProviderErrorKind},
};

use crate::world::World;

fn ready(world: &World, kind: &str) -> (ConditionStatus, String) {
    let pool = world.pools.values().next().expect("a pool");
    let found = pool.status.conditions.iter().find(|condition| condition.r#type == kind).expect("said");
    (found.status, found.message.clone())
}

/// What pods were told why they have no place, each text once.
fn reasons(world: &World) -> BTreeSet<&str> {
    world.log.iter().filter_map(|line| Some(line.split_once("FailedScheduling ")?.1)).collect()
}

#[test]
fn a_class_that_is_not_ready_is_left_alone_for_a_while() {
    let mut world = World::with_pool(EngineOptions::default());
    world.launch_errors =
        vec![CreateError::NodeClassNotReady { class: "Class/default".to_owned(), message: "no".to_owned() }];
    world.add_pods("web", 1, "1");
    world.run(25);
    assert_eq!((world.claims.len(), world.count(" launch ")), (0, 1), "{:#?}", world.log);
    world.run(60);
    assert_eq!(world.unbound(), 0, "{:#?}", world.log);
}

/// Karpenter wrote the conditions before the pool was changed.
#[test]
fn conditions_are_those_of_the_pool_as_it_is() {
    let mut world = World::with_pool(EngineOptions::default());
    let kinds = ["ValidationSucceeded", "NodeClassReady", "NodeRegistrationHealthy", "Ready"];
    for (generation, healthy) in [(2, ConditionStatus::Unknown), (1, ConditionStatus::True)] {
        let mut pool = world.pools["general"].clone();
        pool.metadata.generation = Some(generation);
        pool.status.conditions = kinds
            .iter()
            .map(|kind| {
                let mut condition = Condition::default();
                (condition.r#type, condition.reason) = ((*kind).to_owned(), (*kind).to_owned());
                (condition.status, condition.observed_generation) = (ConditionStatus::True, Some(1));
                condition
            })
            .collect();
        world.put_pool(pool);
        world.crash();
        world.run(30);
        let all = &world.pools["general"].status.conditions;
        assert!(all.iter().all(|condition| condition.observed_generation == Some(generation)), "{all:#?}");
        assert_eq!((ready(&world, "NodeRegistrationHealthy").0, all.len()), (healthy, kinds.len()));
    }
}

#[test]
fn classes_of_one_name_and_different_kinds_are_not_the_same() {
    let mut world = World::new(EngineOptions::default());
    for (name, kind, weight) in [("first", "A", Some(10)), ("second", "B", None)] {
        let mut pool = NodePool::named(name);
        pool.spec.template.spec.node_class_ref = NodeClassRef::new("example.com", kind, "default");
        pool.spec.weight = weight;
        world.put_pool(pool);
    }
    world.launch_errors =
        vec![CreateError::NodeClassNotReady { class: "A/default".to_owned(), message: "no".to_owned() }];
    world.add_pods("web", 1, "1");
    world.run(25);
    let pools: Vec<&str> = world.claims.values().map(|claim| &*claim.metadata.labels[labels::NODE_POOL]).collect();
    assert_eq!(pools, ["second"], "{:#?}", world.log);
}

#[test]
fn no_claim_is_made_of_a_class_that_the_provider_says_is_not_ready() {
    let mut world = World::with_pool(EngineOptions::default());
    world.class_fault = Some("it has no subnets".to_owned());
    world.add_pods("web", 1, "1");
    world.run(90);
    assert_eq!((world.claims.len(), world.count(" launch ")), (0, 0), "{:#?}", world.log);
    assert_eq!(ready(&world, "NodeClassReady"), (ConditionStatus::False, "it has no subnets".to_owned()));
    assert_eq!(ready(&world, "Ready").0, ConditionStatus::False);
    world.class_fault = None;
    world.run(25);
    assert_eq!(world.count(" launch "), 1, "{:#?}", world.log);
    world.run(50);
    assert_eq!(world.unbound(), 0, "{:#?}", world.log);
    assert_eq!(ready(&world, "NodeClassReady"), (ConditionStatus::True, String::new()));
    assert_eq!(ready(&world, "Ready").0, ConditionStatus::True);
}

/// The catalog tells of another label of that domain, so that the first is misspelt.
#[test]
fn a_pool_that_asks_for_a_label_which_its_provider_does_not_know_is_not_ready() {
    let mut world = World::with_pool(EngineOptions::default());
    let mut pool = world.pools["general"].clone();
    let asked = serde_json::json!([{"key": "karpenter.example.com/catagory", "operator": "In", "values": ["c"]}]);
    pool.spec.template.spec.requirements = serde_json::from_value(asked).expect("requirements");
    world.put_pool(pool.clone());
    let has = Requirement::one_of(["c"]);
    world.types.iter_mut().for_each(|own| own.requirements.add("karpenter.example.com/category", has.clone()));
    world.add_pods("web", 1, "1");
    world.run(60);
    let why = "spec.template.spec.requirements[0].key: no instance type has a label \"karpenter.example.com/catagory\"";
    assert_eq!(ready(&world, "ValidationSucceeded"), (ConditionStatus::False, why.to_owned()));
    assert_eq!((world.count(" launch "), ready(&world, "Ready").0), (0, ConditionStatus::False), "{:#?}", world.log);
    assert!(reasons(&world).iter().all(|reason| reason.ends_with(why)), "{:#?}", world.log);
    pool.spec.template.spec.requirements[0].key = "karpenter.example.com/category".to_owned();
    world.put_pool(pool);
    world.run(60);
    assert_eq!(world.unbound(), 0, "{:#?}", world.log);
}

/// A provider whose catalog does not tell what only launches find out.
#[test]
fn a_class_that_stays_unready_is_tried_less_and_less_often_and_one_reason_is_told() {
    let mut world = World::with_pool(EngineOptions::default());
    let error = || CreateError::NodeClassNotReady { class: "default".to_owned(), message: "no image".to_owned() };
    world.launch_errors = std::iter::repeat_with(error).take(1000).collect();
    world.add_pods("web", 1, "1");
    world.run(3600);
    let launches = world.count(" launch ");
    assert!((10..=18).contains(&launches), "{launches}: {:#?}", world.log);
    let only =
        "pool general: not ready: its condition NodeClassReady is False: node class default is not ready: no image";
    assert_eq!(reasons(&world), BTreeSet::from([only]), "{:#?}", world.log);
    assert_eq!(ready(&world, "NodeClassReady").0, ConditionStatus::False);
    world.launch_errors.clear();
    world.run(400);
    assert_eq!(world.unbound(), 0, "{:#?}", world.log);
    assert_eq!(ready(&world, "NodeClassReady").0, ConditionStatus::True);
    // What was learned of it then is over.
    world.launch_errors.push(error());
    world.add_pods("more", 8, "900m");
    world.run(100);
    assert_eq!(world.unbound(), 0, "{:#?}", world.log);
}

#[test]
fn why_a_catalog_cannot_be_had_is_said_of_pool_and_pods() {
    for (kind, soon) in [(ProviderErrorKind::Unauthorized, true), (ProviderErrorKind::Unavailable, false)] {
        let mut world = World::new(EngineOptions::default());
        world.catalog_error = Some(kind);
        world.put_pool(NodePool::named("general"));
        world.add_pods("web", 1, "1");
        world.run(20);
        let why = format!("test: catalog: no such key ({kind:?})");
        let is_said = |world: &World| ready(world, "NodeClassReady") == (ConditionStatus::False, why.clone());
        assert_eq!(is_said(&world), soon, "{:#?}", world.log);
        world.run(180);
        assert!(is_said(&world), "{:#?}", world.log);
        assert_eq!(ready(&world, "Ready").0, ConditionStatus::False);
        assert!(reasons(&world).iter().all(|reason| reason.ends_with(&why)), "{:#?}", world.log);
        world.catalog_error = None;
        world.run(150);
        assert_eq!((world.unbound(), ready(&world, "Ready").0), (0, ConditionStatus::True), "{:#?}", world.log);
    }
}

#[test]
fn a_catalog_that_is_known_serves_while_the_provider_fails() {
    let mut world = World::with_pool(EngineOptions::default());
    world.run(10);
    world.catalog_error = Some(ProviderErrorKind::Unauthorized);
    world.run(3600);
    world.add_pods("web", 1, "1");
    world.run(60);
    assert_eq!((world.unbound(), ready(&world, "NodeClassReady").0), (0, ConditionStatus::True), "{:#?}", world.log);
}

#[test]
fn objects_that_are_no_cluster_are_told_of_once_and_counted() {
    let mut world = World::with_pool(EngineOptions::default());
    world.engine.observe(Event::Applied(Object::Node(Arc::default())), world.now);
    world.add_pods("web", 1, "1");
    world.run(60);
    let why = "note ClusterNotUnderstood No node is made or taken away: Node: metadata.name: must not be empty";
    assert_eq!((world.unbound(), world.count(why)), (1, 1), "{:#?}", world.log);
    assert!(world.engine.counters().total(Metric::SnapshotErrors) > 1);
    world.engine.observe(Event::Deleted(ObjectRef::Node(String::new())), world.now);
    world.run(60);
    assert_eq!((world.unbound(), world.count(why)), (0, 1), "{:#?}", world.log);
}
