//! What the pods of a node may be worth at most, without filling it.
//!
//! Whatever the price of each resource, the pods of a node are worth no more than what its room costs, and what they are worth more
//! than what they take costs: weak duality of the linear program in which pods may be divided. The least of this for some lists of
//! prices takes an addition for each guest and list, where to fill a node takes a hundred times that.

use std::cmp::Reverse;

use ordered_float::OrderedFloat;

use super::{candidate::Candidate, problem::Tolerance, search::Search};

/// The shares of all that is asked for of a resource for which there is room where prices come from.
const ROOMS: [f64; 5] = [0.04, 0.1, 0.2, 0.4, 0.7];
/// How many lists of prices there are: for each of these one for either resource and one for both, and one in which nothing has a
/// price.
const LISTS: usize = 3 * ROOMS.len() + 1;
/// Bounds are this much higher, since floats are rounded.
const MARGIN: f64 = 1.0 + 1e-4;
/// Where a node has more guests than this it is full before most of them are looked at, so that filling it is no dearer.
const MOST_GUESTS: usize = 120;

/// What is known of all pods that are left.
pub(super) struct Appraiser {
    /// The price of each resource, by list.
    prices: Vec<[f32; LISTS]>,
    /// By how much all units of each shape that are left are worth more than what they take costs, by list.
    gains: Vec<[f32; LISTS]>,
    /// The same of all shapes.
    all_gains: [f32; LISTS],
}

/// The units of a shape that are left.
struct Left<'a> {
    count: f64,
    worth: f64,
    requests: &'a [i64],
}

impl Left<'_> {
    fn asked(&self, axis: usize) -> f64 {
        self.count * self.requests[axis] as f64
    }
}

impl Appraiser {
    pub(super) fn new(search: &Search<'_, '_>, tier: &[&Candidate]) -> Self {
        let left = left(search);
        let prices = prices(&left, &mean_room(search, tier));
        let mut appraiser = Self { prices, gains: Vec::new(), all_gains: [0.0; LISTS] };
        appraiser.look_at(&left);
        appraiser
    }

    /// Looks again at what is left.
    pub(super) fn update(&mut self, search: &Search<'_, '_>) {
        self.look_at(&left(search));
    }

