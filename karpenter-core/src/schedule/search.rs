//! Which nodes to make.
//!
//! Existing room costs nothing and is used first. Then, pool by pool in tiers of equal weight, the search makes the
//! node whose pods are worth most for its price, as many times as there are pods for it, until no pod is left or no
//! node helps. What a pod is worth is what the cheapest node charges for the share that it takes of it.

use std::{borrow::Cow, collections::BTreeMap};

use fixedbitset::FixedBitSet;

use super::{
    amounts::{Amounts, take},
    candidate::Candidate,
    claim::{Choice, TypeLists},
    eligible::too_few_values,
    explain::Explainer,
    finish::State,
    limit::Limit,
    lot::Lot,
    occupancy::Occupancy,
    parallel,
    plan::{Plan, PlannedClaim},
    problem::{Problem, Tolerance, tolerance},
};
use crate::{
    Reason,
    api::{ObjectKey, Taint},
};

/// How much room stays empty on a node when the kube-scheduler is done, as a share of an average pod. With small shares
/// the search makes many small nodes, which pods fill badly.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stranding {
    pub(super) share: f64,
    /// How much of that counts on a node that rules ask for anyway.
    pub(super) forced: f64,
}

impl Stranding {
    /// Shares from 0.2 to 0.4 give plans of which the bills hardly differ.
    pub(super) const USUAL: Self = Self { share: 0.3, forced: 0.3 };

    /// What a node costs with what it strands, in dollars an hour. Where rules ask for many nodes anyway, it counts less that
    /// each strands some room.
    pub(super) fn cost(self, problem: &Problem<'_>, candidate: &Candidate, is_limited: bool) -> f64 {
        let stranded = self.share * if is_limited { self.forced } else { 1.0 };
        candidate.price + stranded * problem.mean_value
    }
}

/// The state of a search.
#[derive(Clone)]
pub(super) struct Search<'p, 'a> {
    pub(super) problem: &'p Problem<'a>,
    pub(super) stranding: Stranding,
    /// What a node may cost, in dollars an hour.
    most_price: f64,
    /// What a unit of each shape is worth where it fills a node.
    pub(super) worths: Cow<'p, [f64]>,
    /// How many units of each lot have no node yet; those that have one are the first of the lot.
    left: Vec<i64>,
    /// The lots of each shape of which units are left.
    pub(super) open: Vec<Vec<usize>>,
    pub(super) place_room: Vec<Amounts>,
    pub(super) occupancies: Vec<Occupancy>,
    /// What the limits of each pool leave.
    pub(super) limits_left: Vec<Vec<i64>>,
    /// The same as Karpenter counts it, in a search by its order: what this leaves no node for is kept away by a limit.
    pub(super) limits_as_counted: Option<Vec<Vec<i64>>>,
    /// What is left of each reservation.
    pub(super) reservations_left: Vec<i64>,
    /// The lots that get room in each place, and how many units of them.
    pub(super) on_places: Vec<Vec<(usize, i64)>>,
    /// The nodes to make.
    pub(super) batches: Vec<Batch<'p>>,
    /// Of these lots each node that is made has a unit, if there are any.
    pub(super) hosts: Option<FixedBitSet>,
    /// These lots fill a node before the others, whatever they are worth for their share.
    pub(super) ahead: Option<FixedBitSet>,
}

/// Nodes to make that are all alike.
#[derive(Clone, Debug)]
pub(super) struct Batch<'p> {
    pub(super) candidate: &'p Candidate,
    /// The pods of each.
    pub(super) guests: Vec<Seats>,
    /// The room that each must have, even where its pods need less: others may come in their place.
    pub(super) floor: Amounts,
    /// Whether each must be where its offering is, even where its pods may be elsewhere, for the same reason, as long as that leaves
    /// enough types to choose from.
    pub(super) is_pinned: bool,
    /// How many nodes.
    pub(super) count: i64,
}

/// The pods that one node takes.
#[derive(Clone, Debug, Default)]
pub(super) struct Fill {
    pub(super) guests: Vec<Seats>,
    pub(super) value: f64,
}

