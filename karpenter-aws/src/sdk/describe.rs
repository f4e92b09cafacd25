use aws_sdk_ec2::{primitives::DateTime, types as sdk};
use karpenter_core::Timestamp;

use crate::ec2::{
    Image, Tags,
    instance::{Ec2Instance, InstanceHealth, InstanceState},
    network::{PlacementGroup, SecurityGroup, Subnet},
    price::SpotPriceRecord,
    reservation::CapacityReservation,
    template::LaunchTemplate,
};

pub(super) fn time(time: DateTime) -> Option<Timestamp> {
    time.to_millis().ok().map(Timestamp::from_millis)
}

fn text(text: Option<String>) -> String {
    text.unwrap_or_default()
}

fn count(number: Option<i32>) -> u32 {
    number.and_then(|number| u32::try_from(number).ok()).unwrap_or(0)
}

fn tags(tags: Option<Vec<sdk::Tag>>) -> Tags {
    let pair = |tag: sdk::Tag| (text(tag.key), text(tag.value));
    tags.unwrap_or_default().into_iter().map(pair).collect()
}

pub(super) fn state(state: Option<&sdk::InstanceState>) -> InstanceState {
    let name = state.and_then(|state| state.name()).map(sdk::InstanceStateName::as_str);
    name.and_then(InstanceState::named).unwrap_or_default()
}

pub(super) fn subnet(found: sdk::Subnet) -> Subnet {
    Subnet {
        id: text(found.subnet_id),
        zone: text(found.availability_zone),
        zone_id: text(found.availability_zone_id),
        free_addresses: found.available_ip_address_count.unwrap_or(0).into(),
        tags: tags(found.tags),
    }
}

pub(super) fn security_group(found: sdk::SecurityGroup) -> SecurityGroup {
    SecurityGroup { id: text(found.group_id), name: text(found.group_name), tags: tags(found.tags) }
}

pub(super) fn placement_group(found: sdk::PlacementGroup) -> PlacementGroup {
    PlacementGroup {
        id: text(found.group_id),
        name: text(found.group_name),
        strategy: found.strategy.map(|word| word.as_str().to_owned()).unwrap_or_default(),
        partition_count: found.partition_count.and_then(|count| u32::try_from(count).ok()),
        state: found.state.map(|word| word.as_str().to_owned()).unwrap_or_default(),
    }
}

pub(super) fn image(found: sdk::Image) -> Image {
    let time = |text: Option<String>| text.and_then(|text| text.parse().ok());
    Image {
        image_id: text(found.image_id),
        name: text(found.name),
        architecture: found.architecture.map(|word| word.as_str().to_owned()).unwrap_or_default(),
        creation_date: time(found.creation_date),
        deprecation_time: time(found.deprecation_time),
    }
}

pub(super) fn launch_template(found: sdk::LaunchTemplate) -> LaunchTemplate {
    LaunchTemplate {
        id: text(found.launch_template_id),
        name: text(found.launch_template_name),
        tags: tags(found.tags),
    }
}

pub(super) fn spot_price(found: sdk::SpotPrice) -> SpotPriceRecord {
    SpotPriceRecord {
        instance_type: found.instance_type.map(|name| name.as_str().to_owned()).unwrap_or_default(),
        zone: text(found.availability_zone),
        price: text(found.spot_price),
        since: found.timestamp.and_then(time),
    }
}

pub(super) fn reservation(found: sdk::CapacityReservation) -> CapacityReservation {
    CapacityReservation {
        id: text(found.capacity_reservation_id),
        owner_id: text(found.owner_id),
        instance_type: text(found.instance_type),
        zone: text(found.availability_zone),
        available_count: count(found.available_instance_count),
        total_count: count(found.total_instance_count),
        match_criteria: found.instance_match_criteria.map(|word| word.as_str().to_owned()).unwrap_or_default(),
        reservation_type: found.reservation_type.map(|word| word.as_str().to_owned()),
        interruptible: found.interruptible,
        state: found.state.map(|word| word.as_str().to_owned()).unwrap_or_default(),
        end: found.end_date.and_then(time),
        tags: tags(found.tags),
    }
}

pub(super) fn instance(found: sdk::Instance) -> Ec2Instance {
    let state = state(found.state.as_ref());
    let placement = found.placement.unwrap_or_else(|| sdk::Placement::builder().build());
    let interfaces = found.network_interfaces.unwrap_or_default();
    let groups = found.security_groups.unwrap_or_default().into_iter().map(|group| text(group.group_id));
    let profile = found.iam_instance_profile.and_then(|profile| profile.arn);
    let preference = found.capacity_reservation_specification.and_then(|s| s.capacity_reservation_preference);
    Ec2Instance {
        id: text(found.instance_id),
        state,
        instance_type: found.instance_type.map(|name| name.as_str().to_owned()).unwrap_or_default(),
        zone: text(placement.availability_zone),
        image_id: text(found.image_id),
        subnet_id: text(found.subnet_id),
        security_group_ids: groups.collect(),
        instance_profile: profile.and_then(|arn| arn.rsplit('/').next().map(str::to_owned)).unwrap_or_default(),
        launched: found.launch_time.and_then(time),
        spot_request_id: found.spot_instance_request_id.filter(|id| !id.is_empty()),
        reservation_id: found.capacity_reservation_id.filter(|id| !id.is_empty()),
        reservation_preference: preference.map(|word| word.as_str().to_owned()),
        tenancy: placement.tenancy.map(|word| word.as_str().to_owned()).unwrap_or_default(),
        placement_group_id: placement.group_id.filter(|id| !id.is_empty()),
        partition: placement.partition_number.and_then(|number| u32::try_from(number).ok()).filter(|n| *n > 0),
        has_efa: interfaces.iter().any(|i| i.interface_type().is_some_and(|kind| kind.starts_with("efa"))),
        tags: tags(found.tags),
    }
}

pub(super) fn health(found: sdk::InstanceStatus) -> InstanceHealth {
    let since = |summary: Option<sdk::InstanceStatusSummary>| {
        let is_impaired = summary.as_ref().is_some_and(|s| s.status == Some(sdk::SummaryStatus::Impaired));
        let details = summary.filter(|_| is_impaired).and_then(|summary| summary.details).unwrap_or_default();
        details.into_iter().filter_map(|detail| detail.impaired_since.and_then(time)).min()
    };
    // What is over stays in the answer for a week.
    let is_over = |event: &sdk::InstanceStatusEvent| {
        let description = event.description().unwrap_or_default();
        description.starts_with("[Completed]") || description.starts_with("[Canceled]")
    };
    let events = found.events.unwrap_or_default().into_iter().filter(|event| !is_over(event));
    InstanceHealth {
        id: text(found.instance_id),
        instance_impaired_since: since(found.instance_status),
        system_impaired_since: since(found.system_status),
        events: events.filter_map(|event| event.code.map(|code| code.as_str().to_owned())).collect(),
    }
}