    fn look_at(&mut self, left: &[Left<'_>]) {
        self.gains = left.iter().map(|left| self.gains_of(left)).collect();
        self.all_gains = [0.0; LISTS];
        self.gains.iter().for_each(|gains| add(&mut self.all_gains, gains, 1.0));
    }

    fn gains_of(&self, left: &Left<'_>) -> [f32; LISTS] {
        let mut gains = [coarse(left.worth); LISTS];
        for (prices, &request) in self.prices.iter().zip(left.requests) {
            add(&mut gains, prices, -(request as f32));
        }
        gains.map(|gain| gain.max(0.0) * coarse(left.count))
    }

    /// What the pods of a node of a candidate are worth at most.
    pub(super) fn most(&self, search: &Search<'_, '_>, candidate: &Candidate, tolerance: Tolerance) -> f64 {
        let mut most = [0.0; LISTS];
        for (prices, &room) in self.prices.iter().zip(search.problem.room_of(candidate)) {
            add(&mut most, prices, room.max(0) as f32);
        }
        if candidate.guests.len() > MOST_GUESTS {
            add(&mut most, &self.all_gains, 1.0);
        } else {
            let guests = candidate.guests.iter().filter(|guest| guest.tolerance <= tolerance);
            guests.for_each(|guest| add(&mut most, &self.gains[guest.shape()], 1.0));
        }
        f64::from(most.into_iter().fold(f32::INFINITY, f32::min)) * MARGIN
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the margin is larger than what is lost")]
const fn coarse(amount: f64) -> f32 {
    amount as f32
}

fn add(sums: &mut [f32; LISTS], amounts: &[f32; LISTS], times: f32) {
    sums.iter_mut().zip(amounts).for_each(|(sum, amount)| *sum += amount * times);
}

fn left<'s>(search: &'s Search<'_, '_>) -> Vec<Left<'s>> {
    let of_shape = |(index, lots): (usize, &Vec<usize>)| Left {
        count: lots.iter().map(|&lot| search.remaining(lot)).sum::<i64>() as f64,
        worth: search.worths[index],
        requests: &search.problem.lots.shapes[index].requests,
    };
    search.open.iter().enumerate().map(of_shape).collect()
}

/// The room of a node, as the mean of all.
fn mean_room(search: &Search<'_, '_>, tier: &[&Candidate]) -> Vec<f64> {
    let axes = 0..search.problem.base.classes.axes.names().len();
    let room = |axis: usize, candidate: &Candidate| search.problem.room_of(candidate)[axis].max(0) as f64;
    let of_all = |axis| tier.iter().map(|candidate| room(axis, candidate)).sum::<f64>();
    axes.map(|axis| of_all(axis) / tier.len().max(1) as f64).collect()
}

/// The price of each resource, by list: of one of the two scarcest what the last pods are worth that have room for it, and of both
/// together a half of that each.
fn prices(left: &[Left<'_>], room: &[f64]) -> Vec<[f32; LISTS]> {
    let asked = |axis: usize| left.iter().map(|left| left.asked(axis)).sum::<f64>();
    let scarcity = |axis: usize| if room[axis] > 0.0 { asked(axis) / room[axis] } else { 0.0 };
    let mut axes: Vec<(OrderedFloat<f64>, usize)> = (0..room.len())
        .map(|axis| (OrderedFloat(scarcity(axis)), axis))
        .filter(|(scarcity, _)| scarcity.0 > 0.0)
        .collect();
    axes.sort_by_key(|&(scarcity, _)| Reverse(scarcity));
    let scarcest: Vec<(usize, _)> = axes.iter().take(2).map(|&(_, axis)| (axis, last_worths(left, axis))).collect();
    let alone = |rank| scarcest.chunks(1).map(move |one| (1.0, one, rank));
    let both = |rank| (0.5, &*scarcest, rank);
    let lists = (0..ROOMS.len()).flat_map(|rank| alone(rank).chain([both(rank)]));
    let mut prices = vec![[0.0; LISTS]; room.len()];
    for (list, (share, some, rank)) in lists.enumerate() {
        for (axis, worths) in some {
            prices[*axis][list] = coarse(share * worths[rank]);
        }
    }
    prices
}

/// What a unit of a resource is worth to the last pods that have room, where those come first that are worth most for it.
fn last_worths(left: &[Left<'_>], axis: usize) -> [f64; ROOMS.len()] {
    let density = |left: &Left<'_>| OrderedFloat(left.worth / left.requests[axis] as f64);
    let mut by_density: Vec<&Left<'_>> = left.iter().filter(|left| left.asked(axis) > 0.0).collect();
    by_density.sort_by_key(|left| Reverse(density(left)));
    let all: f64 = by_density.iter().map(|left| left.asked(axis)).sum();
    ROOMS.map(|share| {
        let mut room = share * all;
        let is_last = |left: &&&Left<'_>| {
            room -= left.asked(axis);
            room <= 0.0
        };
        by_density.iter().find(is_last).or(by_density.last()).map_or(0.0, |left| density(left).0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Catalogs, InstanceType, Planner, Price, Quantity, Snapshot,
        api::{NodePool, Pod},
        schedule::search::Stranding,
    };

    fn machine(cpus: i64, gibibytes: i64) -> InstanceType {
        let memory = Quantity::from_units(gibibytes << 30);
        let capacity = [("cpu", Quantity::from_units(cpus)), ("memory", memory), ("pods", Quantity::from_units(30))];
        let price = Price::per_hour(0.04 * cpus as f64 + 0.005 * gibibytes as f64).expect("not below zero");
        InstanceType::named(format!("machine-{cpus}-{gibibytes}"), capacity).offering("on-demand", "a", price)
    }

    #[test]
    fn no_fill_is_worth_more_than_the_most() {
        let machines = (1..=24).flat_map(|cpus| [2, 4, 8].map(|ratio| machine(cpus, cpus * ratio))).collect();
        let mut builder = Snapshot::builder().pool(NodePool::named("general"));
        for number in 0..20_u32 {
            let (cpu, memory) = (200 + 370 * (number % 7), 256 + 700 * (number % 11));
            let pod = Pod::named(format!("pod-{number}")).cpu(&format!("{cpu}m")).memory(&format!("{memory}Mi"));
            builder = builder.pods(pod.replicas(3 + number % 4));
        }
        let snapshot = builder.build().expect("valid");
        let catalogs = Catalogs::shared(machines, snapshot.pools()).expect("valid");
        let planner = Planner::default();
        let problem = planner.prepare(&snapshot, &catalogs);
        let mut search = Search::new(&problem, Stranding::USUAL);
        let tier: Vec<&Candidate> = problem.candidates.iter().collect();
        let mut appraiser = Appraiser::new(&search, &tier);
        let (mut values, mut bounds, mut nodes) = (0.0, 0.0, 0);

        for &made in tier.iter().cycle() {
            appraiser.update(&search);
            for candidate in &tier {
                let value = search.fill(candidate, Tolerance::Full).value;
                let most = appraiser.most(&search, candidate, Tolerance::Full);
                assert!(value <= most, "{value} is more than {most}");
                (values, bounds) = (values + value, bounds + most);
            }
            let fill = search.fill(made, Tolerance::Full);
            if fill.guests.is_empty() {
                break;
            }
            nodes += search.make(made, &fill.guests, i64::MAX);
        }

        assert!(nodes > 5, "{nodes}");
        assert!(bounds < 1.3 * values, "{bounds} for {values}");
    }
}
