//! `karpenter simulate` and `karpenter replay`.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::common::Files;

fn scenarios() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scenarios")
}

/// Transcripts are written anew, instead of compared, if this variable is set.
const UPDATE: &str = "UPDATE_TRANSCRIPTS";

#[test]
fn transcripts_are_as_they_were() {
    #[expect(clippy::disallowed_methods, reason = "the test writes its own expectations when people ask for it")]
    let is_update = std::env::var(UPDATE).is_ok();
    let mut names: Vec<PathBuf> = fs::read_dir(scenarios()).unwrap().map(|entry| entry.unwrap().path()).collect();
    names.retain(|path| path.extension().is_some_and(|extension| extension == "scenario"));
    names.sort();
    assert!(names.len() >= 12, "{}", names.len());
    for path in names {
        let name = path.file_name().unwrap();
        let output = Command::new(env!("CARGO_BIN_EXE_karpenter"))
            .arg("simulate")
            .arg(name)
            .current_dir(scenarios())
            .output()
            .unwrap();
        let (out, err) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
        assert_eq!((output.status.code(), err.as_str()), (Some(0), ""), "{out}");
        let golden = path.with_extension("txt");
        if is_update {
            fs::write(&golden, &out).unwrap();
        }
        let expected = fs::read_to_string(&golden).unwrap_or_default();
        let first = out.lines().zip(expected.lines()).find(|(is, was)| is != was);
        assert!(out == expected, "{}: {first:?} differs first; {UPDATE}=1 writes it anew", golden.display());
    }
}

const POOL: &str = "apply\n  apiVersion: karpenter.sh/v1\n  kind: NodePool\n  metadata: {name: general}\n  spec:\n    template:\n      \
    spec:\n        nodeClassRef: {group: karpenter.kwok.sh, kind: KWOKNodeClass, name: default}\n        requirements: []\n";

#[test]
fn an_expectation_that_is_not_met_is_named_and_the_rest_goes_on() {
    let files = Files::new("simulate-unmet");
    files.write(
        "a.scenario",
        &format!("{POOL}add-pods web 3 cpu=1\ntick 3m\nexpect nodes 7\nscale shop 3\nexpect pods running 3\n"),
    );
    let ran = files.run("simulate a.scenario");
    assert_eq!(ran.code, Some(1));
    assert_eq!(
        ran.err,
        "karpenter: a.scenario: line 12: `expect nodes 7`: there are 1, not exactly 7\n\
         karpenter: a.scenario: line 13: `scale shop 3`: there is no workload default/shop\n"
    );
    assert!(
        ran.out.contains("FAILED: there are 1, not exactly 7\n") && ran.out.contains("\naccount after 3m\n"),
        "{}",
        ran.out
    );
}

/// The pods of the workload have other labels than those of `add-pods`.
#[test]
fn what_is_protected_or_expected_must_have_been_there() {
    let files = Files::new("simulate-names");
    let workload = "apply\n  apiVersion: apps/v1\n  kind: Deployment\n  metadata: {name: web}\n  spec:\n    replicas: 3\n    \
        template:\n      metadata: {labels: {tier: front}}\n      spec:\n        containers: [{name: c, resources: {requests: {cpu: 500m}}}]\n";
    files.write(
        "a.scenario",
        &format!(
            "{POOL}{workload}protect wbe min-available=3\nprotect web min-available=3\ntick 3m\ndelete a node\ntick 3m\n\
             expect evicted 0\nexpect pods of web running 3\nexpect pods of wbe running 0\nexpect nodes of none 0\n\
             delete workload/web\ntick 1m\nexpect pods of web running 0\nexpect nodes of general <= 1\n"
        ),
    );
    let ran = files.run("simulate a.scenario");
    assert_eq!(ran.code, Some(1));
    let expected = [
        "karpenter: a.scenario: line 20: `protect wbe min-available=3`: there is no workload default/wbe",
        "karpenter: a.scenario: line 27: `expect pods of wbe running 0`: there is no workload default/wbe",
        "karpenter: a.scenario: line 28: `expect nodes of none 0`: there is no node pool none",
    ];
    assert_eq!(ran.err.lines().collect::<Vec<_>>(), expected, "{}", ran.out);
}

#[test]
fn the_account_lists_the_types_of_the_nodes_that_it_counts() {
    let files = Files::new("simulate-account");
    // Another machine is bought, whose node is not there yet.
    files.write(
        "a.scenario",
        &format!("{POOL}add-pods web 3 cpu=500m\ntick 3m\ninterrupt a node\ntick 20s\nexpect machines 2\n"),
    );
    let ran = files.run("simulate a.scenario");
    assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""), "{}", ran.out);
    assert!(ran.out.contains("\n  nodes        1: 1 c-2x-arm64-linux\n"), "{}", ran.out);
}

