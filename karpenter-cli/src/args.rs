//! The command line.

mod values;

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    time::Duration,
};

use self::values::{dollars, seconds, share, spot_to_spot, threads, workload_share};
use crate::catalog::CatalogArgs;
#[cfg(feature = "kube")]
use crate::{live::Access, run::RunArgs};
use clap::{
    Arg, CommandFactory as _, FromArgMatches as _, Parser, Subcommand, ValueEnum,
    error::{ContextKind, ContextValue, ErrorKind},
};
use karpenter_core::{
    PlannerOptions, Timestamp,
    disrupt::{DisruptorOptions, SpotToSpot},
    schedule::{MinValuesPolicy, PreferencePolicy, ReservationPolicy},
};

/// Decides which Kubernetes nodes should exist.
#[derive(Debug, Parser)]
#[command(name = "karpenter", bin_name = "karpenter", version)]
pub struct Args {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Say where the pending pods of a cluster go: to room that there is, or to new nodes
    Plan(PlanArgs),
    /// Say which nodes of a cluster should go, and what comes in their place
    Consolidate(ConsolidateArgs),
    /// Say where single pods go in the plan and with what, or why they have no place; what keeps single nodes; or what single
    /// pools can launch
    // An option that takes several files would take the pods for files.
    #[command(override_usage = "karpenter explain <POD>... --cluster <FILE>... [OPTIONS]\n       \
        karpenter explain --node <NAME>... --cluster <FILE>... [OPTIONS]\n       \
        karpenter explain --node-pool <NAME>... --cluster <FILE>... [OPTIONS]")]
    Explain(ExplainArgs),
    /// Carry out a scenario in a simulated cluster, and say what happened and what it came to
    Simulate(SimulateArgs),
    /// Make the decisions of a recording again, and say whether they are the same bytes
    Replay(ReplayArgs),
    /// Write manifests of older versions of Karpenter on AWS as they are written today: Provisioner, AWSNodeTemplate, and
    /// NodePool and EC2NodeClass of v1beta1
    Convert(ConvertArgs),
    /// Write what can be bought, in the format that `--catalog` takes
    Catalog(CatalogArgs),
    /// Keep a cluster in the nodes that its pods need
    #[cfg(feature = "kube")]
    Run(RunArgs),
}

/// Where machines come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Provider {
    /// Nodes that kwok plays
    Kwok,
    /// Machines of EC2
    #[cfg(feature = "aws")]
    Aws,
}

/// What `karpenter simulate` takes.
#[derive(Debug, clap::Args)]
pub struct SimulateArgs {
    /// The scenario
    #[arg(value_name = "FILE")]
    pub file: PathBuf,

    /// What all that is random follows from, in the place of the seed in the scenario
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,

    /// Write a page with what happened over time: one HTML file that needs no other
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,

    /// Carry it out a second time with nodes that stay when they are empty or others are cheaper, and say what that costs
    #[arg(long)]
    pub compare: bool,

    /// Write what the engine was told and asked for into this folder, for `karpenter replay`
    #[arg(long, value_name = "DIR")]
    pub record: Option<PathBuf>,

    /// Search on so many threads; the decisions are the same with any number
    #[arg(long, value_name = "N", value_parser = threads)]
    pub threads: Option<usize>,
}

/// What `karpenter replay` takes.
#[derive(Debug, clap::Args)]
pub struct ReplayArgs {
    /// The folder of the recording
    #[arg(value_name = "DIR")]
    pub folder: PathBuf,

    /// Search on so many threads; the decisions are the same with any number
    #[arg(long, value_name = "N", value_parser = threads)]
    pub threads: Option<usize>,
}

/// What `karpenter convert` takes.
#[derive(Debug, clap::Args)]
pub struct ConvertArgs {
    /// The manifests, all of a cluster together: settings of the kubelet go from pools to their classes; `-` is standard input
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,

    /// Leave provisioners without the requirements that Karpenter's webhook added where they say nothing
    #[arg(long)]
    pub ignore_defaults: bool,

