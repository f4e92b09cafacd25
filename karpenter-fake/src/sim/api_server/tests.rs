use karpenter_core::{
    api::{NodePool, PodDisruptionBudget, UnhealthyPodEvictionPolicy},
    engine::ObjectRef,
};

use super::*;

fn claim(finalizers: &[&str]) -> NodeClaim {
    let mut claim = NodeClaim::named("one");
    claim.metadata.finalizers = finalizers.iter().map(|&f| f.to_owned()).collect();
    claim
}

fn running(name: &str, is_ready: bool) -> Pod {
    let ready = if is_ready { "True" } else { "False" };
    serde_json::from_str(&format!(
        r#"{{"metadata":{{"name":"{name}","labels":{{"app":"web"}}}},"spec":{{"nodeName":"n"}},
            "status":{{"phase":"Running","conditions":[{{"type":"Ready","status":"{ready}"}}]}}}}"#
    ))
    .expect("a pod")
}

fn budget(name: &str, policy: UnhealthyPodEvictionPolicy, counts: (i32, i32, i32)) -> PodDisruptionBudget {
    let (allowed, healthy, desired) = counts;
    let json = r#"{"metadata":{"name":"b","namespace":"default"},"spec":{"selector":{"matchLabels":{"app":"web"}}}}"#;
    let mut budget: PodDisruptionBudget = serde_json::from_str(json).expect("a budget");
    name.clone_into(&mut budget.metadata.name);
    budget.spec.unhealthy_pod_eviction_policy = Some(policy);
    budget.status.disruptions_allowed = Some(allowed);
    budget.status.current_healthy = healthy;
    budget.status.desired_healthy = desired;
    budget.status.observed_generation = Some(1);
    budget
}

#[test]
fn objects_get_an_identity_and_keep_it() {
    let mut api = ApiServer::default();
    api.set_now(Timestamp::from_millis(5));
    let made = api.create(claim(&[])).expect("new");
    assert_eq!(made.metadata.creation_timestamp, Some(Timestamp::from_millis(5)));
    assert_eq!((made.metadata.generation, made.metadata.resource_version.as_str()), (Some(1), "1"));
    assert_eq!(api.create(claim(&[])), Err(Refusal::AlreadyExists));
    assert!(matches!(api.create(NodeClaim::default()), Err(Refusal::Invalid(_))));

    let mut other = NodeClaim::clone(&made);
    other.metadata.uid = "another".to_owned();
    assert_eq!(api.update(other), Err(Refusal::NotFound));
    api.delete::<NodeClaim>(&cluster_key("one"), &made.metadata.uid).expect("there");
    let again = api.create(claim(&[])).expect("the name is free");
    assert_ne!(again.metadata.uid, made.metadata.uid);
}

#[test]
fn only_changes_of_the_specification_count_as_generations_and_no_change_counts_as_nothing() {
    let mut api = ApiServer::default();
    let made = api.create(claim(&[])).expect("new");
    let same = api.update(NodeClaim::clone(&made)).expect("nothing changed");
    assert_eq!(same.metadata.resource_version, made.metadata.resource_version);
    let key = cluster_key("one");
    let status = api.modify::<NodeClaim>(&key, |c| c.status.node_name = "n".to_owned()).expect("there");
    assert_eq!(status.metadata.generation, Some(1));
    let spec = api.modify::<NodeClaim>(&key, |c| c.spec.node_class_ref.name = "x".to_owned()).expect("there");
    assert_eq!(spec.metadata.generation, Some(2));
    assert_eq!(api.update(NodeClaim::clone(&made)), Err(Refusal::Conflict));
}

#[test]
fn finalizers_hold_an_object_until_the_last_is_gone() {
    let mut api = ApiServer::default();
    let made = api.create(claim(&["a", "b"])).expect("new");
    let key = cluster_key("one");
    api.set_now(Timestamp::from_millis(9));
    api.delete::<NodeClaim>(&key, &made.metadata.uid).expect("there");
    api.set_now(Timestamp::from_millis(20));
    api.delete::<NodeClaim>(&key, "").expect("deleting twice is fine");
    let leaving = api.claim("one").expect("held").clone();
    assert_eq!(leaving.metadata.deletion_timestamp, Some(Timestamp::from_millis(9)));
    let more = api.modify::<NodeClaim>(&key, |c| c.metadata.finalizers.push("c".to_owned()));
    assert_eq!(more, None);
    api.modify::<NodeClaim>(&key, |c| c.metadata.finalizers.retain(|f| f != "a")).expect("one is left");
    assert!(api.claim("one").is_some());
    api.modify::<NodeClaim>(&key, |c| c.metadata.finalizers.clear()).expect("the last one");
    assert_eq!(api.claim("one"), None);
}

