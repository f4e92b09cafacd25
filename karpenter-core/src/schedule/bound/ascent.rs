//! Makes the bound better: prices of resources rise where pods crowd and fall where room is left.
//!
//! Multiplicative weights: in each round every group of pods goes to the kinds of nodes that are cheapest for it or
//! nearly so, and on each kind the resources of which that takes most become a larger part of its price. Machines of
//! which there are only so many become dearer if more are wanted, and cheaper if fewer are.

use super::{kinds::Kind, program::Program};
use crate::schedule::amounts::Amounts;

/// How many rounds there are, at least and at most.
const ROUNDS: (usize, usize) = (100, 250);
/// Within that there are as many rounds as look at so many pairs of a request and a kind of node.
const PAIRS: usize = 600_000;
/// In the second half, so many rounds without a gain worth the name are the end.
const PATIENCE: usize = 15;
/// A gain worth the name, as a share of the bound.
const GAIN: f64 = 5e-4;
/// How often all kinds are looked at, and not only those near the cheapest.
const REFRESH: usize = 2;
/// How much dearer than the cheapest a kind may be to count as near.
const NEAR: f64 = 0.35;
/// How much dearer than the cheapest a kind may be for pods to go there, at first and at last.
const SPREAD: (f64, f64) = (0.1, 0.004);
/// How far prices move, at first and at last.
const STEP: (f64, f64) = (1.0, 0.06);
/// How far worths move beside the square of that: pods change over all at once when a worth crosses a price.
const WORTH_STEP: f64 = 0.3;
/// The least share that a resource keeps, so that it can grow again.
const LEAST_SHARE: f64 = 1e-7;

/// What kinds of nodes charge.
#[derive(Clone)]
pub(super) struct Charges {
    /// The part of its price that each resource bears, kind by kind; the parts of a kind add up to one.
    pub(super) shares: Vec<Vec<f64>>,
    /// What a node of a kind is worth above its price, in billionths of a dollar an hour.
    pub(super) worths: Vec<f64>,
}

/// A kind of node with what it charges at the moment.
struct Seller<'p> {
    kind: &'p Kind,
    /// What each request takes of the room, by request and resource.
    ratios: Vec<f64>,
    shares: Vec<f64>,
    worth: f64,
    /// How many pods of each request go there.
    counts: Vec<f64>,
}

/// The search for charges.
struct Ascent<'p> {
    program: &'p Program,
    /// The kinds that no other beats.
    sellers: Vec<Seller<'p>>,
    /// What each request pays on a node that costs 1, by request and seller; infinite where it does not fit.
    parts: Vec<f64>,
    /// What a node costs, its worth included, by constraint and seller.
    prices: Vec<f64>,
    /// For each group the sellers that are near the cheapest.
    near: Vec<Vec<u32>>,
    /// What a group pays to each of those.
    costs: Vec<f64>,
}

/// The best charges that are found, for the kinds that no other beats, in their order.
pub(super) fn ascend(program: &Program) -> Charges {
    let mut ascent = Ascent::new(program);
    let rounds = (PAIRS / ascent.parts.len().max(1)).clamp(ROUNDS.0, ROUNDS.1);
    let (mut best, mut charges) = (0.0, ascent.charges());
    let (mut mark, mut marked_at) = (0.0, 0);
    for round in 0..rounds {
        let progress = round as f64 / rounds as f64;
        let between = |(first, last): (f64, f64)| first * (last / first).powf(progress);
        ascent.reprice();
        let is_exact = round % REFRESH == 0;
        if is_exact {
            ascent.look_at_all();
        }
        let bound = ascent.respond(between(SPREAD));
        if is_exact && bound > best {
            (best, charges) = (bound, ascent.charges());
        }
        if best > mark * (1.0 + GAIN) {
            (mark, marked_at) = (best, round);
        } else if round >= (marked_at + PATIENCE).max(rounds / 2) {
            break;
        }
        ascent.sellers.iter_mut().for_each(|seller| seller.step(between(STEP)));
    }
    charges
}

impl<'p> Ascent<'p> {
    fn new(program: &'p Program) -> Self {
        let kinds = program.kinds.iter().filter(|kind| kind.beaten_by.is_none());
        let demand = program.demand();
        let mut sellers: Vec<_> = kinds.map(|kind| Seller::new(kind, &program.requests, &demand)).collect();
        let unlimited: Vec<(f64, &[i64])> = sellers
            .iter()
            .filter(|s| s.kind.capacity.is_none())
            .map(|s| (s.kind.least_price(), &*s.kind.room))
            .collect();
        for seller in sellers.iter_mut().filter(|seller| seller.kind.capacity.is_some()) {
            seller.worth = seller.first_worth(&unlimited);
        }
        let (requests, constraints) = (program.requests.len(), program.constraint_count);
        Self {
            program,
            parts: vec![f64::INFINITY; requests * sellers.len()],
            prices: vec![f64::INFINITY; constraints * sellers.len()],
            near: vec![Vec::new(); program.groups.len()],
            costs: Vec::new(),
            sellers,
        }
    }

    fn charges(&self) -> Charges {
        Charges {
            shares: self.sellers.iter().map(|seller| seller.shares.clone()).collect(),
            worths: self.sellers.iter().map(|seller| seller.worth).collect(),
        }
    }

