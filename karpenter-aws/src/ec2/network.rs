//! Subnets, security groups and placement groups.

use serde::{Deserialize, Serialize};

use super::Tags;

/// A subnet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subnet {
    /// Such as `subnet-0123`.
    pub id: String,
    /// The name of its zone, such as `us-west-2a`.
    pub zone: String,
    /// The name of its zone that is the same in all accounts, such as `usw2-az1`.
    pub zone_id: String,
    /// How many IPv4 addresses are free.
    pub free_addresses: i64,
    /// Its tags.
    pub tags: Tags,
}

/// A security group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecurityGroup {
    /// Such as `sg-0123`.
    pub id: String,
    /// The name of the group, which is not its tag `Name`.
    pub name: String,
    /// Its tags.
    pub tags: Tags,
}

/// A placement group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlacementGroup {
    /// Such as `pg-0123`.
    pub id: String,
    /// Its name.
    pub name: String,
    /// `cluster`, `partition` or `spread`.
    pub strategy: String,
    /// How many partitions it has, if those are its strategy.
    pub partition_count: Option<u32>,
    /// `available`, or on the way there or back.
    pub state: String,
}
