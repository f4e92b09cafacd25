//! Machines that were bought: looking at them, and giving them back.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use karpenter_core::provider::{Deletion, Instance, ProviderError, ProviderErrorKind, ProviderId};

use super::{Inner, machines, tags};
use crate::{
    api::{ApiError, AwsApi},
    ec2::{
        Filter,
        instance::{Ec2Instance, InstanceQuery, InstanceState},
    },
};

/// The states of machines that are not gone.
const ALIVE: [InstanceState; 5] = [
    InstanceState::Pending,
    InstanceState::Running,
    InstanceState::Stopping,
    InstanceState::Stopped,
    InstanceState::ShuttingDown,
];

/// Looks at machines by their ids, each once. One that is not known fails such a call for all, so those that are missing
/// in the answer are asked for one by one, but not if it says nothing about any of them.
pub(crate) async fn look(api: Arc<dyn AwsApi>, ids: Vec<String>) -> Vec<Result<Option<Ec2Instance>, ApiError>> {
    let mut unique = ids.clone();
    unique.sort();
    unique.dedup();
    let states = Filter::new("instance-state-name", ALIVE.map(InstanceState::as_str));
    let query = |ids: Vec<String>| InstanceQuery { ids, filters: vec![states.clone()] };
    let mut found: BTreeMap<String, Result<Option<Ec2Instance>, ApiError>> = BTreeMap::new();
    let together = api.describe_instances(&query(unique.clone())).await;
    let is_single = unique.len() == 1;
    match together {
        Ok(machines) => found.extend(machines.into_iter().map(|machine| (machine.id.clone(), Ok(Some(machine))))),
        Err(error) if is_single => {
            let answer = if error.is_not_found() { Ok(None) } else { Err(error) };
            found.insert(unique[0].clone(), answer);
        }
        Err(error) if is_of_no_machine(&error) => {
            found.extend(unique.iter().map(|id| (id.clone(), Err(error.clone()))));
        }
        Err(_) => {}
    }
    for id in unique {
        if found.contains_key(&id) {
            continue;
        }
        let answer = if is_single { Ok(Vec::new()) } else { api.describe_instances(&query(vec![id.clone()])).await };
        let answer = match answer {
            Ok(machines) => Ok(machines.into_iter().next()),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        };
        found.insert(id, answer);
    }
    ids.iter().map(|id| found.get(id).cloned().unwrap_or(Ok(None))).collect()
}

/// Terminates machines by their ids. Those that the answer does not show on their way out are terminated one by one, but not
/// after an error that says nothing about any of them.
pub(crate) async fn terminate(api: Arc<dyn AwsApi>, ids: Vec<String>) -> Vec<Result<InstanceState, ApiError>> {
    let mut unique = ids.clone();
    unique.sort();
    unique.dedup();
    let mut done: BTreeMap<String, Result<InstanceState, ApiError>> = BTreeMap::new();
    let together = api.terminate_instances(&unique).await;
    match together {
        Ok(changes) => {
            let ending = changes.into_iter().filter(|change| change.state.is_ending());
            done.extend(ending.map(|change| (change.id, Ok(change.state))));
        }
        Err(error) if unique.len() == 1 => {
            done.insert(unique[0].clone(), gone_is_done(error));
        }
        Err(error) if is_of_no_machine(&error) => {
            done.extend(unique.iter().map(|id| (id.clone(), Err(error.clone()))));
        }
        Err(_) => {}
    }
    for id in unique {
        if done.contains_key(&id) {
            continue;
        }
        let answer = match api.terminate_instances(std::slice::from_ref(&id)).await {
            Ok(changes) if changes.iter().any(|change| change.state.is_ending()) => Ok(InstanceState::ShuttingDown),
            Ok(_) => Err(ApiError::refused("TerminateInstances", "NotTerminated", format!("{id} goes on"))),
            Err(error) => gone_is_done(error),
        };
        done.insert(id, answer);
    }
    ids.iter().map(|id| done.get(id).cloned().unwrap_or(Ok(InstanceState::Terminated))).collect()
}

/// Whether an error is the same whichever machines are meant: there were too many calls, or EC2 did not answer. Hundreds
/// of calls, one after the other, would wait for it as long as the first.
fn is_of_no_machine(error: &ApiError) -> bool {
    matches!(error.kind(), ProviderErrorKind::Throttled | ProviderErrorKind::Unavailable)
}

fn gone_is_done(error: ApiError) -> Result<InstanceState, ApiError> {
    if error.is_not_found() { Ok(InstanceState::Terminated) } else { Err(error) }
}

impl Inner {
    /// A machine as it is now; `None` once it is gone.
    pub(crate) async fn look_at(&self, id: &str) -> Result<Option<Ec2Instance>, ApiError> {
        let found = self.looks.submit((), id.to_owned()).await;
        found.unwrap_or_else(|| Err(ApiError::no_answer("DescribeInstances", "the batch was left")))
    }

