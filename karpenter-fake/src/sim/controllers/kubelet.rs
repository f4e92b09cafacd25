//! The kubelets of all nodes, as far as pods go.

use std::collections::{BTreeMap, BTreeSet};

use karpenter_core::{
    Timestamp,
    api::{Condition, ConditionStatus, ObjectKey, Pod},
    engine::Object,
};

use super::Workloads;
use crate::sim::{
    ApiServer, Rng, WorldOptions,
    api_server::Change,
    timeline::Timeline,
    world::{Happening, PodRef},
};

/// Starts pods, runs them and ends them.
#[derive(Clone, Debug)]
pub(crate) struct Kubelets {
    /// The pods on each node.
    on_node: BTreeMap<String, BTreeSet<ObjectKey>>,
    /// Nodes whose machines are gone: nothing on them starts or ends any more.
    dead: BTreeSet<String>,
    rng: Rng,
}

impl Kubelets {
    pub(crate) fn new(rng: Rng) -> Self {
        Self { on_node: BTreeMap::new(), dead: BTreeSet::new(), rng }
    }

    /// The machine of a node is gone.
    pub(crate) fn die(&mut self, node: &str) {
        self.dead.insert(node.to_owned());
    }

    /// The pods that are bound to a node, whether it is there or not.
    pub(crate) fn pods_on(&self, node: &str) -> impl Iterator<Item = &ObjectKey> {
        self.on_node.get(node).into_iter().flatten()
    }

    /// Takes in a change of an object.
    pub(crate) fn observe(
        &mut self,
        change: &Change,
        now: Timestamp,
        timeline: &mut Timeline<Happening>,
        options: &WorldOptions,
    ) {
        let before = match &change.before {
            Some(Object::Pod(pod)) => Some(pod),
            _ => None,
        };
        let Some(Object::Pod(pod)) = &change.after else {
            if let Some(pod) = before.filter(|_| change.after.is_none()) {
                self.forget(pod);
            }
            return;
        };
        let node = &pod.spec.node_name;
        if node.is_empty() {
            return;
        }
        if before.is_none_or(|old| old.spec.node_name.is_empty()) {
            self.on_node.entry(node.clone()).or_default().insert(pod.key());
            if pod.status.phase == "Pending" {
                let at = now + self.rng.duration(&options.pod_start_delay);
                timeline.plan(at, Happening::PodStarts(PodRef::of(pod)));
            }
        }
        let due = pod.metadata.deletion_timestamp;
        if let Some(due) = due.filter(|_| before.is_none_or(|old| old.metadata.deletion_timestamp != due)) {
            let at = (now + self.rng.duration(&options.pod_stop_delay)).min(due);
            timeline.plan(at, Happening::PodStops(PodRef::of(pod)));
        }
    }

    fn forget(&mut self, pod: &Pod) {
        if let Some(pods) = self.on_node.get_mut(&pod.spec.node_name) {
            pods.remove(&pod.key());
            if pods.is_empty() {
                self.on_node.remove(&pod.spec.node_name);
            }
        }
    }

    /// The containers of a pod are up, if the pod and its machine are still there.
    pub(crate) fn start(
        &self,
        pod: &PodRef,
        now: Timestamp,
        api: &mut ApiServer,
        workloads: &Workloads,
        timeline: &mut Timeline<Happening>,
    ) {
        let Some(found) = self.find(pod, api).filter(|found| found.is_active()) else { return };
        if let Some(duration) = workloads.duration_of(found) {
            timeline.plan(now + duration, Happening::PodEnds(pod.clone()));
        }
        api.modify::<Pod>(&pod.key, |pod| {
            "Running".clone_into(&mut pod.status.phase);
            pod.status.start_time = Some(now);
            set_condition(&mut pod.status.conditions, "Ready", ConditionStatus::True, "", now);
        });
    }

    /// A pod has done what it was made for.
    pub(crate) fn end(
        &self,
        pod: &PodRef,
        now: Timestamp,
        api: &mut ApiServer,
        timeline: &mut Timeline<Happening>,
        options: &WorldOptions,
    ) {
        if !self.find(pod, api).is_some_and(Pod::is_active) {
            return;
        }
        api.modify::<Pod>(&pod.key, |pod| {
            "Succeeded".clone_into(&mut pod.status.phase);
            set_condition(&mut pod.status.conditions, "Ready", ConditionStatus::False, "PodCompleted", now);
        });
        timeline.plan(now + options.finished_pod_ttl, Happening::PodForgotten(pod.clone()));
    }

    /// The containers of a pod that is to end are down.
    pub(crate) fn stop(&self, pod: &PodRef, api: &mut ApiServer) {
        if self.find(pod, api).is_some() {
            api.confirm_end(&pod.key, &pod.uid);
        }
    }

    /// This very pod, if its machine is there.
    fn find<'a>(&self, pod: &PodRef, api: &'a ApiServer) -> Option<&'a Pod> {
        let found = api.get::<Pod>(&pod.key).filter(|found| found.metadata.uid == pod.uid)?;
        (!self.dead.contains(&found.spec.node_name)).then_some(found)
    }
}

/// Sets a condition, and when it changed if it did.
pub(crate) fn set_condition(
    conditions: &mut Vec<Condition>,
    kind: &str,
    status: ConditionStatus,
    reason: &str,
    now: Timestamp,
) {
    let index = conditions.iter().position(|c| c.r#type == kind).unwrap_or_else(|| {
        let mut condition = Condition::default();
        kind.clone_into(&mut condition.r#type);
        conditions.push(condition);
        conditions.len() - 1
    });
    let condition = &mut conditions[index];
    if condition.status != status || condition.last_transition_time.is_none() {
        condition.last_transition_time = Some(now);
    }
    condition.status = status;
    reason.clone_into(&mut condition.reason);
}
