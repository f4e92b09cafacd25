use super::Variant;
use crate::{
    nodeclass::{Alias, AmiFamily},
    version::KubernetesVersion,
};

/// An SSM parameter in which AWS publishes the id of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageParameter {
    /// The name of the parameter.
    pub name: String,
    /// What the image is made for; each of them is a choice of its own.
    pub variants: Vec<Variant>,
}

/// An alias whose images do not exist for this version of Kubernetes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnsupportedAlias {
    /// Amazon Linux 2 ended.
    #[error("AL2 aliases end with Kubernetes 1.32; this is {version}")]
    Al2 {
        /// The version of the cluster.
        version: KubernetesVersion,
    },
    /// Windows Server 2025 came later.
    #[error("Windows Server 2025 begins with Kubernetes 1.35; this is {version}")]
    Windows2025 {
        /// The version of the cluster.
        version: KubernetesVersion,
    },
}

/// The parameters that may name the images of an alias. Not all of them exist for each version; one is enough.
///
/// # Errors
/// AWS does not publish the family for this version of Kubernetes.
pub fn parameters(alias: &Alias, kubernetes: KubernetesVersion) -> Result<Vec<ImageParameter>, UnsupportedAlias> {
    let version = kubernetes;
    match alias.family {
        AmiFamily::Al2 if version.minor >= 33 => return Err(UnsupportedAlias::Al2 { version }),
        AmiFamily::Windows2025 if version.minor < 35 => return Err(UnsupportedAlias::Windows2025 { version }),
        _ => {}
    }
    let named = match alias.family {
        AmiFamily::Al2 => al2(alias, kubernetes),
        AmiFamily::Al2023 => al2023(alias, kubernetes),
        AmiFamily::Bottlerocket => bottlerocket(alias, kubernetes),
        AmiFamily::Windows2019 | AmiFamily::Windows2022 | AmiFamily::Windows2025 => windows(alias.family, kubernetes),
        AmiFamily::Custom => Vec::new(),
    };
    Ok(named.into_iter().map(|(name, variants)| ImageParameter { name, variants }).collect())
}

type Named = Vec<(String, Vec<Variant>)>;

fn al2(alias: &Alias, kubernetes: KubernetesVersion) -> Named {
    let path = |kind: &str, variants: &[Variant]| {
        let leaf = if alias.is_latest() {
            "recommended".to_owned()
        } else {
            format!("amazon-eks{kind}-node-{kubernetes}-{}", alias.version)
        };
        let name = format!("/aws/service/eks/optimized-ami/{kubernetes}/amazon-linux-2{kind}/{leaf}/image_id");
        (name, variants.to_vec())
    };
    vec![
        path("", &[Variant::Standard]),
        path("-arm64", &[Variant::Standard]),
        path("-gpu", &[Variant::Neuron, Variant::Nvidia]),
    ]
}

fn al2023(alias: &Alias, kubernetes: KubernetesVersion) -> Named {
    let path = |arch: &str, name: &str, variant: Variant| {
        let leaf = if alias.is_latest() {
            "recommended".to_owned()
        } else {
            format!("amazon-eks-node-al2023-{arch}-{name}-{kubernetes}-{}", alias.version)
        };
        let place = format!("/aws/service/eks/optimized-ami/{kubernetes}/amazon-linux-2023/{arch}/{name}");
        (format!("{place}/{leaf}/image_id"), vec![variant])
    };
    vec![
        path("x86_64", "standard", Variant::Standard),
        path("x86_64", "nvidia", Variant::Nvidia),
        path("x86_64", "neuron", Variant::Neuron),
        path("arm64", "standard", Variant::Standard),
        path("arm64", "nvidia", Variant::Nvidia),
    ]
}

/// Versions have a `v` in front where they are published, but not in the names of parameters.
fn bottlerocket(alias: &Alias, kubernetes: KubernetesVersion) -> Named {
    let version = alias.version.trim_start_matches('v');
    let path = |end: &str, arch: &str, variants: &[Variant]| {
        let name = format!("/aws/service/bottlerocket/aws-k8s-{kubernetes}{end}/{arch}/{version}/image_id");
        (name, variants.to_vec())
    };
    vec![
        path("", "x86_64", &[Variant::Standard, Variant::Neuron]),
        path("", "arm64", &[Variant::Standard]),
        path("-nvidia", "x86_64", &[Variant::Nvidia]),
        path("-nvidia", "arm64", &[Variant::Nvidia]),
    ]
}

fn windows(family: AmiFamily, kubernetes: KubernetesVersion) -> Named {
    let year = family.as_str().trim_start_matches("Windows");
    let name = format!("Windows_Server-{year}-English-Core-EKS_Optimized-{kubernetes}");
    vec![(format!("/aws/service/ami-windows-latest/{name}/image_id"), vec![Variant::Windows(family)])]
}
