//! What an instance type must be like.

use std::{collections::BTreeMap, fmt};

use super::{InstanceType, Overhead};
use crate::{Requirements, labels};

/// A part of a label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the variants say it")]
pub enum LabelPart {
    Key,
    Value,
}

impl fmt::Display for LabelPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Key => "the key",
            Self::Value => "the value",
        })
    }
}

/// Why a list of instance types is not a [`Catalog`](crate::Catalog).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CatalogError {
    /// Two types have one name, and are not each for other pools where that makes a difference.
    #[error("instance type {name}: name: there is another instance type of this name")]
    Duplicate {
        /// The name.
        name: String,
    },
    /// Nodes of a type would have a label that they cannot have: the API server refuses its key or its value.
    #[error("instance type {name}: {field}: {text:?} cannot be {part} of a label")]
    Label {
        /// The name of the type.
        name: String,
        /// The path of the field.
        field: String,
        /// Which part of the label it is.
        part: LabelPart,
        /// What is written there.
        text: String,
    },
    /// A field of a type breaks a rule.
    #[error("instance type {name}: {field}: {message}")]
    Invalid {
        /// The name of the type.
        name: String,
        /// The path of the field.
        field: String,
        /// The rule and the value.
        message: String,
    },
}

impl InstanceType {
    fn not_a_label(&self, field: String, part: LabelPart, text: &str) -> CatalogError {
        CatalogError::Label { name: self.name.clone(), field, part, text: text.to_owned() }
    }

    /// Checks that nodes can have the labels that requirements name.
    fn check_labels(&self, path: impl fmt::Display, requirements: &Requirements) -> Result<(), CatalogError> {
        let broken = |(key, part, text): (&str, _, &_)| self.not_a_label(format!("{path}.{key}"), part, text);
        first_that_is_no_label(requirements).map_or(Ok(()), |fault| Err(broken(fault)))
    }

    fn invalid(&self, field: &str, message: String) -> CatalogError {
        CatalogError::Invalid { name: self.name.clone(), field: field.to_owned(), message }
    }

    /// Checks that nodes can have the name as a label, and have no other in its place: claims ask for types by it.
    fn check_name(&self) -> Result<(), CatalogError> {
        if self.name.is_empty() {
            return Err(self.invalid("name", "must not be empty".to_owned()));
        }
        if !labels::is_value(&self.name) {
            return Err(self.not_a_label("name".to_owned(), LabelPart::Value, &self.name));
        }
        let label = self.requirements.get(labels::INSTANCE_TYPE);
        if label.is_some_and(|label| !label.admits(Some(&self.name))) {
            let message = "must have the name of the type among its values".to_owned();
            return Err(self.invalid(&format!("requirements.{}", labels::INSTANCE_TYPE), message));
        }
        Ok(())
    }

    pub(super) fn validate(&self) -> Result<(), CatalogError> {
        self.check_name()?;
        if let Some(key) = self.requirements.contradiction() {
            return Err(self.invalid("requirements", format!("nothing satisfies the requirement on {key}")));
        }
        self.check_labels("requirements", &self.requirements)?;
        let Overhead { kube_reserved, system_reserved, eviction_threshold } = &self.overhead;
        for (field, list) in [
            ("capacity", &self.capacity),
            ("overhead.kubeReserved", kube_reserved),
            ("overhead.systemReserved", system_reserved),
            ("overhead.evictionThreshold", eviction_threshold),
        ] {
            if let Some((name, quantity)) = list.iter().find(|(_, quantity)| quantity.is_negative()) {
                return Err(self.invalid(&format!("{field}.{name}"), format!("{quantity} is below zero")));
            }
        }
        // Each pod takes one, so that the type would take none.
        if self.capacity.get("pods").is_none() {
            return Err(self.invalid("capacity.pods", "is missing".to_owned()));
        }
        for (i, offering) in self.offerings.iter().enumerate() {
            if let Some(key) = offering.requirements.contradiction() {
                let message = format!("nothing satisfies the requirement on {key}");
                return Err(self.invalid(&format!("offerings[{i}].requirements"), message));
            }
            self.check_labels(format_args!("offerings[{i}].requirements"), &offering.requirements)?;
            if offering.interruption.is_some_and(|p| !(0.0..=1.0).contains(&p)) {
                return Err(self.invalid(&format!("offerings[{i}].interruption"), "not from 0 to 1".to_owned()));
            }
        }
        Ok(())
    }
}

