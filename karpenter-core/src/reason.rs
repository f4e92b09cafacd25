//! Why not: reasons as values, with the operands that they were made from.

use std::fmt;

use crate::{
    Quantity, Requirement, ResourceName,
    api::{FieldError, Taint},
    cluster::{HostPort, VolumeProblem},
};

/// What the suffix `M` means. Nobody has so many cores, but `M` is easily typed for `m`.
const MEGA: i64 = 1_000_000;

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
    /// There is no node pool at all.
    NoNodePools,
    /// No pool and no node can take it.
    NoPlace {
        /// Why not, for each pool in the order of weight.
        pools: Vec<PoolObstacle>,
        /// How many nodes there are, none of which has room for it.
        node_count: usize,
    },
}

/// Which rule about neighbours leaves a pod no node.
#[derive(Clone, Debug, PartialEq, Eq)]
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
}

/// Why a pool can make no node for a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolObstacle {
    /// The name of the pool.
    pub pool: String,
    /// What is in the way.
    pub obstacle: Obstacle,
}

/// What is in the way of a node for a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Obstacle {
    /// No node may be made of the pool now.
    NotReady {
        /// Why.
        message: String,
    },
    /// The pod does not tolerate a taint of the pool.
    Taint(Taint),
    /// No instance type of the pool meets the pool's own requirements.
    NoInstanceTypes,
    /// The pod asks for a label that the pool's nodes cannot have.
    Label {
        /// The key of the label.
        key: String,
        /// What the pod accepts.
        wanted: Requirement,
        /// What the pool's nodes can have.
        offered: Vec<Requirement>,
        /// A label that the pool's nodes do have and that may be the one that was meant.
        similar_key: Option<String>,
        /// Whether no node has the label because the key names a resource of instance types, which pods ask for in
        /// another way.
        is_resource: bool,
    },
    /// Types meet the requirements one by one, but none meets them together and can be bought now.
    Combination,
    /// The best type has less than the pod and the daemons need.
    TooSmall {
        /// The resource of which the best type has least.
        resource: ResourceName,
        /// What the pod requests.
        requested: Quantity,
        /// What the type with the most of it leaves to pods beside the daemons.
        available: Quantity,
    },
    /// Types are big enough in each resource, but none in all at once.
    NoSuchShape,
    /// The types that are big enough have too few distinct values of a label for which the pool asks several.
    MinValues {
        /// The key of the label.
        key: String,
        /// How many values the pool asks for.
        min_values: u32,
        /// How many there are at most.
        available: usize,
    },
    /// A daemon takes a port that the pod wants on every node that is big enough.
    HostPort {
        /// The port.
        port: HostPort,
    },
    /// The limits of the pool leave room for no type that is big enough.
    Limit {
        /// The limited resource.
        resource: ResourceName,
        /// The limit.
        limit: Quantity,
        /// What its nodes have of it already.
        used: Quantity,
    },
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid(error) => write!(f, "invalid: {error}"),
            Self::Unsupported { field } => write!(f, "unsupported: {field}"),
            Self::Volume(problem) => problem.fmt(f),
            Self::Topology(obstacle) => obstacle.fmt(f),
            Self::NoNodePools => f.write_str("there is no node pool"),
            Self::NoPlace { pools, node_count } => {
                for (i, pool) in pools.iter().enumerate() {
                    write!(f, "{}pool {}: {}", if i > 0 { "; " } else { "" }, pool.pool, pool.obstacle)?;
                }
                match node_count {
                    0 => Ok(()),
                    1 => f.write_str("; the one node there is cannot take it either"),
                    n => write!(f, "; none of the {n} nodes can take it either"),
                }
            }
        }
    }
}

impl fmt::Display for TopologyObstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Spread { key, max_skew, counts } => {
                write!(f, "topology spread over {key}: maxSkew {max_skew} lets no domain have another pod (")?;
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
                write!(f, "affinity over {key}: no pod that it must be near to is there or planned")
            }
            Self::Affinity { key, domains } => {
                write!(f, "affinity over {key}: it cannot go where such pods are, in ")?;
                write_domains(f, domains)
            }
            Self::OneNode => f.write_str("affinity over kubernetes.io/hostname: no node takes all that must share it"),
        }
    }
}

/// The most entries of a list that are printed.
const SHOWN: usize = 5;

fn write_domains(f: &mut fmt::Formatter<'_>, domains: &[String]) -> fmt::Result {
    if domains.is_empty() {
        return f.write_str("every domain");
    }
    f.write_str(&domains[..domains.len().min(SHOWN)].join(", "))?;
    write_others(f, domains.len())
}

fn write_others(f: &mut fmt::Formatter<'_>, count: usize) -> fmt::Result {
    if count > SHOWN { write!(f, " and {} others", count - SHOWN) } else { Ok(()) }
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotReady { message } => write!(f, "not ready: {message}"),
            Self::Taint(taint) => write!(f, "taint {taint} is not tolerated"),
            Self::NoInstanceTypes => f.write_str("no instance type meets the requirements of the pool"),
            Self::Label { key, wanted, offered, similar_key, is_resource } => {
                write!(f, "label {key} must be {wanted}, but nodes ")?;
                write_offered(f, offered)?;
                if *is_resource {
                    return write!(f, " ({key} is a resource, not a label: ask for it under resources.limits)");
                }
                similar_key.as_ref().map_or(Ok(()), |similar| write!(f, " (they have {similar})"))
            }
            Self::Combination => f.write_str("no available offering meets all requirements at once"),
            Self::TooSmall { resource, requested, available } => {
                write!(f, "{resource}: {requested} requested, {available} at most beside the daemons")?;
                if *resource == ResourceName::Cpu && *requested >= Quantity::from_units(MEGA) {
                    f.write_str(" (M is a million cores, m a thousandth of one)")?;
                }
                Ok(())
            }
            Self::NoSuchShape => f.write_str("no instance type is big enough in every resource at once"),
            Self::MinValues { key, min_values, available } => {
                write!(f, "minValues of {key}: {min_values} asked for, the types that fit have {available}")
            }
            Self::HostPort { port } => write!(f, "host port {port} is taken by a daemon"),
            Self::Limit { resource, limit, used } => {
                write!(f, "limit of {resource}: {used} of {limit} used, the rest is too small for any type that fits")
            }
        }
    }
}

fn write_offered(f: &mut fmt::Formatter<'_>, offered: &[Requirement]) -> fmt::Result {
    if offered.iter().all(|r| *r == Requirement::ABSENT) {
        return f.write_str("do not have it");
    }
    f.write_str("have ")?;
    for (i, requirement) in offered.iter().take(SHOWN).enumerate() {
        let comma = if i > 0 { ", " } else { "" };
        match requirement.value_count() {
            Some(0) => write!(f, "{comma}none")?,
            Some(_) => write!(f, "{comma}{}", requirement.values().collect::<Vec<_>>().join("/"))?,
            None => write!(f, "{comma}{requirement}")?,
        }
    }
    write_others(f, offered.len())
}
