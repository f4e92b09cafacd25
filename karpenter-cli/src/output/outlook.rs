//! Answers about single nodes for people.

use std::fmt::Write as _;

use karpenter_core::{
    PlannedClaim,
    api::DisruptionReason,
    disrupt::{Alone, Guard, MIN_BALANCE, NodeOutlook, ReasonOutlook, Scope},
    labels,
};

use super::table::{HOURS_PER_MONTH, count, first_names, folded, type_and_others};

/// The indent of what is said about a node, and of what is said about that.
const INDENT: &str = "  ";
const DEEPER: &str = "    ";
/// The most pods without a place that are named with their reasons.
const MAX_UNPLACED: usize = 10;

/// One paragraph a node.
pub(super) fn text(outlooks: &[NodeOutlook]) -> String {
    let paragraphs: Vec<String> = outlooks.iter().map(paragraph).collect();
    paragraphs.join("\n")
}

fn paragraph(outlook: &NodeOutlook) -> String {
    let verdict = match outlook.goes_for() {
        Some(DisruptionReason::Empty) => "may go: it is empty",
        Some(DisruptionReason::Underutilized) if outlook.price_per_hour.is_none() => {
            "may go: there is room elsewhere for its pods"
        }
        Some(DisruptionReason::Underutilized) => "may go: its pods have a cheaper place",
        Some(DisruptionReason::Drifted) => "may go: it is not what its pool asks for any more",
        _ if outlook.guards.iter().any(|guard| matches!(guard, Guard::Leaving | Guard::Disrupted)) => {
            "is on its way out"
        }
        _ => "stays",
    };
    let mut out = folded(&format!("{}: {verdict}", outlook.name), "");
    out += &folded(&node(outlook), INDENT);
    for reason in outlook.reasons.iter().filter(|reason| reason.applies) {
        out += &of_reason(reason);
    }
    let unpriced = outlook.guards.iter().filter(|guard| guard.scope() == Scope::Replacement);
    out.extend(unpriced.map(|guard| folded(&format!("no node is made in its place: {guard}"), INDENT)));
    let is_drift = |one: &ReasonOutlook| one.reason == DisruptionReason::Drifted && one.is_open();
    match &outlook.alone {
        Some(alone) => out += &of_alone(outlook, alone),
        None if is_of_static_pool(outlook) && outlook.reasons.iter().any(is_drift) => {
            let why = "its pool has more nodes than replicas, or as many as its limit allows";
            out += &folded(&format!("no node can come in its place now: {why}"), INDENT);
        }
        None => {}
    }
    out
}

/// What the node is.
fn node(outlook: &NodeOutlook) -> String {
    let label = |key: &str| outlook.labels.get(key).map(String::as_str);
    let keys = [labels::INSTANCE_TYPE, labels::ZONE, labels::CAPACITY_TYPE];
    let what: Vec<&str> = keys.into_iter().filter_map(label).collect();
    let pool = outlook.pool.as_deref().map_or_else(|| "no pool".to_owned(), |pool| format!("pool {pool}"));
    let price = outlook.price_per_hour.map_or_else(
        || "a price that nobody knows".to_owned(),
        |price| format!("${:.4} an hour", price.dollars_per_hour()),
    );
    let what = if what.is_empty() { String::new() } else { format!(", {}", what.join(", ")) };
    format!("{pool}{what}, {price}, {} to move", count(outlook.pods.len(), "pod"))
}

/// What keeps the node from going for one reason.
fn of_reason(one: &ReasonOutlook) -> String {
    let name = match one.reason {
        DisruptionReason::Empty => "as empty",
        DisruptionReason::Underutilized => "to save money",
        DisruptionReason::Drifted => "for its drift",
        _ => "for another reason",
    };
    let word = if one.is_open() { "nothing keeps it" } else { "it cannot go" };
    let mut out = folded(&format!("{name}: {word}"), INDENT);
    for guard in &one.guards {
        out += &folded(&guard.to_string(), DEEPER);
    }
    if let Some(limit) = &one.budget {
        out += &folded(&format!("budget of its pool: {limit}"), DEEPER);
    }
    out
}

