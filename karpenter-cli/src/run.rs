//! `karpenter run`: the controller of a real cluster.

use std::{
    io::ErrorKind,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use clap::{ArgAction, ValueEnum};
use karpenter_core::{
    Catalog, CloudProvider,
    api::go_duration,
    disrupt::SpotToSpot,
    engine::EngineOptions,
    schedule::{MinValuesPolicy, PreferencePolicy, ReservationPolicy},
};
use karpenter_kube::{Client, Controller, ControllerOptions, KwokCloud, LeaseOptions, serve_metrics, serve_probes};
use tokio::net::TcpListener;
use tracing_subscriber::filter::LevelFilter;

#[cfg(feature = "aws")]
use crate::aws;
use crate::{
    Error,
    args::Provider,
    aside::Aside,
    live::{Access, failed},
    load::{self, TypeList},
    plan::{name_of, read_text},
};

/// More calls at once than any API server bears.
const MAX_AT_ONCE: usize = 10_000;

/// What `karpenter run` takes. Flags and variables have the names and defaults of Karpenter's where they mean the same.
#[derive(Debug, clap::Args)]
pub struct RunArgs {
    /// Where machines come from
    #[arg(long, env = "CLOUD_PROVIDER", value_enum, default_value_t = Provider::Kwok)]
    pub provider: Provider,

    /// What the kwok provider sells, a list in JSON or YAML; the catalog of the fake provider unless said otherwise
    #[arg(long, env = "KWOK_CATALOG", value_name = "FILE")]
    pub catalog: Option<PathBuf>,

    /// Which cluster.
    #[command(flatten)]
    pub access: Access,

    /// After the last of several pods so long is waited for another one
    #[arg(long, env = "BATCH_IDLE_DURATION", value_parser = duration, default_value = "1s", value_name = "DURATION")]
    pub batch_idle_duration: Duration,

    /// The first of several pods waits no longer than this
    #[arg(long, env = "BATCH_MAX_DURATION", value_parser = duration, default_value = "10s", value_name = "DURATION")]
    pub batch_max_duration: Duration,

    /// What becomes of what pods only prefer
    #[arg(long, env = "PREFERENCE_POLICY", value_enum, default_value_t = Preferences::Respect, ignore_case = true)]
    pub preference_policy: Preferences,

    /// What becomes of pods for which a pool cannot keep its minValues
    #[arg(long, env = "MIN_VALUES_POLICY", value_enum, default_value_t = MinValues::Strict, ignore_case = true)]
    pub min_values_policy: MinValues,

    /// How many writes a second the API server is asked for
    #[arg(long, env = "KUBE_CLIENT_QPS", default_value_t = 200, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub kube_client_qps: u32,

    /// How many of them at once
    #[arg(long, env = "KUBE_CLIENT_BURST", default_value_t = 300, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub kube_client_burst: u32,

    /// What is switched on or off, such as `NodeRepair=true,SpotToSpotConsolidation=true`
    #[arg(long, env = "FEATURE_GATES", value_parser = gates, default_value = "", value_name = "GATES")]
    pub feature_gates: Gates,

    /// Hold each plan against the lower bound on its bill, for a metric; pods wait about twice as long for a plan then
    #[arg(long, env = "MEASURE_GAP", action = ArgAction::Set, num_args = 0..=1, default_missing_value = "true", default_value_t = false)]
    pub measure_gap: bool,

    /// Act at once: there must be no other replica
    #[arg(long, env = "DISABLE_LEADER_ELECTION", action = ArgAction::Set, num_args = 0..=1, default_missing_value = "true", default_value_t = false)]
    pub disable_leader_election: bool,

    /// The lease that a replica must hold to act
    #[arg(long, env = "LEADER_ELECTION_NAME", default_value = "karpenter-leader-election", value_name = "NAME")]
    pub leader_election_name: String,

    /// Its namespace; that of the pod, or of the context, unless said otherwise
    #[arg(long, env = "LEADER_ELECTION_NAMESPACE", value_name = "NAMESPACE")]
    pub leader_election_namespace: Option<String>,

    /// Who this replica is: a name that no other has
    #[arg(long, env = "HOSTNAME", default_value = "karpenter", hide_env_values = true, value_name = "NAME")]
    pub identity: String,

    /// The port of `/metrics`; 0 for none
    #[arg(long, env = "METRICS_PORT", default_value_t = 8080, value_name = "PORT")]
    pub metrics_port: u16,

    /// The port of `/healthz` and `/readyz`; 0 for none
    #[arg(long, env = "HEALTH_PROBE_PORT", default_value_t = 8081, value_name = "PORT")]
    pub health_probe_port: u16,

    /// How much is logged
    #[arg(long, env = "LOG_LEVEL", value_enum, default_value_t = LogLevel::Info, ignore_case = true)]
    pub log_level: LogLevel,

    /// How machines of EC2 are bought.
    #[cfg(feature = "aws")]
    #[command(flatten)]
    pub aws: aws::AwsArgs,
}

/// What becomes of what pods only prefer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Preferences {
    /// It is required as long as some node meets it, then given up, one preference at a time
    Respect,
    /// It is not looked at
    Ignore,
}

