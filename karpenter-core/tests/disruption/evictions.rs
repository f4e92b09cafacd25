//! What the disruption budgets of pods allow.

use std::collections::BTreeMap;

use karpenter_core::{
    Snapshot,
    api::{ObjectKey, Pod, PodDisruptionBudget},
    disrupt::{EvictionLimits, Toll},
};
use proptest::{collection::vec, prelude::*, sample::select};
use serde_json::{Value, json};

fn read<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("as the API has it")
}

/// A pod of the app `web`: `r`eady, `u`nready, `s`aying nothing of it, `p`ending, without a `n`ode, `f`inished or
/// `l`eaving.
fn pod(name: usize, state: char) -> Pod {
    let ready = |status: &str| json!([{"type": "Ready", "status": status, "reason": "", "message": ""}]);
    let mut pod = json!({
        "metadata": {"name": format!("web-{name}"), "labels": {"app": "web"}},
        "spec": {"nodeName": "n", "containers": []},
        "status": {"phase": "Running", "conditions": ready("True")},
    });
    match state {
        'u' => pod["status"]["conditions"] = ready("False"),
        's' => pod["status"]["conditions"] = json!([]),
        'p' => pod["status"] = json!({"phase": "Pending"}),
        'n' => pod["spec"]["nodeName"] = json!(""),
        'f' => pod["status"]["phase"] = json!("Succeeded"),
        'l' => pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z"),
        _ => assert_eq!(state, 'r'),
    }
    read(pod)
}

/// A budget of the app `web` with this rule.
fn budget(rule: &Value, status: &Value) -> PodDisruptionBudget {
    let mut budget = json!({"metadata": {"name": "web"}, "spec": rule, "status": status});
    budget["spec"]["selector"] = json!({"matchLabels": {"app": "web"}});
    read(budget)
}

fn snapshot(states: &str, budget: PodDisruptionBudget) -> Snapshot {
    let pods: Vec<Pod> = states.chars().enumerate().map(|(i, state)| pod(i, state)).collect();
    Snapshot::builder().pods(pods).budget(budget).build().expect("valid")
}

#[test]
fn a_budget_that_nobody_counted_for_is_counted_for_as_the_controller_would() {
    for (rule, states, (allowed, healthy, desired, expected)) in [
        (json!({"maxUnavailable": 1}), "rrr", (1, 3, 2, 3)),
        (json!({"maxUnavailable": 1}), "rru", (0, 2, 2, 3)),
        (json!({"maxUnavailable": 1}), "sss", (1, 3, 2, 3)),
        (json!({"maxUnavailable": 0}), "rrr", (0, 3, 3, 3)),
        (json!({"maxUnavailable": 9}), "rrr", (3, 3, 0, 3)),
        (json!({"maxUnavailable": "30%"}), "rrrrrrr", (3, 7, 4, 7)),
        (json!({"maxUnavailable": "100%"}), "rru", (2, 2, 0, 3)),
        (json!({"minAvailable": 2}), "rrr", (1, 3, 2, 3)),
        (json!({"minAvailable": 5}), "rrr", (0, 3, 5, 3)),
        (json!({"minAvailable": 0}), "rr", (2, 2, 0, 2)),
        (json!({"minAvailable": "50%"}), "rrrrrrr", (3, 7, 4, 7)),
        (json!({"minAvailable": "100%"}), "rr", (0, 2, 2, 2)),
        (json!({"minAvailable": 1}), "rrpn", (1, 2, 1, 4)),
        (json!({"maxUnavailable": 1}), "rrfl", (1, 2, 1, 2)),
        (json!({"minAvailable": 0}), "", (0, 0, 0, 0)),
        (json!({}), "rr", (0, 2, 0, 2)),
    ] {
        for status in [Value::Null, json!({})] {
            let snapshot = snapshot(states, budget(&rule, &status));
            let limits = EvictionLimits::of(&snapshot);
            let limit = &limits.all()[0];
            let found = (limit.allowed, limit.healthy, limit.desired_healthy, limit.expected);
            assert_eq!(found, (allowed, healthy, desired, expected), "{rule} {states}");
        }
    }
}

