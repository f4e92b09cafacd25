//! The calls to AWS that the provider makes.

use async_trait::async_trait;
use karpenter_core::provider::Measurement;

use crate::ec2::{
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
};

/// AWS, as far as the provider asks for it.
///
/// Lists are whole: an implementation turns the pages. A list of filters means all of them; an empty one asks for
/// everything.
#[async_trait]
pub trait AwsApi: Send + Sync {
    /// EC2 `CreateFleet` of type `instant`. A dry run that is allowed has an empty reply.
    async fn create_fleet(&self, request: &FleetRequest) -> Result<FleetReply, ApiError>;
    /// EC2 `RunInstances`, as a dry run: whether a machine of a template may be bought.
    async fn run_dry(&self, template: &str, choice: &FleetOverride, tags: &Tags) -> Result<(), ApiError>;
    /// EC2 `CreateLaunchTemplate`.
    async fn create_launch_template(
        &self,
        name: &str,
        data: &LaunchTemplateData,
        tags: &Tags,
    ) -> Result<LaunchTemplate, ApiError>;
    /// EC2 `DescribeLaunchTemplates`: those of these names, or all that meet the filters if there is no name.
    async fn describe_launch_templates(
        &self,
        names: &[String],
        filters: &[Filter],
    ) -> Result<Vec<LaunchTemplate>, ApiError>;
    /// EC2 `DeleteLaunchTemplate`, by name.
    async fn delete_launch_template(&self, name: &str) -> Result<(), ApiError>;
    /// EC2 `DescribeInstances`. One id that is not known fails the call.
    async fn describe_instances(&self, query: &InstanceQuery) -> Result<Vec<Ec2Instance>, ApiError>;
    /// EC2 `TerminateInstances`. One id that is not known fails the call.
    async fn terminate_instances(&self, ids: &[String]) -> Result<Vec<StateChange>, ApiError>;
    /// EC2 `DescribeInstanceStatus`: the machines that meet all filters.
    async fn describe_instance_health(&self, filters: &[Filter]) -> Result<Vec<InstanceHealth>, ApiError>;
    /// EC2 `CreateTags`.
    async fn create_tags(&self, ids: &[String], tags: &Tags) -> Result<(), ApiError>;
    /// EC2 `DescribeSubnets`.
    async fn describe_subnets(&self, filters: &[Filter]) -> Result<Vec<Subnet>, ApiError>;
    /// EC2 `DescribeSecurityGroups`.
    async fn describe_security_groups(&self, filters: &[Filter]) -> Result<Vec<SecurityGroup>, ApiError>;
    /// EC2 `DescribeImages`, deprecated ones among them. No owner means any.
    async fn describe_images(&self, owners: &[String], filters: &[Filter]) -> Result<Vec<Image>, ApiError>;
    /// EC2 `DescribeInstanceTypes`.
    async fn describe_instance_types(&self, filters: &[Filter]) -> Result<Vec<InstanceTypeInfo>, ApiError>;
    /// EC2 `DescribeInstanceTypeOfferings` by zone: pairs of an instance type and a zone.
    async fn describe_zone_offerings(&self) -> Result<Vec<(String, String)>, ApiError>;
    /// EC2 `DescribeCapacityReservations`: those of these ids, or all that meet the filters if there is no id.
    async fn describe_capacity_reservations(
        &self,
        ids: &[String],
        filters: &[Filter],
    ) -> Result<Vec<CapacityReservation>, ApiError>;
    /// EC2 `DescribePlacementGroups`.
    async fn describe_placement_groups(&self, filters: &[Filter]) -> Result<Vec<PlacementGroup>, ApiError>;
    /// EC2 `DescribeSpotPriceHistory` of Linux, from now on: the prices of this moment.
    async fn describe_spot_prices(&self) -> Result<Vec<SpotPriceRecord>, ApiError>;
    /// Price List `GetProducts` of the service `AmazonEC2`: each product is a JSON object.
    async fn get_products(&self, filters: &[ProductFilter]) -> Result<Vec<String>, ApiError>;
    /// SSM `GetParameter`: the value.
    async fn get_parameter(&self, name: &str) -> Result<String, ApiError>;
    /// EKS `DescribeCluster`.
    async fn describe_cluster(&self, name: &str) -> Result<ClusterInfo, ApiError>;
    /// IAM `GetInstanceProfile`.
    async fn get_instance_profile(&self, name: &str) -> Result<InstanceProfile, ApiError>;
    /// IAM `CreateInstanceProfile`.
    async fn create_instance_profile(&self, name: &str, path: &str, tags: &Tags) -> Result<(), ApiError>;
    /// IAM `AddRoleToInstanceProfile`. The name of a role has no path.
    async fn add_role_to_instance_profile(&self, name: &str, role: &str) -> Result<(), ApiError>;
    /// IAM `RemoveRoleFromInstanceProfile`.
    async fn remove_role_from_instance_profile(&self, name: &str, role: &str) -> Result<(), ApiError>;
    /// IAM `DeleteInstanceProfile`.
    async fn delete_instance_profile(&self, name: &str) -> Result<(), ApiError>;
    /// IAM `ListInstanceProfiles` below a path.
    async fn list_instance_profiles(&self, path_prefix: &str) -> Result<Vec<InstanceProfile>, ApiError>;
    /// SQS `GetQueueUrl`.
    async fn get_queue_url(&self, name: &str) -> Result<String, ApiError>;
    /// SQS `ReceiveMessage`: at most ten, after a wait of 20 seconds if there is none; hidden for 20 seconds.
    async fn receive_messages(&self, queue_url: &str) -> Result<Vec<QueueMessage>, ApiError>;
    /// SQS `DeleteMessage`.
    async fn delete_message(&self, queue_url: &str, receipt: &str) -> Result<(), ApiError>;
    /// ARC `GetManagedResource`: the shifts of a resource, by its ARN.
    async fn get_managed_resource(&self, arn: &str) -> Result<Vec<ZonalShift>, ApiError>;

