//! The hash by which a claim shows that its class was changed since.
//!
//! Karpenter hashes the class with version 2 of the Go library hashstructure, over FNV-1, lists taken for sets and what
//! is empty left out. The same hash here lets a cluster change engines without replacing its nodes.

use std::collections::BTreeMap;

use karpenter_core::hashstructure::{self, Struct, text};

use super::{
    AliasError, BlockDevice, BlockDeviceMapping, ConnectionTracking, CpuOptions, Ec2NodeClass, KubeletConfiguration,
    MetadataOptions, NetworkInterface, PlacementGroupSelector, Switch,
};

/// The annotation of classes and claims that has the hash.
pub const NODE_CLASS_HASH: &str = "karpenter.k8s.aws/ec2nodeclass-hash";
/// The annotation of classes and claims that has the version of the hash.
pub const NODE_CLASS_HASH_VERSION: &str = "karpenter.k8s.aws/ec2nodeclass-hash-version";
/// The version of [`Ec2NodeClass::static_hash`]. Hashes of different versions say nothing about each other.
pub const HASH_VERSION: &str = "v6";

impl Ec2NodeClass {
    /// The hash of what the class settles for an instance once and for all: all of it but what selects subnets, groups,
    /// reservations and images, and the number of prefixes. `ca_bundle` is the certificate of the cluster, in base64.
    ///
    /// It is the text that Karpenter writes into [`NODE_CLASS_HASH`]. The order of tags, disks and interfaces does not
    /// matter, nor whether the family of the images is written or told by the alias.
    ///
    /// # Errors
    /// The family of the images is not known.
    pub fn static_hash(&self, ca_bundle: Option<&str>) -> Result<String, AliasError> {
        let family = text(self.ami_family()?.as_str());
        let parts = [self.spec_hash(), family, text(ca_bundle.unwrap_or("")), kubelet(&self.spec.kubelet)];
        Ok(hashstructure::set(parts).to_string())
    }

    /// The annotations to write on the class, and on claims when they are launched.
    ///
    /// # Errors
    /// The family of the images is not known.
    pub fn hash_annotations(&self, ca_bundle: Option<&str>) -> Result<BTreeMap<String, String>, AliasError> {
        Ok(BTreeMap::from([
            (NODE_CLASS_HASH.to_owned(), self.static_hash(ca_bundle)?),
            (NODE_CLASS_HASH_VERSION.to_owned(), HASH_VERSION.to_owned()),
        ]))
    }

    /// The names are those of Karpenter's Go types and fields, in their order.
    fn spec_hash(&self) -> u64 {
        let spec = &self.spec;
        Struct::named("EC2NodeClassSpec")
            .field("PlacementGroupSelector", spec.placement_group_selector.as_ref().map(placement_group))
            .field("AssociatePublicIPAddress", spec.associate_public_ip_address.map(boolean))
            .field("UserData", spec.user_data.as_deref().map(text))
            .field("Role", some_text(&spec.role))
            .field("InstanceProfile", spec.instance_profile.as_deref().map(text))
            .field("Tags", tags(&spec.tags))
            .field("BlockDeviceMappings", set(&spec.block_device_mappings, block_device_mapping))
            .field("InstanceStorePolicy", spec.instance_store_policy.map(|_| text("RAID0")))
            .field("NetworkInterfaces", spec.network_interfaces.as_deref().map(|all| xor(all, network_interface)))
            .field("DetailedMonitoring", spec.detailed_monitoring.map(boolean))
            .field("MetadataOptions", spec.metadata_options.as_ref().map(metadata_options))
            .field("ConnectionTracking", spec.connection_tracking.as_ref().map(connection_tracking))
            .field("Context", spec.context.as_deref().map(text))
            .field("CPUOptions", spec.cpu_options.map(cpu_options))
            .hash()
    }
}

fn placement_group(selector: &PlacementGroupSelector) -> u64 {
    Struct::named("PlacementGroupSelector")
        .field("Name", selector.name.as_deref().map(text))
        .field("ID", selector.id.as_deref().map(text))
        .hash()
}

fn block_device_mapping(mapping: &BlockDeviceMapping) -> u64 {
    Struct::named("BlockDeviceMapping")
        .field("DeviceName", mapping.device_name.as_deref().map(text))
        .field("EBS", mapping.ebs.as_ref().map(block_device))
        .field("RootVolume", mapping.root_volume.then(|| boolean(true)))
        .hash()
}

