//! What is in the way of a new node.

use std::fmt;

use super::{
    SHOWN,
    amount::{at_least, at_most},
    write_list, write_others,
};
use crate::{
    Quantity, Requirement, ResourceName,
    api::Taint,
    cluster::HostPort,
    requirements::{is_unique_to_node, name_of_key},
};

/// What the suffix `M` means. Nobody has so many cores, but `M` is easily typed for `m`.
const MEGA: i64 = 1_000_000;

/// Why a pool can make no node for a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolObstacle {
    /// The name of the pool.
    pub pool: String,
    /// How many instance types meet the pool's own requirements; 0 if no node can be made of it whatever the pod.
    pub type_count: usize,
    /// What is in the way, each type counted once, where its best offering fails. Those that come nearest to a place
    /// are first.
    pub shut_out: Vec<TypesShutOut>,
}

/// How many instance types of a pool one obstacle shuts out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TypesShutOut {
    /// How many types.
    pub type_count: usize,
    /// What is in the way.
    pub obstacle: Obstacle,
}

/// What is in the way of a node for a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Obstacle {
    /// The pool is static: it is kept at its `spec.replicas`, whatever pods need.
    Static,
    /// No node may be made of the pool now.
    NotReady {
        /// Why.
        message: String,
    },
    /// The pod does not tolerate a taint of the pool.
    Taint(Taint),
    /// No instance type of the pool meets the pool's own requirements.
    NoInstanceTypes,
    /// The pod asks for a label that the nodes cannot have.
    Label {
        /// The key of the label; `field:metadata.name` is the name of the node.
        key: String,
        /// What the pod accepts.
        wanted: Requirement,
        /// On whose account.
        asker: Asker,
        /// What nodes of these types can have that meet as much else as they can.
        offered: Vec<Requirement>,
        /// Whether nodes of these types can have it as it is wanted, but not together with all else.
        is_had_alone: bool,
        /// A label that the pool's nodes do have and that may be the one that was meant.
        similar_key: Option<String>,
        /// Whether no node has the label because the key names a resource of instance types, which pods ask for in
        /// another way.
        is_resource: bool,
    },
    /// The requirements can be met one by one, but not together.
    Combination,
    /// What the system keeps and the daemons need is more than there is.
    Daemons,
    /// None of the offerings that meet the requirements can be bought now.
    Unavailable,
    /// Of the reservations that the offerings draw on nothing is left.
    ReservationUsedUp {
        /// The names of the reservations.
        reservations: Vec<String>,
    },
    /// There is less than the pod and the daemons need.
    TooSmall {
        /// What is missing, the resource of which most types have too little first.
        shortages: Vec<Shortage>,
        /// The type of which the worst shortage is the smallest, measured by what the pod requests.
        nearest_type: String,
    },
    /// A daemon takes a port that the pod wants.
    HostPort {
        /// The port.
        port: HostPort,
    },
    /// The types that are big enough have too few distinct values of a label for which the pool asks several.
    MinValues {
        /// The key of the label.
        key: String,
        /// How many values the pool asks for.
        min_values: u32,
        /// How many there are at most.
        available: usize,
    },
    /// Pods that must share a node keep each other away.
    Neighbours,
    /// The limit of the pool leaves no room for such a type.
    Limit {
        /// The limited resource.
        resource: ResourceName,
        /// The limit.
        limit: Quantity,
        /// What its nodes have of it already, those of this plan among them.
        used: Quantity,
    },
    /// The pod could use reservations, and the policy is that it waits for them.
    AwaitsReservation {
        /// The names of the reservations.
        reservations: Vec<String>,
    },
}

/// On whose account a pod asks for a label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Asker {
    /// The pod asks for it itself.
    Pod,
    /// Its volumes can be nowhere else.
    Volumes,
    /// Rules about its neighbours, such as a topology spread, leave it no other domain.
    Neighbours,
}

/// A resource of which instance types have too little.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shortage {
    /// The resource.
    pub resource: ResourceName,
    /// How many types have too little of it.
    pub type_count: usize,
    /// What the pod requests.
    pub requested: Quantity,
    /// What the one of these types with the most of it leaves to pods beside the daemons.
    pub available: Quantity,
}

impl PoolObstacle {
    /// An obstacle in the way of all nodes of a pool.
    pub fn whole(pool: impl Into<String>, obstacle: Obstacle) -> Self {
        Self { pool: pool.into(), type_count: 0, shut_out: vec![TypesShutOut { type_count: 0, obstacle }] }
    }
}

