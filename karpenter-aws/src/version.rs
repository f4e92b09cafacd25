//! Versions of Kubernetes.

use std::{fmt, str::FromStr};

/// A minor version of Kubernetes, such as 1.33.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KubernetesVersion {
    /// 1, so far.
    pub major: u32,
    /// Which of them.
    pub minor: u32,
}

impl KubernetesVersion {
    /// The oldest version that this provider knows.
    pub const OLDEST: Self = Self { major: 1, minor: 26 };
    /// The newest version that this provider knows.
    pub const NEWEST: Self = Self { major: 1, minor: 36 };

    /// Whether this provider knows it.
    pub fn is_supported(self) -> bool {
        (Self::OLDEST..=Self::NEWEST).contains(&self)
    }
}

/// Why a version of Kubernetes is of no use.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum VersionError {
    /// The text is none.
    #[error("invalid version of Kubernetes {text:?}: expected two numbers such as 1.33")]
    Invalid {
        /// The text as it was given.
        text: String,
    },
    /// This provider does not know it.
    #[error(
        "unsupported version of Kubernetes {version}: expected {} to {}",
        KubernetesVersion::OLDEST,
        KubernetesVersion::NEWEST
    )]
    Unsupported {
        /// The version.
        version: KubernetesVersion,
    },
}

impl FromStr for KubernetesVersion {
    type Err = VersionError;

    /// Reads what an API server or EKS calls itself, such as `1.33` or `1.33+`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parsed = || {
            let (major, minor) = text.split_once('.')?;
            Some(Self { major: major.parse().ok()?, minor: minor.trim_end_matches('+').parse().ok()? })
        };
        parsed().ok_or_else(|| VersionError::Invalid { text: text.to_owned() })
    }
}

impl fmt::Display for KubernetesVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_two_numbers() {
        for (text, expected) in
            [("1.33", Some(33)), ("1.31+", Some(31)), ("1", None), ("1.x", None), ("v1.30", None), ("1.30.2", None)]
        {
            assert_eq!(text.parse().ok(), expected.map(|minor| KubernetesVersion { major: 1, minor }), "{text}");
        }
    }

    #[test]
    fn versions_of_a_window_are_supported() {
        for (minor, expected) in [(25, false), (26, true), (36, true), (37, false)] {
            assert_eq!(KubernetesVersion { major: 1, minor }.is_supported(), expected);
        }
    }
}
