//! Answers about node pools as other programs read them.

use karpenter_core::{
    Price, Quantity,
    api::DisruptionReason,
    disrupt::{PoolBudget, PoolOutlook},
    reason::{TypeObstacle, TypesRuledOut},
    schedule::{LimitUse, RemainingType, ValueCount},
};
use serde::Serialize;
use serde_json::json;

use super::{
    explain_json::{Described, expressions, of_types},
    outlook_json::{OfBudget, of_budget},
};

/// The answer for one pool.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Document<'o> {
    node_pool: &'o str,
    weight: u32,
    /// Null if it is not static.
    replicas: Option<u32>,
    /// Null if nodes are made of it.
    obstacle: Option<OnPool>,
    types: usize,
    ruled_out: Vec<RuledOut<'o>>,
    remaining: Vec<Remaining<'o>>,
    min_values: Vec<OfValues<'o>>,
    limits: Vec<OfLimit<'o>>,
    nodes: u32,
    not_ready_or_leaving: u32,
    budgets: Vec<OfReason>,
}

#[derive(Serialize)]
struct OnPool {
    message: String,
    #[serde(flatten)]
    obstacle: Described,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct RuledOut<'o> {
    count: usize,
    alone: usize,
    instance_types: &'o [String],
    #[serde(flatten)]
    obstacle: OnPool,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Remaining<'o> {
    instance_type: &'o str,
    cheapest_price: Price,
    zones: &'o [String],
    capacity_types: &'o [String],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct OfValues<'o> {
    key: &'o str,
    min_values: u32,
    available: usize,
}

#[derive(Serialize)]
struct OfLimit<'o> {
    resource: &'o str,
    limit: Quantity,
    used: Quantity,
}

#[derive(Serialize)]
struct OfReason {
    reason: DisruptionReason,
    nodes: u32,
    budget: OfBudget,
}

/// One answer for each pool, in order.
pub(super) fn document(outlooks: &[PoolOutlook]) -> Vec<Document<'_>> {
    outlooks.iter().map(of_pool).collect()
}

fn of_pool(outlook: &PoolOutlook) -> Document<'_> {
    let types = &outlook.types;
    let on_pool = |obstacle: &_| OnPool { message: ToString::to_string(obstacle), obstacle: of_types(obstacle) };
    Document {
        node_pool: &outlook.name,
        weight: outlook.weight,
        replicas: outlook.replicas,
        obstacle: types.obstacle.as_ref().map(on_pool),
        types: types.type_count,
        ruled_out: types.ruled_out.iter().map(ruled_out).collect(),
        remaining: types.remaining.iter().map(remaining).collect(),
        min_values: types.min_values.iter().map(values).collect(),
        limits: types.limits.iter().map(limit).collect(),
        nodes: outlook.nodes.managed,
        not_ready_or_leaving: outlook.nodes.not_ready_or_leaving,
        budgets: outlook.budgets.iter().map(budget).collect(),
    }
}

fn ruled_out(group: &TypesRuledOut) -> RuledOut<'_> {
    let obstacle = OnPool { message: group.obstacle.to_string(), obstacle: described(&group.obstacle) };
    RuledOut { count: group.types.len(), alone: group.alone_count, instance_types: &group.types, obstacle }
}

fn described(obstacle: &TypeObstacle) -> Described {
    let (kind, operands) = match obstacle {
        TypeObstacle::OtherPools => ("otherPools", json!({})),
        TypeObstacle::NoOfferings => ("noOfferings", json!({})),
        TypeObstacle::Contradiction { key } => ("contradiction", json!({ "key": key })),
        TypeObstacle::Requirement { key, wanted, offered } => {
            let offered: Vec<_> = offered.iter().flat_map(|offered| expressions(key, offered)).collect();
            ("requirement", json!({ "key": key, "wanted": expressions(key, wanted), "offered": offered }))
        }
        TypeObstacle::Combination { keys } => ("combination", json!({ "keys": keys })),
        TypeObstacle::Unavailable => ("unavailable", json!({})),
        TypeObstacle::ReservationUsedUp { reservations } => {
            ("reservationUsedUp", json!({ "reservations": reservations }))
        }
        TypeObstacle::Overhead { resource, missing } => {
            ("overhead", json!({ "resource": resource.as_str(), "missing": missing }))
        }
        TypeObstacle::Daemons { resource, missing } => {
            ("daemons", json!({ "resource": resource.as_str(), "missing": missing }))
        }
        TypeObstacle::Limit { resource, limit, used } => {
            ("limit", json!({ "resource": resource.as_str(), "limit": limit, "used": used }))
        }
        _ => ("other", json!({})),
    };
    Described { kind, operands }
}

fn remaining(one: &RemainingType) -> Remaining<'_> {
    Remaining {
        instance_type: &one.name,
        cheapest_price: one.cheapest_price,
        zones: &one.zones,
        capacity_types: &one.capacity_types,
    }
}

fn values(one: &ValueCount) -> OfValues<'_> {
    OfValues { key: &one.key, min_values: one.min_values, available: one.available }
}

fn limit(one: &LimitUse) -> OfLimit<'_> {
    OfLimit { resource: one.resource.as_str(), limit: one.limit, used: one.used }
}

fn budget(one: &PoolBudget) -> OfReason {
    OfReason { reason: one.reason, nodes: one.nodes, budget: of_budget(&one.limit) }
}
