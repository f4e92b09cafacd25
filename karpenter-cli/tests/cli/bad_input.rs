//! What the command says about input that is not what it should be.

use crate::common::{Files, POOL, list, node, pod};
use serde_json::json;

/// Plans for a cluster that must be refused, and gives back the one line that says why.
fn refusal(files: &Files, cluster: &str) -> String {
    files.write("cluster.json", cluster);
    line(files, "plan --cluster cluster.json --catalog types.json")
}

fn line(files: &Files, arguments: &str) -> String {
    let ran = files.run(arguments);
    assert_eq!((ran.code, ran.out.as_str()), (Some(1), ""), "{arguments}: {}", ran.err);
    assert_eq!(ran.err.lines().count(), 1, "{}", ran.err);
    ran.err.trim_end().to_owned()
}

#[test]
fn files_that_cannot_be_read() {
    let files = Files::new("unreadable");
    files.write("cluster.json", &list(&[]));
    assert_eq!(
        line(&files, "plan --cluster absent.json --catalog types.json"),
        "karpenter: absent.json: cannot be read: No such file or directory (os error 2)"
    );
    assert_eq!(
        line(&files, "plan --cluster cluster.json --catalog absent.json"),
        "karpenter: absent.json: cannot be read: No such file or directory (os error 2)"
    );
    files.write_bytes("binary", b"kind: \xff");
    assert_eq!(
        line(&files, "plan --cluster binary --catalog types.json"),
        "karpenter: binary: is not UTF-8 text: the byte at offset 6 does not belong there"
    );
    assert_eq!(
        line(&files, "plan --cluster - --catalog types.json"),
        "karpenter: standard input: is empty: expected what `kubectl get -o json` prints"
    );
}

#[test]
fn files_that_must_be_written_in_another_way_first() {
    let files = Files::new("encoded");
    let utf16 = |text: &str| text.encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<u8>>();
    let big_endian = |text: &str| text.encode_utf16().flat_map(u16::to_be_bytes).collect::<Vec<u8>>();
    let text = list(&[POOL]);
    for (bytes, expected) in [
        (vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0], "is compressed with gzip: unpack it first"),
        (utf16(&format!("\u{feff}{text}")), "is UTF-16 text: save it as UTF-8"),
        (big_endian(&format!("\u{feff}{text}")), "is UTF-16 text: save it as UTF-8"),
        (utf16(&text), "is UTF-16 text: save it as UTF-8"),
        (big_endian(&text), "is UTF-16 text: save it as UTF-8"),
    ] {
        files.write_bytes("cluster.json", &bytes);
        let got = line(&files, "plan --cluster cluster.json --catalog types.json");
        assert_eq!(got, format!("karpenter: cluster.json: {expected}"));
        assert_eq!(line(&files, "plan --cluster cluster.json --catalog cluster.json"), got);
    }
}

