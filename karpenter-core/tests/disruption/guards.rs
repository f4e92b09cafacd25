//! What keeps nodes from going, and that it is all that does.

use std::collections::BTreeSet;

use karpenter_core::{
    Catalogs, InstanceType, Price, Quantity, Snapshot, SnapshotBuilder, Timestamp,
    api::{ConsolidationPolicy, DisruptionReason, Node, NodeClaim, NodePool, ObjectKey, Pod, PodDisruptionBudget},
    disrupt::{Candidate, Candidates, NODE_COST},
};
use proptest::{collection::vec, prelude::*};
use serde_json::{Value, json};

const NOW: &str = "2026-01-01T12:00:00Z";
const REASONS: [DisruptionReason; 3] =
    [DisruptionReason::Drifted, DisruptionReason::Empty, DisruptionReason::Underutilized];

fn read<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("as the API has it")
}

fn time(text: &str) -> Timestamp {
    text.parse().expect("a time")
}

/// One node and what is around it; nothing is in the way of taking it away.
#[derive(Clone)]
struct Scene {
    node: Option<Node>,
    claim: Option<NodeClaim>,
    pool: NodePool,
    pods: Vec<Pod>,
    budgets: Vec<PodDisruptionBudget>,
    types: Vec<InstanceType>,
    nominated: Option<&'static str>,
    is_closed: bool,
}

fn pod(name: &str, owner: (&str, &str), status: &Value) -> Pod {
    let owner = json!([{"apiVersion": owner.0, "kind": owner.1, "name": "o", "uid": "u"}]);
    let meta = json!({"name": name, "labels": {"app": name}, "ownerReferences": owner});
    read(json!({"metadata": meta, "spec": {"nodeName": "n", "containers": []}, "status": status}))
}

impl Scene {
    fn new() -> Self {
        let labels = json!({
            "karpenter.sh/nodepool": "p", "karpenter.sh/registered": "true", "karpenter.sh/initialized": "true",
            "node.kubernetes.io/instance-type": "small", "topology.kubernetes.io/zone": "a",
            "karpenter.sh/capacity-type": "spot",
        });
        let conditions = json!([{"type": "Consolidatable", "status": "True", "reason": "", "message": ""}]);
        let meta = json!({"name": "c", "labels": labels, "creationTimestamp": "2026-01-01T00:00:00Z"});
        let spec = json!({"nodeClassRef": {}, "requirements": [], "expireAfter": "48h"});
        let running = json!({"phase": "Running"});
        let mut leaving = pod("leaving", ("apps/v1", "StatefulSet"), &running);
        leaving.metadata.deletion_timestamp = Some(time(NOW));
        let small = InstanceType::named("small", [("cpu", Quantity::from_units(4))]).offering(
            "spot",
            "a",
            Price::per_hour(0.5).expect("a price"),
        );
        Self {
            node: Some(read(json!({"metadata": {"name": "n", "labels": labels}, "spec": {"providerID": "id"}}))),
            claim: Some(read(json!({
                "metadata": meta, "spec": spec, "status": {"providerID": "id", "conditions": conditions},
            }))),
            pool: NodePool::named("p"),
            pods: vec![
                pod("api", ("apps/v1", "ReplicaSet"), &running),
                pod("daemon", ("apps/v1", "DaemonSet"), &running),
                pod("finished", ("batch/v1", "Job"), &json!({"phase": "Succeeded"})),
                leaving,
                pod("static", ("v1", "Node"), &running),
                pod("web", ("apps/v1", "ReplicaSet"), &running),
            ],
            budgets: Vec::new(),
            types: vec![small],
            nominated: None,
            is_closed: false,
        }
    }

    fn node(&mut self) -> &mut Node {
        self.node.as_mut().expect("not taken away")
    }

    fn claim(&mut self) -> &mut NodeClaim {
        self.claim.as_mut().expect("not taken away")
    }

    fn pod(&mut self, name: &str) -> &mut Pod {
        self.pods.iter_mut().find(|pod| pod.metadata.name == name).expect("a pod of the scene")
    }

    fn relabel(&mut self, key: &str, value: &str) {
        self.node().metadata.labels.insert(key.to_owned(), value.to_owned());
    }

    fn protect(&mut self, app: &str, name: &str, rule: Value) {
        let mut spec = rule;
        spec["selector"] = json!({"matchLabels": {"app": app}});
        self.budgets.push(read(json!({"metadata": {"name": name}, "spec": spec})));
    }

