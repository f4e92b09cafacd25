//! What a cluster comes to with and without changes.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use karpenter_core::{
    Catalogs, Plan, PlannedClaim, Price, Snapshot,
    api::{ObjectKey, Pod},
    labels,
};

use super::{Change, Changed};
use crate::consolidate::{Bill, Found};

/// What becomes of a cluster with changes, against what becomes of it without them.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Difference {
    /// The changes.
    pub changes: Vec<Change>,
    /// Whether planning went to its end both times, as opposed to being stopped.
    pub is_complete: bool,
    /// What all nodes cost without the changes, the new ones among them and those that go left out.
    pub cost_before: Price,
    /// The same with the changes.
    pub cost_after: Price,
    /// The nodes of which nobody knows what they cost: they are in neither.
    pub unknown: Vec<String>,
    /// The nodes that are made or go, by pool and type, where there are more or fewer of them with the changes.
    pub nodes: Vec<NodesOfType>,
    /// The pods that run where they are without the changes, and need another place and have one with them.
    pub moved: Vec<ObjectKey>,
    /// The pods that have a place only with the changes, and why they have none without them; `None` for pods that are not
    /// there then.
    pub gained: BTreeMap<ObjectKey, Option<String>>,
    /// The pods that have no place with the changes, although they have one without them or are new.
    pub lost: BTreeMap<ObjectKey, WithoutPlace>,
}

/// How many nodes of a type are made, or go, without and with the changes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodesOfType {
    /// Whether they go, as opposed to being made.
    pub goes: bool,
    /// The pool.
    pub pool: String,
    /// The instance type, of new nodes the cheapest of those that will do; empty if nobody knows.
    pub instance_type: String,
    /// How many without the changes.
    pub before: usize,
    /// How many with them.
    pub after: usize,
}

/// Why a pod has no place.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WithoutPlace {
    /// No pool and no node takes it.
    Refused {
        /// Why not.
        reason: String,
    },
    /// It went with its node, and nothing makes it again.
    Gone {
        /// The node.
        node: String,
    },
}

impl std::fmt::Display for WithoutPlace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Refused { reason } => f.write_str(reason),
            Self::Gone { node } => write!(f, "it goes with node {node}, and nothing makes it again"),
        }
    }
}

/// What becomes of a cluster: where its waiting pods go, and which nodes go then.
pub(crate) struct Future<'f> {
    pub(crate) snapshot: &'f Snapshot,
    pub(crate) catalogs: &'f Catalogs,
    pub(crate) plan: &'f Plan,
    pub(crate) commands: &'f [Found],
    /// Whether planning and the search went to their end.
    pub(crate) is_complete: bool,
}

/// Where a pod is.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Standing {
    /// On a node of today.
    Runs,
    /// Where the plan puts it.
    Planned,
    /// Nowhere, for this reason.
    Waits(String),
    /// It wants no place: it is finished, comes with its node, or nobody has looked for one yet.
    Idle,
}

impl Difference {
    /// Compares what becomes of a cluster.
    pub(crate) fn between(before: &Future<'_>, after: &Future<'_>, changed: Changed) -> Self {
        let (cost_before, unknown_before) = before.cost();
        let (cost_after, unknown_after) = after.cost();
        let unknown: BTreeSet<String> = unknown_before.into_iter().chain(unknown_after).collect();
        let mut out = Self {
            changes: changed.changes,
            is_complete: before.is_complete && after.is_complete,
            cost_before,
            cost_after,
            unknown: unknown.into_iter().collect(),
            nodes: nodes(before, after),
            moved: Vec::new(),
            gained: BTreeMap::new(),
            lost: BTreeMap::new(),
        };
        out.compare_pods(&before.standings(), after.standings());
        let gone = changed.lost.into_iter().map(|(pod, node)| (pod, WithoutPlace::Gone { node }));
        out.lost.extend(gone);
        out
    }

    /// How much more all nodes cost with the changes, in dollars an hour; below 0 for less.
    pub fn cost_more(&self) -> f64 {
        self.cost_after.dollars_per_hour() - self.cost_before.dollars_per_hour()
    }

