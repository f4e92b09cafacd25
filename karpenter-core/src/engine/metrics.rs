//! What an engine did so far and how things stand, by the names under which Karpenter exports it.
//!
//! Labels are pools, zones, capacity types and reasons: of each series there are as many as a cluster has of these.

use std::{collections::BTreeMap, time::Duration};

use serde::Serialize;

use super::{
    Engine, Refusal,
    claims::{NODE_REPAIR, SOLD_OUT},
    disruption::DISRUPTED,
    store::waits,
};
use crate::{
    Offering, Price, Quantity, ResourceName, Timestamp,
    api::{
        Node, NodeClaim, ObjectMeta,
        conditions::{DISRUPTION_REASON, condition},
    },
    disrupt::{Command, Method},
    labels,
};

/// Something that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum Metric {
    /// Claims that were asked for, by `nodepool` and `reason`.
    ClaimsCreated,
    /// Claims that are gone, by `nodepool`, `capacity_type` and `zone`.
    ClaimsTerminated,
    /// Claims of which the engine asked for the deletion, by `nodepool`, `capacity_type` and `reason`.
    ClaimsDisrupted,
    /// The pods on these claims that need another place, by the same labels.
    PodsDisrupted,
    /// Nodes that have joined, by `nodepool` and `zone`.
    NodesCreated,
    /// Nodes of pools that are gone, by `nodepool` and `zone`.
    NodesTerminated,
    /// Evictions that were answered, by the `code` of the answer.
    Evictions,
    /// Machines that were not bought, by the `kind` of the error.
    LaunchErrors,
    /// Commands that were begun, by `decision`, `reason` and `consolidation_type`.
    Decisions,
    /// Commands that were begun, by `nodepool` as well; a command for nodes of several pools counts for each.
    DecisionsByPool,
    /// Nodes of commands that were not right any more when they should have begun, by `consolidation_type`.
    FailedValidations,
    /// Commands that were given up, by `decision`, `reason` and `consolidation_type`.
    FailedCommands,
    /// How often nothing could be decided, because objects contradict each other.
    SnapshotErrors,
    /// How long claims took to go, in seconds, by `nodepool`.
    ClaimTermination,
    /// How long nodes took to go, in seconds, by `nodepool`.
    NodeTermination,
    /// How old nodes were when they were gone, in seconds, by `nodepool`.
    NodeLifetime,
    /// Whether all objects were told: 1 or 0.
    Synced,
    /// How many nodes there are.
    Nodes,
    /// How many pods wait for a node that the engine has to make.
    PodsWaiting,
    /// How many of them have no place, as was found when they were planned for last.
    PodsUnschedulable,
    /// How much dearer the last plan with new nodes is than the lower bound on its bill, in percent, if that is measured
    /// ([`EngineOptions::measures_gap`](super::EngineOptions::measures_gap)).
    Gap,
    /// What the nodes of a pool have, by `nodepool` and `resource_type`, in the units of the resource.
    PoolUsage,
    /// What they may have.
    PoolLimit,
    /// What the nodes of a pool cost in an hour, in dollars, by `nodepool`. Nodes of unknown price count for nothing.
    PoolCost,
}

impl Metric {
    /// All there are.
    pub const ALL: [Self; Self::PoolCost as usize + 1] = [
        Self::ClaimsCreated,
        Self::ClaimsTerminated,
        Self::ClaimsDisrupted,
        Self::PodsDisrupted,
        Self::NodesCreated,
        Self::NodesTerminated,
        Self::Evictions,
        Self::LaunchErrors,
        Self::Decisions,
        Self::DecisionsByPool,
        Self::FailedValidations,
        Self::FailedCommands,
        Self::SnapshotErrors,
        Self::ClaimTermination,
        Self::NodeTermination,
        Self::NodeLifetime,
        Self::Synced,
        Self::Nodes,
        Self::PodsWaiting,
        Self::PodsUnschedulable,
        Self::Gap,
        Self::PoolUsage,
        Self::PoolLimit,
        Self::PoolCost,
    ];

