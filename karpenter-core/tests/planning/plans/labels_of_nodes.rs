//! Which labels nodes have: those of types, of templates, and those that pods settle.

use std::collections::BTreeMap;

use karpenter_core::{
    Catalog, Requirement,
    api::{Operator, Pod},
    labels,
};

use super::{expression, machine, machines, outline, pool, solve, with_pool};

#[test]
fn labels_of_the_template_are_labels_of_its_nodes() {
    let mut labelled = pool();
    labelled.spec.template.metadata.labels = BTreeMap::from([("team".to_owned(), "blue".to_owned())]);
    let pods = |team: &str| Pod::named(team).cpu("1").node_selector("team", team);
    let plan = solve(with_pool(labelled).pods(pods("blue")).pods(pods("red")), machines());
    assert_eq!(plan.claims().len(), 1);
    assert_eq!(
        plan.why("red").to_string(),
        "without a place: pool general: label team must be In [red], but nodes have blue"
    );
}

#[test]
fn a_type_without_a_label_has_that_of_the_template() {
    let mut labelled = pool();
    labelled.spec.template.metadata.labels = BTreeMap::from([("gpu".to_owned(), "t4".to_owned())]);
    let mut types = [machine("plain", 2), machine("with-gpu", 4)];
    types[1].requirements.add("gpu", Requirement::one_of(["t4"]));
    let plan = solve(with_pool(labelled).pods(Pod::named("p").cpu("1").node_selector("gpu", "t4")), types.to_vec());
    assert_eq!(*plan.claims()[0].instance_types, ["plain", "with-gpu"]);
}

#[test]
fn a_type_that_meets_each_pod_with_another_value_is_not_in_their_claim() {
    let wants = |name: &str, disk| Pod::named(name).cpu("1").node_label_in("disk", [disk, "nvme"]);
    let mut types = [machine("either", 4), machine("nvme", 2)];
    types[0].requirements.add("disk", Requirement::one_of(["ssd", "hdd"]));
    types[1].requirements.add("disk", Requirement::one_of(["nvme"]));
    let plan = solve(with_pool(pool()).pods(wants("a", "ssd")).pods(wants("b", "hdd")), types.to_vec());
    assert_eq!(outline(&plan), ["general nvme 0.08 2"]);
    assert_eq!(*plan.claims()[0].instance_types, ["nvme"]);
}

#[test]
fn a_label_of_the_template_settles_what_the_pool_requires_of_it() {
    let mut labelled = pool().require(expression("team", Operator::Exists, &[]));
    labelled.spec.template.metadata.labels = BTreeMap::from([("team".to_owned(), "blue".to_owned())]);
    let plan = solve(with_pool(labelled.clone()).pods(Pod::named("p").node_selector("team", "blue")), machines());
    let claim = plan.claims()[0].to_node_claim(&labelled, "general-1", "uid-1");
    assert_eq!(claim.metadata.labels["team"], "blue");
}

#[test]
fn a_label_that_only_the_pool_requires_is_settled_by_the_pods() {
    let open = pool().require(expression("team", Operator::In, &["blue", "red"]));
    let pods = |team: &str| Pod::named(team).cpu("100m").node_selector("team", team);
    let plan = solve(with_pool(open.clone()).pods(pods("blue")).pods(pods("red")), machines());
    let teams: Vec<_> = plan.claims().iter().map(|c| c.labels["team"].as_str()).collect();
    assert_eq!(teams, ["blue", "red"]);
    let claim = plan.claims()[0].to_node_claim(&open, "general-1", "uid-1");
    assert_eq!(
        (claim.metadata.labels["team"].as_str(), claim.metadata.labels[labels::NODE_POOL].as_str()),
        ("blue", "general")
    );
}

#[test]
fn a_type_without_a_label_has_that_of_the_template_also_where_pods_settle_another() {
    let mut labelled = pool().require(expression("team", Operator::Exists, &[]));
    labelled.spec.template.metadata.labels = BTreeMap::from([("generation".to_owned(), "2".to_owned())]);
    let mut types = [machine("bare", 2), machine("told", 8)];
    types[1].requirements.add("generation", Requirement::one_of(["2"]));
    let builder = with_pool(labelled.clone()).pods(Pod::named("p").node_selector("team", "blue"));
    let plan = solve(builder, types.to_vec());
    assert_eq!(outline(&plan), ["general bare 0.08 1"], "{:?}", plan.unplaced());
    // All that the claim names can be bought for it.
    let claim = &plan.claims()[0];
    let catalog = Catalog::new(types.to_vec()).expect("valid");
    for one in claim.instance_types.iter().filter_map(|name| catalog.get(name)) {
        assert!(one.offerings.iter().all(|offering| catalog.unmet(one, offering, &claim.requirements).is_none()));
    }
    assert_eq!(
        (claim.instance_types.len(), claim.to_node_claim(&labelled, "c", "u").metadata.labels["generation"].as_str()),
        (2, "2")
    );
}
