//! Where the pending pods of a snapshot go.
//!
//! The way through: [`Planner::prepare`] sorts pods into classes of equal pods and compiles pools against their
//! catalogs; [`Problem::solve`] searches and gives back a [`Plan`].

mod amounts;
mod appraise;
mod bound;
mod brace;
mod candidate;
mod ceilings;
mod claim;
mod class;
mod closing;
mod columns;
mod contest;
mod cost;
mod eligible;
mod explain;
mod fairness;
mod filling;
mod finish;
mod first_fit;
mod flexibility;
mod judge;
mod landing;
mod lightness;
mod limit;
mod lot;
mod mixture;
mod occupancy;
pub(crate) mod parallel;
mod plan;
mod pool;
mod pool_types;
mod problem;
mod queue;
mod rearrange;
mod reconsider;
mod refine;
mod replan;
mod reservation;
mod resume;
mod rework;
mod rivals;
mod room;
mod screen;
mod search;
mod shelf;
mod solve;
mod spoilers;
mod stop;
mod topology;
mod trim;
mod variety;
mod volumes;
mod weigh;
mod workload;

pub use bound::{Certificate, PoolShares, Worth};
pub use plan::{Answer, Plan, PlannedClaim, Warning};
pub use pool_types::{LimitUse, PoolTypes, RemainingType, ValueCount};
pub use problem::Problem;
pub use replan::{Division, Replanner};
pub(crate) use shelf::{Answers, Shelf};
pub use stop::StopFlag;

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use problem::{Base, Course, Order, Trials};
use topology::Lessons;

use crate::{Catalogs, Snapshot};

/// The most instance types in a claim: Karpenter's own limit.
pub(crate) const MAX_INSTANCE_TYPES: usize = 600;

/// What a node costs beside its price where there are to be few, in dollars an hour: more than nearly any machine.
const COST_OF_FEW_NODES: f64 = 100.0;

/// What nodes beyond the tightest plan may cost beside all others.
const SLACK: f64 = 0.06;

/// How many types a spot claim keeps. In a catalog of a thousand types, neither 3 nor 15 changes a plan. In random catalogs of a
/// few dozen, bills are the same with 3 and 1 % higher with 5.
const MIN_SPOT_TYPES: usize = 3;

/// What a node costs beyond its price, in dollars an hour. A tenth of a cent is a twentieth of what the smallest machines of
/// the large clouds cost.
const NODE_COST: f64 = 1e-3;

/// What an interruption costs, in dollars: about a quarter of an hour of a machine of eight cores on demand. For some
/// minutes there are two nodes for the same pods, and their work since the last checkpoint is done again.
const INTERRUPTION_COST: f64 = 0.1;

/// What it costs that a preference is not met, in dollars an hour: about a quarter of what a core costs on demand.
const PREFERENCE_PRICE: f64 = 0.01;

