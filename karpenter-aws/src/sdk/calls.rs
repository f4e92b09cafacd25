use async_trait::async_trait;
use aws_sdk_ec2::types as sdk;
use karpenter_core::provider::Measurement;

use super::{SdkAws, describe, errors::failed, fleet, template, types};
use crate::{
    api::{ApiError, AwsApi},
    ec2::{
        Filter, Image, InstanceTypeInfo, Tags,
        fleet::{FleetOverride, FleetReply, FleetRequest},
        instance::{Ec2Instance, InstanceHealth, InstanceQuery, StateChange},
        network::{PlacementGroup, SecurityGroup, Subnet},
        price::{ProductFilter, SpotPriceRecord},
        profile::{ClusterInfo, InstanceProfile},
        queue::QueueMessage,
        reservation::CapacityReservation,
        shift::ZonalShift,
        template::{LaunchTemplate, LaunchTemplateData},
    },
};

/// How many machines a page has.
const INSTANCES_A_PAGE: i32 = 1000;
/// The code of a dry run that is allowed.
const DRY_RUN: &str = "DryRunOperation";
/// Machines that are asked for by id must fit one page.
const MAX_IDS: usize = 500;

fn some(items: &[String]) -> Option<Vec<String>> {
    (!items.is_empty()).then(|| items.to_vec())
}

fn read<T, O>(items: Vec<T>, read: impl Fn(T) -> O) -> Vec<O> {
    items.into_iter().map(read).collect()
}

#[async_trait]
impl AwsApi for SdkAws {
    async fn create_fleet(&self, request: &FleetRequest) -> Result<FleetReply, ApiError> {
        let call = fleet::write(self.ec2.create_fleet(), request);
        match call.send().await.map(fleet::read).map_err(failed("CreateFleet")) {
            Err(error) if request.is_dry_run && error.code() == DRY_RUN => Ok(FleetReply::default()),
            // The SDK reads what is cut off as if nothing had been said.
            Ok(reply) if reply.fleet_id.is_empty() => {
                Err(ApiError::no_answer("CreateFleet", "an answer without a fleet"))
            }
            answer => answer,
        }
    }

    async fn run_dry(&self, template: &str, choice: &FleetOverride, tags: &Tags) -> Result<(), ApiError> {
        let call = fleet::write_dry(self.ec2.run_instances(), template, choice, tags);
        match call.send().await.map(drop).map_err(failed("RunInstances")) {
            Err(error) if error.code() == DRY_RUN => Ok(()),
            answer => answer,
        }
    }

    async fn create_launch_template(
        &self,
        name: &str,
        data: &LaunchTemplateData,
        tags: &Tags,
    ) -> Result<LaunchTemplate, ApiError> {
        let call = self
            .ec2
            .create_launch_template()
            .launch_template_name(name)
            .launch_template_data(template::write(data))
            .tag_specifications(template::tag_specification(sdk::ResourceType::LaunchTemplate, tags));
        let made = call.send().await.map_err(failed("CreateLaunchTemplate"))?.launch_template;
        let made = made.ok_or_else(|| ApiError::no_answer("CreateLaunchTemplate", "no template in the answer"))?;
        Ok(describe::launch_template(made))
    }

    async fn describe_launch_templates(
        &self,
        names: &[String],
        filters: &[Filter],
    ) -> Result<Vec<LaunchTemplate>, ApiError> {
        let call = self.ec2.describe_launch_templates().set_launch_template_names(some(names));
        let pages = call.set_filters(template::filters(filters)).into_paginator().items().send();
        let found = pages.try_collect().await.map_err(failed("DescribeLaunchTemplates"))?;
        Ok(read(found, describe::launch_template))
    }

    async fn delete_launch_template(&self, name: &str) -> Result<(), ApiError> {
        let call = self.ec2.delete_launch_template().launch_template_name(name);
        call.send().await.map(|_| ()).map_err(failed("DeleteLaunchTemplate"))
    }

