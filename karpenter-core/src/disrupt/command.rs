//! What to do about nodes that should go.

use std::{collections::BTreeMap, str::FromStr};

use serde::{Serialize, Serializer, ser::SerializeStruct};

use crate::{
    api::{DisruptionReason, ObjectKey},
    schedule::{Plan, PlannedClaim},
};

/// Nodes to take away together, and where their pods go.
///
/// First the replacements are launched, then the nodes are drained. It is written as `karpenter consolidate -o json` writes it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Command {
    /// How it was found.
    pub method: Method,
    /// The names of the nodes to take away, in order.
    pub candidates: Vec<String>,
    /// The nodes to make first.
    pub replacements: Vec<PlannedClaim>,
    /// The pods that go into room that there is, by the name of the node.
    pub existing: BTreeMap<String, Vec<ObjectKey>>,
    /// How many pods leave the nodes that go: those that have places here, and all of a static pool.
    pub evictions: usize,
    /// How much less the cluster costs afterwards, in dollars an hour; less than nothing if it costs more.
    pub savings_per_hour: f64,
    /// What moving the pods costs: their eviction costs together, as far as they are above zero.
    pub eviction_cost: f64,
}

/// How a command was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum Method {
    /// The nodes have no pods to move.
    Emptiness,
    /// The nodes are not what their pool asks for any more, which is static: each is replaced by one of the same pool, and it
    /// is not planned where their pods go.
    StaticDrift,
    /// The nodes are not what their pool asks for any more.
    Drift,
    /// The pods of the nodes have a cheaper place.
    Consolidation,
}

impl Method {
    pub(crate) const ALL: [Self; 4] = [Self::Emptiness, Self::StaticDrift, Self::Drift, Self::Consolidation];

    /// The word for it that engines leave in a cluster, for those that come after them.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Emptiness => "Emptiness",
            Self::StaticDrift => "StaticDrift",
            Self::Drift => "Drift",
            Self::Consolidation => "Consolidation",
        }
    }

    /// The reason by which disruption budgets count it.
    pub const fn reason(self) -> DisruptionReason {
        match self {
            Self::Emptiness => DisruptionReason::Empty,
            Self::StaticDrift | Self::Drift => DisruptionReason::Drifted,
            Self::Consolidation => DisruptionReason::Underutilized,
        }
    }
}

impl FromStr for Method {
    type Err = UnknownMethod;

    /// Reads what [`Method::name`] says.
    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|method| method.name() == name)
            .ok_or_else(|| UnknownMethod { name: name.to_owned() })
    }
}

/// A text names no [`Method`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no method {name}")]
pub struct UnknownMethod {
    /// The text.
    pub name: String,
}

impl Serialize for Command {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut out = serializer.serialize_struct("Command", 8)?;
        out.serialize_field("method", &self.method)?;
        out.serialize_field("reason", &self.method.reason())?;
        out.serialize_field("decision", if self.is_delete() { "delete" } else { "replace" })?;
        out.serialize_field("candidates", &self.candidates)?;
        out.serialize_field("replacements", &self.replacements)?;
        out.serialize_field("existing", &self.existing)?;
        out.serialize_field("savings", &self.savings_per_hour)?;
        out.serialize_field("evictions", &self.evictions)?;
        out.end()
    }
}

impl Command {
    /// Whether nothing is made for the nodes that go.
    pub fn is_delete(&self) -> bool {
        self.replacements.is_empty()
    }

    /// Where its pods go, as a plan.
    pub(super) fn plan(&self) -> Plan {
        let Self { replacements, existing, .. } = self;
        Plan { claims: replacements.clone(), existing: existing.clone(), ..Plan::default() }
    }

    /// How many pods move to places that were found for them.
    pub fn moved(&self) -> usize {
        let existing: usize = self.existing.values().map(Vec::len).sum();
        existing + self.replacements.iter().map(|claim| claim.pods.len()).sum::<usize>()
    }
}
