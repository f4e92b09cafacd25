//! What rules out instance types of a pool, whatever the pod.

use std::fmt;

use super::{
    amount::at_least,
    pool::{write_offered, write_reservations},
    write_list,
};
use crate::{Quantity, Requirement, ResourceName};

/// Instance types that an obstacle keeps out of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TypesRuledOut {
    /// What is in the way.
    pub obstacle: TypeObstacle,
    /// The names of the types, in order.
    pub types: Vec<String>,
    /// For how many of them nothing else of the kind is in the way: no other requirement, or no other limit.
    pub alone_count: usize,
}

/// What keeps a pool from launching an instance type, whatever the pod.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TypeObstacle {
    /// The pool's catalog has no such type; the catalogs of other pools have it.
    OtherPools,
    /// The type names no offering.
    NoOfferings,
    /// What the pool says of a label contradicts itself, so that no node can be as it asks.
    Contradiction {
        /// The key of the label.
        key: String,
    },
    /// No offering has a label as the pool's requirements or its template's labels ask for it.
    Requirement {
        /// The key of the label.
        key: String,
        /// What the pool accepts.
        wanted: Requirement,
        /// What offerings of these types have.
        offered: Vec<Requirement>,
    },
    /// Each label is as the pool asks on some offering, but not all of them on the same one.
    Combination {
        /// The keys of the labels that some offering lacks, in order.
        keys: Vec<String>,
    },
    /// None of the offerings that the pool accepts can be bought now.
    Unavailable,
    /// Of the reservations that these offerings draw on nothing is left.
    ReservationUsedUp {
        /// The names of the reservations.
        reservations: Vec<String>,
    },
    /// What is kept for the kubelet and the system is more than the machine has.
    Overhead {
        /// The resource.
        resource: ResourceName,
        /// How much is missing at least.
        missing: Quantity,
    },
    /// The daemons leave too little of what the system leaves for a pod.
    Daemons {
        /// The resource.
        resource: ResourceName,
        /// How much is missing at least.
        missing: Quantity,
    },
    /// The limit of the pool leaves no room for such a machine.
    Limit {
        /// The limited resource.
        resource: ResourceName,
        /// The limit.
        limit: Quantity,
        /// What the nodes of the pool have of it.
        used: Quantity,
    },
}

impl fmt::Display for TypeObstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OtherPools => f.write_str("offered to other pools alone"),
            Self::NoOfferings => f.write_str("no offering is named"),
            Self::Contradiction { key } => write!(f, "what the pool says of {key} contradicts itself"),
            Self::Requirement { key, wanted, offered } => {
                write!(f, "the pool wants {key} {wanted}, but they ")?;
                write_offered(f, offered)
            }
            Self::Combination { keys } => {
                f.write_str("no offering is as the pool wants it in all of ")?;
                write_list(f, keys)
            }
            Self::Unavailable => f.write_str("no offering that the pool accepts is available now"),
            Self::ReservationUsedUp { reservations } => {
                f.write_str("nothing is left of ")?;
                write_reservations(f, reservations)
            }
            Self::Overhead { resource, missing } => {
                let missing = at_least(resource, *missing);
                write!(f, "the system leaves no room for a pod: {resource} short by at least {missing}")
            }
            Self::Daemons { resource, missing } => {
                let missing = at_least(resource, *missing);
                write!(f, "the daemons leave no room for a pod: {resource} short by at least {missing}")
            }
            Self::Limit { resource, limit, used } => {
                write!(f, "limit of {resource}: {used} of {limit} used, the rest is too small")
            }
        }
    }
}