    fn builder(&self) -> SnapshotBuilder {
        let mut builder = Snapshot::builder()
            .pool(self.pool.clone())
            .nodes(self.node.clone())
            .claims(self.claim.clone())
            .pods(self.pods.clone());
        for budget in &self.budgets {
            builder = builder.budget(budget.clone());
        }
        if let Some(pod) = self.nominated {
            let pending = Pod::named(pod).cpu("1");
            builder = builder.pods(pending).nominate(ObjectKey::new("default", pod), "n");
        }
        if self.is_closed {
            builder = builder.close_node("n");
        }
        builder
    }

    fn snapshot(&self) -> Snapshot {
        self.builder().build().expect("valid")
    }

    fn catalogs(&self) -> Catalogs {
        Catalogs::shared(self.types.clone(), [&self.pool]).expect("valid")
    }

    fn candidates(&self) -> Candidates {
        Candidates::of(&self.snapshot(), &self.catalogs(), time(NOW))
    }

    fn candidate(&self) -> Candidate {
        self.candidates().all()[0].clone()
    }

    /// All that keeps the node, and for which reasons it may go all the same.
    fn verdict(&self) -> (BTreeSet<String>, Vec<DisruptionReason>) {
        let candidates = self.candidates();
        assert_eq!(candidates.all().len() + candidates.kept().len(), 1);
        let guards = match candidates.all().first() {
            Some(candidate) => &candidate.guards,
            None => &candidates.kept()[0].guards,
        };
        let allowed = REASONS.into_iter().filter(|&reason| candidates.for_reason(reason).next().is_some());
        (guards.iter().map(ToString::to_string).collect(), allowed.collect())
    }
}

/// Something in the way: how it comes about, how it is told, and for which reasons the node may go all the same.
type Case = (fn(&mut Scene), &'static str, &'static [DisruptionReason]);

