use aws_sdk_ec2::{
    operation::RequestId,
    operation::{
        create_fleet::{CreateFleetOutput, builders::CreateFleetFluentBuilder},
        run_instances::builders::RunInstancesFluentBuilder,
    },
    types::{
        CreateFleetError, CreateFleetInstance, DefaultTargetCapacityType, FleetLaunchTemplateConfigRequest,
        FleetLaunchTemplateOverridesRequest, FleetLaunchTemplateSpecificationRequest, FleetOnDemandAllocationStrategy,
        FleetReservationType, FleetType, InstanceNetworkInterfaceSpecification, InstanceType,
        LaunchTemplateAndOverridesResponse, LaunchTemplateSpecification, OnDemandOptionsRequest,
        ReservedCapacityOptionsRequest, ResourceType, SpotAllocationStrategy, SpotOptionsRequest,
        TargetCapacitySpecificationRequest,
    },
};
use karpenter_core::Price;

use super::template::tag_specification;
use crate::ec2::{
    Tags,
    fleet::{Allocation, FleetConfig, FleetError, FleetLaunch, FleetOverride, FleetReply, FleetRequest, TargetKind},
};

/// Writes a request into the call.
pub(super) fn write(call: CreateFleetFluentBuilder, request: &FleetRequest) -> CreateFleetFluentBuilder {
    let target = match request.target {
        TargetKind::OnDemand => DefaultTargetCapacityType::OnDemand,
        TargetKind::Spot => DefaultTargetCapacityType::Spot,
        TargetKind::CapacityBlock => DefaultTargetCapacityType::CapacityBlock,
        TargetKind::ReservedCapacity => DefaultTargetCapacityType::ReservedCapacity,
    };
    let capacity = TargetCapacitySpecificationRequest::builder()
        .total_target_capacity(i32::try_from(request.count).unwrap_or(i32::MAX))
        .default_target_capacity_type(target)
        .build();
    let token = Some(request.client_token.clone()).filter(|token| !token.is_empty());
    let mut call = call
        .r#type(FleetType::Instant)
        .set_client_token(token)
        .set_dry_run(request.is_dry_run.then_some(true))
        .target_capacity_specification(capacity)
        .set_context(request.context.clone())
        .set_launch_template_configs(Some(request.configs.iter().map(config).collect()));
    for kind in [ResourceType::Instance, ResourceType::Volume, ResourceType::Fleet] {
        call = call.tag_specifications(tag_specification(kind, &request.tags));
    }
    match (request.target, request.allocation) {
        (TargetKind::Spot, Some(allocation)) => {
            let strategy = match allocation {
                Allocation::CapacityOptimizedPrioritized => SpotAllocationStrategy::CapacityOptimizedPrioritized,
                _ => SpotAllocationStrategy::PriceCapacityOptimized,
            };
            call.spot_options(SpotOptionsRequest::builder().allocation_strategy(strategy).build())
        }
        (TargetKind::OnDemand, Some(allocation)) => {
            let strategy = match allocation {
                Allocation::Prioritized => FleetOnDemandAllocationStrategy::Prioritized,
                _ => FleetOnDemandAllocationStrategy::LowestPrice,
            };
            call.on_demand_options(OnDemandOptionsRequest::builder().allocation_strategy(strategy).build())
        }
        // The template names the reservation; which kind it is of is for the fleet to say.
        (TargetKind::ReservedCapacity, _) => {
            let kind = FleetReservationType::InterruptibleCapacityReservation;
            call.reserved_capacity_options(ReservedCapacityOptionsRequest::builder().reservation_types(kind).build())
        }
        _ => call,
    }
}

/// Writes a dry run for one machine of a template. A template that names interfaces takes the subnet with them.
pub(super) fn write_dry(
    call: RunInstancesFluentBuilder,
    template: &str,
    choice: &FleetOverride,
    tags: &Tags,
) -> RunInstancesFluentBuilder {
    let template = LaunchTemplateSpecification::builder().launch_template_name(template).version("$Latest").build();
    let interface =
        InstanceNetworkInterfaceSpecification::builder().device_index(0).subnet_id(&choice.subnet_id).build();
    let call = call
        .dry_run(true)
        .min_count(1)
        .max_count(1)
        .launch_template(template)
        .instance_type(InstanceType::from(choice.instance_type.as_str()))
        .network_interfaces(interface);
    let kinds = [ResourceType::Instance, ResourceType::Volume, ResourceType::NetworkInterface];
    kinds.into_iter().fold(call, |call, kind| call.tag_specifications(tag_specification(kind, tags)))
}

fn config(config: &FleetConfig) -> FleetLaunchTemplateConfigRequest {
    let template = FleetLaunchTemplateSpecificationRequest::builder()
        .launch_template_name(&config.template)
        .version("$Latest")
        .build();
    let choice = |choice: &FleetOverride| {
        let image = Some(choice.image_id.clone()).filter(|id| !id.is_empty());
        FleetLaunchTemplateOverridesRequest::builder()
            .instance_type(InstanceType::from(choice.instance_type.as_str()))
            .subnet_id(&choice.subnet_id)
            .availability_zone(&choice.zone)
            .set_image_id(image)
            .priority(choice.priority.dollars_per_hour())
            .build()
    };
    FleetLaunchTemplateConfigRequest::builder()
        .launch_template_specification(template)
        .set_overrides(Some(config.overrides.iter().map(choice).collect()))
        .build()
}

/// What a reply says.
pub(super) fn read(output: CreateFleetOutput) -> FleetReply {
    FleetReply {
        request_id: output.request_id().unwrap_or_default().to_owned(),
        fleet_id: output.fleet_id.unwrap_or_default(),
        launched: output.instances.unwrap_or_default().into_iter().map(launch).collect(),
        errors: output.errors.unwrap_or_default().into_iter().map(error).collect(),
    }
}

fn launch(found: CreateFleetInstance) -> FleetLaunch {
    let mut choice = choice(found.launch_template_and_overrides.as_ref());
    if let Some(instance_type) = &found.instance_type {
        instance_type.as_str().clone_into(&mut choice.instance_type);
    }
    for (said, known) in [(found.subnet_id, &mut choice.subnet_id), (found.availability_zone, &mut choice.zone)] {
        if let Some(said) = said.filter(|said| !said.is_empty()) {
            *known = said;
        }
    }
    FleetLaunch { instance_ids: found.instance_ids.unwrap_or_default(), choice }
}

fn error(found: CreateFleetError) -> FleetError {
    FleetError {
        choice: choice(found.launch_template_and_overrides.as_ref()),
        code: found.error_code.unwrap_or_default(),
        message: found.error_message.unwrap_or_default(),
    }
}

fn choice(found: Option<&LaunchTemplateAndOverridesResponse>) -> FleetOverride {
    let Some(overrides) = found.and_then(|found| found.overrides()) else { return FleetOverride::default() };
    let text = |text: Option<&str>| text.unwrap_or_default().to_owned();
    FleetOverride {
        instance_type: text(overrides.instance_type().map(InstanceType::as_str)),
        subnet_id: text(overrides.subnet_id()),
        zone: text(overrides.availability_zone()),
        image_id: text(overrides.image_id()),
        priority: overrides.priority().and_then(Price::per_hour).unwrap_or_default(),
    }
}
