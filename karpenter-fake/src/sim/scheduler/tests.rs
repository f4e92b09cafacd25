use std::collections::BTreeMap;

use karpenter_core::{
    Catalogs, Plan, Planner, Snapshot,
    api::{Node, PodBuilder, Taint, TaintEffect, Toleration, Workload},
    strategies,
};
use proptest::prelude::*;

use super::*;
use crate::{
    FakeCloud, check,
    sim::{ApiObject, ApiServer, Rng},
};

/// An API server and a scheduler that sees all its changes.
struct Bench {
    api: ApiServer,
    scheduler: Scheduler,
}

impl Bench {
    fn new(seed: u64) -> Self {
        let mut api = ApiServer::default();
        api.follow();
        Self { api, scheduler: Scheduler::new(Rng::new(seed)) }
    }

    fn tell(&mut self) {
        for change in self.api.take_changes() {
            self.scheduler.observe(&change, &self.api, self.api.now());
        }
    }

    fn add(&mut self, pod: PodBuilder) {
        for pod in Workload::from(pod).into_pods().expect("well written") {
            self.api.create(pod).expect("new");
        }
    }

    fn bind(&mut self, pod: &ObjectKey, node: &str) {
        self.api.modify::<Pod>(pod, |p| node.clone_into(&mut p.spec.node_name));
        self.tell();
    }

    /// Binds whom it can, and tells why it cannot bind the others.
    fn run(&mut self) -> BTreeMap<String, Result<String, String>> {
        self.tell();
        let mut out = BTreeMap::new();
        while let Some(Decision { pod, node }) = self.scheduler.decide(self.api.now()) {
            if let Ok(node) = &node {
                self.bind(&pod, node);
            }
            out.insert(pod.name.clone(), node);
        }
        out
    }

    fn at(&mut self, seconds: i64) -> &mut Self {
        self.api.set_now(Timestamp::from_millis(seconds * 1000));
        self
    }
}

fn node(name: &str, zone: &str, cpu: &str) -> Node {
    serde_json::from_str(&format!(
        r#"{{"metadata":{{"name":"{name}","labels":{{"topology.kubernetes.io/zone":"{zone}","kubernetes.io/hostname":"{name}"}}}},
            "status":{{"allocatable":{{"cpu":"{cpu}","memory":"8Gi","pods":"10"}}}}}}"#
    ))
    .expect("a node")
}

fn counts(bound: &BTreeMap<String, Result<String, String>>) -> BTreeMap<&str, usize> {
    let mut out = BTreeMap::new();
    for node in bound.values().flatten() {
        *out.entry(node.as_str()).or_default() += 1;
    }
    out
}

#[test]
fn pods_go_where_most_is_left() {
    let mut bench = Bench::new(1);
    for (name, cpu) in [("large", "8"), ("small", "2")] {
        bench.api.create(node(name, "a", cpu)).expect("new");
    }
    bench.add(Pod::named("one").cpu("1").memory("1Gi"));
    assert_eq!(bench.run()["one"], Ok("large".to_owned()));
}

#[test]
fn who_finds_no_node_is_told_why_and_tried_again_when_there_is_one() {
    let mut bench = Bench::new(1);
    let mut tainted = node("tainted", "a", "8");
    tainted.spec.taints.push(Taint::new("gpu", "", TaintEffect::NoSchedule));
    bench.api.create(tainted).expect("new");
    bench.api.create(node("small", "a", "1")).expect("new");
    bench.add(Pod::named("web").cpu("2"));
    let why = "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) had untolerated taint(s).";
    assert_eq!(bench.run()["web"], Err(why.to_owned()));
    assert!(bench.at(3).run().is_empty(), "nothing has changed");
    bench.api.create(node("fits", "a", "4")).expect("new");
    assert_eq!(bench.at(4).run()["web"], Ok("fits".to_owned()));
}

#[test]
fn room_that_becomes_free_is_used() {
    let mut bench = Bench::new(1);
    bench.api.create(node("only", "a", "1")).expect("new");
    bench.add(Pod::named("first").cpu("1"));
    bench.run();
    bench.add(Pod::named("second").cpu("1"));
    assert!(bench.run()["second"].is_err());
    let first = ObjectKey::new("default", "first");
    let uid = bench.api.get::<Pod>(&first).expect("there").metadata.uid.clone();
    bench.api.confirm_end(&first, &uid);
    assert_eq!(bench.at(5).run()["second"], Ok("only".to_owned()));
}

