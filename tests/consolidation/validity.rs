//! Whether a command is still right in a cluster that has changed since.

use karpenter::{
    Planner, Price, Snapshot,
    api::{Pod, PodAffinity, Taint, TaintEffect, Workload},
    disrupt::{Command, Disruptor, Invalid},
    labels,
};
use proptest::{collection::vec, prelude::*, strategy::ValueTree, test_runner::TestRunner};

use crate::{
    guards::{node_budget, pod_budget},
    laws::{self, keeps_guards},
    moves::machine,
    world::{NOW, World, condition, unbind},
};

/// What has become of a world since.
type Change = fn(&mut World);

pub(crate) fn validate(world: &World, command: &Command) -> Result<(), Invalid> {
    let now = NOW.parse().expect("a time");
    Disruptor::new(world.options.clone()).validate(command, &world.snapshot(), &world.catalogs(), now)
}

pub(crate) fn revalidate(world: &World, command: &Command) -> Result<Command, Invalid> {
    let now = NOW.parse().expect("a time");
    Disruptor::new(world.options.clone()).revalidate(command, &world.snapshot(), &world.catalogs(), now)
}

/// Finds the first command, lets something happen, and looks at the command again.
fn after(mut world: World, change: Change) -> String {
    let command = world.commands().remove(0);
    assert_eq!(validate(&world, &command), Ok(()), "nothing has happened yet");
    change(&mut world);
    let found = validate(&world, &command);
    assert_eq!(revalidate(&world, &command).map(|_| ()), found, "a command for one node is right or not");
    found.map_or_else(|error| error.to_string(), |()| "right".to_owned())
}

/// Lets a pod run on a node.
fn come(world: &mut World, node: &str, cpu: &str) {
    let is_free = |name: &String| world.objects.pods.iter().all(|pod| pod.metadata.name != *name);
    let name = (0..1000).map(|n| format!("new{n}")).find(is_free).expect("there are fewer pods");
    let pods = Workload::from(Pod::named(name).label("app", "web").cpu(cpu)).into_pods().expect("valid");
    for mut pod in pods {
        node.clone_into(&mut pod.spec.node_name);
        "Running".clone_into(&mut pod.status.phase);
        world.objects.pods.push(pod);
    }
}

fn forget_node(world: &mut World) {
    world.objects.nodes.remove(0);
    world.objects.claims.remove(0);
}

fn choose_node(world: &mut World) {
    world.objects.nodes[0].spec.taints.push(Taint::new(labels::DISRUPTED, "", TaintEffect::NoSchedule));
}

fn shield_pod(world: &mut World) {
    world.objects.pods[0].metadata.annotations.insert(labels::DO_NOT_DISRUPT.to_owned(), "true".to_owned());
}

fn close_offering(world: &mut World, index: usize) {
    world.objects.types[index].offerings[0].available = false;
}

/// A node of eight cores for two pods of a core each, where there are smaller machines.
fn wasteful() -> World {
    let mut world = World::of([machine("large", 8, 80), machine("mean", 4, 40), machine("small", 2, 20)]);
    world.node("a", "large", &["1", "1"]);
    world
}

#[test]
fn a_cheaper_place_is_looked_for_again() {
    let cases: [(&str, Change, &str); 16] = [
        ("nothing", |_| {}, "right"),
        ("a pod is gone", |w| _ = w.objects.pods.pop(), "right"),
        ("the node is gone", forget_node, "there is no node a"),
        ("the node was chosen", choose_node, "node a: it was chosen to go before (taint karpenter.sh/disrupted)"),
        ("a shield", shield_pod, "node a: pod default/a-0 has the annotation karpenter.sh/do-not-disrupt"),
        (
            "no node may go",
            |w| w.pool().spec.disruption.budgets.push(node_budget("0")),
            "node a: nodes of pool general that would go at once: 1; spec.disruption.budgets[0] allows 0, 0 taken",
        ),
        ("pods may go in turns", |w| w.budgets.push(pod_budget(1)), "right"),
        (
            "no pod may go",
            |w| w.budgets.push(pod_budget(0)),
            "node a: pod default/a-0: PodDisruptionBudget default/web has disruptionsAllowed 0 (2 of 2 pods are healthy, 2 \
             must be); pod default/a-1: PodDisruptionBudget default/web has disruptionsAllowed 0 (2 of 2 pods are healthy, \
             2 must be)",
        ),
        ("a pod that waits and has room elsewhere", wait_for_large, "right"),
        (
            "a pod that waits for the room of the node",
            |w| wait(w, "4"),
            "node a: its room was promised to pods: default/new0",
        ),
        (
            "a pod came that the machine has no room for",
            |w| come(w, "a", "1"),
            "a node of pool general does not serve the pods as small",
        ),
        ("a pod came that no machine has room for", |w| come(w, "a", "9"), "pods without a place: default/new0"),
        (
            "pods came that need two machines",
            |w| come(w, "a", "8"),
            "nodes that the pods need: 2; that would be made: 1",
        ),
        (
            "a machine is not for sale",
            |w| close_offering(w, 2),
            "a node of pool general does not serve the pods as small",
        ),
        (
            "the machines have become dear",
            |w| raise_prices(w, 79),
            "$0.0100 an hour is saved, and it must be more than $0.0274",
        ),
        (
            "there is room elsewhere",
            |w| w.node("b", "small", &[]),
            "nodes that the pods need: 0; that would be made: 1",
        ),
    ];
    for (name, change, expected) in cases {
        let found = after(wasteful(), change);
        assert_eq!(found, expected, "{name}");
    }
}

