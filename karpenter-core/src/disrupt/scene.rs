//! A cluster in which commands are tried out and carried out in thought.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{Candidate, Candidates, Command, Method, Roster, survey::is_disturbed};
use crate::{
    Catalog, Catalogs, InstanceType, Offering, Planner, Price, Requirements, Snapshot, Timestamp,
    api::ObjectKey,
    cluster::Place,
    schedule::{Plan, PlannedClaim},
};

/// A cluster without waiting pods.
#[derive(Clone)]
pub(super) struct Scene<'s> {
    pub(super) snapshot: Snapshot,
    pub(super) catalogs: &'s Catalogs,
    pub(super) planner: Planner,
    /// The traits of its pods.
    roster: Arc<Roster>,
    /// How many nodes were made in thought.
    made: usize,
    /// Whether pods that waited may be missing because there was no time to plan for all of them.
    pub(super) is_cut_short: bool,
}

/// How well it is planned where pods go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Care {
    /// By one search.
    Sketch,
    /// By one search that weighs pods against the room of each node that stays.
    WeighedSketch,
    /// As well as can be where very many plans are made.
    Plan,
    /// As well as can be.
    Best,
    /// With as few new nodes as are found, by one search.
    FewSketch,
    /// With as few new nodes as are found, as well as can be where very many plans are made.
    Few,
}

/// What becomes of a cluster without some of its nodes.
#[derive(Clone)]
pub(super) struct Trial {
    pub(super) plan: Plan,
    /// How much less the cluster costs, in dollars an hour.
    pub(super) savings_per_hour: f64,
}

impl Trial {
    /// What becomes of nodes for the pods of which there is a plan.
    pub(super) fn of(candidates: &[&Candidate], plan: Plan) -> Self {
        let before: f64 = candidates.iter().map(|candidate| candidate.dollars_per_hour()).sum();
        let savings_per_hour = before - plan.hourly_cost().dollars_per_hour();
        Self { plan, savings_per_hour }
    }
}

impl<'s> Scene<'s> {
    /// The cluster once its waiting pods, with these traits, are where the planner puts them; those without a place are left
    /// out.
    pub(super) fn new(snapshot: &Snapshot, catalogs: &'s Catalogs, planner: Planner, roster: Arc<Roster>) -> Self {
        let mut scene = Self { snapshot: snapshot.clone(), catalogs, planner, roster, made: 0, is_cut_short: false };
        if snapshot.pending().len() > 0 {
            let plan = scene.planner.plan(snapshot, catalogs);
            scene.is_cut_short = !plan.is_complete();
            scene.settle(&plan.existing, &plan.claims, false);
        }
        // A node that is still to come may never come.
        scene.snapshot = scene.snapshot.with_ready_places();
        scene
    }

