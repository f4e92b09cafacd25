//! Why the command failed.

use std::io;

use karpenter_aws::convert::ConvertError;
use karpenter_core::{
    CatalogError, SnapshotError,
    api::{FieldError, ObjectKey},
};

use karpenter_fake::sim::scenario::{Failure, ScenarioError};

use crate::{check::Finding, recording::Difference};

/// The exit status of a command that gives no answer.
const FAILURE: u8 = 1;
/// The exit status of `karpenter plan --check` if the plan does not pass.
const UNSOUND: u8 = 3;

/// Why there is no answer. Each message names the file, then the object and the field where there are any.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file cannot be read.
    #[error("{file}: cannot be read: {source}")]
    Unreadable {
        /// The file.
        file: String,
        /// Why not.
        source: io::Error,
    },
    /// A file is not text.
    #[error("{file}: is not UTF-8 text: the byte at offset {offset} does not belong there")]
    NotText {
        /// The file.
        file: String,
        /// How many bytes are text.
        offset: usize,
    },
    /// A file must be unpacked before it can be read.
    #[error("{file}: is compressed with gzip: unpack it first")]
    Compressed {
        /// The file.
        file: String,
    },
    /// A file is text, but not as JSON and YAML are written.
    #[error("{file}: is UTF-16 text: save it as UTF-8")]
    Utf16 {
        /// The file.
        file: String,
    },
    /// A text is neither JSON nor YAML.
    #[error("{file}: line {line} column {column}: {format} syntax: {message}")]
    Syntax {
        /// The file.
        file: String,
        /// The line, from 1.
        line: u64,
        /// The column, from 1.
        column: u64,
        /// The format that the text looks like: `JSON` or `YAML`.
        format: &'static str,
        /// What the parser says.
        message: String,
    },
    /// A file holds no object at all.
    #[error("{file}: is empty: expected {expected}")]
    Empty {
        /// The file.
        file: String,
        /// What should be there.
        expected: &'static str,
    },
    /// An object is not what it should be.
    #[error("{file}: {error}")]
    Object {
        /// The file.
        file: String,
        /// The object, the field and the rule.
        error: FieldError,
    },
    /// An object is given twice.
    #[error("{file}: {object}: metadata.name: the same object is in {other_file} already")]
    Duplicate {
        /// The file with the second one.
        file: String,
        /// The kind and the name.
        object: String,
        /// The file with the first one.
        other_file: String,
    },
    /// A list of instance types breaks a rule.
    #[error("{file}: {source}")]
    Catalog {
        /// The file.
        file: String,
        /// The type, the field and the rule.
        source: CatalogError,
    },
    /// Objects do not make a cluster.
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    /// There is no pod of this name in the dump.
    #[error("Pod {pod}: is not in the cluster{}", others(.elsewhere))]
    UnknownPod {
        /// The pod.
        pod: ObjectKey,
        /// Pods of the same name in other namespaces.
        elsewhere: Vec<ObjectKey>,
    },
    /// There is no node of this name in the dump, and no claim without a node.
    #[error("Node {node}: is not in the cluster")]
    UnknownNode {
        /// The node.
        node: String,
    },
    /// There is no instance type of this name in the catalog.
    #[error("{file}: instance type {instance_type}: is not in the catalog")]
    UnknownType {
        /// The instance type.
        instance_type: String,
        /// Where the instance types are from.
        file: String,
    },
    /// There is no node pool of this name in the dump.
    #[error("NodePool {pool}: is not in the cluster")]
    UnknownPool {
        /// The pool.
        pool: String,
    },
    /// The plan does not pass the check.
    #[error("{}", lines(.findings).join("; "))]
    Unsound {
        /// All that is wrong with it.
        findings: Vec<Finding>,
    },
    /// The controller cannot work, or not go on.
    #[error("{what}: {message}")]
    Run {
        /// What is in the way.
        what: &'static str,
        /// Why.
        message: String,
    },
    /// A manifest cannot be converted.
    #[error("{file}: {error}")]
    Convert {
        /// The file.
        file: String,
        /// The object, the field and the rule.
        error: ConvertError,
    },
    /// Nothing can be converted.
    #[error(transparent)]
    NothingToConvert(ConvertError),
    /// A scenario is not what it should be.
    #[error(transparent)]
    Scenario(#[from] Box<ScenarioError>),
    /// What a scenario expects is not the case.
    #[error("{}", .failures.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Unmet {
        /// All that did not come out, in the order of the file.
        failures: Vec<Failure>,
    },
    /// A recording is not what it should be.
    #[error("{file}: line {line}: {message}")]
    Recording {
        /// The file.
        file: String,
        /// The line, from 1.
        line: usize,
        /// What is wrong with it.
        message: String,
    },
    /// An engine does not ask for what it asked for when it was recorded.
    #[error("{file}: line {line}: {difference}")]
    Differs {
        /// The file of the recording.
        file: String,
        /// The line at which it asks for something else, from 1.
        line: usize,
        /// What is different.
        difference: Box<Difference>,
    },
    /// A file cannot be written.
    #[error("{file}: cannot be written: {source}")]
    NotWritten {
        /// The file.
        file: String,
        /// Why not.
        source: io::Error,
    },
    /// The threads that were asked for cannot be had.
    #[error("--threads {threads}: {message}")]
    NoThreads {
        /// How many were asked for.
        threads: usize,
        /// Why not.
        message: String,
    },
    /// The answer cannot be written as YAML.
    #[error("the plan cannot be written: {message}")]
    Unprintable {
        /// What the serializer says.
        message: String,
    },
    /// The answer cannot be written out.
    #[error("standard output: cannot be written: {source}")]
    Unwritable {
        /// Why not.
        source: io::Error,
    },
}

fn others(pods: &[ObjectKey]) -> String {
    let names: Vec<String> = pods.iter().map(ToString::to_string).collect();
    if names.is_empty() { String::new() } else { format!(" (there is {})", names.join(", ")) }
}

fn lines(findings: &[Finding]) -> Vec<String> {
    findings.iter().map(|finding| one_line(&finding.to_string())).collect()
}

impl Error {
    /// The message on one line, or on a line for each finding of a check, whatever texts of the input it quotes.
    pub fn lines(&self) -> Vec<String> {
        match self {
            Self::Unsound { findings } => lines(findings),
            Self::Unmet { failures } => failures.iter().map(|failure| one_line(&failure.to_string())).collect(),
            other => vec![one_line(&other.to_string())],
        }
    }

    /// With which status the command ends: 3 if a plan does not pass its check, otherwise 1.
    pub const fn exit_status(&self) -> u8 {
        if matches!(self, Self::Unsound { .. }) { UNSOUND } else { FAILURE }
    }
}

/// A text without control characters.
pub fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}