fn wait(world: &mut World, cpu: &str) {
    come(world, "", cpu);
    let pod = world.objects.pods.last_mut().expect("it came");
    unbind(pod);
}

fn wait_for_large(world: &mut World) {
    wait(world, "7");
}

fn raise_prices(world: &mut World, cents: u32) {
    for instance_type in &mut world.objects.types {
        for offering in &mut instance_type.offerings {
            let price = f64::from(cents) / 100.0;
            let own = offering.price.dollars_per_hour();
            offering.price = Price::per_hour(own.max(price)).expect("not below zero");
        }
    }
}

#[test]
fn an_empty_node_must_stay_empty() {
    let world = || {
        let mut world = World::of([machine("t", 4, 20)]);
        world.node("a", "t", &[]);
        world
    };
    assert_eq!(after(world(), |_| {}), "right");
    assert_eq!(after(world(), |w| come(w, "a", "1")), "node a has pods to move: default/new0");
    assert_eq!(after(world(), |w| wait(w, "1")), "node a: its room was promised to pods: default/new0");
    assert_eq!(after(world(), forget_node), "there is no node a");
}

#[test]
fn the_empty_nodes_go_that_still_may() {
    let mut world = World::of([machine("t", 4, 20)]);
    for name in ["a", "b", "c"] {
        world.node(name, "t", &[]);
    }
    let command = world.commands().remove(0);
    assert_eq!(command.candidates, ["a", "b", "c"]);
    assert_eq!(revalidate(&world, &command), Ok(command.clone()));

    come(&mut world, "b", "1");
    assert!(matches!(validate(&world, &command), Err(Invalid::NotEmpty { node, .. }) if node == "b"));
    let still = revalidate(&world, &command).expect("two are empty");
    assert_eq!((still.candidates.join(" "), still.savings_per_hour), ("a c".to_owned(), 0.4));
    world.pool().spec.disruption.budgets.push(node_budget("1"));
    assert_eq!(revalidate(&world, &command).expect("one may go").candidates, ["a"]);
    come(&mut world, "a", "1");
    world.objects.nodes.remove(2);
    world.objects.claims.remove(2);
    assert!(matches!(revalidate(&world, &command), Err(Invalid::NotEmpty { node, .. }) if node == "a"));
}

#[test]
fn a_drifted_node_must_still_have_drifted() {
    let world = || {
        let mut world = World::of([machine("t", 4, 20)]);
        world.node("a", "t", &["3"]);
        world.objects.claims[0].status.conditions.push(condition("Drifted"));
        world
    };
    assert_eq!(after(world(), |_| {}), "right");
    assert_eq!(after(world(), |w| w.objects.claims[0].status.conditions.clear()), "node a has not drifted");
    // It is drained as fast as the budget allows it, whatever else changes the price.
    assert_eq!(after(world(), |w| w.budgets.push(pod_budget(1))), "right");
    assert_eq!(after(world(), |w| raise_prices(w, 99)), "right");
    assert_eq!(after(world(), |w| come(w, "a", "1")), "right");
    assert_eq!(after(world(), |w| come(w, "a", "4")), "nodes that the pods need: 2; that would be made: 1");
}

#[test]
fn a_command_is_not_right_in_another_cluster() {
    let command = wasteful().commands().remove(0);
    let (disruptor, now) = (Disruptor::default(), NOW.parse().expect("a time"));
    let found = disruptor.validate(&command, &Snapshot::default(), &wasteful().catalogs(), now);
    assert_eq!(found, Err(Invalid::Gone { node: "a".to_owned() }));
}

