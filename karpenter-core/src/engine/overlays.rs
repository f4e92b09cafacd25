//! What node overlays change: catalogs, how machines are asked for, and what is expected of them. Providers know nothing of
//! overlays.

use std::collections::BTreeSet;

use super::{Engine, Work, market::choices};
use crate::{
    Catalog, InstanceType, Offering, Price, Quantity, Requirement, Requirements, ResourceName, Timestamp,
    api::{
        ConditionStatus, NodeClaim, NodeOverlay,
        conditions::{READY, VALIDATION_SUCCEEDED, set_condition},
    },
    catalog::OverlayFault,
    labels,
    provider::Launched,
};

impl Engine {
    /// Takes in what overlays make of the catalogs.
    pub(super) fn overlay_catalogs(&mut self) {
        if !self.market.overlay(&self.store.pools, &self.store.overlays) {
            return;
        }
        self.learn_all();
        self.store.overlays.keys().for_each(|name| self.agenda.add(Work::Overlay(name.clone())));
    }

    /// Writes whether an overlay counts, once it is known what there is that it could apply to.
    pub(super) fn reconcile_overlay(&mut self, name: &str, now: Timestamp) {
        let Some(overlay) = self.store.overlays.get(name).filter(|_| self.market.is_open(now)) else { return };
        let mut out = (**overlay).clone();
        judge(&mut out, self.market.fault(name), now);
        if out != **overlay {
            self.write_overlay(out, now);
        }
    }
}

/// Writes whether an overlay is valid and whether it is ready.
fn judge(overlay: &mut NodeOverlay, fault: Option<&OverlayFault>, now: Timestamp) {
    let (status, reason) = match fault {
        None => (ConditionStatus::True, VALIDATION_SUCCEEDED),
        Some(OverlayFault::Invalid(_)) => (ConditionStatus::False, "RuntimeValidation"),
        Some(OverlayFault::Conflict { .. }) => (ConditionStatus::False, "Conflict"),
    };
    let (conditions, generation) = (&mut overlay.status.conditions, overlay.metadata.generation);
    let message = fault.map(ToString::to_string).unwrap_or_default();
    set_condition(conditions, generation, VALIDATION_SUCCEEDED, status, reason, &message, now);
    let (reason, message) = match status {
        ConditionStatus::True => (READY, String::new()),
        _ => ("UnhealthyDependents", format!("{VALIDATION_SUCCEEDED} is False")),
    };
    set_condition(conditions, generation, READY, status, reason, &message, now);
}

/// The catalog of a provider, and what became of it.
pub(super) struct Terms<'c> {
    pub(super) given: &'c Catalog,
    pub(super) overlaid: &'c Catalog,
}

impl<'c> Terms<'c> {
    /// A claim as its provider is asked for it: not for resources that it knows nothing of, and not for what is cheaper than the
    /// best choice only because it does not know the prices of the overlays.
    pub(super) fn order(&self, claim: &NodeClaim, is_open: impl Fn(&InstanceType, &Offering) -> bool) -> NodeClaim {
        let mut out = claim.clone();
        let mut requirements: Requirements = claim.spec.requirements.iter().collect();
        let choices: Vec<Choice<'c>> = choices(&requirements, self.overlaid)
            .filter(|(own, offering)| is_open(own, offering))
            .filter_map(|(own, offering)| self.choice(own, offering))
            .collect();
        let is_set =
            |name: &ResourceName| choices.iter().any(|choice| is_set_by_overlay(choice.given, choice.own, name));
        let requests = claim.spec.resources.requests.iter().filter(|(name, _)| !is_set(name));
        out.spec.resources.requests = requests.map(|(name, quantity)| (name.clone(), quantity)).collect();
        // A claim that must keep a number of values is not narrowed.
        if claim.spec.requirements.iter().all(|requirement| requirement.min_values.is_none()) {
            let further = narrowing(choices);
            if !further.is_empty() {
                requirements.add_all(&further);
                out.spec.requirements = requirements.to_expressions();
            }
        }
        out
    }

