//! What changes to a dump come to, for people.

use std::collections::BTreeMap;

use karpenter_core::api::ObjectKey;

use super::table::{HOURS_PER_MONTH, align_right, count, first_names, folded, plain_table, warnings};
use crate::whatif::{Difference, NodesOfType};

/// The comparison, with what somebody should look at in the changed cluster.
pub(super) fn text(difference: &Difference, of_changed: &[String]) -> String {
    let gained = difference.gained.iter().map(|(pod, reason)| {
        let reason = reason.as_ref().map_or_else(|| "new".to_owned(), |reason| format!("before: {reason}"));
        (pod, reason)
    });
    let lost = difference.lost.iter().map(|(pod, why)| (pod, why.to_string()));
    let mut parts = vec![
        summary(difference),
        nodes(&difference.nodes),
        pods("Pods that gain a place", gained),
        pods("Pods that have no place", lost),
        warnings(of_changed),
    ];
    parts.retain(|part| !part.is_empty());
    parts.join("\n")
}

/// What is changed, and the bill.
fn summary(difference: &Difference) -> String {
    let changes = match difference.changes.as_slice() {
        [] => "nothing is changed".to_owned(),
        changes => first_names(changes.iter().map(ToString::to_string)),
    };
    let mut out = folded(&format!("What if: {changes}"), "");
    let (before, after) = (difference.cost_before.dollars_per_hour(), difference.cost_after.dollars_per_hour());
    out += &folded(&format!("All nodes: ${before:.4} an hour before, ${after:.4} after: {}.", change(difference)), "");
    if !difference.unknown.is_empty() {
        let names = first_names(difference.unknown.iter().cloned());
        out += &folded(&format!("Not counted, because nobody knows what they cost: {names}"), "");
    }
    if difference.nodes.is_empty() {
        out += "The same nodes are made, and the same go.\n";
    }
    if !difference.is_complete {
        out += "Planning was stopped before its end: there may be better plans.\n";
    }
    let (moved, gained, lost) = (difference.moved.len(), difference.gained.len(), difference.lost.len());
    out + &folded(&format!("Pods that move: {moved}; that gain a place: {gained}; that have none: {lost}."), "")
}

/// How much more or less is paid.
fn change(difference: &Difference) -> String {
    let more = difference.cost_more();
    let (hourly, monthly) = (more.abs(), more.abs() * HOURS_PER_MONTH);
    // What the digits that are printed do not show is no difference.
    if hourly < 0.00005 {
        return "no difference".to_owned();
    }
    let word = if more > 0.0 { "more" } else { "less" };
    format!("${hourly:.4} an hour and ${monthly:.2} a month {word}")
}

/// The nodes that are made or go, where their number differs.
fn nodes(nodes: &[NodesOfType]) -> String {
    if nodes.is_empty() {
        return String::new();
    }
    let mut table = plain_table();
    table.set_header(["", "POOL", "TYPE", "BEFORE", "AFTER", "CHANGE"]);
    for row in nodes {
        let word = if row.goes { "goes" } else { "comes" };
        let sign = if row.after > row.before { "+" } else { "-" };
        table.add_row([
            word.to_owned(),
            row.pool.clone(),
            if row.instance_type.is_empty() { "-".to_owned() } else { row.instance_type.clone() },
            row.before.to_string(),
            row.after.to_string(),
            format!("{sign}{}", row.after.abs_diff(row.before)),
        ]);
    }
    align_right(&mut table, &[3, 4, 5]);
    format!("Nodes, where their number differs\n{}\n", table.trim_fmt())
}

/// Pods by reason, the most frequent one first.
fn pods<'d>(heading: &str, pods: impl Iterator<Item = (&'d ObjectKey, String)>) -> String {
    let mut groups: BTreeMap<String, Vec<&ObjectKey>> = BTreeMap::new();
    for (pod, reason) in pods {
        groups.entry(reason).or_default().push(pod);
    }
    if groups.is_empty() {
        return String::new();
    }
    let mut groups: Vec<_> = groups.into_iter().collect();
    groups.sort_by_key(|(_, pods)| std::cmp::Reverse(pods.len()));
    let mut out = format!("{heading}\n");
    for (reason, pods) in groups {
        out += &folded(&format!("{}: {reason}", count(pods.len(), "pod")), " ");
        out += &folded(&first_names(pods.iter().map(ToString::to_string)), "   ");
    }
    out
}
