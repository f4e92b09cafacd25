//! The requirement algebra: what the label of a node may be.
//!
//! For one key a node either has one value or lacks the label. A [`Requirement`] is the set of those states that are
//! acceptable, so `Exists` and `NotIn` differ in whether the label may be absent, and every operation is exact set
//! arithmetic: intersection is associative, commutative and idempotent, and [`Requirement::admits`] of an intersection
//! is the conjunction. [`Requirements`] holds one requirement a key.
//!
//! Karpenter keeps the values and whether they are complemented, and takes `In []` and crossed bounds for
//! `DoesNotExist`. Here these two admit nothing, as in the kube-scheduler.

mod alternatives;
mod value_set;

use std::{collections::BTreeMap, fmt, sync::Arc};

pub use alternatives::NodeAlternatives;
pub(crate) use alternatives::{MAX_PRODUCT, is_unique_to_node, name_of_key, node_value};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use value_set::{Bounds, ValueSet, Values};

use crate::{
    api::{NodeSelectorRequirement, Operator},
    labels,
};

/// The most values that are printed before a list is cut.
const MAX_PRINTED_VALUES: usize = 5;

/// What one label of a node may be.
///
/// ```
/// use karpenter_core::{api::{NodeSelectorRequirement, Operator}, Requirement};
///
/// let large = Requirement::from(&NodeSelectorRequirement::new("cpu", Operator::Gt, ["7"]));
/// let named = Requirement::from(&NodeSelectorRequirement::new("cpu", Operator::In, ["4", "8", "16"]));
/// assert_eq!(large.intersection(&named).values().collect::<Vec<_>>(), ["16", "8"]);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Requirement {
    values: ValueSet,
    may_be_absent: bool,
    min_values: Option<u32>,
}

impl Requirement {
    /// Anything at all: every value, and no label.
    pub const ANY: Self = Self { values: ValueSet::ALL, may_be_absent: true, min_values: None };
    /// Nothing at all: no node is acceptable.
    pub const NONE: Self = Self { values: ValueSet::EMPTY, may_be_absent: false, min_values: None };
    /// Every value.
    pub const EXISTS: Self = Self { values: ValueSet::ALL, may_be_absent: false, min_values: None };
    /// No label.
    pub const ABSENT: Self = Self { values: ValueSet::EMPTY, may_be_absent: true, min_values: None };

    /// One of these values.
    pub fn one_of<V: Into<Arc<str>>>(values: impl IntoIterator<Item = V>) -> Self {
        let values = ValueSet::Only(values.into_iter().map(Into::into).collect());
        Self { values, may_be_absent: false, min_values: None }
    }

    /// None of these values; the label may be absent.
    pub fn none_of<V: Into<Arc<str>>>(values: impl IntoIterator<Item = V>) -> Self {
        let excluded = values.into_iter().map(Into::into).collect();
        Self { values: ValueSet::AllBut { excluded, bounds: None }, may_be_absent: true, min_values: None }
    }

    /// A whole number from `min` to `max`. Numbers begin at zero, because label values have no sign.
    pub fn between(min: i64, max: i64) -> Self {
        Self { values: ValueSet::range(min, max), may_be_absent: false, min_values: None }
    }

    /// The same, with the least number of distinct values that the instance types of a claim must keep.
    pub fn with_min_values(self, min_values: Option<u32>) -> Self {
        Self { min_values, ..self }
    }

    /// The same, with a node without the label acceptable too.
    pub(crate) fn or_absent(self) -> Self {
        Self { may_be_absent: true, ..self }
    }

    /// Whether a node whose label is `value` is acceptable; `None` is a node without the label.
    pub fn admits(&self, value: Option<&str>) -> bool {
        match value {
            Some(value) => self.values.contains(value),
            None => self.may_be_absent,
        }
    }

    /// Whether a node without the label is acceptable.
    pub const fn admits_absence(&self) -> bool {
        self.may_be_absent
    }

    /// Whether some node with the label is acceptable.
    pub fn admits_some_value(&self) -> bool {
        !self.values.is_empty()
    }

    /// Whether no node is acceptable.
    pub fn is_none(&self) -> bool {
        !self.may_be_absent && self.values.is_empty()
    }

    /// What both accept.
    pub fn intersection(&self, other: &Self) -> Self {
        Self {
            values: self.values.intersection(&other.values),
            may_be_absent: self.may_be_absent && other.may_be_absent,
            min_values: self.min_values.max(other.min_values),
        }
    }

    /// Whether both accept some node, without making the intersection.
    pub fn intersects(&self, other: &Self) -> bool {
        self.may_be_absent && other.may_be_absent || self.values.intersects(&other.values)
    }

