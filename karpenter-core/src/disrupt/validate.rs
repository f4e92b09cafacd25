//! Whether a command is still right some time after it was found.

use std::collections::BTreeMap;

use super::{
    BudgetLimit, Candidate, Candidates, Command, Disruptor, Guard, MIN_BALANCE, Method, allowance,
    balance::Balance,
    cover,
    disruptor::{is_drifted, without_held_pods},
    guard::join,
    hurdle::{Threshold, Worth},
    scene::{Care, Scene, eviction_cost},
    static_drift,
};
use crate::{
    Catalogs, Price, Reason, Snapshot, Timestamp,
    api::{DisruptionReason, ObjectKey},
    schedule::{Plan, PlannedClaim},
};

/// Why a command must not be carried out any more.
///
/// Amounts of money are in dollars an hour.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Invalid {
    /// There is no such node any more.
    #[error("there is no node {node}")]
    Gone {
        /// The name of the node.
        node: String,
    },
    /// Something keeps the node.
    #[error("node {node}: {}", join(guards, "; "))]
    Kept {
        /// The name of the node.
        node: String,
        /// What keeps it from going for the reason of the command.
        guards: Vec<Guard>,
    },
    /// Pods came to a node that was to go because it had none.
    #[error("node {node} has pods to move: {}", join(pods, ", "))]
    NotEmpty {
        /// The name of the node.
        node: String,
        /// The pods.
        pods: Vec<ObjectKey>,
    },
    /// The claim does not say any more that the node has drifted.
    #[error("node {node} has not drifted")]
    NotDrifted {
        /// The name of the node.
        node: String,
    },
    /// The budgets of the pool do not allow so many nodes.
    #[error("node {node}: nodes of pool {pool} that would go at once: {wanted}; {limit}")]
    Budget {
        /// The first node that is too many.
        node: String,
        /// The name of the pool.
        pool: String,
        /// How many of its nodes would go with this one.
        wanted: u32,
        /// What limits it.
        limit: Box<BudgetLimit>,
    },
    /// Pods would have no place.
    #[error("pods without a place: {}", join(&pods.keys().collect::<Vec<_>>(), ", "))]
    Unplaced {
        /// The pods, with what keeps them from a place.
        pods: BTreeMap<ObjectKey, Reason>,
    },
    /// The pods need more nodes than the command makes, or fewer.
    #[error("nodes that the pods need: {needed}; that would be made: {planned}")]
    OtherNodes {
        /// How many nodes the command makes.
        planned: usize,
        /// How many the pods need.
        needed: usize,
    },
    /// A static pool must not have so many nodes more while old and new ones are there: it is about to lose nodes, its limit is
    /// in the way, it is not ready, or there is nothing to make them from.
    #[error("static pool {pool} can have {allowed} nodes more, and {planned} would be made")]
    StaticPool {
        /// The name of the pool.
        pool: String,
        /// How many nodes the command makes.
        planned: usize,
        /// How many it can have.
        allowed: usize,
    },
    /// A node that the command makes may become what does not serve its pods, or what cannot be bought.
    #[error("a node of pool {node_pool} does not serve the pods as {}", name_types(instance_types))]
    OtherTypes {
        /// The pool of the node.
        node_pool: String,
        /// The instance types that it may become and must not; none if it is its zone or another label that does not serve.
        instance_types: Vec<String>,
    },
    /// What is saved is not worth the disruption for a pool with the policy `Balanced`.
    #[error(
        "pool {pool} has consolidationPolicy Balanced, and the command scores {score:.2}, which must be {MIN_BALANCE} at least"
    )]
    Unbalanced {
        /// The name of the pool.
        pool: String,
        /// The share of the pool's bill that is saved, for each share of its disruption.
        score: f64,
    },
    /// What is saved is not worth it.
    #[error("${savings_per_hour:.4} an hour is saved, and it must be more than ${threshold_per_hour:.4}")]
    SavesTooLittle {
        /// How much less the cluster would cost.
        savings_per_hour: f64,
        /// How much less it must cost.
        threshold_per_hour: f64,
    },
}

fn name_types(instance_types: &[String]) -> String {
    if instance_types.is_empty() { "what its labels make it".to_owned() } else { instance_types.join(", ") }
}