/// What becomes of the pods if the node goes alone.
fn of_alone(outlook: &NodeOutlook, alone: &Alone) -> String {
    let mut out = folded("if it went alone:", INDENT);
    for (pod, reason) in alone.unplaced.iter().take(MAX_UNPLACED) {
        out += &folded(&format!("{pod} would have no place: {reason}"), DEEPER);
    }
    if alone.unplaced.len() > MAX_UNPLACED {
        let others = count(alone.unplaced.len() - MAX_UNPLACED, "more pod");
        out += &folded(&format!("and {others} would have none"), DEEPER);
    }
    let filled = alone.existing.iter().filter(|(_, pods)| !pods.is_empty());
    let (nodes, pods): (Vec<&String>, Vec<usize>) = filled.map(|(node, pods)| (node, pods.len())).unzip();
    if !nodes.is_empty() {
        let names = first_names(nodes.into_iter().cloned());
        out += &folded(&format!("{} into room of {names}", count(pods.into_iter().sum(), "pod")), DEEPER);
    }
    for claim in &alone.replacements {
        out += &folded(&replacement(claim), DEEPER);
    }
    let planned = alone.existing.values().chain(alone.replacements.iter().map(|claim| &claim.pods)).map(Vec::len);
    let elsewhere = outlook.pods.len().saturating_sub(planned.sum::<usize>() + alone.unplaced.len());
    if elsewhere > 0 {
        let pods = count(elsewhere, "pod");
        let text = format!("{pods} to wherever there is room: in a static pool that is not planned");
        out += &folded(&text, DEEPER);
    }
    out + &savings(outlook, alone)
}

fn replacement(claim: &PlannedClaim) -> String {
    let types = type_and_others(&claim.instance_types);
    let price = claim.cheapest_price.dollars_per_hour();
    let pods = match claim.pods.len() {
        0 => String::new(),
        pods => format!("{} to ", count(pods, "pod")),
    };
    format!("{pods}a new node of pool {}: {types}, ${price:.4} an hour", claim.node_pool)
}

fn savings(outlook: &NodeOutlook, alone: &Alone) -> String {
    if !alone.unplaced.is_empty() {
        return String::new();
    }
    let Some(savings) = alone.savings_per_hour else {
        return folded("nobody knows what it would save", DEEPER);
    };
    let (hourly, monthly) = (savings.abs(), savings.abs() * HOURS_PER_MONTH);
    let word = if savings < 0.0 { "more" } else { "less" };
    let mut line = format!("${hourly:.4} an hour and ${monthly:.2} a month {word}");
    if outlook.goes_for() == Some(DisruptionReason::Drifted) || is_of_static_pool(outlook) {
        // It goes whatever that saves, or never to save money.
        return folded(&line, DEEPER);
    }
    if !outlook.pods.is_empty() {
        let verdict = if savings > alone.threshold_per_hour { "enough" } else { "not enough" };
        let _ = write!(line, ": {verdict}, it must save more than ${:.4} an hour", alone.threshold_per_hour);
    }
    let mut out = folded(&line, DEEPER);
    if !alone.has_choice && savings > alone.threshold_per_hour {
        out += &folded(
            "fewer types for the new nodes save money than minValues of their pools or --spot-to-spot ask for",
            DEEPER,
        );
    }
    if let Some(balance) = alone.balance.filter(|balance| *balance < MIN_BALANCE) {
        out +=
            &folded(&format!("the balance of its pool is {balance:.2}, and must be {MIN_BALANCE:.2} at least"), DEEPER);
    }
    out
}

fn is_of_static_pool(outlook: &NodeOutlook) -> bool {
    outlook.guards.iter().any(|guard| matches!(guard, Guard::StaticPool { .. }))
}
