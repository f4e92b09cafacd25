//! Machines that are paid for already, and what becomes of pods that could use them.

use karpenter_core::{
    Catalogs, InstanceType, Offering, Plan, Planner, PlannerOptions, Price, Quantity, Requirement, Snapshot,
    SnapshotBuilder,
    api::{NodePool, NodeSelectorRequirement, Operator, Pod, PodBuilder, Workload},
    labels,
    schedule::ReservationPolicy,
};

use super::domains::away_from;

const RESERVATION: &str = "example.com/reservation-id";

fn dollars(dollars: f64) -> Price {
    Price::per_hour(dollars).expect("not below zero")
}

/// A machine of so many CPUs at 10 cents a CPU.
fn machine(name: &str, cpu: i64) -> InstanceType {
    let capacity = [("cpu", Quantity::from_units(cpu)), ("memory", Quantity::from_bytes(cpu << 32))];
    InstanceType::named(name, capacity).offering("on-demand", "a", dollars(cpu as f64 / 10.0))
}

/// The same, of which so many can be had from a reservation.
fn reserved(name: &str, cpu: i64, reservation: &str, count: u32) -> InstanceType {
    let mut out = machine(name, cpu);
    let mut offering = Offering::new("reserved", "a", Price::ZERO);
    offering.requirements.add(RESERVATION, Requirement::one_of([reservation]));
    offering.reservation_capacity = Some(count);
    out.offerings.push(offering);
    out
}

fn pool(name: &str, weight: u32) -> NodePool {
    let mut pool = NodePool::named(name);
    pool.spec.weight = Some(weight);
    pool
}

/// A pool all of whose nodes are paid for by the hour.
fn on_demand(name: &str, weight: u32) -> NodePool {
    let capacity_type = NodeSelectorRequirement::new(labels::CAPACITY_TYPE, Operator::In, ["on-demand"]);
    pool(name, weight).require(capacity_type)
}

/// A plan in which pods wait for reservations.
fn waiting(builder: SnapshotBuilder, types: &[InstanceType]) -> Plan {
    let mut options = PlannerOptions::default();
    options.reservations = ReservationPolicy::Strict;
    let snapshot = builder.build().expect("valid");
    let catalogs = Catalogs::shared(types.to_vec(), snapshot.pools()).expect("valid");
    Planner::new(options).plan(&snapshot, &catalogs)
}

/// The pool, the cheapest type and the price of each claim.
fn outline(plan: &Plan) -> Vec<(String, String, Price)> {
    let line = |c: &karpenter_core::PlannedClaim| (c.node_pool.clone(), c.instance_types[0].clone(), c.cheapest_price);
    plan.claims().iter().map(line).collect()
}

fn bought(pool: &str, name: &str, price: Price) -> (String, String, Price) {
    (pool.to_owned(), name.to_owned(), price)
}

#[test]
fn a_reservation_is_used_as_far_as_it_goes() {
    let snapshot = Snapshot::builder().pool(pool("general", 1)).pods(Pod::named("web").cpu("2").replicas(3));
    let snapshot = snapshot.build().expect("valid");
    let catalogs = Catalogs::shared(vec![reserved("small", 2, "r-1", 2)], snapshot.pools()).expect("valid");
    let plan = Planner::default().plan(&snapshot, &catalogs);
    let free = || bought("general", "small", Price::ZERO);
    assert_eq!(outline(&plan), [free(), free(), bought("general", "small", dollars(0.2))]);
    let of = |i: usize| plan.claims()[i].requirements.to_string();
    assert!(of(0).contains("example.com/reservation-id In [r-1]") && of(0).contains("capacity-type In [reserved]"));
    assert!(of(2).contains("example.com/reservation-id DoesNotExist"), "{}", of(2));
}

#[test]
fn those_that_nothing_else_takes_come_first_on_a_reserved_node() {
    let apart = Pod::named("apart").label("app", "apart").cpu("3").replicas(9);
    let mut apart = Workload::from(apart).into_pods().expect("valid");
    for pod in &mut apart {
        let spread = r#"[{"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": "apart"}}}]"#;
        pod.spec.topology_spread_constraints = serde_json::from_str(spread).expect(spread);
    }
    let bound = Pod::named("bound").node_selector(labels::CAPACITY_TYPE, "reserved").cpu("2").replicas(2);
    let snapshot = Snapshot::builder().pool(pool("general", 1)).pods(apart).pods(bound);
    let snapshot = snapshot.build().expect("valid");
    let catalogs = Catalogs::shared(vec![reserved("small", 4, "r-1", 1)], snapshot.pools()).expect("valid");
    let plan = Planner::default().plan(&snapshot, &catalogs);
    assert!(plan.unplaced().is_empty(), "{:?}", plan.unplaced());
    assert_eq!(outline(&plan)[0], bought("general", "small", Price::ZERO));
    assert_eq!((plan.claims().len(), plan.claims()[0].pods.len()), (10, 2));
}

#[test]
fn pods_that_may_use_a_reservation_wait_for_it() {
    let cluster = || Snapshot::builder().pool(pool("general", 1)).pods(Pod::named("web").cpu("2").replicas(3));
    let plan = waiting(cluster(), &[reserved("small", 2, "r-1", 2)]);
    assert_eq!((plan.claims().len(), plan.unplaced().len()), (2, 1));
    assert_eq!(waiting(cluster(), &[reserved("small", 2, "r-1", 0)]).claims().len(), 3);
}