    /// The acceptable values in their order, if they are named; endlessly many yield none.
    pub fn values(&self) -> impl Iterator<Item = &str> {
        let named = match &self.values {
            ValueSet::Only(values) => Some(values.iter()),
            ValueSet::AllBut { .. } => None,
        };
        named.into_iter().flatten().map(|v| &**v)
    }

    /// How many values are acceptable; `None` for endlessly many.
    pub fn value_count(&self) -> Option<usize> {
        self.values.len()
    }

    /// One acceptable value, always the same, if there is one.
    pub fn any_value(&self) -> Option<Arc<str>> {
        self.values.any()
    }

    /// The least number of distinct values that the instance types of a claim must keep.
    pub const fn min_values(&self) -> Option<u32> {
        self.min_values
    }

    /// The fewest Kubernetes expressions that say the same of `key`.
    ///
    /// [`Requirement::NONE`] has no such expression; it is written as an `In` without values, which matches no node.
    pub fn to_expressions(&self, key: &str) -> Vec<NodeSelectorRequirement> {
        let texts = |set: &Values| set.iter().map(ToString::to_string).collect::<Vec<_>>();
        let expression = |operator, values: Vec<String>| NodeSelectorRequirement::new(key, operator, values);
        let mut out = Vec::new();
        match &self.values {
            ValueSet::Only(values) if values.is_empty() && self.may_be_absent => {
                out.push(expression(Operator::DoesNotExist, Vec::new()));
            }
            ValueSet::Only(values) => out.push(expression(Operator::In, texts(values))),
            ValueSet::AllBut { excluded, bounds } => {
                if let Some(Bounds { min, max }) = *bounds {
                    if min > 0 || max == i64::MAX {
                        out.push(expression(Operator::Gte, vec![min.to_string()]));
                    }
                    if max < i64::MAX {
                        out.push(expression(Operator::Lte, vec![max.to_string()]));
                    }
                }
                let says_only_min_values = bounds.is_none() && self.may_be_absent && self.min_values.is_some();
                if !excluded.is_empty() || says_only_min_values {
                    out.push(expression(Operator::NotIn, texts(excluded)));
                }
                if bounds.is_none() && !self.may_be_absent {
                    out.push(expression(Operator::Exists, Vec::new()));
                }
            }
        }
        if let Some(first) = out.first_mut() {
            first.min_values = self.min_values;
        }
        out
    }
}

impl From<&NodeSelectorRequirement> for Requirement {
    /// Bounds that are not whole numbers, and `In` without values, admit nothing.
    fn from(source: &NodeSelectorRequirement) -> Self {
        let values = || source.values.iter().map(|v| Arc::from(v.as_str()));
        let bound = || source.values.first().and_then(|v| v.parse::<i64>().ok());
        let requirement = match source.operator {
            Operator::In => Self::one_of::<Arc<str>>(values()),
            Operator::NotIn => Self::none_of::<Arc<str>>(values()),
            Operator::Exists => Self::EXISTS,
            Operator::DoesNotExist => Self::ABSENT,
            Operator::Gt => bound().and_then(|n| n.checked_add(1)).map_or(Self::NONE, |n| Self::between(n, i64::MAX)),
            Operator::Gte => bound().map_or(Self::NONE, |n| Self::between(n, i64::MAX)),
            Operator::Lt => bound().and_then(|n| n.checked_sub(1)).map_or(Self::NONE, |n| Self::between(0, n)),
            Operator::Lte => bound().map_or(Self::NONE, |n| Self::between(0, n)),
        };
        requirement.with_min_values(source.min_values)
    }
}

impl fmt::Display for Requirement {
    /// The operator and the values, at most five of them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::ANY {
            return f.write_str("anything");
        }
        for (i, expression) in self.to_expressions("").iter().enumerate() {
            write!(f, "{}{:?}", if i > 0 { " and " } else { "" }, expression.operator)?;
            let values = &expression.values;
            match values.len() {
                0 => {}
                n if n <= MAX_PRINTED_VALUES => write!(f, " [{}]", values.join(", "))?,
                n => {
                    let shown = values[..MAX_PRINTED_VALUES].join(", ");
                    write!(f, " [{shown} and {} others]", n - MAX_PRINTED_VALUES)?;
                }
            }
        }
        Ok(())
    }
}