    /// Works out what nodes cost and what pods pay on them.
    fn reprice(&mut self) {
        let count = self.sellers.len();
        for (index, seller) in self.sellers.iter_mut().enumerate() {
            let axes = seller.shares.len();
            for (request, ratios) in seller.ratios.chunks_exact(axes).enumerate() {
                if seller.kind.fits[request] {
                    let part: f64 = ratios.iter().zip(&seller.shares).map(|(ratio, share)| ratio * share).sum();
                    self.parts[request * count + index] = part;
                }
            }
            for (constraint, price) in seller.kind.prices.iter().enumerate() {
                self.prices[constraint * count + index] = price + seller.worth;
            }
            seller.counts.fill(0.0);
        }
    }

    /// Finds for each group the sellers that are not much dearer than the cheapest.
    fn look_at_all(&mut self) {
        let count = self.sellers.len();
        for (group, near) in self.program.groups.iter().zip(&mut self.near) {
            let parts = &self.parts[group.request * count..][..count];
            let prices = &self.prices[group.constraint * count..][..count];
            self.costs.clear();
            self.costs.extend(prices.iter().zip(parts).map(|(price, part)| price * part));
            let least = self.costs.iter().copied().fold(f64::INFINITY, f64::min);
            near.clear();
            if least.is_finite() {
                let is_near = |cost: f64| cost <= least * (1.0 + NEAR);
                near.extend((0..).zip(&self.costs).filter(|(_, cost)| is_near(**cost)).map(|(index, _)| index));
            }
        }
    }

    /// Sends all groups to the sellers that are cheapest for them, and gives back the bound.
    fn respond(&mut self, spread: f64) -> f64 {
        let count = self.sellers.len();
        let mut bound = 0.0;
        for (group, near) in self.program.groups.iter().zip(&self.near) {
            let parts = &self.parts[group.request * count..][..count];
            let prices = &self.prices[group.constraint * count..][..count];
            self.costs.clear();
            self.costs.extend(near.iter().map(|&seller| prices[seller as usize] * parts[seller as usize]));
            let least = self.costs.iter().copied().fold(f64::INFINITY, f64::min);
            if !least.is_finite() {
                continue;
            }
            let pods = group.count as f64;
            bound += pods * least;
            let scale = 1.0 / (spread * least).max(f64::MIN_POSITIVE);
            let mut total = 0.0;
            for cost in &mut self.costs {
                let weight = (1.0 - (*cost - least) * scale).max(0.0);
                *cost = weight * weight;
                total += *cost;
            }
            for (&seller, weight) in near.iter().zip(&self.costs).filter(|(_, weight)| **weight > 0.0) {
                self.sellers[seller as usize].counts[group.request] += pods * weight / total;
            }
        }
        let limited = self.sellers.iter().filter_map(|seller| Some(seller.kind.capacity? * seller.worth));
        bound - limited.sum::<f64>()
    }
}

impl<'p> Seller<'p> {
    /// At first each resource bears the part of it that all pods together would take.
    fn new(kind: &'p Kind, requests: &[Amounts], demand: &[f64]) -> Self {
        let ratio = |(&amount, &room): (&i64, &i64)| if room > 0 { amount as f64 / room as f64 } else { 0.0 };
        let ratios = requests.iter().flat_map(|request| request.iter().zip(&kind.room).map(ratio)).collect();
        let part = |(&demand, &room): (&f64, &i64)| if room > 0 { demand / room as f64 } else { 0.0 };
        let mut shares: Vec<f64> = demand.iter().zip(&kind.room).map(part).collect();
        normalize(&mut shares);
        Self { kind, ratios, shares, worth: 0.0, counts: vec![0.0; requests.len()] }
    }

    /// What new nodes of as much room would cost beside its own price.
    fn first_worth(&self, unlimited: &[(f64, &[i64])]) -> f64 {
        let scale = |other: &[i64]| {
            let rooms = self.kind.room.iter().zip(other).zip(&self.shares).filter(|((_, other), _)| **other > 0);
            rooms.map(|((&room, &other), share)| share * room.max(0) as f64 / other as f64).sum::<f64>()
        };
        let value = unlimited.iter().map(|(price, room)| price * scale(room)).fold(f64::INFINITY, f64::min);
        if value.is_finite() { (value - self.kind.least_price()).max(0.0) } else { 0.0 }
    }

    /// Moves prices towards what pods take.
    fn step(&mut self, step: f64) {
        let axes = self.shares.len();
        let mut loads = vec![0.0; axes];
        for (request, &count) in self.counts.iter().enumerate().filter(|(_, count)| **count > 0.0) {
            let ratios = &self.ratios[request * axes..][..axes];
            loads.iter_mut().zip(ratios).for_each(|(load, ratio)| *load += count * ratio);
        }
        let most = loads.iter().copied().fold(0.0, f64::max);
        if let Some(capacity) = self.kind.capacity {
            let price = self.kind.least_price();
            let wanted: f64 = loads.iter().zip(&self.shares).map(|(load, share)| load * share).sum();
            let change = (wanted / capacity - 1.0).clamp(-1.0, 1.0);
            self.worth = ((price + self.worth) * (WORTH_STEP * step * step * change).exp() - price).max(0.0);
        }
        if most > 0.0 {
            // What no pod asks for has no share from the start, and gets none.
            let asked = self.shares.iter_mut().zip(&loads).filter(|(share, _)| **share > 0.0);
            for (share, load) in asked {
                *share = (*share * (step * (load / most - 1.0)).exp()).max(LEAST_SHARE);
            }
            normalize(&mut self.shares);
        }
    }
}

/// Makes shares add up to one; if all are zero they stay so.
fn normalize(shares: &mut [f64]) {
    let total: f64 = shares.iter().sum();
    if total > 0.0 {
        for share in shares {
            *share /= total;
        }
    }
}