/// What may happen to a cluster in a quarter of a minute.
#[derive(Clone, Debug)]
enum Event {
    PodGoes(usize),
    PodComes(usize, u32),
    PodWaits(u32),
    PodIsShielded(usize),
    OfferingCloses(usize),
    NodesMayGo(&'static str),
}

fn event() -> impl Strategy<Value = Event> {
    let (any, cpu) = (any::<usize>, || 1..8_u32);
    prop_oneof![
        any().prop_map(Event::PodGoes),
        (any(), cpu()).prop_map(|(node, cpu)| Event::PodComes(node, cpu)),
        cpu().prop_map(Event::PodWaits),
        any().prop_map(Event::PodIsShielded),
        any().prop_map(Event::OfferingCloses),
        prop::sample::select(vec!["100%", "2", "1"]).prop_map(Event::NodesMayGo),
    ]
}

fn happen(world: &mut World, event: &Event) {
    let (pods, nodes, types) = (world.objects.pods.len(), world.objects.nodes.len(), world.objects.types.len());
    match *event {
        Event::PodGoes(index) if pods > 0 => _ = world.objects.pods.remove(index % pods),
        Event::PodComes(index, cpu) if nodes > 0 => {
            let node = world.objects.nodes[index % nodes].metadata.name.clone();
            come(world, &node, &format!("{}m", cpu * 250));
        }
        Event::PodWaits(cpu) => wait(world, &format!("{}m", cpu * 250)),
        Event::PodIsShielded(index) if pods > 0 => {
            let annotations = &mut world.objects.pods[index % pods].metadata.annotations;
            annotations.insert(labels::DO_NOT_DISRUPT.to_owned(), "true".to_owned());
        }
        Event::OfferingCloses(index) if types > 0 => {
            let offerings = &mut world.objects.types[index % types].offerings;
            offerings.iter_mut().take(1).for_each(|offering| offering.available = false);
        }
        Event::NodesMayGo(count) => world.pool().spec.disruption.budgets = vec![node_budget(count)],
        _ => {}
    }
}

proptest! {
    #[test]
    fn the_first_command_is_right_at_once(world in laws::world()) {
        if let Some(command) = world.commands().first() {
            prop_assert_eq!(validate(&world, command), Ok(()));
            prop_assert_eq!(revalidate(&world, command), Ok(command.clone()));
        }
    }
}

/// Pods with rules about each other find the nodes that were made for them only if they are placed in the same order.
fn without_rules(mut world: World) -> World {
    for pod in &mut world.objects.pods {
        pod.spec.affinity.pod_affinity = PodAffinity::default();
        pod.spec.affinity.pod_anti_affinity = PodAffinity::default();
        pod.spec.topology_spread_constraints.clear();
    }
    world
}

#[test]
fn what_is_still_right_still_comes_true() {
    let mut runner = TestRunner::deterministic();
    let (mut right, mut wrong) = (0, 0);
    for _ in 0..300 {
        let cases = (laws::world(), vec(event(), 1..4), any::<usize>());
        let (world, events, pick) = cases.new_tree(&mut runner).expect("nothing is rejected").current();
        let mut world = without_rules(world);
        let Some(command) = world.commands().into_iter().next() else { continue };
        for event in &events {
            happen(&mut world, event);
        }
        if validate(&world, &command).is_err() {
            wrong += 1;
            continue;
        }
        right += 1;
        keeps_guards(&world, &command).expect("it is right");
        world.objects.pods.retain(|pod| !pod.spec.node_name.is_empty());
        world.replace(&command, pick);
        let plan = Planner::new(world.options.planner.clone()).plan(&world.snapshot(), &world.catalogs());
        assert_eq!(plan.claims(), [], "no node but those of {command:?} is needed");
        assert!(plan.unplaced().is_empty(), "{:?}", plan.unplaced());
    }
    assert!(right >= 50 && wrong >= 30, "{right} were right, {wrong} were not");
}

/// Those that its grace period holds stay behind, so that no node is made for them.
#[test]
fn a_drifted_node_whose_pods_are_held_is_still_right_to_go() {
    for held in [0, 1, 2] {
        let mut world = World::of([machine("m", 4, 10)]);
        world.node("a", "m", &["2", "1"]);
        world.objects.claims[0].status.conditions.push(condition("Drifted"));
        world.objects.claims[0].spec.termination_grace_period = Some("1h".parse().expect("a duration"));
        for pod in &mut world.objects.pods[..held] {
            pod.metadata.annotations.insert(labels::DO_NOT_DISRUPT.to_owned(), "true".to_owned());
        }
        let command = world.commands().remove(0);
        assert_eq!((command.replacements.len(), validate(&world, &command)), (usize::from(held < 2), Ok(())), "{held}");
    }
}

#[test]
fn no_type_that_a_command_names_may_have_become_dearer_than_what_goes() {
    let types = || [machine("small", 2, 10), machine("mid", 3, 15), machine("large", 8, 40)];
    let mut world = World::of(types());
    world.node("a", "large", &["1"]);
    let command = world.commands().remove(0);
    assert_eq!(command.replacements[0].instance_types.len(), 2, "{command:?}");
    for (cents, is_right) in [(39, true), (40, false), (999, false)] {
        world.objects.types = types().to_vec();
        let mid = world.objects.types.iter_mut().find(|own| own.name == "mid").expect("it is there");
        mid.offerings[0].price = Price::per_hour(f64::from(cents) / 100.0).expect("a price");
        let found = validate(&world, &command);
        assert_eq!(found.is_ok(), is_right, "{cents}: {found:?}");
        assert!(is_right || matches!(found, Err(Invalid::SavesTooLittle { .. })), "{found:?}");
    }
}
