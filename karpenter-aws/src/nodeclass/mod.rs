//! `EC2NodeClass` (`karpenter.k8s.aws/v1`): what the instances of a pool are made of.

pub mod conditions;
mod drift;
mod expression;
mod family;
mod hash;
mod kubelet;
mod selectors;
mod spec;
mod status;
mod validate;

pub use drift::{Drift, DriftError, Observed};
pub use expression::{Expression, ExpressionError, Variables};
pub use family::{Alias, AliasError, AmiFamily, LATEST};
pub use hash::{HASH_VERSION, NODE_CLASS_HASH, NODE_CLASS_HASH_VERSION};
use karpenter_core::api::{NodeClassRef, ObjectMeta};
pub use kubelet::{KubeletConfiguration, KubeletError, KubeletExpressions, KubeletSettings, MaxPods};
pub use selectors::{
    AmiSelectorTerm, CapacityReservationSelectorTerm, InstanceMatchCriteria, PlacementGroupSelector,
    SecurityGroupSelectorTerm, SubnetSelectorTerm, Tags,
};
use serde::{Deserialize, Serialize};
pub use spec::{
    BlockDevice, BlockDeviceMapping, ConnectionTracking, CpuOptions, Ec2NodeClassSpec, HttpTokens, InstanceStorePolicy,
    InterfaceType, MetadataOptions, NetworkInterface, Switch, VolumeType,
};
pub use status::{
    Ami, CapacityReservation, Ec2NodeClassStatus, ReservationState, ReservationType, SecurityGroup, Subnet,
};

pub use validate::Refusal;

use crate::wire::{is_default, nullable};

/// The API group.
pub const GROUP: &str = "karpenter.k8s.aws";
/// The kind.
pub const KIND: &str = "EC2NodeClass";

/// What the instances of a pool are made of: images, networks, disks and the settings of the kubelet.
///
/// ```
/// use karpenter_aws::nodeclass::{AmiFamily, AmiSelectorTerm, Ec2NodeClass};
///
/// let mut class = Ec2NodeClass::named("default");
/// class.spec.ami_selector_terms.push(AmiSelectorTerm::of_alias("al2023@v20240807"));
/// assert_eq!(class.ami_family(), Ok(AmiFamily::Al2023));
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Ec2NodeClass {
    /// `karpenter.k8s.aws/v1`.
    pub api_version: String,
    /// `EC2NodeClass`.
    pub kind: String,
    /// Names and labels.
    pub metadata: ObjectMeta,
    /// What is wanted.
    #[serde(deserialize_with = "nullable")]
    pub spec: Ec2NodeClassSpec,
    /// What is.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "nullable")]
    pub status: Ec2NodeClassStatus,
}

impl Default for Ec2NodeClass {
    fn default() -> Self {
        Self {
            api_version: format!("{GROUP}/v1"),
            kind: KIND.to_owned(),
            metadata: ObjectMeta::default(),
            spec: Ec2NodeClassSpec::default(),
            status: Ec2NodeClassStatus::default(),
        }
    }
}

impl Ec2NodeClass {
    /// A class of this name in which nothing is set.
    pub fn named(name: impl Into<String>) -> Self {
        Self { metadata: ObjectMeta::named(name), ..Self::default() }
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.metadata.name
    }

    /// How pools and claims name it.
    pub fn reference(&self) -> NodeClassRef {
        NodeClassRef::new(GROUP, KIND, self.name())
    }

    /// The alias of the images, if they are selected by one.
    ///
    /// # Errors
    /// The alias is not of the form `family@version`, or of a family that there is not.
    pub fn alias(&self) -> Result<Option<Alias>, AliasError> {
        let alias = self.spec.ami_selector_terms.iter().find(|term| !term.alias.is_empty());
        alias.map(|term| term.alias.parse()).transpose()
    }

    /// The family of the images: the one that is written, else that of the alias, else `Custom`.
    ///
    /// # Errors
    /// The family is not written, and the alias cannot be read.
    pub fn ami_family(&self) -> Result<AmiFamily, AliasError> {
        match self.spec.ami_family {
            Some(family) => Ok(family),
            None => Ok(self.alias()?.map_or(AmiFamily::Custom, |alias| alias.family)),
        }
    }
}

#[cfg(test)]
mod tests;