/// Of these any may come together.
const CASES: [Case; 17] = {
    use DisruptionReason::{Drifted, Empty, Underutilized};
    [
        (|s| _ = s.node().metadata.labels.remove("karpenter.sh/initialized"), "it is not initialized yet", &[]),
        (
            |s| s.node().spec.taints.push(read(json!({"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}))),
            "it was chosen to go before (taint karpenter.sh/disrupted)",
            &[],
        ),
        (|s| s.is_closed = true, "it is not known what runs there", &[]),
        (|s| s.nominated = Some("coming"), "its room was promised to pods: default/coming", &[]),
        (
            |s| _ = s.node().metadata.annotations.insert("karpenter.sh/do-not-disrupt".to_owned(), "true".to_owned()),
            "it has the annotation karpenter.sh/do-not-disrupt",
            &[],
        ),
        (|s| shield(s, "web", "true"), "pod default/web has the annotation karpenter.sh/do-not-disrupt", &[]),
        (|s| shield(s, "daemon", "true"), "pod default/daemon has the annotation karpenter.sh/do-not-disrupt", &[]),
        (
            |s| {
                s.pod("static").status.start_time = Some(time("2026-01-01T11:00:00Z"));
                shield(s, "static", "90m");
            },
            "pod default/static has the annotation karpenter.sh/do-not-disrupt, which holds until 2026-01-01T12:30:00Z",
            &[],
        ),
        (
            |s| s.protect("web", "keep", json!({"minAvailable": 1})),
            "pod default/web: PodDisruptionBudget default/keep has disruptionsAllowed 0 (1 of 1 pods are healthy, 1 must be)",
            &[],
        ),
        (
            |s| {
                s.protect("api", "first", json!({"maxUnavailable": 1}));
                s.protect("api", "second", json!({"maxUnavailable": 1}));
            },
            "pod default/api is selected by several disruption budgets: default/first, default/second",
            &[],
        ),
        (|s| s.pool.spec.replicas = Some(3), "NodePool p is static (spec.replicas is set)", &[Drifted]),
        (
            |s| s.pool.spec.disruption.consolidate_after = "Never".parse().expect("a duration"),
            "NodePool p has consolidateAfter Never",
            &[Drifted],
        ),
        (
            |s| s.pool.spec.disruption.consolidation_policy = ConsolidationPolicy::WhenEmpty,
            "NodePool p has consolidationPolicy WhenEmpty, and pods would have to move: 3",
            &[Drifted, Empty],
        ),
        (
            |s| _ = s.node().metadata.labels.remove("topology.kubernetes.io/zone"),
            "it has no label topology.kubernetes.io/zone",
            &[Drifted, Empty],
        ),
        (
            |s| _ = s.node().metadata.labels.remove("karpenter.sh/capacity-type"),
            "it has no label karpenter.sh/capacity-type",
            &[Drifted, Empty],
        ),
        (
            |s| s.relabel("node.kubernetes.io/instance-type", "huge"),
            "NodePool p has no instance type huge",
            &[Drifted, Empty],
        ),
        // An annotation that says nothing is in nobody's way.
        (|s| shield(s, "api", "0s"), "", &[Drifted, Empty, Underutilized]),
    ]
};

/// These hide others.
const HIDING: [Case; 9] = {
    use DisruptionReason::{Drifted, Empty, Underutilized};
    [
        (|s| s.claim = None, "no NodeClaim stands behind it", &[]),
        (|s| s.claim().metadata.deletion_timestamp = Some(time(NOW)), "its deletion was asked for", &[]),
        (|s| s.node().metadata.deletion_timestamp = Some(time(NOW)), "its deletion was asked for", &[]),
        (|s| s.node = None, "its NodeClaim has no node yet", &[]),
        (
            |s| _ = s.node().metadata.labels.remove("karpenter.sh/nodepool"),
            "it has no label karpenter.sh/nodepool",
            &[],
        ),
        (|s| s.relabel("karpenter.sh/nodepool", "gone"), "there is no NodePool gone that can be read", &[]),
        (|s| s.types.clear(), "NodePool p has no instance types", &[]),
        (
            |s| _ = s.node().metadata.labels.remove("node.kubernetes.io/instance-type"),
            "it has no label node.kubernetes.io/instance-type",
            &[Drifted, Empty],
        ),
        // It may be deleted, but nothing can be shown to be cheaper.
        (
            |s| s.relabel("topology.kubernetes.io/zone", "b"),
            "it is not known what spot small costs in b",
            &[Drifted, Empty, Underutilized],
        ),
    ]
};

fn shield(scene: &mut Scene, pod: &str, value: &str) {
    let annotations = &mut scene.pod(pod).metadata.annotations;
    annotations.insert("karpenter.sh/do-not-disrupt".to_owned(), value.to_owned());
}

#[test]
fn a_node_that_nothing_keeps_may_go_for_every_reason() {
    let scene = Scene::new();
    assert_eq!(scene.verdict(), (BTreeSet::new(), REASONS.to_vec()));
    let snapshot = scene.snapshot();
    let candidate = scene.candidate();
    let pods: Vec<_> = candidate.pods.iter().map(|&i| snapshot.pods()[i].metadata.name.as_str()).collect();
    assert_eq!(pods, ["api", "leaving", "web"]);
    assert_eq!((candidate.name.as_str(), candidate.claim.as_str(), candidate.pool.as_str()), ("n", "c", "p"));
    assert_eq!(candidate.price_per_hour, Price::per_hour(0.5));
    assert!((candidate.rescheduling_cost - 4.0).abs() < 1e-9, "the node and three pods");
    assert!((candidate.disruption_cost - 5.0 * 0.75).abs() < 1e-9, "all that runs there, at a quarter of its life");
}

#[test]
fn each_obstacle_is_named_and_holds_back_what_it_should() {
    for (obstruct, text, allowed) in CASES.iter().chain(&HIDING) {
        let mut scene = Scene::new();
        obstruct(&mut scene);
        let expected: BTreeSet<String> = Some(*text).filter(|t| !t.is_empty()).map(str::to_owned).into_iter().collect();
        assert_eq!(scene.verdict(), (expected, allowed.to_vec()), "{text}");
    }
}

#[test]
fn a_termination_grace_period_lets_drift_pass_pods_and_nothing_else() {
    for (obstruct, text, allowed) in CASES.iter().chain(&HIDING) {
        let mut scene = Scene::new();
        obstruct(&mut scene);
        if let Some(claim) = &mut scene.claim {
            claim.spec.termination_grace_period = Some("1h".parse().expect("a duration"));
        }
        let drift = [DisruptionReason::Drifted];
        let expected = if text.starts_with("pod ") { &drift } else { *allowed };
        assert_eq!(scene.verdict().1, expected, "{text}");
    }
}

proptest! {
    #[test]
    fn all_that_keeps_a_node_is_named(flags in vec(prop::bool::weighted(0.2), CASES.len()), without in any::<prop::sample::Index>()) {
        let build = |skip: Option<usize>| {
            let mut scene = Scene::new();
            let picked = CASES.iter().enumerate().filter(|(i, _)| flags[*i] && skip != Some(*i));
            let picked: Vec<&Case> = picked.map(|(_, case)| case).collect();
            for (obstruct, ..) in &picked {
                obstruct(&mut scene);
            }
            let texts = picked.iter().map(|(_, text, _)| (*text).to_owned()).filter(|text| !text.is_empty());
            let allowed = REASONS.into_iter().filter(|r| picked.iter().all(|(.., allowed)| allowed.contains(r)));
            (scene.verdict(), (texts.collect::<BTreeSet<_>>(), allowed.collect::<Vec<_>>()))
        };
        let (found, expected) = build(None);
        prop_assert_eq!(found, expected);
        let (found, expected) = build(Some(without.index(CASES.len())));
        prop_assert_eq!(found, expected, "one obstacle was taken away");
    }
}

#[test]
fn a_node_is_quiet_when_pods_have_left_it_alone_for_long_enough() {
    let at = |hour: u32| Some(format!("2026-01-01T{hour:02}:00:00Z"));
    let until =
        |hour: u32| Some(format!("NodePool p has consolidateAfter 2h, which is over at 2026-01-01T{hour}:00:00Z"));
    let unknown = || Some("the condition Consolidatable of its NodeClaim is not True".to_owned());
    for (consolidatable, event, initialized, created, after, expected) in [
        (Some("True"), at(11), at(11), at(11), "2h", None),
        (None, at(11), at(1), at(1), "2h", until(13)),
        (None, at(10), at(11), at(11), "2h", None),
        (None, None, at(11), at(1), "2h", until(13)),
        (None, None, at(10), at(11), "2h", None),
        (None, None, None, at(11), "2h", until(13)),
        (None, None, None, at(1), "2h", None),
        (None, None, None, None, "2h", None),
        (None, at(11), at(11), at(11), "0s", None),
        (None, at(13), None, None, "2h", until(15)),
        (None, at(13), at(13), at(13), "0s", None),
        (Some("False"), at(11), None, None, "2h", until(13)),
        (Some("False"), at(1), None, None, "2h", unknown()),
        (Some("Unknown"), None, None, None, "0s", unknown()),
    ] {
        let mut scene = Scene::new();
        scene.pool.spec.disruption.consolidate_after = after.parse().expect("a duration");
        let condition = |name: &str, status: &str, time: &Option<String>| json!({"type": name, "status": status, "reason": "", "message": "", "lastTransitionTime": time});
        let conditions = consolidatable.map(|status| condition("Consolidatable", status, &None));
        let conditions =
            conditions.into_iter().chain(initialized.is_some().then(|| condition("Initialized", "True", &initialized)));
        scene.claim().status.conditions = conditions.map(read).collect();
        scene.claim().status.last_pod_event_time = event.as_deref().map(time);
        scene.claim().metadata.creation_timestamp = created.as_deref().map(time);
        let (guards, allowed) = scene.verdict();
        assert_eq!(
            guards.into_iter().next(),
            expected,
            "{consolidatable:?} {event:?} {initialized:?} {created:?} {after}"
        );
        assert_eq!(allowed.len(), if expected.is_some() { 1 } else { 3 });
    }
}

#[test]
fn a_pool_that_is_consolidated_when_empty_keeps_nodes_with_pods_however_cheap_they_are_to_move() {
    let mut scene = Scene::new();
    scene.pool.spec.disruption.consolidation_policy = ConsolidationPolicy::WhenEmpty;
    for pod in ["api", "web", "leaving"] {
        let key = "controller.kubernetes.io/pod-deletion-cost".to_owned();
        scene.pod(pod).metadata.annotations.insert(key, "-2147483648".to_owned());
    }
    let candidate = scene.candidate();
    assert_eq!((candidate.pods.len(), candidate.rescheduling_cost <= NODE_COST), (3, true));
    assert!(candidate.allows(DisruptionReason::Drifted) && !candidate.allows(DisruptionReason::Underutilized));
}

#[test]
fn a_pod_that_must_leave_keeps_the_node_that_it_comes_to() {
    let mut scene = Scene::new();
    scene.protect("web", "keep", json!({"maxUnavailable": 1}));
    let mut moving = scene.pod("web").clone();
    (moving.metadata.name, moving.spec.node_name) = ("moving".to_owned(), "m".to_owned());
    scene.pods.push(moving);
    let other = |name: &str| {
        let mut node = scene.node.clone().expect("a node");
        (node.metadata.name, node.spec.provider_id) = (name.to_owned(), name.to_owned());
        node
    };
    let mut leaving = other("m");
    leaving.metadata.deletion_timestamp = Some(time(NOW));
    let builder = scene.builder().node(leaving).node(other("l"));
    let promised = |place: &str| {
        let builder = builder.clone().nominate(ObjectKey::new("default", "moving"), place);
        let snapshot = builder.build().expect("valid");
        (snapshot.pending().len(), Candidates::of(&snapshot, &scene.catalogs(), time(NOW)))
    };
    let (pending, _) = promised("l");
    assert_eq!(pending, 0, "it has a place");
    let (_, candidates) = promised("n");
    assert_eq!(candidates.kept()[2].guards[0].to_string(), "its room was promised to pods: default/moving");
    let (pending, _) = promised("nowhere");
    assert_eq!(pending, 1);
}
