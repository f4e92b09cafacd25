//! Everything that the search needs, worked out once.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
};

use ordered_float::OrderedFloat;

use super::{
    PlannerOptions, PreferencePolicy, StopFlag, Warning,
    amounts::{Amounts, fits, least, take},
    candidate::Candidate,
    class::{Classes, Constraint},
    eligible,
    first_fit::LimitUse,
    flexibility, landing,
    limit::Limit,
    lot::{Lot, Lots, Shape},
    occupancy::Occupancy,
    pool::{AlternativeRows, Daemon, Pool},
    reservation::Reservations,
    search::Seats,
    shelf::{Answers, Heirlooms, Shelf},
    topology::{Answered, Ladders, Lessons, allot},
    weigh::{Tariff, Weighing},
};
use crate::{
    Catalogs, Snapshot,
    api::{Taint, TaintEffect, tolerates_all},
    cluster::{HostPort, Place, daemon_requests},
    reason::{Obstacle, PoolObstacle},
};

/// The value, in dollars an hour, of all that a reserved node holds for pods that no other node takes: more than any
/// machine costs.
const VALUE_OF_RESERVED: f64 = 1e6;

/// What a dollar an hour counts for beside the share of a limit: little enough that no bill outweighs it.
const PRICE_BESIDE_LIMITS: f64 = 1e-9;

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
    pub(super) course: Course,
    pub(super) base: Arc<Base<'a>>,
    /// The pods as they are to be packed.
    pub(super) lots: Lots,
    /// For each pool and constraint how the alternatives meet the pool, or `None` if its taints are not tolerated.
    pub(super) meets: Vec<Vec<Option<Meeting>>>,
    /// The nodes that could be made, pool by pool.
    pub(super) candidates: Vec<Candidate>,
    /// For each pool the offerings on the spot market of which claims keep some; see [`flexibility`].
    pub(super) spot_rows: Vec<Arc<[usize]>>,
    /// The pools, by index, that cannot keep enough values of a label with even one unit of a shape.
    pub(super) too_few_values: BTreeMap<(usize, usize), Obstacle>,
    /// The least that a node with a unit costs, as the share of it that the unit takes, by shape; infinite if none can be
    /// made.
    pub(super) values: Vec<f64>,
    /// What a unit is worth on average, in dollars an hour.
    pub(super) mean_value: f64,
    /// The weight of the heaviest pool that takes units of each lot, once it is asked for.
    pub(super) weights_of_lots: Answers<(), Vec<u32>>,
}

impl fmt::Debug for Problem<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Problem")
            .field("units", &self.lots.list.len())
            .field("candidates", &self.candidates.len())
            .finish_non_exhaustive()
    }
}

/// What a search goes for, and who gets the room that there is.
#[derive(Clone, Debug, Default)]
pub(super) struct Course {
    pub(super) aim: Aim,
    pub(super) order: Order,
    /// Classes that come before all others.
    pub(super) first: BTreeSet<usize>,
    /// So many pods of a class get the room that there is before all others, the largest first.
    pub(super) sure: BTreeMap<usize, usize>,
    /// Classes that get no place, as others wait for their company in vain.
    pub(super) aside: BTreeSet<usize>,
    pub(super) trials: Trials,
    /// Whether pods are weighed against the room of each place too, see [`Order::Worth`].
    pub(super) weighs_room: bool,
    /// Whether pods get room where a taint asks them to keep away before a node is made for them elsewhere. Limits may leave
    /// no other way for some, and it matters for which.
    pub(super) spills: bool,
    pub(super) spot_types: SpotTypes,
    /// Whether pods of a spread are divided among domains as evenly as can be, even where it allows more.
    pub(super) spreads_evenly: bool,
    /// Ends the search, if something may.
    pub(super) stop: Option<StopFlag>,
    /// Which of their wishes pods keep, one step after the other.
    pub(super) ladders: Arc<Ladders>,
}

impl Course {
    /// Whether the plan is one of those by which it is found out which nodes go: each is a step towards others.
    pub(super) fn is_step(&self) -> bool {
        self.weighs_room || self.trials != Trials::All
    }

