//! The kube-scheduler (v1.35): its queue, its filters and the scores of its default profile, without preemption.

mod census;
mod nodes;
mod observe;
mod queue;
mod score;
mod selector;
mod shape;
#[cfg(test)]
mod tests;
mod topology;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
};

use indexmap::IndexMap;
use karpenter_core::{
    Timestamp,
    api::{LabelSelector, ObjectKey, Pod},
    cluster::Storage,
};

use self::{
    census::Census,
    nodes::{Crowded, Nodes},
    queue::Queue,
    selector::Kin,
    shape::{ResourceTable, Shapes, Verdict},
    topology::{Neighbours, Standing, has_hard_rules},
};
use super::{FxBuild, Rng};

/// Below this many nodes all of them are looked at (`minFeasibleNodesToFind`).
const MIN_FEASIBLE: usize = 100;

/// What the scheduler decided about a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Decision {
    pub(crate) pod: ObjectKey,
    /// The name of its node, or why it has none.
    pub(crate) node: Result<String, String>,
}

/// Binds pods to nodes. It is told of changes, and asked for decisions, which it takes for granted from then on.
#[derive(Clone, Debug)]
pub(crate) struct Scheduler {
    nodes: Nodes,
    census: Census,
    shapes: Shapes,
    resources: ResourceTable,
    queue: Queue,
    pods: IndexMap<ObjectKey, Known, FxBuild>,
    /// The pods on each node.
    on_node: BTreeMap<usize, BTreeSet<ObjectKey>>,
    storage: Storage,
    /// Which pods a workload owns, by its uid.
    workloads: BTreeMap<String, LabelSelector>,
    /// Counts whenever there may be more room than before, and whenever anything changes that rules between pods see.
    room: u64,
    mix: u64,
    refusals: IndexMap<(usize, Arc<Kin>), Refused, FxBuild>,
    /// Where the search for nodes goes on for the next pod.
    start: usize,
    rng: Rng,
}

/// Why pods of a kind found no node.
#[derive(Clone, Debug)]
struct Refused {
    /// The counts of [`Scheduler`] when that was.
    room: u64,
    mix: u64,
    message: String,
}

/// A pod that waits for a node or has one.
#[derive(Clone, Debug)]
struct Known {
    pod: Arc<Pod>,
    shape: usize,
    kin: Arc<Kin>,
    /// The slot of its node.
    slot: Option<usize>,
    /// Whether it is on its way out.
    is_faded: bool,
}

impl Scheduler {
    pub(crate) fn new(rng: Rng) -> Self {
        Self {
            nodes: Nodes::default(),
            census: Census::default(),
            shapes: Shapes::default(),
            resources: ResourceTable::new(),
            queue: Queue::new(),
            pods: IndexMap::default(),
            on_node: BTreeMap::new(),
            storage: Storage::default(),
            workloads: BTreeMap::new(),
            room: 0,
            mix: 0,
            refusals: IndexMap::default(),
            start: 0,
            rng,
        }
    }

    /// How many pods wait for a node.
    pub(crate) fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// When the next pod is tried again whose time has not come.
    pub(crate) fn next_at(&self) -> Option<Timestamp> {
        self.queue.next_at()
    }

    /// Tries the next pod, if one is to be tried.
    pub(crate) fn decide(&mut self, now: Timestamp) -> Option<Decision> {
        self.queue.advance(now);
        let key = self.queue.next()?.clone();
        let known = self.pods.get(&key).expect("pods of the queue are known until they leave it").clone();
        let node = match self.refused_before(&known) {
            Some(message) => Err(message),
            None => self.find(&known),
        };
        match node {
            Ok(slot) => {
                self.queue.remove(&key);
                self.place(&key, slot);
                let name = self.nodes.get(slot).map(|info| info.node.metadata.name.clone());
                Some(Decision { pod: key, node: Ok(name.expect("it was found among the nodes")) })
            }
            Err(message) => {
                self.queue.fail(&key, now);
                let refusal = Refused { room: self.room, mix: self.mix, message: message.clone() };
                self.refusals.insert((known.shape, known.kin), refusal);
                Some(Decision { pod: key, node: Err(message) })
            }
        }
    }

    /// Why a pod found no node, if an equal one found none and nothing has changed since.
    fn refused_before(&mut self, known: &Known) -> Option<String> {
        let refusal = self.refusals.get(&(known.shape, known.kin.clone()));
        let Refused { room, mix, message } = refusal?;
        if *room != self.room {
            self.refusals.clear();
            return None;
        }
        let still = *mix == self.mix || !has_hard_rules(&known.pod.spec);
        still.then(|| message.clone())
    }

    fn find(&mut self, known: &Known) -> Result<usize, String> {
        if let Err(problem) = &self.shapes.get(known.shape).volumes {
            return Err(format!("0/{} nodes are available: {problem}", self.nodes.len()));
        }
        if !known.pod.spec.resource_claims.is_empty() {
            return Err(format!("0/{} nodes are available: cannot allocate all claims", self.nodes.len()));
        }
        let standing = Standing::of(&known.pod, &known.kin, &mut self.nodes, &mut self.census);
        let (feasible, obstacles) = self.filter(known, &standing);
        match feasible.as_slice() {
            [] => Err(self.explain(&obstacles)),
            [only] => Ok(*only),
            _ => Ok(self.choose(known, &feasible)),
        }
    }

