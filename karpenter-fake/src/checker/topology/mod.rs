//! How pods stand to each other: spread constraints, affinity and anti-affinity.
//!
//! What a claim becomes decides in which domains its pods are, so all of it is looked at under several choices: each
//! claim as the cheapest node that it allows, all claims in one domain after the other, and mixtures.

mod apart;
mod domains;
mod near;
mod scene;
mod selector;
mod spread;

use std::collections::BTreeSet;

use karpenter_core::{Snapshot, api::ObjectKey};
pub(super) use scene::{Faces, Interest, node_keys};
use scene::{Scene, World};
pub(super) use selector::Namespaces;
use selector::{Census, PodSelector};

use self::{domains::Domains, spread::SpreadRules};
use super::{Checker, Violation};

impl Checker<'_> {
    /// The rules of pods about their neighbours, under the first choice that breaks one.
    pub(super) fn check_topology(&mut self) {
        if self.interest.is_none() || self.violations.iter().any(Violation::is_about_shape) {
            return;
        }
        let Some(scene) = Scene::new(self) else { return };
        let census = Census::new(scene.actors.iter().map(|actor| actor.pod));
        let spreads = SpreadRules::new(&scene, &census, &mut Domains::new(self));
        let aparts = apart::rules(&scene, &self.namespaces, &census);
        let nears = near::rules(&scene, &self.namespaces, &census);
        let check = |world: World<'_, '_>| {
            let mut violations = spreads.check(&world);
            violations.extend(aparts.iter().flat_map(|rule| rule.check(&world)));
            violations.extend(near::check(&nears, &world));
            violations
        };
        let found = scene.worlds().map(check).find(|violations| !violations.is_empty());
        self.violations.extend(found.into_iter().flatten());
    }
}

/// The pods that constraints or required terms of others, or of themselves, are about.
pub(super) fn tied(snapshot: &Snapshot, namespaces: &Namespaces<'_>) -> BTreeSet<ObjectKey> {
    let mut selectors: BTreeSet<PodSelector<'_>> = BTreeSet::new();
    for pod in snapshot.pods().iter().filter(|pod| !pod.is_finished()) {
        let (constraints, affinity) = (&pod.spec.topology_spread_constraints, &pod.spec.affinity);
        let terms = affinity.pod_affinity.required.iter().chain(&affinity.pod_anti_affinity.required);
        selectors.extend(constraints.iter().map(|constraint| PodSelector::of_constraint(pod, constraint)));
        selectors.extend(terms.map(|term| PodSelector::of_term(pod, term, namespaces)));
    }
    let census = Census::new(snapshot.pods().iter().map(AsRef::as_ref));
    let selected = selectors.iter().flat_map(|selector| census.selected_by(selector));
    selected.map(|pod| snapshot.pods()[pod].key()).collect()
}

impl World<'_, '_> {
    /// The pod is on a node without the label that its rule is about.
    fn lacks_label(&self, actor: usize, topology_key: &str) -> Violation {
        let (pod, node) = (self.actor(actor).key.clone(), self.node_of(actor));
        Violation::NoTopologyLabel { pod, node, topology_key: topology_key.to_owned() }
    }
}
