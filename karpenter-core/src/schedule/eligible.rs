//! The types that a claim with some pods may name: those on all of whose offerings that it may be launched by the pods fit.

use std::{borrow::Cow, collections::BTreeSet};

use fixedbitset::FixedBitSet;

use super::{
    MinValuesPolicy, amounts::Amounts, candidate::Candidate, pool::Pool, problem::Problem, search::Seats,
    variety::Variety,
};
use crate::{Offering, Price, Requirement, Requirements, cluster::HostPort, labels};

/// The offerings and types that do for a node with some pods.
pub(super) struct Eligible<'p> {
    pool: &'p Pool<'p>,
    /// What it may take of each limit of its pool.
    ceiling: &'p [i64],
    /// What a claim asks of offerings beside what its pool asks.
    demands: Vec<Demand<'p>>,
    /// The offerings of the pool that meet all of it.
    rows: FixedBitSet,
    /// The offerings that would meet all of it if the node drew on no reservation, if it does and its types count.
    other_rows: Option<FixedBitSet>,
    /// What the pods take of the node together.
    used: Amounts,
    host_ports: Vec<HostPort>,
}

/// What a claim asks of offerings for one reason.
struct Demand<'p> {
    requirements: Cow<'p, Requirements>,
    /// The offerings of the pool that meet it, if that is known.
    rows: Option<&'p FixedBitSet>,
}

impl<'p> Eligible<'p> {
    /// What does for a node of a candidate of which its pods use that much; with `is_pinned` only where the offering of the
    /// candidate is.
    pub(super) fn new(
        problem: &'p Problem<'p>,
        candidate: &'p Candidate,
        (guests, used): (&[Seats], Amounts),
        is_pinned: bool,
    ) -> Self {
        let pool = &problem.base.pools[candidate.pool];
        let host_ports: Vec<HostPort> =
            guests.iter().flat_map(|seats| &problem.lot(seats.lot).host_ports).cloned().collect();
        let of_pods = guests.iter().map(|seats| {
            let constraint = problem.lot(seats.lot).constraint;
            let alternative = problem.alternative(candidate.pool, constraint, seats.alternative);
            Demand { requirements: Cow::Borrowed(&alternative.narrowing), rows: Some(&alternative.rows) }
        });
        let of_place = is_pinned.then(|| Demand::new(Cow::Owned(place(pool, candidate.row))));
        let mut demands: Vec<Demand<'p>> = of_pods.collect();
        let other_rows = (candidate.is_reserved() && pool.has_min_values()).then(|| rows_of(pool, &demands));
        demands.extend(of_place);
        demands.push(if candidate.is_reserved() {
            Demand::new(Cow::Borrowed(&offering_of(pool, candidate.row).requirements))
        } else {
            Demand { requirements: Cow::Borrowed(&pool.unreserved), rows: Some(&pool.unreserved_rows) }
        });
        let chosen = pool.variant(candidate.row).type_index;
        let rows = rows_of(pool, &demands);
        let mut out = Self { pool, ceiling: &candidate.ceiling, demands, rows, other_rows, used, host_ports };
        if out.cheapest(&out.rows, chosen).is_none() {
            // Daemons leave too little room on some other offering of the type: this offering alone, then.
            out.narrow(Cow::Borrowed(&offering_of(pool, candidate.row).requirements));
        }
        if let Some(capacity_type) = out.steadier(problem, candidate) {
            let mut steady = Requirements::new();
            steady.add(labels::CAPACITY_TYPE, capacity_type.clone());
            out.narrow(Cow::Owned(steady));
        }
        out
    }

    fn narrow(&mut self, requirements: Cow<'p, Requirements>) {
        self.demands.push(Demand::new(requirements));
        self.rows = rows_of(self.pool, &self.demands);
    }