    /// The same for pods that move only to save money. They go to no node whose pods were disturbed lately, as in Karpenter:
    /// they would disturb it again.
    pub(super) fn for_savings(&self, now: Timestamp) -> Cow<'_, Self> {
        let disturbed = disturbed(&self.snapshot, now);
        if disturbed.is_empty() {
            return Cow::Borrowed(self);
        }
        Cow::Owned(Self { snapshot: self.snapshot.with_closed_places(&disturbed), ..self.clone() })
    }

    /// The same, in which plans are made to their end.
    pub(super) fn unhurried(&self) -> Self {
        Self { planner: self.planner.unhurried(), ..self.clone() }
    }

    /// Which nodes may go, as things stand `now`.
    pub(super) fn candidates(&self, now: Timestamp) -> Candidates {
        Candidates::by(&self.roster, &self.snapshot, self.catalogs, now)
    }

    /// The node at a place, by index, whatever keeps it; see [`Candidates::regardless`].
    pub(super) fn candidate_at(&self, candidates: &Candidates, index: usize, now: Timestamp) -> Option<Candidate> {
        candidates.regardless(&self.roster, &self.snapshot, self.catalogs, now, index)
    }

    /// The cluster without some nodes.
    ///
    /// # Errors
    /// The pods that would have no place, by index; none if there is no time to plan for them.
    pub(super) fn try_without(&self, candidates: &[&Candidate], care: Care) -> Result<Trial, BTreeSet<usize>> {
        if self.planner.is_stopped() {
            return Err(BTreeSet::new());
        }
        let plan = self.plan_for(candidates, care);
        if !plan.unplaced.is_empty() {
            return Err(plan.unplaced.keys().filter_map(|pod| self.snapshot.pod_index(pod)).collect());
        }
        Ok(Trial::of(candidates, plan))
    }

    /// The cluster without some nodes, planned on top of the plan for other nodes; `None` if a pod would have no place, or there is
    /// no time to plan for it.
    pub(super) fn try_on_top_of(&self, earlier: &Plan, candidates: &[&Candidate]) -> Option<Trial> {
        if self.planner.is_stopped() {
            return None;
        }
        let plan = self.plan_on_top_of(earlier, candidates);
        plan.unplaced.is_empty().then(|| Trial::of(candidates, plan))
    }

    /// The plan for the pods of some nodes that are gone.
    pub(super) fn plan_for(&self, candidates: &[&Candidate], care: Care) -> Plan {
        self.plan(&self.without(candidates), care)
    }

    /// The same on top of another plan.
    pub(super) fn plan_on_top_of(&self, earlier: &Plan, candidates: &[&Candidate]) -> Plan {
        self.planner.plan_on_top_of(earlier, &self.without(candidates), self.catalogs)
    }

    /// The plan for pods, by index, that move because some places, by index, are gone.
    pub(super) fn plan_without(
        &self,
        gone: &BTreeSet<usize>,
        moving: impl IntoIterator<Item = usize>,
        care: Care,
    ) -> Plan {
        self.plan(&self.snapshot.without_places(gone, moving), care)
    }

    /// The cluster without some nodes, whose pods wait.
    fn without(&self, candidates: &[&Candidate]) -> Snapshot {
        let gone = candidates.iter().map(|candidate| candidate.place).collect();
        self.snapshot.without_places(&gone, candidates.iter().flat_map(|candidate| candidate.pods.iter().copied()))
    }

    fn plan(&self, snapshot: &Snapshot, care: Care) -> Plan {
        match care {
            Care::Sketch => self.planner.sketch(snapshot, self.catalogs, false),
            Care::WeighedSketch => self.planner.sketch(snapshot, self.catalogs, true),
            Care::Plan => self.planner.plan_weighing_room(snapshot, self.catalogs, true),
            Care::Best => self.planner.plan_weighing_room(snapshot, self.catalogs, false),
            Care::FewSketch => self.planner.for_few_nodes().sketch(snapshot, self.catalogs, false),
            Care::Few => self.planner.for_few_nodes().plan_weighing_room(snapshot, self.catalogs, true),
        }
    }

    /// The command that takes away nodes without pods to move.
    pub(super) fn emptied(candidates: &[&Candidate]) -> Command {
        let savings_per_hour = candidates.iter().map(|candidate| candidate.dollars_per_hour()).sum();
        Self::command(Method::Emptiness, candidates, Trial { plan: Plan::default(), savings_per_hour })
    }

    /// The cluster without the nodes of pools, whose pods want other places.
    pub(super) fn cleared(&self) -> Snapshot {
        let places = self.snapshot.places();
        let all: BTreeSet<usize> = (0..places.len()).filter(|&index| places[index].pool.is_some()).collect();
        let residents = all.iter().flat_map(|&index| places[index].residents.iter());
        let moving = residents.filter(|pod| pod.is_reschedulable());
        let moving: BTreeSet<usize> = moving.filter_map(|pod| self.snapshot.pod_index(&pod.key())).collect();
        self.snapshot.without_places(&all, moving)
    }

    /// What the node of a claim costs if it is bought as cheaply as it can be now; `None` if it cannot be bought.
    pub(super) fn cheapest_price(&self, claim: &PlannedClaim) -> Option<Price> {
        let catalog = self.catalogs.get(&claim.node_pool)?;
        let types = claim.instance_types.iter().filter_map(|name| catalog.get(name));
        types.filter_map(|source| Some(cheapest_offering(catalog, source, claim)?.price)).min()
    }

    /// What the node of a claim costs in dollars an hour if it is bought as dearly as it can be now.
    pub(super) fn dearest_price(&self, claim: &PlannedClaim) -> f64 {
        let Some(catalog) = self.catalogs.get(&claim.node_pool) else { return 0.0 };
        let types = claim.instance_types.iter().filter_map(|name| catalog.get(name));
        let prices = types.flat_map(|source| open_offerings(catalog, source, &claim.requirements));
        prices.map(|offering| offering.price.dollars_per_hour()).fold(0.0, f64::max)
    }

    /// The command that does what was tried.
    pub(super) fn command(method: Method, candidates: &[&Candidate], trial: Trial) -> Command {
        let mut names: Vec<String> = candidates.iter().map(|candidate| candidate.name.clone()).collect();
        names.sort();
        Command {
            method,
            candidates: names,
            replacements: trial.plan.claims,
            existing: trial.plan.existing,
            evictions: candidates.iter().map(|candidate| candidate.pods.len()).sum(),
            savings_per_hour: trial.savings_per_hour,
            eviction_cost: candidates.iter().map(|candidate| eviction_cost(candidate)).sum(),
        }
    }

    /// Carries a command out in thought.
    pub(super) fn carry_out(&mut self, command: &Command) {
        let is_gone = |place: &Place| command.candidates.binary_search(&place.name).is_ok();
        let places = self.snapshot.places().iter().enumerate();
        let gone: BTreeSet<usize> = places.filter(|(_, place)| is_gone(place)).map(|(index, _)| index).collect();
        let mut claims = command.replacements.clone();
        if command.method == Method::StaticDrift {
            // Nobody knows where the pods go: each node stands for the one that it comes for.
            let pods = gone.iter().map(|&index| self.snapshot.places()[index].pods.clone());
            claims.iter_mut().zip(pods).for_each(|(claim, pods)| claim.pods = pods);
        }
        self.snapshot = self.snapshot.without_places(&gone, []);
        // The nodes that go wait for those that come, which budgets count from then on.
        self.settle(&command.existing, &claims, true);
    }

    fn settle(&mut self, existing: &BTreeMap<String, Vec<ObjectKey>>, claims: &[PlannedClaim], are_initialized: bool) {
        let places = claims.iter().filter_map(|claim| self.place(claim));
        let further: Vec<Place> = places.map(|place| Place { is_initialized: are_initialized, ..place }).collect();
        self.snapshot = self.snapshot.settled(existing, further);
    }

    /// The node that a claim becomes if it is bought as cheaply as it can be. It takes no further pods: what it becomes is for
    /// the provider to choose.
    fn place(&mut self, claim: &PlannedClaim) -> Option<Place> {
        let pool = self.snapshot.pool(&claim.node_pool)?;
        let catalog = self.catalogs.get(&claim.node_pool)?;
        let instance_type = catalog.get(claim.instance_types.first()?)?;
        let offering = cheapest_offering(catalog, instance_type, claim)?;
        self.made += 1;
        let mut labels = claim.known_labels(pool);
        for (key, requirement) in offering.requirements.iter().chain(instance_type.requirements.iter()) {
            let asked = claim.requirements.get(key);
            let value = requirement.values().find(|value| asked.is_none_or(|asked| asked.admits(Some(value))));
            if let Some(value) = value {
                labels.entry(key.to_owned()).or_insert_with(|| value.to_owned());
            }
        }
        let mut place = Place::promised(format!("karpenter.sh/made-{:06}", self.made), labels);
        place.pool = Some(claim.node_pool.clone());
        place.taints.clone_from(&pool.spec.template.spec.taints);
        place.capacity = instance_type.capacity.clone();
        claim.pods.iter().filter_map(|pod| self.snapshot.shared_pod(pod)).for_each(|pod| place.house(pod));
        Some(place)
    }
}

