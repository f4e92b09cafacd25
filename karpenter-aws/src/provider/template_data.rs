//! What launch templates say.

use std::collections::BTreeMap;

use karpenter_core::{InstanceType, api::NodeClaim, labels};

use super::{ProviderOptions, Resolved, filters::Pick, launch::Terms, market::Types};
use crate::{
    ec2::{
        InstanceTypeInfo,
        template::{
            BlockDevice, ConnectionTracking, InterfaceKind, LaunchTemplateData, MetadataSettings, NetworkInterface,
            ReservationTarget,
        },
    },
    image::image_of,
    instance_type::{EFA, NITRO_SANDBOX, TypeSettings, labels as own},
    nodeclass::{BlockDeviceMapping, Ec2NodeClass, InterfaceType},
    userdata::{Bootstrap, Cluster, LARGEST_BYTES},
};

const GIB: i64 = 1 << 30;

/// What the templates of a claim are made of.
pub(crate) struct Inputs<'i> {
    pub(crate) options: &'i ProviderOptions,
    pub(crate) resolved: &'i Resolved,
    pub(crate) claim: &'i NodeClaim,
    pub(crate) cluster: &'i Cluster,
    pub(crate) terms: &'i Terms,
    pub(crate) types: &'i Types,
}

/// Whether the machine needs interfaces of EFA.
pub(crate) fn wants_efa(claim: &NodeClaim) -> bool {
    claim.spec.resources.requests.get(EFA).is_some_and(|count| !count.is_zero())
}

/// The image that machines of a type start from: the first that is fit for it.
pub(crate) fn image_for<'c>(class: &'c Ec2NodeClass, instance_type: &InstanceType) -> Option<&'c str> {
    image_of(&instance_type.requirements, &class.status.amis).map(|image| image.id.as_str())
}

impl Inputs<'_> {
    /// What is to be said of the machines of each pick. One without an image is left out, and one that draws on several
    /// reservations is split.
    pub(crate) fn grouped<'c>(&self, picks: &[Pick<'c>]) -> Result<Vec<(LaunchTemplateData, Pick<'c>)>, String> {
        let mut out = Vec::new();
        for pick in picks {
            let Some(image) = image_for(&self.resolved.class, pick.instance_type) else { continue };
            let Some(info) = self.types.get(&pick.instance_type.name) else { continue };
            let mut by_reservation: BTreeMap<&str, Pick<'c>> = BTreeMap::new();
            for offering in &pick.offerings {
                let split = by_reservation
                    .entry(offering.label(own::RESERVATION_ID))
                    .or_insert_with(|| Pick { instance_type: pick.instance_type, offerings: Vec::new() });
                split.offerings.push(offering);
            }
            for (reservation, split) in by_reservation {
                out.push((self.data(image, info, reservation, &split)?, split));
            }
        }
        Ok(out)
    }

    /// What is to be said of a machine of a type that draws on no reservation; `None` without an image.
    pub(crate) fn plain(&self, instance_type: &InstanceType) -> Result<Option<LaunchTemplateData>, String> {
        let Some(image) = image_for(&self.resolved.class, instance_type) else { return Ok(None) };
        let Some(info) = self.types.get(&instance_type.name) else { return Ok(None) };
        self.data(image, info, "", &Pick { instance_type, offerings: Vec::new() }).map(Some)
    }

    fn data(
        &self,
        image: &str,
        info: &InstanceTypeInfo,
        reservation: &str,
        pick: &Pick<'_>,
    ) -> Result<LaunchTemplateData, String> {
        let (class, terms) = (&self.resolved.class, self.terms);
        let spec = &class.spec;
        let resources = &self.claim.spec.resources.requests;
        Ok(LaunchTemplateData {
            image_id: image.to_owned(),
            user_data: self.user_data(info)?,
            instance_profile: class.status.instance_profile.clone(),
            block_devices: self.disks()?,
            interfaces: self.interfaces(info),
            metadata_options: metadata(class, self.options.region()),
            detailed_monitoring: spec.detailed_monitoring.unwrap_or(false),
            enclaves: resources.get(NITRO_SANDBOX).is_some_and(|count| !count.is_zero()),
            nested_virtualization: spec
                .cpu_options
                .and_then(|cpu| cpu.nested_virtualization)
                .map(|switch| switch.as_str().to_owned()),
            reservation: self.reservation(reservation),
            market: market(&terms.capacity_type, pick),
            tenancy: terms.tenancy.clone(),
            placement_group_id: Some(terms.placement_group.clone()).filter(|id| !id.is_empty()),
            partition: terms.partition,
            tags: crate::ec2::Tags::new(),
        })
    }

    /// What the machine is told, in base64.
    fn user_data(&self, info: &InstanceTypeInfo) -> Result<String, String> {
        let class = &self.resolved.class;
        let settings = TypeSettings::new(class, &self.options.types).map_err(|error| error.to_string())?;
        let (kind, pods) = (&self.terms.capacity_type, settings.pods(info));
        let class = &settings.evaluated_class(class, info);
        let bootstrap = Bootstrap::new(class, self.claim, self.cluster, kind, pods);
        let data = bootstrap.and_then(|bootstrap| bootstrap.user_data()).map_err(|error| error.to_string())?;
        if data.text.len() > LARGEST_BYTES {
            return Err(format!("the user data has {} bytes, EC2 takes {LARGEST_BYTES}", data.text.len()));
        }
        Ok(data.base64())
    }

    /// The disks of the class, or those of the family of its images.
    fn disks(&self) -> Result<Vec<BlockDevice>, String> {
        let class = &self.resolved.class;
        let own = &class.spec.block_device_mappings;
        if own.is_empty() {
            let family = class.ami_family().map_err(|error| error.to_string())?;
            return Ok(family.default_block_device_mappings().iter().map(block_device).collect());
        }
        Ok(own.iter().map(block_device).collect())
    }

    fn reservation(&self, id: &str) -> ReservationTarget {
        match (self.options.uses_reservations, id) {
            (false, _) => ReservationTarget::Open,
            (true, "") => ReservationTarget::None,
            (true, id) => ReservationTarget::Only(id.to_owned()),
        }
    }

    fn interfaces(&self, info: &InstanceTypeInfo) -> Vec<NetworkInterface> {
        let declared = self.resolved.class.spec.network_interfaces.as_deref().unwrap_or_default();
        if !declared.is_empty() {
            let kind = |of: InterfaceType| match of {
                InterfaceType::Interface => InterfaceKind::Interface,
                InterfaceType::EfaOnly => InterfaceKind::EfaOnly,
            };
            return declared
                .iter()
                .map(|i| self.interface(i.network_card_index, i.device_index, kind(i.interface_type)))
                .collect();
        }
        let efas = info.network_info.efa_info.as_ref().map_or(0, |efa| efa.maximum_efa_interfaces);
        if wants_efa(self.claim) && efas > 0 {
            return (0..efas).map(|card| self.interface(card, u32::from(card > 0), InterfaceKind::Efa)).collect();
        }
        vec![self.interface(0, 0, InterfaceKind::Interface)]
    }

    fn interface(&self, card: u32, device: u32, kind: InterfaceKind) -> NetworkInterface {
        let class = &self.resolved.class;
        let groups = class.status.security_groups.iter().map(|group| group.id.clone());
        let mut out = NetworkInterface {
            card,
            device,
            kind,
            security_group_ids: groups.collect(),
            ..NetworkInterface::default()
        };
        if kind == InterfaceKind::EfaOnly {
            return out;
        }
        out.public_address = class.spec.associate_public_ip_address;
        let prefixes = class.spec.ip_prefix_count.filter(|count| *count > 0);
        if self.options.is_ipv6() {
            (out.ipv6_address_count, out.ipv6_prefix_count) = (Some(1), prefixes);
        } else {
            out.ipv4_prefix_count = prefixes;
        }
        let tracking = class.spec.connection_tracking.map(|tracking| ConnectionTracking {
            tcp_established_seconds: tracking.tcp_established_timeout_secs,
            udp_stream_seconds: tracking.udp_stream_timeout_secs,
            udp_seconds: tracking.udp_timeout_secs,
        });
        out.connection_tracking = tracking.filter(|tracking| *tracking != ConnectionTracking::default());
        out
    }
}

