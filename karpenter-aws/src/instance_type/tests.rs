use karpenter_core::{Offering, OfferingKey, Price, Quantity, Requirement, labels as core_labels};

use super::*;
use crate::{
    ec2::{
        EfaInfo, GpuDevice, GpuInfo, InferenceAcceleratorInfo, InferenceDevice, InstanceStorageInfo, MemoryInfo,
        NetworkCard, NeuronCoreInfo, NeuronDevice, NeuronInfo,
    },
    nodeclass::{
        AmiSelectorTerm, BlockDevice, ConnectionTracking, CpuOptions, InstanceMatchCriteria, InterfaceType,
        ReservationState, ReservationType, Subnet, Switch,
    },
    price::Prices,
};

const GIB: i64 = 1 << 30;
const MIB: i64 = 1 << 20;

/// A type like `m5.large`.
fn large() -> InstanceTypeInfo {
    let mut info = InstanceTypeInfo {
        instance_type: "m5.large".to_owned(),
        hypervisor: Some("nitro".to_owned()),
        supported_usage_classes: ["on-demand", "spot"].map(str::to_owned).to_vec(),
        ..InstanceTypeInfo::default()
    };
    info.processor_info.supported_architectures = vec!["x86_64".to_owned()];
    info.vcpu_info.default_vcpus = 2;
    info.memory_info.size_mib = 8192;
    info.network_info.ena_support = "required".to_owned();
    info.network_info.ipv4_addresses_per_interface = 10;
    info.network_info.network_cards = vec![NetworkCard { maximum_network_interfaces: 3, ..NetworkCard::default() }];
    info.placement_group_info.supported_strategies = ["cluster", "spread"].map(str::to_owned).to_vec();
    info
}

fn class(alias: &str) -> Ec2NodeClass {
    let mut class = Ec2NodeClass::named("default");
    class.spec.ami_selector_terms = vec![AmiSelectorTerm::of_alias(alias)];
    let subnet = |id: &str, zone: &str, zone_id: &str| Subnet {
        id: id.to_owned(),
        zone: zone.to_owned(),
        zone_id: zone_id.to_owned(),
    };
    class.status.subnets =
        vec![subnet("s2", "z-b", "zid-2"), subnet("s1", "z-a", "zid-1"), subnet("s3", "z-a", "zid-1")];
    class
}

fn with_kubelet(alias: &str, json: &str) -> Ec2NodeClass {
    let mut class = class(alias);
    class.spec.kubelet = serde_json::from_str(json).expect("an object");
    class
}

fn reservation(id: &str, zone: &str) -> CapacityReservation {
    CapacityReservation {
        availability_zone: zone.to_owned(),
        end_time: None,
        id: id.to_owned(),
        instance_match_criteria: InstanceMatchCriteria::Targeted,
        instance_type: "m5.large".to_owned(),
        owner_id: "012345678901".to_owned(),
        reservation_type: ReservationType::Default,
        interruptible: false,
        state: ReservationState::Active,
    }
}

fn settings(class: &Ec2NodeClass) -> TypeSettings {
    TypeSettings::new(class, &TypeOptions::of_region("us-east-1")).expect("valid")
}

fn zones() -> BTreeSet<String> {
    ["z-a", "z-b", "z-c"].map(str::to_owned).into()
}

fn resolved(info: &InstanceTypeInfo, class: &Ec2NodeClass) -> InstanceType {
    settings(class).instance_type(info, &zones()).expect("compatible")
}

fn capacity(info: &InstanceTypeInfo, class: &Ec2NodeClass, resource: &str) -> Quantity {
    resolved(info, class).capacity.get(resource).unwrap_or_default()
}

fn pods(info: &InstanceTypeInfo, class: &Ec2NodeClass) -> u32 {
    settings(class).pods(info)
}