    /// Whether pods of a spread are divided so; Karpenter divides them pod by pod.
    pub(super) fn spreads_as_evenly_as_can_be(&self) -> bool {
        self.spreads_evenly || self.order.is_karpenters()
    }
}

/// How much is tried for a plan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Trials {
    /// The first plan that is found will do.
    First,
    /// What is worth its time where very many plans are compared.
    Few,
    /// All that is worth its time.
    #[default]
    All,
}

/// Who comes first where nodes exist already, and on new ones with [`Order::Plain`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Order {
    /// Those that can go nowhere else, then the most valuable.
    #[default]
    Need,
    /// The largest, CPU before all else: the order that Karpenter follows.
    Size,
    /// The same, and the places that have least room are filled first, so that large pods leave the larger ones to others.
    Tightest,
    /// As [`Order::Size`], and new nodes are made pod by pod in this order too. Where limits leave too few nodes, the search by
    /// worth may leave more pods.
    Plain(LimitUse),
    /// Those that can go nowhere else, then for each place those that are worth most for what they take of its room. As
    /// [`Order::Need`] where there is too much to weigh.
    Worth,
}

impl Order {
    /// Whether pods come, and give up wishes, as in Karpenter.
    pub(super) const fn is_karpenters(self) -> bool {
        matches!(self, Self::Plain(_))
    }

    pub(super) const fn is_by_size(self) -> bool {
        matches!(self, Self::Size | Self::Tightest | Self::Plain(_))
    }
}

/// How many types claims name for the spot market.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum SpotTypes {
    /// As many as are to be kept.
    #[default]
    Enough,
    /// Any number.
    Any,
}

/// What a search goes for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Aim {
    /// The lowest bill.
    #[default]
    Bill,
    /// As many pods as limits leave room for: what a node takes of them is its price, and all pods are worth the same.
    Pods,
}

/// What is known before any pod is given a domain.
pub(super) struct Base<'a> {
    pub(super) options: &'a PlannerOptions,
    /// What becomes of wishes.
    pub(super) preferences: PreferencePolicy,
    /// What wishes cost that are not met, where plans are compared by that.
    pub(super) tariff: Option<Tariff>,
    /// What else plans are made from if wishes are weighed.
    pub(super) weighing: Option<Weighing<'a>>,
    pub(super) snapshot: &'a Snapshot,
    pub(super) catalogs: &'a Catalogs,
    pub(super) classes: Classes<'a>,
    /// By weight, the heaviest first, then by name.
    pub(super) pools: Vec<Pool<'a>>,
    /// The pools in which no node can be made, in the same order.
    pub(super) obstacles: Vec<PoolObstacle>,
    /// The names of all pools, in the same order.
    pub(super) pool_order: Vec<&'a str>,
    /// The places that may take pods; in a sketch those alone that have room for some.
    pub(super) places: Vec<OpenPlace<'a>>,
    /// How many places may take pods, whether or not they have room.
    pub(super) place_count: usize,
    /// Whether some of these have taints that only ask to be avoided.
    has_places_to_avoid: bool,
    pub(super) reservations: Reservations,
    /// How many nodes limits allow whichever types are bought for them. Wishes for nodes of one's own go no further:
    /// they must not use up limits.
    pub(super) sure_nodes: usize,
    /// Whether pods are left that the kube-scheduler could not place when the newest node came.
    pub(super) has_leftovers: bool,
    pub(super) warnings: Vec<Warning>,
    /// What the nodes that there are cost, once somebody asked.
    pub(super) bill_of_places: Answers<(), f64>,
    /// The places as pods find them that are bound, once somebody asked.
    pub(super) places_to_land_on: Answers<(), landing::Fleet>,
    /// How far each class is from the heaviest pools, once somebody asked.
    pub(super) heavier_of_classes: Answers<(), Vec<usize>>,
    /// What was asked about domains so far.
    pub(super) answered: Heirlooms<Answered>,
    pub(super) shelf: Option<Shelf>,
}

