//! Nodes beyond those that would do if pods went where they are planned.

use std::sync::Arc;

use ordered_float::OrderedFloat;

use super::{
    amounts::raise,
    cost::amount,
    landing::{Ground, Units},
    parallel,
    problem::{Aim, Base, Tolerance},
    search::{Batch, Search, remove_one},
};
use crate::{cluster::Place, labels};

/// In so many orders in a row must all pods find nodes.
const CALM_TURNS: usize = 10;
/// In so many if an earlier plan left pods: of many tries to make their nodes cheaper, some will do by chance.
const CALM_TURNS_OF_LEFTOVERS: usize = 12;
/// How many orders are tried at most for each of these.
const TRIES: usize = 4;
/// The most pairs of pods and nodes that are looked at in all orders together: some hundredths of a second.
const MAX_PAIRS: usize = 8_000_000;

/// In which orders pods come to find out how many are left: in even turns all nodes are ready at once.
const LATE_TURNS: [u64; 2] = [0, 2];

/// What share of the pods that the first order leaves another one is taken to leave again, although there are nodes for these.
/// Where that is too dear, no other order is tried.
const LEFT_AGAIN: f64 = 0.3;

/// What nodes for pods that are left in the end cost, as a share of what the pods are worth: few pods fill nodes badly.
const LATE_SHARE: f64 = 1.6;

/// A search with what all nodes are likely to cost in the end, in dollars an hour.
pub(super) struct Braced<'p, 'a> {
    pub(super) search: Search<'p, 'a>,
    pub(super) bill: f64,
    /// Whether pods that an earlier plan left are likely to wait once more.
    waits: bool,
}

impl Braced<'_, '_> {
    /// The cheaper of two, if as few pods wait; the first of equals.
    pub(super) fn better(self, other: Self) -> Self {
        if (other.waits, OrderedFloat(other.bill)) < (self.waits, OrderedFloat(self.bill)) { other } else { self }
    }
}

impl<'p, 'a> Search<'p, 'a> {
    /// Whether the model of binding tells anything, in the time that it may take.
    pub(super) fn can_land(&self) -> bool {
        self.problem.course.aim == Aim::Bill
            && amount(self.problem.base.options.slack) > 0.0
            && !self.batches.is_empty()
            && self.affordable_turns() >= CALM_TURNS
    }

    fn affordable_turns(&self) -> usize {
        MAX_PAIRS / self.landing_pairs().max(1)
    }

    /// Adds nodes until the kube-scheduler is likely to find one for each pod, unless they cost more than those of a further
    /// plan, which knows better which pods are left. What is added does not make them dearer than the ceiling.
    pub(super) fn brace(self, ceiling: Option<f64>) -> Braced<'p, 'a> {
        if !self.can_land() {
            return Braced { bill: self.bill(), search: self, waits: false };
        }
        let has_leftovers = self.problem.base.has_leftovers;
        let most = ceiling.map_or(f64::INFINITY, |ceiling| ceiling.max(self.bill())).min(self.most_to_spend());
        let ground = Ground::new(&self);
        let left = parallel::map(&LATE_TURNS, |&turn| ground.land(turn));
        let worth: f64 = left.iter().map(|left| self.worth(left)).sum::<f64>() / left.len() as f64;
        // What all nodes are likely to cost if a further plan makes those for the pods that find none.
        let late = self.bill() + LATE_SHARE * worth;
        if late <= self.bill() && !has_leftovers {
            return Braced { bill: late, search: self, waits: false };
        }
        match self.braced(ground, left.into_iter().next(), if has_leftovers { most } else { most.min(late) }) {
            Some(braced) => Braced { bill: braced.bill(), search: braced, waits: false },
            None => Braced { bill: late, search: self, waits: has_leftovers },
        }
    }

    /// What units are worth together, in dollars an hour.
    pub(super) fn worth(&self, units: &Units) -> f64 {
        units.iter().map(|(&lot, &count)| self.problem.value(lot) * count as f64).sum()
    }

    /// The same with nodes for all pods that the kube-scheduler leaves in so many orders; `None` if they cost too much. What it
    /// leaves in the first order is known.
    fn braced(&self, mut ground: Ground<'p, 'a>, mut first: Option<Units>, most: f64) -> Option<Self> {
        let has_leftovers = self.problem.base.has_leftovers;
        let calm_turns = if has_leftovers { CALM_TURNS_OF_LEFTOVERS } else { CALM_TURNS };
        let max_turns = self.affordable_turns().min(TRIES * calm_turns);
        let mut braced = self.clone();
        let mut calm = 0;
        for turn in (0..max_turns).take_while(|_| !self.problem.is_stopped()) {
            let left = first.take().unwrap_or_else(|| ground.land(turn as u64));
            if left.is_empty() {
                calm += 1;
                if calm == calm_turns {
                    break;
                }
                continue;
            }
            calm = 0;
            if braced.bill() + self.worth(&left) > most || !braced.make_nodes_for(&left) {
                return None;
            }
            let next = if turn == 0 && !has_leftovers { LEFT_AGAIN * self.worth(&left) } else { 0.0 };
            if braced.bill() + next > most {
                return None;
            }
            ground = Ground::new(&braced);
        }
        Some(if has_leftovers { braced.trimmed(calm_turns).reworked(calm_turns) } else { braced })
    }

