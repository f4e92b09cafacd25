//! The life of a cluster.

use std::collections::BTreeSet;

use karpenter_core::{
    api::{Node, NodeClaim, Pod},
    labels,
};
use serde_json::{Value, json};

use crate::plane::Plane;

pub(crate) const POOL: &str = r#"
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: general}
spec:
  template:
    spec:
      nodeClassRef: {group: karpenter.kwok.sh, kind: KWOKNodeClass, name: default}
      expireAfter: Never
      requirements: [{key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}]
  disruption:
    consolidationPolicy: WhenEmptyOrUnderutilized
    consolidateAfter: 0s
    budgets: [{nodes: "100%"}]
"#;

pub(crate) fn deployment(name: &str, replicas: usize, mut spec: Value) -> String {
    let requests = json!({"cpu": "500m", "memory": "512Mi"});
    spec["containers"] = json!([{"name": "c", "image": "pause", "resources": {"requests": requests}}]);
    spec["terminationGracePeriodSeconds"] = 0.into();
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "replicas": replicas, "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": spec},
        },
    });
    deployment.to_string()
}

fn names<T>(all: &[T], name: impl Fn(&T) -> &str) -> BTreeSet<String> {
    all.iter().map(|object| name(object).to_owned()).collect()
}

pub(crate) fn claim_names(claims: &[NodeClaim]) -> BTreeSet<String> {
    names(claims, |claim| claim.name())
}

pub(crate) fn node_names(nodes: &[Node]) -> BTreeSet<String> {
    names(nodes, |node| &node.metadata.name)
}

/// Waits until each claim has a machine, and each machine a claim.
pub(crate) async fn until_tidy(plane: &Plane) {
    let is_tidy = async || claim_names(&plane.claims().await) == node_names(&plane.nodes().await);
    plane.until("each claim has a machine of its name, and each machine a claim", is_tidy).await;
}

/// Pods come and get nodes, go and take them along; a disruption budget is honoured; a pool that goes takes its nodes along.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_come_and_go_and_nodes_with_them() {
    let Some(plane) = Plane::start("come_and_go").await else { return };
    let _controller = plane.replica(&[]);
    plane.apply(POOL).await;
    let spread = json!({"topologySpreadConstraints": [{
        "maxSkew": 1, "topologyKey": labels::ZONE, "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
    }]});
    plane.apply(&deployment("web", 24, spread)).await;
    plane.until_running(24).await;
    until_tidy(&plane).await;
    let nodes = plane.nodes().await;
    let zones: BTreeSet<&str> = nodes.iter().map(|node| node.metadata.labels[labels::ZONE].as_str()).collect();
    assert!(zones.len() >= 3, "{zones:?}");
    assert!(nodes.iter().all(|node| node.metadata.labels[labels::CAPACITY_TYPE] == "on-demand"));

    // Half of the room is not needed any more, but no more than one pod may be away at a time.
    let budget = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "web", "namespace": "default"},
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "web"}}},
    });
    plane.apply(&budget.to_string()).await;
    let bill_before = cpus(&plane).await;
    plane.patch("apps/v1", "Deployment", "web", json!({"spec": {"replicas": 9}})).await;
    plane.until("there is less room", async || cpus(&plane).await * 2 <= bill_before + 6).await;
    plane.until_running(9).await;

    plane.patch("apps/v1", "Deployment", "web", json!({"spec": {"replicas": 0}})).await;
    plane
        .until("empty nodes are gone", async || plane.nodes().await.is_empty() && plane.claims().await.is_empty())
        .await;

    plane.patch("apps/v1", "Deployment", "web", json!({"spec": {"replicas": 3}})).await;
    plane.until_running(3).await;
    // The pods of the last nodes have nowhere to go, so that a budget would keep them.
    plane.delete("policy/v1", "PodDisruptionBudget", "web").await;
    plane.delete("karpenter.sh/v1", "NodePool", "general").await;
    plane
        .until("the pool's nodes are gone", async || plane.nodes().await.is_empty() && plane.claims().await.is_empty())
        .await;
}

/// How many cores all nodes have.
async fn cpus(plane: &Plane) -> i64 {
    let nodes = plane.nodes().await;
    nodes
        .iter()
        .filter_map(|node| node.status.capacity.get("cpu"))
        .map(|cpu| cpu.to_string().parse::<i64>().unwrap_or(1))
        .sum()
}

