//! From a machine to a node and to no node: what the kubelet registers, what becomes of the node when its machine is
//! gone (node lifecycle and cloud node controller), and what goes with it (pod and owner-reference garbage collection).

use std::{collections::BTreeMap, time::Duration};

use karpenter_core::{
    ResourceList, Timestamp,
    api::{ConditionStatus, Node, Pod, Taint, TaintEffect},
    engine::Object,
    labels,
    provider::ProviderId,
};

use super::{Kubelets, kubelet::set_condition};
use crate::{
    FakeCloud,
    checker::filters::untolerated,
    sim::{
        ApiServer, Rng, WorldOptions,
        api_server::{Change, cluster_key},
        timeline::Timeline,
        world::Happening,
    },
};

const NOT_READY: &str = "node.kubernetes.io/not-ready";
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
/// How long pods stay by default on nodes that are not there (`DefaultTolerationSeconds`).
const TOLERATION: Duration = Duration::from_mins(5);
/// How often the cloud node controller looks for nodes without machines (`nodeStatusUpdateFrequency`).
const CLOUD_CHECK: Duration = Duration::from_secs(5);

/// How often startup taints are taken away until a node is registered.
const STARTUP_CHECK: Duration = Duration::from_secs(10);

/// Nodes and their machines.
#[derive(Clone, Debug)]
pub(crate) struct Lifecycle {
    /// The names of nodes by their machines.
    nodes: BTreeMap<ProviderId, String>,
    /// What nodes will have that they do not show yet: startup taints to go, and resources of devices to come.
    hidden: BTreeMap<String, Hidden>,
    rng: Rng,
}

#[derive(Clone, Debug, Default)]
struct Hidden {
    startup_taints: Vec<Taint>,
    capacity: ResourceList,
    allocatable: ResourceList,
}

impl Lifecycle {
    pub(crate) fn new(rng: Rng) -> Self {
        Self { nodes: BTreeMap::new(), hidden: BTreeMap::new(), rng }
    }

    /// The kubelet of a machine registers its node, which is not ready yet and has no devices.
    pub(crate) fn join(
        &mut self,
        id: &ProviderId,
        now: Timestamp,
        (cloud, api): (&FakeCloud, &mut ApiServer),
        timeline: &mut Timeline<Happening>,
        options: &WorldOptions,
    ) {
        let Some((_, mut node, startup_taints)) = cloud.joining(id) else { return };
        let name = node.metadata.name.clone();
        let devices = |list: &ResourceList| {
            list.iter().filter(|(n, _)| n.as_str().contains('/')).map(|(n, q)| (n.clone(), q)).collect()
        };
        let hidden = Hidden {
            startup_taints,
            capacity: devices(&node.status.capacity),
            allocatable: devices(&node.status.allocatable),
        };
        node.status.capacity.subtract(&hidden.capacity);
        node.status.allocatable.subtract(&hidden.allocatable);
        node.spec.taints.push(Taint::new(labels::UNREGISTERED, "", TaintEffect::NoExecute));
        node.spec.taints.push(Taint::new(NOT_READY, "", TaintEffect::NoSchedule));
        set_condition(&mut node.status.conditions, "Ready", ConditionStatus::False, "KubeletNotReady", now);
        if api.create(node).is_ok() {
            self.hidden.insert(name.clone(), hidden);
            self.nodes.insert(id.clone(), name.clone());
            timeline.plan(now + self.rng.duration(&options.node_ready_delay), Happening::NodeReady(name));
        }
    }

    /// A node is ready. Its devices and whatever waits for its startup taints take a while longer.
    pub(crate) fn ready(
        &mut self,
        name: &str,
        now: Timestamp,
        api: &mut ApiServer,
        timeline: &mut Timeline<Happening>,
        options: &WorldOptions,
    ) {
        let Some(hidden) = self.hidden.get(name) else { return };
        api.modify::<Node>(&cluster_key(name), |node| {
            set_condition(&mut node.status.conditions, "Ready", ConditionStatus::True, "KubeletReady", now);
            node.spec.taints.retain(|taint| taint.key != NOT_READY);
        });
        if !hidden.capacity.is_empty() {
            let at = now + self.rng.duration(&options.device_delay);
            timeline.plan(at, Happening::DevicesReady(name.to_owned()));
        }
        if !hidden.startup_taints.is_empty() {
            let at = now + self.rng.duration(&options.startup_taint_delay);
            timeline.plan(at, Happening::StartupDone(name.to_owned()));
        }
    }

    /// The plugins of the devices of a node have reported them.
    pub(crate) fn show_devices(&mut self, name: &str, api: &mut ApiServer) {
        let Some(hidden) = self.hidden.get(name) else { return };
        api.modify::<Node>(&cluster_key(name), |node| {
            node.status.capacity.add(&hidden.capacity);
            node.status.allocatable.add(&hidden.allocatable);
        });
    }

    /// Whoever waits on a node for its start has done so, and takes the startup taints away, also those that are put on
    /// anew when the node is registered.
    pub(crate) fn finish_startup(
        &mut self,
        name: &str,
        now: Timestamp,
        api: &mut ApiServer,
        timeline: &mut Timeline<Happening>,
    ) {
        let Some(hidden) = self.hidden.get(name) else { return };
        let node = api.modify::<Node>(&cluster_key(name), |node| {
            node.spec.taints.retain(|taint| !hidden.startup_taints.contains(taint));
        });
        if node.is_some_and(|node| !node.metadata.labels.contains_key(labels::REGISTERED)) {
            timeline.plan(now + STARTUP_CHECK, Happening::StartupDone(name.to_owned()));
        }
    }

