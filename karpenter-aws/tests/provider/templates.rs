//! What launch templates say of machines.

use std::collections::BTreeMap;

use karpenter_aws::{
    ec2::{
        EfaInfo, NetworkCard,
        fleet::{FleetRequest, TargetKind},
        network::PlacementGroup,
        template::{InterfaceKind, LaunchTemplateData, NetworkInterface, ReservationTarget},
    },
    instance_type::{EFA, NITRO_SANDBOX, labels as own},
    nodeclass::{Ec2NodeClass, PlacementGroupSelector},
    provider::ProviderOptions,
};
use karpenter_core::{CloudProvider, Quantity, ResourceName, api::NodeClaim, labels};

use crate::world::{World, claim, class, label, options};

/// The class with more of a specification.
fn with(spec: serde_json::Value) -> Ec2NodeClass {
    let mut value = serde_json::to_value(class()).expect("plain");
    let serde_json::Value::Object(more) = spec else { panic!("no object") };
    value["spec"].as_object_mut().expect("a specification").extend(more);
    serde_json::from_value(value).expect("a class")
}

fn large(uid: &str) -> NodeClaim {
    claim(uid, &[(labels::INSTANCE_TYPE, &["m5.large"]), (labels::CAPACITY_TYPE, &["on-demand"])])
}

/// What the templates say of the machines of the last fleet, and the fleet.
fn bought(world: &World) -> (Vec<LaunchTemplateData>, FleetRequest) {
    world.aws.with(|state| {
        let fleet = state.fleets.last().expect("a fleet").clone();
        (fleet.configs.iter().map(|config| state.templates[&config.template].1.clone()).collect(), fleet)
    })
}

async fn buy(world: &World, claim: &NodeClaim) -> (LaunchTemplateData, FleetRequest) {
    world.provider.create(claim).await.expect("bought");
    let (mut data, fleet) = bought(world);
    assert_eq!(data.len(), 1);
    (data.remove(0), fleet)
}

async fn of(spec: serde_json::Value) -> LaunchTemplateData {
    buy(&World::with(with(spec)), &large("u1")).await.0
}

#[tokio::test]
async fn a_class_that_says_little_has_one_interface_and_the_disk_of_its_family() {
    let data = of(serde_json::json!({})).await;
    let [first] = data.interfaces.as_slice() else { panic!("{data:?}") };
    let expected = NetworkInterface { security_group_ids: vec!["sg-1".to_owned()], ..NetworkInterface::default() };
    assert_eq!(*first, expected);
    assert_eq!((data.image_id.as_str(), data.tenancy.as_str(), data.market), ("ami-x86", "default", None));
    assert_eq!((data.detailed_monitoring, data.enclaves, data.nested_virtualization), (false, false, None));
    let [disk] = data.block_devices.as_slice() else { panic!("{:?}", data.block_devices) };
    assert_eq!((disk.name.as_str(), disk.size_gib, disk.encrypted), ("/dev/xvda", Some(20), Some(true)));
    let said = &data.metadata_options;
    assert_eq!((said.endpoint.as_str(), said.ipv6.as_deref(), said.hop_limit), ("enabled", Some("disabled"), 1));
    assert_eq!(said.tokens, "required");
    assert!(!data.instance_profile.is_empty() && !data.user_data.is_empty());
}

#[tokio::test]
async fn what_a_class_says_is_in_the_template() {
    let data = of(serde_json::json!({
        "associatePublicIPAddress": true, "ipPrefixCount": 2, "detailedMonitoring": true,
        "connectionTracking": {"tcpEstablishedTimeout": 60, "udpTimeout": 30},
        "metadataOptions": {"httpPutResponseHopLimit": 2, "httpTokens": "optional", "httpProtocolIPv6": "enabled"},
        "tags": {"team": "web"},
        "blockDeviceMappings": [{"deviceName": "/dev/xvda", "ebs": {"volumeSize": "30G", "volumeType": "gp3",
            "iops": 3000, "throughput": 0, "encrypted": true, "deleteOnTermination": true}}],
    }))
    .await;
    let first = &data.interfaces[0];
    assert_eq!((first.public_address, first.ipv4_prefix_count), (Some(true), Some(2)));
    let tracking = first.connection_tracking.expect("set");
    assert_eq!((tracking.tcp_established_seconds, tracking.udp_stream_seconds), (Some(60), None));
    assert_eq!(tracking.udp_seconds, Some(30));
    assert!(data.detailed_monitoring);
    let said = &data.metadata_options;
    assert_eq!((said.hop_limit, said.tokens.as_str(), said.ipv6.as_deref()), (2, "optional", Some("enabled")));
    let [disk] = data.block_devices.as_slice() else { panic!("{:?}", data.block_devices) };
    assert_eq!((disk.size_gib, disk.iops, disk.throughput), (Some(28), Some(3000), None), "30 GB are 27.9 GiB");
    for (key, value) in [("team", "web"), ("kubernetes.io/cluster/test", "owned"), ("karpenter.sh/nodepool", "general")]
    {
        assert_eq!(data.tags[key], value);
    }
}

