use super::*;
use crate::nodeclass::{
    AmiSelectorTerm, BlockDeviceMapping, CapacityReservationSelectorTerm, ConnectionTracking, MetadataOptions,
    NetworkInterface, PlacementGroupSelector, SecurityGroupSelectorTerm, SubnetSelectorTerm,
};

fn tag(key: &str, value: &str) -> crate::nodeclass::Tags {
    [(key.to_owned(), value.to_owned())].into()
}

fn class() -> Ec2NodeClass {
    let mut class = Ec2NodeClass::named("default");
    class.spec.subnet_selector_terms = vec![SubnetSelectorTerm { tags: tag("a", "*"), id: String::new() }];
    class.spec.security_group_selector_terms =
        vec![SecurityGroupSelectorTerm { name: "nodes".to_owned(), ..Default::default() }];
    class.spec.ami_selector_terms = vec![AmiSelectorTerm::of_alias("al2023@latest")];
    class.spec.role = "node".to_owned();
    class
}

type Change = fn(&mut Ec2NodeClass);

fn id(id: &str) -> SubnetSelectorTerm {
    SubnetSelectorTerm { id: id.to_owned(), ..Default::default() }
}

fn ebs(class: &mut Ec2NodeClass, json: &str) {
    let ebs = serde_json::from_str(json).expect("a volume");
    class.spec.block_device_mappings = vec![BlockDeviceMapping { ebs: Some(ebs), ..Default::default() }];
}

fn interfaces(class: &mut Ec2NodeClass, all: &[(u32, u32, InterfaceType)]) {
    let interface = |&(network_card_index, device_index, interface_type): &(u32, u32, InterfaceType)| {
        NetworkInterface { network_card_index, device_index, interface_type }
    };
    class.spec.network_interfaces = Some(all.iter().map(interface).collect());
}

