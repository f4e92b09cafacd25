//! What the numbers among the options of the planner do.

use std::collections::BTreeMap;

use karpenter_core::{
    Catalogs, InstanceType, Plan, Planner, PlannerOptions, Price, Quantity, Requirement, Snapshot, SnapshotBuilder,
    api::{Node, NodePool, NodeSelectorRequirement, ObjectKey, Operator, Pod, PodBuilder, Workload},
    disrupt::DisruptorOptions,
    engine::EngineOptions,
    labels,
    schedule::MinValuesPolicy,
};
use serde_json::json;

fn dollars(dollars: f64) -> Price {
    Price::per_hour(dollars).expect("not below zero")
}

/// A machine of so many CPUs with 4 GiB each.
fn machine(cpu: i64) -> InstanceType {
    let capacity = [("cpu", Quantity::from_units(cpu)), ("memory", Quantity::from_bytes(cpu << 32))];
    InstanceType::named(format!("m{cpu:02}"), capacity)
}

/// Machines of 2 to 32 CPUs, the larger the cheaper for each CPU.
fn machines(capacity_type: &str) -> Vec<InstanceType> {
    let price = |cpu: i64| dollars(0.1 * cpu as f64 - 0.0001 * (cpu * cpu) as f64);
    [2, 4, 8, 16, 32].map(|cpu| machine(cpu).offering(capacity_type, "a", price(cpu))).into()
}

fn options(set: impl FnOnce(&mut PlannerOptions)) -> PlannerOptions {
    let mut options = PlannerOptions::default();
    set(&mut options);
    options
}

fn solve(options: &PlannerOptions, builder: SnapshotBuilder, types: Vec<InstanceType>) -> Plan {
    let snapshot = builder.build().expect("valid");
    let catalogs = Catalogs::shared(types, snapshot.pools()).expect("valid");
    let plan = Planner::new(options.clone()).plan(&snapshot, &catalogs);
    assert!(plan.unplaced().is_empty(), "{:?}", plan.unplaced());
    plan
}

fn cluster() -> SnapshotBuilder {
    Snapshot::builder().pool(NodePool::named("general"))
}

/// The cheapest type of each claim, and how many pods it has.
fn outline(plan: &Plan) -> Vec<String> {
    let mut out: Vec<_> =
        plan.claims().iter().map(|claim| format!("{} {}", claim.instance_types[0], claim.pods.len())).collect();
    out.sort();
    out
}

#[test]
fn an_option_that_there_is_not_is_an_error_that_names_it() {
    let of_planner = serde_json::from_value::<PlannerOptions>(json!({"slak": 0.0})).unwrap_err();
    let of_disruptor = serde_json::from_value::<DisruptorOptions>(json!({"planner": {"slak": 0.0}})).unwrap_err();
    let of_engine = serde_json::from_value::<EngineOptions>(json!({"disruptor": {"minSaving": 0.0}})).unwrap_err();
    for (error, name) in [(of_planner, "slak"), (of_disruptor, "slak"), (of_engine, "minSaving")] {
        assert!(error.to_string().contains(&format!("unknown field `{name}`")), "{error}");
    }
}

mod spot_types {
    use super::*;

    fn with_floor(least: usize) -> PlannerOptions {
        options(|options| options.min_spot_types = Some(least))
    }

    fn type_counts(plan: &Plan) -> Vec<usize> {
        let mut out: Vec<_> = plan.claims().iter().map(|claim| claim.instance_types.len()).collect();
        out.sort_unstable();
        out
    }

    #[test]
    fn pods_share_smaller_nodes_so_that_enough_types_are_left() {
        let pods = || cluster().pods(Pod::named("web").cpu("1").memory("1Gi").replicas(32));
        let cases = [(0, [1].as_slice()), (1, &[1]), (2, &[2, 2]), (3, &[3, 3, 3, 3])];
        for (least, counts) in cases {
            assert_eq!(type_counts(&solve(&with_floor(least), pods(), machines("spot"))), counts, "{least}");
        }
    }

    #[test]
    fn by_default_no_choice_makes_a_plan_dearer_than_karpenters() {
        // Of 32 pods Karpenter puts all on one node of the largest type.
        let counts = |types, node_cost| {
            let pods = Pod::named("web").cpu("1").memory("1Gi").replicas(32);
            let options = options(|options| options.node_cost_per_hour = node_cost);
            type_counts(&solve(&options, cluster().pods(pods), types))
        };
        assert_eq!(counts(machines("spot"), 0.001), [1]);
        assert_eq!(counts(machines("spot"), 10.0), [1], "what a node costs beyond its price is on no bill");
        let price = |cpu: i64| dollars(0.1 * cpu as f64);
        let as_cheap = [2, 4, 8, 16, 32].map(|cpu| machine(cpu).offering("spot", "a", price(cpu)));
        assert_eq!(counts(as_cheap.into(), 0.001), [3, 3, 3, 3]);
    }

