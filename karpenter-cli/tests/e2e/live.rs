//! Questions about a cluster that runs.

use serde_json::{Value, json};

use crate::{
    life::{POOL, deployment, node_names},
    plane::Plane,
};

fn length(value: &Value) -> usize {
    value.as_array().map_or_else(|| value.as_object().expect("many").len(), Vec::len)
}

/// What is planned for a cluster that runs is what the controller then does, and what it did is at rest.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_is_planned_for_as_it_is() {
    let Some(plane) = Plane::start("live").await else { return };
    // The API server gives more pods than fit on a page.
    plane.apply(&POOL.replace("consolidateAfter: 0s", "consolidateAfter: Never")).await;
    plane.apply(&deployment("shop", 600, json!({}))).await;
    let was_looked_at = |pod: &karpenter_core::api::Pod| {
        pod.status.conditions.iter().any(|condition| condition.r#type == "PodScheduled")
    };
    plane
        .until("all pods are known to have no place", async || {
            let pods = plane.pods().await;
            pods.len() == 600 && pods.iter().all(was_looked_at)
        })
        .await;
    let plan = plane.ask(&["plan"]);
    assert_eq!((plan["pods"].as_u64(), length(&plan["errors"])), (Some(600), 0), "{}", plan["errors"]);

    let _controller = plane.replica(&[]);
    plane.until_running(600).await;
    let planned = length(&plan["newNodeClaims"]);
    let nodes = plane.nodes().await;
    assert!((planned..=planned + 1).contains(&nodes.len()), "{planned} planned, {} made", nodes.len());
    let again = plane.ask(&["plan"]);
    assert_eq!((again["pods"].as_u64(), length(&again["newNodeClaims"])), (Some(0), 0));
    let name = node_names(&nodes).pop_first().expect("a node");
    let told = plane.ask(&["explain", "--node", &name]).to_string();
    assert!(told.contains(&name) && told.contains("Never"), "{told}");
    assert_eq!(length(&plane.ask(&["consolidate"])["commands"]), 0);
}
