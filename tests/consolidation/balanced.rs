//! Pools with the policy `Balanced`.

use karpenter::{
    Price,
    api::{ConsolidationPolicy, NodePool},
    disrupt::{Alone, Disruptor, Invalid},
};

use crate::{
    moves::machine,
    validity::validate,
    world::{NOW, World, open_pool},
};

fn balanced(types: &[(&str, i64, u32)]) -> World {
    let mut world = World::of(types.iter().map(|&(name, cpu, cents)| machine(name, cpu, cents)));
    world.options.min_savings_per_eviction = Some(0.0);
    world.options.min_savings_share = 0.0;
    world.pool().spec.disruption.consolidation_policy = ConsolidationPolicy::Balanced;
    world
}

fn alone(world: &World, node: &str) -> Alone {
    let (snapshot, catalogs) = (world.snapshot(), world.catalogs());
    let search = Disruptor::new(world.options.clone()).start(&snapshot, &catalogs, NOW.parse().expect("a time"));
    search.outlook(node).and_then(|outlook| outlook.alone).expect("it is for the engine to take away")
}

#[test]
fn the_policy_is_read() {
    let json = r#"{"metadata":{"name":"p"},"spec":{"disruption":{"consolidationPolicy":"Balanced"}}}"#;
    let pool: NodePool = serde_json::from_str(json).expect("a valid pool");
    assert_eq!(pool.spec.disruption.consolidation_policy, ConsolidationPolicy::Balanced);
}

#[test]
fn the_share_that_is_saved_is_held_against_the_share_that_is_disturbed() {
    // Three nodes for a dollar each, with a pod each: a third of the disruption. What one saves is a third of the bill, times
    // what is cheaper elsewhere.
    for (cents, score, goes) in [(10, 0.9, true), (50, 0.5, true), (51, 0.49, false), (99, 0.01, false)] {
        let mut world = balanced(&[("dear", 4, 100), ("cheap", 4, cents)]);
        for name in ["a", "b", "c"] {
            world.node(name, "dear", &["4"]);
        }
        let found = alone(&world, "a");
        assert!((found.balance.expect("the pool asks for it") - score).abs() < 1e-9, "{cents}: {found:?}");
        assert_eq!((found.is_worth_it(), !world.commands().is_empty()), (goes, goes), "for {cents} cents");

        world.pool().spec.disruption.consolidation_policy = ConsolidationPolicy::WhenEmptyOrUnderutilized;
        assert_eq!(alone(&world, "a").balance, None);
        assert!(!world.commands().is_empty(), "other pools do not ask, for {cents} cents");
    }
}

#[test]
fn nodes_that_stay_count_too() {
    // One node has one pod of sixteen and costs half of the bill.
    let mut world = balanced(&[("dear", 16, 100), ("cheap", 2, 60)]);
    world.node("a", "dear", &["1"]);
    world.node("b", "dear", &["1"; 15]);
    let protected = world.objects.nodes.last_mut().expect("the second");
    protected.metadata.annotations.insert(karpenter::labels::DO_NOT_DISRUPT.to_owned(), "true".to_owned());
    let found = alone(&world, "a");
    // Its pod has room on the other: half of the bill is saved for 2 of 18.
    assert!((found.balance.expect("the pool asks for it") - 0.5 / (2.0 / 18.0)).abs() < 1e-9, "{found:?}");
}

#[test]
fn each_pool_with_the_policy_must_approve() {
    let mut world = balanced(&[("dear", 4, 100), ("cheap", 8, 190)]);
    world.objects.pools.push(open_pool("other"));
    world.node("a", "dear", &["4"]);
    world.objects.pools.swap(0, 1);
    world.node("b", "dear", &["4"]);
    // Both become one node: ten cents of two dollars are saved, and all of the Balanced pool is disturbed.
    assert_eq!(world.commands(), []);
    for pool in &mut world.objects.pools {
        pool.spec.disruption.consolidation_policy = ConsolidationPolicy::WhenEmptyOrUnderutilized;
    }
    let command = world.commands().remove(0);
    assert_eq!(command.candidates, ["a", "b"]);
    assert_eq!(command.replacements[0].cheapest_price, Price::per_hour(1.9).expect("a price"));
    world.objects.pools[1].spec.disruption.consolidation_policy = ConsolidationPolicy::Balanced;
    let error = validate(&world, &command).expect_err("the policy has changed");
    assert!(matches!(&error, Invalid::Unbalanced { pool, score } if pool == "general" && (score - 0.05).abs() < 1e-9));
}

#[test]
fn empty_nodes_go_whatever_they_score() {
    let mut world = balanced(&[("dear", 4, 100), ("cheap", 4, 1)]);
    world.node("a", "dear", &["4"; 1]);
    for name in ["b", "c"] {
        world.node(name, "cheap", &[]);
    }
    assert_eq!(world.commands()[0].candidates, ["b", "c"]);
}
