//! Scenarios: what happens to a cluster, as a text that people read and write.
//!
//! A scenario is a list of commands, one a line, carried out from top to bottom. Time stands still but in `tick` and
//! `until`. A line that begins with `#` is kept in the transcript; after other words `#` begins a comment that is not.
//!
//! | command | what it does |
//! |---|---|
//! | `seed 7` | all that is random follows from this number |
//! | `catalog FILE` | what the cloud sells; without it the generated catalog |
//! | `start 2026-03-02T06:00:00Z` | the time at the start |
//! | `option NAME VALUE` | one of `batch-idle`, `batch-max`, `disruption` (a period or `off`), `min-spot-types`, `slack` |
//! | `repair CONDITION=STATUS after 10m` | a node with this condition is replaced |
//! | `apply FILE`, or `apply` and an indented block | manifests: pools, workloads, daemonsets, budgets and more |
//! | `add-pods web 30 cpu=500m memory=512Mi` | a Deployment, or with `kind=StatefulSet` a StatefulSet |
//! | `add-job batch 10 20m cpu=2` | a Job of ten pods that take so long each |
//! | `add-daemons logs cpu=100m` | a DaemonSet |
//! | `protect web min-available=80%` | a disruption budget, or with `max-unavailable=1` |
//! | `scale web 4` | another number of pods |
//! | `delete KIND/NAME` | `workload`, `pod`, `node`, `nodeclaim`, `nodepool` or `budget` |
//! | `tick 10m`, `until 22:00` | time passes |
//! | `ice TYPE ZONE CAPACITY for 3m` | offerings are sold out; `*` is any |
//! | `price TYPE [ZONE] [CAPACITY] x2` | offerings have another price, also `=0.40` |
//! | `interrupt NODE [notice=2m]` | the cloud takes a machine back |
//! | `kill NODE [silently]` | a machine ends at once |
//! | `unhealthy NODE CONDITION[=STATUS]` | a node has a condition |
//! | `withhold-memory TYPE 500Mi` | machines have less memory than the catalog says |
//! | `lose-answers 3`, `throttle 2m`, `lose-watch 1m` | calls and watches fail |
//! | `crash` | the engine is stopped and starts anew |
//! | `explain pod/NAME`, `explain NODE` | why something is as it is |
//! | `expect COUNT [<=\|>=] N` | see below |
//! | `show` | the nodes and pods that there are |
//!
//! `NODE` is the name of a node, or `a node`, `a spot node`, `an on-demand node`, `a node of POOL`. The pods of `add-pods`,
//! `add-job` and `add-daemons` take `cpu=`, `memory=`, any resource with a slash in its name such as `nvidia.com/gpu=1`,
//! `zone=`, `arch=`, `capacity-type=`, `instance-type=`, `pool=` and `do-not-disrupt`; they have the label `app` with the
//! name of their workload.
//!
//! What can be expected: `nodes`, `nodes of POOL`, `nodes with KEY=VALUE`, `claims`, `machines`, `pods running`,
//! `pods of web running`, `pending`, `disrupted [REASON]`, `launched`, `refused`, `evicted`, each with a number;
//! `bill <= 1.50` in dollars; and `no-breaches`.

mod command;
mod expect;
mod parse;
mod play;
mod pods;
mod transcript;
mod words;

use std::{sync::Arc, time::Duration};

use karpenter_core::{Timestamp, engine::EngineOptions};

pub use command::{
    Command, Comparison, Countable, Doomed, Expectation, Fault, Manifests, Moment, NodeChoice, OfferingPattern,
    PriceChange, Protection, Subject,
};
pub use play::{Asked, Failure, Manifest, Play, Question, Stage};