impl Fill {
    /// How many units there are in all.
    pub(super) fn count(&self) -> i64 {
        unit_count(&self.guests)
    }
}

/// Units of one lot on one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seats {
    pub(super) lot: usize,
    /// The index of the alternative of their constraint that the node meets.
    pub(super) alternative: usize,
    /// How many units.
    pub(super) count: i64,
}

/// A part of a search.
pub(super) struct Stage<'p> {
    /// How willingly pods go.
    pub(super) tolerance: Tolerance,
    /// The candidates of one weight.
    pub(super) tier: Vec<&'p Candidate>,
    /// Whether the room that there is is used before.
    uses_places: bool,
}

/// By how much more units are worth that come first: more than prices differ.
const FIRST: f64 = 1e6;

impl<'p, 'a> Search<'p, 'a> {
    pub(super) fn new(problem: &'p Problem<'a>, stranding: Stranding) -> Self {
        let base = &problem.base;
        Self {
            problem,
            stranding,
            most_price: f64::INFINITY,
            worths: Cow::Borrowed(&problem.values),
            left: problem.lots.list.iter().map(|lot| i64::try_from(lot.units()).unwrap_or(i64::MAX)).collect(),
            open: problem.lots.of_shapes.clone(),
            place_room: base.places.iter().map(|p| p.room.clone()).collect(),
            occupancies: base.places.iter().map(|p| p.occupancy.clone()).collect(),
            limits_left: base.pools.iter().map(|p| p.limits.iter().map(Limit::left).collect()).collect(),
            limits_as_counted: None,
            reservations_left: base.reservations.left.values().copied().collect(),
            on_places: vec![Vec::new(); base.places.len()],
            batches: Vec::new(),
            hosts: None,
            ahead: None,
        }
    }

    /// The same search, in which the units that need the most nodes, because they may not share one with their like, are worth
    /// the cheapest node that takes one. These nodes come first then, and others use what is left of them.
    pub(super) fn for_loners(mut self) -> Self {
        let lots = &self.problem.lots;
        let most = lots.shapes.iter().map(|shape| shape.spread_class).max().unwrap_or(0);
        let cheapest = self.problem.cheapest_nodes(&self.problem.candidates);
        for ((worth, price), shape) in self.worths.to_mut().iter_mut().zip(cheapest).zip(&lots.shapes) {
            if shape.spread_class == most && most > 0 && price.is_finite() {
                *worth = price;
            }
        }
        self
    }

    /// The same search, in which the units that come first are worth so much that their nodes come before all others, which use
    /// what is left of them.
    pub(super) fn for_first(mut self) -> Self {
        let lots = &self.problem.lots;
        for (shape, of_shape) in lots.of_shapes.iter().enumerate() {
            if of_shape.iter().any(|&lot| self.problem.is_first(&lots.list[lot])) {
                self.worths.to_mut()[shape] *= FIRST;
            }
        }
        self
    }

    /// The same search, in which no node is dearer.
    pub(super) fn up_to(self, most_price: f64) -> Self {
        Self { most_price, ..self }
    }

    /// Plans what can be planned.
    pub(super) fn run(mut self) -> Self {
        self.go_through(&self.stages());
        self
    }

