//! What nodes of an instance type have, given what EC2 says of the type and a class asks for.

mod capacity;
mod compatibility;
mod discovered;
mod expressions;
mod facts;
pub mod labels;
mod offerings;
mod overhead;

use std::{collections::BTreeSet, sync::Arc};

pub use capacity::{EFA, NEURON, NEURON_CORE, NITRO_SANDBOX, POD_ENI, PRIVATE_IPV4_ADDRESS};
pub use compatibility::{Incompatibility, Strategy};
pub use discovered::DiscoveredMemory;
pub use facts::Facts;
use karpenter_core::InstanceType;
pub use offerings::{Market, PlacementGroup};

use crate::{
    ec2::InstanceTypeInfo,
    nodeclass::{
        AliasError, AmiFamily, BlockDeviceMapping, CapacityReservation, Ec2NodeClass, ExpressionError,
        InstanceStorePolicy, KubeletError, KubeletExpressions, KubeletSettings, NetworkInterface,
    },
};

/// What the one who runs the controller settles for all classes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TypeOptions {
    /// The region, such as `us-east-1`.
    pub region: String,
    /// How many network interfaces of an instance no pod has addresses of.
    pub reserved_enis: u32,
    /// How much of the memory the hypervisor takes, in millionths.
    pub vm_memory_overhead_millionths: u32,
    /// Whether expressions in CEL in settings of kubelets are evaluated; else the class is refused that has them.
    pub evaluates_expressions: bool,
    /// What is known beside what EC2 says.
    pub facts: Arc<Facts>,
}

impl TypeOptions {
    /// The defaults for a region: no interface is kept back, and the hypervisor takes 7.5 % of the memory.
    pub fn of_region(region: impl Into<String>) -> Self {
        Self {
            region: region.into(),
            reserved_enis: 0,
            vm_memory_overhead_millionths: 75_000,
            evaluates_expressions: false,
            facts: Arc::new(Facts::default()),
        }
    }
}

/// A zone that a class has subnets in.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Zone {
    /// The name, such as `us-east-1a`.
    pub name: String,
    /// The id, such as `use1-az1`; empty if it is not known.
    pub id: String,
}

/// What bears on what nodes of a class have.
#[derive(Clone, Debug, PartialEq)]
pub struct TypeSettings {
    region: String,
    reserved_enis: u32,
    vm_memory_overhead_millionths: u32,
    facts: Arc<Facts>,
    family: AmiFamily,
    kubelet: KubeletSettings,
    /// Nothing unless they are evaluated.
    expressions: KubeletExpressions,
    block_device_mappings: Vec<BlockDeviceMapping>,
    instance_store_policy: Option<InstanceStorePolicy>,
    network_interfaces: Option<Vec<NetworkInterface>>,
    zones: Vec<Zone>,
    reservations: Vec<CapacityReservation>,
}

/// Why nothing can be said of the instance types of a class.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// The family of the images is not known.
    #[error(transparent)]
    Alias(#[from] AliasError),
    /// The settings of the kubelet cannot be read.
    #[error(transparent)]
    Kubelet(#[from] KubeletError),
    /// An expression in them cannot be read.
    #[error(transparent)]
    Expression(#[from] ExpressionError),
    /// No subnet was found yet.
    #[error("no subnets found for class {class}")]
    NoSubnets {
        /// The name of the class.
        class: String,
    },
}

impl TypeSettings {
    /// What of a class, and of what its selectors found, bears on what its nodes have.
    ///
    /// # Errors
    /// The class cannot be read, or it has no subnets yet.
    pub fn new(class: &Ec2NodeClass, options: &TypeOptions) -> Result<Self, SettingsError> {
        let zones = zones(class);
        if zones.is_empty() {
            return Err(SettingsError::NoSubnets { class: class.name().to_owned() });
        }
        let kubelet = class.spec.kubelet.settings()?;
        let expressions =
            if options.evaluates_expressions { kubelet.expressions()? } else { KubeletExpressions::default() };
        let mut reservations = class.status.capacity_reservations.clone();
        reservations.sort_by(|a, b| a.id.cmp(&b.id));
        Ok(Self {
            region: options.region.clone(),
            reserved_enis: options.reserved_enis,
            vm_memory_overhead_millionths: options.vm_memory_overhead_millionths,
            facts: options.facts.clone(),
            family: class.ami_family()?,
            kubelet,
            expressions,
            block_device_mappings: class.spec.block_device_mappings.clone(),
            instance_store_policy: class.spec.instance_store_policy,
            network_interfaces: class.spec.network_interfaces.clone(),
            zones,
            reservations,
        })
    }

    /// The zones of the class's subnets, by name.
    pub fn zones(&self) -> &[Zone] {
        &self.zones
    }

    /// What nodes of a type have, with no offerings yet. `None` if no image of the family runs on the type, or it is not
    /// to be had in a zone of the class.
    pub fn instance_type(&self, info: &InstanceTypeInfo, offered_zones: &BTreeSet<String>) -> Option<InstanceType> {
        let mut out = InstanceType::default();
        out.name.clone_from(&info.instance_type);
        out.requirements = labels::requirements(info, self, offered_zones)?;
        out.capacity = self.capacity(info);
        out.overhead = self.overhead(info, &out.capacity);
        Some(out)
    }

    /// How many pods a node of a type runs: what its kubelet is told, so that it agrees with the planner.
    pub fn pods(&self, info: &InstanceTypeInfo) -> u32 {
        self.pod_count(info)
    }

    fn reservations_of(&self, instance_type: &str) -> impl Iterator<Item = &CapacityReservation> {
        self.reservations.iter().filter(move |r| r.instance_type == instance_type)
    }
}

/// The zones of the subnets of a class; several names of one id are one zone, of the first name.
fn zones(class: &Ec2NodeClass) -> Vec<Zone> {
    let mut out: Vec<Zone> = Vec::new();
    for subnet in &class.status.subnets {
        let is_known = |zone: &Zone| zone.name == subnet.zone || (!zone.id.is_empty() && zone.id == subnet.zone_id);
        if !out.iter().any(is_known) {
            out.push(Zone { name: subnet.zone.clone(), id: subnet.zone_id.clone() });
        }
    }
    out.sort();
    out
}

#[cfg(test)]
mod tests;
