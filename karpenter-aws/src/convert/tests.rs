use karpenter_core::{Quantity, api::ConsolidationPolicy};

use super::*;
use crate::nodeclass::{AmiFamily, MetadataOptions};

mod kubelets;
mod losses;
mod names;

fn converted(yaml: &str) -> Conversion {
    try_convert(yaml, true).unwrap_or_else(|error| panic!("{error}"))
}

fn try_convert(yaml: &str, defaults: bool) -> Result<Conversion, ConvertError> {
    let manifests: Vec<Value> =
        yaml.split("---\n").map(|part| serde_saphyr::from_str(part).expect("a manifest")).collect();
    let mut converter = if defaults { Converter::default() } else { Converter::without_defaults() };
    manifests.iter().try_for_each(|manifest| converter.add(manifest))?;
    converter.finish()
}

fn template(spec: &str) -> String {
    format!(
        "{{kind: AWSNodeTemplate, apiVersion: karpenter.k8s.aws/v1alpha1, metadata: {{name: default}}, spec: {spec}}}"
    )
}

fn class(spec: &str) -> Ec2NodeClass {
    converted(&template(spec)).classes.remove(0)
}

fn provisioner(spec: &str) -> String {
    format!("{{kind: Provisioner, apiVersion: karpenter.sh/v1alpha5, metadata: {{name: general}}, spec: {spec}}}")
}

fn pool(spec: &str) -> NodePool {
    converted(&provisioner(spec)).pools.remove(0)
}

fn requirements(pool: &NodePool) -> String {
    let texts = pool.spec.template.spec.requirements.iter();
    texts.map(|r| format!("{} {:?} {}", r.key, r.operator, r.values.join(","))).collect::<Vec<_>>().join("; ")
}

#[test]
fn a_provisioner_becomes_a_pool() {
    let pool = pool(
        "{labels: {type: arm}, annotations: {karpenter.sh/do-not-evict: 'true'}, weight: 10, limits: {resources: {cpu: 100}},
        taints: [{key: type, value: arm, effect: NoSchedule}], startupTaints: [{key: a, effect: NoExecute}],
        requirements: [{key: karpenter.k8s.aws/instance-family, operator: In, values: [t4g]},
            {key: kubernetes.io/arch, operator: In, values: [arm64]}],
        providerRef: {name: default}, ttlSecondsUntilExpired: 300, ttlSecondsAfterEmpty: 30}",
    );
    let template = &pool.spec.template;
    assert_eq!((pool.name(), pool.weight()), ("general", 10));
    assert_eq!(pool.spec.limits.get("cpu"), Some(Quantity::from_units(100)));
    assert_eq!(template.metadata.labels["type"], "arm");
    assert_eq!(template.metadata.annotations["karpenter.sh/do-not-disrupt"], "true");
    assert_eq!((template.spec.taints.len(), template.spec.startup_taints.len()), (1, 1));
    assert_eq!(template.spec.expire_after.to_string(), "300s");
    assert_eq!(template.spec.node_class_ref, Ec2NodeClass::named("default").reference());
    assert_eq!(pool.spec.disruption.consolidation_policy, ConsolidationPolicy::WhenEmpty);
    assert_eq!(pool.spec.disruption.consolidate_after.to_string(), "30s");
    assert_eq!(
        requirements(&pool),
        "karpenter.k8s.aws/instance-family In t4g; kubernetes.io/arch In arm64; kubernetes.io/os In linux; \
        karpenter.sh/capacity-type In on-demand"
    );
    assert_eq!(pool.validate(), Ok(()));
}

#[test]
fn what_a_provisioner_did_not_say_is_what_the_webhook_said() {
    let all = "kubernetes.io/os In linux; kubernetes.io/arch In amd64; karpenter.sh/capacity-type In on-demand; \
        karpenter.k8s.aws/instance-category In c,m,r; karpenter.k8s.aws/instance-generation Gt 2";
    assert_eq!(requirements(&pool("{}")), all);
    let without = try_convert(&provisioner("{}"), false).expect("valid").pools.remove(0);
    assert_eq!(requirements(&without), "");
}

