//! What keeps a node where it is.

use std::fmt;

use super::EvictionLimit;
use crate::{
    Timestamp,
    api::{DisruptionReason, NillableDuration, ObjectKey, Shield},
    labels,
};

/// What is in the way of taking a node away.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Guard {
    /// No claim stands behind the node: the engine did not make it.
    NotManaged,
    /// The claim has no node yet.
    NoNode,
    /// The node is not ready for pods yet.
    NotInitialized,
    /// The deletion of the node or its claim was asked for.
    Leaving,
    /// It was chosen to go before: it has the taint `karpenter.sh/disrupted`.
    Disrupted,
    /// Nobody knows what runs there.
    Closed,
    /// Pods were promised its room and have not come yet.
    Nominated {
        /// The pods.
        pods: Vec<ObjectKey>,
    },
    /// The node has the annotation `karpenter.sh/do-not-disrupt: "true"`.
    DoNotDisrupt,
    /// The node does not say which pool it belongs to.
    NoPool,
    /// There is no pool of the name that the node gives, or it cannot be read.
    UnknownPool {
        /// The name.
        pool: String,
    },
    /// Its pool has no instance types, or nobody could say which it has.
    NoInstanceTypes {
        /// The name of the pool.
        pool: String,
    },
    /// A pod has the annotation `karpenter.sh/do-not-disrupt`.
    PodDoNotDisrupt {
        /// The pod.
        pod: ObjectKey,
        /// For how long.
        shield: Shield,
    },
    /// A pod is guarded by a disruption budget that allows no eviction now.
    PodBudget {
        /// The pod.
        pod: ObjectKey,
        /// The budget and its counts.
        limit: EvictionLimit,
    },
    /// A pod is selected by several disruption budgets, so that the API server refuses to evict it.
    SeveralPodBudgets {
        /// The pod.
        pod: ObjectKey,
        /// The budgets.
        budgets: Vec<ObjectKey>,
    },
    /// Its pool is static: it has so many nodes whatever the pods need.
    StaticPool {
        /// The name of the pool.
        pool: String,
    },
    /// Its pool is never consolidated: `consolidateAfter` is `Never`.
    NeverConsolidated {
        /// The name of the pool.
        pool: String,
    },
    /// Pods came or went, or the node came, too short a while ago.
    NotQuiet {
        /// The name of the pool.
        pool: String,
        /// How long the node must have been left alone.
        consolidate_after: NillableDuration,
        /// When that will be so; `None` if nobody can tell, because the condition `Consolidatable` of the claim is there
        /// and does not hold.
        until: Option<Timestamp>,
    },
    /// Only empty nodes of its pool may go, and it has pods.
    NotEmpty {
        /// The name of the pool.
        pool: String,
        /// How many pods would have to move.
        pod_count: usize,
    },
    /// The node lacks a label without which its price is not known.
    NoLabel {
        /// The key of the label.
        key: &'static str,
    },
    /// The pool's catalog has no such instance type.
    UnknownInstanceType {
        /// The name of the pool.
        pool: String,
        /// The name of the type.
        instance_type: String,
    },
    /// The pool's catalog does not say what such a node costs.
    PriceUnknown {
        /// The name of the type.
        instance_type: String,
        /// The zone.
        zone: String,
        /// The capacity type.
        capacity_type: String,
    },
}

/// What a [`Guard`] holds back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Scope {
    /// Every disruption.
    Everything,
    /// Every disruption but that of a drifted node whose claim bounds how long pods may take to leave.
    Graceful,
    /// Consolidation, of empty nodes too.
    Consolidation,
    /// Consolidation of nodes that are not empty.
    Underutilized,
    /// That another node is made in its place to save money. It may still go if its pods have room elsewhere.
    Replacement,
}

impl Scope {
    /// Whether it has this reason in it, for a node of which the claim bounds how long pods may take to leave or not.
    pub fn covers(self, reason: DisruptionReason, has_termination_grace_period: bool) -> bool {
        match self {
            Self::Everything => true,
            Self::Graceful => reason != DisruptionReason::Drifted || !has_termination_grace_period,
            Self::Consolidation => reason != DisruptionReason::Drifted,
            Self::Underutilized => reason == DisruptionReason::Underutilized,
            Self::Replacement => false,
        }
    }
}