#[test]
fn a_label_that_a_type_lacks_is_said_to_be_absent() {
    let requirements = resolved(&large(), &class("al2023@latest")).requirements;
    for key in
        [labels::GPU_COUNT, labels::LOCAL_NVME, labels::RESERVATION_ID, labels::WINDOWS_BUILD, labels::ACCELERATOR_NAME]
    {
        assert_eq!(requirements.get(key), Some(&Requirement::ABSENT), "{key}");
    }
    let mut metal = large();
    metal.hypervisor = None;
    let requirements = resolved(&metal, &class("al2023@latest")).requirements;
    assert_eq!(requirements.get(labels::HYPERVISOR), Some(&Requirement::one_of([""])), "metal has the empty label");
}

#[test]
fn zones_are_those_of_the_class_in_which_the_type_is_offered() {
    let offered = BTreeSet::from(["z-b".to_owned(), "z-c".to_owned()]);
    let found = settings(&class("al2@latest")).instance_type(&large(), &offered).expect("in one zone").requirements;
    assert_eq!(found.get(core_labels::ZONE), Some(&Requirement::one_of(["z-b"])));
    assert_eq!(found.get(labels::ZONE_ID), Some(&Requirement::one_of(["zid-2"])));
    assert_eq!(settings(&class("al2@latest")).instance_type(&large(), &["z-c".to_owned()].into()), None);
}

#[test]
fn windows_runs_on_amd64_only() {
    let mut info = large();
    let windows = class("windows2022@latest");
    let found = resolved(&info, &windows);
    assert_eq!(found.requirements.get(core_labels::OS), Some(&Requirement::one_of(["windows"])));
    assert_eq!(found.requirements.get(labels::WINDOWS_BUILD), Some(&Requirement::one_of(["10.0.20348"])));
    assert_eq!(found.capacity.get(PRIVATE_IPV4_ADDRESS), Some(Quantity::from_units(9)));
    assert_eq!(found.capacity.get("pods"), Some(Quantity::from_units(110)));
    info.processor_info.supported_architectures = vec!["arm64".to_owned()];
    assert_eq!(settings(&windows).instance_type(&info, &zones()), None);
}

#[test]
fn a_class_without_subnets_has_no_types() {
    let mut class = class("al2023@latest");
    class.status.subnets.clear();
    let error = TypeSettings::new(&class, &TypeOptions::of_region("us-east-1")).expect_err("no subnets");
    assert_eq!(error, SettingsError::NoSubnets { class: "default".to_owned() });
}

#[test]
fn the_hypervisor_and_arm_machines_take_memory() {
    let mut info = large();
    let memory = |info: &InstanceTypeInfo| capacity(info, &class("al2023@latest"), "memory").units_floor() / MIB;
    assert_eq!(memory(&info), 8192 - 615);
    info.processor_info.supported_architectures = vec!["arm64".to_owned()];
    assert_eq!(memory(&info), 8128 - 610);
    let mut options = TypeOptions::of_region("us-east-1");
    options.vm_memory_overhead_millionths = 0;
    let settings = TypeSettings::new(&class("al2023@latest"), &options).expect("valid");
    assert_eq!(settings.memory_bytes(&info), 8128 * MIB);
}

#[test]
fn pods_are_those_that_have_addresses() {
    assert_eq!(pods(&large(), &class("al2023@latest")), 3 * 9 + 2);
    let mut options = TypeOptions::of_region("us-east-1");
    for (reserved, expected) in [(1, 2 * 9 + 2), (3, 0), (4, 0)] {
        options.reserved_enis = reserved;
        let settings = TypeSettings::new(&class("al2023@latest"), &options).expect("valid");
        assert_eq!(settings.pods(&large()), expected, "{reserved}");
    }
}

#[test]
fn pods_have_addresses_of_the_default_card_only() {
    let mut info = large();
    info.network_info.network_cards.push(NetworkCard {
        network_card_index: 1,
        maximum_network_interfaces: 7,
        ..NetworkCard::default()
    });
    assert_eq!(pods(&info, &class("al2023@latest")), 29);
    info.network_info.default_network_card_index = 1;
    assert_eq!(pods(&info, &class("al2023@latest")), 7 * 9 + 2);
}

