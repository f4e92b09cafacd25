//! Why pods have no place, when different things are in the way of different machines.

use karpenter_core::{
    Catalogs, InstanceType, Offering, Plan, Planner, PlannerOptions, Price, Quantity, Reason, Requirement,
    ResourceName, Snapshot, SnapshotBuilder,
    api::{
        CsiNode, DaemonSet, Node, NodePool, NodeSelectorRequirement, Operator, PersistentVolume, PersistentVolumeClaim,
        Pod, PodBuilder, Workload,
    },
    labels,
    reason::{Obstacle, Shortage},
    schedule::ReservationPolicy,
};

/// A machine of so many CPUs and GiB, on demand in one zone.
fn machine(name: &str, zone: &str, cpu: i64, gib: i64) -> InstanceType {
    let capacity = [("cpu", Quantity::from_units(cpu)), ("memory", Quantity::from_bytes(gib << 30))];
    InstanceType::named(name, capacity).offering("on-demand", zone, Price::per_hour(cpu as f64 / 10.0).expect("valid"))
}

fn cluster(pod: PodBuilder) -> SnapshotBuilder {
    Snapshot::builder().pool(NodePool::named("general")).pods(pod)
}

fn solve(builder: SnapshotBuilder, types: Vec<InstanceType>) -> Plan {
    let snapshot = builder.build().expect("valid");
    let catalogs = Catalogs::shared(types, snapshot.pools()).expect("valid");
    Planner::default().plan(&snapshot, &catalogs)
}

fn why(plan: &Plan) -> String {
    plan.unplaced().values().next().expect("one pod has no place").to_string()
}

fn read<T: serde::de::DeserializeOwned>(json: &str) -> T {
    serde_json::from_str(json).expect("valid JSON")
}

/// A node with so many CPUs and further fields of its specification.
fn node(name: &str, cpu: &str, spec: &str) -> Node {
    read(&format!(
        r#"{{"metadata":{{"name":"{name}"}},"spec":{{{spec}}},"status":{{"allocatable":{{"cpu":"{cpu}","memory":"64Gi","pods":"9"}}}}}}"#
    ))
}

#[test]
fn types_are_counted_by_what_shuts_them_out() {
    let types = vec![machine("small", "b", 2, 8), machine("medium", "b", 8, 32), machine("large", "a", 32, 128)];
    let plan = solve(cluster(Pod::named("p").cpu("16").node_selector(labels::ZONE, "b")), types);
    assert_eq!(
        why(&plan),
        "pool general: 2 of 3 types: cpu short by 8: 16 requested, 8 at most beside the daemons; \
         1 of 3 types: label topology.kubernetes.io/zone must be In [b], but nodes have a"
    );
}

#[test]
fn each_type_is_counted_where_its_best_offering_fails() {
    let both = machine("both", "a", 4, 16).offering("on-demand", "b", Price::ZERO);
    let plan = solve(cluster(Pod::named("p").cpu("8").node_selector(labels::ZONE, "b")), vec![both]);
    assert_eq!(why(&plan), "pool general: cpu short by 4: 8 requested, 4 at most beside the daemons");
}

#[test]
fn shortages_are_counted_by_resource() {
    let types = vec![machine("lean", "a", 16, 16), machine("leaner", "a", 12, 12), machine("fat", "a", 4, 63)];
    let plan = solve(cluster(Pod::named("p").cpu("8").memory("64Gi")), types);
    let Some(Reason::NoPlace { pools, .. }) = plan.unplaced().values().next() else { panic!("{plan:?}") };
    let [shut_out] = &pools[0].shut_out[..] else { panic!("{pools:?}") };
    let Obstacle::TooSmall { shortages, nearest_type } = &shut_out.obstacle else { panic!("{pools:?}") };
    let memory = |shortage: &Shortage| shortage.resource == ResourceName::Memory;
    assert_eq!((shut_out.type_count, nearest_type.as_str()), (3, "fat"));
    assert!(memory(&shortages[0]) && shortages[0].type_count == 3 && shortages[1].type_count == 1);
    assert_eq!(shortages[0].missing(), Quantity::from_bytes(1 << 30));
    assert_eq!(
        why(&plan),
        "pool general: memory short by 1Gi or more on 3 types (64Gi requested, 63Gi at most there), \
         cpu short by 4 or more on 1 type (8 requested, 4 at most there); the nearest is fat"
    );
}

