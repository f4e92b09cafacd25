//! What keeps nodes: guards, in the words for many nodes at once, and budgets of pools.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
};

use karpenter_core::{
    api::{DisruptionReason, NodePool},
    disrupt::{BudgetLimit, Guard, NodeCounts, PoolBudgets},
};
use serde::Serialize;

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
        Guard::UnknownPool { .. } => ("unknownPool", "its NodePool is not there or cannot be read"),
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

/// What keeps a node, among others.
struct Holds<'c> {
    node: &'c str,
    /// The name for programs.
    kind: &'static str,
    /// The words for many nodes.
    phrase: &'static str,
    /// The words for this one.
    why: String,
}

/// How many nodes cannot go to save money, and why, the most frequent reason first. A node may have several.
pub(super) fn held(found: &Consolidation) -> String {
    let held = held_nodes(found);
    let nodes: BTreeSet<&str> = held.iter().map(|one| one.node).collect();
    let mut reasons: BTreeMap<&str, Vec<&Holds<'_>>> = BTreeMap::new();
    for one in &held {
        let of_phrase = reasons.entry(one.phrase).or_default();
        // Of several guards of a kind, the first.
        if of_phrase.last().is_none_or(|last| last.node != one.node) {
            of_phrase.push(one);
        }
    }
    if held.is_empty() {
        return String::new();
    }
    let mut reasons: Vec<_> = reasons.into_iter().collect();
    reasons.sort_by_key(|(_, nodes)| std::cmp::Reverse(nodes.len()));
    let all = count(found.snapshot.places().len(), "node");
    let mut out = format!("{} of {all} cannot go to save money\n", nodes.len());
    for (phrase, nodes) in reasons.iter().take(MAX_REASONS) {
        let why = if let [only] = nodes.as_slice() { &only.why } else { *phrase };
        let names = first_names(nodes.iter().map(|one| one.node.to_owned()));
        out += &folded(&format!("{}: {why}: {names}", count(nodes.len(), "node")), " ");
    }
    if reasons.len() > MAX_REASONS {
        let _ = writeln!(out, " and {}", count(reasons.len() - MAX_REASONS, "other reason"));
    }
    out
}

/// One thing that keeps a node, as programs read it.
#[derive(Serialize)]
pub(super) struct Kept {
    kind: &'static str,
    message: String,
}

/// By node, all that keeps those which cannot go to save money.
pub(super) fn kept(found: &Consolidation) -> BTreeMap<&str, Vec<Kept>> {
    let mut out: BTreeMap<&str, Vec<Kept>> = BTreeMap::new();
    for Holds { node, kind, why, .. } in held_nodes(found) {
        out.entry(node).or_default().push(Kept { kind, message: why });
    }
    out
}

/// A pool of which fewer nodes may go for a reason than could.
pub(super) struct TightBudget<'c> {
    pub(super) pool: &'c str,
    pub(super) reason: DisruptionReason,
    /// How many could go.
    pub(super) nodes: usize,
    pub(super) limit: BudgetLimit,
}

/// The pools of which fewer nodes may go to save money than could, by name.
pub(super) fn tight_budgets(found: &Consolidation) -> impl Iterator<Item = TightBudget<'_>> {
    found.snapshot.pools().iter().flat_map(|pool| tight_budgets_of(found, pool))
}

fn tight_budgets_of<'c>(
    found: &'c Consolidation,
    pool: &'c NodePool,
) -> impl Iterator<Item = TightBudget<'c>> + use<'c> {
    let budgets = PoolBudgets::of(pool);
    let counts = NodeCounts::of(&found.snapshot, pool.name());
    [DisruptionReason::Empty, DisruptionReason::Underutilized].into_iter().filter_map(move |reason| {
        let of_pool = found.candidates.for_reason(reason).filter(|candidate| candidate.pool == pool.name());
        let nodes = of_pool.filter(|candidate| candidate.saving_reason() == reason).count();
        let limit = budgets.limit(reason, counts, found.now);
        let is_tight = !matches!(limit, BudgetLimit::Unlimited) && (limit.allowed() as usize) < nodes;
        is_tight.then_some(TightBudget { pool: pool.name(), reason, nodes, limit })
    })
}

/// What keeps nodes from going to save money.
fn held_nodes(found: &Consolidation) -> Vec<Holds<'_>> {
    // What is bought for waiting pods is not among the places that there are.
    let is_there = |name: &str| found.snapshot.places().binary_search_by(|place| place.name.as_str().cmp(name)).is_ok();
    let kept = found.candidates.kept().iter().filter(|kept| is_there(&kept.name));
    let kept = kept.flat_map(|kept| kept.guards.iter().map(|guard| held_by(&kept.name, guard)));
    let guarded = found.candidates.all().iter().flat_map(|candidate| {
        let guards = candidate.guards_against(candidate.saving_reason());
        guards.map(|guard| held_by(&candidate.name, guard))
    });
    kept.chain(guarded).collect()
}

fn held_by<'c>(node: &'c str, guard: &Guard) -> Holds<'c> {
    let (kind, phrase) = described(guard);
    Holds { node, kind, phrase, why: guard.to_string() }
}
