//! What a claim may be sold.

use std::collections::BTreeMap;

use karpenter_core::{
    Catalog, InstanceType, Offering, Requirement, Requirements, ResourceList, api::NodeClaim, labels,
};

/// What a claim's node must be like.
pub(super) struct Wanted {
    requirements: Requirements,
    requests: ResourceList,
}

/// One offering of one type.
pub(super) struct Choice<'c> {
    pub(super) instance_type: &'c InstanceType,
    pub(super) offering: &'c Offering,
}

impl Choice<'_> {
    /// What a label may be on a node bought so; `None` if neither the type nor the offering names it.
    fn label(&self, key: &str) -> Option<&Requirement> {
        self.offering.requirements.get(key).or_else(|| self.instance_type.requirements.get(key))
    }
}

impl Wanted {
    pub(super) fn of_claim(claim: &NodeClaim) -> Self {
        Self { requirements: claim.spec.requirements.iter().collect(), requests: claim.spec.resources.requests.clone() }
    }

    /// What is for sale and meets the claim, cheapest first and then by name and zone.
    pub(super) fn choices<'c>(&self, catalog: &'c Catalog) -> Vec<Choice<'c>> {
        // The names of types rule out most of what is for sale.
        let named = self.requirements.get(labels::INSTANCE_TYPE);
        let is_named = |choice: &Choice<'_>| {
            let name = choice.label(labels::INSTANCE_TYPE);
            named.zip(name).is_none_or(|(named, name)| name.intersects(named))
        };
        let mut choices = Vec::new();
        for instance_type in catalog.types() {
            let before = choices.len();
            for (i, offering) in instance_type.offerings.iter().enumerate() {
                let choice = Choice { instance_type, offering };
                let is_wanted = is_named(&choice) && self.unmet(&choice, catalog).is_none();
                if is_wanted && catalog.is_available(&instance_type.name, i) {
                    choices.push(choice);
                }
            }
            if choices.len() > before && !self.fits(instance_type) {
                choices.truncate(before);
            }
        }
        // The sort is stable, and the types and their offerings come in a fixed order.
        choices.sort_by_key(|choice| choice.offering.price);
        choices
    }

    /// Whether a type has room for what is asked for.
    fn fits(&self, instance_type: &InstanceType) -> bool {
        let allocatable = instance_type.allocatable();
        self.requests.iter().all(|(name, asked)| allocatable.get(name.as_str()).unwrap_or_default() >= asked)
    }

    /// The first requirement that an offering does not meet.
    fn unmet(&self, choice: &Choice<'_>, catalog: &Catalog) -> Option<(&str, &Requirement)> {
        let meets = |key: &str, wanted: &Requirement| match choice.label(key) {
            Some(offered) => offered.intersects(wanted),
            None if catalog.is_well_known(key) => wanted.admits_absence(),
            None => !wanted.is_none(),
        };
        self.requirements.iter().find(|(key, wanted)| !meets(key, wanted))
    }

    /// Why nothing is for sale: no type that meets the requirements has room, or else the requirement that most offerings fail
    /// first.
    pub(super) fn explain(&self, catalog: &Catalog) -> String {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        let (mut offerings, mut is_met, mut has_room) = (0, false, false);
        for instance_type in catalog.types() {
            for offering in &instance_type.offerings {
                offerings += 1;
                if let Some((key, _)) = self.unmet(&Choice { instance_type, offering }, catalog) {
                    *counts.entry(key).or_default() += 1;
                } else {
                    (is_met, has_room) = (true, has_room || self.fits(instance_type));
                }
            }
        }
        if is_met && !has_room {
            return format!("no type that meets them has room for {}", self.requests);
        }
        let most = counts.iter().max_by_key(|(_, count)| **count);
        let requirement = most.and_then(|(key, count)| self.requirements.get(key).map(|wanted| (key, count, wanted)));
        match requirement {
            Some((key, count, wanted)) => format!("{key} {wanted} rules out {count} of {offerings} offerings"),
            None => format!("none of {offerings} offerings is available"),
        }
    }

    /// The labels of a node bought so: those of the claim, of the type and the offering, and a value for each label
    /// that the claim insists on and nobody else defines.
    pub(super) fn node_labels(&self, choice: &Choice<'_>, claim: &NodeClaim) -> BTreeMap<String, String> {
        let mut out = BTreeMap::new();
        let mut set = |key: &str, allowed: &Requirement| {
            if let Some(value) = allowed.any_value() {
                out.insert(key.to_owned(), value.to_string());
            }
        };
        let (of_type, of_offering) = (&choice.instance_type.requirements, &choice.offering.requirements);
        let defines = |key: &str, wanted: &Requirement| key != labels::HOSTNAME && !wanted.admits_absence();
        for (key, wanted) in self.requirements.iter().filter(|(key, wanted)| defines(key, wanted)) {
            set(key, wanted);
        }
        for (key, offered) in of_type.iter().chain(of_offering.iter()) {
            set(
                key,
                &self.requirements.get(key).map_or_else(|| offered.clone(), |wanted| offered.intersection(wanted)),
            );
        }
        out.extend(claim.metadata.labels.clone());
        out
    }
}
