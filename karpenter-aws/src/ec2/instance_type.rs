//! What DescribeInstanceTypes says of an instance type, as far as it bears on nodes.
//!
//! The names on the wire are those of the EC2 API, so that the output of `aws ec2 describe-instance-types` can be read
//! as it is. Words of AWS stay texts: it may add new ones.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::wire::{is_default, nullable};

/// An instance type as EC2 describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct InstanceTypeInfo {
    /// The name, such as `m5.large`.
    pub instance_type: String,
    /// Whether there is no hypervisor.
    pub bare_metal: bool,
    /// `nitro` or `xen`; `None` on bare metal.
    #[serde(skip_serializing_if = "is_default")]
    pub hypervisor: Option<String>,
    /// How it is sold: `on-demand`, `spot`, `capacity-block`.
    #[serde(deserialize_with = "nullable")]
    pub supported_usage_classes: Vec<String>,
    /// The processor.
    #[serde(deserialize_with = "nullable")]
    pub processor_info: ProcessorInfo,
    /// The virtual processors.
    #[serde(rename = "VCpuInfo", deserialize_with = "nullable")]
    pub vcpu_info: VcpuInfo,
    /// The memory.
    #[serde(deserialize_with = "nullable")]
    pub memory_info: MemoryInfo,
    /// The way to EBS volumes.
    #[serde(deserialize_with = "nullable")]
    pub ebs_info: EbsInfo,
    /// The way to the network.
    #[serde(deserialize_with = "nullable")]
    pub network_info: NetworkInfo,
    /// Disks of the host; `None` if it has none.
    #[serde(skip_serializing_if = "is_default")]
    pub instance_storage_info: Option<InstanceStorageInfo>,
    /// Graphics processors; `None` if it has none.
    #[serde(skip_serializing_if = "is_default")]
    pub gpu_info: Option<GpuInfo>,
    /// AWS Neuron devices; `None` if it has none.
    #[serde(skip_serializing_if = "is_default")]
    pub neuron_info: Option<NeuronInfo>,
    /// Inference accelerators; `None` if it has none.
    #[serde(skip_serializing_if = "is_default")]
    pub inference_accelerator_info: Option<InferenceAcceleratorInfo>,
    /// Placement groups that it may be in.
    #[serde(deserialize_with = "nullable")]
    pub placement_group_info: PlacementGroupInfo,
    /// `supported` if it can hold Nitro enclaves.
    #[serde(deserialize_with = "nullable")]
    pub nitro_enclaves_support: String,
}

/// The processor of an instance type.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct ProcessorInfo {
    /// Such as `x86_64`, `arm64`; old types name several.
    #[serde(deserialize_with = "nullable")]
    pub supported_architectures: Vec<String>,
    /// The sustained clock speed in megahertz.
    #[serde(rename = "SustainedClockSpeedInGhz", with = "thousandths", skip_serializing_if = "is_default")]
    pub sustained_clock_speed_mhz: Option<u32>,
    /// Such as `Intel`.
    #[serde(skip_serializing_if = "is_default")]
    pub manufacturer: Option<String>,
    /// Such as `amd-sev-snp`, `nested-virtualization`.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "nullable")]
    pub supported_features: Vec<String>,
}

/// The virtual processors of an instance type.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct VcpuInfo {
    /// How many there are if nothing else is asked for.
    #[serde(rename = "DefaultVCpus")]
    pub default_vcpus: u32,
}

/// The memory of an instance type, or of one of its accelerators.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MemoryInfo {
    /// The size in MiB.
    #[serde(rename = "SizeInMiB")]
    pub size_mib: u64,
}

/// The way to EBS volumes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct EbsInfo {
    /// `default`, `supported` or `unsupported`.
    #[serde(deserialize_with = "nullable")]
    pub ebs_optimized_support: String,
    /// What it brings; `None` if it is unsupported.
    #[serde(skip_serializing_if = "is_default")]
    pub ebs_optimized_info: Option<EbsOptimizedInfo>,
}

/// What a way to EBS of one's own brings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct EbsOptimizedInfo {
    /// The most megabits a second.
    #[serde(rename = "MaximumBandwidthInMbps")]
    pub maximum_bandwidth_mbps: u32,
}

/// The way to the network.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct NetworkInfo {
    /// The card that interfaces are attached to unless another is named.
    pub default_network_card_index: u32,
    /// Whether traffic between instances is encrypted.
    pub encryption_in_transit_supported: bool,
    /// Elastic fabric adapters; `None` if it has none.
    #[serde(skip_serializing_if = "is_default")]
    pub efa_info: Option<EfaInfo>,
    /// `required`, `supported` or `unsupported`.
    #[serde(deserialize_with = "nullable")]
    pub ena_support: String,
    /// How many IPv4 addresses one interface can have.
    pub ipv4_addresses_per_interface: u32,
    /// How many interfaces all cards can have together.
    pub maximum_network_interfaces: u32,
    /// What it carries in words, such as `Up to 10 Gigabit` or `High`.
    #[serde(deserialize_with = "nullable")]
    pub network_performance: String,
    /// The cards.
    #[serde(deserialize_with = "nullable")]
    pub network_cards: Vec<NetworkCard>,
}

/// Elastic fabric adapters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct EfaInfo {
    /// How many there can be.
    pub maximum_efa_interfaces: u32,
}