#[test]
fn pods_get_time_to_end_and_less_if_asked_again() {
    let mut api = ApiServer::default();
    let pod = api.create(running("p", true)).expect("new");
    let due = |api: &ApiServer| api.get::<Pod>(&pod.key()).and_then(|p| p.metadata.deletion_timestamp);
    api.delete_pod(&pod.key(), "", None).expect("there");
    assert_eq!(due(&api), Some(Timestamp::from_millis(30_000)));
    api.delete_pod(&pod.key(), "", Some(Duration::from_mins(1))).expect("there");
    assert_eq!(due(&api), Some(Timestamp::from_millis(30_000)), "never later");
    api.delete_pod(&pod.key(), "", Some(Duration::from_secs(1))).expect("there");
    assert_eq!(due(&api), Some(Timestamp::from_millis(1_000)));
    api.confirm_end(&pod.key(), "another");
    assert!(due(&api).is_some());
    api.confirm_end(&pod.key(), &pod.metadata.uid);
    assert_eq!(api.get::<Pod>(&pod.key()), None);

    let unbound = api.create(Pod::named("q").into_one()).expect("new");
    api.delete_pod(&unbound.key(), &unbound.metadata.uid, None).expect("there");
    assert_eq!(api.get::<Pod>(&unbound.key()), None);
}

trait IntoOne {
    fn into_one(self) -> Pod;
}

impl IntoOne for karpenter_core::api::PodBuilder {
    fn into_one(self) -> Pod {
        karpenter_core::api::Workload::from(self).into_pods().expect("well written").remove(0)
    }
}

#[test]
fn evictions_go_by_the_budget() {
    use UnhealthyPodEvictionPolicy::{AlwaysAllow, IfHealthyBudget};
    for (policy, counts, is_ready, expected) in [
        (IfHealthyBudget, (1, 3, 2), true, true),
        (IfHealthyBudget, (0, 2, 2), true, false),
        (IfHealthyBudget, (0, 2, 2), false, true),
        (IfHealthyBudget, (0, 1, 2), false, false),
        (IfHealthyBudget, (0, 0, 0), false, false),
        (AlwaysAllow, (0, 1, 2), false, true),
        (AlwaysAllow, (0, 1, 2), true, false),
    ] {
        let mut api = ApiServer::default();
        let pod = api.create(running("p", is_ready)).expect("new");
        api.create(budget("b", policy, counts)).expect("new");
        let evicted = api.evict(&pod.key(), &pod.metadata.uid);
        assert_eq!(evicted.is_ok(), expected, "{policy:?} {counts:?} {is_ready}: {evicted:?}");
        let left = api.list::<PodDisruptionBudget>().next().and_then(|b| b.status.disruptions_allowed);
        assert_eq!(left, Some(counts.0 - i32::from(expected && is_ready)));
    }
}

#[test]
fn evictions_wait_for_the_count_and_for_a_single_budget() {
    let mut api = ApiServer::default();
    let pod = api.create(running("p", true)).expect("new");
    let mut uncounted = budget("b", UnhealthyPodEvictionPolicy::IfHealthyBudget, (1, 3, 2));
    uncounted.status.observed_generation = None;
    api.create(uncounted).expect("new");
    assert!(matches!(api.evict(&pod.key(), ""), Err(Refusal::TooManyRequests(_))));
    api.create(budget("c", UnhealthyPodEvictionPolicy::AlwaysAllow, (9, 9, 0))).expect("new");
    assert!(matches!(api.evict(&pod.key(), ""), Err(Refusal::TooManyRequests(_))));
    assert_eq!(api.evict(&pod.key(), "another"), Err(Refusal::NotFound));
    api.modify::<Pod>(&pod.key(), |p| p.status.phase = "Pending".to_owned());
    assert_eq!(api.evict(&pod.key(), ""), Ok(()), "it has not started");
}

#[test]
fn a_watch_tells_everything_in_order_and_starts_anew_when_it_was_lost() {
    let mut api = ApiServer::default();
    api.create(NodePool::named("before")).expect("new");
    assert!(api.take_events().is_empty(), "nobody listens");
    api.connect();
    api.create(claim(&[])).expect("new");
    api.delete::<NodeClaim>(&cluster_key("one"), "").expect("there");
    let told: Vec<String> = api.take_events().iter().map(word).collect();
    assert_eq!(told, ["relist", "applied before", "synced", "applied one", "deleted one"]);
    api.disconnect();
    api.create(NodePool::named("after")).expect("new");
    assert!(api.take_events().is_empty());
    api.connect();
    let told: Vec<String> = api.take_events().iter().map(word).collect();
    assert_eq!(told, ["relist", "applied after", "applied before", "synced"]);
}

fn word(event: &Event) -> String {
    match event {
        Event::Applied(Object::NodePool(pool)) => format!("applied {}", pool.name()),
        Event::Applied(Object::NodeClaim(claim)) => format!("applied {}", claim.name()),
        Event::Deleted(ObjectRef::NodeClaim(name)) => format!("deleted {name}"),
        Event::Relist => "relist".to_owned(),
        Event::Synced => "synced".to_owned(),
        other => format!("{other:?}"),
    }
}