#[test]
fn a_provisioner_that_disturbed_nothing_becomes_a_pool_that_does_not() {
    let pool = pool("{}");
    assert_eq!(pool.spec.disruption.consolidate_after.duration(), None);
    assert_eq!(pool.spec.template.spec.expire_after.duration(), None);
    let pool = self::pool("{consolidation: {enabled: true}, ttlSecondsAfterEmpty: 30}");
    assert_eq!(pool.spec.disruption.consolidation_policy, ConsolidationPolicy::WhenEmptyOrUnderutilized);
    assert_eq!(pool.spec.disruption.consolidate_after.to_string(), "0s");
}

#[test]
fn a_label_that_there_is_no_more_is_left_out_and_said() {
    let spec = "{requirements: [{key: karpenter.k8s.aws/instance-pods, operator: Gt, values: ['10']},
        {key: karpenter.sh/provisioner-name, operator: Exists}]}";
    let found = try_convert(&provisioner(spec), false).expect("valid");
    assert_eq!(requirements(&found.pools[0]), "karpenter.sh/nodepool Exists ");
    assert!(found.notes[0].message.contains("instance-pods"));
}

#[test]
fn what_a_provisioner_said_of_aws_is_a_class_of_its_name() {
    let found = converted(&provisioner("{provider: {subnetSelector: {a: b}, securityGroupSelector: {a: b}}}"));
    assert_eq!(found.pools[0].spec.template.spec.node_class_ref.name, "general");
    assert_eq!(found.classes[0].name(), "general");
}

#[test]
fn selectors_become_terms_of_which_each_is_one_alternative() {
    let class = class(
        "{subnetSelector: {aws-ids: 'subnet-1,subnet-2'}, securityGroupSelector: {Name: 'a, b', team: '*'},
        amiSelector: {'aws::name': 'x,y', 'aws::owners': self}, instanceProfile: profile}",
    );
    let subnets: Vec<_> = class.spec.subnet_selector_terms.iter().map(|t| t.id.as_str()).collect();
    assert_eq!(subnets, ["subnet-1", "subnet-2"]);
    let groups: Vec<_> =
        class.spec.security_group_selector_terms.iter().map(|t| (&*t.tags["Name"], &*t.tags["team"])).collect();
    assert_eq!(groups, [("a", "*"), ("b", "*")]);
    let images: Vec<_> = class.spec.ami_selector_terms.iter().map(|t| (&*t.owner, &*t.name)).collect();
    assert_eq!(images, [("self", "x"), ("self", "y")]);
    assert_eq!(class.spec.ami_family, Some(AmiFamily::Al2));
    assert_eq!(class.validate(), Ok(()));
}

#[test]
fn images_by_tags_were_ones_own_or_those_of_amazon() {
    let images = |selector: &str| {
        let class = class(&format!("{{amiFamily: Custom, amiSelector: {selector}}}"));
        class.spec.ami_selector_terms.iter().map(|t| format!("{}{}", t.owner, t.id)).collect::<Vec<_>>()
    };
    assert_eq!(images("{team: a}"), ["self", "amazon"]);
    assert_eq!(images("{aws-ids: 'ami-1,ami-2'}"), ["ami-1", "ami-2"]);
}

#[test]
fn a_family_without_a_selector_is_an_alias() {
    for (spec, alias) in [
        ("{}", "al2@latest"),
        ("{amiFamily: Bottlerocket}", "bottlerocket@latest"),
        ("{amiFamily: Windows2022}", "windows2022@latest"),
    ] {
        let class = class(spec);
        assert_eq!((class.spec.ami_family, &*class.spec.ami_selector_terms[0].alias), (None, alias));
    }
    assert_eq!(class("{amiFamily: Custom, amiSelector: {a: b}}").spec.ami_family, Some(AmiFamily::Custom));
}

#[test]
fn ubuntu_is_told_what_to_do_as_amazon_linux_2_was() {
    let found = converted(&template("{amiFamily: Ubuntu}"));
    let class = &found.classes[0];
    assert_eq!(
        (class.spec.ami_family, &*class.spec.ami_selector_terms[0].id),
        (Some(AmiFamily::Al2), IMAGE_PLACEHOLDER)
    );
    assert_eq!(class.spec.block_device_mappings[0].device_name.as_deref(), Some("/dev/sda1"));
    assert!(found.notes.iter().any(|note| note.message.contains("Ubuntu")));
}

