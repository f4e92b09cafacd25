//! The policy in `deploy/aws` allows every call that the provider makes, and no other.

use std::{collections::BTreeSet, fs, path::Path};

use serde_json::Value;

/// What EC2 checks beside the call itself when machines are bought, and IAM when profiles are made with tags.
const ALONG_WITH: [&str; 2] = ["iam:PassRole", "iam:TagInstanceProfile"];

fn read(file: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn policy() -> Vec<Value> {
    let policy: Value = serde_json::from_str(&read("../deploy/aws/policy.json")).expect("JSON");
    policy["Statement"].as_array().expect("statements").clone()
}

fn texts(value: &Value) -> Vec<&str> {
    value.as_array().expect("a list").iter().map(|text| text.as_str().expect("a text")).collect()
}

/// The calls that the documentation of `AwsApi` names, as IAM writes them.
fn calls() -> BTreeSet<String> {
    let source = read("src/api.rs");
    let services = [
        ("EC2", "ec2"),
        ("SSM", "ssm"),
        ("SQS", "sqs"),
        ("IAM", "iam"),
        ("EKS", "eks"),
        ("Price List", "pricing"),
        ("ARC", "arc-zonal-shift"),
    ];
    let lines = source.lines().filter_map(|line| line.trim().strip_prefix("/// "));
    let call = |line: &str| {
        services.iter().find_map(|(name, prefix)| {
            let call = line.strip_prefix(name)?.strip_prefix(" `")?.split('`').next()?;
            Some(format!("{prefix}:{call}"))
        })
    };
    lines.filter_map(call).collect()
}

#[test]
fn every_call_is_allowed_and_no_other() {
    let calls = calls();
    let methods = read("src/api.rs").matches("    async fn ").count();
    assert_eq!(calls.len(), methods, "each method says which call it makes: {calls:?}");
    let statements = policy();
    let allowed: BTreeSet<String> =
        statements.iter().flat_map(|statement| texts(&statement["Action"])).map(str::to_owned).collect();
    let needed: BTreeSet<String> = calls.into_iter().chain(ALONG_WITH.map(str::to_owned)).collect();
    assert_eq!(allowed, needed);
}

#[test]
fn what_changes_anything_is_held_to_the_tags_of_the_cluster() {
    for statement in policy() {
        let name = statement["Sid"].as_str().expect("a name");
        assert_eq!(statement["Effect"], "Allow", "{name}");
        let changes = texts(&statement["Action"]).into_iter().any(|action| {
            let verb = action.split(':').nth(1).unwrap_or_default();
            !["Describe", "Get", "List", "Receive", "PassRole"].iter().any(|start| verb.starts_with(start))
        });
        let is_of_queue = texts(&statement["Action"]).iter().all(|action| action.starts_with("sqs:"));
        // Images, networks and reservations are nobody's to tag; what is bought with them is.
        if changes && !is_of_queue && name != "BuyWithWhatIsThere" {
            let condition = statement["Condition"].to_string();
            assert!(condition.contains("/kubernetes.io/cluster/${CLUSTER_NAME}\":\"owned\""), "{name}: {condition}");
            assert!(texts(&statement["Resource"]).iter().all(|resource| *resource != "*"), "{name}");
        }
    }
}
