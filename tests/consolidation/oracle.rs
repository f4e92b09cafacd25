//! The search held against all sets of nodes of clusters that are small enough to try them all.

use karpenter::Planner;

use crate::{moves::machine, world::World};

const CLUSTERS: u64 = 40;
const NODES: u64 = 5;
const DOLLARS_PER_EVICTION: f64 = 0.01;
/// The last evictions of a command must save at least this share of what a command must save on average.
const LEAST_SHARE: f64 = 0.75;
/// Sums of prices that differ by less, in dollars, are the same.
const TOLERANCE_PER_HOUR: f64 = 1e-6;

/// Numbers that look random, the same for the same seed.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// Nodes of several sizes at prices that are not quite in proportion, with room left on most of them.
fn cluster(seed: u64) -> World {
    let mut numbers = Numbers(seed);
    let sizes = [2, 4, 8, 16];
    let types = sizes.map(|cpu| {
        let cents = u32::try_from(cpu).expect("a small number") * 5 + u32::try_from(numbers.below(4)).expect("below 4");
        machine(&format!("m{cpu}"), cpu, cents)
    });
    let mut world = World::of(types);
    world.options.min_savings_per_eviction = Some(DOLLARS_PER_EVICTION);
    world.options.min_savings_share = 0.0;
    for index in 0..NODES {
        let size = sizes[usize::try_from(numbers.below(4)).expect("below 4")];
        let (mut left, mut pods) = (u64::try_from(size).expect("above zero") * 4, Vec::new());
        for _ in 0..=numbers.below(5) {
            let quarters = [1, 2, 4, 6, 10][usize::try_from(numbers.below(5)).expect("below 5")];
            if quarters <= left {
                left -= quarters;
                pods.push(format!("{}m", quarters * 250));
            }
        }
        let pods: Vec<&str> = pods.iter().map(String::as_str).collect();
        world.node(&format!("n{index}"), &format!("m{size}"), &pods);
    }
    world
}

/// What the cluster costs at least with its evictions, whichever nodes go.
fn least(world: &World, per_eviction: f64) -> f64 {
    let names: Vec<String> = world.objects.nodes.iter().map(|node| node.metadata.name.clone()).collect();
    let planner = Planner::new(world.options.planner.clone());
    let of_set = |set: u32| {
        let is_gone = |index: &usize| set >> index & 1 == 1;
        let gone: Vec<String> = (0..names.len()).filter(is_gone).map(|index| names[index].clone()).collect();
        let evictions: usize = gone.iter().map(|name| world.pods_on(name).len()).sum();
        let without = world.without(&gone);
        let plan = planner.plan(&without.snapshot(), &without.catalogs());
        assert!(plan.unplaced().is_empty());
        without.bill() + plan.hourly_cost().dollars_per_hour() + per_eviction * evictions as f64
    };
    (0..1 << names.len()).map(of_set).fold(f64::INFINITY, f64::min)
}

/// What the cluster costs with its evictions when all commands are carried out.
fn reached(mut world: World, per_eviction: f64) -> f64 {
    let mut evictions = 0;
    for command in world.commands() {
        evictions += command.candidates.iter().map(|node| world.pods_on(node).len()).sum::<usize>();
        world.carry_out(&command);
    }
    world.bill() + per_eviction * evictions as f64
}

#[test]
fn no_set_of_nodes_is_better_than_what_the_search_finds() {
    let misses: Vec<(u64, f64)> = (0..CLUSTERS)
        .filter_map(|seed| {
            let world = cluster(seed);
            let least = least(&world, DOLLARS_PER_EVICTION);
            let lost = reached(world, DOLLARS_PER_EVICTION * LEAST_SHARE) - least;
            (lost > TOLERANCE_PER_HOUR).then_some((seed, lost / least))
        })
        .collect();
    assert!(misses.len() <= 1 && misses.iter().all(|(_, lost)| *lost < 0.02), "{misses:?}");
}
