//! The laws of the requirement algebra and of quantities.

use std::collections::BTreeMap;

use karpenter_core::{
    Quantity, Requirement, Requirements,
    api::NodeSelectorRequirement,
    strategies::{expression, label_value, node_labels, quantity, requirement},
};
use proptest::{collection::vec, prelude::*};

fn probes() -> impl Iterator<Item = Option<String>> {
    let numbers = (0..13).map(|n: i64| n.to_string());
    let words = ["a", "b", "c", "x1", "zz", "07", "007", "-3", "+3", "", "9223372036854775807", "9223372036854775808"];
    numbers.chain(words.map(str::to_owned)).map(Some).chain([None])
}

/// What an expression means, said as the API documentation says it.
fn means(expression: &NodeSelectorRequirement, value: Option<&str>) -> bool {
    let named = |v: &str| expression.values.iter().any(|x| x == v);
    let number = |v: &str| v.bytes().all(|b| b.is_ascii_digit()).then(|| v.parse::<i64>().ok()).flatten();
    let compare = |holds: fn(&i64, &i64) -> bool| {
        let bound: i64 = expression.values[0].parse().expect("a bound");
        value.and_then(number).is_some_and(|n| holds(&n, &bound))
    };
    match format!("{:?}", expression.operator).as_str() {
        "In" => value.is_some_and(named),
        "NotIn" => !value.is_some_and(named),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => compare(i64::gt),
        "Gte" => compare(i64::ge),
        "Lt" => compare(i64::lt),
        "Lte" => compare(i64::le),
        other => panic!("an operator that this test does not know: {other}"),
    }
}

fn is_same(a: &Requirement, b: &Requirement) -> bool {
    probes().all(|p| a.admits(p.as_deref()) == b.admits(p.as_deref()))
}

#[test]
fn min_values_alone_are_written() {
    let any = Requirement::ANY.with_min_values(Some(2));
    assert_eq!(any.to_expressions("k").iter().collect::<Requirements>().get("k"), Some(&any));
}

proptest! {
    #[test]
    fn a_requirement_means_what_its_expression_says(e in expression("k")) {
        let requirement = Requirement::from(&e);
        for probe in probes() {
            prop_assert_eq!(requirement.admits(probe.as_deref()), means(&e, probe.as_deref()), "{:?}", probe);
        }
    }

    #[test]
    fn intersection_is_conjunction(a in requirement(), b in requirement()) {
        let both = a.intersection(&b);
        for probe in probes() {
            let p = probe.as_deref();
            prop_assert_eq!(both.admits(p), a.admits(p) && b.admits(p), "{:?}", probe);
        }
        prop_assert_eq!(a.intersects(&b), !both.is_none());
    }

    #[test]
    fn intersection_is_a_semilattice(a in requirement(), b in requirement(), c in requirement()) {
        prop_assert_eq!(a.intersection(&a), a.clone());
        prop_assert_eq!(a.intersection(&b), b.intersection(&a));
        prop_assert_eq!(a.intersection(&b).intersection(&c), a.intersection(&b.intersection(&c)));
        prop_assert_eq!(a.intersection(&Requirement::ANY), a.clone());
        prop_assert_eq!(a.intersection(&Requirement::NONE), Requirement::NONE);
    }

    #[test]
    fn some_value_is_admitted_unless_there_is_none(a in requirement(), b in requirement(), c in requirement()) {
        let all = a.intersection(&b).intersection(&c);
        match all.any_value() {
            Some(value) => prop_assert!(all.admits(Some(&value)), "{all} does not admit {value}"),
            None => prop_assert!(!all.admits_some_value()),
        }
        prop_assert_eq!(all.is_none(), !all.admits_some_value() && !all.admits_absence());
        prop_assert!(all.values().all(|v| all.admits(Some(v))));
    }

    #[test]
    fn expressions_say_the_same(a in requirement(), b in requirement(), min in proptest::option::of(1..9_u32)) {
        let both = a.intersection(&b).with_min_values(min);
        let again: Requirements = both.to_expressions("k").iter().collect();
        let read = again.get("k").cloned().unwrap_or(Requirement::ANY);
        prop_assert!(is_same(&both, &read), "{both} became {read}");
        prop_assert_eq!(both.min_values(), read.min_values());
        let json = serde_json::to_string(&again).expect("serializable");
        prop_assert_eq!(serde_json::from_str::<Requirements>(&json).expect("readable"), again);
    }

    #[test]
    fn min_values_take_the_larger(a in requirement(), b in requirement(), m in proptest::option::of(1..9_u32), n in proptest::option::of(1..9_u32)) {
        let both = a.with_min_values(m).intersection(&b.with_min_values(n));
        prop_assert_eq!(both.min_values(), m.max(n));
    }

    #[test]
    fn sets_refuse_what_some_requirement_refuses(
        k in vec(expression("k"), 0..3), l in vec(expression("l"), 0..3), labels in node_labels(),
    ) {
        let all: Requirements = k.iter().chain(&l).collect();
        let refused = k.iter().chain(&l).any(|e| !means(e, labels.get(&e.key).map(String::as_str)));
        prop_assert_eq!(all.refuses(&labels).is_some(), refused);
        // A node's own labels, as requirements, clash with what refuses a label that the node has.
        let node = Requirements::of_labels(&labels);
        let clashes = all.iter().any(|(key, r)| labels.get(key).is_some_and(|v| !r.admits(Some(v))));
        prop_assert_eq!(all.conflict(&node).is_some(), clashes);
    }

    #[test]
    fn other_names_of_the_zone_are_the_stable_name(
        value in label_value(),
        other in proptest::sample::select(vec!["failure-domain.beta.kubernetes.io/zone", "topology.ebs.csi.aws.com/zone"]),
    ) {
        let labels = BTreeMap::from([("topology.kubernetes.io/zone".to_owned(), value.clone())]);
        let other = BTreeMap::from([(other.to_owned(), value)]);
        prop_assert_eq!(Requirements::of_labels(&labels), Requirements::of_labels(&other));
    }

    #[test]
    fn quantities_survive_the_wire(q in quantity()) {
        prop_assert_eq!(q.to_string().parse::<Quantity>(), Ok(q), "{}", q);
        prop_assert!(q.units_floor() <= q.units_ceil() && q.milli_floor() <= q.milli_ceil());
    }

    #[test]
    fn quantities_add_as_numbers_do(a in quantity(), b in quantity(), c in quantity()) {
        prop_assert_eq!(a.saturating_add(b), b.saturating_add(a));
        prop_assert_eq!(a.saturating_add(b).saturating_sub(b), a);
        prop_assert_eq!(a.saturating_add(b).saturating_add(c), a.saturating_add(b.saturating_add(c)));
        prop_assert_eq!(a < b, a.saturating_sub(b).is_negative());
    }

    #[test]
    fn no_text_makes_a_quantity_panic(text in "[+-]?[0-9.]{0,40}[eEinumkKMGTP]{0,2}[+-]?[0-9]{0,4}") {
        if let Ok(quantity) = text.parse::<Quantity>() {
            prop_assert_eq!(quantity.to_string().parse::<Quantity>(), Ok(quantity));
        }
    }
}
