use karpenter_core::{Catalog, Offering, labels};

use super::{Check, Report};

pub(super) fn check(report: &mut Report, catalog: &Catalog) {
    let is_empty = catalog.types().is_empty();
    report.judge(Check::CatalogIsNotEmpty, "catalog", is_empty.then(|| "no instance types".to_owned()));
    for check in [Check::OfferingsAreNamed, Check::TypesHaveResources] {
        report.judge(check, "catalog", None);
    }
    for instance_type in catalog.types() {
        let name = &instance_type.name;
        for resource in ["cpu", "memory", "pods"] {
            let quantity = instance_type.allocatable().get(resource).unwrap_or_default();
            if quantity.is_zero() || quantity.is_negative() {
                let message = format!("instance type {name}: {resource}: {quantity} allocatable");
                report.judge(Check::TypesHaveResources, "catalog", Some(message));
            }
        }
        for (i, offering) in instance_type.offerings.iter().enumerate() {
            for key in [labels::ZONE, labels::CAPACITY_TYPE].into_iter().filter(|key| catalog.is_well_known(key)) {
                if let Some(count) = wrong_value_count(offering, key) {
                    let message = format!("instance type {name}: offerings[{i}]: {count} values of {key}, not one");
                    report.judge(Check::OfferingsAreNamed, "catalog", Some(message));
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
