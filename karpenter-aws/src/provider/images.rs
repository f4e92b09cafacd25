//! The images that the selectors of a class find.

use std::collections::BTreeMap;

use karpenter_core::Timestamp;

use super::network::tag_filters;
use crate::{
    api::{ApiError, AwsApi},
    ec2::{Filter, Image},
    image::{Candidate, ImageQuery, Variant, chosen, parameters, queries},
    nodeclass::{Alias, Ami, Ec2NodeClass},
    version::KubernetesVersion,
};

/// The images that any term selects, the newest first; each kind of type has one. `Err` says why the alias, or the
/// version of Kubernetes, is of no use.
pub(crate) async fn find(
    api: &dyn AwsApi,
    class: &Ec2NodeClass,
    kubernetes_version: &str,
    now: Timestamp,
) -> Result<Result<Vec<Ami>, String>, ApiError> {
    let alias = match class.alias() {
        Ok(alias) => alias,
        Err(error) => return Ok(Err(error.to_string())),
    };
    let candidates = match alias {
        Some(alias) => match published(api, &alias, kubernetes_version).await? {
            Ok(candidates) => candidates,
            Err(problem) => return Ok(Err(problem)),
        },
        None => selected(api, class).await?,
    };
    Ok(Ok(chosen(&candidates, now)))
}

/// The images that AWS publishes under an alias. A parameter that is not there, which many are not, is left out.
async fn published(
    api: &dyn AwsApi,
    alias: &Alias,
    kubernetes_version: &str,
) -> Result<Result<Vec<Candidate>, String>, ApiError> {
    let version: KubernetesVersion = match kubernetes_version.parse() {
        Ok(version) => version,
        Err(error) => return Ok(Err(format!("{error}"))),
    };
    let named = match parameters(alias, version) {
        Ok(named) => named,
        Err(error) => return Ok(Err(error.to_string())),
    };
    let mut variants: BTreeMap<String, Vec<Variant>> = BTreeMap::new();
    for parameter in named {
        match api.get_parameter(&parameter.name).await {
            Ok(id) => variants.entry(id).or_default().extend(parameter.variants),
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(error),
        }
    }
    if variants.is_empty() {
        return Ok(Ok(Vec::new()));
    }
    let images = ask(api, &ImageQuery::Ids(variants.keys().cloned().collect())).await?;
    let candidate = |image: Image| {
        let variants = variants.get(&image.image_id).cloned().unwrap_or_default();
        Candidate { image, variants }
    };
    Ok(Ok(images.into_iter().map(candidate).collect()))
}

/// The images that the terms of a class select.
async fn selected(api: &dyn AwsApi, class: &Ec2NodeClass) -> Result<Vec<Candidate>, ApiError> {
    let terms = &class.spec.ami_selector_terms;
    let mut resolved: BTreeMap<&str, String> = BTreeMap::new();
    for term in terms.iter().filter(|term| term.id.is_empty() && !term.ssm_parameter.is_empty()) {
        match api.get_parameter(&term.ssm_parameter).await {
            Ok(value) => {
                resolved.insert(&term.ssm_parameter, value);
            }
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(error),
        }
    }
    let mut out = Vec::new();
    for query in queries(terms, |name| resolved.get(name).cloned()) {
        let images = ask(api, &query).await?;
        out.extend(images.into_iter().map(|image| Candidate { image, variants: Vec::new() }));
    }
    Ok(out)
}

async fn ask(api: &dyn AwsApi, query: &ImageQuery) -> Result<Vec<Image>, ApiError> {
    let available = Filter::new("state", ["available"]);
    match query {
        ImageQuery::Ids(ids) => api.describe_images(&[], &[Filter::new("image-id", ids.clone()), available]).await,
        ImageQuery::Named { name, tags, owners } => {
            let mut filters = tag_filters(tags);
            filters.extend(name.as_ref().map(|name| Filter::new("name", [name.as_str()])));
            filters.push(available);
            api.describe_images(owners, &filters).await
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{mem::MemoryAws, nodeclass::AmiSelectorTerm};

    const fn at(seconds: i64) -> Timestamp {
        Timestamp::from_millis(seconds * 1000)
    }

    fn ids(found: &[Ami]) -> Vec<&str> {
        found.iter().map(|ami| ami.id.as_str()).collect()
    }

    #[tokio::test]
    async fn ids_and_parameters_are_one_query_and_names_have_owners() {
        let aws = MemoryAws::small();
        aws.with(|state| state.parameters.insert("/own".to_owned(), "ami-arm".to_owned()));
        let term = |ssm: &str, name: &str, owner: &str| AmiSelectorTerm {
            ssm_parameter: ssm.to_owned(),
            name: name.to_owned(),
            owner: owner.to_owned(),
            ..AmiSelectorTerm::default()
        };
        let mut class = Ec2NodeClass::named("c");
        let terms = vec![AmiSelectorTerm::of_id("ami-x86"), term("/own", "", ""), term("/none", "", "")];
        class.spec.ami_selector_terms = terms;
        let found = find(&aws, &class, "1.31", at(0)).await.expect("answers").expect("no alias");
        assert_eq!((ids(&found), aws.count("DescribeImages")), (vec!["ami-arm", "ami-x86"], 1));
        for (owner, count) in [("", 2), ("amazon", 2), ("self", 0)] {
            class.spec.ami_selector_terms = vec![term("", "amazon-eks-*", owner)];
            assert_eq!(find(&aws, &class, "1.31", at(0)).await.expect("answers").expect("no alias").len(), count);
        }
    }

    #[tokio::test]
    async fn an_alias_is_what_aws_publishes_for_the_version() {
        let aws = MemoryAws::small();
        let mut class = Ec2NodeClass::named("c");
        class.spec.ami_selector_terms = vec![AmiSelectorTerm::of_alias("al2023@latest")];
        let found = find(&aws, &class, "1.31", at(0)).await.expect("answers").expect("published");
        assert_eq!(ids(&found), ["ami-arm", "ami-x86"]);
        assert!(find(&aws, &class, "1.30", at(0)).await.expect("answers").expect("supported").is_empty());
        class.spec.ami_selector_terms = vec![AmiSelectorTerm::of_alias("al2@latest")];
        let problem = find(&aws, &class, "1.33", at(0)).await.expect("answers").expect_err("ended");
        assert!(problem.contains("1.32"), "{problem}");
        aws.refuse("GetParameter", "ThrottlingException", "slow down");
        find(&aws, &class, "1.31", at(0)).await.expect_err("what is not known is not empty");
    }
}
