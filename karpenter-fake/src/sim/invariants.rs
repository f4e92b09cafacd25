//! Rules that hold at every step of a cluster's life, with what breaks them.

mod inspection;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use indexmap::IndexMap;
use karpenter_core::{
    Timestamp,
    api::{
        NillableDuration, Node, NodeClaim, ObjectKey, PersistentVolumeClaim, Pod, PodDisruptionBudget, Shield,
        VolumeAttachment,
    },
    engine::Object,
    labels::TERMINATION_TIMESTAMP,
    provider::ProviderId,
};

pub use self::inspection::Inspection;
use super::{
    ApiServer, FxBuild,
    api_server::{Change, is_ready, selects},
};
use crate::{
    FakeCloud,
    checker::filters::{Amounts, add, amounts_of, misfit, requests, untolerated},
};

/// How long a machine may be without a claim: the time of a few rounds of garbage collection.
const MAX_ORPHAN_AGE: Duration = Duration::from_mins(10);

/// A rule of a cluster's life that was broken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Breach {
    /// A pod was bound to a node whose labels or taints do not admit it.
    #[error("{pod} was bound to {node}, which does not admit it")]
    NotAdmitted {
        /// The pod.
        pod: ObjectKey,
        /// The name of the node.
        node: String,
    },
    /// The pods of a node ask for more than it has.
    #[error("{pod} was bound to {node}, which has too little {resource}")]
    Overfull {
        /// The pod that was one too many.
        pod: ObjectKey,
        /// The name of the node.
        node: String,
        /// The name of the resource.
        resource: String,
    },
    /// A machine runs for which there is no claim, for longer than garbage collection takes.
    #[error("{machine} has had no claim since {since}")]
    Leaked {
        /// The machine.
        machine: ProviderId,
        /// Since when.
        since: Timestamp,
    },
    /// Two machines run for one claim.
    #[error("the claim of uid {claim_uid} has {first} and {second}")]
    TwoMachines {
        /// The uid of the claim.
        claim_uid: String,
        /// One machine.
        first: ProviderId,
        /// The other.
        second: ProviderId,
    },
    /// An eviction left fewer pods healthy than a disruption budget asks for.
    #[error("the eviction of {pod} broke {budget}: {healthy} healthy pods of {desired}")]
    BudgetBroken {
        /// The pod.
        pod: ObjectKey,
        /// The budget.
        budget: ObjectKey,
        /// How many pods are healthy now.
        healthy: usize,
        /// How many must be.
        desired: usize,
    },
    /// A pod was evicted that must be left where it is.
    #[error("{pod} was evicted, though it says {}", karpenter_core::labels::DO_NOT_DISRUPT)]
    Disturbed {
        /// The pod.
        pod: ObjectKey,
    },
    /// What was counted step by step is not what is there.
    #[error("what the pods of {node} take was counted wrong")]
    Miscounted {
        /// The name of the node.
        node: String,
    },
    /// A machine was told to go with volumes attached that no pod on it mounts any more, though it still had time.
    #[error("{node} was told to go with {volume} attached")]
    StillAttached {
        /// The name of the node.
        node: String,
        /// The name of the volume.
        volume: String,
    },
    /// A pod was deleted past its budgets, though its node still had time.
    #[error("{pod} was deleted past all budgets, though {node} still had time")]
    Hurried {
        /// The pod.
        pod: ObjectKey,
        /// The name of its node.
        node: String,
    },
}

/// Looks at each step for broken rules.
#[derive(Clone, Debug, Default)]
pub(crate) struct Invariants {
    breaches: Vec<Breach>,
    nodes: IndexMap<String, Room, FxBuild>,
    /// What each bound pod takes, and where.
    pods: IndexMap<ObjectKey, (String, Amounts), FxBuild>,
    /// How many pods are healthy, by namespace, of those with the same labels.
    healthy: BTreeMap<String, IndexMap<Labels, usize, FxBuild>>,
    /// The uids of the claims that there are.
    claims: BTreeSet<String>,
    /// Since when machines have had no claim, and whether that was said.
    orphans: BTreeMap<ProviderId, (Timestamp, bool)>,
    /// How many machines there had been and were when they were looked at last, if no claim has gone since.
    audited: Option<(u64, usize)>,
    /// Claims of which it was said that they have two machines.
    doubled: BTreeSet<String>,
}