#[test]
fn answers_of_the_metadata_service_go_as_far_as_they_went() {
    let hops = |spec: &str| class(spec).spec.metadata_options.map(|options| options.http_put_response_hop_limit);
    assert_eq!(hops("{}"), Some(2));
    assert_eq!(hops("{metadataOptions: {httpTokens: optional}}"), Some(2));
    assert_eq!(hops("{metadataOptions: {httpPutResponseHopLimit: 1}}"), Some(1));
    assert_eq!(MetadataOptions::default().http_put_response_hop_limit, 1);
}

#[test]
fn a_role_is_asked_for_where_no_profile_is_written() {
    let found = converted(&template("{}"));
    assert_eq!(found.classes[0].spec.role, ROLE_PLACEHOLDER);
    assert!(found.notes.iter().any(|note| note.message.contains(ROLE_PLACEHOLDER)));
    let class = class("{instanceProfile: profile}");
    assert_eq!((&*class.spec.role, class.spec.instance_profile.as_deref()), ("", Some("profile")));
}

/// What a class of today needs beside images and a role.
const NETWORK: &str = "  subnetSelectorTerms: [{id: subnet-1}]
  securityGroupSelectorTerms: [{id: sg-1}]
";

fn notes(found: &Conversion) -> Vec<String> {
    let notes = found.notes.iter().filter(|note| !note.message.contains("nodes drift whenever"));
    notes.map(|note| format!("{}: {}", note.object, note.message)).collect()
}

const BETA: &str = "kind: NodePool
apiVersion: karpenter.sh/v1beta1
metadata: {name: POOL}
spec:
  template:
    spec:
      nodeClassRef: {name: default}
      kubelet: KUBELET
";
const BETA_CLASS: &str = "kind: EC2NodeClass
apiVersion: karpenter.k8s.aws/v1beta1
metadata: {name: default}
spec: {amiFamily: AL2023, role: node, subnetSelectorTerms: [{id: subnet-1}], securityGroupSelectorTerms: [{id: sg-1}]}
";

fn beta(name: &str, kubelet: &str) -> String {
    BETA.replace("POOL", name).replace("KUBELET", kubelet)
}

#[test]
fn settings_of_the_kubelet_go_to_the_class() {
    let found = converted(&format!("{}---\n{BETA_CLASS}", beta("a", "{maxPods: 20}")));
    assert_eq!(found.classes.len(), 1);
    assert_eq!(found.classes[0].spec.kubelet.0["maxPods"], 20);
    assert_eq!(found.classes[0].spec.ami_selector_terms[0].alias, "al2023@latest");
    assert_eq!(found.classes[0].validate(), Ok(()));
    assert_eq!(found.pools[0].spec.template.spec.node_class_ref, found.classes[0].reference());
}

