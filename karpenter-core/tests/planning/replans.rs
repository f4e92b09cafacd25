//! Planning again as pods come.

use karpenter_core::{
    Catalogs, InstanceType, Plan, Planner, Price, Quantity, Snapshot, SnapshotError,
    api::{
        Node, NodePool, NodeSelectorRequirement, ObjectKey, Operator, Pod, PodBuilder, Taint, TaintEffect, Workload,
    },
    labels,
    schedule::{Answer, Division, Replanner, StopFlag},
};
use serde_json::json;

const ZONES: [&str; 2] = ["zone-a", "zone-b"];

fn read<T: serde::de::DeserializeOwned>(json: serde_json::Value) -> T {
    serde_json::from_value(json).expect("a Kubernetes object")
}

fn catalogs(snapshot: &Snapshot) -> Catalogs {
    let machine = |name: &str, cores: i64, price: f64| {
        let capacity = [("cpu", Quantity::from_units(cores)), ("memory", Quantity::from_bytes(cores << 32))];
        let price = Price::per_hour(price).expect("a price");
        let blank = InstanceType::named(name, capacity);
        ZONES.iter().fold(blank, |machine, zone| machine.offering("on-demand", zone, price))
    };
    Catalogs::shared(vec![machine("small", 2, 0.1), machine("large", 8, 0.4)], snapshot.pools()).expect("a catalog")
}

fn snapshot(pods: PodBuilder) -> Snapshot {
    Snapshot::builder().pool(NodePool::named("general")).pods(pods).build().expect("valid")
}

/// Of eight pods and more those are planned by themselves that are beyond a multiple of four or more.
fn dividing(planner: Planner) -> Replanner {
    let mut division = Division::default();
    (division.min_pods, division.newest_share_log2) = (8, 1);
    Replanner::new(planner).dividing(division)
}

fn replanner() -> Replanner {
    dividing(Planner::default())
}

fn web() -> PodBuilder {
    Pod::named("web").cpu("1").label("app", "web")
}

fn late() -> PodBuilder {
    Pod::named("zz-late").cpu("1").label("app", "late")
}

/// The same pods with a required term about pods of an app in the same zone.
fn with_term(kind: &str, app: &str, pods: PodBuilder) -> Vec<Pod> {
    let term = json!({"topologyKey": labels::ZONE, "labelSelector": {"matchLabels": {"app": app}}});
    let affinity = json!({kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}});
    let mut pods = Workload::from(pods).into_pods().expect("valid");
    for pod in &mut pods {
        pod.spec.affinity = serde_json::from_value(affinity.clone()).expect("an affinity");
    }
    pods
}

#[test]
fn what_was_planned_stays_when_a_pod_comes() {
    let before = snapshot(web().replicas(8));
    let (catalogs, mut replanner) = (catalogs(&before), replanner());
    let first = replanner.plan(&before, &catalogs).clone();
    let after = before.with_pending(late()).expect("a new pod");
    let second = replanner.plan(&after, &catalogs).clone();
    assert_eq!(second.claims().split_last().expect("claims").1, first.claims());
    assert!(matches!(second.why("zz-late"), Answer::NewClaim(claim) if claim.pods.len() == 1));
    assert_eq!(replanner.plan(&before, &catalogs), &first, "the pod is gone again");
}

#[test]
fn a_new_pod_takes_room_that_there_is() {
    let allocatable = json!({"cpu": "9", "memory": "64Gi", "pods": "110"});
    let node = json!({"metadata": {"name": "n"}, "status": {"allocatable": allocatable}});
    let node: Node = serde_json::from_value(node).expect("a node");
    let pool = NodePool::named("general");
    let before = Snapshot::builder().pool(pool).node(node).pods(web().replicas(8)).build().expect("valid");
    let (catalogs, mut replanner) = (catalogs(&before), replanner());
    let eight = replanner.plan(&before, &catalogs).existing().clone();
    let after = before.with_pending(late()).expect("a new pod");
    let nine = replanner.plan(&after, &catalogs).existing().clone();
    assert_eq!((eight["n"].len(), nine["n"].len()), (8, 9));
    let full = after.with_pending(Pod::named("zzz").cpu("1")).expect("a new pod");
    let plan = replanner.plan(&full, &catalogs);
    assert_eq!((plan.existing(), plan.claims().len()), (&nine, 1));
    assert_eq!(replanner.plan(&before, &catalogs).existing(), &eight, "the pods are gone again");
}

#[test]
fn a_limit_holds_for_both_parts_together() {
    let pool = NodePool::named("general").limit("cpu", Quantity::from_units(9));
    let before = Snapshot::builder().pool(pool).pods(web().replicas(8)).build().expect("valid");
    let (catalogs, mut replanner) = (catalogs(&before), replanner());
    assert!(replanner.plan(&before, &catalogs).unplaced().is_empty());
    let after = before.with_pending(late()).expect("a new pod");
    assert_eq!(replanner.plan(&after, &catalogs).unplaced().len(), 1);
}

#[test]
fn pods_that_wait_for_a_new_pod_go_with_it() {
    let followers = with_term("podAffinity", "late", Pod::named("follower").cpu("1").replicas(8));
    let before = Snapshot::builder().pool(NodePool::named("general")).pods(followers).build().expect("valid");
    let (catalogs, mut replanner) = (catalogs(&before), replanner());
    assert_eq!(replanner.plan(&before, &catalogs).unplaced().len(), 8);
    let after = before.with_pending(late()).expect("a new pod");
    assert!(replanner.plan(&after, &catalogs).unplaced().is_empty());
}

