use aws_sdk_ec2::types as sdk;

use crate::ec2::{
    EbsInfo, EbsOptimizedInfo, EfaInfo, GpuDevice, GpuInfo, InferenceAcceleratorInfo, InferenceDevice,
    InstanceStorageInfo, InstanceTypeInfo, MemoryInfo, NetworkCard, NetworkInfo, NeuronCoreInfo, NeuronDevice,
    NeuronInfo, PlacementGroupInfo, ProcessorInfo, VcpuInfo, thousandths_of,
};

/// A count; none where there is no number that can be.
fn count(number: Option<i32>) -> u32 {
    number.and_then(|number| u32::try_from(number).ok()).unwrap_or(0)
}

fn size(number: Option<i64>) -> u64 {
    number.and_then(|number| u64::try_from(number).ok()).unwrap_or(0)
}

fn text(text: Option<String>) -> String {
    text.unwrap_or_default()
}

fn words<T>(items: Option<Vec<T>>, word: impl Fn(&T) -> &str) -> Vec<String> {
    items.unwrap_or_default().iter().map(|item| word(item).to_owned()).collect()
}

fn each<T, O>(items: Option<Vec<T>>, read: impl Fn(T) -> O) -> Vec<O> {
    items.unwrap_or_default().into_iter().map(read).collect()
}

/// What EC2 says of an instance type.
pub(super) fn read(found: sdk::InstanceTypeInfo) -> InstanceTypeInfo {
    let vcpus = found.v_cpu_info.and_then(|info| info.default_v_cpus);
    InstanceTypeInfo {
        instance_type: found.instance_type.map(|name| name.as_str().to_owned()).unwrap_or_default(),
        bare_metal: found.bare_metal.unwrap_or_default(),
        hypervisor: found.hypervisor.map(|name| name.as_str().to_owned()).filter(|name| !name.is_empty()),
        supported_usage_classes: words(found.supported_usage_classes, |class| class.as_str()),
        processor_info: found.processor_info.map(processor).unwrap_or_default(),
        vcpu_info: VcpuInfo { default_vcpus: count(vcpus) },
        memory_info: MemoryInfo { size_mib: size(found.memory_info.and_then(|info| info.size_in_mib)) },
        ebs_info: found.ebs_info.map(ebs).unwrap_or_default(),
        network_info: found.network_info.map(network).unwrap_or_default(),
        instance_storage_info: found.instance_storage_info.map(|info| InstanceStorageInfo {
            total_size_gb: size(info.total_size_in_gb),
            nvme_support: info.nvme_support.map(|word| word.as_str().to_owned()).unwrap_or_default(),
        }),
        gpu_info: found.gpu_info.map(|info| GpuInfo { gpus: each(info.gpus, gpu) }),
        neuron_info: found.neuron_info.map(|info| NeuronInfo { neuron_devices: each(info.neuron_devices, neuron) }),
        inference_accelerator_info: found
            .inference_accelerator_info
            .map(|info| InferenceAcceleratorInfo { accelerators: each(info.accelerators, inference) }),
        placement_group_info: PlacementGroupInfo {
            supported_strategies: words(
                found.placement_group_info.and_then(|info| info.supported_strategies),
                |strategy| strategy.as_str(),
            ),
        },
        nitro_enclaves_support: found.nitro_enclaves_support.map(|word| word.as_str().to_owned()).unwrap_or_default(),
    }
}

fn processor(info: sdk::ProcessorInfo) -> ProcessorInfo {
    ProcessorInfo {
        supported_architectures: words(info.supported_architectures, |name| name.as_str()),
        sustained_clock_speed_mhz: info.sustained_clock_speed_in_ghz.and_then(thousandths_of),
        manufacturer: info.manufacturer,
        supported_features: words(info.supported_features, |name| name.as_str()),
    }
}

fn ebs(info: sdk::EbsInfo) -> EbsInfo {
    EbsInfo {
        ebs_optimized_support: info.ebs_optimized_support.map(|word| word.as_str().to_owned()).unwrap_or_default(),
        ebs_optimized_info: info
            .ebs_optimized_info
            .map(|info| EbsOptimizedInfo { maximum_bandwidth_mbps: count(info.maximum_bandwidth_in_mbps) }),
    }
}

fn network(info: sdk::NetworkInfo) -> NetworkInfo {
    let card = |card: sdk::NetworkCardInfo| NetworkCard {
        network_card_index: count(card.network_card_index),
        maximum_network_interfaces: count(card.maximum_network_interfaces),
        baseline_bandwidth_mbps: card.baseline_bandwidth_in_gbps.and_then(thousandths_of),
    };
    NetworkInfo {
        default_network_card_index: count(info.default_network_card_index),
        encryption_in_transit_supported: info.encryption_in_transit_supported.unwrap_or_default(),
        efa_info: info.efa_info.map(|efa| EfaInfo { maximum_efa_interfaces: count(efa.maximum_efa_interfaces) }),
        ena_support: info.ena_support.map(|word| word.as_str().to_owned()).unwrap_or_default(),
        ipv4_addresses_per_interface: count(info.ipv4_addresses_per_interface),
        maximum_network_interfaces: count(info.maximum_network_interfaces),
        network_cards: each(info.network_cards, card),
        network_performance: text(info.network_performance),
    }
}

fn gpu(device: sdk::GpuDeviceInfo) -> GpuDevice {
    let mib = device.memory_info.and_then(|info| info.size_in_mib).map(i64::from);
    GpuDevice {
        name: text(device.name),
        manufacturer: text(device.manufacturer),
        count: count(device.count),
        memory_info: MemoryInfo { size_mib: size(mib) },
    }
}

fn neuron(device: sdk::NeuronDeviceInfo) -> NeuronDevice {
    NeuronDevice {
        name: text(device.name),
        count: count(device.count),
        core_info: NeuronCoreInfo { count: count(device.core_info.and_then(|info| info.count)) },
    }
}

fn inference(device: sdk::InferenceDeviceInfo) -> InferenceDevice {
    InferenceDevice { name: text(device.name), manufacturer: text(device.manufacturer), count: count(device.count) }
}