    async fn describe_instances(&self, query: &InstanceQuery) -> Result<Vec<Ec2Instance>, ApiError> {
        let mut out = Vec::new();
        // Ids and pages exclude each other.
        let parts: Vec<&[String]> = if query.ids.is_empty() { vec![&[]] } else { query.ids.chunks(MAX_IDS).collect() };
        for ids in parts {
            let size = ids.is_empty().then_some(INSTANCES_A_PAGE);
            let call = self.ec2.describe_instances().set_instance_ids(some(ids)).set_max_results(size);
            let pages = call.set_filters(template::filters(&query.filters)).into_paginator().items().send();
            let found = pages.try_collect().await.map_err(failed("DescribeInstances"))?;
            let instances = found.into_iter().flat_map(|reservation| reservation.instances.unwrap_or_default());
            out.extend(instances.map(describe::instance));
        }
        Ok(out)
    }

    async fn terminate_instances(&self, ids: &[String]) -> Result<Vec<StateChange>, ApiError> {
        let call = self.ec2.terminate_instances().set_instance_ids(some(ids));
        let changes = call.send().await.map_err(failed("TerminateInstances"))?.terminating_instances;
        let change = |change: sdk::InstanceStateChange| StateChange {
            state: describe::state(change.current_state()),
            id: change.instance_id.unwrap_or_default(),
        };
        Ok(read(changes.unwrap_or_default(), change))
    }

    async fn describe_instance_health(&self, filters: &[Filter]) -> Result<Vec<InstanceHealth>, ApiError> {
        let call = self.ec2.describe_instance_status().set_filters(template::filters(filters));
        let found = call.into_paginator().items().send().try_collect().await;
        Ok(read(found.map_err(failed("DescribeInstanceStatus"))?, describe::health))
    }

    async fn create_tags(&self, ids: &[String], tags: &Tags) -> Result<(), ApiError> {
        let call = self.ec2.create_tags().set_resources(some(ids)).set_tags(Some(template::tag_list(tags)));
        call.send().await.map(|_| ()).map_err(failed("CreateTags"))
    }

    async fn describe_subnets(&self, filters: &[Filter]) -> Result<Vec<Subnet>, ApiError> {
        let call = self.ec2.describe_subnets().set_filters(template::filters(filters)).max_results(500);
        let found = call.into_paginator().items().send().try_collect().await;
        Ok(read(found.map_err(failed("DescribeSubnets"))?, describe::subnet))
    }

    async fn describe_security_groups(&self, filters: &[Filter]) -> Result<Vec<SecurityGroup>, ApiError> {
        let call = self.ec2.describe_security_groups().set_filters(template::filters(filters)).max_results(500);
        let found = call.into_paginator().items().send().try_collect().await;
        Ok(read(found.map_err(failed("DescribeSecurityGroups"))?, describe::security_group))
    }

    async fn describe_images(&self, owners: &[String], filters: &[Filter]) -> Result<Vec<Image>, ApiError> {
        let call = self.ec2.describe_images().set_owners(some(owners)).include_deprecated(true).max_results(1000);
        let pages = call.set_filters(template::filters(filters)).into_paginator().items().send();
        Ok(read(pages.try_collect().await.map_err(failed("DescribeImages"))?, describe::image))
    }

    async fn describe_instance_types(&self, filters: &[Filter]) -> Result<Vec<InstanceTypeInfo>, ApiError> {
        let call = self.ec2.describe_instance_types().set_filters(template::filters(filters)).max_results(100);
        let found = call.into_paginator().items().send().try_collect().await;
        Ok(read(found.map_err(failed("DescribeInstanceTypes"))?, types::read))
    }

    async fn describe_zone_offerings(&self) -> Result<Vec<(String, String)>, ApiError> {
        let call = self.ec2.describe_instance_type_offerings().location_type(sdk::LocationType::AvailabilityZone);
        let found = call.max_results(1000).into_paginator().items().send().try_collect().await;
        let pair = |offering: sdk::InstanceTypeOffering| {
            let name = offering.instance_type.map(|name| name.as_str().to_owned()).unwrap_or_default();
            (name, offering.location.unwrap_or_default())
        };
        Ok(read(found.map_err(failed("DescribeInstanceTypeOfferings"))?, pair))
    }

    async fn describe_capacity_reservations(
        &self,
        ids: &[String],
        filters: &[Filter],
    ) -> Result<Vec<CapacityReservation>, ApiError> {
        let call = self.ec2.describe_capacity_reservations().set_capacity_reservation_ids(some(ids));
        let pages = call.set_filters(template::filters(filters)).into_paginator().items().send();
        let found = pages.try_collect().await.map_err(failed("DescribeCapacityReservations"))?;
        Ok(read(found, describe::reservation))
    }

