//! What pods ask of a node alone, worked out once for all pods that ask the same.

use std::{collections::BTreeSet, sync::Arc};

use indexmap::IndexMap;
use karpenter_core::{
    ResourceName,
    api::{Operator, Pod, PodSpec, Taint, TaintEffect},
    cluster::{Storage, VolumeNeeds},
};

use super::nodes::NodeInfo;
use crate::{
    checker::{
        filters::{holds, misfit, requests_of, untolerated},
        ports::ports,
    },
    sim::FxBuild,
};

/// Address, protocol and number.
pub(super) type Port = (String, String, u16);
/// The most shapes that are kept though no pod has them: more than there are workloads in most clusters.
const MAX_IDLE: usize = 4096;
/// What a pod that asks for no CPU or memory counts as when nodes are scored (`DefaultMilliCPURequest`,
/// `DefaultMemoryRequest`).
const UNSTATED: [i64; 2] = [100, 200 * 1024 * 1024];

/// The names of resources, each of which has a small number.
#[derive(Clone, Debug)]
pub(super) struct ResourceTable(Vec<ResourceName>);

impl ResourceTable {
    /// CPU and memory come first.
    pub(super) fn new() -> Self {
        use ResourceName::{Cpu, EphemeralStorage, Memory, Pods};
        Self(vec![Cpu, Memory, EphemeralStorage, Pods])
    }

    pub(super) fn number(&mut self, name: &ResourceName) -> usize {
        self.0.iter().position(|n| n == name).unwrap_or_else(|| {
            self.0.push(name.clone());
            self.0.len() - 1
        })
    }

    pub(super) fn name(&self, number: usize) -> &ResourceName {
        &self.0[number]
    }
}

/// What some pods ask of a node, whoever runs there.
#[derive(Clone, Debug)]
pub(super) struct Shape {
    pub(super) spec: Arc<PodSpec>,
    /// By the numbers of the resources; what is zero is left out.
    pub(super) requests: Vec<(usize, i64)>,
    /// CPU and memory as they count when nodes are scored.
    pub(super) scored: [i64; 2],
    pub(super) ports: Vec<Port>,
    /// The volumes, or why they fit nowhere.
    pub(super) volumes: Result<VolumeNeeds, String>,
    /// The only nodes that it may go to, if it names them.
    pub(super) named_nodes: Option<BTreeSet<String>>,
    /// What was found for each node, and for which version of it.
    verdicts: Vec<(u32, Verdict)>,
    pods: usize,
}

/// Whether a node will do as far as its labels and taints go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Verdict {
    #[default]
    Fits,
    Unschedulable,
    Tainted,
    WrongLabels,
    WrongVolumes,
}

impl Shape {
    fn new(pod: &Pod, spec: PodSpec, resources: &mut ResourceTable, storage: &Storage) -> Self {
        let amounts = requests_of(&spec);
        let amount = |name| amounts.get(&name).copied().unwrap_or(0);
        let stated = [amount(ResourceName::Cpu), amount(ResourceName::Memory)];
        let scored = [0, 1].map(|i| if stated[i] == 0 { UNSTATED[i] } else { stated[i] });
        let requests = amounts.iter().filter(|(_, amount)| **amount != 0);
        Self {
            requests: requests.map(|(name, amount)| (resources.number(name), *amount)).collect(),
            scored,
            ports: ports(&spec),
            volumes: storage.needs_of(pod).map_err(|problem| problem.to_string()),
            named_nodes: named_nodes(&spec),
            spec: Arc::new(spec),
            verdicts: Vec::new(),
            pods: 0,
        }
    }

    /// Whether a node will do (the filters `NodeUnschedulable`, `TaintToleration`, `NodeAffinity`, and the node's side
    /// of `VolumeBinding`).
    pub(super) fn verdict(&mut self, slot: usize, node: &NodeInfo) -> Verdict {
        if self.verdicts.len() <= slot {
            self.verdicts.resize(slot + 1, (0, Verdict::Fits));
        }
        let (version, known) = self.verdicts[slot];
        if version == node.version {
            return known;
        }
        let verdict = self.judge(node);
        self.verdicts[slot] = (node.version, verdict);
        verdict
    }

    fn judge(&self, node: &NodeInfo) -> Verdict {
        let (name, spec, labels) = (&node.node.metadata.name, &node.node.spec, &node.labels);
        let cordon = Taint::new("node.kubernetes.io/unschedulable", "", TaintEffect::NoSchedule);
        if spec.unschedulable && untolerated(&self.spec, &[cordon], false).is_some() {
            return Verdict::Unschedulable;
        }
        if untolerated(&self.spec, &spec.taints, false).is_some() {
            return Verdict::Tainted;
        }
        if misfit(&self.spec, name, labels).is_some() {
            return Verdict::WrongLabels;
        }
        match &self.volumes {
            Ok(needs) if needs.admit_node(name, labels) => Verdict::Fits,
            _ => Verdict::WrongVolumes,
        }
    }

