//! Machines of EC2.

use std::{path::PathBuf, sync::Arc, time::Duration};

use clap::ArgAction;
use karpenter_aws::{
    AwsApi, JoinedMachines, NodeClasses, ZonalShifts,
    ec2::profile::ClusterInfo,
    interruption::{HealthCheck, InterruptionQueue},
    node_classes,
    provider::{ClusterAccess, Ec2Provider, Preparation, ProviderOptions},
    sdk::{SdkAws, TokioClock},
};
use karpenter_kube::{Client, Probes};

use crate::{
    Error,
    aside::Aside,
    live::failed,
    load,
    plan::{name_of, read_text},
};

/// What bears on the instance types of EC2. Flags and variables have the names and defaults of Karpenter's where they mean the
/// same.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "With --provider aws")]
pub struct TypeArgs {
    /// Nothing but EC2, SSM, STS and SQS can be reached: prices on demand are not asked for, and instance profiles are not collected
    #[arg(long, env = "ISOLATED_VPC", action = ArgAction::Set, num_args = 0..=1, default_missing_value = "true", default_value_t = false)]
    pub isolated_vpc: bool,

    /// How much of the memory of machines the hypervisor takes, as a share
    #[arg(long, env = "VM_MEMORY_OVERHEAD_PERCENT", default_value_t = 0.075, value_parser = share, value_name = "SHARE")]
    pub vm_memory_overhead_percent: f64,

    /// Gates of the provider: with NodeClassCEL=true expressions in CEL in settings of kubelets are evaluated; others do nothing
    #[arg(long, env = "AWS_FEATURE_GATES", action = ArgAction::Set, default_value = "NodeClassCEL=false", value_parser = evaluates_expressions, value_name = "GATES")]
    pub aws_feature_gates: bool,

    /// How many network interfaces of a machine no pod has addresses of
    #[arg(long, env = "RESERVED_ENIS", default_value_t = 0, value_name = "N")]
    pub reserved_enis: u32,

    /// What EC2 does not say of its types: a file with `branchInterfaces` and `networkBandwidthMbps`, each by type; none unless said otherwise
    #[arg(long, env = "AWS_INSTANCE_FACTS", value_name = "FILE")]
    pub aws_instance_facts: Option<PathBuf>,

    /// Prices that count where AWS says none, such as on demand in an isolated network: a file with `onDemand` by type, and `spot` by type and zone
    #[arg(long, env = "AWS_PRICES", value_name = "FILE")]
    pub aws_prices: Option<PathBuf>,
}

/// What the provider of EC2 takes. Flags and variables have the names and defaults of Karpenter's where they mean the same.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "With --provider aws")]
pub struct AwsArgs {
    /// The name of the cluster: machines, launch templates and instance profiles are tagged with it
    #[arg(long, env = "CLUSTER_NAME", default_value = "", value_name = "NAME")]
    pub cluster_name: String,

    /// The address of the API server for nodes; what EKS says of the cluster unless said otherwise
    #[arg(long, env = "CLUSTER_ENDPOINT", value_parser = endpoint, value_name = "URL")]
    pub cluster_endpoint: Option<String>,

    /// The certificate of the API server for nodes, in base64; what EKS says of the cluster unless said otherwise
    #[arg(long, env = "CLUSTER_CA_BUNDLE", value_name = "BASE64")]
    pub cluster_ca_bundle: Option<String>,

    /// What the types are like.
    #[command(flatten)]
    pub types: TypeArgs,

    /// Do not try out, without buying anything, what the credentials allow, before a class is ready
    #[arg(long, env = "DISABLE_DRY_RUN", action = ArgAction::Set, num_args = 0..=1, default_missing_value = "true", default_value_t = false)]
    pub disable_dry_run: bool,

    /// The queue that tells of interruptions; none unless said otherwise
    #[arg(long, env = "INTERRUPTION_QUEUE", default_value = "", value_name = "NAME")]
    pub interruption_queue: String,

    /// ARC is asked for zonal shifts of the cluster, which must be one of EKS: nothing is bought in their zones
    #[arg(long, env = "ENABLE_ZONAL_SHIFT", action = ArgAction::Set, num_args = 0..=1, default_missing_value = "true", default_value_t = false)]
    pub enable_zonal_shift: bool,

    /// For how long the images that a class found are good, a minute or more
    #[arg(long, env = "AMI_REFRESH_INTERVAL", default_value = "1m", value_parser = refresh_interval, value_name = "DURATION")]
    pub ami_refresh_interval: Duration,

