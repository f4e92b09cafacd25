use async_trait::async_trait;

use super::{MemoryAws, State};
use crate::{
    api::{ApiError, AwsApi},
    ec2::{
        Filter, Image, InstanceTypeInfo, Tags,
        fleet::{FleetOverride, FleetReply, FleetRequest},
        instance::{Ec2Instance, InstanceHealth, InstanceQuery, InstanceState, StateChange},
        network::{PlacementGroup, SecurityGroup, Subnet},
        price::{ProductFilter, SpotPriceRecord},
        profile::{ClusterInfo, InstanceProfile},
        queue::QueueMessage,
        reservation::CapacityReservation,
        shift::ZonalShift,
        template::{LaunchTemplate, LaunchTemplateData},
    },
};

/// Whether something with these attributes and tags meets all filters. A filter on an attribute that it lacks is not met.
fn meets(filters: &[Filter], tags: &Tags, attribute: impl Fn(&str) -> Option<String>) -> bool {
    filters.iter().all(|filter| match filter.name.split_once(':') {
        Some(("tag", key)) => tags.get(key).is_some_and(|value| filter.admits(value)),
        _ if filter.name == "tag-key" => tags.keys().any(|key| filter.admits(key)),
        _ => attribute(&filter.name).is_some_and(|value| filter.admits(&value)),
    })
}

/// What a dry run of a fleet is called among the calls that were made, which buys nothing.
const DRY_FLEET: &str = "CreateFleet (dry run)";

fn refused<T>(operation: &str, code: &str, message: impl Into<String>) -> Result<T, ApiError> {
    Err(ApiError::refused(operation, code, message))
}

impl State {
    /// The machines of these ids; an unknown one fails the call.
    fn known(&self, operation: &str, ids: &[String]) -> Result<(), ApiError> {
        match ids.iter().find(|id| !self.instances.contains_key(*id)) {
            Some(id) => {
                refused(operation, "InvalidInstanceID.NotFound", format!("The instance ID '{id}' does not exist"))
            }
            None => Ok(()),
        }
    }

    fn profile(&mut self, operation: &str, name: &str) -> Result<&mut InstanceProfile, ApiError> {
        let message = format!("Instance Profile {name} cannot be found.");
        let found = self.profiles.iter_mut().find(|profile| profile.name == name);
        found.ok_or_else(|| ApiError::refused(operation, "NoSuchEntity", message))
    }
}

#[async_trait]
impl AwsApi for MemoryAws {
    async fn create_fleet(&self, request: &FleetRequest) -> Result<FleetReply, ApiError> {
        if request.is_dry_run {
            return self
                .call(DRY_FLEET, |state| state.has_template("CreateFleet", &request.configs[0].template))
                .await
                .map(|()| FleetReply::default());
        }
        let now = self.now();
        self.call("CreateFleet", |state| state.create_fleet(request, now)).await
    }

    async fn run_dry(&self, template: &str, _: &FleetOverride, _: &Tags) -> Result<(), ApiError> {
        self.call("RunInstances", |state| state.has_template("RunInstances", template)).await
    }

    async fn create_launch_template(
        &self,
        name: &str,
        data: &LaunchTemplateData,
        tags: &Tags,
    ) -> Result<LaunchTemplate, ApiError> {
        self.call("CreateLaunchTemplate", |state| {
            if state.templates.contains_key(name) {
                let code = "InvalidLaunchTemplateName.AlreadyExistsException";
                return refused("CreateLaunchTemplate", code, "Launch template name already in use.");
            }
            let template = LaunchTemplate { id: state.next_id("lt"), name: name.to_owned(), tags: tags.clone() };
            state.templates.insert(name.to_owned(), (template.clone(), data.clone()));
            Ok(template)
        })
        .await
    }

    async fn describe_launch_templates(
        &self,
        names: &[String],
        filters: &[Filter],
    ) -> Result<Vec<LaunchTemplate>, ApiError> {
        self.call("DescribeLaunchTemplates", |state| {
            if let Some(name) = names.iter().find(|name| !state.templates.contains_key(*name)) {
                let message =
                    format!("At least one of the launch templates specified in the request does not exist: {name}");
                return refused("DescribeLaunchTemplates", "InvalidLaunchTemplateName.NotFoundException", message);
            }
            let all = state.templates.values().map(|(template, _)| template);
            let is_named = |t: &&LaunchTemplate| names.is_empty() || names.contains(&t.name);
            Ok(all.filter(is_named).filter(|t| meets(filters, &t.tags, |_| None)).cloned().collect())
        })
        .await
    }

