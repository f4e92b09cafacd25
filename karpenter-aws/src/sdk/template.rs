use aws_sdk_ec2::types as sdk;
use karpenter_core::labels::SPOT;

use crate::ec2::{
    Filter, Tags,
    template::{
        BlockDevice, ConnectionTracking, InterfaceKind, LaunchTemplateData, MetadataSettings, NetworkInterface,
        ReservationTarget,
    },
};

pub(super) fn tag_list(tags: &Tags) -> Vec<sdk::Tag> {
    tags.iter().map(|(key, value)| sdk::Tag::builder().key(key).value(value).build()).collect()
}

pub(super) fn tag_specification(kind: sdk::ResourceType, tags: &Tags) -> sdk::TagSpecification {
    sdk::TagSpecification::builder().resource_type(kind).set_tags(Some(tag_list(tags))).build()
}

pub(super) fn filters(filters: &[Filter]) -> Option<Vec<sdk::Filter>> {
    let filter =
        |filter: &Filter| sdk::Filter::builder().name(&filter.name).set_values(Some(filter.values.clone())).build();
    (!filters.is_empty()).then(|| filters.iter().map(filter).collect())
}

/// What a launch template says, for the call.
pub(super) fn write(data: &LaunchTemplateData) -> sdk::RequestLaunchTemplateData {
    let some = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
    let profile = some(&data.instance_profile)
        .map(|name| sdk::LaunchTemplateIamInstanceProfileSpecificationRequest::builder().name(name).build());
    let devices: Vec<_> = data.block_devices.iter().map(block_device).collect();
    let nested = data.nested_virtualization.as_deref().map(sdk::NestedVirtualizationSpecification::from);
    // A fleet says itself that it buys spot machines.
    let market = data.market.as_deref().filter(|market| *market != SPOT).map(|market| {
        sdk::LaunchTemplateInstanceMarketOptionsRequest::builder().market_type(sdk::MarketType::from(market)).build()
    });
    let mut out = sdk::RequestLaunchTemplateData::builder()
        .set_image_id(some(&data.image_id))
        .set_user_data(some(&data.user_data))
        .set_iam_instance_profile(profile)
        .set_block_device_mappings((!devices.is_empty()).then_some(devices))
        .set_network_interfaces(Some(data.interfaces.iter().map(interface).collect()))
        .metadata_options(metadata(&data.metadata_options))
        .monitoring(sdk::LaunchTemplatesMonitoringRequest::builder().enabled(data.detailed_monitoring).build())
        .capacity_reservation_specification(reservation(&data.reservation))
        .placement(placement(data))
        .set_instance_market_options(market);
    if data.enclaves {
        out = out.enclave_options(sdk::LaunchTemplateEnclaveOptionsRequest::builder().enabled(true).build());
    }
    if let Some(nested) = nested {
        out = out.cpu_options(sdk::LaunchTemplateCpuOptionsRequest::builder().nested_virtualization(nested).build());
    }
    let is_spot = data.market.as_deref() == Some(SPOT);
    let request = is_spot.then_some(sdk::ResourceType::SpotInstancesRequest);
    for kind in [sdk::ResourceType::NetworkInterface].into_iter().chain(request) {
        let tags = Some(tag_list(&data.tags));
        let specification =
            sdk::LaunchTemplateTagSpecificationRequest::builder().resource_type(kind).set_tags(tags).build();
        out = out.tag_specifications(specification);
    }
    out.build()
}

fn block_device(device: &BlockDevice) -> sdk::LaunchTemplateBlockDeviceMappingRequest {
    let ebs = sdk::LaunchTemplateEbsBlockDeviceRequest::builder()
        .set_delete_on_termination(device.delete_on_termination)
        .set_encrypted(device.encrypted)
        .set_iops(device.iops)
        .set_kms_key_id(device.kms_key_id.clone())
        .set_snapshot_id(device.snapshot_id.clone())
        .set_throughput(device.throughput)
        .set_volume_initialization_rate(device.initialization_rate)
        .set_volume_size(device.size_gib)
        .set_volume_type(device.volume_type.as_deref().map(sdk::VolumeType::from))
        .build();
    sdk::LaunchTemplateBlockDeviceMappingRequest::builder().device_name(&device.name).ebs(ebs).build()
}

