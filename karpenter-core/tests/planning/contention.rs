//! Who gets the room for which there are more pods than it holds.

use karpenter_core::{
    Catalogs, InstanceType, Plan, Planner, Price, Quantity, Snapshot,
    api::{Node, NodePool, Pod, PodBuilder, Taint, TaintEffect, Toleration, Workload},
    labels,
};

/// Plans for pods beside one node with this much CPU, in a zone of its own: machines can be bought in two others.
fn solve(cpu: &str, workloads: impl IntoIterator<Item = Vec<Pod>>) -> Plan {
    solve_beside(node(cpu), workloads)
}

fn node(cpu: &str) -> Node {
    read(&format!(
        r#"{{"metadata":{{"name":"n","labels":{{"topology.kubernetes.io/zone":"c"}}}},
             "status":{{"allocatable":{{"cpu":"{cpu}","memory":"64Gi","pods":"99"}}}}}}"#
    ))
}

fn solve_beside(node: Node, workloads: impl IntoIterator<Item = Vec<Pod>>) -> Plan {
    solve_with([node], workloads)
}

fn solve_with(nodes: impl IntoIterator<Item = Node>, workloads: impl IntoIterator<Item = Vec<Pod>>) -> Plan {
    let capacity = [("cpu", Quantity::from_units(8)), ("memory", Quantity::from_bytes(32 << 30))];
    let price = Price::per_hour(0.4).expect("not below zero");
    let machine =
        InstanceType::named("machine", capacity).offering("on-demand", "a", price).offering("on-demand", "b", price);
    let builder = Snapshot::builder().pool(NodePool::named("general")).nodes(nodes);
    let snapshot = builder.pods(workloads.into_iter().flatten().collect::<Vec<_>>()).build().expect("valid");
    let catalogs = Catalogs::shared(vec![machine], snapshot.pools()).expect("valid");
    Planner::default().plan(&snapshot, &catalogs)
}

fn pods(pod: PodBuilder) -> Vec<Pod> {
    Workload::from(pod).into_pods().expect("valid")
}

/// Pods that only the node can take.
fn bound(name: &str, cpu: &str, count: u32) -> Vec<Pod> {
    pods(Pod::named(name).cpu(cpu).node_selector(labels::ZONE, "c").replicas(count))
}

/// Nine pods that a spread keeps level over all zones.
fn spread() -> Vec<Pod> {
    let mut spread = pods(Pod::named("s").label("app", "s").cpu("1").replicas(9));
    for pod in &mut spread {
        pod.spec.topology_spread_constraints = read(
            r#"[{"maxSkew":1,"topologyKey":"topology.kubernetes.io/zone","whenUnsatisfiable":"DoNotSchedule",
                 "labelSelector":{"matchLabels":{"app":"s"}}}]"#,
        );
    }
    spread
}

fn on_node(plan: &Plan) -> Vec<&str> {
    plan.existing()["n"].iter().map(|pod| &*pod.name).collect()
}

fn read<T: serde::de::DeserializeOwned>(json: &str) -> T {
    serde_json::from_str(json).expect(json)
}

#[test]
fn a_pod_that_can_give_up_a_wish_leaves_room_to_those_that_cannot() {
    let mut wishers = pods(Pod::named("a").cpu("3").replicas(2));
    for pod in &mut wishers {
        pod.spec.affinity.node_affinity.preferred = read(
            r#"[{"weight":1,"preference":{"matchExpressions":
                 [{"key":"topology.kubernetes.io/zone","operator":"In","values":["c"]}]}}]"#,
        );
    }
    let plan = solve("7", [wishers, bound("z", "2", 2)]);
    assert_eq!((on_node(&plan), plan.claims().len()), (vec!["a-0", "z-0", "z-1"], 1));
    assert!(plan.unplaced().is_empty());
}

#[test]
fn pods_on_which_others_depend_get_room_first() {
    let plan = solve("3", [spread(), bound("z", "1", 3)]);
    let left: Vec<&str> = plan.unplaced().keys().map(|pod| &*pod.name).collect();
    assert_eq!(left, ["z-0", "z-1", "z-2"]);
}

#[test]
fn room_that_a_taint_asks_to_avoid_is_left_to_pods_that_have_no_other() {
    let mut avoided = node("3");
    avoided.spec.taints = vec![Taint::new("slow", "", TaintEffect::PreferNoSchedule)];
    let tolerant = pods(Pod::named("a").cpu("1").toleration(Toleration::everything()).replicas(3));
    let plan = solve_beside(avoided, [tolerant, bound("z", "1", 3)]);
    assert_eq!(on_node(&plan), ["z-0", "z-1", "z-2"]);
    assert!(plan.unplaced().is_empty());
}

#[test]
fn no_pods_fare_worse_than_in_the_order_of_size() {
    let plan = solve("3", [spread(), bound("large", "2", 1)]);
    assert_eq!(on_node(&plan)[0], "large-0");
    // One more fits beside it, and with it two in each of the other zones.
    assert_eq!(plan.unplaced().len(), 4);
}

