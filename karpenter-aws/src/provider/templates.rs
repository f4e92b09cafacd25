//! Launch templates: named by what they say, made when they are needed, gone when they are not.

use std::time::Duration;

use karpenter_core::Timestamp;

use super::{cache::Cache, hash::fnv, tags};
use crate::{
    api::{ApiError, AwsApi},
    ec2::{Filter, Tags, template::LaunchTemplateData},
};

/// A template that was not used for this long is deleted.
const KEPT_FOR: Duration = Duration::from_mins(1);
/// What the names of all templates begin with.
const PREFIX: &str = "karpenter.k8s.aws/";

/// The templates that are there and were used a short while ago.
#[derive(Clone, Debug)]
pub(crate) struct Templates {
    there: Cache<String, ()>,
    /// Whether those that were there at the start are among them.
    pub(crate) is_complete: bool,
}

impl Default for Templates {
    fn default() -> Self {
        Self { there: Cache::new(KEPT_FOR), is_complete: false }
    }
}

impl Templates {
    /// Whether a template is there; it is used now.
    pub(crate) fn is_there(&mut self, name: &str, now: Timestamp) -> bool {
        let name = name.to_owned();
        let is_there = self.there.get(&name, now).is_some();
        if is_there {
            self.there.renew(&name, now);
        }
        is_there
    }

    pub(crate) fn add(&mut self, name: &str, now: Timestamp) {
        self.there.insert(name.to_owned(), (), now);
    }

    /// A template is gone, and nobody has to delete it.
    pub(crate) fn forget(&mut self, name: &str) {
        self.there.remove(&name.to_owned());
    }

    /// The templates that were not used for a while; they are forgotten, and are to be deleted.
    pub(crate) fn expire(&mut self, now: Timestamp) -> Vec<String> {
        self.there.expire(now).into_iter().map(|(name, ())| name).collect()
    }
}

/// The name of a template that says this and has these tags: another text has another name.
pub(crate) fn name(data: &LaunchTemplateData, tags: &Tags) -> String {
    let text = |value: Result<String, serde_json::Error>| value.unwrap_or_default();
    let (data, tags) = (text(serde_json::to_string(data)), text(serde_json::to_string(tags)));
    format!("{PREFIX}{}", fnv([data.as_str(), tags.as_str()]))
}

impl super::Inner {
    /// Sees to it that a template is there.
    pub(crate) async fn has_template(
        &self,
        name: &str,
        data: &LaunchTemplateData,
        tags: &Tags,
    ) -> Result<(), ApiError> {
        let ask = async {
            let now = self.clock.now();
            if !self.lock().templates.is_there(name, now) {
                ensure(&*self.api, name, data, tags).await?;
                self.lock().templates.add(name, now);
            }
            Ok(())
        };
        self.asking.templates.take(name.to_owned(), ask).await
    }
}

async fn ensure(api: &dyn AwsApi, name: &str, data: &LaunchTemplateData, tags: &Tags) -> Result<(), ApiError> {
    match api.describe_launch_templates(&[name.to_owned()], &[]).await {
        Ok(found) if !found.is_empty() => return Ok(()),
        Ok(_) => {}
        Err(error) if error.is_not_found() => {}
        Err(error) => return Err(error),
    }
    match api.create_launch_template(name, data, tags).await {
        Err(error) if error.is_already_there() => Ok(()),
        answer => answer.map(|_| ()),
    }
}

/// The names of the templates of a cluster, or of one of its classes.
pub(crate) async fn find(api: &dyn AwsApi, cluster: &str, class: Option<&str>) -> Result<Vec<String>, ApiError> {
    let mut filters = vec![Filter::tag(tags::CLUSTER_NAME, cluster)];
    filters.extend(class.map(|class| Filter::tag(tags::NODE_CLASS, class)));
    let found = api.describe_launch_templates(&[], &filters).await?;
    Ok(found.into_iter().map(|template| template.name).filter(|name| name.starts_with(PREFIX)).collect())
}

/// Deletes a template; one that is gone is no error.
pub(crate) async fn delete(api: &dyn AwsApi, name: &str) -> Result<(), ApiError> {
    match api.delete_launch_template(name).await {
        Err(error) if error.is_not_found() => Ok(()),
        answer => answer,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mem::MemoryAws;

    const fn at(seconds: i64) -> Timestamp {
        Timestamp::from_millis(seconds * 1000)
    }

    #[tokio::test]
    async fn what_says_the_same_is_the_same_template() {
        let aws = MemoryAws::small();
        let tags = Tags::from([(tags::CLUSTER_NAME.to_owned(), "test".to_owned())]);
        let data = LaunchTemplateData { image_id: "ami-1".to_owned(), ..LaunchTemplateData::default() };
        let other = LaunchTemplateData { image_id: "ami-2".to_owned(), ..LaunchTemplateData::default() };
        assert_ne!(name(&data, &tags), name(&other, &tags));
        for _ in 0..2 {
            ensure(&aws, &name(&data, &tags), &data, &tags).await.expect("there");
        }
        assert_eq!(aws.count("CreateLaunchTemplate"), 1);
        assert_eq!(find(&aws, "test", None).await.expect("answers"), [name(&data, &tags)]);
        assert!(find(&aws, "test", Some("other")).await.expect("answers").is_empty());
        for _ in 0..2 {
            delete(&aws, &name(&data, &tags)).await.expect("gone is fine");
        }
    }

    #[test]
    fn a_template_is_kept_as_long_as_it_is_used() {
        let mut templates = Templates::default();
        templates.add("a", at(0));
        templates.add("b", at(0));
        assert!(templates.is_there("a", at(50)));
        assert_eq!(templates.expire(at(60)), ["b"]);
        assert!(templates.is_there("a", at(109)) && !templates.is_there("b", at(60)));
    }
}