/// What becomes of pods for which a pool cannot keep its `minValues`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum MinValues {
    /// They find no place in the pool
    Strict,
    /// The claim keeps as many values as it can
    #[value(name = "BestEffort")]
    BestEffort,
}

/// How much is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogLevel {
    /// All that may help to find a mistake
    Debug,
    /// What happens
    Info,
    /// What goes wrong
    Error,
}

/// What is switched on or off. The defaults are Karpenter's, but for static pools: who writes `replicas` wants these nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each gate is on or off by itself")]
pub struct Gates {
    /// Nodes that are sick are replaced.
    pub node_repair: bool,
    /// Reservations are used.
    pub reserved_capacity: bool,
    /// Spot nodes are replaced by cheaper ones.
    pub spot_to_spot: bool,
    /// Node overlays count.
    pub node_overlays: bool,
    /// Pools with `replicas` have so many nodes.
    pub static_capacity: bool,
}

impl Default for Gates {
    fn default() -> Self {
        Self {
            node_repair: false,
            reserved_capacity: true,
            spot_to_spot: false,
            node_overlays: false,
            static_capacity: true,
        }
    }
}

/// Reads feature gates. Those that mean nothing here must not be switched on: what would not happen is not promised.
pub(crate) fn gates(text: &str) -> Result<Gates, String> {
    let mut gates = Gates::default();
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let (name, value) =
            part.split_once('=').ok_or_else(|| format!("{part}: NAME=true or NAME=false is expected"))?;
        let value: bool = value.trim().parse().map_err(|_| format!("{part}: true or false is expected"))?;
        match name.trim() {
            "NodeRepair" => gates.node_repair = value,
            "ReservedCapacity" => gates.reserved_capacity = value,
            "SpotToSpotConsolidation" => gates.spot_to_spot = value,
            "NodeOverlay" => gates.node_overlays = value,
            "StaticCapacity" => gates.static_capacity = value,
            _ if !value => {}
            other => return Err(format!("{other}: there is no such feature")),
        }
    }
    Ok(gates)
}

/// Reads a duration as Go writes it, such as `1m30s`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    go_duration(text).ok_or_else(|| "a duration such as 10s, 1m30s or 500ms is expected".to_owned())
}

/// Works until the process is asked to end.
///
/// # Errors
/// Files, clusters and ports that cannot be used, a lease that was lost, and a part that has ended.
pub fn run(args: &RunArgs) -> Result<(), Error> {
    let level = match args.log_level {
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Error => LevelFilter::WARN,
    };
    tracing_subscriber::fmt().json().flatten_event(true).with_max_level(level).with_writer(std::io::stderr).init();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(|source| Error::Run { what: "the runtime", message: source.to_string() })?;
    let ended = runtime.block_on(work(args));
    // Nobody waits for a decision that is under way still.
    runtime.shutdown_background();
    ended
}