#[tokio::test]
async fn interfaces_that_a_class_names_are_the_interfaces() {
    let class = with(serde_json::json!({"networkInterfaces": [
        {"networkCardIndex": 0, "deviceIndex": 0, "interfaceType": "interface"},
        {"networkCardIndex": 0, "deviceIndex": 1, "interfaceType": "efa-only"},
    ], "associatePublicIPAddress": false}));
    let world = World::with(class);
    world.aws.with(|state| {
        for info in &mut state.instance_types {
            info.network_info.efa_info = Some(EfaInfo { maximum_efa_interfaces: 1 });
        }
    });
    let (data, _) = buy(&world, &large("u1")).await;
    let places: Vec<_> = data.interfaces.iter().map(|one| (one.card, one.device, one.kind)).collect();
    assert_eq!(places, [(0, 0, InterfaceKind::Interface), (0, 1, InterfaceKind::EfaOnly)]);
    assert_eq!((data.interfaces[0].public_address, data.interfaces[1].public_address), (Some(false), None));
}

#[tokio::test]
async fn a_claim_that_asks_for_fabric_adapters_gets_all_of_the_type() {
    let world = World::new();
    world.aws.with(|state| {
        let info = state.instance_types.iter_mut().find(|own| own.instance_type == "m5.large").expect("there");
        info.network_info.efa_info = Some(EfaInfo { maximum_efa_interfaces: 2 });
        info.network_info.network_cards.push(NetworkCard { network_card_index: 1, ..NetworkCard::default() });
    });
    let (plain, _) = buy(&world, &large("u1")).await;
    assert_eq!(plain.interfaces[0].kind, InterfaceKind::Interface);
    let mut claim = large("u2");
    claim.spec.resources.requests.insert(ResourceName::from(EFA), Quantity::from_units(1));
    let launched = world.provider.create(&claim).await.expect("bought");
    assert_eq!(launched.capacity.get(EFA), Some(Quantity::from_units(2)));
    let (data, _) = bought(&world);
    let places: Vec<_> = data[0].interfaces.iter().map(|one| (one.card, one.device, one.kind)).collect();
    assert_eq!(places, [(0, 0, InterfaceKind::Efa), (1, 1, InterfaceKind::Efa)]);
}

#[tokio::test]
async fn a_claim_that_asks_for_room_for_enclaves_has_them_switched_on() {
    let world = World::new();
    let mut claim = large("u1");
    claim.spec.resources.requests.insert(ResourceName::from(NITRO_SANDBOX), Quantity::from_units(1));
    assert!(buy(&world, &claim).await.0.enclaves);
}

#[tokio::test]
async fn processors_that_run_virtual_machines_are_asked_for() {
    let world = World::with(with(serde_json::json!({"cpuOptions": {"nestedVirtualization": "enabled"}})));
    world.aws.with(|state| {
        for info in &mut state.instance_types {
            info.processor_info.supported_features.push("nested-virtualization".to_owned());
        }
    });
    assert_eq!(buy(&world, &large("u1")).await.0.nested_virtualization.as_deref(), Some("enabled"));
}

fn world_of(options: ProviderOptions) -> World {
    World::of(options, with(serde_json::json!({"ipPrefixCount": 2})))
}

#[tokio::test]
async fn in_a_cluster_of_ipv6_machines_have_an_address_of_it() {
    let mut of_ipv6 = options();
    "fd00::/108".clone_into(&mut of_ipv6.cluster.service_cidr);
    let (data, _) = buy(&world_of(of_ipv6), &large("u1")).await;
    let first = &data.interfaces[0];
    assert_eq!((first.ipv6_address_count, first.ipv6_prefix_count, first.ipv4_prefix_count), (Some(1), Some(2), None));
}

