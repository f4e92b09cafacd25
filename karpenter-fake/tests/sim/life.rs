//! Nothing goes wrong.

use std::time::Duration;

use karpenter_core::{
    Quantity, Timestamp,
    api::{DaemonSet, Node, ObjectKey, Pod, PodDisruptionBudget},
    engine::{Action, ActionId, ActionResult, Event, Refusal, Request},
};
use karpenter_fake::{
    generated_catalog,
    sim::{Rng, Workload, World},
};

use crate::naive::Naive;

pub(crate) fn minutes(minutes: i64) -> Timestamp {
    Timestamp::from_millis(minutes * 60_000)
}

fn web(replicas: u32) -> Workload {
    let pod = Pod::named("web").label("app", "web").cpu("500m").memory("512Mi");
    Workload::deployment("web", replicas, pod).expect("well written")
}

fn daemonset() -> DaemonSet {
    serde_json::from_str(
        r#"{"metadata":{"name":"logs","namespace":"kube-system"},"spec":{"template":{"metadata":{"labels":{"app":"logs"}},
            "spec":{"containers":[{"name":"main","resources":{"requests":{"cpu":"50m","memory":"64Mi"}}}]}}}}"#,
    )
    .expect("a daemonset")
}

fn running(world: &World, app: &str) -> usize {
    let is_running = |pod: &&std::sync::Arc<Pod>| {
        pod.metadata.labels.get("app").is_some_and(|a| a == app) && pod.status.phase == "Running" && pod.is_active()
    };
    world.api().list::<Pod>().filter(is_running).count()
}

pub(crate) fn started(seed: u64) -> (World, Naive) {
    let mut world = World::new(seed, generated_catalog());
    world.api_mut().create(daemonset()).expect("new");
    world.apply(web(30));
    (world, Naive::new("s-4x-amd64-linux", 6))
}

#[test]
fn pods_get_nodes_and_nodes_go_when_the_pods_do() {
    let (mut world, mut engine) = started(1);
    engine.live(&mut world, minutes(10));
    assert_eq!((running(&world, "web"), engine.nodes()), (30, 5));
    assert_eq!(running(&world, "logs"), 5, "a daemon on every node");
    let web = ObjectKey::new("default", "web");
    assert!(world.scale(&web, 6));
    engine.live(&mut world, minutes(12));
    assert_eq!(running(&world, "web"), 6);
    assert!(world.delete_workload(&web));
    engine.live(&mut world, minutes(20));
    assert_eq!((running(&world, "web"), engine.nodes()), (0, 0));
    let bill = world.bill();
    engine.live(&mut world, minutes(30));
    assert_eq!(world.bill(), bill, "nothing runs any more");
    assert_eq!(world.api().list::<Pod>().count(), 0);
    assert_eq!(world.take_breaches(), []);
}

#[test]
fn the_same_seed_gives_the_same_life_and_another_one_another() {
    let digest = |seed: u64| {
        let (mut world, mut engine) = started(seed);
        engine.live(&mut world, minutes(30));
        (engine.digest, engine.told, world.bill())
    };
    assert_eq!(digest(7), digest(7));
    assert_ne!(digest(7).0, digest(8).0);
}

#[test]
fn jobs_are_done_once_all_of_their_pods_have_succeeded() {
    let (mut world, mut engine) = started(3);
    let pod = Pod::named("batch").label("app", "batch").cpu("1");
    world.apply(Workload::job("batch", 8, Duration::from_mins(10), pod).expect("well written"));
    engine.live(&mut world, minutes(8));
    assert_eq!(running(&world, "batch"), 8);
    engine.live(&mut world, minutes(25));
    assert_eq!(running(&world, "batch"), 0);
    let left = world.api().list::<Pod>().filter(|pod| pod.metadata.labels.contains_key("batch.kubernetes.io/job-name"));
    assert_eq!(left.count(), 0, "what is done is cleared away");
    assert_eq!(world.take_breaches(), []);
}

#[test]
fn pods_of_a_stateful_set_come_one_after_the_other_and_keep_their_names() {
    let mut world = World::new(4, generated_catalog());
    let mut engine = Naive::new("s-4x-amd64-linux", 6);
    let pod = Pod::named("db").label("app", "db").cpu("500m");
    world.apply(Workload::stateful_set("db", 3, pod).expect("well written"));
    world.advance(Timestamp::from_millis(1000));
    assert_eq!(world.pods_without_node(), 1);
    engine.live(&mut world, minutes(5));
    let names: Vec<String> = world.api().list::<Pod>().map(|pod| pod.metadata.name.clone()).collect();
    assert_eq!(names, ["db-0", "db-1", "db-2"]);
    let first = ObjectKey::new("default", "db-0");
    let uid = world.api().get::<Pod>(&first).expect("there").metadata.uid.clone();
    world.api_mut().delete_pod(&first, &uid, None).expect("there");
    engine.live(&mut world, minutes(7));
    let again = world.api().get::<Pod>(&first).expect("made anew");
    assert!(again.metadata.uid != uid && again.status.phase == "Running");
}

