//! Why an instance is not what its class asks for any more.

use std::collections::BTreeSet;

use karpenter_core::{Requirements, api::NodeClaim, labels as core_labels};

use super::{Ec2NodeClass, NODE_CLASS_HASH, NODE_CLASS_HASH_VERSION};
use crate::{image::image_of, instance_type::labels};

/// Why an instance is not what its class asks for any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Drift {
    /// A setting was changed.
    NodeClass,
    /// It would start from another image.
    Ami,
    /// Its security groups are others.
    SecurityGroup,
    /// Its subnet is not selected any more.
    Subnet,
    /// Its capacity reservation is not selected any more.
    CapacityReservation,
    /// Its placement group is another.
    PlacementGroup,
}

impl Drift {
    /// The reason as it is written on claims.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NodeClass => "NodeClassDrift",
            Self::Ami => "AMIDrift",
            Self::SecurityGroup => "SecurityGroupDrift",
            Self::Subnet => "SubnetDrift",
            Self::CapacityReservation => "CapacityReservationDrift",
            Self::PlacementGroup => "PlacementGroupDrift",
        }
    }
}

/// What EC2 says of the instance of a claim.
#[derive(Clone, Copy, Debug)]
pub struct Observed<'o> {
    /// Its security groups, by their ids.
    pub security_groups: &'o BTreeSet<String>,
    /// Its subnet.
    pub subnet_id: &'o str,
    /// The capacity reservation that it draws on.
    pub reservation_id: Option<&'o str>,
    /// The placement group that the class asks for now.
    pub wanted_placement_group: Option<&'o str>,
}

/// Why it is not known whether an instance has drifted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DriftError {
    /// The class has not found its images, or not yet.
    #[error("the class has no images")]
    NoImages,
    /// The claim does not say which image it was started from.
    #[error("the claim has no imageID")]
    NoImageId,
    /// The class has not found its subnets, or not yet.
    #[error("the class has no subnets")]
    NoSubnets,
    /// The class has not found its security groups, or not yet.
    #[error("the class has no security groups")]
    NoSecurityGroups,
}

impl Ec2NodeClass {
    /// Whether settings of the class were changed since the claim was made. Not if one of the hashes is missing, or they
    /// are of different versions.
    pub fn has_static_drift(&self, claim: &NodeClaim) -> bool {
        let of = |key: &str| (self.metadata.annotations.get(key), claim.metadata.annotations.get(key));
        match (of(NODE_CLASS_HASH), of(NODE_CLASS_HASH_VERSION)) {
            ((Some(own), Some(old)), (Some(own_version), Some(old_version))) => {
                own_version == old_version && own != old
            }
            _ => false,
        }
    }

    /// Why the instance of a claim is not what the class asks for any more, the first reason of the order of [`Drift`].
    /// `instance_type` is what the labels of its type are; `None` if the class has no machines of the type any more, because
    /// it is in other zones or of another family: then it is not known which image they would start from.
    ///
    /// # Errors
    /// What the class selects is not known.
    pub fn drift(
        &self,
        claim: &NodeClaim,
        instance_type: Option<&Requirements>,
        observed: &Observed<'_>,
    ) -> Result<Option<Drift>, DriftError> {
        let checks = [
            (Drift::NodeClass, self.has_static_drift(claim)),
            (Drift::Ami, self.has_image_drift(claim, instance_type)?),
            (Drift::SecurityGroup, self.has_group_drift(observed)?),
            (Drift::Subnet, self.has_subnet_drift(observed)?),
            (Drift::CapacityReservation, self.has_reservation_drift(claim, observed)),
            (Drift::PlacementGroup, has_placement_drift(claim, observed)),
        ];
        Ok(checks.into_iter().find(|(_, has_drifted)| *has_drifted).map(|(drift, _)| drift))
    }

    fn has_image_drift(&self, claim: &NodeClaim, instance_type: Option<&Requirements>) -> Result<bool, DriftError> {
        if self.status.amis.is_empty() {
            return Err(DriftError::NoImages);
        }
        if claim.status.image_id.is_empty() {
            return Err(DriftError::NoImageId);
        }
        let Some(instance_type) = instance_type else { return Ok(false) };
        let image = image_of(instance_type, &self.status.amis);
        Ok(image.is_none_or(|image| image.id != claim.status.image_id))
    }