    /// How much a node is preferred for its labels: the weights of the terms that it meets.
    pub(super) fn preference(&self, node: &NodeInfo) -> i64 {
        let terms = self.spec.affinity.node_affinity.preferred.iter();
        let is_met = |term: &karpenter_core::api::NodeSelectorTerm| {
            let value = |key: &String| node.labels.get(key).map(String::as_str);
            let name = |key: &str| (key == "metadata.name").then_some(node.node.metadata.name.as_str());
            term.match_expressions.iter().all(|e| holds(e, value(&e.key)))
                && term.match_fields.iter().all(|e| holds(e, name(&e.key)))
        };
        terms.filter(|t| t.weight != 0 && is_met(&t.preference)).map(|t| i64::from(t.weight)).sum()
    }

    /// How many taints of a node would rather not have the pod.
    pub(super) fn unwelcome(&self, node: &NodeInfo) -> i64 {
        let soft = node.node.spec.taints.iter().filter(|t| t.effect == TaintEffect::PreferNoSchedule);
        let tolerated = |taint: &Taint| untolerated(&self.spec, std::slice::from_ref(taint), true).is_none();
        soft.filter(|taint| !tolerated(taint)).count().try_into().unwrap_or(i64::MAX)
    }
}

/// The nodes that every term of the required affinity names, if each names some.
fn named_nodes(spec: &PodSpec) -> Option<BTreeSet<String>> {
    let terms = &spec.affinity.node_affinity.required.as_ref()?.node_selector_terms;
    let mut all = BTreeSet::new();
    for term in terms {
        let by_name = term.match_fields.iter().find(|e| e.key == "metadata.name" && e.operator == Operator::In)?;
        all.extend(by_name.values.iter().cloned());
    }
    Some(all)
}

/// The shapes of all pods that there are, and of some that there were.
#[derive(Clone, Debug, Default)]
pub(super) struct Shapes {
    slots: Vec<Option<Shape>>,
    free: Vec<usize>,
    by_spec: IndexMap<Arc<PodSpec>, usize, FxBuild>,
    idle: usize,
}

impl Shapes {
    /// The shape of a pod, which holds it until [`Shapes::release`].
    pub(super) fn hold(&mut self, pod: &Pod, resources: &mut ResourceTable, storage: &Storage) -> usize {
        let mut spec = pod.spec.clone();
        spec.node_name.clear();
        let is_own = spec.volumes.iter().any(|v| v.ephemeral.is_some());
        let known = self.by_spec.get(&spec).copied().filter(|_| !is_own);
        let slot = known.unwrap_or_else(|| self.add(Shape::new(pod, spec, resources, storage)));
        let Some(shape) = &mut self.slots[slot] else { unreachable_shape() };
        self.idle -= usize::from(shape.pods == 0);
        shape.pods += 1;
        slot
    }

    pub(super) fn release(&mut self, slot: usize) {
        let shape = self.get_mut(slot);
        shape.pods -= 1;
        if shape.pods == 0 {
            self.idle += 1;
            if self.idle > MAX_IDLE {
                self.forget_idle();
            }
        }
    }

    pub(super) fn get(&self, slot: usize) -> &Shape {
        self.slots[slot].as_ref().unwrap_or_else(|| unreachable_shape())
    }

    pub(super) fn get_mut(&mut self, slot: usize) -> &mut Shape {
        self.slots[slot].as_mut().unwrap_or_else(|| unreachable_shape())
    }

    /// Makes shapes with volumes anew for pods that come from now on, because volumes have changed.
    pub(super) fn forget_volumes(&mut self) {
        self.by_spec.retain(|spec, _| spec.volumes.is_empty());
    }

    fn add(&mut self, shape: Shape) -> usize {
        self.idle += 1;
        let spec = shape.spec.clone();
        let slot = self.free.pop().unwrap_or(self.slots.len());
        if slot == self.slots.len() {
            self.slots.push(None);
        }
        self.slots[slot] = Some(shape);
        self.by_spec.insert(spec, slot);
        slot
    }

    fn forget_idle(&mut self) {
        for (slot, shape) in self.slots.iter_mut().enumerate() {
            if shape.as_ref().is_some_and(|s| s.pods == 0) {
                *shape = None;
                self.free.push(slot);
            }
        }
        let slots = &self.slots;
        self.by_spec.retain(|_, slot| slots[*slot].is_some());
        self.idle = 0;
    }
}

/// A slot is handed out with its shape, and its shape stays while pods hold it.
fn unreachable_shape() -> ! {
    panic!("a shape was used that nobody holds")
}
