//! The labels that nodes of an instance type have.

use std::collections::BTreeSet;

use karpenter_core::{Requirement, Requirements, labels};

use super::TypeSettings;
use crate::{
    ec2::InstanceTypeInfo,
    nodeclass::{AmiFamily, CapacityReservation},
};

/// The most characters of the value of a label.
const MAX_VALUE_CHARS: usize = 63;

/// The id of a node's zone, which is the same place for all accounts.
pub const ZONE_ID: &str = "topology.k8s.aws/zone-id";
/// The build of Windows.
pub const WINDOWS_BUILD: &str = "node.kubernetes.io/windows-build";
/// The number of virtual processors.
pub const CPU: &str = "karpenter.k8s.aws/instance-cpu";
/// Who made the processor: `intel`, `amd`, `aws`.
pub const CPU_MANUFACTURER: &str = "karpenter.k8s.aws/instance-cpu-manufacturer";
/// The sustained clock speed in megahertz.
pub const CPU_CLOCK_SPEED_MHZ: &str = "karpenter.k8s.aws/instance-cpu-sustained-clock-speed-mhz";
/// The memory in MiB.
pub const MEMORY: &str = "karpenter.k8s.aws/instance-memory";
/// The most megabits a second to EBS.
pub const EBS_BANDWIDTH: &str = "karpenter.k8s.aws/instance-ebs-bandwidth";
/// Megabits a second to the network.
pub const NETWORK_BANDWIDTH: &str = "karpenter.k8s.aws/instance-network-bandwidth";
/// The letters of the family, such as `m`.
pub const CATEGORY: &str = "karpenter.k8s.aws/instance-category";
/// The number of the family, such as `5`.
pub const GENERATION: &str = "karpenter.k8s.aws/instance-generation";
/// The family, such as `m5dn`.
pub const FAMILY: &str = "karpenter.k8s.aws/instance-family";
/// The size, such as `2xlarge`.
pub const SIZE: &str = "karpenter.k8s.aws/instance-size";
/// Whether it is one of the flex families, which do not always give all their processors.
pub const CAPABILITY_FLEX: &str = "karpenter.k8s.aws/instance-capability-flex";
/// The disks of the host in GB.
pub const LOCAL_NVME: &str = "karpenter.k8s.aws/instance-local-nvme";
/// `nitro`, `xen`, or nothing on bare metal.
pub const HYPERVISOR: &str = "karpenter.k8s.aws/instance-hypervisor";
/// Whether traffic between instances is encrypted.
pub const ENCRYPTION_IN_TRANSIT: &str = "karpenter.k8s.aws/instance-encryption-in-transit-supported";
/// Whether it can hold Nitro enclaves.
pub const NITRO_SANDBOX: &str = "karpenter.k8s.aws/instance-nitro-sandbox";
/// `default`, or `dedicated` for a host that no other account uses.
pub const TENANCY: &str = "karpenter.k8s.aws/instance-tenancy";
/// The name of its graphics processors.
pub const GPU_NAME: &str = "karpenter.k8s.aws/instance-gpu-name";
/// Who made its graphics processors.
pub const GPU_MANUFACTURER: &str = "karpenter.k8s.aws/instance-gpu-manufacturer";
/// The number of its graphics processors.
pub const GPU_COUNT: &str = "karpenter.k8s.aws/instance-gpu-count";
/// The memory of each graphics processor in MiB.
pub const GPU_MEMORY: &str = "karpenter.k8s.aws/instance-gpu-memory";
/// The name of its accelerators.
pub const ACCELERATOR_NAME: &str = "karpenter.k8s.aws/instance-accelerator-name";
/// Who made its accelerators.
pub const ACCELERATOR_MANUFACTURER: &str = "karpenter.k8s.aws/instance-accelerator-manufacturer";
/// The number of its accelerators.
pub const ACCELERATOR_COUNT: &str = "karpenter.k8s.aws/instance-accelerator-count";
/// The capacity reservation that it draws on.
pub const RESERVATION_ID: &str = "karpenter.k8s.aws/capacity-reservation-id";
/// The type of that reservation: `default` or `capacity-block`.
pub const RESERVATION_TYPE: &str = "karpenter.k8s.aws/capacity-reservation-type";
/// Whether EC2 may take the instances of that reservation back.
pub const RESERVATION_INTERRUPTIBLE: &str = "karpenter.k8s.aws/capacity-reservation-interruptible";
/// The placement group that it is in.
pub const PLACEMENT_GROUP_ID: &str = "karpenter.k8s.aws/placement-group-id";
/// The partition of the placement group that it is in.
pub const PLACEMENT_GROUP_PARTITION: &str = "karpenter.k8s.aws/placement-group-partition";

