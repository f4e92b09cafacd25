//! The check of a plan before it is printed.

use karpenter_cli::{
    Error,
    check::{Finding, check},
    load,
    plan::{self, Effort, Outcome},
};
use karpenter_core::{Plan, PlannedClaim, PlannerOptions, Price, schedule::MinValuesPolicy};
use karpenter_fake::{CertificateError, Violation};

use crate::common::{CATALOG, Files, POOL, list, node, pod};

/// Two pods that need a new node each, one for the node that there is, and one that fits nowhere.
fn cluster() -> String {
    list(&[POOL, &pod("a", "3"), &pod("b", "3"), &pod("huge", "99"), &pod("small", "1500m"), &node("n")])
}

fn outcome(cluster: &str, options: &PlannerOptions) -> Outcome {
    let cluster = load::cluster(cluster, "cluster.json").unwrap();
    plan::plan(cluster, load::catalog(CATALOG, "types.json").unwrap().types, "types.json", options, Effort::default())
        .unwrap()
}

/// What is found after a change to the outcome.
fn found(change: impl FnOnce(&mut Outcome)) -> Vec<Finding> {
    let options = PlannerOptions::default();
    let mut outcome = outcome(&cluster(), &options);
    assert_eq!(check(&outcome, &options), []);
    change(&mut outcome);
    check(&outcome, &options)
}

/// The plan with its claims changed.
fn with_claims(plan: &Plan, change: impl FnOnce(&mut Vec<PlannedClaim>)) -> Plan {
    let mut claims = plan.claims().to_vec();
    change(&mut claims);
    Plan::from_parts(claims, plan.existing().clone(), plan.unplaced().clone())
}

#[test]
fn a_sound_plan_is_printed_as_ever() {
    let files = Files::new("check");
    files.write("cluster.json", &cluster());
    for format in ["table", "json --with-certificate", "yaml"] {
        let arguments = format!("plan --cluster cluster.json --catalog types.json -o {format}");
        let (plain, checked) = (files.run(&arguments), files.run(&format!("{arguments} --check")));
        assert_eq!((checked.code, checked.err.as_str()), (Some(0), ""), "{format}");
        assert_eq!(without_times(&checked.out), without_times(&plain.out), "{format}");
        assert!(checked.out.contains("0.4"), "{}", checked.out);
    }
}

#[test]
fn pools_that_break_a_rule_are_no_part_of_a_sound_plan() {
    let files = Files::new("check-pools");
    let second = |spec: &str, class: &str| {
        let named = POOL.replacen("general", "broken", 1).replacen(r#""spec":{"#, &format!(r#""spec":{{{spec}"#), 1);
        named.replacen(r#""name":"default""#, &format!(r#""name":"{class}""#), 1)
    };
    for broken in [second(r#""weight":0,"#, "default"), second(r#""weight":101,"#, "default"), second("", "")] {
        files.write("cluster.json", &list(&[POOL, &broken, &pod("a", "3")]));
        let ran = files.run("plan --check --cluster cluster.json --catalog types.json");
        assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""), "{broken}");
        assert!(ran.out.contains("NodePool broken: left out"), "{}", ran.out);
    }
}

/// The lines without numbers that are seconds, which differ from run to run.
fn without_times(text: &str) -> Vec<&str> {
    let mut lines = text.lines();
    let mut out: Vec<&str> = lines.by_ref().take_while(|line| !line.contains("setupSeconds")).collect();
    out.extend(lines.filter(|line| line.contains(char::is_alphabetic)));
    out
}

#[test]
fn a_bound_that_is_too_high_is_found() {
    let findings = found(|outcome| {
        let bound = outcome.certificate.lower_bound.dollars_per_hour();
        assert!(bound > 0.2, "{bound}");
        outcome.certificate.lower_bound = Price::per_hour(bound * 1.01).unwrap();
    });
    assert!(
        matches!(&findings[..], [Finding::Certificate(CertificateError::ClaimsTooMuch { claimed, proven })] if proven < claimed),
        "{findings:?}"
    );
}

#[test]
fn shares_of_more_than_a_price_are_found() {
    let findings = found(|outcome| {
        outcome.certificate.node_pools[0].shares_ppm.insert("memory".to_owned(), 999_999);
    });
    let findings: Vec<String> = findings.iter().map(ToString::to_string).collect();
    assert_eq!(findings.len(), 1, "{findings:?}");
    assert!(findings[0].starts_with("certificate: node pool general"), "{findings:?}");
}

#[test]
fn a_pod_that_was_moved_is_found() {
    let findings = found(|outcome| {
        outcome.plan = with_claims(&outcome.plan, |claims| {
            let moved = claims[1].pods.remove(0);
            claims[0].pods.push(moved);
        });
    });
    let findings: Vec<String> = findings.iter().map(ToString::to_string).collect();
    assert_eq!(
        findings,
        ["plan: claim 0 as on-demand m-4x in zone-a: cpu: 6 requested of 4", "plan: claim 1 is for no pod"]
    );
}

#[test]
fn a_plan_that_costs_less_than_its_bound_is_found() {
    let findings = found(|outcome| {
        outcome.plan = with_claims(&outcome.plan, |claims| claims[0].cheapest_price = Price::ZERO);
    });
    assert!(findings.iter().any(|finding| matches!(finding, Finding::Plan(Violation::Price { claim: 0, .. }))));
    let last = findings.last().unwrap().to_string();
    assert!(last.starts_with("lower bound: it is 0.2990") && last.ends_with("and the plan costs 0.2"), "{last}");
}

#[test]
fn what_an_option_allows_is_not_found() {
    let pool = POOL.replace(
        r#""requirements":["#,
        r#""requirements":[{"key":"node.kubernetes.io/instance-type","operator":"Exists","minValues":2},"#,
    );
    let mut options = PlannerOptions::default();
    options.min_values = MinValuesPolicy::BestEffort;
    let outcome = outcome(&list(&[&pool, &pod("a", "3")]), &options);
    assert_eq!(outcome.plan.claims().len(), 1);
    assert_eq!(check(&outcome, &options), []);
    let expected = "plan: claim 0: 1 values of node.kubernetes.io/instance-type, 2 at least";
    let findings = check(&outcome, &PlannerOptions::default());
    assert_eq!(findings.iter().map(ToString::to_string).collect::<Vec<_>>(), [expected]);
}

#[test]
fn each_finding_is_a_line_and_the_status_is_another() {
    let findings = found(|outcome| outcome.plan = with_claims(&outcome.plan, Vec::clear));
    let error = Error::Unsound { findings };
    assert_eq!(
        error.lines()[..2],
        ["plan: default/a is neither placed nor refused", "plan: default/b is neither placed nor refused"]
    );
    assert_eq!(error.exit_status(), 3);
    let other = Error::Empty { file: "cluster.json".to_owned(), expected: "objects" };
    assert_eq!((other.lines().len(), other.exit_status()), (1, 1));
}
