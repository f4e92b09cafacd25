//! What DescribeImages says of an image.

use karpenter_core::Timestamp;
use serde::{Deserialize, Serialize};

use crate::wire::{is_default, nullable};

/// A machine image (AMI) as EC2 describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Image {
    /// Such as `ami-0123456789abcdef0`.
    pub image_id: String,
    /// The name; not unique.
    #[serde(deserialize_with = "nullable")]
    pub name: String,
    /// Such as `x86_64`, `arm64`.
    #[serde(deserialize_with = "nullable")]
    pub architecture: String,
    /// When it was made; `None` if AWS does not say, or says it in a way that is no time.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "time")]
    pub creation_date: Option<Timestamp>,
    /// From when on it should not be used; `None` for never.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "time")]
    pub deprecation_time: Option<Timestamp>,
}

impl Image {
    /// Whether its time is over.
    pub fn is_deprecated(&self, now: Timestamp) -> bool {
        self.deprecation_time.is_some_and(|time| time <= now)
    }
}

fn time<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Timestamp>, D::Error> {
    Ok(Option::<String>::deserialize(deserializer)?.and_then(|text| text.parse().ok()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_that_is_none_is_not_known() {
        let text = r#"{"ImageId":"ami-1","CreationDate":"long ago","DeprecationTime":"2024-05-01T00:00:00.000Z"}"#;
        let image: Image = serde_json::from_str(text).expect("valid");
        assert_eq!(image.creation_date, None);
        let end: Timestamp = "2024-05-01T00:00:00Z".parse().expect("valid");
        assert!(image.is_deprecated(end));
        assert!(!image.is_deprecated(end - std::time::Duration::from_secs(1)));
    }
}