    async fn delete_launch_template(&self, name: &str) -> Result<(), ApiError> {
        self.call("DeleteLaunchTemplate", |state| match state.templates.remove(name) {
            Some(_) => Ok(()),
            None => refused("DeleteLaunchTemplate", "InvalidLaunchTemplateName.NotFoundException", "no such template"),
        })
        .await
    }

    async fn describe_instances(&self, query: &InstanceQuery) -> Result<Vec<Ec2Instance>, ApiError> {
        self.call("DescribeInstances", |state| {
            state.known("DescribeInstances", &query.ids)?;
            for instance in state.instances.values_mut() {
                // A machine is up by the time that it is looked at.
                if instance.state == InstanceState::Pending {
                    instance.state = InstanceState::Running;
                }
            }
            let is_meant = |i: &&Ec2Instance| {
                let attribute = |name: &str| match name {
                    "instance-state-name" => Some(i.state.as_str().to_owned()),
                    "instance-id" => Some(i.id.clone()),
                    _ => None,
                };
                (query.ids.is_empty() || query.ids.contains(&i.id)) && meets(&query.filters, &i.tags, attribute)
            };
            let found = state.instances.values().filter(is_meant).cloned().collect();
            // What was seen on its way out is gone the next time.
            for instance in state.instances.values_mut().filter(|i| i.state == InstanceState::ShuttingDown) {
                instance.state = InstanceState::Terminated;
            }
            Ok(found)
        })
        .await
    }

    async fn terminate_instances(&self, ids: &[String]) -> Result<Vec<StateChange>, ApiError> {
        self.call("TerminateInstances", |state| {
            state.known("TerminateInstances", ids)?;
            let mut out = Vec::new();
            for id in ids {
                let Some(instance) = state.instances.get_mut(id) else { continue };
                if !instance.state.is_ending() {
                    instance.state = InstanceState::ShuttingDown;
                    if let Some(subnet) = state.subnets.iter_mut().find(|s| s.id == instance.subnet_id) {
                        subnet.free_addresses += 1;
                    }
                    let reservation = instance.reservation_id.as_deref();
                    if let Some(found) = state.reservations.iter_mut().find(|r| Some(&*r.id) == reservation) {
                        found.available_count += 1;
                    }
                }
                out.push(StateChange { id: id.clone(), state: instance.state });
            }
            Ok(out)
        })
        .await
    }

    async fn describe_instance_health(&self, filters: &[Filter]) -> Result<Vec<InstanceHealth>, ApiError> {
        let impaired = |since: Option<_>| since.map(|_| "impaired".to_owned());
        self.call("DescribeInstanceStatus", |state| {
            let is_meant = |health: &&InstanceHealth| {
                filters.iter().all(|filter| match filter.name.as_str() {
                    "instance-status.status" => impaired(health.instance_impaired_since).is_some(),
                    "system-status.status" => impaired(health.system_impaired_since).is_some(),
                    "event.code" => health.events.iter().any(|code| filter.admits(code)),
                    _ => false,
                })
            };
            Ok(state.health.iter().filter(is_meant).cloned().collect())
        })
        .await
    }

    async fn create_tags(&self, ids: &[String], tags: &Tags) -> Result<(), ApiError> {
        self.call("CreateTags", |state| {
            state.known("CreateTags", ids)?;
            for instance in state.instances.values_mut().filter(|i| ids.contains(&i.id)) {
                instance.tags.extend(tags.clone());
            }
            Ok(())
        })
        .await
    }

    async fn describe_subnets(&self, filters: &[Filter]) -> Result<Vec<Subnet>, ApiError> {
        self.call("DescribeSubnets", |state| {
            let is_meant = |s: &&Subnet| meets(filters, &s.tags, |name| (name == "subnet-id").then(|| s.id.clone()));
            Ok(state.subnets.iter().filter(is_meant).cloned().collect())
        })
        .await
    }

    async fn describe_security_groups(&self, filters: &[Filter]) -> Result<Vec<SecurityGroup>, ApiError> {
        self.call("DescribeSecurityGroups", |state| {
            let is_meant = |group: &&SecurityGroup| {
                meets(filters, &group.tags, |name| match name {
                    "group-id" => Some(group.id.clone()),
                    "group-name" => Some(group.name.clone()),
                    _ => None,
                })
            };
            Ok(state.security_groups.iter().filter(is_meant).cloned().collect())
        })
        .await
    }

