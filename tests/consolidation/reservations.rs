//! Reservations that become free, and those that end.

use karpenter::{
    InstanceType, Offering, Price, Requirement,
    api::{NodeSelectorRequirement, Operator},
    disrupt::{Disruptor, Drift, Method, ProviderDrift},
    labels,
};

use crate::{
    moves::machine,
    validity::validate,
    world::{NOW, RESERVATION, World, ZONE, condition},
};

fn price(cents: u32) -> Price {
    Price::per_hour(f64::from(cents) / 100.0).expect("not below zero")
}

/// A type of which some machines are paid for already.
fn reserved(left: u32) -> InstanceType {
    let mut out = machine("paid", 4, 40);
    let mut offering = Offering::new(labels::RESERVED, ZONE, price(0));
    offering.requirements.add(RESERVATION, Requirement::one_of(["r"]));
    offering.reservation_capacity = Some(left);
    out.offerings.push(offering);
    out
}

fn spot() -> InstanceType {
    let mut out = machine("spot", 4, 12);
    out.offerings = vec![Offering::new(labels::SPOT, ZONE, price(12))];
    out
}

fn set_left(world: &mut World, left: u32) {
    for offering in world.objects.types.iter_mut().flat_map(|t| &mut t.offerings) {
        offering.reservation_capacity = offering.reservation_capacity.map(|_| left);
    }
}

#[test]
fn nodes_go_for_a_reservation_that_has_become_free() {
    for (source, cents) in [("paid", 40), ("spot", 12)] {
        let mut world = World::of([reserved(0), spot()]);
        if source == "paid" {
            world.objects.types.pop();
        }
        world.node("a", source, &["3"]);
        assert_eq!(world.commands(), [], "nothing is left of the reservation");
        set_left(&mut world, 1);
        let command = world.commands().remove(0);
        assert_eq!((command.method, command.replacements.len()), (Method::Consolidation, 1));
        let capacity_type = command.replacements[0].requirements.get(labels::CAPACITY_TYPE).expect("it is bound");
        assert_eq!(capacity_type.values().collect::<Vec<_>>(), [labels::RESERVED], "{source}");
        assert!((command.savings_per_hour - f64::from(cents) / 100.0).abs() < 1e-9, "{command:?}");
        assert_eq!(validate(&world, &command), Ok(()));

        let mut taken = world.clone();
        set_left(&mut taken, 0);
        assert!(validate(&taken, &command).is_err(), "somebody else has taken the machine");
        world.carry_out(&command);
        assert_eq!((world.bill(), world.commands()), (0.0, Vec::new()));
    }
}

#[test]
fn no_more_nodes_go_than_a_reservation_has_left() {
    let mut world = World::of([reserved(2)]);
    for name in ["a", "b", "c"] {
        world.node(name, "paid", &["3"]);
    }
    let commands = world.commands();
    for command in &commands {
        world.carry_out(command);
    }
    assert!((world.bill() - 0.4).abs() < 1e-9, "{commands:?}");
    assert_eq!(world.commands(), []);
}

#[test]
fn types_without_a_reservation_count_for_the_min_values_of_its_claim() {
    let mut world = World::of([reserved(1), machine("other", 4, 30)]);
    let requirements = &mut world.objects.pools[0].spec.template.spec.requirements;
    let mut types = NodeSelectorRequirement::new(labels::INSTANCE_TYPE, Operator::Exists, Vec::<String>::new());
    types.min_values = Some(2);
    requirements.push(types);
    world.node("a", "paid", &["3"]);
    let command = world.commands().remove(0);
    assert_eq!(*command.replacements[0].instance_types, ["paid", "other"], "{command:?}");
    assert_eq!(command.replacements[0].cheapest_price, price(0));
    assert_eq!(validate(&world, &command), Ok(()));
    world.carry_out(&command);
    assert_eq!((world.bill(), world.commands()), (0.0, Vec::new()));
}

/// A node of a reservation that its type has no more.
fn ended() -> World {
    let mut world = World::of([reserved(1), machine("cheap", 4, 10)]);
    world.node("a", "paid", &["3"]);
    for labels in [&mut world.objects.nodes[0].metadata.labels, &mut world.objects.claims[0].metadata.labels] {
        labels.insert(labels::CAPACITY_TYPE.to_owned(), labels::RESERVED.to_owned());
        labels.insert(RESERVATION.to_owned(), "r".to_owned());
    }
    world.objects.types[0].offerings.pop();
    world
}

#[test]
fn a_node_whose_reservation_has_ended_is_left_to_its_provider() {
    let mut world = ended();
    let drift = |world: &World, provider| {
        let catalogs = world.catalogs();
        let claim = &world.objects.claims[0];
        Drift::of_claim(
            claim,
            &world.objects.pools[0],
            catalogs.get("general").map(AsRef::as_ref),
            provider,
            NOW.parse().expect("a time"),
        )
    };
    world.objects.claims[0].metadata.creation_timestamp = "2025-12-31T00:00:00Z".parse().ok();
    assert_eq!(drift(&world, ProviderDrift::Answered(None)), None, "the machine may stay as one on demand");
    let said = drift(&world, ProviderDrift::Answered(Some("CapacityReservationDrift")));
    assert_eq!(said, Some(Drift::Provider("CapacityReservationDrift".to_owned())));
    assert_eq!(world.commands(), [], "nobody knows what it costs");

    // The provider says that the machine is one on demand now, or that it must go.
    let mut on_demand = world.clone();
    for labels in [&mut on_demand.objects.nodes[0].metadata.labels, &mut on_demand.objects.claims[0].metadata.labels] {
        labels.insert(labels::CAPACITY_TYPE.to_owned(), labels::ON_DEMAND.to_owned());
        labels.remove(RESERVATION);
    }
    let command = on_demand.commands().remove(0);
    assert_eq!((command.method, *command.replacements[0].instance_types == ["cheap"]), (Method::Consolidation, true));
    world.objects.claims[0].status.conditions.push(condition("Drifted"));
    assert_eq!(world.commands()[0].method, Method::Drift);
}

#[test]
fn an_outlook_tells_of_a_reservation_that_has_become_free() {
    let mut world = World::of([reserved(1)]);
    world.node("a", "paid", &["3"]);
    let (snapshot, catalogs) = (world.snapshot(), world.catalogs());
    let search = Disruptor::default().start(&snapshot, &catalogs, NOW.parse().expect("a time"));
    let alone = search.outlook("a").and_then(|outlook| outlook.alone).expect("it is for the engine to take away");
    assert_eq!(alone.replacements[0].cheapest_price, price(0));
    assert!(alone.is_worth_it());
}