    /// Makes nodes for units that find none where they are planned. Says whether all have one now.
    ///
    /// The units move to the new nodes, and the nodes that they leave keep their place and the room for them. Where a node
    /// would be left without pods another like it is made.
    pub(super) fn make_nodes_for(&mut self, left: &Units) -> bool {
        let before = self.planned();
        for (&lot, &count) in left {
            for _ in 0..count {
                if !self.take_off(lot) && !self.double(lot) {
                    return false;
                }
            }
        }
        self.make_all_nodes(Tolerance::Full);
        self.planned().iter().zip(&before).all(|(now, before)| now >= before)
    }

    /// Makes a planned unit of a lot a unit that is left, if its node keeps others.
    fn take_off(&mut self, lot: usize) -> bool {
        let keeps_others = |batch: &Batch<'_>| batch.has(lot) && batch.unit_count() > 1;
        if let Some(index) = self.batches.iter().rposition(keeps_others) {
            let mut node = self.split_off(index);
            remove_one(&mut node.guests, lot);
            node.is_pinned = true;
            self.batches.push(node);
        } else if let Some(lots) = self.on_places.iter_mut().find(|lots| lots.iter().any(|(there, _)| *there == lot)) {
            lots.iter_mut().filter(|(there, _)| *there == lot).for_each(|(_, count)| *count -= 1);
            lots.retain(|(_, count)| *count > 0);
        } else {
            return false;
        }
        self.take_back(lot, 1);
        true
    }

    /// Makes a further node of the kind that has nothing but a unit of a lot, with a pod that can be spared elsewhere.
    fn double(&mut self, lot: usize) -> bool {
        let Some(batch) = self.batches.iter().rfind(|batch| batch.has(lot)).cloned() else { return false };
        if !self.is_to_be_had(batch.candidate) {
            return false;
        }
        for guest in batch.candidate.guests.iter().filter(|guest| guest.tolerance == Tolerance::Full) {
            for &other in &self.problem.lots.of_shapes[guest.shape()] {
                if self.take_off(other) && self.make(batch.candidate, &[guest.seats(other, 1)], 1) > 0 {
                    let made = self.batches.last_mut().expect("it was just made");
                    raise(&mut made.floor, &batch.floor);
                    made.is_pinned = true;
                    return true;
                }
            }
        }
        false
    }

    /// What the planned nodes may cost at most, further ones included.
    pub(super) fn most_to_spend(&self) -> f64 {
        self.with_slack(self.bill())
    }

    /// What nodes of so high a bill and those beyond them may cost, in dollars an hour.
    pub(super) fn with_slack(&self, bill: f64) -> f64 {
        bill + amount(self.problem.base.options.slack) * (bill + self.bill_of_places())
    }

    /// What the planned nodes cost, in dollars an hour.
    pub(super) fn bill(&self) -> f64 {
        self.batches.iter().map(|batch| batch.candidate.price * batch.count as f64).sum()
    }

    fn bill_of_places(&self) -> f64 {
        let base = &self.problem.base;
        *base.bill_of_places.get(&(), |()| (), || Arc::new(base.bill_of_places()))
    }
}

impl Base<'_> {
    /// What the nodes that there are cost, as far as catalogs tell, in dollars an hour.
    fn bill_of_places(&self) -> f64 {
        let price = |place: &Place| {
            let pool = self.pools.iter().find(|pool| pool.is_of(&place.labels))?;
            pool.price_of(pool.type_named(place.labels.get(labels::INSTANCE_TYPE)?)?, &place.labels)
        };
        let places = self.snapshot.places();
        match &self.shelf {
            Some(kept) => {
                let pools = self.pools.iter().map(|pool| pool.compiled.clone()).collect();
                kept.prices(pools, places, price).into_iter().flatten().sum()
            }
            None => places.iter().filter_map(|place| price(place)).sum(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Catalogs, InstanceType, Planner, Price, Quantity, Requirement, Snapshot,
        api::{NodePool, Pod},
        schedule::search::Stranding,
    };

    #[test]
    fn a_node_that_a_pod_leaves_stays_in_its_zone() {
        let price = |dollars| Price::per_hour(dollars).expect("not below zero");
        let capacity = [("cpu", Quantity::from_units(4)), ("pods", Quantity::from_units(110))];
        let machine = InstanceType::named("machine", capacity);
        let machine = machine.offering("on-demand", "a", price(0.1)).offering("on-demand", "b", price(0.2));
        let in_b = Pod::named("in-b").cpu("2").node_selector(labels::ZONE, "b");
        let anywhere = Pod::named("anywhere").cpu("1");
        let builder = Snapshot::builder().pool(NodePool::named("general")).pods(in_b).pods(anywhere);
        let snapshot = builder.build().expect("valid");
        let catalogs = Catalogs::shared(vec![machine], snapshot.pools()).expect("valid");
        let planner = Planner::default();
        let problem = planner.prepare(&snapshot, &catalogs);
        let mut search = Search::new(&problem, Stranding::USUAL);
        let zone_b = problem.candidates.iter().find(|candidate| candidate.guests.len() == 2).expect("it takes both");
        let guest = |lot: usize| zone_b.guest(problem.lot(lot).shape).expect("it takes both");
        let seats: Vec<_> = (0..2).map(|lot| guest(lot).seats(lot, 1)).collect();
        assert_eq!(search.make(zone_b, &seats, 1), 1);
        let pinned = (0..2).find(|&lot| problem.lot(lot).requests[0] == 2000).expect("one asks for two CPUs");

        assert!(search.take_off(pinned));
        let claims = search.into_plan().claims;
        assert_eq!(claims.len(), 1);
        assert_eq!(claims[0].pods.len(), 1);
        assert_eq!(claims[0].requirements.get(labels::ZONE), Some(&Requirement::one_of(["b"])));
    }
}
