//! From a node that the search chose to a claim that leaves the provider as much choice as its pods allow.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use fixedbitset::FixedBitSet;
use indexmap::IndexMap;

use super::{
    MinValuesPolicy,
    amounts::raise,
    candidate::Candidate,
    plan::PlannedClaim,
    pool::{Pool, Variant},
    problem::Problem,
    search::{Batch, Seats},
};
use crate::{FxBuild, Offering, Price, Requirement, Requirements, cluster::HostPort, labels};

/// What a claim with some pods allows.
pub(super) struct Choice {
    requirements: Requirements,
    /// The types that will do with what they cost, cheapest first.
    types: Vec<(Price, usize)>,
}

/// Lists of the names of instance types, by the index of the pool and those of the types: claims with equal lists share one.
#[derive(Default)]
pub(super) struct TypeLists(IndexMap<(usize, Vec<usize>), Arc<[String]>, FxBuild>);

impl Choice {
    /// What the claim of a node of a batch allows.
    pub(super) fn new(problem: &Problem<'_>, batch: &Batch<'_>) -> Self {
        let pool = &problem.base.pools[batch.candidate.pool];
        let of_all = |asked| Self::of_all(problem, batch.candidate, asked, (&batch.guests, &batch.floor));
        let free = of_all(pool.requirements.clone());
        let is_spot = batch.candidate.is_spot(problem);
        let least = if is_spot { free.types.len().min(problem.base.options.spot_types_to_keep()) } else { 0 };
        let pinned = batch.is_pinned.then(|| of_all(of_place(pool, batch.candidate.row)));
        let all = pinned.filter(|pinned| pinned.types.len() >= least).unwrap_or(free);
        let types = truncated(pool, all.types, problem.base.options.max_instance_types);
        let requirements = lowered(pool, &all.requirements, &types);
        Self { requirements, types }
    }

    /// The claim; the pods themselves are still to be written in.
    pub(super) fn into_claim(self, problem: &Problem<'_>, batch: &Batch<'_>, lists: &mut TypeLists) -> PlannedClaim {
        let Self { requirements, types } = self;
        let Batch { candidate, guests, .. } = batch;
        let pool = &problem.base.pools[candidate.pool];
        let mut requests = pool.variant(candidate.row).daemon_requests.clone();
        for seats in guests {
            requests.add(&problem.lot(seats.lot).request_list.times(seats.count));
        }
        let indices = types.iter().map(|&(_, index)| index).collect();
        let names = || types.iter().map(|&(_, index)| pool.catalog.types()[index].name.clone()).collect();
        PlannedClaim {
            node_pool: pool.source.name().to_owned(),
            pods: Vec::new(),
            instance_types: lists.0.entry((candidate.pool, indices)).or_insert_with(names).clone(),
            cheapest_price: types.first().map_or(Price::ZERO, |(price, _)| *price),
            requests,
            labels: settle(pool, &requirements),
            requirements,
        }
    }

