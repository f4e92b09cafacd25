use karpenter_core::{Quantity, ResourceList, ResourceName};

use super::TypeSettings;
use crate::{
    ec2::InstanceTypeInfo,
    nodeclass::{AmiFamily, BlockDevice, InstanceStorePolicy, InterfaceType},
};

/// Pods with security groups of their own.
pub const POD_ENI: &str = "vpc.amazonaws.com/pod-eni";
/// Addresses of pods on Windows.
pub const PRIVATE_IPV4_ADDRESS: &str = "vpc.amazonaws.com/PrivateIPv4Address";
/// Elastic fabric adapters.
pub const EFA: &str = "vpc.amazonaws.com/efa";
/// Room for Nitro enclaves. No type has it in its capacity: a claim that asks for it gets a machine on which they are
/// switched on.
pub const NITRO_SANDBOX: &str = "eks.amazonaws.com/nitro-sandbox";
/// AWS Neuron devices.
pub const NEURON: &str = "aws.amazon.com/neuron";
/// Cores of AWS Neuron devices.
pub const NEURON_CORE: &str = "aws.amazon.com/neuroncore";

/// Graphics processors: who made them, and what they are called in pods.
const GPUS: [(&str, &str); 3] = [("NVIDIA", "nvidia.com/gpu"), ("AMD", "amd.com/gpu"), ("Habana", "habana.ai/gaudi")];
/// What Arm machines keep for devices that need memory in one piece.
const ARM_CONTIGUOUS_MIB: u64 = 64;
/// A disk of which nobody says how large it is.
const DEFAULT_DISK_BYTES: i64 = 20 << 30;
const MIB: i64 = 1 << 20;
const GB: i64 = 1_000_000_000;
/// The kubelet's own limit.
const DEFAULT_PODS: u32 = 110;

impl TypeSettings {
    /// All that a node of the type has.
    pub(super) fn capacity(&self, info: &InstanceTypeInfo) -> ResourceList {
        let mut out = ResourceList::from_iter([
            (ResourceName::Cpu, Quantity::from_units(info.vcpu_info.default_vcpus.into())),
            (ResourceName::Memory, Quantity::from_bytes(self.memory_bytes(info))),
            (ResourceName::EphemeralStorage, self.ephemeral_storage(info)),
            (ResourceName::Pods, Quantity::from_units(self.pod_count(info).into())),
        ]);
        let mut add = |name: &str, count: u32| out.insert(ResourceName::from(name), Quantity::from_units(count.into()));
        for (manufacturer, resource) in GPUS {
            let gpus = info.gpu_info.iter().flat_map(|all| &all.gpus).filter(|gpu| gpu.manufacturer == manufacturer);
            add(resource, gpus.map(|gpu| gpu.count).sum());
        }
        let neurons = info.neuron_info.as_ref().map_or(&[][..], |all| &all.neuron_devices);
        add(NEURON, neurons.iter().map(|device| device.count).sum());
        add(NEURON_CORE, neurons.first().map_or(0, |device| device.count * device.core_info.count));
        add(EFA, self.efa_count(info));
        add(POD_ENI, self.facts.branch_interfaces(info));
        if self.family.is_windows() {
            add(PRIVATE_IPV4_ADDRESS, info.network_info.ipv4_addresses_per_interface.saturating_sub(1));
        }
        out
    }

    /// What the operating system sees of the memory.
    pub(super) fn memory_bytes(&self, info: &InstanceTypeInfo) -> i64 {
        let is_arm = info.processor_info.supported_architectures.first().is_some_and(|name| name == "arm64");
        let mib = info.memory_info.size_mib.saturating_sub(if is_arm { ARM_CONTIGUOUS_MIB } else { 0 });
        let taken_mib = mib.saturating_mul(self.vm_memory_overhead_millionths.into()).div_ceil(1_000_000);
        i64::try_from(mib.saturating_sub(taken_mib)).unwrap_or(i64::MAX).saturating_mul(MIB)
    }

