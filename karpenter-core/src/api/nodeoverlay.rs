//! What users know better than the provider.

use serde::{Deserialize, Serialize};

use super::{
    Condition, FieldError, NodeSelectorRequirement, ObjectMeta, Operator, is_default, nullable,
    validate::{Check, MAX_REQUIREMENTS, check},
};
use crate::{Price, ResourceList, labels};

/// The heaviest overlay.
const MAX_WEIGHT: u32 = 10_000;
/// What an overlay must not touch: the kubelet says what there is of these.
const STANDARD_RESOURCES: [&str; 4] = ["cpu", "memory", "ephemeral-storage", "pods"];

/// Says of instance types what they cost, or have beside what the provider says (`karpenter.sh/v1alpha1`).
///
/// It changes what is planned with, and no machine. Of several overlays for the same price or resource the heaviest counts.
///
/// ```
/// use karpenter_core::api::{NodeOverlay, NodeSelectorRequirement, Operator};
///
/// let mut discount = NodeOverlay::named("discount");
/// discount.spec.requirements.push(NodeSelectorRequirement::new("node.kubernetes.io/instance-type", Operator::In, ["m5.large"]));
/// discount.spec.price_adjustment = Some("-10%".to_owned());
/// assert!(discount.validate().is_ok());
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct NodeOverlay {
    /// `karpenter.sh/v1alpha1`.
    pub api_version: String,
    /// `NodeOverlay`.
    pub kind: String,
    /// The name.
    pub metadata: ObjectMeta,
    /// What it says.
    #[serde(deserialize_with = "nullable")]
    pub spec: NodeOverlaySpec,
    /// Whether that counts.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "nullable")]
    pub status: NodeOverlayStatus,
}

impl Default for NodeOverlay {
    fn default() -> Self {
        Self {
            api_version: Self::API_VERSION.to_owned(),
            kind: "NodeOverlay".to_owned(),
            metadata: ObjectMeta::default(),
            spec: NodeOverlaySpec::default(),
            status: NodeOverlayStatus::default(),
        }
    }
}

/// What a [`NodeOverlay`] says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct NodeOverlaySpec {
    /// Of which offerings: by the labels that nodes of the pool bought this way have. Of all, if there are no requirements.
    #[serde(deserialize_with = "nullable")]
    pub requirements: Vec<NodeSelectorRequirement>,
    /// What they cost: dollars an hour, a decimal number.
    #[serde(skip_serializing_if = "is_default")]
    pub price: Option<String>,
    /// How much more or less they cost: `+0.5` or `-0.5` dollars an hour, or `+10%` or `-10%`. No price falls below zero.
    #[serde(skip_serializing_if = "is_default")]
    pub price_adjustment: Option<String>,
    /// What their types have: extended resources and huge pages.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "nullable")]
    pub capacity: ResourceList,
    /// From 1 to 10000; 0 where none is written.
    #[serde(skip_serializing_if = "is_default")]
    pub weight: Option<u32>,
}

/// Whether a [`NodeOverlay`] counts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct NodeOverlayStatus {
    /// Observed aspects: `ValidationSucceeded` and `Ready`.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "nullable")]
    pub conditions: Vec<Condition>,
}

/// What becomes of a price.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum PriceChange {
    /// It is this one.
    To(Price),
    /// So many dollars an hour are added.
    ByDollars(f64),
    /// It is multiplied.
    Times(f64),
}

impl PriceChange {
    /// The new price, kept within those that there are. One that is no number stays as it is.
    pub(crate) fn of(self, price: Price) -> Price {
        let dollars = match self {
            Self::To(price) => return price,
            Self::ByDollars(more) => price.dollars_per_hour() + more,
            Self::Times(factor) => price.dollars_per_hour() * factor,
        };
        Price::per_hour(dollars.clamp(0.0, Price::MAX.dollars_per_hour())).unwrap_or(price)
    }
}

impl NodeOverlay {
    /// The group and version.
    pub const API_VERSION: &str = "karpenter.sh/v1alpha1";

