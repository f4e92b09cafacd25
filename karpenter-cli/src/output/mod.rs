//! Prints plans.

mod json;
mod table;

use crate::{Error, args::OutputFormat, plan::Outcome};

/// The text of a plan in this format, with a line break at the end.
///
/// # Errors
/// The serializer refuses the plan.
pub fn render(outcome: &Outcome, format: OutputFormat) -> Result<String, Error> {
    match format {
        OutputFormat::Json => json::json(outcome),
        OutputFormat::Yaml => json::yaml(outcome),
        OutputFormat::Table => Ok(table::table(outcome)),
    }
}