type Labels = BTreeMap<String, String>;

/// A node and what its pods take.
#[derive(Clone, Debug, Default)]
struct Room {
    node: std::sync::Arc<Node>,
    has: Amounts,
    taken: Amounts,
}

impl Invariants {
    pub(crate) fn take(&mut self) -> Vec<Breach> {
        std::mem::take(&mut self.breaches)
    }

    /// Takes in a change of an object.
    pub(crate) fn observe<'c>(&mut self, change: &'c Change) {
        let pod = |object: &'c Option<Object>| match object {
            Some(Object::Pod(pod)) => Some(pod.as_ref()),
            _ => None,
        };
        self.count_healthy(pod(&change.before), pod(&change.after));
        match (&change.before, &change.after) {
            (before, Some(Object::Pod(pod))) => {
                let was_bound = matches!(before, Some(Object::Pod(old)) if !old.spec.node_name.is_empty());
                let chosen = match before {
                    Some(Object::Pod(old)) => old.status.nominated_node_name.as_str(),
                    _ => "",
                };
                if pod.is_finished() {
                    self.unbind(&pod.key());
                    return;
                }
                // While the volumes of a pod are made nobody looks at its node again.
                let on =
                    if pod.spec.node_name.is_empty() { &pod.status.nominated_node_name } else { &pod.spec.node_name };
                if !was_bound && on != chosen {
                    self.admit(pod, on);
                }
                if !was_bound && !pod.spec.node_name.is_empty() {
                    self.bind(pod);
                }
            }
            (Some(Object::Pod(pod)), None) => self.unbind(&pod.key()),
            (_, Some(Object::Node(node))) => {
                let room = self.nodes.entry(node.metadata.name.clone()).or_default();
                (room.node, room.has) = (node.clone(), amounts_of(&node.status.allocatable));
            }
            (Some(Object::Node(node)), None) => {
                self.nodes.swap_remove(&node.metadata.name);
            }
            (_, Some(Object::NodeClaim(claim))) => {
                self.claims.insert(claim.metadata.uid.clone());
            }
            (Some(Object::NodeClaim(claim)), None) => {
                self.claims.remove(&claim.metadata.uid);
                self.audited = None;
            }
            _ => {}
        }
    }

    fn count_healthy(&mut self, before: Option<&Pod>, after: Option<&Pod>) {
        let (before, after) = (before.filter(|pod| is_healthy(pod)), after.filter(|pod| is_healthy(pod)));
        if before.map(|pod| &pod.metadata.labels) == after.map(|pod| &pod.metadata.labels) {
            return;
        }
        if let Some(pod) = before
            && let Some(near) = self.healthy.get_mut(pod.namespace())
            && let Some(count) = near.get_mut(&pod.metadata.labels)
        {
            *count -= 1;
            if *count == 0 {
                near.swap_remove(&pod.metadata.labels);
            }
            if near.is_empty() {
                self.healthy.remove(pod.namespace());
            }
        }
        let Some(pod) = after else { return };
        let near = match self.healthy.get_mut(pod.namespace()) {
            Some(near) => near,
            None => self.healthy.entry(pod.namespace().to_owned()).or_default(),
        };
        match near.get_mut(&pod.metadata.labels) {
            Some(count) => *count += 1,
            None => drop(near.insert(pod.metadata.labels.clone(), 1)),
        }
    }

    /// What there is to be looked at anew.
    pub(crate) fn inspection(&self, api: &ApiServer) -> Inspection {
        Inspection::new(self, api)
    }

    /// A node was chosen for a pod.
    fn admit(&mut self, pod: &Pod, name: &str) {
        let Some(node) = self.nodes.get(name).map(|room| &room.node) else { return };
        if misfit(&pod.spec, name, &node.metadata.labels).is_some()
            || untolerated(&pod.spec, &node.spec.taints, false).is_some()
        {
            self.breaches.push(Breach::NotAdmitted { pod: pod.key(), node: name.to_owned() });
        }
    }

    fn bind(&mut self, pod: &Pod) {
        if let Some(taken) = self.count(pod) {
            self.pods.insert(pod.key(), (pod.spec.node_name.clone(), taken));
        }
    }

    /// Counts what a pod takes of its node, if that is there, and tells it.
    fn count(&mut self, pod: &Pod) -> Option<Amounts> {
        let (name, taken) = (&pod.spec.node_name, requests(pod));
        let room = self.nodes.get_mut(name)?;
        add(&mut room.taken, &taken);
        let lacks = |(resource, amount): &(&karpenter_core::ResourceName, &i64)| {
            **amount > 0 && room.taken.get(*resource) > Some(&room.has.get(*resource).copied().unwrap_or(0))
        };
        if let Some((resource, _)) = taken.iter().find(lacks) {
            let resource = resource.to_string();
            self.breaches.push(Breach::Overfull { pod: pod.key(), node: name.clone(), resource });
        }
        Some(taken)
    }

    fn unbind(&mut self, pod: &ObjectKey) {
        let Some((node, taken)) = self.pods.swap_remove(pod) else { return };
        if let Some(room) = self.nodes.get_mut(&node) {
            let freed = taken.into_iter().map(|(name, amount)| (name, -amount)).collect();
            add(&mut room.taken, &freed);
        }
    }

    /// A machine is told to go: its volumes must be detached, or its time must be up.
    pub(crate) fn termination(&mut self, machine: &ProviderId, api: &ApiServer, now: Timestamp) {
        let is_of = |id: &str| id == machine.as_str();
        let Some(node) = api.list::<Node>().find(|node| is_of(&node.spec.provider_id)) else { return };
        let claim = api.list::<NodeClaim>().find(|claim| is_of(&claim.status.provider_id));
        let is_due = claim.and_then(|claim| deadline_of(claim)).is_some_and(|deadline| deadline <= now);
        if is_due || !node.is_ready() {
            return;
        }
        let name = &node.metadata.name;
        let at_node = api.list::<VolumeAttachment>().filter(|attachment| attachment.spec.node_name == *name);
        for attachment in at_node {
            let volume = &attachment.spec.source.persistent_volume_name;
            let mounts = |pod: &Pod| {
                let claims = pod.volume_claim_names().map(|claim| ObjectKey::new(pod.namespace(), &claim));
                let mut bound = claims.filter_map(|key| api.get::<PersistentVolumeClaim>(&key));
                bound.any(|claim| claim.spec.volume_name == *volume)
            };
            if !api.list::<Pod>().any(|pod| pod.spec.node_name == *name && !pod.is_finished() && mounts(pod)) {
                self.breaches.push(Breach::StillAttached { node: name.clone(), volume: volume.clone() });
            }
        }
    }

    /// Looks for machines without claims and for claims with two machines.
    pub(crate) fn audit(&mut self, now: Timestamp, cloud: &FakeCloud) {
        let turnover = cloud.turnover();
        if self.orphans.is_empty() && self.audited == Some(turnover) {
            return;
        }
        self.audited = Some(turnover);
        let machines = cloud.machines();
        let mut owners: BTreeMap<&str, &ProviderId> = BTreeMap::new();
        let mut orphans = BTreeMap::new();
        for (machine, uid, _) in &machines {
            if let Some(first) = owners.insert(uid, machine)
                && self.doubled.insert(uid.clone())
            {
                let (first, second) = (first.clone(), machine.clone());
                self.breaches.push(Breach::TwoMachines { claim_uid: uid.clone(), first, second });
            }
            if self.claims.contains(uid) {
                continue;
            }
            let (since, mut is_said) = self.orphans.get(machine).copied().unwrap_or((now, false));
            if !is_said && now.since(since) > MAX_ORPHAN_AGE {
                is_said = true;
                self.breaches.push(Breach::Leaked { machine: machine.clone(), since });
            }
            orphans.insert(machine.clone(), (since, is_said));
        }
        self.orphans = orphans;
    }

    /// What the eviction of a pod will break, if it is allowed: counted anew, whatever the status of budgets says.
    pub(crate) fn before_eviction(&self, key: &ObjectKey, api: &ApiServer, now: Timestamp) -> Vec<Breach> {
        let Some(pod) = api.get::<Pod>(key).filter(|pod| pod.is_active()) else { return Vec::new() };
        let mut out = Vec::new();
        if Shield::of_pod(pod, now).is_some() {
            out.push(Breach::Disturbed { pod: key.clone() });
        }
        if is_ready(pod) {
            out.extend(api.budgets_of(pod).iter().filter_map(|budget| self.broken(budget, pod)));
        }
        out
    }

    /// What is broken once one more pod of a budget is gone.
    fn broken(&self, budget: &PodDisruptionBudget, pod: &Pod) -> Option<Breach> {
        let namespace = &budget.metadata.namespace;
        let near = self.healthy.get(namespace).into_iter().flatten();
        let selector = budget.spec.selector.as_ref();
        let selected = near.filter(|(labels, _)| selector.is_some_and(|selector| selector.matches(labels)));
        let all: usize = selected.map(|(_, count)| count).sum();
        let healthy = all - usize::from(is_healthy(pod) && selects(budget, pod));
        let desired = usize::try_from(budget.status.desired_healthy).unwrap_or(0);
        let budget = ObjectKey::new(namespace, &budget.metadata.name);
        (healthy < desired).then(|| Breach::BudgetBroken { pod: pod.key(), budget, healthy, desired })
    }

    /// The eviction was allowed.
    pub(crate) fn after_eviction(&mut self, breaches: Vec<Breach>) {
        self.breaches.extend(breaches);
    }

    /// A pod of this name and uid is deleted past its budgets, for which the end of its node's time must be near.
    pub(crate) fn deletion(
        &mut self,
        (key, uid): (&ObjectKey, &str),
        api: &ApiServer,
        now: Timestamp,
        grace_period: Duration,
    ) {
        let meant = api.get::<Pod>(key).filter(|pod| pod.is_active() && pod.metadata.uid == uid);
        let Some(pod) = meant else { return };
        let node = pod.spec.node_name.clone();
        let is_due = |claim: &NodeClaim| {
            let deadline = deadline_of(claim);
            deadline.is_some_and(|deadline| deadline <= now + grace_period.max(super::api_server::grace_period_of(pod)))
        };
        let is_protected = Shield::of_pod(pod, now).is_some() || !api.budgets_of(pod).is_empty();
        let of_node = |claim: &&std::sync::Arc<NodeClaim>| claim.status.node_name == node;
        let claim = api.list::<NodeClaim>().find(of_node);
        if is_protected && !claim.is_some_and(|claim| is_due(claim)) {
            self.breaches.push(Breach::Hurried { pod: key.clone(), node });
        }
    }
}

