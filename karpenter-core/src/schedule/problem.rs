//! Everything that the search needs, worked out once.

use std::collections::BTreeMap;

use super::{
    PlannerOptions, Warning,
    amounts::Amounts,
    candidate::Candidate,
    claim,
    class::{Class, Classes, Constraint},
    pool::{AlternativeRows, Daemon, Pool},
    search::Seats,
};
use crate::{
    Catalogs, Snapshot,
    api::{Taint, TaintEffect, tolerates_all},
    cluster::{HostPort, Place, daemon_requests},
    reason::{Obstacle, PoolObstacle},
};

/// How willingly a pod goes to a node, as far as taints go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Tolerance {
    /// It tolerates every taint.
    Full,
    /// It does not tolerate a taint that only asks to be avoided.
    Reluctant,
}

/// A planning problem, ready to be solved.
///
/// Made by [`Planner::prepare`](super::Planner::prepare), which does the work that grows with the input; solving it
/// grows with the classes of equal pods.
pub struct Problem<'a> {
    pub(super) options: &'a PlannerOptions,
    pub(super) classes: Classes,
    /// By weight, the heaviest first, then by name.
    pub(super) pools: Vec<Pool<'a>>,
    /// The pools in which no node can be made, in the same order.
    pub(super) obstacles: Vec<PoolObstacle>,
    /// The names of all pools, in the same order.
    pub(super) pool_order: Vec<&'a str>,
    /// For each pool and constraint how the alternatives meet the pool, or `None` if its taints are not tolerated.
    pub(super) meets: Vec<Vec<Option<Meeting>>>,
    /// The nodes that could be made, pool by pool.
    pub(super) candidates: Vec<Candidate>,
    /// The pools, by index, that cannot keep enough values of a label with even one pod of a class.
    pub(super) too_few_values: BTreeMap<(usize, usize), Obstacle>,
    pub(super) places: Vec<OpenPlace<'a>>,
    /// The least that a node with the pod costs, as the share of it that the pod takes, by class; infinite if none can
    /// be made.
    pub(super) values: Vec<f64>,
    pub(super) warnings: Vec<Warning>,
}

/// How a constraint meets a pool: how willingly, and with which offerings by each alternative.
pub(super) type Meeting = (Tolerance, Vec<AlternativeRows>);

/// An existing place that may take pods.
pub(super) struct OpenPlace<'a> {
    pub(super) source: &'a Place,
    pub(super) room: Amounts,
}

impl<'a> Problem<'a> {
    pub(super) fn new(options: &'a PlannerOptions, snapshot: &'a Snapshot, catalogs: &'a Catalogs) -> Self {
        let daemons = daemons(snapshot);
        let classes = Classes::new(snapshot, &daemons);
        let mut order: Vec<_> = snapshot.pools().iter().collect();
        order.sort_by(|a, b| b.weight().cmp(&a.weight()).then_with(|| a.name().cmp(b.name())));
        let (mut pools, mut obstacles, mut warnings) = (Vec::new(), Vec::new(), Vec::new());
        for source in &order {
            let name = source.name().to_owned();
            if let Some(catalog) = catalogs.get(source.name()) {
                let count = Pool::reserved_count(source, catalog);
                if count > 0 {
                    warnings.push(Warning::ReservationsIgnored { pool: name.clone(), count });
                }
            }
            match Pool::new(source, snapshot, catalogs, &daemons, &classes.axes) {
                Ok(pool) => pools.push(pool),
                Err(obstacle) => {
                    warnings.push(Warning::PoolSkipped { pool: name.clone(), obstacle: (*obstacle).clone() });
                    obstacles.push(obstacle.of(&name));
                }
            }
        }
        let meets: Vec<Vec<_>> =
            pools.iter().map(|p| classes.constraints.iter().map(|c| meet(p, c)).collect()).collect();
        let places = snapshot.places().iter().filter(|p| !p.is_deleting && !p.is_closed);
        let mut places: Vec<_> =
            places.map(|source| OpenPlace { source, room: classes.axes.room(&source.free) }).collect();
        places.sort_by_key(|p| !p.source.is_initialized);
        let mut problem = Self {
            options,
            classes,
            pools,
            obstacles,
            pool_order: order.iter().map(|p| p.name()).collect(),
            meets,
            candidates: Vec::new(),
            too_few_values: BTreeMap::new(),
            places,
            values: Vec::new(),
            warnings,
        };
        problem.candidates = Candidate::all(&problem);
        problem.drop_guests_without_enough_values();
        problem.values = problem.appraise();
        for candidate in &mut problem.candidates {
            candidate.rank(&problem.values);
        }
        problem
    }

