//! Answers about single nodes as other programs read them.

use std::collections::BTreeMap;

use karpenter_core::{
    PlannedClaim, Price, Reason, Timestamp,
    api::{DisruptionReason, ObjectKey},
    disrupt::{Alone, BudgetLimit, Guard, NodeOutlook, ReasonOutlook, Scope},
    labels,
};
use serde::Serialize;

use super::guards::kind;

/// The answer for one node.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Document<'o> {
    node: &'o str,
    node_pool: Option<&'o str>,
    instance_type: Option<&'o str>,
    zone: Option<&'o str>,
    capacity_type: Option<&'o str>,
    price: Option<Price>,
    pods: &'o [ObjectKey],
    /// Null if it stays.
    goes_for: Option<DisruptionReason>,
    guards: Vec<Keeps>,
    reasons: Vec<OfReason>,
    /// Null if it was not looked at.
    alone: Option<IfAlone<'o>>,
}

#[derive(Serialize)]
struct Keeps {
    kind: &'static str,
    scope: &'static str,
    message: String,
}

#[derive(Serialize)]
struct OfReason {
    reason: DisruptionReason,
    applies: bool,
    open: bool,
    guards: Vec<&'static str>,
    budget: Option<OfBudget>,
}

/// What the tightest budget of the pool allows.
#[derive(Serialize)]
pub(super) struct OfBudget {
    /// Null for no limit.
    allowed: Option<u32>,
    /// Null if no budget counts.
    index: Option<usize>,
    nodes: Option<u32>,
    taken: Option<u32>,
    until: Option<Timestamp>,
    message: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct IfAlone<'o> {
    errors: &'o BTreeMap<ObjectKey, Reason>,
    existing: &'o BTreeMap<String, Vec<ObjectKey>>,
    replacements: &'o [PlannedClaim],
    savings: Option<f64>,
    threshold: f64,
    has_choice: bool,
    /// Null where the pool asks for none.
    balance: Option<f64>,
    worth_it: bool,
}

/// One answer for each node, in order.
pub(super) fn document(outlooks: &[NodeOutlook]) -> Vec<Document<'_>> {
    outlooks.iter().map(of_node).collect()
}

fn of_node(outlook: &NodeOutlook) -> Document<'_> {
    let label = |key: &str| outlook.labels.get(key).map(String::as_str);
    Document {
        node: &outlook.name,
        node_pool: outlook.pool.as_deref(),
        instance_type: label(labels::INSTANCE_TYPE),
        zone: label(labels::ZONE),
        capacity_type: label(labels::CAPACITY_TYPE),
        price: outlook.price_per_hour,
        pods: &outlook.pods,
        goes_for: outlook.goes_for(),
        guards: outlook.guards.iter().map(keeps).collect(),
        reasons: outlook.reasons.iter().map(of_reason).collect(),
        alone: outlook.alone.as_ref().map(if_alone),
    }
}

fn keeps(guard: &Guard) -> Keeps {
    let scope = match guard.scope() {
        Scope::Everything => "everything",
        Scope::Graceful => "graceful",
        Scope::Consolidation => "consolidation",
        Scope::Underutilized => "underutilized",
        Scope::Replacement => "replacement",
        _ => "other",
    };
    Keeps { kind: kind(guard), scope, message: guard.to_string() }
}

fn of_reason(one: &ReasonOutlook) -> OfReason {
    OfReason {
        reason: one.reason,
        applies: one.applies,
        open: one.is_open(),
        guards: one.guards.iter().map(kind).collect(),
        budget: one.budget.as_ref().map(of_budget),
    }
}

pub(super) fn of_budget(limit: &BudgetLimit) -> OfBudget {
    let message = limit.to_string();
    let (active, index) = match limit {
        BudgetLimit::Tightest(budget) => (Some(budget), Some(budget.index)),
        BudgetLimit::Unreadable(error) => (None, Some(error.index)),
        _ => (None, None),
    };
    let allowed = if *limit == BudgetLimit::Unlimited { None } else { Some(limit.allowed()) };
    let (nodes, taken) = (active.map(|budget| budget.nodes), active.map(|budget| budget.taken));
    OfBudget { allowed, index, nodes, taken, until: active.and_then(|budget| budget.until), message }
}

fn if_alone(alone: &Alone) -> IfAlone<'_> {
    IfAlone {
        errors: &alone.unplaced,
        existing: &alone.existing,
        replacements: &alone.replacements,
        savings: alone.savings_per_hour,
        threshold: alone.threshold_per_hour,
        has_choice: alone.has_choice,
        balance: alone.balance,
        worth_it: alone.is_worth_it(),
    }
}
