//! Commands as other programs and people read them.

use std::{collections::BTreeMap, fmt::Write as _};

use karpenter_core::disrupt::{Command, Method};
use serde::Serialize;

use super::json::{Claim, claim, names};
use crate::consolidate::Consolidation;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Document<'c> {
    commands: Vec<One<'c>>,
    seconds: f64,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct One<'c> {
    method: Method,
    reason: String,
    decision: &'static str,
    candidates: &'c [String],
    replacements: Vec<Claim<'c>>,
    existing: BTreeMap<&'c str, Vec<String>>,
    savings: f64,
    evictions: usize,
}

pub(super) fn document(found: &Consolidation) -> Document<'_> {
    Document { commands: found.commands.iter().map(one).collect(), seconds: found.time.as_secs_f64() }
}

fn one(command: &Command) -> One<'_> {
    One {
        method: command.method,
        reason: format!("{:?}", command.method.reason()),
        decision: if command.is_delete() { "delete" } else { "replace" },
        candidates: &command.candidates,
        replacements: command.replacements.iter().map(claim).collect(),
        existing: command.existing.iter().map(|(node, pods)| (node.as_str(), names(pods))).collect(),
        savings: command.savings_per_hour,
        evictions: command.moved(),
    }
}

pub(super) fn text(found: &Consolidation) -> String {
    let mut out = String::new();
    for command in &found.commands {
        let _ = writeln!(
            out,
            "{:?}: {} nodes go, {} come, {} pods move, ${:.4} an hour less",
            command.method,
            command.candidates.len(),
            command.replacements.len(),
            command.moved(),
            command.savings_per_hour
        );
    }
    out
}
