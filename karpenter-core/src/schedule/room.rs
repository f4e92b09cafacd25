//! Pods in the room that there is.

use std::{cell::OnceCell, cmp::Reverse};

use ordered_float::OrderedFloat;

use super::{
    amounts::{Amounts, dominant_share, fit_count, fits, least, take},
    lot::Lot,
    problem::{Aim, Order, Problem, Tolerance},
    search::{Search, add_units, number},
};

/// Into how many parts the room of a place is divided: after each part it is asked anew whose turn it is.
const PARTS: i64 = 4;

/// Pods are weighed against the room of each place in problems with no more than so many pairs of lots and places.
const MAX_WEIGHED: usize = 100_000;

impl Search<'_, '_> {
    /// Fills the room that there is, with those first that nothing else takes: they get it even where a taint asks them to keep
    /// away, before others take it that can go elsewhere.
    pub(super) fn use_places(&mut self, tolerance: Tolerance) {
        let problem = self.problem;
        self.use_places_for_the_sure();
        let order = problem.order_for_places();
        if tolerance == Tolerance::Full && problem.base.has_taints_to_avoid() {
            let needy: Vec<usize> =
                order.iter().copied().filter(|&lot| problem.has_no_other(problem.lot(lot))).collect();
            self.fill_places(Tolerance::Full, &needy);
            self.fill_places(Tolerance::Reluctant, &needy);
        }
        self.fill_places(tolerance, &order);
    }

    /// Gives room to those that are to have it before all others, as far as they have none yet.
    fn use_places_for_the_sure(&mut self) {
        let problem = self.problem;
        let mut sure = problem.course.sure.clone();
        if sure.is_empty() {
            return;
        }
        let mut order: Vec<usize> = (0..problem.lots.list.len()).collect();
        order.retain(|&lot| {
            let classes = &problem.lot(lot).classes;
            !classes.is_empty() && classes.iter().all(|class| sure.contains_key(class))
        });
        order.sort_by_cached_key(|&lot| (Reverse(problem.lot(lot).requests.clone()), lot));
        for index in order {
            let lot = problem.lot(index);
            let pods: usize = lot.classes.iter().map(|class| sure[class]).sum();
            let units = i64::try_from(pods / lot.unit_size).unwrap_or(i64::MAX);
            let planned = i64::try_from(lot.units()).unwrap_or(i64::MAX) - self.remaining(index);
            let seated = planned + self.use_places_willingly_for(index, (units - planned).max(0));
            let mut left = number(seated) * lot.unit_size;
            for class in &lot.classes {
                let sure = sure.get_mut(class).expect("only these are in the order");
                let used = left.min(*sure);
                (*sure, left) = (*sure - used, left - used);
            }
        }
    }

    /// Fills place by place with lots in this order.
    fn fill_places(&mut self, tolerance: Tolerance, order: &[usize]) {
        let problem = self.problem;
        let is_weighed = problem.course.order == Order::Worth && order.len() * problem.base.place_count <= MAX_WEIGHED;
        let least = least(order.iter().map(|&lot| &problem.lot(lot).requests));
        let mut places: Vec<usize> = (0..problem.base.places.len()).collect();
        if problem.course.order == Order::Tightest {
            let all = self.free_room();
            places.sort_by_cached_key(|&place| OrderedFloat(dominant_share(&self.place_room[place], &all)));
        }
        for place in places {
            if problem.is_stopped() {
                break;
            }
            if !fits(&least, &self.place_room[place]) {
                continue;
            }
            if is_weighed {
                self.use_place_by_worth(place, tolerance, order);
            } else {
                self.use_place(place, tolerance, order);
            }
        }
    }

    /// Fills a place with lots in this order.
    fn use_place(&mut self, place: usize, tolerance: Tolerance, order: &[usize]) {
        let tolerances = vec![OnceCell::new(); self.problem.lots.constraints.len()];
        for &lot in order {
            let count = self.most_at(place, lot);
            if count > 0 && self.is_welcome(place, lot, tolerance, &tolerances) {
                self.seat_at(place, lot, count);
            }
        }
    }

