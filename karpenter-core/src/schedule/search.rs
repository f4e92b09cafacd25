//! Which nodes to make.
//!
//! Existing room costs nothing and is used first. Then, pool by pool in tiers of equal weight, the search makes the
//! node whose pods are worth most for its price, as many times as there are pods for it, until no pod is left or no
//! node helps. What a pod is worth is what the cheapest node charges for the share that it takes of it.

use super::{
    amounts::{Amounts, fit_count, take},
    candidate::Candidate,
    claim, explain,
    plan::Plan,
    problem::{Problem, Tolerance},
};
use crate::{Requirements, api::ObjectKey, cluster::HostPort};

/// The state of a search.
pub(super) struct Search<'p, 'a> {
    problem: &'p Problem<'a>,
    /// How many pods of each class are planned already; they are the first of the class.
    planned: Vec<usize>,
    place_room: Vec<Amounts>,
    place_ports: Vec<Vec<HostPort>>,
    /// What the limits of each pool leave.
    pub(super) limits_left: Vec<Vec<i64>>,
    plan: Plan,
}

/// The pods that one node takes.
#[derive(Clone, Debug, Default)]
pub(super) struct Fill {
    guests: Vec<Seats>,
    value: f64,
}

/// Pods of one class on one node.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seats {
    pub(super) class: usize,
    /// The index of the alternative of their constraint that the node meets.
    pub(super) alternative: usize,
    /// How many pods.
    pub(super) count: i64,
}

impl<'p, 'a> Search<'p, 'a> {
    pub(super) fn new(problem: &'p Problem<'a>) -> Self {
        Self {
            problem,
            planned: vec![0; problem.classes.list.len()],
            place_room: problem.places.iter().map(|p| p.room.clone()).collect(),
            place_ports: problem.places.iter().map(|p| p.source.host_ports.clone()).collect(),
            limits_left: problem.pools.iter().map(|p| p.limits.iter().map(|l| l.most - l.used).collect()).collect(),
            plan: Plan { warnings: problem.warnings.clone(), is_complete: true, ..Plan::default() },
        }
    }

    pub(super) fn run(mut self) -> Plan {
        // Taints that only ask to be avoided are obeyed as long as there is any other way.
        for tolerance in [Tolerance::Full, Tolerance::Reluctant] {
            self.use_places(tolerance);
            for tier in self.tiers() {
                self.make_nodes(&tier, tolerance);
            }
            if !self.problem.has_taints_to_avoid() {
                break;
            }
        }
        let mut plan = std::mem::take(&mut self.plan);
        plan.existing.values_mut().for_each(|pods| pods.sort());
        plan.unplaced.extend(self.problem.classes.refused.clone());
        for class in 0..self.planned.len() {
            let left = &self.problem.class(class).pods[self.planned[class]..];
            if !left.is_empty() {
                let reason = explain::no_place(self.problem, class, &self.limits_left);
                plan.unplaced.extend(left.iter().map(|pod| (pod.clone(), reason.clone())));
            }
        }
        plan
    }

    fn remaining(&self, class: usize) -> i64 {
        i64::try_from(self.problem.class(class).pods.len() - self.planned[class]).unwrap_or(i64::MAX)
    }

