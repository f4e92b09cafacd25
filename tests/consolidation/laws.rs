//! What holds of every command, on random clusters.

use std::collections::BTreeMap;

use karpenter::{
    Catalogs, Offering, Plan, Planner,
    api::{IntOrPercent, NodeClaim, ObjectKey, Pod},
    disrupt::{Command, Method},
    fake::check,
    labels,
    schedule::StopFlag,
    strategies::{self, APP, RandomProblem},
};
use proptest::{collection::vec, option, prelude::*, sample::select, strategy::ValueTree, test_runner::TestRunner};

use crate::{
    guards::{node_budget, pod_budget},
    world::{World, condition, on_threads, unbind},
};

const PODS: usize = 20;
/// How many pods come at a time.
const BATCH: usize = 4;
/// After so many rounds a cluster as small as these must have come to rest.
const MAX_ROUNDS: usize = 20;
/// Sums of prices that differ by less, in dollars, are the same.
const TOLERANCE_PER_HOUR: f64 = 1e-6;

/// What is done to a cluster after its pods have been placed.
#[derive(Clone, Debug)]
struct Fate {
    /// Whether a pod is deleted, and whether it must not be disturbed.
    pods: Vec<(bool, bool)>,
    /// The type of which there are machines for each batch of pods.
    types: Vec<usize>,
    /// Which claims have drifted.
    drifted: Vec<bool>,
    /// The disruption budget of each pool.
    nodes: Vec<&'static str>,
    /// How many pods of the app `web` may be away.
    web: Option<u32>,
}

fn fate() -> impl Strategy<Value = Fate> {
    let pods = vec((prop::bool::weighted(0.4), prop::bool::weighted(0.03)), PODS);
    let nodes = vec(select(vec!["100%", "100%", "50%", "10%", "2", "1"]), 3);
    let drifted = vec(prop::bool::weighted(0.1), PODS);
    (pods, vec(any::<usize>(), 0..PODS / BATCH), drifted, nodes, option::weighted(0.3, 0..3_u32))
        .prop_map(|(pods, types, drifted, nodes, web)| Fate { pods, types, drifted, nodes, web })
}

/// Clusters of nodes that were made at different times, for more pods than there are.
pub(crate) fn world() -> impl Strategy<Value = World> {
    (strategies::problem(PODS), fate()).prop_map(|(problem, fate)| aged(problem, &fate))
}

fn aged(mut problem: RandomProblem, fate: &Fate) -> World {
    for instance_type in &mut problem.types {
        // A node's labels must say what it costs.
        let key = |o: &Offering| [labels::ZONE, labels::CAPACITY_TYPE].map(|label| o.label(label).to_owned());
        let mut seen = Vec::new();
        instance_type.offerings.retain(|offering| {
            let is_new = !seen.contains(&key(offering));
            seen.push(key(offering));
            is_new
        });
    }
    let mut world = World::default();
    let pods = std::mem::take(&mut problem.pods);
    world.objects = problem;
    for (batch, pods) in pods.chunks(BATCH).enumerate() {
        come(&mut world, pods, fate.types.get(batch).copied());
    }
    let mut pods = fate.pods.iter();
    world.objects.pods.retain_mut(|pod| {
        let (is_deleted, is_shielded) = pods.next().copied().unwrap_or_default();
        if is_shielded {
            pod.metadata.annotations.insert(labels::DO_NOT_DISRUPT.to_owned(), "true".to_owned());
        }
        !is_deleted
    });
    for (claim, _) in world.objects.claims.iter_mut().zip(&fate.drifted).filter(|(_, drifted)| **drifted) {
        claim.status.conditions.push(condition("Drifted"));
    }
    for (pool, nodes) in world.objects.pools.iter_mut().zip(&fate.nodes) {
        pool.spec.disruption.budgets = vec![node_budget(nodes)];
    }
    world.budgets.extend(fate.web.map(pod_budget));
    world
}

