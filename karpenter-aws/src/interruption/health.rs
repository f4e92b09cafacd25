use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
    time::Duration,
};

use karpenter_core::{
    Timestamp,
    provider::{ProviderError, ProviderEvent},
};

use crate::{
    api::{ApiError, AwsApi},
    clock::Clock,
    ec2::{Filter, instance::InstanceHealth},
    provider::Ec2Provider,
};

/// Checks that fail for less long may be those of a machine that starts.
const IMPAIRED_FOR: Duration = Duration::from_mins(2);
/// What AWS may plan for a machine after which it is not what it was.
const EVENTS: [&str; 5] =
    ["instance-reboot", "system-reboot", "system-maintenance", "instance-retirement", "instance-stop"];

/// What is wrong with a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Ailment {
    /// The checks of the machine itself fail.
    InstanceStatus,
    /// The checks of what it runs on fail.
    SystemStatus,
    /// AWS will do something to it.
    ScheduledEvent,
}

impl Ailment {
    /// The name in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::InstanceStatus => "instance_status",
            Self::SystemStatus => "system_status",
            Self::ScheduledEvent => "event_status",
        }
    }
}

/// Asks EC2 how machines fare and tells the engine of those that are not well, which needs no queue.
///
/// A machine is told of once, and again if it was well in between.
pub struct HealthCheck {
    api: Arc<dyn AwsApi>,
    clock: Arc<dyn Clock>,
    provider: Ec2Provider,
    told: BTreeSet<String>,
    is_forbidden: bool,
}

impl fmt::Debug for HealthCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HealthCheck")
            .field("told", &self.told)
            .field("is_forbidden", &self.is_forbidden)
            .finish_non_exhaustive()
    }
}

impl HealthCheck {
    /// Tells `provider` of the machines of its cluster.
    pub fn new(api: Arc<dyn AwsApi>, clock: Arc<dyn Clock>, provider: Ec2Provider) -> Self {
        Self { api, clock, provider, told: BTreeSet::new(), is_forbidden: false }
    }

    /// Asks once; to be called every minute or so. Gives back the machines of which the engine was told now.
    ///
    /// # Errors
    /// EC2 did not answer. If the credentials do not allow the question it is never asked again.
    pub async fn poll(&mut self) -> Result<BTreeMap<String, Ailment>, ProviderError> {
        if self.is_forbidden {
            return Ok(BTreeMap::new());
        }
        let found = match self.ailing().await {
            Ok(found) => found,
            Err(error) => {
                self.is_forbidden = error.code() == "UnauthorizedOperation";
                return Err(error.to_error("next_events"));
            }
        };
        let at = self.clock.now();
        let mut new = BTreeMap::new();
        let mut told = BTreeSet::new();
        for (machine, ailment) in found {
            let Some(zone) = self.provider.zone_of(&machine) else { continue };
            if !self.told.contains(&machine) {
                let id = crate::provider::provider_id(&zone, &machine);
                let message = format!("EC2 says that {machine} is not well: {}", ailment.as_str());
                self.provider.tell(ProviderEvent::Notice {
                    id: id.clone(),
                    is_warning: true,
                    reason: "InstanceUnhealthy".into(),
                    message,
                });
                self.provider.tell(ProviderEvent::Ending { id, at });
                self.provider.unhealthy(ailment);
                new.insert(machine.clone(), ailment);
            }
            told.insert(machine);
        }
        self.told = told;
        Ok(new)
    }

    /// All machines of the account that are not well: EC2 cannot be asked for those of a cluster.
    async fn ailing(&self) -> Result<BTreeMap<String, Ailment>, ApiError> {
        let questions = [
            Filter::new("instance-status.status", ["impaired"]),
            Filter::new("system-status.status", ["impaired"]),
            Filter::new("event.code", EVENTS),
        ];
        let mut out = BTreeMap::new();
        for question in questions {
            let found = self.api.describe_instance_health(&[question]).await?;
            let now = self.clock.now();
            out.extend(found.into_iter().filter_map(|health| Some((health.id.clone(), ailment(&health, now)?))));
        }
        Ok(out)
    }
}

fn ailment(health: &InstanceHealth, now: Timestamp) -> Option<Ailment> {
    let is_long = |since: Option<Timestamp>| since.is_some_and(|since| now >= since + IMPAIRED_FOR);
    if is_long(health.instance_impaired_since) {
        Some(Ailment::InstanceStatus)
    } else if is_long(health.system_impaired_since) {
        Some(Ailment::SystemStatus)
    } else {
        let is_planned = health.events.iter().any(|code| EVENTS.contains(&code.as_str()));
        is_planned.then_some(Ailment::ScheduledEvent)
    }
}