#[test]
fn no_pods_fare_worse_for_the_sake_of_those_that_do_as_well_as_by_size() {
    let mut wisher = bound("a-wisher", "3", 1);
    wisher[0].spec.affinity.node_affinity.preferred = read(
        r#"[{"weight":1,"preference":{"matchExpressions":
             [{"key":"topology.kubernetes.io/zone","operator":"In","values":["c"]}]}}]"#,
    );
    let mut company = bound("c-company", "1", 5);
    for pod in &mut company {
        pod.metadata.labels.insert("app".to_owned(), "company".to_owned());
    }
    let mut follower = bound("d-follower", "500m", 1);
    follower[0].spec.affinity.pod_affinity.required =
        read(r#"[{"topologyKey":"kubernetes.io/hostname","labelSelector":{"matchLabels":{"app":"company"}}}]"#);
    // By size these come first: one that can go elsewhere, the one with a wish, and then this one.
    let elsewhere = pods(Pod::named("elsewhere").cpu("4"));
    let plan = solve("9", [elsewhere, wisher, bound("b-plain", "2", 1), company, follower]);
    assert_eq!(on_node(&plan)[..2], ["a-wisher-0", "b-plain-0"]);
    assert_eq!(on_node(&plan).len(), 6, "{:?}", plan.existing());
}

#[test]
fn limits_are_left_to_pods_that_have_no_other_pool() {
    let price = |dollars| Price::per_hour(dollars).expect("not below zero");
    let capacity = [("cpu", Quantity::from_units(8)), ("memory", Quantity::from_bytes(32 << 30))];
    let machine = InstanceType::named("machine", capacity).offering("on-demand", "a", price(0.4)).offering(
        "spot",
        "a",
        price(0.9),
    );
    let mut light = NodePool::named("light");
    light.spec.template.spec.requirements =
        read(r#"[{"key":"karpenter.sh/capacity-type","operator":"In","values":["on-demand"]}]"#);
    let mut heavy = NodePool::named("heavy");
    heavy.spec.weight = Some(50);
    heavy.spec.limits = [("cpu", Quantity::from_units(8))].into_iter().collect();
    let anywhere = pods(Pod::named("w").cpu("1").node_selector(labels::CAPACITY_TYPE, "on-demand").replicas(7));
    let mut level = pods(Pod::named("s").label("app", "s").cpu("3").replicas(2));
    for pod in &mut level {
        pod.spec.topology_spread_constraints = read(
            r#"[{"maxSkew":1,"topologyKey":"karpenter.sh/capacity-type","whenUnsatisfiable":"DoNotSchedule",
                 "labelSelector":{"matchLabels":{"app":"s"}}}]"#,
        );
    }
    let snapshot = Snapshot::builder().pools([light, heavy]).pods([anywhere, level].concat()).build().expect("valid");
    let catalogs = Catalogs::shared(vec![machine], snapshot.pools()).expect("valid");
    let plan = Planner::default().plan(&snapshot, &catalogs);
    assert_eq!(plan.unplaced().values().map(ToString::to_string).collect::<Vec<_>>(), [""; 0]);
}

#[test]
fn limits_leave_no_more_pods_than_in_the_plain_order() {
    let eight = [("cpu", Quantity::from_units(8)), ("pods", Quantity::from_units(110))];
    let machine = InstanceType::named("eight", eight).offering("on-demand", "a", Price::per_hour(0.1).expect("valid"));
    let limited = NodePool::named("limited").limit("cpu", Quantity::from_units(16));
    let (small, large) = (Pod::named("small").cpu("1700m").replicas(2), Pod::named("large").cpu("4900m").replicas(3));
    let snapshot = Snapshot::builder().pool(limited).pods(small).pods(large).build().expect("valid");
    let catalogs = Catalogs::shared(vec![machine], snapshot.pools()).expect("valid");
    let plan = Planner::default().plan(&snapshot, &catalogs);
    // A large one on each of two nodes leaves room for a small one beside it, but two small ones leave none for a large one.
    assert_eq!((plan.claims().len(), plan.unplaced().len()), (2, 1));
}

/// How many of some pods a limit of 16 CPUs leaves, where there are types of so many CPUs.
fn left_within_limits(types: &[i64], waiting: &[(&str, &str, u32)]) -> usize {
    let machine = |&cpu: &i64| {
        let capacity = [("cpu", Quantity::from_units(cpu)), ("pods", Quantity::from_units(110))];
        let price = Price::per_hour(0.05 * cpu as f64).expect("valid");
        InstanceType::named(format!("of-{cpu}"), capacity).offering("on-demand", "a", price)
    };
    let limited = NodePool::named("limited").limit("cpu", Quantity::from_units(16));
    let of = |&(name, cpu, count): &(&str, &str, u32)| pods(Pod::named(name).cpu(cpu).replicas(count));
    let waiting: Vec<Pod> = waiting.iter().flat_map(of).collect();
    let snapshot = Snapshot::builder().pool(limited).pods(waiting).build().expect("valid");
    let catalogs = Catalogs::shared(types.iter().map(machine).collect(), snapshot.pools()).expect("valid");
    Planner::default().plan(&snapshot, &catalogs).unplaced().len()
}

