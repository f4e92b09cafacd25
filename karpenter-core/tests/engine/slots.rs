//! Machines whose names are used again, as the slots of racks are.

use std::{collections::BTreeSet, time::Duration};

use karpenter_core::{
    api::{ObjectKey, Pod},
    engine::{Action, Event, ObjectRef},
    labels,
    provider::{Instance, ProviderId},
};

use crate::world::{Machine, World, still};

fn racks() -> World {
    let mut options = still();
    options.list_period = Duration::from_mins(10);
    let mut world = World::with_pool(options);
    world.reuses_ids = true;
    world
}

/// The machine that there is breaks down, and its slot is free again before anybody missed it: the next launch takes it.
fn break_down_before_the_next_launch(world: &mut World) {
    for _ in 0..60 {
        world.now = world.now + Duration::from_secs(1);
        for request in world.engine.tick(world.now) {
            let is_launch = matches!(request.action, Action::Launch(_));
            if is_launch {
                world.machines.clear();
            }
            world.carry_out(request);
            if is_launch {
                return;
            }
        }
    }
    panic!("nothing is launched: {:#?}", world.log);
}

fn delete_claims(world: &mut World) {
    for mut claim in world.claims.clone().into_values() {
        claim.metadata.deletion_timestamp.get_or_insert(world.now);
        world.put_claim(claim);
    }
}

fn remove_pods(world: &mut World) {
    let keys: Vec<ObjectKey> = world.pods.keys().cloned().collect();
    for key in keys {
        world.remove_pod(&key);
    }
}

/// A slot whose node ends, with a pod on it that nobody may move, while its machine breaks down and the slot is used again; and the
/// names of its claim and node.
fn used_again_while_its_node_ends() -> (World, BTreeSet<String>) {
    let mut world = racks();
    world.add_pods("held", 1, "900m");
    world.run(60);
    let mut pod: Pod = world.pods.values().next().expect("a pod").clone();
    pod.metadata.annotations.insert(labels::DO_NOT_DISRUPT.to_owned(), "true".to_owned());
    world.put_pod(pod);
    delete_claims(&mut world);
    world.run(20);
    assert_eq!((world.claims.len(), world.nodes.len()), (1, 1), "{:#?}", world.log);
    let former = world.claims.keys().chain(world.nodes.keys()).cloned().collect();
    world.add_pods("web", 1, "900m");
    break_down_before_the_next_launch(&mut world);
    (world, former)
}

#[test]
fn nodes_of_slots_that_were_used_before_are_drained_and_their_machines_given_back() {
    let mut world = racks();
    world.add_pods("web", 8, "900m");
    world.run(60);
    let mut slots = BTreeSet::new();
    for round in 1..=4 {
        slots.extend(world.machines.keys().cloned());
        // Everything is drained and comes again elsewhere.
        delete_claims(&mut world);
        world.run(50);
        assert_eq!((world.unbound(), world.count(" Evict {")), (0, 8 * round), "{:#?}", world.log);
        assert_eq!((world.claims.len(), world.machines.len()), (1, 1), "{:#?}", world.log);
    }
    assert!(world.bought > slots.len(), "slots were used again: {slots:?}");
    remove_pods(&mut world);
    delete_claims(&mut world);
    world.run(50);
    let left = (world.claims.len(), world.nodes.len(), world.machines.len());
    assert_eq!(left, (0, 0, 0), "{:#?}", world.log);
}

#[test]
fn a_machine_without_a_claim_in_a_slot_that_was_used_before_is_terminated() {
    let mut world = racks();
    world.add_pods("web", 1, "900m");
    world.run(60);
    let (slot, machine) = world.machines.first_key_value().expect("a machine");
    let (slot, labels) = (slot.clone(), machine.instance.labels.clone());
    let leaked = Machine {
        instance: Instance::new(ProviderId::new(&slot), "nobody", labels),
        instance_type: machine.instance_type.clone(),
        launched: world.now + Duration::from_hours(9),
    };
    remove_pods(&mut world);
    delete_claims(&mut world);
    world.run_until(60, |world| world.machines.is_empty());
    world.machines.insert(slot, leaked);
    world.run(1500);
    assert_eq!((world.claims.len(), world.machines.len()), (0, 0), "{:#?}", world.log);
}

#[test]
fn a_claim_whose_slot_has_another_machine_goes_and_that_machine_stays() {
    let mut world = racks();
    world.add_pods("web", 1, "900m");
    world.run(60);
    let (first, node) = (world.claims.keys().next().expect("a claim").clone(), world.nodes.keys().next().cloned());
    world.add_pods("more", 8, "900m");
    break_down_before_the_next_launch(&mut world);
    world.run(90);
    assert!(!world.claims.contains_key(&first), "{:#?}", world.log);
    assert!(!world.nodes.contains_key(&node.expect("a node")), "{:#?}", world.log);
    assert_eq!((world.unbound(), world.count("Terminate(")), (0, 0), "{:#?}", world.log);
    assert_eq!(world.machines.len(), world.nodes.len(), "{:#?}", world.log);
    assert!(world.machines.contains_key("slot-0"), "{:#?}", world.log);
}

#[test]
fn a_node_that_ends_when_its_slot_is_used_again_takes_nothing_of_the_new_machine() {
    for crash_after in [None, Some(1), Some(5), Some(15), Some(40)] {
        let (mut world, former) = used_again_while_its_node_ends();
        if let Some(seconds) = crash_after {
            world.run(seconds);
            world.crash();
        }
        world.run(150);
        let left = world.claims.keys().chain(world.nodes.keys()).any(|name| former.contains(name));
        assert!(!left, "{crash_after:?}: {:#?}", world.log);
        assert_eq!((world.unbound(), world.count("Terminate(")), (0, 0), "{crash_after:?}: {:#?}", world.log);
        assert!(world.machines.contains_key("slot-0"), "{crash_after:?}: {:#?}", world.log);
        assert!(world.nodes.values().all(|node| node.metadata.deletion_timestamp.is_none()), "{:#?}", world.log);
    }
}

/// Somebody took the claim of a node away by force, and the node is left with our finalizer.
#[test]
fn a_node_without_a_claim_does_not_end_the_claim_that_has_its_slot_now() {
    let mut world = racks();
    world.add_pods("web", 1, "900m");
    world.run(60);
    let (claim, node) =
        (world.claims.pop_first().expect("a claim").0, world.nodes.keys().next().expect("a node").clone());
    world.engine.observe(Event::Deleted(ObjectRef::NodeClaim(claim)), world.now);
    world.add_pods("more", 8, "900m");
    break_down_before_the_next_launch(&mut world);
    world.run(60);
    let mut left = world.nodes[&node].clone();
    left.metadata.deletion_timestamp = Some(world.now);
    world.put_node(left);
    world.run(60);
    assert!(!world.nodes.contains_key(&node), "{:#?}", world.log);
    assert_eq!((world.unbound(), world.count("Terminate("), world.count("DeleteClaim")), (0, 0, 0), "{:#?}", world.log);
}

/// A provider with one name for all its machines, which is against the rules.
#[test]
fn machines_of_one_name_at_the_same_time_are_not_bought_without_end() {
    let mut world = racks();
    world.types.retain(|own| own.name == "small");
    world.add_pods("web", 2, "1500m");
    for _ in 0..3600 {
        world.now = world.now + Duration::from_secs(1);
        for request in world.engine.tick(world.now) {
            if matches!(request.action, Action::Launch(_)) {
                world.machines.clear();
            }
            world.carry_out(request);
        }
    }
    assert!(world.count(" launch ") <= 30, "{:#?}", world.log);
}