    /// A heavier pool that asks for more types than there are.
    fn picky() -> NodePool {
        let mut nine_types = NodeSelectorRequirement::new(labels::INSTANCE_TYPE, Operator::Exists, [""; 0]);
        nine_types.min_values = Some(9);
        let mut picky = NodePool::named("picky").require(nine_types);
        picky.spec.weight = Some(10);
        picky
    }

    #[test]
    fn nor_if_there_is_a_pool_whose_min_values_nothing_reaches() {
        let pods = cluster().pool(picky()).pods(Pod::named("web").cpu("1").memory("1Gi").replicas(32));
        assert_eq!(type_counts(&solve(&PlannerOptions::default(), pods, machines("spot"))), [1]);
    }

    #[test]
    fn nor_if_some_pods_find_no_node_in_any_plan() {
        let nowhere = Pod::named("nowhere").cpu("1").node_selector(labels::ZONE, "no-such");
        let pods = Pod::named("web").cpu("1").memory("1Gi").replicas(32);
        let snapshot = cluster().pool(picky()).pods(nowhere).pods(pods).build().expect("valid");
        let catalogs = Catalogs::shared(machines("spot"), snapshot.pools()).expect("valid");
        let plan = Planner::default().plan(&snapshot, &catalogs);
        assert_eq!((plan.unplaced().len(), type_counts(&plan)), (1, vec![1]));
    }

