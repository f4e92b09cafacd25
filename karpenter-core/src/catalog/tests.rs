//! Tests of what a catalog says of its types and offerings.

use super::*;

#[test]
fn what_cannot_be_bought_anyway_can_be_avoided() {
    let price = Price::per_hour(1.0).expect("a price");
    let mut only = InstanceType::named("a", [("cpu", Quantity::from_units(1))]).offering("spot", "z", price);
    only.offerings[0].available = false;
    let key = only.offerings[0].key("a");
    let catalog = Catalog::new(vec![only]).expect("a catalog").without([&key]);
    assert!(!catalog.is_available("a", 0));
}

fn dollar() -> Price {
    Price::per_hour(1.0).expect("a price")
}

fn two_zones(name: &str) -> InstanceType {
    let own = InstanceType::named(name, [("cpu", Quantity::from_units(1))]);
    own.offering("spot", "y", dollar()).offering("spot", "z", dollar())
}

fn read_back(catalog: &Catalog) -> Catalog {
    serde_json::from_str(&serde_json::to_string(catalog).expect("written")).expect("read")
}

#[test]
fn what_was_taken_out_of_a_catalog_stays_out_when_it_is_written_and_read() {
    let whole = Catalog::new(vec![two_zones("a")]).expect("a catalog");
    let narrowed = whole.without([&whole.types()[0].offerings[0].key("a")]);
    let back = read_back(&narrowed);
    assert_eq!([0, 1].map(|offering| back.is_available("a", offering)), [false, true]);
    assert!(back.is_same(&narrowed) && narrowed.is_same(&back) && !back.is_same(&whole));
    assert!(read_back(&whole).is_same(&whole));
    assert_eq!(serde_json::to_string(&back).expect("written"), serde_json::to_string(&narrowed).expect("written"));
}

#[test]
fn catalogs_that_differ_in_anything_else_are_not_the_same() {
    let catalog_with = |change: fn(&mut InstanceType)| {
        // No label says its name, which may change alone then.
        let mut own = InstanceType { requirements: Requirements::new(), ..two_zones("a") };
        change(&mut own);
        Catalog::new(vec![own]).expect("a catalog")
    };
    let before = catalog_with(|_| ());
    let changes: [fn(&mut InstanceType); 9] = [
        |own| own.name = "b".to_owned(),
        |own| own.requirements.add("k", Requirement::EXISTS),
        |own| own.capacity.add(&own.capacity.clone()),
        |own| own.overhead.kube_reserved = own.capacity.clone(),
        |own| own.node_pools = Some(Vec::new()),
        |own| own.offerings.truncate(1),
        |own| own.offerings[0].price = Price::ZERO,
        |own| own.offerings[0].reservation_capacity = Some(1),
        |own| own.offerings[0].interruption = Some(0.5),
    ];
    for (index, change) in changes.into_iter().enumerate() {
        assert!(!catalog_with(change).is_same(&before), "{index}");
    }
}

#[test]
fn a_pool_may_use_a_part_of_a_catalog() {
    let other = InstanceType { node_pools: Some(vec!["a".to_owned()]), ..two_zones("other") };
    let whole = Catalog::new(vec![two_zones("a"), other.clone()]).expect("a catalog");
    let all = Arc::new(whole.without([&other.offerings[0].key("a")]));
    assert!(Arc::ptr_eq(&all.of_pool("a"), &all));
    let part = all.of_pool("b");
    assert_eq!(part.types().iter().map(|own| own.name.as_str()).collect::<Vec<_>>(), ["a"]);
    assert_eq!([0, 1].map(|offering| part.is_available("a", offering)), [false, true], "it stays sold out");
}