    /// An overlay of this name that says nothing yet.
    pub fn named(name: impl Into<String>) -> Self {
        Self { metadata: ObjectMeta::named(name), ..Self::default() }
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.metadata.name
    }

    /// The weight, 0 where none is written.
    pub fn weight(&self) -> u32 {
        self.spec.weight.unwrap_or(0)
    }

    /// Checks the rules of the CRD.
    ///
    /// # Errors
    /// The first broken rule, with the path of its field.
    pub fn validate(&self) -> Result<(), FieldError> {
        let spec = &self.spec;
        check(spec.requirements.len() <= MAX_REQUIREMENTS, "spec.requirements", || {
            format!("more than {MAX_REQUIREMENTS}")
        })?;
        for (i, requirement) in spec.requirements.iter().enumerate() {
            validate_requirement(requirement, &format!("spec.requirements[{i}]"))?;
        }
        spec.price_change()?;
        for (name, quantity) in spec.capacity.iter() {
            let field = format_args!("spec.capacity.{name}");
            let is_standard = STANDARD_RESOURCES.contains(&name.as_str());
            check(!is_standard, field, || "only extended resources and huge pages can be set".to_owned())?;
            check(!quantity.is_negative(), field, || format!("{quantity} is below zero"))?;
        }
        check(spec.weight.is_none_or(|weight| (1..=MAX_WEIGHT).contains(&weight)), "spec.weight", || {
            format!("{} is not from 1 to {MAX_WEIGHT}", self.weight())
        })
    }
}

fn validate_requirement(requirement: &NodeSelectorRequirement, field: &str) -> Check {
    requirement.validate(field)?;
    let has_values = requirement.operator != Operator::NotIn || !requirement.values.is_empty();
    check(has_values, format_args!("{field}.values"), || "NotIn needs at least one value".to_owned())?;
    let key = labels::normalized(&requirement.key);
    let is_allowed = key == labels::NODE_POOL || !labels::is_restricted(key);
    check(is_allowed, format_args!("{field}.key"), || format!("{key:?} is reserved"))
}

impl NodeOverlaySpec {
    /// What becomes of prices, if anything.
    pub(crate) fn price_change(&self) -> Result<Option<PriceChange>, FieldError> {
        match (&self.price, &self.price_adjustment) {
            (None, None) => Ok(None),
            (Some(price), None) => {
                let dollars = decimal(price).and_then(Price::per_hour);
                let broken = || FieldError::new("spec.price", format!("{price:?} is not a number such as 0.05"));
                dollars.map(|price| Some(PriceChange::To(price))).ok_or_else(broken)
            }
            (None, Some(text)) => {
                let message = || format!("{text:?} is not a signed number such as +0.5, or a percentage such as -10%");
                let broken = || FieldError::new("spec.priceAdjustment", message());
                adjustment(text).map(Some).ok_or_else(broken)
            }
            (Some(_), Some(_)) => {
                Err(FieldError::new("spec.priceAdjustment", "not allowed together with spec.price".to_owned()))
            }
        }
    }
}

/// Reads `+0.5`, `-0.5`, `+10%` or `-10%`; no price falls by more than 100%.
fn adjustment(text: &str) -> Option<PriceChange> {
    let (sign, rest) = match text.split_at_checked(1)? {
        ("+", rest) => (1.0, rest),
        ("-", rest) => (-1.0, rest),
        _ => return None,
    };
    match rest.strip_suffix('%') {
        None => decimal(rest).map(|dollars| PriceChange::ByDollars(sign * dollars)),
        Some(percent) => {
            let factor = 1.0 + sign * decimal(percent)? / 100.0;
            (factor >= 0.0).then_some(PriceChange::Times(factor))
        }
    }
}

