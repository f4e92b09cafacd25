//! The report for people.

use crate::common::{Files, POOL, list, node, pod};

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
