//! What the selectors of a node class find, and whether machines can be made of it.

use std::{sync::Arc, time::Duration};

use karpenter_core::{
    Timestamp,
    api::ConditionStatus,
    provider::{ProviderError, ProviderErrorKind},
};

use super::{Inner, Preparation, error::NAME, images, network, profiles, reservations, tags};
use crate::{
    api::ApiError,
    ec2,
    instance_type::{PlacementGroup, Strategy, TypeSettings},
    nodeclass::{Ami, Ec2NodeClass, Ec2NodeClassStatus, SecurityGroup, Subnet, conditions},
};

/// After how long AWS is asked again what a class finds, if it did not say and what was found before still serves.
const RETRY: Duration = Duration::from_secs(10);

/// A node class, and what its selectors found.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Resolved {
    /// The class; its status is what was found.
    pub class: Ec2NodeClass,
    /// Its placement group.
    pub placement_group: Option<PlacementGroup>,
    /// When it was found.
    pub since: Timestamp,
    pub(crate) asked: Asked,
}

/// When AWS was asked for what may be good for longer than the rest.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Asked {
    /// For images, and for which version of Kubernetes.
    images: Option<(Timestamp, String)>,
    subnets: Option<Timestamp>,
}

impl Resolved {
    /// Why no machine can be made of the class, if so.
    pub fn problem(&self) -> Option<String> {
        self.class.not_ready()
    }
}

/// Why nothing is known of a class.
#[derive(Clone, Debug)]
pub(crate) enum ClassError {
    /// It is not there, or on its way out.
    Missing {
        /// Which of the two.
        message: String,
    },
    /// AWS did not say.
    Provider(ProviderError),
}

/// What is found out about a class, one aspect after the other.
struct Findings {
    /// The status is what was found so far, and the conditions of before.
    class: Ec2NodeClass,
    /// What was found before for the same class.
    known: Option<Arc<Resolved>>,
    asked: Asked,
    now: Timestamp,
}

impl Findings {
    /// Notes an aspect: that it holds, or why it does not.
    fn note(&mut self, kind: &str, problem: Option<(&str, String)>) {
        let status = if problem.is_none() { ConditionStatus::True } else { ConditionStatus::False };
        let (reason, message) = problem.unwrap_or_else(|| (kind, String::new()));
        self.class.set_condition(kind, status, reason, message, self.now);
    }

    /// What is not there of what no machine can be without.
    fn unmet(&self) -> Option<(&'static str, String)> {
        let needed = [
            conditions::AMIS_READY,
            conditions::SUBNETS_READY,
            conditions::SECURITY_GROUPS_READY,
            conditions::INSTANCE_PROFILE_READY,
        ];
        let unmet = needed.into_iter().find(|kind| self.class.status.condition(kind) != ConditionStatus::True)?;
        Some((conditions::DEPENDENCIES_NOT_READY, format!("{unmet} is not true")))
    }

    /// The images that were found, and when, if they are good for so long. That there were none is not.
    fn images_of_before(&self, version: &str, period: Duration) -> Option<(Timestamp, Vec<Ami>)> {
        let known = self.known.as_ref()?;
        let (since, of) = known.asked.images.as_ref()?;
        let amis = &known.class.status.amis;
        (of == version && self.now < *since + period && !amis.is_empty()).then(|| (*since, amis.clone()))
    }

    /// The subnets that were found, and when, if they are good for so long. That there were none is not.
    fn subnets_of_before(&self, period: Duration) -> Option<(Timestamp, Vec<Subnet>)> {
        let known = self.known.as_ref()?;
        let since = known.asked.subnets?;
        let subnets = &known.class.status.subnets;
        (self.now < since + period && !subnets.is_empty()).then(|| (since, subnets.clone()))
    }
}

impl super::Ec2Provider {
    /// What the selectors of a class find, asked anew if that is old: its status is to be written to the cluster.
    ///
    /// # Errors
    /// AWS did not say, or there is no such class.
    pub async fn resolve(&self, class: &str) -> Result<Arc<Resolved>, ProviderError> {
        self.0.resolve(class).await.map_err(|error| match error {
            ClassError::Missing { message } => ProviderError::new(NAME, "resolve", ProviderErrorKind::Other, message),
            ClassError::Provider(error) => error,
        })
    }
}