    fn compare_pods(&mut self, before: &BTreeMap<ObjectKey, Standing>, after: BTreeMap<ObjectKey, Standing>) {
        for (pod, now) in after {
            match (before.get(&pod), now) {
                (Some(Standing::Runs), Standing::Planned) => self.moved.push(pod),
                (Some(Standing::Waits(reason)), Standing::Runs | Standing::Planned) => {
                    self.gained.insert(pod, Some(reason.clone()));
                }
                (None | Some(Standing::Idle), Standing::Runs | Standing::Planned) => {
                    self.gained.insert(pod, None);
                }
                (None | Some(Standing::Idle | Standing::Runs | Standing::Planned), Standing::Waits(reason)) => {
                    self.lost.insert(pod, WithoutPlace::Refused { reason });
                }
                _ => {}
            }
        }
    }
}

impl Future<'_> {
    /// What all nodes cost in the end, and those of which nobody knows what they cost.
    fn cost(&self) -> (Price, Vec<String>) {
        let staying = self.snapshot.places().iter().filter(|place| !place.is_deleting);
        let Bill { after, unknown, .. } = Bill::of_places(staying.map(AsRef::as_ref), self.catalogs, self.commands);
        ([after, self.plan.hourly_cost()].into_iter().sum(), unknown)
    }

    fn standings(&self) -> BTreeMap<ObjectKey, Standing> {
        let of_pod = |pod: &Arc<Pod>| (pod.key(), Standing::of(pod));
        let mut out: BTreeMap<ObjectKey, Standing> = self.snapshot.pods().iter().map(of_pod).collect();
        let of_claims = self.plan.claims().iter().flat_map(|claim| &claim.pods);
        let planned = of_claims.chain(self.plan.existing().values().flatten());
        out.extend(planned.map(|pod| (pod.clone(), Standing::Planned)));
        let unplaced = self.plan.unplaced().iter();
        out.extend(unplaced.map(|(pod, reason)| (pod.clone(), Standing::Waits(reason.to_string()))));
        out
    }

    /// How many nodes are made (`false`) and go (`true`), by pool and type.
    fn nodes(&self) -> BTreeMap<(bool, String, String), usize> {
        let made = self.commands.iter().flat_map(|found| &found.command.replacements);
        let of_claim = |claim: &PlannedClaim| {
            (false, claim.node_pool.clone(), claim.instance_types.first().cloned().unwrap_or_default())
        };
        let made = self.plan.claims().iter().chain(made).map(of_claim);
        let gone: BTreeSet<&String> = self.commands.iter().flat_map(|found| &found.command.candidates).collect();
        let places = self.snapshot.places().iter().filter(|place| gone.contains(&place.name));
        let goes = places.map(|place| {
            let instance_type = place.labels.get(labels::INSTANCE_TYPE).cloned().unwrap_or_default();
            (true, place.pool.clone().unwrap_or_default(), instance_type)
        });
        let mut out = BTreeMap::new();
        for key in made.chain(goes) {
            *out.entry(key).or_default() += 1;
        }
        out
    }
}

impl Standing {
    /// Where a pod is if the plan says nothing of it.
    fn of(pod: &Pod) -> Self {
        let is_bound = !pod.spec.node_name.is_empty() && !pod.is_finished();
        if is_bound && !pod.is_daemon() && !pod.is_mirror() { Self::Runs } else { Self::Idle }
    }
}

/// The nodes by pool and type of which there are more or fewer.
fn nodes(before: &Future<'_>, after: &Future<'_>) -> Vec<NodesOfType> {
    let (before, after) = (before.nodes(), after.nodes());
    let keys: BTreeSet<_> = before.keys().chain(after.keys()).cloned().collect();
    let row = |(goes, pool, instance_type): (bool, String, String)| {
        let key = (goes, pool, instance_type);
        let (before, after) = (before.get(&key).copied().unwrap_or(0), after.get(&key).copied().unwrap_or(0));
        let (goes, pool, instance_type) = key;
        NodesOfType { goes, pool, instance_type, before, after }
    };
    keys.into_iter().map(row).filter(|row| row.before != row.after).collect()
}
