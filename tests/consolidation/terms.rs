//! What the nodes that come may become.

use karpenter::{
    InstanceType, Offering, Price, Quantity,
    disrupt::{Command, Disruptor, SpotToSpot},
    labels,
};

use crate::world::{NOW, World, ZONE};

fn price(cents: u32) -> Price {
    Price::per_hour(f64::from(cents) / 100.0).expect("not below zero")
}

/// A machine that is sold in these ways, for so many cents.
fn machine(name: &str, cpu: i64, offers: &[(&str, &str, u32)]) -> InstanceType {
    let mut out =
        InstanceType::named(name, [("cpu", Quantity::from_units(cpu)), ("memory", Quantity::from_bytes(cpu << 32))]);
    out.offerings = offers.iter().map(|(kind, zone, cents)| Offering::new(kind, zone, price(*cents))).collect();
    out
}

fn types(command: &Command) -> String {
    command.replacements.iter().map(|claim| claim.instance_types.join(" ")).collect::<Vec<_>>().join(", ")
}

#[test]
fn replacements_name_no_type_that_saves_nothing() {
    const OD: &str = labels::ON_DEMAND;
    let mut world = World::of([
        machine("large", 8, &[(OD, ZONE, 80)]),
        machine("same", 8, &[(OD, ZONE, 80)]),
        machine("mean", 4, &[(OD, ZONE, 40)]),
        machine("small", 2, &[(OD, ZONE, 20)]),
        machine("elsewhere", 2, &[(OD, ZONE, 19), (OD, "zone-b", 81)]),
        machine("somewhere", 2, &[(OD, ZONE, 21), (OD, "zone-b", 79)]),
        machine("huge", 16, &[(OD, ZONE, 160)]),
    ]);
    world.node("a", "large", &["1"]);
    let command = world.commands().remove(0);
    assert_eq!(types(&command), "small somewhere mean");
    assert_eq!(command.replacements[0].cheapest_price, price(20));
    assert!((command.savings_per_hour - 0.6).abs() < 1e-9, "{command:?}");
}

#[test]
fn a_replacement_is_bound_to_zones_if_it_is_much_cheaper_there() {
    const OD: &str = labels::ON_DEMAND;
    let mut world = World::of([
        machine("large", 8, &[(OD, ZONE, 80)]),
        machine("mean", 4, &[(OD, ZONE, 60)]),
        machine("small", 2, &[(OD, ZONE, 20), (OD, "zone-b", 90), (OD, "zone-c", 30)]),
    ]);
    world.node("a", "large", &["1"]);
    let command = world.commands().remove(0);
    assert_eq!((types(&command), command.replacements[0].cheapest_price), ("small mean".to_owned(), price(20)));
    let zones = command.replacements[0].requirements.get(labels::ZONE).expect("it is bound");
    assert_eq!(zones.values().collect::<Vec<_>>(), [ZONE, "zone-c"]);
    assert!((command.savings_per_hour - 0.6).abs() < 1e-9, "{command:?}");
}

#[test]
fn what_many_nodes_may_cost_more_is_shared() {
    const OD: &str = labels::ON_DEMAND;
    // Three nodes for 120 cents become two for 90 at best: each may cost 15 cents more, and not twice that.
    let mut world = World::of([
        machine("six", 6, &[(OD, ZONE, 40)]),
        machine("eight", 8, &[(OD, ZONE, 45)]),
        machine("eight-ssd", 8, &[(OD, ZONE, 59)]),
        machine("eight-gpu", 8, &[(OD, ZONE, 61)]),
    ]);
    for name in ["a", "b", "c"] {
        world.node(name, "six", &["1"; 5]);
    }
    let command = world.commands().remove(0);
    assert_eq!(types(&command), "eight eight-ssd, eight eight-ssd");
}

#[test]
fn a_replacement_is_bound_to_the_capacity_type_that_saves() {
    let mut world = World::of([
        machine("large", 8, &[(labels::ON_DEMAND, ZONE, 80), (labels::SPOT, ZONE, 60)]),
        machine("small", 2, &[(labels::ON_DEMAND, ZONE, 30), (labels::SPOT, ZONE, 10)]),
        machine("safe", 2, &[(labels::ON_DEMAND, ZONE, 20)]),
    ]);
    world.node("a", "large", &["1"]);
    let command = world.commands().remove(0);
    assert_eq!(types(&command), "small large");
    let capacity_type = command.replacements[0].requirements.get(labels::CAPACITY_TYPE).expect("it is bound");
    assert_eq!(capacity_type.values().collect::<Vec<_>>(), [labels::SPOT]);
}

/// Types of spot machines for one pod, each a cent dearer than the one before, and a large one for a dollar.
fn spot_market(count: u32) -> Vec<InstanceType> {
    let small = (0..count).map(|n| machine(&format!("t{n:02}"), 2, &[(labels::SPOT, ZONE, 10 + n)]));
    let large = machine("large", 8, &[(labels::SPOT, ZONE, 100), (labels::ON_DEMAND, ZONE, 101)]);
    small.chain([large]).collect()
}

fn spot_world(count: u32, spot_to_spot: SpotToSpot, nodes: &[&str]) -> World {
    let mut world = World::of(spot_market(count));
    world.options.spot_to_spot = spot_to_spot;
    for name in nodes {
        world.node(name, "large", &["1"]);
    }
    world
}

