//! Plans for one cluster, again and again.
//!
//! Of many pods the newest few are planned by themselves, once all others are where the plan puts them. When one more pod
//! comes, the plan for the others still holds.

mod clear;
mod outset;

use std::sync::Arc;

use super::{Plan, Planner, PreferencePolicy, Shelf, StopFlag, Warning, problem::Trials};
use crate::{
    Catalogs, Snapshot, Timestamp,
    api::{ObjectKey, Pod},
};

/// Fewer pods than this take only some milliseconds.
const MIN_PODS: usize = 4096;

/// More of the newest take longer to plan, and may be placed dearer; with fewer of them the others change more often.
const NEWEST_SHARE_LOG2: u32 = 6;

/// Plans for one cluster as it changes.
///
/// What it remembers makes it fast and has no bearing on the plan: a new one gives the same. If only a few pods came since
/// the last plan, it takes a small part of the time of that plan.
///
/// Of many pods it plans those by themselves that were made last, on top of the plan for all others, as its [`Division`] says.
/// Pods without a time of creation, as builders write them, go by namespace and name. Together they may be a little dearer than
/// what [`Planner::plan`] finds, because the last get nodes of their own where there is no room. All pods are planned at once
///
/// - if one of the last would be left without a place,
/// - if what they ask of each other's zones is settled only when the nodes are there,
/// - if some are spread over zones, and the last can have nodes where none of the others can, or there are reservations,
/// - if the others have places only because no node is made in some zones,
/// - if the others may be in zones to which the last cannot come, but over which the last are spread,
/// - if preferences are weighed,
/// - and if a node takes only a share of a workload.
///
/// ```
/// use karpenter_core::{
///     Catalogs, InstanceType, Planner, Price, Quantity, Snapshot,
///     api::{NodePool, Pod},
///     schedule::Replanner,
/// };
///
/// let large = InstanceType::named("large", [("cpu", Quantity::from_units(64)), ("memory", Quantity::from_bytes(256 << 30))])
///     .offering("on-demand", "zone-a", Price::per_hour(3.20).unwrap());
/// let pod = |name: &str| Pod::named(name).cpu("500m").memory("1Gi");
/// let snapshot = Snapshot::builder().pool(NodePool::named("general")).pods(pod("web").replicas(10_000)).build()?;
/// let catalogs = Catalogs::shared(vec![large], snapshot.pools())?;
///
/// let mut replanner = Replanner::new(Planner::default());
/// let nodes = replanner.plan(&snapshot, &catalogs).claims().len();
/// let later = snapshot.with_pending(pod("late"))?;
/// assert!(replanner.plan(&later, &catalogs).claims().len() <= nodes + 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Replanner {
    planner: Planner,
    division: Division,
    memory: Option<Memory>,
}

/// How many of many pods a [`Replanner`] plans by themselves.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Division {
    /// Of fewer pods all are planned at once. 4096 by default.
    pub min_pods: usize,
    /// Less than one pod in two to the power of this is planned by itself. 6 by default: less than one in 64.
    pub newest_share_log2: u32,
}

impl Default for Division {
    fn default() -> Self {
        Self { min_pods: MIN_PODS, newest_share_log2: NEWEST_SHARE_LOG2 }
    }
}

/// The last plan, and what it depends on.
#[derive(Clone, Debug)]
struct Memory {
    catalogs: Catalogs,
    /// The cluster without the newest pods.
    before: Snapshot,
    /// The cluster once its pods are where the plan puts them; nothing before some pods are planned on top of that.
    outset: Option<Snapshot>,
    /// The plan for its pods, and on top of it the plan for the newest.
    plan: Plan,
    /// What the plan for the newest added.
    added: Added,
    /// The plan for all pods at once, where that in two parts will not do.
    whole: Option<Plan>,
}

/// What has to go for a plan to be that for all but the newest pods.
#[derive(Clone, Debug, Default)]
struct Added {
    claim_count: usize,
    warning_count: usize,
    /// The pods that places had before.
    places: Vec<(String, Option<Vec<ObjectKey>>)>,
}

impl Replanner {
    /// One that remembers nothing yet.
    pub fn new(planner: Planner) -> Self {
        let planner = if planner.shelf.is_some() { planner } else { planner.keeping(&Shelf::default()) };
        Self { planner, ..Self::default() }
    }

    /// Ends searches from now on when this flag is set, as [`Planner::stopped_by`] does.
    pub(crate) fn stopped_by(&mut self, stop: &StopFlag) {
        self.planner.stop = Some(stop.clone());
    }

    /// The same replanner, which divides pods in this way and remembers nothing.
    pub fn dividing(self, division: Division) -> Self {
        Self { division, memory: None, ..self }
    }