    pub(crate) async fn get(&self, id: &ProviderId) -> Result<Option<Instance>, ProviderError> {
        let Some(machine) = machines::instance_id(id) else { return Ok(None) };
        let found = self.look_at(machine).await.map_err(|error| error.to_error("get"))?;
        let Some(found) = found else {
            self.gone(machine, "get")?;
            return Ok(None);
        };
        Ok(Some(machines::to_instance(&found, &self.uid_of(&found))))
    }

    fn uid_of(&self, machine: &Ec2Instance) -> String {
        let known = self.lock().owners.uid_of(&machine.id).map(str::to_owned);
        known.unwrap_or_else(|| machine.tags.get(tags::CLAIM_UID).cloned().unwrap_or_default())
    }

    pub(crate) async fn list(&self) -> Result<Vec<Instance>, ProviderError> {
        let machines = self.all_machines().await.map_err(|error| error.to_error("list"))?;
        let now = self.clock.now();
        let mut state = self.lock();
        state.tell_of_ends(&machines, now);
        // Of machines of which the tags tell nothing, nobody knows whether they may go.
        let told = |machine: &Ec2Instance| {
            let uid = state.owners.uid_of(&machine.id).or_else(|| state.owners.likely_uid_of(machine))?;
            Some(machines::to_instance(machine, uid))
        };
        let mut out: Vec<Instance> = machines.iter().filter_map(told).collect();
        // EC2 may be silent about a zone in trouble, where nothing is taken for gone.
        let is_told: BTreeSet<ProviderId> = out.iter().map(|machine| machine.id.clone()).collect();
        let shifted = state.shifts.zones(now);
        let silent = state.owners.in_zones(&shifted).filter(|(id, _)| !is_told.contains(id));
        out.extend(silent.map(|(id, uid)| Instance::new(id, uid, BTreeMap::new())));
        Ok(out)
    }

    /// All machines of the cluster that are not gone. What is known of their owners is brought up to date.
    async fn all_machines(&self) -> Result<Vec<Ec2Instance>, ApiError> {
        let filters = vec![
            Filter::new("tag-key", [tags::NODE_POOL]),
            Filter::new("tag-key", [tags::NODE_CLASS]),
            Filter::tag(tags::CLUSTER_NAME, &self.options.cluster_name),
            Filter::new("instance-state-name", ALIVE.map(InstanceState::as_str)),
        ];
        let machines = self.api.describe_instances(&InstanceQuery { ids: Vec::new(), filters }).await?;
        let now = self.clock.now();
        let mut state = self.lock();
        let shifted = state.shifts.zones(now);
        state.owners.learn(&machines, &shifted, now);
        state.remaining.learn(&machines);
        drop(state);
        Ok(machines)
    }

    /// Sees to it that the machines are known that were there before this process.
    pub(crate) async fn learn_machines(&self) -> Result<(), ProviderError> {
        self.asking.machines.take((), self.learn_machines_now()).await
    }

    async fn learn_machines_now(&self) -> Result<(), ProviderError> {
        if self.lock().owners.is_complete {
            return Ok(());
        }
        self.all_machines().await.map(drop).map_err(|error| error.to_error("create"))
    }

    pub(crate) async fn delete(&self, id: &ProviderId) -> Result<Deletion, ProviderError> {
        let Some(machine) = machines::instance_id(id) else { return Ok(Deletion::Gone) };
        let found = self.look_at(machine).await.map_err(|error| error.to_error("delete"))?;
        let Some(found) = found else {
            self.gone(machine, "delete")?;
            return Ok(Deletion::Gone);
        };
        if !found.state.is_ending() {
            let is_open = self.not_in_shift(&found.zone, "TerminateInstances", machine);
            is_open.map_err(|error| error.to_error("delete"))?;
            let done = self.deletions.submit((), machine.to_owned()).await;
            let done = done.unwrap_or_else(|| Err(ApiError::no_answer("TerminateInstances", "the batch was left")));
            if let Err(error) = done {
                self.lock().note_termination_failure();
                return Err(error.to_error("delete"));
            }
            let mut state = self.lock();
            state.owners.given_back(machine);
            if let Some(reservation) = &found.reservation_id {
                state.remaining.given_back(machine, reservation);
            }
        }
        Ok(Deletion::Started)
    }

    /// EC2 does not tell of a machine: it is gone, unless it was bought just now.
    fn gone(&self, machine: &str, operation: &'static str) -> Result<(), ProviderError> {
        let now = self.clock.now();
        let mut state = self.lock();
        if state.may_be_unseen(machine, now) {
            let error = ApiError::no_answer("DescribeInstances", format!("{machine} is not told of yet"));
            return Err(error.to_error(operation));
        }
        state.owners.forget(machine);
        state.remaining.gone(machine);
        Ok(())
    }
}