impl Disruptor {
    /// Whether a command is still right in a newer snapshot, taken shortly before it is carried out. Karpenter waits for 15
    /// seconds and looks again, because pods come and go while a search runs.
    ///
    /// - Each node is there, and neither a guard nor a budget of its pool or of its pods has come in the way. Budgets count
    ///   for all nodes of the command together. A shell that taints the nodes does so after this.
    /// - It is still empty, or still drifted, if that is why it goes.
    /// - All pods that are on the nodes now have a place, on as many new nodes as the command makes. Each of these may become
    ///   whatever it may become by the command: of the nodes that the planner would make now, each stands for one of them
    ///   that names no other types and no other labels.
    /// - A consolidation still saves what it must, at the prices of now. One that makes no node for nodes of which nobody knows
    ///   what they cost need not.
    ///
    /// Pods that wait are given a place first, as in [`Disruptor::start`]; a node whose room was promised to one of them stays.
    /// The first command of a search is right in the snapshot in which it was found. The others are right once those before
    /// them have been carried out.
    ///
    /// ```
    /// use karpenter_core::{
    ///     Catalogs, InstanceType, Price, Quantity, Snapshot, Timestamp,
    ///     api::{Node, NodeClaim, NodePool},
    ///     disrupt::{Disruptor, Invalid},
    /// };
    /// # let labels = r#"{"karpenter.sh/nodepool":"general","karpenter.sh/registered":"true","karpenter.sh/initialized":"true"}"#;
    /// # let claim =
    /// #     format!(r#"{{"metadata":{{"name":"c","labels":{labels}}},"spec":{{"nodeClassRef":{{}}}},"status":{{"providerID":"id"}}}}"#);
    /// # let node = format!(r#"{{"metadata":{{"name":"idle","labels":{labels}}},"spec":{{"providerID":"id"}}}}"#);
    /// # let (claim, node) = (serde_json::from_str::<NodeClaim>(&claim)?, serde_json::from_str::<Node>(&node)?);
    /// # let small = InstanceType::named("small", [("cpu", Quantity::from_units(2))])
    /// #     .offering("on-demand", "zone-a", Price::per_hour(0.1).unwrap());
    ///
    /// // An idle node goes, unless somebody protects it in the meantime.
    /// let before = Snapshot::builder().pool(NodePool::named("general")).node(node.clone()).claims([claim.clone()]).build()?;
    /// let catalogs = Catalogs::shared(vec![small], before.pools())?;
    /// let (disruptor, now) = (Disruptor::default(), "2026-01-01T12:00:00Z".parse()?);
    /// let command = disruptor.start(&before, &catalogs, now).next().unwrap();
    /// assert_eq!(disruptor.validate(&command, &before, &catalogs, now), Ok(()));
    ///
    /// let mut protected = node;
    /// protected.metadata.annotations.insert("karpenter.sh/do-not-disrupt".to_owned(), "true".to_owned());
    /// let after = Snapshot::builder().pool(NodePool::named("general")).node(protected).claims([claim]).build()?;
    /// let error = disruptor.validate(&command, &after, &catalogs, now).unwrap_err();
    /// assert_eq!(error.to_string(), "node idle: it has the annotation karpenter.sh/do-not-disrupt");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The first thing that is not right any more.
    pub fn validate(
        &self,
        command: &Command,
        newer: &Snapshot,
        catalogs: &Catalogs,
        now: Timestamp,
    ) -> Result<(), Invalid> {
        let scene = self.scene(newer, catalogs);
        let candidates = scene.candidates(now);
        let review = Review { scene: &scene, candidates: &candidates, command, now };
        let nodes = review.nodes()?;
        match command.method {
            Method::Emptiness => Ok(()),
            Method::StaticDrift => review.bare_replacements(&nodes),
            Method::Drift => {
                let moving: Vec<_> = nodes.iter().map(|node| without_held_pods(&scene, node, now)).collect();
                review.replacements(&moving.iter().map(AsRef::as_ref).collect::<Vec<_>>())
            }
            Method::Consolidation => {
                let review = Review { scene: &scene.for_savings(now), ..review };
                review.replacements(&nodes)?;
                review.savings(&nodes, self.hurdle().threshold(|| Worth::of(&scene).per_eviction()))
            }
        }
    }

