use super::*;
use crate::api::ObjectMeta;

fn read<T: serde::de::DeserializeOwned>(json: &str) -> T {
    serde_json::from_str(json).expect(json)
}

fn bound(name: &str, more: &str) -> Pod {
    read(&format!(
        r#"{{"metadata":{{"name":"{name}"{more}}},"spec":{{"nodeName":"n","containers":[{{"resources":{{"requests":{{"cpu":"1"}}}}}}]}}}}"#
    ))
}

fn node(more: &str) -> Node {
    read(&format!(
        r#"{{"metadata":{{"name":"n"{more}}},"spec":{{"providerID":"id"}},"status":{{"allocatable":{{"cpu":"8","pods":"10"}}}}}}"#
    ))
}

#[test]
fn pods_in_any_order_are_found_by_their_keys() {
    let keys = ["b/x", "a/y", "a/x", "default/z", "b/a"].map(|key| key.parse::<ObjectKey>().expect("a key"));
    let pod = |key: &ObjectKey| {
        // The default namespace need not be written.
        let namespace = if key.namespace == "default" { "" } else { &key.namespace };
        read::<Pod>(&format!(r#"{{"metadata":{{"name":"{}","namespace":"{namespace}"}}}}"#, key.name))
    };
    let pods: Vec<Pod> = keys.iter().map(pod).collect();
    let snapshot = Snapshot::builder().pods(pods[..3].to_vec()).pods(pods[3..].to_vec()).build().expect("valid");
    let names: Vec<_> = snapshot.pods().iter().map(|pod| pod.key().to_string()).collect();
    assert_eq!(names, ["a/x", "a/y", "b/a", "b/x", "default/z"]);
    for key in &keys {
        assert_eq!(snapshot.pod(key).map(Pod::key).as_ref(), Some(key));
    }
    assert_eq!(snapshot.pod(&ObjectKey::new("c", "x")), None);
}

#[test]
fn bound_pods_and_expected_daemons_take_room() {
    let daemonset = |name: &str| {
        read::<DaemonSet>(&format!(
            r#"{{"metadata":{{"name":"{name}","uid":"{name}"}},"spec":{{"template":{{"spec":{{"containers":[{{"resources":{{"requests":{{"cpu":"100m"}}}}}}]}}}}}}}}"#
        ))
    };
    let daemon = r#","ownerReferences":[{"apiVersion":"apps/v1","kind":"DaemonSet","name":"here","uid":"here"}]"#;
    let snapshot = Snapshot::builder()
        .node(node(""))
        .daemonset(daemonset("here"))
        .daemonset(daemonset("coming"))
        .pods(vec![bound("a", ""), bound("d", daemon)])
        .build()
        .expect("valid");
    assert_eq!(snapshot.places()[0].free.to_string(), "cpu 5900m, pods 7");
    assert_eq!(snapshot.pending().len(), 0);
}

#[test]
fn until_a_node_is_initialized_its_claim_stands_in_for_what_it_says_that_it_has_none_of() {
    let claim: NodeClaim = read(
        r#"{"metadata":{"name":"c"},"status":{"providerID":"id","capacity":{"cpu":"8","gpu":"4"},"allocatable":{"cpu":"7","gpu":"4"}}}"#,
    );
    for (initialized, capacity, allocatable) in
        [("false", "cpu 8, gpu 4", "cpu 6, gpu 4"), ("true", "cpu 8, gpu 0", "cpu 6, gpu 0")]
    {
        let node: Node = read(&format!(
            r#"{{"metadata":{{"name":"n","labels":{{"karpenter.sh/initialized":"{initialized}"}}}},"spec":{{"providerID":"id"}},
                "status":{{"capacity":{{"gpu":"0"}},"allocatable":{{"cpu":"6","gpu":"0"}}}}}}"#
        ));
        let snapshot = Snapshot::builder().node(node).claim(claim.clone()).build().expect("valid");
        let place = &snapshot.places()[0];
        let found = (place.capacity.to_string(), place.allocatable.to_string());
        assert_eq!(found, (capacity.to_owned(), allocatable.to_owned()), "{initialized}");
    }
}