    /// Takes classes from the candidates of pools whose `minValues` not even one pod of the class leaves intact.
    fn drop_guests_without_enough_values(&mut self) {
        for pool in (0..self.pools.len()).filter(|&pool| self.pools[pool].has_min_values()) {
            for class in 0..self.classes.list.len() {
                if let Some(obstacle) = self.lacking_values(pool, class) {
                    self.too_few_values.insert((pool, class), obstacle);
                }
            }
        }
        let too_few = &self.too_few_values;
        for candidate in &mut self.candidates {
            candidate.guests.retain(|guest| !too_few.contains_key(&(candidate.pool, guest.class)));
        }
    }

    /// The label of which no node of the pool with one such pod leaves enough values; of several the nearest miss.
    fn lacking_values(&self, pool: usize, class: usize) -> Option<Obstacle> {
        let of_pool = self.candidates.iter().filter(|c| c.pool == pool);
        let alone = of_pool.filter_map(|candidate| {
            let guest = candidate.guests.iter().find(|guest| guest.class == class)?;
            let seats = Seats { class, alternative: guest.alternative, count: 1 };
            Some(claim::too_few_values(self, candidate, &[seats]))
        });
        // The first node that leaves enough ends the search.
        let misses = alone.collect::<Option<Vec<_>>>()?;
        let (key, min_values, available) = misses.into_iter().max_by_key(|(_, _, available)| *available)?;
        Some(Obstacle::MinValues { key, min_values, available })
    }

    /// The value of a pod of each class: what the cheapest node that takes it charges for the share that it takes.
    fn appraise(&self) -> Vec<f64> {
        let mut values = vec![f64::INFINITY; self.classes.list.len()];
        for candidate in &self.candidates {
            for guest in &candidate.guests {
                let value = &mut values[guest.class];
                *value = value.min(candidate.price * guest.share);
            }
        }
        values
    }

    pub(super) fn class(&self, index: usize) -> &Class {
        &self.classes.list[index]
    }

    pub(super) fn alternative(&self, pool: usize, constraint: usize, alternative: usize) -> &AlternativeRows {
        let (_, alternatives) =
            self.meets[pool][constraint].as_ref().expect("a guest tolerates the taints of its pool");
        &alternatives[alternative]
    }

    /// Whether some taint only asks to be avoided.
    pub(super) fn has_taints_to_avoid(&self) -> bool {
        let avoids = |taints: &[Taint]| taints.iter().any(|t| t.effect == TaintEffect::PreferNoSchedule);
        self.pools.iter().any(|p| avoids(p.taints())) || self.places.iter().any(|p| avoids(&p.source.taints))
    }

    /// How willingly the pods of a class go to a place, or `None` if they cannot.
    pub(super) fn place_tolerance(&self, constraint: usize, place: &Place) -> Option<Tolerance> {
        let constraint = &self.classes.constraints[constraint];
        if !constraint.wanted.admit_node(&place.name, &place.labels) {
            return None;
        }
        tolerance(constraint, &place.taints)
    }
}

fn daemons(snapshot: &Snapshot) -> Vec<Daemon> {
    let read = |spec| Daemon {
        constraint: Constraint::of_pod(spec),
        requests: daemon_requests(spec),
        host_ports: HostPort::of_pod(spec),
    };
    snapshot.daemonsets().iter().map(|d| read(&d.spec.template.spec)).collect()
}

fn tolerance(constraint: &Constraint, taints: &[Taint]) -> Option<Tolerance> {
    tolerates_all(&constraint.tolerations, taints, false).ok()?;
    let has_preferences = taints.iter().any(|t| t.effect == TaintEffect::PreferNoSchedule);
    let is_full = !has_preferences || tolerates_all(&constraint.tolerations, taints, true).is_ok();
    Some(if is_full { Tolerance::Full } else { Tolerance::Reluctant })
}

fn meet(pool: &Pool<'_>, constraint: &Constraint) -> Option<Meeting> {
    Some((tolerance(constraint, pool.taints())?, pool.alternatives(&constraint.wanted)))
}

impl PoolObstacle {
    pub(super) fn is_of(&self, pool: &str) -> bool {
        self.pool == pool
    }
}

impl Obstacle {
    /// Puts the name of a pool to an obstacle.
    pub(super) fn of(self, pool: &str) -> PoolObstacle {
        PoolObstacle { pool: pool.to_owned(), obstacle: self }
    }
}