    /// How to write the manifests
    #[arg(short, long, value_enum, default_value_t = ManifestFormat::Yaml)]
    pub output: ManifestFormat,
}

/// How manifests are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ManifestFormat {
    /// One document for each manifest
    Yaml,
    /// One document, a list
    Json,
}

/// What `karpenter consolidate` takes.
#[derive(Debug, clap::Args)]
pub struct ConsolidateArgs {
    /// What is looked at.
    #[command(flatten)]
    pub input: InputArgs,

    /// What is changed before.
    #[command(flatten)]
    pub changes: ChangeArgs,

    /// How new nodes are planned.
    #[command(flatten)]
    pub policies: PolicyArgs,

    /// As of when, and for how much.
    #[command(flatten)]
    pub disruption: DisruptionArgs,

    /// Print the first command only
    #[arg(long)]
    pub once: bool,

    /// End the search after so many seconds with what it has found
    #[arg(long, value_parser = seconds, value_name = "SECONDS")]
    pub time_limit: Option<Duration>,

    /// How to print the commands
    #[arg(short, long, value_enum, default_value_t = OutputFormat::Table)]
    pub output: OutputFormat,
}

/// As of when nodes are judged, and for how much they go.
#[derive(Debug, clap::Args)]
pub struct DisruptionArgs {
    /// As of when nodes, budgets and annotations are judged, such as 2026-01-31T12:00:00Z; the present unless said otherwise
    #[arg(long, value_name = "TIMESTAMP")]
    pub now: Option<Timestamp>,

    /// What it must save to move a pod, in dollars an hour; more for pods that cost more to evict. 0.0097 unless said otherwise, or what
    /// pods cost on average on nodes that are three quarters full, if that is less
    #[arg(long, value_parser = dollars, value_name = "DOLLARS")]
    pub min_savings_per_eviction: Option<f64>,

    /// What it must save beside that, as a share of what the nodes that go cost
    #[arg(long, value_parser = share, default_value_t = DisruptorOptions::default().min_savings_share, value_name = "SHARE")]
    pub min_savings: f64,

    /// When spot nodes become other spot nodes: `never`, `always`, or a number of types that must save money; 15 unless said
    /// otherwise
    #[arg(long, value_parser = spot_to_spot, value_name = "RULE")]
    pub spot_to_spot: Option<SpotToSpot>,
}

/// What `karpenter plan` takes.
#[derive(Debug, clap::Args)]
pub struct PlanArgs {
    /// What is planned for.
    #[command(flatten)]
    pub input: InputArgs,

    /// What is changed before.
    #[command(flatten)]
    pub changes: ChangeArgs,

    /// How it is planned.
    #[command(flatten)]
    pub policies: PolicyArgs,

    /// How to print the plan
    #[arg(short, long, value_enum, default_value_t = OutputFormat::Table)]
    pub output: OutputFormat,

    /// Print the proof of the lower bound too, in JSON and YAML
    #[arg(long)]
    pub with_certificate: bool,

    /// End the search after so many seconds with what it has found
    #[arg(long, value_parser = seconds, value_name = "SECONDS")]
    pub time_limit: Option<Duration>,

    /// Hold the plan and the proof of the lower bound to the rules first; if one is broken, say which on standard error,
    /// print no plan and end with status 3
    #[arg(long)]
    pub check: bool,

    /// Plan so many times from the parsed objects and list the time of each
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=MAX_REPEATS))]
    pub repeat: u32,
}

/// What `karpenter explain` takes.
#[derive(Debug, clap::Args)]
pub struct ExplainArgs {
    /// The pods, by namespace and name; `default/` may be left out
    #[arg(required_unless_present_any = ["nodes", "node_pools"], value_name = "POD")]
    pub pods: Vec<String>,

    /// Instead of pods, nodes: what keeps them, and what becomes of their pods if one of them goes
    #[arg(long = "node", num_args = 1.., value_name = "NAME", conflicts_with = "pods")]
    pub nodes: Vec<String>,