impl Shortage {
    /// How much more is needed at least.
    pub fn missing(&self) -> Quantity {
        self.requested.saturating_sub(self.available)
    }
}

impl fmt::Display for PoolObstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pool {}: ", self.pool)?;
        for (i, shut_out) in self.shut_out.iter().enumerate() {
            f.write_str(if i > 0 { "; " } else { "" })?;
            if shut_out.type_count < self.type_count {
                write!(f, "{} of {} types: ", shut_out.type_count, self.type_count)?;
            }
            shut_out.obstacle.fmt(f)?;
        }
        Ok(())
    }
}

impl fmt::Display for Asker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pod => "",
            Self::Volumes => " for its volumes",
            Self::Neighbours => " by rules about its neighbours",
        })
    }
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Static => f.write_str("static: it is kept at its spec.replicas, and no node is made of it for pods"),
            Self::NotReady { message } => write!(f, "not ready: {message}"),
            Self::Taint(taint) => write!(f, "taint {taint} is not tolerated"),
            Self::NoInstanceTypes => f.write_str("no instance type meets the requirements of the pool"),
            Self::Label { key, wanted, asker, offered, is_had_alone, similar_key, is_resource } => {
                write!(f, "{} must be {wanted}{asker}, but ", name_of_key(key))?;
                if is_unique_to_node(key) {
                    return f.write_str("nobody knows the name of a new node");
                }
                f.write_str(if *is_had_alone { "nodes with all else " } else { "nodes " })?;
                write_offered(f, offered)?;
                if *is_resource {
                    return write!(f, " ({key} is a resource, not a label: ask for it under resources.limits)");
                }
                similar_key.as_ref().map_or(Ok(()), |similar| write!(f, " (they have {similar})"))
            }
            Self::Combination => f.write_str("no available offering meets all requirements at once"),
            Self::Daemons => f.write_str("the system and the daemons alone need more than there is"),
            Self::Unavailable => f.write_str("no offering that meets the requirements is available now"),
            Self::ReservationUsedUp { reservations } => {
                f.write_str("nothing is left of ")?;
                write_reservations(f, reservations)
            }
            Self::TooSmall { shortages, nearest_type } => write_shortages(f, shortages, nearest_type),
            Self::HostPort { port } => write!(f, "host port {port} is taken by a daemon"),
            Self::MinValues { key, min_values, available } => {
                write!(f, "minValues of {key}: {min_values} asked for, the types that fit have {available}")
            }
            Self::Neighbours => f.write_str("pods that must share a node keep each other away"),
            Self::Limit { resource, limit, used } => {
                write!(f, "limit of {resource}: {used} of {limit} used, the rest is too small for any type that fits")
            }
            Self::AwaitsReservation { reservations } => {
                f.write_str("it waits for ")?;
                write_reservations(f, reservations)?;
                f.write_str(", which it may use")
            }
        }
    }
}

impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} short by {}", self.resource, at_least(&self.resource, self.missing()))
    }
}

fn write_shortages(f: &mut fmt::Formatter<'_>, shortages: &[Shortage], nearest_type: &str) -> fmt::Result {
    for (i, shortage) in shortages.iter().enumerate() {
        let Shortage { resource, type_count, requested, available } = shortage;
        let (requested, most) = (at_least(resource, *requested), at_most(resource, *available));
        if shortages.len() == 1 {
            write!(f, "{shortage}: {requested} requested, {most} at most beside the daemons")?;
        } else {
            let (comma, s) = (if i > 0 { ", " } else { "" }, if *type_count == 1 { "" } else { "s" });
            write!(
                f,
                "{comma}{shortage} or more on {type_count} type{s} ({requested} requested, {most} at most there)"
            )?;
        }
        if *resource == ResourceName::Cpu && shortage.requested >= Quantity::from_units(MEGA) {
            f.write_str(" (M is a million cores, m a thousandth of one)")?;
        }
    }
    if shortages.len() > 1 { write!(f, "; the nearest is {nearest_type}") } else { Ok(()) }
}

pub(super) fn write_offered(f: &mut fmt::Formatter<'_>, offered: &[Requirement]) -> fmt::Result {
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

pub(super) fn write_reservations(f: &mut fmt::Formatter<'_>, reservations: &[String]) -> fmt::Result {
    f.write_str(if reservations.len() == 1 { "reservation " } else { "reservations " })?;
    write_list(f, reservations)
}
