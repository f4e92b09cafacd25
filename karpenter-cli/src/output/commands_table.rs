//! Commands for people.

use std::{collections::BTreeMap, fmt::Write as _};

use comfy_table::Table;
use karpenter_core::{
    Price,
    api::{Condition, DisruptionReason, conditions::DRIFTED},
    disrupt::{Candidate, Command, Method},
};

use super::{
    guards::{self, TightBudget, tight_budgets},
    table::{Group, HOURS_PER_MONTH, MAX_NODES, align_right, count, first_names, folded, plain_table, warnings},
};
use crate::consolidate::{Consolidation, Found};

pub(super) fn text(found: &Consolidation) -> String {
    let commands = found.commands.iter().enumerate().map(|(index, one)| paragraph(found, index, one));
    let mut parts = vec![summary(found)];
    parts.extend(commands);
    parts.extend([budgets(found), guards::held(found), left_out(found), warnings(&found.warnings)]);
    parts.retain(|part| !part.is_empty());
    parts.join("\n")
}

/// The bill before and after.
fn summary(found: &Consolidation) -> String {
    let (before, after) = (found.bill.before.dollars_per_hour(), found.bill.after.dollars_per_hour());
    let nodes = count(found.snapshot.places().len(), "node");
    let mut out = format!("{nodes}: ${before:.4} an hour, ${:.2} a month (730 hours).\n", before * HOURS_PER_MONTH);
    if found.commands.is_empty() {
        out.push_str(if found.is_complete { "No node should go.\n" } else { "" });
    } else {
        let saved = before - after;
        let share = if before > 0.0 { 100.0 * saved / before } else { 0.0 };
        let commands = count(found.commands.len(), "command");
        let monthly = after * HOURS_PER_MONTH;
        let saved = format!("{}, {:.1} % of the bill", change(saved), share.abs());
        out += &folded(&format!("After {commands}: ${after:.4} an hour, ${monthly:.2} a month: {saved}."), "");
    }
    if !found.is_complete {
        out.push_str("The search was stopped before its end: more nodes may go.\n");
    }
    if !found.bill.unknown.is_empty() {
        let names = first_names(found.bill.unknown.iter().cloned());
        out += &folded(&format!("Not counted, because nobody knows what they cost: {names}"), "");
    }
    let waiting = found.snapshot.pending().len();
    if waiting > 0 {
        let [first, them] = if waiting == 1 {
            ["pod that wants a place comes first: it is", "it"]
        } else {
            ["pods that want a place come first: they are", "them"]
        };
        let text = format!("where `karpenter plan` puts {them}, and what it buys for {them} is not in the bill.");
        out += &folded(&format!("{waiting} {first} {text}"), "");
    }
    out
}

/// What becomes less or more, in dollars an hour and a month.
fn change(saved: f64) -> String {
    let word = if saved < 0.0 { "more" } else { "less" };
    let hourly = saved.abs();
    format!("${hourly:.4} an hour and ${:.2} a month {word}", hourly * HOURS_PER_MONTH)
}

/// One command: what it comes to, why, and a table of the nodes.
fn paragraph(found: &Consolidation, index: usize, one: &Found) -> String {
    let command = &one.command;
    let goes = match command.candidates.len() {
        1 => "1 node goes".to_owned(),
        nodes => format!("{nodes} nodes go"),
    };
    let comes = match command.replacements.len() {
        0 => "none comes".to_owned(),
        1 => "1 comes".to_owned(),
        nodes => format!("{nodes} come"),
    };
    let moves = match command.evictions {
        1 => "1 pod moves".to_owned(),
        pods => format!("{pods} pods move"),
    };
    let is_unknown = command.candidates.iter().all(|node| found.bill.unknown.contains(node));
    let saved = match command.method {
        Method::Consolidation if is_unknown => "nobody knows how much less".to_owned(),
        _ => change(command.savings_per_hour),
    };
    let mut out = folded(&format!("{}. {goes}, {comes}, {moves}: {saved}", index + 1), "");
    out += &folded(&why(found, command), "   ");
    let mut table = plain_table();
    table.set_header(["", "NODES", "POOL", "TYPE", "ZONE", "CAPACITY", "$/H EACH", "$/H ALL", "PODS", "WHICH"]);
    add_leaving(&mut table, found, index);
    add_coming(&mut table, found, command);
    add_filled(&mut table, command);
    align_right(&mut table, &[1, 6, 7, 8]);
    let _ = writeln!(out, "{}", table.trim_fmt());
    out
}

/// Why the nodes go.
fn why(found: &Consolidation, command: &Command) -> String {
    let is_one = command.candidates.len() == 1;
    match command.method {
        Method::Emptiness if is_one => "It has no pods to move.".to_owned(),
        Method::Emptiness => "They have no pods to move.".to_owned(),
        Method::Drift | Method::StaticDrift => {
            let reason = drift_reason(found, command).map(|reason| format!(": {reason}")).unwrap_or_default();
            let (subject, whose) = if is_one { ("It is", "its") } else { ("They are", "their") };
            let places = match command.method {
                Method::StaticDrift => " The pool is static: it is not planned where the pods go.",
                _ => "",
            };
            format!("{subject} not what {whose} pool asks for any more{reason}.{places}")
        }
        Method::Consolidation if command.is_delete() => "The other nodes have room for the pods.".to_owned(),
        _ => "The pods have a cheaper place.".to_owned(),
    }
}