    /// Instead of pods, node pools: which instance types they can launch, what rules out the others, and how many of their
    /// nodes may be disrupted now
    #[arg(long = "node-pool", num_args = 1.., value_name = "NAME", conflicts_with_all = ["pods", "nodes"])]
    pub node_pools: Vec<String>,

    /// What is planned for.
    #[command(flatten)]
    pub input: InputArgs,

    /// How it is planned.
    #[command(flatten)]
    pub policies: PolicyArgs,

    /// For nodes and pools: as of when, and for how much nodes go.
    #[command(flatten)]
    pub disruption: DisruptionArgs,

    /// How to print the answers
    #[arg(short, long, value_enum, default_value_t = OutputFormat::Table)]
    pub output: OutputFormat,
}

/// What asks for a cluster that runs.
#[cfg(feature = "kube")]
const LIVE: [&str; 3] = ["live", "context", "kubeconfig"];
/// Nothing asks for a cluster that runs.
#[cfg(not(feature = "kube"))]
const LIVE: [&str; 0] = [];

/// What is planned for.
#[derive(Debug, clap::Args)]
pub struct InputArgs {
    /// Dumps of the cluster as `kubectl get -o json` (or yaml) prints them; `-` is standard input
    #[arg(
        long, required = LIVE.is_empty(), required_unless_present_any = LIVE, conflicts_with_all = LIVE,
        num_args = 1.., value_name = "FILE"
    )]
    pub cluster: Vec<PathBuf>,

    /// The cluster that `kubectl` speaks to, as it is now, in the place of dumps; so too with `--context` or `--kubeconfig`
    #[cfg(feature = "kube")]
    #[arg(long)]
    pub live: bool,

    /// Which cluster.
    #[cfg(feature = "kube")]
    #[command(flatten)]
    pub access: Access,

    /// The instance types that can be bought, a list in JSON or YAML; `-` is standard input
    ///
    /// Without it the catalog of the fake provider is used.
    #[arg(long, value_name = "FILE")]
    pub catalog: Option<PathBuf>,
}

/// Changes to the dump. With any of them the answer is compared with that for the dump as it is.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct ChangeArgs {
    /// The node and its claim are gone: pods of workloads wait for another place, all others go with it
    #[arg(long, help_heading = "What if", num_args = 1.., value_name = "NAME")]
    pub without_node: Vec<String>,

    /// The instance type cannot be bought; nodes of it stay
    #[arg(long, help_heading = "What if", num_args = 1.., value_name = "NAME")]
    pub without_type: Vec<String>,

    /// Node pools that are added, or take the place of those of the same name; `-` is standard input
    #[arg(long, help_heading = "What if", num_args = 1.., value_name = "FILE")]
    pub set_pool: Vec<PathBuf>,

    /// Further objects, or others in the place of those of the same kind and name; a workload stands for its pods, which wait;
    /// `-` is standard input
    #[arg(long, help_heading = "What if", num_args = 1.., value_name = "FILE")]
    pub with: Vec<PathBuf>,
}

impl ChangeArgs {
    /// Whether nothing is changed.
    pub const fn is_empty(&self) -> bool {
        let Self { without_node, without_type, set_pool, with } = self;
        without_node.is_empty() && without_type.is_empty() && set_pool.is_empty() && with.is_empty()
    }
}

/// What becomes of wishes, reservations and `minValues`, what counts as a cost, and what a plan guards against.
#[derive(Debug, clap::Args)]
pub struct PolicyArgs {
    /// What becomes of what pods only prefer
    #[arg(long, value_enum, default_value_t = Preferences::Respect, value_name = "POLICY")]
    pub preferences: Preferences,

    /// What it costs, in dollars an hour, that one preference of weight 100 is not met for one pod; only with `--preferences
    /// weigh`, where it is 0.01 unless said otherwise
    #[arg(long, value_parser = dollars, value_name = "DOLLARS")]
    pub preference_price: Option<f64>,

