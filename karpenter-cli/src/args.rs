//! The command line.

use std::path::{Path, PathBuf};

use clap::{CommandFactory as _, Parser, Subcommand, ValueEnum, error::ErrorKind};

/// Decides which Kubernetes nodes should exist.
#[derive(Debug, Parser)]
#[command(name = "karpenter", version)]
pub struct Args {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Say where the pending pods of a dumped cluster go: to room that there is, or to new nodes
    Plan(PlanArgs),
}

/// What `karpenter plan` takes.
#[derive(Debug, clap::Args)]
pub struct PlanArgs {
    /// Dumps of the cluster as `kubectl get -o json` (or yaml) prints them; `-` is standard input
    #[arg(long, required = true, num_args = 1.., value_name = "FILE")]
    pub cluster: Vec<PathBuf>,

    /// The instance types that can be bought, a list in JSON or YAML; `-` is standard input
    ///
    /// Without it the catalog of the fake provider is used.
    #[arg(long, value_name = "FILE")]
    pub catalog: Option<PathBuf>,

    /// How to print the plan
    #[arg(short, long, value_enum, default_value_t = OutputFormat::Table)]
    pub output: OutputFormat,

    /// Plan so many times from the parsed objects and list the time of each
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=MAX_REPEATS))]
    pub repeat: u32,
}

/// The most that `--repeat` takes: enough for any statistics over times.
const MAX_REPEATS: i64 = 10_000;

/// How a plan is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OutputFormat {
    /// One JSON document
    Json,
    /// The same document in YAML
    Yaml,
    /// Tables for people
    Table,
}

impl PlanArgs {
    /// Checks what the parser of the command line cannot: standard input can be read only once.
    ///
    /// # Errors
    /// A usage error that is ready to be printed.
    pub fn check(&self) -> Result<(), clap::Error> {
        let files = self.cluster.iter().chain(&self.catalog);
        if files.filter(|file| is_standard_input(file)).count() > 1 {
            let message = "`-` is given twice, but standard input can be read only once";
            return Err(Args::command().error(ErrorKind::ArgumentConflict, message));
        }
        Ok(())
    }
}

/// Whether a file name stands for standard input.
pub fn is_standard_input(file: &Path) -> bool {
    file.as_os_str() == "-"
}