    /// The capacity type of the chosen offering, if a claim without it would be launched by an offering that is cheaper only as
    /// long as nobody counts its interruptions.
    fn steadier(&self, problem: &Problem<'_>, candidate: &Candidate) -> Option<&'p Requirement> {
        let table = self.pool.table();
        if !table.has_interruptions() || self.pool.varieties.iter().any(|variety| variety.key == labels::CAPACITY_TYPE)
        {
            return None;
        }
        let expected_price = |row: usize| problem.base.expected_price(candidate.pool, row);
        let open = self.rows.intersection(&self.pool.open_rows).filter(|&row| self.fits(row));
        let bought = open.min_by_key(|&row| table.rows()[row].price)?;
        let is_dearer = expected_price(bought) > expected_price(candidate.row);
        is_dearer.then(|| table.cell(candidate.row, labels::CAPACITY_TYPE)).flatten()
    }

    /// Whether a node bought by a row has room for the pods.
    fn fits(&self, row: usize) -> bool {
        let node = self.pool.variant(row);
        let is_short = node.room.iter().zip(&self.used).any(|(room, used)| room < used);
        !is_short && !HostPort::any_clash(&node.host_ports, &self.host_ports)
    }

    /// What a type costs by some offerings, if it will do with all of them and can be bought by one. The limits must hold for
    /// whichever is bought.
    fn cheapest(&self, rows: &FixedBitSet, type_index: usize) -> Option<Price> {
        let table = self.pool.table();
        let mut sizes = self.pool.limits.iter().map(|limit| limit.capacity_by_type[type_index]);
        if sizes.by_ref().zip(self.ceiling).any(|(size, most)| size > *most) {
            return None;
        }
        let all = || table.rows_of(type_index).filter(|&row| rows.contains(row));
        if !all().all(|row| self.fits(row)) {
            return None;
        }
        all().filter(|&row| self.pool.open_rows.contains(row)).map(|row| table.rows()[row].price).min()
    }

    /// The types that will do, with what they cost, in the order of their names.
    pub(super) fn types(&self) -> impl Iterator<Item = (Price, usize)> {
        self.types_by(&self.rows)
    }

    fn types_by(&self, rows: &FixedBitSet) -> impl Iterator<Item = (Price, usize)> {
        let all = 0..self.pool.catalog.types().len();
        all.filter_map(move |type_index| Some((self.cheapest(rows, type_index)?, type_index)))
    }

    /// Types that would do if the node drew on no reservation, cheapest first, as many as are needed for `minValues`: the types
    /// that a claim names count for it, whether the reservation has machines of them or not (as in Karpenter).
    pub(super) fn fillers(&self) -> Vec<usize> {
        let Some(rows) = &self.other_rows else { return Vec::new() };
        let own: BTreeSet<usize> = self.types().map(|(_, type_index)| type_index).collect();
        let mut others: Vec<(Price, usize)> = self.types_by(rows).collect();
        others.sort_unstable();
        let all = || own.iter().copied().chain(others.iter().map(|&(_, type_index)| type_index));
        let needed = self.pool.varieties.iter().flat_map(|variety| variety.first_with_each(all()));
        let needed: BTreeSet<usize> = needed.filter(|type_index| !own.contains(type_index)).collect();
        others.into_iter().map(|(_, type_index)| type_index).filter(|type_index| needed.contains(type_index)).collect()
    }

    /// What a claim requires.
    pub(super) fn requirements(&self) -> Requirements {
        let mut out = self.pool.requirements.clone();
        self.demands.iter().for_each(|demand| out.add_all(&demand.requirements));
        out
    }

    /// The first label of which the types have too few values, or pods leave the claim too few, as where they are bound to a zone;
    /// and how many there are. An API server refuses a claim that names fewer than it asks for.
    fn lack(&self) -> Option<(&'p Variety, usize)> {
        let all_rows = || std::iter::once(&self.rows).chain(&self.other_rows);
        let by_types = self.pool.lack(|type_index| all_rows().any(|rows| self.cheapest(rows, type_index).is_some()));
        by_types.or_else(|| {
            let requirements = self.requirements();
            self.pool.varieties.iter().find_map(|variety| {
                let named = requirements.get(&variety.key)?.value_count()?;
                (named < variety.min_values as usize).then_some((variety, named))
            })
        })
    }
}

impl<'p> Demand<'p> {
    fn new(requirements: Cow<'p, Requirements>) -> Self {
        Self { requirements, rows: None }
    }
}

/// The first key of which the types of a claim with these pods would have too few values, and how many they have.
pub(super) fn too_few_values(
    problem: &Problem<'_>,
    candidate: &Candidate,
    guests: &[Seats],
) -> Option<(String, u32, usize)> {
    let pool = &problem.base.pools[candidate.pool];
    if !pool.has_min_values() || problem.base.options.min_values == MinValuesPolicy::BestEffort {
        return None;
    }
    let eligible = Eligible::new(problem, candidate, (guests, problem.total(guests)), false);
    eligible.lack().map(|(variety, count)| (variety.key.clone(), variety.min_values, count))
}

/// The offerings of a pool that meet all demands.
fn rows_of(pool: &Pool<'_>, demands: &[Demand<'_>]) -> FixedBitSet {
    let table = pool.table();
    let names = |key: &String, requirements: &Requirements| usize::from(requirements.get(key).is_some());
    let is_named_twice = |key: &String| {
        names(key, &pool.requirements) + demands.iter().map(|d| names(key, &d.requirements)).sum::<usize>() > 1
    };
    let mut rows = pool.rows.clone();
    if pool.unsettled.iter().any(is_named_twice) {
        // Each of two demands may leave an offering that does not meet both.
        let mut all = pool.requirements.clone();
        for demand in demands {
            all.add_all(&demand.requirements);
        }
        let asked = demands.iter().flat_map(|demand| demand.requirements.iter().map(|(key, _)| key));
        for key in asked.collect::<BTreeSet<_>>() {
            all.get(key).into_iter().for_each(|requirement| table.retain(&mut rows, key, requirement));
        }
        return rows;
    }
    for Demand { requirements, rows: known } in demands {
        match known {
            Some(known) => rows.intersect_with(known),
            None => _ = table.retain_all(&mut rows, requirements),
        }
    }
    rows
}

/// The offering of a row.
fn offering_of<'p>(pool: &Pool<'p>, row: usize) -> &'p Offering {
    let type_index = pool.table().rows()[row].type_index;
    &pool.catalog.types()[type_index].offerings[row - pool.table().rows_of(type_index).start]
}

/// The labels of an offering, its capacity type apart.
fn place(pool: &Pool<'_>, row: usize) -> Requirements {
    let mut out = Requirements::new();
    let offered = offering_of(pool, row).requirements.iter();
    for (key, requirement) in offered.filter(|(key, _)| *key != labels::CAPACITY_TYPE) {
        out.add(key, requirement.clone());
    }
    out
}
