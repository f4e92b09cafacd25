//! Which nodes may go, and what keeps the others.

use std::collections::BTreeSet;

use super::{
    EvictionLimits, Guard,
    roster::Roster,
    survey::{Survey, is_leaving},
};
use crate::{
    Catalogs, Price, Snapshot, Timestamp,
    api::{DisruptionReason, NodePool},
    labels,
};

/// A node that may go, for one reason at least.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Candidate {
    /// The index of its place among [`Snapshot::places`].
    pub place: usize,
    /// The name of the node.
    pub name: String,
    /// The name of the claim.
    pub claim: String,
    /// The name of the pool.
    pub pool: String,
    /// The instance type, by its label.
    pub instance_type: Option<String>,
    /// The zone, by its label.
    pub zone: Option<String>,
    /// The capacity type, by its label.
    pub capacity_type: Option<String>,
    /// The pods that need another place if it goes, by their indices among [`Snapshot::pods`], in order.
    pub pods: Vec<usize>,
    /// What it costs now; `None` if nobody knows.
    pub price_per_hour: Option<Price>,
    /// What moving its pods costs: [`NODE_COST`](super::NODE_COST), and the [`eviction_cost`](super::eviction_cost) of those that cost
    /// more than nothing.
    pub rescheduling_cost: f64,
    /// What disturbing it costs: the [`eviction_cost`](super::eviction_cost) of all its pods, times the part of its life that is left.
    pub disruption_cost: f64,
    /// Whether its claim bounds how long pods may take to leave, so that it may go for drift whatever they say.
    pub has_termination_grace_period: bool,
    /// What keeps it from going for some reasons.
    pub guards: Vec<Guard>,
}

impl Candidate {
    /// Whether it may go for this reason.
    pub fn allows(&self, reason: DisruptionReason) -> bool {
        self.guards_against(reason).next().is_none()
    }

    /// What keeps it from going for this reason.
    pub fn guards_against(&self, reason: DisruptionReason) -> impl Iterator<Item = &Guard> {
        let has_grace = self.has_termination_grace_period;
        self.guards.iter().filter(move |guard| guard.scope().covers(reason, has_grace))
    }

    /// For which reason it would go to save money: because it is empty if it has no pods to move, otherwise because they have
    /// a cheaper place.
    pub const fn saving_reason(&self) -> DisruptionReason {
        if self.pods.is_empty() { DisruptionReason::Empty } else { DisruptionReason::Underutilized }
    }

    pub(super) fn is_spot(&self) -> bool {
        self.capacity_type.as_deref() == Some(labels::SPOT)
    }

    /// What it costs now; nothing if nobody knows.
    pub(super) fn dollars_per_hour(&self) -> f64 {
        self.price_per_hour.map_or(0.0, Price::dollars_per_hour)
    }
}

/// A place that may not go for any reason.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Kept {
    /// The index of the place among [`Snapshot::places`].
    pub place: usize,
    /// The name of the node, or of the claim while it has none.
    pub name: String,
    /// What keeps it.
    pub guards: Vec<Guard>,
}

/// The places of a snapshot, sorted into those that may go and those that may not.
///
/// ```
/// use karpenter_core::{Catalogs, Snapshot, Timestamp, api::Node, disrupt::Candidates};
///
/// let mut node = Node::default();
/// node.metadata.name = "by-hand".to_owned();
/// let snapshot = Snapshot::builder().node(node).build()?;
///
/// let candidates = Candidates::of(&snapshot, &Catalogs::new(), Timestamp::from_millis(0));
/// assert!(candidates.all().is_empty());
/// assert_eq!(candidates.kept()[0].guards[0].to_string(), "no NodeClaim stands behind it");
/// # Ok::<(), karpenter_core::SnapshotError>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Candidates {
    all: Vec<Candidate>,
    kept: Vec<Kept>,
    limits: EvictionLimits,
}

impl Candidates {
    /// Looks at all places of a snapshot, as things stand `now`.
    pub fn of(snapshot: &Snapshot, catalogs: &Catalogs, now: Timestamp) -> Self {
        Self::by(&Roster::of(snapshot), snapshot, catalogs, now)
    }

    /// The same, where the traits of the pods of the snapshot are known.
    pub(crate) fn by(roster: &Roster, snapshot: &Snapshot, catalogs: &Catalogs, now: Timestamp) -> Self {
        debug_assert!(roster.is_of(snapshot), "the traits of these pods");
        let limits = EvictionLimits::by(roster, snapshot);
        let (mut all, mut kept) = (Vec::new(), Vec::new());
        let leaving = leaving(snapshot);
        let survey = Survey::new(snapshot, catalogs, roster.traits(), &limits, &leaving, now);
        for (index, place) in snapshot.places().iter().enumerate() {
            match survey.look_at(index, place) {
                Ok(candidate) => all.push(candidate),
                Err(guards) => kept.push(Kept { place: index, name: place.name.clone(), guards }),
            }
        }
        Self { all, kept, limits }
    }

    /// The node at a place of the same snapshot, by index, whatever keeps it and without the guards that say so; `None` if it is
    /// not known what it was made from.
    pub(super) fn regardless(
        &self,
        roster: &Roster,
        snapshot: &Snapshot,
        catalogs: &Catalogs,
        now: Timestamp,
        index: usize,
    ) -> Option<Candidate> {
        let leaving = leaving(snapshot);
        let survey = Survey::new(snapshot, catalogs, roster.traits(), &self.limits, &leaving, now);
        survey.regardless(index, &snapshot.places()[index])
    }

    /// Leaves out the nodes of some pools that have pods to move, or of which the pool must have as many as there are.
    pub(super) fn rest(&mut self, snapshot: &Snapshot, pools: &BTreeSet<String>) {
        let is_static = |pool: &str| snapshot.pool(pool).is_some_and(NodePool::is_static);
        self.all.retain(|node| !pools.contains(&node.pool) || node.pods.is_empty() && !is_static(&node.pool));
    }

    /// The nodes that may go for one reason at least, in the order of their names.
    pub fn all(&self) -> &[Candidate] {
        &self.all
    }

    /// The nodes that may go for this reason, in the order of their names.
    pub fn for_reason(&self, reason: DisruptionReason) -> impl Iterator<Item = &Candidate> {
        self.all.iter().filter(move |candidate| candidate.allows(reason))
    }

    /// The places that may not go for any reason, in the order of their names.
    pub fn kept(&self) -> &[Kept] {
        &self.kept
    }
}

/// The names of the places that are on their way out.
fn leaving(snapshot: &Snapshot) -> BTreeSet<&str> {
    snapshot.places().iter().filter(|place| is_leaving(place)).map(|place| place.name.as_str()).collect()
}
