//! Machines that lost their reservation and go on.

use std::collections::BTreeMap;

use crate::{Catalog, Requirement, labels, provider::Instance};

/// Whether a machine stays and runs on demand.
pub(crate) fn may_be_demoted(machine: &Instance) -> bool {
    !machine.is_terminating && machine.labels.get(labels::CAPACITY_TYPE).is_some_and(|kind| kind == labels::ON_DEMAND)
}

/// The labels of a claim, or of its node, once its machine runs on demand that was bought out of a reservation: those that
/// no on-demand machine of its type has there are taken away. `None` if that is not so, or they say so already.
pub(crate) fn demoted(
    known: &BTreeMap<String, String>,
    machine: &Instance,
    catalog: &Catalog,
) -> Option<BTreeMap<String, String>> {
    if !may_be_demoted(machine) || known.get(labels::CAPACITY_TYPE).is_none_or(|kind| kind != labels::RESERVED) {
        return None;
    }
    let mut out = known.clone();
    out.insert(labels::CAPACITY_TYPE.to_owned(), labels::ON_DEMAND.to_owned());
    if let Some(key) = catalog.reservation_label() {
        out.remove(key);
    }
    let zone = machine.labels.get(labels::ZONE).map_or("", String::as_str);
    let own = machine.labels.get(labels::INSTANCE_TYPE).and_then(|name| catalog.get(name));
    let is_here = |key: &str, value: &str, of: &crate::Offering| of.label(key) == value;
    let offering = own.and_then(|own| {
        let mut offerings = own.offerings.iter();
        offerings.find(|of| is_here(labels::CAPACITY_TYPE, labels::ON_DEMAND, of) && is_here(labels::ZONE, zone, of))
    });
    for (key, requirement) in offering.into_iter().flat_map(|offering| offering.requirements.iter()) {
        if *requirement == Requirement::ABSENT {
            out.remove(key);
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{InstanceType, Offering, Price, Quantity, provider::ProviderId};

    const RESERVATION: &str = "example.com/reservation";
    const KIND: &str = "example.com/reservation-kind";

    fn catalog() -> Catalog {
        let mut reserved = Offering::new(labels::RESERVED, "a", Price::ZERO);
        reserved.requirements.add(RESERVATION, Requirement::one_of(["r-1"]));
        reserved.requirements.add(KIND, Requirement::one_of(["block"]));
        reserved.reservation_capacity = Some(1);
        let mut plain = Offering::new(labels::ON_DEMAND, "a", Price::per_hour(1.0).expect("a price"));
        for key in [RESERVATION, KIND] {
            plain.requirements.add(key, Requirement::ABSENT);
        }
        let mut own = InstanceType::named("large", [("cpu", Quantity::from_units(2))]);
        own.offerings = vec![reserved, plain];
        Catalog::new(vec![own]).expect("a catalog")
    }

    fn of(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn what_says_of_a_reservation_goes_with_it() {
        let known = of(&[
            (labels::CAPACITY_TYPE, labels::RESERVED),
            (labels::ZONE, "a"),
            (RESERVATION, "r-1"),
            (KIND, "block"),
            ("team", "web"),
        ]);
        let here =
            |kind: &str| of(&[(labels::CAPACITY_TYPE, kind), (labels::ZONE, "a"), (labels::INSTANCE_TYPE, "large")]);
        let machine = |kind: &str| Instance::new(ProviderId::new("m"), "uid", here(kind));
        let lost = demoted(&known, &machine(labels::ON_DEMAND), &catalog()).expect("it lost its reservation");
        let expected = of(&[(labels::CAPACITY_TYPE, labels::ON_DEMAND), (labels::ZONE, "a"), ("team", "web")]);
        assert_eq!(lost, expected);
        assert_eq!(demoted(&lost, &machine(labels::ON_DEMAND), &catalog()), None, "it says so already");
        assert_eq!(demoted(&known, &machine(labels::RESERVED), &catalog()), None, "it has its reservation");
        let mut going = machine(labels::ON_DEMAND);
        going.is_terminating = true;
        assert_eq!(demoted(&known, &going, &catalog()), None);
    }
}
