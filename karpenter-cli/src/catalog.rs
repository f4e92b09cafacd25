//! `karpenter catalog`: what can be bought.

#[cfg(feature = "aws")]
use std::sync::Arc;

use clap::ValueEnum;
use karpenter_core::InstanceType;
#[cfg(feature = "aws")]
use karpenter_core::driver::Driver;
#[cfg(any(feature = "aws", test))]
use karpenter_core::{driver::CatalogReport, provider::ProviderErrorKind};
#[cfg(feature = "aws")]
use karpenter_kube::node_pools;

use crate::{Error, args::Provider, output};
#[cfg(feature = "aws")]
use crate::{
    args::present,
    aws,
    live::{Access, failed, in_runtime},
    load::ClusterReader,
    run,
};

/// What `karpenter catalog` takes.
#[derive(Debug, clap::Args)]
pub struct CatalogArgs {
    /// Who sells: kwok the built-in catalog; EC2, in a build with the feature `aws`, what it offers the node pools of a running cluster
    #[arg(long, value_enum, default_value_t = Provider::Kwok)]
    pub provider: Provider,

    /// How to write the list
    #[arg(short, long, value_enum, default_value_t = CatalogFormat::Json)]
    pub output: CatalogFormat,

    /// The cluster that is asked for node pools and classes.
    #[cfg(feature = "aws")]
    #[command(flatten)]
    pub access: Access,

    /// What is switched on or off: without ReservedCapacity=true, which is the default, there are no reservations among the offerings
    #[cfg(feature = "aws")]
    #[arg(long, env = "FEATURE_GATES", value_parser = run::gates, default_value = "", value_name = "GATES")]
    pub feature_gates: run::Gates,

    /// What the types of EC2 are like.
    #[cfg(feature = "aws")]
    #[command(flatten)]
    pub types: aws::TypeArgs,
}

/// How a catalog is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CatalogFormat {
    /// One list, with a type on each line
    Json,
    /// The same list in YAML
    Yaml,
}

/// Instance types, and what somebody should look at.
type Sold = (Vec<InstanceType>, Vec<String>);

/// The types that can be bought.
///
/// # Errors
/// The cluster or the cloud does not answer, or nothing can be bought for any node pool.
pub fn run(args: &CatalogArgs) -> Result<Sold, Error> {
    match args.provider {
        Provider::Kwok => {
            #[cfg(feature = "aws")]
            let names_cluster = args.access.kubeconfig.is_some() || args.access.context.is_some();
            #[cfg(not(feature = "aws"))]
            let names_cluster = false;
            let warning = || "no cluster is asked without `--provider aws`: this is the built-in catalog".to_owned();
            Ok((karpenter_fake::generated_types(), names_cluster.then(warning).into_iter().collect()))
        }
        #[cfg(feature = "aws")]
        Provider::Aws => in_runtime(sold_by_ec2(args)),
    }
}

/// What EC2 sells to the node pools of a cluster. Nothing is written, neither to the cluster nor to the account.
#[cfg(feature = "aws")]
async fn sold_by_ec2(args: &CatalogArgs) -> Result<Sold, Error> {
    let client = args.access.patient_client().await?;
    let pages = node_pools(&client).await.map_err(|error| failed("the cluster", &error))?;
    let mut reader = ClusterReader::default();
    args.access.read_pages(&pages, &mut reader)?;
    let cluster = reader.finish()?;
    let (provider, unread) = aws::ec2_to_ask(&args.types, &client, args.feature_gates.reserved_capacity).await?;
    let report = Driver::new(Arc::new(provider.clone())).catalogs(&cluster.pools, present()).await;
    if let Some(fault) = provider.price_fault() {
        return Err(Error::Run { what: "the prices", message: fault });
    }
    sold(&report, cluster.pools.len(), cluster.warnings.iter().map(ToString::to_string).chain(unread).collect())
}

/// One list for so many pools. Those whose node class cannot be used are named; that the cloud does not say is an error, because
/// the list would lack what there is.
#[cfg(any(feature = "aws", test))]
fn sold(report: &CatalogReport, pool_count: usize, mut warnings: Vec<String>) -> Result<Sold, Error> {
    let wrong = |message: String| Err(Error::Run { what: "the node pools", message });
    if pool_count == 0 {
        return wrong("there is none, and their node classes say what can be bought".to_owned());
    }
    for (pool, error) in &report.failures {
        if error.kind != ProviderErrorKind::NodeClassNotReady {
            return wrong(format!("NodePool {pool}: {error}"));
        }
        warnings.push(format!("NodePool {pool}: {error} (it has no types)"));
    }
    let types = report.catalogs.to_types();
    if types.is_empty() {
        return wrong(format!("nothing can be bought for them: {}", warnings.join("; ")));
    }
    Ok((types, warnings))
}

/// The list as a text, with a line break at the end.
///
/// # Errors
/// The serializer refuses it.
pub fn text(types: &[InstanceType], format: CatalogFormat) -> Result<String, Error> {
    match format {
        CatalogFormat::Json => {
            let lines = types.iter().map(output::to_json_line).collect::<Result<Vec<_>, _>>()?;
            Ok(format!("[\n{}\n]\n", lines.join(",\n")))
        }
        CatalogFormat::Yaml => output::to_yaml(&types),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use karpenter_core::{Catalogs, provider::ProviderError};

    use super::*;

    fn report(known: &[&str], unknown: &[&str]) -> CatalogReport {
        let mut report = CatalogReport::default();
        let catalog = karpenter_fake::generated_catalog();
        for &pool in known {
            report.catalogs.insert(pool, Arc::clone(&catalog));
        }
        for &pool in unknown {
            let error = ProviderError::new("ec2", "catalog", ProviderErrorKind::NodeClassNotReady, "no subnet");
            report.catalogs.insert_missing(pool, error.to_string());
            report.failures.insert(pool.to_owned(), error);
        }
        report
    }

    #[test]
    fn pools_of_which_nothing_is_known_are_named_and_have_no_types() {
        let (types, warnings) = sold(&report(&["a"], &["b"]), 2, Vec::new()).expect("of one it is known");
        assert_eq!(warnings, ["NodePool b: ec2: catalog: no subnet (it has no types)"]);
        let pools = [karpenter_core::api::NodePool::named("b")];
        let catalogs = Catalogs::shared(types, &pools).expect("a catalog");
        assert!(catalogs.get("b").expect("there").types().is_empty());
    }

    #[test]
    fn nothing_is_no_catalog() {
        let told = |report: &CatalogReport, count| sold(report, count, Vec::new()).expect_err("nothing").to_string();
        assert!(told(&report(&[], &["b"]), 1).contains("NodePool b"));
        assert!(told(&report(&[], &[]), 0).contains("there is none"));
    }

    #[test]
    fn that_the_cloud_does_not_say_is_an_error() {
        let mut report = report(&["a"], &[]);
        let error = ProviderError::new("ec2", "catalog", ProviderErrorKind::Other, "throttled");
        report.failures.insert("b".to_owned(), error);
        let told = sold(&report, 2, Vec::new()).expect_err("of one it is not known").to_string();
        assert!(told.contains("NodePool b: ec2: catalog: throttled"), "{told}");
    }
}
