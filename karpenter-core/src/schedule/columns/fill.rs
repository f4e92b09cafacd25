//! Ways to fill a node, by what units are worth.

use ordered_float::OrderedFloat;

use super::program::Kind;
use crate::schedule::amounts::{fit_count, fits, take};

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
        let mut open: Vec<usize> =
            (0..self.guests.len()).filter(|&index| worths[self.guests[index].row] > 0.0).collect();
        loop {
            // Of what a node has none, none is asked for.
            let prices: Vec<f64> = room
                .iter()
                .zip(self.room)
                .map(|(&left, &all)| {
                    let all = all.max(1) as f64;
                    (1.0 + SCARCITY * (1.0 - left as f64 / all)) / all
                })
                .collect();
            *work += (open.len() + 4) * room.len();
            let mut best: Option<(f64, usize)> = None;
            open.retain(|&index| {
                let guest = &self.guests[index];
                if counts[index] >= guest.most || !fits(guest.requests, &room) {
                    return false;
                }
                let price: f64 = guest.requests.iter().zip(&prices).map(|(&r, price)| r as f64 * price).sum();
                let score = worths[guest.row] / price;
                if best.is_none_or(|(most, _)| score > most) {
                    best = Some((score, index));
                }
                true
            });
            let Some((_, index)) = best else { break };
            let guest = &self.guests[index];
            let fit = fit_count(guest.requests, &room).min(guest.most - counts[index]);
            let count = fit.div_euclid(AT_ONCE).max(1);
            take(&mut room, guest.requests, count);
            counts[index] += count;
        }
        let taken = self.guests.iter().zip(counts).filter(|(_, count)| *count > 0);
        taken.map(|(guest, count)| (guest.row, count)).collect()
    }
}
