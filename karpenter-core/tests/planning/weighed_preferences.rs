//! What preferences with a price do: they are met where that costs no more than the price.

use std::collections::BTreeMap;

use karpenter_core::{
    Catalogs, InstanceType, Plan, PlannedClaim, Planner, PlannerOptions, Price, Quantity, Snapshot,
    api::{Node, NodePool, NodeSelectorRequirement, Operator, Pod, Workload},
    labels,
    schedule::PreferencePolicy,
    strategies::{self, RandomProblem},
};
use proptest::{collection::vec, prelude::*, sample::subsequence};
use serde_json::{Value, json};

/// The price in a table that stands for a preference to be met, and that is above all nodes.
const HUGE: f64 = 1e6;

fn read<T: serde::de::DeserializeOwned>(json: Value) -> T {
    serde_json::from_value(json).expect("a Kubernetes object")
}

/// A machine of so many CPUs, at a price in each zone.
fn machine(name: &str, cpu: i64, zones: &[(&str, f64)]) -> InstanceType {
    let capacity = [("cpu", Quantity::from_units(cpu)), ("memory", Quantity::from_bytes(cpu << 32))];
    let machine = InstanceType::named(name, capacity);
    zones.iter().fold(machine, |machine, (zone, price)| machine.offering("on-demand", zone, dollars(*price)))
}

fn dollars(amount: f64) -> Price {
    Price::per_hour(amount).expect("not below zero")
}

/// Options under which only prices of machines and of preferences count.
fn options(preferences: PreferencePolicy, price: f64) -> PlannerOptions {
    let mut options = PlannerOptions::default();
    options.preferences = preferences;
    options.preference_price_per_hour = price;
    options.node_cost_per_hour = 0.0;
    options.slack = 0.0;
    options
}

fn solve(types: &[InstanceType], nodes: &[Node], pods: &[Pod], options: PlannerOptions) -> Plan {
    let builder = Snapshot::builder().pool(NodePool::named("general")).nodes(nodes.to_vec()).pods(pods.to_vec());
    let snapshot = builder.build().expect("valid");
    let catalogs = Catalogs::shared(types.to_vec(), snapshot.pools()).expect("valid");
    let plan = Planner::new(options).plan(&snapshot, &catalogs);
    assert!(plan.unplaced().is_empty(), "{:?}", plan.unplaced());
    plan
}

/// Pods of an app with CPUs and an affinity.
fn pods(app: &str, count: u32, cpu: &str, affinity: &Value) -> Vec<Pod> {
    let workload = Workload::from(Pod::named(app).label("app", app).cpu(cpu).replicas(count));
    let mut pods = workload.into_pods().expect("valid");
    for pod in &mut pods {
        pod.spec.affinity = read(affinity.clone());
    }
    pods
}

/// The affinity of pods that prefer zones, each with a weight.
fn zones(preferred: &[(i32, &[&str])]) -> Value {
    let term = |(weight, zones): &(i32, &[&str])| {
        let expression = json!({"key": labels::ZONE, "operator": "In", "values": zones});
        json!({"weight": weight, "preference": {"matchExpressions": [expression]}})
    };
    let terms: Vec<Value> = preferred.iter().map(term).collect();
    json!({"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": terms}})
}