    fn next_pods(&mut self, class: usize, count: i64) -> &'p [ObjectKey] {
        let from = self.planned[class];
        let to = from + usize::try_from(count).expect("a number of pods is not negative");
        self.planned[class] = to;
        &self.problem.class(class).pods[from..to]
    }

    /// How many pods of a class a node can take on which these ports are taken.
    fn most_by_ports(&self, class: usize, taken: &[HostPort]) -> i64 {
        match self.problem.class(class).host_ports.as_slice() {
            [] => i64::MAX,
            wanted => i64::from(!HostPort::any_clash(wanted, taken)),
        }
    }

    /// Fills the room that there is, with those first that nothing else takes, then with the most valuable.
    fn use_places(&mut self, tolerance: Tolerance) {
        let problem = self.problem;
        let mut order: Vec<usize> = (0..self.planned.len()).collect();
        // Values of pods that no new node takes are infinite. Among equals the larger pods are harder to place.
        order.sort_by(|&a, &b| {
            let (a_requests, b_requests) = (&problem.class(a).requests, &problem.class(b).requests);
            problem.values[b].total_cmp(&problem.values[a]).then_with(|| b_requests.cmp(a_requests)).then(a.cmp(&b))
        });
        for (index, place) in problem.places.iter().enumerate() {
            let mut tolerances = vec![None; problem.classes.constraints.len()];
            for &class in &order {
                let (constraint, requests) = (problem.class(class).constraint, &problem.class(class).requests);
                let most = self.most_by_ports(class, &self.place_ports[index]);
                let count = fit_count(requests, &self.place_room[index]).min(self.remaining(class)).min(most);
                if count == 0 {
                    continue;
                }
                let known = &mut tolerances[constraint];
                let found = *known.get_or_insert_with(|| problem.place_tolerance(constraint, place.source));
                if found.is_none_or(|t| t > tolerance) {
                    continue;
                }
                take(&mut self.place_room[index], requests, count);
                self.place_ports[index].extend_from_slice(&problem.class(class).host_ports);
                let pods = self.next_pods(class, count);
                self.plan.existing.entry(place.source.name.clone()).or_default().extend_from_slice(pods);
            }
        }
    }

    /// The candidates of each weight, the heaviest first.
    fn tiers(&self) -> Vec<Vec<&'p Candidate>> {
        let mut tiers: Vec<(u32, Vec<&Candidate>)> = Vec::new();
        for candidate in &self.problem.candidates {
            let weight = self.problem.pools[candidate.pool].source.weight();
            match tiers.last_mut() {
                Some((last, tier)) if *last == weight => tier.push(candidate),
                _ => tiers.push((weight, vec![candidate])),
            }
        }
        tiers.into_iter().map(|(_, tier)| tier).collect()
    }

    /// Makes nodes of some candidates until no node helps.
    fn make_nodes(&mut self, tier: &[&'p Candidate], tolerance: Tolerance) {
        let mut fills: Vec<Option<Fill>> = vec![None; tier.len()];
        loop {
            let mut best: Option<(usize, f64)> = None;
            for (index, &candidate) in tier.iter().enumerate() {
                if !self.is_within_limits(candidate) {
                    continue;
                }
                // A fill stays what it is for as long as there are enough pods for it, because pods only get fewer.
                let is_current =
                    |fill: &Fill| fill.guests.iter().all(|seats| seats.count <= self.remaining(seats.class));
                if !fills[index].as_ref().is_some_and(is_current) {
                    fills[index] = Some(self.fill(candidate, tolerance));
                }
                let Some(fill) = fills[index].as_ref().filter(|fill| !fill.guests.is_empty()) else { continue };
                let score = fill.value / candidate.price;
                if best.is_none_or(|(_, score_of_best)| score > score_of_best) {
                    best = Some((index, score));
                }
            }
            let Some((index, _)) = best else { return };
            let fill = fills[index].take().unwrap_or_default();
            self.make(tier[index], &fill);
        }
    }

    /// The pods that a candidate takes, the most valuable for their room first.
    fn fill(&self, candidate: &Candidate, tolerance: Tolerance) -> Fill {
        let problem = self.problem;
        let pool = &problem.pools[candidate.pool];
        let mut room = pool.variant(candidate.row).room.clone();
        let mut host_ports = pool.variant(candidate.row).host_ports.clone();
        let mut fill = Fill::default();
        let mut settled: Option<Requirements> = None;
        for guest in candidate.guests.iter().filter(|g| g.tolerance <= tolerance) {
            let class = problem.class(guest.class);
            let most = self.most_by_ports(guest.class, &host_ports);
            let count = fit_count(&class.requests, &room).min(self.remaining(guest.class)).min(most);
            if count == 0 {
                continue;
            }
            let seats = Seats { class: guest.class, alternative: guest.alternative, count };
            let Some(seats) = self.within_min_values(candidate, &fill.guests, seats) else { continue };
            let alternative = problem.alternative(candidate.pool, class.constraint, guest.alternative);
            if alternative.is_open_ended {
                let mut all = settled.clone().unwrap_or_else(|| pool.requirements.clone());
                all.add_all(&alternative.narrowing);
                if !pool.can_settle(candidate.row, &all) {
                    continue;
                }
                settled = Some(all);
            }
            take(&mut room, &class.requests, seats.count);
            host_ports.extend_from_slice(&class.host_ports);
            fill.guests.push(seats);
            fill.value += problem.values[guest.class] * seats.count as f64;
        }
        fill
    }

    /// As many of these pods as leave the claim enough distinct values of the labels for which its pool asks them.
    fn within_min_values(&self, candidate: &Candidate, guests: &[Seats], mut seats: Seats) -> Option<Seats> {
        if !self.problem.pools[candidate.pool].has_min_values() {
            return Some(seats);
        }
        // The more pods, the fewer types are large enough for them.
        let (mut fits, mut too_many) = (0, seats.count + 1);
        while too_many - fits > 1 {
            seats.count = fits + (too_many - fits) / 2;
            let all: Vec<Seats> = guests.iter().copied().chain([seats]).collect();
            let is_enough = claim::too_few_values(self.problem, candidate, &all).is_none();
            *(if is_enough { &mut fits } else { &mut too_many }) = seats.count;
        }
        seats.count = fits;
        (fits > 0).then_some(seats)
    }

    fn is_within_limits(&self, candidate: &Candidate) -> bool {
        let pool = &self.problem.pools[candidate.pool];
        let type_index = pool.variant(candidate.row).type_index;
        let left = &self.limits_left[candidate.pool];
        pool.limits.iter().zip(left).all(|(limit, &left)| limit.capacity_by_type[type_index] <= left)
    }

    /// Makes as many nodes of a candidate as there are pods and limits for.
    fn make(&mut self, candidate: &Candidate, fill: &Fill) {
        let by_pods = fill.guests.iter().map(|seats| self.remaining(seats.class) / seats.count).min().unwrap_or(0);
        let pool = &self.problem.pools[candidate.pool];
        let type_index = pool.variant(candidate.row).type_index;
        let sizes: Vec<i64> = pool.limits.iter().map(|limit| limit.capacity_by_type[type_index]).collect();
        let left = &self.limits_left[candidate.pool];
        let by_limits = sizes.iter().zip(left).filter(|(size, _)| **size > 0).map(|(size, left)| left / size);
        let count = by_limits.min().unwrap_or(i64::MAX).min(by_pods);
        take(&mut self.limits_left[candidate.pool], &sizes, count);
        let claim = claim::make(self.problem, candidate, &fill.guests);
        for _ in 0..count {
            let mut claim = claim.clone();
            for seats in &fill.guests {
                claim.pods.extend_from_slice(self.next_pods(seats.class, seats.count));
            }
            claim.pods.sort();
            self.plan.claims.push(claim);
        }
    }
}
