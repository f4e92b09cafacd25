//! Which nodes go, and what comes in their place.

use std::time::Duration;

use karpenter::{
    InstanceType, Offering, Plan, Planner, Price, Quantity, Requirement, Timestamp,
    api::{ConditionStatus, DisruptionReason, NillableDuration, NodeSelectorRequirement, Operator, Pod, Workload},
    disrupt::{Command, Disruptor, Method, NodeOutlook},
    fake::check,
    labels,
    schedule::StopFlag,
};

use crate::{
    guards::{node_budget, pod_budget},
    world::{NOW, RESERVATION, World, ZONE, condition, on_threads, open_pool, unbind},
};

pub(crate) fn machine(name: &str, cpu: i64, cents: u32) -> InstanceType {
    let capacity = [("cpu", Quantity::from_units(cpu)), ("memory", Quantity::from_bytes(cpu << 32))];
    InstanceType::named(name, capacity).offering("on-demand", ZONE, price(cents))
}

fn price(cents: u32) -> Price {
    Price::per_hour(f64::from(cents) / 100.0).expect("not below zero")
}

/// Carries out all commands, holds each against what it said, and tells them: how each was found, what goes, and how many
/// nodes come.
fn carried_out(world: &mut World) -> Vec<(Method, String, usize)> {
    let commands = world.commands();
    for command in &commands {
        hold(world, command);
    }
    let tell = |c: &Command| (c.method, c.candidates.join(" "), c.replacements.len());
    commands.iter().map(tell).collect()
}

fn hold(world: &mut World, command: &Command) {
    let plan = Plan::from_parts(command.replacements.clone(), command.existing.clone(), [].into());
    let without = world.without(&command.candidates);
    assert_eq!(check(&without.snapshot(), &without.catalogs(), &plan), []);
    let before = world.bill();
    world.carry_out(command);
    assert!((before - world.bill() - command.savings_per_hour).abs() < 1e-6, "{command:?}");
}

#[test]
fn an_empty_node_is_deleted() {
    let mut world = World::of([machine("t", 4, 20)]);
    world.node("full", "t", &["4"]);
    world.node("empty", "t", &[]);
    assert_eq!(carried_out(&mut world), [(Method::Emptiness, "empty".to_owned(), 0)]);
    assert_eq!(world.commands(), []);
}

#[test]
fn a_search_that_is_stopped_finds_the_best_so_far() {
    let mut world = World::of([machine("large", 8, 40), machine("small", 2, 8)]);
    for node in 0..12 {
        world.node(&format!("n{node:02}"), "large", &["1", "1500m"]);
    }
    let most = world.commands()[0].savings_per_hour;
    let mut found = Vec::new();
    for looks in (0..).step_by(97) {
        let stop = StopFlag::after_looks(looks);
        let commands = on_threads(1, || world.commands_until(&stop));
        if !stop.is_stopped() {
            break;
        }
        if let Some(first) = commands.first() {
            hold(&mut world.clone(), first);
            assert!(first.savings_per_hour < most + 1e-6, "{first:?} saves more than {most}");
        }
        found.push(commands.len());
    }
    assert_eq!(found[0], 0, "there was no time");
    assert!(found[found.len() / 2..].iter().all(|&count| count == 1), "{found:?}");
}

#[test]
fn pods_fill_the_room_that_there_is() {
    let mut world = World::of([machine("t", 8, 40)]);
    world.node("a", "t", &["2", "2"]);
    world.node("b", "t", &["2"]);
    world.node("c", "t", &["2"]);
    assert_eq!(carried_out(&mut world), [(Method::Consolidation, "b c".to_owned(), 0)]);
    assert_eq!(world.pods_on("a").len(), 4);
    assert_eq!(world.commands(), []);
}

/// A node of a type that was sold in another zone once, and so has no price.
fn unpriced(world: &mut World, name: &str, cpu: &[&str]) {
    world.node(name, "t", cpu);
    let node = world.objects.nodes.last_mut().expect("a node");
    node.metadata.labels.insert(labels::ZONE.to_owned(), "zone-z".to_owned());
    let claim = world.objects.claims.last_mut().expect("a claim");
    claim.metadata.labels.insert(labels::ZONE.to_owned(), "zone-z".to_owned());
}

