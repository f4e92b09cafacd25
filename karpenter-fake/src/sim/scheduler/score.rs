//! Which of several nodes a pod is put on: the scores of the default profile of the kube-scheduler (v1.35) with their
//! weights. No image is on any node beforehand, so `ImageLocality` tells no node from another.

use karpenter_core::{
    api::{LabelSelector, Pod, TopologySpreadConstraint, UnsatisfiableAction},
    labels,
};

use super::{
    census::Census,
    nodes::{NodeInfo, Nodes},
    selector::{Kin, Selector},
    shape::Shape,
    topology::is_counted,
};

/// The best score of one plugin.
const BEST: i64 = 100;
const TAINT_WEIGHT: i64 = 3;
const AFFINITY_WEIGHT: i64 = 2;
const SPREAD_WEIGHT: i64 = 2;
const NEIGHBOUR_WEIGHT: i64 = 2;
/// How finely shares of a node are told apart.
const SHARE: i64 = 1_000_000;
/// Logarithms are counted in parts of 2^16.
const LOG_BITS: u32 = 16;
/// The natural logarithm of 2 in parts of 2^16.
const LN_2: i64 = 45_426;
/// How pods of a workload are spread that say nothing about it (`PodTopologySpread`, `defaultConstraints: System`).
const SYSTEM_SPREAD: [(&str, i64); 2] = [(labels::HOSTNAME, 3), (labels::ZONE, 5)];

/// The scores of nodes for a pod, in the order of the nodes.
pub(super) fn scores(
    pod: &Pod,
    kin: &Kin,
    shape: &Shape,
    workload: Option<&LabelSelector>,
    feasible: &[usize],
    nodes: &mut Nodes,
    census: &mut Census,
) -> Vec<i64> {
    let spreads = soft_spreads(pod, workload);
    let infos = |nodes: &Nodes, of: &dyn Fn(&NodeInfo) -> i64| -> Vec<i64> {
        feasible.iter().map(|slot| nodes.get(*slot).map_or(0, of)).collect()
    };
    let mut total = infos(nodes, &|info| least_allocated(shape, info) + balanced(shape, info));
    let unwelcome = infos(nodes, &|info| shape.unwelcome(info));
    add(&mut total, TAINT_WEIGHT, &reversed(&unwelcome));
    if !shape.spec.affinity.node_affinity.preferred.is_empty() {
        add(&mut total, AFFINITY_WEIGHT, &scaled(&infos(nodes, &|info| shape.preference(info))));
    }
    if !spreads.is_empty() {
        add(&mut total, SPREAD_WEIGHT, &evenness(pod, &spreads, feasible, nodes, census));
    }
    let affinity = &pod.spec.affinity;
    if census.has_terms()
        || !affinity.pod_affinity.preferred.is_empty()
        || !affinity.pod_anti_affinity.preferred.is_empty()
    {
        add(&mut total, NEIGHBOUR_WEIGHT, &nearness(pod, kin, feasible, nodes, census));
    }
    total
}

fn add(total: &mut [i64], weight: i64, scores: &[i64]) {
    total.iter_mut().zip(scores).for_each(|(total, score)| *total += weight * score);
}

/// From 0 to 100, the highest count as 100.
fn scaled(counts: &[i64]) -> Vec<i64> {
    let most = counts.iter().copied().max().unwrap_or(0);
    counts.iter().map(|count| if most == 0 { *count } else { BEST * count / most }).collect()
}

/// From 100 to 0, the highest count as 0.
fn reversed(counts: &[i64]) -> Vec<i64> {
    let most = counts.iter().copied().max().unwrap_or(0);
    counts.iter().map(|count| if most == 0 { BEST } else { BEST - BEST * count / most }).collect()
}

/// `NodeResourcesFit` with `LeastAllocated`: how much of CPU and memory is left.
fn least_allocated(shape: &Shape, info: &NodeInfo) -> i64 {
    let left = |i: usize| {
        let has = info.allocatable.get(i).copied().unwrap_or(0);
        let taken = info.scored[i] + shape.scored[i];
        if has <= 0 || taken > has { 0 } else { (has - taken) * BEST / has }
    };
    i64::midpoint(left(0), left(1))
}