    /// What becomes of pods that could use a reservation of which nothing is left
    #[arg(long, value_enum, default_value_t = Reservations::Fallback, value_name = "POLICY")]
    pub reservations: Reservations,

    /// What becomes of pods for which a pool cannot keep its minValues
    #[arg(long, value_enum, default_value_t = MinValues::Strict, value_name = "POLICY")]
    pub min_values: MinValues,

    /// What further nodes may cost, so that each pod finds one in whatever order the kube-scheduler binds them, as a share of what
    /// the cluster costs; 0.06 unless said otherwise, and 0 where it is asked which nodes should go. Unless it is 0, plans are
    /// compared by what they are likely to cost once pods are bound, not by what they cost alone: of few pods the one that is chosen
    /// may cost more than the cheapest by a larger share
    #[arg(long, value_parser = share, value_name = "SHARE")]
    pub slack: Option<f64>,

    /// What each node costs beyond its price, in dollars an hour: licences of agents, watching, draining
    #[arg(long, value_parser = dollars, default_value_t = PlannerOptions::default().node_cost_per_hour, value_name = "DOLLARS")]
    pub node_cost: f64,

    /// What it costs, in dollars, when the cloud takes a machine back
    #[arg(long, value_parser = dollars, default_value_t = PlannerOptions::default().interruption_cost, value_name = "DOLLARS")]
    pub interruption_cost: f64,

    /// How many instance types a node keeps that may be launched as spot, where its pods allow it; 0 for any number. By default
    /// 3, where that makes no plan of few pods dearer than Karpenter's
    #[arg(long, value_name = "N")]
    pub min_spot_types: Option<usize>,

    /// The most pods of one workload on a node, as a share of its pods; without it there is no such rule
    #[arg(long, value_parser = workload_share, value_name = "SHARE")]
    pub max_workload_share: Option<f64>,
}

/// What becomes of what pods only prefer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Preferences {
    /// It is required as long as some node meets it, then given up, one preference at a time
    Respect,
    /// It is not looked at
    Ignore,
    /// It is met where that costs no more than `--preference-price`
    Weigh,
}

/// What becomes of pods that could use a reservation of which nothing is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Reservations {
    /// They may use other capacity
    Fallback,
    /// They wait until the machines of the reservation have been launched
    Strict,
}

/// What becomes of pods for which a pool cannot keep its `minValues`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum MinValues {
    /// They find no place in the pool
    Strict,
    /// The claim keeps as many values as it can
    BestEffort,
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

impl Args {
    /// Reads the words of a command line, the first of which names the program. If they are wrong, or ask for help, the process
    /// ends.
    pub fn read(words: Vec<OsString>) -> Self {
        let mut command = Self::command().mut_subcommands(|one| one.mut_args(with_negative_numbers));
        let read = command.try_get_matches_from_mut(words).and_then(|matches| Self::from_arg_matches(&matches));
        read.unwrap_or_else(|error| with_hint(error).format(&mut command).exit())
    }
}

/// The error with a hint if pods were most likely taken for dumps.
fn with_hint(mut error: clap::Error) -> clap::Error {
    let missing = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::Strings(missing)) if error.kind() == ErrorKind::MissingRequiredArgument => {
            missing.as_slice()
        }
        _ => &[],
    };
    if matches!(missing, [only] if only.starts_with("<POD>")) {
        let hint =
            "--cluster takes all names after it for files: name the pods before it, or after a -- behind the files";
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![hint.into()]));
    }
    error
}

/// An option with one value takes a number below zero for it, and says itself what is wrong with that.
fn with_negative_numbers(arg: Arg) -> Arg {
    let has_value = !arg.is_positional() && arg.get_action().takes_values();
    let has_several = arg.get_num_args().is_some_and(|values| values.max_values() > 1);
    arg.allow_negative_numbers(has_value && !has_several)
}

impl InputArgs {
    /// Checks what the parser of the command line cannot: standard input can be read only once.
    ///
    /// # Errors
    /// A usage error that is ready to be printed.
    pub fn check(&self, changes: &ChangeArgs) -> Result<(), clap::Error> {
        read_once(self.cluster.iter().chain(&self.catalog).chain(&changes.set_pool).chain(&changes.with))
    }
}

