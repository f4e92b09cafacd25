//! Pools that have a fixed number of nodes.

use karpenter::{
    InstanceType, Offering, Price, Quantity, Requirement,
    api::{NodeSelectorRequirement, Operator},
    disrupt::{Command, Disruptor, Invalid, Method},
    labels,
};

use crate::{
    guards::node_budget,
    moves::machine,
    validity::{revalidate, validate},
    world::{NOW, RESERVATION, World, ZONE, condition, open_pool},
};

/// A static pool of four nodes with a pod each, of which three have drifted.
fn static_pool() -> World {
    let mut world = World::of([machine("old", 4, 20), machine("new", 4, 30), machine("huge", 64, 300)]);
    world.pool().spec.replicas = Some(4);
    for name in ["a", "b", "c", "d"] {
        world.node(name, "old", &["3"]);
    }
    for claim in &mut world.objects.claims[..3] {
        claim.status.conditions.push(condition("Drifted"));
    }
    let only_new = NodeSelectorRequirement::new(labels::INSTANCE_TYPE, Operator::NotIn, ["old"]);
    world.objects.pools[0] = world.pool().clone().require(only_new);
    world
}

fn sets(commands: &[Command]) -> Vec<String> {
    commands.iter().map(|command| command.candidates.join(" ")).collect()
}

#[test]
fn drifted_nodes_are_replaced_one_for_one() {
    let mut world = static_pool();
    let commands = world.commands();
    assert_eq!(sets(&commands), ["a b c"]);
    let command = &commands[0];
    assert_eq!((command.method, command.replacements.len()), (Method::StaticDrift, 3));
    assert_eq!((command.moved(), command.evictions), (0, 3));
    assert!(command.replacements.iter().all(|claim| *claim.instance_types == ["new", "huge"]));
    assert!((command.savings_per_hour + 0.3).abs() < 1e-9, "{command:?}");

    assert_eq!(validate(&world, command), Ok(()));
    world.replace(command, 0);
    assert_eq!(world.objects.claims.len(), 4);
    assert!((world.bill() - 1.1).abs() < 1e-9);
    assert_eq!(world.commands(), [], "none is left that has drifted");
}

#[test]
fn budgets_and_limits_say_how_many_go_at_once() {
    for (budget, limit, expected) in [
        ("100%", None, vec!["a b c"]),
        ("1", None, vec!["a", "b", "c"]),
        ("50%", None, vec!["a b", "c"]),
        ("0", None, vec![]),
        ("100%", Some(4), vec![]),
        ("100%", Some(5), vec!["a", "b", "c"]),
        ("100%", Some(6), vec!["a b", "c"]),
        ("1", Some(9), vec!["a", "b", "c"]),
    ] {
        let mut world = static_pool();
        world.pool().spec.disruption.budgets.push(node_budget(budget));
        if let Some(nodes) = limit {
            world.objects.pools[0] = world.pool().clone().limit("nodes", Quantity::from_units(nodes));
        }
        assert_eq!(sets(&world.commands()), expected, "{budget}, {limit:?}");
    }
}

/// What is done to a world.
type Obstacle = fn(&mut World);

#[test]
fn a_pool_that_is_not_steady_keeps_its_nodes() {
    let obstacles: [(&str, Obstacle, usize); 6] = [
        ("nothing", |_| {}, 1),
        ("the pool has more nodes than it should", |w| w.pool().spec.replicas = Some(3), 0),
        ("the pool has fewer nodes than it should", |w| w.pool().spec.replicas = Some(5), 1),
        ("the pool is not ready", |w| w.pool().status.conditions.push(not_ready()), 0),
        ("nothing is for sale", close_all, 0),
        ("the nodes have not drifted", |w| w.objects.claims.iter_mut().for_each(|c| c.status.conditions.clear()), 0),
    ];
    for (name, obstacle, count) in obstacles {
        let mut world = static_pool();
        obstacle(&mut world);
        assert_eq!(world.commands().len(), count, "{name}");
    }
}

fn not_ready() -> karpenter::api::Condition {
    let mut condition = condition("Ready");
    condition.status = karpenter::api::ConditionStatus::False;
    condition
}

fn close_all(world: &mut World) {
    for offering in world.objects.types.iter_mut().flat_map(|t| &mut t.offerings) {
        offering.available = false;
    }
}