#[test]
fn the_more_important_pod_comes_first() {
    let mut bench = Bench::new(1);
    bench.api.create(node("only", "a", "1")).expect("new");
    let mut urgent = Workload::from(Pod::named("urgent").cpu("1")).into_pods().expect("well written").remove(0);
    urgent.spec.priority = Some(100);
    bench.add(Pod::named("idle").cpu("1"));
    bench.api.create(urgent).expect("new");
    let bound = bench.run();
    assert!(bound["urgent"].is_ok() && bound["idle"].is_err());
}

/// At most one more pod of the app in a zone than in the others.
const SPREAD: &str = r#""topologySpreadConstraints":[{"maxSkew":1,"topologyKey":"topology.kubernetes.io/zone","whenUnsatisfiable":"DoNotSchedule","labelSelector":{"matchLabels":{"app":"web"}}}]"#;

/// A pod of the app with rules.
fn ruled(name: &str, rules: &str) -> Pod {
    let json = format!(
        r#"{{"metadata":{{"name":"{name}","labels":{{"app":"web"}}}},"spec":{{"containers":[{{"name":"m","resources":{{"requests":{{"cpu":"1"}}}}}}],{rules}}}}}"#
    );
    serde_json::from_str(&json).expect("a pod")
}

#[test]
fn a_zone_that_is_gone_holds_nobody_back() {
    let mut bench = Bench::new(1);
    bench.api.create(node("large", "a", "8")).expect("new");
    bench.api.create(node("full", "b", "0")).expect("new");
    for name in ["one", "two"] {
        bench.api.create(ruled(name, SPREAD)).expect("new");
    }
    let bound = bench.run();
    assert_eq!(bound.values().filter(|node| node.is_err()).count(), 1, "{bound:?}");
    bench.api.delete::<Node>(&ObjectKey::new("", "full"), "").expect("there");
    let bound = bench.at(5).run();
    assert_eq!(bound.values().collect::<Vec<_>>(), [&Ok("large".to_owned())]);
}

#[test]
fn pods_are_spread_and_kept_apart() {
    let mut bench = Bench::new(5);
    for (name, zone) in [("a1", "a"), ("a2", "a"), ("b1", "b")] {
        bench.api.create(node(name, zone, "8")).expect("new");
    }
    for i in 0..4 {
        bench.api.create(ruled(&format!("even-{i}"), SPREAD)).expect("new");
    }
    let bound = bench.run();
    assert_eq!(counts(&bound).get("b1"), Some(&2), "{bound:?}");

    let apart = r#""affinity":{"podAntiAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":[{"topologyKey":"kubernetes.io/hostname","labelSelector":{"matchLabels":{"app":"web"}}}]}}"#;
    bench.api.create(ruled("lonely", apart)).expect("new");
    bench.api.create(node("c1", "c", "8")).expect("new");
    assert_eq!(bench.run()["lonely"], Ok("c1".to_owned()));
    bench.add(Pod::named("web").label("app", "web").node_selector("topology.kubernetes.io/zone", "c"));
    let why = bench.run()["web"].clone().expect_err("the pod there wants to be alone");
    assert!(why.contains("1 node(s) didn't satisfy existing pods anti-affinity rules"), "{why}");
}

#[test]
fn a_series_that_lives_together_starts_anywhere_and_stays_there() {
    let mut bench = Bench::new(2);
    for (name, zone) in [("a1", "a"), ("b1", "b")] {
        bench.api.create(node(name, zone, "8")).expect("new");
    }
    for i in 0..4 {
        let json = format!(
            r#"{{"metadata":{{"name":"near-{i}","labels":{{"app":"db"}}}},"spec":{{"containers":[],"affinity":{{"podAffinity":
                {{"requiredDuringSchedulingIgnoredDuringExecution":[{{"topologyKey":"topology.kubernetes.io/zone","labelSelector":{{"matchLabels":{{"app":"db"}}}}}}]}}}}}}}}"#
        );
        bench.api.create(serde_json::from_str::<Pod>(&json).expect("a pod")).expect("new");
    }
    assert_eq!(counts(&bench.run()).len(), 1);
}

