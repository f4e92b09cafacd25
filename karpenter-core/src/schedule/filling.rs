//! A node of a candidate, filled pod by pod.

use std::borrow::Cow;

use fixedbitset::FixedBitSet;

use super::{
    amounts::{Amounts, fit_count, fits, take},
    candidate::{Candidate, Guest},
    flexibility::SpotChoice,
    lot::Shape,
    occupancy::Occupancy,
    problem::Tolerance,
    search::{Fill, Search, Seats},
};
use crate::Requirements;

impl Search<'_, '_> {
    /// The pods that a candidate takes, the most valuable for their room first. Where a node must have hosts and these are not
    /// among them, hosts come before all others.
    pub(super) fn fill(&self, candidate: &Candidate, tolerance: Tolerance) -> Fill {
        let fill = if let Some(ahead) = &self.ahead {
            self.fill_before(ahead, candidate, tolerance)
        } else {
            let mut filling = Filling::new(self, candidate);
            filling.take_from(tolerance, |shape| Cow::Borrowed(&self.open[shape]));
            filling.fill
        };
        match &self.hosts {
            Some(hosts) if !self.has_host(&fill) => self.fill_before(hosts, candidate, tolerance),
            _ => fill,
        }
    }

    /// The pods that a candidate takes, those of some lots before all others.
    fn fill_before(&self, lots: &FixedBitSet, candidate: &Candidate, tolerance: Tolerance) -> Fill {
        let mut filling = Filling::new(self, candidate);
        for are_first in [true, false] {
            let is_meant = |lot: &usize| lots.contains(*lot) == are_first;
            filling.take_from(tolerance, |shape| self.open[shape].iter().copied().filter(is_meant).collect());
        }
        filling.fill
    }

    /// Whether some of the pods are such as a node must have.
    pub(super) fn has_host(&self, fill: &Fill) -> bool {
        let is_host = |seats: &Seats| self.hosts.as_ref().is_none_or(|hosts| hosts.contains(seats.lot));
        fill.guests.iter().any(is_host)
    }

    /// A node of a candidate with just these units, if it takes them all so willingly.
    pub(super) fn fill_with(&self, candidate: &Candidate, guests: &[Seats], tolerance: Tolerance) -> Option<Fill> {
        // Mostly they are too many.
        if !fits(&self.problem.total(guests), self.problem.room_of(candidate)) {
            return None;
        }
        let mut filling = Filling::new(self, candidate);
        let takes = |seats: &Seats| {
            let guest = candidate.guest(self.problem.lot(seats.lot).shape);
            guest.is_some_and(|guest| guest.tolerance <= tolerance && filling.takes(guest, seats.lot, seats.count))
        };
        guests.iter().all(takes).then_some(filling.fill)
    }
}

/// A node that takes pods.
struct Filling<'s, 'p, 'a> {
    search: &'s Search<'p, 'a>,
    candidate: &'s Candidate,
    room: Amounts,
    used: Amounts,
    occupancy: Occupancy,
    choice: SpotChoice<'p, 'a>,
    /// What its labels must be like, if some of its pods ask for labels that no offering settles.
    settled: Option<Requirements>,
    fill: Fill,
}

impl<'s, 'p, 'a> Filling<'s, 'p, 'a> {
    fn new(search: &'s Search<'p, 'a>, candidate: &'s Candidate) -> Self {
        let problem = search.problem;
        let variant = problem.base.pools[candidate.pool].variant(candidate.row);
        Self {
            search,
            candidate,
            room: variant.room.clone(),
            used: problem.base.classes.axes.zero(),
            occupancy: Occupancy::with_ports(variant.host_ports.clone()),
            choice: SpotChoice::of_candidate(problem, candidate),
            settled: None,
            fill: Fill::default(),
        }
    }

    /// Takes all that it can of the lots that are meant of each shape.
    fn take_from<'l>(&mut self, tolerance: Tolerance, meant: impl Fn(usize) -> Cow<'l, [usize]>) {
        for guest in self.candidate.guests.iter().filter(|guest| guest.tolerance <= tolerance) {
            let lots = meant(guest.shape());
            if lots.is_empty() || !self.take_all(guest, &lots) {
                continue;
            }
            if !fits(&self.candidate.least, &self.room) {
                break;
            }
        }
    }

    /// Takes all that it can of the lots of a shape. Whether there is less room then.
    fn take_all(&mut self, guest: &Guest, lots: &[usize]) -> bool {
        let problem = self.search.problem;
        let Shape { requests, constraint, .. } = &problem.lots.shapes[guest.shape()];
        let asked = (*constraint, Some(guest.alternative()));
        let (mut by_room, mut has_less_room) = (fit_count(requests, &self.room), false);
        for &index in lots {
            if by_room == 0 {
                break;
            }
            let wanted = by_room.min(self.search.remaining(index)).min(self.occupancy.most(problem.lot(index)));
            if wanted == 0 {
                continue;
            }
            let count = self.choice.most(&self.used, requests, asked, wanted);
            if count < wanted {
                self.choice.tighten(&self.used, &mut self.room);
            }
            if count > 0
                && let Some(seats) = self.allowed(guest, guest.seats(index, count))
            {
                self.seat(seats, requests, self.search.worths[guest.shape()]);
                self.choice.add(asked);
            } else if count == wanted {
                continue;
            }
            by_room = fit_count(requests, &self.room);
            has_less_room = true;
        }
        has_less_room
    }

    /// Takes so many units of a lot, if it can, and says so.
    fn takes(&mut self, guest: &Guest, lot: usize, count: i64) -> bool {
        let problem = self.search.problem;
        let Shape { requests, constraint, .. } = &problem.lots.shapes[guest.shape()];
        let asked = (*constraint, Some(guest.alternative()));
        let most = fit_count(requests, &self.room).min(self.occupancy.most(problem.lot(lot)));
        if most < count || self.choice.most(&self.used, requests, asked, count) < count {
            return false;
        }
        let seats = self.allowed(guest, guest.seats(lot, count)).filter(|seats| seats.count == count);
        if let Some(seats) = seats {
            self.seat(seats, requests, self.search.worths[guest.shape()]);
            self.choice.add(asked);
        }
        seats.is_some()
    }

    /// As many of these pods as the requirements of the claim allow.
    fn allowed(&mut self, guest: &Guest, seats: Seats) -> Option<Seats> {
        let Candidate { pool: pool_index, row, .. } = *self.candidate;
        let problem = self.search.problem;
        let (pool, shape) = (&problem.base.pools[pool_index], &problem.lots.shapes[guest.shape()]);
        let seats = self.search.within_min_values(self.candidate, &self.fill.guests, seats)?;
        let alternative = problem.alternative(pool_index, shape.constraint, guest.alternative());
        if alternative.is_open_ended {
            let all = pool.settled(self.settled.as_ref(), alternative);
            if !pool.can_settle(row, &all) {
                return None;
            }
            self.settled = Some(all);
        }
        Some(seats)
    }

    fn seat(&mut self, seats: Seats, requests: &[i64], value: f64) {
        take(&mut self.room, requests, seats.count);
        take(&mut self.used, requests, -seats.count);
        self.occupancy.add(self.search.problem.lot(seats.lot), seats.count);
        self.fill.guests.push(seats);
        self.fill.value += value * seats.count as f64;
    }
}