/// What the kwok provider sells.
fn catalog(file: Option<&Path>) -> Result<Arc<Catalog>, Error> {
    let Some(file) = file else { return Ok(karpenter_fake::generated_catalog()) };
    let name = name_of(file);
    let TypeList { types, warnings, .. } = load::catalog(&read_text(file)?, &name)?;
    for warning in warnings {
        tracing::warn!(%warning, "the catalog is not read as it may be meant");
    }
    Catalog::new(types).map(Arc::new).map_err(|source| Error::Catalog { file: name, source })
}

async fn work(args: &RunArgs) -> Result<(), Error> {
    let config = args.access.config().await?;
    let namespace = args.leader_election_namespace.clone().unwrap_or_else(|| config.default_namespace.clone());
    let client = Client::try_from(config).map_err(|error| failed("the cluster", &error))?;
    let options = options(args, namespace);
    match args.provider {
        Provider::Kwok => {
            let cloud = KwokCloud::new(client.clone(), catalog(args.catalog.as_deref())?);
            control(args, controller(args, client, Arc::new(cloud), options), Aside::default()).await
        }
        #[cfg(feature = "aws")]
        Provider::Aws => {
            let ec2 = aws::ec2(&args.aws, &client, args.feature_gates.reserved_capacity).await?;
            let controller = controller(args, client.clone(), Arc::new(ec2.provider.clone()), options);
            let aside = ec2.attend(&args.aws, client, &controller.probes());
            control(args, controller, aside).await
        }
    }
}

fn controller(
    args: &RunArgs,
    client: Client,
    cloud: Arc<dyn CloudProvider>,
    mut options: ControllerOptions,
) -> Controller {
    if args.feature_gates.node_repair {
        options.engine.repair_policies = cloud.repair_policies();
    }
    Controller::new(client, cloud, options)
}

/// Works until the process is asked to end, and tells of it meanwhile. Without what goes on beside it, it ends too.
async fn control(args: &RunArgs, controller: Controller, mut aside: Aside) -> Result<(), Error> {
    if let Some(listener) = listen(args.metrics_port).await? {
        aside.begin("the server of metrics", serve_metrics(listener, controller.metrics()));
    }
    if let Some(listener) = listen(args.health_probe_port).await? {
        aside.begin("the server of probes", serve_probes(listener, controller.probes()));
    }
    let mut fallen = None;
    let stop = async {
        tokio::select! {
            () = asked_to_end() => {}
            what = aside.ended() => fallen = Some(what),
        }
    };
    controller.run(stop).await.map_err(|error| failed("the controller", &error))?;
    match fallen {
        Some(what) => Err(Error::Run { what, message: "it has ended, and what it does is left undone".to_owned() }),
        None => Ok(()),
    }
}

fn options(args: &RunArgs, namespace: String) -> ControllerOptions {
    let mut options = ControllerOptions::default();
    options.engine = engine_options(args);
    options.node_overlays = args.feature_gates.node_overlays;
    options.limits.writes_per_second = usize::try_from(args.kube_client_qps).unwrap_or(usize::MAX);
    options.limits.writes_at_once = usize::try_from(args.kube_client_burst).unwrap_or(usize::MAX).min(MAX_AT_ONCE);
    if !args.disable_leader_election {
        let mut lease = LeaseOptions::new(namespace, identity(&args.identity));
        lease.name.clone_from(&args.leader_election_name);
        options.lease = Some(lease);
    }
    options
}

fn engine_options(args: &RunArgs) -> EngineOptions {
    let mut engine = EngineOptions::default();
    engine.batch_idle = args.batch_idle_duration;
    engine.batch_max = args.batch_max_duration;
    engine.measures_gap = args.measure_gap;
    engine.static_capacity = args.feature_gates.static_capacity;
    let preferences = match args.preference_policy {
        Preferences::Respect => PreferencePolicy::Respect,
        Preferences::Ignore => PreferencePolicy::Ignore,
    };
    let min_values = match args.min_values_policy {
        MinValues::Strict => MinValuesPolicy::Strict,
        MinValues::BestEffort => MinValuesPolicy::BestEffort,
    };
    for planner in [&mut engine.planner, &mut engine.disruptor.planner] {
        planner.preferences = preferences;
        planner.min_values = min_values;
    }
    // A node whose pods would have to wait for a reservation goes with what else can be bought for them.
    if args.feature_gates.reserved_capacity {
        engine.planner.reservations = ReservationPolicy::Strict;
    }
    if !args.feature_gates.spot_to_spot {
        engine.disruptor.spot_to_spot = SpotToSpot::Never;
    }
    engine
}