/// How to plan.
///
/// Amounts that are below zero or not finite count as 0, and those above a billion as a billion. A share that is below zero or
/// not a number counts as 0.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
#[non_exhaustive]
pub struct PlannerOptions {
    /// The most instance types that a claim names; the cheapest are kept. 600 by default; 0 counts as 1.
    pub max_instance_types: usize,
    /// What becomes of preferences. They are respected by default.
    pub preferences: PreferencePolicy,
    /// What it costs, in dollars an hour, that one preference of one pod is not met, for a preference of weight 100; one of
    /// weight 1 costs a hundredth. Spreads that may be broken have weight 100. Only [`PreferencePolicy::Weigh`] looks at it.
    /// 0.01 by default, about a quarter of what a core costs on demand; 0 pays nothing for preferences, and a price above
    /// that of any node gives up no more of them than Karpenter's order.
    pub preference_price_per_hour: f64,
    /// What becomes of pods that could use a reservation of which nothing is left. They fall back by default.
    pub reservations: ReservationPolicy,
    /// What becomes of pods for which a pool cannot keep its `minValues`. They find no place by default.
    pub min_values: MinValuesPolicy,
    /// The most that further nodes may cost which let pods find a node in whichever order the kube-scheduler takes them,
    /// as a share of what all nodes of the cluster cost. 0.06 by default; without such nodes a few pods may have to wait
    /// for a further plan. Where no pod is left from an earlier plan, they do not make a plan dearer than Karpenter's. Plans are
    /// then compared by what they are likely to cost once pods are bound, so that one may be chosen which costs more by itself.
    pub slack: f64,
    /// What each node costs beyond its price, in dollars an hour: licences of agents, watching, patching, draining. It is no
    /// part of [`Plan::hourly_cost`]. 0.001 by default, which settles ties in favour of fewer nodes and gives machines that
    /// cost nothing a price to compare.
    pub node_cost_per_hour: f64,
    /// How many instance types a claim keeps that may be launched as spot, where its pods allow it: spot capacity of a single
    /// type runs dry, and clouds take what they have most of. Fewer pods share a node where more would leave fewer types.
    /// Half as many as the first of its pods leaves are always enough; where limits leave pods without a node, any number
    /// is. Types that a claim does not name because of the limits of its pool count. 0 and 1 ask for no choice.
    ///
    /// `None`, the default, means 3 where that makes no plan of few pods dearer than Karpenter's, which keeps no choice. It
    /// costs nothing in the catalogs of large clouds.
    pub min_spot_types: Option<usize>,
    /// The most of a workload that one node takes, as a share of its pods, so that the loss of a node is bearable; a node
    /// may always have one. The pods of a workload have one controller, or are alike if they have none. Pods that run count
    /// if they have the controller. None by default; 1 and more mean the same.
    ///
    /// The kube-scheduler does not know this rule: there are enough nodes to keep it, and only a spread over nodes in the
    /// pods themselves makes sure that it is kept.
    pub max_workload_share: Option<f64>,
    /// What it costs, in dollars, when the cloud takes a machine back: offerings are compared by their prices plus this
    /// times their [`interruption`](crate::Offering::interruption). It is no part of [`Plan::hourly_cost`]. 0.1 by default;
    /// 0 compares by prices alone.
    pub interruption_cost: f64,
}

/// What becomes of pods that could use a reservation of which nothing is left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum ReservationPolicy {
    /// They may use other capacity.
    #[default]
    Fallback,
    /// They wait: the machines of the reservation are launched first, and what the provider says then counts.
    Strict,
}

/// What becomes of pods for which a pool cannot keep as many values of a label as its `minValues` asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum MinValuesPolicy {
    /// They find no place in the pool.
    #[default]
    Strict,
    /// The claim keeps as many values as it can, and asks for no more.
    BestEffort,
}

/// What becomes of what pods only prefer: nodes, neighbours, and spreads that may be broken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum PreferencePolicy {
    /// A preference is a requirement as long as some node meets it; then it is given up, one at a time.
    #[default]
    Respect,
    /// Preferences are not looked at.
    Ignore,
    /// A preference is met where that costs no more than its
    /// [price](PlannerOptions::preference_price_per_hour): of the plans that are looked at, that one is taken of which the
    /// bill and the price of what is not met are least together. No fewer pods find a place than under the other policies,
    /// and the sum is never above that of a plan of theirs which places as many pods.
    ///
    /// A preference is met if the plan requires it of the nodes of a pod. One that is given up counts as unmet, even where it
    /// happens to be met, so that the price is never too low. Of the preferred nodes each counts by itself. Taints that only
    /// ask to be avoided have no price: they are avoided as long as there is any other way, under every policy. It takes the
    /// time of some dozens of plans.
    Weigh,
}

impl Default for PlannerOptions {
    fn default() -> Self {
        Self {
            max_instance_types: MAX_INSTANCE_TYPES,
            preferences: PreferencePolicy::Respect,
            preference_price_per_hour: PREFERENCE_PRICE,
            reservations: ReservationPolicy::Fallback,
            min_values: MinValuesPolicy::Strict,
            slack: SLACK,
            node_cost_per_hour: NODE_COST,
            min_spot_types: None,
            max_workload_share: None,
            interruption_cost: INTERRUPTION_COST,
        }
    }
}

impl PlannerOptions {
    fn spot_types_to_keep(&self) -> usize {
        self.min_spot_types.unwrap_or(MIN_SPOT_TYPES)
    }
}

