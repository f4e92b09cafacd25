use std::{sync::Arc, time::Duration};

use karpenter_core::{
    Catalogs, Planner, Timestamp,
    api::{NodePool, ObjectKey, Pod, Taint, TaintEffect, Toleration},
    driver::{Action, Driver, Outcome},
    labels,
    provider::CreateError,
};

use super::{FakeCluster, Sync};
use crate::{FakeCloud, check, cloud::offerings_of, generated_catalog, generated_types};

/// Plans, checks the plan, and launches its claims.
fn round(cluster: &mut FakeCluster, cloud: &Arc<FakeCloud>) -> Vec<Outcome> {
    let snapshot = cluster.snapshot().expect("valid");
    let catalogs = Catalogs::shared(generated_types(), snapshot.pools()).expect("valid");
    let plan = Planner::default().plan(&snapshot, &catalogs);
    assert_eq!(check(&snapshot, &catalogs, &plan), []);
    let driver = Driver::new(cloud.clone());
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let mut outcomes = Vec::new();
    for launch in Driver::launches(&plan, &snapshot, |pool| cluster.identify(pool)) {
        cluster.launch(&launch);
        let outcome = runtime.block_on(driver.execute(Action::Launch(Box::new(launch.claim))));
        cluster.observe(&outcome);
        outcomes.push(outcome);
    }
    outcomes
}

fn cloud() -> Arc<FakeCloud> {
    Arc::new(FakeCloud::new(generated_catalog()).launch_delay(Duration::from_secs(30)))
}

fn later(cloud: &FakeCloud, seconds: u64) {
    cloud.set_now(cloud.now() + Duration::from_secs(seconds));
}

#[test]
fn pods_wait_for_their_nodes_and_are_not_planned_twice() {
    let cloud = cloud();
    let mut cluster = FakeCluster::new([NodePool::named("general")]);
    cluster.add_daemons(Pod::named("logs").cpu("100m")).expect("valid");
    cluster.add_pods(Pod::named("web").cpu("500m").memory("1Gi").replicas(9)).expect("valid");
    assert!(!round(&mut cluster, &cloud).is_empty());
    assert!(round(&mut cluster, &cloud).is_empty());
    assert_eq!(cluster.sync(&cloud), Sync::default());
    assert!(cluster.schedule().is_empty());

    later(&cloud, 30);
    assert_eq!(cluster.sync(&cloud).joined.len(), cluster.claims().len());
    assert_eq!(cluster.schedule().len(), 9);
    assert_eq!(cluster.unbound_count(), 0);
    let daemons = cluster.pods().values().filter(|pod| pod.is_daemon()).count();
    assert_eq!(daemons, cluster.nodes().len());
    assert!(cluster.claims().values().all(|claim| claim.status.is_true("Initialized")));
    assert!(round(&mut cluster, &cloud).is_empty());
}

#[test]
fn the_pods_of_a_node_that_goes_are_pending_again() {
    let cloud = cloud();
    let mut cluster = FakeCluster::new([NodePool::named("general")]);
    cluster.add_daemons(Pod::named("logs").cpu("100m")).expect("valid");
    cluster.add_pods(Pod::named("web").cpu("500m").replicas(2)).expect("valid");
    round(&mut cluster, &cloud);
    later(&cloud, 30);
    cluster.sync(&cloud);
    cluster.schedule();
    let ids: Vec<_> = cluster.claims().values().map(|c| c.status.provider_id.clone()).collect();
    let driver = Driver::new(cloud.clone());
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    for id in ids {
        let outcome =
            runtime.block_on(driver.execute(Action::Terminate(karpenter_core::provider::ProviderId::new(id))));
        cluster.observe(&outcome);
    }
    assert!(!cluster.sync(&cloud).left.is_empty());
    assert!(cluster.claims().is_empty() && cluster.nodes().is_empty());
    assert_eq!((cluster.unbound_count(), cluster.pods().len()), (2, 2));
    assert_eq!(cluster.snapshot().expect("valid").pending().len(), 2);
}

#[test]
fn a_refused_claim_frees_its_pods() {
    let cloud = cloud();
    let catalog = generated_catalog();
    for capacity_type in [labels::ON_DEMAND, labels::SPOT] {
        for offering in offerings_of(&catalog, capacity_type) {
            cloud.exhaust(offering);
        }
    }
    let mut cluster = FakeCluster::new([NodePool::named("general")]);
    cluster.add_pods(Pod::named("web").cpu("500m").replicas(2)).expect("valid");
    let outcomes = round(&mut cluster, &cloud);
    let is_refused = |outcome: &Outcome| matches!(outcome, Outcome::LaunchFailed { error: CreateError::InsufficientCapacity { offerings }, .. } if !offerings.is_empty());
    assert!(!outcomes.is_empty() && outcomes.iter().all(is_refused), "{outcomes:?}");
    assert!(cluster.claims().is_empty());
    assert_eq!(cluster.snapshot().expect("valid").pending().len(), 2);
}

#[test]
fn pods_are_bound_where_the_filters_let_them() {
    let cloud = cloud();
    let mut pool = NodePool::named("general");
    pool.spec.template.spec.taints.push(Taint::new("dedicated", "", TaintEffect::NoSchedule));
    pool.spec.template.spec.startup_taints.push(Taint::new("starting", "", TaintEffect::NoSchedule));
    let mut cluster = FakeCluster::new([pool]);
    let tolerant = || Pod::named("tolerant").cpu("500m").toleration(Toleration::of_key("dedicated"));
    cluster.add_pods(tolerant()).expect("valid");
    round(&mut cluster, &cloud);
    later(&cloud, 30);
    cluster.sync(&cloud);
    cluster.add_pods(Pod::named("other").cpu("1m")).expect("valid");
    cluster.add_pods(tolerant().namespace("big").cpu("500")).expect("valid");
    cluster.add_pods(tolerant().namespace("elsewhere").node_selector(labels::ZONE, "moon")).expect("valid");
    let bound: Vec<_> = cluster.schedule().into_iter().map(|binding| binding.pod.to_string()).collect();
    assert_eq!(bound, ["default/tolerant"]);
    assert!(cluster.remove_pod(&ObjectKey::new("default", "tolerant")).is_some());
    assert_eq!(cluster.unbound_count(), 3);
    assert_eq!(cloud.now(), Timestamp::from_millis(30_000));
}

#[test]
fn the_nodes_of_another_cloud_join_and_leave() {
    let mut cluster = FakeCluster::new([NodePool::named("general")]);
    let mut node = karpenter_core::api::Node::default();
    "ours-1".clone_into(&mut node.metadata.name);
    let now = Timestamp::default();
    let joined = cluster.sync_with([node], now);
    assert_eq!(joined, Sync { joined: vec!["ours-1".to_owned()], left: Vec::new() });
    assert_eq!(cluster.sync_with([], now).left, ["ours-1"]);
}
