//! What a scenario can say, as values.

use std::{fmt, time::Duration};

use karpenter_core::{
    OfferingKey, Price, Timestamp,
    api::{ConditionStatus, DaemonSet, DisruptionReason, IntOrPercent, ObjectKey},
};

use crate::sim::Workload;

/// One command of a scenario.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Command {
    /// Text for readers.
    Remark,
    /// Part of the [`Setup`](super::Setup), which is in force from the start.
    Setting,
    /// Puts manifests into the cluster, in the place of those of the same kind and name.
    Apply(Manifests),
    /// Runs pods, or changes the workload of this name.
    Run(Box<Workload>),
    /// Runs one pod on every node.
    RunDaemons(Box<DaemonSet>),
    /// Gives the pods of a workload a disruption budget.
    Protect {
        /// The workload.
        workload: ObjectKey,
        /// What the budget asks for.
        rule: Protection,
    },
    /// Gives a workload another number of pods.
    Scale {
        /// The workload.
        workload: ObjectKey,
        /// How many.
        replicas: u32,
    },
    /// Deletes an object.
    Delete(Doomed),
    /// Lets so much time pass.
    Tick(Duration),
    /// Lets time pass until then.
    Until(Moment),
    /// Something goes wrong.
    Fault(Fault),
    /// The engine is stopped, and a new one starts.
    Crash,
    /// Says why a pod or a node is as it is.
    Explain(Subject),
    /// Something must hold now.
    Expect(Expectation),
    /// Prints the nodes and pods that there are.
    Show,
}

/// Manifests that a scenario puts into its cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Manifests {
    /// Those of a file, which is named as it is written in the scenario.
    File(String),
    /// Those that stand in the scenario itself. The text has as many empty lines before it as the scenario has lines, so
    /// that lines count alike in both.
    Inline(String),
}

/// What a disruption budget asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Protection {
    /// So many pods must be there.
    MinAvailable(IntOrPercent),
    /// No more pods than this may be away.
    MaxUnavailable(IntOrPercent),
}

/// What is to be deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Doomed {
    /// A workload with its pods.
    Workload(ObjectKey),
    /// A pod.
    Pod(ObjectKey),
    /// A node, by way of its finalizers.
    Node(NodeChoice),
    /// A claim, by way of its finalizers.
    NodeClaim(String),
    /// A node pool.
    NodePool(String),
    /// A disruption budget.
    Budget(ObjectKey),
}

/// A point in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Moment {
    /// The next time that the clock in UTC shows this, counted from midnight.
    OfDay(Duration),
    /// This very time.
    At(Timestamp),
}

impl Moment {
    /// When that is, seen from `now`; later than `now` if it is a time of day.
    pub fn after(self, now: Timestamp) -> Timestamp {
        const DAY: Duration = Duration::from_hours(24);
        match self {
            Self::At(at) => at,
            Self::OfDay(time) => {
                let day_millis = i64::try_from(DAY.as_millis()).unwrap_or(i64::MAX);
                let midnight = Timestamp::from_millis(now.as_millis() - now.as_millis().rem_euclid(day_millis));
                let today = midnight + time;
                if today > now { today } else { today + DAY }
            }
        }
    }
}

/// Something that goes wrong.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Fault {
    /// Offerings are sold out.
    SoldOut {
        /// Which.
        offerings: OfferingPattern,
        /// For how long.
        duration: Duration,
    },
    /// Offerings have another price from now on.
    Price {
        /// Which.
        offerings: OfferingPattern,
        /// What becomes of their price.
        change: PriceChange,
    },
    /// The cloud takes a machine back.
    Interrupt {
        /// Whose machine.
        node: NodeChoice,
        /// How long before it says so.
        notice: Duration,
    },
    /// A machine ends at once.
    Kill {
        /// Whose machine.
        node: NodeChoice,
        /// Whether the cloud tells nobody.
        is_silent: bool,
    },
    /// A node has a condition.
    Unhealthy {
        /// The node.
        node: NodeChoice,
        /// The type of the condition.
        condition: String,
        /// Its status.
        status: ConditionStatus,
    },
    /// Machines of a type that are bought from now on have so much less memory than the catalog says.
    WithholdMemory {
        /// The type.
        instance_type: String,
        /// How much less.
        memory_bytes: i64,
    },
    /// The answers to the next calls to the cloud are lost.
    LoseAnswers(u32),
    /// The cloud refuses every call as one too many.
    Throttle(Duration),
    /// The engine hears nothing of the cluster.
    LoseWatch(Duration),
}