    /// The nodes that will do, as many as the kube-scheduler looks for, and how many others fail for what.
    fn filter(&mut self, known: &Known, standing: &Standing) -> (Vec<usize>, BTreeMap<Obstacle, usize>) {
        let (mut feasible, mut obstacles) = (Vec::new(), BTreeMap::new());
        let shape = self.shapes.get_mut(known.shape);
        let named = shape.named_nodes.clone();
        let slots = self.nodes.slots.len();
        let (enough, first) = (enough(self.nodes.len()), if named.is_some() { 0 } else { self.start });
        let mut looked = 0;
        let slot_of = |name: &String| self.nodes.slot(name);
        let few: Option<Vec<usize>> = named.as_ref().map(|names| names.iter().filter_map(slot_of).collect());
        let count = few.as_ref().map_or(slots, Vec::len);
        for i in 0..count {
            let slot = few.as_ref().map_or_else(|| (first + i) % slots, |few| few[i]);
            looked += 1;
            let Some(info) = self.nodes.get(slot) else { continue };
            let verdict = shape.verdict(slot, info);
            let obstacle = match verdict {
                Verdict::Fits => match info.crowded(shape) {
                    Some(crowded) => Some(Obstacle::Crowded(crowded)),
                    None => standing.obstacle(slot, &self.nodes).map(Obstacle::Neighbours),
                },
                Verdict::Unschedulable => Some(Obstacle::Unschedulable),
                Verdict::Tainted => Some(Obstacle::Taint),
                Verdict::WrongLabels => Some(Obstacle::Labels),
                Verdict::WrongVolumes => Some(Obstacle::VolumeZone),
            };
            match obstacle {
                Some(obstacle) => *obstacles.entry(obstacle).or_default() += 1,
                None => feasible.push(slot),
            }
            if feasible.len() >= enough {
                break;
            }
        }
        if few.is_none() && slots > 0 {
            self.start = (self.start + looked) % slots;
        } else if few.is_some() {
            *obstacles.entry(Obstacle::Labels).or_default() += self.nodes.len().saturating_sub(count);
        }
        (feasible, obstacles)
    }

    /// The node with the best score, of equals any.
    fn choose(&mut self, known: &Known, feasible: &[usize]) -> usize {
        let owners = &known.pod.metadata.owner_references;
        let workload = owners.iter().find_map(|owner| self.workloads.get(&owner.uid));
        let shape = self.shapes.get(known.shape);
        let (nodes, census) = (&mut self.nodes, &mut self.census);
        let scores = score::scores(&known.pod, &known.kin, shape, workload, feasible, nodes, census);
        let best = scores.iter().copied().max().unwrap_or(0);
        let equals: Vec<usize> =
            feasible.iter().zip(&scores).filter(|(_, s)| **s == best).map(|(slot, _)| *slot).collect();
        equals[self.rng.index(equals.len())]
    }

    fn explain(&self, obstacles: &BTreeMap<Obstacle, usize>) -> String {
        let words = |obstacle: &Obstacle| match obstacle {
            Obstacle::Crowded(Crowded::Resource(number)) => match self.resources.name(*number) {
                karpenter_core::ResourceName::Pods => "Too many pods".to_owned(),
                name => format!("Insufficient {name}"),
            },
            other => other.to_string(),
        };
        let mut reasons: Vec<String> = obstacles.iter().map(|(o, count)| format!("{count} {}", words(o))).collect();
        reasons.sort();
        let colon = if reasons.is_empty() { "" } else { ": " };
        format!("0/{} nodes are available{colon}{}.", self.nodes.len(), reasons.join(", "))
    }
}

/// What keeps a pod off a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Obstacle {
    Unschedulable,
    Taint,
    Labels,
    VolumeZone,
    Crowded(Crowded),
    Neighbours(Neighbours),
}

impl fmt::Display for Obstacle {
    /// In the words of the kube-scheduler.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unschedulable => "node(s) were unschedulable",
            Self::Taint => "node(s) had untolerated taint(s)",
            Self::Labels => "node(s) didn't match Pod's node affinity/selector",
            Self::VolumeZone => "node(s) had volume node affinity conflict",
            Self::Crowded(Crowded::Resource(_)) => "Insufficient resources",
            Self::Crowded(Crowded::Ports) => "node(s) didn't have free ports for the requested pod ports",
            Self::Crowded(Crowded::Volumes) => "node(s) exceed max volume count",
            Self::Neighbours(Neighbours::Spread) => "node(s) didn't match pod topology spread constraints",
            Self::Neighbours(Neighbours::Lonely) => "node(s) didn't match pod affinity rules",
            Self::Neighbours(Neighbours::Disliked) => "node(s) didn't match pod anti-affinity rules",
            Self::Neighbours(Neighbours::DislikedByRunning) => {
                "node(s) didn't satisfy existing pods anti-affinity rules"
            }
        })
    }
}

/// How many nodes that will do are enough, of so many nodes (`numFeasibleNodesToFind`).
fn enough(nodes: usize) -> usize {
    if nodes < MIN_FEASIBLE {
        return nodes.max(1);
    }
    let percent = 50_usize.saturating_sub(nodes / 125).max(5);
    (nodes * percent / 100).max(MIN_FEASIBLE)
}
