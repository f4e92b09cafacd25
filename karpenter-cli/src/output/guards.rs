//! What keeps nodes, in the words for many nodes at once.

use std::{collections::BTreeMap, fmt::Write as _};

use karpenter_core::disrupt::Guard;

use super::table::{count, first_names, folded};
use crate::consolidate::Consolidation;

/// The most reasons that are listed.
const MAX_REASONS: usize = 10;

/// The name of a guard for programs.
pub(super) const fn kind(guard: &Guard) -> &'static str {
    described(guard).0
}

/// The name of a guard for programs, and what it says of each of many nodes.
const fn described(guard: &Guard) -> (&'static str, &'static str) {
    match guard {
        Guard::NotManaged => ("notManaged", "no NodeClaim stands behind it"),
        Guard::NoNode => ("noNode", "its NodeClaim has no node yet"),
        Guard::NotInitialized => ("notInitialized", "it is not initialized yet"),
        Guard::Leaving => ("leaving", "its deletion was asked for"),
        Guard::Disrupted => ("disrupted", "it was chosen to go before"),
        Guard::Closed => ("closed", "it is not known what runs there"),
        Guard::Nominated { .. } => ("nominated", "its room was promised to pods"),
        Guard::DoNotDisrupt => ("doNotDisrupt", "it has the annotation karpenter.sh/do-not-disrupt"),
        Guard::NoPool => ("noPool", "it has no label karpenter.sh/nodepool"),
        Guard::UnknownPool { .. } => ("unknownPool", "its NodePool is not there"),
        Guard::NoInstanceTypes { .. } => ("noInstanceTypes", "its NodePool has no instance types"),
        Guard::PodDoNotDisrupt { .. } => ("podDoNotDisrupt", "a pod has the annotation karpenter.sh/do-not-disrupt"),
        Guard::PodBudget { .. } => ("podBudget", "a disruption budget allows no eviction of a pod now"),
        Guard::SeveralPodBudgets { .. } => ("severalPodBudgets", "several disruption budgets select one pod"),
        Guard::StaticPool { .. } => ("staticPool", "its NodePool is static"),
        Guard::NeverConsolidated { .. } => ("neverConsolidated", "its NodePool has consolidateAfter Never"),
        Guard::NotQuiet { .. } => ("notQuiet", "pods came or went too short a while ago"),
        Guard::NotEmpty { .. } => ("notEmpty", "its NodePool lets only empty nodes go, and it has pods"),
        Guard::NoLabel { .. } => ("noLabel", "it lacks a label that says what it costs"),
        Guard::UnknownInstanceType { .. } => ("unknownInstanceType", "its NodePool has no such instance type"),
        Guard::PriceUnknown { .. } => ("priceUnknown", "it is not known what it costs"),
        _ => ("other", "something else keeps it"),
    }
}

/// How many nodes cannot go to save money, and why, the most frequent reason first. A node may have several.
pub(super) fn held(found: &Consolidation) -> String {
    let mut reasons: BTreeMap<&str, Vec<(&str, &Guard)>> = BTreeMap::new();
    let held = held_nodes(found);
    for (node, guards) in &held {
        let first_of_kind: BTreeMap<&str, &Guard> =
            guards.iter().rev().map(|&guard| (described(guard).1, guard)).collect();
        for (phrase, guard) in first_of_kind {
            reasons.entry(phrase).or_default().push((node, guard));
        }
    }
    if held.is_empty() {
        return String::new();
    }
    let mut reasons: Vec<_> = reasons.into_iter().collect();
    reasons.sort_by_key(|(_, nodes)| std::cmp::Reverse(nodes.len()));
    let all = count(found.snapshot.places().len(), "node");
    let mut out = format!("{} of {all} cannot go to save money\n", held.len());
    for (phrase, nodes) in reasons.iter().take(MAX_REASONS) {
        let why = if let [(_, only)] = nodes.as_slice() { only.to_string() } else { (*phrase).to_owned() };
        let names = first_names(nodes.iter().map(|&(node, _)| node.to_owned()));
        out += &folded(&format!("{}: {why}: {names}", count(nodes.len(), "node")), " ");
    }
    if reasons.len() > MAX_REASONS {
        let _ = writeln!(out, " and {}", count(reasons.len() - MAX_REASONS, "other reason"));
    }
    out
}

/// The nodes that cannot go to save money, with what keeps them.
fn held_nodes(found: &Consolidation) -> Vec<(&str, Vec<&Guard>)> {
    // What is bought for waiting pods is not among the places that there are.
    let is_there = |name: &str| found.snapshot.places().binary_search_by(|place| place.name.as_str().cmp(name)).is_ok();
    let kept = found.candidates.kept().iter().filter(|kept| is_there(&kept.name));
    let kept = kept.map(|kept| (kept.name.as_str(), kept.guards.iter().collect()));
    let guarded = found.candidates.all().iter().map(|candidate| {
        let guards: Vec<&Guard> = candidate.guards_against(candidate.saving_reason()).collect();
        (candidate.name.as_str(), guards)
    });
    kept.chain(guarded).filter(|(_, guards)| !guards.is_empty()).collect()
}