/// Names offerings; what is `None` may be anything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct OfferingPattern {
    /// The name of the instance type.
    pub instance_type: Option<String>,
    /// The zone.
    pub zone: Option<String>,
    /// The capacity type.
    pub capacity_type: Option<String>,
}

impl OfferingPattern {
    /// Whether an offering is one of those.
    pub fn matches(&self, offering: &OfferingKey) -> bool {
        let is = |wanted: &Option<String>, has: &str| wanted.as_deref().is_none_or(|wanted| wanted == has);
        is(&self.instance_type, &offering.instance_type)
            && is(&self.zone, &offering.zone)
            && is(&self.capacity_type, &offering.capacity_type)
    }
}

/// What becomes of a price.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum PriceChange {
    /// So many times what it is now.
    Times(f64),
    /// This.
    To(Price),
}

/// A node.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NodeChoice {
    /// The one of this name.
    Named(String),
    /// The first by name that is ready and not on its way out, of those that are like this.
    Any {
        /// The capacity type, if it matters.
        capacity_type: Option<String>,
        /// The pool, if it matters.
        pool: Option<String>,
    },
}

/// What is explained.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Subject {
    /// A pod. If there is none of this name, the first one whose name begins so.
    Pod(ObjectKey),
    /// A node.
    Node(NodeChoice),
}

/// What must hold.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Expectation {
    /// A count.
    Count {
        /// Of what.
        what: Countable,
        /// How it is compared.
        comparison: Comparison,
        /// With what.
        number: u64,
    },
    /// What the cloud asks for so far.
    Bill {
        /// How it is compared.
        comparison: Comparison,
        /// With how many millionths of a dollar.
        micro_dollars: i64,
    },
    /// No rule of a cluster's life was broken so far.
    NoBreaches,
}

/// What can be counted.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Countable {
    /// Nodes that are ready and not on their way out, of this pool if one is named.
    Nodes {
        /// The name of the pool.
        pool: Option<String>,
    },
    /// Nodes that have this label.
    NodesWith {
        /// The key of the label.
        key: String,
        /// Its value.
        value: String,
    },
    /// Node claims.
    Claims,
    /// Machines that the cloud asks money for.
    Machines,
    /// Pods that run, those of daemonsets left out; of this workload if one is named.
    Running {
        /// The workload.
        workload: Option<ObjectKey>,
    },
    /// Pods without a node.
    Pending,
    /// Nodes whose disruption was begun so far, for this reason if one is named.
    Disrupted {
        /// The reason.
        reason: Option<DisruptionReason>,
    },
    /// Machines that were bought so far.
    Launched,
    /// Claims that were refused for lack of capacity so far.
    Refused,
    /// Pods that were evicted so far.
    Evicted,
}

/// How two numbers are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Comparison {
    /// Both are the same.
    Equal,
    /// It is no larger.
    AtMost,
    /// It is no smaller.
    AtLeast,
}

impl Comparison {
    /// Whether a number stands so to another.
    pub fn holds<T: PartialOrd + Copy>(self, is: T, wanted: T) -> bool {
        match self {
            Self::Equal => is == wanted,
            Self::AtMost => is <= wanted,
            Self::AtLeast => is >= wanted,
        }
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Equal => "exactly",
            Self::AtMost => "at most",
            Self::AtLeast => "at least",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_of_day_is_the_next_one() {
        let noon: Timestamp = "2026-03-02T12:00:00Z".parse().unwrap();
        let of_day = |hours| Moment::OfDay(Duration::from_hours(hours)).after(noon).to_string();
        assert_eq!(of_day(22), "2026-03-02T22:00:00Z");
        assert_eq!(of_day(12), "2026-03-03T12:00:00Z");
        assert_eq!(of_day(0), "2026-03-03T00:00:00Z");
    }
}