    /// Uses the room that there is, and makes the best node time after time. What is left then, because limits leave no other, goes
    /// to new nodes that it was to avoid.
    pub(super) fn go_through(&mut self, stages: &[Stage<'p>]) {
        for stage in stages {
            self.begin(stage);
            self.make_nodes(&stage.tier, stage.tolerance);
        }
        if self.problem.base.has_taints_to_avoid() {
            self.join_nodes();
        }
    }

    /// Plans what can be planned, those first that only lighter pools take: what is left of their nodes is for others, so
    /// that fewer nodes of heavier pools are needed. `None` if heavier pools take all.
    pub(super) fn run_from_lightest(mut self) -> Option<Self> {
        let (stages, tiers) = (self.stages(), self.tiers_with_hosts());
        if tiers.is_empty() {
            return None;
        }
        self.begin(&stages[0]);
        self.make_nodes_for_hosts(tiers);
        self.go_through(&stages);
        Some(self)
    }

    /// Makes nodes of some candidates, each for a host and for others beside it.
    pub(super) fn make_nodes_for_hosts(&mut self, tiers: Vec<(Vec<&'p Candidate>, FixedBitSet)>) {
        for (tier, hosts) in tiers {
            self.hosts = Some(hosts);
            self.make_nodes(&tier, Tolerance::Full);
        }
        self.hosts = None;
    }

    /// The candidates of each weight but the heaviest, the lightest first, with the lots that none of the heavier ones takes. None if
    /// the heaviest take all.
    pub(super) fn tiers_with_hosts(&self) -> Vec<(Vec<&'p Candidate>, FixedBitSet)> {
        let mut taken = FixedBitSet::with_capacity(self.problem.lots.list.len());
        let mut out = Vec::new();
        for tier in self.tiers() {
            let mut hosts = self.taken_by(&tier);
            hosts.difference_with(&taken);
            taken.union_with(&hosts);
            out.push((tier, hosts));
        }
        out.reverse();
        out.pop();
        if out.iter().all(|(_, hosts)| hosts.is_clear()) { Vec::new() } else { out }
    }

    /// The lots that some candidates take.
    fn taken_by(&self, candidates: &[&Candidate]) -> FixedBitSet {
        let lots = &self.problem.lots;
        let mut taken = FixedBitSet::with_capacity(lots.list.len());
        for guest in candidates.iter().flat_map(|candidate| &candidate.guests) {
            taken.extend(lots.of_shapes[guest.shape()].iter().copied());
        }
        taken
    }

    /// Makes nodes for what is left, those of the heaviest pools first.
    pub(super) fn make_all_nodes(&mut self, tolerance: Tolerance) {
        for tier in self.tiers() {
            self.make_nodes(&tier, tolerance);
        }
    }

    /// What a node costs with what it strands, in dollars an hour.
    pub(super) fn stranded_cost(&self, candidate: &Candidate, is_limited: bool) -> f64 {
        self.stranding.cost(self.problem, candidate, is_limited)
    }

    /// Leaves out all units on which others may depend, or which may depend on others, because not all of them have a node.
    pub(super) fn drop_tentative(&mut self) {
        let lots = &self.problem.lots;
        let is_tentative: Vec<bool> = lots.list.iter().map(|lot| lots.is_tentative(lot)).collect();
        for batch in &mut self.batches {
            batch.guests.retain(|seats| !is_tentative[seats.lot]);
            batch.floor = self.problem.total(&batch.guests);
        }
        self.batches.retain(|batch| !batch.guests.is_empty());
        for lots in &mut self.on_places {
            lots.retain(|(lot, _)| !is_tentative[*lot]);
        }
        for (lot, left) in self.left.iter_mut().enumerate().filter(|(lot, _)| is_tentative[*lot]) {
            *left = i64::try_from(lots.list[lot].units()).unwrap_or(i64::MAX);
        }
    }

    /// The parts of a search, in order.
    pub(super) fn stages(&self) -> Vec<Stage<'p>> {
        let mut tiers = self.tiers();
        if tiers.is_empty() {
            tiers.push(Vec::new());
        }
        let stages = |tolerance| {
            let tiers = tiers.iter().enumerate();
            tiers.map(move |(index, tier)| Stage { tolerance, tier: tier.clone(), uses_places: index == 0 })
        };
        self.tolerances().flat_map(stages).collect()
    }

    /// Uses the room that there is, where it comes before the nodes of a stage.
    pub(super) fn begin(&mut self, stage: &Stage<'p>) {
        if stage.uses_places {
            self.use_places(if self.problem.course.spills { Tolerance::Reluctant } else { stage.tolerance });
            if stage.tolerance == Tolerance::Full {
                self.rearrange_places();
            }
        }
    }

    /// How willingly pods go where they go, one after the other: taints that only ask to be avoided are obeyed as long as there
    /// is any other way.
    pub(super) fn tolerances(&self) -> impl Iterator<Item = Tolerance> + use<> {
        let count = if self.problem.base.has_taints_to_avoid() { 2 } else { 1 };
        [Tolerance::Full, Tolerance::Reluctant].into_iter().take(count)
    }

    /// How many units go where a taint asks to be avoided by them.
    pub(super) fn reluctant_units(&self) -> i64 {
        let problem = self.problem;
        if !problem.base.has_taints_to_avoid() {
            return 0;
        }
        let is_reluctant = |lot: usize, taints: &[Taint]| {
            tolerance(&problem.lots.constraints[problem.lot(lot).constraint], taints) == Some(Tolerance::Reluctant)
        };
        let places = problem.base.places.iter().zip(&self.on_places);
        let on_places =
            places.flat_map(|(place, lots)| lots.iter().map(move |&(lot, count)| (lot, count, &*place.source.taints)));
        let made = self.batches.iter().flat_map(|batch| {
            let taints = problem.base.pools[batch.candidate.pool].taints();
            batch.guests.iter().map(move |seats| (seats.lot, seats.count * batch.count, taints))
        });
        on_places.chain(made).filter(|&(lot, _, taints)| is_reluctant(lot, taints)).map(|(_, count, _)| count).sum()
    }

    /// How many units of each lot are planned.
    pub(super) fn planned(&self) -> Vec<usize> {
        self.problem.lots.list.iter().zip(&self.left).map(|(lot, &left)| lot.units() - number(left)).collect()
    }

    /// The plan, with the reasons for what is left.
    pub(super) fn into_plan(self) -> Plan {
        let base = &self.problem.base;
        let mut next = vec![0; self.left.len()];
        let mut existing: BTreeMap<String, Vec<ObjectKey>> = BTreeMap::new();
        for (place, lots) in base.places.iter().zip(&self.on_places).filter(|(_, lots)| !lots.is_empty()) {
            let pods = existing.entry(place.source.name.clone()).or_default();
            for &(lot, count) in lots {
                pods.extend(self.pods(&mut next, lot, count));
            }
            pods.sort();
        }
        let mut claims: Vec<PlannedClaim> = Vec::new();
        let alike: Vec<&[Batch<'_>]> = self.batches.chunk_by(Batch::is_like).collect();
        let choices = parallel::map(&alike, |batches| Choice::new(self.problem, &batches[0]));
        let mut lists = TypeLists::default();
        for (batches, choice) in alike.into_iter().zip(choices) {
            let alike = choice.into_claim(self.problem, &batches[0], &mut lists);
            for batch in batches {
                for _ in 0..batch.count {
                    let mut claim = alike.clone();
                    for seats in &batch.guests {
                        claim.pods.extend(self.pods(&mut next, seats.lot, seats.count));
                    }
                    claim.pods.sort();
                    claims.push(claim);
                }
            }
        }
        let is_complete = !self.problem.is_stopped();
        let unplaced = self.unplaced(is_complete);
        Plan { claims, existing, unplaced, warnings: base.warnings.clone(), is_complete, closes_domains: false }
    }

    /// The next pods of a lot, and where those after them begin.
    fn pods(&self, next: &mut [usize], lot: usize, count: i64) -> impl Iterator<Item = ObjectKey> {
        let Lot { pods, unit_size, .. } = self.problem.lot(lot);
        let from = next[lot];
        next[lot] += number(count);
        let all = self.problem.base.snapshot.pods();
        pods[from * unit_size..next[lot] * unit_size].iter().map(|&pod| all[pod].key())
    }

    /// The pods that are left, and why; of a search that was stopped nobody knows.
    fn unplaced(&self, is_complete: bool) -> BTreeMap<ObjectKey, Reason> {
        let mut out = self.problem.base.classes.refused.clone();
        let mut explainer = Explainer::new(self);
        let all = self.problem.base.snapshot.pods();
        let mut add = |pods: &[usize], reason: Reason| {
            out.extend(pods.iter().map(|&pod| (all[pod].key(), reason.clone())));
        };
        for (lot, planned) in self.planned().into_iter().enumerate() {
            let Lot { pods, unit_size, .. } = self.problem.lot(lot);
            if planned * unit_size < pods.len() {
                add(&pods[planned * unit_size..], if is_complete { explainer.no_place(lot) } else { Reason::Stopped });
            }
        }
        for (lot, pods, obstacle) in &self.problem.lots.blocked {
            let by_nodes = || if is_complete { explainer.no_place(*lot) } else { Reason::Stopped };
            add(pods, obstacle.clone().map_or_else(by_nodes, Reason::Topology));
        }
        out
    }

    /// Whether the pods go to the same places and nodes as in another search.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        let is_same = |(a, b): (&Batch<'_>, &Batch<'_>)| a.count == b.count && a.is_like(b);
        let mut batches = self.batches.iter().zip(&other.batches);
        self.on_places == other.on_places && self.batches.len() == other.batches.len() && batches.all(is_same)
    }

    pub(super) fn remaining(&self, lot: usize) -> i64 {
        self.left[lot]
    }

    /// The candidates of each weight, the heaviest first.
    pub(super) fn tiers(&self) -> Vec<Vec<&'p Candidate>> {
        let mut tiers: Vec<(u32, Vec<&Candidate>)> = Vec::new();
        for candidate in self.problem.candidates.iter().filter(|candidate| candidate.price <= self.most_price) {
            let weight = self.problem.weight(candidate);
            match tiers.last_mut() {
                Some((last, tier)) if *last == weight => tier.push(candidate),
                _ => tiers.push((weight, vec![candidate])),
            }
        }
        tiers.into_iter().map(|(_, tier)| tier).collect()
    }

