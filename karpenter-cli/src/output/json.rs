use std::{collections::BTreeMap, time::Duration};

use karpenter_core::{PlannedClaim, Price, api::ObjectKey, schedule::Certificate};
use serde::Serialize;

use super::{difference_json, ordered::Ordered};
use crate::{Error, plan::Outcome};

/// A plan as other programs read it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Document<'o> {
    version: &'static str,
    complete: bool,
    new_node_claims: &'o [PlannedClaim],
    existing_nodes: &'o BTreeMap<String, Vec<ObjectKey>>,
    errors: &'o BTreeMap<String, String>,
    warnings: &'o [String],
    pods: usize,
    hourly_cost: Price,
    lower_bound: Price,
    #[serde(skip_serializing_if = "Option::is_none")]
    certificate: Option<&'o Certificate>,
    setup_seconds: f64,
    solve_seconds: Vec<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    difference: Option<difference_json::Document<'o>>,
}

pub(super) fn json(outcome: &Outcome, with_certificate: bool) -> Result<String, Error> {
    to_json_document(&document(outcome, with_certificate))
}

pub(super) fn yaml(outcome: &Outcome, with_certificate: bool) -> Result<String, Error> {
    to_yaml_document(&document(outcome, with_certificate))
}

/// A document with prices in whole billionths.
pub(super) fn to_json_document(document: &impl Serialize) -> Result<String, Error> {
    to_json(&Ordered::of(document)?)
}

/// The same document as [`to_json_document`] writes.
pub(super) fn to_yaml_document(document: &impl Serialize) -> Result<String, Error> {
    to_yaml(&Ordered::of(document)?)
}

pub(crate) fn to_json(document: &impl Serialize) -> Result<String, Error> {
    let text = serde_json::to_string_pretty(document);
    let text = text.map_err(|error| Error::Unprintable { message: error.to_string() })?;
    Ok(text + "\n")
}

pub(crate) fn to_json_line(document: &impl Serialize) -> Result<String, Error> {
    serde_json::to_string(document).map_err(|error| Error::Unprintable { message: error.to_string() })
}

pub(crate) fn to_yaml(document: &impl Serialize) -> Result<String, Error> {
    serde_saphyr::to_string(document).map_err(|error| Error::Unprintable { message: error.to_string() })
}

fn document(outcome: &Outcome, with_certificate: bool) -> Document<'_> {
    let plan = &outcome.plan;
    Document {
        version: env!("CARGO_PKG_VERSION"),
        complete: plan.is_complete(),
        new_node_claims: plan.claims(),
        existing_nodes: plan.existing(),
        errors: &outcome.errors,
        warnings: &outcome.warnings,
        pods: outcome.pod_count,
        hourly_cost: plan.hourly_cost(),
        lower_bound: outcome.certificate.lower_bound,
        certificate: with_certificate.then_some(&outcome.certificate),
        setup_seconds: outcome.setup_time.as_secs_f64(),
        solve_seconds: outcome.solve_times.iter().map(Duration::as_secs_f64).collect(),
        difference: outcome.difference.as_ref().map(difference_json::document),
    }
}