/// How a constraint meets a pool: how willingly, and with which offerings by each alternative.
pub(super) type Meeting = (Tolerance, Arc<[AlternativeRows]>);

/// An existing place that may take pods.
pub(super) struct OpenPlace<'a> {
    pub(super) source: &'a Place,
    /// Its index among the places of the snapshot.
    pub(super) index: usize,
    pub(super) room: Amounts,
    pub(super) occupancy: Occupancy,
}

impl<'a> Base<'a> {
    pub(super) fn new(
        options: &'a PlannerOptions,
        snapshot: &'a Snapshot,
        catalogs: &'a Catalogs,
        is_sketch: bool,
        shelf: Option<&Shelf>,
    ) -> Self {
        let of_policy = |preferences| Self::of_policy(options, preferences, (snapshot, catalogs), is_sketch, shelf);
        match options.preferences {
            PreferencePolicy::Weigh => Self::weighed(of_policy),
            preferences => of_policy(preferences),
        }
    }

    fn of_policy(
        options: &'a PlannerOptions,
        preferences: PreferencePolicy,
        (snapshot, catalogs): (&'a Snapshot, &'a Catalogs),
        is_sketch: bool,
        shelf: Option<&Shelf>,
    ) -> Self {
        let daemons = daemons(snapshot);
        let classes = Classes::new(snapshot, &daemons, options, preferences);
        let mut order: Vec<_> = snapshot.pools().iter().collect();
        order.sort_by(|a, b| b.weight().cmp(&a.weight()).then_with(|| a.name().cmp(b.name())));
        let (mut pools, mut obstacles, mut warnings) = (Vec::new(), Vec::new(), Vec::new());
        for source in &order {
            let name = source.name().to_owned();
            match Pool::new(source, snapshot, catalogs, &daemons, &classes.axes, shelf) {
                Ok(pool) => pools.push(pool),
                Err(obstacle) => {
                    if *obstacle != Obstacle::Static {
                        warnings.push(Warning::PoolSkipped { pool: name.clone(), obstacle: (*obstacle).clone() });
                    }
                    obstacles.push(obstacle.of(&name));
                }
            }
        }
        let reservations = Reservations::new(snapshot, &pools);
        for pool in pools.iter_mut().filter(|_| !reservations.left.is_empty()) {
            let is_used_up =
                |row: &usize| reservations.of(pool.catalog, *row).is_some_and(|i| reservations.left[i] <= 0);
            let used_up: Vec<usize> = pool.open_rows.ones().filter(is_used_up).collect();
            for row in used_up {
                pool.close(row);
            }
        }
        let open = snapshot.places().iter().enumerate().filter(|(_, place)| place.is_open());
        let (place_count, avoids) = (open.clone().count(), open.clone().any(|(_, place)| avoids(&place.taints)));
        let least = least(classes.list.iter().map(|class| &class.requests));
        let place = |(index, source): (usize, &'a Arc<Place>)| {
            let room = classes.axes.room_of(source);
            let is_of_use = !is_sketch || fits(&least, &room);
            is_of_use.then(|| OpenPlace {
                source,
                index,
                room,
                occupancy: Occupancy::of_place(snapshot, index, &classes),
            })
        };
        let mut places: Vec<_> = open.filter_map(place).collect();
        places.sort_by_key(|p| !p.source.is_initialized);
        let pool_order = order.iter().map(|p| p.name()).collect();
        let sure_nodes = pools.iter().map(Pool::sure_nodes).fold(0, usize::saturating_add);
        Self {
            options,
            preferences,
            tariff: None,
            weighing: None,
            snapshot,
            catalogs,
            classes,
            pools,
            obstacles,
            pool_order,
            place_count,
            has_places_to_avoid: avoids,
            places,
            reservations,
            sure_nodes,
            has_leftovers: has_leftovers(snapshot),
            warnings,
            bill_of_places: Answers::up_to(1),
            places_to_land_on: Answers::up_to(1),
            heavier_of_classes: Answers::up_to(1),
            answered: Heirlooms::default(),
            shelf: shelf.cloned(),
        }
    }