    /// For how long the subnets that a class found are good, a minute or more
    #[arg(long, env = "SUBNET_REFRESH_INTERVAL", default_value = "1m", value_parser = refresh_interval, value_name = "DURATION")]
    pub subnet_refresh_interval: Duration,
}

impl AwsArgs {
    /// The certificate, if there is one: a variable that is empty says nothing.
    fn ca_bundle(&self) -> Option<&str> {
        self.cluster_ca_bundle.as_deref().filter(|bundle| !bundle.is_empty())
    }
}

impl TypeArgs {
    /// # Errors
    /// A file cannot be read.
    fn options(&self, cluster_name: &str, region: String, cluster: ClusterAccess) -> Result<ProviderOptions, Error> {
        let mut options = ProviderOptions::new(cluster_name, region, cluster);
        options.types.reserved_enis = self.reserved_enis;
        options.types.vm_memory_overhead_millionths = millionths(self.vm_memory_overhead_percent);
        options.types.evaluates_expressions = self.aws_feature_gates;
        if let Some(file) = &self.aws_instance_facts {
            options.types.facts = Arc::new(load::facts(&read_text(file)?, &name_of(file))?);
        }
        if let Some(file) = &self.aws_prices {
            options.prices = load::prices(&read_text(file)?, &name_of(file))?;
        }
        options.is_isolated = self.isolated_vpc;
        Ok(options)
    }
}

/// An address that says how and where.
fn endpoint(text: &str) -> Result<String, String> {
    let (scheme, rest) = text.split_once("://").unwrap_or_default();
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = authority.rsplit('@').next().unwrap_or_default();
    let has_host = !host.is_empty() && !host.starts_with(':') && !text.contains(char::is_whitespace);
    let has_scheme = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c));
    if has_host && has_scheme {
        Ok(text.to_owned())
    } else {
        Err("an address with a host is expected, such as https://ABCDEF.gr7.us-west-2.eks.amazonaws.com".to_owned())
    }
}

fn refresh_interval(text: &str) -> Result<Duration, String> {
    let least = Duration::from_mins(1);
    let interval = crate::run::duration(text).ok().filter(|interval| *interval >= least);
    interval.ok_or_else(|| "a duration of at least a minute is expected, such as 5m".to_owned())
}

fn share(text: &str) -> Result<f64, String> {
    let share = text.parse().ok().filter(|share| (0.0..1.0).contains(share));
    share.ok_or_else(|| "a number from 0 to 1, less than 1, is expected".to_owned())
}

/// What the gate `NodeClassCEL` says; it is closed unless somebody opens it.
fn evaluates_expressions(text: &str) -> Result<bool, String> {
    let mut is_open = false;
    for gate in text.split(',').map(str::trim).filter(|gate| !gate.is_empty()) {
        let said = gate.split_once('=').and_then(|(name, value)| Some((name, value.parse::<bool>().ok()?)));
        let (name, value) = said.ok_or_else(|| format!("{gate:?} is not of the form NAME=true or NAME=false"))?;
        if name == "NodeClassCEL" {
            is_open = value;
        }
    }
    Ok(is_open)
}

/// How long after a failure the queue of interruptions is read again, and how often a replica that does not act looks whether it
/// does by now.
const PAUSE: Duration = Duration::from_secs(5);

/// How often it is asked how machines fare, and looked whether prices come.
const HEALTH_PERIOD: Duration = Duration::from_mins(1);

/// AWS, and the provider that buys there.
pub(crate) struct Ec2 {
    api: Arc<dyn AwsApi>,
    pub(crate) provider: Ec2Provider,
    /// The cluster of which ARC tells, if it is asked.
    shifting: Option<String>,
}