    /// The same with all types, however many a claim may name, for a node of which that much is asked beside its pods.
    fn of_all(
        problem: &Problem<'_>,
        candidate: &Candidate,
        mut requirements: Requirements,
        (guests, floor): (&[Seats], &[i64]),
    ) -> Self {
        let pool = &problem.base.pools[candidate.pool];
        let mut used = problem.total(guests);
        raise(&mut used, floor);
        let mut host_ports = Vec::new();
        for &Seats { lot, alternative, .. } in guests {
            let lot = problem.lot(lot);
            host_ports.extend_from_slice(&lot.host_ports);
            requirements.add_all(&problem.alternative(candidate.pool, lot.constraint, alternative).narrowing);
        }
        match candidate.reservation {
            Some(_) => requirements.add_all(&offering_of(pool, candidate.row).requirements),
            None => exclude_reserved(pool, &mut requirements),
        }
        let chosen = pool.variant(candidate.row).type_index;
        let needs = Needs { used: &used, host_ports: &host_ports };
        let mut types = choose(pool, &requirements, &needs, chosen);
        if !types.iter().any(|&(_, t)| t == chosen) {
            // Daemons leave too little room on some other offering of the type: this offering alone, then.
            requirements.add_all(&offering_of(pool, candidate.row).requirements);
            types = choose(pool, &requirements, &needs, chosen);
        }
        if let Some(capacity_type) = steadier(problem, candidate, &requirements, &needs) {
            requirements.add(labels::CAPACITY_TYPE, capacity_type.clone());
            types = choose(pool, &requirements, &needs, chosen);
        }
        Self { requirements, types }
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
    let Choice { types, .. } = Choice::of_all(problem, candidate, pool.requirements.clone(), (guests, &[]));
    pool.min_values().find_map(|(key, min_values)| {
        let values: BTreeSet<&str> = types.iter().flat_map(|&(_, t)| values_of(pool, t, key)).collect();
        (values.len() < min_values as usize).then(|| (key.to_owned(), min_values, values.len()))
    })
}

/// The requirements, with no more `minValues` than the types have.
fn lowered(pool: &Pool<'_>, requirements: &Requirements, types: &[(Price, usize)]) -> Requirements {
    let mut out = Requirements::new();
    for (key, requirement) in requirements.iter() {
        let most = requirement.min_values().map(|min_values| {
            let values: BTreeSet<&str> = types.iter().flat_map(|&(_, t)| values_of(pool, t, key)).collect();
            min_values.min(u32::try_from(values.len()).unwrap_or(u32::MAX))
        });
        out.add(key, requirement.clone().with_min_values(most));
    }
    out
}

/// The values that a type names for a label; each counts, whichever of them a node will have.
pub(super) fn values_of<'p>(pool: &Pool<'p>, type_index: usize, key: &str) -> impl Iterator<Item = &'p str> + use<'p> {
    pool.catalog.types()[type_index].requirements.get(key).into_iter().flat_map(Requirement::values)
}

/// The cheapest types, so many as a claim may name, and among them those that bring enough values of each label.
fn truncated(pool: &Pool<'_>, types: Vec<(Price, usize)>, most: usize) -> Vec<(Price, usize)> {
    if types.len() <= most {
        return types;
    }
    let mut kept: BTreeSet<(Price, usize)> = BTreeSet::new();
    for (key, min_values) in pool.min_values() {
        let mut seen = BTreeSet::new();
        for &(price, t) in &types {
            let before = seen.len();
            seen.extend(values_of(pool, t, key));
            if seen.len() > before {
                kept.insert((price, t));
            }
            if seen.len() >= min_values as usize {
                break;
            }
        }
    }
    let (mut kept, others): (Vec<_>, Vec<_>) = types.into_iter().partition(|entry| kept.contains(entry));
    kept.extend(others.into_iter().take(most.saturating_sub(kept.len())));
    kept.sort_unstable();
    kept
}

/// The capacity type of the chosen offering, if a claim without it would be launched by an offering that is cheaper only as
/// long as nobody counts its interruptions.
fn steadier<'p>(
    problem: &'p Problem<'_>,
    candidate: &Candidate,
    requirements: &Requirements,
    needs: &Needs<'_>,
) -> Option<&'p Requirement> {
    let pool = &problem.base.pools[candidate.pool];
    let table = pool.table();
    if !table.has_interruptions() {
        return None;
    }
    let expected_price = |row: usize| problem.base.expected_price(candidate.pool, row);
    let mut rows = pool.open_rows.clone();
    table.retain_all(&mut rows, requirements);
    let holds = |row: &usize| needs.fit(pool.variant(*row));
    let bought = rows.ones().filter(holds).min_by_key(|&row| table.rows()[row].price)?;
    let is_dearer = expected_price(bought) > expected_price(candidate.row);
    is_dearer.then(|| table.cell(candidate.row, labels::CAPACITY_TYPE)).flatten()
}