#[tokio::test]
async fn machines_draw_on_the_reservation_that_is_meant_and_no_other() {
    for (kind, interruptible, target, market) in [
        (None, false, TargetKind::OnDemand, None),
        (None, true, TargetKind::ReservedCapacity, Some("interruptible-capacity-reservation")),
        (Some("capacity-block"), false, TargetKind::CapacityBlock, Some("capacity-block")),
    ] {
        let world = World::reserving(1, |reservation| {
            "m5.large".clone_into(&mut reservation.instance_type);
            "us-west-2a".clone_into(&mut reservation.zone);
            reservation.reservation_type = kind.map(str::to_owned);
            reservation.interruptible = Some(interruptible);
        });
        let mut reserved = claim("u1", &[(labels::CAPACITY_TYPE, &["reserved", "on-demand"])]);
        let (data, fleet) = buy(&world, &reserved).await;
        assert_eq!(data.reservation, ReservationTarget::Only("cr-1".to_owned()));
        assert_eq!((fleet.target, data.market.as_deref()), (target, market));
        // Nothing is left of it: others draw on none, however open it is.
        reserved.metadata.uid = "u2".to_owned();
        world.provider.create(&reserved).await.expect("bought");
        assert!(bought(&world).0.iter().all(|data| data.reservation == ReservationTarget::None));
    }
    let mut without = options();
    without.uses_reservations = false;
    assert_eq!(buy(&world_of(without), &large("u1")).await.0.reservation, ReservationTarget::Open);
}

#[tokio::test]
async fn machines_are_in_the_lowest_partition_that_is_asked_for() {
    let mut class = class();
    class.spec.placement_group_selector = Some(PlacementGroupSelector { name: Some("near".to_owned()), id: None });
    let world = World::with(class);
    world.aws.with(|state| {
        state.placement_groups.push(PlacementGroup {
            id: "pg-1".to_owned(),
            name: "near".to_owned(),
            strategy: "partition".to_owned(),
            partition_count: Some(12),
            state: "available".to_owned(),
        });
        for info in &mut state.instance_types {
            info.placement_group_info.supported_strategies.push("partition".to_owned());
        }
    });
    let only: [(&str, &[&str]); 2] =
        [(labels::INSTANCE_TYPE, &["m5.large"]), (own::PLACEMENT_GROUP_PARTITION, &["10", "2"])];
    let launched = world.provider.create(&claim("u1", &only)).await.expect("bought");
    let (data, _) = bought(&world);
    assert_eq!((data[0].placement_group_id.as_deref(), data[0].partition), (Some("pg-1"), Some(2)));
    assert_eq!(label(&launched, own::PLACEMENT_GROUP_ID), "pg-1");
    assert_eq!(label(&launched, own::PLACEMENT_GROUP_PARTITION), "2");
}

#[tokio::test]
async fn tenancy_is_dedicated_only_where_the_default_is_not_allowed() {
    for (allowed, expected) in [(&["default", "dedicated"][..], "default"), (&["dedicated"], "dedicated")] {
        let world = World::new();
        let mut claim = large("u1");
        claim.spec.requirements.push(karpenter_core::api::NodeSelectorRequirement::new(
            own::TENANCY,
            karpenter_core::api::Operator::In,
            allowed.iter().copied(),
        ));
        let launched = world.provider.create(&claim).await.expect("bought");
        assert_eq!(bought(&world).0[0].tenancy, expected);
        assert_eq!(label(&launched, own::TENANCY), expected);
    }
}

#[tokio::test]
async fn each_image_has_a_template_of_its_own_and_types_share_it() {
    let world = World::new();
    world.provider.create(&claim("u1", &[])).await.expect("bought");
    let (data, fleet) = bought(&world);
    let mut images: Vec<_> = data.iter().map(|data| data.image_id.as_str()).collect();
    images.sort_unstable();
    assert_eq!(images, ["ami-arm", "ami-x86"]);
    let types: BTreeMap<&str, usize> =
        fleet.configs.iter().map(|config| (config.template.as_str(), config.overrides.len())).collect();
    assert!(types.values().any(|count| *count > 3), "several types in three zones: {types:?}");
}

#[tokio::test]
async fn the_context_goes_along_unless_the_least_values_were_given_up() {
    let world = World::with(with(serde_json::json!({"context": "c-1"})));
    assert_eq!(buy(&world, &large("u1")).await.1.context.as_deref(), Some("c-1"));
    let mut relaxed = large("u2");
    relaxed.metadata.annotations.insert("karpenter.sh/nodeclaim-min-values-relaxed".to_owned(), "true".to_owned());
    assert_eq!(buy(&world, &relaxed).await.1.context, None);
}

#[tokio::test]
async fn isolated_regions_are_not_told_of_metadata_over_ipv6() {
    for (region, expected) in [("us-west-2", Some("disabled")), ("us-iso-east-1", None), ("us-isob-west-1", None)] {
        let world = world_of(ProviderOptions::new("test", region, options().cluster));
        let (data, _) = buy(&world, &large("u1")).await;
        assert_eq!(data.metadata_options.ipv6.as_deref(), expected, "{region}");
        assert_eq!(data.metadata_options.tokens, "required");
    }
}