    /// What is still right of a command in a newer snapshot. Of empty nodes and of drifted nodes of a static pool those go that
    /// still may, whatever has become of the others; every other command is right as a whole or not at all.
    ///
    /// # Errors
    /// As [`Disruptor::validate`]; for these nodes, the first thing that is not right if none of them may go any more.
    pub fn revalidate(
        &self,
        command: &Command,
        newer: &Snapshot,
        catalogs: &Catalogs,
        now: Timestamp,
    ) -> Result<Command, Invalid> {
        if !matches!(command.method, Method::Emptiness | Method::StaticDrift) {
            return self.validate(command, newer, catalogs, now).map(|()| command.clone());
        }
        let scene = self.scene(newer, catalogs);
        let candidates = scene.candidates(now);
        let review = Review { scene: &scene, candidates: &candidates, command, now };
        let mut tally = Tally::new(&review);
        let (mut still, mut first) = (Vec::new(), None);
        for name in &command.candidates {
            match review.node(name).and_then(|node| tally.admit(node).map(|()| node)) {
                Ok(node) => still.push(node),
                Err(error) => first = first.or(Some(error)),
            }
        }
        match first {
            Some(error) if still.is_empty() => Err(error),
            _ if command.method == Method::Emptiness => Ok(Scene::emptied(&still)),
            _ => review.replaced(&still),
        }
    }
}

/// A command and the cluster as it is now.
struct Review<'r, 's> {
    scene: &'r Scene<'s>,
    candidates: &'r Candidates,
    command: &'r Command,
    now: Timestamp,
}

impl<'r> Review<'r, '_> {
    /// The nodes of the command, all of which may go.
    fn nodes(&self) -> Result<Vec<&'r Candidate>, Invalid> {
        let mut tally = Tally::new(self);
        let one = |name: &String| {
            let node = self.node(name)?;
            tally.admit(node)?;
            Ok(node)
        };
        self.command.candidates.iter().map(one).collect()
    }

    /// A node that may go by itself.
    fn node(&self, name: &str) -> Result<&'r Candidate, Invalid> {
        let (method, reason) = (self.command.method, self.command.method.reason());
        let (all, kept) = (self.candidates.all(), self.candidates.kept());
        let found = all.binary_search_by(|candidate| candidate.name.as_str().cmp(name));
        let Some(candidate) = found.ok().map(|index| &all[index]) else {
            let found = kept.binary_search_by(|kept| kept.name.as_str().cmp(name));
            let kept = &kept[found.map_err(|_| Invalid::Gone { node: name.to_owned() })?];
            let claim = self.scene.snapshot.places()[kept.place].node_claim.as_deref();
            let has_grace = claim.is_some_and(|claim| claim.spec.termination_grace_period.is_some());
            let guards = kept.guards.iter().filter(|guard| guard.scope().covers(reason, has_grace)).cloned().collect();
            return Err(Invalid::Kept { node: name.to_owned(), guards });
        };
        let guards: Vec<Guard> = candidate.guards_against(reason).cloned().collect();
        if !guards.is_empty() {
            return Err(Invalid::Kept { node: name.to_owned(), guards });
        }
        let snapshot = &self.scene.snapshot;
        if method == Method::Emptiness && !candidate.pods.is_empty() {
            let pods = candidate.pods.iter().map(|&pod| snapshot.pods()[pod].key()).collect();
            return Err(Invalid::NotEmpty { node: name.to_owned(), pods });
        }
        if reason == DisruptionReason::Drifted && !is_drifted(&snapshot.places()[candidate.place]) {
            return Err(Invalid::NotDrifted { node: name.to_owned() });
        }
        Ok(candidate)
    }

    /// Whether the pods of the nodes find places with the replacements of the command.
    fn replacements(&self, nodes: &[&Candidate]) -> Result<(), Invalid> {
        // A command is found by any of these, or node by node.
        let best = self.scene.plan_for(nodes, Care::Best);
        let mut others = [Care::Plan, Care::WeighedSketch, Care::Sketch, Care::Few, Care::FewSketch].into_iter();
        self.served_by(&best).or_else(|error| {
            let is_served = |care| self.served_by(&self.scene.plan_for(nodes, care)).is_ok();
            if others.any(is_served) || self.stands(nodes, &best) { Ok(()) } else { Err(error) }
        })
    }

    /// Whether the pods have places where the command has them, and no plan has cheaper ones.
    fn stands(&self, nodes: &[&Candidate], best: &Plan) -> bool {
        let plan = self.scene.plan_on_top_of(&self.command.plan(), nodes);
        let is_cheapest = !best.unplaced.is_empty() || plan.hourly_cost() <= best.hourly_cost();
        is_cheapest && self.served_by(&plan).is_ok()
    }

    /// Whether each node of a static pool can be replaced by what the command makes.
    fn bare_replacements(&self, nodes: &[&Candidate]) -> Result<(), Invalid> {
        let now = self.replaced(nodes)?.replacements;
        let planned = &self.command.replacements;
        if now.len() != planned.len() {
            let pool = nodes.first().map(|node| node.pool.clone()).unwrap_or_default();
            return Err(Invalid::StaticPool { pool, planned: planned.len(), allowed: now.len() });
        }
        are_covered(planned, &now)
    }

    /// The command that replaces these nodes of a static pool, or as many as it has room for.
    fn replaced(&self, nodes: &[&Candidate]) -> Result<Command, Invalid> {
        let name = nodes.first().map(|node| node.pool.clone()).unwrap_or_default();
        let pool = self.scene.snapshot.pool(&name);
        let command = pool.and_then(|pool| static_drift::replaced(self.scene, pool, nodes));
        command.ok_or(Invalid::StaticPool { pool: name, planned: nodes.len(), allowed: 0 })
    }

    fn served_by(&self, plan: &Plan) -> Result<(), Invalid> {
        let (planned, needed) = (&self.command.replacements, &plan.claims);
        if !plan.unplaced.is_empty() {
            return Err(Invalid::Unplaced { pods: plan.unplaced.clone() });
        }
        if planned.len() != needed.len() {
            return Err(Invalid::OtherNodes { planned: planned.len(), needed: needed.len() });
        }
        are_covered(planned, needed)
    }

    /// Whether the command saves what it must.
    fn savings(&self, nodes: &[&Candidate], threshold: Threshold) -> Result<(), Invalid> {
        let before: f64 = nodes.iter().map(|node| node.dollars_per_hour()).sum();
        let price =
            |claim: &PlannedClaim| self.scene.cheapest_price(claim).map_or(f64::INFINITY, Price::dollars_per_hour);
        let after: f64 = self.command.replacements.iter().map(price).sum();
        let most_after: f64 = self.command.replacements.iter().map(|claim| self.scene.dearest_price(claim)).sum();
        let evictions: f64 = nodes.iter().map(|node| eviction_cost(node)).sum();
        let (savings_per_hour, threshold_per_hour) = (before - after, threshold.per_hour(evictions, before));
        let is_unpriced_delete = self.command.is_delete() && nodes.iter().all(|node| node.price_per_hour.is_none());
        if savings_per_hour <= threshold_per_hour && !is_unpriced_delete {
            return Err(Invalid::SavesTooLittle { savings_per_hour, threshold_per_hour });
        }
        // It may be bought as whatever it names.
        if most_after >= before && !self.command.is_delete() {
            return Err(Invalid::SavesTooLittle { savings_per_hour: before - most_after, threshold_per_hour: 0.0 });
        }
        match Balance::of(self.scene).least(nodes, savings_per_hour) {
            Some((pool, score)) if score < MIN_BALANCE => Err(Invalid::Unbalanced { pool: pool.to_owned(), score }),
            _ => Ok(()),
        }
    }
}

