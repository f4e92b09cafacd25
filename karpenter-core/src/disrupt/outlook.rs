//! What speaks for and against taking one node away.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

use super::{
    BudgetLimit, Candidate, Candidates, Guard, MIN_BALANCE, NODE_COST, allowance,
    disruptor::drained,
    hurdle::Threshold,
    price_of, rescheduling_cost,
    scene::{Care, Scene, Trial},
    static_claim, static_drift,
    terms::Terms,
};
use crate::{
    Price, Reason, Timestamp,
    api::{DisruptionReason, ObjectKey},
    cluster::Place,
    schedule::{Plan, PlannedClaim},
};

/// What speaks for and against taking one node away, by itself.
///
/// All other nodes are taken as they are, those among them that should go too. Nodes that go together may save more than each of
/// them alone, so a node that is not worth it alone may be in a command.
///
/// ```
/// use karpenter_core::{Catalogs, Snapshot, Timestamp, api::Node, disrupt::Disruptor};
///
/// let mut node = Node::default();
/// node.metadata.name = "by-hand".to_owned();
/// let (snapshot, catalogs) = (Snapshot::builder().node(node).build()?, Catalogs::new());
///
/// let search = Disruptor::default().start(&snapshot, &catalogs, Timestamp::from_millis(0));
/// let outlook = search.outlook("by-hand").expect("it is in the snapshot");
/// assert_eq!(outlook.goes_for(), None);
/// assert_eq!(outlook.guards[0].to_string(), "no NodeClaim stands behind it");
/// # Ok::<(), karpenter_core::SnapshotError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct NodeOutlook {
    /// The name of the node, or of the claim while it has none.
    pub name: String,
    /// The pool that it belongs to.
    pub pool: Option<String>,
    /// The labels of its place: type, zone and capacity type are among them.
    pub labels: BTreeMap<String, String>,
    /// What it costs now; `None` if nobody knows.
    pub price_per_hour: Option<Price>,
    /// The pods that need another place if it goes, in order.
    pub pods: Vec<ObjectKey>,
    /// All that keeps it from going for some reason.
    pub guards: Vec<Guard>,
    /// What each reason comes to, in the order in which they are looked at: empty, drifted, underutilized.
    pub reasons: [ReasonOutlook; 3],
    /// What becomes of its pods if only this node goes, whether or not it may; `None` if it was not made by the engine, is
    /// on its way out already, nobody knows what runs there, or its static pool makes no node for it now.
    pub alone: Option<Alone>,
}

/// Whether a node may go for one reason.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReasonOutlook {
    /// The reason.
    pub reason: DisruptionReason,
    /// Whether it is one to take this node away: that it has no pods to move, that it has some, that its claim says that it has
    /// drifted.
    pub applies: bool,
    /// What keeps it.
    pub guards: Vec<Guard>,
    /// What limits how many nodes of its pool may go for this reason now; `None` if there is no such pool.
    pub budget: Option<BudgetLimit>,
}

/// What becomes of the pods of a node if it goes alone.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Alone {
    /// The pods that would have no place, with what keeps them from it.
    pub unplaced: BTreeMap<ObjectKey, Reason>,
    /// The pods that would go into room that there is, by the name of the node. Of nodes of static pools it is not planned where
    /// their pods go.
    pub existing: BTreeMap<String, Vec<ObjectKey>>,
    /// The nodes that would be made: with the types that save money, or with all that will do if it has drifted or none saves.
    pub replacements: Vec<PlannedClaim>,
    /// How much less the cluster would cost, in dollars an hour; `None` if nobody knows what the node costs.
    pub savings_per_hour: Option<f64>,
    /// Whether the nodes that would be made may become enough types with which this saves money; see
    /// [`SpotToSpot`](super::SpotToSpot). Empty and drifted nodes may go without.
    pub has_choice: bool,
    /// What it scores for a pool with the policy `Balanced`, which must be [`MIN_BALANCE`] at least: the share of the pool's bill
    /// that is saved, for each share of the pool's disruption. `None` for other pools.
    pub balance: Option<f64>,
    /// What it must save more than, in dollars an hour, for its pods to move; empty and drifted nodes may save less.
    pub threshold_per_hour: f64,
}

impl Alone {
    /// Whether all pods have a place, more is saved than must be, and the nodes that are made leave a choice. A node of which
    /// nobody knows what it costs is worth it if no node is made for its pods.
    pub fn is_worth_it(&self) -> bool {
        let is_enough = match self.savings_per_hour {
            Some(savings) => savings > self.threshold_per_hour,
            None => self.replacements.is_empty(),
        };
        is_enough
            && self.unplaced.is_empty()
            && self.has_choice
            && self.balance.is_none_or(|balance| balance >= MIN_BALANCE)
    }
}

impl ReasonOutlook {
    /// Whether the reason applies, and no guard and no budget is in the way.
    pub fn is_open(&self) -> bool {
        let is_within_budget = self.budget.as_ref().is_some_and(|limit| limit.allowed() > 0);
        self.applies && self.guards.is_empty() && is_within_budget
    }
}

impl NodeOutlook {
    /// The first reason for which the node may go now by itself: nothing keeps it, its pods have a place, and if it is to save
    /// money, it saves enough.
    pub fn goes_for(&self) -> Option<DisruptionReason> {
        let alone = self.alone.as_ref().filter(|alone| alone.unplaced.is_empty())?;
        let is_enough = |reason| reason != DisruptionReason::Underutilized || alone.is_worth_it();
        self.reasons.iter().filter(|one| one.is_open()).map(|one| one.reason).find(|&reason| is_enough(reason))
    }
}