    /// Makes one node of a batch a batch of its own, which is no longer among the others.
    pub(super) fn split_off(&mut self, index: usize) -> Batch<'p> {
        let node = Batch { count: 1, ..self.batches[index].clone() };
        self.batches[index].count -= 1;
        if self.batches[index].count == 0 {
            self.batches.remove(index);
        }
        node
    }

    /// Makes planned units of a lot units that are left.
    pub(super) fn take_back(&mut self, lot: usize, count: i64) {
        self.left[lot] += count;
        let open = &mut self.open[self.problem.lot(lot).shape];
        if let Err(index) = open.binary_search(&lot) {
            open.insert(index, lot);
        }
    }

    /// Makes units of a lot planned units.
    pub(super) fn use_up(&mut self, lot: usize, count: i64) {
        self.left[lot] -= count;
        if self.left[lot] == 0 {
            let open = &mut self.open[self.problem.lot(lot).shape];
            if let Ok(index) = open.binary_search(&lot) {
                open.remove(index);
            }
        }
    }

    pub(super) fn state(&self) -> State {
        State {
            left: self.left.clone(),
            limits_left: self.limits_left.clone(),
            reservations_left: self.reservations_left.clone(),
            batch_count: self.batches.len(),
        }
    }

    pub(super) fn go_back(&mut self, state: State) {
        let State { left, limits_left, reservations_left, batch_count } = state;
        for (lot, count) in left.into_iter().enumerate() {
            self.take_back(lot, count - self.left[lot]);
        }
        self.open.iter_mut().for_each(|open| open.retain(|&lot| self.left[lot] > 0));
        self.limits_left = limits_left;
        self.reservations_left = reservations_left;
        self.batches.truncate(batch_count);
    }

    /// As many of these pods as leave the claim enough distinct values of the labels for which its pool asks them.
    pub(super) fn within_min_values(&self, candidate: &Candidate, guests: &[Seats], mut seats: Seats) -> Option<Seats> {
        if !self.problem.base.pools[candidate.pool].has_min_values() {
            return Some(seats);
        }
        let is_enough = |count: i64| {
            let all: Vec<Seats> = guests.iter().copied().chain([Seats { count, ..seats }]).collect();
            too_few_values(self.problem, candidate, &all).is_none()
        };
        if is_enough(seats.count) {
            return Some(seats);
        }
        // The more pods, the fewer types are large enough for them.
        let (mut fits, mut too_many) = (0, seats.count);
        while too_many - fits > 1 {
            let middle = fits + (too_many - fits) / 2;
            *(if is_enough(middle) { &mut fits } else { &mut too_many }) = middle;
        }
        seats.count = fits;
        (fits > 0).then_some(seats)
    }

    pub(super) fn is_to_be_had(&self, candidate: &Candidate) -> bool {
        let is_left = |reservation: usize| self.reservations_left[reservation] > 0;
        candidate.reservation.is_none_or(is_left) && candidate.is_within(&self.limits_left[candidate.pool])
    }

    /// Whether some limit of a pool leaves no room for a node of the largest type.
    pub(super) fn is_near_limits(&self, pool: usize) -> bool {
        let limits = self.problem.base.pools[pool].limits.iter();
        limits.zip(&self.limits_left[pool]).any(|(limit, left)| limit.largest > *left)
    }

    /// Makes as many nodes of a candidate as there are pods and limits for, but no more than `most`, and says how many.
    pub(super) fn make(&mut self, candidate: &'p Candidate, guests: &[Seats], most: i64) -> i64 {
        let by_pods = guests.iter().map(|seats| self.remaining(seats.lot) / seats.count).min().unwrap_or(0).min(most);
        let left = &self.limits_left[candidate.pool];
        let by_limits =
            candidate.ceiling.iter().zip(left).filter(|(size, _)| **size > 0).map(|(size, left)| left / size);
        let by_reservation = candidate.reservation.map(|reservation| self.reservations_left[reservation]);
        let count = by_limits.min().unwrap_or(i64::MAX).min(by_pods).min(by_reservation.unwrap_or(i64::MAX));
        // Nodes that exist may have more than limits allow.
        if count <= 0 {
            return 0;
        }
        if let Some(reservation) = candidate.reservation {
            self.reservations_left[reservation] -= count;
        }
        take(&mut self.limits_left[candidate.pool], &candidate.ceiling, count);
        for seats in guests {
            self.use_up(seats.lot, seats.count * count);
        }
        let floor = self.problem.total(guests);
        self.batches.push(Batch { candidate, guests: guests.to_vec(), floor, is_pinned: false, count });
        count
    }

    /// Takes one node of a batch out of the plan; its pods are left.
    pub(super) fn unmake(&mut self, index: usize) -> Batch<'p> {
        let node = self.split_off(index);
        take(&mut self.limits_left[node.candidate.pool], &node.candidate.ceiling, -1);
        if let Some(reservation) = node.candidate.reservation {
            self.reservations_left[reservation] += 1;
        }
        for seats in &node.guests {
            self.take_back(seats.lot, seats.count);
        }
        node
    }
}