    /// A machine is gone: its kubelet says nothing any more, which is noticed after a while.
    pub(crate) fn die(
        &mut self,
        id: &ProviderId,
        now: Timestamp,
        kubelets: &mut Kubelets,
        timeline: &mut Timeline<Happening>,
        options: &WorldOptions,
    ) {
        let Some(name) = self.nodes.remove(id) else { return };
        self.hidden.remove(&name);
        kubelets.die(&name);
        timeline.plan(now + options.node_monitor_grace_period, Happening::LeaseLost(name));
    }

    /// Nothing was heard of a node for too long: it and its pods are not ready, and the cloud is asked for its machine.
    pub(crate) fn lose(
        name: &str,
        now: Timestamp,
        api: &mut ApiServer,
        kubelets: &Kubelets,
        timeline: &mut Timeline<Happening>,
    ) {
        if Self::set_ready(name, ConditionStatus::Unknown, now, api, kubelets) {
            timeline.plan(now + CLOUD_CHECK, Happening::MachineMissed(name.to_owned()));
        }
    }

    /// A node is ready or not, and so are its pods. One that is not takes no more, and those that it has leave in a while
    /// (<https://kubernetes.io/docs/concepts/architecture/nodes/#node-controller>). Says whether there is such a node.
    pub(crate) fn set_ready(
        name: &str,
        status: ConditionStatus,
        now: Timestamp,
        api: &mut ApiServer,
        kubelets: &Kubelets,
    ) -> bool {
        let (reason, taint) = match status {
            ConditionStatus::True => ("KubeletReady", None),
            ConditionStatus::False => ("KubeletNotReady", Some(NOT_READY)),
            ConditionStatus::Unknown => ("NodeStatusUnknown", Some(UNREACHABLE)),
        };
        let found = api.modify::<Node>(&cluster_key(name), |node| {
            set_condition(&mut node.status.conditions, "Ready", status, reason, now);
            node.spec.taints.retain(|taint| ![NOT_READY, UNREACHABLE].contains(&taint.key.as_str()));
            let effects = [TaintEffect::NoSchedule, TaintEffect::NoExecute];
            let taints = taint.into_iter().flat_map(|key| effects.map(|effect| Taint::new(key, "", effect)));
            node.spec.taints.extend(taints);
        });
        if found.is_none() {
            return false;
        }
        let (of_pods, why) =
            if taint.is_none() { (ConditionStatus::True, "") } else { (ConditionStatus::False, "NodeNotReady") };
        for pod in kubelets.pods_on(name) {
            api.modify::<Pod>(pod, |pod| {
                if pod.status.phase == "Running" {
                    set_condition(&mut pod.status.conditions, "Ready", of_pods, why, now);
                }
            });
        }
        true
    }

    /// Takes in a change of an object.
    pub(crate) fn observe(change: &Change, now: Timestamp, timeline: &mut Timeline<Happening>, options: &WorldOptions) {
        match (&change.before, &change.after) {
            (Some(Object::Node(node)), None) => {
                let at = now + options.pod_gc_delay;
                timeline.plan(at, Happening::NodeForgotten(node.metadata.name.clone()));
            }
            (before, Some(Object::Node(node))) => {
                let is_same = matches!(before, Some(Object::Node(old)) if old.spec.taints == node.spec.taints);
                if let Some(delay) = eviction_delay(&node.spec.taints).filter(|_| !is_same) {
                    timeline.plan(now + delay, Happening::TaintEvicts(node.metadata.name.clone()));
                }
            }
            (Some(Object::NodeClaim(claim)), None) => {
                timeline.plan(now, Happening::OwnerGone(claim.metadata.uid.clone()));
            }
            _ => {}
        }
    }

    /// Pods that do not tolerate the taints of their node leave it.
    pub(crate) fn evict_untolerant(name: &str, api: &mut ApiServer, kubelets: &Kubelets) {
        let Some(node) = api.node(name).cloned() else { return };
        let taints: Vec<Taint> =
            node.spec.taints.iter().filter(|t| t.effect == TaintEffect::NoExecute).cloned().collect();
        for key in kubelets.pods_on(name) {
            let Some(pod) = api.get::<Pod>(key) else { continue };
            if pod.is_active() && untolerated(&pod.spec, &taints, false).is_some() {
                let _ = api.delete_pod(key, "", None);
            }
        }
    }

    /// The pods of a node that is no more are given up.
    pub(crate) fn forget_pods(name: &str, api: &mut ApiServer, kubelets: &Kubelets) {
        if api.node(name).is_some() {
            return;
        }
        for key in kubelets.pods_on(name) {
            api.confirm_end(key, "");
        }
    }

    /// Nodes go with the claim that owns them.
    pub(crate) fn delete_owned(uid: &str, api: &mut ApiServer) {
        let is_owned = |node: &Node| node.metadata.owner_references.iter().any(|owner| owner.uid == uid);
        let owned: Vec<String> =
            api.list::<Node>().filter(|node| is_owned(node)).map(|node| node.metadata.name.clone()).collect();
        for name in owned {
            let _ = api.delete::<Node>(&cluster_key(&name), "");
        }
    }
}

/// After how long pods leave that do not tolerate taints like these; `None` if none of them makes pods leave.
fn eviction_delay(taints: &[Taint]) -> Option<Duration> {
    let mut evicting = taints.iter().filter(|t| t.effect == TaintEffect::NoExecute).peekable();
    evicting.peek()?;
    let is_patient = evicting.all(|t| matches!(t.key.as_str(), NOT_READY | UNREACHABLE));
    Some(if is_patient { TOLERATION } else { Duration::ZERO })
}