#[test]
fn of_claims_that_name_one_machine_a_node_is_of_the_one_that_it_names() {
    let claim = |name: &str, launched: u32| {
        read::<NodeClaim>(&format!(
            r#"{{"metadata":{{"name":"{name}","uid":"{name}"}},"status":{{"providerID":"id","conditions":[
                {{"type":"Launched","status":"True","lastTransitionTime":"2026-01-01T00:00:0{launched}Z"}}]}}}}"#
        ))
    };
    // A claim whose machine is that of a later one has nothing.
    for (owner, expected) in [("a", [Some(""), Some("n")]), ("b", [Some("n"), None]), ("", [Some("n"), None])] {
        let owners = format!(r#","ownerReferences":[{{"kind":"NodeClaim","name":"{owner}","uid":"{owner}"}}]"#);
        let snapshot = Snapshot::builder()
            .node(node(if owner.is_empty() { "" } else { &owners }))
            .claims([claim("a", 1), claim("b", 2)])
            .build()
            .expect("valid");
        let found = ["b", "a"].map(|name| {
            let is_of = |place: &&Place| place.node_claim.as_ref().is_some_and(|claim| claim.name() == name);
            let place = snapshot.places().iter().map(AsRef::as_ref).find(is_of)?;
            Some(place.node.as_ref().map_or("", |node| node.metadata.name.as_str()))
        });
        assert_eq!(found, expected, "{owner:?}");
    }
}

