//! Overlays change what is planned and bought, at once, and say whether they count.

use karpenter_core::{
    Quantity,
    api::{NodeOverlay, Pod, Workload},
    engine::{EngineOptions, Event, ObjectRef},
};
use serde_json::{Value, json};

use crate::world::World;

const FUSE: &str = "example.com/fuse";

fn overlay(name: &str, instance_type: &str, mut spec: Value) -> NodeOverlay {
    spec["requirements"] =
        json!([{"key": "node.kubernetes.io/instance-type", "operator": "In", "values": [instance_type]}]);
    serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec})).expect("an overlay")
}

/// The status of a condition, its reason and its message.
fn condition(world: &World, overlay: &str, of_type: &str) -> String {
    let conditions = &world.overlays[overlay].status.conditions;
    let found = conditions.iter().find(|condition| condition.r#type == of_type).expect(of_type);
    format!("{:?} {} {}", found.status, found.reason, found.message)
}

fn add_pod_with_fuse(world: &mut World, name: &str) {
    let request = Pod::named(name).cpu("500m").memory("1Gi").request(FUSE, "1");
    let workload: Workload = request.into();
    let snapshot = karpenter_core::Snapshot::builder().pods(workload).build().expect("a pod");
    let mut pod = snapshot.pods()[0].as_ref().clone();
    pod.metadata.uid.clone_from(&pod.metadata.name);
    world.put_pod(pod);
}

fn types_bought(world: &World) -> Vec<&str> {
    world.machines.values().map(|machine| machine.instance_type.name.as_str()).collect()
}

#[test]
fn the_cheapest_by_an_overlay_is_bought_though_the_provider_takes_it_to_be_dear() {
    for (spec, bought) in
        [(json!({}), "small"), (json!({"price": "0.01"}), "large"), (json!({"priceAdjustment": "-99%"}), "large")]
    {
        let mut world = World::with_pool(EngineOptions::default());
        world.put_overlay(overlay("discount", "large", spec));
        world.add_pods("web", 1, "1");
        world.run_until(10, |world| world.bought == 1);
        assert_eq!(types_bought(&world), [bought]);
        assert_eq!(condition(&world, "discount", "Ready"), "True Ready ");
    }
}

#[test]
fn the_cheapest_by_an_overlay_is_bought_though_the_provider_takes_all_to_cost_the_same() {
    let mut world = World::with_pool(EngineOptions::default());
    world.types[1].offerings[0].price = world.types[0].offerings[0].price;
    world.put_overlay(overlay("discount", "large", json!({"priceAdjustment": "-1%"})));
    world.add_pods("web", 1, "1");
    world.run_until(10, |world| world.bought == 1);
    assert_eq!(types_bought(&world), ["large"]);
}

#[test]
fn dearer_choices_are_still_there_if_the_best_is_sold_out() {
    let mut world = World::with_pool(EngineOptions::default());
    world.put_overlay(overlay("discount", "large", json!({"price": "0.01"})));
    world.exhausted.insert(world.types[1].offerings[0].key("large"));
    world.add_pods("web", 1, "1");
    world.run_until(20, |world| world.bought == 1);
    assert_eq!(types_bought(&world), ["small"]);
}

#[test]
fn pods_may_ask_for_what_only_an_overlay_promises() {
    let mut world = World::with_pool(EngineOptions::default());
    add_pod_with_fuse(&mut world, "first");
    world.run(60);
    assert_eq!((world.claims.len(), world.count("FailedScheduling")), (0, 1), "nothing has fuses");

    world.put_overlay(overlay("fuses", "large", json!({"capacity": {FUSE: "2"}})));
    world.settle();
    assert_eq!(types_bought(&world), ["large"], "at once");
    let claim = world.claims.values().next().expect("a claim").clone();
    let units = |quantity: Option<Quantity>| quantity.map(Quantity::units_floor);
    assert_eq!(units(claim.spec.resources.requests.get(FUSE)), Some(1));
    assert_eq!(units(claim.status.allocatable.get(FUSE)), Some(2));

    add_pod_with_fuse(&mut world, "second");
    world.run(40);
    assert_eq!(world.claims.len(), 1, "the second finds room on the first node");
    let name = claim.name();
    let waits = |world: &World| {
        let all = &world.claims[name].status.conditions;
        all.iter().find(|one| one.r#type == "Initialized").map(|one| one.reason.clone())
    };
    assert_eq!(waits(&world).as_deref(), Some("ResourceNotRegistered"), "no device plugin has spoken");

    let mut node = world.nodes.values().next().expect("a node").clone();
    node.status.capacity.insert(FUSE.into(), Quantity::from_units(2));
    node.status.allocatable.insert(FUSE.into(), Quantity::from_units(2));
    world.put_node(node);
    world.run(5);
    assert_eq!((waits(&world).as_deref(), world.unbound()), (Some("Initialized"), 0));
}

#[test]
fn nodes_that_have_less_do_not_outweigh_the_overlay() {
    let mut world = World::with_pool(EngineOptions::default());
    world.types.retain(|own| own.name == "large");
    world.types[0].capacity.insert(FUSE.into(), Quantity::from_units(1));
    add_pod_with_fuse(&mut world, "first");
    world.run_until(60, |world| world.unbound() == 0);
    world.run(60);
    world.put_overlay(overlay("fuses", "large", json!({"capacity": {FUSE: "3"}})));
    (0..3).for_each(|index| add_pod_with_fuse(&mut world, &format!("further-{index}")));
    world.run(20);
    assert_eq!(world.bought, 2, "one node for all three");
}

#[test]
fn an_overlay_that_does_not_count_says_why_until_it_does() {
    let mut world = World::with_pool(EngineOptions::default());
    world.put_overlay(overlay("a", "large", json!({"price": "0.5"})));
    world.put_overlay(overlay("b", "large", json!({"price": "0.5"})));
    world.put_overlay(overlay("c", "large", json!({"price": "cheap"})));
    world.run(2);
    let why = "NodeOverlay b of the same weight sets the price of on-demand large in zone-a in NodePool general too";
    assert_eq!(condition(&world, "a", "ValidationSucceeded"), format!("False Conflict {why}"));
    assert_eq!(condition(&world, "a", "Ready"), "False UnhealthyDependents ValidationSucceeded is False");
    assert_eq!(condition(&world, "b", "ValidationSucceeded"), "True ValidationSucceeded ");
    let why = "spec.price: \"cheap\" is not a number such as 0.05";
    assert_eq!(condition(&world, "c", "ValidationSucceeded"), format!("False RuntimeValidation {why}"));

    world.overlays.remove("b");
    world.engine.observe(Event::Deleted(ObjectRef::NodeOverlay("b".to_owned())), world.now);
    world.run(1);
    assert_eq!(condition(&world, "a", "Ready"), "True Ready ");
    let writes = world.count("update overlay");
    world.run(300);
    assert_eq!(world.count("update overlay"), writes, "what is written is not written again");
}