    async fn describe_images(&self, owners: &[String], filters: &[Filter]) -> Result<Vec<Image>, ApiError> {
        self.call("DescribeImages", |state| {
            let is_meant = |(owner, image): &&(String, Image)| {
                let attribute = |name: &str| match name {
                    "image-id" => Some(image.image_id.clone()),
                    "name" => Some(image.name.clone()),
                    "state" => Some("available".to_owned()),
                    _ => None,
                };
                (owners.is_empty() || owners.contains(owner)) && meets(filters, &Tags::new(), attribute)
            };
            Ok(state.images.iter().filter(is_meant).map(|(_, image)| image.clone()).collect())
        })
        .await
    }

    async fn describe_instance_types(&self, _filters: &[Filter]) -> Result<Vec<InstanceTypeInfo>, ApiError> {
        self.call("DescribeInstanceTypes", |state| Ok(state.instance_types.clone())).await
    }

    async fn describe_zone_offerings(&self) -> Result<Vec<(String, String)>, ApiError> {
        self.call("DescribeInstanceTypeOfferings", |state| {
            let zones = || state.subnets.iter().map(|subnet| subnet.zone.clone());
            let types = state.instance_types.iter().map(|info| &info.instance_type);
            let mut everywhere: Vec<(String, String)> =
                types.flat_map(|name| zones().map(move |zone| (name.clone(), zone))).collect();
            everywhere.sort();
            everywhere.dedup();
            Ok(state.zone_offerings.clone().unwrap_or(everywhere))
        })
        .await
    }

    async fn describe_capacity_reservations(
        &self,
        ids: &[String],
        filters: &[Filter],
    ) -> Result<Vec<CapacityReservation>, ApiError> {
        self.call("DescribeCapacityReservations", |state| {
            if let Some(id) = ids.iter().find(|id| !state.reservations.iter().any(|r| r.id == **id)) {
                let code = "InvalidCapacityReservationId.NotFound";
                return refused("DescribeCapacityReservations", code, format!("{id} does not exist"));
            }
            let is_meant = |r: &&CapacityReservation| {
                let attribute = |name: &str| match name {
                    "state" => Some(r.state.clone()),
                    "owner-id" => Some(r.owner_id.clone()),
                    "instance-match-criteria" => Some(r.match_criteria.clone()),
                    _ => None,
                };
                (ids.is_empty() || ids.contains(&r.id)) && meets(filters, &r.tags, attribute)
            };
            Ok(state.reservations.iter().filter(is_meant).cloned().collect())
        })
        .await
    }

    async fn describe_placement_groups(&self, filters: &[Filter]) -> Result<Vec<PlacementGroup>, ApiError> {
        self.call("DescribePlacementGroups", |state| {
            let is_meant = |group: &&PlacementGroup| {
                meets(filters, &Tags::new(), |name| match name {
                    "group-name" => Some(group.name.clone()),
                    "group-id" => Some(group.id.clone()),
                    "state" => Some(group.state.clone()),
                    _ => None,
                })
            };
            Ok(state.placement_groups.iter().filter(is_meant).cloned().collect())
        })
        .await
    }

    async fn describe_spot_prices(&self) -> Result<Vec<SpotPriceRecord>, ApiError> {
        self.call("DescribeSpotPriceHistory", |state| Ok(state.spot_prices.clone())).await
    }

    async fn get_products(&self, filters: &[ProductFilter]) -> Result<Vec<String>, ApiError> {
        let is_metal_asked = filters.iter().any(|f| f.field == "productFamily" && f.value.contains("bare metal"));
        self.call("GetProducts", |state| {
            let product = |(name, dollars): (&String, &f64)| {
                serde_json::json!({
                    "product": {"attributes": {"instanceType": name}},
                    "terms": {"OnDemand": {"t": {"priceDimensions": {"d": {
                        "unit": "Hrs", "pricePerUnit": {"USD": dollars.to_string()},
                    }}}}},
                })
                .to_string()
            };
            let prices = state.on_demand_prices.iter();
            Ok(prices.filter(|(name, _)| name.contains("metal") == is_metal_asked).map(product).collect())
        })
        .await
    }

    async fn get_parameter(&self, name: &str) -> Result<String, ApiError> {
        self.call("GetParameter", |state| match state.parameters.get(name) {
            Some(value) => Ok(value.clone()),
            None => refused("GetParameter", "ParameterNotFound", name),
        })
        .await
    }

