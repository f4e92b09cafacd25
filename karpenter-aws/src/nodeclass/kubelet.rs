use std::collections::BTreeMap;

use karpenter_core::Quantity;
use serde::{Deserialize, Serialize};

use super::{Expression, ExpressionError};
use crate::wire::nullable;

/// Settings of the kubelet: any that it knows, by their names in its own configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct KubeletConfiguration(pub serde_json::Map<String, serde_json::Value>);

impl KubeletConfiguration {
    /// Whether nothing is set.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Those settings that bear on what a node can hold, and those that every family of images knows.
    ///
    /// # Errors
    /// One of them is not of its type.
    pub fn settings(&self) -> Result<KubeletSettings, KubeletError> {
        let object = serde_json::Value::Object(self.0.clone());
        serde_json::from_value(object).map_err(|error| KubeletError { message: error.to_string() })
    }
}

/// Why a [`KubeletConfiguration`] cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid kubelet configuration: {message}")]
pub struct KubeletError {
    /// Which setting, and what is wrong.
    pub message: String,
}

/// The settings of a kubelet that bear on what a node can hold, and those that every family of images knows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct KubeletSettings {
    /// Addresses of the cluster's DNS.
    #[serde(rename = "clusterDNS", deserialize_with = "nullable")]
    pub cluster_dns: Vec<String>,
    /// The most pods.
    pub max_pods: Option<MaxPods>,
    /// The most pods for each processor; zero for any number.
    pub pods_per_core: Option<i32>,
    /// What is kept for the operating system.
    #[serde(deserialize_with = "nullable")]
    pub system_reserved: BTreeMap<String, String>,
    /// What is kept for Kubernetes.
    #[serde(deserialize_with = "nullable")]
    pub kube_reserved: BTreeMap<String, String>,
    /// When pods are evicted at once, by signal.
    #[serde(deserialize_with = "nullable")]
    pub eviction_hard: BTreeMap<String, String>,
    /// When pods are evicted after a while, by signal.
    #[serde(deserialize_with = "nullable")]
    pub eviction_soft: BTreeMap<String, String>,
    /// After which while, by signal.
    #[serde(deserialize_with = "nullable")]
    pub eviction_soft_grace_period: BTreeMap<String, String>,
    /// The most seconds that pods have to stop then.
    pub eviction_max_pod_grace_period: Option<i32>,
    /// How full the disk may be before images are removed, in percent.
    #[serde(rename = "imageGCHighThresholdPercent")]
    pub image_gc_high_threshold_percent: Option<i32>,
    /// How full the disk may be after that, in percent.
    #[serde(rename = "imageGCLowThresholdPercent")]
    pub image_gc_low_threshold_percent: Option<i32>,
    /// Whether limits on CPU are enforced.
    #[serde(rename = "cpuCFSQuota")]
    pub cpu_cfs_quota: Option<bool>,
}

/// The expressions in settings of a kubelet.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KubeletExpressions {
    /// The most pods.
    pub max_pods: Option<Expression>,
    /// What is kept for Kubernetes, by resource: of `cpu` thousandths, of `memory` MiB, of `ephemeral-storage` GiB.
    pub kube_reserved: BTreeMap<String, Expression>,
    /// What is kept for the operating system, in the same units.
    pub system_reserved: BTreeMap<String, Expression>,
}

/// The most pods of a node.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum MaxPods {
    /// So many.
    Count(i32),
    /// As many as an expression in CEL says. Where it is not evaluated the family's own number counts.
    Expression(String),
}

impl KubeletSettings {
    /// The most pods, if a number is written.
    pub fn max_pods_count(&self) -> Option<u32> {
        match &self.max_pods {
            Some(MaxPods::Count(count)) => u32::try_from(*count).ok(),
            _ => None,
        }
    }

    /// Whether a number is written as an expression in CEL.
    pub fn has_expressions(&self) -> bool {
        matches!(self.max_pods, Some(MaxPods::Expression(_)))
            || self.kube_reserved.values().chain(self.system_reserved.values()).any(|text| is_expression(text))
    }

    /// Its expressions in CEL.
    ///
    /// # Errors
    /// One of them cannot be read.
    pub fn expressions(&self) -> Result<KubeletExpressions, ExpressionError> {
        let max_pods = match &self.max_pods {
            Some(MaxPods::Expression(text)) => Some(Expression::parse(text)?),
            _ => None,
        };
        let of = |map: &BTreeMap<String, String>| -> Result<BTreeMap<String, Expression>, ExpressionError> {
            let texts = map.iter().filter(|(_, text)| is_expression(text));
            texts.map(|(name, text)| Ok((name.clone(), Expression::parse(text)?))).collect()
        };
        let (kube_reserved, system_reserved) = (of(&self.kube_reserved)?, of(&self.system_reserved)?);
        Ok(KubeletExpressions { max_pods, kube_reserved, system_reserved })
    }

    /// Those values of a map that are quantities. The others are expressions in CEL.
    pub fn quantities(map: &BTreeMap<String, String>) -> impl Iterator<Item = (&str, Quantity)> {
        map.iter().filter_map(|(name, text)| Some((name.as_str(), text.parse().ok()?)))
    }
}

/// Whether the value of a resource is an expression in CEL: it is no quantity.
fn is_expression(text: &str) -> bool {
    text.parse::<Quantity>().is_err()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(json: &str) -> Result<KubeletSettings, KubeletError> {
        serde_json::from_str::<KubeletConfiguration>(json).expect("an object").settings()
    }

    #[test]
    fn settings_that_are_not_managed_are_left_alone() {
        let read = settings(
            r#"{"maxPods":20,"registryPullQPS":5,"clusterDNS":["10.0.0.10"],"imageGCHighThresholdPercent":80}"#,
        );
        let read = read.expect("valid");
        assert_eq!((read.max_pods_count(), read.cluster_dns.len()), (Some(20), 1));
        assert_eq!(read.image_gc_high_threshold_percent, Some(80));
    }

    #[test]
    fn a_setting_of_the_wrong_type_is_an_error() {
        for json in [r#"{"maxPods":true}"#, r#"{"kubeReserved":{"cpu":1}}"#, r#"{"clusterDNS":"10.0.0.10"}"#] {
            assert!(settings(json).is_err(), "{json}");
        }
    }

    #[test]
    fn expressions_are_not_numbers() {
        let read = settings(r#"{"maxPods":"max_pods - 1","kubeReserved":{"cpu":"vcpus * 10","memory":"1Gi"}}"#)
            .expect("valid");
        assert_eq!(read.max_pods_count(), None);
        let kept: Vec<_> = KubeletSettings::quantities(&read.kube_reserved).collect();
        assert_eq!(kept, [("memory", Quantity::from_bytes(1 << 30))]);
    }
}