    /// Gives up to so many units of a lot room, even where a taint asks them to keep away, as far as there is any.
    pub(super) fn use_places_for(&mut self, lot: usize, mut left: i64) {
        for place in 0..self.problem.base.places.len() {
            left -= self.use_place_for(place, lot, left);
        }
    }

    /// The same, but where a taint asks them to keep away they get room last. Says how many have some then.
    fn use_places_willingly_for(&mut self, lot: usize, most: i64) -> i64 {
        let problem = self.problem;
        let mut places: Vec<usize> = (0..problem.base.places.len()).collect();
        if problem.base.has_taints_to_avoid() {
            let constraint = problem.lot(lot).constraint;
            let tolerance = |place: usize| problem.place_tolerance(constraint, problem.base.places[place].source);
            places.sort_by_cached_key(|&place| tolerance(place) != Some(Tolerance::Full));
        }
        places.into_iter().fold(0, |count, place| count + self.use_place_for(place, lot, most - count))
    }

    /// Does so in one place, and says how many have room there.
    pub(super) fn use_place_for(&mut self, place: usize, lot: usize, most: i64) -> i64 {
        let count = self.most_at(place, lot).min(most);
        let constraint = self.problem.lot(lot).constraint;
        let found = || self.problem.place_tolerance(constraint, self.problem.base.places[place].source);
        if count == 0 || !found().is_some_and(|found| self.problem.shape(self.problem.lot(lot)).bears(found)) {
            return 0;
        }
        self.seat_at(place, lot, count);
        count
    }

    /// Fills a place part by part with the lot that is worth most for the share that it takes of what is left of it. So pods
    /// that ask for much of one resource meet others that ask for much of another.
    fn use_place_by_worth(&mut self, place: usize, tolerance: Tolerance, order: &[usize]) {
        let problem = self.problem;
        let tolerances = vec![OnceCell::new(); problem.lots.constraints.len()];
        let mut open: Vec<usize> = order.iter().copied().filter(|&lot| self.most_at(place, lot) > 0).collect();
        open.retain(|&lot| self.is_welcome(place, lot, tolerance, &tolerances));
        loop {
            let room = &self.place_room[place];
            let rank =
                |&lot: &usize| (problem.need_for_places(lot), Reverse(OrderedFloat(problem.worth_for(lot, room))));
            let Some(lot) = open.iter().copied().min_by_key(rank) else { break };
            let by_room = fit_count(&problem.lot(lot).requests, room);
            let count = self.most_at(place, lot).min((by_room / PARTS).max(1));
            self.seat_at(place, lot, count);
            open.retain(|&lot| self.most_at(place, lot) > 0);
        }
    }

    /// How many units of a lot a place has room for.
    pub(super) fn most_at(&self, place: usize, index: usize) -> i64 {
        let (left, lot, room) = (self.remaining(index), self.problem.lot(index), &self.place_room[place]);
        let by_room = if left > 0 { fit_count(&lot.requests, room) } else { 0 };
        if by_room == 0 {
            return 0;
        }
        by_room.min(left).min(self.occupancies[place].most(lot))
    }

    /// Whether a lot goes to a place so willingly. What is known of constraints is kept.
    fn is_welcome(
        &self,
        place: usize,
        lot: usize,
        tolerance: Tolerance,
        known: &[OnceCell<Option<Tolerance>>],
    ) -> bool {
        let problem = self.problem;
        let lot = problem.lot(lot);
        let source = problem.base.places[place].source;
        let found = *known[lot.constraint].get_or_init(|| problem.place_tolerance(lot.constraint, source));
        found.is_some_and(|found| found <= tolerance && problem.shape(lot).bears(found))
    }

    pub(super) fn seat_at(&mut self, place: usize, index: usize, count: i64) {
        let lot = self.problem.lot(index);
        take(&mut self.place_room[place], &lot.requests, count);
        self.occupancies[place].add(lot, count);
        self.use_up(index, count);
        add_units(&mut self.on_places[place], index, count);
    }
}