    /// What was counted and measured of the calls, for metrics. Nothing, unless implemented.
    fn measurements(&self) -> Vec<Measurement> {
        Vec::new()
    }
}

/// A call to AWS that failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ApiError {
    /// AWS refused: nothing was done.
    #[error("{operation}: {code}: {message}")]
    Refused {
        /// The call, such as `CreateFleet`.
        operation: String,
        /// Such as `UnauthorizedOperation`.
        code: String,
        /// In words.
        message: String,
        /// Of HTTP.
        status: u16,
    },
    /// No answer came, or none that can be read: it may have been done, or not.
    #[error("{operation}: {message}")]
    NoAnswer {
        /// The call, such as `CreateFleet`.
        operation: String,
        /// What happened instead.
        message: String,
    },
}

impl ApiError {
    /// AWS refused a call with a code and words, and the status 400.
    pub fn refused(operation: impl Into<String>, code: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Refused { operation: operation.into(), code: code.into(), message: message.into(), status: 400 }
    }

    /// No answer came.
    pub fn no_answer(operation: impl Into<String>, message: impl Into<String>) -> Self {
        Self::NoAnswer { operation: operation.into(), message: message.into() }
    }

    /// The code of AWS, empty if no answer came.
    pub fn code(&self) -> &str {
        match self {
            Self::Refused { code, .. } => code,
            Self::NoAnswer { .. } => "",
        }
    }

    /// What AWS said in words, or what happened instead.
    pub fn message(&self) -> &str {
        match self {
            Self::Refused { message, .. } | Self::NoAnswer { message, .. } => message,
        }
    }

    /// The call.
    pub fn operation(&self) -> &str {
        match self {
            Self::Refused { operation, .. } | Self::NoAnswer { operation, .. } => operation,
        }
    }
}
