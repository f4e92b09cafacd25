//! From a node that the search chose to a claim that leaves the provider as much choice as its pods allow.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use fixedbitset::FixedBitSet;

use super::{
    amounts::{Amounts, take},
    candidate::Candidate,
    plan::PlannedClaim,
    pool::Pool,
    problem::Problem,
    search::Fill,
};
use crate::{Price, Requirement, Requirements, catalog::Row, cluster::HostPort, labels};

/// The claim of a node with these pods; the pods themselves are still to be written in.
pub(super) fn make(problem: &Problem<'_>, candidate: &Candidate, fill: &Fill) -> PlannedClaim {
    let pool = &problem.pools[candidate.pool];
    let mut used: Amounts = problem.classes.axes.names().iter().map(|_| 0).collect();
    let mut host_ports = Vec::new();
    let mut requests = pool.variant(candidate.row).daemon_requests.clone();
    let mut requirements = pool.requirements.clone();
    for &(class, alternative, count) in &fill.guests {
        let class = problem.class(class);
        take(&mut used, &class.requests, -count);
        host_ports.extend_from_slice(&class.host_ports);
        requests.add(&class.request_list.times(count));
        requirements.add_all(&problem.alternative(candidate.pool, class.constraint, alternative).narrowing);
    }
    exclude_reserved(pool, &mut requirements);
    let chosen = pool.variant(candidate.row).type_index;
    let needs = Needs { used: &used, host_ports: &host_ports };
    let mut types = choose(pool, &requirements, &needs, chosen);
    if !types.iter().any(|&(_, t)| t == chosen) {
        // Daemons leave too little room on some other offering of the type: this offering alone, then.
        for (key, requirement) in
            pool.catalog.types()[chosen].offerings[offering_of(pool, candidate.row)].requirements.iter()
        {
            requirements.add(key, requirement.clone());
        }
        types = choose(pool, &requirements, &needs, chosen);
    }
    types.truncate(problem.options.max_instance_types);
    let name = |&(_, t): &(Price, usize)| pool.catalog.types()[t].name.clone();
    PlannedClaim {
        node_pool: pool.source.name().to_owned(),
        pods: Vec::new(),
        instance_types: types.iter().map(name).collect::<Arc<[String]>>(),
        cheapest_price: types.first().map_or(Price::ZERO, |(price, _)| *price),
        requests,
        labels: settle(pool, &requirements),
        requirements,
    }
}

/// What the pods of a node take of it together.
struct Needs<'n> {
    used: &'n [i64],
    host_ports: &'n [HostPort],
}

/// Values for the labels that neither the template nor an offering names, so that the claim must.
fn settle(pool: &Pool<'_>, requirements: &Requirements) -> BTreeMap<String, String> {
    let is_settled = |key: &str| pool.table().is_well_known(key) || pool.is_fixed(key);
    let open = requirements.iter().filter(|(key, r)| !is_settled(key) && !r.admits_absence());
    open.filter_map(|(key, r)| Some((key.to_owned(), r.any_value()?.to_string()))).collect()
}

/// The place of a row's offering in the list of its type.
fn offering_of(pool: &Pool<'_>, row: usize) -> usize {
    row - pool.table().rows_of(pool.table().rows()[row].type_index).start
}

/// Reservations are not planned with, so no claim may use one up.
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
/// They come cheapest first, with what they cost. Where limits hold, no type that is larger than the chosen one: the limits must hold for whichever is bought.
fn choose(pool: &Pool<'_>, requirements: &Requirements, needs: &Needs<'_>, chosen: usize) -> Vec<(Price, usize)> {
    let table = pool.table();
    let mut rows: FixedBitSet = pool.rows.clone();
    table.retain_all(&mut rows, requirements);
    let mut cheapest: BTreeMap<usize, Price> = BTreeMap::new();
    let mut too_small = BTreeSet::new();
    for row in rows.ones() {
        let Row { type_index, price, .. } = table.rows()[row];
        let is_short = pool.variant(row).room.iter().zip(needs.used).any(|(room, used)| room < used);
        if is_short || !pool.has_free_ports(row, needs.host_ports) {
            too_small.insert(type_index);
        } else if pool.open_rows.contains(row) {
            cheapest.entry(type_index).and_modify(|p| *p = price.min(*p)).or_insert(price);
        }
    }
    let is_no_larger = |t: usize| pool.limits.iter().all(|l| l.capacity_by_type[t] <= l.capacity_by_type[chosen]);
    let found = cheapest.into_iter().map(|(t, price)| (price, t));
    let mut types: Vec<_> = found.filter(|&(_, t)| !too_small.contains(&t) && is_no_larger(t)).collect();
    // Types are numbered in the order of their names.
    types.sort();
    types
}
