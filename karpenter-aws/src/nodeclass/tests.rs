use super::*;

const FULL: &str = r#"{"apiVersion":"karpenter.k8s.aws/v1","kind":"EC2NodeClass","metadata":{"name":"default"},
"spec":{"subnetSelectorTerms":[{"tags":{"a":"*"}},{"id":"subnet-1"}],
"securityGroupSelectorTerms":[{"name":"nodes"}],
"capacityReservationSelectorTerms":[{"ownerID":"012345678901","instanceMatchCriteria":"targeted"}],
"placementGroupSelector":{"name":"near"},"associatePublicIPAddress":false,"ipPrefixCount":2,
"amiSelectorTerms":[{"ssmParameter":"/images/node"}],"amiFamily":"AL2023","userData":"x","role":"node",
"tags":{"team":"a"},"kubelet":{"maxPods":20,"anything":{"b":1,"c":[1]}},
"blockDeviceMappings":[{"deviceName":"/dev/xvda","ebs":{"encrypted":true,"iops":3000,"kmsKeyID":"k","snapshotID":"s",
"throughput":125,"volumeInitializationRate":100,"volumeSize":"100Gi","volumeType":"gp3"},"rootVolume":true}],
"instanceStorePolicy":"RAID0",
"networkInterfaces":[{"networkCardIndex":0,"deviceIndex":0,"interfaceType":"interface"},
{"networkCardIndex":1,"deviceIndex":1,"interfaceType":"efa-only"}],"detailedMonitoring":true,
"metadataOptions":{"httpEndpoint":"enabled","httpProtocolIPv6":"disabled","httpPutResponseHopLimit":1,
"httpTokens":"optional"},"connectionTracking":{"tcpEstablishedTimeout":60},"context":"c",
"cpuOptions":{"nestedVirtualization":"enabled"}},
"status":{"subnets":[{"id":"subnet-1","zone":"z","zoneID":"i"}],"securityGroups":[{"id":"sg-1","name":"nodes"}],
"capacityReservations":[{"availabilityZone":"z","endTime":"2026-01-01T00:00:00Z","id":"cr-1",
"instanceMatchCriteria":"open","instanceType":"m5.large","ownerID":"012345678901","reservationType":"capacity-block",
"interruptible":true,"state":"expiring"}],
"amis":[{"id":"ami-1","deprecated":true,"name":"n","requirements":[{"key":"kubernetes.io/arch","operator":"In","values":["amd64"]}]}],
"instanceProfile":"p"}}"#;

#[test]
fn all_fields_are_written_as_they_were_read() {
    let class: Ec2NodeClass = serde_json::from_str(FULL).expect("valid");
    let expected: serde_json::Value = serde_json::from_str(FULL).expect("valid");
    assert_eq!(serde_json::to_value(&class).expect("plain"), expected);
}

#[test]
fn fields_of_metadata_options_have_defaults_of_their_own() {
    let options: MetadataOptions = serde_json::from_str(r#"{"httpTokens":"optional"}"#).expect("valid");
    assert_eq!(options, MetadataOptions { http_tokens: HttpTokens::Optional, ..MetadataOptions::default() });
}

#[test]
fn the_family_is_the_one_written_else_that_of_the_alias_else_custom() {
    let mut class = Ec2NodeClass::named("default");
    assert_eq!(class.ami_family(), Ok(AmiFamily::Custom));
    class.spec.ami_selector_terms = vec![AmiSelectorTerm::of_alias("bottlerocket@latest")];
    assert_eq!(class.ami_family(), Ok(AmiFamily::Bottlerocket));
    class.spec.ami_family = Some(AmiFamily::Custom);
    assert_eq!(class.ami_family(), Ok(AmiFamily::Custom));
    class.spec.ami_family = None;
    class.spec.ami_selector_terms = vec![AmiSelectorTerm::of_alias("nonsense")];
    assert_eq!(class.ami_family(), Err(AliasError { text: "nonsense".to_owned() }));
}