impl Inner {
    /// What the selectors of a class find. If AWS does not say, what they found last, as long as they are the same.
    pub(crate) async fn resolve(&self, name: &str) -> Result<Arc<Resolved>, ClassError> {
        self.asking.classes.take(name.to_owned(), Box::pin(self.resolve_now(name))).await
    }

    async fn resolve_now(&self, name: &str) -> Result<Arc<Resolved>, ClassError> {
        let now = self.clock.now();
        let (class, known, asked_in_vain) = {
            let state = self.lock();
            let missing = |what: &str| ClassError::Missing { message: format!("node class {name} {what}") };
            let class = state.classes.get(name).cloned().ok_or_else(|| missing("is not there"))?;
            if class.metadata.deletion_timestamp.is_some() {
                return Err(missing("is on its way out"));
            }
            let is_same = |known: &&Arc<Resolved>| {
                known.class.spec == class.spec && known.class.metadata.uid == class.metadata.uid
            };
            let known = state.resolved.get(name).filter(is_same).cloned();
            (class, known, state.asked_in_vain.get(name).copied())
        };
        let is_good = |known: &&Arc<Resolved>| now < known.since + self.options.discovery_period;
        let is_asked = asked_in_vain.is_some_and(|asked| now < asked + RETRY);
        if let Some(known) = known.as_ref().filter(|known| is_asked || is_good(known)) {
            return Ok(known.clone());
        }
        match self.discover(&class, known.clone(), now).await {
            Ok(resolved) => {
                let resolved = Arc::new(resolved);
                let mut state = self.lock();
                state.asked_in_vain.remove(name);
                state.resolved.insert(name.to_owned(), resolved.clone());
                Ok(resolved)
            }
            Err(error) => {
                self.lock().asked_in_vain.insert(name.to_owned(), now);
                known.ok_or_else(|| ClassError::Provider(error.to_error("resolve")))
            }
        }
    }

    async fn discover(
        &self,
        class: &Ec2NodeClass,
        known: Option<Arc<Resolved>>,
        now: Timestamp,
    ) -> Result<Resolved, ApiError> {
        let conditions = class.status.conditions.clone();
        let status = Ec2NodeClassStatus { conditions, ..Ec2NodeClassStatus::default() };
        let class = Ec2NodeClass { status, ..class.clone() };
        let mut findings = Findings { class, known, asked: Asked::default(), now };
        self.find_images(&mut findings).await?;
        self.find_reservations(&mut findings).await?;
        let placement_group = self.find_placement_group(&mut findings).await?;
        self.find_network(&mut findings).await?;
        self.find_profile(&mut findings).await?;
        self.validate(&mut findings, placement_group.clone()).await?;
        let Findings { mut class, asked, .. } = findings;
        class.set_ready(now);
        let ca_bundle = Some(self.options.cluster.ca_bundle.as_str()).filter(|bundle| !bundle.is_empty());
        // A class whose hash cannot be known is not ready, and nothing is bought of it.
        class.metadata.annotations.extend(class.hash_annotations(ca_bundle).unwrap_or_default());
        Ok(Resolved { class, placement_group, since: now, asked })
    }

    async fn find_images(&self, findings: &mut Findings) -> Result<(), ApiError> {
        let renewed = self.lock().kubernetes_version.map(|version| version.to_string());
        let version = renewed.as_ref().unwrap_or(&self.options.cluster.version);
        if let Some((since, amis)) = findings.images_of_before(version, self.options.images_period) {
            findings.class.status.amis = amis;
            findings.asked.images = Some((since, version.clone()));
            findings.note(conditions::AMIS_READY, None);
            return Ok(());
        }
        findings.asked.images = Some((findings.now, version.clone()));
        let found = images::find(&*self.api, &findings.class, version, findings.now).await?;
        let problem = match found {
            Ok(amis) => {
                findings.class.status.amis = amis;
                let is_empty = findings.class.status.amis.is_empty();
                is_empty.then(|| ("AMINotFound", "the selectors found no image".to_owned()))
            }
            Err(problem) => Some(("UnsupportedAlias", problem)),
        };
        findings.note(conditions::AMIS_READY, problem);
        Ok(())
    }