    /// The same for a cluster that differs in its pools alone.
    pub(super) fn of_other_pools<'s>(&'s self, snapshot: &'s Snapshot) -> Base<'s> {
        let of = (snapshot, self.catalogs);
        let base = Base::of_policy(self.options, self.preferences, of, false, self.shelf.as_ref());
        Base { tariff: self.tariff.clone(), ..base }
    }

    /// Whether some pool asks for distinct values of a label.
    pub(super) fn has_min_values(&self) -> bool {
        self.pools.iter().any(Pool::has_min_values)
    }

    /// Whether some taint only asks to be avoided.
    pub(super) fn has_taints_to_avoid(&self) -> bool {
        self.has_places_to_avoid || self.pools.iter().any(|p| avoids(p.taints()))
    }
}

impl<'a> Problem<'a> {
    pub(super) fn new(base: Arc<Base<'a>>, lessons: &Lessons, course: Course) -> Self {
        let lots = Lots::new(&base, allot(&base, lessons, &course));
        Self::of_lots(base, lots, course)
    }

    /// The problem of pods that are divided already.
    pub(super) fn of_lots(base: Arc<Base<'a>>, lots: Lots, course: Course) -> Self {
        let meets = base.pools.iter().map(|p| lots.constraints.iter().map(|c| meet(p, c)).collect()).collect();
        let spot_rows = flexibility::spot_rows(&base, &course);
        let mut problem = Self {
            course,
            base,
            lots,
            meets,
            candidates: Vec::new(),
            spot_rows,
            too_few_values: BTreeMap::new(),
            values: Vec::new(),
            mean_value: 0.0,
            weights_of_lots: Answers::up_to(1),
        };
        problem.candidates = Candidate::all(&problem);
        problem.drop_guests_without_enough_values();
        let has_other = problem.appraise();
        if problem.course.aim == Aim::Pods {
            problem.price_by_limits();
        }
        let Self { candidates, base, values, lots, .. } = &mut problem;
        Candidate::rank_all(candidates, &base.pools, (values, &has_other), lots);
        problem
    }

    /// Takes shapes from the candidates of pools whose `minValues` not even one unit of the shape leaves intact.
    fn drop_guests_without_enough_values(&mut self) {
        for pool in (0..self.base.pools.len()).filter(|&pool| self.base.pools[pool].has_min_values()) {
            for shape in 0..self.lots.shapes.len() {
                if let Some(obstacle) = self.lacking_values(pool, shape) {
                    self.too_few_values.insert((pool, shape), obstacle);
                }
            }
        }
        let too_few = &self.too_few_values;
        for candidate in &mut self.candidates {
            candidate.guests.retain(|guest| !too_few.contains_key(&(candidate.pool, guest.shape())));
        }
    }

    /// The label of which no node of the pool with one such unit leaves enough values; of several the nearest miss.
    fn lacking_values(&self, pool: usize, shape: usize) -> Option<Obstacle> {
        let of_pool = self.candidates.iter().filter(|c| c.pool == pool);
        let lot = self.lots.of_shapes[shape][0];
        let alone = of_pool.filter_map(|candidate| {
            Some(eligible::too_few_values(self, candidate, &[candidate.guest(shape)?.seats(lot, 1)]))
        });
        // The first node that leaves enough ends the search.
        let misses = alone.collect::<Option<Vec<_>>>()?;
        let (key, min_values, available) = misses.into_iter().max_by_key(|(_, _, available)| *available)?;
        Some(Obstacle::MinValues { key, min_values, available })
    }

