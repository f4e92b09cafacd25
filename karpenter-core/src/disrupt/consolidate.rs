//! Fewer and cheaper nodes for the same pods.
//!
//! A node wastes what it costs beyond what its pods are worth, which is what the cheapest nodes charge for their shares. The
//! nodes that waste most for what it costs to move their pods go together, as many of them as save most; their pods fill the
//! room that there is, and the planner makes new nodes for the rest. Where the cluster is not too large, nodes are also sought
//! from the other end: all go, but those that are better kept. Then nodes are taken from the sets and added to them for as long
//! as that gains something.
//!
//! What a command saves must be worth all its evictions together. Its last evictions are held to more where it saves most of
//! the bill, and to less where it leaves most of it.

use std::collections::BTreeMap;

use ordered_float::OrderedFloat;

use super::{
    Candidate, Candidates, Command, Method,
    allowance::Allowance,
    climb::{Climb, Field, Found, Outcome},
    extend::Extended,
    hurdle::Threshold,
    scene::{Care, Scene, Trial, eviction_cost},
    terms::Terms,
};
use crate::{Timestamp, api::DisruptionReason, schedule::parallel};

/// What rounding may add to a gain of some thousands of dollars an hour.
const ROUNDING: f64 = 1e-9;

/// Among how many sets of nodes that may go together a command is sought: all nodes, if a budget lets a twentieth go. Fewer if
/// less is tried.
const MAX_WINDOWS: usize = 20;
/// It is sought among more sets as long as these have had no more nodes: where few may go together, many of them may be of no use.
const MAX_NODES_OF_WINDOWS: usize = 400;

/// The most nodes that are looked at alone, planned for as well as can be, where no sketch finds a command.
const MAX_ALONE: usize = 16;
/// The most nodes of which nobody knows what they cost that are looked at for one command.
const MAX_UNPRICED: usize = 100;

/// A search for the next command.
pub(super) struct Consolidation<'c, 's> {
    pub(super) scene: &'c Scene<'s>,
    pub(super) candidates: &'c Candidates,
    pub(super) now: Timestamp,
    pub(super) threshold: Threshold,
    /// By what the most work is multiplied.
    pub(super) effort: f64,
    pub(super) terms: Terms<'c, 's>,
    /// What each pod is worth, in dollars an hour, by its index.
    pub(super) values: &'c BTreeMap<usize, f64>,
}

impl Consolidation<'_, '_> {
    /// Whether there is a node that the budget of its pool lets go now and of which the price is worth it to move its pods.
    pub(super) fn may_gain(&self) -> bool {
        let allowance = Allowance::new(&self.scene.snapshot, DisruptionReason::Underutilized, self.now);
        let mut all = self.candidates.for_reason(DisruptionReason::Underutilized);
        all.any(|node| !node.pods.is_empty() && allowance.admits(node) && self.most_gained(node) > 0.0)
    }

    /// The command that saves most, if any saves enough. It is sought among the nodes that waste most, as many of them as may
    /// go together; if there is none, among the next.
    pub(super) fn best(&self) -> Option<Command> {
        let (mut order, mut windows, mut nodes) = (self.by_waste(), 0, 0);
        while windows < self.share_of(MAX_WINDOWS).max(1) || nodes < self.share_of(MAX_NODES_OF_WINDOWS) {
            let (window, later) = self.window(order);
            if window.is_empty() {
                break;
            }
            let can_gain = window.iter().any(|candidate| self.most_gained(candidate) > 0.0);
            if let Some(command) = can_gain.then(|| self.best_among(&window)).flatten() {
                return Some(command);
            }
            (windows, nodes, order) = (windows + 1, nodes + window.len(), later);
        }
        None
    }

    /// The command that takes a single node away, its pods planned for as well as can be: what sketches of it miss is not missed of
    /// those that waste most.
    pub(super) fn alone(&self) -> Option<Command> {
        let allowance = self.allowance();
        let gaining = self.by_waste().into_iter().filter(|node| allowance.admits(node) && self.most_gained(node) > 0.0);
        gaining.take(self.share_of(MAX_ALONE)).find_map(|node| {
            let trial = self.cheapest(&[node], &[Care::Best])?;
            let is_worth_it = self.threshold.gain(&[node], &trial) > 0.0;
            is_worth_it.then(|| Scene::command(Method::Consolidation, &[node], trial))
        })
    }

    /// The command that takes away a node of which nobody knows what it costs and whose pods have room elsewhere, the one with the
    /// fewest pods: a node less never costs more.
    pub(super) fn unpriced(&self) -> Option<Command> {
        let allowance = self.allowance();
        let is_asked =
            |node: &&Candidate| node.price_per_hour.is_none() && !node.pods.is_empty() && allowance.admits(node);
        let all = self.candidates.for_reason(DisruptionReason::Underutilized);
        let mut nodes: Vec<&Candidate> = all.filter(is_asked).collect();
        nodes.sort_by_key(|node| node.pods.len());
        nodes.into_iter().take(MAX_UNPRICED).find_map(|node| {
            let trial = self.scene.try_without(&[node], Care::Best).ok()?;
            let is_delete = trial.plan.claims.is_empty() && self.terms.allow(&[node], &trial);
            is_delete.then(|| Scene::command(Method::Consolidation, &[node], trial))
        })
    }