    /// The name under which Karpenter exports it, or would.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ClaimsCreated => "karpenter_nodeclaims_created_total",
            Self::ClaimsTerminated => "karpenter_nodeclaims_terminated_total",
            Self::ClaimsDisrupted => "karpenter_nodeclaims_disrupted_total",
            Self::PodsDisrupted => "karpenter_pods_disruption_initiated_total",
            Self::NodesCreated => "karpenter_nodes_created_total",
            Self::NodesTerminated => "karpenter_nodes_terminated_total",
            Self::Evictions => "karpenter_pods_eviction_requests_total",
            Self::LaunchErrors => "karpenter_nodeclaims_launch_errors_total",
            Self::Decisions => "karpenter_voluntary_disruption_decisions_total",
            Self::DecisionsByPool => "karpenter_voluntary_disruption_decisions_by_nodepool_total",
            Self::FailedValidations => "karpenter_voluntary_disruption_failed_validations_total",
            Self::FailedCommands => "karpenter_voluntary_disruption_queue_failures_total",
            Self::SnapshotErrors => "karpenter_cluster_state_errors_total",
            Self::ClaimTermination => "karpenter_nodeclaims_termination_duration_seconds",
            Self::NodeTermination => "karpenter_nodes_termination_duration_seconds",
            Self::NodeLifetime => "karpenter_nodes_lifetime_duration_seconds",
            Self::Synced => "karpenter_cluster_state_synced",
            Self::Nodes => "karpenter_cluster_state_node_count",
            Self::PodsWaiting => "karpenter_scheduler_queue_depth",
            Self::PodsUnschedulable => "karpenter_scheduler_unschedulable_pods_count",
            Self::Gap => "karpenter_scheduler_gap_to_bound_percent",
            Self::PoolUsage => "karpenter_nodepools_usage",
            Self::PoolLimit => "karpenter_nodepools_limit",
            Self::PoolCost => "karpenter_nodepools_cost_total",
        }
    }
}

/// The labels of a series, in the order of the documentation of its [`Metric`].
pub type MetricLabels = Vec<(&'static str, String)>;

/// What an engine did since it was started, for a shell to export.
///
/// ```
/// use karpenter_core::engine::{Engine, EngineOptions, Metric};
///
/// let engine = Engine::new(EngineOptions::default());
/// assert_eq!(engine.counters().total(Metric::ClaimsCreated), 0);
/// for (metric, labels, value) in engine.counters().counts() {
///     println!("{} {labels:?} {value}", metric.name());
/// }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    counts: BTreeMap<(Metric, MetricLabels), u64>,
    durations: BTreeMap<(Metric, MetricLabels), Durations>,
}

/// How long something took.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Durations {
    /// How often it was measured.
    pub count: u64,
    /// All times together.
    pub sum: Duration,
    /// How many of them were at most one second, two, four and so on, up to [`Durations::BUCKETS`] such bounds.
    pub at_most: Vec<u64>,
}

impl Durations {
    /// The number of bounds: the last of them, 2 to the power of 21 seconds, is some 24 days.
    pub const BUCKETS: u32 = 22;

    fn add(&mut self, duration: Duration) {
        self.at_most.resize(Self::BUCKETS as usize, 0);
        self.count += 1;
        self.sum += duration;
        for (bound, count) in (0..Self::BUCKETS).map(|power| Duration::from_secs(1 << power)).zip(&mut self.at_most) {
            *count += u64::from(duration <= bound);
        }
    }
}

impl Counters {
    /// All counts, series by series.
    pub fn counts(&self) -> impl Iterator<Item = (Metric, &MetricLabels, u64)> {
        self.counts.iter().map(|((metric, labels), count)| (*metric, labels, *count))
    }

    /// All durations, series by series.
    pub fn durations(&self) -> impl Iterator<Item = (Metric, &MetricLabels, &Durations)> {
        self.durations.iter().map(|((metric, labels), durations)| (*metric, labels, durations))
    }

    /// The counts of all series of a metric together.
    pub fn total(&self, metric: Metric) -> u64 {
        self.counts().filter(|(of, ..)| *of == metric).map(|(.., count)| count).sum()
    }

    fn add(&mut self, metric: Metric, labels: MetricLabels, count: usize) {
        *self.counts.entry((metric, labels)).or_default() += count as u64;
    }

