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
                let is_wanted =
                    is_named(&choice) && catalog.unmet(instance_type, offering, &self.requirements).is_none();
                if is_wanted && catalog.is_available(&instance_type.name, i) {
                    choices.push(choice);
                }
            }
            if choices.len() > before && !self.requests.fits(&instance_type.allocatable()) {
                choices.truncate(before);
            }
        }
        // The sort is stable, and the types and their offerings come in a fixed order.
        choices.sort_by_key(|choice| choice.offering.price);
        choices
    }

    /// Why nothing is for sale: no type that meets the requirements has room, or else the requirement that most offerings fail
    /// first.
    pub(super) fn explain(&self, catalog: &Catalog) -> String {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        let (mut offerings, mut is_met, mut has_room) = (0, false, false);
        for instance_type in catalog.types() {
            for offering in &instance_type.offerings {
                offerings += 1;
                if let Some((key, _)) = catalog.unmet(instance_type, offering, &self.requirements) {
                    *counts.entry(key).or_default() += 1;
                } else {
                    (is_met, has_room) = (true, has_room || self.requests.fits(&instance_type.allocatable()));
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
        let defines = |key: &str, wanted: &Requirement| key != labels::HOSTNAME && !wanted.admits_absence();
        for (key, wanted) in self.requirements.iter().filter(|(key, wanted)| defines(key, wanted)) {
            out.extend(wanted.any_value().map(|value| (key.to_owned(), value.to_string())));
        }
        out.extend(choice.instance_type.node_labels(choice.offering, &self.requirements));
        out.extend(claim.metadata.labels.clone());
        out
    }
}
