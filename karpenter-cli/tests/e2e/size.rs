//! Many pods at once.

#![expect(clippy::print_stderr, reason = "figures are printed")]

use std::time::{Duration, Instant};

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
    plane
        .until("all pods are known to have no place", async || {
            let pods = plane.pods().await;
            pods.len() == 1000 && pods.iter().all(was_looked_at)
        })
        .await;
    let _controller = plane.replica(&[]);
    plane.until_running(1000).await;

    // Claims of one plan are made one after the other, which takes some seconds on a busy machine.
    let mut claims: Vec<(Timestamp, NodeClaim)> = Vec::new();
    for claim in plane.claims().await {
        claims.push((claim.metadata.creation_timestamp.expect("a time"), claim));
    }
    claims.sort_by_key(|(made, _)| *made);
    let rounds = claims.chunk_by(|(before, _), (made, _)| made.since(*before) <= Duration::from_secs(3));
    let catalog = karpenter_fake::generated_catalog();
    let cost = |plan: &[(Timestamp, NodeClaim)]| plan.iter().map(|(_, claim)| price_per_hour(claim, &catalog)).sum();
    let costs: Vec<f64> = rounds.map(cost).collect();
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

/// Prints how long claims are in coming, and what it takes to watch a large cluster: run it alone, with `--release`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "measures, and takes minutes"]
async fn figures() {
    let Some(plane) = Plane::start("figures").await else { return };
    // Ten pods or so on each node.
    let pool = POOL.replace("consolidateAfter: 0s", "consolidateAfter: Never");
    let sizes = "requirements: [{key: karpenter.kwok.sh/instance-cpu, operator: In, values: [\"4\"]}, ";
    plane.apply(&pool.replace("requirements: [", sizes)).await;
    let controller = plane.replica(&[]);
    for (name, each) in [("early", 100), ("late", 900)] {
        for app in 1..=10 {
            let deployment = deployment(&format!("{name}-{app}"), each, json!({}));
            plane.apply(&deployment.replace("500m", "380m")).await;
        }
        print_delay(&plane, if name == "early" { 1000 } else { 10_000 }).await;
    }
    let before = spent(controller.id());
    tokio::time::sleep(Duration::from_mins(2)).await;
    let after = spent(controller.id());
    eprintln!(
        "{} nodes, {} kB, {} hundredths of a second in 120 s",
        plane.nodes().await.len(),
        after.0,
        after.1 - before.1
    );
}

/// Waits until so many pods run, and prints how long after the last of them was made, and after the kube-scheduler had looked
/// at the last of them, the last claim was made.
async fn print_delay(plane: &Plane, count: usize) {
    let (mut pods, mut seen, mut claims) = ((0, Instant::now()), (0, Instant::now()), (0, Instant::now()));
    let set = |known: &mut (usize, Instant), now: usize| {
        if known.0 != now {
            *known = (now, Instant::now());
        }
    };
    let is_quiet = |known: &(usize, Instant)| known.1.elapsed() > Duration::from_secs(20);
    while seen.0 < count || !is_quiet(&seen) || !is_quiet(&claims) {
        let all = plane.pods().await;
        set(&mut pods, all.len());
        set(&mut seen, all.iter().filter(|pod| was_looked_at(pod)).count());
        set(&mut claims, plane.claims().await.len());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let after = |(_, event): (usize, Instant)| claims.1.saturating_duration_since(event);
    let (made, looked_at) = (after(pods), after(seen));
    eprintln!(
        "{count} pods, {} claims, the last {made:?} after the last pod, {looked_at:?} after a look at it",
        claims.0
    );
    plane.until_running(count).await;
}

/// Whether the kube-scheduler looked for a node for a pod.
fn was_looked_at(pod: &Pod) -> bool {
    pod.status.conditions.iter().any(|condition| condition.r#type == "PodScheduled")
}

/// The memory that a process holds, in kB, and how long it has worked, in hundredths of a second.
fn spent(process: u32) -> (u64, u64) {
    let read = |file: &str| std::fs::read_to_string(format!("/proc/{process}/{file}")).expect("a process");
    let status = read("status");
    let memory = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.split_whitespace().next()?.parse().ok());
    // After the name, in brackets, the times are the 12th and the 13th of what follows.
    let stat = read("stat");
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let times = fields[11].parse::<u64>().expect("ticks") + fields[12].parse::<u64>().expect("ticks");
    (memory.expect("a size"), times)
}