    /// Finds places for the pending pods of a snapshot. The order of the input does not matter.
    pub fn plan(&mut self, snapshot: &Snapshot, catalogs: &Catalogs) -> &Plan {
        let newest = if self.is_divisible() { self.division.newest(snapshot) } else { Vec::new() };
        let before = snapshot.without_pending(&newest);
        let is_known = |memory: &Memory| memory.is_of(&before, catalogs);
        let known = self.memory.take().filter(is_known).map(Memory::without_newest);
        let mut memory = known.unwrap_or_else(|| Memory::new(&self.planner, before, catalogs));
        let newest: Vec<Arc<Pod>> = newest.into_iter().map(|index| snapshot.pods()[index].clone()).collect();
        match memory.plan_newest(&self.planner, &newest) {
            Some(further) => memory.add(further),
            None => memory.whole = Some(self.planner.plan(snapshot, catalogs)),
        }
        self.memory.insert(memory).plan()
    }

    /// Whether a plan in two parts can be as good as one.
    fn is_divisible(&self) -> bool {
        let options = &self.planner.options;
        options.preferences != PreferencePolicy::Weigh && options.max_workload_share.is_none()
    }
}

impl Memory {
    fn new(planner: &Planner, before: Snapshot, catalogs: &Catalogs) -> Self {
        let plan = planner.plan(&before, catalogs);
        Self { catalogs: catalogs.clone(), before, outset: None, plan, added: Added::default(), whole: None }
    }

    fn is_of(&self, before: &Snapshot, catalogs: &Catalogs) -> bool {
        self.plan().is_complete() && self.before.is_same(before) && self.catalogs.are_same(catalogs)
    }

    fn plan(&self) -> &Plan {
        self.whole.as_ref().unwrap_or(&self.plan)
    }

    /// The plan for the newest pods, if it can be made by itself and has a place for each.
    fn plan_newest(&mut self, planner: &Planner, newest: &[Arc<Pod>]) -> Option<Plan> {
        if newest.is_empty() {
            return Some(Plan { is_complete: self.plan.is_complete, ..Plan::default() });
        }
        if self.plan.closes_domains || clear::may_differ_in_domains(&self.before, newest, &self.catalogs) {
            return None;
        }
        let outset = self.outset.get_or_insert_with(|| outset::of(&self.before, &self.plan, &self.catalogs));
        if clear::is_waited_for(outset, self.plan.unplaced.keys(), newest) {
            return None;
        }
        let snapshot = outset.joined_by(newest);
        let problem = planner.problem(&snapshot, &self.catalogs, Trials::First);
        let plan = clear::is_clear(&problem.base).then(|| problem.solve())?;
        (plan.unplaced.is_empty() || !plan.is_complete).then_some(plan)
    }

    fn add(&mut self, further: Plan) {
        let Plan { claims, existing, unplaced, warnings, is_complete, .. } = further;
        let warnings: Vec<Warning> = warnings.into_iter().filter(|w| !self.plan.warnings.contains(w)).collect();
        self.added = Added { claim_count: claims.len(), warning_count: warnings.len(), places: Vec::new() };
        self.plan.claims.extend(claims);
        self.plan.warnings.extend(warnings);
        self.plan.unplaced.extend(unplaced);
        self.plan.is_complete &= is_complete;
        for (place, pods) in existing {
            self.added.places.push((place.clone(), self.plan.existing.get(&place).cloned()));
            let all = self.plan.existing.entry(place).or_default();
            all.extend(pods);
            all.sort();
        }
    }

    fn without_newest(mut self) -> Self {
        let Added { claim_count, warning_count, places } = std::mem::take(&mut self.added);
        self.whole = None;
        self.plan.claims.truncate(self.plan.claims.len() - claim_count);
        self.plan.warnings.truncate(self.plan.warnings.len() - warning_count);
        for (place, pods) in places {
            match pods {
                Some(pods) => drop(self.plan.existing.insert(place, pods)),
                None => drop(self.plan.existing.remove(&place)),
            }
        }
        self
    }
}

impl Division {
    /// The newest of many pods, by index, in order: those beyond the largest round number of pods.
    fn newest(self, snapshot: &Snapshot) -> Vec<usize> {
        let count = snapshot.pending().len();
        if count < self.min_pods.max(1) {
            return Vec::new();
        }
        let newest_count = count % (1 << count.ilog2().saturating_sub(self.newest_share_log2));
        let made = snapshot.pending().map(|pod| pod.metadata.creation_timestamp);
        let mut by_age: Vec<(Option<Timestamp>, usize)> =
            made.zip(snapshot.pending_indices().iter().copied()).collect();
        by_age.sort_unstable();
        let mut out: Vec<usize> = by_age[count - newest_count..].iter().map(|(_, index)| *index).collect();
        out.sort_unstable();
        out
    }
}
