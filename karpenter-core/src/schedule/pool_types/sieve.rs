//! Each type of a catalog against all that a pool asks.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    ops::Range,
};

use fixedbitset::FixedBitSet;

use super::{LimitUse, PoolTypes, RemainingType, ValueCount};
use crate::{
    Quantity, Requirement, ResourceList, ResourceName, labels,
    reason::{Obstacle, TypeObstacle, TypesRuledOut},
    schedule::{
        amounts::{Amounts, Axes},
        limit::Limit,
        pool::Pool,
        reservation::Reservations,
        variety::Variety,
    },
};

/// Where a type fails, in the order in which it is looked at.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    NoOfferings,
    Contradiction,
    /// The number of a demand that no offering meets.
    Requirement(usize),
    /// The numbers of the demands that not all offerings meet.
    Combination(Vec<usize>),
    Unavailable,
    ReservationUsedUp,
    /// The number of the resource.
    Overhead(usize),
    Daemons(usize),
    /// The number of a limit.
    Limit(usize),
}

/// A label that a pool asks for, and the offerings that have it so.
struct Demand<'p> {
    key: &'p str,
    wanted: Requirement,
    rows: FixedBitSet,
}

/// A pool and what its types have to pass.
pub(super) struct Sieve<'s, 'a> {
    pool: &'s Pool<'a>,
    axes: &'s Axes,
    reservations: &'s Reservations,
    demands: Vec<Demand<'s>>,
    /// What any pod takes of each resource at least: one of the pods that a node may have.
    least: Amounts,
}

impl<'s, 'a> Sieve<'s, 'a> {
    pub(super) fn new(pool: &'s Pool<'a>, axes: &'s Axes, reservations: &'s Reservations) -> Self {
        let demand = |(key, wanted)| {
            let mut rows = FixedBitSet::with_capacity(pool.table().rows().len());
            rows.insert_range(..);
            pool.table().retain(&mut rows, key, &wanted);
            Demand { key, wanted, rows }
        };
        let one_pod = ResourceList::from_iter([(ResourceName::Pods, Quantity::from_units(1))]);
        let demands = pool.demands().map(demand).collect();
        Self { pool, axes, reservations, demands, least: axes.requests(&one_pod) }
    }

    /// All types, sorted into those that remain and those that do not.
    pub(super) fn types(&self, obstacle: Option<Obstacle>) -> PoolTypes {
        let mut groups: BTreeMap<Step, (Vec<usize>, usize)> = BTreeMap::new();
        let (mut remaining, mut left) = (Vec::new(), Vec::new());
        for index in 0..self.pool.catalog.types().len() {
            match self.pass(index) {
                Ok(rows) => {
                    remaining.push(self.remaining(index, &rows));
                    left.push(index);
                }
                Err(steps) => {
                    let is_alone = steps.len() == 1;
                    for step in steps {
                        let (types, alone_count) = groups.entry(step).or_default();
                        types.push(index);
                        *alone_count += usize::from(is_alone);
                    }
                }
            }
        }
        remaining.sort_by(|a, b| a.cheapest_price.cmp(&b.cheapest_price).then_with(|| a.name.cmp(&b.name)));
        let ruled_out = |(step, (types, alone_count)): (&Step, &(Vec<usize>, usize))| TypesRuledOut {
            obstacle: self.obstacle(step, types),
            types: types.iter().map(|&index| self.name(index)).collect(),
            alone_count: *alone_count,
        };
        let mut ruled_out: Vec<_> = groups.iter().map(ruled_out).collect();
        ruled_out.sort_by_key(|group| Reverse(group.types.len()));
        let (limits, min_values) = (self.limits(), self.min_values(&left));
        PoolTypes { obstacle, type_count: self.pool.catalog.types().len(), ruled_out, remaining, limits, min_values }
    }

    /// The offerings by which a type can be bought, or where it fails. If it fails in several ways, each is enough by itself.
    fn pass(&self, index: usize) -> Result<Vec<usize>, Vec<Step>> {
        let pool = self.pool;
        let accepted: Vec<usize> = self.rows_of(index).filter(|&row| pool.rows.contains(row)).collect();
        if accepted.is_empty() {
            return Err(self.refusal(index));
        }
        let mut rows = accepted;
        rows.retain(|&row| pool.catalog.available().contains(row));
        if rows.is_empty() {
            return Err(vec![Step::Unavailable]);
        }
        rows.retain(|&row| !self.is_used_up(row));
        let Some(&first) = rows.first() else { return Err(vec![Step::ReservationUsedUp]) };
        rows.retain(|&row| self.overdrawn(row).is_none());
        if rows.is_empty() {
            return Err(vec![self.overdrawn(first).unwrap_or(Step::Unavailable)]);
        }
        let is_over = |limit: &Limit| limit.capacity_by_type[index] > limit.left();
        let over: Vec<Step> = (0..pool.limits.len()).filter(|&i| is_over(&pool.limits[i])).map(Step::Limit).collect();
        if over.is_empty() { Ok(rows) } else { Err(over) }
    }

    /// Why the pool accepts no offering of a type.
    fn refusal(&self, index: usize) -> Vec<Step> {
        let rows = self.rows_of(index);
        if rows.is_empty() {
            return vec![Step::NoOfferings];
        }
        if self.pool.contradiction().is_some() {
            return vec![Step::Contradiction];
        }
        let those = |fails: &dyn Fn(&Demand<'_>) -> bool| -> Vec<usize> {
            (0..self.demands.len()).filter(|&i| fails(&self.demands[i])).collect()
        };
        let on_all = those(&|demand| rows.clone().all(|row| !demand.rows.contains(row)));
        if !on_all.is_empty() {
            return on_all.into_iter().map(Step::Requirement).collect();
        }
        vec![Step::Combination(those(&|demand| rows.clone().any(|row| !demand.rows.contains(row))))]
    }