    fn has_group_drift(&self, observed: &Observed<'_>) -> Result<bool, DriftError> {
        if self.status.security_groups.is_empty() {
            return Err(DriftError::NoSecurityGroups);
        }
        let wanted: BTreeSet<_> = self.status.security_groups.iter().map(|group| &group.id).collect();
        Ok(wanted != observed.security_groups.iter().collect())
    }

    fn has_subnet_drift(&self, observed: &Observed<'_>) -> Result<bool, DriftError> {
        if self.status.subnets.is_empty() {
            return Err(DriftError::NoSubnets);
        }
        Ok(!self.status.subnets.iter().any(|subnet| subnet.id == observed.subnet_id))
    }

    /// An instance that outlived its reservation is on demand, and has not drifted.
    fn has_reservation_drift(&self, claim: &NodeClaim, observed: &Observed<'_>) -> bool {
        let is_reserved =
            claim.metadata.labels.get(core_labels::CAPACITY_TYPE).is_some_and(|t| t == core_labels::RESERVED);
        let selected = |id: &str| self.status.capacity_reservations.iter().any(|r| r.id == id);
        is_reserved && observed.reservation_id.is_some_and(|id| !selected(id))
    }
}

fn has_placement_drift(claim: &NodeClaim, observed: &Observed<'_>) -> bool {
    let own = claim.metadata.labels.get(labels::PLACEMENT_GROUP_ID).map(String::as_str);
    own.unwrap_or("") != observed.wanted_placement_group.unwrap_or("")
}

#[cfg(test)]
mod tests {
    use karpenter_core::{Requirement, api::NodeSelectorRequirement, api::Operator};

    use super::*;
    use crate::nodeclass::{Ami, HASH_VERSION, SecurityGroup, Subnet};

    fn class() -> Ec2NodeClass {
        let mut class = Ec2NodeClass::named("default");
        let arm = NodeSelectorRequirement::new(core_labels::ARCH, Operator::In, ["arm64"]);
        let amd = NodeSelectorRequirement::new(core_labels::ARCH, Operator::In, ["amd64"]);
        let ami = |id: &str, requirement: &NodeSelectorRequirement| Ami {
            id: id.to_owned(),
            requirements: vec![requirement.clone()],
            ..Ami::default()
        };
        class.status.amis = vec![ami("ami-arm", &arm), ami("ami-new", &amd), ami("ami-old", &amd)];
        class.status.subnets = vec![Subnet { id: "subnet-1".to_owned(), ..Subnet::default() }];
        class.status.security_groups =
            ["sg-1", "sg-2"].map(|id| SecurityGroup { id: id.to_owned(), name: String::new() }).to_vec();
        class
    }

    fn claim() -> NodeClaim {
        let mut claim = NodeClaim::named("a");
        "ami-new".clone_into(&mut claim.status.image_id);
        claim
    }

    struct Instance {
        groups: BTreeSet<String>,
        subnet: &'static str,
        reservation: Option<&'static str>,
        placement_group: Option<&'static str>,
    }

    fn instance() -> Instance {
        let groups = ["sg-2", "sg-1"].map(str::to_owned).into();
        Instance { groups, subnet: "subnet-1", reservation: None, placement_group: None }
    }

    fn drift(class: &Ec2NodeClass, claim: &NodeClaim, instance: &Instance) -> Result<Option<Drift>, DriftError> {
        let mut own = Requirements::new();
        own.add(core_labels::ARCH, Requirement::one_of(["amd64"]));
        let observed = Observed {
            security_groups: &instance.groups,
            subnet_id: instance.subnet,
            reservation_id: instance.reservation,
            wanted_placement_group: instance.placement_group,
        };
        class.drift(claim, Some(&own), &observed)
    }

    #[test]
    fn an_instance_as_the_class_asks_for_has_not_drifted() {
        assert_eq!(drift(&class(), &claim(), &instance()), Ok(None));
    }