/// The labels of the type; `None` if no image of the family runs on it, or it is not to be had in a zone of the class.
pub(super) fn requirements(
    info: &InstanceTypeInfo,
    settings: &TypeSettings,
    offered_zones: &BTreeSet<String>,
) -> Option<Requirements> {
    let mut out = Builder(Requirements::new());
    out.add(labels::INSTANCE_TYPE, Some(info.instance_type.as_str()));
    out.add(labels::ARCH, Some(architecture(info)?));
    out.add(labels::OS, Some(os(info, settings.family)?));
    out.add(WINDOWS_BUILD, settings.family.windows_build());
    out.add(labels::REGION, Some(settings.region.as_str()));
    let zones: Vec<_> = settings.zones.iter().filter(|zone| offered_zones.contains(&zone.name)).collect();
    if zones.is_empty() {
        return None;
    }
    out.add(labels::ZONE, zones.iter().map(|zone| zone.name.as_str()));
    let ids: Vec<_> = zones.iter().map(|zone| zone.id.as_str()).filter(|id| !id.is_empty()).collect();
    if !ids.is_empty() {
        out.add(ZONE_ID, ids);
    }
    out.name(&info.instance_type);
    out.machine(info);
    out.add(NETWORK_BANDWIDTH, settings.facts.network_bandwidth_mbps(info).map(|mbps| mbps.to_string()).as_deref());
    out.accelerators(info);
    out.market(info, &settings.reservations_of(&info.instance_type).collect::<Vec<_>>());
    Some(out.0)
}

/// The architecture as Kubernetes calls it; `None` if it has no name for it.
pub(super) fn architecture(info: &InstanceTypeInfo) -> Option<&'static str> {
    info.processor_info.supported_architectures.iter().find_map(|name| match name.as_str() {
        "x86_64" => Some("amd64"),
        "arm64" => Some("arm64"),
        _ => None,
    })
}

fn os(info: &InstanceTypeInfo, family: AmiFamily) -> Option<&'static str> {
    match (family.is_windows(), architecture(info)) {
        (false, _) => Some("linux"),
        (true, Some("amd64")) => Some("windows"),
        (true, _) => None,
    }
}

struct Builder(Requirements);

impl Builder {
    /// One of these values; no label if there are none.
    fn add<'v>(&mut self, key: &str, values: impl IntoIterator<Item = &'v str>) {
        let requirement = Requirement::one_of(values);
        self.0.add(key, if requirement.is_none() { Requirement::ABSENT } else { requirement });
    }

    fn number(&mut self, key: &str, number: Option<u64>) {
        self.add(key, number.map(|n| n.to_string()).as_deref());
    }

    fn switch(&mut self, key: &str, is_on: bool) {
        self.add(key, [if is_on { "true" } else { "false" }]);
    }

    fn name(&mut self, name: &str) {
        let (category, generation) = category_and_generation(name).unzip();
        self.add(CATEGORY, category);
        self.add(GENERATION, generation);
        let parts = name.split_once('.').filter(|(_, size)| !size.contains('.'));
        let (family, size) = parts.unzip();
        self.add(FAMILY, family);
        self.add(SIZE, size);
        self.switch(CAPABILITY_FLEX, name.split('.').next().is_some_and(|family| family.contains("-flex")));
    }

    fn machine(&mut self, info: &InstanceTypeInfo) {
        self.number(CPU, Some(info.vcpu_info.default_vcpus.into()));
        self.number(MEMORY, Some(info.memory_info.size_mib));
        self.add(CPU_MANUFACTURER, info.processor_info.manufacturer.as_deref().map(kebab).as_deref());
        // A speed that AWS does not know is zero, as in the table that it publishes.
        self.number(CPU_CLOCK_SPEED_MHZ, Some(info.processor_info.sustained_clock_speed_mhz.unwrap_or(0).into()));
        let ebs = info.ebs_info.ebs_optimized_info.as_ref();
        let ebs = ebs.filter(|_| info.ebs_info.ebs_optimized_support == "default");
        self.number(EBS_BANDWIDTH, ebs.map(|ebs| ebs.maximum_bandwidth_mbps.into()));
        let disks = info.instance_storage_info.as_ref().filter(|disks| disks.nvme_support != "unsupported");
        self.number(LOCAL_NVME, disks.map(|disks| disks.total_size_gb));
        self.add(HYPERVISOR, [info.hypervisor.as_deref().unwrap_or("")]);
        self.switch(ENCRYPTION_IN_TRANSIT, info.network_info.encryption_in_transit_supported);
        self.switch(NITRO_SANDBOX, info.nitro_enclaves_support == "supported");
        self.add(TENANCY, ["default", "dedicated"]);
    }

    /// Labels that can have one value only: none where there are devices of several kinds.
    fn accelerators(&mut self, info: &InstanceTypeInfo) {
        let gpu = info.gpu_info.as_ref().and_then(|gpus| only(&gpus.gpus));
        self.add(GPU_NAME, gpu.map(|gpu| kebab(&gpu.name)).as_deref());
        self.add(GPU_MANUFACTURER, gpu.map(|gpu| kebab(&gpu.manufacturer)).as_deref());
        self.number(GPU_COUNT, gpu.map(|gpu| gpu.count.into()));
        self.number(GPU_MEMORY, gpu.map(|gpu| gpu.memory_info.size_mib));
        let accelerator = match (&info.neuron_info, &info.inference_accelerator_info) {
            (Some(neuron), _) => only(&neuron.neuron_devices).map(|d| (&*d.name, "aws", d.count)),
            (None, Some(other)) => only(&other.accelerators).map(|d| (&*d.name, &*d.manufacturer, d.count)),
            (None, None) => None,
        };
        self.add(ACCELERATOR_NAME, accelerator.map(|(name, _, _)| kebab(name)).as_deref());
        self.add(ACCELERATOR_MANUFACTURER, accelerator.map(|(_, manufacturer, _)| kebab(manufacturer)).as_deref());
        self.number(ACCELERATOR_COUNT, accelerator.map(|(_, _, count)| count.into()));
    }

    fn market(&mut self, info: &InstanceTypeInfo, reservations: &[&CapacityReservation]) {
        let classes = info.supported_usage_classes.iter().map(String::as_str);
        let classes = classes.filter(|class| [labels::ON_DEMAND, labels::SPOT].contains(class));
        let reserved = (!reservations.is_empty()).then_some(labels::RESERVED);
        self.add(labels::CAPACITY_TYPE, classes.chain(reserved));
        self.add(RESERVATION_ID, reservations.iter().map(|r| r.id.as_str()));
        self.add(RESERVATION_TYPE, reservations.iter().map(|r| r.reservation_type.as_str()));
        let switch = |r: &&CapacityReservation| if r.interruptible { "true" } else { "false" };
        self.add(RESERVATION_INTERRUPTIBLE, reservations.iter().map(switch));
    }
}

