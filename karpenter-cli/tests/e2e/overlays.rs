//! Node overlays on a real API server.

use karpenter_core::{
    api::{ConditionStatus, NodeOverlay},
    labels,
};
use serde_json::{Value, json};

use crate::{
    life::{POOL, deployment},
    plane::Plane,
};

const TYPE: &str = "m-8x-amd64-linux";

fn overlay(name: &str, price: &str) -> String {
    let requirement = json!({"key": labels::INSTANCE_TYPE, "operator": "In", "values": [TYPE]});
    let overlay: Value = json!({
        "apiVersion": NodeOverlay::API_VERSION, "kind": "NodeOverlay", "metadata": {"name": name},
        "spec": {"requirements": [requirement], "price": price},
    });
    overlay.to_string()
}

async fn readiness(plane: &Plane) -> Vec<(String, ConditionStatus)> {
    let all: Vec<NodeOverlay> = plane.list(NodeOverlay::API_VERSION, "NodeOverlay").await;
    let ready = |overlay: NodeOverlay| {
        let found = overlay.status.conditions.iter().find(|condition| condition.r#type == "Ready");
        found.map(|condition| (overlay.name().to_owned(), condition.status))
    };
    all.into_iter().filter_map(ready).collect()
}

/// With the gate, prices of overlays decide what is bought, and overlays say whether they count.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn overlays_are_obeyed_and_judged() {
    let Some(plane) = Plane::start("overlays").await else { return };
    plane.apply(&overlay("plan", "0.001")).await;
    plane.apply(&overlay("another", "9")).await;
    let _controller = plane.replica(&["--feature-gates", "NodeOverlay=true"]);
    plane.apply(POOL).await;
    plane.apply(&deployment("web", 2, json!({}))).await;
    plane.until_running(2).await;
    let types = plane.nodes().await.into_iter().map(|mut node| node.metadata.labels.remove(labels::INSTANCE_TYPE));
    assert!(types.eq([Some(TYPE.to_owned())]), "the cheapest by the overlay");
    let (yes, no) = (ConditionStatus::True, ConditionStatus::False);
    let judged = [("another".to_owned(), no), ("plan".to_owned(), yes)];
    plane.until("both overlays are judged", async || readiness(&plane).await == judged).await;

    plane.delete(NodeOverlay::API_VERSION, "NodeOverlay", "plan").await;
    plane.until("the other one counts", async || readiness(&plane).await == [("another".to_owned(), yes)]).await;
}
