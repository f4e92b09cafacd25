//! What is counted, by Karpenter's names and labels so that existing dashboards work, and what only we can tell.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering},
    time::Duration,
};

use karpenter_core::{
    ResourceList,
    api::{Node, NodeClaim, ObjectMeta},
    engine::{ActionResult, Event, Object, ObjectRef, Refusal},
    labels,
    provider::CreateError,
};
use prometheus_client::{
    encoding::text,
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::Registry,
};

use crate::{clock, mirror::Mirror};

/// The bounds of histograms of durations, in seconds; all are bounds of Karpenter's too.
const DURATIONS: [f64; 20] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 180.0, 300.0,
    600.0,
];

/// A controller that did nothing for so long does not live any more. Decisions for the largest clusters take seconds.
const ALIVE_FOR_MILLIS: i64 = 120_000;

type Labels = Vec<(&'static str, String)>;
type Counts = Family<Labels, Counter>;
type Amounts = Family<Labels, Gauge<f64, AtomicU64>>;
type Durations = Family<Labels, Histogram, fn() -> Histogram>;

/// Counters, gauges and histograms of a controller.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    claims_created: Counts,
    claims_terminated: Counts,
    nodes_created: Counts,
    nodes_terminated: Counts,
    pool_limits: Amounts,
    pool_usage: Amounts,
    evictions: Counts,
    node_count: Gauge,
    is_synced: Gauge,
    pending_pods: Gauge,
    provider_durations: Durations,
    provider_errors: Counts,
    decisions: Histogram,
    notes_dropped: Counter,
    watches_lost: Counts,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut metrics = Self {
            registry: Registry::with_prefix("karpenter"),
            claims_created: Family::default(),
            claims_terminated: Family::default(),
            nodes_created: Family::default(),
            nodes_terminated: Family::default(),
            pool_limits: Family::default(),
            pool_usage: Family::default(),
            evictions: Family::default(),
            node_count: Gauge::default(),
            is_synced: Gauge::default(),
            pending_pods: Gauge::default(),
            provider_durations: Family::new_with_constructor(durations),
            provider_errors: Family::default(),
            decisions: durations(),
            notes_dropped: Counter::default(),
            watches_lost: Family::default(),
        };
        metrics.register();
        metrics
    }
}

fn durations() -> Histogram {
    Histogram::new(DURATIONS)
}

impl Metrics {
    /// The registry adds `_total` to the names of counters.
    fn register(&mut self) {
        let all = &mut self.registry;
        all.register("nodeclaims_created", "NodeClaims created.", self.claims_created.clone());
        all.register("nodeclaims_terminated", "NodeClaims that are gone.", self.claims_terminated.clone());
        all.register("nodes_created", "Nodes that registered.", self.nodes_created.clone());
        all.register("nodes_terminated", "Nodes that are gone.", self.nodes_terminated.clone());
        all.register("nodepools_limit", "The limits of NodePools.", self.pool_limits.clone());
        all.register("nodepools_usage", "What the nodes of NodePools have.", self.pool_usage.clone());
        all.register("pods_eviction_requests", "Evictions by the answer of the API server.", self.evictions.clone());
        all.register("cluster_state_node_count", "Nodes in the cluster.", self.node_count.clone());
        all.register("cluster_state_synced", "Whether all objects are known.", self.is_synced.clone());
        all.register("pods_pending", "Pods that wait for a node.", self.pending_pods.clone());
        let help = "How long calls of the provider take, in seconds.";
        all.register("cloudprovider_duration_seconds", help, self.provider_durations.clone());
        all.register("cloudprovider_errors", "Calls of the provider that failed.", self.provider_errors.clone());
        let help = "How long the engine takes to decide what to do next, in seconds.";
        all.register("engine_decision_duration_seconds", help, self.decisions.clone());
        all.register("events_dropped", "Events that were not written: too many waited.", self.notes_dropped.clone());
        all.register("watches_lost", "Watches that were lost and began anew.", self.watches_lost.clone());
    }

    /// All of it, as text in the OpenMetrics format.
    pub fn encode(&self) -> String {
        let mut out = String::new();
        // Writing to a string cannot fail.
        let _ = text::encode(&mut out, &self.registry);
        out
    }

