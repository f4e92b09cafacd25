use karpenter_core::api::NodeClaim;

use super::*;
use crate::nodeclass::AmiSelectorTerm;

fn class(alias: &str) -> Ec2NodeClass {
    let mut class = Ec2NodeClass::named("default");
    class.spec.ami_selector_terms = vec![AmiSelectorTerm::of_alias(alias)];
    class
}

#[test]
fn base64_is_that_of_the_rfc() {
    for (text, expected) in [
        ("", ""),
        ("f", "Zg=="),
        ("fo", "Zm8="),
        ("foo", "Zm9v"),
        ("foob", "Zm9vYg=="),
        ("fooba", "Zm9vYmE="),
        ("foobar", "Zm9vYmFy"),
    ] {
        assert_eq!(base64(text.as_bytes()), expected);
    }
    assert_eq!(base64(&[0xfb, 0xff]), "+/8=");
}

#[test]
fn labels_that_a_kubelet_may_not_give_are_left_out() {
    for (key, expected) in [
        ("kubernetes.io/arch", true),
        ("topology.kubernetes.io/zone", true),
        ("x.node-restriction.kubernetes.io/a", true),
        ("topology.k8s.aws/zone-id", false),
        ("notkubernetes.io/a", false),
        ("team", false),
    ] {
        assert_eq!(is_forbidden(key), expected, "{key}");
    }
}

#[test]
fn what_is_no_yaml_is_a_script() {
    let config = "apiVersion: node.eks.aws/v1alpha1\nkind: NodeConfig\n";
    let cluster = Cluster { service_cidr: Some("10.100.0.0/16".to_owned()), ..Cluster::default() };
    for (text, is_config) in [
        (config.to_owned(), true),
        (format!("---\n{config}"), true),
        (format!("{config}---\n{config}"), true),
        (format!("{config}---\n"), true),
        ("# nothing\n".to_owned(), true),
        ("#!/bin/bash\nset -e\necho a\n".to_owned(), false),
        ("#!/bin/bash\nset -e\n---\n".to_owned(), false),
        ("echo a".to_owned(), false),
    ] {
        let mut class = class("al2023@latest");
        class.spec.user_data = Some(text.clone());
        let claim = NodeClaim::named("a");
        let bootstrap = Bootstrap::new(&class, &claim, &cluster, "spot", 1).expect("valid");
        let told = bootstrap.user_data().expect("user data").text;
        assert_eq!(!told.contains("text/x-shellscript"), is_config, "{text}");
    }
}

#[test]
fn the_taint_that_keeps_pods_away_is_there_once() {
    let mut claim = NodeClaim::named("a");
    claim.spec.taints = vec![Taint::new("team", "a", TaintEffect::NoSchedule)];
    claim.spec.startup_taints = vec![Taint::new("karpenter.sh/unregistered", "", TaintEffect::NoExecute)];
    let text = |taints: Vec<Taint>| taints.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    assert_eq!(text(taints_of(&claim)), "team=a:NoSchedule,karpenter.sh/unregistered:NoExecute");
    claim.spec.startup_taints.clear();
    assert_eq!(text(taints_of(&claim)), "team=a:NoSchedule,karpenter.sh/unregistered:NoExecute");
}

#[test]
fn a_node_is_told_what_the_planner_thinks_it_is() {
    let cluster = Cluster { dns_ip: Some("10.0.0.10".to_owned()), ..Cluster::default() };
    let mut class = class("al2023@latest");
    class.spec.kubelet =
        serde_json::from_str(r#"{"maxPods":"max_pods - 1","kubeReserved":{"cpu":"vcpus","memory":"1Gi"}}"#)
            .expect("an object");
    let bootstrap = Bootstrap::new(&class, &NodeClaim::named("a"), &cluster, "spot", 28).expect("valid");
    let told = |bootstrap: &Bootstrap<'_>| serde_json::to_value(&bootstrap.kubelet).expect("plain");
    let expected = serde_json::json!({"clusterDNS": ["10.0.0.10"], "kubeReserved": {"memory": "1Gi"}, "maxPods": 28});
    assert_eq!(told(&bootstrap), expected);
    class.spec.kubelet = serde_json::from_str(r#"{"maxPods":5,"clusterDNS":["10.0.0.53"]}"#).expect("an object");
    let bootstrap = Bootstrap::new(&class, &NodeClaim::named("a"), &cluster, "spot", 28).expect("valid");
    assert_eq!(told(&bootstrap), serde_json::json!({"clusterDNS": ["10.0.0.53"], "maxPods": 5}));
}

#[test]
fn amazon_linux_2023_must_know_the_addresses_of_services() {
    let (class, cluster) = (class("al2023@latest"), Cluster::default());
    let bootstrap = Bootstrap::new(&class, &NodeClaim::named("a"), &cluster, "spot", 28).expect("valid");
    assert_eq!(bootstrap.user_data(), Err(UserDataError::NoServiceCidr));
}

#[test]
fn what_the_user_wrote_in_no_format_is_an_error() {
    let cluster = Cluster { service_cidr: Some("10.0.0.0/16".to_owned()), ..Cluster::default() };
    let of = |alias: &str, text: &str| {
        let mut class = class(alias);
        class.spec.user_data = Some(text.to_owned());
        Bootstrap::new(&class, &NodeClaim::named("a"), &cluster, "spot", 28).expect("valid").user_data()
    };
    for alias in ["al2@latest", "al2023@latest"] {
        assert!(matches!(of(alias, "MIME-Version: 1.0\n\nnonsense"), Err(UserDataError::Mime { .. })), "{alias}");
    }
    assert!(matches!(of("bottlerocket@latest", "echo a"), Err(UserDataError::Toml { .. })));
    assert!(matches!(of("bottlerocket@latest", "settings = 1"), Err(UserDataError::Toml { .. })));
}
