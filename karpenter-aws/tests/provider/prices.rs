//! Where prices come from, and what happens if they do not.

use std::time::Duration;

use karpenter_aws::{ApiError, mem::Fault};
use karpenter_core::{Catalog, CloudProvider, labels};

use crate::world::{World, class, options, pool};

/// What an on-demand m5.large costs, in dollars an hour; `None` if it cannot be bought.
fn price(catalog: &Catalog) -> Option<f64> {
    let own = catalog.get("m5.large")?;
    let open = own.offerings.iter().find(|one| one.available && one.label(labels::CAPACITY_TYPE) == labels::ON_DEMAND);
    open.map(|offering| offering.price.dollars_per_hour())
}

fn is_about(known: Option<f64>, expected: f64) -> bool {
    known.is_some_and(|known| (known - expected).abs() < 1e-9)
}

#[tokio::test]
async fn prices_that_do_not_come_stay_as_they_are() {
    let world = World::new();
    let now = async || price(&world.provider.catalog(&pool()).await.expect("known"));
    assert!(is_about(now().await, 0.096));
    world.aws.with(|state| {
        state.on_demand_prices.values_mut().for_each(|price| *price *= 2.0);
        let error = ApiError::no_answer("GetProducts", "timed out");
        state.faults.push(Fault { operation: "GetProducts", times: 2, error, is_done: false });
    });
    world.aws.clock().advance(Duration::from_hours(12));
    assert!(is_about(now().await, 0.096), "it did not answer");
    world.aws.clock().advance(Duration::from_secs(59));
    assert!(is_about(now().await, 0.096), "it was not asked again yet");
    for _ in 0..2 {
        world.aws.clock().advance(Duration::from_mins(1));
        now().await;
    }
    assert!(is_about(now().await, 0.192), "a new price counts at once");
}

#[tokio::test]
async fn an_answer_without_prices_is_asked_for_again_soon() {
    let world = World::new();
    let prices = world.aws.with(|state| std::mem::take(&mut state.on_demand_prices));
    let now = async || price(&world.provider.catalog(&pool()).await.expect("known"));
    assert_eq!(now().await, None);
    world.aws.with(|state| state.on_demand_prices = prices);
    assert_eq!(now().await, None, "not at once");
    world.aws.clock().advance(Duration::from_mins(1));
    assert!(is_about(now().await, 0.096));
}

#[tokio::test]
async fn who_reaches_no_price_list_does_not_ask_for_it() {
    let (mut isolated, mut government) = (options(), options());
    isolated.is_isolated = true;
    "us-gov-west-1".clone_into(&mut government.types.region);
    for options in [isolated, government] {
        let world = World::of(options, class());
        assert_eq!(price(&world.provider.catalog(&pool()).await.expect("known")), None, "never for nothing");
        assert_eq!((world.aws.count("GetProducts"), world.aws.count("DescribeSpotPriceHistory")), (0, 1));
    }
}

#[tokio::test]
async fn machines_stay_offered_whose_price_is_not_known() {
    let world = World::new();
    world.aws.with(|state| state.on_demand_prices.clear());
    let catalog = world.provider.catalog(&pool()).await.expect("spot prices are known");
    let own = catalog.get("m5.large").expect("it is sold");
    let on_demand: Vec<_> =
        own.offerings.iter().filter(|one| one.label(labels::CAPACITY_TYPE) == labels::ON_DEMAND).collect();
    assert!(!on_demand.is_empty(), "a running machine would seem to have drifted");
    assert!(on_demand.iter().all(|one| !one.available && one.known_price().is_none()));
}

#[tokio::test]
async fn what_a_file_says_of_prices_counts_where_aws_says_nothing() {
    let mut known = options();
    known.is_isolated = true;
    let file = [("m5.large".to_owned(), 0.5)];
    known.prices.update_on_demand(file.clone(), file).expect("prices");
    let world = World::of(known, class());
    assert!(is_about(price(&world.provider.catalog(&pool()).await.expect("known")), 0.5));
}