    fn measure(&mut self, metric: Metric, pool: &str, since: Option<Timestamp>, now: Timestamp) {
        if let Some(since) = since {
            let labels = vec![("nodepool", pool.to_owned())];
            self.durations.entry((metric, labels)).or_default().add(now.since(since));
        }
    }

    pub(super) fn created(&mut self, pool: &str, method: Option<Method>) {
        let reason = method.map_or_else(|| "provisioned".to_owned(), reason_of);
        self.add(Metric::ClaimsCreated, vec![("nodepool", pool.to_owned()), ("reason", reason)], 1);
    }

    pub(super) fn disrupted(&mut self, claim: &NodeClaim, why: &str, pods: usize) {
        let reason = match why {
            DISRUPTED => condition(&claim.status.conditions, DISRUPTION_REASON).map_or("", |c| c.reason.as_str()),
            NODE_REPAIR => "Unhealthy",
            SOLD_OUT => "InsufficientCapacity",
            other => other,
        };
        let labels = || {
            let [pool, kind, _] = labels_of(&claim.metadata);
            vec![pool, kind, ("reason", snake(reason))]
        };
        self.add(Metric::ClaimsDisrupted, labels(), 1);
        if pods > 0 {
            self.add(Metric::PodsDisrupted, labels(), pods);
        }
    }

    pub(super) fn claim_gone(&mut self, claim: &NodeClaim, now: Timestamp) {
        let labels = labels_of(&claim.metadata);
        self.measure(Metric::ClaimTermination, &labels[0].1, claim.metadata.deletion_timestamp, now);
        self.add(Metric::ClaimsTerminated, labels.to_vec(), 1);
    }

    pub(super) fn node_joined(&mut self, claim: &NodeClaim) {
        let [pool, _, zone] = labels_of(&claim.metadata);
        self.add(Metric::NodesCreated, vec![pool, zone], 1);
    }

    pub(super) fn node_gone(&mut self, node: &Node, now: Timestamp) {
        let [pool, _, zone] = labels_of(&node.metadata);
        if pool.1.is_empty() {
            return;
        }
        self.measure(Metric::NodeTermination, &pool.1, node.metadata.deletion_timestamp, now);
        self.measure(Metric::NodeLifetime, &pool.1, node.metadata.creation_timestamp, now);
        self.add(Metric::NodesTerminated, vec![pool, zone], 1);
    }

    pub(super) fn evicted(&mut self, refusal: Option<&Refusal>) {
        let code = match refusal {
            None => "200",
            Some(Refusal::NotFound) => "404",
            Some(Refusal::Conflict | Refusal::AlreadyExists) => "409",
            Some(Refusal::Invalid(_)) => "422",
            Some(Refusal::TooManyRequests(_)) => "429",
            Some(Refusal::Unavailable(_)) => "500",
        };
        self.add(Metric::Evictions, vec![("code", code.to_owned())], 1);
    }

    pub(super) fn not_launched(&mut self, kind: &str) {
        self.add(Metric::LaunchErrors, vec![("kind", kind.to_owned())], 1);
    }

    pub(super) fn decided(&mut self, command: &Command, pools: impl Iterator<Item = String>) {
        let labels = decision_labels(command.method, command.candidates.len(), command.is_delete());
        for pool in pools {
            let mut of_pool = vec![("nodepool", pool)];
            of_pool.extend(labels.clone());
            self.add(Metric::DecisionsByPool, of_pool, 1);
        }
        self.add(Metric::Decisions, labels, 1);
    }

    pub(super) fn not_valid(&mut self, command: &Command) {
        let kind = consolidation_type(command.method, command.candidates.len());
        let labels = vec![("consolidation_type", kind.to_owned())];
        self.add(Metric::FailedValidations, labels, command.candidates.len());
    }

    pub(super) fn given_up(&mut self, method: Method, candidates: usize, is_delete: bool) {
        self.add(Metric::FailedCommands, decision_labels(method, candidates, is_delete), 1);
    }

    pub(super) fn not_seen(&mut self) {
        self.add(Metric::SnapshotErrors, Vec::new(), 1);
    }
}