#[test]
fn what_was_counted_stands_until_the_budget_is_changed() {
    let rule = json!({"maxUnavailable": 1});
    let never_more = snapshot("rrr", budget(&rule, &json!({"disruptionsAllowed": 0})));
    assert_eq!(EvictionLimits::of(&never_more).all()[0].allowed, 0);
    let status = |seen: Option<i64>| json!({"disruptionsAllowed": 2, "currentHealthy": 9, "desiredHealthy": 7, "expectedPods": 9, "observedGeneration": seen});
    for (seen, generation, allowed, text) in [
        (
            Some(1),
            Some(1),
            2,
            "PodDisruptionBudget default/web has disruptionsAllowed 2 (9 of 9 pods are healthy, 7 must be)",
        ),
        (
            None,
            Some(4),
            2,
            "PodDisruptionBudget default/web has disruptionsAllowed 2 (9 of 9 pods are healthy, 7 must be)",
        ),
        (
            Some(3),
            Some(4),
            0,
            "PodDisruptionBudget default/web has disruptionsAllowed 0 (it was changed and has not been counted for again)",
        ),
    ] {
        let mut budget = budget(&rule, &status(seen));
        budget.metadata.generation = generation;
        let snapshot = snapshot("r", budget);
        let limits = EvictionLimits::of(&snapshot);
        assert_eq!((limits.all()[0].allowed, limits.all()[0].to_string()), (allowed, text.to_owned()));
    }
}

#[test]
fn pods_that_are_not_ready_go_as_the_policy_says() {
    let status = |allowed: i32, healthy: i32, desired: i32| json!({"disruptionsAllowed": allowed, "currentHealthy": healthy, "desiredHealthy": desired, "expectedPods": 3, "observedGeneration": 1});
    for (policy, state, status, is_free) in [
        (Value::Null, 'r', status(0, 2, 2), false),
        (Value::Null, 's', status(0, 2, 2), false),
        (Value::Null, 'u', status(0, 2, 2), true),
        (Value::Null, 'u', status(0, 1, 2), false),
        (Value::Null, 'u', status(0, 0, 0), false),
        (json!("IfHealthyBudget"), 'u', status(0, 2, 2), true),
        (json!("IfHealthyBudget"), 'u', status(0, 1, 2), false),
        (json!("AlwaysAllow"), 'u', status(0, 1, 2), true),
        (json!("AlwaysAllow"), 'r', status(0, 1, 2), false),
        (json!("AlwaysAllow"), 's', status(0, 1, 2), false),
        (Value::Null, 'p', status(0, 1, 2), true),
        (Value::Null, 'f', status(0, 1, 2), true),
        (Value::Null, 'l', status(0, 1, 2), true),
    ] {
        let rule = json!({"maxUnavailable": 1, "unhealthyPodEvictionPolicy": policy});
        let snapshot = snapshot(&state.to_string(), budget(&rule, &status));
        let limits = EvictionLimits::of(&snapshot);
        assert_eq!(limits.toll(0) == Toll::Free, is_free, "{policy} {state} {:?}", limits.all());
    }
}

#[test]
fn a_budget_selects_pods_of_its_own_namespace_by_its_selector() {
    let other = |namespace: &str| {
        let mut pod = pod(0, 'r');
        pod.metadata.namespace = namespace.into();
        pod
    };
    let spec = |selector: Value| json!({"maxUnavailable": 0, "selector": selector});
    for (pod, spec, is_free) in [
        (other(""), spec(json!({"matchLabels": {"app": "web"}})), false),
        (other("default"), spec(json!({})), false),
        (other("default"), spec(Value::Null), true),
        (other("default"), spec(json!({"matchLabels": {"app": "api"}})), true),
        (other("team-b"), spec(json!({})), true),
    ] {
        let budget = read(json!({"metadata": {"name": "b"}, "spec": spec}));
        let snapshot = Snapshot::builder().pods(pod).budget(budget).build().expect("valid");
        assert_eq!(EvictionLimits::of(&snapshot).toll(0) == Toll::Free, is_free, "{spec}");
    }
}

#[test]
fn pods_of_several_budgets_cannot_be_evicted() {
    let named = |name: &str| {
        let mut budget = budget(&json!({"maxUnavailable": 5}), &Value::Null);
        budget.metadata.name = name.to_owned();
        budget
    };
    let pods = vec![pod(0, 'r'), pod(1, 'p')];
    let snapshot = Snapshot::builder().pods(pods).budget(named("a")).budget(named("b")).build().expect("valid");
    let limits = EvictionLimits::of(&snapshot);
    assert_eq!(limits.toll(1), Toll::Free, "it is pending");
    let both = ["a", "b"].map(|name| ObjectKey::new("default", name));
    assert_eq!(limits.toll(0), Toll::Refused(&both));
}