/// A network card.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct NetworkCard {
    /// Its number.
    pub network_card_index: u32,
    /// How many interfaces it can have.
    pub maximum_network_interfaces: u32,
    /// What it carries at any time, in megabits a second; `None` if AWS does not say.
    #[serde(rename = "BaselineBandwidthInGbps", with = "thousandths", skip_serializing_if = "is_default")]
    pub baseline_bandwidth_mbps: Option<u32>,
}

/// Disks of the host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct InstanceStorageInfo {
    /// All of them together, in GB of a thousand million bytes.
    #[serde(rename = "TotalSizeInGB")]
    pub total_size_gb: u64,
    /// `required`, `supported` or `unsupported`.
    #[serde(deserialize_with = "nullable")]
    pub nvme_support: String,
}

/// Graphics processors.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct GpuInfo {
    /// One entry for each kind.
    #[serde(deserialize_with = "nullable")]
    pub gpus: Vec<GpuDevice>,
}

/// Graphics processors of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct GpuDevice {
    /// Such as `A10G`.
    #[serde(deserialize_with = "nullable")]
    pub name: String,
    /// Such as `NVIDIA`.
    #[serde(deserialize_with = "nullable")]
    pub manufacturer: String,
    /// How many; zero where an instance has a part of one.
    pub count: u32,
    /// The memory of each.
    #[serde(deserialize_with = "nullable")]
    pub memory_info: MemoryInfo,
}

/// AWS Neuron devices.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct NeuronInfo {
    /// One entry for each kind.
    #[serde(deserialize_with = "nullable")]
    pub neuron_devices: Vec<NeuronDevice>,
}

/// AWS Neuron devices of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct NeuronDevice {
    /// Such as `Trainium`.
    #[serde(deserialize_with = "nullable")]
    pub name: String,
    /// How many.
    pub count: u32,
    /// The cores of each.
    #[serde(deserialize_with = "nullable")]
    pub core_info: NeuronCoreInfo,
}

/// The cores of an AWS Neuron device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct NeuronCoreInfo {
    /// How many.
    pub count: u32,
}

/// Inference accelerators.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct InferenceAcceleratorInfo {
    /// One entry for each kind.
    #[serde(deserialize_with = "nullable")]
    pub accelerators: Vec<InferenceDevice>,
}

/// Inference accelerators of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct InferenceDevice {
    /// Such as `Inferentia`.
    #[serde(deserialize_with = "nullable")]
    pub name: String,
    /// Such as `AWS`.
    #[serde(deserialize_with = "nullable")]
    pub manufacturer: String,
    /// How many.
    pub count: u32,
}

/// Placement groups that an instance type may be in.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct PlacementGroupInfo {
    /// `cluster`, `partition`, `spread`.
    #[serde(deserialize_with = "nullable")]
    pub supported_strategies: Vec<String>,
}

/// A number that AWS writes with a fraction, such as `2.5` gigahertz, in whole thousandths, such as 2500 megahertz.
/// `None` if it is not a number that can be.
pub fn thousandths_of(number: f64) -> Option<u32> {
    let thousandths = (number * 1000.0).round();
    let is_possible = thousandths >= 0.0 && thousandths <= f64::from(u32::MAX);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it was just looked at")]
    is_possible.then_some(thousandths as u32)
}

mod thousandths {
    use super::{Deserialize, Deserializer, Serializer, thousandths_of};

    #[expect(clippy::ref_option, clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
    pub(super) fn serialize<S: Serializer>(value: &Option<u32>, serializer: S) -> Result<S::Ok, S::Error> {
        match value {
            Some(thousandths) => serializer.serialize_f64(f64::from(*thousandths) / 1000.0),
            None => serializer.serialize_none(),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u32>, D::Error> {
        Ok(Option::<f64>::deserialize(deserializer)?.and_then(thousandths_of))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_of_the_aws_command_is_read_as_it_is() {
        let text = r#"{"InstanceType":"g9.large","BareMetal":false,"Hypervisor":"nitro","CurrentGeneration":true,
            "ProcessorInfo":{"SupportedArchitectures":["x86_64"],"SustainedClockSpeedInGhz":2.9,"Manufacturer":"Intel"},
            "VCpuInfo":{"DefaultVCpus":2,"DefaultCores":1},"MemoryInfo":{"SizeInMiB":8192},
            "NetworkInfo":{"NetworkCards":[{"NetworkCardIndex":0,"BaselineBandwidthInGbps":0.064}],"EfaInfo":null},
            "GpuInfo":{"Gpus":[{"Name":"T4","Count":1,"MemoryInfo":{"SizeInMiB":16384}}]}}"#;
        let info: InstanceTypeInfo = serde_json::from_str(text).expect("valid");
        assert_eq!(info.processor_info.sustained_clock_speed_mhz, Some(2900));
        assert_eq!(info.network_info.network_cards[0].baseline_bandwidth_mbps, Some(64));
        assert_eq!((info.vcpu_info.default_vcpus, info.memory_info.size_mib), (2, 8192));
        assert_eq!(info.gpu_info.as_ref().expect("has one").gpus[0].memory_info.size_mib, 16384);
        let again: InstanceTypeInfo =
            serde_json::from_str(&serde_json::to_string(&info).expect("plain")).expect("its own output");
        assert_eq!(again, info);
    }

    #[test]
    fn what_is_no_number_of_thousandths_is_not_known() {
        for (number, expected) in [(3.1, Some(3100)), (0.0, Some(0)), (-1.0, None), (f64::NAN, None), (1e9, None)] {
            assert_eq!(thousandths_of(number), expected, "{number}");
        }
    }
}