fn interface(interface: &NetworkInterface) -> sdk::LaunchTemplateInstanceNetworkInterfaceSpecificationRequest {
    let index = |index: u32| i32::try_from(index).unwrap_or(i32::MAX);
    let kind = match interface.kind {
        InterfaceKind::Interface => "interface",
        InterfaceKind::Efa => "efa",
        InterfaceKind::EfaOnly => "efa-only",
    };
    sdk::LaunchTemplateInstanceNetworkInterfaceSpecificationRequest::builder()
        .network_card_index(index(interface.card))
        .device_index(index(interface.device))
        .interface_type(kind)
        .set_groups(Some(interface.security_group_ids.clone()))
        .set_associate_public_ip_address(interface.public_address)
        .set_ipv4_prefix_count(interface.ipv4_prefix_count.map(index))
        .set_ipv6_prefix_count(interface.ipv6_prefix_count.map(index))
        .set_ipv6_address_count(interface.ipv6_address_count.map(index))
        .set_primary_ipv6(interface.ipv6_address_count.map(|_| true))
        .set_connection_tracking_specification(interface.connection_tracking.map(tracking))
        .build()
}

fn tracking(tracking: ConnectionTracking) -> sdk::ConnectionTrackingSpecificationRequest {
    sdk::ConnectionTrackingSpecificationRequest::builder()
        .set_tcp_established_timeout(tracking.tcp_established_seconds)
        .set_udp_stream_timeout(tracking.udp_stream_seconds)
        .set_udp_timeout(tracking.udp_seconds)
        .build()
}

/// Tags are never told to the machine: their keys may have a slash, which EC2 would refuse.
fn metadata(settings: &MetadataSettings) -> sdk::LaunchTemplateInstanceMetadataOptionsRequest {
    sdk::LaunchTemplateInstanceMetadataOptionsRequest::builder()
        .http_endpoint(sdk::LaunchTemplateInstanceMetadataEndpointState::from(settings.endpoint.as_str()))
        .set_http_protocol_ipv6(settings.ipv6.as_deref().map(sdk::LaunchTemplateInstanceMetadataProtocolIpv6::from))
        .http_put_response_hop_limit(settings.hop_limit)
        .http_tokens(sdk::LaunchTemplateHttpTokensState::from(settings.tokens.as_str()))
        .instance_metadata_tags(sdk::LaunchTemplateInstanceMetadataTagsState::Disabled)
        .build()
}

fn reservation(target: &ReservationTarget) -> sdk::LaunchTemplateCapacityReservationSpecificationRequest {
    let out = sdk::LaunchTemplateCapacityReservationSpecificationRequest::builder();
    let preference = match target {
        ReservationTarget::Open => sdk::CapacityReservationPreference::Open,
        ReservationTarget::None => sdk::CapacityReservationPreference::None,
        ReservationTarget::Only(id) => {
            let target = sdk::CapacityReservationTarget::builder().capacity_reservation_id(id).build();
            return out
                .capacity_reservation_preference(sdk::CapacityReservationPreference::CapacityReservationsOnly)
                .capacity_reservation_target(target)
                .build();
        }
    };
    out.capacity_reservation_preference(preference).build()
}

fn placement(data: &LaunchTemplateData) -> sdk::LaunchTemplatePlacementRequest {
    let tenancy = Some(data.tenancy.as_str()).filter(|tenancy| !tenancy.is_empty()).map(sdk::Tenancy::from);
    let partition = data.partition.and_then(|number| i32::try_from(number).ok());
    sdk::LaunchTemplatePlacementRequest::builder()
        .set_tenancy(tenancy)
        .set_group_id(data.placement_group_id.clone())
        .set_partition_number(partition)
        .build()
}
