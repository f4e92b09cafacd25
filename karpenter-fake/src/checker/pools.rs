//! Limits and weights.

use std::collections::{BTreeMap, BTreeSet};

use karpenter_core::{
    Catalog, InstanceType, PlannedClaim, Requirements, ResourceList, ResourceName,
    api::{ConditionStatus, NodeClaim, NodePool, NodeSelectorRequirement, ObjectKey, Operator, Pod, PodSpec},
    labels,
};

use super::{
    Checker, Violation,
    filters::{Amounts, add, amounts_of, fits, misfit, quantity, requests, untolerated},
    options::{Options, allocatable},
    ports::{Port, is_same, ports},
    topology,
};

/// Why no node may be made of a pool now, if so.
pub(super) fn unready(pool: &NodePool) -> Option<String> {
    if pool.metadata.deletion_timestamp.is_some() {
        return Some("it is being deleted".to_owned());
    }
    if pool.spec.replicas.is_some() {
        return Some("it is static".to_owned());
    }
    let kinds = ["Ready", "ValidationSucceeded", "NodeClassReady"];
    let is_bad = |kind: &str, status| kinds.contains(&kind) && status == ConditionStatus::False;
    let is_unsure = |kind: &str, status| kind == "Ready" && status == ConditionStatus::Unknown;
    let mut conditions = pool.status.conditions.iter();
    if let Some(bad) = conditions.find(|c| is_bad(&c.r#type, c.status) || is_unsure(&c.r#type, c.status)) {
        return Some(format!("{} is {:?}", bad.r#type, bad.status));
    }
    // A budget that cannot be read protects nodes, and keeps none from being made.
    let mut without_budgets = pool.clone();
    without_budgets.spec.disruption.budgets.clear();
    without_budgets.validate().err().map(|error| error.to_string())
}

impl Checker<'_> {
    /// Whatever is bought for each claim, the pools stay within their limits.
    pub(super) fn check_limits(&mut self) {
        for pool in self.snapshot.pools() {
            let claims = self.plan.claims().iter().filter(|c| c.node_pool == pool.name());
            let claims: Vec<&PlannedClaim> = claims.collect();
            let Some(catalog) = self.catalogs.get(pool.name()).filter(|_| !claims.is_empty()) else { continue };
            for (name, limit) in pool.spec.limits.iter() {
                let existing = self.existing(pool, name, catalog);
                let types =
                    |claim: &PlannedClaim| largest(claim.instance_types.iter().filter_map(|t| catalog.get(t)), name);
                let new: i64 = claims.iter().map(|claim| types(claim)).sum();
                let most = amounts_of(&ResourceList::from_iter([(name.clone(), limit)]))[name];
                if new > 0 && existing.saturating_add(new) > most {
                    let (existing, new) = (quantity(name, existing), quantity(name, new));
                    let (pool, resource) = (pool.name().to_owned(), name.clone());
                    self.violations.push(Violation::Limit { pool, resource, limit, existing, new });
                }
            }
        }
    }

    /// What the nodes of a pool have already, and its claims that are not launched yet may have.
    fn existing(&self, pool: &NodePool, name: &ResourceName, catalog: &Catalog) -> i64 {
        let of_pool =
            self.snapshot.places().iter().filter(|p| p.pool.as_deref() == Some(pool.name()) && !p.is_deleting);
        let there: i64 = of_pool.map(|place| size(&place.capacity, name)).sum();
        let is_coming = |claim: &&NodeClaim| {
            claim.metadata.deletion_timestamp.is_none()
                && claim.metadata.labels.get(labels::NODE_POOL).is_some_and(|p| p == pool.name())
        };
        let coming = self.snapshot.unlaunched().iter().filter(is_coming);
        there + coming.map(|claim| largest(types_of(claim, catalog).into_iter(), name)).sum::<i64>()
    }

    /// No claim is of a pool if a heavier one without limits would take each of its pods. Pods that have to do with
    /// others, or with volumes, may have their reasons.
    pub(super) fn check_weights(&mut self) {
        let mut rooms: BTreeMap<&str, Vec<Room>> = BTreeMap::new();
        let mut tied: Option<BTreeSet<ObjectKey>> = None;
        for (index, claim) in self.plan.claims().iter().enumerate() {
            let Some(pool) = self.snapshot.pool(&claim.node_pool) else { continue };
            let pods = self.pods(&claim.pods);
            let is_heavier = |p: &&NodePool| p.weight() > pool.weight() && is_open(p) && !self.has_doubtful_daemons(p);
            for heavier in self.snapshot.pools().iter().filter(is_heavier) {
                let rooms = rooms
                    .entry(heavier.name())
                    .or_insert_with(|| self.rooms(heavier).into_iter().filter(|room| !room.is_reserved).collect());
                let is_free = |pod: &&Pod| {
                    let tied = tied.get_or_insert_with(|| topology::tied(self.snapshot, &self.namespaces));
                    asks_only_for_a_node(&pod.spec) && !tied.contains(&pod.key())
                };
                let would_take = |pod: &&Pod| takes(heavier, rooms, pod);
                if !pods.is_empty() && pods.iter().all(would_take) && pods.iter().all(is_free) {
                    let (pool, heavier) = (pool.name().to_owned(), heavier.name().to_owned());
                    self.violations.push(Violation::Weight { claim: index, pool, heavier });
                    break;
                }
            }
        }
    }

    /// Whether daemons ask for a label that the pool leaves open. They are reckoned with, as in Karpenter, though a node that nobody
    /// asks for the label has none, so that they do not come.
    fn has_doubtful_daemons(&self, pool: &NodePool) -> bool {
        let is_open = |r: &NodeSelectorRequirement| !matches!(r.operator, Operator::In | Operator::DoesNotExist);
        let open = pool.spec.template.spec.requirements.iter().filter(|r| is_open(r));
        let keys: BTreeSet<&str> = open.map(|r| r.key.as_str()).collect();
        let mut asked = self.daemons.0.iter().flat_map(|(one, _)| topology::node_keys(&one.spec.template.spec));
        asked.any(|key| keys.contains(key))
    }

    /// All nodes that a pool can have, each without pods. Those that have no room for their daemons are left out.
    pub(super) fn rooms(&self, pool: &NodePool) -> Vec<Room> {
        let Some(catalog) = self.catalogs.get(pool.name()) else { return Vec::new() };
        let options = Options::new(pool, catalog, &Requirements::new(), &BTreeMap::new(), "new".to_owned());
        let mut out = Vec::new();
        for instance_type in catalog.types() {
            let all = allocatable(instance_type);
            for node in options.of_type(instance_type).into_iter().filter(|node| !node.is_used_up()) {
                let is_reserved = node.is_reserved();
                let taints = &pool.spec.template.spec.taints;
                let (mut daemons, mut taken_ports, running) = (Amounts::new(), Vec::new(), BTreeSet::new());
                for (daemonset, requests) in self.daemons.coming("new", &node.labels, taints, &running) {
                    add(&mut daemons, requests);
                    taken_ports.extend(ports(&daemonset.spec.template.spec));
                }
                if fits(&daemons, &all) {
                    let mut free = all.clone();
                    add(&mut free, &daemons.into_iter().map(|(name, amount)| (name, -amount)).collect());
                    out.push(Room { labels: node.labels, taken_ports, free, is_reserved });
                }
            }
        }
        out
    }
}

/// A node that a pool can have.
pub(super) struct Room {
    pub(super) labels: BTreeMap<String, String>,
    /// What is left beside its daemons.
    pub(super) free: Amounts,
    taken_ports: Vec<Port>,
    pub(super) is_reserved: bool,
}

/// Whether the weight of a pool binds: it is ready, and nothing but its nodes decides what it takes.
pub(super) fn is_open(pool: &NodePool) -> bool {
    let has_min_values = pool.spec.template.spec.requirements.iter().any(|r| r.min_values.is_some());
    unready(pool).is_none() && pool.spec.limits.is_empty() && !has_min_values
}

/// Whether nothing but the node itself decides whether the pod may or likes to be there.
pub(super) fn asks_only_for_a_node(spec: &PodSpec) -> bool {
    let affinity = &spec.affinity;
    let (near, away) = (&affinity.pod_affinity, &affinity.pod_anti_affinity);
    let has_neighbours = [near, away].iter().any(|terms| !terms.required.is_empty() || !terms.preferred.is_empty());
    let has_claims = spec.volumes.iter().any(|v| v.persistent_volume_claim.is_some() || v.ephemeral.is_some());
    let has_preferences = !affinity.node_affinity.preferred.is_empty();
    !(has_neighbours || has_claims || has_preferences) && spec.topology_spread_constraints.is_empty()
}

/// Whether some node of the pool takes the pod alone, taints that only prefer included.
pub(super) fn takes(pool: &NodePool, rooms: &[Room], pod: &Pod) -> bool {
    let (wanted, wanted_ports) = (requests(pod), ports(&pod.spec));
    let has_room = |room: &Room| {
        let has_port = |port| !room.taken_ports.iter().any(|taken| is_same(taken, port));
        fits(&wanted, &room.free) && wanted_ports.iter().all(has_port)
    };
    untolerated(&pod.spec, &pool.spec.template.spec.taints, true).is_none()
        && rooms.iter().any(|room| misfit(&pod.spec, "new", &room.labels).is_none() && has_room(room))
}

/// The types that a claim names, all if it names none.
fn types_of<'c>(claim: &NodeClaim, catalog: &'c Catalog) -> Vec<&'c InstanceType> {
    let is_list = |r: &&NodeSelectorRequirement| r.key == labels::INSTANCE_TYPE && r.operator == Operator::In;
    match claim.spec.requirements.iter().find(is_list) {
        Some(named) => named.values.iter().filter_map(|name| catalog.get(name)).collect(),
        None => catalog.types().iter().collect(),
    }
}

fn largest<'t>(types: impl Iterator<Item = &'t InstanceType>, name: &ResourceName) -> i64 {
    types.map(|t| size(&t.capacity, name)).max().unwrap_or(0)
}

/// What a machine counts against the limit of a resource; each is one of `nodes`.
fn size(capacity: &ResourceList, name: &ResourceName) -> i64 {
    if name.as_str() == "nodes" { 1 } else { amounts_of(capacity).get(name).copied().unwrap_or(0) }
}
