//! How clusters are reached.

use std::path::Path;

use kube::{
    Config,
    config::{InferConfigError, KubeConfigOptions, Kubeconfig, KubeconfigError},
};

/// Why it is not known how to reach a cluster.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// A kubeconfig that cannot be read, or lacks what is asked of it.
    #[error("the kubeconfig: {0}")]
    Kubeconfig(#[from] KubeconfigError),
    /// There is no kubeconfig, and this is no pod.
    #[error("the cluster: {0}")]
    Nowhere(#[from] InferConfigError),
}

/// How to reach the cluster of a context, or of the current one, of a kubeconfig. Without either that of `$KUBECONFIG` or
/// `~/.kube/config`, or what the service account of this pod allows.
///
/// Clients made from it do not try again by themselves: a [`Controller`](crate::Controller) must know what was refused, evictions
/// above all, and has waits of its own.
///
/// # Errors
/// [`ConnectError`], before the cluster is asked for anything.
pub async fn config(kubeconfig: Option<&Path>, context: Option<&str>) -> Result<Config, ConnectError> {
    let options = KubeConfigOptions { context: context.map(str::to_owned), ..KubeConfigOptions::default() };
    let mut config = match kubeconfig {
        Some(file) => Config::from_custom_kubeconfig(Kubeconfig::read_from(file)?, &options).await?,
        None if context.is_some() => Config::from_kubeconfig(&options).await?,
        None => Config::infer().await?,
    };
    config.default_retry = false;
    Ok(config)
}
