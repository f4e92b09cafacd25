//! `karpenter catalog`: what can be bought.

use karpenter_core::InstanceType;
#[cfg(any(feature = "aws", test))]
use karpenter_core::driver::CatalogReport;
#[cfg(feature = "aws")]
use {
    crate::{
        args::present,
        aws,
        live::{failed, in_runtime},
        load::ClusterReader,
    },
    karpenter_core::driver::Driver,
    karpenter_kube::node_pools,
    std::sync::Arc,
};

use crate::{
    Error,
    args::{CatalogArgs, CatalogFormat, Provider},
    output,
};

/// Instance types, and what somebody should look at.
type Sold = (Vec<InstanceType>, Vec<String>);

/// The types that can be bought.
///
/// # Errors
/// The cluster or the cloud does not answer, or nothing can be bought for any node pool.
pub fn run(args: &CatalogArgs) -> Result<Sold, Error> {
    match args.provider {
        Provider::Kwok => Ok((karpenter_fake::generated_types(), Vec::new())),
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
    let cluster = reader.finish();
    let (provider, unread) = aws::ec2_to_ask(&args.types, &client, args.feature_gates.reserved_capacity).await?;
    let report = Driver::new(Arc::new(provider)).catalogs(&cluster.pools, present()).await;
    sold(&report, cluster.pools.len(), cluster.warnings.iter().map(ToString::to_string).chain(unread).collect())
}

/// One list for so many pools. Those of which it is not known what they can buy are named.
#[cfg(any(feature = "aws", test))]
fn sold(report: &CatalogReport, pool_count: usize, mut warnings: Vec<String>) -> Result<Sold, Error> {
    warnings.extend(report.failures.iter().map(|(pool, error)| format!("NodePool {pool}: {error} (it has no types)")));
    if report.failures.len() < pool_count {
        return Ok((report.catalogs.to_types(), warnings));
    }
    let message = match warnings.as_slice() {
        [] => "there is none, and their node classes say what can be bought".to_owned(),
        all => all.join("; "),
    };
    Err(Error::Run { what: "the node pools", message })
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

    use karpenter_core::{
        Catalogs,
        provider::{ProviderError, ProviderErrorKind},
    };

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
}