/// Finds places for pods.
///
/// ```
/// use karpenter_core::{
///     Catalogs, InstanceType, Planner, Price, Quantity, Snapshot,
///     api::{NodePool, Pod},
/// };
///
/// let large = InstanceType::named("large", [("cpu", Quantity::from_units(8)), ("memory", Quantity::from_bytes(32 << 30))])
///     .offering("on-demand", "zone-a", Price::per_hour(0.40).unwrap());
/// let snapshot = Snapshot::builder()
///     .pool(NodePool::named("general"))
///     .pods(Pod::named("web").cpu("500m").memory("1Gi").replicas(40))
///     .build()?;
/// let catalogs = Catalogs::shared(vec![large], snapshot.pools())?;
///
/// let plan = Planner::default().plan(&snapshot, &catalogs);
/// assert_eq!(plan.claims().len(), 3);
/// println!("{}", plan.why("default/web-3"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Planner {
    options: PlannerOptions,
    stop: Option<StopFlag>,
    /// What is kept from one plan to the next, if there is likely to be one.
    shelf: Option<Shelf>,
}

impl Planner {
    /// A planner with these options.
    pub const fn new(options: PlannerOptions) -> Self {
        Self { options, stop: None, shelf: None }
    }

    /// The same planner, which keeps what serves the next plan too. Planners with one shelf share it.
    pub(crate) fn keeping(self, kept: &Shelf) -> Self {
        Self { shelf: Some(kept.clone()), ..self }
    }

    /// The same planner, which ends a search when a flag is set. Pods that no place was found for by then have none in the
    /// plan, which is not [complete](Plan::is_complete). Preparing and certifying are not cut short.
    pub fn stopped_by(mut self, stop: &StopFlag) -> Self {
        self.stop = Some(stop.clone());
        self
    }

    /// Finds places for the pending pods of a snapshot. The order of the input does not matter.
    pub fn plan(&self, snapshot: &Snapshot, catalogs: &Catalogs) -> Plan {
        self.prepare(snapshot, catalogs).solve()
    }

    /// The first half of [`Planner::plan`], for those who solve a problem more than once or time the halves.
    pub fn prepare<'a>(&'a self, snapshot: &'a Snapshot, catalogs: &'a Catalogs) -> Problem<'a> {
        self.problem(snapshot, catalogs, Trials::All)
    }

    /// A plan that fills the room that there is in one more way: pods are weighed against the room of each place. Less is tried for
    /// one of very many that are compared.
    pub(crate) fn plan_weighing_room(&self, snapshot: &Snapshot, catalogs: &Catalogs, is_one_of_many: bool) -> Plan {
        let trials = if is_one_of_many { Trials::Few } else { Trials::All };
        self.course(snapshot, catalogs, Course { weighs_room: true, trials, ..Course::default() }).solve()
    }

    /// A valid plan that is found quickly, by one search where [`Planner::plan`] compares several. The pods that are worth most get
    /// the room that there is, or those that are worth most for what they take of it.
    pub(crate) fn sketch(&self, snapshot: &Snapshot, catalogs: &Catalogs, weighs_room: bool) -> Plan {
        let order = if weighs_room { Order::Worth } else { Order::Need };
        self.course(snapshot, catalogs, Course { trials: Trials::First, order, ..Course::default() }).solve()
    }

    /// Whether it is to end with what it has.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.as_ref().is_some_and(StopFlag::is_stopped)
    }

    /// The same planner, which nothing stops.
    pub(crate) fn unhurried(&self) -> Self {
        Self { stop: None, ..self.clone() }
    }

    /// The same planner, which makes as few new nodes as it finds, and of these the cheapest.
    pub(crate) fn for_few_nodes(&self) -> Self {
        let options = PlannerOptions { node_cost_per_hour: COST_OF_FEW_NODES, ..self.options.clone() };
        Self { options, ..self.clone() }
    }

    /// A plan on top of another that has many of the pods: they stay where it has them, as far as they still can.
    pub(crate) fn plan_on_top_of(&self, earlier: &Plan, snapshot: &Snapshot, catalogs: &Catalogs) -> Plan {
        self.problem(snapshot, catalogs, Trials::First).solve_on_top_of(earlier)
    }

    fn problem<'a>(&'a self, snapshot: &'a Snapshot, catalogs: &'a Catalogs, trials: Trials) -> Problem<'a> {
        self.course(snapshot, catalogs, Course { trials, ..Course::default() })
    }

    fn course<'a>(&'a self, snapshot: &'a Snapshot, catalogs: &'a Catalogs, course: Course) -> Problem<'a> {
        let is_sketch = course.trials == Trials::First;
        let base = Base::new(&self.options, snapshot, catalogs, is_sketch, self.shelf.as_ref());
        let course = Course { stop: self.stop.clone(), ..course };
        Problem::new(Arc::new(base), &Lessons::default(), course)
    }
}