#[test]
fn a_class_whose_pools_do_not_agree_on_the_kubelet_is_copied() {
    let pools = [beta("a", "{maxPods: 20}"), beta("b", "{maxPods: 20}"), beta("c", "{maxPods: 30}"), beta("d", "{}")];
    let found = converted(&format!("{}---\n{BETA_CLASS}", pools.join("---\n")));
    let of = |at: usize| &*found.pools[at].spec.template.spec.node_class_ref.name;
    assert_eq!([of(0), of(1), of(2), of(3)], ["default", "default", "default-c", "default-d"]);
    let kubelet = |name: &str| {
        let class = found.classes.iter().find(|class| class.name() == name).expect("a class");
        serde_json::to_string(&class.spec.kubelet).expect("plain")
    };
    assert_eq!(kubelet("default"), r#"{"maxPods":20}"#);
    assert_eq!(kubelet("default-c"), r#"{"maxPods":30}"#);
    assert_eq!(kubelet("default-d"), "{}");
}

#[test]
fn manifests_of_today_stay_as_they_are() {
    let class = "kind: EC2NodeClass
apiVersion: karpenter.k8s.aws/v1
metadata: {name: default}
spec:
  amiSelectorTerms: [{alias: al2023@latest}]
  role: node
  kubelet: {maxPods: 5}
";
    let pool = "kind: NodePool
apiVersion: karpenter.sh/v1
metadata: {name: a}
spec: {template: {spec: {nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}, requirements: []}}}
";
    let found = converted(&format!("{class}{NETWORK}---\n{pool}"));
    assert_eq!(found.notes, []);
    assert_eq!((found.classes.len(), found.classes[0].spec.metadata_options.is_none()), (1, true));
    assert_eq!(found.classes[0].spec.kubelet.0["maxPods"], 5);
}

#[test]
fn what_cannot_be_converted_is_an_error_with_the_object_and_the_field() {
    let error = |yaml: &str| try_convert(yaml, true).expect_err(yaml).to_string();
    let beta_class = |spec: &str| {
        format!("{{kind: EC2NodeClass, apiVersion: karpenter.k8s.aws/v1beta1, metadata: {{name: a}}, spec: {spec}}}")
    };
    for (yaml, expected) in [
        (template("{launchTemplate: mine}"), "AWSNodeTemplate default: spec.launchTemplate: has no place"),
        (template("{subnetSelector: [a]}"), "AWSNodeTemplate default: spec.subnetSelector: invalid type"),
        (template("{blockDeviceMappings: [{ebs: 7}]}"), "AWSNodeTemplate default: spec.blockDeviceMappings[0].ebs: "),
        (template("{metadataOptions: 3}"), "AWSNodeTemplate default: spec.metadataOptions: "),
        (provisioner("{taints: a}"), "Provisioner general: spec.taints: "),
        (provisioner("{labels: {a: 1}}"), "Provisioner general: spec.labels.a: "),
        (provisioner("{labels: [a]}"), "Provisioner general: spec.labels: "),
        (provisioner("{annotations: a}"), "Provisioner general: spec.annotations: "),
        (provisioner("{requirements: {a: b}}"), "Provisioner general: spec.requirements: "),
        (provisioner("{limits: [1]}"), "Provisioner general: spec.limits"),
        (provisioner("{limits: {resources: {cpu: 1x}}}"), "Provisioner general: spec.limits.resources.cpu: "),
        (provisioner("{ttlSecondsAfterEmpty: 30s}"), "Provisioner general: spec.ttlSecondsAfterEmpty: \"30s\" is not"),
        (provisioner("{consolidation: {enabled: 'yes'}}"), "Provisioner general: spec.consolidation.enabled: "),
        (
            provisioner("{provider: {securityGroupSelector: a}}"),
            "Provisioner general: spec.provider.securityGroupSelector",
        ),
        (beta_class("{amiFamily: AL2, tags: 3}"), "EC2NodeClass a: spec.tags: "),
        (beta("a", "[]"), "NodePool a: spec.template.spec.kubelet: "),
        ("kind: Provisioner\napiVersion: karpenter.sh/v1alpha5\n".to_owned(), "Provisioner: metadata.name: is missing"),
    ] {
        let error = error(&yaml);
        assert!(error.starts_with(expected), "{error}");
    }
    assert_eq!(try_convert("kind: Deployment\n", true), Err(ConvertError::Nothing));
}

#[test]
fn kinds_of_others_are_skipped() {
    let other = "{kind: Provisioner, apiVersion: example.com/v1, metadata: {name: a}}";
    assert_eq!(try_convert(other, true), Err(ConvertError::Nothing));
}

#[test]
fn what_is_lost_is_said_and_what_moved_is_not() {
    let found = converted(&format!("{}---\n{BETA_CLASS}", beta("a", "{maxPods: 20}")));
    let of_pool: Vec<_> = found.notes.iter().filter(|note| note.object == "NodePool a").collect();
    assert!(of_pool.is_empty(), "{of_pool:?}");
}

#[test]
fn what_a_server_added_is_left_out() {
    let stored = BETA_CLASS.replace(
        "{name: default}",
        "{name: default, uid: u, generation: 3, resourceVersion: '7', creationTimestamp: '2024-01-01T00:00:00Z', labels: {a: b},
        annotations: {kubectl.kubernetes.io/last-applied-configuration: '{}', c: d}}",
    ) + "status: {subnets: [{id: subnet-1, zone: a}]}\n";
    let class = converted(&stored).classes.remove(0);
    let json = serde_json::to_value(&class).expect("plain");
    assert_eq!(
        json["metadata"],
        serde_json::json!({"name": "default", "labels": {"a": "b"}, "annotations": {"c": "d"}})
    );
    assert_eq!(json.get("status"), None);
}