#[test]
fn limits_and_sizes_are_told_apart() {
    let pool = NodePool::named("general").limit("cpu", Quantity::from_units(10));
    let types = vec![machine("small", "a", 2, 8), machine("large", "a", 32, 128)];
    let plan = solve(Snapshot::builder().pool(pool).pods(Pod::named("p").cpu("4")), types);
    assert_eq!(
        why(&plan),
        "pool general: 1 of 2 types: limit of cpu: 0 of 10 used, the rest is too small for any type that fits; \
         1 of 2 types: cpu short by 2: 4 requested, 2 at most beside the daemons"
    );
}

#[test]
fn a_machine_that_daemons_overfill_is_no_use() {
    let daemons: DaemonSet = read(
        r#"{"metadata":{"name":"d"},"spec":{"template":{"spec":{"containers":[{"resources":{"requests":{"cpu":"3"}}}]}}}}"#,
    );
    let types = vec![machine("small", "a", 2, 8), machine("medium", "a", 4, 16)];
    let plan = solve(cluster(Pod::named("p").cpu("2")).daemonset(daemons), types);
    assert_eq!(
        why(&plan),
        "pool general: 1 of 2 types: cpu short by 1: 2 requested, 1 at most beside the daemons; \
         1 of 2 types: the system and the daemons alone need more than there is"
    );
}

/// A machine that can also be had from a reservation of so many.
fn reserved(count: u32, zone: &str) -> InstanceType {
    let mut reserved = machine("small", zone, 2, 8);
    let mut offering = Offering::new("reserved", "a", Price::ZERO);
    offering.requirements.add("example.com/reservation-id", Requirement::one_of(["r-1"]));
    offering.reservation_capacity = Some(count);
    reserved.offerings.push(offering);
    reserved
}

#[test]
fn a_pod_says_which_reservation_it_waits_for() {
    let mut options = PlannerOptions::default();
    options.reservations = ReservationPolicy::Strict;
    let snapshot = cluster(Pod::named("p").cpu("2").replicas(2)).build().expect("valid");
    let catalogs = Catalogs::shared(vec![reserved(1, "a")], snapshot.pools()).expect("valid");
    let plan = Planner::new(options).plan(&snapshot, &catalogs);
    assert_eq!(plan.claims().len(), 1);
    assert_eq!(why(&plan), "pool general: it waits for reservation r-1, which it may use");
}

#[test]
fn a_pod_says_which_reservation_is_used_up() {
    let pods = Pod::named("p").cpu("2").node_selector(labels::ZONE, "a").replicas(2);
    let plan = solve(cluster(pods), vec![reserved(1, "b")]);
    assert_eq!(plan.claims().len(), 1);
    assert_eq!(why(&plan), "pool general: nothing is left of reservation r-1");
}

#[test]
fn nodes_are_counted_by_what_is_in_the_way() {
    let tainted = r#""taints":[{"key":"dedicated","value":"db","effect":"NoSchedule"}]"#;
    let builder = cluster(Pod::named("p").cpu("4"))
        .node(node("a", "3500m", ""))
        .node(node("b", "1", ""))
        .node(node("c", "64", tainted))
        .node(node("d", "1", tainted));
    let plan = solve(builder.node(node("e", "2", "")), vec![machine("small", "a", 2, 8)]);
    assert_eq!(
        why(&plan),
        "pool general: cpu short by 2: 4 requested, 2 at most beside the daemons; \
         none of the 5 nodes can take it: 3 short of cpu (by at least 500m), 2 with taint dedicated=db:NoSchedule"
    );
}

#[test]
fn ports_and_neighbours_of_nodes_are_named() {
    let running = |name: &str, node: &str, more: &str| -> Pod {
        read(&format!(
            r#"{{"metadata":{{"name":"{name}"}},"spec":{{"nodeName":"{node}","containers":[{{"ports":[{{"hostPort":80}}]}}]{more}}}}}"#
        ))
    };
    let alone = r#","affinity":{"podAntiAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":[{"topologyKey":"kubernetes.io/hostname","labelSelector":{"matchLabels":{"app":"web"}}}]}}"#;
    let run = |pod, node_name: &str, more| {
        let builder = cluster(pod).node(node(node_name, "64", "")).pods(running("r", node_name, more));
        why(&solve(builder, vec![machine("small", "a", 2, 8)]))
    };
    let taken = run(Pod::named("p").cpu("4").host_port(80), "n", "");
    assert!(taken.ends_with("; the one node there is cannot take it: with its host port taken"), "{taken}");
    let barred = run(Pod::named("p").cpu("4").label("app", "web"), "n", alone);
    assert!(barred.ends_with("; the one node there is cannot take it: barred by rules about neighbours"), "{barred}");
    let label = run(Pod::named("p").cpu("4").node_selector("team", "a"), "n", "");
    assert!(label.ends_with("; the one node there is cannot take it: without label team In [a]"), "{label}");
}