impl PlanArgs {
    /// Checks what the parser of the command line cannot: a table has no room for a proof.
    ///
    /// # Errors
    /// A usage error that is ready to be printed.
    pub fn check(&self) -> Result<(), clap::Error> {
        if self.with_certificate && self.output == OutputFormat::Table {
            let message = "`--with-certificate` needs `-o json` or `-o yaml`";
            return Err(Args::command().error(ErrorKind::ArgumentConflict, message));
        }
        Ok(())
    }
}

impl ConvertArgs {
    /// Checks what the parser of the command line cannot: standard input can be read only once.
    ///
    /// # Errors
    /// A usage error that is ready to be printed.
    pub fn check(&self) -> Result<(), clap::Error> {
        read_once(&self.files)
    }
}

/// Whether standard input is among the files no more than once.
fn read_once<'f>(files: impl IntoIterator<Item = &'f PathBuf>) -> Result<(), clap::Error> {
    if files.into_iter().filter(|file| is_standard_input(file)).count() > 1 {
        let message = "`-` is given twice, but standard input can be read only once";
        return Err(Args::command().error(ErrorKind::ArgumentConflict, message));
    }
    Ok(())
}

impl PolicyArgs {
    /// Checks what the parser of the command line cannot: a price says nothing where preferences have none.
    ///
    /// # Errors
    /// A usage error that is ready to be printed.
    pub fn check(&self) -> Result<(), clap::Error> {
        if self.preference_price.is_some() && self.preferences != Preferences::Weigh {
            let message = "`--preference-price` needs `--preferences weigh`";
            return Err(Args::command().error(ErrorKind::ArgumentConflict, message));
        }
        Ok(())
    }

    /// The same as the planner takes it.
    pub fn options(&self) -> PlannerOptions {
        self.over(PlannerOptions::default())
    }

    /// These options with all that was said on the command line.
    fn over(&self, mut options: PlannerOptions) -> PlannerOptions {
        options.preferences = match self.preferences {
            Preferences::Respect => PreferencePolicy::Respect,
            Preferences::Ignore => PreferencePolicy::Ignore,
            Preferences::Weigh => PreferencePolicy::Weigh,
        };
        options.preference_price_per_hour = self.preference_price.unwrap_or(options.preference_price_per_hour);
        options.reservations = match self.reservations {
            Reservations::Fallback => ReservationPolicy::Fallback,
            Reservations::Strict => ReservationPolicy::Strict,
        };
        options.min_values = match self.min_values {
            MinValues::Strict => MinValuesPolicy::Strict,
            MinValues::BestEffort => MinValuesPolicy::BestEffort,
        };
        options.slack = self.slack.unwrap_or(options.slack);
        options.node_cost_per_hour = self.node_cost;
        options.interruption_cost = self.interruption_cost;
        options.min_spot_types = self.min_spot_types;
        options.max_workload_share = self.max_workload_share;
        options
    }
}

impl DisruptionArgs {
    /// The same as the disruptor takes it, with these policies for new nodes.
    pub fn options(&self, policies: &PolicyArgs) -> DisruptorOptions {
        let mut options = DisruptorOptions::default();
        options.planner = policies.over(options.planner);
        options.min_savings_per_eviction = self.min_savings_per_eviction;
        options.min_savings_share = self.min_savings;
        options.spot_to_spot = self.spot_to_spot.unwrap_or_default();
        options
    }

    /// As of when nodes are judged.
    pub fn now(&self) -> Timestamp {
        self.now.unwrap_or_else(present)
    }
}

#[expect(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "how long pods have run depends on when it is asked"
)]
pub(crate) fn present() -> Timestamp {
    let since_epoch = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_millis(i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX))
}

/// Whether a file name stands for standard input.
pub fn is_standard_input(file: &Path) -> bool {
    file.as_os_str() == "-"
}