#[test]
fn a_node_of_which_nobody_knows_the_price_goes_where_there_is_room() {
    for (cpu, goes) in [("2", true), ("5", false)] {
        let mut world = World::of([machine("t", 8, 40)]);
        world.node("a", "t", &["2", "2"]);
        let annotations = &mut world.objects.nodes[0].metadata.annotations;
        annotations.insert(labels::DO_NOT_DISRUPT.to_owned(), "true".to_owned());
        unpriced(&mut world, "b", &[cpu]);
        let (snapshot, catalogs, now) = (world.snapshot(), world.catalogs(), NOW.parse().expect("a time"));
        let disruptor = Disruptor::new(world.options.clone());
        let outlook = disruptor.start(&snapshot, &catalogs, now).outlook("b").expect("it is there");
        assert_eq!(outlook.goes_for().is_some(), goes, "{outlook:?}");
        let commands = world.commands();
        let gone: Vec<_> = commands.iter().map(|c| (c.candidates.join(" "), c.replacements.len())).collect();
        assert_eq!(gone, Vec::from_iter(goes.then(|| ("b".to_owned(), 0))));
        for command in &commands {
            assert_eq!(disruptor.validate(command, &snapshot, &catalogs, now), Ok(()));
        }
    }
}

#[test]
fn pods_that_move_to_save_money_disturb_no_node_that_was_disturbed_lately() {
    let with_drifted = |drifted: bool, minutes_ago: u64| {
        let mut world = World::of([machine("t", 8, 40)]);
        world.pool().spec.disruption.consolidate_after = NillableDuration::from_secs(3600);
        world.node("a", "t", &["2", "2"]);
        world.node("b", "t", &["2"]);
        let now: Timestamp = NOW.parse().expect("a time");
        world.objects.claims[0].status.conditions.retain(|condition| condition.r#type != "Consolidatable");
        world.objects.claims[0].status.last_pod_event_time = Some(now - Duration::from_secs(minutes_ago * 60));
        if drifted {
            world.objects.claims[1].status.conditions.push(condition("Drifted"));
        }
        let (snapshot, catalogs) = (world.snapshot(), world.catalogs());
        let outlook = Disruptor::default().start(&snapshot, &catalogs, now).outlook("b").expect("it is there");
        let commands = carried_out(&mut world);
        assert_eq!(outlook.goes_for().is_some(), !commands.is_empty(), "{outlook:?}");
        commands
    };
    assert_eq!(with_drifted(false, 5), []);
    assert_eq!(with_drifted(false, 61), [(Method::Consolidation, "b".to_owned(), 0)]);
    assert_eq!(with_drifted(true, 5), [(Method::Drift, "b".to_owned(), 0)]);
}

#[test]
fn a_large_node_becomes_a_small_one() {
    let mut world = World::of([machine("large", 8, 40), machine("small", 2, 10)]);
    world.node("a", "large", &["1", "1"]);
    assert_eq!(carried_out(&mut world), [(Method::Consolidation, "a".to_owned(), 1)]);
    assert_eq!((world.bill(), world.commands()), (0.1, Vec::new()));
}

#[test]
fn three_nodes_become_two_of_another_size_where_nothing_less_helps() {
    let mut world = World::of([machine("six", 6, 40), machine("eight", 8, 45)]);
    let nodes = ["a", "b", "c"];
    for name in nodes {
        world.node(name, "six", &["1"; 5]);
    }

    // The planner finds nothing cheaper for the pods of one node, nor for those of two.
    let singles = nodes.iter().map(|name| vec![(*name).to_owned()]);
    let pairs = [["a", "b"], ["a", "c"], ["b", "c"]].map(|pair| pair.map(str::to_owned).to_vec());
    for gone in singles.chain(pairs) {
        let without = world.without(&gone);
        let plan = Planner::new(world.options.planner.clone()).plan(&without.snapshot(), &without.catalogs());
        assert!(plan.unplaced().is_empty());
        let saved = world.bill() - without.bill() - plan.hourly_cost().dollars_per_hour();
        assert!(saved < 1e-9, "without {gone:?} {saved} is saved");
    }

    assert_eq!(carried_out(&mut world), [(Method::Consolidation, "a b c".to_owned(), 2)]);
    assert!((world.bill() - 0.9).abs() < 1e-9);
    assert_eq!(world.commands(), []);
}

#[test]
fn nodes_go_together_though_a_budget_lets_their_pods_go_one_by_one_only() {
    for (max_unavailable, gone) in [(1, vec![(Method::Consolidation, "a b c".to_owned(), 2)]), (0, Vec::new())] {
        let mut world = World::of([machine("six", 6, 40), machine("eight", 8, 45)]);
        for name in ["a", "b", "c"] {
            world.node(name, "six", &["1"; 5]);
        }
        world.budgets.push(pod_budget(max_unavailable));
        assert_eq!(carried_out(&mut world), gone);
    }
}

#[test]
fn pods_that_ask_for_much_of_one_resource_meet_room_with_much_of_it() {
    let mut world = World::of([machine("t", 8, 40)]);
    let pods = |name: &str, cpu: &str, memory: &str, replicas| {
        let pods = Workload::from(Pod::named(name).cpu(cpu).memory(memory).replicas(replicas)).into_pods();
        pods.expect("valid quantities")
    };
    // Two cores and 16 GiB are left of `a`, three cores and 1 GiB of `b`.
    world.node("a", "t", &[]);
    world.node("b", "t", &[]);
    world.node("c", "t", &[]);
    for (node, mut pods) in [
        ("a", pods("stays-a", "6", "16Gi", 1)),
        ("b", pods("stays-b", "5", "31Gi", 1)),
        ("c", pods("computes", "1", "256Mi", 4)),
        ("c", pods("remembers", "250m", "3Gi", 4)),
    ] {
        for pod in &mut pods {
            node.clone_into(&mut pod.spec.node_name);
            pod.status.conditions.clear();
            if node != "c" {
                pod.metadata.annotations.insert(labels::DO_NOT_DISRUPT.to_owned(), "true".to_owned());
            }
        }
        world.objects.pods.extend(pods);
    }
    assert_eq!(carried_out(&mut world), [(Method::Consolidation, "c".to_owned(), 0)]);
    let remembering = world.pods_on("a").iter().filter(|pod| pod.metadata.name.starts_with("remembers")).count();
    assert_eq!((remembering, world.pods_on("a").len(), world.pods_on("b").len()), (4, 6, 4));
}

#[test]
fn a_drifted_node_is_replaced_even_if_that_costs_more() {
    let mut cheap = machine("cheap", 4, 10);
    cheap.offerings[0].available = false;
    let mut world = World::of([cheap, machine("dear", 4, 30)]);
    world.node("a", "cheap", &["3"]);
    assert_eq!(world.commands(), []);
    world.objects.claims[0].status.conditions.push(condition("Drifted"));

    assert_eq!(carried_out(&mut world), [(Method::Drift, "a".to_owned(), 1)]);
    assert!((world.bill() - 0.3).abs() < 1e-9);
    assert_eq!(world.commands(), []);
}

/// What holds the pod stays until the grace period of the node is over, and so does the pod: what it would go to now waits empty.
#[test]
fn no_place_is_bought_for_pods_of_a_drifted_node_that_may_not_be_evicted() {
    for held in [0, 1, 2] {
        // None of the pods has a place on another node.
        let mut world = World::of([machine("m", 4, 10)]);
        world.node("a", "m", &["2", "1"]);
        world.objects.claims[0].status.conditions.push(condition("Drifted"));
        let hour = serde_json::from_str(r#""1h""#).expect("a duration");
        world.objects.claims[0].spec.termination_grace_period = Some(hour);
        for pod in &mut world.objects.pods[..held] {
            pod.metadata.annotations.insert(labels::DO_NOT_DISRUPT.to_owned(), "true".to_owned());
        }
        let commands = world.commands();
        let [command] = &commands[..] else { panic!("{held} held: {commands:?}") };
        let moved: usize = command.replacements.iter().map(|claim| claim.pods.len()).sum();
        assert_eq!((command.method, moved, command.evictions), (Method::Drift, 2 - held, 2 - held));
        assert_eq!(command.replacements.len(), usize::from(held < 2));
        let outlook = outlook_of_a(&world);
        assert_eq!(outlook.goes_for(), Some(DisruptionReason::Drifted), "{held} held");
        assert_eq!(outlook.alone.expect("it might go").replacements.len(), command.replacements.len());
    }
}

#[test]
fn pennies_move_nothing() {
    // Ten pods cost 10 cents to move, and a cent of each dollar is not worth the trouble.
    for (dear, cheap, pods, per_eviction, share, moves) in [
        (40, 31, 10, 0.01, 0.0, false),
        (40, 29, 10, 0.01, 0.0, true),
        (40, 31, 10, 0.0, 0.01, true),
        (1000, 991, 1, 0.0, 0.01, false),
        (1000, 989, 1, 0.0, 0.01, true),
        (1000, 989, 1, 0.02, 0.01, false),
        (1000, 999, 1, 0.0, 0.0, true),
        (1000, 1000, 1, 0.0, 0.0, false),
    ] {
        let mut world = World::of([machine("dear", 11, dear), machine("cheap", 10, cheap)]);
        world.options.min_savings_per_eviction = Some(per_eviction);
        world.options.min_savings_share = share;
        world.node("a", "dear", &vec!["1"; pods]);
        let moved = !carried_out(&mut world).is_empty();
        assert_eq!(moved, moves, "{dear} to {cheap} cents, {pods} pods, thresholds {per_eviction} and {share}");
    }
}

fn outlook_of_a(world: &World) -> NodeOutlook {
    let (snapshot, catalogs, now) = (world.snapshot(), world.catalogs(), NOW.parse().expect("a time"));
    Disruptor::new(world.options.clone()).start(&snapshot, &catalogs, now).outlook("a").expect("it is there")
}

/// What it must save more than to move the pods of the node `a`, in dollars an hour.
fn asked_of_a(world: &World) -> f64 {
    outlook_of_a(world).alone.expect("it might go").threshold_per_hour
}

#[test]
fn small_pods_need_not_save_more_than_they_cost() {
    // On two nodes that are half full each pod costs a cent, on full ones half of that.
    let (a_cent_each, by_worth) = (0.04, 4.0 * 0.005 / 0.75);
    for (per_eviction, asked, goes) in
        [(Some(0.01), a_cent_each, false), (Some(0.005), a_cent_each / 2.0, true), (None, by_worth, true)]
    {
        let mut world = World::of([machine("t", 8, 4)]);
        (world.options.min_savings_per_eviction, world.options.min_savings_share) = (per_eviction, 0.0);
        world.options.planner.node_cost_per_hour = 0.0;
        world.node("a", "t", &["1"; 4]);
        world.node("b", "t", &["1"; 4]);
        let threshold_per_hour = asked_of_a(&world);
        assert!((threshold_per_hour - asked).abs() < 1e-9, "{per_eviction:?}: {threshold_per_hour}");
        let (snapshot, catalogs, now) = (world.snapshot(), world.catalogs(), NOW.parse().expect("a time"));
        let disruptor = Disruptor::new(world.options.clone());
        let commands = world.commands();
        assert_eq!(commands.len(), usize::from(goes), "{per_eviction:?}: {commands:?}");
        for command in &commands {
            assert_eq!(disruptor.validate(command, &snapshot, &catalogs, now), Ok(()));
            hold(&mut world, command);
            assert_eq!(world.commands(), []);
        }
    }
}

#[test]
fn large_pods_need_not_save_more_than_a_cent() {
    let mut world = World::of([machine("t", 8, 800)]);
    world.node("a", "t", &["1"; 4]);
    world.options.min_savings_share = 0.0;
    let threshold_per_hour = asked_of_a(&world);
    assert!((threshold_per_hour - 0.0388).abs() < 1e-9, "{threshold_per_hour}");
}

#[test]
fn commands_of_one_call_are_carried_out_in_their_order() {
    let mut world = World::of([machine("large", 8, 80), machine("small", 2, 10), machine("drifting", 2, 11)]);
    for name in ["a", "b", "c"] {
        world.node(name, "large", &["1", "1"]);
    }
    world.node("empty", "small", &[]);
    world.node("old", "drifting", &["1"]);
    world.objects.claims[4].status.conditions.push(condition("Drifted"));
    world.pool().spec.disruption.budgets.push(node_budget("1"));

    let done = carried_out(&mut world);
    let methods: Vec<Method> = done.iter().map(|(method, ..)| *method).collect();
    assert_eq!(methods[..2], [Method::Emptiness, Method::Drift], "{done:?}");
    assert!(done.len() > 2, "{done:?}");
    assert!(world.bill() < 0.5, "{done:?}");
}

#[test]
fn several_commands_share_what_is_left_of_a_reservation() {
    let mut reserved = machine("reserved", 2, 90);
    let mut offering = Offering::new(labels::RESERVED, ZONE, price(1));
    offering.requirements.add(RESERVATION, Requirement::one_of(["r"]));
    offering.reservation_capacity = Some(1);
    reserved.offerings.push(offering);
    let mut world = World::of([machine("dear", 2, 100), reserved]);
    world.pool().spec.disruption.budgets.push(node_budget("1"));
    for name in ["a", "b"] {
        world.node(name, "dear", &["2"]);
    }
    let done = carried_out(&mut world);
    assert_eq!(done.len(), 2, "{done:?}");
    assert!((world.bill() - 0.91).abs() < 1e-9);
}

#[test]
fn several_commands_share_what_is_left_of_a_limit() {
    let mut world = World::of([machine("dear", 2, 100), machine("cheap", 2, 50)]);
    world.node("a", "dear", &["2"]);
    world.node("b", "dear", &["2"]);
    let only_dear = NodeSelectorRequirement::new(labels::INSTANCE_TYPE, Operator::In, ["dear"]);
    let general = world.pool().clone().require(only_dear);
    let limited = open_pool("limited").limit("nodes", Quantity::from_units(1));
    world.objects.pools = vec![general, limited];
    world.pool().spec.disruption.budgets.push(node_budget("1"));
    let done = carried_out(&mut world);
    assert_eq!(done.len(), 1, "{done:?}");
    assert_eq!(world.objects.claims.iter().filter(|c| c.metadata.labels[labels::NODE_POOL] == "limited").count(), 1);
}

#[test]
fn a_pod_that_waits_and_has_no_place_stops_nothing() {
    let mut world = World::of([machine("large", 8, 40), machine("small", 2, 10)]);
    world.node("a", "large", &["1"]);
    world.node("b", "large", &["99"]);
    unbind(&mut world.objects.pods[1]);
    assert_eq!(world.commands()[0].candidates, ["b"], "it is empty");
    world.objects.nodes.truncate(1);
    world.objects.claims.truncate(1);
    assert_eq!(world.commands()[0].candidates, ["a"]);
}

#[test]
fn pods_go_to_no_node_that_is_not_ready() {
    for (is_ready, made) in [(true, 0), (false, 1)] {
        let mut world = World::of([machine("large", 8, 40), machine("small", 2, 10)]);
        world.node("a", "large", &["1"]);
        world.node("b", "large", &["1"]);
        let nodes = &mut world.objects.nodes;
        nodes[1].metadata.annotations.insert(labels::DO_NOT_DISRUPT.to_owned(), "true".to_owned());
        if !is_ready {
            nodes[1].metadata.labels.remove(labels::INITIALIZED);
        }
        let command = world.commands().remove(0);
        assert_eq!((command.candidates.join(" "), command.replacements.len()), ("a".to_owned(), made));
    }
}

#[test]
fn nodes_of_a_pool_that_is_not_ready_go_where_there_is_room() {
    let mut world = World::of([machine("large", 8, 40), machine("small", 1, 10)]);
    world.node("a", "large", &["1"]);
    world.node("b", "large", &["6"]);
    let mut not_ready = condition("Ready");
    not_ready.status = ConditionStatus::False;
    world.pool().status.conditions.push(not_ready);
    assert_eq!(carried_out(&mut world), [(Method::Consolidation, "a".to_owned(), 0)]);
}

/// An API server refuses a claim that names fewer values than it asks for.
#[test]
fn a_node_of_a_pool_that_asks_for_two_capacity_types_is_bound_to_neither() {
    let both = |name, cpu, cents: u32| {
        let mut own = machine(name, cpu, cents).offering("spot", ZONE, price(cents / 2));
        own.requirements.add(labels::CAPACITY_TYPE, Requirement::one_of(["spot", "on-demand"]));
        own
    };
    let mut world = World::of([both("small", 2, 10), both("large", 8, 40)]);
    let mut asked = NodeSelectorRequirement::new(labels::CAPACITY_TYPE, Operator::In, ["spot", "on-demand"]);
    asked.min_values = Some(2);
    world.pool().spec.template.spec.requirements = vec![asked];
    world.node("a", "large", &["1"]);
    let commands = world.commands();
    let [command] = commands.as_slice() else { panic!("{commands:?}") };
    let named = command.replacements[0].requirements.get(labels::CAPACITY_TYPE).expect("it says");
    assert_eq!((named.value_count(), named.min_values()), (Some(2), Some(2)));
    // By the dearest of them, a node would cost no less.
    world.objects.types[0].offerings[0].price = price(40);
    world.objects.types[0].offerings[1].price = price(40);
    assert_eq!(world.commands(), []);
}

/// Where very many cannot go, those with the fewest pods are looked at first.
#[test]
fn many_nodes_of_unknown_price_that_must_stay_do_not_hide_those_that_can_go() {
    let mut world = World::of([machine("t", 2, 10)]);
    for index in 0..101 {
        unpriced(&mut world, &format!("a{index:03}"), &["1", "1"]);
    }
    unpriced(&mut world, "b", &["100m"]);
    unpriced(&mut world, "c", &["100m"]);
    let commands = world.commands();
    assert_eq!(commands.iter().map(|command| command.candidates.len()).collect::<Vec<_>>(), [1], "{commands:?}");
}
