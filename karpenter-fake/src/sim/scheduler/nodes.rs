//! What nodes have and what is taken of it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use karpenter_core::{api::Node, cluster::Attachment, labels};

use super::shape::{Port, ResourceTable, Shape};
use crate::checker::{filters::amounts_of, ports::is_same};

/// A node with what its pods take.
#[derive(Clone, Debug)]
pub(super) struct NodeInfo {
    pub(super) node: Arc<Node>,
    /// Its labels, the beta names of zones among them.
    pub(super) labels: BTreeMap<String, String>,
    /// Another one whenever its labels or taints change, and never that of another node.
    pub(super) version: u32,
    /// By the numbers of the resources.
    pub(super) allocatable: Vec<i64>,
    pub(super) requested: Vec<i64>,
    /// CPU and memory as they count when nodes are scored.
    pub(super) scored: [i64; 2],
    pub(super) ports: Vec<Port>,
    /// How many pods mount each volume.
    attached: BTreeMap<Attachment, usize>,
    pub(super) volume_limits: BTreeMap<String, u32>,
}

/// What keeps a pod off a node because of other pods there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Crowded {
    /// This resource, by its number.
    Resource(usize),
    Ports,
    Volumes,
}

impl NodeInfo {
    fn new(node: Arc<Node>, version: u32, resources: &mut ResourceTable, limits: BTreeMap<String, u32>) -> Self {
        let mut info = Self {
            labels: BTreeMap::new(),
            version,
            allocatable: Vec::new(),
            requested: Vec::new(),
            scored: [0; 2],
            ports: Vec::new(),
            attached: BTreeMap::new(),
            volume_limits: limits,
            node: node.clone(),
        };
        info.describe(node, resources);
        info
    }

    fn describe(&mut self, node: Arc<Node>, resources: &mut ResourceTable) {
        self.allocatable.clear();
        for (name, amount) in amounts_of(&node.status.allocatable) {
            *at(&mut self.allocatable, resources.number(&name)) = amount;
        }
        self.labels.clone_from(&node.metadata.labels);
        self.node = node;
    }

    /// Whether there is room (the filters `NodePorts`, `NodeResourcesFit` and `NodeVolumeLimits`).
    pub(super) fn crowded(&self, shape: &Shape) -> Option<Crowded> {
        if shape.ports.iter().any(|port| self.ports.iter().any(|taken| is_same(port, taken))) {
            return Some(Crowded::Ports);
        }
        for &(number, amount) in &shape.requests {
            let has = self.allocatable.get(number).copied().unwrap_or(0);
            let taken = self.requested.get(number).copied().unwrap_or(0);
            if amount > has - taken {
                return Some(Crowded::Resource(number));
            }
        }
        self.lacks_attachments(shape).then_some(Crowded::Volumes)
    }

    fn lacks_attachments(&self, shape: &Shape) -> bool {
        let Ok(needs) = &shape.volumes else { return false };
        if needs.attachments.is_empty() || self.volume_limits.is_empty() {
            return false;
        }
        self.volume_limits.iter().any(|(driver, limit)| {
            let new =
                needs.attachments.iter().filter(|a| a.driver == *driver && !self.attached.contains_key(a)).count();
            let there = self.attached.keys().filter(|a| a.driver == *driver).count();
            new > 0 && there + new > *limit as usize
        })
    }

    pub(super) fn add(&mut self, shape: &Shape) {
        for &(number, amount) in &shape.requests {
            *at(&mut self.requested, number) += amount;
        }
        self.scored = [0, 1].map(|i| self.scored[i] + shape.scored[i]);
        self.ports.extend(shape.ports.iter().cloned());
        for attachment in shape.volumes.iter().flat_map(|needs| &needs.attachments) {
            *self.attached.entry(attachment.clone()).or_default() += 1;
        }
    }

    pub(super) fn remove(&mut self, shape: &Shape) {
        for &(number, amount) in &shape.requests {
            *at(&mut self.requested, number) -= amount;
        }
        self.scored = [0, 1].map(|i| self.scored[i] - shape.scored[i]);
        for port in &shape.ports {
            let taken = self.ports.iter().position(|p| p == port);
            taken.map(|i| self.ports.swap_remove(i));
        }
        for attachment in shape.volumes.iter().flat_map(|needs| &needs.attachments) {
            let count = self.attached.get_mut(attachment).map_or(0, |count| {
                *count -= 1;
                *count
            });
            if count == 0 {
                self.attached.remove(attachment);
            }
        }
    }
}

/// The amount of this number, which is zero if it was not there.
fn at(amounts: &mut Vec<i64>, number: usize) -> &mut i64 {
    if amounts.len() <= number {
        amounts.resize(number + 1, 0);
    }
    &mut amounts[number]
}

