use std::{
    collections::BTreeSet,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    time::Duration,
};

use crate::{instance_type::TypeOptions, price::Prices, userdata::Cluster};

/// What the one who runs the provider settles.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ProviderOptions {
    /// The name of the cluster.
    pub cluster_name: String,
    /// The region, and what bears on instance types.
    pub types: TypeOptions,
    /// How nodes reach the cluster.
    pub cluster: ClusterAccess,
    /// For how long what the selectors of a class found is good.
    pub discovery_period: Duration,
    /// For how long the images that a class found are good, if that is longer.
    pub images_period: Duration,
    /// For how long the subnets that a class found are good, if that is longer.
    pub subnets_period: Duration,
    /// For how long prices and instance types are good.
    pub catalog_period: Duration,
    /// Whether the account can reach no other service: then nobody asks for on-demand prices, and unused instance
    /// profiles stay.
    pub is_isolated: bool,
    /// What is done in the account before a class is ready.
    pub preparation: Preparation,
    /// Whether machines are bought out of capacity reservations.
    pub uses_reservations: bool,
    /// What is known of prices before AWS is asked, such as what a file says.
    pub prices: Prices,
    /// Zones, by their names, in which nothing is bought for now.
    pub avoided_zones: BTreeSet<String>,
}

/// What is done in the account before a class is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preparation {
    /// Nothing, as where it is only asked what can be bought: a class with a role is taken to have an instance profile.
    Nothing,
    /// A class with a role gets an instance profile.
    Profile,
    /// It does, and it is tried out, without buying anything, what the credentials allow.
    ProfileAndTrial,
}

/// How nodes reach the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterAccess {
    /// The address of the API server.
    pub endpoint: String,
    /// The certificate of the API server, in base64.
    pub ca_bundle: String,
    /// Major and minor of Kubernetes, such as `1.31`.
    pub version: String,
    /// The range of the services' addresses, which AL2023 asks for.
    pub service_cidr: String,
    /// The address of the DNS service, if nodes are not to guess it.
    pub dns_address: Option<String>,
}

impl ClusterAccess {
    /// The address that EKS gives the DNS service, the tenth of the range of the services: `10.100.0.10` of `10.100.0.0/16`.
    /// AL2 and Windows guess another one where the range is not one of the two that EKS chooses by itself.
    pub fn dns_address_of(service_cidr: &str) -> Option<String> {
        const TENTH: u8 = 10;
        let (base, _) = service_cidr.split_once('/')?;
        match base.parse().ok()? {
            IpAddr::V4(base) => Some(Ipv4Addr::from(u32::from(base).checked_add(TENTH.into())?).to_string()),
            IpAddr::V6(base) => Some(Ipv6Addr::from(u128::from(base).checked_add(TENTH.into())?).to_string()),
        }
    }
}

impl ProviderOptions {
    /// The defaults for a cluster in a region.
    pub fn new(cluster_name: impl Into<String>, region: impl Into<String>, cluster: ClusterAccess) -> Self {
        Self {
            cluster_name: cluster_name.into(),
            types: TypeOptions::of_region(region),
            cluster,
            discovery_period: Duration::from_mins(1),
            images_period: Duration::from_mins(1),
            subnets_period: Duration::from_mins(1),
            catalog_period: Duration::from_hours(12),
            is_isolated: false,
            preparation: Preparation::ProfileAndTrial,
            uses_reservations: true,
            prices: Prices::default(),
            avoided_zones: BTreeSet::new(),
        }
    }

    /// The region.
    pub(crate) fn region(&self) -> &str {
        &self.types.region
    }

    /// What nodes must know of the cluster.
    pub(crate) fn bootstrap(&self) -> Cluster {
        let some = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
        Cluster {
            name: self.cluster_name.clone(),
            endpoint: self.cluster.endpoint.clone(),
            ca_bundle: some(&self.cluster.ca_bundle),
            dns_ip: self.cluster.dns_address.clone(),
            service_cidr: some(&self.cluster.service_cidr),
        }
    }

    /// Whether nodes have addresses of IPv6.
    pub(crate) fn is_ipv6(&self) -> bool {
        let address = self.cluster.dns_address.as_deref().unwrap_or(&self.cluster.service_cidr);
        address.contains(':')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_dns_service_has_the_tenth_address() {
        for (range, expected) in [
            ("10.100.0.0/16", Some("10.100.0.10")),
            ("192.168.0.0/20", Some("192.168.0.10")),
            ("fd30:1c53:5f8a::/108", Some("fd30:1c53:5f8a::a")),
            ("", None),
            ("services", None),
            ("255.255.255.250/32", None),
        ] {
            assert_eq!(ClusterAccess::dns_address_of(range).as_deref(), expected, "{range}");
        }
    }
}
