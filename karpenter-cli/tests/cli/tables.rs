//! The report for people.

use serde_json::{Value, json};

use crate::{
    common::{CATALOG, Files, POOL, list, node, pod},
    consolidate::running,
};

fn table(files: &Files, cluster: &str) -> String {
    files.write("cluster.json", cluster);
    let ran = files.run("plan --cluster cluster.json --catalog types.json");
    assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""));
    ran.out
}

#[test]
fn a_report_says_what_to_buy_and_what_is_left() {
    let files = Files::new("report");
    let pods =
        [pod("a", "3"), pod("b", "3"), pod("c", "3500m"), pod("bad", "1x"), pod("huge-0", "99"), pod("huge-1", "99")];
    let fresh = pod("fresh", "1").replace("Unschedulable", "");
    let (small, n) = (pod("small", "1"), node("n"));
    let mut items: Vec<&str> = pods.iter().map(String::as_str).collect();
    items.extend([POOL, &n, &small, &fresh]);
    assert_eq!(table(&files, &list(&items)), include_str!("report.txt"));
}

#[test]
fn an_empty_plan_says_so() {
    let files = Files::new("empty");
    assert_eq!(table(&files, &list(&[POOL, &node("n")])), "No pod wants a place: there is nothing to do.\n");
    assert_eq!(
        table(&files, &list(&[POOL, &node("n"), &pod("a", "1")])).lines().take(2).collect::<Vec<_>>(),
        ["1 pod wants a place: 0 on new nodes, 1 on nodes that exist, 0 left over.", "No new nodes."]
    );
}

#[test]
fn long_lists_are_cut_short_and_stay_narrow() {
    let files = Files::new("long");
    let nodes: Vec<String> = (0..12).map(|i| node(&format!("node-{i:02}"))).collect();
    let pods: Vec<String> = (0..12).map(|i| pod(&format!("pod-{i:02}"), "1500m")).collect();
    let huge: Vec<String> = (0..5).map(|i| pod(&format!("huge-{i}"), "99")).collect();
    let items: Vec<&str> = nodes.iter().chain(&pods).chain(&huge).map(String::as_str).chain([POOL]).collect();
    let report = table(&files, &list(&items));
    assert!(report.contains("and 2 more nodes with 2 pods"), "{report}");
    assert!(report.contains("default/huge-0, default/huge-1, default/huge-2 and 2 more"), "{report}");
    assert!(report.lines().all(|line| line.chars().count() <= 100), "{report}");
}

/// The usual type on demand in three zones, and as spot in one of them.
fn zoned() -> String {
    let offering = |zone: &str, capacity_type: &str, price: f64| {
        format!(
            r#"{{"price":{price},"requirements":[
            {{"key":"karpenter.sh/capacity-type","operator":"In","values":["{capacity_type}"]}},
            {{"key":"topology.kubernetes.io/zone","operator":"In","values":["{zone}"]}}]}}"#
        )
    };
    let all = [
        offering("zone-a", "on-demand", 0.2),
        offering("zone-b", "on-demand", 0.2),
        offering("zone-c", "on-demand", 0.2),
        offering("zone-b", "spot", 0.2),
    ];
    let (head, _) = CATALOG.split_once(r#""offerings""#).unwrap();
    format!(r#"{head}"offerings":[{}]}}]"#, all.join(","))
}

#[test]
fn any_is_said_only_where_the_choice_is_open_among_all_that_is_offered() {
    let files = Files::new("choices");
    files.write("types.json", &zoned());
    let requires = |key: &str, operator: &str, values: &str| {
        format!(r#"{{"key":"{key}","operator":"{operator}","values":[{values}]}}"#)
    };
    let (zone, capacity) = ("topology.kubernetes.io/zone", "karpenter.sh/capacity-type");
    let (a, b, c) = ("zone-a", "zone-b", "zone-c");
    let (demand, spot) = ("on-demand", "spot");
    for (requirement, zones, capacity_types) in [
        (requires(zone, "Exists", ""), ("any", vec![a, b, c]), ("any", vec![demand, spot])),
        (requires(zone, "NotIn", r#""zone-a""#), ("zone-b, zone-c", vec![b, c]), ("any", vec![demand, spot])),
        (requires(zone, "In", r#""zone-a","zone-b""#), ("zone-a, zone-b", vec![a, b]), ("any", vec![demand, spot])),
        (requires(zone, "In", r#""zone-a","zoen-b""#), ("zone-a", vec![a]), (demand, vec![demand])),
        (requires(zone, "NotIn", r#""zone-d""#), ("any", vec![a, b, c]), ("any", vec![demand, spot])),
        (requires(capacity, "NotIn", r#""spot""#), ("any", vec![a, b, c]), (demand, vec![demand])),
        (requires(capacity, "NotIn", r#""on-demand""#), (b, vec![b]), (spot, vec![spot])),
    ] {
        let (pool, _) = POOL.split_once(r#""requirements""#).unwrap();
        let pool = format!(r#"{pool}"requirements":[{requirement}]}}}}}}}}"#);
        let report = table(&files, &list(&[&pool, &pod("p", "3")]));
        let row = report.lines().find(|line| line.contains("m-4x")).unwrap();
        let cells: Vec<&str> = row.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect();
        assert_eq!(cells[3..5], [zones.0, capacity_types.0], "{requirement}\n{report}");
        let told = files.run("explain p --cluster cluster.json --catalog types.json").out;
        let expected = format!("  zone      {}\n  capacity  {}\n", zones.0, capacity_types.0);
        assert!(told.contains(&expected), "{requirement}\n{told}");
        let answer = &files.json("explain p --cluster cluster.json --catalog types.json -o json")[0];
        let only = |values: &[&str], text: &str| {
            if let [one] = values
                && text != "any"
            {
                json!(one)
            } else {
                Value::Null
            }
        };
        assert_eq!(answer["zones"], json!(zones.1), "{answer}");
        assert_eq!(answer["capacityTypes"], json!(capacity_types.1), "{answer}");
        assert_eq!(answer["zone"], only(&zones.1, zones.0), "{answer}");
        assert_eq!(answer["capacityType"], only(&capacity_types.1, capacity_types.0), "{answer}");
    }
}

#[test]
fn pods_on_nodes_that_are_not_in_the_dump_are_named() {
    let files = Files::new("no-nodes");
    let on = |name: &str, node: &str| running(name, "1", node);
    let done = on("done", "n9").replace("Running", "Succeeded");
    let [first, second, there] = [on("a", "n1"), on("b", "n1"), on("c", "n")];
    let warnings = |pods: &[&str]| {
        let n = node("n");
        let mut items = vec![POOL, &n];
        items.extend(pods);
        files.plan(&list(&items))["warnings"].clone()
    };
    assert_eq!(warnings(&[&there, &done]), json!([]));
    let one = "1 pod runs on a node that is not in the dump: n1 (how much room there is on it is unknown)";
    assert_eq!(warnings(&[&first, &there]), json!([one]));
    let bad = on("bad", "n0").replace(r#""cpu":"1""#, r#""cpu":"1x""#);
    let further: Vec<String> = (2..5).map(|index| on(&format!("p-{index}"), &format!("n{index}"))).collect();
    let mut pods = vec![first.as_str(), &second, &bad];
    pods.extend(further.iter().map(String::as_str));
    let many = "6 pods run on nodes that are not in the dump: n0, n1, n2 and 2 more (how much room there is on them is unknown)";
    assert_eq!(warnings(&pods), json!([many]));
}
