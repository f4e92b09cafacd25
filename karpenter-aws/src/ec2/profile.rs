//! Instance profiles of IAM, and the cluster of EKS.

use karpenter_core::Timestamp;
use serde::{Deserialize, Serialize};

use super::Tags;

/// What gives a machine a role.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstanceProfile {
    /// Its name, unique in the account.
    pub name: String,
    /// Its path, with slashes at both ends.
    pub path: String,
    /// The names of its roles, without their paths; there is at most one.
    pub roles: Vec<String>,
    /// When it was made.
    pub created: Option<Timestamp>,
    /// Its tags.
    pub tags: Tags,
}

/// What EKS says of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterInfo {
    /// Its name.
    pub name: String,
    /// Its resource name.
    pub arn: String,
    /// Major and minor, such as `1.31`.
    pub version: String,
    /// The address of its API server.
    pub endpoint: String,
    /// The certificate of its API server, in base64.
    pub ca_bundle: String,
    /// The IPv4 range of its services; empty if it has none.
    pub service_ipv4_cidr: String,
    /// The IPv6 range of its services; empty if it has none.
    pub service_ipv6_cidr: String,
}