#[test]
fn classes_in_order_are_accepted() {
    let changes: [Change; 13] = [
        |_| {},
        |c| c.spec.subnet_selector_terms.push(id("subnet-1")),
        |c| c.spec.subnet_selector_terms.push(SubnetSelectorTerm { tags: tag("a", "b"), ..id("subnet-1") }),
        |c| c.spec.ami_family = Some(AmiFamily::Custom),
        |c| c.spec.ami_family = Some(AmiFamily::Al2023),
        |c| {
            c.spec.role.clear();
            c.spec.instance_profile = Some("profile".to_owned());
        },
        |c| c.spec.tags = tag("Name", "mine"),
        |c| ebs(c, r#"{"volumeSize":"59000Gi"}"#),
        |c| ebs(c, r#"{"volumeSize":"58Ti"}"#),
        |c| ebs(c, r#"{"volumeSize":"64000G"}"#),
        |c| ebs(c, r#"{"snapshotID":"snap-1","volumeInitializationRate":300}"#),
        |c| {
            interfaces(
                c,
                &[(0, 0, InterfaceType::Interface), (0, 1, InterfaceType::EfaOnly), (1, 1, InterfaceType::EfaOnly)],
            );
        },
        |c| c.spec.connection_tracking = Some(ConnectionTracking { udp_timeout_secs: Some(30), ..Default::default() }),
    ];
    for change in changes {
        let mut class = class();
        change(&mut class);
        assert_eq!(class.validate(), Ok(()), "{class:?}");
    }
}

fn assert_all_rejected(changes: &[Change]) {
    for (at, change) in changes.iter().enumerate() {
        let mut class = class();
        change(&mut class);
        assert!(class.validate().is_err(), "{at}");
    }
}

#[test]
fn terms_that_select_nothing_or_too_much_are_rejected() {
    assert_all_rejected(&[
        |c| c.spec.subnet_selector_terms.clear(),
        |c| c.spec.subnet_selector_terms = vec![id("subnet-1"); 31],
        |c| c.spec.subnet_selector_terms.push(SubnetSelectorTerm::default()),
        |c| c.spec.subnet_selector_terms = vec![SubnetSelectorTerm { tags: tag("a", "b"), ..id("subnet-1") }],
        |c| c.spec.subnet_selector_terms = vec![id("net-1")],
        |c| c.spec.subnet_selector_terms[0].tags = tag("", "b"),
        |c| c.spec.subnet_selector_terms[0].tags = tag("a", ""),
        |c| c.spec.subnet_selector_terms[0].tags = (0..21).map(|n| (n.to_string(), "a".to_owned())).collect(),
        |c| c.spec.security_group_selector_terms.clear(),
        |c| c.spec.security_group_selector_terms[0].tags = tag("a", "b"),
        |c| c.spec.security_group_selector_terms[0].id = "sg-1".to_owned(),
        |c| reservation(c).owner_id = "012345678901".to_owned(),
        |c| reservation(c).id = "xcr-1".to_owned(),
        |c| {
            reservation(c).id = "cr-1".to_owned();
            c.spec.capacity_reservation_selector_terms[0].tags = tag("a", "b");
        },
        |c| c.spec.placement_group_selector = Some(PlacementGroupSelector::default()),
        |c| c.spec.placement_group_selector = Some(PlacementGroupSelector { name: None, id: Some("pg-A".to_owned()) }),
    ]);
}

fn reservation(class: &mut Ec2NodeClass) -> &mut CapacityReservationSelectorTerm {
    class.spec.capacity_reservation_selector_terms = vec![CapacityReservationSelectorTerm::default()];
    &mut class.spec.capacity_reservation_selector_terms[0]
}

#[test]
fn images_that_cannot_be_found_are_rejected() {
    assert_all_rejected(&[
        |c| c.spec.ami_selector_terms.clear(),
        |c| c.spec.ami_selector_terms.push(AmiSelectorTerm::of_id("ami-1")),
        |c| c.spec.ami_selector_terms[0].owner = "self".to_owned(),
        |c| c.spec.ami_selector_terms[0].alias = "ubuntu@latest".to_owned(),
        |c| c.spec.ami_selector_terms[0].alias = "windows2022@v1".to_owned(),
        |c| c.spec.ami_selector_terms[0].alias = format!("al2023@{}", "v".repeat(30)),
        |c| c.spec.ami_family = Some(AmiFamily::Bottlerocket),
        |c| c.spec.ami_selector_terms = vec![AmiSelectorTerm::of_id("ami-1")],
        |c| {
            c.spec.ami_family = Some(AmiFamily::Al2);
            c.spec.ami_selector_terms = vec![AmiSelectorTerm { owner: "self".to_owned(), ..Default::default() }];
        },
    ]);
}

#[test]
fn settings_out_of_range_are_rejected() {
    assert_all_rejected(&[
        |c| c.spec.role.clear(),
        |c| c.spec.instance_profile = Some("profile".to_owned()),
        |c| c.spec.instance_profile = Some(String::new()),
        |c| c.spec.tags = tag("kubernetes.io/cluster/prod", "owned"),
        |c| c.spec.tags = tag("", "a"),
        |c| c.spec.block_device_mappings = vec![BlockDeviceMapping { root_volume: true, ..Default::default() }; 2],
        |c| c.spec.block_device_mappings = vec![BlockDeviceMapping::default(); 51],
        |c| ebs(c, "{}"),
        |c| ebs(c, r#"{"volumeSize":"65T"}"#),
        |c| ebs(c, r#"{"volumeSize":"1M"}"#),
        |c| ebs(c, r#"{"volumeSize":"59001Gi"}"#),
        |c| ebs(c, r#"{"volumeSize":"30000Mi"}"#),
        |c| ebs(c, r#"{"volumeSize":"107374182400"}"#),
        |c| ebs(c, r#"{"volumeSize":"1Gi","volumeInitializationRate":100}"#),
        |c| ebs(c, r#"{"snapshotID":"snap-1","volumeInitializationRate":99}"#),
        |c| interfaces(c, &[(0, 1, InterfaceType::Interface)]),
        |c| interfaces(c, &[(0, 0, InterfaceType::Interface), (0, 0, InterfaceType::Interface)]),
        |c| {
            interfaces(
                c,
                &[(0, 0, InterfaceType::Interface), (0, 1, InterfaceType::EfaOnly), (0, 2, InterfaceType::EfaOnly)],
            );
        },
        |c| c.spec.metadata_options = Some(MetadataOptions { http_put_response_hop_limit: 65, ..Default::default() }),
        |c| c.spec.connection_tracking = Some(ConnectionTracking::default()),
        |c| c.spec.connection_tracking = Some(ConnectionTracking { udp_timeout_secs: Some(61), ..Default::default() }),
    ]);
}

fn refusal(alias: &str, kubelet: &str) -> Option<(&'static str, String)> {
    let mut class = class();
    class.spec.ami_selector_terms = vec![AmiSelectorTerm::of_alias(alias)];
    class.spec.kubelet = serde_json::from_str(kubelet).expect("an object");
    class.refusal(false).map(|refusal| (refusal.reason, refusal.message))
}

#[test]
fn settings_that_a_kubelet_knows_are_accepted() {
    for kubelet in [
        "{}",
        r#"{"maxPods":0,"registryPullQPS":10,"cpuManagerPolicy":"static","featureGates":{"A":true},"shutdownGracePeriod":"30s"}"#,
        r#"{"maxOpenFiles":3000000000,"memoryThrottlingFactor":0.9,"syncFrequency":"1m0.5s","tracing":{},"reservedMemory":[]}"#,
        r#"{"evictionHard":{"memory.available":"5%","nodefs.available":"1Gi"}}"#,
        r#"{"evictionSoft":{"memory.available":"5%"},"evictionSoftGracePeriod":{"memory.available":"1m30s"}}"#,
        r#"{"kubeReserved":{"cpu":"100m","pid":"100"},"imageGCHighThresholdPercent":85,"imageGCLowThresholdPercent":80}"#,
    ] {
        assert_eq!(refusal("al2023@latest", kubelet), None, "{kubelet}");
    }
}

#[test]
fn settings_that_no_kubelet_would_take_are_refused() {
    for kubelet in [
        r#"{"maxPod":10}"#,
        r#"{"maxPods":-1}"#,
        r#"{"maxPods":1.5}"#,
        r#"{"clusterDNS":"10.0.0.10"}"#,
        r#"{"cpuCFSQuota":"true"}"#,
        r#"{"registerWithTaints":[]}"#,
        r#"{"evictionHard":{"memory":"5%"}}"#,
        r#"{"evictionHard":{"memory.available":"101%"}}"#,
        r#"{"evictionMinimumReclaim":{"memory.available":"-1Gi"}}"#,
        r#"{"evictionSoft":{"memory.available":"5%"}}"#,
        r#"{"evictionSoftGracePeriod":{"memory.available":"1m"}}"#,
        r#"{"evictionSoft":{"memory.available":"5%"},"evictionSoftGracePeriod":{"memory.available":"1 minute"}}"#,
        r#"{"evictionSoft":{"memory.available":"5%"},"evictionSoftGracePeriod":{"memory.available":"-1m"}}"#,
        r#"{"kubeReserved":{"nvidia.com/gpu":"1"}}"#,
        r#"{"systemReserved":{"cpu":"-100m"}}"#,
        r#"{"imageGCHighThresholdPercent":101}"#,
        r#"{"imageGCHighThresholdPercent":80,"imageGCLowThresholdPercent":80}"#,
        r#"{"podsPerCore":-1}"#,
        r#"{"maxPods":3000000000}"#,
        r#"{"podsPerCore":3000000000}"#,
        r#"{"nodeStatusUpdateFrequency":"soon"}"#,
        r#"{"shutdownGracePeriod":"30"}"#,
        r#"{"featureGates":{"A":"true"}}"#,
        r#"{"logging":"verbose"}"#,
        r#"{"memoryThrottlingFactor":"x"}"#,
    ] {
        let found = refusal("al2023@latest", kubelet);
        assert_eq!(found.map(|(reason, _)| reason), Some("InvalidKubeletConfiguration"), "{kubelet}");
    }
    let all = refusal("al2023@latest", r#"{"maxPods":-1,"podsPerCore":-1}"#).expect("two").1;
    assert_eq!(all, "spec.kubelet.podsPerCore: below zero; spec.kubelet.maxPods: below zero");
}

#[test]
fn settings_that_nodes_of_a_family_cannot_be_told_are_refused() {
    let reason = |alias: &str, kubelet: &str| refusal(alias, kubelet).map(|(reason, _)| reason);
    let unsupported = Some("UnsupportedKubeletConfiguration");
    assert_eq!(reason("al2@latest", r#"{"registryPullQPS":10}"#), unsupported);
    assert_eq!(reason("windows2022@latest", r#"{"clusterDNS":["10.0.0.10","10.0.0.11"]}"#), unsupported);
    assert_eq!(reason("bottlerocket@latest", r#"{"podsPerCore":10}"#), unsupported);
    assert_eq!(reason("al2@latest", r#"{"podsPerCore":10,"clusterDNS":["10.0.0.10"]}"#), None);
    assert_eq!(reason("al2023@latest", r#"{"clusterDNS":["10.0.0.10","10.0.0.11"]}"#), None);
}

#[test]
fn expressions_and_tags_of_the_provider_are_refused() {
    for kubelet in [r#"{"maxPods":"max_pods - 1"}"#, r#"{"kubeReserved":{"cpu":"vcpus * 10"}}"#] {
        assert_eq!(refusal("al2023@latest", kubelet).map(|(reason, _)| reason), Some("KubeletExpressionsDisabled"));
    }
    let mut class = class();
    class.spec.tags = tag("karpenter.sh/nodepool", "a");
    assert_eq!(class.refusal(false).map(|refusal| refusal.reason), Some("TagValidationFailed"));
}

#[test]
fn expressions_that_are_evaluated_must_be_such() {
    let mut class = class();
    for (kubelet, expected) in [
        (r#"{"maxPods":"max_pods - 1","kubeReserved":{"cpu":"vcpus * 10","memory":"1Gi"}}"#, None),
        (r#"{"maxPods":"max_pods -"}"#, Some("KubeletExpressionInvalid")),
        (r#"{"systemReserved":{"memory":"pods * 10"}}"#, Some("KubeletExpressionInvalid")),
    ] {
        class.spec.kubelet = serde_json::from_str(kubelet).expect("an object");
        assert_eq!(class.refusal(true).map(|refusal| refusal.reason), expected, "{kubelet}");
    }
}
