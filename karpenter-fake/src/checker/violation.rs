use std::fmt;

use karpenter_core::{
    Price, Quantity, ResourceName,
    api::{ObjectKey, Taint},
};

/// How a plan breaks a rule.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Violation {
    /// A pending pod is neither placed nor refused.
    Lost {
        /// The pod.
        pod: ObjectKey,
    },
    /// A pod is in the plan more than once.
    Repeated {
        /// The pod.
        pod: ObjectKey,
        /// How often.
        count: usize,
    },
    /// The plan is about a pod that is not pending.
    NotPending {
        /// The pod.
        pod: ObjectKey,
    },
    /// A pod that uses what the engine does not handle is placed.
    Unsupported {
        /// The pod.
        pod: ObjectKey,
        /// The path of the field.
        field: &'static str,
    },
    /// A claim is of a pool that does not exist.
    UnknownPool {
        /// The index of the claim in the plan.
        claim: usize,
        /// The name of the pool.
        pool: String,
    },
    /// A claim is of a pool of which no node may be made now.
    PoolNotReady {
        /// The index of the claim in the plan.
        claim: usize,
        /// The name of the pool.
        pool: String,
        /// Why not.
        why: String,
    },
    /// A claim is for no pod.
    NoPods {
        /// The index of the claim in the plan.
        claim: usize,
    },
    /// A claim names a type that is not in the catalog of its pool.
    UnknownType {
        /// The index of the claim in the plan.
        claim: usize,
        /// The name of the type.
        instance_type: String,
    },
    /// A claim names more types than a claim may.
    TooManyTypes {
        /// The index of the claim in the plan.
        claim: usize,
        /// How many.
        count: usize,
    },
    /// A claim keeps fewer values of a label than its pool asks for.
    MinValues {
        /// The index of the claim in the plan.
        claim: usize,
        /// The key of the label.
        key: String,
        /// How many values its types have.
        count: usize,
        /// How many they must have.
        min_values: u32,
    },
    /// Nothing that a claim allows can be bought.
    NoOffering {
        /// The index of the claim in the plan.
        claim: usize,
    },
    /// A claim does not cost what it says.
    Price {
        /// The index of the claim in the plan.
        claim: usize,
        /// What it says.
        claimed: Price,
        /// What the cheapest offering that it allows costs.
        cheapest: Price,
    },
    /// A claim can only draw on reservations of which nothing is left beside other such claims.
    Reservation {
        /// The index of the claim in the plan.
        claim: usize,
        /// The reservations.
        reservations: Vec<String>,
    },
    /// The types of a claim are not in the order of their prices.
    TypeOrder {
        /// The index of the claim in the plan.
        claim: usize,
        /// The type that comes first.
        dearer: String,
        /// The type that comes next to it and costs less.
        cheaper: String,
    },
    /// Pods are placed on a node that does not exist.
    UnknownPlace {
        /// The name.
        place: String,
    },
    /// Pods are placed on a node that is being deleted.
    DeletingPlace {
        /// The name.
        place: String,
    },
    /// Pods are placed on a node of which it is not known what runs there.
    ClosedPlace {
        /// The name.
        place: String,
    },
    /// A label of the node is not what the pod's node selector says.
    NodeSelector {
        /// The pod.
        pod: ObjectKey,
        /// The node.
        node: PlannedNode,
        /// The key of the label.
        key: String,
    },
    /// The node meets no term of the pod's required node affinity.
    NodeAffinity {
        /// The pod.
        pod: ObjectKey,
        /// The node.
        node: PlannedNode,
    },
    /// The pod does not tolerate a taint of the node.
    Taint {
        /// The pod.
        pod: ObjectKey,
        /// The node.
        node: PlannedNode,
        /// The taint.
        taint: Taint,
    },
    /// The pods and daemons of a node need more than it has.
    Resources {
        /// The node.
        node: PlannedNode,
        /// The resource.
        resource: ResourceName,
        /// What they need together.
        requested: Quantity,
        /// What pods may have.
        allocatable: Quantity,
    },
    /// A claim that the pod mounts cannot be mounted on the node.
    Volume {
        /// The pod.
        pod: ObjectKey,
        /// The node.
        node: PlannedNode,
        /// The claim.
        claim: ObjectKey,
        /// Why not.
        obstacle: VolumeObstacle,
    },
    /// Two pods of a node mount a disk that they name themselves, and not both only read it.
    SharedDisk {
        /// The node.
        node: PlannedNode,
        /// A pod that is new there.
        pod: ObjectKey,
        /// The other pod.
        other: ObjectKey,
    },
    /// A storage driver cannot attach so many volumes to a node.
    VolumeLimit {
        /// The node.
        node: PlannedNode,
        /// The name of the driver.
        driver: String,
        /// How many it has attached.
        attached: usize,
        /// How many new pods want beside them.
        wanted: usize,
        /// How many it can.
        limit: u32,
    },
    /// Two pods of a node want the same port of it.
    HostPort {
        /// The node.
        node: PlannedNode,
        /// Address, number and protocol.
        port: String,
    },
    /// A pod comes near a running one that keeps such pods away.
    ExistingAntiAffinity {
        /// The pod.
        pod: ObjectKey,
        /// The node.
        node: PlannedNode,
        /// The running pod.
        running: ObjectKey,
        /// The label that both nodes share.
        topology_key: String,
    },
    /// A pod comes near one that it keeps away from, or the other way round.
    AntiAffinity {
        /// The pod that keeps away.
        pod: ObjectKey,
        /// Its node.
        node: PlannedNode,
        /// The other pod.
        neighbour: ObjectKey,
        /// The label that both nodes share.
        topology_key: String,
    },
    /// A pod that must be near certain pods is near none, in whatever order pods are bound.
    Affinity {
        /// The pod.
        pod: ObjectKey,
        /// The node.
        node: PlannedNode,
        /// The label that near nodes share.
        topology_key: String,
    },
    /// A pod is spread by a label that its node does not have, or must be near others by it.
    NoTopologyLabel {
        /// The pod.
        pod: ObjectKey,
        /// The node.
        node: PlannedNode,
        /// The key of the label.
        topology_key: String,
    },
    /// A domain holds too many pods of a kind, in whatever order pods are bound.
    Spread {
        /// A pod with the constraint in that domain.
        pod: ObjectKey,
        /// Its node.
        node: PlannedNode,
        /// The label whose values are the domains.
        topology_key: String,
        /// The domain.
        domain: String,
        /// How many it holds.
        count: i64,
        /// How many the emptiest domain holds.
        minimum: i64,
        /// By how many the two may differ.
        max_skew: i64,
    },
    /// The nodes of a pool may come to more than its limit.
    Limit {
        /// The name of the pool.
        pool: String,
        /// The resource.
        resource: ResourceName,
        /// The limit.
        limit: Quantity,
        /// What its nodes have already.
        existing: Quantity,
        /// What the new ones have, if the largest type of each is bought.
        new: Quantity,
    },
    /// A claim is of a pool although a heavier one would take each of its pods.
    Weight {
        /// The index of the claim in the plan.
        claim: usize,
        /// The name of its pool.
        pool: String,
        /// The name of the heavier pool.
        heavier: String,
    },
}