/// What the claim of the first node says of its drift.
fn drift_reason<'c>(found: &'c Consolidation, command: &Command) -> Option<&'c str> {
    let name = command.candidates.first()?;
    let place = found.snapshot.places().iter().find(|place| place.name == *name)?;
    let mut conditions = place.node_claim.as_deref()?.status.conditions.iter();
    let drifted: &Condition = conditions.find(|condition| condition.r#type == DRIFTED)?;
    Some(drifted.reason.as_str()).filter(|reason| !reason.is_empty())
}

/// The nodes that go, those that look alike in one row.
fn add_leaving(table: &mut Table, found: &Consolidation, index: usize) {
    type Look<'c> = (&'c str, Option<&'c str>, Option<&'c str>, Option<&'c str>);
    let mut groups: BTreeMap<Look<'_>, Vec<&Candidate>> = BTreeMap::new();
    let (before, command) = (&found.commands[..index], &found.commands[index].command);
    let moved_in = |node: &Candidate| {
        let pods = before.iter().filter_map(|one| one.command.existing.get(&node.name));
        pods.map(Vec::len).sum::<usize>()
    };
    for candidate in command.candidates.iter().filter_map(|name| candidate(found, name)) {
        let Candidate { pool, instance_type, zone, capacity_type, .. } = candidate;
        let look = (pool.as_str(), instance_type.as_deref(), zone.as_deref(), capacity_type.as_deref());
        groups.entry(look).or_default().push(candidate);
    }
    for ((pool, instance_type, zone, capacity_type), nodes) in groups {
        let each = nodes[0].price_per_hour.map(Price::dollars_per_hour);
        let dollars = |amount: Option<f64>| amount.map_or_else(|| "-".to_owned(), |amount| format!("{amount:.4}"));
        table.add_row([
            "goes".to_owned(),
            nodes.len().to_string(),
            pool.to_owned(),
            instance_type.unwrap_or("-").to_owned(),
            zone.unwrap_or("-").to_owned(),
            capacity_type.unwrap_or("-").to_owned(),
            dollars(each),
            dollars(each.map(|each| each * nodes.len() as f64)),
            nodes.iter().map(|node| node.pods.len() + moved_in(node)).sum::<usize>().to_string(),
            first_names(nodes.iter().map(|node| node.name.clone())),
        ]);
    }
}

fn candidate<'c>(found: &'c Consolidation, name: &str) -> Option<&'c Candidate> {
    let all = found.candidates.all();
    all.binary_search_by(|candidate| candidate.name.as_str().cmp(name)).ok().map(|index| &all[index])
}

/// The nodes that are made, those that look alike in one row.
fn add_coming(table: &mut Table, found: &Consolidation, command: &Command) {
    for (group, claims) in Group::all(&command.replacements, &found.catalogs) {
        let mut cells = group.cells(&claims);
        if command.method == Method::StaticDrift {
            // Nobody knows how many pods it will have.
            let [.., pods] = &mut cells;
            "-".clone_into(pods);
        }
        table.add_row(std::iter::once("comes".to_owned()).chain(cells).chain([String::new()]));
    }
}

/// The nodes that take pods.
fn add_filled(table: &mut Table, command: &Command) {
    let filled: Vec<_> = command.existing.iter().filter(|(_, pods)| !pods.is_empty()).collect();
    if filled.is_empty() {
        return;
    }
    let mut row = vec!["fills".to_owned(), filled.len().to_string()];
    row.resize(8, String::new());
    row.push(filled.iter().map(|(_, pods)| pods.len()).sum::<usize>().to_string());
    row.push(first_names(filled.iter().map(|(node, _)| (*node).clone())));
    table.add_row(row);
}

/// The pools of which fewer nodes may go at a time than could.
fn budgets(found: &Consolidation) -> String {
    let line = |tight: TightBudget<'_>| {
        let TightBudget { pool, reason, nodes, limit } = tight;
        let word = if reason == DisruptionReason::Empty { "empty" } else { "underutilized" };
        folded(&format!("pool {pool}: {} of {nodes} {word} may go at a time: {limit}", limit.allowed()), " ")
    };
    let lines: Vec<String> = tight_budgets(found).take(MAX_NODES).map(line).collect();
    if lines.is_empty() { String::new() } else { format!("Disruption budgets of pools\n{}", lines.concat()) }
}

/// The pods that cannot be read.
fn left_out(found: &Consolidation) -> String {
    let lines = found.errors.iter().map(|(pod, reason)| folded(&format!("{pod}: {reason}"), " "));
    let lines: String = lines.collect();
    if lines.is_empty() { lines } else { format!("Pods that cannot be read; their nodes stay\n{lines}") }
}
