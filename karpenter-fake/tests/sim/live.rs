//! The engine keeps a cluster in nodes.

use std::time::Duration;

use karpenter_core::{
    api::{NodePool, NodeSelectorRequirement, ObjectKey, Operator, Pod},
    engine::{ActionResult, EngineOptions, Event},
    labels,
};
use karpenter_fake::{
    generated_catalog,
    sim::{Exchange, Live, Workload},
};

use crate::life::minutes;

/// A pool of machines on demand that may lose all its nodes at once.
pub(crate) fn on_demand(name: &str) -> NodePool {
    let kind = NodeSelectorRequirement::new(labels::CAPACITY_TYPE, Operator::In, ["on-demand"]);
    let mut pool = NodePool::named(name).require(kind);
    pool.spec.disruption.budgets[0].nodes = "100%".into();
    pool
}

pub(crate) fn web() -> ObjectKey {
    ObjectKey::new("default", "web")
}

/// A cluster with one pool and a web service.
pub(crate) fn with_web(seed: u64, pool: NodePool, replicas: u32) -> Live {
    let mut live = Live::new(seed, generated_catalog(), EngineOptions::default());
    live.world_mut().api_mut().create(pool).expect("new");
    let pod = Pod::named("web").label("app", "web").cpu("500m").memory("512Mi");
    live.world_mut().apply(Workload::deployment("web", replicas, pod).expect("well written"));
    live
}

#[test]
fn nodes_follow_the_pods_up_and_down_and_the_engine_may_crash_between() {
    let mut live = with_web(1, on_demand("general"), 30);
    live.run_until(minutes(5));
    let account = live.account();
    assert_eq!((account.pods_running, account.pods_waiting), (30, 0), "{account}");
    live.world_mut().scale(&web(), 4);
    live.run_until(minutes(7));
    live.crash();
    live.run_until(minutes(20));
    assert_eq!(live.account().pods_running, 4);
    assert!(live.account().nodes <= 2, "{}", live.account());
    live.world_mut().scale(&web(), 0);
    live.run_until(minutes(40));
    assert_eq!((live.account().nodes, live.account().machines), (0, 0));
    assert_eq!(live.take_breaches(), []);
}

#[test]
fn nodes_that_should_go_are_looked_for_no_more_often_than_is_asked_for() {
    let mut options = EngineOptions::default();
    options.disruption_period = Some(Duration::from_hours(1));
    let mut live = Live::new(1, generated_catalog(), options);
    live.world_mut().api_mut().create(on_demand("general")).expect("new");
    let pod = Pod::named("web").label("app", "web").cpu("500m").memory("512Mi");
    live.world_mut().apply(Workload::deployment("web", 30, pod).expect("well written"));
    live.run_until(minutes(7));
    let full = live.world().cloud().hourly_cost();
    live.world_mut().scale(&web(), 2);
    live.run_until(minutes(55));
    assert_eq!(live.world().cloud().hourly_cost(), full);
    live.run_until(minutes(70));
    assert!(live.world().cloud().hourly_cost() < full, "{}", live.account());
}

#[test]
fn the_same_seed_gives_the_same_life() {
    let life = |seed| {
        let mut live = with_web(seed, on_demand("general"), 30);
        let mut out = Vec::new();
        for minute in 1..=15 {
            if minute == 5 {
                live.world_mut().scale(&web(), 10);
            }
            live.watch_until(minutes(minute), &mut |now, exchange| match exchange {
                // Catalogs are large.
                Exchange::Told(Event::Done { id, result: ActionResult::Catalog(_) }) => {
                    out.push(format!("{now} {id:?}"));
                }
                Exchange::Told(event) => out.push(format!("{now} {event:?}")),
                Exchange::Asked(requests) => out.push(format!("{now} {requests:?}")),
                _ => {}
            });
        }
        (out, live.account())
    };
    let first = life(7);
    assert!(life(7) == first, "the same seed");
    assert!(life(8) != first, "another seed");
}

#[test]
fn it_is_quiet_where_nothing_is_to_be_done() {
    let mut live = with_web(3, on_demand("general"), 3);
    live.run_until(minutes(30));
    let mut ticks = 0_u32;
    live.watch_until(minutes(30) + Duration::from_hours(1), &mut |_, exchange| {
        ticks += u32::from(matches!(exchange, Exchange::Asked(_)));
    });
    // Ten seconds between questions to the cloud and between looks for nodes to take away, and each answer.
    assert!(ticks < 360 * 4, "{ticks}");
}

#[test]
fn what_went_while_the_watch_was_lost_is_gone() {
    let mut live = with_web(4, on_demand("general"), 30);
    live.run_until(minutes(5));
    live.world_mut().lose_watch(Duration::from_mins(2));
    live.world_mut().scale(&web(), 0);
    live.run_until(minutes(40));
    assert_eq!((live.account().nodes, live.account().machines), (0, 0));
    assert_eq!(live.take_breaches(), []);
}