/// Lets pods come, for which machines of one type at most are for sale.
fn come(world: &mut World, pods: &[Pod], only: Option<usize>) {
    let sold = world.objects.types.clone();
    let only = only.map(|index| index % sold.len());
    for (index, instance_type) in world.objects.types.iter_mut().enumerate() {
        let is_sold = only.is_none_or(|only| only == index);
        instance_type.offerings.iter_mut().for_each(|offering| offering.available &= is_sold);
    }
    world.objects.pods.extend_from_slice(pods);
    let plan = Planner::default().plan(&world.snapshot(), &world.catalogs());
    world.provision(&plan);
    world.objects.pods.retain(|pod| !plan.unplaced().contains_key(&pod.key()));
    for (now, before) in world.objects.types.iter_mut().zip(sold) {
        for (now, before) in now.offerings.iter_mut().zip(before.offerings) {
            now.available = before.available;
        }
    }
}

/// Lets some pods wait, without those that find no place then, and plans for them.
fn unbound(world: &mut World, waits: &[bool]) -> Plan {
    for (pod, _) in world.objects.pods.iter_mut().zip(waits).filter(|(_, waits)| **waits) {
        unbind(pod);
    }
    loop {
        let plan = Planner::new(world.options.planner.clone()).plan(&world.snapshot(), &world.catalogs());
        if plan.unplaced().is_empty() {
            return plan;
        }
        world.objects.pods.retain(|pod| !plan.unplaced().contains_key(&pod.key()));
    }
}

/// Carries a command out and holds it against what it said. What the nodes that go give back to reservations cannot be
/// bought before they are gone, so that the command is judged by what was for sale when it was made.
fn hold(world: &mut World, command: &Command, sold: &Catalogs) -> Result<(), TestCaseError> {
    keeps_guards(world, command)?;
    let pods: usize = command.candidates.iter().map(|node| world.pods_on(node).len()).sum();
    prop_assert_eq!((command.moved(), command.evictions), (pods, pods));
    let without = world.without(&command.candidates);
    let plan = Plan::from_parts(command.replacements.clone(), command.existing.clone(), BTreeMap::new());
    prop_assert_eq!(check(&without.snapshot(), sold, &plan), []);

    let before = world.bill();
    world.carry_out(command);
    let saved = before - world.bill();
    prop_assert!((saved - command.savings_per_hour).abs() < TOLERANCE_PER_HOUR, "{saved} is saved by {command:?}");
    prop_assert!(saved > -TOLERANCE_PER_HOUR || command.method == Method::Drift, "{saved} is saved by {command:?}");
    let waiting: Vec<ObjectKey> =
        world.objects.pods.iter().filter(|pod| pod.spec.node_name.is_empty()).map(Pod::key).collect();
    prop_assert_eq!(waiting, []);
    Ok(())
}

pub(crate) fn keeps_guards(world: &World, command: &Command) -> Result<(), TestCaseError> {
    let pods: Vec<&Pod> = command.candidates.iter().flat_map(|node| world.pods_on(node)).collect();
    prop_assert!(pods.iter().all(|pod| !pod.metadata.annotations.contains_key(labels::DO_NOT_DISRUPT)), "{command:?}");
    // Nodes are drained pod by pod, as fast as budgets allow it.
    let has_web = pods.iter().any(|pod| pod.metadata.labels.get(APP).is_some_and(|app| app == "web"));
    for budget in &world.budgets {
        let Some(IntOrPercent::Int(most)) = budget.spec.max_unavailable else { panic!("a number of pods: {budget:?}") };
        prop_assert!(!has_web || most > 0, "{command:?}");
    }
    for pool in &world.objects.pools {
        let of_pool =
            |c: &&NodeClaim| !c.status.node_name.is_empty() && c.metadata.labels[labels::NODE_POOL] == pool.name();
        let nodes: Vec<&str> =
            world.objects.claims.iter().filter(of_pool).map(|c| c.status.node_name.as_str()).collect();
        let gone = command.candidates.iter().filter(|name| nodes.contains(&name.as_str())).count();
        let text = &pool.spec.disruption.budgets[0].nodes;
        let most = match text.strip_suffix('%') {
            Some(percent) => (nodes.len() * number(percent)).div_ceil(100),
            None => number(text),
        };
        prop_assert!(gone <= most, "{gone} nodes of {most} that may go of {}, by {command:?}", pool.name());
    }
    Ok(())
}