impl Guard {
    /// What it holds back.
    pub const fn scope(&self) -> Scope {
        match self {
            Self::NotManaged
            | Self::NoNode
            | Self::NotInitialized
            | Self::Leaving
            | Self::Disrupted
            | Self::Closed
            | Self::Nominated { .. }
            | Self::DoNotDisrupt
            | Self::NoPool
            | Self::UnknownPool { .. }
            | Self::NoInstanceTypes { .. } => Scope::Everything,
            Self::PodDoNotDisrupt { .. } | Self::PodBudget { .. } | Self::SeveralPodBudgets { .. } => Scope::Graceful,
            Self::StaticPool { .. } | Self::NeverConsolidated { .. } | Self::NotQuiet { .. } => Scope::Consolidation,
            Self::NotEmpty { .. } | Self::NoLabel { .. } | Self::UnknownInstanceType { .. } => Scope::Underutilized,
            Self::PriceUnknown { .. } => Scope::Replacement,
        }
    }
}

/// Guards, or the names of pods or budgets, after each other.
pub(crate) fn join(items: &[impl ToString], separator: &str) -> String {
    items.iter().map(ToString::to_string).collect::<Vec<_>>().join(separator)
}

impl fmt::Display for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotManaged => f.write_str("no NodeClaim stands behind it"),
            Self::NoNode => f.write_str("its NodeClaim has no node yet"),
            Self::NotInitialized => f.write_str("it is not initialized yet"),
            Self::Leaving => f.write_str("its deletion was asked for"),
            Self::Disrupted => write!(f, "it was chosen to go before (taint {})", labels::DISRUPTED),
            Self::Closed => f.write_str("it is not known what runs there"),
            Self::Nominated { pods } => write!(f, "its room was promised to pods: {}", join(pods, ", ")),
            Self::DoNotDisrupt => write!(f, "it has the annotation {}", labels::DO_NOT_DISRUPT),
            Self::NoPool => write!(f, "it has no label {}", labels::NODE_POOL),
            Self::UnknownPool { pool } => write!(f, "there is no NodePool {pool} that can be read"),
            Self::NoInstanceTypes { pool } => write!(f, "NodePool {pool} has no instance types"),
            Self::PodDoNotDisrupt { pod, shield } => {
                write!(f, "pod {pod} has the annotation {}{shield}", labels::DO_NOT_DISRUPT)
            }
            Self::PodBudget { pod, limit } => write!(f, "pod {pod}: {limit}"),
            Self::SeveralPodBudgets { pod, budgets } => {
                write!(f, "pod {pod} is selected by several disruption budgets: {}", join(budgets, ", "))
            }
            Self::StaticPool { pool } => write!(f, "NodePool {pool} is static (spec.replicas is set)"),
            Self::NeverConsolidated { pool } => write!(f, "NodePool {pool} has consolidateAfter Never"),
            Self::NotQuiet { pool, consolidate_after, until: Some(until) } => {
                write!(f, "NodePool {pool} has consolidateAfter {consolidate_after}, which is over at {until}")
            }
            Self::NotQuiet { until: None, .. } => {
                f.write_str("the condition Consolidatable of its NodeClaim is not True")
            }
            Self::NotEmpty { pool, pod_count } => {
                write!(f, "NodePool {pool} has consolidationPolicy WhenEmpty, and pods would have to move: {pod_count}")
            }
            Self::NoLabel { key } => write!(f, "it has no label {key}"),
            Self::UnknownInstanceType { pool, instance_type } => {
                write!(f, "NodePool {pool} has no instance type {instance_type}")
            }
            Self::PriceUnknown { instance_type, zone, capacity_type } => {
                write!(f, "it is not known what {capacity_type} {instance_type} costs in {zone}")
            }
        }
    }
}
