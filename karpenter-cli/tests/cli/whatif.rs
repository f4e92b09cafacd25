//! Changes to a dump, and what they come to.

use serde_json::{Value, json};

use crate::{
    common::{CATALOG, Files, POOL, list, node, pod},
    consolidate::{files, managed, objects, pool, running},
};

const PLAN: &str = "plan --cluster cluster.json --catalog types.json";
const CONSOLIDATE: &str = "consolidate --cluster cluster.json --catalog types.json --now 2026-02-01T00:00:00Z";

/// The document of a plan or of commands without times.
fn timeless(mut document: Value) -> Value {
    for name in ["seconds", "setupSeconds", "solveSeconds"] {
        document.as_object_mut().unwrap().remove(name);
    }
    for command in document["commands"].as_array_mut().into_iter().flatten() {
        command.as_object_mut().unwrap().remove("seconds");
    }
    document
}

/// The answer for a changed dump, and the difference.
fn changed(files: &Files, ask: &str, changes: &str) -> (Value, Value) {
    let mut document = timeless(files.json(&format!("{ask} -o json {changes}")));
    let difference = document.as_object_mut().unwrap().remove("difference").unwrap();
    (document, difference)
}

/// The answer for the dump as it is.
fn plain(files: &Files, ask: &str) -> Value {
    let document = timeless(files.json(&format!("{ask} -o json")));
    assert_eq!(document.get("difference"), None);
    document
}

fn refusal(files: &Files, changes: &str) -> String {
    let ran = files.run(&format!("{PLAN} {changes}"));
    assert_eq!((ran.code, ran.out.as_str(), ran.err.lines().count()), (Some(1), "", 1), "{}", ran.err);
    ran.err.trim_end().to_owned()
}

