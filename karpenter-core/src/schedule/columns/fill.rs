//! Ways to fill a node, by what units are worth.

use ordered_float::OrderedFloat;
use smallvec::SmallVec;

use super::program::Kind;
use crate::schedule::amounts::{fit_count, take};

/// How much more a resource counts of which nothing is left than one that is not used at all.
const SCARCITY: f64 = 3.0;

/// The part of the units that would fit that is taken before prices are looked at again.
const AT_ONCE: i64 = 4;

/// A way to fill a node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Pattern {
    /// The index of the kind of node.
    pub(super) kind: usize,
    /// How many units of which rows, by row.
    pub(super) counts: Vec<(usize, i64)>,
}

impl Pattern {
    pub(super) fn worth(&self, worths: &[f64]) -> f64 {
        self.counts.iter().map(|&(row, count)| worths[row] * count as f64).sum()
    }
}

impl Kind<'_> {
    /// Those units first that are worth most for the largest share that they take.
    pub(super) fn fill_by_share(&self, worths: &[f64]) -> Vec<(usize, i64)> {
        self.fill_in_order(&self.by_share(worths), None)
    }

    /// The same, and then with one unit fewer of each row in turn: what comes in its place may be worth more.
    pub(super) fn fills_with_fewer(&self, worths: &[f64], work: &mut usize) -> Vec<Vec<(usize, i64)>> {
        let order = self.by_share(worths);
        let first = self.fill_in_order(&order, None);
        *work += first.len() * order.len() * self.room.len();
        let fewer = |&(row, count): &(usize, i64)| self.fill_in_order(&order, Some((row, count - 1)));
        let others: Vec<_> = first.iter().map(fewer).collect();
        [first].into_iter().chain(others).collect()
    }

    /// The guests that are worth anything, the most for the largest share that they take first.
    fn by_share(&self, worths: &[f64]) -> Vec<usize> {
        let wanted = self.guests.iter().enumerate().filter(|(_, guest)| worths[guest.row] > 0.0);
        let mut order: Vec<(OrderedFloat<f64>, usize)> =
            wanted.map(|(index, guest)| (OrderedFloat(-worths[guest.row] / guest.bulk), index)).collect();
        order.sort_unstable();
        order.into_iter().map(|(_, index)| index).collect()
    }

    /// As many of each guest as there is room for, but of one row no more than so many.
    fn fill_in_order(&self, order: &[usize], fewer: Option<(usize, i64)>) -> Vec<(usize, i64)> {
        let mut room = self.room.clone();
        let mut counts = Vec::new();
        for guest in order.iter().map(|&index| &self.guests[index]) {
            let most = fewer.filter(|(row, _)| *row == guest.row).map_or(guest.most, |(_, most)| most);
            let count = fit_count(guest.requests, &room).min(most);
            if count > 0 {
                take(&mut room, guest.requests, count);
                counts.push((guest.row, count));
            }
        }
        counts.sort_unstable();
        counts
    }

    /// Unit by unit, those that are worth most for what they take of what is scarce by then (Toyoda, "A Simplified
    /// Algorithm for Obtaining Approximate Solutions to Zero-One Programming Problems", Management Science 21, 1975).
    pub(super) fn fill_by_scarcity(&self, worths: &[f64], work: &mut usize) -> Vec<(usize, i64)> {
        let mut room = self.room.clone();
        let mut counts: Vec<i64> = vec![0; self.guests.len()];
        let (mut open, mut last) = (Open::new(self, worths), None::<usize>);
        loop {
            *work += (open.count + 4) * room.len();
            if let Some(last) = last.filter(|&last| counts[last] >= self.guests[last].most) {
                open.close(last);
            }
            open.close_too_large(&room);
            let Some(index) = open.best(&scarcity_prices(&room, self.room)) else { break };
            let guest = &self.guests[index];
            let fit = fit_count(guest.requests, &room).min(guest.most - counts[index]);
            let count = fit.div_euclid(AT_ONCE).max(1);
            take(&mut room, guest.requests, count);
            counts[index] += count;
            last = Some(index);
        }
        let taken = self.guests.iter().zip(counts).filter(|(_, count)| *count > 0);
        taken.map(|(guest, count)| (guest.row, count)).collect()
    }
}

/// What a node with so much left charges for each resource: the more the scarcer it is. Of what a node has none, none is asked for.
fn scarcity_prices(left: &[i64], all: &[i64]) -> SmallVec<[f64; 6]> {
    let price = |(&left, &all): (&i64, &i64)| {
        let all = all.max(1) as f64;
        (1.0 + SCARCITY * (1.0 - left as f64 / all)) / all
    };
    left.iter().zip(all).map(price).collect()
}

/// The guests of which a node in the making may take further units, resource by resource: they are gone through once for each unit or
/// few that a node takes.
struct Open<'k> {
    kind: &'k Kind<'k>,
    /// Which guests they are, in order; some of them may be closed by now.
    guests: Vec<usize>,
    /// What each is worth, and nothing if it is closed.
    worths: Vec<f64>,
    /// What each asks for of each resource.
    requests: Vec<Vec<f64>>,
    /// Where each guest of the kind is among them.
    slots: Vec<Option<usize>>,
    /// How many are open.
    count: usize,
    /// How many of those that ask for most of each resource are known not to fit.
    too_large: SmallVec<[usize; 6]>,
    densities: Vec<f64>,
}

