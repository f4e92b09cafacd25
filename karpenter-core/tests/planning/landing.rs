//! Nodes beyond the tightest plan, for pods that the kube-scheduler would leave without one.

use karpenter_core::{
    Catalogs, InstanceType, Plan, Planner, PlannerOptions, Price, Quantity, Snapshot,
    api::{Node, NodePool, Pod, PodBuilder, Workload},
    labels,
};
use serde_json::{Value, json};

/// When the pods were made; the nodes came before or after them.
const PODS_CREATED: &str = "2026-01-02T00:00:00Z";
const BEFORE: &str = "2026-01-01T00:00:00Z";
const AFTER: &str = "2026-01-03T00:00:00Z";

/// A node that runs already and has no room.
fn full_node(index: usize, created: &str) -> Node {
    let labels = json!({
        labels::NODE_POOL: "general", labels::INSTANCE_TYPE: "machine", labels::ZONE: "a",
        "karpenter.sh/capacity-type": "on-demand",
    });
    let status = json!({"allocatable": {"cpu": "0", "memory": "0", "pods": "0"}});
    serde_json::from_value(json!({
        "metadata": {"name": format!("full-{index}"), "labels": labels, "creationTimestamp": created}, "status": status,
    }))
    .expect("a node")
}

fn pods(template: PodBuilder) -> Vec<Pod> {
    let mut pods = Workload::from(template).into_pods().expect("valid");
    for pod in &mut pods {
        pod.metadata.creation_timestamp = Some(PODS_CREATED.parse().expect("a time"));
    }
    pods
}

fn machine(name: &str, cpus: i64, dollars_per_hour: f64) -> InstanceType {
    let capacity = [("cpu", Quantity::from_units(cpus)), ("memory", Quantity::from_bytes(32 << 30))];
    let price = Price::per_hour(dollars_per_hour).expect("not below zero");
    InstanceType::named(name, capacity).offering("on-demand", "a", price)
}

/// Plans for a pod that takes a whole machine and for two that take half of one, in a cluster of so many full nodes.
fn plan(full_nodes: usize, created: &str) -> Plan {
    let whole_and_halves = [Pod::named("whole").cpu("8"), Pod::named("half").cpu("4").replicas(2)];
    plan_with(vec![machine("machine", 8, 0.4)], whole_and_halves, full_nodes, created)
}

fn plan_with(
    types: Vec<InstanceType>,
    workloads: impl IntoIterator<Item = PodBuilder>,
    full_nodes: usize,
    created: &str,
) -> Plan {
    let snapshot = Snapshot::builder()
        .pool(NodePool::named("general"))
        .nodes((0..full_nodes).map(|index| full_node(index, created)))
        .pods(workloads.into_iter().flat_map(pods).collect::<Vec<_>>())
        .build()
        .expect("valid");
    let catalogs = Catalogs::shared(types, snapshot.pools()).expect("valid");
    Planner::default().plan(&snapshot, &catalogs)
}

#[test]
fn pods_that_an_earlier_plan_left_get_a_node_for_whichever_lands_badly() {
    // The halves may come first and take half of each node.
    let plan = plan(100, AFTER);
    assert!(plan.unplaced().is_empty());
    assert_eq!(plan.claims().len(), 3);
    assert!(plan.claims().iter().all(|claim| !claim.pods.is_empty()));
}

#[test]
fn pods_that_an_earlier_plan_left_wait_for_no_cheaper_plan() {
    // Two machines cost 0.80 and take the pods in most orders, but a third one is more than the slack of the full nodes. A
    // double is not, and it takes them in any order.
    let workloads = [("api", "6", 1), ("batch", "2", 1), ("cache", "4", 2)];
    let workloads = workloads.map(|(name, cpu, count)| Pod::named(name).cpu(cpu).replicas(count));
    let types = vec![machine("machine", 8, 0.4), machine("double", 16, 0.88)];
    assert_eq!(plan_with(types, workloads, 11, AFTER).claims().len(), 1);
}

#[test]
fn no_slack_makes_a_first_plan_dearer_than_the_plain_order() {
    assert_eq!(plan(100, BEFORE).claims().len(), 2);
}

/// Two pods of an app with these spreads.
fn two(app: &str, template: impl FnOnce(PodBuilder) -> PodBuilder, spreads: &Value) -> Vec<Pod> {
    let mut pods = pods(template(Pod::named(app).label("app", app)).replicas(2));
    for pod in &mut pods {
        pod.spec.topology_spread_constraints = serde_json::from_value(spreads.clone()).expect("spreads");
    }
    pods
}

fn spread(key: &str, max_skew: i64, unmet: &str, app: &str) -> Value {
    let selector = json!({"matchLabels": {"app": app}});
    json!({"topologyKey": key, "maxSkew": max_skew, "whenUnsatisfiable": unmet, "labelSelector": selector})
}

