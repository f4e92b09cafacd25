//! The filters of the kube-scheduler (v1.35), one node and one pod at a time, on plain labels and numbers.

use std::collections::BTreeMap;

use karpenter_core::{
    Quantity, ResourceList, ResourceName,
    api::{
        Condition, Container, NodeSelectorRequirement, NodeSelectorTerm, Operator, Pod, PodSpec, Resources, Taint,
        TaintEffect, Toleration, TolerationOperator,
    },
};

/// Amounts by resource: CPU in thousandths, all others in whole units. The kube-scheduler counts so.
pub(crate) type Amounts = BTreeMap<ResourceName, i64>;

/// What keeps a pod off a node whose labels it does not like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Misfit {
    /// The node selector names this key and another value.
    Selector(String),
    /// No term of the required node affinity is met.
    Affinity,
}

/// Why a node of this name and these labels is not for the pod (the filter `NodeAffinity`), if so.
pub(crate) fn misfit(spec: &PodSpec, name: &str, labels: &BTreeMap<String, String>) -> Option<Misfit> {
    if let Some((key, _)) = spec.node_selector.iter().find(|(key, value)| labels.get(*key) != Some(value)) {
        return Some(Misfit::Selector(key.clone()));
    }
    let required = spec.affinity.node_affinity.required.as_ref()?;
    let met = required.node_selector_terms.iter().any(|term| term_is_met(term, name, labels));
    (!met).then_some(Misfit::Affinity)
}

/// A term without expressions is met by no node.
fn term_is_met(term: &NodeSelectorTerm, name: &str, labels: &BTreeMap<String, String>) -> bool {
    if term.match_expressions.is_empty() && term.match_fields.is_empty() {
        return false;
    }
    let field = |key: &str| (key == "metadata.name").then_some(name);
    term.match_expressions.iter().all(|e| holds(e, labels.get(&e.key).map(String::as_str)))
        && term.match_fields.iter().all(|e| holds(e, field(&e.key)))
}

/// Whether a label of this value, or its absence, meets an expression.
pub(crate) fn holds(expression: &NodeSelectorRequirement, value: Option<&str>) -> bool {
    let is_named = |value: &str| expression.values.iter().any(|v| v == value);
    let compared = |accepts: fn(i64, i64) -> bool| {
        let bound = expression.values.first().and_then(|v| v.parse().ok());
        let number = value.and_then(|v| v.parse().ok());
        bound.zip(number).is_some_and(|(bound, number)| accepts(number, bound))
    };
    match expression.operator {
        Operator::In => value.is_some_and(is_named),
        Operator::NotIn => !value.is_some_and(is_named),
        Operator::Exists => value.is_some(),
        Operator::DoesNotExist => value.is_none(),
        Operator::Gt => compared(|number, bound| number > bound),
        Operator::Lt => compared(|number, bound| number < bound),
        Operator::Gte => compared(|number, bound| number >= bound),
        Operator::Lte => compared(|number, bound| number <= bound),
        // Not an operator of Kubernetes 1.35.
        _ => false,
    }
}

/// The first taint that keeps the pod away (the filter `TaintToleration`); those that only prefer count if
/// `with_preferences`.
pub(crate) fn untolerated<'t>(spec: &PodSpec, taints: &'t [Taint], with_preferences: bool) -> Option<&'t Taint> {
    let counts = |taint: &&Taint| with_preferences || taint.effect != TaintEffect::PreferNoSchedule;
    taints.iter().filter(counts).find(|taint| !spec.tolerations.iter().any(|t| lets_past(t, taint)))
}

fn lets_past(toleration: &Toleration, taint: &Taint) -> bool {
    if toleration.effect.is_some_and(|effect| effect != taint.effect) {
        return false;
    }
    match toleration.operator {
        TolerationOperator::Exists => toleration.key.is_empty() || toleration.key == taint.key,
        TolerationOperator::Equal => toleration.key == taint.key && toleration.value == taint.value,
        _ => false,
    }
}

/// What a pod takes of a node (the filter `NodeResourcesFit`): KEP-753 for init containers and sidecars, KEP-2837 for
/// resources of the pod as a whole, KEP-1287 for pods that are being resized.
pub(crate) fn requests(pod: &Pod) -> Amounts {
    amounts(&total(&pod.spec, |container| {
        let mut has = Quantities::new();
        let statuses = pod.status.container_statuses.iter().chain(&pod.status.init_container_statuses);
        for status in statuses.filter(|s| s.name == container.name) {
            raise(&mut has, &status.allocated_resources);
            raise(&mut has, &status.resources.requests);
        }
        let is_refused = |c: &Condition| c.r#type == "PodResizePending" && c.reason == "Infeasible";
        if has.is_empty() || !pod.status.conditions.iter().any(is_refused) {
            for (name, quantity) in with_defaults(&container.resources) {
                let entry = has.entry(name).or_insert(quantity);
                *entry = (*entry).max(quantity);
            }
        }
        has
    }))
}