/// A node that is not what its pool asks for any more is replaced, unless a pod on it must not be disturbed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_drifted_are_replaced() {
    let Some(plane) = Plane::start("drift").await else { return };
    let _controller = plane.replica(&[]);
    // Nothing but drift moves a pod.
    plane.apply(&POOL.replace("consolidateAfter: 0s", "consolidateAfter: Never")).await;
    plane.apply(&deployment("web", 4, json!({}))).await;
    plane.until_running(4).await;
    let before = claim_names(&plane.claims().await);
    let Pod { metadata, spec, .. } = plane.pods().await.swap_remove(0);
    let (pod, kept) = (metadata.name, spec.node_name);
    let shield = |value: Value| json!({"metadata": {"annotations": {labels::DO_NOT_DISRUPT: value}}});
    plane.patch("v1", "Pod", &pod, shield("true".into())).await;
    let change = json!({"spec": {"template": {"metadata": {"labels": {"team": "shop"}}}}});
    plane.patch("karpenter.sh/v1", "NodePool", "general", change).await;
    plane
        .until("the drift is seen", async || {
            plane.claims().await.iter().any(|claim| claim.name() == kept && claim.status.is_true("Drifted"))
        })
        .await;
    tokio::time::sleep(std::time::Duration::from_secs(30)).await;
    let node = plane.nodes().await.into_iter().find(|node| node.metadata.name == kept);
    assert!(node.is_some_and(|node| node.metadata.deletion_timestamp.is_none()), "a pod must not be disturbed");

    plane.patch("v1", "Pod", &pod, shield(Value::Null)).await;
    plane
        .until("new nodes have the label", async || {
            let (claims, nodes) = (plane.claims().await, plane.nodes().await);
            !nodes.is_empty()
                && nodes.iter().all(|node| node.metadata.labels.get("team").is_some_and(|team| team == "shop"))
                && claim_names(&claims).is_disjoint(&before)
        })
        .await;
    plane.until_running(4).await;
}

/// A node that is told to go is drained as far as a disruption budget allows at a time, and is there until it is empty.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_budget_is_honoured_while_a_node_goes() {
    let Some(plane) = Plane::start("budget").await else { return };
    let metrics = Plane::free_port().await;
    let _controller = plane.replica(&["--metrics-port", &metrics.to_string()]);
    let of_four = "requirements: [{key: karpenter.kwok.sh/instance-cpu, operator: In, values: [\"4\"]}, ";
    plane.apply(&POOL.replace("requirements: [", of_four)).await;
    let budget = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "db", "namespace": "default"},
        "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"app": "db"}}},
    });
    plane.apply(&budget.to_string()).await;
    plane.apply(&deployment("db", 6, json!({}))).await;
    plane.until_running(6).await;
    let claims = plane.claims().await;
    let nodes = plane.nodes().await;
    assert_eq!((claims.len(), nodes.len()), (1, 1), "six pods of half a core need one node of four cores");
    for meta in [&claims[0].metadata, &nodes[0].metadata] {
        assert!(meta.finalizers.iter().any(|finalizer| finalizer == labels::TERMINATION), "{:?}", meta.finalizers);
    }
    plane.delete("karpenter.sh/v1", "NodeClaim", claims[0].name()).await;
    let refused = "karpenter_pods_eviction_requests_total{code=\"429\"} ";
    plane
        .until("evictions are refused", async || {
            let text = Plane::get(metrics, "/metrics").await;
            text.lines().any(|line| line.starts_with(refused) && line != format!("{refused}0"))
        })
        .await;
    let serves = |pod: &Pod| pod.status.phase == "Running" && pod.metadata.deletion_timestamp.is_none();
    assert_eq!(plane.pods().await.iter().filter(|pod| serves(pod)).count(), 6);
    plane.patch("policy/v1", "PodDisruptionBudget", "db", json!({"spec": {"maxUnavailable": 1}})).await;
    plane
        .until("the node is gone", async || {
            let running = plane.pods().await.iter().filter(|pod| serves(pod)).count();
            assert!(running >= 5, "{running} of 6 pods run");
            claim_names(&plane.claims().await).is_disjoint(&claim_names(&claims))
        })
        .await;
    plane.until_running(6).await;
}

