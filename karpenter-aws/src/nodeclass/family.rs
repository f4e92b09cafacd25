use std::{fmt, str::FromStr};

use karpenter_core::Quantity;
use serde::{Deserialize, Serialize};

use super::{BlockDevice, BlockDeviceMapping, VolumeType};

/// The version of an [`Alias`] that stands for the newest image there is.
pub const LATEST: &str = "latest";

/// A family of images: it settles how nodes are told what to do, and which disks they have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum AmiFamily {
    /// Amazon Linux 2.
    #[serde(rename = "AL2")]
    Al2,
    /// Amazon Linux 2023.
    #[serde(rename = "AL2023")]
    Al2023,
    /// Bottlerocket.
    Bottlerocket,
    /// Images of which nothing is known.
    Custom,
    /// Windows Server 2019.
    Windows2019,
    /// Windows Server 2022.
    Windows2022,
    /// Windows Server 2025.
    Windows2025,
}

impl AmiFamily {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Al2,
        Self::Al2023,
        Self::Bottlerocket,
        Self::Custom,
        Self::Windows2019,
        Self::Windows2022,
        Self::Windows2025,
    ];

    /// The name as it is written in a node class.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Al2 => "AL2",
            Self::Al2023 => "AL2023",
            Self::Bottlerocket => "Bottlerocket",
            Self::Custom => "Custom",
            Self::Windows2019 => "Windows2019",
            Self::Windows2022 => "Windows2022",
            Self::Windows2025 => "Windows2025",
        }
    }

    /// The build of Windows, the value of the label `node.kubernetes.io/windows-build`; `None` for others.
    pub const fn windows_build(self) -> Option<&'static str> {
        match self {
            Self::Windows2019 => Some("10.0.17763"),
            Self::Windows2022 => Some("10.0.20348"),
            Self::Windows2025 => Some("10.0.26100"),
            _ => None,
        }
    }

    /// Whether nodes have an address of the VPC for each pod, so that network interfaces limit how many there are.
    pub const fn limits_pods_by_interfaces(self) -> bool {
        !self.is_windows()
    }

    /// Whether its nodes keep memory for as many pods as network interfaces allow, whatever `maxPods` says.
    pub const fn keeps_memory_by_interfaces(self) -> bool {
        matches!(self, Self::Al2 | Self::Al2023 | Self::Custom)
    }

    /// Whether its kubelet knows `podsPerCore`.
    pub const fn honours_pods_per_core(self) -> bool {
        !matches!(self, Self::Bottlerocket)
    }

    /// Whether its nodes can be told any setting that a kubelet knows.
    pub const fn takes_any_kubelet_setting(self) -> bool {
        matches!(self, Self::Al2023)
    }

    /// The disk on which pods keep their files; `None` if that is not known.
    pub const fn ephemeral_device(self) -> Option<&'static str> {
        match self {
            Self::Al2 | Self::Al2023 => Some("/dev/xvda"),
            Self::Bottlerocket => Some("/dev/xvdb"),
            Self::Windows2019 | Self::Windows2022 | Self::Windows2025 => Some("/dev/sda1"),
            Self::Custom => None,
        }
    }

    /// The disks of an instance whose class names none.
    pub fn default_block_device_mappings(self) -> Vec<BlockDeviceMapping> {
        let gp3 = |device: &str, size_gib: i64| BlockDeviceMapping {
            device_name: Some(device.to_owned()),
            ebs: Some(BlockDevice {
                encrypted: Some(true),
                volume_type: Some(VolumeType::Gp3),
                volume_size: Some(Quantity::from_bytes(size_gib << 30)),
                ..BlockDevice::default()
            }),
            root_volume: false,
        };
        match self {
            Self::Al2 | Self::Al2023 => vec![gp3("/dev/xvda", 20)],
            Self::Bottlerocket => vec![gp3("/dev/xvda", 4), gp3("/dev/xvdb", 20)],
            Self::Windows2019 | Self::Windows2022 | Self::Windows2025 => vec![gp3("/dev/sda1", 50)],
            Self::Custom => Vec::new(),
        }
    }

    /// Whether it is one of the Windows families.
    pub const fn is_windows(self) -> bool {
        self.windows_build().is_some()
    }
}

impl fmt::Display for AmiFamily {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Which of the images that AWS publishes for a family to use, such as `al2023@v20240807`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alias {
    /// The family, never `Custom`.
    pub family: AmiFamily,
    /// A version, or [`LATEST`].
    pub version: String,
}

impl Alias {
    /// Whether it stands for the newest image, whichever that is.
    pub fn is_latest(&self) -> bool {
        self.version == LATEST
    }
}

/// Why a text is not an [`Alias`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid alias {text:?}: expected family@version, with one of the families {}", FAMILIES.join(", "))]
pub struct AliasError {
    /// The text as it was given.
    pub text: String,
}

pub(super) const FAMILIES: [&str; 6] = ["al2", "al2023", "bottlerocket", "windows2019", "windows2022", "windows2025"];

impl FromStr for Alias {
    type Err = AliasError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = || AliasError { text: text.to_owned() };
        let (family, version) = text.split_once('@').ok_or_else(error)?;
        if version.is_empty() || version.contains('@') || !FAMILIES.contains(&family) {
            return Err(error());
        }
        let family = AmiFamily::ALL.into_iter().find(|f| f.as_str().eq_ignore_ascii_case(family)).ok_or_else(error)?;
        Ok(Self { family, version: version.to_owned() })
    }
}

impl fmt::Display for Alias {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.family.as_str().to_ascii_lowercase(), self.version)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aliases_name_a_family_in_small_letters_and_a_version() {
        for family in FAMILIES {
            let alias: Alias = format!("{family}@latest").parse().expect(family);
            assert_eq!(alias.family.as_str().to_ascii_lowercase(), family);
            assert!(alias.is_latest());
            assert_eq!(alias.to_string(), format!("{family}@latest"));
        }
        for text in ["al2023", "al2023@", "AL2023@latest", "ubuntu@latest", "custom@latest", "al2@v1@v2", "@latest", ""]
        {
            assert!(text.parse::<Alias>().is_err(), "{text}");
        }
    }
}