/// What a pod that is made from this specification takes of a node.
pub(crate) fn requests_of(spec: &PodSpec) -> Amounts {
    amounts(&total(spec, |container| with_defaults(&container.resources)))
}

type Quantities = BTreeMap<ResourceName, Quantity>;

/// The API server sets a request that is not written to the limit.
fn with_defaults(resources: &Resources) -> Quantities {
    let both = resources.limits.iter().chain(resources.requests.iter());
    both.map(|(name, quantity)| (name.clone(), at_least_zero(quantity))).collect()
}

/// What a pod that no API server has seen asks for may be below zero, which makes no room.
fn at_least_zero(quantity: Quantity) -> Quantity {
    quantity.max(Quantity::default())
}

fn raise(amounts: &mut Quantities, floor: &ResourceList) {
    for (name, quantity) in floor.iter() {
        let entry = amounts.entry(name.clone()).or_default();
        *entry = (*entry).max(quantity);
    }
}

fn sum<'a>(parts: impl IntoIterator<Item = &'a Quantities>) -> Quantities {
    let mut out = Quantities::new();
    for (name, quantity) in parts.into_iter().flatten() {
        let entry = out.entry(name.clone()).or_default();
        *entry = entry.saturating_add(*quantity);
    }
    out
}

fn total(spec: &PodSpec, own: impl Fn(&Container) -> Quantities) -> Quantities {
    let mut running: Vec<Quantities> = spec.containers.iter().map(&own).collect();
    let mut sidecars: Vec<Quantities> = Vec::new();
    let mut peaks: Vec<Quantities> = Vec::new();
    for container in &spec.init_containers {
        let mut now = sum(&sidecars);
        now = sum([&now, &own(container)]);
        peaks.push(now);
        if container.restart_policy == "Always" {
            sidecars.push(own(container));
        }
    }
    running.append(&mut sidecars);
    let mut out = sum(&running);
    for (name, quantity) in peaks.into_iter().flatten() {
        let entry = out.entry(name).or_default();
        *entry = (*entry).max(quantity);
    }
    let of_pod =
        |name: &ResourceName| matches!(name.as_str(), "cpu" | "memory") || name.as_str().starts_with("hugepages-");
    for (name, quantity) in spec.resources.limits.iter().filter(|(name, _)| of_pod(name)) {
        out.entry(name.clone()).or_insert(at_least_zero(quantity));
    }
    for (name, quantity) in spec.resources.requests.iter().filter(|(name, _)| of_pod(name)) {
        out.insert(name.clone(), at_least_zero(quantity));
    }
    let overhead = spec.overhead.iter().map(|(name, quantity)| (name.clone(), at_least_zero(quantity))).collect();
    out = sum([&out, &overhead]);
    out.insert(ResourceName::Pods, Quantity::from_units(1));
    out
}

/// Rounded up, as the kube-scheduler rounds what pods ask for and what nodes have.
pub(crate) fn amounts<'a>(quantities: impl IntoIterator<Item = (&'a ResourceName, &'a Quantity)>) -> Amounts {
    quantities.into_iter().map(|(name, quantity)| (name.clone(), amount(name, *quantity))).collect()
}

/// The amounts of a list.
pub(crate) fn amounts_of(list: &ResourceList) -> Amounts {
    list.iter().map(|(name, quantity)| (name.clone(), amount(name, quantity))).collect()
}

fn amount(name: &ResourceName, quantity: Quantity) -> i64 {
    if *name == ResourceName::Cpu { quantity.milli_ceil() } else { quantity.units_ceil() }
}

/// An amount as people write it.
pub(crate) fn quantity(name: &ResourceName, amount: i64) -> Quantity {
    match name {
        ResourceName::Cpu => Quantity::from_milli(amount),
        ResourceName::Memory | ResourceName::EphemeralStorage => Quantity::from_bytes(amount),
        _ => Quantity::from_units(amount),
    }
}

/// Adds amounts to others.
pub(crate) fn add(total: &mut Amounts, more: &Amounts) {
    for (name, amount) in more {
        let entry = total.entry(name.clone()).or_default();
        *entry = entry.saturating_add(*amount);
    }
}

/// Whether all of this fits into that; a resource that a node does not name is not there.
pub(crate) fn fits(wanted: &Amounts, room: &Amounts) -> bool {
    wanted.iter().all(|(name, amount)| *amount <= room.get(name).copied().unwrap_or(0).max(0) || *amount == 0)
}