/// Reads a number without sign and exponent.
fn decimal(text: &str) -> Option<f64> {
    let is_digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    let is_decimal = match text.split_once('.') {
        Some((whole, fraction)) => is_digits(whole) && is_digits(fraction) && !fraction.is_empty(),
        None => is_digits(text),
    };
    text.parse().ok().filter(|number: &f64| is_decimal && number.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn overlay(spec: &str) -> NodeOverlay {
        let text = format!(r#"{{"metadata":{{"name":"o"}},"spec":{spec}}}"#);
        serde_json::from_str(&text).expect(spec)
    }

    #[test]
    fn an_overlay_is_held_to_the_rules_of_the_crd() {
        for (spec, field) in [
            (r#"{"price":"-1"}"#, "spec.price"),
            (r#"{"price":"1e3"}"#, "spec.price"),
            (r#"{"price":"inf"}"#, "spec.price"),
            (r#"{"price":"1","priceAdjustment":"+1"}"#, "spec.priceAdjustment"),
            (r#"{"priceAdjustment":"10%"}"#, "spec.priceAdjustment"),
            (r#"{"priceAdjustment":"-101%"}"#, "spec.priceAdjustment"),
            (r#"{"priceAdjustment":"+"}"#, "spec.priceAdjustment"),
            (r#"{"priceAdjustment":"+%"}"#, "spec.priceAdjustment"),
            (r#"{"weight":0}"#, "spec.weight"),
            (r#"{"weight":10001}"#, "spec.weight"),
            (r#"{"capacity":{"cpu":"1"}}"#, "spec.capacity.cpu"),
            (r#"{"capacity":{"pods":"1"}}"#, "spec.capacity.pods"),
            (r#"{"capacity":{"example.com/fuse":"-1"}}"#, "spec.capacity.example.com/fuse"),
            (r#"{"requirements":[{"key":"a","operator":"NotIn"}]}"#, "spec.requirements[0].values"),
            (r#"{"requirements":[{"key":"a","operator":"Gt","values":["x"]}]}"#, "spec.requirements[0].values"),
            (r#"{"requirements":[{"key":"kubernetes.io/hostname","operator":"Exists"}]}"#, "spec.requirements[0].key"),
        ] {
            assert_eq!(overlay(spec).validate().map_err(|e| e.field), Err(field.to_owned()), "{spec}");
        }
        let all = r#"{"requirements":[{"key":"karpenter.sh/nodepool","operator":"In","values":["p"]}],"price":"0.05","capacity":{"hugepages-2Mi":"100Mi"},"weight":10000}"#;
        assert_eq!(overlay(all).validate(), Ok(()));
        let wire = r#"{"apiVersion":"karpenter.sh/v1alpha1","kind":"NodeOverlay","metadata":{"name":"o"},"spec":"#;
        assert_eq!(serde_json::to_string(&overlay(all)).expect("valid"), format!("{wire}{all}}}"));
    }

    #[test]
    fn prices_change_as_written_and_stay_prices() {
        let dollars = |spec: &str, price: f64| {
            let change = overlay(spec).spec.price_change().expect(spec).expect("a change");
            change.of(Price::per_hour(price).expect("a price")).dollars_per_hour()
        };
        for (spec, before, after) in [
            (r#"{"price":"0.25"}"#, 2.0, 0.25),
            (r#"{"priceAdjustment":"+0.5"}"#, 2.0, 2.5),
            (r#"{"priceAdjustment":"-.5"}"#, 2.0, 1.5),
            (r#"{"priceAdjustment":"-3"}"#, 2.0, 0.0),
            (r#"{"priceAdjustment":"+50%"}"#, 2.0, 3.0),
            (r#"{"priceAdjustment":"-12.5%"}"#, 2.0, 1.75),
            (r#"{"priceAdjustment":"-100%"}"#, 2.0, 0.0),
            (r#"{"priceAdjustment":"+9999999999999"}"#, 2.0, Price::MAX.dollars_per_hour()),
            (r#"{"priceAdjustment":"+9999999999999%"}"#, 2.0, Price::MAX.dollars_per_hour()),
        ] {
            assert!((dollars(spec, before) - after).abs() < 1e-12, "{spec}");
        }
    }
}