/// The places of a cluster, by index, at which pods came or went lately.
pub(super) fn disturbed(snapshot: &Snapshot, now: Timestamp) -> BTreeSet<usize> {
    let pool = |place: &Place| place.pool.as_deref().and_then(|pool| snapshot.pool(pool));
    let places = snapshot.places().iter().enumerate();
    places.filter(|(_, place)| is_disturbed(place, pool(place), now)).map(|(index, _)| index).collect()
}

/// What it costs to move the pods of a node.
pub(super) fn eviction_cost(candidate: &Candidate) -> f64 {
    candidate.rescheduling_cost - super::NODE_COST
}

/// The offerings of a type that can be bought now and meet requirements.
pub(super) fn open_offerings<'c>(
    catalog: &'c Catalog,
    source: &'c InstanceType,
    requirements: &'c Requirements,
) -> impl Iterator<Item = &'c Offering> + Clone {
    let is_open = |offering: &&Offering| {
        offering.reservation_capacity != Some(0) && catalog.unmet(source, offering, requirements).is_none()
    };
    catalog.open_offerings(source).filter(is_open)
}

/// The offering that a claim for a type is launched by, if the provider buys as cheaply as it can.
pub(super) fn cheapest_offering<'c>(
    catalog: &'c Catalog,
    source: &'c InstanceType,
    claim: &'c PlannedClaim,
) -> Option<&'c Offering> {
    open_offerings(catalog, source, &claim.requirements).min_by_key(|offering| offering.price)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Quantity, Requirement,
        api::{NodePool, Pod},
        labels,
    };

    #[test]
    fn a_node_made_in_thought_has_the_labels_of_its_offering() {
        let mut machine = InstanceType::named("m", [("cpu", Quantity::from_units(4))]);
        machine.requirements.add(labels::ZONE, Requirement::one_of(["a", "b"]));
        machine.requirements.add(labels::CAPACITY_TYPE, Requirement::one_of([labels::ON_DEMAND, labels::SPOT]));
        for (capacity_type, zone, dollars) in [(labels::ON_DEMAND, "a", 1.0), (labels::SPOT, "b", 0.4)] {
            machine = machine.offering(capacity_type, zone, Price::per_hour(dollars).expect("a price"));
        }
        let builder = Snapshot::builder().pool(NodePool::named("p")).pods(Pod::named("web").cpu("1"));
        let snapshot = builder.build().expect("valid");
        let catalogs = Catalogs::shared(vec![machine], snapshot.pools()).expect("a catalog");
        let plan = Planner::default().plan(&snapshot, &catalogs);
        let mut scene = Scene::new(&snapshot, &catalogs, Planner::default(), Roster::of(&snapshot).into());
        let place = scene.place(&plan.claims()[0]).expect("a node");
        let label = |key: &str| place.labels[key].as_str();
        assert_eq!((label(labels::ZONE), label(labels::CAPACITY_TYPE)), ("b", labels::SPOT));
    }
}
