//! Capacity reservations, their prices, and what weights ask of claims.

use karpenter_core::{
    InstanceType, Offering, Plan, PlannedClaim, Quantity, Requirement, Requirements, Snapshot,
    api::{NodePool, Pod},
    labels,
};

use super::{
    dollars,
    helpers::{APP_A, of_claims, pod},
    violations_with,
};

const RESERVATION: &str = "example.com/reservation-id";

/// `m` is on demand, and reserved twice: one is left of `r1`, and two of `r2`.
fn types() -> Vec<InstanceType> {
    let reserved = |id: &str, left: u32| {
        let mut offering = Offering::new("reserved", "a", dollars(0.001));
        offering.requirements.add(RESERVATION, Requirement::one_of([id]));
        offering.reservation_capacity = Some(left);
        offering
    };
    let resources = [("cpu", Quantity::from_units(8)), ("memory", Quantity::from_bytes(32 << 30))];
    let mut m = InstanceType::named("m", resources).offering("on-demand", "a", dollars(1.0));
    m.offerings.extend([reserved("r1", 1), reserved("r2", 2), reserved("r3", 0)]);
    m.requirements.add(RESERVATION, Requirement::one_of(["r1", "r2", "r3"]));
    vec![m]
}

/// A claim that may draw on these reservations, at this price.
fn claim(pod: &str, reservations: &[&str], price: f64) -> PlannedClaim {
    let mut requirements = Requirements::new();
    if !reservations.is_empty() {
        requirements.add(RESERVATION, Requirement::one_of(reservations.iter().copied()));
    }
    PlannedClaim::new("pool", vec![pod.parse().expect("a key")], ["m"], dollars(price), requirements)
}

fn violations(names: &[&str], plan: &Plan) -> Vec<String> {
    let pods: Vec<Pod> = names.iter().map(|name| pod(name, "", "")).collect();
    violations_with(types(), Snapshot::builder().pool(NodePool::named("pool")).pods(pods), plan)
}

#[test]
fn no_more_claims_need_a_reservation_than_it_has_left() {
    let one = |ids: &[&str]| violations(&["a"], &of_claims([claim("a", ids, 0.001)]));
    assert_eq!(one(&["r1"]), [""; 0]);
    assert_eq!(one(&["r3"]), ["claim 0 can only use what is reserved, and nothing is left of r3"]);
    let two =
        |a: &[&str], b: &[&str]| violations(&["a", "b"], &of_claims([claim("a", a, 0.001), claim("b", b, 0.001)]));
    assert_eq!(two(&["r1"], &["r1"]), ["claim 1 can only use what is reserved, and nothing is left of r1"]);
    assert_eq!(two(&["r2"], &["r2"]), [""; 0]);
    // The first must leave the reservation to the second.
    assert_eq!(two(&["r1", "r2"], &["r1"]), [""; 0]);
    let four = ["a", "b", "c", "d"];
    let claims = four.map(|name| claim(name, &["r1", "r2", "r3"], 0.001));
    let expected = "claim 3 can only use what is reserved, and nothing is left of r1, r2, r3";
    assert_eq!(violations(&four, &of_claims(claims)), [expected]);
}

#[test]
fn claims_with_another_way_out_need_no_reservation() {
    let names = ["a", "b", "c", "d"];
    assert_eq!(violations(&names, &of_claims(names.map(|name| claim(name, &[], 1.0)))), [""; 0]);
    assert_eq!(violations(&["a"], &of_claims([claim("a", &[], 0.001)])), [""; 0]);
    let expected = "claim 0 is said to cost $0.5000/h, its cheapest offering costs $1.0000/h";
    assert_eq!(violations(&["a"], &of_claims([claim("a", &[], 0.5)])), [expected]);
    let expected = "claim 0 is said to cost $1.0000/h, its cheapest offering costs $0.0010/h";
    assert_eq!(violations(&["a"], &of_claims([claim("a", &["r1"], 1.0)])), [expected]);
}

#[test]
fn an_offering_that_cannot_be_bought_is_none() {
    let mut sold_out = types();
    sold_out[0].offerings[1].available = false;
    let builder = Snapshot::builder().pool(NodePool::named("pool")).pods(pod("a", "", ""));
    let found = violations_with(sold_out, builder, &of_claims([claim("a", &["r1"], 0.001)]));
    assert_eq!(found, ["claim 0: no offering meets its requirements"]);
}

#[test]
fn weights_bind_only_pods_that_ask_for_nothing_but_a_node() {
    let mut heavy = NodePool::named("heavy");
    heavy.spec.weight = Some(10);
    let light = |pods: Vec<Pod>| {
        let builder = Snapshot::builder().pools([heavy.clone(), NodePool::named("pool")]).pods(pods);
        let mut requirements = Requirements::new();
        requirements.add(labels::CAPACITY_TYPE, Requirement::one_of(["on-demand"]));
        let key = "a".parse().expect("a key");
        let plan = of_claims([PlannedClaim::new("pool", vec![key], ["m"], dollars(1.0), requirements)]);
        violations_with(types(), builder, &plan)
    };
    let expected = "claim 0 is of pool although heavy is heavier and would take its pods";
    assert_eq!(light(vec![pod("a", APP_A, "")]), [expected]);
    let term = r#"{"labelSelector":{"matchLabels":{"app":"a"}},"topologyKey":"kubernetes.io/hostname"}"#;
    let away =
        format!(r#""affinity":{{"podAntiAffinity":{{"requiredDuringSchedulingIgnoredDuringExecution":[{term}]}}}}"#);
    assert_eq!(light(vec![pod("a", APP_A, &away)]), [""; 0]);
    let mut other = pod("b", r#""app":"b""#, &away);
    other.spec.node_name = "n1".to_owned();
    assert_eq!(light(vec![pod("a", APP_A, ""), other.clone()]), [""; 0]);
    other.metadata.namespace = "o".to_owned();
    assert_eq!(light(vec![pod("a", APP_A, ""), other]), [expected]);
    let likes = r#""affinity":{"nodeAffinity":{"preferredDuringSchedulingIgnoredDuringExecution":[{"weight":1,"preference":{}}]}}"#;
    assert_eq!(light(vec![pod("a", APP_A, likes)]), [""; 0]);
    let scratch: Pod = pod("a", APP_A, r#""volumes":[{"name":"scratch"}]"#);
    assert_eq!(light(vec![scratch]), [expected]);
}