    async fn describe_placement_groups(&self, filters: &[Filter]) -> Result<Vec<PlacementGroup>, ApiError> {
        let call = self.ec2.describe_placement_groups().set_filters(template::filters(filters));
        let found = call.send().await.map_err(failed("DescribePlacementGroups"))?.placement_groups;
        Ok(read(found.unwrap_or_default(), describe::placement_group))
    }

    #[expect(clippy::disallowed_methods, reason = "the prices of this moment are asked for")]
    async fn describe_spot_prices(&self) -> Result<Vec<SpotPriceRecord>, ApiError> {
        let call = self
            .ec2
            .describe_spot_price_history()
            .product_descriptions("Linux/UNIX")
            .product_descriptions("Linux/UNIX (Amazon VPC)")
            .start_time(std::time::SystemTime::now().into());
        let found = call.max_results(1000).into_paginator().items().send().try_collect().await;
        Ok(read(found.map_err(failed("DescribeSpotPriceHistory"))?, describe::spot_price))
    }

    async fn get_products(&self, filters: &[ProductFilter]) -> Result<Vec<String>, ApiError> {
        use aws_sdk_pricing::types::{Filter, FilterType};
        let mut call = self.pricing.get_products().service_code("AmazonEC2").max_results(100);
        for filter in filters {
            let filter = Filter::builder().r#type(FilterType::TermMatch).field(&filter.field).value(&filter.value);
            let filter = filter
                .build()
                .map_err(|error| ApiError::refused("GetProducts", "InvalidRequest", error.to_string()))?;
            call = call.filters(filter);
        }
        call.into_paginator().items().send().try_collect().await.map_err(failed("GetProducts"))
    }

    async fn get_parameter(&self, name: &str) -> Result<String, ApiError> {
        let found = self.ssm.get_parameter().name(name).send().await.map_err(failed("GetParameter"))?.parameter;
        let missing = || ApiError::refused("GetParameter", "ParameterNotFound", name);
        found.and_then(|parameter| parameter.value).ok_or_else(missing)
    }

    async fn describe_cluster(&self, name: &str) -> Result<ClusterInfo, ApiError> {
        let found = self.eks.describe_cluster().name(name).send().await.map_err(failed("DescribeCluster"))?.cluster;
        let found = found.ok_or_else(|| ApiError::refused("DescribeCluster", "ResourceNotFoundException", name))?;
        let network = found.kubernetes_network_config.as_ref();
        let range = |range: Option<&str>| range.unwrap_or_default().to_owned();
        Ok(ClusterInfo {
            service_ipv4_cidr: range(network.and_then(|network| network.service_ipv4_cidr())),
            service_ipv6_cidr: range(network.and_then(|network| network.service_ipv6_cidr())),
            name: found.name.unwrap_or_default(),
            arn: found.arn.unwrap_or_default(),
            version: found.version.unwrap_or_default(),
            endpoint: found.endpoint.unwrap_or_default(),
            ca_bundle: found.certificate_authority.and_then(|authority| authority.data).unwrap_or_default(),
        })
    }

    async fn get_instance_profile(&self, name: &str) -> Result<InstanceProfile, ApiError> {
        let call = self.iam.get_instance_profile().instance_profile_name(name);
        let found = call.send().await.map_err(failed("GetInstanceProfile"))?.instance_profile;
        found.map(profile).ok_or_else(|| ApiError::refused("GetInstanceProfile", "NoSuchEntity", name))
    }

    async fn create_instance_profile(&self, name: &str, path: &str, tags: &Tags) -> Result<(), ApiError> {
        let mut call = self.iam.create_instance_profile().instance_profile_name(name).path(path);
        for (key, value) in tags {
            let tag = aws_sdk_iam::types::Tag::builder().key(key).value(value).build();
            let invalid = |error: aws_sdk_iam::error::BuildError| {
                ApiError::refused("CreateInstanceProfile", "InvalidRequest", error.to_string())
            };
            call = call.tags(tag.map_err(invalid)?);
        }
        call.send().await.map(|_| ()).map_err(failed("CreateInstanceProfile"))
    }

