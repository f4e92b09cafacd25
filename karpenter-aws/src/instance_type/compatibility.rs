use crate::{
    ec2::InstanceTypeInfo,
    nodeclass::{AmiFamily, Ec2NodeClass, InterfaceType, NetworkInterface, Switch},
};

/// How a placement group spreads its instances.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Strategy {
    /// Near each other.
    Cluster,
    /// In partitions that share no hardware.
    Partition,
    /// Each on hardware of its own.
    Spread,
}

impl Strategy {
    /// The name that EC2 has for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Cluster => "cluster",
            Self::Partition => "partition",
            Self::Spread => "spread",
        }
    }
}

/// Why instances of a type cannot be launched as a class asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Incompatibility {
    /// The processor lacks instructions that the images use.
    #[error("images of the family AL2023 need a newer processor")]
    Processor,
    /// It has no elastic network adapter, or no cards.
    #[error("it cannot have the network interfaces of the class")]
    NoInterfaces,
    /// It lacks a card that an interface is for.
    #[error("it has no network card {card}")]
    NoCard {
        /// The number of the card.
        card: u32,
    },
    /// A card has fewer devices.
    #[error("its network card {card} has no device {device}")]
    NoDevice {
        /// The number of the card.
        card: u32,
        /// The number of the device.
        device: u32,
    },
    /// An interface has fewer addresses than it must get.
    #[error("an interface has fewer addresses than ipPrefixCount asks for")]
    Addresses,
    /// It has fewer elastic fabric adapters.
    #[error("it has fewer elastic fabric adapters than the class names")]
    Efa,
    /// It cannot hold virtual machines.
    #[error("it has no nested virtualization")]
    NestedVirtualization,
    /// It cannot be in the placement group.
    #[error("it cannot be in a placement group of the strategy {}", strategy.as_str())]
    PlacementGroup {
        /// The strategy of the group.
        strategy: Strategy,
    },
    /// Its connections cannot be tracked otherwise.
    #[error("connection tracking can be set on the hypervisor nitro only")]
    ConnectionTracking,
}

impl Incompatibility {
    /// Why instances of a type cannot be launched as a class asks, in a placement group if there is one. `None` if they
    /// can.
    pub fn of(
        info: &InstanceTypeInfo,
        class: &Ec2NodeClass,
        family: AmiFamily,
        group: Option<Strategy>,
    ) -> Option<Self> {
        let spec = &class.spec;
        if family == AmiFamily::Al2023 && info.instance_type.starts_with("a1.") {
            return Some(Self::Processor);
        }
        let interfaces = spec.network_interfaces.as_deref().unwrap_or_default();
        if let Some(found) = of_interfaces(info, interfaces, spec.ip_prefix_count.unwrap_or(0)) {
            return Some(found);
        }
        let wants_nested = spec.cpu_options.is_some_and(|cpu| cpu.nested_virtualization == Some(Switch::Enabled));
        if wants_nested && !info.processor_info.supported_features.iter().any(|f| f == "nested-virtualization") {
            return Some(Self::NestedVirtualization);
        }
        let strategies = &info.placement_group_info.supported_strategies;
        if let Some(strategy) = group.filter(|strategy| !strategies.iter().any(|s| s == strategy.as_str())) {
            return Some(Self::PlacementGroup { strategy });
        }
        let tracks = spec.connection_tracking.is_some() && info.hypervisor.as_deref() != Some("nitro");
        tracks.then_some(Self::ConnectionTracking)
    }
}

fn of_interfaces(
    info: &InstanceTypeInfo,
    interfaces: &[NetworkInterface],
    prefix_count: u32,
) -> Option<Incompatibility> {
    let network = &info.network_info;
    if interfaces.is_empty() {
        return None;
    }
    if network.network_cards.is_empty() || network.ena_support == "unsupported" {
        return Some(Incompatibility::NoInterfaces);
    }
    for &NetworkInterface { network_card_index: card, device_index: device, .. } in interfaces {
        let Some(found) = network.network_cards.iter().find(|c| c.network_card_index == card) else {
            return Some(Incompatibility::NoCard { card });
        };
        if device >= found.maximum_network_interfaces {
            return Some(Incompatibility::NoDevice { card, device });
        }
    }
    if prefix_count > 0 && prefix_count.saturating_add(1) > network.ipv4_addresses_per_interface {
        return Some(Incompatibility::Addresses);
    }
    let efa_only = interfaces.iter().filter(|i| i.interface_type == InterfaceType::EfaOnly).count();
    let maximum = network.efa_info.as_ref().map_or(0, |efa| efa.maximum_efa_interfaces);
    (efa_only > maximum as usize).then_some(Incompatibility::Efa)
}
