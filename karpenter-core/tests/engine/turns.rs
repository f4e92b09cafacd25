//! In which order pods leave, and what comes of those that find no room.

use karpenter_core::{
    InstanceType, Price, Quantity,
    api::{NodeClaim, NodePool, ObjectKey, Pod},
    engine::EngineOptions,
};
use serde_json::json;

use crate::world::World;

/// When a large and a small pod of a node were evicted for which a smaller one comes. The small pod goes beside another one. It
/// would fit on the replacement too, where the large one has to go.
fn evictions_of(large_priority: i32) -> [i64; 2] {
    let mut world = World::with_pool(EngineOptions::default());
    world.add_pods("large", 1, "1500m");
    let mut large = world.pods.values().next().expect("a pod").clone();
    large.spec.priority = Some(large_priority);
    world.put_pod(large);
    world.add_pods("a-small", 1, "600m");
    world.add_pods("fill", 6, "900m");
    world.run(45);
    world.add_pods("other", 1, "1300m");
    world.run(45);
    assert_eq!((world.unbound(), world.nodes.len()), (0, 2), "{:#?}", world.log);
    let gone: Vec<ObjectKey> = world.pods.keys().filter(|key| key.name.starts_with("fill")).cloned().collect();
    for key in &gone {
        world.remove_pod(key);
    }
    world.log.clear();
    world.run(120);
    assert_eq!(world.bought, 3, "{:#?}", world.log);
    ["large-0", "a-small-0"].map(|name| evicted_at(&world, name))
}

/// When a pod was told to leave.
fn evicted_at(world: &World, pod: &str) -> i64 {
    let line = world.log.iter().find(|line| line.contains("Evict {") && line.contains(pod));
    let second = line.and_then(|line| line.split(' ').next()?.parse().ok());
    second.unwrap_or_else(|| panic!("{pod} was not evicted: {:#?}", world.log))
}

/// Removes the pods whose names begin so.
fn remove_all(world: &mut World, prefix: &str) {
    let gone: Vec<ObjectKey> = world.pods.keys().filter(|key| key.name.starts_with(prefix)).cloned().collect();
    for key in &gone {
        world.remove_pod(key);
    }
}

/// A node with a large pod, which is changed so, and a small one goes. Only the node of another pod has room for the large one; the
/// small one would fit there too, but is to go to a tiny node that comes.
fn large_pod_goes_beside_another(change: impl Fn(&mut Pod)) -> World {
    let mut world = World::new(EngineOptions::default());
    let tiny = [("cpu", Quantity::from_units(1)), ("memory", Quantity::from_bytes(4 << 30))];
    let price = Price::per_hour(0.05).expect("a price");
    world.types.push(InstanceType::named("tiny", tiny).offering("on-demand", "zone-a", price));
    world.put_pool(NodePool::named("general"));
    world.add_pods("large", 1, "1300m");
    world.add_pods("a-small", 1, "600m");
    let mut large = world.pods.values().find(|pod| pod.metadata.name == "large-0").expect("it was added").clone();
    change(&mut large);
    world.put_pod(large);
    world.add_pods("fill", 6, "950m");
    world.run(45);
    world.add_pods("other", 1, "500m");
    world.add_pods("more", 1, "1500m");
    world.run(45);
    assert_eq!((world.unbound(), world.nodes.len()), (0, 2), "{:#?}", world.log);
    remove_all(&mut world, "fill");
    remove_all(&mut world, "more");
    world.log.clear();
    world
}

#[test]
fn pods_that_fit_only_where_they_are_meant_to_go_leave_first() {
    let mut world = large_pod_goes_beside_another(|_| ());
    world.run(600);
    assert!(evicted_at(&world, "large-0") < evicted_at(&world, "a-small-0"), "{:#?}", world.log);
    assert_eq!((world.bought, world.nodes.len(), world.unbound()), (3, 2, 0), "{:#?}", world.log);
}

#[test]
fn the_room_of_a_pod_that_comes_again_once_it_is_gone_is_kept_until_then() {
    let mut world = large_pod_goes_beside_another(|pod| controlled(pod, "StatefulSet", 10));
    world.spreads = true;
    world.run(600);
    assert!(evicted_at(&world, "large-0") + 11 <= evicted_at(&world, "a-small-0"), "{:#?}", world.log);
    assert_eq!((world.bought, world.nodes.len(), world.unbound()), (3, 2, 0), "{:#?}", world.log);
}

/// Has a pod a controller, whose pods end after so long. The next one comes only then, whatever the kind of the controller.
fn controlled(pod: &mut Pod, kind: &str, grace_seconds: u64) {
    let name = &pod.metadata.name;
    let owner = json!({"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": name, "controller": true});
    pod.metadata.owner_references.push(serde_json::from_value(owner).expect("an owner"));
    pod.spec.termination_grace_period_seconds = Some(grace_seconds);
}

#[test]
fn pods_that_move_in_vain_are_left_alone_for_longer_each_time() {
    // The small pod takes the room of the other ones before they come again.
    let mut world = large_pod_goes_beside_another(|pod| controlled(pod, "ReplicaSet", 10));
    let mut other = world.pods.values().find(|pod| pod.metadata.name == "other-0").expect("it was added").clone();
    controlled(&mut other, "ReplicaSet", 10);
    world.put_pod(other);
    world.spreads = true;
    let says_so = |claim: &NodeClaim| claim.status.conditions.iter().any(|c| c.reason == "MovedInVain");
    world.run_until(600, |world| world.claims.values().any(says_so));
    world.run(1800);
    let soon = world.count("is Underutilized");
    assert!((2..=4).contains(&soon), "{soon}: {:#?}", world.log);
    world.run(3600);
    let later = world.count("is Underutilized") - soon;
    assert!(later <= 2, "{later} after {soon}: {:#?}", world.log);
    assert_eq!(world.unbound(), 0, "{:#?}", world.log);
}

#[test]
fn pods_that_may_take_the_room_of_others_wait_where_nothing_is_bought_too() {
    let mut world = World::with_pool(EngineOptions::default());
    for [name, cpu, fill] in [["wide", "700m", "1300m"], ["narrow", "1400m", "600m"]] {
        world.add_pods(name, 1, cpu);
        world.add_pods(&format!("fill-{name}"), 1, fill);
        world.run(45);
    }
    world.add_pods("large", 1, "1200m");
    world.add_pods("a-small", 1, "600m");
    world.run(45);
    remove_all(&mut world, "fill");
    world.log.clear();
    world.run(120);
    assert!(evicted_at(&world, "large-0") < evicted_at(&world, "a-small-0"), "{:#?}", world.log);
    assert_eq!((world.bought, world.nodes.len(), world.unbound()), (3, 2, 0), "{:#?}", world.log);
}

#[test]
fn pods_that_need_the_replacement_leave_first() {
    let [large, small] = evictions_of(0);
    assert!(large < small, "{large} {small}");
}

#[test]
fn pods_that_leave_before_critical_ones_do_not_wait_for_them() {
    let ([first, _], [large, small]) = (evictions_of(0), evictions_of(2_000_000_000));
    assert!(small < large && small <= first + 2, "{first}: {large} {small}");
}
