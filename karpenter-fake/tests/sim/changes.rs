//! Nodes that must go although nothing is to be saved: drift, age, sickness, and what pools ask for.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use karpenter_core::{
    api::{
        ConditionStatus, NillableDuration, Node, NodePool, NodeSelectorRequirement, ObjectKey, Operator,
        PersistentVolume, PersistentVolumeClaim, Pod, PodDisruptionBudget, StorageClass,
    },
    engine::{Action, EngineOptions},
    labels,
    provider::RepairPolicy,
};
use karpenter_fake::{
    FakeCloud,
    cloud::offerings_of,
    generated_catalog,
    sim::{Exchange, Live, Workload, World, WorldOptions},
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::{
    life::minutes,
    live::{on_demand, web, with_web},
};

fn read<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("as the API has it")
}

fn nodes(live: &Live) -> BTreeSet<String> {
    live.world().api().list::<Node>().map(|node| node.metadata.name.clone()).collect()
}

fn change_pool(live: &mut Live, change: impl FnOnce(&mut NodePool)) {
    live.world_mut().api_mut().modify(&ObjectKey::new("", "general"), change).expect("there");
}

#[test]
fn volumes_are_made_where_the_first_pod_goes_and_stay_there() {
    let mut live = with_web(1, on_demand("general"), 0);
    let api = live.world_mut().api_mut();
    let topologies = json!([{"matchLabelExpressions": [{"key": labels::ZONE, "values": ["test-zone-b"]}]}]);
    api.create(read::<StorageClass>(json!({"metadata": {"name": "ssd"}, "provisioner": "disks",
        "volumeBindingMode": "WaitForFirstConsumer", "allowedTopologies": topologies})))
        .expect("new");
    api.create(read::<PersistentVolumeClaim>(
        json!({"metadata": {"name": "data"}, "spec": {"storageClassName": "ssd"}}),
    ))
    .expect("new");
    let mut workload = |name: &str, replicas, volume: Value| {
        let pod = Pod::named(name).label("app", name).cpu("500m");
        let mut workload = Workload::deployment(name, replicas, pod).expect("well written");
        workload.template.spec.volumes.push(read(volume));
        live.world_mut().apply(workload);
    };
    workload("db", 1, json!({"name": "data", "persistentVolumeClaim": {"claimName": "data"}}));
    let template = json!({"volumeClaimTemplate": {"spec": {"storageClassName": "ssd"}}});
    workload("cache", 3, json!({"name": "scratch", "ephemeral": template}));
    live.run_until(minutes(5));
    assert_eq!(live.account().pods_running, 4);
    let volumes = |live: &Live| live.world().api().list::<PersistentVolume>().len();
    let zones = |live: &Live| -> BTreeSet<String> {
        live.world().api().list::<Node>().map(|node| node.metadata.labels[labels::ZONE].clone()).collect()
    };
    assert_eq!((volumes(&live), zones(&live)), (4, BTreeSet::from(["test-zone-b".to_owned()])));

    // The node goes; the volume of the claim stays, those that were made for single pods do not.
    let node = live.world().api().list::<Node>().next().expect("one at least").metadata.name.clone();
    let claim = |live: &Live| {
        let key = ObjectKey::new("default", "data");
        live.world().api().get::<PersistentVolumeClaim>(&key).expect("nobody deletes it").spec.volume_name.clone()
    };
    let volume = claim(&live);
    live.world_mut().api_mut().delete::<Node>(&ObjectKey::new("", &node), "").expect("there");
    live.run_until(minutes(15));
    assert_eq!((live.account().pods_running, volumes(&live), claim(&live)), (4, 4, volume));
    live.world_mut().scale(&ObjectKey::new("default", "cache"), 0);
    live.run_until(minutes(20));
    assert_eq!((live.account().pods_running, volumes(&live)), (1, 1));
    assert_eq!(live.take_breaches(), []);
}

