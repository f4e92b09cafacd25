//! What a claim leaves open of where and how its node is bought.

use std::collections::{BTreeMap, BTreeSet};

use karpenter_core::{Catalogs, PlannedClaim, Requirement, Requirements, labels};

use super::table::first_names;

/// The zones and capacity types that a claim leaves.
#[derive(Clone)]
pub(super) struct Choice {
    pub(super) zones: Left,
    pub(super) capacity_types: Left,
}

impl Choice {
    pub(super) fn of(claim: &PlannedClaim, catalogs: &Catalogs) -> Self {
        let left = |key: &str| Left::of(claim, catalogs, key);
        Self { zones: left(labels::ZONE), capacity_types: left(labels::CAPACITY_TYPE) }
    }
}

/// The values of a label that a claim leaves.
#[derive(Clone)]
pub(super) struct Left {
    /// Those of the offerings that it takes, in order.
    pub(super) values: Vec<String>,
    /// Whether these are all that its types are offered with.
    is_open: bool,
}

impl Left {
    fn of(claim: &PlannedClaim, catalogs: &Catalogs, key: &str) -> Self {
        let own = claim.requirements.get(key);
        if let Some(only) = own.filter(|own| own.value_count() == Some(1)).and_then(|own| own.values().next()) {
            return Self { values: vec![only.to_owned()], is_open: false };
        }
        let (mut offered, mut left) = (BTreeSet::new(), BTreeSet::new());
        let catalog = catalogs.get(&claim.node_pool);
        let types = claim.instance_types.iter().filter_map(|name| catalog?.get(name).zip(catalog));
        for (instance_type, catalog) in types {
            for (index, offering) in instance_type.offerings.iter().enumerate() {
                if !catalog.is_available(&instance_type.name, index) {
                    continue;
                }
                let of_type = || instance_type.requirements.get(key);
                let values =
                    || offering.requirements.get(key).or_else(of_type).into_iter().flat_map(Requirement::values);
                offered.extend(values());
                if catalog.unmet(instance_type, offering, &claim.requirements).is_none() {
                    left.extend(values().filter(|value| own.is_none_or(|own| own.admits(Some(value)))));
                }
            }
        }
        Self { is_open: left == offered, values: left.into_iter().map(str::to_owned).collect() }
    }

    /// The values for people; `any` if the choice is open.
    pub(super) fn text(&self) -> String {
        if self.is_open { "any".to_owned() } else { first_names(self.values.iter().cloned()) }
    }

    /// The only value that the claim leaves of several that are offered, or that it names.
    pub(super) fn only(&self) -> Option<&str> {
        match self.values.as_slice() {
            [only] if !self.is_open => Some(only),
            _ => None,
        }
    }
}

/// What many claims leave open: of those that look alike it is found out once.
pub(super) struct Choices<'c> {
    catalogs: &'c Catalogs,
    known: BTreeMap<(&'c str, &'c [String], &'c Requirements), Choice>,
}

impl<'c> Choices<'c> {
    pub(super) const fn new(catalogs: &'c Catalogs) -> Self {
        Self { catalogs, known: BTreeMap::new() }
    }

    pub(super) fn of(&mut self, claim: &'c PlannedClaim) -> &Choice {
        let key = (claim.node_pool.as_str(), &*claim.instance_types, &claim.requirements);
        self.known.entry(key).or_insert_with(|| Choice::of(claim, self.catalogs))
    }
}