/// Pods that keep apart get a node each, and only pods that tolerate a taint get nodes with it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_keep_apart_and_away_from_taints() {
    let Some(plane) = Plane::start("apart").await else { return };
    let _controller = plane.replica(&[]);
    plane.apply(POOL).await;
    // Were it not for the taint, all pods would go to the heavier pool.
    let taint = "spec:\n      taints: [{key: dedicated, value: batch, effect: NoSchedule}]\n      nodeClassRef";
    let batch = POOL.replace("name: general", "name: batch").replace("spec:\n      nodeClassRef", taint);
    plane.apply(&batch.replace("spec:\n  template", "spec:\n  weight: 50\n  template")).await;
    let apart = json!({"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"topologyKey": labels::HOSTNAME, "labelSelector": {"matchLabels": {"app": "apart"}}},
    ]}}});
    plane.apply(&deployment("apart", 3, apart)).await;
    let tolerant = json!({
        "tolerations": [{"key": "dedicated", "operator": "Exists"}], "nodeSelector": {labels::NODE_POOL: "batch"},
    });
    plane.apply(&deployment("tolerant", 2, tolerant)).await;
    plane.until_running(5).await;
    plane
        .until("each pool has the nodes of its pods and no other", async || {
            let (pods, nodes) = (plane.pods().await, plane.nodes().await);
            let of_apart = nodes_of_pods(&pods, "apart");
            of_apart.len() == 3
                && of_apart == nodes_of_pool(&nodes, "general")
                && nodes_of_pods(&pods, "tolerant") == nodes_of_pool(&nodes, "batch")
        })
        .await;
    let nodes = plane.nodes().await;
    let mut of_batch = nodes.iter().filter(|node| node.metadata.labels[labels::NODE_POOL] == "batch");
    assert!(of_batch.all(|node| node.spec.taints.iter().any(|taint| taint.key == "dedicated")));
}

fn nodes_of_pool(nodes: &[Node], pool: &str) -> BTreeSet<String> {
    let of_pool = nodes.iter().filter(|node| node.metadata.labels[labels::NODE_POOL] == pool);
    of_pool.map(|node| node.metadata.name.clone()).collect()
}

fn nodes_of_pods(pods: &[Pod], app: &str) -> BTreeSet<String> {
    pods.iter().filter(|pod| pod.metadata.labels["app"] == app).map(|pod| pod.spec.node_name.clone()).collect()
}

/// A node goes when its time is over, and its pods find another one before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_expire() {
    let Some(plane) = Plane::start("expiry").await else { return };
    let _controller = plane.replica(&[]);
    plane.apply(&POOL.replace("expireAfter: Never", "expireAfter: 40s")).await;
    plane.apply(&deployment("web", 2, json!({}))).await;
    plane.until_running(2).await;
    let before = claim_names(&plane.claims().await);
    plane.until("all nodes are other ones", async || claim_names(&plane.claims().await).is_disjoint(&before)).await;
    plane.until_running(2).await;
}

/// A pod with a volume gets a node in the zone of the volume.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_follow_their_volumes() {
    let Some(plane) = Plane::start("volumes").await else { return };
    let _controller = plane.replica(&[]);
    plane.apply(POOL).await;
    let zone = "test-zone-b";
    let volume = json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "disk"},
        "spec": {
            "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "",
            "claimRef": {"namespace": "default", "name": "disk"}, "csi": {"driver": "disk.example.com", "volumeHandle": "1"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [
                {"key": labels::ZONE, "operator": "In", "values": [zone]},
            ]}]}},
        },
    });
    let claim = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "disk", "namespace": "default"},
        "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": "", "volumeName": "disk",
            "resources": {"requests": {"storage": "1Gi"}},
        },
    });
    plane.apply(&volume.to_string()).await;
    plane.apply(&claim.to_string()).await;
    let spec = json!({"volumes": [{"name": "disk", "persistentVolumeClaim": {"claimName": "disk"}}]});
    plane.apply(&deployment("db", 1, spec)).await;
    plane.until_running(1).await;
    let nodes = plane.nodes().await;
    assert_eq!(nodes.len(), 1);
    assert_eq!(nodes[0].metadata.labels[labels::ZONE], zone);
}