impl Ec2 {
    /// Starts what goes on beside the controller: node classes and machines that have joined are looked after, EC2 is asked how
    /// machines fare, and the queue of interruptions is read, by the replica that acts. All replicas ask for zonal shifts.
    pub(crate) fn attend(self, args: &AwsArgs, client: Client, probes: &Arc<Probes>) -> Aside {
        let joined = JoinedMachines::new(client.clone(), self.provider.clone());
        let classes = NodeClasses::new(client.clone(), self.provider.clone());
        let health = HealthCheck::new(Arc::clone(&self.api), Arc::new(TokioClock), self.provider.clone());
        let is_leader = |probes: &Arc<Probes>| {
            let probes = Arc::clone(probes);
            move || probes.is_leader()
        };
        let mut aside = Aside::default();
        aside.begin("what looks whether prices come", tell_faults_of_prices(self.provider.clone()));
        aside.begin("what looks after node classes", classes.run(is_leader(probes)));
        aside.begin("what looks after machines that have joined", joined.run(is_leader(probes)));
        aside.begin("what asks how machines fare", check(health, is_leader(probes)));
        if let Some(arn) = self.shifting {
            let shifts = ZonalShifts::new(client, self.provider.clone(), arn);
            aside.begin("what asks for zonal shifts", shifts.run(is_leader(probes)));
        }
        if !args.interruption_queue.is_empty() {
            let queue = InterruptionQueue::new(self.api, self.provider, &args.interruption_queue);
            aside.begin("what reads the queue of interruptions", read(queue, is_leader(probes)));
        }
        aside
    }
}

/// Says when AWS does not say prices, and when it does again.
async fn tell_faults_of_prices(provider: Ec2Provider) {
    let mut told = None;
    loop {
        let fault = provider.price_fault();
        match &fault {
            _ if fault == told => {}
            Some(fault) => tracing::warn!(error = %fault, "AWS does not say prices: what has none is not bought"),
            None => tracing::info!("AWS says prices again"),
        }
        told = fault;
        tokio::time::sleep(HEALTH_PERIOD).await;
    }
}

async fn check(mut health: HealthCheck, is_leader: impl Fn() -> bool) {
    loop {
        tokio::time::sleep(HEALTH_PERIOD).await;
        if !is_leader() {
            continue;
        }
        match health.poll().await {
            Ok(found) => {
                for (machine, ailment) in &found {
                    tracing::info!(machine, ?ailment, "a machine is not well");
                }
            }
            Err(error) => tracing::warn!(error = %error, "EC2 does not say how machines fare"),
        }
    }
}

