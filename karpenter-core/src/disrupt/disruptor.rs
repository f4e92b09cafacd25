//! From a cluster to the commands that it needs.

use std::{
    borrow::Cow,
    cell::OnceCell,
    collections::{BTreeMap, BTreeSet},
    fmt,
    iter::FusedIterator,
    sync::Arc,
};

use super::{
    Candidate, Candidates, Command, Method, NodeOutlook, Roster, SpotToSpot,
    allowance::{Allowance, limit},
    balance::Balance,
    consolidate::Consolidation,
    drift_order, drifted_since,
    hurdle::{Hurdle, Worth},
    outlook::View,
    scene::{Care, Scene, disturbed},
    static_drift::static_drifted,
    terms::Terms,
};
use crate::{
    Catalogs, Planner, PlannerOptions, Snapshot, Timestamp,
    api::{DisruptionReason, ObjectKey, conditions::DRIFTED},
    cluster::{Place, must_move},
    schedule::{Shelf, StopFlag, Warning},
};

/// The most that savings are asked for, in dollars an hour or as a share.
const MOST_TO_SAVE: f64 = 1e9;

/// The most commands that are found in one go.
const MAX_COMMANDS: usize = 1000;

/// How nodes are sought, and what savings must be at least.
///
/// Numbers that are below zero or not a number count as 0. What must be saved is at most a billion: nothing is worth that.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
#[non_exhaustive]
pub struct DisruptorOptions {
    /// How new nodes are planned.
    pub planner: PlannerOptions,
    /// What it must save to move a pod of the usual eviction cost, in dollars an hour. That is for all pods of a command
    /// together. The last of them must save this times 1.6 times the share that the command saves of what the nodes cost that
    /// may go, but no less than 0.77 and no more than 1.14 times this: a command goes further where much of the bill is left.
    ///
    /// By default 0.0097, or what the pods of nodes of pools cost on average on nodes that are three quarters full, if that
    /// is less: nodes of small pods would never go otherwise.
    pub min_savings_per_eviction: Option<f64>,
    /// What it must save to replace nodes, as a share of what they cost.
    pub min_savings_share: f64,
    /// Whether spot nodes are replaced by spot nodes to save money.
    pub spot_to_spot: SpotToSpot,
    /// How much is tried for one command, as a share of what is tried by default: 1.0, which takes a second or two where a
    /// thousand nodes may go. Less finds commands that save less, sooner: from fewer starts, and among fewer nodes.
    pub effort: f64,
}

impl Default for DisruptorOptions {
    fn default() -> Self {
        let planner = PlannerOptions { slack: 0.0, ..PlannerOptions::default() };
        Self {
            planner,
            min_savings_per_eviction: None,
            min_savings_share: 0.01,
            spot_to_spot: SpotToSpot::default(),
            effort: 1.0,
        }
    }
}

/// Of so many drifted nodes it is planned as well as can be where their pods go although a sketch has no place for them.
const MAX_DRIFT_PLANNED: usize = 16;
/// For one command so many places are looked at in sketches that find no place for the pods of a drifted node.
const MAX_DRIFT_SKETCHED: usize = 6_000_000;

/// Finds nodes that should go.
///
/// ```
/// use karpenter_core::{Catalogs, Snapshot, Timestamp, disrupt::Disruptor};
///
/// let (snapshot, catalogs) = (Snapshot::builder().build()?, Catalogs::new());
/// let now: Timestamp = "2026-01-01T12:00:00Z".parse()?;
/// let mut commands = Disruptor::default().start(&snapshot, &catalogs, now);
/// assert!(commands.next().is_none(), "there is no node that could go");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Disruptor {
    options: DisruptorOptions,
    /// What is kept from one search to the next, if there is likely to be one.
    shelf: Option<Shelf>,
    /// The traits of the pods of the cluster, where they are known.
    roster: Option<Arc<Roster>>,
    /// Whether drifted nodes of static pools stay.
    leaves_static_pools: bool,
    /// Pools of which no nodes go that others must come for.
    resting: BTreeSet<String>,
    stop: Option<StopFlag>,
}

impl Disruptor {
    /// A disruptor with these options.
    pub const fn new(options: DisruptorOptions) -> Self {
        Self { options, shelf: None, roster: None, leaves_static_pools: false, resting: BTreeSet::new(), stop: None }
    }

