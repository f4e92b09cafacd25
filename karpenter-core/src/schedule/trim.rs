//! Fewer and cheaper nodes for pods of which each still finds one, in whichever order the kube-scheduler takes them.

use std::sync::Arc;

use super::{
    amounts::{Amounts, fits, raise, take},
    candidate::Candidate,
    landing::{Ground, is_settled},
    problem::Tolerance,
    search::{Batch, Search, Seats},
};

/// The most pairs of pods and nodes that are looked at in all tries together: some tenths of a second.
const MAX_PAIRS: usize = 12_000_000;
/// For how many of these it counts to see whether a kind of node would take the pods of others.
const PAIRS_FOR_EACH_KIND: usize = 10;

impl Search<'_, '_> {
    /// The same pods on cheaper nodes, as long as all of them find nodes in so many orders.
    pub(super) fn trimmed(self, calm_turns: usize) -> Self {
        let weights = self.problem.weights_of_lots();
        let calm_turns = calm_turns as u64;
        let turns = (0..calm_turns).collect();
        Trimming { search: self, weights, turns, calm_turns, next_turn: calm_turns, pairs_left: MAX_PAIRS }.run()
    }
}

struct Trimming<'p, 'a> {
    search: Search<'p, 'a>,
    /// The weight of the heaviest pool that takes units of each lot.
    weights: Arc<Vec<u32>>,
    /// Orders in which all pods are to find nodes, those first in which a try failed lately.
    turns: Vec<u64>,
    /// In how many orders that were not looked at before they must find nodes too: of many tries some will do for any orders
    /// that are known.
    calm_turns: u64,
    /// The first of these.
    next_turn: u64,
    pairs_left: usize,
}

/// A kind of node that would take the pods of another.
struct Stand<'p> {
    candidate: &'p Candidate,
    guests: Vec<Seats>,
}

impl<'p, 'a> Trimming<'p, 'a> {
    /// Goes through all nodes, those that were made last first, until none can be spared or had for less.
    fn run(mut self) -> Search<'p, 'a> {
        loop {
            let before = self.search.bill();
            for index in (0..self.search.batches.len()).rev() {
                while self.is_open(index) && self.spare(index) {}
                if self.is_open(index) {
                    self.replace(&[index]);
                }
            }
            self.merge();
            if self.search.bill() >= before || self.is_over() {
                return self.search;
            }
        }
    }

