//! From a claim to a request for a fleet, and from its reply to a machine.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    sync::Arc,
};

use karpenter_core::{
    InstanceType, OfferingKey, Timestamp, labels,
    provider::{Instance, Launched},
};
use serde::Serialize;

use super::{
    filters::{Pick, Wanted, keep_offerings},
    hash::fnv,
    machines::{ClaimName, provider_id},
    tags,
    unavailable::{Scope, Unavailable},
};
use crate::{
    ec2::{
        Tags,
        fleet::{Allocation, FleetConfig, FleetError, FleetOverride, FleetReply, FleetRequest, TargetKind},
    },
    instance_type::labels as own,
};

/// The most claims of one fleet: the tag that names their uids has room for so many of 36 characters and a space.
pub(crate) const MAX_CLAIMS: usize = tags::MAX_VALUE / 37;

/// What a request for a fleet is about, beside what EC2 is told.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(crate) struct Terms {
    /// What it is bought as.
    pub(crate) capacity_type: String,
    /// `default` or `dedicated`.
    pub(crate) tenancy: String,
    /// The placement group.
    pub(crate) placement_group: String,
    /// The partition of it.
    pub(crate) partition: Option<u32>,
    /// The reservations by instance type and zone.
    pub(crate) reservations: Vec<(String, String, String)>,
}

impl Terms {
    pub(crate) fn scope(&self) -> Scope {
        Scope { placement_group: self.placement_group.clone(), partition: self.partition }
    }

    pub(crate) fn reservation_of(&self, choice: &FleetOverride) -> Option<&str> {
        let is_meant = |(instance_type, zone, _): &&(String, String, String)| {
            *instance_type == choice.instance_type && *zone == choice.zone
        };
        self.reservations.iter().find(is_meant).map(|(_, _, id)| id.as_str())
    }

    pub(crate) fn key(&self, choice: &FleetOverride) -> OfferingKey {
        OfferingKey {
            instance_type: choice.instance_type.clone(),
            zone: choice.zone.clone(),
            capacity_type: self.capacity_type.clone(),
        }
    }
}

/// What the machine is bought as, and how EC2 chooses among what is left.
pub(crate) fn target(picks: &[Pick<'_>], capacity_type: &str) -> (TargetKind, Option<Allocation>) {
    let first = picks.iter().flat_map(|pick| &pick.offerings).next();
    let has = |key: &str, value: &str| first.is_some_and(|offering| offering.label(key) == value);
    match capacity_type {
        labels::SPOT => (TargetKind::Spot, Some(Allocation::PriceCapacityOptimized)),
        labels::RESERVED if has(own::RESERVATION_TYPE, "capacity-block") => (TargetKind::CapacityBlock, None),
        labels::RESERVED if has(own::RESERVATION_INTERRUPTIBLE, "true") => (TargetKind::ReservedCapacity, None),
        _ => (TargetKind::OnDemand, Some(Allocation::LowestPrice)),
    }
}

/// `default` if the claim allows it, else `dedicated`.
pub(crate) fn tenancy(wanted: &Wanted) -> &'static str {
    let requirement = wanted.requirements.get(own::TENANCY);
    let allows = |value: &str| requirement.is_none_or(|r| r.admits(Some(value)));
    if !allows("default") && allows("dedicated") { "dedicated" } else { "default" }
}

/// Keeps the lowest partition that is left, if there are partitions.
pub(crate) fn one_partition(picks: Vec<Pick<'_>>) -> (Vec<Pick<'_>>, Option<u32>) {
    let number =
        |offering: &karpenter_core::Offering| offering.label(own::PLACEMENT_GROUP_PARTITION).parse::<u32>().ok();
    let lowest = picks.iter().flat_map(|pick| &pick.offerings).filter_map(|offering| number(offering)).min();
    match lowest {
        Some(lowest) => (keep_offerings(picks, |_, offering| number(offering) == Some(lowest)), Some(lowest)),
        None => (picks, None),
    }
}

/// One choice for each type and zone that a subnet was chosen for.
pub(crate) fn overrides(pick: &Pick<'_>, image_id: &str, subnets: &BTreeMap<String, String>) -> Vec<FleetOverride> {
    let mut by_zone: BTreeMap<&str, FleetOverride> = BTreeMap::new();
    for offering in &pick.offerings {
        let zone = offering.label(labels::ZONE);
        let Some(subnet) = subnets.get(zone) else { continue };
        let entry = by_zone.entry(zone).or_insert_with(|| FleetOverride {
            instance_type: pick.instance_type.name.clone(),
            subnet_id: subnet.clone(),
            zone: zone.to_owned(),
            image_id: image_id.to_owned(),
            priority: offering.price,
        });
        entry.priority = entry.priority.min(offering.price);
    }
    by_zone.into_values().collect()
}

/// The request for the machines of these claims. The same claims at the same time have the same token.
pub(crate) fn request(body: FleetRequest, claims: &[ClaimName], now: Timestamp) -> FleetRequest {
    let mut request = body;
    request.count = u32::try_from(claims.len()).unwrap_or(u32::MAX);
    let uids: Vec<&str> = claims.iter().map(|claim| claim.uid.as_str()).collect();
    match claims {
        [one] => {
            request.tags.insert(tags::CLAIM_UID.to_owned(), one.uid.clone());
            request.tags.insert(tags::NODE_CLAIM.to_owned(), one.name.clone());
        }
        _ => {
            request.tags.insert(tags::CLAIM_UIDS.to_owned(), uids.join(" "));
        }
    }
    let body = serde_json::to_string(&request).unwrap_or_default();
    let mut token = String::from("karpenter");
    for salt in ["1", "2"] {
        let _ = write!(token, "-{:016x}", fnv([salt, &body, &now.as_millis().to_string()]));
    }
    request.client_token = token;
    request
}