#[test]
fn limits_leave_as_few_pods_as_can_be() {
    // One large node has room for the nine smallest. On nodes of four there are eight at most.
    let waiting = [("tiny", "500m", 4), ("middle", "2500m", 5), ("large", "3500m", 2)];
    assert_eq!(left_within_limits(&[4, 16], &waiting), 2);
    // Three middle ones on one node and one of each on the other are six; with the small one first there are five.
    let waiting = [("small", "1700m", 1), ("middle", "2500m", 4), ("large", "3500m", 2)];
    assert_eq!(left_within_limits(&[8], &waiting), 1);
}

/// What a limit of 16 CPUs leaves of a pod that only a large node takes, and of 16 small ones of no priority.
fn left_beside(priority: i32) -> Vec<String> {
    let machine = |name: &str, cpu: i64, dollars: f64| {
        let capacity = [("cpu", Quantity::from_units(cpu)), ("pods", Quantity::from_units(110))];
        InstanceType::named(name, capacity).offering("on-demand", "a", Price::per_hour(dollars).expect("valid"))
    };
    let mut database = pods(Pod::named("database").cpu("8"));
    database[0].spec.priority = Some(priority);
    let limited = NodePool::named("limited").limit("cpu", Quantity::from_units(16));
    let batch = pods(Pod::named("batch").cpu("1").replicas(16));
    let snapshot = Snapshot::builder().pool(limited).pods([database, batch].concat()).build().expect("valid");
    let types = vec![machine("four", 4, 0.2), machine("sixteen", 16, 1.0)];
    let catalogs = Catalogs::shared(types, snapshot.pools()).expect("valid");
    let plan = Planner::default().plan(&snapshot, &catalogs);
    plan.unplaced().keys().map(|pod| pod.name.clone()).collect()
}

#[test]
fn limits_leave_many_pods_rather_than_one_of_a_higher_priority() {
    assert_eq!(left_beside(0), ["database"], "as few as can be of equal priority");
    assert_eq!(left_beside(-1), ["database"]);
    let left = left_beside(1000);
    assert!(left.len() == 8 && left.iter().all(|name| name.starts_with("batch")), "{left:?}");
}

#[test]
fn of_equal_pods_limits_leave_those_of_the_lowest_priority() {
    let machine = InstanceType::named("four", [("cpu", Quantity::from_units(4))]);
    let machine = machine.offering("on-demand", "a", Price::per_hour(0.2).expect("valid"));
    let of_priority = |name: &str, priority: i32| {
        let mut pods = pods(Pod::named(name).cpu("1").replicas(4));
        for pod in &mut pods {
            pod.spec.priority = Some(priority);
        }
        pods
    };
    let limited = NodePool::named("limited").limit("cpu", Quantity::from_units(8));
    let all = [of_priority("a", -5), of_priority("b", 10), of_priority("c", 3)].concat();
    let snapshot = Snapshot::builder().pool(limited).pods(all).build().expect("valid");
    let catalogs = Catalogs::shared(vec![machine], snapshot.pools()).expect("valid");
    let plan = Planner::default().plan(&snapshot, &catalogs);
    let left: Vec<&str> = plan.unplaced().keys().map(|pod| pod.name.as_str()).collect();
    assert_eq!(left, ["a-0", "a-1", "a-2", "a-3"]);
}

/// One of the large pods must go to the smaller node, or the others do not all fit beside them.
#[test]
fn large_pods_leave_the_larger_node_to_others() {
    let node = |name: &str, cpu: &str, memory: &str| -> Node {
        let room = format!(r#"{{"cpu":"{cpu}","memory":"{memory}","pods":"99"}}"#);
        read(&format!(r#"{{"metadata":{{"name":"{name}"}},"status":{{"allocatable":{room}}}}}"#))
    };
    let of =
        |name: &str, cpu: &str, memory: &str, count| pods(Pod::named(name).cpu(cpu).memory(memory).replicas(count));
    for (large, small) in [("a", "b"), ("b", "a")] {
        let nodes = [node(small, "3982m", "14Gi"), node(large, "15900m", "62Gi")];
        let waiting = [of("l", "3942m", "1589Mi", 4), of("m", "250m", "4Gi", 3), of("s", "500m", "1Gi", 2)];
        let plan = solve_with(nodes, waiting);
        assert!(plan.claims().is_empty() && plan.unplaced().is_empty(), "{:?} {:?}", plan.existing(), plan.claims());
    }
}
