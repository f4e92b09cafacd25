//! What units are worth if nodes could be filled in fractions: prices to start from.
//!
//! Each kind of node divides what it costs among its resources, and a unit pays the least that any kind asks for it. The
//! division is moved towards resources that are asked for more than others, time after time (exponentiated gradient:
//! Kivinen and Warmuth, Information and Computation 132, 1997).

use super::program::{Kind, Program};

/// How often prices are moved.
const ROUNDS: usize = 40;
/// After how many rounds kinds are left out that are far too dear for a unit, and how much dearer than the cheapest.
const SIFTING: (usize, f64) = (5, 1.5);
/// How much dearer than the cheapest a kind may be for a unit and still be asked for it, in the beginning and in the end.
const SOFTNESS: (f64, f64) = (0.05, 0.002);
/// How far prices move in the beginning and in the end.
const STEP: (f64, f64) = (0.5, 0.02);
/// What is so many times the softness dearer is not asked for at all.
const HORIZON: f64 = 8.0;

/// A kind of node and a guest of it, by index: where units of a row can be.
type Offer = (usize, usize);

/// Prices in the making.
struct Ascent<'g, 'p> {
    program: &'g Program<'p>,
    axes: usize,
    /// What a unit takes of the room of a node, kind by kind, guest by guest.
    shares: Vec<Vec<f64>>,
    /// What part of its price each resource of a kind bears.
    parts: Vec<f64>,
    /// What was asked for of each resource of a kind, in nodes.
    loads: Vec<f64>,
    /// By row.
    offers: Vec<Vec<Offer>>,
}

impl Program<'_> {
    /// What one unit of each row is worth. There must be kinds.
    pub(super) fn fractional_worths(&self) -> Vec<f64> {
        let mut ascent = Ascent::new(self);
        let mut best = (0.0, vec![0.0; self.demands.len()]);
        for round in 0..ROUNDS {
            let progress = round as f64 / ROUNDS as f64;
            let between = |(from, to): (f64, f64)| from + (to - from) * progress;
            let worths = ascent.ask(between(SOFTNESS), round == SIFTING.0);
            let bound: f64 = worths.iter().zip(&self.demands).map(|(worth, &demand)| worth * demand as f64).sum();
            if bound > best.0 {
                best = (bound, worths);
            }
            for (parts, load) in ascent.parts.chunks_exact_mut(ascent.axes).zip(ascent.loads.chunks_exact(ascent.axes))
            {
                move_parts(parts, load, between(STEP));
            }
        }
        best.1
    }
}

impl<'g, 'p> Ascent<'g, 'p> {
    fn new(program: &'g Program<'p>) -> Self {
        let axes = program.kinds[0].room.len();
        let mut offers: Vec<Vec<Offer>> = vec![Vec::new(); program.demands.len()];
        for (index, kind) in program.kinds.iter().enumerate() {
            kind.guests.iter().enumerate().for_each(|(number, guest)| offers[guest.row].push((index, number)));
        }
        Self {
            program,
            axes,
            shares: program.kinds.iter().map(Kind::shares).collect(),
            parts: vec![1.0 / axes as f64; program.kinds.len() * axes],
            loads: vec![0.0; program.kinds.len() * axes],
            offers,
        }
    }

    /// Lets units ask for the nodes that are cheapest for them, or nearly so, and gives back what one of each row pays.
    fn ask(&mut self, softness: f64, is_sifting: bool) -> Vec<f64> {
        self.loads.fill(0.0);
        let mut worths = Vec::with_capacity(self.offers.len());
        for row in 0..self.offers.len() {
            let mut asked: Vec<(f64, Offer)> =
                self.offers[row].iter().map(|&offer| (self.price(offer), offer)).collect();
            let least = asked.iter().map(|(price, _)| *price).fold(f64::INFINITY, f64::min);
            worths.push(least);
            if is_sifting {
                asked.retain(|(price, _)| *price <= least * SIFTING.1);
                self.offers[row] = asked.iter().map(|(_, offer)| *offer).collect();
            }
            let scale = softness * least;
            asked.retain(|(price, _)| price - least < HORIZON * scale);
            let weights: Vec<f64> = asked.iter().map(|(price, _)| (-(price - least) / scale).exp()).collect();
            let total: f64 = weights.iter().sum();
            for (weight, (_, (kind, guest))) in weights.into_iter().zip(asked) {
                let count = self.program.demands[row] as f64 * weight / total;
                let share = &self.shares[kind][guest * self.axes..(guest + 1) * self.axes];
                let load = &mut self.loads[kind * self.axes..(kind + 1) * self.axes];
                load.iter_mut().zip(share).for_each(|(load, share)| *load += count * share);
            }
        }
        worths
    }

    /// What a unit pays.
    fn price(&self, (kind, guest): Offer) -> f64 {
        let parts = &self.parts[kind * self.axes..(kind + 1) * self.axes];
        let share = &self.shares[kind][guest * self.axes..(guest + 1) * self.axes];
        let kind = &self.program.kinds[kind];
        let cost = kind.cost(kind.guests[guest].is_limited);
        cost * parts.iter().zip(share).map(|(part, share)| part * share).sum::<f64>()
    }
}

/// Moves what resources bear towards those of which most is asked for.
fn move_parts(parts: &mut [f64], load: &[f64], step: f64) {
    let most = load.iter().copied().fold(0.0, f64::max);
    if most <= 0.0 {
        return;
    }
    for (part, load) in parts.iter_mut().zip(load) {
        *part = (*part * (step * (load / most - 1.0)).exp()).max(1e-9);
    }
    let total: f64 = parts.iter().sum();
    for part in parts {
        *part /= total;
    }
}
