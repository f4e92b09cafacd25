use karpenter_aws::instance_type::Facts;
use karpenter_core::api::FieldError;

use super::{documents::for_each_document, parse};
use crate::Error;

/// Reads what a user knows of instance types of EC2 beside what EC2 says.
///
/// ```
/// let text = r#"{"branchInterfaces": {"m5.large": 9}}"#;
/// let facts = karpenter_cli::load::facts(text, "facts.json")?;
/// assert_eq!(facts.branch_interfaces["m5.large"], 9);
/// # Ok::<(), karpenter_cli::Error>(())
/// ```
///
/// # Errors
/// The text is not JSON or YAML or not one document, or has a field that facts do not have.
pub fn facts(text: &str, file: &str) -> Result<Facts, Error> {
    let wrong = |error: FieldError| Error::Object { file: file.to_owned(), error };
    let mut facts = Facts::default();
    for_each_document(text, file, &mut |document, number| {
        if number > 1 {
            return Err(wrong(FieldError::new(format!("document {number}"), "facts are one document")));
        }
        facts = parse(document).map_err(wrong)?;
        Ok(())
    })?;
    Ok(facts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_are_json_or_yaml() {
        let json = facts(r#"{"networkBandwidthMbps": {"m5.large": 750}}"#, "facts.json").expect("valid");
        let yaml = facts("networkBandwidthMbps:\n  m5.large: 750\n", "facts.yaml").expect("valid");
        assert_eq!(json, yaml);
        assert_eq!(json.network_bandwidth_mbps["m5.large"], 750);
    }

    #[test]
    fn what_is_wrong_with_facts_is_named() {
        let cases = [
            (r#"{"branchInterfaces": {"m5.large": -1}}"#, "f: branchInterfaces.m5.large: invalid value: integer `-1`"),
            (r#"{"branchinterfaces": {}}"#, "f: branchinterfaces: unknown field `branchinterfaces`"),
            ("7", "f: .: invalid type: integer `7`"),
            ("{} {}", "f: document 2: facts are one document"),
            ("{", "f: line 1 column 1: JSON syntax"),
            ("", "f: is empty"),
        ];
        for (text, expected) in cases {
            let error = facts(text, "f").expect_err(text).to_string();
            assert!(error.starts_with(expected), "{error}");
        }
    }
}