#[test]
fn pods_wait_for_the_reservation_of_the_heaviest_pool() {
    let cluster = Snapshot::builder().pool(pool("heavy", 10)).pool(pool("light", 1));
    let plan = waiting(cluster.pods(Pod::named("web").cpu("2").replicas(3)), &[reserved("small", 2, "r-1", 2)]);
    assert!(plan.claims().iter().all(|claim| claim.node_pool == "heavy"), "{:?}", outline(&plan));
    assert_eq!((plan.claims().len(), plan.unplaced().len()), (2, 1));

    // Nothing is to be had there that is not lighter than the pool that takes them anyway.
    let cluster = Snapshot::builder().pool(on_demand("heavy", 10)).pool(pool("light", 1));
    let plan = waiting(cluster.pods(Pod::named("web").cpu("2")), &[reserved("small", 2, "r-1", 2)]);
    assert_eq!(outline(&plan), [bought("heavy", "small", dollars(0.2))]);
}

#[test]
fn nobody_waits_for_a_reservation_that_limits_leave_no_room_for() {
    let types = [reserved("large", 16, "r-1", 1), machine("small", 4)];
    let web = || Pod::named("web").cpu("2");
    let alone = pool("heavy", 10).limit("cpu", Quantity::from_units(8));
    let plan = waiting(Snapshot::builder().pool(alone).pods(web()), &types);
    assert_eq!(outline(&plan), [bought("heavy", "small", dollars(0.4))]);

    let used_up = pool("heavy", 10).limit("cpu", Quantity::from_units(1));
    let plan = waiting(Snapshot::builder().pool(used_up).pool(on_demand("light", 1)).pods(web()), &types);
    assert_eq!(outline(&plan), [bought("light", "small", dollars(0.4))]);
}

/// A pool whose claims are to name at least two types.
fn with_two_types(pool: NodePool) -> NodePool {
    let mut types = NodeSelectorRequirement::new(labels::INSTANCE_TYPE, Operator::Exists, Vec::<String>::new());
    types.min_values = Some(2);
    pool.require(types)
}

#[test]
fn nobody_waits_for_a_reservation_of_too_few_types() {
    let types = [reserved("small", 4, "r-1", 1), machine("medium", 8)];
    let of_reservations = NodeSelectorRequirement::new(labels::CAPACITY_TYPE, Operator::In, [labels::RESERVED]);
    let bound = with_two_types(pool("bound", 2).require(of_reservations));
    let cluster = Snapshot::builder().pool(bound).pool(on_demand("p", 1)).pods(Pod::named("web").cpu("2"));
    // The pool for reservations can name no second type.
    assert_eq!(outline(&waiting(cluster, &types)), [bought("p", "small", dollars(0.4))]);
}

#[test]
fn types_without_a_reservation_count_for_min_values() {
    let types = [reserved("small", 4, "r-1", 1), machine("tiny", 1), machine("medium", 8), machine("large", 16)];
    let cluster = Snapshot::builder().pool(with_two_types(pool("p", 1)));
    let snapshot = cluster.pods(Pod::named("web").cpu("2").host_port(80).replicas(2)).build().expect("valid");
    let catalogs = Catalogs::shared(types.to_vec(), snapshot.pools()).expect("valid");
    let plan = Planner::default().plan(&snapshot, &catalogs);
    assert_eq!(outline(&plan), [bought("p", "small", Price::ZERO), bought("p", "small", dollars(0.4))]);
    // The pod does not fit on the tiny one, and more than two need not be named.
    assert_eq!(*plan.claims()[0].instance_types, ["small", "medium"]);
    assert_eq!(plan.claims()[0].requirements.get(RESERVATION).and_then(Requirement::value_count), Some(1));
    assert_eq!(*plan.claims()[1].instance_types, ["small", "medium", "large"]);
}

#[test]
fn a_reservation_is_left_if_its_node_keeps_dearer_pods_out_of_a_limit() {
    let of_type = |name: &str| NodeSelectorRequirement::new(labels::INSTANCE_TYPE, Operator::In, [name]);
    let capped = NodePool::named("capped").limit("cpu", Quantity::from_units(8));
    let cluster = Snapshot::builder().pool(capped).pool(NodePool::named("huge").require(of_type("huge")));
    // None of these comes near its like.
    let alone = |pod: PodBuilder, name: &str| {
        let mut pods = Workload::from(pod.label("app", name)).into_pods().expect("valid");
        for pod in &mut pods {
            pod.spec.affinity = serde_json::from_value(away_from(name, labels::HOSTNAME)).expect("an affinity");
        }
        pods
    };
    let web = alone(Pod::named("web").cpu("1").memory("5Gi").replicas(2), "web");
    let snapshot = cluster.pods(web).pods(alone(Pod::named("job").cpu("500m"), "job")).build().expect("valid");
    let types = [reserved("small", 1, "r-1", 1), machine("medium", 4), machine("huge", 16)];
    let catalogs = Catalogs::shared(types.to_vec(), snapshot.pools()).expect("valid");
    let plan = Planner::default().plan(&snapshot, &catalogs);
    let medium = || bought("capped", "medium", dollars(0.4));
    assert_eq!(outline(&plan), [medium(), medium()]);
}