#[test]
fn after_a_shortage_few_calls_are_refused() {
    let mut pool = on_demand("general");
    pool.spec.template.metadata.labels.insert("tier".to_owned(), "a".to_owned());
    let mut live = with_web(3, pool, 0);
    let spread = json!([{"maxSkew": 1, "topologyKey": labels::ZONE, "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}}}]);
    let pod = Pod::named("web").label("app", "web").cpu("500m").memory("512Mi");
    let mut workload = Workload::deployment("web", 200, pod).expect("well written");
    workload.template.spec.topology_spread_constraints = read(spread);
    let catalog = live.world().cloud().catalog_now();
    for offering in offerings_of(&catalog, labels::ON_DEMAND) {
        live.world().cloud().exhaust_between(offering, minutes(0), minutes(1));
    }
    live.world_mut().apply(workload);
    live.run_until(minutes(3));
    // At first one call for each claim of the plan; then what is sold out is left alone.
    let refused = live.world().cloud().capacity_errors();
    live.run_until(minutes(10));
    assert_eq!(live.world().cloud().capacity_errors(), refused);
    assert!(refused <= 40, "{refused} calls were refused");
    assert_eq!(live.account().pods_running, 200);
}

#[test]
fn pods_that_need_a_replacement_find_its_room_when_they_come() {
    let kinds = NodeSelectorRequirement::new(labels::CAPACITY_TYPE, Operator::In, [labels::SPOT, labels::ON_DEMAND]);
    let mut pool = NodePool::named("general").require(kinds);
    pool.spec.disruption.consolidate_after = NillableDuration::from_secs(60);
    pool.spec.disruption.budgets[0].nodes = "30%".into();
    let mut live = with_web(7, pool, 60);
    let pay = Pod::named("pay").label("app", "pay").cpu("1").memory("2Gi");
    let pay = pay.node_selector(labels::CAPACITY_TYPE, labels::ON_DEMAND);
    live.world_mut().apply(Workload::deployment("pay", 6, pay).expect("well written"));
    live.run_until(minutes(30));
    live.world_mut().scale(&web(), 110);
    live.world_mut().scale(&ObjectKey::new("default", "pay"), 10);
    let mut created = Vec::new();
    live.watch_until(minutes(120), &mut |now, exchange| {
        if let Exchange::Asked(requests) = exchange {
            let claims = requests.iter().filter(|request| matches!(request.action, Action::CreateClaim(_)));
            created.extend(claims.map(|_| now));
        }
    });
    let late = created.iter().filter(|at| minutes(60) < **at).count();
    assert_eq!(late, 0, "half an hour later there is nothing to gain: {created:?}");
    assert_eq!((live.account().pods_running, live.take_breaches()), (120, vec![]));
}

#[test]
fn nodes_are_replaced_when_their_pool_asks_for_something_else() {
    let mut pool = on_demand("general");
    pool.spec.disruption.budgets[0].nodes = "1".into();
    let mut live = with_web(1, pool, 30);
    live.run_until(minutes(5));
    let before = nodes(&live);
    change_pool(&mut live, |pool| drop(pool.spec.template.metadata.labels.insert("team".into(), "b".into())));
    live.run_until(minutes(60));
    assert!(before.is_disjoint(&nodes(&live)), "{before:?}");
    let has_label = |node: &Arc<Node>| node.metadata.labels.get("team").is_some_and(|team| team == "b");
    assert!(live.world().api().list::<Node>().all(has_label));
    assert_eq!((live.account().pods_running, live.take_breaches()), (30, Vec::new()));
}

#[test]
fn what_bears_on_no_machine_is_no_drift() {
    let mut live = with_web(1, on_demand("general"), 30);
    live.run_until(minutes(5));
    let before = nodes(&live);
    change_pool(&mut live, |pool| {
        pool.spec.weight = Some(7);
        pool.spec.disruption.consolidate_after = NillableDuration::from_secs(90);
    });
    live.run_until(minutes(30));
    assert_eq!(nodes(&live), before);
}

#[test]
fn nodes_go_when_they_are_old_and_their_pods_run_elsewhere() {
    let mut pool = on_demand("general");
    pool.spec.template.spec.expire_after = NillableDuration::from_secs(1800);
    let mut live = with_web(1, pool, 10);
    live.run_until(minutes(20));
    let before = nodes(&live);
    live.run_until(minutes(40));
    assert!(before.is_disjoint(&nodes(&live)));
    assert_eq!((live.account().pods_running, live.take_breaches()), (10, Vec::new()));
}

#[test]
fn a_sick_node_is_replaced_and_many_are_left_alone() {
    for (sick, is_repaired) in [(1, true), (3, false)] {
        let mut options = EngineOptions::default();
        options.repair_policies.push(RepairPolicy::new("Sick", ConditionStatus::True, Duration::from_mins(5)));
        options.disruption_period = None;
        let mut live = Live::with(World::new(1, generated_catalog()), options);
        live.world_mut().api_mut().create(on_demand("general")).expect("new");
        let spread = json!({"labels": {"app": "web"}});
        let mut workload =
            Workload::deployment("web", 5, Pod::named("web").label("app", "web").cpu("3")).expect("well written");
        let pod: Pod = read(json!({"metadata": spread, "spec": {"affinity": {"podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution":
                [{"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "web"}}}]}}}}));
        workload.template.spec.affinity = pod.spec.affinity;
        live.world_mut().apply(workload);
        live.run_until(minutes(5));
        let before: Vec<String> = nodes(&live).into_iter().collect();
        assert_eq!(before.len(), 5);
        for node in &before[..sick] {
            live.world_mut().set_node_condition(node, "Sick", ConditionStatus::True);
        }
        live.run_until(minutes(9));
        assert_eq!(nodes(&live), before.iter().cloned().collect(), "it may pass");
        live.run_until(minutes(25));
        assert_eq!(!nodes(&live).contains(&before[0]), is_repaired, "{sick} of 5");
        assert_eq!((live.account().pods_running, live.take_breaches()), (5, Vec::new()));
    }
}

#[test]
fn a_node_that_is_not_ready_takes_no_pods_and_loses_its_own() {
    let mut options = EngineOptions::default();
    options.disruption_period = None;
    let mut live = Live::with(World::new(1, generated_catalog()), options);
    live.world_mut().api_mut().create(on_demand("general")).expect("new");
    let pod = Pod::named("web").label("app", "web").cpu("100m");
    live.world_mut().apply(Workload::deployment("web", 3, pod).expect("well written"));
    live.run_until(minutes(5));
    let before = nodes(&live);
    let sick = before.first().expect("a node").clone();
    let running_on = |live: &Live, node: &str| {
        live.world().api().list::<Pod>().filter(|pod| pod.spec.node_name == node && pod.is_active()).count()
    };
    for (status, minute, expected) in
        [(ConditionStatus::False, 8, 3), (ConditionStatus::True, 20, 3), (ConditionStatus::False, 30, 0)]
    {
        live.world_mut().set_node_condition(&sick, "Ready", status);
        if minute == 8 {
            live.world_mut().scale(&web(), 5);
        }
        live.run_until(minutes(minute));
        assert_eq!((running_on(&live, &sick), live.account().pods_running), (expected, 5), "minute {minute}");
    }
    assert!(nodes(&live).is_superset(&before) && live.take_breaches().is_empty());
}

#[test]
fn heavy_pools_come_first_until_they_are_full() {
    let mut live = Live::new(1, generated_catalog(), EngineOptions::default());
    let mut heavy = on_demand("heavy").limit("cpu", "8".parse().expect("a quantity"));
    heavy.spec.weight = Some(50);
    let api = live.world_mut().api_mut();
    api.create(heavy).expect("new");
    api.create(on_demand("light")).expect("new");
    let of_pool = |live: &Live, pool: &str| {
        let nodes = live.world().api().list::<Node>();
        nodes.filter(|node| node.metadata.labels.get(labels::NODE_POOL).is_some_and(|own| own == pool)).count()
    };
    let pod = Pod::named("web").label("app", "web").cpu("1").memory("1Gi");
    live.world_mut().apply(Workload::deployment("web", 4, pod).expect("well written"));
    live.run_until(minutes(5));
    assert!(of_pool(&live, "heavy") > 0 && of_pool(&live, "light") == 0);
    live.world_mut().scale(&web(), 20);
    live.run_until(minutes(15));
    assert!(of_pool(&live, "light") > 0);
    assert_eq!((live.account().pods_running, live.take_breaches()), (20, Vec::new()));
}

#[test]
fn a_budget_that_lets_one_pod_go_at_a_time_keeps_no_node() {
    let mut live = with_web(1, on_demand("general"), 30);
    let budget: PodDisruptionBudget = read(json!({"metadata": {"name": "web"},
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "web"}}}}));
    live.world_mut().api_mut().create(budget).expect("new");
    live.run_until(minutes(5));
    change_pool(&mut live, |pool| drop(pool.spec.template.metadata.labels.insert("team".into(), "b".into())));
    let before = nodes(&live);
    let mut evictions = 0;
    live.watch_until(minutes(60), &mut |_, exchange| {
        if let Exchange::Asked(requests) = exchange {
            evictions += requests.iter().filter(|request| matches!(request.action, Action::Evict { .. })).count();
        }
    });
    assert!(before.is_disjoint(&nodes(&live)));
    // Each pod waits for the one before it to run elsewhere, and is asked a few times: not each second.
    assert!((30..1000).contains(&evictions), "{evictions}");
    assert_eq!((live.account().pods_running, live.take_breaches()), (30, Vec::new()));
}

#[test]
fn lost_and_slow_calls_cost_time_and_nothing_else() {
    let mut options = WorldOptions::default();
    options.lost_calls_ppm = 200_000;
    options.slow_calls_ppm = 100_000;
    let cloud = FakeCloud::new(generated_catalog()).launch_delay(Duration::from_secs(40));
    let mut live = Live::with(World::with(5, Arc::new(cloud), options), EngineOptions::default());
    live.world_mut().api_mut().create(on_demand("general")).expect("new");
    let pod = Pod::named("web").label("app", "web").cpu("500m").memory("512Mi");
    live.world_mut().apply(Workload::deployment("web", 60, pod).expect("well written"));
    live.run_until(minutes(15));
    assert_eq!(live.account().pods_running, 60);
    live.world_mut().scale(&web(), 0);
    live.run_until(minutes(60));
    assert_eq!((live.account().machines, live.account().nodes), (0, 0));
    assert_eq!(live.take_breaches(), []);
}