/// The machine of each claim: both in the order of their names. Claims for which there is none get none.
pub(crate) fn deal(reply: &FleetReply, claims: &[ClaimName]) -> Vec<Option<(String, FleetOverride)>> {
    let launches = reply.launched.iter();
    let mut machines: Vec<(String, FleetOverride)> =
        launches.flat_map(|launch| launch.instance_ids.iter().map(|id| (id.clone(), launch.choice.clone()))).collect();
    machines.sort_by(|a, b| a.0.cmp(&b.0));
    let mut machines = machines.into_iter();
    claims.iter().map(|_| machines.next()).collect()
}

/// The whole override that EC2 means by a part of it.
pub(crate) fn completed(request: &FleetRequest, part: &FleetOverride) -> FleetOverride {
    let is_meant = |choice: &&FleetOverride| {
        choice.instance_type == part.instance_type
            && (part.zone.is_empty() || choice.zone == part.zone)
            && (part.subnet_id.is_empty() || choice.subnet_id == part.subnet_id)
    };
    let all = request.configs.iter().flat_map(|config| &config.overrides);
    all.into_iter().find(is_meant).cloned().unwrap_or_else(|| part.clone())
}

/// Marks what a fleet could not have. Returns the reservations that have nothing left.
pub(crate) fn mark(
    errors: &[FleetError],
    terms: &Terms,
    request: &FleetRequest,
    unavailable: &mut Unavailable,
    now: Timestamp,
) -> BTreeSet<String> {
    let mut exhausted = BTreeSet::new();
    for error in errors {
        let key = terms.key(&error.choice);
        if error.failure() == super::error::LaunchFailure::SpotSlrCreationFailed {
            unavailable.mark_capacity_type(labels::SPOT, now);
        }
        if !error.is_capacity() {
            continue;
        }
        if let Some(id) = terms.reservation_of(&error.choice) {
            if !error.is_spread_limit() {
                exhausted.insert(id.to_owned());
            }
        } else if error.is_spread_limit() {
            let all = request.configs.iter().flat_map(|config| &config.overrides);
            for choice in all.filter(|choice| choice.zone == error.choice.zone) {
                unavailable.mark(terms.key(choice), terms.scope(), now);
            }
        } else if error.is_full_subnet() && !error.choice.subnet_id.is_empty() {
            unavailable.mark_subnet(&error.choice.subnet_id, key, now);
        } else {
            unavailable.mark(key, terms.scope(), now);
        }
    }
    exhausted
}

/// What all choices of a request are, as offerings.
pub(crate) fn keys_of(configs: &[FleetConfig], terms: &Terms) -> BTreeSet<OfferingKey> {
    configs.iter().flat_map(|config| &config.overrides).map(|choice| terms.key(choice)).collect()
}

/// A machine as it was bought.
pub(crate) fn launched(
    id: &str,
    choice: &FleetOverride,
    instance_type: &InstanceType,
    terms: &Terms,
    claim: &ClaimName,
    request_tags: &Tags,
    has_efa: bool,
) -> Launched {
    let mut out = BTreeMap::new();
    for (key, requirement) in instance_type.requirements.iter() {
        let is_of_reservation =
            [own::RESERVATION_ID, own::RESERVATION_TYPE, own::RESERVATION_INTERRUPTIBLE].contains(&key);
        if let (Some(1), Some(value), false) =
            (requirement.value_count(), requirement.values().next(), is_of_reservation)
        {
            out.insert(key.to_owned(), value.to_owned());
        }
    }
    let mut set = |key: &str, value: &str| out.insert(key.to_owned(), value.to_owned());
    let is_bought = |offering: &&karpenter_core::Offering| {
        let id = terms.reservation_of(choice);
        offering.key(&instance_type.name) == terms.key(choice)
            && id.is_none_or(|id| offering.label(own::RESERVATION_ID) == id)
            && terms.partition.is_none_or(|n| offering.label(own::PLACEMENT_GROUP_PARTITION) == n.to_string())
    };
    if let Some(offering) = instance_type.offerings.iter().find(is_bought) {
        for (key, requirement) in offering.requirements.iter() {
            if let (Some(1), Some(value)) = (requirement.value_count(), requirement.values().next()) {
                set(key, value);
            }
        }
    }
    set(labels::ZONE, &choice.zone);
    set(labels::CAPACITY_TYPE, &terms.capacity_type);
    set(own::TENANCY, &terms.tenancy);
    for (tag, label) in [
        (tags::NODE_POOL, labels::NODE_POOL.to_owned()),
        (tags::NODE_CLASS, crate::nodeclass::Ec2NodeClass::default().reference().label_key()),
    ] {
        if let Some(value) = request_tags.get(tag) {
            set(&label, value);
        }
    }
    let instance = Instance::new(provider_id(&choice.zone, id), &claim.uid, out);
    let without_efa = |list: &karpenter_core::ResourceList| {
        list.iter()
            .filter(|(name, quantity)| !quantity.is_zero() && (has_efa || name.as_str() != crate::instance_type::EFA))
            .map(|(name, quantity)| (name.clone(), quantity))
            .collect()
    };
    let mut out =
        Launched::new(instance, without_efa(&instance_type.capacity), without_efa(&instance_type.allocatable()));
    out.image_id.clone_from(&choice.image_id);
    out
}

/// A request that waits for company, and what it is about.
#[derive(Clone, Debug)]
pub(crate) struct Order {
    pub(crate) claim: ClaimName,
    pub(crate) body: Arc<FleetRequest>,
    pub(crate) terms: Arc<Terms>,
}
