use karpenter_core::Timestamp;

use super::{ManualClock, MemoryAws, State};
use crate::ec2::{
    GpuDevice, GpuInfo, Image, InstanceTypeInfo, MemoryInfo, NetworkCard, NetworkInfo, ProcessorInfo, Tags, VcpuInfo,
    network::{SecurityGroup, Subnet},
    price::SpotPriceRecord,
    profile::ClusterInfo,
};

/// The key of the tag that everything in the [small account](MemoryAws::small) is found by.
pub const DISCOVERY: &str = "karpenter.sh/discovery";
/// Processors, memory in GiB and price of the types of the small account.
const TYPES: [(&str, &str, u32, u64, f64); 8] = [
    ("c5.large", "x86_64", 2, 4, 0.085),
    ("c5.xlarge", "x86_64", 4, 8, 0.17),
    ("m5.large", "x86_64", 2, 8, 0.096),
    ("m5.xlarge", "x86_64", 4, 16, 0.192),
    ("m5.2xlarge", "x86_64", 8, 32, 0.384),
    ("m5.metal", "x86_64", 96, 384, 4.608),
    ("m6g.large", "arm64", 2, 8, 0.077),
    ("g4dn.xlarge", "x86_64", 4, 16, 0.526),
];
/// What spot machines cost, compared with others.
const SPOT_SHARE: f64 = 0.4;

impl MemoryAws {
    /// A small account: three zones of `us-west-2` with a subnet each, one security group, images for both
    /// architectures, eight types on-demand and as spot machines, the cluster `test` and the role `node`. Subnets and
    /// group have the tag [`DISCOVERY`] of the value `test`.
    pub fn small() -> Self {
        let start = Timestamp::from_millis(1_700_000_000_000);
        let aws = Self::new(ManualClock::at(start));
        aws.with(|state| {
            let tags = Tags::from([(DISCOVERY.to_owned(), "test".to_owned())]);
            for (number, letter) in (1..).zip(["a", "b", "c"]) {
                state.subnets.push(Subnet {
                    id: format!("subnet-{number}"),
                    zone: format!("us-west-2{letter}"),
                    zone_id: format!("usw2-az{number}"),
                    free_addresses: 250,
                    tags: tags.clone(),
                });
            }
            let (id, name) = ("sg-1".to_owned(), "nodes".to_owned());
            state.security_groups.push(SecurityGroup { id, name, tags });
            for (arch, id) in [("x86_64", "ami-x86"), ("arm64", "ami-arm")] {
                state.images.push(("amazon".to_owned(), image(id, arch, start)));
                let name = format!(
                    "/aws/service/eks/optimized-ami/1.31/amazon-linux-2023/{arch}/standard/recommended/image_id"
                );
                state.parameters.insert(name, id.to_owned());
            }
            for row in &TYPES {
                state.add_type(row, start);
            }
            state.cluster = ClusterInfo {
                name: "test".to_owned(),
                arn: "arn:aws:eks:us-west-2:123456789012:cluster/test".to_owned(),
                version: "1.31".to_owned(),
                endpoint: "https://test.example".to_owned(),
                ca_bundle: "Y2E=".to_owned(),
                service_ipv4_cidr: "10.100.0.0/16".to_owned(),
                service_ipv6_cidr: String::new(),
            };
            state.roles.push("node".to_owned());
        });
        aws
    }
}

impl State {
    fn add_type(&mut self, row: &(&str, &str, u32, u64, f64), now: Timestamp) {
        let (name, arch, vcpus, memory_gib, dollars) = *row;
        self.instance_types.push(instance_type(name, arch, vcpus, memory_gib));
        self.on_demand_prices.insert(name.to_owned(), dollars);
        let zones: Vec<String> = self.subnets.iter().map(|subnet| subnet.zone.clone()).collect();
        self.spot_prices.extend(zones.into_iter().map(|zone| SpotPriceRecord {
            instance_type: name.to_owned(),
            zone,
            price: format!("{:.4}", dollars * SPOT_SHARE),
            since: Some(now),
        }));
    }
}

fn image(id: &str, arch: &str, created: Timestamp) -> Image {
    Image {
        image_id: id.to_owned(),
        name: format!("amazon-eks-node-al2023-{arch}"),
        architecture: arch.to_owned(),
        creation_date: Some(created),
        deprecation_time: None,
    }
}

fn instance_type(name: &str, arch: &str, vcpus: u32, memory_gib: u64) -> InstanceTypeInfo {
    let is_metal = name.contains("metal");
    let text = str::to_owned;
    let card = NetworkCard { maximum_network_interfaces: 4, ..NetworkCard::default() };
    let gpu = GpuDevice {
        name: text("T4"),
        manufacturer: text("NVIDIA"),
        count: 1,
        memory_info: MemoryInfo { size_mib: 16 << 10 },
    };
    InstanceTypeInfo {
        instance_type: text(name),
        bare_metal: is_metal,
        hypervisor: (!is_metal).then(|| text("nitro")),
        supported_usage_classes: vec![text("on-demand"), text("spot")],
        processor_info: ProcessorInfo { supported_architectures: vec![text(arch)], ..ProcessorInfo::default() },
        vcpu_info: VcpuInfo { default_vcpus: vcpus },
        memory_info: MemoryInfo { size_mib: memory_gib << 10 },
        network_info: NetworkInfo {
            ena_support: text("required"),
            ipv4_addresses_per_interface: 15,
            maximum_network_interfaces: 4,
            network_cards: vec![card],
            ..NetworkInfo::default()
        },
        gpu_info: name.starts_with('g').then(|| GpuInfo { gpus: vec![gpu] }),
        ..InstanceTypeInfo::default()
    }
}