/// The usual cluster, with all kinds of pods on the node `half-a`.
fn mixed() -> Vec<String> {
    let owned = |name: &str, by: &str| {
        running(name, "100m", "half-a")
            .replace(r#""apiVersion":"apps/v1","kind":"ReplicaSet","name":"web","uid":"web""#, by)
    };
    let bare = |name: &str| pod(name, "100m").replace(r#""spec":{"#, r#""spec":{"nodeName":"half-a","#);
    let mut out = objects();
    out.extend([
        owned("daemon", r#""apiVersion":"apps/v1","kind":"DaemonSet","name":"agent","uid":"agent""#),
        owned("mirror", r#""apiVersion":"v1","kind":"Node","name":"half-a","uid":"half-a""#),
        bare("alone"),
        bare("done").replace("Pending", "Succeeded"),
    ]);
    out
}

/// A pod that looks as one of the usual workload that waits.
fn waiting(name: &str, cpu: &str) -> String {
    let owner = r#""namespace":"default","ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"web","uid":"web","controller":true}]"#;
    pod(name, cpu).replace(r#""namespace":"default""#, owner)
}

#[test]
fn what_changes_is_a_short_report() {
    let files = files("whatif", &mixed());
    files.write("more.json", &list(&[&pod("small", "500m"), &pod("wide", "3800m"), &pod("huge", "15")]));
    let changes = "--without-node half-a --without-type m-2x --with more.json";
    let ran = files.run(&format!("{PLAN} {changes}"));
    assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""));
    assert_eq!(ran.out, include_str!("whatif.txt"));
    let ran = files.run(&format!("{CONSOLIDATE} {changes}"));
    assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""));
    assert_eq!(ran.out, include_str!("whatif_consolidate.txt"));
    assert!(ran.out.lines().all(|line| line.chars().count() <= 100), "{}", ran.out);
}

#[test]
fn what_changes_is_one_json_object_beside_the_usual_ones() {
    let files = files("whatif-json", &mixed());
    files.write("more.json", &list(&[&pod("small", "500m"), &pod("wide", "3800m"), &pod("huge", "15")]));
    let changes = "--without-node half-a --without-type m-2x --with more.json";
    let (_, difference) = changed(&files, CONSOLIDATE, changes);
    assert_eq!(serde_json::to_string_pretty(&difference).unwrap() + "\n", include_str!("whatif.json"));
    let yaml = files.run(&format!("{CONSOLIDATE} -o yaml {changes}")).out;
    let yaml: Value = serde_saphyr::from_str(&yaml).unwrap();
    assert_eq!(yaml["difference"], difference);
}

#[test]
fn the_answer_is_that_for_a_dump_that_was_changed_by_hand() {
    let as_is = files("whatif-by-flag", &mixed());
    let is_of_node = |text: &&String| {
        text.contains(r#""name":"half-a""#) || text.contains(r#""nodeName":"half-a""#) && !text.contains("\"a\"")
    };
    let mut by_hand: Vec<String> = mixed().into_iter().filter(|text| !is_of_node(&text)).collect();
    by_hand.retain(|text| !text.contains(r#""nodeName":"half-a""#));
    by_hand.push(waiting("a", "1500m"));
    let by_hand = files("whatif-by-hand", &by_hand);
    for ask in [PLAN, CONSOLIDATE] {
        let (document, _) = changed(&as_is, ask, "--without-node half-a");
        assert_eq!(document, plain(&by_hand, ask));
        assert_ne!(document, plain(&as_is, ask));
    }
}

#[test]
fn pods_of_a_node_that_is_gone_wait_or_go_with_it() {
    let (document, difference) = changed(&files("whatif-pods", &mixed()), PLAN, "--without-node half-a");
    assert_eq!(document["pods"], json!(1), "neither daemons, mirrors, bare pods nor pods that are done wait");
    assert_eq!(difference["moved"], json!(["default/a"]));
    let lost = json!({"default/alone": "it goes with node half-a, and nothing makes it again"});
    assert_eq!(difference["lost"], lost);
    let bill = |name: &str| difference[name].as_f64().unwrap();
    assert!((bill("hourlyCostBefore") - bill("hourlyCostAfter") - 0.2).abs() < 1e-9, "{difference}");
}

#[test]
fn of_pods_that_are_done_or_leave_only_those_of_stateful_sets_come_again() {
    let leaving = r#""metadata":{"deletionTimestamp":"2026-01-31T00:00:00Z","#;
    let leaves = |name: &str| running(name, "100m", "half-a").replace(r#""metadata":{"#, leaving);
    let mut objects = objects();
    objects.extend([
        running("done", "100m", "half-a").replace("Running", "Succeeded"),
        leaves("leaves"),
        leaves("comes-again").replace("ReplicaSet", "StatefulSet"),
    ]);
    let (document, difference) = changed(&files("whatif-leaving", &objects), PLAN, "--without-node half-a");
    assert_eq!(document["pods"], json!(2));
    assert_eq!(difference["moved"], json!(["default/a", "default/comes-again"]));
    assert_eq!(difference["lost"], json!({}));
}

#[test]
fn a_node_may_be_named_by_its_claim() {
    let mut objects = objects();
    let rename = |text: &mut String| {
        if text.contains(r#""kind":"NodeClaim""#) {
            *text = text.replace(r#""name":"half-a","uid""#, r#""name":"general-xyz","uid""#);
        }
    };
    objects.iter_mut().for_each(rename);
    let files = files("whatif-claim", &objects);
    let (by_claim, by_node) =
        (changed(&files, PLAN, "--without-node general-xyz").0, changed(&files, PLAN, "--without-node half-a").0);
    assert_eq!(by_claim, by_node);
    assert_eq!(by_claim["pods"], json!(1));
    let twice = changed(&files, PLAN, "--without-node half-a half-a --without-node half-a").0;
    assert_eq!(twice, by_node);
}

#[test]
fn a_type_that_cannot_be_bought_keeps_its_price() {
    let mut objects = vec![pool("general", "100%")];
    objects.extend(managed("full", "general", ""));
    objects.extend([running("there", "3900m", "full"), pod("new", "1900m")]);
    let files = files("whatif-type", &objects);
    let types = |document: &Value| document["newNodeClaims"][0]["instanceTypes"].clone();
    assert_eq!(types(&plain(&files, PLAN)), json!(["m-2x", "m-4x"]));
    let (document, difference) = changed(&files, PLAN, "--without-type m-2x");
    assert_eq!(types(&document), json!(["m-4x"]));
    let row = |instance_type: &str, before: usize, after: usize| json!({"nodePool": "general", "instanceType": instance_type, "before": before, "after": after});
    assert_eq!(difference["nodesMade"], json!([row("m-2x", 1, 0), row("m-4x", 0, 1)]));
    let (document, difference) = changed(&files, PLAN, "--without-type m-2x m-4x");
    let reason = &document["errors"]["default/new"];
    assert!(reason.as_str().unwrap().contains("no offering that meets the requirements is available now"), "{reason}");
    assert_eq!(difference["lost"]["default/new"], *reason);
    assert_eq!(difference["hourlyCostAfter"], json!(0.2), "the node that there is costs what it did");
}

#[test]
fn pools_are_added_and_replaced() {
    let far = POOL.replace(r#""values":["on-demand"]"#, r#""values":["spot"]"#);
    let files = files("whatif-pool", &[far, pod("web", "1")]);
    files.write("near.json", POOL);
    files.write("other.json", &POOL.replace(r#""name":"general""#, r#""name":"other""#));
    let reason = plain(&files, PLAN)["errors"]["default/web"].clone();
    let (document, difference) = changed(&files, PLAN, "--set-pool near.json");
    assert_eq!(document["newNodeClaims"][0]["nodePool"], json!("general"));
    assert_eq!(difference["changes"], json!(["NodePool general is replaced"]));
    assert_eq!(difference["gained"], json!({ "default/web": reason }));
    let (document, difference) = changed(&files, PLAN, "--set-pool other.json");
    assert_eq!(document["newNodeClaims"][0]["nodePool"], json!("other"));
    assert_eq!(difference["changes"], json!(["NodePool other is added"]));
    files.write("pod.json", &pod("p", "1"));
    assert_eq!(
        refusal(&files, "--set-pool pod.json"),
        "karpenter: pod.json: Pod (document 1): kind: only a NodePool takes the place of a pool"
    );
}

#[test]
fn a_pool_that_cannot_be_read_may_be_replaced() {
    let bad = POOL.replace(r#""requirements":["#, r#""taints":7,"requirements":["#);
    let files = files("whatif-bad-pool", &[bad.clone(), pod("web", "1")]);
    files.write("good.json", POOL);
    assert_eq!(plain(&files, PLAN)["warnings"].as_array().unwrap().len(), 1);
    let (document, _) = changed(&files, PLAN, "--set-pool good.json");
    assert_eq!((&document["warnings"], &document["errors"]), (&json!([]), &json!({})));
    files.write("bad.json", &bad);
    assert!(refusal(&files, "--set-pool bad.json").starts_with("karpenter: bad.json: NodePool general: "));
}

#[test]
fn a_change_that_changes_nothing_makes_no_difference() {
    let objects = mixed();
    let files = files("whatif-same", &objects);
    files.write("same.json", &list(&objects.iter().map(String::as_str).collect::<Vec<_>>()));
    for ask in [PLAN, CONSOLIDATE] {
        let (document, difference) = changed(&files, ask, "--with same.json");
        assert_eq!(document, plain(&files, ask));
        assert_eq!(difference["hourlyCostMore"], json!(0.0));
        for name in ["nodesMade", "nodesGone", "moved"] {
            assert_eq!(difference[name], json!([]), "{name}");
        }
        assert_eq!((&difference["gained"], &difference["lost"]), (&json!({}), &json!({})));
    }
    let out = files.run(&format!("{PLAN} --with same.json")).out;
    assert!(out.contains("no difference") && out.contains("The same nodes are made, and the same go."), "{out}");
}

#[test]
fn pods_that_find_room_keep_no_node_that_would_go() {
    let mut objects = vec![pool("general", "100%")];
    for node in ["a", "b"] {
        objects.extend(managed(node, "general", ""));
        objects.push(running(&format!("web-{node}"), "500m", node));
    }
    let files = files("whatif-promised", &objects);
    let difference = changed(&files, CONSOLIDATE, "--without-node a").1;
    assert_eq!(difference["hourlyCostMore"], json!(0.0), "what is left fits a small node, as before: {difference}");
}

#[test]
fn nodes_on_their_way_out_cost_nothing_in_the_end() {
    let mut objects = vec![pool("general", "100%")];
    let leaving = r#""name":"a","deletionTimestamp":"2026-01-31T00:00:00Z","#;
    objects.extend(managed("a", "general", "").iter().map(|object| object.replacen(r#""name":"a","#, leaving, 1)));
    let files = files("whatif-leaving", &objects);
    for ask in [PLAN, CONSOLIDATE] {
        assert_eq!(changed(&files, ask, "--without-node a").1["hourlyCostMore"], json!(0.0), "{ask}");
    }
}

#[test]
fn a_pool_that_waits_longer_keeps_nodes_that_were_quiet_for_less() {
    let mut objects = vec![pool("general", "100%")];
    let quiet = r#"{"type":"Consolidatable","status":"True","lastTransitionTime":"2026-01-31T22:00:00Z","reason":"Consolidatable","message":""}"#;
    let [claim, node] = managed("a", "general", quiet);
    let seen = r#""status":{"lastPodEventTime":"2026-01-31T22:00:00Z","#;
    objects.extend([claim.replace(r#""status":{"#, seen), node]);
    let files = files("whatif-quiet", &objects);
    for (wait, goes) in [("1h", true), ("24h", false)] {
        let wait = format!(r#""consolidateAfter":"{wait}""#);
        files.write("pool.json", &objects[0].replace(r#""consolidateAfter":"0s""#, &wait));
        let document = changed(&files, CONSOLIDATE, "--set-pool pool.json").0;
        assert_eq!(document["commands"].as_array().unwrap().len(), usize::from(goes), "{wait}");
    }
}

const DEPLOYMENT: &str = r#"{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"shop"},"spec":{"replicas":3,
  "template":{"metadata":{"labels":{"app":"shop"}},"spec":{"containers":[{"name":"c","resources":{"requests":{"cpu":"1"}}}]}}}}"#;

#[test]
fn workloads_stand_for_their_pods() {
    let mut objects = vec![pool("general", "100%")];
    objects.extend(managed("full", "general", ""));
    let of_shop = running("shop-5d9-x", "3900m", "full").replace(r#""name":"web","uid""#, r#""name":"shop-5d9","uid""#);
    objects.push(of_shop);
    let files = files("whatif-workload", &objects);
    files.write("shop.json", DEPLOYMENT);
    let (document, difference) = changed(&files, PLAN, "--with shop.json");
    assert_eq!(difference["changes"], json!(["Deployment default/shop is replaced"]));
    assert_eq!(document["pods"], json!(3));
    let there = json!({"full": ["default/shop-0", "default/shop-1", "default/shop-2"]});
    assert_eq!(document["existingNodes"], there, "the room of the pod that there was is free");
    files.write("shop.json", &DEPLOYMENT.replace("\"shop\"", "\"new\""));
    let (document, difference) = changed(&files, PLAN, "--with shop.json");
    assert_eq!(difference["changes"], json!(["Deployment default/new is added"]));
    assert_eq!(document["existingNodes"]["full"], Value::Null);
    for (kind, expected) in [("StatefulSet", 3), ("ReplicaSet", 3), ("Job", 1)] {
        let group = if kind == "Job" { "batch/v1" } else { "apps/v1" };
        files.write("shop.json", &DEPLOYMENT.replace("Deployment", kind).replace("apps/v1", group));
        assert_eq!(changed(&files, PLAN, "--with shop.json").0["pods"], json!(expected), "{kind}");
    }
    let job = DEPLOYMENT.replace("Deployment", "Job").replace("apps/v1", "batch/v1");
    for (spec, status, expected) in [
        (r#""parallelism":5,"completions":2"#, "", 2),
        (r#""parallelism":5,"suspend":true"#, "", 0),
        (r#""parallelism":5"#, "", 5),
        (r#""parallelism":3,"completions":9"#, r#""succeeded":8,"active":1"#, 1),
        (r#""parallelism":3,"completions":9"#, r#""succeeded":2,"active":3"#, 3),
        (r#""parallelism":3,"completions":9"#, r#""succeeded":9"#, 0),
        (r#""parallelism":5"#, r#""succeeded":1,"active":2"#, 2),
    ] {
        let job =
            job.replace(r#""replicas":3"#, spec).replacen(r#""spec""#, &format!(r#""status":{{{status}}},"spec""#), 1);
        files.write("shop.json", &job);
        assert_eq!(changed(&files, PLAN, "--with shop.json").0["pods"], json!(expected), "{spec} {status}");
    }
}

#[test]
fn what_a_deployment_has_made_and_jobs_that_are_over_make_no_pods() {
    let files = files("whatif-made", &[pool("general", "100%")]);
    let by = r#""metadata":{"name":"shop-5d9","ownerReferences":[{"apiVersion":"apps/v1","kind":"Deployment","name":"shop","uid":"u","controller":true}]}"#;
    let made = DEPLOYMENT.replacen("Deployment", "ReplicaSet", 1).replacen(r#""metadata":{"name":"shop"}"#, by, 1);
    let over = r#""status":{"conditions":[{"type":"Complete","status":"True"}]},"spec""#;
    let job = DEPLOYMENT.replace("Deployment", "Job").replace("apps/v1", "batch/v1").replacen(r#""spec""#, over, 1);
    for (objects, expected) in [(list(&[DEPLOYMENT, &made]), 3), (made.clone(), 3), (job, 0)] {
        files.write("with.json", &objects);
        assert_eq!(changed(&files, PLAN, "--with with.json").0["pods"], json!(expected), "{objects}");
    }
}

/// A class of which volumes are made in one zone only.
const IN_ZONE_B: &str = r#"{"apiVersion":"storage.k8s.io/v1","kind":"StorageClass","metadata":{"name":"ssd"},"provisioner":"d",
  "volumeBindingMode":"WaitForFirstConsumer","allowedTopologies":[{"matchLabelExpressions":[
  {"key":"topology.kubernetes.io/zone","values":["zone-b"]}]}]}"#;

/// A claim that is bound to a volume in the other zone, and the volume.
const BOUND_IN_ZONE_A: [&str; 2] = [
    r#"{"apiVersion":"v1","kind":"PersistentVolumeClaim","metadata":{"name":"data-shop-0","namespace":"default",
  "annotations":{"pv.kubernetes.io/bind-completed":"yes"}},"spec":{"volumeName":"v"},"status":{"phase":"Bound"}}"#,
    r#"{"apiVersion":"v1","kind":"PersistentVolume","metadata":{"name":"v"},"spec":{"csi":{"driver":"d","volumeHandle":"h"},
  "nodeAffinity":{"required":{"nodeSelectorTerms":[{"matchExpressions":[
  {"key":"topology.kubernetes.io/zone","operator":"In","values":["zone-a"]}]}]}}}}"#,
];

/// The pods of each claim of a plan by the only zone that it leaves.
fn pods_by_zone(document: &Value) -> Vec<(Value, Value)> {
    let zone = |claim: &Value| {
        let mut requirements = claim["requirements"].as_array().unwrap().iter();
        let zone = requirements.find(|one| one["key"] == "topology.kubernetes.io/zone");
        zone.map(|one| one["values"].clone()).unwrap_or_default()
    };
    let mut out: Vec<_> = document["newNodeClaims"]
        .as_array()
        .unwrap()
        .iter()
        .map(|claim| (zone(claim), claim["pods"].clone()))
        .collect();
    out.sort_by_key(|(zone, _)| zone.to_string());
    out
}

#[test]
fn pods_of_a_stateful_set_mount_the_claims_that_there_are_and_others_are_made() {
    let [claim, volume] = BOUND_IN_ZONE_A;
    let objects = [pool("general", "100%"), IN_ZONE_B.to_owned(), claim.to_owned(), volume.to_owned()];
    let files = files("whatif-claims", &objects);
    let far = CATALOG.replace("m-4x", "far").replace("zone-a", "zone-b");
    files.write("types.json", &format!("[{},{}]", CATALOG.trim_matches(['[', ']']), far.trim_matches(['[', ']'])));
    let template = r#""replicas":3,"volumeClaimTemplates":[{"apiVersion":"v1","kind":"PersistentVolumeClaim",
        "metadata":{"name":"data"},"spec":{"accessModes":["ReadWriteOnce"],"storageClassName":"ssd","volumeMode":"Filesystem",
        "dataSource":null,"resources":{"requests":{"storage":"1Gi"}}},"status":{"phase":"Pending","capacity":{}}}]"#;
    let set = DEPLOYMENT.replace("Deployment", "StatefulSet").replace(r#""replicas":3"#, template);
    files.write("set.json", &set);
    let (document, difference) = changed(&files, PLAN, "--with set.json");
    assert_eq!(difference["changes"], json!(["StatefulSet default/shop is added"]));
    let expected = [
        (json!(["zone-a"]), json!(["default/shop-0"])),
        (json!(["zone-b"]), json!(["default/shop-1", "default/shop-2"])),
    ];
    assert_eq!((pods_by_zone(&document), &document["warnings"]), (expected.to_vec(), &json!([])));
    files.write(
        "with.json",
        &list(&[&set, &claim.replace("data-shop-0", "data-shop-2"), &volume.replace("zone-a", "zone-b")]),
    );
    let (document, _) = changed(&files, PLAN, "--with with.json");
    assert_eq!(
        pods_by_zone(&document),
        [(json!(["zone-b"]), json!(["default/shop-0", "default/shop-1", "default/shop-2"]))]
    );
    files.write("set.json", &set.replacen(r#""replicas":3"#, r#""replicas":1,"ordinals":{"start":7}"#, 1));
    let (document, _) = changed(&files, PLAN, "--with set.json");
    assert_eq!(pods_by_zone(&document), [(json!(["zone-b"]), json!(["default/shop-7"]))]);
    files.write("set.json", &set.replace("storageClassName", "storageClasName"));
    let warning = "set.json: StatefulSet default/shop: spec.volumeClaimTemplates[0].spec.storageClasName: there is no such field (it is left out)";
    assert_eq!(changed(&files, PLAN, "--with set.json").0["warnings"], json!([warning]));
}

#[test]
fn kinds_that_bear_on_no_plan_are_counted_in_one_warning() {
    let files = files("whatif-idle", &[pool("general", "100%")]);
    let object = |api_version: &str, kind: &str| {
        format!(r#"{{"apiVersion":"{api_version}","kind":"{kind}","metadata":{{"generateName":"a-"}}}}"#)
    };
    let (service, role) = (object("v1", "Service"), object("rbac.authorization.k8s.io/v1", "Role"));
    files.write("chart.json", &list(&[&service, DEPLOYMENT, &service, &role]));
    let (document, difference) = changed(&files, PLAN, "--with chart.json");
    assert_eq!(difference["changes"], json!(["Deployment default/shop is added"]));
    let warning = "3 objects bear on no plan and are left out: 1 of kind Role, 2 of kind Service";
    assert_eq!(document["warnings"], json!([warning]));
    files.write("one.json", &service);
    let ran = files.run(&format!("{PLAN} --with one.json"));
    assert!(ran.out.starts_with("What if: nothing is changed\n"), "{}", ran.out);
    assert!(ran.out.contains(" 1 object bears on no plan and is left out: 1 of kind Service\n"), "{}", ran.out);
    files.write("other.json", &object("serving.knative.dev/v1", "Service"));
    let line = refusal(&files, "--with other.json");
    assert!(
        line.starts_with("karpenter: other.json: Service (document 1): kind: objects of this kind are not read"),
        "{line}"
    );
    assert!(refusal(&files, "--set-pool one.json").contains("only a NodePool"));
}

#[test]
fn a_pod_may_be_bound_to_a_node_that_comes_with_it() {
    let files = files("whatif-bound", &[pool("general", "100%")]);
    let bound = running("web", "1", "by-hand");
    files.write("with.json", &list(&[&bound, &node("by-hand")]));
    let (document, _) = changed(&files, PLAN, "--with with.json");
    assert_eq!((&document["pods"], &document["warnings"]), (&json!(0), &json!([])));
    files.write("with.json", &bound.replace("Running", "Succeeded"));
    assert_eq!(changed(&files, PLAN, "--with with.json").0["pods"], json!(0), "it has run to its end there");
}

#[test]
fn a_daemonset_with_another_template_has_other_pods() {
    let template = |cpu: &str| {
        format!(
            r#"{{"apiVersion":"apps/v1","kind":"DaemonSet","metadata":{{"name":"agent","namespace":"default","uid":"agent"}},"spec":{{"template":{{
        "spec":{{"containers":[{{"name":"c","resources":{{"requests":{{"cpu":"{cpu}"}}}}}}]}}}}}}}}"#
        )
    };
    let mut objects = vec![pool("general", "100%"), template("100m"), waiting("new", "1500m")];
    objects.extend(managed("full", "general", ""));
    objects.push(running("web", "3800m", "full"));
    let owner = r#""apiVersion":"apps/v1","kind":"DaemonSet","name":"agent","uid":"agent""#;
    objects.push(
        running("agent-1", "100m", "full")
            .replace(r#""apiVersion":"apps/v1","kind":"ReplicaSet","name":"web","uid":"web""#, owner),
    );
    let files = files("whatif-daemons", &objects);
    files.write("same.json", &objects[1]);
    files.write("larger.json", &template("1500m"));
    assert_eq!(changed(&files, PLAN, "--with same.json").0, plain(&files, PLAN));
    let (document, difference) = changed(&files, PLAN, "--with larger.json");
    assert_eq!(document["newNodeClaims"][0]["instanceTypes"][0], json!("m-4x"), "{document}");
    assert!(difference["hourlyCostMore"].as_f64().unwrap() > 0.0, "{difference}");
}

#[test]
fn misspelt_fields_of_manifests_are_named() {
    let files = files("whatif-misspelt", &[pool("general", "100%")]);
    let misspelt = DEPLOYMENT.replace("replicas", "replica").replace("requests", "request");
    let known = r#""spec":{"enableServiceLinks":true,"volumes":[{"name":"v","configMap":{"name":"c"}}],"containers":[{"image":"i","ports":[{"name":"p","containerPort":1}],"#;
    let pod = pod("p", "1").replace(r#""spec":{"containers":[{"#, known);
    let misspelt = misspelt.replace(r#""labels""#, r#""lables""#);
    let other = pod.replace(r#""p""#, r#""q""#).replace("volumes", "volume");
    let budget = r#"{"apiVersion":"policy/v1","kind":"PodDisruptionBudget","metadata":{"name":"b"},"spec":{"minAvailble":2,"selector":{"matchLabel":{}}}}"#;
    let daemons = r#"{"apiVersion":"apps/v1","kind":"DaemonSet","metadata":{"name":"d","managedFields":[{}]},"spec":{"updateStrategy":{},"template":{"spec":{"toleration":[]}}}}"#;
    files.write("with.json", &list(&[&misspelt, &pod, &other, budget, daemons]));
    let (document, _) = changed(&files, PLAN, "--with with.json");
    let expected = [
        "with.json: DaemonSet default/d: spec.template.spec.toleration: there is no such field (it is left out)",
        "with.json: Deployment default/shop: spec.replica: there is no such field (it is left out)",
        "with.json: Deployment default/shop: spec.template.metadata.lables: there is no such field (it is left out)",
        "with.json: Deployment default/shop: spec.template.spec.containers[0].resources.request: there is no such field (it is left out)",
        "with.json: Pod default/q: spec.volume: there is no such field (it is left out)",
        "with.json: PodDisruptionBudget default/b: spec.minAvailble: there is no such field (it is left out)",
        "with.json: PodDisruptionBudget default/b: spec.selector.matchLabel: there is no such field (it is left out)",
    ];
    assert_eq!(document["warnings"], json!(expected));
}

#[test]
fn classes_of_which_admission_wrote_nothing_are_named() {
    let files = files("whatif-classes", &[pool("general", "100%")]);
    for (spec, expected) in [
        (
            r#""priorityClassName":"high","#,
            Some("spec.template.spec.priorityClassName: what the class says does not count"),
        ),
        (r#""priorityClassName":"high","priority":7,"#, None),
        (
            r#""runtimeClassName":"kata","#,
            Some("spec.template.spec.runtimeClassName: what the class says does not count"),
        ),
    ] {
        files.write("with.json", &DEPLOYMENT.replacen(r#""containers""#, &format!(r#"{spec}"containers""#), 1));
        let warnings = changed(&files, PLAN, "--with with.json").0["warnings"].to_string();
        assert_eq!(expected.is_some(), warnings.contains("what the class says"), "{warnings}");
        assert!(expected.is_none_or(|expected| warnings.contains(expected)), "{warnings}");
    }
}

#[test]
fn pods_of_a_workload_take_the_place_of_no_pods_of_others() {
    let of_set = running("shop-0", "1", "by-hand")
        .replace("ReplicaSet", "StatefulSet")
        .replace(r#""name":"web","uid""#, r#""name":"shop","uid""#);
    let files = files("whatif-names", &[pool("general", "100%"), node("by-hand"), of_set]);
    files.write("shop.json", &DEPLOYMENT.replace("\"1\"", "\"500m\""));
    let (document, _) = changed(&files, PLAN, "--with shop.json");
    let there = json!(["default/shop-0-new", "default/shop-1"]);
    assert_eq!(document["existingNodes"]["by-hand"], there, "the pod of the set keeps its room");
}

#[test]
fn pods_of_manifests_wait_unless_something_keeps_them_back() {
    let manifest = |name: &str, spec: &str| {
        format!(r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"{name}"}},"spec":{{"containers":[]{spec}}}}}"#)
    };
    let files = files("whatif-with", &[pool("general", "100%"), node("by-hand"), pod("web", "1")]);
    files.write("new.json", &list(&[&manifest("new", ""), &manifest("gated", r#","schedulingGates":[{"name":"g"}]"#)]));
    let (document, _) = changed(&files, PLAN, "--with new.json");
    assert_eq!((&document["pods"], &document["warnings"]), (&json!(2), &json!([])));
    files.write("new.json", &manifest("web", r#","nodeName":"by-hand""#));
    let (document, difference) = changed(&files, PLAN, "--with new.json");
    assert_eq!(document["pods"], json!(0), "it is on a node now");
    assert_eq!(difference["changes"], json!(["Pod default/web is replaced"]));
}

/// What is wrong with a pool that is heavier than pools may be.
const OVERWEIGHT: &str = "NodePool general: spec.weight: 101 is not from 1 to 100";

#[test]
fn mistakes_are_one_line() {
    let files = files("whatif-mistakes", &mixed());
    assert_eq!(refusal(&files, "--without-node nope"), "karpenter: Node nope: is not in the cluster");
    let no_type = "karpenter: types.json: instance type nope: is not in the catalog";
    assert_eq!(refusal(&files, "--without-type nope"), no_type);
    let unnamed =
        DEPLOYMENT.replace("Deployment", "StatefulSet").replace(r#""replicas":3"#, r#""volumeClaimTemplates":[{}]"#);
    let no_set = unnamed.replace("StatefulSet", "ReplicaSet");
    let lost = pod("p", "1").replace(r#""spec":{"#, r#""spec":{"nodeName":"nope","#);
    let older = POOL.replace("karpenter.sh/v1", "karpenter.sh/v1alpha9");
    for (text, expected) in [
        (
            r#"{"apiVersion":"batch/v1","kind":"CronJob","metadata":{"name":"s"}}"#.to_owned(),
            "CronJob (document 1): kind: objects of this kind are not read",
        ),
        (pod("p", "1x"), "Pod default/p: spec.containers[0].resources.requests.cpu: invalid quantity"),
        (unnamed, "StatefulSet default/shop: spec.volumeClaimTemplates[0].metadata.name: is missing"),
        (no_set, "ReplicaSet default/shop: spec.volumeClaimTemplates: only a StatefulSet makes claims"),
        (lost, "Pod default/p: spec.nodeName: there is no node nope, neither in the cluster nor among the changes"),
        (DEPLOYMENT.replace(":3", ":200001"), "Deployment default/shop: spec.replicas: 200001 is more than 200000"),
        (
            DEPLOYMENT.replace("\"1\"", "\"1x\""),
            "Deployment default/shop: spec.template.spec.containers[0].resources.requests.cpu: ",
        ),
        (older, "NodePool general: apiVersion: karpenter.sh/v1alpha9 is not read"),
        (
            list(&[DEPLOYMENT, &pod("shop-1", "1")]),
            "Pod default/shop-1: metadata.name: the same object is in with.json already",
        ),
        (POOL.replace(r#""spec":{"template""#, r#""spec":{"weight":101,"template""#), OVERWEIGHT),
        (
            pool("general", "100").replace(r#""nodes":"100""#, r#""nodes":"1","schedule":"daily""#),
            "NodePool general: spec.disruption.budgets[0]",
        ),
        (
            pool("general", "100").replace(r#""nodes":"100""#, r#""nodes":"1","duration":"1h","schedule":"0 9 * * mon-fry""#),
            "NodePool general: spec.disruption.budgets[0].schedule: ",
        ),
        (
            r#"{"apiVersion":"karpenter.sh/v1alpha1","kind":"NodeOverlay","metadata":{"name":"o"},"spec":{"price":"-1"}}"#
                .to_owned(),
            "NodeOverlay o: spec.price: \"-1\" is not a number such as 0.05",
        ),
        (String::new(), "is empty"),
        (list(&[]), "is empty"),
    ] {
        files.write("with.json", &text);
        let line = refusal(&files, "--with with.json");
        assert!(line.starts_with(&format!("karpenter: with.json: {expected}")), "{line}");
    }
    files.write("pool.json", &POOL.replace(r#""spec":{"template""#, r#""spec":{"weight":101,"template""#));
    assert_eq!(refusal(&files, "--set-pool pool.json"), format!("karpenter: pool.json: {OVERWEIGHT}"));
    let ran = files.run(&format!("{PLAN} --with - --set-pool -"));
    assert_eq!(ran.code, Some(2), "{}", ran.err);
}