impl Engine {
    /// What the engine did since it was started.
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// How things stand, series by series; those of a metric one after the other.
    pub fn levels(&self) -> Vec<(Metric, MetricLabels, f64)> {
        let store = &self.store;
        let of = |metric, count: usize| (metric, Vec::new(), count as f64);
        let mut out = vec![
            of(Metric::Synced, usize::from(self.is_synced)),
            of(Metric::Nodes, store.nodes.len()),
            of(Metric::PodsWaiting, store.pods.values().filter(|pod| waits(pod)).count()),
            of(Metric::PodsUnschedulable, self.provisioner.told.len()),
        ];
        out.extend(self.provisioner.gap_percent.map(|percent| (Metric::Gap, Vec::new(), percent)));
        let costs = self.costs_of_pools();
        for (name, pool) in &store.pools {
            let pool_label = || ("nodepool", name.clone());
            let lists = [(Metric::PoolUsage, &pool.status.resources), (Metric::PoolLimit, &pool.spec.limits)];
            for (metric, list) in lists {
                let series = |(resource, quantity): (&ResourceName, Quantity)| {
                    (metric, vec![pool_label(), ("resource_type", resource_label(resource))], quantity.as_f64())
                };
                out.extend(list.iter().map(series));
            }
            out.push((
                Metric::PoolCost,
                vec![pool_label()],
                costs.get(name.as_str()).map_or(0.0, |cost| cost.dollars_per_hour()),
            ));
        }
        out.sort_by_key(|(metric, ..)| *metric);
        out
    }

    /// What the machines of each pool cost that has any of which the price is known.
    fn costs_of_pools(&self) -> BTreeMap<&str, Price> {
        let mut out = BTreeMap::<&str, Vec<Price>>::new();
        for claim in self.store.claims.values() {
            let Some((pool, catalog)) = claim.pool_name().and_then(|pool| Some((pool, self.market.catalog(pool)?)))
            else {
                continue;
            };
            let price = catalog.offering_of(&claim.metadata.labels).and_then(Offering::known_price);
            out.entry(pool).or_default().extend(price);
        }
        out.into_iter().map(|(pool, prices)| (pool, prices.into_iter().sum())).collect()
    }
}

/// A resource as Karpenter writes it in the label `resource_type`, such as `ephemeral_storage`.
pub fn resource_label(resource: &ResourceName) -> String {
    resource.as_str().to_lowercase().replace('-', "_")
}

fn labels_of(meta: &ObjectMeta) -> [(&'static str, String); 3] {
    let label = |key: &str| meta.labels.get(key).cloned().unwrap_or_default();
    [
        ("nodepool", label(labels::NODE_POOL)),
        ("capacity_type", label(labels::CAPACITY_TYPE)),
        ("zone", label(labels::ZONE)),
    ]
}

fn decision_labels(method: Method, candidates: usize, is_delete: bool) -> MetricLabels {
    vec![
        ("decision", if is_delete { "delete" } else { "replace" }.to_owned()),
        ("reason", reason_of(method)),
        ("consolidation_type", consolidation_type(method, candidates).to_owned()),
    ]
}

fn reason_of(method: Method) -> String {
    snake(method.reason().name())
}

const fn consolidation_type(method: Method, candidates: usize) -> &'static str {
    match method {
        Method::Emptiness => "empty",
        Method::Consolidation if candidates > 1 => "multi",
        Method::Consolidation => "single",
        Method::Drift | Method::StaticDrift => "",
    }
}

/// `launch_timeout` for `LaunchTimeout`.
fn snake(words: &str) -> String {
    let mut out = String::with_capacity(words.len() + 4);
    for (i, letter) in words.chars().enumerate() {
        if letter.is_ascii_uppercase() && i > 0 {
            out.push('_');
        }
        out.push(letter.to_ascii_lowercase());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_counted_up_to_each_bound() {
        let mut durations = Durations::default();
        for seconds in [0, 1, 3, 100] {
            durations.add(Duration::from_secs(seconds));
        }
        assert_eq!((durations.count, durations.sum), (4, Duration::from_secs(104)));
        assert_eq!(durations.at_most[..4], [2, 2, 3, 3]);
        assert_eq!(durations.at_most.last(), Some(&4));
    }

    #[test]
    fn reasons_are_written_as_in_exports() {
        for (words, expected) in [("", ""), ("Expired", "expired"), ("LaunchTimeout", "launch_timeout")] {
            assert_eq!(snake(words), expected);
        }
    }
}
