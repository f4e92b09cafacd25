//! What is counted, by Karpenter's names and labels so that existing dashboards work: what the engine did and how things stand,
//! and what only the shell can tell.

use std::{
    fmt,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicI64, Ordering},
    },
    time::Duration,
};

use karpenter_core::{
    engine::{ActionResult, Counters, Durations, Engine, Metric, MetricLabels, Object},
    provider::{
        CloudProvider, CreateError, Histogram as Values, Measured, Measurement, ProviderError, ProviderErrorKind,
    },
};
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet, text},
    metrics::{MetricType, counter::Counter, family::Family, histogram::Histogram, info::Info},
    registry::Registry,
};
use tokio::sync::watch;

use crate::{census::census, clock, lease::Term, mirror::Mirror};

/// The bounds of histograms of durations, in seconds; all are bounds of Karpenter's too.
const DURATIONS: [f64; 20] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 180.0, 300.0,
    600.0,
];

/// A controller that did nothing for so long does not live any more. Decisions for the largest clusters take seconds.
const ALIVE_FOR_MILLIS: i64 = 120_000;

type Labels = Vec<(&'static str, String)>;
type Counts = Family<Labels, Counter>;

/// Counters, gauges and histograms of a controller.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    engine: OfEngine,
    provider_durations: Family<Labels, Histogram, fn() -> Histogram>,
    provider_errors: Counts,
    decisions: Histogram,
    notes_dropped: Counter,
    watches_lost: Counts,
}