/// One node of a scene.
pub(super) struct View<'v, 's> {
    pub(super) scene: &'v Scene<'s>,
    /// The same with the places closed to which its pods would not move.
    pub(super) target: &'v Scene<'s>,
    pub(super) candidates: &'v Candidates,
    /// The node as one that may go, if it is known what it was made from.
    pub(super) candidate: Option<Candidate>,
    pub(super) index: usize,
    pub(super) place: &'v Place,
    pub(super) now: Timestamp,
    pub(super) terms: Terms<'v, 's>,
}

impl View<'_, '_> {
    pub(super) fn outlook(&self, threshold: Threshold, is_drifted: bool) -> NodeOutlook {
        let Self { scene, place, .. } = self;
        let all = scene.snapshot.pods();
        let pods = place.pods.iter().filter_map(|key| scene.snapshot.pod_index(key));
        let moving: Vec<usize> = pods.filter(|&pod| all[pod].is_reschedulable()).collect();
        let guards = self.guards();
        let reason = |reason, applies| self.reason(reason, applies, &guards);
        NodeOutlook {
            name: place.name.clone(),
            pool: place.pool.clone(),
            labels: place.labels.clone(),
            price_per_hour: self.price(),
            reasons: [
                reason(DisruptionReason::Empty, moving.is_empty()),
                reason(DisruptionReason::Drifted, is_drifted),
                reason(DisruptionReason::Underutilized, !moving.is_empty()),
            ],
            alone: self.alone(&self.looking_for_places(&moving, is_drifted), threshold, is_drifted),
            pods: moving.iter().map(|&pod| all[pod].key()).collect(),
            guards,
        }
    }

    /// All that keeps the node, whether or not it may go for some reason.
    fn guards(&self) -> Vec<Guard> {
        let guards = |candidate: &Candidate| candidate.guards.clone();
        let may_go = self.candidates.all().iter().find(|candidate| candidate.place == self.index).map(guards);
        let kept = || self.candidates.kept().iter().find(|kept| kept.place == self.index);
        may_go.or_else(|| kept().map(|kept| kept.guards.clone())).unwrap_or_default()
    }

    fn price(&self) -> Option<Price> {
        price_of(self.place, self.scene.catalogs.get(self.place.pool.as_deref()?)?)
    }

    fn reason(&self, reason: DisruptionReason, applies: bool, guards: &[Guard]) -> ReasonOutlook {
        let snapshot = &self.scene.snapshot;
        let has_grace = self.has_termination_grace_period();
        let guards: Vec<Guard> =
            guards.iter().filter(|guard| guard.scope().covers(reason, has_grace)).cloned().collect();
        let pool = self.place.pool.as_deref().and_then(|pool| snapshot.pool(pool));
        let budget = pool.map(|pool| allowance::limit(snapshot, pool, reason, self.now));
        ReasonOutlook { reason, applies, guards, budget }
    }

    /// For which of its pods a place is sought. Of a drifted node with a termination grace period some stay until that is over.
    fn looking_for_places<'p>(&self, moving: &'p [usize], is_drifted: bool) -> Cow<'p, [usize]> {
        if is_drifted && self.has_termination_grace_period() {
            drained(self.scene, moving, self.now).into()
        } else {
            moving.into()
        }
    }

    fn has_termination_grace_period(&self) -> bool {
        let claim = self.place.node_claim.as_deref();
        claim.is_some_and(|claim| claim.spec.termination_grace_period.is_some())
    }

    /// What comes for the node, and where its pods go, which is not asked in static pools; `None` if such a pool makes no node
    /// now.
    fn plan(&self, moving: &[usize]) -> Option<Plan> {
        let Self { scene, target, place, .. } = self;
        let pool = place.pool.as_deref().and_then(|pool| scene.snapshot.pool(pool));
        let Some(pool) = pool.filter(|pool| pool.is_static()) else {
            return Some(target.plan_without(&BTreeSet::from([self.index]), moving.iter().copied(), Care::Best));
        };
        let has_room = static_drift::most_more(&scene.snapshot, pool) > 0;
        let claim = static_claim(pool, scene.catalogs.get(pool.name())?).filter(|_| has_room)?;
        Some(Plan::from_parts(vec![claim], BTreeMap::new(), BTreeMap::new()))
    }

    fn alone(&self, moving: &[usize], threshold: Threshold, is_drifted: bool) -> Option<Alone> {
        let Self { scene, place, .. } = self;
        if place.node_claim.is_none() || place.is_deleting || place.is_closed {
            return None;
        }
        let plan = self.plan(moving)?;
        let price = self.price().map(Price::dollars_per_hour);
        let pods = moving.iter().map(|&pod| scene.snapshot.pods()[pod].as_ref());
        let evictions = rescheduling_cost(pods) - NODE_COST;
        let savings_per_hour = price.map_or(0.0, |price| price - plan.hourly_cost().dollars_per_hour());
        let mut trial = Trial { plan, savings_per_hour };
        let candidate = self.candidate.as_ref();
        let has_choice = candidate.is_none_or(|candidate| self.terms.leave_choice(&[candidate], &trial));
        if let Some(candidate) = candidate.filter(|_| !is_drifted && savings_per_hour > 0.0) {
            trial = self.terms.settle(&[candidate], trial.clone()).unwrap_or(trial);
        }
        let savings_per_hour = price.map(|_| trial.savings_per_hour);
        let balance = candidate.and_then(|candidate| self.terms.balance.least(&[candidate], trial.savings_per_hour));
        Some(Alone {
            unplaced: trial.plan.unplaced,
            existing: trial.plan.existing,
            replacements: trial.plan.claims,
            savings_per_hour,
            has_choice,
            balance: balance.map(|(_, score)| score),
            threshold_per_hour: threshold.per_hour(evictions, price.unwrap_or(0.0)),
        })
    }
}