#[test]
fn nodes_on_their_way_out_count_against_the_limit() {
    let mut world = static_pool();
    world.objects.pools[0] = world.pool().clone().limit("nodes", Quantity::from_units(5));
    world.pool().spec.replicas = Some(3);
    assert_eq!(world.commands(), [], "there are four nodes where three should be");
    world.objects.claims[3].metadata.deletion_timestamp = NOW.parse().ok();
    assert_eq!(sets(&world.commands()), ["a", "b", "c"]);
    world.objects.pools[0] = world.pool().clone().limit("nodes", Quantity::from_units(4));
    assert_eq!(world.commands(), [], "the machine is there until it is gone");
}

#[test]
fn pods_of_static_nodes_are_not_planned_for() {
    let mut world = static_pool();
    world.objects.pools.push(open_pool("other"));
    world.objects.types.push(machine("tiny", 1, 1));
    let commands = world.commands();
    // Neither are nodes made of the other pool, nor do the pods of the static one use up room.
    assert_eq!(sets(&commands), ["a b c"]);
    assert!(commands[0].existing.is_empty() && commands[0].replacements.iter().all(|c| c.node_pool == "general"));
}

#[test]
fn static_nodes_come_before_others_and_after_empty_ones() {
    let mut world = static_pool();
    world.objects.pools.push(open_pool("other"));
    world.objects.pools.swap(0, 1);
    world.node("e", "old", &["4"]);
    world.objects.claims[4].status.conditions.push(condition("Drifted"));
    world.node("f", "old", &[]);
    let methods: Vec<Method> = world.commands().iter().map(|command| command.method).collect();
    assert_eq!(methods[..3], [Method::Emptiness, Method::StaticDrift, Method::Drift]);
}

#[test]
fn what_is_left_of_a_command_may_go() {
    let mut world = static_pool();
    let command = world.commands().remove(0);
    world.objects.claims[1].status.conditions.clear();
    assert!(matches!(validate(&world, &command), Err(Invalid::NotDrifted { node }) if node == "b"));
    let still = revalidate(&world, &command).expect("two are right");
    assert_eq!((still.candidates.join(" "), still.replacements.len()), ("a c".to_owned(), 2));

    let mut limited = static_pool();
    limited.objects.pools[0] = limited.pool().clone().limit("nodes", Quantity::from_units(5));
    let error = validate(&limited, &command).expect_err("one more may be there");
    assert_eq!(error.to_string(), "static pool general can have 1 nodes more, and 3 would be made");
    assert_eq!(revalidate(&limited, &command).expect("one may go").candidates, ["a"]);

    let mut without = static_pool();
    without.objects.types[1].offerings[0].available = false;
    let error = validate(&without, &command).expect_err("one of the types is not for sale");
    assert_eq!(error.to_string(), "a node of pool general does not serve the pods as new");
}

#[test]
fn an_outlook_tells_what_comes_for_a_static_node() {
    let world = static_pool();
    let (snapshot, catalogs) = (world.snapshot(), world.catalogs());
    let search = Disruptor::default().start(&snapshot, &catalogs, NOW.parse().expect("a time"));
    let outlook = search.outlook("a").expect("it is there");
    assert_eq!(outlook.goes_for(), Some(Method::StaticDrift.reason()));
    let alone = outlook.alone.expect("it is for the engine to take away");
    assert_eq!((alone.replacements.len(), alone.existing.len(), alone.unplaced.len()), (1, 0, 0));
    assert_eq!(search.outlook("d").expect("it is there").goes_for(), None, "it has not drifted");
}

#[test]
fn a_static_node_does_not_use_up_a_reservation_that_its_pool_does_not_ask_for() {
    let reserved = |name: &str| -> InstanceType {
        let mut out = machine(name, 4, 90);
        let mut offering = Offering::new(labels::RESERVED, ZONE, Price::ZERO);
        offering.requirements.add(RESERVATION, Requirement::one_of(["r"]));
        offering.reservation_capacity = Some(1);
        out.offerings.push(offering);
        out
    };
    let mut world = static_pool();
    world.objects.types.push(reserved("paid"));
    let command = world.commands().remove(0);
    assert_eq!(command.replacements[0].cheapest_price, Price::per_hour(0.3).expect("a price"));
    let only_reserved = NodeSelectorRequirement::new(labels::CAPACITY_TYPE, Operator::In, [labels::RESERVED]);
    world.objects.pools[0] = world.pool().clone().require(only_reserved);
    let command = world.commands().remove(0);
    assert_eq!((*command.replacements[0].instance_types).join(" "), "paid");
    assert_eq!(command.replacements[0].cheapest_price, Price::ZERO);
}