    async fn find_reservations(&self, findings: &mut Findings) -> Result<(), ApiError> {
        if !self.options.uses_reservations {
            findings.note(conditions::CAPACITY_RESERVATIONS_READY, None);
            return Ok(());
        }
        let terms = findings.class.spec.capacity_reservation_selector_terms.clone();
        let found = reservations::find_reservations(&*self.api, &terms, findings.now).await?;
        let now = findings.now;
        self.lock().remaining.refresh(&found, now);
        findings.class.status.capacity_reservations =
            found.iter().filter_map(|reservation| reservations::to_status(reservation, now)).collect();
        findings.note(conditions::CAPACITY_RESERVATIONS_READY, None);
        Ok(())
    }

    async fn find_placement_group(&self, findings: &mut Findings) -> Result<Option<PlacementGroup>, ApiError> {
        let Some(selector) = findings.class.spec.placement_group_selector.clone() else {
            findings.note(conditions::PLACEMENT_GROUP_READY, None);
            return Ok(None);
        };
        let found = network::find_placement_group(&*self.api, &selector).await?;
        let group = found.and_then(|group| {
            let known = [Strategy::Cluster, Strategy::Partition, Strategy::Spread];
            let strategy = known.into_iter().find(|strategy| strategy.as_str() == group.strategy)?;
            Some(PlacementGroup { id: group.id, strategy, partition_count: group.partition_count.unwrap_or(0) })
        });
        let problem =
            group.is_none().then(|| ("PlacementGroupNotFound", "the selector found no placement group".to_owned()));
        findings.note(conditions::PLACEMENT_GROUP_READY, problem);
        Ok(group)
    }

    async fn find_network(&self, findings: &mut Findings) -> Result<(), ApiError> {
        self.find_subnets(findings).await?;
        let terms = &findings.class.spec.security_group_selector_terms;
        let groups = network::find_security_groups(&*self.api, terms).await?;
        findings.class.status.security_groups =
            groups.into_iter().map(|group| SecurityGroup { id: group.id, name: group.name }).collect();
        let is_empty = findings.class.status.security_groups.is_empty();
        findings.note(
            conditions::SECURITY_GROUPS_READY,
            is_empty.then(|| ("SecurityGroupsNotFound", "the selectors found no security group".to_owned())),
        );
        Ok(())
    }

    async fn find_subnets(&self, findings: &mut Findings) -> Result<(), ApiError> {
        if let Some((since, subnets)) = findings.subnets_of_before(self.options.subnets_period) {
            findings.class.status.subnets = subnets;
            findings.asked.subnets = Some(since);
            findings.note(conditions::SUBNETS_READY, None);
            return Ok(());
        }
        findings.asked.subnets = Some(findings.now);
        let subnets = network::find_subnets(&*self.api, &findings.class.spec.subnet_selector_terms).await?;
        let mut state = self.lock();
        state.free.refresh(&subnets, findings.now);
        state.shifts.learn_zones(&subnets);
        drop(state);
        let to_subnet = |s: ec2::network::Subnet| Subnet { id: s.id, zone: s.zone, zone_id: s.zone_id };
        findings.class.status.subnets = subnets.into_iter().map(to_subnet).collect();
        let is_empty = findings.class.status.subnets.is_empty();
        findings.note(
            conditions::SUBNETS_READY,
            is_empty.then(|| ("SubnetsNotFound", "the selectors found no subnet".to_owned())),
        );
        Ok(())
    }