#[test]
fn interfaces_without_addresses_on_the_first_card_take_room() {
    let mut class = class("al2023@latest");
    let interface = |card, device, interface_type| NetworkInterface {
        network_card_index: card,
        device_index: device,
        interface_type,
    };
    class.spec.network_interfaces = Some(vec![
        interface(0, 0, InterfaceType::Interface),
        interface(0, 1, InterfaceType::EfaOnly),
        interface(1, 1, InterfaceType::EfaOnly),
    ]);
    assert_eq!(pods(&large(), &class), 2 * 9 + 2);
    assert_eq!(capacity(&large(), &class, EFA), Quantity::from_units(2));
    let mut info = large();
    info.network_info.efa_info = Some(EfaInfo { maximum_efa_interfaces: 4 });
    class.spec.network_interfaces = Some(vec![interface(0, 0, InterfaceType::Interface)]);
    assert_eq!(capacity(&info, &class, EFA), Quantity::ZERO, "what is named counts");
    class.spec.network_interfaces = None;
    assert_eq!(capacity(&info, &class, EFA), Quantity::from_units(4));
}

#[test]
fn the_kubelet_may_allow_fewer_or_more_pods() {
    for (alias, json, expected) in [
        ("al2023@latest", r#"{"maxPods":200}"#, 200),
        ("al2023@latest", r#"{"maxPods":0}"#, 0),
        ("al2023@latest", r#"{"podsPerCore":3}"#, 6),
        ("al2023@latest", r#"{"podsPerCore":0}"#, 29),
        ("al2023@latest", r#"{"podsPerCore":3,"maxPods":4}"#, 4),
        ("bottlerocket@latest", r#"{"podsPerCore":3}"#, 29),
        ("windows2019@latest", r#"{"podsPerCore":3}"#, 6),
        ("al2023@latest", r#"{"maxPods":"max_pods * 2"}"#, 29),
    ] {
        assert_eq!(pods(&large(), &with_kubelet(alias, json)), expected, "{alias} {json}");
    }
}

#[test]
fn expressions_are_evaluated_where_that_is_asked_for() {
    let class = with_kubelet(
        "al2023@latest",
        r#"{"maxPods":"max_pods * 2","kubeReserved":{"cpu":"vcpus * 33","memory":"max_pods * 10","pid":"1000"},
            "systemReserved":{"memory":"vcpus - 3"}}"#,
    );
    let mut options = TypeOptions::of_region("us-east-1");
    options.evaluates_expressions = true;
    let settings = TypeSettings::new(&class, &options).expect("valid");
    assert_eq!(settings.pods(&large()), 58, "twice the 29 of the family");
    let overhead = settings.instance_type(&large(), &zones()).expect("compatible").overhead;
    assert_eq!(overhead.kube_reserved.to_string(), "cpu 70m, memory 592Mi, ephemeral-storage 1Gi, pid 1k");
    assert!(overhead.system_reserved.is_empty(), "below zero");
    let fault = settings.without_value(&large()).expect("one is below zero");
    assert!(fault.starts_with("spec.kubelet.systemReserved.memory for m5.large: "), "{fault}");
    let told = settings.evaluated_class(&class, &large());
    let reserved = &told.spec.kubelet.0["kubeReserved"];
    assert_eq!((reserved["cpu"].as_str(), reserved["memory"].as_str()), (Some("70m"), Some("592Mi")));
    assert_eq!(pods(&large(), &class), 29, "where it is not asked for");
}

#[test]
fn a_number_of_pods_must_be_one_that_a_kubelet_takes() {
    for (kubelet, expected) in [
        (r#"{"maxPods":"0 - 1"}"#, None),
        (r#"{"maxPods":"2147483648"}"#, None),
        (r#"{"maxPods":"2147483647"}"#, Some(2_147_483_647)),
        (r#"{"maxPods":"0"}"#, Some(0)),
        (r#"{"maxPods":"max_pods - 1","podsPerCore":10}"#, Some(19)),
    ] {
        let class = with_kubelet("al2023@latest", kubelet);
        let mut options = TypeOptions::of_region("us-east-1");
        options.evaluates_expressions = true;
        let settings = TypeSettings::new(&class, &options).expect("valid");
        assert_eq!(settings.without_value(&large()).is_none(), expected.is_some(), "{kubelet}");
        assert_eq!(settings.pods(&large()), expected.unwrap_or(29), "{kubelet}");
    }
}

#[test]
fn what_kubernetes_keeps_goes_by_interfaces_or_by_pods() {
    let memory_mib = |class: &Ec2NodeClass| {
        resolved(&large(), class).overhead.kube_reserved.get("memory").unwrap_or_default().units_floor() / MIB
    };
    let by = |pods: i64| 11 * pods + 255;
    for (alias, pods) in
        [("al2@latest", 29), ("al2023@latest", 29), ("bottlerocket@latest", 10), ("windows2022@latest", 10)]
    {
        assert_eq!(memory_mib(&with_kubelet(alias, r#"{"maxPods":10}"#)), by(pods), "{alias}");
    }
}

#[test]
fn what_is_reserved_in_writing_replaces_the_default_key_by_key() {
    let class = with_kubelet(
        "al2023@latest",
        r#"{"kubeReserved":{"memory":"1Gi","pid":"100"},"systemReserved":{"cpu":"100m"},"evictionSoft":{"memory.available":"50%"}}"#,
    );
    let overhead = resolved(&large(), &class).overhead;
    assert_eq!(overhead.kube_reserved.to_string(), "cpu 70m, memory 1Gi, ephemeral-storage 1Gi, pid 100");
    assert_eq!(overhead.system_reserved.to_string(), "cpu 100m");
    assert_eq!(overhead.eviction_threshold.to_string(), "memory 100Mi, ephemeral-storage 2Gi");
}

#[test]
fn eviction_thresholds_are_shares_of_the_computed_capacity() {
    let class = with_kubelet(
        "al2023@latest",
        r#"{"evictionHard":{"memory.available":"5%","nodefs.available":"100%","pid.available":"1%"}}"#,
    );
    let threshold = resolved(&large(), &class).overhead.eviction_threshold;
    let memory = settings(&class).memory_bytes(&large());
    assert_eq!(threshold.get("memory"), Some(Quantity::from_bytes((memory + 19) / 20)));
    assert_eq!(threshold.get("ephemeral-storage"), Some(Quantity::ZERO));
    assert_eq!(threshold.iter().len(), 2);
}

#[test]
fn pods_keep_their_files_on_the_disk_that_the_family_or_the_class_says() {
    let disk = |device: &str, gib: Option<i64>, root_volume| BlockDeviceMapping {
        device_name: Some(device.to_owned()),
        ebs: Some(BlockDevice { volume_size: gib.map(|n| Quantity::from_bytes(n * GIB)), ..BlockDevice::default() }),
        root_volume,
    };
    let cases = [
        ("al2023@latest", vec![], 20),
        ("bottlerocket@latest", vec![], 20),
        ("windows2022@latest", vec![], 50),
        ("al2023@latest", vec![disk("/dev/xvda", Some(30), false), disk("/dev/xvdb", Some(40), false)], 30),
        ("bottlerocket@latest", vec![disk("/dev/xvda", Some(30), false), disk("/dev/xvdb", Some(40), false)], 40),
        ("al2023@latest", vec![disk("/dev/xvda", Some(30), false), disk("/dev/xvdc", Some(60), true)], 60),
        ("al2023@latest", vec![disk("/dev/xvdc", Some(60), false)], 20),
        ("al2023@latest", vec![BlockDeviceMapping::default()], 20),
        ("", vec![disk("/dev/a", Some(30), false), disk("/dev/b", Some(40), false)], 40),
        ("", vec![disk("/dev/a", Some(30), false), disk("/dev/b", None, false)], 20),
        ("", vec![], 20),
    ];
    for (alias, disks, gib) in cases {
        let mut class = class(alias);
        class.spec.block_device_mappings = disks;
        assert_eq!(capacity(&large(), &class, "ephemeral-storage"), Quantity::from_bytes(gib * GIB), "{alias}");
    }
}

#[test]
fn pods_keep_their_files_on_disks_of_the_host_if_these_become_one() {
    let mut class = class("al2023@latest");
    class.spec.instance_store_policy = Some(InstanceStorePolicy::Raid0);
    assert_eq!(capacity(&large(), &class, "ephemeral-storage"), Quantity::from_bytes(20 * GIB), "it has none");
    let mut info = large();
    info.instance_storage_info = Some(InstanceStorageInfo { total_size_gb: 900, nvme_support: "required".to_owned() });
    assert_eq!(capacity(&info, &class, "ephemeral-storage"), "900G".parse().expect("valid"));
}

#[test]
fn devices_are_counted_by_who_made_them() {
    let gpu = |manufacturer: &str, count| GpuDevice {
        name: "Radeon Pro V520".to_owned(),
        manufacturer: manufacturer.to_owned(),
        count,
        memory_info: MemoryInfo { size_mib: 8192 },
    };
    let mut info = large();
    info.gpu_info = Some(GpuInfo { gpus: vec![gpu("AMD", 2)] });
    let found = resolved(&info, &class("al2023@latest"));
    assert_eq!(found.capacity.get("amd.com/gpu"), Some(Quantity::from_units(2)));
    assert_eq!(found.capacity.get("nvidia.com/gpu"), Some(Quantity::ZERO));
    assert_eq!(found.requirements.get(labels::GPU_NAME), Some(&Requirement::one_of(["radeon-pro-v520"])));
    info.gpu_info = Some(GpuInfo { gpus: vec![gpu("AMD", 2), gpu("NVIDIA", 1), gpu("NVIDIA", 3)] });
    let found = resolved(&info, &class("al2023@latest"));
    assert_eq!(found.capacity.get("nvidia.com/gpu"), Some(Quantity::from_units(4)));
    assert_eq!(
        found.requirements.get(labels::GPU_NAME),
        Some(&Requirement::ABSENT),
        "of several kinds none is the one"
    );
}

#[test]
fn neuron_devices_are_accelerators_before_others() {
    let mut info = large();
    let other = InferenceDevice { name: "Cloud AI 100".to_owned(), manufacturer: "Qualcomm".to_owned(), count: 8 };
    info.inference_accelerator_info = Some(InferenceAcceleratorInfo { accelerators: vec![other] });
    let found = resolved(&info, &class("al2023@latest")).requirements;
    assert_eq!(found.get(labels::ACCELERATOR_NAME), Some(&Requirement::one_of(["cloud-ai-100"])));
    assert_eq!(found.get(labels::ACCELERATOR_MANUFACTURER), Some(&Requirement::one_of(["qualcomm"])));
    let device = NeuronDevice { name: "Trainium".to_owned(), count: 16, core_info: NeuronCoreInfo { count: 2 } };
    info.neuron_info = Some(NeuronInfo { neuron_devices: vec![device] });
    let found = resolved(&info, &class("al2023@latest"));
    assert_eq!(found.requirements.get(labels::ACCELERATOR_MANUFACTURER), Some(&Requirement::one_of(["aws"])));
    assert_eq!(found.capacity.get(NEURON), Some(Quantity::from_units(16)));
    assert_eq!(found.capacity.get(NEURON_CORE), Some(Quantity::from_units(32)));
}

#[test]
fn bandwidth_to_ebs_is_said_where_it_is_always_there() {
    let mut info = large();
    info.ebs_info.ebs_optimized_info = Some(crate::ec2::EbsOptimizedInfo { maximum_bandwidth_mbps: 4750 });
    for (support, expected) in [("default", Requirement::one_of(["4750"])), ("supported", Requirement::ABSENT)] {
        info.ebs_info.ebs_optimized_support = support.to_owned();
        assert_eq!(resolved(&info, &class("al2@latest")).requirements.get(labels::EBS_BANDWIDTH), Some(&expected));
    }
}

struct Scene {
    class: Ec2NodeClass,
    info: InstanceTypeInfo,
    prices: Prices,
    group: Option<PlacementGroup>,
    shifted: BTreeSet<String>,
    sold_out: Vec<OfferingKey>,
    left: u32,
}

impl Scene {
    fn new() -> Self {
        let mut prices = Prices::default();
        let on_demand = [("m5.large".to_owned(), 0.1)];
        prices.update_on_demand(on_demand.clone(), on_demand).expect("prices");
        let (class, info) = (class("al2023@latest"), large());
        Self { class, info, prices, group: None, shifted: BTreeSet::new(), sold_out: Vec::new(), left: 2 }
    }

    fn offerings(&self) -> Vec<Offering> {
        let settings = settings(&self.class);
        let mut out = settings.instance_type(&self.info, &zones()).expect("compatible");
        let market = Market {
            prices: &self.prices,
            placement_group: self.group.as_ref(),
            shifted_zones: &self.shifted,
            is_sold_out: &|key| self.sold_out.contains(key),
            left_of_reservation: &|_| self.left,
        };
        settings.add_offerings(&mut out, &self.info, &zones(), &self.class, &market);
        let catalog = karpenter_core::Catalog::new(vec![out.clone()]).expect("a type that breaks no rule");
        assert_eq!(catalog.reservation_label(), Some(labels::RESERVATION_ID));
        out.offerings
    }

    /// What can be bought, as texts.
    fn open(&self) -> Vec<String> {
        let open = self.offerings().into_iter().filter(|o| o.available);
        open.map(|o| format!("{} {}", o.label(core_labels::CAPACITY_TYPE), o.label(core_labels::ZONE))).collect()
    }
}

#[test]
fn each_zone_of_the_class_has_its_offerings() {
    let scene = Scene::new();
    assert_eq!(scene.open(), ["on-demand z-a", "spot z-a", "on-demand z-b", "spot z-b"]);
    let first = &scene.offerings()[0];
    assert_eq!((first.label(labels::ZONE_ID), Some(first.price)), ("zid-1", Price::per_hour(0.1)));
}

#[test]
fn what_has_no_price_or_no_capacity_or_is_avoided_cannot_be_bought() {
    let mut scene = Scene::new();
    scene.prices.update_spot([("m5.large".to_owned(), "z-a".to_owned(), 0.03)]).expect("prices");
    assert_eq!(scene.open(), ["on-demand z-a", "spot z-a", "on-demand z-b"]);
    scene.sold_out = vec![scene.offerings()[0].key("m5.large")];
    assert_eq!(scene.open(), ["spot z-a", "on-demand z-b"]);
    scene.shifted = ["z-a".to_owned()].into();
    assert_eq!(scene.open(), ["on-demand z-b"]);
    assert_eq!(scene.offerings().len(), 4, "all stay in the catalog");
    scene.info.supported_usage_classes = vec!["spot".to_owned(), "capacity-block".to_owned()];
    assert_eq!(scene.offerings().len(), 2);
}

#[test]
fn reservations_are_offerings_of_their_own() {
    let mut scene = Scene::new();
    let mut expiring = reservation("cr-3", "z-a");
    expiring.state = ReservationState::Expiring;
    expiring.reservation_type = ReservationType::CapacityBlock;
    scene.class.status.capacity_reservations = vec![reservation("cr-2", "z-b"), reservation("cr-1", "z-x"), expiring];
    assert_eq!(scene.open().last().map(String::as_str), Some("reserved z-b"));
    let offerings = scene.offerings();
    let reserved: Vec<_> = offerings.iter().filter(|o| o.reservation_capacity.is_some()).collect();
    assert_eq!(reserved.len(), 2, "one is in a zone that the class is not in");
    assert!(!reserved[0].available && reserved[0].label(labels::RESERVATION_TYPE) == "capacity-block");
    assert_eq!((reserved[1].label(labels::RESERVATION_ID), reserved[1].reservation_capacity), ("cr-2", Some(2)));
    assert!(reserved[1].price < Price::per_hour(0.000_001).expect("a price"));
    let found = resolved(&scene.info, &scene.class).requirements;
    assert!(found.get(core_labels::CAPACITY_TYPE).is_some_and(|r| r.admits(Some("reserved"))));
    scene.left = 0;
    assert_eq!(scene.open().len(), 4);
}

#[test]
fn a_placement_group_of_partitions_multiplies_the_offerings() {
    let mut scene = Scene::new();
    scene.info.placement_group_info.supported_strategies.push("partition".to_owned());
    scene.group = Some(PlacementGroup { id: "pg-1".to_owned(), strategy: Strategy::Partition, partition_count: 3 });
    let offerings = scene.offerings();
    assert_eq!(offerings.len(), 12);
    assert_eq!(offerings[2].label(labels::PLACEMENT_GROUP_PARTITION), "3");
    scene.group = Some(PlacementGroup { id: "pg-1".to_owned(), strategy: Strategy::Cluster, partition_count: 0 });
    assert_eq!(scene.offerings().len(), 4);
}

type Ask = (fn(&mut Scene), Option<Incompatibility>);

#[test]
fn a_type_that_cannot_be_launched_as_asked_has_offerings_that_cannot_be_bought() {
    let asks: [Ask; 9] = [
        (|_| {}, None),
        (|s| s.info.instance_type = "a1.large".to_owned(), Some(Incompatibility::Processor)),
        (
            |s| s.class.spec.cpu_options = Some(CpuOptions { nested_virtualization: Some(Switch::Enabled) }),
            Some(Incompatibility::NestedVirtualization),
        ),
        (|s| s.class.spec.cpu_options = Some(CpuOptions { nested_virtualization: Some(Switch::Disabled) }), None),
        (
            |s| {
                s.class.spec.connection_tracking = Some(ConnectionTracking::default());
                s.info.hypervisor = None;
            },
            Some(Incompatibility::ConnectionTracking),
        ),
        (|s| interfaces(s, &[(1, 0)]), Some(Incompatibility::NoCard { card: 1 })),
        (|s| interfaces(s, &[(0, 3)]), Some(Incompatibility::NoDevice { card: 0, device: 3 })),
        (|s| interfaces(s, &[(0, 1)]), Some(Incompatibility::Efa)),
        (
            |s| {
                interfaces(s, &[]);
                s.class.spec.ip_prefix_count = Some(10);
            },
            Some(Incompatibility::Addresses),
        ),
    ];
    for (ask, expected) in asks {
        let mut scene = Scene::new();
        ask(&mut scene);
        assert_eq!(Incompatibility::of(&scene.info, &scene.class, AmiFamily::Al2023, None), expected);
        assert_eq!(scene.open().is_empty(), expected.is_some() || scene.info.instance_type != "m5.large");
    }
    let partition = Incompatibility::of(&large(), &class("al2@latest"), AmiFamily::Al2, Some(Strategy::Partition));
    assert_eq!(partition, Some(Incompatibility::PlacementGroup { strategy: Strategy::Partition }));
}

/// The first interface, and fabric adapters at these places.
fn interfaces(scene: &mut Scene, efa_only: &[(u32, u32)]) {
    let first = NetworkInterface { network_card_index: 0, device_index: 0, interface_type: InterfaceType::Interface };
    let more = efa_only.iter().map(|&(network_card_index, device_index)| NetworkInterface {
        network_card_index,
        device_index,
        interface_type: InterfaceType::EfaOnly,
    });
    scene.class.spec.network_interfaces = Some([first].into_iter().chain(more).collect());
}
