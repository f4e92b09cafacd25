//! Answers about single pods.

use serde_json::{Value, json};

use crate::common::{CATALOG, Files, POOL, list, node, pod};

/// The usual type, a smaller one and one in another zone.
fn catalog() -> String {
    let small = CATALOG.replace("m-4x", "m-2x").replace(r#""cpu":"4""#, r#""cpu":"2""#).replace("0.2", "0.11");
    let far = CATALOG.replace("m-4x", "m-64x").replace(r#""cpu":"4""#, r#""cpu":"64""#).replace("zone-a", "zone-b");
    let inner = |text: &str| text.trim_start_matches('[').trim_end_matches(']').to_owned();
    format!("[{},{},{}]", inner(CATALOG), inner(&small), inner(&far.replace("0.2", "3.2")))
}

/// Two pools, one of them tainted, and three nodes, one of them tainted and one without room.
fn files(test: &str) -> Files {
    let files = Files::new(test);
    files.write("types.json", &catalog());
    let tainted = POOL.replace(r#""name":"general""#, r#""name":"tainted""#).replace(
        r#""requirements":["#,
        r#""taints":[{"key":"dedicated","value":"db","effect":"NoSchedule"}],"requirements":["#,
    );
    let in_zone = r#""spec":{"nodeSelector":{"topology.kubernetes.io/zone":"zone-a"},"#;
    let huge = pod("huge", "48").replace(r#""spec":{"#, in_zone);
    let other = pod("small", "1").replace(r#""namespace":"default""#, r#""namespace":"shop""#);
    let runs = pod("runs", "1500m").replace(r#""spec":{"#, r#""spec":{"nodeName":"full","#);
    let gated = pod("gated", "1").replace("Unschedulable", "SchedulingGated");
    let fresh = pod("fresh", "1").replace("Unschedulable", "");
    let done = pod("done", "1").replace(r#""phase":"Pending""#, r#""phase":"Succeeded""#);
    let unbound = r#""spec":{"volumes":[{"name":"v","persistentVolumeClaim":{"claimName":"data"}}],"#;
    let no_claim = pod("no-claim", "1").replace(r#""spec":{"#, unbound);
    let cordoned = node("cordoned").replace(r#""spec":{"#, r#""spec":{"unschedulable":true,"#);
    let labelled = node("free").replace(r#""labels":{"#, r#""labels":{"topology.kubernetes.io/zone":"zone-a","#);
    let objects = [
        POOL.to_owned(),
        tainted,
        labelled,
        node("full"),
        cordoned,
        huge,
        other,
        runs,
        gated,
        fresh,
        done,
        no_claim,
        pod("a", "3"),
        pod("b", "500m"),
        pod("c", "500m"),
        pod("bad", "1x"),
    ];
    files.write("cluster.json", &list(&objects.each_ref().map(String::as_str)));
    files
}

const ALL: &str = "a default/b huge shop/small runs gated fresh done no-claim bad";

fn ask(files: &Files, pods: &str) -> Value {
    files.json(&format!("explain {pods} --cluster cluster.json --catalog types.json -o json"))
}

#[test]
fn answers_are_paragraphs() {
    let files = files("explain");
    let ran = files.run(&format!("explain {ALL} --cluster cluster.json --catalog types.json"));
    let warning = "karpenter: Pod default/fresh: left alone, because the kube-scheduler has not refused it\n";
    assert_eq!((ran.code, ran.err.as_str()), (Some(0), warning));
    assert_eq!(ran.out, include_str!("explain.txt"));
}

#[test]
fn answers_are_one_json_object_a_pod() {
    let files = files("explain-json");
    let answers = ask(&files, ALL);
    let text = serde_json::to_string_pretty(&answers).unwrap() + "\n";
    assert_eq!(text, include_str!("explain.json"));
    let ran = files.run(&format!("explain {ALL} --cluster cluster.json --catalog types.json -o yaml"));
    assert_eq!(serde_saphyr::from_str::<Value>(&ran.out).unwrap(), answers);
}

#[test]
fn a_rule_about_neighbours_is_named_with_its_operands() {
    let files = Files::new("explain-topology");
    let near = r#""spec":{"affinity":{"podAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":[
        {"topologyKey":"topology.kubernetes.io/zone","labelSelector":{"matchLabels":{"app":"db"}}}]}},"#;
    files.write("cluster.json", &list(&[POOL, &pod("lonely", "1").replace(r#""spec":{"#, near)]));
    let answer = &ask(&files, "lonely")[0];
    assert_eq!(answer["reason"], json!({"kind": "affinity", "key": "topology.kubernetes.io/zone", "domains": []}));
    let text = files.run("explain lonely --cluster cluster.json --catalog types.json").out;
    assert_eq!(
        text,
        "default/lonely: without a place: affinity over topology.kubernetes.io/zone: no domain has the pods\n    \
         that it must be near to, running or planned\n"
    );
}

#[test]
fn what_was_left_out_is_said_beside_every_answer() {
    let files = Files::new("explain-left-out");
    let bad = POOL.replacen(r#""spec":{"#, r#""spec":{"weight":"10","#, 1);
    files.write("cluster.json", &list(&[&bad, &node("n"), &pod("a", "1")]));
    let warning = "karpenter: cluster.json: NodePool general: spec.weight: invalid type: string \"10\", expected a \
                   whole number from 0 to 4294967295 \
                   (the pool is left out)\n";
    for question in ["a", "a -o json", "--node n"] {
        let ran = files.run(&format!("explain {question} --cluster cluster.json --catalog types.json"));
        assert_eq!((ran.code, ran.err.as_str()), (Some(0), warning), "{question}");
    }
}

#[test]
fn a_pod_for_which_room_is_made_is_told_apart_from_one_that_was_not_refused() {
    let files = Files::new("explain-nominated");
    let preempts = pod("a", "1").replace(r#""phase":"Pending""#, r#""phase":"Pending","nominatedNodeName":"n""#);
    let document = files.plan(&list(&[POOL, &node("n"), &preempts]));
    let warning = "Pod default/a: left alone, because the kube-scheduler makes room for it on a node";
    assert_eq!((&document["pods"], &document["warnings"]), (&json!(0), &json!([warning])));
    assert_eq!(ask(&files, "a")[0]["message"], "the kube-scheduler makes room for it on node n");
}

#[test]
fn what_a_pod_asks_for_and_no_node_can_be_is_named() {
    let files = Files::new("explain-unmeetable");
    let in_b = r#"{"matchExpressions":[{"key":"topology.kubernetes.io/zone","operator":"In","values":["zone-b"]}]}"#;
    let volume = format!(
        r#"{{"apiVersion":"v1","kind":"PersistentVolume","metadata":{{"name":"v"}},"spec":{{"nodeAffinity":{{"required":
        {{"nodeSelectorTerms":[{in_b}]}}}},"csi":{{"driver":"d","volumeHandle":"h"}}}}}}"#
    );
    let claim = r#"{"apiVersion":"v1","kind":"PersistentVolumeClaim","metadata":{"name":"c","namespace":"default",
        "annotations":{"pv.kubernetes.io/bind-completed":"yes"}},"spec":{"volumeName":"v"},"status":{"phase":"Bound"}}"#;
    let affinity = format!(
        r#""affinity":{{"nodeAffinity":{{"requiredDuringSchedulingIgnoredDuringExecution":{{"nodeSelectorTerms":[{in_b}]}}}}}}"#
    );
    let with_volume = r#""volumes":[{"name":"v","persistentVolumeClaim":{"claimName":"c"}}]"#;
    for (and, for_volumes) in [(affinity.as_str(), false), (with_volume, true)] {
        let spec = format!(r#""spec":{{"nodeSelector":{{"topology.kubernetes.io/zone":"zone-a"}},{and},"#);
        let waits = pod("a", "1").replace(r#""spec":{"#, &spec);
        files.write("cluster.json", &list(&[POOL, &volume, claim, &waits]));
        let answer = &ask(&files, "a")[0];
        assert_eq!(answer["reason"], json!({"kind": "unmeetable", "forVolumes": for_volumes}), "{answer}");
    }
}

#[test]
fn values_that_limits_leave_too_few_of_are_named() {
    let files = Files::new("explain-values");
    files.write("types.json", &catalog());
    let wants = r#""requirements":[{"key":"node.kubernetes.io/instance-type","operator":"Exists","minValues":3},"#;
    let pool =
        POOL.replacen(r#""spec":{"#, r#""spec":{"limits":{"cpu":"4"},"#, 1).replacen(r#""requirements":["#, wants, 1);
    files.write("cluster.json", &list(&[&pool, &pod("a", "1")]));
    let obstacles = &ask(&files, "a")[0]["pools"][0]["obstacles"];
    let values = obstacles.as_array().unwrap().iter().find(|one| one["kind"] == "minValues").unwrap();
    assert_eq!((&values["minValues"], &values["available"], &values["count"]), (&json!(3), &json!(2), &json!(2)));
}

#[test]
fn a_pod_that_is_named_twice_is_answered_once() {
    let files = files("explain-twice");
    let answers = ask(&files, "huge default/huge");
    assert_eq!(answers.as_array().unwrap().len(), 1);
    assert_eq!(answers[0]["pod"], "default/huge");
}

#[test]
fn an_unknown_pod_is_an_error() {
    let files = files("explain-unknown");
    for (pods, expected) in [
        ("a nobody", "karpenter: Pod default/nobody: is not in the cluster\n"),
        ("small", "karpenter: Pod default/small: is not in the cluster (there is shop/small)\n"),
        ("shop/bad", "karpenter: Pod shop/bad: is not in the cluster (there is default/bad)\n"),
    ] {
        let ran = files.run(&format!("explain {pods} --cluster cluster.json --catalog types.json"));
        assert_eq!((ran.code, ran.out.as_str(), ran.err.as_str()), (Some(1), "", expected));
    }
}

#[test]
fn pods_behind_the_dumps_are_a_usage_error_with_a_hint() {
    let files = files("explain-behind");
    let ran = files.run("explain --catalog types.json --cluster cluster.json huge");
    assert_eq!((ran.code, ran.out.as_str()), (Some(2), ""));
    assert!(
        ran.err.contains("tip: --cluster takes all names after it for files: name the pods before it"),
        "{}",
        ran.err
    );
    assert!(ran.err.contains("Usage: karpenter explain <POD>..."), "{}", ran.err);
    let ran = files.run("explain --catalog types.json --cluster cluster.json -- huge");
    assert_eq!(
        (ran.code, ran.err.as_str()),
        (Some(0), "karpenter: Pod default/fresh: left alone, because the kube-scheduler has not refused it\n")
    );
    for (words, has_hint) in [("explain", false), ("plan", false), ("plan --nonsense", false)] {
        let ran = files.run(words);
        assert_eq!((ran.code, ran.err.contains("takes all names")), (Some(2), has_hint), "{words}: {}", ran.err);
        assert!(ran.err.contains("Usage: karpenter "), "{words}: {}", ran.err);
    }
}

#[test]
fn a_pod_whose_node_is_on_its_way_out_is_pending() {
    let files = Files::new("explain-moving");
    let claim = r#"{"apiVersion":"karpenter.sh/v1","kind":"NodeClaim","metadata":{"name":"old","uid":"u",
        "deletionTimestamp":"2026-01-01T00:00:00Z","labels":{"karpenter.sh/nodepool":"general"}},
        "spec":{"nodeClassRef":{"group":"karpenter.kwok.sh","kind":"KWOKNodeClass","name":"default"},"requirements":[]},
        "status":{"providerID":"id://n","nodeName":"n"}}"#;
    let moving = pod("moving", "1").replace(r#""spec":{"#, r#""spec":{"nodeName":"n","#);
    files.write("cluster.json", &list(&[POOL, claim, &node("n"), &moving]));
    assert_eq!(
        ask(&files, "moving"),
        json!([{
            "pod": "default/moving", "answer": "newClaim", "nodePool": "general", "instanceTypes": ["m-4x"],
            "cheapestPrice": 0.2, "zone": null, "capacityType": "on-demand", "zones": ["zone-a"],
            "capacityTypes": ["on-demand"], "otherPods": [],
            "requirements": ask(&files, "moving")[0]["requirements"],
        }])
    );
}