#[test]
fn evictions_stop_where_the_budget_ends() {
    let (mut world, mut engine) = started(5);
    let budget: PodDisruptionBudget = serde_json::from_str(
        r#"{"metadata":{"name":"web","namespace":"default"},
            "spec":{"maxUnavailable":"10%","selector":{"matchLabels":{"app":"web"}}}}"#,
    )
    .expect("a budget");
    world.api_mut().create(budget).expect("new");
    engine.live(&mut world, minutes(10));
    let web: Vec<(ObjectKey, String)> = world
        .api()
        .list::<Pod>()
        .filter(|pod| pod.metadata.labels["app"] == "web")
        .map(|pod| (pod.key(), pod.metadata.uid.clone()))
        .collect();
    for (i, (pod, uid)) in (1_000_000..).zip(web) {
        world.execute(Request { id: ActionId(i), action: Action::Evict { pod, uid } });
    }
    world.advance(minutes(10) + Duration::from_millis(60));
    let refused = |event: &Event| {
        let Event::Done { result: ActionResult::Refused(Refusal::TooManyRequests(_)), .. } = event else {
            return false;
        };
        true
    };
    assert_eq!(world.take_events().iter().filter(|event| refused(event)).count(), 27);
    assert_eq!(world.take_breaches(), []);
    engine.live(&mut world, minutes(20));
    assert_eq!(running(&world, "web"), 30);
}

#[test]
fn nodes_come_unready_and_show_their_devices_last() {
    let mut world = World::new(6, generated_catalog());
    let mut engine = Naive::new("g-1g-amd64-linux", 1);
    let pod = Pod::named("gpu").label("app", "gpu").request("nvidia.com/gpu", "1");
    world.apply(Workload::deployment("gpu", 1, pod).expect("well written"));
    let mut seen = std::collections::BTreeSet::new();
    for second in 0..180 {
        engine.live(&mut world, Timestamp::from_millis(second * 1000));
        seen.extend(world.api().list::<Node>().map(|node| {
            let gpus = node.status.allocatable.get("nvidia.com/gpu").map_or(0, Quantity::units_floor);
            let is_ready = node.status.conditions[0].status == karpenter_core::api::ConditionStatus::True;
            (is_ready, gpus)
        }));
    }
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), [(false, 0), (true, 0), (true, 1)]);
    assert_eq!(running(&world, "gpu"), 1);
}

/// Days in which workloads of all sizes come and go; tells how many pods there were.
fn churn(world: &mut World, engine: &mut Naive, days: i64, workloads: u64, pods_each: u64) -> u64 {
    let mut rng = Rng::new(11);
    let mut started = 0;
    let hours = days * 24;
    for hour in 0..hours {
        for number in 0..workloads {
            let pods = 1 + rng.below(2 * pods_each);
            started += pods;
            let length = Duration::from_secs(600 + rng.below(6_000));
            let pod = Pod::named("job").label("app", "job").cpu("500m").memory("1Gi");
            let name = format!("job-{hour}-{number}");
            world.apply(Workload::job(&name, u32::try_from(pods).expect("few"), length, pod).expect("well written"));
        }
        engine.live(world, minutes((hour + 1) * 60));
    }
    started
}

#[test]
fn a_day_of_jobs_goes_by_without_a_breach() {
    let (mut world, mut engine) = started(9);
    let started = churn(&mut world, &mut engine, 1, 4, 5);
    engine.live(&mut world, minutes(27 * 60));
    assert!(started > 400);
    assert_eq!((running(&world, "job"), running(&world, "web")), (0, 30));
    assert_eq!(world.take_breaches(), []);
}

#[test]
#[ignore = "a month of a large cluster: for release builds"]
fn a_month_of_a_large_cluster() {
    let mut world = World::new(13, generated_catalog());
    let mut engine = Naive::new("s-16x-amd64-linux", 28);
    world.apply(web(9_000));
    let started = churn(&mut world, &mut engine, 30, 20, 10);
    assert!(started > 140_000, "{started}");
    assert_eq!(world.take_breaches(), []);
}