/// A scenario as it was written.
///
/// ```
/// use karpenter_fake::sim::scenario::{Command, Scenario};
///
/// let scenario = Scenario::parse("seed 7\nadd-pods web 30 cpu=500m\ntick 10m\nexpect pods running 30\n", "shop.scenario")?;
/// assert_eq!(scenario.setup.seed, 7);
/// assert!(matches!(scenario.statements[2].command, Command::Tick(_)));
///
/// let error = Scenario::parse("seed 7\ntik 10m\n", "shop.scenario").unwrap_err();
/// assert_eq!(error.to_string(), "shop.scenario: line 2: `tik`: there is no such command; is `tick` meant?");
/// # Ok::<(), karpenter_fake::sim::scenario::ScenarioError>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Scenario {
    /// The name of its file, for messages.
    pub file: Arc<str>,
    /// What is in force from the start.
    pub setup: Setup,
    /// The commands in their order.
    pub statements: Vec<Statement>,
}

/// What is in force from the start of a scenario.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Setup {
    /// What all that is random follows from. 0 unless written.
    pub seed: u64,
    /// The file of the catalog, as it was written, with its line; `None` for the generated catalog.
    pub catalog: Option<(String, usize)>,
    /// The time at the start.
    pub start: Timestamp,
    /// How the engine works.
    pub options: EngineOptions,
}

/// A command with its place.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Statement {
    /// The line, from 1.
    pub line: usize,
    /// The line as it was written, and the block below it if there is one.
    pub text: String,
    /// What it says.
    pub command: Command,
}

/// A line of a scenario that is not what it should be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}: line {line}: {}{kind}", quoted(.word))]
pub struct ScenarioError {
    /// The file.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// The word that is wrong; empty if something is missing at the end of the line.
    pub word: String,
    /// What is wrong with it.
    pub kind: ScenarioErrorKind,
}

/// What is wrong with a line of a scenario.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ScenarioErrorKind {
    /// A command that does not exist.
    #[error("there is no such command{}", is_it(*.meant))]
    UnknownCommand {
        /// The command that is likely meant.
        meant: Option<&'static str>,
    },
    /// Something else should be there.
    #[error("expected {0}")]
    Expected(&'static str),
    /// This very word should be there.
    #[error("expected the word `{0}`")]
    ExpectedWord(&'static str),
    /// There should be no further word.
    #[error("nothing more is expected in this line")]
    Superfluous,
    /// A number is too large.
    #[error("{most} at most")]
    TooMuch {
        /// The largest.
        most: u64,
    },
    /// A time is too long.
    #[error("{} days at most", .most.as_secs() / 86_400)]
    TooLong {
        /// The longest.
        most: Duration,
    },
    /// A setting comes after the first command.
    #[error("it must come before the first command that is none of seed, catalog, start, option and repair")]
    TooLate,
    /// A line is indented and belongs to no block.
    #[error("the line is indented, but there is no `apply` above it")]
    Stray,
    /// What a pod asks for cannot be.
    #[error("{0}")]
    Pod(Box<karpenter_core::api::FieldError>),
    /// Manifests or a catalog cannot be read.
    #[error("{0}")]
    Unreadable(String),
}

fn quoted(word: &str) -> String {
    let shown: String = word.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    if shown.is_empty() { String::new() } else { format!("`{shown}`: ") }
}

fn is_it(meant: Option<&str>) -> String {
    meant.map(|meant| format!("; is `{meant}` meant?")).unwrap_or_default()
}

impl Scenario {
    /// Reads a scenario. `file` is named in errors and in the transcript.
    ///
    /// # Errors
    /// The first line that is not what it should be.
    pub fn parse(text: &str, file: &str) -> Result<Self, ScenarioError> {
        parse::scenario(text, file)
    }

    /// How much time passes in it.
    pub fn duration(&self) -> Duration {
        let mut now = self.setup.start;
        for statement in &self.statements {
            match statement.command {
                Command::Tick(duration) => now = now + duration,
                Command::Until(moment) => now = now.max(moment.after(now)),
                _ => {}
            }
        }
        now.since(self.setup.start)
    }
}