/// When the time of a claim's node is up.
fn deadline_of(claim: &NodeClaim) -> Option<Timestamp> {
    let grace = claim.spec.termination_grace_period.as_ref().and_then(NillableDuration::duration);
    let asked = claim.metadata.deletion_timestamp;
    // Node repair writes an earlier time.
    let written = claim.metadata.annotations.get(TERMINATION_TIMESTAMP).and_then(|text| text.parse().ok());
    asked.and(written).or(asked.zip(grace).map(|(asked, grace)| asked + grace))
}

/// Whether a pod is ready, and stays.
fn is_healthy(pod: &Pod) -> bool {
    is_ready(pod) && pod.is_active()
}

#[cfg(test)]
mod tests {
    use karpenter_core::{Quantity, ResourceList, api::Workload};

    use super::*;

    #[test]
    fn all_pods_are_looked_at_anew() {
        let mut api = ApiServer::default();
        let mut node = Node::default();
        node.metadata.name = "n".to_owned();
        node.status.allocatable =
            ResourceList::from_iter([("cpu", Quantity::from_units(1)), ("pods", Quantity::from_units(9))]);
        let node = api.create(node).expect("a new node");
        let mut step_by_step = Invariants::default();
        step_by_step.observe(&Change { before: None, after: Some(Object::Node(node)) });
        for name in ["a", "b"] {
            assert_eq!(step_by_step.inspection(&api).breaches(), [], "before {name}");
            let mut pod = Workload::from(Pod::named(name).cpu("600m")).into_pods().expect("a pod").remove(0);
            pod.spec.node_name = "n".to_owned();
            let pod = api.create(pod).expect("a new pod");
            let missed = Breach::Miscounted { node: "n".to_owned() };
            assert_eq!(step_by_step.inspection(&api).breaches().last(), Some(&missed), "nobody told of {name}");
            step_by_step.observe(&Change { before: None, after: Some(Object::Pod(pod)) });
            if name == "b" {
                let overfull = |breach: &Breach| matches!(breach, Breach::Overfull { .. });
                assert!(step_by_step.take().iter().all(overfull));
                assert!(matches!(step_by_step.inspection(&api).breaches().as_slice(), [Breach::Overfull { .. }]));
            }
        }
    }
}