    /// The value of a unit of each shape: what the cheapest node that takes it charges for the share that it takes.
    ///
    /// A reservation costs next to nothing but is soon used up, so it says nothing about the value of a unit; units that
    /// nothing else takes come before all others. Of each shape it says whether nodes take it that are not reserved.
    fn appraise(&mut self) -> Vec<bool> {
        self.values = vec![f64::INFINITY; self.lots.shapes.len()];
        let (reserved, unlimited): (Vec<_>, Vec<_>) = self.candidates.iter().partition(|c| c.is_reserved());
        for candidate in unlimited {
            for guest in &candidate.guests {
                let value = &mut self.values[guest.shape()];
                *value = value.min(candidate.price * guest.share);
            }
        }
        self.mean_value = self.average_value();
        let has_other: Vec<bool> = self.values.iter().map(|value| value.is_finite()).collect();
        for guest in reserved.into_iter().flat_map(|candidate| &candidate.guests) {
            if !has_other[guest.shape()] {
                self.values[guest.shape()] = self.values[guest.shape()].min(VALUE_OF_RESERVED * guest.share);
            }
        }
        has_other
    }

    /// The value of a unit on average, of those that some node takes.
    fn average_value(&self) -> f64 {
        let valued = self.lots.list.iter().map(|lot| (self.values[lot.shape], lot.units() as f64));
        let (value, count) = valued
            .filter(|(value, _)| value.is_finite())
            .fold((0.0, 0.0), |(sum, count), (value, units)| (sum + value * units, count + units));
        if count > 0.0 { value / count } else { 0.0 }
    }

    /// Makes all pods worth the same, and prices nodes by the largest share that they take of what a limit leaves.
    fn price_by_limits(&mut self) {
        for candidate in &mut self.candidates {
            let pool = &self.base.pools[candidate.pool];
            let share = |(limit, &most): (&Limit, &i64)| most as f64 / limit.left().max(1) as f64;
            let by_limits = pool.limits.iter().zip(&candidate.ceiling).map(share).fold(0.0, f64::max);
            // Where limits do not tell, the bill does.
            candidate.price = by_limits + candidate.price * PRICE_BESIDE_LIMITS;
        }
        self.mean_value = 0.0;
        for (value, shape) in self.values.iter_mut().zip(&self.lots.shapes).filter(|(value, _)| value.is_finite()) {
            *value = shape.unit_size as f64;
        }
    }

    /// What the cheapest of some candidates costs that takes a unit of each shape, reservations apart; infinite if none does.
    pub(super) fn cheapest_nodes(&self, candidates: &[Candidate]) -> Vec<f64> {
        let mut cheapest = vec![f64::INFINITY; self.lots.shapes.len()];
        for candidate in candidates.iter().filter(|candidate| !candidate.is_reserved()) {
            for guest in &candidate.guests {
                cheapest[guest.shape()] = cheapest[guest.shape()].min(candidate.price);
            }
        }
        cheapest
    }

    /// What nodes may cost so that there are enough for those pods of which a node takes only a few that would cost most on
    /// nodes of their own, in dollars an hour. Any price if there are no such pods. Each pool still has a node for each unit
    /// that it takes.
    pub(super) fn price_among_equals(&self) -> f64 {
        let cheapest = self.cheapest_nodes(&self.candidates);
        let alone = cheapest.iter().zip(&self.lots.nodes_for_loners);
        let alone = alone.map(|(&price, &nodes)| (OrderedFloat(price * nodes as f64), nodes));
        let dearest = alone.filter(|(price, nodes)| price.is_finite() && *nodes > 0).max();
        let Some((_, nodes)) = dearest else { return f64::INFINITY };
        let worth = self.mean_value * self.lots.units() as f64;
        let of_pools = self.candidates.chunk_by(|a, b| a.pool == b.pool).flat_map(|pool| self.cheapest_nodes(pool));
        of_pools.filter(|price| price.is_finite()).fold(worth / nodes as f64, f64::max)
    }

    /// The weight of the pool of a candidate.
    pub(super) fn weight(&self, candidate: &Candidate) -> u32 {
        self.base.pools[candidate.pool].source.weight()
    }

    /// What each pod is worth that some node takes, in dollars an hour, by its index in the snapshot.
    pub(crate) fn values_of_pods(&self) -> BTreeMap<usize, f64> {
        let lots = self.lots.list.iter().map(|lot| (lot, self.values[lot.shape] / lot.unit_size as f64));
        let valued = lots.filter(|(_, value)| value.is_finite());
        valued.flat_map(|(lot, value)| lot.pods.iter().map(move |&pod| (pod, value))).collect()
    }

