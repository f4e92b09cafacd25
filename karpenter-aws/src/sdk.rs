//! AWS over the network, with its SDK.
//!
//! Nothing here decides: requests and answers are turned from one form into another, pages are turned, and errors keep
//! their code. The region, the credentials and the endpoints are those that `aws-config` finds.

mod calls;
mod describe;
mod errors;
mod fleet;
mod measure;
mod template;
mod types;

use std::time::Duration;

use aws_config::{BehaviorVersion, ConfigLoader, Region, SdkConfig, timeout::TimeoutConfig};
use aws_smithy_http_client::{
    Builder,
    tls::{self, rustls_provider::CryptoMode},
};
use karpenter_core::Timestamp;
use measure::CallMeter;

use crate::{
    clock::{BoxFuture, Clock},
    price::price_list_region,
};

/// How long a connection may take.
const CONNECT: Duration = Duration::from_secs(5);
/// How long one answer may take. Messages of a queue are waited for for 20 seconds.
const ATTEMPT: Duration = Duration::from_secs(30);
/// How long a call may take, with all that is tried again; for lists, each page.
const CALL: Duration = Duration::from_secs(90);

/// [`AwsApi`](crate::AwsApi) over the network. Cheap to clone.
#[derive(Clone, Debug)]
pub struct SdkAws {
    ec2: aws_sdk_ec2::Client,
    ssm: aws_sdk_ssm::Client,
    sqs: aws_sdk_sqs::Client,
    iam: aws_sdk_iam::Client,
    eks: aws_sdk_eks::Client,
    pricing: aws_sdk_pricing::Client,
    arc: aws_sdk_arczonalshift::Client,
    meter: CallMeter,
}

impl SdkAws {
    /// What `aws-config` finds in the environment of the process, over HTTPS. What it cannot find can be set on it.
    pub fn environment() -> ConfigLoader {
        let client = Builder::new().tls_provider(tls::Provider::Rustls(CryptoMode::Ring)).build_https();
        aws_config::defaults(BehaviorVersion::latest()).http_client(client)
    }

    /// The same without TLS, for servers on the same machine that pretend to be AWS.
    pub fn plain_http() -> ConfigLoader {
        aws_config::defaults(BehaviorVersion::latest()).http_client(Builder::new().build_http())
    }

    /// Speaks to AWS as `config` says. The price list is asked in the region that has it, unless there is an endpoint for
    /// everything. Where `config` has no time limit, a call that nobody answers ends after a minute and a half.
    pub fn new(config: &SdkConfig) -> Self {
        let config = &with_time_limits(config);
        let region = config.region().map(ToString::to_string).unwrap_or_default();
        let meter = CallMeter::default();
        macro_rules! client {
            ($service:ident) => {
                client!($service, $service::config::Builder::from(config))
            };
            ($service:ident, $config:expr) => {
                $service::Client::from_conf($config.interceptor(meter.clone()).build())
            };
        }
        let mut pricing = aws_sdk_pricing::config::Builder::from(config);
        if config.endpoint_url().is_none() {
            pricing = pricing.region(Region::new(price_list_region(&region)));
        }
        Self {
            ec2: client!(aws_sdk_ec2),
            ssm: client!(aws_sdk_ssm),
            sqs: client!(aws_sdk_sqs),
            iam: client!(aws_sdk_iam),
            eks: client!(aws_sdk_eks),
            arc: client!(aws_sdk_arczonalshift),
            pricing: client!(aws_sdk_pricing, pricing),
            meter,
        }
    }
}

fn with_time_limits(config: &SdkConfig) -> SdkConfig {
    let ours = TimeoutConfig::builder().connect_timeout(CONNECT).operation_attempt_timeout(ATTEMPT);
    let ours = ours.operation_timeout(CALL).build();
    let limits = match config.timeout_config() {
        Some(own) => own.clone().into_builder().take_unset_from(ours.into_builder()).build(),
        None => ours,
    };
    config.to_builder().timeout_config(limits).build()
}

/// The clock of the machine, which waits with the runtime of tokio.
#[derive(Clone, Copy, Debug, Default)]
pub struct TokioClock;

impl Clock for TokioClock {
    #[expect(clippy::disallowed_methods, reason = "it is the clock that others are given")]
    fn now(&self) -> Timestamp {
        let since_1970 = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        Timestamp::from_millis(i64::try_from(since_1970.as_millis()).unwrap_or(i64::MAX))
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<()> {
        Box::pin(tokio::time::sleep(duration))
    }
}
