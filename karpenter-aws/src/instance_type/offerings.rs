use std::{collections::BTreeSet, fmt};

use karpenter_core::{InstanceType, Offering, OfferingKey, Price, Requirement, Requirements, labels as core_labels};

use super::{Incompatibility, Strategy, TypeSettings, Zone, labels};
use crate::{
    ec2::InstanceTypeInfo,
    nodeclass::{CapacityReservation, Ec2NodeClass, ReservationState},
    price::Prices,
};

/// A placement group that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacementGroup {
    /// The id.
    pub id: String,
    /// How it spreads its instances.
    pub strategy: Strategy,
    /// How many partitions it has, if its strategy is that.
    pub partition_count: u32,
}

/// How things stand when offerings are made.
pub struct Market<'m> {
    /// What instances cost.
    pub prices: &'m Prices,
    /// The placement group of the class.
    pub placement_group: Option<&'m PlacementGroup>,
    /// Zones that are avoided for now, all of them.
    pub shifted_zones: &'m BTreeSet<String>,
    /// Whether an offering had no capacity a short while ago.
    pub is_sold_out: &'m dyn Fn(&OfferingKey) -> bool,
    /// How many instances are left of a reservation, by its id.
    pub left_of_reservation: &'m dyn Fn(&str) -> u32,
}

impl fmt::Debug for Market<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { prices, placement_group, shifted_zones, .. } = self;
        let mut out = f.debug_struct("Market");
        out.field("prices", prices).field("placement_group", placement_group).field("shifted_zones", shifted_zones);
        out.finish_non_exhaustive()
    }
}

impl TypeSettings {
    /// Adds to a type of [`TypeSettings::instance_type`] how it can be bought in the zones of the class.
    ///
    /// A type that cannot be launched as the class asks keeps its offerings, but none is available.
    pub fn add_offerings(
        &self,
        instance_type: &mut InstanceType,
        info: &InstanceTypeInfo,
        offered_zones: &BTreeSet<String>,
        class: &Ec2NodeClass,
        market: &Market<'_>,
    ) {
        let group = market.placement_group.map(|group| group.strategy);
        let is_compatible = Incompatibility::of(info, class, self.family, group).is_none();
        let is_open = |zone: &Zone| is_compatible && !market.shifted_zones.contains(&zone.name);
        let mut all = Vec::new();
        for zone in self.zones.iter().filter(|zone| offered_zones.contains(&zone.name)) {
            for capacity_type in [core_labels::ON_DEMAND, core_labels::SPOT] {
                if info.supported_usage_classes.iter().any(|class| class == capacity_type) {
                    all.push(bought(&info.instance_type, zone, capacity_type, is_open(zone), market));
                }
            }
            let here = |r: &&CapacityReservation| r.availability_zone == zone.name;
            let reservations = self.reservations_of(&info.instance_type).filter(here);
            all.extend(reservations.map(|r| reserved(r, zone, is_open(zone), market)));
        }
        if let Some(group) = market.placement_group {
            instance_type.requirements.add(labels::PLACEMENT_GROUP_ID, Requirement::one_of([group.id.as_str()]));
            all = all.into_iter().flat_map(|offering| in_partitions(offering, group)).collect();
        }
        instance_type.offerings = all;
    }
}

/// On demand or spot. What has no price cannot be bought.
fn bought(instance_type: &str, zone: &Zone, capacity_type: &str, is_open: bool, market: &Market<'_>) -> Offering {
    let price = match capacity_type {
        core_labels::SPOT => market.prices.spot(instance_type, &zone.name),
        _ => market.prices.on_demand(instance_type),
    };
    let mut out = Offering::new(capacity_type, &zone.name, price.unwrap_or(Price::ZERO));
    add_zone_id(&mut out.requirements, zone);
    for key in [labels::RESERVATION_ID, labels::RESERVATION_TYPE, labels::RESERVATION_INTERRUPTIBLE] {
        out.requirements.add(key, Requirement::ABSENT);
    }
    out.available = is_open && price.is_some() && !(market.is_sold_out)(&out.key(instance_type));
    out
}

fn reserved(reservation: &CapacityReservation, zone: &Zone, is_open: bool, market: &Market<'_>) -> Offering {
    let left = (market.left_of_reservation)(&reservation.id);
    let price = market.prices.reserved(&reservation.instance_type);
    let mut out = Offering::new(core_labels::RESERVED, &zone.name, price);
    add_zone_id(&mut out.requirements, zone);
    let interruptible = if reservation.interruptible { "true" } else { "false" };
    for (key, value) in [
        (labels::RESERVATION_ID, reservation.id.as_str()),
        (labels::RESERVATION_TYPE, reservation.reservation_type.as_str()),
        (labels::RESERVATION_INTERRUPTIBLE, interruptible),
    ] {
        out.requirements.add(key, Requirement::one_of([value]));
    }
    out.reservation_capacity = Some(left);
    out.available = is_open && left > 0 && reservation.state != ReservationState::Expiring;
    out
}

fn add_zone_id(requirements: &mut Requirements, zone: &Zone) {
    if !zone.id.is_empty() {
        requirements.add(labels::ZONE_ID, Requirement::one_of([zone.id.as_str()]));
    }
}

/// The offering once for each partition of the group; as it is if the group has none.
fn in_partitions(offering: Offering, group: &PlacementGroup) -> Vec<Offering> {
    if group.strategy != Strategy::Partition {
        return vec![offering];
    }
    let in_partition = |number: u32| {
        let mut out = offering.clone();
        let requirement = Requirement::one_of([number.to_string().as_str()]);
        out.requirements.add(labels::PLACEMENT_GROUP_PARTITION, requirement);
        out
    };
    (1..=group.partition_count).map(in_partition).collect()
}
