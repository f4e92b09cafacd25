//! Controllers that are killed, cut off, or not alone.

use std::time::Duration;

use serde_json::{Value, json};

use crate::{
    life::{POOL, deployment, until_tidy},
    plane::Plane,
};

/// A controller that is killed at any moment leaves nothing behind that the next one does not find.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_controller_that_was_killed_is_followed_by_another() {
    let Some(plane) = Plane::start("killed").await else { return };
    plane.apply(POOL).await;
    for (round, pause_millis) in
        [300, 900, 1_500, 2_100, 2_700, 3_500, 5_000, 8_000, 13_000, 17_000].into_iter().enumerate()
    {
        let mut controller = plane.replica(&["--disable-leader-election"]);
        let replicas = if round % 2 == 0 { 20 + round } else { 5 };
        plane.apply(&deployment("web", replicas, json!({}))).await;
        tokio::time::sleep(Duration::from_millis(pause_millis)).await;
        controller.kill();
    }
    let _controller = plane.replica(&["--disable-leader-election"]);
    plane.apply(&deployment("web", 12, json!({}))).await;
    plane.until_running(12).await;
    until_tidy(&plane).await;
    plane.patch("apps/v1", "Deployment", "web", json!({"spec": {"replicas": 0}})).await;
    plane.until("nothing is left", async || plane.nodes().await.is_empty() && plane.claims().await.is_empty()).await;
}

/// Of two replicas one acts; the other one takes over at once if the first ends well, and within the lease if not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_two_replicas_acts() {
    let Some(plane) = Plane::start("replicas").await else { return };
    plane.apply(POOL).await;
    let mut first = plane.replica(&["--identity", "first"]);
    let holder = async || {
        let leases: Vec<Value> = plane.list("coordination.k8s.io/v1", "Lease").await;
        let lease = leases.into_iter().find(|lease| lease["metadata"]["name"] == "karpenter-leader-election");
        lease.and_then(|lease| lease["spec"]["holderIdentity"].as_str().map(str::to_owned)).unwrap_or_default()
    };
    plane.until("the first holds the lease", async || holder().await.starts_with("first_")).await;
    let mut second = plane.replica(&["--identity", "second"]);
    plane.apply(&deployment("web", 6, json!({}))).await;
    plane.until_running(6).await;
    assert!(holder().await.starts_with("first_"));
    first.stop();
    plane.until("the second holds the lease", async || holder().await.starts_with("second_")).await;
    let _third = plane.replica(&["--identity", "third"]);
    tokio::time::sleep(Duration::from_secs(3)).await;
    second.kill();
    plane.apply(&deployment("more", 30, json!({}))).await;
    plane.until("the third holds the lease", async || holder().await.starts_with("third_")).await;
    plane.until_running(36).await;
    until_tidy(&plane).await;
}

/// A controller that cannot reach the API server for a while goes on afterwards as if nothing had been.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cut_of_the_network_is_overcome() {
    let Some(plane) = Plane::start("cut").await else { return };
    plane.apply(POOL).await;
    let _controller = plane.replica(&["--disable-leader-election"]);
    plane.apply(&deployment("web", 6, json!({}))).await;
    plane.until_running(6).await;
    plane.apply(&deployment("web", 30, json!({}))).await;
    plane.wire.cut_for(Duration::from_secs(30)).await;
    plane.until_running(30).await;
    plane.apply(&deployment("web", 0, json!({}))).await;
    tokio::time::sleep(Duration::from_secs(20)).await;
    plane.wire.cut_for(Duration::from_secs(30)).await;
    plane.until("nothing is left", async || plane.nodes().await.is_empty() && plane.claims().await.is_empty()).await;
}