    /// How many nodes budgets let go now.
    fn allowance(&self) -> Allowance<'_> {
        Allowance::new(&self.scene.snapshot, DisruptionReason::Underutilized, self.now)
    }

    /// So many attempts, as many of them as are worth the effort.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "what is too much is the most there is"
    )]
    pub(super) fn share_of(&self, attempts: usize) -> usize {
        (attempts as f64 * self.effort) as usize
    }

    fn best_among(&self, order: &[&Candidate]) -> Option<Command> {
        let field = Field::new(self, order);
        let starts = field.starts();
        let found = Found::best(starts.iter().cloned()).filter(|found| found.is_worth_it(self.threshold))?;
        let bill: f64 = order.iter().map(|candidate| candidate.dollars_per_hour()).sum();
        let last = self.threshold.for_last(found.savings_per_hour() / bill);
        let climb = |found: &Found| Climb::new(&field, last, found.sketch).bound_by(self.threshold);
        let ends = Climb::followed(&starts, climb);
        let Outcome { nodes, care, .. } = Climb::best_planned(&ends, climb)?.outcome;
        let ways: &[Care] = match care {
            Care::Best => &[care],
            Care::FewSketch => &[Care::Best, Care::Few, care],
            _ => &[Care::Best, care],
        };
        let candidates = field.candidates(&nodes);
        let trials = [self.cheapest(&candidates, ways), self.as_looked_at(&candidates, care)];
        let trial = trials.into_iter().flatten().max_by(|a, b| a.savings_per_hour.total_cmp(&b.savings_per_hour))?;
        let Extended { nodes, trial } = self.extended(&field, last, &Extended { nodes, trial });
        let candidates = field.candidates(&nodes);
        let is_worth_it = self.threshold.gain(&candidates, &trial) > 0.0;
        is_worth_it.then(|| Scene::command(Method::Consolidation, &candidates, trial))
    }

    /// What comes of taking nodes away if that is planned in the best of some ways, as far as it keeps the terms.
    pub(super) fn cheapest(&self, candidates: &[&Candidate], ways: &[Care]) -> Option<Trial> {
        let trial = |&care: &Care| self.terms.settle(candidates, self.scene.try_without(candidates, care).ok()?);
        let trials = parallel::map(ways, trial).into_iter().flatten();
        trials.max_by(|a, b| a.savings_per_hour.total_cmp(&b.savings_per_hour))
    }

    /// The same as it was planned when it was looked at, if the search was stopped since.
    fn as_looked_at(&self, candidates: &[&Candidate], care: Care) -> Option<Trial> {
        let unhurried = self.scene.planner.is_stopped().then(|| self.scene.unhurried())?;
        self.terms.settle(candidates, unhurried.try_without(candidates, care).ok()?)
    }

    /// The nodes that may go, those that waste most for what it costs to move their pods first.
    fn by_waste(&self) -> Vec<&Candidate> {
        let all = self.candidates.for_reason(DisruptionReason::Underutilized);
        let mut order: Vec<&Candidate> = all.filter(|candidate| !candidate.pods.is_empty()).collect();
        order.sort_by_cached_key(|candidate| {
            let waste = self.waste(candidate);
            (OrderedFloat(-waste / (1.0 + eviction_cost(candidate))), candidate.name.clone())
        });
        order
    }

    /// As many of the first nodes as may go together, and the others.
    fn window<'k>(&self, order: Vec<&'k Candidate>) -> (Vec<&'k Candidate>, Vec<&'k Candidate>) {
        let mut allowance = self.allowance();
        order.into_iter().partition(|candidate| allowance.take(candidate))
    }

    /// The most that taking a node away adds to what is gained, with whichever others it goes: all that it costs, if its pods
    /// find room for nothing. Nothing if even that is not enough.
    fn most_gained(&self, candidate: &Candidate) -> f64 {
        let price = candidate.dollars_per_hour();
        (price - self.threshold.per_hour(eviction_cost(candidate), price) + ROUNDING).max(0.0)
    }

    /// What a node costs beyond what its pods are worth, in dollars an hour.
    fn waste(&self, candidate: &Candidate) -> f64 {
        let worth: f64 = candidate.pods.iter().filter_map(|pod| self.values.get(pod)).sum();
        candidate.dollars_per_hour() - worth
    }
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::{
        Catalogs, InstanceType, Planner, Price, Quantity, Snapshot,
        api::{Node, NodeClaim, NodePool, Pod},
        disrupt::{Roster, SpotToSpot, balance::Balance},
    };

    fn read<T: serde::de::DeserializeOwned>(value: Value) -> T {
        serde_json::from_value(value).expect("as the API has it")
    }

    /// Nodes of four prices with one to four pods each, and room for some of them.
    pub(in crate::disrupt) fn cluster() -> (Snapshot, Catalogs) {
        let prices = ["0.004", "0.02", "0.05", "0.4"];
        let nodes = prices.into_iter().cycle().take(8).enumerate();
        cluster_of(&prices.map(|price| (price, 4)), nodes.map(|(number, price)| (price, vec!["900m"; number % 4 + 1])))
    }

    /// Nodes of types with so many CPUs, each named by its price, with pods that ask for so much CPU each.
    pub(in crate::disrupt) fn cluster_of<'t>(
        types: &[(&str, i64)],
        nodes: impl Iterator<Item = (&'t str, Vec<&'t str>)>,
    ) -> (Snapshot, Catalogs) {
        let mut pool = NodePool::named("p");
        pool.spec.disruption = read(json!({"consolidateAfter": "0s", "budgets": [{"nodes": "100%"}]}));
        let catalog = types.iter().map(|&(price, cpu)| {
            let capacity = [("cpu", Quantity::from_units(cpu)), ("pods", Quantity::from_units(10))];
            let offered = InstanceType::named(price, capacity);
            offered.offering("on-demand", "a", Price::per_hour(price.parse().expect("a number")).expect("a price"))
        });
        let catalogs = Catalogs::shared(catalog.collect(), [&pool]).expect("a catalog");
        let mut builder = Snapshot::builder().pool(pool);
        let mut pods: Vec<Pod> = Vec::new();
        for (number, (price, requests)) in nodes.enumerate() {
            let name = format!("n{number}");
            let cpu = types.iter().find(|(own, _)| *own == price).expect("a type").1;
            let labels = json!({
                "karpenter.sh/nodepool": "p", "karpenter.sh/registered": "true", "karpenter.sh/initialized": "true",
                "node.kubernetes.io/instance-type": price, "topology.kubernetes.io/zone": "a",
                "karpenter.sh/capacity-type": "on-demand",
            });
            let (id, room) = (format!("id://{name}"), json!({"cpu": cpu.to_string(), "pods": "10"}));
            builder = builder
                .claim(read::<NodeClaim>(json!({
                    "metadata": {"name": name, "labels": labels}, "spec": {"nodeClassRef": {}, "requirements": []},
                    "status": {"providerID": id, "nodeName": name},
                })))
                .node(read::<Node>(json!({
                    "metadata": {"name": name, "labels": labels}, "spec": {"providerID": id},
                    "status": {"capacity": room, "allocatable": room},
                })));
            pods.extend(requests.iter().enumerate().map(|(pod, cpu)| {
                read::<Pod>(json!({
                    "metadata": {"name": format!("{name}-{pod}"), "namespace": "default", "ownerReferences":
                        [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "o", "uid": "u"}]},
                    "spec": {"nodeName": name, "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]},
                    "status": {"phase": "Running"},
                }))
            }));
        }
        (builder.pods(pods).build().expect("a cluster"), catalogs)
    }

    #[test]
    fn no_set_of_nodes_gains_more_than_its_nodes_may() {
        let (snapshot, catalogs) = cluster();
        let now = Timestamp::from_millis(0);
        let scene = Scene::new(&snapshot, &catalogs, Planner::default(), Roster::of(&snapshot).into());
        let candidates = scene.candidates(now);
        let balance = Balance::of(&scene);
        let terms = Terms { scene: &scene, spot_to_spot: SpotToSpot::default(), balance: &balance };
        let threshold = Threshold { per_eviction: 0.01, share: 0.01 };
        let values = BTreeMap::new();
        let consolidation = Consolidation {
            scene: &scene,
            candidates: &candidates,
            now,
            threshold,
            effort: 1.0,
            terms,
            values: &values,
        };
        let order: Vec<&Candidate> = candidates.all().iter().collect();
        assert_eq!(order.len(), 8);
        let (mut gaining, mut hopeless) = (0, 0);
        let most_gained: Vec<f64> = order.iter().map(|node| consolidation.most_gained(node)).collect();
        for mask in 1..1_u32 << order.len() {
            let nodes: Vec<usize> = (0..order.len()).filter(|node| mask & (1 << node) != 0).collect();
            let gone: Vec<&Candidate> = nodes.iter().map(|&node| order[node]).collect();
            let Ok(trial) = scene.try_without(&gone, Care::Sketch) else { continue };
            let gain = threshold.gain(&gone, &trial);
            let most: f64 = nodes.iter().map(|&node| most_gained[node]).sum();
            assert!(gain <= most, "{nodes:?} gain {gain}, which is more than {most}");
            gaining += u32::from(gain > 0.0);
            hopeless += u32::from(most <= 0.0);
        }
        assert!(gaining > 0 && hopeless > 0, "{gaining} {hopeless}");
    }
}