#[test]
fn mistakes_are_one_line_with_file_line_and_word() {
    let files = Files::new("simulate-mistakes");
    files.write("pod.yaml", "kind: Pod\nmetadata: {}\n");
    files.write("pool.json", &crate::common::POOL.replacen(r#""spec":{"#, r#""spec":{"limit":{"cpu":"4"},"#, 1));
    for (text, error) in [
        ("show\ntik 3m\n", "a.scenario: line 2: `tik`: there is no such command; is `tick` meant?"),
        ("apply none.yaml\n", "a.scenario: line 1: `none.yaml`: cannot be read: "),
        ("show\napply pod.yaml\n", "a.scenario: line 2: `pod.yaml`: Pod (document 1): metadata.name: is missing"),
        ("apply pool.json\n", "a.scenario: line 1: `pool.json`: NodePool general: spec.limit: there is no such field"),
        ("show\napply\n  kind: [\n", "a.scenario: line 2: `apply`: line "),
        ("catalog none.json\n", "a.scenario: line 1: `none.json`: cannot be read: "),
    ] {
        files.write("a.scenario", text);
        let ran = files.run("simulate a.scenario");
        assert_eq!((ran.code, ran.out.as_str()), (Some(1), ""), "{text}");
        assert!(
            ran.err.starts_with(&format!("karpenter: {error}")) && ran.err.lines().count() == 1,
            "{text}: {}",
            ran.err
        );
    }
    assert_eq!(files.run("simulate").code, Some(2));
    assert_eq!(files.run("simulate a.scenario --threads 0").code, Some(2));
}

#[test]
fn a_recorded_run_replays_to_the_same_bytes_on_another_thread_count() {
    let files = Files::new("simulate-record");
    let text = format!(
        "seed 3\n{POOL}add-pods web 40 cpu=900m memory=1Gi\nadd-pods db 3 cpu=3\ntick 3m\ncrash\nlose-answers 2\nscale web 10\n\
         interrupt a node\ntick 20m\n"
    );
    files.write("a.scenario", &text);
    let bytes = |threads: usize| {
        let ran = files.run(&format!("simulate a.scenario --record record-{threads} --threads {threads}"));
        assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""));
        files.read(&format!("record-{threads}/recording.jsonl"))
    };
    assert!(bytes(1) == bytes(3), "the recordings are the same on one thread and on three");
    for threads in [1, 2, 5] {
        let ran = files.run(&format!("replay record-1 --threads {threads}"));
        assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""));
        assert!(ran.out.starts_with("the same bytes: ") && ran.out.ends_with("engines: 2\n"), "{}", ran.out);
    }
}

#[test]
fn a_recording_of_another_engine_is_told_by_its_first_difference() {
    let files = Files::new("simulate-differs");
    files.write("a.scenario", &format!("{POOL}add-pods web 10 cpu=900m memory=1Gi\ntick 3m\n"));
    assert_eq!(files.run("simulate a.scenario --record record").code, Some(0));
    let recording = files.read("record/recording.jsonl");
    let launch = recording.find("{\"Launch\":{").expect("a machine is bought");
    let name = recording[launch..].find("\"name\":\"general-").expect("of the pool") + launch + "\"name\":\"".len();
    let other = format!("{}special{}", &recording[..name], &recording[name + "general".len()..]);
    files.write("record/recording.jsonl", &other);
    let ran = files.run("replay record");
    assert_eq!((ran.code, ran.out.as_str()), (Some(1), ""));
    let line = recording[..launch].lines().count();
    assert!(
        ran.err.starts_with(&format!("karpenter: record/recording.jsonl: line {line}: the first difference is at ")),
        "{}",
        ran.err
    );
    assert!(ran.err.contains(": then Launch special-") && ran.err.contains(", now Launch general-"), "{}", ran.err);

    files.write("record/recording.jsonl", &recording.replacen("\"version\":1", "\"version\":2", 1));
    assert_eq!(
        files.run("replay record").err,
        "karpenter: record/recording.jsonl: line 1: it is of version 2, and 1 is read\n"
    );
    files.write("record/recording.jsonl", "");
    assert_eq!(files.run("replay record").err, "karpenter: record/recording.jsonl: line 1: it is empty\n");
    assert!(files.run("replay nowhere").err.starts_with("karpenter: nowhere/recording.jsonl: cannot be read: "));
}

#[test]
fn the_report_is_one_page_that_needs_no_other() {
    let files = Files::new("simulate-report");
    files.write(
        "a<b.scenario",
        &format!("seed 5\n{POOL}add-pods web 10 cpu=900m memory=1Gi\ntick 30m\nscale web 2\ntick 30m\n"),
    );
    let ran = files.run("simulate a<b.scenario --report report.html --compare --seed 6");
    assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""));
    assert!(ran.out.ends_with(" if nodes were never consolidated\n"), "{}", ran.out);
    let page = files.read("report.html");
    for part in [
        "<h1>a&lt;b.scenario</h1>",
        "with seed 6.",
        "without consolidation",
        "<desc id=\"nodes-d\">",
        "prefers-color-scheme: dark",
    ] {
        assert!(page.contains(part), "{part}");
    }
    assert_eq!(page.matches("<figure>").count(), 5);
    assert_eq!(
        (page.matches("<figure>").count(), page.matches("<table>").count()),
        (5, page.matches("</table>").count())
    );
    for part in ["http", "src=", "<link", "<script", "url("] {
        assert!(!page.contains(part), "{part}: the page needs nothing from elsewhere");
    }
}
