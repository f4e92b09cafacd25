use karpenter_aws::{instance_type::Facts, price::Prices};
use karpenter_core::api::FieldError;
use serde::de::DeserializeOwned;

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
    only(text, file)
}

/// Reads prices that count where AWS says none: those on demand where the price list is out of reach.
///
/// ```
/// let text = r#"{"onDemand": {"m5.large": 0.096}}"#;
/// let prices = karpenter_cli::load::prices(text, "prices.json")?;
/// assert!(prices.on_demand("m5.large").is_some());
/// # Ok::<(), karpenter_cli::Error>(())
/// ```
///
/// # Errors
/// The text is not JSON or YAML or not one document, or has a field that prices do not have, or a price that is none.
pub fn prices(text: &str, file: &str) -> Result<Prices, Error> {
    only(text, file)
}

/// The only document of a text.
fn only<T: DeserializeOwned + Default>(text: &str, file: &str) -> Result<T, Error> {
    let wrong = |error: FieldError| Error::Object { file: file.to_owned(), error };
    let mut only = T::default();
    for_each_document(text, file, "one document in JSON or YAML", &mut |document, number| {
        if number > 1 {
            return Err(wrong(FieldError::new(format!("document {number}"), "one is expected")));
        }
        only = parse(document).map_err(wrong)?;
        Ok(())
    })?;
    Ok(only)
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
            ("{} {}", "f: document 2: one is expected"),
            (r#"{"branchInterfaces": {"m5.large": 4294967296}}"#, "f: branchInterfaces.m5.large: invalid value"),
            ("{", "f: line 1 column 1: JSON syntax"),
            ("", "f: is empty"),
        ];
        for (text, expected) in cases {
            let error = facts(text, "f").expect_err(text).to_string();
            assert!(error.starts_with(expected), "{error}");
        }
    }

    #[test]
    fn what_is_wrong_with_prices_is_named() {
        for (text, expected) in [
            (r#"{"onDemand": {"m5.large": -1}}"#, "f: onDemand.m5.large: "),
            (r#"{"spot": {"m5.large": 0.1}}"#, "f: spot.m5.large: invalid type"),
            (r#"{"ondemand": {}}"#, "f: ondemand: unknown field `ondemand`"),
        ] {
            let error = prices(text, "f").expect_err(text).to_string();
            assert!(error.starts_with(expected), "{error}");
        }
    }
}