    /// The same disruptor, which shares what planners keep from one plan to the next.
    pub(crate) fn keeping(self, kept: &Shelf) -> Self {
        Self { shelf: Some(kept.clone()), ..self }
    }

    /// The same disruptor, which knows the traits of the pods of the cluster.
    pub(crate) fn knowing(self, roster: &Arc<Roster>) -> Self {
        Self { roster: Some(roster.clone()), ..self }
    }

    /// The same disruptor, which ends a search soon once this flag is set: with the best command that it has found by then, if any,
    /// and nothing after it. If pods still wait for their places in a plan, there is none.
    ///
    /// The next search begins anew, in the cluster as the commands leave it.
    #[must_use]
    pub fn stopped_by(self, stop: &StopFlag) -> Self {
        Self { stop: Some(stop.clone()), ..self }
    }

    /// The same disruptor, which leaves static pools alone.
    pub(crate) fn leaving_static_pools(self) -> Self {
        Self { leaves_static_pools: true, ..self }
    }

    /// The same disruptor, which takes no nodes of these pools away that have pods to move or that the pool must have.
    pub(crate) fn resting(self, resting: BTreeSet<String>) -> Self {
        Self { resting, ..self }
    }

    /// Begins to look for commands, as things stand `now`.
    ///
    /// Pods that wait for a place are given one first, as the planner finds it, and what is bought for them counts as there.
    pub fn start<'s>(&self, snapshot: &Snapshot, catalogs: &'s Catalogs, now: Timestamp) -> Commands<'s> {
        let scene = self.scene(snapshot, catalogs);
        Commands {
            scene,
            hurdle: self.hurdle(),
            spot_to_spot: self.options.spot_to_spot,
            effort: self.options.effort,
            leaves_static_pools: self.leaves_static_pools,
            resting: self.resting.clone(),
            now,
            candidates: None,
            homeless: Homeless::new(),
            stuck: BTreeSet::new(),
            worth: OnceCell::new(),
            found: 0,
            is_over: false,
        }
    }

    /// The commands that can be carried out one after the other until nothing more is worth it.
    pub fn commands(&self, snapshot: &Snapshot, catalogs: &Catalogs, now: Timestamp) -> Vec<Command> {
        self.start(snapshot, catalogs, now).collect()
    }

    pub(super) fn scene<'s>(&self, snapshot: &Snapshot, catalogs: &'s Catalogs) -> Scene<'s> {
        let planner = Planner::new(self.options.planner.clone()).keeping(&self.shelf.clone().unwrap_or_default());
        let planner = self.stop.iter().fold(planner, Planner::stopped_by);
        let known = self.roster.clone().filter(|roster| roster.is_of(snapshot));
        let roster = known.unwrap_or_else(|| Arc::new(Roster::of(snapshot)));
        Scene::new(snapshot, catalogs, planner, roster)
    }

    pub(super) fn hurdle(&self) -> Hurdle {
        let DisruptorOptions { min_savings_per_eviction, min_savings_share, .. } = self.options;
        Hurdle {
            per_eviction: min_savings_per_eviction.map(at_most_a_billion),
            share: at_most_a_billion(min_savings_share),
        }
    }
}

/// A number that savings are held against, such that its product with what there is of pods and nodes is a number too.
const fn at_most_a_billion(number: f64) -> f64 {
    number.max(0.0).min(MOST_TO_SAVE)
}

/// What a search was made from. One that found nothing finds nothing for as long as this is the same.
#[derive(Clone, Debug)]
pub(crate) struct Standing {
    pub(crate) snapshot: Snapshot,
    pub(crate) catalogs: Catalogs,
    pub(crate) roster: Arc<Roster>,
    pub(crate) at: Timestamp,
}

