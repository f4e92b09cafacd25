//! More pods in the room that there is, found by moving those that were given some of it.
//!
//! To fill one place after the other leaves room in which nothing fits. Another pod finds room where some make way for it that
//! find room elsewhere, where others may have to make way in turn.

use super::{
    amounts::{Amounts, fits, take},
    occupancy::Occupancy,
    problem::{Tolerance, Trials},
    search::Search,
};

/// How often pods make way for others at most until all have room.
const MAX_EXCHANGES: usize = 2;

/// The most pairs of lots and places that are looked at each time that room is used: less than a millisecond.
const MAX_LOOKS: usize = 20_000;

impl Search<'_, '_> {
    /// Gives further units room, as far as others can make way for them. All that have room keep some.
    pub(super) fn rearrange_places(&mut self) {
        let course = &self.problem.course;
        // Other plans are compared with the plain orders, and very many plans with each other. Where little is planned, a plan in the
        // order of size may well be the best.
        let order = course.order;
        let is_measure = order.is_karpenters() || order.is_by_size() && !self.problem.is_small();
        if course.trials != Trials::All || course.weighs_room || is_measure {
            return;
        }
        let mut rearrangement =
            Rearrangement { search: self, looks_left: MAX_LOOKS, steps: Vec::new(), exchanged: Vec::new() };
        rearrangement.give_room();
    }

    /// The room that is left in all places together.
    pub(super) fn free_room(&self) -> Amounts {
        let mut free = self.problem.base.classes.axes.zero();
        for room in &self.place_room {
            free.iter_mut().zip(room).for_each(|(free, room)| *free = free.saturating_add(*room.max(&0)));
        }
        free
    }

    /// Takes units of a lot out of a place.
    fn unseat_at(&mut self, place: usize, index: usize, count: i64) {
        let problem = self.problem;
        take(&mut self.place_room[place], &problem.lot(index).requests, -count);
        let here = &mut self.on_places[place];
        here.iter_mut().filter(|(lot, _)| *lot == index).for_each(|(_, there)| *there -= count);
        here.retain(|(_, there)| *there > 0);
        let mut occupancy = problem.base.places[place].occupancy.clone();
        for &(lot, there) in here.iter() {
            occupancy.add(problem.lot(lot), there);
        }
        self.occupancies[place] = occupancy;
        self.take_back(index, count);
    }
}

/// Units that get room one after the other, with what it takes to undo that.
struct Rearrangement<'s, 'p, 'a> {
    search: &'s mut Search<'p, 'a>,
    looks_left: usize,
    steps: Vec<Step>,
    /// The places where others are making way.
    exchanged: Vec<usize>,
}

/// What was given room where, and what the place was like before.
struct Step {
    place: usize,
    lot: usize,
    /// How many units; those that lost room count as less than none.
    count: i64,
    room: Amounts,
    occupancy: Occupancy,
    lots: Vec<(usize, i64)>,
}

impl Rearrangement<'_, '_, '_> {
    fn give_room(&mut self) {
        let mut free = self.search.free_room();
        for lot in self.search.problem.order_for_places() {
            let requests = &self.search.problem.lot(lot).requests;
            while self.search.remaining(lot) > 0 && fits(requests, &free) && self.finds_room(lot, MAX_EXCHANGES) {
                self.steps.clear();
                free = self.search.free_room();
            }
        }
    }

    /// Gives one unit of a lot room, if others make way for it no more often than this.
    fn finds_room(&mut self, lot: usize, exchanges: usize) -> bool {
        let places = self.search.on_places.len();
        for place in 0..places {
            if !self.looks() {
                return false;
            }
            if self.search.most_at(place, lot) > 0 && self.is_welcome(place, lot) {
                self.seat(place, lot);
                return true;
            }
        }
        exchanges > 0 && (0..places).any(|place| self.finds_room_at(place, lot, exchanges - 1))
    }

    /// Does so in one place.
    fn finds_room_at(&mut self, place: usize, lot: usize, exchanges: usize) -> bool {
        let problem = self.search.problem;
        let is_large_enough = fits(&problem.lot(lot).requests, &problem.base.places[place].room);
        if !self.looks() || !is_large_enough || self.exchanged.contains(&place) || !self.is_welcome(place, lot) {
            return false;
        }
        let others: Vec<usize> = self.search.on_places[place].iter().map(|&(other, _)| other).collect();
        self.exchanged.push(place);
        let is_found = others.into_iter().any(|other| other != lot && self.takes_turns(place, lot, other, exchanges));
        self.exchanged.pop();
        is_found
    }

    /// Gives a unit the room of as few of another lot as it needs, if these find room elsewhere.
    fn takes_turns(&mut self, place: usize, lot: usize, other: usize, exchanges: usize) -> bool {
        let before = self.steps.len();
        let most =
            self.search.on_places[place].iter().find(|(there, _)| *there == other).map_or(0, |&(_, count)| count);
        let mut gone = 0;
        while gone < most && self.search.most_at(place, lot) == 0 && self.looks() {
            self.unseat(place, other);
            gone += 1;
        }
        let mut is_found = self.search.most_at(place, lot) > 0;
        if is_found {
            self.seat(place, lot);
            is_found = (0..gone).all(|_| self.finds_room(other, exchanges));
        }
        if !is_found {
            self.undo(before);
        }
        is_found
    }

    /// Whether there is time for another look.
    fn looks(&mut self) -> bool {
        let has_time = self.looks_left > 0;
        self.looks_left = self.looks_left.saturating_sub(1);
        has_time
    }

    /// Whether a lot goes to a place, room apart, although there may be others.
    fn is_welcome(&self, place: usize, lot: usize) -> bool {
        let problem = self.search.problem;
        let found = problem.place_tolerance(problem.lot(lot).constraint, problem.base.places[place].source);
        found == Some(Tolerance::Full)
    }

    fn seat(&mut self, place: usize, lot: usize) {
        self.remember(place, lot, 1);
        self.search.seat_at(place, lot, 1);
    }

    fn unseat(&mut self, place: usize, lot: usize) {
        self.remember(place, lot, -1);
        self.search.unseat_at(place, lot, 1);
    }

    fn remember(&mut self, place: usize, lot: usize, count: i64) {
        let Search { place_room, occupancies, on_places, .. } = &*self.search;
        let (room, occupancy, lots) = (place_room[place].clone(), occupancies[place].clone(), on_places[place].clone());
        self.steps.push(Step { place, lot, count, room, occupancy, lots });
    }

    /// Undoes all steps but the first so many.
    fn undo(&mut self, kept: usize) {
        for Step { place, lot, count, room, occupancy, lots } in self.steps.drain(kept..).rev() {
            self.search.place_room[place] = room;
            self.search.occupancies[place] = occupancy;
            self.search.on_places[place] = lots;
            if count > 0 {
                self.search.take_back(lot, count);
            } else {
                self.search.use_up(lot, -count);
            }
        }
    }
}