/// A list of some kind with these meta data.
fn page(kind: &str, metadata: &str, items: &[&str]) -> String {
    format!(r#"{{"apiVersion":"v1","kind":"{kind}","metadata":{{{metadata}}},"items":[{}]}}"#, items.join(","))
}

#[test]
fn lists_of_which_pages_are_missing() {
    let files = Files::new("pages");
    let (first, second) = (pod("a", "1"), pod("b", "1"));
    let more = r#""continue":"abc","remainingItemCount":500"#;
    let pages = "the list goes on in further pages";
    for (text, expected) in [
        (page("List", more, &[POOL]), format!("List (document 1): metadata.continue: {pages}, with 500 more objects")),
        (
            page("PodList", r#""continue":"abc""#, &[&first]),
            format!("PodList (document 1): metadata.continue: {pages}, and"),
        ),
        (
            page("List", r#""remainingItemCount":1"#, &[POOL]),
            format!("List (document 1): metadata.remainingItemCount: {pages}"),
        ),
        (
            format!("{}{}", page("PodList", more, &[&first]), page("NodeList", "", &[])),
            format!("PodList (document 1): metadata.continue: {pages}"),
        ),
        (
            format!("{}{}", page("List", more, &[POOL]), page("List", "", &[&first])),
            format!("List (document 1): metadata.continue: {pages}"),
        ),
    ] {
        let got = refusal(&files, &text);
        assert!(got.starts_with(&format!("karpenter: cluster.json: {expected}")), "{text}\n{got}");
        files.write("with.json", &text);
        files.write("cluster.json", &list(&[&second]));
        let got = line(&files, "plan --cluster cluster.json --catalog types.json --with with.json");
        assert!(got.starts_with(&format!("karpenter: with.json: {expected}")), "{text}\n{got}");
    }
    files.write("1.json", &page("PodList", more, &[&first]));
    files.write("2.json", &page("PodList", r#""continue":"""#, &[&second]));
    files.write("pool.json", POOL);
    let ran = files.run("plan --cluster pool.json 1.json 2.json --catalog types.json");
    assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""));
    assert!(ran.out.starts_with("2 pods want a place"), "{}", ran.out);
}

#[test]
fn texts_that_are_not_objects() {
    let files = Files::new("texts");
    for (text, expected) in [
        ("", "is empty: expected what `kubectl get -o json` prints"),
        ("{\"kind\": \"List\",\n \"items\": [}", "line 2 column 12: JSON syntax: expected value"),
        ("{\"kind\": \"List\"", "line 1 column 15: JSON syntax: EOF while parsing an object"),
        ("error: the server is down", "document 1: kind: is missing"),
        ("hello", "document 1: invalid type: string \"hello\", expected an object"),
        ("3", "document 1: invalid type: integer `3`, expected an object"),
        ("{}", "document 1: kind: is missing"),
        (r#"{"kind":"List","items":[{"metadata":{"name":"a"}}]}"#, "document 1 items[0]: kind: is missing"),
        (r#"{"kind":"List","items":{"a":1}}"#, "document 1: items: invalid type: map, expected a sequence"),
        (r#"{"kind":"List"}"#, "document 1: items: is missing"),
        (r#"{"kind":7}"#, "document 1: kind: invalid type: integer `7`, expected a string"),
        (
            r#"{"kind":"Status","apiVersion":"v1","status":"Failure","message":"forbidden"}"#,
            "Status (document 1): kind: the API server gave no objects: forbidden",
        ),
        (r#"{"kind":"Table","apiVersion":"meta.k8s.io/v1","rows":[]}"#, "Table (document 1): kind: it does not have"),
        (r#"{"kind":"Table","apiVersion":"v1","rows":[]}"#, "Table (document 1): kind: it does not have the objects"),
        (
            r#"{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","items":[]}"#,
            "PartialObjectMetadataList (document 1): kind: it does not have the objects",
        ),
        (
            r#"{"kind":"PartialObjectMetadataList","apiVersion":"v1","items":[]}"#,
            "PartialObjectMetadataList (document 1): kind",
        ),
        (r#"{"kind":"Pod"}"#, "Pod (document 1): metadata.name: is missing"),
        (r#"[{"kind":"Pod","metadata":{"name":""}}]"#, "Pod (document 1 element [0]): metadata.name: is missing"),
        (
            r#"{"kind":"Pod","metadata":{"name":7}}"#,
            "Pod (document 1): metadata.name: invalid type: integer `7`, expected a string",
        ),
    ] {
        let got = refusal(&files, text);
        assert!(got.starts_with(&format!("karpenter: cluster.json: {expected}")), "{text}\n{got}");
    }
}

#[test]
fn yaml_mistakes_have_a_line_and_a_column() {
    let files = Files::new("bad-yaml");
    for (text, line, column) in [
        ("kind: Pod\nmetadata:\n  name: [a\n", 3, None),
        ("kind: Pod\nkind: Node\n", 2, Some(1)),
        ("a: b: c\n", 1, None),
        ("kind: List\nitems:\n- kind: Pod\n bad: indent\n", 4, None),
    ] {
        let got = refusal(&files, text);
        let place = got.strip_prefix("karpenter: cluster.json: line ").unwrap_or_else(|| panic!("{text}\n{got}"));
        let numbers: Vec<usize> = place.split([' ', ':']).filter_map(|word| word.parse().ok()).take(2).collect();
        assert!(numbers[0].abs_diff(line) <= 1 && column.is_none_or(|c| numbers[1] == c), "{text}\n{got}");
        assert!(got.contains(": YAML syntax: ") && got.matches("column").count() == 1, "{got}");
    }
}

#[test]
fn objects_without_which_a_plan_may_be_wrong() {
    let files = Files::new("needed");
    for (object, expected) in [
        (
            node("n").replace(r#""cpu":"2""#, r#""cpu":"2x""#),
            "Node n: status.capacity.cpu: invalid quantity \"2x\": expected a number with an optional suffix such as 250m, 1.5 or 2Gi",
        ),
        (
            r#"{"apiVersion":"karpenter.sh/v1","kind":"NodeClaim","metadata":{"name":"c"},"spec":{"requirements":[{"key":"a","operator":"Is"}]}}"#.to_owned(),
            "NodeClaim c: spec.requirements[0].operator: unknown variant `Is`, expected one of",
        ),
        (
            r#"{"apiVersion":"apps/v1","kind":"DaemonSet","metadata":{"name":"d","namespace":"kube-system"},"spec":{"template":{"spec":{"containers":[{"resources":{"requests":{"cpu":[]}}}]}}}}"#.to_owned(),
            "DaemonSet kube-system/d: spec.template.spec.containers[0].resources.requests.cpu: invalid type: sequence",
        ),
        (
            r#"{"apiVersion":"policy/v1","kind":"PodDisruptionBudget","metadata":{"name":"b"},"spec":{"maxUnavailable":"many"}}"#.to_owned(),
            "PodDisruptionBudget default/b: spec.maxUnavailable: invalid value \"many\"",
        ),
        (
            r#"{"apiVersion":"v1","kind":"PersistentVolumeClaim","metadata":{"name":"c"},"spec":{"storageClassName":7}}"#.to_owned(),
            "PersistentVolumeClaim default/c: spec.storageClassName: invalid type: integer `7`",
        ),
        (
            r#"{"apiVersion":"v1","kind":"PersistentVolume","metadata":{"name":"v"},"spec":{"nodeAffinity":{"required":{"nodeSelectorTerms":[{"matchExpressions":[{"key":"a","operator":"Is"}]}]}}}}"#.to_owned(),
            "PersistentVolume v: spec.nodeAffinity.required.nodeSelectorTerms[0].matchExpressions[0].operator: unknown variant `Is`",
        ),
        (
            r#"{"apiVersion":"storage.k8s.io/v1","kind":"StorageClass","metadata":{"name":"s"},"volumeBindingMode":"Later"}"#.to_owned(),
            "StorageClass s: volumeBindingMode: unknown variant `Later`",
        ),
        (
            r#"{"apiVersion":"storage.k8s.io/v1","kind":"CSINode","metadata":{"name":"n"},"spec":{"drivers":[{"name":"d","allocatable":{"count":-1}}]}}"#.to_owned(),
            "CSINode n: spec.drivers[0].allocatable.count: invalid value: integer `-1`",
        ),
        (
            r#"{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"n","labels":[]}}"#.to_owned(),
            "Namespace n: metadata.labels: invalid type: sequence",
        ),
    ] {
        let got = refusal(&files, &list(&[POOL, &object]));
        assert!(got.starts_with(&format!("karpenter: cluster.json: {expected}")), "{object}\n{got}");
    }
}

#[test]
fn an_object_given_twice_is_named_with_both_files() {
    let files = Files::new("twice");
    files.write("a.json", &list(&[POOL, &pod("web", "1")]));
    files.write("b.yaml", &format!("---\n{}\n", pod("web", "2")));
    assert_eq!(
        line(&files, "plan --cluster a.json b.yaml --catalog types.json"),
        "karpenter: b.yaml: Pod default/web: metadata.name: the same object is in a.json already"
    );
    assert_eq!(
        refusal(&files, &list(&[POOL, POOL])),
        "karpenter: cluster.json: NodePool general: metadata.name: the same object is in cluster.json already"
    );
    let (with, without) = (pod("web", "1"), pod("web", "1").replace(r#","namespace":"default""#, ""));
    assert!(refusal(&files, &list(&[&with, &without])).contains("Pod default/web: metadata.name: the same object"));
    // The same name in another namespace or of another kind is another object.
    let elsewhere = with.replace(r#""namespace":"default""#, r#""namespace":"shop""#);
    assert_eq!(files.plan(&list(&[POOL, &with, &elsewhere, &node("web")]))["pods"], 2);
}

#[test]
fn catalogs() {
    let files = Files::new("catalogs");
    files.write("cluster.json", &list(&[POOL]));
    for (catalog, expected) in [
        ("[", "line 1 column 1: JSON syntax: EOF while parsing a list"),
        ("- name: [a\n", "line "),
        ("", "is empty: expected one list of instance types, as `karpenter catalog` prints it"),
        (
            "{}",
            "document 1: a catalog is one list of instance types, as `karpenter catalog` prints it: invalid type: map, expected a sequence",
        ),
        ("[]\n[]", "document 2: a catalog is one list of instance types"),
        (
            r#"[{"name":"m","offerings":[{"price":"0.1"}]}]"#,
            "instance type m: offerings[0].price: invalid type: string \"0.1\", expected a number",
        ),
        (r#"[{"name":"m","capacity":{"cpu":"x"}}]"#, "instance type m: capacity.cpu: invalid quantity \"x\""),
        (r#"[{"name":"m"},{"capacity":{"cpu":"x"}}]"#, "instance type [1]: capacity.cpu: invalid quantity \"x\""),
        (r#"[{"name":"m"},7]"#, "instance type [1]: invalid type: integer `7`, expected an instance type"),
        (r#"[{"name":"m"},{"name":"m"}]"#, "instance type m: name: there is another instance type of this name"),
        (r#"[{"name":""}]"#, "instance type [0]: name: is missing"),
        (
            r#"[{"name":"m","offerings":[{"price":0.1},{"price":-0.1}]}]"#,
            "instance type m: offerings[1].price: invalid price -0.1: not from 0 to 9223372036.854776",
        ),
        (r#"[{"name":"m","offerings":[{}]}]"#, "instance type m: offerings[0]: missing field `price`"),
        (r#"[{"name":"m","capacity":{"cpu":"-1"}}]"#, "instance type m: capacity.cpu: -1 is below zero"),
        (
            r#"[{"name":"m","requirements":[{"key":"a","operator":"Is"}]}]"#,
            "instance type m: requirements[0].operator: unknown variant `Is`",
        ),
    ] {
        files.write("types.json", catalog);
        let got = line(&files, "plan --cluster cluster.json --catalog types.json");
        assert!(got.starts_with(&format!("karpenter: types.json: {expected}")), "{catalog}\n{got}");
    }
}

#[test]
fn fields_that_are_misspelt_are_named() {
    let files = Files::new("misspelt");
    let pool = POOL.replacen(r#""spec":{"#, r#""spec":{"wieght":9,"#, 1);
    assert_ne!(pool, POOL);
    files.write("cluster.json", &list(&[&pool, &pod("a", "1")]));
    let offering = |field: &str| format!(r#"{{"price":0.1,"requirements":[],"{field}":false}}"#);
    let named = |name: &str, field: &str| {
        let offerings = [offering("available"), offering(field), offering(field)].join(",");
        format!(r#"{{"name":"{name}","capacity":{{"cpu":"4","pods":"9"}},"offerings":[{offerings}]}}"#)
    };
    files.write("types.json", &format!("[{},{}]", named("m", "availble"), named("n", "availble")));
    let document = files.json("plan -o json --cluster cluster.json --catalog types.json");
    let expected = [
        "cluster.json: NodePool general: spec.wieght: there is no such field (it is left out)",
        "types.json: instance type m: offerings[1].availble: there is no such field (it is left out) (and so in another instance type)",
    ];
    assert_eq!(document["warnings"], json!(expected));
}

#[test]
fn a_claim_without_a_machine_is_named() {
    let files = Files::new("not-launched");
    let claim = |status: &str| {
        format!(
            r#"{{"apiVersion":"karpenter.sh/v1","kind":"NodeClaim","metadata":{{"name":"c","labels":{{"karpenter.sh/nodepool":"general"}}}},"spec":{{}},"status":{status}}}"#
        )
    };
    let document = files.plan(&list(&[POOL, &claim("{}")]));
    let expected = "NodeClaim c: no machine is bought yet: the pods that it is for may get another node";
    assert_eq!(document["warnings"], json!([expected]));
    let document = files.plan(&list(&[POOL, &claim(r#"{"providerID":"fake:///c"}"#)]));
    assert_eq!(document["warnings"], json!([]));
}

#[test]
fn a_bad_pod_is_reported_and_stops_no_other() {
    let files = Files::new("bad-pod");
    let bound = |name: &str, cpu: &str| pod(name, cpu).replace(r#""spec":{"#, r#""spec":{"nodeName":"n","#);
    let affinity = r#""spec":{"affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[{"matchExpressions":[{"key":"a","operator":"Is"}]}]}}},"#;
    let odd = pod("odd", "1").replace(r#""spec":{"#, affinity);
    let document =
        files.plan(&list(&[POOL, &node("n"), &pod("good", "1"), &pod("bad", "1x"), &odd, &bound("runs", "1y")]));
    assert_eq!(document["pods"], 4);
    let errors = document["errors"].as_object().unwrap();
    assert_eq!(errors.keys().collect::<Vec<_>>(), ["default/bad", "default/odd", "default/runs"]);
    let reason = errors["default/bad"].as_str().unwrap();
    assert!(
        reason.starts_with("invalid: spec.containers[0].resources.requests.cpu: invalid quantity \"1x\""),
        "{reason}"
    );
    let reason = errors["default/odd"].as_str().unwrap();
    assert!(reason.contains("nodeSelectorTerms[0].matchExpressions[0].operator: unknown variant `Is`"), "{reason}");
    // Nobody knows what the running pod takes of its node, so the good pod needs a new one.
    assert_eq!(document["existingNodes"], json!({}));
    assert_eq!(document["newNodeClaims"][0]["pods"], json!(["default/good"]));
    assert_eq!(
        document["warnings"],
        json!(["Node n: takes no further pods, because what Pod default/runs takes of it is unknown"])
    );
}

#[test]
fn a_bad_pod_that_has_ended_takes_nothing() {
    let files = Files::new("ended");
    let ended =
        pod("ended", "1y").replace(r#""spec":{"#, r#""spec":{"nodeName":"n","#).replace("\"Pending\"", "\"Failed\"");
    let document = files.plan(&list(&[POOL, &node("n"), &pod("good", "1"), &ended]));
    assert_eq!(document["existingNodes"], json!({"n": ["default/good"]}));
    assert_eq!(document["warnings"], json!([]));
}

#[test]
fn a_bad_pool_is_left_out_with_a_warning() {
    let files = Files::new("bad-pool");
    let bad = POOL
        .replace(r#""name":"general""#, r#""name":"bad""#)
        .replace(r#""spec":{"template""#, r#""spec":{"weight":"heavy","template""#);
    let newer = POOL.replace(r#""name":"general""#, r#""name":"newer""#).replace("karpenter.sh/v1", "karpenter.sh/v2");
    let invalid = POOL
        .replace(r#""name":"general""#, r#""name":"invalid""#)
        .replace(r#""spec":{"template""#, r#""spec":{"weight":0,"template""#);
    let other = r#"{"apiVersion":"example.com/v1","kind":"NodePool","metadata":{}}"#;
    let document = files.plan(&list(&[POOL, &bad, &newer, &invalid, other, &pod("a", "1")]));
    assert_eq!(document["newNodeClaims"][0]["nodePool"], "general");
    let warnings: Vec<&str> = document["warnings"].as_array().unwrap().iter().map(|w| w.as_str().unwrap()).collect();
    assert_eq!(
        warnings[..2],
        [
            "cluster.json: NodePool bad: spec.weight: invalid type: string \"heavy\", expected a whole number from 0 to 4294967295 (the pool is left out)",
            "cluster.json: NodePool newer: apiVersion: karpenter.sh/v2: only NodePool and NodeClaim of karpenter.sh/v1 and karpenter.sh/v1beta1, and NodeOverlay of karpenter.sh/v1alpha1, are read (it is left out)",
        ]
    );
    assert!(warnings.len() == 3 && warnings[2].starts_with("NodePool invalid: left out: "), "{warnings:?}");
}

#[test]
fn pods_that_were_not_refused_are_left_alone() {
    let files = Files::new("left-alone");
    let fresh = |name: &str| pod(name, "1").replace("Unschedulable", "");
    let gated = pod("gated", "1").replace("Unschedulable", "SchedulingGated");
    let document = files.plan(&list(&[POOL, &fresh("z"), &fresh("b"), &gated, &pod("a", "1")]));
    assert_eq!(document["pods"], 1);
    assert_eq!(
        document["warnings"],
        json!(["2 pods left alone, because the kube-scheduler has not refused them; the first is default/b"])
    );
}

#[test]
fn what_a_dump_lacks_for_its_pods_is_named() {
    let files = Files::new("lacks");
    let daemon = r#""metadata":{"ownerReferences":[{"apiVersion":"apps/v1","kind":"DaemonSet","name":"agent","controller":true}],"#;
    let daemon =
        pod("agent-x", "1").replace(r#""metadata":{"#, daemon).replace(r#""spec":{"#, r#""spec":{"nodeName":"n","#);
    let choosy = |selector: &str| {
        let affinity = format!(
            r#""spec":{{"affinity":{{"podAntiAffinity":{{"requiredDuringSchedulingIgnoredDuringExecution":[
            {{"topologyKey":"kubernetes.io/hostname","labelSelector":{{}},"namespaceSelector":{selector}}}]}}}},"#
        );
        pod("choosy", "1").replace(r#""spec":{"#, &affinity)
    };
    let by_label = choosy(r#"{"matchLabels":{"team":"a"}}"#);
    let document = files.plan(&list(&[POOL, &node("n"), &daemon, &by_label]));
    let expected = [
        "DaemonSet default/agent: is not there, but pods of it are: new nodes are planned without it",
        "Pod default/choosy: chooses namespaces by their labels, and there are no namespaces: it chooses none",
    ];
    assert_eq!(document["warnings"], json!(expected));
    let by_name = choosy(r#"{"matchLabels":{"kubernetes.io/metadata.name":"a"}}"#);
    assert_eq!(files.plan(&list(&[POOL, &by_name]))["warnings"], json!([]), "names are known");
    let namespace = r#"{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"a"}}"#;
    assert_eq!(files.plan(&list(&[POOL, &by_label, namespace]))["warnings"], json!([]));
}

#[test]
fn wrong_usage_ends_with_status_2() {
    let files = Files::new("usage");
    files.write("cluster.json", &list(&[]));
    for (arguments, expected) in [
        ("", "Usage: karpenter"),
        ("plan", "--cluster <FILE>..."),
        ("plan --cluster cluster.json --catalog types.json -o xml", "invalid value 'xml'"),
        ("plan --cluster cluster.json --catalog types.json --repeat 0", "invalid value '0'"),
        ("plan --cluster cluster.json --colour", "unexpected argument '--colour'"),
        ("plan --cluster - --catalog -", "standard input can be read only once"),
        ("plan --cluster cluster.json --preferences maybe", "[possible values: respect, ignore, weigh]"),
        ("plan --cluster cluster.json --preferences weigh --preference-price=-1", "dollars of at least 0 are expected"),
        (
            "plan --cluster cluster.json --preferences weigh --preference-price much",
            "dollars of at least 0 are expected",
        ),
        ("plan --cluster cluster.json --preference-price 1", "`--preference-price` needs `--preferences weigh`"),
        ("explain web --cluster cluster.json --preferences ignore --preference-price 1", "needs `--preferences weigh`"),
        ("plan --cluster cluster.json --reservations maybe", "[possible values: fallback, strict]"),
        ("plan --cluster cluster.json --slack=-1", "a number of at least 0 is expected"),
        ("plan --cluster cluster.json --slack NaN", "a number of at least 0 is expected"),
        ("plan --cluster cluster.json --min-values maybe", "[possible values: strict, best-effort]"),
        ("plan --cluster cluster.json --node-cost=-1", "dollars of at least 0 are expected"),
        ("plan --cluster cluster.json --interruption-cost inf", "dollars of at least 0 are expected"),
        ("plan --cluster cluster.json --min-spot-types some", "invalid value 'some'"),
        ("plan --cluster cluster.json --max-workload-share 0", "a number above 0 and up to 1 is expected"),
        ("plan --cluster cluster.json --max-workload-share 2", "a number above 0 and up to 1 is expected"),
        ("plan --cluster cluster.json --slack", "a value is required for '--slack <SHARE>'"),
        ("plan --cluster cluster.json -1", "unexpected argument '-1'"),
        ("explain --cluster cluster.json", "<POD>..."),
        ("explain web", "--cluster <FILE>..."),
        ("explain web --cluster - --catalog -", "standard input can be read only once"),
    ] {
        let ran = files.run(arguments);
        assert_eq!((ran.code, ran.out.as_str()), (Some(2), ""), "{arguments}");
        assert!(ran.err.contains(expected), "{arguments}: {}", ran.err);
    }
    for (command, options) in [
        ("plan --cluster cluster.json", "slack node-cost interruption-cost min-spot-types max-workload-share"),
        ("plan --cluster cluster.json --preferences weigh", "preference-price time-limit repeat"),
        ("consolidate --cluster cluster.json", "min-savings min-savings-per-eviction spot-to-spot"),
        ("simulate day.txt", "seed threads"),
        ("replay folder", "threads"),
    ] {
        for option in options.split(' ') {
            let ran = files.run(&format!("{command} --{option} -1"));
            assert_eq!(ran.code, Some(2), "{option}");
            assert!(ran.err.contains(&format!("invalid value '-1' for '--{option} <")), "{option}: {}", ran.err);
        }
    }
    let ran = files.run("--version");
    assert_eq!((ran.code, ran.out), (Some(0), format!("karpenter {}\n", env!("CARGO_PKG_VERSION"))));
}