impl Standing {
    /// Whether the same search finds nothing again: nothing has changed, and time lets the same nodes go.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.catalogs.are_same(&other.catalogs)
            && self.snapshot.is_same(&other.snapshot)
            && self.may_go() == other.may_go()
    }

    /// The places that may go, by index, and whether each may for each reason; how many nodes of each pool may; and the places
    /// that take no pods which move to save money.
    fn may_go(&self) -> impl PartialEq + use<> {
        let reasons = [DisruptionReason::Empty, DisruptionReason::Drifted, DisruptionReason::Underutilized];
        let candidates = Candidates::by(&self.roster, &self.snapshot, &self.catalogs, self.at);
        let may_go = candidates.all().iter().map(|node| (node.place, reasons.map(|reason| node.allows(reason))));
        let limit = |pool| reasons.map(|reason| limit(&self.snapshot, pool, reason, self.at).allowed());
        let limits = self.snapshot.pools().iter().map(limit);
        (may_go.collect::<Vec<_>>(), limits.collect::<Vec<_>>(), disturbed(&self.snapshot, self.at))
    }
}

/// Pods without another place, by the names of the nodes that stay for them.
pub(crate) type Homeless = BTreeMap<String, Vec<ObjectKey>>;

/// A search for commands. Each is found in the cluster as those before it leave it, so that they can be carried out in this
/// order; the search ends when nothing more is worth it.
pub struct Commands<'s> {
    scene: Scene<'s>,
    hurdle: Hurdle,
    spot_to_spot: SpotToSpot,
    effort: f64,
    leaves_static_pools: bool,
    resting: BTreeSet<String>,
    now: Timestamp,
    /// Which nodes might go when it was searched last.
    candidates: Option<Candidates>,
    homeless: Homeless,
    /// The drifted nodes for whose pods no sketch had a place, beside those that were planned for. They are not looked at again.
    stuck: BTreeSet<String>,
    /// What the pods are worth; nothing before somebody asked.
    worth: OnceCell<Worth>,
    /// How many commands were found.
    found: usize,
    /// Whether nothing was found when it was searched last.
    is_over: bool,
}

impl Commands<'_> {
    /// The cluster as the commands so far leave it. No pod of it waits, and nodes that are to be made are in it as places
    /// without a node and a claim.
    pub const fn snapshot(&self) -> &Snapshot {
        &self.scene.snapshot
    }

    /// What somebody should look at: the pools of which no node can come for pods. Static pools are not among them, since their
    /// nodes come and go all the same.
    pub fn warnings(&self) -> Vec<Warning> {
        let Self { scene, .. } = self;
        // Neither pods nor nodes bear on it, and there may be very many.
        let pools = scene.snapshot.pools().iter().filter(|pool| !pool.is_static()).cloned();
        let alone = Snapshot::builder().pools(pools).build();
        alone.map(|alone| scene.planner.plan(&alone, scene.catalogs).warnings().to_vec()).unwrap_or_default()
    }

    /// Which nodes of a cluster may go, where the last search has looked at just these nodes.
    pub(crate) fn candidates_of(self, snapshot: &Snapshot) -> Option<Candidates> {
        self.candidates.filter(|_| self.scene.snapshot.shares_places(snapshot))
    }

    /// The drifted nodes that stayed in the last search because pods of them had no other place.
    pub(crate) fn take_homeless(&mut self) -> Homeless {
        std::mem::take(&mut self.homeless)
    }

    /// What speaks for and against taking one node away, by its name, in the cluster as the commands so far leave it; `None` if
    /// it is not there.
    pub fn outlook(&self, node: &str) -> Option<NodeOutlook> {
        let Self { scene, hurdle, now, spot_to_spot, .. } = self;
        let balance = Balance::of(scene);
        let terms = Terms { scene, spot_to_spot: *spot_to_spot, balance: &balance };
        let places = scene.snapshot.places();
        let index = places.binary_search_by(|place| place.name.as_str().cmp(node)).ok()?;
        let candidates = scene.candidates(*now);
        let candidate = scene.candidate_at(&candidates, index, *now);
        // Where the pods go depends on whether they move to save money.
        let place = &places[index];
        let by_savings = scene.for_savings(*now);
        let target = if is_drifted(place) { scene } else { &*by_savings };
        let view = View { scene, target, candidates: &candidates, candidate, index, place, now: *now, terms };
        let threshold = hurdle.threshold(|| self.worth.get_or_init(|| Worth::of(scene)).per_eviction());
        Some(view.outlook(threshold, is_drifted(place)))
    }
}

