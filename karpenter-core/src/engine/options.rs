use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{
    PlannerOptions,
    api::{NodeClassKind, NodeClassRef},
    disrupt::DisruptorOptions,
    provider::RepairPolicy,
};

/// The least time between two questions of a kind, and between two searches. With less, an engine would never be at rest.
const MIN_PERIOD: Duration = Duration::from_millis(100);

/// How an [`Engine`](super::Engine) works. The defaults are those of Karpenter where it has the same knob.
///
/// Periods of less than a tenth of a second count as that.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
#[non_exhaustive]
pub struct EngineOptions {
    /// How nodes are planned for pods.
    pub planner: PlannerOptions,
    /// When it is worth it to take nodes away.
    pub disruptor: DisruptorOptions,
    /// After the last of several pods this long is waited for another one. One second by default.
    pub batch_idle: Duration,
    /// The first of several pods waits no longer than this. Ten seconds by default.
    pub batch_max: Duration,
    /// How often nodes that should go are looked for. Ten seconds by default; with `None` no command is looked for. Nodes still go
    /// that expire, are repaired or are one too many of a static pool, and commands that another engine has begun are carried on.
    pub disruption_period: Option<Duration>,
    /// How long a command must have been worth it before it is begun. 15 seconds by default.
    pub validation_wait: Duration,
    /// How often it is asked what can be bought. One minute by default.
    pub catalog_period: Duration,
    /// How often all machines are listed, to find those without a claim and claims without a machine. Two minutes by default.
    pub list_period: Duration,
    /// How often it is asked what happened to machines. Ten seconds by default; `None` asks never.
    pub events_period: Option<Duration>,
    /// How often it is looked whether a node still is what it should be. Five minutes by default.
    pub drift_period: Duration,
    /// Whether each plan for pods that wait is held against the lower bound on its bill, for [`Metric::Gap`](super::Metric::Gap).
    /// Planning then takes about twice as long. Not by default.
    pub measures_gap: bool,
    /// For how long an offering without capacity is avoided. Three minutes by default.
    pub avoid_for: Duration,
    /// Whether static pools (`spec.replicas`) get their nodes, lose those that are too many, and have drifted ones replaced.
    /// By default they do; Karpenter's feature gate `StaticCapacity` is off.
    pub static_capacity: bool,
    /// The kinds of node classes of which pools, claims and nodes are looked after; those of others are another controller's. Empty by
    /// default, which means any kind; providers know theirs
    /// ([`CloudProvider::node_class_kinds`](crate::CloudProvider::node_class_kinds)).
    pub node_class_kinds: Vec<NodeClassKind>,
    /// Which nodes are sick. None by default; providers know theirs
    /// ([`CloudProvider::repair_policies`](crate::CloudProvider::repair_policies)).
    pub repair_policies: Vec<RepairPolicy>,
}

impl Default for EngineOptions {
    fn default() -> Self {
        Self {
            planner: PlannerOptions::default(),
            disruptor: DisruptorOptions::default(),
            batch_idle: Duration::from_secs(1),
            batch_max: Duration::from_secs(10),
            disruption_period: Some(Duration::from_secs(10)),
            validation_wait: Duration::from_secs(15),
            catalog_period: Duration::from_mins(1),
            list_period: Duration::from_mins(2),
            events_period: Some(Duration::from_secs(10)),
            drift_period: Duration::from_mins(5),
            measures_gap: false,
            avoid_for: Duration::from_mins(3),
            static_capacity: true,
            node_class_kinds: Vec::new(),
            repair_policies: Vec::new(),
        }
    }
}

impl EngineOptions {
    /// Whether a class, with all that is of it, is another controller's.
    pub(super) fn is_foreign(&self, class: &NodeClassRef) -> bool {
        self.has_no_kind(|kind| kind.is_of(class))
    }

    /// Whether there are kinds of node classes to look after, and none is like this.
    pub(super) fn has_no_kind(&self, is_it: impl FnMut(&NodeClassKind) -> bool) -> bool {
        !self.node_class_kinds.is_empty() && !self.node_class_kinds.iter().any(is_it)
    }

    /// The same, with periods that an engine can keep.
    pub(super) fn kept(mut self) -> Self {
        let periods = [&mut self.catalog_period, &mut self.list_period, &mut self.drift_period];
        let optional = [&mut self.disruption_period, &mut self.events_period];
        for period in periods.into_iter().chain(optional.into_iter().flatten()) {
            *period = MIN_PERIOD.max(*period);
        }
        self
    }
}