/// Pods have names of their own, processes on one machine have not.
fn identity(name: &str) -> String {
    format!("{name}_{}", std::process::id())
}

async fn listen(port: u16) -> Result<Option<TcpListener>, Error> {
    if port == 0 {
        return Ok(None);
    }
    let any = |address: IpAddr| TcpListener::bind(SocketAddr::new(address, port));
    let mut listener = any(Ipv6Addr::UNSPECIFIED.into()).await;
    // Some kernels have no IPv6.
    if listener.as_ref().is_err_and(|error| error.kind() != ErrorKind::AddrInUse) {
        listener = any(Ipv4Addr::UNSPECIFIED.into()).await;
    }
    listener.map(Some).map_err(|source| Error::Run { what: "a port", message: format!("{port}: {source}") })
}

/// Until SIGTERM or SIGINT.
async fn asked_to_end() {
    use tokio::signal::unix::{SignalKind, signal};

    let Ok(mut terminate) = signal(SignalKind::terminate()) else { return std::future::pending().await };
    tokio::select! {
        _ = terminate.recv() => {}
        _ = tokio::signal::ctrl_c() => {}
    }
    tracing::info!("asked to end");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gates_that_mean_nothing_must_not_be_switched_on() {
        let text = "NodeRepair=true, NodeOverlay=true,ReservedCapacity=false,StaticCapacity=false,CapacityBuffer=false";
        let all = gates(text);
        let asked = Gates {
            node_repair: true,
            reserved_capacity: false,
            spot_to_spot: false,
            node_overlays: true,
            static_capacity: false,
        };
        assert_eq!(all, Ok(asked));
        assert_eq!(gates(""), Ok(Gates::default()));
        assert_eq!(gates("CapacityBuffer=true"), Err("CapacityBuffer: there is no such feature".to_owned()));
        assert_eq!(gates("NodeRepair"), Err("NodeRepair: NAME=true or NAME=false is expected".to_owned()));
        assert_eq!(gates("NodeRepair=on"), Err("NodeRepair=on: true or false is expected".to_owned()));
    }

    fn engine_of(flags: &[&str]) -> EngineOptions {
        use clap::Parser;

        #[derive(Parser)]
        struct Command {
            #[command(flatten)]
            run: RunArgs,
        }
        engine_options(&Command::parse_from(["run"].iter().chain(flags)).run)
    }

    #[test]
    fn pods_do_not_wait_for_a_proof_that_nobody_asked_for() {
        assert!(!engine_of(&[]).measures_gap);
        assert!(engine_of(&["--measure-gap"]).measures_gap);
    }

    #[test]
    fn static_pools_have_their_nodes_unless_the_gate_is_off() {
        assert!(engine_of(&[]).static_capacity);
        assert!(!engine_of(&["--feature-gates", "StaticCapacity=false"]).static_capacity);
    }

    #[test]
    fn only_waiting_pods_wait_for_reservations() {
        let options = |gates: &str| engine_of(&["--feature-gates", gates]);
        let policies = |options: &EngineOptions| [options.planner.reservations, options.disruptor.planner.reservations];
        let fallback = ReservationPolicy::Fallback;
        assert_eq!(policies(&options("ReservedCapacity=true")), [ReservationPolicy::Strict, fallback]);
        assert_eq!(policies(&options("ReservedCapacity=false")), [fallback; 2]);
    }

    #[test]
    fn durations_are_as_go_writes_them() {
        assert_eq!(duration("1m30s"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(duration("1.5s"), Ok(Duration::from_millis(1500)));
        for wrong in ["Never", "10", "-1s", ""] {
            assert_eq!(
                duration(wrong),
                Err("a duration such as 10s, 1m30s or 500ms is expected".to_owned()),
                "{wrong}"
            );
        }
    }
}
