//! Many pods at once.

use std::{collections::BTreeMap, time::Duration};

use karpenter_core::{
    Catalog, Offering, Timestamp,
    api::{NodeClaim, Pod},
    labels,
};
use serde_json::json;

use crate::{
    life::{POOL, deployment},
    plane::Plane,
};

/// A thousand pods alike on an empty cluster: what was planned for them is what they need, but for one further plan that costs
/// little.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_pods_find_nodes_at_once() {
    let Some(plane) = Plane::start("size").await else { return };
    plane.apply(&POOL.replace("consolidateAfter: 0s", "consolidateAfter: Never")).await;
    for app in 1..=10 {
        plane.apply(&deployment(&format!("app-{app}"), 100, json!({}))).await;
    }
    let was_looked_at = |pod: &Pod| pod.status.conditions.iter().any(|condition| condition.r#type == "PodScheduled");
    plane
        .until("all pods are known to have no place", async || {
            let pods = plane.pods().await;
            pods.len() == 1000 && pods.iter().all(was_looked_at)
        })
        .await;
    let _controller = plane.replica(&[]);
    plane.until_running(1000).await;

    // Claims of one plan are made within moments of each other.
    let mut rounds: BTreeMap<Timestamp, Vec<NodeClaim>> = BTreeMap::new();
    for claim in plane.claims().await {
        let made = claim.metadata.creation_timestamp.expect("a time");
        let near = rounds.range(..=made).next_back().map(|(first, _)| *first);
        let first = near.filter(|first| made.since(*first) <= Duration::from_secs(3)).unwrap_or(made);
        rounds.entry(first).or_default().push(claim);
    }
    let catalog = karpenter_fake::generated_catalog();
    let cost = |claims: &Vec<NodeClaim>| claims.iter().map(|claim| price_per_hour(claim, &catalog)).sum::<f64>();
    let costs: Vec<f64> = rounds.values().map(cost).collect();
    assert!(costs.len() <= 2, "{costs:?}");
    let all: f64 = costs.iter().sum();
    assert!(all <= costs[0] * 1.05, "{costs:?}");
}

/// What the machine of a claim costs, in dollars.
fn price_per_hour(claim: &NodeClaim, catalog: &Catalog) -> f64 {
    let label = |key: &str| claim.metadata.labels[key].as_str();
    let instance_type = catalog.get(label(labels::INSTANCE_TYPE)).expect("a type of the catalog");
    let is_bought = |offering: &&Offering| {
        [labels::ZONE, labels::CAPACITY_TYPE].iter().all(|key| offering.label(key) == label(key))
    };
    instance_type.offerings.iter().find(is_bought).expect("an offering of the type").price.dollars_per_hour()
}
