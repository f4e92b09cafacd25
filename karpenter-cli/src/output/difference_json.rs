//! What changes to a dump come to, as other programs read it.

use std::collections::BTreeMap;

use karpenter_core::{Price, api::ObjectKey};
use serde::Serialize;

use crate::whatif::{Difference, NodesOfType};

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Document<'d> {
    changes: Vec<String>,
    hourly_cost_before: Price,
    hourly_cost_after: Price,
    hourly_cost_more: f64,
    unknown_prices: &'d [String],
    nodes_made: Vec<Nodes<'d>>,
    nodes_gone: Vec<Nodes<'d>>,
    moved: &'d [ObjectKey],
    /// Why they have no place without the changes; null for pods that are not there then.
    gained: BTreeMap<String, Option<&'d str>>,
    lost: BTreeMap<String, String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Nodes<'d> {
    node_pool: &'d str,
    instance_type: &'d str,
    before: usize,
    after: usize,
}

pub(super) fn document(difference: &Difference) -> Document<'_> {
    let rows = |goes: bool| difference.nodes.iter().filter(|row| row.goes == goes).map(nodes).collect();
    let gained = difference.gained.iter().map(|(pod, reason)| (pod.to_string(), reason.as_deref()));
    Document {
        changes: difference.changes.iter().map(ToString::to_string).collect(),
        hourly_cost_before: difference.cost_before,
        hourly_cost_after: difference.cost_after,
        hourly_cost_more: difference.cost_more(),
        unknown_prices: &difference.unknown,
        nodes_made: rows(false),
        nodes_gone: rows(true),
        moved: &difference.moved,
        gained: gained.collect(),
        lost: difference.lost.iter().map(|(pod, why)| (pod.to_string(), why.to_string())).collect(),
    }
}

fn nodes(row: &NodesOfType) -> Nodes<'_> {
    Nodes { node_pool: &row.pool, instance_type: &row.instance_type, before: row.before, after: row.after }
}
