//! Every way to give the command its input, and every way in which it prints the answer.

use crate::common::{CATALOG, Files, POOL, list, node, pod};
use serde_json::Value;

/// What a plan says apart from the times.
fn decision(mut document: Value) -> Value {
    let fields = document.as_object_mut().unwrap();
    fields.remove("setupSeconds");
    fields.remove("solveSeconds");
    document
}

#[test]
fn the_json_document_has_the_fields_of_the_contract() {
    let files = Files::new("contract");
    let document =
        files.plan(&list(&[POOL, &pod("a", "3"), &pod("b", "3"), &pod("huge", "99"), &pod("small", "1"), &node("n")]));
    let fields: Vec<&str> = document.as_object().unwrap().keys().map(String::as_str).collect();
    let mut expected = [
        "version",
        "complete",
        "newNodeClaims",
        "existingNodes",
        "errors",
        "warnings",
        "pods",
        "hourlyCost",
        "lowerBound",
        "setupSeconds",
        "solveSeconds",
    ];
    expected.sort_unstable();
    assert_eq!(fields, expected);
    assert_eq!(document["complete"], true);
    assert_eq!(document["pods"], 4);
    assert_eq!(document["hourlyCost"], 0.4);
    assert_eq!(document["solveSeconds"].as_array().unwrap().len(), 1);
    assert_eq!(document["existingNodes"], serde_json::json!({"n": ["default/small"]}));
    assert!(
        document["errors"]["default/huge"].as_str().unwrap().contains("cpu short by 95: 99 requested"),
        "{document}"
    );
    let claim = &document["newNodeClaims"][0];
    assert_eq!(claim["nodePool"], "general");
    assert_eq!(claim["pods"], serde_json::json!(["default/a"]));
    assert_eq!(claim["instanceTypes"], serde_json::json!(["m-4x"]));
    assert_eq!(claim["cheapestPrice"], 0.2);
    assert_eq!(claim["requests"]["cpu"], "3");
    let capacity_type =
        serde_json::json!({"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]});
    assert!(claim["requirements"].as_array().unwrap().contains(&capacity_type), "{claim}");
}

#[test]
fn the_built_in_catalog_is_written_as_it_is_read() {
    let files = Files::new("catalog");
    files.write("cluster.json", &list(&[POOL, &pod("a", "3"), &pod("b", "30")]));
    let built_in = decision(files.json("plan --cluster cluster.json -o json"));
    for format in ["json", "yaml"] {
        let ran = files.run(&format!("catalog -o {format}"));
        assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""));
        files.write("all", &ran.out);
        assert_eq!(decision(files.json("plan --cluster cluster.json --catalog all -o json")), built_in, "{format}");
    }
}