    /// What of a machine is taken before any pod comes, if that leaves nothing for one.
    fn overdrawn(&self, row: usize) -> Option<Step> {
        let has_too_little = |room: &[i64], axis: usize| room[axis] < self.least[axis];
        let room = &self.pool.variant(row).room;
        let axis = (0..room.len()).find(|&axis| has_too_little(room, axis))?;
        let of_system = self.axes.room(&self.pool.catalog.types()[self.type_of(row)].allocatable());
        Some(if has_too_little(&of_system, axis) { Step::Overhead(axis) } else { Step::Daemons(axis) })
    }

    fn remaining(&self, index: usize, rows: &[usize]) -> RemainingType {
        let table = self.pool.table();
        let values = |key: &str| -> Vec<String> {
            let all = rows.iter().flat_map(|&row| self.pool.values(row, key, None));
            all.map(|value| value.to_string()).collect::<BTreeSet<_>>().into_iter().collect()
        };
        RemainingType {
            name: self.name(index),
            cheapest_price: rows.iter().map(|&row| table.rows()[row].price).min().unwrap_or_default(),
            zones: values(labels::ZONE),
            capacity_types: values(labels::CAPACITY_TYPE),
        }
    }

    fn obstacle(&self, step: &Step, types: &[usize]) -> TypeObstacle {
        let short = |axis: usize| (self.axes.names()[axis].clone(), self.missing(axis, types));
        match step {
            Step::NoOfferings => TypeObstacle::NoOfferings,
            Step::Contradiction => {
                TypeObstacle::Contradiction { key: self.pool.contradiction().unwrap_or_default().to_owned() }
            }
            Step::Requirement(demand) => self.requirement(*demand, types),
            Step::Combination(demands) => {
                let keys = demands.iter().map(|&demand| self.demands[demand].key.to_owned()).collect();
                TypeObstacle::Combination { keys }
            }
            Step::Unavailable => TypeObstacle::Unavailable,
            Step::ReservationUsedUp => self.reservations(types),
            Step::Overhead(axis) => {
                let (resource, missing) = short(*axis);
                TypeObstacle::Overhead { resource, missing }
            }
            Step::Daemons(axis) => {
                let (resource, missing) = short(*axis);
                TypeObstacle::Daemons { resource, missing }
            }
            Step::Limit(index) => limit(&self.pool.limits[*index]),
        }
    }

    fn requirement(&self, demand: usize, types: &[usize]) -> TypeObstacle {
        let Demand { key, wanted, .. } = &self.demands[demand];
        let rows: FixedBitSet = types.iter().flat_map(|&index| self.rows_of(index)).collect();
        let offered = self.pool.table().states(&rows, key).into_iter().cloned().collect();
        // A label of the template is among the requirements too, without the absence that a type may have of it.
        let wanted = self.pool.requirements.get(key).unwrap_or(wanted).clone();
        TypeObstacle::Requirement { key: (*key).to_owned(), wanted, offered }
    }

    /// The reservations that the accepted offerings of these types draw on.
    fn reservations(&self, types: &[usize]) -> TypeObstacle {
        let rows = types.iter().flat_map(|&index| self.rows_of(index)).filter(|&row| self.pool.rows.contains(row));
        let used_up = rows.filter(|&row| self.is_used_up(row));
        let numbers: BTreeSet<usize> = used_up.filter_map(|row| self.reservations.of(self.pool.catalog, row)).collect();
        let names = numbers.into_iter().filter_map(|index| self.reservations.left.get_index(index));
        TypeObstacle::ReservationUsedUp { reservations: names.map(|(name, _)| name.clone()).collect() }
    }

    /// The least that is missing of a resource on the offerings of these types that could be bought.
    fn missing(&self, axis: usize, types: &[usize]) -> Quantity {
        let rows = types.iter().flat_map(|&index| self.rows_of(index)).filter(|&row| self.pool.rows.contains(row));
        let missing = rows.map(|row| self.least[axis] - self.pool.variant(row).room[axis]).filter(|&amount| amount > 0);
        self.axes.quantity(axis, missing.min().unwrap_or(0))
    }

    fn is_used_up(&self, row: usize) -> bool {
        self.reservations.of(self.pool.catalog, row).is_some_and(|index| self.reservations.left[index] <= 0)
    }

    fn limits(&self) -> Vec<LimitUse> {
        let of = |limit: &Limit| LimitUse {
            resource: limit.resource.clone(),
            limit: limit.quantity(limit.most),
            used: limit.quantity(limit.used),
        };
        self.pool.limits.iter().map(of).collect()
    }

    fn min_values(&self, remaining: &[usize]) -> Vec<ValueCount> {
        let count = |variety: &Variety| ValueCount {
            key: variety.key.clone(),
            min_values: variety.min_values,
            available: variety.count(remaining.iter().copied(), usize::MAX),
        };
        self.pool.varieties.iter().map(count).collect()
    }

    fn rows_of(&self, index: usize) -> Range<usize> {
        self.pool.table().rows_of(index)
    }

    fn type_of(&self, row: usize) -> usize {
        self.pool.table().rows()[row].type_index
    }

    fn name(&self, index: usize) -> String {
        self.pool.catalog.types()[index].name.clone()
    }
}

fn limit(limit: &Limit) -> TypeObstacle {
    TypeObstacle::Limit {
        resource: limit.resource.clone(),
        limit: limit.quantity(limit.most),
        used: limit.quantity(limit.used),
    }
}