/// The affinity of pods that prefer to be near pods of an app, or to keep away from them.
fn neighbours(kind: &str, weight: i32, app: &str, key: &str) -> Value {
    let term = json!({"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": key});
    json!({kind: {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": weight, "podAffinityTerm": term}]}})
}

/// The zones that a claim allows, and how many pods it has, of all claims.
fn outline(plan: &Plan) -> String {
    let zones = |claim: &PlannedClaim| {
        let zones: Vec<String> = claim
            .requirements
            .get(labels::ZONE)
            .map_or_else(Vec::new, |r| r.values().map(ToString::to_string).collect());
        if zones.len() == 1 { zones[0].clone() } else { "any".to_owned() }
    };
    let mut claims: Vec<String> =
        plan.claims().iter().map(|claim| format!("{} {}", zones(claim), claim.pods.len())).collect();
    claims.sort();
    claims.join(", ")
}

/// Whether the plans at these prices are those that are expected.
fn assert_flips(types: &[InstanceType], nodes: &[Node], pods: &[Pod], table: &[(f64, &str)]) {
    for (price, expected) in table {
        let plan = solve(types, nodes, pods, options(PreferencePolicy::Weigh, *price));
        assert_eq!(outline(&plan), *expected, "at {price}");
    }
}

#[test]
fn a_dearer_zone_is_taken_up_to_the_price_of_the_preference() {
    let types = [machine("m", 4, &[("a", 0.4), ("b", 0.5)])];
    let table = |count, cpu: &str, weight, table: &[(f64, &str)]| {
        assert_flips(&types, &[], &pods("web", count, cpu, &zones(&[(weight, &["b"])])), table);
    };
    table(1, "3", 100, &[(0.0, "any 1"), (0.099, "any 1"), (0.101, "b 1"), (HUGE, "b 1")]);
    // Half the weight has half the price, and a hundredth a hundredth.
    table(1, "3", 50, &[(0.199, "any 1"), (0.201, "b 1")]);
    table(1, "3", 1, &[(9.9, "any 1"), (10.1, "b 1")]);
    // Pods that share the node pay for it together.
    table(4, "900m", 100, &[(0.0249, "any 4"), (0.0251, "b 4")]);
    // What makes no sense is a price of 0.
    table(1, "3", 100, &[(-1.0, "any 1"), (f64::NAN, "any 1"), (f64::INFINITY, "any 1"), (1e300, "b 1")]);
}

#[test]
fn interruptions_count_beside_the_price_of_a_preference() {
    let mut machine = machine("m", 4, &[("a", 0.45)]).offering("spot", "b", dollars(0.4));
    machine.offerings[1].interruption = Some(1.0);
    let pod = pods("web", 1, "3", &zones(&[(100, &["b"])]));
    let bill = |price| {
        let mut options = options(PreferencePolicy::Weigh, price);
        options.interruption_cost = 0.1;
        solve(std::slice::from_ref(&machine), &[], &pod, options).hourly_cost()
    };
    assert_eq!([0.0, 0.049, 0.051].map(bill), [0.45, 0.45, 0.4].map(dollars));
}

#[test]
fn each_class_is_decided_for_itself() {
    let types = [machine("m", 4, &[("a", 0.4), ("b", 0.5)])];
    let mut all = pods("dear", 1, "3", &zones(&[(100, &["b"])]));
    all.extend(pods("cheap", 1, "3", &zones(&[(10, &["b"])])));
    assert_flips(&types, &[], &all, &[(0.05, "any 1, any 1"), (0.5, "any 1, b 1"), (2.0, "b 1, b 1")]);
}

#[test]
fn of_preferences_that_exclude_each_other_the_one_worth_most_is_met() {
    let types = [machine("m", 4, &[("a", 0.4), ("b", 0.6), ("c", 0.45)])];
    let pod = pods("web", 1, "3", &zones(&[(80, &["b"]), (40, &["c"])]));
    assert_flips(&types, &[], &pod, &[(0.1, "any 1"), (0.2, "c 1"), (1.0, "b 1")]);
}

#[test]
fn an_even_spread_has_a_price() {
    let types = [machine("m", 4, &[("a", 0.4), ("b", 0.5)])];
    let mut pods = pods("web", 2, "3", &json!({}));
    let spread = json!([{"maxSkew": 1, "topologyKey": labels::ZONE, "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": {"app": "web"}}}]);
    for pod in &mut pods {
        pod.spec.topology_spread_constraints = read(spread.clone());
    }
    // Both pods break it if one does.
    let table = [(0.0, "any 1, any 1"), (0.049, "any 1, any 1"), (0.051, "a 1, b 1"), (HUGE, "a 1, b 1")];
    assert_flips(&types, &[], &pods, &table);
}

#[test]
fn a_node_of_ones_own_has_a_price() {
    let types = [machine("small", 2, &[("a", 0.15)]), machine("large", 8, &[("a", 0.4)])];
    let pods = pods("web", 8, "900m", &neighbours("podAntiAffinity", 100, "web", labels::HOSTNAME));
    // Eight small nodes cost 0.8 more than a large one.
    let (alone, together) = (["any 1"; 8].join(", "), "any 8");
    let table = [(0.0, together), (0.099, together), (0.101, &alone), (HUGE, &alone)];
    assert_flips(&types, &[], &pods, &table);
}

#[test]
fn company_in_a_dearer_zone_has_a_price() {
    let types = [machine("m", 4, &[("a", 0.4), ("b", 0.5)])];
    let node: Node =
        read(json!({"metadata": {"name": "full", "labels": {labels::ZONE: "b", labels::HOSTNAME: "full"}},
        "status": {"allocatable": {"cpu": "0", "pods": "9"}}}));
    let friend: Pod = read(json!({"metadata": {"name": "friend", "namespace": "default", "labels": {"app": "friend"}},
        "spec": {"nodeName": "full", "containers": [{"name": "main"}]}, "status": {"phase": "Running"}}));
    let mut all = pods("web", 1, "3", &neighbours("podAffinity", 100, "friend", labels::ZONE));
    all.push(friend);
    assert_flips(&types, &[node], &all, &[(0.099, "any 1"), (0.101, "b 1")]);
}

#[test]
fn free_room_that_meets_a_preference_is_used_at_any_price() {
    let types = [machine("m", 4, &[("a", 0.4)])];
    let node: Node =
        read(json!({"metadata": {"name": "free", "labels": {labels::ZONE: "b", labels::HOSTNAME: "free"}},
        "status": {"allocatable": {"cpu": "1", "memory": "8Gi", "pods": "9"}}}));
    let all = [pods("b", 1, "1", &zones(&[(1, &["b"])])), pods("any", 1, "1", &json!({}))].concat();
    for price in [0.0, 0.01, HUGE] {
        let plan = solve(&types, std::slice::from_ref(&node), &all, options(PreferencePolicy::Weigh, price));
        let at_free: Vec<String> = plan.existing()["free"].iter().map(ToString::to_string).collect();
        assert_eq!(at_free, ["default/b-0"], "at {price}");
    }
}

/// A pod that fills a node, with the weights of the zones that it prefers.
type Wisher = Vec<(i32, Vec<&'static str>)>;

const ZONES: [&str; 3] = ["a", "b", "c"];

fn wisher() -> impl Strategy<Value = Wisher> {
    vec((1..=100_i32, subsequence(ZONES.to_vec(), 1..3)), 0..4)
}

/// The dollars that such a pod does without on a node of any of these zones.
fn unmet(wisher: &Wisher, allowed: &[&str], price: f64) -> f64 {
    let is_met = |zones: &[&str]| allowed.iter().all(|zone| zones.contains(zone));
    wisher.iter().filter(|(_, zones)| !is_met(zones)).map(|(weight, _)| f64::from(*weight) / 100.0 * price).sum()
}

/// The zones that a claim allows.
fn zones_of(claim: &PlannedClaim) -> Vec<&'static str> {
    let is_allowed = |zone: &&str| claim.requirements.get(labels::ZONE).is_none_or(|r| r.admits(Some(zone)));
    ZONES.into_iter().filter(is_allowed).collect()
}

fn plan_of(problem: &RandomProblem, options: &PlannerOptions) -> Plan {
    let catalogs = problem.catalogs().expect("a valid catalog");
    Planner::new(options.clone()).plan(&problem.snapshot(), &catalogs)
}

proptest! {
    /// Where each pod has a node of its own, the best of all plans is known.
    #[test]
    fn what_fills_a_node_gets_the_best_of_all_zones(
        wishers in vec(wisher(), 1..5), cents in [1..60_u32, 1..60_u32, 1..60_u32], price in 0.0..1.0_f64,
    ) {
        let prices: Vec<(&str, f64)> = ZONES.into_iter().zip(cents.map(|c| f64::from(c) / 100.0)).collect();
        let names: Vec<String> = (0..wishers.len()).map(|n| format!("p{n}")).collect();
        let all = wishers.iter().zip(&names).flat_map(|(wisher, name)| {
            let terms: Vec<(i32, &[&str])> = wisher.iter().map(|(weight, zones)| (*weight, zones.as_slice())).collect();
            pods(name, 1, "3", &zones(&terms))
        });
        let all: Vec<Pod> = all.collect();
        let plan = solve(&[machine("m", 4, &prices)], &[], &all, options(PreferencePolicy::Weigh, price));
        let best: f64 = wishers.iter().map(|wisher| {
            let zones = prices.iter().map(|(zone, dollars)| dollars + unmet(wisher, &[*zone], price));
            zones.fold(f64::INFINITY, f64::min)
        }).sum();
        let by_name: BTreeMap<&str, &Wisher> = names.iter().map(String::as_str).zip(&wishers).collect();
        let lost: f64 = plan.claims().iter().map(|claim| {
            let name = claim.pods[0].name.trim_end_matches("-0");
            unmet(by_name[name], &zones_of(claim), price)
        }).sum();
        let total = plan.hourly_cost().dollars_per_hour() + lost;
        prop_assert!(total <= best + 1e-9, "{total} is more than {best}: {}", outline(&plan));
    }

    #[test]
    fn what_costs_nothing_is_worth_nothing(problem in strategies::problem(12)) {
        let [mut weigh, mut ignore] = [PlannerOptions::default(), PlannerOptions::default()];
        (weigh.preferences, weigh.preference_price_per_hour) = (PreferencePolicy::Weigh, 0.0);
        ignore.preferences = PreferencePolicy::Ignore;
        let [weighed, ignored] = [weigh, ignore].map(|options| plan_of(&problem, &options));
        let left = [&weighed, &ignored].map(|plan| plan.unplaced().len());
        prop_assert!(left[0] <= left[1]);
        prop_assert!(left[0] < left[1] || weighed.hourly_cost() <= ignored.hourly_cost());
    }

    #[test]
    fn no_price_costs_a_pod_its_place(problem in strategies::problem(12), price in 0.0..1.0_f64) {
        let mut weigh = PlannerOptions::default();
        (weigh.preferences, weigh.preference_price_per_hour) = (PreferencePolicy::Weigh, price);
        let [weighed, respected] = [weigh, PlannerOptions::default()].map(|options| plan_of(&problem, &options));
        prop_assert!(weighed.unplaced().len() <= respected.unplaced().len());
    }

    #[test]
    fn the_order_of_the_input_changes_nothing(mut problem in strategies::problem(12), turn in 0..12_usize) {
        let mut weigh = PlannerOptions::default();
        weigh.preferences = PreferencePolicy::Weigh;
        let first = plan_of(&problem, &weigh);
        problem.pods.reverse();
        let count = problem.pods.len().max(1);
        problem.pods.rotate_left(turn % count);
        problem.pools.reverse();
        problem.types.reverse();
        problem.nodes.reverse();
        prop_assert_eq!(first, plan_of(&problem, &weigh));
    }
}

#[test]
fn limits_come_before_preferences() {
    // Two nodes are all that there is for pods that would pay for one each.
    let all = pods("web", 8, "900m", &neighbours("podAntiAffinity", 100, "web", labels::HOSTNAME));
    let pool = NodePool::named("general").limit("cpu", Quantity::from_units(16));
    let zone = NodeSelectorRequirement::new(labels::ZONE, Operator::In, vec!["a"]);
    let snapshot = Snapshot::builder().pool(pool.require(zone)).pods(all).build().expect("valid");
    let catalogs = Catalogs::shared(vec![machine("m", 8, &[("a", 0.4)])], snapshot.pools()).expect("valid");
    for (price, nodes) in [(0.0, 1), (HUGE, 2)] {
        let plan = Planner::new(options(PreferencePolicy::Weigh, price)).plan(&snapshot, &catalogs);
        assert_eq!((plan.unplaced().len(), plan.claims().len()), (0, nodes), "at {price}");
    }
}