    #[test]
    fn settings_have_changed_if_hashes_of_one_version_differ() {
        let hashed = |hash: Option<&str>, version: Option<&str>| {
            let entry = |key: &str, value: Option<&str>| value.map(|value| (key.to_owned(), value.to_owned()));
            [entry(NODE_CLASS_HASH, hash), entry(NODE_CLASS_HASH_VERSION, version)].into_iter().flatten().collect()
        };
        let current = Some(HASH_VERSION);
        for (own, old, expected) in [
            (hashed(Some("1"), current), hashed(Some("2"), current), true),
            (hashed(Some("1"), current), hashed(Some("1"), current), false),
            (hashed(Some("1"), current), hashed(Some("2"), Some("v5")), false),
            (hashed(Some("1"), current), hashed(None, current), false),
            (hashed(Some("1"), None), hashed(Some("2"), None), false),
        ] {
            let (mut class, mut claim) = (class(), claim());
            class.metadata.annotations = own;
            claim.metadata.annotations = old;
            assert_eq!(drift(&class, &claim, &instance()), Ok(expected.then_some(Drift::NodeClass)));
        }
    }

    #[test]
    fn an_instance_must_have_the_first_image_for_its_type() {
        for image in ["ami-old", "ami-arm", "ami-gone"] {
            let mut claim = claim();
            image.clone_into(&mut claim.status.image_id);
            assert_eq!(drift(&class(), &claim, &instance()), Ok(Some(Drift::Ami)), "{image}");
        }
        assert_eq!(drift(&class(), &NodeClaim::named("a"), &instance()), Err(DriftError::NoImageId));
    }

    #[test]
    fn groups_must_be_the_same_and_the_subnet_one_of_them() {
        let groups = |ids: &[&str]| Instance { groups: ids.iter().map(|id| (*id).to_owned()).collect(), ..instance() };
        for ids in [&["sg-1"][..], &["sg-1", "sg-2", "sg-3"]] {
            assert_eq!(drift(&class(), &claim(), &groups(ids)), Ok(Some(Drift::SecurityGroup)));
        }
        let elsewhere = Instance { subnet: "subnet-2", ..instance() };
        assert_eq!(drift(&class(), &claim(), &elsewhere), Ok(Some(Drift::Subnet)));
    }

    #[test]
    fn reservations_and_placement_groups_must_be_those_selected() {
        let mut reserved = claim();
        reserved.metadata.labels.insert(core_labels::CAPACITY_TYPE.to_owned(), core_labels::RESERVED.to_owned());
        let gone = Instance { reservation: Some("cr-1"), ..instance() };
        assert_eq!(drift(&class(), &reserved, &gone), Ok(Some(Drift::CapacityReservation)));
        assert_eq!(drift(&class(), &claim(), &gone), Ok(None), "on demand");
        assert_eq!(drift(&class(), &reserved, &instance()), Ok(None), "it outlived its reservation");
        let grouped = Instance { placement_group: Some("pg-1"), ..instance() };
        assert_eq!(drift(&class(), &claim(), &grouped), Ok(Some(Drift::PlacementGroup)));
        let mut own = claim();
        own.metadata.labels.insert(labels::PLACEMENT_GROUP_ID.to_owned(), "pg-1".to_owned());
        assert_eq!(drift(&class(), &own, &grouped), Ok(None));
        assert_eq!(drift(&class(), &own, &instance()), Ok(Some(Drift::PlacementGroup)));
    }

    type Loss = fn(&mut Ec2NodeClass);

    #[test]
    fn nothing_is_known_while_the_class_has_found_nothing() {
        let losses: [(Loss, DriftError); 3] = [
            (|c| c.status.amis.clear(), DriftError::NoImages),
            (|c| c.status.subnets.clear(), DriftError::NoSubnets),
            (|c| c.status.security_groups.clear(), DriftError::NoSecurityGroups),
        ];
        for (lose, expected) in losses {
            let mut class = class();
            lose(&mut class);
            assert_eq!(drift(&class, &claim(), &instance()), Err(expected));
        }
    }
}