fn block_device(ebs: &BlockDevice) -> u64 {
    Struct::named("BlockDevice")
        .field("DeleteOnTermination", ebs.delete_on_termination.map(boolean))
        .field("Encrypted", ebs.encrypted.map(boolean))
        .field("IOPS", ebs.iops.map(long))
        .field("KMSKeyID", ebs.kms_key_id.as_deref().map(text))
        .field("SnapshotID", ebs.snapshot_id.as_deref().map(text))
        .field("Throughput", ebs.throughput.map(long))
        .field("VolumeInitializationRate", ebs.volume_initialization_rate.map(int))
        .field("VolumeSize", ebs.volume_size.map(|size| text(&size.to_string())))
        .field("VolumeType", ebs.volume_type.map(|kind| text(kind.as_str())))
        .hash()
}

fn network_interface(interface: &NetworkInterface) -> u64 {
    let index = |index: u32| (index != 0).then(|| hashstructure::bytes(&index.to_le_bytes()));
    Struct::named("NetworkInterface")
        .field("NetworkCardIndex", index(interface.network_card_index))
        .field("DeviceIndex", index(interface.device_index))
        .field("InterfaceType", Some(text(interface.interface_type.as_str())))
        .hash()
}

fn metadata_options(options: &MetadataOptions) -> u64 {
    Struct::named("MetadataOptions")
        .field("HTTPEndpoint", Some(text(options.http_endpoint.as_str())))
        .field("HTTPProtocolIPv6", Some(text(options.http_protocol_ipv6.as_str())))
        .field("HTTPPutResponseHopLimit", Some(long(options.http_put_response_hop_limit.into())))
        .field("HTTPTokens", Some(text(options.http_tokens.as_str())))
        .hash()
}

fn connection_tracking(tracking: &ConnectionTracking) -> u64 {
    Struct::named("ConnectionTracking")
        .field("TCPEstablishedTimeout", tracking.tcp_established_timeout_secs.map(int))
        .field("UDPStreamTimeout", tracking.udp_stream_timeout_secs.map(int))
        .field("UDPTimeout", tracking.udp_timeout_secs.map(int))
        .hash()
}

fn cpu_options(options: CpuOptions) -> u64 {
    let nested = options.nested_virtualization.map(Switch::as_str).map(text);
    Struct::named("CPUOptions").field("NestedVirtualization", nested).hash()
}

/// The text is that of Go, which writes some characters as numbers.
fn kubelet(configuration: &KubeletConfiguration) -> u64 {
    if configuration.is_empty() {
        return text("null");
    }
    let mut object = serde_json::Value::Object(configuration.0.clone());
    // Maps of JSON keep the order of their text if any crate of the build asks for it.
    object.sort_all_objects();
    let mut json = object.to_string();
    for (letter, number) in
        [('<', "\\u003c"), ('>', "\\u003e"), ('&', "\\u0026"), ('\u{2028}', "\\u2028"), ('\u{2029}', "\\u2029")]
    {
        json = json.replace(letter, number);
    }
    text(&json)
}

fn tags(tags: &BTreeMap<String, String>) -> Option<u64> {
    (!tags.is_empty()).then(|| hashstructure::map(tags))
}

fn set<T>(items: &[T], hash: impl Fn(&T) -> u64) -> Option<u64> {
    (!items.is_empty()).then(|| xor(items, hash))
}

fn xor<T>(items: &[T], hash: impl Fn(&T) -> u64) -> u64 {
    hashstructure::set(items.iter().map(hash))
}

fn some_text(own: &str) -> Option<u64> {
    (!own.is_empty()).then(|| text(own))
}

fn boolean(value: bool) -> u64 {
    hashstructure::bytes(&[u8::from(value)])
}

fn int(value: i32) -> u64 {
    hashstructure::bytes(&value.to_le_bytes())
}

fn long(value: i64) -> u64 {
    hashstructure::bytes(&value.to_le_bytes())
}

#[cfg(test)]
mod tests {
    use karpenter_core::Quantity;

    use super::*;
    use crate::nodeclass::{
        AmiFamily, AmiSelectorTerm, HttpTokens, InstanceStorePolicy, SubnetSelectorTerm, VolumeType,
    };