async fn read(mut queue: InterruptionQueue, is_leader: impl Fn() -> bool) {
    loop {
        if !is_leader() {
            tokio::time::sleep(PAUSE).await;
            continue;
        }
        match queue.poll().await {
            Ok(messages) => messages.iter().for_each(|message| tracing::info!(?message, "AWS tells")),
            Err(error) => {
                tracing::warn!(error = %error, "the queue of interruptions cannot be read");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

/// What a provider knows of AWS before anything else.
struct Account {
    api: Arc<dyn AwsApi>,
    region: String,
}

impl Account {
    /// The account and the region that the environment says.
    async fn of_environment() -> Result<Self, Error> {
        let config = SdkAws::environment().load().await;
        let region = config.region().map(ToString::to_string);
        let region =
            region.ok_or_else(|| missing("the region", "neither AWS_REGION nor the machine says which it is"))?;
        Ok(Self { api: Arc::new(SdkAws::new(&config)), region })
    }
}

fn missing(what: &'static str, message: &str) -> Error {
    Error::Run { what, message: message.to_owned() }
}

/// A provider that is only asked what can be bought, and changes nothing in the account, with the node classes of the cluster. Those
/// that cannot be read are named.
///
/// # Errors
/// The region is not known, or the API server does not answer.
pub(crate) async fn ec2_to_ask(
    args: &TypeArgs,
    client: &Client,
    uses_reservations: bool,
) -> Result<(Ec2Provider, Vec<String>), Error> {
    let Account { api, region } = Account::of_environment().await?;
    let cluster = ClusterAccess { version: version(client).await?, ..ClusterAccess::default() };
    let mut options = args.options("", region, cluster)?;
    options.preparation = Preparation::Nothing;
    options.uses_reservations = uses_reservations;
    let provider = Ec2Provider::new(api, Arc::new(TokioClock), options);
    let (classes, faults) = node_classes(client).await.map_err(|error| failed("the node classes", &error))?;
    for class in classes {
        provider.apply_class(class);
    }
    let left_out = |(name, fault)| format!("EC2NodeClass {name}: {fault} (it is left out)");
    Ok((provider, faults.into_iter().map(left_out).collect()))
}

/// The version of the control plane, such as `1.33`.
async fn version(client: &Client) -> Result<String, Error> {
    let version = client.apiserver_version().await.map_err(|error| failed("the cluster", &error))?;
    let minor = version.minor.trim_end_matches(|c: char| !c.is_ascii_digit());
    Ok(format!("{}.{minor}", version.major))
}

/// A provider that is not told of any node class yet. It knows the machines of the claims that there are, which may have been
/// bought by another controller.
///
/// # Errors
/// The name of the cluster, the region or the address of the API server is not known, or AWS or the API server does not answer.
pub(crate) async fn ec2(args: &AwsArgs, client: &Client, uses_reservations: bool) -> Result<Ec2, Error> {
    if args.cluster_name.is_empty() {
        return Err(missing("--cluster-name", "it is needed with --provider aws; CLUSTER_NAME says it too"));
    }
    let Account { api, region } = Account::of_environment().await?;
    let (cluster, arn) = cluster(args, client, api.as_ref()).await?;
    let mut options = args.types.options(&args.cluster_name, region, cluster)?;
    if args.disable_dry_run {
        options.preparation = Preparation::Profile;
    }
    options.uses_reservations = uses_reservations;
    options.images_period = args.ami_refresh_interval;
    options.subnets_period = args.subnet_refresh_interval;
    let provider = Ec2Provider::new(Arc::clone(&api), Arc::new(TokioClock), options);
    for (machine, uid) in karpenter_kube::machines(client).await.map_err(|error| failed("the cluster", &error))? {
        provider.adopt(&machine, &uid);
    }
    let shifting = args.enable_zonal_shift.then_some(arn);
    if let Some(arn) = &shifting {
        // Nothing is bought before it is known where not to.
        provider.ask_for_shifts(arn).await.map_err(|error| failed("--enable-zonal-shift", &error))?;
    }
    Ok(Ec2 { api, provider, shifting })
}

/// How nodes reach the cluster: as it was said, and else as EKS says; and its ARN, which is empty if EKS does not know it. A
/// cluster that is not one of EKS must say all of it.
async fn cluster(args: &AwsArgs, client: &Client, api: &dyn AwsApi) -> Result<(ClusterAccess, String), Error> {
    let version = version(client).await?;
    let known = match api.describe_cluster(&args.cluster_name).await {
        Ok(known) => known,
        Err(error) if args.cluster_endpoint.is_some() && args.ca_bundle().is_some() && !args.enable_zonal_shift => {
            tracing::warn!(error = %error, "EKS says nothing of the cluster: AL2023 does not get to know the range of its services");
            ClusterInfo::default()
        }
        Err(error) => return Err(failed("the cluster", &error)),
    };
    let is_ipv4 = !known.service_ipv4_cidr.is_empty();
    let service_cidr = if is_ipv4 { known.service_ipv4_cidr } else { known.service_ipv6_cidr };
    let access = ClusterAccess {
        endpoint: args.cluster_endpoint.clone().unwrap_or(known.endpoint),
        ca_bundle: args.ca_bundle().map_or(known.ca_bundle, str::to_owned),
        version,
        dns_address: ClusterAccess::dns_address_of(&service_cidr),
        service_cidr,
    };
    Ok((access, known.arn))
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share is from 0 to 1")]
fn millionths(share: f64) -> u32 {
    (share * 1e6).round() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gates_that_nobody_knows_do_nothing() {
        assert_eq!(evaluates_expressions(""), Ok(false));
        assert_eq!(evaluates_expressions("NodeClassCEL=true,Other=false"), Ok(true));
        assert_eq!(evaluates_expressions("Other=true"), Ok(false));
        assert!(evaluates_expressions("NodeClassCEL").is_err());
    }

    #[test]
    fn an_address_of_the_cluster_has_a_host() {
        for right in ["https://a.example", "https://10.0.0.1:443/path", "http://user@[::1]:80"] {
            assert_eq!(endpoint(right).as_deref(), Ok(right));
        }
        for wrong in
            ["", "a.example", "/path", "https://", "https:///path", "://a", "https://:443", "https://a b", "1s://a"]
        {
            assert!(endpoint(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_was_found_is_good_for_a_minute_at_least() {
        assert_eq!(refresh_interval("1m"), Ok(Duration::from_mins(1)));
        assert_eq!(refresh_interval("1h30m"), Ok(Duration::from_mins(90)));
        for wrong in ["59s", "0s", "Never", "-5m", ""] {
            assert!(refresh_interval(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn shares_are_less_than_one() {
        assert_eq!(share("0.075").map(millionths), Ok(75_000));
        assert_eq!(share("0").map(millionths), Ok(0));
        for wrong in ["1", "-0.1", "7.5%", "NaN"] {
            assert!(share(wrong).is_err(), "{wrong}");
        }
    }
}