impl Iterator for Commands<'_> {
    type Item = Command;

    fn next(&mut self) -> Option<Command> {
        if self.is_over || self.found >= MAX_COMMANDS || self.scene.is_cut_short {
            return None;
        }
        let command = self.find();
        self.is_over = command.is_none();
        command
    }
}

impl FusedIterator for Commands<'_> {}

impl Commands<'_> {
    /// The next command, carried out in thought.
    fn find(&mut self) -> Option<Command> {
        let Self { scene, hurdle, now, worth: known, .. } = self;
        let (hurdle, now) = (*hurdle, *now);
        let (spot_to_spot, effort, replaces_static) = (self.spot_to_spot, self.effort, !self.leaves_static_pools);
        let mut candidates = scene.candidates(now);
        candidates.rest(&scene.snapshot, &self.resting);
        let candidates = &*self.candidates.insert(candidates);
        let command = empty(scene, candidates, now)
            .or_else(|| replaces_static.then(|| static_drifted(scene, candidates, now)).flatten())
            .or_else(|| drifted(scene, candidates, (&mut self.homeless, &mut self.stuck), now));
        let command = command.or_else(|| {
            let scene = &*scene.for_savings(now);
            let balance = Balance::of(scene);
            let terms = Terms { scene, spot_to_spot, balance: &balance };
            let (no_values, threshold) = (BTreeMap::new(), hurdle.threshold(|| 0.0));
            let mut consolidation =
                Consolidation { scene, candidates, threshold, effort, terms, values: &no_values, now };
            let best = consolidation.may_gain().then(|| {
                let worth = known.get_or_init(|| Worth::of(scene));
                consolidation.values = &worth.of_pods;
                consolidation.threshold = hurdle.threshold(|| worth.per_eviction());
                consolidation.best().or_else(|| consolidation.alone())
            });
            best.flatten().or_else(|| consolidation.unpriced())
        })?;
        self.scene.carry_out(&command);
        self.found += 1;
        Some(command)
    }
}

impl fmt::Debug for Commands<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Commands").field("now", &self.now).field("found", &self.found).finish_non_exhaustive()
    }
}

/// All nodes without pods to move, as many as budgets allow at once.
fn empty(scene: &Scene<'_>, candidates: &Candidates, now: Timestamp) -> Option<Command> {
    let mut allowance = Allowance::new(&scene.snapshot, DisruptionReason::Empty, now);
    let empty = candidates.for_reason(DisruptionReason::Empty).filter(|candidate| candidate.pods.is_empty());
    let goes: Vec<&Candidate> = empty.filter(|candidate| allowance.take(candidate)).collect();
    (!goes.is_empty()).then(|| Scene::emptied(&goes))
}

/// The first node, in the order of drift, of which the claim says that it is not what its pool asks for, and whose pods have
/// another place. Those before it whose pods have none are `homeless`.
fn drifted(
    scene: &Scene<'_>,
    candidates: &Candidates,
    (homeless, stuck): (&mut Homeless, &mut BTreeSet<String>),
    now: Timestamp,
) -> Option<Command> {
    homeless.clear();
    let allowance = Allowance::new(&scene.snapshot, DisruptionReason::Drifted, now);
    let order = by_drift(scene, candidates, false);
    let (mut left, mut sketches_left) = (MAX_DRIFT_PLANNED, MAX_DRIFT_SKETCHED / scene.snapshot.places().len().max(1));
    order.into_iter().filter(|candidate| allowance.admits(candidate)).find_map(|candidate| {
        if sketches_left == 0 || stuck.contains(&candidate.name) {
            return None;
        }
        let candidate = &without_held_pods(scene, candidate, now);
        // Where types are sold out there may be thousands of nodes without another place for their pods.
        if scene.try_without(&[candidate], Care::Sketch).is_err() {
            sketches_left -= 1;
            if left == 0 {
                stuck.insert(candidate.name.clone());
                return None;
            }
            left -= 1;
        }
        let keep = |pods: BTreeSet<usize>| {
            let pods = pods.into_iter().map(|pod| scene.snapshot.pods()[pod].key());
            homeless.insert(candidate.name.clone(), pods.collect());
        };
        let trial = scene.try_without(&[candidate], Care::Best).map_err(keep).ok()?;
        Some(Scene::command(Method::Drift, &[candidate], trial))
    })
}