fn market(capacity_type: &str, pick: &Pick<'_>) -> Option<String> {
    let has = |key: &str, value: &str| pick.offerings.iter().any(|offering| offering.label(key) == value);
    let kind = match capacity_type {
        labels::SPOT => labels::SPOT,
        labels::RESERVED if has(own::RESERVATION_TYPE, "capacity-block") => "capacity-block",
        labels::RESERVED if has(own::RESERVATION_INTERRUPTIBLE, "true") => "interruptible-capacity-reservation",
        _ => return None,
    };
    Some(kind.to_owned())
}

/// The isolated regions of the United States do not know the setting for IPv6.
fn metadata(class: &Ec2NodeClass, region: &str) -> MetadataSettings {
    let options = class.spec.metadata_options.clone().unwrap_or_default();
    MetadataSettings {
        endpoint: options.http_endpoint.as_str().to_owned(),
        ipv6: (!region.starts_with("us-iso")).then(|| options.http_protocol_ipv6.as_str().to_owned()),
        hop_limit: i32::try_from(options.http_put_response_hop_limit).unwrap_or(i32::MAX),
        tokens: options.http_tokens.as_str().to_owned(),
    }
}

fn block_device(mapping: &BlockDeviceMapping) -> BlockDevice {
    let ebs = mapping.ebs.clone().unwrap_or_default();
    let number = |value: Option<i64>| value.filter(|value| *value != 0).and_then(|value| i32::try_from(value).ok());
    let gib = |bytes: i64| bytes / GIB + i64::from(bytes % GIB != 0);
    BlockDevice {
        name: mapping.device_name.clone().unwrap_or_default(),
        delete_on_termination: ebs.delete_on_termination,
        encrypted: ebs.encrypted,
        iops: number(ebs.iops),
        kms_key_id: ebs.kms_key_id,
        snapshot_id: ebs.snapshot_id,
        throughput: number(ebs.throughput),
        initialization_rate: ebs.volume_initialization_rate,
        size_gib: ebs.volume_size.and_then(|size| i32::try_from(gib(size.units_ceil())).ok()),
        volume_type: ebs.volume_type.map(|kind| kind.as_str().to_owned()),
    }
}
