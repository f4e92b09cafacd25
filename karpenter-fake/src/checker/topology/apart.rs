//! Required anti-affinity (the filter `InterPodAffinity`): of pods that come, and of those that are there.

use std::collections::BTreeMap;

use super::{
    scene::{Scene, World},
    selector::{Census, Namespaces, PodSelector},
};
use crate::checker::Violation;

/// Terms that say the same.
pub(super) struct ApartRule<'a> {
    topology_key: &'a str,
    /// The pods that have such a term.
    holders: Vec<usize>,
    /// The pods that it is about.
    selected: Vec<usize>,
}

/// Whom a holder may meet in a domain: two, because the first may be the holder itself.
#[derive(Default)]
struct Company {
    all: Vec<usize>,
    new: Vec<usize>,
}

impl Company {
    fn add(&mut self, actor: usize, is_new: bool) {
        for list in [Some(&mut self.all), is_new.then_some(&mut self.new)].into_iter().flatten() {
            if list.len() < 2 {
                list.push(actor);
            }
        }
    }
}

/// The rules that new pods could break; pods that are going have none and disturb none.
pub(super) fn rules<'a>(scene: &Scene<'a>, namespaces: &Namespaces<'a>, census: &Census<'_>) -> Vec<ApartRule<'a>> {
    let mut holders: BTreeMap<(&str, PodSelector<'_>), Vec<usize>> = BTreeMap::new();
    for (i, actor) in scene.actors.iter().enumerate().filter(|(_, actor)| !actor.pod.is_terminating()) {
        for term in &actor.pod.spec.affinity.pod_anti_affinity.required {
            let selector = PodSelector::of_term(actor.pod, term, namespaces);
            holders.entry((&term.topology_key, selector)).or_default().push(i);
        }
    }
    let mut rules = Vec::new();
    for ((topology_key, selector), holders) in holders {
        let mut selected = census.selected_by(&selector);
        selected.retain(|&i| !scene.actors[i].pod.is_terminating());
        if holders.iter().chain(&selected).any(|&i| scene.actors[i].is_new) {
            rules.push(ApartRule { topology_key, holders, selected });
        }
    }
    rules
}

impl ApartRule<'_> {
    /// The first breach in each domain.
    pub(super) fn check(&self, world: &World<'_, '_>) -> Vec<Violation> {
        let domain = |actor: usize| {
            let is_deleting = world.scene.sites[world.actor(actor).site].is_deleting;
            world.domain_of(actor, self.topology_key).filter(|_| !is_deleting)
        };
        let mut companies: BTreeMap<&str, Company> = BTreeMap::new();
        for &actor in &self.selected {
            if let Some(domain) = domain(actor) {
                companies.entry(domain).or_default().add(actor, world.actor(actor).is_new);
            }
        }
        let mut violations = BTreeMap::new();
        for &holder in &self.holders {
            let Some((domain, company)) = domain(holder).and_then(|d| companies.get_key_value(d)) else { continue };
            let met = if world.actor(holder).is_new { &company.all } else { &company.new };
            if let Some(&other) = met.iter().find(|&&other| other != holder) {
                violations.entry(*domain).or_insert_with(|| self.violation(world, holder, other));
            }
        }
        violations.into_values().collect()
    }

    fn violation(&self, world: &World<'_, '_>, holder: usize, other: usize) -> Violation {
        let key = |actor: usize| world.actor(actor).key.clone();
        let topology_key = self.topology_key.to_owned();
        if world.actor(holder).is_new {
            let (pod, node, neighbour) = (key(holder), world.node_of(holder), key(other));
            Violation::AntiAffinity { pod, node, neighbour, topology_key }
        } else {
            let (pod, node, running) = (key(other), world.node_of(other), key(holder));
            Violation::ExistingAntiAffinity { pod, node, running, topology_key }
        }
    }
}