/// The values of one label on all nodes, as small numbers; 0 means that a node has no such label.
#[derive(Clone, Debug, Default)]
pub(super) struct Domains {
    /// Whether no two nodes share a value, so that the slots can stand for the values.
    are_single: bool,
    of_slot: Vec<u32>,
    values: BTreeMap<String, u32>,
}

impl Domains {
    pub(super) fn of(&self, slot: usize) -> Option<usize> {
        self.of_slot.get(slot).copied().filter(|d| *d != 0).map(|d| d as usize)
    }

    /// One more than the largest number of a value.
    pub(super) fn bound(&self) -> usize {
        if self.are_single { self.of_slot.len() + 1 } else { self.values.len() + 1 }
    }

    fn set(&mut self, slot: usize, value: Option<&String>) {
        if self.of_slot.len() <= slot {
            self.of_slot.resize(slot + 1, 0);
        }
        let number = |count: usize| u32::try_from(count + 1).expect("fewer than 2^32 nodes");
        let next = number(self.values.len());
        self.of_slot[slot] = match value {
            None => 0,
            Some(_) if self.are_single => number(slot),
            Some(value) => *self.values.entry(value.clone()).or_insert(next),
        };
    }
}

/// The nodes of a cluster, each in a slot.
#[derive(Clone, Debug, Default)]
pub(super) struct Nodes {
    pub(super) slots: Vec<Option<NodeInfo>>,
    free: BTreeSet<usize>,
    by_name: BTreeMap<String, usize>,
    /// By the keys of labels that pods asked about.
    domains: BTreeMap<String, Domains>,
    versions: u32,
}

impl Nodes {
    pub(super) fn len(&self) -> usize {
        self.by_name.len()
    }

    pub(super) fn slot(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).copied()
    }

    pub(super) fn get(&self, slot: usize) -> Option<&NodeInfo> {
        self.slots.get(slot)?.as_ref()
    }

    pub(super) fn get_mut(&mut self, slot: usize) -> Option<&mut NodeInfo> {
        self.slots.get_mut(slot)?.as_mut()
    }

    /// The slots of nodes.
    pub(super) fn used(&self) -> impl Iterator<Item = (usize, &NodeInfo)> {
        self.slots.iter().enumerate().filter_map(|(slot, info)| Some((slot, info.as_ref()?)))
    }

    /// Takes in a node as it is now and tells its slot, if anything changed that bears on where pods may go.
    pub(super) fn apply(
        &mut self,
        node: &Arc<Node>,
        resources: &mut ResourceTable,
        limits: BTreeMap<String, u32>,
    ) -> Option<usize> {
        self.versions += 1;
        let Some(slot) = self.slot(&node.metadata.name) else {
            let slot = self.free.pop_first().unwrap_or(self.slots.len());
            if slot == self.slots.len() {
                self.slots.push(None);
            }
            self.slots[slot] = Some(NodeInfo::new(node.clone(), self.versions, resources, limits));
            self.by_name.insert(node.metadata.name.clone(), slot);
            self.relabel(slot);
            return Some(slot);
        };
        let version = self.versions;
        let info = self.get_mut(slot)?;
        let before = std::mem::replace(&mut info.node, node.clone());
        let is_labelled = before.metadata.labels != node.metadata.labels;
        if is_labelled || before.spec != node.spec {
            info.version = version;
        } else if before.status.allocatable == node.status.allocatable && info.volume_limits == limits {
            return None;
        }
        info.volume_limits = limits;
        info.describe(node.clone(), resources);
        if is_labelled {
            self.relabel(slot);
        }
        Some(slot)
    }

    pub(super) fn remove(&mut self, name: &str) -> Option<usize> {
        let slot = self.by_name.remove(name)?;
        self.slots[slot] = None;
        self.free.insert(slot);
        for domains in self.domains.values_mut() {
            domains.set(slot, None);
        }
        Some(slot)
    }

    /// The values of a label, which are kept up to date from now on.
    pub(super) fn domains(&mut self, key: &str) -> &Domains {
        if !self.domains.contains_key(key) {
            let mut domains = Domains { are_single: key == labels::HOSTNAME, ..Domains::default() };
            for (slot, info) in self.used() {
                domains.set(slot, info.labels.get(key));
            }
            self.domains.insert(key.to_owned(), domains);
        }
        &self.domains[key]
    }

    /// The values of a label that was asked about before.
    pub(super) fn known_domains(&self, key: &str) -> Option<&Domains> {
        self.domains.get(key)
    }

    fn relabel(&mut self, slot: usize) {
        let Some(info) = self.slots[slot].as_ref() else { return };
        for (key, domains) in &mut self.domains {
            domains.set(slot, info.labels.get(key));
        }
    }
}