    /// The size of the disk on which pods keep their files.
    pub(super) fn ephemeral_storage(&self, info: &InstanceTypeInfo) -> Quantity {
        if self.instance_store_policy == Some(InstanceStorePolicy::Raid0)
            && let Some(disks) = &info.instance_storage_info
        {
            let gb = i64::try_from(disks.total_size_gb).unwrap_or(i64::MAX);
            return Quantity::from_units(gb.saturating_mul(GB));
        }
        self.written_disk().unwrap_or_else(|| default_disk(self.family))
    }

    /// The size of the disk if the class says it: of the one that it calls root, else of the one that pods use.
    fn written_disk(&self) -> Option<Quantity> {
        let mappings = &self.block_device_mappings;
        let size = |ebs: &Option<BlockDevice>| ebs.as_ref().and_then(|ebs| ebs.volume_size);
        if let Some(root) = mappings.iter().find(|m| m.root_volume).and_then(|m| size(&m.ebs)) {
            return Some(root);
        }
        match self.family.ephemeral_device() {
            None => mappings.last().and_then(|m| size(&m.ebs)),
            device => mappings.iter().find(|m| m.device_name.as_deref() == device).and_then(|m| size(&m.ebs)),
        }
    }

    /// How many pods a node runs: as many as are asked for, else as many as have addresses.
    pub(super) fn pod_count(&self, info: &InstanceTypeInfo) -> u32 {
        let written = || self.kubelet.max_pods_count().or_else(|| self.evaluated_max_pods(info)?.ok());
        self.up_to_cores(info, written().unwrap_or_else(|| self.pods_of_family(info)))
    }

    /// So many pods, or as many as the processors may have.
    pub(super) fn up_to_cores(&self, info: &InstanceTypeInfo, count: u32) -> u32 {
        let per_core = self.kubelet.pods_per_core.and_then(|n| u32::try_from(n).ok()).filter(|n| *n > 0);
        match per_core.filter(|_| self.family.honours_pods_per_core()) {
            Some(per_core) => count.min(per_core.saturating_mul(info.vcpu_info.default_vcpus)),
            None => count,
        }
    }

    /// How many pods a node runs if nobody says how many.
    pub(super) fn pods_of_family(&self, info: &InstanceTypeInfo) -> u32 {
        let is_limited = self.family.limits_pods_by_interfaces();
        if is_limited { self.pods_by_interfaces(info, self.reserved_enis) } else { DEFAULT_PODS }
    }

    /// How many pods have addresses of the default card's interfaces. Each interface keeps one for itself; two pods
    /// use the host's.
    pub(super) fn pods_by_interfaces(&self, info: &InstanceTypeInfo, reserved: u32) -> u32 {
        let network = &info.network_info;
        let card = network.network_cards.iter().find(|c| c.network_card_index == network.default_network_card_index);
        let without_addresses = self.efa_only().filter(|card_index| *card_index == 0).count();
        let interfaces = card
            .map_or(0, |card| card.maximum_network_interfaces)
            .saturating_sub(reserved)
            .saturating_sub(u32::try_from(without_addresses).unwrap_or(u32::MAX));
        if interfaces == 0 { 0 } else { interfaces * network.ipv4_addresses_per_interface.saturating_sub(1) + 2 }
    }

    fn efa_count(&self, info: &InstanceTypeInfo) -> u32 {
        match self.network_interfaces {
            Some(_) => u32::try_from(self.efa_only().count()).unwrap_or(u32::MAX),
            None => info.network_info.efa_info.as_ref().map_or(0, |efa| efa.maximum_efa_interfaces),
        }
    }

    /// The cards of the interfaces without addresses that the class names.
    fn efa_only(&self) -> impl Iterator<Item = u32> {
        let named = self.network_interfaces.iter().flatten();
        named.filter(|i| i.interface_type == InterfaceType::EfaOnly).map(|i| i.network_card_index)
    }
}

fn default_disk(family: AmiFamily) -> Quantity {
    let device = family.ephemeral_device();
    let disks = family.default_block_device_mappings();
    let disk = disks.into_iter().find(|m| device.is_some() && m.device_name.as_deref() == device);
    disk.and_then(|m| m.ebs?.volume_size).unwrap_or_else(|| Quantity::from_bytes(DEFAULT_DISK_BYTES))
}
