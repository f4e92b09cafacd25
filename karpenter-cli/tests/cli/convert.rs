//! Manifests of older versions, as they are written today.

use crate::common::Files;

const OLD: &str = "apiVersion: karpenter.sh/v1alpha5
kind: Provisioner
metadata: {name: general}
spec:
  providerRef: {name: shop}
  labels: {team: a}
  ttlSecondsAfterEmpty: 30
  kubeletConfiguration: {maxPods: 20}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: other}
---
apiVersion: karpenter.k8s.aws/v1alpha1
kind: AWSNodeTemplate
metadata: {name: shop}
spec:
  amiFamily: Bottlerocket
  instanceProfile: nodes
  subnetSelector: {karpenter.sh/discovery: shop}
  securityGroupSelector: {karpenter.sh/discovery: shop}
";

const NEW: &str = "apiVersion: karpenter.k8s.aws/v1
kind: EC2NodeClass
metadata:
  name: shop
spec:
  subnetSelectorTerms:
  - tags:
      karpenter.sh/discovery: shop
";

#[test]
fn old_manifests_become_those_of_today() {
    let files = Files::new("convert");
    files.write("old.yaml", OLD);
    let ran = files.run("convert old.yaml");
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    assert!(ran.out.starts_with(NEW), "{}", ran.out);
    assert_eq!(ran.out.matches("---\n").count(), 1);
    for line in ["kind: NodePool", "      alias: bottlerocket@latest", "    maxPods: 20", "        team: a"] {
        assert!(ran.out.contains(line.trim_start()), "{line}: {}", ran.out);
    }
    assert!(ran.err.starts_with("karpenter: AWSNodeTemplate shop: nodes drift"), "{}", ran.err);
    // What comes out is of today: it stays as it is.
    let again = files.run_with("convert -", &ran.out);
    assert_eq!((again.code, again.err.as_str(), again.out), (Some(0), "", ran.out));
}

#[test]
fn a_list_of_a_cluster_becomes_a_list() {
    let files = Files::new("convert-list");
    let list = r#"{"apiVersion": "karpenter.sh/v1alpha5", "kind": "ProvisionerList", "items": [
        {"metadata": {"name": "a"}, "spec": {"providerRef": {"name": "a"}}}]}"#;
    let ran = files.run_with("convert - --ignore-defaults -o json", list);
    assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""));
    let found: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!((&found["kind"], &found["items"][0]["kind"]), (&"List".into(), &"NodePool".into()));
    assert_eq!(found["items"][0]["spec"]["template"]["spec"]["requirements"], serde_json::json!([]));
}

#[test]
fn what_cannot_be_converted_is_one_line_with_the_file_the_object_and_the_field() {
    let files = Files::new("convert-errors");
    files.write("old.yaml", &OLD.replace("{team: a}", "[team]"));
    files.write("other.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: other}\n");
    for (arguments, expected) in [
        ("convert old.yaml", "karpenter: old.yaml: Provisioner general: spec.labels: invalid type"),
        (
            "convert other.yaml",
            "karpenter: no Provisioner, AWSNodeTemplate, NodePool or EC2NodeClass among the manifests",
        ),
        ("convert absent.yaml", "karpenter: absent.yaml: cannot be read: "),
    ] {
        let ran = files.run(arguments);
        assert_eq!((ran.code, ran.out.as_str(), ran.err.lines().count()), (Some(1), "", 1), "{}", ran.err);
        assert!(ran.err.starts_with(expected), "{}", ran.err);
    }
}

#[test]
fn the_same_object_in_two_files_is_one_line_with_both() {
    let files = Files::new("convert-twice");
    files.write("a.yaml", OLD);
    files.write("b.yaml", OLD);
    let ran = files.run("convert a.yaml b.yaml");
    let expected = "karpenter: b.yaml: Provisioner general: metadata.name: the same object is in a.yaml already\n";
    assert_eq!((ran.code, ran.out.as_str(), ran.err.as_str()), (Some(1), "", expected));
}

#[test]
fn standard_input_is_read_only_once() {
    let files = Files::new("convert-input");
    let ran = files.run_with("convert - -", OLD);
    assert_eq!((ran.code, ran.out.as_str()), (Some(2), ""));
    assert!(ran.err.contains("standard input can be read only once"), "{}", ran.err);
}