/// What the labels of a node may be, one [`Requirement`] a key; a key that is not named may be anything.
///
/// ```
/// use karpenter_core::{api::{NodeSelectorRequirement, Operator}, Requirements};
///
/// let mut node = Requirements::from_iter([NodeSelectorRequirement::new("zone", Operator::In, ["a", "b"])]);
/// node.add_all(&Requirements::from_iter([NodeSelectorRequirement::new("zone", Operator::NotIn, ["a"])]));
/// assert_eq!(node.to_string(), "zone In [b]");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Requirements(Vec<(Arc<str>, Requirement)>);

impl Requirements {
    /// No requirements.
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// The requirement of a node with exactly these labels on these keys; other keys are not named.
    pub fn of_labels<'l>(labels: impl IntoIterator<Item = (&'l String, &'l String)>) -> Self {
        let mut out = Self::new();
        for (key, value) in labels {
            out.add(key, Requirement::one_of([value.as_str()]));
        }
        out
    }

    /// Requires `requirement` of `key` too. A beta name of a key is taken for its stable name.
    pub fn add(&mut self, key: &str, requirement: Requirement) {
        let key = labels::normalized(key);
        match self.find(key) {
            Ok(at) => self.0[at].1 = self.0[at].1.intersection(&requirement),
            Err(at) => self.0.insert(at, (Arc::from(key), requirement)),
        }
    }

    /// Requires all of `other` too.
    pub fn add_all(&mut self, other: &Self) {
        for (key, requirement) in &other.0 {
            match self.find(key) {
                Ok(at) => self.0[at].1 = self.0[at].1.intersection(requirement),
                Err(at) => self.0.insert(at, (key.clone(), requirement.clone())),
            }
        }
    }

    /// The requirement of a key, if the key is named.
    pub fn get(&self, key: &str) -> Option<&Requirement> {
        self.find(labels::normalized(key)).ok().map(|at| &self.0[at].1)
    }

    /// The position of a key, or where it would be.
    fn find(&self, key: &str) -> Result<usize, usize> {
        self.0.binary_search_by(|(own, _)| (**own).cmp(key))
    }

    /// Keys and requirements in the order of the keys.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &Requirement)> {
        self.0.iter().map(|(k, r)| (&**k, r))
    }

    /// Adds the labels of which they leave no choice to those that are settled already.
    pub(crate) fn settle(&self, labels: &mut BTreeMap<String, String>) {
        for (key, requirement) in self.iter() {
            if let (Some(1), Some(value)) = (requirement.value_count(), requirement.values().next()) {
                labels.entry(key.to_owned()).or_insert_with(|| value.to_owned());
            }
        }
    }

    /// Whether nothing is required.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The first key of which nothing is acceptable, if there is one.
    pub fn contradiction(&self) -> Option<&str> {
        self.iter().find(|(_, r)| r.is_none()).map(|(k, _)| k)
    }

    /// The first key on which the two have nothing in common.
    ///
    /// A key that only one of them names may be anything for the other.
    pub fn conflict<'a>(&'a self, other: &Self) -> Option<&'a str> {
        self.iter().find(|(key, r)| other.get(key).is_some_and(|o| !r.intersects(o))).map(|(key, _)| key)
    }

    /// The first key of which a node with these labels is not acceptable.
    pub fn refuses<'a>(&'a self, labels: &BTreeMap<String, String>) -> Option<&'a str> {
        self.iter().find(|(key, r)| !r.admits(labels.get(*key).map(String::as_str))).map(|(key, _)| key)
    }

    /// Kubernetes expressions that say the same, in the order of the keys.
    pub fn to_expressions(&self) -> Vec<NodeSelectorRequirement> {
        self.iter().flat_map(|(key, r)| r.to_expressions(key)).collect()
    }
}

impl<'r> FromIterator<&'r NodeSelectorRequirement> for Requirements {
    fn from_iter<I: IntoIterator<Item = &'r NodeSelectorRequirement>>(items: I) -> Self {
        let mut out = Self::new();
        for item in items {
            out.add(&item.key, Requirement::from(item));
        }
        out
    }
}

impl FromIterator<NodeSelectorRequirement> for Requirements {
    fn from_iter<I: IntoIterator<Item = NodeSelectorRequirement>>(items: I) -> Self {
        let items: Vec<_> = items.into_iter().collect();
        items.iter().collect()
    }
}

impl fmt::Display for Requirements {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (key, requirement)) in self.iter().enumerate() {
            write!(f, "{}{key} {requirement}", if i > 0 { ", " } else { "" })?;
        }
        Ok(())
    }
}

impl Serialize for Requirements {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.to_expressions().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Requirements {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Vec::<NodeSelectorRequirement>::deserialize(deserializer)?.iter().collect())
    }
}
