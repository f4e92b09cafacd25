use karpenter_core::{Catalog, Offering, labels};

use super::{Check, Run};

impl Run<'_> {
    pub(super) fn check_catalog(&mut self, catalog: &Catalog) {
        let is_empty = catalog.types().is_empty();
        self.judge(Check::CatalogIsNotEmpty, "catalog", is_empty.then(|| "no instance types".to_owned()));
        for check in [Check::OfferingsAreNamed, Check::OfferingsHavePrices, Check::TypesHaveResources] {
            self.pass(check);
        }
        for instance_type in catalog.types() {
            let name = &instance_type.name;
            for resource in ["cpu", "memory", "pods"] {
                let quantity = instance_type.allocatable().get(resource).unwrap_or_default();
                if quantity.is_zero() || quantity.is_negative() {
                    let message = format!("instance type {name}: {resource}: {quantity} allocatable");
                    self.fail(Check::TypesHaveResources, "catalog", message);
                }
            }
            for (i, offering) in instance_type.offerings.iter().enumerate() {
                for key in [labels::ZONE, labels::CAPACITY_TYPE].into_iter().filter(|key| catalog.is_well_known(key)) {
                    if let Some(count) = wrong_value_count(offering, key) {
                        let message = format!("instance type {name}: offerings[{i}]: {count} values of {key}, not one");
                        self.fail(Check::OfferingsAreNamed, "catalog", message);
                    }
                }
                if offering.price.dollars_per_hour() <= 0.0 && offering.reservation_capacity.is_none() {
                    let message = format!("instance type {name}: offerings[{i}]: the price is {}", offering.price);
                    self.fail(Check::OfferingsHavePrices, "catalog", message);
                }
            }
        }
    }
}

/// How many values an offering has of a label, unless it has exactly one.
fn wrong_value_count(offering: &Offering, key: &str) -> Option<String> {
    let count = offering.requirements.get(key).map_or(Some(0), karpenter_core::Requirement::value_count);
    match count {
        Some(1) => None,
        Some(count) => Some(count.to_string()),
        None => Some("endlessly many".to_owned()),
    }
}