/// What keeps a claim from being mounted on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum VolumeObstacle {
    /// There is no such claim.
    ClaimMissing,
    /// The claim is being deleted, or has lost its volume.
    ClaimGone,
    /// The claim names a volume, and its binding is not complete.
    HalfBound,
    /// The claim is bound to a volume that does not exist.
    VolumeMissing,
    /// The claim has no volume, and there is no class of which one could be made.
    NoClass,
    /// The claim will get a volume, wherever that may be, without waiting for a pod.
    NotBoundYet,
    /// No term of the volume's node affinity is met.
    NodeAffinity,
    /// The volume is in another zone, as its labels tell.
    OtherZone,
    /// The class makes no volumes there.
    Topology,
    /// Its volume is being made for another node.
    OtherNode,
}

impl fmt::Display for VolumeObstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ClaimMissing => "there is no such claim",
            Self::ClaimGone => "it is lost or being deleted",
            Self::HalfBound => "its binding is not complete",
            Self::VolumeMissing => "its volume does not exist",
            Self::NoClass => "it has neither a volume nor a class",
            Self::NotBoundYet => "it is not bound, and its class does not wait for pods",
            Self::NodeAffinity => "no term of its volume's node affinity is met",
            Self::OtherZone => "its volume is in another zone",
            Self::Topology => "its class makes no volumes there",
            Self::OtherNode => "its volume is being made for another node",
        })
    }
}

/// A node as it may come to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlannedNode {
    /// A node or launched claim that there is.
    Existing(
        /// Its name.
        String,
    ),
    /// A new one, if this offering is bought.
    New {
        /// The index of the claim in the plan.
        claim: usize,
        /// The name of the type.
        instance_type: String,
        /// The zone; empty if the offering names none.
        zone: String,
        /// The capacity type; empty if the offering names none.
        capacity_type: String,
    },
}