#[test]
fn a_new_pod_keeps_out_of_the_zones_of_others() {
    let before = snapshot(web().replicas(8));
    let (catalogs, mut replanner) = (catalogs(&before), replanner());
    let free = |plan: &Plan| {
        let zones = plan.claims().iter().map(|claim| claim.requirements.get(labels::ZONE));
        zones.filter(|zone| zone.is_none_or(|zone| ZONES.iter().all(|name| zone.admits(Some(name))))).count()
    };
    assert!(free(replanner.plan(&before, &catalogs)) > 0, "most nodes may be anywhere");
    let after = before.with_pending(with_term("podAntiAffinity", "web", late())).expect("a new pod");
    let plan = replanner.plan(&after, &catalogs);
    assert_eq!((plan.unplaced().len(), free(plan)), (0, 0), "there is a zone for each");
}

#[test]
fn a_new_pod_opens_no_zone_whose_absence_gives_others_a_place() {
    let in_zone = |name: &str, zone: &str| {
        let zone = NodeSelectorRequirement::new(labels::ZONE, Operator::In, [zone]);
        NodePool::named(name).require(zone)
    };
    let mut special = in_zone("special", ZONES[1]);
    special.spec.template.spec.taints = vec![Taint::new("special", "", TaintEffect::NoSchedule)];
    let anywhere = |pods: PodBuilder| {
        let mut pods = Workload::from(pods).into_pods().expect("valid");
        for pod in &mut pods {
            pod.spec.tolerations = read(json!([{"operator": "Exists"}]));
        }
        pods
    };
    let spread = json!([{"maxSkew": 1, "topologyKey": labels::ZONE, "whenUnsatisfiable": "DoNotSchedule",
                         "labelSelector": {"matchLabels": {"app": "web"}}}]);
    let mut web = Workload::from(web().replicas(4)).into_pods().expect("valid");
    for pod in &mut web {
        pod.spec.topology_spread_constraints = read(spread.clone());
    }
    let others = anywhere(Pod::named("other").cpu("1").replicas(4));
    let builder = Snapshot::builder().pool(in_zone("general", ZONES[0])).pool(special);
    let before = builder.pods(web).pods(others).build().expect("valid");
    let capacity = [("cpu", Quantity::from_units(8)), ("memory", Quantity::from_bytes(32 << 30))];
    let price = |dollars| Price::per_hour(dollars).expect("a price");
    let machine = InstanceType::named("large", capacity).offering("on-demand", ZONES[0], price(0.4));
    let machine = machine.offering("on-demand", ZONES[1], price(0.3));
    let catalogs = Catalogs::shared(vec![machine], before.pools()).expect("a catalog");
    let mut replanner = replanner();
    for snapshot in [before.clone(), before.with_pending(anywhere(late())).expect("a new pod")] {
        let plan = replanner.plan(&snapshot, &catalogs);
        assert!(plan.unplaced().is_empty(), "{:?}", plan.unplaced());
        assert!(plan.claims().iter().all(|claim| claim.node_pool == "general"), "{:?}", plan.claims());
    }
}

#[test]
fn other_prices_are_another_plan() {
    let before = snapshot(web().replicas(9));
    let (dear, mut replanner) = (catalogs(&before), replanner());
    let first = replanner.plan(&before, &dear).clone();
    let large = dear.get("general").expect("a catalog").get("large").expect("a type");
    let keys: Vec<_> = large.offerings.iter().map(|offering| offering.key("large")).collect();
    let fewer = dear.without(&keys);
    let second = replanner.plan(&before, &fewer).clone();
    assert_ne!(first, second);
    assert_eq!(&second, self::replanner().plan(&before, &fewer));
}

#[test]
fn a_plan_that_was_cut_short_is_not_remembered() {
    let before = snapshot(web().replicas(9));
    let (catalogs, stop) = (catalogs(&before), StopFlag::default());
    let mut replanner = dividing(Planner::default().stopped_by(&stop));
    stop.stop();
    let plan = replanner.plan(&before, &catalogs);
    assert!(!plan.is_complete() && !plan.unplaced().is_empty());
}

#[test]
fn further_pods_must_want_a_place() {
    let before = snapshot(web().replicas(2));
    let error = |pods: PodBuilder| before.with_pending(pods).map(|_| ()).expect_err("not a pod that may come");
    assert_eq!(
        error(web().replicas(1)).to_string(),
        "Pod default/web-0: metadata.name: there is another Pod of this name"
    );
    assert_eq!(error(Pod::named("")), SnapshotError::Unnamed { kind: "Pod" });
    assert!(matches!(error(Pod::named("bad").cpu("x")), SnapshotError::Invalid(_)));
    let mut bound = Workload::from(late()).into_pods().expect("valid");
    bound[0].spec.node_name = "n".to_owned();
    let error = before.with_pending(bound).map(|_| ()).expect_err("a pod that has a node");
    assert_eq!(error, SnapshotError::NotPending { pod: ObjectKey::new("default", "zz-late") });
}