    /// What a unit of a lot is worth.
    pub(super) fn value(&self, lot: usize) -> f64 {
        self.values[self.lot(lot).shape]
    }

    /// The shape of a lot.
    pub(super) fn shape(&self, lot: &Lot) -> &Shape {
        &self.lots.shapes[lot.shape]
    }

    pub(super) fn lot(&self, index: usize) -> &Lot {
        &self.lots.list[index]
    }

    /// The room that an empty node of a candidate leaves to pods.
    pub(super) fn room_of(&self, candidate: &Candidate) -> &Amounts {
        &self.base.pools[candidate.pool].variant(candidate.row).room
    }

    /// What units ask for together.
    pub(super) fn total(&self, guests: &[Seats]) -> Amounts {
        let mut out = self.base.classes.axes.zero();
        for seats in guests {
            take(&mut out, &self.lot(seats.lot).requests, -seats.count);
        }
        out
    }

    pub(super) fn alternative(&self, pool: usize, constraint: usize, alternative: usize) -> &AlternativeRows {
        &self.alternatives(pool, constraint)[alternative]
    }

    /// How the alternatives of the constraint of a guest meet its pool.
    pub(super) fn alternatives(&self, pool: usize, constraint: usize) -> &[AlternativeRows] {
        let (_, alternatives) =
            self.meets[pool][constraint].as_ref().expect("a guest tolerates the taints of its pool");
        alternatives
    }

    /// How willingly pods with a constraint go to a place, or `None` if they cannot.
    pub(super) fn place_tolerance(&self, constraint: usize, place: &Place) -> Option<Tolerance> {
        self.lots.constraints[constraint].tolerance_of(place)
    }
}

impl Constraint {
    /// How willingly pods go to a place, or `None` if they cannot.
    pub(super) fn tolerance_of(&self, place: &Place) -> Option<Tolerance> {
        if self.wanted.admit_node(&place.name, &place.labels) { tolerance(self, &place.taints) } else { None }
    }
}

/// Whether some of these taints only ask to be avoided.
fn avoids(taints: &[Taint]) -> bool {
    taints.iter().any(|taint| taint.effect == TaintEffect::PreferNoSchedule)
}

/// Whether a pod that waits for a node is older than some node.
fn has_leftovers(snapshot: &Snapshot) -> bool {
    let newest = snapshot.places().iter().filter_map(|place| place.created).max();
    let mut waiting = snapshot.pending().filter(|pod| pod.spec.node_name.is_empty());
    newest.is_some_and(|newest| waiting.any(|pod| pod.metadata.creation_timestamp.is_some_and(|c| c < newest)))
}

/// The daemonsets as planning sees them.
pub(super) fn daemons(snapshot: &Snapshot) -> Vec<Daemon> {
    let read = |spec| Daemon {
        constraint: Constraint::of_pod(spec),
        requests: daemon_requests(spec),
        host_ports: HostPort::of_pod(spec),
    };
    snapshot.daemonsets().iter().map(|d| read(&d.spec.template.spec)).collect()
}

/// How willingly pods with a constraint go where these taints are, or `None` if they cannot.
pub(super) fn tolerance(constraint: &Constraint, taints: &[Taint]) -> Option<Tolerance> {
    tolerates_all(&constraint.tolerations, taints, false).ok()?;
    let has_preferences = taints.iter().any(|t| t.effect == TaintEffect::PreferNoSchedule);
    let is_full = !has_preferences || tolerates_all(&constraint.tolerations, taints, true).is_ok();
    Some(if is_full { Tolerance::Full } else { Tolerance::Reluctant })
}

/// How a constraint meets a pool, or `None` if its taints are not tolerated.
pub(super) fn meet(pool: &Pool<'_>, constraint: &Constraint) -> Option<Meeting> {
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
        PoolObstacle::whole(pool, self)
    }
}
