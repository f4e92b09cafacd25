use std::collections::{BTreeMap, BTreeSet};

use karpenter_core::{
    api::{DaemonSet, ObjectKey, Pod},
    cluster::Place,
};

use super::{
    Checker, PlannedNode, Violation,
    filters::{Amounts, add, amounts_of, quantity, requests},
    options::add_aliases,
    ports::clash,
    volumes::{mounts, overload, rivals},
};

impl<'a> Checker<'a> {
    /// The pods that go into room that there is.
    pub(super) fn check_places(&mut self) {
        for (name, pods) in self.plan.existing().iter().filter(|(_, pods)| !pods.is_empty()) {
            match self.snapshot.places().iter().find(|place| place.name == *name) {
                None => self.violations.push(Violation::UnknownPlace { place: name.clone() }),
                Some(place) if place.is_deleting => {
                    self.violations.push(Violation::DeletingPlace { place: name.clone() });
                }
                Some(place) if place.is_closed => {
                    self.violations.push(Violation::ClosedPlace { place: name.clone() });
                }
                Some(place) => self.check_place(place, pods),
            }
        }
    }

    fn check_place(&mut self, place: &'a Place, keys: &[ObjectKey]) {
        let node = PlannedNode::Existing(place.name.clone());
        let mut labels = place.labels.clone();
        add_aliases(&mut labels);
        let new: Vec<&Pod> = keys.iter().filter_map(|key| self.snapshot.pod(key)).collect();
        for pod in &new {
            let mounts = mounts(pod, self.snapshot.storage());
            let wrong = Self::misplacement(pod, &mounts, &node, &place.name, &labels, &place.taints);
            self.violations.extend(wrong);
        }
        let there = self.pods(&place.pods);
        let (daemons, mut used) = self.load(place, &labels);
        let mut wanted = Amounts::new();
        for pod in &new {
            add(&mut wanted, &requests(pod));
        }
        add(&mut used, &wanted);
        // Only what the new pods ask for: a node may be overcommitted in something else already.
        used.retain(|name, _| wanted.get(name).is_some_and(|amount| *amount > 0));
        let short = shortage(node.clone(), &used, &amounts_of(&place.allocatable));
        let overload = overload(&node, &place.volume_limits, &there, &new, self.snapshot.storage());
        let rivals = rivals(&node, &there, &new);
        let of_daemons = daemons.iter().map(|daemonset| &daemonset.spec.template.spec);
        let there = there.iter().map(|pod| &pod.spec).chain(of_daemons);
        let taken = clash(node, new.iter().map(|pod| &pod.spec), there);
        self.violations.extend(short.into_iter().chain(overload).chain(rivals).chain(taken));
    }

    /// The daemons that will come to a place, and what they and the pods that are there take of it.
    pub(super) fn load(&self, place: &Place, labels: &BTreeMap<String, String>) -> (Vec<&'a DaemonSet>, Amounts) {
        let there = self.pods(&place.pods);
        let owners = there.iter().flat_map(|pod| &pod.metadata.owner_references);
        let running: BTreeSet<&str> = owners.filter(|o| o.kind == "DaemonSet").map(|o| o.uid.as_str()).collect();
        let mut used = Amounts::new();
        for pod in &there {
            add(&mut used, &requests(pod));
        }
        let mut coming = Vec::new();
        for (daemonset, requests) in self.daemons.coming(&place.name, labels, &place.taints, &running) {
            add(&mut used, requests);
            coming.push(*daemonset);
        }
        (coming, used)
    }
}

/// The first resource of which a node has too little.
pub(super) fn shortage(node: PlannedNode, used: &Amounts, allocatable: &Amounts) -> Option<Violation> {
    let has = |name| allocatable.get(name).copied().unwrap_or(0);
    let (name, amount) = used.iter().find(|(name, amount)| **amount > 0 && **amount > has(*name))?;
    let (requested, allocatable) = (quantity(name, *amount), quantity(name, has(name)));
    Some(Violation::Resources { node, resource: name.clone(), requested, allocatable })
}
