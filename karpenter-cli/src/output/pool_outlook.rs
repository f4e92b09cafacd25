//! Answers about node pools for people.

use karpenter_core::{
    api::DisruptionReason,
    disrupt::{PoolBudget, PoolOutlook},
    reason::{Obstacle, TypesRuledOut},
    schedule::{LimitUse, RemainingType, ValueCount},
};

use super::table::{MAX_NODES, count, first_names, folded};

/// The indent of what is said about a pool, and of what is said about that.
const INDENT: &str = "  ";
const DEEPER: &str = "    ";

/// One paragraph a pool.
pub(super) fn text(outlooks: &[PoolOutlook]) -> String {
    let paragraphs: Vec<String> = outlooks.iter().map(paragraph).collect();
    paragraphs.join("\n")
}

fn paragraph(outlook: &PoolOutlook) -> String {
    let types = &outlook.types;
    let mut out = folded(&format!("{}: {}", outlook.name, verdict(outlook)), "");
    out += &folded(&about(outlook), INDENT);
    let gone = count(types.type_count - types.remaining.len(), "type");
    out += &section(&format!("ruled out, {gone}"), types.ruled_out.iter().map(ruled_out));
    out += &section("remaining, the cheapest first", remaining(&types.remaining).into_iter());
    out += &section("claims must keep several values", types.min_values.iter().map(values));
    out += &section("limits", types.limits.iter().map(limit));
    // Nodes of static pools go for no other reason.
    let is_meant = |budget: &&PoolBudget| outlook.replicas.is_none() || budget.reason == DisruptionReason::Drifted;
    out + &section("nodes that may be disrupted now", outlook.budgets.iter().filter(is_meant).map(budget))
}

/// Lines under a heading; nothing if there are none.
fn section(heading: &str, lines: impl Iterator<Item = String>) -> String {
    let lines: String = lines.map(|line| folded(&line, DEEPER)).collect();
    if lines.is_empty() { lines } else { folded(&format!("{heading}:"), INDENT) + &lines }
}

/// Whether nodes can be made of the pool, and of how many types.
fn verdict(outlook: &PoolOutlook) -> String {
    let types = &outlook.types;
    let all = count(types.type_count, "type");
    if let Some(obstacle @ Obstacle::Static) = &types.obstacle {
        return obstacle.to_string();
    }
    if let Some(obstacle) = &types.obstacle {
        return format!("no node is made of it: {obstacle}");
    }
    match types.remaining.first() {
        None => format!("none of its {all} can be launched now"),
        Some(cheapest) => {
            let price = cheapest.cheapest_price.dollars_per_hour();
            let is_short = types.min_values.iter().any(|count| count.available < count.min_values as usize);
            let unless = if is_short { ", but only without minValues" } else { "" };
            format!("{} of {all} can be launched, from ${price:.4} an hour{unless}", types.remaining.len())
        }
    }
}

/// What the pool is and has.
fn about(outlook: &PoolOutlook) -> String {
    let replicas = outlook.replicas.map(|replicas| format!(", static with {}", count(replicas as usize, "replica")));
    let nodes = count(outlook.nodes.managed as usize, "node");
    let away = outlook.nodes.not_ready_or_leaving;
    let away = if away == 0 { String::new() } else { format!(", {away} of them not ready or leaving") };
    format!("weight {}{}, {nodes}{away}", outlook.weight, replicas.unwrap_or_default())
}

fn ruled_out(group: &TypesRuledOut) -> String {
    let names = first_names(group.types.iter().cloned());
    let (all, alone) = (group.types.len(), group.alone_count);
    let alone = if alone < all { format!(", {alone} of them by this alone") } else { String::new() };
    format!("{}{alone} ({names}): {}", count(all, "type"), group.obstacle)
}

fn remaining(types: &[RemainingType]) -> Vec<String> {
    let line = |one: &RemainingType| {
        let price = one.cheapest_price.dollars_per_hour();
        let what = [&one.capacity_types, &one.zones].map(|values| values.join(", "));
        let what = what.iter().filter(|values| !values.is_empty()).map(|values| format!("; {values}"));
        format!("{}: ${price:.4} an hour{}", one.name, what.collect::<String>())
    };
    let mut out: Vec<String> = types.iter().take(MAX_NODES).map(line).collect();
    if let [others @ .., dearest] = types.get(MAX_NODES..).unwrap_or_default() {
        let price = dearest.cheapest_price.dollars_per_hour();
        out.push(format!("and {}, up to ${price:.4} an hour", count(others.len() + 1, "more type")));
    }
    out
}

fn values(count: &ValueCount) -> String {
    let ValueCount { key, min_values, available, .. } = count;
    let verdict = if *available < *min_values as usize { ", which is too few" } else { "" };
    format!("{key}: {min_values} asked for, the remaining types have {available}{verdict}")
}

fn limit(limit: &LimitUse) -> String {
    format!("{}: {} of {} used", limit.resource, limit.used, limit.limit)
}

fn budget(budget: &PoolBudget) -> String {
    let reason = match budget.reason {
        DisruptionReason::Empty => "empty",
        DisruptionReason::Drifted => "drifted",
        DisruptionReason::Underutilized => "underutilized",
        _ => "for another reason",
    };
    format!("{} {reason}: {}", budget.nodes, budget.limit)
}
