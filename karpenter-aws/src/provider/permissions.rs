//! Dry runs: whether the credentials may do what buying a machine of a class takes, before somebody needs one.

use std::{collections::BTreeMap, time::Duration};

use karpenter_core::{InstanceType, Price, Timestamp, api::NodeClaim, labels};

use super::{
    Inner, LaunchFailure, Preparation, Resolved, launch::Terms, market::Types, tags, template_data, templates,
};
use crate::{
    api::ApiError,
    ec2::{
        Tags,
        fleet::{Allocation, FleetConfig, FleetOverride, FleetRequest, TargetKind},
        template::LaunchTemplateData,
    },
    instance_type::TypeSettings,
    nodeclass::Ec2NodeClass,
};

/// For how long an answer is good while the class and what it selects stay the same.
const GOOD_FOR: Duration = Duration::from_mins(30);
/// The types that are tried first: there is one of them in every region.
const USUAL_TYPES: [&str; 2] = ["m5.large", "m6g.large"];

/// A reason and a message.
type Problem = (&'static str, String);

/// What dry runs said of classes, by their names.
#[derive(Debug, Default)]
pub(crate) struct Checked(BTreeMap<String, Answer>);

#[derive(Clone, Debug)]
struct Answer {
    /// What it was about.
    about: String,
    until: Timestamp,
    problem: Option<Problem>,
}

impl Checked {
    pub(crate) fn forget(&mut self, class: &str) {
        self.0.remove(class);
    }
}

/// A machine that could be bought.
struct Probe {
    template: String,
    choices: Vec<FleetOverride>,
    tags: Tags,
}

impl Inner {
    /// Why no machine of a class may be bought, if the credentials do not allow it. Asks AWS now and then, without buying
    /// anything. What else AWS has against such a machine is for launches to find out.
    pub(crate) async fn forbidden(&self, resolved: &Resolved) -> Result<Option<Problem>, ApiError> {
        if self.options.preparation != Preparation::ProfileAndTrial {
            return Ok(None);
        }
        let class = &resolved.class;
        let (about, now) = (about(class), resolved.since);
        let known = self.lock().checked.0.get(class.name()).cloned();
        if let Some(known) = known.filter(|known| known.about == about && now < known.until) {
            return Ok(known.problem);
        }
        let problem = self.try_out(resolved).await?;
        let answer = Answer { about, until: now + GOOD_FOR, problem: problem.clone() };
        self.lock().checked.0.insert(class.name().to_owned(), answer);
        Ok(problem)
    }

    async fn try_out(&self, resolved: &Resolved) -> Result<Option<Problem>, ApiError> {
        let probe = match self.probe(resolved).await? {
            Ok(Some(probe)) => probe,
            Ok(None) => return Ok(None),
            Err(problem) => return Ok(Some(problem)),
        };
        let request = FleetRequest {
            count: 1,
            target: TargetKind::OnDemand,
            allocation: Some(Allocation::LowestPrice),
            configs: vec![FleetConfig { template: probe.template.clone(), overrides: probe.choices.clone() }],
            tags: probe.tags.clone(),
            is_dry_run: true,
            ..FleetRequest::default()
        };
        if let Some(problem) = verdict(self.api.create_fleet(&request).await.map(drop), "CreateFleetAuthCheckFailed")? {
            return Ok(Some(problem));
        }
        let mut first = None;
        for choice in &probe.choices {
            let answer = self.api.run_dry(&probe.template, choice, &probe.tags).await;
            match verdict(answer, "RunInstancesAuthCheckFailed")? {
                None => return Ok(None),
                problem => first = first.or(problem),
            }
        }
        Ok(first)
    }

    /// A machine of the class with its template, which is made if need be. `None` if the class has no type with an image.
    async fn probe(&self, resolved: &Resolved) -> Result<Result<Option<Probe>, Problem>, ApiError> {
        let class = &resolved.class;
        let types = self.types_or_error().await?;
        let Some(instance_type) = self.usual_type(class, &types) else { return Ok(Ok(None)) };
        let (claim, cluster) = (NodeClaim::named(""), self.options.bootstrap());
        let terms = Terms {
            capacity_type: labels::ON_DEMAND.to_owned(),
            tenancy: "default".to_owned(),
            placement_group: resolved.placement_group.as_ref().map(|group| group.id.clone()).unwrap_or_default(),
            ..Terms::default()
        };
        let inputs = template_data::Inputs {
            cluster: &cluster,
            options: &self.options,
            resolved,
            claim: &claim,
            terms: &terms,
            types: &types,
        };
        let data = match inputs.plain(&instance_type) {
            Ok(Some(data)) => data,
            Ok(None) => return Ok(Ok(None)),
            Err(message) => return Ok(Err(("UserDataInvalid", message))),
        };
        self.lock().note_user_data(class.name(), &data.user_data);
        let tags = tags::of_pool(&self.options.cluster_name, class.name(), "", &class.spec.tags);
        let data = LaunchTemplateData { tags: tags.clone(), ..data };
        let template = templates::name(&data, &tags);
        let made = self.has_template(&template, &data, &tags).await;
        if let Some(problem) = verdict(made, "CreateLaunchTemplateAuthCheckFailed")? {
            return Ok(Err(problem));
        }
        let choices = class.status.subnets.iter().map(|subnet| FleetOverride {
            instance_type: instance_type.name.clone(),
            subnet_id: subnet.id.clone(),
            zone: subnet.zone.clone(),
            image_id: data.image_id.clone(),
            priority: Price::ZERO,
        });
        Ok(Ok(Some(Probe { template, choices: choices.collect(), tags })))
    }

    /// A type that the class has an image for: a usual one if it can be.
    fn usual_type(&self, class: &Ec2NodeClass, types: &Types) -> Option<InstanceType> {
        let settings = TypeSettings::new(class, &self.options.types).ok()?;
        let fit = |name: &str| {
            let instance_type = settings.instance_type(types.get(name)?, types.zones_of(name))?;
            template_data::image_for(class, &instance_type).is_some().then_some(instance_type)
        };
        let others = types.infos.iter().map(|info| info.instance_type.as_str());
        USUAL_TYPES.into_iter().chain(others).find_map(fit)
    }
}

/// What an answer says about the credentials: an error is one that says nothing about them now.
fn verdict(answer: Result<(), ApiError>, reason: &'static str) -> Result<Option<Problem>, ApiError> {
    use karpenter_core::provider::ProviderErrorKind::{Throttled, Unauthorized, Unavailable};
    let Err(error) = answer else { return Ok(None) };
    match (LaunchFailure::of(error.code(), error.message()), error.kind()) {
        (_, Throttled | Unavailable) => Err(error),
        (LaunchFailure::UserDataSizeLimitExceeded, _) => {
            Ok(Some((LaunchFailure::UserDataSizeLimitExceeded.as_str(), error.message().to_owned())))
        }
        (LaunchFailure::Unauthorized | LaunchFailure::AmiAuthorizationFailure, _) | (_, Unauthorized) => {
            Ok(Some((reason, format!("{}: {}", error.code(), error.message()))))
        }
        _ => Ok(None),
    }
}

/// All that a machine of the class is made of. Subnets change their places as addresses are taken, which says nothing.
fn about(class: &Ec2NodeClass) -> String {
    let mut status = class.status.clone();
    status.conditions.clear();
    status.subnets.sort_by(|a, b| a.id.cmp(&b.id));
    serde_json::to_string(&(&class.metadata.uid, &class.spec, &status)).unwrap_or_default()
}