/// `NodeResourcesBalancedAllocation`: how alike the shares of CPU and memory are that are taken. Pods that ask for
/// neither are put anywhere.
fn balanced(shape: &Shape, info: &NodeInfo) -> i64 {
    if !shape.requests.iter().any(|(number, _)| *number < 2) {
        return 0;
    }
    let filled = |i: usize| {
        let has = info.allocatable.get(i).copied().unwrap_or(0);
        let asked = shape.requests.iter().find(|(number, _)| *number == i).map_or(0, |(_, amount)| *amount);
        let taken = info.requested.get(i).copied().unwrap_or(0) + asked;
        if has <= 0 || taken >= has {
            return if has <= 0 { 0 } else { SHARE };
        }
        // It is less than a share, and so small enough; only the product may be too large.
        let exact = || i64::try_from(i128::from(taken) * i128::from(SHARE) / i128::from(has)).unwrap_or(SHARE);
        taken.checked_mul(SHARE).map_or_else(exact, |product| product / has)
    };
    // The deviation of two numbers is half of what they differ by.
    let deviation = (filled(0) - filled(1)).abs() / 2;
    (SHARE - deviation) * BEST / SHARE
}

/// A spread that should hold.
struct SoftSpread<'p> {
    key: &'p str,
    max_skew: i64,
    selector: Selector,
    /// `None` for the rule of the system.
    constraint: Option<&'p TopologySpreadConstraint>,
}

fn soft_spreads<'p>(pod: &'p Pod, workload: Option<&LabelSelector>) -> Vec<SoftSpread<'p>> {
    let written = &pod.spec.topology_spread_constraints;
    if written.is_empty() {
        let system = |(key, max_skew): (&'p str, i64)| {
            let selector = Selector::of_workload(pod.namespace(), workload?);
            Some(SoftSpread { key, max_skew, selector, constraint: None })
        };
        return SYSTEM_SPREAD.into_iter().filter_map(system).collect();
    }
    let soft = written.iter().filter(|c| c.when_unsatisfiable == UnsatisfiableAction::ScheduleAnyway);
    soft.map(|c| SoftSpread {
        key: &c.topology_key,
        max_skew: i64::from(c.max_skew),
        selector: Selector::of_constraint(pod, c),
        constraint: Some(c),
    })
    .collect()
}