    pub(crate) fn claim_created(&self, claim: &NodeClaim) {
        let labels = vec![
            ("reason", "provisioned".to_owned()),
            ("nodepool", label(&claim.metadata, labels::NODE_POOL)),
            ("min_values_relaxed", annotation(&claim.metadata, "karpenter.sh/nodeclaim-min-values-relaxed", "false")),
        ];
        self.claims_created.get_or_create(&labels).inc();
    }

    pub(crate) fn evicted(&self, result: &ActionResult) {
        let code = match result {
            ActionResult::Written => "201",
            ActionResult::Refused(Refusal::NotFound) => "404",
            ActionResult::Refused(Refusal::Conflict | Refusal::AlreadyExists) => "409",
            ActionResult::Refused(Refusal::TooManyRequests(_)) => "429",
            _ => "500",
        };
        self.evictions.get_or_create(&vec![("code", code.to_owned())]).inc();
    }

    pub(crate) fn provider_called(&self, provider: &str, method: &'static str, took: Duration, result: &ActionResult) {
        let call =
            vec![("controller", "engine".to_owned()), ("method", method.to_owned()), ("provider", provider.to_owned())];
        self.provider_durations.get_or_create(&call).observe(took.as_secs_f64());
        if let Some(error) = failure(result) {
            let failed: Labels = call.into_iter().chain([("error", error)]).collect();
            self.provider_errors.get_or_create(&failed).inc();
        }
    }

    pub(crate) fn decided(&self, took: Duration) {
        self.decisions.observe(took.as_secs_f64());
    }

    pub(crate) fn note_dropped(&self) {
        self.notes_dropped.inc();
    }

    pub(crate) fn watch_lost(&self, kind: &'static str) {
        self.watches_lost.get_or_create(&vec![("kind", kind.to_owned())]).inc();
    }

    /// Counts what comes and goes; `before` is the cluster without this event.
    pub(crate) fn observe(&self, event: &Event, before: &Mirror) {
        match event {
            Event::Applied(Object::Node(node)) => {
                let was_registered = before.get_node(&node.metadata.name).is_some_and(is_registered);
                if is_registered(node) && !was_registered {
                    self.nodes_created.get_or_create(&of_node(node)).inc();
                }
            }
            Event::Deleted(ObjectRef::Node(name)) => {
                if let Some(node) = before.get_node(name).filter(|node| is_registered(node)) {
                    self.nodes_terminated.get_or_create(&of_node(node)).inc();
                }
            }
            Event::Deleted(ObjectRef::NodeClaim(name)) => {
                if let Some(claim) = before.get_claim(name) {
                    let meta = &claim.metadata;
                    let labels = vec![
                        ("nodepool", label(meta, labels::NODE_POOL)),
                        ("capacity_type", label(meta, labels::CAPACITY_TYPE)),
                        ("zone", label(meta, labels::ZONE)),
                    ];
                    self.claims_terminated.get_or_create(&labels).inc();
                }
            }
            _ => {}
        }
    }

    /// Brings the gauges up to date.
    pub(crate) fn survey(&self, cluster: &Mirror, is_synced: bool) {
        self.is_synced.set(i64::from(is_synced));
        let (mut nodes, mut pending) = (0, 0);
        let mut usage: BTreeMap<String, ResourceList> = BTreeMap::new();
        self.pool_limits.clear();
        self.pool_usage.clear();
        for object in cluster.objects() {
            match object {
                Object::Node(node) => {
                    nodes += 1;
                    let pool = label(&node.metadata, labels::NODE_POOL);
                    if !pool.is_empty() {
                        usage.entry(pool).or_default().add(&node.status.capacity);
                    }
                }
                Object::Pod(pod) => pending += i64::from(pod.spec.node_name.is_empty() && pod.is_active()),
                Object::NodePool(pool) => set(&self.pool_limits, pool.name(), &pool.spec.limits),
                _ => {}
            }
        }
        for (pool, amounts) in &usage {
            set(&self.pool_usage, pool, amounts);
        }
        self.node_count.set(nodes);
        self.pending_pods.set(pending);
    }
}