    #[test]
    fn nor_if_pods_share_a_node_whose_label_one_of_them_settles() {
        let tenants = NodeSelectorRequirement::new("tenant", Operator::In, ["red", "blue"]);
        let small = Pod::named("small").cpu("1").node_selector(labels::INSTANCE_TYPE, "m04");
        let spread = json!({"topologyKey": labels::HOSTNAME, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": "blue"}}});
        let unschedulable = json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable"});
        let blue = json!({"status": {"conditions": [unschedulable]}, "metadata": {"name": "blue", "labels": {"app": "blue"}}, "spec": {
            "nodeSelector": {"tenant": "blue"}, "topologySpreadConstraints": [spread],
            "containers": [{"name": "main", "resources": {"requests": {"cpu": "2"}}}]}});
        let blue: Pod = serde_json::from_value(blue).expect("valid");
        let pods = Snapshot::builder().pool(NodePool::named("tenants").require(tenants)).pods(small).pods(blue);
        assert_eq!(outline(&solve(&PlannerOptions::default(), pods, machines("spot"))), ["m04 2"]);
    }

    #[test]
    fn nor_if_the_largest_pods_come_first_where_there_is_room() {
        let node = json!({"metadata": {"name": "old"}, "status": {"allocatable": {"cpu": "4", "memory": "24Gi", "pods": "9"}}});
        let node: Node = serde_json::from_value(node).expect("valid");
        let large = Pod::named("large").cpu("4").memory("1Gi");
        let valuable = Pod::named("valuable").cpu("2800m").memory("20Gi");
        let web = Pod::named("web").cpu("1600m").memory("1Gi").replicas(18);
        let pods = cluster().nodes([node]).pods(large).pods(valuable).pods(web);
        assert_eq!(outline(&solve(&PlannerOptions::default(), pods, machines("spot"))), ["m32 19"]);
    }

    #[test]
    fn nodes_on_demand_are_not_held_to_it() {
        let pods = cluster().pods(Pod::named("web").cpu("1").memory("1Gi").replicas(32));
        assert_eq!(type_counts(&solve(&with_floor(3), pods, machines("on-demand"))), [1]);
    }

    #[test]
    fn only_offerings_that_the_pods_accept_count() {
        // In zone b there are only the two largest.
        let mut types = machines("spot");
        for machine in &mut types[3..] {
            let price = machine.offerings[0].price;
            *machine = machine.clone().offering("spot", "b", price);
        }
        let web = || Pod::named("web").cpu("1").memory("1Gi").replicas(16);
        let anywhere = solve(&with_floor(2), cluster().pods(web()), types.clone());
        assert_eq!(type_counts(&anywhere), [2]);
        let in_b = solve(&with_floor(2), cluster().pods(web().node_selector(labels::ZONE, "b")), types);
        assert_eq!((type_counts(&in_b), outline(&in_b)), (vec![2], vec!["m16 16".to_owned()]));
    }

    #[test]
    fn pods_that_leave_no_choice_find_a_node_all_the_same() {
        let large = solve(&with_floor(4), cluster().pods(Pod::named("large").cpu("30")), machines("spot"));
        assert_eq!(outline(&large), ["m32 1"]);
        let pinned = Pod::named("pinned").cpu("1").node_selector(labels::INSTANCE_TYPE, "m08").replicas(8);
        assert_eq!(outline(&solve(&with_floor(4), cluster().pods(pinned), machines("spot"))), ["m08 8"]);
    }

    #[test]
    fn limits_of_a_pool_go_before_it() {
        // A claim in a pool with limits names no larger type than the one that was chosen.
        let pool = NodePool::named("general").limit("nodes", Quantity::from_units(1));
        let pods = Pod::named("web").cpu("1").memory("1Gi").replicas(32);
        let plan = solve(&with_floor(3), Snapshot::builder().pool(pool).pods(pods), machines("spot"));
        assert_eq!(outline(&plan), ["m32 32"]);
    }
}

mod interruptions {
    use super::*;

    fn plan(interruption_cost: f64, pods: PodBuilder, types: Vec<InstanceType>) -> Plan {
        solve(&options(|options| options.interruption_cost = interruption_cost), cluster().pods(pods), types)
    }

    /// The same machine, of which the spot market takes back this share within an hour.
    fn interrupted(mut machine: InstanceType, share: f64) -> InstanceType {
        machine.offerings[0].interruption = Some(share);
        machine
    }

    #[test]
    fn a_claim_keeps_to_the_capacity_type_that_is_cheaper_in_the_end() {
        let outcome = |cost, share| {
            let machine = machine(8).offering("spot", "a", dollars(0.10)).offering("on-demand", "a", dollars(0.12));
            let plan = plan(cost, Pod::named("web").cpu("4"), vec![interrupted(machine, share)]);
            let requirement = plan.claims()[0].requirements.get(labels::CAPACITY_TYPE).map(ToString::to_string);
            (plan.hourly_cost(), requirement)
        };
        let any = (dollars(0.10), None);
        let on_demand = (dollars(0.12), Some("In [on-demand]".to_owned()));
        assert_eq!(outcome(0.1, 0.1), any);
        assert_eq!(outcome(0.1, 0.3), on_demand);
        assert_eq!(outcome(1.0, 0.1), on_demand);
        assert_eq!(outcome(0.0, 1.0), any);
    }

    #[test]
    fn types_that_are_taken_back_often_are_avoided_and_bills_are_of_real_prices() {
        let outcome = |cost| {
            let small = machine(4).offering("spot", "a", dollars(0.21));
            let large = interrupted(machine(8).offering("spot", "a", dollars(0.40)), 1.0);
            let plan = plan(cost, Pod::named("web").cpu("4").replicas(2), vec![small, large]);
            (outline(&plan), plan.hourly_cost())
        };
        assert_eq!(outcome(0.0), (vec!["m08 2".to_owned()], dollars(0.40)));
        assert_eq!(outcome(0.5), (vec!["m04 1".to_owned(), "m04 1".to_owned()], dollars(0.42)));
    }
}

mod node_cost {
    use super::*;

    #[test]
    fn the_dearer_nodes_are_the_fewer_are_made() {
        // Two machines of four CPUs are cheaper than one of eight.
        let types = || {
            vec![
                machine(4).offering("on-demand", "a", dollars(0.20)),
                machine(8).offering("on-demand", "a", dollars(0.60)),
            ]
        };
        let pods = || cluster().pods(Pod::named("web").cpu("4").replicas(2));
        let plan = |cost| solve(&options(|options| options.node_cost_per_hour = cost), pods(), types());
        assert_eq!(outline(&plan(0.0)), ["m04 1", "m04 1"]);
        let one = plan(0.5);
        assert_eq!((outline(&one), one.hourly_cost()), (vec!["m08 2".to_owned()], dollars(0.60)));
    }
}

mod workload_share {
    use super::*;

    fn with_share(share: f64) -> PlannerOptions {
        options(|options| options.max_workload_share = Some(share))
    }

    /// Pods of a controller.
    fn owned(controller: &str, pods: PodBuilder) -> Vec<Pod> {
        let mut pods = Workload::from(pods).into_pods().expect("valid");
        let owner = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": controller, "uid": controller, "controller": true});
        for pod in &mut pods {
            pod.metadata.owner_references = vec![serde_json::from_value(owner.clone()).expect("an owner")];
        }
        pods
    }

    /// The most pods on a node whose names begin so.
    fn most(plan: &Plan, prefix: &str) -> usize {
        let of = |pods: &[ObjectKey]| pods.iter().filter(|pod| pod.name.starts_with(prefix)).count();
        let claims = plan.claims().iter().map(|claim| of(&claim.pods));
        claims.chain(plan.existing().values().map(|pods| of(pods))).max().unwrap_or(0)
    }

    fn node(name: &str, cpu: &str) -> Node {
        let room = json!({"cpu": cpu, "memory": "64Gi", "pods": "110"});
        let labels: BTreeMap<&str, &str> =
            [(labels::NODE_POOL, "general"), (labels::REGISTERED, "true"), (labels::INITIALIZED, "true")].into();
        serde_json::from_value(json!({
            "metadata": {"name": name, "labels": labels},
            "spec": {"providerID": name},
            "status": {"allocatable": room, "capacity": room, "conditions": [{"type": "Ready", "status": "True"}]},
        }))
        .expect("a node")
    }

    #[test]
    fn no_node_takes_more_of_a_workload() {
        let web = || owned("web", Pod::named("web").cpu("1").memory("1Gi").replicas(12));
        let shop = || owned("shop", Pod::named("shop").cpu("1").memory("1Gi").replicas(4));
        let plan = |options: &PlannerOptions| solve(options, cluster().pods(web()).pods(shop()), machines("on-demand"));
        let free = plan(&PlannerOptions::default());
        assert_eq!((most(&free, "web"), most(&free, "shop")), (12, 4));
        for (share, web, shop) in [(0.25, 3, 1), (0.5, 6, 2), (0.01, 1, 1), (1.0, 12, 4)] {
            let plan = plan(&with_share(share));
            assert_eq!((most(&plan, "web"), most(&plan, "shop")), (web, shop), "{share}");
        }
    }

    #[test]
    fn pods_without_a_controller_are_a_workload_if_they_are_alike() {
        let pods = cluster()
            .pods(Pod::named("a").cpu("1").memory("1Gi").replicas(4))
            .pods(Pod::named("b").cpu("1500m").memory("1Gi").replicas(4));
        let plan = solve(&with_share(0.5), pods, machines("on-demand"));
        assert_eq!((most(&plan, "a"), most(&plan, "b")), (2, 2));
    }

    #[test]
    fn places_keep_it_and_running_pods_count() {
        let running = |name: &str, node: &str| {
            let mut pod = owned("web", Pod::named(name).cpu("1").memory("1Gi"));
            pod[0].spec.node_name = node.to_owned();
            pod[0].status = serde_json::from_value(json!({"phase": "Running"})).expect("a status");
            pod
        };
        // Eight pods in all, four a node: one may join those on the first node, and three the one on the second.
        let cluster = cluster()
            .nodes([node("first", "32"), node("second", "32")])
            .pods(running("run-0", "first"))
            .pods(running("run-1", "first"))
            .pods(running("run-2", "first"))
            .pods(running("run-3", "second"))
            .pods(owned("web", Pod::named("web").cpu("1").memory("1Gi").replicas(4)));
        let plan = solve(&with_share(0.5), cluster, machines("on-demand"));
        let counts: Vec<_> = plan.existing().iter().map(|(node, pods)| (node.as_str(), pods.len())).collect();
        assert_eq!(counts, [("first", 1), ("second", 3)]);
    }

    #[test]
    fn pods_that_must_share_a_node_come_before_it() {
        let together = Pod::named("web").label("app", "web").cpu("1").memory("1Gi").replicas(4);
        let mut pods = owned("web", together);
        for pod in &mut pods {
            let term = json!({"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": labels::HOSTNAME});
            let affinity = json!({"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}});
            pod.spec.affinity = serde_json::from_value(affinity).expect("an affinity");
        }
        let plan = solve(&with_share(0.25), cluster().pods(pods), machines("on-demand"));
        assert_eq!(most(&plan, "web"), 4);
    }
}

#[test]
fn amounts_that_make_no_sense_are_nothing() {
    let costs = |dollars| {
        options(|options| {
            options.node_cost_per_hour = dollars;
            options.interruption_cost = dollars;
        })
    };
    let plan = |dollars| {
        let mut types = machines("spot");
        for machine in &mut types {
            machine.offerings[0].interruption = Some(0.5);
        }
        solve(&costs(dollars), cluster().pods(Pod::named("web").cpu("1").replicas(3)), types)
    };
    for dollars in [-1.0, f64::NAN, f64::INFINITY] {
        assert_eq!(plan(dollars), plan(0.0), "{dollars}");
    }
}

#[test]
fn pods_find_nodes_at_the_highest_prices_too() {
    let dear = || vec![machine(2).offering("on-demand", "a", Price::MAX)];
    for node_cost in [0.0, f64::MAX] {
        let options =
            options(|options| (options.node_cost_per_hour, options.interruption_cost) = (node_cost, f64::MAX));
        let plan = solve(&options, cluster().pods(Pod::named("web").cpu("1").memory("1Gi").replicas(9)), dear());
        assert_eq!(plan.claims().len(), 5);
        assert!(plan.hourly_cost().dollars_per_hour().is_finite());
        // What costs the most is bought only where nothing else will do.
        let cheap = machine(4).offering("on-demand", "a", dollars(1.0));
        let plan =
            solve(&options, cluster().pods(Pod::named("web").cpu("1").replicas(9)), [dear(), vec![cheap]].concat());
        assert!(plan.claims().iter().all(|claim| claim.instance_types[0] == "m04"), "{:?}", outline(&plan));
    }
}

#[test]
fn slack_makes_no_plan_of_few_pods_dearer_than_karpenters() {
    let price = |cpu| match cpu {
        1 => 0.056,
        8 => 0.386,
        16 => 0.491,
        _ => 1.286,
    };
    let types = [1, 8, 16, 32].map(|cpu| machine(cpu).offering("on-demand", "a", dollars(price(cpu))));
    let small = Pod::named("small").cpu("300m").memory("3500Mi").replicas(2);
    let large = Pod::named("large").cpu("1500m").memory("1000Mi").replicas(21);
    let plan = solve(&PlannerOptions::default(), cluster().pods(small).pods(large), types.into());
    assert_eq!(outline(&plan), ["m01 1", "m32 22"]);
}

#[test]
fn slack_that_is_no_number_or_without_end_is_none() {
    let plan = |slack| {
        let pods = Pod::named("web").cpu("900m").memory("3Gi").replicas(40);
        solve(&options(|options| options.slack = slack), cluster().pods(pods), machines("on-demand"))
    };
    for slack in [-1.0, f64::NAN, f64::INFINITY] {
        assert_eq!(plan(slack), plan(0.0), "{slack}");
    }
}

/// An API server refuses a claim that names fewer values than it asks for.
#[test]
fn a_pod_that_leaves_a_claim_too_few_values_has_no_place_unless_that_is_done_as_well_as_it_can_be() {
    let mut in_two_zones = machine(4).offering("on-demand", "a", dollars(0.1)).offering("on-demand", "b", dollars(0.1));
    in_two_zones.requirements.add(labels::ZONE, Requirement::one_of(["a", "b"]));
    let mut zones = NodeSelectorRequirement::new(labels::ZONE, Operator::In, ["a", "b"]);
    zones.min_values = Some(2);
    let pods = [Pod::named("free").cpu("1"), Pod::named("bound").cpu("1").node_selector(labels::ZONE, "a")];
    let builder = pods.into_iter().fold(Snapshot::builder(), SnapshotBuilder::pods);
    let snapshot = builder.pool(NodePool::named("p").require(zones)).build().expect("valid");
    let catalogs = Catalogs::shared(vec![in_two_zones], snapshot.pools()).expect("valid");
    for (policy, left, named) in [(MinValuesPolicy::Strict, 1, (2, 2)), (MinValuesPolicy::BestEffort, 0, (1, 1))] {
        let options = options(|options| options.min_values = policy);
        let plan = Planner::new(options).plan(&snapshot, &catalogs);
        assert_eq!((plan.unplaced().len(), plan.claims().len()), (left, 1), "{policy:?}: {:?}", plan.unplaced());
        let asked = plan.claims()[0].requirements.get(labels::ZONE).expect("it says");
        assert_eq!((asked.value_count(), asked.min_values()), (Some(named.0), Some(named.1)), "{policy:?}");
    }
}

#[test]
fn requests_whose_sum_is_no_number_any_more_share_no_node() {
    let memory = |text: &str| text.parse::<Quantity>().expect("a quantity");
    let huge = InstanceType::named("huge", [("cpu", Quantity::from_units(64)), ("memory", memory("8Ei"))]);
    let pods = Pod::named("web").cpu("1").memory("7Ei").replicas(3);
    let plan =
        solve(&PlannerOptions::default(), cluster().pods(pods), vec![huge.offering("on-demand", "a", dollars(0.1))]);
    assert_eq!(plan.claims().len(), 3, "{:?}", plan.claims());
}