#[test]
fn a_claim_for_one_pod_at_a_time_is_not_for_a_second_one() {
    let pod = |name: &str, more: &str| -> Pod {
        read(&format!(
            r#"{{"metadata":{{"name":"{name}"{more}}},"spec":{{"nodeName":"{}","volumes":[{{"name":"v","persistentVolumeClaim":{{"claimName":"data"}}}}],"containers":[{{"resources":{{"requests":{{"cpu":"1"}}}}}}]}},"status":{{"conditions":[{{"type":"PodScheduled","status":"False","reason":"Unschedulable"}}]}}}}"#,
            if name == "bound" { "n" } else { "" }
        ))
    };
    let solve_with = |mode: &str, pods: Vec<Pod>| {
        let claim: PersistentVolumeClaim = read(&format!(
            r#"{{"metadata":{{"name":"data","annotations":{{"pv.kubernetes.io/bind-completed":"yes"}}}},"spec":{{"volumeName":"v","accessModes":["{mode}"]}}}}"#
        ));
        let volume: PersistentVolume =
            read(r#"{"metadata":{"name":"v"},"spec":{"csi":{"driver":"d","volumeHandle":"h"}}}"#);
        let builder = Snapshot::builder().pool(NodePool::named("general")).nodes([node("n", "1", "")]).pods(pods);
        solve(builder.volume_claims([claim]).volumes([volume]), vec![machine("machine", "a", 4, 16)])
    };
    let going = r#","deletionTimestamp":"2026-01-01T00:00:00Z""#;

    let plan = solve_with("ReadWriteOncePod", vec![pod("bound", ""), pod("next", "")]);
    assert_eq!(why(&plan), "volume claim default/data is for one pod at a time, and pod default/bound has it");
    assert!(plan.claims().is_empty());
    let plan = solve_with("ReadWriteOncePod", vec![pod("b", ""), pod("a", "")]);
    assert_eq!(why(&plan), "volume claim default/data is for one pod at a time, and pod default/a has it");
    // A pod that ends makes room for the next.
    assert!(solve_with("ReadWriteOncePod", vec![pod("bound", going), pod("next", "")]).unplaced().is_empty());
    assert!(solve_with("ReadWriteMany", vec![pod("bound", ""), pod("next", "")]).unplaced().is_empty());
}

#[test]
fn a_node_that_attaches_no_more_volumes_is_named() {
    let pod: Pod = read(
        r#"{"metadata":{"name":"p"},"spec":{"volumes":[{"name":"v","persistentVolumeClaim":{"claimName":"data"}}],"containers":[{"resources":{"requests":{"cpu":"4"}}}]},"status":{"conditions":[{"type":"PodScheduled","status":"False","reason":"Unschedulable"}]}}"#,
    );
    let claim: PersistentVolumeClaim = read(
        r#"{"metadata":{"name":"data","annotations":{"pv.kubernetes.io/bind-completed":"yes"}},"spec":{"volumeName":"v"},"status":{"phase":"Bound"}}"#,
    );
    let volume: PersistentVolume = read(
        r#"{"metadata":{"name":"v"},"spec":{"csi":{"driver":"d","volumeHandle":"h"},"claimRef":{"namespace":"default","name":"data"}}}"#,
    );
    let drivers: CsiNode =
        read(r#"{"metadata":{"name":"n"},"spec":{"drivers":[{"name":"d","nodeID":"n","allocatable":{"count":0}}]}}"#);
    let builder = Snapshot::builder().pool(NodePool::named("general")).pods(pod).node(node("n", "64", ""));
    let builder = builder.volume_claims([claim]).volumes([volume]).csi_nodes([drivers]);
    let reason = why(&solve(builder, vec![machine("small", "a", 2, 8)]));
    assert!(reason.ends_with("; the one node there is cannot take it: without room for its volumes"), "{reason}");
}

#[test]
fn of_several_alternatives_the_one_that_most_types_meet_counts() {
    let types = vec![machine("near", "a", 2, 8), machine("nearer", "a", 4, 16), machine("far", "b", 8, 32)];
    let pod = Pod::named("p").cpu("6").node_label_in("team", ["x"]).node_label_in(labels::ZONE, ["a"]);
    assert_eq!(
        why(&solve(cluster(pod), types)),
        "pool general: 2 of 3 types: cpu short by 2: 6 requested, 4 at most beside the daemons; \
         1 of 3 types: label topology.kubernetes.io/zone must be In [a], but nodes have b"
    );
}

#[test]
fn it_is_said_for_whom_a_label_is_asked() {
    let volume: PersistentVolume = read(
        r#"{"metadata":{"name":"v"},"spec":{"csi":{"driver":"d","volumeHandle":"h"},"claimRef":{"namespace":"default","name":"data"},"nodeAffinity":{"required":{"nodeSelectorTerms":[{"matchExpressions":[{"key":"topology.kubernetes.io/zone","operator":"In","values":["b"]}]}]}}}}"#,
    );
    let claim: PersistentVolumeClaim = read(
        r#"{"metadata":{"name":"data","annotations":{"pv.kubernetes.io/bind-completed":"yes"}},"spec":{"volumeName":"v"},"status":{"phase":"Bound"}}"#,
    );
    let reason = |selector: &str| {
        let pod: Pod = read(&format!(
            r#"{{"metadata":{{"name":"p"}},"spec":{{"nodeSelector":{{{selector}}},"volumes":[{{"name":"v","persistentVolumeClaim":{{"claimName":"data"}}}}],"containers":[{{"resources":{{"requests":{{"cpu":"1"}}}}}}]}},"status":{{"conditions":[{{"type":"PodScheduled","status":"False","reason":"Unschedulable"}}]}}}}"#
        ));
        let builder = Snapshot::builder().pool(NodePool::named("general")).pods(pod).node(node("n", "64", ""));
        why(&solve(builder.volume_claims([claim.clone()]).volumes([volume.clone()]), vec![machine("only", "a", 4, 16)]))
    };
    assert_eq!(
        reason(""),
        "pool general: label topology.kubernetes.io/zone must be In [b] for its volumes, but nodes have a; \
         the one node there is cannot take it: without label topology.kubernetes.io/zone In [b] for its volumes"
    );
    assert_eq!(
        reason(r#""topology.kubernetes.io/zone": "b""#),
        "pool general: label topology.kubernetes.io/zone must be In [b], but nodes have a; \
         the one node there is cannot take it: without label topology.kubernetes.io/zone In [b]"
    );
}

#[test]
fn only_a_label_that_the_nodes_have_may_be_the_one_that_was_meant() {
    let on_demand = NodeSelectorRequirement::new(labels::CAPACITY_TYPE, Operator::In, [labels::ON_DEMAND]);
    let reason = |key: &str| {
        let pod = Pod::named("p").cpu("1").node_label_in(key, ["x"]);
        let builder = Snapshot::builder().pool(NodePool::named("general").require(on_demand.clone())).pods(pod);
        why(&solve(builder, vec![reserved(1, "a")]))
    };
    for (key, hint) in [
        ("example.com/reservation-id", ""),
        ("other.com/reservation-id", ""),
        ("example.com/zone", " (they have topology.kubernetes.io/zone)"),
    ] {
        let expected = format!("pool general: label {key} must be In [x], but nodes do not have it{hint}");
        assert_eq!(reason(key), expected);
    }
}

#[test]
fn nobody_knows_the_name_of_a_new_node() {
    let why_not = |pods: Vec<Pod>| {
        let builder = Snapshot::builder().pool(NodePool::named("general")).pods(pods).nodes([node("n", "4", "")]);
        why(&solve(builder, vec![machine("large", "a", 8, 32)]))
    };
    let pods = |pod: PodBuilder| Workload::from(pod).into_pods().expect("valid");
    let by_label = pods(Pod::named("p").cpu("1").node_selector(labels::HOSTNAME, "gone"));
    let mut by_field = pods(Pod::named("p").cpu("1"));
    by_field[0].spec.affinity = read(
        r#"{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[
            {"matchFields":[{"key":"metadata.name","operator":"In","values":["gone"]}]}]}}}"#,
    );
    for (pods, name) in [(by_label, "label kubernetes.io/hostname"), (by_field, "metadata.name")] {
        let expected = format!(
            "pool general: {name} must be In [gone], but nobody knows the name of a new node; \
             the one node there is cannot take it: without {name} In [gone]"
        );
        assert_eq!(why_not(pods), expected);
    }
}