impl<'k> Open<'k> {
    /// Those that are worth anything.
    fn new(kind: &'k Kind<'k>, worths: &[f64]) -> Self {
        let is_worthy = |guest: &usize| worths[kind.guests[*guest].row] > 0.0;
        let guests: Vec<usize> = (0..kind.guests.len()).filter(is_worthy).collect();
        let mut slots = vec![None; kind.guests.len()];
        guests.iter().enumerate().for_each(|(slot, &guest)| slots[guest] = Some(slot));
        let asked = |axis: usize| guests.iter().map(|&guest| kind.guests[guest].requests[axis] as f64).collect();
        Self {
            kind,
            worths: guests.iter().map(|&guest| worths[kind.guests[guest].row]).collect(),
            requests: (0..kind.room.len()).map(asked).collect(),
            slots,
            count: guests.len(),
            too_large: kind.room.iter().map(|_| 0).collect(),
            densities: Vec::with_capacity(guests.len()),
            guests,
        }
    }

    /// Closes those that do not fit any more.
    fn close_too_large(&mut self, room: &[i64]) {
        let kind = self.kind;
        for (axis, largest) in kind.largest.iter().enumerate() {
            while let Some(&guest) = largest.get(self.too_large[axis])
                && kind.guests[guest].requests[axis] > room[axis]
            {
                self.close(guest);
                self.too_large[axis] += 1;
            }
        }
    }

    fn close(&mut self, guest: usize) {
        if let Some(slot) = self.slots[guest].take() {
            self.worths[slot] = 0.0;
            self.count -= 1;
        }
    }

    /// The one that is worth most for what it takes, of equals the first.
    fn best(&mut self, prices: &[f64]) -> Option<usize> {
        let Self { worths, requests, densities, .. } = self;
        densities.clear();
        densities.resize(worths.len(), 0.0);
        for (requests, price) in requests.iter().zip(prices) {
            densities.iter_mut().zip(requests).for_each(|(charge, request)| *charge += request * price);
        }
        densities.iter_mut().zip(worths).for_each(|(density, worth)| *density = *worth / *density);
        let mut best: (f64, Option<usize>) = (0.0, None);
        for (&density, &guest) in densities.iter().zip(&self.guests) {
            if density > best.0 {
                best = (density, Some(guest));
            }
        }
        best.1
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;
    use crate::schedule::{
        amounts::{Amounts, fits},
        columns::program::{KindGuest, largest},
    };

    fn kind<'k>(guests: &'k [(Amounts, i64)], room: &'k Amounts) -> Kind<'k> {
        let guest = |(row, (requests, most)): (usize, &'k (Amounts, i64))| {
            let (bulk, is_limited) = (1.0, false);
            KindGuest { row, requests, most: *most, bulk, is_limited }
        };
        let guests: Vec<KindGuest<'k>> = guests.iter().enumerate().map(guest).collect();
        Kind { members: Vec::new(), room, costs: [1.0; 2], largest: largest(&guests, room.len()), guests }
    }

    /// The same guest by guest.
    fn plainly(kind: &Kind<'_>, worths: &[f64]) -> (Vec<(usize, i64)>, usize) {
        let (mut room, mut counts, mut work) = (kind.room.clone(), vec![0; kind.guests.len()], 0);
        let mut open: Vec<usize> = (0..counts.len()).filter(|&guest| worths[guest] > 0.0).collect();
        loop {
            work += (open.len() + 4) * room.len();
            open.retain(|&guest| counts[guest] < kind.guests[guest].most && fits(kind.guests[guest].requests, &room));
            let prices = scarcity_prices(&room, kind.room);
            let charge = |guest: usize| kind.guests[guest].requests.iter().zip(&prices);
            let density = |guest: usize| worths[guest] / charge(guest).map(|(&r, price)| r as f64 * price).sum::<f64>();
            let first = |best: usize, other: usize| if density(other) > density(best) { other } else { best };
            let Some(best) = open.iter().copied().reduce(first) else { break };
            let KindGuest { requests, most, .. } = kind.guests[best];
            let count = (fit_count(requests, &room).min(most - counts[best]) / AT_ONCE).max(1);
            take(&mut room, requests, count);
            counts[best] += count;
        }
        (counts.into_iter().enumerate().filter(|(_, count)| *count > 0).collect(), work)
    }

    proptest! {
        #[test]
        fn the_densest_comes_first_until_nothing_fits(
            guests in vec((vec(0_i64..5, 3), 1_i64..9), 0..8),
            room in vec(0_i64..20, 3),
            worths in vec(0_u8..4, 8),
        ) {
            let guest = |(requests, most): (Vec<i64>, i64)| (Amounts::from_vec(requests), most);
            let guests: Vec<(Amounts, i64)> = guests.into_iter().map(guest).collect();
            let (room, worths) = (Amounts::from_vec(room), worths.into_iter().map(f64::from).collect::<Vec<_>>());
            let (kind, mut work) = (kind(&guests, &room), 0);
            let filled = kind.fill_by_scarcity(&worths, &mut work);
            prop_assert_eq!((filled, work), plainly(&kind, &worths));
        }
    }
}