    /// Whether the class can be used as it is, and the credentials allow what buying a machine of it takes.
    async fn validate(&self, findings: &mut Findings, placement_group: Option<PlacementGroup>) -> Result<(), ApiError> {
        let types = &self.options.types;
        let mut problem = invalid(&findings.class, types.evaluates_expressions).or_else(|| findings.unmet());
        if problem.is_none() {
            problem = self.without_value(&findings.class).await?;
        }
        if problem.is_none() {
            let found = Resolved {
                class: findings.class.clone(),
                placement_group,
                since: findings.now,
                asked: Asked::default(),
            };
            problem = self.forbidden(&found).await?;
        }
        let is_valid = problem.is_none();
        findings.note(conditions::VALIDATION_SUCCEEDED, problem);
        let ignored = findings.class.ignored_settings();
        if is_valid && !ignored.is_empty() {
            let kind = conditions::VALIDATION_SUCCEEDED;
            let message = format!("nodes are not told what Bottlerocket does not know: {}", ignored.join(", "));
            findings.class.set_condition(kind, ConditionStatus::True, kind, message, findings.now);
        }
        Ok(())
    }

    /// The expression in the settings of the kubelet that has no value for an instance type of the region.
    async fn without_value(&self, class: &Ec2NodeClass) -> Result<Option<(&'static str, String)>, ApiError> {
        let has_expressions = class.spec.kubelet.settings().is_ok_and(|settings| settings.has_expressions());
        if !has_expressions {
            return Ok(None);
        }
        let Ok(settings) = TypeSettings::new(class, &self.options.types) else { return Ok(None) };
        let types = self.types_or_error().await?;
        let wrong = types.infos.iter().find_map(|info| settings.without_value(info));
        Ok(wrong.map(|message| ("KubeletExpressionEvaluationFailed", message)))
    }

    /// The profile that the class names, or one that is made for its role.
    async fn find_profile(&self, findings: &mut Findings) -> Result<(), ApiError> {
        let (class, options) = (findings.class.clone(), &self.options);
        let mut problem = None;
        if let Some(profile) = &class.spec.instance_profile {
            findings.class.status.instance_profile.clone_from(profile);
        } else {
            let (cluster, region, uid) = (&options.cluster_name, options.region(), &class.metadata.uid);
            let name = profiles::profile_name(cluster, region, class.name(), uid, &class.spec.role);
            let is_known = self.lock().profile_is_known(&class, &name);
            if options.preparation != Preparation::Nothing && !is_known {
                let mut tags = tags::of_class(cluster, class.name(), &class.spec.tags);
                tags.insert(karpenter_core::labels::REGION.to_owned(), region.to_owned());
                let path = profiles::class_path(region, cluster, uid);
                match profiles::ensure(&*self.api, &name, &path, &class.spec.role, &tags).await {
                    Err(error) if error.is_not_found() => problem = Some(("RoleNotFound", error.message().to_owned())),
                    answer => answer?,
                }
            }
            findings.class.status.instance_profile = name;
        }
        findings.note(conditions::INSTANCE_PROFILE_READY, problem);
        Ok(())
    }
}

impl super::State {
    /// Whether a profile was found to be as it should a short while ago.
    fn profile_is_known(&self, class: &Ec2NodeClass, name: &str) -> bool {
        let known = self.resolved.get(class.name());
        known.is_some_and(|resolved| {
            let status = &resolved.class.status;
            let is_ready = status.condition(conditions::INSTANCE_PROFILE_READY) == ConditionStatus::True;
            status.instance_profile == name && is_ready
        })
    }
}

/// Why the class itself is of no use, whatever its selectors find.
fn invalid(class: &Ec2NodeClass, evaluates_expressions: bool) -> Option<(&'static str, String)> {
    if let Err(broken) = class.validate() {
        let broken: Vec<String> = broken.iter().map(ToString::to_string).collect();
        return Some(("InvalidSpec", broken.join("; ")));
    }
    if let Some(key) = class.spec.tags.keys().find(|key| tags::is_restricted(key)) {
        return Some(("TagValidationFailed", format!("the tag {key} is not for users")));
    }
    class.refusal(evaluates_expressions).map(|refusal| (refusal.reason, refusal.message))
}