fn are_covered(planned: &[PlannedClaim], needed: &[PlannedClaim]) -> Result<(), Invalid> {
    let Some(claim) = cover::uncovered(planned, needed) else { return Ok(()) };
    let (node_pool, instance_types) = (claim.node_pool.clone(), cover::missing_types(claim, needed));
    Err(Invalid::OtherTypes { node_pool, instance_types })
}

/// What the nodes that were admitted take of the budgets.
struct Tally<'t> {
    snapshot: &'t Snapshot,
    method: Method,
    now: Timestamp,
    /// By pool, what limits its nodes and how many were admitted.
    pools: BTreeMap<&'t str, (BudgetLimit, u32)>,
}

impl<'t> Tally<'t> {
    fn new(review: &Review<'t, '_>) -> Self {
        let Review { scene, command, now, .. } = *review;
        Self { snapshot: &scene.snapshot, method: command.method, now, pools: BTreeMap::new() }
    }

    /// Counts a node, if it may go with those that were counted.
    fn admit(&mut self, node: &'t Candidate) -> Result<(), Invalid> {
        let (snapshot, reason, now) = (self.snapshot, self.method.reason(), self.now);
        let pool = snapshot.pool(&node.pool).expect("the pool of a candidate is in the snapshot");
        let limit = || (allowance::limit(snapshot, pool, reason, now), 0);
        let (limit, taken) = self.pools.entry(pool.name()).or_insert_with(limit);
        if *taken >= limit.allowed() {
            let (pool, wanted) = (node.pool.clone(), *taken + 1);
            return Err(Invalid::Budget { node: node.name.clone(), pool, wanted, limit: Box::new(limit.clone()) });
        }
        *taken += 1;
        Ok(())
    }
}