    /// What was bought, with what overlays say that it has beside what the provider says.
    pub(super) fn receive(&self, mut machine: Launched) -> Launched {
        let types = machine.instance.labels.get(labels::INSTANCE_TYPE);
        let both = types.and_then(|name| Some((self.given.get(name)?, self.overlaid.get(name)?)));
        let Some((given, own)) = both.filter(|(given, own)| given.capacity != own.capacity) else { return machine };
        let (before, after) = (given.allocatable(), own.allocatable());
        for (name, quantity) in own.capacity.iter().filter(|(name, _)| is_set_by_overlay(given, own, name)) {
            machine.capacity.insert(name.clone(), quantity);
            machine.allocatable.insert(name.clone(), after.get(name.as_str()).unwrap_or(quantity));
        }
        // Huge pages are taken from the memory.
        let memory = |list: &crate::ResourceList| list.get("memory").unwrap_or(Quantity::ZERO);
        let left = memory(&machine.allocatable).saturating_sub(memory(&before).saturating_sub(memory(&after)));
        machine.allocatable.insert(ResourceName::Memory, left.max(Quantity::ZERO));
        machine
    }

    fn choice(&self, own: &'c InstanceType, offering: &'c Offering) -> Option<Choice<'c>> {
        let given = self.given.get(&own.name)?;
        let price = given.offerings.iter().find(|known| known.requirements == offering.requirements)?.price;
        Some(Choice { own, given, offering, price })
    }
}

/// An offering that a claim may become.
#[derive(Clone, Copy)]
struct Choice<'c> {
    own: &'c InstanceType,
    /// The type as the provider has it.
    given: &'c InstanceType,
    offering: &'c Offering,
    /// What the provider takes it to cost.
    price: Price,
}

impl<'c> Choice<'c> {
    fn label(&self, key: &str) -> &'c str {
        if key == labels::INSTANCE_TYPE { &self.own.name } else { self.offering.label(key) }
    }
}

/// What else must be required so that the cheapest choice by the overlays is the provider's cheapest too. Nothing, if it is.
fn narrowing(mut choices: Vec<Choice<'_>>) -> Requirements {
    let best = choices.iter().min_by_key(|choice| (choice.offering.price, choice.price, &choice.own.name)).copied();
    let mut out = Requirements::new();
    let Some(best) = best else { return out };
    for key in [labels::CAPACITY_TYPE, labels::INSTANCE_TYPE, labels::ZONE] {
        let undercuts = |choice: &&Choice<'_>| {
            let is_worse = choice.offering.price > best.offering.price && choice.price <= best.price;
            is_worse && choice.label(key) != best.label(key)
        };
        let gone: BTreeSet<&str> = choices.iter().filter(undercuts).map(|choice| choice.label(key)).collect();
        if !gone.is_empty() {
            choices.retain(|choice| !gone.contains(choice.label(key)));
            let kept: BTreeSet<&str> = choices.iter().map(|choice| choice.label(key)).collect();
            // What names no value cannot be asked for by one.
            let narrowed = if kept.contains("") { Requirement::none_of(gone) } else { Requirement::one_of(kept) };
            out.add(key, narrowed);
        }
    }
    out
}

/// Whether an overlay says how much a type has of a resource.
pub(super) fn is_set_by_overlay(given: &InstanceType, own: &InstanceType, name: &ResourceName) -> bool {
    given.capacity.get(name.as_str()) != own.capacity.get(name.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_choice_is_asked_for_by_a_label_that_it_lacks() {
        let machine = |name: &str| InstanceType::named(name, [("cpu", Quantity::from_units(1))]);
        let offering = |price: f64, capacity_type: Option<&str>| {
            let mut out = Offering::new(labels::SPOT, "a", Price::per_hour(price).expect("a price"));
            if capacity_type.is_none() {
                let zone = out.requirements.get(labels::ZONE).cloned().expect("a zone");
                out.requirements = Requirements::new();
                out.requirements.add(labels::ZONE, zone);
            }
            out
        };
        let (best, other) = (machine("best"), machine("other"));
        // Overlays make the best the cheaper one; to the provider both cost the same.
        let (plain, spot) = (offering(0.1, None), offering(0.2, Some(labels::SPOT)));
        let price = Price::per_hour(0.2).expect("a price");
        let choice = |own, offering| Choice { own, given: own, offering, price };
        let narrowed = narrowing(vec![choice(&best, &plain), choice(&other, &spot)]);
        assert_eq!(narrowed.get(labels::CAPACITY_TYPE), Some(&Requirement::none_of([labels::SPOT])));
    }
}