fn set(amounts: &Amounts, pool: &str, resources: &ResourceList) {
    for (name, quantity) in resources.iter() {
        let labels = vec![("resource_type", name.to_string().replace('-', "_")), ("nodepool", pool.to_owned())];
        amounts.get_or_create(&labels).set(quantity.as_f64());
    }
}

fn label(meta: &ObjectMeta, key: &str) -> String {
    meta.labels.get(key).cloned().unwrap_or_default()
}

fn annotation(meta: &ObjectMeta, key: &str, default: &str) -> String {
    meta.annotations.get(key).map_or(default, String::as_str).to_owned()
}

fn of_node(node: &Node) -> Labels {
    vec![("nodepool", label(&node.metadata, labels::NODE_POOL)), ("zone", label(&node.metadata, labels::ZONE))]
}

fn is_registered(node: &Node) -> bool {
    node.metadata.labels.contains_key(labels::REGISTERED)
}

/// The kind of the error of a provider, if there is one.
fn failure(result: &ActionResult) -> Option<String> {
    let error = match result {
        ActionResult::Launched(Err(CreateError::InsufficientCapacity { .. })) => {
            return Some("InsufficientCapacityError".to_owned());
        }
        ActionResult::Launched(Err(CreateError::NodeClassNotReady { .. })) => {
            return Some("NodeClassNotReadyError".to_owned());
        }
        ActionResult::Launched(Err(CreateError::NothingCompatible { .. })) => return Some("CreateError".to_owned()),
        ActionResult::Launched(Err(CreateError::Provider(error)))
        | ActionResult::Terminated(Err(error))
        | ActionResult::Found(Err(error))
        | ActionResult::Listed(Err(error))
        | ActionResult::Catalog(Err(error))
        | ActionResult::Drift(Err(error))
        | ActionResult::Events(Err(error)) => error,
        _ => return None,
    };
    Some(format!("{:?}", error.kind))
}

/// Whether a controller lives, and whether it knows all objects.
#[derive(Debug, Default)]
pub struct Probes {
    beat_millis: AtomicI64,
    is_synced: AtomicBool,
    is_leader: AtomicBool,
}

impl Probes {
    pub(crate) fn beat(&self, is_synced: bool, is_leader: bool) {
        self.beat_millis.store(clock::now().as_millis(), Ordering::Relaxed);
        self.is_synced.store(is_synced, Ordering::Relaxed);
        self.is_leader.store(is_leader, Ordering::Relaxed);
    }

    /// Whether it did something lately: for `/healthz`.
    pub fn is_alive(&self) -> bool {
        clock::now().as_millis() - self.beat_millis.load(Ordering::Relaxed) < ALIVE_FOR_MILLIS
    }

    /// Whether it knows all objects: for `/readyz`. A replica that waits for the lease is ready too.
    pub fn is_ready(&self) -> bool {
        self.is_synced.load(Ordering::Relaxed)
    }

    /// Whether it acts.
    pub fn is_leader(&self) -> bool {
        self.is_leader.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn what_comes_and_goes_is_counted_by_karpenters_names() {
        let (metrics, mut mirror) = (Metrics::default(), Mirror::default());
        let mut node = Node::default();
        node.metadata = ObjectMeta::named("n");
        let put = |node: &Node, mirror: &mut Mirror| {
            let event = Event::Applied(Object::Node(Arc::new(node.clone())));
            metrics.observe(&event, mirror);
            mirror.observe(&event);
        };
        put(&node, &mut mirror);
        for (key, value) in [(labels::NODE_POOL, "p"), (labels::ZONE, "a"), (labels::REGISTERED, "true")] {
            node.metadata.labels.insert(key.to_owned(), value.to_owned());
        }
        put(&node, &mut mirror);
        put(&node, &mut mirror);
        metrics.observe(&Event::Deleted(ObjectRef::Node("n".to_owned())), &mirror);
        metrics.survey(&mirror, true);
        let text = metrics.encode();
        for line in [
            "karpenter_nodes_created_total{nodepool=\"p\",zone=\"a\"} 1",
            "karpenter_nodes_terminated_total{nodepool=\"p\",zone=\"a\"} 1",
            "karpenter_cluster_state_node_count 1",
            "karpenter_cluster_state_synced 1",
        ] {
            assert!(text.contains(line), "{line} in {text}");
        }
    }
}