/// Pods and budgets of which some have something to do with each other.
fn cluster() -> impl Strategy<Value = Snapshot> {
    let of_pod = (select(vec!["a", "b"]), select(vec!["x", "y", "z"]), select(vec!['r', 'r', 'r', 'u', 'p', 'l']));
    let of_budget = (
        select(vec!["a", "b"]),
        select(vec![
            json!({"matchLabels": {"app": "x"}}),
            json!({"matchLabels": {"app": "y"}}),
            json!({"matchExpressions": [{"key": "app", "operator": "In", "values": ["y", "z"]}]}),
        ]),
        select(vec![
            json!({"maxUnavailable": 1}),
            json!({"maxUnavailable": "50%"}),
            json!({"minAvailable": 1}),
            json!({"maxUnavailable": 2, "unhealthyPodEvictionPolicy": "AlwaysAllow"}),
        ]),
        prop::option::of(0..3),
    );
    (vec(of_pod, 1..14), vec(of_budget, 0..4)).prop_map(|(pods, budgets)| {
        let pods = pods.into_iter().enumerate().map(|(i, (namespace, app, state))| {
            let mut pod = pod(i, state);
            pod.metadata.namespace = namespace.into();
            pod.metadata.labels = BTreeMap::from([("app".to_owned(), app.to_owned())]);
            pod
        });
        let mut builder = Snapshot::builder().pods(pods.collect::<Vec<_>>());
        for (i, (namespace, selector, mut spec, allowed)) in budgets.into_iter().enumerate() {
            spec["selector"] = selector;
            let status =
                allowed.map(|n| json!({"disruptionsAllowed": n, "currentHealthy": n, "observedGeneration": 1}));
            let meta = json!({"name": format!("b{i}"), "namespace": namespace});
            builder = builder.budget(read(json!({"metadata": meta, "spec": spec, "status": status})));
        }
        builder.build().expect("valid")
    })
}

/// Whether all these pods may be evicted, one after the other if need be, by the limits and the rules of the eviction API, one budget
/// after the other.
fn allowed_by_hand(snapshot: &Snapshot, limits: &EvictionLimits, pods: &[usize]) -> bool {
    let selects = |b: &PodDisruptionBudget, pod: &Pod| {
        b.metadata.namespace == pod.metadata.namespace
            && b.spec.selector.as_ref().is_some_and(|s| s.matches(&pod.metadata.labels))
    };
    let pods = pods.iter().map(|&i| snapshot.pods()[i].as_ref());
    let checked = pods.filter(|pod| pod.status.phase == "Running" && pod.metadata.deletion_timestamp.is_none());
    let checked: Vec<&Pod> = checked.collect();
    let is_ready = |pod: &Pod| pod.status.conditions[0].status == karpenter_core::api::ConditionStatus::True;
    let single = |pod: &&Pod| snapshot.budgets().iter().filter(|b| selects(b, pod)).count() < 2;
    let holds = |(budget, limit): (&PodDisruptionBudget, &karpenter_core::disrupt::EvictionLimit)| {
        let always = budget.spec.unhealthy_pod_eviction_policy.is_some();
        let enough = limit.desired_healthy > 0 && limit.healthy >= limit.desired_healthy;
        let counts = |pod: &&&Pod| selects(budget, pod) && (is_ready(pod) || !always && !enough);
        limit.allowed > 0 || checked.iter().filter(counts).count() == 0
    };
    checked.iter().all(single) && snapshot.budgets().iter().zip(limits.all()).all(holds)
}

proptest! {
    #[test]
    fn pods_may_go_exactly_if_counting_by_hand_says_so(snapshot in cluster(), mask in any::<u16>()) {
        let limits = EvictionLimits::of(&snapshot);
        let pods: Vec<usize> = (0..snapshot.pods().len()).filter(|i| mask & (1 << i) != 0).collect();
        let may_go = |&pod: &usize| match limits.toll(pod) {
            Toll::Free => true,
            Toll::One(limit) => limit.allowed > 0,
            _ => false,
        };
        prop_assert_eq!(pods.iter().all(may_go), allowed_by_hand(&snapshot, &limits, &pods));
    }
}
