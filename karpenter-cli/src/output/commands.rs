//! Commands as other programs read them.

use std::collections::BTreeMap;

use karpenter_core::{Price, Timestamp, api::DisruptionReason, disrupt::Command};
use serde::Serialize;

use super::{
    difference_json,
    guards::{Kept, TightBudget, kept, tight_budgets},
    outlook_json::{OfBudget, of_budget},
};
use crate::consolidate::{Consolidation, Found};

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Document<'c> {
    version: &'static str,
    complete: bool,
    now: Timestamp,
    commands: Vec<One<'c>>,
    hourly_cost_before: Price,
    hourly_cost_after: Price,
    unknown_prices: &'c [String],
    /// How many pods want a place.
    pods: usize,
    budgets: Vec<OfPool<'c>>,
    kept_nodes: BTreeMap<&'c str, Vec<Kept>>,
    errors: &'c BTreeMap<String, String>,
    warnings: &'c [String],
    seconds: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    difference: Option<difference_json::Document<'c>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct OfPool<'c> {
    node_pool: &'c str,
    reason: DisruptionReason,
    /// How many nodes could go.
    nodes: usize,
    budget: OfBudget,
}

fn of_pool(TightBudget { pool, reason, nodes, limit }: TightBudget<'_>) -> OfPool<'_> {
    OfPool { node_pool: pool, reason, nodes, budget: of_budget(&limit) }
}

#[derive(Serialize)]
struct One<'c> {
    #[serde(flatten)]
    command: &'c Command,
    seconds: f64,
}

pub(super) fn document(found: &Consolidation) -> Document<'_> {
    Document {
        version: env!("CARGO_PKG_VERSION"),
        complete: found.is_complete,
        now: found.now,
        commands: found.commands.iter().map(one).collect(),
        hourly_cost_before: found.bill.before,
        hourly_cost_after: found.bill.after,
        unknown_prices: &found.bill.unknown,
        pods: found.snapshot.pending().len(),
        budgets: tight_budgets(found).map(of_pool).collect(),
        kept_nodes: kept(found),
        errors: &found.errors,
        warnings: &found.warnings,
        seconds: found.time.as_secs_f64(),
        difference: found.difference.as_ref().map(difference_json::document),
    }
}

fn one(Found { command, time }: &Found) -> One<'_> {
    One { command, seconds: time.as_secs_f64() }
}