    fn class() -> Ec2NodeClass {
        let mut class = Ec2NodeClass::named("default");
        let spec = &mut class.spec;
        spec.role = "role-1".to_owned();
        spec.tags = (1..=2).map(|n| (format!("keyTag-{n}"), format!("valueTag-{n}"))).collect();
        spec.context = Some("fake-context".to_owned());
        spec.detailed_monitoring = Some(false);
        spec.associate_public_ip_address = Some(false);
        spec.metadata_options = Some(MetadataOptions {
            http_endpoint: Switch::Disabled,
            http_protocol_ipv6: Switch::Disabled,
            http_put_response_hop_limit: 1,
            http_tokens: HttpTokens::Optional,
        });
        let ebs = BlockDevice {
            delete_on_termination: Some(false),
            encrypted: Some(false),
            iops: Some(0),
            kms_key_id: Some("fakeKMSKeyID".to_owned()),
            snapshot_id: Some("fakeSnapshot".to_owned()),
            throughput: Some(0),
            volume_size: "2G".parse().ok(),
            volume_type: Some(VolumeType::Standard),
            ..BlockDevice::default()
        };
        let disk = |name: &str, ebs| BlockDeviceMapping { device_name: Some(name.to_owned()), ebs, root_volume: false };
        spec.block_device_mappings = vec![disk("map-device-1", Some(ebs)), disk("map-device-2", None)];
        spec.user_data = Some("userdata-test-1".to_owned());
        class
    }

    fn hash(class: &Ec2NodeClass) -> String {
        class.static_hash(Some("test-ca-bundle")).expect("a family")
    }

    type Change = fn(&mut Ec2NodeClass);

    /// The numbers are those that Karpenter computes of the same classes.
    #[test]
    fn the_hash_is_that_of_karpenter() {
        let cases: [(Change, &str); 12] = [
            (|_| {}, "11148166120438674859"),
            (|c| c.spec.user_data = Some("userdata-test-2".to_owned()), "11774429238106843388"),
            (|c| c.spec.context = Some("context-2".to_owned()), "2279761750428738028"),
            (|c| c.spec.detailed_monitoring = Some(true), "1936848126751988570"),
            (|c| c.spec.instance_store_policy = Some(InstanceStorePolicy::Raid0), "16697988646989909967"),
            (|c| c.spec.associate_public_ip_address = Some(true), "16141801171825097963"),
            (|c| tracking(c).tcp_established_timeout_secs = Some(300), "1619669030802245540"),
            (|c| tracking(c).udp_timeout_secs = Some(45), "17941926745862994490"),
            (
                |c| c.spec.cpu_options = Some(CpuOptions { nested_virtualization: Some(Switch::Enabled) }),
                "6157846767212910604",
            ),
            (|c| ebs(c).volume_size = Some("10G".parse().expect("valid")), "10372902467896351912"),
            (
                |c| {
                    c.spec.role.clear();
                    c.spec.instance_profile = Some("test-instance-profile".to_owned());
                },
                "10323991363677716244",
            ),
            (|c| c.spec.block_device_mappings.reverse(), "11148166120438674859"),
        ];
        for (change, expected) in cases {
            let mut class = class();
            change(&mut class);
            assert_eq!(hash(&class), expected);
        }
    }

    fn ebs(class: &mut Ec2NodeClass) -> &mut BlockDevice {
        class.spec.block_device_mappings[0].ebs.get_or_insert_default()
    }

    fn tracking(class: &mut Ec2NodeClass) -> &mut ConnectionTracking {
        class.spec.connection_tracking.get_or_insert_default()
    }

    #[test]
    fn what_is_chosen_anew_for_each_instance_is_not_hashed() {
        let mut changed = class();
        changed.spec.ip_prefix_count = Some(3);
        changed.spec.subnet_selector_terms =
            vec![SubnetSelectorTerm { id: "subnet-1".to_owned(), ..Default::default() }];
        assert_eq!(hash(&changed), hash(&class()));
        changed.spec.ami_selector_terms = vec![AmiSelectorTerm::of_alias("al2023@latest")];
        assert_ne!(hash(&changed), hash(&class()), "another family");
        let told = hash(&changed);
        changed.spec.ami_family = Some(AmiFamily::Al2023);
        assert_eq!(hash(&changed), told, "the same family, in writing");
        assert_ne!(changed.static_hash(None), changed.static_hash(Some("other")), "another certificate");
    }

    #[test]
    fn settings_of_the_kubelet_are_hashed_as_text() {
        let of = |json: &str| {
            let mut class = class();
            class.spec.kubelet = serde_json::from_str(json).expect("an object");
            hash(&class)
        };
        assert_eq!(of("{}"), hash(&class()));
        assert_eq!(of(r#"{"podsPerCore":1,"maxPods":12}"#), of(r#"{"maxPods":12,"podsPerCore":1}"#));
        assert_ne!(of(r#"{"maxPods":12}"#), of(r#"{"maxPods":21}"#), "the same bytes in another order");
    }

    #[test]
    fn a_volume_is_as_large_as_its_text_says() {
        let with = |size: Quantity| {
            let mut class = class();
            ebs(&mut class).volume_size = Some(size);
            hash(&class)
        };
        assert_ne!(with(Quantity::from_bytes(1 << 30)), with(Quantity::from_units(1 << 30)));
    }
}