/// What the pods of a node take of it together.
struct Needs<'n> {
    used: &'n [i64],
    host_ports: &'n [HostPort],
}

impl Needs<'_> {
    /// Whether a node has room for them.
    fn fit(&self, node: &Variant) -> bool {
        let is_short = node.room.iter().zip(self.used).any(|(room, used)| room < used);
        !is_short && !HostPort::any_clash(&node.host_ports, self.host_ports)
    }
}

/// Values for the labels that neither the template nor an offering names, so that the claim must.
fn settle(pool: &Pool<'_>, requirements: &Requirements) -> BTreeMap<String, String> {
    let is_settled = |key: &str| pool.table().is_well_known(key) || pool.is_fixed(key);
    let open = requirements.iter().filter(|(key, r)| !is_settled(key) && !r.admits_absence());
    open.filter_map(|(key, r)| Some((key.to_owned(), r.any_value()?.to_string()))).collect()
}

/// The offering of a row.
fn offering_of<'p>(pool: &Pool<'p>, row: usize) -> &'p Offering {
    let type_index = pool.table().rows()[row].type_index;
    &pool.catalog.types()[type_index].offerings[row - pool.table().rows_of(type_index).start]
}

/// What a pool asks for, and the labels of an offering besides, its capacity type apart.
fn of_place(pool: &Pool<'_>, row: usize) -> Requirements {
    let mut out = pool.requirements.clone();
    let offered = offering_of(pool, row).requirements.iter();
    for (key, requirement) in offered.filter(|(key, _)| *key != labels::CAPACITY_TYPE) {
        out.add(key, requirement.clone());
    }
    out
}

/// A claim that was not planned for a reservation must not use one up.
fn exclude_reserved(pool: &Pool<'_>, requirements: &mut Requirements) {
    let table = pool.table();
    if !table.rows().iter().any(|row| row.is_reserved) {
        return;
    }
    match table.reservation_label() {
        Some(key) => requirements.add(key, Requirement::ABSENT),
        None => requirements.add(labels::CAPACITY_TYPE, Requirement::none_of([labels::RESERVED])),
    }
}

/// The types on all of whose offerings that meet the requirements the pods fit, so that any of them may be bought.
///
/// They come cheapest first, with what they cost. Where limits hold, no type is larger than the chosen one: the limits
/// must hold for whichever is bought.
fn choose(pool: &Pool<'_>, requirements: &Requirements, needs: &Needs<'_>, chosen: usize) -> Vec<(Price, usize)> {
    let table = pool.table();
    let mut rows: FixedBitSet = pool.rows.clone();
    // The rows of the pool meet what it asks for itself.
    let is_known = |key: &str, r: &Requirement| !pool.is_fixed(key) && pool.requirements.get(key) == Some(r);
    for (key, requirement) in requirements.iter().filter(|(key, requirement)| !is_known(key, requirement)) {
        table.retain(&mut rows, key, requirement);
    }
    let fits: Vec<bool> = pool.variants.iter().map(|variant| needs.fit(variant)).collect();
    let is_no_larger = |t: usize| pool.limits.iter().all(|l| l.capacity_by_type[t] <= l.capacity_by_type[chosen]);
    let cheapest = |type_index: usize| {
        let all = || table.rows_of(type_index).filter(|&row| rows.contains(row));
        let fits_all = all().all(|row| fits[pool.variant_of_row[row] as usize]);
        let open = all().filter(|&row| fits_all && pool.open_rows.contains(row));
        Some((open.map(|row| table.rows()[row].price).min()?, type_index))
    };
    let mut types: Vec<_> = (0..pool.catalog.types().len()).filter(|&t| is_no_larger(t)).filter_map(cheapest).collect();
    // Types are numbered in the order of their names.
    types.sort_unstable();
    types
}