fn only<T>(items: &[T]) -> Option<&T> {
    if let [item] = items { Some(item) } else { None }
}

/// A name as the value of a label: in small letters, with a dash for whatever no label can have, such as blanks and brackets.
fn kebab(text: &str) -> String {
    let small =
        text.chars().map(|c| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c.to_ascii_lowercase() } else { '-' });
    let value: String = small.skip_while(|c| !c.is_ascii_alphanumeric()).take(MAX_VALUE_CHARS).collect();
    value.trim_end_matches(|c: char| !c.is_ascii_alphanumeric()).to_owned()
}

/// The letters and the number that a name begins with: `m` and `5` of `m5.large`, `u` and `1` of `u-3tb1.56xlarge`.
fn category_and_generation(name: &str) -> Option<(&str, &str)> {
    let letters = name.find(|c: char| !c.is_ascii_lowercase())?;
    let (category, rest) = name.split_at(letters);
    let rest = without_terabytes(rest).unwrap_or(rest);
    let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    (letters > 0 && digits > 0).then_some((category, &rest[..digits]))
}

fn without_terabytes(rest: &str) -> Option<&str> {
    let number = rest.strip_prefix('-')?;
    let rest = number.trim_start_matches(|c: char| c.is_ascii_digit());
    if rest.len() == number.len() { None } else { rest.strip_prefix("tb") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_devices_become_values_of_labels() {
        let long = "x".repeat(70);
        for (name, expected) in
            [("Radeon Pro V520", "radeon-pro-v520"), ("A10G (24GB)", "a10g--24gb"), (" é", ""), (&*long, &long[..63])]
        {
            assert_eq!(kebab(name), expected);
            assert!(labels::is_value(&kebab(name)));
        }
    }

    #[test]
    fn names_begin_with_category_and_generation() {
        for (name, expected) in [
            ("m5.large", Some(("m", "5"))),
            ("c7i-flex.large", Some(("c", "7"))),
            ("u-3tb1.56xlarge", Some(("u", "1"))),
            ("u7i-12tb.224xlarge", Some(("u", "7"))),
            ("inf2.xlarge", Some(("inf", "2"))),
            ("p4de.24xlarge", Some(("p", "4"))),
            ("5m.large", None),
            ("mac.metal", None),
        ] {
            assert_eq!(category_and_generation(name), expected, "{name}");
        }
    }
}
