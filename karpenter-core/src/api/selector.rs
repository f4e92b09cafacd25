use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{is_default, nullable};

/// How a label of a node is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Operator {
    /// The value is one of those named.
    In,
    /// The value is none of those named, or there is no such label.
    NotIn,
    /// There is such a label.
    Exists,
    /// There is no such label.
    DoesNotExist,
    /// The value is a number above the one named.
    Gt,
    /// The value is a number below the one named.
    Lt,
    /// The value is a number not below the one named (node pools and claims only).
    Gte,
    /// The value is a number not above the one named (node pools and claims only).
    Lte,
}

/// What the labels of a node must be like.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct NodeSelectorRequirement {
    /// The key of the label.
    pub key: String,
    /// How its value is compared.
    pub operator: Operator,
    /// What it is compared with.
    #[serde(default, skip_serializing_if = "is_default", deserialize_with = "nullable")]
    pub values: Vec<String>,
    /// The least number of distinct values that the instance types of a claim must keep (node pools and claims only).
    #[serde(default, skip_serializing_if = "is_default")]
    pub min_values: Option<u32>,
}

impl NodeSelectorRequirement {
    /// A requirement of these three parts.
    pub fn new<V: Into<String>>(
        key: impl Into<String>,
        operator: Operator,
        values: impl IntoIterator<Item = V>,
    ) -> Self {
        Self { key: key.into(), operator, values: values.into_iter().map(Into::into).collect(), min_values: None }
    }
}

/// Alternatives, one of which a node must meet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct NodeSelector {
    /// The alternatives; none of them means no node.
    #[serde(deserialize_with = "nullable")]
    pub node_selector_terms: Vec<NodeSelectorTerm>,
}

/// Requirements that a node must meet together; an empty term is met by no node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct NodeSelectorTerm {
    /// On labels.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "nullable")]
    pub match_expressions: Vec<NodeSelectorRequirement>,
    /// On fields of the node; Kubernetes knows `metadata.name` only.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "nullable")]
    pub match_fields: Vec<NodeSelectorRequirement>,
}

/// Selects objects by their labels; an empty selector selects everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct LabelSelector {
    /// Labels that must be there.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "nullable")]
    pub match_labels: BTreeMap<String, String>,
    /// Expressions that must hold.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "nullable")]
    pub match_expressions: Vec<SelectorExpression>,
}

/// One expression of a [`LabelSelector`].
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct SelectorExpression {
    /// The key of the label.
    pub key: String,
    /// How its value is compared.
    pub operator: SelectorOperator,
    /// What it is compared with.
    #[serde(default, skip_serializing_if = "is_default", deserialize_with = "nullable")]
    pub values: Vec<String>,
}

/// How a [`SelectorExpression`] compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum SelectorOperator {
    /// The value is one of those named.
    In,
    /// The value is none of those named, or there is no such label.
    NotIn,
    /// There is such a label.
    Exists,
    /// There is no such label.
    DoesNotExist,
}

impl LabelSelector {
    /// Selects by these labels.
    pub fn of_labels<K: Into<String>, V: Into<String>>(labels: impl IntoIterator<Item = (K, V)>) -> Self {
        let match_labels = labels.into_iter().map(|(k, v)| (k.into(), v.into())).collect();
        Self { match_labels, match_expressions: Vec::new() }
    }

    /// Whether an object with these labels is selected.
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.match_labels.iter().all(|(k, v)| labels.get(k) == Some(v))
            && self.match_expressions.iter().all(|e| e.matches(labels))
    }
}

impl SelectorExpression {
    fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        let value = labels.get(&self.key);
        match self.operator {
            SelectorOperator::In => value.is_some_and(|v| self.values.contains(v)),
            SelectorOperator::NotIn => value.is_none_or(|v| !self.values.contains(v)),
            SelectorOperator::Exists => value.is_some(),
            SelectorOperator::DoesNotExist => value.is_none(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_select_by_all_of_their_parts() {
        let labels = BTreeMap::from([("app".to_owned(), "web".to_owned())]);
        let read = |json: &str| serde_json::from_str::<LabelSelector>(json).expect(json);
        for (json, expected) in [
            ("{}", true),
            (r#"{"matchLabels":{"app":"web"}}"#, true),
            (r#"{"matchLabels":{"app":"api"}}"#, false),
            (r#"{"matchExpressions":[{"key":"app","operator":"In","values":["web","api"]}]}"#, true),
            (r#"{"matchExpressions":[{"key":"tier","operator":"NotIn","values":["web"]}]}"#, true),
            (r#"{"matchExpressions":[{"key":"tier","operator":"Exists"}]}"#, false),
            (r#"{"matchLabels":null,"matchExpressions":[{"key":"tier","operator":"DoesNotExist"}]}"#, true),
        ] {
            assert_eq!(read(json).matches(&labels), expected, "{json}");
        }
    }
}