    async fn describe_cluster(&self, name: &str) -> Result<ClusterInfo, ApiError> {
        self.call("DescribeCluster", |state| {
            if state.cluster.name == name {
                Ok(state.cluster.clone())
            } else {
                refused("DescribeCluster", "ResourceNotFoundException", format!("No cluster found for name: {name}."))
            }
        })
        .await
    }

    async fn get_instance_profile(&self, name: &str) -> Result<InstanceProfile, ApiError> {
        self.call("GetInstanceProfile", |state| state.profile("GetInstanceProfile", name).cloned()).await
    }

    async fn create_instance_profile(&self, name: &str, path: &str, tags: &Tags) -> Result<(), ApiError> {
        let created = Some(self.now());
        self.call("CreateInstanceProfile", |state| {
            if state.profiles.iter().any(|profile| profile.name == name) {
                return refused("CreateInstanceProfile", "EntityAlreadyExists", name);
            }
            let (name, path, tags) = (name.to_owned(), path.to_owned(), tags.clone());
            state.profiles.push(InstanceProfile { name, path, roles: Vec::new(), created, tags });
            Ok(())
        })
        .await
    }

    async fn add_role_to_instance_profile(&self, name: &str, role: &str) -> Result<(), ApiError> {
        self.call("AddRoleToInstanceProfile", |state| {
            if !state.roles.iter().any(|known| known == role) {
                let message = format!("The role with name {role} cannot be found.");
                return refused("AddRoleToInstanceProfile", "NoSuchEntity", message);
            }
            let profile = state.profile("AddRoleToInstanceProfile", name)?;
            if !profile.roles.is_empty() {
                return refused("AddRoleToInstanceProfile", "LimitExceeded", "Cannot exceed quota: 1");
            }
            profile.roles.push(role.to_owned());
            Ok(())
        })
        .await
    }

    async fn remove_role_from_instance_profile(&self, name: &str, role: &str) -> Result<(), ApiError> {
        self.call("RemoveRoleFromInstanceProfile", |state| {
            state.profile("RemoveRoleFromInstanceProfile", name)?.roles.retain(|known| known != role);
            Ok(())
        })
        .await
    }

    async fn delete_instance_profile(&self, name: &str) -> Result<(), ApiError> {
        self.call("DeleteInstanceProfile", |state| {
            if !state.profile("DeleteInstanceProfile", name)?.roles.is_empty() {
                return refused("DeleteInstanceProfile", "DeleteConflict", "must remove roles first");
            }
            state.profiles.retain(|profile| profile.name != name);
            Ok(())
        })
        .await
    }

    async fn list_instance_profiles(&self, path_prefix: &str) -> Result<Vec<InstanceProfile>, ApiError> {
        self.call("ListInstanceProfiles", |state| {
            Ok(state.profiles.iter().filter(|profile| profile.path.starts_with(path_prefix)).cloned().collect())
        })
        .await
    }

    async fn get_queue_url(&self, name: &str) -> Result<String, ApiError> {
        self.call("GetQueueUrl", |state| {
            let found = state.queues.keys().find(|url| url.rsplit('/').next() == Some(name));
            found.cloned().ok_or_else(|| ApiError::refused("GetQueueUrl", "QueueDoesNotExist", name))
        })
        .await
    }

    async fn receive_messages(&self, queue_url: &str) -> Result<Vec<QueueMessage>, ApiError> {
        self.call("ReceiveMessage", |state| {
            let Some(queue) = state.queues.get_mut(queue_url) else {
                return refused("ReceiveMessage", "QueueDoesNotExist", queue_url);
            };
            // Those that are received and not deleted come again after the others.
            let count = queue.len().min(10);
            let received: Vec<QueueMessage> = queue.iter().take(count).cloned().collect();
            queue.rotate_left(count);
            Ok(received)
        })
        .await
    }

    async fn delete_message(&self, queue_url: &str, receipt: &str) -> Result<(), ApiError> {
        self.call("DeleteMessage", |state| {
            if let Some(queue) = state.queues.get_mut(queue_url) {
                queue.retain(|message| message.receipt != receipt);
            }
            Ok(())
        })
        .await
    }

    async fn get_managed_resource(&self, arn: &str) -> Result<Vec<ZonalShift>, ApiError> {
        self.call("GetManagedResource", |state| {
            if state.cluster.arn == arn {
                Ok(state.shifts.clone())
            } else {
                refused("GetManagedResource", "ResourceNotFoundException", format!("{arn} is not managed"))
            }
        })
        .await
    }
}
