//! Whether planned nodes serve where others are needed.

use std::collections::BTreeSet;

use crate::{Requirement, schedule::PlannedClaim};

/// A planned claim that stands for no needed one, if they cannot be paired.
pub(super) fn uncovered<'c>(planned: &'c [PlannedClaim], needed: &[PlannedClaim]) -> Option<&'c PlannedClaim> {
    let serves = planned.iter().map(|claim| (0..needed.len()).filter(|&n| is_covered(claim, &needed[n])).collect());
    let serves: Vec<Vec<usize>> = serves.collect();
    let mut holders = vec![None; needed.len()];
    let all = 0..planned.len();
    let alone = all.into_iter().find(|&claim| !pair(claim, &serves, &mut holders, &mut BTreeSet::new()))?;
    Some(&planned[alone])
}

/// Finds a needed claim for a planned one, and other ones for those that must give theirs up for it.
fn pair(claim: usize, serves: &[Vec<usize>], holders: &mut [Option<usize>], asked: &mut BTreeSet<usize>) -> bool {
    for &needed in &serves[claim] {
        if asked.insert(needed) && holders[needed].is_none_or(|holder| pair(holder, serves, holders, asked)) {
            holders[needed] = Some(claim);
            return true;
        }
    }
    false
}

/// Whether whatever a planned claim may become serves where another is needed.
fn is_covered(planned: &PlannedClaim, needed: &PlannedClaim) -> bool {
    let is_as_narrow = |(key, wanted): (&str, &Requirement)| {
        planned.requirements.get(key).is_some_and(|own| {
            let own = own.clone().with_min_values(None);
            own.intersection(&wanted.clone().with_min_values(None)) == own
        })
    };
    planned.node_pool == needed.node_pool
        && missing(planned, needed).next().is_none()
        && needed.requirements.iter().all(is_as_narrow)
}

/// The types that a planned claim names and the claim of its pool does not that comes nearest to it; all of them if no
/// claim of its pool is needed.
pub(super) fn missing_types(planned: &PlannedClaim, needed: &[PlannedClaim]) -> Vec<String> {
    let of_pool = needed.iter().filter(|claim| claim.node_pool == planned.node_pool);
    let lists = of_pool.map(|claim| missing(planned, claim).map(str::to_owned).collect::<Vec<_>>());
    lists.min_by_key(Vec::len).unwrap_or_else(|| planned.instance_types.to_vec())
}

fn missing<'p>(planned: &'p PlannedClaim, needed: &'p PlannedClaim) -> impl Iterator<Item = &'p str> {
    let known: BTreeSet<&str> = needed.instance_types.iter().map(String::as_str).collect();
    planned.instance_types.iter().map(String::as_str).filter(move |name| !known.contains(name))
}
