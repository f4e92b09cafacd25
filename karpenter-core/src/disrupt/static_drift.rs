//! Drifted nodes of pools that have a fixed number of them.

use super::{
    Candidate, Candidates, Command, Method,
    allowance::Allowance,
    disruptor::by_drift,
    scene::{Scene, Trial, open_offerings},
};
use crate::{
    Catalog, Price, Quantity, Requirement, Requirements, Snapshot, Timestamp,
    api::{DisruptionReason, NodeClaim, NodePool},
    cluster::Place,
    labels,
    schedule::{MAX_INSTANCE_TYPES, Plan, PlannedClaim},
};

/// The limit of a pool on the number of its nodes.
const NODES: &str = "nodes";

/// Drifted nodes of one static pool, as many as may go at once, with as many that are made from the bare template. Where their
/// pods go is not asked: the pool has its nodes whatever the pods need.
pub(super) fn static_drifted(scene: &Scene<'_>, candidates: &Candidates, now: Timestamp) -> Option<Command> {
    let order = by_drift(scene, candidates, true);
    let mut pools: Vec<&str> = order.iter().map(|candidate| candidate.pool.as_str()).collect();
    pools.sort_unstable();
    pools.dedup();
    let mut allowance = Allowance::new(&scene.snapshot, DisruptionReason::Drifted, now);
    pools.into_iter().find_map(|pool| {
        let of_pool = order.iter().copied().filter(|candidate| candidate.pool == pool);
        let goes: Vec<&Candidate> = of_pool.filter(|candidate| allowance.take(candidate)).collect();
        replaced(scene, scene.snapshot.pool(pool)?, &goes)
    })
}

/// The command that replaces as many of these nodes of a static pool as the pool has room for, one for one.
pub(super) fn replaced(scene: &Scene<'_>, pool: &NodePool, nodes: &[&Candidate]) -> Option<Command> {
    let goes = &nodes[..nodes.len().min(most_more(&scene.snapshot, pool))];
    if goes.is_empty() {
        return None;
    }
    let claim = static_claim(pool, scene.catalogs.get(pool.name())?)?;
    let plan = Plan::from_parts(vec![claim; goes.len()], [].into(), [].into());
    Some(Scene::command(Method::StaticDrift, goes, Trial::of(goes, plan)))
}

/// How many nodes more a static pool may have while old and new ones are there: none if it is about to lose nodes anyway.
pub(super) fn most_more(snapshot: &Snapshot, pool: &NodePool) -> usize {
    spare(snapshot, pool).unwrap_or(0)
}

/// How many nodes more its limits let it have; `None` if it gets none whatever they are.
pub(super) fn spare(snapshot: &Snapshot, pool: &NodePool) -> Option<usize> {
    let nodes = Nodes::of(snapshot, pool);
    if pool.spec.replicas.is_none_or(|replicas| nodes.staying > replicas) || pool.not_ready().is_some() {
        return None;
    }
    let left = |limit: Quantity| usize::try_from(limit.units_floor() - i64::from(nodes.all)).unwrap_or(0);
    Some(pool.spec.limits.get(NODES).map_or(usize::MAX, left))
}

/// How many nodes a pool has, those that are on their way among them.
struct Nodes {
    all: u32,
    /// Those of which the deletion was not asked for.
    staying: u32,
}

impl Nodes {
    fn of(snapshot: &Snapshot, pool: &NodePool) -> Self {
        let of_pool = |place: &&Place| place.pool.as_deref() == Some(pool.name());
        let is_made = |place: &&Place| place.node_claim.is_some() || place.is_promised();
        let places = snapshot.places().iter().map(AsRef::as_ref).filter(of_pool).filter(is_made);
        let is_coming = |claim: &&NodeClaim| claim.pool_name() == Some(pool.name());
        let coming = snapshot.unlaunched().iter().filter(is_coming);
        let going = places.map(|place| place.is_deleting);
        let going = going.chain(coming.map(|claim| claim.metadata.deletion_timestamp.is_some()));
        going.fold(Self { all: 0, staying: 0 }, |count, is_going| Self {
            all: count.all + 1,
            staying: count.staying + u32::from(!is_going),
        })
    }
}

/// A claim for any node that the template allows; `None` if none of them can be bought. Like every claim that was not planned
/// for a reservation, it does not use one up, unless the pool has no other nodes.
pub(crate) fn static_claim(pool: &NodePool, catalog: &Catalog) -> Option<PlannedClaim> {
    let requirements = bare_requirements(pool, catalog);
    let price = |source| open_offerings(catalog, source, &requirements).map(|offering| offering.price).min();
    let types = catalog.types().iter();
    let mut types: Vec<(Price, &str)> =
        types.filter_map(|source| Some((price(source)?, source.name.as_str()))).collect();
    types.sort_unstable();
    types.truncate(MAX_INSTANCE_TYPES);
    let &(cheapest, _) = types.first()?;
    let is_open = |(key, asked): &(&str, &Requirement)| {
        !catalog.is_well_known(key) && !pool.spec.template.metadata.labels.contains_key(*key) && !asked.admits_absence()
    };
    let open = requirements.iter().filter(is_open);
    let labels = open.filter_map(|(key, asked)| Some((key.to_owned(), asked.any_value()?.to_string()))).collect();
    let names = types.into_iter().map(|(_, name)| name);
    let mut claim = PlannedClaim::new(pool.name(), Vec::new(), names, cheapest, requirements);
    claim.labels = labels;
    Some(claim)
}

fn bare_requirements(pool: &NodePool, catalog: &Catalog) -> Requirements {
    let template = &pool.spec.template;
    let mut out: Requirements = template.spec.requirements.iter().collect();
    for (key, value) in template.metadata.labels.iter().filter(|(key, _)| catalog.is_well_known(key)) {
        out.add(labels::normalized(key), Requirement::one_of([value.as_str()]));
    }
    let capacity_type = out.get(labels::CAPACITY_TYPE);
    let has_others = [labels::SPOT, labels::ON_DEMAND].iter().any(|t| capacity_type.is_none_or(|r| r.admits(Some(t))));
    if has_others {
        out.add(labels::CAPACITY_TYPE, Requirement::none_of([labels::RESERVED]));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        InstanceType,
        api::{NodeSelectorRequirement, Operator},
    };

    #[test]
    fn a_claim_names_no_type_that_lacks_a_label_which_its_pool_asks_for() {
        let machine = |name: &str, dollars: f64| {
            let price = Price::per_hour(dollars).expect("a price");
            InstanceType::named(name, [("cpu", Quantity::from_units(4))]).offering("on-demand", "a", price)
        };
        let gpu = NodeSelectorRequirement::new("example.com/gpu", Operator::In, ["t4"]);
        let types = vec![machine("plain", 0.1), machine("with-gpu", 1.0).label(&gpu.key, "t4")];
        let catalog = Catalog::new(types).expect("a catalog");
        let claim = static_claim(&NodePool::named("p").require(gpu), &catalog).expect("a claim");
        assert_eq!(*claim.instance_types, ["with-gpu"]);
        assert_eq!(claim.cheapest_price, Price::per_hour(1.0).expect("a price"));
    }
}
