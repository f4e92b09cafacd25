use super::*;

const TEMPLATE: &str = "{instanceProfile: p, subnetSelector: {a: b}, securityGroupSelector: {a: b}}";

fn kubelet(found: &Conversion, class: &str) -> String {
    let class = found.classes.iter().find(|found| found.name() == class).expect("a class");
    serde_json::to_string(&class.spec.kubelet).expect("plain")
}

#[test]
fn a_container_runtime_is_left_out_and_said() {
    let general = provisioner(
        "{providerRef: {name: default}, kubeletConfiguration: {containerRuntime: containerd, maxPods: 20}}",
    );
    let found = converted(&format!("{general}\n---\n{}", template(TEMPLATE)));
    assert_eq!(kubelet(&found, "default"), r#"{"maxPods":20}"#);
    assert_eq!(found.classes[0].refusal(false), None);
    let expected = "Provisioner general: spec.kubeletConfiguration.containerRuntime is left out: nodes have containerd";
    assert_eq!(notes(&found), [expected]);
    let found = converted(&format!("{}---\n{BETA_CLASS}", beta("a", "{containerRuntime: containerd}")));
    assert_eq!(kubelet(&found, "default"), "{}");
    let expected = "NodePool a: spec.template.spec.kubelet.containerRuntime is left out: nodes have containerd";
    assert_eq!(notes(&found), [expected]);
}

#[test]
fn amounts_that_are_numbers_become_texts() {
    let found = converted(&format!("{}---\n{BETA_CLASS}", beta("a", "{kubeReserved: {cpu: 1, memory: 1Gi}}")));
    assert_eq!(kubelet(&found, "default"), r#"{"kubeReserved":{"cpu":"1","memory":"1Gi"}}"#);
    assert!(notes(&found).is_empty());
}

#[test]
fn pods_per_core_is_left_out_where_nodes_did_not_heed_it() {
    let class = BETA_CLASS.replace("AL2023", "Bottlerocket");
    let found = converted(&format!("{}---\n{class}", beta("a", "{podsPerCore: 2, maxPods: 20}")));
    assert_eq!(kubelet(&found, "default"), r#"{"maxPods":20}"#);
    assert_eq!(found.classes[0].refusal(false), None);
    let expected =
        "NodePool a: podsPerCore of its kubelet is left out: nodes of the family Bottlerocket do not heed it";
    assert_eq!(notes(&found), [expected]);
}

#[test]
fn settings_that_nodes_cannot_be_told_are_said() {
    let class = BETA_CLASS.replace("AL2023", "AL2");
    let found = converted(&format!("{}---\n{class}", beta("a", "{clusterDNS: [10.0.0.10, 10.0.0.11]}")));
    assert_eq!(notes(&found).len(), 1);
    assert!(
        notes(&found)[0].starts_with("EC2NodeClass default: cannot be used as it comes out: "),
        "{:?}",
        notes(&found)
    );
    assert!(notes(&found)[0].contains("spec.kubelet.clusterDNS"), "{:?}", notes(&found));
}

const TODAY_CLASS: &str = "kind: EC2NodeClass
apiVersion: karpenter.k8s.aws/v1
metadata: {name: default}
spec:
  amiSelectorTerms: [{alias: al2023@latest}]
  role: node
  kubelet: KUBELET
";

fn today(name: &str, annotations: &str) -> String {
    format!(
        "kind: NodePool
apiVersion: karpenter.sh/v1
metadata: {{name: {name}, annotations: {annotations}}}
spec: {{template: {{spec: {{nodeClassRef: {{group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}}}}}}}}
"
    )
}

const ANNOTATION: &str = "compatibility.karpenter.sh/v1beta1-kubelet-conversion";

#[test]
fn a_kubelet_in_an_annotation_goes_to_the_class_and_counts_more_than_that_of_the_class() {
    for (of_class, expected) in [("{}", "default"), ("{maxPods: 5}", "default-a")] {
        let pool = today("a", &format!("{{{ANNOTATION}: '{{\"maxPods\":20}}', b: c}}"));
        let class = TODAY_CLASS.replace("KUBELET", of_class);
        let found = converted(&format!("{pool}---\n{class}{NETWORK}"));
        assert_eq!(found.pools[0].spec.template.spec.node_class_ref.name, expected);
        assert_eq!(kubelet(&found, expected), r#"{"maxPods":20}"#);
        assert_eq!(found.pools[0].metadata.annotations.keys().collect::<Vec<_>>(), ["b"]);
    }
    let pool = today("a", &format!("{{{ANNOTATION}: '{{'}}"));
    let error = try_convert(&pool, true).expect_err("no object").to_string();
    assert!(error.starts_with(&format!("NodePool a: metadata.annotations[{ANNOTATION}]: ")), "{error}");
}

#[test]
fn a_class_stays_as_it_is_for_the_pools_that_have_no_kubelet() {
    let annotated = today("a", &format!("{{{ANNOTATION}: '{{\"maxPods\":20}}'}}"));
    let class = TODAY_CLASS.replace("KUBELET", "{}");
    let found = converted(&format!("{annotated}---\n{}---\n{class}{NETWORK}", today("b", "{}")));
    let of = |at: usize| &*found.pools[at].spec.template.spec.node_class_ref.name;
    assert_eq!((of(0), of(1)), ("default-a", "default"));
    assert_eq!((&*kubelet(&found, "default-a"), &*kubelet(&found, "default")), (r#"{"maxPods":20}"#, "{}"));
    let class = TODAY_CLASS.replace("KUBELET", "{maxPods: 5}");
    let older = beta("c", "").replace("      kubelet: \n", "");
    let found = converted(&format!("{older}---\n{class}{NETWORK}"));
    assert_eq!((found.classes.len(), &*kubelet(&found, "default")), (1, r#"{"maxPods":5}"#));
}

#[test]
fn a_class_of_another_cloud_gets_no_kubelet() {
    let pool = beta("a", "{maxPods: 20}").replace("{name: default}", "{group: other, kind: Other, name: default}");
    let found = converted(&format!("{pool}---\n{BETA_CLASS}"));
    assert_eq!(kubelet(&found, "default"), "{}");
    assert_eq!(notes(&found), ["NodePool a: settings of the kubelet belong to Other default now, which is not here"]);
}
