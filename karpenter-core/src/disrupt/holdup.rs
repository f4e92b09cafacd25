//! Why nodes of a pool stay that should go, though nothing about them keeps them.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use super::{
    BudgetLimit, Candidates, allowance::limit, disruptor::is_drifted, static_drift::spare, survey::is_leaving,
};
use crate::{
    Snapshot, Timestamp,
    api::{DisruptionReason, NodePool},
};

/// What holds up the nodes of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Holdup {
    /// Its budgets let none go for this reason.
    Budget { reason: DisruptionReason, limit: BudgetLimit },
    /// It is static and has as many nodes as its limits allow: none can come before one goes.
    NodeLimit,
}

impl fmt::Display for Holdup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Budget { reason, limit } => write!(f, "no node may go for the reason {}: {limit}", reason.name()),
            Self::NodeLimit => {
                f.write_str("drifted nodes are not replaced: spec.limits.nodes leaves no room for a node more")
            }
        }
    }
}

/// What holds up nodes that are empty or have drifted, for each pool that has some. Of other nodes nobody knows whether it would be
/// worth it. A pool of which nodes are on their way out goes on, so that nothing holds it up.
pub(crate) fn holdups(snapshot: &Snapshot, candidates: &Candidates, now: Timestamp) -> BTreeMap<String, Vec<Holdup>> {
    let leaving = snapshot.places().iter().filter(|place| is_leaving(place));
    let leaving: BTreeSet<&str> = leaving.filter_map(|place| place.pool.as_deref()).collect();
    let mut wishes: BTreeMap<&str, BTreeSet<DisruptionReason>> = BTreeMap::new();
    for candidate in candidates.all().iter().filter(|candidate| !leaving.contains(candidate.pool.as_str())) {
        let has_drifted = is_drifted(&snapshot.places()[candidate.place]);
        let wishes_of =
            [(DisruptionReason::Empty, candidate.pods.is_empty()), (DisruptionReason::Drifted, has_drifted)];
        for (reason, _) in wishes_of.into_iter().filter(|&(reason, is_one)| is_one && candidate.allows(reason)) {
            wishes.entry(&candidate.pool).or_default().insert(reason);
        }
    }
    let mut out = BTreeMap::new();
    for (name, reasons) in wishes {
        let Some(pool) = snapshot.pool(name) else { continue };
        let found: Vec<Holdup> = reasons.into_iter().filter_map(|reason| holdup(snapshot, pool, reason, now)).collect();
        if !found.is_empty() {
            out.insert(name.to_owned(), found);
        }
    }
    out
}

fn holdup(snapshot: &Snapshot, pool: &NodePool, reason: DisruptionReason, now: Timestamp) -> Option<Holdup> {
    let limit = limit(snapshot, pool, reason, now);
    if limit.allowed() == 0 {
        return Some(Holdup::Budget { reason, limit });
    }
    let is_replaced = pool.is_static() && reason == DisruptionReason::Drifted;
    (is_replaced && spare(snapshot, pool) == Some(0)).then_some(Holdup::NodeLimit)
}