#[test]
fn types_of_one_name_are_each_for_their_pools() {
    let files = Files::new("types-of-pools");
    let of_pool = |pool: &str, cpu: &str| {
        let own = CATALOG.trim_matches(['[', ']']).replace(r#""cpu":"4""#, &format!(r#""cpu":"{cpu}""#));
        own.replacen('{', &format!(r#"{{"nodePools":["{pool}"],"#), 1)
    };
    let types = format!("[{},{}]", of_pool("other", "64"), of_pool("general", "4"));
    files.write("types.json", &types);
    let document = files.plan(&list(&[POOL, &pod("small", "3"), &pod("large", "30")]));
    assert_eq!(document["newNodeClaims"].as_array().unwrap().len(), 1);
    assert!(document["errors"]["default/large"].as_str().unwrap().contains("cpu short by 26"), "{document}");

    let without = files.json("plan --without-type m-4x --cluster cluster.json --catalog types.json -o json");
    assert_eq!(without["newNodeClaims"].as_array().unwrap().len(), 0, "{without}");
    let twice = types.replace("other", "general");
    files.write("types.json", &twice);
    let ran = files.run("plan --cluster cluster.json --catalog types.json");
    assert!(ran.err.contains("types.json: instance type m-4x: name: there is another"), "{}", ran.err);
}

#[test]
fn the_proof_of_the_bound_is_printed_on_demand() {
    let files = Files::new("certificate");
    let plain = files.plan(&list(&[POOL, &pod("a", "3"), &pod("b", "3")]));
    assert!(plain.get("certificate").is_none(), "{plain}");
    let document = files.json("plan --cluster cluster.json --catalog types.json -o json --with-certificate");
    let (bound, certificate) = (&document["lowerBound"], &document["certificate"]);
    assert_eq!((&certificate["lowerBound"], &plain["lowerBound"]), (bound, bound));
    assert!(bound.as_f64().unwrap() > 0.2 && bound.as_f64() <= document["hourlyCost"].as_f64(), "{bound}");
    assert_eq!(certificate["nodePools"][0]["nodePool"], "general");
    assert!(certificate["nodePools"][0]["sharesPpm"]["cpu"].as_u64().unwrap() > 900_000, "{certificate}");
}

#[test]
fn sums_of_prices_are_whole_billionths() {
    let files = Files::new("sums");
    files.write("types.json", &CATALOG.replace("0.2", "0.0704"));
    let pods: Vec<String> = (0..4).map(|index| pod(&format!("p-{index}"), "3")).collect();
    let items: Vec<&str> = pods.iter().map(String::as_str).chain([POOL]).collect();
    files.write("cluster.json", &list(&items));
    for (format, line) in [("json", "\"hourlyCost\": 0.2816,"), ("yaml", "hourlyCost: 0.2816")] {
        let ran = files.run(&format!("plan --cluster cluster.json --catalog types.json -o {format}"));
        assert!(ran.out.lines().any(|one| one.trim() == line), "{}", ran.out);
    }
}

#[test]
fn a_table_has_no_room_for_the_proof() {
    let files = Files::new("certificate-table");
    files.write("cluster.json", &list(&[POOL, &pod("a", "3")]));
    for format in ["", "-o table"] {
        let ran = files.run(&format!("plan --cluster cluster.json --catalog types.json --with-certificate {format}"));
        assert_eq!((ran.code, ran.out.as_str()), (Some(2), ""));
        assert!(ran.err.contains("`--with-certificate` needs `-o json` or `-o yaml`"), "{}", ran.err);
    }
}

#[test]
fn the_same_objects_give_the_same_plan_in_every_format() {
    let files = Files::new("same");
    let (a, b, n) = (pod("a", "3"), pod("b", "3"), node("n"));
    let expected = decision(files.plan(&list(&[POOL, &a, &b, &n])));
    assert_eq!(expected["newNodeClaims"].as_array().unwrap().len(), 2);

    files.write("objects.json", &format!("{POOL}\n{a}\n{b}\n{n}"));
    files.write("array.json", &format!("[{POOL},{a},{b},{n}]"));
    files.write("documents.yaml", &format!("---\n{POOL}\n---\n{a}\n---\n# nothing here\n---\n{b}\n---\n{n}\n"));
    files.write("json-with-another-name.yaml", &list(&[POOL, &a, &b, &n]));
    files.write("1", &list(&[POOL, &a]));
    files.write("2", &format!("\u{feff}{}", n.replace('\n', "")));
    files.write(
        "3",
        &format!(
            r#"{{"apiVersion":"v1","kind":"PodList","items":[{}]}}"#,
            b.replace(r#""apiVersion":"v1","kind":"Pod","#, "")
        ),
    );
    for arguments in [
        "--cluster objects.json",
        "--cluster array.json",
        "--cluster documents.yaml",
        "--cluster json-with-another-name.yaml",
        "--cluster 1 2 3",
        "--cluster 3 --cluster 2 --cluster 1",
    ] {
        let document = files.json(&format!("plan {arguments} --catalog types.json -o json"));
        assert_eq!(decision(document), expected, "{arguments}");
    }
    let ran = files.run_with("plan --cluster - --catalog types.json -o json", &list(&[POOL, &a, &b, &n]));
    assert_eq!(decision(serde_json::from_str(&ran.out).unwrap()), expected);
    let ran = files.run_with("plan --cluster 1 2 3 --catalog - -o json", CATALOG);
    assert_eq!(decision(serde_json::from_str(&ran.out).unwrap()), expected);
}

#[test]
fn block_yaml_reads_as_kubectl_prints_it() {
    let files = Files::new("block");
    files.write(
        "cluster.yaml",
        r#"apiVersion: v1
kind: List
metadata:
  resourceVersion: ""
items:
- apiVersion: karpenter.sh/v1
  kind: NodePool
  metadata:
    name: general
  spec:
    limits:
      cpu: 100
    template:
      spec:
        expireAfter: 720h
        nodeClassRef:
          group: karpenter.kwok.sh
          kind: KWOKNodeClass
          name: default
        requirements:
        - key: karpenter.sh/capacity-type
          operator: In
          values: ["on-demand"]
- apiVersion: v1
  kind: Pod
  metadata:
    annotations:
      note: |
        several
        lines
    creationTimestamp: "2026-01-01T00:00:00Z"
    labels:
      enabled: "yes"
      answer: no
    name: web
    namespace: shop
  spec:
    containers:
    - name: c
      resources:
        requests:
          cpu: 0.5
          memory: 1e9
  status:
    conditions:
    - lastProbeTime: null
      lastTransitionTime: "2026-01-01T00:00:00Z"
      reason: Unschedulable
      status: "False"
      type: PodScheduled
    phase: Pending
- apiVersion: v1
  kind: Secret
  metadata:
    name: passed-over
"#,
    );
    let document = files.json("plan --cluster cluster.yaml --catalog types.json -o json");
    assert_eq!(document["newNodeClaims"][0]["pods"], serde_json::json!(["shop/web"]));
    assert_eq!(document["newNodeClaims"][0]["requests"]["cpu"], "500m");
    assert_eq!(document["warnings"], serde_json::json!([]));
}

#[test]
fn the_yaml_document_is_the_json_document() {
    let files = Files::new("yaml");
    let json = decision(files.plan(&list(&[POOL, &pod("a", "3"), &pod("huge", "99")])));
    let ran = files.run("plan --cluster cluster.json --catalog types.json --output yaml");
    assert_eq!(ran.code, Some(0));
    assert_eq!(decision(serde_saphyr::from_str(&ran.out).unwrap()), json);
}

#[test]
fn repeats_are_timed_one_by_one() {
    let files = Files::new("repeat");
    files.write("cluster.json", &list(&[POOL, &pod("a", "3")]));
    let document = files.json("plan --cluster cluster.json --catalog types.json -o json --repeat 3");
    let times = document["solveSeconds"].as_array().unwrap();
    assert!(times.len() == 3 && times.iter().all(|t| t.as_f64().unwrap() > 0.0), "{times:?}");
    assert!(document["setupSeconds"].as_f64().unwrap() > 0.0);
}

#[test]
fn the_kwok_providers_list_is_a_catalog() {
    let files = Files::new("kwok");
    files.write("cluster.json", &list(&[POOL, &pod("a", "3")]));
    files.write(
        "types.json",
        r#"[{"name":"c-4x-amd64-linux","architecture":"amd64","operatingSystems":["linux"],
        "resources":{"cpu":"4","memory":"8Gi","pods":"64"},"offerings":[{"Price":0.1,"Available":true,"Requirements":[
        {"key":"karpenter.sh/capacity-type","operator":"In","values":["on-demand"]},
        {"key":"topology.kubernetes.io/zone","operator":"In","values":["test-zone-a"]}]}]}]"#,
    );
    let document = files.json("plan --cluster cluster.json --catalog types.json -o json");
    assert_eq!(document["newNodeClaims"][0]["instanceTypes"], serde_json::json!(["c-4x-amd64-linux"]));
}

#[test]
fn without_a_catalog_there_is_a_built_in_one() {
    let files = Files::new("built-in");
    files.write("cluster.json", &list(&[POOL, &pod("a", "3")]));
    let document = files.json("plan --cluster cluster.json -o json");
    assert_eq!(document["errors"], serde_json::json!({}));
    assert!(document["newNodeClaims"][0]["instanceTypes"].as_array().unwrap().len() > 1, "{document}");
}

#[test]
fn types_for_no_pool_of_the_cluster_are_named() {
    let files = Files::new("no-pool");
    let sold = |pools: &str| {
        let common = r#""capacity":{"cpu":"4","pods":"10"},"offerings":[{"requirements":[],"price":1}]"#;
        let one = |name: &str| format!(r#"{{"name":"{name}",{common},"nodePools":{pools}}}"#);
        files.write("types.json", &format!("[{},{}]", one("x"), one("y")));
        files.json("plan --cluster cluster.json --catalog types.json -o json")["warnings"].clone()
    };
    files.write("cluster.json", &list(&[POOL]));
    let text = "instance type x: nodePools: [genral, batch]: there is no such NodePool (it is left out) (and so in another \
                instance type)";
    assert_eq!(sold(r#"["genral","batch"]"#)[0], text);
    assert_eq!(sold(r#"["general"]"#), serde_json::json!([]));
}

#[test]
fn what_a_catalog_leaves_open_is_said() {
    let files = Files::new("open-catalog");
    let node = |name: &str, instance_type: &str| {
        let labels = format!(r#""labels":{{"node.kubernetes.io/instance-type":"{instance_type}"}}"#);
        format!(r#"{{"apiVersion":"v1","kind":"Node","metadata":{{"name":"{name}",{labels}}}}}"#)
    };
    let warnings = |options: &str| {
        let document = files.json(&format!("plan --cluster cluster.json {options} -o json"));
        document["warnings"].as_array().expect("a list").iter().map(|text| text.as_str().unwrap().to_owned()).collect()
    };
    files.write("cluster.json", &list(&[POOL, &node("a", "c-4x-amd64-linux")]));
    let without: Vec<String> = warnings("");
    assert!(without.is_empty(), "{without:?}");
    let asks = |key: &str| {
        POOL.replace(r#""requirements":["#, &format!(r#""requirements":[{{"key":"{key}","operator":"Exists"}},"#))
    };
    let pool = asks("karpenter.k8s.aws/instance-category");
    assert_ne!(pool, POOL);
    files.write("cluster.json", &list(&[&pool, &node("b", "m5.xlarge"), &node("a", "c5.large")]));
    let both: Vec<String> = warnings("");
    assert_eq!(
        both,
        [
            "Node a: c5.large is not in the built-in catalog, by which types and prices are made up: give --catalog",
            "NodePool general: spec.template.spec.requirements: no instance type of the catalog says anything of \
             karpenter.k8s.aws/instance-category: all pass",
        ]
    );
    files.write("asking.json", &pool.replace(r#""name":"general""#, r#""name":"other""#));
    files.write("meant.json", POOL);
    let changed: Vec<String> = warnings("--set-pool meant.json asking.json");
    assert_eq!((changed.len(), &changed[0]), (2, &both[0]));
    assert!(changed[1].starts_with("NodePool other"), "{changed:?}");
    files.write("cluster.json", &list(&[&asks("example.com/team"), &node("b", "c-4x-amd64-linux")]));
    let own: Vec<String> = warnings("");
    assert!(own.is_empty(), "the label is the pool's own: {own:?}");
    let limits = r#""spec":{"limits":{"cpus":"9","cpu":"9","nodes":"2","nvidia.com/gpu":"0"},"#;
    let limited = POOL.replacen(r#""spec":{"#, limits, 1);
    files.write("cluster.json", &list(&[&limited]));
    let unlimited: Vec<String> = warnings("");
    assert_eq!(
        unlimited,
        ["NodePool general: spec.limits: no instance type of the catalog has any cpus: it limits nothing"]
    );
    let overlay = r#"{"apiVersion":"karpenter.sh/v1alpha1","kind":"NodeOverlay","metadata":{"name":"more"},
        "spec":{"requirements":[],"capacity":{"example.com/cpus":"1"}}}"#;
    files.write("cluster.json", &list(&[&limited.replace("cpus", "example.com/cpus"), overlay]));
    let added: Vec<String> = warnings("");
    assert!(added.is_empty(), "{added:?}");
    // Where the catalog tells of labels like it, it is misspelt, and nothing is bought for it.
    let family = r#"{"key":"karpenter.k8s.aws/instance-family","operator":"In","values":["m"]}"#;
    files.write(
        "types.json",
        &format!(r#"[{{"name":"m","requirements":[{family}],"capacity":{{"cpu":"4","pods":"10"}},"offerings":[]}}]"#),
    );
    files.write("cluster.json", &list(&[&pool, &pod("a", "1")]));
    let document = files.json("plan --cluster cluster.json --catalog types.json -o json");
    let misspelt =
        r#"spec.template.spec.requirements[0].key: no instance type has a label "karpenter.k8s.aws/instance-category""#;
    let why = document["errors"]["default/a"].as_str().expect("a reason");
    assert!(why.ends_with(misspelt), "{document}");
    let left_out = format!("NodePool general: left out: not ready: {misspelt}");
    assert_eq!(document["warnings"], serde_json::json!([left_out]));
}

#[test]
fn storage_and_namespaces_are_read() {
    let yaml = "
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Namespace, metadata: {name: shop, labels: {team: a}}}
- {apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: data, namespace: shop}, spec: {volumeName: pv-1}}
- {apiVersion: v1, kind: PersistentVolume, metadata: {name: pv-1}, spec: {csi: {driver: disks, volumeHandle: h}}}
- {apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: ssd}, provisioner: disks}
- {apiVersion: storage.k8s.io/v1, kind: CSINode, metadata: {name: n}, spec: {drivers: [{name: disks, allocatable: {count: 3}}]}}
";
    let one = |kind: &str, name: &str| {
        let group = if matches!(kind, "StorageClass" | "CSINode") { "storage.k8s.io/v1" } else { "v1" };
        format!(r#"{{"apiVersion":"{group}","kind":"{kind}","metadata":{{"name":"{name}"}}}}"#)
    };
    let cluster = karpenter_cli::load::cluster(yaml, "storage.yaml").unwrap();
    assert_eq!(cluster.namespaces[0].metadata.labels["team"], "a");
    assert_eq!(cluster.volume_claims[0].key().to_string(), "shop/data");
    assert_eq!(cluster.volumes[0].spec.csi.as_ref().unwrap().volume_handle, "h");
    assert_eq!(cluster.storage_classes[0].provisioner, "disks");
    assert_eq!(cluster.csi_nodes[0].volume_limits()["disks"], 3);

    // A custom resource of the same kind is something else, and a claim is of the namespace default by default.
    let other = one("StorageClass", "ssd").replace("storage.k8s.io", "example.com");
    let json = list(&[&other, &one("PersistentVolumeClaim", "data"), &one("CSINode", "n")]);
    let cluster = karpenter_cli::load::cluster(&json, "storage.json").unwrap();
    assert!(cluster.storage_classes.is_empty());
    assert_eq!(cluster.volume_claims[0].key().to_string(), "default/data");
    assert_eq!(cluster.csi_nodes.len(), 1);
}
