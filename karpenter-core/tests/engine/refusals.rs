//! What becomes of claims and nodes that the API server does not take, and of machines that end before they are nodes.

use karpenter_core::{
    api::{ConditionStatus, ObjectKey},
    engine::Refusal,
    provider::ProviderEvent,
};

use crate::world::{World, still};

const WHY: &str = "metadata.labels: Invalid value: \"Hall 14\"";

fn refused(refusal: Refusal) -> World {
    let mut world = World::with_pool(still());
    world.machine_refusal = Some(refusal);
    world.never_joins = true;
    world.add_pods("web", 1, "900m");
    world
}

fn is_healthy(world: &World) -> ConditionStatus {
    let pool = world.pools.values().next().expect("a pool");
    let found = pool.status.conditions.iter().find(|condition| condition.r#type == "NodeRegistrationHealthy");
    found.expect("said").status
}

#[test]
fn a_claim_that_cannot_say_which_machine_it_has_is_given_up_and_the_machine_given_back() {
    let mut world = refused(Refusal::Invalid(WHY.to_owned()));
    world.run(30);
    let first = world.claims.keys().next().expect("a claim").clone();
    let machine = world.machines.keys().next().expect("a machine").clone();
    let told: Vec<&String> = world.log.iter().filter(|line| line.contains("FailedUpdate")).collect();
    assert_eq!(told.len(), 2, "of the claim and of its pool: {told:?}");
    assert!(told.iter().all(|line| line.contains(WHY)), "{told:?}");
    world.run(240);
    assert!(world.claims.contains_key(&first), "{:#?}", world.log);
    world.run(120);
    assert!(!world.claims.contains_key(&first) && !world.machines.contains_key(&machine), "{:#?}", world.log);
    assert!(world.count("note LaunchTimeout") == 1 && world.count(&format!("has: {WHY}")) == 1, "{:#?}", world.log);
    world.run(600);
    assert_eq!(is_healthy(&world), ConditionStatus::False, "{:#?}", world.log);
    // Somebody mends it.
    (world.machine_refusal, world.never_joins) = (None, false);
    world.run(900);
    assert_eq!((world.unbound(), world.claims.len(), world.machines.len()), (0, 1, 1), "{:#?}", world.log);
}

#[test]
fn no_machine_is_left_of_claims_that_are_refused() {
    let mut world = refused(Refusal::Invalid(WHY.to_owned()));
    world.run(3 * 3600);
    assert!((2..=12).contains(&world.bought), "{} machines: {:#?}", world.bought, world.log);
    world.remove_pod(&ObjectKey::new("default", "web-0"));
    world.run(600);
    assert_eq!((world.claims.len(), world.machines.len()), (0, 0), "{:#?}", world.log);
}

#[test]
fn a_claim_is_not_given_up_because_the_api_server_does_not_answer() {
    let mut world = refused(Refusal::Unavailable("timeout".to_owned()));
    world.run(480);
    (world.machine_refusal, world.never_joins) = (None, false);
    world.run(60);
    assert_eq!((world.bought, world.unbound()), (1, 0), "{:#?}", world.log);
    assert_eq!(world.count("FailedUpdate"), 0, "{:#?}", world.log);
}

#[test]
fn a_machine_whose_node_may_not_register_is_given_back() {
    let mut world = World::with_pool(still());
    world.node_refusal = Some(Refusal::Invalid(WHY.to_owned()));
    world.add_pods("web", 1, "900m");
    world.run(120);
    let first = world.claims.keys().next().expect("a claim").clone();
    assert!(!world.nodes.is_empty(), "it has joined");
    assert_eq!(world.count("note FailedUpdate"), 2, "of the node and of its claim: {:#?}", world.log);
    world.run(14 * 60);
    assert!(!world.claims.contains_key(&first), "{:#?}", world.log);
    assert_eq!(world.count(&format!("cannot register: {WHY}")), 1, "{:#?}", world.log);
    world.run(2 * 3600);
    assert!(world.bought <= 9, "{} machines", world.bought);
    assert_eq!(is_healthy(&world), ConditionStatus::False);
    // Somebody mends it.
    world.node_refusal = None;
    world.run(3600);
    assert_eq!((world.unbound(), world.claims.len(), world.machines.len()), (0, 1, 1), "{:#?}", world.log);
}

#[test]
fn a_machine_whose_node_may_not_register_for_a_short_while_stays() {
    let mut world = World::with_pool(still());
    world.node_refusal = Some(Refusal::Invalid(WHY.to_owned()));
    world.add_pods("web", 1, "900m");
    world.run(10 * 60);
    world.node_refusal = None;
    world.run(10 * 60);
    assert_eq!((world.bought, world.unbound()), (1, 0), "{:#?}", world.log);
}

#[test]
fn machines_that_end_before_they_join_are_not_bought_for_ever() {
    for tells in [true, false] {
        let mut world = World::with_pool(still());
        world.never_joins = true;
        world.add_pods("web", 1, "900m");
        for _ in 0..2 * 360 {
            world.run(10);
            let ended = std::mem::take(&mut world.machines).into_values().map(|machine| machine.instance.id);
            if tells {
                world.provider_events.extend(ended.map(|id| ProviderEvent::Terminated { id }));
            }
        }
        assert!(world.bought <= 20, "{} machines in two hours", world.bought);
        assert_eq!(is_healthy(&world), ConditionStatus::False);
    }
}

#[test]
fn a_machine_that_does_not_join_counts_once_however_often_its_deletion_is_refused() {
    for refusal in [Refusal::Unavailable("no answer".to_owned()), Refusal::Invalid(WHY.to_owned())] {
        // What breaks a rule is not asked for again so soon.
        let told = usize::from(matches!(refusal, Refusal::Invalid(_)));
        let mut world = World::with_pool(still());
        (world.never_joins, world.deletion_refusal) = (true, Some(refusal));
        world.add_pods("web", 1, "900m");
        world.run(16 * 60);
        assert!(world.count("DeleteClaim") + told > 1, "{:#?}", world.log);
        assert_eq!(is_healthy(&world), ConditionStatus::True, "one has failed");
        assert_eq!((world.count("note FailedDelete"), world.count("note FailedUpdate")), (told, 0), "{:#?}", world.log);
    }
}