    async fn add_role_to_instance_profile(&self, name: &str, role: &str) -> Result<(), ApiError> {
        let call = self.iam.add_role_to_instance_profile().instance_profile_name(name).role_name(role);
        call.send().await.map(|_| ()).map_err(failed("AddRoleToInstanceProfile"))
    }

    async fn remove_role_from_instance_profile(&self, name: &str, role: &str) -> Result<(), ApiError> {
        let call = self.iam.remove_role_from_instance_profile().instance_profile_name(name).role_name(role);
        call.send().await.map(|_| ()).map_err(failed("RemoveRoleFromInstanceProfile"))
    }

    async fn delete_instance_profile(&self, name: &str) -> Result<(), ApiError> {
        let call = self.iam.delete_instance_profile().instance_profile_name(name);
        call.send().await.map(|_| ()).map_err(failed("DeleteInstanceProfile"))
    }

    async fn list_instance_profiles(&self, path_prefix: &str) -> Result<Vec<InstanceProfile>, ApiError> {
        let call = self.iam.list_instance_profiles().path_prefix(path_prefix);
        let found = call.into_paginator().items().send().try_collect().await;
        Ok(read(found.map_err(failed("ListInstanceProfiles"))?, profile))
    }

    async fn get_queue_url(&self, name: &str) -> Result<String, ApiError> {
        let found = self.sqs.get_queue_url().queue_name(name).send().await.map_err(failed("GetQueueUrl"))?;
        found.queue_url.ok_or_else(|| ApiError::refused("GetQueueUrl", "QueueDoesNotExist", name))
    }

    async fn receive_messages(&self, queue_url: &str) -> Result<Vec<QueueMessage>, ApiError> {
        let call = self.sqs.receive_message().queue_url(queue_url).max_number_of_messages(10);
        let received = call.wait_time_seconds(20).visibility_timeout(20).send().await;
        let messages = received.map_err(failed("ReceiveMessage"))?.messages.unwrap_or_default();
        let message = |message: aws_sdk_sqs::types::Message| QueueMessage {
            id: message.message_id.unwrap_or_default(),
            receipt: message.receipt_handle.unwrap_or_default(),
            body: message.body,
        };
        Ok(read(messages, message))
    }

    async fn delete_message(&self, queue_url: &str, receipt: &str) -> Result<(), ApiError> {
        let call = self.sqs.delete_message().queue_url(queue_url).receipt_handle(receipt);
        call.send().await.map(|_| ()).map_err(failed("DeleteMessage"))
    }

    async fn get_managed_resource(&self, arn: &str) -> Result<Vec<ZonalShift>, ApiError> {
        let call = self.arc.get_managed_resource().resource_identifier(arn);
        Ok(shifts(call.send().await.map_err(failed("GetManagedResource"))?))
    }

    fn measurements(&self) -> Vec<Measurement> {
        self.meter.measurements()
    }
}

/// Shifts that somebody started, and those of AWS.
fn shifts(found: aws_sdk_arczonalshift::operation::get_managed_resource::GetManagedResourceOutput) -> Vec<ZonalShift> {
    use aws_sdk_arczonalshift::types::{AppliedStatus, AutoshiftAppliedStatus};
    let by_aws = found.autoshifts.unwrap_or_default().into_iter().map(|shift| ZonalShift {
        is_applied: shift.applied_status == AutoshiftAppliedStatus::Applied,
        zone_id: shift.away_from,
        expiry: None,
    });
    let started = found.zonal_shifts.into_iter().map(|shift| ZonalShift {
        is_applied: shift.applied_status == AppliedStatus::Applied,
        zone_id: shift.away_from,
        expiry: describe::time(shift.expiry_time),
    });
    started.chain(by_aws).collect()
}

fn profile(found: aws_sdk_iam::types::InstanceProfile) -> InstanceProfile {
    let tags = found.tags.unwrap_or_default().into_iter();
    InstanceProfile {
        created: describe::time(found.create_date),
        roles: found.roles.into_iter().map(|role| role.role_name).collect(),
        tags: tags.map(|tag| (tag.key, tag.value)).collect(),
        name: found.instance_profile_name,
        path: found.path,
    }
}