impl Default for Metrics {
    fn default() -> Self {
        let durations: fn() -> Histogram = || Histogram::new(DURATIONS);
        let mut metrics = Self {
            registry: Registry::default(),
            engine: OfEngine::default(),
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

impl Metrics {
    /// Those of a controller, and what its provider measures.
    pub fn of_provider(provider: Arc<dyn CloudProvider>) -> Self {
        let mut metrics = Self::default();
        metrics.registry.register_collector(Box::new(OfProvider(provider)));
        metrics
    }

    /// The registry adds `_total` to the names of counters.
    fn register(&mut self) {
        let all = &mut self.registry;
        all.register_collector(Box::new(self.engine.clone()));
        let build = vec![("version", env!("CARGO_PKG_VERSION")), ("goarch", std::env::consts::ARCH)];
        all.register("karpenter_build", "What was built", Info::new(build));
        let help = "How long calls of the provider take, in seconds";
        all.register("karpenter_cloudprovider_duration_seconds", help, self.provider_durations.clone());
        all.register(
            "karpenter_cloudprovider_errors",
            "Calls of the provider that failed",
            self.provider_errors.clone(),
        );
        let help = "How long the engine takes to decide what to do next, in seconds";
        all.register("karpenter_engine_decision_duration_seconds", help, self.decisions.clone());
        all.register(
            "karpenter_events_dropped",
            "Events that were not written: too many waited",
            self.notes_dropped.clone(),
        );
        all.register("karpenter_watches_lost", "Watches that were lost and began anew", self.watches_lost.clone());
    }

    /// All of it, as text in the OpenMetrics format.
    pub fn encode(&self) -> String {
        let mut out = String::new();
        // Writing to a string cannot fail.
        let _ = text::encode(&mut out, &self.registry);
        out
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

    /// Takes down what the engine did and how things stand.
    pub(crate) fn survey(&self, engine: &Engine, mirror: &Mirror) {
        let objects = mirror.objects().filter(|object| matches!(object, Object::Node(_) | Object::Pod(_))).cloned();
        let reading =
            Reading { counters: engine.counters().clone(), levels: engine.levels(), objects: objects.collect() };
        *self.engine.0.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(reading);
    }
}

/// What an engine said last.
#[derive(Clone, Debug, Default)]
struct OfEngine(Arc<Mutex<Arc<Reading>>>);

#[derive(Debug, Default)]
struct Reading {
    counters: Counters,
    levels: Vec<(Metric, MetricLabels, f64)>,
    /// Nodes and pods, which the engine shares: texts of them are made when somebody asks.
    objects: Vec<Object>,
}

impl Collector for OfEngine {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        // The loop must not wait until all texts are made.
        let reading = Arc::clone(&self.0.lock().unwrap_or_else(PoisonError::into_inner));
        let counts: Vec<_> = reading.counters.counts().collect();
        for series in counts.chunk_by(|a, b| a.0 == b.0) {
            let name = stem(series[0].0.name());
            let mut all = encoder.encode_descriptor(name, "Counted by the engine", None, MetricType::Counter)?;
            for (_, labels, count) in series {
                all.encode_family(*labels)?.encode_counter::<NoLabelSet, _, u64>(count, None)?;
            }
        }
        let durations: Vec<_> = reading.counters.durations().collect();
        for series in durations.chunk_by(|a, b| a.0 == b.0) {
            let help = "Measured by the engine, in seconds";
            let mut all = encoder.encode_descriptor(series[0].0.name(), help, None, MetricType::Histogram)?;
            for (_, labels, durations) in series {
                let sum = durations.sum.as_secs_f64();
                let buckets = buckets(durations);
                all.encode_family(*labels)?.encode_histogram::<NoLabelSet>(sum, durations.count, &buckets, None)?;
            }
        }
        let levels: Vec<_> =
            reading.levels.iter().map(|(metric, labels, level)| (metric.name(), labels, *level)).collect();
        let census = census(reading.objects.iter(), clock::now());
        let census: Vec<_> = census.iter().map(|(name, labels, level)| (*name, labels, *level)).collect();
        encode_gauges(&levels, &mut encoder)?;
        encode_gauges(&census, &mut encoder)
    }
}

/// What a provider measured, asked when somebody wants to know.
struct OfProvider(Arc<dyn CloudProvider>);

impl fmt::Debug for OfProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OfProvider").field(&self.0.name()).finish()
    }
}

impl Collector for OfProvider {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let all = self.0.measurements();
        for series in all.chunk_by(|a, b| a.name == b.name) {
            let (kind, name) = match series[0].value {
                Measured::Count(_) => (MetricType::Counter, stem(series[0].name)),
                Measured::Histogram(_) => (MetricType::Histogram, series[0].name),
                _ => (MetricType::Gauge, series[0].name),
            };
            let mut family = encoder.encode_descriptor(name, "Measured by the provider", None, kind)?;
            for one in series {
                if one.labels.is_empty() {
                    encode_measured(&mut family, one)?;
                } else {
                    encode_measured(&mut family.encode_family(&one.labels)?, one)?;
                }
            }
        }
        Ok(())
    }
}

fn encode_measured(encoder: &mut MetricEncoder<'_>, one: &Measurement) -> fmt::Result {
    match &one.value {
        Measured::Count(count) => encoder.encode_counter::<NoLabelSet, _, u64>(count, None),
        Measured::Level(level) => encoder.encode_gauge(level),
        Measured::Histogram(values) => {
            encoder.encode_histogram::<NoLabelSet>(values.sum, values.count, &apart(values), None)
        }
        _ => Ok(()),
    }
}

/// The bounds of a histogram, each with how many values are above the one before and not above it.
fn apart(values: &Values) -> Vec<(f64, u64)> {
    let mut below = 0;
    let mut out: Vec<(f64, u64)> = Vec::new();
    for (bound, at_most) in values.at_most.iter().copied().chain([(f64::MAX, values.count)]) {
        out.push((bound, at_most - below));
        below = at_most;
    }
    out
}

/// Writes gauges of which those of one name are together.
fn encode_gauges(gauges: &[(&str, &MetricLabels, f64)], encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    for series in gauges.chunk_by(|a, b| a.0 == b.0) {
        let mut all = encoder.encode_descriptor(series[0].0, "As it is now", None, MetricType::Gauge)?;
        for (_, labels, level) in series {
            if labels.is_empty() {
                all.encode_gauge(level)?;
            } else {
                all.encode_family(*labels)?.encode_gauge(level)?;
            }
        }
    }
    Ok(())
}