    /// Makes one node of two where that costs less.
    fn merge(&mut self) {
        for second in (1..self.search.batches.len()).rev() {
            for first in (0..second).rev() {
                let is_like_last =
                    |batches: &[Batch<'_>]| first + 1 < second && batches[first].is_like(&batches[first + 1]);
                if self.is_open(second) && self.is_open(first) && !is_like_last(&self.search.batches) {
                    self.replace(&[second, first]);
                }
            }
        }
    }

    fn is_over(&self) -> bool {
        self.pairs_left == 0 || self.search.problem.is_stopped()
    }

    /// Whether there is a batch with this index of which the model of binding tells where its pods land.
    fn is_open(&self, index: usize) -> bool {
        let Search { problem, batches, .. } = &self.search;
        !self.is_over() && batches.get(index).is_some_and(|batch| !is_settled(problem, &self.weights, batch))
    }

    /// Goes on with another search if all its pods find nodes, and says whether it does.
    fn takes(&mut self, other: Search<'p, 'a>) -> bool {
        let (ground, pairs) = (Ground::new(&other), other.landing_pairs());
        let mut leaves_any = |turn: u64| {
            self.pairs_left = self.pairs_left.saturating_sub(pairs);
            self.pairs_left == 0 || !ground.land(turn).is_empty()
        };
        // The order in which one try failed is the one in which the next is likely to.
        if let Some(index) = self.turns.iter().position(|&turn| leaves_any(turn)) {
            self.turns[..=index].rotate_right(1);
            return false;
        }
        let mut others = self.next_turn..self.next_turn + self.calm_turns;
        let restless = others.find(|&turn| leaves_any(turn));
        self.next_turn = others.start;
        if let Some(turn) = restless {
            self.turns.insert(0, turn);
            return false;
        }
        self.search = other;
        true
    }

    /// Does without one node of a batch, if the other new nodes have room for its pods.
    fn spare(&mut self, index: usize) -> bool {
        let mut other = self.search.clone();
        let gone = other.unmake(index);
        gone.units().all(|lot| other.squeeze_in(lot)) && self.takes(other)
    }

    /// Puts the cheapest node that will do, if there is one, in the place of one node of each of these batches, the last first.
    fn replace(&mut self, indices: &[usize]) {
        let mut rest = self.search.clone();
        let gone: Vec<Batch<'p>> = indices.iter().map(|&index| rest.unmake(index)).collect();
        let stands = self.search.cheaper_stands(&gone);
        self.pairs_left = self.pairs_left.saturating_sub(PAIRS_FOR_EACH_KIND * rest.problem.candidates.len());
        let (mut low, mut high) = (0, stands.len());
        while low < high && !self.is_over() {
            let middle = usize::midpoint(low, high);
            let mut other = rest.clone();
            if other.make_stand(&stands, middle) && self.takes(other) {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
    }
}

impl<'p> Search<'p, '_> {
    /// The kinds of nodes of which one would take the pods of some nodes for less, cheapest first. There are none if pools
    /// of different weights have made the nodes.
    fn cheaper_stands(&self, gone: &[Batch<'p>]) -> Vec<Stand<'p>> {
        let problem = self.problem;
        let weight = problem.weight(gone[0].candidate);
        if gone.iter().any(|batch| problem.weight(batch.candidate) != weight) {
            return Vec::new();
        }
        let price: f64 = gone.iter().map(|batch| batch.candidate.price).sum();
        let mut guests: Vec<Seats> = Vec::new();
        gone.iter().flat_map(|batch| &batch.guests).for_each(|seats| join(&mut guests, *seats));
        let is_cheaper =
            |other: &&Candidate| other.price < price && !other.is_reserved() && problem.weight(other) == weight;
        let stand =
            |candidate| Some(Stand { candidate, guests: self.fill_with(candidate, &guests, Tolerance::Full)?.guests });
        let mut stands: Vec<Stand<'p>> = problem.candidates.iter().filter(is_cheaper).filter_map(stand).collect();
        stands.sort_by(|a, b| a.candidate.price.total_cmp(&b.candidate.price));
        stands
    }

    /// Makes a node of this kind for which no cheaper kind of the list will do, and says whether it could.
    fn make_stand(&mut self, stands: &[Stand<'p>], index: usize) -> bool {
        let Stand { candidate, guests } = &stands[index];
        if !self.is_to_be_had(candidate) || self.make(candidate, guests, 1) == 0 {
            return false;
        }
        let mut floor = self.problem.total(guests);
        let problem = self.problem;
        let room = problem.room_of(candidate);
        for cheaper in &stands[..index] {
            keep_above(&mut floor, room, problem.room_of(cheaper.candidate));
        }
        let is_pinned = stands[..index].iter().any(|cheaper| fits(&floor, problem.room_of(cheaper.candidate)));
        let made = self.batches.last_mut().expect("it was just made");
        (made.floor, made.is_pinned) = (floor, is_pinned);
        true
    }

    /// Gives a unit that is left to a new node that has room for it, and says whether there is one.
    pub(super) fn squeeze_in(&mut self, lot: usize) -> bool {
        self.squeeze_in_where(lot, |_| true)
    }

    /// Does so with a node that is one of some.
    pub(super) fn squeeze_in_where(&mut self, lot: usize, is_wanted: impl Fn(&Batch<'p>) -> bool) -> bool {
        self.join_node(lot, Tolerance::Full, is_wanted)
    }

    /// Gives all units that are left to new nodes that have room for them, however reluctantly they go there.
    pub(super) fn join_nodes(&mut self) {
        for lot in 0..self.problem.lots.list.len() {
            while self.remaining(lot) > 0 && self.join_node(lot, Tolerance::Reluctant, |_| true) {}
        }
    }

    fn join_node(&mut self, lot: usize, tolerance: Tolerance, is_wanted: impl Fn(&Batch<'p>) -> bool) -> bool {
        let problem = self.problem;
        let requests = &problem.lot(lot).requests;
        let with_unit = |batch: &Batch<'p>| {
            let mut total = problem.total(&batch.guests);
            take(&mut total, requests, -1);
            if !fits(&total, problem.room_of(batch.candidate)) {
                return None;
            }
            let mut guests = batch.guests.clone();
            join(&mut guests, Seats { lot, alternative: 0, count: 1 });
            Some(self.fill_with(batch.candidate, &guests, tolerance)?.guests)
        };
        let mut batches = self.batches.iter().enumerate().rev().filter(|(_, batch)| is_wanted(batch));
        let found = batches.find_map(|(index, batch)| Some((index, with_unit(batch)?)));
        let Some((index, guests)) = found else { return false };
        let mut node = self.split_off(index);
        raise(&mut node.floor, &problem.total(&guests));
        self.batches.push(Batch { guests, ..node });
        self.use_up(lot, 1);
        true
    }
}

/// Adds seats to those of a node; its seats of the same lot are counted together.
fn join(guests: &mut Vec<Seats>, seats: Seats) {
    match guests.iter_mut().find(|other| other.lot == seats.lot) {
        Some(other) => other.count += seats.count,
        None => guests.push(seats),
    }
}

/// Raises a floor so that a smaller room no longer reaches it, where it has least beside the larger one.
fn keep_above(floor: &mut Amounts, room: &Amounts, smaller: &Amounts) {
    if !fits(floor, smaller) {
        return;
    }
    let lack = |axis: &usize| (room[*axis] - smaller[*axis]) as f64 / room[*axis].max(1) as f64;
    let most = (0..room.len()).filter(|&axis| smaller[axis] < room[axis]).max_by(|a, b| lack(a).total_cmp(&lack(b)));
    if let Some(axis) = most {
        floor[axis] = smaller[axis] + 1;
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::{
        Catalogs, InstanceType, Planner, Price, Quantity, Snapshot,
        api::{NodePool, Pod},
        schedule::search::Stranding,
    };

    fn machine(name: &str, cpus: i64, dollars_per_hour: f64) -> InstanceType {
        let capacity = [("cpu", Quantity::from_units(cpus)), ("pods", Quantity::from_units(110))];
        let price = Price::per_hour(dollars_per_hour).expect("not below zero");
        InstanceType::named(name, capacity).offering("on-demand", "a", price)
    }

    /// The CPUs of what such a change makes of one machine of eight CPUs for each of these pods, which cost 0.4 an hour each.
    pub(in crate::schedule) fn changed(
        types: &[(&str, i64, f64)],
        pods: &[&str],
        change: impl for<'p, 'a> FnOnce(Search<'p, 'a>) -> Search<'p, 'a>,
    ) -> Vec<i64> {
        let pods = pods.iter().enumerate().map(|(number, cpu)| Pod::named(format!("pod-{number}")).cpu(cpu));
        let mut builder = Snapshot::builder().pool(NodePool::named("general"));
        for pod in pods {
            builder = builder.pods(pod);
        }
        let snapshot = builder.build().expect("valid");
        let types = [("usual", 8, 0.4)].iter().chain(types).map(|&(name, cpus, price)| machine(name, cpus, price));
        let catalogs = Catalogs::shared(types.collect(), snapshot.pools()).expect("valid");
        let planner = Planner::default();
        let problem = planner.prepare(&snapshot, &catalogs);
        let mut search = Search::new(&problem, Stranding::USUAL);
        let usual = problem.candidates.iter().find(|c| problem.room_of(c)[0] == 8000).expect("it is offered");
        for lot in 0..problem.lots.list.len() {
            for _ in 0..problem.lots.list[lot].units() {
                let guest = usual.guest(problem.lots.list[lot].shape).expect("all are small enough");
                assert_eq!(search.make(usual, &[guest.seats(lot, 1)], 1), 1);
            }
        }
        let before = search.planned();
        let changed = change(search);
        assert_eq!(changed.planned(), before, "no pod is lost");
        let cpus = |batch: &Batch<'_>| vec![changed.problem.room_of(batch.candidate)[0] / 1000; batch.node_count()];
        let mut all: Vec<i64> = changed.batches.iter().flat_map(cpus).collect();
        all.sort_unstable();
        all
    }

    fn trimmed(types: &[(&str, i64, f64)], pods: &[&str]) -> Vec<i64> {
        changed(types, pods, |search| search.trimmed(20))
    }

    #[test]
    fn nodes_are_spared_if_others_have_room() {
        assert_eq!(trimmed(&[], &["2"; 8]), [8, 8]);
    }

    #[test]
    fn a_smaller_node_will_do() {
        assert_eq!(trimmed(&[("small", 2, 0.1)], &["2"]), [2]);
    }

    #[test]
    fn one_node_takes_the_place_of_two() {
        assert_eq!(trimmed(&[("double", 16, 0.7)], &["6", "6"]), [16]);
    }

    #[test]
    fn no_node_goes_that_is_needed_in_some_order() {
        // Two nodes have room for all, but not if the small pods come first and each has a node.
        assert_eq!(trimmed(&[], &["8", "4", "4"]), [8, 8, 8]);
    }
}