impl Problem<'_> {
    /// All lots in the order in which they get the room that there is.
    pub(super) fn order_for_places(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.lots.list.len()).collect();
        order.sort_by_cached_key(|&lot| (self.rank_for_places(lot), lot));
        order
    }

    /// The order in which lots get the room that there is.
    ///
    /// First come those that the course puts first. Where the order is not that of size, then come units that no new node takes:
    /// those first that others are to be near to, then those without a wish to give up, then those on which most others depend. Of the
    /// units that new nodes take those come first, too, that others are to be near to, then those of which a node takes only a few,
    /// because they need many nodes, then the most valuable. Of equals the small come first where as many pods as can be are to have
    /// room, and else the large, which are harder to place.
    fn rank_for_places(&self, index: usize) -> impl Ord + use<> {
        let (value, lot) = (OrderedFloat(self.value(index)), self.lot(index));
        let need = (!self.course.order.is_by_size()).then(|| (self.need_of(lot), Reverse(value)));
        let small_first = (self.course.aim == Aim::Pods).then(|| lot.requests.clone());
        (!self.is_first(lot), need, small_first, Reverse(lot.requests.clone()))
    }

    /// How much a lot needs the room that there is, whatever it is worth.
    fn need_for_places(&self, index: usize) -> impl Ord + use<> {
        let lot = self.lot(index);
        (!self.is_first(lot), self.need_of(lot))
    }

    pub(super) fn is_first(&self, lot: &Lot) -> bool {
        lot.classes.iter().any(|class| self.course.first.contains(class))
    }

    /// Whether no new node takes a lot.
    fn has_no_other(&self, lot: &Lot) -> bool {
        self.values[lot.shape].is_infinite()
    }

    fn need_of(&self, lot: &Lot) -> impl Ord + use<> {
        let has_no_other = self.has_no_other(lot);
        let stake = has_no_other.then_some((lot.is_wish, Reverse(lot.followers)));
        (!has_no_other, !lot.is_awaited, stake, !has_no_other && !lot.manners.is_limited())
    }

    /// What a unit of a lot is worth for the largest share that it takes of some room.
    fn worth_for(&self, index: usize, room: &Amounts) -> f64 {
        let shares = self.lot(index).requests.iter().zip(room).filter(|(request, _)| **request > 0);
        let share = shares.map(|(&request, &room)| request as f64 / room.max(1) as f64).fold(0.0, f64::max);
        self.value(index) / share
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Catalogs, Planner, Snapshot,
        api::{Node, Pod},
        schedule::search::Stranding,
    };

    /// How many of four pods get room on two nodes for three pods each, with these effects of their taints.
    fn on_nodes(effects: [&str; 2]) -> [i64; 2] {
        let node = |(name, effect): (&str, &str)| -> Node {
            let json = format!(
                r#"{{"metadata":{{"name":"{name}"}},"spec":{{"taints":[{{"key":"k","effect":"{effect}"}}]}},
                    "status":{{"allocatable":{{"cpu":"3","pods":"9"}}}}}}"#
            );
            serde_json::from_str(&json).expect(&json)
        };
        let nodes = ["a", "b"].into_iter().zip(effects).map(node);
        let pods = Pod::named("p").cpu("1").replicas(4);
        let (snapshot, catalogs) =
            (Snapshot::builder().nodes(nodes).pods(pods).build().expect("valid"), Catalogs::new());
        let planner = Planner::default();
        let problem = planner.prepare(&snapshot, &catalogs);
        let mut search = Search::new(&problem, Stranding::USUAL);
        search.use_places_for(0, 4);
        [0, 1].map(|place| search.on_places[place].iter().map(|(_, count)| count).sum())
    }

    #[test]
    fn each_node_is_asked_by_its_own_taints() {
        assert_eq!(on_nodes(["PreferNoSchedule", "PreferNoSchedule"]), [3, 1]);
        assert_eq!(on_nodes(["PreferNoSchedule", "NoSchedule"]), [3, 0]);
        assert_eq!(on_nodes(["NoSchedule", "PreferNoSchedule"]), [0, 3]);
    }
}