#[test]
fn an_offering_has_what_it_says_of_a_label_then_what_its_type_says_and_lacks_all_others() {
    let mut own = two_zones("a").label("example.com/gpu", "t4");
    for (key, values) in [(labels::ZONE, ["y", "z"]), ("example.com/reservation-id", ["r", "s"])] {
        own.requirements.add(key, Requirement::one_of(values));
    }
    own.offerings[1].requirements.add("example.com/reservation-id", Requirement::one_of(["s"]));
    let of_zone = |own: &InstanceType, zone: &str| {
        own.offerings.iter().find(|offering| offering.label(labels::ZONE) == zone).cloned().expect("an offering")
    };
    let catalog = Catalog::new(vec![own, two_zones("b")]).expect("a catalog");
    let unmet = |name: &str, zone: &str, key: &str, wanted: Requirement| {
        let own = catalog.get(name).expect("a type");
        let mut all = Requirements::new();
        all.add(key, wanted);
        catalog.unmet(own, &of_zone(own, zone), &all).map(|(key, _)| key.to_owned())
    };
    for (name, zone, key, value, is_met) in [
        ("a", "y", labels::ZONE, "y", true),
        ("a", "y", labels::ZONE, "z", false),
        ("a", "y", "example.com/gpu", "t4", true),
        ("b", "y", "example.com/gpu", "t4", false),
        ("a", "y", "example.com/reservation-id", "s", false),
        ("a", "z", "example.com/reservation-id", "s", true),
        ("b", "y", "example.com/team", "x", true),
    ] {
        let found = unmet(name, zone, key, Requirement::one_of([value]));
        assert_eq!(found.is_none(), is_met, "{name} in {zone}: {key}={value}");
    }
    assert_eq!(unmet("b", "y", "example.com/gpu", Requirement::none_of(["t4"])), None);

    let own = catalog.get("a").expect("a type");
    let labels = |zone: &str| own.node_labels(&of_zone(own, zone), &Requirements::new());
    assert_eq!((labels("y")[labels::ZONE].as_str(), labels("z")[labels::ZONE].as_str()), ("y", "z"));
    let reservations = ["y", "z"].map(|zone| labels(zone).get("example.com/reservation-id").cloned());
    assert_eq!(reservations, [None, Some("s".to_owned())]);
}

#[test]
fn a_pool_names_capacity_types_that_there_are() {
    let own = two_zones("a").offering("leased", "y", dollar());
    let catalog = Catalog::new(vec![own]).expect("a catalog");
    for (values, min_values, is_right) in [
        (vec!["leased"], None, true),
        (vec!["reserved"], None, true),
        (vec!["on-demnad"], None, false),
        (vec!["spot", "on-demnad"], None, true),
        (vec!["spot", "on-demnad"], Some(2), false),
        (vec!["spot", "on-demand"], Some(2), true),
    ] {
        let mut asked = NodeSelectorRequirement::new(labels::CAPACITY_TYPE, Operator::In, values.clone());
        asked.min_values = min_values;
        let found = catalog.check_labels(&NodePool::named("p").require(asked));
        assert_eq!(found.is_ok(), is_right, "{values:?} {min_values:?}: {found:?}");
    }
}

#[test]
fn a_label_is_one_value_or_none() {
    let mut offering = Offering::new("spot", "z", dollar());
    assert_eq!(offering.label(labels::ZONE), "z");
    for several in [Requirement::one_of(["y", "z"]), Requirement::EXISTS, Requirement::none_of(["z"])] {
        offering.requirements = Requirements::new();
        offering.requirements.add(labels::ZONE, several);
        assert_eq!(offering.label(labels::ZONE), "");
    }
    assert_eq!((offering.label(labels::CAPACITY_TYPE), offering.key("a").zone.as_str()), ("", ""));
}

#[test]
fn the_order_in_which_a_type_lists_its_offerings_makes_no_difference() {
    let price = |dollars| Price::per_hour(dollars).expect("a price");
    let catalog = |offerings: &[(&str, &str, f64)]| {
        let only = InstanceType::named("a", [("cpu", Quantity::from_units(1))]);
        let add = |own: InstanceType, &(kind, zone, dollars): &_| own.offering(kind, zone, price(dollars));
        Catalog::new(vec![offerings.iter().fold(only, add)]).expect("a catalog")
    };
    let mut offerings = [("spot", "y", 1.0), ("on-demand", "z", 2.0), ("spot", "x", 3.0)];
    let before = catalog(&offerings);
    offerings.reverse();
    assert!(catalog(&offerings).is_same(&before));
}

#[test]
fn the_name_of_a_type_is_a_label_and_offerings_tell_of_zones() {
    let json = r#"[{"name":"a","capacity":{"cpu":"1","pods":"9"},"offerings":[
        {"price":1.0,"requirements":[{"key":"topology.kubernetes.io/zone","operator":"In","values":["y"]}]},
        {"price":1.0,"requirements":[{"key":"topology.kubernetes.io/zone","operator":"In","values":["z"]}]}]}]"#;
    let catalog: Catalog = serde_json::from_str(json).expect("a catalog");
    let only = &catalog.types()[0];
    assert_eq!(only.values_of(labels::INSTANCE_TYPE).collect::<Vec<_>>(), ["a"]);
    assert_eq!(only.values_of(labels::ZONE).collect::<Vec<_>>(), ["y", "z"]);
    assert_eq!(only.values_of(labels::ARCH).count(), 0);
    let of_node = only.node_labels(&only.offerings[0], &Requirements::new());
    assert_eq!(of_node.get(labels::INSTANCE_TYPE).map(String::as_str), Some("a"));
}