/// `PodTopologySpread`: how few of its like are in the domains of a node.
fn evenness(
    pod: &Pod,
    spreads: &[SoftSpread<'_>],
    feasible: &[usize],
    nodes: &mut Nodes,
    census: &mut Census,
) -> Vec<i64> {
    let is_strict = spreads.iter().any(|s| s.constraint.is_some());
    let has_all = |info: &NodeInfo| spreads.iter().all(|s| info.labels.contains_key(s.key));
    let is_ignored = |nodes: &Nodes, slot: usize| is_strict && !nodes.get(slot).is_some_and(has_all);
    let mut raw = vec![0; feasible.len()];
    for spread in spreads {
        nodes.domains(spread.key);
        let tally = census.tally(std::slice::from_ref(&spread.selector));
        let Some(domains) = nodes.known_domains(spread.key) else { continue };
        let mut counts = vec![0_i64; domains.bound()];
        for (slot, info) in nodes.used() {
            let counts_here = spread.constraint.is_none_or(|c| has_all(info) && is_counted(pod, c, info));
            if let Some(domain) = domains.of(slot).filter(|_| counts_here) {
                counts[domain] += tally.get(slot).map_or(0, |count| i64::from(count.live));
            }
        }
        let mut is_seen = vec![false; domains.bound()];
        for domain in feasible.iter().filter(|slot| !is_ignored(nodes, **slot)).filter_map(|slot| domains.of(*slot)) {
            is_seen[domain] = true;
        }
        let weight = ln(is_seen.into_iter().filter(|is_seen| *is_seen).count() + 2);
        for (raw, slot) in raw.iter_mut().zip(feasible) {
            if let Some(domain) = domains.of(*slot) {
                *raw += counts[domain] * weight + ((spread.max_skew - 1) << LOG_BITS);
            }
        }
    }
    let kept: Vec<i64> = raw.iter().map(|score| (score + (1 << (LOG_BITS - 1))) >> LOG_BITS).collect();
    let counted = || feasible.iter().zip(&kept).filter(|(slot, _)| !is_ignored(nodes, **slot)).map(|(_, s)| *s);
    let (least, most) = (counted().min().unwrap_or(0), counted().max().unwrap_or(0));
    let score = |(slot, score): (&usize, &i64)| match (is_ignored(nodes, *slot), most) {
        (true, _) => 0,
        (false, 0) => BEST,
        (false, _) => BEST * (most + least - score) / most,
    };
    feasible.iter().zip(&kept).map(score).collect()
}

/// `InterPodAffinity`: the weights of all terms, of this pod and of running ones, that a node would meet.
fn nearness(pod: &Pod, kin: &Kin, feasible: &[usize], nodes: &mut Nodes, census: &mut Census) -> Vec<i64> {
    let mut raw = vec![0_i64; feasible.len()];
    let affinity = &pod.spec.affinity;
    let liked = affinity.pod_affinity.preferred.iter().map(|t| (t, 1));
    for (term, sign) in liked.chain(affinity.pod_anti_affinity.preferred.iter().map(|t| (t, -1))) {
        let selector = Selector::of_term(pod, &term.pod_affinity_term);
        let tally = census.tally(&[selector]);
        let there = tally.iter().enumerate().map(|(slot, count)| (slot, i64::from(count.all)));
        let weight = sign * i64::from(term.weight);
        reward(&mut raw, weight, there, &term.pod_affinity_term.topology_key, feasible, nodes);
    }
    for (term, on) in census.terms_about(kin) {
        let Some(weight) = term.weight else { continue };
        let there = on.iter().map(|(slot, count)| (*slot, i64::from(*count)));
        reward(&mut raw, weight, there, &term.key, feasible, nodes);
    }
    let (least, most) = (raw.iter().copied().min().unwrap_or(0), raw.iter().copied().max().unwrap_or(0));
    raw.iter().map(|score| if most == least { 0 } else { BEST * (score - least) / (most - least) }).collect()
}

/// Adds a weight to the score of a node for each pod that is in its domain.
fn reward(
    scores: &mut [i64],
    weight: i64,
    there: impl Iterator<Item = (usize, i64)>,
    key: &str,
    feasible: &[usize],
    nodes: &mut Nodes,
) {
    let domains = nodes.domains(key);
    let mut counts = vec![0_i64; domains.bound()];
    for (slot, count) in there {
        if let Some(domain) = domains.of(slot) {
            counts[domain] += count;
        }
    }
    for (score, slot) in scores.iter_mut().zip(feasible) {
        *score += weight * domains.of(*slot).map_or(0, |domain| counts[domain]);
    }
}

/// The natural logarithm in parts of 2^16, the same on every machine.
fn ln(number: usize) -> i64 {
    let number = (number as u64).max(1);
    let whole = number.ilog2();
    // The part after the point, bit by bit, by squaring what is between 1 and 2.
    let mut rest = (u128::from(number) << 32) >> whole;
    let mut log = i64::from(whole);
    for _ in 0..LOG_BITS {
        rest = (rest * rest) >> 32;
        log <<= 1;
        if rest >= 2 << 32 {
            rest >>= 1;
            log += 1;
        }
    }
    (log * LN_2) >> LOG_BITS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logarithms_are_near_those_of_floats() {
        for number in [1_usize, 2, 3, 4, 5, 10, 100, 1000, 123_456] {
            let expected = (number as f64).ln() * 65_536.0;
            let found = ln(number) as f64;
            assert!((found - expected).abs() < 8.0, "{number}: {found} {expected}");
        }
    }

    #[test]
    fn counts_are_scaled_to_a_hundred() {
        assert_eq!(scaled(&[0, 5, 10]), [0, 50, 100]);
        assert_eq!(reversed(&[0, 5, 10]), [100, 50, 0]);
        assert_eq!((scaled(&[0, 0]), reversed(&[0, 0])), (vec![0, 0], vec![100, 100]));
    }
}