#[test]
fn pods_of_a_node_that_goes_move_unless_something_holds_them() {
    let gone = r#","deletionTimestamp":"2026-01-01T00:00:00Z""#;
    let budget: PodDisruptionBudget = read(
        r#"{"metadata":{"name":"b","namespace":"default"},"spec":{"maxUnavailable":"0%","selector":{"matchLabels":{"app":"held"}}}}"#,
    );
    let owner = r#""ownerReferences":[{"apiVersion":"apps/v1","kind":"StatefulSet"}]"#;
    let snapshot = Snapshot::builder()
        .node(node(gone))
        .budget(budget)
        .pods(vec![
            bound("free", ""),
            bound("held", r#","labels":{"app":"held"}"#),
            bound("stays", r#","annotations":{"karpenter.sh/do-not-disrupt":"true"}"#),
            bound("leaving", gone),
            bound("set", &format!("{gone},{owner}")),
        ])
        .build()
        .expect("valid");
    let pending: Vec<_> = snapshot.pending().map(|p| p.metadata.name.as_str()).collect();
    assert_eq!(pending, ["free", "set"]);
}

#[test]
fn pods_of_a_node_that_goes_stay_for_as_long_as_they_ask_for() {
    let gone = r#","deletionTimestamp":"2026-01-01T00:00:00Z""#;
    for (value, started, now, moves) in [
        ("24h", "2026-01-01T00:00:00Z", "2026-01-01T23:59:59Z", false),
        ("24h", "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z", true),
        ("24h", "", "2026-01-02T00:00:00Z", false),
        ("true", "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z", false),
        ("soon", "2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z", true),
    ] {
        let mut pod = bound("a", &format!(r#","annotations":{{"karpenter.sh/do-not-disrupt":"{value}"}}"#));
        pod.status.start_time = started.parse().ok();
        let builder = Snapshot::builder().node(node(gone)).pods(vec![pod]);
        let snapshot = builder.at(now.parse().expect("a time")).build().expect("valid");
        assert_eq!(snapshot.pending().len(), usize::from(moves), "{value} {started} {now}");
    }
}

#[test]
fn a_launched_claim_is_a_place_and_an_unlaunched_one_keeps_its_promises() {
    let claim: NodeClaim = read(
        r#"{"metadata":{"name":"c","labels":{"karpenter.sh/nodepool":"p"}},"spec":{"startupTaints":[{"key":"s","effect":"NoSchedule"}],"taints":[{"key":"s","effect":"NoSchedule"},{"key":"t","effect":"NoSchedule"}]},"status":{"providerID":"id","allocatable":{"cpu":"4","pods":"10"}}}"#,
    );
    let mut unlaunched = claim.clone();
    unlaunched.metadata.name = "u".to_owned();
    unlaunched.status = crate::api::NodeClaimStatus::default();
    let snapshot = Snapshot::builder()
        .claims([claim, unlaunched])
        .pods(Pod::named("a").cpu("1"))
        .pods(Pod::named("b").cpu("1"))
        .pods(Pod::named("c").cpu("1"))
        .nominate(ObjectKey::new("default", "a"), "c")
        .nominate(ObjectKey::new("default", "b"), "u")
        .nominate(ObjectKey::new("default", "c"), "nowhere")
        .build()
        .expect("valid");
    let place = &snapshot.places()[0];
    assert_eq!(
        (place.name.as_str(), place.pool.as_deref(), place.free.to_string().as_str()),
        ("c", Some("p"), "cpu 3, pods 9")
    );
    assert_eq!(place.taints.iter().map(ToString::to_string).collect::<Vec<_>>(), ["t:NoSchedule"]);
    let place = &snapshot.places()[1];
    assert_eq!((place.name.as_str(), place.is_closed, place.pool.as_deref()), ("u", true, None));
    assert_eq!(place.pods, [ObjectKey::new("default", "b")]);
    assert_eq!(snapshot.places().len(), 2);
    assert_eq!(snapshot.pending().map(Pod::key).collect::<Vec<_>>(), [ObjectKey::new("default", "c")]);
}

#[test]
fn room_that_was_promised_to_a_pod_is_free_again_when_it_ends() {
    let claim: NodeClaim =
        read(r#"{"metadata":{"name":"c"},"status":{"providerID":"other","allocatable":{"cpu":"4","pods":"10"}}}"#);
    let gone = r#","deletionTimestamp":"2026-01-01T00:00:00Z""#;
    let successor = r#","ownerReferences":[{"apiVersion":"apps/v1","kind":"StatefulSet","name":"s","uid":"s"}]"#;
    // The pod of a StatefulSet is its own successor.
    for (more, free) in
        [("", "cpu 3, pods 9"), (gone, "cpu 4, pods 10"), (&format!("{gone}{successor}"), "cpu 3, pods 9")]
    {
        let builder = Snapshot::builder().node(node(gone)).claim(claim.clone()).pods(vec![bound("a", more)]);
        let snapshot = builder.nominate(ObjectKey::new("default", "a"), "c").build().expect("valid");
        assert_eq!((snapshot.places()[0].free.to_string().as_str(), snapshot.pending().len()), (free, 0), "{more}");
    }
}

#[test]
fn what_the_scheduler_nominates_takes_room_and_is_not_planned() {
    let nominated = |name: &str, node: &str, more: &str| {
        read::<Pod>(&format!(
            r#"{{"metadata":{{"name":"{name}"{more}}},"spec":{{"containers":[{{"resources":{{"requests":{{"cpu":"1"}}}},"ports":[{{"hostPort":80}}]}}]}},"status":{{"nominatedNodeName":"{node}","conditions":[{{"type":"PodScheduled","status":"False","reason":"Unschedulable"}}]}}}}"#
        ))
    };
    let gone = r#","deletionTimestamp":"2026-01-01T00:00:00Z""#;
    for (of_node, of_pod, on, free, pending) in [
        ("", "", "n", "cpu 7, pods 9", 0),
        ("", gone, "n", "cpu 8, pods 10", 0),
        ("", "", "elsewhere", "cpu 8, pods 10", 0),
        ("", "", "", "cpu 8, pods 10", 1),
        (gone, "", "n", "cpu 7, pods 9", 0),
    ] {
        let pods = vec![nominated("a", on, of_pod)];
        let snapshot = Snapshot::builder().node(node(of_node)).pods(pods).build().expect("valid");
        let place = &snapshot.places()[0];
        let found = (place.free.to_string(), place.host_ports.len() == place.pods.len(), snapshot.pending().len());
        assert_eq!(found, (free.to_owned(), true, pending), "{of_node} {of_pod} {on}");
    }
}

#[test]
fn a_namespace_has_a_label_of_its_name() {
    let namespace = |labels: &str| read::<Namespace>(&format!(r#"{{"metadata":{{"name":"n","labels":{labels}}}}}"#));
    for (labels, expected) in [
        ("null", r#"{"n": {"kubernetes.io/metadata.name": "n"}}"#),
        (r#"{"a":"b"}"#, r#"{"n": {"a": "b", "kubernetes.io/metadata.name": "n"}}"#),
        (r#"{"kubernetes.io/metadata.name":"n"}"#, r#"{"n": {"kubernetes.io/metadata.name": "n"}}"#),
    ] {
        let snapshot = Snapshot::builder().namespaces([namespace(labels)]).build().expect("valid");
        assert_eq!(format!("{:?}", snapshot.namespaces()), expected);
    }
}

#[test]
fn a_namespace_of_which_only_pods_are_known_has_a_label_of_its_name() {
    let pod = |namespace: &str, name: &str| Pod::named(name).namespace(namespace);
    let known: Namespace = read(r#"{"metadata":{"name":"b","labels":{"x":"y"}}}"#);
    let builder = Snapshot::builder().namespaces([known]).pods(pod("c", "p")).pods(pod("a", "p")).pods(pod("b", "p"));
    let labels = |snapshot: &Snapshot| format!("{:?}", snapshot.namespaces().values().collect::<Vec<_>>());
    let snapshot = builder.pods(pod("a", "q")).build().expect("valid");
    let named = |name: &str| format!(r#"{{"kubernetes.io/metadata.name": "{name}"}}"#);
    let of_b = r#"{"kubernetes.io/metadata.name": "b", "x": "y"}"#;
    assert_eq!(labels(&snapshot), format!("[{}, {of_b}, {}]", named("a"), named("c")));
    let later = snapshot.with_pending(pod("d", "p")).expect("pending");
    assert_eq!(labels(&later), format!("[{}, {of_b}, {}, {}]", named("a"), named("c"), named("d")));
}

#[test]
fn mistakes_are_named() {
    let build = |builder: SnapshotBuilder| builder.build().map(|_| ()).map_err(|e| e.to_string());
    let twice = Snapshot::builder().pods(Pod::named("a")).pods(Pod::named("a"));
    assert_eq!(build(twice), Err("Pod default/a: metadata.name: there is another Pod of this name".to_owned()));
    assert_eq!(
        build(Snapshot::builder().pods(Pod::named("a").cpu("1x"))).map_err(|e| e[..60].to_owned()),
        Err("Pod default/a: spec.containers[0].resources.requests.cpu: in".to_owned())
    );
    let claim = |json: &str| read::<PersistentVolumeClaim>(json);
    let claims = [claim(r#"{"metadata":{"name":"c"}}"#), claim(r#"{"metadata":{"name":"c","namespace":"default"}}"#)];
    assert_eq!(
        build(Snapshot::builder().volume_claims(claims)),
        Err("PersistentVolumeClaim default/c: metadata.name: there is another PersistentVolumeClaim of this name"
            .to_owned())
    );
    let node = || CsiNode { metadata: ObjectMeta::named("n"), ..CsiNode::default() };
    assert_eq!(
        build(Snapshot::builder().csi_nodes([node(), node()])),
        Err("CSINode n: metadata.name: there is another CSINode of this name".to_owned())
    );
    assert_eq!(
        build(Snapshot::builder().namespaces([Namespace::default()])),
        Err("Namespace: metadata.name: must not be empty".to_owned())
    );
    assert_eq!(
        build(Snapshot::builder().pool(NodePool::named(""))),
        Err("NodePool: metadata.name: must not be empty".to_owned())
    );
}