/// Checks types that name the pools which may use them: each for itself, and that no pool may use two of one name.
pub(super) fn check_for_pools(types: &[InstanceType]) -> Result<(), CatalogError> {
    let mut others: BTreeMap<&str, Vec<&InstanceType>> = BTreeMap::new();
    for one in types {
        one.validate()?;
        let of_name = others.entry(&one.name).or_default();
        if of_name.iter().any(|other| have_one_pool(one, other)) {
            return Err(CatalogError::Duplicate { name: one.name.clone() });
        }
        of_name.push(one);
    }
    Ok(())
}

fn have_one_pool(a: &InstanceType, b: &InstanceType) -> bool {
    match (&a.node_pools, &b.node_pools) {
        (Some(pools), Some(_)) => pools.iter().any(|pool| b.is_for(pool)),
        _ => true,
    }
}

/// The first key, or value of a finite set, that no label can have.
fn first_that_is_no_label(requirements: &Requirements) -> Option<(&str, LabelPart, &str)> {
    requirements.iter().find_map(|(key, requirement)| {
        if !labels::is_qualified_name(key) {
            return Some((key, LabelPart::Key, key));
        }
        // Values that are excluded become no label.
        let mut values = requirement.values().filter(|_| requirement.value_count().is_some());
        values.find(|value| !labels::is_value(value)).map(|value| (key, LabelPart::Value, value))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Catalog, Price, Quantity, Requirement};

    #[test]
    fn a_type_goes_by_the_name_that_its_label_says() {
        let catalog = |label: &str| {
            let mut own = InstanceType::named("a", [("cpu", Quantity::from_units(1))]);
            own.requirements = Requirements::new();
            own.requirements.add(labels::INSTANCE_TYPE, Requirement::one_of([label]));
            Catalog::new(vec![own]).map(|_| ()).map_err(|error| error.to_string())
        };
        assert_eq!(catalog("a"), Ok(()));
        let expected = "instance type a: requirements.node.kubernetes.io/instance-type: must have the name of the type among its values";
        assert_eq!(catalog("b"), Err(expected.to_owned()));
    }

    #[test]
    fn what_no_label_of_a_node_can_be_is_named() {
        let price = Price::per_hour(1.0).expect("a price");
        let named = |name: &str| InstanceType::named(name, [("cpu", Quantity::from_units(1))]);
        let with = |key: &str, requirement| {
            let mut own = named("a").offering("spot", "z", price);
            own.requirements.add(key, requirement);
            own
        };
        let long = "x".repeat(64);
        for (own, expected) in [
            (named("blade 2"), "instance type blade 2: name: \"blade 2\" cannot be the value of a label"),
            (named(&long), &format!("instance type {long}: name: {long:?} cannot be the value of a label")),
            (
                named("a").offering("spot", "z", price).offering("spot", "Hall 14", price),
                "instance type a: offerings[1].requirements.topology.kubernetes.io/zone: \"Hall 14\" cannot be the value of a label",
            ),
            (
                with("rack row", Requirement::one_of(["1"])),
                "instance type a: requirements.rack row: \"rack row\" cannot be the key of a label",
            ),
            (
                with("example.com/row", Requirement::one_of(["1", "2/3"])),
                "instance type a: requirements.example.com/row: \"2/3\" cannot be the value of a label",
            ),
        ] {
            let error = Catalog::new(vec![own]).expect_err(expected);
            assert_eq!(error.to_string(), expected);
            assert!(matches!(error, CatalogError::Label { .. }));
        }
        for fine in [Requirement::one_of([""]), Requirement::none_of(["not one"]), Requirement::between(1, 2)] {
            Catalog::new(vec![with("example.com/row", fine)]).expect("a catalog");
        }
    }
}
