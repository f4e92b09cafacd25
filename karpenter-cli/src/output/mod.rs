//! Prints plans and answers about single pods.

mod choice;
mod commands;
mod commands_table;
mod difference;
mod difference_json;
mod explain;
mod explain_json;
mod guards;
mod json;
mod ordered;
mod outlook;
mod outlook_json;
mod pool_outlook;
mod pool_outlook_json;
mod table;

pub(crate) use json::{to_json, to_json_line, to_yaml};
use json::{to_json_document, to_yaml_document};
use karpenter_core::disrupt::{NodeOutlook, PoolOutlook};

use crate::{Error, args::OutputFormat, consolidate::Consolidation, explain::Explanation, plan::Outcome};

/// The text of a plan in this format, with a line break at the end. A table never has the certificate, and of a changed dump
/// it has the difference only.
///
/// # Errors
/// The serializer refuses the plan.
pub fn render(outcome: &Outcome, format: OutputFormat, with_certificate: bool) -> Result<String, Error> {
    match format {
        OutputFormat::Json => json::json(outcome, with_certificate),
        OutputFormat::Yaml => json::yaml(outcome, with_certificate),
        OutputFormat::Table => Ok(match &outcome.difference {
            Some(found) => difference::text(found, &outcome.warnings),
            None => table::table(outcome),
        }),
    }
}

/// The text of commands in this format, with a line break at the end. A table of a changed dump has the difference only.
///
/// # Errors
/// The serializer refuses the commands.
pub fn render_commands(found: &Consolidation, format: OutputFormat) -> Result<String, Error> {
    match format {
        OutputFormat::Json => to_json_document(&commands::document(found)),
        OutputFormat::Yaml => to_yaml_document(&commands::document(found)),
        OutputFormat::Table => Ok(match &found.difference {
            Some(difference) => difference::text(difference, &found.warnings),
            None => commands_table::text(found),
        }),
    }
}

/// The text of answers about single pods in this format, with a line break at the end.
///
/// # Errors
/// The serializer refuses the answers.
pub fn render_explanation(explanation: &Explanation, format: OutputFormat) -> Result<String, Error> {
    match format {
        OutputFormat::Json => to_json_document(&explain_json::document(explanation)),
        OutputFormat::Yaml => to_yaml_document(&explain_json::document(explanation)),
        OutputFormat::Table => Ok(explain::text(explanation)),
    }
}

/// The text of answers about single nodes in this format, with a line break at the end.
///
/// # Errors
/// The serializer refuses the answers.
pub fn render_outlooks(outlooks: &[NodeOutlook], format: OutputFormat) -> Result<String, Error> {
    match format {
        OutputFormat::Json => to_json_document(&outlook_json::document(outlooks)),
        OutputFormat::Yaml => to_yaml_document(&outlook_json::document(outlooks)),
        OutputFormat::Table => Ok(outlook::text(outlooks)),
    }
}

/// The text of answers about node pools in this format, with a line break at the end.
///
/// # Errors
/// The serializer refuses the answers.
pub fn render_pool_outlooks(outlooks: &[PoolOutlook], format: OutputFormat) -> Result<String, Error> {
    match format {
        OutputFormat::Json => to_json_document(&pool_outlook_json::document(outlooks)),
        OutputFormat::Yaml => to_yaml_document(&pool_outlook_json::document(outlooks)),
        OutputFormat::Table => Ok(pool_outlook::text(outlooks)),
    }
}