/// A machine that costs as much on demand in two zones, and so much as spot in each.
fn in_two_zones(name: &str, cpus: i64, gpus: i64, on_demand: f64, spot: [f64; 2]) -> InstanceType {
    let capacity = [("cpu", cpus), ("nvidia.com/gpu", gpus), ("pods", 100)];
    let capacity = capacity.map(|(name, units)| (name, Quantity::from_units(units)));
    let [in_a, in_b] = spot;
    let offerings =
        [("on-demand", "a", on_demand), ("on-demand", "b", on_demand), ("spot", "a", in_a), ("spot", "b", in_b)];
    offerings.into_iter().fold(InstanceType::named(name, capacity), |machine, (kind, zone, price)| {
        machine.offering(kind, zone, Price::per_hour(price).expect("not below zero"))
    })
}

#[test]
fn what_binds_well_costs_no_more_than_the_tightest_plan_and_slack() {
    let by_zone = |app| spread(labels::ZONE, 1, "DoNotSchedule", app);
    let by_host = spread(labels::HOSTNAME, 1, "ScheduleAnyway", "web");
    let mut any = two("any", |pod| pod.cpu("500m"), &json!([spread(labels::HOSTNAME, 3, "DoNotSchedule", "any")]));
    let in_b = json!({"matchExpressions": [{"key": labels::ZONE, "operator": "In", "values": ["b"]}]});
    let wish = json!({"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 22, "preference": in_b}]});
    for pod in &mut any {
        pod.spec.affinity = serde_json::from_value(json!({"nodeAffinity": wish})).expect("an affinity");
    }
    let trainers = two("trainer", |pod| pod.cpu("3").request("nvidia.com/gpu", "1"), &json!([by_zone("trainer")]));
    let webs = two("web", |pod| pod.cpu("1"), &json!([by_zone("web"), by_host]));
    let on_demand = json!([{"key": labels::CAPACITY_TYPE, "operator": "In", "values": ["on-demand"]}]);
    let mut first = NodePool::named("first");
    first.spec.template.spec.requirements = serde_json::from_value(on_demand).expect("requirements");
    let builder = Snapshot::builder().pool(first).pool(NodePool::named("second"));
    let snapshot = builder.pods([trainers, webs, any].concat()).build().expect("valid");
    let types = vec![
        in_two_zones("small", 16, 0, 0.526, [0.267, 0.219]),
        in_two_zones("large", 32, 0, 1.004, [0.415, 0.344]),
        in_two_zones("gpu", 96, 8, 8.8, [3.6, 3.6]),
    ];
    assert_within_slack(&snapshot, types);
}

#[test]
fn the_plain_order_costs_no_more_than_the_tightest_plan_and_slack_either() {
    let mut apart = pods(Pod::named("apart").label("app", "apart").cpu("750m").replicas(3));
    let term = json!({"topologyKey": labels::HOSTNAME, "labelSelector": {"matchLabels": {"app": "apart"}}});
    for pod in &mut apart {
        let required = json!({"requiredDuringSchedulingIgnoredDuringExecution": [term]});
        pod.spec.affinity = serde_json::from_value(json!({"podAntiAffinity": required})).expect("an affinity");
    }
    let others = [
        Pod::named("big").cpu("6500m").replicas(4),
        Pod::named("port").cpu("1").host_port(8080).replicas(6),
        Pod::named("two").cpu("2"),
        Pod::named("some").cpu("250m").replicas(3),
    ];
    let all: Vec<Pod> = others.into_iter().flat_map(pods).chain(apart).collect();
    let snapshot = Snapshot::builder().pool(NodePool::named("general")).pods(all).build().expect("valid");
    assert_within_slack(
        &snapshot,
        vec![machine("small", 4, 0.187), machine("middle", 8, 0.292), machine("large", 12, 0.452)],
    );
}

/// That a plan costs no more than 6 % more with the slack of 6 % than without any.
fn assert_within_slack(snapshot: &Snapshot, types: Vec<InstanceType>) {
    let catalogs = Catalogs::shared(types, snapshot.pools()).expect("valid");
    let cost = |slack| {
        let mut options = PlannerOptions::default();
        options.slack = slack;
        let plan = Planner::new(options).plan(snapshot, &catalogs);
        assert!(plan.unplaced().is_empty(), "{:?}", plan.unplaced());
        plan.hourly_cost().dollars_per_hour()
    };
    assert!(cost(0.06) <= cost(0.0) * 1.06, "{} for {}", cost(0.06), cost(0.0));
}

#[test]
fn where_it_would_cost_much_a_further_plan_is_cheaper() {
    assert_eq!(plan(0, AFTER).claims().len(), 2);
}