#[test]
fn one_spot_node_becomes_another_where_there_is_a_choice() {
    let gated = SpotToSpot::Flexible { min_types: 15 };
    assert_eq!(SpotToSpot::default(), gated);
    for (option, count, expected) in [
        (SpotToSpot::Never, 30, None),
        (gated, 14, None),
        (gated, 15, Some(15)),
        (gated, 30, Some(15)),
        (SpotToSpot::Flexible { min_types: 3 }, 30, Some(3)),
        (SpotToSpot::Flexible { min_types: 0 }, 1, Some(1)),
        (SpotToSpot::Always, 1, Some(1)),
        (SpotToSpot::Always, 30, Some(30)),
    ] {
        let world = spot_world(count, option, &["a"]);
        let commands = world.commands();
        let found = commands.first().map(|command| command.replacements[0].instance_types.len());
        assert_eq!(found, expected, "{option:?} with {count} types");
        let (snapshot, catalogs) = (world.snapshot(), world.catalogs());
        let search = Disruptor::new(world.options.clone()).start(&snapshot, &catalogs, NOW.parse().expect("a time"));
        let outlook = search.outlook("a").expect("it is there");
        assert_eq!(outlook.goes_for().is_some(), expected.is_some(), "the outlook with {option:?} and {count} types");
    }
}

#[test]
fn a_node_that_something_keeps_has_no_choice_either() {
    for (count, expected) in [(14, false), (15, true)] {
        let mut world = spot_world(count, SpotToSpot::default(), &["a"]);
        let annotations = &mut world.objects.nodes[0].metadata.annotations;
        annotations.insert(labels::DO_NOT_DISRUPT.to_owned(), "true".to_owned());
        let (snapshot, catalogs) = (world.snapshot(), world.catalogs());
        let search = Disruptor::new(world.options.clone()).start(&snapshot, &catalogs, NOW.parse().expect("a time"));
        let outlook = search.outlook("a").expect("it is there");
        let alone = outlook.alone.as_ref().expect("it is for the engine to take away");
        let found = (alone.has_choice, alone.is_worth_it(), outlook.goes_for());
        assert_eq!(found, (expected, expected, None), "{count} types");
    }
}

#[test]
fn a_spot_node_that_was_replaced_stays() {
    for pick in 0..15 {
        let mut world = spot_world(40, SpotToSpot::default(), &["a"]);
        let command = world.commands().remove(0);
        world.replace(&command, pick);
        let node = world.objects.nodes[0].metadata.name.clone();
        world.objects.pods[0].spec.node_name = node;
        assert_eq!(world.commands(), [], "type {pick} of 40 was bought");
    }
}

#[test]
fn several_spot_nodes_become_fewer_with_any_choice() {
    for (option, expected) in [(SpotToSpot::Never, 0), (SpotToSpot::default(), 1), (SpotToSpot::Always, 1)] {
        let commands = spot_world(1, option, &["a", "b"]).commands();
        let made: usize = commands.iter().map(|command| command.replacements.len()).sum();
        // One node goes into the room of the other where no node may come.
        let gone: usize = commands.iter().map(|command| command.candidates.len()).sum();
        assert_eq!((made, gone), (expected, 1 + expected), "{option:?}");
    }
}

#[test]
fn fewer_spot_nodes_come_where_as_many_must_not() {
    let mut world = World::of([
        machine("small", 4, &[(labels::SPOT, ZONE, 10)]),
        machine("middle", 8, &[(labels::SPOT, ZONE, 30)]),
        machine("large", 16, &[(labels::SPOT, ZONE, 100)]),
    ]);
    for name in ["a", "b"] {
        world.node(name, "large", &["3"]);
    }
    // Two small nodes would cost least, but there is no choice of 15 types for them.
    let commands = world.commands();
    assert_eq!(commands.iter().map(types).collect::<Vec<_>>(), ["middle large"], "{commands:?}");
    assert_eq!(commands[0].candidates, ["a", "b"]);
    world.options.spot_to_spot = SpotToSpot::Always;
    assert_eq!(world.commands().iter().map(types).collect::<Vec<_>>(), ["small middle, small middle"]);
}

#[test]
fn a_spot_node_becomes_one_with_another_node_where_it_must_not_become_another_alone() {
    let mut world = World::of([
        machine("small", 4, &[(labels::SPOT, ZONE, 10)]),
        machine("middle", 8, &[(labels::SPOT, ZONE, 30)]),
        machine("large", 16, &[(labels::SPOT, ZONE, 100), (labels::ON_DEMAND, ZONE, 101)]),
    ]);
    for name in ["spot", "on-demand"] {
        world.node(name, "large", &["3"]);
    }
    world.objects.nodes[1].metadata.labels.insert(labels::CAPACITY_TYPE.to_owned(), labels::ON_DEMAND.to_owned());
    let commands = world.commands();
    assert_eq!(commands.iter().map(types).collect::<Vec<_>>(), ["middle large"], "{commands:?}");
    assert_eq!(commands[0].candidates, ["on-demand", "spot"]);
}

#[test]
fn what_comes_for_other_nodes_may_be_spot() {
    let mut world = spot_world(1, SpotToSpot::Never, &[]);
    let large = world.objects.types.last_mut().expect("a large type");
    large.offerings.swap(0, 1);
    world.node("a", "large", &["1"]);
    assert_eq!(types(&world.commands().remove(0)), "t00 large", "from on-demand to spot");
    world.node("b", "large", &["7", "1"]);
    world.node("c", "large", &["8"]);
    for labels in world.objects.nodes[1..].iter_mut().map(|node| &mut node.metadata.labels) {
        labels.insert(labels::CAPACITY_TYPE.to_owned(), labels::SPOT.to_owned());
    }
    assert_eq!(world.commands().len(), 1, "the other nodes are spot and stay");
}
