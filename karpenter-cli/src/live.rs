//! Clusters that run.

use std::path::PathBuf;

use karpenter_kube::{Client, Config, ConnectError, Page, dump};

use crate::{Error, load::ClusterReader};

/// How to reach a cluster.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Access {
    /// How to reach the cluster; unless said otherwise what the pod's service account allows, or $KUBECONFIG, or ~/.kube/config
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,

    /// Which context of the kubeconfig
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,
}

impl Access {
    /// How to reach the cluster, with all that the kubeconfig says.
    ///
    /// # Errors
    /// A kubeconfig that cannot be read, or none at all.
    pub async fn config(&self) -> Result<Config, Error> {
        let config = karpenter_kube::config(self.kubeconfig.as_deref(), self.context.as_deref()).await;
        config.map_err(|error| match error {
            ConnectError::Kubeconfig(error) => failed("the kubeconfig", &error),
            ConnectError::Nowhere(error) => failed("the cluster", &error),
        })
    }

    /// What stands for the cluster in messages.
    fn name(&self) -> String {
        self.context.as_ref().map_or_else(|| "the cluster".to_owned(), |context| format!("the cluster {context}"))
    }

    /// Reads all objects of the cluster that bear on plans.
    ///
    /// # Errors
    /// A cluster that cannot be reached, kinds that may not be read, and objects that cannot be used.
    pub fn read(&self, reader: &mut ClusterReader) -> Result<(), Error> {
        let pages = in_runtime(async {
            let client = self.patient_client().await?;
            dump(&client).await.map_err(|error| failed("the cluster", &error))
        })?;
        self.read_pages(&pages, reader)
    }

    /// Objects as the API server wrote them.
    pub(crate) fn read_pages(&self, pages: &[Page], reader: &mut ClusterReader) -> Result<(), Error> {
        pages.iter().try_for_each(|page| reader.read(&page.text, &self.name()))
    }

    /// A client that asks again where it is worth it.
    pub(crate) async fn patient_client(&self) -> Result<Client, Error> {
        let mut config = self.config().await?;
        config.default_retry = true;
        Client::try_from(config).map_err(|error| failed("the cluster", &error))
    }
}

/// Waits for what a cluster or a cloud answers.
pub(crate) fn in_runtime<T>(answer: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| failed("the runtime", &error))?.block_on(answer)
}

pub(crate) fn failed(what: &'static str, error: &dyn std::error::Error) -> Error {
    Error::Run { what, message: error.to_string() }
}