/// A node with those pods to move that leave once it is drained. Others stay until its termination grace period is over: a place
/// for them now would be paid for until then.
pub(super) fn without_held_pods<'c>(scene: &Scene<'_>, candidate: &'c Candidate, now: Timestamp) -> Cow<'c, Candidate> {
    if !candidate.has_termination_grace_period {
        return Cow::Borrowed(candidate);
    }
    Cow::Owned(Candidate { pods: drained(scene, &candidate.pods, now), ..candidate.clone() })
}

/// Those of some pods, by index, that leave once their node is drained.
pub(super) fn drained(scene: &Scene<'_>, pods: &[usize], now: Timestamp) -> Vec<usize> {
    let (all, budgets) = (scene.snapshot.pods(), scene.snapshot.budgets());
    pods.iter().copied().filter(|&pod| must_move(&all[pod], budgets, now)).collect()
}

/// The drifted nodes that may go, of static pools or of the others, in the order of drift.
pub(super) fn by_drift<'c>(scene: &Scene<'_>, candidates: &'c Candidates, is_static: bool) -> Vec<&'c Candidate> {
    let place = |candidate: &Candidate| &scene.snapshot.places()[candidate.place];
    let is_asked = |candidate: &&Candidate| {
        let pool = scene.snapshot.pool(&candidate.pool);
        is_drifted(place(candidate)) && pool.is_some_and(|pool| pool.is_static() == is_static)
    };
    let mut order: Vec<&Candidate> = candidates.for_reason(DisruptionReason::Drifted).filter(is_asked).collect();
    order.sort_by_cached_key(|candidate| {
        let since = place(candidate).node_claim.as_deref().and_then(drifted_since);
        let (has_pods, since, name) = drift_order(!candidate.pods.is_empty(), since, &candidate.name);
        (has_pods, since, name.to_owned())
    });
    order
}

/// Whether the claim of a node says that it is not what its pool asks for any more.
pub(super) fn is_drifted(place: &Place) -> bool {
    place.node_claim.as_deref().is_some_and(|claim| claim.status.is_true(DRIFTED))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::NodePool;

    #[test]
    fn what_must_be_saved_is_a_number_whatever_the_options_say() {
        let at_least = |number| {
            let options = DisruptorOptions {
                min_savings_per_eviction: Some(number),
                min_savings_share: number,
                ..DisruptorOptions::default()
            };
            let threshold = Disruptor::new(options).hurdle().threshold(|| 0.0);
            [threshold.per_hour(0.0, 1.0), threshold.per_hour(1.0, 0.0)].map(f64::to_bits)
        };
        let numbers = [f64::NAN, -1.0, f64::NEG_INFINITY, 0.5, f64::MAX, f64::INFINITY];
        let expected = [0.0, 0.0, 0.0, 0.5, MOST_TO_SAVE, MOST_TO_SAVE];
        assert_eq!(numbers.map(at_least), expected.map(|number: f64| [number.to_bits(); 2]));
    }

    #[test]
    fn a_search_is_the_same_while_nothing_changes_and_time_allows_no_more() {
        let read = |budgets| {
            let mut pool = NodePool::named("p");
            pool.spec.disruption = serde_json::from_value(json!({ "budgets": budgets })).expect("as the API has it");
            pool
        };
        let at = |text: &str, budgets| {
            let snapshot = Snapshot::builder().pool(read(budgets)).build().expect("a cluster");
            let roster = Arc::new(Roster::of(&snapshot));
            Standing { snapshot, catalogs: Catalogs::new(), roster, at: text.parse().expect("a time") }
        };
        let by_day = || json!([{"nodes": "10"}, {"nodes": "0", "schedule": "0 8 * * *", "duration": "8h"}]);
        let morning = at("2026-01-01T09:00:00Z", by_day());
        assert!(morning.is_same(&at("2026-01-01T12:00:00Z", by_day())));
        assert!(!morning.is_same(&at("2026-01-01T18:00:00Z", by_day())), "the budget is over");
        assert!(!morning.is_same(&at("2026-01-01T09:00:00Z", json!([{"nodes": "0"}]))), "the pool is another");
    }
}
