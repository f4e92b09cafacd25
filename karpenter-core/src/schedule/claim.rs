//! From a node that the search chose to a claim that leaves the provider as much choice as its pods allow.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use indexmap::IndexMap;

use super::{
    amounts::raise, eligible::Eligible, plan::PlannedClaim, pool::Pool, problem::Problem, search::Batch,
    variety::Variety,
};
use crate::{FxBuild, Price, Requirement, Requirements};

/// What a claim with some pods allows.
pub(super) struct Choice {
    requirements: Requirements,
    /// The types that will do, cheapest first, and those that are named beside them for `minValues`.
    types: Vec<usize>,
    cheapest_price: Price,
}

/// Lists of the names of instance types, by the index of the pool and those of the types: claims with equal lists share one.
#[derive(Default)]
pub(super) struct TypeLists(IndexMap<(usize, Vec<usize>), Arc<[String]>, FxBuild>);

impl Choice {
    /// What the claim of a node of a batch allows.
    pub(super) fn new(problem: &Problem<'_>, batch: &Batch<'_>) -> Self {
        let pool = &problem.base.pools[batch.candidate.pool];
        let mut used = problem.total(&batch.guests);
        raise(&mut used, &batch.floor);
        let of = |is_pinned| {
            let eligible = Eligible::new(problem, batch.candidate, (&batch.guests, used.clone()), is_pinned);
            let mut types: Vec<_> = eligible.types().collect();
            // Types are numbered in the order of their names.
            types.sort_unstable();
            (eligible.requirements(), types, eligible.fillers())
        };
        let free = of(false);
        let is_spot = batch.candidate.is_spot(problem);
        let least = if is_spot { free.1.len().min(problem.base.options.spot_types_to_keep()) } else { 0 };
        let pinned = batch.is_pinned.then(|| of(true));
        let (requirements, types, fillers) = pinned.filter(|(_, types, _)| types.len() >= least).unwrap_or(free);
        // A claim that names no type cannot be launched.
        let most = problem.base.options.max_instance_types.max(1);
        let types = truncated(pool, types, most);
        let cheapest_price = types.first().map_or(Price::ZERO, |(price, _)| *price);
        let types: Vec<usize> = types.into_iter().map(|(_, index)| index).chain(fillers).take(most).collect();
        Self { requirements: lowered(pool, &requirements, &types), types, cheapest_price }
    }

    /// The claim; the pods themselves are still to be written in.
    pub(super) fn into_claim(self, problem: &Problem<'_>, batch: &Batch<'_>, lists: &mut TypeLists) -> PlannedClaim {
        let Self { requirements, types, cheapest_price } = self;
        let Batch { candidate, guests, .. } = batch;
        let pool = &problem.base.pools[candidate.pool];
        let mut requests = pool.variant(candidate.row).daemon_requests.clone();
        for seats in guests {
            requests.add(&problem.lot(seats.lot).request_list.times(seats.count));
        }
        let name = |&index: &usize| pool.catalog.types()[index].name.clone();
        let names = |(_, types): &(usize, Vec<usize>)| types.iter().map(name).collect();
        PlannedClaim {
            node_pool: pool.source.name().to_owned(),
            pods: Vec::new(),
            instance_types: lists.0.entry((candidate.pool, types)).or_insert_with_key(names).clone(),
            cheapest_price,
            requests,
            labels: settle(pool, &requirements),
            requirements,
        }
    }
}

/// The requirements, with no more `minValues` than the types have and than there are values left. Of a type that knows nothing of a
/// label nobody asks it if the template names it: its nodes get it from there.
fn lowered(pool: &Pool<'_>, requirements: &Requirements, types: &[usize]) -> Requirements {
    let left = |variety: &Variety, named: Option<usize>| {
        let count = variety.count(types.iter().copied(), variety.min_values as usize);
        u32::try_from(count.min(named.unwrap_or(usize::MAX))).unwrap_or(u32::MAX)
    };
    let lacks = |key: &str, index: usize| {
        let mut cells = pool.table().rows_of(index).map(|row| pool.table().cell(row, key));
        cells.any(|cell| cell.is_some_and(Requirement::admits_absence))
    };
    let is_of_template = |key: &str| pool.is_fixed(key) && types.iter().any(|&index| lacks(key, index));
    let mut out = Requirements::new();
    for (key, requirement) in requirements.iter().filter(|(key, _)| !is_of_template(key)) {
        let variety = pool.varieties.iter().find(|variety| variety.key == key);
        out.add(
            key,
            requirement.clone().with_min_values(variety.map(|variety| left(variety, requirement.value_count()))),
        );
    }
    out
}

/// The cheapest types, so many as a claim may name, and among them those that bring enough values of each label.
fn truncated(pool: &Pool<'_>, types: Vec<(Price, usize)>, most: usize) -> Vec<(Price, usize)> {
    if types.len() <= most {
        return types;
    }
    let indices = || types.iter().map(|&(_, type_index)| type_index);
    let kept: BTreeSet<usize> = pool.varieties.iter().flat_map(|variety| variety.first_with_each(indices())).collect();
    let (mut kept, others): (Vec<_>, Vec<_>) = types.into_iter().partition(|(_, type_index)| kept.contains(type_index));
    kept.extend(others.into_iter().take(most.saturating_sub(kept.len())));
    kept.sort_unstable();
    kept
}

/// Values for the labels that neither the template nor an offering names, so that the claim must.
fn settle(pool: &Pool<'_>, requirements: &Requirements) -> BTreeMap<String, String> {
    let is_settled = |key: &str| pool.table().is_well_known(key) || pool.is_fixed(key);
    let open = requirements.iter().filter(|(key, r)| !is_settled(key) && !r.admits_absence());
    open.filter_map(|(key, r)| Some((key.to_owned(), r.any_value()?.to_string()))).collect()
}
