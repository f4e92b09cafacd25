//! From a cluster to the commands that it needs.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    Candidate, Candidates, Command, Method,
    allowance::Allowance,
    consolidate::{Consolidation, Threshold},
    drift_order, drifted_since,
    scene::{Care, Scene},
};
use crate::{Catalogs, Planner, PlannerOptions, Snapshot, Timestamp, api::DisruptionReason};

/// The most commands that are found in one go.
const MAX_COMMANDS: usize = 1000;

/// What savings must be at least.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DisruptorOptions {
    /// How new nodes are planned.
    pub planner: PlannerOptions,
    /// What it must save to move a pod of the usual eviction cost, in dollars an hour.
    pub min_savings_per_eviction: f64,
    /// What it must save to replace nodes, as a share of what they cost.
    pub min_savings_share: f64,
}

impl Default for DisruptorOptions {
    fn default() -> Self {
        let planner = PlannerOptions { slack: 0.0, ..PlannerOptions::default() };
        Self { planner, min_savings_per_eviction: 0.01, min_savings_share: 0.01 }
    }
}

/// Finds nodes that should go.
#[derive(Clone, Debug, Default)]
pub struct Disruptor {
    options: DisruptorOptions,
}

impl Disruptor {
    /// A disruptor with these options.
    pub const fn new(options: DisruptorOptions) -> Self {
        Self { options }
    }

    /// The commands that can be carried out one after the other until nothing more is worth it.
    pub fn commands(&self, snapshot: &Snapshot, catalogs: &Catalogs, now: Timestamp) -> Vec<Command> {
        let planner = Planner::new(self.options.planner.clone());
        let mut scene = Scene::new(snapshot, catalogs, &planner);
        let values = values(&scene, &planner, now);
        let mut commands = Vec::new();
        while commands.len() < MAX_COMMANDS {
            let Some(command) = self.next(&scene, &values, now) else { break };
            scene.carry_out(&command);
            commands.push(command);
        }
        commands
    }

    fn next(&self, scene: &Scene<'_>, values: &BTreeMap<usize, f64>, now: Timestamp) -> Option<Command> {
        let candidates = Candidates::of(&scene.snapshot, scene.catalogs, now);
        let threshold =
            Threshold { per_eviction: self.options.min_savings_per_eviction, share: self.options.min_savings_share };
        let consolidation = Consolidation { scene, candidates: &candidates, threshold, values, now };
        empty(scene, &candidates, now).or_else(|| drifted(scene, &candidates, now)).or_else(|| consolidation.best())
    }
}

/// All nodes without pods to move.
fn empty(scene: &Scene<'_>, candidates: &Candidates, now: Timestamp) -> Option<Command> {
    let mut allowance = Allowance::new(&scene.snapshot, DisruptionReason::Empty, now);
    let empty = candidates.for_reason(DisruptionReason::Empty).filter(|candidate| candidate.pods.is_empty());
    let goes: Vec<&Candidate> = empty.filter(|candidate| allowance.take(candidate)).collect();
    let trial = (!goes.is_empty()).then(|| scene.try_without(&goes, Care::Plan).ok()).flatten()?;
    Some(Scene::command(Method::Emptiness, &goes, trial))
}

/// The first node, in the order of drift, of which the claim says that it is not what its pool asks for, and whose pods have
/// another place.
fn drifted(scene: &Scene<'_>, candidates: &Candidates, now: Timestamp) -> Option<Command> {
    let allowance = Allowance::new(&scene.snapshot, DisruptionReason::Drifted, now);
    let is_drifted = |candidate: &&Candidate| {
        let is_static = scene.snapshot.pool(&candidate.pool).is_some_and(|pool| pool.spec.replicas.is_some());
        let claim = scene.snapshot.places()[candidate.place].node_claim.as_deref();
        !is_static && claim.is_some_and(|claim| claim.status.is_true("Drifted"))
    };
    let mut order: Vec<&Candidate> = candidates.for_reason(DisruptionReason::Drifted).filter(is_drifted).collect();
    order.sort_by_cached_key(|candidate| {
        let claim = scene.snapshot.places()[candidate.place].node_claim.as_deref();
        let (has_pods, since, name) =
            drift_order(!candidate.pods.is_empty(), claim.and_then(drifted_since), &candidate.name);
        (has_pods, since, name.to_owned())
    });
    order.into_iter().filter(|candidate| allowance.admits(candidate)).find_map(|candidate| {
        let trial = scene.try_without(&[candidate], Care::Plan).ok()?;
        Some(Scene::command(Method::Drift, &[candidate], trial))
    })
}

/// What the pods of all nodes that may go are worth, by index.
fn values(scene: &Scene<'_>, planner: &Planner, now: Timestamp) -> BTreeMap<usize, f64> {
    let candidates = Candidates::of(&scene.snapshot, scene.catalogs, now);
    let all: BTreeSet<usize> = candidates.all().iter().map(|candidate| candidate.place).collect();
    let moving = candidates.all().iter().flat_map(|candidate| candidate.pods.iter().copied());
    let snapshot = scene.snapshot.without_places(&all, moving);
    planner.prepare(&snapshot, scene.catalogs).values_of_pods()
}