impl Batch<'_> {
    /// Whether the nodes are no other than those of another batch.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        std::ptr::eq(self.candidate, other.candidate)
            && (&self.guests, &self.floor, self.is_pinned) == (&other.guests, &other.floor, other.is_pinned)
    }

    pub(super) fn node_count(&self) -> usize {
        number(self.count)
    }

    /// Whether each node has units of a lot.
    pub(super) fn has(&self, lot: usize) -> bool {
        self.guests.iter().any(|seats| seats.lot == lot)
    }

    /// The lot of each unit of a node.
    pub(super) fn units(&self) -> impl Iterator<Item = usize> {
        self.guests.iter().flat_map(|seats| (0..seats.count).map(|_| seats.lot))
    }

    /// How many units each node has.
    pub(super) fn unit_count(&self) -> i64 {
        unit_count(&self.guests)
    }
}

fn unit_count(guests: &[Seats]) -> i64 {
    guests.iter().map(|seats| seats.count).sum()
}

/// Adds units of a lot to those that there are.
pub(super) fn add_units(units: &mut Vec<(usize, i64)>, lot: usize, count: i64) {
    match units.iter_mut().find(|(there, _)| *there == lot) {
        Some((_, before)) => *before += count,
        None => units.push((lot, count)),
    }
}

/// Takes one unit of a lot from those of a node.
pub(super) fn remove_one(guests: &mut Vec<Seats>, lot: usize) {
    guests.iter_mut().filter(|seats| seats.lot == lot).for_each(|seats| seats.count -= 1);
    guests.retain(|seats| seats.count > 0);
}

pub(super) fn number(count: i64) -> usize {
    usize::try_from(count).expect("a count is not negative")
}