/// The name of a count without its end, which the registry adds.
fn stem(name: &'static str) -> &'static str {
    name.strip_suffix("_total").unwrap_or(name)
}

/// The bounds of an engine's durations in seconds, each with how many are above the one before and not above it.
fn buckets(durations: &Durations) -> Vec<(f64, u64)> {
    let bounds = (0..Durations::BUCKETS).map(|power| f64::from(1_u32 << power)).zip(&durations.at_most);
    let mut below = 0;
    let mut out: Vec<(f64, u64)> = Vec::new();
    for (bound, at_most) in bounds {
        out.push((bound, at_most - below));
        below = *at_most;
    }
    out.push((f64::MAX, durations.count - below));
    out
}

/// The kind of the error of a provider, if there is one.
fn failure(result: &ActionResult) -> Option<String> {
    let name = match result {
        ActionResult::Launched(Err(CreateError::InsufficientCapacity { .. })) => "InsufficientCapacityError",
        ActionResult::Launched(Err(CreateError::NodeClassNotReady { .. })) => "NodeClassNotReadyError",
        ActionResult::Launched(Err(CreateError::NothingCompatible { .. })) => "CreateError",
        result => match provider_error(result)?.kind {
            ProviderErrorKind::NodeClassNotReady => "NodeClassNotReadyError",
            kind => kind.name(),
        },
    };
    Some(name.to_owned())
}

/// Why a provider could not do something, whatever it was.
pub(crate) fn provider_error(result: &ActionResult) -> Option<&ProviderError> {
    match result {
        ActionResult::Launched(Err(CreateError::Provider(error)))
        | ActionResult::Terminated(Err(error))
        | ActionResult::Found(Err(error))
        | ActionResult::Listed(Err(error))
        | ActionResult::Catalog(Err(error))
        | ActionResult::Drift(Err(error))
        | ActionResult::Events(Err(error)) => Some(error),
        _ => None,
    }
}

/// Whether a controller lives, and whether it knows all objects.
#[derive(Debug, Default)]
pub struct Probes {
    beat_millis: AtomicI64,
    is_synced: AtomicBool,
    /// Says whether it acts, once it works.
    leads: OnceLock<watch::Receiver<Term>>,
}

impl Probes {
    pub(crate) fn beat(&self, is_synced: bool) {
        self.beat_on();
        self.is_synced.store(is_synced, Ordering::Relaxed);
    }

    /// Whether it acts is said there from now on.
    pub(crate) fn follow(&self, leads: &watch::Receiver<Term>) {
        self.leads.get_or_init(|| leads.clone());
    }

    /// It lives, and nothing else has changed.
    pub(crate) fn beat_on(&self) {
        self.beat_millis.store(clock::now().as_millis(), Ordering::Relaxed);
    }

    /// Whether it did something lately: for `/healthz`.
    pub fn is_alive(&self) -> bool {
        clock::now().as_millis() - self.beat_millis.load(Ordering::Relaxed) < ALIVE_FOR_MILLIS
    }

    /// Whether it knows all objects: for `/readyz`. A replica that waits for the lease is ready too.
    pub fn is_ready(&self) -> bool {
        self.is_synced.load(Ordering::Relaxed)
    }

    /// Whether it acts, and may do so at this moment.
    pub fn is_leader(&self) -> bool {
        self.leads.get().is_some_and(|leads| leads.borrow().is_on())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use karpenter_core::{
        Catalog, Timestamp,
        api::{Node, NodeClaim, NodePool, ObjectMeta},
        engine::{EngineOptions, Event, Object},
        provider::{Deletion, Instance, Launched, Meter, ProviderError, ProviderId},
    };

    use super::*;

    #[test]
    fn what_the_engine_says_is_told_by_karpenters_names() {
        let (metrics, mut engine) = (Metrics::default(), Engine::new(EngineOptions::default()));
        let mut node = Node::default();
        node.metadata = ObjectMeta::named("n");
        node.metadata.creation_timestamp = Some(Timestamp::from_millis(0));
        let now = Timestamp::from_millis(0);
        let mut mirror = Mirror::default();
        for event in [Event::Applied(Object::Node(Arc::new(node))), Event::Synced] {
            mirror.observe(&event);
            engine.observe(event, now);
        }
        metrics.survey(&engine, &mirror);
        metrics.provider_called("kwok", "List", Duration::from_millis(20), &ActionResult::Listed(Ok(Vec::new())));
        let text = metrics.encode();
        for line in [
            "\nkarpenter_cluster_state_node_count 1.0",
            "\nkarpenter_cluster_state_synced 1.0",
            "\nkarpenter_build_info{",
            "\nkarpenter_nodes_current_lifetime_seconds{",
            "\nkarpenter_cloudprovider_duration_seconds_count{controller=\"engine\",method=\"List\",provider=\"kwok\"} 1",
        ] {
            assert!(text.contains(line), "{line} in {text}");
        }
    }

    /// A node with a pod and the pod of a daemonset, and a pod that waits.
    fn cluster() -> Mirror {
        fn read<T: serde::de::DeserializeOwned>(text: &str) -> Arc<T> {
            Arc::new(serde_json::from_str(text).expect(text))
        }
        let node = r#"{"metadata": {"name": "n", "creationTimestamp": "2026-01-01T00:00:00Z"},
            "status": {"capacity": {"cpu": "2"}, "allocatable": {"cpu": "2"}}}"#;
        let pod = r#"{"metadata": {"name": "p", "namespace": "a"}, "status": {"phase": "Running"},
            "spec": {"nodeName": "n", "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}}"#;
        let daemon = r#"{"metadata": {"name": "d", "namespace": "a",
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "u"}]},
            "spec": {"nodeName": "n", "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}}"#;
        let waits = r#"{"metadata": {"name": "w", "namespace": "a", "creationTimestamp": "2026-01-01T00:00:00Z"},
            "status": {"phase": "Pending"}}"#;
        let mut mirror = Mirror::default();
        for object in
            [Object::Node(read(node)), Object::Pod(read(pod)), Object::Pod(read(daemon)), Object::Pod(read(waits))]
        {
            mirror.observe(&Event::Applied(object));
        }
        mirror
    }

    /// The names that a controller exports, whatever its provider.
    fn names() -> BTreeSet<String> {
        let metrics = Metrics::default();
        metrics.survey(&Engine::new(EngineOptions::default()), &cluster());
        let failed = ActionResult::Listed(Err(ProviderError::new("p", "list", ProviderErrorKind::Other, "")));
        metrics.provider_called("p", "List", Duration::ZERO, &failed);
        metrics.watch_lost("Node");
        let text = metrics.encode();
        let described = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
        let full = |(name, kind): (&str, &str)| match kind {
            "counter" => format!("{name}_total"),
            "info" => format!("{name}_info"),
            _ => name.to_owned(),
        };
        described.map(full).chain(Metric::ALL.map(|metric| metric.name().to_owned())).collect()
    }

    /// The words of a file of this repository that begin as names of metrics.
    fn named(file: &str) -> BTreeSet<String> {
        let path = format!("{}/../{file}", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(&path).expect(&path);
        let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '_' | ':')));
        words.filter(|word| word.starts_with("karpenter_") && !word.contains(':')).map(str::to_owned).collect()
    }

    #[test]
    fn all_names_begin_as_karpenters_do() {
        let others: Vec<_> = names().into_iter().filter(|name| !name.starts_with("karpenter_")).collect();
        assert!(others.is_empty(), "{others:?}");
    }

    #[test]
    fn what_the_dashboard_and_the_book_name_is_exported() {
        let exported = names();
        for file in ["deploy/grafana/karpenter.json", "docs/src/compatibility.md"] {
            let named = named(file);
            let is_there = |name: &&String| exported.contains(name.strip_suffix("_bucket").unwrap_or(name));
            let missing: Vec<_> = named.iter().filter(|name| !is_there(name)).collect();
            assert!(!named.is_empty() && missing.is_empty(), "{file}: {missing:?}");
        }
    }

    #[test]
    fn each_name_is_described_once() {
        let (metrics, mut engine) = (Metrics::default(), Engine::new(EngineOptions::default()));
        let (now, mut mirror) = (Timestamp::from_millis(0), Mirror::default());
        let mut events = Vec::new();
        for name in ["a", "b"] {
            let mut pool = NodePool::named(name);
            pool.spec.limits.insert("cpu".into(), karpenter_core::Quantity::from_units(8));
            pool.status.resources.insert("cpu".into(), karpenter_core::Quantity::from_units(4));
            events.push(Event::Applied(Object::NodePool(Arc::new(pool))));
        }
        for event in events.into_iter().chain([Event::Synced]) {
            mirror.observe(&event);
            engine.observe(event, now);
        }
        metrics.survey(&engine, &mirror);
        let text = metrics.encode();
        let mut names: Vec<&str> = text.lines().filter(|line| line.starts_with("# TYPE ")).collect();
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all, "{text}");
        assert_eq!(text.lines().filter(|line| line.starts_with("karpenter_nodepools_limit{")).count(), 2, "{text}");
    }

    #[test]
    fn what_a_provider_measures_is_told_with_its_labels() {
        struct Measuring;
        #[async_trait::async_trait]
        impl CloudProvider for Measuring {
            fn name(&self) -> &'static str {
                "measuring"
            }
            async fn catalog(&self, _: &NodePool) -> Result<Arc<Catalog>, ProviderError> {
                unreachable!()
            }
            async fn create(&self, _: &NodeClaim) -> Result<Launched, CreateError> {
                unreachable!()
            }
            async fn delete(&self, _: &ProviderId) -> Result<Deletion, ProviderError> {
                unreachable!()
            }
            async fn get(&self, _: &ProviderId) -> Result<Option<Instance>, ProviderError> {
                unreachable!()
            }
            async fn list(&self) -> Result<Vec<Instance>, ProviderError> {
                unreachable!()
            }
            fn measurements(&self) -> Vec<Measurement> {
                let mut meter = Meter::default();
                meter.count("karpenter_interruption_received_messages_total", vec![("message_type", "no_op".into())]);
                meter.count("karpenter_interruption_deleted_messages_total", Vec::new());
                meter.set("karpenter_ec2nodeclasses_userdata_bytes", vec![("nodeclass", "a".into())], 7.0);
                meter.set("operator_ec2nodeclass_status_condition_count", vec![("name", "a".into())], 1.0);
                for size in [1.0, 6.0] {
                    meter.observe("karpenter_batch_size", vec![("batcher", "b".into())], &[1.0, 5.0], size);
                }
                meter.measurements()
            }
        }
        let text = Metrics::of_provider(Arc::new(Measuring)).encode();
        for line in [
            "karpenter_interruption_received_messages_total{message_type=\"no_op\"} 1",
            "karpenter_interruption_deleted_messages_total 1",
            "karpenter_ec2nodeclasses_userdata_bytes{nodeclass=\"a\"} 7.0",
            "operator_ec2nodeclass_status_condition_count{name=\"a\"} 1.0",
            "karpenter_batch_size_bucket{le=\"5.0\",batcher=\"b\"} 1",
            "karpenter_batch_size_bucket{le=\"+Inf\",batcher=\"b\"} 2",
            "karpenter_batch_size_sum{batcher=\"b\"} 7.0",
        ] {
            assert!(text.lines().any(|own| own == line), "{line} in {text}");
        }
    }

    #[test]
    fn buckets_add_up() {
        let mut durations = Durations::default();
        durations.count = 5;
        durations.at_most = vec![1, 1, 4];
        assert_eq!(buckets(&durations), [(1.0, 1), (2.0, 0), (4.0, 3), (f64::MAX, 1)]);
    }
}