#[test]
fn pods_of_a_workload_are_spread_though_they_do_not_ask_for_it() {
    let mut bench = Bench::new(3);
    for name in ["n1", "n2", "n3", "n4"] {
        bench.api.create(node(name, "a", "8")).expect("new");
    }
    bench.scheduler.know_workload("w", LabelSelector::of_labels([("app", "web")]));
    for mut pod in
        Workload::from(Pod::named("web").label("app", "web").cpu("10m").replicas(4)).into_pods().expect("pods")
    {
        let owner = serde_json::from_str(r#"{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"web","uid":"w"}"#);
        pod.metadata.owner_references.push(owner.expect("an owner"));
        bench.api.create(pod).expect("new");
    }
    assert_eq!(counts(&bench.run()).len(), 4);
}

#[test]
fn tolerations_and_ports_are_honoured() {
    let mut bench = Bench::new(3);
    let mut tainted = node("gpu", "a", "8");
    tainted.spec.taints.push(Taint::new("gpu", "", TaintEffect::NoSchedule));
    bench.api.create(tainted).expect("new");
    for name in ["one", "two"] {
        bench.add(Pod::named(name).host_port(80).toleration(Toleration::of_key("gpu")));
    }
    let bound = bench.run();
    assert!(bound["one"].is_ok());
    let why = "0/1 nodes are available: 1 node(s) didn't have free ports for the requested pod ports.";
    assert_eq!(bound["two"], Err(why.to_owned()));
}

#[test]
fn half_of_many_nodes_are_enough() {
    for (nodes, expected) in [(0, 1), (5, 5), (99, 99), (100, 100), (500, 230), (1000, 420), (6000, 300)] {
        assert_eq!(enough(nodes), expected, "{nodes}");
    }
}

/// What a plan comes to: its nodes, in a cluster without pools, with the pods that were pending.
fn nodes_of(plan: &Plan, snapshot: &Snapshot, cloud: &FakeCloud) -> Vec<Node> {
    let mut count = 0;
    let launches = karpenter_core::driver::Driver::launches(plan, snapshot, |pool| {
        count += 1;
        (format!("{pool}-{count}"), format!("uid-{count}"))
    });
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    for launch in launches {
        let _ = runtime.block_on(karpenter_core::CloudProvider::create(cloud, &launch.claim));
    }
    cloud.ready_nodes()
}

/// A node with the label that every kubelet gives to its own.
fn with_host(mut node: Node) -> Node {
    let name = node.metadata.name.clone();
    node.metadata.labels.entry(karpenter_core::labels::HOSTNAME.to_owned()).or_insert(name);
    node
}

fn create_all<T: ApiObject>(api: &mut ApiServer, objects: impl IntoIterator<Item = T>) {
    for object in objects {
        api.create(object).map(drop).expect("generated objects have names of their own");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// The filters are those of the checker, which shares no code with what counts pods here. Each pod is judged as
    /// it is bound: the first of a series may go where the series does not end up.
    #[test]
    fn the_checker_finds_nothing_wrong_with_where_pods_are_bound(problem in strategies::problem(12), seed: u64) {
        let (snapshot, catalogs) = (problem.snapshot(), problem.catalogs().expect("a valid catalog"));
        let plan = Planner::default().plan(&snapshot, &catalogs);
        let catalog = snapshot.pools().iter().find_map(|pool| catalogs.get(pool.name()));
        let Some(catalog) = catalog else { return Ok(()) };
        let nodes = nodes_of(&plan, &snapshot, &FakeCloud::new(catalog.clone()));
        let mut bench = Bench::new(seed);
        create_all(&mut bench.api, problem.nodes.into_iter().chain(nodes).map(with_host));
        create_all(&mut bench.api, problem.volumes);
        create_all(&mut bench.api, problem.volume_claims);
        create_all(&mut bench.api, problem.storage_classes);
        create_all(&mut bench.api, problem.csi_nodes);
        create_all(&mut bench.api, problem.pods);
        bench.tell();
        while let Some(Decision { pod, node }) = bench.scheduler.decide(Timestamp::from_millis(0)) {
            let Ok(node) = node else { continue };
            let before = bench.api.snapshot().expect("valid");
            let bound = BTreeMap::from([(node.clone(), vec![pod.clone()])]);
            let found = check(&before, &Catalogs::default(), &Plan::from_parts(Vec::new(), bound, BTreeMap::new()));
            // To the checker another host can always be had, which the kube-scheduler does not count.
            let is_expected = |v: &&crate::Violation| match v {
                crate::Violation::Spread { topology_key, .. } => topology_key == karpenter_core::labels::HOSTNAME,
                other => matches!(other, crate::Violation::Lost { .. }),
            };
            let wrong: Vec<_> = found.iter().filter(|v| !is_expected(v)).collect();
            prop_assert!(wrong.is_empty(), "{wrong:?}");
            bench.bind(&pod, &node);
        }
    }
}
