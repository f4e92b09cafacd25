//! User data: what an instance is told when it starts, so that it becomes a node.

mod al2;
mod bottlerocket;
mod kubelet_args;
mod mime;
mod nodeadm;
mod windows;

use std::collections::BTreeMap;

use karpenter_core::{
    api::{NodeClaim, Taint, TaintEffect},
    labels as core_labels,
};
use serde_json::Value;

use crate::nodeclass::{
    AliasError, AmiFamily, Ec2NodeClass, InstanceStorePolicy, KubeletConfiguration, KubeletError, KubeletSettings,
};

/// The most bytes of user data that EC2 takes.
pub const LARGEST_BYTES: usize = 16_384;
/// Labels of these domains a kubelet may not give to its own node.
const FORBIDDEN_DOMAINS: [&str; 3] = ["node-restriction.kubernetes.io", "kubernetes.io", "k8s.io"];

/// What nodes must know of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cluster {
    /// The name.
    pub name: String,
    /// The URL of the API server.
    pub endpoint: String,
    /// The certificate of the API server, PEM in base64.
    pub ca_bundle: Option<String>,
    /// The address of the cluster's DNS.
    pub dns_ip: Option<String>,
    /// The range of addresses of services; only nodes of the family AL2023 ask for it.
    pub service_cidr: Option<String>,
}

/// What the user data of an instance is made from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bootstrap<'b> {
    cluster: &'b Cluster,
    family: AmiFamily,
    labels: BTreeMap<String, String>,
    taints: Vec<Taint>,
    kubelet: KubeletConfiguration,
    settings: KubeletSettings,
    custom: Option<&'b str>,
    is_raid0: bool,
    bottlerocket_version: Option<String>,
}

/// The text of user data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserData {
    /// The text, not in base64.
    pub text: String,
}

impl UserData {
    fn of(text: String) -> Self {
        Self { text }
    }

    /// The text in base64, as EC2 takes it.
    pub fn base64(&self) -> String {
        base64(self.text.as_bytes())
    }
}

/// Why there is no user data.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UserDataError {
    /// The family of the images is not known.
    #[error(transparent)]
    Alias(#[from] AliasError),
    /// The settings of the kubelet cannot be read.
    #[error(transparent)]
    Kubelet(#[from] KubeletError),
    /// The user's text is in parts that cannot be read.
    #[error("userData is no MIME archive: {message}")]
    Mime {
        /// What is wrong with it.
        message: &'static str,
    },
    /// The user's text is no TOML.
    #[error("userData is no TOML: {message}")]
    Toml {
        /// What is wrong with it.
        message: String,
    },
    /// The range of addresses of services is not known yet; nodes of the family AL2023 cannot start without it.
    #[error("the CIDR of the cluster's services is not known")]
    NoServiceCidr,
    /// Something cannot be written.
    #[error("user data cannot be written: {message}")]
    Unwritable {
        /// What, and why.
        message: String,
    },
}

impl<'b> Bootstrap<'b> {
    /// What an instance for `claim` is told: one of a class, bought in this way, that runs at most so many pods.
    ///
    /// # Errors
    /// The class cannot be read.
    pub fn new(
        class: &'b Ec2NodeClass,
        claim: &NodeClaim,
        cluster: &'b Cluster,
        capacity_type: &str,
        pods: u32,
    ) -> Result<Self, UserDataError> {
        let mut kubelet = class.spec.kubelet.clone();
        let given = kubelet.settings()?;
        if given.max_pods_count().is_none() {
            kubelet.0.insert("maxPods".to_owned(), pods.into());
        }
        if let Some(dns_ip) = cluster.dns_ip.as_deref().filter(|_| given.cluster_dns.is_empty()) {
            kubelet.0.insert("clusterDNS".to_owned(), Value::from(vec![dns_ip]));
        }
        for (key, map) in [("kubeReserved", &given.kube_reserved), ("systemReserved", &given.system_reserved)] {
            if !map.is_empty() {
                let kept = map.iter().filter(|(_, text)| text.parse::<karpenter_core::Quantity>().is_ok());
                kubelet.0.insert(key.to_owned(), kept.map(|(k, v)| (k.clone(), Value::from(v.as_str()))).collect());
            }
        }
        Ok(Self {
            cluster,
            family: class.ami_family()?,
            labels: labels_of(claim, capacity_type),
            taints: taints_of(claim),
            settings: kubelet.settings()?,
            kubelet,
            custom: class.spec.user_data.as_deref().filter(|text| !text.is_empty()),
            is_raid0: class.spec.instance_store_policy == Some(InstanceStorePolicy::Raid0),
            bottlerocket_version: bottlerocket::version_of(class),
        })
    }

    /// The user data: what the user wrote, and what the node must know, in the format of the family.
    ///
    /// The same input in any order gives the same bytes.
    ///
    /// # Errors
    /// What the user wrote cannot be read, or something that the family must know is not known.
    pub fn user_data(&self) -> Result<UserData, UserDataError> {
        match self.family {
            AmiFamily::Al2 => self.al2().map(UserData::of),
            AmiFamily::Al2023 => self.nodeadm().map(UserData::of),
            AmiFamily::Bottlerocket => self.bottlerocket(),
            AmiFamily::Windows2019 | AmiFamily::Windows2022 | AmiFamily::Windows2025 => {
                Ok(UserData::of(self.windows()))
            }
            AmiFamily::Custom => Ok(UserData::of(self.custom.unwrap_or_default().to_owned())),
        }
    }
}

/// The labels of the claim and the way it was bought, but for those that kubelets may not give to their nodes: these
/// come once the node is there.
fn labels_of(claim: &NodeClaim, capacity_type: &str) -> BTreeMap<String, String> {
    let mut out = claim.metadata.labels.clone();
    out.insert(core_labels::CAPACITY_TYPE.to_owned(), capacity_type.to_owned());
    out.insert(core_labels::DO_NOT_SYNC_TAINTS.to_owned(), "true".to_owned());
    out.retain(|key, _| !is_forbidden(key));
    out
}

fn is_forbidden(key: &str) -> bool {
    let domain = key.split_once('/').map_or("", |(domain, _)| domain);
    let is_under =
        |parent: &str| domain.strip_suffix(parent).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
    FORBIDDEN_DOMAINS.into_iter().any(is_under)
}

/// The taints of the claim, and the one that keeps pods away until the node is known.
fn taints_of(claim: &NodeClaim) -> Vec<Taint> {
    let mut out: Vec<_> = claim.spec.taints.iter().chain(&claim.spec.startup_taints).cloned().collect();
    let is_there = |t: &Taint| t.key == core_labels::UNREGISTERED && t.effect == TaintEffect::NoExecute;
    if !out.iter().any(is_there) {
        out.push(Taint::new(core_labels::UNREGISTERED, "", TaintEffect::NoExecute));
    }
    out
}

/// Base64 (RFC 4648).
fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let mut padded = [0; 4];
        padded[1..=chunk.len()].copy_from_slice(chunk);
        let bits = u32::from_be_bytes(padded);
        for at in 0..4 {
            let letter = LETTERS[(bits >> (18 - 6 * at) & 63) as usize];
            out.push(if at > chunk.len() { '=' } else { char::from(letter) });
        }
    }
    out
}

#[cfg(test)]
mod tests;
