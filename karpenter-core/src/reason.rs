//! Why not: reasons as values, with the operands that they were made from.

mod amount;
mod node;
mod pool;
mod types;

use std::fmt;

use serde::{Serialize, Serializer};

use crate::{api::FieldError, cluster::VolumeProblem};

pub use node::{NodeObstacle, NodesShutOut};
pub use pool::{Asker, Obstacle, PoolObstacle, Shortage, TypesShutOut};
pub use types::{TypeObstacle, TypesRuledOut};

/// Why a pod has no place in a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// The pod breaks a rule of the Kubernetes API.
    Invalid(FieldError),
    /// The pod, or one that it must respect, uses something that the engine does not handle.
    Unsupported {
        /// The path of the field, or what it is about.
        field: String,
    },
    /// A volume of it is in the way.
    Volume(VolumeProblem),
    /// A rule about its neighbours leaves it no node.
    Topology(TopologyObstacle),
    /// What it asks of a node contradicts itself.
    Unmeetable {
        /// Whether its node selector and node affinity could be met if it were not for its volumes.
        for_volumes: bool,
    },
    /// There is no node pool at all.
    NoNodePools,
    /// Planning was stopped before a place for it was found.
    Stopped,
    /// No pool and no node can take it.
    NoPlace {
        /// Why not, for each pool in the order of weight.
        pools: Vec<PoolObstacle>,
        /// How many nodes there are, none of which can take it.
        node_count: usize,
        /// What is in the way on them, each node counted once, the most frequent first.
        nodes: Vec<NodesShutOut>,
    },
}

/// Which rule about neighbours leaves a pod no node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TopologyObstacle {
    /// In every domain that the pod can reach there would be too many of its like.
    Spread {
        /// The label whose values are the domains.
        key: String,
        /// How many more of them a domain may hold than the emptiest one.
        max_skew: i64,
        /// How many each domain has, those of this plan among them.
        counts: Vec<(String, i64)>,
        /// The domains that could have another one, if a node there could be had for it.
        full: Vec<String>,
        /// How many domains the rule asks for, if there are fewer, so that the emptiest one counts as empty.
        min_domains: Option<usize>,
    },
    /// Every domain that the pod can reach has pods from which it must keep away.
    AntiAffinity {
        /// The label whose values are the domains.
        key: String,
        /// The domains that have such pods.
        domains: Vec<String>,
    },
    /// Every domain that the pod can reach has pods that keep it away.
    Repelled {
        /// The label whose values are the domains.
        key: String,
        /// The domains that have such pods.
        domains: Vec<String>,
    },
    /// No domain that the pod can reach has pods that it must be near to.
    Affinity {
        /// The label whose values are the domains.
        key: String,
        /// The domains that have such pods; none if there are no such pods.
        domains: Vec<String>,
    },
    /// It must share a node with others, and no node takes all of them.
    OneNode,
    /// No node that the pod can reach has the label over which it must be spread, or by which it must be near to others.
    NoLabel {
        /// The label.
        key: String,
    },
}

/// A reason is written as the sentence that it is.
impl Serialize for Reason {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid(error) => write!(f, "invalid: {error}"),
            Self::Unsupported { field } => write!(f, "unsupported: {field}"),
            Self::Volume(problem) => problem.fmt(f),
            Self::Topology(obstacle) => obstacle.fmt(f),
            Self::Stopped => f.write_str("planning was stopped before a place was found"),
            Self::Unmeetable { for_volumes: false } => {
                f.write_str("no node can meet its node selector and its node affinity together")
            }
            Self::Unmeetable { for_volumes: true } => {
                f.write_str("its node selector and its node affinity let it go to no node that its volumes can be on")
            }
            Self::NoNodePools => f.write_str("there is no node pool"),
            Self::NoPlace { pools, node_count, nodes } => {
                for (i, pool) in pools.iter().enumerate() {
                    write!(f, "{}{pool}", if i > 0 { "; " } else { "" })?;
                }
                if *node_count > 0 && !pools.is_empty() {
                    f.write_str("; ")?;
                }
                node::write_all(f, *node_count, nodes)
            }
        }
    }
}

impl fmt::Display for TopologyObstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Spread { key, max_skew, counts, full, min_domains } => {
                write!(f, "topology spread over {key}: maxSkew {max_skew} ")?;
                if let Some(min_domains) = min_domains {
                    write!(f, "with minDomains {min_domains} ")?;
                }
                if full.is_empty() {
                    f.write_str("lets no domain have another pod (")?;
                } else {
                    f.write_str("lets another pod go where no node takes it, to ")?;
                    write_domains(f, full)?;
                    f.write_str(" (")?;
                }
                for (i, (domain, count)) in counts.iter().take(SHOWN).enumerate() {
                    write!(f, "{}{domain}: {count}", if i > 0 { ", " } else { "" })?;
                }
                write_others(f, counts.len())?;
                f.write_str(")")
            }
            Self::AntiAffinity { key, domains } => {
                write!(f, "anti-affinity over {key}: there are such pods in ")?;
                write_domains(f, domains)
            }
            Self::Repelled { key, domains } => {
                write!(f, "anti-affinity of other pods over {key}: there are such pods in ")?;
                write_domains(f, domains)
            }
            Self::Affinity { key, domains } if domains.is_empty() => {
                write!(f, "affinity over {key}: no domain has the pods that it must be near to, running or planned")
            }
            Self::Affinity { key, domains } => {
                write!(f, "affinity over {key}: it cannot go where such pods are, in ")?;
                write_domains(f, domains)
            }
            Self::OneNode => f.write_str("affinity over kubernetes.io/hostname: no node takes all that must share it"),
            Self::NoLabel { key } => {
                write!(f, "spread or affinity over {key}: no node that it can have has this label")
            }
        }
    }
}

/// The most entries of a list that are printed.
const SHOWN: usize = 5;

fn write_domains(f: &mut fmt::Formatter<'_>, domains: &[String]) -> fmt::Result {
    if domains.is_empty() { f.write_str("every domain") } else { write_list(f, domains) }
}

/// Writes the first entries of a list with commas, and how many others there are.
fn write_list(f: &mut fmt::Formatter<'_>, list: &[impl fmt::Display]) -> fmt::Result {
    for (i, entry) in list.iter().take(SHOWN).enumerate() {
        write!(f, "{}{entry}", if i > 0 { ", " } else { "" })?;
    }
    write_others(f, list.len())
}

fn write_others(f: &mut fmt::Formatter<'_>, count: usize) -> fmt::Result {
    if count > SHOWN { write!(f, " and {} others", count - SHOWN) } else { Ok(()) }
}