fn number(text: &str) -> usize {
    text.parse().expect("a number")
}

/// The same disorder for the same seed.
fn shuffle<T>(items: &mut [T], seed: u64) {
    let mut state = seed | 1;
    for i in (1..items.len()).rev() {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        items.swap(i, usize::try_from(state >> 33).expect("31 bits") % (i + 1));
    }
}

fn shuffled(world: &World, seed: u64) -> World {
    let mut world = world.clone();
    let objects = &mut world.objects;
    shuffle(&mut objects.pods, seed);
    shuffle(&mut objects.pools, seed);
    shuffle(&mut objects.types, seed);
    objects.types.iter_mut().for_each(|own| shuffle(&mut own.offerings, seed));
    shuffle(&mut objects.nodes, seed);
    shuffle(&mut objects.daemonsets, seed);
    shuffle(&mut objects.claims, seed);
    shuffle(&mut objects.volume_claims, seed);
    shuffle(&mut objects.volumes, seed);
    shuffle(&mut objects.storage_classes, seed);
    world
}

proptest! {
    #[test]
    fn commands_come_true_until_there_are_none(mut world in world()) {
        for _ in 0..MAX_ROUNDS {
            let (commands, sold) = (world.commands(), world.catalogs());
            if commands.is_empty() {
                return Ok(());
            }
            for command in &commands {
                hold(&mut world, command, &sold)?;
            }
        }
        prop_assert_eq!(world.commands(), []);
    }

    #[test]
    fn commands_reckon_with_the_nodes_of_pods_that_wait(mut world in world(), waits in vec(any::<bool>(), PODS)) {
        let plan = unbound(&mut world, &waits);
        let (commands, sold) = (world.commands(), world.catalogs());
        world.provision(&plan);
        for command in &commands {
            hold(&mut world, command, &sold)?;
        }
    }

    #[test]
    fn commands_that_are_found_before_a_search_is_stopped_come_true(
        mut world in world(), waits in vec(prop::bool::weighted(0.05), PODS), looks in 0_usize..3_000,
    ) {
        let plan = unbound(&mut world, &waits);
        let commands = on_threads(1, || world.commands_until(&StopFlag::after_looks(looks)));
        let sold = world.catalogs();
        world.provision(&plan);
        for command in &commands {
            hold(&mut world, command, &sold)?;
        }
    }

    #[test]
    fn neither_order_nor_threads_change_commands(world in world(), seed in any::<u64>()) {
        let commands = on_threads(1, || world.commands());
        prop_assert_eq!(&commands, &on_threads(4, || world.commands()));
        prop_assert_eq!(commands, shuffled(&world, seed).commands());
    }
}

#[test]
fn the_clusters_of_these_laws_need_commands_of_every_kind() {
    let mut runner = TestRunner::deterministic();
    let mut counts = BTreeMap::new();
    for _ in 0..200 {
        let world = world().new_tree(&mut runner).expect("nothing is rejected").current();
        let commands = world.commands();
        let several = (commands.len() > 1).then_some("several commands");
        for kind in commands.iter().flat_map(kinds).chain(several) {
            *counts.entry(kind).or_insert(0) += 1;
        }
    }
    assert_eq!(counts.len(), 7, "{counts:?}");
    assert!(counts.values().all(|count| *count >= 3), "{counts:?}");
}

fn kinds(command: &Command) -> impl Iterator<Item = &'static str> {
    let (gone, made) = (command.candidates.len(), command.replacements.len());
    let kinds = [
        (command.method == Method::Emptiness, "emptiness"),
        (command.method == Method::Drift, "drift"),
        (command.method == Method::Consolidation && made == 0, "pods into room"),
        (command.method == Method::Consolidation && gone == 1 && made == 1, "one to one"),
        (command.method == Method::Consolidation && gone > 1 && made == 1, "many to one"),
        (command.method == Method::Consolidation && made > 1, "many to many"),
    ];
    kinds.into_iter().filter_map(|(holds, kind)| holds.then_some(kind))
}
