//! Commands as other programs read them.

use std::collections::BTreeMap;

use karpenter_core::{
    Price, Timestamp,
    api::DisruptionReason,
    disrupt::{Command, Method},
};
use serde::Serialize;

use super::{
    difference_json,
    json::{Claim, claim, names},
};
use crate::consolidate::{Consolidation, Found};

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Document<'c> {
    version: &'static str,
    now: Timestamp,
    commands: Vec<One<'c>>,
    hourly_cost_before: Price,
    hourly_cost_after: Price,
    unknown_prices: &'c [String],
    errors: &'c BTreeMap<String, String>,
    warnings: &'c [String],
    seconds: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    difference: Option<difference_json::Document<'c>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct One<'c> {
    method: Method,
    reason: DisruptionReason,
    decision: &'static str,
    candidates: &'c [String],
    replacements: Vec<Claim<'c>>,
    existing: BTreeMap<&'c str, Vec<String>>,
    savings: f64,
    evictions: usize,
    seconds: f64,
}

pub(super) fn document(found: &Consolidation) -> Document<'_> {
    Document {
        version: env!("CARGO_PKG_VERSION"),
        now: found.now,
        commands: found.commands.iter().map(one).collect(),
        hourly_cost_before: found.bill.before,
        hourly_cost_after: found.bill.after,
        unknown_prices: &found.bill.unknown,
        errors: &found.errors,
        warnings: &found.warnings,
        seconds: found.time.as_secs_f64(),
        difference: found.difference.as_ref().map(difference_json::document),
    }
}

fn one(Found { command, time }: &Found) -> One<'_> {
    One {
        method: command.method,
        reason: command.method.reason(),
        decision: decision(command),
        candidates: &command.candidates,
        replacements: command.replacements.iter().map(claim).collect(),
        existing: command.existing.iter().map(|(node, pods)| (node.as_str(), names(pods))).collect(),
        savings: command.savings_per_hour,
        evictions: command.moved(),
        seconds: time.as_secs_f64(),
    }
}

fn decision(command: &Command) -> &'static str {
    if command.is_delete() { "delete" } else { "replace" }
}
