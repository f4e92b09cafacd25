//! What any plan for the same pods costs at least, with a certificate.
//!
//! A relaxation gives the bound: pods buy fractions of nodes and pay only for resources; rules between pods, volumes that
//! drivers can attach, host ports and limits are left out. Its dual (linear programming duality; see Vasek Chvatal,
//! *Linear Programming*, chapter 5, and for bin packing Gilmore and Gomory 1961) puts prices on resources: every kind of
//! node splits its price among its resources, and a pod pays for the share of each that it takes. Whatever nodes are made, no
//! node brings in more than it costs, so the nodes of a plan cost at least what its pods pay where they pay least.
//!
//! Places that exist cost nothing, and there is one of each: what pods pay there is bounded by a worth, which is taken off.
//! Machines of a reservation are treated alike, as many as are left.

mod ascent;
mod kinds;
mod program;
mod proof;
mod weights;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Plan, Problem};
use crate::Price;

/// A lower bound on the price of all plans for the same pods, and what proves it.
///
/// The proof is a split of prices. Let a kind of node be a pool with an offering of one of its types, or an existing place,
/// or an offering that draws on a reservation. A node of a kind costs its price; an existing place costs its worth, and a
/// reserved machine its price and the worth of the reservation. A pod on a node pays, for each resource that it asks for,
///
/// ```text
/// price * share * request / (room * 1_000_000)     rounded down to whole billionths of a dollar an hour
/// ```
///
/// where the room is what the node leaves beside its daemons. The shares of a kind add up to no more than a million, so all
/// pods of a node together pay no more than it costs. The bound is the sum, over all pods that the plan places, of what
/// each pays on the kind that is cheapest for it, of all that admit it, less the worth of all places and of all machines
/// that reservations have left. Anybody can check it: `karpenter_fake::check_certificate` does, from the snapshot and the
/// catalogs alone.
///
/// A kind admits a pod if labels, taints (those that only prefer do not count) and volumes do, and the pod fits there
/// alone. There are no kinds of pools in which no node can be made now, of offerings that cannot be bought now, and of
/// pools that the rule of weights keeps closed: where a heavier pool without limits takes each pod that the pool admits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Certificate {
    /// What any plan for these pods costs at least.
    pub lower_bound: Price,
    /// How nodes of pools split their prices. Pods pay nothing on types that are not named.
    pub node_pools: Vec<PoolShares>,
    /// The existing places that are worth something, by name.
    pub places: BTreeMap<String, Worth>,
    /// The reservations, by the value of the label that names them.
    pub reservations: BTreeMap<String, Worth>,
}

/// How nodes of some types of a pool split their prices among their resources.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct PoolShares {
    /// The name of the pool.
    pub node_pool: String,
    /// The names of the types.
    pub instance_types: Vec<String>,
    /// The share of each resource, in millionths. Resources that are not named cost nothing.
    pub shares_ppm: BTreeMap<String, u32>,
}

/// What an existing place, or a machine of a reservation beyond its price, is worth to pods.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Worth {
    /// Billionths of a dollar an hour, for one machine.
    pub worth_nano_dollars_per_hour: i64,
    /// The share of each resource, in millionths. Resources that are not named cost nothing.
    pub shares_ppm: BTreeMap<String, u32>,
}

/// A number rounded down; what is too large becomes the largest number there is.
#[expect(clippy::cast_possible_truncation, reason = "that is what it is for")]
const fn whole(number: f64) -> i64 {
    number as i64
}

impl Problem<'_> {
    /// The least that nodes for the pods of a plan can cost, with the proof. Pods that the plan leaves without a place are
    /// left out of it.
    ///
    /// `plan` is a plan for this problem. The bound holds for all plans that place the same pods, so for the cheapest.
    ///
    /// ```
    /// use karpenter_core::{
    ///     Catalogs, InstanceType, Planner, Price, Quantity, Snapshot,
    ///     api::{NodePool, Pod},
    /// };
    ///
    /// let large = InstanceType::named("large", [("cpu", Quantity::from_units(8)), ("memory", Quantity::from_bytes(32 << 30))])
    ///     .offering("on-demand", "zone-a", Price::per_hour(0.40).unwrap());
    /// let snapshot = Snapshot::builder()
    ///     .pool(NodePool::named("general"))
    ///     .pods(Pod::named("web").cpu("500m").memory("1Gi").replicas(40))
    ///     .build()?;
    /// let catalogs = Catalogs::shared(vec![large], snapshot.pools())?;
    /// let planner = Planner::default();
    /// let problem = planner.prepare(&snapshot, &catalogs);
    ///
    /// // 20 CPUs are two and a half nodes; the plan has three.
    /// let certificate = problem.certify(&problem.solve());
    /// assert!((certificate.lower_bound.dollars_per_hour() - 1.0).abs() < 0.001);
    /// assert_eq!(certificate.node_pools[0].instance_types, ["large"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn certify(&self, plan: &Plan) -> Certificate {
        let mut ledger = proof::Ledger::new(&self.base);
        for program in program::all(&self.base, plan) {
            ledger.enter(&program, &ascent::ascend(&program));
        }
        ledger.finish()
    }
}