impl fmt::Display for PlannedNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Existing(name) => f.write_str(name),
            Self::New { claim, instance_type, zone, capacity_type } => {
                write!(f, "claim {claim} as {capacity_type} {instance_type} in {zone}")
            }
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lost { pod } => write!(f, "{pod} is neither placed nor refused"),
            Self::Repeated { pod, count } => write!(f, "{pod} is in the plan {count} times"),
            Self::NotPending { pod } => write!(f, "{pod} is not pending"),
            Self::Unsupported { pod, field } => write!(f, "{pod} is placed although it uses {field}"),
            Self::NodeSelector { pod, node, key } => write!(f, "{pod} on {node}: nodeSelector {key}"),
            Self::NodeAffinity { pod, node } => write!(f, "{pod} on {node}: no term of its node affinity is met"),
            Self::Taint { pod, node, taint } => write!(f, "{pod} on {node}: taint {taint}"),
            Self::Resources { node, resource, requested, allocatable } => {
                write!(f, "{node}: {resource}: {requested} requested of {allocatable}")
            }
            Self::Volume { pod, node, claim, obstacle } => write!(f, "{pod} on {node}: claim {claim}: {obstacle}"),
            Self::VolumeLimit { node, driver, attached, wanted, limit } => {
                write!(f, "{node}: {driver}: {attached} volumes and {wanted} more, limit {limit}")
            }
            Self::SharedDisk { node, pod, other } => write!(f, "{pod} on {node}: {other} mounts the same disk"),
            Self::HostPort { node, port } => write!(f, "{node}: host port {port} is wanted twice"),
            Self::Limit { pool, resource, limit, existing, new } => {
                write!(f, "pool {pool}: {resource}: {existing} and up to {new} more, limit {limit}")
            }
            Self::UnknownPlace { place } => write!(f, "there is no node {place}"),
            Self::DeletingPlace { place } => write!(f, "{place} is being deleted"),
            Self::ClosedPlace { place } => write!(f, "it is not known what runs on {place}"),
            Self::Spread { .. }
            | Self::NoTopologyLabel { .. }
            | Self::Affinity { .. }
            | Self::AntiAffinity { .. }
            | Self::ExistingAntiAffinity { .. } => self.fmt_of_topology(f),
            of_claim => of_claim.fmt_of_claim(f),
        }
    }
}

impl Violation {
    /// Whether the plan is no list of nodes for pods, so that there is nothing to hold to the rules between pods.
    pub(super) const fn is_about_shape(&self) -> bool {
        matches!(
            self,
            Self::Repeated { .. }
                | Self::NotPending { .. }
                | Self::UnknownPool { .. }
                | Self::PoolNotReady { .. }
                | Self::NoPods { .. }
                | Self::UnknownType { .. }
                | Self::NoOffering { .. }
                | Self::UnknownPlace { .. }
        )
    }

    /// Those that are about a pod and its neighbours.
    fn fmt_of_topology(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ExistingAntiAffinity { pod, node, running, topology_key } => {
                write!(f, "{pod} on {node}: {running} keeps it away by {topology_key}")
            }
            Self::AntiAffinity { pod, node, neighbour, topology_key } => {
                write!(f, "{pod} on {node}: it keeps away from {neighbour} by {topology_key}")
            }
            Self::Affinity { pod, node, topology_key } => {
                write!(f, "{pod} on {node}: it finds no company by {topology_key}")
            }
            Self::NoTopologyLabel { pod, node, topology_key } => {
                write!(f, "{pod} on {node}: the node has no label {topology_key}")
            }
            Self::Spread { pod, node, topology_key, domain, count, minimum, max_skew } => write!(
                f,
                "{pod} on {node}: {count} in {domain}, {minimum} in the emptiest domain of {topology_key}, maxSkew {max_skew}"
            ),
            other => write!(f, "{other:?}"),
        }
    }

    /// Those that are about a claim as such.
    fn fmt_of_claim(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownPool { claim, pool } => write!(f, "claim {claim}: there is no pool {pool}"),
            Self::PoolNotReady { claim, pool, why } => write!(f, "claim {claim}: pool {pool} is not ready: {why}"),
            Self::NoPods { claim } => write!(f, "claim {claim} is for no pod"),
            Self::UnknownType { claim, instance_type } => {
                write!(f, "claim {claim}: there is no instance type {instance_type}")
            }
            Self::TooManyTypes { claim, count } => write!(f, "claim {claim} names {count} instance types"),
            Self::MinValues { claim, key, count, min_values } => {
                write!(f, "claim {claim}: {count} values of {key}, {min_values} at least")
            }
            Self::NoOffering { claim } => write!(f, "claim {claim}: no offering meets its requirements"),
            Self::Price { claim, claimed, cheapest } => {
                write!(f, "claim {claim} is said to cost {claimed}, its cheapest offering costs {cheapest}")
            }
            Self::Reservation { claim, reservations } => {
                write!(
                    f,
                    "claim {claim} can only use what is reserved, and nothing is left of {}",
                    reservations.join(", ")
                )
            }
            Self::TypeOrder { claim, dearer, cheaper } => {
                write!(f, "claim {claim} names {dearer} before {cheaper}, which costs less")
            }
            Self::Weight { claim, pool, heavier } => {
                write!(f, "claim {claim} is of {pool} although {heavier} is heavier and would take its pods")
            }
            other => write!(f, "{other:?}"),
        }
    }
}
