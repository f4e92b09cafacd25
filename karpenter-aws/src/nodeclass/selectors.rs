use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::wire::{is_default, nullable};

/// Tags by which something is selected, all of which it must have; the value `*` stands for any.
pub type Tags = BTreeMap<String, String>;

/// Selects subnets: by id, or else by tags.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SubnetSelectorTerm {
    /// The tags.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "nullable")]
    pub tags: Tags,
    /// The id, such as `subnet-0123456789abcdef0`.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "nullable")]
    pub id: String,
}

/// Selects security groups: by id, or else by name, or else by tags.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SecurityGroupSelectorTerm {
    /// The tags.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "nullable")]
    pub tags: Tags,
    /// The id, such as `sg-0123456789abcdef0`.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "nullable")]
    pub id: String,
    /// The name of the group, which is not its tag `Name`.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "nullable")]
    pub name: String,
}

/// Selects capacity reservations: by id, or else by tags and criteria, of an owner.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CapacityReservationSelectorTerm {
    /// The tags.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "nullable")]
    pub tags: Tags,
    /// The id, such as `cr-0123456789abcdef0`.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "nullable")]
    pub id: String,
    /// The account that owns it, twelve digits.
    #[serde(rename = "ownerID", skip_serializing_if = "is_default", deserialize_with = "nullable")]
    pub owner_id: String,
    /// Which instances may use it.
    #[serde(skip_serializing_if = "is_default")]
    pub instance_match_criteria: Option<InstanceMatchCriteria>,
}

/// Which instances may use a capacity reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum InstanceMatchCriteria {
    /// All that match it.
    Open,
    /// Those that name it.
    Targeted,
}

/// Selects a placement group: by name or by id.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PlacementGroupSelector {
    /// The name.
    #[serde(skip_serializing_if = "is_default")]
    pub name: Option<String>,
    /// The id, such as `pg-0123456789abcdef0`.
    #[serde(skip_serializing_if = "is_default")]
    pub id: Option<String>,
}

/// Selects images: by alias, or by id, or by an SSM parameter, or else by name and tags.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AmiSelectorTerm {
    /// A family and a version of the images that AWS publishes, such as `al2023@latest`.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "nullable")]
    pub alias: String,
    /// The tags.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "nullable")]
    pub tags: Tags,
    /// The id, such as `ami-0123456789abcdef0`.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "nullable")]
    pub id: String,
    /// The name; `*` and `?` stand for any letters and any letter.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "nullable")]
    pub name: String,
    /// Who owns it: an account, `self`, `amazon` or `aws-marketplace`.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "nullable")]
    pub owner: String,
    /// The name of an SSM parameter whose value is the id.
    #[serde(rename = "ssmParameter", skip_serializing_if = "is_default", deserialize_with = "nullable")]
    pub ssm_parameter: String,
}

impl AmiSelectorTerm {
    /// Selects by alias.
    pub fn of_alias(alias: impl Into<String>) -> Self {
        Self { alias: alias.into(), ..Self::default() }
    }

    /// Selects by id.
    pub fn of_id(id: impl Into<String>) -> Self {
        Self { id: id.into(), ..Self::default() }
    }
}
